"""Finite elements with random coefficients; `README.md` in this folder describes the method."""

from ensemble.apps.fem.diffusion_operator import DiffusionOperator
from ensemble.apps.fem.karhunen_loeve import KarhunenLoeve, exponential_covariance
from ensemble.apps.fem.mesh import HexMesh
from ensemble.apps.fem.random_diffusion import DiffusionResult, RandomDiffusion
from ensemble.apps.fem.solves.preconditioner import Multigrid

__all__ = [
    "DiffusionOperator",
    "DiffusionResult",
    "HexMesh",
    "KarhunenLoeve",
    "Multigrid",
    "RandomDiffusion",
    "exponential_covariance",
]
