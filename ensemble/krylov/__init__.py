"""Krylov and Newton methods, per sample or coupled."""

from ensemble.krylov.bicgstab import bicgstab
from ensemble.krylov.cg import cg
from ensemble.krylov.gmres import gmres
from ensemble.krylov.newton import NewtonResult, newton
from ensemble.krylov.result import SolveError, SolveResult, Status

__all__ = ["NewtonResult", "SolveError", "SolveResult", "Status", "bicgstab", "cg", "gmres", "newton"]
