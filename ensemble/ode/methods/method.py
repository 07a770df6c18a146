"""What a method of integration is: a step as a function of scalars, and what its control needs to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ensemble.ode.system import System

__all__ = ["Method", "Step", "added", "cubic", "interpolated", "nothing_carried", "weighted"]


class Step(NamedTuple):
    """What one step gives; each value is a scalar of the system's namespace."""

    y: list[Any]
    """`n` new values."""
    carried: list[Any]
    """`n_carried` values for the next step."""
    error: list[Any] | None
    """`n` estimates of the local error of y, absolute; None: no estimate."""
    dense: list[list[Any]]
    """`n` lists of coefficients c_1, ..., c_d of one length: ``y(theta) = y_old + sum c_k theta**k``, with
    ``theta = (s - t) / h`` (``h_used`` in place of h, where it is given)."""
    h_used: Any = None
    """The step that a method which chooses its own step has taken: at most the given one, and of its sign. The next one
    is given what remains of the interval, or after a rejection at most four times this one. None: the given step."""
    error_3: list[Any] | None = None
    """A second estimate e_3 of DOP853: the norm of the error is ``|e|**2 / sqrt(|e|**2 + 0.01 |e_3|**2)`` with the
    norms | | of the step control. None: the norm is ``|e|``."""


def none(system: System) -> int:
    """The number of carried values of a method that has none."""
    return 0


def unchecked(system: System) -> None:
    """The check of a method that integrates every system."""


def no_values_checked(system: System, t: Any, y: Sequence[Any], p: Sequence[Any]) -> None:
    """The check of a method that needs no values for it."""


def nothing_carried(system: System, t: Any, y: Sequence[Any], p: Sequence[Any]) -> list[Any]:
    """The carried values of a method that has none."""
    return []


class Method(NamedTuple):
    """One method of integration."""

    name: str
    order: int
    """Of the solution that is kept."""
    error_order: int | None
    """The error estimate is of order ``h**error_order``; None: fixed steps only, or steps of its own choice."""
    step: Callable[[System, Any, Any, Sequence[Any], Sequence[Any], Sequence[Any]], Step]
    """``step(system, t, h, y, carried, p)``."""
    n_carried: Callable[[System], int] = none
    """How many values go from step to step besides t, h and y."""
    start: Callable[[System, Any, Sequence[Any], Sequence[Any]], list[Any]] = nothing_carried
    """``start(system, t, y, p)``: the carried values of the first step."""
    needs_graph: bool = False
    """Whether the step uses derivatives of the graph."""
    own_step: bool = False
    """Whether the method chooses the step (`Step.h_used`)."""
    check: Callable[[System], None] = unchecked
    """Raises ValueError for a system that the method cannot integrate; called once, before the first step."""
    check_values: Callable[[System, Any, Sequence[Any], Sequence[Any]], None] = no_values_checked
    """The same from values ``(system, t, y, p)`` at the start, where f cannot be traced."""

    @property
    def has_fixed_steps(self) -> bool:
        """Whether steps are those that the user gives."""
        return self.error_order is None and not self.own_step


def weighted(weights: Sequence[float], values: Sequence[Any]) -> Any:
    """``sum weights[k] values[k]`` from left to right, without the terms of weight zero; None where all are."""
    total: Any = None
    for weight, value in zip(weights, values, strict=True):
        if weight != 0.0:
            term = value if weight == 1.0 else weight * value
            total = term if total is None else total + term
    return total


def added(y: Sequence[Any], h: Any, slopes: Sequence[Any]) -> list[Any]:
    """``y + h slopes`` for each unknown."""
    return [a + h * b for a, b in zip(y, slopes, strict=True)]


def interpolated(old: Any, coefficients: Sequence[Any], theta: Any) -> Any:
    """The dense output of one unknown at a fraction of the step."""
    value = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        value = value * theta + c
    return value * theta + old


def cubic(old: Any, new: Any, h: Any, slope: Any, new_slope: Any) -> list[Any]:
    """Coefficients of theta, theta**2, theta**3 of the cubic through two values with their derivatives (Hermite)."""
    rise, start, end = new - old, h * slope, h * new_slope
    return [start, 3.0 * rise - 2.0 * start - end, start + end - 2.0 * rise]
