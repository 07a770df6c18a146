"""One step of Arnoldi's process and the scalars of GMRES that follow from it, in one call for all samples.

Sums have the order of `basis_dots` and `basis_add`, and scalars are float64 and rounded as `GmresHostScalars` rounds
them: the results are those of its separate kernels. Complex scalars are their real and imaginary parts, beside each
other: number s of a row is at ``s * step``, where `step` is 2 for complex numbers and 1 for real ones.

Moves ``(2 j + 4) n S`` values for column j, and ``(j + 2) n S`` more where a vector lost more than half of its squared
length: the inner products of the second pass are made while the basis of the first one is in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.types import load, select, store, zeros
from ensemble._compile.numba import ROW_BLOCK, compiled, inner, per_width, prange, tiles, widest
from ensemble._kernels.krylov.basis_passes import ROWS_AT_ONCE, RUN, add, dots, squared
from ensemble._kernels.krylov.rotations import imaginary, put, rotate_back
from ensemble._kernels.krylov.scalar_parts import as_parts, magnitude, product_parts

__all__ = [
    "BROKEN", "BUILDING", "CANDIDATE", "EXHAUSTED", "FACTORS", "LIMIT", "N_LENGTHS", "N_WORK", "RESTARTS", "ROUNDOFF",
    "SUMS", "arnoldi_step", "step_of_tile",
]  # fmt: skip

ROUNDOFF = 64
"""Units of roundoff below which what is left of a vector, or a pivot, is nothing but rounding."""

BUILDING, CANDIDATE, EXHAUSTED, BROKEN, LIMIT, RESTARTS = range(6)
"""State of a sample within a cycle; all but the first have stopped building their basis."""

OF_BLOCK, SUMS, FACTORS, SQUARES = range(4)
"""Rows of a tile's work space, in the vectors' type: sums of a block, sums, coefficients, squares of w."""

N_WORK = 4

BEFORE, AFTER, STATE = range(3)
"""Rows of a tile's lengths: squared lengths of w; 1 for a sample that goes on, 2 for one that broke down, else 0."""

N_LENGTHS = 3

LIKELY = 0.55
"""Share of its squared length, as the inner products have it, below which w is likely to be orthogonalised again."""


@inner(forceinline=True)
def add_sums(sums, of_block, n_vectors, width, nothing):
    """Add the sums of a block to those of the blocks before it, and begin the next block's."""
    for k in range(n_vectors):
        store(sums, k * width, load(sums, k * width, nothing) + load(of_block, k * width, nothing))
        store(of_block, k * width, nothing)


@inner(forceinline=True)
def begin_sums(sums, of_block, n_vectors, width, nothing):
    """Zeros for all sums."""
    for k in range(n_vectors):
        store(sums, k * width, nothing)
        store(of_block, k * width, nothing)


@inner(forceinline=True)
def all_dots(basis, w, sums, of_block, n_vectors, n_rows, n_samples, first, width, alone, nothing):
    """Inner products of w with the first vectors, blocks of rows in order."""
    begin_sums(sums, of_block, n_vectors, width, nothing)
    for low in range(0, n_rows, ROW_BLOCK):
        high = min(low + ROW_BLOCK, n_rows)
        dots(
            basis, w, of_block, np.int64(0), width, n_vectors, n_rows, n_samples, first, low, high, width, alone,
            nothing,
        )  # fmt: skip
        add_sums(sums, of_block, n_vectors, width, nothing)


