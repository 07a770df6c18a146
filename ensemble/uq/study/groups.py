"""Which samples run together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import message, require, samples_text
from ensemble.scalar import Ensemble

__all__ = ["Group", "GroupKey", "order_of_samples", "part", "require_pending", "single"]

GroupKey = str | Callable[[Any], Any] | None


@dataclass(frozen=True)
class Group:
    """Samples that go through the model in one call.

    Attributes
    ----------
    ids : array of int, shape (n_samples,)
        Their numbers in the study.
    samples : InputSamples
        Their inputs: the argument of the model.
    """

    ids: np.ndarray
    samples: Any

    @property
    def n_samples(self) -> int:
        """How many samples it has."""
        return int(self.ids.size)

    def __repr__(self) -> str:
        return f"Group(n_samples={self.n_samples}, ids {self.ids[0]} to {self.ids[-1]})"


def single(group: Group, place: int) -> Group:
    """One sample of `group` as a group."""
    return part(group, np.array([place]))


def part(group: Group, places: np.ndarray) -> Group:
    """The samples of `group` at some places as a group."""
    return Group(group.ids[places], group.samples.take(places))


def order_of_samples(samples: Any, group_by: GroupKey, function: str, window: int | None = None) -> np.ndarray:
    """Places of `samples` in the order of the key, NaN last, equal ones in their own order.

    Samples change places only inside windows of `window` ids, so that blocks of ids are complete early.
    """
    n_samples = samples.n_samples
    if group_by is None:
        return np.arange(n_samples)
    if isinstance(group_by, str):
        requirement = "be the name of an input, or a function of the input samples"
        require(group_by in samples.names, function, "group_by", requirement, repr(group_by))
        value = samples[group_by]
    elif callable(group_by):
        value = group_by(samples)
    else:
        requirement = "be None, the name of an input, or a function of the input samples"
        raise TypeError(message(function, "group_by", requirement, repr(group_by)))
    keys = to_numpy(value.samples) if isinstance(value, Ensemble) else np.asarray(value)
    seen = f"shape {keys.shape}, dtype {keys.dtype}"
    fits = keys.shape == (n_samples,) and keys.dtype.kind in "biuf"
    require(fits, function, "group_by", f"give one real number for each of {n_samples} samples", seen)
    if window is None:
        return np.argsort(keys, kind="stable")
    return np.lexsort((keys, np.asarray(samples.ids) // window))


def require_pending(ids: np.ndarray, is_done: np.ndarray) -> None:
    """Raise unless `ids` are different samples of a plan of which nothing has been told."""
    good = ids.ndim == 1 and ids.dtype.kind in "iu" and ids.size > 0
    seen = f"dtype {ids.dtype}, shape {ids.shape}"
    require(good, "plan.tell", "group", "be a Group of this plan, or a vector of sample ids", seen)
    inside = ids.min() >= 0 and ids.max() < is_done.size
    require(inside, "plan.tell", "group", f"hold ids from 0 to {is_done.size - 1}", f"{ids.min()} to {ids.max()}")
    require(np.unique(ids).size == ids.size, "plan.tell", "group", "name each sample once", samples_text(ids))
    told = ids[is_done[ids]]
    advice = "plan.pending lists those that are left."
    require(told.size == 0, "plan.tell", "group", "be pending", f"{samples_text(told)}, told before", advice)
