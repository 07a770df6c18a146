"""Quadrature on the tetrahedron and the triangle, against the integrals of monomials."""

import itertools
from math import factorial

import numpy as np
import pytest

from ensemble.apps import fem


def errors(degree, of):
    """The largest error over the monomials x^i y^j z^k with i + j + k == of, on the reference tetrahedron."""
    points, weights = fem.tetrahedron_rule(degree)
    _, x, y, z = points.T
    powers = [(i, j, of - i - j) for i, j in itertools.product(range(of + 1), repeat=2) if i + j <= of]
    exact = [6 * factorial(i) * factorial(j) * factorial(k) / factorial(of + 3) for i, j, k in powers]
    return max(
        abs((weights * x**i * y**j * z**k).sum() - value) for (i, j, k), value in zip(powers, exact, strict=True)
    )


@pytest.mark.parametrize("degree", range(10))
def test_rules_are_exact_up_to_their_degree(degree):
    for of in range(degree + 1):
        assert errors(degree, of) <= 1e-15


@pytest.mark.parametrize(("degree", "points", "exact"), [(1, 1, 1), (2, 4, 2), (4, 11, 4), (5, 27, 5), (7, 64, 7)])
def test_rules_are_exact_no_further(degree, points, exact):
    assert len(fem.tetrahedron_rule(degree)[1]) == points
    assert errors(degree, exact + 1) > 1e-7


def errors_on_triangle(degree, of):
    """The largest error over the monomials x^i y^j with i + j == of, on the reference triangle."""
    points, weights = fem.triangle_rule(degree)
    _, x, y = points.T
    exact = [2 * factorial(i) * factorial(of - i) / factorial(of + 2) for i in range(of + 1)]
    return max(abs((weights * x**i * y ** (of - i)).sum() - value) for i, value in enumerate(exact))


@pytest.mark.parametrize("degree", range(10))
def test_rules_on_triangles_are_exact_up_to_their_degree(degree):
    for of in range(degree + 1):
        assert errors_on_triangle(degree, of) <= 1e-15
    points, _ = fem.triangle_rule(degree)
    assert ((points > 0) & (points < 1)).all() or degree <= 1


@pytest.mark.parametrize(
    ("degree", "points", "exact"), [(1, 1, 1), (2, 3, 2), (3, 6, 4), (5, 7, 5), (6, 16, 7), (8, 25, 9)]
)
def test_rules_on_triangles_are_exact_no_further(degree, points, exact):
    assert len(fem.triangle_rule(degree)[1]) == points
    assert errors_on_triangle(degree, exact + 1) > 1e-7


@pytest.mark.parametrize("rule", [fem.tetrahedron_rule, fem.triangle_rule])
def test_a_degree_is_no_negative_number(rule):
    with pytest.raises(ValueError, match="degree"):
        rule(-1)


@pytest.mark.parametrize("rule", [fem.tetrahedron_rule, fem.triangle_rule])
def test_barycentric_coordinates_and_weights_sum_to_one(rule):
    for degree in range(8):
        points, weights = rule(degree)
        np.testing.assert_allclose(points.sum(axis=1), 1.0, atol=1e-15)
        assert weights.sum() == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("rule", [fem.tetrahedron_rule, fem.triangle_rule])
def test_a_rule_that_was_changed_is_not_given_again(rule):
    points, weights = rule(4)
    whole = points.copy(), weights.copy()
    weights *= 3.0
    points[:] = 0.0
    for again, before in zip(rule(4), whole, strict=True):
        np.testing.assert_array_equal(again, before)
