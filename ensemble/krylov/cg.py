"""The preconditioned conjugate gradient method for many samples: each by itself, or all in one Krylov space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import asarray_like, to_numpy
from ensemble._compile.memory import empty_like
from ensemble._kernels.krylov import vectors as kernels
from ensemble.krylov._device import runs_on_device
from ensemble.krylov._device_cg import ResidentCg
from ensemble.krylov._run import Run, host
from ensemble.krylov._system import LinearSystem, linear_system
from ensemble.krylov.result import SolveResult, Status


def cg(
    A: Any,
    b: Any,
    *,
    x0: Any = None,
    M: Any = None,
    flexible: bool = False,
    rtol: Any = None,
    atol: Any = 0.0,
    max_iterations: int = 1000,
    coupling: str = "independent",
    compact: bool = True,
    callback: Callable[[int, np.ndarray], Any] | None = None,
) -> SolveResult:
    """Solve ``A x = b`` for every sample at once, A symmetric positive definite in each.

    A sample has converged when the 2-norm of its residual is at most ``max(rtol * norm(b), atol)``; the residual is
    computed anew from x before that is believed. A sample that is not finite or not positive definite is flagged
    ``breakdown``; the others finish [1]_, [2]_.

    A claim of convergence that the true residual disproves restarts the sample from that residual with a new direction.
    A sample whose residual can fall no further in the numbers' type ends as ``stagnated``: twice in succession its
    recurrence fell to the target, or tenfold, and its true residual did not halve. A sample that does not converge
    returns its best iterate (see `SolveResult`).

    Parameters
    ----------
    A : CrsMatrix, SciPy sparse matrix or LinearOperator, shape (n, n)
    b : Ensemble or array, shape (n,)
        An array of shape (n, 1) is taken for its column. Where b is zero so is x, whatever `x0` is.
    x0 : Ensemble or array, shape (n,), optional
        Starting guess; zero by default.
    M : LinearOperator, shape (n, n), optional
        Preconditioner, an approximation of the inverse of A: a `Hierarchy`, a `Diagonal`.
    flexible : bool
        Allow an M that changes from one application to the next (an inner solve, say): the new direction is made
        orthogonal to the last one as it is (Polak and Ribiere's formula) [3]_, for one more vector and inner product.
    rtol, atol : float or array, shape (n_samples,), dimensionless and in units of b
        By default ``rtol`` is 1e-8, and 1e-5 where the vectors are float32.
    max_iterations : int
    coupling : {"independent", "ensemble"}
        "independent": each sample has step lengths of its own and the bits of its own scalar run; finished samples are
        frozen. "ensemble": all samples share one inner product, their sum (eq. 4 of [2]_), hence one iteration count;
        the iteration goes on until every sample meets its own target, so a singular sample holds up all of them.
    compact : bool
        Take finished samples out of vectors and matrices when at least half are done and more than a few iterations
        lie ahead. Changes no result.
    callback : callable, optional
        Called as ``callback(iteration, residual_norms)`` after each iteration, norms of shape (n_samples,). Where it
        returns True the samples that still run end as ``stopped``.

    Returns
    -------
    SolveResult

    Raises
    ------
    ValueError
        If shapes or numbers of samples do not fit, or a tolerance is negative.
    TypeError
        If A is no operator, or numbers are complex.

    References
    ----------
    .. [1] Saad (2003), Iterative Methods for Sparse Linear Systems, algorithm 9.1.
    .. [2] Phipps et al. (2017), SIAM J. Sci. Comput. 39, C162-C193, section 3.4.
    .. [3] Golub, Ye (1999), SIAM J. Sci. Comput. 21, 1305-1320.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.gallery import poisson
    >>> result = cg(poisson((10,)), np.ones(10))
    >>> result.iterations
    array([5])
    """
    run = _Run(linear_system("cg", A, b, x0, M, rtol, atol, max_iterations, coupling), flexible)
    narrow = compact and not run.coupled
    if runs_on_device(run, max_iterations, callback):
        ResidentCg(run, max_iterations, narrow).solve()
    else:
        run.solve(max_iterations, narrow, callback)
    return run.result()


class _Run(Run):
    """One CG solve: direction p, and z, which is M r and A p by turns; the flexible method needs A p later, as q."""

    vectors: tuple[str, ...] = ("b", "x", "r", "p")
    scratch = ("z",)
    p: Any
    z: Any
    q: Any

    def __init__(self, system: LinearSystem, flexible: bool) -> None:
        super().__init__(system)
        self.flexible = flexible
        self.p, self.z = empty_like(self.b), empty_like(self.b)
        if flexible:
            self.q, self.vectors = empty_like(self.b), (*self.vectors, "q")

    # --- pieces of one iteration
    def product(self) -> tuple[Any, np.ndarray]:
        """A p and the inner products p . A p."""
        q = self.q if self.flexible else self.z
        if hasattr(self.A, "apply_dot"):
            return q, to_numpy(self.A.apply_dot(self.p, q)[1])
        self.A.apply(self.p, q)
        return q, to_numpy(kernels.dot(self.p, q, None))

    def preconditioned(self) -> tuple[Any, np.ndarray]:
        """z = M r and the inner products r . z."""
        if self.workspace is not None and hasattr(self.M, "apply_dot"):  # that of a hierarchy
            return self.z, to_numpy(self.M.apply_dot(self.r, self.z, self.workspace))
        z = self.precondition(self.r, self.z)
        return z, to_numpy(kernels.dot(self.r, z, None))

    def mark_breakdowns(self, values: np.ndarray) -> bool:
        """Take out the running samples whose inner product is not a positive number; True if there were any."""
        bad = self.active & ~(np.isfinite(values) & (values > 0.0))
        self.finish(bad, Status.breakdown)
        return bool(bad.any())

    # --- the method
    def solve(self, max_iterations: int, compact: bool, callback: Any) -> None:
        """Iterate until no sample runs."""
        iteration = 0
        with np.errstate(all="ignore"):  # a broken sample's arithmetic is its own affair
            rz = self.start() if self.active.any() else self.initial
            while self.active.any() and iteration < max_iterations:
                q, pq = self.product()
                if self.mark_breakdowns(pq) and self.coupled:
                    rz = self.start()  # the others begin a Krylov space of their own
                    continue
                alpha = np.where(self.active, self.together(rz) / self.together(pq), 0.0).astype(self.x.dtype)
                if not np.isfinite(alpha).all():  # a step beyond all numbers is none
                    self.finish(self.active & ~np.isfinite(alpha), Status.breakdown)
                    alpha = np.where(self.active, alpha, 0.0).astype(self.x.dtype)
                    if not self.active.any():
                        break
                rr = kernels.cg_update(asarray_like(alpha, self.x), self.p, q, self.x, self.r)
                iteration += 1
                self.judge(np.sqrt(host(rr)), alpha, iteration, callback)
                if not self.active.any():
                    break
                if compact and self.should_compact(self.latest[self.members], iteration, self.active):
                    rz, alpha = rz[self.active], alpha[self.active]
                    self.compact(np.flatnonzero(self.active))
                z, rz_new = self.preconditioned()
                if self.mark_breakdowns(rz_new) and self.coupled:
                    rz = self.start()
                    continue
                # z . (r - old r) for the flexible method
                change = -alpha * to_numpy(kernels.dot(z, self.q, None)) if self.flexible else rz_new
                goes_on = self.active & ~self.replaced  # else the old direction belongs to another residual
                beta = np.where(goes_on, self.together(change) / self.together(rz), 0.0).astype(self.x.dtype)
                kernels.cg_direction(asarray_like(beta, self.p), z, self.p)
                rz = rz_new

    def judge(self, norm: np.ndarray, alpha: np.ndarray, iteration: int, callback: Any) -> None:
        """Note the residual norms after an iteration, and take out the samples that it finished."""
        running, last = self.active, self.latest[self.members]
        self.iterations[self.members[running]] = iteration
        least = self.least[self.members]
        near = norm <= 2.0 * least
        if not near.all():
            leaves = running & ~near & (last <= 2.0 * least) & (last <= 0.5 * self.best_norm[self.members])
            self.keep_previous(leaves, last, alpha)
        self.least[self.members] = np.fmin(least, norm)
        self.finish(running & ~np.isfinite(norm), Status.breakdown)
        candidates = self.active & (norm <= self.check[self.members])
        self.record(running, self.verify_convergence(candidates, norm, self.z))
        if callback is not None:
            self.stop(callback(iteration, self.outside(self.latest)))

    def keep_previous(self, which: np.ndarray, norm: np.ndarray, alpha: np.ndarray) -> None:
        """Keep the iterates before the last step, of these norms."""
        if not which.any():
            return
        best = self.best_vectors()
        if isinstance(best, np.ndarray):  # the columns alone: a pass over all of them would be one per sample
            s = np.flatnonzero(which)
            best[:, s] = self.x[:, s] - alpha[s] * self.p[:, s]
        else:
            self.copy(which, self.x - asarray_like(alpha, self.x) * self.p, best)
        self.best_norm[self.members[which]] = norm[which]

    def start(self) -> np.ndarray:
        """p = z = M r: a fresh Krylov space from the present residual."""
        z, rz = self.preconditioned()
        while self.mark_breakdowns(rz) and self.coupled and self.active.any():
            z, rz = self.preconditioned()
        self.p[...] = z
        return rz
