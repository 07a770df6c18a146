"""How often intervals hold the true value: every entry of an output is a study with points of its own."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.scalar.statistics.histograms import Histograms
from ensemble.uq.study.intervals import (
    jump_of,
    jumps_of,
    quantile_of_units,
    share_of_units,
    standard_error,
    values_interval,
)  # fmt: skip

REPEATS = 200
SLACK = 0.02 + 3.5 * np.sqrt(0.95 * 0.05 / REPEATS)
"""What is promised, and the error of the measurement."""

FAMILIES = {
    "normal": (stats.norm(), lambda u: stats.norm.ppf(u[0])),
    "lognormal": (stats.lognorm(1.0), lambda u: np.exp(stats.norm.ppf(u[0]))),
    "discrete": (
        stats.poisson(3.0),
        lambda u: np.searchsorted(stats.poisson(3.0).cdf(np.arange(40)), u[0]).astype(float),
    ),
    "sum of three": (stats.gamma(3.0), lambda u: -np.log1p(-u).sum(axis=0)),
    "bool": (stats.bernoulli(0.3), lambda u: u[0] < 0.3),
}


@pytest.fixture(scope="module", params=["monte_carlo", "latin_hypercube", "sobol"])
def study(request):
    """The studies of all families with 256 samples, made once: result by family."""
    n = 256
    made = {"monte_carlo": en.uq.MonteCarlo(), "sobol": en.uq.Sobol()}
    sampler = made.get(request.param, en.uq.LatinHypercube(block=n // 8))
    points = np.stack([sampler.points(np.arange(n), 3, 7919 * k) for k in range(REPEATS)]).transpose(2, 0, 1)
    values = {name: function(points) for name, (_, function) in FAMILIES.items()}
    inputs = en.Inputs(u=stats.uniform())

    def model(x):
        return {name: en.Ensemble(y[:, x.ids]) for name, y in values.items()}

    return {
        keep: en.propagate(model, inputs, n, sampler=sampler, seed=1, keep=keep, progress=False)
        for keep in ("all", "statistics")
    }


@pytest.mark.parametrize("keep", ["all", "statistics"])
@pytest.mark.parametrize("family", FAMILIES)
def test_intervals_hold_what_they_say(study, family, keep):
    distribution = FAMILIES[family][0]
    cases = [("mean", distribution.mean(), {}), ("std", distribution.std(), {}), ("var", distribution.var(), {})]
    cases += [("quantile", distribution.ppf(q), {"q": q}) for q in (0.01, 0.25, 0.5, 0.95, 0.99)]
    threshold = float(distribution.ppf(0.9))
    if family != "bool":
        cases += [("probability", distribution.sf(threshold), {"condition": f"> {threshold!r}"})]
    for of, exact, more in cases:
        low, high = study[keep].confidence_interval(family, of=of, **more)
        slack = 1e-12 * abs(exact)
        covered = np.mean((low <= exact + slack) & (exact - slack <= high))
        assert covered >= 0.95 - SLACK, (of, more, covered)


@pytest.mark.parametrize("unit, offset", [(1e-150, 0.0), (1e6, -3e7), (-2.0, 5.0)])
def test_intervals_follow_units_and_offsets(unit, offset):
    x = np.random.default_rng(3).lognormal(size=512)
    replicates = np.arange(512) % 8
    for numbers in (None, replicates):
        plain = np.array(values_interval(x, numbers, 0.95)) * unit + offset
        moved = values_interval(x * unit + offset, numbers, 0.95)
        np.testing.assert_allclose(sorted(moved), sorted(plain), rtol=1e-9)
    low, high = quantile_of_units(x * abs(unit) + offset, 0.9, None, replicates, 0.95)
    assert (low, high) == tuple(np.array(quantile_of_units(x, 0.9, None, replicates, 0.95)) * abs(unit) + offset)


def test_weighted_quantiles_and_probabilities_hold_what_they_say():
    """Samples of N(0, 1) with the weights of N(0.5, 1)."""
    rng, hits = np.random.default_rng(11), {0.1: 0, 0.5: 0, 0.9: 0, "p": 0, "mean": 0}
    target = stats.norm(0.5)
    for _ in range(REPEATS):
        x = rng.normal(size=512)
        w = np.exp(0.5 * x)
        for q in (0.1, 0.5, 0.9):
            low, high = quantile_of_units(x, q, w, None, 0.95)
            hits[q] += low <= target.ppf(q) <= high
        low, high = share_of_units(x > 1.0, w, None, 0.95)
        hits["p"] += low <= target.sf(1.0) <= high
        half = 1.96 * standard_error(x, w)
        hits["mean"] += abs(np.average(x, weights=w) - 0.5) <= half
    assert min(hits.values()) >= REPEATS * (0.95 - SLACK), hits


def test_weights_of_one_change_little_and_repeated_samples_count_once():
    x = np.random.default_rng(2).normal(size=400)
    ones = quantile_of_units(x, 0.3, np.ones(400), None, 0.95)
    assert ones == pytest.approx(quantile_of_units(x, 0.3, None, None, 0.95), abs=0.05)


@pytest.mark.parametrize("n, replicates", [(64, 8), (100, 8), (4096, 8), (64, 2), (48, 16)])
@pytest.mark.parametrize("q", [0.0, 0.001, 0.5, 0.999, 1.0])
def test_extreme_quantiles_of_replicates_have_an_open_end(n, replicates, q):
    x = np.random.default_rng(n).normal(size=(3, n))
    low, high = quantile_of_units(x, q, None, np.arange(n) % replicates, 0.95)
    estimate = np.quantile(x, q, axis=-1, method="inverted_cdf")
    assert np.all(low <= estimate) and np.all(estimate <= high)
    if q == 0.001 and n <= 100:
        assert np.all(low == -np.inf)
    if q == 0.999 and n <= 100:
        assert np.all(high == np.inf)


def test_a_jump_between_replicates_is_seen_in_the_values():
    rng = np.random.default_rng(4)
    two = np.sort(np.where(np.arange(1000) < 300, -3.0, 3.0) + rng.normal(size=1000))
    assert jump_of(two) == pytest.approx(6.0, rel=0.05)
    assert jump_of(np.sort(rng.normal(size=1000))) < 1.5
    assert jump_of(np.array([0.0] * 7 + [1.0] * 3)) == 1.0 and jump_of(np.zeros(5)) == 0.0
    histogram = Histograms(1)
    histogram.add(two[None])
    assert jumps_of(histogram, np.zeros(1))[0] == pytest.approx(jump_of(two), rel=0.05)


def test_one_nan_or_constant_entry_leaves_the_others():
    x = np.random.default_rng(8).normal(size=(3, 256))
    x[1] = 2.0
    result = en.propagate(
        lambda s: {"y": en.Ensemble(x[:, s.ids])}, en.Inputs(u=stats.uniform()), 256, seed=1, progress=False
    )
    for of, exact in (("mean", 2.0), ("std", 0.0), ("var", 0.0)):
        low, high = result.confidence_interval("y", of=of)
        assert low[1] == high[1] == exact
        assert np.all(low[[0, 2]] < high[[0, 2]]) and np.all(np.isfinite(low) & np.isfinite(high))
