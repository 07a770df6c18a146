"""One step of the filter and of the smoothers, as matrix formulas over any leading axes and any array library.

The compiled code of the same step is in `_kernels/kalman`: `step.py` lists the functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, backend_of
from ensemble._kernels.kalman.step import known_part, least_pivot, lost_part
from ensemble._typing import Array
from ensemble.scalar import Ensemble

__all__ = [
    "Product",
    "apply",
    "corrected",
    "in_order",
    "innovation_scale",
    "is_singular",
    "ldl_solve",
    "matmul",
    "observed_covariance",
    "observed_part",
    "predict",
    "product",
    "rts_gain",
    "smooth",
    "stacked",
    "symmetric",
    "symmetric_solve",
    "update",
]

LOG_2PI = math.log(2.0 * math.pi)


Product = Callable[[Array, Array], Array]
"""A function of two stacks of matrices that gives their products."""


def matmul(A: Array, B: Array) -> Array:
    """The matrix products ``A B``, by the array library."""
    return A @ B


def product(A: Array, B: Array) -> Array:
    """The matrix products ``A B``, on the CPU summed in order: each has the bits that it has alone.

    Libraries of linear algebra choose an order by the number and the memory of the matrices.
    """
    plain = type(A) is type(B) is np.ndarray and A.dtype.char in "fd" and B.dtype.char in "fd"
    if plain and A.size * B.shape[-1] <= AT_ONCE:
        return np.ascontiguousarray(in_order(A[..., :, :, None] * B[..., None, :, :], -2))
    if not plain and backend_of(*(a.samples if isinstance(a, Ensemble) else a for a in (A, B))) != "numba":
        return A @ B
    if type(A) is type(B) is Ensemble and A.size * B.shape[-1] <= AT_ONCE:
        terms = A.mT[..., :, :, None] * B[..., :, None, :]
        summed = terms.samples.cumsum(axis=-4)[..., -1, :, :, :]
        return Ensemble(np.ascontiguousarray(summed), terms.sample_set)
    total = A[..., :, 0, None] * B[..., 0, None, :]
    for k in range(1, A.shape[-1]):
        total = total + A[..., :, k, None] * B[..., k, None, :]
    return total


AT_ONCE = 1 << 14
"""Products of entries that are worked out before they are summed; more would not stay in the cache."""


def in_order(terms: np.ndarray, axis: int) -> np.ndarray:
    """The sums over a negative axis, term after term, in half the time of `cumsum`."""
    last: tuple[Any, ...] = (..., -1, *(slice(None),) * (-1 - axis))
    summed: np.ndarray = np.add.accumulate(terms, axis=axis)[last]
    return summed


def apply(A: Array, x: Array, times: Product = matmul) -> Array:
    """The matrix-vector products ``A x``."""
    plain = times is product and type(A) is type(x) is np.ndarray and A.size <= AT_ONCE
    if plain and A.dtype.char in "fd" and x.dtype.char in "fd":
        return in_order(A * x[..., None, :], -1)
    return times(A, x[..., None])[..., 0]


def symmetric(P: Array) -> Array:
    """The symmetric part: rounding makes covariances slightly unsymmetric."""
    return 0.5 * (P + P.mT)


def predict(F: Array, Q: Array, u: Array, m: Array, P: Array, times: Product = matmul) -> tuple[Array, Array]:
    """Mean and covariance one transition on."""
    return apply(F, m, times) + u, symmetric(times(times(F, P), F.mT) + Q)


def observed_part(
    H: Array, R: Array, y: Array, m: Array, d: Array, times: Product = matmul
) -> tuple[Array, Array, Array, Array]:
    """`H`, `R` and the innovation without missing entries (NaN in `y`), and the number of entries that are not missing.

    A missing entry's row of `H` and its innovation become zero, its noise the identity: the update ignores it.
    """
    xp = array_namespace(H, y)
    missing = xp.isnan(y)
    zero, one = (xp.asarray(v, dtype=y.dtype) for v in (0.0, 1.0))
    H = xp.where(missing[..., :, None], zero, H)
    either = xp.logical_or(missing[..., :, None], missing[..., None, :])
    R = xp.where(either, xp.eye(R.shape[-1], dtype=R.dtype), R)
    innovation = xp.where(missing, zero, y - apply(H, m, times) - d)
    return H, R, innovation, xp.sum(xp.where(missing, zero, one), axis=-1)


def update(
    H: Array, R: Array, d: Array, y: Array, m: Array, P: Array, times: Product = matmul
) -> tuple[Array, Array, Array]:
    """Mean and covariance given `y`, and the log-density of `y` before it was seen.

    The covariance is ``P - P H' S^-1 H P`` less what Joseph's form finds in its rounding errors, see `corrected`.
    """
    xp = array_namespace(m, P, y)
    H, R, innovation, n_observed = observed_part(H, R, y, m, d, times)
    PHt = times(P, H.mT)
    S = symmetric(times(H, PHt) + R)
    right = xp.concat([PHt.mT, innovation[..., None]], axis=-1)
    white, weighted, gain_t, log_det = ldl_solve(S, right, terms=innovation_scale(H, R, P))
    quadratic = times(white[..., None, :, -1], weighted[..., -1:])[..., 0, 0]
    K = gain_t[..., :-1].mT
    M = symmetric(P - times(white[..., :-1].mT, weighted[..., :-1]))
    log_density = -0.5 * (quadratic + log_det + n_observed * LOG_2PI)
    covariance = corrected(M, H, R, K, times)
    before, variance = xp.linalg.diagonal(P), xp.linalg.diagonal(covariance)
    exact = xp.any(xp.linalg.diagonal(R) <= 0, axis=-1)
    rest = xp.eye(P.shape[-1], dtype=P.dtype) - times(K, H)
    bound = lost_part(_name(P)) * (P.shape[-1] * apply(rest * rest, before, times))
    lost = xp.logical_and(xp.any(variance < bound, axis=-1), xp.logical_not(exact))
    known = xp.logical_and(variance <= known_part(P.shape[-1], _name(P)) * before, exact[..., None])
    known = xp.logical_and(known[..., None], xp.eye(P.shape[-1], dtype=xp.bool))
    covariance = xp.where(known, 0.0 * covariance, covariance)
    log_density = xp.where(lost, log_density + float("nan"), log_density)
    return m + apply(K, innovation, times), covariance, log_density


def _name(a: Array) -> str:
    """The name of an array's type."""
    return str(a.dtype).split(".")[-1]


