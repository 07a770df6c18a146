"""The filter of `step.py` for models of any size: products of matrices in register tiles, in `plain_code`.

Every entry is made of the same operations in the same order as where steps are written out, so it has the same bits (a
sum that starts at zero is its first product). Rows of matrices are padded with zeros to whole registers.

The covariances of a constant model converge. Once those of two steps agree to rounding, gains and covariances are kept
until an entry of an observation is missing; see `_has_converged`.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.lanes.tiles import AddProducts, SubtractSquares
from ensemble._compile.plain_code import EPS, LANES, Integers, Numbers, behind, fma, inlined, load, rolled, store
from ensemble._kernels.kalman.step import TWO_PI
from ensemble._kernels.kalman.tiles import (
    DESCRIPTOR,
    array_of,
    copy,
    copy_entries,
    copy_transposed,
    factor,
    fill,
    mirror,
    negate,
    padded,
    prefetch_entries,
    product,
    row_product,
    transposed_rows,
)

__all__ = ["CONVERGED", "filter_range", "filter_workspace_size"]

CONVERGED = 8
"""Rounding errors by which an entry of two successive predicted covariances may differ where they have converged."""

FEW_ROWS = 3
"""Rows up to which a product of rows is made number by number."""

subtract, add_products = SubtractSquares(), AddProducts()


def filter_workspace_size(nx: int, ny: int, lanes: int) -> int:
    """Numbers that `filter_range` works on, with so many in a register."""
    n, p = (-(-count // lanes) * lanes for count in (nx, ny))
    return (5 * n + 7 * ny + p) * n + 4 * p * p + 2 * n + 3 * p


@rolled
def _subtract_squares(A: Numbers, rows: Numbers, weights: Numbers, C: Numbers, count: int, stride: int) -> None:
    """C as the symmetric A less ``sum_i weights[i] rows[i] rows[i]'``."""
    for i in range(0, stride, LANES):
        for j in range(i, stride, LANES):
            subtract(A, C, rows, weights, count, stride, i, j)


@rolled
def _add_products(left: Numbers, right: Numbers, C: Numbers, count: int, stride: int) -> None:
    """Add ``sum_i left[i] right[i]'`` of rows to the symmetric C."""
    for i in range(0, stride, LANES):
        for j in range(i, stride, LANES):
            add_products(C, left, right, count, stride, i, j)


@rolled
def _solve_rows(
    low: Numbers, inverses: Numbers, B: Numbers, white: Numbers, X: Numbers, n: int, p: int, stride: int
) -> None:
    """The rows of ``L^-1 B`` in `white`, and those of ``(L D L')^-1 B`` in X."""
    for c in range(0, stride, LANES):
        for i in range(n):
            z = load(B, i * stride + c)
            for j in range(i):
                z = fma(load(white, j * stride + c), -low[i * p + j], z)
            store(white, i * stride + c, z)
        for i in range(n - 1, -1, -1):
            z = load(white, i * stride + c) * inverses[i]
            for j in range(i + 1, n):
                z = fma(load(X, j * stride + c), -low[j * p + i], z)
            store(X, i * stride + c, z)


@inlined
def _rows_by_rows(
    A: Numbers, inner: int, B: Numbers, columns: Numbers, C: Numbers, base: Numbers, from_base: bool, n: int,
    stride: int, pitch: int, upper: bool,
) -> None:  # fmt: skip
    """C as A B', n rows of each, added to the matrix `base` or, without `from_base`, to zero.

    A has rows of `inner` entries, B of `stride`, C of `pitch`. The transpose of B is written at `columns`, unless rows
    are few.
    """
    if n > FEW_ROWS:
        transposed_rows(B, n, stride, columns, pitch)
        product(A, inner, 1, columns, C, base, from_base, pitch, n, inner, upper)
    else:
        _few_rows_by_rows(A, inner, B, C, base, from_base, n, stride, pitch, upper)


@rolled
def _few_rows_by_rows(
    A: Numbers, inner: int, B: Numbers, C: Numbers, base: Numbers, from_base: bool, n: int, stride: int, pitch: int,
    upper: bool,
) -> None:  # fmt: skip
    for i in range(n):
        for j in range(i if upper else 0, n):
            total = base[i * pitch + j] if from_base else 0.0
            for k in range(inner):
                total = fma(B[j * stride + k], A[i * inner + k], total)
            C[i * pitch + j] = total


