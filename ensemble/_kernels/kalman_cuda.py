"""Launches of the CUDA kernels `kalman_*.cu`: filter and smoothers of series cut into chunks, one chunk of time a
thread.

Arrays as in `kalman.py`, (n_series or 1, n_steps or 1, ...), on one device.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np

from ensemble._kernels._compile import current_device, device_array, device_empty, raw_module

__all__ = [
    "FAMILIES",
    "LARGEST",
    "THREADS",
    "Problem",
    "chunk_length",
    "filter_chunks",
    "flags_of",
    "function",
    "options",
    "room",
    "room_of",
    "settle",
    "sizes",
    "smooth_chunks",
    "smooth_each",
    "source",
    "two_filter_chunks",
    "wide_room",
]

LARGEST = 16
"""States and observations up to which kernels are compiled; from 6 on, matrices lie in local memory."""

THREADS = 128

RESIDENT = 132 * 2 * THREADS
"""Threads that an H200 holds at once when each uses all registers it may: what the length of chunks aims at."""

SHORTEST = 4
"""Steps of the shortest chunk: below it, joining chunks costs more than they save."""

ALONE = 16
"""Steps of the longest chunk for which a processor is better left to one block."""

SHARED = 112 * 1024
"""Bytes of shared memory that a block may take so that two blocks share a processor."""

LEAVES = 32 * THREADS
"""Terms of a likelihood that one block adds up."""

HEADERS = ("matrices", "elements", "steps", "feed", "scan")

FAMILIES = {
    "filter": (("filter_chunks",), "FQHRudy"),
    "smooth": (("smooth_chunks",), "FQumP"),
    "recursion": (("filter_series", "settle_series", "smooth_series"), "FQHRudymP"),
    "meet": (("meet_chunks", "state_behind", "said_before"), "FQHRudymP"),
    "levels": (("filter_elements", "smoother_links", "join_elements", "join_links", "element_states", "link_states",
                "met_states"), "FQHRudy"),
}  # fmt: skip
"""Kernels of each source file, and the parts of the model and of the filter's states that their steps read."""

PARTS = "FQHRudymP"  # as `kalman_feed.cuh` counts them


def source(family: str) -> str:
    """The CUDA C++ source of one family."""
    files = (*(f"kalman_{name}.cuh" for name in HEADERS), f"kalman_{family}.cu")
    return "\n".join((Path(__file__).parent / file).read_text() for file in files)


