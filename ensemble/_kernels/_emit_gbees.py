"""The loops of a GBEES run over all its cells, written out for one number of dimensions, one limiter and one drift.

A step is two passes. The first works out all that leaves a cell: every quantity that a flux takes from its upwind side
belongs to that one cell and its two neighbours along the dimension, so both fluxes that may leave the cell through its
two faces of a dimension are made where it is. The second adds up what arrives. There are no sums into shared places.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ensemble._kernels import _lane_arithmetic, _lane_circular, _lane_functions, _lane_quotients, _lanes
from ensemble._kernels._emit_numba import lanes_function, load_module, parameters, scalar_function
from ensemble._kernels._trace import Graph, Node, Scalar, trace
from ensemble._kernels._traced import Traced

__all__ = ["LIMITERS", "REALS", "STATE", "STATUS", "hoisted", "layout", "module_of", "trace_bounds", "trace_velocity"]

LIMITERS = {
    "mc": "positive(smaller(smaller(a + a, d + d), 0.5 * (a + d))) + negative(larger(larger(a + a, d + d), 0.5 * (a + d)))",
    "minmod": "positive(smaller(a, d)) + negative(larger(a, d))",
    "superbee": "positive(smaller(larger(a, d), smaller(a + a, d + d))) + negative(larger(smaller(a, d), larger(a + a, d + d)))",
    "van_leer": "harmonic(a, d)",
    "none": "0.0 * a",
}
"""The limited slope from the differences to both sides: zero where their signs differ, the same whichever is upwind."""

STATUS = ("DONE", "FULL", "RIM", "PAUSED", "NOT_FINITE", "EMPTY", "NONE_LEFT", "STUCK")
"""How ``advance`` ends."""

STATE = ("END", "KNOWN", "SORTED", "COUNT", "RECORDED", "BUDGET", "PRUNE_EVERY", "SEQUENTIAL", "TIME_VARYING",
         "START", "RESUMED", "SWAPPED")  # fmt: skip
"""The entries of ``state``, int64: cells end, cells with velocities end, cells in order end, steps since the last
weighing, steps told, cell-steps still allowed, ..., where the cells of the last whole step end, whether growing has begun
since, whether the two buffers of probabilities have changed places."""

REALS = ("ELAPSED", "SPAN", "TIME", "MOMENT", "RATE", "THRESHOLD", "CFL")
"""The entries of ``reals``, float64: ..., when the velocities were taken, the largest share of a cell that may leave it in
unit time, ..."""

HEAD = '''"""The loops of a GBEES run, written by ensemble; it may be deleted at any time. {digest}"""

import numpy as np

from ensemble._kernels._compile import compiled, compiled_serial, inner, prange
from ensemble._kernels.gbees import BASE, GOOD, UNIT, attach, beside, find, flows, prune, room_for
IMPORTS

N = {n}
WIDTH = 8
LANES = {lanes}
BLOCK = 4096
{names}


@inner
def smaller(a, b):
    return select(a < b, a, b)


@inner
def larger(a, b):
    return select(a > b, a, b)


@inner
def positive(a):
    return select(a > 0.0, a, 0.0)


@inner
def negative(a):
    return select(a < 0.0, a, 0.0)


@inner
def harmonic(a, d):
    small, large = smaller(absolute(a), absolute(d)), larger(absolute(a), absolute(d))
    size = 2.0 * small / (1.0 + small / select(large > 0.0, large, 1.0 + 0.0 * large))
    return select((a > 0.0) & (d > 0.0), size, select((a < 0.0) & (d < 0.0), -size, 0.0 * size))


@inner
def limited(a, d):
    return {limiter}


@inner
{drift}


@inner
{bounds}


@inner
def admitted(key, frame, numbers):
    {admitted}


@inner
def velocities(first, last, time, grid, frame, numbers):
    keys, v = grid[0], grid[3]
    size = keys.size
    for c in range(first, last, WIDTH):
        key = load(keys, c, WIDTH) if last - c >= WIDTH else load_some(keys, c, last - c, WIDTH)
{columns}
        {results} = drift({arguments})
        if last - c >= WIDTH:
{stores}
        else:
{last_stores}


@inner
def fastest(first, last, v, size, numbers):
    """The largest share of a cell that may leave it in unit time, and whether all velocities are finite."""
    most = zeros(numbers, WIDTH)
    good = most == most
    for c in range(first, last, WIDTH):
        rate = zeros(numbers, WIDTH)
        for i in range(N):
            here = load(v, i * size + c, WIDTH) if last - c >= WIDTH else load_some(v, i * size + c, last - c, WIDTH)
            rate = rate + (absolute(as_float64(here)) / numbers[{widths} + i] + numbers[{leaks} + i])
        good = good & (rate < np.inf)
        most = select(rate > most, rate, most)
    most_of_all, all_good = 0.0, True
    for k in range(WIDTH):
        most_of_all = max(most_of_all, lane(most, k))
        all_good = all_good and lane(good, k)
    return most_of_all, all_good


@inner
def refreshed(first, last, time, grid, frame, numbers):
    velocities(first, last, time, grid, frame, numbers)
    return fastest(first, last, grid[3], grid[0].size, numbers)


@inner
def settle(cell, end, keys, v, links, growing, table, frame, numbers):
    """Make all cells that `cell` may flow into: over its faces, and over the edges between two of them.

    Gives the new end and how it went. Cells that `admitted` refuses stay missing.
    """
    size, n = keys.size, frame.shape[1]  # no constant: unrolled, this would be most of the code
    for i in range(n):
        for step in (1, -1):
            if not flows(v[i * size + cell], i, step, frame):
                continue
            face = links[(i + (n if step > 0 else 0)) * size + cell]
            key = beside(keys[cell], i, step, frame)
            if face == 0 and admitted(key, frame, numbers):
                status = room_for(key, end, n, keys, frame)
                if status != GOOD:
                    return end, status
                attach(key, end, cell, i, step, n, keys, links, growing, table, frame)
                face = end
                end += 1
            for j in range(i + 1, n):
                for side in (1, -1):
                    if not flows(v[j * size + cell], j, side, frame):
                        continue
                    if face and links[(j + (n if side > 0 else 0)) * size + face]:
                        continue
                    edge = beside(key, j, side, frame)
                    if (face or find(edge, keys, table) == 0) and admitted(edge, frame, numbers):
                        status = room_for(edge, end, n, keys, frame)
                        if status != GOOD:
                            return end, status
                        attach(edge, end, face, j, side, n, keys, links, growing, table, frame)
                        end += 1
    growing[cell] = False
    return end, GOOD


@inner
def growing_cells(end, limit, grid, frame, numbers):
    """All cells that probability may flow into; gives the new end and how it went."""
    keys, p, v, links, growing, table = grid[0], grid[1], grid[3], grid[4], grid[7], grid[9]
    last = end
    for c in range(BASE, last, LANES):
        if any_lane((load(p, c, LANES) >= limit) & load(growing, c, LANES)):
            for cell in range(c, min(last, c + LANES)):
                if growing[cell] and p[cell] >= limit:
                    end, status = settle(cell, end, keys, v, links, growing, table, frame, numbers)
                    if status != GOOD:
                        return end, status
    return end, GOOD


@inner
def outflow(first, last, dt, grid, numbers):
    p, q, v, links, up, down = grid[1], grid[2], grid[3], grid[4], grid[5], grid[6]
    size = p.size
{ratios}
    for c in range(first, last, LANES):
        x = load(p, c, LANES)
{differences}
        left = x - ({total})
        stays = x
{fluxes}
        store(q, c, stays)


@inner
def inflow(first, last, grid, sums):
    """Add up what arrives; gives the mass in whole multiples of `UNIT`, so that no order of the cells is in its bits."""
    q, links, up, down = grid[2], grid[4], grid[5], grid[6]
    size = q.size
    total = zeros(sums, LANES)
    for c in range(first, last, LANES):
        x = load(q, c, LANES)
{arrivals}
        x = select(x > 0.0, x, 0.0)
        store(q, c, x)
        total = total + as_int64(rint(as_float64(x) / UNIT))
    mass = 0
    for k in range(LANES):
        mass += lane(total, k)
    return mass


@inner
def scale(first, last, factor, q):
    for c in range(first, last, LANES):
        store(q, c, as_{dtype}(as_float64(load(q, c, LANES)) * factor))
'''

ALONE = '''

@inner
def refresh(first, last, time, grid, frame, numbers, blocks):
    """Velocities of these cells, and the largest rate among them; NaN where one is not finite."""
    most, good = refreshed(first, last, time, grid, frame, numbers)
    return most if good else np.nan


@inner
def flow(end, dt, grid, numbers, sums):
    """One step of length `dt` into the second buffer; gives the mass there."""
    outflow(BASE, end, dt, grid, numbers)
    return inflow(BASE, end, grid, sums) * UNIT


@inner
def normalise(end, mass, q):
    """Bring what `flow` gave to a sum of 1."""
    scale(BASE, end, 1.0 / mass, q)
'''

SHARED = '''

@compiled
def refreshed_by_all(first, last, time, grid, frame, numbers, blocks):
    for b in prange((last - first + BLOCK - 1) // BLOCK):
        begin = first + b * BLOCK
        most, good = refreshed(begin, min(last, begin + BLOCK), time, grid, frame, numbers)
        blocks[b] = most if good else np.nan


@compiled
def outflow_by_all(last, dt, grid, numbers):
    for b in prange((last - BASE + BLOCK - 1) // BLOCK):
        first = BASE + b * BLOCK
        outflow(first, min(last, first + BLOCK), dt, grid, numbers)


@compiled
def inflow_by_all(last, grid, sums):
    for b in prange((last - BASE + BLOCK - 1) // BLOCK):
        first = BASE + b * BLOCK
        sums[b] = inflow(first, min(last, first + BLOCK), grid, sums)


@compiled
def scale_by_all(last, factor, q):
    for b in prange((last - BASE + BLOCK - 1) // BLOCK):
        first = BASE + b * BLOCK
        scale(first, min(last, first + BLOCK), factor, q)


@inner
def refresh(first, last, time, grid, frame, numbers, blocks):
    """Velocities of these cells, and the largest rate among them; NaN where one is not finite."""
    refreshed_by_all(first, last, time, grid, frame, numbers, blocks)
    most = 0.0
    for b in range((last - first + BLOCK - 1) // BLOCK):
        if not blocks[b] <= most:
            most = blocks[b]
        if most != most:
            break
    return most


@inner
def flow(end, dt, grid, numbers, sums):
    """One step of length `dt` into the second buffer; gives the mass there."""
    outflow_by_all(end, dt, grid, numbers)
    inflow_by_all(end, grid, sums)
    mass = 0
    for b in range((end - BASE + BLOCK - 1) // BLOCK):
        mass += sums[b]
    return mass * UNIT


@inner
def normalise(end, mass, q):
    """Bring what `flow` gave to a sum of 1."""
    scale_by_all(end, 1.0 / mass, q)
'''

ADVANCE = '''

@compiled_serial
def advance(grid, frame, numbers, state, reals, lengths, cells, masses):
    """Steps until the span is over, the budget of cell-steps is used up, or something is in the way."""
    grid, frame, numbers = ({borrowed}), borrowed(frame), borrowed(numbers)
    real = grid[1].dtype.type
    size = grid[0].size
    blocks, sums = np.empty(size // BLOCK + 1), np.empty(size // BLOCK + 1, np.int64)
    while True:
        end = state[END]
        if state[KNOWN] < end:
            rate = refresh(state[KNOWN], end, reals[MOMENT], grid, frame, numbers, blocks)
            if rate != rate:
                return NOT_FINITE
            reals[RATE] = max(reals[RATE], rate)
            state[KNOWN] = end
        if reals[ELAPSED] >= reals[SPAN]:
            return DONE
        if state[RECORDED] == lengths.size or state[BUDGET] <= 0:
            return PAUSED
        if state[RESUMED] == 0:
            state[START] = end
            if state[TIME_VARYING]:
                grid[7][BASE:end] = True
        state[RESUMED] = 1
        state[END], status = growing_cells(end, real(reals[THRESHOLD]), grid, frame, numbers)
        known, end = end, state[END]
        if status != GOOD:
            return status
        if state[TIME_VARYING]:
            known, reals[RATE] = BASE, 0.0
        now = reals[TIME] + reals[ELAPSED]
        rate = refresh(known, end, now, grid, frame, numbers, blocks)
        if rate != rate:
            return NOT_FINITE
        reals[RATE] = max(reals[RATE], rate)
        state[KNOWN] = end
        left = reals[SPAN] - reals[ELAPSED]
        dt = left
        if reals[RATE] > 0.0:
            dt = min(reals[CFL] / reals[RATE], left)
        if dt < left and now + dt == now:
            return STUCK
        mass = flow(end, dt, grid, numbers, sums)
        if not (mass > 0.0 and mass < np.inf):
            return EMPTY
        after = (grid[0], grid[2], grid[1], *grid[3:])
        pruned = (state[COUNT] + 1) % state[PRUNE_EVERY] == 0
        if pruned:
            new_end = prune(N, after, frame, end, state[SORTED], reals[THRESHOLD], mass, state[SEQUENTIAL] != 0)
            if new_end < 0:
                return NONE_LEFT
        else:
            normalise(end, mass, grid[2])
        grid = after
        k = state[RECORDED]
        lengths[k], cells[k], masses[k] = dt, end - BASE, mass
        reals[MOMENT] = now
        state[RECORDED] += 1
        state[SWAPPED] = 1 - state[SWAPPED]
        state[COUNT] += 1
        state[BUDGET] -= end - BASE
        state[RESUMED] = 0
        reals[ELAPSED] = reals[ELAPSED] + dt if dt < left else reals[SPAN]
        if pruned:
            state[END], state[KNOWN], state[SORTED] = new_end, new_end, new_end
            state[START] = new_end
            reals[RATE], good = fastest(BASE, new_end, grid[3], size, numbers)
'''


class _Flat:
    """A matrix of traced numbers under two indices."""

    def __init__(self, entries: Any, n: int) -> None:
        self.entries, self.n = entries, n

    def __getitem__(self, at: tuple[int, int]) -> Any:
        return self.entries[at[0] * self.n + at[1]]


def layout(n: int, n_parameters: int, rotated: bool) -> dict[str, int]:
    """Where each kind of number stands in ``numbers``."""
    sizes = {"widths": n, "halves": n, "leaks": n, "spread": n, "origin": n, "rotation": n * n * rotated, "range": 2,
             "parameters": n_parameters}  # fmt: skip
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
    nodes = []
    for node in graph.nodes:
        if node.operation == "constant" and node.dtype == "float64":
            node = Node("input", (), "float64", first + len(values))
            values.append(float(graph.nodes[len(nodes)].value))
        nodes.append(node)
    return Graph(tuple(nodes), first + len(values), graph.outputs, graph.structure), values


def _lines(depth: int, text: str, n: int) -> str:
    """`text` once a dimension, ``J`` in it the number of the dimension."""
    pad = "    " * depth
    return "\n".join(pad + re.sub(r"\bJ\b", str(j), line.replace("_J", f"_{j}")) for j in range(n) for line in text.split("\n"))


OUTFLOW = """l_J, u_J = load(links, J * size + c, LANES), load(links, (N + J) * size + c, LANES)
below_J, above_J = x - gather(p, 0, l_J), gather(p, 0, u_J) - x
v_J, w_J, there_J = load(v, J * size + c, LANES), gather(v, J * size, l_J), u_J > 0
t_J = half_J * (positive(w_J) * below_J + select(there_J, negative(v_J) * above_J, 0.0))
s_J = 0.5 * limited(below_J, above_J)
v_J, w_J = positive(v_J), negative(w_J)
o_J = select(there_J, v_J * (1.0 - v_J * ratio_J) * s_J, 0.0)
i_J = w_J * (1.0 + w_J * ratio_J) * s_J"""

FLUXES = """o_J = ratio_J * (v_J * (left + t_J) + o_J)
i_J = ratio_J * (w_J * (left + t_J) - i_J)
store(up, J * size + c, o_J)
store(down, J * size + c, i_J)
stays = stays - (o_J - i_J)"""

SPREADING = """
stays = stays + leak_J * (select(there_J, above_J, 0.0) - select(l_J > 0, below_J, 0.0))"""

RATIOS = """ratio_J = {real}(dt / numbers[{widths} + J])
half_J = {real}(dt / (2.0 * numbers[{widths} + J]))
leak_J = {real}(dt * numbers[{spread} + J])"""

ARRIVALS = "x = x + (gather(up, J * size, load(links, J * size + c, LANES)) - gather(down, J * size, load(links, (N + J) * size + c, LANES)))"


def _inputs(graph: Graph, n: int, time: bool) -> list[tuple[str, int]]:
    """What each parameter of the graph's function stands for: ("column", i), ("time", 0) or ("number", position)."""
    kinds = []
    for p in parameters(graph)[0]:
        if p < n:
            kinds.append(("column", p))
        elif time and p == n:
            kinds.append(("time", 0))
        else:
            kinds.append(("number", p - n - time))
    return kinds


