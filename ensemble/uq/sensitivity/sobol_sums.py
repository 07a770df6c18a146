"""Estimators of first and total Sobol' indices as sums over rows of samples."""

from __future__ import annotations

import itertools

import numpy as np

from ensemble.uq.sensitivity.row_sums import Estimate, RowSums, enclosed_ratio, student_factor

__all__ = ["PairSums", "SobolSums"]


class SobolSums(RowSums):
    """Rows ``A, B, AB_1, ..., AB_D``, where ``AB_i`` is A with input i of B.

    First indices are of Saltelli et al. (2010), Computer Physics Communications 181, 259-270, Table 2 (b), with values
    shifted to about zero mean; total indices of Jansen (1999), the same table (f). ensemble/uq/EXPERIMENTS.md has the
    measured errors of the other estimators.
    """

    def __init__(self, n_inputs: int, n_replicates: int) -> None:
        super().__init__(n_inputs, n_inputs + 2, 2 + 2 * n_inputs, n_replicates)

    def base_parts(self) -> list[int]:
        """A and B."""
        return [0, 1]

    def terms(self, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """``A + B, A^2 + B^2, B (AB_i - A), (A - AB_i)^2``."""
        n = self.n_inputs
        a, b, mixed = y[:, 0], y[:, 1], y[:, 2 : 2 + n]
        terms = np.empty((len(y), self.n_terms, y.shape[2]))
        np.add(a, b, out=terms[:, 0])
        np.add(a * a, b * b, out=terms[:, 1])
        first, total = terms[:, 2 : 2 + n], terms[:, 2 + n : 2 + 2 * n]
        np.subtract(mixed, a[:, None], out=first)
        np.multiply(first, first, out=total)
        first *= b[:, None]
        return terms

    def _squares(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means of outputs, and by replicate the sums of squares about them."""
        count = 2.0 * self.rows_used
        mean = sums[:, 0].sum(axis=0) / count.sum()
        return mean, sums[:, 1] - 2.0 * mean * sums[:, 0] + count[:, None] * mean**2

    def estimate_block(self, estimates: tuple[Estimate, ...], chunk: slice, factor: float) -> None:
        """First indices, then total ones."""
        n = self.n_inputs
        sums = self.block_sums(chunk)
        mean, squares = self._squares(sums)
        numerators = (sums[:, 2 : 2 + n], 0.5 * sums[:, 2 + n : 2 + 2 * n])
        failures = self.n_used < self.rows_seen
        limits = self._variance_limits(squares.sum(axis=0), mean, chunk) if failures else None
        for estimate, numerator, missing in zip(estimates, numerators, self._missing(chunk)):
            results = self.ratio(numerator, 0.5 * squares, factor)
            if limits is not None:
                total = numerator.sum(axis=0)
                results += (enclosed_ratio(total + missing[0], total + missing[1], 0.5 * limits[0], 0.5 * limits[1]),)
            estimate.fill(chunk, self.constant(chunk), results)

    def _missing(self, chunk: slice) -> list[tuple[np.ndarray, np.ndarray]]:
        """What the missing rows could add at least and at most to the sums of first and of total indices."""
        missing = self.rows_seen - self.n_used
        low, high = self.ranges(chunk)
        first = missing * np.maximum(high, -low) * (high - low)
        return [(-first, first), (np.zeros_like(low), 0.5 * missing * (high - low) ** 2)]

    def _variance_limits(self, squares: np.ndarray, mean: np.ndarray, chunk: slice) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest sum of squares about the mean with the missing values in the observed range."""
        missing, whole = 2.0 * (self.rows_seen - self.n_used), 2.0 * self.rows_seen
        low, high = (end - mean for end in self.ranges(chunk))
        spread = high - low
        with np.errstate(invalid="ignore", divide="ignore"):
            # j values at the upper end, the others at the lower one: a parabola in j.
            best = 0.5 * whole * (high + low) / spread - missing * low / spread
        j = np.clip(np.where(np.isfinite(best), best, 0.0), 0.0, missing)
        largest = squares + j * high**2 + (missing - j) * low**2 - (j * high + (missing - j) * low) ** 2 / whole
        return squares, largest


class PairSums(SobolSums):
    """Rows ``A, B, AB_1, ..., AB_D, BA_1, ..., BA_D``: indices of pairs of inputs, too.

    The closed index of i and j is the covariance of ``BA_i`` and ``AB_j``, which have A in i and B in j in common
    (Saltelli 2002, Computer Physics Communications 145, 280-297, Theorem 2). The product ``A B``, whose mean is the
    square of the mean, is taken from it.
    """

    def __init__(self, n_inputs: int, n_replicates: int) -> None:
        super().__init__(n_inputs, n_replicates)
        self.places = list(itertools.combinations(range(n_inputs), 2))
        """The inputs of each pair."""
        self.n_parts = 2 * n_inputs + 2
        self.n_terms += len(self.places)

    def terms(self, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Those of `SobolSums`, then ``(BA_i AB_j + AB_i BA_j) / 2 - A B`` for each pair."""
        n = self.n_inputs
        terms = super().terms(y, rows)
        base, mixed, reverse = y[:, 0] * y[:, 1], y[:, 2 : 2 + n], y[:, 2 + n :]
        for k, (i, j) in enumerate(self.places):
            terms[:, 2 + 2 * n + k] = 0.5 * (reverse[:, i] * mixed[:, j] + mixed[:, i] * reverse[:, j]) - base
        return terms

    def pairs(self, level: float) -> Estimate:
        """The part of the variance that each pair explains beyond each input alone."""
        found = Estimate(len(self.places), self.n_outputs, self.n_used < self.rows_seen)
        factor, n = student_factor(level, self.n_replicates), self.n_inputs
        left, right = np.array(self.places, dtype=np.int64).reshape(-1, 2).T
        for chunk in self._blocks():
            sums = self.block_sums(chunk)
            mean, squares = self._squares(sums)
            numerator = sums[:, 2 + 2 * n :] - sums[:, 2 + left] - sums[:, 2 + right]
            results = self.ratio(numerator, 0.5 * squares, factor)
            if self.n_used < self.rows_seen:
                low, high = self.ranges(chunk)
                largest = np.maximum(np.abs(low), np.abs(high))
                missing = (self.rows_seen - self.n_used) * 2.0 * largest * (largest + high - low)
                total = numerator.sum(axis=0)
                limits = self._variance_limits(squares.sum(axis=0), mean, chunk)
                results += (enclosed_ratio(total - missing, total + missing, 0.5 * limits[0], 0.5 * limits[1]),)
            found.fill(chunk, self.constant(chunk), results)
        return found
