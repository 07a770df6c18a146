"""Mean of a function of normal variables by Gauss-Hermite quadrature (Gaurav and Wojtkiewicz 2011, example 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._keywords import explains_calls
from ensemble._typing import DType
from ensemble.quadrature import Integrand, gauss

__all__ = ["gauss_hermite"]


@explains_calls("gauss_hermite")
def gauss_hermite(
    dim: int,
    n_nodes: int = 4,
    f: Callable[..., Any] | None = None,
    *,
    dtype: DType = np.float64,
    backend: str = "numpy",
) -> Any:
    """Compute the mean of ``f(q)`` for `dim` standard normal variables by ``n_nodes**dim`` points ([1]_, eq. 10).

    Parameters
    ----------
    dim, n_nodes : int
    f : callable, optional
        As of `ensemble.quadrature.gauss`; the sum of squares, of mean `dim`, where it is None (eq. 16).
    dtype : float64 or float32
    backend : {"numpy", "cupy"}

    References
    ----------
    .. [1] Gaurav, Wojtkiewicz (2011), Scientific Programming 19, 199-212, section 3.5.

    Examples
    --------
    >>> round(float(gauss_hermite(6)), 12)
    6.0
    """
    return gauss(SQUARED_NORM if f is None else f, dim, n_nodes, dtype=dtype, backend=backend)


def squared_norm(q: Any, xp: Any) -> Any:
    """``q^T q``."""
    total = q[0] * q[0]
    for x in q[1:]:
        total = total + x * x
    return total


SQUARED_NORM = Integrand(squared_norm)
