"""Launches of the CUDA kernels in `cuda/`: filter and smoothers of series divided into chunks, a chunk per thread.

Longer than 400 lines: one launch per kernel, each with its workspace.

Arrays as in `recursions.py`, (n_series or 1, n_steps or 1, ...), on one device.
"""

from __future__ import annotations

import abc
import enum
import functools
import math
from typing import Any

import numpy as np

from ensemble._compile import cuda
from ensemble._compile.device import current_device, device_empties, device_empty, raw_module
from ensemble._kernels.kalman.cuda_step import device_functions
from ensemble._typing import Array

__all__ = [
    "KERNEL_FILES",
    "LARGEST",
    "THREADS",
    "ModelArguments",
    "PairwiseOperation",
    "Pass",
    "chunk_length",
    "compile_options",
    "element_sizes",
    "empty_float64_on",
    "empty_on",
    "filter_chunks",
    "finish_filter",
    "function",
    "shared_bytes",
    "smooth_by_recursion",
    "smooth_chunks",
    "source",
    "two_filter_chunks",
    "zero_flags_on",
]

LARGEST = 4
"""States and observations up to which a thread holds their matrices in registers; for more, see `block_launch.py`."""

THREADS = 128

MULTIPROCESSORS = 132
"""Multiprocessors of an H200: the length of chunks is chosen for one block on each."""

SERIES_THAT_FILL = MULTIPROCESSORS * THREADS // 2
"""Series that fill a device with a thread per series."""

MIN_CHUNK = 4
"""Steps of the shortest chunk: below it, the scan of chunks costs more than it saves (`benchmarks kalman-device`)."""

SHARED_BYTES = 225 * 1024
"""Bytes of shared memory that a block may use for prefetched steps and one element per warp; 2 KB are left."""

GROUPS = (4, 2, 1)
"""Steps per thread that may be prefetched at once: the more, the longer the contiguous reads and writes.

Measured again by `benchmarks kalman-device`.
"""

TERMS_PER_BLOCK = 32 * THREADS
"""Terms of a likelihood that one block adds."""

TYPES = ("arguments.cuh", "matrices.cuh", "elements.cuh", "step_types.cuh")

HEADERS = ("steps", "prefetch", "scan", "recursion")

KERNEL_FILES = {
    "filter": (("filter_chunks",), "FQHRudy"),
    "smooth": (("smooth_chunks",), "FQumP"),
    "recursion": (("filter_series", "finish_filter", "smooth_series"), "FQHRudymP"),
    "combine": (("combine_chunks", "state_after_range", "information_before_range", "range_elements",
                 "states_between_ranges"), "FQHRudymP"),
    "levels": (("filter_elements", "smoother_elements", "combine_filter_elements", "combine_smoother_elements",
                "filter_states", "smoother_states", "combined_states"), "FQHRudy"),
}  # fmt: skip
"""Kernels of each source file, and the parts of the model and of the filtered states that their steps read."""

NULL = np.uint64(0)
"""The address of no array."""


class Pass(enum.IntEnum):
    """What a launch of `filter_chunks` does, as in `filter.cu`."""

    WHOLE, REDUCE, REPLAY, REDUCE_FIRST, WHOLE_BY_CHUNKS = range(5)


WHOLE = np.int32(Pass.WHOLE)

INT, DOUBLE = np.dtype(np.int32), np.dtype(np.float64)

PARTS = "FQHRudymP"  # in the order of `prefetch.cuh`


def source(nx: int, ny: int, file: str) -> str:
    """The CUDA C++ source of one file for one size."""
    files = (*(f"{name}.cuh" for name in HEADERS), f"{file}.cu")
    types, kernels = (cuda.sources(*(f"_kernels/kalman/cuda/{name}" for name in names)) for names in (TYPES, files))
    return "\n".join([cuda.sources(cuda.COMMON_TYPES), types, device_functions(nx, ny), kernels])


