"""The C functions of one right-hand side and method: its steps on lanes, their start, and its events."""

from __future__ import annotations

import functools
from typing import NamedTuple

from ensemble._compile.lanes.graph_loop import described
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numba_source import load_module

__all__ = ["Addresses", "addresses", "single_width", "width_of"]

MODULE = '''"""Steps of an initial value problem on lanes, written by ensemble; it may be deleted at any time."""

from ensemble._compile.lanes.graph_loop import graph_loop, graph_of
from ensemble._compile.numba import c_function

SIGNATURE = "int64(CPointer({dtype}), int64, int64)"
{functions}
'''

FUNCTION = """
run_{name} = graph_loop(graph_of({graph}), {n_carried}, {width}, "{dtype}")


@c_function(SIGNATURE)
def {name}(rows, threshold, limit):
    return run_{name}(rows, threshold, limit)
"""


SHORT, MEDIUM = 500, 1500
"""Operations of bodies for which four and two registers per value were fastest."""


class Addresses(NamedTuple):
    """Where the C functions lie in this process; 0: not there."""

    start: int
    loop: int
    event: int


def single_width(dtype: str) -> int:
    """Samples in one register."""
    return 64 // (8 if dtype == "float64" else 4)


def width_of(graph: Graph, dtype: str) -> int:
    """Samples in a set of lanes: four registers per value for a short body, one where a long one fills them all.

    Processors that start two operations of a full register per cycle wait for the chains of fewer.
    """
    single, n_nodes = single_width(dtype), len(graph.nodes)
    return single * (4 if n_nodes <= SHORT else 2 if n_nodes <= MEDIUM else 1)


@functools.lru_cache(maxsize=256)
def addresses(
    start: Graph, loop: Graph, event: Graph | None, n_carried: int, dtype: str, width: int | None = None
) -> Addresses:
    """The compiled functions; their machine code is kept on disk under a digest of the graphs."""
    width = width or width_of(loop, dtype)
    named = {"start": (start, 0), "loop": (loop, n_carried), "event": (event, 0)}
    functions = [
        FUNCTION.format(name=name, graph=described(graph), n_carried=count, width=width, dtype=dtype)
        for name, (graph, count) in named.items()
        if graph is not None
    ]
    module = load_module(MODULE.format(dtype=dtype, functions="".join(functions)))
    return Addresses(module.start.address, module.loop.address, 0 if event is None else module.event.address)
