"""Scans combine intervals of time by ``(I + C J)^-1``, which wide priors and sharp observations leave few digits.

Each state of a scan is compared with what one step of the recursion makes of its neighbour. Where they differ, the
series goes by the recursion.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ensemble._backend import array_namespace
from ensemble._typing import Array

__all__ = ["differ", "solve"]


def differ(state: Sequence[Array], other: Sequence[Array], R: Array, before: Array) -> Array:
    """Where two computations (m, P) of a state differ by more than rounding: 1e-6 deviations, in float32 1e-2.

    `before` is its covariance before an observation with noise R: what an exact one leaves of that is rounding.
    """
    (m, P), (again_m, again_P) = state, other
    xp = array_namespace(m, P, again_m, again_P)
    part = 1e-6 if xp.finfo(P.dtype).bits >= 64 else 1e-2
    rounding = 64 * m.shape[-1] * float(xp.finfo(P.dtype).eps)
    variance, again = xp.linalg.diagonal(P), xp.linalg.diagonal(again_P)
    largest = xp.where(variance > again, variance, again)
    exact = xp.any(xp.linalg.diagonal(R) <= 0, axis=-1)[..., None]
    left = rounding * xp.where(exact, xp.linalg.diagonal(before), 0.0 * largest)
    spread = xp.sqrt(xp.where(largest + left > 0, largest + left, 0.0 * left))
    means = xp.abs(m - again_m) <= part * spread + rounding * (xp.abs(m) + xp.abs(again_m))
    variances = xp.abs(variance - again) <= part * largest + left
    return xp.logical_not(xp.all(xp.logical_and(means, variances), axis=-1))


def solve(A: Array, B: Array) -> Array:
    """Solve a stack of linear systems; singular ones give NaN and leave the others as they are."""
    xp: Any = array_namespace(A, B)
    try:
        with warnings.catch_warnings():  # an Ensemble warns of singular samples, and has NaN for them already
            warnings.filterwarnings("error", "solve: ", RuntimeWarning)
            return xp.linalg.solve(A, B)
    except (RuntimeError, RuntimeWarning, ValueError):  # LinAlgError of PyTorch, of an Ensemble, of NumPy
        eye = xp.eye(A.shape[-1], dtype=A.dtype)
        finite = xp.all(xp.all(xp.isfinite(A), axis=-1), axis=-1)[..., None, None]
        sign, _ = xp.linalg.slogdet(xp.where(finite, A, eye))
        known = xp.logical_and(finite, sign[..., None, None] != 0)
        return xp.linalg.solve(xp.where(known, A, eye), xp.where(known, B, B + float("nan")))
