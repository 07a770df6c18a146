"""The recursions of the Kalman filter and of its smoother, for many series at once.

Longer than 400 lines: the reference and the compiled forms of one set of recursions.

Arrays have shape (n_series or 1, n_steps or 1, ...): one entry where something is shared by all series or constant in
time. Starting values have no axis of steps. With `series_last`, results of steps that are written out lie in memory
with the series innermost.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile.lanes.types import ROW_BYTES
from ensemble._compile.numba import empty, heard, thread_count
from ensemble._compile.registry import kernel
from ensemble._compile.trace.numba_source import load_module
from ensemble._interrupts import ending
from ensemble._kernels.kalman import step
from ensemble._kernels.kalman.kalman_generated import RECURSIONS, lanes_of, module_source
from ensemble._kernels.kalman.loops import filter_workspace_size
from ensemble._kernels.kalman.mean_loops import mean_workspace_size
from ensemble._kernels.kalman.smoother_loops import smoother_workspace_size
from ensemble._kernels.kalman.square_root_loops import SquareRootRecursion
from ensemble._kernels.kalman.statements import CONSTANTS
from ensemble._kernels.kalman.sums import THREADED
from ensemble._kernels.sparse.fma import fma

__all__ = [
    "LANES_FROM", "LARGEST", "FilterStep", "filter_elements", "filter_series", "filter_square_root", "smooth_series",
    "smooth_square_root",
]  # fmt: skip

LANES_FROM = 3
"""Series from which on they are worked on in lanes."""

SHORT = 4096
"""Steps up to which the arrays of one series share their memory."""

LARGEST = 8
"""States and observations up to which steps are written out; their code grows with the cube. Beyond, loops."""


class _Fused:
    """An array with the arithmetic of compiled code: a product that enters a sum is rounded once, with it."""

    def __init__(self, value: Any, factors: tuple[Any, Any] | None = None) -> None:
        self.value, self.factors = value, factors

    def __add__(self, other: _Fused) -> _Fused:
        return _Fused(fma(*other.factors, self.value) if other.factors else self.value + other.value)

    def __sub__(self, other: _Fused) -> _Fused:
        if other.factors is None:
            return _Fused(self.value - other.value)
        a, b = other.factors
        return _Fused(fma(-a, b, self.value))

    def __mul__(self, other: _Fused) -> _Fused:
        return _Fused(self.value * other.value, (self.value, other.value))

    def __truediv__(self, other: _Fused) -> _Fused:
        return _Fused(self.value / other.value)

    def __le__(self, other: _Fused) -> Any:
        return self.value <= other.value


class _Arrays:
    """The operations that `step` takes, on arrays with one entry per series."""

    def __init__(self, like: Any, nx: int) -> None:
        self.xp = array_namespace(like)
        dtype = str(like.dtype).split(".")[-1]
        for name, number in CONSTANTS.items():
            lost = step.lost_part(dtype)
            special = {"least_pivot": step.least_pivot(nx, dtype), "nan": self.xp.nan, "lost_spread": nx * lost,
                       "lost_noise": lost, "known": step.known_part(nx, dtype)}  # fmt: skip
            value = special.get(name) or float(number)
            setattr(self, name, _Fused(self.xp.asarray(value, dtype=like.dtype)))

    def where(self, condition: Any, a: _Fused, b: _Fused) -> _Fused:
        return _Fused(self.xp.where(condition, a.value, b.value))

    def missing(self, y: _Fused) -> Any:
        return self.xp.isnan(y.value)

    def columns(self, A: Any, symmetric: bool = False) -> Any:
        return A


def _entries(a: Any, k: int | None, axes: int) -> Any:
    """The entries of `a` at step k as nested lists of arrays with one value a series."""
    here = a if k is None else a[:, k if a.shape[1] > 1 else 0, ...]
    if axes == 1:
        return [_Fused(here[:, i]) for i in range(here.shape[1])]
    return [[_Fused(here[:, i, j]) for j in range(here.shape[2])] for i in range(here.shape[1])]


def _stacked(rows: list[Any], n_series: int) -> Any:
    """Nested lists of arrays as one array with the series in front."""
    if not isinstance(rows, list):
        return array_namespace(rows.value).broadcast_to(rows.value, (n_series,))
    parts = [_stacked(row, n_series) for row in rows]
    return array_namespace(parts[0]).stack(parts, axis=1)


@kernel
def filter_series(F, Q, H, R, u, d, y, m0, P0, predict_first, series_last, keep=True):
    """Filtered means and covariances, and the logarithm of the density of every observation.

    Without `keep` means and covariances have one step: those of the others are not written.
    """
    n_series, n_steps, _ = y.shape
    o = _Arrays(y, m0.shape[-1])
    m, P = _entries(m0, None, 1), _entries(P0, None, 2)
    out: list[list[Any]] = [[], [], [], []]
    for k in range(n_steps):
        if k or predict_first:
            m, P = step.predict(o, _entries(F, k, 2), _entries(Q, k, 2), _entries(u, k, 1), m, P)
        parts = _entries(H, k, 2), _entries(R, k, 2), _entries(d, k, 1), _entries(y, k, 1)
        m, P, quadratic, pivots, *_ = step.update(o, *parts, m, P)
        for kept, value in zip(out, (m, P, quadratic, pivots), strict=True):
            kept.append(_stacked(value, n_series))
    mean, covariance, terms, pivots = (o.xp.stack(kept, axis=1) for kept in out)
    if not keep:
        mean, covariance = mean[:, -1:, ...], covariance[:, -1:, ...]
    for i in range(pivots.shape[-1]):
        terms = terms + o.xp.log(pivots[:, :, i])
    return mean, covariance, -0.5 * terms


@kernel
def filter_elements(F, Q, H, R, u, d, y, A, m, P, eta, J):
    """The elements (A, m, P, eta, J) of series with all their steps more at the end, see `step.extend`."""
    o = _Arrays(y, m.shape[-1])
    element = [_entries(a, None, axes) for a, axes in zip((A, m, P, eta, J), (2, 1, 2, 1, 2), strict=True)]
    for k in range(y.shape[1]):
        transition = _entries(F, k, 2), _entries(Q, k, 2), _entries(u, k, 1)
        parts = _entries(H, k, 2), _entries(R, k, 2), _entries(d, k, 1), _entries(y, k, 1)
        element = step.extend(o, *transition, *parts, *element)
    return tuple(_stacked(part, y.shape[0]) for part in element)


@kernel
def smooth_series(F, Q, u, m, P, series_last):
    """Smoothed means and covariances of every step from the filtered ones; entry k of `F` leads to step k.

    NaN from the last step on, going back, at which a predicted covariance is nearly singular, see `step.least_pivot`.
    """
    n_series, n_steps, nx = m.shape
    o = _Arrays(m, nx)
    mean, covariance = _entries(m, n_steps - 1, 1), _entries(P, n_steps - 1, 2)
    means, covariances = [_stacked(mean, n_series)], [_stacked(covariance, n_series)]
    for k in range(n_steps - 2, -1, -1):
        parts = (_entries(F, k + 1, 2), _entries(Q, k + 1, 2), _entries(u, k + 1, 1))
        mean, covariance, _ = step.smooth(o, *parts, _entries(m, k, 1), _entries(P, k, 2), mean, covariance)
        means.append(_stacked(mean, n_series))
        covariances.append(_stacked(covariance, n_series))
    return o.xp.stack(means[::-1], axis=1), o.xp.stack(covariances[::-1], axis=1)


def _with_descriptor(a: np.ndarray, contiguous: bool) -> tuple[np.ndarray, tuple[int, int, int, int]]:
    """`a` or a copy, its address, and its steps over series, time and entries, in elements; 0 where it repeats."""
    if a.flags.c_contiguous:  # the usual case
        size = math.prod(a.shape[2:])
        place = a.shape[1] * size if a.shape[0] > 1 else 0, size if a.shape[1] > 1 else 0, 1
        return a, (a.__array_interface__["data"][0], *place)
    item, tail = a.itemsize, a.shape[2:]
    steps = [0 if n == 1 else stride // item for n, stride in zip(a.shape, a.strides, strict=True)]
    by_entry = steps[-1] if tail and tail[-1] > 1 else (steps[2] if tail and tail[0] > 1 else 1)
    evenly = len(tail) < 2 or tail[0] == 1 or tail[1] == 1 or steps[2] == tail[1] * steps[3]
    valid = all(s >= 0 for s in steps) and all(s % item == 0 for s in a.strides)
    if not (evenly and valid) or (contiguous and by_entry != 1):
        return _with_descriptor(np.ascontiguousarray(a), contiguous)
    return a, (a.__array_interface__["data"][0], steps[0], steps[1], by_entry)


def _empty(shape: tuple[int, ...], dtype: Any, series_last: bool) -> np.ndarray:
    """An uninitialised array (n_series, n_steps, ...) whose memory has the series first or last."""
    if not series_last:
        return empty(shape, dtype)
    return np.moveaxis(empty((*shape[1:], shape[0]), dtype), -1, 0)


@functools.cache
def _generated(name, nx, ny, alone, dtype):
    """The module of a recursion, the series that it works on at a time, and which of its arrays must be contiguous."""
    recursion, width = RECURSIONS[name], 1 if alone else lanes_of(dtype)
    contiguous = [width == 1 or part in recursion.shared for part, _ in recursion.inputs]
    contiguous += [width == 1] * (len(recursion.carried) + len(recursion.outputs))
    return load_module(module_source(name, nx, ny, width, dtype.name)), width, contiguous


def _run_generated(name, ny, inputs, starts, outs, predict_first, n_steps=None):
    """Run a generated recursion, over `n_steps`, by default as many as its outputs have."""
    n_series, _, nx = outs[0].shape
    n_steps = n_steps or max(out.shape[1] for out in outs)
    dtype = outs[0].dtype
    module, width, needs_contiguous = _generated(name, nx, ny, n_series < LANES_FROM, dtype)
    arrays = (*(np.asarray(a, dtype) for a in (*inputs, *(s[:, None] for s in starts))), *outs)
    placed = [
        _with_descriptor(a, contiguous) for a, contiguous in zip(arrays, needs_contiguous, strict=True)
    ]  # copies must live
    run = module.run_threaded if n_series > width and n_series * n_steps >= THREADED else module.run
    table = _descriptors(placed)

    def whole():
        run(table, n_series, n_steps, predict_first)
        return placed

    heard(whole, n_series * n_steps * _multiply_adds(nx))


LOOP_MODULE = '''"""A Kalman loop for any number of states, written by ensemble; it may be deleted at any time."""

from ensemble._compile.numba import compiled_serial
from ensemble._kernels.kalman.{module} import {name}
from ensemble._compile.plain_code import entry

loop = entry({name})


@compiled_serial
def run({arguments}):
    loop({arguments})
'''
"""Cached on disk as generated kernels are, so that a change of any of its source files recompiles it."""


@functools.cache
def _compiled_loop(module, name):
    """The compiled loop over series of a module."""
    function = getattr(importlib.import_module(f"ensemble._kernels.kalman.{module}"), name)
    arguments = ", ".join(inspect.signature(function.function).parameters)
    return load_module(LOOP_MODULE.format(module=module, name=name, arguments=arguments)).run


def _run_loop(function, arrays, numbers, count, n_parts, n_steps, shared=None):
    """Run a loop over ranges of its parts, series or tiles of them, each with a work space of `count` numbers.

    `function` is its module and name. Series may lie innermost in the arrays after the first `shared` ones.
    """
    loop, dtype = _compiled_loop(*function), arrays[-1].dtype
    shared = len(arrays) if shared is None else shared
    placed = [_with_descriptor(np.asarray(a, dtype), i < shared) for i, a in enumerate(arrays)]  # copies must live
    table = _descriptors(placed)

    def run(first, last):
        loop(table, n_steps, *numbers, empty((count,), dtype), first, last)
        return placed

    heard(lambda: _map_ranges(run, (), n_parts, n_steps), n_parts * n_steps * _multiply_adds(numbers[0]))


def _multiply_adds(nx):
    """Multiply-adds of a step, about, with what reading and writing costs."""
    return 4 * nx**3 + 30


def _descriptors(placed):
    """The descriptors of all arrays, as compiled recursions read them."""
    return np.array([number for _, place in placed for number in place], np.int64)


@filter_series.register("numba")
def _(F, Q, H, R, u, d, y, m0, P0, predict_first, series_last, keep=True):
    n_series, n_steps, ny = y.shape
    nx = m0.shape[-1]
    if y.dtype.kind != "f" or n_series == 0:
        return filter_series.reference(F, Q, H, R, u, d, y, m0, P0, predict_first, series_last, keep)
    written_out, many = max(nx, ny) <= LARGEST, n_series >= LANES_FROM
    shared = many and all(a.shape[0] == 1 for a in (F, Q, H, R, P0))
    last = (series_last or not keep) and many and (written_out or shared)
    if shared:
        outs = _filter_shared_covariance(F, Q, H, R, u, d, y, m0, P0, predict_first, last, keep)
        if not np.isnan(outs[2][:, -1]).any():  # what is missing has made all that follows NaN
            return outs
        del outs  # before memory is taken for others
    kept = n_steps if keep else 1
    shapes = (kept, nx), (kept, nx, nx), (n_steps,), (n_steps, ny)
    if n_series == 1 and written_out and n_steps <= SHORT and _are_constant((F, Q, H, R, u, d), (m0, P0), y.dtype):
        *outs, pivots = _filter_alone((F, Q, H, R, u, d, m0, P0), y, shapes, bool(predict_first))
        return _with_logarithms(outs, pivots)
    *outs, pivots = (_empty((n_series, *shape), y.dtype, last and written_out) for shape in shapes)
    if written_out:
        _run_generated("filter", ny, (F, Q, H, R, u, d, y), (m0, P0), (*outs, pivots), bool(predict_first))
    else:
        arrays = (F, Q, H, R, u, d, y, m0[:, None], P0[:, None], *outs, pivots)
        _run_filter_loop(arrays, nx, ny, predict_first, False)
    return _with_logarithms(outs, pivots)


def _with_logarithms(outs, pivots):
    """The outputs of the filter, their quadratic forms made logarithms of densities in place."""
    terms = outs[2]
    with np.errstate(all="ignore"):
        logs = np.log(pivots, out=pivots)
        for i in range(pivots.shape[-1]):
            terms += logs[..., i]
        terms *= -0.5
    return tuple(outs)


def _are_constant(parts, starts, dtype):
    """Whether these parts have one step, and all are of one type: those of a single series."""
    return all(a.shape[1] == 1 and a.dtype == dtype for a in parts) and all(a.dtype == dtype for a in starts)


@functools.lru_cache(maxsize=256)
def _places_alone(nx, ny, item, shapes):
    """The descriptors of `_filter_alone`, with bytes from the start of its memory for addresses, and its ends."""
    sizes = [nx * nx, nx * nx, ny * nx, ny * ny, nx, ny, nx, nx * nx, *(math.prod(shape) for shape in shapes)]
    ends = np.cumsum(sizes)
    places = np.zeros((13, 4), np.int64)
    places[:, 3] = 1
    places[[0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12], 0] = item * (ends - sizes)
    places[9:, 2] = [math.prod(shape[1:]) if shape[0] > 1 else 0 for shape in shapes]
    return places, ends[7:].tolist()


def _filter_alone(parts, y, shapes, predict_first):
    """The outputs of the generated filter for one series of a constant model: one piece of memory for all arrays.

    To describe 13 arrays one by one takes longer than a filter of a hundred steps.
    """
    (n_steps, ny), nx, dtype = y.shape[1:], parts[0].shape[-1], y.dtype
    layout, ends = _places_alone(nx, ny, dtype.itemsize, shapes)
    memory, y = np.empty(ends[-1], dtype), np.ascontiguousarray(y)
    np.concatenate([a.reshape(-1) for a in parts], out=memory[: ends[0]])
    places = layout.copy()
    places[:, 0] += memory.__array_interface__["data"][0]
    places[6] = y.__array_interface__["data"][0], 0, ny if n_steps > 1 else 0, 1
    outs = [memory[first:last].reshape((1, *shape)) for first, last, shape in zip(ends, ends[1:], shapes, strict=False)]
    _generated("filter", nx, ny, True, dtype)[0].run(places.reshape(-1), 1, n_steps, predict_first)
    return outs


@filter_elements.register("numba")
def _(F, Q, H, R, u, d, y, A, m, P, eta, J):
    n_series, n_steps, ny = y.shape
    nx = m.shape[-1]
    if y.dtype.kind != "f" or n_series == 0 or max(nx, ny) > LARGEST:
        return filter_elements.reference(F, Q, H, R, u, d, y, A, m, P, eta, J)
    outs = tuple(_empty((n_series, 1, *a.shape[1:]), y.dtype, False) for a in (m, A, P, eta, J))
    _run_generated("element", ny, (F, Q, H, R, u, d, y), (A, m, P, eta, J), outs, True, n_steps)
    mean, A, P, eta, J = (out[:, 0] for out in outs)
    return A, mean, P, eta, J


class FilterStep:
    """One series or many, a step at a time, in arrays that are made once; nothing is checked.

    The arrays `F`, `Q`, `H`, `R`, `u`, `d`, `y` of the model and the observation are written in place by the caller.
    `states` are two places ``(m, P)``: a call starts from one and writes the other, so that a call that is interrupted
    leaves the state it started from. Each call has the bits of that step in `filter_series`, but for gains that are
    kept there once covariances have converged.

    Parameters
    ----------
    nx, ny : int
    dtype : {"float64", "float32"} or dtype
    n_series : int, optional
        With it all arrays have an axis of series in front, and a call returns an array of numbers.
    own : tuple of str
        The parts of the model of which every series has its own; others have a first axis of length 1.
    series_last : bool
        Whether the series may lie innermost in memory.
    """

    def __init__(
        self, nx: int, ny: int, dtype: Any, n_series: int | None = None, own: tuple[str, ...] = (),
        series_last: bool = False,
    ) -> None:  # fmt: skip
        self._options = nx, ny, np.dtype(dtype), n_series, tuple(own), series_last
        n = n_series or 1
        written_out, many = max(nx, ny) <= LARGEST, n >= LANES_FROM
        self.series_last = series_last and written_out and many
        shapes = {"F": (nx, nx), "Q": (nx, nx), "H": (ny, nx), "R": (ny, ny), "u": (nx,), "d": (ny,), "y": (ny,)}

        def zeros(tail: tuple[int, ...], count: int = n) -> np.ndarray:
            made = _empty((count, 1, *tail), dtype, self.series_last)
            made[...] = 0.0
            return made

        wide = {name: zeros(tail, n if name in own or name == "y" else 1) for name, tail in shapes.items()}
        first, second = ([zeros(tail) for tail in ((nx,), (nx, nx))] for _ in range(2))
        terms = [zeros(tail) for tail in ((), (ny,))]
        at = (0, 0) if n_series is None else (slice(None), 0)
        self.F, self.Q, self.H, self.R, self.u, self.d, self.y = (a[at] for a in wide.values())
        self.states = tuple((m[at], P[at]) for m, P in (first, second))
        self._quadratic, self._pivots = terms[0][:, 0], terms[1][at]
        self._logs = np.empty_like(self._pivots)
        contiguous = not (written_out and many)
        self._arrays = [
            [_with_descriptor(a, contiguous) for a in (*wide.values(), *start, *end, *terms)]
            for start, end in ((first, second), (second, first))
        ]
        tables = [_descriptors(arrays) for arrays in self._arrays]
        if not written_out:
            work = empty((filter_workspace_size(nx, ny, ROW_BYTES // first[0].itemsize),), dtype)
            self._run = _compiled_loop("loops", "filter_range")
            self._before: tuple[Any, ...] = tuple((table, 1, nx, ny) for table in tables)
            self._after: tuple[Any, ...] = (True, True, False, work, 0, n)
            return
        module, width, _ = _generated("filter", nx, ny, not many, np.dtype(dtype))
        self._run = module.run_threaded if n > width and n >= THREADED else module.run
        self._before, self._after = tuple((table, n, 1) for table in tables), ()

    def copied(self, place: int) -> FilterStep:
        """Another one with the same model, and with ``states[place]`` as ``states[0]``."""
        made = FilterStep(*self._options)
        for name in ("F", "Q", "H", "R", "u", "d", "y"):
            getattr(made, name)[...] = getattr(self, name)
        for own, other in zip(made.states[0], self.states[place], strict=True):
            own[...] = other
        return made

    def __deepcopy__(self, memo: Any) -> FilterStep:
        """Another one with arrays of its own: addresses of the old ones must not be copied."""
        made = self.copied(0)
        for own, other in zip(made.states[1], self.states[1], strict=True):
            own[...] = other
        return made

    def __reduce__(self) -> Any:
        names = ("F", "Q", "H", "R", "u", "d", "y")
        return _restored_step, (self._options, [getattr(self, name) for name in names], self.states)

    def __call__(self, start: int, predict: bool = True) -> Any:
        """Predict ``states[start]``, unless `predict` is false, and update by `y`: the logarithm of its density."""
        self._run(*self._before[start], predict, *self._after)
        if self._options[3] is not None:
            return self._terms()
        total = self._quadratic[0]
        if min(self._pivots.tolist()) > 0.0:  # nothing to warn of: the context takes longer than the step
            np.log(self._pivots, out=self._logs)
        else:
            with np.errstate(all="ignore"):
                np.log(self._pivots, out=self._logs)
        for log in self._logs.tolist():
            total = total + log
        return float(total * -0.5)

    def _terms(self) -> np.ndarray:
        """The logarithms of the densities of all series, as `filter_series` has them."""
        with np.errstate(all="ignore"):
            np.log(self._pivots, out=self._logs)
            terms = self._quadratic + self._logs[:, 0]
            for i in range(1, self._logs.shape[1]):
                terms += self._logs[:, i]
            terms *= -0.5
        return terms


def _restored_step(options: Any, parts: Any, states: Any) -> FilterStep:
    """A `FilterStep` from what pickle keeps of it."""
    made = FilterStep(*options)
    for name, a in zip(("F", "Q", "H", "R", "u", "d", "y"), parts, strict=True):
        getattr(made, name)[...] = a
    for place, state in zip(made.states, states, strict=True):
        for own, other in zip(place, state, strict=True):
            own[...] = other
    return made


def _constancy(F, Q, H, R):
    """Whether H and R have one step for all; and F and Q, too."""
    constant = H.shape[1] == R.shape[1] == 1
    return constant, constant and F.shape[1] == Q.shape[1] == 1


def _run_filter_loop(arrays, nx, ny, predict_first, with_gains):
    """Run `filter_range` for all series."""
    F, Q, H, R, _, _, y = arrays[:7]
    numbers = (nx, ny, bool(predict_first), *_constancy(F, Q, H, R), with_gains)
    count = filter_workspace_size(nx, ny, ROW_BYTES // y.itemsize)
    _run_loop(("loops", "filter_range"), arrays, numbers, count, *y.shape[:2])


def _logarithms(pivots):
    """The logarithms of pivots, in their place; NaN where they are not positive."""
    with np.errstate(all="ignore"):
        return np.log(pivots, out=pivots)


def _filter_shared_covariance(F, Q, H, R, u, d, y, m0, P0, predict_first, series_last, keep):
    """The filter of series that differ in u, d, y and m0 only: covariances and gains are computed once for all.

    The covariance is a view with a stride of zero over the series.
    """
    n_series, n_steps, ny = y.shape
    nx = m0.shape[-1]
    written_out = max(nx, ny) <= LARGEST
    gain = (nx, ny) if written_out else (ny, nx)
    tails = ((nx,), (nx, nx), (), (ny,), gain, (ny, ny), (ny,))
    single = tuple(empty((1, n_steps, *tail), y.dtype) for tail in tails)
    model, zeros = (F, Q, H, R, u[:1], d[:1]), np.zeros_like(y[:1])
    if written_out:
        _run_generated("gain", ny, (*model, zeros), (m0[:1], P0), single, bool(predict_first))
    else:
        _run_filter_loop((*model, zeros, m0[:1, None], P0[:, None], *single), nx, ny, predict_first, True)
    _, covariance, _, pivots, K, lower, inverses = single
    outs = tuple(
        _empty((n_series, *shape), y.dtype, series_last) for shape in ((n_steps if keep else 1, nx), (n_steps,))
    )
    logs = _logarithms(pivots)
    if written_out:
        _run_generated("mean", ny, (F, u, H, d, y, K, lower, inverses, logs), (m0,), outs, bool(predict_first))
    else:
        arrays = (F, H, K, lower, inverses, logs, u, d, y, m0[:, None], *outs)
        _run_tiles("mean_range", arrays, 6, (nx, ny, bool(predict_first)), nx, ny, n_steps)
    return outs[0], np.broadcast_to(covariance, (n_series, *covariance.shape[1:])), outs[1]


def _run_tiles(name, arrays, shared, numbers, nx, ny, n_steps):
    """Run a loop of `mean_loops` over tiles of series; the first `shared` arrays have one series for all."""
    n_series, lanes = arrays[-1].shape[0], ROW_BYTES // arrays[-1].itemsize
    count, n_tiles = mean_workspace_size(nx, ny, lanes), -(-n_series // lanes)
    _run_loop(("mean_loops", name), arrays, (*numbers, n_series), count, n_tiles, n_steps, shared)


@smooth_series.register("numba")
def _(F, Q, u, m, P, series_last):
    n_series, n_steps, nx = m.shape
    if m.dtype.kind != "f" or n_series == 0:
        return smooth_series.reference(F, Q, u, m, P, series_last)
    many, written_out = n_series >= LANES_FROM, nx <= LARGEST
    shared = many and all(a.shape[0] == 1 for a in (F, Q)) and (P.shape[0] == 1 or P.strides[0] == 0)
    if shared and n_steps > 1:
        return _smooth_shared_covariance(F, Q, u, m, P, series_last)
    last = series_last and many and written_out
    outs = tuple(_empty((n_series, n_steps, *tail), m.dtype, last) for tail in ((nx,), (nx, nx)))
    outs[0][:, -1], outs[1][:, -1] = m[:, -1], P[:, -1]
    if not written_out:
        _run_smoother_loop((F, Q, u, m, P, *outs), False)
    elif n_steps > 1:
        steps = (a[:, 1:] if a.shape[1] > 1 else a for a in (F, Q, u))
        inputs = (*steps, m[:, :-1], P[:, :-1])
        _run_generated("smoother", 1, inputs, (m[:, -1], P[:, -1]), tuple(out[:, :-1] for out in outs), True)
    return outs


def _run_smoother_loop(arrays, with_gains):
    """Run `smooth_range` for all series."""
    F, Q, _, m = arrays[:4]
    nx = m.shape[-1]
    numbers = (nx, F.shape[1] == Q.shape[1] == 1, m.dtype.type(step.least_pivot(nx, m.dtype)), with_gains)
    count = smoother_workspace_size(nx, ROW_BYTES // m.itemsize)
    _run_loop(("smoother_loops", "smooth_range"), arrays, numbers, count, *m.shape[:2])


def _smooth_shared_covariance(F, Q, u, m, P, series_last):
    """The smoother of series that share covariances: those and the gains are computed once for all.

    The covariance is a view with a stride of zero over the series.
    """
    n_series, n_steps, nx = m.shape
    single = tuple(empty((1, n_steps, *tail), m.dtype) for tail in ((nx,), (nx, nx), (nx, nx)))
    single[0][:, -1], single[1][:, -1] = m[:1, -1], P[:1, -1]
    mean = _empty((n_series, n_steps, nx), m.dtype, series_last)
    mean[:, -1] = m[:, -1]
    _, covariance, E = single
    if nx > LARGEST:
        _run_smoother_loop((F, Q, u[:1], m[:1], P[:1], *single), True)
        _run_tiles("smoothed_mean_range", (F, E, u, m, mean), 2, (nx,), nx, 0, n_steps)
        return mean, np.broadcast_to(covariance, (n_series, *covariance.shape[1:]))
    F, Q, u = (a[:, 1:] if a.shape[1] > 1 else a for a in (F, Q, u))
    starts = m[:1, -1], P[:1, -1]
    _run_generated(
        "smoother gain", 1, (F, Q, u[:1], m[:1, :-1], P[:1, :-1]), starts, tuple(a[:, :-1] for a in single), True
    )
    _run_generated("smoother mean", 1, (F, u, m[:, :-1], E[:, :-1]), (m[:, -1],), (mean[:, :-1],), True)
    return mean, np.broadcast_to(covariance, (n_series, *covariance.shape[1:]))


def filter_square_root(
    parts: Any, predict_first: bool, rooted: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `filter_series` returns for its arrays `parts`, by factors of covariances.

    With `rooted`, the last of `parts` is a factor W of P0, ``W' W = P0``.
    """
    n_series, n_steps, ny = parts[6].shape
    nx, dtype = parts[7].shape[-1], parts[6].dtype
    mean, covariance = (empty((n_series, n_steps, *tail), dtype) for tail in ((nx,), (nx, nx)))
    terms, pivots = np.empty((n_series, n_steps)), np.empty((n_series, n_steps, ny))
    run = SquareRootRecursion(parts, bool(predict_first), rounding(nx, dtype), rooted)
    each, work = [(s,) for s in range(n_series)], n_series * n_steps * 8 * _multiply_adds(nx)
    heard(lambda: _map_on_threads(run.filter, (mean, covariance, terms, pivots), each, n_steps), work)
    with np.errstate(all="ignore"):
        terms = -0.5 * (terms + np.sum(np.log(pivots), axis=-1))
    return mean, covariance, terms.astype(dtype, copy=False)


