"""Launches of `cuda/block_*.cu`: filter and smoothers of any size on a CUDA device, a block of threads per chunk.

One compilation serves all sizes. Arrays as in `kalman_launch.py`, (n_series or 1, n_steps or 1, ...), on one device.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile import cuda
from ensemble._compile.device import current_device, device_array, raw_module
from ensemble._compile.streams import copy_between_devices
from ensemble._kernels.kalman.kalman_launch import (
    MULTIPROCESSORS,
    NULL,
    ModelArguments,
    PairwiseOperation,
    Pass,
    dtype_name,
    empty_float64_on,
    empty_on,
    zero_flags_on,
)
from ensemble._kernels.kalman.scan import Sengupta, prefix_scan

__all__ = [
    "KERNEL_FILES",
    "BlockTimeRange",
    "chunk_of",
    "compile_options",
    "filter_blocks",
    "filter_element_size",
    "launcher",
    "smooth_blocks",
    "source",
    "two_filter_blocks",
    "workspace",
]

KERNEL_FILES = {
    "filter": ("chunk_filter_elements", "chunk_states", "sum_terms", "combine_filter_elements"),
    "smooth": ("chunk_smoother_elements", "chunk_smoothed", "repair_states", "combine_smoother_elements"),
    "two_filters": (
        "chunk_two_filters",
        "state_after_range",
        "information_before_range",
        "states_between_ranges",
    ),
}
"""Kernels of each source file; one file is compiled when its first kernel is launched."""

SHARED_BYTES = 224 * 1024
"""Bytes of shared memory that a block may use; larger work spaces are in global memory."""

BLOCKS_PER_MULTIPROCESSOR = 16
"""Blocks of a multiprocessor that chunks are made for, where shared memory suffices."""

MIN_CHUNK = 8
"""Steps of the shortest chunk."""

SCAN = "ladner_fischer"
"""The scan over the elements of chunks."""

CANCELLED = {"float64": 1e-5, "float32": 1e-2}
"""The part of a filtered variance below which the smoothed one has lost its digits in ``P - P N P``."""

HEADERS = ("arguments.cuh", "block_matrices.cuh", "blocks.cuh")

SIZES = np.dtype([("nx", np.int32), ("ny", np.int32), ("scratch", np.uint64), ("space", np.int64)])
"""`Sizes` of `blocks.cuh`."""


def source(file: str) -> str:
    """The CUDA C++ source of one file."""
    files = (*HEADERS, f"block_{file}.cu")
    return cuda.sources(cuda.COMMON_TYPES, *(f"_kernels/kalman/cuda/{file}" for file in files))


def compile_options(dtype: str) -> tuple[str, ...]:
    """The compiler's options."""
    return ("--std=c++17", f"-DREAL={ {'float32': 'float', 'float64': 'double'}[dtype] }")


def _padded(rows: int, columns: int) -> int:
    return rows * (columns | 1)


@functools.cache
def workspace(name: str, nx: int, ny: int) -> int:
    """Entries of the work space of one block of a kernel."""
    square, state = _padded(nx, nx), nx + _padded(nx, nx)
    element, smoother, transition = 3 * square + 2 * nx, 2 * square + nx, 2 * square + nx
    observation = _padded(ny, nx) + _padded(ny, ny) + 2 * ny
    gain = 2 * _padded(ny, ny) + _padded(ny, nx + 1) + _padded(nx + 1, ny) + _padded(nx, ny) + ny
    step = transition + observation + gain
    backward = _padded(nx, ny) + _padded(ny, ny) + _padded(ny, nx) + square + nx + ny
    right = _padded(nx, nx + 1)
    return {
        "chunk_filter_elements": element + step + _padded(ny, nx) + square + nx,
        "chunk_states": state + step + square + nx + element + right + square,
        "combine_filter_elements": 2 * element + _padded(nx, 2 * nx + 1) + 2 * square + nx,
        "combine_smoother_elements": 2 * smoother + 2 * square,
        "chunk_two_filters": 2 * state + element + step + _padded(ny, nx) + 2 * square + right + nx,
        "chunk_smoother_elements": smoother + state + step + backward,
        "chunk_smoothed": smoother + state + step + backward,
        "repair_states": 2 * state + transition + 4 * square + 2 * nx,
        "state_after_range": element + state + right + square,
        "information_before_range": element + state + right + 2 * square + nx,
        "states_between_ranges": element + state + right + 2 * square + nx,
    }[name]


