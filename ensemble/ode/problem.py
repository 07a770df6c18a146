"""An initial value problem as the loops take it: arrays with the sample axis last, of one precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ensemble._compile.trace.graph import Graph
from ensemble._typing import Array
from ensemble.ode.methods.method import Method
from ensemble.ode.stops import Stops
from ensemble.ode.system import System

__all__ = ["Problem", "Solution", "part_of"]


class Problem(NamedTuple):
    """What a solve needs. Arrays are of the working precision and library, shape (..., 1) where samples share them."""

    system: System
    method: Method
    events: Sequence[Callable[..., Any]]
    terminal: Sequence[int]
    """Of each event, the number of roots that ends a sample's run; 0: none does."""
    sides: Sequence[int]
    """Of each event, +1 for roots from negative to positive values, -1 for the others, 0 for both."""
    max_roots: int
    """Roots of an event that are stored."""
    y0: Array
    """(n, S or 1)"""
    p: Array
    """(k, S or 1)"""
    t0: Array
    """(S or 1,)"""
    t1: Array
    step: Array
    """The fixed step length, or the first one of an adaptive method, with its sign; 0: to be estimated. (S or 1,)"""
    n_steps: Array
    """The number of fixed steps, or the most that an adaptive method may take. (S or 1,)"""
    rtol: Array
    atol: Array
    """(1 or n, S or 1)"""
    longest: Array
    """The longest step of an adaptive method. (S or 1,)"""
    t_eval: Array
    """Times of output, in the direction of integration, (n_times, S or 1)."""
    n_samples: int
    dtype: str
    event_graph: Graph | None = None
    """The trace of the events, where it is known."""
    stops: Stops | None = None
    """The segments of the run; None: it is one."""
    frame: int | None = None
    """The first of the parameters that are the numbers of a segment (`segments.py`); None: there are none."""
    frame_numbers: Array | None = None
    """These numbers, (5, S or 1), where they are known: p has them, too."""
    n_roots: Array | None = None
    """Roots of each event that were found before, (n_events, S); None: none."""

    @property
    def is_dense(self) -> bool:
        """Whether there are output times or events: values within steps are needed."""
        return self.t_eval.shape[0] > 0 or len(self.events) > 0

    @property
    def longest_step(self) -> Array:
        """The full step length where steps are fixed, else the longest one. (S or 1,)"""
        return self.step if self.method.has_fixed_steps else self.longest


class Solution(NamedTuple):
    """What a solve leaves, of the problem's library."""

    y: Array
    """At the end of each sample's run, (n, S)."""
    t: Array
    """The time reached, (S,)."""
    status: Array
    """(S,)"""
    n_steps: Array
    n_rejected: Array
    y_out: Array
    """(n_times, n, S); NaN at times that were not reached."""
    t_events: Array
    """(n_events, max_roots, S); NaN beyond the roots that were found."""
    n_events: Array
    """(n_events, S)"""


def part_of(problem: Problem, first: int, last: int) -> Problem:
    """The problem of some of the samples."""
    names = ("y0", "p", "t0", "t1", "step", "n_steps", "rtol", "atol", "longest", "t_eval")
    arrays = {name: getattr(problem, name) for name in names}
    cut = {name: each[..., first:last] for name, each in arrays.items() if each.shape[-1] > 1}
    stops = None if problem.stops is None else problem.stops.part(first, last)
    return problem._replace(n_samples=last - first, stops=stops, **cut)
