"""The filter and the smoother on square roots of covariances, as loops over matrices of any size.

Longer than 400 lines: the functions of one group, which are one compilation unit.

A covariance P is carried as a matrix W with ``W' W = P``. Orthogonal transformations of the rows of W leave P as it is;
their rounding errors are in proportion to deviations, not to variances, so that ranks are determined down to a
condition number of P near 1 / eps² [1]_.

The smoother is that of Rauch, Tung and Striebel with the gain from the triangularisation

    [ W F'   W ]      [ A  B ]
    [ W_Q    0 ]  ->  [ 0  C ],   E' = A^-1 B,   P_s = C' C + E P_next E'

of the filtered factor W. The columns of the left half are taken in the order of what is left of each relative to the
rounding of its terms (`RANK`); where nothing but rounding is left, the components of the next state that remain follow
from those taken, and E is zero for them.

The loops are written in `plain_code`, on one array `w` of float64: a matrix is the offset of its first entry, rows one
after another, and `free` is the offset from which on a function may use `w` for itself. They are compiled once, for all
sizes and both types; the arithmetic of float32 models is in float64, and only `tiny` is that of their type.

.. [1] P. Park, T. Kailath, New square-root algorithms for Kalman filtering and smoothing: IEEE Trans. Automat. Control
   40 (1995), 895-899, and Int. J. Control 62 (1995), 1043-1060.
"""

from __future__ import annotations

import math

import numpy as np

from ensemble._compile.numba import compiled_serial
from ensemble._compile.plain_code import Integers, Numbers, entry, plain
from ensemble._kernels.kalman.step import TWO_PI

__all__ = ["SquareRootRecursion"]

TIME_VARYING = 7
"""Parts that may change from step to step, in front of the two of the start: F, Q, H, R, u, d, y."""

STRIDES, RECORDS = TIME_VARYING + 2, 2 * TIME_VARYING + 2
"""Where in `places`, after the offsets of the parts, their steps in time stand, and the offset of the records.

Behind it are that of the work space, and whether P0 is given by a factor.
"""

ROUNDING = 8 * 2.220446049250313e-16
"""The rounding of the arithmetic, which is in float64, per state."""


# --- matrices
@plain
def _fill(w: Numbers, a: int, count: int, value: float) -> None:
    for i in range(a, a + count):
        w[i] = value


@plain
def _copy(w: Numbers, a: int, a_stride: int, c: int, c_stride: int, rows: int, columns: int) -> None:
    """A matrix to another place; strides are those of rows."""
    for i in range(rows):
        for j in range(columns):
            w[c + i * c_stride + j] = w[a + i * a_stride + j]


@plain
def _transpose(w: Numbers, a: int, rows: int, columns: int, c: int) -> None:
    for i in range(rows):
        for j in range(columns):
            w[c + j * rows + i] = w[a + i * columns + j]


@plain
def _product(w: Numbers, a: int, b: int, c: int, c_stride: int, rows: int, inner: int, columns: int) -> None:
    """A B, written to C."""
    for i in range(rows):
        to = c + i * c_stride
        for j in range(columns):
            w[to + j] = 0.0
        for k in range(inner):
            x, row = w[a + i * inner + k], b + k * columns
            if x != 0.0:
                for j in range(columns):
                    w[to + j] += x * w[row + j]


@plain
def _gram(w: Numbers, W: int, rows: int, n: int, P: int) -> None:
    """W' W, written to `P`."""
    _fill(w, P, n * n, 0.0)
    for r in range(rows):
        row = W + r * n
        for i in range(n):
            x = w[row + i]
            if x != 0.0:
                for j in range(i, n):
                    w[P + i * n + j] += x * w[row + j]
    for i in range(n):
        for j in range(i):
            w[P + i * n + j] = w[P + j * n + i]


