"""Filters and smoothers of nonlinear models that go step after step: extended and unscented.

Each step replaces f and h by an affine function and a noise that represents the remainder. All steps are
a linear series, whose filter is the nonlinear one and whose smoother is the nonlinear smoother: by any method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ensemble._backend import array_namespace
from ensemble._check import finite, kind_of, message, one_of, positive, require
from ensemble._kernels.kalman.scan import Sengupta, check_scan
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Values
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.array.exact_rank import steps_without_density
from ensemble.apps.kalman.array.square_root import lost_directions, semidefinite_factor, triangle, update_factor
from ensemble.apps.kalman.array.steps import apply, predict, product, stacked, update
from ensemble.apps.kalman.filters import METHODS, any_true, check_form, choose_results, result_of
from ensemble.apps.kalman.nonlinear import NonlinearGaussianModel, linearised, value
from ensemble.apps.kalman.results import FilterResult, SmootherResult
from ensemble.apps.kalman.series import Series
from ensemble.apps.kalman.smoothers import backwards

__all__ = [
    "extended_kalman_filter", "extended_kalman_smoother", "unscented_kalman_filter", "unscented_kalman_smoother",
]  # fmt: skip

Affine = tuple[Array, Array, Array]
"""Matrix, offset, and the covariance of the remainder that the affine function leaves out."""

Approximation = Callable[[str, int, Array, Array], Affine]
"""A function of a function's name, a step, a mean and a factor of a covariance that returns an affine function."""


@explains_calls("extended_kalman_filter")
def extended_kalman_filter(model: NonlinearGaussianModel, y: Any, *, mask: Values | None = None) -> FilterResult:
    """Compute means and covariances of the state of a nonlinear model given the past, linearised at the mean [1]_.

    Parameters
    ----------
    model : NonlinearGaussianModel
        Parameters of its functions may be Ensembles.
    y : array or Ensemble, shape (*batch, T, ny)
        Observations, NaN where missing.
    mask : bool array or Ensemble, shape of `y` or of `y` without its last axis, optional
        Entries to treat as missing.

    Returns
    -------
    FilterResult
        Ensembles where the model or `y` has any. Its `series` is the linearised model.

    Raises
    ------
    TypeError
        If `model` is no NonlinearGaussianModel, or a function branches on a state.
    ValueError
        If shapes do not fit.

    References
    ----------
    .. [1] S. Särkkä, Bayesian Filtering and Smoothing, Cambridge 2013, section 5.2; of the smoother, section 9.1.

    Examples
    --------
    >>> model = NonlinearGaussianModel(lambda x, k, xp: (xp.sin(x[0]),), lambda x, k, xp: (x[0] ** 2,),
    ...                                Q=[[0.1]], R=[[0.1]], m0=[1.0], P0=[[0.1]])
    >>> extended_kalman_filter(model, [[0.9], [float("nan")], [0.4]]).mean[:, 0].round(4).tolist()
    [0.931, 0.8022, 0.6572]
    """
    series = _series(model, y, mask, "extended_kalman_filter")
    return _filtered(series, _taylor(model))


@explains_calls("extended_kalman_smoother")
def extended_kalman_smoother(
    model: NonlinearGaussianModel,
    y: Any,
    *,
    method: str = "auto",
    scan: str | Sengupta = "chunked",
    form: str = "covariance",
    mask: Values | None = None,
) -> SmootherResult:
    """Compute means and covariances of the state of a nonlinear model given all data, linearised at filtered means.

    Parameters
    ----------
    model : NonlinearGaussianModel
    y : array or Ensemble, shape (*batch, T, ny)
        Observations, NaN where missing.
    method, scan, form, mask
        As `rts_smoother`, for the backward pass; the filter is sequential.

    Returns
    -------
    SmootherResult

    Raises
    ------
    TypeError, ValueError
        As `extended_kalman_filter`, and if a name is unknown.

    Examples
    --------
    >>> model = NonlinearGaussianModel(lambda x, k, xp: (xp.sin(x[0]),), lambda x, k, xp: (x[0] ** 2,),
    ...                                Q=[[0.1]], R=[[0.1]], m0=[1.0], P0=[[0.1]])
    >>> extended_kalman_smoother(model, [[0.9], [float("nan")], [0.4]]).mean[:, 0].round(4).tolist()
    [0.9264, 0.7714, 0.6572]
    """
    _check_options(method, scan, form, "extended_kalman_smoother")
    series = _series(model, y, mask, "extended_kalman_smoother")
    result = _filtered(series, _taylor(model))
    return backwards(result.series, result, method, scan, form)


