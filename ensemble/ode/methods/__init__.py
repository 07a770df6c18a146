"""Methods of integration, by name; a step is a function of scalars (`method.Method`)."""

from __future__ import annotations

from ensemble._check import one_of
from ensemble.ode.methods.bdf import BDF
from ensemble.ode.methods.dop853 import DOP853
from ensemble.ode.methods.method import Method
from ensemble.ode.methods.rodas4 import RODAS4
from ensemble.ode.methods.runge_kutta import EULER, RK4
from ensemble.ode.methods.stochastic import EULER_MARUYAMA, MILSTEIN
from ensemble.ode.methods.symplectic import LEAPFROG, YOSHIDA4
from ensemble.ode.methods.taylor import taylor_method
from ensemble.ode.methods.tsit5 import TSIT5

ALL = (
    EULER,
    RK4,
    TSIT5,
    DOP853,
    LEAPFROG,
    YOSHIDA4,
    RODAS4,
    BDF,
    taylor_method(1e-6, 1e-9),
    EULER_MARUYAMA,
    MILSTEIN,
)

METHODS: dict[str, Method] = {method.name: method for method in ALL}
"""Every method by its name; "taylor" for the default tolerances."""


def method_of(name: str, rtol: float = 1e-6, atol: float = 1e-9) -> Method:
    """The method of a name, for tolerances that are known numbers.

    Only "taylor" depends on them. Where they differ between samples, it takes the smallest.

    Raises
    ------
    ValueError
        If there is no such method.
    """
    one_of(name, tuple(METHODS), "ode.solve", "method")
    return taylor_method(rtol, atol) if name == "taylor" else METHODS[name]
