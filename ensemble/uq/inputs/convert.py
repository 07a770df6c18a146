"""What a user gives for an input, as a `Variable`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import message
from ensemble.scalar import Ensemble
from ensemble.uq.inputs.univariate import KINDS, as_univariate
from ensemble.uq.inputs.variable import Constant, Variable
from ensemble.uq.inputs.vector import JointNormal, Vector

__all__ = ["as_variable"]

NUMBERS = int | float | complex | np.generic | np.ndarray


def as_variable(value: Any, name: str) -> Variable:
    """The variable that `value` describes; errors call it `name`."""
    if isinstance(value, Variable):
        return value
    if isinstance(value, Ensemble):
        advice = "Its samples are one draw of it; give its distribution, or give points with sampler=uq.Points(...)."
        raise TypeError(message("Inputs", name, KINDS, "an Ensemble", advice))
    if isinstance(value, NUMBERS):
        return Constant(value, name)
    if isinstance(value, list | tuple):
        numbers = all(isinstance(entry, NUMBERS | list | tuple) for entry in value)
        return Constant(value, name) if numbers else Vector(value, _name=name)
    if hasattr(value, "mean") and hasattr(value, "cov_object"):
        return JointNormal(value, name)
    return as_univariate(value, name)
