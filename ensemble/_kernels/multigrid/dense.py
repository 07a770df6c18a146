"""Dense matrices of the coarsest level, shape (n, n, n_samples): their inverses, and the product with one.

Bytes of a product: ``8 n^2 S``, the inverse read once.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._blas import one_blas_thread
from ensemble._compile import cuda
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.lanes.types import load, splat, store, zeros
from ensemble._compile.numba import compiled, compiled_procedure, empty, output, per_width, prange, tiles
from ensemble._compile.registry import into, kernel
from ensemble._kernels.sparse.complex_numbers import is_complex, times

__all__ = ["dense_inverses", "dense_product", "inverse_of"]

SHARED = ("false", "true")
SHARES = 16
PIVOT, TILE, TILE_THREADS = 32, 64, 128  # as in inverses.cu

ASYMMETRY = 1e-5
"""``|a_ij - a_ji| / sqrt(|a_ii a_jj|)``, free of units, that roundoff of single precision does not explain."""

SQUARE = 32
"""Rows and columns of a matrix and its transpose that are compared at once."""

INSTANCES = tuple(f"dense_product<{shared}>" for shared in SHARED)
CUDA = cuda.KernelModule("multigrid/dense", list(INSTANCES), of_complex=INSTANCES)
INVERSES = cuda.KernelModule(
    "multigrid/inverses", ["spread_entries", "measure_skew", "sweep_start", "sweep", "collect"]
)


@kernel
def dense_product(matrix, x, out):
    """y[i, s] = sum over j of matrix[i, j, s] * x[j, s]: the coarse solve, `matrix` being the inverse."""
    xp = array_namespace(x)
    y = xp.zeros((matrix.shape[0], x.shape[1]), dtype=x.dtype)
    for j in range(matrix.shape[1]):
        y = y + times(matrix[:, j, :], x[j, :])
    return into(out, y)


@per_width
def _dense_product(width, shared):
    @compiled
    def loop(matrix, x, y, n_rows, n_columns, n_samples, first):
        for i in prange(n_rows):
            total = zeros(matrix, width)
            for j in range(n_columns):
                k = np.int64(i) * n_columns + j
                entry = splat(matrix[k], matrix, width) if shared else load(matrix, k * n_samples + first, width)
                total = total + entry * load(x, np.int64(j) * n_samples + first, width)
            store(y, np.int64(i) * n_samples + first, total)

    return loop


@dense_product.register("numba", complex_numbers=True)
def _(matrix, x, out):
    n_rows, n_columns, _ = matrix.shape
    n_samples = x.shape[1]
    out = output(out, (n_rows, n_samples), x.dtype)
    shared = matrix.shape[2] != n_samples
    flat = [array.reshape(-1) for array in (matrix, x, out)]
    for first, width in tiles(n_samples):
        _dense_product(width, shared)(*flat, n_rows, n_columns, n_samples, first)
    return out


@dense_product.register("cuda", complex_numbers=True)
def _(matrix, x, out):
    n_rows, n_columns, _ = matrix.shape
    n_samples = x.shape[1]
    out = cuda.output(out, x, (n_rows, n_samples))
    shared = matrix.shape[2] != n_samples
    layout = cuda.layout_of(n_samples, x, out, *(() if shared else (matrix,)))
    arguments = (matrix, x, out, np.int32(n_columns), np.int32(n_samples))
    threads = SHARES * layout.lanes
    CUDA.launch(f"dense_product<{SHARED[shared]}>", layout, (n_rows, layout.tiles), threads, arguments)
    return out


# --- inverses
@kernel
def dense_inverses(rows, columns, values, n, out):
    """The inverse of the matrix with ``values[k, s]`` at (rows[k], columns[k]), for every sample.

    Each sample by itself: Cholesky; where that fails or the matrix is singular to working precision, the pseudo-inverse
    by eigenvalues, which deflates a constant null vector; LU where the matrix is not symmetric, or complex. A
    sample that is not finite gets NaN.
    """
    given = to_numpy(values)
    with one_blas_thread():
        inverses = [inverse_of(dense_of(rows, columns, given[:, s], n)) for s in range(given.shape[1])]
    return into(out, asarray_like(np.stack(inverses, axis=2).astype(given.dtype), values))


@dense_inverses.register("numba", complex_numbers=True)
def _(rows, columns, values, n, out):
    n_samples = values.shape[1]
    inverses = empty((n_samples, n * n), np.result_type(values.dtype, np.float64))
    with one_blas_thread():
        for s in range(n_samples):
            inverses[s] = inverse_of(dense_of(rows, columns, values[:, s], n)).reshape(-1)
    out = output(out, (n, n, n_samples), values.dtype)
    flat = out.reshape(n * n, n_samples)
    for start in range(0, n * n, 1024):  # a transpose by blocks that fit the cache
        flat[start : start + 1024] = inverses[:, start : start + 1024].T
    return out


@dense_inverses.register("cuda", complex_numbers=True)
def _(rows, columns, values, n, out):
    xp = array_namespace(values)
    n_samples = values.shape[1]
    if n == 0:
        return into(out, xp.zeros((0, 0, n_samples), dtype=values.dtype))
    if is_complex(values):  # sweeps are of symmetric definite matrices
        return dense_inverses.reference(to_numpy(rows), to_numpy(columns), values, n, out)
    wide = xp.astype(values, xp.float64)
    inverse, pivots, skew = _swept(rows, columns, wide, n)
    # The same tests on the same pivots as `inverse_of`: matrices that fail them go through LAPACK, one by one.
    (smallest, largest), skew = to_numpy(pivots), to_numpy(skew).max(axis=0)
    accepted = (skew <= ASYMMETRY) & (smallest > n * np.finfo(float).eps * largest)
    for s in np.flatnonzero(~accepted):
        dense = dense_of(to_numpy(rows), to_numpy(columns), to_numpy(wide[:, int(s)]), n)
        inverse[:, :, int(s)] = asarray_like(inverse_of(dense), values)
    return into(out, xp.astype(inverse, values.dtype))


def _swept(rows, columns, values, n):
    """The inverses of positive definite matrices, extreme pivots (2, S), asymmetry by tiles (tiles, S)."""
    xp = array_namespace(values)
    nnz, n_samples = values.shape
    n_tiles = -(-n // TILE)
    size, n_lower = n_tiles * TILE, n_tiles * (n_tiles + 1) // 2
    matrix = xp.zeros((n_samples, size, size), dtype=xp.float64)
    panels = [empty_like(values, (n_samples, PIVOT, size)) for _ in range(2)]
    blocks = [empty_like(values, (n_samples, PIVOT, PIVOT)) for _ in range(2)]
    pivots, skew = empty_like(values, (2, n_samples)), empty_like(values, (n_lower, n_samples))
    lengths = np.int32(n), np.int32(size)
    grid = (-(-(nnz + size - n) * n_samples // TILE_THREADS),)
    _invert("spread_entries", grid, rows, columns, values, matrix, *lengths, np.int64(nnz), np.int32(n_samples))
    _invert("measure_skew", (n_lower, n_samples), matrix, skew, np.int32(size), np.int32(n_samples))
    _invert("sweep_start", (n_tiles, n_samples), matrix, panels[0], blocks[0], *pivots, *lengths)
    for first in range(0, n, PIVOT):
        state = (matrix, *panels, *blocks, *pivots)
        _invert("sweep", (n_lower, n_samples), *state, *lengths, np.int32(first))
        panels, blocks = panels[::-1], blocks[::-1]
    inverse = empty_like(values, (n, n, n_samples))
    grid = (-(-n // PIVOT), -(-n_samples // PIVOT), n)
    _invert("collect", grid, matrix, inverse, *lengths, np.int32(n_samples))
    return inverse, pivots, skew


def _invert(name, grid, *arguments):
    """Queue a kernel on matrices that lie sample by sample."""
    INVERSES.launch(name, cuda.Layout("double", 1, 1, 1), grid, TILE_THREADS, arguments)


def dense_of(rows, columns, values, n):
    """One sample's matrix in full."""
    dense = np.zeros((n, n), np.result_type(values.dtype, np.float64))
    dense[rows, columns] = values
    return dense


