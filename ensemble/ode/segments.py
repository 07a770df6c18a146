"""A run in segments: from stop to stop, each with the loops of a whole run.

f is evaluated in the frame of the segment. The time of equal steps counts from its start, so that step k begins at
``k h`` however large t is. Within a few spacings of t of an end f is evaluated just inside: a condition on the time
that changes over there has the value that it has in the segment.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._check import message, warn_caller
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._typing import Array, Namespace
from ensemble.ode.arguments import step_counts
from ensemble.ode.methods.stochastic import StochasticSystem
from ensemble.ode.noise import without_numbers
from ensemble.ode.ode_result import OdeStatus, OdeWarning
from ensemble.ode.problem import Problem, Solution
from ensemble.ode.stops import MOST_FOUND, SHIFT, found_stops, stops_of
from ensemble.ode.system import System

__all__ = ["Change", "Piece", "Segment", "framed_function", "over_segments",
           "with_stops"]  # fmt: skip

FRAME = 5
"""Parameters of a frame: where its time begins, the ends and the shift of the window, the number of steps before."""

Integrate = Callable[[Problem], Solution]
Change = Callable[["Segment", Array, Array], Array]


class Segment(NamedTuple):
    """One part of a run, and what is done before it."""

    problem: Problem
    start: Array
    """The time at its start, (S or 1,)."""
    acts: np.ndarray
    """The number of the user's stop at its start; -1: none. (S or 1,)"""


class Piece(NamedTuple):
    """What has been done in one segment, for the chain rule."""

    segment: Segment
    rows: slice
    """The output times in it, of all samples together."""
    mask: np.ndarray
    """Which of them are a sample's own, (n_rows, S or 1)."""
    before: Array | None
    """The state before it was changed; None: it was not."""
    moves: bool
    """Whether it has a length."""


# --- functions in the frame
def _inside(t: Any, frame: Sequence[Any], xp: Namespace, window: bool) -> Any:
    """The time at which f is evaluated."""
    origin, low, high, shift = frame[:4]
    if not window:
        return t + origin
    near = 2.0 * shift  # substeps of "yoshida4" leave the step, and end at the window
    early = xp.where(t < low - near, low - t, shift)
    late = xp.where(t > high + near, high - t, -shift)
    return (t + origin) + xp.where(t < low, early, xp.where(t > high, late, 0.0 * shift))


def framed_function(function: Callable[..., Any], k: int, window: bool) -> Callable[..., Any]:
    """A function of `k` parameters of the user as one in the frame, whose numbers are behind them.

    `window`: whether it is evaluated inside of the ends, as f is where there are stops.
    """

    def call(t: Any, y: Any, p: Any, xp: Namespace) -> Any:
        return function(_inside(t, p[k : k + FRAME], xp, window), y, p[:k], xp)

    return call


def framed_rows(count: int, dtype: str) -> np.ndarray:
    """The numbers of a frame that changes nothing, (FRAME, count)."""
    return np.repeat(np.array([0.0, -np.inf, np.inf, 0.0, 0.0], dtype)[:, None], count, axis=1)


@functools.lru_cache(maxsize=256)
def _framed_graph(graph: Graph, n: int, k: int, behind: int, dtype: str, window: bool) -> Graph:
    """The graph of f in the frame, whose numbers stand before the last `behind` parameters."""

    def body(t: Any, y: list[Any], p: list[Any]) -> tuple[Any, ...]:
        xp = t.__array_namespace__()
        time = _inside(t, p[k : k + FRAME], xp, window) if graph.uses(0) else t
        return tuple(replay(graph, [time, *y, *p[:k], *p[k + FRAME :]], xp))

    real = Scalar(dtype)
    return trace(body, real, [real] * n, [real] * (k + FRAME + behind), function="ode.solve")


def framed(system: System, k: int, window: bool) -> System:
    """The system in the frame, `k` the number of the user's parameters."""
    n, xp, dtype = system.n, system.xp, system.dtype
    behind = system.n_parameters - k
    try:
        graph = _framed_graph(system.graph, n, k, behind, dtype, window)
    except (TypeError, AttributeError):  # it cannot be traced: arrays are passed to the functions
        graph = None
    count = system.n_parameters + FRAME
    if isinstance(system, StochasticSystem):
        f, g = (framed_function(each, k, window) for each in (system.drift, system.diffusion))
        return StochasticSystem(f, g, n, count, xp, dtype=dtype, graph=graph, first_step=k + FRAME - 1)
    return System(framed_function(system.function, k, window), n, count, xp, dtype=dtype, graph=graph)