def corrected(M: Array, H: Array, R: Array, K: Array, times: Product = matmul) -> Array:
    """``M - G K' - K G' + K H G K'`` for the residual ``G = M H' - K R`` of a gain K.

    In exact arithmetic G is zero for the posterior covariance M; where M has rounding errors E, Joseph's form
    ``(I - K H) E (I - K H)'`` remains of them.
    """
    G = times(M, H.mT) - times(K, R)
    G = G - 0.5 * times(K, times(H, G))
    spread = times(G, K.mT)
    return M - (spread + spread.mT)


def innovation_scale(H: Array, R: Array, P: Array) -> Array:
    """The scale of the rounding errors of the diagonal of ``H P H' + R``, whose terms may cancel."""
    xp = array_namespace(H, P)
    spread = xp.linalg.diagonal(P)[..., None, :]
    return P.shape[-1] * xp.sum(H * H * spread, axis=-1) + xp.linalg.diagonal(R)


def observed_covariance(H: Array, R: Array, P: Array) -> Array:
    """``H P H' + R``, with NaN in the rows and columns of entries whose terms cancel below `lost_part`."""
    xp = array_namespace(H, R, P)
    S = symmetric(H @ P @ H.mT + R)
    lost = xp.linalg.diagonal(S) <= lost_part(_name(S)) * innovation_scale(H, R, P)
    lost = xp.logical_and(lost, xp.linalg.diagonal(S) != 0)
    either = xp.logical_or(lost[..., :, None], lost[..., None, :])
    return xp.where(either, S + float("nan"), S)


