"""Solve loops: iterations until no sample runs, with scalars on the host or on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._check import require_callable
from ensemble._kernels.sparse.row_sums import SERIAL, in_space
from ensemble.krylov._device import DeviceLoop, ProgramLoop, runs_as_program, runs_on_device
from ensemble.krylov._iteration import KrylovIteration, stop_requested
from ensemble.krylov._ranges import in_other_units
from ensemble.krylov._system import LinearSystem
from ensemble.krylov.result import SolveResult

Callback = Callable[[int, np.ndarray], Any]


def solve(
    make: Callable[[LinearSystem], KrylovIteration], system: LinearSystem, max_iterations: int, compact: bool,
    callback: Callback | None,
) -> SolveResult:  # fmt: skip
    """Run the method whose solves `make` begins, and return its outcome.

    Samples that failed because the range of numbers is too small for their products are solved again in other units.
    """
    if callback is not None:
        require_callable(callback, system.function, "callback")
    with np.errstate(all="ignore"), in_space(system.A.space):  # a broken sample's arithmetic concerns no other
        state = make(system)
        iterate(state, max_iterations, compact, callback)
        other = in_other_units(system, state.failed()) if max_iterations else None
        if other is not None:
            part, samples = other
            again = make(part)
            iterate(again, max_iterations, compact, callback and for_all_samples(callback, state, again, samples))
            state.take_over(again, samples)
        return state.result()


def iterate(state: KrylovIteration, max_iterations: int, compact: bool, callback: Callback | None) -> None:
    """Iterate until no sample runs, with the scalars where the vectors are if they can be kept there."""
    may_compact = compact and not state.coupled
    try:
        if runs_on_device(state, max_iterations, callback):
            DeviceLoop(state, max_iterations, may_compact).solve()
        elif runs_as_program(state, max_iterations, callback):
            ProgramLoop(state, max_iterations, may_compact).solve()
        else:
            solve_on_host(state, max_iterations, may_compact, callback)
    finally:
        state.scalars = None  # they refer to the iteration: together they would live until a collection of garbage


def for_all_samples(
    callback: Callback, state: KrylovIteration, again: KrylovIteration, samples: np.ndarray
) -> Callback:
    """Wrap `callback` for a second solve of some samples, so that it is called with the norms of all."""

    def call(iteration: int, norms: np.ndarray) -> Any:
        every = state.in_callers_units(state.latest)
        every[samples] = norms[again.places_of(samples)]
        return callback(iteration, every)

    return call


def answer_of(callback: Callback, iteration: int, state: KrylovIteration) -> Any:
    """Call `callback`; where it asks for the end on one process, all end."""
    with in_space(SERIAL):  # its own sums are those of this process
        answer = callback(iteration, state.in_callers_units(state.latest))
    return bool(state.A.space.any(np.array(stop_requested(answer))))


def solve_on_host(state: KrylovIteration, max_iterations: int, may_compact: bool, callback: Callback | None) -> None:
    """Iterate until no sample runs; each decision is taken as soon as its inner product is known."""
    scalars = state.scalars = state.host_scalars(max_iterations)
    first_part, *other_parts = [getattr(state, part) for part in state.parts]
    tile = 0 if callback is not None or state.coupled else state.tile_of_many()
    while state.any_active() and scalars.steps < scalars.limit:
        before = scalars.steps
        if tile:
            scalars.iterate_many(tile)
        else:
            first_part()
            for part in other_parts:
                if state.any_active():
                    part()
            if scalars.steps == before:  # coupled samples without one that broke down: the iteration is begun again
                continue
            scalars.end_iteration(may_compact)
        if callback is not None:
            state.stop(answer_of(callback, scalars.steps, state))
        samples = state.samples
        if may_compact and state.should_compact(state.latest[samples], state.iterations[samples], state.active):
            kept = np.flatnonzero(state.active)
            state.compact(kept)
            scalars.take_samples(kept)
            tile = state.tile_of_many(begun=True) if tile else 0
