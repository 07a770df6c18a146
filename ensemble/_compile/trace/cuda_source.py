"""Graphs written out as CUDA C++: a ``__device__`` function, and the elementwise kernel around it.

Compile with `OPTIONS`: products and sums are then rounded one by one, as on the CPU. A thread takes as many elements
as fill 16 bytes, so that each load and store is as wide as the memory's own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._compile.cuda import COMMON_TYPES, sources
from ensemble._compile.device import address, raw_module
from ensemble._compile.trace.broadcast import Layout
from ensemble._compile.trace.graph import Graph, Node
from ensemble._compile.trace.operations import INTERNAL, OPERATIONS
from ensemble._typing import Array

__all__ = ["OPTIONS", "PRELUDE", "Access", "device_function", "elementwise_source", "expression", "launch", "tables"]

OPTIONS = ("--fmad=false", "--std=c++17")

THREADS = 256

TYPES = {"bool": "bool", "int32": "int", "int64": "long long", "float32": "float", "float64": "double"}

PRELUDE = sources(COMMON_TYPES, "_compile/include/elementwise.cuh")


def _constant(node: Node) -> str:
    value, kind = node.value, TYPES[node.dtype]
    if node.dtype == "bool":
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        text = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    elif isinstance(value, float):
        text = repr(value)
    else:
        text = "(-9223372036854775807LL - 1)" if value == -(2**63) else f"{value}LL"
    return f"static_cast<{kind}>({text})"


def _expression(graph: Graph, node: Node) -> str:
    """The right-hand side of one definition."""
    if node.operation == "constant":
        return _constant(node)
    operands = [f"t{k}" for k in node.inputs]
    kind = TYPES[node.dtype]
    if node.operation == "cast":
        return f"{operands[0]} != 0" if node.dtype == "bool" else f"static_cast<{kind}>({operands[0]})"
    if node.operation == "interp":
        table = node.value
        return f"interpolated({operands[0]}, {table.name}_points, {table.name}_values, {table.points.size})"
    integer = graph.nodes[node.inputs[-1]].dtype.startswith("int")
    operation = OPERATIONS.get(node.operation) or INTERNAL[node.operation]
    text = operation.text("cuda", integer).format(*operands)
    return f"static_cast<{kind}>({text})"


def expression(graph: Graph, node: Node) -> str:
    """The right-hand side of one definition, with operands `t<k>`."""
    return _expression(graph, node)


def kinds_of(graph: Graph) -> dict[str, str]:
    """The C++ type of each parameter of the body, by name, in order."""
    return {name: TYPES[dtype] for name, dtype in graph.parameters.items()}


def device_function(graph: Graph, name: str) -> str:
    """CUDA C++ of the body: scalars in by value, results out by reference (`r0`, `r1`, ...)."""
    taken = [f"{kind} {parameter}" for parameter, kind in kinds_of(graph).items()]
    given = [f"{TYPES[dtype]}& r{k}" for k, dtype in enumerate(graph.dtypes)]
    lines = [f"__device__ __forceinline__ void {name}({', '.join([*taken, *given])}) {{"]
    for k, text in graph.definitions(_expression):
        lines.append(f"    const {TYPES[graph.nodes[k].dtype]} t{k} = {text};")
    lines += [f"    r{number} = t{k};" for number, k in enumerate(graph.outputs)]
    return "\n".join([*tables(graph), *lines, "}"])


def tables(graph: Graph) -> list[str]:
    """The tables that are interpolated in; a table of another function of the same source is not defined again."""
    lines = []
    for table in graph.tables:
        lines += [f"#ifndef DEFINED_{table.name}", f"#define DEFINED_{table.name}"]
        for part in ("points", "values"):
            numbers = ", ".join(map(repr, getattr(table, part).tolist()))
            lines.append(f"__device__ const double {table.name}_{part}[] = {{{numbers}}};")
        lines.append("#endif")
    return lines


@dataclass(frozen=True)
class Access:
    """How one kernel reaches memory: decided by the layout, written into its source."""

    n_axes: int
    modes: tuple[str, ...]
    """The mode of each operand along the last axis: "pack" (contiguous), "same" (one value) or "strided"."""
    width: int
    """Elements that a thread takes at a time: 16 bytes of the widest dtype where everything allows it."""
    index: str = "unsigned int"


def elementwise_source(graph: Graph, arrays: Sequence[int], access: Access) -> str:
    """A kernel ``fused(n, lengths, inputs with their strides, scalars, outs)`` over joined axes."""
    kinds = kinds_of(graph)
    modes = {f"a{p}": mode for p, mode in zip(arrays, access.modes, strict=True) if graph.uses(p)}
    numbers = range(len(graph.outputs))
    index, width = access.index, access.width
    signature = [f"const {index} n", *(f"const {index} d{axis}" for axis in range(access.n_axes))]
    for name, kind in kinds.items():
        if name in modes:
            signature += [f"const {kind}* {name}", *(f"const long long {name}_{k}" for k in range(access.n_axes))]
        else:
            signature.append(f"const {kind} {name}")
    signature += [f"{TYPES[graph.dtypes[k]]}* o{k}" for k in numbers]
    results = ", ".join(f"r{k}.lane[e]" for k in numbers)
    given = ", ".join([f"x{name[1:]}.lane[e]" if name in modes else name for name in kinds])
    inside = [*_places(modes, access), *(_loaded(name, kinds[name], mode, access) for name, mode in modes.items())]
    inside += [f"PackOf<{TYPES[graph.dtypes[k]]}, {width}> r{k};" for k in numbers]
    inside += [
        "#pragma unroll",
        f"for (int e = 0; e < {width}; ++e) body({', '.join(filter(None, [given, results]))});",
    ]
    inside += [f"*reinterpret_cast<PackOf<{TYPES[graph.dtypes[k]]}, {width}>*>(o{k} + i) = r{k};" for k in numbers]
    rest = ""
    if width > 1 and access.n_axes == 1:
        alone = [f"{name}[i * {name}_0]" if name in modes else name for name in kinds]
        targets = [f"o{k}[i]" for k in numbers]
        rest = (
            f"for ({index} i = n / {width} * {width} + first; i < n; i += step) body({', '.join([*alone, *targets])});"
        )
    lines = "\n        ".join(inside)
    return f"""{PRELUDE}
{device_function(graph, "body")}