@rolled
def _mask_missing(y: Numbers, H: Numbers, R: Numbers, nx: int, ny: int, p: int) -> None:
    """Zero rows of H and unit noise where an observation is missing."""
    for i in range(ny):
        if np.isnan(y[i]):
            for k in range(nx):
                H[i * nx + k] = 0.0
            for k in range(ny):
                R[i * p + k] = R[k * p + i] = 0.0
            R[i * p + i] = 1.0


@rolled
def _has_gaps(y: Numbers, ny: int) -> bool:
    """Whether any entry of an observation is missing."""
    gaps = False
    for i in range(ny):
        gaps = gaps or np.isnan(y[i])
    return gaps


@rolled
def _innovation(d: Numbers, y: Numbers, H: Numbers, m: Numbers, r: Numbers, nx: int, ny: int) -> None:
    """y - d - H m, zero where y is missing."""
    for i in range(ny):
        total = y[i] - d[i]
        for k in range(nx):
            total = fma(-H[i * nx + k], m[k], total)
        r[i] = 0.0 if np.isnan(y[i]) else total


@rolled
def _quadratic_form(low: Numbers, r: Numbers, white: Numbers, inverses: Numbers, n: int, p: int) -> float:
    """``r' S^-1 r``."""
    for i in range(n):
        z = r[i]
        for j in range(i):
            z = fma(-low[i * p + j], white[j], z)
        white[i] = z
    total = white[0] * (white[0] * inverses[0])
    for i in range(1, n):
        total = fma(white[i], white[i] * inverses[i], total)
    return total


@rolled
def _mark_lost_pivots(
    H: Numbers, R: Numbers, P: Numbers, S: Numbers, inverses: Numbers, nx: int, ny: int, n: int, p: int
) -> None:
    """NaN for pivots of S that cancellation has taken digits from, and for their inverses."""
    part = EPS * (5e6 if EPS < 1e-12 else 1e2)  # `lost_part` of step.py
    for i in range(ny):
        total = 0.0
        for k in range(nx):
            total = fma(H[i * nx + k] * H[i * nx + k], P[k * n + k], total)
        if S[i * p + i] <= part * (nx * total + R[i * p + i]):
            S[i * p + i] = inverses[i] = np.nan


@rolled
def _mark_lost_variances(
    H: Numbers, R: Numbers, gain: Numbers, ahead: Numbers, P: Numbers, S: Numbers, terms: Numbers, nx: int, ny: int,
    n: int, p: int,
) -> None:  # fmt: skip
    """NaN in S for variances that rounding of those before, in `ahead`, has taken digits from; zero for known ones.

    `terms` is work space of ny numbers.
    """
    known = (8 * nx * EPS) * (8 * nx * EPS)  # `known_part` of step.py
    part = EPS * (5e6 if EPS < 1e-12 else 1e2)  # `lost_part`
    exact = False
    for i in range(ny):
        exact = exact or R[i * p + i] <= 0.0
    for i in range(ny):
        terms[i] = 0.0
        for b in range(nx):
            terms[i] = fma(H[i * nx + b] * H[i * nx + b], ahead[b * n + b], terms[i])
    for a in range(nx):
        if exact:
            if P[a * n + a] <= known * ahead[a * n + a]:  # rounding of what is known exactly
                P[a * n + a] = 0.0
            continue
        total = ahead[a * n + a]
        for i in range(ny):
            total = fma(gain[i * n + a] * gain[i * n + a], terms[i], total)
        if P[a * n + a] >= 2.0 * part * nx * (1 + ny) * total:  # by Cauchy and Schwarz no less than the bound
            continue
        total = 0.0
        for b in range(nx):
            left = 1.0 if a == b else 0.0
            for i in range(ny):
                left = fma(-gain[i * n + a], H[i * nx + b], left)
            total = fma(left * left, ahead[b * n + b], total)
        if P[a * n + a] < part * (nx * total):
            S[0] = np.nan


# --- a step
@inlined
def _predict(
    F: Numbers, Q: Numbers, P: Numbers, Ft: Numbers, FP: Numbers, ahead: Numbers, nx: int, n: int
) -> None:  # fmt: skip
    """F P F' + Q in `ahead`; `Ft` is the transpose of F."""
    product(F, nx, 1, P, FP, FP, False, n, nx, nx, False)
    if n > nx:
        copy(Q, nx, nx, nx, ahead, n)
    product(FP, n, 1, Ft, ahead, ahead if n > nx else Q, True, n, nx, nx, True)
    mirror(ahead, n)


