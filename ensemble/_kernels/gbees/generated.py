"""The code of a GBEES run: its loops over all cells, and the functions of one drift and of bounds that they call."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ensemble._compile.lanes import arithmetic, circular, functions, quotients, types
from ensemble._compile.lanes import tables as _lane_tables
from ensemble._compile.trace.elementwise import SCALAR_FUNCTIONS
from ensemble._compile.trace.graph import Graph, Node
from ensemble._compile.trace.numba_source import lanes_function, load_module, scalar_function, tables
from ensemble._compile.trace.tracer import Scalar, Traced, trace
from ensemble._kernels.gbees.loops import (
    ADVANCE,
    ALONE,
    ARRIVALS,
    BOUNDS,
    CORNER,
    DIVERGENCE,
    DRIFT,
    FLUXES,
    HEAD,
    LIMITERS,
    MIDWAY,
    OUTFLOW,
    RATIOS,
    REALS,
    SHARED,
    SHARES,
    SPREADING,
    STATE,
    STATUS,
)

__all__ = [
    "LIMITERS",
    "REALS",
    "STATE",
    "STATUS",
    "Kind",
    "address_of_bounds",
    "address_of_drift",
    "hoisted",
    "layout",
    "step_of",
    "trace_bounds",
    "trace_velocity",
]  # fmt: skip


class Kind(NamedTuple):
    """What steps have to do besides advection: diffusion, also over edges, the second order in time, and bounds."""

    diffusive: bool
    mixing: bool
    second_order: bool
    bounded: bool


class _Flat:
    """A matrix of traced numbers under two indices."""

    def __init__(self, entries: Any, n: int) -> None:
        self.entries, self.n = entries, n

    def __getitem__(self, at: tuple[int, int]) -> Any:
        return self.entries[at[0] * self.n + at[1]]


def layout(n: int, n_parameters: int, rotated: bool) -> dict[str, int]:
    """Where each kind of number stands in ``numbers``."""
    sizes = {"widths": n, "halves": n, "leaks": n, "spread": n, "corners": n * n, "origin": n,
             "rotation": n * n * rotated, "range": 2, "parameters": n_parameters}  # fmt: skip
    places, at = {}, 0
    for name, size in sizes.items():
        places[name] = at
        at += size
    return places


def _place(z: Any, origin: Any, rotation: Any) -> tuple[Any, ...]:
    """The point in space of the point `z` of the grid's frame."""
    n = len(z)
    if rotation is None:
        return tuple(z[i] + origin[i] for i in range(n))
    turned = (sum((rotation[i, j] * z[j] for j in range(1, n)), rotation[i, 0] * z[0]) for i in range(n))
    return tuple(value + origin[i] for i, value in enumerate(turned))


def _number(value: Any) -> Any:
    return value if isinstance(value, Traced) else float(value)


def trace_velocity(drift: Callable[..., Any], n: int, n_parameters: int, rotated: bool) -> Graph:
    """The graph of all n upper-face velocities of a cell: multi-index, time and ``numbers`` in."""
    at = layout(n, n_parameters, rotated)

    def body(s: Any, t: Any, numbers: Any) -> Any:
        xp = t.__array_namespace__()
        rotation = _Flat(numbers[at["rotation"] :], n) if rotated else None
        results = []
        z = [s[i] * numbers[at["widths"] + i] for i in range(n)]
        for i in range(n):
            face = [*z[:i], z[i] + numbers[at["halves"] + i], *z[i + 1 :]]
            x = _place(face, numbers[at["origin"] :], rotation)
            f = tuple(drift(x, t, xp, *numbers[at["parameters"] :]))
            if len(f) != n:
                raise ValueError(f"Gbees: drift must give one number a dimension, {n}; got {len(f)}.")
            if rotation is not None:
                along = sum((rotation[j, i] * f[j] for j in range(1, n)), rotation[0, i] * f[0])
            else:
                along = f[i]
            results.append(_number(along))
        return tuple(results)

    real = Scalar("float64")
    return trace(body, (real,) * n, real, (real,) * (at["parameters"] + n_parameters), function="Gbees")


