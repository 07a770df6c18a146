"""What a solve and its scalars owe each other: the protocols between `KrylovIteration`, its loops and its scalars.

A method has three parts. Its *iteration*, a `KrylovIteration`, holds vectors and says in which order they change. Its
*scalars* hold step lengths, norms and the decisions that depend on them, for each sample: `HostScalars` as NumPy
arrays, `DeviceScalars` in device memory, `CgProgramScalars` in arrays that a program of the host repeats. The *loop*,
`solve_on_host`, `DeviceLoop` or `ProgramLoop`, is the same for all methods.

============================  =================================  ======================================
who asks                      whom                               for
============================  =================================  ======================================
`solve_on_host`               the scalars, `LoopScalars`         steps, an end, compaction
`DeviceLoop`, `Replay`        the scalars, `QueuedScalars`       statuses, norms, rows to begin from
`ProgramLoop`                 the same, on the host              and how many samples run
the scalars on the host       the iteration, `SolveState`        samples, norms, outcomes, kept iterates
the iteration of one method   its own scalars                    its own steps: no two methods share them
============================  =================================  ======================================

Arrays of the scalars have the samples that still run, ``state.samples``, in order; arrays named below with shape
(n_all,) have all samples of the call, and are indexed by ``state.samples``.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ensemble._typing import Array
from ensemble.krylov.result import Status

__all__ = ["CycleState", "DirectionState", "LanczosState", "LoopScalars", "ManyState", "QueuedScalars", "SolveState"]


class SolveState(Protocol):
    """What scalars on the host read of a solve, and ask it to do."""

    @property
    def samples(self) -> np.ndarray:
        """Numbers of the samples in the vectors, shape (n,)."""

    @property
    def active(self) -> np.ndarray:
        """Which of them run, shape (n,); the others are frozen."""

    @property
    def coupled(self) -> bool:
        """Whether inner products are summed over samples."""

    @property
    def eps(self) -> float:
        """The distance from one to the next number of the vectors' type."""

    @property
    def x(self) -> Array: ...

    @property
    def r(self) -> Array: ...

    @property
    def M(self) -> Any:
        """The preconditioner, a `LinearOperator`."""

    @property
    def initial(self) -> np.ndarray:
        """Residual norms at the start, shape (n_all,), as all that follow."""

    @property
    def latest(self) -> np.ndarray:
        """Residual norms of the last iteration that was recorded."""

    @property
    def target(self) -> np.ndarray:
        """Norms at which samples have converged."""

    @property
    def check(self) -> np.ndarray:
        """Norms of the recurrence at which the true residual is computed."""

    @property
    def reference(self) -> np.ndarray:
        """The least true norm of a candidate that missed its target."""

    @property
    def misses(self) -> np.ndarray:
        """Candidates that missed since that norm was halved."""

    @property
    def fall(self) -> np.ndarray:
        """The factor by which the recurrence fell since."""

    @property
    def least(self) -> np.ndarray:
        """The least norm of the recurrence."""

    @property
    def best_norm(self) -> np.ndarray:
        """Norms of the iterates that are kept."""

    @property
    def iterations(self) -> np.ndarray:
        """Iterations of each sample."""

    def any_active(self) -> bool:
        """Tell whether some sample runs."""

    def finish(self, which: np.ndarray, status: Status) -> None:
        """End samples with a status."""

    def record(self, which: np.ndarray, norm: np.ndarray) -> None:
        """Note residual norms in the history."""

    def keep(self, which: np.ndarray, norm: np.ndarray) -> None:
        """Keep x of samples as their best iterate."""

    def best_vectors(self) -> Array:
        """Return the kept iterates."""

    def copy(self, which: np.ndarray, source: Array, out: Array) -> None:
        """Copy samples from one vector to another."""

    def coefficients(self, values: np.ndarray, where: np.ndarray) -> Array:
        """Return values as kernels take them, with zeros, which freeze, elsewhere."""

    def residual(self, out: Array, x: Array = None) -> Array:
        """Compute b - A x."""

    def precondition_dot(self, r: Array, out: Array, norm: np.ndarray | None = None) -> tuple[Array, Array]:
        """Compute M r and the inner products of r with it."""

    def should_compact(self, norm: np.ndarray, iterations: np.ndarray, running: np.ndarray) -> bool:
        """Tell whether finished samples are to be taken out."""


class ManyState(SolveState, Protocol):
    """What scalars read for many iterations in one call."""

    @property
    def A(self) -> Any:
        """The matrix."""

    def many_vectors(self) -> tuple[tuple[Array, ...], Array]:
        """Return the vectors of `many_iterations` and its scratch."""

    def verify(self) -> None:
        """Compute the true residuals of the candidates and decide."""

    def record_many(self, counts: np.ndarray, history: np.ndarray, again: np.ndarray) -> None:
        """Note the norms of several iterations."""


class DirectionState(ManyState, Protocol):
    """What the scalars of conjugate gradients read besides."""

    @property
    def p(self) -> Array:
        """The present direction."""


class CycleState(SolveState, Protocol):
    """What GMRES' scalars read besides: a basis, and where its cycle stands."""

    @property
    def restart(self) -> int: ...

    columns: int

    @property
    def flexible(self) -> bool: ...

    @property
    def V(self) -> Array: ...

    @property
    def Z(self) -> Array: ...

    @property
    def w(self) -> Array: ...

    def normalise_residual(self, norm: np.ndarray) -> None:
        """Make the first basis vector of the residual."""

    def verify(self) -> None:
        """Update the samples that wait for the end of the cycle."""

    def end_cycle(self) -> None:
        """Update all samples and restart."""


class LanczosState(ManyState, Protocol):
    """What MINRES' scalars read besides."""

    @property
    def v(self) -> Array:
        """The present Lanczos vector."""

    @property
    def q(self) -> Array:
        """Scratch between iterations."""

    def true_squares(self) -> Array:
        """Compute r . M r per sample, with the residual recomputed from x."""


class LoopScalars(Protocol):
    """What `solve_on_host` needs of scalars."""

    @property
    def steps(self) -> int:
        """Iterations so far; an iteration that coupled samples have to begin again does not count."""

    @property
    def limit(self) -> int:
        """Iterations at which the loop ends."""

    def end_iteration(self, may_compact: bool) -> None:
        """Record the norms of an iteration."""

    def iterate_many(self, widest: int) -> None:
        """Run many iterations in one call, in tiles of at most so many samples; only where `tile_of_many` is not 0."""

    def take_samples(self, kept: np.ndarray) -> None:
        """Reduce the scalars to the samples at these places, after the vectors."""


class QueuedScalars(Protocol):
    """What `DeviceLoop` needs of scalars; everything but `fetch_status` and `norms` only queues work."""

    @property
    def rows(self) -> Array:
        """What an iteration takes over from the one before, shape (n_rows, n): a later stage begins from it."""

    @property
    def history(self) -> Array:
        """Residual norms by iteration, shape (limit + 1, n)."""

    def fetch_status(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return statuses, iterations and norms, after the queued work."""

    def norms(self) -> np.ndarray:
        """Return the norms for stagnation and the best iterate, in the order of statuses.cuh."""

    def between_iterations(self) -> bool:
        """Tell whether no sample is in the middle of an iteration."""

    def copy_from(self, other: Any) -> None:
        """Take the numbers of other scalars of the same kind, for a recorded graph that runs again."""
