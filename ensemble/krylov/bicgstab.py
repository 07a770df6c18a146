"""The stabilised biconjugate gradient method for many samples with nonsymmetric matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._compile.memory import empty_like
from ensemble._kernels.krylov import bicgstab as kernels
from ensemble._kernels.krylov.vectors import cg_update
from ensemble.krylov._device import runs_on_device
from ensemble.krylov._device_bicgstab import ResidentBicgstab
from ensemble.krylov._run import Run, host
from ensemble.krylov._system import LinearSystem, linear_system
from ensemble.krylov.result import SolveResult, Status


def bicgstab(
    A: Any,
    b: Any,
    *,
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

    Preconditioned from the right, ``A M (M^-1 x) = b``, so that the residual is the true one: a sample has converged
    when its 2-norm is at most ``max(rtol * norm(b), atol)``, which is computed anew from x before it is believed.
    Memory does not grow with the iterations: nine vectors, b, x and the best iterate counted [1]_, [2]_.

    An inner product that is nothing but the roundoff of its own sum ends a sample's recurrence; the sample then begins
    a new one from its present residual. Where that does not help either (a skew-symmetric or singular matrix, say), or
    a number is not finite, the sample is flagged ``breakdown``; the others finish. A claim of convergence that the true
    residual disproves begins a new recurrence, too; a sample whose residual can fall no further in the numbers' type
    ends as ``stagnated``, and one that does not converge returns its best iterate (see `cg` and `SolveResult`).

    Parameters
    ----------
    A : CrsMatrix, SciPy sparse matrix or LinearOperator, shape (n, n)
    b : Ensemble or array, shape (n,)
        An array of shape (n, 1) is taken for its column. Where b is zero so is x, whatever `x0` is.
    x0 : Ensemble or array, shape (n,), optional
        Starting guess; zero by default.
    M : LinearOperator, shape (n, n), optional
        Preconditioner, an approximation of the inverse of A, the same in every iteration.
    rtol, atol : float or array, shape (n_samples,), dimensionless and in units of b
        By default ``rtol`` is 1e-8, and 1e-5 where the vectors are float32.
    max_iterations : int
        An iteration takes two products with A and two with M.
    coupling : {"independent", "ensemble"}
        "independent": each sample has coefficients of its own and the bits of its own scalar run; finished samples are
        frozen. "ensemble": all samples share their inner products, summed, as if they were one block-diagonal system;
        the iteration goes on until every sample meets its own target.
    compact : bool
        Take finished samples out of vectors and matrices when at least half are done and more than a few iterations
        lie ahead. Changes no result.
    callback : callable, optional
        Called as ``callback(iteration, residual_norms)`` after each iteration, norms of shape (n_samples,). Where it
        returns True the samples that still run end as ``stopped``.

    Returns
    -------
    SolveResult
        A sample that converges in the first half of an iteration counts the whole.

    Raises
    ------
    ValueError
        If shapes or numbers of samples do not fit, or a tolerance is negative.
    TypeError
        If A is no operator, or numbers are complex.

    References
    ----------
    .. [1] van der Vorst (1992), SIAM J. Sci. Stat. Comput. 13, 631-644.
    .. [2] Saad (2003), Iterative Methods for Sparse Linear Systems, algorithm 7.7.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import diags_array
    >>> A = diags_array([-1.5, 2.0, -0.5], offsets=[-1, 0, 1], shape=(10, 10)).tocsr()
    >>> result = bicgstab(A, np.ones(10), rtol=1e-10)
    >>> bool(np.allclose(A @ result.x, 1.0))
    True
    """
    system = linear_system("bicgstab", A, b, x0, M, rtol, atol, max_iterations, coupling)
    run = _Run(system)
    narrow = compact and not run.coupled
    if runs_on_device(run, max_iterations, callback):
        ResidentBicgstab(run, max_iterations, narrow).solve()
    else:
        run.solve(max_iterations, narrow, callback)
    return run.result()


def kept_at(iterations: np.ndarray) -> np.ndarray:
    """Whether an iterate is kept where it is the best of those: every sixteenth, and the first by powers of two.

    All samples have a pass over their vectors in common, because they begin together.
    """
    return (iterations % 16 == 0) | ((iterations & (iterations - 1)) == 0)


