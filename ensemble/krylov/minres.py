"""The minimal residual method for symmetric matrices, definite or not: each sample by itself, or all in one space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.krylov.minres import lanczos_step, minres_update
from ensemble._kernels.krylov.vectors import dot
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Operator, Values
from ensemble.krylov._iteration import KrylovIteration
from ensemble.krylov._parameters import documented
from ensemble.krylov._solve import solve
from ensemble.krylov._system import LinearSystem, linear_system
from ensemble.krylov.elsewhere import on_every_library
from ensemble.krylov.host_scalars.minres import MinresHostScalars
from ensemble.krylov.result import SolveResult
from ensemble.linalg import Identity


@explains_calls("minres")
@on_every_library(symmetric=True)
@documented
def minres(
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
    """Solve ``A x = b`` for every sample at once, A symmetric in each, definite or not.

    Saddle points, shifted matrices, Helmholtz problems. The norm ``r^T M r`` of the residual falls in every iteration
    [1]_; the stopping test is on the 2-norm, as in `cg`, and the residual is recomputed from x to confirm it. A is not
    checked for symmetry: of an unsymmetric matrix the recomputed residual does not agree, and the sample ends as
    ``stagnated`` or at `max_iterations`.

    A singular system that has a solution is solved. One without a solution ends as ``stagnated`` or at
    `max_iterations`, with an x for which ``r^T M r`` is the least. A sample that is not finite, or for which M is not
    positive definite, is flagged ``breakdown``; the others finish. On a device vectors stay there, and each iteration
    fetches its inner products.

    {range of numbers}

    {hermitian}

    {other libraries}

    Parameters
    ----------
    {system}
    {x0}
    M : LinearOperator, shape (n, n), optional
        Preconditioner, symmetric positive definite, whatever A is: for a saddle point the block diagonal matrix of an
        inverse of its first block and one of the Schur complement.
    {tolerances}
    max_iterations : int
    coupling : {"independent", "ensemble"}
        As in `cg`: samples with the bits of their own scalar runs, or inner products summed over the samples.
    {run}

    Returns
    -------
    SolveResult

    {raises}

    References
    ----------
    .. [1] Paige, Saunders (1975), SIAM J. Numer. Anal. 12, 617-629.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.gallery import poisson
    >>> from ensemble.linalg import Diagonal
    >>> indefinite = poisson((10,)) - Diagonal(np.full(10, 1.0))
    >>> minres(indefinite, np.ones(10))
    SolveResult(minres: 1 of 1 samples converged, 5 iterations)
    """
    system = linear_system("minres", A, b, x0, M, rtol, atol, max_iterations, coupling)
    return solve(MinresIteration, system, max_iterations, compact, callback)


class MinresIteration(KrylovIteration):
    """One MINRES solve: Lanczos vectors v and u, the present and the last; z, which is M v; directions w and p.

    Lanczos vectors are not normalised: a product with M is needed for their length.
    """

    vectors: tuple[str, ...] = ("b", "x", "r", "v", "u", "w", "p")
    scratch = ("q",)
    many = ("x", "r", "v", "u", "w", "p")
    stays_on_device = False
    v: Array
    u: Array
    w: Array
    p: Array
    q: Array
    z: Array

    def __init__(self, system: LinearSystem) -> None:
        super().__init__(system)
        self.plain = isinstance(self.M, Identity)
        for name in ("v", "u", "w", "p", "q"):
            setattr(self, name, empty_like(self.b))
        self.z = self.v if self.plain else empty_like(self.b)
        if not self.plain:
            self.vectors = (*self.vectors, "z")

    def iterate(self) -> None:
        """Extend the Lanczos basis by u, and minimise over it."""
        scalars = self.scalars
        new = scalars.replaced
        begins = new.any()
        if begins:
            self.copy(new, self.r, self.v)
            self.z, squares = self.precondition_dot(self.v, self.v if self.plain else self.z)
            if not scalars.begin(squares):
                return
        self.z = self.v if self.plain else self.z
        inner = self.A.apply_dot(self.z, self.q)[1]
        if begins:
            scalars.measure(dot(self.q, self.q, None), new)
        h = scalars.lanczos(inner)
        if h is None:
            return
        lanczos_step(self.coefficients(h, self.active), self.q, self.v, self.u)
        next_z, squares = self.precondition_dot(self.u, self.q)
        h = scalars.rotate(squares)
        if h is None:
            return
        squares = minres_update(self.coefficients(h, self.active), self.z, self.w, self.p, self.x, self.u, self.r)
        self.v, self.u, self.w, self.p = self.u, self.v, self.p, self.w
        if not self.plain:
            self.z, self.q = next_z, self.z
        if scalars.step(squares):
            self.verify()

    def true_squares(self) -> Array:
        """r . M r per sample, with the residual recomputed from x."""
        r = self.residual(empty_like(self.x))
        return self.precondition_dot(r, r if self.plain else empty_like(r))[1]

    def verify(self) -> None:
        """Candidates by their true residuals, which q may hold between iterations."""
        self.scalars.verify_convergence(self.residual(self.q), self.r)

    def host_scalars(self, max_iterations: int) -> MinresHostScalars:
        """Lanczos' coefficients and rotations as NumPy arrays."""
        return MinresHostScalars(self, max_iterations)
