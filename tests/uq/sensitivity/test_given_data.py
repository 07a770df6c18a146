"""Indices from given samples: closed forms of normal models, peers, significance, forms of arguments."""

import numpy as np
import pytest
from scipy import integrate, stats

import ensemble as en
from ensemble.uq.sensitivity.dependence import Classes, delta, first, hsic, kernel_moments, pawn
from tests.uq.sensitivity.problems import ISHIGAMI_FIRST, ishigami, ishigami_inputs


def normal_truth(part):
    """Delta and the median of PAWN's distances of ``y = a x + ...``, a^2 = `part` of the variance 1."""
    rest = np.sqrt(1.0 - part)

    def distance(x):
        conditional = stats.norm(np.sqrt(part) * x, rest)
        grid = np.linspace(-9.0, 9.0, 4001)
        return np.trapezoid(np.abs(stats.norm.pdf(grid) - conditional.pdf(grid)), grid)

    return integrate.quad(lambda x: 0.5 * distance(x) * stats.norm.pdf(x), -6.0, 6.0, epsabs=1e-5)[0]


@pytest.fixture(scope="module")
def linear():
    inputs = en.Inputs(a=stats.norm(), b=stats.norm(), idle=stats.norm())
    return en.propagate(lambda x: {"y": np.sqrt(0.7) * x.a + np.sqrt(0.3) * x.b}, inputs, 2048, seed=9, progress=False)


def test_indices_of_a_linear_normal_model_are_the_exact_ones(linear):
    found = en.uq.given_data(linear, methods=["first", "delta"], n_permutations=0, n_resamples=20)
    np.testing.assert_allclose(found.first["y"], [0.7, 0.3, 0.0], atol=0.02)
    np.testing.assert_allclose(found.delta["y"][:2], [normal_truth(0.7), normal_truth(0.3)], atol=0.04)
    assert found.delta["y"][2] < 0.03


def test_pawn_is_the_median_distance_of_the_distribution_functions():
    rng = np.random.default_rng(3)
    x = rng.integers(4, size=4000).astype(float)
    y = rng.normal(size=4000) + x
    inside = [y[x == k] for k in range(4)]
    expected = np.median([stats.ks_2samp(part, y).statistic for part in inside])
    assert pawn(y, Classes(x, 10)) == pytest.approx(expected, abs=1e-12)


def test_densities_and_means_are_those_of_their_definitions():
    rng = np.random.default_rng(5)
    x, y = rng.integers(3, size=300).astype(float), rng.normal(size=300)
    classes = Classes(x, 8)
    grid = np.linspace(y.min(), y.max(), 100)
    kde = lambda values: stats.gaussian_kde(values, bw_method="silverman")(grid)
    expected = sum((x == k).sum() * np.trapezoid(np.abs(kde(y) - kde(y[x == k])), grid) for k in range(3)) / 600.0
    assert delta(y, classes) == pytest.approx(expected, rel=1e-10)
    means = np.array([y[x == k].mean() for k in range(3)])[x.astype(int)]
    residuals = np.sum((y - means) ** 2) / 297.0
    assert first(y, classes) == pytest.approx(1.0 - residuals / y.var(ddof=1), rel=1e-10)


def test_the_independence_criterion_is_that_of_openturns():
    ot = pytest.importorskip("openturns")
    rng = np.random.default_rng(1)
    x, e = rng.uniform(-1.0, 1.0, (2, 300))
    y = np.sin(3.0 * x) + e

    def covariance(values):
        kernel = ot.SquaredExponential(1)
        kernel.setScale([values.std(ddof=1)])
        return kernel

    peer = ot.HSICEstimatorGlobalSensitivity(
        [covariance(x), covariance(y)], ot.Sample(x[:, None]), ot.Sample(y[:, None]), ot.HSICVStat()
    )
    value, probability = hsic(x, y, kernel_moments(x), kernel_moments(y))
    assert value == pytest.approx(peer.getR2HSICIndices()[0], rel=1e-5)
    assert probability == pytest.approx(peer.getPValuesAsymptotic()[0], rel=1e-4)


