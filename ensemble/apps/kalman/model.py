"""Linear Gaussian state-space models, and their parts and observations in one form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, is_array, to_numpy
from ensemble._check import kind_of, message, one_of, require
from ensemble._typing import Array
from ensemble.apps.kalman.array.correlated import joint_covariance, uncorrelated
from ensemble.apps.kalman.array.covariances import (
    check_finite,
    check_independent,
    checked_covariance,
    has_zero_variances,
)
from ensemble.apps.kalman.interop.arguments import index_of, owned, real_array, with_gaps_as_nan
from ensemble.apps.kalman.interop.statsmodels_parts import parts_of_statsmodels
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
from ensemble.apps.kalman.stationary import stationary_moments
from ensemble.scalar import Ensemble

__all__ = ["LinearGaussianModel", "aligned"]

PRIORS = ("before", "first_observation")

PARTS = ("F", "Q", "H", "R", "m0", "P0", "u", "d")


class LinearGaussianModel:
    """The model ``x[k] = F[k] x[k-1] + u[k] + q[k]``, ``y[k] = H[k] x[k] + d[k] + r[k]``.

    ``q[k] ~ N(0, Q[k])`` and ``r[k] ~ N(0, R[k])`` are independent; entry k of `F`, `Q`, `u` leads from step k - 1 to
    step k, entry 0 from the prior ``N(m0, P0)`` to the first observation.

    Parameters
    ----------
    F : array or Ensemble, shape (..., nx, nx)
        Transition matrix. Leading axes, here and below, are ``(*batch, time)``: none for a constant, one for an entry
        per step, more for batches of series, e.g. ``(batch, 1, nx, nx)`` for a constant of each series. Axes of length
        1 broadcast.
    Q : array or Ensemble, shape (..., nx, nx)
        Covariance of the process noise, positive semidefinite; may be singular.
    H : array or Ensemble, shape (..., ny, nx)
        Observation matrix; `ny` may exceed `nx`.
    R : array or Ensemble, shape (..., ny, ny)
        Covariance of the observation noise.
    m0 : array or Ensemble, shape (*batch, nx)
        Mean of the prior; it has no time axis.
    P0 : array or Ensemble, shape (*batch, nx, nx)
        Covariance of the prior; may be zero.
    u : array or Ensemble, shape (..., nx), optional
        Input to the state; zero where it is not given.
    d : array or Ensemble, shape (..., ny), optional
        Offset of the observation; zero where it is not given.
    prior_at : {"before", "first_observation"}
        Where the prior holds: one transition before the first observation, or at it. In the second case entry 0 of
        `F`, `Q`, `u` is not used.
    S : array or Ensemble, shape (..., nx, ny), optional
        Correlation of the noises: entry k is ``cov(q[k+1], r[k])``, the noise of the observation at step k with that of
        the transition which leaves step k. Zero where it is not given.
    diffuse : bool array of shape (nx,), or array or Ensemble of shape (*batch, nx, n_diffuse), optional
        Exact diffuse initialisation: the prior is ``N(m0, P0 + kappa A A')`` in the limit of infinite kappa, A being
        the matrix, or the unit vectors of the states that the mask selects. What is known of diffuse states beside that
        is in `P0`, usually zero.

    Raises
    ------
    TypeError
        If a part is neither array nor Ensemble nor nested numbers, or is complex.
    ValueError
        If shapes do not fit each other, or entries of `F`, `Q`, `H`, `R`, `P0` are negative variances or not finite.

    Examples
    --------
    >>> LinearGaussianModel(F=[[1.0]], Q=[[1469.1]], H=[[1.0]], R=[[15099.0]], m0=[0.0], P0=[[1e7]])
    LinearGaussianModel(nx=1, ny=1, prior_at='before', float64)
    """

    def __init__(
        self, F: Any, Q: Any, H: Any, R: Any, m0: Any, P0: Any, u: Any = None, d: Any = None, prior_at: str = "before",
        *, S: Any = None, diffuse: Any = None,
    ) -> None:  # fmt: skip
        self.prior_at = one_of(prior_at, PRIORS, "LinearGaussianModel", "prior_at")
        F, Q, H, R, m0, P0 = (real_array(a, n) for a, n in zip((F, Q, H, R, m0, P0), PARTS, strict=False))
        for a, name in ((F, "F"), (H, "H")):
            require(len(a.shape) >= 2, "LinearGaussianModel", name, "have 2 axes or more", f"shape {tuple(a.shape)}")
            some = 0 not in a.shape[-2:]
            require(some, "LinearGaussianModel", name, "have one row or more", f"shape {tuple(a.shape)}")
        self.nx, self.ny = int(F.shape[-1]), int(H.shape[-2])
        nx, ny = self.nx, self.ny
        given = dict(zip((*PARTS, "S", "diffuse"), (F, Q, H, R, m0, P0, u, d, S, diffuse), strict=True))
        arrays = [a for name, a in given.items() if is_array(a) or isinstance(a, Ensemble) if name != "diffuse"]
        xp = array_namespace(*arrays)
        lifted = {name: a.n_samples for name, a in given.items() if isinstance(a, Ensemble)}
        check_samples(lifted, "LinearGaussianModel")
        u = xp.zeros((nx,), dtype=F.dtype) if u is None else real_array(u, "u")
        d = xp.zeros((ny,), dtype=F.dtype) if d is None else real_array(d, "d")
        tails = {"F": (nx, nx), "Q": (nx, nx), "H": (ny, nx), "R": (ny, ny), "m0": (nx,), "P0": (nx, nx),
                 "u": (nx,), "d": (ny,)}  # fmt: skip
        # copies: a buffer that the caller writes to again must not change the model
        self.F, self.Q, self.H, self.R, self.m0, self.P0, self.u, self.d = map(owned, (F, Q, H, R, m0, P0, u, d))
        self.S = None if S is None else owned(real_array(S, "S"))
        columns = _diffuse_columns(xp, diffuse, nx, F.dtype)
        self.diffuse = None if columns is None else owned(columns)
        if self.S is not None:
            tails["S"] = (nx, ny)
        if self.diffuse is not None:
            tails["diffuse"] = (nx, int(self.diffuse.shape[-1]))
        for name, tail in tails.items():
            a = getattr(self, name)
            advice = f"The state has nx = {nx} entries (last axis of F), an observation ny = {ny} (rows of H)."
            seen = f"shape {tuple(a.shape)}"
            fits = tuple(a.shape[len(a.shape) - len(tail) :]) == tail
            require(fits, "LinearGaussianModel", name, f"end in shape {tail}", seen, advice)
        self._check_leading(tails)
        self._check_numbers()

    def _check_leading(self, tails: dict[str, tuple[int, ...]]) -> None:
        steps: dict[str, int] = {}
        batches: dict[str, tuple[int, ...]] = {}
        for name, tail in tails.items():
            a = getattr(self, name)
            lead = tuple(a.shape[: len(a.shape) - len(tail)])
            if name in ("m0", "P0", "diffuse"):
                batches[name] = lead
                continue
            batches[name] = lead[:-1]
            if lead and lead[-1] != 1:
                steps[name] = lead[-1]
        seen = ", ".join(f"{name}: {n}" for name, n in steps.items())
        advice = "Constants have no time axis, or one of length 1."
        require(len(set(steps.values())) <= 1, "LinearGaussianModel", "time axes", "be equally long", seen, advice)
        require(0 not in steps.values(), "LinearGaussianModel", "time axes", "hold one step or more", seen)
        self.n_steps = next(iter(steps.values()), 1)
        self.is_time_varying = bool(steps)
        try:
            self.batch: tuple[int, ...] = np.broadcast_shapes(*batches.values())
        except ValueError:
            seen = ", ".join(f"{name}: {lead}" for name, lead in batches.items() if lead)
            advice = "The axis before the matrix axes is time, except in m0 and P0; batch axes stand before it."
            raise ValueError(message("LinearGaussianModel", "batch axes", "broadcast", seen, advice)) from None

    def _check_numbers(self) -> None:
        for name in PARTS:
            check_finite(getattr(self, name), name, "LinearGaussianModel")
        for name in ("Q", "R", "P0"):
            checked = checked_covariance(getattr(self, name), name, "LinearGaussianModel", in_time=name != "P0")
            setattr(self, name, checked)
        self.sees_exactly = has_zero_variances(self.R)
        if self.diffuse is not None:
            check_finite(self.diffuse, "diffuse", "LinearGaussianModel")
            check_independent(self.diffuse, "diffuse", "LinearGaussianModel")
        if self.S is not None:
            check_finite(self.S, "S", "LinearGaussianModel")
            checked_covariance(self._joint_noise(), "the covariance of (q[k+1], r[k])", "LinearGaussianModel")

    def _joint_noise(self) -> Array:
        """The covariances of (q[k+1], r[k])."""

        def at(a: Array, steps: slice) -> Array:
            return a[..., steps, :, :] if len(a.shape) > 2 and a.shape[-3] > 1 else a

        earlier = slice(None, -1)
        return joint_covariance(at(self.Q, slice(1, None)), at(self.S, earlier), at(self.R, earlier))

    @classmethod
    def from_statsmodels(cls, model: Any, params: Any = None) -> LinearGaussianModel:
        """The model of a statsmodels state-space model, e.g. SARIMAX, UnobservedComponents, VARMAX, DynamicFactor.

        Statsmodels' transition, selection, covariance and intercept of entry k lead from step k to k + 1; here they
        are entry k + 1. The prior is at the first observation.

        Parameters
        ----------
        model : statsmodels.tsa.statespace.mlemodel.MLEModel
            Its observations are ``model.endog``, an array of shape (T, ny).
        params : array, shape (n_params,), optional
            Parameters as ``model.loglike`` takes them. Where they are not given, `model` keeps those that it has, e.g.
            of the last fit.

        Returns
        -------
        LinearGaussianModel
            Known, stationary and approximate diffuse initialisation give `m0` and `P0`, exact diffuse initialisation
            gives `diffuse`, too. Intercepts and matrices that statsmodels repeats at every step become constants.

        Raises
        ------
        TypeError
            If `model` is no state-space model of statsmodels.
        ValueError
            If it or `params` hold complex numbers, if it is not initialised, if its initial state is the filtered one
            (filter timing of Kim and Nelson), if it asks for a method that statsmodels has no code for (extended,
            unscented, square-root, augmented), or if its concentrated scale cannot be found.

        Notes
        -----
        Statsmodels leaves ``model.loglikelihood_burn`` steps out of its likelihood where the initialisation is
        approximately diffuse: ``log_likelihoods[burn:]``, and `burn` of `maximum_likelihood`, do the same.

        A scale that is concentrated out of the likelihood (`concentrate_scale`, `RecursiveLS`, the default of
        `ExponentialSmoothing`) multiplies Q, R and P0, as in the results of statsmodels: its estimate from
        ``model.endog``, by its own filter. So are initial states that `ExponentialSmoothing` concentrates. Inversion,
        stability, tolerance and memory options change nothing here. Entries without noise that are known already,
        which statsmodels leaves out, have no density here: such a series has `failed`.
        """
        return cls(**parts_of_statsmodels(model, params), prior_at="first_observation")

    @classmethod
    def stationary(
        cls, F: Any, Q: Any, H: Any, R: Any, u: Any = None, d: Any = None, *, S: Any = None
    ) -> LinearGaussianModel:
        """The model whose prior is the stationary distribution of its state.

        Parameters
        ----------
        F, Q, H, R, u, d, S : array or Ensemble
            As those of `LinearGaussianModel`; `F`, `Q` and `u` are constant in time.

        Returns
        -------
        LinearGaussianModel
            With the mean ``(I - F)^-1 u``, and the covariance ``P = F P F' + Q`` of `stationary_covariance`.

        Raises
        ------
        TypeError, ValueError
            As `LinearGaussianModel`, and if `F` has an eigenvalue of modulus 1 or above, or a part varies in time.

        Examples
        --------
        >>> LinearGaussianModel.stationary(F=[[0.8]], Q=[[0.36]], H=[[1.0]], R=[[1.0]]).P0.round(12).tolist()
        [[1.0]]
        """
        m0, P0 = stationary_moments(F, Q, u, "LinearGaussianModel.stationary")
        return cls(F, Q, H, R, m0, P0, u, d, prior_at="first_observation", S=S)

    def __repr__(self) -> str:
        parts = [f"nx={self.nx}, ny={self.ny}"]
        if self.batch:
            parts.append(f"batch={self.batch}")
        if self.is_time_varying:
            parts.append(f"n_steps={self.n_steps}")
        samples = {a.n_samples for a in map(self.__getattribute__, PARTS) if isinstance(a, Ensemble)}
        if samples:
            parts.append(f"n_samples={max(samples)}")
        if self.diffuse is not None:
            parts.append(f"n_diffuse={self.diffuse.shape[-1]}")
        return f"LinearGaussianModel({', '.join(parts)}, prior_at={self.prior_at!r}, {self.F.dtype})"


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


def _diffuse_columns(xp: Any, diffuse: Any, nx: int, dtype: Any) -> Array | None:
    """The matrix whose columns are diffuse, of what the user gives; None where nothing is diffuse."""
    if diffuse is None:
        return None
    columns = real_array(diffuse, "diffuse", as_is=True)
    if not array_namespace(columns).isdtype(columns.dtype, "bool"):
        columns = real_array(columns, "diffuse")
        fits = columns.ndim >= 2 and columns.shape[-1] > 0
        requirement = f"be {nx} bools or a matrix with {nx} rows"
        require(fits, "LinearGaussianModel", "diffuse", requirement, f"shape {tuple(columns.shape)}")
        return columns
    fits = tuple(columns.shape) == (nx,) and not isinstance(columns, Ensemble)
    require(fits, "LinearGaussianModel", "diffuse", f"be {nx} bools or a matrix with {nx} rows",
            f"bools of shape {tuple(columns.shape)}")  # fmt: skip
    chosen = np.eye(nx)[:, to_numpy(columns)]
    return xp.asarray(chosen, dtype=dtype) if chosen.size else None


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
