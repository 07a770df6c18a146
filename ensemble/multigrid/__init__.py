"""Multigrid, one hierarchy for all samples: smoothed aggregation, and reduction for nonsymmetric matrices."""

from ensemble.multigrid.affine import AffineHierarchy
from ensemble.multigrid.hierarchy import Hierarchy, Level
from ensemble.multigrid.reduction_hierarchy import ReductionHierarchy, approximate_ideal_restriction
from ensemble.multigrid.relaxation import Chebyshev
from ensemble.multigrid.scaled import ScaledHierarchy, scaled_aggregation
from ensemble.multigrid.setup import smoothed_aggregation

__all__ = [
    "AffineHierarchy",
    "Chebyshev",
    "Hierarchy",
    "Level",
    "ReductionHierarchy",
    "ScaledHierarchy",
    "approximate_ideal_restriction",
    "scaled_aggregation",
    "smoothed_aggregation",
]
