"""What a user gives for an input, as a `Variable`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import message, require
from ensemble.scalar import Ensemble
from ensemble.uq.inputs.univariate import FrozenDistribution, OwnDistribution
from ensemble.uq.inputs.variable import Constant, Variable
from ensemble.uq.inputs.vector import JointNormal, VectorVariable

__all__ = ["as_variable"]

KINDS = "be a distribution, a list of distributions, a field, a number or an array"


def as_variable(value: Any, name: str) -> Variable:
    """The variable that `value` describes; errors call it `name`."""
    if isinstance(value, Variable):
        return value
    if isinstance(value, Ensemble):
        advice = "Its samples are one draw of it; give its distribution, or give points with sampler=uq.Points(...)."
        raise TypeError(message("Inputs", name, KINDS, "an Ensemble", advice))
    if isinstance(value, int | float | complex | np.generic | np.ndarray):
        return Constant(value, name)
    if isinstance(value, list | tuple):
        return of_list(value, name)
    if hasattr(value, "dist") and hasattr(value, "ppf"):
        return FrozenDistribution(value, name)
    if hasattr(value, "shapes") and hasattr(value, "rvs") and callable(value):
        advice = f"Freeze it with its parameters ({value.shapes}, loc, scale), as in stats.{value.name}(...)."
        require(not value.shapes, "Inputs", name, "be a frozen distribution", f"stats.{value.name}", advice)
        return FrozenDistribution(value(), name)
    if hasattr(value, "mean") and hasattr(value, "cov_object"):
        return JointNormal(value, name)
    if callable(getattr(value, "icdf", None)) or callable(getattr(value, "ppf", None)):
        return OwnDistribution(value, name)
    advice = "An object of your own needs a method ppf(u)."
    raise TypeError(message("Inputs", name, KINDS, f"a {type(value).__name__}", advice))


def of_list(values: Any, name: str) -> Variable:
    """A constant vector where all are numbers, a vector of distributions else."""
    numbers = all(isinstance(value, int | float | complex | np.generic | np.ndarray | list | tuple) for value in values)
    if numbers:
        return Constant(values, name)
    return VectorVariable([as_variable(value, f"{name}[{k}]") for k, value in enumerate(values)], name)
