"""Backward differentiation formulas of orders 1 to 5 for many unknowns: all samples iterate together.

The numerical differentiation formulas of Shampine and Reichelt [1]_ with steps of quasi-constant length, each sample
with its own time, step length and order. One pass makes one Newton iteration of every sample: f by an interpreter of
its trace, one solution with the sparse factors. A sample that has converged ends its step and predicts the next one in
the same pass, so no sample waits for the iterations of another.

Each sample keeps the factors of ``I / c - J``, where c = h / alpha, over many steps, as CVODE does [2]_: until c has
changed by `DRIFT`, for at most `OLDEST` steps, or until the iteration diverges. Samples that need new factors wait
until some are together, because a tile of one sample costs as much as a full one. Neither changes a bit of a sample.

Memory per sample: 8 differences and 5 vectors of n numbers, and the factors.

References
----------
.. [1] Shampine, Reichelt (1997), The MATLAB ODE Suite, SIAM J. Sci. Comput. 18(1), 1-22.
.. [2] Hindmarsh et al. (2005), SUNDIALS, ACM Trans. Math. Softw. 31(3), 363-396, section 2.1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ensemble._kernels.ode import bdf_steps, differences
from ensemble._kernels.ode.bdf_alone import passes_alone
from ensemble._kernels.ode.rodas_alone import AlonePlan, alone_plan
from ensemble._typing import Array
from ensemble.linalg.factorizations.triangular_factors import factor_tiles, put_samples, updated, with_capacity
from ensemble.ode.control import LEAST_SPACINGS, STRETCH
from ensemble.ode.evaluation import kept_plan, parts_of, plan_of, threads_of
from ensemble.ode.implicit import Active, empty_solution, started
from ensemble.ode.methods.bdf import ALPHA, ERROR, GAMMA, MOST_ORDER
from ensemble.ode.ode_result import OdeStatus
from ensemble.ode.passages import Passages, Steps
from ensemble.ode.problem import Problem, Solution

__all__ = ["run"]

DRIFT = 0.3
"""Change of c, relative, from which factors are made again."""

TOGETHER = 32
"""Samples that wait for factors before some are made; fewer where half of all wait."""

NEWTON = 0.03
"""Of the last correction to the local error that is allowed."""

KEPT_FACTOR = 1.2
"""A growth of steps below it is left for later."""


FEW, SMALL = 4, 600
"""Samples, and unknowns of all of them, up to which one sample after the other is faster.