# --- the run
class _Run:
    """The state of a solve with stops: the segment that runs, samples that go on, and the solution so far."""

    def __init__(self, problem: Problem) -> None:
        assert problem.stops is not None and problem.frame is not None
        self.problem, self.stops, self.frame = problem, problem.stops, problem.frame
        self.xp, S = array_namespace(problem.y0), problem.n_samples
        xp, like, n_events = self.xp, problem.y0, len(problem.events)
        self.fixed = problem.method.has_fixed_steps
        self.length = np.abs(to_numpy(problem.step))
        self.times = to_numpy(problem.t_eval)
        self.direction = np.sign(self.stops.edges[-1] - self.stops.edges[0])
        self.running, self.before = xp.full((S,), True), np.zeros(1)
        nan = xp.nan
        self.solution = Solution(
            xp.broadcast_to(like, (like.shape[0], S)), self.placed(self.stops.edges[0]) + xp.zeros(S, dtype=like.dtype),
            xp.zeros(S, dtype=xp.int8), xp.zeros(S, dtype=xp.int64), xp.zeros(S, dtype=xp.int64),
            xp.full((self.times.shape[0], like.shape[0], S), nan, dtype=like.dtype),
            xp.full((n_events, problem.max_roots, S), nan, dtype=like.dtype), xp.zeros((n_events, S), dtype=xp.int64),
        )  # fmt: skip

    def placed(self, values: Array) -> Array:
        """NumPy's numbers in the problem's precision and library."""
        return asarray_like(np.ascontiguousarray(values, dtype=self.problem.dtype), self.problem.y0)

    def segment(self, k: int, y: Array) -> tuple[Segment, slice, Array]:
        """Segment `k` from a state, and which output times are its own: rows, and a mask (n_rows, S or 1)."""
        problem, dtype, made = self.problem, self.problem.dtype, self.solution
        start, end = self.stops.edges[k], self.stops.edges[k + 1]
        stopped = k > 0 and not (self.fixed and not problem.events) and not bool(self.xp.all(self.running))
        if stopped:
            end = np.where(to_numpy(self.running), end, start)
        origin = start if self.fixed else np.zeros_like(start)
        t0, t1 = start - origin, end - origin
        t1 = np.where((origin + t1 - end) * self.direction > 0.0, np.nextafter(t1, t0), t1)
        spacing = np.spacing(np.maximum(np.abs(start), np.abs(end)))
        shift = (SHIFT * spacing if self.stops.window else 0.0 * spacing).astype(dtype)
        low, high = np.minimum(t0, t1) + shift, np.maximum(t0, t1) - shift
        numbers = [np.broadcast_to(each, (max(start.size, end.size, self.before.size),))
                   for each in (origin, low, high, shift, self.before)]  # fmt: skip
        rows, mask = self.rows_of(k)
        n_steps = problem.n_steps
        if self.fixed:
            counts = step_counts(np.abs(end - start), self.length, np.abs(start) + np.abs(end), dtype)
            n_steps, self.before = self.placed(counts), self.before + counts
        elif k > 0:
            n_steps = self.xp.maximum(n_steps - self.xp.astype(made.n_steps, n_steps.dtype), self.xp.ones_like(n_steps))
        frame = np.stack(numbers)
        part = problem._replace(
            y0=y, p=self.with_frame(frame), frame_numbers=self.placed(frame), t0=self.placed(t0), t1=self.placed(t1),
            n_steps=n_steps, t_eval=self.placed(self.times[rows] - origin), stops=None, n_roots=made.n_events,
        )  # fmt: skip
        return Segment(part, self.placed(start), self.stops.acts[k]), rows, mask

    def with_frame(self, numbers: Array) -> Array:
        """The parameters with the numbers of the frame, (FRAME, S or 1)."""
        p, at, xp = self.problem.p, self.frame, self.xp
        count = max(p.shape[1], numbers.shape[1])
        parts = [p[:at], self.placed(numbers), p[at + FRAME :]]
        return xp.concat([xp.broadcast_to(each, (each.shape[0], count)) for each in parts], axis=0)

    def rows_of(self, k: int) -> tuple[slice, Array]:
        """The output times after the start of segment `k` up to its end; those at t0 belong to the first."""
        ahead = self.times * self.direction
        start, end = self.stops.edges[k] * self.direction, self.stops.edges[k + 1] * self.direction
        mask = (ahead <= end) & ((ahead > start) | (k == 0))
        found = np.flatnonzero(mask.any(axis=-1))
        rows = slice(int(found[0]), int(found[-1]) + 1) if found.size else slice(0, min(1, len(self.times)))
        return rows, mask[rows]

    def only(self, segment: Segment, made: Solution) -> Solution:
        """The solution of a run of one segment."""
        origin = segment.start if self.fixed else 0.0 * segment.start
        finished = made.status == int(OdeStatus.finished)
        t = self.xp.where(finished, self.placed(self.stops.edges[1]), made.t + origin)
        return made._replace(t=t, t_events=made.t_events + origin)

    def add(self, k: int, segment: Segment, made: Solution, rows: slice, mask: Array) -> None:
        """Put what a segment has given to the rest."""
        xp, old, running = self.xp, self.solution, self.running
        finished = made.status == int(OdeStatus.finished)
        origin = segment.start if self.fixed else 0.0 * segment.start
        end = self.placed(self.stops.edges[k + 1])
        t = xp.where(running, xp.where(finished, end, made.t + origin), old.t)
        n_steps = old.n_steps + xp.where(running, made.n_steps, 0 * made.n_steps)
        n_rejected = old.n_rejected + xp.where(running, made.n_rejected, 0 * made.n_rejected)
        y_out, roots = old.y_out, made.t_events + origin
        if y_out.shape[0]:
            here = asarray_like(mask, self.problem.y0) & running
            y_out[rows] = xp.where(here[:, None, :], made.y_out, y_out[rows])
        roots = xp.where(xp.isnan(old.t_events) & running, roots, old.t_events)
        status = xp.where(running, made.status, old.status)
        after = running & finished
        if not self.fixed and k + 2 < len(self.stops.edges):
            moves = asarray_like(self.stops.edges[-1] != self.stops.edges[k + 1], self.problem.y0)
            spent = after & moves & (n_steps >= self.problem.n_steps)
            status = xp.where(spent, xp.asarray(int(OdeStatus.too_many_steps), dtype=xp.int8), status)
            after = after & ~spent
        self.solution = Solution(xp.where(running, made.y, old.y), t, status, n_steps, n_rejected, y_out, roots,
                                 xp.where(running, made.n_events, old.n_events))  # fmt: skip
        self.running = after


