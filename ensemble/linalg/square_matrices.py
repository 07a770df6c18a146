"""Checked matrices of factorisations and eigenproblems: square, symmetric, of numbers of one type."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, library_of, to_numpy
from ensemble._check import floating, kind_of, message, require, samples_text
from ensemble._kernels.sparse.row_sums import SERIAL
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs
from ensemble.linalg.linear_operator import LinearOperator

__all__ = ["asymmetry", "factor_dtype", "matrix_of", "real_dtype", "require_symmetric"]

SYMMETRIC_ROUNDOFFS = 1000.0
"""Difference of entries across the diagonal, in units of rounding of the largest entry, of a symmetric matrix."""


def matrix_of(A: Any, name: str, spread: bool = False) -> Any:
    """`A`, or a list of SciPy matrices, as a square `CrsMatrix`; with `spread` a matrix over processes as it is."""
    if isinstance(A, LinearOperator) and A.space is not SERIAL:
        if spread and hasattr(A, "gathered"):
            return A
        raise TypeError(message(name, "A", "lie whole on one process", repr(A), "Give A.gather(), the whole matrix."))
    matrix = CrsMatrix.from_scipy(A) if isinstance(A, list | tuple) else as_crs(A)
    if matrix is NotImplemented:
        advice = "Give a CrsMatrix, a SymmetricCrsMatrix, or SciPy sparse matrices."
        raise TypeError(message(name, "A", "be a sparse matrix", kind_of(A), advice))
    advice = "A system with more rows than unknowns has no inverse: solve the normal equations."
    require(matrix.shape[0] == matrix.shape[1], name, "A", "be square", f"shape {matrix.shape}", advice)
    return matrix


def asymmetry(A: CrsMatrix) -> tuple[np.ndarray, np.ndarray]:
    """The largest ``|a_ij - a_ji|`` and the largest ``|a_ij|``, per sample, on the host."""
    sizes = []
    for matrix in (A - A.T, A):
        xp = array_namespace(matrix.values)
        sizes.append(to_numpy(xp.max(xp.abs(matrix.values), axis=0)) if matrix.nnz else np.zeros(A.n_samples))
    return sizes[0], sizes[1]


def require_symmetric(A: CrsMatrix, name: str) -> None:
    """Raise ValueError where an entry differs from the one across the diagonal by more than rounding."""
    with np.errstate(all="ignore"):
        difference, largest = asymmetry(A)
        relative = difference / largest
    bad = np.flatnonzero(relative > SYMMETRIC_ROUNDOFFS * np.finfo(str(A.dtype).split(".")[-1]).eps)
    if bad.size:
        where = samples_text(bad, of=relative.size)
        seen = f"|a_ij - a_ji| up to {relative[bad].max():.1e} times the largest entry ({where})"
        require(False, name, "A", 'be symmetric where kind="ldlt"', seen, 'Give kind="lu", or 0.5 * (A + A.T).')


def real_dtype(A: CrsMatrix, name: str) -> Any:
    """The type of a real matrix."""
    dtype = str(A.dtype).split(".")[-1]
    if dtype not in ("float32", "float64"):
        advice = "krylov.direct, gmres and bicgstab solve complex systems." * ("complex" in dtype)
        raise TypeError(message(name, "A", "hold float32 or float64", dtype, advice))
    return dtype


def factor_dtype(A: CrsMatrix, name: str, dtype: Any, takes_complex: bool) -> np.dtype:
    """The type of a factorisation of A: complex where A is, which needs `takes_complex`, with parts of type `dtype`."""
    own = str(A.dtype).split(".")[-1]
    if not (takes_complex and "complex" in own):
        own = real_dtype(A, name)
        return np.dtype(own) if dtype is None else floating(dtype, name, "dtype")
    if library_of(A.values) not in ("numpy", "cupy"):
        advice = "Factorise the real matrix of twice the size, [[Re A, -Im A], [Im A, Re A]]."
        raise TypeError(
            message(name, "A", "hold arrays of NumPy or CuPy where numbers are complex", kind_of(A.values), advice)
        )
    names = {np.dtype(np.complex64): np.float32, np.dtype(np.complex128): np.float64}
    try:
        dtype = own if dtype is None else np.dtype(dtype)
    except TypeError:
        pass  # which `floating` refuses
    else:
        dtype = names.get(np.dtype(dtype), dtype)
    return np.result_type(floating(dtype, name, "dtype"), np.complex64)
