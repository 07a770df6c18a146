"""Memory for large arrays that is used again: fresh pages cost more than the work done on them.

The first write to memory newly allocated by the system runs at a fraction of the bandwidth, and NumPy gives
large arrays back to the system when they are freed. `empty` keeps freed memory, in pieces of a few sizes, for the next
array of about the same size, up to `LIMIT` bytes; `release_memory` gives it all back.
"""

from __future__ import annotations

import ctypes
import math
import os
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._typing import Array

__all__ = ["Workspace", "empty", "empty_like", "release_memory"]

LINE = 64
SMALLEST = 1 << 16
"""Bytes below which an array is left to NumPy; the C library gives larger memory back to the system."""

LIMIT = min(4 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)
"""Bytes of freed arrays that are kept, at most."""

Piece = tuple[np.ndarray, int, int]
"""Memory, its first byte that starts a cache line, and the address of that."""

_spare: dict[int, list[Piece]] = {}  # by size; single operations are atomic: finalizers run in any thread


def _address(raw: np.ndarray) -> int:
    """Where an array that may be written starts; a fourth of the time of ``raw.ctypes.data``."""
    return ctypes.addressof(ctypes.c_char.from_buffer(raw.data))


class _Block:
    """The owner of one piece of memory; when the last array on it is freed, the memory joins the free list."""

    def __init__(self, piece: Piece, shape: tuple[int, ...], kind: str) -> None:
        self.piece = piece
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": kind, "data": (piece[2], False)}

    def __del__(self) -> None:
        keep = _keep
        if keep is not None and _spare is not None:  # else the interpreter ends: the names of this module are gone
            keep(self.piece)


def _keep(piece: Piece) -> None:
    """Put memory that is free into the list, as far as it has room."""
    size = total = piece[0].nbytes
    for each, pieces in list(_spare.items()):
        total += each * len(pieces)
    if total <= LIMIT:
        _spare.setdefault(size, []).append(piece)


def _piece(n_bytes: int) -> Piece:
    """Memory of at least `n_bytes` from a cache line on, at most an eighth more: a free piece or a new one."""
    n_bytes += LINE
    step = max(n_bytes.bit_length() - 4, 0)
    size = -(-n_bytes >> step) << step
    try:
        return _spare[size].pop()
    except (KeyError, IndexError):  # none is free
        pass
    try:
        raw = np.empty(size, np.uint8)
    except MemoryError:
        release_memory()
        raw = np.empty(size, np.uint8)
    address = _address(raw)
    first = -address % LINE
    return raw, first, address + first


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Like ``numpy.empty``, but the first element starts a cache line, so that no SIMD load straddles two."""
    dtype = np.dtype(dtype)
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes < SMALLEST:
        raw = np.empty(n_bytes + LINE, np.uint8)
        return np.ndarray(shape, dtype, raw, -_address(raw) % LINE)
    piece = _piece(n_bytes)
    if dtype.kind not in "biufc":
        return np.asarray(_Block(piece, (n_bytes,), "|u1")).view(dtype).reshape(shape)
    return np.asarray(_Block(piece, shape, dtype.str))


class Workspace:
    """Lend memory like that of `empty` to a block of code; no array on it is used after the block.

    A class of its own: that of `contextlib.contextmanager` takes seven more calls, in solves of 50 us.
    """

    __slots__ = ("array", "piece")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        dtype = np.dtype(dtype)
        self.piece = _piece(math.prod(shape) * dtype.itemsize)
        self.array = np.ndarray(shape, dtype, self.piece[0], self.piece[1])

    def __enter__(self) -> np.ndarray:
        return self.array

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            _keep(self.piece)


def empty_like(array: Array, shape: tuple[int, ...] | None = None, dtype: Any = None) -> Array:
    """Unwritten memory in the library and on the device of `array`; its shape and type where none is given."""
    shape, dtype = array.shape if shape is None else shape, array.dtype if dtype is None else dtype
    if isinstance(array, np.ndarray):
        return empty(shape, dtype)
    return array_namespace(array).empty(shape, dtype=dtype)


def release_memory() -> None:
    """Give the memory of freed arrays back to the system."""
    _spare.clear()
