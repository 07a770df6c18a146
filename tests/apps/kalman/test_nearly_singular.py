"""Smoothers where the predicted covariance is nearly singular: exact observations, noise of low rank, wide priors.

The truth is a closed form, arithmetic of 50 digits, or another library.
"""

import functools

import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    filter_split_series,
    kalman_filter,
    rts_smoother,
    sample_posterior,
    smooth_split_series,
    split_series,
    two_filter_smoother,
)
from ensemble.krylov import SolveError
from ensemble.scalar import Ensemble
from tests.apps.kalman.models import exactly, random_parts, with_gaps

SMOOTHERS = {
    "sequential": lambda *a: rts_smoother(*a, method="sequential"),
    "square_root": lambda *a: rts_smoother(*a, form="square_root"),
    "scan": lambda *a: rts_smoother(*a, method="scan"),
    "blelloch": lambda *a: rts_smoother(*a, method="scan", scan="blelloch"),
    "two_filter": two_filter_smoother,
}


def stationary(F, Q):
    n = len(F)
    return np.linalg.solve(np.eye(n * n) - np.kron(F, F), Q.reshape(-1)).reshape(n, n)


def arma(phi, theta, P0=None):
    """Harvey's form of an ARMA model without observation noise."""
    n = max(len(phi), len(theta) + 1)
    F = np.eye(n, k=1)
    F[: len(phi), 0] = phi
    g = np.zeros((n, 1))
    g[: len(theta) + 1, 0] = [1.0, *theta]
    H, Q = np.eye(1, n), g @ g.T
    P0 = stationary(F, Q) if P0 is None else P0 * np.eye(n)
    return {"F": F, "Q": Q, "H": H, "R": np.zeros((1, 1)), "m0": np.zeros(n), "P0": P0, "u": np.zeros(n),
            "d": np.zeros(1)}  # fmt: skip


def polynomial(*factors):
    """Coefficients behind the first of a product of polynomials of the lag operator."""
    return functools.reduce(np.convolve, factors)[1:]


def random_singular(T=12, nx=4, rank=1, seed=51977):
    """Varying transitions, noise of low rank, and one component that is seen without noise."""
    parts, y = random_parts(T, nx, 2, seed=seed)
    parts["Q"] = parts["Q"][..., :rank] @ parts["Q"][..., :rank].mT / nx
    parts["R"][:, 0, :] = parts["R"][:, :, 0] = 0.0
    return parts, y


def regression(p0, T=25):
    k = np.arange(T)
    H = np.stack([np.ones(T), k, np.sin(k), np.cos(k)], axis=-1)[:, None, :]
    y = H @ np.array([1.0, 2.0, 3.0, 4.0]) + 0.1 * np.random.default_rng(90217).standard_normal((T, 1))
    return {"F": np.eye(4), "Q": np.zeros((4, 4)), "H": H, "R": 0.01 * np.eye(1), "m0": np.zeros(4),
            "P0": p0 * np.eye(4), "u": np.zeros(4), "d": np.zeros(1)}, y  # fmt: skip


def walk_of(parts, T=20, seed=31891):
    return parts, np.cumsum(np.random.default_rng(seed).standard_normal((T, 1)), axis=0)


def singular_transition(T=15):
    parts, y = random_parts(T, 4, 1, seed=77003)
    parts["F"][..., 0] = 0.0
    parts["Q"], parts["R"] = parts["Q"][..., :1] @ parts["Q"][..., :1].mT, 0.0 * parts["R"]
    return parts, y


MODELS = {
    "ARIMA(0,1,1)(0,1,0)_3": lambda: walk_of(arma(-polynomial([1, -1], [1, 0, 0, -1]), [0.4], P0=1e6)),
    "ARIMA(1,1,1)(0,1,1)_4": lambda: walk_of(arma(-polynomial([1, -0.5], [1, -1], [1, 0, 0, 0, -1]),
                                                  polynomial([1, 0.3], [1, 0, 0, 0, -0.4]), P0=1e6), 16),
    "ARMA(2,1)": lambda: walk_of(arma([0.5, 0.3], [0.2])),
    "MA(2)": lambda: walk_of(arma([], [0.7, 0.2])),
    "rank one": random_singular,
    "rank one, gaps": lambda: (random_singular()[0], with_gaps(random_singular()[1])),
    "rank two of six": lambda: random_singular(T=10, nx=6, rank=2),
    "singular transition": singular_transition,
    "wide prior, no noise": lambda: regression(1e6),
}  # fmt: skip

