"""Outputs of a model: named arrays, samples last, checked for kind, shape and type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ensemble._backend import is_array, to_numpy
from ensemble._check import kind_of, message
from ensemble._errors import ProgramError, kept, picklable
from ensemble.scalar import Ensemble
from ensemble.scalar.divergence.regroup import SampleList
from ensemble.scalar.plain_arrays import masked_as_nan

__all__ = [
    "CallError",
    "Layout",
    "Outcome",
    "OutputError",
    "Raised",
    "blank",
    "check_layout",
    "layout_of",
    "named_outputs",
    "non_finite",
]

Layout = dict[str, tuple[tuple[int, ...], np.dtype]]
"""Shape of one sample and data type of every output."""

RESERVED = ("sample", "done", "failed", "sample_weight", "zarr.json")
"""Names of arrays that a store and a dataset have beside the outputs."""


class OutputError(ProgramError):
    """A model returned outputs of the wrong kind, shape or type: an error of the program, not of a sample."""


class CallError(TypeError):
    """A model does not take what it is called with: an error of the program, not of a sample."""


class Raised(str):
    """The reason of a failure by the exception of a sample, which it keeps."""

    error: Exception

    def __new__(cls, error: Exception) -> Raised:
        """The type and the text of the exception."""
        self = super().__new__(cls, f"{type(error).__name__}: {error}".strip(": "))
        self.error = kept(error)
        return self

    def __reduce__(self) -> Any:
        return str, (str(self),)


@dataclass
class Outcome:
    """What one group of samples gave."""

    outputs: dict[str, np.ndarray]
    failed: np.ndarray
    reasons: dict[int, str] = field(default_factory=dict)
    """Reasons of failures by place in the group."""
    earlier: dict[int, list[str]] = field(default_factory=dict)
    """Why earlier attempts of a sample failed in this call, by place."""
    non_finite: set[int] = field(default_factory=set)
    """Places that failed because a value is not finite, and for nothing else."""
    seconds: float = 0.0
    late: int | None = None
    """The place of the sample during which the call was ended, -1 where it is unknown; None of one that has ended."""
    out_of_memory: bool = False
    raised: str = ""
    """The type of the exception of the call."""
    alike: str = ""
    """Type and text of the exception that every sample raised, where all raised the same."""
    error: Exception | None = None
    """That exception of the first sample; None where it cannot be sent from another process."""
    trace: str = ""
    """Where it was raised."""
    held: float = 0.0
    """Seconds, beyond the limit of a sample, in which the call let no other code of Python run."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"error": picklable(self.error)}


def _refuse(function: str, argument: str, requirement: str, seen: Any, advice: str = "") -> OutputError:
    return OutputError(message(function, argument, requirement, seen, advice))


def named_outputs(value: Any, n_samples: int, function: str, *, arrays: bool = False) -> dict[str, np.ndarray]:
    """The outputs by name as NumPy arrays ``(*shape, n_samples)``; shared values and numbers are repeated.

    With `arrays`, those of the last axis are the samples; without, an array is the output of a group of one sample.
    """
    if not isinstance(value, (dict, Mapping)):  # dict first: the check of an abstract class costs a microsecond
        value = {"y": value}
    result = {}
    for name, one in value.items():
        if not isinstance(name, str) or not name or name[0] in "._" or "/" in name or "\0" in name:
            requirement = "be a string without '/' that does not begin with '.' or '_'"
            raise _refuse(function, "the name of an output", requirement, repr(name))
        if name in RESERVED:
            raise _refuse(function, "the name of an output", f"be none of {', '.join(RESERVED)}", repr(name))
        result[name] = _samples_of(one, n_samples, f"output {name!r}", function, arrays)
    return result


def _samples_of(value: Any, n_samples: int, argument: str, function: str, arrays: bool) -> np.ndarray:
    """The samples of one output."""
    shareable, value = True, masked_as_nan(value)
    if isinstance(value, Ensemble):
        samples = to_numpy(value.samples)
    elif isinstance(value, (int, float, complex, np.generic)):
        samples = np.asarray(value)[None]
    elif arrays and is_array(value):
        samples, shareable = to_numpy(value), False
    elif n_samples == 1 and is_array(value):  # as solvers of one sample return it
        samples = to_numpy(value)[..., None]
    else:
        what = (
            "an Ensemble, an array with samples in its last axis, or a number" if arrays else "an Ensemble or a number"
        )
        seen = kind_of(value) + (f" of shape {tuple(value.shape)}" if is_array(value) else "")
        if isinstance(value, SampleList):
            seen = "values of different kinds or shapes from run"
        advice = (
            "Use en.Ensemble(array) where its last axis counts samples, en.shared(array) where all samples share it."
        )
        raise _refuse(function, argument, f"be {what}", seen, advice)
    if samples.dtype.kind not in "biufc":
        raise _refuse(function, argument, "hold numbers or bools", f"dtype {samples.dtype}")
    if samples.ndim == 0 or samples.shape[-1] != n_samples:
        if not shareable or samples.shape[-1] != 1:
            seen = f"shape {tuple(samples.shape)}"
            raise _refuse(function, argument, f"have {n_samples} samples in its last axis", seen)
        samples = np.repeat(samples, n_samples, axis=-1)
    return samples


def layout_of(outputs: Mapping[str, np.ndarray]) -> Layout:
    """Shapes and types of `outputs`."""
    return {name: (array.shape[:-1], array.dtype) for name, array in outputs.items()}


def check_layout(expected: Layout, found: Layout, function: str) -> None:
    """Raise unless a later group has the outputs of the first."""
    if expected == found:
        return
    if expected.keys() != found.keys():
        raise _refuse(
            function,
            "outputs",
            f"be {', '.join(map(repr, expected))} as in the first group",
            ", ".join(map(repr, found)),
        )
    for name, (shape, dtype) in expected.items():
        if found[name][0] != shape:
            requirement = f"have shape {shape} in every sample, as in the first group"
            raise _refuse(function, f"output {name!r}", requirement, f"shape {found[name][0]}")
        if found[name][1] != dtype:
            requirement = f"have dtype {dtype} as in the first group"
            advice = "Convert it in the model: xp.astype(y, xp.float64)."
            raise _refuse(function, f"output {name!r}", requirement, f"dtype {found[name][1]}", advice)


def blank(shape: tuple[int, ...], dtype: np.dtype, n_samples: int) -> np.ndarray:
    """What stands for samples that are not there: NaN, or 0 where the type has none."""
    return np.full((*shape, n_samples), np.nan if dtype.kind in "fc" else 0, dtype)


def non_finite(array: np.ndarray) -> list[int]:
    """The places of samples that hold a value that is not finite."""
    if array.dtype.kind not in "fc":
        return []
    finite = np.isfinite(array)
    if finite.all():
        return []
    places: list[int] = np.flatnonzero(~finite.reshape(-1, array.shape[-1]).all(axis=0)).tolist()
    return places