def nonsymmetric_inverse(dense: np.ndarray) -> np.ndarray:
    """The inverse by LU factorisation, or the pseudo-inverse if the matrix is singular to working precision.

    The condition number is that of the matrix with rows and columns scaled to largest entries of one: rows in other
    units are no sign of a singular matrix.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = 1.0 / np.abs(dense).max(axis=1, keepdims=True)
        columns = 1.0 / np.abs(rows * dense).max(axis=0, keepdims=True)
        scaled = rows * dense * columns
    if not np.all(np.isfinite(scaled)):  # a row or column of zeros
        return np.linalg.pinv(dense)
    try:
        inverse = np.linalg.inv(scaled)
    except np.linalg.LinAlgError:
        return np.linalg.pinv(dense)
    condition = np.linalg.norm(scaled, 1) * np.linalg.norm(inverse, 1)
    safe = np.isfinite(condition) and condition * dense.shape[0] * np.finfo(float).eps < 1.0
    return columns.T * inverse * rows.T if safe else np.linalg.pinv(dense)


@compiled_procedure
def _symmetric(dense, size, most):
    """Whether ``|a_ij - a_ji| <= most * (size_i * size_j)`` for all i and j, by squares that the cache holds."""
    n = size.size
    for low in range(0, n, SQUARE):
        for left in range(0, low + 1, SQUARE):
            for i in range(low, min(low + SQUARE, n)):
                for j in range(left, min(left + SQUARE, i)):
                    if abs(dense[i, j] - dense[j, i]) > most * (size[i] * size[j]):
                        return 0
    return 1


def inverse_of(dense: np.ndarray) -> np.ndarray:
    """The inverse of a matrix, or its pseudo-inverse if it is not safely positive definite, or nonsingular."""
    n = dense.shape[0]
    if n == 0:
        return dense
    if not np.all(np.isfinite(dense)):
        return np.full_like(dense, np.nan)
    if is_complex(dense):
        return nonsymmetric_inverse(dense)
    size = np.sqrt(np.abs(np.diag(dense)))
    if not _symmetric(dense, size, ASYMMETRY):
        return nonsymmetric_inverse(dense)
    # LAPACK requires contiguous columns; the transpose of a symmetric matrix is itself, without a copy
    factor, failed = scipy.linalg.lapack.dpotrf(dense.T, lower=1)
    if not failed:
        # A pivot is what its row adds to the rows before it; over the diagonal it has no unit, so that identity rows of
        # fixed unknowns beside a matrix of tiny or huge entries do not count as signs of a singular one.
        pivots = np.diag(factor) ** 2 / np.diag(dense)
        if pivots.min() > n * np.finfo(float).eps * pivots.max():
            inverse, failed = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
            if not failed:  # the upper triangle is zero: add the mirror image, which doubles the diagonal
                full = np.add(inverse, inverse.T, order="C")
                full.reshape(-1)[:: n + 1] *= 0.5
                return full
    values, vectors = np.linalg.eigh((dense + dense.T) / 2)
    kept = np.abs(values) > n * np.finfo(float).eps * np.abs(values).max(initial=0.0)
    return (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