@plain
def _semidefinite_factor(w: Numbers, P: int, n: int, tiny: float, W: int, stride: int, free: int) -> None:
    """W with ``W' W = P``, semidefinite and read above the diagonal, by elimination with diagonal pivoting.

    Pivots are taken in the order of what is left relative to the diagonal of P; below `tiny` of it they are rounding.
    """
    rest, taken = free, free + n * n
    _fill(w, taken, n, 0.0)
    for i in range(n):
        for j in range(n):
            w[W + i * stride + j] = 0.0
            w[rest + i * n + j] = w[P + min(i, j) * n + max(i, j)]
    for r in range(n):
        best, j = tiny, -1
        for i in range(n):
            scale, pivot = w[P + i * n + i], w[rest + i * n + i]
            if w[taken + i] == 0.0 and scale > 0.0 and pivot > best * scale:
                best, j = pivot / scale, i
        if j < 0:
            break
        row, root = W + r * stride, math.sqrt(w[rest + j * n + j])
        w[taken + j] = 1.0
        w[row + j] = root
        for i in range(n):
            if w[taken + i] == 0.0:
                w[row + i] = w[rest + j * n + i] / root
        for i in range(n):
            if w[taken + i] == 0.0:
                for c in range(n):
                    w[rest + i * n + c] -= w[row + i] * w[row + c]


@plain
def _triangularise(
    w: Numbers, M: int, rows: int, columns: int, n: int, scale: int, tiny: float, order: int, free: int
) -> int:
    """Householder's triangularisation of the first `n` columns of M, in place; the number of columns taken.

    Row r is that of column ``order[r]``: of what is left of each column, the largest relative to `scale`. Columns of
    which nothing but `tiny` of `scale` is left are not taken.
    """
    left, taken, sums = free, free + n, free + 2 * n
    _fill(w, taken, n, 0.0)
    rank = 0
    while rank < n and rank < rows:
        _fill(w, left, n, 0.0)
        for i in range(rank, rows):
            for c in range(n):
                w[left + c] += w[M + i * columns + c] * w[M + i * columns + c]
        best, j = tiny, -1
        for c in range(n):
            size = math.sqrt(w[left + c])
            if w[taken + c] == 0.0 and w[scale + c] > 0.0 and size > best * w[scale + c]:
                best, j = size / w[scale + c], c
        if j < 0:
            break
        w[taken + j] = 1.0
        w[order + rank] = j
        top, norm = M + rank * columns, math.sqrt(w[left + j])
        diagonal = -norm if w[top + j] > 0.0 else norm
        head = w[top + j] - diagonal
        _copy(w, top, 0, sums, 0, 1, columns)
        for i in range(rank + 1, rows):
            row = M + i * columns
            w[row + j] /= head
            v = w[row + j]
            if v != 0.0:
                for c in range(columns):
                    w[sums + c] += v * w[row + c]
        factor = -head / diagonal
        for c in range(columns):
            w[sums + c] *= factor
            w[top + c] -= w[sums + c]
        for i in range(rank + 1, rows):
            row = M + i * columns
            v = w[row + j]
            if v != 0.0:
                for c in range(columns):
                    w[row + c] -= v * w[sums + c]
                w[row + j] = 0.0
        w[top + j] = diagonal
        rank += 1
    return rank


@plain
def _reduce_rows(w: Numbers, M: int, rows: int, n: int, free: int) -> None:
    """The rows of M transformed to as many as it has columns, in its place."""
    _fill(w, free, n, 1.0)
    _triangularise(w, M, rows, n, n, free, 0.0, free + n, free + 2 * n)


@plain
def _add_deviations(w: Numbers, W: int, rows: int, n: int, out: int, free: int) -> None:
    """The norms of the columns of W, added to `out`."""
    _fill(w, free, n, 0.0)
    for i in range(rows):
        for j in range(n):
            w[free + j] += w[W + i * n + j] * w[W + i * n + j]
    for j in range(n):
        w[out + j] += math.sqrt(w[free + j])