@explains_calls("unscented_kalman_filter")
def unscented_kalman_filter(
    model: NonlinearGaussianModel,
    y: Any,
    *,
    alpha: float = math.sqrt(3.0),
    beta: float = 2.0,
    kappa: float = 1.0,
    mask: Values | None = None,
) -> FilterResult:
    """Compute the means and covariances of the state of a nonlinear model given the past, by sigma points [1]_.

    The 2 nx + 1 points ``m`` and ``m +- sqrt(c) U[:, i]``, with ``U U' = P`` and ``c = alpha^2 (nx + kappa)``, are
    redrawn before each transition and each observation. Series of which a factor U loses digits, because P is nearly
    singular, are filtered on square roots of covariances (`by_roots` of the result).

    Parameters
    ----------
    model : NonlinearGaussianModel
        Its functions need no derivatives. Parameters may be Ensembles.
    y : array or Ensemble, shape (*batch, T, ny)
        Observations, NaN where missing.
    alpha, beta, kappa : float, dimensionless
        Weights of van der Merwe: ``1 - nx / c`` for the mean at the central point, with ``1 - alpha^2 + beta`` more for
        the covariance, and ``1 / (2 c)`` for each other point. All are positive for the defaults.
    mask : bool array or Ensemble, shape of `y` or of `y` without its last axis, optional

    Returns
    -------
    FilterResult
        Its `series` is the model of the statistical linear regressions.

    Raises
    ------
    TypeError
        If `model` is no NonlinearGaussianModel.
    ValueError
        If shapes do not fit, or ``alpha^2 (nx + kappa)`` is not positive.

    References
    ----------
    .. [1] S. J. Julier, J. K. Uhlmann, Proc. IEEE 92 (2004), 401-422; E. A. Wan, R. van der Merwe, The unscented
       Kalman filter, in: S. Haykin (ed.), Kalman Filtering and Neural Networks, Wiley 2001, chapter 7.

    Examples
    --------
    >>> model = NonlinearGaussianModel(lambda x, k, xp: (xp.sin(x[0]),), lambda x, k, xp: (x[0] ** 2,),
    ...                                Q=[[0.1]], R=[[0.1]], m0=[1.0], P0=[[0.1]])
    >>> unscented_kalman_filter(model, [[0.9], [float("nan")], [0.4]]).mean[:, 0].round(4).tolist()
    [0.8521, 0.7354, 0.5663]
    """
    series = _series(model, y, mask, "unscented_kalman_filter")
    return _filtered(series, _sigma_points(model, alpha, beta, kappa, "unscented_kalman_filter"), True)


@explains_calls("unscented_kalman_smoother")
def unscented_kalman_smoother(
    model: NonlinearGaussianModel,
    y: Any,
    *,
    alpha: float = math.sqrt(3.0),
    beta: float = 2.0,
    kappa: float = 1.0,
    method: str = "auto",
    scan: str | Sengupta = "chunked",
    form: str = "covariance",
    mask: Values | None = None,
) -> SmootherResult:
    """Compute the means and covariances of the state of a nonlinear model given all observations, by sigma points [1]_.

    Parameters
    ----------
    model : NonlinearGaussianModel
    y : array or Ensemble, shape (*batch, T, ny)
        Observations, NaN where missing.
    alpha, beta, kappa : float, dimensionless
        See `unscented_kalman_filter`.
    method, scan, mask
        As `extended_kalman_smoother`.
    form : {"covariance"}

    Returns
    -------
    SmootherResult

    Raises
    ------
    TypeError, ValueError
        As `unscented_kalman_filter`, and if a name is unknown.

    References
    ----------
    .. [1] S. Särkkä, Unscented Rauch-Tung-Striebel smoother, IEEE Trans. Automat. Control 53 (2008), 845-849.

    Examples
    --------
    >>> model = NonlinearGaussianModel(lambda x, k, xp: (xp.sin(x[0]),), lambda x, k, xp: (x[0] ** 2,),
    ...                                Q=[[0.1]], R=[[0.1]], m0=[1.0], P0=[[0.1]])
    >>> unscented_kalman_smoother(model, [[0.9], [float("nan")], [0.4]]).mean[:, 0].round(4).tolist()
    [0.8439, 0.7024, 0.5663]
    """
    function = "unscented_kalman_smoother"
    _check_options(method, scan, form, function)
    advice = "What a regression leaves out may have no square root; use extended_kalman_smoother."
    one_of(form, ("covariance",), function, "form", advice=advice)
    series = _series(model, y, mask, function)
    result = _filtered(series, _sigma_points(model, alpha, beta, kappa, function), True)
    return backwards(result.series, result, method, scan, form)


