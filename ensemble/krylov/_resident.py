"""Conjugate gradients on a device: the same method as `cg`'s loop, its scalars kept beside the vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._kernels._streams import Recording, own_stream
from ensemble._kernels.resident import BREAKDOWN, CLAIMED, CONVERGED, RUNNING, CgScalars, on_device
from ensemble.krylov.result import Status

CODES = {
    RUNNING: Status.max_iterations,
    CLAIMED: Status.max_iterations,
    CONVERGED: Status.converged,
    BREAKDOWN: Status.breakdown,
}
LONGEST_HISTORY = 20_000
MOST_AHEAD = 50


def can_stay(run: Any, max_iterations: int, callback: Any) -> bool:
    """Whether a solve can run without the host: independent samples, operators that only queue kernels."""
    return (
        on_device(run.x)
        and callback is None
        and not (run.coupled or run.flexible)
        and max_iterations <= LONGEST_HISTORY
        and hasattr(run.A, "apply_dot_partials")
        and getattr(run.M, "queues_kernels", False)
    )


class ResidentSolve:
    """One stage of a solve: from the present state of `run` until no sample runs or it pays to narrow the ensemble."""

    rz: Any  # inner products r . z that the last stage ended with

    def __init__(self, run: Any, max_iterations: int, compact: bool) -> None:
        self.run, self.max_iterations, self.compact = run, max_iterations, compact

    def solve(self) -> None:
        """Run to the end, stage by stage."""
        with own_stream(self.run.x) as record:
            fresh, done = True, 0
            while self.run.active.any() and done < self.max_iterations:
                done = self._stage(fresh, done, record)
                fresh = False

    # --- one stage
    def _stage(self, fresh: bool, done: int, record: bool) -> int:
        run, n_samples = self.run, self.run.x.shape[1]
        status = np.where(run.active, RUNNING, CONVERGED)  # finished samples: any status but RUNNING
        rz = np.zeros(n_samples) if fresh else self.rz
        self.first = run.iterations[run.members].copy()
        self.scalars = CgScalars(run.x, status, run.target[run.members], self.first, rz, self.max_iterations)
        play, ahead, narrow = Recording(self._iteration, record), 2, False
        if fresh:
            self._iteration(fresh=True)
            done, ahead = done + 1, 1
        while not narrow:
            for _ in range(min(ahead, self.max_iterations - done)):
                play()
                done += 1
            seen = self.scalars.look()
            if np.any(seen[0] == CLAIMED) and not np.any(seen[0] == RUNNING):
                seen = self._prove()
            if done >= self.max_iterations or not np.any(seen[0] == RUNNING):
                break
            if self.compact and self._should_narrow(seen, done):
                narrow = not np.any(self._prove()[0] == CLAIMED)
            ahead = self._ahead(seen)
        self._hand_back(narrow)
        return done

    def _iteration(self, fresh: bool = False) -> None:
        """From a residual to the next one: what comes before it has converged is not spent on it."""
        run = self.run
        z = run.precondition(run.r, run.z)
        self.scalars.direct(run.r, z, run.p, fresh)
        _, pq = run.A.apply_dot_partials(run.p, run.z)
        self.scalars.step(run.p, run.z, run.x, run.r, pq)

    def _prove(self) -> Any:
        """Check the claims of convergence; samples that fail run on from their true residuals. What is then seen."""
        run = self.run
        run.residual(run.z)
        self.scalars.prove(run.z, run.r)
        return self.scalars.look()

    # --- when to look, and when to narrow: neither changes a bit
    def _ahead(self, seen: Any) -> int:
        """Iterations to queue before the next look: a little fewer than the slowest sample seems to need."""
        run, (status, iterations, latest) = self.run, seen
        counted = (status == RUNNING) & (iterations > 0)
        with np.errstate(all="ignore"):
            rate = np.log(latest / run.initial[run.members])[counted] / iterations[counted]
            needed = np.log(run.target[run.members] / latest)[counted] / rate
        needed = needed[np.isfinite(needed) & (rate < 0)]
        return int(np.clip(0.9 * needed.max(initial=1.0), 1, MOST_AHEAD))

    def _should_narrow(self, seen: Any, done: int) -> bool:
        with np.errstate(all="ignore"):  # a broken sample's arithmetic is its own affair
            return bool(self.run.should_compact(seen[2], done, seen[0] == RUNNING))

    # --- back to the host
    def _hand_back(self, narrow: bool) -> None:
        """Statuses, counts and history into `run`, which is narrowed to the samples that are left."""
        run, running = self.run, self.run.active
        status, iterations, _ = self.scalars.look()
        history = to_numpy(self.scalars.history)
        for i in range(int(iterations.min(initial=0)) + 1, int(iterations.max(initial=0)) + 1):
            which = running & (self.first < i) & (i <= iterations)
            if which.any():
                run.iterations[run.members[which]] = i
                run.record(which, history[i])
        for code, outcome in CODES.items():
            if code != RUNNING:
                run.finish(running & (status == code), outcome)
        self.rz = to_numpy(self.scalars.rz)
        if narrow:
            self.rz = self.rz[run.active]
            run.compact(np.flatnonzero(run.active))
