"""The one import of CuPy for kernels: memory of a CUDA device, what it has, and compiled modules."""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from ensemble._typing import Array

__all__ = [
    "address",
    "current_device",
    "device_array",
    "device_empties",
    "device_empty",
    "device_of",
    "has_copy_engine",
    "in_thread",
    "is_on_device",
    "lanes_of",
    "multiprocessors",
    "multiprocessors_of",
    "note_uses",
    "ordered_matrix_units",
    "raw_module",
    "release_device_memory",
    "uses_of_launches",
]

BLOCKS = 2
"""Blocks for each multiprocessor, below which blocks with fewer samples each serve better."""

SHARED_BYTES = 1 << 22
"""Bytes up to which arrays that are allocated in one call share one allocation: it is freed with the last of them."""


def device_array(values: np.ndarray) -> Array:
    """A copy of `values` on the current CUDA device."""
    import cupy

    return cupy.asarray(values)


def device_empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """An uninitialised array on the current CUDA device."""
    import cupy

    return cupy.ndarray(shape, dtype)


def device_empties(arrays: tuple[tuple[tuple[int, ...], np.dtype], ...]) -> list[Any]:
    """Uninitialised arrays of these shapes and dtypes on the current CUDA device: small ones share one allocation."""
    import cupy

    starts, n_bytes = _starts(arrays)
    if n_bytes > SHARED_BYTES:
        return [cupy.ndarray(shape, dtype) for shape, dtype in arrays]
    memory = cupy.cuda.alloc(n_bytes)
    return [cupy.ndarray(shape, dtype, memory + start) for (shape, dtype), start in zip(arrays, starts, strict=True)]


@functools.lru_cache(maxsize=256)
def _starts(arrays: tuple[tuple[tuple[int, ...], np.dtype], ...]) -> tuple[list[int], int]:
    """The offset of each array in one allocation, and its size in bytes."""
    starts, at = [], 0
    for shape, dtype in arrays:
        starts.append(at)
        at += -(-math.prod(shape) * dtype.itemsize // 512) * 512
    return starts, at


def release_device_memory() -> None:
    """Give memory that CuPy keeps for reuse back to the current CUDA device."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


def multiprocessors() -> int:
    """How many multiprocessors the current CUDA device has."""
    import cupy

    return int(cupy.cuda.Device().attributes["MultiProcessorCount"])


def multiprocessors_of(array: Array) -> int:
    """How many multiprocessors the current CUDA device has; the emulator of CUDA has one."""
    return multiprocessors() if is_on_device(array) else 1


def has_copy_engine(array: Array) -> bool:
    """Whether the current CUDA device, or the emulator, copies whole pieces of memory to shared memory by itself."""
    return not is_on_device(array) or _capability(current_device()) >= 90


@functools.cache
def _capability(device: int) -> int:
    import cupy

    return int(cupy.cuda.Device(device).compute_capability)


def lanes_of(n_samples: int, n_blocks: int, array: Array, narrowest: int = 4) -> int:
    """Samples of a block whose threads share the rows, where each tile of samples has `n_blocks`.

    As many as keep all multiprocessors at work, 32 at most.
    """
    wanted = BLOCKS * multiprocessors_of(array)
    lanes = 32
    while lanes > narrowest and n_blocks * -(-n_samples // lanes) < wanted:
        lanes //= 2
    while lanes > 1 and lanes // 2 >= n_samples:
        lanes //= 2
    return lanes


def ordered_matrix_units() -> int:
    """How many multiprocessors of the current CUDA device have matrix units for doubles that add one after another.

    None where that was not checked: it was, over random numbers of all magnitudes, on compute capability 9.0.
    """
    return multiprocessors() if _capability(current_device()) == 90 else 0


def is_on_device(array: Array) -> bool:
    """Whether an array's memory is that of a CUDA device."""
    return hasattr(array.data, "ptr")


def device_of(array: Array) -> int | None:
    """The current CUDA device, for keys of copies beside `array`; None where its memory is not that of a device."""
    return current_device() if is_on_device(array) else None


def address(array: Array) -> int:
    """The address of the first element, in memory of the device or, where the emulator of CUDA is used, of the host."""
    return int(array.data.ptr if is_on_device(array) else array.ctypes.data)


def current_device() -> int:
    """The number of the CUDA device that launches go to."""
    import cupy

    return int(cupy.cuda.runtime.getDevice())


_launched = threading.local()
"""``uses``: the list that launches and messages of this thread add what they use to, while a graph is recorded."""


@contextmanager
def uses_of_launches() -> Iterator[list[Any]]:
    """Collect the arrays that the launches of this thread are given, and what its messages go by."""
    found: list[Any] = []
    _launched.uses = found
    try:
        yield found
    finally:
        del _launched.uses


def note_uses(*values: Any) -> None:
    """Add what a launch or message uses to the list of `uses_of_launches`, if there is one; numbers are left out."""
    found = getattr(_launched, "uses", None)
    if found is not None:
        found.extend(value for value in values if not isinstance(value, np.generic | int | float))


def raw_module(source: str, options: tuple[str, ...], instances: tuple[str, ...] | None = None) -> Any:
    """CUDA C++ compiled by CuPy, templates for `instances`; it keeps the machine code on disk."""
    import cupy

    return cupy.RawModule(code=source, options=options, name_expressions=instances)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "ensemble-cuda")


def in_thread(task: Callable[[], Any]) -> Future[Any]:
    """Start `task` in a thread of its own, on the current CUDA device."""
    import cupy

    device = cupy.cuda.Device()

    def on_device() -> Any:
        with device:
            return task()

    return _pool().submit(on_device)
