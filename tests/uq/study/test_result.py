"""Statistics of studies, their intervals, tables and datasets."""

import pickle
import threading

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.scalar.statistics.quantiles import tail_factor
from ensemble.uq import Gauss, Points, Sampler, Sobol, SparseGrid, open_study
from ensemble.uq.study.conditions import holds, threshold_of
from tests.uq.study.models import INPUTS, beam, failing_above

NORMAL = en.Inputs(x=stats.norm(2.0, 0.5), y=stats.uniform(0.0, 1.0))


def run(model=beam, n=1024, inputs=INPUTS, **options):
    return en.propagate(model, inputs, n, **{"seed": 7, "progress": False, "ensemble_size": 64} | options)


class Rule(Sampler):
    """Gauss-Hermite points times a midpoint rule, with the signs of `signs`."""

    name = "rule"
    space = "uniform"

    def __init__(self, signs=1.0):
        nodes, weights = np.polynomial.hermite_e.hermegauss(5)
        self.u = np.stack([np.repeat(stats.norm.cdf(nodes), 2), np.tile([0.25, 0.75], 5)], axis=1)
        self.w = np.repeat(weights, 2) * signs

    is_quadrature = True

    def points(self, ids, n_germs, seed):
        return self.u[ids]

    def weights(self, ids):
        return self.w[ids]

    def count(self):
        return 10


@pytest.mark.parametrize("name", ["tip", "field"])
def test_statistics_are_numpys(name):
    result = run(failing_above(1.3))
    values = result.values(name)[..., ~result.failed]
    for found, expected in (
        (result.mean(name), values.mean(axis=-1)),
        (result.var(name), values.var(axis=-1, ddof=1)),
        (result.std(name, ddof=0), values.std(axis=-1)),
        (result.minimum(name), values.min(axis=-1)),
        (result.maximum(name), values.max(axis=-1)),
        (result.quantile(name, [0.05, 0.5]), np.quantile(values, [0.05, 0.5], axis=-1)),
        (result.probability(name, "> 0.4").value, (values > 0.4).mean(axis=-1)),
        (result.probability(name, lambda y: y <= 0.4).value, (values <= 0.4).mean(axis=-1)),
    ):
        assert np.shape(found) == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_joint_statistics_are_numpys():
    result = run(failing_above(1.3))
    tip, field = (result.samples(name).samples for name in ("tip", "field"))
    both = np.cov(np.vstack([tip, field]))
    np.testing.assert_allclose(result.covariance("tip", "field"), both[0, 1:], rtol=1e-12)
    np.testing.assert_allclose(result.covariance("field"), both[1:, 1:], rtol=1e-12)
    np.testing.assert_allclose(result.correlation("field"), np.corrcoef(field), rtol=1e-12)


def test_samples_inputs_and_ids_belong_together():
    result = run(failing_above(1.3))
    x = result.inputs
    assert x.n_samples == result.ids.size == 1024 - result.n_failed
    np.testing.assert_array_equal(x.ids, result.ids)
    np.testing.assert_array_equal((x.load / x.stiffness).samples, result.samples("tip").samples)
    np.testing.assert_array_equal(result.samples("tip").sample_set.ids, result.ids)


def test_streamed_quantiles_and_probabilities_are_near_the_exact_ones():
    kept, streamed = run(n=4096), run(n=4096, keep="statistics")
    for q in (0.0, 0.05, 0.5, 0.99, 1.0):
        bound = 2 * (kept.maximum("field") - kept.minimum("field")) / 1023
        assert np.all(np.abs(kept.quantile("field", q) - streamed.quantile("field", q)) <= 1.5 * bound)
    assert streamed.quantile("field", [[0.1, 0.9]]).shape == (1, 2, 3) and streamed.quantile("tip", []).shape == (0,)
    for condition in ("> 0.4", "<= 0.3", ">= 0.35", "< 0.2"):
        exact, found = kept.probability("field", condition), streamed.probability("field", condition)
        np.testing.assert_allclose(found.value, exact.value, atol=0.01)


def test_failed_samples_bound_a_probability():
    result = run(failing_above(1.3))
    value, low, high = result.probability("tip", "> 0.35")
    hits = np.count_nonzero(result.samples("tip").samples > 0.35)
    assert (value, low, high) == pytest.approx(
        (hits / (1024 - result.n_failed), hits / 1024, (hits + result.n_failed) / 1024), rel=1e-14
    )
    truth = run().probability("tip", "> 0.35")
    assert low <= truth.value <= high and truth.low == truth.value == truth.high


