"""Whole cycles of GMRES without preconditioner in one call: products, Arnoldi's process, and the update of x.

Samples go through in tiles, each with a basis of its own that the caches hold from one iteration to the next, and that
the next tile uses again. Every sample has the numbers of single iterations (`arnoldi`): a tile ends where none of its
samples builds its basis any longer.

Bytes of an iteration and sample (float64, int32 columns, k entries a row, j vectors on the mean): ``n (8 k + 4 k /
width + 20 + 24 j)``, a pass of ``8 j`` for inner products, for sums with the inner products of the second pass, and for
its sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.types import load, select, store, zeros
from ensemble._compile.numba import compiled, empty, inner, per_width, prange, thread_count, tiles
from ensemble._kernels.krylov.arnoldi import BUILDING, FACTORS, N_LENGTHS, N_WORK, SUMS, step_of_tile
from ensemble._kernels.krylov.basis_passes import ROWS_AT_ONCE, RUN, add
from ensemble._kernels.krylov.many_iterations import copy_tile
from ensemble._kernels.krylov.rotations import imaginary, put
from ensemble._kernels.krylov.scalar_parts import as_parts, product_parts
from ensemble._kernels.krylov.tile_passes import product
from ensemble._kernels.sparse.crs import SET, scattered_few_samples

__all__ = ["run_cycles"]


@inner(forceinline=True)
def begin_cycle(cycle, samples, factors, norms, first, width, step):
    """Scalars at the begin of a cycle, and factors that make residuals one long; how many samples take part."""
    g, length, running, state = cycle[3], cycle[4], samples[0], samples[3]
    n_going = 0
    for s in range(width):
        at, factor = first + s, 0.0
        length[at], state[at] = 0, BUILDING
        for k in range(g.shape[0]):
            put(g[k], at * step, step, 0.0, 0.0)
        if running[at] != 0:
            n_going += 1
            put(g[0], at * step, step, norms[at], 0.0)
            if np.isfinite(1.0 / norms[at]):
                factor = 1.0 / norms[at]
        put(factors, s * step, step, factor, 0.0)
    return n_going


@inner(forceinline=True)
def scaled_copy(basis, r, factors, n_rows, n_samples, first, width, nothing):
    """The first vector: r times the factors, or r where they are zero."""
    factor = load(factors, 0, nothing)
    for i in range(n_rows):
        old = load(r, np.int64(i) * n_samples + first, nothing)
        store(basis, np.int64(i) * width, select(factor != nothing, old * factor, old))


@inner(forceinline=True)
def count_iteration(samples, counts, left, history, first, width):
    """Count the iteration of the samples that took part in it, and which go on; how many."""
    running, at_limit, state, norm = samples[0], samples[2], samples[3], samples[4]
    n_going = 0
    for at in range(first, first + width):
        if running[at] != 0:
            counts[at] += 1
            history[counts[at], at] = norm[at]
            at_limit[at] = 1 if counts[at] + 1 >= left[at] else 0
            if state[at] == BUILDING:
                n_going += 1
            else:
                running[at] = 0
    return n_going


@inner(forceinline=True)
def solution(cycle, factors, taken, first, width, step):
    """y from R y = g, by the columns that each sample has, as factors of the vectors; how many vectors."""
    R, g, length, most = cycle[0], cycle[3], cycle[4], 0
    for s in range(width):
        at = first + s
        own = at * step
        if taken[at] != 0:
            most = max(most, length[at])
        for k in range(R.shape[0]):
            put(factors, (k * width + s) * step, step, 0.0, 0.0)
        if taken[at] != 0:
            for back in range(length[at]):
                i = length[at] - 1 - back
                radius = R[i, i, own]
                value, value_i = g[i, own] / radius, imaginary(g[i], own, step) / radius
                if np.isfinite(value) and np.isfinite(value_i):
                    put(factors, (i * width + s) * step, step, value, value_i)
                for k in range(i):
                    a, ai = product_parts(R[k, i, own], imaginary(R[k, i], own, step), value, value_i)
                    put(g[k], own, step, g[k, own] - a, imaginary(g[k], own, step) - ai)
    return most


@inner(forceinline=True)
def add_solution(basis, w, x, factors, ones, n_vectors, n_rows, n_samples, first, width, alone, nothing, wide):
    """x += the sum of the vectors times their factors, of the samples of `ones`."""
    moves = load(ones, 0, nothing)
    for low in range(0, n_rows, RUN // width):
        high = min(low + RUN // width, n_rows)
        for i in range(low, high):
            store(w, np.int64(i) * width, nothing)
        add(
            factors, np.int64(0), width, n_vectors, basis, w, n_rows, width, 0, low, high, width, alone, nothing, wide
        )  # fmt: skip
        for i in range(low, high):
            here = np.int64(i) * n_samples + first
            old = load(x, here, nothing)
            store(x, here, select(moves != nothing, old + moves * load(w, np.int64(i) * width, nothing), old))


@per_width
def _cycles(width: int, shared: bool, copied: bool, ahead: bool, step: int) -> Any:
    @compiled
    def loop(
        indptr, indices, values, own_values, r, x, bases, all_work, all_parts, all_columns, all_lengths, cycle,
        samples, counts, left, history, norms, taken, restart, eps, n_samples, begin, n_tiles,
    ):  # fmt: skip
        for t in prange(n_tiles):
            first, n_rows = begin + np.int64(t) * width, indptr.size - 1
            nothing, wide = zeros(r, width), zeros(r, ROWS_AT_ONCE)
            basis, work, parts = bases[t], all_work[t], all_parts[t]
            entries = values if shared else own_values[t]
            if copied and not shared:
                copy_tile(values, entries, indices.size, width, n_samples, first, width, 0, nothing)
            going = begin_cycle(cycle, samples, parts[FACTORS], norms, first, width, step)
            scaled_copy(basis[0], r, work[FACTORS], n_rows, n_samples, first, width, nothing)
            j = np.int64(0)
            while going > 0 and j < restart:
                product(indptr, indices, entries, basis[j], basis[j + 1], 0, n_rows, width, shared, ahead, SET, nothing)
                step_of_tile(
                    basis.reshape(-1), basis[j + 1], work, parts, all_columns[t], all_lengths[t], cycle, samples, j,
                    n_rows, width, 0, first, width, width == 1, step, eps, nothing, wide,
                )  # fmt: skip
                going = count_iteration(samples, counts, left, history, first, width)
                j += 1
            n_vectors = solution(cycle, parts[FACTORS], taken, first, width, step)
            for s in range(width):
                has = 1.0 if taken[first + s] != 0 and cycle[4][first + s] > 0 else 0.0
                put(parts[SUMS], s * step, step, has, 0.0)
            add_solution(
                basis.reshape(-1), basis[restart + 1], x, work[FACTORS], work[SUMS], n_vectors, n_rows, n_samples,
                first, width, width == 1, nothing, wide,
            )  # fmt: skip

    return loop


def run_cycles(
    A: tuple[Any, ...], r: np.ndarray, x: np.ndarray, cycle: tuple[np.ndarray, ...], samples: tuple[np.ndarray, ...],
    left: np.ndarray, norms: np.ndarray, eps: float, widest: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """One cycle of each sample that runs, of at most so many iterations as it has `left`, and the new x.

    `cycle` and `samples` as `arnoldi_step` takes them, `norms` those of r. Returns the iterations of each sample and
    their norms, shape (restart + 1, n_samples).
    """
    indptr, indices, values = A
    (n_rows, n_samples), restart, step = r.shape, cycle[0].shape[0], 2 if r.dtype.kind == "c" else 1
    shared, scalars, taken = values.shape[1] != n_samples, tuple(as_parts(each) for each in cycle), samples[0].copy()
    counts, history = np.zeros(n_samples, np.int64), np.full((restart + 1, n_samples), np.nan)
    ahead = n_samples == 1 and scattered_few_samples(indptr, indices, values, x)
    runs: dict[int, list[int]] = {}
    for first, width in tiles(n_samples, widest):
        runs.setdefault(width, []).append(first)
    for width, firsts in runs.items():
        at_once = min(len(firsts), max(thread_count(), 1))
        bases = empty((at_once, restart + 2, n_rows * width), r.dtype)
        entries = values.reshape(1, -1)
        if n_samples > 1:
            entries = empty((at_once, 1 if shared else values.shape[0] * width), r.dtype)
        work = np.empty((at_once, N_WORK, (restart + 2) * width), r.dtype)
        columns = np.zeros((at_once, restart + 2, width * step))
        loop = _cycles(width, shared, n_samples > 1, ahead, step)
        for k in range(0, len(firsts), at_once):
            loop(
                indptr, indices, values.reshape(-1), entries, r.reshape(-1), x.reshape(-1), bases, work, as_parts(work),
                columns, np.zeros((at_once, N_LENGTHS, width)), scalars, samples, counts, left, history, norms, taken,
                restart, eps, n_samples, firsts[k], min(at_once, len(firsts) - k),
            )  # fmt: skip
    return counts, history
