"""Residuals and corrections of solutions that are sums of two numbers, for samples side by side.

Sums and products keep what rounding leaves, so that a residual has the digits of about twice the precision [1]_.

Bytes that must move, float64: ``8 S (nnz + 4 n)`` for a residual and ``40 S n`` for a correction.

.. [1] Ogita, Rump, Oishi (2005), SIAM J. Sci. Comput. 26, 1955-1988.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ensemble._compile.kept_memory import empty
from ensemble._compile.lanes.arithmetic import absolute, any_lane, fma
from ensemble._compile.lanes.types import load, select, splat, store, zeros
from ensemble._compile.numba import compiled, inner, per_width, prange

__all__ = ["corrected", "extended_residual"]

WIDTHS = (8, 1)
"""Samples of a tile; the last ones go one by one."""

LEAST, MOST = 1e-250, 1e250
"""Sums of magnitudes between which no error of a product leaves the range of numbers."""

MARGIN, TINY = 16.0, 2.0**-100
"""A solution is taken to be as far from the exact one as this many corrections and this share of itself."""

U = np.uint64  # an unsigned index needs no test for a negative one


@inner
def _two_sum(a, b):
    """The rounded sum, and what rounding left."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


@per_width
def _residual(width, shared):
    @compiled
    def loop(indptr, indices, values, x, low, b, r, odd, n_samples, begin, n_tiles):
        for tile in prange(n_tiles):
            nothing, first = zeros(x, width), begin + np.int64(tile) * width
            one, mark = splat(1.0, x, nothing), nothing
            for i in range(indptr.size - 1):
                total, rest = load(b, i * n_samples + first, nothing), nothing
                size = absolute(total)
                for k in range(U(indptr[i]), U(indptr[i + 1])):
                    if shared:
                        entry = splat(values[k], values, nothing)
                    else:
                        entry = load(values, np.int64(k) * n_samples + first, nothing)
                    place = np.int64(indices[k]) * n_samples + first
                    part = load(x, place, nothing)
                    product = nothing - entry * part
                    total, left = _two_sum(total, product)
                    size = size + absolute(product)
                    rest = rest + (left - fma(entry, load(low, place, nothing), fma(entry, part, product)))
                store(r, i * n_samples + first, total + rest)
                inside = select(size > LEAST, select(size < MOST, nothing, one), one)
                mark = select(size == 0.0, mark, select(inside > nothing, one, mark))
            store(odd, first, mark)

    return loop


@per_width
def _corrected(width, bounded):
    @compiled
    def loop(x, low, change, floors, ratios, doubts, n_samples, begin, n_tiles):
        for tile in prange(n_tiles):
            nothing, first = zeros(x, width), begin + np.int64(tile) * width
            one, largest, check, doubt = splat(1.0, x, nothing), nothing, nothing, nothing
            for i in range(x.size // n_samples):
                place = i * n_samples + first
                own = load(change, place, nothing)
                high, left = _two_sum(load(x, place, nothing), own)
                high, rest = _two_sum(high, load(low, place, nothing) + left)
                store(x, place, high)
                store(low, place, rest)
                own, size = absolute(own), absolute(high)
                check = check + (own - own)
                if bounded:
                    own = select(size > load(floors, place, nothing), own, nothing)
                if any_lane(own > largest * size):
                    ratio = select(own > largest * size, own / size, nothing)
                    largest = select(ratio > largest, ratio, largest)
                margin = MARGIN * own + TINY * size
                same = select(high + (rest + margin) == high, nothing, one)
                doubt = select(high + (rest - margin) == high, select(same > nothing, one, doubt), one)
            store(ratios, first, largest + check)
            store(doubts, first, doubt)

    return loop


def _tiles(n_samples: int) -> Iterator[tuple[int, int, int]]:
    """Cut the samples into runs of tiles: width, first sample and number of tiles of each."""
    first = 0
    for width in WIDTHS:
        count = (n_samples - first) // width
        if count:
            yield width, first, count
        first += count * width


def extended_residual(
    indptr: Any, indices: Any, values: np.ndarray, x: np.ndarray, low: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """b - A (x + low), rounded once, for many samples; where errors of products may have been lost, marks per sample.

    Parameters
    ----------
    indptr, indices, values : arrays
        Values of float64, shape (nnz, n_samples), or (nnz, 1) for all samples.
    x, low, b : arrays of float64, shape (n, n_samples)

    Returns
    -------
    r : array, shape (n, n_samples)
    odd : array of bool, shape (n_samples,)
        True also where a number is not finite.
    """
    n_samples = x.shape[1]
    r, odd = empty(x.shape, x.dtype), np.empty(n_samples)
    with np.errstate(all="ignore"):
        for width, first, n_tiles in _tiles(n_samples):
            _residual(width, values.shape[1] != n_samples)(
                indptr, indices, values.reshape(-1), x.reshape(-1), low.reshape(-1), b.reshape(-1), r.reshape(-1), odd,
                n_samples, first, n_tiles,
            )  # fmt: skip
    return r, odd != 0.0


def corrected(
    x: np.ndarray, low: np.ndarray, change: np.ndarray, floors: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Add a correction to ``x + low`` in place, so that x is the sum rounded once; all of shape (n, n_samples).

    Components of magnitudes up to `floors` count neither for ratios nor for doubts.

    Returns
    -------
    ratios : array, shape (n_samples,)
        The largest correction of a component over the component; NaN where a number is not finite.
    doubts : array of bool, shape (n_samples,)
        True where x may round otherwise when the sum changes by `MARGIN` of the correction.
    """
    n_samples = x.shape[1]
    ratios, doubts = np.empty((2, n_samples))
    with np.errstate(all="ignore"):
        for width, first, n_tiles in _tiles(n_samples):
            _corrected(width, floors is not None)(
                x.reshape(-1), low.reshape(-1), change.reshape(-1), (x if floors is None else floors).reshape(-1),
                ratios, doubts, n_samples, first, n_tiles,
            )  # fmt: skip
    return ratios, doubts != 0.0
