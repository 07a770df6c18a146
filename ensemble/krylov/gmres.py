"""The generalised minimal residual method for many samples: one basis and one small least-squares problem for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ensemble._backend import asarray_like
from ensemble._check import integer
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.krylov.basis import scale
from ensemble._kernels.krylov.device_scalars.gmres import GmresScalars, initial_rows
from ensemble._kernels.krylov.vectors import take_samples
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Operator, Values
from ensemble.krylov._iteration import KrylovIteration, stop_requested
from ensemble.krylov._parameters import documented
from ensemble.krylov._solve import solve
from ensemble.krylov._system import LinearSystem, linear_system
from ensemble.krylov.elsewhere import on_every_library
from ensemble.krylov.host_scalars.gmres import GmresHostScalars
from ensemble.krylov.host_scalars.scalars import WORK
from ensemble.krylov.result import SolveResult
from ensemble.linalg import Identity


@explains_calls("gmres")
@on_every_library(symmetric=False)
@documented
def gmres(
    A: Operator,
    b: Values,
    *,
    restart: int = 30,
    flexible: bool = False,
    x0: Values | None = None,
    M: Operator | None = None,
    rtol: Values | None = None,
    atol: Values = 0.0,
    max_iterations: int = 1000,
    coupling: str = "independent",
    compact: bool = True,
    callback: Callable[[int, np.ndarray], Any] | None = None,
) -> SolveResult:
    """Solve ``A x = b`` for every sample at once, A nonsingular in each and not necessarily symmetric.

    Preconditioned from the right, ``A M (M^-1 x) = b``, so that the residual is the true one and never grows: a sample
    has converged when its 2-norm is at most ``max(rtol * norm(b), atol)``, recomputed from x to confirm it
    [1]_. The basis is made by the classical Gram-Schmidt process in two fused passes over it, and once more for the
    samples whose vector lost more than 30 % of its length, which keeps it orthogonal to roundoff [2]_.

    A sample that meets its target, or whose Krylov space is exhausted (lucky breakdown: the solution lies in it), stops
    there and waits for the others' cycle to end. A space that is exhausted without the solution (a singular matrix), or
    a number that is not finite, flags the sample ``breakdown`` with the best x of its cycle; the others finish. Where
    the least-squares problems of cycles make the residual fall tenfold and the true one does not halve, it can fall no
    further in the numbers' type: the sample ends as ``stagnated``. A sample that does not converge returns its best
    iterate (see `SolveResult`).

    {range of numbers}

    {complex}

    {other libraries}

    Parameters
    ----------
    {system}
    restart : int, at least 1
        Length of a cycle. The basis holds ``restart + 1`` vectors of n values per sample, twice that if `flexible`.
    flexible : bool
        Allow an M that changes from one application to the next (an inner solve, say) [3]_: its results are kept as a
        second basis, and the application at the end of a cycle is saved.
    {x0}
    M : LinearOperator, shape (n, n), optional
        Preconditioner, an approximation of the inverse of A.
    {tolerances}
    max_iterations : int
        Of each sample, over all cycles; an iteration takes one product with A and one with M.
    coupling : {"independent", "ensemble"}
        "independent": each sample has coefficients of its own and the bits of its own scalar run. "ensemble": all
        samples share their inner products, summed, as if they were one block-diagonal system; the iteration continues
        until every sample meets its own target.
    {run}

    Returns
    -------
    SolveResult
        Within a cycle the history holds the norms of the least-squares problem, at its end the true ones.

    {raises}

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
    restart = min(restart, max(system.A.shape[0], 1), max(max_iterations, 1))
    make = partial(GmresIteration, restart=restart, flexible=flexible)
    return solve(make, system, max_iterations, compact, callback)


CYCLE_WORK = 2 * 4
"""Multiply-adds of a cycle by the square of its length and the rows of a tile, about."""