# --- steps
@plain
def _record_fields(nx: int, ny: int) -> tuple[int, int, int, int, int, int, int, int, int, int]:
    """Where the fields of a step's record start, and its length.

    Mean, covariance, quadratic, pivots; factor, deviations before the observation, step of the mean by it; and, with
    ``S = A' A``, ``A'^-1 r``, ``A'^-1 H``, ``A K'``.
    """
    quadratic = nx + nx * nx
    factor = quadratic + 1 + ny
    before = factor + nx * nx
    mean_step, white = before + nx, before + 2 * nx
    seen = white + ny
    gain = seen + ny * nx
    return nx, quadratic, quadratic + 1, factor, before, mean_step, white, seen, gain, gain + ny * nx


@plain
def _update(
    w: Numbers, H: int, R: int, d: int, y: int, m: int, W: int, nx: int, ny: int, tiny: float, record: int, free: int
) -> None:
    """The factor given `y`, in place, and the mean; what `_record_fields` names, to the record.

    Longer than 60 lines: one factorisation, of which all parts go to the record.
    """
    size = nx + ny
    _, quadratic, pivots, _, before, mean_step, white, seen, gain, _ = _record_fields(nx, ny)
    before = record + before
    quadratic, pivots, mean_step, white = record + quadratic, record + pivots, record + mean_step, record + white
    seen, gain = record + seen, record + gain
    h, noise, r, order, M = free, free + ny * nx, free + ny * size, free + ny * size + ny, free + ny * size + 2 * ny
    free = M + size * size
    _copy(w, H, nx, h, nx, ny, nx)
    _copy(w, R, ny, noise, ny, ny, ny)
    for i in range(ny):
        w[r + i] = 0.0
        if np.isnan(w[y + i]):
            _fill(w, h + i * nx, nx, 0.0)
            for j in range(ny):
                w[noise + i * ny + j] = w[noise + j * ny + i] = 0.0
            w[noise + i * ny + i] = 1.0
        else:
            total = w[y + i] - w[d + i]
            for k in range(nx):
                total -= w[h + i * nx + k] * w[m + k]
            w[r + i] = total
    _fill(w, M, size * size, 0.0)
    _semidefinite_factor(w, noise, ny, tiny, M, size, free)
    _transpose(w, h, ny, nx, free)
    _product(w, W, free, M + ny * size, size, nx, nx, ny)
    _copy(w, W, nx, M + ny * size + ny, size, nx, nx)
    _fill(w, free, ny, 1.0)
    rank = _triangularise(w, M, size, size, ny, free, 0.0, order, free + ny)
    total = w[r] * 0.0
    if rank < ny:  # no density
        total = np.nan
        _fill(w, m, nx, np.nan)
    _fill(w, mean_step, nx, 0.0)
    _copy(w, M + ny, size, gain, nx, ny, nx)
    for a in range(rank):
        j = int(w[order + a])
        value, row = w[r + j], seen + a * nx
        _copy(w, h + j * nx, 0, row, 0, 1, nx)
        for b in range(a):
            x = w[M + b * size + j]
            value -= x * w[white + b]
            for k in range(nx):
                w[row + k] -= x * w[seen + b * nx + k]
        pivot = w[M + a * size + j]
        scale = math.sqrt(w[R + j * ny + j])
        for k in range(nx):
            scale += abs(w[h + j * nx + k]) * w[before + k]
        if abs(pivot) <= ROUNDING * nx * scale and not np.isnan(w[y + j]):  # rounding: no density
            value = np.nan
        value /= pivot
        w[white + a] = value
        total += value * value
        w[pivots + j] = 1.0 if np.isnan(w[y + j]) else TWO_PI * pivot * pivot
        for k in range(nx):
            w[row + k] /= pivot
            w[mean_step + k] += w[gain + a * nx + k] * value
    for k in range(nx):
        w[m + k] += w[mean_step + k]
    w[quadratic] = total
    _copy(w, M + ny * size + ny, size, W, nx, nx, nx)
    _fill(w, free, nx, 0.0)
    _add_deviations(w, W, nx, nx, free, free + nx)
    for k in range(nx):
        if w[free + k] <= ROUNDING * nx * w[before + k]:  # a component that is known exactly
            for i in range(nx):
                w[W + i * nx + k] = 0.0