# --- intervals
KEPT = ("all", "statistics")


def test_independent_samples_have_students_interval():
    result = run(sampler="monte_carlo")
    low, high = result.confidence_interval("tip", 0.9)
    expected = en.sample_confidence_interval(result.samples("tip"), 0.9)
    assert (low, high) == pytest.approx(expected, rel=1e-13)


def test_replicates_have_students_interval_of_their_means():
    """Longer on the side of the long tail, by the skewness of the samples; the other end is Student's."""
    result = run(sampler=Sobol(replicates=16))
    means = np.array([result.values("tip")[r::16].mean() for r in range(16)])
    expected = stats.t.interval(0.95, 15, means.mean(), means.std(ddof=1) / 4)
    low, high = result.confidence_interval("tip")
    longer = tail_factor(result.skewness("tip"), 1024, 16, 0.95)
    assert result.skewness("tip") > 0.0 and low == pytest.approx(expected[0], rel=1e-12)
    assert high - means.mean() == pytest.approx(longer * (expected[1] - means.mean()), rel=1e-9)


@pytest.mark.parametrize("sampler", ["sobol", "monte_carlo"])
@pytest.mark.parametrize("of, more", [("probability", {"condition": "> 0.4"}), ("quantile", {"q": 0.9})])
def test_intervals_of_fields_hold_their_estimates(sampler, of, more):
    result = run(sampler=sampler)
    low, high = result.confidence_interval("field", of=of, **more)
    value = result.probability("field", "> 0.4").value if of == "probability" else result.quantile("field", 0.9)
    assert low.shape == (3,) and np.all(low <= value) and np.all(value <= high) and np.all(high - low < 0.1)


def test_an_event_that_was_never_seen_has_no_interval_of_length_zero():
    low, high = run().confidence_interval("tip", of="probability", condition="> 1e9")
    assert low == 0.0 and high == pytest.approx(1 - 0.025 ** (1 / 1024), rel=1e-9)


@pytest.mark.parametrize("keep", ["all", "statistics"])
def test_extreme_quantiles_have_open_intervals(keep):
    low, high = run(n=32, sampler="monte_carlo", keep=keep).confidence_interval("tip", of="quantile", q=0.999)
    assert np.isfinite(low) and high == np.inf


def covered(sampler, repeats, n):
    """How often the intervals of the mean of ``x * y + y**2`` hold it."""
    exact = 2.0 * 0.5 + 1.0 / 3.0
    count = 0
    for seed in range(repeats):
        x = NORMAL.samples(n, sampler=sampler, seed=10_000 + seed)
        study = en.plan(NORMAL, n, sampler=sampler, seed=10_000 + seed)
        study.tell(np.arange(n), {"y": x.x * x.y + x.y**2})
        low, high = study.result().confidence_interval("y")
        count += low <= exact <= high
    return count / repeats


@pytest.mark.parametrize("sampler", ["monte_carlo", "sobol", "halton"])
def test_intervals_hold_the_mean_about_as_often_as_they_say(sampler):
    assert 0.88 <= covered(sampler, 120, 128) <= 1.0  # 3 standard deviations of 120 repeats


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["monte_carlo", Sobol(replicates=8), Sobol(replicates=16)], ids=str)
def test_intervals_hold_the_mean_as_often_as_they_say(sampler):
    assert 0.93 <= covered(sampler, 1000, 256) <= 0.97


# --- quadrature
def test_quadrature_takes_weights_and_has_no_interval():
    result = run(lambda x: {"y": x.x**4 * x.y}, n=None, inputs=NORMAL, sampler=Rule())
    exact = 16.0 + 6 * 4 * 0.25 + 3 * 0.0625
    assert float(result.mean("y")) == pytest.approx(0.5 * exact, rel=1e-12)
    plain = run(lambda x: {"y": x.x}, n=None, inputs=NORMAL, sampler=Rule())
    assert float(plain.var("y")) == pytest.approx(0.25, rel=1e-12) and plain.samples("y").sample_set.weights is not None
    assert "no interval: Rule" in repr(plain)
    alone = en.propagate(lambda x: x.a, en.Inputs(a=stats.norm()), 1, sampler="monte_carlo", seed=1, progress=False)
    assert "no interval: 1 sample\n" in f"{alone!r}\n"
    with pytest.raises(ValueError, match="confidence_interval: the study must have two samples or more; got 1"):
        alone.confidence_interval("y")
    with pytest.raises(ValueError, match=r"the sampler must give independent samples or replicates; got Rule"):
        plain.confidence_interval("y")