def source_of(graph: Graph, bounds: Graph | None, n: int, limiter: str, dtype: str, at: dict[str, int], diffusive: bool, shared: bool) -> str:
    """The module of one drift; ``advance`` in it runs steps."""
    lanes = 8 if dtype == "float64" else 16
    drift = lanes_function(graph, "drift")
    words = {"column": "s{}", "time": "now", "number": "a{}"}
    inputs = _inputs(graph, n, True)
    columns = "\n".join(
        f"        s{i} = as_float64(((key >> frame[0, {i}]) & frame[1, {i}]) + frame[2, {i}])"
        for kind, i in inputs if kind == "column"
    ) + "\n        now = spread(time, WIDTH)" + "".join(
        f"\n        a{p} = spread(numbers[{p}], WIDTH)" for kind, p in inputs if kind == "number"
    )  # fmt: skip
    if bounds is None:
        bounds_text, admitted = "def bounds():\n    return 0.0", "return True"
    else:
        bounds_text = scalar_function(bounds, "bounds")
        values = ", ".join(
            f"float(((key >> frame[0, {i}]) & frame[1, {i}]) + frame[2, {i}])" if kind == "column" else f"numbers[{i}]"
            for kind, i in _inputs(bounds, n, False)
        )
        low = at["range"]
        admitted = f"J = bounds({values})\n    return J >= numbers[{low}] and J <= numbers[{low + 1}]"
    flux_lines = FLUXES + (SPREADING if diffusive else "")
    text = (HEAD + (SHARED if shared else ALONE) + ADVANCE).format(
        digest=_digest(),
        names="\n".join(f"{name} = {k}" for names in (STATUS, STATE, REALS) for k, name in enumerate(names)),
        borrowed=", ".join(f"borrowed(grid[{k}])" for k in range(10)),
        n=n, dtype=dtype, lanes=lanes, limiter=LIMITERS[limiter], drift=drift, bounds=bounds_text, admitted=admitted, columns=columns,
        results=", ".join(f"r_{i}" for i in range(n)),
        arguments=", ".join(words[kind].format(p) for kind, p in inputs),
        stores=_lines(3, f"store(v, J * size + c, as_{dtype}(r_J))", n),
        last_stores=_lines(3, f"store_some(v, J * size + c, last - c, as_{dtype}(r_J))", n),
        widths=at["widths"], leaks=at["leaks"],
        ratios=_lines(1, RATIOS.format(real=f"np.{dtype}", **at), n), differences=_lines(2, OUTFLOW, n), total=" + ".join(f"t_{j}" for j in range(n)),
        fluxes=_lines(2, flux_lines, n), arrivals=_lines(2, ARRIVALS, n),
    )  # fmt: skip
    called = {*re.findall(r"\w+(?=\()", text)}
    lanes_modules = (_lane_arithmetic, _lane_circular, _lane_functions, _lane_quotients, _lanes)
    wanted = [(module.__name__, [name for name in module.__all__ if name in called]) for module in lanes_modules]
    imports = "\n".join(f"from {name} import {', '.join(names)}" for name, names in wanted if names)
    return text.replace("IMPORTS", imports, 1)


@functools.cache
def _digest() -> str:
    """Of the functions that end up inside the module: where they change, it is compiled anew."""
    return hashlib.blake2b((Path(__file__).parent / "gbees.py").read_bytes(), digest_size=8).hexdigest()


def module_of(
    graph: Graph, bounds: Graph | None, n: int, limiter: str, dtype: str, at: dict[str, int], diffusive: bool, shared: bool
) -> Any:
    """The compiled loops of one drift, for the calling thread or `shared` among all threads."""
    return load_module(source_of(graph, bounds, n, limiter, dtype, at, diffusive, shared))
