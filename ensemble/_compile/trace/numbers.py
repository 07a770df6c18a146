"""Constants of a graph that become arguments of its compiled code: functions that differ in numbers alone share it.

A function that is traced again with another number in its closure, its defaults or its globals gives the same graph
with another constant. Compiled code that takes the constant as an argument then serves both. The operations and their
order stay the same, and no compiler pass that is used here changes a value: a result has the same bits whether a number
is a constant or an argument. Numbers written in the function's own code stay constants: they never change.

What decides which operations there are stays in the graph: the number of rounds of a loop, an index, a condition, an
exponent that becomes multiplications. Such a number gives another graph.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ensemble._byte_code import enclosed
from ensemble._compile.trace.fingerprint import reads_arguments_only
from ensemble._compile.trace.graph import Graph, Node

__all__ = ["hoisted", "literals", "reads_numbers"]

MOST_FUNCTIONS = 256
"""Functions that are searched for numbers, at most."""

UNITS = frozenset([0.0, 1.0, -1.0])
"""Factors with which derivatives have other operations."""


@functools.lru_cache(maxsize=1024)
def _written(code: types.CodeType) -> frozenset[float]:
    """The numbers in a code object, nested ones included, in float64 and rounded to float32."""
    found: set[float] = set()

    def visit(value: Any) -> None:
        if isinstance(value, types.CodeType):
            found.update(_written(value))
        elif isinstance(value, tuple | frozenset):
            for each in value:
                visit(each)
        elif isinstance(value, bool | int | float) and abs(value) < 1e300:
            found.update((float(value), float(np.float32(value))))

    with np.errstate(over="ignore"):
        visit(code.co_consts)
    return frozenset(found)


def reads_numbers(*functions: Any) -> bool:
    """Whether functions may read numbers from outside: closures, defaults, globals, attributes."""
    return not all(reads_arguments_only(f) and not f.__defaults__ and not f.__kwdefaults__ for f in functions)


def literals(*functions: Callable[..., Any]) -> frozenset[float]:
    """The numbers that are written in the code of functions and of those that they name.

    Functions in closures, globals, partial applications and attributes of bound objects count.
    """
    found: set[float] = set()
    pending: list[Any] = list(functions)
    seen: set[int] = set()
    while pending and len(seen) < MOST_FUNCTIONS:
        f = pending.pop()
        if id(f) in seen:
            continue
        seen.add(id(f))
        if isinstance(f, functools.partial):
            pending.append(f.func)
        elif isinstance(f, types.MethodType):
            pending.append(f.__func__)
        elif isinstance(f, types.FunctionType):
            found |= _written(f.__code__)
            named = [f.__globals__[name] for name in f.__code__.co_names if name in f.__globals__]
            for value in [*named, *enclosed(f).values(), *(f.__defaults__ or ())]:
                if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
                    pending.append(value)
        elif hasattr(type(f), "traces_as"):
            pending.append(f.traces_as)
        elif isinstance(vars(type(f)).get("__call__"), types.FunctionType):
            pending.append(type(f).__call__)
    return frozenset(found)


def hoisted(
    graph: Graph,
    first: int,
    dtypes: Iterable[str] = ("float64",),
    kept: frozenset[float] = frozenset(),
    *,
    differentiable: bool = False,
    most: int | None = None,
) -> tuple[Graph, list[Any]]:
    """The graph with constants as further inputs from number `first` on, and their values.

    Parameters
    ----------
    graph : Graph
    first : int
        The number of the first new input.
    dtypes : collection of str
        Dtypes of the constants that are moved.
    kept : set of float
        Numbers that stay constants.
    differentiable : bool
        Whether the graph will be differentiated: exponents, outputs, and factors of zero and one stay constants,
        because derivatives then have other operations.
    most : int, optional
        Where there are more constants than these, all stay.
    """
    stay: set[int] = set()
    if differentiable:
        stay = {node.inputs[1] for node in graph.nodes if node.operation == "pow"} | set(graph.outputs)
    values: list[Any] = []
    nodes: list[Node] = []
    for k, node in enumerate(graph.nodes):
        if (
            node.operation == "constant"
            and node.dtype in dtypes
            and node.value not in kept
            and k not in stay
            and not (differentiable and node.value in UNITS)
        ):
            values.append(node.value)
            node = Node("input", (), node.dtype, first + len(values) - 1)
        nodes.append(node)
    if not values or (most is not None and len(values) > most):
        return graph, []
    return Graph(tuple(nodes), first + len(values), graph.outputs, graph.structure), values
