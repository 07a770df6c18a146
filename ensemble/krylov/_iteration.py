"""The state of one solve, whatever the method: samples, outcomes, best iterates, and compaction.

Vectors are arrays of any library and only kernels read and write them. The scalars of each sample (coefficients and the
decisions that depend on them) belong to `KrylovIteration.scalars`: NumPy arrays of `ensemble.krylov.host_scalars`, or
device arrays of `ensemble._kernels.krylov.device_scalars`. A method is written once over either. `_protocols.py` says
what the three owe each other.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, has_compiled_numbers
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.numba import SMALL, thread_count
from ensemble._kernels.krylov import vectors
from ensemble._kernels.krylov.many_iterations import tile_width
from ensemble._kernels.sparse.row_sums import SERIAL
from ensemble._typing import Array
from ensemble.krylov._norms import any_row, from_units, in_units, norms, units_of, with_zeros
from ensemble.krylov._protocols import LoopScalars, QueuedScalars
from ensemble.krylov._system import LinearSystem
from ensemble.krylov.result import SolveResult, Status
from ensemble.linalg import CrsMatrix, Identity
from ensemble.linalg.operators import wrap_like
from ensemble.linalg.reordering import restored_vectors

WORTH_COMPACTING = 3
"""Iterations that must lie ahead before finished samples are taken out of the vectors and matrices."""

Entry = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Samples, their iterations, and residual norms."""


