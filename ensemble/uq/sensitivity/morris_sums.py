"""Elementary effects as sums over rows of samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ensemble.uq.sensitivity.row_sums import Estimate, RowSums

__all__ = ["MorrisSums"]

STEP = 0.5
"""How far an input moves, in its probability."""


class MorrisSums(RowSums):
    """Rows ``Y_0, ..., Y_D``: between ``Y_{j-1}`` and ``Y_j`` one input moves by `STEP`, up or down.

    The elementary effect of the input is ``sign (Y_j - Y_{j-1}) / STEP`` (Morris 1991, eq. 3).
    """

    def __init__(
        self, n_inputs: int, n_replicates: int, moves: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    ) -> None:
        super().__init__(n_inputs, n_inputs + 1, 2 + 3 * n_inputs, n_replicates)
        self.moves = moves
        """The order of the inputs and their signs, ``(n_rows, n_inputs)`` each, for the numbers of rows."""

    def base_parts(self) -> list[int]:
        """The ends of the path, each of which has every level equally often."""
        return [0, self.n_inputs]

    def terms(self, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """``Y_0 + Y_D, Y_0^2 + Y_D^2``, then the effects, their sizes and their squares, input by input."""
        n = self.n_inputs
        orders, signs = self.moves(rows)
        terms = np.empty((len(y), self.n_terms, y.shape[2]))
        np.add(y[:, 0], y[:, n], out=terms[:, 0])
        np.add(y[:, 0] ** 2, y[:, n] ** 2, out=terms[:, 1])
        effects, sizes, squares = terms[:, 2 : 2 + n], terms[:, 2 + n : 2 + 2 * n], terms[:, 2 + 2 * n :]
        np.put_along_axis(effects, orders[:, :, None], (y[:, 1:] - y[:, :-1]) / STEP, axis=1)
        effects *= signs[:, :, None]
        np.abs(effects, out=sizes)
        np.multiply(effects, effects, out=squares)
        return terms

    def estimate_block(self, estimates: tuple[Estimate, ...], chunk: slice, factor: float) -> None:
        """The mean size of the effects, their mean, and their standard deviation."""
        n, count = self.n_inputs, float(self.n_used)
        sums, unit = self.block_sums(chunk)[:, 2:], self.unit[chunk]
        rows = np.broadcast_to(self.rows_used[:, None].astype(float), (self.n_replicates, sums.shape[2]))
        mean, half_mean = self.ratio(sums[:, :n], rows, factor)
        size, half_size = self.ratio(sums[:, n : 2 * n], rows, factor)
        # squares about the mean of all rows, so that the residuals of the replicates are those of the variance
        about = sums[:, 2 * n :] - 2.0 * mean * sums[:, :n] + rows[:, None] * mean**2
        variance, half_variance = self.ratio(np.maximum(about, 0.0), rows, factor)
        deviation = np.sqrt(variance * (count / (count - 1.0) if count > 1.0 else np.nan))
        with np.errstate(invalid="ignore", divide="ignore"):
            half_deviation = np.where(deviation > 0.0, half_variance / (2.0 * deviation), 0.0 * half_variance)
        low, high = self.ranges(chunk)
        none = np.zeros(unit.size, dtype=bool)
        failures = self.n_used < self.rows_seen
        for k, (estimate, value, half) in enumerate(
            zip(estimates, (size, mean, deviation), (half_size, half_mean, half_deviation))
        ):
            results: tuple[np.ndarray, ...] = (value * unit, half * unit)
            if failures:
                results += (self._bounds(k, value, (high - low) / STEP) * unit,)
            estimate.fill(chunk, none, results)

    def _bounds(self, kind: int, value: np.ndarray, largest: np.ndarray) -> np.ndarray:
        """What the values could be with effects up to `largest` in the rows that are missing."""
        missing = (self.rows_seen - self.n_used) / self.rows_seen
        if kind == 2:
            seen = (1.0 - missing) * value**2
            spread = np.broadcast_to(largest, value.shape)
            return np.stack([np.sqrt(seen), np.sqrt(seen + missing * spread**2)])
        low = (1.0 - missing) * value - (0.0 if kind == 0 else missing * largest)
        return np.stack([low, (1.0 - missing) * value + missing * largest])