def test_quadrature_misses_no_point():
    result = run(
        failing := lambda x: (x.fail(x.x > 2.5, "stiff"), {"y": x.x})[1], n=None, inputs=NORMAL, sampler=Rule()
    )
    assert failing and result.n_failed == 4
    with pytest.raises(ValueError, match=r"UqResult.mean: the study must have all its samples; got 4 missing"):
        result.mean("y")
    with pytest.raises(ValueError, match=r"UqResult.var: the study must have all its samples"):
        result.var("y")


def test_negative_weights_give_means_alone():
    signs = np.where(np.arange(10) == 0, -1.0, 1.0)
    result = run(lambda x: {"y": x.x}, n=None, inputs=NORMAL, sampler=Rule(signs))
    assert np.isfinite(result.mean("y")) and result.samples("y").sample_set is None
    for call in (
        lambda: result.quantile("y", 0.5),
        lambda: result.probability("y", "> 0"),
        lambda: result.covariance("y"),
    ):
        with pytest.raises(ValueError, match=r"the weights must be zero or above; got negative ones"):
            call()
    with pytest.raises(ValueError, match=r"propagate: keep must be 'all' for weights; got statistics"):
        run(lambda x: {"y": x.x}, n=None, inputs=NORMAL, sampler=Rule(signs), keep="statistics")


# --- what is refused
def complex_beam(x):
    return {"z": x.load * 1j, "tip": x.load}


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda r: r.mean("a"), ValueError, r"UqResult.mean: name must be one of 'z', 'tip'; got 'a'"),
        (lambda r: r.minimum("z"), TypeError, r"UqResult.minimum: output 'z' must be real; got dtype complex128"),
        (lambda r: r.quantile("z", 0.5), TypeError, r"UqResult.quantile: output 'z' must be real"),
        (lambda r: r.confidence_interval("z"), TypeError, r"output 'z' must be real"),
        (lambda r: r.quantile("tip", 1.5), ValueError, r"q must be in \[0, 1\]"),
        (lambda r: r.confidence_interval("tip", 95), ValueError, r"level must be a number in \(0, 1\); got 95"),
        (lambda r: r.confidence_interval("tip", of="mode"), ValueError, r"of must be one of 'mean', 'var', 'std'"),
        (
            lambda r: r.confidence_interval("tip", of="probability"),
            ValueError,
            r"condition must be given with of='probability'",
        ),
        (
            lambda r: r.confidence_interval("tip", q=0.5),
            ValueError,
            r"q must be given with of='quantile' and no other; got 0.5 with of='mean'",
        ),
        (lambda r: r.probability("tip", 0.5), TypeError, r"condition must be a function of an Ensemble, or a text"),
        (
            lambda r: r.probability("tip", lambda y: y + 1),
            ValueError,
            r"condition must give a bool Ensemble; got dtype fl",
        ),
        (
            lambda r: r.probability("tip", "> a"),
            ValueError,
            r"condition must be a comparison with a number, as '> 0.1'",
        ),
    ],
)
def test_wrong_questions_are_named(call, error, text):
    with pytest.raises(error, match=text):
        call(run(complex_beam, n=64))


@pytest.mark.parametrize("keep", ["all", "statistics"])
@pytest.mark.parametrize("sampler", ["monte_carlo", "sobol", "latin_hypercube"])
def test_every_sampler_has_every_interval_and_it_holds_the_estimate(sampler, keep):
    result = run(n=1024, sampler=sampler, keep=keep)
    for name in ("tip", "field"):
        for of, estimate, more in (
            ("mean", result.mean(name), {}),
            ("var", result.var(name), {}),
            ("std", result.std(name), {}),
            ("quantile", result.quantile(name, 0.9), {"q": 0.9}),
            ("probability", result.probability(name, "> 0.4").value, {"condition": "> 0.4"}),
        ):
            low, high = result.confidence_interval(name, of=of, **more)
            assert np.shape(low) == np.shape(estimate) and np.all(low <= estimate) and np.all(estimate <= high)


