"""Ensembles of ordinary differential equations: many samples in one compiled loop."""

from ensemble.ode.adjoint import OdeGradient, gradient
from ensemble.ode.result import OdeError, OdeResult, OdeStatus, OdeWarning
from ensemble.ode.tangents import OdeSensitivities, sensitivities
from ensemble.ode.solve import solve

__all__ = ["OdeError", "OdeGradient", "OdeResult", "OdeSensitivities", "OdeStatus", "OdeWarning", "gradient", "sensitivities", "solve"]
