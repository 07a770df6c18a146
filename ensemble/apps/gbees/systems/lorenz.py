"""The Lorenz systems as drifts."""

from __future__ import annotations

from collections.abc import Sequence

from ensemble._typing import Array, Namespace
from ensemble.apps.gbees.problem import Drift

__all__ = ["lorenz63", "lorenz96"]


def _lorenz63(x: Sequence[Array], t: Array, xp: Namespace, sigma: Array, b: Array, r: Array) -> Sequence[Array]:
    # x3 is Lorenz's Z - r - sigma: the origin is the mean of the two outer fixed points for sigma = 4, b = 1.
    return sigma * (x[1] - x[0]), -x[1] - x[0] * x[2], -b * x[2] + x[0] * x[1] - b * r


def _lorenz96(x: Sequence[Array], t: Array, xp: Namespace, F: Array) -> Sequence[Array]:
    n = len(x)
    return [(x[(j + 1) % n] - x[j - 2]) * x[j - 1] - x[j] + F for j in range(n)]


lorenz63 = Drift(_lorenz63, (4.0, 1.0, 48.0), ("sigma", "b", "r"))
"""Lorenz's system of 1963 in the coordinates of Bewley and Sharma (2012), with sigma = 4, b = 1, r = 48.

``x1' = sigma (x2 - x1)``, ``x2' = -x2 - x1 x3``, ``x3' = -b x3 + x1 x2 - b r``; dimensionless. Other parameters:
``lorenz63.with_parameters(r=28.0)``; a parameter may be an Ensemble.
"""


def lorenz96(F: Array = 4.0) -> Drift:
    """Return Lorenz's system of 1996 in four or more dimensions.

    ``xj' = (x[j+1] - x[j-2]) x[j-1] - x[j] + F``, cyclic in j; dimensionless.

    Parameters
    ----------
    F : float or Ensemble, shape ()
        The forcing.

    Returns
    -------
    Drift

    Examples
    --------
    >>> lorenz96(8.0)((8.0, 8.0, 8.0, 8.0), 0.0, None)
    [0.0, 0.0, 0.0, 0.0]
    """
    return Drift(_lorenz96, (F,), ("F",))
