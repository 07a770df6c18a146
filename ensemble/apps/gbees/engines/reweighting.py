"""Bayes' rule on the cells of a grid: the product of probabilities and likelihoods."""

from __future__ import annotations

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.gbees.errors import GridError

__all__ = ["weighted"]


def weighted(p: Array, log_weights: Array) -> tuple[Array, float]:
    """``p * exp(log_weights - largest)`` in float64, shape (N,), and the largest weight of a cell that is not empty.

    Raises
    ------
    GridError
        If a weight is NaN or infinite, or all weights are zero.
    """
    xp = array_namespace(p)
    log_weights = xp.astype(xp.asarray(log_weights), xp.float64, copy=False)
    if bool(xp.any(xp.isnan(log_weights))) or bool(xp.any(log_weights == float("inf"))):
        raise GridError("Gbees: the likelihood must be a number in every cell; got NaN or infinity.")
    zero = xp.full_like(log_weights, -float("inf"))
    largest = float(xp.max(xp.where(p > 0, log_weights, zero)))
    if largest == -float("inf"):
        raise GridError(
            f"Gbees: the likelihood must be above zero somewhere; got zero in all {p.shape[0]} cells. "
            "Check the measurement, or give it a larger variance."
        )
    return xp.astype(p, xp.float64) * xp.exp(xp.where(p > 0, log_weights - largest, zero)), largest