def threads_of(nx: int, ny: int) -> int:
    """Threads of a block."""
    largest = max(nx, ny)
    return 32 if largest <= 8 else 64 if largest <= 16 else 128 if largest <= 32 else 256


def filter_element_size(nx: int) -> int:
    """Entries of an element of the filter."""
    return 3 * nx * nx + 2 * nx


def smoother_element_size(nx: int) -> int:
    """Entries of an element of the smoother."""
    return 2 * nx * nx + nx


@functools.cache
def _module(dtype: str, file: str, device: int) -> Any:
    return raw_module(source(file), compile_options(dtype))


@functools.cache
def _function(dtype: str, name: str, device: int) -> Any:
    file = next(file for file, names in KERNEL_FILES.items() if name in names)
    kernel = _module(dtype, file, device).get_function(name)
    if name != "sum_terms":
        kernel.max_dynamic_shared_size_bytes = SHARED_BYTES
    return kernel


def function(dtype: str, name: str) -> Any:
    """A kernel on the current device."""
    return _function(dtype, name, current_device())


class _Launcher:
    """Launches for one size and type."""

    def __init__(self, like: Any, nx: int, ny: int) -> None:
        self.like, self.nx, self.ny, self.dtype = like, nx, ny, dtype_name(like.dtype)

    def __call__(self, name: str, n_blocks: int, *arguments: Any, before: tuple[Any, ...] = ()) -> None:
        """Queue a kernel over so many blocks, after the arguments `before` and the sizes."""
        space = workspace(name, self.nx, self.ny)
        fits = space * self.like.dtype.itemsize <= SHARED_BYTES and not isinstance(self.like, np.ndarray)
        scratch = None if fits else empty_on(self.like, n_blocks, space)
        sizes = np.zeros((), SIZES)
        sizes["nx"], sizes["ny"], sizes["space"] = self.nx, self.ny, space
        if scratch is not None:
            sizes["scratch"] = scratch.ctypes.data if isinstance(scratch, np.ndarray) else scratch.data.ptr
        shared = space * self.like.dtype.itemsize if fits else 0
        kernel, threads = function(self.dtype, name), threads_of(self.nx, self.ny)
        kernel((n_blocks,), (threads,), (*before, sizes[()], *arguments), shared_mem=shared)


def launcher(like: Any, nx: int, ny: int) -> Any:
    """Launches ``launcher(...)(name, n_blocks, *arguments)`` of kernels that read no model."""
    return _Launcher(like, nx, ny)


class _BlockOperation(PairwiseOperation):
    """The operation on elements, a block per pair."""

    def __init__(self, name: str, launch: _Launcher, size: int) -> None:
        self.name, self.launch, self.size = name, launch, size

    def launch_pairs(self, n: int, n_series: int, arguments: list[Any]) -> None:
        self.launch(self.name, n * n_series, np.int64(n_series), *arguments)