def row_bytes(dtype: Any, nx: int, ny: int, parts: str) -> tuple[int, int]:
    """Bytes of shared memory for one group of a thread's steps, and the steps of a group: as many as fit.

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
        if 2 * THREADS * row + THREADS // 32 * element_sizes(nx)[0] * item <= SHARED_BYTES:
            return row, group
    raise ValueError(f"row_bytes: nx = {nx} and ny = {ny} must be at most {LARGEST}")


def _multiple(size: int, of: int) -> int:
    return -(-size // of) * of


def compile_options(dtype: Any, nx: int, ny: int, file: str) -> tuple[str, ...]:
    """The compiler's options for one size."""
    real = {4: "float", 8: "double"}[np.dtype(dtype).itemsize]
    parts = KERNEL_FILES[file][1]
    mask = sum(1 << PARTS.index(part) for part in parts)
    row, group = row_bytes(dtype, nx, ny, parts)
    defines = {"REAL": real, "NX": nx, "NY": ny, "PARTS": mask, "ROW": row, "GROUP": group}
    return ("--std=c++17", *(f"-D{name}={value}" for name, value in defines.items()))


@functools.cache
def module(dtype: str, nx: int, ny: int, file: str, device: int) -> Any:
    """The compiled kernels of one file and size on one device."""
    return raw_module(source(nx, ny, file), compile_options(dtype, nx, ny, file))


def function(dtype: str, nx: int, ny: int, name: str) -> Any:
    """One kernel of one size on the current device."""
    return _function(dtype, nx, ny, name, current_device())


@functools.cache
def _function(dtype: str, nx: int, ny: int, name: str, device: int) -> Any:
    file = next(file for file, (names, _) in KERNEL_FILES.items() if name in names)
    kernel = module(dtype, nx, ny, file, device).get_function(name)
    if name.endswith("_chunks"):
        kernel.max_dynamic_shared_size_bytes = shared_bytes(dtype, nx, ny, name)
    return kernel


@functools.cache
def shared_bytes(dtype: str, nx: int, ny: int, name: str) -> int:
    """Bytes of dynamic shared memory of a kernel over chunks."""
    return 2 * THREADS * row_bytes(dtype, nx, ny, KERNEL_FILES[name.removesuffix("_chunks")][1])[0]


LAYOUT = np.dtype([("strides", np.int64, 18), ("n_steps", np.int64), *((name, np.int32) for name in
                ("predict_first", "chunk", "n_chunks", "n_blocks"))])  # fmt: skip
"""`SeriesLayout` of `arguments.cuh`."""

ENTRY_AXES = (2, 2, 2, 2, 1, 1, 1, 1, 2)
"""Axes of one step of F, Q, H, R, u, d, y, m0, P0."""


def _address(a: Any) -> int:
    return int(a.ctypes.data) if isinstance(a, np.ndarray) else a.data.ptr