A pass of all samples has 30 us of Python, a pass of one has none. Equally fast are both at 14 samples of 53 unknowns, 6
of 100, about 100 of 8 and 250 of 3 (`benchmarks ode-dense`).
"""


class Columns:
    """The samples in progress, one column each. A column without a sample has an id below 0."""

    def __init__(self, n: int, n_columns: int, like: Active) -> None:
        real = like.y.dtype
        self.fixed = Active(*(np.zeros((*field.shape[:-1], n_columns), field.dtype) for field in like))
        self.fixed.ids[:] = -1
        self.table = np.zeros((MOST_ORDER + 3, n, n_columns), real)
        """The differences."""
        self.y, self.psi, self.d = (np.zeros((n, n_columns), real) for _ in range(3))
        self.lost, self.lost_new = np.zeros(n_columns, real), np.zeros(n_columns, real)
        """What t and t_new are short of the sum of the steps: without it, steps of a few spacings of t lose time."""
        self.t_new, self.rate, self.norm, self.per_c, self.c_factors = (np.ones(n_columns, real) for _ in range(5))
        self.order, self.n_equal, self.iteration, self.age = (np.ones(n_columns, np.int64) for _ in range(4))
        self.waiting, self.last = np.zeros(n_columns, bool), np.zeros(n_columns, bool)
        self.square, self.factor, self.t_old = (np.ones(n_columns, real) for _ in range(3))
        """Of the last step: the squared norm of its error, the factor of the next one, and its start."""
        self.outcome, self.act, self.status = (np.zeros(n_columns, np.int8) for _ in range(3))

    @property
    def live(self) -> Array:
        """Which columns have a sample."""
        return self.fixed.ids >= 0

    def enter(self, columns: Array, now: Active) -> None:
        """Put samples at their start into columns."""
        for mine, given in zip(self.fixed, now, strict=True):
            mine[..., columns] = given
        self.table[..., columns] = 0.0
        self.table[0][:, columns] = now.y
        self.order[columns], self.n_equal[columns] = 1, 0
        self.c_factors[columns], self.age[columns], self.lost[columns] = 0.0, 0, 0.0

    def keep(self, columns: Array) -> None:
        """Drop all other columns."""
        for name, value in vars(self).items():
            fields = value if name == "fixed" else [value]
            taken = [np.ascontiguousarray(field[..., columns]) for field in fields]
            setattr(self, name, Active._make(taken) if name == "fixed" else taken[0])


def alone(n: int, n_samples: int) -> bool:
    """Whether samples of `n` unknowns are taken one after the other: it changes no bit."""
    return n_samples <= FEW or n * n_samples <= SMALL


class Run:
    """One problem on its way."""

    def __init__(self, problem: Problem, solution: Solution) -> None:
        self.problem, self.solution = problem, solution
        self.parts, self.passages = parts_of(problem.system), Passages(problem, solution)
        real, n = problem.dtype, problem.system.n
        self._gamma, self._alpha, self._error = (np.asarray(table, real) for table in (GAMMA, ALPHA, ERROR))
        self._numbers = bdf_steps.bdf_numbers(real, n, NEWTON, KEPT_FACTOR, DRIFT, STRETCH, LEAST_SPACINGS)
        self._plan, most = plan_of(self.parts, n, real)
        self._alone = kept_plan(self.parts, "bdf alone", self._plan_alone) if alone(n, problem.n_samples) else None
        n_columns = min(most, problem.n_samples) if self._alone is None else 1
        self._factors = with_capacity(self._plan, n_columns)
        self._tiles = factor_tiles(self._factors)
        if self._alone is not None:
            self._work, self._broken = self._alone.work.copy(), np.zeros(1, real)
        none = started(problem, self.parts, self.passages, solution, np.arange(0))
        self.columns = Columns(n, n_columns, none)
        self._entered = 0
        self.n_ended = 0
        """Samples whose runs have ended after their first step."""

    def _plan_alone(self) -> AlonePlan | None:
        """The plan of passes of a lone sample without Python, where f and its matrix are basic operations."""
        matrix, f, plan = self.parts.matrix.basic, self.parts.f.basic, self._plan.plan
        if plan.flat is None or matrix is None or f is None:
            return None
        return alone_plan(matrix, None, f, plan, 1, np.zeros(1, self.problem.dtype))

    # --- samples come and go
    def refill(self) -> bool:
        """Put samples into columns that have none; whether there are samples in progress."""
        problem, S = self.problem, self.problem.n_samples
        at = self.columns
        idle = np.flatnonzero(~at.live)
        while self._entered < S and idle.size and 4 * idle.size >= at.live.size:
            ids = np.arange(self._entered, min(self._entered + idle.size, S))
            self._entered += ids.size
            now = started(problem, self.parts, self.passages, self.solution, ids, 1)
            columns = idle[: now.ids.size]
            if columns.size:
                at.enter(columns, now)
                slope = self.parts.f(np.stack([now.t, *now.p]), now.y)
                at.table[1][:, columns] = slope * now.h
                at.act[...], at.factor[...] = 0, 1.0
                at.act[columns] = bdf_steps.BEGINS
                self._begin()
            idle = np.flatnonzero(~at.live)
        if self._entered == S and 2 * idle.size >= at.live.size > 8:
            self._keep(np.flatnonzero(at.live))
        return bool(at.live.any())

    def _keep(self, columns: Array) -> None:
        factors = with_capacity(self._factors, columns.size)
        put_samples(factors, np.arange(columns.size), self._factors, columns)
        self.columns.keep(columns)
        self._factors, self._tiles = factors, factor_tiles(factors)

    def _end(self, columns: Array, status: Array, t: Array, y: Array) -> None:
        """Samples that have ended leave their columns."""
        fixed, solution = self.columns.fixed, self.solution
        ids = fixed.ids[columns]
        solution.status[ids] = np.where(np.isfinite(y).all(axis=0), status, OdeStatus.non_finite)
        solution.t[ids], solution.y[:, ids] = t, y
        solution.n_steps[ids], solution.n_rejected[ids] = fixed.n_steps[columns], fixed.n_rejected[columns]
        fixed.ids[columns] = -1
        self.n_ended += columns.size
        self.columns.waiting[columns] = False

    # --- factors
    def refactor(self) -> None:
        """New factors for the samples that wait, where they are enough or no other can go on."""
        at = self.columns
        if self._alone is not None or not np.count_nonzero(at.waiting):
            return
        waiting, n_live = np.flatnonzero(at.waiting), int(at.live.sum())
        if waiting.size < min(TOGETHER, (n_live + 1) // 2):
            return
        rows = np.stack([at.t_new[waiting], *at.fixed.p[:, waiting], at.per_c[waiting]])
        entries = self.parts.matrix(rows, np.ascontiguousarray(at.y[:, waiting]))
        made = updated(self._plan, entries)
        put_samples(self._factors, waiting, made, np.arange(waiting.size))
        at.c_factors[waiting], at.age[waiting], at.rate[waiting] = 1.0 / at.per_c[waiting], 0, 1.0
        at.waiting[waiting] = False

    # --- steps
    def _begin(self) -> None:
        """Start the next steps where `act` is not 0."""
        bdf_steps.begun(self.columns, self._numbers, self._gamma, self._alpha, self._error)

    def iterate(self) -> None:
        """One Newton iteration of all samples that have their factors, and what follows from it; alone many of them."""
        at, fixed = self.columns, self.columns.fixed
        if self._alone is not None:
            tables = self._numbers, self._gamma, self._alpha, self._error
            if passes_alone(self._alone, at, tables, self._work, self._broken, len(self.problem.events) > 0):
                self._ended()
                self._begin()
            return
        f = self.parts.f(np.concatenate([at.t_new[None], fixed.p]), at.y)
        tiles = self._tiles
        if tiles is None:
            differences.residual(f, at.psi, at.d, at.per_c)
            change = self._factors.apply(f)
        else:
            change = differences.corrections(f, at.psi, at.d, at.per_c, tiles, self._plan.plan.flat)
        bdf_steps.iterated(at, change, self._numbers, self._error)
        if np.count_nonzero(at.outcome):
            bdf_steps.finished(at, self._numbers)
            if self.problem.is_dense or np.count_nonzero(at.status):
                self._ended()
            self._begin()

    def _ended(self) -> None:
        """Record the output times that accepted steps passed; mark the samples whose runs have ended."""
        at, fixed = self.columns, self.columns.fixed
        over, t, states = at.status > 0, fixed.t.copy(), at.table[0]
        columns = np.flatnonzero(at.act == bdf_steps.ACCEPTED)
        if self.problem.is_dense and columns.size:
            h, order = fixed.h[columns], at.order[columns]

            def dense(chosen: Array, theta: Array) -> Array:
                return differences.interpolate(at.table, order[chosen], columns[chosen], theta)

            state, p = np.ascontiguousarray(at.table[0][:, columns]), np.ascontiguousarray(fixed.p[:, columns])
            t_old, t_new = at.t_old[columns], fixed.t[columns]
            events = self.passages.values(t_new, p, state)
            steps = Steps(fixed.ids[columns], t_old, t_new, h, p, fixed.t_eval[:, columns], fixed.events[:, columns],
                          events, state, dense)  # fmt: skip
            ended, limit = self.passages.passed(steps)
            fixed.events[:, columns] = events
            some = np.flatnonzero(ended)
            if some.size:
                gone = columns[some]
                states = at.table[0].copy()
                states[:, gone], t[gone] = dense(some, limit[some]), (t_old + limit * h)[some]
                at.status[gone], over[gone] = OdeStatus.event, True
        gone = np.flatnonzero(over)
        if gone.size:
            self._end(gone, at.status[gone].astype(np.int64), t[gone], states[:, gone])
            at.act[gone] = 0


def run(problem: Problem, callback: Callable[[int], None] | None = None) -> Solution:
    """Integrate all samples; `callback` is given the samples that are finished and may raise."""
    solution = empty_solution(problem)
    # a sample whose numbers overflow concerns no other
    with threads_of(problem.system.n, problem.n_samples), np.errstate(all="ignore"):
        made, n_ended = Run(problem, solution), -1
        while made.n_ended == n_ended or made.refill():
            made.refactor()
            n_ended = made.n_ended
            made.iterate()
            if callback is not None and made.n_ended != n_ended:
                callback(made.n_ended)
    return solution
