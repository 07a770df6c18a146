"""A model and observations as one `Series`: the form that every method takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._check import kind_of, message, require
from ensemble._typing import Array
from ensemble.apps.kalman.array.correlated import uncorrelated
from ensemble.apps.kalman.interop.arguments import index_of, owned, real_array, with_gaps_as_nan
from ensemble.apps.kalman.model import PARTS, LinearGaussianModel
from ensemble.apps.kalman.series import (
    Series,
    check_not_infinite,
    check_samples,
    common_dtype,
    common_namespace,
    masked,
    time_first,
    wider_dtype,
)
from ensemble.scalar import Ensemble

__all__ = ["aligned"]


def aligned(
    model: LinearGaussianModel, y: Any, mask: Any, function: str, mean_dtype: Any = None, *, diffuse: bool = False,
    correlated: bool = False,
) -> Series:  # fmt: skip
    """`model` and observations `y` as a `Series`; entries where `mask` holds become missing (NaN).

    With `mean_dtype` the vectors have that type and the matrices their own. Correlated noises are made independent
    unless `correlated`. Without `diffuse`, models with diffuse states are refused.
    """
    if not isinstance(model, LinearGaussianModel):
        raise TypeError(message(function, "model", "be a LinearGaussianModel", kind_of(model)))
    if model.diffuse is not None and not diffuse:
        advice = "Give a proper prior; kalman_filter, OnlineFilter and the smoothers take diffuse ones."
        require(False, function, "model", "have no diffuse states", f"{model.diffuse.shape[-1]}", advice)
    if mask is None and mean_dtype is None and type(y) is np.ndarray:
        series = _plain_series(model, y)
        if series is not None:
            return series
    special = {name: a for name in ("S", "diffuse") if (a := getattr(model, name)) is not None}
    index = index_of(y)
    y = real_array(with_gaps_as_nan(y, function), "y", function)
    T, batch = _steps_and_batch(model, y, function)
    parts = {name: getattr(model, name) for name in PARTS}
    given = {**parts, **special, "y": y, "mask": mask}
    lifted = {name: a.n_samples for name, a in given.items() if isinstance(a, Ensemble)}
    if lifted:
        counts = {"model": max((n for name, n in lifted.items() if name not in ("y", "mask")), default=1)}
        check_samples({**counts, **{name: n for name, n in lifted.items() if name in ("y", "mask")}}, function)
    xp = common_namespace(given, function)
    of_matrix = of_vector = common_dtype(xp, (*parts.values(), *special.values(), y))
    if mean_dtype is not None:
        of_matrix = common_dtype(xp, [parts[name] for name in ("F", "Q", "H", "R", "P0")])
        of_vector = wider_dtype(xp, mean_dtype, of_matrix, function)
        names = " and ".join(special)
        require(not special, function, "mean_dtype", f"be None for a model with {names}", repr(mean_dtype))
    if mask is not None:
        y = masked(xp, y, mask, of_vector, function)

    def cast(a: Array, dtype: Any) -> Array:
        return a if a.dtype == dtype and not lifted else xp.astype(xp.asarray(a), dtype, copy=False)

    parts = {name: cast(a, of_vector if name in ("m0", "u", "d") else of_matrix) for name, a in parts.items()}
    forms = {name: time_first(xp, a, len(batch), 1 if name in "ud" else 2) for name, a in parts.items()
             if name not in ("m0", "P0")}  # fmt: skip
    check_not_infinite(y, function)
    y = owned(y)  # the result keeps it
    y = time_first(xp, cast(y, of_vector), len(batch), 1)
    if tuple(y.shape) != (T, *batch, model.ny):
        y = xp.broadcast_to(y, (T, *batch, model.ny))
    for name, tail in (("m0", 1), ("P0", 2), ("diffuse", 2)):
        if name == "diffuse" and model.diffuse is None:
            continue
        a = parts[name] if name in parts else cast(model.diffuse, of_matrix)
        missing = len(batch) + tail - len(a.shape)
        forms[name] = xp.reshape(a, (*(1,) * missing, *a.shape)) if missing else a
    series = Series(y=y, batch=batch, predict_first=model.prior_at == "before", index=index,
                    sees_exactly=model.sees_exactly, **forms)  # fmt: skip
    if model.S is None:
        return series
    S = time_first(xp, cast(model.S, of_matrix), len(batch), 2)
    return replace(series, S=S) if correlated else uncorrelated(series, S)


def _plain_series(model: LinearGaussianModel, y: np.ndarray) -> Series | None:
    """The usual case in few calls: one series and one model, in NumPy arrays of one type; None where it is another."""
    if model.batch or model.S is not None or model.diffuse is not None or y.dtype.kind != "f" or y.ndim != 2:
        return None
    parts = {name: getattr(model, name) for name in PARTS}
    if any(type(a) is not np.ndarray or a.dtype != y.dtype for a in parts.values()):
        return None
    T = len(y)
    if y.shape[1] != model.ny or T == 0 or (model.is_time_varying and model.n_steps != T) or np.isinf(y).any():
        return None
    forms = {name: a if name in ("m0", "P0") or a.ndim == (2 if name in "ud" else 3) else a[None]
             for name, a in parts.items()}  # fmt: skip
    return Series(y=owned(y), batch=(), predict_first=model.prior_at == "before", sees_exactly=model.sees_exactly,
                  **forms)  # fmt: skip


def _steps_and_batch(model: LinearGaussianModel, y: Array, function: str) -> tuple[int, tuple[int, ...]]:
    """How many steps observations have, and the batch axes of them and the model."""
    fits = len(y.shape) >= 2 and y.shape[-1] == model.ny
    length = model.n_steps if model.is_time_varying else "T"
    requirement = f"have shape (..., {length}, {model.ny})"
    require(fits, function, "y", requirement, f"shape {tuple(y.shape)}", _shape_advice(model, y))
    T = int(y.shape[-2])
    require(T > 0, function, "y", "hold one observation or more", f"shape {tuple(y.shape)}")
    fits = not model.is_time_varying or model.n_steps == T
    require(fits, function, "y", f"have {model.n_steps} steps as the model has", f"{T} steps")
    try:
        return T, np.broadcast_shapes(model.batch, tuple(y.shape[:-2]))
    except ValueError:
        seen = f"{tuple(y.shape[:-2])} for {model.batch}"
        raise ValueError(message(function, "y", "have batch axes that broadcast with the model's", seen)) from None


def _shape_advice(model: LinearGaussianModel, y: Array) -> str:
    """What to do with observations whose last axis is not that of an observation."""
    if len(y.shape) == 1 and model.ny == 1:
        return "One series is (T, 1): use y[:, None]."
    if len(y.shape) == 2 and y.shape[0] == model.ny:
        return "Time is the first axis of a series: use y.T."
    return f"The model has ny = {model.ny} (rows of H). One series is (T, ny); several are (n_series, T, ny)."
