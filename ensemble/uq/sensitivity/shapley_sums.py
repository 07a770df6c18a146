"""The estimator of Shapley effects as sums over rows of samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ensemble.uq.sensitivity.row_sums import Estimate, RowSums, enclosed_ratio


class ShapleySums(RowSums):
    """Rows ``Y_0, ..., Y_D``: in ``Y_j`` the first j inputs of a permutation have the values that they have in ``Y_D``.

    The other inputs of ``Y_j`` are drawn again, given those j. The effect of the input at place j is half the mean of
    ``(Y_D - Y_{j-1})^2 - (Y_D - Y_j)^2`` over that of ``(Y_D - Y_0)^2``: effects add up to 1 in every replicate.
    """

    def __init__(self, n_inputs: int, n_replicates: int, orders: Callable[[np.ndarray], np.ndarray]) -> None:
        super().__init__(n_inputs, n_inputs + 1, 3 + n_inputs, n_replicates)
        self.orders = orders

    def base_parts(self) -> list[int]:
        """The first and the last part."""
        return [0, self.n_inputs]

    def terms(self, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """``Y_0 + Y_D, Y_0^2 + Y_D^2, (Y_D - Y_0)^2`` and the difference of squares of each input."""
        n = self.n_inputs
        first, last = y[:, 0], y[:, n]
        terms = np.empty((len(y), self.n_terms, y.shape[2]))
        np.add(first, last, out=terms[:, 0])
        np.add(first * first, last * last, out=terms[:, 1])
        squares = (last[:, None] - y) ** 2
        terms[:, 2] = squares[:, 0]
        np.put_along_axis(terms[:, 3:], self.orders(rows)[:, :, None], squares[:, :-1] - squares[:, 1:], axis=1)
        return terms

    def estimate_block(self, estimates: tuple[Estimate, ...], chunk: slice, factor: float) -> None:
        """The effects."""
        sums = self.block_sums(chunk)[:, 2:]
        results = self.ratio(sums[:, 1:], sums[:, 0], factor)
        if self.n_used < self.rows_seen:
            low, high = self.ranges(chunk)
            missing = (self.rows_seen - self.n_used) * (high - low) ** 2
            total, whole = sums[:, 1:].sum(axis=0), sums[:, 0].sum(axis=0)
            results += (enclosed_ratio(total - missing, total + missing, whole, whole + missing),)
        estimates[0].fill(chunk, self.constant(chunk), results)
