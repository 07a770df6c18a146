"""Numerical differentiation formulas of orders 1 to 5 with steps of quasi-constant length: their numbers.

Shampine, Reichelt (1997), The MATLAB ODE Suite, SIAM J. Sci. Comput. 18(1), 1-22, tables 1 and 2. The steps themselves,
for many samples at once, are in `ode/bdf.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ensemble.ode.methods.method import Method
from ensemble.ode.system import System

__all__ = ["ALPHA", "BDF", "ERROR", "GAMMA", "MOST_ORDER"]

MOST_ORDER = 5

KAPPA = np.array([0.0, -0.1850, -1.0 / 9.0, -0.0823, -0.0415, 0.0])

GAMMA = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, MOST_ORDER + 1))])
"""By order k: the sum of 1/j up to k."""

ALPHA = (1.0 - KAPPA) * GAMMA

ERROR = KAPPA * GAMMA + 1.0 / np.arange(1, MOST_ORDER + 2)
"""By order: the local error over the difference that follows."""


def _step(system: System, t: Any, h: Any, y: Sequence[Any], carried: Sequence[Any], p: Sequence[Any]) -> NoReturn:
    raise NotImplementedError("bdf: steps of scalars")


BDF = Method("bdf", MOST_ORDER, None, _step, needs_graph=True, own_step=True)
