"""Forecasts, simulations, the online filter, and stationary priors, against conditioning and other libraries."""

import array_api_strict
import numpy as np
import pytest
from scipy import stats
from scipy.linalg import solve_discrete_lyapunov

import ensemble as en
from ensemble.apps.kalman import (
    LinearGaussianModel,
    OnlineFilter,
    forecast,
    kalman_filter,
    rts_smoother,
    simulate,
    stationary_covariance,
)
from ensemble.scalar import Ensemble
from tests.apps.kalman.joint import Joint
from tests.apps.kalman.models import close, constant_parts, correlated, random_parts, with_gaps
from tests.apps.kalman.statsmodels_models import at_start, observations

VARYING = ("F", "Q", "H", "R", "u", "d")

EYE = np.eye(2)
GOOD = {"F": 0.5 * EYE, "Q": EYE, "H": EYE, "R": EYE, "m0": np.zeros(2), "P0": EYE}
MODEL = LinearGaussianModel(**GOOD)
VARIED = LinearGaussianModel(**{**GOOD, "F": np.zeros((3, 2, 2))})
LIFTED = LinearGaussianModel(**{**GOOD, "m0": Ensemble(np.zeros((2, 3)))})


def cut(parts, start, stop):
    return {name: parts[name][start:stop] for name in (*VARYING, *(("S",) if "S" in parts else ()))}


# --- forecasts
@pytest.mark.parametrize("prior_at", ["before", "first_observation"])
@pytest.mark.parametrize("kind", ["plain", "correlated"])
@pytest.mark.parametrize("given", ["observations", "filter", "smoother"])
def test_forecasts_are_conditioning(given, kind, prior_at):
    parts, y = random_parts(9, 3, 2)
    y = with_gaps(y)
    parts = correlated(parts) if kind == "correlated" else parts
    model = LinearGaussianModel(**cut(parts, 0, 6), m0=parts["m0"], P0=parts["P0"], prior_at=prior_at)
    past = {"observations": lambda *a: a[1], "filter": kalman_filter, "smoother": rts_smoother}[given](model, y[:6])
    future = cut(parts, 6, 9)
    future.pop("S", None)
    got = forecast(model, past, 3, future=future)
    mean, P, seen, spread, _ = Joint(parts, prior_at).given(y, 5)
    close(got.state_mean, mean[6:])
    close(got.mean, seen[6:])
    close(got.state_covariance, np.stack([P[k, :, k] for k in range(6, 9)]))
    close(got.covariance, np.stack([spread[k, :, k] for k in range(6, 9)]))


@pytest.mark.filterwarnings("ignore:Care should be used when applying a loglikelihood burn")
@pytest.mark.parametrize("name", ["local level", "vector autoregression", "dynamic factor", "diffuse trend"])
def test_forecasts_and_intervals_are_those_of_statsmodels(name):
    other, params, _ = at_start(name)
    model = LinearGaussianModel.from_statsmodels(other, params)
    got = forecast(model, observations(other), 5, level=0.9)
    expected = other.smooth(params, cov_type="none").get_forecast(5)
    close(got.mean, np.asarray(expected.predicted_mean).reshape(5, -1), 1e-8)
    bounds = np.asarray(expected.conf_int(alpha=0.1)).reshape(5, 2, -1)
    close(np.stack([got.lower, got.upper], axis=1), bounds, 1e-7)
    close(got.interval(0.5)[1] - got.mean, 0.6744897501960817 * np.sqrt(np.einsum("kii->ki", got.covariance)))
    lower, upper = got.state_interval()
    close(upper - lower, 2 * 1.6448536269514722 * np.sqrt(np.einsum("kii->ki", got.state_covariance)))


