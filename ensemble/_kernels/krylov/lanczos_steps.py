"""Steps of Lanczos' process inside compiled loops: a row of a product, orthogonalisation against all vectors."""

from __future__ import annotations

import numpy as np

from ensemble._compile.lanes.arithmetic import lane
from ensemble._compile.lanes.types import load, splat, sqrt, store
from ensemble._compile.numba import inner

__all__ = ["INTERLEAVED", "end_of_step", "many_samples_step", "one_sample_step", "row_product"]

INTERLEAVED = 8
"""Partial sums of a block of rows; also the most samples of a tile."""

BLOCK = 128
"""Rows of a block, which the first-level cache holds for the samples of a tile."""


@inner(forceinline=True)
def of_all(s0, s1, s2, s3, s4, s5, s6, s7):
    """The sum of the partial sums."""
    return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))


@inner(forceinline=True)
def many_samples_dot(v, p, q, start, stop, width, nothing):
    """The inner product of the vectors at `p` and `q` over rows of a block, a register for each partial sum."""
    s0, s1, s2, s3, s4, s5, s6, s7 = nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing
    for i in range(start * width, stop * width, 8 * width):
        s0 = s0 + load(v, p + i + 0 * width, nothing) * load(v, q + i + 0 * width, nothing)
        s1 = s1 + load(v, p + i + 1 * width, nothing) * load(v, q + i + 1 * width, nothing)
        s2 = s2 + load(v, p + i + 2 * width, nothing) * load(v, q + i + 2 * width, nothing)
        s3 = s3 + load(v, p + i + 3 * width, nothing) * load(v, q + i + 3 * width, nothing)
        s4 = s4 + load(v, p + i + 4 * width, nothing) * load(v, q + i + 4 * width, nothing)
        s5 = s5 + load(v, p + i + 5 * width, nothing) * load(v, q + i + 5 * width, nothing)
        s6 = s6 + load(v, p + i + 6 * width, nothing) * load(v, q + i + 6 * width, nothing)
        s7 = s7 + load(v, p + i + 7 * width, nothing) * load(v, q + i + 7 * width, nothing)
    return of_all(s0, s1, s2, s3, s4, s5, s6, s7)


@inner(forceinline=True)
def one_sample_dot(v, p, q, start, stop, sums, at, nothing):
    """The same for one sample, whose rows are the lanes of `nothing`; a register of one lane."""
    total = nothing
    for i in range(start, stop, 8):
        total = total + load(v, p + i, nothing) * load(v, q + i, nothing)
    store(sums, at, total)
    return of_all(
        load(sums, at, 1), load(sums, at + 1, 1), load(sums, at + 2, 1), load(sums, at + 3, 1), load(sums, at + 4, 1),
        load(sums, at + 5, 1), load(sums, at + 6, 1), load(sums, at + 7, 1),
    )  # fmt: skip


@inner(forceinline=True)
def many_samples_step(v, given, diagonal, c, n_rows, width, base, own, j, begin, local, nothing):
    """Make vector ``j + 1`` of a tile orthonormal to those before it."""
    length = np.int64(n_rows) * width
    here, w = base + j * length, base + (j + 1) * length
    alpha = nothing
    if local:
        for start in range(0, n_rows, BLOCK):
            stop = min(start + BLOCK, n_rows)
            alpha = alpha + many_samples_dot(v, here, w, start, stop, width, nothing)
    for k in range(j + 1):
        store(c, own + k * width, nothing)
    for start in range(0, n_rows, BLOCK):
        stop = min(start + BLOCK, n_rows)
        if local:
            for k in range(begin, j):
                factor, u = load(given, own + k * width, nothing), base + k * length
                for i in range(start * width, stop * width, width):
                    store(v, w + i, load(v, w + i, nothing) - factor * load(v, u + i, nothing))
            for i in range(start * width, stop * width, width):
                store(v, w + i, load(v, w + i, nothing) - alpha * load(v, here + i, nothing))
        for k in range(j + 1):
            at = own + k * width
            part = many_samples_dot(v, base + k * length, w, start, stop, width, nothing)
            store(c, at, load(c, at, nothing) + part)
    square = nothing
    for start in range(0, n_rows, BLOCK):
        stop = min(start + BLOCK, n_rows)
        k = 0
        while k < j + 1:
            factor, u = load(c, own + k * width, nothing), base + k * length
            if k + 1 < j + 1:
                second, u1 = load(c, own + (k + 1) * width, nothing), u + length
                for i in range(start * width, stop * width, width):
                    less = load(v, w + i, nothing) - factor * load(v, u + i, nothing)
                    store(v, w + i, less - second * load(v, u1 + i, nothing))
            else:
                for i in range(start * width, stop * width, width):
                    store(v, w + i, load(v, w + i, nothing) - factor * load(v, u + i, nothing))
            k += 2
        square = square + many_samples_dot(v, w, w, start, stop, width, nothing)
    size = sqrt(square)
    if j >= 0:
        store(diagonal, own + j * width, alpha + load(c, own + j * width, nothing))
        store(given, own + j * width, size)
    for i in range(0, length, width):
        store(v, w + i, load(v, w + i, nothing) / size)


