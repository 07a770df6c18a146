"""The smoother of `step.py` for models of any size: products of matrices in register tiles, in `plain_code`.

In a constant model, a gain depends on the filtered covariance alone. Where that equals the one of the step after, entry
by entry, the gain is that of the step after; where the smoothed covariance there equals its successor, too, so does
this one. Both are exact.
"""

from __future__ import annotations

from ensemble._compile.plain_code import Integers, Numbers, behind, inlined, rolled
from ensemble._kernels.kalman.tiles import (
    DESCRIPTOR,
    add_matrices,
    add_row,
    array_of,
    copy,
    copy_entries,
    copy_transposed,
    factor,
    fill,
    is_same,
    mirror,
    negate,
    padded,
    prefetch_entries,
    product,
    scaled_row,
)

__all__ = ["smooth_range", "smoother_workspace_size"]


def smoother_workspace_size(nx: int, lanes: int) -> int:
    """Numbers that `smooth_range` works on, with so many in a register."""
    n = -(-nx // lanes) * lanes
    return 7 * n * n + 3 * n


@rolled
def _solve(low: Numbers, inverses: Numbers, X: Numbers, nx: int, n: int) -> None:
    """``S^-1 X`` in place of X, from the negative triangle of ``S = L D L'``."""
    for i in range(nx):
        tile, row = i // 4 * 4, behind(X, i * n)
        if i == tile:
            product(behind(low, i * n), n, 1, X, row, row, True, n, min(4, nx - i), i, False)
        else:
            product(behind(low, i * n + tile), n, 1, behind(X, tile * n), row, row, True, n, 1, i - tile, False)
    for i in range(nx):
        scaled_row(inverses[i], behind(X, i * n), behind(X, i * n), n)
    for i in range(nx - 2, -1, -1):
        later, row = (i + 1) * n, behind(X, i * n)
        product(behind(low, later + i), 1, n, behind(X, later), row, row, True, n, 1, nx - 1 - i, False)


@inlined
def _gain(
    F: Numbers, Q: Numbers, P: Numbers, least_pivot: float, Ft: Numbers, less: Numbers, Et: Numbers, At: Numbers,
    AP: Numbers, S: Numbers, low: Numbers, inverses: Numbers, nx: int, n: int,
) -> None:  # fmt: skip
    """The transposed gain E', ``(I - E F)'`` and ``(I - E F) P``."""
    copy(P, nx, nx, nx, AP, n)
    mirror(AP, n)
    product(F, nx, 1, AP, Et, Et, False, n, nx, nx, False)
    if n > nx:
        copy(Q, nx, nx, nx, S, n)
    product(Et, n, 1, Ft, S, S if n > nx else Q, True, n, nx, nx, True)
    factor(S, low, inverses, nx, n, least_pivot)
    negate(low, low, nx * n)
    _solve(low, inverses, Et, nx, n)
    fill(At, nx * n)
    for i in range(nx):
        At[i * n + i] = 1.0
    product(less, n, 1, Et, At, At, True, n, nx, nx, False)
    copy_entries(AP, S, nx * n)
    product(At, 1, n, S, AP, AP, False, n, nx, nx, False)


@inlined
def _covariance(
    Q: Numbers, later: Numbers, Et: Numbers, At: Numbers, AP: Numbers, S: Numbers, ES: Numbers, to: Numbers, nx: int,
    n: int,
) -> None:  # fmt: skip
    """``(I - E F) P (I - E F)' + E (Q + P_next) E'``."""
    add_matrices(Q, later, nx, S, n)
    mirror(S, n)
    product(Et, 1, n, S, ES, ES, False, n, nx, nx, False)
    product(ES, n, 1, Et, S, S, False, n, nx, nx, True)
    product(AP, n, 1, At, S, S, True, n, nx, nx, True)
    mirror(S, n)
    copy(S, n, nx, nx, to, nx)


@inlined
def _mean(
    u: Numbers, m: Numbers, later: Numbers, Ft: Numbers, Et: Numbers, gap: Numbers, out: Numbers, to: Numbers, nx: int,
    n: int,
) -> None:  # fmt: skip
    """``m + E (m_next - u - F m)``."""
    for i in range(nx):
        gap[i] = later[i] - u[i]
        out[i] = m[i]
    for k in range(nx):
        add_row(-m[k], behind(Ft, k * n), gap, n)
    for i in range(nx):
        add_row(gap[i], behind(Et, i * n), out, n)
    for i in range(nx):
        to[i] = out[i]


# --- series
@rolled
def _smooth_series(
    places: Integers, s: int, n_steps: int, nx: int, constant: bool, least_pivot: float, with_gains: bool, w: Numbers
) -> None:  # fmt: skip
    """The smoother of series s."""
    n, size = padded(nx), nx * nx
    square = n * n
    Ft, less, Et, At = w, behind(w, square), behind(w, 2 * square), behind(w, 3 * square)
    AP, S, low = behind(w, 4 * square), behind(w, 5 * square), behind(w, 6 * square)
    inverses = behind(w, 7 * square)
    gap, out = behind(inverses, n), behind(inverses, 2 * n)
    fill(w, 7 * square + 3 * n)
    by_F, by_Q, by_u, by_P = places[2], places[DESCRIPTOR + 2], places[2 * DESCRIPTOR + 2], places[4 * DESCRIPTOR + 2]
    by_m = places[3 * DESCRIPTOR + 2]
    last = n_steps - 1
    F, Q, u = (
        behind(array_of(places, 0, s), last * by_F),
        behind(array_of(places, 1, s), last * by_Q),
        behind(array_of(places, 2, s), last * by_u),
    )
    m, P = behind(array_of(places, 3, s), (last - 1) * by_m), behind(array_of(places, 4, s), (last - 1) * by_P)
    mean, covariance = behind(array_of(places, 5, s), last * nx), behind(array_of(places, 6, s), last * size)
    gains = array_of(places, 7 if with_gains else 0, s)
    kept = False
    for k in range(n_steps - 2, -1, -1):
        if k > 0:
            prefetch_entries(P, -by_P, size)
            prefetch_entries(covariance, -2 * size, size)
            if by_F > 0:
                prefetch_entries(F, -by_F, size)
            if by_Q > 0:
                prefetch_entries(Q, -by_Q, size)
        same = constant and k < n_steps - 2 and is_same(P, behind(P, by_P), size)
        if by_F > 0 or k == n_steps - 2:
            copy_transposed(F, nx, nx, nx, Ft, n)
            negate(Ft, less, nx * n)
        if not same:
            _gain(F, Q, P, least_pivot, Ft, less, Et, At, AP, S, low, inverses, nx, n)
        kept = same and (kept or is_same(covariance, behind(covariance, size), size))
        to = behind(covariance, -size)
        if kept:
            copy_entries(covariance, to, size)
        else:
            _covariance(Q, covariance, Et, At, AP, S, low, to, nx, n)
        _mean(u, m, mean, Ft, Et, gap, out, behind(mean, -nx), nx, n)
        if with_gains:
            copy(Et, n, nx, nx, behind(gains, k * size), nx)
        F, Q, u, m, P = behind(F, -by_F), behind(Q, -by_Q), behind(u, -by_u), behind(m, -by_m), behind(P, -by_P)
        mean, covariance = behind(mean, -nx), to


@rolled
def smooth_range(
    places: Integers, n_steps: int, nx: int, constant: bool, least_pivot: float, with_gains: bool, w: Numbers,
    first: int, last: int,
) -> None:  # fmt: skip
    """The smoother of the series from `first` to `last`, which is left out; their last steps are there.

    `places` holds the positions of F, Q, u, the filtered mean and covariance, the smoothed mean and covariance and,
    `with_gains`, the gain's transpose.
    `constant` where F and Q have one step for all. `w` has `smoother_workspace_size` numbers.
    """
    for s in range(first, last):
        _smooth_series(places, s, n_steps, nx, constant, least_pivot, with_gains, w)
