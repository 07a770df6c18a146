"""One observation of an `OnlineFilter`, as it is given and as its state takes it."""

from __future__ import annotations

import math
from typing import Any

from ensemble._backend import array_namespace
from ensemble._check import require
from ensemble._typing import Array
from ensemble.apps.kalman.interop.arguments import is_pandas, real_array, with_gaps_as_nan
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = ["INFINITE", "entries", "observation", "refuse", "shallow"]

INFINITE = (math.inf, -math.inf)


def entries(y: Any) -> Array:
    """One observation as an array; a row of a pandas table is a Series."""
    values = with_gaps_as_nan(y, "OnlineFilter")
    if is_pandas(y) and len(y.shape) == 1:
        values = values[:, 0]
    return real_array(values, "y", "OnlineFilter")


def refuse(y: Any, shape: tuple[int, ...]) -> None:
    seen = f"shape {tuple(y.shape)}" if tuple(y.shape) != shape else "infinity in it"
    require(tuple(y.shape) == shape, "OnlineFilter", "y", f"have shape {shape}", seen)
    require(False, "OnlineFilter", "y", "be finite, or NaN where missing", seen, "Missing is NaN.")


def observation(series: Series, y: Any) -> Array:
    """One observation of shape (*batch, ny), which the caller may write to again."""
    y = entries(y)
    shape = (*series.batch, series.y.shape[-1])
    xp = array_namespace(*(a for a in (y, series.y) if isinstance(a, Ensemble)), y, series.y)
    y = xp.astype(xp.asarray(y), series.y.dtype, copy=True)
    values = y.samples if isinstance(y, Ensemble) else y
    of_values = array_namespace(values)
    if tuple(y.shape) != shape or bool(of_values.any(of_values.isinf(values))):
        refuse(y, shape)
    return y


def shallow(state: Any) -> Any:
    """A copy with the same arrays; `copy.copy` takes four times as long."""
    made = object.__new__(type(state))
    made.__dict__.update(state.__dict__)
    return made