def test_first_indices_of_ishigami_are_the_exact_ones():
    study = en.propagate(ishigami, ishigami_inputs(), 4096, seed=2, progress=False)
    found = en.uq.given_data(study, methods="first", n_permutations=0)
    low, high = found.interval("y")
    assert np.all(high - low < 0.1)
    np.testing.assert_allclose(found.first["y"], ISHIGAMI_FIRST, atol=0.03)


@pytest.mark.slow
def test_p_values_without_dependence_are_uniform():
    rng = np.random.default_rng(8)
    small = dict.fromkeys(("first", "delta", "pawn", "hsic"), 0)
    for k in range(60):
        found = en.uq.given_data(
            {"x": rng.uniform(size=64)}, rng.normal(size=64), n_permutations=19, n_resamples=0, n_classes=4, seed=k
        )
        for kind in small:
            small[kind] += int(found.p_value("y", kind)[0] <= 0.1001)
    for kind, count in small.items():
        assert stats.binomtest(count, 60, 0.1).pvalue > 0.01, (kind, count)


def test_an_input_that_matters_is_significant_and_an_idle_one_is_not(linear):
    found = en.uq.given_data(linear, n_permutations=39, n_resamples=0, n_classes=6)
    for kind in found.kinds:
        p = found.p_value("y", kind)
        assert np.all(p[:2] <= 0.026) and p[2] > 0.05, kind


def test_dependent_inputs_have_indices():
    inputs = en.Inputs(a=stats.norm(), b=stats.norm(), correlation={("a", "b"): 0.9})
    study = en.propagate(lambda x: {"y": x.a}, inputs, 2048, seed=4, progress=False)
    found = en.uq.given_data(study, methods=["first"], n_permutations=0, n_resamples=0)
    np.testing.assert_allclose(found.first["y"], [1.0, 0.81], atol=0.03)


@pytest.mark.slow
def test_intervals_hold_the_first_index_about_as_often_as_they_say():
    inside = []
    for seed in range(60):
        rng = np.random.default_rng(900 + seed)
        a, b = rng.normal(size=(2, 400))
        found = en.uq.given_data({"a": a, "b": b}, a + b, methods=["first"], n_permutations=0, seed=seed)
        low, high = found.interval("y")
        inside.append((low <= 0.5) & (high >= 0.5))
    assert np.mean(inside) > 0.85


def test_columns_studies_and_samples_give_the_same(linear):
    options = {"methods": ["first", "pawn"], "n_permutations": 5, "n_resamples": 5}
    whole = en.uq.given_data(linear, **options)
    samples = linear.inputs
    y = np.asarray(linear.samples("y").samples)
    other = en.uq.given_data(samples, {"y": y}, **options)
    columns = en.uq.given_data({name: np.asarray(samples[name].samples) for name in samples.names}, y, **options)
    for kind in whole.kinds:
        np.testing.assert_array_equal(getattr(whole, kind)["y"], getattr(other, kind)["y"])
        np.testing.assert_array_equal(getattr(whole, kind)["y"], getattr(columns, kind)["y"])


def test_vectors_categories_fields_and_constants():
    inputs = en.Inputs(
        v=en.uq.Vector(stats.norm(), 2), c=en.uq.Categorical({"red": 0.5, "blue": 0.5}), fixed=2.0, n=stats.poisson(3.0)
    )
    study = en.propagate(
        lambda x: {"f": np.stack([x.v[1], 0.0 * x.v[0], np.where(x.c == 0, 1.0, 0.0) + 0.1 * x.v[0]])},
        inputs, 256, seed=4, progress=False,
    )  # fmt: skip
    found = en.uq.given_data(study, methods=["first"], n_permutations=0, n_resamples=0)
    assert found.inputs == ("v[0]", "v[1]", "c", "n")
    np.testing.assert_allclose(found.first["f"][:, 0], [0.0, 1.0, 0.0, 0.0], atol=0.15)
    assert np.isnan(found.first["f"][:, 1]).all() and "constant" in found.notes[0]
    assert found.first["f"][2, 2] > 0.9
    assert "GivenDataIndices: 256 of 256 samples" in repr(found)
    found.to_xarray()


