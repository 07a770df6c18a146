"""Reciprocal condition numbers of the matrices of a direct solve, from their factorisations, per sample."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._check import samples_text, warn_caller
from ensemble._compile.kept_memory import empty
from ensemble._kernels.krylov.backward_error import backward_error
from ensemble._kernels.krylov.narrowing import narrowed_values
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.factorizations.condition import equilibrated_conditions, one_norms, reciprocal_conditions
from ensemble.linalg.factorizations.exchanges import PivotedFactors, pivoted
from ensemble.linalg.factorizations.factorization import Factorization, planned
from ensemble.scalar import Ensemble

FAR = 64
"""Powers of two by which values may differ from one before they are scaled to be held in float32."""

UNEVEN = 10.0
"""Backward error by entries over that by rows, and over the unit of rounding, from which on refinement reduces it."""

MOVED = 1e-3
"""Change of a solution, over the solution, from which on a matrix may be nearly singular."""

LOST = 1e-2
"""Change of the largest components of a solution, over them, from which on there is a warning."""

CHANGES = 3
"""Changes of A and b by rounding that are tried: one hides a large change of x in some cases of 1,000."""


@functools.cache
def limits_of(dtype: Any) -> tuple[float, float, float]:
    """Return the rounding of a real type, and the least and largest norm whose square is in its range."""
    limits = np.finfo(str(dtype).split(".")[-1])
    eps, least, most = float(limits.eps), float(limits.smallest_normal), float(limits.max)
    return eps, float(np.sqrt(least)) / eps, float(np.sqrt(most)) / 2.0


def scaled_values(A: CrsMatrix, dtype: Any) -> tuple[CrsMatrix, np.ndarray | None]:
    """`A` over powers of two, one per sample, by which its values fit into float32; None for no such powers.

    In float32 already where no power is needed and its values are in NumPy's arrays.
    """
    if dtype != np.float32 or A.values.dtype.itemsize == 4 or not A.nnz:
        return A, None
    xp, narrow = array_namespace(A.values), None
    with np.errstate(all="ignore"):
        if isinstance(A.values, np.ndarray):
            narrow, largest = narrowed_values(A.values, empty(A.values.shape, np.float32))
        else:
            largest = to_numpy(xp.maximum(xp.max(A.values, axis=0), -xp.min(A.values, axis=0)))
    exponent = np.where(np.isfinite(largest) & (largest > 0.0), np.frexp(largest)[1], 0)
    far = np.abs(exponent) > FAR
    if far.any():
        # Other samples keep the bits of their own run.
        unit = np.ldexp(1.0, np.where(far, np.minimum(exponent, 1023), 0))
        return A / Ensemble(asarray_like(unit, A.values)), unit
    return (A if narrow is None else CrsMatrix(A.graph, Ensemble(narrow, A.sample_set))), None


def reciprocal_pivots(F: Factorization, unit: Any, like: Any) -> Any:
    """Compute 1 / pivots of F times `unit`, shape (n, n_samples), in the type of the array `like`."""
    found, xp = F._reciprocal_pivots(), array_namespace(like)
    found = found if found.dtype == like.dtype else xp.astype(found, like.dtype)
    return found if unit is None else found / unit


def estimated(F: Any, A: CrsMatrix, unit: np.ndarray | None, samples: np.ndarray, equilibrated: bool) -> np.ndarray:
    """Estimate reciprocal condition numbers of the samples named of A, from F, the factorisation of A / `unit`.

    From factors with exchanges where those in float32 do not tell.
    """
    chosen = samples if A.n_samples > 1 else samples[:1]
    own, some = F.take_samples(chosen), A.take_samples(chosen).to(np.empty(0))
    like, scale = own.reference_array, 1.0 if unit is None else unit[chosen]

    def solve(operator: Any) -> Any:
        return lambda x: to_numpy(operator.apply(asarray_like(x.astype(F.dtype), like))).astype(np.float64) / scale

    with np.errstate(all="ignore"):
        found = _conditions(some, solve(own), solve(own.T), equilibrated)
    if F.dtype.itemsize < A.values.dtype.itemsize:
        for i in np.flatnonzero(~(found > UNEVEN * A.shape[0] * limits_of(F.dtype)[0])).tolist():
            found[i] = pivoted_condition(some.take_samples([i]), pivoted(some.to_scipy(i)), equilibrated)
    return found if A.n_samples > 1 else np.repeat(found, samples.size)


def digits_kept(A: CrsMatrix, x: np.ndarray, b: np.ndarray, solve: Any) -> tuple[np.ndarray, np.ndarray]:
    """Tell of which samples `x`, solutions for `b`, keeps its digits where A and b are rounded [1]_.

    The first array marks samples of which every component keeps three digits. Such a solution is none of a singular
    matrix, however small the condition number in any units of rows and columns is. The second one marks samples that
    lose all but one digit of their largest components, in units of the columns in which rows have entries of at most
    one. Entries change by half a unit of rounding to one, and b by as much of the residual, with numbers that depend
    on the number of rows alone. The residual shows where entries that are not stored would have to change: two rows
    with one entry each, in the same column. A is in NumPy's arrays, all arrays are contiguous, and `solve` multiplies
    its inverse with vectors of shape (n, n_samples).

    .. [1] Skeel (1979), J. ACM 26, 494-526.
    """
    n = x.shape[0]
    changes = np.random.default_rng(n).uniform(0.5, 1.0, (2, CHANGES, n, 1))
    changes = np.where(changes[0] < 0.75, -1.0, 1.0) * changes[1]  # equal ones cancel where rows are alike
    with np.errstate(all="ignore"):
        size = CrsMatrix(A.graph, np.abs(A.values)).apply(np.abs(x)) + np.abs(b)
        size *= limits_of(x.dtype)[0]
        size += np.abs(b - A.apply(x))
        known = (size > 0.0).all(axis=0)
        kept, largest = known.copy(), np.zeros(x.shape)
        for own in changes:
            change = np.abs(solve(size * own))
            kept &= (change <= MOVED * np.abs(x)).all(axis=0)
            np.fmax(largest, change, out=largest)
        if kept.all():
            return kept, ~kept
        unit = _column_units(A)
        sizes = (unit * np.abs(x)).max(axis=0, initial=0.0)
        lost = known & ~((unit * largest).max(axis=0, initial=0.0) <= LOST * sizes)
    return kept, lost & ~kept


def _column_units(A: CrsMatrix) -> np.ndarray:
    """Compute the largest magnitudes in columns of A whose rows are over their own largest, shape (n, n_samples)."""
    sizes = np.abs(A.values)
    rows, columns = np.zeros((A.shape[0], A.n_samples)), np.zeros((A.shape[1], A.n_samples))
    places: tuple[Any, Any] = A.graph.row_of_entry, A.graph.indices
    np.maximum.at(rows, places[0], sizes)
    np.maximum.at(columns, places[1], np.where(sizes > 0.0, sizes / rows[places[0]], 0.0))
    return columns


def _conditions(A: CrsMatrix, solve: Any, solve_transposed: Any, equilibrated: bool) -> np.ndarray:
    if equilibrated:
        return equilibrated_conditions(A, solve, solve_transposed)
    return reciprocal_conditions(one_norms(A), solve, solve_transposed, A.shape[0])


def pivoted_condition(A: CrsMatrix, factors: PivotedFactors | None, equilibrated: bool) -> float:
    """Estimate the reciprocal condition number of one sample from factors with exchanges; 0 where it has none."""
    if factors is None:
        return 0.0
    A = A.to(np.empty(0))
    return float(_conditions(A, factors.solve, lambda x: factors.solve(x, True), equilibrated)[0])


class Conditions:
    """Reciprocal condition numbers of all samples of a solve, worked out when asked.

    A is factorised anew for that, so that a result holds no factorisation. The number of a sample whose values in A
    were changed in place since is NaN: it shows in `cancelled`.
    """

    def __init__(self, solution: Any, A: CrsMatrix, plan: Factorization | None, of_exchanged: Any) -> None:
        """`of_exchanged` gives numbers and conditions of samples that took pivots of their own.

        The plan is that of default options where none is given.
        """
        self.equilibrated, self.cancelled = solution.rcond, solution.cancelled
        self.repaired, self.exchanged = solution.repaired, solution.exchanged
        self.n_samples, self.eps = self.equilibrated.size, limits_of(A.values.dtype)[0]
        self.A, self.plan, self.of_exchanged = A, plan and plan._with_plan(), of_exchanged
        self.known: np.ndarray | None = None

    @property
    def nearly_singular(self) -> np.ndarray:
        """Return the samples that are singular to working precision."""
        return np.flatnonzero(self.equilibrated < self.eps)

    def __getstate__(self) -> dict[str, Any]:
        self.found()
        return {name: value for name, value in vars(self).items() if name not in ("A", "plan", "of_exchanged")}

    def found(self) -> np.ndarray:
        """Return the reciprocal condition numbers of all samples, shape (n_samples,)."""
        if self.known is None:
            known = self._worked_out()
            self.known = known if known.size == self.n_samples else np.repeat(known, self.n_samples)
            del self.A, self.plan, self.of_exchanged
        return self.known

    def _worked_out(self) -> np.ndarray:
        A, values = self.A, self.A.values
        plan = self.plan or planned(A, kind="auto", ordering="auto", matching="graph", dtype=None)
        scaled, unit = scaled_values(A, plan.dtype)
        with np.errstate(all="ignore"):
            F = plan.update(scaled)
            nothing = asarray_like(np.zeros((A.shape[0], A.n_samples), A.dtype), values)
            inverse = reciprocal_pivots(F, None if unit is None else asarray_like(unit, values), values)
            cancelled = to_numpy(backward_error(*A.arrays, nothing, nothing, inverse)[3])
            found = estimated(F, A, unit, np.arange(A.n_samples), False)
        host, before = A.to(np.empty(0)), self.cancelled if A.n_samples > 1 else self.cancelled[:1]
        exchanged = self.exchanged[: A.n_samples]
        cancelled, found = np.where(exchanged, np.nan, cancelled), np.where(exchanged, np.nan, found)
        for chosen, sizes, conditions in self.of_exchanged(host, np.flatnonzero(exchanged)):
            cancelled[chosen], found[chosen] = sizes, conditions
        same = (cancelled == before) | (np.isnan(cancelled) & np.isnan(before))
        for s in np.flatnonzero((F.broken | self.repaired[: A.n_samples]) & ~exchanged).tolist():
            if np.isfinite(host.values[:, s]).all():
                own = host.take_samples([s])
                found[s] = pivoted_condition(own, pivoted(own.to_scipy()), False)
            else:
                found[s] = np.nan
        return np.where(same, found, np.nan)


def warn_of_conditions(rcond: np.ndarray, nearly: np.ndarray, lost: np.ndarray) -> None:
    """Warn of samples that converged: those singular to working precision, and those whose `x` lost its digits.

    Both are marked per sample. A sample of the first kind is not named again.
    """
    from scipy.linalg import LinAlgWarning

    n = rcond.size
    if nearly.any():
        warn_caller(
            f"direct: A must be far from singular; got a nearly singular matrix in {nearly.sum()} of {n} samples "
            f"({samples_text(np.flatnonzero(nearly), of=n)}; rcond {rcond[nearly].min():.1e}). Their solutions may "
            "have no correct digit. Fix the null space (apply_dirichlet for one unknown), or use minres for a "
            "symmetric matrix and a consistent right-hand side.",
            LinAlgWarning,
        )
    lost = lost & ~nearly
    if lost.any():
        warn_caller(
            f"direct: rounding A and b must leave two digits of x; got a larger change in {lost.sum()} of {n} samples "
            f"({samples_text(np.flatnonzero(lost), of=n)}; rcond {rcond[lost].min():.1e}). Their backward errors are "
            "small, and x may have no correct digit. Give A and b with more digits, or other equations.",
            LinAlgWarning,
        )
