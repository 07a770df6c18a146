"""Methods of integration, by name; a step is a function of scalars (`method.Method`)."""

from __future__ import annotations

from ensemble.ode.methods.dop853 import DOP853
from ensemble.ode.methods.method import Method, Step
from ensemble.ode.methods.runge_kutta import EULER, RK4
from ensemble.ode.methods.symplectic import LEAPFROG, YOSHIDA4
from ensemble.ode.methods.tsit5 import TSIT5

__all__ = ["METHODS", "Method", "Step"]

METHODS: dict[str, Method] = {method.name: method for method in (EULER, RK4, TSIT5, DOP853, LEAPFROG, YOSHIDA4)}
"""Every method by its name."""
