"""Integrals of functions of many variables by Gauss rules."""

from ensemble.quadrature.gauss import Integrand, gauss

__all__ = ["Integrand", "gauss"]
