"""Results as tables of pandas, which is imported with the first table."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import require
from ensemble._optional import optional
from ensemble.scalar import Ensemble

__all__ = ["check_one_series", "continued", "states", "table"]


def states(result: Any, index: Any) -> Any:
    """Means, deviations and log-likelihoods of one series."""
    check_one_series(result, result.mean)
    deviation = np.sqrt(np.einsum("kii->ki", to_numpy(result.covariance)))
    columns = {"mean": to_numpy(result.mean), "deviation": deviation}
    return table({**columns, "log_likelihood": to_numpy(result.log_likelihoods)}, index)


def check_one_series(result: Any, a: Any) -> None:
    """Refuse results of several series or samples."""
    name = f"{type(result).__name__}.to_pandas"
    advice = "Pick one: a table of each series or sample has one row per step."
    seen = f"an Ensemble of {a.n_samples} samples" if isinstance(a, Ensemble) else f"batch axes {tuple(a.shape[:-2])}"
    fits = not isinstance(a, Ensemble) and len(a.shape) == 2
    require(fits, name, "the result", "be that of one series", seen, advice)


def table(columns: dict[str, np.ndarray], index: Any) -> Any:
    """A DataFrame with a column for each entry of arrays (T, n) and one for arrays (T,)."""
    pandas = optional("pandas", "to_pandas")
    names, values = [], []
    for name, a in columns.items():
        wide = a if a.ndim == 2 else a[:, None]
        names += [(name, i if a.ndim == 2 else "") for i in range(wide.shape[1])]
        values.append(wide)
    labels = pandas.MultiIndex.from_tuples(names)
    return pandas.DataFrame(np.concatenate(values, axis=1), index=index, columns=labels)


def continued(index: Any, n: int) -> Any:
    """The `n` labels that follow an index of pandas: dates at its frequency, numbers at its step; None otherwise."""
    if index is None:
        return None
    import pandas

    if isinstance(index, pandas.RangeIndex):
        start = index.stop if index.step else 0
        return pandas.RangeIndex(start, start + n * index.step, index.step)
    if isinstance(index, pandas.PeriodIndex):
        return pandas.period_range(index[-1] + 1, periods=n, freq=index.freq)
    if isinstance(index, pandas.DatetimeIndex):
        frequency = index.freq or (_inferred(pandas, index) if len(index) > 2 else None)
        return None if frequency is None else pandas.date_range(index[-1], periods=n + 1, freq=frequency)[1:]
    return None


def _inferred(pandas: Any, index: Any) -> Any:
    """The frequency of dates without a stored one; None where they have none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a later pandas will return: both are taken
        return pandas.infer_freq(index)
