"""The affine-invariant sampler: exact posteriors, bits, restarts, failures."""

import re

import numpy as np
import pytest
from scipy import stats

from ensemble.scalar import Ensemble
from ensemble.uq import AlgorithmError, Inputs, mcmc

G = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, -1.0]])
Y = np.array([1.0, -0.5])
COVARIANCE = np.linalg.inv(np.eye(3) + G.T @ G / 0.25)
MEAN = COVARIANCE @ G.T @ Y / 0.25


def likelihood(x):
    """Two observations of three standard normals with noise of variance 1/4."""
    residuals = Y[:, None] - G @ x.samples
    return Ensemble(-2.0 * (residuals * residuals).sum(axis=0))


def test_moments_of_a_gaussian_posterior():
    result = mcmc(likelihood, 3, 4000, n_chains=64, seed=31337).raise_if_failed()
    draws = result.draws(thin=1).samples
    error = np.sqrt(np.diag(COVARIANCE) / result.effective_sample_size)
    assert np.all(np.abs(draws.mean(axis=1) - MEAN) < 4.0 * error)
    np.testing.assert_allclose(np.cov(draws), COVARIANCE, atol=0.06)
    assert result.n_evaluations == 64 * 4001 and result.n_failed == 0
    assert 0.3 < result.acceptance.mean() < 0.9


@pytest.mark.slow
def test_means_over_seeds_scatter_as_their_effective_sample_size_says():
    results = [mcmc(likelihood, 3, 2000, n_chains=64, seed=seed) for seed in range(10000, 10060)]
    errors = np.array([result.draws(thin=1).samples.mean(axis=1) - MEAN for result in results])
    expected = np.sqrt(np.diag(COVARIANCE) * np.mean([1.0 / r.effective_sample_size for r in results], axis=0))
    scores = errors / expected
    assert np.all(np.abs(scores.mean(axis=0)) < 4.0 / np.sqrt(60.0))
    np.testing.assert_allclose(scores.std(axis=0), 1.0, atol=0.4)
    mean_covariance = np.mean([np.cov(r.draws(thin=1).samples) for r in results], axis=0)
    np.testing.assert_allclose(mean_covariance, COVARIANCE, atol=0.012)


def test_the_sampler_is_affine_invariant():
    """Chains of a density under a linear map are the mapped chains (Goodman, Weare 2010, eq. 4)."""
    A = np.array([[3.0, 0.0], [-2.0, 0.25]])
    start = np.random.default_rng(71993).standard_normal((32, 2))

    def density(z):
        return Ensemble(-0.5 * (z * z).sum(axis=0) - z[0] ** 4)

    plain = mcmc(lambda x: density(x.samples), 2, 30, start=start, prior="flat", seed=5000)
    mapped = mcmc(
        lambda x: density(np.linalg.solve(A, x.samples)), 2, 30, start=start @ A.T, prior="flat", seed=5000
    )  # fmt: skip
    np.testing.assert_allclose(mapped.chain.samples, np.einsum("ij,kjs->kis", A, plain.chain.samples), atol=1e-11)


def test_a_continued_run_has_the_bits_of_one_long_run():
    whole = mcmc(likelihood, 3, 150, n_chains=32, seed=40487)
    part = mcmc(likelihood, 3, 70, n_chains=32, seed=40487)
    continued = mcmc(likelihood, 3, 80, start=part)
    assert np.array_equal(whole.chain.samples, continued.chain.samples)
    assert np.array_equal(whole.log_density.samples, continued.log_density.samples)
    assert np.array_equal(whole.acceptance, continued.acceptance)
    assert whole.n_evaluations == continued.n_evaluations and whole.burn_in == continued.burn_in


def test_chains_are_the_same_for_any_size_of_ensembles():
    results = [mcmc(likelihood, 3, 20, n_chains=32, seed=11827, ensemble_size=size) for size in (None, 5, 1)]
    np.testing.assert_allclose(results[1].chain.samples, results[0].chain.samples, rtol=1e-12)
    np.testing.assert_allclose(results[2].chain.samples, results[0].chain.samples, rtol=1e-12)


def test_the_kept_density_is_that_of_the_kept_point():
    result = mcmc(likelihood, 3, 25, n_chains=16, seed=60607)
    z = np.concatenate(list(result.chain.samples), axis=1)
    expected = likelihood(Ensemble(z)).samples - 0.5 * (z * z).sum(axis=0)
    np.testing.assert_allclose(result.log_density.samples.ravel(), expected, rtol=1e-13)


@pytest.mark.slow
def test_inputs_are_the_prior():
    inputs = Inputs(rate=stats.gamma(2.0), shift=stats.uniform(-1.0, 2.0))
    counts = np.array([3, 1, 4])

    def log_likelihood(x):
        rate = x.rate.samples
        return {"log": Ensemble(counts.sum() * np.log(rate) - counts.size * rate), "other": x.shift}

    result = mcmc(log_likelihood, inputs, 3000, n_chains=32, seed=82301, output="log")
    draws = result.draws()
    posterior = stats.gamma(2.0 + counts.sum(), scale=1.0 / (1.0 + counts.size))
    assert draws.rate.samples.mean() == pytest.approx(posterior.mean(), rel=0.03)
    assert draws.rate.samples.std() == pytest.approx(posterior.std(), rel=0.06)
    assert abs(draws.shift.samples.mean()) < 0.05 and draws.shift.samples.max() <= 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_density_that_is_no_number_is_a_rejection_and_counted(bad):
    def half(x):
        return Ensemble(np.where(x.samples[0] > 0.0, bad, 0.0))

    result = mcmc(half, 2, 300, n_chains=16, seed=23029)
    assert result.n_failed > 0 and f"{result.n_failed} failed runs rejected" in repr(result)
    assert result.chain.samples[:, 0].max() <= 0.0 and np.all(np.isfinite(result.log_density.samples))


