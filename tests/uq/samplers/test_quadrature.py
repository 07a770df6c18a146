"""Gauss rules and sparse grids: exact where they promise it."""

import itertools

import numpy as np
import pytest
from scipy import special, stats

import ensemble as en
from ensemble import uq
from ensemble.uq.inputs.univariate import as_univariate
from ensemble.uq.samplers.rules import fejer_rule, gauss_rule

LAWS = {
    "norm": stats.norm(1.0, 0.5), "uniform": stats.uniform(-1.0, 3.0), "gamma": stats.gamma(2.5, scale=2.0),
    "expon": stats.expon(), "beta": stats.beta(0.5, 1.5), "triang": stats.triang(0.3),
    "weibull": stats.weibull_min(1.5), "truncnorm": stats.truncnorm(-1.0, 2.0),
    "Normal": stats.Normal(mu=1.0, sigma=2.0),
}  # fmt: skip


def moment(name, degree):
    """SciPy integrates the moments of the exponential distribution to seven digits."""
    if name == "expon":
        return float(special.factorial(degree))
    return float(LAWS[name].moment(degree)) if degree else 1.0


@pytest.mark.parametrize("order", [1, 2, 5, 8])
@pytest.mark.parametrize("name", LAWS)
def test_means_of_polynomials_are_exact(name, order):
    x = en.Inputs(a=LAWS[name]).samples(sampler=uq.Gauss(order))
    assert x.n_samples == order
    for degree in range(2 * order):
        exact = moment(name, degree)
        size = float(x.weights @ np.abs(x.a.samples) ** degree)
        # where a density has a kink, the rule is right to 1e-8
        assert abs(float(x.weights @ x.a.samples**degree) - exact) < 1e-8 * max(size, 1.0), degree


def test_nodes_of_gamma_and_beta_are_those_of_laguerre_and_jacobi():
    x = en.Inputs(a=stats.gamma(1.0 + 0.7)).samples(sampler=uq.Gauss(6))
    nodes, weights = special.roots_genlaguerre(6, 0.7)
    np.testing.assert_allclose(x.a.samples, nodes, rtol=1e-9)
    np.testing.assert_allclose(x.weights, weights / weights.sum(), rtol=1e-8)
    x = en.Inputs(a=stats.beta(1.5, 2.5)).samples(sampler=uq.Gauss(6))
    nodes, weights = special.roots_jacobi(6, 1.5, 0.5)
    np.testing.assert_allclose(x.a.samples, 0.5 * (1.0 + nodes), rtol=1e-10)
    np.testing.assert_allclose(x.weights, weights / weights.sum(), rtol=1e-9)


