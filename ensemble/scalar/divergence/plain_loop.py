"""A loop over samples for functions that are plain arithmetic: what `run` does where that costs less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import numpy as np

from ensemble._containers import mapped, parts_of
from ensemble._errors import kept
from ensemble.scalar.divergence.policy import Decider, policy_in_force
from ensemble.scalar.divergence.scalar_code import ARRAYS, EXACT, LARGEST, NEITHER, kind_of
from ensemble.scalar.divergence.side_effects import refuse_lazy
from ensemble.scalar.ensemble import Ensemble, wrap
from ensemble.scalar.labels import labels_of_numbers
from ensemble.scalar.sample_set import SampleSet

__all__ = ["PlainLoop", "as_numpy", "owned", "plain_loop"]

SILENT = frozenset(("warn", "ignore"))

FLOATS = frozenset((float, np.float64))

CONSTANTS = frozenset((float, bool, str, type(None), np.float64))

ATOMS = frozenset((float, np.float64, int, bool, str, type(None)))

LOOP_LIMITS = {"floats": 512, "scalars": 128}
"""Samples up to which `run` takes a loop. An operation takes 1 us on an ensemble of so many, 0.025 us on a float and
0.055 us on a scalar of NumPy, and a run with ensembles takes 100 to 200 us before its first operation: 40 operations
without a branch take as long on 400 floats as on an ensemble of 400 (`benchmarks run`)."""


class PlainLoop:
    """The loop over samples of one function of scalars, on Python's floats where these give the same bits."""

    def __init__(
        self, f: Callable[..., Any], inputs: tuple[Any, ...], names: tuple[str, ...], exact: bool, n_samples: int
    ) -> None:
        self.f, self.inputs, self.names, self.exact, self.n_samples = f, inputs, names, exact, n_samples
        self.sample_set: SampleSet | None = None
        self.errors: dict[int, Exception] = {}
        self.arguments: list[Any] = []
        self.n_runs = 0
        self.kinds: set[type] = set()
        self.always = False  # whether only one sample alone can pass the code

    @property
    def max_samples(self) -> int:
        """For how many samples a loop costs less than ensembles."""
        return self.n_samples if self.always else LOOP_LIMITS["floats" if self.exact else "scalars"]

    def columns(self, ids: np.ndarray | None) -> list[Any]:
        """The arguments of the samples `ids`, argument by argument."""
        n = self.n_samples if ids is None else ids.size
        columns: list[Any] = []
        known: dict[int, list[Any]] = {}  # an array that is given twice stays one array in every call
        for x in self.inputs:
            if id(x) in known:
                columns.append(known[id(x)])
                continue
            if type(x) is np.ndarray:
                columns.append([x.copy() for _ in range(n)])
                known[id(x)] = columns[-1]
                continue
            if type(x) is not Ensemble:
                columns.append([x] * n)
                continue
            samples = x.samples
            if samples.ndim > 1:
                columns.append([x.sample(s) for s in (range(n) if ids is None else ids.tolist())])
                known[id(x)] = columns[-1]
                continue
            shared = samples.shape[0] == 1
            if ids is not None and not shared:
                samples = samples[ids]
            column = samples.tolist() if self.exact else list(samples)
            columns.append(column * n if shared else column)
        return columns

    def __call__(self, ids: np.ndarray | None = None) -> list[Any]:
        """What `f` returns for each of the samples `ids`, None where it raised."""
        columns = self.columns(ids)
        if ids is None:
            self.arguments = [
                x.copy() if isinstance(x, np.ndarray | Ensemble) and x.ndim else column
                for x, column in zip(self.inputs, columns, strict=True)
            ]
        function = self._call_with_keywords if self.names else self.f
        try:
            values = list(map(function, *columns))
        except Exception:
            # Anew, as the calls so far may have written into arrays among their arguments.
            values = self._call_each(function, self.columns(ids), ids)
        self.n_runs += len(values)
        kinds = set(map(type, values))
        if not kinds <= ATOMS and share_memory(values):
            values = self._call_each(lambda *row: owned(function(*row)), self.columns(ids), ids)
            self.n_runs += len(values)
        if self.exact and not (kinds == {float} and isfinite(sum(values))):
            self._rerun_non_finite(values, ids, kinds)
            kinds = set(map(type, values))
        self.kinds = kinds
        if not kinds <= ATOMS:
            for value in {type(value): value for value in values}.values():
                refuse_lazy(value)
        return values

    def _call_each(self, function: Callable[..., Any], columns: list[Any], ids: np.ndarray | None) -> list[Any]:
        """All samples once more, each with what it raises: a function without effects may be called again."""
        values: list[Any] = []
        calls = map(function, *columns)
        while True:
            try:
                for value in calls:
                    values.append(value)
                return values
            except Exception as error:
                s = len(values) if ids is None else int(ids[len(values)])
                values.append(self._rerun(s) if self.exact else None)
                if not self.exact:
                    self.errors[s] = kept(error)

    def _call_with_keywords(self, *row: Any) -> Any:
        n = len(row) - len(self.names)
        return self.f(*row[:n], **dict(zip(self.names, row[n:], strict=True)))

    def ensembles(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as they were when the loop began."""
        columns = zip(self.inputs, self.arguments, strict=True)
        given = [
            column
            if isinstance(column, np.ndarray | Ensemble)
            else wrap(np.array(column))
            if type(x) is Ensemble
            else x
            for x, column in columns
        ]
        n = len(given) - len(self.names)
        return given[:n], dict(zip(self.names, given[n:], strict=True))

    def _rerun(self, s: int) -> Any:
        """Sample `s` on NumPy's scalars, which do not raise where floats do, and warn where floats do not."""
        self.n_runs += 1
        row = [x.sample(s)[()] if type(x) is Ensemble else x for x in self.inputs]
        try:
            return self._call_with_keywords(*row)
        except Exception as error:
            self.errors[s] = kept(error)
            return None

    def _rerun_non_finite(self, values: list[Any], ids: np.ndarray | None, kinds: set[type]) -> None:
        """Run again what is not finite on floats."""
        if kinds <= ATOMS:
            bad = [k for k, value in enumerate(values) if type(value) in FLOATS and not isfinite(value)]
        else:
            bad = [k for k, value in enumerate(values) if not _is_finite(value)]
        for k in bad:
            s = k if ids is None else int(ids[k])
            if s not in self.errors and type(values[k]) is not np.float64:
                values[k] = self._rerun(s)


def owned(value: Any) -> Any:
    """A returned value in memory of its own: `f` may return one list or array in every call, with other entries."""
    if type(value) is np.ndarray:
        return value.copy(order="K")
    if type(value) is Ensemble:
        return value.copy()
    return mapped(owned, value) if type(value) in (list, dict, tuple) else value


def share_memory(values: list[Any]) -> bool:
    """Whether what different calls returned is one list, dict or array, or parts of one."""
    if all(type(value) is np.ndarray and value.base is None for value in values):  # in a fraction of the time
        return len(set(map(id, values))) < len(values)
    seen: set[int] = set()
    for value in values:
        own = set(map(id, _memory_of(value)))
        if not seen.isdisjoint(own):
            return True
        seen |= own
    return False


def _memory_of(value: Any) -> list[Any]:
    """The lists, dicts and arrays that hold the entries of `value`."""
    kind = type(value)
    if kind is np.ndarray:
        while type(value.base) is np.ndarray:
            value = value.base
        return [value] if value.size else []
    if kind not in (list, dict, tuple):
        return []
    parts = [part for one in (value.values() if kind is dict else value) for part in _memory_of(one)]
    return parts if kind is tuple else [value, *parts]


def as_numpy(value: Any) -> Any:
    """The floats of `value` as NumPy's."""
    kind = type(value)
    if kind is float:
        return np.float64(value)
    return value if kind in ATOMS else mapped(as_numpy, value) if parts_of(value) is not None else value


def _is_finite(value: Any) -> bool:
    """Whether all numbers of `value` are finite and real."""
    if type(value) in FLOATS:
        return isfinite(value)
    parts = None if type(value) in ATOMS else parts_of(value)
    if parts is None:
        return type(value) is not complex
    return all(map(_is_finite, parts.values()))


def plain_loop(f: Callable[..., Any], inputs: tuple[Any, ...], keywords: Mapping[str, Any]) -> PlainLoop | None:
    """The loop for ``f(*inputs, **keywords)``; None unless `f` is plain arithmetic and all inputs are scalars.

    Where `f` writes into arrays of its own, inputs may be arrays, too.
    """
    arguments = (*inputs, *keywords.values()) if keywords else inputs
    n_samples, sample_set, exact, has_arrays = 1, None, True, False
    for x in arguments:
        kind = type(x)
        if kind is Ensemble:
            samples = x.samples
            if type(samples) is not np.ndarray or labels_of_numbers(x) is not None:
                return None
            has_arrays = has_arrays or samples.ndim > 1
            n = samples.shape[-1]
            if n > 1:
                if n_samples not in (1, n) or (sample_set is not None and x.sample_set not in (None, sample_set)):
                    return None  # the run with ensembles raises the error
                n_samples, sample_set = n, sample_set if x.sample_set is None else x.sample_set
            exact = exact and samples.dtype.char == "d"
        elif kind is int:
            exact = exact and -LARGEST <= x <= LARGEST
        elif kind is np.ndarray and x.dtype.char in "dfl?":
            has_arrays = True
        elif kind not in CONSTANTS:
            return None
    if n_samples == 1 or isinstance(policy_in_force.get(), Decider):
        return None
    if (code := kind_of(f)) == NEITHER or (has_arrays and code != ARRAYS):
        return None
    if exact := exact and code == EXACT:
        exact = set(np.geterr().values()) <= SILENT  # floats raise no error
    loop = PlainLoop(f, arguments, tuple(keywords), exact, n_samples)
    loop.sample_set, loop.always = sample_set, code == ARRAYS
    return loop