@inner(forceinline=True)
def add_all(basis, w, work, n_vectors, n_rows, n_samples, first, width, alone, ahead, nothing, wide):
    """w and the vectors times their factors; the new w . w.

    `ahead`: makes the inner products of the new w, too, while each run of rows is in the cache.
    """
    total, factors = nothing, work[FACTORS]
    begin_sums(work[SUMS], work[OF_BLOCK], n_vectors, width, nothing)
    for low in range(0, n_rows, ROW_BLOCK):
        high, square = min(low + ROW_BLOCK, n_rows), nothing
        for start in range(low, high, RUN // width):
            stop = min(start + RUN // width, high)
            add(
                factors, np.int64(0), width, n_vectors, basis, w, n_rows, n_samples, first, start, stop, width, alone,
                nothing, wide,
            )  # fmt: skip
            square = squared(square, w, n_samples, first, start, stop, nothing)
            if ahead:
                dots(
                    basis, w, work[OF_BLOCK], np.int64(0), width, n_vectors, n_rows, n_samples, first, start, stop,
                    width, alone, nothing,
                )  # fmt: skip
        add_sums(work[SUMS], work[OF_BLOCK], n_vectors, width, nothing)
        total = total + square
    store(work[SQUARES], 0, total)


@inner(forceinline=True)
def take_dots(columns, lengths, sums, factors, running, again, j, width, first, step):
    """Add the inner products to the column; their negatives are the factors. `again`: of samples that lost length.

    Returns how many samples are likely to lose more than half of their squared length.
    """
    n_likely = 0
    for s in range(width):
        goes = running[first + s] != 0
        if again:
            goes = lengths[STATE, s] == 1.0 and lengths[AFTER, s] < 0.5 * lengths[BEFORE, s]
        fits, some, taken = True, False, 0.0
        for k in range(j + 1):
            at = (k * width + s) * step
            finite, length = True, 0.0
            for c in range(step):
                value = np.float64(sums[at + c])
                finite, some = finite and np.isfinite(value), some or value != 0.0
                length += value * value
            taken += length
            for c in range(step):
                value = np.float64(sums[at + c])
                factors[at + c] = 0.0
                if goes and finite:
                    factors[at + c] = -value
                if goes and again:
                    columns[k, s * step + c] += value
                elif not again:
                    columns[k, s * step + c] = value
            fits = fits and finite
        if not again:
            square = np.float64(sums[((j + 1) * width + s) * step])
            below = square == 0.0 and some  # the square of w is below all numbers
            lengths[BEFORE, s], lengths[STATE, s] = square, 0.0
            if goes:
                lengths[STATE, s] = 1.0 if fits and np.isfinite(square) and not below else 2.0
                if square - taken < LIKELY * square:
                    n_likely += 1
    return n_likely


@inner(forceinline=True)
def take_length(lengths, sums, again, width, step):
    """The squared lengths after `add_all`; how many samples have lost more than half."""
    n_lost = 0
    for s in range(width):
        own = np.float64(sums[s * step])
        lost = lengths[STATE, s] == 1.0 and lengths[AFTER, s] < 0.5 * lengths[BEFORE, s]
        if not again:
            lengths[AFTER, s] = own
            if not np.isfinite(own) and lengths[STATE, s] == 1.0:
                lengths[STATE, s] = 2.0
            if lengths[STATE, s] == 1.0 and own < 0.5 * lengths[BEFORE, s]:
                n_lost += 1
        elif lost:
            lengths[AFTER, s] = own
    return n_lost


@inner(forceinline=True)
def rotate(columns, cycle, j, at, s, low, before, eps, step):
    """Reduce the column of a sample by the old rotations and a new one; its residual norm."""
    R, cosines, sines, g, length = cycle[0], cycle[1], cycle[2], cycle[3], cycle[4]
    rotate_back(columns, cosines, sines, j, at, s, step)
    own = at * step
    last, last_i = columns[j, s * step], imaginary(columns[j], s * step, step)
    larger, smaller = magnitude(last, last_i), low
    if larger < smaller:
        larger, smaller = low, magnitude(last, last_i)
    ratio = smaller / larger if larger > 0.0 else 0.0
    radius = larger * np.sqrt(1.0 + ratio * ratio)  # as every device rounds it, which hypot is not
    for i in range(j):
        put(R[i, j], own, step, columns[i, s * step], imaginary(columns[i], s * step, step))
    put(R[j, j], own, step, radius, 0.0)
    c, ci, d = last / radius, last_i / radius, low / radius
    put(cosines[j], own, step, c, ci)
    sines[j, at] = d
    value, value_i = g[j, own], imaginary(g[j], own, step)
    put(g[j + 1], own, step, value, value_i)
    if radius > ROUNDOFF * eps * before:  # else the column adds nothing to the image
        rest, rest_i = -d * value, -d * value_i
        kept, kept_i = product_parts(c, -ci, value, value_i)
        put(g[j + 1], own, step, rest, rest_i)
        put(g[j], own, step, kept, kept_i)
        length[at] = j + 1
    return magnitude(g[j + 1, own], imaginary(g[j + 1], own, step))


@inner(forceinline=True)
def decide(columns, lengths, factors, cycle, samples, j, first, width, eps, step):
    """Rotations, norms and states of the samples; the factors that make their vectors one long."""
    running, check, at_limit, state, norm = samples[0], samples[1], samples[2], samples[3], samples[4]
    for s in range(width):
        at, factor = first + s, 0.0
        if running[at] != 0:
            if lengths[STATE, s] != 1.0:
                norm[at], state[at] = np.nan, BROKEN
            else:
                size, before = np.sqrt(lengths[AFTER, s]), np.sqrt(lengths[BEFORE, s])
                ends = size <= ROUNDOFF * eps * before
                if not ends and np.isfinite(1.0 / size):
                    factor = 1.0 / size
                norm[at] = rotate(columns, cycle, j, at, s, 0.0 if ends else size, before, eps, step)
                if at_limit[at] != 0:
                    state[at] = LIMIT
                if ends:
                    state[at] = EXHAUSTED
                if norm[at] <= check[at]:
                    state[at] = CANDIDATE
        put(factors, s * step, step, factor, 0.0)


@inner(forceinline=True)
def step_of_tile(
    basis, w, work, parts, columns, lengths, cycle, samples, j, n_rows, n_samples, place, first, width, alone, step,
    eps, nothing, wide,
):  # fmt: skip
    """Orthonormalise w, the vector j + 1 of the basis, and reduce column j, of the samples from `first` on.

    Vectors hold `n_samples`, the tile's from `place` on. `parts` is `work` as real numbers.
    """
    running, ahead, goes = samples[0], False, True
    for again in range(2):  # a loop, for code that is made once
        if goes:
            if not ahead:
                all_dots(
                    basis, w, work[SUMS], work[OF_BLOCK], j + 2 - again, n_rows, n_samples, place, width, alone, nothing
                )  # fmt: skip
            n_likely = take_dots(
                columns, lengths, parts[SUMS], parts[FACTORS], running, again == 1, j, width, first, step
            )
            ahead = n_likely > 0
            add_all(basis, w, work, j + 1, n_rows, n_samples, place, width, alone, ahead, nothing, wide)
            goes = take_length(lengths, parts[SQUARES], again == 1, width, step) > 0
    decide(columns, lengths, parts[FACTORS], cycle, samples, j, first, width, eps, step)
    factor = load(work[FACTORS], 0, nothing)
    for i in range(n_rows):
        here = np.int64(i) * n_samples + place
        old = load(w, here, nothing)
        store(w, here, select(factor != nothing, old * factor, old))


@per_width
def _arnoldi_step(width: int, alone: bool, step: int) -> Any:
    @compiled
    def loop(V, j, cycle, samples, eps, all_work, all_parts, all_columns, all_lengths, n_samples, begin, n_tiles):
        for t in prange(n_tiles):
            first, n_rows, nothing = begin + np.int64(t) * width, V.shape[1], zeros(V, width)
            wide = zeros(V, ROWS_AT_ONCE)
            step_of_tile(
                V.reshape(-1), V[j + 1].reshape(-1), all_work[t], all_parts[t], all_columns[t], all_lengths[t], cycle,
                samples, j, n_rows, n_samples, first, first, width, alone, step, eps, nothing, wide,
            )  # fmt: skip

    return loop


def arnoldi_step(
    V: np.ndarray, j: int, cycle: tuple[np.ndarray, ...], samples: tuple[np.ndarray, ...], eps: float
) -> None:
    """Orthonormalise the last vector of ``V[: j + 2]``, column j of the least-squares problems.

    `cycle`: R, cosines, sines, g and lengths; `samples`: which run, norms of candidates, which have taken all their
    iterations, states and, to be written, norms.
    """
    n_samples, n_rows = V.shape[2], V.shape[0] + 1
    scalars, step = tuple(as_parts(each) for each in cycle), 2 if V.dtype.kind == "c" else 1
    runs: dict[int, list[int]] = {}
    for first, width in tiles(n_samples, widest(V)):
        runs.setdefault(width, []).append(first)
    for width, firsts in runs.items():
        work = np.empty((len(firsts), N_WORK, n_rows * width), V.dtype)
        columns, lengths = np.zeros((len(firsts), n_rows, width * step)), np.zeros((len(firsts), N_LENGTHS, width))
        loop = _arnoldi_step(width, n_samples == 1, step)
        loop(
            V, j, scalars, samples, eps, work, as_parts(work), columns, lengths, n_samples, firsts[0], len(firsts)
        )  # fmt: skip