def test_constant_parts_go_on_and_may_change():
    parts, y = constant_parts()
    del parts["S"]
    changed = forecast(LinearGaussianModel(**parts), y, 3, future={"u": np.zeros((3, 2)), "Q": 2.0 * EYE})
    longer = {n: a if n in ("m0", "P0") else np.stack([a] * 11) for n, a in parts.items()}
    longer["u"][8:], longer["Q"][8:] = 0.0, 2.0 * EYE
    mean, _, _, spread, _ = Joint(longer).given(np.concatenate([y, np.full((3, 2), np.nan)]))
    close(changed.state_mean, mean[8:])
    close(changed.covariance, np.stack([spread[k, :, k] for k in range(8, 11)]))


def test_forecasts_of_batches_and_samples_are_runs_of_their_own():
    parts, y = constant_parts()
    many, scale = np.stack([y, with_gaps(y)]), Ensemble(np.array([1.0, 0.5, 2.0]))
    batch = forecast(LinearGaussianModel(**parts), many, 4)
    lifted = forecast(LinearGaussianModel(**{**parts, "P0": scale * parts["P0"]}), many, 4)
    assert batch.mean.shape == (2, 4, 2) and lifted.lower.n_samples == 3
    for i in range(2):
        alone = forecast(LinearGaussianModel(**parts), many[i], 4)
        close(batch.mean[i], alone.mean, 1e-13)
        close(lifted.upper.sample(0)[i], alone.upper, 1e-13)


@pytest.mark.parametrize(
    "call, error, match",
    [
        (lambda: forecast(3, np.zeros((3, 2)), 2), TypeError, "model must be a LinearGaussianModel"),
        (lambda: forecast(MODEL, np.zeros((3, 2)), 0), ValueError, "horizon must be an integer of at least 1"),
        (lambda: forecast(MODEL, np.zeros((3, 2)), 2, level=1.0), ValueError, "level must be between 0 and 1; got 1.0"),
        (lambda: forecast(MODEL, np.zeros((3, 2)), 2, future={"G": 1}), ValueError, "future must hold parts of F, Q"),
        (lambda: forecast(MODEL, np.zeros((3, 2)), 2, future={"u": np.zeros((3, 2))}), ValueError,
         r"future must hold u of shape \(..., 2, 2\); got shape \(3, 2\)"),
        (lambda: forecast(VARIED, np.zeros((3, 2)), 2), ValueError,
         "future must hold F, which varies in time"),
        (lambda: forecast(MODEL, kalman_filter(MODEL, np.zeros((3, 2))), 2, mask=np.ones((3, 2), bool)), ValueError,
         "mask must be None for a result"),
        (lambda: forecast(LinearGaussianModel(**GOOD, diffuse=[True, True]), np.full((3, 2), np.nan), 2), ValueError,
         "y must determine all diffuse states"),
    ],
)  # fmt: skip
def test_bad_forecasts_are_named(call, error, match):
    with pytest.raises(error, match=f"^forecast: {match}"):
        call()


# --- simulations
@pytest.mark.parametrize("kind", ["plain", "correlated"])
def test_simulations_have_the_joint_distribution_of_the_model(kind):
    """Means and covariances of 20,000 draws within five deviations of their own."""
    parts, _ = random_parts(4, 2, 1)
    parts = correlated(parts) if kind == "correlated" else parts
    n = 20_000
    drawn = simulate(LinearGaussianModel(**parts), n_samples=n, seed=61703)
    values = np.concatenate([drawn.states.samples.reshape(-1, n), drawn.observations.samples.reshape(-1, n)])
    joint = Joint(parts)
    spread = np.sqrt(np.diag(joint.covariance))
    assert np.max(np.abs(values.mean(axis=1) - joint.mean) / spread) < 5.0 / np.sqrt(n)
    found = np.cov(values) / np.outer(spread, spread)
    assert np.max(np.abs(found - joint.covariance / np.outer(spread, spread))) < 5.0 * np.sqrt(2.0 / n)


def test_the_noise_of_a_sample_does_not_depend_on_their_number():
    parts, _ = random_parts(5, 3, 2, batch=(2,))
    model = LinearGaussianModel(**parts)
    few, many = (simulate(model, n_samples=n, seed=7) for n in (3, 8))
    np.testing.assert_array_equal(few.states.samples, many.states.samples[..., :3])
    np.testing.assert_array_equal(few.observations.samples, many.observations.samples[..., :3])
    close(simulate(model, seed=7).observations, many.observations.sample(0), 1e-13)


