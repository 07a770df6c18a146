"""The tentative prolongator: the near-nullspace, cut to aggregates and made orthonormal there."""

from __future__ import annotations

import numpy as np

from ensemble.linalg import CrsGraph, CrsMatrix


def tentative_prolongator(aggregates: np.ndarray, n_aggregates: int, B: np.ndarray) -> tuple[CrsMatrix, np.ndarray]:
    """T and the coarse near-nullspace B_c with ``T @ B_c == B`` on the rows that belong to an aggregate.

    `B` has shape (n, k). On each aggregate its rows are factored as Q R by Gram-Schmidt, done twice (Vanek, Mandel and
    Brezina 1996): Q fills T, R is the aggregate's part of B_c. Both are the same for all samples.
    """
    n, k = B.shape
    inside = aggregates >= 0
    where = aggregates[inside]

    def sums(terms: np.ndarray) -> np.ndarray:
        return np.bincount(where, weights=terms, minlength=n_aggregates)

    Q = B[inside].astype(np.float64)
    R = np.zeros((n_aggregates, k, k))
    scale = np.sqrt(np.stack([sums(Q[:, j] ** 2) for j in range(k)], axis=1))
    for j in range(k):
        for _ in range(2):
            for i in range(j):
                inner = sums(Q[:, i] * Q[:, j])
                R[:, i, j] += inner
                Q[:, j] -= inner[where] * Q[:, i]
        length = np.sqrt(sums(Q[:, j] ** 2))
        length[length <= 1e-10 * scale[:, j]] = 0.0  # a vector that depends linearly on the others in this aggregate
        R[:, j, j] = length
        Q[:, j] = np.divide(Q[:, j], length[where], out=np.zeros_like(Q[:, j]), where=length[where] > 0.0)
    indptr = np.zeros(n + 1, np.int32)
    np.cumsum(np.where(inside, k, 0), out=indptr[1:])
    indices = (where[:, None] * k + np.arange(k, dtype=np.int32)).astype(np.int32).reshape(-1)
    return CrsMatrix(CrsGraph.unchecked(indptr, indices, (n, n_aggregates * k)), Q.reshape(-1)), R.reshape(
        n_aggregates * k, k
    )