class GmresIteration(KrylovIteration):
    """One GMRES solve: basis V of a cycle and, for the flexible method, Z = M V.

    All samples' cycles begin together; a sample that stops early waits for the end of the cycle, or for compaction.
    """

    scratch: tuple[str, ...] = ("w",)
    parts = ("expand",)
    restart: int
    w: Array
    u: Array = None  # on a device the newest basis vector, where every iteration finds it

    def __init__(self, system: LinearSystem, restart: int, flexible: bool) -> None:
        super().__init__(system)
        self.restart = restart
        self.flexible = flexible and not isinstance(self.M, Identity)
        self.w = empty_like(self.b)
        self.V: Array = empty_like(self.b, (restart + 1, *self.b.shape))
        self.Z: Array = empty_like(self.b, (restart, *self.b.shape)) if self.flexible else None

    def expand(self) -> None:
        """The next basis vector from A M v, and the next column of R."""
        v, z, w = self.scalars.arnoldi_vectors()
        z = self.precondition(v, z, np.ones(self.b.shape[1]))  # the length of a basis vector; a frozen one is zero
        if self.flexible:
            self.scalars.keep(z, self.Z)
        self.A.apply(z, w)
        self.scalars.expand(self.V, w, self.u)

    def update(self, ended: bool) -> None:
        """x += M V y, or Z y, and true residuals: of all samples at the end of a cycle, else of those that wait."""
        if not self.scalars.solve(ended):
            return
        if self.flexible:
            self.scalars.add_basis(self.Z, self.x)
        else:
            self.scalars.combine_basis(self.V, self.w)
            self.scalars.add(self.precondition(self.w, self.r), self.x)
        self.scalars.verify_convergence(self.residual(self.r), ended)

    def verify(self) -> None:
        """Update the samples that wait for the end of the cycle."""
        self.update(ended=False)

    def end_cycle(self) -> None:
        """Update all samples and restart."""
        self.update(ended=True)
        self.scalars.begin_cycle(self.V, self.r, self.u)

    def normalise_residual(self, norm: np.ndarray) -> None:
        """The first basis vector: the residual at length one."""
        self.V[0, :, :] = self.r
        scale(self.coefficients(1.0 / norm, self.active), self.V[0, :, :])

    def stop(self, answer: Any) -> None:
        """As every method's; x takes up what the cycle has found."""
        if stop_requested(answer):
            self.update(ended=True)
        super().stop(answer)

    def vectors_of_many(self) -> int:
        """Those of half a basis, and w, r and x; 0 where an interrupt would wait long for the end of a cycle."""
        return self.restart // 2 + 3 if CYCLE_WORK * self.restart**2 * self.b.shape[0] <= WORK else 0

    # --- compaction
    def compact(self, kept: np.ndarray) -> None:
        """As every method's, the basis as far as it is made."""
        super().compact(kept)
        self.V = self._compacted(self.V, kept, self.columns + 1)
        if self.flexible:
            self.Z = self._compacted(self.Z, kept, self.columns)

    def _compacted(self, basis: Array, kept: np.ndarray, used: int) -> Array:
        new = empty_like(self.x, (basis.shape[0], *self.x.shape))
        for k in range(used):
            take_samples(basis[k, :, :], asarray_like(kept, self.x), new[k, :, :])
        return new

    # --- scalars
    def host_scalars(self, max_iterations: int) -> GmresHostScalars:
        """Rotations, triangle and right-hand side as NumPy arrays."""
        return GmresHostScalars(self, max_iterations)

    def initial_rows(self) -> np.ndarray:
        """A cycle whose first basis vector is made, with vectors at fixed places for operators to read and write."""
        norm = np.sqrt(np.where(self.active, self.latest**2, 0.0))
        self.normalise_residual(norm)
        self.u, self.scratch = empty_like(self.w), ("u", "w")
        return initial_rows(self.restart, norm)

    def device_scalars(self, state: tuple[Any, ...], rows: np.ndarray) -> GmresScalars:
        """Rotations, triangle and right-hand side as device arrays."""
        self.u[...] = self.V[self.columns, :, :]
        return GmresScalars(
            *state, rows=rows, restart=self.restart, columns=self.columns, eps=self.eps, places=(self.u, self.r, self.w)
        )
