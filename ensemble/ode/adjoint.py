"""Gradients of losses of the solution: the steps that were taken are run backwards by the chain rule, to rounding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace, asarray_like, backend_of
from ensemble._check import message, require
from ensemble._compile.numba import thread_count
from ensemble._compile.trace.contraction import contracted
from ensemble._compile.trace.derivatives import pullback
from ensemble._compile.trace.graph import Graph, Node
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._kernels.ode.backward import backward_addresses, gradient_range
from ensemble._kernels.ode.generated import single_width
from ensemble._typing import Array
from ensemble.ode.compiled import Bodies, aligned, bodies_of, places_of, sources_of
from ensemble.ode.methods.method import Method
from ensemble.ode.problem import Problem, Solution
from ensemble.ode.result import OdeResult, without_failed
from ensemble.ode.solve import problem_of, result_of, run, stacked
from ensemble.ode.system import System
from ensemble.scalar import Ensemble
from ensemble.scalar.ensemble import wrap
from ensemble.scalar.namespace import samples_of

__all__ = ["OdeGradient", "gradient"]

NAME = "ode.gradient"

RECORD = 1 << 17
"""Numbers of the record of states, of a set of lanes: it stays in the second-level cache."""

MOST_NODES = 40_000
"""Of the chain rule of a step: longer code takes minutes to compile."""

MOST_DOUBLE = 6
"""Values that go from step to step for which two registers per value are faster than one."""

KEPT = 64
"""Systems of which the chain rule is kept."""


class OdeGradient(NamedTuple):
    """The solution and the gradient of ``sum cotangent y``, sample by sample. NaN for samples that failed."""

    y: Ensemble
    """The states, shape (n,), or with `t_eval` (n_times, n)."""
    y0: Ensemble
    """The derivatives with respect to y0, shape (n,)."""
    p: Ensemble
    """The derivatives with respect to p, shape (k,)."""
    result: OdeResult
    """What `solve` returns."""


def gradient(
    f: Callable[..., Any],
    y0: Any,
    t: Any,
    cotangent: Any,
    *,
    p: Any = None,
    progress: bool = False,
    **options: Any,
) -> OdeGradient:
    """Integrate and differentiate a weighted sum of the solution with respect to y0 and all parameters.

    The discrete adjoint: the gradient is that of the numbers that the steps give, not of the exact solution, with the
    accepted steps of adaptive methods held fixed. It costs a few integrations, whatever the number of parameters. On the
    CPU, steps behind checkpoints are taken once more, so that long runs need little memory; a device records all steps
    of the samples that it holds at a time. For few directions and many outputs, see `sensitivities`.

    Parameters
    ----------
    f, y0, t, p
        As those of `solve`. `f` must be traceable.
    cotangent : array or Ensemble, shape (n,), with `t_eval` (n_times, n), or callable
        The weights, or a function of the states, an Ensemble of this shape, that returns them: the gradient of a loss.
    progress : bool
        Show how many samples are finished.
    **options
        Further arguments of `solve`: `method`, `step`, `rtol`, `t_eval`, `noise` and others. No `events`.

    Returns
    -------
    OdeGradient

    Raises
    ------
    ValueError
        If shapes do not fit, an argument is out of range, events are given, or the system is too large for the method.
    TypeError
        If `f` cannot be traced, or uses an operation without a derivative.

    Warns
    -----
    OdeWarning
        If samples did not reach t1.

    References
    ----------
    .. [1] Hairer, Lubich, Wanner (2006), Geometric Numerical Integration, 2nd edition, section VI.9, on why the adjoint
       of a Runge-Kutta step is one itself.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble import ode
    >>> def decay(t, y, p, xp):
    ...     return [-p[0] * y[0]]
    >>> made = ode.gradient(decay, [2.0], (0.0, 1.0), [1.0], p=[0.5], rtol=1e-9, atol=1e-12)
    >>> bool(np.isclose(made.p.samples[0, 0], -2.0 * np.exp(-0.5), rtol=1e-8))
    True
    """
    advice = "Differentiate runs without events; ode.solve finds roots."
    require("events" not in options or options["events"] in ((), []), NAME, "events", "be left out", "events", advice)
    given = problem_of(f, y0, t, p=p, **options)
    problem = given.problem
    k = stacked(() if p is None else p, "p").shape[0]
    shape = (problem.t_eval.shape[0], problem.system.n) if given.has_times else (problem.system.n,)
    try:
        problem.system.graph  # noqa: B018
    except (TypeError, AttributeError) as error:
        raise TypeError(message(NAME, "f", "be traceable", str(error))) from error
    problem.method.check(problem.system)
    steps = steps_of(problem)
    solution = None
    if callable(cotangent) or given.has_times or backend_of(problem.y0) == "cuda":
        solution = run(problem, progress)
    if callable(cotangent):
        assert solution is not None
        y = solution.y_out if given.has_times else without_failed(solution.y, solution.status)
        cotangent = cotangent(wrap(y, given.sample_set))
    weights = _weights(cotangent, shape, problem, len(shape))
    problem = problem._replace(n_samples=max(problem.n_samples, weights.shape[-1]))
    require(problem.n_samples == given.problem.n_samples or given.problem.n_samples == 1, NAME, "cotangent",
            f"have {given.problem.n_samples} samples", problem.n_samples)  # fmt: skip
    if backend_of(problem.y0) == "cuda":
        from ensemble.ode import adjoint_device

        made, by_y0, by_p = adjoint_device.backward(problem, steps, weights, solution)
    else:
        made, by_y0, by_p = _backward(problem, steps, weights)
    if solution is not None and solution.y.shape == made.y.shape:
        made = solution
    result = result_of(made, given._replace(problem=problem))
    return OdeGradient(result.y, wrap(by_y0, given.sample_set), wrap(by_p[:k], given.sample_set), result)


def _weights(cotangent: Any, shape: tuple[int, ...], problem: Problem, n_axes: int) -> Array:
    """The cotangents, (n_times or 1, n, S)."""
    if isinstance(cotangent, list | tuple) and n_axes == 1:
        cotangent = stacked(cotangent, "cotangent")
    if not isinstance(cotangent, Ensemble):
        array = np.asarray(cotangent) if isinstance(cotangent, list | tuple) else cotangent
        cotangent = Ensemble(array[..., None])
    require(cotangent.shape == shape, NAME, "cotangent", f"have shape {shape}", cotangent.shape)
    n_samples = samples_of(NAME, cotangent, Ensemble(problem.y0[:, : problem.n_samples]))
    xp = array_namespace(problem.y0)
    values = asarray_like(cotangent.samples, problem.y0).astype(problem.dtype)
    whole = xp.broadcast_to(values, (*shape, max(n_samples, problem.n_samples)))
    return xp.ascontiguousarray(whole.reshape((-1, shape[-1], whole.shape[-1])))


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


# --- on the CPU
def _backward(problem: Problem, steps: Steps, weights: Array) -> tuple[Solution, Array, Array]:
    """The ends of all samples, and the derivatives with respect to y0 and p."""
    bodies, dtype = bodies_of(problem), problem.dtype
    S, n, k, size = problem.n_samples, problem.system.n, problem.system.n_parameters, steps.size
    width = single_width(dtype) * (2 if size <= MOST_DOUBLE else 1)
    code = _code(bodies, steps, n, k, dtype, width)
    table, shared, varying = sources_of(problem, bodies)
    places, t_eval = places_of(problem, bodies), np.ascontiguousarray(problem.t_eval, dtype=dtype)
    solution = Solution(
        np.empty((n, S), dtype), np.empty(S, dtype), np.zeros(S, np.int8), np.zeros(S, np.int64), np.zeros(S, np.int64),
        np.empty((0, n, S), dtype), np.empty((0, problem.max_roots, S), dtype), np.empty((0, S), np.int64),
    )  # fmt: skip
    by_y0, by_p = np.empty((n, S), dtype), np.empty((k, S), dtype)
    n_rows = max(bodies.rows.size + 1 + n, 1 + 2 * size + 3 * k)
    capacity = max(RECORD // (steps.n_entry * width), 16)

    def part(first: int, last: int) -> None:
        rows, back_rows = (aligned(count, width, dtype) for count in (n_rows, size + 2 * k))
        record = aligned(capacity * steps.n_entry, width, dtype).reshape(capacity, steps.n_entry, width)
        for begin in range(first, last, width):
            gradient_range(begin, min(begin + width, last), code, places, table, shared, varying, t_eval, weights,
                           solution.y, solution.t, solution.status, solution.n_steps, solution.n_rejected, by_y0, by_p,
                           rows, back_rows, record)  # fmt: skip

    count = 16 * width
    firsts, threads = range(0, S, count), thread_count()
    if threads == 1 or len(firsts) == 1:
        part(0, S)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda first: part(first, min(first + count, S)), firsts))
    return solution, by_y0, by_p


@functools.lru_cache(maxsize=KEPT)
def _code(bodies: Bodies, steps: Steps, n: int, k: int, dtype: str, width: int) -> tuple[int, ...]:
    """The addresses of the compiled functions."""
    record = recording(bodies, n, steps.size - n, dtype)
    counts = bodies.rows.n_carried, steps.n_entry
    return backward_addresses(bodies.start, record, *counts, steps.sweep, steps.size + k, k, steps.start, width, dtype)
