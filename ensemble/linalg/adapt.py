"""The adapter that lets any object with `@` enter a Krylov method."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ensemble._backend import array_namespace, contiguous, is_array
from ensemble._check import message
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.operators import samples_of, set_of
from ensemble.scalar import Ensemble


class _Wrapped:
    """Any object with ``@`` on Ensembles, or any SciPy LinearOperator, seen as bare-array `apply`."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.shape = tuple(operator.shape)
        self.n_samples = getattr(operator, "n_samples", 1)
        self.sample_set = set_of(operator)
        if getattr(operator, "dtype", None) is not None:
            self.dtype = operator.dtype

    def apply(self, x: Any, out: Any = None) -> Any:
        if hasattr(self.operator, "matvec"):
            y = np.stack([self.operator.matvec(x[:, s].copy()) for s in range(x.shape[1])], axis=1)
        else:
            y = samples_of(self.operator @ Ensemble(x))
            if y.shape[-1] not in (1, x.shape[1]):
                kind, seen = type(self.operator).__name__, f"{y.shape[-1]} samples for {x.shape[1]}"
                advice = "An operator that differs from sample to sample has an attribute n_samples."
                raise ValueError(message(f"{kind} @", "the product", "have the samples of the vector", seen, advice))
            y = array_namespace(x).broadcast_to(y, x.shape)
        if out is None:
            return contiguous(y)
        out[...] = y
        return out


def as_operator(operator: Any, function: str, argument: str) -> Any:
    """An object with ``apply(x, out)`` on bare arrays for whatever the caller handed in."""
    if hasattr(operator, "apply") and hasattr(operator, "shape"):
        return operator
    if sp.issparse(operator):
        return CrsMatrix.from_scipy(operator)
    if is_array(operator) and operator.ndim == 2 and not isinstance(operator, Ensemble):
        return _Wrapped(Ensemble(operator[..., None]))
    if hasattr(operator, "__matmul__") and len(getattr(operator, "shape", ())) == 2:
        return _Wrapped(operator)
    seen = f"an array of shape {tuple(operator.shape)}" if is_array(operator) else f"a {type(operator).__name__}"
    raise TypeError(
        message(
            function,
            argument,
            "be a matrix or a linear operator (shape and @)",
            seen,
            "Give a CrsMatrix, a SciPy sparse matrix, or an object with shape and __matmul__.",
        )
    )