LOST = {
    ("rank one", "two_filter"): 1e-6,
    ("wide prior, no noise", "two_filter"): 1e-2,
    ("wide prior, no noise", "sequential"): 1e-5,
    ("wide prior, no noise", "scan"): 1e-5,
    ("wide prior, no noise", "blelloch"): 1e-2,
}
"""Tolerances where other parts lose digits: filters below a prior of 1e6, scans of elements that are near singular."""


@functools.lru_cache(maxsize=1)
def case(name):
    parts, y = MODELS[name]()
    prior_at = "first_observation" if "MA" in name else "before"
    return LinearGaussianModel(**parts, prior_at=prior_at), y, exactly(parts, y, prior_at=prior_at)


def check(got, expected, tolerance):
    """In deviations: the error of means in the largest of each component, of covariances in the largest variance."""
    mean, covariance = expected
    variances = np.diagonal(covariance, axis1=-2, axis2=-1)
    size = np.sqrt(variances.max()) + 1e-3 * np.abs(mean).max()
    np.testing.assert_allclose(got.mean, mean, rtol=0, atol=tolerance * size)
    np.testing.assert_allclose(got.covariance, covariance, rtol=0, atol=tolerance * variances.max())


@pytest.mark.parametrize("method", SMOOTHERS)
@pytest.mark.parametrize("name", MODELS)
def test_every_smoother_has_the_exact_states_of_singular_models(name, method):
    model, y, expected = case(name)
    got = SMOOTHERS[method](model, y)
    check(got, expected, LOST.get((name, method), 1e-9))
    assert not got.failed


@pytest.mark.parametrize("T", [10, 100, 2000])
@pytest.mark.parametrize("method", SMOOTHERS)
def test_the_variances_of_a_moving_average_are_its_closed_form(method, T):
    """The posterior precision of the disturbance before the first observation is the sum of theta^(2k)."""
    theta = 0.9
    y = np.random.default_rng(20813).standard_normal((T, 1))
    got = SMOOTHERS[method](LinearGaussianModel(**arma([], [theta]), prior_at="first_observation"), y)
    powers = theta ** (2.0 * np.arange(T + 1))
    np.testing.assert_allclose(got.covariance[:, 1, 1], theta**2 * powers[1:] / powers.sum(), rtol=0, atol=1e-12)
    assert T < 100 or abs(got.covariance[0, 1, 1] - 0.1247) < 5e-5
    assert np.abs(got.mean[:, 0] - y[:, 0]).max() < 1e-12


@pytest.mark.parametrize("seed", [11903, 24611, 38557, 49193, 60919, 73721])
def test_gains_of_large_singular_models_keep_a_wide_margin(seed):
    """States in another order, other models: the error stays 1e3 times below what other tests allow."""
    parts, y = random_parts(7, 12, 5, seed=seed)
    parts["P0"], parts["Q"] = 0.0 * parts["P0"], parts["Q"][..., :1] @ parts["Q"][..., :1].mT
    order = np.random.default_rng(seed).permutation(12)
    for name in ("F", "Q"):
        parts[name] = parts[name][:, order][:, :, order]
    parts["H"], parts["u"], parts["m0"] = parts["H"][..., order], parts["u"][:, order], parts["m0"][order]
    y = with_gaps(y)
    got = rts_smoother(LinearGaussianModel(**parts), y)
    mean, covariance = exactly(parts, y, digits=30)
    np.testing.assert_allclose(got.mean, mean, rtol=0, atol=1e-12 * np.abs(mean).max())
    np.testing.assert_allclose(got.covariance, covariance, rtol=0, atol=1e-12 * np.abs(covariance).max())


def test_narrow_numbers_have_the_states_too():
    parts, y = walk_of(arma([0.5, 0.3], [0.2]))
    expected = exactly(parts, y.astype(np.float32), prior_at="first_observation")
    narrow = {name: a.astype(np.float32) for name, a in parts.items()}
    got = rts_smoother(LinearGaussianModel(**narrow, prior_at="first_observation"), y.astype(np.float32))
    assert got.mean.dtype == np.float32
    check(got, expected, 1e-4)


def test_array_libraries_smooth_singular_models():
    strict = pytest.importorskip("array_api_strict")
    model, y, expected = case("rank one")
    parts = {name: strict.asarray(getattr(model, name)) for name in ("F", "Q", "H", "R", "m0", "P0", "u", "d")}
    for options in ({"method": "sequential"}, {"method": "scan"}, {"form": "square_root"}):
        got = rts_smoother(LinearGaussianModel(**parts), strict.asarray(y), **options)
        np.testing.assert_allclose(np.asarray(got.mean), expected[0], rtol=0, atol=1e-9)
        np.testing.assert_allclose(np.asarray(got.covariance), expected[1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"method": "scan"}, {"form": "square_root"}], ids=str)
