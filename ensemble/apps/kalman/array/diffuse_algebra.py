"""Small linear algebra of the diffuse steps, over any leading axes and in any array library."""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.array.steps import apply, in_order, ldl_solve, product

__all__ = [
    "any_last", "decorrelated", "decorrelated_by_noise", "first_true", "inverse_root", "largest_last", "last_sum",
    "norms", "solve_gram", "times",
]  # fmt: skip


def times(A: Array, x: Array) -> Array:
    return apply(A, x, product)


def last_sum(a: Array) -> Array:
    """Sum over the last axis in order, so that an entry's bits do not depend on the stack that it is in."""
    if type(a) is np.ndarray:
        return in_order(a, -1)
    total = a[..., 0]
    for i in range(1, a.shape[-1]):
        total = total + a[..., i]
    return total


def any_last(a: Array, axes: int = 1) -> Array:
    """Whether any entry along the last `axes` axes is true."""
    for _ in range(axes):
        a = np.logical_or.reduce(a, axis=-1) if type(a) is np.ndarray else array_namespace(a).any(a, axis=-1)
    return a


def largest_last(a: Array) -> Array:
    """The largest entry along the last axis, which stays with length 1."""
    if type(a) is np.ndarray:
        return np.maximum.reduce(a, axis=-1, keepdims=True)
    return array_namespace(a).max(a, axis=-1, keepdims=True)


def first_true(a: Array) -> Array:
    """Keep of the true entries along the last axis the first alone."""
    xp = array_namespace(a)
    if type(a) is np.ndarray:
        counts = np.add.accumulate(a, axis=-1, dtype=np.int64)
    else:
        counts = xp.cumulative_sum(xp.astype(a, xp.int64), axis=-1)
    return xp.logical_and(a, counts == 1)


def norms(U: Array) -> Array:
    """Compute the norms of the rows of U."""
    return array_namespace(U).sqrt(last_sum(U * U))


def column_lengths(N: Array, free: Array) -> Array:
    """Compute the lengths of the free columns of N; 1 for those that are fixed."""
    xp = array_namespace(N, free)
    one = xp.asarray(1.0, dtype=N.dtype)
    return xp.where(free > 0, xp.sqrt(last_sum((N * N).mT)), one)


def scaled_gram(N: Array, free: Array) -> tuple[Array, Array]:
    """Scale the free columns of N to length 1: their Gram matrix, the identity where one is fixed, and the lengths."""
    xp = array_namespace(N, free)
    lengths = column_lengths(N, free)
    scaled = N / lengths[..., None, :]
    eye = xp.eye(N.shape[-1], dtype=N.dtype)
    return product(scaled.mT, scaled) + eye * xp.where(free > 0, 0.0 * free, 1.0 + 0.0 * free)[..., None, :], lengths


def solve_gram(N: Array, free: Array, right: Array) -> tuple[Array, Array]:
    """Solve N' N x = right for the free columns, with log det N' N."""
    gram, lengths = scaled_gram(N, free)
    _, _, solved, log_det = ldl_solve(gram, (right / lengths)[..., None], floor=least_pivot(N))
    return solved[..., 0] / lengths, log_det + 2.0 * last_sum(array_namespace(lengths).log(lengths))


def least_pivot(N: Array) -> float:
    """The least pivot of a Gram matrix of columns of length 1: below it there is rounding.

    Columns of N are independent. Where their Gram matrix does not show it, the split of a posterior along free
    directions is inexact; what follows from fixed directions does not depend on it.
    """
    return 8.0 * int(N.shape[-1]) * float(array_namespace(N).finfo(N.dtype).eps)


def inverse_root(N: Array, free: Array) -> Array:
    """Return W with W W' = (N' N)^-1 on the free columns, zero elsewhere."""
    xp = array_namespace(N, free)
    gram, lengths = scaled_gram(N, free)
    eye = xp.broadcast_to(xp.eye(N.shape[-1], dtype=N.dtype), gram.shape)
    white, weighted, _, _ = ldl_solve(gram, eye, floor=least_pivot(N))  # L^-1 and D^-1 L^-1
    root = white * xp.sqrt(xp.linalg.diagonal(weighted))[..., :, None]
    return root.mT * (free / lengths)[..., :, None] * free[..., None, :]


def decorrelated(R: Array) -> tuple[Array, Array]:
    """Decorrelate noise of semidefinite covariance R: unit lower triangular B, and the diagonal of B R B'."""
    xp = array_namespace(R)
    n = R.shape[-1]
    zero, one = (xp.asarray(v, dtype=R.dtype) for v in (0.0, 1.0))
    eye = xp.zeros_like(R) + xp.eye(n, dtype=R.dtype)
    rows = [xp.concat([R[..., i, :], eye[..., i, :]], axis=-1) for i in range(n)]
    diagonal = []
    for j in range(n):
        pivot = rows[j][..., j]
        lost = pivot <= 8 * n * xp.finfo(R.dtype).eps * xp.abs(R[..., j, j])
        inverse = xp.where(lost, zero, one / xp.where(lost, one, pivot))
        for i in range(j + 1, n):
            rows[i] = rows[i] - (rows[i][..., j] * inverse)[..., None] * rows[j]
        diagonal.append(xp.where(lost, zero, pivot))
    return xp.stack([row[..., n:] for row in rows], axis=-2), xp.stack(diagonal, axis=-1)


def decorrelated_by_noise(R: Array, scales: Array) -> tuple[Array, Array]:
    """Decorrelate as `decorrelated` does, by noise over size of the entries: those of least noise come first.

    So no row is multiplied by more than about 1 in units of its size. Rows come in the order of ascending noise, in
    which updates lose least.
    """
    xp = array_namespace(R, scales)
    n = R.shape[-1]
    one = xp.asarray(1.0, dtype=R.dtype)
    share = xp.linalg.diagonal(R) / xp.where(scales > 0, scales, one) ** 2
    mine, other = share[..., :, None], share[..., None, :]
    lower = xp.asarray([[j < i for j in range(n)] for i in range(n)])
    before = xp.logical_or(other > mine, xp.logical_and(other == mine, lower))
    place = last_sum(xp.astype(before, R.dtype))
    numbers = xp.asarray([float(i) for i in range(n)], dtype=R.dtype)
    order = xp.astype(place[..., None, :] == numbers[:, None], R.dtype)
    rows, noise = decorrelated(product(product(order, R), order.mT))
    return xp.flip(product(rows, order), axis=-2), xp.flip(noise, axis=-1)
