"""Norms of vectors per sample, and the units in which their squares stay in the range of numbers."""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._kernels.krylov.vectors import dot
from ensemble._kernels.sparse.complex_numbers import is_complex, real_parts
from ensemble._kernels.sparse.row_sums import space_in_force
from ensemble._typing import Array


def norms(vectors: Array) -> np.ndarray:
    """Compute the 2-norm of each sample, float64 on the host."""
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
    most = largest(b)
    known = np.isfinite(most) & (most > 0.0)
    if coupled:
        most = np.full_like(most, most[known].max(initial=0.0))
        odd, known = np.full_like(odd, odd[known].any()), most > 0.0
    if not (odd & known).any():
        return None
    return np.where(odd & known, np.ldexp(1.0, np.frexp(most)[1] - 1), 1.0)


def in_units(vectors: Array, units: np.ndarray) -> Array:
    """Divide each sample by its unit."""
    unit = _like(units, vectors)
    with np.errstate(all="ignore"):
        return _but_of_ones(vectors, vectors / unit, unit)


def from_units(vectors: Array, units: np.ndarray) -> Array:
    """Multiply each sample by its unit."""
    unit = _like(units, vectors)
    with np.errstate(all="ignore"):
        return _but_of_ones(vectors, vectors * unit, unit)


def _like(units: np.ndarray, vectors: Array) -> Array:
    """Convert units to the type and library of `vectors`."""
    return asarray_like(units.astype(str(vectors.dtype).split(".")[-1]), vectors)


def _but_of_ones(vectors: Array, scaled: Array, unit: Array) -> Array:
    """Keep `vectors` where the unit is one: a complex product with one changes infinities and signs of zeros."""
    return array_namespace(scaled).where(unit == 1, vectors, scaled) if is_complex(scaled) else scaled


def largest(vectors: Array) -> np.ndarray:
    """Compute the largest magnitude of each sample, float64 on the host; zero without rows."""
    xp = array_namespace(vectors)
    most = to_float64(xp.max(xp.abs(vectors), axis=0)) if vectors.shape[0] else np.zeros(vectors.shape[1])
    return space_in_force().largest(most)


def any_row(flags: Array) -> np.ndarray:
    """Mark samples that have a row where `flags`, shape (n, n_samples), is true."""
    return space_in_force().any(to_numpy(array_namespace(flags).any(flags, axis=0)))


def to_float64(values: Array) -> np.ndarray:
    """Copy real parts of a kernel's inner products to the host as float64."""
    return np.asarray(real_parts(to_numpy(values)), np.float64)


def to_double(values: Array) -> np.ndarray:
    """Copy a kernel's inner products to the host as float64, complex ones as complex128."""
    values = to_numpy(values)
    return np.asarray(values, np.complex128 if is_complex(values) else np.float64)


def fetched(*arrays: Array) -> list[np.ndarray]:
    """Copy arrays of one shape to the host as float64, from a device in one transfer."""
    if len(arrays) == 1 or all(isinstance(array, np.ndarray) for array in arrays):
        return [to_float64(array) for array in arrays]
    return list(to_float64(array_namespace(*arrays).stack(arrays)))


def with_zeros(array: Array, which: np.ndarray) -> Array:
    """Set the samples of `which` to zero in a copy of `array`."""
    xp = array_namespace(array)
    return xp.where(asarray_like(which, array), xp.zeros_like(array), array)
