"""One step of the filter and of the smoother as scalar arithmetic, the source of the code for up to eight states.

The reference kernels run these functions. The code of one series, of lanes (`kalman_generated.py`) and of the filter in
a CUDA thread (`cuda_step.py`) is written from them, with the same bits. The smoother of a CUDA thread is in
`cuda/steps.cuh`. The step stands again where matrices lie otherwise: with
the same bits in `loops.py` and `smoother_loops.py` (any size, on the CPU), to rounding in `cuda/blocks.cuh` (shared
memory of a block) and `apps/kalman/array/steps.py` (Array API).

Matrices are nested lists of scalars: NumPy arrays with one value per series, or symbols that write source code. `o`
offers `zero`, `one`, ``where(condition, a, b)``, ``missing(y)`` and ``columns(A)``, which gives A back and may keep
each column in one register. Sums run over ascending indices: all round alike. Symmetric matrices are read above the
diagonal only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "TWO_PI",
    "extend",
    "known_part",
    "least_pivot",
    "lost_part",
    "predict",
    "predict_mean",
    "smooth",
    "smooth_mean",
    "update",
    "update_mean",
]

TWO_PI = 6.283185307179586


def least_pivot(nx: int, dtype: Any) -> float:
    """The part of its diagonal entry that every pivot of a predicted covariance must keep for the gain of a smoother.

    The gain's error is about eps over that part. Series with a smaller pivot at any step are smoothed on square roots
    (`square_root_loops.py`). A diagonal entry of zero, a component that is known exactly, is no such pivot.
    """
    return 1e-8 if np.dtype(dtype).itemsize >= 8 else 64 * nx * float(np.finfo(dtype).eps)


def lost_part(dtype: Any) -> float:
    """The part of its terms that every pivot of an innovation covariance must keep.

    The terms ``nx sum(H[i, k]^2 P[k, k]) + R[i, i]`` cancel where states drift apart of which a combination is seen.
    The pivot's error is about eps over that part: 2e-7 in float64, 1e-2 in float32. Such a series is NaN from that step
    on, and filtered on square roots of covariances (`square_root_loops.py`), which have twice the digits.

    The same part must remain of ``nx sum(L[a, b]^2 P[b, b])``, ``L = 1 - K H``, in each variance after an observation:
    eps times that sum is what the rounding of P leaves in it. An entry that is seen without noise may leave variances
    of zero, so there is no such bound beside one. Losses of successive steps multiply: of 5,000 wide priors, most for
    regressions on columns that are nearly alike, three ended with errors above 1e-3 deviations, none above 2e-3.
    """
    return float(np.finfo(dtype).eps) * (5e6 if np.dtype(dtype).itemsize >= 8 else 1e2)


def known_part(nx: int, dtype: Any) -> float:
    """The part of a variance before an observation below which what is left of it is rounding: a known component."""
    return (8 * nx * float(np.finfo(dtype).eps)) ** 2


Matrix = list[list[Any]]
Vector = list[Any]


def _dot(a: Vector, b: Vector, start: Any = None) -> Any:
    """a' b, added to `start`, which as the first term of a chain makes it no longer."""
    total = start
    for x, y in zip(a, b, strict=True):
        total = x * y if total is None else total + x * y
    return total


def _minus_dot(start: Any, a: Vector, b: Vector) -> Any:
    """start - a' b."""
    for x, y in zip(a, b, strict=True):
        start = start - x * y
    return start


def _times(A: Matrix, B: Matrix) -> Matrix:
    """A B."""
    columns = list(zip(*B, strict=True))
    return [[_dot(row, list(column)) for column in columns] for row in A]


def _mirrored(n: int, entry: Any) -> Matrix:
    """The symmetric matrix of which ``entry(i, j)`` gives the upper triangle."""
    out: Matrix = [[None] * n for _ in range(n)]
    for i in range(n):
        for j in range(i, n):
            out[i][j] = out[j][i] = entry(i, j)
    return out


def _congruence(A: Matrix, B: Matrix, C: Matrix | None = None) -> Matrix:
    """A B', known to be symmetric, plus C."""
    return _mirrored(len(A), lambda i, j: _dot(A[i], B[j], C and C[i][j]))


