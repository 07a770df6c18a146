"""Gradients of losses of the solution: the steps that were taken are run backwards by the chain rule, to rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from ensemble._kernels.ode.generated import addresses, single_width
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
    accepted steps of adaptive methods held fixed. It costs less than five integrations, whatever the number of parameters. The
    memory of the CPU does not grow with the number of steps beyond two numbers per step of a set of lanes: states are
    made again from those of every few steps. For few directions and many outputs, see `sensitivities`.

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
        cotangent = Ensemble(np.asarray(cotangent)[..., None] if isinstance(cotangent, list | tuple) else cotangent[..., None])
    require(cotangent.shape == shape, NAME, "cotangent", f"have shape {shape}", cotangent.shape)
    n_samples = samples_of(NAME, cotangent, Ensemble(problem.y0[:, : problem.n_samples]))
    xp = array_namespace(problem.y0)
    values = asarray_like(cotangent.samples, problem.y0).astype(problem.dtype)
    whole = xp.broadcast_to(values, (*shape, max(n_samples, problem.n_samples)))
    return xp.ascontiguousarray(whole.reshape((-1, shape[-1], whole.shape[-1])))


class Steps(NamedTuple):
    """The chain rule of the steps of one system and method."""

    step: Graph
    back: Graph
    start: Graph | None
    degree: int
    """Of the dense output; 0: there are no output times."""


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
    """The step has inputs t, h, the state with what is carried, and p; its chain rule has cotangents behind them."""
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

    def plain(*values: Any) -> tuple[Any, ...]:
        return tuple(replay(whole, values, values[0].__array_namespace__())[:size])

    def back(values: list[Any], cotangents: list[Any], by_p: list[Any]) -> tuple[Any, ...]:
        found, like = _pulled(whole, values, cotangents), values[0]
        places = range(2, 2 + size + k)
        parts = [_value(found.get(i), like) for i in places]
        return (*parts[:size], *(a + b for a, b in zip(by_p, parts[size:], strict=True)))

    def begin(t: Any, y: list[Any], p: list[Any]) -> tuple[Any, ...]:
        return tuple(method.start(system.bound(t.__array_namespace__()), t, y, p))

    first = trace(begin, real, [real] * n, [real] * k, function=NAME)

    def back_begin(values: list[Any], cotangents: list[Any], by_p: list[Any]) -> tuple[Any, ...]:
        found, like = _pulled(first, values, cotangents), values[0]
        parts = [_value(found.get(i), like) for i in range(1, 1 + n + k)]
        return (*parts[:n], *(a + b for a, b in zip(by_p, parts[n:], strict=True)))

    inputs = [real] * (2 + size + k)
    backward = trace(back, inputs, [real] * (size + n * degree), [real] * k, function=NAME)
    length, advice = len(backward.nodes), "Use a method or a system of shorter steps, or sensitivities with control='all'."
    require(length <= MOST_NODES, NAME, "f", f"have a step whose chain rule needs at most {MOST_NODES} operations", length, advice)
    start = None
    if carried:
        start = contracted(trace(back_begin, [real] * (1 + n + k), [real] * carried, [real] * k, function=NAME))
    return Steps(contracted(trace(plain, *inputs, function=NAME)), contracted(backward), start, degree)


def _with_length(graph: Graph) -> Graph:
    """The graph without its last output, the length of the step, whose value is input 1: a constant, whoever chose it."""
    place = graph.outputs[-1]
    nodes = list(graph.nodes)
    nodes[place] = Node("input", (), nodes[place].dtype, 1)
    return Graph(tuple(nodes), graph.n_inputs, graph.outputs[:-1], tuple(range(len(graph.outputs) - 1)))


def _pulled(graph: Graph, values: Sequence[Any], cotangents: Sequence[Any]) -> dict[int, Any]:
    return pullback(graph, values, cotangents, values[0].__array_namespace__())


def _value(value: Any, like: Any) -> Any:
    xp = like.__array_namespace__()
    return xp.full_like(like, 0.0 if value is None else value) if value is None or type(value) is float else value


# --- on the CPU
def _backward(problem: Problem, steps: Steps, weights: Array) -> tuple[Solution, Array, Array]:
    """The ends of all samples, and the derivatives with respect to y0 and p."""
    bodies = bodies_of(problem)
    width, dtype = _width(bodies, steps, problem.dtype), problem.dtype
    code = addresses(bodies.start, bodies.loop, None, bodies.rows.n_carried, dtype, width)
    backward = backward_addresses(steps.step, steps.back, steps.start, width, dtype)
    S, n, k = problem.n_samples, problem.system.n, problem.system.n_parameters
    table, shared, varying = sources_of(problem, bodies)
    places, t_eval = places_of(problem, bodies), np.ascontiguousarray(problem.t_eval, dtype=dtype)
    size = n + problem.method.n_carried(problem.system)
    solution = Solution(
        np.empty((n, S), dtype), np.empty(S, dtype), np.zeros(S, np.int8), np.zeros(S, np.int64), np.zeros(S, np.int64),
        np.empty((0, n, S), dtype), np.empty((0, problem.max_roots, S), dtype), np.empty((0, S), np.int64),
    )  # fmt: skip
    by_y0, by_p = np.empty((n, S), dtype), np.empty((k, S), dtype)
    n_back = 2 + 2 * size + k + n * steps.degree + k + size + k + n
    kept = max(RECORD // (size * width), 64)

    def part(first: int, last: int) -> None:
        rows, back_rows = (aligned(count, width, dtype) for count in (bodies.rows.size + 1 + n, n_back))
        states = np.empty((kept - kept % 2, size, width), dtype)
        for begin in range(first, last, width):
            gradient_range(begin, min(begin + width, last), code.start, code.loop, tuple(backward), places, table, shared,
                           varying, t_eval, weights, solution.y, solution.t, solution.status, solution.n_steps,
                           solution.n_rejected, by_y0, by_p, rows, back_rows, states)  # fmt: skip

    count = 16 * width
    firsts, threads = range(0, S, count), thread_count()
    if threads == 1 or len(firsts) == 1:
        part(0, S)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda first: part(first, min(first + count, S)), firsts))
    return solution, by_y0, by_p


def _width(bodies: Bodies, steps: Steps, dtype: str) -> int:
    """Samples in a set of lanes: one register."""
    return single_width(dtype)