@inlined
def _load_observation(
    H: Numbers, R: Numbers, y: Numbers, gaps: bool, observed: Numbers, negative: Numbers, noise: Numbers, nx: int,
    ny: int, p: int,
) -> None:  # fmt: skip
    """H and R without what is missing, and -H."""
    copy(H, nx, ny, nx, observed, nx)
    copy(R, ny, ny, ny, noise, p)
    mirror(noise, p)
    if gaps:
        _mask_missing(y, observed, noise, nx, ny, p)
    negate(observed, negative, ny * nx)


@rolled
def _has_converged(ahead: Numbers, before: Numbers, nx: int, n: int) -> bool:
    """Whether each entry of the predicted covariance is that of the step before, but for rounding errors.

    These are counted in units of the deviations: the bound is ``CONVERGED eps sqrt(P[a, a] P[b, b])``.
    """
    bound = CONVERGED * EPS
    for a in range(nx):
        for b in range(nx - 1, a - 1, -1):
            gap = ahead[a * n + b] - before[a * n + b]
            scale = ahead[a * n + a] * ahead[b * n + b]
            if not gap * gap <= bound * bound * scale:
                return False
    return True


# --- series
@rolled
def _filter_series(
    places: Integers, s: int, n_steps: int, nx: int, ny: int, predict_first: bool, constant_observation: bool,
    constant_model: bool, with_gains: bool, w: Numbers,
) -> None:  # fmt: skip
    """The filter of series s. Longer than 60 lines: all parts of a step share the work space and the addresses."""
    n, p = padded(nx), padded(ny)
    size, rows = n * n, ny * n
    P, ahead, before, Ft, FP = w, behind(w, size), behind(w, 2 * size), behind(w, 3 * size), behind(w, 4 * size)
    HP = behind(w, 5 * size)  # of G, gain, X concatenated: K G' + X K' is one product
    white, G, gain, X = behind(HP, rows), behind(HP, 2 * rows), behind(HP, 3 * rows), behind(HP, 4 * rows)
    observed, negative, columns = behind(HP, 5 * rows), behind(HP, 6 * rows), behind(HP, 7 * rows)
    noise = behind(columns, n * p)
    S, low, HG, m = behind(noise, p * p), behind(noise, 2 * p * p), behind(noise, 3 * p * p), behind(noise, 4 * p * p)
    m_ahead, inverses = behind(m, n), behind(m, 2 * n)
    r, whitened = behind(inverses, p), behind(inverses, 2 * p)
    fill(w, (5 * n + 7 * ny + p) * n + 4 * p * p + 2 * n + 3 * p)
    F, Q, H, R = array_of(places, 0, s), array_of(places, 1, s), array_of(places, 2, s), array_of(places, 3, s)
    u, d, y = array_of(places, 4, s), array_of(places, 5, s), array_of(places, 6, s)
    mean, covariance = array_of(places, 9, s), array_of(places, 10, s)
    quadratic, pivots = array_of(places, 11, s), array_of(places, 12, s)
    gains, lower = array_of(places, 13 if with_gains else 0, s), array_of(places, 14 if with_gains else 0, s)
    inverse_pivots = array_of(places, 15 if with_gains else 0, s)
    by_F, by_Q, by_H, by_R = places[2], places[DESCRIPTOR + 2], places[2 * DESCRIPTOR + 2], places[3 * DESCRIPTOR + 2]
    by_u, by_d, by_y = places[4 * DESCRIPTOR + 2], places[5 * DESCRIPTOR + 2], places[6 * DESCRIPTOR + 2]
    by_mean, by_P = places[9 * DESCRIPTOR + 2], places[10 * DESCRIPTOR + 2]
    copy(array_of(places, 7, s), nx, 1, nx, m, n)
    copy(array_of(places, 8, s), nx, nx, nx, P, n)
    mirror(P, n)
    copy_transposed(F, nx, nx, nx, Ft, n)
    converged, complete, is_loaded = False, False, False
    for k in range(n_steps):
        if k + 1 < n_steps:
            if by_F > 0:
                prefetch_entries(F, by_F, nx * nx)
            if by_Q > 0:
                prefetch_entries(Q, by_Q, nx * nx)
            if by_P > 0:
                prefetch_entries(covariance, by_P, nx * nx)
        gaps = _has_gaps(y, ny)
        converged = converged and not gaps
        if k > 0 or predict_first:
            if by_F > 0:
                copy_transposed(F, nx, nx, nx, Ft, n)
            if n > nx:
                copy(u, nx, 1, nx, m_ahead, n)
            row_product(m, 1, Ft, m_ahead, m_ahead if n > nx else u, True, n, n, nx)
            if not converged:
                ahead, before = before, ahead
                _predict(F, Q, P, Ft, FP, ahead, nx, n)
        else:
            copy_entries(P, ahead, size)
            copy_entries(m, m_ahead, n)
        if not converged:
            if gaps or not is_loaded:
                _load_observation(H, R, y, gaps, observed, negative, noise, nx, ny, p)
                is_loaded = constant_observation and not gaps
            product(observed, nx, 1, ahead, HP, HP, False, n, ny, nx, False)
            _rows_by_rows(observed, nx, HP, columns, S, noise, True, ny, n, p, True)
            factor(S, low, inverses, ny, p, -1.0)
            _mark_lost_pivots(observed, noise, ahead, S, inverses, nx, ny, n, p)
            _solve_rows(low, inverses, HP, white, gain, ny, p, n)
        _innovation(d, y, observed, m_ahead, r, nx, ny)
        row_product(r, 1, gain, m, m_ahead, True, n, n, ny)
        quadratic[k] = _quadratic_form(low, r, whitened, inverses, ny, p)
        if converged:
            if by_P > 0:
                copy_entries(behind(covariance, -by_P), covariance, nx * nx)
            for i in range(ny):
                pivots[i] = pivots[i - ny]
        else:
            _subtract_squares(ahead, white, inverses, P, ny, n)
            product(noise, 1, p, gain, G, G, False, n, ny, ny, False)
            product(negative, nx, 1, P, G, G, True, n, ny, nx, False)
            _rows_by_rows(negative, nx, G, columns, HG, HG, False, ny, n, p, False)
            product(HG, p, 1, gain, X, G, True, n, ny, ny, False)
            _add_products(gain, G, P, 2 * ny, n)
            _mark_lost_variances(observed, noise, gain, ahead, P, S, whitened, nx, ny, n, p)
            if by_P > 0:
                copy(P, n, nx, nx, covariance, nx)
            for i in range(ny):
                pivots[i] = 1.0 if np.isnan(y[i]) else S[i * p + i] * TWO_PI
            pivots[0] = S[0] if np.isnan(S[0]) else pivots[0]
            converged = constant_model and complete and not gaps and k > 1 and _has_converged(ahead, before, nx, n)
            complete = constant_model and not gaps
        copy(m, nx, 1, nx, mean, n)
        if with_gains:
            copy(gain, n, ny, nx, gains, nx)
            copy(low, p, ny, ny, lower, ny)
            copy_entries(inverses, inverse_pivots, ny)
            gains, lower, inverse_pivots = behind(gains, ny * nx), behind(lower, ny * ny), behind(inverse_pivots, ny)
        F, Q, H, R, u, d = (
            behind(F, by_F), behind(Q, by_Q), behind(H, by_H), behind(R, by_R), behind(u, by_u), behind(d, by_d)
        )  # fmt: skip
        y, mean, covariance, pivots = (
            behind(y, by_y),
            behind(mean, by_mean),
            behind(covariance, by_P),
            behind(pivots, ny),
        )
    if by_P == 0:
        copy(P, n, nx, nx, covariance, nx)


@rolled
def filter_range(
    places: Integers, n_steps: int, nx: int, ny: int, predict_first: bool, constant_observation: bool,
    constant_model: bool, with_gains: bool, w: Numbers, first: int, last: int,
) -> None:  # fmt: skip
    """The filter of the series from `first` to `last`, which is left out.

    `places` holds the positions of F, Q, H, R, u, d, y, m0, P0, the mean, the covariance, the quadratic form, the
    pivots and, `with_gains`, the gain's transpose, the lower triangle of ``S = L D L'`` and the inverse pivots.
    `constant_observation` where H and R have one step for all, `constant_model` where F and Q have, too. Means and
    covariances with one step for all keep those of the last. `w` has `filter_workspace_size` numbers.
    """
    for s in range(first, last):
        _filter_series(
            places, s, n_steps, nx, ny, predict_first, constant_observation, constant_model, with_gains, w
        )  # fmt: skip