def _factored(S: Matrix, inverse: Any) -> tuple[Matrix, Vector, Vector]:
    """Unit lower triangle, pivots and their inverses of ``S = L D L'``; ``inverse(pivot, j)`` inverts."""
    n = len(S)
    rest = [list(row) for row in S]
    lower: Matrix = [[None] * n for _ in range(n)]
    pivots, inverses = [], []
    for j in range(n):
        pivots.append(rest[j][j])
        inverses.append(inverse(rest[j][j], j))
        for i in range(j + 1, n):
            lower[i][j] = rest[j][i] * inverses[j]
            for k in range(i, n):
                rest[i][k] = rest[i][k] - lower[i][j] * rest[j][k]
    return lower, pivots, inverses


def _forward(lower: Matrix, x: Vector) -> Vector:
    z: Vector = []
    for i, right in enumerate(x):
        for j in range(i):
            right = right - lower[i][j] * z[j]
        z.append(right)
    return z


def _backward(lower: Matrix, x: Vector) -> Vector:
    """``L'^-1 x``."""
    n = len(x)
    out: Vector = [None] * n
    for i in range(n - 1, -1, -1):
        right = x[i]
        for j in range(i + 1, n):
            right = right - lower[j][i] * out[j]
        out[i] = right
    return out


def _solve(lower: Matrix, inverses: Vector, x: Vector) -> Vector:
    return _backward(lower, [z * v for z, v in zip(_forward(lower, x), inverses, strict=True)])


def _identity_minus(o: Any, K: Matrix, H: Matrix) -> Matrix:
    columns = [list(column) for column in zip(*H, strict=True)]
    entry = lambda i, j: _minus_dot(o.one if i == j else o.zero, K[i], columns[j])
    return [[entry(i, j) for j in range(len(columns))] for i in range(len(K))]


def predict(o: Any, F: Matrix, Q: Matrix, u: Vector, m: Vector, P: Matrix) -> tuple[Vector, Matrix]:
    """Mean and covariance one transition on."""
    mean = predict_mean(F, u, m)
    o.columns([[entry] for entry in mean])
    return mean, o.columns(_congruence(o.columns(_times(F, P)), F, Q), symmetric=True)


def predict_mean(F: Matrix, u: Vector, m: Vector) -> Vector:
    """The mean one transition on."""
    return [_dot(row, m, shift) for row, shift in zip(F, u, strict=True)]


def update_mean(
    o: Any, H: Matrix, d: Vector, y: Vector, m: Vector, K: Matrix, lower: Matrix, inverses: Vector, logs: Vector
) -> tuple[Vector, Any]:
    """The mean given `y`, and the logarithm of the density of `y`, by a gain that is known; nothing is missing.

    `logs` are the logarithms of the pivots of ``2 pi S``.
    """
    r = [_minus_dot(y[i] - d[i], H[i], m) for i in range(len(H))]
    white = _forward(lower, r)
    quadratic = _dot(white, [w * v for w, v in zip(white, inverses, strict=True)])
    for log in logs:
        quadratic = quadratic + log
    return [_dot(K[a], r, m[a]) for a in range(len(m))], quadratic * o.minus_half


