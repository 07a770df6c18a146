"""Multilevel Monte Carlo: known means, errors that are the actual ones, allocation, rates, ends."""

import numpy as np
import pytest
from scipy import stats

from ensemble.scalar import Ensemble
from ensemble.uq import AlgorithmError, Inputs, multilevel
from ensemble.uq.algorithms.evaluations import Evaluations
from ensemble.uq.algorithms.levels import Level, decay_rate, optimal_numbers, smoothed
from ensemble.uq.algorithms.model_runs import ModelRuns

EXACT = float(np.exp(0.5))


def model(k, factor=1.0):
    """exp(z) with an error of order 2^-k in mean and deviation."""
    return lambda z: Ensemble(np.exp(z.samples[0]) + factor * 2.0**-k * np.sin(z.samples[0] + 1.0))


MODELS = [model(k) for k in range(10)]
COSTS = [4.0**k for k in range(10)]


def estimate(seed, **options):
    return multilevel(MODELS, 1, seed=seed, **{"atol": 0.05, "costs": COSTS, "ensemble_size": None, **options})


def evaluations(**options):
    limits = {"sample_seconds": None, "max_seconds": None}
    plain = {"executor": None, "store": None, "resume": False, "progress": False, **limits}
    return Evaluations(MODELS[0], 1, ModelRuns("multilevel", MODELS[:1], 1, {}, 5, "models", **plain), **options)


def test_the_mean_of_the_limit():
    result = estimate(40487, atol=0.01).raise_if_failed()
    assert abs(result.mean - EXACT) < 3.0 * 0.01 and result.error <= result.target == 0.01
    assert result.error == pytest.approx(np.hypot(result.standard_error, result.bias))
    assert result.mean == pytest.approx(result.means.sum(), rel=1e-12)
    low, high = result.confidence_interval()
    assert low < EXACT < high and result.alpha == pytest.approx(1.0, abs=0.4)
    assert result.beta == pytest.approx(2.0, abs=0.5) and result.gamma == pytest.approx(2.0, abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("exact", [False, True], ids=["limit", "finest"])
def test_errors_over_seeds_are_at_most_the_target(exact):
    truth = EXACT
    if exact:
        truth += 2.0**-5 * np.sin(1.0) * np.exp(-0.5)
    results = [
        multilevel(MODELS[:6] if exact else MODELS, 1, atol=0.03, costs=COSTS[: 6 if exact else 10],
                   finest_is_exact=exact, seed=50000 + k, ensemble_size=None)
        for k in range(200)
    ]  # fmt: skip
    assert all(r.converged for r in results)
    errors = np.array([r.mean for r in results]) - truth
    assert np.sqrt(np.mean(errors**2)) < 1.1 * 0.03
    sampling = np.sqrt(np.mean([r.standard_error**2 for r in results]))
    if exact:  # else the levels used, and with them the bias, differ from seed to seed
        assert errors.std() == pytest.approx(sampling, rel=0.15)
    assert np.mean([low < truth < high for low, high in (r.confidence_interval() for r in results)]) > 0.92


def test_it_costs_less_than_monte_carlo():
    result = estimate(91331, atol=0.01)
    assert result.total_cost < 0.2 * result.monte_carlo_cost
    assert result.total_cost == pytest.approx(float(result.n_samples @ result.costs))
    assert (
        np.all(np.diff(result.n_samples) < 0)
        and result.n_evaluations == 2 * result.n_samples.sum() - result.n_samples[0]
    )


def test_a_relative_target_for_each_entry():
    def vector(k):
        return lambda z: Ensemble(np.stack([m(z).samples for m in (model(k), model(k, -10.0))]) * [[1.0], [100.0]])

    result = multilevel(
        [vector(k) for k in range(12)], 1, rtol=0.05, costs=[2.0**k for k in range(12)], seed=1009, ensemble_size=None
    )
    assert result.converged and result.mean.shape == (2,) and np.all(result.error <= result.target)
    np.testing.assert_allclose(result.target, 0.05 * np.abs(result.mean), rtol=1e-12)
    np.testing.assert_allclose(result.mean, [EXACT, 100.0 * EXACT], rtol=0.16)


def test_samples_do_not_depend_on_the_size_of_ensembles():
    first, second = (estimate(60013, ensemble_size=size) for size in (7, None))
    assert np.array_equal(first.means, second.means) and np.array_equal(first.n_samples, second.n_samples)


def test_a_smaller_target_keeps_earlier_samples():
    calls = []

    def counted(m):
        def run(z):
            calls.append(z.n_samples)
            return m(z)

        return run

    models = [counted(m) for m in MODELS]
    first = multilevel(models, 1, atol=0.05, costs=COSTS, seed=7, ensemble_size=None)
    before = sum(calls)
    second = multilevel(models, 1, atol=0.02, costs=COSTS, start=first, ensemble_size=None)
    whole = multilevel(MODELS, 1, atol=0.02, costs=COSTS, seed=7, ensemble_size=None)
    assert second.converged and sum(calls) == second.n_evaluations and sum(calls) > before == first.n_evaluations
    assert np.all(second.n_samples[: len(first.n_samples)] >= first.n_samples)
    assert (
        second.mean == pytest.approx(whole.mean, abs=0.06) and first.n_samples.sum() * 2 - first.n_samples[0] == before
    )


def test_costs_are_measured_where_none_are_given():
    result = estimate(271, atol=0.1, costs=None)
    assert result.converged and np.all(result.costs > 0.0) and result.total_cost > 0.0


def test_both_models_of_a_level_get_the_same_inputs():
    seen = {}

    def recording(k):
        def run(x):
            seen.setdefault(k, []).append((x.ids.copy(), x.a.samples.copy()))
            return x.a * (1.0 + 2.0**-k)

        return run

    multilevel([recording(0), recording(1)], Inputs(a=stats.uniform()), atol=0.3, n_pilot=8, seed=31)
    of_pair = [entry for entry in seen[0] if any(np.array_equal(entry[1], other[1]) for other in seen[1])]
    assert len(of_pair) == len(seen[1]) and len(seen[0]) > len(seen[1])
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(of_pair, seen[1], strict=True))


