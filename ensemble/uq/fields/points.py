"""Points of a field as a user gives them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import message, real_array, require
from ensemble.scalar import Ensemble

__all__ = ["flat_points"]


def flat_points(points: Any, dimension: int, function: str) -> tuple[np.ndarray, tuple[int, ...]]:
    """Points as rows, and the shape that the user's array has without its last axis.

    In one dimension the last axis may be left out.
    """
    if isinstance(points, Ensemble):
        advice = "A field takes one set of points for all samples."
        raise TypeError(message(function, "points", "be a plain array", "an Ensemble", advice))
    array = real_array(points, function, "points", f"have {dimension} coordinates in the last axis")
    if dimension == 1 and (array.ndim < 2 or array.shape[-1] != 1):
        array = array[..., None]
    good = array.ndim >= 1 and array.shape[-1] == dimension
    require(good, function, "points", f"have {dimension} coordinates in the last axis", f"shape {np.shape(points)}")
    require(bool(np.all(np.isfinite(array))), function, "points", "be finite", "NaN or infinity")
    return array.reshape(-1, dimension), array.shape[:-1]
