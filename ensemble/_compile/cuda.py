"""CUDA C++ kernels: the sources of a module, the layout of samples over threads, and launches.

A kernel module is one ``.cu`` file after `types.cuh` and `samples.cuh`. It is compiled once for each layout of samples
(value type, threads per row, samples per thread) and kept on disk by CuPy; the number of samples itself is an argument,
so that a solve that removes finished samples compiles nothing. `compile_ahead` starts compilations in threads: the
compiler of CUDA takes several modules at a time. Launches go to CuPy's current stream and allocate nothing but the
outputs that the caller does not pass.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile import device
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.streams import stream_number
from ensemble._typing import Array

__all__ = [
    "COMMON_TYPES",
    "KERNEL_MODULES",
    "KernelModule",
    "Layout",
    "chunked",
    "compile_ahead",
    "instance",
    "is_wide",
    "layout_of",
    "layout_of_aligned",
    "layout_of_width",
    "output",
    "single_layout",
    "sources",
    "sums",
]

FOLDER = Path(__file__).parents[1]
COMMON_TYPES = "_compile/include/types.cuh"
"""What every source begins with."""

THREADS = 128
VECTOR_BYTES = 16
CHUNK = 64
"""Rows that one partial sum covers."""

SUM_THREADS = (4, 128)
"""A block that adds partial sums: samples by segments, as in samples.cuh."""


def sources(*files: str) -> str:
    """The text of CUDA files, named by their paths in the package."""
    return "\n".join((FOLDER / file).read_text() for file in files)


def instance(template: str, *arguments: Any) -> str:
    """The name of a template's instance; truth values are written as in C++."""
    written = (str(bool(a)).lower() if isinstance(a, bool | np.bool_) else str(a) for a in arguments)
    return f"{template}<{', '.join(written)}>"


KERNEL_MODULES: dict[str, KernelModule] = {}
"""Every module by name; the compile test iterates over this table."""


class Layout(NamedTuple):
    """How the sample axis lies on threads: `tiles` of ``lanes * vector`` samples."""

    real: str
    lanes: int
    vector: int
    tiles: int

    @property
    def is_complex(self) -> bool:
        """Whether numbers are complex."""
        return self.real.startswith("Complex")

    def options(self, offset: str) -> tuple[str, ...]:
        """Options of the compiler; no contraction to FMA, so that results have the bits of the CPU kernels."""
        macros = {"REAL": self.real, "LANES": self.lanes, "VECTOR": self.vector, "OFFSET": offset, "THREADS": THREADS}
        macros |= {"COMPLEX": 1} if self.is_complex else {}
        return ("-std=c++17", "-fmad=false", *(f"-D{name}={value}" for name, value in macros.items()))


def aligned(array: Array) -> Array:
    """`array`, or a copy where it does not begin at a multiple of 16 bytes: for kernels that load so many at once."""
    return array if device.address(array) % VECTOR_BYTES == 0 else array.copy()


def layout_of(n_samples: int, *arrays: Array) -> Layout:
    """The layout for arrays of `n_samples` columns: 16-byte loads where every row of every array allows them."""
    places = 0
    for array in arrays:
        places |= device.address(array)
    dtype = arrays[0].dtype
    return layout_of_aligned(n_samples, dtype.itemsize, places, dtype.kind == "c")


def number_name(itemsize: int, is_complex: bool = False) -> str:
    """CUDA's name of the numbers of `itemsize` bytes."""
    if is_complex:
        return f"Complex<{number_name(itemsize // 2)}>"
    return "double" if itemsize == 8 else "float"


def layout_of_aligned(n_samples: int, itemsize: int, places: int = 0, is_complex: bool = False) -> Layout:
    """The layout of numbers of `itemsize` bytes; `places` are the addresses of all arrays, combined by OR."""
    vector = VECTOR_BYTES // itemsize
    while vector > 1 and (n_samples % vector or places % (vector * itemsize)):
        vector //= 2
    return layout_of_width(number_name(itemsize, is_complex), n_samples, vector)


def single_layout(array: Array) -> Layout:
    """The layout of a kernel that has a thread for each number of `array`."""
    return Layout(number_name(array.dtype.itemsize, array.dtype.kind == "c"), 1, 1, 1)


