"""The usual way to eigenpairs: Lanczos' process, and proofs by pivots that no value was missed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble.linalg.eigenvalues.eigen_operators import NEAREST
from ensemble.linalg.eigenvalues.eigen_products import MOST_CYCLES, ROOM, ProductSearch, in_two
from ensemble.linalg.eigenvalues.eigen_result import EigenResult
from ensemble.linalg.eigenvalues.lanczos import Inverse, Lanczos, Pairs, pairs_of
from ensemble.linalg.factorizations.factorization import Factorization
from ensemble.linalg.outcomes import Status
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet

__all__ = ["QuickSearch"]

NEAR_SINGULAR = 1e12
"""Ritz value of an inverse, by the norm of A, of a shift that is all but an eigenvalue."""

BESIDE, BROKEN = 0.02, 1e-4
"""Distances of another shift from it: by that of the last of the values that are kept; by the norm of A where a pivot
was zero."""

ROUNDS = 3
"""Times that a shift comes nearer."""

FAR = 6.0
"""Distance of a shift from the values wanted, by their spread, from which on it comes nearer."""

NEARER = 0.1
"""Distance of a shift that came nearer from the values wanted, by their spread."""


class QuickSearch(ProductSearch):
    """Pairs of the samples in which they are found, and known to be the ones wanted, by few steps of Lanczos' process.

    Parameters and attributes are those of `ProductSearch`.
    """

    def run(self, max_iterations: int) -> None:
        """Search for the pairs of all samples."""
        samples = self.measured()
        if not samples.size:
            return
        self.most, self.cycles = max_iterations, min(MOST_CYCLES, max_iterations)
        self.moved, self.may_move = np.zeros(self.n_samples, bool), True
        self.offsets, self.beside = np.zeros((2, self.n_samples))  # of the shifts in use, of those to be used
        self.inexact = np.zeros(self.n_samples, bool)  # pairs of the inverse that are none of the matrix
        self.starts = np.repeat(self._start(0)[:, None], self.n_samples, axis=1)
        if self.shifts is not None:
            self._nearest(samples, self.shifts)
            self._beyond(samples[self.moved[samples]], 1)
            beside = samples[(self.beside[samples] > 0.0) & ~self.done[samples]]
            self.offsets[beside], self.may_move = self.beside[beside], False
            self._nearest(beside, self.shifts + self.offsets)
            return
        for group in self._groups(samples):
            self._by_products(group)
        left = samples[~self.done[samples] & np.isfinite(self.first[samples])]
        self._beyond(left[self.sides[left] != 0.0], 0)
        left = left[self.sides[left] == 0.0]
        if left.size:
            self._both_ends(left, max_iterations)

    # --- pairs nearest to shifts
    def _nearest(self, samples: np.ndarray, shifts: np.ndarray) -> None:
        """Pairs nearest to `shifts`, one for each sample of all, by the inverse of the shifted matrix."""
        if not samples.size:
            return
        factors, below, _ = self._factorized(samples, shifts[samples], applied=True)
        for group in self._groups(np.arange(samples.size)):
            own = samples[group]
            inverse = factors if group.size == samples.size else factors.take_samples(group)
            self._inverted(own, inverse, shifts[own], below[group], self.starts[:, own])

    def _inverted(
        self, own: np.ndarray, inverse: Factorization, shifts: np.ndarray, below: np.ndarray, start: np.ndarray
    ) -> None:
        """Search for the pairs of samples `own` nearest to their shifts, until all are found or the bases end."""
        process = Lanczos(Inverse.of(inverse), np.ascontiguousarray(start), self.vectors_of(self.k), self.kept)
        parts = [(own, inverse, shifts, below, process)]
        for cycle in range(self.cycles):
            parts = [later for part in parts for later in self._after_a_basis(cycle, *part)]
            if not parts:
                break

    def _after_a_basis(
        self, cycle: int, own: np.ndarray, inverse: Factorization, shifts: np.ndarray, below: np.ndarray,
        process: Lanczos,
    ) -> list[tuple[np.ndarray, Factorization, np.ndarray, np.ndarray, Lanczos]]:  # fmt: skip
        """What goes on after another basis of samples `own`: those beside another vector, and the others."""
        k, offsets = self.k, self.offsets[own]
        process.extend("LM", offsets)
        self.iterations[own] += 1
        with np.errstate(all="ignore"):
            inverted = process.values[:, :k]
            estimated = np.abs(process.couplings[:, :k]) / inverted**2
            target = self._targets(own, (shifts[:, None] + 1.0 / inverted).T).T
            close = np.all(estimated <= ROOM * target, axis=1)
        singular = ~(np.abs(inverted[:, 0]) * self.norm[own] < NEAR_SINGULAR) | inverse.broken
        if singular.any() and self.shifts is not None:
            self._note_distance(own[singular], process.values[singular], inverse.broken[singular])
        unfit = singular | process.dependent | (self.iterations[own] >= self.most)
        again = np.zeros(own.size, bool)
        if (close & ~process.dependent).any():
            found = pairs_of(self._matrix(own), process.ritz_vectors(k, True))
            good = close & ~process.dependent & np.all(found.residuals <= self._targets(own, found.values), axis=0)
            proved = np.zeros(own.size, bool)
            if good.any():
                centres = shifts[good] - offsets[good]
                proved[good] = self._nothing_nearer(own[good], centres, below[good], found.values[:, good])
            self._accept(own, found, proved)
            again, wrong = good & ~proved, close & ~process.dependent & ~good
            inexact = wrong & self.inexact[own]
            self.inexact[own] = wrong
            if inexact.any() and self.shifts is not None:
                self._note_distance(own[inexact], process.values[inexact], inverse.broken[inexact])
            unfit |= inexact
        going_on = ~self.done[own] & ~unfit
        going_on &= ~self._comes_nearer(own, shifts, below, process, going_on & ~close)
        if cycle == self.cycles - 1:
            return []
        parts = []
        for chosen, beside in in_two(going_on, again):
            part, operator = process, inverse
            if chosen.size < own.size:
                operator = inverse.take_samples(chosen)
                part = process.take_samples(chosen, Inverse.of(operator))
            parts.append((own[chosen], operator, shifts[chosen], below[chosen], part))
            self._restart(part, cycle, beside, True)
        return parts

    def _note_distance(self, samples: np.ndarray, inverted: np.ndarray, broken: np.ndarray) -> None:
        """Note another shift, for samples whose shift is all but an eigenvalue, or whose factors broke: beside it."""
        with np.errstate(all="ignore"):
            distances = BESIDE / np.abs(inverted[:, self.kept - 1])
        apart = np.isfinite(distances) & (distances * NEAR_SINGULAR > 1e4 * self.norm[samples])
        distances = np.where(broken, BROKEN * self.norm[samples], np.where(apart, distances, 0.0))
        self.beside[samples] = np.where(self.offsets[samples] == 0.0, distances, 0.0)

    def _comes_nearer(
        self, own: np.ndarray, shifts: np.ndarray, below: np.ndarray, process: Lanczos, which: np.ndarray
    ) -> np.ndarray:
        """Find samples of `which` whose shifts lie far beyond the end of the spectrum; note the end for later."""
        outside = which & ((below == 0) | (below == self.n))
        if not (self.may_move and outside.any()):
            return np.zeros(own.size, bool)
        with np.errstate(all="ignore"):
            first, last = (shifts + 1.0 / process.values[:, i] for i in (0, self.k))
        least = NEAREST * float(np.finfo(self.A.dtype).eps) * self.norm[own]
        margin = np.maximum(NEARER * np.abs(first - last), least)
        far: np.ndarray = outside & np.isfinite(margin) & (np.abs(shifts - first) > FAR * margin)
        if far.any():
            chosen = own[far]
            self.first[chosen], self.margin[chosen], self.moved[chosen] = first[far], margin[far], True
            self.sides[chosen] = np.where(below[far] == 0, -1.0, 1.0)
            self.starts[:, chosen] = self._towards(process.ritz_vectors(self.k, True)[:, :, far])
        return far

    def _beyond(self, samples: np.ndarray, turn: int) -> None:
        """Search with the inverse at shifts beyond the end that the pivots approve of; these may come nearer."""
        for each in range(turn, ROUNDS):
            self.may_move = each + 1 < ROUNDS
            shifts, samples = self._shifts_beyond(samples, each == 0)
            self.moved[:] = False
            self._nearest(samples, shifts)
            samples = samples[self.moved[samples]]

    def _both_ends(self, samples: np.ndarray, max_iterations: int) -> None:
        """The pairs of largest magnitude of all pairs of both ends."""
        A = self._matrix(samples)
        ends = [QuickSearch(A, None, which, self.k, self.rtol) for which in ("LA", "SA")]
        for end in ends:
            end.run(max_iterations)
        values, residuals = (np.concatenate([getattr(end, name) for end in ends]) for name in ("values", "residuals"))
        vectors = np.concatenate([end.vectors.transpose(1, 0, 2) for end in ends])
        best = np.argsort(-np.abs(values), axis=0, kind="stable")[: self.k]
        best = np.take_along_axis(best, np.argsort(np.take_along_axis(values, best, axis=0), axis=0), axis=0)
        found = Pairs(
            np.take_along_axis(values, best, axis=0), np.take_along_axis(residuals, best, axis=0),
            np.take_along_axis(vectors, best[:, None, :], axis=0),
        )  # fmt: skip
        self.iterations[samples] += ends[0].iterations + ends[1].iterations
        self._accept(samples, found, ends[0].done & ends[1].done)

    # --- the result
    def complete(self, search: Any, samples: np.ndarray) -> None:
        """Take the pairs of another search for the samples named, all its own."""
        self.other, self.others = search.result(None), samples

    def result(self, sample_set: SampleSet | None) -> EigenResult:
        """The pairs of all samples."""
        values, vectors, dtype = self.values, self.vectors, self.A.dtype
        status = np.full(self.n_samples, Status.converged, dtype=object)
        residuals, target, iterations = self.residuals, self.target, self.iterations
        if self.powers.any():
            values, residuals, target = (np.ldexp(found, self.powers) for found in (values, residuals, target))
        if self.others.size:
            other, places = self.other, self.others
            values[:, places], vectors[:, :, places] = other.values.samples, other.vectors.samples
            residuals[:, places], target[:, places] = other.residual_norms, other.target
            status[places], iterations[places] = other.status, other.iterations
        return EigenResult(
            Ensemble(values.astype(dtype), sample_set),
            Ensemble(vectors, sample_set),
            residuals,
            status,
            iterations,
            target,
        )
