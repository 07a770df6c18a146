"""The adapter that lets any object with `@` enter a Krylov method."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ensemble._backend import array_namespace, contiguous, is_array
from ensemble._check import message
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.operators import samples_of
from ensemble.scalar import Ensemble


class _Wrapped:
    """Any object with ``@`` on Ensembles, or any SciPy LinearOperator, seen as bare-array `apply`."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.shape = tuple(operator.shape)
        self.n_samples = getattr(operator, "n_samples", 1)
        if getattr(operator, "dtype", None) is not None:
            self.dtype = operator.dtype

    def apply(self, x: Any, out: Any = None) -> Any:
        if hasattr(self.operator, "matvec"):
            y = np.stack([self.operator.matvec(x[:, s].copy()) for s in range(x.shape[1])], axis=1)
        else:
            y = samples_of(self.operator @ Ensemble(x))
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
    if isinstance(operator, Ensemble):
        return _Wrapped(operator)
    if is_array(operator) and operator.ndim == 2:
        return _Wrapped(Ensemble(operator[..., None]))
    if hasattr(operator, "__matmul__") and hasattr(operator, "shape"):
        return _Wrapped(operator)
    raise TypeError(
        message(
            function,
            argument,
            "be a matrix or a linear operator (shape and @)",
            f"a {type(operator).__name__}",
            "Give a CrsMatrix, a SciPy sparse matrix, or an object with shape and __matmul__.",
        )
    )
