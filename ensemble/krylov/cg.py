"""The preconditioned conjugate gradient method for many samples: each by itself, or all in one Krylov space."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.krylov.device_scalars.cg import CgScalars
from ensemble._kernels.krylov.program_scalars import CgProgramScalars
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Operator, Values
from ensemble.krylov._iteration import KrylovIteration
from ensemble.krylov._parameters import documented
from ensemble.krylov._solve import solve
from ensemble.krylov._system import LinearSystem, linear_system
from ensemble.krylov.elsewhere import on_every_library
from ensemble.krylov.host_scalars.cg import CgHostScalars
from ensemble.krylov.result import SolveResult


@explains_calls("cg")
@on_every_library(symmetric=True)
@documented
def cg(
    A: Operator,
    b: Values,
    *,
    x0: Values | None = None,
    M: Operator | None = None,
    flexible: bool = False,
    rtol: Values | None = None,
    atol: Values = 0.0,
    max_iterations: int = 1000,
    coupling: str = "independent",
    compact: bool = True,
    callback: Callable[[int, np.ndarray], Any] | None = None,
) -> SolveResult:
    """Solve ``A x = b`` for every sample at once, A symmetric positive definite in each.

    A sample has converged when the 2-norm of its residual is at most ``max(rtol * norm(b), atol)``; the residual is
    recomputed from x to confirm it. A sample that is not finite or not positive definite is flagged
    ``breakdown``; the others finish [1]_, [2]_.

    Where the true residual misses the target, the sample restarts from that residual with a new direction.
    A sample whose residual can fall no further in the numbers' type ends as ``stagnated``: twice in succession its
    recurrence fell to the target, or tenfold, and its true residual did not halve. A sample that does not converge
    returns its best iterate (see `SolveResult`).

    {hermitian}

    {other libraries}

    Parameters
    ----------
    {system}
    {x0}
    M : LinearOperator, shape (n, n), optional
        Preconditioner, an approximation of the inverse of A: a `Hierarchy`, a `Diagonal`.
    flexible : bool
        Allow an M that changes from one application to the next (an inner solve, say): the new direction is made
        orthogonal to the last one as it is (Polak and Ribiere's formula) [3]_, for one more vector and inner product.
    {tolerances}
    max_iterations : int
    coupling : {"independent", "ensemble"}
        "independent": each sample has step lengths of its own and the bits of its own scalar run; finished samples are
        frozen. "ensemble": all samples share one inner product, their sum (eq. 4 of [2]_), hence one iteration count;
        the iteration continues until every sample meets its own target, so a singular sample holds up all of them.
    {run}

    Returns
    -------
    SolveResult

    {raises}

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
    system = linear_system("cg", A, b, x0, M, rtol, atol, max_iterations, coupling)
    return solve(partial(CgIteration, flexible=flexible), system, max_iterations, compact, callback)


class CgIteration(KrylovIteration):
    """One CG solve: direction p, and z, which is M r and A p by turns; the flexible method needs A p later, as q.

    An iteration leads from one residual to the next: no application of M follows the last one.
    """

    vectors: tuple[str, ...] = ("b", "x", "r", "p")
    scratch = ("z",)
    multiplied = ("x", "p")
    many = ("x", "r", "p")
    has_program = True
    p: Array
    z: Array
    q: Array = None

    def __init__(self, system: LinearSystem, flexible: bool) -> None:
        super().__init__(system)
        self.p, self.z = self.A.space.vector(self.b), empty_like(self.b)
        if flexible:
            self.q, self.vectors = empty_like(self.b), (*self.vectors, "q")
            self.has_program = False

    def iterate(self) -> None:
        """p = M r + beta p, x += alpha p, r -= alpha A p."""
        z, rz = self.scalars.precondition_dot(self, self.r, self.z)
        if not self.scalars.direction(z, rz, self.q, self.p):
            return
        q = self.z if self.q is None else self.q
        pq = self.scalars.apply_dot(self.A, self.p, q)
        if self.scalars.step(self.p, q, self.x, self.r, pq):
            self.verify()

    def verify(self) -> None:
        """Candidates by their true residuals, which z may hold between iterations."""
        self.scalars.verify_convergence(self.residual(self.z), self.r)

    def end_stage(self) -> None:
        """Keep the iterates before the last step that the next direction would keep."""
        self.scalars.keep_previous(self.p)

    def tile_of_many(self, begun: bool = False) -> int:
        """As of every method; none of the flexible one."""
        return 0 if self.q is not None else super().tile_of_many(begun)

    # --- scalars
    def host_scalars(self, max_iterations: int) -> CgHostScalars:
        """alpha, beta and r . z as NumPy arrays."""
        return CgHostScalars(self, max_iterations)

    def initial_rows(self) -> np.ndarray:
        """r . z and the last step length: an infinite r . z makes the first beta zero."""
        if self.q is not None:
            self.q[...] = 0.0
        rows = np.zeros((2, self.active.size))
        rows[0] = np.inf
        return rows

    def device_scalars(self, state: tuple[Any, ...], rows: np.ndarray) -> CgScalars:
        """alpha, beta and r . z as device arrays."""
        return CgScalars(*state, rows=rows)

    def program_scalars(self, state: tuple[Any, ...], rows: np.ndarray) -> CgProgramScalars:
        """alpha, beta and r . z as arrays of a program."""
        return CgProgramScalars(*state, rows=rows)