@plain
def _triangularise_gain(
    w: Numbers, F: int, W: int, before: int, noise: int, nx: int, tiny: float, M: int, order: int, free: int
) -> tuple[int, float]:
    """The triangularisation of the module's description: its rank, and the least pivot relative to its rounding.

    What the rounding of each column of the left half is in proportion to: the terms of W F', which may cancel.
    """
    scale, free = free, free + nx
    _fill(w, M, 4 * nx * nx, 0.0)
    _transpose(w, F, nx, nx, free)
    _product(w, W, free, M, 2 * nx, nx, nx, nx)
    _copy(w, noise, nx, M + 2 * nx * nx, 2 * nx, nx, nx)
    _copy(w, W, nx, M + nx, 2 * nx, nx, nx)
    _fill(w, scale, nx, 0.0)
    _add_deviations(w, noise, nx, nx, scale, free)
    for i in range(nx):
        for k in range(nx):
            w[scale + i] += abs(w[F + i * nx + k]) * w[before + k]
    rank = _triangularise(w, M, 2 * nx, 2 * nx, nx, scale, tiny, order, free)
    least = 1.0
    for a in range(rank):
        j = int(w[order + a])
        least = min(least, abs(w[M + a * 2 * nx + j]) / w[scale + j])
    return rank, least


@plain
def _gain_and_rows(w: Numbers, M: int, order: int, rank: int, later: int, nx: int, Et: int, rows: int) -> None:
    """The transposed gain, and the 3 nx - rank rows whose products are the smoothed covariance.

    `later` is the smoothed factor of the next step.
    """
    _fill(w, Et, nx * nx, 0.0)
    for a in range(rank - 1, -1, -1):
        j, top = int(w[order + a]), M + a * 2 * nx
        row = Et + j * nx
        _copy(w, top + nx, 0, row, 0, 1, nx)
        for b in range(a + 1, rank):
            i = int(w[order + b])
            for c in range(nx):
                w[row + c] -= w[top + i] * w[Et + i * nx + c]
        for c in range(nx):
            w[row + c] /= w[top + j]
    count = 2 * nx - rank
    _copy(w, M + rank * 2 * nx + nx, 2 * nx, rows, nx, count, nx)
    _product(w, later, Et, rows + count * nx, nx, nx, nx, nx)


# --- the disturbance form
@plain
def _congruence(w: Numbers, A: int, adjoint: int, adjoint_cov: int, nx: int, free: int) -> None:
    """``A' adjoint`` and ``A' adjoint_cov A``, in place."""
    moved, left, whole, turned = free, free + nx, free + nx + nx * nx, free + nx + 2 * nx * nx
    _fill(w, moved, nx, 0.0)
    for k in range(nx):
        for i in range(nx):
            w[moved + i] += w[A + k * nx + i] * w[adjoint + k]
    _product(w, adjoint_cov, A, left, nx, nx, nx, nx)
    _transpose(w, A, nx, nx, turned)
    _product(w, turned, left, whole, nx, nx, nx, nx)
    _copy(w, moved, 0, adjoint, 0, 1, nx)
    for i in range(nx):
        for j in range(i, nx):
            both = 0.5 * (w[whole + i * nx + j] + w[whole + j * nx + i])
            w[adjoint_cov + i * nx + j] = w[adjoint_cov + j * nx + i] = both