def trace_bounds(bounds: Callable[..., Any], n: int, n_parameters: int, rotated: bool) -> Graph:
    """The graph of ``bounds`` at the centre of a cell."""
    at = layout(n, n_parameters, rotated)

    def body(s: Any, numbers: Any) -> Any:
        rotation = _Flat(numbers[at["rotation"] :], n) if rotated else None
        z = [s[i] * numbers[at["widths"] + i] for i in range(n)]
        return _number(bounds(_place(z, numbers[at["origin"] :], rotation), s[0].__array_namespace__()))

    real = Scalar("float64")
    return trace(body, (real,) * n, (real,) * (at["parameters"] + n_parameters), function="Gbees")


def hoisted(graph: Graph, first: int) -> tuple[Graph, list[float]]:
    """The graph with its float64 constants as further inputs from number `first` on, and their values.

    Drifts that differ in numbers alone then share their machine code. Operations, and so the bits, stay the same.
    """
    values: list[float] = []
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.operation == "constant" and node.dtype == "float64":
            node = Node("input", (), "float64", first + len(values))
            values.append(float(graph.nodes[len(nodes)].value))
        nodes.append(node)
    return Graph(tuple(nodes), first + len(values), graph.outputs, graph.structure), values


def _lines(depth: int, text: str, n: int) -> str:
    """`text` once a dimension, ``J`` in it the number of the dimension."""
    pad = "    " * depth
    lines = text.split("\n")
    return "\n".join(pad + re.sub(r"\bJ\b", str(j), line.replace("_J", f"_{j}")) for j in range(n) for line in lines)


def _inputs(graph: Graph, n: int, time: bool) -> list[tuple[str, int]]:
    """What each parameter of the graph's function stands for: ("column", i), ("time", 0) or ("number", position)."""
    kinds = []
    for p in graph.strong_inputs:
        if p < n:
            kinds.append(("column", p))
        elif time and p == n:
            kinds.append(("time", 0))
        else:
            kinds.append(("number", p - n - time))
    return kinds


def step_source(n: int, limiter: str, dtype: str, kind: Kind, shared: bool) -> str:
    """The module whose ``advance`` runs steps of every drift in `n` dimensions."""
    at, real = layout(n, 0, False), f"np.{dtype}"
    flux_lines = FLUXES + (SPREADING if kind.diffusive else "")
    differences, total = OUTFLOW, " + ".join(f"t_{j}" for j in range(n))
    if kind.second_order:
        lines = OUTFLOW.split("\n")
        differences = "\n".join([*lines[:4], DIVERGENCE.strip(), *lines[4:]])
        total += f" + x * ({' + '.join(f'd_{j}' for j in range(n))})"
    ratios, corners = [_lines(1, RATIOS.format(real=real, **at), n)], ""
    if kind.mixing:
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        ratios += ["    " + SHARES.format(i=i, j=j, real=real, corners=at["corners"]) for i, j in pairs]
        corners = "\n".join(f"        {line}" for line in _corner_lines(n))
    text = (HEAD + (SHARED if shared else ALONE) + ADVANCE).format(
        digest=_digest(),
        names="\n".join(f"{name} = {k}" for names in (STATUS, STATE, REALS) for k, name in enumerate(names)),
        borrowed=", ".join(f"borrowed(grid[{k}])" for k in range(10)),
        n=n, dtype=dtype, lanes=8 if dtype == "float64" else 16, limiter=LIMITERS[limiter],
        widths=at["widths"], leaks=at["leaks"],
        admitted="call_bounds(bounds, key, frame, numbers) != 0" if kind.bounded else "True",
        ratios="\n".join(ratios), differences=_lines(2, differences, n), total=total, corners=corners,
        midway=MIDWAY if kind.second_order else "",
        fluxes=_lines(2, flux_lines, n), arrivals=_lines(2, ARRIVALS, n),
    )  # fmt: skip
    return _with_imports(text)


