"""One step of Arnoldi's process and the scalars of GMRES that follow from it, in one call for all samples.

Sums have the order of `basis_dots` and `basis_add`, and scalars are float64 and rounded as `GmresHostScalars` rounds
them: the results are those of its separate kernels. Moves ``2 (2 j + 3) n S`` values for column j, twice that where a
vector lost more than half of its squared length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.types import load, select, store, zeros
from ensemble._compile.numba import ROW_BLOCK, compiled, inner, per_width, prange, tiles, widest
from ensemble._kernels.krylov.basis import ROWS_AT_ONCE, one_sample_add, one_sample_dots, tile_add, tile_dots

__all__ = ["BROKEN", "BUILDING", "CANDIDATE", "EXHAUSTED", "LIMIT", "RESTARTS", "ROUNDOFF", "arnoldi_step"]

ROUNDOFF = 64
"""Units of roundoff below which what is left of a vector, or a pivot, is nothing but rounding."""

BUILDING, CANDIDATE, EXHAUSTED, BROKEN, LIMIT, RESTARTS = range(6)
"""State of a sample within a cycle; all but the first have stopped building their basis."""

PARTS, SUMS, FACTORS = range(3)
"""Rows of a tile's work space, in the vectors' type: sums of a block, sums, coefficients."""

BEFORE, AFTER, STATE, N_MORE = -1, -2, -3, 3
"""Last rows of a tile's columns: squared lengths of w; 1 for one that goes on, 2 for one that broke down, else 0."""


@inner(forceinline=True)
def dots(basis, w, work, n_vectors, n_rows, n_samples, first, width, alone, nothing):
    """Inner products of w with the first vectors, blocks of rows in order."""
    parts, sums = work[PARTS], work[SUMS]
    for k in range(n_vectors):
        store(sums, k * width, nothing)
    for low in range(0, n_rows, ROW_BLOCK):
        high = min(low + ROW_BLOCK, n_rows)
        if alone:
            one_sample_dots(basis, w, parts, np.int64(0), n_vectors, n_rows, low, high, nothing)
        else:
            tile_dots(basis, w, parts, np.int64(0), width, n_vectors, n_rows, n_samples, first, low, high, nothing)
        for k in range(n_vectors):
            store(sums, k * width, load(sums, k * width, nothing) + load(parts, k * width, nothing))


@inner(forceinline=True)
def add(basis, w, work, n_vectors, n_rows, n_samples, first, width, alone, nothing, wide):
    """w and the vectors times their factors; the new w . w is the first of the sums."""
    total, factors = nothing, work[FACTORS]
    for low in range(0, n_rows, ROW_BLOCK):
        high = min(low + ROW_BLOCK, n_rows)
        if alone:
            total = total + one_sample_add(factors, n_vectors, basis, w, n_rows, low, high, nothing, wide)
        else:
            total = total + tile_add(
                factors, np.int64(0), width, n_vectors, basis, w, n_rows, n_samples, first, low, high, nothing
            )
    store(work[SUMS], 0, total)


@inner(forceinline=True)
def take_dots(columns, work, running, again, j, width, first):
    """Add the inner products to the column; their negatives are the factors. `again`: of samples that lost length."""
    sums, factors = work[SUMS], work[FACTORS]
    for s in range(width):
        goes = running[first + s] != 0
        if again:
            goes = columns[STATE, s] == 1.0 and columns[AFTER, s] < 0.5 * columns[BEFORE, s]
        fits, some = True, False
        for k in range(j + 1):
            value, at = np.float64(sums[k * width + s]), k * width + s
            factors[at] = 0.0
            if goes and np.isfinite(value):
                factors[at] = -value
            if goes and again:
                columns[k, s] += value
            elif not again:
                columns[k, s] = value
            fits, some = fits and np.isfinite(value), some or value != 0.0
        if not again:
            square = np.float64(sums[(j + 1) * width + s])
            below = square == 0.0 and some  # the square of w is below all numbers
            columns[BEFORE, s], columns[STATE, s] = square, 0.0
            if goes:
                columns[STATE, s] = 1.0 if fits and np.isfinite(square) and not below else 2.0


@inner(forceinline=True)
def take_length(columns, work, again, width):
    """The squared lengths after `add`; how many samples have lost more than half."""
    n_lost = 0
    for s in range(width):
        own = np.float64(work[SUMS, s])
        lost = columns[STATE, s] == 1.0 and columns[AFTER, s] < 0.5 * columns[BEFORE, s]
        if not again:
            columns[AFTER, s] = own
            if not np.isfinite(own) and columns[STATE, s] == 1.0:
                columns[STATE, s] = 2.0
            if columns[STATE, s] == 1.0 and own < 0.5 * columns[BEFORE, s]:
                n_lost += 1
        elif lost:
            columns[AFTER, s] = own
    return n_lost


