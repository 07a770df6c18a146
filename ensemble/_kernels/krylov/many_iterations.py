"""Many iterations of a Krylov method in one call: products, vector updates, and the scalars of each sample.

Samples are iterated in tiles that a cache holds, copied there and back. A tile goes on until fewer than
half of its samples do: the others need a decision that is not of a plain iteration, or have taken the iterations of
this call. All sums have the order of the kernels for single iterations, and scalars are rounded as NumPy rounds them:
vectors have the bits of single iterations. The iteration of each method is in a module of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.types import load, store, zeros
from ensemble._compile.numba import compiled, empty, inner, per_width, prange, thread_count, tiles
from ensemble._kernels.krylov.bicgstab_iterations import IMAGINARY, bicgstab_iteration
from ensemble._kernels.krylov.cg_iterations import CG_ROWS, cg_iteration
from ensemble._kernels.krylov.minres_iterations import MINRES_ROWS, minres_iteration
from ensemble._kernels.krylov.scalar_parts import as_parts
from ensemble._kernels.krylov.tile_passes import CODES, COUNTS, LANES, LEFT, PHASES, RUNNING
from ensemble._kernels.sparse.crs import scattered_few_samples

__all__ = ["BICGSTAB", "CG", "MINRES", "ManyIterations", "copy_tile", "many_iterations", "tile_width"]

CG, BICGSTAB, MINRES = range(3)
"""Methods."""

ROWS = {CG: CG_ROWS, BICGSTAB: 2 * IMAGINARY, MINRES: len(MINRES_ROWS)}
"""Numbers of each sample."""

N_LANES = 9
"""Coefficients of a tile, at most."""

CACHE = 1 << 24
"""Bytes of a tile: third-level caches hold them."""

ROW = 64
"""Bytes of a row of a vector: tiles of eight complex numbers of 16 bytes take as long, and longer in a shared
cache (`benchmarks complex`)."""


@inner(forceinline=True)
def going_samples(scalars, first, width):
    """How many samples of a tile go on."""
    counts, codes, phases, left = scalars[COUNTS], scalars[CODES], scalars[PHASES], scalars[LEFT]
    n_going = 0
    for at in range(first, first + width):
        if codes[at] == RUNNING and (phases[at] > 0 or counts[at] < left[at]):
            n_going += 1
    return n_going


@inner(forceinline=True)
def copy_tile(source, out, n, width, source_stride, source_first, out_stride, out_first, nothing):
    """The samples of a tile, from one array of `n` rows to another, each with its stride and first sample."""
    for i in range(n):
        store(out, i * out_stride + out_first, load(source, i * source_stride + source_first, nothing))


@per_width
def _many_iterations(method: int, width: int, shared: bool, copied: bool, ahead: bool) -> Any:
    @compiled
    def loop(
        indptr, indices, values, vectors, own_values, own, best, scalars, eps, all_lanes, all_parts, n_samples, begin,
        n_tiles,
    ):  # fmt: skip
        for t in prange(n_tiles):
            first, n_rows = begin + np.int64(t) * width, indptr.size - 1
            nothing, wide = zeros(values, width), zeros(values, LANES)
            lanes, parts = all_lanes[t], all_parts[t]
            entries = values if shared else own_values[t]
            if copied:
                for k in range(len(vectors)):
                    copy_tile(vectors[k], own[k][t], n_rows, width, n_samples, first, width, 0, nothing)
                if not shared:
                    copy_tile(values, entries, indices.size, width, n_samples, first, width, 0, nothing)
            started = going_samples(scalars, first, width)
            going = started
            while going > 0 and 2 * going >= started:
                if method == CG:
                    tile = own[0][t], own[1][t], own[2][t], own[3][t]
                    cg_iteration(
                        indptr, indices, entries, tile, lanes, parts, scalars, first, n_rows, width, shared, ahead,
                        nothing, wide,
                    )  # fmt: skip
                elif method == BICGSTAB:
                    six = own[0][t], own[1][t], own[2][t], own[3][t], own[4][t], own[5][t]
                    bicgstab_iteration(
                        indptr, indices, entries, six, best, lanes, parts, scalars, eps, first, n_rows, n_samples,
                        width, shared, ahead, nothing, wide,
                    )  # fmt: skip
                else:
                    seven = own[0][t], own[1][t], own[2][t], own[3][t], own[4][t], own[5][t], own[6][t]
                    minres_iteration(
                        indptr, indices, entries, seven, best, lanes, parts, scalars, eps, first, n_rows,
                        n_samples, width, shared, ahead, nothing, wide,
                    )  # fmt: skip
                going = going_samples(scalars, first, width)
            if copied:
                for m in range(len(vectors)):
                    copy_tile(own[m][t], vectors[m], n_rows, width, width, 0, n_samples, first, nothing)

    return loop


def tile_width(indptr: np.ndarray, values: np.ndarray, n_samples: int, n_vectors: int, most: int) -> int:
    """The most samples of a tile, up to `most`, that the cache holds, with the graph and its vectors; 0 for none.

    Tiles of fewer than four of several samples take longer than all samples side by side.
    """
    n_rows, nnz = indptr.size - 1, values.shape[0]
    fixed = nnz * 4 + n_rows * indptr.itemsize
    each = (n_vectors * n_rows + (nnz if values.shape[1] == n_samples else 0)) * values.itemsize
    widths = (8, 4) if n_samples >= 4 else (n_samples // 2 * 2,)
    most = min(most, ROW // values.itemsize)
    return max((w for w in widths if w <= most and fixed + w * each <= CACHE), default=0)


class ManyIterations:
    """The scalars of samples between two calls of `many_iterations`.

    Attributes
    ----------
    numbers : array, shape (n_rows, n_samples)
        Those of the method, see its module.
    norms : float64 array, shape (5, n_samples)
        Norms at which a decision is due, the least, the last, that of the kept iterate; whether a recurrence begins
        again.
    history : float64 array, shape (most + 1, n_samples)
        Norms of the iterations of this call, behind the last one of the call before.
    counts, codes, phases, left, before : int64 arrays, shape (n_samples,)
        Iterations of this call, what each sample does, where in its iteration it stands, iterations that it may take,
        and those that it took before.
    """

    def __init__(self, method: int, n_samples: int, dtype: Any, most: int) -> None:
        self.numbers, self.norms = np.zeros((ROWS[method], n_samples), dtype), np.zeros((5, n_samples))
        self.history = np.full((most + 1, n_samples), np.nan)
        self.counts, self.codes, self.phases, self.left, self.before = np.zeros((5, n_samples), np.int64)

    def arrays(self) -> tuple[np.ndarray, ...]:
        """The scalars as compiled code takes them."""
        return (
            self.numbers, self.norms, self.history, self.counts, self.codes, self.phases, self.left, self.before
        )  # fmt: skip


def many_iterations(
    method: int, A: tuple[Any, ...], vectors: tuple[np.ndarray, ...], scratch: np.ndarray, best: np.ndarray,
    run: ManyIterations, eps: float, widest: int,
) -> None:  # fmt: skip
    """At most as many iterations of each sample as it has left, with tiles of at most `widest` samples.

    `vectors` are those that the method's module names, `best` the kept iterates.
    """
    indptr, indices, values = A
    n_rows, n_samples = scratch.shape
    shared, flat, kept = values.shape[1] != n_samples, tuple(each.reshape(-1) for each in vectors), best.reshape(-1)
    if n_samples == 1:
        own = tuple(each.reshape(1, -1) for each in (*vectors, scratch))
        lanes = np.zeros((1, N_LANES, LANES), scratch.dtype)
        loop = _many_iterations(method, 1, False, False, scattered_few_samples(indptr, indices, values, scratch))
        loop(
            indptr, indices, values.reshape(-1), flat, values.reshape(1, -1), own, kept, run.arrays(), eps, lanes,
            as_parts(lanes), 1, 0, 1,
        )  # fmt: skip
        return
    runs: dict[int, list[int]] = {}
    for first, width in tiles(n_samples, widest):
        runs.setdefault(width, []).append(first)
    for width, firsts in runs.items():
        at_once = min(len(firsts), max(thread_count(), 1))
        own = tuple(empty((at_once, n_rows * width), scratch.dtype) for _ in range(len(vectors) + 1))
        entries = empty((at_once, 1 if shared else values.shape[0] * width), scratch.dtype)
        lanes = np.zeros((at_once, N_LANES, LANES), scratch.dtype)
        loop = _many_iterations(method, width, shared, True, False)
        for k in range(0, len(firsts), at_once):
            n_tiles = min(at_once, len(firsts) - k)
            loop(
                indptr, indices, values.reshape(-1), flat, entries, own, kept, run.arrays(), eps, lanes,
                as_parts(lanes), n_samples, firsts[k], n_tiles,
            )  # fmt: skip