def test_units_and_offsets_change_nothing():
    rng = np.random.default_rng(6)
    x, e = rng.normal(size=(2, 200))
    options = {"n_permutations": 3, "n_resamples": 3}
    plain = en.uq.given_data({"x": x}, x + e, **options)
    scaled = en.uq.given_data({"x": 1e6 * x - 4e7}, 2.0**-40 * (x + e), **options)
    for kind in plain.kinds:
        np.testing.assert_allclose(getattr(scaled, kind)["y"], getattr(plain, kind)["y"], rtol=1e-6, atol=1e-9)


def test_samples_that_are_not_finite_are_left_out_and_said():
    rng = np.random.default_rng(7)
    x = rng.normal(size=100)
    y = x.copy()
    y[3] = np.nan
    found = en.uq.given_data({"x": x}, y, methods=["first"], n_permutations=0, n_resamples=0)
    assert (found.n_rows, found.n_used) == (100, 99) and "1 of 100 samples" in found.notes[0]


@pytest.mark.parametrize(
    "arguments, options, words",
    [
        (({"x": np.ones(50)}, np.ones(50)), {}, "have an input that varies"),
        (({"x": np.arange(5.0)}, np.arange(5.0)), {}, "at least 16 samples"),
        (({"x": np.arange(50.0)}, np.arange(50.0)), {"methods": ["sobol"]}, "methods"),
        (({"x": np.arange(50.0), "z": np.arange(4.0)}, np.arange(50.0)), {}, "columns of one length"),
        ((3.0,), {}, "be a UqResult"),
        (({"x": np.arange(50.0)},), {}, "outputs must be given"),
    ],
)
def test_what_cannot_be_is_refused(arguments, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        en.uq.given_data(*arguments, **options)


def test_a_quadrature_rule_is_refused():
    inputs = en.Inputs(a=stats.norm(), b=stats.norm())
    study = en.propagate(lambda x: {"y": x.a}, inputs, sampler=en.uq.Gauss(5), progress=False)
    with pytest.raises(ValueError, match="samples of equal weight"):
        en.uq.given_data(study)


@pytest.mark.parametrize("size", [2.0**-1000, 2.0**-300, 2.0**300, 2.0**1000])
def test_indices_depend_on_no_unit(size):
    """Also where squares of the numbers would vanish or overflow."""
    rng = np.random.default_rng(20731)
    columns = {"a": rng.random(64), "b": rng.random(64)}
    y = columns["a"] ** 2 + 0.1 * columns["b"]
    expected = en.uq.given_data(columns, y, n_permutations=5, n_resamples=5)
    for found in (
        en.uq.given_data(columns, y * size, n_permutations=5, n_resamples=5),
        en.uq.given_data({name: x * size for name, x in columns.items()}, y, n_permutations=5, n_resamples=5),
    ):
        for kind in expected.kinds:
            wanted = getattr(expected, kind)["y"]
            np.testing.assert_allclose(getattr(found, kind)["y"], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "law", [stats.uniform(), stats.norm(), stats.expon(), stats.lognorm(1.0)], ids=lambda d: d.dist.name
)
@pytest.mark.parametrize("n", [64, 512, 4096])
def test_the_interval_of_an_input_that_explains_all_holds_one(law, n):
    """Classes are wide where an input has tails: what the output varies in them is in the interval."""
    x = law.rvs(n, random_state=20731)
    found = en.uq.given_data({"a": x, "b": x[::-1]}, x, methods=["first"], n_permutations=0, n_resamples=20)
    low, high = found.interval("y", "first")
    assert low[0] < 1.0 <= high[0] + 1e-12 and high[0] < 1.35
