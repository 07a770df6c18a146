"""The parts of a linear model from a state-space model of statsmodels, whose time index is one step earlier."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import message, require
from ensemble._typing import Array

__all__ = ["parts_of_statsmodels"]

FUNCTION = "LinearGaussianModel.from_statsmodels"

METHODS = ("extended", "unscented", "square_root", "augmented")
"""Methods that statsmodels has flags for and no code."""

MATRICES = ("design", "obs_intercept", "obs_cov", "transition", "state_intercept", "selection", "state_cov")


def parts_of_statsmodels(model: Any, params: Any) -> dict[str, Any]:
    """F, Q, H, R, u, d, m0, P0 and `diffuse` of a model with the prior at its first observation."""
    ssm: Any = getattr(model, "ssm", None)
    known = callable(getattr(model, "update", None)) and hasattr(ssm, "initialization")
    if not known:
        seen = f"a {type(model).__module__.split('.')[0]} {type(model).__name__}"
        advice = "Such are SARIMAX, UnobservedComponents, VARMAX, DynamicFactor and what derives from MLEModel."
        raise TypeError(message(FUNCTION, "model", "be a statsmodels state-space model", seen, advice))
    if params is not None:
        _update(model, params)
    initialisation = ssm.initialization
    require(initialisation is not None, FUNCTION, "model", "be initialised", "no initialisation",
            "E.g. model.initialize_approximate_diffuse() or model.ssm.initialize('stationary').")  # fmt: skip
    require(not ssm.timing_init_filtered, FUNCTION, "model", "have the initial state predicted", "filter timing")
    methods = [f"filter_{name}" for name in METHODS if getattr(ssm, f"filter_{name}", False)]
    require(not methods, FUNCTION, "model", "have a linear filter", ", ".join(methods), "Use filter_conventional.")
    given = {name: np.asarray(getattr(ssm, name)) for name in MATRICES}
    complex_ones = [name for name, a in given.items() if np.iscomplexobj(a)]
    require(not complex_ones, FUNCTION, "model", "be real", f"complex {', '.join(complex_ones)}")
    H, d, R, F, u, B, Q = (np.moveaxis(given[name].astype(np.float64), -1, 0) for name in MATRICES)
    noise = B @ Q @ B.mT
    m0, unbounded, P0 = initialisation(model=ssm)
    found = None
    if getattr(model, "initialization_method", None) == "concentrated":
        found = _with_concentrated_start(model, params)
        m0 = found.initial_state
    scale = _scale(ssm, found)
    parts = {
        "H": H, "d": d, "R": scale * _symmetric(R), "F": _later(F), "u": _later(u),
        "Q": _later(scale * _symmetric(noise)),
        "m0": np.array(m0, dtype=np.float64), "P0": scale * _symmetric(np.asarray(P0, dtype=np.float64)),
    }  # fmt: skip
    parts = {name: a[0] if name not in ("m0", "P0") and _is_constant(a) else a for name, a in parts.items()}
    # Statsmodels' diffuse part is the identity on blocks of states.
    return {**parts, "diffuse": np.diagonal(unbounded) != 0.0}


def _scale(ssm: Any, found: Any) -> float:
    """The scale of all covariances that statsmodels has taken out of its likelihood and estimates from its data.

    `found` is the result of its filter where that has been run.
    """
    if not ssm.filter_concentrated or getattr(ssm, "_scale", None) is not None:
        return 1.0
    requirement = "keep likelihoods, from which its concentrated scale follows"
    advice = "Set model.ssm.memory_no_likelihood = False."
    require(not ssm.memory_no_likelihood, FUNCTION, "model", requirement, "memory_no_likelihood", advice)
    with np.errstate(all="ignore"):
        scale = float((ssm.filter() if found is None else found).scale)
    seen = f"the scale {scale:.6g}"
    advice = "Its filter gives none for these data and parameters."
    require(
        bool(np.isfinite(scale)) and scale > 0.0, FUNCTION, "model", "have a positive concentrated scale", seen, advice
    )
    return scale


def _with_concentrated_start(model: Any, params: Any) -> Any:
    """The filter of exponential smoothing whose initial states statsmodels fits to its data, for new parameters."""
    advice = "The model forgets them: give those of the fit."
    require(params is not None, FUNCTION, "params", "be given where initial states are concentrated", None, advice)
    with np.errstate(all="ignore"):
        return model.filter(np.asarray(params, dtype=np.float64), return_ssm=True)


def _is_constant(a: np.ndarray) -> bool:
    """Whether all steps are the same: statsmodels repeats intercepts that are constant."""
    return bool((a == a[:1]).all())


def _update(model: Any, params: Any) -> None:
    given = np.asarray(params)
    require(not np.iscomplexobj(given), FUNCTION, "params", "be real", f"dtype {given.dtype}")
    values = given.astype(np.float64)
    n = len(model.param_names)
    fits = values.shape == (n,) or (values.ndim == 1 and values.shape == np.shape(model.start_params))
    require(fits, FUNCTION, "params", f"hold {n} numbers ({', '.join(model.param_names)})",
            f"shape {values.shape}")  # fmt: skip
    model.update(values)


def _later(a: np.ndarray) -> np.ndarray:
    """Entry k - 1 at k. Entry 0 is not used: the prior is at the first observation."""
    return a if len(a) == 1 else np.concatenate([a[:1], a[:-1]])


def _symmetric(a: np.ndarray) -> Array:
    return 0.5 * (a + a.mT)
