"""Source of the compiled GBEES loops and of their drift and bounds functions, from the templates in `loops.py`."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ensemble._compile.lanes import arithmetic, circular, functions, quotients, types
from ensemble._compile.lanes import tables as _lane_tables
from ensemble._compile.trace.elementwise import SCALAR_FUNCTIONS
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numba_source import lanes_function, load_module, repeated_lines, scalar_function, tables
from ensemble._compile.trace.tracer import trace
from ensemble._kernels.gbees.frame import REAL, as_real, matrix_rows, position, velocity
from ensemble._kernels.gbees.limiters import trace_limiter
from ensemble._kernels.gbees.loops import (
    ADVANCE,
    ARRIVALS,
    BOUNDS,
    CORNER,
    DIVERGENCE,
    DRIFT,
    FLUXES,
    HEAD,
    MIDWAY,
    OUTFLOW,
    PARALLEL,
    RATIOS,
    REALS,
    SERIAL,
    SHARES,
    SPREADING,
    STATE,
    STATUS,
)

__all__ = [
    "REALS",
    "STATE",
    "STATUS",
    "StepTerms",
    "bounds_address",
    "drift_address",
    "layout",
    "step_of",
    "trace_bounds_at_centre",
    "trace_face_velocities",
]  # fmt: skip


class StepTerms(NamedTuple):
    """Terms of a step besides advection: diffusion, diffusion over edges, second order in time, bounds."""

    diffusive: bool
    mixing: bool
    second_order: bool
    bounded: bool


def layout(n: int, n_parameters: int, rotated: bool) -> dict[str, int]:
    """Offset of each kind of number in ``numbers``."""
    sizes = {"widths": n, "half_widths": n, "diffusion_rates": n, "diffusion_factors": n, "corners": n * n, "origin": n,
             "rotation": n * n * rotated, "range": 2, "parameters": n_parameters}  # fmt: skip
    places, at = {}, 0
    for name, size in sizes.items():
        places[name] = at
        at += size
    return places


def _point(s: Sequence[Any], numbers: Sequence[Any], at: dict[str, int]) -> list[Any]:
    """The centre, in the grid's frame, of the cell with multi-index `s`."""
    return [s[i] * numbers[at["widths"] + i] for i in range(len(s))]


def _frame(numbers: Sequence[Any], n: int, at: dict[str, int], rotated: bool) -> tuple[Any, Any]:
    """Origin and rotation, None without one, for `frame.position`."""
    rotation = matrix_rows(numbers[at["rotation"] :], n) if rotated else None
    return numbers[at["origin"] :], rotation


def trace_face_velocities(drift: Callable[..., Any], n: int, n_parameters: int, rotated: bool) -> Graph:
    """The graph of all n upper-face velocities of a cell. Inputs: multi-index, time, ``numbers``."""
    at = layout(n, n_parameters, rotated)

    def body(s: Any, t: Any, numbers: Any) -> Any:
        frame, given = _frame(numbers, n, at, rotated), numbers[at["parameters"] :]
        z, results = _point(s, numbers, at), []
        for i in range(n):
            face = [*z[:i], z[i] + numbers[at["half_widths"] + i], *z[i + 1 :]]
            results.append(as_real(velocity(drift, face, t, t.__array_namespace__(), *frame, given)[i]))
        return tuple(results)

    return trace(body, (REAL,) * n, REAL, (REAL,) * (at["parameters"] + n_parameters), function="Gbees")


def trace_bounds_at_centre(bounds: Callable[..., Any], n: int, n_parameters: int, rotated: bool) -> Graph:
    """The graph of `bounds` at the centre of a cell. Inputs: multi-index, ``numbers``."""
    at = layout(n, n_parameters, rotated)

    def body(s: Any, numbers: Any) -> Any:
        x = position(_point(s, numbers, at), *_frame(numbers, n, at, rotated))
        return as_real(bounds(x, s[0].__array_namespace__()))

    return trace(body, (REAL,) * n, (REAL,) * (at["parameters"] + n_parameters), function="Gbees")


def _inputs(graph: Graph, n: int, time: bool) -> list[tuple[str, int]]:
    """Source of each parameter of the graph's function: ("column", i), ("time", 0) or ("number", position)."""
    kinds = []
    for p in graph.strong_inputs:
        if p < n:
            kinds.append(("column", p))
        elif time and p == n:
            kinds.append(("time", 0))
        else:
            kinds.append(("number", p - n - time))
    return kinds


