"""The law of samples: sample i is the same whatever the ensemble size, order, number of samples, or process."""

import hashlib
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import ensemble as en
from ensemble import uq
from tests.conftest import examples

INPUTS = en.Inputs(
    a=stats.norm(1.0, 2.0), b=stats.gamma(2.5), c=stats.t(3.0), d=stats.poisson(3.0), e=stats.beta(0.5, 2.0),
    m=en.Categorical({"x": 0.2, "y": 0.8}), r=uq.Mixture([0.0, stats.expon()], [0.5, 0.5]), o=stats.Normal(mu=1.0),
    v=[stats.lognorm(0.5), stats.uniform(), stats.gumbel_r()], w=uq.Vector(stats.weibull_min(1.5), 4),
    j=stats.multivariate_normal([0.0, 1.0], [[1.0, 0.3], [0.3, 2.0]]),
    f=en.fields.KarhunenLoeve.exponential([(0, 1)], 0.5, 3, transform="lognormal"),
    correlation={("a", "b"): 0.5, ("b", "d"): 0.4, (("v", 0), "a"): -0.3, ("m", "r"): 0.2},
)  # fmt: skip

SAMPLERS = {
    "monte_carlo": uq.MonteCarlo(), "sobol": uq.Sobol(), "one sobol": uq.Sobol(replicates=1), "halton": uq.Halton(),
    "latin_hypercube": uq.LatinHypercube(block=50),
}  # fmt: skip

POINTS = np.linspace(0.0, 1.0, 5)


def values_of(x):
    """All values of all inputs as rows."""
    rows = [np.atleast_2d(x.f(POINTS).samples if name == "f" else x[name].samples) for name in x.names]
    return np.concatenate(rows).astype(np.float64)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=20), st.sampled_from(sorted(SAMPLERS)), st.integers(0, 2**63),
    st.integers(1, 12), st.randoms(use_true_random=False),
)  # fmt: skip
def test_a_sample_is_the_same_in_any_study_order_and_group(ids, name, seed, size, random):
    sampler = SAMPLERS[name]
    with warnings.catch_warnings(action="ignore"):
        expected = values_of(INPUTS.samples(3001, sampler=sampler, seed=seed, ids=ids))
        shuffled = random.sample(range(len(ids)), len(ids))
        longer = INPUTS.samples(5000, sampler=sampler, seed=seed, ids=[ids[k] for k in shuffled])
        alone = INPUTS.samples(max(ids) + 1, sampler=sampler, seed=seed, ids=ids[-1:])
    assert np.array_equal(values_of(longer), expected[:, shuffled])
    assert np.array_equal(values_of(alone), expected[:, -1:])
    for first in range(0, len(ids), size):
        places = np.arange(first, min(first + size, len(ids)))
        assert np.array_equal(values_of(longer.take(places)), expected[:, shuffled][:, places])


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_longer_study_begins_with_the_shorter_one(name):
    with warnings.catch_warnings(action="ignore"):
        short, long = (values_of(INPUTS.samples(n, sampler=SAMPLERS[name], seed=60101)) for n in (100, 300))
    assert np.array_equal(short, long[:, :100])


@pytest.mark.parametrize("name", SAMPLERS)
def test_points_lie_in_the_open_cube_and_differ(name):
    points = SAMPLERS[name].points(np.arange(2000), 3, seed=60102)
    assert points.min() >= 0.0 and points.max() < 1.0
    assert len(np.unique(points, axis=0)) == 2000
    assert np.all(np.abs(points.mean(axis=0) - 0.5) < 0.03)
    assert not np.array_equal(points, SAMPLERS[name].points(np.arange(2000), 3, seed=60103))


def digest():
    return hashlib.sha256(values_of(INPUTS.samples(64, seed=60104)).tobytes()).hexdigest()


@pytest.mark.slow
def test_another_process_draws_the_same_samples():
    code = "from tests.uq.inputs.test_sample_law import digest; print(digest())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest()
