"""The scalars of BiCGSTAB on the host."""

from __future__ import annotations

import numpy as np

from ensemble._kernels.krylov import bicgstab as kernels
from ensemble._kernels.krylov.bicgstab_iterations import BICGSTAB_ROWS, IMAGINARY
from ensemble._kernels.krylov.many_iterations import BICGSTAB
from ensemble._kernels.krylov.vectors import cg_update
from ensemble._kernels.sparse.complex_numbers import complex_of, conjugated, is_complex, magnitudes, quotients, times
from ensemble._typing import Array
from ensemble.krylov._norms import to_double, to_float64
from ensemble.krylov._protocols import ManyState, SolveState
from ensemble.krylov.host_scalars.scalars import HostScalars
from ensemble.krylov.result import Status


class BicgstabHostScalars(HostScalars):
    """alpha, omega and beta of each sample; `rho` is shadow . r, `fresh`: a recurrence has just begun."""

    values = (
        "replaced", "rho", "shadow_norm", "fresh", "alpha", "omega", "next_rho", "alpha_usable", "omega_usable"
    )  # fmt: skip
    method = BICGSTAB
    products = 2
    state: ManyState

    def __init__(self, state: SolveState, max_iterations: int) -> None:
        super().__init__(state, max_iterations)
        self.fresh = state.active
        self.rho = self.shadow_norm = np.zeros(state.active.size)
        self.begin_recurrence(self.fresh, state.latest**2)
        self.alpha = self.omega = self.next_rho = self.rho
        self.alpha_usable = self.omega_usable = self.fresh
        self.n_running = 0

    def begin_recurrence(self, which: np.ndarray, square: np.ndarray) -> None:
        """rho and the norm of the shadow for a recurrence with shadow = p = r, the square of r given."""
        square = self.coupled_sum(square)
        self.rho = np.where(which, square, self.rho)
        self.shadow_norm = np.where(which, np.sqrt(square), self.shadow_norm)

    def usable(self, inner: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """Whether inner products hold more than the roundoff of their own sums; `norms`: of one vector by the other."""
        usable: np.ndarray = np.isfinite(inner) & (magnitudes(inner) > self.state.eps * norms)
        return usable

    def lost_samples(self) -> bool:
        """Whether coupled samples hold coefficients from sums that a sample taken out since was part of."""
        return bool(self.state.coupled and self.state.active.sum() < self.n_running)

    # --- many iterations in one call
    def give_numbers(self, numbers: np.ndarray) -> None:
        """In the order of `bicgstab_iterations`."""
        for k, name in enumerate(BICGSTAB_ROWS):
            numbers[k] = np.real(getattr(self, name))
            numbers[k + IMAGINARY] = np.imag(getattr(self, name))

    def take_numbers(self, numbers: np.ndarray) -> None:
        """The same."""
        found = numbers[:IMAGINARY]
        if is_complex(self.state.x):
            found = complex_of(found, numbers[IMAGINARY:])
        self.rho, self.alpha, self.omega, self.next_rho = found[:4]
        self.shadow_norm = numbers[4]
        self.alpha_usable, self.omega_usable, self.fresh = numbers[5:IMAGINARY] != 0.0

    # --- one iteration
    def step(self, shadow: Array, y: Array, v: Array, x: Array, r: Array) -> bool:
        """The first half: x and r along y = M p and v = A y; whether candidates are to be verified."""
        state = self.state
        self.steps += 1
        self.running, self.n_running = state.active, state.active.sum()
        state.iterations[state.samples[self.running]] = self.steps
        self.replaced = np.zeros_like(self.running)
        rv, vv = kernels.dot_and_square(shadow, v)
        rv, vv = to_double(rv), to_float64(vv)
        self.mark_breakdowns(np.isfinite(rv))
        rv, vv = self.coupled_sum(rv), self.coupled_sum(vv)
        usable = state.active & self.usable(rv, self.shadow_norm * np.sqrt(vv)) & (not self.lost_samples())
        self.alpha_usable, self.alpha = usable, np.where(usable, quotients(self.rho, rv), 0.0)
        square = to_float64(cg_update(state.coefficients(self.alpha, usable), y, v, x, r))
        self.mark_breakdowns(np.isfinite(square))
        return self.select_candidates(np.sqrt(square))

    def stabilise(self, shadow: Array, z: Array, t: Array, x: Array, r: Array) -> bool:
        """The second half: x and r along z = M r and t = A z; whether candidates are to be verified."""
        state = self.state
        rt, tt = kernels.dot_and_square(r, t)
        ts, tt = conjugated(to_double(rt)), to_float64(tt)
        self.mark_breakdowns(np.isfinite(ts) & ((tt > 0.0) | (ts == 0.0)))  # else the square of t is below all numbers
        ts, tt = self.coupled_sum(ts), self.coupled_sum(tt)
        usable = state.active & self.usable(ts, np.sqrt(self.coupled_sum(self.norm**2) * tt))
        self.omega_usable, self.omega = usable, np.where(usable, quotients(ts, tt), 0.0)
        before = state.active
        moving = state.coefficients(self.omega, usable)
        square, next_rho = kernels.bicgstab_update(moving, shadow, z, t, x, r)
        square, self.next_rho = to_float64(square), to_double(next_rho)
        self.mark_breakdowns(np.isfinite(square))
        return self.select_candidates(np.where(before, np.sqrt(square), self.norm))

    def direction(self, r: Array, v: Array, p: Array, shadow: Array) -> None:
        """beta and the next direction; a new recurrence for the samples whose old one has come to its end."""
        state = self.state
        breakdown = state.active & self.fresh & ~self.alpha_usable & ~self.omega_usable
        state.finish(breakdown, Status.breakdown)  # neither half moved from a recurrence as new as can be
        rho, square = self.coupled_sum(self.next_rho), self.coupled_sum(self.norm**2)
        beta = times(quotients(rho, self.rho), quotients(self.alpha, self.omega))
        usable = self.alpha_usable & self.omega_usable & (not self.lost_samples())
        continues = state.active & usable & ~self.replaced & np.isfinite(beta) & (beta != 0.0)
        continues = continues & self.usable(rho, self.shadow_norm * np.sqrt(square))
        kernels.bicgstab_direction(
            state.coefficients(beta, continues), state.coefficients(self.omega, continues), r, v, p
        )
        self.rho = np.where(continues, rho, self.rho)
        self.fresh = state.active & ~continues
        if self.fresh.any():
            state.copy(self.fresh, r, shadow)
            state.copy(self.fresh, r, p)
            self.begin_recurrence(self.fresh, self.norm**2)
        due = kept_at(state.iterations[state.samples])
        state.keep(state.active & due & (self.norm < state.best_norm[state.samples]), self.norm)


def kept_at(iterations: np.ndarray) -> np.ndarray:
    """Whether an iterate is kept where it is the best of those: every sixteenth, and the first by powers of two.

    All samples have a pass over their vectors in common, because they begin together.
    """
    kept: np.ndarray = (iterations % 16 == 0) | ((iterations & (iterations - 1)) == 0)
    return kept
