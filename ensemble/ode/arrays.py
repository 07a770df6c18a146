"""Integration operation by operation over arrays: a right-hand side or an event that cannot be traced.

The bodies of the steps are those of the compiled loops, evaluated for all unfinished samples at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, is_array
from ensemble._check import kind_of, message
from ensemble._compile.trace.array_calls import SPARSE, meets_sparse
from ensemble._errors import again
from ensemble._typing import Array, Namespace
from ensemble.ode.compiled import degree_of, loads_of
from ensemble.ode.control import Rows, advance, rows_of, start
from ensemble.ode.methods.method import interpolated
from ensemble.ode.methods.stochastic import StochasticSystem
from ensemble.ode.ode_result import OdeStatus
from ensemble.ode.problem import Problem, Solution
from ensemble.ode.system import System, listed
from ensemble.scalar import DivergenceError, Ensemble, namespace
from ensemble.scalar import run as run_paths

__all__ = ["run"]

BISECTIONS = 60

SPACINGS = 4.0
"""Of t, by which the last stage of a step may lie behind the end."""


Form = Callable[[Array, Sequence[Array], Sequence[Array]], tuple[Any, Any, Any]]
"""The arguments t, y and p of a function of the user, from arrays of samples."""


def of_lists(t: Array, y: Sequence[Array], p: Sequence[Array]) -> tuple[Any, Any, Any]:
    """Lists of Ensembles."""
    return Ensemble(t), [Ensemble(v) for v in y], [Ensemble(v) for v in p]


def of_arrays(t: Array, y: Sequence[Array], p: Sequence[Array]) -> tuple[Any, Any, Any]:
    """Ensembles of vectors."""
    xp = array_namespace(t)

    def vector(values: Sequence[Array]) -> Ensemble:
        if not len(values):
            return Ensemble(xp.zeros((0, 1), dtype=t.dtype))
        return Ensemble(xp.stack([xp.broadcast_to(value, t.shape) for value in values]))

    return Ensemble(t), vector(y), vector(p)


def form_of(
    function: Callable[..., Any], name: str, t: Array, y: Sequence[Array], p: Sequence[Array], base: Namespace
) -> Form:
    """Arrays of unknowns where the function works with them for the first sample, and with lists does not."""
    works, sparse = [], False
    for each in (of_lists, of_arrays):
        first = each(t[:1], [v[:1] for v in y], [v[:1] for v in p])
        try:
            values = run_paths(function, *first, base)
            sparse = sparse or any(map(meets_sparse, values.errors.values()))
            works.append(not values.errors and (name == "event" or len(list(values.value)) == len(y)))
        except Exception as error:  # it is raised again by the call that counts
            sparse = sparse or meets_sparse(error)
            works.append(False)
        if works[0]:
            break
    if sparse and not any(works):
        raise TypeError(f"ode.solve: {SPARSE}")
    return of_lists if works[0] or not works[1] else of_arrays


def lifted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`function` of Ensembles as a function of arrays (S,); an event, a function of one value, has the name "event".

    What needs a truth value or a Python number of samples that differ, or a plain array, goes through `ensemble.run`.
    """
    advice = f"Return a {'number' if name == 'event' else 'list of numbers'}, one value per sample each."
    kinds = ("int", "uint", "float") if name == "event" else ("bool", "int", "uint", "float")
    apart = False
    form: Form | None = None

    def evaluated(t: Array, y: Sequence[Array], p: Sequence[Array], base: Namespace) -> Any:
        nonlocal apart, form
        if form is None:
            form = form_of(function, name, t, y, p, base)
        arguments = form(t, y, p)
        if not apart:
            try:
                return function(*arguments, namespace(base, t.shape[0]))
            except (DivergenceError, TypeError, AttributeError):
                apart = True
            except ValueError as error:
                if not isinstance(error.__cause__, DivergenceError):  # NumPy's, of samples put into an array of numbers
                    raise
                apart = True
        made = run_paths(function, *arguments, base)
        if made.errors:
            raise again(next(iter(made.errors.values())))
        return made.value

    def call(t: Array, y: Sequence[Array], p: Sequence[Array], base: Namespace) -> Any:
        def array(value: Any) -> Array:
            number = isinstance(value, int | float | np.number | np.ndarray) or is_array(value)
            if not (number or isinstance(value, Ensemble)):
                raise TypeError(refused(kind_of(value)))
            samples = value.samples if isinstance(value, Ensemble) else base.asarray(value)
            shape = samples.shape[:-1] if isinstance(value, Ensemble) else samples.shape
            if not str(samples.dtype).startswith(kinds) or shape:
                raise TypeError(refused(f"{samples.dtype} of shape {shape}"))
            if samples.ndim and samples.shape[-1] not in (1, t.shape[0]):
                seen, given = f"{samples.shape[-1]} samples where {t.shape[0]} are in progress", "Pass them in p."
                raise ValueError(message("ode.solve", f"{name}(t, y, p, xp)", "return a value per sample", seen, given))
            return base.broadcast_to(base.astype(samples, t.dtype), t.shape)

        def refused(seen: str) -> str:
            return message("ode.solve", f"{name}(t, y, p, xp)", "return real numbers", seen, advice)

        values = evaluated(t, y, p, base)
        if name == "event":
            return array(values)
        return [array(value) for value in listed(values, len(y), name)]

    return call


