"""`SampledInputs`: what samplers read of the inputs whose points they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

__all__ = ["SampledInputs"]


class SampledInputs(Protocol):
    """Inputs as samplers see them; `Inputs` is such an object, and stands above the samplers."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs, in their order."""

    @property
    def n_germs(self) -> int:
        """Columns of a point: independent random numbers of a sample."""

    @property
    def variables(self) -> Mapping[str, Any]:
        """The distributions by name."""

    @property
    def copula(self) -> Any:
        """The correlations; its `columns` are the germs that are correlated."""

    def to_normal(self, values: Any) -> np.ndarray:
        """Return the points of values, shape (n_samples, n_germs), as standard normal numbers."""
