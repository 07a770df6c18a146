"""Many iterations of conjugate gradients in one call: products, vector updates, and the scalars of each sample.

Samples are iterated in tiles that a second-level cache holds, copied there and back, each tile until its samples need a
decision that is not of a plain iteration. All sums have the order of `spmv_dot` and `cg_update`, and scalars are
rounded as NumPy rounds them: vectors have the bits of single iterations.

Bytes of an iteration and sample (float64, int32 columns, k entries a row): ``n (8 k + 4 k / width + 4 + 88)``: 5 k
values and columns, p twice and q for the product, q, p, x, r to update x and r, r and p for the direction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.types import load, select, store, zeros
from ensemble._compile.numba import ROW_BLOCK, compiled, empty, inner, per_width, prange, thread_count, tiles
from ensemble._kernels.sparse.crs import DOT, FEW_SAMPLES, few_sample_rows, row_product

__all__ = ["BROKEN", "DUE", "RESTS", "RUNNING", "CgRun", "cg_iterations", "tile_width"]

RUNNING, BROKEN, DUE, RESTS = range(4)
"""What a sample does after the call: goes on, has an inner product that is no positive number, needs a decision about
its last iterate, or does not take part."""

CHECK, LEAST, LAST, BEST, FRESH = range(5)
"""Rows of `CgRun.norms`."""

LANES, TOGETHER = 8, 4
"""Numbers of a register, blocks of rows that are summed at a time."""

CACHE = 7 << 18
"""Bytes of a tile: second-level caches of 2 MiB hold it."""


@inner(forceinline=True)
def block_square(r, low, high, width, nothing):
    """The sum of squares of rows `low` to `high`."""
    total = nothing
    for i in range(low, high):
        v = load(r, i * width, nothing)
        total = total + v * v
    return total


@inner(forceinline=True)
def update(alpha, p, q, x, r, low, high, width, nothing, wide):
    """x += alpha p, r -= alpha q in rows `low` to `high`; nothing of a sample whose `alpha` is zero."""
    stop = low * width + (high - low) * width // LANES * LANES
    step = load(alpha, 0, wide)
    moving = step != wide
    for i in range(low * width, stop, LANES):
        old_x, old_r = load(x, i, wide), load(r, i, wide)
        store(x, i, select(moving, old_x + step * load(p, i, wide), old_x))
        store(r, i, select(moving, old_r - step * load(q, i, wide), old_r))
    some = load(alpha, 0, nothing)
    moves = some != nothing
    for i in range(stop, high * width, width):
        one_x, one_r = load(x, i, nothing), load(r, i, nothing)
        store(x, i, select(moves, one_x + some * load(p, i, nothing), one_x))
        store(r, i, select(moves, one_r - some * load(q, i, nothing), one_r))


@inner(forceinline=True)
def update_with_squares(alpha, p, q, x, r, n_rows, width, nothing, wide):
    """`update` of all rows; the new r . r: blocks in order, `TOGETHER` at a time, whose sums do not wait."""
    total, n_whole = nothing, n_rows // ROW_BLOCK
    for b in range(0, n_whole, TOGETHER):
        low, last = np.int64(b) * ROW_BLOCK, np.int64(n_whole - 1)
        update(alpha, p, q, x, r, low, min(b + TOGETHER, n_whole) * ROW_BLOCK, width, nothing, wide)
        b1, b2, b3 = min(b + 1, last) - b, min(b + 2, last) - b, min(b + 3, last) - b
        p1, p2, p3 = b1 * ROW_BLOCK * width, b2 * ROW_BLOCK * width, b3 * ROW_BLOCK * width
        s0, s1, s2, s3 = nothing, nothing, nothing, nothing
        for i in range(low * width, (low + ROW_BLOCK) * width, width):
            v0, v1, v2 = load(r, i, nothing), load(r, i + p1, nothing), load(r, i + p2, nothing)
            v3 = load(r, i + p3, nothing)
            s0 = s0 + v0 * v0
            s1 = s1 + v1 * v1
            s2 = s2 + v2 * v2
            s3 = s3 + v3 * v3
        total = total + s0
        if b + 1 < n_whole:
            total = total + s1
        if b + 2 < n_whole:
            total = total + s2
        if b + 3 < n_whole:
            total = total + s3
    low = n_whole * ROW_BLOCK
    if low < n_rows:
        update(alpha, p, q, x, r, low, n_rows, width, nothing, wide)
        total = total + block_square(r, low, n_rows, width, nothing)
    return total


@inner(forceinline=True)
def direction(beta, goes, z, p, n_rows, width, nothing, wide):
    """p = z + beta p, or z where beta is zero, in the samples where `goes` is not zero."""
    stop = n_rows * width // LANES * LANES
    factor, moving = load(beta, 0, wide), load(goes, 0, wide) != wide
    keeps = factor != wide
    for i in range(0, stop, LANES):
        new, old = load(z, i, wide), load(p, i, wide)
        store(p, i, select(moving, select(keeps, new + factor * old, new), old))
    some, moves = load(beta, 0, nothing), load(goes, 0, nothing) != nothing
    kept = some != nothing
    for i in range(stop, n_rows * width, width):
        one, before = load(z, i, nothing), load(p, i, nothing)
        store(p, i, select(moves, select(kept, one + some * before, one), before))


@inner(forceinline=True)
def product_with_dot(indptr, indices, values, p, q, n_rows, width, shared, nothing):
    """q = A p; p . q, blocks of rows in order."""
    total = nothing
    for low in range(0, n_rows, ROW_BLOCK):
        high = min(low + ROW_BLOCK, n_rows)
        if width == 1 or (width <= FEW_SAMPLES and not shared):
            part = few_sample_rows(indptr, indices, values, p, p, q, width, False, np.int64(DOT), low, high, nothing)
        else:
            part = nothing
            for i in range(low, high):
                row = row_product(indptr, indices, values, p, i, width, 0, shared, False, nothing)
                store(q, np.int64(i) * width, row)
                part = part + load(p, np.int64(i) * width, nothing) * row
        total = total + part
    return total


@inner(forceinline=True)
def begin_iteration(numbers, norms, codes, beta, goes, first, width):
    """beta of each sample from r . r; how many go on."""
    n_going = 0
    for s in range(width):
        at = first + s
        if codes[at] == RUNNING:
            square = numbers[1, at]
            if not (np.isfinite(square) and square > 0.0):
                codes[at] = BROKEN
        for k in range(s, LANES, width):
            beta[k] = 0.0
            goes[k] = 0.0
        if codes[at] == RUNNING:
            n_going += 1
            for k in range(s, LANES, width):
                goes[k] = 1.0
                if norms[FRESH, at] == 0.0:
                    beta[k] = numbers[1, at] / numbers[0, at]
            numbers[0, at] = numbers[1, at]
            norms[FRESH, at] = 0.0
    return n_going


@inner(forceinline=True)
def step_lengths(numbers, codes, pq, alpha, first, width):
    """alpha of each sample from p . q."""
    for s in range(width):
        at = first + s
        for k in range(s, LANES, width):
            alpha[k] = 0.0
        if codes[at] == RUNNING:
            square = pq[s]
            length = numbers[0, at] / square
            if np.isfinite(square) and square > 0.0 and np.isfinite(length):
                numbers[2, at] = length
                for k in range(s, LANES, width):
                    alpha[k] = length
            else:
                codes[at] = BROKEN


@inner(forceinline=True)
def end_iteration(numbers, norms, history, counts, codes, squares, first, width):
    """Norms of the new residuals, and which samples need a decision."""
    for s in range(width):
        at = first + s
        if codes[at] == RUNNING:
            numbers[1, at] = squares[s]
            norm = np.sqrt(np.float64(squares[s]))
            history[counts[at], at] = norm
            counts[at] += 1
            least, last = norms[LEAST, at], norms[LAST, at]
            leaves = norm > 2.0 * least and last <= 2.0 * least and last <= 0.5 * norms[BEST, at]
            if leaves or norm <= norms[CHECK, at] or not np.isfinite(norm):
                codes[at] = DUE
            else:
                norms[LEAST, at] = min(least, norm)
                norms[LAST, at] = norm


@per_width
def _cg_iterations(width: int, shared: bool, copied: bool) -> Any:
    @compiled
    def loop(
        indptr, indices, values, x, r, p, own_values, own_x, own_r, own_p, own_q, numbers, norms, history, counts, most,
        codes, lanes, n_samples, begin, n_tiles,
    ):  # fmt: skip
        for t in prange(n_tiles):
            first, n_rows, nothing, wide = (
                begin + np.int64(t) * width,
                indptr.size - 1,
                zeros(x, width),
                zeros(x, LANES),
            )
            tx, tr, tp, tq = own_x[t], own_r[t], own_p[t], own_q[t]
            entries = values if shared else own_values[t]
            alpha, beta, goes, sums = lanes[t, 0], lanes[t, 1], lanes[t, 2], lanes[t, 3]
            if copied:
                for i in range(n_rows):
                    store(tx, i * width, load(x, i * n_samples + first, nothing))
                    store(tr, i * width, load(r, i * n_samples + first, nothing))
                    store(tp, i * width, load(p, i * n_samples + first, nothing))
                if not shared:
                    for k in range(indices.size):
                        store(entries, k * width, load(values, k * n_samples + first, nothing))
            step = 0
            while step < most:
                step += 1
                if begin_iteration(numbers, norms, codes, beta, goes, first, width) == 0:
                    step = most
                else:
                    direction(beta, goes, tr, tp, n_rows, width, nothing, wide)
                    pq = product_with_dot(indptr, indices, entries, tp, tq, n_rows, width, shared, nothing)
                    store(sums, 0, pq)
                    step_lengths(numbers, codes, sums, alpha, first, width)
                    store(sums, 0, update_with_squares(alpha, tp, tq, tx, tr, n_rows, width, nothing, wide))
                    end_iteration(numbers, norms, history, counts, codes, sums, first, width)
            if copied:
                for i in range(n_rows):
                    store(x, i * n_samples + first, load(tx, i * width, nothing))
                    store(r, i * n_samples + first, load(tr, i * width, nothing))
                    store(p, i * n_samples + first, load(tp, i * width, nothing))

    return loop


def tile_width(indptr: np.ndarray, values: np.ndarray, n_samples: int) -> int:
    """The most samples of a tile that the cache holds, with the graph and four vectors; 0 if it holds no two.

    Tiles of one of several samples take longer than all samples side by side.
    """
    n_rows, nnz = indptr.size - 1, values.shape[0]
    fixed = nnz * 4 + n_rows * indptr.itemsize
    each = (4 * n_rows + (nnz if values.shape[1] == n_samples else 0)) * values.itemsize
    return max((w for w in (8, 4, 2) if w <= n_samples and fixed + w * each <= CACHE), default=0)


class CgRun:
    """The scalars of samples between two calls of `cg_iterations`.

    Attributes
    ----------
    numbers : array, shape (3, n_samples)
        The r . r that led to the last direction, the present one, and the last step length, in the vectors' type.
    norms : float64 array, shape (5, n_samples)
        Norms at which a decision is due, the least, the last, that of the kept iterate; whether a space begins.
    history : float64 array, shape (most, n_samples)
        Norms of the iterations of this call.
    counts, codes : int64 arrays, shape (n_samples,)
        Iterations of this call, and what each sample does.
    """

    def __init__(self, n_samples: int, dtype: Any, most: int) -> None:
        self.numbers, self.norms = np.zeros((3, n_samples), dtype), np.zeros((5, n_samples))
        self.history = np.full((most, n_samples), np.nan)
        self.counts, self.codes = np.zeros(n_samples, np.int64), np.zeros(n_samples, np.int64)


def cg_iterations(
    A: tuple[Any, ...], x: np.ndarray, r: np.ndarray, p: np.ndarray, q: np.ndarray, run: CgRun, widest: int
) -> None:
    """At most as many iterations as `run.history` has rows, with tiles of at most `widest` samples; q is scratch."""
    indptr, indices, values = A
    n_rows, n_samples = x.shape
    shared, vectors = values.shape[1] != n_samples, [each.reshape(-1) for each in (values, x, r, p)]
    scalars = run.numbers, run.norms, run.history, run.counts, len(run.history), run.codes
    if n_samples == 1:
        own = [each.reshape(1, -1) for each in (values, x, r, p, q)]
        lanes = np.zeros((1, 4, LANES), x.dtype)
        _cg_iterations(1, False, False)(indptr, indices, *vectors, *own, *scalars, lanes, 1, 0, 1)
        return
    runs: dict[int, list[int]] = {}
    for first, width in tiles(n_samples, widest):
        runs.setdefault(width, []).append(first)
    for width, firsts in runs.items():
        at_once = min(len(firsts), max(thread_count(), 1))
        own = [empty((at_once, n_rows * width), x.dtype) for _ in range(4)]
        entries = empty((at_once, 1 if shared else values.shape[0] * width), x.dtype)
        lanes = np.zeros((at_once, 4, LANES), x.dtype)
        loop = _cg_iterations(width, shared, True)
        for k in range(0, len(firsts), at_once):
            n_tiles = min(at_once, len(firsts) - k)
            loop(indptr, indices, *vectors, entries, *own, *scalars, lanes, n_samples, firsts[k], n_tiles)
