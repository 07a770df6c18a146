"""Rodas4 for systems of more unknowns than straight-line code can carry: all samples take a step together.

Each sample has its own time and step length. The matrices ``I / (h GAMMA) - J`` of all samples are one sparse
factorisation (`linalg.Factorization`); f and J are programs that an interpreter runs over tiles of samples. Samples
that end make room for others, so that few columns are idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._kernels.ode.lock_step import mean_square, stage_sum
from ensemble._kernels.ode.program import Program, program_of, run_program
from ensemble._typing import Array
from ensemble.linalg import CrsGraph, CrsMatrix, Factorization
from ensemble.ode.control import LARGEST_FACTOR, LEAST_FACTOR, SAFETY, STRETCH
from ensemble.ode.methods.inverse_root import inverse_root
from ensemble.ode.methods.method import weighted
from ensemble.ode.methods.rodas4 import DENSE, GAMMA, NODES, RODAS4, TIME, A, C
from ensemble.ode.problem import Problem, Solution
from ensemble.ode.result import OdeStatus
from ensemble.ode.system import System

__all__ = ["FROM", "run"]

FROM = 31
"""Unknowns from which the factorisation is a loop over stored entries instead of straight-line code."""

VALUES = 1 << 17
"""Values of y that are in progress at a time."""

KEPT = 16
"""Systems of which the programs are kept."""


class Evaluation:
    """A graph of t, y, p and more, for arrays of all samples."""

    def __init__(self, graph: Graph, n: int, dtype: str) -> None:
        self.graph, self._n = graph, n
        self._program: Program | None = program_of(graph, n, dtype)

    def __call__(self, rows: Array, y: Array, out: Array | None = None) -> Array:
        """The outputs, (n_outputs, S): `rows` holds t, the parameters and more, (n_rows, S)."""
        if self._program is not None:
            return run_program(self._program, rows, y, out)
        results = replay(self.graph, [rows[0], *y, *rows[1:]], np)
        out = np.empty((len(results), y.shape[1]), y.dtype) if out is None else out
        for k, result in enumerate(results):
            out[k] = result
        return out


class Parts(NamedTuple):
    """What the steps of one system need."""

    f: Evaluation
    matrix: Evaluation
    """The stored entries of ``shift I - J``; the last row is the shift."""
    slope: Evaluation | None
    """df/dt; None where f does not depend on the time."""
    graph: CrsGraph


_kept: dict[Any, Parts] = {}


def parts_of(system: System) -> Parts:
    """The programs and the sparsity of a system, kept by its trace."""
    key = (system.graph.nodes, system.graph.outputs, system.n_parameters, system.dtype)
    if key not in _kept:
        if len(_kept) >= KEPT:
            _kept.pop(next(iter(_kept)))
        _kept[key] = _parts(system)
    return _kept[key]


def _parts(system: System) -> Parts:
    n, k, real = system.n, system.n_parameters, Scalar(system.dtype)
    pattern = sorted(system.jacobian_pattern() | {(i, i) for i in range(n)})
    indptr = np.concatenate([[0], np.cumsum(np.bincount([i for i, _ in pattern], minlength=n))])
    graph = CrsGraph(indptr, [j for _, j in pattern], (n, n))
    constant = False

    def matrix(*values: Any) -> Any:
        shift, zero = values[-1], 0.0 * values[-1]
        entries = system.bound(shift.__array_namespace__()).jacobian(values[0], values[1 : n + 1], values[n + 1 : -1])
        stored = [entries.get(place) for place in pattern]
        return [
            shift if i == j and value is None else shift - value if i == j else zero if value is None else zero - value
            for (i, j), value in zip(pattern, stored, strict=True)
        ]

    def slope(*values: Any) -> Any:
        nonlocal constant
        xp = values[0].__array_namespace__()
        slopes = system.bound(xp).time_derivative(values[0], values[1 : n + 1], values[n + 1 :])
        constant = all(value is None for value in slopes)
        return [xp.full_like(values[0], 0.0 if value is None else value) for value in slopes]

    point = [real] * (1 + n + k)
    slope_graph = trace(slope, *point, function="ode.solve")
    evaluated = Evaluation(system.graph, n, system.dtype)
    whole = Evaluation(trace(matrix, *point, real, function="ode.solve"), n, system.dtype)
    return Parts(evaluated, whole, None if constant else Evaluation(slope_graph, n, system.dtype), graph)


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

    def taken(self, columns: Array) -> Active:
        """Some of them."""
        return Active(*(np.ascontiguousarray(field[..., columns]) for field in self))

    def joined(self, others: Active) -> Active:
        """These and others."""
        return Active(*(np.concatenate(pair, axis=-1) for pair in zip(self, others, strict=True)))


class Stepped(NamedTuple):
    """What one step gives: the new values, the estimates of their errors, and the stages."""

    y: Array
    error: Array
    stages: Array


class Steps:
    """Steps of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.parts = problem, parts_of(problem.system)
        self._factors: Factorization | None = None
        self._weights = [[np.array(row, problem.dtype) for row in table] for table in (A, C)]
        self._one = np.ones(1, problem.dtype)

    def factorized(self, rows: Array, y: Array) -> Factorization:
        """The factors of the matrices of all samples."""
        matrix = CrsMatrix(self.parts.graph, self.parts.matrix(rows, y))
        self._factors = Factorization(matrix) if self._factors is None else self._factors.update(matrix)
        return self._factors

    def step(self, now: Active, h: Array) -> Stepped:
        """One step of each sample."""
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
        return Stepped(point + stages[-1], stages[-1], stages)

    def dense(self, now: Active, made: Stepped, columns: Array, theta: Array) -> Array:
        """y at ``t + theta h`` in some columns, (n, n_columns)."""
        stages = [stage[:, columns] for stage in made.stages[:-1]]
        third, fourth = (weighted(row, stages) for row in DENSE)
        rise = made.y[:, columns] - now.y[:, columns]
        return now.y[:, columns] + theta * (rise + third + theta * (fourth - third - theta * fourth))


