"""Running sums and products along rows, and the places of extremes: all samples side by side, row after row.

NumPy goes along the rows of one sample after the other, whose numbers lie apart.

Bytes (rows of n numbers of S samples, of 8 bytes each): ``16 n S`` for running sums, ``8 n S`` for places.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile.allocation import new
from ensemble._compile.lanes.arithmetic import any_lane
from ensemble._compile.lanes.types import load, select, store
from ensemble._compile.numba import compiled_procedure, inner

__all__ = ["LANES", "extreme_places", "running"]

LANES = 8
"""Numbers of a register; the fewest samples of `extreme_places`."""

BLOCK = 32
"""Numbers of a sample that are looked through together."""


@functools.cache
def _running(product: bool) -> Any:
    @compiled_procedure
    def loop(x, out, n_rows, n, width):
        whole = width - width % LANES
        for row in range(n_rows):
            base = row * n * width
            for i in range(width):
                out[base + i] = x[base + i]
            for k in range(1, n):
                at = base + k * width
                for i in range(at, at + whole, LANES):
                    last, now = load(out, i - width, LANES), load(x, i, LANES)
                    store(out, i, last * now if product else last + now)
                for i in range(at + whole, at + width):
                    out[i] = out[i - width] * x[i] if product else out[i - width] + x[i]

    return loop


def running(x: np.ndarray, out: np.ndarray, product: bool) -> np.ndarray:
    """The running sums, or products, of `x` along its second axis.

    Parameters
    ----------
    x, out : arrays, shape (n_rows, n, n_samples), in C order, of one type, float32 or float64
        `out` is overwritten; n is positive.
    product : bool
    """
    n_rows, n, width = x.shape
    _running(product)(x.reshape(-1), out.reshape(-1), n_rows, n, width)
    return out


@inner
def _exceeds(value, best, largest):
    """Whether a number takes the place of the best one so far: the first NaN does, and stays."""
    return best == best and not (value <= best if largest else value >= best)


@functools.cache
def _places(largest: bool) -> Any:
    """The loop over blocks of numbers: where a block has a better one, its numbers are looked at one by one."""

    @compiled_procedure
    def loop(x, out, n_rows, n, width):
        best = new(width, x.dtype)
        for row in range(n_rows):
            base, to = row * n * width, row * width
            for i in range(width):
                best[i] = x[base + i]
                out[to + i] = 0
            for begin in range(0, n, BLOCK):
                end = min(begin + BLOCK, n)
                for tile in range(0, width, LANES):
                    first = min(tile, width - LANES)  # the last tile has samples again that another one had
                    old = load(best, first, LANES)
                    now, odd = old, old != old
                    for at in range(base + begin * width + first, base + end * width, width):
                        value = load(x, at, LANES)
                        now = select(value > now if largest else value < now, value, now)
                        odd = odd | (value != value)
                    if any_lane(((now != old) | odd) & (old == old)):
                        for i in range(first, first + LANES):
                            for k in range(begin, end):
                                number = x[base + k * width + i]
                                if _exceeds(number, best[i], largest):
                                    best[i] = number
                                    out[to + i] = k

    return loop


def extreme_places(x: np.ndarray, out: np.ndarray, largest: bool) -> np.ndarray:
    """Where the largest, or smallest, number of `x` first stands along its second axis; NaN counts as one.

    Parameters
    ----------
    x : array, shape (n_rows, n, n_samples), in C order, float32 or float64, n positive,
        n_samples at least `LANES`
    out : array of int64, shape (n_rows, n_samples)
        Overwritten.
    largest : bool
    """
    n_rows, n, width = x.shape
    _places(largest)(x.reshape(-1), out.reshape(-1), n_rows, n, width)
    return out
