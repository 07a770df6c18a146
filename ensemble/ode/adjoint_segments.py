"""Gradients of runs with stops: the segments backwards, and the chain rule of what is done between them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._check import message
from ensemble._compile.trace.derivatives import pullback
from ensemble._typing import Array
from ensemble.ode.ode_result import OdeStatus
from ensemble.ode.problem import Problem, Solution
from ensemble.ode.segments import Piece, over_segments
from ensemble.ode.solve import run
from ensemble.ode.stop_changes import change_graph, change_of

__all__ = ["backward_over_segments"]

Sweep = Callable[[Problem, Array], tuple[Solution, Array, Array]]
Pulled = Callable[[Piece, Array], tuple[Array, Array]]


def backward_over_segments(problem: Problem, weights: Array, sweep: Sweep) -> tuple[Solution, Array, Array]:
    """The ends of all samples, and the derivatives with respect to y0 and p.

    Parameters
    ----------
    problem : Problem
        With stops.
    weights : array, shape (n_times or 1, n, S)
        The cotangents of the values at output times, or of the end.
    sweep : callable
        ``sweep(part, weights)``: the same of a problem without stops.
    """
    assert problem.frame is not None
    xp, k, pieces = array_namespace(problem.y0), problem.frame, list[Piece]()
    pulled = _pulled_through(problem)
    solution = over_segments(problem, run, change_of(problem), pieces)
    has_times = problem.t_eval.shape[0] > 0
    by_y = xp.zeros_like(weights[0]) if has_times else weights[0]
    by_p = xp.zeros((k, weights.shape[-1]), dtype=by_y.dtype)
    for piece in reversed(pieces):
        if piece.moves:
            part, own = piece.segment.problem, by_y[None]
            if has_times:
                here = asarray_like(piece.mask, by_y)[:, None, :]
                own = xp.concat([xp.where(here, weights[piece.rows], xp.zeros_like(weights[piece.rows])), own], axis=0)
                count = max(part.t_eval.shape[1], part.t1.shape[0])
                times = [xp.broadcast_to(each, (each.shape[0], count)) for each in (part.t_eval, part.t1[None])]
                part = part._replace(t_eval=xp.concat(times, axis=0))
            _, by_y, of_p = sweep(part, own)
            by_p = by_p + of_p[:k]
        if piece.before is not None:
            by_y, of_p = pulled(piece, by_y)
            by_p = by_p + of_p
    failed = solution.status != int(OdeStatus.finished)
    unknown = xp.asarray(xp.nan, dtype=by_y.dtype)
    return solution, xp.where(failed, unknown, by_y), xp.where(failed, unknown, by_p)


def _pulled_through(problem: Problem) -> Pulled:
    """The chain rule of what the stops do: cotangents before it, and those of the user's parameters."""
    assert problem.stops is not None
    xp, n, k = array_namespace(problem.y0), problem.system.n, problem.frame or 0
    if problem.stops.change is None:
        return lambda piece, by_y: (by_y, xp.zeros((k, by_y.shape[1]), dtype=by_y.dtype))
    try:
        graph = change_graph(problem)
    except (TypeError, AttributeError) as error:
        raise TypeError(message("ode.gradient", "at_stops", "be traceable", str(error))) from error

    def pulled(piece: Piece, by_y: Array) -> tuple[Array, Array]:
        assert piece.before is not None
        zero = xp.zeros_like(by_y[0])
        values = [piece.segment.start + zero, *(row + zero for row in piece.before)]
        values += [row + zero for row in problem.p[:k]]
        with np.errstate(all="ignore"):
            found = pullback(graph, values, list(by_y), xp)
        parts = [found.get(i, 0.0) + zero for i in range(1, 1 + n + k)]
        here = asarray_like(piece.segment.acts >= 0, by_y)
        new = xp.where(here, xp.stack(parts[:n]), by_y)
        of_p = xp.stack(parts[n:]) if k else xp.zeros((0, by_y.shape[1]), dtype=by_y.dtype)
        return new, xp.where(here, of_p, xp.zeros_like(of_p))

    return pulled
