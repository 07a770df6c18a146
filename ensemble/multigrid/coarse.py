"""The coarsest level: its choice, and its direct solver, applied to all samples at once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, to_numpy
from ensemble._compile.numba import output
from ensemble._compile.recording import aside
from ensemble._kernels.multigrid.dense import ASYMMETRY, dense_inverses, dense_product
from ensemble._kernels.sparse.complex_numbers import is_complex
from ensemble._typing import Array, Ids
from ensemble.linalg import BcrsMatrix, CrsMatrix, Factorization, SymmetricCrsMatrix
from ensemble.linalg.factorizations.factorization import upper_factorized
from ensemble.multigrid.precision import amplification

EPS = float(np.finfo(float).eps)

LARGEST_COARSEST = 500
"""Rows below which a level may be chosen as the coarsest."""

LARGEST_DENSE = 4000
"""Rows above which a coarsest level that would not coarsen further is smoothed instead of inverted."""

LEVEL_ENTRIES = 1000
"""Fixed cost of one more level (kernel launches), in stored entries of a smoothed level.

Measured again by `benchmarks diffusion-device`.
"""

FACTORIZED = 64
"""Rows from which on a coarsest matrix is factorised: below, products with the inverse are as fast as solutions."""

NEGLIGIBLE = 1 / 8
"""Cost of the dense inverse, relative to that of the finer levels, below which further levels gain nothing.