def _first_steps(steps: Steps, now: Active) -> Array:
    """The lengths of the first steps, with their signs (Hairer, Norsett, Wanner 1993, section II.4)."""
    rows, y = np.stack([now.t, *now.p]), now.y
    slope = steps.parts.f(rows, y)
    size, rate = (mean_square(values, y, y, now.rtol, now.atol) for values in (y, slope))
    small = (size < 1e-10) | (rate < 1e-10)
    first = np.where(small, 1e-6, 0.01 * np.sqrt(size / np.where(small, 1.0, rate)))
    first = np.minimum(first, now.longest).astype(y.dtype)
    rows[0] += first * now.direction
    other = steps.parts.f(rows, y + (first * now.direction) * slope)
    curvature = mean_square(other - slope, y, y, now.rtol, now.atol) / (first * first)
    largest = np.maximum(rate, curvature)  # squared
    bounded = np.clip(largest * 1e4, 1e-30, 1e30).astype(y.dtype)
    second = inverse_root(bounded, 2 * (RODAS4.error_order or 1), np)
    second = np.where(largest <= 1e-30, np.maximum(1e-6, first * 1e-3), second)
    length = np.minimum(np.minimum(100.0 * first, second), now.longest)
    length = np.where(np.isfinite(length), length, 1e-6)
    return np.where(now.h == 0.0, length * now.direction, now.h).astype(y.dtype)


def _entering(problem: Problem, ids: Array) -> Active:
    """Samples at their start."""

    def of(values: Array) -> Array:
        return np.ascontiguousarray(values[..., ids] if values.shape[-1] > 1 else np.repeat(values, ids.size, axis=-1))

    direction = np.sign(problem.t1 - problem.t0).astype(problem.dtype)
    zeros = np.zeros(ids.size, problem.dtype)
    arrays = (problem.t0, problem.y0, problem.step, problem.p, problem.t0, problem.t1, direction, problem.rtol,
              problem.atol, problem.longest, problem.n_steps, problem.t_eval)  # fmt: skip
    return Active._make([ids, *map(of, arrays), zeros, zeros, zeros])


def run(problem: Problem, callback: Callable[[int], None] | None = None) -> Solution:
    """Integrate all samples; `callback` is given the samples that are finished and may raise."""
    with np.errstate(all="ignore"):  # a sample whose numbers overflow concerns no other
        return _run(problem, callback)


