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

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.steps import apply, symmetric, symmetric_solve

__all__ = ["uncorrelated"]


def uncorrelated(series: Any, S: Array) -> Any:
    """The `Series` with independent noises; `S` has shape (T or 1, *batch or 1s, nx, ny)."""
    T = series.n_steps
    if T == 1:
        return series
    before = slice(0, T - 1)
    H, R, d, F, Q, u = (series.each(name, before if name in "HRd" else slice(1, None)) for name in "HRdFQu")
    S = S[before, ...] if S.shape[0] > 1 else S
    y = series.y[before, ...]
    xp = array_namespace(y, S, R, H)
    missing = xp.isnan(y)
    values = missing.samples if hasattr(missing, "n_samples") else missing
    zero = xp.asarray(0.0, dtype=y.dtype)
    seen = xp.where(missing, zero, y - d)
    if bool(array_namespace(values).any(values)):
        either = xp.logical_or(missing[..., :, None], missing[..., None, :])
        R = xp.where(either, xp.eye(R.shape[-1], dtype=R.dtype), R)
        S = xp.where(missing[..., None, :], zero, S)
    solved, _ = symmetric_solve(R, _wide(xp, S.mT, R), semidefinite=True)
    C = solved.mT
    moved = {"F": F - C @ H, "Q": symmetric(Q - C @ S.mT), "u": u + apply(C, seen)}
    first = {name: series.at(name, 0)[None, ...] for name in moved}
    parts = {name: _with_first(first[name], a, T) for name, a in moved.items()}
    return replace(series, **parts)


def _wide(xp: Any, a: Array, like: Array) -> Array:
    """`a` with the leading axes of `like` where those are longer."""
    lead = tuple(max(m, n) for m, n in zip(a.shape[:-2], like.shape[:-2], strict=True))
    return xp.broadcast_to(a, (*lead, *a.shape[-2:]))


def _with_first(first: Array, rest: Array, T: int) -> Array:
    """The part of all T steps from that of the first, which nothing precedes, and those of the others."""
    xp = array_namespace(first, rest)
    tail = tuple(max(m, n) for m, n in zip(first.shape[1:], rest.shape[1:], strict=True))
    return xp.concat([xp.broadcast_to(first, (1, *tail)), xp.broadcast_to(rest, (T - 1, *tail))], axis=0)