@pytest.mark.parametrize("of", ["mean", "std"])
@pytest.mark.parametrize("sampler", ["monte_carlo", "sobol"])
def test_intervals_without_kept_samples_are_nearly_those_with_them(of, sampler):
    kept, streamed = (run(n=1024, sampler=sampler, keep=k).confidence_interval("tip", of=of) for k in KEPT)
    assert streamed == pytest.approx(kept, rel=2e-4)


@pytest.mark.parametrize("of, more", [("quantile", {"q": 0.9}), ("probability", {"condition": "> 0.4"})])
def test_intervals_from_histograms_hold_those_of_kept_samples(of, more):
    kept, streamed = (run(n=1024, keep=k).confidence_interval("tip", of=of, **more) for k in KEPT)
    assert streamed[0] <= kept[0] and kept[1] <= streamed[1]


@pytest.mark.parametrize(
    "options, text",
    [
        ({"sampler": Sobol(replicates=1)}, r"got one replicate of Sobol"),
        ({"model": lambda x: (x.fail(x.ids % 8 == 3, "x"), beam(x))[1]}, r"got 1 of 8 replicates without a sample"),
        ({"model": lambda x: (x.fail(x.ids > 0, "x"), beam(x))[1]}, r"have two samples or more; got 1"),
    ],
    ids=["one", "replicate", "sample"],
)
def test_no_interval_is_better_than_a_wrong_one(options, text):
    result = run(**{"n": 64} | options)
    with pytest.raises(ValueError, match=text):
        result.confidence_interval("tip")
    assert "no interval: " in repr(result)


def test_without_kept_samples_some_questions_are_refused():
    result = run(n=64, keep="statistics")
    for call in (
        lambda: result.values("tip"),
        lambda: result.covariance("tip"),
        lambda: result.probability("tip", lambda y: y > 0.0),
        lambda: result.confidence_interval("tip", of="probability", condition=lambda y: y > 0.0),
    ):
        with pytest.raises(ValueError, match=r"the study must have kept its samples; got statistics alone"):
            call()


@pytest.mark.parametrize("text, expected", [("> 0.1", (">", 0.1)), (" <=-3e2 ", ("<=", -300.0)), (">=1", (">=", 1.0))])
def test_conditions_are_read(text, expected):
    assert threshold_of(text, "f") == expected
    np.testing.assert_array_equal(holds("<= 1", np.array([0.0, 1.0, 2.0]), "f"), [True, True, False])


# --- forms
def test_the_table_says_how_many():
    text = repr(run(failing_above(1.3), n=4096))
    assert "4,096 samples, sobol, seed 7" in text and "95 % interval of the mean" in text
    assert "tip     ()" in text and "at most" in text and "failed; first sample" in text and "too much load" in text


def test_the_dataset_has_samples_inputs_and_masks():
    pytest.importorskip("xarray")
    result = run(failing_above(1.3), n=64)
    found = result.to_xarray()
    assert found.field.dims == ("field_dim_0", "sample") and found.attrs["seed"] == 7
    np.testing.assert_array_equal(found["load"].values, INPUTS.samples(64, seed=7).load.samples)
    np.testing.assert_array_equal(found.failed.values, result.failed)
    assert float(found.tip.mean("sample")) == pytest.approx(float(result.mean("tip")), rel=1e-13)  # NaN left out


def test_the_dataset_of_statistics():
    pytest.importorskip("xarray")
    result = run(n=64, keep="statistics")
    found = result.to_xarray()
    np.testing.assert_array_equal(found.field_std.values, result.std("field"))
    assert set(found) == {f"{a}_{b}" for a in ("tip", "field") for b in ("mean", "std", "minimum", "maximum")}


@pytest.mark.parametrize("n", [1, 2])
def test_few_samples_have_a_mean(n):
    result = run(n=n, sampler="monte_carlo")
    assert np.isfinite(result.mean("tip")) and np.isnan(result.std("tip")) == (n == 1)
    assert "UqResult" in repr(result)


def test_empty_and_bool_outputs_have_statistics():
    result = run(lambda x: {"none": x.load[None][:0], "large": x.load > 1.0}, n=64)
    assert result.mean("none").shape == (0,) and 0.0 < result.mean("large") < 1.0
    assert result.probability("large", lambda y: y).value == result.mean("large") and "none" in repr(result)


