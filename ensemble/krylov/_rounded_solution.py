"""Solutions of large systems that need exchanges: exact ones, rounded, by factors that samples share.

The digits of an exact solution do not depend on the factors that found it. So a sample may be solved by pivots that
were matched to the numbers of another one: corrections from residuals in about twice the precision are added until no
component would round otherwise. A sample of which that does not come about takes pivots of its own, those of SuperLU.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.kept_memory import empty
from ensemble._kernels.krylov.backward_error import backward_error
from ensemble._kernels.krylov.extended import corrected, extended_residual
from ensemble._kernels.krylov.vectors import dot
from ensemble.krylov._conditions import digits_kept, limits_of, pivoted_condition
from ensemble.krylov._direct_solution import ROUNDOFFS, DirectSolution, safe_norms
from ensemble.krylov._norms import fetched
from ensemble.krylov._system import LinearSystem
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.factorizations.exchanges import PivotedFactors, pivoted
from ensemble.linalg.factorizations.matched_pivots import VAIN, MatchedPivots, matched_pivots_of, prints_of
from ensemble.linalg.graph import CrsGraph

__all__ = ["conditions_by_superlu", "is_large", "rounded_solution"]

LARGE = 1 << 15
"""Entries of a graph from which on samples are solved in this way: many rows leave each sample exchanges of its own."""

STEPS = 30
"""Corrections at most: as many as `CONTRACTION` takes to come to `CLOSE`."""

CONTRACTION = 0.25
"""Share of the correction before that a correction may have at most."""

CLOSE = 2.0**-58
"""Last correction of a component, over the component, above which this one is not known to its last digit."""

NEGLIGIBLE = 2.0**-40
"""Share of the first correction of a component up to which the component is rounding alone, and zero."""

DOUBT = 1e-4
"""First correction of a component, over the component, from which on the digits of a solution are tried."""

BYTES = 1 << 28
"""Bytes of factors that are held together."""

FEW = 8
"""One over the share of samples up to which those that no elimination serves are solved one by one."""

TOGETHER = 32
"""Samples at most that are factorised together."""


class _Refined(NamedTuple):
    """Solutions, and what is known of them per sample."""

    x: np.ndarray
    first: np.ndarray
    """The largest first correction of a component over the component."""
    certain: np.ndarray
    """True where x is the exact solution rounded, whatever the factors are."""
    settled: np.ndarray
    """True where the last correction changes no digit of x, and for certain samples."""


def is_large(graph: CrsGraph) -> bool:
    """Whether samples that need exchanges are solved in this way."""
    return graph.nnz >= LARGE


def _refined(solve: Any, A: CrsMatrix, b: np.ndarray, floors: np.ndarray | None = None) -> _Refined:
    """Correct solutions until they are certain, or corrections shrink no more.

    Components up to `floors` are zero. Where corrections do not shrink, these are worked out and the solution is
    repeated: numbers that cancel leave components of rounding alone, which no correction brings nearer to zero.
    """
    x = np.ascontiguousarray(solve(b))
    low, n_samples = np.zeros_like(x), x.shape[1]
    certain, failed = np.zeros((2, n_samples), bool)
    with np.errstate(all="ignore"):
        opening, first, before = x, np.zeros(n_samples), np.full(n_samples, np.inf)
        for step in range(STEPS):
            r, odd = extended_residual(*A.arrays, x, low, b)
            change = np.ascontiguousarray(solve(r))
            ratios, doubts = corrected(x, low, change, floors)
            if not step:
                opening, first = change, ratios
            certain |= ~(failed | odd | doubts) & (ratios <= CLOSE)
            failed |= odd | ~(ratios <= CONTRACTION * before)
            before = ratios
            if (certain | failed).all():
                break
        if floors is not None:
            x[np.abs(x) <= floors] = 0.0
        else:
            floors = None if certain.all() else np.where(certain | odd, -1.0, NEGLIGIBLE * np.abs(opening))
            if floors is not None and ((np.abs(x) <= floors) & (np.abs(change) > CLOSE * np.abs(x))).any():
                return _refined(solve, A, b, floors)
    return _Refined(x, first, certain, certain | ((ratios <= CLOSE) & ~odd))


class _Solver:
    """The solutions of the samples named of a system, worked out step by step."""

    def __init__(self, A: CrsMatrix, b: np.ndarray, samples: np.ndarray) -> None:
        self.A, self.b, self.samples = A, b, samples
        self.x, self.left = empty((b.shape[0], samples.size), b.dtype), np.arange(samples.size)
        self.alone, self.doubtful = np.ones((2, samples.size), bool)

    def matrix(self, places: np.ndarray) -> CrsMatrix:
        """Take the matrices of some of the samples."""
        chosen = self.samples[places]
        every = self.A.n_samples == 1 or np.array_equal(chosen, np.arange(self.A.n_samples))
        return self.A if every else self.A.take_samples(chosen)

    def take(self, places: np.ndarray, found: _Refined, good: np.ndarray) -> None:
        """Keep the solutions of those of `places` that are `good`."""
        if good.all() and places.size == self.samples.size:
            self.x, self.left = found.x, self.left[:0]
        else:
            self.x[:, places[good]] = found.x[:, good]
            self.left = np.setdiff1d(self.left, places[good])

    def by_plan(self, plan: Any) -> int:
        """Solve the samples that are left by one elimination; returns how many are certain."""
        size = int(min(max(BYTES // (8 * plan.n_values) // 8 * 8, 1), TOGETHER))
        left, served = self.left, list[np.ndarray]()
        F: Any = None
        for begin in range(0, left.size, size):
            places = left[begin : begin + size]
            A, b = self.matrix(places), np.ascontiguousarray(self.b[:, self.samples[places]])
            F = plan.update(A) if begin == 0 or A.n_samples > 1 else F
            found = _refined(F.apply, A, b)
            self.take(places, found, found.certain)
            self.doubtful[places] = ~(found.first <= DOUBT)
            self.try_digits(places, found.certain, F)
            served.append(places[found.certain])
        members = np.concatenate(served)
        self.alone[members] = members.size == 1
        return members.size

    def try_digits(self, places: np.ndarray, certain: np.ndarray, F: Any) -> None:
        """Take the samples for sure that keep their digits where A and b are rounded, by F, the factors of `places`."""
        lanes = np.flatnonzero(certain & self.doubtful[places])
        if lanes.size:
            chosen = places[lanes]
            x, b = (np.ascontiguousarray(array) for array in (self.x[:, chosen], self.b[:, self.samples[chosen]]))
            self.doubtful[chosen] = ~digits_kept(self.matrix(chosen), x, b, F.take_samples(lanes).apply)[0]

    def by_plans(self, pivots: MatchedPivots) -> None:
        """Solve by the eliminations that are kept, and by new ones where these serve few of the samples."""
        for plan in pivots.plans:
            if not self.left.size:
                return
            if self.by_plan(plan):
                pivots.put_first(plan)
                pivots.vain = 0
        if FEW * self.left.size <= self.samples.size or pivots.vain >= VAIN:
            return
        finite = np.isfinite(self.b[:, self.samples[self.left]]).all(axis=0)
        finite &= np.isfinite(self.matrix(self.left).values).all(axis=0)
        first = self.left[finite][:1]
        for plan_of in (pivots.matched, pivots.exchanged):
            made = plan_of(self.matrix(first).values) if np.isin(first, self.left).any() else None
            if made is not None and self.by_plan(made):
                pivots.put_first(made)
                pivots.vain += 1

    def alone_by_superlu(self) -> None:
        """Solve the samples that are left, one by one, by SuperLU's pivots; what is not found stays left."""
        for place in self.left.tolist():
            own = np.array([place])
            A, b = self.matrix(own), np.ascontiguousarray(self.b[:, self.samples[own]])
            if not (np.isfinite(A.values).all() and np.isfinite(b).all()):
                continue
            factors = pivoted(A.to_scipy())
            if factors is not None:
                found = _refined(factors.solve, A, b)
                self.take(own, found, found.settled)