def _corner_lines(n: int) -> list[str]:
    """The lines of all exchange over edges."""
    lines = []
    for i in range(n):
        for j in range(i + 1, n):
            for up, over in ((1, 1), (0, 0), (1, 0), (0, 1)):
                share = f"{i}_{j}" if up == over else f"{j}_{i}"
                to_i, to_j = (i + n * up, j + n * over)
                names = {"first": f"{'lu'[up]}_{i}", "other": f"{'lu'[over]}_{j}"}
                lines += CORNER.format(to_i=to_i, to_j=to_j, share=share, **names).split("\n")
    return lines


POINTERS = {"keys_at": "CPointer(int64)", "numbers_at": "CPointer(float64)"}


def drift_source(graph: Graph, n: int, dtype: str) -> str:
    """The module whose ``velocities`` works out the graph of `trace_velocity`."""
    inputs = _inputs(graph, n, True)
    words = {"column": "s{}", "time": "now", "number": "a{}"}
    columns = [
        f"s{i} = as_float64(((key >> frame[0, {i}]) & frame[1, {i}]) + frame[2, {i}])"
        for kind, i in inputs if kind == "column"
    ] + ["now = spread(time, WIDTH)"] + [
        f"a{p} = spread(numbers[{p}], WIDTH)" for kind, p in inputs if kind == "number"
    ]  # fmt: skip
    text = DRIFT.format(
        n=n, tables=tables(graph), drift=lanes_function(graph, "drift"), reals_at=f"CPointer({dtype})", **POINTERS,
        columns="\n".join(f"        {line}" for line in columns),
        results=", ".join(f"r_{i}" for i in range(n)),
        arguments=", ".join(words[kind].format(p) for kind, p in inputs),
        stores=_lines(3, f"store(v, J * size + c, as_{dtype}(r_J))", n),
        last_stores=_lines(3, f"store_some(v, J * size + c, last - c, as_{dtype}(r_J))", n),
    )  # fmt: skip
    return _with_imports(text)


def bounds_source(graph: Graph, n: int, low: int) -> str:
    """The module whose ``admitted`` judges the graph of `trace_bounds` by the range at `low` in ``numbers``."""
    values = ", ".join(
        f"float(((key >> frame[0, {i}]) & frame[1, {i}]) + frame[2, {i}])" if kind == "column" else f"numbers[{i}]"
        for kind, i in _inputs(graph, n, False)
    )
    return BOUNDS.format(
        n=n, tables=tables(graph), bounds=scalar_function(graph, "bounds"), functions=", ".join(SCALAR_FUNCTIONS),
        arguments=values, low=low, **POINTERS,
    )  # fmt: skip


def _with_imports(text: str) -> str:
    """`text` with the functions on lanes imported that it calls."""
    called = {*re.findall(r"\w+(?=\()", text)}
    lanes_modules = (arithmetic, circular, functions, quotients, _lane_tables, types)
    wanted = [(module.__name__, [name for name in module.__all__ if name in called]) for module in lanes_modules]
    imports = "\n".join(f"from {name} import {', '.join(names)}" for name, names in wanted if names)
    return text.replace("IMPORTS", imports, 1)


@functools.cache
def _digest() -> str:
    """Of the functions that end up inside the module: where they change, it is compiled anew."""
    file = Path(__file__).with_name("grid.py")
    return hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()


@functools.cache
def step_of(n: int, limiter: str, dtype: str, kind: Kind, shared: bool) -> Callable[..., int]:
    """The compiled ``advance``, for the calling thread or `shared` among all threads."""
    advance: Callable[..., int] = load_module(step_source(n, limiter, dtype, kind, shared)).advance
    return advance


def address_of_drift(graph: Graph, n: int, dtype: str) -> int:
    """Where the compiled velocities of a drift lie in this process."""
    return int(load_module(drift_source(graph, n, dtype)).velocities.address)


def address_of_bounds(graph: Graph | None, n: int, low: int) -> int:
    """Where the compiled bounds lie in this process; 0 where there are none."""
    return 0 if graph is None else int(load_module(bounds_source(graph, n, low)).admitted.address)
