"""Smoothed-aggregation multigrid, one hierarchy for all samples."""

from ensemble.multigrid.affine import AffineHierarchy
from ensemble.multigrid.hierarchy import Hierarchy, Level
from ensemble.multigrid.relaxation import Chebyshev
from ensemble.multigrid.scaled import ScaledHierarchy, scaled_aggregation
from ensemble.multigrid.setup import smoothed_aggregation

__all__ = [
    "AffineHierarchy",
    "Chebyshev",
    "Hierarchy",
    "Level",
    "ScaledHierarchy",
    "scaled_aggregation",
    "smoothed_aggregation",
]
