"""The scalars of conjugate gradients on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ensemble._backend import asarray_like, to_numpy
from ensemble._kernels.krylov import vectors
from ensemble._kernels.krylov.many_iterations import CG
from ensemble._kernels.sparse.complex_numbers import real_parts, times
from ensemble._typing import Array
from ensemble.krylov._norms import to_float64
from ensemble.krylov._protocols import DirectionState, SolveState
from ensemble.krylov.host_scalars.scalars import HostScalars
from ensemble.krylov.result import Status
from ensemble.linalg import Identity

if TYPE_CHECKING:
    from ensemble.linalg.linear_operator import LinearOperator


class CgHostScalars(HostScalars):
    """alpha, beta and r . z of each sample; `replaced` where the next direction is z alone.

    Of a Hermitian matrix the inner products are real: what rounding leaves of imaginary parts is dropped.
    """

    values = ("replaced", "rz", "alpha")
    method = CG
    keeps_within = False
    state: DirectionState

    def __init__(self, state: SolveState, max_iterations: int) -> None:
        super().__init__(state, max_iterations)
        self.rz = self.alpha = np.zeros(state.active.size)
        self.replaced = np.ones_like(state.active)
        self.squares: Array | None = None  # r . r of the last step, until r changes otherwise

    # --- inner products
    def apply_dot(self, A: LinearOperator, p: Array, q: Array) -> Array:
        """q = A p; returns p . q."""
        return A.apply_dot(p, q)[1]

    def precondition_dot(self, state: SolveState, r: Array, z: Array) -> tuple[Array, Array]:
        """(M r, r . M r), the vector in `z`."""
        squares, self.squares = self.squares, None
        if squares is not None and squares.size == state.active.size and isinstance(state.M, Identity):
            return r, squares
        return state.precondition_dot(r, z, state.latest[state.samples])

    def verify_convergence(self, true: Array, r: Array, *directions: Array) -> None:
        """As every method's; r may be replaced."""
        self.squares = None
        super().verify_convergence(true, r, *directions)

    # --- one iteration
    def direction(self, z: Array, rz: Array, q: Array | None, p: Array) -> bool:
        """beta from r . z, and the next direction; whether the iteration continues. `q` is the last A p (flexible)."""
        state, rz = self.state, real_parts(to_numpy(rz))
        if self.mark_breakdowns(positive(rz)) and state.coupled:
            self.replaced = np.ones_like(state.active)  # the others begin a Krylov space of their own
            return False
        continues = state.active & ~self.replaced  # else the old direction belongs to another residual
        change = rz
        if q is not None and continues.any():
            change = -real_parts(self.alpha) * real_parts(to_numpy(vectors.dot(z, q, None)))  # z . (r - old r)
        beta = np.where(continues, self.coupled_sum(change) / self.coupled_sum(self.rz), 0.0).astype(p.dtype)
        vectors.cg_direction(asarray_like(beta, p), z, p)
        self.rz = rz
        return state.any_active()

    def step(self, p: Array, q: Array, x: Array, r: Array, pq: Array) -> bool:
        """alpha from p . q, and the new x and r; whether candidates are to be verified."""
        state, pq = self.state, real_parts(to_numpy(pq))
        if self.mark_breakdowns(positive(pq)) and state.coupled:
            self.replaced = np.ones_like(state.active)
            return False
        alpha = np.where(state.active, self.coupled_sum(self.rz) / self.coupled_sum(pq), 0.0).astype(x.dtype)
        if not np.isfinite(alpha).all():  # a step beyond all numbers is none
            self.mark_breakdowns(np.isfinite(alpha))
            alpha = np.where(state.active, alpha, 0.0).astype(x.dtype)
            if not state.active.any():
                return False
        self.squares = vectors.cg_update(asarray_like(alpha, x), p, q, x, r)
        norm = np.sqrt(to_float64(self.squares))
        self.alpha, self.steps = alpha, self.steps + 1
        self.running, last = state.active, state.latest[state.samples]
        state.iterations[state.samples[self.running]] = self.steps
        self.keep_left(norm, last, x, p)
        state.finish(self.running & ~np.isfinite(norm), Status.breakdown)
        self.replaced = np.zeros_like(self.running)
        return self.select_candidates(norm)

    # --- many iterations in one call
    def number_type(self) -> np.dtype:
        """That of the vectors' real parts."""
        found: np.dtype = self.state.x.real.dtype
        return found

    def give_numbers(self, numbers: np.ndarray) -> None:
        """The last and the present r . r, the last step length."""
        state, squares = self.state, self.squares
        if squares is None or squares.size != state.samples.size:
            squares = vectors.dot(state.r, state.r, None)
        numbers[:] = self.rz, real_parts(squares), real_parts(self.alpha)

    def take_numbers(self, numbers: np.ndarray) -> None:
        """The same."""
        self.rz, self.squares = numbers[:2]
        self.alpha = numbers[2].astype(self.state.x.dtype)

    def decide(self, due: np.ndarray, last: np.ndarray) -> None:
        """What `step` and the loop do after an iteration."""
        state, samples = self.state, self.state.samples
        norm, self.running = np.where(due, state.latest[samples], np.inf), due
        self.keep_left(norm, last, state.x, state.p)
        state.finish(due & ~np.isfinite(norm), Status.breakdown)
        if self.select_candidates(norm):
            state.verify()
            state.record(self.candidates, self.norm)

    def keep_left(self, norm: np.ndarray, last: np.ndarray, x: Array, p: Array) -> None:
        """Keep the iterates from which the last step led to more than twice the least norm; `last`: their norms."""
        state = self.state
        least = state.least[state.samples]
        near = norm <= 2.0 * least
        if not near.all():
            leaves = self.running & ~near & (last <= 2.0 * least) & (last <= 0.5 * state.best_norm[state.samples])
            self.keep_previous(leaves, last, x, p)
        state.least[state.samples] = np.fmin(least, norm)

    def keep_previous(self, which: np.ndarray, norm: np.ndarray, x: Array, p: Array) -> None:
        """Keep the iterates before the last step, of these norms."""
        if not which.any():
            return
        state, alpha, best = self.state, self.alpha, self.state.best_vectors()
        if isinstance(best, np.ndarray):  # the columns alone: a pass over all of them would be one per sample
            s = np.flatnonzero(which)
            best[:, s] = x[:, s] - times(alpha[s], p[:, s])
        else:
            state.copy(which, x - asarray_like(alpha, x) * p, best)
        state.best_norm[state.samples[which]] = norm[which]


def positive(values: np.ndarray) -> np.ndarray:
    """Which values are positive numbers."""
    valid: np.ndarray = np.isfinite(values) & (values > 0.0)
    return valid
