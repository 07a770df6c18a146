"""Graphs written out for Numba: functions of scalars and of lanes, and modules of them that are kept on disk.

A module exists in memory alone; its machine code is kept on disk (`kernel_cache.py`), so that a second process compiles
nothing.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import re
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ensemble._compile.trace.graph import Graph, Node
from ensemble._compile.trace.operations import INTERNAL, OPERATIONS

__all__ = [
    "expression",
    "imports_of",
    "lanes_function",
    "load_module",
    "repeated_lines",
    "scalar_function",
    "tables",
]

BUILT_ON = ("_compile", "_kernels/kalman")
"""Folders whose functions end up inside generated kernels: where a file of them changes, these are recompiled."""


def _constant(node: Node) -> str:
    value = repr(node.value)
    if value.lstrip("-") in ("inf", "nan"):
        value = value.replace("inf", "np.inf").replace("nan", "np.nan")
    return value if node.dtype in ("bool", "float64", "int64") else f"np.{node.dtype}({value})"


def _expression(graph: Graph, node: Node) -> str:
    """The right-hand side of one assignment, of exactly the dtype of `node`."""
    if node.operation == "constant":
        return _constant(node)
    operands = [f"t{k}" for k in node.inputs]
    if node.operation == "cast":
        return f"{operands[0]} != 0" if node.dtype == "bool" else f"np.{node.dtype}({operands[0]})"
    if node.operation == "interp":
        return f"interpolated({operands[0]}, {node.value.name}_points, {node.value.name}_values)"
    integer = graph.nodes[node.inputs[-1]].dtype.startswith("int")
    text = OPERATIONS[node.operation].text("python", integer).format(*operands)
    return text if node.dtype == "bool" else f"np.{node.dtype}({text})"


def scalar_function(graph: Graph, name: str) -> str:
    """Python source of the body: scalars in, a scalar or a tuple of them out."""
    return _function(graph, name, _expression)


def lanes_function(graph: Graph, name: str) -> str:
    """Write Python source that evaluates a graph on lanes; its arguments are `WIDTH` of each of `scalar_function`."""
    return _function(graph, name, _on_lanes)


def _function(graph: Graph, name: str, expression: Callable[[Graph, Node], str]) -> str:
    lines = [f"def {name}({', '.join(graph.parameters)}):"]
    lines += [f"    t{k} = {text}" for k, text in graph.definitions(expression)]
    return "\n".join([*lines, f"    return {', '.join(f't{k}' for k in graph.outputs)}"])


def expression(graph: Graph, node: Node, lanes: bool) -> str:
    """The right-hand side of one assignment, with operands `t<k>`: a number, or lanes of them."""
    return _on_lanes(graph, node) if lanes else _expression(graph, node)


def tables(graph: Graph) -> str:
    """Python source of the tables that `scalar_function` and `lanes_function` name."""
    lines = []
    for table in graph.tables:
        for part in ("points", "values"):
            lines.append(f"{table.name}_{part} = np.array({getattr(table, part).tolist()!r})")
    return "\n".join(lines)


def _on_lanes(graph: Graph, node: Node) -> str:
    if node.operation == "constant":
        return f"spread({_constant(node)}, WIDTH)"
    operands = [f"t{k}" for k in node.inputs]
    if node.operation == "cast":
        return f"as_{node.dtype}({operands[0]})"
    if node.operation == "interp":
        return f"interpolated_lanes({operands[0]}, {node.value.name}_points, {node.value.name}_values)"
    dtype = graph.nodes[node.inputs[-1]].dtype
    operation = OPERATIONS.get(node.operation) or INTERNAL[node.operation]
    if operation.libm and dtype == "float32":  # in float64, rounded once more at the end
        return f"as_float32({operation.text('lanes', False).format(*(f'as_float64({t})' for t in operands))})"
    return operation.text("lanes", not dtype.startswith("float")).format(*operands)


def imports_of(body: str, module: Any, always: Sequence[str] = ()) -> str:
    """The line that imports what `body` calls from `module`."""
    called = {*re.findall(r"\w+(?=\()", body), *always}
    names = [name for name in module.__all__ if name in called]
    return f"from {module.__name__} import {', '.join(names)}" if names else ""


def repeated_lines(depth: int, text: str, n: int) -> str:
    """`text` n times, ``J`` in it replaced by the number of the time."""
    pad = "    " * depth
    lines = text.split("\n")
    return "\n".join(pad + re.sub(r"\bJ\b", str(j), line.replace("_J", f"_{j}")) for j in range(n) for line in lines)


# --- modules on disk
@functools.cache
def _foundation() -> bytes:
    """A digest of what generated kernels are built on: where that changes, they are recompiled."""
    package = Path(__file__).parents[2]
    files = sorted(file for folder in BUILT_ON for file in (package / folder).rglob("*.py"))
    return hashlib.blake2b(b"".join(file.read_bytes() for file in files)).digest()


@functools.cache
def load_module(source: str) -> Any:
    """The module of `source`; its name has a digest of the source, under which its machine code is kept on disk."""
    name = "kernel_" + hashlib.blake2b(_foundation() + source.encode(), digest_size=16).hexdigest()
    module = types.ModuleType(f"ensemble_fuse.{name}")
    module.__file__ = f"<{module.__name__}>"
    # where Numba, tracebacks and `inspect` look for the source
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(True), module.__file__)
    sys.modules[module.__name__] = module  # where Numba and pickle look for it
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    return module