def test_samples_of_a_model_are_drawn_with_their_own_parameters():
    scale = Ensemble(np.array([1.0, 0.5, 0.0]))
    model = LinearGaussianModel(**{**GOOD, "F": scale * EYE})
    drawn = simulate(model, 6, seed=8)
    expected = simulate(LinearGaussianModel(**{**GOOD, "F": 0.5 * EYE}), 6, n_samples=3, seed=8)
    close(drawn.states.sample(1), expected.states.sample(1), 1e-13)
    x = array_api_strict.asarray
    strict = simulate(LinearGaussianModel(**{name: x(a) for name, a in GOOD.items()}), 6, n_samples=3, seed=8)
    close(np.asarray(strict.states.samples), expected.states.samples, 1e-13)


@pytest.mark.parametrize(
    "call, error, match",
    [
        (lambda: simulate(3, 5), TypeError, "model must be a LinearGaussianModel"),
        (lambda: simulate(MODEL), ValueError, "n_steps must be given for a model that is constant in time"),
        (lambda: simulate(VARIED, 4), ValueError, "n_steps must be 3 as the model has; got 4"),
        (lambda: simulate(MODEL, 3, n_samples=0), ValueError, "n_samples must be"),
        (lambda: simulate(MODEL, 3, seed="a"), TypeError, "seed must be"),
        (lambda: simulate(LIFTED, 3, n_samples=4), ValueError,
         "n_samples must be 3 as the model's Ensembles have; got 4"),
        (lambda: simulate(LinearGaussianModel(**GOOD, diffuse=[True, False]), 3), ValueError, "model must have no"),
    ],
)  # fmt: skip
def test_bad_simulations_are_named(call, error, match):
    with pytest.raises(error, match=f"^simulate: {match}"):
        call()


# --- online
@pytest.mark.parametrize("prior_at", ["before", "first_observation"])
@pytest.mark.parametrize("size, dtype", [((3, 2), np.float64), ((9, 2), np.float64), ((4, 2), np.float32)], ids=str)
def test_steps_online_have_the_bits_of_the_filter(size, dtype, prior_at):
    parts, y = random_parts(12, *size, dtype=dtype)
    y = with_gaps(y)
    model = LinearGaussianModel(**parts, prior_at=prior_at)
    expected, online = kalman_filter(model, y), OnlineFilter(model)
    for k in range(12):
        online.step(y[k])
        np.testing.assert_array_equal(online.mean, expected.mean[k])
        np.testing.assert_array_equal(online.covariance, expected.covariance[k])
    assert online.k == 11
    close(online.log_likelihood, expected.log_likelihood, 1e-12 if dtype == np.float64 else 1e-5)


@pytest.mark.parametrize("kind", ["one series", "correlated", "batch", "ensemble"])
def test_predictions_and_updates_online_are_those_of_the_filter(kind):
    parts, y = random_parts(6, 3, 2, batch=(2,) if kind == "batch" else ())
    y = with_gaps(y)
    parts = correlated(parts) if kind == "correlated" else parts
    if kind == "ensemble":
        parts["Q"] = Ensemble(np.array([1.0, 2.0])) * parts["Q"]
    model = LinearGaussianModel(**parts)
    expected, online = kalman_filter(model, y), OnlineFilter(model)
    values = lambda a, b: (a.samples + 0.0 * b.samples, b.samples + 0.0 * a.samples) if kind == "ensemble" else (a, b)
    same = lambda a, b: close(*values(a, b), 1e-12)
    for k in range(6):
        online.predict()
        same(online.mean, expected.predicted_mean[..., k, :])
        same(online.covariance, expected.predicted_covariance[..., k, :, :])
        online.update(y[..., k, :])
        same(online.mean, expected.mean[..., k, :])
        same(online.covariance, expected.covariance[..., k, :, :])
    same(online.log_likelihood, expected.log_likelihood)


