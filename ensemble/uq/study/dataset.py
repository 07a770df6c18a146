"""A result as an `xarray.Dataset`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import message, require
from ensemble._optional import optional
from ensemble.scalar import Ensemble
from ensemble.uq.inputs.samples import labels_of
from ensemble.uq.store.axes import default_names
from ensemble.uq.study.declared import Outputs
from ensemble.uq.study.outputs import RESERVED, OutputError
from ensemble.uq.study.study_protocols import StudyResult

__all__ = [
    "WEIGHTS",
    "axes_of",
    "check_axes",
    "check_names",
    "dataset_of",
    "input_columns",
    "unit_of",
    "weighted_columns",
]

WEIGHTS = "sample_weight"
"""The coordinate that holds the weights of the samples."""


def check_names(outputs: Iterable[str], inputs: Iterable[str], function: str) -> None:
    """Refuse names that coincide in a dataset, where an input beside an output is ``NAME_input``."""
    used = {*outputs, *inputs}
    for name in inputs:
        longer = f"{name}_input"
        if name in (*outputs, *RESERVED) and longer in used:
            wanted, seen = f"differ from {name!r} or {longer!r}", f"both beside an input {name!r}"
            raise OutputError(message(function, "outputs", wanted, seen))


def check_axes(declared: Outputs, inputs: Iterable[str], function: str) -> None:
    """Refuse names of axes that are those of inputs in a dataset."""
    for name in inputs:
        for own in (name, f"{name}_input"):
            advice = "Give the axis another name."
            seen = f"{own!r} beside an input {name!r}"
            require(own not in declared.coordinates, function, "names of axes", "differ from inputs", seen, advice)


def input_columns(samples: Any) -> dict[str, np.ndarray]:
    """The values of every input, ``(*shape, n_samples)``; of a field its coefficients."""
    columns = {}
    for name in samples.names:
        value = samples[name]
        value = value if isinstance(value, Ensemble) else value.coefficients
        array = to_numpy(value.samples)
        columns[name] = np.broadcast_to(array, (*array.shape[:-1], samples.n_samples))
    return columns


def weighted_columns(samples: Any) -> dict[str, np.ndarray]:
    """The values of every input, and the weights of samples that have such."""
    weights = {} if samples.weights is None else {WEIGHTS: np.asarray(samples.weights, np.float64)}
    return input_columns(samples) | weights


def dataset_of(result: StudyResult, inputs: Any, function: str = "UqResult.to_xarray") -> Any:
    """Samples, or statistics where no samples were kept."""
    xarray = optional("xarray", function)

    attributes = {
        "n": result.n,
        "n_failed": result.n_failed,
        "seed": result.seed,
        "sampler": str(getattr(result.sampler, "name", "")),
    }
    variables: dict[str, Any] = {}
    axes = axes_of(result.coordinates, result.units)
    if result.keep == "statistics":
        for name in result.names:
            for statistic in ("mean", "std", "minimum", "maximum"):
                value = np.asarray(getattr(result, statistic)(name))
                variables[f"{name}_{statistic}"] = (result.dims[name], value, unit_of(result.units, name))
        return xarray.Dataset(variables, axes, attributes)
    for name in result.names if result.ids.size else ():
        variables[name] = ((*result.dims[name], "sample"), result.values(name), unit_of(result.units, name))
    variables["failed"] = (("sample",), result.failed)
    variables["done"] = (("sample",), result.done)
    labelled = {name: with_labels(column, labels_of(inputs, name)) for name, column in weighted_columns(inputs).items()}
    columns = {(f"{name}_input" if name in variables else name): c for name, c in labelled.items()}
    coordinates: dict[str, Any] = {
        name: ((*default_names(name, column.ndim - 1), "sample"), column) for name, column in columns.items()
    }
    coordinates["sample"] = (("sample",), np.arange(result.n))
    return xarray.Dataset(variables, coordinates | axes, attributes)


def unit_of(units: Mapping[str, str], name: str) -> dict[str, str]:
    """The attributes of an array: its unit, where it has one."""
    return {"units": units[name]} if name in units else {}


def axes_of(coordinates: Mapping[str, np.ndarray], units: Mapping[str, str]) -> dict[str, Any]:
    """The coordinates of axes as variables of a dataset."""
    return {name: ((name,), values, unit_of(units, name)) for name, values in coordinates.items()}


def with_labels(places: np.ndarray, labels: tuple[Any, ...] | None) -> np.ndarray:
    """The labels at some places, as texts where one of them is a text; the places where there are no labels."""
    if not labels:
        return places
    texts = any(isinstance(label, str) for label in labels)
    named: np.ndarray = np.array([str(label) for label in labels] if texts else labels)[places]
    return named
