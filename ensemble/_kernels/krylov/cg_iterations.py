"""One iteration of conjugate gradients of a tile of samples, see `many_iterations`.

Bytes of an iteration and sample (float64, int32 columns, k entries a row): ``n (8 k + 4 k / width + 4 + 88)``: 5 k
values and columns, p twice and q for the product, q, p, x, r to update x and r, r and p for the direction.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.lanes.types import load, select, store
from ensemble._compile.numba import inner
from ensemble._kernels.krylov.tile_passes import (
    BEST,
    BROKEN,
    CODES,
    COUNTS,
    FRESH,
    GROUP,
    LANES,
    LAST,
    LEAST,
    LEFT,
    NORMS,
    NUMBERS,
    RUNNING,
    dot_of_rows,
    end_sample,
    product_with_dot,
    real,
    set_lane,
    update,
    whole_registers,
)

__all__ = ["CG_ROWS", "RZ", "SQUARE", "STEP", "cg_iteration"]

RZ, SQUARE, STEP = range(3)
"""Rows of the numbers of each sample, real numbers of the vectors' precision: the r . r that led to the last direction,
the present one, the last step length."""

CG_ROWS = 3


@inner(forceinline=True)
def direction_at(i, factor, moving, z, p, like):
    """p = z + factor p from number `i` on, or z where `factor` is zero; nothing where `moving` is zero."""
    new, old = load(z, i, like), load(p, i, like)
    store(p, i, select(moving != like, select(factor != like, new + factor * old, new), old))


@inner(forceinline=True)
def begin_iteration(parts, scalars, first, width):
    """beta of each sample from r . r; which go on."""
    numbers, norms = scalars[NUMBERS], scalars[NORMS]
    counts, codes, left = scalars[COUNTS], scalars[CODES], scalars[LEFT]
    for s in range(width):
        at, beta, goes = first + s, 0.0, 0.0
        if codes[at] == RUNNING and counts[at] < left[at]:
            square = numbers[SQUARE, at]
            if np.isfinite(square) and square > 0.0:
                goes = 1.0
                if norms[FRESH, at] == 0.0:
                    beta = np.float64(square / numbers[RZ, at])
                numbers[RZ, at] = square
                norms[FRESH, at] = 0.0
            else:
                codes[at] = BROKEN
        set_lane(parts[0], s, width, beta)
        set_lane(parts[1], s, width, goes)


@inner(forceinline=True)
def step_lengths(parts, scalars, first, width):
    """alpha of each sample from p . q, which stands in the fourth lane."""
    numbers, codes = scalars[NUMBERS], scalars[CODES]
    for s in range(width):
        at = first + s
        set_lane(parts[2], s, width, 0.0)
        if real(parts[1], s) != 0.0:
            square = real(parts[3], s)
            length = numbers[RZ, at] / square
            if np.isfinite(square) and square > 0.0 and np.isfinite(length):
                numbers[STEP, at] = length
                set_lane(parts[2], s, width, length)
            else:
                codes[at] = BROKEN


@inner(forceinline=True)
def end_iteration(parts, scalars, first, width):
    """Norms of the new residuals, and which samples need a decision: also those that leave their least norm."""
    numbers, norms, counts, codes = scalars[NUMBERS], scalars[NORMS], scalars[COUNTS], scalars[CODES]
    for s in range(width):
        at = first + s
        if real(parts[1], s) != 0.0 and codes[at] == RUNNING:
            numbers[SQUARE, at] = real(parts[3], s)
            norm = np.sqrt(np.float64(real(parts[3], s)))
            counts[at] += 1
            least, last = norms[LEAST, at], norms[LAST, at]
            leaves = norm > 2.0 * least and last <= 2.0 * least and last <= 0.5 * norms[BEST, at]
            end_sample(scalars, at, norm, leaves or not np.isfinite(norm), False)
            if codes[at] == RUNNING:
                norms[LEAST, at] = min(least, norm)
                norms[LAST, at] = norm


@inner(forceinline=True)
def cg_iteration(
    indptr, indices, values, vectors, lanes, parts, scalars, first, n_rows, width, shared, ahead, nothing, wide,
):  # fmt: skip
    """p = r + beta p, q = A p, x += alpha p, r -= alpha q of the samples that go on."""
    x, r, p, q = vectors
    begin_iteration(parts, scalars, first, width)
    stop = whole_registers(0, n_rows, width)
    beta, goes = load(lanes[0], 0, wide), load(lanes[1], 0, wide)
    for i in range(0, stop, LANES):
        direction_at(i, beta, goes, r, p, wide)
    if width < LANES:
        one_beta, one_goes = load(lanes[0], 0, nothing), load(lanes[1], 0, nothing)
        for i in range(stop, n_rows * width, width):
            direction_at(i, one_beta, one_goes, r, p, nothing)
    store(lanes[3], 0, product_with_dot(indptr, indices, values, p, q, n_rows, width, shared, ahead, nothing))
    step_lengths(parts, scalars, first, width)
    total = nothing
    for low in range(0, n_rows, GROUP):
        high = min(low + GROUP, n_rows)
        update(lanes[2], p, q, x, r, low, high, width, nothing, wide)
        total = dot_of_rows(total, r, r, low, high, width, nothing)
    store(lanes[3], 0, total)
    end_iteration(parts, scalars, first, width)
