"""The scalars of MINRES on the host."""

from __future__ import annotations

import numpy as np

from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.krylov.many_iterations import MINRES
from ensemble._kernels.krylov.minres_iterations import DOUBTFUL_FALL, LEAST_SQUARES, MINRES_ROWS, SINGULAR
from ensemble._kernels.krylov.vectors import dot
from ensemble._typing import Array
from ensemble.krylov._norms import norms, to_float64
from ensemble.krylov._protocols import LanczosState
from ensemble.krylov.host_scalars.scalars import HostScalars
from ensemble.krylov.result import Status


class MinresHostScalars(HostScalars):
    """Lanczos' coefficients and the rotations of each sample, in the notation of Paige and Saunders.

    They are over `unit`, a power of two of about the size of A. `replaced`: the sample begins a Krylov space from its
    residual.
    """

    state: LanczosState
    method = MINRES
    values = ("replaced", *MINRES_ROWS)

    def __init__(self, state: LanczosState, max_iterations: int) -> None:
        super().__init__(state, max_iterations)
        nothing = np.zeros(state.active.size)
        self.replaced = np.ones_like(state.active)
        self.beta = self.old_beta = self.phibar = self.cs = self.sn = self.dbar = self.epsln = nothing
        self.size = nothing  # of A, the largest sum of a column of the tridiagonal matrix
        self.lowest = np.full_like(nothing, 0.01)  # norm of A r by those of A and r, at the last iterate that was kept
        self.least = np.full_like(nothing, np.inf)  # root of r . M r, at the start and at the last doubtful iterate
        self.alfa = self.unit = nothing
        self.next_beta = self.delta = self.gbar = self.gamma = self.old_epsln = nothing  # in the middle of an iteration
        self.exhausted = np.zeros_like(state.active)

    # --- many iterations in one call
    def begin_many(self) -> bool:
        """Krylov spaces of the samples that begin one."""
        state, new = self.state, self.replaced
        if not new.any():
            return True
        state.copy(new, state.r, state.v)
        if not self.begin(dot(state.v, state.v, None)):
            return False
        state.A.apply(state.v, state.q)
        self.measure(dot(state.q, state.q, None), new)
        return True

    def give_numbers(self, numbers: np.ndarray) -> None:
        """In the order of `MINRES_ROWS`."""
        for row, name in zip(numbers, MINRES_ROWS, strict=True):
            row[:] = getattr(self, name)

    def take_numbers(self, numbers: np.ndarray) -> None:
        """The same."""
        for row, name in zip(numbers, MINRES_ROWS, strict=True):
            setattr(self, name, row if name != "exhausted" else row != 0.0)

    def decide_doubtful(self, which: np.ndarray) -> None:
        """Keep the iterates of `which` whose true residual is the least so far."""
        self.state.keep(self.has_least(which), self.state.latest[self.state.samples])

    # --- one iteration

    def positive_squares(self, squares: Array) -> tuple[np.ndarray, bool]:
        """The roots of inner products with M, and whether coupled samples have to begin again."""
        square = to_float64(squares)
        lost = self.mark_breakdowns(np.isfinite(square) & (square >= 0.0)) and self.state.coupled
        if lost:
            self.replaced = np.ones_like(self.state.active)
        return np.sqrt(np.maximum(self.coupled_sum(square), 0.0)), lost

    def begin(self, squares: Array) -> bool:
        """The scalars of the samples that begin, from r . M r; whether the iteration continues."""
        beta, lost = self.positive_squares(squares)
        if lost:
            return False
        new = self.replaced
        self.mark_breakdowns(~new | (beta > 0.0))
        self.beta, self.phibar = np.where(new, beta, self.beta), np.where(new, beta, self.phibar)
        self.least = np.where(new, np.minimum(self.least, beta), self.least)
        self.cs = np.where(new, -1.0, self.cs)
        for name in ("old_beta", "sn", "dbar", "epsln"):
            setattr(self, name, np.where(new, 0.0, getattr(self, name)))
        self.replaced = np.zeros_like(new)
        return self.state.any_active()

    def measure(self, squares: Array, new: np.ndarray) -> None:
        """The units of the samples that begin and have none, from the square of A z."""
        lengths = np.sqrt(self.coupled_sum(to_float64(squares)))
        first = np.sqrt(self.coupled_sum(self.state.latest[self.state.samples] ** 2))
        size = lengths / (first * self.beta)
        known = new & np.isfinite(size) & (size > 0.0) & (self.unit == 0.0)
        self.unit = np.where(known, np.ldexp(1.0, np.frexp(np.where(known, size, 1.0))[1]), self.unit)

    def lanczos(self, squares: Array) -> np.ndarray | None:
        """Coefficients of the next Lanczos vector, from z . A z; None where coupled samples begin again."""
        state, square = self.state, to_float64(squares)
        if self.mark_breakdowns(np.isfinite(square)) and state.coupled:
            self.replaced = np.ones_like(state.active)
            return None
        unit = np.where(self.unit > 0.0, self.unit, 1.0)
        self.alfa = self.coupled_sum(square) / self.beta**2 / unit
        last = np.where(self.old_beta > 0.0, self.beta / self.old_beta, 0.0)
        return np.stack([1.0 / (self.beta * unit), self.alfa / self.beta, last])

    def rotate(self, squares: Array) -> np.ndarray | None:
        """Coefficients of the update, from v . M v of the next vector; None where coupled samples begin again."""
        beta, lost = self.positive_squares(squares)
        if lost:
            return None
        state, alfa, old_epsln = self.state, self.alfa, self.epsln
        old_beta = np.where(self.old_beta > 0.0, self.beta, 0.0)  # of the tridiagonal matrix; the first is not
        self.size = np.maximum(self.size, np.abs(alfa) + old_beta + beta)
        delta, gbar = self.cs * self.dbar + self.sn * alfa, self.sn * self.dbar - self.cs * alfa
        self.epsln, self.dbar = self.sn * beta, -self.cs * beta
        gamma, root = np.sqrt(gbar**2 + beta**2), np.sqrt(gbar**2 + self.dbar**2)
        unit = state.eps * self.size
        self.exhausted = state.active & ((root <= LEAST_SQUARES * unit) | (gamma <= SINGULAR * unit))
        self.keep_least_squares(root / self.size)
        self.cs, self.sn = gbar / gamma, beta / gamma
        phi, self.phibar = self.cs * self.phibar, self.sn * self.phibar
        share = np.where(beta > 0.0, -self.phibar * self.cs / beta, 0.0)
        moves = np.where(self.exhausted, 0.0, phi / np.where(self.unit > 0.0, self.unit, 1.0))
        coefficients = np.stack([1.0 / (gamma * self.beta), delta / gamma, old_epsln / gamma, moves, self.sn**2, share])
        self.mark_breakdowns(self.exhausted | np.isfinite(coefficients).all(axis=0))
        self.old_beta, self.beta = self.beta, beta
        return coefficients

    def keep_least_squares(self, root: np.ndarray) -> None:
        """Keep the iterates whose A r fell tenfold: what follows the solution of a singular system is rounding.

        Rounding lets A r fall, too, much later, in samples that no x solves: their true residuals have grown by then.
        """
        state = self.state
        falls = state.active & (root <= 0.1 * self.lowest)
        if not falls.any():
            return
        self.lowest = np.where(falls, root, self.lowest)
        doubtful = falls & (root < DOUBTFUL_FALL)
        if doubtful.any():
            falls = (falls & ~doubtful) | self.has_least(doubtful)
        state.keep(falls, state.latest[state.samples])

    def has_least(self, which: np.ndarray) -> np.ndarray:
        """Which of the samples of `which` have the least true residual so far; notes it."""
        length = np.sqrt(np.maximum(self.coupled_sum(to_float64(self.state.true_squares())), 0.0))
        found: np.ndarray = which & (length < self.least)
        self.least = np.where(found, length, self.least)
        return found

    def is_better(self, first: np.ndarray, true_norm: np.ndarray) -> np.ndarray:
        """As for every method; of the kept iterates of `first` the true residuals count."""
        state = self.state
        if first.any():
            kept = norms(state.residual(empty_like(state.x), state.best_vectors()))
            state.best_norm[state.samples[first]] = kept[first]
        better: np.ndarray = true_norm < state.best_norm[state.samples]
        return better

    def step(self, squares: Array) -> bool:
        """The end of an iteration, r . r given; whether candidates are to be verified."""
        state, norm = self.state, np.sqrt(to_float64(squares))
        self.steps += 1
        self.running = state.active
        state.iterations[state.samples[self.running]] = self.steps
        state.finish(self.running & ~np.isfinite(norm), Status.breakdown)
        due = self.select_candidates(norm)
        ended = self.exhausted & state.active
        if not ended.any():
            return due
        self.candidates = state.active if state.coupled else self.candidates | ended
        return True