def _check_options(method: str, scan: str | Sengupta, form: str, function: str) -> None:
    one_of(method, METHODS, function, "method")
    check_scan(scan, function)
    check_form(form, method, function)


def _series(model: NonlinearGaussianModel, y: Any, mask: Any, function: str) -> Series:
    """Check a nonlinear model and its observations; return the linear parts (noise, prior, y) as a `Series`."""
    if not isinstance(model, NonlinearGaussianModel):
        raise TypeError(message(function, "model", "be a NonlinearGaussianModel", kind_of(model)))
    return aligned(model.linear, y, mask, function)


def _taylor(model: NonlinearGaussianModel) -> Approximation:
    """Linearisation at the mean."""

    def approximation(name: str, k: int, m: Array, U: Array) -> Affine:
        at, A = linearised(model, name, m[None, ...], k)
        A = A[0, ...]
        return A, at[0, ...] - apply(A, m, product), 0.0 * product(A, A.mT)

    return approximation


def _sigma_points(
    model: NonlinearGaussianModel, alpha: float, beta: float, kappa: float, function: str
) -> Approximation:
    """Statistical linear regression on sigma points."""
    alpha = positive(alpha, function, "alpha")
    beta, kappa = finite(beta, function, "beta"), finite(kappa, function, "kappa")
    n = model.nx
    c = alpha * alpha * (n + kappa)
    require(c > 0.0, function, "kappa", f"be above -{n}, minus the number of states", kappa)
    side, centre = 0.5 / c, 1.0 - n / c
    of_covariance = centre + 1.0 - alpha * alpha + beta

    def approximation(name: str, k: int, m: Array, U: Array) -> Affine:
        xp = array_namespace(m, U)
        moves = xp.moveaxis(math.sqrt(c) * U, -1, 0)
        points = xp.concat([xp.broadcast_to(m, moves.shape[1:])[None, ...], m + moves, m - moves], axis=0)
        found = value(model, name, points[None, ...], k)[0, ...]
        centre_value, above, below = found[0, ...], found[1 : n + 1, ...], found[n + 1 :, ...]
        mean = centre * centre_value + side * _total(above + below)
        odd, even, off = 0.5 * (above - below), 0.5 * (above + below) - mean, centre_value - mean
        A = _divided(xp.moveaxis(odd / math.sqrt(c), 0, -1), U)
        left = 2.0 * side * _total(_squares(even)) + of_covariance * _squares(off)
        return A, mean - apply(A, m, product), left

    return approximation


def _total(a: Array) -> Array:
    """The sum over the points, in front, in their order: each sample has the bits that it has alone."""
    total = a[0, ...]
    for i in range(1, a.shape[0]):
        total = total + a[i, ...]
    return total


def _squares(a: Array) -> Array:
    return a[..., :, None] * a[..., None, :]


def _divided(W: Array, U: Array) -> Array:
    """A with ``A U = W`` for lower triangular U; columns of zeros in U, directions without variance, leave zeros in A.

    W holds what a function changes along the columns of U. No covariance is inverted: A has the digits of U.
    """
    xp = array_namespace(W, U)
    zero, one = (xp.asarray(v, dtype=U.dtype) for v in (0.0, 1.0))
    tiny, norms = 8 * U.shape[-1] * float(xp.finfo(U.dtype).eps), xp.sqrt(_total(xp.moveaxis(U * U, -1, 0)))
    columns: list[Any] = [None] * U.shape[-1]
    for j in range(U.shape[-1] - 1, -1, -1):
        rest = W[..., :, j]
        for i in range(j + 1, U.shape[-1]):
            rest = rest - columns[i] * U[..., None, i, j]
        there = xp.abs(U[..., None, j, j]) > tiny * norms[..., None, j]
        columns[j] = xp.where(there, rest / xp.where(there, U[..., None, j, j], one), zero)
    return xp.stack(columns, axis=-1)


