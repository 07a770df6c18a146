"""What the modules of a study read of each other: a result, and what it is made from.

`UqResult` is made from a `Plan` or from a `StoredStudy`; tables, files, datasets and reports are made from a result.
Each imports the protocol of what stands above it, so that none imports in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from ensemble.uq.study.failures import Failures

__all__ = ["Study", "StudyResult"]


class Study(Protocol):
    """What a result is made from: a study that runs, or one in a store."""

    @property
    def n(self) -> int: ...

    @property
    def is_done(self) -> np.ndarray:
        """Which samples have run, shape (n,); `failed` is a part of them."""

    @property
    def failed(self) -> np.ndarray: ...

    @property
    def reasons(self) -> dict[int, str]:
        """Why samples failed, by their numbers."""

    @property
    def sampler(self) -> Any: ...

    @property
    def seed(self) -> int: ...

    @property
    def layout(self) -> Mapping[str, tuple[tuple[int, ...], Any]]:
        """Shape and dtype of each output."""

    @property
    def store(self) -> Any: ...

    @property
    def streams(self) -> Any:
        """Sums and histograms by output, where statistics alone are kept."""

    @property
    def samples(self) -> Any:
        """The inputs of all samples."""

    @property
    def declared(self) -> Any:
        """Coordinates and units of the outputs."""

    @property
    def inputs(self) -> Any:
        """Definitions of the inputs; None where a store does not say them."""

    @property
    def costs(self) -> Any: ...

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
    def manifest(self) -> Callable[[], dict[str, Any]]:
        """A function that returns what the study is, as in a store."""


class StudyResult(Protocol):
    """What tables, files, datasets and reports read of a result."""

    names: tuple[str, ...]
    """Names of the outputs; a copy of a result may have some of them."""

    @property
    def n(self) -> int: ...

    @property
    def ids(self) -> np.ndarray:
        """Samples that ran and did not fail."""

    @property
    def done(self) -> np.ndarray: ...

    @property
    def failed(self) -> np.ndarray: ...

    @property
    def reasons(self) -> dict[int, str]: ...

    @property
    def earlier_reasons(self) -> dict[int, tuple[str, ...]]: ...

    @property
    def attempts(self) -> np.ndarray:
        """How often each sample was run, shape (n,)."""

    @property
    def sampler(self) -> Any: ...

    @property
    def seed(self) -> int: ...

    @property
    def keep(self) -> str: ...

    @property
    def ensemble_size(self) -> int | None: ...

    @property
    def target_met(self) -> bool | None: ...

    @property
    def coordinates(self) -> dict[str, np.ndarray]: ...

    @property
    def units(self) -> dict[str, str]: ...

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]: ...

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

    def mean(self, name: str) -> np.ndarray:
        """Return the mean of an output."""

    def std(self, name: str, ddof: float = 1.0) -> np.ndarray:
        """Return the standard deviation of an output."""

    def minimum(self, name: str) -> np.ndarray:
        """Return the smallest value of an output."""

    def maximum(self, name: str) -> np.ndarray:
        """Return the largest value of an output."""

    def quantile(self, name: str, q: Any) -> np.ndarray:
        """Return quantiles of an output."""

    def confidence_interval(self, name: str, level: float = 0.95) -> Any:
        """Return an interval of the mean of an output."""

    def no_interval(self) -> str:
        """Say why there is no interval; empty where there is one."""