@pytest.mark.parametrize(
    "law", [stats.poisson(3.0), stats.binom(5, 0.3), stats.rv_discrete(values=([1.0, 2.5], [0.4, 0.6]))]
)
def test_discrete_inputs_have_all_their_values(law):
    x = en.Inputs(k=law).samples(sampler=uq.Gauss(2))
    assert np.array_equal(x.k.samples, np.unique(x.k.samples))
    frozen = law if hasattr(law, "dist") else law()
    np.testing.assert_allclose(x.weights, frozen.pmf(x.k.samples), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(x.weights @ x.k.samples**2, frozen.moment(2), rtol=1e-9)


def test_categories_and_other_inputs_make_a_product():
    inputs = en.Inputs(m=en.Categorical({"a": 0.2, "b": 0.8}), z=stats.norm(), c=5.0)
    x = inputs.samples(sampler=uq.Gauss({"m": 1, "z": 3}))
    assert x.n_samples == 6 and abs(x.weights.sum() - 1.0) < 1e-14
    np.testing.assert_allclose(x.weights @ (x.m == 1).samples, 0.8)


def test_mixtures_with_jumps_have_their_values_and_the_rest():
    x = en.Inputs(a=uq.Mixture([0.0, stats.uniform(1.0, 2.0)], [0.3, 0.7])).samples(sampler=uq.Gauss(4))
    assert np.count_nonzero(x.a.samples == 0.0) == 1
    np.testing.assert_allclose(x.weights @ x.a.samples**3, 0.7 * 10.0, rtol=1e-12)


def test_correlated_inputs_are_taken_through_their_germs():
    inputs = en.Inputs(a=stats.norm(), b=stats.norm(1.0, 2.0), k=stats.uniform(), correlation={("a", "b"): 0.6})
    x = inputs.samples(sampler=uq.Gauss(3))
    np.testing.assert_allclose(x.weights @ (x.a * x.b).samples, 1.2, rtol=1e-12)
    joint = en.Inputs(v=stats.multivariate_normal([0.0, 1.0], [[2.0, 0.5], [0.5, 1.0]])).samples(sampler=uq.Gauss(3))
    np.testing.assert_allclose(joint.weights @ (joint.v[0] * joint.v[1]).samples, 0.5, rtol=1e-12)


def test_heavy_tails_are_taken_in_the_germ():
    x = en.Inputs(a=stats.t(3.0)).samples(sampler=uq.Gauss(5))
    z, _ = np.polynomial.hermite_e.hermegauss(5)
    np.testing.assert_allclose(x.a.samples, stats.t(3.0).ppf(stats.norm.cdf(z)), rtol=1e-10)


def test_fields_take_quadrature_in_their_coefficients():
    field = en.fields.KarhunenLoeve.exponential([(0, 1)], 0.5, 3, distribution=stats.uniform(-1.0, 2.0))
    x = en.Inputs(kappa=field).samples(sampler=uq.Gauss(2))
    values = x.kappa([0.3]).samples[0]
    expected = np.sum(field.eigenvalues * field.expansion.modes_at(np.array([[0.3]]))[0] ** 2) / 3.0
    np.testing.assert_allclose(x.weights @ values**2, expected, rtol=1e-12)


def test_any_points_of_a_large_product_are_made_alone():
    inputs = en.Inputs(v=uq.Vector(stats.norm(), 15))
    x = inputs.samples(sampler=uq.Gauss(4), ids=[4**15 - 1, 0])
    z, w = np.polynomial.hermite_e.hermegauss(4)
    np.testing.assert_allclose(x.v.samples[:, 0], z[-1])
    np.testing.assert_allclose(x.weights, (w[0] / w.sum()) ** 15)


SPARSE = {
    "normal": en.Inputs(v=uq.Vector(stats.norm(), 3)),
    "mixed": en.Inputs(a=stats.norm(), b=stats.uniform(), c=stats.expon()),
}


@pytest.mark.parametrize("level", [0, 1, 2, 4])
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_grids_are_exact_up_to_their_total_degree(name, level):
    inputs = SPARSE[name]
    x = inputs.samples(sampler=uq.SparseGrid(level))
    full = inputs.samples(sampler=uq.Gauss(2 * level + 2))
    both = [np.vstack([np.atleast_2d(s[n].samples) for n in inputs.names]) for s in (x, full)]
    for powers in itertools.product(range(2 * level + 2), repeat=3):
        if sum(powers) <= 2 * level + 1:
            found, exact = (
                s.weights @ np.prod(v ** np.array(powers)[:, None], axis=0)
                for s, v in zip((x, full), both, strict=True)
            )
            size = float(np.abs(x.weights) @ np.prod(np.abs(both[0]) ** np.array(powers)[:, None], axis=0))
            assert abs(found - exact) < 1e-9 * max(size, 1.0), powers


def test_points_of_a_sparse_grid_differ_and_weights_add_up_to_one():
    for rule in ("gauss", "fejer"):
        inputs = en.Inputs(v=uq.Vector(stats.uniform(), 4), m=en.Categorical("ab"))
        sampler = uq.SparseGrid(3, rule=rule).for_inputs(inputs, None)
        points = sampler.points(np.arange(sampler.count()), 5, 0)
        assert len(np.unique(points.round(9), axis=0)) == sampler.count()
        weights = sampler.weights(np.arange(sampler.count()))
        assert abs(weights.sum() - 1.0) < 1e-12 and np.any(weights < 0.0)


@pytest.mark.parametrize("level", [1, 2, 4])
def test_points_whose_weights_cancel_are_left_out(level):
    """A category has the same rule at all levels, so that all levels of the other input cancel but the last."""
    x = en.Inputs(m=en.Categorical("ab"), v=stats.uniform()).samples(sampler=uq.SparseGrid(level))
    assert x.n_samples == 2 * (level + 1) and np.all(x.weights > 0.0)


def test_nested_rules_share_their_points():
    for level in range(5):
        coarse, fine = fejer_rule(None, level)[0], fejer_rule(None, level + 1)[0]
        assert np.all(np.isin(coarse, fine)) and fine.size == 2 ** (level + 2) - 1
    u, w = stats.norm.cdf(fejer_rule(None, 3)[0]), fejer_rule(None, 3)[1]
    for degree in range(15):
        np.testing.assert_allclose(w @ u**degree, 1.0 / (degree + 1), rtol=1e-13)


def test_a_sparse_grid_of_nested_rules_has_the_known_number_of_points():
    """Levels 0 to 3 in two dimensions: 1, 5, 17, 49 points, as of every nested rule that doubles."""
    inputs = en.Inputs(v=uq.Vector(stats.uniform(), 2))
    assert [uq.SparseGrid(level, rule="fejer").for_inputs(inputs, None).count() for level in range(4)] == [1, 5, 17, 49]


@pytest.mark.parametrize("law", [stats.norm(), stats.gamma(2.0), stats.poisson(2.0)])
def test_weights_of_a_rule_add_up_to_one(law):
    for order in (1, 4, 20):
        assert abs(gauss_rule(as_univariate(law, "a"), order)[1].sum() - 1.0) < 1e-13


INPUTS = en.Inputs(a=stats.norm(), b=stats.norm())


@pytest.mark.parametrize(
    "make, error, match",
    [
        (lambda: uq.Gauss(0), ValueError, "order must be an integer of at least 1"),
        (lambda: uq.Gauss(151), ValueError, "order must be at most 150"),
        (lambda: uq.Gauss({"c": 2}).for_inputs(INPUTS, None), ValueError, "names in order must be among a, b; got 'c'"),
        (lambda: uq.Gauss({"a": 2}).for_inputs(INPUTS, None), ValueError, "order must have a number for each input"),
        (lambda: INPUTS.samples(5, sampler=uq.Gauss(2)), ValueError, r"n must be 4, the points of Gauss\(order=2\)"),
        (lambda: INPUTS.samples(sampler=uq.Gauss(2), ids=[4]), ValueError, "ids must be from 0 to 3"),
        (lambda: uq.Gauss(2).points([0], 2, 0), ValueError, "inputs must be given to for_inputs first"),
        (lambda: uq.Gauss(2).weights([0]), ValueError, "inputs must be given to for_inputs first"),
        (lambda: uq.SparseGrid(2).points([0], 2, 0), ValueError, "inputs must be given to for_inputs first"),
        (lambda: uq.SparseGrid(-1), ValueError, "level must be an integer of at least 0"),
        (lambda: uq.SparseGrid(1, rule="clenshaw"), ValueError, "rule must be one of 'gauss', 'fejer'"),
        (lambda: en.Inputs(v=uq.Vector(stats.norm(), 60)).samples(sampler=uq.Gauss(2)), ValueError, "have at most"),
        (
            lambda: en.Inputs(v=uq.Vector(stats.norm(), 40)).samples(sampler=uq.SparseGrid(7)),
            ValueError,
            "tensor products",
        ),
        (
            lambda: en.Inputs(k=stats.randint(0, 5000)).samples(sampler=uq.Gauss(2)),
            ValueError,
            "discrete inputs of at most 1000 values",
        ),
    ],
)
def test_rules_that_cannot_be_are_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()
