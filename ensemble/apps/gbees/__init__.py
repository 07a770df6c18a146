"""Grid-based Bayesian estimation exploiting sparsity (GBEES): a density advected by a drift on a sparse, moving grid.

The method is described in `README.md`, the design in `NOTES.md`.
"""

from ensemble.apps.gbees.analysis.comparison import (
    Comparison,
    bhattacharyya,
    binned,
    compare,
    kernel_density,
    l1_distance,
)
from ensemble.apps.gbees.analysis.distribution import Regions, active, density, highest_density_regions, positions
from ensemble.apps.gbees.analysis.marginals import Marginal, marginal
from ensemble.apps.gbees.analysis.monte_carlo import draw, propagate
from ensemble.apps.gbees.analysis.plots import legend_handles, plot_cells, plot_isosurfaces, plot_marginals, plot_region
from ensemble.apps.gbees.cells import Cells
from ensemble.apps.gbees.engines.engine import Steps
from ensemble.apps.gbees.errors import GridError, GridWarning
from ensemble.apps.gbees.frames import project, transferred
from ensemble.apps.gbees.gbees import Gbees
from ensemble.apps.gbees.io.formats import (
    GaussianFile,
    Points,
    read_binary,
    read_gaussian,
    read_text,
    write_binary,
    write_gaussian,
    write_text,
)
from ensemble.apps.gbees.io.records import SavedRun
from ensemble.apps.gbees.problem import Drift, Problem
from ensemble.apps.gbees.run.recorded_run import RecordedRun
from ensemble.apps.gbees.systems.astrodynamics import cr3bp, jacobi_constant, pcr3bp, range_angle_rate, two_body
from ensemble.apps.gbees.systems.configurations import Configuration, Measurement, configuration
from ensemble.apps.gbees.systems.lorenz import lorenz63, lorenz96
from ensemble.apps.gbees.systems.oscillators import aizawa, duffing

Recording = SavedRun  # the former name

__all__ = [
    "Cells",
    "Comparison",
    "Configuration",
    "Drift",
    "GaussianFile",
    "Gbees",
    "GridError",
    "GridWarning",
    "Marginal",
    "Measurement",
    "Points",
    "Problem",
    "RecordedRun",
    "Regions",
    "SavedRun",
    "Steps",
    "active",
    "aizawa",
    "bhattacharyya",
    "binned",
    "compare",
    "configuration",
    "cr3bp",
    "density",
    "draw",
    "duffing",
    "highest_density_regions",
    "jacobi_constant",
    "kernel_density",
    "l1_distance",
    "legend_handles",
    "lorenz63",
    "lorenz96",
    "marginal",
    "pcr3bp",
    "plot_cells",
    "plot_isosurfaces",
    "plot_marginals",
    "plot_region",
    "positions",
    "project",
    "propagate",
    "range_angle_rate",
    "read_binary",
    "read_gaussian",
    "read_text",
    "transferred",
    "two_body",
    "write_binary",
    "write_gaussian",
    "write_text",
]