def step_source(n: int, limiter: str, dtype: str, kind: StepTerms, parallel: bool) -> str:
    """The module whose ``advance`` runs steps of any drift in `n` dimensions."""
    at, real = layout(n, 0, False), f"np.{dtype}"
    flux_lines = FLUXES + (SPREADING if kind.diffusive else "")
    differences, total = OUTFLOW, " + ".join(f"t_{j}" for j in range(n))
    if kind.second_order:
        lines = OUTFLOW.split("\n")
        differences = "\n".join([*lines[:4], DIVERGENCE.strip(), *lines[4:]])
        total += f" + x * ({' + '.join(f'd_{j}' for j in range(n))})"
    ratios, corners = [repeated_lines(1, RATIOS.format(real=real, **at), n)], ""
    if kind.mixing:
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        ratios += ["    " + SHARES.format(i=i, j=j, real=real, corners=at["corners"]) for i, j in pairs]
        corners = "\n".join(f"        {line}" for line in _corner_lines(n))
    text = (HEAD + (PARALLEL if parallel else SERIAL) + ADVANCE).format(
        digest=_digest(),
        compiler="compiled_serial" if parallel else "compiled_procedure",
        names="\n".join(f"{name} = {k}" for names in (STATUS, STATE, REALS) for k, name in enumerate(names)),
        borrowed=", ".join(f"borrowed(grid[{k}])" for k in range(10)),
        n=n, dtype=dtype, lanes=8 if dtype == "float64" else 16, limited=_limited(limiter, dtype),
        widths=at["widths"], diffusion_rates=at["diffusion_rates"],
        in_bounds="call_bounds(bounds, key, packing, numbers) != 0" if kind.bounded else "True",
        ratios="\n".join(ratios), differences=repeated_lines(2, differences, n), total=total, corners=corners,
        midway=MIDWAY if kind.second_order else "",
        fluxes=repeated_lines(2, flux_lines, n), arrivals=repeated_lines(2, ARRIVALS, n),
    )  # fmt: skip
    return _with_imports(text)


def _limited(limiter: str, dtype: str) -> str:
    """The function ``limited`` of two differences, in as many lanes as probabilities."""
    _, lines = lanes_function(trace_limiter(limiter, dtype), "limited").split("\n", 1)  # "none" reads neither input
    return "def limited(a0, a1):\n" + lines.replace("WIDTH", "LANES")


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


def _column(i: int) -> str:
    """Component `i` of the multi-index of ``key``."""
    return f"((key >> packing[0, {i}]) & packing[1, {i}]) + packing[2, {i}]"


POINTERS = {"keys_at": "CPointer(int64)", "numbers_at": "CPointer(float64)"}


def drift_source(graph: Graph, n: int, dtype: str) -> str:
    """The module whose ``velocities`` evaluates the graph of `trace_face_velocities`."""
    inputs = _inputs(graph, n, True)
    words = {"column": "s{}", "time": "now", "number": "a{}"}
    columns = [
        f"s{i} = as_float64({_column(i)})"
        for kind, i in inputs if kind == "column"
    ] + ["now = spread(time, WIDTH)"] + [
        f"a{p} = spread(numbers[{p}], WIDTH)" for kind, p in inputs if kind == "number"
    ]  # fmt: skip
    text = DRIFT.format(
        n=n, tables=tables(graph), drift=lanes_function(graph, "drift"), reals_at=f"CPointer({dtype})", **POINTERS,
        columns="\n".join(f"        {line}" for line in columns),
        results=", ".join(f"r_{i}" for i in range(n)),
        arguments=", ".join(words[kind].format(p) for kind, p in inputs),
        stores=repeated_lines(3, f"store(v, J * size + c, as_{dtype}(r_J))", n),
        last_stores=repeated_lines(3, f"store_some(v, J * size + c, last - c, as_{dtype}(r_J))", n),
    )  # fmt: skip
    return _with_imports(text)


def bounds_source(graph: Graph, n: int, low: int) -> str:
    """The module whose ``in_bounds`` compares bounds with the range at `low` in ``numbers``."""
    values = [f"float({_column(i)})" if kind == "column" else f"numbers[{i}]" for kind, i in _inputs(graph, n, False)]
    return BOUNDS.format(
        n=n, tables=tables(graph), bounds=scalar_function(graph, "bounds"), functions=", ".join(SCALAR_FUNCTIONS),
        arguments=", ".join(values), low=low, **POINTERS,
    )  # fmt: skip


def _with_imports(text: str) -> str:
    """`text` with imports of the lane functions that it calls."""
    called = {*re.findall(r"\w+(?=\()", text)}
    lanes_modules = (arithmetic, circular, functions, quotients, _lane_tables, types)
    wanted = [(module.__name__, [name for name in module.__all__ if name in called]) for module in lanes_modules]
    imports = "\n".join(f"from {name} import {', '.join(names)}" for name, names in wanted if names)
    return text.replace("IMPORTS", imports, 1)


@functools.cache
def _digest() -> str:
    """Digest of the functions that are inlined into the module: where they change, it is recompiled."""
    file = Path(__file__).with_name("grid.py")
    return hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()


@functools.cache
def step_of(n: int, limiter: str, dtype: str, kind: StepTerms, parallel: bool) -> Callable[..., int]:
    """The compiled ``advance``, for one thread or `parallel`."""
    advance: Callable[..., int] = load_module(step_source(n, limiter, dtype, kind, parallel)).advance
    return advance


def drift_address(graph: Graph, n: int, dtype: str) -> int:
    """Address of the compiled velocities of a drift."""
    return int(load_module(drift_source(graph, n, dtype)).velocities.address)


def bounds_address(graph: Graph | None, n: int, low: int) -> int:
    """Address of the compiled bounds; 0 without bounds."""
    return 0 if graph is None else int(load_module(bounds_source(graph, n, low)).in_bounds.address)