def symmetric_solve(
    A: Array, B: Array, *, semidefinite: bool = False, scale: Array | None = None, least_pivot: float | None = None
) -> tuple[Array, Array]:
    """``A^-1 B`` and ``log det A`` for symmetric positive definite `A`, by elimination without pivoting.

    With `semidefinite`, a pivot lost in rounding (below ``8 n eps`` of its diagonal entry, or of `scale`) drops its row
    and column: a solution is found wherever `B` lies in the range of `A`. A matrix that is not positive gives NaN; so
    does a pivot below `least_pivot` of its diagonal entry, but where that entry is zero the row and column drop out.
    """
    _, _, solved, log_det = ldl_solve(A, B, semidefinite=semidefinite, scale=scale, least_pivot=least_pivot)
    return solved, log_det


def ldl_solve(
    A: Array, B: Array, *, semidefinite: bool = False, scale: Array | None = None, least_pivot: float | None = None,
    floor: float | None = None, terms: Array | None = None,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """``L^-1 B``, ``D^-1 L^-1 B``, ``A^-1 B`` and ``log det A`` for ``A = L D L'``, see `symmetric_solve`.

    Pivots below `floor` become that. With `terms`, those of the diagonal, pivots that keep no more than `lost_part` of
    them are NaN.
    """
    xp = array_namespace(A, B)
    n = A.shape[-1]
    if type(A) is np.ndarray and floor is not None and A.dtype == np.float64:
        return _floored_solve(A, B, floor)
    zero, one, nan = (xp.asarray(v, dtype=A.dtype) for v in (0.0, 1.0, float("nan")))
    logs: list[Array] = []

    def invert(pivot: Array, j: int) -> Array:
        if least_pivot is not None:
            diagonal = A[..., j, j]
            return xp.where(diagonal <= zero, zero, one / xp.where(pivot <= least_pivot * diagonal, nan, pivot))
        if semidefinite:
            lost = _is_rounding(pivot, A, scale, j)
            return xp.where(lost, zero, one / xp.where(lost, one, pivot))
        least = zero if terms is None else lost_part(_name(A)) * terms[..., j]
        good = xp.logical_and(pivot > least, pivot > zero)  # terms of lost covariances may be negative
        pivot = xp.where(good, pivot, nan) if floor is None else xp.where(pivot < floor, floor * one, pivot)
        logs.append(xp.log(pivot))
        return one / pivot

    reduced, pivots = _eliminate(xp.concat([A, B], axis=-1), invert)
    inverses = xp.stack(pivots, axis=-1)[..., None]
    log_det = sum(logs, start=xp.zeros_like(A[..., 0, 0]))
    white = reduced[..., :, n:]
    solved = _substituted(reduced, white, inverses)
    return white, white * inverses, solved, log_det


def _floored_solve(A: np.ndarray, B: np.ndarray, floor: float) -> tuple[Array, Array, Array, Array]:
    """`ldl_solve` with a floor alone, in fewer calls: diffuse steps solve for each entry that is seen."""
    n = A.shape[-1]
    pivots: list[Array] = []

    def invert(pivot: Array, j: int) -> Array:
        pivots.append(np.maximum(pivot, floor))
        return 1.0 / pivots[-1]

    reduced, inverted = _eliminate(np.concatenate([A, B], axis=-1), invert)
    inverses = np.stack(inverted, axis=-1)[..., None]
    log_det = in_order(np.log(np.stack(pivots, axis=-1)), -1)
    white = reduced[..., :, n:]
    return white, white * inverses, _substituted(reduced, white, inverses), log_det


def _substituted(reduced: Array, white: Array, inverses: Array) -> Array:
    """The solutions from the eliminated rows, their terms subtracted one after the other."""
    n = white.shape[-2]
    if type(white) is np.ndarray:
        solved = np.empty_like(white)
        for j in range(n - 1, -1, -1):
            terms = reduced[..., j, j + 1 : n, None] * solved[..., j + 1 :, :]
            right = np.subtract.reduce(np.concatenate([white[..., j : j + 1, :], terms], axis=-2), axis=-2)
            solved[..., j, :] = right * inverses[..., j, :]
        return solved
    rows: list[Array] = [None] * n
    for j in range(n - 1, -1, -1):
        right = white[..., j, :]
        for i in range(j + 1, n):
            right = right - reduced[..., j, i, None] * rows[i]
        rows[j] = right * inverses[..., j, :]
    return array_namespace(white).stack(rows, axis=-2)


def is_singular(A: Array, scale: Array | None = None) -> Array:
    """Whether elimination of the semidefinite `A` has a pivot lost in rounding, see `symmetric_solve`."""
    xp = array_namespace(A)
    one = xp.asarray(1.0, dtype=A.dtype)
    found = [xp.zeros_like(A[..., 0, 0], dtype=xp.bool)]

    def invert(pivot: Array, j: int) -> Array:
        lost = _is_rounding(pivot, A, scale, j)
        found[0] = xp.logical_or(found[0], lost)
        return one / xp.where(lost, one, pivot)

    _eliminate(A, invert)
    return found[0]


def _eliminate(A: Array, invert: Callable[[Array, int], Array]) -> tuple[Array, list[Array]]:
    """A without what lies below the diagonal; the inverse pivots, which ``invert(pivot, j)`` computes."""
    xp, inverses = array_namespace(A), []
    if type(A) is np.ndarray:
        A = A.copy()
        for j in range(A.shape[-2]):
            inverse = invert(A[..., j, j].copy(), j)
            inverses.append(inverse)
            below = A[..., j + 1 :, :]
            below -= (below[..., :, j] * inverse[..., None])[..., :, None] * A[..., j, None, :]
        return A, inverses
    for j in range(A.shape[-2]):
        inverse = invert(A[..., j, j], j)
        inverses.append(inverse)
        below = A[..., j + 1 :, :]
        below = below - (below[..., :, j] * inverse[..., None])[..., :, None] * A[..., j, None, :]
        A = xp.concat([A[..., : j + 1, :], below], axis=-2)
    return A, inverses


def _is_rounding(pivot: Array, A: Array, scale: Array | None, j: int) -> Array:
    """Whether pivot j is lost in rounding: below ``8 n eps`` of its diagonal entry, or of `scale`."""
    xp = array_namespace(A)
    smallest = 8 * A.shape[-1] * xp.finfo(A.dtype).eps
    return pivot <= smallest * (xp.abs(A[..., j, j]) if scale is None else scale[..., j])


def rts_gain(F: Array, Q: Array, u: Array, m: Array, P: Array) -> tuple[Array, Array, Array]:
    """The element (E, g, L) of the Rauch-Tung-Striebel smoother: ``x[k] | x[k+1], y[:k+1] = N(E x[k+1] + g, L)``.

    NaN where the predicted covariance is nearly singular, see `least_pivot`.
    """
    xp = array_namespace(F, m)
    FP = F @ P
    least = least_pivot(m.shape[-1], _name(m))
    E_t, _ = symmetric_solve(symmetric(FP @ F.mT + Q), FP, least_pivot=least)
    E = E_t.mT
    A = xp.eye(m.shape[-1], dtype=m.dtype) - E @ F
    return E, m - apply(E, apply(F, m) + u), symmetric(A @ P @ A.mT + E @ Q @ E.mT)


def smooth(E: Array, g: Array, L: Array, m: Array, P: Array) -> tuple[Array, Array]:
    """Mean and covariance at step k from those at k + 1 and the element of step k."""
    return apply(E, m) + g, symmetric(E @ P @ E.mT + L)


def stacked(batch: tuple[int, ...], means: list[Array], covariances: list[Array]) -> tuple[Array, Array]:
    """Steps as arrays (T, *batch, nx) and (T, *batch, nx, nx)."""
    xp, nx = array_namespace(*means, *covariances), means[0].shape[-1]
    m = [xp.broadcast_to(a, (*batch, nx)) for a in means]
    P = [xp.broadcast_to(a, (*batch, nx, nx)) for a in covariances]
    return xp.stack(m, axis=0), xp.stack(P, axis=0)
