"""Statistics over the time of each sample as further rows of the loop over steps."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._compile.trace.graph import Graph, ancestors, renumbered
from ensemble._compile.trace.replay import replay
from ensemble._typing import Array, Namespace
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
    with_times_of,
)
from ensemble.ode.methods.method import interpolated, weighted
from ensemble.ode.numbers import with_numbers
from ensemble.ode.problem import Problem, Solution
from ensemble.ode.segments import over_segments
from ensemble.ode.stop_changes import change_of

__all__ = ["KINDS", "accumulated"]

KINDS = 4
"""Rows of a functional: mean, variance, smallest and largest value."""

ITERATIONS = 3
"""Places within a step at which an extreme is looked for, beside the nodes."""


def accumulated(problem: Problem, graph: Graph, progress: bool, name: str) -> tuple[Solution, Array]:
    """The end of all runs, and rows (KINDS m, S) of the statistics."""
    n, m = problem.system.n, len(graph.outputs)
    require_traceable(problem, name, "With t_eval it need not.")
    require_own_steps(problem, name, "Pass t_eval.", most=implicit.FROM - 1)
    problem = with_numbers(problem)
    sizes = sizes_of(problem)
    extension = _extension(sizes, graph)
    xp, largest = array_namespace(problem.y0), float(np.finfo(problem.dtype).max)
    first = np.repeat(np.array([0.0, 0.0, largest, -largest], problem.dtype), m)
    added = asarray_like(first[:, None], problem.y0)
    unknowns = xp.concat([problem.y0, xp.broadcast_to(added, (KINDS * m, problem.y0.shape[1]))], axis=0)
    extended = extended_problem(problem, extension, unknowns, problem.p)

    def integrate(part: Problem) -> Solution:
        bodies = _bodies(bodies_of(with_times_of(problem, part), dense=True), sizes, graph, problem.dtype)
        return run_bodies(part, bodies, progress)

    if problem.stops is None:
        whole = integrate(extended)
    else:
        whole = _over_segments(problem, extended, integrate, added, m)
    rows, unknown = whole.y[n:], xp.asarray(xp.nan, dtype=problem.y0.dtype)
    rows = xp.where(rows[2 * m] == largest, unknown, rows) if m else rows
    return whole._replace(y=whole.y[:n]), rows


def _over_segments(
    problem: Problem, extended: Problem, integrate: Callable[[Problem], Solution], first: Array, m: int
) -> Solution:
    """The end of all runs with stops, and the statistics of their segments together."""
    n, xp, S = problem.system.n, array_namespace(problem.y0), problem.n_samples
    weight, rows = xp.zeros(S, dtype=first.dtype), xp.broadcast_to(first, (first.shape[0], S))

    def alone(part: Problem) -> Solution:
        nonlocal weight, rows
        y = xp.concat([part.y0[:n], xp.broadcast_to(first, (first.shape[0], part.y0.shape[1]))], axis=0)
        made = integrate(part._replace(y0=y))
        own = xp.abs(part.t1 - part.t0) + xp.zeros_like(weight)
        total = weight + own
        part_of_time = xp.where(total == 0.0, total, own / xp.where(total == 0.0, xp.ones_like(total), total))
        (mean, variance, least, most), (mean_2, variance_2, least_2, most_2) = (
            [each[k * m : (k + 1) * m] for k in range(KINDS)] for each in (rows, made.y[n:])
        )
        rise = mean_2 - mean
        variance = (1.0 - part_of_time) * (variance + part_of_time * (rise * rise)) + part_of_time * variance_2
        extremes = [xp.minimum(least, least_2), xp.maximum(most, most_2)]
        weight, rows = total, xp.concat([mean + part_of_time * rise, variance, *extremes], axis=0)
        return made

    with np.errstate(all="ignore"):
        whole = over_segments(extended, alone, change_of(problem))
    return whole._replace(y=xp.concat([whole.y[:n], rows], axis=0))


@functools.lru_cache(maxsize=64)
def _bodies(inner: Bodies, sizes: Sizes, graph: Graph, dtype: str) -> Bodies:
    """Make the traced functions of a step that carries the state and, behind it, the rows of the statistics."""
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
        new, at_coefficients = list(outputs[rows.y : rows.y + n]), ends + n
        moved = outputs[rows.t] != t_old

        def at(theta: Any) -> Mapping[int, Any]:
            return _Inputs(t_old + theta * h, theta, old, outputs[at_coefficients:], degree, p)

        def value_at(alone: Graph, theta: Any) -> Any:
            return replay(alone, at(theta), xp)[0]

        nodes, weights = lobatto(degree + 2)
        last = replay(graph, [t_old + h, *new, *p], xp)
        points = [own.carried, *(replay(graph, at(theta), xp) for theta in nodes[1:-1]), last]
        part = h / ((t_old - values[rows.t0]) + h)
        found: list[list[Any]] = [[], [], [], []]
        for j in range(m):
            values_here, alone = [point[j] for point in points], _output(graph, j)
            of_step = [own.unknowns[kind * m + j] for kind in range(KINDS)]
            inner = [functools.partial(_beyond, nodes, values_here, functools.partial(value_at, alone), sign, xp)
                     for sign in (-1.0, 1.0)]  # fmt: skip
            for place, value in zip(found, _updated(of_step, values_here, weights, inner, part, xp), strict=True):
                place.append(value)
        unknowns = [xp.where(moved, a, b) for a, b in zip([v for row in found for v in row], own.unknowns, strict=True)]
        carried = [xp.where(moved, a, b) for a, b in zip(last, own.carried, strict=True)]
        return outputs, Extra(unknowns, carried)

    return Extension(sizes, Sizes(KINDS * m, m, 0), start, advance)


class _Inputs(Mapping[int, Any]):
    """The inputs of a functional at a fraction of a step: unknowns are interpolated where they are read."""

    def __init__(
        self, t: Any, theta: Any, old: Sequence[Any], coefficients: Sequence[Any], degree: int, p: Sequence[Any]
    ) -> None:
        self._t, self._theta, self._old, self._coefficients, self._degree, self._p = (
            t,
            theta,
            old,
            coefficients,
            degree,
            p,
        )

    def __getitem__(self, place: int) -> Any:
        n = len(self._old)
        if place == 0:
            return self._t
        if place > n:
            return self._p[place - 1 - n]
        first = (place - 1) * self._degree
        return interpolated(self._old[place - 1], self._coefficients[first : first + self._degree], self._theta)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return 1 + len(self._old) + len(self._p)


@functools.cache
def lobatto(count: int) -> tuple[list[float], list[float]]:
    """Compute the points and weights of the Gauss-Lobatto rule on (0, 1): exact for degree ``2 count - 3``.

    The inner points are the roots of the derivative of P, Legendre's polynomial of degree ``count - 1``, by Newton's
    method in plain numbers: eigenvalues, NumPy's way, have other last digits in other versions.
    """
    degree = count - 1
    points, weights = [], []
    for k in range(count):
        x = -round(math.cos(math.pi * k / degree), 6)
        for _ in range(8 if 0 < k < degree else 0):
            last, value = _legendre(degree, x)
            x -= (x * value - last) / (count * value)
        points.append(x)
        weights.append(1.0 / (count * degree * _legendre(degree, x)[1] ** 2))
    mirrored = [0.5 * (a - b) for a, b in zip(points, reversed(points), strict=True)]
    return [0.5 * (x + 1.0) for x in mirrored], [0.5 * (a + b) for a, b in zip(weights, reversed(weights), strict=True)]


def _legendre(degree: int, x: float) -> tuple[float, float]:
    """Return the values at x of Legendre's polynomials of degrees ``degree - 1`` and `degree`, by their recurrence."""
    last, value = 1.0, x
    for k in range(2, degree + 1):
        last, value = value, ((2 * k - 1) * x * value - (k - 1) * last) / k
    return last, value


