"""Integration by compiled loops on lanes: a right-hand side that can be traced, on the CPU."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.numba import thread_count
from ensemble._compile.trace.array_calls import alone, called
from ensemble._compile.trace.contraction import contracted
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._interrupts import apart
from ensemble._kernels.ode.driver import solve_range
from ensemble._kernels.ode.ode_generated import addresses, width_of
from ensemble._typing import Array
from ensemble.ode.control import Rows, advance, rows_of, start
from ensemble.ode.methods.method import Method
from ensemble.ode.methods.stochastic import STOCHASTIC, StochasticSystem
from ensemble.ode.noise import N_NUMBERS
from ensemble.ode.problem import Problem, Solution
from ensemble.ode.system import System, kept_trace

__all__ = ["Bodies", "aligned", "bodies_of", "degree_of", "loads_of", "places_of", "run", "sources_of"]

KEPT = 256
"""Traced bodies that are kept."""

CHUNK = 2048
"""Samples whose lanes are refilled from one queue."""


SOON = 0.5
"""Seconds in which a compiled call may leave an interrupt unheard."""

NANOSECONDS = 2.0
"""What an operation on a register of samples takes, about."""

LIGHT = frozenset((
    "abs", "add", "bits", "bitwise_and", "bitwise_invert", "bitwise_or", "cast", "constant", "divide", "equal", "fma",
    "from_bits", "greater", "greater_equal", "input", "less", "less_equal", "maximum", "minimum", "multiply",
    "negative", "not_equal", "sqrt", "subtract", "where",
))  # fmt: skip


class Bodies(NamedTuple):
    """The traced bodies of one system and method."""

    rows: Rows
    start: Graph
    loop: Graph
    event: Graph | None
    degree: int
    alike: bool
    """Whether all samples take the same fixed steps."""
    width: int | None = None
    """Samples in a set of lanes; None: by the length of the loop."""
    parts: tuple[int, ...] = ()
    """Nodes of the loop that begin a block."""


def bodies_of(problem: Problem, dense: bool | None = None) -> Bodies:
    """The bodies of a problem, traced; `dense`: whether with values within steps, as the problem asks if None."""
    events = events_graph(problem)
    alike = problem.method.has_fixed_steps and events is None
    alike = alike and all(each.shape[-1] == 1 for each in (problem.t0, problem.t1, problem.step, problem.n_steps))
    graph, dense = problem.system.graph, problem.is_dense if dense is None else dense
    key = (graph, events, problem.method.name, problem.method.order, problem.method.error_order,
           problem.system.n_parameters, problem.atol.shape[0], problem.dtype, dense, alike)  # fmt: skip
    if key not in _kept:
        if len(_kept) >= KEPT:
            _kept.pop(next(iter(_kept)))
        _kept[key] = _bodies(problem.system, problem.method, events, problem.atol.shape[0], problem.dtype, dense, alike)
    return _kept[key]


_kept: dict[Any, Bodies] = {}


def events_graph(problem: Problem) -> Graph | None:
    """The trace of all event functions: inputs t, y and p; kept as that of f is."""
    system, real = problem.system, Scalar(problem.dtype)

    def body(t: Any, y: list[Any], p: list[Any]) -> Any:
        xp = t.__array_namespace__()
        values = [alone(called(g, t, y, p, xp)) for g in problem.events]
        if any(isinstance(v, bool) or str(getattr(v, "dtype", "")) == "bool" for v in values):
            raise TypeError("a truth value, which has no sign")  # said in full where arrays are
        return tuple(xp.astype(v, getattr(xp, problem.dtype)) for v in values)

    arguments = (real, [real] * system.n, [real] * system.n_parameters)
    if not problem.events or problem.event_graph is not None:
        return problem.event_graph
    about = ("events", system.n, system.n_parameters, problem.dtype)
    return kept_trace(lambda: trace(body, *arguments, function="ode.solve"), problem.events, *about)


def _bodies(
    system: System, method: Method, events: Graph | None, n_atol: int, dtype: str, dense: bool, alike: bool
) -> Bodies:
    real = Scalar(dtype)

    def event(graph: Graph, j: int) -> Callable[..., Any]:
        return lambda t, y, p, xp: replay(graph, [t, *y, *p], xp)[j]

    given = [] if events is None else [event(events, j) for j in range(len(events.outputs))]

    def bound(values: list[Any]) -> System:
        return system.traced().bound(values[0].__array_namespace__())

    degree = degree_of(method, dtype)
    rows = rows_of(method, system, n_atol, len(given), degree)

    def body(function: Callable[..., Any]) -> Graph:
        def whole(*values: Any) -> Any:
            return tuple(function(method, bound(list(values)), given, rows, values))

        return contracted(trace(whole, *[real] * rows.n_inputs, function="ode.solve"))

    steps = functools.partial(advance, dense=dense, alike=alike)
    return Bodies(rows, body(start), body(steps), None if events is None else contracted(events), degree, alike)


def _harmonic(t: Any, y: list[Any], p: list[Any], xp: Any) -> list[Any]:
    return [y[1], -y[0]]


def degree_of(method: Method, dtype: str) -> int:
    """The degree of the dense output of a method, which is the same for all systems: from a step of a small one."""
    small = System(_harmonic, 2, 0, None, dtype=dtype)
    if method.name in STOCHASTIC:
        small = StochasticSystem(_harmonic, _harmonic, 2, N_NUMBERS, None, dtype=dtype)
    n, real, degrees = small.n, Scalar(dtype), []

    def count(*values: Any) -> Any:
        here = small.traced().bound(values[0].__array_namespace__())
        y, p = values[2 : 2 + n], values[2 + n :]
        step = method.step(here, values[0], values[1], y, method.start(here, values[0], y, p), p)
        degrees.append(len(step.dense[0]))
        return step.y

    trace(count, *[real] * (2 + n + small.n_parameters), function="ode.solve")
    return degrees[0]


def loads_of(problem: Problem, rows: Rows) -> list[tuple[int, Array]]:
    """The rows that are loaded for each sample, and what is loaded, (S or 1,) each."""
    n = problem.system.n
    loads = [(rows.y + i, problem.y0[i]) for i in range(n)] + [(rows.t, problem.t0), (rows.t0, problem.t0)]
    direction = problem.t1 - problem.t0
    direction = (direction > 0).astype(problem.dtype) - (direction < 0).astype(problem.dtype)
    loads += [(rows.t1, problem.t1), (rows.direction, direction), (rows.rtol, problem.rtol)]
    loads += [(rows.atol + i, row) for i, row in enumerate(problem.atol)]
    loads += [(rows.h, problem.step), (rows.longest, problem.longest_step), (rows.max_steps, problem.n_steps)]
    given = list(problem.p)
    if problem.frame is not None and problem.frame_numbers is not None:  # those that samples share are loaded once
        given[problem.frame : problem.frame + len(problem.frame_numbers)] = list(problem.frame_numbers)
    loads += [(rows.p + j, row) for j, row in enumerate(given)]
    return loads


def places_of(problem: Problem, bodies: Bodies) -> np.ndarray:
    """Offsets and counts for the driver, in its order."""
    r, system = bodies.rows, problem.system
    n_carried = problem.method.n_carried(system)
    numbers = (r.t, r.y, r.h, r.carried_values, r.n_steps, r.n_rejected, r.status, r.events, r.t0, r.t1, r.direction,
               r.t_out, r.p, r.output, system.n, n_carried, bodies.degree, len(problem.events), system.n_parameters,
               int(problem.n_steps[0]) if bodies.alike else 0)  # fmt: skip
    return np.array(numbers, dtype=np.int64)


def sources_of(problem: Problem, bodies: Bodies) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the rows of a sample come from: (row, kind, index), the numbers that samples share (kind 0), and others."""
    dtype, loads = problem.dtype, loads_of(problem, bodies.rows)
    shared = [values for _, values in loads if values.shape[0] == 1]
    varying = [values for _, values in loads if values.shape[0] > 1]
    sources, counts = [], [0, 0]
    for row, values in loads:
        kind = int(values.shape[0] > 1)
        sources.append((row, kind, counts[kind]))
        counts[kind] += 1
    shared_numbers = np.concatenate([*shared, np.zeros(1, dtype)]).astype(dtype)
    varying_numbers = np.stack(varying).astype(dtype, copy=False) if varying else np.zeros((1, 1), dtype)
    return np.array(sources, dtype=np.int64), shared_numbers, varying_numbers


