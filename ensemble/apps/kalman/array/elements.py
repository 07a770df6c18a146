"""Elements and associative operations that turn filtering and smoothing into prefix sums.

S. Särkkä, Á. F. García-Fernández, IEEE Trans. Automat. Control 66 (2021), 299-306, lemmas 7 and 8.
"""

from __future__ import annotations

from typing import Any

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.array.agreement import solve
from ensemble.apps.kalman.array.steps import (
    apply,
    innovation_scale,
    is_singular,
    observed_part,
    predict,
    rts_gain,
    symmetric,
    symmetric_solve,
    update,
)
from ensemble.apps.kalman.series import Series

__all__ = [
    "Element",
    "advance_filter",
    "combine_filter",
    "combine_smoother",
    "extend_filter",
    "filter_elements",
    "filter_identity",
    "has_no_elements",
    "smoother_elements",
    "smoother_identity",
]

Element = tuple[Array, ...]


def filter_elements(series: Series) -> Element:
    """Make the scan's element (A, b, C, eta, J) of every step, each array (T, *batch, ...).

    ``x[k] | x[k-1], y[k] = N(A x[k-1] + b, C)`` and ``p(y[k] | x[k-1])`` is proportional to
    ``exp(eta' x - x' J x / 2)``. The first element holds the prior. Where ``H Q H' + R`` is singular an observation
    can fix the state before it exactly, which no J expresses: see `has_no_elements`.
    """
    xp = array_namespace(series.y, series.F, series.m0)
    T, batch, nx = series.n_steps, series.batch, series.F.shape[-1]
    F, Q, u, H, R, d = (series.each(name, slice(1, None)) for name in ("F", "Q", "u", "H", "R", "d"))
    m, P = series.m0, series.P0
    if series.predict_first:
        m, P = predict(series.at("F", 0), series.at("Q", 0), series.at("u", 0), m, P)
    b, C, _ = update(series.at("H", 0), series.at("R", 0), series.at("d", 0), series.y[0, ...], m, P)
    matrix, vector = (*batch, nx, nx), (*batch, nx)
    none = [xp.zeros((1, *shape), dtype=b.dtype) for shape in (matrix, vector)]
    first = (none[0], xp.broadcast_to(b, vector)[None, ...], xp.broadcast_to(C, matrix)[None, ...], none[1], none[0])
    if T == 1:
        return first
    H, R, r, _ = observed_part(H, R, series.y[1:, ...], u, d)
    HQ = H @ Q
    HF = H @ F
    solved, _ = symmetric_solve(
        symmetric(HQ @ H.mT + R), xp.concat([xp.broadcast_to(HQ, HF.shape), HF], axis=-1) if HQ.shape != HF.shape
        else xp.concat([HQ, HF], axis=-1),
        semidefinite=True, scale=innovation_scale(H, R, Q),
    )  # fmt: skip
    K, W = solved[..., :nx].mT, solved[..., nx:].mT
    eye = xp.eye(nx, dtype=b.dtype)
    IKH = eye - K @ H
    rest = (
        IKH @ F,
        u + apply(K, r),
        symmetric(IKH @ Q @ IKH.mT + K @ R @ K.mT),
        apply(W, r),
        symmetric(W @ HF),
    )
    shapes = (matrix, vector, matrix, vector, matrix)
    return tuple(
        xp.concat([x, xp.broadcast_to(z, (T - 1, *shape))], axis=0)
        for x, z, shape in zip(first, rest, shapes, strict=True)
    )


def has_no_elements(series: Series) -> Array:
    """Tell which series have a singular H Q H' + R at some step after the first: these have no scan. Shape batch."""
    xp = array_namespace(series.y, series.F, series.m0)
    if series.n_steps == 1:
        return xp.zeros(series.batch, dtype=xp.bool)
    Q, H, R, d = (series.each(name, slice(1, None)) for name in ("Q", "H", "R", "d"))
    origin = xp.zeros_like(series.each("u", slice(1, None)))
    H, R, _, _ = observed_part(H, R, series.y[1:, ...], origin, d)
    singular = is_singular(symmetric(H @ Q @ H.mT + R), innovation_scale(H, R, Q))
    return xp.broadcast_to(xp.any(singular, axis=0), series.batch)


def combine_filter(earlier: Element, later: Element) -> Element:
    """Combine the filter elements of two intervals of time, one after the other, by one factorisation of I + C J."""
    Ai, bi, Ci, ei, Ji = earlier
    Aj, bj, Cj, ej, Jj = later
    xp = array_namespace(Ai, Aj)
    n = Ai.shape[-1]
    right = xp.concat([Ai, Ci, (bi + apply(Ci, ej))[..., None]], axis=-1)
    solved = solve(xp.eye(n, dtype=Ai.dtype) + Ci @ Jj, right)
    XA, XC, xb = solved[..., :n], solved[..., n : 2 * n], solved[..., 2 * n]
    return (
        Aj @ XA,
        apply(Aj, xb) + bj,
        symmetric(Aj @ XC @ Aj.mT + Cj),
        apply(XA.mT, ej - apply(Jj, bi)) + ei,
        symmetric(XA.mT @ (Jj @ Ai) + Ji),
    )


def filter_identity(xp: Any, nx: int, dtype: Any) -> Element:
    """The element that changes nothing: A the identity, all else zero."""
    zeros = xp.zeros((nx, nx), dtype=dtype)
    return xp.eye(nx, dtype=dtype), zeros[0, ...], zeros, zeros[0, ...], zeros


def smoother_elements(series: Series, m: Array, P: Array) -> Element:
    """Make the smoother's element (E, g, L) of every step from the filter's moments; the last is (0, m, P) there."""
    xp = array_namespace(m, P)
    last = (xp.zeros_like(P[-1:, ...]), m[-1:, ...], P[-1:, ...])
    if m.shape[0] == 1:
        return last
    F, Q, u = (series.each(name, slice(1, None)) for name in ("F", "Q", "u"))
    rest = rts_gain(F, Q, u, m[:-1, ...], P[:-1, ...])
    return tuple(xp.concat([x, z], axis=0) for x, z in zip(rest, last, strict=True))


def combine_smoother(earlier: Element, later: Element) -> Element:
    """Combine the smoother elements of two intervals of time, one after the other."""
    Ei, gi, Li = earlier
    Ej, gj, Lj = later
    return Ei @ Ej, apply(Ei, gj) + gi, symmetric(Ei @ Lj @ Ei.mT + Li)


def smoother_identity(xp: Any, nx: int, dtype: Any) -> Element:
    """The element that changes nothing."""
    zeros = xp.zeros((nx, nx), dtype=dtype)
    return xp.eye(nx, dtype=dtype), zeros[0, ...], zeros


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
    """The element of an interval of time with one step more at its end: nothing larger than (ny, ny) is solved with."""
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
    """Take the filter's state over an interval of time, by its element."""
    A, b, C, eta, J = element
    xp, n = array_namespace(A, m), A.shape[-1]
    right = xp.concat([P, (m + apply(P, eta))[..., None]], axis=-1)
    solved = solve(xp.eye(n, dtype=m.dtype) + P @ J, right)
    return apply(A, solved[..., n]) + b, symmetric(A @ solved[..., :n] @ A.mT + C)
