"""Multigrid, one hierarchy for all samples: smoothed aggregation, and reduction for nonsymmetric matrices."""

from ensemble.multigrid.affine import AffineHierarchy
from ensemble.multigrid.aggregation_hierarchy import AggregationHierarchy, Level
from ensemble.multigrid.gauss_seidel import GaussSeidel
from ensemble.multigrid.hierarchy import Hierarchy
from ensemble.multigrid.jacobi import Jacobi
from ensemble.multigrid.reduction_hierarchy import ReductionHierarchy, approximate_ideal_restriction
from ensemble.multigrid.relaxation import Chebyshev
from ensemble.multigrid.reordered import ReorderedHierarchy
from ensemble.multigrid.rigid_body import rigid_body_modes
from ensemble.multigrid.scaled import ScaledHierarchy, scaled_aggregation
from ensemble.multigrid.setup import smoothed_aggregation
from ensemble.multigrid.strength import EvolutionStrength, SymmetricStrength

__all__ = [
    "AffineHierarchy",
    "AggregationHierarchy",
    "Chebyshev",
    "EvolutionStrength",
    "GaussSeidel",
    "Hierarchy",
    "Jacobi",
    "Level",
    "ReductionHierarchy",
    "ReorderedHierarchy",
    "ScaledHierarchy",
    "SymmetricStrength",
    "approximate_ideal_restriction",
    "rigid_body_modes",
    "scaled_aggregation",
    "smoothed_aggregation",
]
