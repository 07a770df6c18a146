"""Grid-based Bayesian estimation exploiting sparsity (GBEES): a density carried by a drift on a moving grid."""

from ensemble.apps.gbees.cells import Cells
from ensemble.apps.gbees.engine import Steps
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.gbees import Gbees
from ensemble.apps.gbees.problem import Drift, Problem
from ensemble.apps.gbees.systems import lorenz63, lorenz96

__all__ = ["Cells", "Drift", "Gbees", "GridError", "Problem", "Steps", "lorenz63", "lorenz96"]
