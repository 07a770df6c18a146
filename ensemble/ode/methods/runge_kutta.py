"""Explicit Runge-Kutta methods: Euler, the classical method of order 4, and a step from any tableau."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ensemble.ode.methods.method import Method, Step, added, cubic, weighted
from ensemble.ode.system import System

__all__ = ["EULER", "RK4", "Tableau", "explicit_method", "polynomial_output"]

Row = tuple[float, ...]


@dataclass(frozen=True)
class Tableau:
    """An explicit pair whose last stage is the derivative at the new point: it is the first stage of the next step.

    The new point is where stage `n_stages` is evaluated, so row ``a[n_stages - 1]`` is the weights b. Stages beyond it
    serve the dense output alone.
    """

    c: Row
    """Where in the step each stage is evaluated: ``t + c[i] h``."""
    a: tuple[Row, ...]
    """Weights of the stages before, in the point of each stage; an empty row for the first one."""
    error: Row
    """Weights b minus those of the embedded method: ``h sum_i error[i] k_i`` is the error estimate."""
    error_3: Row | None
    """The same of a second embedded method of order 3 (`dop853`); None where there is none."""
    dense: Callable[[Sequence[Any], Sequence[Any], Any, Sequence[Sequence[Any]]], list[list[Any]]]
    """``dense(y, new, h, stages)``: the coefficients of the dense output."""
    n_stages: int
    """How many stages lead to the new point, itself counted: 4 for the pair of Bogacki and Shampine."""


def polynomial_output(
    weights: Sequence[Row],
) -> Callable[[Sequence[Any], Sequence[Any], Any, Sequence[Sequence[Any]]], list[list[Any]]]:
    """Return the dense output ``y + h sum_i k_i sum_k weights[i][k] theta**(k + 1)``, theta from 0 to 1."""

    def dense(y: Sequence[Any], new: Sequence[Any], h: Any, stages: Sequence[Sequence[Any]]) -> list[list[Any]]:
        columns = [_combined(column, stages) for column in zip(*weights, strict=True)]
        return [[h * value for value in row] for row in zip(*columns, strict=True)]

    return dense


def hermite_output(y: Sequence[Any], new: Sequence[Any], h: Any, stages: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return the cubic through both points with their derivatives, the first and the last of the stages (`Tableau`)."""
    ends = zip(y, new, stages[0], stages[-1], strict=True)
    return [cubic(old, end, h, slope, new_slope) for old, end, slope, new_slope in ends]


def explicit_method(name: str, order: int, error_order: int, tableau: Tableau) -> Method:
    """Make a method of a tableau.

    `order` is that of the solution that is kept, b; the error estimate is of order ``h**error_order`` (`Method`).
    """

    def step(system: System, t: Any, h: Any, y: Sequence[Any], carried: Sequence[Any], p: Sequence[Any]) -> Step:
        return explicit_step(tableau, system, t, h, y, carried, p)

    return Method(name, order, error_order, step, _n, _derivative)


def _n(system: System) -> int:
    return system.n


def _derivative(system: System, t: Any, y: Sequence[Any], p: Sequence[Any]) -> list[Any]:
    return system.f(t, y, p)


def explicit_step(
    tableau: Tableau, system: System, t: Any, h: Any, y: Sequence[Any], carried: Sequence[Any], p: Sequence[Any]
) -> Step:
    """One step; `carried` is the derivative at its start."""
    stages = [list(carried)]
    new = list(y)
    for i in range(1, len(tableau.a)):
        point = added(y, h, _combined(tableau.a[i], stages[:i]))
        if i == tableau.n_stages - 1:
            new = point
        stages.append(system.f(t + tableau.c[i] * h if tableau.c[i] != 1.0 else t + h, point, p))
    main = stages[: tableau.n_stages]
    error = [h * e for e in _combined(tableau.error, main)]
    error_3 = None if tableau.error_3 is None else [h * e for e in _combined(tableau.error_3, main)]
    dense = tableau.dense(y, new, h, stages)
    return Step(new, stages[tableau.n_stages - 1], error, dense, error_3=error_3)


def _combined(weights: Sequence[float], stages: Sequence[Sequence[Any]]) -> list[Any]:
    """The weighted sum of the stages for each unknown."""
    return [weighted(weights[: len(stages)], values) for values in zip(*stages, strict=True)]


def _euler(system: System, t: Any, h: Any, y: Sequence[Any], carried: Sequence[Any], p: Sequence[Any]) -> Step:
    slopes = system.f(t, y, p)
    return Step(added(y, h, slopes), [], None, [[h * k] for k in slopes])


def _rk4(system: System, t: Any, h: Any, y: Sequence[Any], carried: Sequence[Any], p: Sequence[Any]) -> Step:
    """The classical method of order 4 (Kutta 1901).

    The derivative at the new point serves the dense output alone, the cubic Hermite polynomial of order 4 within the
    step: where no dense output is read, nothing needs it.
    """
    half, sixth = 0.5 * h, h * (1.0 / 6.0)
    middle = t + half
    k1 = system.f(t, y, p)
    k2 = system.f(middle, added(y, half, k1), p)
    k3 = system.f(middle, added(y, half, k2), p)
    k4 = system.f(t + h, added(y, h, k3), p)
    new = added(y, sixth, [a + 2.0 * (b + c) + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True)])
    k5 = system.f(t + h, new, p)
    return Step(new, [], None, hermite_output(y, new, h, [k1, k5]))


EULER = Method("euler", 1, None, _euler)

RK4 = Method("rk4", 4, None, _rk4)
