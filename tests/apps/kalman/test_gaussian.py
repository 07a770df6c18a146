"""Extended and unscented filters: those of another library, and the linear filter on linear models."""

import array_api_strict
import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    NonlinearGaussianModel,
    extended_kalman_filter,
    extended_kalman_smoother,
    kalman_filter,
    rts_smoother,
    unscented_kalman_filter,
    unscented_kalman_smoother,
)
from ensemble.scalar import Ensemble
from tests.apps.kalman.models import close, random_parts, with_gaps

FILTERS = {"extended": extended_kalman_filter, "unscented": unscented_kalman_filter}
SMOOTHERS = {"extended": extended_kalman_smoother, "unscented": unscented_kalman_smoother}
PRIORS = ["before", "first_observation"]
DT = 0.1


def pendulum(g=9.81, prior_at="before", n=2):
    """The angle is seen as its sine, and, for two observations, its cosine."""
    return NonlinearGaussianModel(
        lambda x, k, xp: (x[0] + DT * x[1], x[1] - DT * g * xp.sin(x[0])),
        lambda x, k, xp: (xp.sin(x[0]), xp.cos(x[0]))[:n],
        [[1e-3, 1e-4], [1e-4, 1e-2]], 0.1 * np.eye(n), [0.8, 0.0], [[0.1, 0.02], [0.02, 0.2]], prior_at=prior_at,
    )  # fmt: skip


def seen(T=30, n=2, seed=48527):
    angle = 0.8 * np.cos(3.0 * DT * np.arange(T))
    noise = np.sqrt(0.1) * np.random.default_rng(seed).standard_normal((T, 2))
    return (np.stack([np.sin(angle), np.cos(angle)], axis=-1) + noise)[:, :n]


def other_unscented(y, g=9.81, alpha=3.0**0.5, beta=2.0, kappa=1.0):
    """Means and covariances of filterpy's filter and smoother."""
    filterpy = pytest.importorskip("filterpy.kalman")
    model = pendulum(g).linear
    points = filterpy.MerweScaledSigmaPoints(2, alpha, beta, kappa)
    move = lambda x, dt: np.array([x[0] + DT * x[1], x[1] - DT * g * np.sin(x[0])])
    look = lambda x: np.array([np.sin(x[0]), np.cos(x[0])])
    other = filterpy.UnscentedKalmanFilter(2, 2, DT, look, move, points)
    other.x, other.P, other.Q, other.R = model.m0.copy(), model.P0.copy(), model.Q, model.R
    means, covariances = [], []
    for row in y:
        other.predict()
        other.update(None if np.isnan(row).all() else row)
        means.append(other.x.copy())
        covariances.append(other.P.copy())
    means, covariances = np.array(means), np.array(covariances)
    return means, covariances, *other.rts_smoother(means, covariances)[:2]


@pytest.mark.parametrize("weights", [{}, {"alpha": 0.5, "beta": 2.0, "kappa": 1.0}], ids=["default", "narrow"])
def test_unscented_states_are_those_of_filterpy(weights):
    y = seen()
    y[7] = np.nan
    mean, covariance, smooth, spread = other_unscented(y, **weights)
    got = unscented_kalman_smoother(pendulum(), y, method="sequential", **weights)
    close(got.filtered.mean, mean, 1e-10)
    close(got.filtered.covariance, covariance, 1e-10)
    close(got.mean, smooth, 1e-9)
    close(got.covariance, spread, 1e-9)
    np.testing.assert_array_equal(unscented_kalman_filter(pendulum(), y, **weights).mean, got.filtered.mean)


def test_extended_states_are_those_of_filterpy():
    filterpy = pytest.importorskip("filterpy.kalman")
    model, y, g = pendulum().linear, seen(), 9.81
    other = filterpy.ExtendedKalmanFilter(2, 2)
    other.x, other.P, other.Q, other.R = model.m0.copy(), model.P0.copy(), model.Q, model.R
    got = extended_kalman_filter(pendulum(), y)
    for k, row in enumerate(y):
        x = other.x
        other.F = np.array([[1.0, DT], [-DT * g * np.cos(x[0]), 1.0]])
        other.x = np.array([x[0] + DT * x[1], x[1] - DT * g * np.sin(x[0])])
        other.P = other.F @ other.P @ other.F.T + other.Q
        other.update(row, lambda x: np.array([[np.cos(x[0]), 0.0], [-np.sin(x[0]), 0.0]]),
                     lambda x: np.array([np.sin(x[0]), np.cos(x[0])]))  # fmt: skip
        close(got.mean[k], other.x, 1e-12)
        close(got.covariance[k], other.P, 1e-12)
        close(got.log_likelihoods[k], other.log_likelihood, 1e-10)


