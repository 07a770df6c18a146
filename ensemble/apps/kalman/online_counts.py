"""The state of an `OnlineFilter` whose exact observations are counted against the rank of what is not known."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.array.exact_rank import as_mask, counts_of, seen_entries
from ensemble.apps.kalman.online_observations import entries
from ensemble.apps.kalman.series import Series

__all__ = ["counted"]


def counted(state: Any, series: Series) -> Any:
    """The state, counted where entries are seen without noise; see `steps_without_density`."""
    counts = counts_of(series)
    return state if counts is None else _CountedState(state, series, *counts)


class _CountedState:
    """Another state, without mean and likelihood once an observation has no density."""

    def __init__(self, state: Any, series: Series, exact: Any, driven: Any, rank: Any) -> None:
        self.state, self.series, self.exact, self.driven = state, series, exact, driven
        self.rank, self.over = rank, np.zeros((*series.batch, 1), bool)

    @property
    def mean(self) -> Array:
        return self._marked(self.state.mean, 1)

    @property
    def log_likelihood(self) -> Any:
        return self._marked(self.state.log_likelihood, 0)

    @property
    def covariance(self) -> Array:
        return self.state.covariance

    @property
    def diffuse_covariance(self) -> Array | None:
        return self.state.diffuse_covariance

    def _marked(self, value: Any, tail: int) -> Any:
        if not self.over.any():
            return value
        if self.over.size == 1:
            return value + float("nan")
        mask = as_mask(self.series, self.over)
        xp = array_namespace(mask, value)
        return xp.where(xp.reshape(mask, (*mask.shape, *(1,) * tail)), value + float("nan"), value)

    def copied(self, n_steps: int = 1) -> Any:
        return self._with(self.state.copied(n_steps))

    def continued(self) -> Any:
        return self._with(self.state.continued())

    def _with(self, state: Any) -> Any:
        made = _CountedState(state, self.series, self.exact, self.driven, self.rank)
        made.over = self.over
        return made

    def predict(self, k: int) -> None:
        self.state.predict(k)
        self._move(k)

    def update(self, k: int, y: Any) -> None:
        self.state.update(k, y)
        self._observe(k, y)

    def step(self, k: int, y: Any) -> None:
        self.state.step(k, y)
        self._move(k)
        self._observe(k, y)

    def _move(self, k: int) -> None:
        if k or self.series.predict_first:
            driven = self.driven[k if len(self.driven) > 1 else 0]
            self.rank = np.minimum(self.rank + driven, self.series.F.shape[-1])

    def _observe(self, k: int, y: Any) -> None:
        exact = self.exact[k if len(self.exact) > 1 else 0]
        seen = np.sum(np.logical_and(exact, seen_entries(entries(y))), axis=-2)
        self.over, self.rank = np.logical_or(self.over, seen > self.rank), self.rank - seen
