"""Quadrature rules on the tetrahedron and on the triangle, in barycentric coordinates."""

from __future__ import annotations

import functools
import itertools

import numpy as np

from ensemble import _check

__all__ = ["tetrahedron_rule", "triangle_rule"]


def tetrahedron_rule(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points and weights that integrate polynomials of `degree` exactly over a tetrahedron.

    Parameters
    ----------
    degree : int, at least 0
        1 point up to degree 1, 4 points for 2, Keast's 11 points [1]_ for 3 and 4 (the weight of the centroid is
        negative), ``ceil((degree + 1) / 2) ** 3`` points of a conical product rule [2]_ above.

    Returns
    -------
    points : array, shape (n, 4)
        Barycentric coordinates.
    weights : array, shape (n,)
        Their sum is 1: multiply by the volume.

    Raises
    ------
    ValueError
        If `degree` is negative.

    References
    ----------
    .. [1] Keast (1986), Comput. Methods Appl. Mech. Eng. 55, 339-348.
    .. [2] Stroud (1971), Approximate Calculation of Multiple Integrals, section 2.4.

    Examples
    --------
    >>> points, weights = tetrahedron_rule(4)
    >>> len(weights), float(weights.sum().round(12))
    (11, 1.0)
    """
    degree = _check.integer(degree, "tetrahedron_rule", "degree", minimum=0)
    points, weights = _on_tetrahedron(degree)
    return points.copy(), weights.copy()


def triangle_rule(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points and weights that integrate polynomials of `degree` exactly over a triangle.

    Parameters
    ----------
    degree : int, at least 0
        1 point up to degree 1, 3 points for 2, Dunavant's 6 points [1]_ for 3 and 4 and 7 points for 5,
        ``ceil((degree + 1) / 2) ** 2`` points of a conical product rule [2]_ above.

    Returns
    -------
    points : array, shape (n, 3)
        Barycentric coordinates.
    weights : array, shape (n,)
        Their sum is 1: multiply by the area.

    Raises
    ------
    ValueError
        If `degree` is negative.

    References
    ----------
    .. [1] Dunavant (1985), Int. J. Numer. Methods Eng. 21, 1129-1148.
    .. [2] Stroud (1971), Approximate Calculation of Multiple Integrals, section 2.4.

    Examples
    --------
    >>> points, weights = triangle_rule(4)
    >>> len(weights), float(weights.sum().round(12))
    (6, 1.0)
    """
    degree = _check.integer(degree, "triangle_rule", "degree", minimum=0)
    points, weights = _on_triangle(degree)
    return points.copy(), weights.copy()


@functools.cache
def _on_tetrahedron(degree: int) -> tuple[np.ndarray, np.ndarray]:
    if degree <= 1:
        return np.full((1, 4), 0.25), np.ones(1)
    if degree == 2:
        far = (5.0 + 3.0 * np.sqrt(5.0)) / 20.0
        return _permutations(far, (1.0 - far) / 3.0, 1), np.full(4, 0.25)
    if degree <= 4:
        near = (1.0 + np.sqrt(5.0 / 14.0)) / 4.0
        points = [np.full((1, 4), 0.25), _permutations(11 / 14, 1 / 14, 1), _permutations(near, 0.5 - near, 2)]
        weights = np.repeat([-74 / 5625, 343 / 45000, 28 / 1125], [1, 4, 6]) * 6.0
        return np.concatenate(points), weights
    return _conical(degree, 3)


@functools.cache
def _on_triangle(degree: int) -> tuple[np.ndarray, np.ndarray]:
    if degree <= 1:
        return np.full((1, 3), 1.0 / 3.0), np.ones(1)
    if degree == 2:
        return _permutations(2.0 / 3.0, 1.0 / 6.0, 1, 3), np.full(3, 1.0 / 3.0)
    if degree <= 4:
        ten = np.sqrt(10.0)
        part, share = np.sqrt(38.0 - 44.0 * np.sqrt(0.4)), np.sqrt(213125.0 - 53320.0 * ten) / 3720.0
        near = [(8.0 - ten + sign * part) / 18.0 for sign in (1.0, -1.0)]
        points = np.concatenate([_permutations(1.0 - 2.0 * small, small, 1, 3) for small in near])
        return points, np.repeat([1.0 / 6.0 + share, 1.0 / 6.0 - share], 3)
    if degree == 5:
        root = np.sqrt(15.0)
        near = [(6.0 + sign * root) / 21.0 for sign in (1.0, -1.0)]
        around = [_permutations(1.0 - 2.0 * small, small, 1, 3) for small in near]
        weights = np.repeat([0.225, (155.0 + root) / 1200.0, (155.0 - root) / 1200.0], [1, 3, 3])
        return np.concatenate([np.full((1, 3), 1.0 / 3.0), *around]), weights
    return _conical(degree, 2)


def _permutations(large: float, small: float, count: int, n: int = 4) -> np.ndarray:
    """All points of `n` coordinates of which `count` are `large` and the others `small`."""
    places = itertools.combinations(range(n), count)
    return np.array([[large if i in chosen else small for i in range(n)] for chosen in places])


def _conical(degree: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Jacobi rules along the axes of a cube that is mapped to the simplex: weights (1-x)^(dim-1), ..., 1-x, 1."""
    from scipy.special import roots_jacobi

    n = degree // 2 + 1
    rules = [roots_jacobi(n, float(alpha), 0.0) for alpha in range(dim - 1, -1, -1)]
    axes = np.meshgrid(*((1.0 + x) / 2.0 for x, _ in rules), indexing="ij")
    weights = functools.reduce(np.multiply.outer, [w / w.sum() for _, w in rules]).reshape(-1)
    rest, points = np.ones(n**dim), []
    for axis in axes:
        points.append(axis.reshape(-1) * rest)
        rest = rest * (1.0 - axis.reshape(-1))
    return np.stack([1.0 - sum(points), *points], axis=1), weights
