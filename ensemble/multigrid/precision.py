"""Hierarchies in single precision of matrices in double precision: the range of their numbers, and when to trust them.

Values enter single precision as ``unit * a_ij``, `unit` a power of two for each sample that brings its largest
diagonal entry into [1, 2): an exact change of units, so that a matrix of any magnitude fits. What may not fit is the
ratio of two entries of one sample, and what may not survive is a small eigenvalue: rounding moves each by 6e-8 of the
largest. Both are measured, sample by sample, and samples that fail are held in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, moved, to_numpy
from ensemble._kernels._memory import empty_like
from ensemble._kernels.scaling import narrowed
from ensemble._kernels.sparse import spmv_transpose
from ensemble.linalg import CrsMatrix, SymmetricCrsMatrix

__all__ = ["energies_kept", "in_single_precision", "inverse_trusted"]

SPREAD = 2.0**80
"""Largest ratio of two diagonal entries of a sample: its inverse, and squares of its root, are normal float32."""

ENERGY = 1e-2
"""Smallest energy of a smoothed basis vector, over that of its entries one by one, that rounding leaves alone.

A basis vector sums up to some hundred products of relative error 6e-8: at this ratio its energy is right to 1e-4.
"""

INVERSE = 1e3
"""Largest entry of the coarsest inverse times the matrix's own diagonal entry; the condition number, without units."""


def in_single_precision(A: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """`A` in float32, its unit, and which samples fit: the last two one value a sample, on the host."""
    xp = array_namespace(A.values)
    size = xp.abs(A.diagonal().samples)
    most = to_numpy(xp.max(size, axis=0)) if A.shape[0] else np.ones(A.n_samples)
    least = to_numpy(xp.min(xp.where(size > 0, size, xp.inf), axis=0)) if A.shape[0] else most
    known = np.isfinite(most) & (most > 0.0)
    exponent = np.where(known, np.frexp(np.where(known, most, 1.0))[1] - 1, 0)
    unit = np.ldexp(1.0, np.clip(-exponent, -1022, 1022))
    with np.errstate(all="ignore"):
        fits = ~known | (most * unit <= SPREAD * (least * unit))
    values = empty_like(A.values, dtype=xp.float32)
    narrowed(A.values, moved(unit.astype(np.float64), A.values), values)
    return type(A)(A.graph, values), unit, fits


def energies_kept(A: Any, T: CrsMatrix, coarse: CrsMatrix) -> np.ndarray:
    """Which samples of the Galerkin matrix `coarse` of `A` hold no difference of almost equal numbers.

    Judged by the diagonal of `coarse` over ``sum_i T_iJ^2 a_ii``, the energy of the tentative basis vector without its
    couplings. `T` is the same for all samples.
    """
    xp = array_namespace(A.values)
    squares = moved(to_numpy(T.values).astype(A.dtype) ** 2, A.values)
    alone = spmv_transpose(*T.graph.transposed_beside(A.values), squares, A.diagonal().samples, None)
    kept = (coarse.diagonal().samples >= ENERGY * alone) | (alone == 0)
    return to_numpy(xp.all(kept, axis=0))


def inverse_trusted(A: CrsMatrix | SymmetricCrsMatrix, inverse: Any) -> np.ndarray:
    """For which samples `inverse` is that of a well-conditioned, positive definite coarsest matrix `A`."""
    n = A.shape[0]
    if n == 0:
        return np.ones(A.n_samples, bool)
    A = A.to_crs() if isinstance(A, SymmetricCrsMatrix) else A
    xp = array_namespace(inverse)
    at = moved(A.graph.row_of_entry.astype(np.int64) * n + A.graph.indices, inverse)
    flat = xp.reshape(inverse, (n * n, inverse.shape[2]))
    rank = to_numpy(xp.sum(A.values * xp.take(flat, at, axis=0), axis=0))  # the trace of A times its inverse
    diagonal = moved(np.arange(n) * (n + 1), inverse)
    size = A.diagonal().samples * xp.take(flat, diagonal, axis=0)
    size = xp.where(A.diagonal().samples == 0, xp.ones_like(size), size)
    largest, smallest = to_numpy(xp.max(size, axis=0)), to_numpy(xp.min(size, axis=0))
    return (largest <= INVERSE) & (smallest >= 0.5) & (np.abs(n - rank) < 0.5)
