"""Launches of `kalman.cu`: filter and smoothers of series cut into chunks of time, one chunk a thread.

Arrays as in `kalman.py`, (n_series or 1, n_steps or 1, ...), on one device.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._kernels._compile import device_array, device_empty, raw_module

__all__ = ["LARGEST", "combine", "filter_chunks", "smooth_chunks", "source", "two_filter_chunks"]

LARGEST = 16
"""States and observations up to which kernels are compiled; from 6 on, matrices lie in local memory."""

THREADS = 128

RESIDENT = 132 * 2 * THREADS
"""Threads that an H200 holds at once when each uses all registers it may: what the length of chunks aims at."""

SHORTEST = 4
"""Steps of the shortest chunk: below it, joining chunks costs more than they save."""


def source() -> str:
    """The CUDA C++ source."""
    return (Path(__file__).parent / "kalman.cu").read_text()


def options(dtype: Any, nx: int, ny: int) -> tuple[str, ...]:
    """What the source is compiled with for one size."""
    real = {4: "float", 8: "double"}[np.dtype(dtype).itemsize]
    return ("--std=c++17", f"-DREAL={real}", f"-DNX={nx}", f"-DNY={ny}")


@functools.cache
def module(dtype: str, nx: int, ny: int) -> Any:
    """The compiled kernels of one size."""
    return raw_module(source(), options(dtype, nx, ny))


@functools.cache
def function(dtype: str, nx: int, ny: int, name: str) -> Any:
    """One kernel of one size."""
    return module(dtype, nx, ny).get_function(name)


@functools.lru_cache(maxsize=256)
def _on_device(numbers: tuple[int, ...], device: int) -> Any:
    """Numbers on the device, sent once."""
    return device_array(np.array(numbers, np.int64))


def _places(like: Any, numbers: tuple[int, ...]) -> Any:
    if isinstance(like, np.ndarray):
        return np.array(numbers, np.int64)
    return _on_device(numbers, like.device.id)


def _placed(a: Any, tail: int) -> tuple[Any, tuple[int, int]]:
    """`a` with each step's entries together, and its strides over series and steps in entries."""
    entries = math.prod(a.shape[len(a.shape) - tail :])
    item, lead = a.dtype.itemsize, len(a.shape) - tail
    if lead == 2 and a.flags.c_contiguous and not isinstance(a, np.ndarray) and a.data.ptr % 16 == 0:  # the usual case
        return a, (0 if a.shape[0] == 1 else a.shape[1] * entries, 0 if a.shape[1] == 1 else entries)
    inner = [item * math.prod(a.shape[k + 1 :]) for k in range(lead, len(a.shape))]
    together = all(n == 1 or s == t for n, s, t in zip(a.shape[lead:], a.strides[lead:], inner, strict=True))
    strides = [0 if n == 1 else s // item for n, s in zip(a.shape[:lead], a.strides[:lead], strict=True)]
    if lead == 1:
        strides.append(0)
    pointer = a.ctypes.data if isinstance(a, np.ndarray) else a.data.ptr
    width = 16 if entries * item % 16 == 0 else 8 if entries * item % 8 == 0 else item  # of one load
    sound = together and pointer % width == 0 and all(s >= 0 and s * item % width == 0 for s in strides)
    if not sound or strides[1] not in (0, entries):
        return _placed(a.copy(order="C"), tail)
    return a, (strides[0], strides[1])


class _Problem:
    """The arguments that all kernels share, for one cut into chunks."""

    def __init__(self, parts: tuple[Any, ...], y: Any, starts: tuple[Any, ...], predict_first: bool, chunk: int | None,
                 n_steps: int) -> None:  # fmt: skip
        placed = [None if a is None else _placed(a, tail) for a, tail in
                  zip((*parts, y, *starts), (2, 2, 2, 2, 1, 1, 1, 1, 2), strict=True)]  # fmt: skip
        self.kept = [p[0] for p in placed if p is not None]  # alive while kernels run
        arrays = [np.uint64(0) if p is None else p[0] for p in placed]
        numbers = tuple(n for p in placed for n in ((0, 0) if p is None else p[1]))
        self.places = _places(self.kept[0], numbers)
        self.m0, self.P0 = arrays[7], arrays[8]
        self.n_chunks = 1 if chunk is None else -(-n_steps // chunk)
        length = n_steps if chunk is None else chunk
        self.n_blocks = -(-self.n_chunks // THREADS)
        self.arguments = (*arrays, self.places, np.int32(predict_first), np.int64(n_steps), np.int32(length),
                          np.int32(self.n_chunks))  # fmt: skip


def chunk_length(n_series: int, n_steps: int) -> int | None:
    """Steps of a chunk, so that chunks just fill the device; None where the series alone do."""
    if n_series >= RESIDENT // 4:
        return None
    chunk = max(SHORTEST, -(-n_steps * n_series // RESIDENT))
    return None if chunk >= n_steps else chunk


def _sizes(nx: int) -> tuple[int, int, int]:
    """Numbers in an element, in a link, and in a state."""
    packed = nx * (nx + 1) // 2
    return nx * nx + 2 * nx + 2 * packed, nx * nx + nx + packed, nx + packed


def _room(like: Any, *shape: int) -> Any:
    return np.empty(shape, like.dtype) if isinstance(like, np.ndarray) else device_empty(shape, like.dtype)


def filter_chunks(F, Q, H, R, u, d, y, m0, P0, predict_first, chunk=None, behind=False):
    """Filtered means, covariances and ``log p(y[k] | y[:k])`` of every step.

    `chunk` is a number of steps, or None for one chunk a series, which is the plain recursion. With `behind`, what
    `two_filter_chunks` goes on with comes as well.
    """
    n_series, n_steps, ny = y.shape
    nx, dtype = m0.shape[-1], y.dtype.name
    p = _Problem((F, Q, H, R, u, d), y, (m0, P0), predict_first, chunk, n_steps)
    mean, covariance = _room(y, n_series, n_steps, nx), _room(y, n_series, n_steps, nx, nx)
    terms = _room(y, n_series, n_steps)
    replay, null = function(dtype, nx, ny, "filter_replay"), np.uint64(0)
    if chunk is None:
        grid = (-(-n_series // THREADS), 1)
        replay(grid, (THREADS,), (*p.arguments, np.int64(n_series), null, null, mean, covariance, terms))
        return (mean, covariance, terms, None) if behind else (mean, covariance, terms)
    element, _, state = _sizes(nx)
    grid = (p.n_blocks, n_series)
    local = _room(y, n_series, element, p.n_blocks * THREADS)
    ends = _room(y, n_series, element, p.n_blocks * THREADS) if behind else null
    totals, starts = _room(y, n_series, element, p.n_blocks), _room(y, n_series, state, p.n_blocks)
    infos = _room(y, n_series, state, p.n_blocks) if behind else null
    function(dtype, nx, ny, "filter_reduce")(grid, (THREADS,), (*p.arguments, local, ends, totals))
    arguments = (totals, np.int32(p.n_blocks), p.m0, p.P0, p.places, starts, infos)
    function(dtype, nx, ny, "filter_starts")((n_series,), (THREADS,), arguments)
    replay(grid, (THREADS,), (*p.arguments, np.int64(n_series), local, starts, mean, covariance, terms))
    return (mean, covariance, terms, (p, ends, infos)) if behind else (mean, covariance, terms)


def smooth_chunks(F, Q, u, m, P, chunk=None):
    """Smoothed means and covariances of every step from the filtered ones."""
    n_series, n_steps, nx = m.shape
    dtype = m.dtype.name
    chunk = chunk if n_steps > 1 else None
    m, P = _placed(m, 1)[0], _placed(P, 2)[0]
    n_links = max(1, n_steps - 1)
    p = _Problem((F, Q, None, None, u, None), None, (None, None), True, chunk, n_steps)
    n_chunks = 1 if chunk is None else -(-n_links // chunk)
    n_blocks = -(-n_chunks // THREADS)
    arguments = (*p.arguments[:-2], np.int32(n_links if chunk is None else chunk), np.int32(n_chunks))
    mean, covariance = _room(m, n_series, n_steps, nx), _room(m, n_series, n_steps, nx, nx)
    replay, null = function(dtype, nx, 1, "smooth_replay"), np.uint64(0)
    if chunk is None:
        grid = (-(-n_series // THREADS), 1)
        replay(grid, (THREADS,), (*arguments, np.int64(n_series), m, P, null, null, mean, covariance))
        return mean, covariance
    _, link, state = _sizes(nx)
    grid = (n_blocks, n_series)
    local, totals = _room(m, n_series, link, n_blocks * THREADS), _room(m, n_series, link, n_blocks)
    starts = _room(m, n_series, state, n_blocks)
    function(dtype, nx, 1, "smooth_reduce")(grid, (THREADS,), (*arguments, m, P, local, totals))
    function(dtype, nx, 1, "smooth_starts")(
        (n_series,), (THREADS,), (totals, np.int32(n_blocks), np.int64(n_steps), m, P, starts)
    )
    replay(grid, (THREADS,), (*arguments, np.int64(n_series), m, P, local, starts, mean, covariance))
    return mean, covariance


def two_filter_chunks(F, Q, H, R, u, d, y, m0, P0, predict_first, chunk):
    """Filtered means and covariances, ``log p(y[k] | y[:k])``, and smoothed means and covariances."""
    mean, covariance, terms, behind = filter_chunks(F, Q, H, R, u, d, y, m0, P0, predict_first, chunk, True)
    p, ends, infos = behind
    xp = array_namespace(mean)
    smooth_mean, smooth_covariance = xp.asarray(mean, copy=True), xp.asarray(covariance, copy=True)
    meet = function(y.dtype.name, m0.shape[-1], y.shape[-1], "meet_replay")
    meet((p.n_blocks, y.shape[0]), (THREADS,), (*p.arguments, ends, infos, smooth_mean, smooth_covariance))
    return mean, covariance, terms, smooth_mean, smooth_covariance


def combine(name: str, earlier: tuple[Any, ...], later: tuple[Any, ...], nx: int) -> tuple[Any, ...]:
    """Pairs of elements joined by the kernel `name`; arrays (n, ...), steps between entries may be longer than one."""
    n = later[0].shape[0]
    operands: list[Any] = []
    steps: list[int] = []
    for element in (earlier, later):
        entries = [math.prod(a.shape[1:]) for a in element]
        step = {a.strides[0] // (a.dtype.itemsize * e) for a, e in zip(element, entries, strict=True)} if n > 1 else {1}
        rows = all(a[:1].flags.c_contiguous for a in element)
        if len(step) > 1 or not rows or min(step) < 0:
            element, step = tuple(a.copy() for a in element), {1}
        operands += element
        steps.append(step.pop())
    outs = tuple(_room(a, *a.shape) for a in later)
    grid = (-(-n // THREADS),)
    arguments = (np.int64(n), np.int64(steps[0]), np.int64(steps[1]), *operands, *outs)
    function(later[0].dtype.name, nx, 1, name)(grid, (THREADS,), arguments)
    return outs
