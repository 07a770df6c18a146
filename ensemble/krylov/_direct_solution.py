"""Solutions of many systems by their factorisations: refinement, exchanges of rows, and conditions, per sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, to_numpy
from ensemble._compile.kept_memory import empty
from ensemble._kernels.krylov.backward_error import backward_error
from ensemble._kernels.krylov.vectors import dot
from ensemble.krylov._conditions import (
    UNEVEN,
    digits_kept,
    estimated,
    limits_of,
    pivoted_condition,
    reciprocal_pivots,
)
from ensemble.krylov._norms import fetched, norms
from ensemble.krylov._system import LinearSystem
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.factorizations.exchanges import PivotedFactors, pivoted
from ensemble.linalg.factorizations.factorization import Factorization

REFINEMENTS = 10
"""Steps of refinement at most."""

ROUNDOFFS = 450.0
"""Backward error, in units of rounding, above which a solution is refined or replaced: 1e-13 in float64."""

FLOOR = 4.0
"""Backward error, in units of rounding, that refinement does not reduce."""

BUDGET = 1 << 31
"""Bytes of factorisations that are held together."""


Exchanged = Callable[[LinearSystem, CrsMatrix, np.ndarray], Iterator[tuple[np.ndarray, "DirectSolution"]]]
"""Solutions with exchanges of those of the samples named that have one, in groups."""


def solved(
    system: LinearSystem, A: CrsMatrix, scaled: CrsMatrix, unit: Any, plan: Factorization, exchanged: Exchanged,
    first: bool,
) -> DirectSolution:  # fmt: skip
    """Solve for all samples, in parts whose factorisations together fit into `BUDGET` bytes.

    Samples take pivots by their own numbers, through `exchanged`, where those that the graph decides give large
    backward errors, or before these are tried if `first`.
    """
    tile = 64 // plan.dtype.itemsize
    size = max(BUDGET // max(plan.n_values * plan.dtype.itemsize, 1) // tile, 1) * tile
    n_samples = system.b.shape[1]
    if A.n_samples <= size:
        return _solved_part(system, A, scaled, unit, plan, exchanged, first)
    parts = []
    for begin in range(0, n_samples, size):
        chosen = np.arange(begin, min(begin + size, n_samples))
        made = _solved_part(*_chosen(system, A, scaled, unit, chosen), plan, exchanged, first)
        parts.append((chosen, made))
        made.F = None  # before the next one is made
    return _joined(parts, n_samples)


def _chosen(
    system: LinearSystem, A: CrsMatrix, scaled: CrsMatrix, unit: Any, chosen: np.ndarray
) -> tuple[LinearSystem, CrsMatrix, CrsMatrix, Any]:
    """Take some samples of the system, the matrix, the scaled matrix and its units."""
    part = system.of_samples(chosen)
    if A.n_samples == 1:
        return part, A, scaled, unit
    return part, A.take_samples(chosen), scaled.take_samples(chosen), None if unit is None else unit[chosen]


def _solved_part(
    system: LinearSystem, A: CrsMatrix, scaled: CrsMatrix, unit: Any, plan: Factorization, exchanged: Exchanged,
    first: bool,
) -> DirectSolution:  # fmt: skip
    """Solve for samples whose factorisations are held in memory together."""
    with np.errstate(all="ignore"):  # a broken sample's arithmetic concerns no other
        n_samples, parts = system.b.shape[1], list[tuple[np.ndarray, DirectSolution]]()
        left = np.arange(n_samples)
        if first:
            parts = list(exchanged(system, A, left))
            if len(parts) == 1 and np.array_equal(parts[0][0], left):
                return parts[0][1]
            left = np.setdiff1d(left, np.concatenate([left[:0], *(chosen for chosen, _ in parts)]))
        if not parts:
            made = _factors_and_product(plan, scaled, system.b)
            return DirectSolution(system, A, unit, *made).finish(None if first else exchanged)
        if left.size:
            own, matrix, own_scaled, units = _chosen(system, A, scaled, unit, left)
            made = _factors_and_product(plan, own_scaled, own.b)
            parts.append((left, DirectSolution(own, matrix, units, *made).finish()))
        return _joined(parts, n_samples)


def _factors_and_product(plan: Factorization, scaled: CrsMatrix, b: Any) -> tuple[Factorization, Any, Any]:
    """Factorise and solve in one pass; return also the norms of `b`, or None where they were not computed."""
    if not isinstance(b, np.ndarray) or plan.dtype.itemsize == b.dtype.itemsize:
        return *plan._update_and_apply(scaled, b), None
    norm = safe_norms(b, fetched(dot(b, b, None))[0])
    unit = _power_of_two(norm)
    quotient = _narrow(b, unit, plan.dtype)
    F, x = plan._update_and_apply(scaled, quotient)
    return F, np.multiply(F.apply(quotient) if x is None else x, unit, out=empty(b.shape, b.dtype)), norm


def _power_of_two(norm: np.ndarray) -> np.ndarray:
    """Return the largest power of two not above each norm; 1 for zero, infinite and NaN norms."""
    exponent = np.where(np.isfinite(norm) & (norm > 0.0), np.frexp(norm)[1] - 1, 0)
    return np.ldexp(1.0, exponent)


def _narrow(r: np.ndarray, unit: np.ndarray, dtype: Any) -> np.ndarray:
    """Compute ``r / unit`` in another type."""
    quotient: np.ndarray = np.divide(r, unit, out=empty(r.shape, dtype), casting="same_kind")
    return quotient


PER_SAMPLE = (
    "error", "entries", "cancelled", "rcond", "iterations", "repaired", "exchanged", "alone", "uncertain", "norm_b",
    "norm",
)  # fmt: skip
"""Attributes with one entry per sample."""


class DirectSolution:
    """Solutions of all samples, with their residuals, backward errors and conditions.

    `error` are the backward errors by rows, `entries` those by entries; `cancelled` is the largest sum of a row of A
    over its pivot; `rcond` the condition of the equilibrated matrix, where it may be large, else NaN. `exchanged` marks
    samples whose pivots are by their own numbers, `alone` those that shared them with no other, `uncertain` those whose
    `x` has fewer than two certain digits.
    """

    F: Any

    def __init__(self, system: LinearSystem, A: CrsMatrix, unit: Any, F: Any, x: Any, norm_b: Any) -> None:
        """`x` is the product of `F`, the factorisation of A over `unit`, with b, whose norms are `norm_b`, or None."""
        self.system, self.A, self.F, self.b = system, A, F, system.b
        self.unit = None if unit is None else asarray_like(unit, system.b)
        n_samples = self.b.shape[1]
        self.eps = limits_of(self.b.dtype)[0]
        self.tolerance = ROUNDOFFS * self.eps
        self.inverse = self.reciprocal_pivots()
        if x is None:
            self.norm_b = safe_norms(self.b, fetched(dot(self.b, self.b, None))[0])
            self.x = self.solve(self.b, self.norm_b)
            self.r, self.error, self.entries, self.cancelled, self.norm = self.judged(self.x)
        else:
            self.x = x if self.unit is None else x / self.unit
            squares = [dot(self.b, self.b, None)] if norm_b is None else []
            marks = [] if F._marks is None else [F._marks]
            self.r, self.error, self.entries, self.cancelled, self.norm, *there = self.judged(self.x, *squares, *marks)
            self.norm_b = safe_norms(self.b, there[0]) if norm_b is None else norm_b
            if marks and F._settle(there[-1], self.x):
                self.r, self.error, self.entries, self.cancelled, self.norm = self.judged(self.x)
        self.iterations = np.zeros(n_samples, np.int64)
        self.repaired, self.exchanged = np.zeros(n_samples, bool), np.zeros(n_samples, bool)
        self.alone, self.uncertain = np.zeros(n_samples, bool), np.zeros(n_samples, bool)
        self.rcond = np.full(n_samples, np.nan)
        self.history = [self.norm.copy()]

    def reciprocal_pivots(self) -> Any:
        """Compute 1 / pivots of A, which are compared with sums of rows."""
        return reciprocal_pivots(self.F, self.unit, self.b)

    def solve(self, r: Any, norm: np.ndarray) -> Any:
        """Multiply `r`, of norms `norm`, by the inverse of A."""
        x = self.F.apply(r) if self.F.dtype.itemsize == r.dtype.itemsize else self.solve_scaled(r, norm)
        return x if self.unit is None else x / self.unit

    def solve_scaled(self, r: Any, norm: np.ndarray) -> Any:
        """Multiply `r` by the inverse in the factorisation's type, within whose range powers of two keep it."""
        with np.errstate(all="ignore"):
            unit = asarray_like(_power_of_two(norm), r)
            if isinstance(r, np.ndarray):
                return np.multiply(self.F.apply(_narrow(r, unit, self.F.dtype)), unit, out=empty(r.shape, r.dtype))
            xp = array_namespace(r)
            narrowed = contiguous(xp.astype(r / unit, getattr(xp, self.F.dtype.name)))
            return xp.astype(self.F.apply(narrowed), r.dtype) * unit

    def judged(self, x: Any, *others: Any) -> tuple[Any, ...]:
        """Compute residual, backward errors, `cancelled` and norms of `x`; copy `others` to the host with them."""
        r, *errors = backward_error(*self.A.arrays, x, self.b, self.inverse)
        by_rows, by_entries, cancelled, squares, *others_there = fetched(*errors, dot(r, r, None), *others)
        return r, by_rows, by_entries, cancelled, safe_norms(r, squares), *others_there

    def finish(self, exchanged: Exchanged | None = None) -> DirectSolution:
        """Refine, repair samples that need other pivots by `exchanged`, and estimate doubtful conditions."""
        self.refine()
        self.refined = len(self.history)
        self.repair(exchanged)
        doubtful = (self.norm > np.sqrt(self.eps) * self.norm_b) | (self.cancelled > np.sqrt(1.0 / self.factor_eps))
        self.estimate(np.flatnonzero(doubtful & ~self.repaired & np.isfinite(self.error)))
        return self

    @property
    def factor_eps(self) -> float:
        """Return the rounding of the type of the factorisation."""
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
        """Mark samples with a backward error or a residual that refinement may still reduce."""
        reducible = self.error > FLOOR / ROUNDOFFS * self.tolerance
        large: np.ndarray = self.norm > self.system.rtol * self.norm_b
        wanted: np.ndarray = (self.error > self.tolerance) | (large & reducible)
        return wanted

    def uneven(self) -> np.ndarray:
        """Mark samples whose small components are less accurate than their large ones [1]_.

        .. [1] Arioli, Demmel, Duff (1989), SIAM J. Matrix Anal. 10, 165-190.
        """
        uneven: np.ndarray = (self.entries > UNEVEN * self.error) & (self.entries > UNEVEN * self.eps)
        return uneven

    def taken(self, samples: np.ndarray) -> DirectSolution:
        """Take the outcome of some samples."""
        made = copy(self)
        made.x = self.x[:, asarray_like(samples, self.x)]
        made.history = [norms[samples] for norms in self.history]
        for name in PER_SAMPLE:
            setattr(made, name, getattr(self, name)[samples])
        return made

    def replace(self, samples: np.ndarray, other: DirectSolution) -> None:
        """Take the solutions of `other` for the samples named."""
        places = asarray_like(samples, self.x)
        self.x[:, places], self.r[:, places] = other.x, 0.0
        for name in ("error", "entries", "cancelled", "norm", "rcond", "exchanged", "alone", "uncertain"):
            getattr(self, name)[samples] = getattr(other, name)
        self.repaired[samples] = True

    def repair(self, exchanged: Exchanged | None) -> None:
        """Solve the samples whose backward error is too large with exchanges: with others, or else by themselves."""
        bad = np.flatnonzero(~((self.error <= self.tolerance) & (self.entries <= self.tolerance)))
        if not bad.size:
            return
        if exchanged is not None:
            for chosen, solution in exchanged(self.system, self.A, bad):
                self.replace(chosen, solution)
            bad = np.setdiff1d(bad, np.flatnonzero(self.exchanged))
        if not bad.size:
            self.history.append(self.norm.copy())
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
            self.repaired[s], self.alone[s] = True, True
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
                self.norm[s] = safe_norms(r, fetched(dot(r, r, None))[0])[0]
            if entries <= UNEVEN * self.eps or entries > 0.5 * before:
                break
            before = entries
        x, host = np.ascontiguousarray(to_numpy(self.x[:, s]))[:, None], matrix.to(np.empty(0))
        kept, lost = digits_kept(host, x, b[:, None], factors.solve)
        self.uncertain[s] = lost[0]
        if not kept[0]:
            self.rcond[s] = pivoted_condition(matrix, factors, True)

    def estimate(self, samples: np.ndarray) -> None:
        """Estimate the conditions of the samples named, equilibrated, from their factors."""
        if samples.size and self.F.dtype.itemsize >= self.b.dtype.itemsize:
            kept, self.uncertain[samples] = self.digits_kept(samples)
            samples = samples[~kept]
        if samples.size:
            unit = None if self.unit is None else to_numpy(self.unit)
            self.rcond[samples] = estimated(self.F, self.A, unit, samples, True)

    def digits_kept(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Apply `digits_kept` to the solutions of the samples named, by factors in the type of b."""
        A, F = self.A.take_samples(samples if self.A.n_samples > 1 else [0]), self.F.take_samples(samples)
        like, unit = F.reference_array, None if self.unit is None else to_numpy(self.unit)
        scale = 1.0 if unit is None else unit if unit.size == 1 else unit[samples]
        x, b = (np.ascontiguousarray(to_numpy(array)[:, samples]) for array in (self.x, self.b))
        solve = lambda v: to_numpy(F.apply(asarray_like(v, like))) / scale
        return digits_kept(A.to(np.empty(0)), x, b, solve)

    def nearly_singular(self) -> np.ndarray:
        """Mark samples that are singular to working precision."""
        found: np.ndarray = self.rcond < self.eps
        return found


def _joined(parts: list[tuple[np.ndarray, DirectSolution]], n_samples: int) -> DirectSolution:
    """Join solutions of parts, each given with the numbers of its samples."""
    joined, steps = copy(parts[0][1]), max(part.refined for _, part in parts)
    repaired = any(len(part.history) > part.refined for _, part in parts)  # which has a last row for all
    order = np.argsort(np.concatenate([chosen for chosen, _ in parts]))
    histories = []
    for _, part in parts:
        norms = part.history[: part.refined]
        histories.append(norms + [norms[-1]] * (steps - part.refined) + [part.history[-1]] * repaired)
    xp = array_namespace(joined.x)
    x = xp.concat([part.x for _, part in parts], axis=1)
    ordered = np.array_equal(order, np.arange(n_samples))
    joined.x = x if ordered else contiguous(xp.take(x, asarray_like(order, x), axis=1))
    joined.history = [np.concatenate(norms)[order] for norms in zip(*histories, strict=True)]
    for name in PER_SAMPLE:
        setattr(joined, name, np.concatenate([getattr(part, name) for _, part in parts])[order])
    return joined


def safe_norms(r: Any, squares: np.ndarray) -> np.ndarray:
    """Compute 2-norms per sample, float64 on the host, where `squares` may have over- or underflowed."""
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
