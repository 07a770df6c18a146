"""The chain rule of steps, as graphs."""

from __future__ import annotations

from typing import Any, NamedTuple

from ensemble._check import require
from ensemble._compile.trace.contraction import contracted
from ensemble._compile.trace.derivatives import pullback
from ensemble._compile.trace.graph import Graph, Node
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble.ode.compiled import Bodies
from ensemble.ode.methods.method import Method
from ensemble.ode.problem import Problem
from ensemble.ode.system import System

__all__ = ["Steps", "recording", "steps_of"]

NAME = "ode.gradient"

MOST_NODES = 40_000
"""Of the chain rule of a step: longer code takes minutes to compile."""

KEPT = 64
"""Systems of which the chain rule is kept."""


class Steps(NamedTuple):
    """The chain rule of the steps of one system and method."""

    sweep: Graph
    """Inputs: cotangents of the state with what is carried, of p, and p; then t, h, the state, and with output times
    cotangents of the dense output, and of the state at the end and the start of the step. Outputs: new cotangents."""
    start: Graph | None
    """Inputs t, y, p, cotangents of what is carried and of p; outputs those of y and p."""
    size: int
    degree: int
    """Of the dense output; 0: there are no output times."""
    n_entry: int
    """Rows that describe a step."""


_kept: dict[Any, Steps] = {}


def steps_of(problem: Problem) -> Steps:
    """The graphs of a step and its chain rule, kept by the trace of the system."""
    graph, method, dense = problem.system.graph, problem.method, problem.t_eval.shape[0] > 0
    key = (graph.nodes, graph.outputs, method.name, method.order, problem.system.n_parameters, problem.dtype, dense)
    if key not in _kept:
        if len(_kept) >= KEPT:
            _kept.pop(next(iter(_kept)))
        _kept[key] = _steps(problem.system.traced(), method, dense)
    return _kept[key]


def _steps(system: System, method: Method, dense: bool) -> Steps:
    """The graphs, traced."""
    n, k, real = system.n, system.n_parameters, Scalar(system.dtype)
    carried = method.n_carried(system)
    size, degree = n + carried, 0

    def step(t: Any, h: Any, state: list[Any], p: list[Any]) -> tuple[Any, ...]:
        nonlocal degree
        made = method.step(system.bound(t.__array_namespace__()), t, h, state[:n], state[n:], p)
        degree = len(made.dense[0]) if dense else 0
        rows = [value for row in made.dense for value in row] if dense else []
        return (*made.y, *made.carried, *rows, h if made.h_used is None else made.h_used)

    whole = _with_length(trace(step, real, real, [real] * size, [real] * k, function=NAME))

    def sweep(by_state: list[Any], by_p: list[Any], p: list[Any], entry: list[Any]) -> tuple[Any, ...]:
        xp, values, outputs = entry[0].__array_namespace__(), [*entry[: 2 + size], *p], entry[2 + size :]
        by_dense, at_end, at_start = outputs[: n * degree], outputs[n * degree : -n], outputs[len(outputs) - n :]
        after = [a + b for a, b in zip(by_state, at_end, strict=False)] if dense else by_state[:n]
        found = pullback(whole, values, [*after, *by_state[n:], *by_dense], xp)
        parts, moves = [_value(found.get(i), entry[0]) for i in range(2, len(values))], entry[1] != 0.0
        before = [xp.where(moves, a, b) for a, b in zip(parts, by_state, strict=False)]
        if dense:
            before = [*(a + b for a, b in zip(before, at_start, strict=False)), *before[n:]]
        return (*before, *(xp.where(moves, b + a, b) for a, b in zip(parts[size:], by_p, strict=True)))

    def begin(t: Any, y: list[Any], p: list[Any]) -> tuple[Any, ...]:
        return tuple(method.start(system.bound(t.__array_namespace__()), t, y, p))

    first = trace(begin, real, [real] * n, [real] * k, function=NAME)

    def start(values: list[Any], by_carried: list[Any], by_p: list[Any]) -> tuple[Any, ...]:
        found = pullback(first, values, by_carried, values[0].__array_namespace__())
        parts = [_value(found.get(i), values[0]) for i in range(1, 1 + n + k)]
        return (*parts[:n], *(b + a for a, b in zip(parts[n:], by_p, strict=True)))

    n_entry = 2 + size + (n * degree + 2 * n if dense else 0)
    backward = trace(sweep, [real] * size, [real] * k, [real] * k, [real] * n_entry, function=NAME)
    length, advice = len(backward.nodes), "Use another method, or sensitivities with control='all'."
    short = length <= MOST_NODES
    require(short, NAME, "f", f"have steps whose chain rule needs at most {MOST_NODES} operations", length, advice)
    back_start = None
    if carried:
        back_start = contracted(trace(start, [real] * (1 + n + k), [real] * carried, [real] * k, function=NAME))
    return Steps(contracted(backward), back_start, size, degree, n_entry)


def recording(bodies: Bodies, n: int, n_carried: int, dtype: str) -> Graph:
    """The loop over steps as a body that records them: its outputs are the carried rows, which lanes wait, and t, h and
    the state before the step; h is zero where a lane does not move."""
    rows = bodies.rows

    def body(*values: Any) -> tuple[Any, ...]:
        xp, ends = values[0].__array_namespace__(), rows.n_carried
        outputs = replay(bodies.loop, values, xp)
        t_old, h = outputs[ends + 2 : ends + 4]
        h = xp.where(outputs[rows.t] != t_old, h, xp.zeros_like(h))
        state = [*values[rows.y : rows.y + n], *values[rows.carried_values : rows.carried_values + n_carried]]
        return (*outputs[:ends], outputs[ends + 1], t_old, h, *state)

    return contracted(trace(body, *[Scalar(dtype)] * rows.n_inputs, function=NAME))


def _with_length(graph: Graph) -> Graph:
    """The graph without its last output, the length of the step, which is input 1 wherever it is used."""
    place = graph.outputs[-1]
    nodes = list(graph.nodes)
    nodes[place] = Node("input", (), nodes[place].dtype, 1)
    return Graph(tuple(nodes), graph.n_inputs, graph.outputs[:-1], tuple(range(len(graph.outputs) - 1)))


def _value(value: Any, like: Any) -> Any:
    xp = like.__array_namespace__()
    return xp.full_like(like, 0.0 if value is None else value) if value is None or type(value) is float else value