def test_a_model_that_is_too_coarse_is_told():
    result = multilevel(MODELS[:3], 1, atol=0.01, costs=COSTS[:3], seed=5003)
    assert result.status == "bias" and result.bias > 0.01 and not result.converged
    with pytest.raises(AlgorithmError, match="bias: mean"):
        result.raise_if_failed()


def test_the_highest_cost_is_kept():
    result = estimate(811, atol=0.002, max_cost=20000.0)
    assert result.status == "max_cost" and result.total_cost <= 20000.0 and result.error > result.target


def test_failed_samples_are_left_out_of_both_models_and_counted():
    def failing(k):
        def run(z):
            values = MODELS[k](z).samples
            return Ensemble(np.where(z.samples[0] > 1.5 + 0.1 * k, np.nan, values))

        return run

    result = multilevel([failing(k) for k in range(6)], 1, atol=0.1, costs=COSTS[:6], seed=6007)
    expected = float(stats.norm.cdf(1.5 - 1.0) * np.exp(0.5) / stats.norm.cdf(1.5))
    assert result.converged and result.n_failed[0] > 0 and abs(result.mean - expected) < 0.4
    assert "failed" in repr(result) and f"{result.n_failed[0]}" in repr(result)


def test_a_level_of_failures_is_called_failed():
    broken = [MODELS[0], MODELS[1], lambda z: Ensemble(np.where(np.arange(z.n_samples) < 4, 1.0, np.nan))]
    result = multilevel(broken, 1, atol=0.1, costs=COSTS[:3], seed=71)
    assert result.status == "failed"


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("exact", [False, True])
def test_a_level_of_failures_alone_is_called_failed(level, exact):
    models = [lambda z: z] * 4
    models[level] = lambda z: z * np.nan
    result = multilevel(models, 1, atol=1e-9, costs=COSTS[:4], max_cost=1e6, seed=71, finest_is_exact=exact)
    if level < len(result.costs):
        assert result.status == "failed" and np.isnan(result.means[level]).all() and np.isnan(result.mean)
    assert "failed" in repr(result)


def test_a_level_of_one_sample_is_called_failed():
    def model(k):
        def last(x):
            x.fail(Ensemble(x.ids != 0), "of no use")
            return x.a + 2.0**-k

        return last

    result = multilevel([model(k) for k in range(4)], Inputs(a=stats.norm()), atol=0.1, costs=[1, 2, 4, 8], seed=1)
    assert result.status == "failed" and result.n_failed[0] == result.n_samples[0] - 1
    assert np.isnan(result.variances[0]) and np.isfinite(result.means[0])