def smooth_square_root(
    parts: Any, predict_first: bool, mean: np.ndarray, covariance: np.ndarray, which: np.ndarray, rooted: bool = False
) -> None:
    """Smooth the series in `which` on square roots, in place but for the last step.

    `parts` and `rooted` as `filter_square_root` has.
    """
    indices = np.flatnonzero(which)
    run = SquareRootRecursion(parts, bool(predict_first), rounding(mean.shape[-1], mean.dtype), rooted)
    each, work = [(s, s) for s in indices], indices.size * mean.shape[1] * 8 * _multiply_adds(mean.shape[-1])
    heard(lambda: _map_on_threads(run.smooth, (mean, covariance), each, mean.shape[1]), work)


def _map_ranges(run, arguments, n_series, n_steps):
    """``run(*arguments, first, last)`` for ranges of series: several per thread, as their times may differ."""
    n = min(n_series, 8 * thread_count()) if n_series * n_steps >= THREADED and thread_count() > 1 else 1
    bounds = [n_series * i // n for i in range(n + 1)]
    _map_on_threads(run, arguments, list(pairwise(bounds)), n_steps * n_series // n)


def _map_on_threads(run, arguments, each, n_steps):
    """``run(*arguments, *e)`` for all `each`, of `n_steps` steps, on threads where there is enough work."""
    ended = ending()
    if len(each) * n_steps < THREADED or thread_count() == 1:
        for e in each:
            if not ended():
                run(*arguments, *e)
        return
    with ThreadPoolExecutor(thread_count()) as pool:
        list(pool.map(lambda e: None if ended() else run(*arguments, *e), each))


def rounding(nx: int, dtype: Any) -> float:
    """The part of its terms below which a sum is rounding error."""
    return 8 * nx * float(np.finfo(dtype).eps)