@inner(forceinline=True)
def rotate(columns, cycle, j, at, s, low, before, eps):
    """Reduce the column of a sample by the old rotations and a new one; its residual norm."""
    R, cosines, sines, g, length = cycle[0], cycle[1], cycle[2], cycle[3], cycle[4]
    for i in range(j):
        c, d, upper, lower = cosines[i, at], sines[i, at], columns[i, s], columns[i + 1, s]
        columns[i, s] = c * upper + d * lower
        columns[i + 1, s] = c * lower - d * upper
    last = columns[j, s]
    larger, smaller = abs(last), low
    if larger < smaller:
        larger, smaller = low, abs(last)
    ratio = smaller / larger if larger > 0.0 else 0.0
    radius = larger * np.sqrt(1.0 + ratio * ratio)  # as every device rounds it, which hypot is not
    for i in range(j):
        R[i, j, at] = columns[i, s]
    R[j, j, at] = radius
    cosines[j, at], sines[j, at] = last / radius, low / radius
    g[j + 1, at] = g[j, at]
    if radius > ROUNDOFF * eps * before:  # else the column adds nothing to the image
        g[j + 1, at] = -sines[j, at] * g[j, at]
        g[j, at] = cosines[j, at] * g[j, at]
        length[at] = j + 1
    return abs(g[j + 1, at])


@inner(forceinline=True)
def decide(columns, work, cycle, samples, j, first, width, eps):
    """Rotations, norms and states of the samples; the factors that make their vectors one long."""
    running, check, at_limit, state, norm = samples[0], samples[1], samples[2], samples[3], samples[4]
    for s in range(width):
        at, factor = first + s, 0.0
        if running[at] != 0:
            if columns[STATE, s] != 1.0:
                norm[at], state[at] = np.nan, BROKEN
            else:
                size, before = np.sqrt(columns[AFTER, s]), np.sqrt(columns[BEFORE, s])
                ends = size <= ROUNDOFF * eps * before
                if not ends and np.isfinite(1.0 / size):
                    factor = 1.0 / size
                norm[at] = rotate(columns, cycle, j, at, s, 0.0 if ends else size, before, eps)
                if at_limit[at] != 0:
                    state[at] = LIMIT
                if ends:
                    state[at] = EXHAUSTED
                if norm[at] <= check[at]:
                    state[at] = CANDIDATE
        work[FACTORS, s] = factor


@per_width
def _arnoldi_step(width: int, alone: bool) -> Any:
    @compiled
    def loop(V, j, cycle, samples, eps, all_work, all_columns, n_samples, begin, n_tiles):
        for t in prange(n_tiles):
            first, n_rows, nothing = begin + np.int64(t) * width, V.shape[1], zeros(V, width)
            wide = zeros(V, ROWS_AT_ONCE)
            basis, w, work, columns = V.reshape(-1), V[j + 1].reshape(-1), all_work[t], all_columns[t]
            dots(basis, w, work, j + 2, n_rows, n_samples, first, width, alone, nothing)
            take_dots(columns, work, samples[0], False, j, width, first)
            add(basis, w, work, j + 1, n_rows, n_samples, first, width, alone, nothing, wide)
            if take_length(columns, work, False, width) > 0:
                dots(basis, w, work, j + 1, n_rows, n_samples, first, width, alone, nothing)
                take_dots(columns, work, samples[0], True, j, width, first)
                add(basis, w, work, j + 1, n_rows, n_samples, first, width, alone, nothing, wide)
                take_length(columns, work, True, width)
            decide(columns, work, cycle, samples, j, first, width, eps)
            factor = load(work[FACTORS], 0, nothing)
            for i in range(n_rows):
                here = np.int64(i) * n_samples + first
                old = load(w, here, nothing)
                store(w, here, select(factor != nothing, old * factor, old))

    return loop


def arnoldi_step(
    V: np.ndarray, j: int, cycle: tuple[np.ndarray, ...], samples: tuple[np.ndarray, ...], eps: float
) -> None:
    """Orthonormalise the last vector of ``V[: j + 2]``, column j of the least-squares problems of real numbers.

    `cycle`: R, cosines, sines, g and lengths; `samples`: which run, norms of candidates, which have taken all their
    iterations, states and, to be written, norms.
    """
    n_samples, n_rows = V.shape[2], V.shape[0] + 1
    runs: dict[int, list[int]] = {}
    for first, width in tiles(n_samples, widest(V)):
        runs.setdefault(width, []).append(first)
    for width, firsts in runs.items():
        work = np.empty((len(firsts), 3, n_rows * width), V.dtype)
        columns = np.zeros((len(firsts), n_rows + N_MORE, width))
        loop = _arnoldi_step(width, n_samples == 1)
        loop(V, j, cycle, samples, eps, work, columns, n_samples, firsts[0], len(firsts))
