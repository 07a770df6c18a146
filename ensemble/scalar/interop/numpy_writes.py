"""NumPy's functions that write numbers into an ensemble, all samples in one call.

What a function here does not serve is left to calls of each sample by `NotByRuleError`, before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble.scalar._memory import refill
from ensemble.scalar.ensemble import Ensemble
from ensemble.scalar.interop.numpy_batch_arguments import lifted
from ensemble.scalar.interop.numpy_rules import NotByRuleError
from ensemble.scalar.lift.reductions import visible_axis
from ensemble.scalar.namespace import samples_of, set_of
from ensemble.scalar.own_places import put
from ensemble.scalar.plain_arrays import NUMBERS

__all__ = ["WRITES"]


def _target(x: Any, value: Any) -> None:
    """Go on only with an array of floats that is written to as a whole, and one real number."""
    if not isinstance(x, Ensemble) or not x.ndim or not x.samples.flags.c_contiguous or not x.samples.flags.writeable:
        raise NotByRuleError("a value without axes, or a part of an array")
    if x.dtype.char != "d" or type(value) not in NUMBERS or type(value) is complex:
        raise NotByRuleError("another type")


def _written(name: str, x: Ensemble, others: tuple[Any, ...], write: Callable[[np.ndarray], Any]) -> None:
    """``write(x.samples)``, for as many samples as `others` have."""
    n_samples, sample_set = samples_of(name, x, *others), set_of(x, *others)
    if x.is_shared and n_samples > 1:
        x._widen(n_samples)
    write(x.samples)
    x.sample_set = sample_set
    refill(x._memory_token)


def _masked(mask: Any, x: Ensemble) -> Any:
    """The samples of a mask of the shape of `x`."""
    if not (isinstance(mask, Ensemble) or type(mask) is np.ndarray) or mask.shape != x.shape or mask.dtype.char != "?":
        raise NotByRuleError("a mask of another shape or type")
    return lifted(mask).samples


def _putmask(a: Any, mask: Any, values: Any) -> None:
    _target(a, values)
    where = _masked(mask, a)
    _written("np.putmask", a, (mask,), lambda samples: np.copyto(samples, values, where=where))


def _place(arr: Any, mask: Any, vals: Any) -> None:
    value = vals[0] if isinstance(vals, list | tuple) and len(vals) == 1 else vals
    _target(arr, value)
    where = _masked(mask, arr)
    _written("np.place", arr, (mask,), lambda samples: np.copyto(samples, value, where=where))


def _put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    _target(a, 0.0)
    if isinstance(ind, Ensemble) or isinstance(v, Ensemble) or mode != "raise":
        raise NotByRuleError("places or values of each sample")
    places, values = np.asarray(ind).reshape(-1), np.asarray(v).reshape(-1)
    plain = places.dtype.kind == "i" and values.dtype.kind in "bif" and values.size in (1, places.size)
    if not plain or not places.size or places.min() < -a.size or places.max() >= a.size:
        raise NotByRuleError("places that are not there, or values that repeat")

    def write(samples: np.ndarray) -> None:
        samples.reshape(-1, samples.shape[-1])[places] = values[:, None]

    _written("np.put", a, (), write)


def _put_along_axis(arr: Any, indices: Any, values: Any, axis: Any = -1) -> None:
    _target(arr, values)
    if axis is None or not (isinstance(indices, Ensemble) or type(indices) is np.ndarray):
        raise NotByRuleError("all entries")
    if indices.ndim != arr.ndim or indices.dtype.kind != "i":
        raise NotByRuleError("indices that do not fit")
    places, along = lifted(indices).samples, visible_axis(axis, arr.ndim, "np.put_along_axis")
    if arr.ndim == 1 and put(arr.samples, places, values):
        _written("np.put_along_axis", arr, (indices,), lambda samples: None)
        return
    if places.size and (places.min() < -arr.shape[along] or places.max() >= arr.shape[along]):
        raise NotByRuleError("places that are not there")
    _written("np.put_along_axis", arr, (indices,), lambda samples: np.put_along_axis(samples, places, values, along))


def _fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    _target(a, val)
    if a.ndim != 2 or wrap:
        raise NotByRuleError("several axes")
    places = np.arange(min(a.shape))

    def write(samples: np.ndarray) -> None:
        samples[places, places] = val

    _written("np.fill_diagonal", a, (), write)


WRITES: dict[Any, Callable[..., None]] = {
    np.put: _put,
    np.putmask: _putmask,
    np.place: _place,
    np.put_along_axis: _put_along_axis,
    np.fill_diagonal: _fill_diagonal,
}
"""The rule of each function, by the function itself."""
