"""Solutions of many systems by their factorisations: refinement, exchanges of rows, and conditions, per sample."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, to_numpy
from ensemble._compile.memory import empty
from ensemble._kernels.krylov.backward_error import backward_error
from ensemble._kernels.krylov.vectors import dot
from ensemble.krylov._conditions import UNEVEN, estimated, limits_of, pivoted_condition, reciprocal_pivots
from ensemble.krylov._norms import fetched, norms
from ensemble.krylov._system import LinearSystem
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.exchanges import PivotedFactors, pivoted
from ensemble.linalg.factorization import Factorization

REFINEMENTS = 10
"""Steps of refinement at most."""

ROUNDOFFS = 450.0
"""Backward error, in units of rounding, above which a solution is refined or replaced: 1e-13 in float64."""

FLOOR = 4.0
"""Backward error, in units of rounding, that refinement does not reduce."""

BUDGET = 1 << 31
"""Bytes of factorisations that are held together."""


def solved(system: LinearSystem, A: CrsMatrix, scaled: CrsMatrix, unit: Any, plan: Factorization) -> DirectSolution:
    """The solutions of all samples; part by part where their factorisations together would take too much memory."""
    tile = 64 // plan.dtype.itemsize
    size = max(BUDGET // max(plan.n_values * plan.dtype.itemsize, 1) // tile, 1) * tile
    if scaled.n_samples <= size:
        with np.errstate(all="ignore"):  # a broken sample's arithmetic concerns no other
            return DirectSolution(system, A, unit, *_factors_and_product(plan, scaled, system.b)).finish()
    parts = []
    for first in range(0, scaled.n_samples, size):
        chosen = np.arange(first, min(first + size, scaled.n_samples))
        rtol = system.rtol[chosen] if np.ndim(system.rtol) else system.rtol
        part = replace(system, b=contiguous(system.b[:, first : first + size]), rtol=rtol)
        with np.errstate(all="ignore"):
            made = _factors_and_product(plan, scaled.take_samples(chosen), part.b)
            own = DirectSolution(part, A.take_samples(chosen), None if unit is None else unit[chosen], *made).finish()
        del own.F, made  # before the next one is made
        parts.append(own)
    return _joined(parts)


def _factors_and_product(plan: Factorization, scaled: CrsMatrix, b: Any) -> tuple[Factorization, Any, Any]:
    """The factorisation, its product with `b` and the norms of `b`; None for what is left to another pass."""
    if not isinstance(b, np.ndarray) or plan.dtype.itemsize == b.dtype.itemsize:
        return *plan._update_and_apply(scaled, b), None
    norm = _norms(b, fetched(dot(b, b, None))[0])
    unit = _power_of_two(norm)
    narrow = _narrow(b, unit, plan.dtype)
    F, x = plan._update_and_apply(scaled, narrow)
    return F, np.multiply(F.apply(narrow) if x is None else x, unit, out=empty(b.shape, b.dtype)), norm


def _power_of_two(norm: np.ndarray) -> np.ndarray:
    """The power of two next to each norm; 1 for norms that have none."""
    exponent = np.where(np.isfinite(norm) & (norm > 0.0), np.frexp(norm)[1] - 1, 0)
    return np.ldexp(1.0, exponent)


def _narrow(r: np.ndarray, unit: np.ndarray, dtype: Any) -> np.ndarray:
    """``r / unit`` in another type."""
    narrow: np.ndarray = np.divide(r, unit, out=empty(r.shape, dtype), casting="same_kind")
    return narrow


class DirectSolution:
    """Solutions of all samples, with their residuals, backward errors and conditions.

    `error` are the backward errors by rows, `entries` those by entries; `cancelled` is the largest sum of a row of A
    over its pivot; `rcond` the condition of the equilibrated matrix, where it may be large, else NaN.
    """

    def __init__(self, system: LinearSystem, A: CrsMatrix, unit: Any, F: Factorization, x: Any, norm_b: Any) -> None:
        """`x` is the product of `F`, the factorisation of A over `unit`, with b, whose norms are `norm_b`, or None."""
        self.system, self.A, self.F, self.b = system, A, F, system.b
        self.unit = None if unit is None else asarray_like(unit, system.b)
        n_samples = self.b.shape[1]
        self.eps = limits_of(self.b.dtype)[0]
        self.tolerance = ROUNDOFFS * self.eps
        self.inverse = reciprocal_pivots(F, self.unit, self.b)
        if x is None:
            self.norm_b = _norms(self.b, fetched(dot(self.b, self.b, None))[0])
            self.x = self.solve(self.b, self.norm_b)
            self.r, self.error, self.entries, self.cancelled, self.norm = self.judged(self.x)
        else:
            self.x = x if self.unit is None else x / self.unit
            squares = [dot(self.b, self.b, None)] if norm_b is None else []
            marks = [] if F._marks is None else [F._marks]
            self.r, self.error, self.entries, self.cancelled, self.norm, *there = self.judged(self.x, *squares, *marks)
            self.norm_b = _norms(self.b, there[0]) if norm_b is None else norm_b
            if marks and F._settle(there[-1], self.x):
                self.r, self.error, self.entries, self.cancelled, self.norm = self.judged(self.x)
        self.iterations = np.zeros(n_samples, np.int64)
        self.repaired = np.zeros(n_samples, bool)
        self.rcond = np.full(n_samples, np.nan)
        self.history = [self.norm.copy()]

    def solve(self, r: Any, norm: np.ndarray) -> Any:
        """The product of the inverse that the factorisation stands for with `r`, whose norms are given."""
        x = self.F.apply(r) if self.F.dtype.itemsize == r.dtype.itemsize else self.solve_scaled(r, norm)
        return x if self.unit is None else x / self.unit

    def solve_scaled(self, r: Any, norm: np.ndarray) -> Any:
        """The same in the type of the factorisation, of `r` over the power of two next to its norm."""
        with np.errstate(all="ignore"):
            unit = asarray_like(_power_of_two(norm), r)
            if isinstance(r, np.ndarray):
                return np.multiply(self.F.apply(_narrow(r, unit, self.F.dtype)), unit, out=empty(r.shape, r.dtype))
            xp = array_namespace(r)
            narrow = contiguous(xp.astype(r / unit, getattr(xp, self.F.dtype.name)))
            return xp.astype(self.F.apply(narrow), r.dtype) * unit

    def judged(self, x: Any, *others: Any) -> tuple[Any, ...]:
        """The residual of `x`, its backward errors, `cancelled` and norms, and `others` on the host."""
        r, *errors = backward_error(*self.A.arrays, x, self.b, self.inverse)
        by_rows, by_entries, cancelled, squares, *others_there = fetched(*errors, dot(r, r, None), *others)
        return r, by_rows, by_entries, cancelled, _norms(r, squares), *others_there

    def finish(self) -> DirectSolution:
        """These solutions as good as they get."""
        self.refine()
        self.refined = len(self.history)
        self.repair()
        doubtful = (self.norm > np.sqrt(self.eps) * self.norm_b) | (self.cancelled > np.sqrt(1.0 / self.factor_eps))
        self.estimate(np.flatnonzero(doubtful & ~self.repaired & np.isfinite(self.error)))
        return self

    @property
    def factor_eps(self) -> float:
        """The rounding of the factorisation."""
        return limits_of(self.F.dtype)[0]

    def refine(self) -> None:
        """Add corrections while they halve what is too large: a sample's residual, or its backward error by entries."""
        xp = array_namespace(self.x)
        by_norm, by_entries = self.unfinished(), self.uneven()
        active = (by_norm | by_entries) & np.isfinite(self.error)
        for _ in range(REFINEMENTS):
            if not active.any():
                return
            corrected = self.solve(self.r, self.norm)
            corrected += self.x
            r, error, entries, _, norm = self.judged(corrected)
            known = active & np.isfinite(error)
            finer = (entries < self.entries) & (error <= np.maximum(self.error, self.tolerance))
            better = known & np.where(by_norm, norm < self.norm, finer)
            if not better.all():
                chosen = asarray_like(better, self.x)
                corrected, r = xp.where(chosen, corrected, self.x), xp.where(chosen, r, self.r)
            self.x, self.r = corrected, r
            halved = np.where(by_norm, norm <= 0.5 * self.norm, entries <= 0.5 * self.entries)
            self.norm, self.error = np.where(better, norm, self.norm), np.where(better, error, self.error)
            self.entries = np.where(better, entries, self.entries)
            self.iterations += active
            self.history.append(self.norm.copy())
            by_norm, by_entries = self.unfinished(), self.uneven()
            active = better & halved & (by_norm | by_entries)

    def unfinished(self) -> np.ndarray:
        """Samples with a backward error or a residual that refinement may still reduce."""
        reducible = self.error > FLOOR / ROUNDOFFS * self.tolerance
        large: np.ndarray = self.norm > self.system.rtol * self.norm_b
        wanted: np.ndarray = (self.error > self.tolerance) | (large & reducible)
        return wanted

    def uneven(self) -> np.ndarray:
        """Samples whose small components are less accurate than their large ones [1]_.

        .. [1] Arioli, Demmel, Duff (1989), SIAM J. Matrix Anal. 10, 165-190.
        """
        uneven: np.ndarray = (self.entries > UNEVEN * self.error) & (self.entries > UNEVEN * self.eps)
        return uneven

    def repair(self) -> None:
        """Solve the samples whose backward error is too large by themselves, with exchanges of rows."""
        bad = np.flatnonzero(~((self.error <= self.tolerance) & (self.entries <= self.tolerance)))
        if not bad.size:
            return
        values = to_numpy(self.A.take_samples(bad).values)
        for i, s in enumerate(bad.tolist()):
            own = values[:, i if values.shape[1] > 1 else 0]
            b = to_numpy(self.b[:, s])
            if not (np.isfinite(own).all() and np.isfinite(b).all()):
                continue
            A = self.A.to_scipy(s)
            factors = pivoted(A)
            if factors is None:
                self.rcond[s] = 0.0
                continue
            self.repaired[s] = True
            self.exchange(s, A, factors, b)
        self.history.append(self.norm.copy())

    def exchange(self, s: int, A: Any, factors: PivotedFactors, b: np.ndarray) -> None:
        """Replace the solution of sample `s`, whose right-hand side is b, where that by `factors` of A is better."""
        matrix, own_b = self.A.take_samples([s]), contiguous(self.b[:, s : s + 1])
        x, before = factors.solve(b), np.inf
        for _ in range(REFINEMENTS):
            x = x + factors.solve(b - A @ x)
            wide = asarray_like(np.ascontiguousarray(x[:, None]), self.x)
            r, *errors = backward_error(*matrix.arrays, wide, own_b, own_b[:0])
            error, entries = (float(to_numpy(found)[0]) for found in errors[:2])
            if not np.isfinite(error):
                break
            finer = error <= self.tolerance and entries < self.entries[s]
            if error < self.error[s] or finer or not np.isfinite(self.error[s]):
                self.x[:, s], self.r[:, s] = wide[:, 0], r[:, 0]
                self.error[s], self.entries[s] = error, entries
                self.norm[s] = _norms(r, fetched(dot(r, r, None))[0])[0]
            if entries <= UNEVEN * self.eps or entries > 0.5 * before:
                break
            before = entries
        small = np.abs(factors.lu.U.diagonal()).min(initial=1.0) < np.sqrt(self.eps)  # of entries of 1 at most
        if small or self.norm[s] > np.sqrt(self.eps) * self.norm_b[s]:
            self.rcond[s] = pivoted_condition(matrix, factors, True)

    def estimate(self, samples: np.ndarray) -> None:
        """Estimate the conditions of the samples named, equilibrated, from their factors."""
        if samples.size:
            unit = None if self.unit is None else to_numpy(self.unit)
            self.rcond[samples] = estimated(self.F, self.A, unit, samples, True)

    def nearly_singular(self) -> np.ndarray:
        """Samples that are singular to working precision."""
        found: np.ndarray = self.rcond < self.eps
        return found


