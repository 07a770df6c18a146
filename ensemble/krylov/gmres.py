"""The generalised minimal residual method for many samples: one basis and one small least-squares problem for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import asarray_like
from ensemble._check import integer
from ensemble._compile.memory import empty_like
from ensemble._kernels.krylov import basis as kernels
from ensemble._kernels.krylov.vectors import take_samples
from ensemble.krylov._device import runs_on_device
from ensemble.krylov._device_gmres import ResidentGmres
from ensemble.krylov._run import Run, host, norms, says_stop
from ensemble.krylov._system import LinearSystem, linear_system
from ensemble.krylov.result import SolveResult, Status
from ensemble.linalg import Identity

ROUNDOFF = 64
"""Units of roundoff below which what is left of a vector, or a pivot, is nothing but rounding."""

GOES_ON, CLAIMS, EXHAUSTED, BROKEN, LIMIT, BEGINS_AGAIN = range(6)
"""Where a sample stands within a cycle; everything but the first has stopped building its basis."""


def gmres(
    A: Any,
    b: Any,
    *,
    restart: int = 30,
    flexible: bool = False,
    x0: Any = None,
    M: Any = None,
    rtol: Any = None,
    atol: Any = 0.0,
    max_iterations: int = 1000,
    coupling: str = "independent",
    compact: bool = True,
    callback: Callable[[int, np.ndarray], Any] | None = None,
) -> SolveResult:
    """Solve ``A x = b`` for every sample at once, A nonsingular in each and not necessarily symmetric.

    Preconditioned from the right, ``A M (M^-1 x) = b``, so that the residual is the true one and never grows: a sample
    has converged when its 2-norm is at most ``max(rtol * norm(b), atol)``, computed anew from x before it is believed
    [1]_. The basis is made by the classical Gram-Schmidt process in two fused passes over it, and once more for the
    samples whose vector lost more than 30 % of its length, which keeps it orthogonal to roundoff [2]_.

    A sample that meets its target, or whose Krylov space is exhausted (lucky breakdown: the solution lies in it), stops
    there and waits for the others' cycle to end. A space that is exhausted without the solution (a singular matrix), or
    a number that is not finite, flags the sample ``breakdown`` with the best x of its cycle; the others finish. Where
    the least-squares problems of cycles make the residual fall tenfold and the true one does not halve, it can fall no
    further in the numbers' type: the sample ends as ``stagnated``. A sample that does not converge returns its best
    iterate (see `SolveResult`).

    Parameters
    ----------
    A : CrsMatrix, SciPy sparse matrix or LinearOperator, shape (n, n)
    b : Ensemble or array, shape (n,)
        An array of shape (n, 1) is taken for its column. Where b is zero so is x, whatever `x0` is.
    restart : int, at least 1
        Length of a cycle. The basis holds ``restart + 1`` vectors of n values per sample, twice that if `flexible`.
    flexible : bool
        Allow an M that changes from one application to the next (an inner solve, say) [3]_: its results are kept as a
        second basis, and the application at the end of a cycle is saved.
    x0 : Ensemble or array, shape (n,), optional
        Starting guess; zero by default.
    M : LinearOperator, shape (n, n), optional
        Preconditioner, an approximation of the inverse of A.
    rtol, atol : float or array, shape (n_samples,), dimensionless and in units of b
        By default ``rtol`` is 1e-8, and 1e-5 where the vectors are float32.
    max_iterations : int
        Of each sample, over all cycles; an iteration takes one product with A and one with M.
    coupling : {"independent", "ensemble"}
        "independent": each sample has coefficients of its own and the bits of its own scalar run. "ensemble": all
        samples share their inner products, summed, as if they were one block-diagonal system; the iteration goes on
        until every sample meets its own target.
    compact : bool
        Take finished samples out of basis, vectors and matrices when at least half are done and more than a few
        iterations lie ahead. Changes no result.
    callback : callable, optional
        Called as ``callback(iteration, residual_norms)`` after each iteration, norms of shape (n_samples,). Where it
        returns True the samples that still run end as ``stopped``.

    Returns
    -------
    SolveResult
        Within a cycle the history holds the norms of the least-squares problem, at its end the true ones.

    Raises
    ------
    ValueError
        If shapes or numbers of samples do not fit, or a tolerance is negative.
    TypeError
        If A is no operator, or numbers are complex.

    References
    ----------
    .. [1] Saad (2003), Iterative Methods for Sparse Linear Systems, algorithm 9.5 and section 6.5.3.
    .. [2] Giraud, Langou, Rozloznik (2005), Comput. Math. Appl. 50, 1069-1075.
    .. [3] Saad (1993), SIAM J. Sci. Comput. 14, 461-469.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import diags_array
    >>> A = diags_array([-1.5, 2.0, -0.5], offsets=[-1, 0, 1], shape=(10, 10)).tocsr()
    >>> result = gmres(A, np.ones(10))
    >>> result.iterations, bool(np.allclose(A @ result.x, 1.0))
    (array([10]), True)
    """
    system = linear_system("gmres", A, b, x0, M, rtol, atol, max_iterations, coupling)
    restart = integer(restart, "gmres", "restart", minimum=1)
    run = _Run(system, min(restart, max(system.b.shape[0], 1), max(max_iterations, 1)), flexible)
    narrow = compact and not run.coupled
    if runs_on_device(run, max_iterations, callback):
        ResidentGmres(run, max_iterations, narrow).solve()
    else:
        run.solve(max_iterations, narrow, callback)
    return run.result()


class _Run(Run):
    """One GMRES solve. Within a cycle: basis V, triangle R, rotated right-hand side g, and where each sample stands."""

    scratch = ("u",)
    values = ("R", "cosines", "sines", "g", "length", "stand", "settled", "begun")

    def __init__(self, system: LinearSystem, restart: int, flexible: bool) -> None:
        super().__init__(system)
        self.restart, self.steps, self.max_iterations = restart, 0, 0
        self.flexible = flexible and not isinstance(self.M, Identity)
        self.u = empty_like(self.b)
        self.V = empty_like(self.b, (restart + 1, *self.b.shape))
        self.Z: Any = empty_like(self.b, (restart, *self.b.shape)) if self.flexible else None
        n_samples = self.members.size
        self.R = np.zeros((restart, restart, n_samples))
        self.cosines, self.sines = np.zeros((restart, n_samples)), np.zeros((restart, n_samples))
        self.g = np.zeros((restart + 1, n_samples))
        self.length, self.stand = np.zeros(n_samples, np.int64), np.full(n_samples, GOES_ON)
        self.settled = np.zeros(n_samples, bool)  # whether x has taken up what this cycle found
        self.begun = self.initial  # residual norms at the start of the cycle

    def solve(self, max_iterations: int, compact: bool, callback: Any) -> None:
        """Run cycles until no sample runs."""
        self.max_iterations = max_iterations
        with np.errstate(all="ignore"):  # a broken sample's arithmetic is its own affair
            while self.active.any() and max_iterations > 0:
                self.open()
                for j in range(self.restart):
                    running = self.active & (self.stand == GOES_ON)
                    norm = self._expand(j, running)
                    self.steps += 1
                    self.record(running, norm)
                    still = self.active & (self.stand == GOES_ON)
                    ended = j + 1 == self.restart or not still.any()
                    if ended:
                        self._settle(self.active & ~self.settled)
                    elif compact and self.should_compact(norm, self.iterations[self.members[still]], still):
                        self._settle(self.active & ~still & ~self.settled)
                    if callback is not None:
                        self.stop(callback(self.steps, self.outside(self.latest)))
                    if compact and self.active.any() and 2 * self.active.sum() <= self.active.size:
                        self._compact(j)
                    if ended or not self.active.any():
                        break

    def open(self) -> None:
        """Begin a cycle: the first basis vector is the residual at length one."""
        squares = np.where(self.active, self.latest[self.members] ** 2, 0.0)
        self.begun = np.sqrt(self.together(squares))
        self.V[0, :, :] = self.r
        kernels.scale(self.coefficients(1.0 / self.begun, self.active), self.V[0, :, :])
        self.g[...] = 0.0
        self.g[0] = self.begun
        self.length[...], self.stand[...] = 0, GOES_ON
        self.settled[...] = False

    # --- one step of Arnoldi's process
    def _expand(self, j: int, running: np.ndarray) -> np.ndarray:
        """Make basis vector j + 1 and column j of R; returns the residual norms."""
        self.iterations[self.members[running]] += 1
        z = self.precondition(self.V[j, :, :], self.Z[j, :, :] if self.flexible else self.u)
        w = self.V[j + 1, :, :]
        self.A.apply(z, w)
        column, length, before, broken = self._orthogonalise(j, w, running)
        self.stand[broken] = BROKEN
        if self.coupled and broken.any():  # sums that the broken sample was part of say nothing about the others
            self.stand[running & ~broken] = BEGINS_AGAIN
            return np.where(broken, np.nan, self.latest[self.members])
        running = running & ~broken
        exhausted = running & (length <= ROUNDOFF * self.eps * before)
        kernels.scale(self.coefficients(1.0 / length, running & ~exhausted), w)
        norm = np.where(broken, np.nan, self._rotate(j, column, np.where(exhausted, 0.0, length), before, running))
        if self.coupled:
            norm = self._coupled_norm(j, running)
        candidates = running & (norm <= self.check[self.members])
        if self.coupled and not np.array_equal(candidates, running):
            candidates = np.zeros_like(candidates)
        limit = running & (self.iterations[self.members] >= self.max_iterations)
        for which, stand in ((limit, LIMIT), (exhausted, EXHAUSTED), (candidates, CLAIMS)):
            self.stand[which] = stand
        return norm

    def _orthogonalise(self, j: int, w: Any, running: np.ndarray) -> tuple[np.ndarray, ...]:
        """Take the basis out of w: its coefficients, w's length after and before, and which samples are not finite."""
        basis = self.V[: j + 1, :, :]
        dots = host(kernels.basis_dots(self.V[: j + 2, :, :], w, None))  # w is the last vector: its square comes along
        own = host(kernels.basis_add(self.coefficients(-self.together(dots[:-1]), running), basis, w))
        broken = running & ~(np.isfinite(dots).all(axis=0) & np.isfinite(own))
        h, before, after = self.together(dots[:-1]), self.together(dots[-1]), self.together(own)
        again = running & (after < 0.5 * before)
        if again.any():
            more = self.together(host(kernels.basis_dots(basis, w, None)))
            second = self.together(host(kernels.basis_add(self.coefficients(-more, again), basis, w)))
            h, after = np.where(again, h + more, h), np.where(again, second, after)
        return h, np.sqrt(after), np.sqrt(before), broken

    def _rotate(
        self, j: int, column: np.ndarray, low: np.ndarray, before: np.ndarray, running: np.ndarray
    ) -> np.ndarray:
        """Bring column j to triangular form by the old rotations and a new one; returns the residual norms."""
        for i in range(j):
            c, s = self.cosines[i], self.sines[i]
            upper = c * column[i] + s * column[i + 1]
            column[i + 1] = c * column[i + 1] - s * column[i]
            column[i] = upper
        larger, smaller = np.maximum(np.abs(column[j]), low), np.minimum(np.abs(column[j]), low)
        ratio = np.where(larger > 0.0, smaller / larger, 0.0)
        radius = larger * np.sqrt(1.0 + ratio * ratio)  # as every device rounds it, which hypot is not
        kept = running & (radius > ROUNDOFF * self.eps * before)  # else the column adds nothing to the space's image
        self.R[: j + 1, j] = column
        self.R[j, j] = radius
        self.cosines[j], self.sines[j] = column[j] / radius, low / radius
        self.g[j + 1] = np.where(kept, -self.sines[j] * self.g[j], self.g[j])
        self.g[j] = np.where(kept, self.cosines[j] * self.g[j], self.g[j])
        self.length[kept] = j + 1
        return np.abs(self.g[j + 1])

    def _coupled_norm(self, j: int, running: np.ndarray) -> np.ndarray:
        """Each sample's share of the coupled residual, r = s^2 r + c g v (Saad 2003, section 6.5.3)."""
        shrink = np.maximum(self.sines[j] ** 2, np.finfo(np.float32).tiny)
        kernels.scale(self.coefficients(shrink, running), self.r)
        share = self.coefficients((self.cosines[j] * self.g[j + 1])[None, :], running)
        return np.sqrt(host(kernels.basis_add(share, self.V[j + 1 : j + 2, :, :], self.r)))

    # --- what a cycle has found
    def _settle(self, which: np.ndarray) -> None:
        """Bring x of the samples of `which` up to date and judge them by their true residuals."""
        if not which.any():
            return
        self._correct(which)
        claimed, norm = self.latest[self.members], norms(self.residual(self.r))
        self.settled = self.settled | which
        self.record(which, norm)
        verified = which & (norm <= self.target[self.members])
        stagnant = self._stagnant(which, claimed, norm) & ~verified
        fails = which & ~verified & ~stagnant
        broken = fails & ((self.stand == BROKEN) | ~np.isfinite(norm))
        begun = self.begun if not self.coupled else np.full_like(norm, np.inf)
        broken |= fails & (self.stand == EXHAUSTED) & (norm > 0.5 * begun)
        if self.coupled:
            lost = (self.stand == EXHAUSTED) & (np.sum(norm[which] ** 2) > 0.25 * self.begun**2)
            broken |= fails & lost
            verified = verified & bool(np.all(verified[which & ~broken & ~stagnant]))
        limit = which & ~verified & ~broken & ~stagnant & (self.iterations[self.members] >= self.max_iterations)
        self.finish(verified, Status.converged)
        self.finish(broken, Status.breakdown)
        self.finish(stagnant, Status.stagnated)
        self.finish(limit, Status.max_iterations)
        goes_on = which & self.active
        self.keep(goes_on & (norm < self.best_norm[self.members]), norm)
        self.lower_check(goes_on & (self.stand == CLAIMS) & (norm > self.target[self.members]), norm)

    def _stagnant(self, which: np.ndarray, claimed: np.ndarray, norm: np.ndarray) -> np.ndarray:
        """Whether the least-squares problems made the residual fall tenfold where its true norm has not halved."""
        members = self.members
        if self.coupled:  # what they minimise is the norm over all samples
            claimed, norm = (np.broadcast_to(np.sqrt(np.sum(n[which] ** 2)), n.shape) for n in (claimed, norm))
        fall = self.fall[members] * claimed / self.begun
        stays = norm > 0.5 * self.reference[members]
        self.fall[members[which]] = np.where(stays, fall, 1.0)[which]
        self.reference[members[which]] = np.where(stays, self.reference[members], norm)[which]
        return which & stays & (fall <= 0.1)

    def stop(self, answer: Any) -> None:
        """As every method's; x takes up what the cycle has found."""
        if says_stop(answer):
            self._settle(self.active & ~self.settled)
        super().stop(answer)

    def _correct(self, which: np.ndarray) -> None:
        """x += M V y, or Z y, with y from R y = g: each sample by the columns it has."""
        columns = int(self.length[which].max())
        if columns == 0:
            return
        y, rest = np.zeros((columns, which.size)), self.g[:columns].copy()
        for i in reversed(range(columns)):
            has = which & (i < self.length)
            y[i] = np.where(has, rest[i] / self.R[i, i], 0.0)
            rest[:i] -= np.where(has, self.R[:i, i] * y[i], 0.0)
        y = self.coefficients(y, which)
        if self.flexible:
            kernels.basis_add(y, self.Z[:columns, :, :], self.x)
            return
        self.u[...] = 0.0
        kernels.basis_add(y, self.V[:columns, :, :], self.u)
        z = self.precondition(self.u, self.r)
        has = which & (self.length > 0)  # M of a sample that found nothing may not even be finite
        kernels.basis_add(self.coefficients(np.ones((1, which.size)), has), z[None, :, :], self.x)

    # --- compaction
    def _compact(self, j: int) -> None:
        """Narrow everything to the samples that are not finished, the basis as far as it is made."""
        norm, steps = self.latest[self.members], self.iterations[self.members[self.active]]
        if not self.should_compact(norm, steps, self.active):
            return
        self.compact(np.flatnonzero(self.active))
        self.narrow_basis(j + 1)

    def compact(self, kept: np.ndarray) -> None:
        """As every method's; the basis is narrowed apart."""
        super().compact(kept)
        self.kept = kept

    def narrow_basis(self, columns: int) -> None:
        """The basis of a cycle with so many columns, for the samples that were kept."""
        self.V = self._narrow(self.V, columns + 1)
        if self.flexible:
            self.Z = self._narrow(self.Z, columns)

    def _narrow(self, basis: Any, used: int) -> Any:
        new = empty_like(self.x, (basis.shape[0], *self.x.shape))
        for k in range(used):
            take_samples(basis[k, :, :], asarray_like(self.kept, self.x), new[k, :, :])
        return new