@plain
def _before_observation(
    w: Numbers, white: int, seen: int, gain: int, adjoint: int, adjoint_cov: int, nx: int, ny: int, free: int
) -> None:
    """`adjoint` and `adjoint_cov` of later observations, in place, with those of this step, at the predicted state.

    They are the r and N of de Jong's recursion:
    ``adjoint = H' S^-1 r + (I - K H)' adjoint`` and ``adjoint_cov = H' S^-1 H + (I - K H)' adjoint_cov (I - K H)``.
    """
    A = free
    _fill(w, A, nx * nx, 0.0)
    for i in range(nx):
        w[A + i * nx + i] = 1.0
        for a in range(ny):
            x = w[gain + a * nx + i]
            for j in range(nx):
                w[A + i * nx + j] -= x * w[seen + a * nx + j]
    _congruence(w, A, adjoint, adjoint_cov, nx, free + nx * nx)
    for a in range(ny):
        row = seen + a * nx
        for i in range(nx):
            x = w[row + i]
            w[adjoint + i] += x * w[white + a]
            for j in range(nx):
                w[adjoint_cov + i * nx + j] += x * w[row + j]


@plain
def _disturbance_form(
    w: Numbers,
    W: int,
    before: int,
    adjoint: int,
    adjoint_cov: int,
    least: float,
    step: int,
    P: int,
    nx: int,
    free: int,
) -> float:
    """``P adjoint`` and ``P - P adjoint_cov P`` for ``P = W' W``; by what factor a variance falls most."""
    count = nx * nx
    filtered, left, taken, moves, sizes = free, free + count, free + 2 * count, free + 3 * count, free + 4 * count
    _gram(w, W, nx, nx, filtered)
    _product(w, filtered, adjoint_cov, left, nx, nx, nx, nx)
    _product(w, left, filtered, taken, nx, nx, nx, nx)
    for i in range(count):
        w[moves + i], w[left + i] = abs(w[filtered + i]), abs(w[adjoint_cov + i])
    _product(w, moves, left, sizes, nx, nx, nx, nx)
    factor = 1.0
    for i in range(nx):
        own = w[filtered + i * nx + i]
        total, size = 0.0, own
        for j in range(nx):
            at = i * nx + j
            total += w[filtered + at] * w[adjoint + j]
            size += w[sizes + at] * w[moves + at]
        w[step + i] = total
        for j in range(i, nx):
            both = 0.5 * (w[taken + i * nx + j] + w[taken + j * nx + i])
            w[P + i * nx + j] = w[P + j * nx + i] = w[filtered + i * nx + j] - both
        smoothed = w[P + i * nx + i]
        if own > (least * w[before + i]) ** 2:
            factor = max(factor, size / smoothed) if smoothed > 0.0 else np.inf
    return factor


# --- series
@plain
def _filter_series(
    w: Numbers, places: Integers, n_steps: int, nx: int, ny: int, predict_first: bool, tiny: float
) -> None:
    """The filter of one series, to the records of its steps."""
    records, free = places[RECORDS], places[RECORDS + 1]
    _, _, _, at_factor, at_before, _, _, _, _, length = _record_fields(nx, ny)
    m, W, noise, ahead, M = free, free + nx, free + nx + nx * nx, free + nx + 2 * nx * nx, free + 2 * nx + 2 * nx * nx
    free = M + 2 * nx * nx
    _copy(w, places[7], 0, m, 0, 1, nx)
    if places[RECORDS + 2] > 0:
        _copy(w, places[8], nx, W, nx, nx, nx)
    else:
        _semidefinite_factor(w, places[8], nx, tiny, W, nx, free)
    _semidefinite_factor(w, places[1], nx, tiny, noise, nx, free)
    for k in range(n_steps):
        record = records + k * length
        if k > 0 or predict_first:
            F = places[0] + k * places[STRIDES + 0]
            for i in range(nx):
                total = w[places[4] + k * places[STRIDES + 4] + i]
                for j in range(nx):
                    total += w[F + i * nx + j] * w[m + j]
                w[ahead + i] = total
            _copy(w, ahead, 0, m, 0, 1, nx)
            if k > 0 and places[STRIDES + 1] > 0:
                _semidefinite_factor(w, places[1] + k * places[STRIDES + 1], nx, tiny, noise, nx, free)
            _transpose(w, F, nx, nx, free)
            _product(w, W, free, M, nx, nx, nx, nx)
            _copy(w, noise, nx, M + nx * nx, nx, nx, nx)
            _reduce_rows(w, M, 2 * nx, nx, free)
            _copy(w, M, nx, W, nx, nx, nx)
        _fill(w, record + at_before, nx, 0.0)
        _add_deviations(w, W, nx, nx, record + at_before, free)
        H, R, d, y = (
            places[2] + k * places[STRIDES + 2],
            places[3] + k * places[STRIDES + 3],
            places[5] + k * places[STRIDES + 5],
            places[6] + k * places[STRIDES + 6],
        )
        _update(w, H, R, d, y, m, W, nx, ny, tiny, record, free)
        _copy(w, m, 0, record, 0, 1, nx)
        _gram(w, W, nx, nx, record + nx)
        _copy(w, W, nx, record + at_factor, nx, nx, nx)


