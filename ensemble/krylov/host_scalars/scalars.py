"""What the scalars of every Krylov method share on the host: breakdowns, convergence by true residuals, stagnation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.krylov.many_iterations import ManyIterations, many_iterations
from ensemble._kernels.krylov.tile_passes import BEST, BROKEN, DOUBTFUL, DUE, FRESH, LAST, LEAST, RESTS
from ensemble._typing import Array
from ensemble.krylov._norms import norms
from ensemble.krylov._protocols import SolveState
from ensemble.krylov.result import Status

MOST_MISSES = 5.0
"""Candidates that miss their target by less than a factor of two before a sample has stagnated."""


MOST, WORK = 64, 1 << 27
"""Iterations of one call, and multiply-adds of its products, about: an interrupt waits for its end."""


class HostScalars:
    """Scalars of each sample as NumPy arrays, and the decisions that depend on them.

    `values` names the arrays, last axis the sample, that an iteration takes over from the one before; `method` is that
    of `many_iterations`.
    """

    values: tuple[str, ...] = ("replaced",)
    method: int = -1
    products = 1
    """Products with the matrix of an iteration."""

    keeps_within = True
    """Whether iterates are kept within a call of many iterations, not only after it."""

    state: Any

    def __init__(self, state: SolveState, max_iterations: int) -> None:
        self.state, self.limit = state, max_iterations
        self.steps = 0  # iterations so far
        self.norm = state.latest  # of the recurrence, after the present iteration
        self.running = self.candidates = state.active
        self.replaced = np.zeros_like(state.active)  # whether the true residual replaced the recursive one
        self.phase = np.zeros(state.active.size, np.int64)  # where in its iteration a sample of many iterations stands

    # --- many iterations in one call
    def iterate_many(self, widest: int) -> None:
        """Iterations of each sample until it needs a decision, then these decisions.

        `widest`: samples of a tile, see `many_iterations`. Samples that wait for their decision are behind the others
        from then on: each has its own number of iterations.
        """
        state, samples = self.state, self.state.samples
        if not self.begin_many():
            return
        work = state.A.values.shape[0] * samples.size * self.products
        left = self.limit - state.iterations[samples]
        most = max(1, min(int(left[state.active].max()), MOST, WORK // max(work, 1)))
        run = ManyIterations(self.method, samples.size, self.number_type(), most)
        run.history[0], run.before[:], run.left[:] = state.latest[samples], state.iterations[samples], left
        np.minimum(run.left, most, out=run.left)
        run.phases[:], run.codes[~state.active] = self.phase, RESTS
        run.norms[:] = (
            state.check[samples], state.least[samples], state.latest[samples], state.best_norm[samples], self.replaced
        )  # fmt: skip
        self.give_numbers(run.numbers)
        vectors, scratch = state.many_vectors()
        best = state.best_vectors() if self.keeps_within else state.x
        many_iterations(self.method, state.A.arrays, vectors, scratch, best, run, state.eps, widest)
        self.take_numbers(run.numbers)
        self.replaced = run.norms[FRESH] != 0.0
        state.record_many(run.counts, run.history, self.phase != 0)
        self.phase = run.phases
        state.least[samples], state.best_norm[samples] = run.norms[LEAST], run.norms[BEST]
        state.finish(run.codes == BROKEN, Status.breakdown)
        due, doubtful = run.codes == DUE, run.codes == DOUBTFUL
        if due.any():
            self.decide(due, run.norms[LAST])
        if doubtful.any():
            self.decide_doubtful(doubtful)
        state.finish(
            state.active & (self.phase == 0) & (state.iterations[samples] >= self.limit), Status.max_iterations
        )
        taken = state.iterations[samples] - (self.phase != 0)
        self.steps = int(taken[state.active].max(initial=0))

    def number_type(self) -> np.dtype:
        """The type of the numbers that compiled code has of each sample."""
        return np.dtype(np.float64)

    def begin_many(self) -> bool:
        """Begin recurrences before a call of many iterations; whether some sample runs."""
        return True

    def give_numbers(self, numbers: np.ndarray) -> None:
        """Write the scalars of each sample as `many_iterations` takes them."""
        raise NotImplementedError

    def take_numbers(self, numbers: np.ndarray) -> None:
        """Take them back."""
        raise NotImplementedError

    def decide(self, due: np.ndarray, last: np.ndarray) -> None:
        """Decide on the samples of `due` after their last (half of an) iteration; `last`: their norms before it."""
        state = self.state
        self.norm, self.running, self.candidates = state.latest[state.samples], due, due
        state.verify()
        state.record(due, self.norm)

    def decide_doubtful(self, which: np.ndarray) -> None:
        """Decide whether the iterates of samples in the middle of an iteration are kept."""
        raise NotImplementedError

    def take_samples(self, kept: np.ndarray) -> None:
        """Reduce the scalars to the samples at the places `kept`."""
        for name in (*self.values, "phase"):
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[..., kept]))  # as compiled code takes them

    def coupled_sum(self, values: np.ndarray) -> np.ndarray:
        """Inner products under the coupling: each sample's own, or their sum over the running samples."""
        if not self.state.coupled:
            return values
        return np.broadcast_to(np.sum(values[..., self.state.active], axis=-1)[..., None], values.shape).copy()

    def mark_breakdowns(self, valid: np.ndarray) -> bool:
        """End the running samples that are not `valid`; True if there are any."""
        bad = self.state.active & ~valid
        self.state.finish(bad, Status.breakdown)
        return bool(bad.any())

    def end_iteration(self, may_compact: bool) -> None:
        """Record the residual norms."""
        self.state.record(self.running, self.norm)

    # --- convergence
    def select_candidates(self, norm: np.ndarray) -> bool:
        """Select the samples whose recursive norm is at most `check`; whether their true residuals are due."""
        state = self.state
        self.norm = norm
        self.candidates = state.active & (norm <= state.check[state.samples])
        if state.coupled and not np.array_equal(self.candidates, state.active):
            return False
        return bool(self.candidates.any())

    def verify_convergence(self, true: Array, r: Array, *directions: Array) -> None:
        """Decide on the candidates by the norm of the true residual.

        Where it misses the target, `true` replaces the recursive residual `r`, or the sample has stagnated. The next
        `direction` restarts from r (`replaced`); the vectors `directions` stay till then.
        """
        state, candidates = self.state, self.candidates
        samples = state.samples
        true_norm = norms(true)
        self.norm = np.where(candidates, true_norm, self.norm)
        verified = candidates & (true_norm <= state.target[samples])
        broken = candidates & ~np.isfinite(true_norm)
        first = ~np.isfinite(state.reference[samples])  # till now norms of kept iterates were those of the recurrence
        unverified = candidates & ~verified & ~broken
        stagnant = self.stagnant(unverified, true_norm)
        continues = unverified & ~stagnant
        if state.coupled and continues.any():
            stagnant, continues, verified = np.zeros_like(verified), candidates & ~broken, np.zeros_like(verified)
        state.finish(verified, Status.converged)
        state.finish(broken, Status.breakdown)
        state.finish(stagnant, Status.stagnated)
        if continues.any():
            state.copy(continues, true, r)
            state.least[samples[continues]] = true_norm[continues]
            state.keep(continues & self.is_better(continues & first, true_norm), true_norm)
            self.lower_check(continues & unverified, true_norm)
        self.replaced = self.replaced | continues

    def is_better(self, first: np.ndarray, true_norm: np.ndarray) -> np.ndarray:
        """Which samples have a smaller residual than their kept iterates; `first`: norms of those may be wrong."""
        better: np.ndarray = first | (true_norm < self.state.best_norm[self.state.samples])
        return better

    def stagnant(self, unverified: np.ndarray, true_norm: np.ndarray) -> np.ndarray:
        """Which candidates that missed their target have stagnated.

        Their true norm has not halved since the last miss, while the recurrence fell tenfold. Near the target it may be
        met all the same, as rounding falls, and a few more candidates are verified.
        """
        state, samples = self.state, self.state.samples[unverified]
        norm, reference = true_norm[unverified], state.reference[samples]
        state.misses[samples] = np.where(norm > 0.5 * reference, state.misses[samples] + 1.0, 0.0)
        state.reference[samples] = np.minimum(reference, norm)
        most = np.where(norm <= 2.0 * state.target[samples], MOST_MISSES, 1.0)
        stagnant = np.zeros_like(unverified)
        stagnant[unverified] = state.misses[samples] >= most
        return stagnant

    def lower_check(self, which: np.ndarray, true_norm: np.ndarray) -> None:
        """After a miss the recurrence has to reach a tenth of the true norm before it is verified again."""
        samples = self.state.samples[which]
        self.state.check[samples] = np.minimum(self.state.check[samples], 0.1 * true_norm[which])
