"""Graphs written out for Numba: a scalar function, and the elementwise loop around it, as a module kept on disk.

The module is a real file in a cache folder of the user, so that Numba's own cache keeps its machine code: a second
process compiles nothing.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ensemble._compile.cache_folder import cache_folder, written
from ensemble._compile.lanes import arithmetic, circular, functions, quotients, types
from ensemble._compile.lanes import tables as _lane_tables
from ensemble._compile.trace.graph import Graph, Node
from ensemble._compile.trace.operations import INTERNAL, OPERATIONS, WEAK

__all__ = [
    "elementwise_source",
    "expression",
    "imports_of",
    "lanes_function",
    "load_module",
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
    """Python source of the body on lanes: the parameters of `scalar_function`, `WIDTH` numbers in each."""
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


HEAD = '''"""An elementwise kernel, written by ensemble; it may be deleted at any time."""

import numpy as np

from ensemble._compile.numba import compiled, compiled_serial, inner, prange
from ensemble._compile.trace.broadcast import CHUNK, FLAT
from ensemble._compile.trace.elementwise import CHUNKS, fetch
{imports}

WIDTH = {width}
"""Numbers that are computed at a time."""
{tables}


@inner
{body}


@inner
def walk(first, last, plan, streamed, {arguments}, {outs}, {buffers}):
{borrowed}
{numbers}
    size = plan[-1, 0]
    for start in range(first, last, size):
        count = min(size, last - start)
{fetches}
        whole = count - count % WIDTH
        for i in range(0, whole, WIDTH):
            {results} = body({elements})
            if streamed:
{streams}
            else:
{stores}
        if whole < count:
            {results} = body({last_elements})
{last_stores}
    if streamed:
        fence()


@compiled_serial
def span(first, last, plan, streamed, {arguments}, {outs}):
{made_buffers}
    walk(first, last, plan, streamed, {arguments}, {outs}, {buffers})


@compiled
def spans(n, plan, streamed, {arguments}, {outs}):
    size = CHUNKS * plan[-1, 0]
    for block in prange((n + size - 1) // size):
        span(block * size, min(n, (block + 1) * size), plan, streamed, {arguments}, {outs})
'''


def elementwise_source(graph: Graph, arrays: Sequence[int]) -> str:
    """The module of a kernel ``span(first, last, plan, streamed, *inputs, *scalars, *outs)`` and its threaded `spans`.

    `arrays` are the positions of the inputs that are flat arrays; the other strong inputs are numbers.
    """
    names = graph.parameters
    used = [(k, p) for k, p in enumerate(arrays) if graph.uses(p)]  # one that is not used still takes part in the shape
    scalars = [name for name in names if name not in {f"a{p}" for p in arrays}]
    numbers = range(len(graph.outputs))
    body = lanes_function(graph, "body")
    buffers = []
    for k, p in used:
        dtype = "bool_" if graph.input_dtypes[p] == "bool" else graph.input_dtypes[p]
        buffers.append(f"    b{p} = np.empty(CHUNK if plan[{k + 1}, 0] != FLAT else 0, np.{dtype})")
    arguments_of_walk = [*(f"a{p}" for _, p in used), *(f"b{p}" for _, p in used), *(f"o{k}" for k in numbers)]
    fetches = [f"        v{p} = fetch(a{p}, plan, {k}, first, start, count, b{p})" for k, p in used]
    written = ["store" if dtype == "bool" else "stream" for dtype in graph.dtypes]
    return HEAD.format(
        width=width_of(graph),
        tables=tables(graph),
        imports="\n".join(
            filter(
                None,
                [
                    imports_of(body, arithmetic, ["spread"]),
                    imports_of(body, circular),
                    imports_of(body, functions),
                    imports_of(body, quotients),
                    imports_of(body, _lane_tables),
                    imports_of(
                        body, types, ["borrowed", "fence", "load", "load_some", "store", "store_some", "stream"]
                    ),
                ],
            )
        ),
        body=body,
        outs=", ".join(f"o{k}" for k in numbers),
        numbers="\n".join(f"    x{name} = spread({name}, WIDTH)" for name in scalars),
        results=", ".join(f"r{k}" for k in numbers),
        elements=", ".join(f"x{name}" if name in scalars else f"load(v{name[1:]}, i, WIDTH)" for name in names),
        last_elements=", ".join(
            f"x{name}" if name in scalars else f"load_some(v{name[1:]}, whole, count - whole, WIDTH)" for name in names
        ),
        stores="\n".join(f"                store(o{k}, start + i, r{k})" for k in numbers),
        last_stores="\n".join(f"            store_some(o{k}, start + whole, count - whole, r{k})" for k in numbers),
        streams="\n".join(f"                {written[k]}(o{k}, start + i, r{k})" for k in numbers),
        arguments=", ".join(names),
        buffers=", ".join(f"b{p}" for _, p in used),
        made_buffers="\n".join(buffers),
        borrowed="\n".join(f"    {name} = borrowed({name})" for name in arguments_of_walk),
        fetches="\n".join(fetches),
    )


def width_of(graph: Graph) -> int:
    """Numbers in a set of lanes: one cache line of the widest dtype."""
    return 64 // max(np.dtype(node.dtype).itemsize for node in graph.nodes if node.dtype not in WEAK)


def imports_of(body: str, module: Any, always: Sequence[str] = ()) -> str:
    """The line that imports what `body` calls from `module`."""
    called = {*re.findall(r"\w+(?=\()", body), *always}
    names = [name for name in module.__all__ if name in called]
    return f"from {module.__name__} import {', '.join(names)}" if names else ""


# --- modules on disk
@functools.cache
def _foundation() -> bytes:
    """A digest of what generated kernels are built on: where that changes, they are recompiled."""
    package = Path(__file__).parents[2]
    files = sorted(file for folder in BUILT_ON for file in (package / folder).rglob("*.py"))
    return hashlib.blake2b(b"".join(file.read_bytes() for file in files)).digest()


@functools.cache
def load_module(source: str) -> Any:
    """The module of `source`, from the cache folder; written there where it is new."""
    name = "kernel_" + hashlib.blake2b(_foundation() + source.encode(), digest_size=16).hexdigest()
    try:
        path = written(cache_folder() / f"{name}.py", source.encode())
    except OSError:  # no writable directory: compile for this process only
        path = written(Path(tempfile.mkdtemp(prefix="ensemble-fuse-")) / f"{name}.py", source.encode())
    spec = importlib.util.spec_from_file_location(f"ensemble_fuse.{name}", path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[module.__name__] = module  # where Numba and pickle look for it
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module