class RoundedSolution(DirectSolution):
    """Exact solutions, rounded, of the samples named, as a `DirectSolution` has them."""

    def __init__(self, A: CrsMatrix, b: np.ndarray, x: np.ndarray, alone: np.ndarray) -> None:
        n_samples = x.shape[1]
        self.A, self.x, self.b, self.F, self.alone = A, x, b, None, alone
        self.eps = limits_of(b.dtype)[0]
        self.tolerance, self.inverse = ROUNDOFFS * self.eps, b[:0]
        r, *errors = backward_error(*A.arrays, x, b, self.inverse)
        self.error, self.entries, _, squares, of_b = fetched(*errors, dot(r, r, None), dot(b, b, None))
        self.r, self.norm, self.norm_b = r, safe_norms(r, squares), safe_norms(b, of_b)
        self.cancelled = prints_of(A.values) if A.n_samples > 1 else np.repeat(prints_of(A.values), n_samples)
        self.iterations, self.rcond = np.zeros(n_samples, np.int64), np.full(n_samples, np.nan)
        self.repaired, self.exchanged = np.ones((2, n_samples), bool)
        self.uncertain = np.zeros(n_samples, bool)
        self.history, self.refined = [self.norm.copy()], 1

    def try_digits(self, samples: np.ndarray) -> None:
        """Find which of the samples named lose their digits where A and b are rounded, by SuperLU's factors."""
        for s in samples.tolist():
            own = self.A if self.A.n_samples == 1 else self.A.take_samples([s])
            factors = pivoted(own.to_scipy())
            x, b = (np.ascontiguousarray(array[:, s : s + 1]) for array in (self.x, self.b))
            kept = factors is not None and self._digits_kept(s, own, x, b, factors)
            if not kept:
                self.rcond[s] = pivoted_condition(own, factors, True)

    def _digits_kept(self, s: int, A: CrsMatrix, x: np.ndarray, b: np.ndarray, factors: PivotedFactors) -> bool:
        kept, lost = digits_kept(A, x, b, factors.solve)
        self.uncertain[s] = lost[0]
        return bool(kept[0])


