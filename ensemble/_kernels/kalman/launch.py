"""Launches of the CUDA kernels in `cuda/`: filter and smoothers of series cut into chunks, one chunk of time a
thread.

Arrays as in `kalman.py`, (n_series or 1, n_steps or 1, ...), on one device.
"""

from __future__ import annotations

import abc
import functools
import math
from typing import Any

import numpy as np

from ensemble._compile import cuda
from ensemble._compile.device import current_device, device_empties, device_empty, raw_module

__all__ = [
    "FAMILIES",
    "LARGEST",
    "THREADS",
    "PairwiseJoin",
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

LARGEST = 4
"""States and observations up to which a thread holds their matrices in registers; beyond, see `block_launch.py`."""

THREADS = 128

PROCESSORS = 132
"""Blocks that an H200 works on at once, one per processor: what the length of chunks aims at."""

MANY = PROCESSORS * THREADS // 2
"""Series that fill a device with a thread each."""

SHORTEST = 4
"""Steps of the shortest chunk: below it, joining chunks costs more than they save."""

SHARED = 225 * 1024
"""Bytes of shared memory that a block may take for its steps and for one element a warp; 2 KB are for small things."""

GROUPS = (4, 2, 1)
"""Steps that a thread may be brought at once: the more, the longer the runs of memory that are read and written."""

LEAVES = 32 * THREADS
"""Terms of a likelihood that one block adds up."""

HEADERS = ("problem", "matrices", "elements", "steps", "prefetch", "scan", "recursion")

FAMILIES = {
    "filter": (("filter_chunks",), "FQHRudy"),
    "smooth": (("smooth_chunks",), "FQumP"),
    "recursion": (("filter_series", "settle_series", "smooth_series"), "FQHRudymP"),
    "combine": (("combine_chunks", "state_behind", "said_before"), "FQHRudymP"),
    "levels": (("filter_elements", "smoother_links", "join_elements", "join_links", "element_states", "link_states",
                "combined_states"), "FQHRudy"),
}  # fmt: skip
"""Kernels of each source file, and the parts of the model and of the filter's states that their steps read."""

NOTHING, WHOLE = np.uint64(0), np.int32(0)
"""No array; and the pass of `filter_chunks` over a series that one device has for itself."""

INT, DOUBLE = np.dtype(np.int32), np.dtype(np.float64)

PARTS = "FQHRudymP"  # as `prefetch.cuh` counts them


def source(family: str) -> str:
    """The CUDA C++ source of one family."""
    files = (*(f"{name}.cuh" for name in HEADERS), f"{family}.cu")
    return cuda.sources(*(f"_kernels/kalman/cuda/{file}" for file in files))


def row_bytes(dtype: Any, nx: int, ny: int, parts: str) -> tuple[int, int]:
    """Shared memory of one group of a thread's steps, and the steps of a group: as many as fit.

    Parts lie one after another, an odd number of 16 bytes in all, so that threads fall on different banks.
    """
    item = np.dtype(dtype).itemsize
    entries = {"F": nx * nx, "Q": nx * nx, "H": ny * nx, "R": ny * ny, "u": nx, "d": ny, "y": ny, "m": nx, "P": nx * nx}
    for group in GROUPS:
        size = 0
        for part in PARTS:
            if part in parts:
                length = group * entries[part] * item
                piece = 16 if length % 16 == 0 else 8 if length % 8 == 0 else item
                size = _multiple(size, piece) + length
        row = _multiple(size, 16)
        row += 16 * (row // 16 % 2 == 0)
        if 2 * THREADS * row + THREADS // 32 * sizes(nx)[0] * item <= SHARED:
            return row, group
    raise ValueError(f"row_bytes: nx = {nx} and ny = {ny} must be at most {LARGEST}")


def _multiple(size: int, of: int) -> int:
    return -(-size // of) * of


def options(dtype: Any, nx: int, ny: int, family: str) -> tuple[str, ...]:
    """What the source is compiled with for one size."""
    real = {4: "float", 8: "double"}[np.dtype(dtype).itemsize]
    parts = FAMILIES[family][1]
    mask = sum(1 << PARTS.index(part) for part in parts)
    row, group = row_bytes(dtype, nx, ny, parts)
    told = {"REAL": real, "NX": nx, "NY": ny, "PARTS": mask, "ROW": row, "GROUP": group}
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


CUT = np.dtype([("places", np.int64, 18), ("n_steps", np.int64), *((name, np.int32) for name in
                ("predict_first", "chunk", "n_chunks", "n_blocks"))])  # fmt: skip
"""`Cut` of `prefetch.cuh`."""

TAILS = (2, 2, 2, 2, 1, 1, 1, 1, 2)
"""Axes of one entry of F, Q, H, R, u, d, y, m0, P0."""


def _address(a: Any) -> int:
    return int(a.ctypes.data) if isinstance(a, np.ndarray) else a.data.ptr


def _places(shape: tuple[int, ...], strides: tuple[int, ...], item: int, tail: int) -> tuple[int, int, int] | None:
    """Steps over series and steps in entries, and the bytes of one load; None where entries lie in other ways."""
    lead, entries = len(shape) - tail, math.prod(shape[len(shape) - tail :])
    inner = [item * math.prod(shape[k + 1 :]) for k in range(lead, len(shape))]
    together = all(n == 1 or s == t for n, s, t in zip(shape[lead:], strides[lead:], inner, strict=True))
    steps = [0 if n == 1 else s // item for n, s in zip(shape[:lead], strides[:lead], strict=True)]
    width = 16 if entries * item % 16 == 0 else 8 if entries * item % 8 == 0 else item
    sound = together and all(s >= 0 and s * item % width == 0 for s in steps)
    steps += [0] * (2 - lead)
    return (steps[0], steps[1], width) if sound and steps[1] in (0, entries) else None


@functools.lru_cache(maxsize=1024)
def _cut(layout: tuple[Any, ...], item: int, predict_first: bool, n_steps: int, chunk: int | None, n_cut: int) -> Any:
    """The `Cut` of arrays that are laid out like this, and the widest load; None where some array must be copied."""
    places = [
        (0, 0, 1) if a is None else _places(a[0], a[1], item, tail) for a, tail in zip(layout, TAILS, strict=True)
    ]
    if any(p is None for p in places):
        return None
    n_chunks = 1 if chunk is None else -(-n_cut // chunk)
    cut = np.zeros((), CUT)
    cut["places"] = [n for p in places if p is not None for n in p[:2]]
    cut["n_steps"], cut["predict_first"] = n_steps, predict_first
    cut["chunk"], cut["n_chunks"] = chunk or n_cut, n_chunks
    cut["n_blocks"] = -(-n_chunks // THREADS)
    return cut[()], max(p[2] for p in places if p is not None)


def _tidy(a: Any, tail: int) -> Any:
    """`a` with each step's entries together, where loads may start; itself if it is."""
    places = _places(a.shape, a.strides, a.dtype.itemsize, tail)
    return a if places is not None and _address(a) % places[2] == 0 else a.copy(order="C")


class Problem:
    """The arguments that all kernels share, for one cut into chunks."""

    def __init__(self, parts: tuple[Any, ...], y: Any, starts: tuple[Any, ...], predict_first: bool, chunk: int | None,
                 n_steps: int, n_cut: int | None = None) -> None:  # fmt: skip
        arrays = (*parts, y, *starts)
        some = arrays[0]
        how = (some.dtype.itemsize, bool(predict_first), n_steps, chunk, n_steps if n_cut is None else n_cut)
        cut = _cut(tuple([None if a is None else (a.shape, a.strides) for a in arrays]), *how)
        together = 0
        for a in arrays:
            together |= 0 if a is None else _address(a)
        if cut is None or together % cut[1]:
            arrays = tuple(None if a is None else _tidy(a, tail) for a, tail in zip(arrays, TAILS, strict=True))
            cut = _cut(tuple([None if a is None else (a.shape, a.strides) for a in arrays]), *how)
        self.arguments = (*[some if a is None else a for a in arrays], cut[0])  # `some` where kernels read nothing
        self.n_chunks, self.n_blocks = int(cut[0]["n_chunks"]), int(cut[0]["n_blocks"])
        self.ny = 1 if y is None else y.shape[-1]


class PairwiseJoin(abc.ABC):
    """An associative operation on elements of `size` entries as `prefix_scan` calls it: one launch for many pairs."""

    size: int

    @abc.abstractmethod
    def launch_pairs(self, n: int, n_series: int, arguments: list[Any]) -> None:
        """Queue the kernel for `n` pairs of every series."""

    def __call__(self, earlier: tuple[Any, ...], later: tuple[Any, ...]) -> tuple[Any, ...]:
        """A new array of results."""
        out = (room(earlier[0], *earlier[0].shape),)
        self.into(earlier, later, out)
        return out

    def into(self, earlier: tuple[Any, ...], later: tuple[Any, ...], out: tuple[Any, ...]) -> None:
        """Write the results into `out`."""
        n, n_series, _ = out[0].shape
        element = self.size * out[0].dtype.itemsize
        arguments: list[Any] = []
        for (a,) in (earlier, later, out):
            arguments += [a, np.int64(a.strides[0] // element)]
        self.launch_pairs(n, n_series, arguments)


def chunk_length(n_series: int, n_steps: int) -> int | None:
    """Steps of a chunk, so that blocks of chunks just fill the device; None where the series alone do."""
    if n_series >= MANY:
        return None
    n_series = max(1, n_series)
    threads = PROCESSORS // n_series * THREADS or PROCESSORS * THREADS // n_series  # of one series
    chunk = max(SHORTEST, _multiple(-(-n_steps // threads), GROUPS[0]))
    return None if chunk >= n_steps else chunk


@functools.cache
def name_of(dtype: Any) -> str:
    """The name of a type; NumPy puts it together anew each time."""
    return str(dtype.name)


def sizes(nx: int) -> tuple[int, int]:
    """Numbers in an element, and in a link."""
    packed = nx * (nx + 1) // 2
    return nx * nx + 2 * nx + 2 * packed, nx * nx + nx + packed


def room(like: Any, *shape: int) -> Any:
    """Uninitialised memory where `like` lives."""
    return np.empty(shape, like.dtype) if isinstance(like, np.ndarray) else device_empty(shape, like.dtype)


def workspace(like: Any, n_flags: int, wide: tuple[int, ...], *shapes: tuple[int, ...]) -> Any:
    """Uninitialised memory where `like` lives for each of `shapes` and for as many float64; zeros as flags."""
    if isinstance(like, np.ndarray):
        hosted = [np.empty(shape, like.dtype) for shape in shapes] + [np.empty((n,)) for n in wide]
        return [*hosted, np.zeros((n_flags,), np.int32)]
    given = [(shape, like.dtype) for shape in shapes] + [((n,), DOUBLE) for n in wide]
    arrays: list[Any] = device_empties((*given, ((n_flags,), INT)))
    arrays[-1].data.memset_async(0, 4 * n_flags)
    return arrays


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
    """The sum of every series' terms, in float64; `tickets` are zeros, one per series.

    With `again` the recursion takes over, in place, for series that chunks or a scan left without an answer.
    """
    n_series, n_steps, nx = mean.shape
    parts = -(-n_steps // LEAVES)
    partials, totals = wide_room(mean, n_series * parts), wide_room(mean, n_series)
    given = (np.int32(parts), np.int32(again), tickets, partials, mean, covariance, terms, totals)
    run = function(mean.dtype.name, nx, problem.ny, "settle_series")
    run((n_series * parts,), (THREADS,), (*problem.arguments, *given))
    return totals


def smooth_each(problem: Problem, m: Any, P: Any, mean: Any, covariance: Any) -> None:
    """The smoother's recursion, a thread a series."""
    n_series, _, nx = mean.shape
    arguments = (*problem.arguments, np.int64(n_series), m, P, mean, covariance)
    function(mean.dtype.name, nx, problem.ny, "smooth_series")((-(-n_series // THREADS),), (THREADS,), arguments)


def filter_chunks(F, Q, H, R, u, d, y, m0, P0, predict_first, chunk=None, behind=False):
    """Filtered means, covariances and ``log p(y[k] | y[:k])`` of every step, and the sum of these for every series.

    `chunk` is a number of steps, or None for one chunk a series, which is the plain recursion; it takes over where the
    innovation covariance given the state before a chunk is singular. With `behind`, what `two_filter_chunks` goes on
    with comes as well.
    """
    n_series, n_steps, ny = y.shape
    nx, dtype = m0.shape[-1], name_of(y.dtype)
    p = Problem((F, Q, H, R, u, d), y, (m0, P0), predict_first, chunk, n_steps)
    n_blocks = p.n_blocks * n_series
    states = ((n_series, n_steps, nx), (n_series, n_steps, nx, nx), (n_series, n_steps))
    if chunk is None:
        mean, covariance, terms = (room(y, *shape) for shape in states)
        totals = wide_room(y, n_series)
        arguments = (*p.arguments, np.int64(n_series), mean, covariance, terms, totals)
        function(dtype, nx, ny, "filter_series")((-(-n_series // THREADS),), (THREADS,), arguments)
        return (mean, covariance, terms, totals, None) if behind else (mean, covariance, terms, totals)
    element = sizes(nx)[0]
    some = workspace(y, 1 + n_blocks + n_series, (n_blocks, n_series), *states, (n_blocks, element))
    mean, covariance, terms, sums, partials, totals, flags = some
    own = room(y, n_series, element, p.n_blocks * THREADS) if behind else NOTHING
    arguments = (*p.arguments, flags, sums, own, NOTHING, WHOLE, mean, covariance, terms, partials, totals)
    shared = room_of(dtype, nx, ny, "filter_chunks")
    function(dtype, nx, ny, "filter_chunks")((n_blocks,), (THREADS,), arguments, shared_mem=shared)
    return (mean, covariance, terms, totals, (p, sums, own)) if behind else (mean, covariance, terms, totals)


def smooth_chunks(F, Q, u, m, P, chunk=None):
    """Smoothed means and covariances of every step from the filtered ones.

    NaN from the last step whose predicted covariance is nearly singular back to the first: `kalman_blocks` has another
    form.
    """
    n_series, n_steps, nx = m.shape
    dtype = name_of(m.dtype)
    chunk = chunk if n_steps > 1 else None
    m, P = _tidy(m, 1), _tidy(P, 2)
    p = Problem((F, Q, None, None, u, None), None, (None, None), True, chunk, n_steps, max(1, n_steps - 1))
    states = ((n_series, n_steps, nx), (n_series, n_steps, nx, nx))
    if chunk is None:
        mean, covariance = (room(m, *shape) for shape in states)
        smooth_each(p, m, P, mean, covariance)
        return mean, covariance
    n_blocks = p.n_blocks * n_series
    mean, covariance, totals, flags = workspace(m, 1 + n_blocks, (), *states, (n_blocks, sizes(nx)[1]))
    arguments = (*p.arguments, flags, totals, m, P, mean, covariance)
    shared = room_of(dtype, nx, 1, "smooth_chunks")
    function(dtype, nx, 1, "smooth_chunks")((n_blocks,), (THREADS,), arguments, shared_mem=shared)
    return mean, covariance


def two_filter_chunks(F, Q, H, R, u, d, y, m0, P0, predict_first, chunk):
    """What `filter_chunks` returns, and smoothed means and covariances; NaN for series whose elements do not exist."""
    *filtered, behind = filter_chunks(F, Q, H, R, u, d, y, m0, P0, predict_first, chunk, True)
    p, sums, own = behind
    mean, covariance = filtered[:2]
    n_series, n_steps, nx = mean.shape
    dtype, ny = name_of(y.dtype), y.shape[-1]
    smooth_mean, smooth_covariance = room(y, n_series, n_steps, nx), room(y, n_series, n_steps, nx, nx)
    states = (mean, covariance, smooth_mean, smooth_covariance)
    arguments = (*p.arguments, sums, own, NOTHING, *states)
    shared = room_of(dtype, nx, ny, "combine_chunks")
    combine_information = function(dtype, nx, ny, "combine_chunks")
    combine_information((p.n_blocks, n_series), (THREADS,), arguments, shared_mem=shared)
    return *filtered, smooth_mean, smooth_covariance
