"""Backward errors by which solutions of factorisations are judged."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.krylov.backward_error import backward_error
from ensemble.linalg.crs_matrix import CrsMatrix

__all__ = ["error_limit", "larger_error", "magnitudes_of"]

ROUNDOFFS = 450.0
"""Backward error of a product, in units of rounding, above which a sample of larger growth is solved with exchanges."""


def error_limit(dtype: Any) -> float:
    """The backward error up to which solutions with factors of a type are taken."""
    return ROUNDOFFS * float(np.finfo(dtype).eps)


def larger_error(A: CrsMatrix, x: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The larger of the backward errors by rows and by entries, per sample of x and b, shape (n, n_samples)."""
    with np.errstate(all="ignore"):
        if x.dtype.kind == "c":
            return _larger_complex_error(A, x, b)
        _, by_rows, by_entries, _ = backward_error(*A.arrays, x, b, x[:0])
        larger: np.ndarray = np.maximum(by_rows, by_entries)
    return larger


def _larger_complex_error(A: CrsMatrix, x: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same for complex numbers, by products: NaN where a number is not finite."""
    magnitudes, size_x, size_b = CrsMatrix(A.graph, magnitudes_of(A.values)), magnitudes_of(x), magnitudes_of(b)
    size_r = magnitudes_of(b - A.apply(x))
    rows = magnitudes.apply(np.ones(x.shape, size_x.dtype)) * size_x.max(axis=0, initial=0.0) + size_b
    entries = magnitudes.apply(size_x) + size_b
    larger = size_r / np.minimum(rows, entries)
    larger = np.where(size_r == 0.0, 0.0, larger) + (rows - rows)
    found: np.ndarray = larger.max(axis=0, initial=0.0)
    return found


def magnitudes_of(numbers: np.ndarray) -> np.ndarray:
    """Magnitudes of complex numbers, with bits that do not depend on the place in the array, as ``numpy.abs`` has."""
    found: np.ndarray = np.hypot(numbers.real, numbers.imag)
    return found
