"""Nested values of groups of samples: selected, copied, and merged in sample order."""

from __future__ import annotations

import collections
import copy
import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._backend import base_of, copy_of, is_array, to_numpy
from ensemble._check import kind_of, message
from ensemble._containers import filled, mapped, parts_of
from ensemble._typing import Array, Namespace
from ensemble.scalar.divergence.branching import Gather, ensembles_in
from ensemble.scalar.ensemble import Ensemble, packed, wrap
from ensemble.scalar.plain_arrays import samples_of_stack
from ensemble.scalar.sample_set import SampleSet

__all__ = [
    "NotSeparableError",
    "SampleList",
    "copied",
    "plain",
    "refuse_other_samples",
    "regrouped",
    "regrouped_rows",
    "sample_of",
    "selected",
]

ATOMS = (str, bytes, bool, int, float, complex, np.generic, np.dtype, type(None), type(...), type, enum.Enum, range)
"""Values without parts: none of them holds an ensemble."""


class SampleList(Sequence[Any]):
    """Values that no array holds, one per sample: texts, ``None``, arrays of different shapes.

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


SCALARS = frozenset((float, int, bool, np.float64, np.int64, np.bool_))
"""Types of which an array made of a list holds every value, integers beyond 64 bits aside."""


class NotSeparableError(Exception):
    """A value of which it is not known what belongs to one sample."""


# -- nests -------------------------------------------------------------------------------------------------------------


def copied(f: Callable[[Any], Any], value: Any) -> Any:
    """`f` of every leaf, arrays copied: nothing of `value` can be changed through it. One array stays one array."""
    known: dict[int, Any] = {}

    def leaf_copied(leaf: Any) -> Any:
        if id(leaf) not in known:
            known[id(leaf)] = f(
                copy.copy(leaf) if isinstance(leaf, Ensemble) and leaf.is_shared else _array_copied(leaf)
            )
        return known[id(leaf)]

    return mapped(leaf_copied, value)


def _array_copied(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    if is_array(leaf) and not isinstance(leaf, np.generic | Ensemble):
        return copy_of(leaf)
    return leaf


def plain(x: Any, s: int) -> Any:
    """Sample `s` of an ensemble as the base library has it: a scalar of NumPy where it has no axis."""
    if not isinstance(x, Ensemble):
        return x
    value = x.sample(s)
    return value[()] if isinstance(value, np.ndarray) else value


def selected(value: Any, chosen: np.ndarray, n_samples: int) -> Any:
    """The samples at `chosen` of what a run of `n_samples` returned."""
    gather = Gather(chosen)

    def leaf(x: Any) -> Any:
        if isinstance(x, Ensemble):
            if x.n_samples not in (1, n_samples):
                raise NotSeparableError(f"f returned an ensemble of {x.n_samples} samples in a run of {n_samples}")
            # A copy: the result must not change with arrays that f still references.
            return copy.copy(x) if x.is_shared else gather(x)
        if isinstance(x, ATOMS) or (is_array(x) and _holds_numbers(x)):
            return _array_copied(x)
        raise NotSeparableError(f"f returned {kind_of(x)}, in which samples cannot be told apart")

    try:
        return mapped(leaf, value)
    except TypeError as error:
        raise NotSeparableError(str(error)) from error


def _holds_numbers(x: Any) -> bool:
    return not isinstance(x, np.ndarray) or x.dtype.kind in "biufc"


# -- merging -----------------------------------------------------------------------------------------------------------


class _Regrouper:
    """Merges values of groups; `places` are the samples of each, and some samples may have none."""

    def __init__(self, places: list[np.ndarray], n_samples: int, sample_set: SampleSet | None) -> None:
        self.places = places
        self.n_samples = n_samples
        self.sample_set = sample_set if n_samples > 1 else None
        self.missing = n_samples - sum(place.size for place in places)

    def __call__(self, values: list[Any]) -> Any:
        kinds = set(map(type, values))
        if kinds <= SCALARS:
            joined = self._array(values)
            return self._list(values) if joined is None else joined
        nests = [parts_of(value) for value in values]
        if all(nest is not None for nest in nests):
            found = [nest or {} for nest in nests]
            if len(kinds) == 1 and all(_same_keys(parts, found[0], values[0]) for parts in found):
                try:
                    return filled(values[0], [self([parts[key] for parts in found]) for key in found[0]])
                except TypeError:  # no other container of that type can be made
                    return self._list(values)
        elif all(_is_number(value) for value in values):
            joined = self._array(values)
            if joined is not None:
                return joined
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
        values, places = self._gathered(values)
        arrays = [v for v in values if isinstance(v, Ensemble) or (is_array(v) and not isinstance(v, np.generic))]
        like = arrays[0] if arrays else np.empty(0)
        base = base_of(like.samples if isinstance(like, Ensemble) else like)
        try:
            columns = [_column(v, base) for v in values]
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
            return self._joined(base, columns, places, dtype)
        except (TypeError, ValueError, OverflowError):
            return None  # other libraries, numbers too large for an integer type

    def _gathered(self, values: list[Any]) -> tuple[list[Any], list[np.ndarray]]:
        """Scalars of one type, each of one sample, become one column."""
        rows: dict[type, list[int]] = {}
        for k, value in enumerate(values):
            if type(value) in SCALARS and self.places[k].size == 1:
                rows.setdefault(type(value), []).append(k)
        columns, places, done = [], [], set()
        for kind, which in rows.items():
            column = np.array([values[k] for k in which])
            if len(which) > 1 and (kind is not int or column.dtype == np.int64):
                columns.append(_Column(column))
                places.append(np.concatenate([self.places[k] for k in which]))
                done.update(which)
        rest = [k for k in range(len(values)) if k not in done]
        return columns + [values[k] for k in rest], places + [self.places[k] for k in rest]

    def _joined(self, base: Namespace, columns: list[Array], places: list[np.ndarray], dtype: Any) -> Ensemble:
        places = list(places)
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


class _Column:
    """Scalars of several samples, shape (n_samples,)."""

    def __init__(self, samples: np.ndarray) -> None:
        self.samples = samples


def _column(value: Any, base: Namespace) -> Any:
    if isinstance(value, Ensemble):
        return value.samples
    if isinstance(value, _Column):
        return base.asarray(value.samples)
    return (value if is_array(value) and not isinstance(value, np.generic) else base.asarray(value))[..., None]


def _same_keys(parts: dict[Any, Any], others: dict[Any, Any], container: Any) -> bool:
    if isinstance(container, collections.OrderedDict):
        return list(parts) == list(others)
    return parts.keys() == others.keys()


def regrouped(values: list[Any], places: list[np.ndarray], n_samples: int, sample_set: SampleSet | None) -> Any:
    """One value for all samples; None where no sample has any."""
    return _Regrouper(places, n_samples, sample_set)(values) if values else None


def regrouped_rows(values: list[Any], n_samples: int, sample_set: SampleSet | None) -> Any:
    """`regrouped` for one value per sample: in few steps where these are numbers or tuples of numbers."""
    kinds = set(map(type, values))
    kind = type(values[0])
    if kinds <= SCALARS and (len(kinds) == 1 or kinds == {float, np.float64}):
        samples = np.array(values)
        if kind is not int or samples.dtype == np.int64:
            return wrap(samples, sample_set)
    elif len(kinds) == 1 and (kind is tuple or kind is list) and len(set(map(len, values))) == 1:
        return kind([regrouped_rows(list(column), n_samples, sample_set) for column in zip(*values, strict=True)])
    elif kind is dict and len(kinds) == 1 and all(value.keys() == values[0].keys() for value in values):
        return {key: regrouped_rows([value[key] for value in values], n_samples, sample_set) for key in values[0]}
    elif kind is np.ndarray and n_samples > 1 and _are_alike(values):
        return wrap(samples_of_stack(np.stack(values)), sample_set)
    ids = np.arange(n_samples)
    return regrouped(values, [ids[s : s + 1] for s in range(n_samples)], n_samples, sample_set)


def _are_alike(values: list[Any]) -> bool:
    """Whether all are arrays of NumPy, each another one, of one shape with axes and one type of numbers."""
    first = values[0]
    if not first.ndim or first.dtype.kind not in "biufc" or len(set(map(id, values))) < len(values):
        return False
    return all(type(x) is np.ndarray and x.shape == first.shape and x.dtype == first.dtype for x in values)


def sample_of(value: Any, k: int) -> Any:
    """Sample `k` of what a group returned, built as `f` built it."""
    try:
        return mapped(lambda x: plain(x, k) if isinstance(x, Ensemble) else _array_copied(x), value)
    except TypeError:  # no other container of that type can be made
        if ensembles_in(value):
            raise
        return value


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biufc"
    return isinstance(value, Ensemble | int | float | complex) or is_array(value)


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return type(a) is type(b) and isinstance(a, ATOMS) and not isinstance(a, np.generic) and a == b


def _would_change(column: Array, dtype: Any, base: Namespace) -> bool:
    """Whether a bool would become a number, or an integer a float that is not the same number."""
    if column.dtype == dtype:
        return False
    if base.isdtype(column.dtype, "bool"):
        return True
    if not base.isdtype(column.dtype, "integral") or base.isdtype(dtype, "integral"):
        return False
    values = to_numpy(column)
    return any(int(value) != int(float(value)) for value in values.ravel())


def refuse_other_samples(value: Any, s: int) -> None:
    """A sample alone has no other samples: an ensemble that it returns came from outside."""
    several = [x.n_samples for x in ensembles_in(value) if not x.is_shared]
    if several:
        seen = f"an ensemble of {several[0]} samples from sample {s} alone"
        advice = (
            "An ensemble that f finds outside itself, as in an attribute, has all samples in every call: give it to "
            "run as an argument of f. An ensemble that f makes itself: return its samples, or statistics of them."
        )
        raise ValueError(message("run", "f", "return values of the samples that it is called with", seen, advice))
