"""Matrices in one working array: products in register tiles, triangles, copies; and where series lie in memory.

A matrix is (array, offset, stride of rows); rows are padded to whole registers. Every entry is made of the same
operations in the same order as where steps are written out, so it has the same bits (a sum that starts at zero is its
first product).
"""

from __future__ import annotations

import numpy as np

from ensemble._kernels._compile import inner, spliced
from ensemble._kernels._lane_arithmetic import any_lane, fma
from ensemble._kernels._lane_tiles import address, reflect_tile, tile, transpose_tile
from ensemble._kernels._lanes import ROW_BYTES, called, load, prefetch, register_of, store

__all__ = [
    "add_row",
    "added",
    "copy",
    "copy_transposed",
    "entry",
    "factor",
    "fetch",
    "fill",
    "is_same",
    "mirror",
    "move",
    "negate",
    "padded",
    "product",
    "scaled_row",
    "start",
    "steps",
    "transposed_rows",
]


# --- matrices
@spliced
def padded(n, like):
    """`n` rounded up to whole registers."""
    width = ROW_BYTES // like.itemsize
    return (n + width - 1) // width * width


@spliced
def entry(A, i):
    """``A[i]`` without the test for a negative index."""
    return A[np.uint64(i)]


@spliced
def product(A, a, by_row, by_inner, B, b, C, c, base, stride, rows, inner, upper):
    """C as ``A B`` added to the matrix that starts at `base` in C's array, to zero where `base` is negative.

    Rows of B and C are `stride` apart. With `upper` without the registers left of the diagonal.
    """
    width = ROW_BYTES // C.itemsize
    _product(address(A), a, by_row, by_inner, address(B), b, address(C), c, base, stride, rows, inner, upper, width)


@inner
def _product(A, a, by_row, by_inner, B, b, C, c, base, stride, rows, inner, upper, width):
    called()
    i = 0
    while i < rows:
        many = 4 if rows - i >= 4 else 1
        j, at = i // width * width if upper else 0, a + i * by_row
        while j < stride:
            left, to = (stride - j) // width, c + i * stride + j
            old = base + i * stride + j if base >= 0 else -1
            registers = left if left < 3 else 2 if left == 4 else 3
            if many == 4:
                if registers == 3:
                    tile(A, at, by_row, by_inner, B, b + j, inner, C, to, old, stride, 4, 3)
                elif registers == 2:
                    tile(A, at, by_row, by_inner, B, b + j, inner, C, to, old, stride, 4, 2)
                else:
                    tile(A, at, by_row, by_inner, B, b + j, inner, C, to, old, stride, 4, 1)
            elif registers == 3:
                tile(A, at, by_row, by_inner, B, b + j, inner, C, to, old, stride, 1, 3)
            elif registers == 2:
                tile(A, at, by_row, by_inner, B, b + j, inner, C, to, old, stride, 1, 2)
            else:
                tile(A, at, by_row, by_inner, B, b + j, inner, C, to, old, stride, 1, 1)
            j += registers * width
        i += many


@inner
def add_row(x, B, b, C, c, stride):
    """Add x times a row of B to a row of C."""
    called()
    kind, width = register_of(C), ROW_BYTES // C.itemsize
    for j in range(0, stride, width):
        store(C, c + j, fma(load(B, b + j, kind), x, load(C, c + j, kind)))


@inner
def scaled_row(x, B, b, C, c, stride):
    """A row of C as x times a row of B."""
    called()
    kind, width = register_of(C), ROW_BYTES // C.itemsize
    for j in range(0, stride, width):
        store(C, c + j, load(B, b + j, kind) * x)