def rounded_solution(
    system: LinearSystem, A: CrsMatrix, samples: np.ndarray
) -> tuple[np.ndarray, RoundedSolution | None, np.ndarray]:
    """Solve samples exactly and round; return those solved, their solutions, and those left.

    A and the right-hand sides hold float64 in NumPy's arrays.
    """
    work = _Solver(A, system.b, samples)
    with np.errstate(all="ignore"):
        work.by_plans(matched_pivots_of(A.graph))
        work.alone_by_superlu()
    if work.left.size == samples.size:
        return samples[:0], None, samples
    places = np.setdiff1d(np.arange(samples.size), work.left)
    x = work.x if places.size == samples.size else np.ascontiguousarray(work.x[:, places])
    b = np.ascontiguousarray(system.b[:, samples[places]])
    solution = RoundedSolution(work.matrix(places), b, x, work.alone[places])
    solution.try_digits(np.flatnonzero(work.doubtful[places]))
    return samples[places], solution, samples[work.left]


def conditions_by_superlu(A: CrsMatrix, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Work out numbers that change with the values of samples, and reciprocal condition numbers."""
    own = [A.take_samples([s]) if A.n_samples > 1 else A for s in samples.tolist()]
    found = np.array([pivoted_condition(matrix, pivoted(matrix.to_scipy()), False) for matrix in own])
    return samples, np.concatenate([prints_of(matrix.values) for matrix in own]), found
