"""Drifts of the restricted three-body and the two-body problem; the Jacobi constant; a measurement function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ensemble._typing import Array, Namespace
from ensemble.apps.gbees.problem import Drift

__all__ = ["cr3bp", "jacobi_constant", "pcr3bp", "range_angle_rate", "two_body"]

SATURN_ENCELADUS = 1.901109735892602e-07
EARTH_MOON = 1.21505844691978e-02
"""Mass ratio: the smaller body over both."""


def _attraction(x: Sequence[Array], n: int, xp: Namespace, mu: Array) -> tuple[Array, Array, Array, Array]:
    """x minus the position of each body, and mass over cubed distance of each; larger body first."""
    to_large, to_small = x[0] + mu, x[0] - (1.0 - mu)
    across = sum((x[i] * x[i] for i in range(2, n)), x[1] * x[1])
    large, small = to_large * to_large + across, to_small * to_small + across
    return to_large, to_small, (1.0 - mu) / (large * xp.sqrt(large)), mu / (small * xp.sqrt(small))


def _pcr3bp(x: Sequence[Array], t: Array, xp: Namespace, mu: Array) -> Sequence[Array]:
    to_large, to_small, large, small = _attraction(x, 2, xp, mu)
    return (
        x[2],
        x[3],
        2.0 * x[3] + x[0] - large * to_large - small * to_small,
        -2.0 * x[2] + x[1] - (large + small) * x[1],
    )


def _cr3bp(x: Sequence[Array], t: Array, xp: Namespace, mu: Array) -> Sequence[Array]:
    to_large, to_small, large, small = _attraction(x, 3, xp, mu)
    return (
        x[3],
        x[4],
        x[5],
        2.0 * x[4] + x[0] - large * to_large - small * to_small,
        -2.0 * x[3] + x[1] - (large + small) * x[1],
        -(large + small) * x[2],
    )


def _two_body(x: Sequence[Array], t: Array, xp: Namespace, mu: Array) -> Sequence[Array]:
    return 0.0 * x[0], mu * mu / (x[0] * x[0] * x[0])


def pcr3bp(mu: Array = SATURN_ENCELADUS) -> Drift:
    """Return the planar circular restricted three-body problem, in the frame that rotates with the bodies.

    State (x, y, x', y'). The unit of length is the distance of the bodies, that of time their period over 2 pi. The
    larger body is at x = -mu, the smaller at x = 1 - mu.

    Parameters
    ----------
    mu : float or Ensemble, shape ()
        Mass of the smaller body over the mass of both; by default Saturn and Enceladus.

    Returns
    -------
    Drift

    References
    ----------
    .. [1] Szebehely (1967), Theory of Orbits, section 1.5.

    Examples
    --------
    The vertex of the equilateral triangle over the bodies is an equilibrium:

    >>> import numpy as np
    >>> f = pcr3bp(0.1)((0.5 - 0.1, np.sqrt(0.75), 0.0, 0.0), 0.0, np)
    >>> bool(np.all(np.abs(f) < 1e-15))
    True
    """
    return Drift(_pcr3bp, (mu,), ("mu",))


def cr3bp(mu: Array = EARTH_MOON) -> Drift:
    """Return the circular restricted three-body problem in space.

    State (x, y, z, x', y', z'); units and positions of the bodies as for `pcr3bp`.

    Parameters
    ----------
    mu : float or Ensemble, shape ()
        Mass of the smaller body over the mass of both; by default Earth and Moon.

    Returns
    -------
    Drift
    """
    return Drift(_cr3bp, (mu,), ("mu",))


def two_body(mu: Array = 19.910350621818949) -> Drift:
    """Return the two-body problem in two Delaunay elements: constant L, mean anomaly l of rate ``mu^2 / L^3``.

    State (L, l): ``L = sqrt(mu a)`` with the semi-major axis a, l in rad.

    Parameters
    ----------
    mu : float or Ensemble, shape ()
        Gravitational parameter; by default the Earth's in Earth radii^3 / h^2, so that L is in Earth radii^2 / h.

    Returns
    -------
    Drift
    """
    return Drift(_two_body, (mu,), ("mu",))


def jacobi_constant(mu: float) -> Callable[[Sequence[Array], Namespace], Array]:
    """Return the Jacobi constant of the restricted three-body problem as `bounds` of `Gbees`; planar or in space.

    ``x^2 + y^2 + 2 (1 - mu) / r1 + 2 mu / r2 + mu (1 - mu) - |v|^2``.

    Parameters
    ----------
    mu : float

    Returns
    -------
    callable
        ``bounds(x, xp)`` of 4 or 6 state scalars.
    """

    def bounds(x: Sequence[Array], xp: Namespace) -> Any:
        n = len(x) // 2
        across = sum((x[i] * x[i] for i in range(2, n)), x[1] * x[1])
        to_large, to_small = x[0] + mu, x[0] - (1.0 - mu)
        large, small = xp.sqrt(to_large * to_large + across), xp.sqrt(to_small * to_small + across)
        speed = sum((x[i] * x[i] for i in range(n + 1, 2 * n)), x[n] * x[n])
        potential = 2.0 * (1.0 - mu) / large + 2.0 * mu / small + mu * (1.0 - mu)
        return x[0] * x[0] + x[1] * x[1] + potential - speed

    return bounds


def range_angle_rate(mu: float, branch: float = 0.0) -> Callable[[Sequence[Array], Namespace], Sequence[Array]]:
    """Return range, angle and range rate from the smaller body, of a state of `pcr3bp`.

    Parameters
    ----------
    mu : float
    branch : float, rad
        Angles are within pi of it. Set it to the measured angle: innovations then need no wrapping.

    Returns
    -------
    callable
        ``h(x, xp)``: range in units of length; angle from the line through the bodies in rad; rate in units of speed.
    """
    cosine, sine = math.cos(branch), math.sin(branch)

    def h(x: Sequence[Array], xp: Namespace) -> Sequence[Array]:
        ahead = x[0] - (1.0 - mu)
        distance = xp.sqrt(ahead * ahead + x[1] * x[1])
        angle = branch + xp.atan2(x[1] * cosine - ahead * sine, ahead * cosine + x[1] * sine)
        return distance, angle, (ahead * x[2] + x[1] * x[3]) / distance

    return h