@functools.cache
def layout_of_width(real: str, n_samples: int, vector: int) -> Layout:
    """The layout of `n_samples` samples, of which a thread carries `vector`."""
    for lanes in (32, 16, 8, 4, 2, 1):
        tiles = -(-n_samples // (lanes * vector))
        if tiles * lanes * vector <= 1.25 * n_samples:  # threads without a sample are idle
            break
    return Layout(real, lanes, vector, tiles)


class KernelModule:
    """The kernels of one ``.cu`` file.

    `name` and `headers` are paths in `_kernels`; `instances` are the names of the kernels, template arguments
    included; `extras` some sets of options that they compile with; `widest` is the number of threads that may carry
    one row, `only` the one layout that the kernels support. The kernels of a module that is `apart` are compiled one by
    one, each at its first launch. `of_complex` are the instances that there are for complex numbers, too.
    """

    def __init__(
        self,
        name: str,
        instances: list[str],
        headers: tuple[str, ...] = (),
        extras: tuple[tuple[str, ...], ...] = ((),),
        widest: int = 32,
        only: Layout | None = None,
        apart: bool = False,
        of_complex: tuple[str, ...] = (),
    ) -> None:
        self.name, self.instances, self.headers, self.extras = name, tuple(instances), headers, extras
        self.widest, self.only, self.apart, self.of_complex = widest, only, apart, of_complex
        self._functions: dict[tuple[Any, ...], Any] = {}
        self._most_shared: dict[int, int] = {}
        self._compiling: dict[tuple[Any, ...], Future[dict[tuple[Any, ...], Any]]] = {}
        KERNEL_MODULES[name] = self

    def layout_of(self, n_samples: int, *arrays: Array) -> Layout:
        """The layout for arrays of `n_samples` columns, no wider than the kernels of this module can be."""
        layout = layout_of(n_samples, *arrays)
        lanes = min(layout.lanes, self.widest)
        return layout._replace(lanes=lanes, tiles=-(-n_samples // (lanes * layout.vector)))

    def source(self) -> str:
        """The source text for the compiler."""
        headers = (f"_kernels/{header}" for header in self.headers)
        return sources(COMMON_TYPES, "_compile/include/samples.cuh", *headers, f"_kernels/{self.name}.cu")

    def function(self, name: str, layout: Layout, wide: bool, extra: tuple[str, ...] = ()) -> Any:
        """A compiled kernel; the first one of a layout compiles the module. `extra` are further options."""
        key = (*layout[:3], wide, extra)
        if (name, *key) not in self._functions:
            if layout.is_complex and name not in self.of_complex:
                raise refused(name)
            wanted = (name,) if self.apart else self.of_complex if layout.is_complex else self.instances
            started = self._compiling.pop((wanted, *key), None)
            self._functions.update(self._compile(wanted, *key) if started is None else started.result())
        return self._functions[name, *key]

    def _compile(
        self, wanted: tuple[str, ...], real: str, lanes: int, vector: int, wide: bool, extra: tuple[str, ...]
    ) -> dict[tuple[Any, ...], Any]:
        options = (*Layout(real, lanes, vector, 0).options("long long" if wide else "int"), *extra)
        module = device.raw_module(self.source(), options, wanted)
        return {(each, real, lanes, vector, wide, extra): module.get_function(each) for each in wanted}

    def compile_ahead(self, layout: Layout, names: tuple[str, ...] = (), extra: tuple[str, ...] = ()) -> None:
        """Start to compile the kernels of a layout in threads; of a module that is `apart`, those in `names`."""
        key = (*layout[:3], False, extra)
        together = self.of_complex if layout.is_complex else self.instances
        for wanted in ((name,) for name in names) if self.apart else (together,):
            if (wanted[0], *key) not in self._functions and (wanted, *key) not in self._compiling:
                task = functools.partial(self._compile, wanted, *key)
                self._compiling[wanted, *key] = device.in_thread(task)

    def launch(
        self, function: str, layout: Layout, grid: tuple[int, ...], threads: Any, arguments: tuple[Any, ...],
        wide: bool = False, extra: tuple[str, ...] = (), shared: int = 0,
    ) -> None:  # fmt: skip
        """Queue one kernel; `wide`: matrix positions are 64-bit. An empty grid does nothing.

        `shared` are the bytes of dynamic shared memory of a block; the first-level cache gets what is left.
        """
        if 0 not in grid:
            block = threads if isinstance(threads, tuple) else (threads,)
            kernel = self.function(function, layout, wide, extra)
            given = tuple([_argument(a, function, layout.is_complex) for a in arguments])
            if shared > self._most_shared.get(id(kernel), 0):
                self._most_shared[id(kernel)] = shared
                kernel.preferred_shared_memory_carveout = 100  # percent
                kernel.max_dynamic_shared_size_bytes = shared
            device.note_uses(*given)
            kernel(grid, block, given, shared_mem=shared)

    def rows(
        self, function: str, n_rows: int, n_samples: int, arguments: tuple[Any, ...], layout: Layout,
        wide: bool = False, extra: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Queue a kernel whose threads carry one row each."""
        blocks = -(-n_rows * layout.lanes // THREADS)
        extent = (np.int64(n_rows), np.int32(n_samples))
        self.launch(function, layout, (blocks, layout.tiles), THREADS, (*arguments, *extent), wide, extra)


def compile_ahead(requests: Iterable[tuple[str, Layout, tuple[str, ...], tuple[str, ...]]]) -> None:
    """Start to compile modules in threads: a module's name, its layout, names of kernels and options of each.

    A launch waits for its own module. Names and options are those of `KernelModule.compile_ahead`.
    """
    for module, layout, names, extra in requests:
        KERNEL_MODULES[module].compile_ahead(layout, names, extra)


def _argument(value: Any, function: str, is_complex: bool) -> Any:
    """An argument of a launch: kernels get bare pointers, so arrays must be contiguous and of their numbers."""
    if value is None:
        return np.uint64(0)
    if hasattr(value, "strides"):
        if not value.flags.c_contiguous:
            raise ValueError(f"kernel: arrays must be contiguous; got strides {value.strides} for shape {value.shape}.")
        if value.dtype.kind == ("f" if is_complex else "c"):
            raise refused(function)
    return value


def refused(function: str) -> TypeError:
    """The error for complex arrays where a kernel reads real ones, or both."""
    return TypeError(f"{function}: arrays on a device must be real; got complex numbers. Use NumPy's arrays.")


def is_wide(indptr: Any) -> bool:
    """Whether positions in a matrix need 64 bits."""
    return indptr.dtype.itemsize == 8


# --- arrays
def output(out: Array, array: Array, shape: tuple[int, ...]) -> Array:
    """The buffer a kernel writes: the caller's `out`, or new memory like `array`."""
    return empty_like(array, shape) if out is None else out


# --- sums over rows
_scratch: dict[tuple[Any, ...], Any] = {}


def scratch(array: Array, size: int) -> Array:
    """Memory for partial sums, one piece for each thread and stream: its users run one after another.

    It is not freed while it is large enough: a captured CUDA graph may still write to it.
    """
    key = (type(array), array.dtype, stream_number(array), threading.get_ident())
    if key not in _scratch or _scratch[key].shape[0] < size:
        _scratch[key] = empty_like(array, (size,))
    return _scratch[key][:size]


def n_chunks(n_rows: int) -> int:
    """Partial sums of a chunked kernel."""
    return -(-n_rows // CHUNK)


def chunked(
    module: KernelModule, function: str, n_rows: int, arguments: tuple[Any, ...], layout: Layout, wide: bool,
    n_samples: int, n_sums: int, as_one: bool = False,
) -> Array:  # fmt: skip
    """Queue a kernel that leaves `n_sums` partial sums a chunk and sample; returns them, shape (n_sums, chunks, S).

    They are the kernel's last arguments before the number of rows and samples, `as_one` array or one for each sum.
    """
    chunks = n_chunks(n_rows)
    floats = next(a for a in arguments if hasattr(a, "dtype") and a.dtype.kind in "fc")
    partials = scratch(floats, n_sums * chunks * n_samples).reshape(n_sums, chunks, n_samples)
    per_block = max(1, 8 // layout.lanes)
    extent = (np.int64(n_rows), np.int32(n_samples))
    grid = (-(-chunks // per_block), layout.tiles)
    threads = 16 * layout.lanes * per_block
    places = (partials,) if as_one else tuple(partials)
    module.launch(function, layout, grid, threads, (*arguments, *places, *extent), wide)
    return partials


def sums(partials: Array) -> Array:
    """The sums over chunks, in their order: shape (n_sums, n_samples)."""
    n_sums, chunks, n_samples = partials.shape
    out = empty_like(partials, (n_sums, n_samples))
    layout = single_layout(partials)
    grid = (-(-n_samples // SUM_THREADS[0]), n_sums)
    arguments = (partials, out, np.int64(chunks), np.int32(n_samples))
    KERNEL_MODULES["sparse/crs"].launch("sum_partials", layout, grid, SUM_THREADS, arguments)
    return out