class KrylovIteration:
    """One solve: the vectors of the samples numbered `samples`, and the outcome of every sample of the call.

    A method is a subclass with its vectors, the scalars of both kinds, and the text of one iteration.
    """

    vectors: tuple[str, ...] = ("b", "x", "r")
    """Names of the arrays of shape (n, n_samples) that an iteration takes over from the one before."""

    scratch: tuple[str, ...] = ()
    """Names of those that do not; the last is free between iterations."""

    multiplied: tuple[str, ...] = ("x",)
    """Names of those that A is applied to: they have the space that its products need beside them."""

    many: tuple[str, ...] = ()
    """Names of the vectors of `many_iterations`, in order, before the last of `scratch`. Other methods have none."""

    parts: tuple[str, ...] = ("iterate",)
    """Methods that make up one iteration, in their order; a device solve may end after any of them."""

    restart: int | None = None
    """Iterations of a cycle; None for a method without cycles."""

    columns = 0
    """Iterations of the present cycle."""

    stays_on_device = True
    """Whether there are scalars on a device; vectors may be there without them."""

    has_program = False  # scalars that a program of the host repeats

    scalars: Any

    def __init__(self, system: LinearSystem) -> None:
        self.system = system
        self.A, self.M, self.b, self.coupled = system.A, system.M, system.b, system.coupled
        n_samples = self.b.shape[1]
        self.samples = np.arange(n_samples)
        norm_b, x0, atol = norms(self.b), system.x0, system.atol
        self.unit = units_of(self.b, norm_b, self.coupled)
        if self.unit is not None:
            self.b, x0 = (None if vector is None else in_units(vector, self.unit) for vector in (self.b, x0))
            atol = atol / self.unit
            norm_b = norms(self.b)
        self.x, self.r = self.A.space.vector(self.b), empty_like(self.b)
        zero = self.zero_samples(norm_b)
        self.x0 = x0 if x0 is None or not zero.any() else with_zeros(x0, zero)
        self.x[...] = 0.0 if x0 is None else self.x0
        if system.x0 is None:
            self.r[...] = self.b
        else:
            self.residual(self.r)
        self.wide_x: Any = None
        self.eps = float(array_namespace(self.b).finfo(self.b.dtype).eps)
        norm = norm_b if x0 is None else np.where(zero, 0.0, norms(self.r))
        with np.errstate(all="ignore"):
            self.target = np.maximum(system.rtol * norm_b, atol)
        valid = np.isfinite(norm) & np.isfinite(self.target)
        untried = valid & (norm <= self.target) & ~zero
        if system.x0 is None and untried.any():  # no product tells whether A is finite
            valid &= np.isfinite(norms(self.residual(empty_like(self.r)))) | ~untried
        valid &= (norm_b > 0.0) | zero  # beside the others, a coupled sample may be too small to have a norm
        self.initial, self.latest = norm, norm.copy()
        # below the roundoff of b a recursive norm is compared with the true residual in any case
        self.check = np.maximum(self.target, self.eps * norm_b)
        self.reference = np.full(n_samples, np.inf)  # the least true norm of a candidate that missed its target
        self.misses = np.zeros(n_samples)  # such candidates since it was halved
        self.fall = np.ones(n_samples)  # the factor by which the norm fell since, as the recurrence has it
        self.best: Any = None  # the iterates that are kept; the starting guesses while it is None
        self.least = norm.copy()  # norm of the solve
        self.best_norm = norm.copy()
        self.final = norm.copy()  # true norms of what is returned
        self.status = np.full(n_samples, Status.max_iterations, dtype=object)
        self.status[norm <= self.target] = Status.converged
        self.status[~valid] = Status.breakdown
        self.iterations = np.zeros(n_samples, np.int64)
        self.active = valid & (norm > self.target)
        self.log: list[Entry] = []
        self.solutions: Any = None  # of all samples, once the solve has ended

    # --- vectors
    @cached_property
    def workspace(self) -> Any:
        """What the preconditioner needs beside its vectors, made where no recorded solve has it."""
        return self.M.workspace(self.samples.size)

    def zero_samples(self, norm_b: np.ndarray) -> np.ndarray:
        """Mark samples of b that are all zeros: their solution is zero, whatever x0 is."""
        if norm_b.all():
            return np.zeros(norm_b.size, bool)
        zero: np.ndarray = (norm_b == 0.0) & ~any_row(self.b != 0.0)
        return zero

    def residual(self, out: Array, x: Array = None) -> Array:
        """Compute out = b - A x, of the present x or another."""
        return self.A.residual(self.x if x is None else x, self.b, out)

    def precondition(self, r: Array, out: Array, norm: Array = None) -> Array:
        """Compute M r in `out`; return `r` itself without a preconditioner. `norm`: see `precondition_dot`."""
        if norm is not None and self.M.takes_norms:
            return self.M.precondition(r, out, self.workspace, norm)  # type: ignore[call-arg]
        return r if isinstance(self.M, Identity) else self.M.precondition(r, out, self.workspace)

    def precondition_dot(self, r: Array, out: Array, norm: np.ndarray | None = None) -> tuple[Array, Array]:
        """Compute M r and its inner products with r; `norm` are the norms of r, if they are known."""
        if isinstance(self.M, Identity):
            return r, vectors.dot(r, r, None)
        if norm is not None and self.M.takes_norms:
            return out, self.M.precondition_dot(r, out, self.workspace, norm)  # type: ignore[call-arg]
        return out, self.M.precondition_dot(r, out, self.workspace)

    def coefficients(self, values: np.ndarray, where: np.ndarray) -> Array:
        """Return `values` for the samples of `where`, and zero for the others, which freezes them in the kernels."""
        values = np.where(where & np.isfinite(values), values, 0.0)
        if isinstance(self.x, np.ndarray):
            return values.astype(self.x.dtype)
        return array_namespace(self.x).asarray(values, dtype=self.x.dtype, device=self.x.device)

    # --- what a method defines
    def host_scalars(self, max_iterations: int) -> LoopScalars:
        """Make the scalars of this solve on the host."""
        raise NotImplementedError

    def tile_of_many(self, begun: bool = False) -> int:
        """Samples of a tile where the scalars run many iterations in one call, `iterate_many`; 0 where they cannot.

        They can for a matrix and vectors in NumPy without preconditioner, where threads are not better used for rows.
        What has `begun` so goes on so: each sample has its own number of iterations.
        """
        A = self.A
        n_vectors = self.vectors_of_many()
        if not n_vectors or not isinstance(self.M, Identity) or not isinstance(A, CrsMatrix):
            return 0
        values, (n, n_samples) = A.values, self.b.shape
        if A.space is not SERIAL or values.dtype != self.b.dtype or not n or not has_compiled_numbers(values):
            return 0
        threads = 1 if begun or self.b.size <= SMALL else thread_count()
        width = 1
        if n_samples > 1:
            width = tile_width(A.graph.indptr, values, n_samples, n_vectors, n_samples // threads)
        return max(width, 1) if begun else width if n_samples // max(width, 1) >= threads else 0

    def vectors_of_many(self) -> int:
        """Vectors that a tile of `tile_of_many` has of each sample; 0 for a method that takes single iterations."""
        return len(self.many) + 1 if self.many else 0

    def many_vectors(self) -> tuple[tuple[Array, ...], Array]:
        """The vectors of `many_iterations` and its scratch."""
        return tuple(getattr(self, name) for name in self.many), getattr(self, self.scratch[-1])

    def program_scalars(self, state: tuple[Any, ...], rows: np.ndarray) -> QueuedScalars:
        """Make the scalars of this solve for a program, as `device_scalars` does for a device."""
        raise NotImplementedError

    def initial_rows(self) -> np.ndarray:
        """Return the scalars at the start of a device solve, shape (n_rows, n_samples)."""
        raise NotImplementedError

    def device_scalars(self, state: tuple[Any, ...], rows: np.ndarray) -> QueuedScalars:
        """Make the scalars of this solve on the device, from statuses and norms and from `rows`."""
        raise NotImplementedError

    def verify(self) -> None:
        """Compute true residuals of the candidates; the scalars decide on their norms."""
        raise NotImplementedError

    def end_cycle(self) -> None:
        """Update x from the cycle's basis and restart."""
        raise NotImplementedError

    def end_stage(self) -> None:
        """Update the best iterates before a device solve returns to the host."""

    # --- outcomes
    def record(self, which: np.ndarray, norm: np.ndarray) -> None:
        """Note the residual norms of the samples of `which` at their present iteration."""
        samples = self.samples[which]
        self.latest[samples] = norm[which]
        self.log.append((samples, self.iterations[samples], norm[which]))

    def record_many(self, counts: np.ndarray, history: np.ndarray, again: np.ndarray) -> None:
        """Note so many further iterations of each sample in the vectors, their norms in the rows of `history`.

        Row 0 has norms of the iteration before, which samples of `again` have completed.
        """
        numbers = np.arange(len(history))[:, None]
        rows, places = np.nonzero((numbers <= counts) & ((numbers > 0) | again))
        samples = self.samples[places]
        self.log.append((samples, self.iterations[samples] + rows, history[rows, places]))
        self.iterations[self.samples] += counts
        self.latest[self.samples] = history[counts, np.arange(counts.size)]

    def any_active(self) -> bool:
        """Whether some sample runs; in a short iteration ``active.any()`` takes long."""
        return bool(np.count_nonzero(self.active))

    def finish(self, which: np.ndarray, status: Status) -> None:
        """End the samples of `which` with a status; from now on they are frozen."""
        self.status[self.samples[which]] = status
        self.active = self.active & ~which

    def copy(self, which: np.ndarray, source: Array, out: Array) -> None:
        """Copy the samples of `which` from one vector into another."""
        vectors.copy_chosen(self.coefficients(np.ones(which.size), which), source, out)

    # --- the best iterate
    def keep(self, which: np.ndarray, norm: np.ndarray) -> None:
        """Keep x, whose residual norms are given, of the samples of `which`."""
        if not which.any():
            return
        self.copy(which, self.x, self.best_vectors())
        self.best_norm[self.samples[which]] = norm[which]

    def best_vectors(self) -> Array:
        """Return the kept iterates, at first the starting guess."""
        if self.best is None:
            self.best = empty_like(self.x)
            if self.x0 is None:
                self.best[...] = 0.0
            else:
                vectors.take_samples(self.x0, asarray_like(self.samples, self.x), self.best)
            self.vectors = (*self.vectors, "best")
        return self.best

    def return_best(self, which: np.ndarray) -> None:
        """Return failed samples of `which` to the kept iterate where its true residual is smaller."""
        samples = self.samples
        failed = which & np.array([status != Status.converged for status in self.status[samples]], bool)
        self.final[samples[which]] = self.latest[samples[which]]
        failed = failed & (self.iterations[samples] > 0)
        if not failed.any():
            return
        scratch = getattr(self, self.scratch[-1])
        with np.errstate(all="ignore"):
            last = norms(self.residual(scratch))
            kept = norms(self.residual(scratch, self.best_vectors()))
            better = failed & (np.where(np.isfinite(kept), kept, np.inf) < np.where(np.isfinite(last), last, np.inf))
        if better.any():
            self.copy(better, self.best, self.x)
        self.final[samples[failed]] = np.where(better, kept, last)[failed]

    # --- callbacks
    def stop(self, answer: Any) -> None:
        """End the running samples where a callback answered True."""
        if stop_requested(answer):
            self.finish(self.active, Status.stopped)

    # --- compaction
    def should_compact(self, norm: np.ndarray, iterations: np.ndarray, running: np.ndarray) -> bool:
        """Whether at most half of the samples run and, by their mean rate so far, enough iterations lie ahead."""
        n_running = np.count_nonzero(running)
        if not n_running or 2 * n_running > running.size:
            return False
        if not (self.A.takes_samples and self.M.takes_samples):
            return False
        samples = self.samples[running]
        rate = np.log(norm[running] / self.initial[samples]) / iterations[running]
        ahead = np.log(self.target[samples] / norm[running]) / rate
        return bool(self.A.space.agreed(np.any((rate >= 0.0) | (ahead >= WORTH_COMPACTING))))

    def compact(self, kept: np.ndarray) -> None:
        """Reduce vectors, matrix and preconditioner to the samples at the places `kept`."""
        removed = np.ones(self.samples.size, bool)
        removed[kept] = False
        self.return_best(removed)
        places = asarray_like(kept, self.x)
        if self.wide_x is None:
            self.wide_x = empty_like(self.x)
            self.wide_x[...] = self.x
        else:
            vectors.put_samples(self.x, asarray_like(self.samples, self.x), self.wide_x)
        self.A, self.M = self.A.take_samples(kept), self.M.take_samples(kept)
        like = vectors.take_samples(self.r, places, None)
        for name in self.vectors:
            memory = self.A.space.vector(like) if name in self.multiplied else None
            setattr(self, name, vectors.take_samples(getattr(self, name), places, memory))
        for name in self.scratch:
            memory = self.A.space.vector(like) if name in self.multiplied else empty_like(like)
            setattr(self, name, memory)
        self.samples, self.active = self.samples[kept], self.active[kept]
        vars(self).pop("workspace", None)

    # --- the end
    def failed(self) -> np.ndarray:
        """Mark samples that neither converged nor were stopped."""
        failed: np.ndarray = (self.status != Status.converged) & (self.status != Status.stopped)
        return failed

    def end(self) -> Array:
        """End the solve: solutions of all samples, the best iterates for those that failed."""
        if self.solutions is None:
            self.return_best(np.ones(self.samples.size, bool))
            whole, places = self.wide_x is None, asarray_like(self.samples, self.x)
            self.solutions = self.x if whole else vectors.put_samples(self.x, places, self.wide_x)
        return self.solutions

    def places_of(self, samples: np.ndarray) -> np.ndarray:
        """Find where samples of a larger solve stand in this one, which has them alone or has all."""
        return samples if samples.size < self.status.size else np.arange(samples.size)

    def take_over(self, other: KrylovIteration, samples: np.ndarray) -> None:
        """Take over the outcomes of the samples named from another solve that has them."""
        places, x = other.places_of(samples), other.end()
        found = vectors.take_samples(x, asarray_like(places, x), None)
        vectors.put_samples(found, asarray_like(samples, x), self.end())
        for name in ("status", "iterations", "initial", "latest", "target", "final"):
            getattr(self, name)[samples] = getattr(other, name)[places]
        own, others = np.arange(self.status.size), np.full(other.status.size, -1)
        own[samples], others[places] = -1, samples
        self.log = [*renumbered(self.log, own), *renumbered(other.log, others)]

    def result(self) -> SolveResult:
        """Build the result of all samples."""
        x = self.end()
        if self.unit is not None:
            x = self.in_callers_range(x, self.unit)
        if self.system.order is not None:
            x = restored_vectors(x, self.system.order)
        if self.system.block_size > 1:
            x = array_namespace(x).reshape(x, (-1, self.system.block_size, x.shape[-1]))
        wrapped = wrap_like(self.system.like, x, self.system.is_shared, self.system.sample_set)
        history, target, final = (self.in_callers_units(norms) for norms in (self.history(), self.target, self.final))
        return SolveResult(wrapped, self.status, self.iterations, history, target, self.system.function, final)

    def in_callers_range(self, x: Array, unit: np.ndarray) -> Array:
        """Return solutions to the caller's units; status and norm count numbers that leave the range there."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            scaled = from_units(x, unit)
            left = in_units(scaled, unit)
            changed = any_row(left != x) & (self.status == Status.converged)
            if changed.any():
                norm = norms(self.system.A.residual(left, in_units(self.system.b, unit), empty_like(x)))
                missed = changed & ~(norm <= self.target)
                self.final[missed] = norm[missed]
                self.status[missed] = Status.stagnated
                self.status[missed & ~np.isfinite(norm)] = Status.breakdown
        return scaled

    def in_callers_units(self, norms: np.ndarray) -> np.ndarray:
        """Copy norms of all samples into the caller's units."""
        return norms.copy() if self.unit is None else norms * self.unit

    def history(self) -> np.ndarray:
        """Return residual norms by iteration number of each sample; a finished sample keeps its last value."""
        history = np.full((int(self.iterations.max()) + 1, self.initial.size), np.nan)
        history[0] = self.initial
        for samples, rows, values in self.log:
            history[rows, samples] = values
        for s, last in enumerate(self.iterations):
            history[last:, s] = history[last, s]
        return history


def stop_requested(answer: Any) -> bool:
    """Whether a callback's return value ends the solve: True does, None and other objects do not."""
    return isinstance(answer, bool | np.bool_) and bool(answer)


def renumbered(log: list[Entry], numbers: np.ndarray) -> list[Entry]:
    """Renumber the samples of a log; entries of samples whose new number is negative are dropped."""
    found = [(numbers[samples], rows, norms) for samples, rows, norms in log]
    return [(new[new >= 0], rows[new >= 0], norms[new >= 0]) for new, rows, norms in found]