def update(o: Any, H: Matrix, R: Matrix, d: Vector, y: Vector, m: Vector, P: Matrix) -> tuple[Any, ...]:
    """Mean and covariance given `y`, ``r' S^-1 r``, the pivots of ``2 pi S``, 1 where missing.

    Then the gain, the triangle and the inverse pivots of ``S = L D L'``, and ``L^-1 r``. A pivot that cancellation has
    taken digits from is NaN, see `lost_part`, and so is the first one where a variance has lost too many. Beside an
    entry that is seen without noise, a variance of which rounding is left is zero. The covariance is
    ``M = P - P H' S^-1 H P``, minus the part of Joseph's form that is zero but for the rounding errors of M: it is made
    of the residual ``G = K R - M H'``.
    """
    ny, nx = len(H), len(m)
    is_missing = [o.missing(entry) for entry in y]
    H = [[o.where(is_missing[i], o.zero, entry) for entry in H[i]] for i in range(ny)]
    noise: Matrix = [[None] * ny for _ in range(ny)]
    for i in range(ny):
        noise[i][i] = o.where(is_missing[i], o.one, R[i][i])
        for j in range(i + 1, ny):
            noise[i][j] = noise[j][i] = o.where(is_missing[i], o.zero, o.where(is_missing[j], o.zero, R[i][j]))
    r = [o.where(is_missing[i], o.zero, _minus_dot(y[i] - d[i], H[i], m)) for i in range(ny)]
    PHt = o.columns([[_dot(P[a], H[i]) for i in range(ny)] for a in range(nx)])
    columns = [list(column) for column in zip(*PHt, strict=True)]
    variances = [P[a][a] for a in range(nx)]
    pivots: Vector = []
    bounds: Vector = []

    def inverse(pivot: Any, j: int) -> Any:
        bound = o.lost_noise * noise[j][j]
        bounds.append(bound + o.lost_spread * _dot([entry * entry for entry in H[j]], variances))
        pivots.append(o.where(pivot <= bounds[j], o.nan, pivot))
        return o.one / pivots[j]

    lower, _, inverses = _factored(_congruence(H, columns, noise), inverse)
    o.columns([[bound] for bound in bounds])
    W = o.columns([_forward(lower, row) for row in PHt])
    K = o.columns([_backward(lower, [w * v for w, v in zip(row, inverses, strict=True)]) for row in W])
    white = _forward(lower, r)
    quadratic = _dot(white, [w * v for w, v in zip(white, inverses, strict=True)])
    mean = [_dot(K[a], r, m[a]) for a in range(nx)]
    o.columns([[entry] for entry in mean])
    pairs = [[[v * w for v, w in zip(W[a], W[b], strict=True)] for b in range(nx)] for a in range(nx)]
    M = o.columns([[_minus_dot(P[a][b], pairs[a][b], inverses) for b in range(nx)] for a in range(nx)])
    corrected = _corrected(o, M, H, noise, K)
    scaled = [o.where(is_missing[i], o.one, pivots[i] * o.two_pi) for i in range(ny)]
    part, known = o.lost_spread, o.zero
    for i in range(ny):  # what is seen exactly may leave variances of zero: rounding in them is no loss
        part = o.where(noise[i][i] <= o.zero, o.zero, part)
        known = o.where(noise[i][i] <= o.zero, o.known, known)
    bounds = []
    for a, leaked in enumerate(_leaked(o, K, H, variances)):
        corrected[a][a] = o.where(corrected[a][a] <= known * variances[a], o.zero, corrected[a][a])
        bounds.append(part * leaked)
        scaled[0] = o.where(bounds[a] <= corrected[a][a], scaled[0], o.nan)
    o.columns([[bound] for bound in bounds])
    o.columns([[corrected[a][a]] for a in range(nx)])
    return mean, corrected, quadratic, scaled, K, lower, inverses, white


def _leaked(o: Any, K: Matrix, H: Matrix, variances: Vector) -> Vector:
    """``sum(L[a, b]^2 P[b, b])`` of every state a, ``L = 1 - K H``."""
    if len(H) > 1:
        return [_dot([entry * entry for entry in row], variances) for row in _identity_minus(o, K, H)]
    terms = _dot([entry * entry for entry in H[0]], variances)
    left = [_minus_dot(o.one, K[a], [H[0][a]]) for a in range(len(K))]
    others = [terms - (H[0][a] * H[0][a]) * variances[a] for a in range(len(K))]
    return [_dot([left[a] * left[a], K[a][0] * K[a][0]], [variances[a], others[a]]) for a in range(len(K))]


def _corrected(o: Any, M: Matrix, H: Matrix, R: Matrix, K: Matrix) -> Matrix:
    """``M + K G' + (G - K (H G)') K'`` for the residual ``G = K R - M H'`` of a gain K."""
    nx, ny = len(K), len(H)
    G = o.columns([[_minus_dot(_dot(K[a], R[i]), M[a], H[i]) for i in range(ny)] for a in range(nx)])
    HG = [[_dot(H[i], [row[j] for row in G]) for j in range(ny)] for i in range(ny)]
    X = o.columns([[_minus_dot(G[a][j], K[a], HG[j]) for j in range(ny)] for a in range(nx)])
    # a register for each column, before the diagonal is looked at: what follows differs between its entries
    return o.columns(_mirrored(nx, lambda a, b: M[a][b] + _dot(X[a], K[b], _dot(K[a], G[b]))), symmetric=True)