def test_singular_samples_beside_others_have_their_own_bits(options):
    regular, y = random_parts(9, 4, 2, seed=15013)
    singular, z = random_singular(9, seed=40289)
    both = {name: Ensemble(np.stack([regular[name], singular[name], regular[name]], axis=-1)) for name in regular}
    together = rts_smoother(LinearGaussianModel(**both), Ensemble(np.stack([y, z, y], axis=-1)), **options)
    batch = {name: np.stack([regular[name], singular[name]]) for name in regular}
    batched = rts_smoother(LinearGaussianModel(**batch), np.stack([y, z]), **options)
    alone = rts_smoother(LinearGaussianModel(**singular), z, **options)
    if not options.get("method"):  # products of stacked matrices round differently
        np.testing.assert_array_equal(together.mean.sample(1), alone.mean)
        np.testing.assert_array_equal(together.covariance.sample(1), alone.covariance)
        np.testing.assert_array_equal(batched.mean[1], alone.mean)
        np.testing.assert_array_equal(batched.covariance[1], alone.covariance)
    check(alone, exactly(singular, z), 1e-9)
    np.testing.assert_allclose(together.mean.sample(1), alone.mean, rtol=0, atol=1e-11)


@pytest.mark.parametrize("nx", [2, 4])
def test_square_roots_of_samples_have_their_own_bits(nx):
    parts, y = random_parts(7, nx, 2, batch=(3,))
    lifted = {name: Ensemble(np.ascontiguousarray(np.moveaxis(a, 0, -1))) for name, a in parts.items()}
    seen = Ensemble(np.ascontiguousarray(np.moveaxis(with_gaps(y), 0, -1)))
    together = rts_smoother(LinearGaussianModel(**lifted), seen, form="square_root")
    for i in range(3):
        one = LinearGaussianModel(**{name: a[i] for name, a in parts.items()})
        alone = rts_smoother(one, with_gaps(y)[i], form="square_root")
        for name in ("mean", "covariance", "log_likelihoods"):
            np.testing.assert_array_equal(getattr(together, name).sample(i), getattr(alone, name))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_series_that_share_covariances_have_the_bits_of_their_own_smoother(dtype):
    parts, _ = random_parts(1, 2, 1, dtype=dtype)
    one = {name: a if name in ("m0", "P0") else a[0] for name, a in parts.items()}
    y = np.random.default_rng(58757).standard_normal((5, 9, 1)).astype(dtype)
    shifts = np.random.default_rng(58763).standard_normal((5, 9, 2)).astype(dtype)
    together = rts_smoother(LinearGaussianModel(**{**one, "u": shifts}), y)
    assert together.covariance.strides[0] == 0
    for i in range(5):
        alone = rts_smoother(LinearGaussianModel(**{**one, "u": shifts[i]}), y[i])
        np.testing.assert_array_equal(together.mean[i], alone.mean)
        np.testing.assert_array_equal(together.covariance[i], alone.covariance)


def test_series_that_share_a_singular_model_are_settled_too():
    parts, _ = walk_of(arma([0.5, 0.3], [0.2]))
    y = np.random.default_rng(36151).standard_normal((4, 11, 1))
    together = rts_smoother(LinearGaussianModel(**parts, prior_at="first_observation"), y)
    for i in range(4):
        check(rts_smoother(LinearGaussianModel(**parts, prior_at="first_observation"), y[i]),
              exactly(parts, y[i], prior_at="first_observation"), 1e-12)  # fmt: skip
    alone = rts_smoother(LinearGaussianModel(**parts, prior_at="first_observation"), y[3])
    np.testing.assert_array_equal(together.mean[3], alone.mean)
    np.testing.assert_array_equal(together.covariance[3], alone.covariance)


def test_parts_of_a_singular_series_have_the_bits_of_one_piece():
    parts, y = MODELS["ARIMA(0,1,1)(0,1,0)_3"]()
    model = LinearGaussianModel(**parts)
    expected = rts_smoother(model, y)
    pieces = split_series(model, y, [None, None, None])
    got = smooth_split_series(pieces)
    np.testing.assert_array_equal(np.concatenate([p.mean for p in got]), expected.mean)
    np.testing.assert_array_equal(np.concatenate([p.covariance for p in got]), expected.covariance)
    assert [p.filtered.mean.shape for p in got] == [p.mean.shape for p in filter_split_series(pieces)]


