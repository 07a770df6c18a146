"""Units of columns and rows of each sample in which these have sums of magnitudes of about one.

Bytes that must move, float64: ``8 S nnz``, read `SWEEPS` times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.kept_memory import empty
from ensemble._compile.lanes.arithmetic import absolute, bits, from_bits
from ensemble._compile.lanes.types import load, select, splat, store, zeros
from ensemble._compile.numba import compiled, inner, per_width, prange, tiles

__all__ = ["SWEEPS", "Units", "inverse_of", "print_of", "prints_of", "units_of"]

WIDEST = 32
"""Samples of a tile."""

SWEEPS = 3
"""Sweeps over rows and columns. More bring samples that differ by units closer to each other, and take longer.

Measured again by `benchmarks direct`.
"""

FIRST_GUESS = 0x7FDE623822FC16E6
"""The bits of 1 / x are these less those of x, up to a share of 5 %; each of two Newton steps squares that."""

LEAST, MOST = 1e-300, 1e300
"""Sums outside of which are taken for these."""

MANTISSA, ONE = 0x000FFFFFFFFFFFFF, 0x3FF0000000000000
"""The bits behind a number's exponent, and the number one."""

FOLD = 20
"""Places by which the upper bits of a sum are moved down: exponents lie there, which `MANTISSA` would hide."""


class Units(NamedTuple):
    """What the entries of each column and row are multiplied by, shape (n, n_samples), and marks of samples."""

    columns: np.ndarray
    rows: np.ndarray
    odd: np.ndarray
    """One for a sample with other zeros than `dropped` says, NaN where a value is not finite, shape (n_samples,)."""
    prints: np.ndarray
    """A number made of the bits of the values, by which a change of one is seen, shape (n_samples,)."""


@inner
def inverse_of(x, one):
    """1 / x up to a share of 7e-6, and 1 of zero: a division takes eight times as long."""
    x = select(x > 0.0, x, one)
    x = select(x > LEAST, select(x < MOST, x, MOST), LEAST)
    y = from_bits(FIRST_GUESS - bits(x))
    y = y * (2.0 - x * y)
    return y * (2.0 - x * y)


@inner
def print_of(sum_of_bits):
    """A number from 1 to 2 that changes with the sum of the bits of a sample's values."""
    return from_bits(((sum_of_bits + (sum_of_bits >> FOLD)) & MANTISSA) | ONE)


def prints_of(values: np.ndarray) -> np.ndarray:
    """`print_of` of each sample of values of float64, shape (nnz, n_samples); shape (n_samples,)."""
    sums = np.ascontiguousarray(values).view(np.int64).sum(axis=0)
    found: np.ndarray = (((sums + (sums >> FOLD)) & MANTISSA) | ONE).view(np.float64)
    return found


@per_width
def _units(width):
    @compiled
    def loop(indptr, indices, places, dropped, values, columns, rows, odd, prints, work, n_samples, begin, n_tiles):
        for tile in prange(n_tiles):
            first = begin + np.int64(tile) * width
            nothing = zeros(values, width)
            one, n = splat(1.0, values, nothing), indptr.size - 1
            base, mark, sum_of_bits = np.int64(tile) * 2 * n * width, nothing, bits(nothing)
            sums = base + n * width
            for j in range(n):
                store(work, base + j * width, one)
                store(work, sums + j * width, nothing)
            for k in range(dropped.size):
                entry = load(values, np.int64(dropped[k]) * n_samples + first, nothing)
                mark = select(entry != nothing, one, mark) + (entry - entry)
            for sweep in range(SWEEPS):
                for i in range(n):
                    total = nothing
                    for k in range(indptr[i], indptr[i + 1]):
                        entry = load(values, np.int64(places[k]) * n_samples + first, nothing)
                        if sweep == 0:
                            sum_of_bits = sum_of_bits + bits(entry)
                        entry = absolute(entry)
                        if sweep == 0:
                            mark = select(entry == nothing, one, mark) + (entry - entry)
                            total = total + entry
                        else:
                            total = total + entry * load(work, base + np.int64(indices[k]) * width, nothing)
                    unit = inverse_of(total, one)
                    store(rows, i * n_samples + first, unit)
                    for k in range(indptr[i], indptr[i + 1]):
                        to = sums + np.int64(indices[k]) * width
                        entry = absolute(load(values, np.int64(places[k]) * n_samples + first, nothing))
                        store(work, to, load(work, to, nothing) + entry * unit)
                for j in range(n):
                    store(work, base + j * width, inverse_of(load(work, sums + j * width, nothing), one))
                    store(work, sums + j * width, nothing)
            for j in range(n):
                store(columns, j * n_samples + first, load(work, base + j * width, nothing))
            store(odd, first, mark)
            store(prints, first, print_of(sum_of_bits))

    return loop


def units_of(indptr: Any, indices: Any, places: Any, dropped: Any, values: np.ndarray) -> Units:
    """Units of the columns of square matrices that do not depend on those that a user chose [1]_.

    Parameters
    ----------
    indptr, indices : arrays of int
        The graph of the entries that are kept.
    places, dropped : arrays of int
        Where `values` has these entries, and those that are left out because they are zero.
    values : array of float64, shape (nnz, n_samples)

    References
    ----------
    .. [1] Sinkhorn, Knopp (1967), Pacific J. Math. 21, 343-348: what the sweeps converge to is independent of units.
    """
    n_samples, n = values.shape[1], indptr.size - 1
    columns, rows = empty((n, n_samples), values.dtype), empty((n, n_samples), values.dtype)
    odd, prints = np.empty((2, n_samples), values.dtype)
    for first, width in tiles(n_samples, WIDEST):
        work = empty((2 * n * width,), values.dtype)
        _units(width)(
            indptr, indices, places, dropped, values.reshape(-1), columns.reshape(-1), rows.reshape(-1), odd, prints,
            work, n_samples, first, 1,
        )  # fmt: skip
    return Units(columns, rows, odd, prints)
