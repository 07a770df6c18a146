"""Which method for stiff systems: what a step costs, by the pattern of the Jacobian alone."""

from __future__ import annotations

import functools

import numpy as np

from ensemble._compile.trace.graph import Graph
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.linalg.factorizations.factorization import planned
from ensemble.ode.evaluation import pattern_of
from ensemble.ode.implicit import FROM
from ensemble.ode.system import System

__all__ = ["stiff_method"]

COSTLY = 50.0
"""Multiply-adds of a factorisation for each value of it, which a solution reads once, from which "bdf" is faster.

At equal errors, dense networks of 150 species (36) take the same time by both, of 53 (12) half of it by "rodas4".
Measured again by `benchmarks stiff`.
"""


def stiff_method(system: System, on_device: bool) -> str:
    """The name: "rodas4", or "bdf" where a factorisation costs far more than a solution; depends on the trace alone."""
    if system.n < FROM or on_device:
        return "rodas4"
    try:
        graph = system.graph
    except (TypeError, AttributeError):  # the method says that it needs a trace
        return "rodas4"
    return _by_graph(graph, system.n)


@functools.lru_cache(maxsize=64)
def _by_graph(graph: Graph, n: int) -> str:
    pattern: CrsGraph = pattern_of(graph, n)[1]
    matrix = CrsMatrix(pattern, np.ones((pattern.nnz, 1)))
    plan = planned(matrix, kind="lu", ordering="auto", matching="graph", dtype=None)
    return "bdf" if plan.multiply_adds > COSTLY * plan.n_values else "rodas4"
