"""Integrals of functions of many variables by Gauss rules."""

from ensemble.quadrature.gauss import gauss

__all__ = ["gauss"]
