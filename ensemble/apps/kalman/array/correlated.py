"""Process and observation noise that are correlated: the equivalent model whose noises are independent.

With ``S[k] = cov(q[k+1], r[k])`` the part of q[k+1] that r[k] explains is ``C r[k]``, ``C = S[k] R[k]^-1``, and
``r[k] = y[k] - H[k] x[k] - d[k]`` is a function of the state and of what is seen [1]_:

    x[k+1] = (F[k+1] - C H[k]) x[k] + u[k+1] + C (y[k] - d[k]) + q*[k+1],    q*[k+1] ~ N(0, Q[k+1] - C S[k]'),

with q* independent of r. Entries of y[k] that are missing explain nothing.

References
----------
.. [1] B. D. O. Anderson, J. B. Moore, Optimal Filtering, Prentice-Hall 1979, section 5.5.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.array.steps import Product, apply, matmul, symmetric, symmetric_solve
from ensemble.scalar import Ensemble

__all__ = ["explained", "explanation", "joint_covariance", "uncorrelated"]


def uncorrelated(series: Any, S: Array) -> Any:
    """Replace F, Q, u so that noises correlated by `S`, (T or 1, *batch or 1s, nx, ny), become independent."""
    T = series.n_steps
    if T == 1:
        return series
    before = slice(0, T - 1)
    H, R, d = (series.each(name, before) for name in "HRd")
    F, Q, u = (series.each(name, slice(1, None)) for name in "FQu")
    S = S[before, ...] if S.shape[0] > 1 else S
    moved = dict(zip("FQu", explained(F, Q, u, H, R, d, S, series.y[before, ...]), strict=True))
    return replace(series, **{name: _with_first(series.at(name, 0)[None, ...], a, T) for name, a in moved.items()})


def explained(
    F: Array, Q: Array, u: Array, H: Array, R: Array, d: Array, S: Array, y: Array
) -> tuple[Array, Array, Array]:
    """Return F, Q, u of the transition out of a step whose `y` tells a part of its noise, by their covariance `S`."""
    xp = array_namespace(y, S, R, H)
    missing = xp.isnan(y)
    F, Q, C = explanation(F, Q, H, R, S, missing)
    return F, Q, u + apply(C, xp.where(missing, xp.asarray(0.0, dtype=y.dtype), y - d))


def explanation(
    F: Array, Q: Array, H: Array, R: Array, S: Array, missing: Array, times: Product = matmul
) -> tuple[Array, Array, Array]:
    """Return F - C H, Q - C S' and C = S R^-1, without the part of the noise that the seen entries tell."""
    xp = array_namespace(missing, S, R, H)
    values = missing.samples if isinstance(missing, Ensemble) else missing
    if bool(array_namespace(values).any(values)):
        either = xp.logical_or(missing[..., :, None], missing[..., None, :])
        R = xp.where(either, xp.eye(R.shape[-1], dtype=R.dtype), R)
        S = xp.where(missing[..., None, :], xp.asarray(0.0, dtype=S.dtype), S)
    solved, _ = symmetric_solve(_wide(xp, R, S), _wide(xp, S.mT, R), semidefinite=True)
    C = solved.mT
    return F - times(C, H), symmetric(Q - times(C, S.mT)), C


def joint_covariance(Q: Array, S: Array, R: Array) -> Array:
    """Build the matrices ``[[Q, S], [S', R]]``."""
    xp = array_namespace(next((a for a in (Q, S, R) if isinstance(a, Ensemble)), Q))
    lead = np.broadcast_shapes(*(tuple(a.shape[:-2]) for a in (Q, S, R)))
    Q, S, R = (xp.broadcast_to(xp.asarray(a), (*lead, *a.shape[-2:])) for a in (Q, S, R))
    return xp.concat([xp.concat([Q, S], axis=-1), xp.concat([S.mT, R], axis=-1)], axis=-2)


def _wide(xp: Any, a: Array, like: Array) -> Array:
    """Broadcast `a` to the leading axes of `like` where those are longer."""
    lead = tuple(max(m, n) for m, n in zip(a.shape[:-2], like.shape[:-2], strict=True))
    return xp.broadcast_to(a, (*lead, *a.shape[-2:]))


def _with_first(first: Array, rest: Array, T: int) -> Array:
    """Join an array of the first step, whose transition nothing precedes, with those of the T - 1 others."""
    xp = array_namespace(first, rest)
    tail = tuple(max(m, n) for m, n in zip(first.shape[1:], rest.shape[1:], strict=True))
    return xp.concat([xp.broadcast_to(first, (1, *tail)), xp.broadcast_to(rest, (T - 1, *tail))], axis=0)
