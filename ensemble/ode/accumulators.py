"""Statistics over the time of each sample as further rows of the loop over steps."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.replay import replay
from ensemble._typing import Array
from ensemble.ode import implicit
from ensemble.ode.compiled import Bodies, bodies_of
from ensemble.ode.control import Rows
from ensemble.ode.extension import (
    Extension,
    Extra,
    Sizes,
    extended_bodies,
    extended_problem,
    require_own_steps,
    require_traceable,
    run_bodies,
    sizes_of,
)
from ensemble.ode.methods.method import interpolated
from ensemble.ode.numbers import with_numbers
from ensemble.ode.problem import Problem, Solution

__all__ = ["KINDS", "accumulated"]

NODES = (0.5 - 0.5 / math.sqrt(5.0), 0.5 + 0.5 / math.sqrt(5.0))
"""The inner points of the Gauss-Lobatto rule with four points on (0, 1); the outer ones are the ends of the step."""

WEIGHTS = (1.0 / 12.0, 5.0 / 12.0, 5.0 / 12.0, 1.0 / 12.0)

KINDS = 4
"""Rows of a functional: mean, variance, smallest and largest value."""


def accumulated(problem: Problem, graph: Graph, progress: bool, name: str) -> tuple[Solution, Array]:
    """The end of all runs, and rows (KINDS m, S) of the statistics."""
    n, m = problem.system.n, len(graph.outputs)
    require_traceable(problem, name, "With t_eval it need not.")
    require_own_steps(problem, name, "Pass t_eval.", most=implicit.FROM - 1)
    problem = with_numbers(problem)
    sizes = sizes_of(problem)
    extension = _extension(sizes, graph)
    bodies = _bodies(bodies_of(problem, dense=True), sizes, graph, problem.dtype)
    xp, largest = array_namespace(problem.y0), float(np.finfo(problem.dtype).max)
    first = np.repeat(np.array([0.0, 0.0, largest, -largest], problem.dtype), m)
    added = xp.broadcast_to(asarray_like(first[:, None], problem.y0), (KINDS * m, problem.y0.shape[1]))
    unknowns = xp.concat([problem.y0, added], axis=0)
    whole = run_bodies(extended_problem(problem, extension, unknowns, problem.p), bodies, progress)
    rows, unknown = whole.y[n:], xp.asarray(xp.nan, dtype=problem.y0.dtype)
    rows = xp.where(rows[2 * m] == largest, unknown, rows) if m else rows
    return whole._replace(y=whole.y[:n]), rows


@functools.lru_cache(maxsize=64)
def _bodies(inner: Bodies, sizes: Sizes, graph: Graph, dtype: str) -> Bodies:
    """The bodies of states and statistics."""
    return extended_bodies(inner, _extension(sizes, graph), dtype, dense=False)


def _extension(sizes: Sizes, graph: Graph) -> Extension:
    """Means, variances, smallest and largest values of all functionals; their values at the new point are carried."""
    n, k, m = sizes.unknowns, sizes.parameters, len(graph.outputs)

    def start(loop: Graph, rows: Rows, values: list[Any], own: Extra, parameters: list[Any]) -> tuple[Any, list[Any]]:
        xp, y, p = values[0].__array_namespace__(), values[rows.y : rows.h], values[rows.p : rows.p + k]
        return replay(loop, values, xp), replay(graph, [values[rows.t], *y, *p], xp)

    def advance(loop: Graph, rows: Rows, values: list[Any], own: Extra, parameters: list[Any]) -> tuple[Any, Extra]:
        xp, p = values[0].__array_namespace__(), values[rows.p : rows.p + k]
        outputs = replay(loop, values, xp)
        t_old, h = outputs[rows.n_carried + 2 : rows.n_carried + 4]
        ends = rows.n_carried + 4
        old, degree = outputs[ends : ends + n], (len(outputs) - ends - n) // n
        new, at = list(outputs[rows.y : rows.y + n]), ends + n
        moved = outputs[rows.t] != t_old

        def inside(theta: float) -> list[Any]:
            y = [interpolated(old[i], outputs[at + i * degree : at + (i + 1) * degree], theta) for i in range(n)]
            return replay(graph, [t_old + theta * h, *y, *p], xp)

        last = replay(graph, [t_old + h, *new, *p], xp)
        points = [own.carried, *(inside(theta) for theta in NODES), last]
        part = h / ((t_old - values[rows.t0]) + h)
        found: list[list[Any]] = [[], [], [], []]
        for j in range(m):
            values_here = [point[j] for point in points]
            of_step = [own.unknowns[kind * m + j] for kind in range(KINDS)]
            for place, value in zip(found, _updated(of_step, values_here, part, xp), strict=True):
                place.append(value)
        unknowns = [xp.where(moved, a, b) for a, b in zip([v for row in found for v in row], own.unknowns, strict=True)]
        carried = [xp.where(moved, a, b) for a, b in zip(last, own.carried, strict=True)]
        return outputs, Extra(unknowns, carried)

    return Extension(sizes, Sizes(KINDS * m, m, 0), start, advance)


def _updated(before: Sequence[Any], values: Sequence[Any], part: Any, xp: Any) -> list[Any]:
    """The statistics with those of one more step, which is `part` of the time so far."""
    mean, variance, least, most = before
    average = _weighted(values)
    spread = _weighted([(v - average) * (v - average) for v in values])
    rise = average - mean
    variance = (1.0 - part) * (variance + part * (rise * rise)) + part * spread
    for value in values:
        least, most = xp.minimum(least, value), xp.maximum(most, value)
    return [mean + part * rise, variance, least, most]


def _weighted(values: Sequence[Any]) -> Any:
    total = WEIGHTS[0] * (values[0] + values[3])
    return total + WEIGHTS[1] * (values[1] + values[2])
