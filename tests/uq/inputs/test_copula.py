"""Correlated inputs: the numbers asked of them, whatever their distributions, and clear refusals."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import uq
from ensemble.uq.fields import KarhunenLoeve

PAIRS = {
    "lognormal": (stats.lognorm(1.0), stats.lognorm(0.5), 0.5),
    "counts": (stats.poisson(1.0), stats.binom(3, 0.2), 0.4),
    "count and number": (stats.poisson(1.0), stats.gamma(2.0), -0.4),
    "heavy tail": (stats.uniform(), stats.t(5.0), 0.8),
    "switches": (stats.bernoulli(0.5), stats.bernoulli(0.3), -0.3),
    "rain": (uq.Mixture([0.0, stats.expon()], [0.6, 0.4]), stats.norm(), 0.6),
    "own values": (stats.rv_discrete(values=([1.0, 2.5, 7.0], [0.2, 0.5, 0.3])), stats.expon(), 0.5),
}


def drawn(pair, kind):
    a, b, number = PAIRS[pair]
    inputs = en.Inputs(a=a, b=b, correlation={("a", "b"): number}, correlation_kind=kind)
    x = inputs.samples(2**15, sampler=uq.Sobol(replicates=1), seed=81203)
    return x.a.samples, x.b.samples, number


@pytest.mark.parametrize("pair", PAIRS)
def test_the_correlation_of_values_is_reproduced(pair):
    a, b, number = drawn(pair, "pearson")
    assert abs(np.corrcoef(a, b)[0, 1] - number) < 0.005


@pytest.mark.parametrize("pair", PAIRS)
def test_the_correlation_of_ranks_is_reproduced_with_discrete_inputs(pair):
    a, b, number = drawn(pair, "spearman")
    assert abs(stats.spearmanr(a, b).statistic - number) < 0.005


@pytest.mark.parametrize("pair", ["lognormal", "switches", "rain"])
def test_marginals_stay_as_they_are(pair):
    a, b, number = PAIRS[pair]
    inputs = en.Inputs(a=a, b=b, correlation={("a", "b"): number})
    x = inputs.samples(4000, sampler="monte_carlo", seed=81204)
    for name in "ab":
        alone = en.Inputs(c=inputs[name]).samples(100_000, sampler="monte_carlo", seed=81205).c.samples
        edges = np.unique(np.quantile(alone, np.linspace(0.1, 0.9, 9)))
        counts, expected = (
            np.bincount(np.searchsorted(edges, v, side="right"), minlength=edges.size + 1)
            for v in (x[name].samples, alone)
        )
        table = np.stack([counts, expected])[:, expected > 0]
        assert stats.chi2_contingency(table).pvalue > 1e-3


def test_the_germs_of_two_lognormal_inputs_have_the_closed_form():
    """Liu and Der Kiureghian (1986), table 4: log(1 + r d_1 d_2) over the product of the logarithms' deviations."""
    inputs = en.Inputs(
        a=stats.lognorm(0.8), b=stats.lognorm(0.3), correlation={("a", "b"): -0.35}, correlation_kind="pearson"
    )
    d = [np.sqrt(np.exp(s * s) - 1.0) for s in (0.8, 0.3)]
    expected = np.log(1.0 - 0.35 * d[0] * d[1]) / (0.8 * 0.3)
    np.testing.assert_allclose(inputs.germ_correlation()[0, 1], expected, rtol=1e-9)


def test_the_germs_of_two_switches_give_the_probability_of_both():
    inputs = en.Inputs(
        a=stats.bernoulli(0.5), b=stats.bernoulli(0.5), correlation={("a", "b"): 0.6}, correlation_kind="pearson"
    )
    np.testing.assert_allclose(inputs.germ_correlation()[0, 1], np.sin(0.6 * np.pi / 2.0), atol=1e-6)


def test_the_correlation_is_the_double_integral():
    inputs = en.Inputs(a=stats.gamma(1.5), b=stats.uniform(), correlation={("a", "b"): 0.7}, correlation_kind="pearson")
    rho = inputs.germ_correlation()[0, 1]

    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    x, y = np.meshgrid(nodes, nodes, indexing="ij")
    a = np.where(x > 0.0, stats.gamma(1.5).isf(stats.norm.sf(x)), stats.gamma(1.5).ppf(stats.norm.cdf(x)))
    b = stats.norm.cdf(rho * x + np.sqrt(1.0 - rho**2) * y)
    covariance = weights @ ((a - 1.5) * (b - 0.5)) @ weights / (2.0 * np.pi)
    np.testing.assert_allclose(covariance / np.sqrt(1.5 / 12.0), 0.7, atol=1e-5)


def test_components_of_vectors_are_addressed_by_number():
    inputs = en.Inputs(
        v=uq.Vector(stats.norm(), 3),
        c=2.0,
        w=stats.norm(),
        correlation={(("v", 2), "w"): 0.9, (("v", 0), ("v", 2)): 0.3},
    )
    x = inputs.samples(2**14, sampler=uq.Sobol(replicates=1), seed=81206)
    found = np.corrcoef(np.vstack([x.v.samples, x.w.samples]))
    np.testing.assert_allclose(found, inputs.germ_correlation(), atol=0.01)


def test_a_correlated_sample_is_the_same_alone_and_among_others():
    inputs = en.Inputs(
        a=stats.norm(), b=stats.expon(), c=stats.gamma(2.0), correlation={("a", "c"): 0.5, ("b", "c"): 0.6}
    )
    u = np.random.default_rng(81207).random((37, 3))
    among = inputs.from_uniform(u)
    for i in range(37):
        alone = inputs.from_uniform(u[i : i + 1])
        assert all(alone[name].samples[0] == among[name].samples[i] for name in "abc")