def chunk_of(nx: int, ny: int, item: int, n_series: int, n_steps: int) -> int:
    """Steps of a chunk, so that the blocks of all series fill the device once."""
    each = max(1, min(BLOCKS_PER_MULTIPROCESSOR, SHARED_BYTES // (workspace("chunk_filter_elements", nx, ny) * item)))
    chunks = max(1, MULTIPROCESSORS * each // max(1, n_series))
    return min(n_steps, max(MIN_CHUNK, -(-n_steps // chunks)))


def _identity_element(like: Any, nx: int, size: int) -> Any:
    """The identity element of the scans: A or E is the identity, all else zero."""
    row = np.zeros((size,), like.dtype)
    row[: nx * nx : nx + 1] = 1
    return row if isinstance(like, np.ndarray) else device_array(row)


class _BlockLaunch:
    """Series divided into chunks of one length, and the launches over them."""

    def __init__(self, arguments: tuple[Any, ...], chunk: int, scan: str | Sengupta, options: dict[str, Any]) -> None:
        *parts, y, m0, P0, predict_first = arguments
        self.y, self.nx, self.ny = y, m0.shape[-1], y.shape[-1]
        self.n_series, self.n_steps = y.shape[0], y.shape[1]
        n_steps = self.n_steps
        self.divided = lambda chunk: ModelArguments(tuple(parts), y, (m0, P0), predict_first, chunk, n_steps)
        self.model = self.divided(chunk)
        self.n_chunks = self.model.n_chunks
        self.launch = _Launcher(y, self.nx, self.ny)
        self.options = {"algorithm": scan, **options}

    def over_chunks(self, name: str, *arguments: Any) -> None:
        """Queue a kernel with a block per chunk."""
        self.launch(name, self.n_chunks * self.n_series, *arguments, before=self.model.arguments)

    def over_series(self, name: str, *arguments: Any) -> None:
        """Queue a kernel with a block, and one chunk, per series."""
        self.launch(name, self.n_series, *arguments, before=self.divided(None).arguments)

    def elements(self, is_open: bool = False) -> Any:
        """The filter's element of every chunk, (n_chunks, n_series, size); without the prior if `is_open`."""
        rows = empty_on(self.y, self.n_chunks, self.n_series, filter_element_size(self.nx))
        self.over_chunks("chunk_filter_elements", np.int32(is_open), rows)
        return rows

    def scanned(self, name: str, rows: Any, reverse: bool = False) -> Any:
        """The prefix sums of elements, those from the end with `reverse`."""
        identity = (_identity_element(self.y, self.nx, rows.shape[-1]),)
        operation = _BlockOperation(name, self.launch, rows.shape[-1])
        (sums,) = prefix_scan(operation, (rows,), reverse=reverse, identity=identity, **self.options)
        return sums if sums.flags.c_contiguous else sums.copy()

    def workspace(self, terms: bool) -> tuple[Any, ...]:
        """Uninitialised means and covariances, and terms of the likelihood."""
        tails = ((self.nx,), (self.nx, self.nx), ())[: 2 + terms]
        return tuple(empty_on(self.y, self.n_series, self.n_steps, *tail) for tail in tails)

    def filtered(self, rows: Any) -> tuple[Any, ...]:
        """Means, covariances, log-densities and their sums from the elements of chunks."""
        prefixes = self.scanned("combine_filter_elements", rows) if self.n_chunks > 1 else NULL
        out = self.workspace(True)
        self.over_chunks("chunk_states", prefixes, np.int32(0), np.int32(0), *out)
        if self.n_chunks > 1:
            self.over_series("chunk_states", NULL, np.int32(0), np.int32(1), *out)
        return *out, self.sums(out[2])

    def sums(self, terms: Any) -> Any:
        """The sum of every series' terms, in float64."""
        totals = empty_float64_on(self.y, self.n_series)
        kernel = function(dtype_name(self.y.dtype), "sum_terms")
        kernel((self.n_series,), (256,), (np.int64(self.n_steps), terms, totals))
        return totals

    def smoothed(self, states: tuple[Any, ...]) -> tuple[Any, Any]:
        """Smoothed states in disturbance form."""
        out = self.workspace(False)
        suffixes: Any = NULL
        if self.n_chunks > 1:
            elements = empty_on(self.y, self.n_chunks, self.n_series, smoother_element_size(self.nx))
            self.over_chunks("chunk_smoother_elements", *states, elements)
            suffixes = self.scanned("combine_smoother_elements", elements, reverse=True)
        marks = zero_flags_on(self.y, self.n_series * (self.n_steps + 1) - 1)
        counts, marks = marks[: self.n_series], marks[self.n_series :]
        cancelled = self.y.dtype.type(CANCELLED[dtype_name(self.y.dtype)])
        self.over_chunks("chunk_smoothed", suffixes, cancelled, *states, *out, counts, marks)
        self.over_series("repair_states", *states, *out, counts, marks)
        return out[0], out[1]


def _launch_for(arguments: tuple[Any, ...], scan: str | Sengupta | None, options: dict[str, Any]) -> _BlockLaunch:
    """Chunks of one step for the classical scans, chunks that fill the device for "chunked", one chunk for None."""
    y, m0 = arguments[6], arguments[7]
    n_series, n_steps, ny = y.shape
    if scan is None:
        return _BlockLaunch(arguments, n_steps, SCAN, {})
    if scan == "chunked":
        return _BlockLaunch(arguments, chunk_of(m0.shape[-1], ny, y.dtype.itemsize, n_series, n_steps), SCAN, {})
    return _BlockLaunch(arguments, 1, scan, options)


def filter_blocks(arguments: tuple[Any, ...], scan: str | Sengupta | None, **options: Any) -> tuple[Any, ...]:
    """Filtered means, covariances and ``log p(y[k] | y[:k])``, and the sum of these for every series.

    `arguments` are F, Q, H, R, u, d, y, m0, P0, predict_first; `scan` an algorithm of `prefix_scan`, "chunked" for
    chunks of time whose recursion is replayed, None for the recursion. `options` go to `prefix_scan`. Series whose
    elements do not exist take the recursion.
    """
    run = _launch_for(arguments, scan, options)
    return run.filtered(run.elements() if run.n_chunks > 1 else None)


def smooth_blocks(
    arguments: tuple[Any, ...], m: Any, P: Any, scan: str | Sengupta | None, **options: Any
) -> tuple[Any, Any]:
    """Smoothed means and covariances of every step from the filtered ones, in disturbance form.

    NaN at the first step of a series whose smoothed variances are lost beside its filtered ones while its predicted
    covariances are nearly singular: these kernels have no form for it.
    """
    states = tuple(a if a.flags.c_contiguous else a.copy() for a in (m, P))
    return _launch_for(arguments, scan, options).smoothed(states)


def two_filter_blocks(arguments: tuple[Any, ...], scan: str | Sengupta, **options: Any) -> tuple[Any, ...]:
    """What `filter_blocks` returns, and smoothed states by a scan from the end over the same elements.

    NaN for series whose elements do not exist.
    """
    run = _launch_for(arguments, scan, options)
    rows = run.elements()
    filtered = run.filtered(rows)
    out = run.workspace(False)
    suffixes = run.scanned("combine_filter_elements", rows, reverse=True) if run.n_chunks > 1 else NULL
    run.over_chunks("chunk_two_filters", suffixes, NULL, *filtered[:2], *out)
    return *filtered, *out


class BlockTimeRange:
    """A range of the steps of one series on its device, for `time_ranges`; `prior` is None where an earlier range sends
    it. Several ranges of equally many steps are the series of `arrays`."""

    def __init__(
        self, arrays: tuple[Any, ...], prior: Any, predict_first: bool, nx: int, chunk: int | None, states: Any = None
    ) -> None:
        *parts, y = arrays
        self.y, (n, n_steps, _) = y, y.shape
        self.prior = (empty_on(y, n, nx), empty_on(y, n, nx, nx)) if prior is None else prior
        chunk = chunk or chunk_of(nx, y.shape[-1], y.dtype.itemsize, 1, n_steps)
        self.run = _BlockLaunch((*parts, y, *self.prior, predict_first), chunk, SCAN, {})
        self.information, self.end = (
            empty_on(y, nx + nx * nx),
            (empty_on(y, 1, nx), empty_on(y, 1, nx, nx)),
        )
        self.states = states or (*self.run.workspace(True), *self.run.workspace(False))
        self.sum = empty_float64_on(y, n)

    def filter(self, which: Pass) -> None:
        """Reduce the range to one element, or run the filter from the state before it, see `Pass`."""
        if which != Pass.REPLAY:
            self.rows = self.run.elements(which == Pass.REDUCE)
            self.prefixes = self.run.scanned("combine_filter_elements", self.rows)
            return
        self.run.over_chunks("chunk_states", self.prefixes, np.int32(1), np.int32(0), *self.states[:3])
        self.sum = self.run.sums(self.states[2])

    def send_state(self, later: BlockTimeRange) -> None:
        """Send the state after this range to the next one."""
        self.run.launch("state_after_range", 1, self.prefixes[-1], *self.prior, *self.end)
        for end, start in zip(self.end, later.prior, strict=True):
            copy_between_devices(end, start)

    def send_information(self, later: Any, earlier: BlockTimeRange) -> None:
        """Send the information of this range and all later ones on the state before it to the range before."""
        out = empty_on(self.y, self.information.shape[0])
        self.run.launch("information_before_range", 1, self.prefixes[-1], later, out)
        copy_between_devices(out, earlier.information)

    def elements(self, out: Any) -> None:
        """Write the element of each range into a row of `out`."""
        out[...] = self.prefixes[-1]

    def combine_information(self, later: Any) -> None:
        """The smoothed states of each range."""
        suffixes = self.run.scanned("combine_filter_elements", self.rows, reverse=True)
        mean, covariance, _, *smooth = self.states
        self.run.over_chunks("chunk_two_filters", suffixes, later, mean, covariance, *smooth)