@inner
def copy(A, a, by_row, rows, columns, C, c, stride):
    """Rows of A, `by_row` apart, to rows of C, `stride` apart."""
    called()
    kind, width = register_of(C), ROW_BYTES // C.itemsize
    for i in range(rows):
        at, to = a + i * by_row, c + i * stride
        for j in range(0, columns - width + 1, width):
            store(C, to + j, load(A, at + j, kind))
        for j in range(columns // width * width, columns):
            store(C, to + j, load(A, at + j, 1))


@inner
def copy_transposed(A, a, by_row, rows, columns, C, c, stride):
    called()
    width = ROW_BYTES // C.itemsize
    whole, side = rows // width * width, columns // width * width
    for i in range(0, whole, width):
        for j in range(0, side, width):
            transpose_tile(A, a + i * by_row + j, by_row, C, c + j * stride + i, stride)
        for j in range(side, columns):
            for k in range(i, i + width):
                store(C, c + j * stride + k, load(A, a + k * by_row + j, 1))
    for i in range(whole, rows):
        for j in range(columns):
            store(C, c + j * stride + i, load(A, a + i * by_row + j, 1))


@inner
def transposed_rows(A, a, rows, stride, C, c, pitch):
    """Rows of A in whole registers, as columns of C; columns behind them get what follows A in memory."""
    called()
    width = ROW_BYTES // C.itemsize
    for i in range(0, rows, width):
        for j in range(0, stride, width):
            transpose_tile(A, a + i * stride + j, stride, C, c + j * pitch + i, pitch)


@inner
def mirror(A, a, stride):
    """The entries above the diagonal below it, too; the matrix has as many rows as columns, padding included."""
    called()
    width = ROW_BYTES // A.itemsize
    for i in range(0, stride, width):
        reflect_tile(A, a + i * stride + i, stride)
        for j in range(i + width, stride, width):
            transpose_tile(A, a + i * stride + j, stride, A, a + j * stride + i, stride)


@inner
def fetch(A, a, count):
    """Ask for entries from `a` on ahead of time."""
    called()
    width = 64 // A.itemsize
    for i in range(a, a + count, width):
        prefetch(A, i, 8)


@inner
def fill(C, c, count):
    """Zeros in whole registers."""
    called()
    zero, width = register_of(C), ROW_BYTES // C.itemsize
    for i in range(c, c + count, width):
        store(C, i, zero)


@spliced
def move(A, a, b, count):
    """Entries from `a` on, from `b` on."""
    copy(A, a, count, 1, count, A, b, count)


@inner
def negate(A, a, b, count):
    """The negatives of entries from `a` on, from `b` on."""
    called()
    kind, width = register_of(A), ROW_BYTES // A.itemsize
    for c in range(0, count - width + 1, width):
        store(A, b + c, -load(A, a + c, kind))
    for c in range(count // width * width, count):
        store(A, b + c, -load(A, a + c, 1))


@inner
def is_same(A, a, b, count):
    """Whether entries from `a` on equal those from `b` on."""
    called()
    kind, width = register_of(A), ROW_BYTES // A.itemsize
    for c in range(0, count - width + 1, width):
        if any_lane(load(A, a + c, kind) != load(A, b + c, kind)):
            return False
    same = True
    for c in range(count // width * width, count):
        same = same and A[a + c] == A[b + c]
    return same


@inner
def added(A, a, B, b, rows, C, c, stride):
    """Rows of C, `stride` apart, as those of A and B, side by side, added."""
    called()
    kind, width = register_of(C), ROW_BYTES // C.itemsize
    for i in range(rows):
        at, to = i * rows, c + i * stride
        for j in range(0, rows - width + 1, width):
            store(C, to + j, load(A, a + at + j, kind) + load(B, b + at + j, kind))
        for j in range(rows // width * width, rows):
            store(C, to + j, load(A, a + at + j, 1) + load(B, b + at + j, 1))


@inner
def factor(w, S, low, inverses, n, p, regular):
    """Unit lower triangle, pivots, on the diagonal of S, and their inverses of ``S = L D L'``, S read above it.

    A pivot below `regular` of its diagonal entry has the inverse NaN; zero where that entry is. None with a negative
    `regular`.
    """
    called()
    kind, width = register_of(w), ROW_BYTES // w.itemsize
    for i in range(n):
        diagonal = w[S + i * p + i]
        for j in range(i):
            w[low + i * p + j] = entry(w, S + j * p + i) * entry(w, inverses + j)
        for c in range(i // width * width, p, width):
            rest = load(w, S + i * p + c, kind)
            for j in range(i):
                rest = fma(load(w, S + j * p + c, kind), -entry(w, low + i * p + j), rest)
            store(w, S + i * p + c, rest)
        pivot = w[S + i * p + i]
        w[inverses + i] = 1.0 / pivot
        if regular >= 0.0:
            if diagonal <= 0.0:
                w[inverses + i] = 0.0
            elif pivot <= regular * diagonal:
                w[inverses + i] = np.nan


# --- series
@spliced
def steps(a):
    """Entries from one step to the next, none where one stands for all."""
    return a.size // (a.shape[0] * a.shape[1]) if a.shape[1] > 1 else 0


@spliced
def start(a, s):
    """Where series s starts."""
    return s * (a.size // a.shape[0]) if a.shape[0] > 1 else 0
