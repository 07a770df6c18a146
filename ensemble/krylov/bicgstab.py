"""The stabilised biconjugate gradient method for many samples with nonsymmetric matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.krylov.device_scalars.bicgstab import FRESH, RHO, ROWS, SHADOW_NORM, BicgstabScalars
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Operator, Values
from ensemble.krylov._iteration import KrylovIteration
from ensemble.krylov._parameters import documented
from ensemble.krylov._solve import solve
from ensemble.krylov._system import LinearSystem, linear_system
from ensemble.krylov.elsewhere import on_every_library
from ensemble.krylov.host_scalars.bicgstab import BicgstabHostScalars
from ensemble.krylov.result import SolveResult


@explains_calls("bicgstab")
@on_every_library(symmetric=False)
@documented
def bicgstab(
    A: Operator,
    b: Values,
    *,
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

    Preconditioned from the right, ``A M (M^-1 x) = b``, so that the residual is the true one: a sample has converged
    when its 2-norm is at most ``max(rtol * norm(b), atol)``, which is recomputed from x to confirm it.
    Memory does not grow with the iterations: nine vectors, b, x and the best iterate counted [1]_, [2]_.

    An inner product that is nothing but the roundoff of its own sum ends a sample's recurrence; the sample then begins
    a new one from its present residual. Where that does not help either (a skew-symmetric or singular matrix, say), or
    a number is not finite, the sample is flagged ``breakdown``; the others finish. A true residual
    that misses the target begins a new recurrence, too. A sample whose residual can fall no further in the numbers'
    type ends as ``stagnated``, and one that does not converge returns its best iterate (see `cg` and `SolveResult`).

    {range of numbers}

    {complex}

    {other libraries}

    Parameters
    ----------
    {system}
    {x0}
    M : LinearOperator, shape (n, n), optional
        Preconditioner, an approximation of the inverse of A, the same in every iteration.
    {tolerances}
    max_iterations : int
        An iteration takes two products with A and two with M.
    coupling : {"independent", "ensemble"}
        "independent": each sample has coefficients of its own and the bits of its own scalar run; finished samples are
        frozen. "ensemble": all samples share their inner products, summed, as if they were one block-diagonal system;
        the iteration continues until every sample meets its own target.
    {run}

    Returns
    -------
    SolveResult
        A sample that converges in the first half of an iteration counts the whole.

    {raises}

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
    return solve(BicgstabIteration, system, max_iterations, compact, callback)


class BicgstabIteration(KrylovIteration):
    """One BiCGSTAB solve: direction p, v = A M p, t = A M r, and `shadow`, the fixed left vector."""

    vectors = ("b", "x", "r", "p", "v", "shadow")
    scratch = ("y", "t")
    multiplied = ("x", "y")
    many = ("x", "r", "p", "v", "shadow")
    parts = ("first_half", "second_half")  # many a solve ends in the middle of an iteration
    p: Array
    v: Array
    shadow: Array
    y: Array
    t: Array

    def __init__(self, system: LinearSystem) -> None:
        super().__init__(system)
        for name in ("p", "v", "shadow", "t"):
            setattr(self, name, empty_like(self.b))
        self.y = self.A.space.vector(self.b)
        for vector in (self.shadow, self.p):
            self.copy(self.active, self.r, vector)

    def first_half(self) -> None:
        """x += alpha M p, r -= alpha A M p."""
        y = self.precondition(self.p, self.y)
        self.A.apply(y, self.v)
        if self.scalars.step(self.shadow, y, self.v, self.x, self.r):
            self.verify()

    def second_half(self) -> None:
        """x += omega M r, r -= omega A M r; p = r + beta (p - omega v)."""
        z = self.precondition(self.r, self.y)
        self.A.apply(z, self.t)
        if self.scalars.stabilise(self.shadow, z, self.t, self.x, self.r):
            self.verify()
        self.scalars.direction(self.r, self.v, self.p, self.shadow)

    def verify(self) -> None:
        """Candidates by their true residuals, which t may hold between half iterations."""
        self.scalars.verify_convergence(self.residual(self.t), self.r, self.p, self.shadow)

    # --- scalars
    def host_scalars(self, max_iterations: int) -> BicgstabHostScalars:
        """alpha, omega, beta and rho as NumPy arrays."""
        return BicgstabHostScalars(self, max_iterations)

    def initial_rows(self) -> np.ndarray:
        """A recurrence that begins with shadow = p = r."""
        rows = np.zeros((ROWS, self.active.size))
        square = np.where(self.active, self.latest**2, 0.0)
        rows[RHO], rows[SHADOW_NORM], rows[FRESH] = square, np.sqrt(square), self.active
        return rows

    def device_scalars(self, state: tuple[Any, ...], rows: np.ndarray) -> BicgstabScalars:
        """alpha, omega, beta and rho as device arrays."""
        return BicgstabScalars(*state, rows=rows, eps=self.eps)
