"""Estimates of condition numbers from factorisations, per sample."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ensemble._kernels.krylov.vectors import dot
from ensemble.linalg.crs_matrix import CrsMatrix

__all__ = ["equilibrated_conditions", "inverse_norms", "one_norms", "reciprocal_conditions"]

MOST_STEPS = 5
"""Steps of the estimator at most, as in LAPACK's ``dlacn2``."""

SCALING_STEPS = 200
"""Steps of the least-squares method that finds units of rows and columns, at most."""

BALANCING_STEPS = 30
"""Steps by which sums of rows and columns become alike."""

Solve = Callable[[np.ndarray], np.ndarray]
"""The product of an inverse with vectors of shape (n, n_samples)."""


def one_norms(A: CrsMatrix) -> np.ndarray:
    """The largest sum of magnitudes of a column, per sample of a matrix of NumPy's; NaN where one is not finite."""
    sums = CrsMatrix(A.graph, np.abs(A.values)).apply_transpose(np.ones((A.shape[0], A.n_samples), A.dtype))
    largest: np.ndarray = np.max(sums, axis=0, initial=0.0).astype(np.float64)
    return largest


def reciprocal_conditions(norms: np.ndarray, solve: Solve, solve_transposed: Solve, n: int) -> np.ndarray:
    """Estimates of ``1 / (|A|_1 |A^-1|_1)`` per sample, from the norms of A; 0 for a singular sample."""
    with np.errstate(all="ignore"):
        found = 1.0 / norms / inverse_norms(solve, solve_transposed, n, norms.size)
        known: np.ndarray = np.where(np.isfinite(found), found, 0.0)
    return known


def equilibrated_conditions(A: CrsMatrix, solve: Solve, solve_transposed: Solve) -> np.ndarray:
    """`reciprocal_conditions` of A with rows and columns over powers of two by which its entries are of one size.

    Units of equations and unknowns do not change it. Entries far below the others of their rows and columns would, if
    the units of all entries were sought: a sample that looks singular is judged again in units by which the sums of
    rows and columns are alike, which such entries do not change. A is in NumPy's arrays.
    """
    scales = [_scales(A, s) for s in range(A.n_samples)]
    found = _conditions_in(scales, A, solve, solve_transposed)
    decided = A.shape[0] * float(np.finfo(A.values.dtype).eps)
    doubtful = np.flatnonzero(~(found > decided) & np.isfinite(A.values).all(axis=0))
    if not doubtful.size:
        return found
    for s in doubtful.tolist():
        scales[s] = _balanced_scales(A, s, *scales[s])
    again = _conditions_in(scales, A, solve, solve_transposed)
    # Rounding alone makes numbers up to `decided` of a singular matrix, in other units too.
    again[~(again > decided)] = 0.0
    found[doubtful] = np.maximum(found, again)[doubtful]
    return found


Scales = tuple[np.ndarray, np.ndarray]
"""Powers of two for the rows and columns of a sample, integers."""


def _conditions_in(scales: list[Scales], A: CrsMatrix, solve: Solve, solve_transposed: Solve) -> np.ndarray:
    """`reciprocal_conditions` of A with rows and columns times powers of two."""
    rows, columns = (np.stack(powers, axis=1) for powers in zip(*scales, strict=True))
    with np.errstate(all="ignore"):
        sizes = np.ldexp(np.abs(A.values), rows[A.graph.row_of_entry] + columns[A.graph.indices])
        return reciprocal_conditions(  # the inverse of R A C is C^-1 A^-1 R^-1
            one_norms(CrsMatrix(A.graph, sizes)),
            lambda x: np.ldexp(solve(np.ldexp(x, -rows)), -columns),
            lambda x: np.ldexp(solve_transposed(np.ldexp(x, -columns)), -rows),
            A.shape[0],
        )


