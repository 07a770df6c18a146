"""Predictions, innovations, gains, covariances over time, and correlated noises: conditioning of one joint Gaussian."""

import array_api_strict
import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    filter_split_series,
    kalman_filter,
    moments,
    rts_smoother,
    sample_posterior,
    split_series,
    two_filter_smoother,
)
from ensemble.apps.kalman.moments import covariances_of_neighbours
from ensemble.apps.kalman.steps import rts_gain
from ensemble.scalar import Ensemble
from tests.apps.kalman.digits import diffuse_limit, in_many_digits
from tests.apps.kalman.joint import Joint
from tests.apps.kalman.models import close, constant_parts, correlated, random_parts, with_gaps

PRIORS = ["before", "first_observation"]

NAMES = ("predicted_mean", "predicted_covariance", "innovation", "innovation_covariance", "gain")

METHODS = {
    "recursion": lambda *a: rts_smoother(*a, method="sequential"),
    "square_root": lambda *a: rts_smoother(*a, form="square_root"),
    "scan": lambda *a: rts_smoother(*a, method="scan"),
    "blelloch": lambda *a: rts_smoother(*a, method="scan", scan="blelloch"),
    "two_filter": two_filter_smoother,
}


@pytest.mark.parametrize("prior_at", PRIORS)
@pytest.mark.parametrize("kind", ["plain", "correlated"])
def test_predictions_innovations_and_gains_are_conditioning(kind, prior_at):
    parts, y = random_parts(6, 3, 2)
    y = with_gaps(y)
    parts = correlated(parts) if kind == "correlated" else parts
    got, joint = kalman_filter(LinearGaussianModel(**parts, prior_at=prior_at), y), Joint(parts, prior_at)
    for k in range(6):
        mean, P, seen, S, _ = joint.given(y, k - 1)
        close(got.predicted_mean[k], mean[k])
        close(got.predicted_covariance[k], P[k, :, k])
        close(got.innovation_covariance[k], S[k, :, k])
        there = ~np.isnan(y[k])
        np.testing.assert_allclose(got.innovation[k][there], (y[k] - seen[k])[there], rtol=0, atol=1e-9)
        assert np.isnan(got.innovation[k][~there]).all() and not got.gain[k][:, ~there].any()
        close(got.predicted_mean[k] + got.gain[k][:, there] @ got.innovation[k][there], got.mean[k])


@pytest.mark.parametrize("kind", ["plain", "correlated", "singular"])
def test_covariances_of_neighbours_are_conditioning(kind):
    parts, y = random_parts(6, 3, 2)
    y = with_gaps(y)
    if kind == "singular":
        parts = {**parts, "Q": parts["Q"][..., :1] @ parts["Q"][..., :1].mT, "P0": 0.0 * parts["P0"]}
    parts = correlated(parts) if kind == "correlated" else parts
    got = rts_smoother(LinearGaussianModel(**parts), y)
    _, P, _, _, _ = Joint(parts).given(y)
    close(got.lag_one_covariance, np.stack([P[k, :, k + 1] for k in range(5)]))


def moving_average(theta=0.9, T=20):
    """MA(1) observed without noise: predicted covariances become singular."""
    R = np.array([[1.0], [theta]])
    parts = {"F": np.eye(2, k=1), "Q": R @ R.T, "H": np.eye(1, 2), "R": np.zeros((1, 1)), "m0": np.zeros(2),
             "P0": np.array([[1.0 + theta**2, theta], [theta, theta**2]])}  # fmt: skip
    return parts, np.random.default_rng(27143).standard_normal((T, 1))


def pairs_in_many_digits(parts, y, kappa=0):
    """Covariances of neighbours by the smoother of (x[k], x[k-1]) in 60 digits, ``kappa I`` being added to P0."""
    nx = len(parts["m0"])
    zero = np.zeros((nx, nx))
    twice = lambda A: np.block([[A, zero], [zero, zero]])
    both = {
        "F": np.block([[parts["F"], zero], [np.eye(nx), zero]]),
        "Q": twice(parts["Q"]),
        "H": np.concatenate([parts["H"], 0.0 * parts["H"]], axis=1),
        "R": parts["R"],
        "m0": np.concatenate([parts["m0"], np.zeros(nx)]),
        "P0": twice(parts["P0"]),
    }
    columns = np.concatenate([np.eye(nx), zero])
    return in_many_digits(both, y, columns=columns, kappa=kappa)[3].astype(float)[1:, nx:, :nx]


