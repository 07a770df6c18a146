"""Diffusion with correlated noise: exchange of probability between cells that share no face."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

__all__ = ["Mixing", "mixing_of"]


@dataclass(frozen=True)
class Mixing:
    """How ``1/2 sum_ij Q_ij d2p / dx_i dx_j`` is shared out among neighbours over faces and over edges.

    Attributes
    ----------
    faces : ndarray (n,)
        Diffusion through faces, in place of the diagonal of Q.
    corners : ndarray (n, n)
        In unit time, what half of the difference to the neighbours ``e_i + e_j`` and ``-e_i - e_j`` comes over at
        ``[i, j]``, i < j, and to ``e_i - e_j`` and ``-e_i + e_j`` at ``[j, i]``.
    rate : float
        By how much the largest stable time step's inverse exceeds ``sum_i Q_ii / dx_i^2``.
    is_positive : bool
        Whether no step takes more from a cell than it holds.
    """

    faces: np.ndarray
    corners: np.ndarray
    rate: float
    is_positive: bool


def mixing_of(Q: np.ndarray, widths: np.ndarray) -> Mixing | None:
    """The exchange for a symmetric positive semidefinite `Q` (n, n); None for a diagonal one.

    With ``q_ij = Q_ij / (dx_i dx_j)``: where every ``q_ii`` is at least the sum of the others' sizes in its row, mixed
    derivatives are differences along the diagonals of cells, at the expense of those through faces. All coefficients
    are then positive, and so are the probabilities. Elsewhere mixed derivatives are central differences of four
    neighbours, of second order too; negative values are set to zero and counted.

    The step is stable up to ``1 / sum_i q_ii`` in the first case. In the second, the symbol of the operator is at most
    ``2 sum_i q_ii (S_i^4 + mu S_i^2 (1 - S_i^2))`` with ``S_i`` the sine of half the phase along i and mu the largest
    eigenvalue of the correlations of Q; it is never negative.
    """
    n = len(widths)
    q = Q / np.outer(widths, widths)
    off = q - np.diag(np.diag(q))
    if not np.any(off):
        return None
    left = np.diag(q) - np.sum(np.abs(off), axis=1)
    corners = np.zeros((n, n))
    if bool(np.all(left >= -1e-12 * np.max(np.diag(q)))):
        for i, j in itertools.combinations(range(n), 2):
            corners[(i, j) if off[i, j] > 0.0 else (j, i)] = abs(off[i, j])
        return Mixing(np.clip(left, 0.0, None) * widths**2, corners, 0.0, True)
    for i, j in itertools.combinations(range(n), 2):
        corners[i, j], corners[j, i] = 0.5 * off[i, j], -0.5 * off[i, j]
    deviations = np.sqrt(np.diag(q))
    scale = np.where(deviations > 0.0, deviations, 1.0)
    mu = float(np.linalg.eigvalsh(q / np.outer(scale, scale))[-1])
    excess = mu**2 / (4.0 * (mu - 1.0)) - 1.0 if mu > 2.0 else 0.0
    return Mixing(np.diag(Q).copy(), corners, excess * float(np.trace(q)), False)
