"""The C functions of one right-hand side and method: its steps on lanes, their start, and its events."""

from __future__ import annotations

import functools
from typing import NamedTuple

from ensemble._compile.lanes.graph_loop import graph_loop
from ensemble._compile.lanes.library import assembly_of
from ensemble._compile.machine_code import Code, assembled, code_of
from ensemble._compile.processor import register_bytes
from ensemble._compile.trace.graph import Graph

__all__ = ["Addresses", "addresses", "single_width", "width_of"]

SHORT = {64: 520, 32: 150, 16: 500}
"""Operations of bodies for which four registers per value were fastest, by the bytes of a register.

A processor has 32 registers of 64 or 16 bytes, but 16 of 32 bytes."""

MEDIUM = 1500
"""Operations of bodies for which two registers per value were fastest."""


class Addresses(NamedTuple):
    """Where the C functions lie in this process, 0: not there; and their code, which is held while they run."""

    start: int
    loop: int
    event: int
    code: Code


def single_width(dtype: str) -> int:
    """Samples in one register."""
    return register_bytes() // (8 if dtype == "float64" else 4)


def width_of(graph: Graph, dtype: str) -> int:
    """Samples in a set of lanes: four registers per value for a short body, one where a long one fills them all.

    Processors that start two operations of a full register per cycle wait for the chains of fewer.
    """
    single, n_nodes = single_width(dtype), len(graph.nodes)
    return single * (4 if n_nodes <= SHORT[register_bytes()] else 2 if n_nodes <= MEDIUM else 1)


@functools.lru_cache(maxsize=256)
def addresses(
    start: Graph, loop: Graph, event: Graph | None, n_carried: int, dtype: str, width: int | None = None,
    parts: tuple[int, ...] = (),
) -> Addresses:  # fmt: skip
    """The compiled functions; their machine code is kept on disk under a digest of their text.

    `parts` are nodes of the loop, see `graph_loop`.
    """
    width = width or width_of(loop, dtype)
    named = {"start": (start, 0), "loop": (loop, n_carried), "event": (event, 0)}
    functions = {
        name: graph_loop(graph, name, count, width, dtype, parts if name == "loop" else ())
        for name, (graph, count) in named.items()
        if graph is not None
    }
    code = code_of(assembled(functions.values()), list(functions), assembly_of)
    return Addresses(code["start"], code["loop"], code.get("event"), code)
