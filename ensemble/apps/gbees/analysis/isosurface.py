"""Surfaces of constant value in a dense three-dimensional grid, by marching tetrahedra."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ensemble import _check

__all__ = ["isosurface"]

# The six tetrahedra of a cube that share its diagonal, one for each order of the axes on a path from corner 0
# to corner 7: their faces match those of the neighbouring cubes. Corner 4 a + 2 b + c lies at (a, b, c).
TETRAHEDRA = np.array([[0, *np.cumsum([4 >> axis for axis in order])] for order in itertools.permutations(range(3))])

# Edges as pairs of a tetrahedron's corners that the surface cuts, by which corners are inside (bit k for corner k): a
# triangle where one is inside or outside, two triangles of a quadrilateral where two are.
CUTS: dict[int, list[list[tuple[int, int]]]] = {}
for inside in range(1, 15):
    ins = [k for k in range(4) if inside >> k & 1]
    outs = [k for k in range(4) if not inside >> k & 1]
    if len(ins) == 2:
        (a, b), (c, d) = ins, outs
        CUTS[inside] = [[(a, c), (a, d), (b, d)], [(a, c), (b, d), (b, c)]]
    else:
        CUTS[inside] = [[(i, o) for i in ins for o in outs]]


def isosurface(values: np.ndarray, level: float, coordinates: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """Triangles of the surface where the linearly interpolated `values` equal `level`.

    Outside the grid the value is taken to be zero, so that a surface at a level above zero is closed.

    Parameters
    ----------
    values : array, shape (a, b, c)
    level : float, above zero
    coordinates : three arrays, of lengths a, b, c, optional
        Coordinates of the values, equally spaced; by default 0, 1, 2, ...

    Returns
    -------
    ndarray of float64, shape (n_triangles, 3, 3)
        The corners of each triangle, ordered so that normals point to smaller values.

    Raises
    ------
    ValueError
        If `values` have another number of axes than three, or `level` is not above zero.

    References
    ----------
    .. [1] Doi, Koide (1991), An efficient method of triangulating equi-valued surfaces by using tetrahedral cells,
       IEICE Transactions E74, 214-224.
    """
    _check.require(np.ndim(values) == 3, "isosurface", "values", "have three axes", f"shape {np.shape(values)}")
    level = _check.positive(level, "isosurface", "level")
    padded = np.pad(np.asarray(values, dtype=np.float64), 1)
    shape = np.array(padded.shape)
    strides = np.array([shape[1] * shape[2], shape[2], 1])
    high = padded >= level
    count = np.zeros(tuple(shape - 1), dtype=np.int8)
    for a, b, c in itertools.product((0, 1), repeat=3):
        count += high[a : a + shape[0] - 1, b : b + shape[1] - 1, c : c + shape[2] - 1]
    cut = np.stack(np.nonzero((count > 0) & (count < 8)), axis=1)
    corner = np.array(list(itertools.product((0, 1), repeat=3))) @ strides
    cubes = (cut @ strides)[:, None] + corner
    points = np.concatenate([tetrahedron_triangles(cubes[:, four], padded.ravel(), level) for four in TETRAHEDRA])
    at = crossings(points, padded.ravel(), level, shape)
    spacing = np.ones(3)
    start = np.zeros(3)
    if coordinates is not None:
        for i, axis in enumerate(coordinates):
            wanted = int(shape[i]) - 2
            requirement = f"have {wanted} numbers on axis {i}"
            _check.require(len(axis) == wanted, "isosurface", "coordinates", requirement, len(axis))
            start[i] = axis[0]
            spacing[i] = (axis[-1] - axis[0]) / (len(axis) - 1) if len(axis) > 1 else 1.0
    return start + (at - 1.0) * spacing


def tetrahedron_triangles(corners: np.ndarray, values: np.ndarray, level: float) -> np.ndarray:
    """Pairs of flat indices, the first of each inside, shape (n_triangles, 3, 2), of tetrahedra (n, 4)."""
    inside = (values[corners] >= level) @ np.array([1, 2, 4, 8])
    found = [np.empty((0, 3, 2), dtype=np.int64)]
    for case, triangles in CUTS.items():
        chosen = corners[inside == case]
        found += [chosen[:, np.array(triangle)] for triangle in triangles]
    return np.concatenate(found)


def crossings(pairs: np.ndarray, values: np.ndarray, level: float, shape: np.ndarray) -> np.ndarray:
    """Where the level is crossed between each pair, in cells; triangles oriented by the slope along their edges."""
    ends = np.stack(np.unravel_index(pairs, tuple(shape)), axis=-1).astype(np.float64)
    v = values[pairs]
    share = (level - v[..., 0]) / (v[..., 1] - v[..., 0])
    at = ends[..., 0, :] + share[..., None] * (ends[..., 1, :] - ends[..., 0, :])
    normal = np.cross(at[:, 1] - at[:, 0], at[:, 2] - at[:, 0])
    outwards = np.sum(ends[..., 1, :] - ends[..., 0, :], axis=1)
    backwards = np.sum(normal * outwards, axis=1) < 0.0
    at[backwards] = at[backwards][:, ::-1]
    # Triangles are degenerate where a grid point lies on the level.
    return np.asarray(at[np.any(normal != 0.0, axis=1)])