def _nonzeros(A: CrsMatrix, s: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns, and logarithms to base 2 of the magnitudes, of the finite nonzero entries of a sample."""
    values = np.abs(A.values[:, s])
    known = np.flatnonzero(np.isfinite(values) & (values > 0.0))
    return A.graph.row_of_entry[known], A.graph.indices[known], np.log2(values[known].astype(np.float64))


def _scales(A: CrsMatrix, s: int) -> Scales:
    """Powers of two for rows and columns of a sample by which the logarithms of its entries are least in square [1]_.

    .. [1] Curtis, Reid (1972), IMA J. Appl. Math. 10, 118-124.
    """
    import scipy.sparse as sp
    from scipy.sparse.linalg import lsmr

    i, j, logarithms = _nonzeros(A, s)
    n, count = A.shape[0], logarithms.size
    if not count:
        return np.zeros(n, np.int64), np.zeros(n, np.int64)
    places = np.stack([i, j + n], axis=1).reshape(-1)
    incidence = sp.csr_array((np.ones(2 * count), places, np.arange(0, 2 * count + 1, 2)), shape=(count, 2 * n))
    powers = np.rint(-lsmr(incidence, logarithms, maxiter=SCALING_STEPS)[0]).astype(np.int64)
    return powers[:n], powers[n:]


def _balanced_scales(A: CrsMatrix, s: int, rows: np.ndarray, columns: np.ndarray) -> Scales:
    """Powers of two by which the sums of magnitudes in rows and columns are nearly one [2]_, from those given.

    Those given, where there are none: in units that drift apart, the rounding of factors looks like entries.

    .. [2] Sinkhorn, Knopp (1967), Pacific J. Math. 21, 343-348.
    """
    i, j, logarithms = _nonzeros(A, s)
    powers = [rows.astype(np.float64), columns.astype(np.float64)]

    def sums(places: np.ndarray) -> np.ndarray:
        found = np.full(A.shape[0], -np.inf)
        np.logaddexp2.at(found, places, logarithms + powers[0][i] + powers[1][j])
        return found

    with np.errstate(invalid="ignore"):  # a row without entries
        for _ in range(BALANCING_STEPS):
            powers[0] -= sums(i)
            powers[1] -= sums(j)
        alike = np.abs(sums(i)).max(initial=0.0) < 1.0
    if not alike:
        return rows, columns
    rows, columns = (np.rint(found).astype(np.int64) for found in powers)
    return rows, columns


def inverse_norms(solve: Solve, solve_transposed: Solve, n: int, n_samples: int) -> np.ndarray:
    """Estimates of the 1-norm of an inverse, per sample: lower bounds, rarely below a third of it [1]_.

    A sample that has ended keeps its estimate; it goes through the steps of the others, which change no bit of it.

    .. [1] Higham (1988), ACM TOMS 14, 381-396, algorithm 4.1, after Hager (1984).
    """
    if not n:
        return np.zeros(n_samples)
    ones, own = np.ones((n, n_samples)), np.arange(n_samples)

    def length(x: np.ndarray) -> np.ndarray:
        total: np.ndarray = dot(np.abs(x), ones, None)
        return total

    x = solve(ones / n)
    estimate, signs = length(x), np.where(x >= 0.0, 1.0, -1.0)
    z = np.abs(solve_transposed(signs))
    place = np.argmax(z, axis=0)
    active = np.isfinite(estimate) & (n > 1)
    for _ in range(MOST_STEPS - 1):
        if not active.any():
            break
        unit = np.zeros_like(ones)
        unit[place, own] = 1.0
        x = solve(unit)
        found, new = length(x), np.where(x >= 0.0, 1.0, -1.0)
        better = active & ~(found <= estimate)
        active = better & (new != signs).any(axis=0)
        estimate, signs = np.where(better, found, estimate), np.where(active, new, signs)
        z = np.abs(solve_transposed(signs))
        following = np.argmax(z, axis=0)
        active &= z[following, own] != z[place, own]
        place = np.where(active, following, place)
    steps = np.arange(n) / max(n - 1, 1)
    other = np.where(np.arange(n) % 2 == 0, 1.0, -1.0) * (1.0 + steps)
    alternative = 2.0 * length(solve(np.repeat(other[:, None], n_samples, axis=1))) / (3.0 * n)
    largest: np.ndarray = np.where(alternative > estimate, alternative, estimate)
    return largest
