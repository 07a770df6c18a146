"""The iterated extended Kalman smoother: the most probable trajectory of a nonlinear model, by Gauss and Newton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._check import integer, kind_of, message, one_of, positive, require
from ensemble._kernels.kalman.scan import Sengupta, check_scan
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Values
from ensemble.apps.kalman.array.steps import apply, is_singular, observed_part, symmetric_solve
from ensemble.apps.kalman.filters import METHODS, any_true, check_form
from ensemble.apps.kalman.interop.arguments import real_array
from ensemble.apps.kalman.nonlinear import (
    NonlinearGaussianModel,
    deviations,
    extended_filter,
    residuals,
    with_prior_step,
)
from ensemble.apps.kalman.results import sum_over_time, text_of_result
from ensemble.apps.kalman.series import Series
from ensemble.apps.kalman.smoothers import rts
from ensemble.krylov import SolveError
from ensemble.scalar import Ensemble

__all__ = ["IteratedSmootherResult", "iterated_smoother"]

HALVINGS = 30
"""Halvings of a step, at most."""

SUFFICIENT = 1e-4
"""The part of the decrease predicted by the slope that a step must reach (Armijo)."""


@dataclass(frozen=True)
class IteratedSmootherResult:
    """The most probable trajectory, and the Gaussian around it.

    Attributes
    ----------
    mean : array or Ensemble, shape (*batch, T, nx)
        The trajectory that maximises the density of all states given all observations.
    covariance : array or Ensemble, shape (*batch, T, nx, nx)
        Covariance of the model linearised there.
    cost : array or Ensemble, shape batch
        ``(|m0 - x|^2_P0 + sum |f(x[k-1]) - x[k]|^2_Q + sum |y[k] - h(x[k])|^2_R) / 2``, each norm with its inverse
        covariance; of the start too where the prior is before the first observation.
    log_likelihood : array or Ensemble, shape batch
        Log-likelihood of the model linearised at the trajectory: an approximation unless the model is linear.
    converged : bool array or Ensemble, shape batch
    iterations : int array or Ensemble, shape batch
    """

    mean: Array
    covariance: Array
    cost: Array
    log_likelihood: Array
    converged: Array
    iterations: Array

    def __repr__(self) -> str:
        return text_of_result(self)

    def raise_if_failed(self) -> IteratedSmootherResult:
        """This result, or `SolveError` where a series of a sample did not converge."""
        values = self.converged.samples if isinstance(self.converged, Ensemble) else self.converged
        done = np.asarray(to_numpy(values))
        if done.all():
            return self
        counts = self.iterations.samples if isinstance(self.iterations, Ensemble) else self.iterations
        most = int(np.max(to_numpy(counts)))
        raise SolveError(
            f"iterated_smoother: {int(np.sum(~done))} of {done.size} series did not converge in {most} iterations. "
            "Start nearer (x0), or allow more (max_iterations)."
        )


@explains_calls("iterated_smoother")
def iterated_smoother(
    model: NonlinearGaussianModel,
    y: Any,
    *,
    x0: Any = None,
    method: str = "auto",
    scan: str | Sengupta = "chunked",
    form: str = "covariance",
    mask: Values | None = None,
    line_search: bool = True,
    tol: float = 1e-6,
    max_iterations: int = 50,
) -> IteratedSmootherResult:
    """Find the most probable trajectory of a nonlinear model: linearise all steps at once, smooth, and repeat.

    Each pass of the smoother is one step of Gauss and Newton [1]_. A step that does not lower the cost enough is halved
    until it does [2]_. Series and samples that have converged stay unchanged while others iterate.

    Parameters
    ----------
    model : NonlinearGaussianModel
    y : array or Ensemble, shape (*batch, T, ny)
        Observations, NaN where missing.
    x0 : array or Ensemble, shape (*batch, T, nx), optional
        Trajectory to start from; where it is not given, the extended Kalman filter's, which goes step after step.
    method, scan, form, mask
        As `rts_smoother`.
    line_search : bool
        Whether steps are damped. `Q`, `R` and `P0` must then be positive definite; full steps do not need that.
    tol : float, dimensionless
        A series has converged when a step moves no state by more than `tol` posterior standard deviations.
    max_iterations : int

    Returns
    -------
    IteratedSmootherResult

    Raises
    ------
    TypeError
        If `model` is no NonlinearGaussianModel, or a function branches on a state.
    ValueError
        If shapes do not fit, or a covariance is singular with `line_search`.

    References
    ----------
    .. [1] B. M. Bell, The iterated Kalman smoother as a Gauss-Newton method, SIAM J. Optim. 4 (1994), 626-636.
    .. [2] S. Särkkä, L. Svensson, Levenberg-Marquardt and line-search extended Kalman smoothers, ICASSP 2020,
       5875-5879.

    Examples
    --------
    >>> model = NonlinearGaussianModel(lambda x, k, xp: (xp.sin(x[0]),), lambda x, k, xp: (x[0] ** 2,),
    ...                                Q=[[0.1]], R=[[0.1]], m0=[1.0], P0=[[0.1]])
    >>> result = iterated_smoother(model, [[0.9], [float("nan")], [0.4]])
    >>> bool(result.converged), result.mean[:, 0].round(4).tolist()
    (True, [0.9248, 0.7698, 0.6561])
    """
    if not isinstance(model, NonlinearGaussianModel):
        seen = kind_of(model)
        raise TypeError(message("iterated_smoother", "model", "be a NonlinearGaussianModel", seen))
    one_of(method, METHODS, "iterated_smoother", "method")
    check_scan(scan, "iterated_smoother")
    check_form(form, method, "iterated_smoother")
    tol = positive(tol, "iterated_smoother", "tol")
    max_iterations = integer(max_iterations, "iterated_smoother", "max_iterations", minimum=1)
    series, first = with_prior_step(model, y, mask, "iterated_smoother")
    if line_search:
        _check_definite(series)
    x = extended_filter(model, series, first) if x0 is None else _started(model, series, x0, first)
    return _iterated(model, series, x, first, (method, scan, form), line_search, tol, max_iterations)


def _check_definite(series: Series) -> None:
    for name in ("Q", "R", "P0"):
        advice = "Use line_search=False: full steps keep exact relations between states."
        singular = any_true(is_singular(getattr(series, name)))
        requirement = "be positive definite with line_search=True"
        require(not singular, "iterated_smoother", name, requirement, "a singular matrix", advice)


def _started(model: NonlinearGaussianModel, series: Series, x0: Any, first: int) -> Array:
    """Return the first trajectory, time on the first axis: `x0`, behind the prior's mean where `first` is 1."""
    xp = array_namespace(series.y, *([x0] if isinstance(x0, Ensemble) else []))
    x0 = xp.astype(xp.asarray(real_array(x0, "x0", "iterated_smoother")), series.y.dtype, copy=False)
    shape = (*series.batch, series.n_steps + first, model.nx)
    fits = tuple(x0.shape) == shape
    require(fits, "iterated_smoother", "x0", f"have shape {shape}", f"shape {tuple(x0.shape)}")
    x = xp.moveaxis(x0, len(series.batch), 0)
    if first == 0:
        return x
    before = xp.broadcast_to(series.m0, (*series.batch, model.nx))
    return xp.concat([before[None, ...], x], axis=0)