@inner(forceinline=True)
def one_sample_step(v, given, diagonal, c, sums, n_rows, width, base, own, at, j, begin, local, nothing, alone):
    """The same for one sample, whose rows are the lanes of `nothing`."""
    length = np.int64(n_rows)
    here, w = base + j * length, base + (j + 1) * length
    alpha = alone
    if local:
        for start in range(0, n_rows, BLOCK):
            stop = min(start + BLOCK, n_rows)
            alpha = alpha + one_sample_dot(v, here, w, start, stop, sums, at, nothing)
    store(c, own + j + 1, alpha)
    every = splat(c[own + j + 1], v, nothing)
    for k in range(j + 1):
        store(c, own + k, alone)
    for start in range(0, n_rows, BLOCK):
        stop = min(start + BLOCK, n_rows)
        if local:
            for k in range(begin, j):
                factor, u = splat(given[own + k], v, nothing), base + k * length
                for i in range(start, stop, width):
                    store(v, w + i, load(v, w + i, nothing) - factor * load(v, u + i, nothing))
            for i in range(start, stop, width):
                store(v, w + i, load(v, w + i, nothing) - every * load(v, here + i, nothing))
        for k in range(j + 1):
            part = one_sample_dot(v, base + k * length, w, start, stop, sums, at, nothing)
            store(c, own + k, load(c, own + k, 1) + part)
    square = alone
    for start in range(0, n_rows, BLOCK):
        stop = min(start + BLOCK, n_rows)
        k = 0
        while k < j + 1:
            factor, u = splat(c[own + k], v, nothing), base + k * length
            if k + 1 < j + 1:
                second, u1 = splat(c[own + k + 1], v, nothing), u + length
                for i in range(start, stop, width):
                    less = load(v, w + i, nothing) - factor * load(v, u + i, nothing)
                    store(v, w + i, less - second * load(v, u1 + i, nothing))
            else:
                for i in range(start, stop, width):
                    store(v, w + i, load(v, w + i, nothing) - factor * load(v, u + i, nothing))
            k += 2
        square = square + one_sample_dot(v, w, w, start, stop, sums, at, nothing)
    size = sqrt(square)
    store(c, own + j + 1, size)
    divisor = splat(c[own + j + 1], v, nothing)
    if j >= 0:
        store(diagonal, own + j, alpha + load(c, own + j, 1))
        store(given, own + j, size)
    for i in range(0, n_rows, width):
        store(v, w + i, load(v, w + i, nothing) / divisor)


@inner(forceinline=True)
def end_of_step(v, given, diagonal, c, sums, n_rows, width, alone, base, own, tile, j, first, many, rows, one):
    """Make vector ``j + 1`` of a tile orthonormal, of a basis that is extended from `first` on in one call."""
    begin = 0 if j == first else j - 1
    if alone:
        at = tile * INTERLEAVED
        one_sample_step(
            v, given, diagonal, c, sums, n_rows, INTERLEAVED, base, own, at, j, begin, True, rows, one
        )  # fmt: skip
    else:
        many_samples_step(v, given, diagonal, c, n_rows, width, base, own, j, begin, True, many)


@inner(forceinline=True)
def term(indices, values, v, here, k, at, width, nothing):
    """One entry of a matrix times a component of the vector at `here`."""
    column = np.int64(lane(load(indices, k, 1), 0))  # an index into an array is compared with zero first
    return load(values, at + k * width, nothing) * load(v, here + column * width, nothing)


@inner(forceinline=True)
def row_product(indices, values, v, here, start, stop, at, width, nothing):
    """A row of a matrix times the vector at `here`, in four partial sums, which do not wait for each other."""
    s0, s1, s2, s3 = nothing, nothing, nothing, nothing
    k = start
    while k + 4 <= stop:
        s0 = s0 + term(indices, values, v, here, k, at, width, nothing)
        s1 = s1 + term(indices, values, v, here, k + 1, at, width, nothing)
        s2 = s2 + term(indices, values, v, here, k + 2, at, width, nothing)
        s3 = s3 + term(indices, values, v, here, k + 3, at, width, nothing)
        k += 4
    while k < stop:
        s0 = s0 + term(indices, values, v, here, k, at, width, nothing)
        k += 1
    return (s0 + s2) + (s1 + s3)