def test_normal_points_and_points_of_the_cube_agree():
    inputs = en.Inputs(a=stats.norm(), b=stats.expon(), correlation={("a", "b"): 0.5})
    z = np.random.default_rng(81208).normal(size=(50, 2))
    before = z.copy()
    one, other = inputs.from_normal(z), inputs.from_uniform(stats.norm.cdf(z))
    np.testing.assert_allclose(one.b.samples, other.b.samples, rtol=1e-10)
    assert np.array_equal(z, before)


def test_descriptions_tell_correlations_apart():
    texts = [
        str(en.Inputs(a=stats.norm(), b=stats.norm(), correlation=c, correlation_kind=k).description())
        for c, k in [({}, "normal"), ({("a", "b"): 0.1}, "normal"), ({("a", "b"): 0.1}, "spearman")]
    ]
    assert len(set(texts)) == 3


THREE = {"a": stats.norm(), "b": stats.norm(), "c": stats.norm()}


@pytest.mark.parametrize(
    "correlation, error, match",
    [
        ({("a", "b"): 0.9, ("b", "c"): 0.9, ("a", "c"): -0.9}, ValueError,
         r"smallest eigenvalue of -0.8, by the pairs \('a', 'b'\), \('b', 'c'\), \('a', 'c'\)"),
        ({("a", "b"): 1.0}, ValueError, "must lie between -1 and 1; got 1.0"),
        ({("a", "b"): np.nan}, ValueError, "must be finite"),
        ({("a", "z"): 0.1}, ValueError, "correlation must name a, b, c; got 'z'"),
        ({("a", "a"): 0.1}, ValueError, "must name two different inputs"),
        ({("a", "b"): 0.1, ("b", "a"): 0.2}, ValueError, "must name each pair once"),
        ({"a": 0.1}, TypeError, "must have pairs of inputs as keys"),
        ({("a", ("b", 1)): 0.1}, ValueError, "must name inputs of one number each, or components of vectors"),
    ],
)  # fmt: skip
def test_correlations_that_cannot_be_are_refused(correlation, error, match):
    with pytest.raises(error, match=match):
        en.Inputs(**THREE, correlation=correlation)


@pytest.mark.parametrize(
    "a, b, number, kind, match",
    [
        (stats.lognorm(1.0), stats.lognorm(1.0), -0.5, "pearson", r"between -0.3679 and 1.0000, all that these two"),
        (stats.bernoulli(0.5), stats.bernoulli(0.1), 0.5, "pearson", r"between -0.3333 and 0.3333"),
        (stats.bernoulli(0.5), stats.bernoulli(0.5), 0.9999, "pearson", "not lie so near to an end"),
        (stats.cauchy(), stats.norm(), 0.5, "pearson", "have a finite variance"),
        (stats.t(2.05), stats.norm(), 0.5, "pearson", "have a variance above zero that quadrature finds"),
        (en.Categorical("ab"), stats.norm(), 0.5, "spearman", "have values in an order; got a Categorical"),
        (stats.norm(), stats.norm(), 0.5, "kendall", "correlation_kind must be one of 'normal', 'pearson'"),
        (2.0, stats.norm(), 0.5, "normal", "name inputs of one number each"),
        (stats.multivariate_normal([0.0, 0.0]), stats.norm(), 0.5, "normal", "name inputs of one number each"),
    ],
)
def test_correlations_that_two_distributions_do_not_allow_are_refused(a, b, number, kind, match):
    with pytest.raises(ValueError, match=match):
        en.Inputs(a=a, b=b, correlation={("a", "b"): number}, correlation_kind=kind)


def test_germs_of_fields_and_joint_normals_are_correlated_with_other_inputs():
    joint = stats.multivariate_normal([1.0, 2.0], [[4.0, 1.0], [1.0, 3.0]])
    field = KarhunenLoeve.exponential([(0.0, 1.0)], 0.4, 3)
    inputs = en.Inputs(
        v=joint, kappa=field, load=stats.expon(), correlation={(("v", 0), "load"): 0.6, (("kappa", 1), "load"): -0.5}
    )
    x = inputs.samples(4096, seed=81211)
    load = stats.norm.ppf(stats.expon.cdf(x.load.samples))
    columns = np.stack([*x.v.samples, *x.kappa.coefficients.samples, load])
    expected = np.eye(6)
    expected[0, 1] = expected[1, 0] = 1.0 / np.sqrt(12.0)
    expected[0, 5] = expected[5, 0] = 0.6  # the first value of the joint normal is its first germ
    expected[1, 5] = expected[5, 1] = 0.6 / np.sqrt(12.0)
    expected[3, 5] = expected[5, 3] = -0.5
    np.testing.assert_allclose(np.corrcoef(columns), expected, atol=0.02)
    values = {"v": x.v.samples, "kappa": x.kappa.coefficients.samples, "load": x.load.samples}
    again = inputs.from_normal(inputs.to_normal(values))
    np.testing.assert_allclose(again.load.samples, x.load.samples, rtol=1e-9)


@pytest.mark.parametrize(
    "correlation, kind, match",
    [
        ({(("v", 0), "b"): 0.5}, "pearson", "go with correlation_kind='normal'"),
        ({(("v", 2), "b"): 0.5}, "normal", "or components of vectors"),
        ({(("v", 0), ("v", 1)): 0.5}, "normal", "leave the germs of one field or joint normal independent"),
    ],
)
def test_correlations_of_germs_that_cannot_be_are_refused(correlation, kind, match):
    with pytest.raises(ValueError, match=match):
        en.Inputs(
            v=stats.multivariate_normal([0.0, 0.0]), b=stats.norm(), correlation=correlation, correlation_kind=kind
        )
