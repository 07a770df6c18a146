"""The closed-form expansion against its integral equation, its symmetries, and published numbers."""

import itertools

import numpy as np
import pytest

from ensemble.apps.fem import exponential_covariance


@pytest.mark.parametrize("length", [0.01, 0.25, 1.0, 10.0])
def test_modes_solve_the_integral_equation(length):
    n_terms = 4
    expansion = exponential_covariance(n_terms, length, dimension=1)
    point = 0.3
    # The kernel has a kink at the point: a rule on either side is exact to round-off.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x = np.concatenate([0.5 * point * (nodes + 1.0), point + 0.5 * (1.0 - point) * (nodes + 1.0)])
    w = np.concatenate([0.5 * point * weights, 0.5 * (1.0 - point) * weights])
    left = (w * np.exp(-abs(x - point) / length)) @ expansion.modes_at(x[:, None])
    right = expansion.eigenvalues * expansion.modes_at(np.array([[point]]))[0]
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-13)


def test_modes_are_orthonormal():
    nodes, weights = np.polynomial.legendre.leggauss(16)
    axis, w = 0.5 * (nodes + 1.0), 0.5 * weights
    points = np.array(list(itertools.product(axis, repeat=3)))
    modes = exponential_covariance(6, 1.0).modes_at(points)
    gram = modes.T @ (np.kron(np.kron(w, w), w)[:, None] * modes)
    np.testing.assert_allclose(gram, np.eye(6), rtol=0, atol=1e-12)


def test_one_dimensional_numbers_of_the_benchmark():
    expansion = exponential_covariance(5, 1.0, dimension=1)
    eigenvalues = [0.7388108094, 0.1380037754, 0.0450884873, 0.0213289313, 0.0122789139]
    frequencies = [1.3065423742, 3.6731944063, 6.5846200426, 9.6316846357, 12.7232407841]
    np.testing.assert_allclose(expansion.eigenvalues, eigenvalues, rtol=0, atol=5e-11)
    np.testing.assert_allclose(expansion.frequencies, frequencies, rtol=0, atol=5e-11)


@pytest.mark.parametrize("length", [0.001, 0.25, 1.0, 100.0])
def test_frequencies_are_roots_to_round_off(length):
    w = exponential_covariance(20, length, dimension=1).frequencies
    even, odd = w[::2], w[1::2]
    # Both equations without the tangent, divided by their slope in u = w/2, give the distance to the root.
    slope = 1.0 + 2.0 * length * (1.0 + w / 2)
    assert np.all(abs(np.cos(even / 2) - length * even * np.sin(even / 2)) / slope[::2] < 1e-14 * (1.0 + even))
    assert np.all(abs(length * odd * np.cos(odd / 2) + np.sin(odd / 2)) / slope[1::2] < 1e-14 * (1.0 + odd))


def test_equal_eigenvalues_keep_the_first_index_fastest():
    indices = exponential_covariance(7, 1.0).indices.tolist()
    assert indices == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 0, 0], [0, 2, 0], [0, 0, 2]]


@pytest.mark.parametrize(
    "n_terms, length, expected",
    [
        (3, 0.25, [[0, 0, 0], [1, 0, 0], [0, 1, 0]]),
        (5, 1.0, [[0, 0, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 2]]),
    ],
)
def test_trilinos_order_is_the_recorded_one(n_terms, length, expected):
    expansion = exponential_covariance(n_terms, length, mode_order="trilinos")
    assert expansion.indices.tolist() == expected
    assert np.all(np.diff(expansion.eigenvalues) <= 0.0)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_terms_are_the_largest_of_all_products(dimension):
    n_terms, length = 17, 0.6
    one = exponential_covariance(n_terms, length, dimension=1).eigenvalues
    products = np.sort([np.prod(one[list(i)]) for i in itertools.product(range(n_terms), repeat=dimension)])[::-1]
    found = exponential_covariance(n_terms, length, dimension=dimension)
    np.testing.assert_allclose(found.eigenvalues, products[:n_terms], rtol=1e-14)
    assert len({tuple(index) for index in found.indices.tolist()}) == n_terms


@pytest.mark.parametrize(
    "arguments, options, error, text",
    [
        ((0, 1.0), {}, ValueError, "n_terms must be an integer of at least 1; got 0"),
        ((2.5, 1.0), {}, TypeError, "n_terms must be an integer"),
        ((3, 0.0), {}, ValueError, "correlation_length must be a finite number above zero; got 0.0"),
        ((3, np.nan), {}, ValueError, "correlation_length must be a finite number above zero; got nan"),
        ((3, 1.0), {"dimension": 0}, ValueError, "dimension must be an integer of at least 1"),
        ((3, 1.0), {"mode_order": "random"}, ValueError, "mode_order must be one of 'lexicographic', 'trilinos'"),
        ((4, 1.0), {"mode_order": "trilinos"}, ValueError, r"unless the order is recorded .* n_terms=4"),
        ((3, 0.25), {"mode_order": "trilinos", "dimension": 2}, ValueError, "dimension=2"),
    ],
)
def test_bad_arguments_are_named(arguments, options, error, text):
    with pytest.raises(error, match=text):
        exponential_covariance(*arguments, **options)


def test_points_of_the_wrong_dimension_are_refused():
    with pytest.raises(ValueError, match=r"points must have one row per point and 3 columns; got shape \(4, 2\)"):
        exponential_covariance(2, 1.0).modes_at(np.zeros((4, 2)))


@pytest.mark.parametrize(
    ("points", "error", "text"),
    [
        ([[0.5, 0.5, 1.1]], ValueError, "modes_at: points must lie in the unit cube; got 1 of 1 outside it"),
        ([[0.5, -0.1, 0.0], [0.0, 0.0, 0.0], [np.nan, 0.0, 0.0]], ValueError, "got 2 of 3 outside it"),
        (np.ma.masked_array([[0.5, 0.5, 0.5]], [[1, 0, 0]]), ValueError, "points must have no masked entries"),
        (np.full((1, 3), 0.5j), TypeError, "points must be real numbers; got dtype complex128"),
    ],
)
def test_points_outside_of_the_cube_are_refused(points, error, text):
    """The formulas go on there, but not as modes of the covariance."""
    with pytest.raises(error, match=text):
        exponential_covariance(2, 1.0).modes_at(points)


def test_points_on_the_rim_may_be_wrong_by_rounding():
    expansion = exponential_covariance(2, 1.0)
    corners = expansion.modes_at([[0.0, 1.0, 1.0]])
    np.testing.assert_allclose(expansion.modes_at([[-1e-15, 1.0 + 2e-16, 1.0]]), corners, rtol=1e-13)