def _iterated(
    model: NonlinearGaussianModel, series: Series, x: Array, first: int,
    options: tuple[str, str | Sengupta, str], line_search: bool, tol: float, max_iterations: int,
) -> IteratedSmootherResult:  # fmt: skip
    """Steps until every series has converged or failed."""
    active = iterations = converged = P = likelihood = None
    for _ in range(max_iterations):
        linear = deviations(model, series, x, first)
        run = rts(linear, *options)
        xp = array_namespace(run.mean, x)
        n_batch = len(series.batch)
        step, spread = xp.moveaxis(run.mean, n_batch, 0), xp.moveaxis(run.covariance, n_batch, 0)
        if active is None:
            active = xp.ones(series.batch, dtype=xp.bool)
            converged, iterations = xp.zeros_like(active), xp.zeros(series.batch, dtype=xp.int64)
            P, likelihood = spread, run.log_likelihood
        finite = xp.all(xp.isfinite(step), axis=(0, -1))
        small = xp.logical_and(finite, _is_small(x, step, spread, tol))
        length = xp.ones(series.batch, dtype=step.dtype)
        if line_search:
            wanting = xp.logical_and(active, xp.logical_and(finite, xp.logical_not(small)))
            length, lost = _search(model, series, linear, x, step, first, wanting)
            finite = xp.logical_and(finite, xp.logical_not(lost))
        moved = xp.logical_and(active, finite)
        x = _where(moved, x + length[..., None] * step, x)
        P, likelihood = _where(active, spread, P), _where(active, run.log_likelihood, likelihood, 0)
        iterations = iterations + xp.astype(active, xp.int64)
        converged = xp.logical_or(converged, xp.logical_and(active, small))
        active = xp.logical_and(moved, xp.logical_not(small))
        if not any_true(active):
            break
    assert P is not None and likelihood is not None and converged is not None and iterations is not None
    cost = cost_of(series, *residuals(model, series, x, first))
    seen = slice(-first, None)
    mean, covariance = (array_namespace(a).moveaxis(a[seen, ...], 0, len(series.batch)) for a in (x, P))
    return IteratedSmootherResult(mean, covariance, cost, likelihood, converged, iterations)


