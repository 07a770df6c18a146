"""Hierarchies in single precision of matrices in double precision: the range of their numbers, and when they suffice.

Values enter single precision as ``unit * a_ij``, `unit` a power of two for each sample that scales its largest
diagonal entry into [1, 2): an exact change of units, so that a matrix of any magnitude fits. What may not fit is the
ratio of two entries of one sample, and a small eigenvalue may be lost: rounding moves each by 6e-8 of the
largest. Both are measured, sample by sample, and samples that fail are held in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.multigrid.measures import too_small
from ensemble._kernels.multigrid.scaling import entry_units, narrowed
from ensemble._kernels.sparse.crs import spmv_transpose
from ensemble._kernels.sparse.row_sums import in_space
from ensemble._typing import Array
from ensemble.linalg import BcrsMatrix, CrsMatrix, SymmetricCrsMatrix

__all__ = ["amplification", "in_single_precision", "relative_energy", "single_precision_serves"]

LARGEST_RATIO = 2.0**80
"""Largest ratio of two diagonal entries of a sample: its inverse, and squares of its root, are normal float32."""

SMALLEST_ENERGY = 1e-2
"""Smallest energy of a smoothed basis vector, over that of its entries one by one, that rounding does not change.

A basis vector sums up to some hundred products of relative error 6e-8: at this ratio its energy is right to 1e-4.
"""

LARGEST_INVERSE = 1e3
"""Largest entry of the coarsest inverse times the matrix's own diagonal entry; the condition number, without units."""

LARGEST_GROWTH = 2.0**22
"""Largest growth of a rounding error from the finest level to the coarsest solution: 2^-24 becomes a quarter.

It is the inverse's amplification over the product of all levels' energies, a bound that errors of either sign stay well
below: a plate of 20000 by 20 nodes is at 1e7 and solved in as many iterations as in double precision, a chain of 100000
is at 1e8 and not solved.
"""


def in_single_precision(A: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """`A` in float32, its unit, and which samples fit: the last two one value per sample, on the host."""
    xp = array_namespace(A.values)
    diagonal = A.diagonal().samples  # a new array: its memory is used for the absolute values
    size = xp.abs(diagonal, out=diagonal)
    with in_space(A.space):
        units = entry_units(size, asarray_like(np.ones(A.n_samples), A.values), None)[0]
    unit, fits = to_numpy(units), ~A.space.any(too_small(size, units, 1.0 / LARGEST_RATIO))
    wide = A.flat_values if isinstance(A, BcrsMatrix) else A.values
    values = empty_like(wide, dtype=xp.float32)
    narrowed(wide, units, values)
    return A.with_flat_values(values) if isinstance(A, BcrsMatrix) else A.with_values(values), unit, fits


def relative_energy(A: Any, T: CrsMatrix, coarse: CrsMatrix) -> np.ndarray:
    """The smallest energy of a basis vector over that of its entries one by one: one value per sample, 1 at most.

    The diagonal of the Galerkin matrix `coarse` of `A` over ``sum_i T_iJ^2 a_ii``: where it is small, `coarse` holds
    differences of almost equal numbers. `T` is the same for all samples.
    """
    squares = asarray_like(to_numpy(T.values).astype(A.dtype) ** 2, A.values)
    alone = spmv_transpose(*T.graph.transposed_arrays_on(A.values), squares, A.diagonal().samples, None)
    alone, own = to_numpy(alone), to_numpy(coarse.diagonal().samples)
    with np.errstate(all="ignore"):
        ratio = np.where(alone == 0, np.ones_like(alone), own / alone)
    smallest: np.ndarray = np.minimum(np.min(ratio, axis=0).astype(np.float64), 1.0)
    return smallest


def amplification(A: CrsMatrix | BcrsMatrix | SymmetricCrsMatrix, inverse: Array) -> np.ndarray:
    """The largest entry ``a_ii (A^-1)_ii`` of the coarsest level: one value per sample, at least 1.

    Infinity where `inverse` is not that of a positive definite matrix: a pseudo-inverse has a trace of A A^-1 below n.
    """
    n = A.shape[0]
    if n == 0:
        return np.ones(A.n_samples)
    A = A if isinstance(A, CrsMatrix) else A.to_crs()
    xp = array_namespace(inverse)
    at = asarray_like(A.graph.row_of_entry.astype(np.int64) * n + A.graph.indices.astype(np.int64), inverse)
    flat = xp.reshape(inverse, (n * n, inverse.shape[2]))
    trace = np.sum(to_numpy(A.values) * to_numpy(xp.take(flat, at, axis=0)), axis=0)
    own = to_numpy(xp.take(flat, asarray_like(np.arange(n) * (n + 1), inverse), axis=0))
    size = to_numpy(A.diagonal().samples) * own
    largest, smallest = (most(size, axis=0).astype(np.float64) for most in (np.max, np.min))
    definite = (smallest >= 0.5) & (np.abs(n - trace) < 0.5)
    return np.where(definite, np.maximum(largest, 1.0), np.inf)


def single_precision_serves(fits: np.ndarray, energies: list[np.ndarray], amplified: np.ndarray | None) -> np.ndarray:
    """Which samples single precision serves: by range, by the energies of each level, by the coarsest inverse."""
    kept = np.ones(fits.shape) if amplified is None else 1.0 / amplified
    accepted = fits & (kept >= 1.0 / LARGEST_INVERSE)
    for energy in energies:
        with np.errstate(invalid="ignore"):  # of a broken sample over processes it is -infinity
            kept = kept * energy
        accepted = accepted & (energy >= SMALLEST_ENERGY)
    return accepted & (kept >= 1.0 / LARGEST_GROWTH)
