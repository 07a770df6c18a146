"""``x.flat``: the entries of an ensemble in one row, to read and to write."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ensemble._check import message
from ensemble.scalar._memory import refill

__all__ = ["Flat"]


class Flat:
    """The entries of a NumPy ensemble, rows first, as ``ndarray.flat``: reading gives copies, writing goes to `x`."""

    __slots__ = ("base",)

    def __init__(self, x: Any) -> None:
        self.base = x

    def __len__(self) -> int:
        return math.prod(self.base.shape)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.base.reshape(-1))

    def __getitem__(self, key: Any) -> Any:
        if key is None or isinstance(key, bool | np.bool):
            advice = "Use x.reshape(-1)[...] for a new axis."
            raise IndexError(message("Ensemble.flat", "an index", "be an integer, a slice or an array", key, advice))
        return self.base.reshape(-1)[key].copy()

    def __setitem__(self, key: Any, value: Any) -> None:
        x = self.base
        if x.is_value:
            return  # of NumPy's scalars, too, `flat` is another array
        lifted = hasattr(value, "sample_set")
        n_samples = value.n_samples if lifted else 1
        if n_samples not in (1, x.n_samples) and not x.is_shared:
            seen = f"{n_samples} for {x.n_samples} samples"
            raise ValueError(message("Ensemble.flat", "an assigned value", "have the samples of x", seen))
        if x.is_shared and n_samples > 1:
            x._widen(n_samples)
        for s in range(x.n_samples):
            x.samples[..., s].flat[key] = value.sample(s) if lifted else value
        refill(x._memory_token)

    def copy(self) -> Any:
        """The entries as a vector."""
        return self.base.flatten()