def _where(mask: Array, a: Array, b: Array, time: int = 1) -> Array:
    """`a` for the series in `mask`, else `b`; both have time in front if `time` is 1."""
    xp = array_namespace(mask, a, b)
    tail = max(len(a.shape), len(b.shape)) - time - len(mask.shape)
    return xp.where(xp.reshape(mask, (*(1,) * time, *mask.shape, *(1,) * tail)), a, b)


def _is_small(x: Array, step: Array, spread: Array, tol: float) -> Array:
    """Whether a step moves no state by more than `tol` deviations, or than rounding does."""
    xp = array_namespace(x, step, spread)
    deviation = xp.sqrt(xp.abs(xp.linalg.diagonal(spread)))
    size = xp.max(
        xp.abs(x), axis=0, keepdims=True
    )  # of a component at any step: where it is zero there is rounding, too
    bound = tol * deviation + 16.0 * xp.finfo(step.dtype).eps * size
    return xp.all(xp.abs(step) <= bound, axis=(0, -1))


def cost_of(series: Series, start: Array, moved: Array, seen: Array) -> Array:
    """Half the sum of squares of the residuals, each with its inverse covariance; NaN among `seen` is missing."""
    xp = array_namespace(start, moved, seen, series.Q, series.R)
    zero = xp.zeros((1,), dtype=seen.dtype)
    _, R, seen, _ = observed_part(xp.zeros((seen.shape[-1], 1), dtype=seen.dtype), series.R, seen, zero, zero)
    Q = series.each("Q", slice(1, None))
    terms = [_square(series.P0[None, ...], start[None, ...]), _square(Q, moved), _square(R, seen)]
    shape = series.batch
    whole = xp.concat([xp.broadcast_to(t, (t.shape[0], *shape)) for t in terms], axis=0)
    return 0.5 * sum_over_time(whole)


def _square(A: Array, r: Array) -> Array:
    xp = array_namespace(A, r)
    solved, _ = symmetric_solve(xp.broadcast_to(A, (*r.shape, r.shape[-1])), r[..., None], semidefinite=True)
    return xp.sum(r * solved[..., 0], axis=-1)


def _search(
    model: NonlinearGaussianModel, series: Series, linear: Series, x: Array, step: Array, first: int, wanting: Array
) -> tuple[Array, Array]:
    """The length of each series' step, 1, 1/2, 1/4, ..., and where none of them lowers the cost enough."""
    xp = array_namespace(step, wanting)
    cost = cost_of(series, linear.m0, linear.u[1:, ...], linear.y)
    ahead = apply(linear.F[1:, ...], step[:-1, ...]) - step[1:, ...]
    slope = -2.0 * cost_of(series, step[0, ...], ahead, apply(linear.H, step) + (linear.y - linear.y))
    noise = 64.0 * xp.finfo(step.dtype).eps * cost  # near the end a decrease drowns in rounding
    length = xp.ones(series.batch, dtype=step.dtype)
    half, one = (xp.asarray(v, dtype=step.dtype) for v in (0.5, 1.0))
    for _ in range(HALVINGS):
        reached = cost_of(series, *residuals(model, series, x + length[..., None] * step, first))
        enough = reached <= cost + SUFFICIENT * slope * xp.astype(length, cost.dtype) + noise
        wanting = xp.logical_and(wanting, xp.logical_not(enough))
        if not any_true(wanting):
            break
        length = length * xp.where(wanting, half, one)
    return length, wanting
