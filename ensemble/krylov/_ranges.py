"""Samples that failed because squares of A M r left the range of numbers, and their systems in other units.

The size of a right-hand side is taken out before a solve (`units_of`), that of a matrix after one that failed, so that
other solves cost nothing more. A preconditioner times a power of two makes the products of the method of size one,
exactly, and leaves x and residuals in their units.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.krylov.vectors import take_samples
from ensemble._typing import Array
from ensemble.krylov._norms import largest, with_zeros
from ensemble.krylov._system import LinearSystem
from ensemble.linalg import Identity
from ensemble.linalg.linear_operator import LinearOperator


class ScaledPreconditioner(LinearOperator):
    """A preconditioner times a power of two, one per sample."""

    def __init__(self, M: LinearOperator, unit: Array) -> None:
        self.M, self.unit = M, unit
        self.shape, self.n_samples, self.takes_samples = M.shape, int(unit.shape[0]), M.takes_samples

    def workspace(self, n_samples: int) -> Any:
        """Make the workspace of the preconditioner."""
        return self.M.workspace(n_samples)

    def precondition(self, r: Array, out: Array, workspace: Any) -> Array:
        """Compute M r times the power of two in `out`."""
        z = r if isinstance(self.M, Identity) else self.M.precondition(r, out, workspace)
        out[...] = z * self.unit
        return out

    def take_samples(self, samples: Any) -> ScaledPreconditioner:
        """Take the samples named."""
        unit = array_namespace(self.unit).take(self.unit, asarray_like(np.asarray(samples), self.unit))
        return ScaledPreconditioner(self.M.take_samples(samples), unit)


def in_other_units(system: LinearSystem, failed: np.ndarray) -> tuple[LinearSystem, np.ndarray] | None:
    """Scale M of failed samples whose products A M b are far from the size of b; return their numbers, too.

    None for no such samples. Where samples cannot be taken out, the others stay, with right-hand sides of zero.
    """
    if system.coupled or not failed.any() or not system.A.shape[0]:
        return None
    numbers, takes = np.arange(failed.size), system.A.takes_samples and system.M.takes_samples
    if takes:
        numbers = np.flatnonzero(failed)
        system = taken(system, numbers)
    unit = units_of_products(system)
    far = failed[numbers] & (unit != 1.0)
    if not far.any():
        return None
    if takes:
        system, unit = taken(system, np.flatnonzero(far)), unit[far]
    else:
        system = replace(system, b=with_zeros(system.b, ~far))
    return replace(system, M=ScaledPreconditioner(system.M, like_vectors(unit, system.b))), numbers[far]


def taken(system: LinearSystem, samples: np.ndarray) -> LinearSystem:
    """Take the samples named of a system."""
    if samples.size == system.b.shape[1]:
        return system
    b, x0 = (None if v is None else take_samples(v, asarray_like(samples, v), None) for v in (system.b, system.x0))
    rtol, atol = (value[samples] if np.ndim(value) else value for value in (system.rtol, system.atol))
    A, M = system.A.take_samples(samples), system.M.take_samples(samples)
    return replace(system, A=A, M=M, b=b, x0=x0, rtol=rtol, atol=atol)


def units_of_products(system: LinearSystem) -> np.ndarray:
    """Find the power of two by which A M b has the size of b, per sample; 1 where squares of A M b are in range.

    Its root is a power of two as well.
    """
    b, A, M = system.b, system.A, system.M
    limits, n_samples = np.finfo(str(b.dtype).split(".")[-1]), b.shape[1]
    out, product, workspace = empty_like(b), empty_like(b), M.workspace(n_samples)

    def multiply(r: Array) -> np.ndarray:
        z = r if isinstance(M, Identity) else M.precondition(r, out, workspace)
        return largest(A.apply(z, product))

    most, found = largest(b), multiply(b)
    (_, size), (_, exponent) = np.frexp(most), np.frexp(found)
    if np.isfinite(found).all() and (np.abs(exponent - size) < limits.maxexp // 4).all() and (found > 0.0).all():
        return np.ones(n_samples)  # most solves that failed did not for their range
    b = b / like_vectors(np.ldexp(1.0, np.where(np.isfinite(most), size - 1, 0)), b)
    exponent, known = np.zeros(n_samples, np.int64), np.zeros(n_samples, bool)
    for shift in (0, -(limits.maxexp // 2), limits.maxexp // 2):  # the last two where A M b leaves the range
        found = multiply(b * like_vectors(np.full(n_samples, np.ldexp(1.0, shift)), b))
        new = ~known & np.isfinite(found) & (found > 0.0)
        exponent[new], known = np.frexp(found[new])[1] - shift, known | new
        if known.all():
            break
    even = np.clip(exponent + exponent % 2, 2 - limits.maxexp, limits.maxexp - 2)
    return np.where(known & (np.abs(exponent) > 3 * limits.maxexp // 8), np.ldexp(1.0, -even), 1.0)


def like_vectors(values: np.ndarray, vectors: Array) -> Array:
    """Convert one number per sample to the type and library of `vectors`."""
    return asarray_like(values.astype(str(vectors.dtype).split(".")[-1]), vectors)
