"""What stops do to the state: additions, or a function of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._typing import Array, Namespace
from ensemble.ode.evaluation import Evaluation
from ensemble.ode.problem import Problem
from ensemble.ode.segments import Change, Segment
from ensemble.ode.system import kept_trace, values_of

__all__ = ["change_graph", "change_of"]


def change_of(problem: Problem) -> Change:
    """What the stops of a problem do to its state."""
    assert problem.stops is not None
    jumps, function = problem.stops.jumps, problem.stops.change
    xp = array_namespace(problem.y0)
    if function is None:

        def added(segment: Segment, y: Array, p: Array) -> Array:
            return _with_first(y, y[: problem.system.n] + additions(segment, jumps, problem), xp)

        return added
    evaluated = _evaluated(problem, function)

    def changed(segment: Segment, y: Array, p: Array) -> Array:
        return _with_first(y, evaluated(segment.start, y[: problem.system.n], p), xp)

    return changed


def additions(segment: Segment, jumps: Array | None, problem: Problem) -> Array:
    """What is added to the unknowns at the start of a segment, (n, S or 1)."""
    assert jumps is not None
    chosen = np.maximum(segment.acts, 0)
    if chosen.size == 1:
        rows = jumps[chosen[0]]
    else:
        rows = jumps[chosen, :, np.arange(chosen.size) if jumps.shape[-1] > 1 else 0].T
    return asarray_like(np.ascontiguousarray(rows), problem.y0)


def _with_first(y: Array, new: Array, xp: Namespace) -> Array:
    """The rows of y, the first of them replaced."""
    count = max(y.shape[1], new.shape[1])
    parts = [new, y[new.shape[0] :]]
    return xp.concat([xp.broadcast_to(part, (part.shape[0], count)) for part in parts], axis=0)


def change_graph(problem: Problem) -> Graph:
    """The trace of the user's change of the state: inputs t, y and the user's parameters.

    Raises
    ------
    TypeError
        If it cannot be traced.
    """
    assert problem.stops is not None and problem.stops.change is not None and problem.frame is not None
    function, n, k, dtype = problem.stops.change, problem.system.n, problem.frame, problem.dtype

    def body(t: Any, y: list[Any], p: list[Any]) -> tuple[Any, ...]:
        xp = t.__array_namespace__()
        values = values_of(function, t, y, p, xp, n, "at_stops")
        return tuple(xp.astype(value, getattr(xp, dtype)) for value in values)

    real = Scalar(dtype)
    return kept_trace(
        lambda: trace(body, real, [real] * n, [real] * k, function="ode.solve"), (function,), "at_stops", n, k, dtype
    )


def _evaluated(problem: Problem, function: Callable[..., Any]) -> Callable[[Array, Array, Array], Array]:
    """The user's change of the state for arrays: t (S or 1,), y (n, S or 1), p (k, S or 1)."""
    xp, n = array_namespace(problem.y0), problem.system.n
    try:
        graph: Graph | None = change_graph(problem)
    except (TypeError, AttributeError):
        graph = None
    whole = None if graph is None or xp.__name__.endswith("cupy") else Evaluation(graph, n, problem.dtype)
    if graph is None:
        from ensemble.ode.arrays import lifted

        apart = lifted(function, "at_stops")

    def evaluated(t: Array, y: Array, p: Array) -> Array:
        count = max(t.shape[0], y.shape[1], p.shape[1])
        rows = [xp.broadcast_to(row, (count,)) for row in (t, *p)]
        y = xp.asarray(xp.broadcast_to(y, (n, count)), order="C")
        if whole is not None:
            return whole(np.stack(rows), y)
        if graph is not None:
            return xp.stack([xp.broadcast_to(v, (count,)) for v in replay(graph, [rows[0], *y, *rows[1:]], xp)])
        with np.errstate(all="ignore"):
            return xp.stack(apart(rows[0], list(y), rows[1:], xp))

    return evaluated