def extend(
    o: Any, F: Matrix, Q: Matrix, u: Vector, H: Matrix, R: Matrix, d: Vector, y: Vector,
    A: Matrix, m: Vector, P: Matrix, eta: Vector, J: Matrix,
) -> tuple[Matrix, Vector, Matrix, Vector, Matrix]:  # fmt: skip
    """The element (A, m, P, eta, J) of an interval of time with one step more at its end.

    Given the state x before the interval, the state after it is normal with mean ``A x + m`` and covariance P, and the
    density of the observations is proportional to ``exp(eta' x - x' J x / 2)``. J has a NaN where the filter has lost
    an observation's density, as `update` finds it.
    """
    ny, nx = len(H), len(m)
    is_missing = [o.missing(entry) for entry in y]
    FA = o.columns(_times(F, A))
    m, P = predict(o, F, Q, u, m, P)
    columns = [list(column) for column in zip(*FA, strict=True)]
    G = [[o.where(is_missing[i], o.zero, _dot(H[i], column)) for column in columns] for i in range(ny)]
    m, P, _, pivots, K, lower, inverses, white = update(o, H, R, d, y, m, P)
    gained = [list(column) for column in zip(*G, strict=True)]
    A = o.columns([[_minus_dot(FA[a][c], K[a], gained[c]) for c in range(nx)] for a in range(nx)])
    whitened = [_forward(lower, column) for column in gained]
    weighted = [[w * v for w, v in zip(row, inverses, strict=True)] for row in whitened]
    eta = [_dot(weighted[a], white, eta[a]) for a in range(nx)]
    J = _mirrored(nx, lambda a, c: _dot(weighted[a], whitened[c], J[a][c]))
    for pivot in pivots:
        J[0][0] = J[0][0] + o.zero * pivot
    o.columns([[entry] for entry in eta])
    return A, m, P, eta, o.columns(J, symmetric=True)


def smooth(
    o: Any, F: Matrix, Q: Matrix, u: Vector, m: Vector, P: Matrix, later_m: Vector, later_P: Matrix
) -> tuple[Vector, Matrix, Matrix]:
    """Smoothed mean and covariance from the filtered ones and the smoothed ones a step later; and the gain.

    Where a pivot of the predicted covariance is no more than ``o.least_pivot`` of its diagonal entry, the results are
    NaN: see `least_pivot`. The row of a diagonal entry that is zero drops out.
    """
    nx = len(m)
    FP = o.columns(_times(F, P))
    ahead = o.columns(_congruence(FP, F, Q), symmetric=True)

    def inverse(pivot: Any, j: int) -> Any:
        known = ahead[j][j] <= o.zero
        good = o.one / o.where(pivot <= o.least_pivot * ahead[j][j], o.nan, pivot)
        return o.where(known, o.zero, good)

    lower, _, inverses = _factored(ahead, inverse)
    E = o.columns([_solve(lower, inverses, [FP[i][a] for i in range(nx)]) for a in range(nx)])
    mean = smooth_mean(F, u, m, later_m, E)
    o.columns([[entry] for entry in mean])
    A = o.columns(_identity_minus(o, E, F))
    spread: Matrix = [[None] * nx for _ in range(nx)]
    for i in range(nx):
        for j in range(i, nx):
            spread[i][j] = spread[j][i] = Q[i][j] + later_P[i][j]
    noise = _congruence(o.columns(_times(E, spread)), E)
    return mean, o.columns(_congruence(o.columns(_times(A, P)), A, noise), symmetric=True), E


def smooth_mean(F: Matrix, u: Vector, m: Vector, later_m: Vector, E: Matrix) -> Vector:
    """The smoothed mean, by a gain that is known."""
    nx = len(m)
    gap = [_minus_dot(later_m[i] - u[i], F[i], m) for i in range(nx)]
    return [_dot(E[a], gap, m[a]) for a in range(nx)]
