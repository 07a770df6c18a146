"""One iteration of BiCGSTAB of a tile of samples, see `many_iterations`.

A sample stops in the middle of an iteration where it needs a decision there, and goes on from its `phase`: the first
half, the second, the direction. Scalars are float64 and rounded as `BicgstabHostScalars` rounds them; of complex
numbers they are real and imaginary parts.

Bytes of an iteration and sample (float64, int32 columns, k entries a row): ``n (16 k + 8 k / width + 8 + 248)``: twice
values, columns, the vector and its product; shadow and v, r and t for inner products; p, v, x, r and r, t, x, r to
update x and r, shadow; r, v, p for the direction.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.lanes.types import load, select, store
from ensemble._compile.numba import inner
from ensemble._kernels.krylov.scalar_parts import magnitude, product_parts, quotient_parts
from ensemble._kernels.krylov.tile_passes import (
    BEFORE,
    BEST,
    BROKEN,
    CODES,
    COUNTS,
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
    end_sample,
    imaginary,
    product,
    real,
    set_imaginary,
    set_lane,
    update,
    whole_registers,
)
from ensemble._kernels.sparse.crs import SET

__all__ = ["BICGSTAB_ROWS", "IMAGINARY", "bicgstab_iteration"]

BICGSTAB_ROWS = (
    "rho", "alpha", "omega", "next_rho", "shadow_norm", "alpha_usable", "omega_usable", "fresh"
)  # fmt: skip
"""Numbers of each sample, float64: those of `BicgstabHostScalars`, truth values as 0 and 1. The imaginary parts of the
first four follow, `IMAGINARY` rows behind their real parts."""

IMAGINARY = len(BICGSTAB_ROWS)

RHO, ALPHA, OMEGA, NEXT_RHO, SHADOW_NORM, ALPHA_USABLE, OMEGA_USABLE, BEGINS = range(IMAGINARY)

GOES, STEP, KEEPS, SUM, OTHER = range(5)
"""Lanes: which samples a pass writes, a coefficient, whose iterates or shadows it copies, sums; omega is in `SUM`."""


@inner(forceinline=True)
def first_step(parts, scalars, eps, first, width):
    """Count the iteration; alpha of each sample from shadow . v and v . v."""
    numbers, norms, counts, codes = scalars[NUMBERS], scalars[NORMS], scalars[COUNTS], scalars[CODES]
    for s in range(width):
        at, step, other = first + s, 0.0, 0.0
        if real(parts[GOES], s) != 0.0:
            counts[at] += 1
            norms[FRESH, at] = 0.0
            dot, turned = np.float64(real(parts[SUM], s)), imaginary(parts[SUM], s)
            square = np.float64(real(parts[OTHER], s))
            numbers[ALPHA, at], numbers[ALPHA + IMAGINARY, at], numbers[ALPHA_USABLE, at] = 0.0, 0.0, 0.0
            if not (np.isfinite(dot) and np.isfinite(turned)):
                codes[at] = BROKEN
            elif magnitude(dot, turned) > eps * (numbers[SHADOW_NORM, at] * np.sqrt(square)):
                alpha, beside = quotient_parts(numbers[RHO, at], numbers[RHO + IMAGINARY, at], dot, turned)
                numbers[ALPHA, at], numbers[ALPHA + IMAGINARY, at], numbers[ALPHA_USABLE, at] = alpha, beside, 1.0
                if np.isfinite(alpha) and np.isfinite(beside):
                    step, other = alpha, beside
        set_lane(parts[STEP], s, width, step)
        set_imaginary(parts[STEP], s, width, other)


@inner(forceinline=True)
def second_step(parts, scalars, eps, first, width):
    """omega of each sample from r . t, whose conjugate is t . r, and t . t."""
    numbers, history, counts, codes = scalars[NUMBERS], scalars[HISTORY], scalars[COUNTS], scalars[CODES]
    for s in range(width):
        at, step, other = first + s, 0.0, 0.0
        if real(parts[GOES], s) != 0.0:
            dot, turned = np.float64(real(parts[SUM], s)), -imaginary(parts[SUM], s)
            square = np.float64(real(parts[OTHER], s))
            norm, nothing = history[counts[at], at], dot == 0.0 and turned == 0.0
            numbers[OMEGA, at], numbers[OMEGA + IMAGINARY, at], numbers[OMEGA_USABLE, at] = 0.0, 0.0, 0.0
            if not (np.isfinite(dot) and np.isfinite(turned) and (square > 0.0 or nothing)):
                codes[at] = BROKEN  # else the square of t is below all numbers
            elif magnitude(dot, turned) > eps * np.sqrt(norm * norm * square):
                omega, beside = dot / square, turned / square
                numbers[OMEGA, at], numbers[OMEGA + IMAGINARY, at], numbers[OMEGA_USABLE, at] = omega, beside, 1.0
                if np.isfinite(omega) and np.isfinite(beside):
                    step, other = omega, beside
        set_lane(parts[STEP], s, width, step)
        set_imaginary(parts[STEP], s, width, other)


@inner(forceinline=True)
def end_half(half, parts, scalars, first, width):
    """Norms of the new residuals, and which samples need a decision; a sample that broke down before keeps its norm."""
    numbers, codes, phases = scalars[NUMBERS], scalars[CODES], scalars[PHASES]
    for s in range(width):
        at = first + s
        if real(parts[GOES], s) != 0.0 and (codes[at] == RUNNING or half == 0):
            if half == 1:
                numbers[NEXT_RHO, at] = np.float64(real(parts[OTHER], s))
                numbers[NEXT_RHO + IMAGINARY, at] = imaginary(parts[OTHER], s)
            if codes[at] == RUNNING:
                phases[at] += 1
            end_sample(scalars, at, np.sqrt(np.float64(real(parts[SUM], s))), False, True)


@inner(forceinline=True)
def next_beta(numbers, at):
    """beta = (rho / old rho) (alpha / omega), real and imaginary part."""
    rho, rho_i = quotient_parts(
        numbers[NEXT_RHO, at], numbers[NEXT_RHO + IMAGINARY, at], numbers[RHO, at], numbers[RHO + IMAGINARY, at]
    )
    ratio, ratio_i = quotient_parts(
        numbers[ALPHA, at], numbers[ALPHA + IMAGINARY, at], numbers[OMEGA, at], numbers[OMEGA + IMAGINARY, at]
    )
    return product_parts(rho, rho_i, ratio, ratio_i)


@inner(forceinline=True)
def turn_sample(numbers, norms, at, norm, eps):
    """Whether the recurrence of a sample goes on, and its beta; else it begins with the residual, of this norm."""
    beta, beside = next_beta(numbers, at)
    rho, turned = numbers[NEXT_RHO, at], numbers[NEXT_RHO + IMAGINARY, at]
    moved, steady = numbers[ALPHA_USABLE, at] != 0.0, numbers[OMEGA_USABLE, at] != 0.0
    finite = np.isfinite(beta) and np.isfinite(beside) and np.isfinite(rho) and np.isfinite(turned)
    continues = moved and steady and norms[FRESH, at] == 0.0 and finite and (beta != 0.0 or beside != 0.0)
    limit = eps * (numbers[SHADOW_NORM, at] * np.sqrt(norm * norm))
    if continues and magnitude(rho, turned) > limit:
        numbers[RHO, at], numbers[RHO + IMAGINARY, at], numbers[BEGINS, at] = rho, turned, 0.0
    else:
        continues, numbers[BEGINS, at] = False, 1.0
        numbers[RHO, at], numbers[RHO + IMAGINARY, at] = norm * norm, 0.0
        numbers[SHADOW_NORM, at] = np.sqrt(norm * norm)
    return continues, beta, beside


@inner(forceinline=True)
def turn(parts, scalars, eps, first, width):
    """beta and omega of each sample, or a recurrence that begins with the residual; returns how many begin one."""
    numbers, norms, history = scalars[NUMBERS], scalars[NORMS], scalars[HISTORY]
    counts, codes, phases = scalars[COUNTS], scalars[CODES], scalars[PHASES]
    n_beginning = 0
    for s in range(width):
        at, factor, factor_i, step, step_i, begins = first + s, 0.0, 0.0, 0.0, 0.0, 0.0
        if real(parts[GOES], s) != 0.0:
            phases[at] = 0
            moved = numbers[ALPHA_USABLE, at] != 0.0 or numbers[OMEGA_USABLE, at] != 0.0
            if numbers[BEGINS, at] != 0.0 and not moved:
                codes[at] = BROKEN
            else:
                continues, beta, beside = turn_sample(numbers, norms, at, history[counts[at], at], eps)
                omega, omega_i = numbers[OMEGA, at], numbers[OMEGA + IMAGINARY, at]
                if continues:
                    factor, factor_i = beta, beside
                    if np.isfinite(omega) and np.isfinite(omega_i):
                        step, step_i = omega, omega_i
                else:
                    begins = 1.0
                    n_beginning += 1
        set_lane(parts[STEP], s, width, factor)
        set_imaginary(parts[STEP], s, width, factor_i)
        set_lane(parts[SUM], s, width, step)
        set_imaginary(parts[SUM], s, width, step_i)
        set_lane(parts[KEEPS], s, width, begins)
    return n_beginning


@inner(forceinline=True)
def kept(parts, scalars, first, width):
    """Mark samples whose iterate is kept in the lane `KEEPS`, as `kept_at` of the scalars says; how many."""
    norms, history = scalars[NORMS], scalars[HISTORY]
    counts, codes, before = scalars[COUNTS], scalars[CODES], scalars[BEFORE]
    n_kept = 0
    for s in range(width):
        at, keeps = first + s, 0.0
        if real(parts[GOES], s) != 0.0 and codes[at] == RUNNING:
            iteration = before[at] + counts[at]
            if iteration % 16 == 0 or iteration & (iteration - 1) == 0:
                norm = history[counts[at], at]
                if norm < norms[BEST, at]:
                    keeps, norms[BEST, at] = 1.0, norm
                    n_kept += 1
        set_lane(parts[KEEPS], s, width, keeps)
    return n_kept


@inner(forceinline=True)
def direction_at(i, factor, step, moving, r, v, p, like):
    """p = r + factor (p - step v) from number `i` on, or r where `factor` is zero; nothing where `moving` is zero."""
    new, old = load(r, i, like), load(p, i, like)
    moved = new + factor * (old - step * load(v, i, like))
    store(p, i, select(moving != like, select(factor != like, moved, new), old))


@inner(forceinline=True)
def halves(
    indptr, indices, values, vectors, lanes, parts, scalars, eps, first, n_rows, width, shared, ahead, nothing, wide,
):  # fmt: skip
    """Both halves of the iteration, as far as samples take part in them: a loop, for code that is made once."""
    x, r, p, v, shadow, t = vectors
    for half in range(2):
        if half == 0:
            source, out, other = p, v, shadow
        else:
            source, out, other = r, t, r
        if begin_phase(half, parts, scalars, first, width) > 0:
            inner_product, square = nothing, nothing
            for low in range(0, n_rows, GROUP):
                high = min(low + GROUP, n_rows)
                product(indptr, indices, values, source, out, low, high, width, shared, ahead, SET, nothing)
                inner_product = dot_of_rows(inner_product, other, out, low, high, width, nothing)
                square = dot_of_rows(square, out, out, low, high, width, nothing)
            store(lanes[SUM], 0, inner_product)
            store(lanes[OTHER], 0, square)
            if half == 0:
                first_step(parts, scalars, eps, first, width)
            else:
                second_step(parts, scalars, eps, first, width)
            length, rho = nothing, nothing
            for low in range(0, n_rows, GROUP):
                high = min(low + GROUP, n_rows)
                update(lanes[STEP], source, out, x, r, low, high, width, nothing, wide)
                length = dot_of_rows(length, r, r, low, high, width, nothing)
                if half == 1:
                    rho = dot_of_rows(rho, shadow, r, low, high, width, nothing)
            store(lanes[SUM], 0, length)
            store(lanes[OTHER], 0, rho)
            end_half(half, parts, scalars, first, width)


@inner(forceinline=True)
def bicgstab_iteration(
    indptr, indices, values, vectors, best, lanes, parts, scalars, eps, first, n_rows, n_samples, width, shared,
    ahead, nothing, wide,
):  # fmt: skip
    """An iteration of the samples that go on, from where each stopped."""
    halves(
        indptr, indices, values, vectors, lanes, parts, scalars, eps, first, n_rows, width, shared, ahead, nothing, wide
    )  # fmt: skip
    x, r, p, v, shadow, _ = vectors
    if begin_phase(2, parts, scalars, first, width) > 0:
        n_beginning = turn(parts, scalars, eps, first, width)
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
        if kept(parts, scalars, first, width) > 0:
            copy_marked(lanes[KEEPS], x, best, n_rows, width, n_samples, first, nothing)
