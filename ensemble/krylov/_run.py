"""What the Krylov methods share: the state of every sample, judgement of claims, the best iterates, and compaction.

Vectors are arrays of any library and only kernels touch them. What there is one of per sample (norms, coefficients,
masks, counts) is NumPy on the host: a few numbers, decided on in plain sight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._compile.memory import empty_like
from ensemble._kernels.krylov import vectors as kernels
from ensemble.krylov._system import LinearSystem
from ensemble.krylov.result import SolveResult, Status
from ensemble.linalg import Identity
from ensemble.linalg.operators import wrap_like
from ensemble.linalg.reordering import restored_vectors

WORTH_COMPACTING = 3
"""Iterations that must lie ahead before finished samples are taken out of the vectors and matrices."""

MOST_MISSES = 5.0
"""Claims that fail by less than a factor of two before a sample has stagnated."""


class Run:
    """The state of one solve. Arrays named by sample have one value for each; vectors hold the samples in `members`.

    A method lists in `vectors` the names of its arrays of shape (n, n_samples) that live from one iteration to the
    next, in `scratch` those that do not, and in `values` its NumPy arrays whose last axis is the sample.
    """

    vectors: tuple[str, ...] = ("b", "x", "r")
    scratch: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def __init__(self, system: LinearSystem) -> None:
        self.system = system
        self.A, self.M, self.b, self.coupled = system.A, system.M, system.b, system.coupled
        n_samples = self.b.shape[1]
        self.members = np.arange(n_samples)
        norm_b, x0, atol = norms(self.b), system.x0, system.atol
        self.unit = units_of(self.b, norm_b, self.coupled)
        if self.unit is not None:
            unit = asarray_like(self.unit.astype(self.b.dtype), self.b)
            self.b, x0, atol = self.b / unit, None if x0 is None else x0 / unit, atol / self.unit
            norm_b = norms(self.b)
        self.x, self.r = empty_like(self.b), empty_like(self.b)
        zero = self.zero_samples(norm_b)
        self.x0 = x0 if x0 is None or not zero.any() else self.without(x0, zero)
        self.x[...] = 0.0 if x0 is None else self.x0
        self.workspace = self.M.workspace(n_samples) if hasattr(self.M, "workspace") else None
        if system.x0 is None:
            self.r[...] = self.b
        else:
            self.residual(self.r)
        self.wide_x: Any = None
        self.eps = float(array_namespace(self.b).finfo(self.b.dtype).eps)
        norm = norm_b if x0 is None else np.where(zero, 0.0, norms(self.r))
        with np.errstate(all="ignore"):
            self.target = np.maximum(system.rtol * norm_b, atol)
        sound = np.isfinite(norm) & np.isfinite(self.target)
        sound &= (norm_b > 0.0) | zero  # beside the others, a coupled sample may be too small to have a norm
        self.initial, self.latest = norm, norm.copy()
        # below the roundoff of b a recursive norm is compared with the true residual in any case
        self.check = np.maximum(self.target, self.eps * norm_b)
        self.reference = np.full(n_samples, np.inf)  # the least true norm that disproved a claim
        self.misses = np.zeros(n_samples)  # disproved claims since it was halved
        self.fall = np.ones(n_samples)  # the factor by which the norm fell since, as the recurrence has it
        self.best: Any = None  # the iterates that are kept; the starting guesses while it is None
        self.least = norm.copy()  # norm of the solve
        self.best_norm = norm.copy()
        self.final = norm.copy()  # true norms of what is returned
        self.replaced = np.zeros(n_samples, bool)  # whether a claim of this iteration was disproved
        self.status = np.full(n_samples, Status.max_iterations, dtype=object)
        self.status[norm <= self.target] = Status.converged
        self.status[~sound] = Status.breakdown
        self.iterations = np.zeros(n_samples, np.int64)
        self.active = sound & (norm > self.target)
        self.log: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    # --- vectors
    def zero_samples(self, norm_b: np.ndarray) -> np.ndarray:
        """Which samples of b are all zeros: their solution is zero, whatever x0 is."""
        if norm_b.all():
            return np.zeros(norm_b.size, bool)
        return (norm_b == 0.0) & ~to_numpy(array_namespace(self.b).any(self.b != 0.0, axis=0))

    def without(self, vectors: Any, which: np.ndarray) -> Any:
        """`vectors` with zeros in the samples of `which`."""
        xp = array_namespace(vectors)
        return xp.where(asarray_like(which, vectors), xp.zeros_like(vectors), vectors)

    def residual(self, out: Any, x: Any = None) -> Any:
        """out = b - A x, of the present x or another."""
        x = self.x if x is None else x
        if hasattr(self.A, "residual"):
            return self.A.residual(x, self.b, out)
        self.A.apply(x, out)
        out[...] = self.b - out
        return out

    def precondition(self, r: Any, out: Any) -> Any:
        """M r, in `out`, or `r` itself where there is no preconditioner."""
        if isinstance(self.M, Identity):
            return r
        work = () if self.workspace is None else (self.workspace,)
        result = self.M.apply(r, out, *work)
        if result is not None and result is not out:  # an operator that had no use for the buffer
            out[...] = result
        return out

    def coefficients(self, values: np.ndarray, where: np.ndarray) -> Any:
        """`values` for the samples of `where` and zero, which freezes, for the others: what the kernels take."""
        values = np.where(where & np.isfinite(values), values, 0.0)
        if isinstance(self.x, np.ndarray):
            return values.astype(self.x.dtype)
        return array_namespace(self.x).asarray(values, dtype=self.x.dtype, device=self.x.device)

    def together(self, values: np.ndarray) -> np.ndarray:
        """Inner products as the coupling wants them: each sample's own, or the sum over the running samples."""
        if not self.coupled:
            return values
        return np.broadcast_to(np.sum(values[..., self.active], axis=-1)[..., None], values.shape).copy()

    # --- outcomes
    def record(self, which: np.ndarray, norm: np.ndarray) -> None:
        """Note the residual norms of the samples of `which` at their present iteration."""
        members = self.members[which]
        self.latest[members] = norm[which]
        self.log.append((members, self.iterations[members], norm[which]))

    def finish(self, which: np.ndarray, status: Status) -> None:
        """Take samples out of the run."""
        self.status[self.members[which]] = status
        self.active = self.active & ~which

    def verify_convergence(self, candidates: np.ndarray, norm: np.ndarray, scratch: Any) -> np.ndarray:
        """Judge the samples whose recursive norm is at most `check` by the true residual; returns the norms.

        Where the true norm misses the target the true residual replaces the recursive one, and `replaced` says so, or
        the sample has stagnated.
        """
        self.replaced = np.zeros_like(self.active)
        if not candidates.any() or (self.coupled and not np.array_equal(candidates, self.active)):
            return norm
        true_norm = norms(self.residual(scratch))
        norm = np.where(candidates, true_norm, norm)
        verified = candidates & (true_norm <= self.target[self.members])
        broken = candidates & ~np.isfinite(true_norm)
        first = ~np.isfinite(self.reference[self.members])  # till now kept norms were those of the recurrence
        unverified = candidates & ~verified & ~broken
        stagnant = self.stagnant(unverified, true_norm)
        goes_on = unverified & ~stagnant
        if self.coupled and goes_on.any():
            stagnant, goes_on, verified = np.zeros_like(verified), candidates & ~broken, np.zeros_like(verified)
        self.finish(verified, Status.converged)
        self.finish(broken, Status.breakdown)
        self.finish(stagnant, Status.stagnated)
        if goes_on.any():
            self.copy(goes_on, scratch, self.r)
            self.least[self.members[goes_on]] = true_norm[goes_on]
            self.keep(goes_on & (first | (true_norm < self.best_norm[self.members])), true_norm)
            self.lower_check(goes_on & unverified, true_norm)
        self.replaced = goes_on
        return norm

    def stagnant(self, unverified: np.ndarray, true_norm: np.ndarray) -> np.ndarray:
        """Which samples with a disproved claim have stagnated.

        Their true norm has not halved since the last such claim, while the recurrence fell tenfold. Near the target it
        may be met all the same, as rounding falls, and a few more claims are heard.
        """
        members = self.members[unverified]
        norm, reference = true_norm[unverified], self.reference[members]
        self.misses[members] = np.where(norm > 0.5 * reference, self.misses[members] + 1.0, 0.0)
        self.reference[members] = np.minimum(reference, norm)
        patience = np.where(norm <= 2.0 * self.target[members], MOST_MISSES, 1.0)
        stagnant = np.zeros_like(unverified)
        stagnant[unverified] = self.misses[members] >= patience
        return stagnant

    def lower_check(self, which: np.ndarray, true_norm: np.ndarray) -> None:
        """After a disproved claim the recurrence has to reach a tenth of the true norm before it is judged again."""
        members = self.members[which]
        self.check[members] = np.minimum(self.check[members], 0.1 * true_norm[which])

    def copy(self, which: np.ndarray, source: Any, out: Any) -> None:
        """The samples of `which` of one vector into another."""
        kernels.copy_chosen(self.coefficients(np.ones(which.size), which), source, out)

    # --- the best iterate
    def keep(self, which: np.ndarray, norm: np.ndarray) -> None:
        """Keep x, whose residual norms are given, of the samples of `which`."""
        if not which.any():
            return
        self.copy(which, self.x, self.best_vectors())
        self.best_norm[self.members[which]] = norm[which]

    def best_vectors(self) -> Any:
        """The kept iterates, at first the starting guess."""
        if self.best is None:
            self.best = empty_like(self.x)
            if self.x0 is None:
                self.best[...] = 0.0
            else:
                kernels.take_samples(self.x0, asarray_like(self.members, self.x), self.best)
            self.vectors = (*self.vectors, "best")
        return self.best

    def choose_best(self, which: np.ndarray) -> None:
        """Of the last and the kept iterate the one of smaller true residual, for the samples of `which` that failed."""
        members = self.members
        failed = which & np.array([status != Status.converged for status in self.status[members]], bool)
        self.final[members[which]] = self.latest[members[which]]
        failed = failed & (self.iterations[members] > 0)
        if not failed.any():
            return
        scratch = getattr(self, self.scratch[-1])
        with np.errstate(all="ignore"):
            last = norms(self.residual(scratch))
            kept = norms(self.residual(scratch, self.best_vectors()))
            better = failed & (np.where(np.isfinite(kept), kept, np.inf) < np.where(np.isfinite(last), last, np.inf))
        if better.any():
            self.copy(better, self.best, self.x)
        self.final[members[failed]] = np.where(better, kept, last)[failed]

    # --- the caller's word
    def stop(self, answer: Any) -> None:
        """End the running samples where a callback answered True."""
        if says_stop(answer):
            self.finish(self.active, Status.stopped)

    # --- compaction
    def should_compact(self, norm: np.ndarray, iterations: Any, running: np.ndarray) -> bool:
        """Whether at most half of the samples run and, by their mean rate so far, enough iterations lie ahead."""
        if not running.any() or 2 * running.sum() > running.size:
            return False
        if not (hasattr(self.A, "take_samples") and hasattr(self.M, "take_samples")):
            return False
        members = self.members[running]
        rate = np.log(norm[running] / self.initial[members]) / iterations
        ahead = np.log(self.target[members] / norm[running]) / rate
        return bool(np.any((rate >= 0.0) | (ahead >= WORTH_COMPACTING)))

    def compact(self, kept: np.ndarray) -> None:
        """Narrow vectors, matrix and preconditioner to the samples whose places are `kept`."""
        leaving = np.ones(self.members.size, bool)
        leaving[kept] = False
        self.choose_best(leaving)
        places = asarray_like(kept, self.x)
        if self.wide_x is None:
            self.wide_x = empty_like(self.x)
            self.wide_x[...] = self.x
        else:
            kernels.put_samples(self.x, asarray_like(self.members, self.x), self.wide_x)
        self.A, self.M = self.A.take_samples(kept), self.M.take_samples(kept)
        for name in self.vectors:
            setattr(self, name, kernels.take_samples(getattr(self, name), places, None))
        for name in self.scratch:
            setattr(self, name, empty_like(self.x))
        for name in self.values:
            setattr(self, name, getattr(self, name)[..., kept])
        self.members, self.active, self.replaced = self.members[kept], self.active[kept], self.replaced[kept]
        if self.workspace is not None:
            self.workspace = self.M.workspace(kept.size)

    # --- the end
    def result(self) -> SolveResult:
        """The outcome of all samples."""
        self.choose_best(np.ones(self.members.size, bool))
        x = (
            self.x
            if self.wide_x is None
            else kernels.put_samples(self.x, asarray_like(self.members, self.x), self.wide_x)
        )
        if self.unit is not None:
            x = x * asarray_like(self.unit.astype(x.dtype), x)
        if self.system.order is not None:
            x = restored_vectors(x, self.system.order)
        wrapped = wrap_like(self.system.like, x, self.system.operator_samples, self.system.sample_set)
        history, target, final = (self.outside(norms) for norms in (self.history(), self.target, self.final))
        return SolveResult(wrapped, self.status, self.iterations, history, target, self.system.function, final)

    def outside(self, norms: np.ndarray) -> np.ndarray:
        """Norms of all samples in the caller's units: a copy."""
        return norms.copy() if self.unit is None else norms * self.unit

    def history(self) -> np.ndarray:
        """Residual norms by each sample's own iteration number; a finished sample keeps its last value."""
        history = np.full((int(self.iterations.max()) + 1, self.initial.size), np.nan)
        history[0] = self.initial
        for members, rows, norms in self.log:
            history[rows, members] = norms
        for s, last in enumerate(self.iterations):
            history[last:, s] = history[last, s]
        return history


