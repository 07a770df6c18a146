"""The scalars of GMRES on the host: Givens rotations, triangles and right-hand sides of every sample's cycle."""

from __future__ import annotations

import sys

import numpy as np

from ensemble._backend import has_compiled_numbers
from ensemble._compile.numba import SMALL, thread_count
from ensemble._kernels.krylov import basis as kernels
from ensemble._kernels.krylov.arnoldi import (
    BROKEN,
    BUILDING,
    CANDIDATE,
    EXHAUSTED,
    LIMIT,
    RESTARTS,
    ROUNDOFF,
    arnoldi_step,
)
from ensemble._kernels.krylov.gmres_cycles import run_cycles
from ensemble._kernels.krylov.rotations import rotate_column
from ensemble._kernels.sparse.complex_numbers import conjugated, magnitudes, quotients, real_parts, times
from ensemble._kernels.sparse.row_sums import SERIAL, space_in_force
from ensemble._typing import Array
from ensemble.krylov._norms import norms, to_double, to_float64
from ensemble.krylov._protocols import CycleState
from ensemble.krylov.host_scalars.scalars import WORK, HostScalars
from ensemble.krylov.result import Status


class GmresHostScalars(HostScalars):
    """Triangle R, rotations, rotated right-hand side g and state of each sample's cycle.

    A rotation ``[[conj(c), s], [-s, c]]`` has a real sine, and makes the diagonal of R real and positive.
    """

    values = ("replaced", "R", "cosines", "sines", "g", "length", "in_cycle", "updated", "initial")
    state: CycleState

    def __init__(self, state: CycleState, max_iterations: int) -> None:
        super().__init__(state, max_iterations)
        self.max_iterations = max_iterations  # of each sample; samples that wait take none
        self.limit = sys.maxsize if max_iterations else 0
        n_samples, restart = state.active.size, state.restart
        number = np.complex128 if "complex" in str(state.x.dtype) else np.float64
        self.R = np.zeros((restart, restart, n_samples), number)
        self.cosines, self.sines = np.zeros((restart, n_samples), number), np.zeros((restart, n_samples))
        self.g = np.zeros((restart + 1, n_samples), number)
        self.length, self.in_cycle = np.zeros(n_samples, np.int64), np.full(n_samples, BUILDING)
        self.updated = np.zeros(n_samples, bool)  # whether x holds what this cycle found
        self.initial = state.initial  # residual norms at the start of the cycle
        self.chosen = self.updated
        self.y: Array = None

    def begin_cycle(self, V: Array, r: Array, u: Array = None) -> None:
        """Nothing yet: a cycle begins with its first vector, when samples that are finished have been taken out."""
        self.state.columns = 0

    def arnoldi_vectors(self) -> tuple[Array, Array, Array]:
        """The newest basis vector v, and where M v and A M v go."""
        state, j = self.state, self.state.columns
        if j == 0:
            self.initial = np.sqrt(self.coupled_sum(np.where(state.active, state.latest[state.samples] ** 2, 0.0)))
            state.normalise_residual(self.initial)
            self.g[...] = 0.0
            self.g[0] = self.initial
            self.length[...], self.in_cycle[...] = 0, BUILDING
            self.updated[...] = False
        return state.V[j, :, :], state.Z[j, :, :] if state.flexible else state.w, state.V[j + 1, :, :]

    # --- a cycle in one call
    def iterate_many(self, widest: int) -> None:
        """A cycle of every sample that runs, the new x, and what its true residual says."""
        state, samples = self.state, self.state.samples
        which = self.running = state.active
        self.initial = np.sqrt(np.where(which, state.latest[samples] ** 2, 0.0))
        left = self.max_iterations - state.iterations[samples]
        numbers = which.astype(np.int64), state.check[samples], (left <= 1).astype(np.int64)
        cycle = self.R, self.cosines, self.sines, self.g, self.length
        counts, history = run_cycles(
            state.A.arrays, state.r, state.x, cycle, (*numbers, self.in_cycle, np.zeros(which.size)), left,
            self.initial, state.eps, widest,
        )  # fmt: skip
        history[0] = state.latest[samples]
        state.record_many(counts, history, np.zeros_like(which))
        self.steps += int(counts.max())
        self.chosen, self.updated = which, ~which
        self.verify_convergence(state.residual(state.r), ended=True)

    # --- one step of Arnoldi's process
    def keep(self, z: Array, Z: Array) -> None:
        """Nothing: M v is in Z already."""

    def expand(self, V: Array, w: Array, u: Array = None) -> None:
        """Orthonormalise w, column j of R, and the residual norms."""
        state, j = self.state, self.state.columns
        self.running = running = state.active & (self.in_cycle == BUILDING)
        state.columns, self.steps = j + 1, self.steps + 1
        state.iterations[state.samples[running]] += 1
        if self.in_one_call():
            limit = state.iterations[state.samples] >= self.max_iterations
            self.norm = np.zeros(running.size)
            numbers = running.astype(np.int64), state.check[state.samples], limit.astype(np.int64)
            cycle = self.R, self.cosines, self.sines, self.g, self.length
            arnoldi_step(V, j, cycle, (*numbers, self.in_cycle, self.norm), state.eps)
            return
        column, length, before, broken = self.orthogonalise(V[: j + 2, :, :], w, running)
        self.in_cycle[broken] = BROKEN
        if state.coupled and broken.any():  # sums that include the broken sample are not valid for the others
            self.in_cycle[running & ~broken] = RESTARTS
            self.norm = np.where(broken, np.nan, state.latest[state.samples])
            return
        running = running & ~broken
        exhausted = running & (length <= ROUNDOFF * state.eps * before)
        kernels.scale(state.coefficients(1.0 / length, running & ~exhausted), w)
        norm = np.where(broken, np.nan, self.rotate(j, column, np.where(exhausted, 0.0, length), before, running))
        if state.coupled:
            norm = self.coupled_norm(j, running)
        candidates = running & (norm <= state.check[state.samples])
        if state.coupled and not np.array_equal(candidates, running):
            candidates = np.zeros_like(candidates)
        limit = running & (state.iterations[state.samples] >= self.max_iterations)
        for which, value in ((limit, LIMIT), (exhausted, EXHAUSTED), (candidates, CANDIDATE)):
            self.in_cycle[which] = value
        self.norm = norm

    def in_one_call(self) -> bool:
        """Whether compiled code makes a step of numbers in NumPy.

        It does not where threads are better used for rows, or where an interrupt would wait long for its end.
        """
        state, V = self.state, self.state.V
        if state.coupled or not has_compiled_numbers(V) or space_in_force() is not SERIAL:
            return False
        work = 4 * V.size  # more than in this step: what is decided holds for the whole cycle
        return work <= WORK and (V[0].size <= SMALL or thread_count() == 1)

    def orthogonalise(self, V: Array, w: Array, running: np.ndarray) -> tuple[np.ndarray, ...]:
        """Subtract the basis from w, the last vector of V: coefficients, lengths after and before, bad samples."""
        state, basis = self.state, V[:-1, :, :]
        dots = to_double(kernels.basis_dots(V, w, None))  # the last is the square of w
        own = to_float64(kernels.basis_add(state.coefficients(-self.coupled_sum(dots[:-1]), running), basis, w))
        below = (dots[-1] == 0.0) & (dots[:-1] != 0.0).any(axis=0)  # the square of w is below all numbers
        broken = running & (below | ~(np.isfinite(dots).all(axis=0) & np.isfinite(own)))
        h, before, after = self.coupled_sum(dots[:-1]), self.coupled_sum(real_parts(dots[-1])), self.coupled_sum(own)
        again = running & (after < 0.5 * before)
        if again.any():
            more = self.coupled_sum(to_double(kernels.basis_dots(basis, w, None)))
            second = self.coupled_sum(to_float64(kernels.basis_add(state.coefficients(-more, again), basis, w)))
            h, after = np.where(again, h + more, h), np.where(again, second, after)
        return h, np.sqrt(after), np.sqrt(before), broken

    def rotate(
        self, j: int, column: np.ndarray, low: np.ndarray, before: np.ndarray, running: np.ndarray
    ) -> np.ndarray:
        """Reduce column j to triangular form by the old rotations and a new one; returns the residual norms."""
        rotate_column(self.cosines, self.sines, column, j)
        size = magnitudes(column[j])
        larger, smaller = np.maximum(size, low), np.minimum(size, low)
        ratio = np.where(larger > 0.0, smaller / larger, 0.0)
        radius = larger * np.sqrt(1.0 + ratio * ratio)  # as every device rounds it, which hypot is not
        kept = running & (radius > ROUNDOFF * self.state.eps * before)  # else the column adds nothing to the image
        self.R[: j + 1, j] = column
        self.R[j, j] = radius
        self.cosines[j], self.sines[j] = quotients(column[j], radius), low / radius
        self.g[j + 1] = np.where(kept, times(-self.sines[j], self.g[j]), self.g[j])
        self.g[j] = np.where(kept, times(conjugated(self.cosines[j]), self.g[j]), self.g[j])
        self.length[kept] = j + 1
        norm: np.ndarray = magnitudes(self.g[j + 1])
        return norm

    def coupled_norm(self, j: int, running: np.ndarray) -> np.ndarray:
        """Each sample's share of the coupled residual, r = s^2 r + c g v (Saad 2003, section 6.5.3)."""
        state = self.state
        shrink = np.maximum(self.sines[j] ** 2, np.finfo(np.float32).tiny)
        kernels.scale(state.coefficients(shrink, running), state.r)
        share = state.coefficients(times(conjugated(self.cosines[j]), self.g[j + 1])[None, :], running)
        norm: np.ndarray = np.sqrt(to_float64(kernels.basis_add(share, state.V[j + 1 : j + 2, :, :], state.r)))
        return norm

    def end_iteration(self, may_compact: bool) -> None:
        """Record the norms; at the end of a cycle update x, and earlier where finished samples may be taken out."""
        state = self.state
        super().end_iteration(may_compact)
        building = state.active & (self.in_cycle == BUILDING)
        if state.columns == state.restart or not building.any():
            state.end_cycle()
        elif may_compact and state.should_compact(self.norm, state.iterations[state.samples], building):
            state.verify()

    # --- the solution of a cycle
    def solve(self, ended: bool) -> bool:
        """y from R y = g, each sample by the columns it has; whether there are samples whose x is to be updated.

        At the end of a cycle these are all that are not yet updated, else those of them that stopped building.
        """
        which = self.state.active & ~self.updated
        if not ended:
            which = which & (self.in_cycle != BUILDING)
        if not which.any():
            return False
        columns = max(int(self.length[which].max()), 1)
        y, rest = np.zeros((columns, which.size), self.g.dtype), self.g[:columns].copy()
        for i in reversed(range(columns)):
            has = which & (i < self.length)
            y[i] = np.where(has, quotients(rest[i], real_parts(self.R[i, i])), 0.0)
            rest[:i] -= np.where(has, times(self.R[:i, i], y[i]), 0.0)
        self.chosen, self.y = which, self.state.coefficients(y, which)
        return True

    def add_basis(self, basis: Array, out: Array) -> None:
        """out += the sum of the cycle's vectors times y."""
        kernels.basis_add(self.y, basis[: self.y.shape[0], :, :], out)

    def combine_basis(self, basis: Array, out: Array) -> None:
        """out = the sum of the cycle's vectors times y."""
        out[...] = 0.0
        self.add_basis(basis, out)

    def add(self, z: Array, x: Array) -> None:
        """x += z for the chosen samples."""
        has = self.chosen & (self.length > 0)  # M of a sample that found nothing may not even be finite
        kernels.basis_add(self.state.coefficients(np.ones((1, has.size)), has), z[None, :, :], x)

    def verify_convergence(self, true: Array, ended: bool) -> None:
        """Decide on the chosen samples by the norms of their true residuals."""
        state, which = self.state, self.chosen
        samples, coupled = state.samples, state.coupled
        estimate, norm = state.latest[samples], norms(true)
        self.updated = self.updated | which
        state.record(which, norm)
        verified = which & (norm <= state.target[samples])
        stagnant = self.stagnant_cycles(which, estimate, norm) & ~verified
        fails = which & ~verified & ~stagnant
        broken = fails & ((self.in_cycle == BROKEN) | ~np.isfinite(norm))
        initial = self.initial if not coupled else np.full_like(norm, np.inf)
        broken |= fails & (self.in_cycle == EXHAUSTED) & (norm > 0.5 * initial)
        if coupled:
            lost = (self.in_cycle == EXHAUSTED) & (np.sum(norm[which] ** 2) > 0.25 * self.initial**2)
            broken |= fails & lost
            verified = verified & bool(np.all(verified[which & ~broken & ~stagnant]))
        limit = which & ~verified & ~broken & ~stagnant & (state.iterations[samples] >= self.max_iterations)
        state.finish(verified, Status.converged)
        state.finish(broken, Status.breakdown)
        state.finish(stagnant, Status.stagnated)
        state.finish(limit, Status.max_iterations)
        continues = which & state.active
        state.keep(continues & (norm < state.best_norm[samples]), norm)
        self.lower_check(continues & (self.in_cycle == CANDIDATE) & (norm > state.target[samples]), norm)

    def stagnant_cycles(self, which: np.ndarray, estimate: np.ndarray, norm: np.ndarray) -> np.ndarray:
        """Whether the least-squares problems made the residual fall tenfold where its true norm has not halved."""
        state, samples = self.state, self.state.samples
        if state.coupled:  # what they minimise is the norm over all samples
            estimate, norm = (np.broadcast_to(np.sqrt(np.sum(n[which] ** 2)), n.shape) for n in (estimate, norm))
        fall = state.fall[samples] * estimate / self.initial
        stays = norm > 0.5 * state.reference[samples]
        state.fall[samples[which]] = np.where(stays, fall, 1.0)[which]
        state.reference[samples[which]] = np.where(stays, state.reference[samples], norm)[which]
        stagnant: np.ndarray = which & stays & (fall <= 0.1)
        return stagnant
