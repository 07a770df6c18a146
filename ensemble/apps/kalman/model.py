"""Linear Gaussian state-space models, and their parts and observations in one form."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, is_array, to_numpy
from ensemble._check import message, one_of, require
from ensemble._keywords import explains_construction
from ensemble._typing import Array
from ensemble.apps.kalman.array.correlated import joint_covariance
from ensemble.apps.kalman.array.covariances import (
    check_finite,
    check_independent,
    checked_covariance,
    has_zero_variances,
)
from ensemble.apps.kalman.interop.arguments import owned, real_array
from ensemble.apps.kalman.interop.statsmodels_parts import parts_of_statsmodels
from ensemble.apps.kalman.series import check_samples
from ensemble.apps.kalman.stationary import stationary_moments
from ensemble.scalar import Ensemble

__all__ = ["PARTS", "LinearGaussianModel"]

PRIORS = ("before", "first_observation")

PARTS = ("F", "Q", "H", "R", "m0", "P0", "u", "d")

SETTINGS = (*PARTS, "S", "diffuse", "prior_at")

NAMES = frozenset(SETTINGS)


@explains_construction("LinearGaussianModel")
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
            if len(a.shape) < 2 or 0 in a.shape[-2:]:  # texts are made where they are needed: optimisers make models
                requirement = "have 2 axes or more" if len(a.shape) < 2 else "have one row or more"
                require(False, "LinearGaussianModel", name, requirement, f"shape {tuple(a.shape)}")
        self.nx, self.ny = int(F.shape[-1]), int(H.shape[-2])
        nx, ny = self.nx, self.ny
        given = dict(zip((*PARTS, "S", "diffuse"), (F, Q, H, R, m0, P0, u, d, S, diffuse), strict=True))
        arrays = [a for name, a in given.items() if is_array(a) or isinstance(a, Ensemble) if name != "diffuse"]
        xp = array_namespace(*arrays)
        lifted = {name: a.n_samples for name, a in given.items() if isinstance(a, Ensemble)}
        check_samples(lifted, "LinearGaussianModel")
        self._absent = tuple(name for name in ("u", "d") if given[name] is None)
        u = xp.zeros((nx,), dtype=F.dtype) if u is None else real_array(u, "u")
        d = xp.zeros((ny,), dtype=F.dtype) if d is None else real_array(d, "d")
        tails = {"F": (nx, nx), "Q": (nx, nx), "H": (ny, nx), "R": (ny, ny), "m0": (nx,), "P0": (nx, nx),
                 "u": (nx,), "d": (ny,)}  # fmt: skip
        # copies: a buffer that the caller writes to again must not change the model
        self.F, self.Q, self.H, self.R, self.m0, self.P0, self.u, self.d = map(owned, (F, Q, H, R, m0, P0, u, d))
        self.S = None if S is None else owned(real_array(S, "S"))
        columns = _diffuse_columns(xp, diffuse, nx, F.dtype)
        self.diffuse = None if columns is None else owned(columns)
        self._diffuse_states = _bools(diffuse)
        if self.S is not None:
            tails["S"] = (nx, ny)
        if self.diffuse is not None:
            tails["diffuse"] = (nx, int(self.diffuse.shape[-1]))
        for name, tail in tails.items():
            a = getattr(self, name)
            if tuple(a.shape[len(a.shape) - len(tail) :]) == tail:
                continue
            advice = f"The state has nx = {nx} entries (last axis of F), an observation ny = {ny} (rows of H)."
            require(False, "LinearGaussianModel", name, f"end in shape {tail}", f"shape {tuple(a.shape)}", advice)
        self._check_leading(tails)
        self._check_numbers()

    def _check_leading(self, tails: dict[str, tuple[int, ...]]) -> None:
        self.n_steps, self.is_time_varying = 1, False
        self.batch: tuple[int, ...] = ()
        if all(len(getattr(self, name).shape) == len(tail) for name, tail in tails.items()):
            return
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
            self.batch = np.broadcast_shapes(*batches.values())
        except ValueError:
            seen = ", ".join(f"{name}: {lead}" for name, lead in batches.items() if lead)
            advice = "The axis before the matrix axes is time, except in m0 and P0; batch axes stand before it."
            raise ValueError(message("LinearGaussianModel", "batch axes", "broadcast", seen, advice)) from None

    def _check_numbers(self, names: tuple[str, ...] = PARTS) -> None:
        """Check the numbers of these parts, and what depends on them."""
        for name in names:
            check_finite(getattr(self, name), name, "LinearGaussianModel")
        for name in ("Q", "R", "P0"):
            if name in names:
                checked = checked_covariance(getattr(self, name), name, "LinearGaussianModel", in_time=name != "P0")
                setattr(self, name, checked)
        if "R" in names:
            self.sees_exactly = has_zero_variances(self.R)
        if len(names) < len(PARTS):
            return
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

    def replace(self, **parts: Any) -> LinearGaussianModel:
        """The model with other parts in place of some of its own, which stays as it is.

        That is ``LinearGaussianModel`` of all parts, to the bit; only those that are given are copied and checked. An
        optimiser makes the model once and replaces what depends on its parameters.

        Parameters
        ----------
        **parts
            Any arguments of `LinearGaussianModel` by name. None takes `u`, `d`, `S` or `diffuse` away.

        Returns
        -------
        LinearGaussianModel

        Raises
        ------
        TypeError, ValueError
            As `LinearGaussianModel`, and if a name is none of its arguments.

        Examples
        --------
        >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
        >>> model.replace(Q=[[4.0]], R=[[2.0]]).Q.tolist(), model.Q.tolist()
        ([[4.0]], [[1.0]])
        """
        if not parts.keys() <= NAMES:
            names, unknown = ", ".join(SETTINGS), ", ".join(sorted(parts.keys() - NAMES))
            raise TypeError(message("LinearGaussianModel.replace", "parts", f"be among {names}", unknown))
        values = {name: real_array(a, name) for name, a in parts.items() if name in PARTS and a is not None}
        same = self.S is None and len(values) == len(parts)
        if not same or not all(_is_alike(a, getattr(self, name)) for name, a in values.items()):
            own = {name: None if name in self._absent else getattr(self, name) for name in SETTINGS}
            if self._diffuse_states is not None:
                own["diffuse"] = self._diffuse_states
            return LinearGaussianModel(**{**own, **parts})
        made = object.__new__(LinearGaussianModel)
        made.__dict__.update(self.__dict__)
        for name, a in values.items():
            setattr(made, name, owned(a))
        made._absent = tuple(name for name in self._absent if name not in values)
        made._check_numbers(tuple(values))
        return made

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


def _bools(diffuse: Any) -> list[bool] | None:
    """Which states are diffuse, where they are named so; None for columns."""
    if diffuse is None or isinstance(diffuse, Ensemble):
        return None
    values = to_numpy(real_array(diffuse, "diffuse", as_is=True))
    return values.tolist() if values.dtype == bool else None


def _is_alike(a: Array, b: Array) -> bool:
    """Whether an array or Ensemble has the kind, type and shape of another one."""
    if type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not isinstance(a, Ensemble):
        return True
    return a.n_samples == b.n_samples and type(a.samples) is type(b.samples)
