"""Samples that need exchanges of rows: how they are found, and their factorisations by themselves."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

__all__ = [
    "LARGE_GROWTH",
    "parity",
    "pivoted",
    "pivoted_determinant",
    "pivoted_inertia",
    "pivoted_inverse",
    "times_powers",
]

LARGE_GROWTH = 0.3
"""Growth, as a power of one over the unit of rounding, from which on a sample counts as lost: 5e4 in float64."""

MOST_DENSE = 2000
"""Rows of a matrix at most whose eigenvalues are counted by dense algebra."""

COLUMNS = 64
"""Columns of an inverse that are held together."""

SWEEPS = 5
"""Sweeps over rows and columns that work out scales."""


class PivotedFactors(NamedTuple):
    """SuperLU's factors of a matrix whose rows and columns are multiplied by powers of two."""

    lu: Any
    rows: np.ndarray
    columns: np.ndarray
    dtype: np.dtype

    def solve(self, b: np.ndarray, transposed: bool = False, together: bool = False) -> np.ndarray:
        """Return the solution for a right-hand side of shape (n,), or those for its columns; with A^T if `transposed`.

        With `together`, which is not for samples, one call solves all columns: BLAS rounds the last of an odd number
        otherwise.
        """
        shape = (-1, *[1] * (b.ndim - 1))
        before, after = (self.columns, self.rows) if transposed else (self.rows, self.columns)
        wide = np.result_type(b, self.dtype)
        right = times_powers(b, before.reshape(shape)).astype(self.dtype, copy=False)  # SuperLU takes no wider numbers
        y, trans = np.empty_like(right), "T" if transposed else "N"
        if b.ndim == 1 or together:
            y[...] = self.lu.solve(right, trans)
        else:
            for k in range(b.shape[1]):
                y[:, k] = self.lu.solve(np.ascontiguousarray(right[:, k]), trans)
        return times_powers(y.astype(wide, copy=False), after.reshape(shape))

    def refined(self, A: Any, b: np.ndarray, transposed: bool = False) -> np.ndarray:
        """The solution of ``A x = b``, A the matrix that was factorised, with one step of refinement."""
        matrix, x = A.T if transposed else A, self.solve(b, transposed)
        refined: np.ndarray = x + self.solve(b - matrix @ x, transposed)
        return refined


def times_powers(numbers: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Real or complex numbers times powers of two."""
    if numbers.dtype.kind != "c":
        return np.asarray(np.ldexp(numbers, powers))
    made = np.empty(np.broadcast_shapes(numbers.shape, powers.shape), numbers.dtype)
    np.ldexp(numbers.real, powers, out=made.real)
    np.ldexp(numbers.imag, powers, out=made.imag)
    return made


def pivoted(A: Any) -> PivotedFactors | None:
    """SuperLU's factorisation of a SciPy matrix, with exchanges of rows; None where that is exactly singular.

    Its pivots are the largest entries of their columns whatever the units of the rows are, which are made alike before.
    """
    from scipy.sparse.linalg import MatrixRankWarning, splu

    rows, columns = _scales(A)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MatrixRankWarning)
        try:
            scaled = _scaled(A, rows, columns).tocsc()
            return PivotedFactors(splu(scaled), rows, columns, scaled.dtype)
        except RuntimeError:  # "Factor is exactly singular"
            return None


def _scales(A: Any) -> tuple[np.ndarray, np.ndarray]:
    """Powers of two for rows and columns by which the geometric means of their entries become alike, of 1 at most [1]_.

    .. [1] Curtis, Reid (1972), IMA J. Appl. Math. 10, 118-124; by sweeps over rows and columns in turn.
    """
    entries = sp.coo_array(A)
    known = entries.data != 0.0
    i, j = (index[known] for index in entries.coords)
    size = np.frexp(np.abs(entries.data[known]))[1].astype(np.float64)
    n, m = entries.shape
    counts = [np.maximum(np.bincount(index, minlength=length), 1) for index, length in ((i, n), (j, m))]
    rows, columns = np.zeros(n), np.zeros(m)
    for _ in range(SWEEPS):
        rows = -np.bincount(i, size + columns[j], n) / counts[0]
        columns = -np.bincount(j, size + rows[i], m) / counts[1]
    for index, scales in ((j, columns), (i, rows)):
        largest = np.full(scales.size, -np.inf)
        np.maximum.at(largest, index, size + rows[i] + columns[j])
        scales -= np.where(np.isfinite(largest), largest, 0.0)
    return np.rint(rows).astype(np.int64), np.rint(columns).astype(np.int64)


def _scaled(A: Any, rows: np.ndarray, columns: np.ndarray) -> Any:
    """The matrix with rows and columns multiplied by powers of two."""
    made = sp.csr_array(A, copy=True)
    of_entry = np.repeat(rows, np.diff(made.indptr))
    made.data = times_powers(made.data, of_entry + columns[made.indices])
    return made


def pivoted_determinant(A: Any) -> tuple[Any, float]:
    """Sign and logarithm of the magnitude, as ``numpy.linalg.slogdet``: 0 and -inf for a singular matrix.

    The sign of a complex determinant is the determinant over its magnitude.
    """
    factors = pivoted(A)
    if factors is None:
        return 0.0, -np.inf
    lu, powers = factors.lu, factors.rows.sum() + factors.columns.sum()
    diagonal = lu.U.diagonal()
    sign = np.prod(diagonal / np.abs(diagonal)) * parity(lu.perm_r) * parity(lu.perm_c)
    return sign.item(), float(np.sum(np.log(np.abs(diagonal))) - powers * np.log(2.0))


def pivoted_inertia(A: Any) -> np.ndarray:
    """Numbers of negative and positive eigenvalues; -1 for a large matrix."""
    n = A.shape[0]
    if n > MOST_DENSE:
        return np.array([-1, -1])
    rows, columns = _scales(A)
    scales = (rows + columns) // 2  # the same for rows and columns: the signs of the eigenvalues stay
    eigenvalues = np.linalg.eigvalsh(_scaled(A, scales, scales).toarray())
    zero = n * np.finfo(np.float64).eps * np.abs(eigenvalues).max()
    return np.array([(eigenvalues < -zero).sum(), (eigenvalues > zero).sum()])


def pivoted_inverse(A: Any, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Entries (row, column) of the inverse; NaN for a singular matrix."""
    found, factors = np.full(rows.size, np.nan), pivoted(A)
    wanted, place = np.unique(columns, return_inverse=True)
    for first in range(0, 0 if factors is None else wanted.size, COLUMNS):
        some = wanted[first : first + COLUMNS]
        units = np.zeros((A.shape[0], some.size))
        units[some, np.arange(some.size)] = 1.0
        assert factors is not None
        solved, here = factors.solve(units, together=True), (place >= first) & (place < first + COLUMNS)
        found[here] = solved[rows[here], place[here] - first]
    return found


def parity(order: np.ndarray) -> int:
    """The sign of a permutation."""
    left, sign = np.ones(order.size, bool), 1
    for start in range(order.size):
        i, length = start, 0
        while left[i]:
            left[i] = False
            i, length = int(order[i]), length + 1
        sign = -sign if length and length % 2 == 0 else sign
    return sign
