"""The inputs that determine a run, as text to compare two runs by: numbers with all digits, functions as programs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._backend import is_array, to_numpy
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._typing import Array
from ensemble.apps.gbees.cells import Cells
from ensemble.apps.gbees.problem import Drift, Problem

__all__ = ["difference", "of_function", "of_problem", "of_start", "of_value"]

WITHOUT_EFFECT = ("memory_limit",)
"""Attributes of a `Problem` that do not change results."""

LONGEST = 160
"""Characters of a value that a message shows in full."""

N_PROBES = 32
"""Points at which functions are compared that cannot be traced."""

Entry = str | list[str]
"""One input: a value as text, or a program line by line."""


def of_problem(problem: Problem) -> dict[str, Entry]:
    """All attributes of a `Problem` that determine results, by name."""
    found: dict[str, Entry] = {}
    for attribute in dataclasses.fields(problem):
        name, value = attribute.name, getattr(problem, attribute.name)
        if name in WITHOUT_EFFECT:
            continue
        if isinstance(value, Drift):
            found["drift"] = of_drift(problem)
            found["drift parameters"] = of_value(tuple(float(to_numpy(part)) for part in value.parameters))
        elif name == "dtype":
            found[name] = np.dtype(value).name
        elif callable(value):
            found[name] = of_function(value, problem)
        else:
            found[name] = of_value(value)
    return found


def of_drift(problem: Problem) -> list[str]:
    """The program of the drift; its parameters are arguments."""
    real, k = Scalar("float64"), len(problem.drift.parameters)

    def body(x: Array, t: Array, parameters: Any) -> tuple[Array, ...]:
        return tuple(problem.drift.function(x, t, t.__array_namespace__(), *parameters))

    return _program(
        lambda: trace(body, (real,) * problem.n, real, (real,) * k, function="Gbees"),
        [*(f"x[{i}]" for i in range(problem.n)), "t", *(f"parameter[{j}]" for j in range(k))],
        lambda x: problem.drift(x, 0.0, np),
        problem,
    )


def of_function(function: Callable[..., Sequence[Array]], problem: Problem) -> list[str]:
    """The program of a function ``(x, xp)`` of a point in space."""
    real = Scalar("float64")
    return _program(
        lambda: trace(lambda x: function(x, x[0].__array_namespace__()), (real,) * problem.n, function="Gbees"),
        [f"x[{i}]" for i in range(problem.n)],
        lambda x: function(x, np),
        problem,
    )


def _program(
    traced: Callable[[], Graph], names: Sequence[str], call: Callable[[Any], Any], problem: Problem
) -> list[str]:
    """The operations of a graph, one per line; values at fixed points where the function cannot be traced."""
    try:
        graph = traced()
    except Exception:  # any exception of a function that is not written for traced numbers
        return _probed(call, problem)
    lines: list[str] = []
    words: dict[int, str] = {}
    for k, node in enumerate(graph.nodes):
        if node.operation == "input":
            words[k] = names[node.value]
        elif node.operation == "constant":
            words[k] = repr(node.value)
        else:
            words[k] = f"t{len(lines)}"
            given = [words[i] for i in node.inputs] + ([] if node.value is None else [of_value(node.value)])
            lines.append(f"{words[k]} = {node.operation}({', '.join(given)}), {node.dtype}")
    return [*lines, f"result {', '.join(words[k] for k in graph.outputs)}"]


def _probed(call: Callable[[Any], Any], problem: Problem) -> list[str]:
    """Describe a function by its values at fixed points around the first grid, written to twelve digits."""
    steps = np.random.default_rng(20731).uniform(-8.0, 8.0, (problem.n, N_PROBES))
    points = [origin + width * step for origin, width, step in zip(problem.origin, problem.widths, steps, strict=True)]
    try:
        with np.errstate(all="ignore"):
            given = call(tuple(points))
            values = np.broadcast_arrays(*(given if isinstance(given, tuple | list) else (given,)), points[0])[:-1]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    return [
        f"({', '.join(f'{part[k]:.6g}' for part in points)}) -> ({', '.join(f'{value[k]:.12g}' for value in values)})"
        for k in range(N_PROBES)
    ]


def of_start(cells: Cells) -> str:
    """The first cells: how many, and first and second moments of their indices to six places: no digit of rounding."""
    indices, p = (np.asarray(to_numpy(part), dtype=np.float64) for part in cells)
    moments = (p @ indices, (indices.T * p) @ indices)
    return f"{len(p)} cells, moments {', '.join(str((np.round(part, 6) + 0.0).tolist()) for part in moments)}"


def of_value(value: Any) -> str:
    """A number, string, array, or tuple or dataclass of them, with every digit."""
    if dataclasses.is_dataclass(value):
        parts = (f"{part.name}={of_value(getattr(value, part.name))}" for part in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(parts)})"
    if is_array(value) or isinstance(value, np.generic):
        return repr(to_numpy(value).tolist())
    if isinstance(value, tuple | list):
        return f"[{', '.join(of_value(part) for part in value)}]"
    return value if isinstance(value, str) else repr(value)


def difference(name: str, stored: Entry, own: Entry) -> str:
    """The difference between two entries of one name, in words."""
    if isinstance(stored, str) and isinstance(own, str):
        return f"another {name}: {_short(stored)} there, {_short(own)} here"
    there, here = ([entry] if isinstance(entry, str) else entry for entry in (stored, own))
    k = next((k for k, pair in enumerate(zip(there, here)) if pair[0] != pair[1]), min(len(there), len(here)))
    words = [_short(entry[k]) if k < len(entry) else "nothing" for entry in (there, here)]
    return f"another {name}, in line {k + 1} of its program: {words[0]} there, {words[1]} here"


def _short(text: str) -> str:
    """`text`, or its beginning and a digest of the whole."""
    if len(text) <= LONGEST:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    return f"{text[: LONGEST // 2]}... ({len(text)} characters, {digest})"
