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

from ensemble._kernels.ode import differences
from ensemble._typing import Array
from ensemble.linalg import CrsMatrix
from ensemble.linalg.triangular_factors import put_samples, with_capacity
from ensemble.ode.control import LEAST_SPACINGS, STRETCH
from ensemble.ode.evaluation import parts_of, plan_of, threads_of
from ensemble.ode.implicit import Active, empty_solution, started
from ensemble.ode.methods.bdf import ALPHA, ERROR, GAMMA, MOST_ORDER
from ensemble.ode.methods.inverse_root import inverse_root
from ensemble.ode.passages import Passages, Steps
from ensemble.ode.problem import Problem, Solution
from ensemble.ode.result import OdeStatus

__all__ = ["run"]

ITERATIONS = 4
"""Newton iterations of a step."""

DRIFT = 0.3
"""Change of c, relative, from which factors are made again."""

OLDEST = 20
"""Steps that factors serve."""

TOGETHER = 32
"""Samples that wait for factors before some are made; fewer where half of all wait."""

NEWTON = 0.03
"""Of the last correction to the local error that is allowed."""

SAFETY, LEAST_FACTOR, LARGEST_FACTOR, KEPT_FACTOR = 0.9, 0.2, 10.0, 1.2
"""Of a new step over the old one; a growth below the last of them is left for later."""


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