def over_segments(
    problem: Problem, integrate: Integrate, change: Change, pieces: list[Piece] | None = None
) -> Solution:  # fmt: skip
    """Integrate a problem with stops.

    Parameters
    ----------
    problem : Problem
        Its y0 may have further rows behind the unknowns.
    integrate : callable
        Solves a problem without stops.
    change : callable
        ``change(segment, y, p)``: the rows of the state after the stop before a segment.
    pieces : list, optional
        What has been done is put into it.
    """
    run = _Run(problem)
    y = problem.y0
    for k in range(len(run.stops.edges) - 1):
        acts = run.stops.acts[k] >= 0
        segment, rows, mask = run.segment(k, y)
        moves = k == 0 or not bool((run.stops.edges[k] == run.stops.edges[k + 1]).all())
        before = y if acts.any() else None
        if before is not None:
            here = asarray_like(acts, problem.y0) & run.running
            y = run.xp.where(here, change(segment, y, problem.p[: run.frame]), y)
            segment = segment._replace(problem=segment.problem._replace(y0=y))
        if pieces is not None:
            pieces.append(Piece(segment, rows, mask, before, moves))
        if not moves:
            run.solution = run.solution._replace(y=run.xp.broadcast_to(y, run.solution.y.shape))
            continue
        made = integrate(segment.problem)
        if len(run.stops.edges) == 2 and before is None:
            return run.only(segment, made)
        run.add(k, segment, made, rows, mask)
        y = run.solution.y
    return run.solution


def with_stops(
    problem: Problem, k: int, given: Array, jumps: Array | None, change: Callable[..., Any] | None, looks: bool
) -> Problem:
    """The problem with its stops, and its functions in the frame of a segment.

    Parameters
    ----------
    problem : Problem
        With the events of the user.
    k : int
        The user's parameters.
    given : array, shape (n_stops, S or 1)
        Of NumPy.
    jumps : array, shape (n_stops, n, S or 1), optional
    change : callable, optional
    looks : bool
        Whether stops are looked for in the trace.
    """
    noise, dtype = isinstance(problem.system, StochasticSystem), problem.dtype
    t0, t1, found = to_numpy(problem.t0), to_numpy(problem.t1), None
    if looks:
        found = _found(problem, t0, t1)
    shifts = problem.method.has_fixed_steps and bool((t0 != 0.0).any())
    if found is None and not len(given) and not shifts:
        events = tuple(without_numbers(g) for g in problem.events) if noise else problem.events
        return problem._replace(events=events)
    jumps = None if jumps is None else to_numpy(jumps)
    stops = stops_of(given, found, jumps, change, t0, t1, dtype)
    window = stops.window
    functions = [framed_function(g, k, False) for g in problem.events]
    xp, p = array_namespace(problem.p), problem.p
    frame = asarray_like(framed_rows(p.shape[1], dtype), p)
    return problem._replace(
        system=framed(problem.system, k, window), events=tuple(map(without_numbers, functions) if noise else functions),
        p=xp.concat([p[:k], frame, p[k:]], axis=0), stops=stops, frame=k,
    )  # fmt: skip


def _found(problem: Problem, t0: np.ndarray, t1: np.ndarray) -> np.ndarray | None:
    """The stops that the trace of f shows; None where it shows no switch, or there is no trace."""
    try:
        graph = problem.system.graph
    except (TypeError, AttributeError):
        return None
    found, complete = found_stops(graph, problem.system.n, problem.p, t0, t1)
    if not complete:
        advice = "Bound the steps by max_step, or name the times that matter, and pass stops=False to find none."
        text = message("ode.solve", "f", f"switch at most {MOST_FOUND} times in a run to stop at each", "more", advice)
        warn_caller(text, OdeWarning)
    return found
