"""Smoothed aggregation of affine matrices: every level affine, the set-up done once for all samples of a study.

With a prolongator that all samples share, ``P^T (sum c_i A_i) P = sum c_i (P^T A_i P)``: the coarse matrices are affine
in the same coefficients, and their terms are made once. P is smoothed with the mean matrix and its eigenvalue estimate.
What is left to each sample is its smoother: the inverse diagonal and the bound lambda_max; and its coarsest solve.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, to_numpy
from ensemble._check import require
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.krylov.vectors import dot
from ensemble._kernels.multigrid.relaxation import power_step
from ensemble._kernels.sparse import affine as kernels
from ensemble._kernels.sparse.row_sums import in_space
from ensemble._typing import Array, DType, Ids
from ensemble.linalg import AffineMatrix
from ensemble.multigrid.aggregation_hierarchy import AggregationHierarchy, Level
from ensemble.multigrid.coarse import coarse_solver_of
from ensemble.multigrid.gauss_seidel import GaussSeidel
from ensemble.multigrid.relaxation import OperatorSmoother, inverse_diagonal, start_vector
from ensemble.scalar import Ensemble

POWER_STEPS = 10


class AffineHierarchy(AggregationHierarchy):
    """A `Hierarchy` whose matrices are affine; made by `smoothed_aggregation` of an `AffineMatrix`.

    ``update(A)`` with other coefficients recomputes what depends on them: an inverse diagonal a level, and the coarsest
    inverses.
    """

    def __init__(self, mean: AggregationHierarchy, terms: Any, dtype: DType) -> None:
        """From the hierarchy of the mean matrix in full precision, and the terms of the finest one."""
        self.mean = mean
        self.terms: list[Any] = []
        self.quotients: list[tuple[Any, Any]] = []
        shared = asarray_like(np.zeros((terms.shape[1] - 1, 1), dtype), terms)
        levels = []
        for level in mean.levels:
            stored = level.A.with_values(terms)
            P = None if level.P is None else level.P.astype(dtype)
            matrix = affine_matrix(stored.astype(dtype), Ensemble(shared))
            self.terms.append(matrix)
            if level.smoother is not None:
                self.quotients.append(rayleigh_terms(stored, level.smoother.dinv))
            levels.append(Level(matrix, level.plan, P))
            if level.plan is not None and level.P is not None:
                terms = level.plan.galerkin(stored, level.P).values
        super().__init__(levels, None, mean.smoother, mean.damping)

    def update(self, A: Any) -> AffineHierarchy:
        """Take over the coefficients of `A`, in place; returns this.

        The terms stay those that this was built for. With other values in them `A` needs a hierarchy of its own: this
        one would still lead to its solution, in more iterations.

        Raises
        ------
        ValueError
            If `A` is not an `AffineMatrix` on the graph, with the number of terms, that this was built for.
        """
        finest = self.terms[0]
        wanted = f"be like the matrix this was built for, {finest!r}"
        require(finest.has_terms_like(A), "AffineHierarchy.update", "A", wanted, repr(A),
                "Build a new one with smoothed_aggregation.")  # fmt: skip
        coefficients = A.coefficients.astype(self.dtype, copy=False)
        wide = to_numpy(A.coefficients).astype(np.float64, copy=False)
        for k, (level, matrix) in enumerate(zip(self.levels, self.terms, strict=True)):
            level.A = matrix.with_coefficients(Ensemble(coefficients))
            if k == len(self.levels) - 1 and self.mean.coarse is not None:
                self.coarse = coarse_solver_of(level.A.to_crs())
                break
            level.lambda_max = self.mean.levels[k].lambda_max * quotient(*self.quotients[k], wide)
            assert not isinstance(self.smoother, GaussSeidel)
            steps = self.smoother.coefficients(level.lambda_max)
            level.smoother = OperatorSmoother(level.A, inverse_diagonal(level.A), steps)
        return self

    def take_samples(self, samples: Ids) -> AffineHierarchy:
        """The hierarchy of the samples named; terms are shared."""
        if self.n_samples == 1:
            return self
        new = object.__new__(AffineHierarchy)
        new.mean, new.terms, new.quotients = self.mean, self.terms, self.quotients
        levels = []
        for level in self.levels:
            part = Level(level.A.take_samples(samples), level.plan, level.P)
            if level.smoother is not None:
                part.lambda_max = level.lambda_max[np.asarray(samples)]
                part.smoother = level.smoother.take_samples(part.A, np.asarray(samples))
            levels.append(part)
        coarse = self.coarse and self.coarse.take_samples(samples)
        AggregationHierarchy.__init__(new, levels, coarse, self.smoother, self.damping)
        return new


@functools.singledispatch
def affine_matrix(stored: Any, coefficients: Any) -> Any:
    """The `AffineMatrix` whose terms are the samples of `stored`; matrices over processes register their own."""
    return AffineMatrix(stored.graph, stored.values, coefficients)


def rayleigh_terms(A: Any, dinv: Array) -> tuple[np.ndarray, np.ndarray]:
    """(q . A_i q, q . D_i q) for each term, q the mean's dominant vector of D^-1 A; `A` holds terms as samples."""
    xp, n_local = array_namespace(A.values), A.local_shape[0]
    start = asarray_like(start_vector(A.shape[0])[:, None].copy(), A.values)
    scale = 1.0 / xp.sqrt(xp.sum(start**2, axis=0))
    q, z = (A.space.vector(empty_like(start, (n_local, 1))) for _ in range(2))
    q[...] = start[A.space.first : A.space.first + n_local, :]
    mean = A.with_values(contiguous(A.values[:, :1]))
    step = getattr(mean, "power_step", None) or functools.partial(power_step, *mean.arrays)
    for _ in range(POWER_STEPS):
        _, _, square = step(dinv, q, scale, z)
        scale = 1.0 / xp.sqrt(square)
        q, z = z, q
    wide = contiguous(xp.repeat(scale * q, A.n_samples, axis=1))
    with in_space(A.space):
        above = dot(wide, A.apply(wide), None)
        return to_numpy(above), to_numpy(dot(wide, A.diagonal().samples * wide, None))


def quotient(above: np.ndarray, below: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Each sample's Rayleigh quotient at the mean's dominant vector, over the mean's own: one value per sample.

    Right to first order in the change of the matrix, at the cost of m products of numbers.
    """
    top, bottom = (kernels.affine_values(terms[None, :], coefficients, None)[0] for terms in (above, below))
    with np.errstate(all="ignore"):  # a NaN stays in its sample
        ratio: np.ndarray = (top / bottom) / (above[0] / below[0])
    return ratio
