"""The control of steps that many samples take together, each with a time and a step length of its own.

One loop over the samples on the calling thread: a step has some tens of numbers of each sample beside its vectors.
`ode/control.py` has the same control for traced steps; both give the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.lanes.arithmetic import as_float32, as_float64, as_int32, as_int64, bits, from_bits
from ensemble._compile.lanes.types import load, store
from ensemble._compile.numba import compiled_procedure, inner
from ensemble._typing import Array

__all__ = [
    "ENDS",
    "FINISHED",
    "PASSES",
    "STEP_TOO_SMALL",
    "TOO_MANY_STEPS",
    "ControlNumbers",
    "Plan",
    "commit",
    "committed",
    "control_numbers",
    "inverse_root",
    "judge",
    "judged",
    "next_steps",
    "planned",
    "root_numbers",
]

PASSES, ENDS = 1, 2
"""What some samples' steps do: they pass an output time, they end the run."""

FINISHED, STEP_TOO_SMALL, TOO_MANY_STEPS = 1, 2, 3


class ControlNumbers(NamedTuple):
    """Numbers of the control in the working precision."""

    stretch: float
    """A last step may be so much longer than proposed."""
    half: float
    least: float
    """The least step over the magnitude of t."""
    lowest: float
    """Squared norms of errors between which step lengths follow them."""
    highest: float
    safety: float
    rounding: float
    """Least steps are met to this factor."""
    one: float
    root_of_one: float
    """The estimate of the root of a number whose bit pattern is zero, as a pattern."""
    per_m: float
    newton: float


def control_numbers(
    dtype: Any, m: int, stretch: float, spacings: float, factors: tuple[float, float, float]
) -> Array:  # fmt: skip
    """`ControlNumbers` of an error whose squared norm is of order m; `factors`: safety, least and largest factor."""
    safety, least, largest = factors
    real = np.finfo(dtype)
    numbers = ControlNumbers(
        stretch, 0.5, float(real.dtype.type(spacings) * real.eps), (safety / largest) ** m, (safety / least) ** m,
        safety, 1.05, 1.0, *root_numbers(dtype, m),
    )  # fmt: skip
    return np.array(numbers, real.dtype)


def root_numbers(dtype: Any, m: int) -> list[float]:
    """The numbers of `inverse_root`."""
    real = np.finfo(dtype)
    one = int(np.asarray(1.0, dtype=real.dtype).view(f"int{real.bits}"))
    return [(1.0 + 1.0 / m) * one, 1.0 / m, (m + 1) / m]


class Plan(NamedTuple):
    """The steps that come next, one column each."""

    running: Array
    last: Array
    h: Array
    """Their lengths; 1 for samples that have ended."""
    t_new: Array
    least: Array
    """The least length at this time."""
    accepted: Array
    proposed: Array
    """The lengths of the steps that follow."""
    status: Array

    @classmethod
    def empty(cls, n_columns: int, dtype: Any) -> Plan:
        """Without numbers."""
        marks, real = (lambda: np.zeros(n_columns, bool)), (lambda: np.empty(n_columns, dtype))
        return cls(marks(), marks(), real(), real(), real(), marks(), real(), np.zeros(n_columns, np.int8))


def next_steps(plan: Plan, ended: Array, now: Any, numbers: Array, fixed: bool) -> None:
    """Write the steps that the samples take now; `ended` has the status of each, 0 while it runs."""
    _next_steps(ended, now.t, now.h, now.t0, now.t1, now.direction, now.longest, now.n_steps, now.most, numbers, fixed,
                plan.running, plan.last, plan.h, plan.t_new, plan.least)  # fmt: skip


@inner
def planned(
    ended, t, h, t0, t1, direction, longest, n_steps, most, numbers, fixed, running, last, length, t_new, least
):  # fmt: skip
    """The body of `next_steps`."""
    stretch, half, spacing, one = numbers[0], numbers[1], numbers[2], numbers[7]
    for s in range(t.size):
        running[s] = ended[s] == 0
        rest, count, size = t1[s] - t[s], n_steps[s] + one, abs(h[s])
        near = size * stretch >= abs(rest)
        bound = spacing * abs(t[s])
        least[s] = bound
        wanted = min(max(size, bound), longest[s])
        if near:
            wanted = half * abs(rest)  # two last steps where one would be too long
        ends = count >= most[s] if fixed else near and abs(rest) <= longest[s]
        made = (t[s] + direction[s] * wanted) - t[s]  # a difference of two times
        if ends:
            made = rest
        elif fixed:
            made = h[s]
        t_new[s] = t1[s] if ends else t0[s] + count * h[s] if fixed else t[s] + made
        last[s] = ends
        length[s] = made if running[s] else one


@compiled_procedure
def _next_steps(
    ended, t, h, t0, t1, direction, longest, n_steps, most, numbers, fixed, running, last, length, t_new, least
):  # fmt: skip
    planned(
        ended, t, h, t0, t1, direction, longest, n_steps, most, numbers, fixed, running, last, length, t_new, least
    )  # fmt: skip