def row_bytes(dtype: Any, nx: int, ny: int, parts: str) -> tuple[int, bool]:
    """Shared memory of one thread's step, 0 where it is too much, and whether it holds the state on its way out too.

    Parts lie one after another, an odd number of 16 bytes in all, so that threads fall on different banks.
    """
    item = np.dtype(dtype).itemsize
    entries = {"F": nx * nx, "Q": nx * nx, "H": ny * nx, "R": ny * ny, "u": nx, "d": ny, "y": ny, "m": nx, "P": nx * nx}
    size = 0
    for part in PARTS:
        if part in parts:
            length = entries[part] * item
            piece = 16 if length % 16 == 0 else 8 if length % 8 == 0 else item
            size = _multiple(size, piece) + length
    for puts in (True, False):
        row = _multiple(_multiple(_multiple(size, 16) + nx * item, 16) + nx * nx * item if puts else size, 16)
        row += 16 * (row // 16 % 2 == 0)
        if 2 * THREADS * row <= SHARED:
            return row, puts
    return 0, False


def _multiple(size: int, of: int) -> int:
    return -(-size // of) * of


def options(dtype: Any, nx: int, ny: int, family: str) -> tuple[str, ...]:
    """What the source is compiled with for one size."""
    real = {4: "float", 8: "double"}[np.dtype(dtype).itemsize]
    parts = FAMILIES[family][1]
    mask = sum(1 << PARTS.index(part) for part in parts)
    row, puts = row_bytes(dtype, nx, ny, parts)
    told = {"REAL": real, "NX": nx, "NY": ny, "PARTS": mask, "ROW": row, "PUT": int(puts)}
    return ("--std=c++17", *(f"-D{name}={value}" for name, value in told.items()))


@functools.cache
def module(dtype: str, nx: int, ny: int, family: str, device: int) -> Any:
    """The compiled kernels of one family and size on one device."""
    return raw_module(source(family), options(dtype, nx, ny, family))


def function(dtype: str, nx: int, ny: int, name: str) -> Any:
    """One kernel of one size on the current device."""
    return _function(dtype, nx, ny, name, current_device())


@functools.cache
def _function(dtype: str, nx: int, ny: int, name: str, device: int) -> Any:
    family = next(family for family, (names, _) in FAMILIES.items() if name in names)
    kernel = module(dtype, nx, ny, family, device).get_function(name)
    if name.endswith("_chunks"):
        kernel.max_dynamic_shared_size_bytes = room_of(dtype, nx, ny, name)
    return kernel


@functools.cache
def room_of(dtype: str, nx: int, ny: int, name: str) -> int:
    """Bytes of shared memory that a launch of a kernel over chunks asks for."""
    return 2 * THREADS * row_bytes(dtype, nx, ny, FAMILIES[name.removesuffix("_chunks")][1])[0]


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


class Problem:
    """The arguments that all kernels share, for one cut into chunks."""

    def __init__(self, parts: tuple[Any, ...], y: Any, starts: tuple[Any, ...], predict_first: bool, chunk: int | None,
                 n_steps: int, n_cut: int | None = None) -> None:  # fmt: skip
        placed = [None if a is None else _placed(a, tail) for a, tail in
                  zip((*parts, y, *starts), (2, 2, 2, 2, 1, 1, 1, 1, 2), strict=True)]  # fmt: skip
        self.kept = [p[0] for p in placed if p is not None]  # alive while kernels run
        arrays = [np.uint64(0) if p is None else p[0] for p in placed]
        numbers = tuple(n for p in placed for n in ((0, 0) if p is None else p[1]))
        places = _places(self.kept[0], numbers)
        n_cut = n_steps if n_cut is None else n_cut
        self.n_chunks = 1 if chunk is None else -(-n_cut // chunk)
        length = n_cut if chunk is None else chunk
        self.n_blocks = -(-self.n_chunks // THREADS)
        self.ny = 1 if y is None else y.shape[-1]
        self.arguments = (*arrays, places, np.int32(predict_first), np.int64(n_steps), np.int32(length),
                          np.int32(self.n_chunks))  # fmt: skip


def chunk_length(n_series: int, n_steps: int) -> int | None:
    """Steps of a chunk, so that chunks just fill the device; None where the series alone do."""
    if n_series >= RESIDENT // 4:
        return None
    chunk = -(-n_steps * n_series // (RESIDENT // 2))
    if chunk > ALONE:
        chunk = -(-n_steps * n_series // RESIDENT)
    chunk = max(SHORTEST, _multiple(chunk, 4))  # likelihoods are written four at a time
    return None if chunk >= n_steps else chunk


def sizes(nx: int) -> tuple[int, int]:
    """Numbers in an element, and in a link."""
    packed = nx * (nx + 1) // 2
    return nx * nx + 2 * nx + 2 * packed, nx * nx + nx + packed


def room(like: Any, *shape: int) -> Any:
    """Uninitialised memory where `like` lives."""
    return np.empty(shape, like.dtype) if isinstance(like, np.ndarray) else device_empty(shape, like.dtype)


def wide_room(like: Any, n: int) -> Any:
    """Uninitialised float64 where `like` lives."""
    return np.empty((n,)) if isinstance(like, np.ndarray) else device_empty((n,), np.float64)


def flags_of(like: Any, n_blocks: int) -> Any:
    """What blocks of one launch tell each other by: zeros, one more than there are blocks."""
    if isinstance(like, np.ndarray):
        return np.zeros(n_blocks + 1, np.int32)
    flags = device_empty((n_blocks + 1,), np.int32)
    flags.data.memset_async(0, flags.nbytes)
    return flags


def settle(problem: Problem, tickets: Any, again: bool, mean: Any, covariance: Any, terms: Any) -> Any:
    """The sum of every series' terms, in float64; `tickets` are zeros, one a series.

    With `again` the recursion takes over, in place, for series that chunks or a scan left without an answer.
    """
    n_series, n_steps, nx = mean.shape
    parts = -(-n_steps // LEAVES)
    partials, totals = wide_room(mean, n_series * parts), wide_room(mean, n_series)
    given = (np.int32(parts), np.int32(again), tickets, partials, mean, covariance, terms, totals)
    run = function(mean.dtype.name, nx, problem.ny, "settle_series")
    run((n_series * parts,), (THREADS,), (*problem.arguments, *given))
    return totals


def smooth_each(problem: Problem, again: bool, m: Any, P: Any, mean: Any, covariance: Any) -> None:
    """The smoother's recursion, a thread a series; with `again` for series that two filters left without an answer."""
    n_series, _, nx = mean.shape
    arguments = (*problem.arguments, np.int64(n_series), np.int32(again), m, P, mean, covariance)
    function(mean.dtype.name, nx, problem.ny, "smooth_series")((-(-n_series // THREADS),), (THREADS,), arguments)


def filter_chunks(F, Q, H, R, u, d, y, m0, P0, predict_first, chunk=None, behind=False):
    """Filtered means, covariances and ``log p(y[k] | y[:k])`` of every step, and the sum of these for every series.

    `chunk` is a number of steps, or None for one chunk a series, which is the plain recursion; it takes over where the
    innovation covariance given the state before a chunk is singular. With `behind`, what `two_filter_chunks` goes on
    with comes as well.
    """
    n_series, n_steps, ny = y.shape
    nx, dtype = m0.shape[-1], y.dtype.name
    p = Problem((F, Q, H, R, u, d), y, (m0, P0), predict_first, chunk, n_steps)
    mean, covariance = room(y, n_series, n_steps, nx), room(y, n_series, n_steps, nx, nx)
    terms = room(y, n_series, n_steps)
    if chunk is None:
        totals = wide_room(y, n_series)
        arguments = (*p.arguments, np.int64(n_series), mean, covariance, terms, totals)
        function(dtype, nx, ny, "filter_series")((-(-n_series // THREADS),), (THREADS,), arguments)
        return (mean, covariance, terms, totals, None) if behind else (mean, covariance, terms, totals)
    element, _ = sizes(nx)
    n_blocks = p.n_blocks * n_series
    sums, flags = room(y, n_blocks, element), flags_of(y, n_blocks + n_series)
    own = room(y, n_series, element, p.n_blocks * THREADS) if behind else np.uint64(0)
    alone = (np.uint64(0), np.int32(0))
    arguments = (*p.arguments, np.int32(p.n_blocks), flags, sums, own, *alone, mean, covariance, terms)
    shared = room_of(dtype, nx, ny, "filter_chunks")
    function(dtype, nx, ny, "filter_chunks")((n_blocks,), (THREADS,), arguments, shared_mem=shared)
    totals = settle(p, flags[n_blocks + 1 :], True, mean, covariance, terms)
    return (mean, covariance, terms, totals, (p, sums, own)) if behind else (mean, covariance, terms, totals)


def smooth_chunks(F, Q, u, m, P, chunk=None):
    """Smoothed means and covariances of every step from the filtered ones."""
    n_series, n_steps, nx = m.shape
    dtype = m.dtype.name
    chunk = chunk if n_steps > 1 else None
    m, P = _placed(m, 1)[0], _placed(P, 2)[0]
    p = Problem((F, Q, None, None, u, None), None, (None, None), True, chunk, n_steps, max(1, n_steps - 1))
    mean, covariance = room(m, n_series, n_steps, nx), room(m, n_series, n_steps, nx, nx)
    if chunk is None:
        smooth_each(p, False, m, P, mean, covariance)
        return mean, covariance
    n_blocks = p.n_blocks * n_series
    totals, flags = room(m, n_blocks, sizes(nx)[1]), flags_of(m, n_blocks)
    arguments = (*p.arguments, np.int32(p.n_blocks), flags, totals, m, P, mean, covariance)
    shared = room_of(dtype, nx, 1, "smooth_chunks")
    function(dtype, nx, 1, "smooth_chunks")((n_blocks,), (THREADS,), arguments, shared_mem=shared)
    return mean, covariance


def two_filter_chunks(F, Q, H, R, u, d, y, m0, P0, predict_first, chunk):
    """What `filter_chunks` returns, and smoothed means and covariances."""
    *filtered, behind = filter_chunks(F, Q, H, R, u, d, y, m0, P0, predict_first, chunk, True)
    p, sums, own = behind
    mean, covariance = filtered[:2]
    n_series, n_steps, nx = mean.shape
    dtype, ny = y.dtype.name, y.shape[-1]
    smooth_mean, smooth_covariance = room(y, n_series, n_steps, nx), room(y, n_series, n_steps, nx, nx)
    states = (mean, covariance, smooth_mean, smooth_covariance)
    arguments = (*p.arguments, np.int32(p.n_blocks), sums, own, np.uint64(0), *states)
    shared = room_of(dtype, nx, ny, "meet_chunks")
    meet = function(dtype, nx, ny, "meet_chunks")
    meet((p.n_blocks, n_series), (THREADS,), arguments, shared_mem=shared)
    smooth_each(p, True, *states)
    return *filtered, smooth_mean, smooth_covariance
