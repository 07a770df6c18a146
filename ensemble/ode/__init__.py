"""Ensembles of ordinary differential equations: many samples in one compiled loop."""

from ensemble.ode.adjoint import OdeGradient, gradient
from ensemble.ode.ode_result import OdeError, OdeResult, OdeStatus, OdeWarning
from ensemble.ode.solve import solve
from ensemble.ode.statistics import OdeSampleStatistics, OdeTimeStatistics, sample_statistics, time_statistics
from ensemble.ode.tangents import OdeSensitivities, sensitivities

__all__ = [
    "OdeError",
    "OdeGradient",
    "OdeResult",
    "OdeSampleStatistics",
    "OdeSensitivities",
    "OdeStatus",
    "OdeTimeStatistics",
    "OdeWarning",
    "gradient",
    "sample_statistics",
    "sensitivities",
    "solve",
    "time_statistics",
]
