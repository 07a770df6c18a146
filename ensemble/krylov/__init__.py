"""Krylov, direct and Newton methods, per sample or coupled; initial guesses, and groups of samples."""

from ensemble.krylov.bicgstab import bicgstab
from ensemble.krylov.cg import cg
from ensemble.krylov.direct import DirectResult, direct
from ensemble.krylov.gmres import gmres
from ensemble.krylov.grouping import SampleGroups, anisotropy, group_samples, predict_iterations
from ensemble.krylov.minres import minres
from ensemble.krylov.newton import NewtonResult, newton
from ensemble.krylov.result import SolveError, SolveResult, Status, TracedResult
from ensemble.krylov.warm_start import WarmStart

__all__ = [
    "DirectResult",
    "NewtonResult",
    "SampleGroups",
    "SolveError",
    "SolveResult",
    "Status",
    "TracedResult",
    "WarmStart",
    "anisotropy",
    "bicgstab",
    "cg",
    "direct",
    "gmres",
    "group_samples",
    "minres",
    "newton",
    "predict_iterations",
]