def run(problem: Problem, callback: Callable[[int], None] | None = None) -> Solution:
    """Integrate all samples; `callback` is given the samples that are finished and may raise."""
    with np.errstate(all="ignore"):
        return _run(problem, callback)


def _run(problem: Problem, callback: Callable[[int], None] | None) -> Solution:
    xp, S = array_namespace(problem.y0), problem.n_samples
    system = _system(problem.system, xp)
    events = [lifted(g, "event") for g in problem.events]
    method, n = problem.method, system.n
    degree = degree_of(method, problem.dtype)
    rows = rows_of(method, system, problem.atol.shape[0], len(events), degree)
    zeros = xp.zeros(S, dtype=problem.y0.dtype)
    values = [zeros] * rows.n_inputs
    for row, given in loads_of(problem, rows):
        values[row] = xp.broadcast_to(given, (S,)) + zeros
    point = values[rows.t], values[rows.y : rows.h], values[rows.p : rows.n_inputs]
    method.check_values(_between_ends(system, rows, values, None), *point)
    begun = start(method, _between_ends(system, rows, values), events, rows, values)
    first, *rest = (value + zeros for value in begun)  # some are constants
    values[rows.h] = first
    for k, value in enumerate(rest[: method.n_carried(system)]):
        values[rows.carried_values + k] = value
    for k, value in enumerate(rest[method.n_carried(system) :]):
        values[rows.events + k] = value
    t_eval = xp.broadcast_to(problem.t_eval, (problem.t_eval.shape[0], S))
    solution = Solution(
        xp.stack([*values[rows.y : rows.y + n]]), values[rows.t] + zeros, xp.zeros(S, dtype=xp.int8),
        xp.zeros(S, dtype=xp.int64), xp.zeros(S, dtype=xp.int64),
        xp.full((t_eval.shape[0], n, S), xp.nan, dtype=zeros.dtype),
        xp.full((len(events), problem.max_roots, S), xp.nan, dtype=zeros.dtype),
        xp.zeros((len(events), S), dtype=xp.int64) if problem.n_roots is None else problem.n_roots.copy(),
    )  # fmt: skip
    _at_start(solution, values, rows, t_eval, n)
    ids = xp.nonzero(solution.status == 0)[0]
    values = [value[ids] for value in values]
    while ids.shape[0]:
        outputs = advance(method, _between_ends(system, rows, values), events, rows, values)
        done = _after_step(problem, solution, system, events, rows, outputs, ids, t_eval, degree)
        values = [*outputs[: rows.n_carried], *values[rows.n_carried :]]
        if bool(xp.any(done)):
            keep = xp.nonzero(~done)[0]
            ids, values = ids[keep], [value[keep] for value in values]
            if callback is not None:
                callback(S - ids.shape[0])
    return solution


def _system(system: System, xp: Namespace) -> System:
    """Return the system for arrays: f by its graph if it can be traced (an event may not), else f of Ensembles."""
    try:
        return system.traced().bound(xp)
    except (TypeError, AttributeError):
        n, k = system.n, system.n_parameters
        if isinstance(system, StochasticSystem):
            parts = lifted(system.drift, "f"), lifted(system.diffusion, "noise")
            return StochasticSystem(*parts, n, k, xp, first_step=system.first_step)
        return System(lifted(system.function, "f"), n, k, xp)


def _between_ends(system: System, rows: Rows, values: Sequence[Array], spacings: float | None = SPACINGS) -> System:
    """The system with f at times of the interval alone: the last stage of a step may lie behind it by rounding.

    `spacings` of t count as rounding; None: all do.
    """
    if type(system) is not System or system.is_traced:
        return system
    xp, function = system.xp, system.f
    low, high = (extreme(values[rows.t0], values[rows.t1]) for extreme in (xp.minimum, xp.maximum))

    rounding = xp.full_like(low, xp.inf)
    if spacings is not None:
        rounding = spacings * float(np.finfo(str(low.dtype)).eps) * xp.maximum(xp.abs(low), xp.abs(high))

    def bounded(t: Array, y: Sequence[Array], p: Sequence[Array], xp: Namespace) -> Any:
        end = xp.minimum(xp.maximum(t, low), high)  # substeps of "yoshida4" lie far behind it
        return function(xp.where(xp.abs(end - t) <= rounding, end, t), y, p)

    return System(bounded, system.n, system.n_parameters, xp, dtype=system.dtype)


