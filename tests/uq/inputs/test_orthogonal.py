"""Recurrences of orthogonal polynomials: closed forms, moments, discrete distributions, heavy tails."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.uq.inputs import orthogonal
from ensemble.uq.inputs.orthogonal import discretised, orthonormal, recurrence
from ensemble.uq.samplers.rules import discrete_rule


def variable(law):
    return en.Inputs(x=law).variables["x"]


CLOSED = [
    stats.norm(2.0, 3.0), stats.uniform(-1.0, 4.0), stats.expon(1.0, 2.0), stats.gamma(2.5, scale=0.5),
    stats.beta(2.0, 3.0), stats.beta(0.5, 0.5), stats.beta(1.0, 1.0), stats.beta(1.5, 0.5, -1.0, 3.0),
]  # fmt: skip


@pytest.mark.parametrize("law", CLOSED, ids=lambda law: f"{law.dist.name}{law.args}")
def test_closed_forms_agree_with_the_discretisation(law):
    closed, found = recurrence(variable(law), 10), discretised(variable(law), 10)
    np.testing.assert_allclose(closed.alpha, found.alpha, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(closed.beta, found.beta, rtol=1e-11)


OTHERS = [
    stats.lognorm(0.5), stats.triang(0.3, 1.0, 2.0), stats.truncnorm(-1.0, 2.0), stats.weibull_min(1.5),
    stats.gumbel_r(), stats.logistic(3.0), stats.binom(5, 0.3), stats.poisson(3.0), stats.randint(2, 9), stats.t(60),
]  # fmt: skip


MOVED = [
    stats.rv_discrete(values=([0.0, 0.5, 1.0], [0.2, 0.3, 0.5]))(),
    stats.rv_discrete(values=([-1.5, 0.25], [0.4, 0.6]))(),
    stats.rv_discrete(values=([0.1, 0.7, 0.2], [0.2, 0.3, 0.5]))(loc=0.1), stats.poisson(3.0, loc=0.1),
    stats.poisson(3.0, loc=0.5), stats.binom(7, 0.3, loc=-2.3), stats.geom(0.4, loc=0.7),
    stats.skellam(3.0, 2.0, loc=0.1), stats.randint(-20, 21, loc=0.1),
]  # fmt: skip
"""Discrete distributions of values that are no integers, some of which SciPy misses by rounding: 4.1 - 0.1 < 4."""


@pytest.mark.parametrize("law", MOVED, ids=lambda law: f"{law.dist.name}{law.kwds}")
def test_values_that_are_no_integers_count(law):
    """The recurrence, the nodes and weights of Gauss, and the way from values to points and back."""
    own = variable(law)
    n = min(5, own.values.size)
    found = recurrence(own, n)
    assert found.alpha[0] == pytest.approx(law.mean(), rel=1e-12) and found.beta[1] == pytest.approx(
        law.var(), rel=1e-12
    )
    z, weights = discrete_rule(own)
    x = own.from_normal(np.asarray(z).reshape(1, -1))
    assert weights @ x == pytest.approx(law.mean(), rel=1e-9)
    assert weights @ (x - law.mean()) ** 2 == pytest.approx(law.var(), rel=1e-7)
    near = own.values[own.pmf(own.values) > 1e-9]
    np.testing.assert_array_equal(own.from_normal(own.to_normal(near)), near)
    assert own.pmf(own.values).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("law", OTHERS, ids=lambda law: f"{law.dist.name}{law.args}")
def test_mean_and_variance_are_the_first_coefficients(law):
    found = recurrence(variable(law), 5)
    np.testing.assert_allclose(found.alpha[0], law.mean(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.beta[1], law.var(), rtol=1e-11)


@pytest.mark.parametrize("law", [*CLOSED, *OTHERS], ids=lambda law: f"{law.dist.name}{law.args}")
def test_gauss_rules_from_the_recurrence_give_the_moments(law):
    """Golub and Welsch (1969): exact up to degree 2 n - 1."""
    from scipy.linalg import eigh_tridiagonal

    found = recurrence(variable(law), 5)
    nodes, vectors = eigh_tridiagonal(found.alpha, np.sqrt(found.beta[1:]))
    for order in range(1, 8):
        moment = np.exp(0.125 * order**2) if law.dist.name == "lognorm" else law.moment(order)
        size = vectors[0] ** 2 @ np.abs(nodes) ** order
        assert vectors[0] ** 2 @ nodes**order == pytest.approx(moment, abs=1e-6 * max(size, 1e-12))


def test_poisson_has_the_polynomials_of_charlier():
    found = recurrence(variable(stats.poisson(3.0)), 8)
    k = np.arange(8.0)
    np.testing.assert_allclose(found.alpha, k + 3.0, rtol=1e-9)
    np.testing.assert_allclose(found.beta[1:], 3.0 * k[1:], rtol=1e-9)


@pytest.mark.parametrize(
    ("law", "n"), [(stats.binom(5, 0.3), 6), (en.Categorical(["a", "b", "c"]), 3), (stats.bernoulli(0.2), 2)]
)
def test_a_distribution_of_few_values_has_as_many_polynomials(law, n):
    assert recurrence(variable(law), 12).n == n


def test_a_mixture_with_a_jump_is_refined_there():
    law = en.uq.Mixture([stats.uniform(0.0, 1.0), stats.uniform(5.0, 1.0)], [0.3, 0.7])
    found = recurrence(variable(law), 4)
    mean = 0.3 * 0.5 + 0.7 * 5.5
    np.testing.assert_allclose(found.alpha[0], mean, rtol=1e-9)
    np.testing.assert_allclose(found.beta[1], 1.0 / 12.0 + 0.3 * 0.25 + 0.7 * 5.5**2 - mean**2, rtol=1e-9)


@pytest.mark.parametrize("law", [stats.t(3), stats.cauchy(), stats.lognorm(4.0), stats.pareto(4.0)])
def test_tails_without_moments_are_refused(law):
    with pytest.raises(ValueError, match=r"have finite moments; got one whose moment of order .* basis='hermite'"):
        recurrence(variable(law), 6)


def test_polynomials_are_orthonormal():
    law = variable(stats.gamma(3.0))
    found = recurrence(law, 6)
    u = (np.arange(200_000) + 0.5) / 200_000
    values = orthonormal(found, law.from_uniform(u[None]))
    np.testing.assert_allclose(values[:3] @ values[:3].T / u.size, np.eye(3), atol=0.02)


def test_discrete_distributions_of_too_many_values_are_refused():
    with pytest.raises(ValueError, match="have at most 1000000 values"):
        recurrence(variable(stats.randint(0, 10**7)), 3)


class Steps:
    """A user's distribution of 1000 values."""

    def ppf(self, u):
        return np.floor(1000.0 * np.asarray(u))


def test_a_distribution_of_many_jumps_is_refused(monkeypatch):
    monkeypatch.setattr(orthogonal, "MOST_INTERVALS", 100)
    with pytest.raises(ValueError, match="have a smooth inverse; got one with more than 100 kinks or jumps"):
        recurrence(variable(Steps()), 3)
