"""Exact diffuse initialisation is the limit of ever wider priors, for every method."""

import array_api_strict
import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    kalman_filter,
    maximum_likelihood,
    rts_smoother,
    sample_posterior,
    split_series,
    two_filter_smoother,
)
from ensemble.scalar import Ensemble
from tests.apps.kalman.digits import diffuse_limit
from tests.apps.kalman.models import close, random_parts, with_gaps

METHODS = {
    "recursion": lambda *a: rts_smoother(*a, method="sequential"),
    "square_root": lambda *a: rts_smoother(*a, form="square_root"),
    "scan": lambda *a: rts_smoother(*a, method="scan"),
    "blelloch": lambda *a: rts_smoother(*a, method="scan", scan="blelloch"),
    "two_filter": two_filter_smoother,
}


def finite_part(parts, mask):
    """`parts` with nothing known of the states in `mask`."""
    keep = np.outer(~mask, ~mask)
    return {**parts, "P0": np.where(keep, parts["P0"], 0.0)}


def directions(nx, n, seed=41953):
    return np.random.default_rng(seed).standard_normal((nx, n))


CASES = {
    "every state": lambda p, y: (p, y, np.eye(4)),
    "two states": lambda p, y: (finite_part(p, np.array([1, 0, 1, 0], bool)), y, np.eye(4)[:, [0, 2]]),
    "two directions": lambda p, y: (p, y, directions(4, 2)),
    "gaps": lambda p, y: (p, with_gaps(y), np.eye(4)),
    "one noise": lambda p, y: ({**p, "Q": 0.0 * p["Q"], "P0": 0.0 * p["P0"]}, y, np.eye(4)[:, [0, 2]]),
    "exact observations": lambda p, y: ({**p, "R": 0.0 * p["R"], "P0": 0.0 * p["P0"]}, y, np.eye(4)),
    "correlated observations": lambda p, y: ({**p, "R": p["R"][..., :1] @ p["R"][..., :1].mT}, with_gaps(y), np.eye(4)),
    "forgetful": lambda p, y: ({**p, "F": p["F"] * np.array([1.0, 0.0, 1.0, 1.0])}, y, np.eye(4)),
    "nothing seen": lambda p, y: (p, np.full_like(y, np.nan), np.eye(4)[:, [0, 2]]),
    "a state never seen": lambda p, y: (
        {**p, "F": np.broadcast_to(np.eye(4), p["F"].shape), "H": p["H"] * np.array([1.0, 1.0, 1.0, 0.0])}, y,
        np.eye(4)[:, [0, 3]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("prior_at", ["before", "first_observation"])
@pytest.mark.parametrize("case", CASES)
def test_diffuse_is_the_limit_of_wide_priors_in_many_digits(case, prior_at):
    parts, y, columns = CASES[case](*random_parts(7, 4, 2))
    mean, P, P_inf, smooth, spread, spread_inf, likelihood = diffuse_limit(parts, y, columns, prior_at)
    got = rts_smoother(LinearGaussianModel(**parts, prior_at=prior_at, diffuse=columns), y, method="sequential")
    n = got.filtered.diffuse_covariance.shape[0]
    close(got.filtered.mean, mean)
    close(got.filtered.covariance, P)
    close(got.filtered.diffuse_covariance, P_inf[:n])
    close(P_inf[n:], 0.0)
    close(got.mean, smooth)
    close(got.diffuse_covariance, spread_inf[:n])
    close(spread_inf[n:], 0.0)
    free = np.einsum("kii->ki", spread_inf) > 1e-12
    either = free[:, :, None] | free[:, None, :]
    close(np.where(either, 0.0, got.covariance), np.where(either, 0.0, spread))
    assert np.all(np.isinf(np.einsum("kii->ki", got.covariance)) == free)
    assert not np.any(np.isfinite(got.covariance[either]))
    close(got.log_likelihood, likelihood)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_on_behind_the_diffuse_steps(method):
    parts, y = random_parts(40, 4, 2)
    y = with_gaps(y)
    model = LinearGaussianModel(**parts, diffuse=np.array([True, True, False, True]))
    expected, got = rts_smoother(model, y), METHODS[method](model, y)
    for name in ("mean", "covariance", "log_likelihoods"):
        close(getattr(got, name), getattr(expected, name))
        close(getattr(got.filtered, name), getattr(expected.filtered, name))
    assert got.filtered.diffuse_covariance.shape[0] < 8
    assert not got.diffuse_covariance.any()


def test_a_sample_sees_only_itself():
    """Series of a batch and samples of an Ensemble with gaps of their own end their diffuse steps each in its time."""
    parts, y = random_parts(12, 3, 2, batch=(4,))
    y = with_gaps(y)
    y[1, :3] = np.nan
    columns = np.stack([directions(3, 2, 40000 + i) for i in range(4)])
    batch = rts_smoother(LinearGaussianModel(**parts, diffuse=columns), y)
    last = lambda a: Ensemble(np.ascontiguousarray(np.moveaxis(a, 0, -1)))
    lifted = rts_smoother(LinearGaussianModel(**{n: last(a) for n, a in parts.items()}, diffuse=last(columns)), last(y))
    for i in range(4):
        alone = rts_smoother(LinearGaussianModel(**{n: a[i] for n, a in parts.items()}, diffuse=columns[i]), y[i])
        for name in ("mean", "covariance", "log_likelihoods", "log_likelihood"):
            for pick in (lambda r: r, lambda r: r.filtered):
                value = getattr(pick(alone), name)
                close(getattr(pick(batch), name)[i], value, 1e-12)
                close(getattr(pick(lifted), name).sample(i), value, 1e-12)


def test_a_shared_model_serves_a_batch():
    parts, y = random_parts(9, 3, 2)
    model = LinearGaussianModel(**parts, diffuse=np.ones(3, bool))
    many = np.stack([y, 2.0 * y, with_gaps(y)])
    got = rts_smoother(model, many)
    assert got.mean.shape == (3, 9, 3) and got.filtered.log_likelihood.shape == (3,)
    for i in range(3):
        close(got.mean[i], rts_smoother(model, many[i]).mean, 1e-12)


def test_runs_on_array_api_strict_and_in_float32():
    parts, y = random_parts(9, 3, 2)
    y = with_gaps(y)
    expected = rts_smoother(LinearGaussianModel(**parts, diffuse=np.ones(3, bool)), y)
    xp = array_api_strict
    strict = LinearGaussianModel(**{k: xp.asarray(a) for k, a in parts.items()}, diffuse=np.ones(3, bool))
    close(np.asarray(rts_smoother(strict, xp.asarray(y)).mean), expected.mean)
    narrow = LinearGaussianModel(**{k: a.astype(np.float32) for k, a in parts.items()}, diffuse=np.ones(3, bool))
    got = rts_smoother(narrow, y.astype(np.float32))
    assert got.mean.dtype == np.float32
    close(got.mean, expected.mean, 1e-3)


@pytest.mark.parametrize("form, tolerance", [("covariance", 1e-5), ("square_root", 1e-7)])
def test_regressors_that_are_nearly_collinear_at_first_keep_digits(form, tolerance):
    """[1, t, sin t, cos t] at steps of 0.1: behind the diffuse steps variances are 1e9 times the last ones."""
    t = 0.1 * np.arange(60)
    H = np.stack([np.ones(60), t, np.sin(t), np.cos(t)], axis=-1)[:, None, :]
    noise = 0.1 * np.random.default_rng(30707).standard_normal((60, 1))
    y = H[:, 0] @ np.array([[1.0], [2.0], [3.0], [4.0]]) + noise
    nothing = np.zeros((4, 4))
    model = LinearGaussianModel(np.eye(4), nothing, H, [[0.01]], np.zeros(4), nothing, diffuse=np.ones(4, bool))
    got = kalman_filter(model, y, form=form)
    expected, residual, _, _ = np.linalg.lstsq(H[:, 0], y[:, 0])
    covariance = 0.01 * np.linalg.inv(H[:, 0].T @ H[:, 0])
    deviation = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(got.mean[-1] - expected) / deviation) < tolerance
    assert np.max(np.abs(got.covariance[-1] - covariance) / np.outer(deviation, deviation)) < tolerance
    log_density = -0.5 * (residual[0] / 0.01 + 56 * np.log(2 * np.pi * 0.01) + 4 * np.log(2 * np.pi))
    log_density -= 0.5 * np.linalg.slogdet(H[:, 0].T @ H[:, 0])[1]
    close(got.log_likelihood, log_density, tolerance)


def test_observations_of_what_is_known_exactly_have_no_density():
    model = LinearGaussianModel(np.eye(2), np.zeros((2, 2)), np.eye(2), np.zeros((2, 2)), np.zeros(2), np.zeros((2, 2)),
                                diffuse=[True, False])  # fmt: skip
    assert bool(kalman_filter(model, np.zeros((3, 2))).failed)


def test_parameters_are_fitted_with_a_diffuse_prior():
    """The Nile: Durbin and Koopman (2012), section 2.10.3, print the estimates 15099 and 1469.1."""
    api = pytest.importorskip("statsmodels.api")
    y = api.datasets.nile.load_pandas().data[["volume"]].to_numpy(float)
    one = np.eye(1)

    def level(theta):
        return LinearGaussianModel(one, theta[0] * one, one, theta[1] * one, np.zeros(1), 0.0 * one, diffuse=[True])

    fit = maximum_likelihood(level, y, [1000.0, 10000.0], bounds=[(0.0, None)] * 2)
    np.testing.assert_allclose(fit.estimate, [1469.1, 15099.0], rtol=2e-4)
    other = api.tsa.UnobservedComponents(y, "llevel")
    other.ssm.initialize("diffuse")
    other.loglikelihood_burn = 0
    np.testing.assert_allclose(fit.log_likelihood, other.loglike(fit.estimate[::-1]), rtol=1e-12)


PARTS = {"F": np.eye(2), "Q": np.eye(2), "H": np.eye(2), "R": np.eye(2), "m0": np.zeros(2), "P0": np.eye(2)}


@pytest.mark.parametrize(
    "diffuse, match",
    [
        ([True], "diffuse must be 2 bools or a matrix with 2 rows; got bools of shape"),
        (3.0, "diffuse must be 2 bools or a matrix with 2 rows"),
        (np.eye(3), r"diffuse must end in shape \(2, 3\)"),
        ([[1.0, 2.0], [2.0, 4.0]], "diffuse must have independent columns"),
        ([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], "diffuse must have independent columns, not more than states"),
        ([[np.nan], [1.0]], "diffuse must be finite"),
    ],
)
def test_bad_directions_are_named(diffuse, match):
    with pytest.raises(ValueError, match=f"LinearGaussianModel: {match}"):
        LinearGaussianModel(**PARTS, diffuse=diffuse)


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda m, y: sample_posterior(m, y, 2), "sample_posterior: model must have no diffuse states; got 1"),
        (lambda m, y: split_series(m, y, [None]), "split_series: model must have no diffuse states"),
        (lambda m, y: kalman_filter(m, y, mean_dtype="float64"), "mean_dtype must be None for a model with diffuse"),
    ],
)
def test_functions_without_diffuse_states_refuse_them(call, match):
    with pytest.raises(ValueError, match=match):
        call(LinearGaussianModel(**PARTS, diffuse=[True, False]), np.zeros((3, 2)))


def test_no_diffuse_state_is_an_ordinary_model():
    model = LinearGaussianModel(**PARTS, diffuse=[False, False])
    assert model.diffuse is None and kalman_filter(model, np.zeros((3, 2))).diffuse_covariance is None
    assert "n_diffuse=1" in repr(LinearGaussianModel(**PARTS, diffuse=[False, True]))
