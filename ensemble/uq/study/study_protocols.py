"""What the modules of a study read of each other: a result, and what it is made from.

`UqResult` is made from a `Plan` or from a `StoredStudy`; tables, files, datasets and reports are made from a result.
Each imports the protocol of what stands above it, so that none imports in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from ensemble._typing import PlainArray
from ensemble.uq.study.failures import Failures

__all__ = ["Study", "StudyResult"]


class Study(Protocol):
    """What a result is made from: a study that runs, or one in a store."""

    n: int
    is_done: np.ndarray
    """Which samples have run, shape (n,); `failed` is a part of them."""
    failed: np.ndarray
    reasons: dict[int, str]
    """Why samples failed, by their numbers."""
    sampler: Any
    seed: int
    layout: Mapping[str, tuple[tuple[int, ...], Any]]
    """Shape and dtype of each output."""
    store: Any
    streams: Any
    """Sums and histograms by output, where statistics alone are kept."""
    samples: Any
    """The inputs of all samples."""
    declared: Any
    """Coordinates and units of the outputs."""
    inputs: Any
    """Definitions of the inputs; None where a store does not say them."""
    costs: Any

    @property
    def earlier(self) -> Mapping[int, Any]:
        """Reasons of failures before the last run, by sample."""

    @property
    def keep(self) -> Any:
        """What is kept of the samples."""

    @property
    def ensemble_size(self) -> int | None:
        """Samples in a call of the model."""

    @property
    def new_streams(self) -> Callable[..., Any]:
        """A function that makes empty streams."""

    @property
    def manifest(self) -> Callable[[], Mapping[str, Any]]:
        """A function that returns what the study is, as in a store."""


class StudyResult(Protocol):
    """What tables, files, datasets and reports read of a result."""

    n: int
    ids: np.ndarray
    """Samples that ran and did not fail."""
    names: tuple[str, ...]
    """Names of the outputs."""
    done: np.ndarray
    failed: np.ndarray
    reasons: dict[int, str]
    earlier_reasons: dict[int, tuple[str, ...]]
    sampler: Any
    seed: int
    keep: str
    ensemble_size: int | None
    target_met: bool | None
    coordinates: dict[str, np.ndarray]
    units: dict[str, str]
    dims: Mapping[str, tuple[str, ...]]

    @property
    def n_done(self) -> int:
        """How many samples have run."""

    @property
    def n_failed(self) -> int:
        """How many of them failed."""

    @property
    def failures(self) -> dict[str, Failures]:
        """Counts of failures by reason."""

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the samples in `ids`; None where all count the same."""

    @property
    def plot(self) -> Any:
        """Figures of the outputs."""

    def values(self, name: str) -> np.ndarray:
        """Return an output of all samples, NaN where there is none."""

    def samples(self, name: str) -> Any:
        """Return an output of the samples in `ids`, as an Ensemble."""

    def mean(self, name: str) -> PlainArray:
        """Return the mean of an output."""

    def std(self, name: str, ddof: float = 1.0) -> PlainArray:
        """Return the standard deviation of an output."""

    def quantile(self, name: str, q: Any) -> PlainArray:
        """Return quantiles of an output."""

    def confidence_interval(self, name: str, level: float = 0.95) -> Any:
        """Return an interval of the mean of an output."""

    def no_interval(self) -> str:
        """Say why there is no interval; empty where there is one."""
