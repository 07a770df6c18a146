"""Drifts of two oscillators: the forced Duffing oscillator and the Aizawa attractor."""

from __future__ import annotations

from collections.abc import Sequence

from ensemble._typing import Array, Namespace
from ensemble.apps.gbees.problem import Drift

__all__ = ["aizawa", "duffing"]


def _duffing(
    x: Sequence[Array], t: Array, xp: Namespace, damping: Array, amplitude: Array, frequency: Array
) -> Sequence[Array]:
    return x[1], x[0] - x[0] * x[0] * x[0] - damping * x[1] + amplitude * xp.cos(frequency * t)


def _aizawa(
    x: Sequence[Array], t: Array, xp: Namespace, a: Array, b: Array, c: Array, d: Array, f: Array
) -> Sequence[Array]:
    cubes = x[0] * x[0] * x[0], x[2] * x[2] * x[2]
    return (
        (x[2] - b) * x[0] - d * x[1],
        d * x[0] + (x[2] - b) * x[1],
        c + a * x[2] - cubes[1] / 3.0 - x[0] * x[0] + f * x[2] * cubes[0],
    )


duffing = Drift(_duffing, (0.35, 0.3, 1.0), ("damping", "amplitude", "frequency"))
"""The forced double-well Duffing oscillator.

``x1' = x2``, ``x2' = x1 - x1^3 - damping x2 + amplitude cos(frequency t)``; dimensionless. The drift
depends on t: `Gbees` needs ``time_varying=True``.
"""

aizawa = Drift(_aizawa, (0.95, 0.7, 0.6, 3.5, 0.1), ("a", "b", "c", "d", "f"))
"""The Aizawa attractor as in the public GBEES programs: x1^2 in place of (x1^2 + x2^2)(1 + e x3).

``x1' = (x3 - b) x1 - d x2``, ``x2' = d x1 + (x3 - b) x2``, ``x3' = c + a x3 - x3^3 / 3 - x1^2 + f x3 x1^3``;
dimensionless.
"""
