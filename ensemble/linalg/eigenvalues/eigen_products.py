"""Eigenpairs by products with matrices, and what they share with those by inverses."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._kernels.krylov.start_vectors import scattered
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.eigenvalues.eigen_pivots import PivotCounts
from ensemble.linalg.eigenvalues.lanczos import Lanczos, Pairs, Products, Seen, pairs_of

__all__ = ["MOST_CYCLES", "ROOM", "ProductSearch", "in_two"]

GUARDS = 5
"""Ritz vectors that are kept beside the k wanted ones."""

MEMORY = 1 << 26
"""Bytes of the bases of samples that go through the process together, 32 at most."""

LEAST_CYCLES, MOST_CYCLES, FORESEEN = 2, 12, 6
"""Bases of products with A at least; of any process at most; that products may still need, by the rate so far."""

ROOM = 0.5
"""Estimated residual, by what it may be, from which on pairs are worked out."""

FACTORS, WORTH = 4, 0.25
"""Factorisations that a search with inverses takes, about, and the share of its operations that products may take."""

MOST_ENTRIES = 20_000
"""Entries of a graph up to which counts by pivots are planned for pairs that products found: the plan takes longer.

Measured again by `benchmarks eigen`.
"""

MORE_VECTORS = 4
"""Vectors of a basis beside the usual ones where products take less than what follows a basis."""

SEEN = 1e-5
"""Accuracy of a value, by that of all, with which a copy comes up."""

OTHERS = 1e-2
"""Length of the part of other vectors in a start near Ritz vectors."""

FIRST = 0.1
"""Least distance of the first shift from the values wanted, by their spread."""

START = 20_232
"""Seed of the starting vectors, which are the same for all samples."""


class ProductSearch(PivotCounts):
    """Pairs of the ends of the spectrum by products, as long as residuals fall fast, and what is known of each sample.

    Parameters
    ----------
    A, shifts, which, rtol
        Those of `PivotCounts`.
    k : int
        Pairs that are wanted, nearest to the shifts where there are any.

    Attributes
    ----------
    done : array of bool, shape (n_samples,)
    values, residuals, target : arrays, shape (k, n_samples)
        Over two to the power of `powers`.
    vectors : array, shape (n, k, n_samples)
    iterations : array of int, shape (n_samples,)
        Bases built.
    """

    most: int
    """Bases by products at most, of the search that goes on after them."""
    starts: np.ndarray
    """Vectors that this begins with, shape (n, n_samples)."""

    def __init__(self, A: CrsMatrix, shifts: np.ndarray | None, which: str, k: int, rtol: float) -> None:
        super().__init__(A, shifts, which, rtol)
        self.k, count = k, self.n_samples
        self.done = np.zeros(count, bool)
        self.values, self.residuals, self.target = np.full((3, k, count), np.nan)
        self.vectors = np.empty((self.n, k, count), self.A.dtype)
        self.iterations = np.zeros(count, np.int64)
        self.others = np.zeros(0, np.int64)
        self.capacity, self.kept = self.vectors_of(k), k + GUARDS
        if shifts is None and self.A.nnz <= MOST_ENTRIES:
            self.capacity += MORE_VECTORS
        fitting = MEMORY // (self.capacity * self.n * self.A.dtype.itemsize)
        self.samples_together = 1 << min(5, max(fitting, 1).bit_length() - 1)

    @staticmethod
    def vectors_of(k: int) -> int:
        """Vectors of a basis for k pairs."""
        return max(20, 2 * k + 12)

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

    def _accept(self, samples: np.ndarray, found: Pairs, good: Any) -> None:
        """Note the pairs of the `good` ones of samples."""
        chosen: Any = samples[good]
        if chosen.size == self.n_samples:  # of all: faster, and without copies
            chosen, good = slice(None), slice(None)
        self.values[:, chosen], self.residuals[:, chosen] = found.values[:, good], found.residuals[:, good]
        self.vectors[:, :, chosen] = found.vectors[:, :, good].transpose(1, 0, 2)
        self.target[:, chosen] = self._targets(chosen, found.values[:, good])
        self.done[chosen] = True

    def _restart(self, process: Lanczos, cycle: int, beside: bool, images: bool) -> None:
        """Begin another basis, after `cycle` of them, beside a new vector or not; `images` as of Ritz vectors."""
        if beside:
            process.restart_beside(self._start(cycle + 1), self.k, images)
        else:
            process.restart()

    def _towards(self, vectors: np.ndarray) -> np.ndarray:
        """A start near Ritz vectors, shape (k, n, n_samples), that has a part in all others too."""
        every = self._start(0)
        start: np.ndarray = vectors.sum(axis=0) + OTHERS * (every / np.linalg.norm(every))[:, None]
        return start

    # --- ends of the spectrum
    def _by_products(self, own: np.ndarray) -> None:
        """Search with products of A as long as the residuals fall fast; where they do not, note where the end is."""
        start = np.repeat(self._start(0)[:, None], own.size, axis=1)
        process = Lanczos(Products.of(self.A, own), np.ascontiguousarray(start), self.capacity, self.kept)
        parts = [(own, process, Seen.nothing(self.k, own.size))]
        for cycle in range(self.most):
            parts = [later for part in parts for later in self._after_products(cycle, *part)]
            if not parts:
                break

    def _after_products(
        self, cycle: int, own: np.ndarray, process: Lanczos, so_far: Seen
    ) -> list[tuple[np.ndarray, Lanczos, Seen]]:
        """Extend the bases of samples `own` once; return those that go on, with another start vector or as they are."""
        k = self.k
        process.extend(self.which)
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
        going_on = ~self.done[own]
        if not going_on.any():
            return []
        slow = process.dependent | (cycle == self.most - 1)
        if cycle + 1 >= LEAST_CYCLES:
            with np.errstate(all="ignore"):
                needed = np.log(worst) / np.log(before / worst)
            falls_slowly = ~close & ~((needed <= FORESEEN) & (before > worst))
            slow |= falls_slowly & (not falls_slowly.any() or cycle + 1 >= self._bases_worth_an_inverse)
        if (slow & going_on).any():
            self._note_end(own, process, np.flatnonzero(slow & going_on))
        parts = []
        for chosen, beside in in_two(going_on & ~slow, another):
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
        plan = self._plan
        m, n = self.capacity, self.n
        return bool(FACTORS * plan.multiply_adds <= (m - self.kept) * (self.A.nnz + 2 * m * n))

    @functools.cached_property
    def _bases_worth_an_inverse(self) -> float:
        """Bases of products that take as many operations as a search with inverses, by the graph."""
        plan = self._plan
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


def in_two(going_on: np.ndarray, beside: np.ndarray) -> list[tuple[np.ndarray, bool]]:
    """The places of samples that go on beside another vector, and of those that go on as they are, where any do."""
    both = [(np.flatnonzero(going_on & (beside == other)), other) for other in (True, False)]
    return [(chosen, other) for chosen, other in both if chosen.size]