def says_stop(answer: Any) -> bool:
    """Whether a callback's answer ends the solve: True does, None and other objects do not."""
    return isinstance(answer, bool | np.bool_) and bool(answer)


def norms(vectors: Any) -> np.ndarray:
    """The 2-norm of each sample, float64 on the host."""
    return np.sqrt(host(kernels.dot(vectors, vectors, None)))


def units_of(b: Any, norm: np.ndarray, coupled: bool) -> np.ndarray | None:
    """Powers of two to divide samples by whose squares leave the range of numbers, 1 for the others; None for no such.

    A right-hand side of 1e-200 has a norm of zero by its squares, and would be met by any x. Dividing by a power of two
    rounds nothing. Coupled samples share one unit.
    """
    limits = np.finfo(b.dtype if isinstance(b, np.ndarray) else str(b.dtype).split(".")[-1])
    low, high = np.sqrt(float(limits.smallest_normal)) / limits.eps, np.sqrt(float(limits.max)) * limits.eps
    odd = ~((norm >= low) & (norm <= high))
    if not odd.any():
        return None
    xp = array_namespace(b)
    largest = to_numpy(xp.max(xp.abs(b), axis=0)).astype(np.float64) if b.shape[0] else np.zeros(b.shape[1])
    known = np.isfinite(largest) & (largest > 0.0)
    if coupled:
        largest = np.full_like(largest, largest[known].max(initial=0.0))
        odd, known = np.full_like(odd, odd[known].any()), largest > 0.0
    if not (odd & known).any():
        return None
    return np.where(odd & known, np.ldexp(1.0, np.frexp(largest)[1] - 1), 1.0)


def host(values: Any) -> np.ndarray:
    """A kernel's inner products as float64 on the host."""
    return np.asarray(to_numpy(values), np.float64)
