"""The residual of a linear system and the backward errors of its solution, row by row, in one pass over the matrix.

Bytes that must move are those of a residual; the vector is read once more for its largest entry.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda, device
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.lanes.arithmetic import absolute
from ensemble._compile.lanes.types import load, select, splat, store, zeros
from ensemble._compile.numba import compiled, per_width, prange, tiles
from ensemble._compile.registry import kernel
from ensemble._kernels.sparse.crs import row_sum

__all__ = ["backward_error"]

WIDEST = 32
"""Samples of a tile."""

MOST_THREADS, WIDE = 512, 32
"""Threads of a block, as in backward_error.cu, and samples of one."""

CUDA = cuda.KernelModule("krylov/backward_error", ["backward_error"], only=cuda.Layout("double", 1, 1, 1))

U = np.uint64  # an unsigned index needs no test for a negative one


@kernel
def backward_error(indptr, indices, values, x, b, inverse):
    """r = b - A x, and per sample the backward errors by rows and by entries; NaN where a number is not finite.

    By rows: the largest ``|r_i| / (sum_j |a_ij| max_j |x_j| + |b_i|)``, the least change, relative to the norm of each
    row and to each b_i, that makes x exact (Oettli, Prager 1964). By entries: the largest
    ``|r_i| / (sum_j |a_ij| |x_j| + |b_i|)``, the least change relative to each entry of A and b.

    The last result is the largest ``|inverse_i| sum_j |a_ij|`` that is no NaN, with the reciprocal of each row's pivot;
    zero where `inverse` has no rows.
    """
    xp = array_namespace(values, x)
    r = b - row_sum(indptr, indices, values, x)
    largest = xp.max(xp.abs(x), axis=0) if x.shape[0] else xp.zeros(x.shape[1:], dtype=x.dtype)
    magnitudes, none = xp.abs(values), xp.zeros(x.shape[1:], dtype=x.dtype)
    sums = row_sum(indptr, indices, magnitudes, xp.ones_like(x))
    rows = sums * largest + xp.abs(b)
    entries = row_sum(indptr, indices, magnitudes, xp.abs(x)) + xp.abs(b)
    errors = []
    for sizes in (rows, entries):
        ratio = xp.where(r == 0, xp.zeros_like(r), xp.abs(r) / sizes)
        ratio = ratio + ((r - r) + (rows - rows))
        errors.append(xp.max(ratio, axis=0) if x.shape[0] else none)
    if not inverse.shape[0]:
        return r, *errors, none
    size = xp.abs(inverse) * sums
    return r, *errors, xp.max(xp.where(size == size, size, xp.zeros_like(size)), axis=0)


@per_width
def _backward_error(width, shared):
    @compiled
    def loop(
        indptr, indices, values, x, b, inverse, r, by_rows, by_entries, cancelled, n_samples, begin, n_tiles
    ):  # fmt: skip
        for tile in prange(n_tiles):
            nothing = zeros(x, width)
            first = begin + np.int64(tile) * width
            largest, most, worst, least, check = nothing, nothing, nothing, nothing, nothing
            n_rows = indptr.size - 1
            for i in range(n_rows):
                value = absolute(load(x, i * n_samples + first, nothing))
                largest = select(value > largest, value, largest)
            for i in range(n_rows):
                total, size, weight = nothing, nothing, nothing
                for k in range(U(indptr[i]), U(indptr[i + 1])):
                    if shared:
                        entry = splat(values[k], values, nothing)
                    else:
                        entry = load(values, np.int64(k) * n_samples + first, nothing)
                    part = load(x, np.int64(indices[k]) * n_samples + first, nothing)
                    total = total + entry * part
                    entry = absolute(entry)
                    size = size + entry
                    weight = weight + entry * absolute(part)
                right = load(b, i * n_samples + first, nothing)
                total = right - total
                store(r, i * n_samples + first, total)
                right = absolute(right)
                if inverse.size:
                    if shared:
                        ratio = size * absolute(splat(inverse[i], values, nothing))
                    else:
                        ratio = size * absolute(load(inverse, i * n_samples + first, nothing))
                    least = select(ratio > least, ratio, least)
                size = size * largest + right
                check = check + ((total - total) + (size - size))
                total = absolute(total)
                ratio = select(total == 0.0, nothing, total / size)
                most = select(ratio > most, ratio, most)
                ratio = select(total == 0.0, nothing, total / (weight + right))
                worst = select(ratio > worst, ratio, worst)
            store(by_rows, first, most + check)
            store(by_entries, first, worst + check)
            store(cancelled, first, least)

    return loop


@backward_error.register("numba")
def _(indptr, indices, values, x, b, inverse):
    n_samples = x.shape[1]
    r, errors = empty_like(x), np.zeros((3, n_samples), x.dtype)
    for first, width in tiles(n_samples, WIDEST):
        loop = _backward_error(width, values.shape[1] != n_samples)
        loop(
            indptr, indices, values.reshape(-1), x.reshape(-1), b.reshape(-1), inverse.reshape(-1), r.reshape(-1),
            *errors, n_samples, first, 1,
        )  # fmt: skip
    return r, *errors


@backward_error.register("cuda")
def _(indptr, indices, values, x, b, inverse):
    n_rows, n_samples = x.shape
    r, errors = empty_like(x), [empty_like(x, (n_samples,)) for _ in range(3)]
    lanes = device.lanes_of(n_samples, 1, x)
    layout = cuda.Layout("double" if x.dtype.itemsize == 8 else "float", 1, 1, 1)
    shared = values.shape[1] == 1 and n_samples != 1
    counts = (np.int32(n_rows), np.int32(shared), np.int32(n_samples), np.int32(inverse.shape[0] > 0))
    arguments = (indptr, indices, values, x, b, inverse, r, *errors, *counts)
    threads = lanes, max(1, min(MOST_THREADS // lanes, n_rows))
    CUDA.launch("backward_error", layout, (-(-n_samples // lanes),), threads, arguments, cuda.is_wide(indptr))
    return r, *errors
