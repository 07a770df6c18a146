"""The trilinear hexahedron on a rectilinear cell: every integral as a fixed table times edge lengths.

Corner b of a cell, and Gauss point q, count with x fastest: bit 0 is x, bit 1 is y, bit 2 is z. The rule is 2 x 2 x 2
Gauss, exact for cubics in each direction. On a cell with edges h_x, h_y, h_z and volume V

    integral of kappa grad(phi_a) . grad(phi_b) = sum over d, q of V / h_d^2 * STIFFNESS[d, a, b, q] * kappa_q
    integral of m phi_a phi_b                   = sum over q    of V         * MASS[a, b, q] * m_q
    integral of phi_a d(phi_b)/dx_d             =                  V / h_d   * ADVECTION[d, a, b]

so that a cell's geometry is three numbers, the same for all samples.
"""

from __future__ import annotations

import numpy as np

__all__ = ["ADVECTION", "GAUSS", "MASS", "SHAPE", "STIFFNESS"]

GAUSS = np.array([0.5 - np.sqrt(1.0 / 12.0), 0.5 + np.sqrt(1.0 / 12.0)])
"""The two Gauss points of [0, 1]; each has weight 1/2."""

WEIGHT = 1.0 / 8.0
"""The weight of each of the eight Gauss points of the unit cube."""


def _over_corners(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Products of three tables (point, corner) of one direction each: (8 points, 8 corners)."""
    products: np.ndarray = np.einsum("zc,yb,xa->zyxcba", z, y, x)
    return products.reshape(8, 8)


_VALUE = np.stack([1.0 - GAUSS, GAUSS], axis=1)
_SLOPE = np.array([[-1.0, 1.0], [-1.0, 1.0]])

SHAPE = _over_corners(_VALUE, _VALUE, _VALUE)
"""phi_b at Gauss point q: ``SHAPE[q, b]``."""

_GRADIENT = np.stack(
    [
        _over_corners(_SLOPE, _VALUE, _VALUE),
        _over_corners(_VALUE, _SLOPE, _VALUE),
        _over_corners(_VALUE, _VALUE, _SLOPE),
    ]
)

STIFFNESS = WEIGHT * np.einsum("dqa,dqb->dabq", _GRADIENT, _GRADIENT)
MASS = WEIGHT * np.einsum("qa,qb->abq", SHAPE, SHAPE)
ADVECTION = WEIGHT * np.einsum("qa,dqb->dab", SHAPE, _GRADIENT)
