"""Numbers that a right-hand side and events read from outside, as further parameters of the compiled loops."""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numbers import hoisted, literals, reads_numbers
from ensemble.ode.compiled import events_graph
from ensemble.ode.problem import Problem

__all__ = ["with_numbers"]

MOST = 128
"""Numbers that become parameters, at most; where there are more, all are constants, and others compile anew."""


def with_numbers(problem: Problem) -> Problem:
    """The problem with numbers of closures, defaults and globals behind its parameters: others compile nothing.

    Exponents, and factors of zero and one, stay constants: derivatives then have other operations. The right-hand side
    must be traceable.
    """
    system, events = problem.system, events_graph(problem)
    graph, n, k = system.graph, system.n, system.n_parameters
    values: list[float] = []
    if reads_numbers(*system.functions):
        graph, values = _moved(graph, 1 + n + k, problem.dtype, literals(*system.functions))
    if events is not None and reads_numbers(*problem.events):
        events, more = _moved(events, 1 + n + k + len(values), problem.dtype, literals(*problem.events))
        values += more
    if not values:
        return problem
    xp = array_namespace(problem.p)
    rows = asarray_like(np.array(values, problem.dtype)[:, None], problem.p)
    p = xp.concat([problem.p, xp.broadcast_to(rows, (len(values), problem.p.shape[1]))], axis=0)
    graph = Graph(graph.nodes, 1 + n + k + len(values), graph.outputs, graph.structure)
    return problem._replace(system=system.with_numbers(graph), p=p, event_graph=events)


def _moved(graph: Graph, first: int, dtype: str, kept: frozenset[float]) -> tuple[Graph, list[float]]:
    return hoisted(graph, first, (dtype,), kept, differentiable=True, most=MOST)
