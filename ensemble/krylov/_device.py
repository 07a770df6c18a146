"""Solves that stay on a device: the methods' loops with their scalars kept beside the vectors.

A method says what an iteration queues and how claims of convergence are judged; when the host looks, when the ensemble
is narrowed, and how the outcome comes back to a `Run` is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._compile.streams import CudaGraph, own_stream
from ensemble._kernels.krylov.device_scalars.scalars import (
    BREAKDOWN,
    CLAIMED,
    CONVERGED,
    LIMITED,
    RUNNING,
    STAGNATED,
    on_device,
)
from ensemble.krylov.result import Status

OUTCOMES = {
    CONVERGED: Status.converged,
    BREAKDOWN: Status.breakdown,
    LIMITED: Status.max_iterations,
    STAGNATED: Status.stagnated,
}
NORMS = ("latest", "target", "check", "reference", "misses", "fall", "best_norm", "least")
"""What statuses.cuh knows of each sample beside its status and count, by the names in `Run`."""

LONGEST_HISTORY = 20_000
MOST_AHEAD = 50


def runs_on_device(run: Any, max_iterations: int, callback: Any) -> bool:
    """Whether a solve can run without the host: independent samples, operators that only queue kernels."""
    return (
        on_device(run.x)
        and callback is None
        and not run.coupled
        and max_iterations <= LONGEST_HISTORY
        and hasattr(run.A, "apply_dot_partials")
        and getattr(run.M, "queues_kernels", False)
    )


class ResidentSolve:
    """From the present state of `run` until no sample runs, in stages between which the ensemble is narrowed."""

    scalars: Any
    parts = 1
    """Pieces that an iteration is queued in."""

    def __init__(self, run: Any, max_iterations: int, compact: bool) -> None:
        self.run, self.max_iterations, self.compact = run, max_iterations, compact
        self.ahead = 2 * self.parts  # what is played first keeps the device busy while the next is recorded

    def solve(self) -> None:
        """Run to the end, stage by stage."""
        with own_stream(self.run.x) as record:
            while self.run.active.any() and self.max_iterations > 0:
                self._stage(lambda play: CudaGraph(play, record))

    # --- what a method says
    def _begin(self, book: tuple[Any, ...]) -> None:
        """Bring the scalars of a stage to the device, as `self.scalars`."""
        raise NotImplementedError

    def _iteration(self) -> None:
        """Queue one iteration of all running samples."""
        raise NotImplementedError

    def _prove(self) -> None:
        """Queue a judgement of the samples that wait for one."""
        raise NotImplementedError

    def _keep(self) -> None:
        """Fetch what a next stage goes on from into values of `run`."""
        raise NotImplementedError

    # --- one stage
    def _stage(self, recorded: Callable[[Callable[[], None]], CudaGraph]) -> None:
        run = self.run
        self.first = run.iterations[run.members].copy()
        status = np.where(run.active, RUNNING, CONVERGED)  # finished samples: any outcome
        norms = np.stack([getattr(run, name)[run.members] for name in NORMS])
        self._begin((status, self.first, norms, self.max_iterations, run.x, run.best_vectors()))
        self._record(recorded)
        narrow = False
        while not narrow:
            self._play_ahead()
            seen = self._judged()
            running = seen[0] == RUNNING
            if not running.any():
                break
            if self.compact and self._should_narrow(seen, running):
                narrow = self._ready_to_narrow()
            self.ahead = self._needed(seen, running)
        self._hand_back(narrow)

    def _record(self, recorded: Callable[[Callable[[], None]], CudaGraph]) -> None:
        self.play = recorded(self._iteration)

    def _play_ahead(self) -> None:
        for _ in range(self.ahead):
            self.play()

    def _judged(self) -> Any:
        """What the host sees where some sample runs on, or none has anything left to be judged."""
        seen = self.scalars.fetch_status()
        if not np.any(seen[0] == RUNNING) and np.any(seen[0] >= CLAIMED):
            self._prove()
            seen = self.scalars.fetch_status()
        return seen

    # --- when to look, and when to narrow: neither changes a bit
    def _needed(self, seen: Any, running: np.ndarray) -> int:
        """What to queue before the next look: a little less than the slowest sample seems to need, nor more than done.

        Early rates promise little: many solves gain speed.
        """
        run, (_, iterations, latest) = self.run, seen
        most = min(MOST_AHEAD, self.max_iterations - iterations[running].min(), iterations[running].max())
        with np.errstate(all="ignore"):
            rate = np.log(latest / run.initial[run.members])[running] / iterations[running]
            needed = 0.9 * np.log(run.target[run.members] / latest)[running] / rate
        needed = np.where(rate < 0.0, needed, most)
        return int(max(1, self.parts * min(np.nan_to_num(needed, nan=0.0).max(), most)))

    def _should_narrow(self, seen: Any, running: np.ndarray) -> bool:
        with np.errstate(all="ignore"):  # a broken sample's arithmetic is its own affair
            return bool(self.run.should_compact(seen[2], seen[1][running], running))

    def _ready_to_narrow(self) -> bool:
        """Judge the samples that wait; whether those that are left can begin a new stage."""
        self._prove()
        return bool(np.any(self.scalars.fetch_status()[0] == RUNNING))

    # --- back to the host
    def _hand_back(self, narrow: bool) -> None:
        """Statuses, counts and history into `run`, which is narrowed to the samples that are left."""
        run, running = self.run, self.run.active
        status, iterations, _ = self.scalars.fetch_status()
        for name, norms in zip(NORMS[2:], self.scalars.norms()[2:], strict=True):
            getattr(run, name)[run.members] = norms
        history = to_numpy(self.scalars.history[: int(iterations.max(initial=0)) + 1, :])
        for i in range(int(iterations.min(initial=0)) + 1, history.shape[0]):
            which = running & (self.first < i) & (i <= iterations)
            if which.any():
                run.iterations[run.members[which]] = i
                run.record(which, history[i])
        for code, outcome in OUTCOMES.items():
            run.finish(running & (status == code), outcome)
        if narrow:
            self._keep()
            run.compact(np.flatnonzero(run.active))
