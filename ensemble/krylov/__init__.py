"""Krylov and Newton methods, per sample or coupled."""

from ensemble.krylov.cg import cg
from ensemble.krylov.newton import NewtonResult, newton
from ensemble.krylov.result import SolveError, SolveResult, Status

__all__ = ["NewtonResult", "SolveError", "SolveResult", "Status", "cg", "newton"]
