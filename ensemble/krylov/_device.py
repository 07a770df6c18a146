"""The solve loop with scalars on a device, the same for all methods; and the same for programs of the host.

Work is queued some iterations ahead, recorded as a CUDA graph. The host fetches the statuses now and then: to verify
candidates when no sample runs on, to compact, and to end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import backend_of, to_numpy
from ensemble._compile.programs import Program, serves_as_program
from ensemble._compile.streams import CudaGraph, own_stream
from ensemble._kernels.krylov.device_scalars.scalars import (
    BREAKDOWN,
    CANDIDATE,
    CONVERGED,
    LIMITED,
    RUNNING,
    STAGNATED,
    on_device,
)
from ensemble._kernels.sparse.row_sums import SERIAL
from ensemble.krylov._iteration import KrylovIteration
from ensemble.krylov._replay import Replay, found_replay, keep_replay, parts_of, release_launches, separate_solution
from ensemble.krylov.result import Status
from ensemble.linalg import CrsMatrix

OUTCOMES = {
    CONVERGED: Status.converged,
    BREAKDOWN: Status.breakdown,
    LIMITED: Status.max_iterations,
    STAGNATED: Status.stagnated,
}
NORMS = ("latest", "target", "check", "reference", "misses", "fall", "best_norm", "least")
"""Norms of each sample in the order of statuses.cuh, by their names in `KrylovIteration`."""

LONGEST_HISTORY = 20_000
MOST_AHEAD = 50

Fetched = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Status, iterations and latest norm of each sample."""


def runs_on_device(state: KrylovIteration, max_iterations: int, callback: Any) -> bool:
    """Whether a solve can run without the host: independent samples, operators that only queue kernels.

    Messages of several processes must be queued as kernels are.
    """
    return (
        on_device(state.x)
        and state.A.space.queues_kernels
        and state.stays_on_device
        and callback is None
        and not state.coupled
        and max_iterations <= LONGEST_HISTORY
        and state.A.has_partial_dots
        and state.M.queues_kernels
    )