# --- weights
WEIGHTED = {
    "gauss": Gauss(4),
    "sparse_grid": SparseGrid(3),
    "points": Points(np.random.default_rng(51423).uniform(size=(40, 2)), weights=np.linspace(0.1, 2.0, 40)),
    "plain points": Points(np.random.default_rng(51424).uniform(size=(40, 2))),
}
STATISTICS = {
    "mean": lambda r: r.mean("y"),
    "var": lambda r: r.var("y"),
    "quantile": lambda r: r.quantile("y", [0.1, 0.5]),
    "probability": lambda r: r.probability("y", "> 2"),
    "covariance": lambda r: r.covariance("y"),
}


def outcome_of(statistic, result):
    """The value of a statistic, or that it is refused."""
    try:
        return np.asarray(statistic(result))
    except ValueError:
        return np.asarray("refused")


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("sampler", WEIGHTED)
def test_an_opened_study_has_the_statistics_of_its_weights(tmp_path, sampler, statistic):
    here = run(lambda x: {"y": x.x * x.y}, None, NORMAL, sampler=WEIGHTED[sampler], store=tmp_path / "s")
    there = open_study(tmp_path / "s")
    of = STATISTICS[statistic]
    assert np.array_equal(outcome_of(of, here), outcome_of(of, there))
    assert "StoredSampler" not in repr(there)


def test_an_opened_study_whose_weights_are_not_stored_is_refused(tmp_path):
    def model(x):
        if 8 in x.ids:
            with pytest.raises(ValueError, match=r"open_study: the weights must be stored; got none of 8 samples"):
                open_study(tmp_path / "s")
        return {"y": x.x}

    run(model, None, NORMAL, sampler=WEIGHTED["points"], store=tmp_path / "s", ensemble_size=8)


def test_weights_that_follow_from_the_manifest_need_not_be_stored(tmp_path):
    def model(x):
        if 8 in x.ids:
            there = open_study(tmp_path / "s")
            assert there.n_done == 8 and np.array_equal(there.weights, whole.weights[:8])
        return {"y": x.x}

    whole = run(lambda x: {"y": x.x}, None, NORMAL, sampler=WEIGHTED["gauss"])
    run(model, None, NORMAL, sampler=WEIGHTED["gauss"], store=tmp_path / "s", ensemble_size=8)


@pytest.mark.parametrize("sampler", ["gauss", "points"])
def test_weights_go_with_kept_samples_alone(sampler):
    """Histograms count samples without their weights."""
    with pytest.raises(ValueError, match=r"propagate: keep must be 'all' for weights; got statistics"):
        run(lambda x: {"y": x.x}, None, NORMAL, sampler=WEIGHTED[sampler], keep="statistics")


@pytest.mark.parametrize("q, shape", [(0.5, ()), ([0.5], (1,)), ([[0.1, 0.9]], (1, 2))])
def test_quantiles_of_scalars_from_histograms_have_the_shape_of_q(q, shape):
    result = run(lambda x: {"y": x.x}, 64, NORMAL, keep="statistics")
    assert np.shape(result.quantile("y", q)) == shape


def test_no_output_is_compared_with_nan():
    result = run(lambda x: {"y": x.x}, 64, NORMAL)
    with pytest.raises(ValueError, match=r"condition must be a comparison with a number, as '> 0.1'; got '> nan'"):
        result.probability("y", "> nan")


def test_an_output_of_a_vector_inputs_name_has_dimensions_of_its_own(tmp_path):
    xarray = pytest.importorskip("xarray")
    inputs = en.Inputs(v=stats.multivariate_normal([0.0, 1.0]))
    result = run(lambda x: {"v": en.xp.stack([x.v[0], x.v[1], x.v[0]])}, 16, inputs, store=tmp_path / "s")
    there = xarray.open_zarr(tmp_path / "s")
    for found in (result.to_xarray(), there, open_study(tmp_path / "s").to_xarray()):
        assert (found["v"].shape, found["v_input"].shape) == ((3, 16), (2, 16))
        assert found["v_input"].dims == there["v_input"].dims


class Namesake(Sampler):
    """Points of the user's, without replicates, under the name of a sampler of the library."""

    name = "sobol"

    def points(self, ids, n_germs, seed):
        return np.random.default_rng(seed).random((64, n_germs))[ids]


@pytest.mark.parametrize("sampler", [Namesake(), "sobol", "halton", "latin_hypercube", "monte_carlo"])
def test_an_opened_study_has_the_intervals_of_its_sampler(tmp_path, sampler):
    here = run(lambda x: {"y": x.x}, 64, NORMAL, sampler=sampler, store=tmp_path / "s")
    there = open_study(tmp_path / "s")
    assert bool(there.no_interval()) == bool(here.no_interval())
    if not here.no_interval():
        assert there.confidence_interval("y") == here.confidence_interval("y")