def test_minus_infinity_is_a_rejection_and_no_failure():
    def half(x):
        return Ensemble(np.where(x.samples[0] > 0.0, -np.inf, 0.0))

    result = mcmc(half, 2, 100, n_chains=16, seed=23029)
    assert result.n_failed == 0 and result.chain.samples[:, 0].max() <= 0.0


def test_a_model_that_raises_for_some_samples_goes_on_with_the_others():
    def picky(x):
        if np.any(x.samples[0] > 1.0):
            raise ArithmeticError("too large")
        return Ensemble(-0.5 * x.samples[0] ** 2)

    result = mcmc(picky, 1, 60, n_chains=16, seed=48611)
    assert result.n_failed > 0 and result.chain.samples.max() <= 1.0


def test_few_steps_are_called_short():
    result = mcmc(likelihood, 3, 30, n_chains=16, seed=11003)
    assert result.status == "short" and not result.converged and repr(result).startswith("McmcResult(short: 16 chains")
    assert re.search(r"start=result goes on with the chains, to about [\d,]+ steps$", repr(result))
    with pytest.raises(AlgorithmError, match="short"):
        result.raise_if_failed()


def test_chains_that_agree_on_few_autocorrelation_times_are_short():
    result = mcmc(likelihood, 3, 1800, n_chains=64, seed=61001)
    assert result.r_hat.max() <= 1.05 and result.status == "short"
    assert result.n_steps - result.burn_in < 50.0 * result.autocorrelation_time.max()


def test_chains_between_two_far_modes_are_not_called_converged():
    start = np.where(np.arange(32) % 2, 30.0, -30.0)[:, None] + np.random.default_rng(90001).standard_normal((32, 1))
    result = mcmc(
        lambda x: Ensemble(-0.5 * (np.abs(x.samples[0]) - 30.0) ** 2), 1, 200, start=start, prior="flat", seed=1009
    )
    assert result.status == "short" and "goes on with the chains" in repr(result)
    longer = mcmc(lambda x: Ensemble(-0.5 * (np.abs(x.samples[0]) - 30.0) ** 2), 1, 800, start=result)
    assert repr(longer).endswith("chains stay apart: start= others about the point of the highest log_density")


@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_a_run_may_be_shorter_than_its_diagnostics_need(n_steps):
    result = mcmc(likelihood, 3, n_steps, n_chains=8, seed=7919)
    assert result.status == "short" and np.all(np.isinf(result.r_hat)) and result.draws().n_samples >= 8


def test_two_draws_of_the_seed_differ_and_the_seed_repeats_a_run():
    first, second = (mcmc(likelihood, 3, 5, n_chains=16) for _ in range(2))
    assert first.seed != second.seed
    again = mcmc(likelihood, 3, 5, n_chains=16, seed=first.seed)
    assert np.array_equal(first.chain.samples, again.chain.samples)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"n_chains": 7}, "n_chains must be even and at least 6; got 7"),
        ({"n_chains": 4}, "n_chains must be even and at least 6; got 4"),
        ({"stretch": 1.0}, "stretch must be above 1"),
        ({"prior": "normal"}, "prior must be one of 'inputs', 'flat'"),
        ({"start": np.zeros((16, 2))}, r"start must have shape \(16, 3\); got shape \(16, 2\)"),
        ({"burn_in": 10}, "burn_in must be less than the 10 steps"),
        ({"output": "z"}, "output must be one of the model's outputs; got 'z' of y"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
    ],
)
def test_arguments_out_of_range_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        mcmc(likelihood, 3, 10, **options)


def test_starts_without_a_density_are_refused():
    with pytest.raises(ValueError, match="start must have a finite log density everywhere; got 8 without one"):
        mcmc(lambda x: Ensemble(np.where(x.samples[0] < 0.5, -np.inf, 0.0)), 1, 5, start=np.arange(16.0)[:, None] // 8)
    with pytest.raises(ValueError, match="log_likelihood must have a finite value somewhere"):
        mcmc(lambda x: Ensemble(np.full(x.n_samples, -np.inf)), 1, 5, n_chains=4, seed=33)
    with pytest.raises(ValueError, match="start must have 2 coordinates; got 3"):
        mcmc(likelihood, 2, 5, start=mcmc(likelihood, 3, 2, n_chains=8, seed=7919))


def test_models_of_the_wrong_kind_are_refused():
    with pytest.raises(TypeError, match="log_likelihood must be callable"):
        mcmc(3.0, 3, 10)
    with pytest.raises(TypeError, match="inputs must be an integer of at least 1"):
        mcmc(likelihood, "abc", 10)
    with pytest.raises(ValueError, match="inputs must be an integer; got Inputs"):
        mcmc(likelihood, Inputs(a=stats.norm()), 10, prior="flat")
    with pytest.raises(ValueError, match="log_likelihood must return one number per sample; got 3"):
        mcmc(lambda x: x, 3, 10)
    with pytest.raises(TypeError, match="log_likelihood must return real numbers"):
        mcmc(lambda x: x[0] * 1j, 3, 10)