@pytest.mark.parametrize("prior_at", PRIORS)
@pytest.mark.parametrize("name", SMOOTHERS)
def test_on_a_linear_model_they_are_the_linear_ones(name, prior_at):
    parts, y = random_parts(9, 3, 2, batch=(2,))
    y = with_gaps(y)
    one = {n: a if n in ("m0", "P0") else a[:, :1] for n, a in parts.items()}
    F, H, u, d = (one[n][:, 0] for n in ("F", "H", "u", "d"))
    model = NonlinearGaussianModel(
        lambda x, k, xp: [sum(F[:, i, j] * x[j] for j in range(3)) + u[:, i] for i in range(3)],
        lambda x, k, xp: [sum(H[:, i, j] * x[j] for j in range(3)) + d[:, i] for i in range(2)],
        one["Q"], one["R"], parts["m0"], parts["P0"], prior_at=prior_at,
    )  # fmt: skip
    expected = rts_smoother(LinearGaussianModel(**one, prior_at=prior_at), y)
    for options in ({}, {"method": "scan"}, {"method": "scan", "scan": "blelloch"}):
        got = SMOOTHERS[name](model, y, **options)
        close(got.mean, expected.mean)
        close(got.covariance, expected.covariance)
        close(got.log_likelihoods, expected.log_likelihoods)
        close(got.lag_one_covariance, expected.lag_one_covariance)
    np.testing.assert_array_equal(FILTERS[name](model, y).mean, got.filtered.mean)


@pytest.mark.parametrize("name", SMOOTHERS)
def test_their_series_is_a_linear_model_of_the_same_states(name):
    """The linear filter on the affine functions, entries partly missing, is the nonlinear filter."""
    y = with_gaps(seen())
    got = FILTERS[name](pendulum(), y)
    parts = {part: getattr(got.series, part) for part in ("F", "Q", "H", "R", "u", "d", "m0", "P0")}
    again = kalman_filter(LinearGaussianModel(**parts), y)
    close(got.mean, again.mean, 1e-12)
    close(got.log_likelihoods, again.log_likelihoods, 1e-12)
    close(got.predicted_mean, again.predicted_mean, 1e-12)


@pytest.mark.parametrize("name", SMOOTHERS)
def test_ensembles_of_parameters_are_runs_of_their_own(name):
    g, y = np.array([8.0, 9.81, 11.0]), with_gaps(seen())
    lifted = SMOOTHERS[name](pendulum(Ensemble(g)), y)
    assert lifted.mean.n_samples == 3 and lifted.log_likelihood.n_samples == 3
    for i, value in enumerate(g):
        alone = SMOOTHERS[name](pendulum(value), y)
        for attribute in ("mean", "covariance", "log_likelihood"):
            close(getattr(lifted, attribute).sample(i), getattr(alone, attribute), 1e-12)
    by_data = SMOOTHERS[name](pendulum(), Ensemble(np.stack([y, 0.5 * y], -1)))
    close(by_data.mean.sample(1), SMOOTHERS[name](pendulum(), 0.5 * y).mean, 1e-12)


@pytest.mark.parametrize("name", SMOOTHERS)
def test_runs_on_array_api_strict_and_in_float32(name):
    model, xp = pendulum(), array_api_strict
    y = with_gaps(seen(8))
    expected = SMOOTHERS[name](model, y)
    parts = [getattr(model.linear, part) for part in ("Q", "R", "m0", "P0")]
    strict = NonlinearGaussianModel(model.f, model.h, *(xp.asarray(a) for a in parts))
    close(np.asarray(SMOOTHERS[name](strict, xp.asarray(y)).mean), expected.mean)
    narrow = NonlinearGaussianModel(model.f, model.h, *(a.astype(np.float32) for a in parts))
    got = SMOOTHERS[name](narrow, y.astype(np.float32), method="scan")
    assert got.mean.dtype == np.float32
    close(got.mean, expected.mean, 1e-4)


@pytest.mark.parametrize("prior_at", PRIORS)
def test_sigma_points_are_nearer_to_the_truth_than_a_tangent(prior_at):
    """One transition of a wide Gaussian through a sine, against a quadrature of 60 points."""
    model = NonlinearGaussianModel(lambda x, k, xp: (xp.sin(x[0]),), lambda x, k, xp: (xp.sin(x[0]),), [[1e-6]],
                                   [[1e6]], [0.5], [[0.5]], prior_at=prior_at)  # fmt: skip
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    values = np.sin(0.5 + np.sqrt(0.5) * nodes)
    truth = np.sum(weights * values) / np.sum(weights)
    y = np.zeros((2, 1))
    step = 0 if prior_at == "before" else 1
    near, far = (abs(float(FILTERS[name](model, y).mean[step, 0]) - truth) for name in ("unscented", "extended"))
    assert near < 0.2 * far


@pytest.mark.parametrize(
    "call, error, match",
    [
        (lambda: extended_kalman_filter(3, seen()), TypeError, "extended_kalman_filter: model must be a Nonlinear"),
        (lambda: unscented_kalman_smoother(pendulum().linear, seen()), TypeError, "model must be a NonlinearGaussian"),
        (lambda: extended_kalman_smoother(pendulum(), seen(), method="fast"), ValueError, "method must be one of"),
        (lambda: extended_kalman_smoother(pendulum(), seen(), scan="fast"), ValueError, "scan must be one of"),
        (lambda: unscented_kalman_smoother(pendulum(), seen(), form="square_root"), ValueError, "form must be one of"),
        (lambda: unscented_kalman_filter(pendulum(), seen(), alpha=0.0), ValueError, "alpha must be a finite number"),
        (lambda: unscented_kalman_filter(pendulum(), seen(), kappa=-2.0), ValueError, "kappa must be above -2, minus"),
        (lambda: unscented_kalman_filter(pendulum(), seen()[:, :1]), ValueError, "y must have shape"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(call, error, match):
    with pytest.raises(error, match=match):
        call()
