"""Rodas4: a Rosenbrock method of order 4 with an estimate of order 3, six stages, stiffly accurate, L-stable.

Numbers of RODAS in Hairer, Wanner, "Solving Ordinary Differential Equations II", 2nd edition (1996), section IV.7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ensemble.ode.methods.method import Method, Step, weighted
from ensemble.ode.methods.straight_line_lu import ShiftedFactors, elimination_order
from ensemble.ode.system import System

__all__ = ["RODAS4", "stages"]

GAMMA = 0.25

NODES = (0.0, 0.386, 0.21, 0.63, 1.0, 1.0)

A = (
    (),
    (1.544,),
    (0.9466785280815826, 0.2557011698983284),
    (3.314825187068521, 2.896124015972201, 0.9986419139977817),
    (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.6878860361058950),
    (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.6878860361058950, 1.0),
)
"""By stage: the weights of the earlier stages in its point."""

C = (
    (),
    (-5.6688,),
    (-2.430093356833875, -0.2063599157091915),
    (-0.1073529058151375, -9.594562251023355, -20.47028614809616),
    (7.496443313967647, -10.24680431464352, -33.99990352819905, 11.70890893206160),
    (8.083246795921522, -7.981132988064893, -31.52159432874371, 16.31930543123136, -6.058818238834054),
)
"""By stage: the weights of the earlier stages, over h, in its right-hand side."""

TIME = (0.25, -0.1043, 0.1035, -0.03620000000000023, 0.0, 0.0)
"""By stage: the weight of ``h df/dt``."""

DENSE = (
    (10.12623508344586, -7.487995877610167, -34.80091861555747, -7.992771707568823, 1.025137723295662),
    (-0.6762803392801253, 6.087714651680015, 16.43084320892478, 24.76722511418386, -6.594389125716872),
)
"""The weights of the first five stages in the two higher parts of the dense output."""


def stages(
    f: Callable[[float, Sequence[Any]], Sequence[Any]],
    solve: Callable[[Sequence[Any]], Sequence[Any]],
    slope: Sequence[Any],
    h: Any,
    y: Sequence[Any],
) -> Step:
    """One step from its parts.

    Parameters
    ----------
    f : callable
        ``f(c, y)`` at the time ``t + c h``.
    solve : callable
        Solves with the matrix ``I / (h GAMMA) - J``.
    slope : sequence of n values
        df/dt; None where it is zero.
    h : value
    y : sequence of n values
    """
    per_step, u, point = 1.0 / h, list[Sequence[Any]](), list(y)
    for stage in range(len(A)):
        if stage == len(A) - 1:
            point = [a + b for a, b in zip(point, u[-1], strict=True)]  # rows 4 and 5 of A share their weights
        elif stage:
            point = [a + weighted(A[stage], values) for a, values in zip(y, zip(*u, strict=True), strict=True)]
        right = list(f(NODES[stage], point))
        if stage:
            right = [b + per_step * weighted(C[stage], v) for b, v in zip(right, zip(*u, strict=True), strict=True)]
        if TIME[stage] != 0.0:
            right = [b if s is None else b + (TIME[stage] * h) * s for b, s in zip(right, slope, strict=True)]
        u.append(solve(right))
    new = [a + b for a, b in zip(point, u[-1], strict=True)]
    return Step(new, [], list(u[-1]), _dense(y, new, u))


def _dense(y: Sequence[Any], new: Sequence[Any], u: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """``(1 - x) y + x (y_new + (1 - x) (third + x fourth))``, of order 3."""
    rows = []
    for old, value, parts in zip(y, new, zip(*u[:-1], strict=True), strict=True):
        third, fourth = (weighted(row, parts) for row in DENSE)
        rows.append([value - old + third, fourth - third, -fourth])
    return rows


def _step(system: System, t: Any, h: Any, y: Sequence[Any], carried: Sequence[Any], p: Sequence[Any]) -> Step:
    order = elimination_order(system.jacobian_pattern(), system.n)
    xp = system.xp if system.has_unbounded_slopes() else None
    factors = ShiftedFactors((1.0 / GAMMA) * (1.0 / h), system.jacobian(t, y, p), order, xp)

    def f(c: float, point: Sequence[Any]) -> list[Any]:
        return system.f(t if c == 0.0 else t + h if c == 1.0 else t + c * h, point, p)

    return stages(f, factors.solve, system.time_derivative(t, y, p), h, y)


RODAS4 = Method("rodas4", 4, 4, _step, needs_graph=True)
