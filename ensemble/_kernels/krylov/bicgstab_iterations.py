"""One iteration of BiCGSTAB of a tile of samples, see `many_iterations`.

A sample stops in the middle of an iteration where it needs a decision there, and goes on from its `phase`: the first
half, the second, the direction. Scalars are float64 and rounded as `BicgstabHostScalars` rounds them.

Bytes of an iteration and sample (float64, int32 columns, k entries a row): ``n (16 k + 8 k / width + 8 + 248)``: twice
values, columns, the vector and its product; shadow and v, r and t for inner products; p, v, x, r and r, t, x, r to
update x and r, shadow; r, v, p for the direction.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.lanes.types import load, select, store
from ensemble._compile.numba import inner
from ensemble._kernels.krylov.tile_passes import (
    BEFORE,
    BEST,
    BROKEN,
    CHECK,
    CODES,
    COUNTS,
    DUE,
    FRESH,
    GROUP,
    HISTORY,
    LANES,
    NORMS,
    NUMBERS,
    PHASES,
    RUNNING,
    begin_phase,
    copy_marked,
    dot_of_rows,
    product,
    set_lane,
    update,
    whole_registers,
)
from ensemble._kernels.sparse.crs import SET

__all__ = [
    "ALPHA", "ALPHA_USABLE", "BEGINS", "BICGSTAB_ROWS", "NEXT_RHO", "OMEGA", "OMEGA_USABLE", "RHO", "SHADOW_NORM",
    "bicgstab_iteration",
]  # fmt: skip

RHO, SHADOW_NORM, ALPHA, OMEGA, NEXT_RHO, ALPHA_USABLE, OMEGA_USABLE, BEGINS = range(8)
"""Rows of the numbers of each sample, float64: those of `BicgstabHostScalars`, truth values as 0 and 1."""

BICGSTAB_ROWS = 8

GOES, STEP, KEEPS, SUM, OTHER = range(5)
"""Lanes: which samples a pass writes, a coefficient, whose iterates or shadows it copies, sums; omega is in `SUM`."""


@inner(forceinline=True)
def first_step(lanes, scalars, eps, first, width):
    """Count the iteration; alpha of each sample from shadow . v and v . v."""
    numbers, norms, counts, codes = scalars[NUMBERS], scalars[NORMS], scalars[COUNTS], scalars[CODES]
    for s in range(width):
        at, coefficient = first + s, 0.0
        if lanes[GOES, s] != 0.0:
            counts[at] += 1
            norms[FRESH, at] = 0.0
            inner_product, square = np.float64(lanes[SUM, s]), np.float64(lanes[OTHER, s])
            numbers[ALPHA, at], numbers[ALPHA_USABLE, at] = 0.0, 0.0
            if not np.isfinite(inner_product):
                codes[at] = BROKEN
            elif abs(inner_product) > eps * (numbers[SHADOW_NORM, at] * np.sqrt(square)):
                numbers[ALPHA, at], numbers[ALPHA_USABLE, at] = numbers[RHO, at] / inner_product, 1.0
                if np.isfinite(numbers[ALPHA, at]):
                    coefficient = numbers[ALPHA, at]
        set_lane(lanes[STEP], s, width, coefficient)


@inner(forceinline=True)
def second_step(lanes, scalars, eps, first, width):
    """omega of each sample from r . t and t . t."""
    numbers, history, counts, codes = scalars[NUMBERS], scalars[HISTORY], scalars[COUNTS], scalars[CODES]
    for s in range(width):
        at, coefficient = first + s, 0.0
        if lanes[GOES, s] != 0.0:
            inner_product, square = np.float64(lanes[SUM, s]), np.float64(lanes[OTHER, s])
            norm = history[counts[at], at]
            numbers[OMEGA, at], numbers[OMEGA_USABLE, at] = 0.0, 0.0
            if not (np.isfinite(inner_product) and (square > 0.0 or inner_product == 0.0)):
                codes[at] = BROKEN  # else the square of t is below all numbers
            elif abs(inner_product) > eps * np.sqrt(norm * norm * square):
                numbers[OMEGA, at], numbers[OMEGA_USABLE, at] = inner_product / square, 1.0
                if np.isfinite(numbers[OMEGA, at]):
                    coefficient = numbers[OMEGA, at]
        set_lane(lanes[STEP], s, width, coefficient)


@inner(forceinline=True)
def end_half(half, lanes, scalars, first, width):
    """Norms of the new residuals, and which samples need a decision; a sample that broke down before keeps its norm."""
    numbers, norms, history = scalars[NUMBERS], scalars[NORMS], scalars[HISTORY]
    counts, codes, phases = scalars[COUNTS], scalars[CODES], scalars[PHASES]
    for s in range(width):
        at = first + s
        if lanes[GOES, s] != 0.0 and (codes[at] == RUNNING or half == 0):
            norm = np.sqrt(np.float64(lanes[SUM, s]))
            history[counts[at], at] = norm
            if half == 1:
                numbers[NEXT_RHO, at] = np.float64(lanes[OTHER, s])
            if codes[at] == RUNNING:
                phases[at] += 1
                if not np.isfinite(norm):
                    codes[at] = BROKEN
                elif norm <= norms[CHECK, at]:
                    codes[at] = DUE


@inner(forceinline=True)
def turn(lanes, scalars, eps, first, width):
    """beta and omega of each sample, or a recurrence that begins with the residual; returns how many begin one."""
    numbers, norms, history = scalars[NUMBERS], scalars[NORMS], scalars[HISTORY]
    counts, codes, phases = scalars[COUNTS], scalars[CODES], scalars[PHASES]
    n_beginning = 0
    for s in range(width):
        at, factor, step, begins = first + s, 0.0, 0.0, 0.0
        if lanes[GOES, s] != 0.0:
            phases[at] = 0
            norm, rho = history[counts[at], at], numbers[NEXT_RHO, at]
            moved, steady = numbers[ALPHA_USABLE, at] != 0.0, numbers[OMEGA_USABLE, at] != 0.0
            if numbers[BEGINS, at] != 0.0 and not moved and not steady:
                codes[at] = BROKEN
            else:
                beta = rho / numbers[RHO, at] * (numbers[ALPHA, at] / numbers[OMEGA, at])
                continues = moved and steady and norms[FRESH, at] == 0.0 and np.isfinite(beta) and beta != 0.0
                limit = eps * (numbers[SHADOW_NORM, at] * np.sqrt(norm * norm))
                if continues and np.isfinite(rho) and abs(rho) > limit:
                    factor, numbers[RHO, at], numbers[BEGINS, at] = beta, rho, 0.0
                    if np.isfinite(numbers[OMEGA, at]):
                        step = numbers[OMEGA, at]
                else:
                    begins, numbers[BEGINS, at] = 1.0, 1.0
                    numbers[RHO, at], numbers[SHADOW_NORM, at] = norm * norm, np.sqrt(norm * norm)
                    n_beginning += 1
        set_lane(lanes[STEP], s, width, factor)
        set_lane(lanes[SUM], s, width, step)
        set_lane(lanes[KEEPS], s, width, begins)
    return n_beginning


@inner(forceinline=True)
def kept(lanes, scalars, first, width):
    """Mark samples whose iterate is kept in the lane `KEEPS`, as `kept_at` of the scalars says; how many."""
    norms, history = scalars[NORMS], scalars[HISTORY]
    counts, codes, before = scalars[COUNTS], scalars[CODES], scalars[BEFORE]
    n_kept = 0
    for s in range(width):
        at, keeps = first + s, 0.0
        if lanes[GOES, s] != 0.0 and codes[at] == RUNNING:
            iteration = before[at] + counts[at]
            if iteration % 16 == 0 or iteration & (iteration - 1) == 0:
                norm = history[counts[at], at]
                if norm < norms[BEST, at]:
                    keeps, norms[BEST, at] = 1.0, norm
                    n_kept += 1
        set_lane(lanes[KEEPS], s, width, keeps)
    return n_kept


@inner(forceinline=True)
def direction_at(i, factor, step, moving, r, v, p, like):
    """p = r + factor (p - step v) from number `i` on, or r where `factor` is zero; nothing where `moving` is zero."""
    new, old = load(r, i, like), load(p, i, like)
    moved = new + factor * (old - step * load(v, i, like))
    store(p, i, select(moving != like, select(factor != like, moved, new), old))


@inner(forceinline=True)
def halves(indptr, indices, values, vectors, lanes, scalars, eps, first, n_rows, width, shared, ahead, nothing, wide):
    """Both halves of the iteration, as far as samples take part in them: a loop, for code that is made once."""
    x, r, p, v, shadow, t = vectors
    for half in range(2):
        if half == 0:
            source, out, other = p, v, shadow
        else:
            source, out, other = r, t, r
        if begin_phase(half, lanes, scalars, first, width) > 0:
            product(indptr, indices, values, source, out, 0, n_rows, width, shared, ahead, SET, nothing)
            inner_product, square = nothing, nothing
            for low in range(0, n_rows, GROUP):
                high = min(low + GROUP, n_rows)
                inner_product = dot_of_rows(inner_product, other, out, low, high, width, nothing)
                square = dot_of_rows(square, out, out, low, high, width, nothing)
            store(lanes[SUM], 0, inner_product)
            store(lanes[OTHER], 0, square)
            if half == 0:
                first_step(lanes, scalars, eps, first, width)
            else:
                second_step(lanes, scalars, eps, first, width)
            length, rho = nothing, nothing
            for low in range(0, n_rows, GROUP):
                high = min(low + GROUP, n_rows)
                update(lanes[STEP], source, out, x, r, low, high, width, nothing, wide)
                length = dot_of_rows(length, r, r, low, high, width, nothing)
                if half == 1:
                    rho = dot_of_rows(rho, shadow, r, low, high, width, nothing)
            store(lanes[SUM], 0, length)
            store(lanes[OTHER], 0, rho)
            end_half(half, lanes, scalars, first, width)


@inner(forceinline=True)
def bicgstab_iteration(
    indptr, indices, values, vectors, best, lanes, scalars, eps, first, n_rows, n_samples, width, shared, ahead,
    nothing, wide,
):  # fmt: skip
    """An iteration of the samples that go on, from where each stopped."""
    halves(indptr, indices, values, vectors, lanes, scalars, eps, first, n_rows, width, shared, ahead, nothing, wide)
    x, r, p, v, shadow, _ = vectors
    if begin_phase(2, lanes, scalars, first, width) > 0:
        n_beginning = turn(lanes, scalars, eps, first, width)
        stop = whole_registers(0, n_rows, width)
        factor, step, goes = load(lanes[STEP], 0, wide), load(lanes[SUM], 0, wide), load(lanes[GOES], 0, wide)
        for i in range(0, stop, LANES):
            direction_at(i, factor, step, goes, r, v, p, wide)
        if width < LANES:
            one, other = load(lanes[STEP], 0, nothing), load(lanes[SUM], 0, nothing)
            some = load(lanes[GOES], 0, nothing)
            for i in range(stop, n_rows * width, width):
                direction_at(i, one, other, some, r, v, p, nothing)
        if n_beginning > 0:
            copy_marked(lanes[KEEPS], r, shadow, n_rows, width, width, 0, nothing)
        if kept(lanes, scalars, first, width) > 0:
            copy_marked(lanes[KEEPS], x, best, n_rows, width, n_samples, first, nothing)