@plain
def _smooth_series(w: Numbers, places: Integers, n_steps: int, nx: int, ny: int, tiny: float) -> None:
    """The smoother of one series in place, from the records of `square_root_filter`."""
    records, free = places[RECORDS], places[RECORDS + 1]
    _, _, _, at_factor, at_before, at_mean_step, at_white, at_seen, at_gain, length = _record_fields(nx, ny)
    count = nx * nx
    noise, P, adjoint_cov, later, Et = free, free + count, free + 2 * count, free + 3 * count, free + 4 * count
    M, rows, free = free + 5 * count, free + 9 * count, free + 12 * count
    adjoint, gap, step, disturbed, order, free = (
        free,
        free + nx,
        free + 2 * nx,
        free + 3 * nx,
        free + 4 * nx,
        free + 5 * nx,
    )
    last = records + (n_steps - 1) * length
    _fill(w, adjoint, nx, 0.0)
    _fill(w, adjoint_cov, count, 0.0)
    _copy(w, last + at_factor, nx, later, nx, nx, nx)  # of the chain of gains
    _copy(w, last + at_mean_step, 0, gap, 0, 1, nx)
    eps = tiny / (8 * nx)
    error, cancellation = 0.0, 0.0
    _semidefinite_factor(w, places[1], nx, tiny, noise, nx, free)
    for k in range(n_steps - 2, -1, -1):
        record, after = records + k * length, records + (k + 1) * length
        F, W, before = places[0] + (k + 1) * places[STRIDES + 0], record + at_factor, record + at_before
        if places[STRIDES + 1] > 0:
            _semidefinite_factor(w, places[1] + (k + 1) * places[STRIDES + 1], nx, tiny, noise, nx, free)
        rank, least = _triangularise_gain(w, F, W, before, noise, nx, tiny, M, order, free)
        if k < n_steps - 2 and eps * cancellation / least**2 < error + eps / least:
            error = eps * cancellation / least**2
            for i in range(nx):
                w[gap + i] = w[disturbed + i] + w[after + at_mean_step + i]
            _semidefinite_factor(w, P, nx, tiny, later, nx, free)
        else:
            error += eps / least
        _before_observation(w, after + at_white, after + at_seen, after + at_gain, adjoint, adjoint_cov, nx, ny, free)
        _congruence(w, F, adjoint, adjoint_cov, nx, free)
        cancellation = _disturbance_form(w, W, before, adjoint, adjoint_cov, tiny, disturbed, P, nx, free)
        _gain_and_rows(w, M, order, rank, later, nx, Et, rows)
        _fill(w, step, nx, 0.0)
        for i in range(nx):
            for j in range(nx):
                w[step + j] += w[Et + i * nx + j] * w[gap + i]
        if eps * cancellation < error:
            for i in range(nx):
                w[record + i] += w[disturbed + i]
            _copy(w, P, nx, record + nx, nx, nx, nx)
        else:
            for i in range(nx):
                w[record + i] += w[step + i]
            _gram(w, rows, 3 * nx - rank, nx, record + nx)
        _reduce_rows(w, rows, 3 * nx - rank, nx, free)
        _copy(w, rows, nx, later, nx, nx, nx)
        for i in range(nx):
            w[gap + i] = w[step + i] + w[record + at_mean_step + i]


