"""Conditions of probabilities: functions, or texts such as ``"> 0.1"``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import array_of, kind_of, message, require
from ensemble.scalar import Ensemble

__all__ = ["Condition", "holds", "threshold_of"]

Condition = str | Callable[[Ensemble], Any]

COMPARISONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


def threshold_of(condition: str, function: str) -> tuple[str, float]:
    """The comparison and the number of a text."""
    found = re.fullmatch(r"\s*(<=|>=|<|>)\s*(\S+)\s*", condition)
    try:
        number = float(found[2]) if found else None
    except ValueError:
        number = None
    if found is None or number is None or number != number:
        raise ValueError(message(function, "condition", "be a comparison with a number, as '> 0.1'", repr(condition)))
    return found[1], number


def holds(condition: Condition, values: np.ndarray, function: str) -> np.ndarray:
    """Where the condition holds among `values`, shape ``(*shape, n_samples)``: bools, samples last."""
    if isinstance(condition, str):
        comparison, number = threshold_of(condition, function)
        result: np.ndarray = COMPARISONS[comparison](values, number)
        return result
    if not callable(condition):
        wanted = "be a function of an Ensemble, or a text as '> 0.1'"
        raise TypeError(message(function, "condition", wanted, kind_of(condition)))
    found = condition(Ensemble(values))
    plain = to_numpy(found.samples) if isinstance(found, Ensemble) else found
    mask = array_of(plain, function, "condition", "give a bool Ensemble")
    seen = f"dtype {mask.dtype}, shape {mask.shape}"
    good = mask.dtype == np.bool_ and mask.ndim > 0 and mask.shape[-1] == values.shape[-1]
    require(good, function, "condition", "give a bool Ensemble", seen, "Compare, as in lambda y: y > 0.1.")
    return mask
