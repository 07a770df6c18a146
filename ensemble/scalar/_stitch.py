"""Nested values of groups of samples: cut out, copied, and put together in sample order."""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._backend import is_array, to_numpy
from ensemble.scalar.branching import _Gather
from ensemble.scalar.ensemble import Ensemble, packed, wrap
from ensemble.scalar.namespace import base_of
from ensemble.scalar.sample_set import SampleSet

__all__ = ["ForeignError", "SampleList", "copied", "cut", "ensembles_in", "plain", "sample_of", "stitched"]

ATOMS = (str, bytes, bool, int, float, complex, np.generic, np.dtype, type(None), type(...), type, enum.Enum, range)
"""Values without parts, in which no ensemble can hide."""


class SampleList(Sequence[Any]):
    """Values that no array holds, one a sample: texts, ``None``, arrays of different shapes.

    Parameters
    ----------
    values : sequence

    Examples
    --------
    >>> SampleList(["laminar", "turbulent"]).sample(1)
    'turbulent'
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = tuple(values)

    @property
    def n_samples(self) -> int:
        """How many samples it holds."""
        return len(self._values)

    def sample(self, i: int) -> Any:
        """The value of sample `i`."""
        return self._values[i]

    def __getitem__(self, i: Any) -> Any:
        return self._values[i]

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return self._values == (other._values if isinstance(other, SampleList) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(value) for value in self._values[:6])
        return f"SampleList([{shown}{', ...' if len(self._values) > 6 else ''}], n_samples={len(self._values)})"


class ForeignError(Exception):
    """A value of which it is not known what belongs to one sample."""


# -- nests -------------------------------------------------------------------------------------------------------------


def _parts(value: Any) -> list[tuple[Any, Any]] | None:
    """The parts of a container with their keys; None for anything else."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def _filled(value: Any, parts: list[Any]) -> Any:
    """A container like `value` that holds `parts`."""
    if isinstance(value, dict):
        new = copy.copy(value)
        new.update(zip(value, parts, strict=True))
        return new
    if isinstance(value, list | tuple):
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    new = copy.copy(value)
    for field, part in zip(dataclasses.fields(value), parts, strict=True):
        object.__setattr__(new, field.name, part)
    return new


def _mapped(f: Callable[[Any], Any], value: Any) -> Any:
    parts = _parts(value)
    return f(value) if parts is None else _filled(value, [_mapped(f, part) for _, part in parts])


def ensembles_in(value: Any) -> list[Ensemble]:
    """All ensembles among the leaves of `value`."""
    parts = _parts(value)
    if parts is None:
        return [value] if isinstance(value, Ensemble) else []
    return [x for _, part in parts for x in ensembles_in(part)]


def copied(f: Callable[[Any], Any], value: Any) -> Any:
    """`f` of every leaf, arrays copied: nothing of `value` can be changed through it. One array stays one array."""
    known: dict[int, Any] = {}

    def fresh(leaf: Any) -> Any:
        if id(leaf) not in known:
            known[id(leaf)] = f(copy.copy(leaf) if isinstance(leaf, Ensemble) and leaf.is_shared else _own(leaf))
        return known[id(leaf)]

    return _mapped(fresh, value)