def _output(graph: Graph, j: int) -> Graph:
    """One output of a graph."""
    order = sorted(ancestors(graph.nodes, [graph.outputs[j]]))
    nodes, outputs = renumbered(graph.nodes, order, [graph.outputs[j]])
    return Graph(nodes, graph.n_inputs, outputs, 0)


def _beyond(
    nodes: Sequence[float], values: Sequence[Any], at: Callable[[Any], Any], sign: float, xp: Any, known: Any
) -> Any:
    """The largest of `known` and of the values within a step, to rounding (the smallest, with `sign` -1).

    From the largest of the values at the nodes with its neighbours on: the vertex of the parabola through three places,
    of which the best and its neighbours are kept. Where the first parabola has none between them there is nothing.
    """
    a, b, c = ((xp.full_like(values[0], nodes[k]), values[k] * sign) for k in range(3))
    for k in range(2, len(nodes) - 1):
        better, near = values[k] * sign > b[1], [(nodes[i], values[i] * sign) for i in (k - 1, k, k + 1)]
        a, b, c = (_either(better, new, old, xp) for new, old in zip(near, (a, b, c), strict=True))
    extreme, found = xp.maximum if sign > 0.0 else xp.minimum, known
    inside = [_vertex(a, b, c, xp)]
    for k in range(ITERATIONS):
        place, has_one = inside[-1]
        new = (place, xp.where(has_one, at(place) * sign, b[1]))
        found = extreme(found, new[1] * sign)
        left, better = new[0] < b[0], new[1] > b[1]
        lower, inner = has_one & (left ^ better), _either(better, b, new, xp)
        a, c = _either(lower, inner, a, xp), _either(has_one & ~(left ^ better), inner, c, xp)
        b = _either(better, new, b, xp)
        if k + 1 < ITERATIONS:
            inside.append(_vertex(a, b, c, xp))
    return xp.seldom(inside[0][1], found, known)


