"""The usual way to eigenpairs: Lanczos' process, and proofs by pivots that no value was missed."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._kernels.krylov.start_vectors import scattered
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.eigen_operators import NEAREST
from ensemble.linalg.eigen_pivots import PivotCounts
from ensemble.linalg.eigen_result import EigenResult
from ensemble.linalg.factorization import Factorization, planned
from ensemble.linalg.lanczos import Inverse, Lanczos, Pairs, Products, Seen, pairs_of
from ensemble.linalg.outcomes import Status
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet

__all__ = ["QuickSearch"]

GUARDS = 5
"""Ritz vectors that are kept beside the k wanted ones."""

MEMORY = 1 << 26
"""Bytes of the bases of samples that go through the process together, 32 at most."""

LEAST_CYCLES, MOST_CYCLES, FORESEEN = 2, 12, 6
"""Bases of products with A at least; of any process at most; that products may still need, by the rate so far."""

ROOM = 0.5
"""Estimated residual, by what it may be, from which on pairs are worked out."""

NEAR_SINGULAR = 1e12
"""Ritz value of an inverse, by the norm of A, of a shift that is all but an eigenvalue."""

BESIDE, BROKEN = 0.02, 1e-4
"""Distances of another shift from it: by that of the last of the values that are kept; by the norm of A where a pivot
was zero."""

FACTORS, WORTH = 4, 0.25
"""Factorisations that a search with inverses takes, about, and the share of its operations that products may take."""

MOST_ENTRIES = 20_000
"""Entries of a graph up to which counts by pivots are planned for pairs that products found: the plan takes longer."""

SEEN = 1e-5
"""Accuracy of a value, by that of all, with which a copy comes up."""

OTHERS = 1e-2
"""Length of the part of other vectors in a start near Ritz vectors."""

ROUNDS = 3
"""Times that a shift comes nearer."""

FIRST = 0.1
"""Least distance of the first shift from the values wanted, by their spread."""

FAR = 6.0
"""Distance of a shift from the values wanted, by their spread, from which on it comes nearer."""

NEARER = 0.1
"""Distance of a shift that came nearer from the values wanted, by their spread."""

START = 20_232
"""Seed of the starting vectors, which are the same for all samples."""


class QuickSearch(PivotCounts):
    """Pairs of the samples in which they are found, and known to be the ones wanted, by few steps of Lanczos' process.

    Parameters
    ----------
    A : CrsMatrix, shape (n, n)
    shifts : array, shape (1,) or (n_samples,), or None
        The pairs nearest to them are wanted.
    which : {"LM", "LA", "SA"}
    k : int
    rtol : float

    Attributes
    ----------
    done : array of bool, shape (n_samples,)
    values, residuals, target : arrays, shape (k, n_samples)
        Over two to the power of `powers`.
    vectors : array, shape (n, k, n_samples)
    iterations : array of int, shape (n_samples,)
        Bases built.
    """

    def __init__(self, A: CrsMatrix, shifts: np.ndarray | None, which: str, k: int, rtol: float) -> None:
        super().__init__(A, shifts, which, rtol)
        self.k, count = k, self.n_samples
        self.done = np.zeros(count, bool)
        self.values, self.residuals, self.target = np.full((3, k, count), np.nan)
        self.vectors = np.empty((self.n, k, count), self.A.dtype)
        self.iterations = np.zeros(count, np.int64)
        self.others = np.zeros(0, np.int64)
        self.capacity, self.kept = self.vectors_of(k), k + GUARDS
        fitting = MEMORY // (self.capacity * self.n * self.A.dtype.itemsize)
        self.samples_together = 1 << min(5, max(fitting, 1).bit_length() - 1)

    @staticmethod
    def vectors_of(k: int) -> int:
        """Vectors of a basis for k pairs."""
        return max(20, 2 * k + 12)

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

    # --- what all ways share
    def _start(self, cycle: int) -> np.ndarray:
        """The vector that the process begins with, or goes on with after some bases."""
        return scattered((START + cycle) * self.n, self.n).astype(self.A.dtype)

    def _groups(self, samples: np.ndarray) -> list[np.ndarray]:
        size = self.samples_together
        return [samples[i : i + size] for i in range(0, samples.size, size)]

    def _targets(self, samples: np.ndarray, values: np.ndarray) -> np.ndarray:
        target: np.ndarray = self.rtol * (self.norm[samples] + np.abs(values))
        return target

    def _accept(self, samples: np.ndarray, found: Pairs, good: np.ndarray) -> None:
        """Note the pairs of the `good` ones of samples."""
        chosen = samples[good]
        self.values[:, chosen], self.residuals[:, chosen] = found.values[:, good], found.residuals[:, good]
        self.vectors[:, :, chosen] = found.vectors[:, :, good].transpose(1, 0, 2)
        self.target[:, chosen] = self._targets(chosen, found.values[:, good])
        self.done[chosen] = True

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
        process = Lanczos(Inverse.of(inverse), np.ascontiguousarray(start), self.capacity, self.kept)
        parts = [(own, inverse, shifts, below, process)]
        for cycle in range(self.cycles):
            parts = [later for part in parts for later in self._after_a_basis(cycle, *part)]

    def _after_a_basis(
        self, cycle: int, own: np.ndarray, inverse: Factorization, shifts: np.ndarray, below: np.ndarray,
        process: Lanczos,
    ) -> list[tuple[np.ndarray, Factorization, np.ndarray, np.ndarray, Lanczos]]:  # fmt: skip
        """What goes on after another basis of samples `own`: those beside another vector, and the others."""
        k, offsets = self.k, self.offsets[own]
        process.extend(functools.partial(_nearness, offsets))
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
        for chosen, beside in _in_two(going_on, again):
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
        """Samples of `which` whose shifts lie far beyond the end, which is noted for the next one."""
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

    def _towards(self, vectors: np.ndarray) -> np.ndarray:
        """A start near Ritz vectors, shape (k, n, n_samples), that has a part in all others too."""
        every = self._start(0)
        start: np.ndarray = vectors.sum(axis=0) + OTHERS * (every / np.linalg.norm(every))[:, None]
        return start

    # --- ends of the spectrum
    def _goodness(self, values: np.ndarray) -> np.ndarray:
        rated: np.ndarray = {"LM": np.abs(values), "LA": values, "SA": -values}[self.which]
        return rated

    def _by_products(self, own: np.ndarray) -> None:
        """Search with products of A as long as the residuals fall fast; where they do not, note where the end is."""
        start = np.repeat(self._start(0)[:, None], own.size, axis=1)
        process = Lanczos(Products.of(self.A, own), np.ascontiguousarray(start), self.capacity, self.kept)
        parts = [(own, process, Seen.nothing(self.k, own.size))]
        for cycle in range(self.most):
            parts = [later for part in parts for later in self._after_products(cycle, *part)]

    def _after_products(
        self, cycle: int, own: np.ndarray, process: Lanczos, so_far: Seen
    ) -> list[tuple[np.ndarray, Lanczos, Seen]]:
        """What goes on after another basis of samples `own`: those beside another vector, and the others."""
        k = self.k
        process.extend(self._goodness)
        self.iterations[own] += 1
        values, before = process.values[:, :k].T, so_far.worst
        target = self._targets(own, values)
        worst = np.max(np.abs(process.couplings[:, :k].T) / target, axis=0)
        close = (worst <= ROOM) & ~process.dependent
        so_far = so_far._replace(worst=worst)
        if self._counts_are_cheap:
            another = self._accept_counted(own, process, close)
        else:
            another, so_far = self._accept_settled(own, process, close, so_far, cycle)
        with np.errstate(all="ignore"):
            needed = np.log(worst) / np.log(before / worst)
        slow = ~close & ~((needed <= FORESEEN) & (before > worst)) & (cycle + 1 >= LEAST_CYCLES)
        slow = slow & (cycle + 1 >= self._bases_worth_an_inverse) if slow.any() else slow
        slow |= process.dependent | (cycle == self.most - 1)
        if (slow & ~self.done[own]).any():
            self._note_end(own, process, np.flatnonzero(slow & ~self.done[own]))
        parts = []
        for chosen, beside in _in_two(~self.done[own] & ~slow, another):
            part = process
            if chosen.size < own.size:
                part = process.take_samples(chosen, Products.of(self.A, own[chosen]))
            parts.append((own[chosen], part, so_far.of(chosen)))
            self._restart(part, cycle, beside, False)
        return parts

    def _accept_counted(self, own: np.ndarray, process: Lanczos, close: np.ndarray) -> np.ndarray:
        """Accept pairs beyond which pivots count no others; the samples in which another vector has to follow."""
        if not close.any():
            return close
        found, proved = pairs_of(self._matrix(own), process.ritz_vectors(self.k, False)), np.zeros(own.size, bool)
        good = close & np.all(found.residuals <= self._targets(own, found.values), axis=0)
        if good.any():
            proved[good] = self._all_beyond(own[good], found.values[:, good])
        self._accept(own, found, proved)
        another: np.ndarray = good & ~proved
        return another

    def _accept_settled(
        self, own: np.ndarray, process: Lanczos, close: np.ndarray, so_far: Seen, cycle: int
    ) -> tuple[np.ndarray, Seen]:
        """Accept pairs that stay the best beside another vector; the samples in which one has to follow.

        A copy of a value needs about as many bases to come up as the first took to `SEEN` digits.
        """
        values = np.sort(process.values[:, : self.k].T, axis=0)
        same = np.all(np.abs(values - so_far.values) <= 4.0 * self._targets(own, values), axis=0)
        held = np.where(close & same, so_far.held + 1, 0)
        if (certain := close & (held >= so_far.wanted) & (held > 0)).any():
            found = pairs_of(self._matrix(own), process.ritz_vectors(self.k, False))
            good = np.all(found.residuals <= self._targets(own, found.values), axis=0)
            self._accept(own, found, certain & good)
        another: np.ndarray = close & ~same  # what the space has missed so far may come up beside another vector
        share = min(1.0, np.log(SEEN) / np.log(min(max(self.rtol, float(np.finfo(self.A.dtype).eps)), SEEN)))
        wanted = int(np.ceil(share * (1 + cycle)))
        return another, Seen(
            np.where(another, values, so_far.values), so_far.worst, held, np.where(another, wanted, so_far.wanted)
        )

    @functools.cached_property
    def _counts_are_cheap(self) -> bool:
        """Whether a count by pivots takes less than the products of a basis beside another vector, by the graph."""
        if self.A.nnz > MOST_ENTRIES:
            return False
        plan = planned(self.A, kind="ldlt", ordering="auto", matching="graph", dtype=None)
        m, n = self.capacity, self.n
        return bool(FACTORS * plan.multiply_adds <= (m - self.kept) * (self.A.nnz + 2 * m * n))

    def _restart(self, process: Lanczos, cycle: int, beside: bool, images: bool) -> None:
        """Begin another basis, after `cycle` of them, beside a new vector or not; `images` as of Ritz vectors."""
        if beside:
            process.restart_beside(self._start(cycle + 1), self.k, images)
        else:
            process.restart()

    @functools.cached_property
    def _bases_worth_an_inverse(self) -> float:
        """Bases of products that take as many operations as a search with inverses, by the graph."""
        plan = planned(self.A, kind="ldlt", ordering="auto", matching="graph", dtype=None)
        m, n = self.capacity, self.n
        inverse = FACTORS * plan.multiply_adds + 3 * m * (2 * plan.n_values + 2 * m * n)
        return float(WORTH * inverse / ((m - self.kept) * (self.A.nnz + 2 * m * n)))

    def _note_end(self, own: np.ndarray, process: Lanczos, which: np.ndarray) -> None:
        """Keep what places a shift beyond the end, of the ones `which` of samples `own`."""
        values = process.values[which, : self.k]
        samples = own[which]
        sides = np.where(np.all(values > 0.0, axis=1), 1.0, np.where(np.all(values < 0.0, axis=1), -1.0, 0.0))
        self.sides[samples] = sides if self.which == "LM" else self.sides[samples]
        bound = 2.0 * np.abs(process.couplings[which, 0])
        spread = np.abs(values[:, 0] - values[:, -1])
        self.first[samples], self.margin[samples] = values[:, 0], np.maximum(bound, FIRST * spread)
        vectors = process.ritz_vectors(self.k, False)[:, :, which]
        self.starts[:, samples] = self._towards(vectors)

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


def _nearness(offsets: np.ndarray, inverted: np.ndarray) -> np.ndarray:
    """The rank of values of inverses (n_samples, n_values) whose shifts are `offsets` above the numbers asked for."""
    with np.errstate(all="ignore"):
        beside: np.ndarray = 1.0 / np.abs(1.0 / inverted + offsets[:, None])
    return np.where(offsets[:, None] == 0.0, np.abs(inverted), beside)


def _in_two(going_on: np.ndarray, beside: np.ndarray) -> list[tuple[np.ndarray, bool]]:
    """The places of samples that go on beside another vector, and of those that go on as they are, where any do."""
    both = [(np.flatnonzero(going_on & (beside == other)), other) for other in (True, False)]
    return [(chosen, other) for chosen, other in both if chosen.size]