def _filtered(series: Series, approximation: Approximation, by_factor: bool = False) -> FilterResult:
    """The filter of the affine functions, each made at the state of its step; they are the parts of its series.

    Series whose covariances lose too many digits are filtered on square roots of them: with `by_factor`, where the
    approximation divides by the factor of P, also those of which a factor has lost its narrow directions.
    """
    run = _run(series, approximation, False, by_factor)
    lost = run.failed
    if not any_true(lost):
        return run
    again = _run(series, approximation, True)
    chosen = choose_results(lost, again, run)
    parts = {name: _chosen(series, lost, getattr(again.series, name), getattr(run.series, name)) for name in MADE}
    return replace(chosen, series=replace(run.series, **parts), by_roots=lost)


def _with_density(H: Array, d: Array, R: Array, m: Array, U: Array) -> Array:
    """R, with NaN for entries whose predicted deviation is no more than the rounding of the predicted value."""
    xp = array_namespace(H, R, U)
    HU = product(H, U)
    variance = _total(xp.moveaxis(HU * HU, -1, 0)) + xp.linalg.diagonal(R)
    value = apply(xp.abs(H), xp.abs(m), product) + xp.abs(d)
    lost = variance <= (8 * U.shape[-1] * float(xp.finfo(U.dtype).eps) * value) ** 2
    lost = xp.logical_and(lost[..., None], xp.eye(H.shape[-2], dtype=xp.bool))
    return xp.where(lost, R + float("nan"), R)


def _chosen(series: Series, lost: Array, a: Array, b: Array) -> Array:
    """Parts with time in front of the series in `lost` from a, of the others from b."""
    xp = array_namespace(lost, a, b)
    tail = a.ndim - 1 - len(series.batch)
    return xp.where(xp.reshape(lost, (1, *lost.shape, *(1,) * tail)), a, b)


MADE = ("F", "u", "Q", "H", "d", "R")
"""The parts that a step makes."""


def _run(series: Series, approximation: Approximation, roots: bool, by_factor: bool = False) -> FilterResult:
    """The filter by covariances or, with `roots`, by factors of them; see `_filtered` for `by_factor`.

    A lost direction shows in no later sum: the matrices that are found from the factor have lost it, too.
    """
    xp = array_namespace(series.y, series.m0, series.P0, series.Q, series.R)
    nx, ny = series.m0.shape[-1], series.y.shape[-1]
    m = xp.broadcast_to(series.m0, (*series.batch, nx))
    P = xp.broadcast_to(series.P0, (*series.batch, nx, nx))
    U = semidefinite_factor(P)
    made: dict[str, list[Array]] = {name: [] for name in MADE}
    means, covariances, terms = [], [], []
    lost, none = xp.zeros(series.batch, dtype=xp.bool), None if by_factor else steps_without_density(series)
    for k in range(series.n_steps):
        if k or series.predict_first:
            lost = xp.logical_or(lost, lost_directions(P, U)) if by_factor else lost
            F, u, left = approximation("f", k, m, U)
            Q = left + series.at("Q", k)
            if roots:
                m, U = apply(F, m, product) + u, triangle(product(F, U), semidefinite_factor(Q))
            else:
                m, P = predict(F, Q, u, m, P, product)
                U = semidefinite_factor(P)
        else:  # entry 0 is not used
            F, u, Q = xp.eye(nx, dtype=m.dtype), xp.zeros((nx,), dtype=m.dtype), series.at("Q", 0)
        H, d, left = approximation("h", k, m, U)
        R = _with_density(H, d, left + series.at("R", k), m, U)
        R = R if none is None else xp.where(none[k, ..., None, None], R + float("nan"), R)
        if roots:
            m, U, term = update_factor(H, R, d, series.y[k, ...], m, U, product)
            P = product(U, U.mT)
        else:
            lost = xp.logical_or(lost, lost_directions(P, U)) if by_factor else lost
            m, P, term = update(H, R, d, series.y[k, ...], m, P, product)
            U, term = semidefinite_factor(P), xp.where(lost, term + float("nan"), term)
        for kept, part in zip(made.values(), (F, u, Q, H, d, R), strict=True):
            kept.append(part)
        means.append(m)
        covariances.append(P)
        terms.append(term)
    tails = {"F": (nx, nx), "u": (nx,), "Q": (nx, nx), "H": (ny, nx), "d": (ny,), "R": (ny, ny)}
    xp = array_namespace(*means, *terms)
    parts = {
        name: xp.stack([xp.broadcast_to(a, (*series.batch, *tails[name])) for a in kept], axis=0)
        for name, kept in made.items()
    }
    whole = [xp.broadcast_to(term, series.batch) for term in terms]
    return result_of(replace(series, **parts), *stacked(series.batch, means, covariances), xp.stack(whole, axis=0))