def _entry_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], item: int, tail: int
) -> tuple[int, int, int] | None:
    """Strides over series and steps, in entries, and the bytes of one load; None where a step is not contiguous."""
    lead, entries = len(shape) - tail, math.prod(shape[len(shape) - tail :])
    inner = [item * math.prod(shape[k + 1 :]) for k in range(lead, len(shape))]
    contiguous = all(n == 1 or s == t for n, s, t in zip(shape[lead:], strides[lead:], inner, strict=True))
    steps = [0 if n == 1 else s // item for n, s in zip(shape[:lead], strides[:lead], strict=True)]
    width = 16 if entries * item % 16 == 0 else 8 if entries * item % 8 == 0 else item
    valid = contiguous and all(s >= 0 and s * item % width == 0 for s in steps)
    steps += [0] * (2 - lead)
    return (steps[0], steps[1], width) if valid and steps[1] in (0, entries) else None


@functools.lru_cache(maxsize=1024)
def _layout(
    arrays: tuple[Any, ...], item: int, predict_first: bool, n_steps: int, chunk: int | None, n_divided: int
) -> Any:
    """The `SeriesLayout` of arrays of such shapes and strides, and the widest load; None where some must be copied."""
    strides = [
        (0, 0, 1) if a is None else _entry_strides(a[0], a[1], item, tail)
        for a, tail in zip(arrays, ENTRY_AXES, strict=True)
    ]
    if any(p is None for p in strides):
        return None
    n_chunks = 1 if chunk is None else -(-n_divided // chunk)
    layout = np.zeros((), LAYOUT)
    layout["strides"] = [n for p in strides if p is not None for n in p[:2]]
    layout["n_steps"], layout["predict_first"] = n_steps, predict_first
    layout["chunk"], layout["n_chunks"] = chunk or n_divided, n_chunks
    layout["n_blocks"] = -(-n_chunks // THREADS)
    return layout[()], max(p[2] for p in strides if p is not None)


def _with_contiguous_steps(a: Any, tail: int) -> Any:
    """`a`, or a copy with the entries of each step contiguous and aligned."""
    strides = _entry_strides(a.shape, a.strides, a.dtype.itemsize, tail)
    return a if strides is not None and _address(a) % strides[2] == 0 else a.copy(order="C")


class ModelArguments:
    """The arguments that all kernels share, for one division into chunks."""

    def __init__(self, parts: tuple[Any, ...], y: Any, starts: tuple[Any, ...], predict_first: bool, chunk: int | None,
                 n_steps: int, n_divided: int | None = None) -> None:  # fmt: skip
        arrays = (*parts, y, *starts)
        some = arrays[0]
        how = (some.dtype.itemsize, bool(predict_first), n_steps, chunk, n_steps if n_divided is None else n_divided)
        layout = _layout(tuple([None if a is None else (a.shape, a.strides) for a in arrays]), *how)
        address_bits = 0
        for a in arrays:
            address_bits |= 0 if a is None else _address(a)
        if layout is None or address_bits % layout[1]:
            arrays = tuple(
                None if a is None else _with_contiguous_steps(a, tail)
                for a, tail in zip(arrays, ENTRY_AXES, strict=True)
            )
            layout = _layout(tuple([None if a is None else (a.shape, a.strides) for a in arrays]), *how)
        self.arguments = (*[some if a is None else a for a in arrays], layout[0])  # `some` where kernels read nothing
        self.n_chunks, self.n_blocks = int(layout[0]["n_chunks"]), int(layout[0]["n_blocks"])
        self.ny = 1 if y is None else y.shape[-1]


class PairwiseOperation(abc.ABC):
    """An associative operation on elements of `size` entries as `prefix_scan` calls it: one launch for many pairs."""

    size: int

    @abc.abstractmethod
    def launch_pairs(self, n: int, n_series: int, arguments: list[Any]) -> None:
        """Queue the kernel for `n` pairs of every series."""

    def __call__(self, earlier: tuple[Any, ...], later: tuple[Any, ...]) -> tuple[Any, ...]:
        """A new array of results."""
        out = (empty_on(earlier[0], *earlier[0].shape),)
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
    """Steps of a chunk such that blocks of chunks fill the device once; None where a thread per series does."""
    if n_series >= SERIES_THAT_FILL:
        return None
    n_series = max(1, n_series)
    threads = MULTIPROCESSORS // n_series * THREADS or MULTIPROCESSORS * THREADS // n_series  # of one series
    chunk = max(MIN_CHUNK, _multiple(-(-n_steps // threads), GROUPS[0]))
    return None if chunk >= n_steps else chunk


@functools.cache
def dtype_name(dtype: Any) -> str:
    """The name of a dtype, which NumPy formats at each call."""
    return str(dtype.name)


def element_sizes(nx: int) -> tuple[int, int]:
    """Entries of the filter's and of the smoother's element."""
    packed = nx * (nx + 1) // 2
    return nx * nx + 2 * nx + 2 * packed, nx * nx + nx + packed


def empty_on(like: Any, *shape: int) -> Any:
    """An empty array on the device of `like`."""
    return np.empty(shape, like.dtype) if isinstance(like, np.ndarray) else device_empty(shape, like.dtype)


def workspace(like: Any, n_flags: int, wide: tuple[int, ...], *shapes: tuple[int, ...]) -> Any:
    """On the device of `like`: empty arrays of `shapes` and of `wide` float64 entries, and `n_flags` zeros."""
    if isinstance(like, np.ndarray):
        hosted = [np.empty(shape, like.dtype) for shape in shapes] + [np.empty((n,)) for n in wide]
        return [*hosted, np.zeros((n_flags,), np.int32)]
    given = [(shape, like.dtype) for shape in shapes] + [((n,), DOUBLE) for n in wide]
    arrays: list[Any] = device_empties((*given, ((n_flags,), INT)))
    arrays[-1].data.memset_async(0, 4 * n_flags)
    return arrays


def empty_float64_on(like: Any, n: int) -> Any:
    """An empty array of float64 on the device of `like`."""
    return np.empty((n,)) if isinstance(like, np.ndarray) else device_empty((n,), np.float64)


def zero_flags_on(like: Any, n_blocks: int) -> Any:
    """Zeros for the tickets and flags of one launch, one more than blocks."""
    if isinstance(like, np.ndarray):
        return np.zeros(n_blocks + 1, np.int32)
    flags = device_empty((n_blocks + 1,), np.int32)
    flags.data.memset_async(0, flags.nbytes)
    return flags


def finish_filter(
    model: ModelArguments, counters: Any, redo_failed: bool, mean: Any, covariance: Any, terms: Any
) -> Any:
    """The sum of every series' terms, in float64; `counters` are zeros, one per series.

    With `redo_failed`, series whose last mean is NaN are filtered by the recursion, in place.
    """
    n_series, n_steps, nx = mean.shape
    parts = -(-n_steps // TERMS_PER_BLOCK)
    partials, totals = empty_float64_on(mean, n_series * parts), empty_float64_on(mean, n_series)
    given = (np.int32(parts), np.int32(redo_failed), counters, partials, mean, covariance, terms, totals)
    run = function(mean.dtype.name, nx, model.ny, "finish_filter")
    run((n_series * parts,), (THREADS,), (*model.arguments, *given))
    return totals


def smooth_by_recursion(model: ModelArguments, m: Any, P: Any, mean: Any, covariance: Any) -> None:
    """The smoother's recursion, a thread per series."""
    n_series, _, nx = mean.shape
    arguments = (*model.arguments, np.int64(n_series), m, P, mean, covariance)
    function(mean.dtype.name, nx, model.ny, "smooth_series")((-(-n_series // THREADS),), (THREADS,), arguments)


def filter_chunks(
    F: Array, Q: Array, H: Array, R: Array, u: Array, d: Array, y: Array, m0: Array, P0: Array, predict_first: bool,
    chunk: int | None = None, keep_elements: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """Filtered means, covariances and ``log p(y[k] | y[:k])`` of every step, and the sum of these for every series.

    `chunk` is a number of steps, or None for one chunk per series, which is the recursion; series with a singular
    innovation covariance given the state before a chunk take the recursion, too. With `keep_elements`, the arguments,
    the blocks' totals and the chunks' elements for `two_filter_chunks` are returned as well.
    """
    n_series, n_steps, ny = y.shape
    nx, dtype = m0.shape[-1], dtype_name(y.dtype)
    model = ModelArguments((F, Q, H, R, u, d), y, (m0, P0), predict_first, chunk, n_steps)
    n_blocks = model.n_blocks * n_series
    states = ((n_series, n_steps, nx), (n_series, n_steps, nx, nx), (n_series, n_steps))
    if chunk is None:
        mean, covariance, terms = (empty_on(y, *shape) for shape in states)
        totals = empty_float64_on(y, n_series)
        arguments = (*model.arguments, np.int64(n_series), mean, covariance, terms, totals)
        function(dtype, nx, ny, "filter_series")((-(-n_series // THREADS),), (THREADS,), arguments)
        return (mean, covariance, terms, totals, None) if keep_elements else (mean, covariance, terms, totals)
    element = element_sizes(nx)[0]
    some = workspace(y, 1 + n_blocks + n_series, (n_blocks, n_series), *states, (n_blocks, element))
    mean, covariance, terms, block_totals, partials, totals, flags = some
    chunk_elements = empty_on(y, n_series, element, model.n_blocks * THREADS) if keep_elements else NULL
    arguments = (*model.arguments, flags, block_totals, chunk_elements, NULL, WHOLE, mean, covariance, terms, partials,
                 totals)  # fmt: skip
    shared = shared_bytes(dtype, nx, ny, "filter_chunks")
    function(dtype, nx, ny, "filter_chunks")((n_blocks,), (THREADS,), arguments, shared_mem=shared)
    filtered = mean, covariance, terms, totals
    return (*filtered, (model, block_totals, chunk_elements)) if keep_elements else filtered


def smooth_chunks(F: Array, Q: Array, u: Array, m: Array, P: Array, chunk: int | None = None) -> tuple[Array, Array]:
    """Smoothed means and covariances of every step from the filtered ones.

    NaN from the last step whose predicted covariance is nearly singular back to the first: `smooth_blocks` has another
    form.
    """
    n_series, n_steps, nx = m.shape
    dtype = dtype_name(m.dtype)
    chunk = chunk if n_steps > 1 else None
    m, P = _with_contiguous_steps(m, 1), _with_contiguous_steps(P, 2)
    model = ModelArguments((F, Q, None, None, u, None), None, (None, None), True, chunk, n_steps, max(1, n_steps - 1))
    states = ((n_series, n_steps, nx), (n_series, n_steps, nx, nx))
    if chunk is None:
        mean, covariance = (empty_on(m, *shape) for shape in states)
        smooth_by_recursion(model, m, P, mean, covariance)
        return mean, covariance
    n_blocks = model.n_blocks * n_series
    mean, covariance, totals, flags = workspace(m, 1 + n_blocks, (), *states, (n_blocks, element_sizes(nx)[1]))
    arguments = (*model.arguments, flags, totals, m, P, mean, covariance)
    shared = shared_bytes(dtype, nx, 1, "smooth_chunks")
    function(dtype, nx, 1, "smooth_chunks")((n_blocks,), (THREADS,), arguments, shared_mem=shared)
    return mean, covariance


def two_filter_chunks(
    F: Array, Q: Array, H: Array, R: Array, u: Array, d: Array, y: Array, m0: Array, P0: Array, predict_first: bool,
    chunk: int,
) -> tuple[Array, ...]:  # fmt: skip
    """What `filter_chunks` returns, and smoothed means and covariances; NaN for series whose elements do not exist."""
    *filtered, kept = filter_chunks(F, Q, H, R, u, d, y, m0, P0, predict_first, chunk, True)
    model, block_totals, chunk_elements = kept
    mean, covariance = filtered[:2]
    n_series, n_steps, nx = mean.shape
    dtype, ny = dtype_name(y.dtype), y.shape[-1]
    smooth_mean, smooth_covariance = empty_on(y, n_series, n_steps, nx), empty_on(y, n_series, n_steps, nx, nx)
    states = (mean, covariance, smooth_mean, smooth_covariance)
    arguments = (*model.arguments, block_totals, chunk_elements, NULL, *states)
    shared = shared_bytes(dtype, nx, ny, "combine_chunks")
    combine_information = function(dtype, nx, ny, "combine_chunks")
    combine_information((model.n_blocks, n_series), (THREADS,), arguments, shared_mem=shared)
    return *filtered, smooth_mean, smooth_covariance
