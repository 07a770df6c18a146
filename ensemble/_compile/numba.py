"""The one import of Numba: how kernels are compiled for the CPU, and how samples are cut into SIMD tiles.

Rules that make every sample of an ensemble equal to its own scalar run, to the bit:

* no ``fastmath``: no reassociation and no contraction to FMA, in any width;
* sums over rows run in fixed blocks of `ROW_BLOCK` rows that depend on nothing but the number of rows, and the
  blocks are added in order, whatever the number of threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numba
import numpy as np
from numba import prange

from ensemble._compile.kept_memory import empty
from ensemble._compile.kernel_cache import Shielded, cached, cached_c_function
from ensemble._compile.numba_private import found, thread_counter
from ensemble._compile.versions import warn_of_newer
from ensemble._compile.work_sharing import (
    SMALL,
    WorkSharing,
    any_is_large,
    one_thread,
    procedure,
    work_sharing,
)
from ensemble._interrupts import apart

__all__ = [
    "ROW_BLOCK",
    "SMALL",
    "WIDTHS",
    "array_at",
    "c_function",
    "compile_for",
    "compiled",
    "compiled_arrays",
    "compiled_procedure",
    "compiled_regions",
    "compiled_serial",
    "compiled_unrolled",
    "empty",
    "heard",
    "inner",
    "one_thread",
    "output",
    "per_width",
    "prange",
    "procedure_unrolled",
    "spliced",
    "streams",
    "thread_count",
    "threads_for",
    "tiles",
    "widest",
]

ROW_BLOCK = 512
"""Rows that one partial sum covers."""

STREAMED = 1 << 25
"""Bytes above which an output outgrows the caches, so that reading its lines before writing them is a waste."""

WIDTHS = (64, 32, 16, 8, 4, 2, 1)
"""Samples that one pass over the data may carry in registers."""

OPTIONS: dict[str, Any] = {"error_model": "numpy"}

compiled: Any = functools.partial(work_sharing, nogil=True, no_cfunc_wrapper=True, **OPTIONS)
"""Compile a function that ends in a loop ``for i in prange(n)`` over threads; the machine code is kept on disk."""

compiled_unrolled: Any = functools.partial(compiled, unrolled=True)
"""`compiled`, with short loops that are a sixth slower or more where LLVM does not unroll them."""

compiled_procedure: Any = functools.partial(procedure, nogil=True, no_cfunc_wrapper=True, **OPTIONS)
"""Compile a function that runs on the calling thread and returns nothing or an integer that is not negative."""

procedure_unrolled: Any = functools.partial(compiled_procedure, unrolled=True)
"""`compiled_procedure`, in the same way."""

_serial: Any = functools.partial(numba.njit, nogil=True, no_cfunc_wrapper=True, **OPTIONS)


def compiled_regions(function: Callable[..., Any]) -> Any:
    """Compile a function with `prange` loops anywhere, which takes twice as long; the machine code is kept on disk."""
    return cached(numba.njit(parallel=True, nogil=True, **OPTIONS)(function))


def compiled_serial(function: Callable[..., Any]) -> Any:
    """Compile a function that runs on the calling thread; the machine code is kept on disk."""
    return cached(_serial(function))


class _ReturnsArrays(Shielded):
    """A compiled function whose arrays Numba makes by Python code, in which a handler of a signal may raise.

    Numba goes on, and Python then says "SystemError: ... returned a result with an exception set".
    """

    def __call__(self, *arguments: Any) -> Any:
        try:
            return super().__call__(*arguments)
        except SystemError as error:
            cause: BaseException = error
            while isinstance(cause, SystemError) and cause.__cause__ is not None:
                cause = cause.__cause__
            raise cause from None


def compiled_arrays(function: Callable[..., Any]) -> Any:
    """As `compiled_serial`, for functions that return arrays: KeyboardInterrupt comes out of them as it is."""
    made = compiled_serial(function)
    made.__class__ = _ReturnsArrays
    return made


def compile_for(function: Any, *arguments: Any) -> None:
    """Compile a function of this module for such arguments, without calling it."""
    if isinstance(function, WorkSharing):
        function.prepare(*arguments)
    else:
        function.compile(tuple(numba.typeof(argument) for argument in arguments))


inner: Any = functools.partial(numba.njit, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)
"""Compile a function that ends up inside a generated one, which is kept on disk itself."""

spliced: Any = functools.partial(numba.njit, inline="always", **OPTIONS)
"""A function whose statements become part of each caller, before types are known: it is not compiled by itself."""

array_at: Any = numba.carray
"""``array_at(pointer, shape)``: the array whose first entry a C function was given; it owns nothing."""

c_function: Any = functools.partial(cached_c_function, **OPTIONS)
"""Compile a C function of the given signature; ``address`` is where it lies in this process."""


def _one_thread_after_fork() -> None:
    """In a forked process, run every kernel on the thread that calls it.

    The threads of OpenMP do not exist in the child, and Numba ends a child of GNU OpenMP that starts a parallel region.
    A region of one thread needs none of them: `launch_threads` makes the child the owner of the layer, with one thread
    as the default of all its threads. A layer that had not started before the fork starts in the child as usual, and
    the layers "tbb" and "workqueue" handle a fork themselves.
    """
    try:
        layer = numba.threading_layer()
    except ValueError:
        return
    if layer == "omp":
        launch = found("launch_openmp")
        if launch is not None:
            ctypes.CFUNCTYPE(None, ctypes.c_int)(launch)(1)
        numba.set_num_threads(1)


warn_of_newer()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread_after_fork)


class _FewerCollections(found("listener") or object):  # type: ignore[misc]
    """Fewer collections of garbage during a compilation, which makes millions of objects that live until it ends.

    Collections walk through them for a tenth of its time. Numba compiles one function at a time, others within it.
    """

    OBJECTS = 500_000

    def __init__(self) -> None:
        self.depth, self.threshold = 0, gc.get_threshold()

    def on_start(self, _: Any) -> None:
        if self.depth == 0:
            self.threshold = gc.get_threshold()
            if 0 < self.threshold[0] < self.OBJECTS:
                gc.set_threshold(self.OBJECTS, *self.threshold[1:])
        self.depth += 1

    def on_end(self, _: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            gc.set_threshold(*self.threshold)


if found("register") is not None and found("listener") is not None:
    found("register")("numba:compile", _FewerCollections())


def per_width(make: Callable[..., Any]) -> Callable[..., Any]:
    """Cache what `make(width, ...)` compiled, so that each width is built once, at its first use.

    Calls on small arrays run on the calling thread alone, where starting the thread team costs more than it saves. The
    number of threads changes no bit of any result.
    """

    @functools.cache
    def made(*options: Any) -> Callable[..., Any]:
        loop = make(*options)
        if isinstance(loop, WorkSharing):
            return loop.by_size

        def run(*arguments: Any) -> Any:
            with contextlib.nullcontext() if any_is_large(arguments) else one_thread():
                return loop(*arguments)

        return run

    return made


def threads_for(n_values: int) -> contextlib.AbstractContextManager[None]:
    """One thread for kernels on at most `SMALL` values, all threads for larger ones."""
    return one_thread() if n_values <= SMALL else contextlib.nullcontext()


@functools.cache
def _thread_counter() -> Callable[[], int]:
    numba.get_num_threads()  # starts them
    return thread_counter() or numba.get_num_threads


def thread_count() -> int:
    """Threads that a kernel may use; nothing that it decides may change a bit."""
    return _thread_counter()()


LONG = 1 << 27
"""Multiply-adds of compiled code that may take more than tenths of a second."""

T = TypeVar("T")


def heard(call: Callable[[], T], work: float) -> T:
    """Return what `call` returns; long calls run in another thread, so that Ctrl-C is heard meanwhile (`apart`).

    `work` is the number of multiply-adds, about; a call is long from `LONG` on. It writes new memory alone: after an
    interrupt it goes on to its end.
    """
    if work < LONG or _one_at_a_time():
        return call()
    threads = numba.get_num_threads()

    def on_as_many_threads(_: Callable[[], bool]) -> T:
        numba.set_num_threads(threads)  # each thread has a number of its own
        return call()

    return apart(on_as_many_threads)


def _one_at_a_time() -> bool:
    """Whether Numba's threads end the process where two calls run at a time."""
    try:
        return numba.threading_layer() == "workqueue"
    except ValueError:  # no loop has run on several threads yet
        launch = found("launch_threads")
        if launch is None:
            return True  # not known: one at a time is right with every layer
        launch()
        return numba.threading_layer() == "workqueue"


def tiles(n_samples: int, widest: int = WIDTHS[0]) -> Iterator[tuple[int, int]]:
    """Cut the sample axis into ``(first, width)`` with widths from `WIDTHS` up to `widest`, the widest first."""
    first = 0
    for width in WIDTHS:
        while width <= widest and n_samples - first >= width:
            yield first, width
            first += width


def widest(array: np.ndarray) -> int:
    """The most samples of a tile of these numbers: complex ones fill twice the registers."""
    return WIDTHS[0] if array.dtype.kind != "c" else WIDTHS[0] // 2


def streams(out: np.ndarray) -> bool:
    """Whether `out`, of shape (n, n_samples), is better written past the cache: large, and rows fill whole lines."""
    row = out.shape[1] * out.itemsize
    return out.nbytes > STREAMED and row % 64 == 0 and out.ctypes.data % 64 == 0


def output(out: np.ndarray | None, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """The buffer a kernel writes: the caller's `out`, or a new one where that is None."""
    return empty(shape, dtype) if out is None else out
