"""Autocorrelation time and R-hat of chains whose own are known."""

import numpy as np
import pytest

from ensemble.uq.algorithms.chain_statistics import autocorrelation_time, split_r_hat


def autoregression(rho, n_steps, n_chains, seed):
    """Stationary AR(1) chains of unit variance, shape (n_steps, n_chains)."""
    noise = np.random.default_rng(seed).standard_normal((n_steps, n_chains))
    chain = np.empty_like(noise)
    chain[0] = noise[0]
    for k in range(1, n_steps):
        chain[k] = rho * chain[k - 1] + np.sqrt(1.0 - rho * rho) * noise[k]
    return chain


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_time_of_an_autoregression_is_that_of_the_formula(rho):
    time = autocorrelation_time(autoregression(rho, 5000, 16, 41777)[:, None])
    assert time == pytest.approx((1.0 + rho) / (1.0 - rho), rel=0.08)


def test_the_time_is_that_of_emcee():
    """Of chains of equal variance; emcee divides by the variance of each chain before it averages."""
    integrated_time = pytest.importorskip("emcee").autocorr.integrated_time
    chain = autoregression(0.8, 20000, 8, 90121)
    ours = autocorrelation_time(chain[:, None])
    assert ours[0] == pytest.approx(integrated_time(chain[:, :, None], c=5)[0], rel=0.02)


def test_chains_that_never_move_have_a_long_time():
    chain = autoregression(0.0, 1000, 8, 27183)
    chain[:, :4] = np.array([2.0, -2.0, 1.0, -1.0])
    assert autocorrelation_time(chain[:, None])[0] > 300.0
    assert autocorrelation_time(np.ones((100, 1, 4)))[0] == np.inf


def test_of_many_chains_256_are_used():
    chain = autoregression(0.7, 500, 1024, 60013)
    places = np.linspace(0, 1023, 256).astype(int)
    assert autocorrelation_time(chain[:, None])[0] == autocorrelation_time(chain[:, None, places])[0]


def test_r_hat_is_that_of_its_definition():
    chain = np.random.default_rng(77003).standard_normal((7, 1, 3))
    parts = [part for c in range(3) for part in (chain[:3, 0, c], chain[4:, 0, c])]
    within = np.mean([np.var(part, ddof=1) for part in parts])
    between = 3 * np.var([np.mean(part) for part in parts], ddof=1)
    assert split_r_hat(chain)[0] == pytest.approx(np.sqrt((2.0 / 3.0 * within + between / 3.0) / within), rel=1e-12)


def test_r_hat_tells_chains_that_differ_or_drift():
    chain = np.random.default_rng(51511).standard_normal((1000, 3, 8))
    chain[:, 1] += np.arange(8.0)
    chain[:, 2] += np.linspace(0.0, 3.0, 1000)[:, None]
    same, differ, drift = split_r_hat(chain)
    assert same < 1.01 and differ > 1.5 and drift > 1.1