@inner
def inverse_root(values, s, m, numbers, place, one):
    """``values[s]**(-1 / m)`` as `ode/methods/inverse_root.py` has it; it is written in its place.

    From ``numbers[place]`` on are the `root_numbers` of m.
    """
    x = load(values, s, 1)
    root, per_m, newton = numbers[place], numbers[place + 1], numbers[place + 2]
    if values.itemsize == 8:
        store(values, s, from_bits(as_int64(root - as_float64(bits(x)) * per_m)))
    else:
        store(values, s, from_bits(as_int32(root - as_float32(bits(x)) * per_m)))
    given = x * per_m
    for _ in range(1 if m >= 4 else 2):
        y = load(values, s, 1)
        result, square, left, begun = y * one, y * one, m, False
        while left > 0:
            if left % 2 == 1:
                result = result * square if begun else square * one
                begun = True
            left = left // 2
            if left > 0:
                square = square * square
        store(values, s, y * (newton - given * result))


@inner
def passes(t_eval, s, low, high, sign):
    """Whether a column of output times, which are ordered, has one behind `low` and not behind `high`."""
    first, last = 0, t_eval.shape[0]
    while first < last:
        middle = (first + last) // 2
        if (t_eval[middle, s] - low) * sign > 0:
            last = middle
        else:
            first = middle + 1
    return first < t_eval.shape[0] and (t_eval[first, s] - high) * sign <= 0


def judge(plan: Plan, square: Array, now: Any, numbers: Array, m: int, fixed: bool) -> int:
    """Which steps are accepted, the steps that follow, and the new status; `PASSES` and `ENDS`, added.

    `square` has the squared norms of the errors, of any length where steps are fixed.
    """
    found: int = _judge(square, now.t, now.h, now.direction, now.longest, now.rejected, now.n_steps, now.most,
                        now.t_eval, numbers, m, fixed, plan.running, plan.last, plan.h, plan.t_new, plan.least,
                        plan.accepted, plan.proposed, plan.status)  # fmt: skip
    return found


@inner
def judged(
    square, t, h, direction, longest, rejected, n_steps, most, t_eval, numbers, m, fixed, running, last, length, t_new,
    least, accepted, proposed, status
):  # fmt: skip
    """The body of `judge`."""
    lowest, highest, safety, rounding, one = numbers[3], numbers[4], numbers[5], numbers[6], numbers[7]
    found_pass, found_end = 0, 0
    for s in range(t.size):
        good, fails, next_h = running[s], running[s] and False, h[s] * one
        if not fixed:
            good = running[s] and square[s] <= one
            proposed[s] = max(square[s], lowest) if square[s] <= highest else highest
            inverse_root(proposed, s, m, numbers, 8, one)
            factor = safety * proposed[s]
            if rejected[s] > 0:
                factor = min(factor, one)
            next_h = length[s] * factor
            next_h = direction[s] * min(abs(next_h), longest[s])
            tiny = abs(length[s]) <= rounding * least[s]  # the difference is rounded
            fails = running[s] and ((not good and (tiny or next_h == 0)) or length[s] == 0)
        proposed[s] = next_h
        accepted[s] = good
        state = 0
        if n_steps[s] + one >= most[s]:
            state = TOO_MANY_STEPS
        if fails:
            state = STEP_TOO_SMALL
        if good and last[s]:
            state = FINISHED
        status[s] = state
        if running[s] and state > 0:
            found_end = ENDS
        if good and t_eval.shape[0] > 0 and passes(t_eval, s, t[s], t_new[s], one if length[s] > 0 else -one):
            found_pass = PASSES
    return found_pass + found_end


@compiled_procedure
def _judge(
    square, t, h, direction, longest, rejected, n_steps, most, t_eval, numbers, m, fixed, running, last, length, t_new,
    least, accepted, proposed, status
):  # fmt: skip
    return judged(
        square, t, h, direction, longest, rejected, n_steps, most, t_eval, numbers, m, fixed, running, last, length,
        t_new, least, accepted, proposed, status
    )  # fmt: skip


def commit(plan: Plan, now: Any, y: Array, slope: Array, events: Array) -> None:
    """Move the samples of `now` to the ends of their steps, in place."""
    _commit(plan.running, plan.accepted, plan.t_new, plan.proposed, y, slope, events, now.t, now.h, now.n_steps,
            now.n_rejected, now.rejected, now.y, now.slope, now.events, np.ones(1, now.t.dtype))  # fmt: skip


@inner
def copy_columns(source, target, chosen):
    """Copy the columns of a mask."""
    for i in range(target.shape[0]):
        for s in range(target.shape[1]):
            target[i, s] = source[i, s] if chosen[s] else target[i, s]


@inner
def committed(
    running, accepted, t_new, proposed, y_new, slope_new, events_new, t, h, n_steps, n_rejected, rejected, y, slope,
    events, one
):  # fmt: skip
    """The body of `commit`; `one` in the working precision."""
    for s in range(t.size):
        if running[s]:
            h[s] = proposed[s]
            n_steps[s] += one
            if not accepted[s]:
                n_rejected[s] += one
        if accepted[s]:
            t[s] = t_new[s]
        rejected[s] = one - one if accepted[s] else one
    copy_columns(y_new, y, accepted)
    copy_columns(slope_new, slope, accepted)
    copy_columns(events_new, events, accepted)


@compiled_procedure
def _commit(
    running, accepted, t_new, proposed, y_new, slope_new, events_new, t, h, n_steps, n_rejected, rejected, y, slope,
    events, one
):  # fmt: skip
    committed(
        running, accepted, t_new, proposed, y_new, slope_new, events_new, t, h, n_steps, n_rejected, rejected, y, slope,
        events, one[0]
    )  # fmt: skip