_call_filter, _call_smooth = entry(_filter_series), entry(_smooth_series)


@compiled_serial
def square_root_filter(w, places, n_steps, nx, ny, predict_first, tiny):
    _call_filter(w, places, n_steps, nx, ny, predict_first, tiny)


@compiled_serial
def square_root_smooth(w, places, n_steps, nx, ny, tiny):
    _call_smooth(w, places, n_steps, nx, ny, tiny)


class SquareRootRecursion:
    """The square-root filter and smoother of series of one length and size.

    Parameters
    ----------
    parts : F, Q, H, R, u, d, y, m0, P0, each (n_series or 1, n_steps or 1, ...), the last two without steps
    predict_first : bool
    tiny : float
        The part of its terms below which a sum is rounding error.
    rooted : bool
        Whether the last part is a factor W of P0, ``W' W = P0``.
    """

    def __init__(
        self, parts: tuple[np.ndarray, ...], predict_first: bool, tiny: float, rooted: bool = False
    ) -> None:  # fmt: skip
        self.parts, self.predict_first, self.tiny = parts, predict_first, float(tiny)
        self.n_steps, self.ny = parts[6].shape[1:]
        self.nx = parts[7].shape[-1]
        sizes = [math.prod(a.shape[1:]) for a in parts]
        self.starts = np.cumsum([0, *sizes])
        moves = [math.prod(a.shape[2:]) if a.shape[1] > 1 else 0 for a in parts[:TIME_VARYING]]
        nx, ny = self.nx, self.ny
        self.length = 3 * nx + 2 * nx * nx + 1 + 2 * ny + 2 * ny * nx
        self.space = int(self.starts[-1]) + self.n_steps * self.length
        self.places = np.array([*self.starts[:-1], *moves, self.starts[-1], self.space, rooted], np.int64)
        self.free = 20 * (nx + ny) * (nx + ny + 1)  # more than the deepest chain of calls takes

    def _filtered(self, s: int) -> np.ndarray:
        w = np.empty(self.space + self.free)
        for a, start, end in zip(self.parts, self.starts[:-1], self.starts[1:], strict=True):
            w[start:end] = a[s if a.shape[0] > 1 else 0].ravel()
        square_root_filter(w, self.places, self.n_steps, self.nx, self.ny, self.predict_first, self.tiny)
        return w

    def _records(self, w: np.ndarray) -> np.ndarray:
        return w[self.starts[-1] : self.space].reshape(self.n_steps, self.length)

    def filter(
        self, mean: np.ndarray, covariance: np.ndarray, quadratic: np.ndarray, pivots: np.ndarray, s: int
    ) -> None:
        """The filter of series s, written to series s of the results."""
        nx, records = self.nx, self._records(self._filtered(s))
        at = nx + nx * nx
        mean[s], covariance[s] = records[:, :nx], records[:, nx:at].reshape(self.n_steps, nx, nx)
        quadratic[s], pivots[s] = records[:, at], records[:, at + 1 : at + 1 + self.ny]

    def smooth(self, mean: np.ndarray, covariance: np.ndarray, s: int, to: int) -> None:
        """The smoother of series s, written to series `to` of the results; the last step is left as it is."""
        w, nx = self._filtered(s), self.nx
        square_root_smooth(w, self.places, self.n_steps, nx, self.ny, self.tiny)
        records = self._records(w)[:-1]
        mean[to, :-1] = records[:, :nx]
        covariance[to, :-1] = records[:, nx : nx + nx * nx].reshape(-1, nx, nx)