def test_predictions_over_several_steps_are_a_forecast():
    online, y = OnlineFilter(MODEL), np.arange(6.0).reshape(3, 2)
    for row in y.tolist():
        online.step(row)
    online.predict(4)
    ahead = forecast(MODEL, y, 4)
    close(online.mean, ahead.state_mean[3])
    close(online.covariance, ahead.state_covariance[3])
    assert repr(online) == f"OnlineFilter(k=6, {MODEL!r})"


def test_a_prior_at_the_first_observation_takes_it_at_once():
    online = OnlineFilter(LinearGaussianModel(**GOOD, prior_at="first_observation"))
    online.update([1.0, np.nan])
    close(online.mean, [0.5, 0.0])


@pytest.mark.parametrize("kind", ["one series", "correlated", "batch", "ensemble"])
@pytest.mark.parametrize("prior_at", ["before", "first_observation"])
def test_a_diffuse_prior_is_taken_online(kind, prior_at):
    parts, y = random_parts(7, 3, 2, batch=(2,) if kind == "batch" else ())
    y = with_gaps(y)
    parts = correlated(parts) if kind == "correlated" else parts
    if kind == "ensemble":
        parts["Q"] = Ensemble(np.array([1.0, 2.0])) * parts["Q"]
    model = LinearGaussianModel(**parts, prior_at=prior_at, diffuse=np.ones(3, bool))
    expected, online = kalman_filter(model, y), OnlineFilter(model)
    n = expected.diffuse_covariance.shape[-3]
    values = lambda a, b: (a.samples + 0.0 * b.samples, b.samples + 0.0 * a.samples) if kind == "ensemble" else (a, b)
    same = lambda a, b: close(*values(a, b), 1e-12)
    for k in range(7):
        online.step(y[..., k, :])
        same(online.mean, expected.mean[..., k, :])
        same(online.covariance, expected.covariance[..., k, :, :])
        if k < n - 1:
            same(online.diffuse_covariance, expected.diffuse_covariance[..., k, :, :])
    same(online.log_likelihood, expected.log_likelihood)


def test_a_refused_observation_leaves_the_state():
    for model in (MODEL, LinearGaussianModel(**{**GOOD, "m0": np.zeros((3, 2))})):
        online = OnlineFilter(model)
        online.step(np.ones(online.mean.shape))
        before = online.mean
        with pytest.raises(ValueError, match="OnlineFilter: y must"):
            online.step(np.full(online.mean.shape, np.inf))
        assert online.k == 0
        np.testing.assert_array_equal(online.mean, before)


def stepped(model, *ys):
    online = OnlineFilter(model)
    for y in ys:
        online.step(y)
    return online


@pytest.mark.parametrize(
    "call, error, match",
    [
        (lambda: OnlineFilter(3), TypeError, "OnlineFilter: model must be a LinearGaussianModel"),
        (lambda: stepped(MODEL, [1.0]), ValueError, r"OnlineFilter: y must have shape \(2,\); got shape \(1,\)"),
        (lambda: stepped(MODEL, np.zeros((1, 2))), ValueError, r"OnlineFilter: y must have shape \(2,\)"),
        (lambda: stepped(MODEL, "a"), TypeError, "OnlineFilter: y must be"),
        (lambda: stepped(MODEL, [np.inf, np.nan]), ValueError, "OnlineFilter: y must be finite, or NaN where missing"),
        (lambda: stepped(LinearGaussianModel(**{**GOOD, "m0": np.zeros((3, 2))}), np.full((3, 2), np.inf)), ValueError,
         "OnlineFilter: y must be finite, or NaN where missing"),
        (lambda: stepped(LinearGaussianModel(**{**GOOD, "F": np.zeros((2, 2, 2))}), *np.zeros((3, 2))), ValueError,
         "OnlineFilter: step must be called for the model's 2 steps; got step 2"),
        (lambda: OnlineFilter(MODEL).update([0.0, 0.0]), ValueError, "OnlineFilter: update must follow a prediction"),
        (lambda: OnlineFilter(MODEL).predict(0), ValueError, "OnlineFilter.predict: n_steps must be"),
    ],
)  # fmt: skip
def test_bad_steps_are_named(call, error, match):
    with pytest.raises(error, match=match):
        call()


