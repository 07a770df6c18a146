"""How the operands of an elementwise kernel lie in memory, worked out once for each set of shapes and strides."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["CHUNK", "FLAT", "LINES", "SPREAD", "Layout", "flattened", "layout_of"]

CHUNK = 1024
"""Elements that are computed at a time: a buffer of float64 is 8 KiB."""

LONG_CHUNK, LONG_FROM = 8192, 1 << 20
"""The same where no operand needs a buffer, and from how many elements of the result on."""

LINES = 64
"""Elements that fill whole cache lines, whatever their dtype: a chunk of a multiple of them can be streamed."""

FLAT, SPREAD = 0, 1
"""Modes of an operand: it lies in memory like the result, or it broadcasts."""

Place = tuple[tuple[int, ...], tuple[int, ...], int]
"""Shape, strides in bytes and itemsize of an array."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each element of the result finds its operands."""

    shape: tuple[int, ...]
    size: int
    axes: tuple[int, ...]  # the shape with neighbouring axes joined where every operand allows it
    strides: tuple[tuple[int, ...], ...]  # of each operand on `axes`, in elements
    plan: np.ndarray
    """The same for a compiled kernel: see `_elementwise`."""
    forms: tuple[str, ...]  # how each operand becomes a flat array: "flat", "strided" or "copy"


@functools.lru_cache(maxsize=512)
def layout_of(places: tuple[Place, ...]) -> Layout:
    """The layout of operands that broadcast; ValueError where they do not."""
    shape: tuple[int, ...] = np.broadcast_shapes(*(place[0] for place in places))
    forms = tuple(_form(place) for place in places)
    rows = [_strides(place, form, shape) for place, form in zip(places, forms, strict=True)]
    axes: list[int] = []
    joined: list[list[int]] = [[] for _ in rows]
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        if axes and all(done[-1] == row[axis] * length for done, row in zip(joined, rows, strict=True)):
            axes[-1] *= length
            for done, row in zip(joined, rows, strict=True):
                done[-1] = row[axis]
        else:
            axes.append(length)
            for done, row in zip(joined, rows, strict=True):
                done.append(row[axis])
    if not axes:
        axes, joined = [1], [[1] for _ in rows]
    plan = np.zeros((len(rows) + 2, len(axes) + 1), np.int64)
    plan[0] = (len(axes), *axes)
    contiguous = [math.prod(axes[k + 1 :]) for k in range(len(axes))]
    for k, row in enumerate(joined):
        plan[k + 1] = (FLAT if row == contiguous else SPREAD, *row)
    plan[-1, 0] = LONG_CHUNK if (plan[1:-1, 0] == FLAT).all() and math.prod(shape) > LONG_FROM else _chunk(axes)
    return Layout(shape, math.prod(shape), tuple(axes), tuple(tuple(row) for row in joined), plan, forms)


def _chunk(axes: Sequence[int]) -> int:
    """Elements that are computed at a time: whole rows and whole cache lines where they fit."""
    inner = axes[-1]
    if not 0 < inner <= CHUNK:
        return CHUNK
    rows = CHUNK // inner
    whole = LINES // math.gcd(LINES, inner)
    return inner * (rows - rows % whole if rows >= whole else rows)


def _form(place: Place) -> str:
    shape, strides, itemsize = place
    if _contiguous(shape, itemsize) == tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True)):
        return "flat"
    valid = all(stride >= 0 and stride % itemsize == 0 for stride, n in zip(strides, shape, strict=True) if n > 1)
    return "strided" if valid and 0 not in shape else "copy"


def _contiguous(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides of an array in C order; zero along axes of one entry."""
    return tuple(0 if n == 1 else itemsize * math.prod(shape[k + 1 :]) for k, n in enumerate(shape))


def _strides(place: Place, form: str, shape: tuple[int, ...]) -> list[int]:
    own, strides, itemsize = place
    if form != "strided":
        strides = _contiguous(own, itemsize)
    steps = [0 if n == 1 else stride // itemsize for n, stride in zip(own, strides, strict=True)]
    return [0] * (len(shape) - len(own)) + steps


def flattened(array: np.ndarray, form: str) -> np.ndarray:
    """Return an array of one axis with the elements of `array` from its first on, writable: its memory, or a copy."""
    if form == "copy":
        return np.array(array, order="C").reshape(-1)
    if form == "flat":
        run = array.reshape(-1)
    else:
        extent = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize
        run = np.lib.stride_tricks.as_strided(array, (extent,), (array.itemsize,))
    return run if run.flags.writeable else run.copy()  # compiled code takes no read-only arrays
