"""A result as an `xarray.Dataset`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import message
from ensemble.scalar import Ensemble
from ensemble.uq.inputs.samples import labels_of
from ensemble.uq.study.outputs import RESERVED, OutputError

if TYPE_CHECKING:
    from ensemble.uq.study.result import UqResult

__all__ = ["WEIGHTS", "check_names", "dataset_of", "input_columns", "weighted_columns"]

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


def dataset_of(result: UqResult, inputs: Any) -> Any:
    """Samples, or statistics where no samples were kept."""
    import xarray

    attributes = {
        "n": result.n,
        "n_failed": result.n_failed,
        "seed": result.seed,
        "sampler": str(getattr(result.sampler, "name", "")),
    }
    if result.keep == "statistics":
        variables = {}
        for name in result.names:
            dims = _dims(name, np.ndim(result.mean(name)))
            for statistic in ("mean", "std", "minimum", "maximum"):
                variables[f"{name}_{statistic}"] = (dims, np.asarray(getattr(result, statistic)(name)))
        return xarray.Dataset(variables, attrs=attributes)
    variables = {name: _named(name, result.values(name)) for name in result.names if result.ids.size}
    variables["failed"] = (("sample",), result.failed)
    variables["done"] = (("sample",), result.done)
    labelled = {name: with_labels(column, labels_of(inputs, name)) for name, column in weighted_columns(inputs).items()}
    columns = {(f"{name}_input" if name in variables else name): c for name, c in labelled.items()}
    coordinates = {name: _named(name, column) for name, column in columns.items()}
    coordinates["sample"] = (("sample",), np.arange(result.n))
    return xarray.Dataset(variables, coordinates, attributes)


def with_labels(places: np.ndarray, labels: tuple[Any, ...] | None) -> np.ndarray:
    """The labels at some places, as texts where one of them is a text; the places where there are no labels."""
    if not labels:
        return places
    texts = any(isinstance(label, str) for label in labels)
    named: np.ndarray = np.array([str(label) for label in labels] if texts else labels)[places]
    return named


def _dims(name: str, ndim: int) -> tuple[str, ...]:
    return tuple(f"{name}_dim_{axis}" for axis in range(ndim))


def _named(name: str, array: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of dimensions, those of a store, and the array."""
    return (*_dims(name, array.ndim - 1), "sample"), array
