"""Eigenvalues, eigenvectors and square roots of many symmetric 3 x 3 matrices, matrix axes first.

Cyclic Jacobi rotations: each eigenvalue has a small error relative to the matrix, repeated or not, and the vectors are
orthonormal to rounding. A rotation whose entry is negligible beside the two diagonal ones changes nothing, so it is of
no consequence for a matrix how many sweeps its neighbours need.

A matrix whose largest entry is so large that rotations could overflow, or so small that they would lose digits, is
rotated with its entries multiplied by a power of two (`Scales`), and its results are multiplied by the inverse.

Bytes that must move, N matrices, float64: ``8 N (6 + 12)`` and ``8 N (6 + 9)``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.lanes.arithmetic import absolute, any_lane
from ensemble._compile.lanes.types import load, select, sqrt, store
from ensemble._compile.numba import compiled, output, per_width, prange, spliced
from ensemble._compile.registry import into, kernel
from ensemble._kernels.dense.small import BLOCK_TILES, one_layout, tile_width

__all__ = ["small_eigh3", "small_root3"]

SWEEPS = 16
"""At most; five are usual."""

PAIRS = ((0, 1, 2), (0, 2, 1), (1, 2, 0))
"""The entry (p, q) that a rotation makes zero, and the third index."""

CUDA = cuda.KernelModule(
    "dense/symmetric3", ["small_eigh3", "small_root3<false>", "small_root3<true>"], only=cuda.Layout("double", 1, 1, 1)
)


class Scales(NamedTuple):
    """What a matrix is multiplied by: `down` where its largest entry is above `huge`, `up` where that is below 1 / up.

    An eigenvalue is at most three times the largest entry. The square roots of both factors are powers of two.
    """

    huge: float
    down: float
    up: float


def scales_of(dtype):
    """The scales of a type of numbers, float64 or float32."""
    double = str(dtype).endswith("float64")
    return Scales(2.0**1021, 2.0**-4, 2.0**512) if double else Scales(2.0**125, 2.0**-4, 2.0**64)


def _decomposed(A):
    """Eigenvalues, ascending, and entries of the eigenvectors ``v[i][j]``, of A times a scale that follows; (N,)."""
    xp, scales = array_namespace(A), scales_of(A.dtype)
    tiny = 0.5 * float(xp.finfo(A.dtype).eps)
    a = {(p, q): A[q, p, :] for p in range(3) for q in range(p, 3)}
    largest = xp.zeros_like(a[0, 0])
    for entry in a.values():
        largest = xp.where(xp.abs(entry) > largest, xp.abs(entry), largest)
    one = xp.ones_like(largest)
    scale = xp.where(largest < 1.0 / scales.up, scales.up * one, one)
    scale = xp.where(largest > scales.huge, scales.down * one, scale)
    a = {pair: entry * scale for pair, entry in a.items()}
    spoilt = sum(entry * 0.0 for entry in a.values())  # NaN where an entry is not finite
    a = {pair: entry + spoilt for pair, entry in a.items()}
    v = [[spoilt + (1.0 if i == j else 0.0) for j in range(3)] for i in range(3)]

    def negligible(p, q):
        return xp.abs(a[p, q]) <= tiny * _smaller(xp, xp.abs(a[p, p]), xp.abs(a[q, q]))

    for _ in range(SWEEPS):
        if bool(xp.all(negligible(0, 1) & negligible(0, 2) & negligible(1, 2))):
            break
        for p, q, r in PAIRS:
            keep = negligible(p, q)
            t, s, tau = _angle(xp, a[p, p], a[q, q], a[p, q], keep)
            a[p, p], a[q, q] = a[p, p] - t * a[p, q], a[q, q] + t * a[p, q]
            a[p, q] = xp.where(keep, a[p, q], xp.zeros_like(t))
            x, y = (min(p, r), max(p, r)), (min(q, r), max(q, r))
            a[x], a[y] = a[x] - s * (a[y] + tau * a[x]), a[y] + s * (a[x] - tau * a[y])
            for row in v:
                row[p], row[q] = row[p] - s * (row[q] + tau * row[p]), row[q] + s * (row[p] - tau * row[q])
    return *_ascending(xp, [a[i, i] for i in range(3)], v), scale


def _smaller(xp, x, y):
    return xp.where(y < x, y, x)


def _angle(xp, app, aqq, apq, keep):
    """Tangent, sine and sine / (1 + cosine) of the rotation that makes entry (p, q) zero; zeros where it is kept."""
    theta = (aqq - app) / xp.where(keep, xp.ones_like(apq), apq + apq)
    t = 1.0 / (xp.abs(theta) + xp.sqrt(theta * theta + 1.0))
    t = xp.where(keep, xp.zeros_like(t), xp.where(theta < 0, -t, t))
    c = 1.0 / xp.sqrt(t * t + 1.0)
    s = t * c
    return t, s, s / (c + 1.0)


def _ascending(xp, w, v):
    """Eigenvalues in ascending order, and the columns of `v` with them."""
    for i, j in ((0, 1), (1, 2), (0, 1)):
        exchange = w[j] < w[i]
        for row in (w, *v):
            row[i], row[j] = xp.where(exchange, row[j], row[i]), xp.where(exchange, row[i], row[j])
    return w, v


@kernel
def small_eigh3(A, out):
    """Eigenvalues, ascending, and eigenvectors of A (3, 3, N), of which the lower triangle is read: (12, N).

    Row 3 + 3 i + j is entry i of vector j; NaN where A is not finite.
    """
    w, v, scale = _decomposed(A)
    return into(out, array_namespace(A).stack([*(x * (1.0 / scale) for x in w), *v[0], *v[1], *v[2]]))


@kernel
def small_root3(A, inverse, out):
    """The square root of each A (3, 3, N), or its inverse; NaN where an eigenvalue is negative."""
    xp = array_namespace(A)
    w, v, scale = _decomposed(A)
    unit = xp.sqrt(scale) if inverse else 1.0 / xp.sqrt(scale)
    f = [1.0 / xp.sqrt(x) if inverse else xp.sqrt(x) for x in w]

    def entry(a, b):
        return (a[0] * f[0] * b[0] + a[1] * f[1] * b[1] + a[2] * f[2] * b[2]) * unit

    return into(out, xp.stack([xp.stack([entry(v[max(i, j)], v[min(i, j)]) for j in range(3)]) for i in range(3)]))


# --- CPU
@spliced
def _negligible(app, aqq, apq, tiny):
    x, y = absolute(app), absolute(aqq)
    return absolute(apq) <= select(y < x, y, x) * tiny


@spliced
def _rotation(app, aqq, apq, tiny):
    """The rotated entries app, aqq and apq, and sine and sine / (1 + cosine)."""
    keep = _negligible(app, aqq, apq, tiny)
    theta = (aqq - app) / select(keep, 1.0, apq + apq)
    t = 1.0 / (absolute(theta) + sqrt(theta * theta + 1.0))
    t = select(keep, 0.0, select(theta < 0.0, -t, t))
    c = 1.0 / sqrt(t * t + 1.0)
    s = t * c
    return app - t * apq, aqq + t * apq, select(keep, apq, 0.0), s, s / (c + 1.0)


@spliced
def _turned(x, y, s, tau):
    return x - s * (y + tau * x), y + s * (x - tau * y)


@spliced
def _rotate_vectors(v, p, q, s, tau, width):
    for row in range(0, 9 * width, 3 * width):
        x, y = _turned(load(v, row + p * width, width), load(v, row + q * width, width), s, tau)
        store(v, row + p * width, x)
        store(v, row + q * width, y)


@spliced
def _exchange(wi, wj, v, i, j, width):
    exchange = wj < wi
    for row in range(0, 9 * width, 3 * width):
        x, y = load(v, row + i * width, width), load(v, row + j * width, width)
        store(v, row + i * width, select(exchange, y, x))
        store(v, row + j * width, select(exchange, x, y))
    return select(exchange, wj, wi), select(exchange, wi, wj)


@spliced
def _larger(x, y):
    size = absolute(y)
    return select(size > x, size, x)


@spliced
def _scale(a00, a11, a22, a01, a02, a12, scales):
    """What the matrices of one tile are multiplied by."""
    largest = _larger(_larger(_larger(absolute(a00), a11), a22), a01)
    largest = _larger(_larger(largest, a02), a12)
    return select(largest > scales[0], scales[1], select(largest < 1.0 / scales[2], scales[2], largest * 0.0 + 1.0))


@spliced
def _decompose(A, v, count, first, tiny, scales, width):
    """Eigenvalues of one tile times the scale that follows; the vectors are left in `v`."""
    a00, a11 = load(A, first, width), load(A, 4 * count + first, width)
    a22, a01 = load(A, 8 * count + first, width), load(A, 3 * count + first, width)
    a02, a12 = load(A, 6 * count + first, width), load(A, 7 * count + first, width)
    scale = _scale(a00, a11, a22, a01, a02, a12, scales)
    a00, a01, a02, a11, a12, a22 = a00 * scale, a01 * scale, a02 * scale, a11 * scale, a12 * scale, a22 * scale
    spoilt = a00 * 0.0 + a01 * 0.0 + a02 * 0.0 + a11 * 0.0 + a12 * 0.0 + a22 * 0.0
    a00, a01, a02 = a00 + spoilt, a01 + spoilt, a02 + spoilt
    a11, a12, a22 = a11 + spoilt, a12 + spoilt, a22 + spoilt
    for i in range(9):
        store(v, i * width, spoilt + (1.0 if i % 4 == 0 else 0.0))
    for _ in range(SWEEPS):
        done = _negligible(a00, a11, a01, tiny) & _negligible(a00, a22, a02, tiny) & _negligible(a11, a22, a12, tiny)
        if not any_lane(~done):
            break
        a00, a11, a01, s, tau = _rotation(a00, a11, a01, tiny)
        a02, a12 = _turned(a02, a12, s, tau)
        _rotate_vectors(v, 0, 1, s, tau, width)
        a00, a22, a02, s, tau = _rotation(a00, a22, a02, tiny)
        a01, a12 = _turned(a01, a12, s, tau)
        _rotate_vectors(v, 0, 2, s, tau, width)
        a11, a22, a12, s, tau = _rotation(a11, a22, a12, tiny)
        a01, a02 = _turned(a01, a02, s, tau)
        _rotate_vectors(v, 1, 2, s, tau, width)
    a00, a11 = _exchange(a00, a11, v, 0, 1, width)
    a11, a22 = _exchange(a11, a22, v, 1, 2, width)
    a00, a11 = _exchange(a00, a11, v, 0, 1, width)
    return a00, a11, a22, scale


@per_width
def _eigh3(width):
    @compiled
    def loop(A, out, tiny, scales, count):
        n_tiles = (count + width - 1) // width
        for block in prange((n_tiles + BLOCK_TILES - 1) // BLOCK_TILES):
            v = np.empty(9 * width, A.dtype)
            for tile in range(block * BLOCK_TILES, min((block + 1) * BLOCK_TILES, n_tiles)):
                first = min(tile * width, count - width)
                w0, w1, w2, scale = _decompose(A, v, count, first, tiny, scales, width)
                unit = 1.0 / scale
                store(out, first, w0 * unit)
                store(out, count + first, w1 * unit)
                store(out, 2 * count + first, w2 * unit)
                for i in range(9):
                    store(out, (3 + i) * count + first, load(v, i * width, width))

    return loop


@per_width
def _root3(width, inverse):
    @compiled
    def loop(A, out, tiny, scales, count):
        n_tiles = (count + width - 1) // width
        for block in prange((n_tiles + BLOCK_TILES - 1) // BLOCK_TILES):
            v = np.empty(9 * width, A.dtype)
            for tile in range(block * BLOCK_TILES, min((block + 1) * BLOCK_TILES, n_tiles)):
                first = min(tile * width, count - width)
                w0, w1, w2, scale = _decompose(A, v, count, first, tiny, scales, width)
                f0, f1, f2, unit = sqrt(w0), sqrt(w1), sqrt(w2), sqrt(scale)
                if inverse:
                    f0, f1, f2 = 1.0 / f0, 1.0 / f1, 1.0 / f2
                else:
                    unit = 1.0 / unit
                for i in range(3):
                    for j in range(i + 1):
                        a, b = 3 * i * width, 3 * j * width
                        total = load(v, a, width) * f0 * load(v, b, width)
                        total = total + load(v, a + width, width) * f1 * load(v, b + width, width)
                        total = total + load(v, a + 2 * width, width) * f2 * load(v, b + 2 * width, width)
                        store(out, (3 * i + j) * count + first, total * unit)
                        store(out, (3 * j + i) * count + first, total * unit)

    return loop


def _on_cpu(loop, A, rows, out):
    count = A.shape[-1]
    out = output(out, (*rows, count), A.dtype)
    if count:
        number = A.dtype.type
        scales = tuple(number(scale) for scale in scales_of(A.dtype))
        loop(A.reshape(-1), out.reshape(-1), number(0.5 * np.finfo(A.dtype).eps), scales, count)
    return out


@small_eigh3.register("numba")
def _(A, out):
    return _on_cpu(_eigh3(tile_width(max(A.shape[-1], 1))), A, (12,), out)


@small_root3.register("numba")
def _(A, inverse, out):
    return _on_cpu(_root3(tile_width(max(A.shape[-1], 1)), inverse), A, (3, 3), out)


# --- devices
def _on_device(function, A, rows, out):
    count = A.shape[-1]
    out = cuda.output(out, A, (*rows, count))
    CUDA.launch(function, one_layout(A), (-(-count // cuda.THREADS),), cuda.THREADS, (A, out, np.int64(count)))
    return out


@small_eigh3.register("cuda")
def _(A, out):
    return _on_device("small_eigh3", A, (12,), out)


@small_root3.register("cuda")
def _(A, inverse, out):
    return _on_device(f"small_root3<{'true' if inverse else 'false'}>", A, (3, 3), out)
