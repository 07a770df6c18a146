"""Samples of inputs with their outputs, from a study or as they are given."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._check import kind_of, message, require
from ensemble.uq.inputs.samples import InputSamples
from ensemble.uq.study.outputs import named_outputs
from ensemble.uq.study.study_result import UqResult

__all__ = ["Component", "components_of", "observations"]


class Component(NamedTuple):
    """One number of every sample's inputs: an input, or a component of a vector."""

    label: str
    """Name of the input, of a vector with the place, ``v[0]``."""
    name: str
    place: int
    values: np.ndarray
    """Shape (n_samples,)."""

    @property
    def numbers(self) -> np.ndarray:
        """The values as float64; places among the different ones where they are no numbers."""
        values = self.values
        numeric = values.dtype.kind in "iufb"
        return np.asarray(values if numeric else np.unique(values, return_inverse=True)[1], dtype=np.float64)


def components_of(samples: Any) -> tuple[list[Component], list[str]]:
    """The numbers of all inputs that vary, and the names of the inputs that are fields: functions of points."""
    found, fields = [], []
    for name in samples.names:
        if not hasattr(samples[name], "samples"):
            fields.append(name)
            continue
        values = np.asarray(samples[name].samples)
        rows = values.reshape(-1, values.shape[-1])
        for place, row in enumerate(rows):
            if (row != row[0]).any():
                found.append(Component(name if len(rows) == 1 else f"{name}[{place}]", name, place, row))
    return found, fields


def observations(
    study: Any, outputs: Any, function: str
) -> tuple[InputSamples, dict[str, np.ndarray], tuple[str, ...]]:
    """Samples, real outputs ``(*shape, n_samples)``, and what was left out."""
    notes: tuple[str, ...] = ()
    if isinstance(study, UqResult):
        require(outputs is None, function, "outputs", "be None for a UqResult", kind_of(outputs))
        samples: InputSamples = study.inputs
        values = {name: np.asarray(study.samples(name).samples) for name in study.names}
        if study.n_failed:
            notes = (f"{study.n_failed} of {study.n_done} samples failed and are left out.",)
    elif isinstance(study, InputSamples):
        samples = study
        if outputs is None:
            raise TypeError(message(function, "outputs", "be given with InputSamples", None))
        values = named_outputs(outputs, samples.n_samples, function, arrays=True)
        finite = np.ones(samples.n_samples, dtype=bool)
        for array in values.values():
            finite &= np.all(np.isfinite(array.reshape(-1, samples.n_samples)), axis=0)
        if not np.all(finite):
            notes = (f"{np.sum(~finite)} of {finite.size} samples are not finite and are left out.",)
            samples = samples.take(finite)
            values = {name: array[..., finite] for name, array in values.items()}
    else:
        wanted = "be a UqResult or InputSamples"
        raise TypeError(message(function, "study", wanted, kind_of(study)))
    for name, array in values.items():
        if array.dtype.kind == "c":
            advice = "Take its real and imaginary part."
            raise TypeError(message(function, f"output {name!r}", "be real", f"dtype {array.dtype}", advice))
    return samples, {name: np.asarray(array, dtype=np.float64) for name, array in values.items()}, notes