class DeviceLoop:
    """Iterations until no sample runs, in stages; between two stages finished samples are taken out."""

    def __init__(self, state: KrylovIteration, max_iterations: int, may_compact: bool) -> None:
        self.state, self.max_iterations, self.may_compact = state, max_iterations, may_compact
        self.n_parts = len(state.parts)
        self.ahead = 2 * self.n_parts  # keeps the device busy while the graph is recorded

    def recorder(self, part: Callable[[], None], record: bool) -> Any:
        """Make what records a part of an iteration, and repeats it."""
        return CudaGraph(part, record)

    def stream(self) -> contextlib.AbstractContextManager[bool]:
        """A block of work where the vectors are; whether it can be recorded there."""
        return own_stream(self.state.x)

    def make_scalars(self, shared: tuple[Any, ...]) -> Any:
        """Make the scalars of a stage."""
        return self.state.device_scalars(shared, self.rows)

    def solve(self) -> None:
        """Run to the end, stage by stage."""
        state = self.state
        with self.stream() as record:
            if not state.active.any() or self.max_iterations == 0:
                return
            self.rows, self.status = state.initial_rows(), np.full(state.active.size, RUNNING)
            while state.active.any():
                self.run_stage(record)

    def run_stage(self, record: bool) -> None:
        """Iterate until no sample runs, or finished samples are to be taken out."""
        state = self.state
        self.first = state.iterations[state.samples].copy()
        parts = parts_of(state) if record and state.restart is None and state.wide_x is None else None
        status = np.where(state.active, self.status, CONVERGED)  # finished samples: any outcome
        norms = np.stack([getattr(state, name)[state.samples] for name in NORMS])
        shared = (status, self.first, norms, self.max_iterations, state.x, state.best_vectors())
        state.scalars = self.make_scalars(shared)
        replay = None if parts is None else found_replay(state, parts, self.max_iterations)
        if replay is not None:
            replay.take_over(state)
            self.parts = replay.graphs
        else:
            self.parts = [self.recorder(getattr(state, part), record) for part in state.parts]
        self.part = 0  # the next one
        self.end_cycle = self.recorder(state.end_cycle, record)
        compact = False
        while not compact:
            self.queue_ahead()
            fetched = self.verified_status()
            running = fetched[0] == RUNNING
            if not running.any():
                break
            if self.may_compact and state.should_compact(fetched[2], fetched[1], running):
                compact = self.ready_to_compact()
            self.ahead = self.iterations_needed(fetched, running)
        if parts is not None and replay is None and release_launches(self.parts):
            replay = Replay(state, parts, self.parts, self.max_iterations)
            keep_replay(state, replay)
        self.end_stage(compact)
        if replay is not None and not compact:
            separate_solution(state)

    # --- work for the device
    def queue_part(self) -> None:
        """Queue the next part of an iteration."""
        self.parts[self.part]()
        self.part = (self.part + 1) % self.n_parts
        if self.state.restart is not None:
            self.state.columns += 1

    def queue_ahead(self) -> None:
        """Queue iterations until the statuses are to be fetched, at most to the end of the cycle."""
        restart = self.state.restart
        for _ in range(self.ahead if restart is None else min(self.ahead, restart - self.state.columns)):
            self.queue_part()

    # --- statuses
    def fetch_status(self) -> Fetched:
        """Wait until the device has come this far in its queue, and return the statuses."""
        fetched: Fetched = self.state.scalars.fetch_status()
        return fetched

    def verified_status(self) -> Fetched:
        """Return statuses of which some sample runs, or of which no candidate is left to verify."""
        state = self.state
        if state.restart is None or state.columns < state.restart:
            fetched = self.fetch_status()
            if np.any(fetched[0] == RUNNING) or not np.any(fetched[0] >= CANDIDATE):
                return fetched
        if state.restart is None:
            state.verify()
        else:
            self.end_cycle()
            state.columns = 0
        return self.fetch_status()

    def iterations_needed(self, fetched: Fetched, running: np.ndarray) -> int:
        """Estimate how many parts to queue before the next fetch: a few less than the slowest sample seems to need.

        At most as many as are done: the convergence of many solves becomes faster.
        """
        state, (_, iterations, latest) = self.state, fetched
        most = min(MOST_AHEAD, self.max_iterations - iterations[running].min(), iterations[running].max())
        rate = np.log(latest / state.initial[state.samples])[running] / iterations[running]
        needed = 0.9 * np.log(state.target[state.samples] / latest)[running] / rate
        needed = np.where(rate < 0.0, needed, most)
        ahead = int(max(1, self.n_parts * min(np.nan_to_num(needed, nan=0.0).max(), most)))
        return int(state.A.space.agreed(ahead))

    # --- between stages
    def ready_to_compact(self) -> bool:
        """Complete the iteration, verify the candidates, and tell whether the samples left can begin a new stage."""
        while self.part:
            self.queue_part()
        self.state.verify()
        return bool(np.any(self.fetch_status()[0] == RUNNING)) and self.state.scalars.between_iterations()

    def end_stage(self, compact: bool) -> None:
        """Take statuses, counts and history over into `state`, which is compacted to the samples that are left."""
        state, running = self.state, self.state.active
        state.end_stage()
        self.status, iterations, _ = self.fetch_status()
        for name, norms in zip(NORMS[2:], state.scalars.norms()[2:], strict=True):
            getattr(state, name)[state.samples] = norms
        history = to_numpy(state.scalars.history[: int(iterations.max(initial=0)) + 1, :])
        for i in range(int(iterations.min(initial=0)) + 1, history.shape[0]):
            which = running & (self.first < i) & (i <= iterations)
            if which.any():
                state.iterations[state.samples[which]] = i
                state.record(which, history[i])
        for code, outcome in OUTCOMES.items():
            state.finish(running & (self.status == code), outcome)
        if compact:
            kept = np.flatnonzero(state.active)
            self.rows, self.status = np.array(to_numpy(state.scalars.rows))[:, kept], self.status[kept]
            state.compact(kept)


def runs_as_program(state: KrylovIteration, max_iterations: int, callback: Any) -> bool:
    """Whether a solve on the host repeats its iterations as a program, on one thread.

    They can be for independent samples, a matrix in NumPy and a preconditioner whose application is nothing but loops.
    It serves where calls from Python would take longer than these loops.
    """
    A, b = state.A, state.b
    if callback is not None or state.coupled or max_iterations > LONGEST_HISTORY or not state.has_program:
        return False
    if not isinstance(A, CrsMatrix) or not state.M.repeats_on_host or A.space is not SERIAL:
        return False
    if backend_of(A.values, b) != "numba" or A.values.dtype != b.dtype or b.dtype.kind != "f" or not b.size:
        return False
    return serves_as_program(A.values, b)


class ProgramLoop(DeviceLoop):
    """The same on the host, for iterations that a program repeats: it stops as soon as there is something to decide."""

    def recorder(self, part: Callable[[], None], record: bool) -> Any:
        return Program(part, record)

    def stream(self) -> contextlib.AbstractContextManager[bool]:
        return contextlib.nullcontext(True)

    def make_scalars(self, shared: tuple[Any, ...]) -> Any:
        return self.state.program_scalars(shared, self.rows)

    def queue_ahead(self) -> None:
        """Iterate until no sample runs, or few enough for the others to be taken out."""
        n_running = self.state.scalars.n_running
        few = n_running[0] // 2 if self.may_compact else 0
        while n_running[0] > 0:
            self.queue_part()
            if 0 < n_running[0] <= few:
                break

    def iterations_needed(self, fetched: Fetched, running: np.ndarray) -> int:
        """Any number: `queue_ahead` looks at each iteration."""
        return 1