@pytest.mark.parametrize("kind", ["moving average", "wide prior"])
def test_covariances_of_neighbours_need_no_inverse_of_a_prediction(kind):
    parts, y = moving_average()
    if kind == "wide prior":
        parts = {**parts, "F": np.array([[1.0, 1.0], [0.0, 1.0]]), "P0": 1e4 * np.eye(2), "Q": np.diag([0.0, 1.0])}
    result = kalman_filter(LinearGaussianModel(**parts, prior_at="first_observation"), y)
    got, error = covariances_of_neighbours(result.series, result.mean, result.covariance)
    truth = pairs_in_many_digits(parts, y)
    close(got, truth)
    assert np.all(np.max(np.abs(got - truth), axis=(-2, -1)) <= error + 1e-15)


def test_an_absent_gain_is_replaced(monkeypatch):
    parts, y = random_parts(6, 3, 2)
    y = with_gaps(y)
    model = LinearGaussianModel(**parts)
    expected = rts_smoother(model, y).lag_one_covariance
    absent = lambda *a: tuple(float("nan") * part for part in rts_gain(*a))
    monkeypatch.setattr(moments, "rts_gain", absent)
    close(rts_smoother(model, y).lag_one_covariance, expected)
    many = Ensemble(np.stack([y, with_gaps(2.0 * y, 5)], -1))
    close(rts_smoother(model, many).lag_one_covariance.sample(0), expected)


def test_covariances_of_neighbours_without_digits_are_nan(monkeypatch):
    """Behind a prior of 1e9 the form without an inverse has rounding errors above 1: they are not shown."""
    parts, y = random_parts(6, 3, 1)
    one = {name: parts[name][0] for name in ("F", "Q", "H", "R")} | {"m0": parts["m0"], "P0": 1e9 * np.eye(3)}
    monkeypatch.setattr(moments, "rts_gain", lambda *a: tuple(float("nan") * part for part in rts_gain(*a)))
    got = rts_smoother(LinearGaussianModel(**one, prior_at="first_observation"), y).lag_one_covariance
    truth, known = pairs_in_many_digits(one, y), np.isfinite(got)
    assert np.isnan(got[0]).all() and known[-1].all()
    np.testing.assert_allclose(got[known], truth[known], rtol=0, atol=1e-5 * np.max(np.abs(truth)))


def test_one_step_has_no_neighbours():
    parts, y = random_parts(1, 3, 2)
    got = rts_smoother(LinearGaussianModel(**parts), y)
    assert got.lag_one_covariance.shape == (0, 3, 3) and got.filtered.gain.shape == (1, 3, 2)


def test_moments_of_a_diffuse_prior_are_limits():
    parts, y = random_parts(7, 3, 1)
    one = {name: parts[name][0] for name in ("F", "Q", "H", "R")} | {name: parts[name] for name in ("m0", "P0")}
    model = LinearGaussianModel(**one, prior_at="first_observation", diffuse=np.ones(3, bool))
    close(rts_smoother(model, y).lag_one_covariance, pairs_in_many_digits(one, y, 10**24))
    wide = LinearGaussianModel(**{**parts, "P0": parts["P0"] + 1e9 * np.eye(3)})
    got = rts_smoother(LinearGaussianModel(**parts, diffuse=np.ones(3, bool)), y)
    close(got.filtered.gain, kalman_filter(wide, y, form="square_root").gain, 1e-5)
    _, P, P_inf, *_ = diffuse_limit(parts, y, np.eye(3), "before")
    F, Q = parts["F"], parts["Q"]
    close(got.filtered.predicted_covariance[1:], F[1:] @ P[:-1] @ F[1:].mT + Q[1:])
    n = got.filtered.diffuse_covariance.shape[0]
    close(got.filtered.predicted_diffuse_covariance[1:], F[1:n] @ P_inf[: n - 1] @ F[1:n].mT)
    close(got.filtered.predicted_diffuse_covariance[0], F[0] @ F[0].T)
    ordinary = kalman_filter(LinearGaussianModel(**parts), y)
    assert ordinary.predicted_diffuse_covariance is None


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prior_at", PRIORS)
def test_every_method_takes_correlated_noises(method, prior_at):
    parts, y = random_parts(7, 3, 2)
    parts, y = correlated(parts), with_gaps(y)
    got = METHODS[method](LinearGaussianModel(**parts, prior_at=prior_at), y)
    mean, P, _, _, density = Joint(parts, prior_at).given(y)
    close(got.mean, mean)
    close(got.covariance, np.stack([P[k, :, k] for k in range(7)]))
    close(got.log_likelihood, density)