extern "C" __global__ void fused({", ".join(signature)}) {{
    const {index} step = gridDim.x * blockDim.x;
    const {index} first = blockIdx.x * blockDim.x + threadIdx.x;
    for ({index} pack = first; pack < n / {width}; pack += step) {{
        const {index} i = pack * {width};
        {lines}
    }}
    {rest}
}}
"""


def _places(modes: dict[str, str], access: Access) -> list[str]:
    """Lines that find where each operand's pack starts."""
    lines = [f"{access.index} rest = i;"] if access.n_axes > 1 else []
    last = access.n_axes - 1
    for axis in range(last, -1, -1):
        place = "i" if access.n_axes == 1 else f"rest % d{axis}" if axis else "rest"
        lines.append(f"const long long c{axis} = {place};")
        if axis:
            lines.append(f"rest /= d{axis};")
    for name, mode in modes.items():
        steps = [f"c{axis} * {name}_{axis}" for axis in range(last)]
        steps += {"pack": [f"c{last}"], "same": [], "strided": [f"c{last} * {name}_{last}"]}[mode]
        lines.append(f"const long long at{name[1:]} = {' + '.join(steps) or '0'};")
    return lines


def _loaded(name: str, kind: str, mode: str, access: Access) -> str:
    """The line that loads one operand's pack."""
    pack, first = f"PackOf<{kind}, {access.width}>", f"{name} + at{name[1:]}"
    if mode == "pack":
        return f"const {pack} x{name[1:]} = *reinterpret_cast<const {pack}*>({first});"
    step = f"{name}_{access.n_axes - 1}" if mode == "strided" else "0"
    return f"const {pack} x{name[1:]} = gathered<{kind}, {access.width}>({first}, {step});"


@functools.lru_cache(maxsize=256)
def _kernel(source: str) -> Any:
    return raw_module(source, OPTIONS).get_function("fused")


def launch(graph: Graph, arrays: dict[int, Array], layout: Layout, numbers: dict[str, Any], outs: list[Array]) -> None:
    """Run the kernel on CuPy arrays, by position; `numbers` are the scalar parameters by name."""
    given = {
        position: array.copy(order="C") if form == "copy" else array
        for (position, array), form in zip(arrays.items(), layout.forms, strict=True)
    }
    access = _access(graph, given, layout, outs)
    whole = np.uint32 if access.index == "unsigned int" else np.int64
    arguments: list[Any] = [whole(layout.size), *(whole(length) for length in layout.axes)]
    strides = dict(zip(arrays, layout.strides, strict=True))
    for name in kinds_of(graph):
        if name in numbers:
            arguments.append(numbers[name])
        else:
            position = int(name[1:])
            arguments += [given[position], *(np.int64(stride) for stride in strides[position])]
    source = elementwise_source(graph, list(arrays), access)
    n_blocks = min(max(-(-layout.size // (THREADS * access.width)), 1), 1 << 20)
    _kernel(source)((n_blocks,), (THREADS,), (*arguments, *outs))


def _access(graph: Graph, arrays: dict[int, Array], layout: Layout, outs: list[Array]) -> Access:
    modes = tuple({1: "pack", 0: "same"}.get(strides[-1], "strided") for strides in layout.strides)
    packed = [
        (array, strides)
        for (position, array), mode, strides in zip(arrays.items(), modes, layout.strides, strict=True)
        if mode == "pack" and graph.uses(position)
    ]
    width = 16 // max(array.dtype.itemsize for array in [*outs, *(array for array, _ in packed)])
    while width > 1 and not (
        (len(layout.axes) == 1 or layout.axes[-1] % width == 0)
        and all(address(array) % (width * array.dtype.itemsize) == 0 for array in [*outs, *(a for a, _ in packed)])
        and all(stride % width == 0 for _, strides in packed for stride in strides[:-1])
    ):
        width //= 2
    return Access(len(layout.axes), modes, width, "unsigned int" if layout.size < 1 << 30 else "long long")