def _run(problem: Problem, callback: Callable[[int], None] | None) -> Solution:
    S, n, dtype = problem.n_samples, problem.system.n, problem.dtype
    solution = Solution(
        np.empty((n, S), dtype), np.empty(S, dtype), np.zeros(S, np.int8), np.zeros(S, np.int64), np.zeros(S, np.int64),
        np.full((problem.t_eval.shape[0], n, S), np.nan, dtype), np.empty((0, problem.max_roots, S), dtype),
        np.zeros((0, S), np.int64),
    )  # fmt: skip
    steps, room = Steps(problem), max(VALUES // n, 32)
    now = _started(steps, solution, np.arange(min(room, S)))
    entered = min(room, S)
    while now.ids.size:
        now, ended = _advanced(steps, solution, now)
        idle = int(ended.sum())
        if 2 * idle >= min(room, now.ids.size):
            now = now.taken(np.flatnonzero(~ended))
            if entered < S:
                ids = np.arange(entered, min(entered + room - now.ids.size, S))
                now, entered = now.joined(_started(steps, solution, ids)), entered + ids.size
            if callback is not None:
                callback(entered - now.ids.size)
    return solution


def _started(steps: Steps, solution: Solution, ids: Array) -> Active:
    """Samples with their first steps; those that cannot move are ended and left out."""
    problem = steps.problem
    now = _entering(problem, ids)
    solution.y[:, ids], solution.t[ids] = now.y, now.t
    columns, times = np.nonzero((now.t_eval == now.t0).T)
    solution.y_out[times, :, ids[columns]] = now.y[:, columns].T
    slope = steps.parts.f(np.stack([now.t, *now.p]), now.y)
    finite = np.isfinite(now.y).all(axis=0) & np.isfinite(slope).all(axis=0)
    still = now.t0 == now.t1
    solution.status[ids[~finite]] = OdeStatus.non_finite
    solution.status[ids[finite & still]] = OdeStatus.finished
    now = now.taken(np.flatnonzero(finite & ~still))
    if problem.method.error_order is None or not now.ids.size:
        return now
    return now._replace(h=_first_steps(steps, now))


def _advanced(steps: Steps, solution: Solution, now: Active) -> tuple[Active, Array]:
    """One step of all samples, and which of them have ended; those that had ended before do not change."""
    fixed, m = steps.problem.method.error_order is None, 2 * (RODAS4.error_order or 1)
    running: Array = solution.status[now.ids] == 0
    rest, count = now.t1 - now.t, now.n_steps + 1.0
    last: Array = count >= now.most if fixed else np.abs(now.h) * STRETCH >= np.abs(rest)
    h = np.where(last, rest, now.h)
    accepted: Array
    proposed: Array
    made = steps.step(now, np.where(running, h, 1.0).astype(h.dtype))
    t_new = np.where(last, now.t1, now.t0 + count * now.h if fixed else now.t + h)
    if fixed:
        accepted, proposed, failed = running, now.h, np.zeros_like(running)
    else:
        square: Array = mean_square(made.error, now.y, made.y, now.rtol, now.atol)
        accepted, most = running & (square <= 1.0), (SAFETY / LEAST_FACTOR) ** m
        bounded = np.where(square <= most, np.maximum(square, (SAFETY / LARGEST_FACTOR) ** m), most).astype(h.dtype)
        factor = SAFETY * inverse_root(bounded, m, np)
        proposed = h * np.where(now.rejected > 0.0, np.minimum(factor, 1.0), factor)
        proposed = now.direction * np.minimum(np.abs(proposed), now.longest)
        tiny = np.abs(h) <= 10.0 * np.finfo(h.dtype).eps * np.abs(now.t)
        failed = running & ~accepted & (tiny | (proposed == 0.0))
    _write(steps, solution, now, made, accepted, t_new, h)
    h_next: Array = np.where(running, proposed, now.h)
    after = now._replace(
        t=np.where(accepted, t_new, now.t),
        y=np.where(accepted, made.y, now.y),
        h=h_next.astype(h.dtype),
        n_steps=np.where(running, count, now.n_steps),
        n_rejected=now.n_rejected + (running & ~accepted),
        rejected=(~accepted).astype(h.dtype),
    )
    status: Array = np.where(count >= now.most, OdeStatus.too_many_steps, 0)
    status = np.where(failed, OdeStatus.step_too_small, status)
    status = np.where(accepted & last, OdeStatus.finished, status)
    status = np.where((status > 0) & ~np.isfinite(after.y).all(axis=0), OdeStatus.non_finite, status)
    columns = np.flatnonzero(running & (status > 0))
    ids = now.ids[columns]
    solution.status[ids], solution.t[ids], solution.y[:, ids] = status[columns], after.t[columns], after.y[:, columns]
    solution.n_steps[ids], solution.n_rejected[ids] = after.n_steps[columns], after.n_rejected[columns]
    return after, solution.status[now.ids] > 0


def _write(steps: Steps, solution: Solution, now: Active, made: Stepped, moved: Array, t_new: Array, h: Array) -> None:
    """The values at the times that the steps have passed."""
    passed = moved & ((now.t_eval - now.t) * now.direction > 0.0) & ((now.t_eval - t_new) * now.direction <= 0.0)
    columns, times = np.nonzero(passed.T)
    if columns.size:
        wanted = now.t_eval[times, columns]
        values = steps.dense(now, made, columns, (wanted - now.t[columns]) / h[columns])
        values = np.where(wanted == t_new[columns], made.y[:, columns], values)
        solution.y_out[times, :, now.ids[columns]] = values.T