def test_constant_correlations_of_a_batch_with_gaps():
    parts, y = constant_parts()
    many = np.stack([y, with_gaps(y), np.full_like(y, np.nan)])
    got = rts_smoother(LinearGaussianModel(**parts), many)
    wide = {name: a if name in ("m0", "P0") else np.stack([a] * 8) for name, a in parts.items()}
    for i in range(3):
        mean, P, _, _, density = Joint(wide).given(many[i])
        close(got.mean[i], mean)
        close(got.covariance[i], np.stack([P[k, :, k] for k in range(8)]))
        close(got.log_likelihood[i], density)


def test_samples_of_correlations_are_runs_of_their_own():
    parts, y = constant_parts()
    scale = Ensemble(np.array([1.0, 0.5, -0.7]))
    lifted = rts_smoother(LinearGaussianModel(**{**parts, "S": scale * parts["S"]}), with_gaps(y))
    for i, factor in enumerate((1.0, 0.5, -0.7)):
        alone = rts_smoother(LinearGaussianModel(**{**parts, "S": factor * parts["S"]}), with_gaps(y))
        close(lifted.mean.sample(i), alone.mean, 1e-13)
        close(lifted.lag_one_covariance.sample(i), alone.lag_one_covariance, 1e-12)
        close(lifted.filtered.gain.sample(i), alone.filtered.gain, 1e-13)


def test_draws_and_parts_of_a_series_take_correlated_noises():
    parts, y = constant_parts()
    model = LinearGaussianModel(**parts)
    smooth = rts_smoother(model, y)
    draws = sample_posterior(model, y, 4000, seed=33021).samples
    deviation = np.sqrt(np.einsum("kii->ki", smooth.covariance))
    assert np.max(np.abs(draws.mean(axis=-1) - smooth.mean) / deviation) < 5.0 / np.sqrt(4000)
    halves = filter_split_series(split_series(model, y, [None, None]))
    close(np.concatenate([half.mean for half in halves]), smooth.filtered.mean)


def test_runs_on_array_api_strict():
    parts, y = random_parts(5, 3, 2)
    parts, y = correlated(parts), with_gaps(y)
    xp = array_api_strict
    strict = LinearGaussianModel(**{k: xp.asarray(a) for k, a in parts.items()})
    got, expected = rts_smoother(strict, xp.asarray(y)), rts_smoother(LinearGaussianModel(**parts), y)
    close(np.asarray(got.lag_one_covariance), expected.lag_one_covariance)
    for name in NAMES:
        a, b = np.asarray(getattr(got.filtered, name)), getattr(expected.filtered, name)
        close(np.nan_to_num(a), np.nan_to_num(b))


def test_wide_means_have_wide_innovations():
    parts, y = random_parts(5, 4, 2, dtype=np.float32)
    got = kalman_filter(LinearGaussianModel(**parts), y, mean_dtype="float64")
    assert got.innovation.dtype == np.float64 and got.gain.dtype == np.float32


EYE = np.eye(2)
GOOD = {"F": EYE, "Q": EYE, "H": EYE, "R": EYE, "m0": np.zeros(2), "P0": EYE}


@pytest.mark.parametrize(
    "changes, match",
    [
        (
            {"S": 2.0 * EYE},
            r"the covariance of \(q\[k\+1\], r\[k\]\) must be positive semidefinite; got the eigenvalue -1",
        ),
        ({"S": np.ones((2, 3))}, r"S must end in shape \(2, 2\)"),
        ({"S": np.full((2, 2), np.nan)}, "S must be finite"),
        ({"S": np.zeros((3, 2, 2)), "F": np.zeros((4, 2, 2))}, "time axes must be equally long; got F: 4, S: 3"),
    ],
)
def test_bad_correlations_are_named(changes, match):
    with pytest.raises(ValueError, match=f"^LinearGaussianModel: {match}"):
        LinearGaussianModel(**{**GOOD, **changes})
    with pytest.raises(ValueError, match="mean_dtype must be None for a model with S"):
        kalman_filter(LinearGaussianModel(**GOOD, S=0.1 * EYE), np.zeros((3, 2)), mean_dtype="float64")
