"""Smoothed-aggregation multigrid, one hierarchy for all samples."""

from ensemble.multigrid.hierarchy import Hierarchy, Level, smoothed_aggregation
from ensemble.multigrid.relaxation import Chebyshev

__all__ = ["Chebyshev", "Hierarchy", "Level", "smoothed_aggregation"]
