"""Rodas4 for systems of more unknowns than straight-line code can carry: all samples take a step together.

Each sample has its own time and step length. The matrices ``I / (h GAMMA) - J`` of all samples are one sparse
factorisation (`linalg.Factorization`); f and J are programs that an interpreter runs over tiles of samples. Samples
that end are replaced by others, so that few columns are idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from ensemble._compile.numba import empty
from ensemble._kernels.ode.lock_step import mean_square, stage_sum
from ensemble._kernels.ode.lock_step_control import (
    ENDS,
    PASSES,
    Plan,
    commit,
    control_numbers,
    judge,
    next_steps,
)
from ensemble._kernels.ode.rodas_alone import AlonePlan, alone_plan, steps_alone
from ensemble._kernels.ode.rodas_steps import RodasPlan, rodas_plan, rodas_step
from ensemble._typing import Array
from ensemble.linalg import CrsMatrix, Factorization
from ensemble.ode.control import LARGEST_FACTOR, LEAST_FACTOR, LEAST_SPACINGS, SAFETY, STRETCH
from ensemble.ode.evaluation import Evaluation, kept_plan, parts_of, plan_of, threads_of
from ensemble.ode.methods.inverse_root import inverse_root
from ensemble.ode.methods.method import weighted
from ensemble.ode.methods.rodas4 import DENSE, GAMMA, NODES, RODAS4, TIME, A, C
from ensemble.ode.ode_result import OdeStatus
from ensemble.ode.passages import Passages
from ensemble.ode.passages import Steps as Passed
from ensemble.ode.problem import Problem, Solution

__all__ = ["FROM", "Active", "Stepped", "empty_solution", "in_lock_step", "run", "started"]

FROM = 31
"""Unknowns from which the factorisation is a loop over stored entries instead of straight-line code."""


class Active(NamedTuple):
    """The samples in progress: one column each."""

    ids: Array
    t: Array
    y: Array
    h: Array
    p: Array
    t0: Array
    t1: Array
    direction: Array
    rtol: Array
    atol: Array
    longest: Array
    most: Array
    t_eval: Array
    n_steps: Array
    n_rejected: Array
    rejected: Array
    events: Array
    slope: Array
    """The derivative at (t, y), of methods that carry it; no rows for others."""

    def taken(self, columns: Array) -> Active:
        """Some of them."""
        return Active(*(np.ascontiguousarray(field[..., columns]) for field in self))

    def joined(self, others: Active) -> Active:
        """These and others."""
        return Active(*(np.concatenate(pair, axis=-1) for pair in zip(self, others, strict=True)))


class Stepped(NamedTuple):
    """What one step gives: the new values, the estimates of their errors, the stages, and the derivative at its end."""

    y: Array
    error: Array
    """Or what is left of them: their squared norms."""
    stages: Array
    slope: Array
    """No rows where the method does not carry it."""


class RightSide(Protocol):
    """The right-hand side, all that the choice of the first step needs."""

    @property
    def f(self) -> Evaluation:
        """The right-hand side."""


class LockStep(Protocol):
    """The steps of one method, which all samples take together."""

    problem: Problem
    n_columns: int
    """Samples in progress at a time."""
    order: int
    """Of the method, for the first step."""
    error_order: int
    carries: bool
    """Whether the derivative at the end of a step begins the next one."""

    @property
    def parts(self) -> RightSide:
        """The right-hand side."""

    def step(self, now: Active, h: Array) -> Stepped:
        """One step of each sample."""

    def square(self, now: Active, made: Stepped) -> Array:
        """The squared norms of the estimated errors."""

    def dense(self, now: Active, h: Array, made: Stepped, columns: Array, theta: Array) -> Array:
        """y at ``t + theta h`` in some columns, (n, n_columns)."""

    def alone(self, plan: Plan, ended: Array, now: Active, numbers: Array) -> tuple[Stepped, int] | None:
        """Take steps of a lone sample up to an output, an event or its end; None where each one is taken by `step`."""


class Steps:
    """Steps of one problem by Rodas4."""

    order, error_order, carries = 4, RODAS4.error_order or 1, False

    def __init__(self, problem: Problem) -> None:
        self.problem, self.parts = problem, parts_of(problem.system)
        self._factors, self.n_columns = plan_of(self.parts, problem.system.n, problem.dtype)
        self._weights = [[np.array(row, problem.dtype) for row in table] for table in (A, C)]
        self._one = np.ones(1, problem.dtype)
        self._plan = kept_plan(self.parts, ("rodas", problem.atol.shape[0]), self._whole_steps)
        self._alone: AlonePlan | None = None
        self._memory: Array

    def _whole_steps(self) -> RodasPlan | None:
        """The plan of steps in one pass, where all that they evaluate is basic operations, not in groups."""
        parts, plan = self.parts, self._factors.plan
        matrix, f, slope = (None if each is None else each.basic for each in (parts.matrix, parts.f, parts.slope))
        if plan.flat is None or matrix is None or f is None or (parts.slope is not None and slope is None):
            return None
        return rodas_plan(matrix, slope, f, plan, self.problem.atol.shape[0], (A, C, NODES, TIME), GAMMA)

    def alone(self, plan: Plan, ended: Array, now: Active, numbers: Array) -> tuple[Stepped, int] | None:
        """Take steps of a lone sample up to an output, an event or its end; None where each one is taken by `step`."""
        if self._plan is None:
            return None
        if self._alone is None:
            tables, key = self._plan.numbers, ("rodas alone", self.problem.atol.shape[0])
            self._alone = kept_plan(self.parts, key, lambda: self._plan_alone(tables))
            self._memory = empty(self._alone.work.shape, now.y.dtype)
            self._memory[:] = self._alone.work
        fixed, events = self.problem.method.has_fixed_steps, len(self.problem.events) > 0
        m = 2 * self.error_order
        made = steps_alone(self._alone, plan, ended, now, numbers, m, fixed, events, self._memory)
        return Stepped(made.y, made.square, made.stages, now.slope), made.found

    def _plan_alone(self, tables: Array) -> AlonePlan:
        matrix, f, slope = (None if each is None else each.basic for each in (
            self.parts.matrix, self.parts.f, self.parts.slope))  # fmt: skip
        assert matrix is not None and f is not None
        return alone_plan(matrix, slope, f, self._factors.plan, self.problem.atol.shape[0], tables)

    def factorized(self, rows: Array, y: Array) -> Factorization:
        """The factors of the matrices of all samples."""
        matrix = CrsMatrix(self.parts.graph, self.parts.matrix(rows, y))
        self._factors = self._factors.update(matrix)
        return self._factors

    def step(self, now: Active, h: Array) -> Stepped:
        """One step of each sample."""
        if self._plan is not None:
            y, square, stages = rodas_step(self._plan, now, h, self.problem.is_dense)
            return Stepped(y, square, stages, now.slope)
        n, count = now.y.shape
        per_step, points, slopes = 1.0 / h, self._weights[0], self._weights[1]
        shift = (1.0 / GAMMA) * per_step
        solve = self.factorized(np.stack([now.t, *now.p, shift]), now.y).apply
        slope = None if self.parts.slope is None else self.parts.slope(np.stack([now.t, *now.p]), now.y)
        stages, point = np.empty((len(A), n, count), now.y.dtype), now.y
        for k in range(len(A)):
            if k == len(A) - 1:
                point = point + stages[k - 1]  # rows 4 and 5 of A share their weights
            elif k:
                point = stage_sum(now.y, stages, points[k], self._one)
            t = now.t if NODES[k] == 0.0 else now.t + h if NODES[k] == 1.0 else now.t + NODES[k] * h
            right = self.parts.f(np.stack([t, *now.p]), point)
            if k:
                right = stage_sum(right, stages, slopes[k], per_step)
            if slope is not None and TIME[k] != 0.0:
                right += (TIME[k] * h) * slope
            stages[k] = solve(right)
        return Stepped(point + stages[-1], stages[-1], stages, now.slope)

    def square(self, now: Active, made: Stepped) -> Array:
        """The squared norms of the estimated errors."""
        if self._plan is not None:
            return made.error
        return mean_square(made.error, now.y, made.y, now.rtol, now.atol)

    def dense(self, now: Active, h: Array, made: Stepped, columns: Array, theta: Array) -> Array:
        """y at ``t + theta h`` in some columns, (n, n_columns)."""
        stages = [stage[:, columns] for stage in made.stages[:-1]]
        third, fourth = (weighted(row, stages) for row in DENSE)
        rise = made.y[:, columns] - now.y[:, columns]
        return now.y[:, columns] + theta * (rise + third + theta * (fourth - third - theta * fourth))


def _first_steps(parts: RightSide, now: Active, slope: Array, order: int) -> Array:
    """The lengths of the first steps, with their signs (Hairer, Norsett, Wanner 1993, section II.4)."""
    rows, y = np.stack([now.t, *now.p]), now.y
    size, rate = (mean_square(values, y, y, now.rtol, now.atol) for values in (y, slope))
    small = (size < 1e-10) | (rate < 1e-10)
    first = np.where(small, 1e-6, 0.01 * np.sqrt(size / np.where(small, 1.0, rate)))
    first = np.minimum(first, np.minimum(now.longest, np.abs(now.t1 - now.t))).astype(y.dtype)
    rows[0] += first * now.direction
    other = parts.f(rows, y + (first * now.direction) * slope)
    curvature = mean_square(other - slope, y, y, now.rtol, now.atol) / (first * first)
    largest = np.maximum(rate, curvature)  # squared
    bounded = np.clip(largest * 1e4, 1e-30, 1e30).astype(y.dtype)
    second = inverse_root(bounded, 2 * order, np)
    second = np.where(largest <= 1e-30, np.maximum(1e-6, first * 1e-3), second)
    length = np.minimum(100.0 * first, second)
    length = np.minimum(np.where(np.isfinite(length), length, 1e-6), now.longest)
    return np.where(now.h == 0.0, length * now.direction, now.h).astype(y.dtype)


def _entering(problem: Problem, ids: Array) -> Active:
    """Samples at their start."""

    def of(values: Array) -> Array:
        return np.ascontiguousarray(values[..., ids] if values.shape[-1] > 1 else np.repeat(values, ids.size, axis=-1))

    direction = np.sign(problem.t1 - problem.t0).astype(problem.dtype)
    zeros, no_events = np.zeros((3, ids.size), problem.dtype), np.zeros((len(problem.events), ids.size), problem.dtype)
    arrays = (problem.t0, problem.y0, problem.step, problem.p, problem.t0, problem.t1, direction, problem.rtol,
              problem.atol, problem.longest, problem.n_steps, problem.t_eval)  # fmt: skip
    no_slope = np.zeros((0, ids.size), problem.dtype)
    return Active._make([ids, *map(of, arrays), *zeros, no_events, no_slope])


def run(problem: Problem, callback: Callable[[int], None] | None = None) -> Solution:
    """Integrate all samples by Rodas4; `callback` is given the samples that are finished and may raise."""
    return in_lock_step(Steps, problem, callback)


def in_lock_step(
    method: Callable[[Problem], LockStep], problem: Problem, callback: Callable[[int], None] | None
) -> Solution:
    """Integrate all samples by the steps of `method`."""
    # a sample whose numbers overflow concerns no other
    with threads_of(problem.system.n, problem.n_samples), np.errstate(all="ignore"):
        return _run(method(problem), problem, callback)


def empty_solution(problem: Problem) -> Solution:
    """A solution before the first step."""
    S, n, dtype, n_events = problem.n_samples, problem.system.n, problem.dtype, len(problem.events)
    return Solution(
        np.empty((n, S), dtype), np.empty(S, dtype), np.zeros(S, np.int8), np.zeros(S, np.int64), np.zeros(S, np.int64),
        np.full((problem.t_eval.shape[0], n, S), np.nan, dtype),
        np.full((n_events, problem.max_roots, S), np.nan, dtype),
        np.zeros((n_events, S), np.int64) if problem.n_roots is None else problem.n_roots.copy(),
    )  # fmt: skip


def _run(steps: LockStep, problem: Problem, callback: Callable[[int], None] | None) -> Solution:
    S, solution = problem.n_samples, empty_solution(problem)
    passages = Passages(problem, solution)
    capacity = steps.n_columns
    now = _begun(steps, passages, solution, np.arange(min(capacity, S)))
    entered = min(capacity, S)
    real = now.t.dtype
    factors = SAFETY, LEAST_FACTOR, LARGEST_FACTOR
    numbers = control_numbers(real, 2 * steps.error_order, STRETCH, LEAST_SPACINGS, factors)
    plan = Plan.empty(now.ids.size, real)
    while now.ids.size or entered < S:
        changed, ended = True, np.zeros(0, bool)
        if now.ids.size:
            ended, changed = _advanced(steps, passages, solution, now, plan, numbers)
        if changed and entered == S and ended.all():
            break
        if changed and 2 * int(ended.sum()) >= min(capacity, now.ids.size):
            now = now.taken(np.flatnonzero(~ended))
            if entered < S:
                ids = np.arange(entered, min(entered + capacity - now.ids.size, S))
                others = _begun(steps, passages, solution, ids)
                now, entered = now.joined(others), entered + ids.size
            plan = Plan.empty(now.ids.size, real)
            if callback is not None:
                callback(entered - now.ids.size)
    return solution


def _begun(steps: LockStep, passages: Passages, solution: Solution, ids: Array) -> Active:
    return started(steps.problem, steps.parts, passages, solution, ids, steps.order, steps.carries)


def started(
    problem: Problem, parts: RightSide, passages: Passages, solution: Solution, ids: Array, order: int = 4,
    carries: bool = False,
) -> Active:  # fmt: skip
    """Samples with their first steps of a method of `order`; those that cannot move are ended and left out."""
    now = _entering(problem, ids)
    solution.y[:, ids], solution.t[ids] = now.y, now.t
    columns, times = np.nonzero((now.t_eval == now.t0).T)
    solution.y_out[times, :, ids[columns]] = now.y[:, columns].T
    slope = parts.f(np.stack([now.t, *now.p]), now.y)
    finite = np.isfinite(now.y).all(axis=0) & np.isfinite(slope).all(axis=0)
    still = now.t0 == now.t1
    solution.status[ids[~finite]] = OdeStatus.non_finite
    solution.status[ids[finite & still]] = OdeStatus.finished
    keep = np.flatnonzero(finite & ~still)
    if keep.size < now.ids.size:
        now, slope = now.taken(keep), np.ascontiguousarray(slope[:, keep])
    if not now.ids.size:
        return now
    now = now._replace(events=passages.values(now.t, now.p, now.y), slope=slope if carries else now.slope)
    if problem.method.has_fixed_steps:
        return now
    return now._replace(h=_first_steps(parts, now, slope, order))


def _advanced(
    steps: LockStep, passages: Passages, solution: Solution, now: Active, plan: Plan, numbers: Array
) -> tuple[Array, bool]:
    """One step of all samples, in place; which of them have ended, and whether that has changed.

    Those that had ended before do not change.
    """
    problem, fixed = steps.problem, steps.problem.method.has_fixed_steps
    taken = steps.alone(plan, solution.status[now.ids], now, numbers) if now.ids.size == 1 else None
    if taken is not None:
        made, found = taken
    else:
        next_steps(plan, solution.status[now.ids], now, numbers, fixed)
        made = steps.step(now, plan.h)
        found = judge(plan, plan.h if fixed else steps.square(now, made), now, numbers, 2 * steps.error_order, fixed)
    events = now.events
    if problem.events:
        events = passages.values(plan.t_new, now.p, made.y)
    stopped = None
    if problem.events or found & PASSES:
        stopped = _passed(steps, passages, now, made, np.flatnonzero(plan.accepted), plan.t_new, plan.h, events)
    commit(plan, now, made.y, made.slope, events)
    if stopped is None and not found & ENDS:
        return ~plan.running, False
    status = plan.status
    if stopped is not None:
        columns, times, states = stopped
        now.t[columns], now.y[:, columns], status[columns] = times, states, OdeStatus.event
    status = np.where((status > 0) & ~np.isfinite(now.y).all(axis=0), OdeStatus.non_finite, status)
    columns = np.flatnonzero(plan.running & (status > 0))
    ids = now.ids[columns]
    solution.status[ids], solution.t[ids], solution.y[:, ids] = status[columns], now.t[columns], now.y[:, columns]
    solution.n_steps[ids], solution.n_rejected[ids] = now.n_steps[columns], now.n_rejected[columns]
    return solution.status[now.ids] > 0, True


def _passed(
    steps: LockStep, passages: Passages, now: Active, made: Stepped, moved: Array, t_new: Array, h: Array, events: Array
) -> tuple[Array, Array, Array] | None:
    """Write what the accepted steps pass; the columns that an event ends, with their times and states, if any."""
    if not (steps.problem.is_dense and moved.size):
        return None

    def dense(columns: Array, theta: Array) -> Array:
        return steps.dense(now, h, made, moved[columns], theta)

    passed = Passed(now.ids[moved], now.t[moved], t_new[moved], h[moved], now.p[:, moved], now.t_eval[:, moved],
                    now.events[:, moved], events[:, moved], made.y[:, moved], dense)  # fmt: skip
    ended, limit = passages.passed(passed)
    columns = np.flatnonzero(ended)
    if not columns.size:
        return None
    return moved[columns], (passed.t_old + limit * passed.h)[columns], dense(columns, limit[columns])
