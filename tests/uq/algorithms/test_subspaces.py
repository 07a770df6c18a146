"""Chains and samples that lie in a plane of fewer dimensions than there are coordinates: refused, or said."""

import warnings

import numpy as np
import pytest

from ensemble import xp
from ensemble.scalar import Ensemble
from ensemble.uq import kalman_inversion, mcmc, subset_simulation
from ensemble.uq.algorithms.chain_statistics import (
    autocorrelation_time,
    n_spanned,
    split_r_hat,
    status_of,
    thinnest_direction,
)

RNG = np.random.default_rng(20731)
LINE = np.outer(RNG.normal(size=32), [1.0, 1.0])
PLANES = {
    "a line": LINE,
    "a line through no origin": LINE * [1.0, -3.0] + [1e6, -4.0],
    "a line in small units": LINE * [1e-150, 1e120],
    "a line in single precision": (LINE * [1.0, 0.3]).astype(np.float32),
    "one fixed coordinate": np.column_stack([RNG.normal(size=32), np.full(32, 0.1)]),
    "one fixed coordinate of size 1e9": np.column_stack([RNG.normal(size=32), np.full(32, 1e9 / 3.0)]),
    "a plane in 3-D": RNG.normal(size=(32, 2)) @ RNG.normal(size=(2, 3)),
    "a plane in 3-D in units and offsets": (RNG.normal(size=(32, 2)) @ RNG.normal(size=(2, 3))) * [1, 1e8, 1e-9] + 7.0,
    "two distinct points": np.repeat(RNG.normal(size=(2, 2)), 16, axis=0),
    "one point": np.tile(RNG.normal(size=(1, 3)), (32, 1)),
}
FULL = {
    "normals": RNG.normal(size=(32, 2)),
    "a ball of 1e-6 about a point far away": 1e3 + 1e-6 * RNG.normal(size=(32, 2)),
    "coordinates of 1e-200 and 1e200": RNG.normal(size=(32, 2)) * [1e-150, 1e150],
    "a correlation of 1 - 1e-8": RNG.normal(size=(32, 2)) @ np.array([[1.0, 1.0], [0.0, 1.4e-4]]),
    "three distinct points": np.tile([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], (8, 1)),
}


def flat(z):
    return Ensemble(np.zeros(z.samples.shape[-1]))


@pytest.mark.parametrize("name", PLANES)
def test_starts_in_a_plane_are_refused(name):
    start = PLANES[name]
    with pytest.raises(ValueError, match=f"mcmc: start must span all {start.shape[1]} coordinates; got points"):
        mcmc(flat, start.shape[1], 10, prior="flat", start=start, seed=1)


def test_the_message_names_fixed_coordinates_and_distinct_points():
    with pytest.raises(ValueError, match="the same number for all chains in coordinate 1"):
        mcmc(flat, 2, 10, prior="flat", start=PLANES["one fixed coordinate"], seed=1)
    with pytest.raises(ValueError, match="span 1, 2 distinct ones of 32"):
        mcmc(flat, 2, 10, prior="flat", start=PLANES["two distinct points"], seed=1)


@pytest.mark.parametrize("name", FULL)
def test_starts_that_span_the_space_run(name):
    assert mcmc(flat, 2, 10, prior="flat", start=FULL[name], seed=1).n_steps == 10


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_starts_that_are_not_finite_are_refused(value):
    start = RNG.normal(size=(32, 2))
    start[3, 1] = value
    with pytest.raises(ValueError, match="mcmc: start must be finite; got 1 chains with NaN or infinity"):
        mcmc(flat, 2, 10, prior="flat", start=start, seed=1)


def test_fewer_chains_than_dimensions_and_starts_without_density_are_refused():
    with pytest.raises(ValueError, match="mcmc: n_chains must be even and at least 20"):
        mcmc(flat, 10, 10, prior="flat", start=RNG.normal(size=(8, 10)), seed=1)
    with pytest.raises(ValueError, match="mcmc: start must have a finite log density everywhere; got 1 without one"):
        start = np.abs(RNG.normal(size=(32, 2)))
        start[5] *= -1.0
        mcmc(lambda z: xp.where(z[0] > 0.0, -z[0] - z[1] ** 2, -np.inf), 2, 10, prior="flat", start=start, seed=1)


def test_chains_that_end_in_a_plane_are_not_converged():
    """A result whose last chains lie on a line is continued: the status says what no move can mend."""
    result = mcmc(lambda z: -0.5 * xp.sum(z * z, axis=0), 2, 20, prior="flat", start=FULL["normals"], seed=1)
    result.chain.samples[-1] = LINE.T
    longer = mcmc(lambda z: -0.5 * xp.sum(z * z, axis=0), 2, 3000, prior="flat", start=result, seed=1)
    assert longer.status == "subspace" and not longer.converged and "subspace" in repr(longer)


def test_the_direction_that_varies_least_is_that_of_the_correlation_whatever_the_units():
    x = np.random.default_rng(3).normal(size=(50, 2, 8))
    chain = np.stack([1e9 * (x[:, 0] + 1e-3 * x[:, 1]) + 5e9, 1e-9 * x[:, 0]], axis=1)
    thin = thinnest_direction(chain)[:, 0]
    assert abs(np.corrcoef(thin.ravel(), (x[:, 1]).ravel())[0, 1]) > 0.99
    assert n_spanned(chain[-1])[0] == 2


def test_marginals_that_mix_do_not_hide_a_combination_that_does_not():
    """Two coordinates mix at once; their difference drifts from one half of the run to the other."""
    rng = np.random.default_rng(9)
    x = rng.normal(size=(2000, 64))
    drift = 1e-6 * np.linspace(0.0, 1.0, 2000)[:, None] * np.ones(64) + 1e-9 * rng.normal(size=(2000, 64))
    chain = np.stack([x, x + drift], axis=1)
    times, r_hat = autocorrelation_time(chain), split_r_hat(chain)
    assert len(chain) >= 50.0 * times.max() and r_hat.max() < 1.05
    assert status_of(chain, times, r_hat) == "short"


@pytest.mark.parametrize("update", ["stochastic", "transform"])
@pytest.mark.parametrize("n_samples, status", [(4, "subspace"), (5, "subspace"), (6, "converged")])
def test_an_inversion_with_no_more_samples_than_coordinates_says_so(update, n_samples, status):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = kalman_inversion(lambda x: x, np.zeros(5), 1.0, 5, n_samples=n_samples, update=update, seed=1)
    assert result.status == status and result.temperature == 1.0
    said = [str(w.message) for w in caught]
    assert (f"{n_samples} samples span {n_samples - 1} of 5 coordinates" in "".join(said)) == (status == "subspace")


def test_copies_of_one_seed_still_move_in_a_subset_simulation():
    """One sample of the first level alone has a value: the next level's chains all begin there."""
    chosen = []

    def model(z):
        if not chosen:
            chosen.append(True)
            values = np.where(np.arange(z.samples.shape[1]) == 7, -0.5, 1.0)
        else:
            values = -np.abs(z.samples[0])
        return Ensemble(values)

    result = subset_simulation(model, 2, -1.5, n_per_level=100, seed=1)
    assert result.converged and np.all(result.acceptance > 0.0)
    assert np.unique(result.samples.samples[0]).size > 10
