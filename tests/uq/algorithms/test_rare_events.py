"""Subset simulation: known probabilities, honest coefficients of variation, ends."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.scalar import Ensemble
from ensemble.uq import Inputs, subset_simulation
from ensemble.uq.algorithms.subset_run import SubsetRun, _stratified_noise


def total(z):
    """A sum of standard normals."""
    return Ensemble(z.samples.sum(axis=0))


def threshold_of(probability, n):
    return float(stats.norm.isf(probability) * np.sqrt(n))


def two_branches(z):
    """Fails where |z_0 + z_1| / sqrt(2) is above 4; the probability is 2 Phi(-4)."""
    return Ensemble(4.0 - np.abs(z.samples[0] + z.samples[1]) / np.sqrt(2.0))


def ball(z):
    """Fails outside a ball: chi-squared."""
    return Ensemble((z.samples**2).sum(axis=0))


CASES = {
    "linear": (total, 100, threshold_of(1e-6, 100), "above", 1e-6),
    "two branches": (two_branches, 10, 0.0, "below", 2.0 * stats.norm.sf(4.0)),
    "ball": (ball, 5, stats.chi2(5).isf(1e-5), "above", 1e-5),
    "frequent": (total, 3, threshold_of(0.2, 3), "above", 0.2),
}


@pytest.mark.parametrize("name", CASES)
def test_known_probabilities(name):
    model, n, threshold, event, exact = CASES[name]
    result = subset_simulation(model, n, threshold, event=event, n_per_level=2000, seed=46807).raise_if_failed()
    assert abs(result.probability - exact) < 3.5 * exact * result.coefficient_of_variation
    low, high = result.confidence_interval(0.999)
    assert low < exact < high and result.thresholds[-1] == threshold
    assert result.probability == pytest.approx(np.prod(result.fractions), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two branches", "ball", "frequent"])
def test_estimates_are_unbiased_and_their_variation_is_the_actual_one(name):
    model, n, threshold, event, exact = CASES[name]
    results = [
        subset_simulation(model, n, threshold, event=event, n_per_level=2000, seed=s) for s in range(30000, 30200)
    ]
    ratios = np.array([r.probability for r in results]) / exact
    actual = ratios.std(ddof=1)
    assert abs(ratios.mean() - 1.0) < 4.0 * actual / np.sqrt(200.0)
    estimated = np.sqrt(np.mean([r.coefficient_of_variation**2 for r in results]))
    assert 0.75 < estimated / actual < 1.33
    covered = [low < exact < high for low, high in (r.confidence_interval() for r in results)]
    assert np.mean(covered) > 0.88


@pytest.mark.slow
def test_a_probability_of_1e_6_in_100_dimensions():
    """At most 60,000 evaluations; the goal for the coefficient of variation is 0.12."""
    model, n, threshold, event, exact = CASES["linear"]
    results = [subset_simulation(model, n, threshold, event=event, n_per_level=10900, seed=s) for s in range(100)]
    ratios = np.array([r.probability for r in results]) / exact
    assert max(r.n_evaluations for r in results) <= 60_000
    assert ratios.std(ddof=1) <= 0.1 and abs(ratios.mean() - 1.0) < 0.03
    estimated = np.sqrt(np.mean([r.coefficient_of_variation**2 for r in results]))
    assert 0.07 < estimated < 0.1


def noise_of(rng, n_chains, families):
    """Noise of one step, and its part along the direction."""
    direction = np.array([[3.0], [0.0], [4.0]])
    noise = _stratified_noise(direction, rng.standard_normal(n_chains), families, rng)
    return noise, (direction / 5.0 * noise).sum(axis=0)


def test_noise_of_one_chain_is_standard_normal_in_every_direction():
    rng = np.random.default_rng(58391)
    columns = np.array([noise_of(rng, 6, np.array([0, 0, 1, 1, 1, 19]))[0][:, 2] for _ in range(4000)])
    assert np.abs(np.cov(columns.T) - np.eye(3)).max() < 0.1 and np.abs(columns.mean(axis=0)).max() < 0.07
    for axis in ([0.6, 0.0, 0.8], [0.8, 0.0, -0.6], [0.0, 1.0, 0.0]):
        assert stats.kstest(columns @ axis, "norm").pvalue > 1e-3


def test_noise_is_even_within_a_family_and_independent_between_families():
    rng = np.random.default_rng(27104)
    families = np.repeat([3, 8], 200)
    means = np.array([noise_of(rng, 400, families)[1].reshape(2, 200).mean(axis=1) for _ in range(400)])
    assert means.std(axis=0).max() < 0.02  # 0.071 of independent noise
    shifts = np.array([noise_of(rng, 2, np.array([3, 8]))[1] for _ in range(2000)])
    assert abs(np.corrcoef(shifts.T)[0, 1]) < 0.08


def test_chains_of_a_family_share_the_noise_by_the_order_of_their_distances():
    """Neighbours in distance have quantiles one golden section apart."""
    rng = np.random.default_rng(61937)
    distances = rng.permutation(50).astype(float)
    noise = _stratified_noise(np.ones((1, 1)), distances, np.zeros(50, int), rng)
    steps = np.diff(stats.norm.cdf(noise[0, np.argsort(distances)])) % 1.0
    np.testing.assert_allclose(steps, 0.5 * (np.sqrt(5.0) - 1.0), rtol=1e-9)


def test_noise_without_a_direction_is_independent():
    noise = _stratified_noise(np.zeros((2, 1)), np.arange(9.0), np.zeros(9, int), np.random.default_rng(11213))
    np.testing.assert_array_equal(noise, np.random.default_rng(11213).standard_normal((2, 9)))


def test_the_first_level_alone_has_the_variation_of_independent_samples():
    model, n, threshold, event, _ = CASES["frequent"]
    result = subset_simulation(model, n, threshold, event=event, n_per_level=2000, seed=40127)
    p = result.probability
    assert len(result.fractions) == 1
    assert result.coefficient_of_variation == pytest.approx(np.sqrt((1.0 - p) / p / 1999), rel=1e-12)


def test_intervals_have_the_quantile_of_twenty_families():
    model, n, threshold, event, _ = CASES["linear"]
    result = subset_simulation(model, n, threshold, event=event, n_per_level=500, seed=88211)
    spread = np.sqrt(np.log1p(result.coefficient_of_variation**2))
    low, high = result.confidence_interval(0.9)
    assert np.log(high / result.probability) == pytest.approx(stats.t(19).ppf(0.95) * spread, rel=1e-9)
    assert np.log(result.probability / low) == pytest.approx(stats.t(19).ppf(0.95) * spread, rel=1e-9)


def test_fewer_samples_than_twenty_are_as_many_families():
    """Equal shares of all families: no variance."""
    result = subset_simulation(total, 2, 2.0, event="above", n_per_level=10, fraction=0.5, seed=30577)
    assert 0.0 < result.coefficient_of_variation <= 1.0 + 1e-12
    run = SubsetRun(fractions=[0.5, 0.5], distances=-np.ones(10), families=np.arange(10))
    assert run.variance == pytest.approx(0.0, abs=1e-15)


def test_below_and_above_are_mirror_images():
    above = subset_simulation(total, 4, 7.0, event="above", n_per_level=500, seed=707)
    below = subset_simulation(lambda z: -total(z), 4, -7.0, event="below", n_per_level=500, seed=707)
    assert above.probability == below.probability
    np.testing.assert_array_equal(above.thresholds, -below.thresholds)
    np.testing.assert_array_equal(above.values, -below.values)


def test_samples_lie_in_the_event_and_belong_to_their_values():
    result = subset_simulation(total, 4, 7.0, event="above", n_per_level=500, seed=90533)
    assert np.all(result.values >= 7.0) and result.samples.shape == (4,)
    np.testing.assert_allclose(total(result.samples).samples, result.values, rtol=1e-12)


def test_inputs_with_names_and_outputs():
    inputs = Inputs(capacity=stats.norm(10.0, 1.0), load=stats.norm(5.0, 0.5))
    exact = stats.norm.cdf(-5.0 / np.hypot(1.0, 0.5))
    result = subset_simulation(
        lambda x: {"margin": x.capacity - x.load, "load": x.load}, inputs, n_per_level=4000, output="margin", seed=3
    )
    assert abs(result.probability / exact - 1.0) < 3.5 * result.coefficient_of_variation
    assert np.all(result.samples.capacity.samples <= result.samples.load.samples)


def test_more_runs_reach_a_smaller_variation():
    model, n, threshold, event, _ = CASES["linear"]
    result = subset_simulation(model, n, threshold, event=event, n_per_level=1000, rtol=0.25, seed=5557)
    assert result.converged and result.coefficient_of_variation <= 0.25 and len(result.probabilities) > 1
    assert result.probability == pytest.approx(result.probabilities.mean(), rel=1e-12)
    short = subset_simulation(model, n, threshold, event=event, n_per_level=1000, rtol=0.01, max_runs=2, seed=5557)
    assert short.status == "max_runs" and len(short.probabilities) == 2 and not short.converged
    assert np.array_equal(short.probabilities, result.probabilities[:2])


@pytest.mark.parametrize("height", [0.0, 3.0])
def test_an_event_that_is_not_found_is_told(height):
    """Constant outside the event: no level leads there."""
    result = subset_simulation(lambda z: Ensemble(np.full(z.n_samples, 1.0 + height)), 2, max_levels=4, seed=21)
    assert result.status == "max_levels" and result.probability == 0.0 and result.samples is None
    assert result.coefficient_of_variation == np.inf and result.confidence_interval() == (0.0, 1.0)
    far = subset_simulation(total, 10, 60.0, event="above", n_per_level=200, max_levels=3, seed=21)
    assert far.status == "max_levels" and far.confidence_interval() == pytest.approx((0.0, 0.01), rel=0.3)


def test_a_level_of_one_value_is_not_tried_again_until_the_event_is_found():
    """Most runs then miss the event, and their mean is not biased by those that repeat a level."""

    def steps(z):
        return en.xp.where(z[0] > -1.5, 1.0, en.xp.where(z[0] > -3.3, 0.5, 0.0))

    runs = [subset_simulation(steps, 2, 0.25, n_per_level=200, seed=40009 + k) for k in range(150)]
    found = np.array([run.probability for run in runs])
    exact = stats.norm.sf(3.3)
    assert abs(found.mean() - exact) < 3.0 * found.std() / np.sqrt(found.size) and (found == 0.0).mean() > 0.1
    assert all(run.status == ("converged" if run.probability else "max_levels") for run in runs)
    covered = [low <= exact <= high for low, high in (run.confidence_interval() for run in runs)]
    assert np.mean(covered) > 0.9 and max(run.thresholds.size for run in runs) <= 2


def test_a_sample_that_is_marked_as_failed_is_outside_whatever_its_value():
    def model(value):
        def marked(x):
            x.fail(x.a > 1.0, "of no use")
            return en.xp.where(x.a > 1.0, value, x.a + 3.0)

        return marked

    runs = [subset_simulation(model(value), Inputs(a=stats.norm()), seed=31) for value in (-5.0, -np.inf, np.inf)]
    assert len({(run.probability, run.n_failed) for run in runs}) == 1 and runs[0].n_failed > 0


def test_values_on_steps_do_not_spoil_the_probability():
    """Ties at the thresholds: the fractions are counted, not assumed."""
    exact = stats.norm.sf(3.0)
    results = [
        subset_simulation(
            lambda z: Ensemble(np.floor(z.samples[0])), 3, 3.0, event="above", n_per_level=4000, seed=s
        ).probability
        for s in range(7000, 7008)
    ]
    assert np.mean(results) == pytest.approx(exact, rel=0.12)


def test_failed_samples_are_outside_the_event_and_counted():
    def model(z):
        values = z.samples.sum(axis=0)
        return Ensemble(np.where(z.samples[0] > 2.0, np.nan, values))

    result = subset_simulation(model, 4, 6.0, event="above", n_per_level=1000, seed=1511)
    assert result.n_failed > 0 and f"{result.n_failed} failed runs outside the event" in repr(result)
    assert np.all(result.samples.samples[0] <= 2.0)


def test_infinite_values_are_values():
    result = subset_simulation(
        lambda z: Ensemble(np.where(z.samples[0] < 2.0, np.inf, -np.inf)), 1, n_per_level=10000, seed=37
    )
    assert result.n_failed == 0 and result.probability == pytest.approx(stats.norm.sf(2.0), rel=0.25)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"fraction": 0.3}, "fraction must be 1 / k"),
        ({"n_per_level": 1005}, "fraction must be 1 / k"),
        ({"event": "inside"}, "event must be one of 'below', 'above'"),
        ({"threshold": np.nan}, "threshold must be finite"),
        ({"rtol": 0.0}, "rtol must be a finite number above zero"),
        ({"max_levels": 0}, "max_levels must be an integer of at least 1"),
    ],
)
def test_arguments_out_of_range_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        subset_simulation(total, 3, **options)


def test_a_model_of_many_values_is_refused():
    with pytest.raises(ValueError, match="model must return one number per sample; got 3"):
        subset_simulation(lambda z: z, 3)
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        subset_simulation(total, 3, n_per_level=20, seed=1).confidence_interval(1.5)


def test_a_model_of_few_values_gets_a_lower_threshold_at_each_level():
    """Most samples of a level may have its largest value: a level of all of them is no step towards the event."""
    inputs = Inputs(a=stats.norm(), b=stats.norm())

    def steps(x):
        return en.xp.ceil(4.0 - en.xp.maximum(x.a, x.b))

    runs = [subset_simulation(steps, inputs, n_per_level=500, seed=31007 + k) for k in range(40)]
    assert all(np.all(np.diff(run.thresholds) < 0.0) for run in runs)
    found = np.array([run.probability for run in runs]) / (1.0 - stats.norm.cdf(4.0) ** 2)
    assert abs(found.mean() - 1.0) < 3.0 * found.std() / np.sqrt(40.0)


def test_an_event_that_always_happened_has_the_bound_of_independent_samples():
    result = en.uq.subset_simulation(lambda x: x.a, en.Inputs(a=stats.uniform()), 2.0, n_per_level=200, seed=20731)
    low, high = result.confidence_interval(0.9)
    assert result.probability == high == 1.0
    assert low == pytest.approx(0.05 ** (1 / 200))
