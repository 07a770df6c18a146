"""Norms of vectors per sample, and the units in which their squares stay in the range of numbers."""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._kernels.krylov.vectors import dot
from ensemble._typing import Array
from ensemble.krylov._complex import squared_parts


def norms(vectors: Array) -> np.ndarray:
    """The 2-norm of each sample, float64 on the host."""
    vectors = squared_parts(vectors)
    norm: np.ndarray = np.sqrt(to_float64(dot(vectors, vectors, None)))
    return norm


def units_of(b: Array, norm: np.ndarray, coupled: bool) -> np.ndarray | None:
    """Powers of two to divide samples by whose squares leave the range of numbers, 1 for the others; None for no such.

    A right-hand side of 1e-200 has a norm of zero by its squares, and every x would satisfy the stopping test.
    Division by a power of two is exact. Coupled samples share one unit.
    """
    limits = np.finfo(b.dtype if isinstance(b, np.ndarray) else str(b.dtype).split(".")[-1])
    low, high = np.sqrt(float(limits.smallest_normal)) / limits.eps, np.sqrt(float(limits.max)) * limits.eps
    odd = ~((norm >= low) & (norm <= high))
    if not odd.any():
        return None
    xp = array_namespace(b)
    largest = to_numpy(xp.max(xp.abs(b), axis=0)).astype(np.float64) if b.shape[0] else np.zeros(b.shape[1])
    known = np.isfinite(largest) & (largest > 0.0)
    if coupled:
        largest = np.full_like(largest, largest[known].max(initial=0.0))
        odd, known = np.full_like(odd, odd[known].any()), largest > 0.0
    if not (odd & known).any():
        return None
    return np.where(odd & known, np.ldexp(1.0, np.frexp(largest)[1] - 1), 1.0)


def to_float64(values: Array) -> np.ndarray:
    """A kernel's inner products as float64 on the host."""
    return np.asarray(to_numpy(values), np.float64)


def fetched(*arrays: Array) -> list[np.ndarray]:
    """Arrays of one shape as float64 on the host, from a device in one copy."""
    if len(arrays) == 1 or all(isinstance(array, np.ndarray) for array in arrays):
        return [to_float64(array) for array in arrays]
    return list(to_float64(array_namespace(*arrays).stack(arrays)))
