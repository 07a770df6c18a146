"""Ensemble Kalman inversion: exact Gaussian posteriors, tempering, failures."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.scalar import Ensemble
from ensemble.uq import AlgorithmError, Inputs, kalman_inversion

RNG = np.random.default_rng(30103)
G = RNG.standard_normal((6, 3))
Y = 2.0 * RNG.standard_normal(6)
NOISE = np.diag(RNG.uniform(0.5, 1.5, 6)) + 0.2
COVARIANCE = np.linalg.inv(np.eye(3) + G.T @ np.linalg.solve(NOISE, G))
MEAN = COVARIANCE @ G.T @ np.linalg.solve(NOISE, Y)


def linear(x):
    return Ensemble(G @ x.samples)


def invert(seed, **options):
    return kalman_inversion(linear, Y, NOISE, 3, seed=seed, **{"n_samples": 300, **options})


@pytest.mark.parametrize("step", ["misfit", "effective_size"])
@pytest.mark.parametrize("update", ["stochastic", "transform"])
def test_moments_of_a_linear_gaussian_posterior(update, step):
    result = invert(91097, n_samples=4000, update=update, step=step).raise_if_failed()
    spread = np.sqrt(np.diag(COVARIANCE))
    assert np.all(np.abs(result.mean - MEAN) < 5.0 * spread / np.sqrt(4000.0))
    np.testing.assert_allclose(result.covariance, COVARIANCE, atol=0.1 * spread.max() ** 2)
    assert result.temperature == result.temperatures[-1] == 1.0
    assert np.all(np.diff(result.temperatures) > 0.0) and np.all(np.diff(result.misfits) < 0.0)
    assert result.n_evaluations == 4000 * result.n_iterations


@pytest.mark.slow
@pytest.mark.parametrize("update", ["stochastic", "transform"])
def test_means_and_covariances_over_seeds_are_the_exact_ones(update):
    """Within four standard errors over 200 seeds, and what 1 / n_samples of bias leaves."""
    results = [invert(20000 + k, n_samples=1000, update=update) for k in range(200)]
    means, covariances = np.array([r.mean for r in results]), np.array([r.covariance for r in results])
    spread = np.sqrt(np.diag(COVARIANCE))
    allowed = 4.0 * means.std(axis=0) / np.sqrt(200.0) + 3.0 * spread / 1000.0
    assert np.all(np.abs(means.mean(axis=0) - MEAN) < allowed)
    assert np.all(means.std(axis=0) < 1.6 * spread / np.sqrt(1000.0))
    errors = covariances.mean(axis=0) - COVARIANCE
    assert np.all(np.abs(errors) < 4.0 * covariances.std(axis=0) / np.sqrt(200.0) + 10.0 * spread.max() ** 2 / 1000.0)


def test_one_transform_step_is_the_kalman_formula_of_the_sample_moments():
    """With noise so large that tempering takes one step."""
    result = kalman_inversion(linear, Y, 100.0 * NOISE, 3, n_samples=50, update="transform", seed=65003)
    assert result.n_iterations == 1
    prior = kalman_inversion(lambda x: x, np.zeros(3), 1e12, 3, n_samples=50, update="transform", seed=65003).germs
    P = np.cov(prior)
    K = P @ G.T @ np.linalg.inv(G @ P @ G.T + 100.0 * NOISE)
    np.testing.assert_allclose(result.mean, prior.mean(axis=1) + K @ (Y - G @ prior.mean(axis=1)), rtol=1e-9)
    np.testing.assert_allclose(result.covariance, P - K @ G @ P, rtol=1e-9)


@pytest.mark.parametrize("form", [2.0, np.full(6, 2.0), 2.0 * np.eye(6)], ids=["number", "vector", "matrix"])
def test_forms_of_the_noise_covariance_agree(form):
    expected = kalman_inversion(linear, Y, 2.0, 3, n_samples=20, seed=511)
    found = kalman_inversion(linear, Y, form, 3, n_samples=20, seed=511)
    np.testing.assert_allclose(found.germs, expected.germs, rtol=1e-10)


def test_samples_are_those_of_the_inputs():
    inputs = Inputs(E=stats.lognorm(0.3, scale=2.0), load=stats.norm(1.0, 0.1))
    result = kalman_inversion(lambda x: {"u": x.load / x.E, "E": x.E}, 0.8, 1e-4, inputs, output="u", seed=9001)
    samples = result.raise_if_failed().samples
    u = samples.load.samples / samples.E.samples
    assert abs(u.mean() - 0.8) < 0.02 and u.std() < 0.02 and samples.E.n_samples == result.n_samples == 256


def test_results_do_not_depend_on_the_size_of_ensembles():
    def elementwise(x):
        return x * x + x

    one, many = (
        kalman_inversion(elementwise, np.ones(3), 0.1, 3, n_samples=40, seed=77, ensemble_size=size)
        for size in (7, None)
    )
    assert np.array_equal(one.germs, many.germs)


def failing(share):
    """The linear model, with NaN for the smallest first coordinates."""

    def model(x):
        bad = x.samples[0] < stats.norm.ppf(share)
        return Ensemble(np.where(bad, np.nan, G @ x.samples))

    return model


def test_failed_samples_are_drawn_again_and_told():
    result = kalman_inversion(failing(0.1), Y, NOISE, 3, n_samples=200, seed=17011)
    assert result.converged and result.n_samples == 200 and result.n_redrawn > 0
    assert result.n_evaluations == 200 * result.n_iterations + result.n_failed
    assert f"{result.n_failed} forward runs failed, {result.n_redrawn} of them drawn again" in repr(result)


def test_new_draws_have_the_spread_of_the_samples_that_ran():
    """With noise so large that the update moves nothing; a half-normal has deviation sqrt(1 - 2 / pi)."""
    result = kalman_inversion(failing(0.5), Y, 1e12, 3, n_samples=1000, update="transform", seed=38501)
    assert result.n_redrawn > 300 and np.unique(result.germs[0].round(9)).size == 1000
    assert result.germs[0].min() > -1e-3 and result.germs[0].std() == pytest.approx(np.sqrt(1.0 - 2.0 / np.pi), rel=0.1)
    np.testing.assert_allclose(result.germs[1:].std(axis=1), 1.0, rtol=0.1)


def test_failed_samples_are_left_out_on_request():
    result = kalman_inversion(failing(0.1), Y, NOISE, 3, n_samples=200, seed=17011, on_failure="drop")
    assert result.converged and result.n_samples == 200 - result.n_failed < 200 and result.n_redrawn == 0
    assert np.all(np.isfinite(result.germs))


def test_a_sample_that_marks_itself_as_failed_is_one():
    inputs = Inputs(a=stats.norm())

    def model(x):
        x.fail(x.a.samples > 1.0, "too stiff")
        return x.a

    result = kalman_inversion(model, [0.0], 1.0, inputs, n_samples=100, seed=1237, on_failure="drop")
    assert 0 < result.n_failed == 100 * result.n_iterations - result.n_evaluations + 100 - result.n_samples


def test_hardly_any_success_is_called_failed():
    calls = []

    def model(x):
        calls.append(x.n_samples)
        values = x.samples.copy()
        values[:, 1:] = np.nan
        return Ensemble(values)

    result = kalman_inversion(model, np.zeros(2), 1.0, 2, n_samples=10, seed=313)
    assert result.status == "failed" and result.temperature == 0.0
    with pytest.raises(AlgorithmError, match="failed"):
        result.raise_if_failed()


def test_forward_runs_without_a_finite_number_are_an_error():
    text = "kalman_inversion: every forward run of iteration 1 failed: output 'y' is not finite"
    with pytest.raises(AlgorithmError, match=text):
        kalman_inversion(lambda z: z[0] * np.nan, [1.0], 0.1, 2, n_samples=20, seed=71)


def test_nothing_but_failures_is_an_error():
    with pytest.raises(AlgorithmError, match="every sample of the first call failed: ArithmeticError: no"):
        kalman_inversion(raises, [0.0], 1.0, 1, n_samples=4)


def raises(x):
    raise ArithmeticError("no")


def test_too_few_iterations_are_told():
    result = invert(4001, max_iterations=1)
    assert result.status == "max_iterations" and 0.0 < result.temperature < 1.0
    assert "max_iterations: temperature 0." in repr(result)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"noise_covariance": -1.0}, "noise_covariance must be finite and above zero"),
        ({"noise_covariance": np.ones(2)}, r"noise_covariance must be a number or have shape \(3,\) or \(3, 3\)"),
        ({"noise_covariance": -np.eye(3)}, "noise_covariance must be positive definite"),
        ({"noise_covariance": np.eye(3) + np.eye(3, k=-1) / 2}, "noise_covariance must be symmetric"),
        ({"y": [np.nan, 1.0, 1.0]}, "y must hold one finite number or more"),
        ({"y": np.ones(4)}, "forward must return 4 numbers per sample, as many as y; got 3"),
        ({"update": "square"}, "update must be one of 'stochastic', 'transform'"),
        ({"step": "none"}, "step must be one of"),
        ({"on_failure": "raise"}, "on_failure must be one of 'redraw', 'drop'"),
        ({"effective_size": 1.0}, "effective_size must be between 0 and 1"),
        ({"n_samples": 1}, "n_samples must be an integer of at least 2"),
    ],
)
def test_arguments_out_of_range_are_refused(options, words):
    arguments = {"y": np.ones(3), "noise_covariance": 1.0, "inputs": 3, **options}
    with pytest.raises(ValueError, match=words):
        kalman_inversion(lambda x: x, **arguments)


def test_shared_data_are_no_sample():
    """A model that ignores its inputs leaves the prior as it is."""
    result = kalman_inversion(lambda x: en.shared(np.array([2.0])), [1.0], 1.0, 1, n_samples=30, seed=8081)
    before = kalman_inversion(lambda x: x, [0.0], 1e12, 1, n_samples=30, update="transform", seed=8081)
    np.testing.assert_allclose(result.germs, before.germs, atol=1e-6)
