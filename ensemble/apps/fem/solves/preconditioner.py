"""Preconditioners of the random diffusion problem: the options, and the hierarchies kept between solves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import DTypeLike

from ensemble import _check
from ensemble._keywords import explains_construction
from ensemble.apps.fem.discretization import Discretization
from ensemble.linalg import AffineMatrix, CrsMatrix
from ensemble.multigrid import (
    AffineHierarchy,
    AggregationHierarchy,
    Hierarchy,
    ScaledHierarchy,
    smoothed_aggregation,
)
from ensemble.scalar import Ensemble

__all__ = ["HierarchyCache", "Multigrid", "require_operator"]

OPERATORS = ("stored", "affine", "matrix-free")
MATRICES = ("sample", "mean")


@explains_construction("Multigrid")
@dataclass(frozen=True, kw_only=True)
class Multigrid:
    """Options of the preconditioner of `RandomDiffusion.solve`: a V-cycle of smoothed aggregation.

    Parameters
    ----------
    matrix : {"sample", "mean"}, optional
        Which matrix the hierarchy is built of. "sample", the default of stored matrices: each sample's own (for affine
        matrices with the prolongator of the mean). "mean", the default of the other operators: that of the mean
        diffusivity, set up once for every later call and scaled to each sample by its diagonal
        (`scaled_aggregation`); a matrix-free operator has no other.
    dtype : float32 or float64, optional
        Type that the V-cycle computes in; by default float32 where that serves a sample, see `smoothed_aggregation`.

    Raises
    ------
    ValueError
        If an argument is none of those.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.apps.fem import RandomDiffusion
    >>> RandomDiffusion(4).solve(np.zeros(5), preconditioner=Multigrid(matrix="mean", dtype=np.float64)).converged
    array([ True])
    """

    matrix: str | None = None
    dtype: DTypeLike | None = None

    def __post_init__(self) -> None:
        if self.matrix is not None:
            _check.one_of(self.matrix, MATRICES, "Multigrid", "matrix")
        if self.dtype is not None:
            object.__setattr__(self, "dtype", _check.floating(self.dtype, "Multigrid", "dtype"))


def require_operator(operator: str, preconditioner: Multigrid | None, discretization: Discretization) -> Multigrid:
    """The preconditioner for an operator, its matrix chosen, or an error if the choices do not go together."""
    name, advice = "RandomDiffusion.solve", "Use operator='stored'."
    _check.one_of(operator, OPERATORS, name, "operator")
    options = Multigrid() if preconditioner is None else preconditioner
    _check.require_type(options, Multigrid, name, "preconditioner", "be a Multigrid", "Multigrid(matrix='mean')?")
    if operator != "stored":
        source = discretization.source
        _check.require(
            source == 0.0, name, "operator", "be 'stored' where there is a source, whose matrix depends on u",
            f"{operator!r} with source = {source:g}", advice,
        )  # fmt: skip
        wanted = "be 'stored' where there is advection"
        _check.require(not discretization.has_advection, name, "operator", wanted, f"{operator!r}", advice)
    if operator == "affine":
        _check.require(
            not discretization.lognormal, name, "operator", "be 'stored' or 'matrix-free' for a lognormal coefficient",
            "'affine'", "Its matrix is not affine in y.",
        )  # fmt: skip
    if operator == "matrix-free":
        wanted = "have matrix='mean' for operator='matrix-free'"
        _check.require(options.matrix != "sample", name, "preconditioner", wanted, repr(options), advice)
    default = "sample" if operator == "stored" else "mean"
    return Multigrid(matrix=options.matrix or default, dtype=options.dtype)


class HierarchyCache:
    """The hierarchies that serve every ensemble of one problem, one for each data type, made when first needed."""

    def __init__(self, discretization: Discretization) -> None:
        self.discretization = discretization
        self._mean: dict[Any, AggregationHierarchy] = {}
        self._affine: dict[Any, AffineHierarchy] = {}

    def preconditioner(self, options: Multigrid, A: Any, stored: dict[Any, Hierarchy]) -> Any:
        """The preconditioner of the matrices `A`; `stored` holds the hierarchies of earlier stored ones."""
        if options.matrix == "mean":
            return ScaledHierarchy.of(A, self.mean(options.dtype))
        if isinstance(A, AffineMatrix):
            return self.affine(A, options.dtype)
        if options.dtype in stored:
            return stored[options.dtype].update(A)
        stored[options.dtype] = smoothed_aggregation(A, dtype=options.dtype)
        return stored[options.dtype]

    def mean(self, dtype: Any) -> AggregationHierarchy:
        """The hierarchy of the mean diffusivity."""
        if dtype not in self._mean:
            mean = CrsMatrix(self.discretization.graph, self.discretization.mean_values)
            hierarchy = smoothed_aggregation(mean, dtype=dtype, reorder=False)
            assert isinstance(hierarchy, AggregationHierarchy)
            self._mean[dtype] = hierarchy
        return self._mean[dtype]

    def affine(self, A: AffineMatrix, dtype: Any) -> AffineHierarchy:
        """The affine hierarchy, with the coefficients of `A`."""
        if dtype not in self._affine:
            whole = AffineMatrix(A.graph, self.discretization.affine_terms[0], Ensemble(A.coefficients))
            hierarchy = smoothed_aggregation(whole, dtype=dtype)
            assert isinstance(hierarchy, AffineHierarchy)
            self._affine[dtype] = hierarchy
        return self._affine[dtype].update(A)
