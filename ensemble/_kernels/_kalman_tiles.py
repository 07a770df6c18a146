"""Matrices in one working array: products in register tiles, triangles, copies; and where series lie in memory.

A matrix is (array, offset, stride of rows); rows are padded to whole registers. Every entry is made of the same
operations in the same order as where steps are written out, so it has the same bits (a sum that starts at zero is its
first product).
"""

from __future__ import annotations

import numpy as np

from ensemble._kernels._compile import inner, spliced
from ensemble._kernels._lane_arithmetic import any_lane, fma
from ensemble._kernels._lanes import ROW_BYTES, called, load, register_of, store

__all__ = [
    "add_row",
    "added",
    "copy",
    "copy_transposed",
    "factor",
    "fill",
    "is_same",
    "mirror",
    "move",
    "multiply",
    "negate",
    "padded",
    "scaled_row",
    "start",
    "steps",
]


# --- matrices
@spliced
def padded(n, like):
    """`n` rounded up to whole registers."""
    width = ROW_BYTES // like.itemsize
    return (n + width - 1) // width * width


@spliced
def _entry(A, i):
    """``A[i]`` without the test for a negative index."""
    return A[np.uint64(i)]


@inner
def multiply(A, a, by_row, by_inner, B, b, C, c, stride, rows, inner, upper):
    """Add ``A B`` to C, rows `stride` apart; with `upper` without the registers left of the diagonal."""
    called()
    kind, width = register_of(C), ROW_BYTES // C.itemsize
    i = 0
    while i + 4 <= rows:
        j = i // width * width if upper else 0
        while j < stride:
            at = c + i * stride + j
            a0 = a + i * by_row
            a1, a2, a3 = a0 + by_row, a0 + 2 * by_row, a0 + 3 * by_row
            if j + width < stride:
                p0, p1 = load(C, at, kind), load(C, at + stride, kind)
                p2, p3 = load(C, at + 2 * stride, kind), load(C, at + 3 * stride, kind)
                q0, q1 = load(C, at + width, kind), load(C, at + stride + width, kind)
                q2, q3 = load(C, at + 2 * stride + width, kind), load(C, at + 3 * stride + width, kind)
                for k in range(inner):
                    p, q = load(B, b + k * stride + j, kind), load(B, b + k * stride + j + width, kind)
                    x0, x1 = _entry(A, a0 + k * by_inner), _entry(A, a1 + k * by_inner)
                    x2, x3 = _entry(A, a2 + k * by_inner), _entry(A, a3 + k * by_inner)
                    p0, p1, p2, p3 = fma(p, x0, p0), fma(p, x1, p1), fma(p, x2, p2), fma(p, x3, p3)
                    q0, q1, q2, q3 = fma(q, x0, q0), fma(q, x1, q1), fma(q, x2, q2), fma(q, x3, q3)
                store(C, at + width, q0)
                store(C, at + stride + width, q1)
                store(C, at + 2 * stride + width, q2)
                store(C, at + 3 * stride + width, q3)
                j += 2 * width
            else:
                p0, p1 = load(C, at, kind), load(C, at + stride, kind)
                p2, p3 = load(C, at + 2 * stride, kind), load(C, at + 3 * stride, kind)
                for k in range(inner):
                    p = load(B, b + k * stride + j, kind)
                    x0, x1 = _entry(A, a0 + k * by_inner), _entry(A, a1 + k * by_inner)
                    x2, x3 = _entry(A, a2 + k * by_inner), _entry(A, a3 + k * by_inner)
                    p0, p1, p2, p3 = fma(p, x0, p0), fma(p, x1, p1), fma(p, x2, p2), fma(p, x3, p3)
                j += width
            store(C, at, p0)
            store(C, at + stride, p1)
            store(C, at + 2 * stride, p2)
            store(C, at + 3 * stride, p3)
        i += 4
    while i < rows:
        j = i // width * width if upper else 0
        while j < stride:
            at, a0 = c + i * stride + j, a + i * by_row
            if j + 2 * width < stride:
                p0, q0, r0 = load(C, at, kind), load(C, at + width, kind), load(C, at + 2 * width, kind)
                for k in range(inner):
                    x0, start = _entry(A, a0 + k * by_inner), b + k * stride + j
                    p0 = fma(load(B, start, kind), x0, p0)
                    q0 = fma(load(B, start + width, kind), x0, q0)
                    r0 = fma(load(B, start + 2 * width, kind), x0, r0)
                store(C, at + width, q0)
                store(C, at + 2 * width, r0)
                j += 3 * width
            else:
                p0 = load(C, at, kind)
                for k in range(inner):
                    p0 = fma(load(B, b + k * stride + j, kind), _entry(A, a0 + k * by_inner), p0)
                j += width
            store(C, at, p0)
        i += 1


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
    for j in range(columns):
        for i in range(rows):
            store(C, c + j * stride + i, load(A, a + i * by_row + j, 1))


@inner
def mirror(A, a, n, stride):
    """The entries above the diagonal below it, too."""
    called()
    for i in range(n):
        for j in range(i):
            store(A, a + i * stride + j, load(A, a + j * stride + i, 1))


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
    for c in range(count):
        store(A, b + c, load(A, a + c, 1) * -1.0)


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
            w[low + i * p + j] = w[S + j * p + i] * w[inverses + j]
        for c in range(i // width * width, p, width):
            entry = load(w, S + i * p + c, kind)
            for j in range(i):
                entry = fma(load(w, S + j * p + c, kind), -_entry(w, low + i * p + j), entry)
            store(w, S + i * p + c, entry)
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
