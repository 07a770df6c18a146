"""Explicit methods for right-hand sides too long for straight-line code: all samples take a step together.

A step written out has the right-hand side once per stage, and its compilation takes time for each of its operations.
Here f is evaluated by loops over groups of equal operations (`_kernels/ode/groups.py`), and nothing is compiled for it.
Which way a system goes depends on its trace and its method alone, so a sample has the same bits in every ensemble.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.numba import empty
from ensemble._compile.trace.graph import Graph
from ensemble._kernels.ode.groups import run_stages
from ensemble._kernels.ode.lock_step import pair_squares, stage_sum
from ensemble._kernels.ode.lock_step_control import Plan
from ensemble._kernels.ode.pair_alone import pair_alone
from ensemble._typing import Array
from ensemble.ode.evaluation import Evaluation, columns_of, evaluation_of
from ensemble.ode.implicit import Active, Stepped, in_lock_step
from ensemble.ode.methods.dop853 import DOP853_TABLEAU
from ensemble.ode.methods.method import cubic, interpolated
from ensemble.ode.methods.runge_kutta import Tableau
from ensemble.ode.methods.tsit5 import TSIT5_TABLEAU
from ensemble.ode.problem import Problem, Solution

__all__ = ["FROM", "is_long", "run"]

FROM = 1000
"""Operations of a right-hand side from which its steps are not written out."""

TABLEAUS = {"tsit5": TSIT5_TABLEAU, "dop853": DOP853_TABLEAU}

FIXED = {"rk4": ((0.0, 0.5, 0.5, 1.0), (1.0, 2.0, 2.0, 1.0), 1.0 / 6.0), "euler": ((0.0,), (1.0,), 1.0)}
"""Of methods without estimate: where in the step each stage is, its weight, and the factor of the sum."""


class RightSide(NamedTuple):
    """The right-hand side alone."""

    f: Evaluation


@functools.lru_cache(maxsize=256)
def _operations(graph: Graph) -> int:
    return sum(node.operation not in ("input", "constant") for node in graph.nodes)


def is_long(problem: Problem) -> bool:
    """Whether samples of a problem take their steps together, by loops over groups of operations."""
    system, name = problem.system, problem.method.name
    if (name not in TABLEAUS and name not in FIXED) or _operations(system.graph) < FROM:
        return False
    return evaluation_of(system.graph, system.n, system.dtype).groups is not None


class _Steps:
    """Steps that samples take together, as far as all explicit methods share them."""

    def __init__(self, problem: Problem) -> None:
        system = problem.system
        self.problem, self.parts = problem, RightSide(evaluation_of(system.graph, system.n, system.dtype))
        self.n_columns = columns_of(system.n)
        self.order, self.error_order = problem.method.order, problem.method.error_order or 1
        self._one = np.ones(1, problem.dtype)

    def alone(self, plan: Plan, ended: Array, now: Active, numbers: Array) -> tuple[Stepped, int] | None:
        """None: each step is taken by `step`."""
        return None

    def _right_side(self, now: Active) -> Callable[[Array, Array, Array], Array]:
        """f of times, states and where to write, for the parameters of the samples in progress."""
        rows = np.concatenate([now.t[None], now.p])

        def f(t: Array, y: Array, out: Array) -> Array:
            rows[0] = t
            return self.parts.f(rows, y, out)

        return f


class PairSteps(_Steps):
    """Steps of an explicit pair whose last stage is the first of the next step."""

    carries = True

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.tableau: Tableau = TABLEAUS[problem.method.name]
        self._a = np.zeros((len(self.tableau.a), len(self.tableau.a)), problem.dtype)
        for i, row in enumerate(self.tableau.a):
            self._a[i, : len(row)] = row
        self._c = np.array(self.tableau.c, problem.dtype)
        errors = [row for row in (self.tableau.error, self.tableau.error_3) if row is not None]
        self._errors = np.zeros((len(errors), max(map(len, errors))), problem.dtype)
        for e, row in enumerate(errors):
            self._errors[e, : len(row)] = row

    def alone(self, plan: Plan, ended: Array, now: Active, numbers: Array) -> tuple[Stepped, int] | None:
        """Take steps of a lone sample up to an output, an event or its end; fixed ones are taken by `step`."""
        groups = self.parts.f.groups
        if groups is None or self.problem.method.has_fixed_steps:
            return None
        tableau, m = (self._a[: self.tableau.n_stages], self._c, self._errors), 2 * self.error_order
        made = pair_alone(groups, tableau, plan, ended, now, numbers, m, len(self.problem.events) > 0)
        found, new, square, stages = made
        return Stepped(new, square, stages, stages[-1]), found

    def _stages(self, now: Active, h: Array, stages: Array, first: int, last: int) -> Array:
        """Write the stages from `first` to before `last`; the point of the last one."""
        groups = self.parts.f.groups
        assert groups is not None
        rows = np.concatenate([now.t[None], now.p])
        return run_stages(groups, rows, now.y, now.t, h, stages, self._a[:last], self._c, first)

    def step(self, now: Active, h: Array) -> Stepped:
        """One step of each sample."""
        stages = empty((self.tableau.n_stages, *now.y.shape), now.y.dtype)
        stages[0] = now.slope
        new = self._stages(now, h, stages, 1, self.tableau.n_stages)
        squares = pair_squares(stages, self._errors, h, now.y, new, now.rtol, now.atol)
        return Stepped(new, squares, stages, stages[-1])

    def square(self, now: Active, made: Stepped) -> Array:
        """The squared norms of the estimated errors."""
        if len(made.error) == 1:
            first: Array = made.error[0]
            return first
        squares = made.error
        whole = squares[0] + 0.01 * squares[1]
        joined: Array = squares[0] * squares[0] / np.where(whole == 0.0, 1.0, whole)
        return joined

    def dense(self, now: Active, h: Array, made: Stepped, columns: Array, theta: Array) -> Array:
        """y at ``t + theta h`` in some columns, (n, n_columns)."""
        some, length = now.taken(columns), h[columns]
        stages = np.empty((len(self._a), *some.y.shape), some.y.dtype)
        stages[: len(made.stages)] = made.stages[:, :, columns]
        self._stages(some, length, stages, len(made.stages), len(self._a))
        coefficients = self.tableau.dense([some.y], [made.y[:, columns]], length, [[stage] for stage in stages])
        made_there: Array = interpolated(some.y, coefficients[0], theta)
        return made_there


class FixedSteps(_Steps):
    """Steps of "rk4" and "euler"."""

    carries = False

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._nodes, weights, self._factor = FIXED[problem.method.name]
        self._weights = np.array(weights, problem.dtype)

    def step(self, now: Active, h: Array) -> Stepped:
        """One step of each sample."""
        f, point = self._right_side(now), now.y
        stages = empty((len(self._nodes), *now.y.shape), now.y.dtype)
        for i, node in enumerate(self._nodes):
            if i:
                point = stage_sum(now.y, stages[i - 1 : i], self._one, node * h)
            f(now.t + node * h, point, stages[i])
        new = stage_sum(now.y, stages, self._weights, self._factor * h)
        return Stepped(new, new[:0], stages, now.slope)

    def square(self, now: Active, made: Stepped) -> Array:
        """Zero: there is no estimate."""
        return np.zeros_like(now.t)

    def dense(self, now: Active, h: Array, made: Stepped, columns: Array, theta: Array) -> Array:
        """y at ``t + theta h`` in some columns: a line ("euler"), or the cubic of values and derivatives ("rk4")."""
        some, length = now.taken(columns), h[columns]
        start = made.stages[0][:, columns]
        if len(self._nodes) == 1:
            line: Array = some.y + theta * (length * start)
            return line
        end, new = np.empty_like(some.y), np.ascontiguousarray(made.y[:, columns])
        self._right_side(some)(some.t + length, new, end)
        curve: Array = interpolated(some.y, cubic(some.y, new, length, start, end), theta)
        return curve


def run(problem: Problem, callback: Callable[[int], None] | None = None) -> Solution:
    """Integrate all samples; `callback` is given the samples that are finished and may raise."""
    steps: Any = PairSteps if problem.method.name in TABLEAUS else FixedSteps
    return in_lock_step(steps, problem, callback)