# --- stationary priors
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("radius", [0.0, 0.5, 0.999, 1.0 - 1e-9])
def test_stationary_covariances_solve_lyapunovs_equation(n, radius):
    rng = np.random.default_rng(19477)
    A, B = rng.standard_normal((2, n, n))
    F, Q = radius * A / np.max(np.abs(np.linalg.eigvals(A))), B @ B.T
    P = stationary_covariance(F, Q)
    tolerance = 1e-12 / (1.0 - min(radius, 0.9999))  # the condition of the equation grows like that
    if radius < 0.9999:
        close(P, solve_discrete_lyapunov(F, Q), tolerance)
    np.testing.assert_allclose(P, F @ P @ F.T + Q, rtol=0, atol=1e-12 * np.max(np.abs(P)))


def test_a_stationary_model_is_that_of_statsmodels():
    other, params, _ = at_start("moving average")
    expected = LinearGaussianModel.from_statsmodels(other, params)
    got = LinearGaussianModel.stationary(*(getattr(expected, name) for name in ("F", "Q", "H", "R")))
    close(got.P0, expected.P0)
    u = np.array([1.0, -2.0])
    moved = LinearGaussianModel.stationary(got.F, got.Q, got.H, got.R, u=u)
    close(moved.m0, got.F @ moved.m0 + u)
    assert moved.prior_at == "first_observation"


def test_each_sample_has_the_stationary_covariance_of_its_own_run():
    values = np.array([0.3, 0.99, 0.0])
    F = np.array([[0.9, 0.2], [0.0, 0.7]])
    P = stationary_covariance(Ensemble(values) * F, EYE)
    batch = stationary_covariance(values[:, None, None] * F, EYE)
    for i, value in enumerate(values):
        alone = stationary_covariance(value * F, EYE)
        np.testing.assert_array_equal(P.sample(i), alone)
        np.testing.assert_array_equal(batch[i], alone)
    strict = stationary_covariance(array_api_strict.asarray(F), array_api_strict.asarray(EYE))
    close(np.asarray(strict), stationary_covariance(F, EYE))


ROTATION = np.array([[0.0, 1.1], [-1.1, 0.0]])


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: stationary_covariance(EYE, EYE), "^stationary_covariance: F must have .* got the eigenvalue 1[.]"),
        (lambda: stationary_covariance(ROTATION, EYE), r"eigenvalue 0[+-]1.1j \(modulus 1.1\)"),
        (lambda: stationary_covariance(Ensemble(np.array([0.5, 2.0])) * EYE, EYE), "eigenvalue 2 in sample 1"),
        (lambda: stationary_covariance(0.5 * EYE, np.eye(3)), "Q must be square matrices of one size"),
        (lambda: stationary_covariance(0.5 * EYE, -EYE), "stationary_covariance: Q must be a covariance matrix"),
        (lambda: LinearGaussianModel.stationary(np.zeros((3, 2, 2)), EYE, EYE, EYE),
         "LinearGaussianModel.stationary: F must be constant in time; got 3 steps"),
    ],
)  # fmt: skip
def test_what_is_not_stationary_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()


@pytest.mark.parametrize("ensemble_size", [1, 4])
def test_draws_in_the_model_of_a_study_belong_to_its_samples(ensemble_size):
    one, inputs = np.eye(1), en.Inputs(q=stats.uniform(0.5, 0.5))

    def last(x):
        model = LinearGaussianModel(F=one, Q=x.q * one, H=one, R=one, m0=np.zeros(1), P0=one)
        return simulate(model, 5, seed=20731).states[-1, 0]

    found, whole = (
        en.propagate(last, inputs, 16, seed=3, ensemble_size=size, progress=False).samples("y").samples
        for size in (ensemble_size, 16)
    )
    assert np.array_equal(found, whole)
    assert np.unique(np.round(found, 12)).size == 16
