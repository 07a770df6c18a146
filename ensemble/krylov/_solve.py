"""Solve loops: iterations until no sample runs, with scalars on the host or on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble.krylov._device import DeviceLoop, runs_on_device
from ensemble.krylov._iteration import KrylovIteration
from ensemble.krylov.result import SolveResult

Callback = Callable[[int, np.ndarray], Any]


def solve(state: KrylovIteration, max_iterations: int, compact: bool, callback: Callback | None) -> SolveResult:
    """The outcome of a method, with its scalars where its vectors are if they can be kept there."""
    may_compact = compact and not state.coupled
    with np.errstate(all="ignore"):  # a broken sample's arithmetic concerns no other
        if runs_on_device(state, max_iterations, callback):
            DeviceLoop(state, max_iterations, may_compact).solve()
        else:
            solve_on_host(state, max_iterations, may_compact, callback)
    return state.result()


def solve_on_host(state: KrylovIteration, max_iterations: int, may_compact: bool, callback: Callback | None) -> None:
    """Iterate until no sample runs; each decision is taken as soon as its inner product is known."""
    scalars = state.scalars = state.host_scalars(max_iterations)
    first_part, *other_parts = [getattr(state, part) for part in state.parts]
    while state.any_active() and scalars.steps < scalars.limit:
        before = scalars.steps
        first_part()
        for part in other_parts:
            if state.any_active():
                part()
        if scalars.steps == before:  # coupled samples without one that broke down: the iteration is begun again
            continue
        scalars.end_iteration(may_compact)
        if callback is not None:
            state.stop(callback(scalars.steps, state.in_callers_units(state.latest)))
        samples = state.samples
        if may_compact and state.should_compact(state.latest[samples], state.iterations[samples], state.active):
            kept = np.flatnonzero(state.active)
            state.compact(kept)
            scalars.take_samples(kept)