def test_failed_tells_of_the_smoother_and_names_step_and_series():
    parts, y = random_parts(6, 2, 1, batch=(3,))
    result = rts_smoother(LinearGaussianModel(**parts), y)
    assert not result.failed.any() and result.raise_if_failed() is result
    result.covariance[1, 2, 0, 0] = -1e-3
    result.mean[2, :4] = np.nan
    assert result.failed.tolist() == [False, True, True] and not result.filtered.failed.any()
    with pytest.raises(SolveError, match=r"rts_smoother: .* from step 3 on \(series \(1,\), \(2,\)\) back"):
        result.raise_if_failed()


def test_draws_of_a_singular_model_have_its_moments_and_correlation_in_time():
    theta, T = 0.9, 12
    y = np.random.default_rng(66191).standard_normal((T, 1))
    model = LinearGaussianModel(**arma([], [theta]), prior_at="first_observation")
    draws = sample_posterior(model, y, 20_000, seed=71327).samples
    np.testing.assert_allclose(draws[:, 0], np.broadcast_to(y, (T, 20_000)), rtol=0, atol=1e-12)
    powers = theta ** (2.0 * np.arange(T + 1))
    variances = theta**2 * powers[1:] / powers.sum()
    smooth = rts_smoother(model, y)
    error = np.abs(draws[:, 1].mean(axis=-1) - smooth.mean[:, 1])
    assert (error < 5 * np.sqrt(variances / 20_000)).all()
    np.testing.assert_allclose(draws[:, 1].var(axis=-1), variances, rtol=0.05)  # five deviations of a variance
    # x[k+1, 1] = theta (y[k+1] - x[k, 1]): disturbances of neighbouring steps determine each other
    np.testing.assert_allclose(draws[1:, 1], theta * (y[1:] - draws[:-1, 1]), rtol=0, atol=1e-9)


def test_draw_i_does_not_depend_on_the_number_of_draws():
    parts, y = random_parts(8, 3, 2)
    few, many = (sample_posterior(LinearGaussianModel(**parts), y, n, seed=82007).samples for n in (3, 7))
    np.testing.assert_array_equal(few, many[..., :3])


def test_lag_one_covariances_of_draws_are_those_of_the_posterior():
    parts, y = random_parts(5, 2, 1, seed=93251)
    draws = sample_posterior(LinearGaussianModel(**parts), y, 40_000, seed=10427).samples
    # the truth: two copies of the state side by side, the second a step behind
    twice = {name: parts[name] for name in ("R", "d")}
    zero = np.zeros((5, 2, 2))
    twice["F"] = np.concatenate([np.concatenate([parts["F"], zero], 2), np.concatenate([zero + np.eye(2), zero], 2)], 1)
    twice["Q"] = np.concatenate([np.concatenate([parts["Q"], zero], 2), np.zeros((5, 2, 4))], 1)
    twice["H"], twice["u"] = np.concatenate([parts["H"], zero[:, :1]], 2), np.concatenate([parts["u"], zero[:, 0]], 1)
    twice["m0"] = np.concatenate([parts["m0"], np.zeros(2)])
    twice["P0"] = np.block([[parts["P0"], np.zeros((2, 2))], [np.zeros((2, 4))]])
    _, covariance = exactly(twice, y)
    centred = draws - draws.mean(axis=-1, keepdims=True)
    for k in range(1, 5):
        got = centred[k] @ centred[k - 1].T / draws.shape[-1]
        size = np.sqrt(np.outer(*(np.diagonal(covariance[k])[s] for s in (slice(2), slice(2, 4)))))
        assert (np.abs(got - covariance[k, :2, 2:]) < 5 * np.sqrt(2 / draws.shape[-1]) * size).all()


def test_the_filter_is_as_it_was():
    model, y, _ = case("rank one")
    result = rts_smoother(model, y)
    np.testing.assert_array_equal(result.filtered.mean, kalman_filter(model, y).mean)
    np.testing.assert_array_equal(result.mean[-1], result.filtered.mean[-1])


def test_a_component_that_is_known_exactly_is_no_failure():
    """Its filtered variances are zero, its smoothed ones the rounding of zero, of either sign."""
    parts, y = random_parts(600, 3, 1)
    parts["H"] = np.zeros_like(parts["H"]) + np.array([1.0, 0.0, 0.0])
    parts["Q"][:, 0, :] = parts["Q"][:, :, 0] = parts["R"][:] = 0.0
    smooth = rts_smoother(LinearGaussianModel(**parts), y)
    assert np.abs(smooth.covariance[:, 0, 0]).max() < 1e-30
    assert not smooth.failed