def run(problem: Problem, callback: Callable[[int], None] | None = None, bodies: Bodies | None = None) -> Solution:
    """Integrate all samples; `callback` is given the samples that are finished and may raise.

    `bodies` are those of the problem where they are not given.
    """
    bodies = bodies_of(problem) if bodies is None else bodies
    S, n, dtype = problem.n_samples, problem.system.n, problem.dtype
    code = addresses(bodies.start, bodies.loop, bodies.event, bodies.rows.n_carried, dtype, bodies.width, bodies.parts)
    table, shared_numbers, varying_numbers = sources_of(problem, bodies)
    places = places_of(problem, bodies)
    kinds = np.array([*zip(problem.sides, problem.terminal, strict=True)] or [(0, 0)], dtype=np.int64)
    t_eval = np.ascontiguousarray(problem.t_eval, dtype=dtype)
    n_events = len(problem.events)
    solution = Solution(
        np.empty((n, S), dtype), np.empty(S, dtype), np.zeros(S, np.int8), np.zeros(S, np.int64), np.zeros(S, np.int64),
        np.full((t_eval.shape[0], n, S), np.nan, dtype), np.full((n_events, problem.max_roots, S), np.nan, dtype),
        np.zeros((n_events, S), np.int64) if problem.n_roots is None else problem.n_roots.copy(),
    )  # fmt: skip
    width = bodies.width or width_of(bodies.loop, dtype)
    n_event_rows = 1 + n + problem.system.n_parameters + n_events

    def part(first: int) -> int:
        last = min(first + CHUNK, S)
        rows, event_rows = (aligned(count, width, dtype) for count in (bodies.rows.size + 1 + n, n_event_rows))
        started = np.empty((1 + problem.method.n_carried(problem.system) + n_events, last - first), dtype)
        solve_range(first, last, *code[:3], places, table, shared_numbers, varying_numbers, kinds, t_eval,
                    solution.y, solution.t, solution.status, solution.n_steps, solution.n_rejected, solution.y_out,
                    solution.t_events, solution.n_events, rows, event_rows, started)  # fmt: skip
        return last - first

    starts, done, threads = range(0, S, CHUNK), 0, thread_count()

    def every_part(stopped: Callable[[], bool]) -> None:
        nonlocal done
        with contextlib.ExitStack() as ends:
            results: Iterator[int] = map(part, starts)
            if threads > 1 and len(starts) > 1:
                pool = ends.enter_context(ThreadPoolExecutor(threads))
                ends.callback(pool.shutdown, cancel_futures=True)
                results = pool.map(lambda first: 0 if stopped() else part(first), starts)
            for count in results:
                done += count
                if callback is not None:
                    callback(done)
                if stopped():
                    return

    if _is_short(problem, bodies, width):
        every_part(lambda: False)
    else:
        apart(every_part)
    return solution


def _is_short(problem: Problem, bodies: Bodies, width: int) -> bool:
    """Whether all steps that the samples may take end before anybody misses an interrupt.

    Another thread takes longer than a short solve itself. So it is only there for those that may last.
    """
    tiles = -(-problem.n_samples // width)
    return tiles * float(problem.n_steps.max()) * _operations(bodies.loop) * NANOSECONDS < 1e9 * SOON


@functools.lru_cache(maxsize=KEPT)
def _operations(loop: Graph) -> int:
    """The operations of a step, functions counted as what they take."""
    return sum(1 if node.operation in LIGHT else 20 for node in loop.nodes)


def aligned(n_rows: int, width: int, dtype: str) -> np.ndarray:
    """Rows of zeros that start at a multiple of 64 bytes."""
    size = np.dtype(dtype).itemsize
    memory = np.zeros(n_rows * width + 64 // size, dtype)
    first = -memory.ctypes.data % 64 // size
    return memory[first : first + n_rows * width].reshape(n_rows, width)
