"""Rigid-body modes: the displacements of zero elastic energy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import host_array, message, require
from ensemble._keywords import explains_calls

__all__ = ["rigid_body_modes"]


@explains_calls("rigid_body_modes")
def rigid_body_modes(points: Any, *, center: Any = None) -> np.ndarray:
    """Return translations and infinitesimal rotations of a set of points: the near-nullspace of linear elasticity.

    Without fixed displacements, the modes are the nullspace of the
    stiffness matrix; aggregation that represents them converges independently of the number of unknowns [1]_.

    Parameters
    ----------
    points : array, shape (n, 3) or (n, 2), in m
    center : array, shape (3,) or (2,), in m, optional
        What rotations are about; by default the mean of the points. Over ranks, whose points are a part of all, give
        one that is the same on every rank.

    Returns
    -------
    array, shape (3 n, 6) or (2 n, 3)
        A mode per column, translations first; component c of node i is in row ``dim * i + c``.

    Raises
    ------
    ValueError
        If `points` or `center` has another shape, or numbers that are not finite.

    References
    ----------
    .. [1] Vanek, Mandel, Brezina (1996), Computing 56, 179-196.

    Examples
    --------
    >>> rigid_body_modes([[0.0, 0.0], [2.0, 0.0]])
    array([[ 1.,  0., -0.],
           [ 0.,  1., -1.],
           [ 1.,  0., -0.],
           [ 0.,  1.,  1.]])
    """
    name = "rigid_body_modes", "points"
    points = host_array(points, *name, "have shape (n, 2) or (n, 3)")
    if points.dtype.kind not in "biuf":
        raise TypeError(message(*name, "be real", f"dtype {points.dtype}"))
    fits = points.ndim == 2 and points.shape[1] in (2, 3)
    require(fits, *name, "have shape (n, 2) or (n, 3)", f"shape {points.shape}")
    require(bool(np.isfinite(points).all()), *name, "be finite", "NaN or infinity")
    n, dim = points.shape
    points = points.astype(np.float64)
    if center is None:
        center = points.mean(axis=0) if n else np.zeros(dim)
    center = host_array(center, "rigid_body_modes", "center", f"have shape ({dim},)")
    good = center.shape == (dim,) and center.dtype.kind in "biuf" and bool(np.isfinite(center).all())
    require(good, "rigid_body_modes", "center", f"be {dim} finite numbers", center)
    x = points - center
    modes = np.zeros((n, dim, 3 * (dim - 1)))
    modes[:, range(dim), range(dim)] = 1.0
    for column, (a, b) in enumerate([(0, 1)] if dim == 2 else [(1, 2), (2, 0), (0, 1)], start=dim):
        modes[:, a, column], modes[:, b, column] = -x[:, b], x[:, a]
    return modes.reshape(n * dim, 3 * (dim - 1))