Measured again by `benchmarks multigrid`.
"""


def dense_cost(rows: int) -> float:
    """Cost of a dense inverse and ten products with it, in stored entries of a smoothed level.

    A stored entry of a smoothed level costs about 100 ns per sample on one CPU thread: its set-up and ten V-cycles. The
    inverse by LAPACK takes 0.15 ns times rows^3, per product 1 ns times rows^2.
    """
    return 1.5e-3 * rows**3 + 0.1 * rows**2


def is_coarsest(entries: list[int], rows: int, coarse_rows: int) -> bool:
    """Whether the last level, of `rows` rows, is better inverted than coarsened to `coarse_rows`.

    `entries` are the stored entries of all levels so far. Neither values nor the number of samples count: a sample has
    the levels of its scalar run.
    """
    if rows >= LARGEST_COARSEST:
        return False
    if not 0 < coarse_rows < rows:
        return True
    further = LEVEL_ENTRIES + entries[-1] + dense_cost(coarse_rows)
    return dense_cost(rows) <= max(further, NEGLIGIBLE * sum(entries[:-1]))


class CoarseSolver:
    """Direct solver of the coarsest matrices.

    On the CPU, from `FACTORIZED` rows on, LDL^T in double precision of the samples that are safely positive definite.
    Dense inverses, shape (n, n, number of them), of the others, a pseudo-inverse for a singular one; of all samples on
    a device, where there are fewer rows, where the graph is not symmetric, and of complex numbers. Which of them a
    sample has depends on the graph and its own values alone.

    Attributes
    ----------
    factors : Factorization or None
        Factors of all samples; solutions of `others` with them are not used.
    others : array of int
        The samples that have dense inverses.
    inverse : array
        Their inverses.
    """

    def __init__(self, A: CrsMatrix | BcrsMatrix | SymmetricCrsMatrix) -> None:
        matrix = A if isinstance(A, CrsMatrix) else A.to_crs()
        self.n_samples = matrix.n_samples
        self.factors, accepted = None, np.zeros(self.n_samples, bool)
        real = isinstance(matrix.values, np.ndarray) and not is_complex(matrix.values)
        if real and matrix.shape[0] >= FACTORIZED and has_symmetric_graph(matrix):
            self.factors, accepted = safely_factorized(matrix, not isinstance(A, SymmetricCrsMatrix))
        self.others = np.flatnonzero(~accepted)
        if not accepted.any():
            self.factors = None
        elif self.others.size:
            matrix = matrix.take_samples(self.others)
        empty = self.factors is not None and not self.others.size
        n, coordinates = matrix.shape[0], matrix.graph.coordinates_on(matrix.values)
        self.inverse = None if empty else dense_inverses(*coordinates, matrix.values, n, None)

    def apply(self, b: Array, out: Array) -> Array:
        """The coarse solution for a right-hand side of shape (n, n_samples)."""
        if self.factors is None:
            return dense_product(self.inverse, b, out)
        x = output(out, b.shape, b.dtype)
        aside(functools.partial(self._factored, b, x))
        return x

    def _factored(self, b: Array, x: Array) -> None:
        """`apply` with factors of some samples."""
        assert self.factors is not None
        x[...] = self.factors.apply(b.astype(np.float64, copy=False))
        if self.others.size:
            x[:, self.others] = dense_product(self.inverse, np.ascontiguousarray(b[:, self.others]), None)

    def take_samples(self, samples: Ids) -> CoarseSolver:
        """The solver of the samples named."""
        if self.n_samples == 1:
            return self
        new = object.__new__(CoarseSolver)
        samples = np.asarray(to_numpy(samples))
        samples = np.flatnonzero(samples) if samples.dtype == bool else samples
        new.n_samples, new.factors, new.inverse = samples.size, None, None
        new.others = np.flatnonzero(np.isin(samples, self.others))
        if new.others.size < samples.size:
            assert self.factors is not None
            new.factors = self.factors.take_samples(samples)
        if new.others.size:
            xp, places = array_namespace(self.inverse), np.searchsorted(self.others, samples[new.others])
            new.inverse = contiguous(xp.take(self.inverse, asarray_like(places, self.inverse), axis=2))
        return new

    def amplification(self, A: CrsMatrix | BcrsMatrix | SymmetricCrsMatrix) -> np.ndarray:
        """`precision.amplification` of the matrices that this solver was made of, one value per sample."""
        if self.factors is None:
            return amplification(A, self.inverse)
        size = A.diagonal().samples * self.factors.inverse_diagonal().samples
        largest: np.ndarray = np.maximum(size.max(axis=0).astype(np.float64), 1.0)
        if self.others.size:
            largest[self.others] = amplification(A.take_samples(self.others), self.inverse)
        return largest


@functools.singledispatch
def coarse_solver_of(A: Any) -> Any:
    """The direct solver of a coarsest matrix; matrices over several processes register their own."""
    return CoarseSolver(A)


def has_symmetric_graph(A: CrsMatrix) -> bool:
    """Whether for each stored entry the one across the diagonal is stored, and the diagonal is; worked out once."""
    graph = A.graph

    def compared() -> bool:
        indptr, indices, _ = graph.transposed
        same = np.array_equal(indptr, graph.indptr) and np.array_equal(indices, graph.indices)
        return same and bool(np.all(graph.diagonal_entries >= 0))

    return bool(graph.kept(("symmetric",), compared))


def safely_factorized(A: CrsMatrix, compare: bool) -> tuple[Factorization, np.ndarray]:
    """LDL^T in double precision, and which samples pass the tests of `dense_inverses`: positive pivots of one size.

    With `compare`, also whether entries across the diagonal are equal up to roundoff of single precision. A pivot is
    what its row adds to the rows before it; over the diagonal it has no unit.
    """
    wide = CrsMatrix(A.graph, A.values.astype(np.float64))
    factors = upper_factorized(wide)
    diagonal = wide.diagonal().samples
    with np.errstate(all="ignore"):
        pivots = 1.0 / (factors.values[factors.plan.diagonal] * diagonal[factors.plan.columns])
        accepted = (diagonal > 0).all(axis=0) & (pivots.min(axis=0) > A.shape[0] * EPS * pivots.max(axis=0))
        if compare:
            size = np.sqrt(diagonal)
            skew = np.abs(wide.values - wide.values[A.graph.transposed[2]])
            accepted &= (skew <= ASYMMETRY * size[A.graph.row_of_entry] * size[A.graph.indices]).all(axis=0)
    return factors, accepted & ~factors.broken