@pytest.mark.parametrize("of", ["var", "std"])
def test_an_interval_of_a_deviation_needs_two_samples_in_each_replicate(of):
    result = run(n=8)
    assert result.confidence_interval("tip").low < result.mean("tip")
    with pytest.raises(ValueError, match=f"two samples in each of 8 replicates for of='{of}'; got 1 in one"):
        result.confidence_interval("tip", of=of)


@pytest.mark.parametrize("name", ["tip", "field"])
def test_the_skewness_is_scipys(name):
    result = run(failing_above(1.3), n=2048)
    values = result.values(name)[..., ~result.failed]
    np.testing.assert_allclose(result.skewness(name), stats.skew(values, axis=-1), rtol=1e-12, atol=1e-12)


def test_the_skewness_of_a_rule_is_exact():
    result = run(lambda x: {"y": (x.x - 2.0) ** 2, "z": x.x * 1j}, None, NORMAL, sampler=Gauss(5))
    np.testing.assert_allclose(result.skewness("y"), np.sqrt(8.0), rtol=1e-12)  # of chi-squared with one degree
    with pytest.raises(TypeError, match="be real"):
        result.skewness("z")


def test_the_skewness_needs_kept_samples():
    with pytest.raises(ValueError, match=r"UqResult\.skewness: the study must have kept its samples"):
        run(keep="statistics").skewness("tip")


def test_statistics_of_a_complex_output_are_printed_by_parts():
    from ensemble._command.study.report import as_json, as_text

    result = run(lambda x: {"wave": x.load * (1.0 + 2.0j)}, n=64)
    text = as_text(result, ["wave"], [0.5], 0.95)
    mean = result.mean("wave")
    assert f"mean, real part       {mean.real:.6g}" in text and f"mean, imaginary part  {mean.imag:.6g}" in text
    assert as_json(result)["outputs"]["wave"]["std"] == result.std("wave")


RESULTS = {
    "propagate": lambda model, inputs: en.propagate(model, inputs, 64, seed=1, progress=False),
    "statistics": lambda model, inputs: en.propagate(model, inputs, 64, seed=1, progress=False, keep="statistics"),
    "sobol_indices": lambda model, inputs: en.sobol_indices(model, inputs, 64, seed=1, progress=False),
    "morris": lambda model, inputs: en.uq.morris(model, inputs, 4, seed=1, progress=False),
    "chaos": lambda model, inputs: en.uq.chaos(
        inputs, en.propagate(model, inputs, 64, seed=1, progress=False), degree=2
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_pickled_result_holds_no_model(name):
    """A model may hold what cannot be pickled, or is large."""
    lock = threading.Lock()

    def model(x):
        with lock:
            return {"tip": 2.0 * x.x + x.y}

    result = RESULTS[name](model, NORMAL)
    again = pickle.loads(pickle.dumps(result))
    assert type(again) is type(result) and repr(again) == repr(result)
    if name == "propagate":
        assert again.mean("tip") == result.mean("tip") and again.std("tip") == result.std("tip")
        assert again.to_xarray().attrs == result.to_xarray().attrs


@pytest.mark.parametrize("stored", [False, True])
def test_what_is_written_into_samples_changes_no_statistic(tmp_path, stored):
    options = {"store": tmp_path / "run.zarr"} if stored else {}
    result = en.propagate(beam, INPUTS, 64, seed=7, progress=False, **options)
    mean, centred = float(en.propagate(beam, INPUTS, 64, seed=7, progress=False).mean("tip")), result["tip"]
    centred -= centred.samples.mean()
    result.samples("field").samples[...] = 0.0
    result.values("tip")[...] = 0.0
    assert float(result.mean("tip")) == mean and float(result.quantile("field", 0.5)[2]) > 0.9


@pytest.mark.parametrize("all_fail", [False, True])
def test_failures_without_a_reason_are_told_so(all_fail):
    with en.plan(INPUTS, 16, seed=7) as study:
        for group in study.groups():
            tip = group.samples.load.samples
            study.tell(group, {"tip": tip}, failed=tip > (-9.0 if all_fail else 1.0))
        result = study.result()
    assert "first sample" in repr(result) and ": no reason was given" in repr(result)
    if all_fail:
        with pytest.raises(ValueError, match="First: no reason was given"):
            result.mean("tip")
