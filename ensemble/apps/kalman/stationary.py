"""The stationary distribution of the state of a stable linear model."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._check import require, samples_text
from ensemble._typing import Array
from ensemble.apps.kalman.array.covariances import check_finite, checked_covariance, matrices_last
from ensemble.apps.kalman.array.steps import symmetric
from ensemble.apps.kalman.interop.arguments import real_array
from ensemble.scalar import Ensemble

__all__ = ["stationary_covariance", "stationary_moments"]

DOUBLINGS = 64
"""More than any stable matrix in float64 needs: its powers of 2^54 are zero."""


def stationary_covariance(F: Any, Q: Any) -> Array:
    """Compute the covariance ``P = F P F' + Q`` that a stable model keeps.

    The sum ``Q + F Q F' + F^2 Q F^2' + ...`` by doubling: each step squares F and adds as many terms again [1]_.

    Parameters
    ----------
    F : array or Ensemble, shape (*batch, nx, nx)
        Transition matrices, every eigenvalue of a modulus below 1.
    Q : array or Ensemble, shape (*batch, nx, nx)
        Covariances of the process noise.

    Returns
    -------
    array or Ensemble, shape (*batch, nx, nx)

    Raises
    ------
    TypeError
        If an argument is no array of real numbers.
    ValueError
        If `F` has an eigenvalue of modulus 1 or above, `Q` is no covariance, or shapes do not fit.

    References
    ----------
    .. [1] R. A. Smith, Matrix equation XA + BX = C, SIAM J. Appl. Math. 16 (1968), 198-201.

    Examples
    --------
    >>> stationary_covariance([[0.5]], [[0.75]]).tolist()
    [[1.0]]
    """
    F, Q = _checked(F, Q, "stationary_covariance")
    return _doubled(F, Q)


def stationary_moments(F: Any, Q: Any, u: Any, function: str) -> tuple[Array, Array]:
    """Mean and covariance of the stationary distribution."""
    F, Q = _checked(F, Q, function)
    xp = array_namespace(F, Q)
    n = F.shape[-1]
    if u is None:
        return xp.zeros((n,), dtype=F.dtype), _doubled(F, Q)
    u = real_array(u, "u", function)
    u = _constant(u, 1, "u", function)
    require(tuple(u.shape[-1:]) == (n,), function, "u", f"end in shape ({n},)", f"shape {tuple(u.shape)}")
    xp = array_namespace(F, u)
    dtype = xp.result_type(F.dtype, u.dtype)
    A = xp.eye(n, dtype=dtype) - xp.astype(xp.asarray(F), dtype)
    return xp.linalg.solve(A, xp.astype(xp.asarray(u), dtype)[..., None])[..., 0], _doubled(F, Q)


def _constant(a: Array, tail: int, name: str, function: str) -> Array:
    """A part without its axis of time."""
    if len(a.shape) <= tail:
        return a
    steps = a.shape[-tail - 1]
    advice = "A model that varies in time has no stationary distribution."
    require(steps == 1, function, name, "be constant in time", f"{steps} steps", advice)
    return a[..., 0, :] if tail == 1 else a[..., 0, :, :]


def _checked(F: Any, Q: Any, function: str) -> tuple[Array, Array]:
    F, Q = real_array(F, "F", function), real_array(Q, "Q", function)
    for a, name in ((F, "F"), (Q, "Q")):
        square = len(a.shape) >= 2 and a.shape[-1] == a.shape[-2] == F.shape[-1] > 0
        require(square, function, name, "be square matrices of one size", f"shape {tuple(a.shape)}")
        check_finite(a, name, function)
    Q = checked_covariance(Q, "Q", function)
    if function != "stationary_covariance":
        F, Q = _constant(F, 2, "F", function), _constant(Q, 2, "Q", function)
    _check_stable(F, function)
    return F, Q


def _check_stable(F: Array, function: str) -> None:
    values = to_numpy(matrices_last(F))
    found = np.linalg.eigvals(values if values.dtype == np.float32 else values.astype(np.float64))
    size = np.abs(found).max(axis=-1)
    unstable = size >= 1.0
    if not unstable.any():
        return
    worst = found.reshape(-1, found.shape[-1])[int(np.argmax(size))]
    largest = complex(worst[int(np.argmax(np.abs(worst)))])
    shown = f"{largest.real:.6g}" if largest.imag == 0.0 else f"{largest:.6g} (modulus {abs(largest):.6g})"
    where = ""
    if isinstance(F, Ensemble):
        some = unstable.reshape(len(unstable), -1).any(axis=1)
        where = f" in {samples_text(np.flatnonzero(some), of=some.size)}"
    seen = f"the eigenvalue {shown}{where}"
    advice = "A state that is not stationary needs a prior of its own, or diffuse=."
    require(False, function, "F", "have eigenvalues of a modulus below 1", seen, advice)


def _doubled(F: Array, Q: Array) -> Array:
    """The sum over powers of F; each sample stops when its own terms no longer count."""
    xp = array_namespace(F, Q)
    dtype = xp.result_type(F.dtype, Q.dtype)
    A, P = xp.astype(xp.asarray(F), dtype), symmetric(xp.astype(xp.asarray(Q), dtype))
    for _ in range(DOUBLINGS):
        more = A @ P @ A.mT
        size, more_size = (xp.max(xp.abs(a), axis=(-2, -1), keepdims=True) for a in (P, more))
        counts = more_size > 0.25 * xp.finfo(dtype).eps * size
        P = xp.where(counts, symmetric(P + more), P + 0.0 * more)
        A = A @ A
        values = counts.samples if isinstance(counts, Ensemble) else counts
        if not bool(array_namespace(values).any(values)):
            break
    return P