def _vertex(a: Sequence[Any], b: Sequence[Any], c: Sequence[Any], xp: Namespace) -> tuple[Any, Any]:
    """The place of the top of the parabola through three points, and whether it is between them; else that of `b`."""
    left, right = b[0] - a[0], c[0] - b[0]
    rise, fall = right * (b[1] - a[1]), left * (b[1] - c[1])
    bend = rise + fall
    shift = 0.5 * (right * rise - left * fall) / xp.where(bend > 0.0, bend, xp.ones_like(bend))
    place = b[0] + shift
    inside = (bend > 0.0) & (place > a[0]) & (place < c[0]) & (place != b[0])
    return xp.where(inside, place, b[0]), inside


def _either(condition: Any, first: Sequence[Any], second: Sequence[Any], xp: Namespace) -> tuple[Any, ...]:
    """One of two places with their values."""
    return tuple(xp.where(condition, x, y) for x, y in zip(first, second, strict=True))


def _updated(
    before: Sequence[Any], values: Sequence[Any], weights: Sequence[float], inner: Sequence[Callable[[Any], Any]],
    part: Any, xp: Any,
) -> list[Any]:  # fmt: skip
    """The statistics with those of one more step, which is `part` of the time so far.

    Extremes within the step, which `inner` finds, are looked for where they may be new ones: a polynomial is beyond its
    values at the points by less than half of their range, and twice that is asked for.
    """
    mean, variance, least, most = before
    first = values[0]  # of a steady value all differences are zero, whatever the weights
    average = first + weighted(weights[1:], [v - first for v in values[1:]])
    spread = weighted(weights, [(v - average) * (v - average) for v in values])
    rise = average - mean
    variance = (1.0 - part) * (variance + part * (rise * rise)) + part * spread
    low, high = (functools.reduce(extreme, values) for extreme in (xp.minimum, xp.maximum))
    least, most, spread = xp.minimum(least, low), xp.maximum(most, high), high - low
    least = xp.seldom(low - spread < least, inner[0](least), least)
    most = xp.seldom(high + spread > most, inner[1](most), most)
    return [mean + part * rise, variance, least, most]