def _own(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    if is_array(leaf) and not isinstance(leaf, np.generic | Ensemble):
        return base_of(leaf).asarray(leaf, copy=True)
    return leaf


def plain(x: Any, s: int) -> Any:
    """Sample `s` of an ensemble as the base library has it: a scalar of NumPy where it has no axis."""
    if not isinstance(x, Ensemble):
        return x
    value = x.sample(s)
    return value[()] if isinstance(value, np.ndarray) else value


def cut(value: Any, chosen: np.ndarray, n_samples: int) -> Any:
    """What a run of `n_samples` returned, for the samples at `chosen` alone."""
    gather = _Gather(chosen)

    def leaf(x: Any) -> Any:
        if isinstance(x, Ensemble):
            if x.n_samples not in (1, n_samples):
                raise ForeignError(f"f returned an ensemble of {x.n_samples} samples in a run of {n_samples}")
            # Cutting copies: the result must not change with what f still holds.
            return copy.copy(x) if x.is_shared else gather(x)
        if isinstance(x, ATOMS) or (is_array(x) and _holds_numbers(x)):
            return _own(x)
        raise ForeignError(f"f returned a {type(x).__name__}, in which samples cannot be told apart")

    return _mapped(leaf, value)


def _holds_numbers(x: Any) -> bool:
    return not isinstance(x, np.ndarray) or x.dtype.kind in "biufc"


# -- putting together --------------------------------------------------------------------------------------------------


class Stitcher:
    """Puts values of groups side by side; `places` are the samples of each, and some samples may have none."""

    def __init__(self, places: list[np.ndarray], n_samples: int, sample_set: SampleSet | None) -> None:
        self.places = places
        self.n_samples = n_samples
        self.sample_set = sample_set if n_samples > 1 else None
        self.missing = n_samples - sum(place.size for place in places)

    def __call__(self, values: list[Any]) -> Any:
        nests = [_parts(value) for value in values]
        if all(nest is not None for nest in nests):
            keys = [[key for key, _ in nest or []] for nest in nests]
            if all(type(v) is type(values[0]) and set(k) == set(keys[0]) for v, k in zip(values, keys, strict=True)):
                found = [dict(nest or []) for nest in nests]
                return _filled(values[0], [self([parts[key] for parts in found]) for key in keys[0]])
        elif all(_is_number(value) for value in values):
            together = self._array(values)
            if together is not None:
                return together
        elif all(_same(value, values[0]) for value in values):
            return values[0]
        return self._list(values)

    def _list(self, values: list[Any]) -> SampleList:
        listed: list[Any] = [None] * self.n_samples
        for value, place in zip(values, self.places, strict=True):
            for k, s in enumerate(place):
                listed[s] = sample_of(value, k)
        return SampleList(listed)

    def _array(self, values: list[Any]) -> Ensemble | None:
        """One ensemble, or None where no array holds all values exactly."""
        arrays = [v for v in values if isinstance(v, Ensemble) or (is_array(v) and not isinstance(v, np.generic))]
        like = arrays[0] if arrays else np.empty(0)
        base = base_of(like.samples if isinstance(like, Ensemble) else like)
        try:
            columns = [v.samples if isinstance(v, Ensemble) else base.asarray(v)[..., None] for v in values]
            # An integer of Python that fits no dtype comes as an object.
            if len({tuple(column.shape[:-1]) for column in columns}) > 1 or any(c.dtype == object for c in columns):
                return None
            if len(columns) == 1 and not self.missing and columns[0].shape[-1] == 1:
                return wrap(columns[0])
            dtype = base.result_type(*(column.dtype for column in columns))
            if self.missing:
                dtype = dtype if base.isdtype(dtype, ("real floating", "complex floating")) else base.float64
                columns.append(base.full((*columns[0].shape[:-1], 1), base.nan, dtype=dtype))
            if any(_would_change(column, dtype, base) for column in columns):
                return None
            return self._joined(base, columns, dtype)
        except (TypeError, ValueError, OverflowError):
            return None  # other libraries, numbers too large for an integer type

    def _joined(self, base: Any, columns: list[Any], dtype: Any) -> Ensemble:
        places = list(self.places)
        if self.missing:
            absent = np.ones(self.n_samples, dtype=bool)
            absent[np.concatenate([np.empty(0, dtype=np.int64), *places])] = False
            places.append(np.flatnonzero(absent))
        wide = [
            base.broadcast_to(base.astype(column, dtype, copy=False), (*column.shape[:-1], place.size))
            for column, place in zip(columns, places, strict=True)
        ]
        back = np.empty(self.n_samples, dtype=np.int64)
        back[np.concatenate(places)] = np.arange(self.n_samples)
        samples = base.take(base.concat(wide, axis=-1), base.asarray(back), axis=-1)
        return wrap(packed(samples), self.sample_set)


def stitched(values: list[Any], places: list[np.ndarray], n_samples: int, sample_set: SampleSet | None) -> Any:
    """One value for all samples; None where no sample has any."""
    return Stitcher(places, n_samples, sample_set)(values) if values else None


def sample_of(value: Any, k: int) -> Any:
    """Sample `k` of what a group returned, built as `f` built it."""
    return _mapped(lambda x: plain(x, k) if isinstance(x, Ensemble) else _own(x), value)


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biufc"
    return isinstance(value, Ensemble | int | float | complex) or is_array(value)


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return type(a) is type(b) and isinstance(a, ATOMS) and not isinstance(a, np.generic) and a == b


def _would_change(column: Any, dtype: Any, base: Any) -> bool:
    """Whether a bool would become a number, or an integer a float that is not the same number."""
    if column.dtype == dtype:
        return False
    if base.isdtype(column.dtype, "bool"):
        return True
    if not base.isdtype(column.dtype, "integral") or base.isdtype(dtype, "integral"):
        return False
    values = to_numpy(column)
    return any(int(value) != int(float(value)) for value in values.ravel())
