"""What steps of many samples pass: output times and roots of events, for methods whose samples step together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ensemble._typing import Array
from ensemble.ode.compiled import events_graph
from ensemble.ode.evaluation import Evaluation
from ensemble.ode.problem import Problem, Solution

__all__ = ["BISECTIONS", "Passages", "Steps"]

BISECTIONS = 60


class Steps(NamedTuple):
    """Accepted steps, one column each."""

    ids: Array
    """The samples."""
    t_old: Array
    t_new: Array
    h: Array
    p: Array
    t_eval: Array
    before: Array
    """The event functions before the step, (n_events, n_columns)."""
    now: Array
    """Those after it."""
    y_new: Array
    dense: Callable[[Array, Array], Array]
    """``dense(columns, theta)``: y at ``t_old + theta h`` in some of the columns, (n, n_chosen)."""


class Passages:
    """Output times and events of one problem; they are written into its solution."""

    def __init__(self, problem: Problem, solution: Solution) -> None:
        self._problem, self._solution = problem, solution
        graph = events_graph(problem)
        self._events = None if graph is None else Evaluation(graph, problem.system.n, problem.dtype)

    def values(self, t: Array, p: Array, y: Array) -> Array:
        """The event functions, shape (n_events, n_columns)."""
        if self._events is None:
            return np.zeros((0, y.shape[1]), y.dtype)
        return self._events(np.stack([t, *p]), y)

    def passed(self, steps: Steps) -> tuple[Array, Array]:
        """Write what the steps passed; which samples a terminal event has ended, and where in their steps."""
        ended, limit = self._roots(steps)
        last = np.where(ended, steps.t_old + limit * steps.h, steps.t_new)
        sign = np.sign(steps.h)
        beyond = (steps.t_eval - steps.t_old) * sign > 0.0
        columns, times = np.nonzero((beyond & ((steps.t_eval - last) * sign <= 0.0)).T)
        if columns.size:
            wanted = steps.t_eval[times, columns]
            values = steps.dense(columns, (wanted - steps.t_old[columns]) / steps.h[columns])
            values = np.where(wanted == steps.t_new[columns], steps.y_new[:, columns], values)
            self._solution.y_out[times, :, steps.ids[columns]] = values.T
        return ended, limit

    def _roots(self, steps: Steps) -> tuple[Array, Array]:
        """Find and count roots; which samples they end, and the fraction of the step."""
        problem, counts = self._problem, self._solution.n_events
        limit, ended = np.full_like(steps.t_old, 1.5), np.zeros(steps.ids.size, bool)
        found = []
        for j, side in enumerate(problem.sides):
            before, now = steps.before[j], steps.now[j]
            up, down = (before < 0.0) & (now >= 0.0), (before > 0.0) & (now <= 0.0)
            crossed = (up & (side >= 0)) | (down & (side <= 0))
            theta = np.full_like(limit, 2.0)
            if crossed.any():
                theta[crossed] = self._root(steps, j, np.flatnonzero(crossed))
            found.append(theta)
        for j, theta in enumerate(found):
            if problem.terminal[j]:
                ends = (counts[j, steps.ids] + 1 >= problem.terminal[j]) & (theta < limit) & (theta <= 1.0)
                limit, ended = np.where(ends, theta, limit), ended | ends
        for j, theta in enumerate(found):
            columns = np.flatnonzero((theta <= limit) & (theta <= 1.0))
            ids = steps.ids[columns]
            times = (steps.t_old + theta * steps.h)[columns]
            there = counts[j, ids] < problem.max_roots
            self._solution.t_events[j, counts[j, ids[there]], ids[there]] = times[there]
            counts[j, ids] += 1
        return ended, limit

    def _root(self, steps: Steps, j: int, columns: Array) -> Array:
        """The end of the last bracket of a bisection for event `j`."""
        low, high = np.zeros(columns.size, steps.h.dtype), np.ones(columns.size, steps.h.dtype)
        t, h, p, before = steps.t_old[columns], steps.h[columns], steps.p[:, columns], steps.before[j, columns]
        half = steps.h.dtype.type(0.5)
        for _ in range(BISECTIONS):
            theta = half * (low + high)
            value = self.values(t + theta * h, p, steps.dense(columns, theta))[j]
            crossed = ((before < 0.0) & (value >= 0.0)) | ((before > 0.0) & (value <= 0.0))
            low, high = np.where(crossed, low, theta), np.where(crossed, theta, high)
        return high
