"""Quadrature rules on the tetrahedron, in barycentric coordinates."""

from __future__ import annotations

import functools
import itertools

import numpy as np

from ensemble import _check

__all__ = ["tetrahedron_rule"]


@functools.cache
def tetrahedron_rule(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights that integrate polynomials of `degree` exactly over a tetrahedron.

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
    return _conical(degree)


def _permutations(large: float, small: float, count: int) -> np.ndarray:
    """All points with `count` coordinates `large` and the others `small`."""
    places = itertools.combinations(range(4), count)
    return np.array([[large if i in chosen else small for i in range(4)] for chosen in places])


def _conical(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Jacobi rules for the weights (1-x)^2, 1-x and 1 along the axes of a cube that is mapped to the simplex."""
    from scipy.special import roots_jacobi

    n = degree // 2 + 1
    rules = [roots_jacobi(n, alpha, 0.0) for alpha in (2.0, 1.0, 0.0)]
    (a, wa), (b, wb), (c, wc) = [((1.0 + x) / 2.0, w / w.sum()) for x, w in rules]
    x, y, z = (u.reshape(-1) for u in np.meshgrid(a, b, c, indexing="ij"))
    weights = np.einsum("i,j,k->ijk", wa, wb, wc).reshape(-1)
    y, z = y * (1.0 - x), z * (1.0 - x) * (1.0 - y)
    return np.stack([1.0 - x - y - z, x, y, z], axis=1), weights