class _Run(Run):
    """One BiCGSTAB solve. `shadow` is the fixed left vector, `rho` its product with the residual."""

    vectors = ("b", "x", "r", "p", "v", "shadow")
    scratch = ("y", "t")
    values = ("rho", "shadow_norm", "fresh")
    p: Any
    v: Any
    shadow: Any
    y: Any
    t: Any

    def __init__(self, system: LinearSystem) -> None:
        super().__init__(system)
        for name in ("p", "v", "shadow", "y", "t"):
            setattr(self, name, empty_like(self.b))
        n_samples = self.members.size
        self.rho, self.shadow_norm = np.zeros(n_samples), np.zeros(n_samples)
        self.fresh = self.active  # whether the sample's recurrence has just begun

    def solve(self, max_iterations: int, compact: bool, callback: Any) -> None:
        """Iterate until no sample runs."""
        iteration = 0
        with np.errstate(all="ignore"):  # a broken sample's arithmetic is its own affair
            self.begin(self.active, self.latest**2)
            while self.active.any() and iteration < max_iterations:
                iteration += 1
                running = self.active
                self.iterations[self.members[running]] = iteration
                norm = self._iterate()
                self.record(running, norm)
                if callback is not None:
                    self.stop(callback(iteration, self.outside(self.latest)))
                if compact and self.should_compact(norm, iteration, self.active):
                    self.compact(np.flatnonzero(self.active))

    def begin(self, which: np.ndarray, square: np.ndarray) -> None:
        """A new recurrence from the present residual, whose square is given: shadow = p = r."""
        self.copy(which, self.r, self.shadow)
        self.copy(which, self.r, self.p)
        square = self.together(square)
        self.rho = np.where(which, square, self.rho)
        self.shadow_norm = np.where(which, np.sqrt(square), self.shadow_norm)

    def _usable(self, inner: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """Whether inner products hold more than the roundoff of their own sums; `norms`: of one vector by the other."""
        return np.isfinite(inner) & (np.abs(inner) > self.eps * norms)

    def _iterate(self) -> np.ndarray:
        """One iteration of all running samples; returns the residual norms it ends with."""
        count = self.active.sum()
        self.replaced = np.zeros_like(self.active)
        y = self.precondition(self.p, self.y)
        self.A.apply(y, self.v)
        rv, vv = (host(d) for d in kernels.dot_and_square(self.shadow, self.v))
        self._eject(rv)
        rv, vv = self.together(rv), self.together(vv)
        good = self.active & self._usable(rv, self.shadow_norm * np.sqrt(vv)) & (not self._lost(count))
        alpha = np.where(good, self.rho / rv, 0.0)
        square = host(cg_update(self.coefficients(alpha, good), y, self.v, self.x, self.r))
        self._eject(square)
        norm = self._check(np.sqrt(square))
        if not self.active.any():
            return norm
        # the second half: the step along A M r that makes the residual smallest
        z = self.precondition(self.r, self.y)
        self.A.apply(z, self.t)
        ts, tt = (host(d) for d in kernels.dot_and_square(self.r, self.t))
        self._eject(ts)
        ts, tt = self.together(ts), self.together(tt)
        steep = self.active & self._usable(ts, np.sqrt(self.together(norm**2) * tt))
        omega = np.where(steep, ts / tt, 0.0)
        still = self.active
        moving = self.coefficients(omega, steep)
        square, rho = (host(d) for d in kernels.bicgstab_update(moving, self.shadow, z, self.t, self.x, self.r))
        self._eject(square)
        norm = np.where(still, self._check(np.sqrt(square)), norm)
        stuck = self.active & self.fresh & ~good & ~steep  # neither half moved from a recurrence as new as can be
        self.finish(stuck, Status.breakdown)
        self._turn(alpha, omega, good & steep & (not self._lost(count)), rho, norm)
        due = kept_at(self.iterations[self.members])
        self.keep(self.active & due & (norm < self.best_norm[self.members]), norm)
        return norm

    def _check(self, norm: np.ndarray) -> np.ndarray:
        before = self.replaced  # in the first half of the iteration
        checked = self.verify_convergence(self.active & (norm <= self.check[self.members]), norm, self.t)
        self.replaced = self.replaced | before
        return checked

    def _lost(self, count: int) -> bool:
        """Whether coupled samples hold coefficients from sums that a sample taken out since was part of."""
        return bool(self.coupled and self.active.sum() < count)

    def _eject(self, values: np.ndarray) -> None:
        """Take out the running samples that are no longer finite."""
        self.finish(self.active & ~np.isfinite(values), Status.breakdown)

    def _turn(self, alpha: np.ndarray, omega: np.ndarray, sound: np.ndarray, rho: np.ndarray, norm: np.ndarray) -> None:
        """The next direction; a new recurrence for the samples whose old one has come to its end."""
        rho, square = self.together(rho), self.together(norm**2)
        beta = (rho / self.rho) * (alpha / omega)
        goes_on = self.active & sound & ~self.replaced & np.isfinite(beta) & (beta != 0.0)
        goes_on = goes_on & self._usable(rho, self.shadow_norm * np.sqrt(square))
        factor, step = self.coefficients(beta, goes_on), self.coefficients(omega, goes_on)
        kernels.bicgstab_direction(factor, step, self.r, self.v, self.p)
        self.rho = np.where(goes_on, rho, self.rho)
        self.fresh = self.active & ~goes_on
        if self.fresh.any():
            self.begin(self.fresh, norm**2)
