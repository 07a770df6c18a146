"""Quadrature on the tetrahedron, against the integrals of monomials."""

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


def test_a_degree_is_no_negative_number():
    with pytest.raises(ValueError, match="degree"):
        fem.tetrahedron_rule(-1)


def test_barycentric_coordinates_and_weights_sum_to_one():
    for degree in range(8):
        points, weights = fem.tetrahedron_rule(degree)
        np.testing.assert_allclose(points.sum(axis=1), 1.0, atol=1e-15)
        assert weights.sum() == pytest.approx(1.0, abs=1e-14)
