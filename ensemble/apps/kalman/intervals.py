"""Stretches of time that grow at their end, and states carried through them: chunks with replay, as Array API code.

A chunk of steps is summed up by `extend_filter`, one ordinary filter step after another; `advance_filter` takes the
state before a interval to the one behind it. The CUDA kernels do the same.
"""

from __future__ import annotations

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.elements import Element
from ensemble.apps.kalman.steps import apply, innovation_scale, observed_part, predict, symmetric, symmetric_solve

__all__ = ["advance_filter", "extend_filter"]


def extend_filter(
    earlier: Element,
    F: Array,
    Q: Array,
    u: Array,
    H: Array,
    R: Array,
    d: Array,
    y: Array,
    *,
    semidefinite: bool = False,
) -> Element:
    """The element of a interval of time with one step more at its end: nothing larger than (ny, ny) is solved with."""
    A, b, C, eta, J = earlier
    xp, n = array_namespace(A, F), A.shape[-1]
    b, C = predict(F, Q, u, b, C)
    A = F @ A
    H, R, r, _ = observed_part(H, R, y, b, d)
    G, HC = H @ A, H @ C
    right = xp.concat([HC, G, r[..., None]], axis=-1)
    scale = innovation_scale(H, R, C) if semidefinite else None
    solved, _ = symmetric_solve(symmetric(HC @ H.mT + R), right, semidefinite=semidefinite, scale=scale)
    K = solved[..., :n].mT
    IKH = xp.eye(n, dtype=C.dtype) - K @ H
    return (
        A - K @ G,
        b + apply(K, r),
        symmetric(IKH @ C @ IKH.mT + K @ R @ K.mT),
        eta + apply(G.mT, solved[..., 2 * n]),
        symmetric(J + G.mT @ solved[..., n : 2 * n]),
    )


def advance_filter(element: Element, m: Array, P: Array) -> tuple[Array, Array]:
    """The filter's state behind a interval of time from the one before it."""
    A, b, C, eta, J = element
    xp, n = array_namespace(A, m), A.shape[-1]
    right = xp.concat([P, (m + apply(P, eta))[..., None]], axis=-1)
    solved = xp.linalg.solve(xp.eye(n, dtype=m.dtype) + P @ J, right)
    return apply(A, solved[..., n]) + b, symmetric(A @ solved[..., :n] @ A.mT + C)