def test_costs_of_a_second_call_are_those_of_all_levels():
    models, inputs = [lambda x, k=k: x.a + 2.0**-k for k in range(4)], Inputs(a=stats.norm())
    first = multilevel(models, inputs, atol=0.3, costs=[1.0] * 4, seed=1)
    second = multilevel(models, inputs, atol=0.2, costs=[10.0, 20.0, 40.0, 80.0], start=first)
    np.testing.assert_array_equal(second.costs, [10.0, 30.0, 60.0, 120.0][: second.costs.size])
    measured = multilevel(models, inputs, atol=0.2, start=first)
    assert np.all(measured.costs < 0.5)


def test_models_without_a_difference_cost_nothing_by_monte_carlo():
    result = multilevel([lambda z: 0.0 * z + 1.0] * 3, 1, atol=0.1, costs=COSTS[:3], seed=71)
    assert (result.mean, result.standard_error, result.monte_carlo_cost) == (1.0, 0.0, 0.0)


def test_optimal_numbers_are_the_least_costly():
    """Giles (2008), eq. 12, against a search."""
    variances, costs, budget = np.array([[2.0], [0.3], [0.01]]), [1.0, 5.0, 40.0], np.array([1e-3])
    numbers = optimal_numbers(variances, costs, budget)
    assert (variances[:, 0] / numbers).sum() <= 1e-3
    best = numbers @ costs
    for a, b in np.random.default_rng(13).uniform(0.5, 2.0, (300, 2)):
        n0, n1 = a * numbers[0], b * numbers[1]
        rest = 1e-3 - 2.0 / n0 - 0.3 / n1
        if rest > 0.0:
            assert n0 + 5.0 * n1 + 40.0 * 0.01 / rest > best * (1.0 - 0.002)


def test_rates_of_known_sequences():
    assert decay_rate(np.array([[9.0], [1.0], [0.25], [0.0625]])) == pytest.approx(2.0)
    assert decay_rate(np.array([[1.0], [1.0]])) == 1.0 and decay_rate(np.array([[1.0], [1.0], [4.0]])) == 0.5
    assert smoothed(np.array([[1.0], [0.4], [1e-9]]), 1.0)[:, 0].tolist() == [1.0, 0.4, 0.1]


def test_further_samples_of_a_level_are_new_ones():
    levels = [Level(2, evaluations(), None, 5, None) for _ in range(2)]
    levels[0].extend(300)
    first = levels[0].mean()
    levels[0].extend(200)
    levels[1].extend(500)
    assert levels[0].mean() == pytest.approx(levels[1].mean(), rel=1e-12) and levels[0].mean() != first
    assert levels[0].variance() == pytest.approx(levels[1].variance(), rel=1e-12)


def test_the_first_call_does_not_count_where_times_are_measured():
    level = Level(0, evaluations(ensemble_size=4), None, 5, None)
    level.extend(12)
    level.times = [(9.0, 0.0), (1.0, 0.0), (3.0, 0.0)]
    assert level.cost == 2.0


@pytest.mark.parametrize(
    "options, words",
    [
        ({"models": MODELS[:1]}, "models must hold two models or more; got 1"),
        ({"atol": None}, "rtol or atol must be given"),
        ({"atol": 0.0}, "atol must be a finite number above zero"),
        ({"rtol": -1.0}, "rtol must be a finite number above zero"),
        ({"costs": [1.0]}, "costs must have 3 entries; got 1"),
        ({"costs": [1.0, 2.0, -1.0]}, "costs must be a finite number above zero"),
        ({"n_pilot": 2}, "n_pilot must be an integer of at least 8"),
    ],
)
def test_arguments_out_of_range_are_refused(options, words):
    arguments = {"models": MODELS[:3], "inputs": 1, "atol": 0.1, **options}
    with pytest.raises(ValueError, match=words):
        multilevel(**arguments)


def test_a_start_of_other_inputs_is_refused():
    first = estimate(7)
    with pytest.raises(ValueError, match="start must be a result for the same models and inputs"):
        multilevel(MODELS, 2, atol=0.1, start=first)
    with pytest.raises(TypeError, match="models must be callable"):
        multilevel([1.0, 2.0], 1, atol=0.1)
