"""Symplectic methods of fixed steps for separable systems: leapfrog and its composition of order 4.

A system is separable where ``y = (q, v)`` of two halves has ``dq/dt = g(v)`` and ``dv/dt = a(t, q)``: the first half of
f depends on the second half of y alone, and the second half of f on the time and the first half of y.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ensemble._check import require
from ensemble._compile.trace.graph import Graph
from ensemble.ode.methods.method import Method, Step, added, cubic
from ensemble.ode.system import System

__all__ = ["LEAPFROG", "YOSHIDA4"]

OUTER = 1.0 / (2.0 - 2.0 ** (1.0 / 3.0))

YOSHIDA_WEIGHTS = (OUTER, 1.0 - 2.0 * OUTER, OUTER)
"""Parts of the step (Yoshida 1990, Physics Letters A 150, 262-268)."""

ADVICE = "y is (q, v) with dq/dt = g(v) and dv/dt = a(t, q); use another method for other systems."


def _half(system: System) -> int:
    return system.n // 2


def _force(system: System, t: Any, y: Sequence[Any], p: Sequence[Any]) -> list[Any]:
    """a(t, q), the second half of f."""
    return system.f(t, y, p)[_half(system) :]


def _check(system: System) -> None:
    """Whether the system is separable; of an f that cannot be traced, `_check_values` sees that."""
    m = _half(system)
    require(system.n % 2 == 0, "ode.solve", "y0", "have an even number of entries", system.n, ADVICE)
    try:
        read = _inputs_read(system.graph)
    except (TypeError, AttributeError):  # f cannot be traced
        return
    for i, places in enumerate(read):
        wrong = [k for k in sorted(places) if k <= system.n and (k <= m if i < m else k > m)]
        _refuse_unless(not wrong, i, "dt" if wrong[:1] == [0] else f"dy_{(wrong or [1])[0] - 1}")


def _inputs_read(graph: Graph) -> list[set[int]]:
    """The inputs that each output depends on, through conditions and steps too: a derivative does not see those."""
    read: list[set[int]] = []
    for node in graph.nodes:
        read.append({node.value} if node.operation == "input" else set[int]().union(*(read[i] for i in node.inputs)))
    return [read[k] for k in graph.outputs]


def _check_values(system: System, t: Any, y: Sequence[Any], p: Sequence[Any]) -> None:
    """Whether each half of f near the start is the same number for other values of what it must not depend on."""
    m, moved = _half(system), [v + 2.0**-10 * (abs(v) + 2.0**-10) for v in y]
    slopes = system.f(t, moved, p)
    others = system.f(t + 2.0**-10, [*y[:m], *moved[m:]], p)[:m] + system.f(t, [*moved[:m], *y[m:]], p)[m:]
    for i, (a, b) in enumerate(zip(slopes, others, strict=True)):
        same = (a == b) | (a != a) | (b != b)
        _refuse_unless(bool(system.xp.all(same)), i, f"d({'t, q' if i < m else 'v'})")


def _refuse_unless(separable: bool, i: int, variable: str) -> None:
    what = f"df_{i}/{variable} that is not zero"
    require(separable, "ode.solve", "f", "be separable for a symplectic method", what, ADVICE)


def _step(
    weights: Sequence[float], system: System, t: Any, h: Any, y: Sequence[Any], carried: Sequence[Any], p: Sequence[Any]
) -> Step:
    """Half a kick, a drift and half a kick for each part of the step: velocity Verlet (Verlet 1967).

    `carried` is the force at the start.
    """
    m = _half(system)
    q, v, force, time = list(y[:m]), list(y[m:]), list(carried), t
    for weight in weights:
        part = h if weight == 1.0 else weight * h
        v = added(v, 0.5 * part, force)
        q = added(q, part, system.f(time, [*q, *v], p)[:m])
        time = time + part
        force = _force(system, time, [*q, *v], p)
        v = added(v, 0.5 * part, force)
    new = [*q, *v]
    # the slopes at both ends serve the dense output alone
    slopes = [*system.f(t, y, p)[:m], *carried]
    new_slopes = [*system.f(t + h, new, p)[:m], *force]
    dense = [cubic(*values) for values in zip(y, new, [h] * system.n, slopes, new_slopes, strict=True)]
    return Step(new, force, None, dense)


def _leapfrog(system: System, t: Any, h: Any, y: Sequence[Any], carried: Sequence[Any], p: Sequence[Any]) -> Step:
    return _step((1.0,), system, t, h, y, carried, p)


def _yoshida4(system: System, t: Any, h: Any, y: Sequence[Any], carried: Sequence[Any], p: Sequence[Any]) -> Step:
    return _step(YOSHIDA_WEIGHTS, system, t, h, y, carried, p)


LEAPFROG = Method("leapfrog", 2, None, _leapfrog, _half, _force, check=_check, check_values=_check_values)

YOSHIDA4 = Method("yoshida4", 4, None, _yoshida4, _half, _force, check=_check, check_values=_check_values)
