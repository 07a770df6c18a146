"""Backward differences of many samples, each with its own order: the arithmetic of a BDF step.

Differences have shape (8, n, S); row 0 is y. Kernels with `columns` touch these samples alone. A row of unknowns is
read and written once by each function; sums over unknowns run in order.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled, compiled_arrays, prange, threads_for
from ensemble._typing import Array

__all__ = ["accept", "correct", "interpolate", "norms_of_correction", "norms_of_differences", "predict", "residual"]

TILE = 64
"""Samples of which a thread sums squares at a time."""


def residual(f: Array, psi: Array, d: Array, per_c: Array) -> None:
    """``f - (psi + d) per_c`` in place of f."""
    with threads_for(f.size):
        _residual(f, psi, d, per_c)


@compiled
def _residual(f, psi, d, per_c):
    for i in prange(f.shape[0]):
        for s in range(f.shape[1]):
            f[i, s] = f[i, s] - (psi[i, s] + d[i, s]) * per_c[s]


def norms_of_correction(
    dy: Array, scale: Array, d: Array, y: Array, old: Array, rtol: Array, atol: Array
) -> tuple[Array, Array]:
    """Mean squares of ``scale dy`` and of ``d + scale dy`` over ``atol + rtol max(|y|, |old|)``, (S,) each.

    `dy` becomes ``scale dy``. `atol` has shape (1 or n, S).
    """
    first, second = np.zeros(dy.shape[1], dy.dtype), np.zeros(dy.shape[1], dy.dtype)
    with threads_for(dy.size):
        _norms_of_correction(dy, scale, d, y, old, rtol, atol, first, second)
    return first * (1.0 / dy.shape[0]), second * (1.0 / dy.shape[0])


@compiled
def _norms_of_correction(dy, scale, d, y, old, rtol, atol, first, second):
    n_tiles, varying = (first.size + TILE - 1) // TILE, atol.shape[0] > 1
    for tile in prange(n_tiles):
        begin = np.int64(tile) * TILE
        end = min(begin + TILE, first.size)
        for i in range(dy.shape[0]):
            bound = atol[i if varying else 0]
            for s in range(begin, end):
                a, b = abs(y[i, s]), abs(old[i, s])
                largest = a if (a > b) | (a != a) else b
                weight = 1.0 / (bound[s] + rtol[s] * largest)
                step = dy[i, s] * scale[s]
                dy[i, s] = step
                one, both = step * weight, (d[i, s] + step) * weight
                first[s] += one * one
                second[s] += both * both


def correct(y: Array, d: Array, dy: Array, moved: Array) -> None:
    """Add dy to y and d in the samples of a mask."""
    with threads_for(y.size):
        _correct(y, d, dy, moved)


@compiled
def _correct(y, d, dy, moved):
    for i in prange(y.shape[0]):
        for s in range(y.shape[1]):
            y[i, s] = y[i, s] + dy[i, s] if moved[s] else y[i, s]
            d[i, s] = d[i, s] + dy[i, s] if moved[s] else d[i, s]


def accept(differences: Array, d: Array, order: Array, columns: Array) -> None:
    """The differences at the end of a step with correction d; `order` has one number for each column."""
    with threads_for(d.shape[0] * columns.size):
        _accept(differences, d, order, columns)


@compiled
def _accept(differences, d, order, columns):
    for i in prange(d.shape[0]):
        for c in range(columns.size):
            s, q = columns[c], order[c]
            differences[q + 2, i, s] = d[i, s] - differences[q + 1, i, s]
            differences[q + 1, i, s] = d[i, s]
            for j in range(q, -1, -1):
                differences[j, i, s] += differences[j + 1, i, s]


def norms_of_differences(differences: Array, order: Array, columns: Array, rtol: Array, atol: Array) -> Array:
    """Mean squares of differences `order` and ``order + 2`` over ``atol + rtol |y|``, shape (2, n_columns)."""
    out = np.zeros((2, columns.size), differences.dtype)
    with threads_for(differences.shape[1] * columns.size):
        _norms_of_differences(differences, order, columns, rtol, atol, out)
    return out * (1.0 / differences.shape[1])


@compiled
def _norms_of_differences(differences, order, columns, rtol, atol, out):
    n_tiles, varying = (columns.size + TILE - 1) // TILE, atol.shape[0] > 1
    for tile in prange(n_tiles):
        begin = np.int64(tile) * TILE
        for i in range(differences.shape[1]):
            for c in range(begin, min(begin + TILE, columns.size)):
                s, q = columns[c], order[c]
                weight = 1.0 / (atol[i if varying else 0, s] + rtol[s] * abs(differences[0, i, s]))
                lower, upper = differences[q, i, s] * weight, differences[q + 2, i, s] * weight
                out[0, c] += lower * lower
                out[1, c] += upper * upper


@compiled_arrays
def _changes(order, factor, real):
    """The matrices that take differences to another step length, (n_columns, 6, 6) (Shampine, Reichelt 1997)."""
    out = np.zeros((order.size, 6, 6), real.dtype)
    made, unit = np.zeros((6, 6), real.dtype), np.zeros((6, 6), real.dtype)
    one = real[0]
    for c in range(order.size):
        q = order[c]
        for j in range(q + 1):
            made[0, j], unit[0, j] = one, one
            for i in range(1, q + 1):
                above = (i - 1 - factor[c] * j) / (one * i)
                made[i, j] = made[i - 1, j] * above if j > 0 else 0.0 * one
                unit[i, j] = unit[i - 1, j] * ((i - 1 - j) / (one * i)) if j > 0 else 0.0 * one
        for i in range(q + 1):
            for j in range(q + 1):
                total = 0.0 * one
                for k in range(q + 1):
                    total += made[i, k] * unit[k, j]
                out[c, i, j] = total
    return out


def predict(
    differences: Array, order: Array, factor: Array, columns: Array, gamma: Array, alpha: Array, y: Array, psi: Array,
    d: Array,
) -> None:  # fmt: skip
    """Change step lengths by `factor`, and start a step: `y` predicted, `psi` of the past, ``d = 0``.

    `gamma` and `alpha` are the numbers of the formulas by order; `order` and `factor` have one for each column.
    """
    changes = _changes(order, factor, np.ones(1, y.dtype))
    with threads_for(y.shape[0] * columns.size):
        _predict(differences, changes, order, factor, columns, gamma, alpha, y, psi, d)


@compiled
def _predict(differences, changes, order, factor, columns, gamma, alpha, y, psi, d):
    for i in prange(y.shape[0]):
        old = np.empty(6, y.dtype)
        for c in range(columns.size):
            s, q = columns[c], order[c]
            if factor[c] != 1.0:
                for j in range(q + 1):
                    old[j] = differences[j, i, s]
                for j in range(1, q + 1):
                    total = changes[c, 1, j] * old[1]
                    for k in range(2, q + 1):
                        total += changes[c, k, j] * old[k]
                    differences[j, i, s] = total
            value, past = differences[0, i, s], differences[1, i, s] * gamma[1]
            value += differences[1, i, s]
            for j in range(2, q + 1):
                value += differences[j, i, s]
                past += differences[j, i, s] * gamma[j]
            y[i, s], psi[i, s], d[i, s] = value, past / alpha[q], 0.0


def interpolate(differences: Array, order: Array, columns: Array, theta: Array) -> Array:
    """y at ``t - (1 - theta) h`` where t is the end of the step, by the polynomial of the step, (n, n_columns)."""
    out = np.empty((differences.shape[1], columns.size), differences.dtype)
    with threads_for(out.size):
        _interpolate(differences, order, columns, theta, out)
    return out


@compiled
def _interpolate(differences, order, columns, theta, out):
    for i in prange(out.shape[0]):
        for c in range(columns.size):
            s, weight = columns[c], theta[c] * 0.0 + 1.0
            value = differences[0, i, s]
            for j in range(order[c]):
                weight = weight * ((theta[c] - 1.0 + j) / (j + 1.0))
                value += differences[j + 1, i, s] * weight
            out[i, c] = value
