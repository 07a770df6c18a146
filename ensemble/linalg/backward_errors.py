"""Backward errors by which solutions of factorisations are judged."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.krylov.backward_error import backward_error
from ensemble.linalg.crs_matrix import CrsMatrix

__all__ = ["error_limit", "larger_error"]

ROUNDOFFS = 450.0
"""Backward error of a product, in units of rounding, above which a sample of larger growth is solved with exchanges."""


def error_limit(dtype: Any) -> float:
    """The backward error up to which solutions with factors of a type are taken."""
    return ROUNDOFFS * float(np.finfo(dtype).eps)


def larger_error(A: CrsMatrix, x: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The larger of the backward errors by rows and by entries, per sample of x and b, shape (n, n_samples)."""
    with np.errstate(all="ignore"):
        _, by_rows, by_entries, _ = backward_error(*A.arrays, x, b, x[:0])
        larger: np.ndarray = np.maximum(by_rows, by_entries)
    return larger
