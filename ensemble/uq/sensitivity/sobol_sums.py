"""Estimators of first and total Sobol' indices as sums over rows of samples."""

from __future__ import annotations

import numpy as np

from ensemble.uq.sensitivity.row_sums import Estimate, RowSums, enclosed_ratio


class SobolSums(RowSums):
    """Rows ``A, B, AB_1, ..., AB_D``, where ``AB_i`` is A with input i of B.

    First indices are of Saltelli et al. (2010), Computer Physics Communications 181, 259-270, Table 2 (b), with values
    shifted to about zero mean; total indices of Jansen (1999), the same table (f). benchmarks/EXPERIMENTS.md has the
    measured errors of the other estimators.
    """

    def __init__(self, n_inputs: int, n_replicates: int) -> None:
        super().__init__(n_inputs, n_inputs + 2, 2 + 2 * n_inputs, n_replicates)

    def base_parts(self) -> list[int]:
        """A and B."""
        return [0, 1]

    def terms(self, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """``A + B, A^2 + B^2, B (AB_i - A), (A - AB_i)^2``."""
        a, b, mixed = y[:, 0], y[:, 1], y[:, 2:]
        n = self.n_inputs
        terms = np.empty((len(y), self.n_terms, y.shape[2]))
        np.add(a, b, out=terms[:, 0])
        np.add(a * a, b * b, out=terms[:, 1])
        first, total = terms[:, 2 : 2 + n], terms[:, 2 + n :]
        np.subtract(mixed, a[:, None], out=first)
        np.multiply(first, first, out=total)
        first *= b[:, None]
        return terms

    def estimate_block(self, estimates: tuple[Estimate, ...], chunk: slice, factor: float) -> None:
        """First indices, then total ones."""
        n = self.n_inputs
        sums = self.block_sums(chunk)
        count = 2.0 * self.rows_used
        mean = sums[:, 0].sum(axis=0) / count.sum()
        squares = sums[:, 1] - 2.0 * mean * sums[:, 0] + count[:, None] * mean**2
        numerators = (sums[:, 2 : 2 + n], 0.5 * sums[:, 2 + n :])
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