def _at_start(solution: Solution, values: list[Array], rows: Rows, t_eval: Array, n: int) -> None:
    """Outputs at the start, and samples that do not move."""
    xp = array_namespace(solution.y)
    for j in range(t_eval.shape[0]):
        here = (t_eval[j] - values[rows.t0]) * values[rows.direction] <= 0.0
        for i in range(n):
            solution.y_out[j, i] = xp.where(here, values[rows.y + i], solution.y_out[j, i])
    total = sum(value - value for value in [*values[rows.y : rows.y + n], *values[rows.h : rows.n_steps]])
    solution.status[...] = xp.where(total == 0.0, solution.status, xp.asarray(OdeStatus.non_finite, dtype=xp.int8))
    still = (values[rows.t0] == values[rows.t1]) & (solution.status == 0)
    solution.status[...] = xp.where(still, xp.asarray(OdeStatus.finished, dtype=xp.int8), solution.status)


def _after_step(
    problem: Problem, solution: Solution, system: System, events: Sequence[Any], rows: Rows, outputs: list[Array],
    ids: Array, t_eval: Array, degree: int,
) -> Array:  # fmt: skip
    """Store what the step passed; returns which samples are done, and changes no other sample."""
    xp, n = system.xp, system.n
    ends = outputs[rows.n_carried + 2 :]
    t_old, h, t_new = ends[0], ends[1], outputs[rows.t]
    y_old, dense = ends[2 : 2 + n], ends[2 + n : 2 + n + n * degree]

    def state(theta: Array) -> list[Array]:
        return [interpolated(old, dense[i * degree : (i + 1) * degree], theta) for i, old in enumerate(y_old)]

    moved = t_new != t_old
    limit, ended = xp.where(moved, xp.full_like(t_old, 1.5), xp.full_like(t_old, -1.0)), moved & ~moved
    found = []
    for j, g in enumerate(events):
        before, now = ends[2 + n + n * degree + j], outputs[rows.events + j]
        up, down = (before < 0.0) & (now >= 0.0), (before > 0.0) & (now <= 0.0)
        crosses = moved & (
            (up if problem.sides[j] >= 0 else ~moved & moved) | (down if problem.sides[j] <= 0 else ~moved & moved)
        )
        theta = _root(g, before, state, t_old, h, values_of_p(problem, ids), xp) if bool(xp.any(crosses)) else t_old
        found.append(xp.where(crosses, theta, xp.full_like(t_old, 2.0)))
    for j, theta in enumerate(found):
        if problem.terminal[j]:
            ends_here = (solution.n_events[j, ids] + 1 >= problem.terminal[j]) & (theta < limit) & (theta <= 1.0)
            limit, ended = xp.where(ends_here, theta, limit), ended | ends_here
    for j, theta in enumerate(found):
        counted = (theta <= limit) & (theta <= 1.0)
        for s in ids[counted].tolist():
            count = int(solution.n_events[j, s])
            if count < problem.max_roots:
                k = int(xp.argmax(xp.astype(ids == s, xp.int8)))
                solution.t_events[j, count, s] = t_old[k] + theta[k] * h[k]
            solution.n_events[j, s] += 1
    t_last = xp.where(ended, t_old + limit * h, t_new)
    direction = xp.where(h < 0.0, -xp.ones_like(h), xp.ones_like(h))
    for j in range(t_eval.shape[0]):
        wanted = t_eval[j, ids]
        passed = moved & ((wanted - t_old) * direction > 0.0) & ((wanted - t_last) * direction <= 0.0)
        if bool(xp.any(passed)):
            at_end = wanted == t_new
            for i, value in enumerate(state((wanted - t_old) / h)):
                value = xp.where(at_end, outputs[rows.y + i], value)
                solution.y_out[j, i, ids] = xp.where(passed, value, solution.y_out[j, i, ids])
    code = xp.where(ended, xp.full_like(t_old, OdeStatus.event), outputs[rows.status])
    done = code > 0.0
    final = [xp.where(ended, a, outputs[rows.y + i]) for i, a in enumerate(state(limit))]
    finite = sum(value - value for value in final) == 0.0
    code = xp.where(finite | ~done, code, xp.full_like(code, OdeStatus.non_finite))
    taken = ids[done]
    for i, value in enumerate(final):
        solution.y[i, taken] = value[done]
    solution.t[taken] = t_last[done]
    solution.status[taken] = xp.astype(code[done], xp.int8)
    solution.n_steps[taken] = xp.astype(outputs[rows.n_steps][done], xp.int64)
    solution.n_rejected[taken] = xp.astype(outputs[rows.n_rejected][done], xp.int64)
    return done


def values_of_p(problem: Problem, ids: Array) -> list[Array]:
    """The parameters of some samples."""
    return [row[ids] if row.shape[0] > 1 else row for row in problem.p]


def _root(
    g: Any, before: Array, state: Callable[[Array], list[Array]], t: Array, h: Array, p: list[Array], xp: Namespace
) -> Array:
    """The end of the last bracket of a bisection over the step."""
    low, high = xp.zeros_like(t), xp.ones_like(t)
    p = [xp.broadcast_to(value, t.shape) for value in p]
    for _ in range(BISECTIONS):
        theta = 0.5 * (low + high)
        value = g(t + theta * h, state(theta), p, xp)
        crossed = ((before < 0.0) & (value >= 0.0)) | ((before > 0.0) & (value <= 0.0))
        low, high = xp.where(crossed, low, theta), xp.where(crossed, theta, high)
    return high
