"""The Taylor series method: coefficients from the graph of f, order from the tolerance, steps from the coefficients.

Order and step follow Jorba, Zou (2005), Experimental Mathematics 14, 99-117, section 3.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

from ensemble._typing import Namespace
from ensemble.ode.methods.inverse_root import inverse_root
from ensemble.ode.methods.method import Method, Step
from ensemble.ode.system import System

__all__ = ["taylor_method"]

SMALLEST_ORDER, LARGEST_ORDER = 4, 40

INSIDE = tuple(sorted((k + 1) * 0.6180339887498949 % 1.0 for k in range(12)))
"""Places in a step, of no common period, at which the defect is looked at where f may jump or bend."""

LEAST_RATIO = {"float64": 1e-300, "float32": 1e-36}
"""Of a coefficient to the tolerance: coefficient j of a system of time scale T falls as 1 / T**j."""


def taylor_method(rtol: float, atol: float) -> Method:
    """The method for tolerances that are known numbers.

    The order is the smallest p >= 1 - log(rtol) / 2: with the step ``rho / e**2`` of a radius of convergence rho, the
    terms of a series fall by e**2 each, and the one of order p - 1 is `rtol` times the first. The step is

        h = exp(-0.7 / (p - 1)) min over j = p - 1, p of (T / |x_j|)**(1 / j),    T = atol + rtol |y|,

    in the maximum norm: it equals that of the paper where `atol` is zero. It depends on two coefficients alone, so
    `Step.error` is an estimate of another kind: ``h / (p + 1)`` times the defect of the polynomial at the end of the
    step. A step whose coefficients happen to vanish is seen by it; where it is not read, it is not computed. Where f
    may jump or bend, it is the largest of those at the end and at `INSIDE`: a polynomial does not show what is ahead.
    So it is in a step that begins where f has a value and no series, as a root at zero.

    Parameters
    ----------
    rtol, atol : float
        Above zero, and zero or above.
    """
    order = min(max(math.ceil(1.0 - 0.5 * math.log(rtol)), SMALLEST_ORDER), LARGEST_ORDER)

    def step(system: System, t: Any, h: Any, y: Sequence[Any], carried: Sequence[Any], p: Sequence[Any]) -> Step:
        return _step(order, rtol, atol, system, t, h, y, p)

    return Method("taylor", order, None, step, needs_graph=True, own_step=True)


def _step(
    order: int, rtol: float, atol: float, system: System, t: Any, h_max: Any, y: Sequence[Any], p: Sequence[Any]
) -> Step:
    series, slopes_of, steep = system.taylor(t, y, p, order)
    if steep:
        series, slopes_of = _finite_part(series, slopes_of, order, system.xp)
    h = _step_size(system, series, order, rtol, atol, h_max)
    h = h if h is h_max else system.xp.where(h == h_max, h, (t + h) - t)  # a difference of two times
    new = [_horner(row, h) for row in series]
    slopes = [_horner(row, h) for row in slopes_of]
    part = h * (1.0 / (order + 1))
    error = [part * (a - b) for a, b in zip(slopes, system.f(t + h, new, p), strict=True)]

    def defects(theta: float) -> list[Any]:
        point = theta * h
        slopes = [_horner(row, point) for row in slopes_of]
        f = system.f(t + point, [_horner(row, point) for row in series], p)
        return [part * (a - b) for a, b in zip(slopes, f, strict=True)]

    if system.may_jump():
        for theta in INSIDE:
            error = [system.xp.maximum(abs(e), abs(d)) for e, d in zip(error, defects(theta), strict=True)]
    elif steep:
        singular = functools.reduce(operator.or_, (abs(factor) == math.inf for factor in steep))
        largest = _norm([d for theta in INSIDE[1::3] for d in defects(theta)], system.xp)
        largest = getattr(system.xp, "seldom", system.xp.where)(singular, largest, system.xp.zeros_like(largest))
        error = [system.xp.maximum(abs(e), largest) for e in error]
    powers = [h]
    for _ in range(order - 1):
        powers.append(powers[-1] * h)
    dense = [[0.0 * h if c is None else c * power for c, power in zip(row[1:], powers, strict=True)] for row in series]
    return Step(new, [], error, dense, h_used=h)


Rows = list[list[Any]]


def _finite_part(series: Rows, slopes_of: Rows, order: int, xp: Namespace) -> tuple[Rows, Rows]:
    """The series without all coefficients from the first one that is not finite.

    A root of zero has a value, and no series: what is left of it is a polynomial that a short step can follow.
    """
    whole: Any = None
    rows, slopes = [[*row[:2]] for row in series], [[row[0]] for row in slopes_of]
    for k in range(2, order + 1):
        for value in (row[k] for row in series if not _is_known(row[k])):
            whole = xp.isfinite(value) if whole is None else whole & xp.isfinite(value)
        for made, given, at in ((rows, series, k), (slopes, slopes_of, k - 1)):
            for row, old in zip(made, given, strict=True):
                c = old[at]
                row.append(c if whole is None or _is_known(c) else xp.where(whole, c, xp.zeros_like(c)))
    return rows, slopes


def _is_known(c: Any) -> bool:
    """Whether a coefficient is zero or a number for all values."""
    return c is None or type(c) is float


def _horner(coefficients: Sequence[Any], h: Any) -> Any:
    """``sum coefficients[k] h**k`` from the last to the first."""
    total: Any = None
    for c in reversed(coefficients):
        if total is not None:
            total = total * h if c is None else total * h + c
        else:
            total = c
    return 0.0 * h if total is None else total


def _norm(values: Sequence[Any], xp: Namespace) -> Any:
    """The maximum norm; None where all values are known to be zero."""
    largest: Any = None
    for value in values:
        if value is not None:
            size = abs(value)
            largest = size if largest is None else xp.maximum(largest, size)
    return largest


def _step_size(system: System, series: Sequence[Sequence[Any]], order: int, rtol: Any, atol: Any, h_max: Any) -> Any:
    """The step: no longer than `h_max`, and of its sign. Tolerances of the system go before those of the method."""
    xp = system.xp
    if system.tolerances is not None:
        rtol, absolute = system.tolerances
        atol = absolute[0]
        for value in absolute[1:]:
            atol = atol if value is atol else xp.minimum(atol, value)
    tolerance = _norm([row[0] for row in series], xp) * rtol + atol
    sizes = []
    for j in (order - 1, order):
        norm = _norm([row[j] for row in series], xp)
        if norm is not None:
            ratio = xp.maximum(norm / tolerance, xp.full_like(norm, LEAST_RATIO[system.dtype]))
            sizes.append(inverse_root(ratio, j, xp))
    if not sizes:  # a polynomial of lower degree
        return h_max
    size = (sizes[0] if len(sizes) == 1 else xp.minimum(*sizes)) * math.exp(-0.7 / (order - 1))
    return xp.copysign(xp.minimum(xp.abs(h_max), size), h_max)
