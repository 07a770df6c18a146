"""Near-nullspace vectors relaxed on the matrix, the same for all samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.multigrid.gauss_seidel import gauss_seidel
from ensemble.multigrid.gauss_seidel import GaussSeidelSmoother
from ensemble.multigrid.relaxation import inverse_diagonal
from ensemble.multigrid.strength import mean_matrix


def improved_candidates(A: Any, B: np.ndarray, sweeps: int) -> np.ndarray:
    """`B` after symmetric Gauss-Seidel sweeps on ``A x = 0``, A being the mean over samples, as `mean_matrix` has it.

    The relaxed vectors, like the tentative prolongator made of them, are shared by all samples (Brezina, Falgout,
    MacLachlan, Manteuffel, McCormick, Ruge 2005, SIAM Review 47, 317-346, relax candidates likewise).
    """
    mean = mean_matrix(A)
    smoother = GaussSeidelSmoother(mean, inverse_diagonal(mean), 2 * sweeps)
    rows, starts = smoother.colours
    with np.errstate(all="ignore"):
        x = gauss_seidel(*mean.arrays, smoother.dinv, rows, starts, smoother.orders[0], np.zeros_like(B), B.copy())
        size = np.sqrt(np.sum(x**2, axis=0))
    return x if np.all(np.isfinite(x)) and np.all(size > 0.0) else B