def _joined(parts: list[DirectSolution]) -> DirectSolution:
    """The solutions of neighbouring samples as one."""
    joined, steps = parts[0], max(part.refined for part in parts)
    repaired = any(len(part.history) > part.refined for part in parts)  # which has a last row for all
    for part in parts:
        norms = part.history[: part.refined]
        part.history = norms + [norms[-1]] * (steps - part.refined) + [part.history[-1]] * repaired
    joined.x = array_namespace(joined.x).concat([part.x for part in parts], axis=1)
    joined.history = [np.concatenate(norms) for norms in zip(*(part.history for part in parts), strict=True)]
    for name in ("error", "entries", "cancelled", "rcond", "iterations", "repaired", "norm_b", "norm"):
        setattr(joined, name, np.concatenate([getattr(part, name) for part in parts]))
    return joined


def _norms(r: Any, squares: np.ndarray) -> np.ndarray:
    """2-norms per sample, float64 on the host, of vectors whose `squares` may have left the range of numbers."""
    if not r.shape[0]:
        return np.zeros(r.shape[1])
    plain: np.ndarray = np.sqrt(squares)
    _, low, high = limits_of(r.dtype)
    if low < plain.min() and plain.max() < high:  # false where one is NaN
        return plain
    xp, odd = array_namespace(r), ~((plain > low) & (plain < high))
    largest = xp.max(xp.abs(r), axis=0)
    unit = xp.where((largest > 0) & xp.isfinite(largest), largest, xp.ones_like(largest))
    return np.where(odd, norms(r / unit) * np.asarray(to_numpy(unit), np.float64), plain)
