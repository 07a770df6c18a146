"""Bodies of steps that carry more than the state: rows behind the unknowns, made from the traced body of the state.

The body of the state is replayed as it is, contracted: its values have the bits that they have alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ensemble._backend import backend_of
from ensemble._check import message, require
from ensemble._compile.lanes.interleaving import staggered
from ensemble._compile.trace.contraction import contracted
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._kernels.ode.ode_generated import single_width
from ensemble._progress import Display
from ensemble._typing import Array
from ensemble.ode.compiled import Bodies
from ensemble.ode.control import Rows, rows_of
from ensemble.ode.methods.method import Method
from ensemble.ode.methods.runge_kutta import EULER
from ensemble.ode.problem import Problem, Solution
from ensemble.ode.system import System

__all__ = [
    "Extension",
    "Extra",
    "Sizes",
    "extended_bodies",
    "extended_problem",
    "require_own_steps",
    "require_traceable",
    "run_bodies",
    "sizes_of",
    "with_times_of",
]

MOST_DOUBLE = 8
"""Unknowns whose values fit the registers with two of them per value; measured with tangents of the Lorenz system.

Measured again by `benchmarks ode-derivatives`.
"""


class Sizes(NamedTuple):
    """Numbers of rows of each kind."""

    unknowns: int
    carried: int
    parameters: int


class Extra(NamedTuple):
    """The rows of an extension, new or old, in the order of its `Sizes`."""

    unknowns: Sequence[Any]
    carried: Sequence[Any]
    old: Sequence[Any] = ()
    """The unknowns before the step."""
    dense: Sequence[Any] = ()
    """Their coefficients, unknown by unknown, where the body has a dense output."""


class Extension(NamedTuple):
    """Further unknowns, parameters and carried values of a traced problem, and how a step changes them."""

    inner: Sizes
    extra: Sizes
    start: Callable[[Graph, Rows, list[Any], Extra, list[Any]], tuple[list[Any], Sequence[Any]]]
    """``start(graph, rows, values, own, parameters)``: the outputs of the graph of the state, whose inputs `values` lie
    as `rows` says, and the first carried values."""
    advance: Callable[[Graph, Rows, list[Any], Extra, list[Any]], tuple[list[Any], Extra]]
    """``advance(graph, rows, values, own, parameters)``: the outputs of the graph of the state, and new values."""


def _outer(extension: Extension, dtype: str, method: Method = EULER) -> tuple[Method, System]:
    """Return a method and a system that only tell the loops how many rows there are: the bodies are traced already."""
    inner, extra = extension.inner, extension.extra
    count = inner.carried + extra.carried
    system = System(_never, inner.unknowns + extra.unknowns, inner.parameters + extra.parameters, None, dtype=dtype)
    return method._replace(n_carried=lambda system: count), system


def _never(*arguments: Any) -> Any:
    raise AssertionError("the bodies are traced already")


def require_own_steps(problem: Problem, name: str, advice: str, *, most: int | None = None) -> None:
    """Refuse methods by which samples take their steps together: they have no traced step.

    `most` is the most unknowns of "rodas4", which takes them together above; None: it may have any number.
    """
    method, n = problem.method.name, problem.system.n
    require(method != "bdf", name, "method", "be one whose steps are traced", method, advice)
    fits = method != "rodas4" or most is None or n <= most
    require(fits, name, "y0", f"have at most {most} entries for rodas4", n, advice)


def require_traceable(problem: Problem, name: str, advice: str = "") -> None:
    """Refuse an f that cannot be traced, and systems that the method does not take."""
    try:
        problem.system.traced()
    except (TypeError, AttributeError) as error:
        raise TypeError(message(name, "f", "be traceable", str(error), advice)) from error
    problem.method.check(problem.system)


def sizes_of(problem: Problem) -> Sizes:
    """The numbers of rows of a problem."""
    system = problem.system
    return Sizes(system.n, problem.method.n_carried(system), system.n_parameters)


def extended_problem(problem: Problem, extension: Extension, unknowns: Array, parameters: Array) -> Problem:
    """The problem whose y0 and p have the rows of the extension behind their own."""
    method, system = _outer(extension, problem.dtype, problem.method)
    return problem._replace(method=method, system=system, y0=unknowns, p=parameters)


def with_times_of(problem: Problem, part: Problem) -> Problem:
    """The problem with the interval and the number of steps of a part of it, which bodies depend on."""
    return problem._replace(t0=part.t0, t1=part.t1, step=part.step, n_steps=part.n_steps)


def extended_bodies(bodies: Bodies, extension: Extension, dtype: str, *, dense: bool) -> Bodies:
    """The bodies of `extended_problem`, from those of the problem; without `dense` outputs of them are left out."""
    method, system = _outer(extension, dtype)
    inner, base = extension.inner, bodies.rows
    n_atol, n_events = base.longest - base.atol, base.n_carried - base.events
    rows = rows_of(method, system, n_atol, n_events, bodies.degree)
    real, n = Scalar(dtype), inner.unknowns

    def split(values: Sequence[Any]) -> tuple[list[Any], Extra, list[Any]]:
        """The inputs of the body of the state, and those of the extension."""
        y, carried, p = rows.y + n, rows.carried_values + inner.carried, rows.p + inner.parameters
        mine = [*values[:y], *values[rows.h : carried], *values[rows.n_steps : p]]
        return mine, Extra(values[y : rows.h], values[carried : rows.n_steps]), list(values[p : rows.n_inputs])

    def start(*values: Any) -> tuple[Any, ...]:
        outputs, first = extension.start(bodies.start, base, *split(values))
        count = 1 + inner.carried
        return (*outputs[:count], *first, *outputs[count:])

    def advance(*values: Any) -> tuple[Any, ...]:
        outputs, new = extension.advance(bodies.loop, base, *split(values))
        y, carried, at = base.y + n, base.carried_values + inner.carried, base.n_carried + 4
        ends = [*outputs[:y], *new.unknowns, *outputs[base.h : carried], *new.carried, *outputs[base.n_steps : at]]
        if not dense:
            return tuple(ends)
        coefficients = at + n + n * bodies.degree
        return (*ends, *outputs[at : at + n], *new.old, *outputs[at + n : coefficients], *new.dense,
                *outputs[coefficients:])  # fmt: skip

    def body(function: Callable[..., Any]) -> Graph:
        return contracted(trace(function, *[real] * rows.n_inputs, function="ode"))

    width = single_width(dtype) if system.n > MOST_DOUBLE else None
    own = [*range(base.y + n), *range(rows.h, rows.h + 1 + inner.carried), *range(rows.n_steps, rows.n_carried + 4)]
    steps, parts = staggered(body(advance), own)
    return Bodies(rows, body(start), steps, bodies.event, bodies.degree, bodies.alike, width, parts)


def run_bodies(problem: Problem, bodies: Bodies, progress: bool) -> Solution:
    """Integrate with given bodies, on the CPU or a device."""
    with Display(quiet=not progress, total=problem.n_samples, unit="sample") as display:

        def report(done: int) -> None:
            if display.bar is not None:
                display.bar.update(done - display.bar.n)

        if backend_of(problem.y0) == "cuda":
            from ensemble.ode import device

            return device.run(problem, report, bodies)
        from ensemble.ode import compiled

        return compiled.run(problem, report, bodies)
