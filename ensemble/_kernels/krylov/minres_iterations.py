"""One iteration of MINRES of a tile of samples, see `many_iterations`.

The last two Lanczos vectors v and u and the last two directions w and p move within their pass, where single iterations
exchange them. A sample stops in the middle of an iteration, in its second phase, where rounding makes it doubtful
whether its iterate is to be kept. Scalars are float64 and rounded as `MinresHostScalars` rounds them.

Bytes of an iteration and sample (float64, int32 columns, k entries a row): ``n (8 k + 4 k / width + 4 + 144)``: values,
columns, v twice and q for the product; q, v, u for Lanczos' step, and the new v and u; u, v, w, p, x, r to update
four of them.
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
    DOUBTFUL,
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
    product_with_dot,
    real,
    set_lane,
    whole_registers,
)

__all__ = ["DOUBTFUL_FALL", "LEAST_SQUARES", "MINRES_ROWS", "SINGULAR", "minres_iteration"]

SINGULAR = 10.0
"""Units of rounding by the norm of A below which a diagonal entry of the triangular factor is zero."""

LEAST_SQUARES = 1000.0
"""Units of rounding by the norms of A and r below which A r is zero: no x has a smaller residual."""

DOUBTFUL_FALL = 1e-6
"""A r by the norms of A and r below which an iterate is kept only where its true residual is the least so far."""

MINRES_ROWS = (
    "beta", "old_beta", "phibar", "cs", "sn", "dbar", "epsln", "size", "lowest", "least", "unit", "alfa",
    "next_beta", "delta", "gbar", "gamma", "old_epsln", "exhausted",
)  # fmt: skip
"""Numbers of each sample, float64: those of `MinresHostScalars`, then what the second phase needs."""

(
    BETA, OLD_BETA, PHIBAR, CS, SN, DBAR, EPSLN, SIZE, LOWEST, _LEAST, UNIT, ALFA, NEXT_BETA, DELTA, GBAR, GAMMA,
    OLD_EPSLN, EXHAUSTED,
) = range(len(MINRES_ROWS))  # fmt: skip

GOES, KEEPS, SUM, FIRST = 0, 1, 2, 3
"""Lanes: which samples a pass writes, whose iterates it copies, a sum, and the first of six coefficients."""


@inner(forceinline=True)
def set_coefficient(parts, k, s, width, value):
    """Write coefficient `k` of a sample; zero, which omits its vector, where it is not finite."""
    set_lane(parts[FIRST + k], s, width, value if np.isfinite(value) else 0.0)


@inner(forceinline=True)
def lanczos_coefficients(parts, scalars, first, width):
    """Coefficients of the next Lanczos vector, from v . A v."""
    numbers, codes = scalars[NUMBERS], scalars[CODES]
    for s in range(width):
        at, h0, h1, h2 = first + s, 0.0, 0.0, 0.0
        if real(parts[GOES], s) != 0.0:
            square, beta, old = np.float64(real(parts[SUM], s)), numbers[BETA, at], numbers[OLD_BETA, at]
            if np.isfinite(square):
                unit = numbers[UNIT, at] if numbers[UNIT, at] > 0.0 else 1.0
                numbers[ALFA, at] = square / (beta * beta) / unit
                h0, h1 = 1.0 / (beta * unit), numbers[ALFA, at] / beta
                if old > 0.0:
                    h2 = beta / old
            else:
                codes[at] = BROKEN
                set_lane(parts[GOES], s, width, 0.0)
        set_coefficient(parts, 0, s, width, h0)
        set_coefficient(parts, 1, s, width, h1)
        set_coefficient(parts, 2, s, width, h2)


@inner(forceinline=True)
def rotate_sample(numbers, at, beta, eps):
    """The rotation by the length `beta` of the next Lanczos vector; A r by the norms of A and r."""
    alfa, old_beta = numbers[ALFA, at], 0.0
    if numbers[OLD_BETA, at] > 0.0:
        old_beta = numbers[BETA, at]  # of the tridiagonal matrix; the first is not
    column = abs(alfa) + old_beta + beta
    if column > numbers[SIZE, at] or column != column:
        numbers[SIZE, at] = column
    cs, sn, dbar = numbers[CS, at], numbers[SN, at], numbers[DBAR, at]
    gbar = sn * dbar - cs * alfa
    numbers[DELTA, at], numbers[GBAR, at], numbers[OLD_EPSLN, at] = cs * dbar + sn * alfa, gbar, numbers[EPSLN, at]
    numbers[EPSLN, at], numbers[DBAR, at], numbers[NEXT_BETA, at] = sn * beta, -cs * beta, beta
    dbar = numbers[DBAR, at]
    gamma, root, unit = np.sqrt(gbar * gbar + beta * beta), np.sqrt(gbar * gbar + dbar * dbar), eps * numbers[SIZE, at]
    numbers[GAMMA, at], numbers[EXHAUSTED, at] = gamma, 0.0
    if root <= LEAST_SQUARES * unit or gamma <= SINGULAR * unit:
        numbers[EXHAUSTED, at] = 1.0
    return root / numbers[SIZE, at]


@inner(forceinline=True)
def rotate(parts, scalars, eps, first, width):
    """Rotations from the squared lengths of the next Lanczos vectors; how many iterates are kept, which it marks."""
    numbers, norms, history = scalars[NUMBERS], scalars[NORMS], scalars[HISTORY]
    counts, codes, phases = scalars[COUNTS], scalars[CODES], scalars[PHASES]
    n_kept = 0
    for s in range(width):
        at, keeps = first + s, 0.0
        if real(parts[GOES], s) != 0.0:
            square = np.float64(real(parts[SUM], s))
            if np.isfinite(square) and square >= 0.0:
                phases[at] = 1
                fall = rotate_sample(numbers, at, np.sqrt(square), eps)
                if fall <= 0.1 * numbers[LOWEST, at]:
                    numbers[LOWEST, at] = fall
                    if fall < DOUBTFUL_FALL:
                        codes[at] = DOUBTFUL
                    else:
                        keeps, norms[BEST, at] = 1.0, history[counts[at], at]
                        n_kept += 1
            else:
                codes[at] = BROKEN
        set_lane(parts[KEEPS], s, width, keeps)
    return n_kept


@inner(forceinline=True)
def update_coefficients(parts, scalars, first, width):
    """Mark the samples in their second phase, and coefficients of their update."""
    numbers, counts, codes, phases = scalars[NUMBERS], scalars[COUNTS], scalars[CODES], scalars[PHASES]
    n_going = 0
    for s in range(width):
        at, goes = first + s, 0.0
        h0, h1, h2, h3, h4, h5 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        if codes[at] == RUNNING and phases[at] == 1:
            beta, gamma, ended = numbers[NEXT_BETA, at], numbers[GAMMA, at], numbers[EXHAUSTED, at] != 0.0
            cs, sn = numbers[GBAR, at] / gamma, beta / gamma
            phi, phibar = cs * numbers[PHIBAR, at], sn * numbers[PHIBAR, at]
            numbers[CS, at], numbers[SN, at], numbers[PHIBAR, at] = cs, sn, phibar
            h0, h1 = 1.0 / (gamma * numbers[BETA, at]), numbers[DELTA, at] / gamma
            h2, h4 = numbers[OLD_EPSLN, at] / gamma, sn * sn
            if not ended:
                h3 = phi / (numbers[UNIT, at] if numbers[UNIT, at] > 0.0 else 1.0)
            if beta > 0.0:
                h5 = -phibar * cs / beta
            numbers[OLD_BETA, at], numbers[BETA, at], phases[at] = numbers[BETA, at], beta, 0
            finite = np.isfinite(h0) and np.isfinite(h1) and np.isfinite(h2)
            if ended or (finite and np.isfinite(h3) and np.isfinite(h4) and np.isfinite(h5)):
                counts[at] += 1
                goes = 1.0
                n_going += 1
            else:
                codes[at], h3 = BROKEN, 0.0
        set_lane(parts[GOES], s, width, goes)
        set_coefficient(parts, 0, s, width, h0)
        set_coefficient(parts, 1, s, width, h1)
        set_coefficient(parts, 2, s, width, h2)
        set_coefficient(parts, 3, s, width, h3)
        set_coefficient(parts, 4, s, width, h4)
        set_coefficient(parts, 5, s, width, h5)
    return n_going


@inner(forceinline=True)
def end_iteration(parts, scalars, first, width):
    """Norms of the new residuals, and which samples need a decision: also those whose Krylov space is exhausted."""
    for s in range(width):
        at = first + s
        if real(parts[GOES], s) != 0.0:
            norm = np.sqrt(np.float64(real(parts[SUM], s)))
            end_sample(scalars, at, norm, scalars[NUMBERS][EXHAUSTED, at] != 0.0, True)


@inner(forceinline=True)
def lanczos_at(i, h0, h1, h2, moves, q, v, u, like):
    """v, u = h0 q - h1 v - h2 u, v from number `i` on; nothing where `moves` is zero."""
    moving, old, before = moves != like, load(v, i, like), load(u, i, like)
    new = h0 * load(q, i, like) - h1 * old
    new = select(h2 != like, new - h2 * before, new)
    store(u, i, select(moving, old, before))
    store(v, i, select(moving, new, old))


@inner(forceinline=True)
def update_at(i, h0, h1, h2, h3, h4, h5, moves, vectors, like):
    """w, p = h0 u - h1 w - h2 p, w; x += h3 w, r = h4 r + h5 v where h3 is not zero; nothing where `moves` is zero."""
    x, r, v, u, w, p = vectors
    moving, steps, last, before = moves != like, h3 != like, load(w, i, like), load(p, i, like)
    new = h0 * load(u, i, like)
    new = select(h1 != like, new - h1 * last, new)
    new = select(h2 != like, new - h2 * before, new)
    store(p, i, select(moving, last, before))
    store(w, i, select(moving, new, last))
    old_x, old_r = load(x, i, like), load(r, i, like)
    store(x, i, select(steps, old_x + h3 * new, old_x))
    store(r, i, select(steps, h4 * old_r + h5 * load(v, i, like), old_r))


@inner(forceinline=True)
def lanczos_step(q, v, u, lanes, low, high, width, nothing, wide):
    """The next Lanczos vectors in rows `low` to `high`."""
    stop = whole_registers(low, high, width)
    h0, h1, h2 = load(lanes[FIRST], 0, wide), load(lanes[FIRST + 1], 0, wide), load(lanes[FIRST + 2], 0, wide)
    moves = load(lanes[GOES], 0, wide)
    for i in range(low * width, stop, LANES):
        lanczos_at(i, h0, h1, h2, moves, q, v, u, wide)
    if width < LANES:
        g0, g1 = load(lanes[FIRST], 0, nothing), load(lanes[FIRST + 1], 0, nothing)
        g2, some = load(lanes[FIRST + 2], 0, nothing), load(lanes[GOES], 0, nothing)
        for i in range(stop, high * width, width):
            lanczos_at(i, g0, g1, g2, some, q, v, u, nothing)


@inner(forceinline=True)
def update(vectors, lanes, low, high, width, nothing, wide):
    """Direction, solution and residual in rows `low` to `high`."""
    stop = whole_registers(low, high, width)
    h0, h1, h2 = load(lanes[FIRST], 0, wide), load(lanes[FIRST + 1], 0, wide), load(lanes[FIRST + 2], 0, wide)
    h3, h4, h5 = load(lanes[FIRST + 3], 0, wide), load(lanes[FIRST + 4], 0, wide), load(lanes[FIRST + 5], 0, wide)
    moves = load(lanes[GOES], 0, wide)
    for i in range(low * width, stop, LANES):
        update_at(i, h0, h1, h2, h3, h4, h5, moves, vectors, wide)
    if width < LANES:
        g0, g1 = load(lanes[FIRST], 0, nothing), load(lanes[FIRST + 1], 0, nothing)
        g2, g3 = load(lanes[FIRST + 2], 0, nothing), load(lanes[FIRST + 3], 0, nothing)
        g4, g5 = load(lanes[FIRST + 4], 0, nothing), load(lanes[FIRST + 5], 0, nothing)
        some = load(lanes[GOES], 0, nothing)
        for i in range(stop, high * width, width):
            update_at(i, g0, g1, g2, g3, g4, g5, some, vectors, nothing)


@inner(forceinline=True)
def minres_iteration(
    indptr, indices, values, vectors, best, lanes, parts, scalars, eps, first, n_rows, n_samples, width, shared, ahead,
    nothing, wide,
):  # fmt: skip
    """An iteration of the samples that go on, from where each stopped."""
    x, r, v, u, w, p, q = vectors
    if begin_phase(0, parts, scalars, first, width) > 0:
        store(lanes[SUM], 0, product_with_dot(indptr, indices, values, v, q, n_rows, width, shared, ahead, nothing))
        lanczos_coefficients(parts, scalars, first, width)
        square = nothing
        for low in range(0, n_rows, GROUP):
            high = min(low + GROUP, n_rows)
            lanczos_step(q, v, u, lanes, low, high, width, nothing, wide)
            square = dot_of_rows(square, v, v, low, high, width, nothing)
        store(lanes[SUM], 0, square)
        if rotate(parts, scalars, eps, first, width) > 0:
            copy_marked(lanes[KEEPS], x, best, n_rows, width, n_samples, first, nothing)
    if update_coefficients(parts, scalars, first, width) > 0:
        total = nothing
        for low in range(0, n_rows, GROUP):
            high = min(low + GROUP, n_rows)
            update((x, r, v, u, w, p), lanes, low, high, width, nothing, wide)
            total = dot_of_rows(total, r, r, low, high, width, nothing)
        store(lanes[SUM], 0, total)
        end_iteration(parts, scalars, first, width)