class Run:
    """One problem on its way."""

    def __init__(self, problem: Problem, solution: Solution) -> None:
        self.problem, self.solution = problem, solution
        self.parts, self.passages = parts_of(problem.system), Passages(problem, solution)
        real, n = problem.dtype, problem.system.n
        self._gamma, self._alpha, self._error = (np.asarray(table, real) for table in (GAMMA, ALPHA, ERROR))
        self._plan, most = plan_of(self.parts, n, real)
        n_columns = min(most, problem.n_samples)
        self._factors = with_capacity(self._plan, n_columns)
        none = started(problem, self.parts, self.passages, solution, np.arange(0))
        self.columns = Columns(n, n_columns, none)
        self._entered = 0

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
                self._begin(columns, np.ones(columns.size, problem.dtype))
            idle = np.flatnonzero(~at.live)
        if self._entered == S and 2 * idle.size >= at.live.size > 8:
            self._keep(np.flatnonzero(at.live))
        return bool(at.live.any())

    def _keep(self, columns: Array) -> None:
        factors = with_capacity(self._factors, columns.size)
        put_samples(factors, np.arange(columns.size), self._factors, columns)
        self.columns.keep(columns)
        self._factors = factors

    def _end(self, columns: Array, status: Array, t: Array, y: Array) -> None:
        """Samples that have ended leave their columns."""
        fixed, solution = self.columns.fixed, self.solution
        ids = fixed.ids[columns]
        solution.status[ids] = np.where(np.isfinite(y).all(axis=0), status, OdeStatus.non_finite)
        solution.t[ids], solution.y[:, ids] = t, y
        solution.n_steps[ids], solution.n_rejected[ids] = fixed.n_steps[columns], fixed.n_rejected[columns]
        fixed.ids[columns] = -1
        self.columns.waiting[columns] = False

    # --- factors
    def refactor(self) -> None:
        """New factors for the samples that wait, where they are enough or no other can go on."""
        at, waiting = self.columns, np.flatnonzero(self.columns.waiting)
        n_live = int(at.live.sum())
        if not waiting.size or (waiting.size < min(TOGETHER, (n_live + 1) // 2)):
            return
        rows = np.stack([at.t_new[waiting], *at.fixed.p[:, waiting], at.per_c[waiting]])
        entries = self.parts.matrix(rows, np.ascontiguousarray(at.y[:, waiting]))
        made = self._plan.update(CrsMatrix(self.parts.graph, entries))
        put_samples(self._factors, waiting, made, np.arange(waiting.size))
        at.c_factors[waiting], at.age[waiting], at.rate[waiting] = 1.0 / at.per_c[waiting], 0, 1.0
        at.waiting[waiting] = False

    # --- steps
    def _begin(self, columns: Array, factor: Array, renew: Array | None = None) -> None:
        """Start a step in some columns, `factor` times as long as the one before; `renew`: with new factors."""
        at, fixed = self.columns, self.columns.fixed
        t, h = fixed.t[columns], fixed.h[columns]
        lost = at.lost[columns]
        longest, rest = fixed.longest[columns], (fixed.t1[columns] - t) - lost
        made = h * factor
        made = np.where(np.abs(made) > longest, fixed.direction[columns] * longest, made)
        near = np.abs(made) * STRETCH >= np.abs(rest)
        last = near & (np.abs(rest) <= longest)
        made = np.where(last, rest, np.where(near, 0.5 * rest, made))  # two last steps where one would be too long
        same = made == h
        factor = np.where(same, 1.0, made / h).astype(h.dtype)
        order = at.order[columns]
        fixed.h[columns], at.last[columns] = made, last
        t_new = np.where(last, fixed.t1[columns], t + (made + lost))
        at.t_new[columns], at.lost_new[columns] = t_new, (made + lost) - (t_new - t)
        at.n_equal[columns] = np.where(same, at.n_equal[columns], 0)
        at.iteration[columns] = 0
        at.age[columns] += 1
        differences.predict(at.table, order, factor, columns, self._gamma, self._alpha, at.y, at.psi, at.d)
        at.per_c[columns] = self._alpha[order] / made
        drift = np.abs(at.per_c[columns] * at.c_factors[columns] - 1.0)  # c of the factors over c, less 1
        stale = ~(drift <= DRIFT) | (at.age[columns] > OLDEST)
        at.waiting[columns] = stale if renew is None else stale | renew

    def iterate(self) -> None:
        """One Newton iteration of all samples that have their factors, and what follows from it."""
        at, fixed = self.columns, self.columns.fixed
        going = at.live & ~at.waiting
        if not going.any():
            return
        f = self.parts.f(np.stack([at.t_new, *fixed.p]), at.y)
        differences.residual(f, at.psi, at.d, at.per_c)
        dy = self._factors.apply(f)
        scale = (2.0 / (1.0 + at.c_factors * at.per_c)).astype(dy.dtype)
        square, errors = differences.norms_of_correction(
            dy, scale, at.d, at.y, at.table[0], fixed.rtol, fixed.atol
        )  # fmt: skip
        norm, constant = np.sqrt(square), self._error[at.order]
        ratio = norm / at.norm
        rate = np.where(at.iteration == 0, at.rate, np.maximum(0.3 * at.rate, ratio))
        diverged = ~np.isfinite(norm) | ((at.iteration > 0) & (ratio > 2.0))
        converged = going & ~diverged & (norm * np.minimum(rate, 1.0) * constant <= NEWTON)
        at.iteration[going] += 1
        failed = going & (diverged | (~converged & (at.iteration >= ITERATIONS)))
        at.rate[going], at.norm[going] = rate[going], norm[going]
        differences.correct(at.y, at.d, dy, going & ~failed)
        if converged.any() or failed.any():
            self._judge(converged, failed, constant * constant * errors)

    def _judge(self, converged: Array, failed: Array, squares: Array) -> None:
        """End the steps of some samples and begin others."""
        at, fixed = self.columns, self.columns.fixed
        real = fixed.h.dtype
        stale = failed & (at.age > 0)  # factors of an earlier step: the same step again with new ones
        failed = failed & ~stale
        accepted = converged & (squares <= 1.0)
        rejected = converged & ~accepted
        factor = np.ones(at.order.size, real)
        safety = SAFETY * (2 * ITERATIONS + 1) / (2 * ITERATIONS + at.iteration)
        factor[failed] = 0.25
        some = np.flatnonzero(rejected)
        if some.size:
            factor[some] = np.maximum(LEAST_FACTOR, safety[some] * _roots(squares[some], at.order[some] + 1))
        refused = failed | rejected
        fixed.n_steps[accepted | refused] += 1.0
        fixed.n_rejected[refused] += 1.0
        tiny = np.abs(fixed.h) <= LEAST_SPACINGS * np.finfo(real).eps * np.abs(fixed.t)
        status = np.where(fixed.n_steps >= fixed.most, OdeStatus.too_many_steps, 0)
        status = np.where(refused & tiny, OdeStatus.step_too_small, status)
        columns = np.flatnonzero(accepted)
        if columns.size:
            self._accept(columns, factor, safety, squares, status)
        over = np.flatnonzero(refused & (status > 0))
        if over.size:
            self._end(over, status[over], fixed.t[over], at.table[0][:, over])
        going = np.flatnonzero((converged | failed | stale) & at.live)
        if going.size:
            self._begin(going, factor[going], stale[going])

    def _accept(self, columns: Array, factor: Array, safety: Array, squares: Array, status: Array) -> None:
        """Accepted steps: new differences, what they passed, and the length and order of the next step."""
        at, fixed = self.columns, self.columns.fixed
        t_old, t_new, h, order = fixed.t[columns], at.t_new[columns], fixed.h[columns], at.order[columns]
        differences.accept(at.table, at.d, order, columns)
        fixed.t[columns], at.lost[columns] = t_new, at.lost_new[columns]
        at.n_equal[columns] += 1
        status = np.where(at.last[columns], OdeStatus.finished, status[columns])
        over = status > 0
        t, y = t_new, None
        if self.problem.is_dense:

            def dense(chosen: Array, theta: Array) -> Array:
                return differences.interpolate(at.table, order[chosen], columns[chosen], theta)

            state, p = np.ascontiguousarray(at.table[0][:, columns]), np.ascontiguousarray(fixed.p[:, columns])
            events = self.passages.values(t_new, p, state)
            steps = Steps(fixed.ids[columns], t_old, t_new, h, p, fixed.t_eval[:, columns], fixed.events[:, columns],
                          events, state, dense)  # fmt: skip
            ended, limit = self.passages.passed(steps)
            fixed.events[:, columns] = events
            some = np.flatnonzero(ended)
            if some.size:
                t, y = np.where(ended, t_old + limit * h, t_new), state
                y[:, some] = dense(some, limit[some])
                status, over = np.where(ended, OdeStatus.event, status), over | ended
        if over.any():
            gone = columns[over]
            y = at.table[0][:, gone] if y is None else y[:, over]
            self._end(gone, status[over], t[over], y)
        choosing = columns[~over & (at.n_equal[columns] > at.order[columns])]
        if choosing.size:
            factor[choosing] = self._choose(choosing, safety[choosing], squares[choosing])

    def _choose(self, columns: Array, safety: Array, square: Array) -> Array:
        """The order of the next steps, and the factors of their lengths."""
        at, fixed = self.columns, self.columns.fixed
        order = at.order[columns]
        below, above = differences.norms_of_differences(at.table, order, columns, fixed.rtol, fixed.atol)
        below = np.where(order > 1, self._error[order - 1] ** 2 * below, np.inf)
        above = np.where(order < MOST_ORDER, self._error[np.minimum(order + 1, MOST_ORDER)] ** 2 * above, np.inf)
        factors = np.stack([_roots(part, order + k) for k, part in enumerate((below, square, above))])
        choice = factors.argmax(axis=0)
        factor = np.minimum(LARGEST_FACTOR, safety * factors.max(axis=0)).astype(square.dtype)
        same = (factor < KEPT_FACTOR) & (factor >= 1.0)
        at.order[columns] = np.where(same, order, order + choice - 1)
        at.n_equal[columns] = np.where(same, at.n_equal[columns], 0)
        return np.where(same, 1.0, factor)


def _roots(squares: Array, order: Array) -> Array:
    """``squares**(-1 / (2 order))`` with an order for each; that of an infinite one is 1e-30's."""
    bounded = np.where(squares < 1e30, np.maximum(squares, 1e-30), 1e30).astype(squares.dtype)
    out = np.empty_like(bounded)
    for k in range(1, MOST_ORDER + 3):
        here = order == k
        if here.any():
            out[here] = inverse_root(bounded[here], 2 * k, np)
    return out


def run(problem: Problem, callback: Callable[[int], None] | None = None) -> Solution:
    """Integrate all samples; `callback` is given the samples that are finished and may raise."""
    solution = empty_solution(problem)
    # a sample whose numbers overflow concerns no other
    with threads_of(problem.system.n, problem.n_samples), np.errstate(all="ignore"):
        made = Run(problem, solution)
        while made.refill():
            made.refactor()
            made.iterate()
            if callback is not None:
                callback(int((solution.status > 0).sum()))
    return solution
