"""Adapters that make a `LinearOperator` of any object with ``@`` or ``apply``."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ensemble._backend import array_namespace, contiguous, is_array
from ensemble._check import kind_of, message
from ensemble._typing import Array, Ids
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.linear_operator import LinearOperator
from ensemble.linalg.operators import samples_of
from ensemble.scalar import Ensemble


class AdaptedOperator(LinearOperator):
    """An object of another class: any with ``@`` on Ensembles, or a SciPy LinearOperator.

    Samples are never taken out of it: its products may depend on their positions.
    """

    takes_samples = False

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.shape = tuple(operator.shape)
        for name in ("n_samples", "dtype", "sample_set", "reference_array"):
            value = getattr(operator, name, None)
            if value is not None:
                setattr(self, name, value)

    def apply(self, x: Array, out: Array = None) -> Array:
        """The product with `x`; SciPy's operators take one sample at a time."""
        if hasattr(self.operator, "matvec"):
            y = np.stack([self.operator.matvec(x[:, s].copy()) for s in range(x.shape[1])], axis=1)
        else:
            y = samples_of(self.operator @ Ensemble(x))
            if y.shape[-1] not in (1, x.shape[1]):
                kind, seen = type(self.operator).__name__, f"{y.shape[-1]} samples for {x.shape[1]}"
                advice = "An operator that differs from sample to sample has an attribute n_samples."
                raise ValueError(message(f"{kind} @", "the product", "have the samples of the vector", seen, advice))
            y = array_namespace(x).broadcast_to(y, x.shape)
        if "complex" in str(y.dtype) and "complex" not in str(x.dtype):
            kind = type(self.operator).__name__
            advice = "Give b as complex numbers, or the operator a complex dtype."
            raise TypeError(message(f"{kind} @", "the product of a real vector", "be real", f"dtype {y.dtype}", advice))
        if out is None:
            return contiguous(y)
        out[...] = y
        return out


class AdaptedApply(AdaptedOperator):
    """An object of another class with ``apply(x, out)`` on bare arrays, and what else it has of a `LinearOperator`."""

    def __init__(self, operator: Any) -> None:
        super().__init__(operator)
        self.takes_samples = hasattr(operator, "take_samples")
        for name in ("residual", "astype", "in_own_order"):
            if hasattr(operator, name):
                setattr(self, name, getattr(operator, name))

    def apply(self, x: Array, out: Array = None) -> Array:
        """The product with `x`; an object that has no use for `out` may return an array of its own."""
        y = self.operator.apply(x, out)
        if out is None or y is None or y is out:
            return y if out is None else out
        out[...] = y
        return out

    def take_samples(self, samples: Ids) -> AdaptedApply:
        """The object of the samples named."""
        return AdaptedApply(self.operator.take_samples(samples))


def as_operator(operator: Any, function: str, argument: str) -> LinearOperator:
    """Any matrix or operator as a `LinearOperator`."""
    if isinstance(operator, LinearOperator):
        return operator
    if hasattr(operator, "apply") and hasattr(operator, "shape"):
        return AdaptedApply(operator)
    if sp.issparse(operator):
        return CrsMatrix.from_scipy(operator)
    if is_array(operator) and operator.ndim == 2 and not isinstance(operator, Ensemble):
        return AdaptedOperator(Ensemble(operator[..., None]))
    if hasattr(operator, "__matmul__") and len(getattr(operator, "shape", ())) == 2:
        return AdaptedOperator(operator)
    seen = f"an array of shape {tuple(operator.shape)}" if is_array(operator) else kind_of(operator)
    raise TypeError(
        message(
            function,
            argument,
            "be a matrix or a linear operator (shape and @)",
            seen,
            "Give a CrsMatrix, a SciPy sparse matrix, or an object with shape and __matmul__.",
        )
    )
