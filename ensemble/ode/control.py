"""Bodies of the loops over steps: a step of a method, step control and bookkeeping, as functions of scalars.

A body takes rows, one number per sample each, and returns rows. `Rows` names them. The same body is traced for the
compiled loops and called with arrays where a right-hand side cannot be traced. Finished samples keep their values.

Step control is that of Hairer, Norsett, Wanner (1993), Solving Ordinary Differential Equations I, section II.4.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ensemble._typing import Namespace
from ensemble.ode.methods.inverse_root import inverse_root
from ensemble.ode.methods.method import Method, Step, interpolated
from ensemble.ode.system import System

__all__ = ["IDLE", "LEAST_SPACINGS", "RUNNING", "Rows", "advance", "rows_of", "start"]

IDLE, RUNNING, FINISHED, STEP_TOO_SMALL, TOO_MANY_STEPS = -1.0, 0.0, 1.0, 2.0, 3.0
"""States of a lane or thread."""

SAFETY, LEAST_FACTOR, LARGEST_FACTOR = 0.9, 0.2, 10.0
"""Of a new step over the old one."""

INSIDE = (0.25, 0.5, 0.75)
"""Places in a step that the method chose itself where events are looked at: such steps may be as long as the run."""

MOST_PARTS = 1024
"""Of the run: shorter steps are taken as they are, whatever events do within them."""

LEAST_SPACINGS = 10.0
"""Of a step in spacings of floating-point numbers around t, at least: a shorter one that is rejected ends the run."""

STRETCH = 1.01
"""A last step may be longer by this factor, up to the longest, so that no short one is left."""


class Rows(NamedTuple):
    """Offsets of the rows of one problem; `carried`, `inputs` and `size` are counts."""

    t: int
    y: int
    h: int
    carried_values: int
    n_steps: int
    n_rejected: int
    rejected: int
    status: int
    events: int
    n_carried: int
    t0: int
    t1: int
    direction: int
    rtol: int
    atol: int
    longest: int
    max_steps: int
    t_out: int
    p: int
    n_inputs: int
    output: int
    """The first row behind the inputs: t_old, h_used, y_old, dense coefficients, event functions before the step."""
    size: int


def rows_of(method: Method, system: System, n_atol: int, n_events: int, degree: int) -> Rows:
    """The rows of a problem whose dense output has `degree`."""
    n, places, at = system.n, {}, 0
    carried = {"t": 1, "y": n, "h": 1, "carried_values": method.n_carried(system), "n_steps": 1, "n_rejected": 1,
               "rejected": 1, "status": 1, "events": n_events}  # fmt: skip
    given = {"t0": 1, "t1": 1, "direction": 1, "rtol": 1, "atol": n_atol, "longest": 1, "max_steps": 1, "t_out": 1,
             "p": system.n_parameters}  # fmt: skip
    for name, count in (carried | given).items():
        places[name] = at
        at += count
    return Rows(**places, n_carried=places["t0"], n_inputs=at, output=at, size=at + 2 + n + n * degree + n_events)


class State:
    """The rows of a body by name."""

    def __init__(self, values: Sequence[Any], rows: Rows, n: int, n_parameters: int) -> None:
        self.values, self.rows, self.n, self.n_parameters = values, rows, n, n_parameters

    def __getattr__(self, name: str) -> Any:
        return self.values[getattr(self.rows, name)]

    @property
    def y(self) -> list[Any]:
        """The unknowns."""
        return list(self.values[self.rows.y : self.rows.y + self.n])

    @property
    def p(self) -> list[Any]:
        """The parameters."""
        return list(self.values[self.rows.p : self.rows.p + self.n_parameters])

    @property
    def carried_values(self) -> list[Any]:
        """Return the rows that the method carries from step to step, beside t, h and y."""
        return list(self.values[self.rows.carried_values : self.rows.n_steps])

    @property
    def events(self) -> list[Any]:
        """The event functions at t."""
        return list(self.values[self.rows.events : self.rows.n_carried])

    def absolute(self, i: int) -> Any:
        """The absolute tolerance of unknown `i`."""
        count = self.rows.longest - self.rows.atol
        return self.values[self.rows.atol + (i if count > 1 else 0)]


def _sum(values: Sequence[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _squared_norm(values: Sequence[Any], scales: Sequence[Any]) -> Any:
    """The mean of ``(value / scale)**2``."""
    quotients = [v / s for v, s in zip(values, scales, strict=True)]
    return _sum([q * q for q in quotients]) * (1.0 / len(quotients))


def start(method: Method, system: System, events: Sequence[Any], rows: Rows, values: Sequence[Any]) -> list[Any]:
    """The first step length, the carried values and the event functions, from the inputs of the body.

    A row "h" that is not zero is a first step that the user gave. Otherwise the step is estimated from the derivative
    at two points. It is NaN where the derivative is not finite.
    """
    xp, s = system.xp, State(values, rows, system.n, system.n_parameters)
    t, y, p = s.t, s.y, s.p
    carried = method.start(system, t, y, p)
    given = [g(t, y, p, xp) for g in events]
    slope = carried if method.n_carried(system) == system.n else system.f(t, y, p)
    checked = _sum([k - k for k in slope])  # NaN where a derivative is not finite
    if method.own_step:
        longest = xp.where(s.h == 0.0, xp.abs(s.t1 - t), xp.abs(s.h))
        return [s.direction * xp.minimum(longest, s.longest) + checked, *carried, *given]
    if method.error_order is None:
        return [s.h + checked, *carried, *given]
    scales = [s.absolute(i) + s.rtol * xp.abs(v) for i, v in enumerate(y)]
    size, rate = (_squared_norm(values, scales) for values in (y, slope))
    small = (size < 1e-10) | (rate < 1e-10)
    first = xp.where(small, xp.full_like(t, 1e-6), 0.01 * xp.sqrt(size / xp.where(small, xp.ones_like(t), rate)))
    first = xp.minimum(first, xp.minimum(s.longest, xp.abs(s.t1 - t)))  # f is not called outside of the interval
    h = first * s.direction
    other = system.f(t + h, [v + h * k for v, k in zip(y, slope, strict=True)], p)
    change = [b - a for a, b in zip(slope, other, strict=True)]
    curvature = _squared_norm(change, [scale * first for scale in scales])
    largest = xp.maximum(rate, curvature)  # squared
    bounded = xp.minimum(xp.maximum(largest * 1e4, xp.full_like(t, 1e-30)), xp.full_like(t, 1e30))
    second = inverse_root(bounded, 2 * (method.error_order + (method.error_order < 2)), xp)
    second = xp.where(largest <= 1e-30, xp.maximum(xp.full_like(t, 1e-6), first * 1e-3), second)
    length = xp.minimum(100.0 * first, second)
    length = xp.minimum(xp.where(xp.isfinite(length), length, xp.full_like(t, 1e-6)), s.longest)
    return [xp.where(s.h == 0.0, length * s.direction, s.h) + checked, *carried, *given]


def advance(
    method: Method, system: System, events: Sequence[Any], rows: Rows, values: Sequence[Any], *,
    dense: bool = True, alike: bool = False,
) -> list[Any]:  # fmt: skip
    """One step: the carried rows, where to stop at once, where to stop soon, and the rows of the dense output.

    Without `dense` there are no output times and no events. `alike`: all samples take the same fixed steps, so that
    none is finished before the others.
    """
    xp, s = system.xp, State(values, rows, system.n, system.n_parameters)
    if alike:
        return _advance_alike(method, system, s, dense)
    running = s.status == RUNNING
    if method.has_fixed_steps:
        tried, accepted, controlled = _fixed_step(method, system, s)
    else:
        tried, accepted, controlled = _adaptive_step(method, system, s, events)
    step, t_new, h_used = tried
    moved = running & accepted
    crosses = moved & ((t_new - s.t_out) * s.direction >= 0.0) if dense else False
    y = [xp.where(moved, new, old) for new, old in zip(step.y, s.y, strict=True)]
    carried = [xp.where(moved, new, old) for new, old in zip(step.carried, s.carried_values, strict=True)]
    t = xp.where(moved, t_new, s.t)
    values_of_events = []
    for g, old in zip(events, s.events, strict=True):
        now = g(t_new, step.y, s.p, xp)
        crosses = crosses | (moved & (((old < 0.0) & (now >= 0.0)) | ((old > 0.0) & (now <= 0.0))))
        values_of_events.append(xp.where(moved, now, old))
    h, n_steps, n_rejected, rejected, status = controlled
    carried_rows = [t, *y, h, *carried, n_steps, n_rejected, rejected, status, *values_of_events]
    ends = [*carried_rows, crosses, status > 0.0, s.t, h_used]
    return [*ends, *s.y, *(value for row in step.dense for value in row), *s.events] if dense else ends


def _advance_alike(method: Method, system: System, s: State, dense: bool) -> list[Any]:
    """One of equal steps that all samples take together; the driver counts them and shortens the last one.

    Row "longest" is the full step length, row "h" that of this step.
    """
    count = s.n_steps + 1.0
    t, t_new = s.t0 + s.n_steps * s.longest, s.t0 + count * s.longest
    step = method.step(system, t, s.h, s.y, s.carried_values, s.p)
    never = False
    crosses = (t_new - s.t_out) * s.direction >= 0.0 if dense else never
    ends = [t_new, *step.y, s.h, *step.carried, count, s.n_rejected, s.rejected, s.status, crosses, never, t, s.h]
    return [*ends, *s.y, *(value for row in step.dense for value in row)] if dense else ends


def _fixed_step(method: Method, system: System, s: State) -> tuple[Any, Any, Any]:
    """Step ``n_steps`` of equal ones; `max_steps` is their number and h their length."""
    xp = system.xp
    count = s.n_steps + 1.0
    last = count >= s.max_steps
    h = xp.where(last, s.t1 - s.t, s.h)
    step = method.step(system, s.t, h, s.y, s.carried_values, s.p)
    t_new = xp.where(last, s.t1, s.t0 + count * s.h)
    running = s.status == RUNNING
    status = xp.where(running & last, xp.full_like(s.status, FINISHED), s.status)
    n_steps = xp.where(running, count, s.n_steps)
    return (step, t_new, h), running, (s.h, n_steps, s.n_rejected, s.rejected, status)


def _adaptive_step(method: Method, system: System, s: State, events: Sequence[Any]) -> tuple[Any, Any, Any]:
    """A step whose estimated error decides whether it is taken, and the next step length."""
    xp, running = system.xp, s.status == RUNNING
    rest = s.t1 - s.t
    near = xp.abs(s.h) * STRETCH >= xp.abs(rest)
    last = near & (xp.abs(rest) <= s.longest)
    least = LEAST_SPACINGS * float(np.finfo(str(s.t.dtype)).eps) * xp.abs(s.t)
    length = xp.minimum(xp.maximum(xp.abs(s.h), least), s.longest)
    length = xp.where(near, 0.5 * xp.abs(rest), length)  # two last steps where one would be too long
    h = xp.where(last, rest, (s.t + s.direction * length) - s.t)  # a difference of two times
    tolerances = (s.rtol, [s.absolute(i) for i in range(s.n)])
    step = method.step(system.with_tolerances(*tolerances), s.t, h, s.y, s.carried_values, s.p)
    if method.own_step:
        last, h = last & (step.h_used == h), step.h_used
        accepted = _squared_norm(step.error or [], _scales(step, s, xp)) <= 1.0  # false for NaN
        if events:
            long = xp.abs(h) * MOST_PARTS > xp.abs(s.t1 - s.t0)
            accepted = accepted & ~(long & _roots_hide(events, step, h, s, xp))
        rest = xp.where(s.rejected > 0.0, s.direction * xp.minimum(xp.abs(s.t1 - (s.t + h)), 4.0 * xp.abs(h)),
                        s.t1 - (s.t + h))  # fmt: skip
        proposed = _limited(xp.where(accepted, rest, 0.25 * h), s, xp)
    else:
        accepted, factor = _judged(method, step, s, xp)
        proposed = _limited(h * xp.where(s.rejected > 0.0, xp.minimum(factor, xp.ones_like(factor)), factor), s, xp)
    t_new = xp.where(last, s.t1, s.t + h)
    count = s.n_steps + 1.0
    tiny = xp.abs(h) <= 1.05 * least  # the difference is rounded
    failed = (~accepted & (tiny | (xp.abs(proposed) == 0.0))) | (h == 0.0)  # the longest is less than a spacing
    if method.own_step:
        # where coefficients are not finite, h is not either, and shorter steps have the same coefficients
        failed = failed | (tiny & ~last) | ~(accepted | (xp.abs(h) < np.inf))
    status = xp.where(accepted & last, xp.full_like(s.t, FINISHED), xp.where(failed, xp.full_like(s.t, STEP_TOO_SMALL),
                      xp.where(count >= s.max_steps, xp.full_like(s.t, TOO_MANY_STEPS), s.status)))  # fmt: skip
    status = xp.where(running, status, s.status)
    one, zero = xp.ones_like(s.t), xp.zeros_like(s.t)
    h_next = xp.where(running, proposed, s.h)
    n_steps = xp.where(running, count, s.n_steps)
    rejected = xp.where(accepted, zero, one)
    n_rejected = s.n_rejected + xp.where(running, rejected, zero)
    return (step, t_new, h), accepted, (h_next, n_steps, n_rejected, rejected, status)


def _roots_hide(events: Sequence[Any], step: Step, h: Any, s: State, xp: Namespace) -> Any:
    """Whether an event changes its sign within the step as its values at both ends do not show."""
    hidden: Any = h != h
    one, zero = xp.ones_like(h), xp.zeros_like(h)
    for g, old in zip(events, s.events, strict=True):
        states = [[interpolated(*pair, theta) for pair in zip(s.y, step.dense, strict=True)] for theta in INSIDE]
        inner = [g(s.t + theta * h, y, s.p, xp) for theta, y in zip(INSIDE, states, strict=True)]
        values = [old, *inner, g(s.t + h, step.y, s.p, xp)]
        changes = _sum([xp.where(a * b < 0.0, one, zero) for a, b in itertools.pairwise(values)])
        hidden = hidden | (changes > xp.where(old * values[-1] < 0.0, one, zero))
    return hidden


def _judged(method: Method, step: Step, s: State, xp: Namespace) -> tuple[Any, Any]:
    """Whether the error is small enough, and the factor of the next step."""
    scales = _scales(step, s, xp)
    square = _squared_norm(step.error or [], scales)
    if step.error_3 is not None:
        other = square + 0.01 * _squared_norm(step.error_3, scales)
        square = square * square / xp.where(other == 0.0, xp.ones_like(other), other)
    m = 2 * (method.error_order or 1)
    least, most = (SAFETY / LARGEST_FACTOR) ** m, (SAFETY / LEAST_FACTOR) ** m
    known = square <= most  # false for NaN
    bounded = xp.where(known, xp.maximum(square, xp.full_like(square, least)), xp.full_like(square, most))
    return square <= 1.0, SAFETY * inverse_root(bounded, m, xp)


def _scales(step: Step, s: State, xp: Namespace) -> list[Any]:
    """Return the error that each unknown may have, ``atol + rtol |y|``."""
    pairs = enumerate(zip(s.y, step.y, strict=True))
    return [s.absolute(i) + s.rtol * xp.maximum(xp.abs(old), xp.abs(new)) for i, (old, new) in pairs]


def _limited(h: Any, s: State, xp: Namespace) -> Any:
    """A step no longer than allowed."""
    return s.direction * xp.minimum(xp.abs(h), s.longest)
