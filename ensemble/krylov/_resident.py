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
        and not run.coupled
        and max_iterations <= LONGEST_HISTORY
        and hasattr(run.A, "apply_dot_partials")
        and getattr(run.M, "queues_kernels", False)
    )


class ResidentSolve:
    """One stage of a solve: from the present state of `run` until no sample runs or it pays to narrow the ensemble."""

    def __init__(self, run: Any, max_iterations: int, compact: bool, record: bool = True) -> None:
        self.run, self.max_iterations, self.compact, self.record = run, max_iterations, compact, record

    def solve(self) -> None:
        """Run to the end, stage by stage."""
        with own_stream(self.run.x) as streams:
            fresh, done = True, 0
            while self.run.active.any() and done < self.max_iterations:
                done = self._stage(fresh, done, streams and self.record)
                fresh = False

    # --- one stage
    def _stage(self, fresh: bool, done: int, record: bool) -> int:
        run, n_samples = self.run, self.run.x.shape[1]
        status = np.where(run.active, RUNNING, CONVERGED)  # finished samples: any status but RUNNING
        rz = np.zeros(n_samples) if fresh else run.rz
        self.first = run.iterations[run.members].copy()
        self.scalars = CgScalars(run.x, status, run.target[run.members], self.first, rz, self.max_iterations)
        if fresh:
            run._apply_preconditioner()
            self.scalars.direct(run.r, run.z, run.p, fresh=True)
        play, narrow = Recording(self._iteration, record), False
        while done < self.max_iterations and not narrow:
            for _ in range(min(self._ahead(), self.max_iterations - done)):
                play()
                done += 1
            status = self.scalars.look()[0]
            if not np.any(status == RUNNING):
                status = self._prove()
            if not np.any(status == RUNNING):
                break
            narrow = bool(self.compact and self._should_narrow(status, done) and np.all(self._prove() != CLAIMED))
        self._hand_back(narrow)
        return done

    def _iteration(self) -> None:
        run = self.run
        _, pq = run.A.apply_dot_partials(run.p, run.z)
        self.scalars.step(run.p, run.z, run.x, run.r, pq)
        run._apply_preconditioner()
        self.scalars.direct(run.r, run.z, run.p)

    def _prove(self) -> np.ndarray:
        """Check the claims of convergence; samples that fail go on from their true residuals. The statuses."""
        run, scalars = self.run, self.scalars
        before = scalars.look()[0]
        if not np.any(before == CLAIMED):
            return before
        run._residual(run.z)
        scalars.prove(run.z, run.r)
        after = scalars.look()[0]
        unproven = (after == RUNNING) & (before == CLAIMED)
        if unproven.any():  # they lack the second half of their iteration, which the others have behind them
            scalars.set_status(np.where(unproven, RUNNING, CLAIMED))
            run._apply_preconditioner()
            scalars.direct(run.r, run.z, run.p)
            after = np.where(unproven, scalars.look()[0], after)
            scalars.set_status(after)
        return after

    # --- when to look
    def _latest(self) -> np.ndarray:
        """The members' latest norms."""
        iterations = self.scalars.look()[1]
        history = to_numpy(self.scalars.history)[iterations, np.arange(iterations.size)]
        return np.where(iterations > self.first, history, self.run.history[-1][self.run.members])

    def _ahead(self) -> int:
        """Iterations to queue before the next look: a little fewer than the slowest sample seems to need."""
        run, (status, iterations) = self.run, self.scalars.look()
        counted = (status == RUNNING) & (iterations > 0)
        if not counted.any():
            return 2
        latest = self._latest()[counted]
        with np.errstate(all="ignore"):
            rate = np.log(latest / run.initial[run.members][counted]) / iterations[counted]
            needed = np.log(run.target[run.members][counted] / latest) / rate
        needed = needed[np.isfinite(needed) & (rate < 0)]
        return int(np.clip(0.9 * needed.max(initial=1.0), 1, MOST_AHEAD))

    def _should_narrow(self, status: np.ndarray, done: int) -> bool:
        run = self.run
        active, run.active = run.active, status == RUNNING
        answer = run._should_compact(self._latest(), done)
        run.active = active
        return bool(answer)

    # --- back to the host
    def _hand_back(self, narrow: bool) -> None:
        """Statuses, counts and history into `run`, which is narrowed to the samples that are left."""
        run = self.run
        status, iterations = self.scalars.look()
        history = to_numpy(self.scalars.history)
        for _ in range(int(iterations.max(initial=0)) + 1 - len(run.history)):
            run.history.append(run.history[-1].copy())
        for k in np.flatnonzero(run.active):
            sample, first, last = run.members[k], self.first[k], iterations[k]
            for i, row in enumerate(run.history[first + 1 :], start=first + 1):
                row[sample] = history[min(i, last), k] if last > first else run.history[first][sample]
            run.status[sample], run.iterations[sample] = CODES[int(status[k])], last
        run.active = run.active & (status == RUNNING)
        run.rz = to_numpy(self.scalars.rz)
        if narrow:
            run.rz = run.rz[run.active]
            run._compact()
