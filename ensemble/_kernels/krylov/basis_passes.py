"""Passes over a Krylov basis for a tile of samples: inner products with a vector, and sums of the basis' vectors.

Arrays are flat: row i of vector k of the tile is at ``(k n_rows + i) n_samples + first``. Rows go through by runs that
the first-level cache holds, and every vector of the basis is read once a pass. Sums over rows have the order of the
rows, within blocks that the caller names. `nothing` are zeros as wide as the tile. A single sample has loops of its
own: eight inner products, or eight rows, fill what several samples fill otherwise; `wide` are `ROWS_AT_ONCE` zeros.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.lanes.arithmetic import conjugate_product
from ensemble._compile.lanes.types import load, select, splat, store
from ensemble._compile.numba import inner

__all__ = ["ROWS_AT_ONCE", "RUN", "add", "dots", "squared"]

ROWS_AT_ONCE = 8
"""Rows of one sample that a sum of its vectors takes at once."""

RUN = 1024
"""Numbers of a vector that a pass takes at a time."""

NARROW = 8
"""Samples of a tile up to which four inner products are summed at once: wider ones fill the registers with two."""


@inner(forceinline=True)
def dots_of_two(basis, w, sums, at, apart, n_vectors, n_rows, n_samples, first, start, stop, nothing):
    """`dots` of a wide tile."""
    for k in range(0, n_vectors, 2):
        next_one = min(np.int64(k) + 1, np.int64(n_vectors) - 1)
        vector, beside = np.int64(k) * n_rows * n_samples, next_one * n_rows * n_samples
        to, to_next = at + np.int64(k) * apart, at + next_one * apart
        one, other = load(sums, to, nothing), load(sums, to_next, nothing)
        for i in range(start, stop):
            here = np.int64(i) * n_samples + first
            own = load(w, here, nothing)
            one = one + conjugate_product(load(basis, vector + here, nothing), own)
            other = other + conjugate_product(load(basis, beside + here, nothing), own)
        store(sums, to_next, other)  # the last vector alone is its own neighbour
        store(sums, to, one)


@inner(forceinline=True)
def dots_of_four(basis, w, sums, at, apart, n_vectors, n_rows, n_samples, first, start, stop, nothing):
    """`dots` of a narrow tile."""
    for k in range(0, n_vectors, 4):
        least = np.int64(n_vectors) - 1
        k1, k2, k3 = min(np.int64(k) + 1, least), min(np.int64(k) + 2, least), min(np.int64(k) + 3, least)
        p0, p1 = np.int64(k) * n_rows * n_samples, k1 * n_rows * n_samples
        p2, p3 = k2 * n_rows * n_samples, k3 * n_rows * n_samples
        s0, s1 = load(sums, at + np.int64(k) * apart, nothing), load(sums, at + k1 * apart, nothing)
        s2, s3 = load(sums, at + k2 * apart, nothing), load(sums, at + k3 * apart, nothing)
        for i in range(start, stop):
            here = np.int64(i) * n_samples + first
            own = load(w, here, nothing)
            s0 = s0 + conjugate_product(load(basis, p0 + here, nothing), own)
            s1 = s1 + conjugate_product(load(basis, p1 + here, nothing), own)
            s2 = s2 + conjugate_product(load(basis, p2 + here, nothing), own)
            s3 = s3 + conjugate_product(load(basis, p3 + here, nothing), own)
        store(sums, at + k3 * apart, s3)  # beyond the last vector there are copies of its sum
        store(sums, at + k2 * apart, s2)
        store(sums, at + k1 * apart, s1)
        store(sums, at + np.int64(k) * apart, s0)


@inner(forceinline=True)
def dots_of_eight(basis, w, sums, at, n_vectors, n_rows, start, stop, nothing):
    """`dots` of one sample, whose eight sums do not wait for each other."""
    for k in range(0, n_vectors, 8):
        least = np.int64(n_vectors - 1)
        k1, k2, k3, k4 = min(k + 1, least), min(k + 2, least), min(k + 3, least), min(k + 4, least)
        k5, k6, k7 = min(k + 5, least), min(k + 6, least), min(k + 7, least)
        p0, p1, p2, p3 = np.int64(k) * n_rows, k1 * n_rows, k2 * n_rows, k3 * n_rows
        p4, p5, p6, p7 = k4 * n_rows, k5 * n_rows, k6 * n_rows, k7 * n_rows
        s0, s1 = load(sums, at + k, nothing), load(sums, at + k1, nothing)
        s2, s3 = load(sums, at + k2, nothing), load(sums, at + k3, nothing)
        s4, s5 = load(sums, at + k4, nothing), load(sums, at + k5, nothing)
        s6, s7 = load(sums, at + k6, nothing), load(sums, at + k7, nothing)
        for i in range(start, stop):
            own = load(w, i, nothing)
            s0 = s0 + conjugate_product(load(basis, p0 + i, nothing), own)
            s1 = s1 + conjugate_product(load(basis, p1 + i, nothing), own)
            s2 = s2 + conjugate_product(load(basis, p2 + i, nothing), own)
            s3 = s3 + conjugate_product(load(basis, p3 + i, nothing), own)
            s4 = s4 + conjugate_product(load(basis, p4 + i, nothing), own)
            s5 = s5 + conjugate_product(load(basis, p5 + i, nothing), own)
            s6 = s6 + conjugate_product(load(basis, p6 + i, nothing), own)
            s7 = s7 + conjugate_product(load(basis, p7 + i, nothing), own)
        store(sums, at + k7, s7)
        store(sums, at + k6, s6)
        store(sums, at + k5, s5)
        store(sums, at + k4, s4)
        store(sums, at + k3, s3)
        store(sums, at + k2, s2)
        store(sums, at + k1, s1)
        store(sums, at + k, s0)


@inner(forceinline=True)
def dots(basis, w, sums, at, apart, n_vectors, n_rows, n_samples, first, start, stop, width, alone, nothing):
    """Add inner products with rows `start` to `stop` of w to `sums`, from `at` on, `apart` from each other.

    Complex numbers of the basis are conjugated. `alone`: w has this sample alone.
    """
    for low in range(start, stop, RUN // width):
        high = min(low + RUN // width, stop)
        if alone:
            dots_of_eight(basis, w, sums, at, n_vectors, n_rows, low, high, nothing)
        elif width <= NARROW:
            dots_of_four(basis, w, sums, at, apart, n_vectors, n_rows, n_samples, first, low, high, nothing)
        else:
            dots_of_two(basis, w, sums, at, apart, n_vectors, n_rows, n_samples, first, low, high, nothing)


@inner(forceinline=True)
def factor_of(h, at, alone, like):
    """The coefficient of a vector, in all lanes for one sample alone."""
    if alone:
        factor = splat(h[at], h, like)
    else:
        factor = load(h, at, like)
    return factor


@inner(forceinline=True)
def add_from(h, at, apart, n_vectors, basis, w, length, low, high, step, alone, like):
    """Add the vectors times their factors to numbers `low` to `high` of w, `step` apart, as wide as `like`.

    A factor of zero omits its vector.
    """
    k = np.int64(0)
    while k + 4 <= n_vectors:
        f0, f1 = factor_of(h, at + k * apart, alone, like), factor_of(h, at + (k + 1) * apart, alone, like)
        f2, f3 = factor_of(h, at + (k + 2) * apart, alone, like), factor_of(h, at + (k + 3) * apart, alone, like)
        m0, m1, m2, m3 = f0 != like, f1 != like, f2 != like, f3 != like
        p0 = k * length
        p1, p2, p3 = p0 + length, p0 + 2 * length, p0 + 3 * length
        for i in range(low, high, step):
            old = load(w, i, like)
            old = select(m0, old + f0 * load(basis, p0 + i, like), old)
            old = select(m1, old + f1 * load(basis, p1 + i, like), old)
            old = select(m2, old + f2 * load(basis, p2 + i, like), old)
            store(w, i, select(m3, old + f3 * load(basis, p3 + i, like), old))
        k += 4
    while k < n_vectors:
        factor, p = factor_of(h, at + k * apart, alone, like), k * length
        moves = factor != like
        for i in range(low, high, step):
            old = load(w, i, like)
            store(w, i, select(moves, old + factor * load(basis, p + i, like), old))
        k += 1


@inner(forceinline=True)
def add(h, at, apart, n_vectors, basis, w, n_rows, n_samples, first, start, stop, width, alone, nothing, wide):
    """Add the vectors times their factors, in `h` from `at` on, `apart`, to rows `start` to `stop` of w, one run.

    `alone`: w has this sample alone, and rows go through `ROWS_AT_ONCE` at a time.
    """
    length = np.int64(n_rows) * n_samples
    if alone:
        whole = start + (stop - start) // ROWS_AT_ONCE * ROWS_AT_ONCE
        add_from(h, at, apart, n_vectors, basis, w, length, start, whole, ROWS_AT_ONCE, True, wide)
        add_from(h, at, apart, n_vectors, basis, w, length, whole, stop, 1, True, nothing)
    else:
        low, high = np.int64(start) * n_samples + first, np.int64(stop) * n_samples + first
        add_from(h, at, apart, n_vectors, basis, w, length, low, high, n_samples, False, nothing)


@inner(forceinline=True)
def squared(square, w, n_samples, first, start, stop, nothing):
    """`square` and w . w of rows `start` to `stop`."""
    for i in range(start, stop):
        own = load(w, np.int64(i) * n_samples + first, nothing)
        square = square + conjugate_product(own, own)
    return square
