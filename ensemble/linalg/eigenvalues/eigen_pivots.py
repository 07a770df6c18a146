"""How many eigenvalues of symmetric matrices lie where, by the signs of the pivots of shifted ones."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._kernels.sparse.symmetry import symmetry_and_bounds
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs
from ensemble.linalg.diagonal import Diagonal
from ensemble.linalg.eigenvalues.eigen_operators import exponents_of
from ensemble.linalg.factorizations.factorization import Factorization, planned
from ensemble.linalg.graph import CrsGraph

__all__ = ["PivotCounts"]


TRIALS = 6
"""Shifts tried beyond an end."""

ROUNDINGS = 1e5 * float(np.finfo(np.float64).eps)
"""Distance from an eigenvalue, by the norm of A, from which on pivots count it on its side."""

CLEAR = 1e12
"""Largest reciprocal of a pivot, by the norm of A, of a matrix that counts as positive definite."""


class PivotCounts:
    """Samples of a symmetric matrix, their norms and bounds, and counts of their eigenvalues [1]_.

    Parameters
    ----------
    A : CrsMatrix, shape (n, n)
    shifts : array, shape (1,) or (n_samples,), or None
        The pairs nearest to them are wanted.
    which : {"LM", "LA", "SA"}
    rtol : float

    Attributes
    ----------
    A : CrsMatrix
        Over two to the power of `powers`, with a diagonal in its graph.
    norm, low, high : arrays, shape (n_samples,)
        Largest sums of magnitudes of a row, and Gershgorin's bounds.
    sides : array, shape (n_samples,)
        1 where the upper end of the spectrum is searched, -1 where the lower one is, 0 where neither is.
    first, margin : arrays, shape (n_samples,)
        Where that end is thought to be, and the distance from there at which a shift is tried.

    References
    ----------
    .. [1] Parlett (1998), The Symmetric Eigenvalue Problem, section 3.3 (Sylvester's law of inertia).
    """

    def __init__(self, A: CrsMatrix, shifts: np.ndarray | None, which: str, rtol: float) -> None:
        if (A.graph.diagonal_entries < 0).any():  # shifted matrices have a diagonal
            A = as_crs(A + 0.0 * Diagonal(np.ones(A.shape[0], A.dtype)))
        self.powers = exponents_of(A)
        if self.powers.any():
            A = CrsMatrix(A.graph, np.ldexp(A.values, -self.powers))
            shifts = shifts if shifts is None else np.ldexp(shifts, -self.powers)
        self.A, self.which, self.rtol = A, which, rtol
        self.n = A.shape[0]
        self.n_samples = max(A.n_samples, 1 if shifts is None else shifts.size)
        self.shifts = None if shifts is None else np.broadcast_to(np.asarray(shifts, np.float64), self.n_samples)

    def measured(self) -> np.ndarray:
        """The samples that are symmetric and finite, and not zero; norms and bounds are noted."""
        A, eps = self.A, float(np.finfo(self.A.dtype).eps)
        self.places, across = A.graph.diagonal_entries, self._across()
        if across is None:
            return np.zeros(0, np.int64)
        apart, *found, finite = symmetry_and_bounds(*A.arrays, across)
        if self.n_samples > A.n_samples:  # shifts of one matrix
            found = [np.repeat(each, self.n_samples) for each in found]
        self.norm, self.low, self.high = found
        self.sides = np.full(self.n_samples, {"LA": 1.0, "SA": -1.0}.get(self.which, 0.0))
        self.first, self.margin = np.full((2, self.n_samples), np.nan)
        fit = (finite & (apart <= max(self.rtol, 16.0 * eps) * self.norm)) & (self.norm > 0.0)
        return np.flatnonzero(fit)

    def _across(self) -> np.ndarray | None:
        """The place of the entry across the diagonal, of each entry; None where one is not stored."""
        found: np.ndarray | None = self.A.graph.kept(("across",), lambda: _across(self.A.graph))
        return found

    def _matrix(self, samples: np.ndarray) -> CrsMatrix:
        return self.A if samples.size == self.n_samples else self.A.take_samples(samples)

    def _shifted(self, samples: np.ndarray, shifts: np.ndarray, dtype: Any) -> Factorization:
        """LDL^T of shifted matrices."""
        A = self._matrix(samples)
        values = A.values.astype(dtype, copy=A is self.A)
        values = values if A.n_samples == samples.size else np.repeat(values, samples.size, axis=1)
        values[self.places] -= shifts.astype(dtype, copy=False)
        plan = self._plan if dtype == self._plan.dtype else self._planned(dtype)
        return plan.update(CrsMatrix(A.graph, values))

    @functools.cached_property
    def _plan(self) -> Factorization:
        """What the graph decides of LDL^T, for pivots."""
        return self._planned(np.float64)

    def _planned(self, dtype: Any) -> Factorization:
        return planned(self.A, kind="ldlt", ordering="auto", matching="graph", dtype=dtype)

    def _factorized(
        self, samples: np.ndarray, shifts: np.ndarray, applied: bool = False
    ) -> tuple[Factorization, np.ndarray, np.ndarray]:
        """LDL^T of shifted matrices, how many eigenvalues are below each shift, and where that is known.

        Pivots are counted in float64: those of float32 tell values apart that differ by a thousandth of the norm. What
        is `applied` has the type of A.
        """
        factors = self._shifted(samples, shifts, np.float64)
        pivots = to_numpy(factors._pivots)
        size = np.abs(pivots)
        clear = ~factors.broken & (size.min(axis=0) * (self.norm[samples] + np.abs(shifts)) > 1e-6)
        if applied and self.A.dtype != np.float64:
            factors = self._shifted(samples, shifts, self.A.dtype)
        return factors, (pivots < 0.0).sum(axis=0), clear

    def _nothing_nearer(
        self, samples: np.ndarray, shifts: np.ndarray, below: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """Samples in which no value is nearer to the shift than the farthest of `values`, but for them, by pivots."""
        proved = np.zeros(samples.size, bool)
        left = np.arange(samples.size)
        for factor in (1.0, 32.0, 1024.0):  # pivots near a multiple value grow: farther from it they do less
            found, known = self._counted(samples[left], shifts[left], below[left], values[:, left], factor)
            proved[left] = found & known
            left = left[~known]
            if not left.size:
                break
        return proved

    def _counted(
        self, samples: np.ndarray, shifts: np.ndarray, below: np.ndarray, values: np.ndarray, factor: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whether pivots count no more values than are known, and where they can be relied on."""
        distances = np.abs(values - shifts)
        radius = self._radius(samples, distances, -factor)
        counts, known = np.zeros(samples.size, np.int64), np.ones(samples.size, bool)
        for side in (-1.0, 1.0):
            ask = np.flatnonzero(below > 0 if side < 0.0 else below < self.n)
            if ask.size:
                _, n_below, clear = self._factorized(samples[ask], (shifts + side * radius)[ask])
                counts[ask] += np.abs(n_below - below[ask])
                known[ask] &= clear
        proved: np.ndarray = known & (counts == (distances < radius).sum(axis=0))
        if self.which == "LM" and self.shifts is None and proved.any():
            proved[proved] = self._nothing_beyond(samples[proved], values[:, proved])
        return proved, known

    def _all_beyond(self, samples: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Mark samples whose `values` are proved to be the wanted ones: by signs of pivots, no other lies beyond them.

        Of largest magnitude ("LM") both ends are wanted.
        """
        rated = {"LM": np.abs(values), "LA": values, "SA": -values}[self.which]
        proved = np.zeros(samples.size, bool)
        left = np.arange(samples.size)
        for factor in (1.0, 32.0, 1024.0):  # as in `_nothing_nearer`
            own, limit = samples[left], -self._radius(samples[left], -rated[:, left], -factor)
            counts, known = np.zeros(left.size, np.int64), np.ones(left.size, bool)
            for side in {"LM": (1.0, -1.0), "LA": (1.0,), "SA": (-1.0,)}[self.which]:
                bounds = self.high[own] if side > 0.0 else -self.low[own]
                ask = np.flatnonzero(bounds > limit)
                if ask.size:
                    _, below, clear = self._factorized(own[ask], side * limit[ask])
                    counts[ask] += self.n - below if side > 0.0 else below
                    known[ask] &= clear
            proved[left] = known & (counts == (rated[:, left] > limit).sum(axis=0))
            left = left[~known]
            if not left.size:
                break
        return proved

    def _radius(self, samples: np.ndarray, distances: np.ndarray, side: float) -> np.ndarray:
        """The largest of distances, a little less or more by `side`, and apart from all of them."""
        step = np.maximum(4.0 * self.rtol, ROUNDINGS) * self.norm[samples]
        largest = distances.max(axis=0)
        radius: np.ndarray = largest + side * step
        for _ in range(3):
            crowded = np.any(np.abs(distances - radius) < 0.25 * step, axis=0)
            radius = np.where(crowded, radius + 0.6 * side * step, radius)
        return radius

    def _nothing_beyond(self, samples: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Samples in which no value of the other end is larger in magnitude than the least of `values`."""
        largest = self._radius(samples, np.abs(values), 1.0)
        largest = np.abs(values).min(axis=0) + (largest - np.abs(values).max(axis=0))
        sides = -self.sides[samples]
        bounds = np.where(sides > 0.0, self.high[samples], -self.low[samples])
        proved: np.ndarray = bounds <= largest
        ask = np.flatnonzero(~proved)
        if ask.size:
            _, below, clear = self._factorized(samples[ask], (sides * largest)[ask])
            proved[ask] = clear & (below == np.where(sides[ask] > 0.0, self.n, 0))
        return proved

    def _shifts_beyond(self, samples: np.ndarray, first: bool) -> tuple[np.ndarray, np.ndarray]:
        """Shifts beyond the ends of samples, and the samples that have one; 0 for definite matrices at `first`."""
        shifts, left, factor = np.full(self.n_samples, np.nan), samples, 1.0
        for trial in range(TRIALS if left.size else 0):
            side = self.sides[left]
            shift = self.first[left] + side * factor * self.margin[left]
            zero = first & (trial == 0) & (side < 0.0) & (self.first[left] > 0.0)
            shift[zero] = 0.0
            factors, below, clear = self._factorized(left, shift)
            beyond = clear & (below == np.where(side > 0.0, self.n, 0))
            if zero.any():
                largest = np.abs(to_numpy(factors._pivots)).max(axis=0)
                beyond &= ~zero | (largest * self.norm[left] < CLEAR)
            shifts[left[beyond]] = shift[beyond]
            left = left[~beyond]
            if not left.size:
                break
            factor = factor if first and trial == 0 else 4.0 * factor
        return shifts, samples[np.isfinite(shifts[samples])]


def _across(graph: CrsGraph) -> np.ndarray | None:
    indptr, indices, entries = graph.transposed
    alike = np.array_equal(indptr, graph.indptr) and np.array_equal(indices, graph.indices)
    return entries if alike else None
