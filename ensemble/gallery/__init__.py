"""Matrices and systems of differential equations to try things on."""

from ensemble.gallery.matrices import anisotropic, convection_diffusion, poisson, random_spd
from ensemble.gallery.ode_systems import (
    InitialValueProblem,
    brusselator,
    figure_eight,
    fitzhugh_nagumo,
    hires,
    lorenz63,
    lorenz96,
    pharmacokinetics,
    pleiades,
    robertson,
    van_der_pol,
)

__all__ = [
    "InitialValueProblem",
    "anisotropic",
    "brusselator",
    "convection_diffusion",
    "figure_eight",
    "fitzhugh_nagumo",
    "hires",
    "lorenz63",
    "lorenz96",
    "pharmacokinetics",
    "pleiades",
    "poisson",
    "random_spd",
    "robertson",
    "van_der_pol",
]
