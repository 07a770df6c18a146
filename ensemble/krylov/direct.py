"""`direct`: factorisation, solution and refinement of many systems, and pivoting for the samples that need it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._check import floating, kind_of, message, one_of, require, require_type, samples_text
from ensemble._kernels.sparse.row_sums import SERIAL
from ensemble._keywords import explains_calls
from ensemble._typing import DType
from ensemble.krylov._complex import from_interleaved, has_complex, interleaved, real_matrix, require_numpy
from ensemble.krylov._conditions import Conditions, scaled_values, warn_of_conditions
from ensemble.krylov._direct_solution import REFINEMENTS, DirectSolution, solved
from ensemble.krylov._exchanged_solution import (
    ConditionsByKnown,
    conditions_of,
    exchanged_solutions,
    solved_again,
)
from ensemble.krylov._system import LinearSystem, as_array, common_samples, linear_system, one_column
from ensemble.krylov.elsewhere import on_every_library
from ensemble.krylov.result import SolveResult, Status
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs
from ensemble.linalg.factorizations.complex_factors import ComplexFactors, complex_factors
from ensemble.linalg.factorizations.factorization import Factorization, planned
from ensemble.linalg.factorizations.known_sequences import KnownSolutions
from ensemble.linalg.factorizations.orderings import ORDERINGS, checked_order
from ensemble.linalg.factorizations.sequences import takes_exchanges_first
from ensemble.linalg.linear_operator import LinearOperator
from ensemble.linalg.operators import is_shared, samples_of, set_of, wrap_like
from ensemble.linalg.symmetric import SymmetricCrsMatrix
from ensemble.scalar import Ensemble

OUTCOMES = np.array([Status.stagnated, Status.converged, Status.breakdown], dtype=object)
"""The status of a sample whose residual is large, small, not finite."""

MANY = 8
"""Samples from which on `summary` says that they were solved one by one."""

OF_SAMPLES = (
    "status", "iterations", "residual_norms", "target", "true_residual_norms", "backward_errors", "repaired", "alone"
)  # fmt: skip
"""Attributes of a result that are arrays with one entry, or column, per sample."""


@dataclass(frozen=True, repr=False)
class DirectResult(SolveResult):
    """Outcome of `direct`: a `SolveResult` whose iterations are refinements.

    Attributes
    ----------
    backward_errors : array, shape (n_samples,)
        The largest ``|r_i| / (sum_j |a_ij| max_j |x_j| + |b_i|)`` over the rows.
    repaired : array of bool, shape (n_samples,)
        Samples that were solved with exchanges of rows or columns.
    alone : array of bool, shape (n_samples,)
        Samples that shared their factorisation with no other in this call.
    """

    backward_errors: np.ndarray | None = None
    repaired: np.ndarray | None = None
    conditions: Conditions | None = None
    alone: np.ndarray | None = None

    @property
    def rcond(self) -> np.ndarray:
        """Estimates of ``1 / (|A|_1 |A^-1|_1)``, shape (n_samples,): 0 for a singular sample.

        By Hager's and Higham's method: an upper bound of the true number, rarely above three times it. The first
        reading factorises A again. NaN for a sample whose matrix was not finite, or whose values in A were changed in
        place since the solve.
        """
        if self.conditions is None:
            return np.full(self.status.shape, np.nan)
        return self.conditions.found()

    def _advice(self, failed: np.ndarray) -> str:
        """That of a `SolveResult`, or of matrices that are nearly singular."""
        known = self.conditions
        nearly = np.empty(0) if known is None else np.intersect1d(known.nearly_singular, failed)
        if known is None or not nearly.size:
            return super()._advice(failed)
        text = f"nearly singular ({samples_text(nearly)}; rcond {known.equilibrated[nearly].min():.1e})"
        return f" A is {text}: fix its null space, or use minres where A is symmetric and b consistent."

    @property
    def summary(self) -> str:
        """That of a `SolveResult`, how many samples were solved with pivoting, and what would take less time."""
        count = 0 if self.repaired is None else int(self.repaired.sum())
        text = super().summary + (f"; {count} solved with pivoting" if count else "")
        own = 0 if self.alone is None or self.alone.size < MANY else int(self.alone.sum())
        if 2 * own > self.status.size:
            text += f', {own} of them one by one: matching="mean" may take less time'
        nearly, n = np.empty(0) if self.conditions is None else self.conditions.nearly_singular, self.status.size
        return text + (f"; nearly singular: {samples_text(nearly, of=n)}" if nearly.size else "")


@explains_calls("direct")
@on_every_library(symmetric=False)
def direct(
    A: Any,
    b: Any,
    *,
    rtol: Any = 1e-12,
    kind: str = "auto",
    ordering: Any = "auto",
    matching: str = "graph",
    dtype: DType | None = None,
    factorization: Factorization | None = None,
) -> DirectResult:
    """Solve ``A x = b`` for every sample by a sparse factorisation.

    The matrices of all samples are factorised together without exchanges, and their solutions refined while the
    residual halves [1]_. A sample whose backward error stays above 1e-13 (450 units of rounding) takes pivots by its
    own numbers, together with the samples that take the same ones, and is marked in `repaired`. Where the diagonal is
    not stored in full this comes first. What is left is solved with ``scipy.sparse.linalg.splu``. Pivots of a sample's
    own depend on its zeros and on entries far below the others of their row, so that samples that differ by some
    percent, or by the units of rows and columns, mostly share them. Where each sample has others, `summary` tells it:
    then ``matching="mean"``, which couples the samples, takes less time. On graphs of 32,768 entries and more a sample
    that needs exchanges gets its exact solution, rounded once, by pivots of any sample, and no iterations are counted:
    residuals in about twice the precision correct it until no component would round otherwise [2]_. A sample has
    converged when its backward error is at most 1e-13, or its residual norm at most ``rtol * norm(b)``: an
    ill-conditioned matrix allows the first alone. One that is singular to working precision is not called converged
    by its backward error, unless changes of A and b by rounding leave three digits of every component of x. One that
    converged and whose largest components such changes move by more than a hundredth is named by a ``LinAlgWarning``.
    Where the factorisations of all samples would take more than 2 GiB, samples are solved part by part, and the
    result is the same.

    Of a `DistributedCrsMatrix` each rank gathers the whole system, solves it, and keeps its rows of x: for coarse
    problems, and where nothing else converges. Time and memory are those of one process.

    Complex matrices have complex factors; residuals, backward errors and exchanges are those of the real system of
    twice the size. ``kind="ldlt"`` is for Hermitian matrices then, ``matching="mean"`` for the real system: both
    factorise the latter, with about twice the operations.

    Arrays of PyTorch, JAX and other libraries on the CPU are solved by NumPy's kernels, with derivatives by A and b;
    those of a sample that does not converge are NaN.

    Parameters
    ----------
    A : CrsMatrix, SymmetricCrsMatrix, DistributedCrsMatrix or SciPy sparse matrices, shape (n, n)
        A list has one matrix per sample.
    b : Ensemble or array, shape (n,)
    rtol : float, or one per sample, dimensionless
        Refinement also goes on while the residual norm is above ``rtol * norm(b)``.
    kind, ordering, matching
        Those of `Factorization`.
    dtype : data type, optional
        Of the factorisation: "float32" halves its memory and nearly its time, and takes some refinements more, in the
        type of A and b.
    factorization : Factorization, optional
        One of the same graph, whose order and places are taken: `Factorization.update`. The other options are then its.

    Returns
    -------
    DirectResult
        `iterations` counts refinements. The status is "breakdown" for a sample that is singular or not finite.

    Raises
    ------
    ValueError
        If A is not square or structurally singular, or the shapes or samples do not fit.
    TypeError
        If A is no sparse matrix, or complex numbers are in CuPy's arrays or come with a `factorization`.

    References
    ----------
    .. [1] Higham (2002), Accuracy and Stability of Numerical Algorithms, 2nd ed., chapter 12.
    .. [2] Ogita, Rump, Oishi (2005), SIAM J. Sci. Comput. 26, 1955-1988.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.gallery import poisson
    >>> from ensemble.krylov import direct
    >>> direct(poisson((10,), n_samples=3), np.ones(10))
    DirectResult(direct: 3 of 3 samples converged, 0 iterations)
    """
    known, names = None, type(kind) is type(ordering) is type(matching) is str
    if factorization is None and dtype is None and names and (kind, ordering, matching) == ("auto", "auto", "graph"):
        known = solved_again(A, b, rtol)
        if known is not None and known.found.is_plain:
            return _result_of_known(known, A, b)
    A = CrsMatrix.from_scipy(A) if isinstance(A, list | tuple) else A
    b = as_array(b, "direct", "b")
    if isinstance(A, LinearOperator) and A.space is not SERIAL:
        options = {"rtol": rtol, "kind": kind, "ordering": ordering, "matching": matching, "dtype": dtype}
        return _gathered_solution(A, b, factorization, options)
    if has_complex(A, b):
        options = {"rtol": rtol, "ordering": ordering, "matching": matching, "dtype": dtype}
        return _complex_solution(A, b, kind, factorization, options)
    if factorization is not None:
        require_type(factorization, Factorization, "direct", "factorization", "be a Factorization")
        if factorization.dtype.kind == "c":
            advice = "F.solve(A, b) takes complex factors."
            raise TypeError(message("direct", "factorization", "be real", factorization.dtype, advice))
    return _solution(A, b, rtol, kind, ordering, matching, dtype, factorization, known)


def _solution(
    A: Any, b: Any, rtol: Any, kind: str, ordering: Any, matching: str, dtype: DType | None, factorization: Any,
    known: KnownSolutions | None = None,
) -> DirectResult:  # fmt: skip
    """The solution of real systems, by a factorisation that is kept or, with one of `ComplexFactors`, by such ones.

    `known` is what sequences of pivots that were met have found for all samples.
    """
    symmetric = isinstance(A, SymmetricCrsMatrix)
    system = linear_system("direct", A, b, None, None, rtol, 0.0, REFINEMENTS, "independent")
    matrix = as_crs(system.A)
    if matrix is NotImplemented:
        advice = "Give a CrsMatrix, a SymmetricCrsMatrix or a SciPy sparse matrix."
        raise TypeError(message("direct", "A", "be a sparse matrix", kind_of(A), advice))
    kind = "ldlt" if symmetric and kind == "auto" else kind
    F, number = factorization, system.b.dtype if dtype is None else floating(dtype, "direct", "dtype")
    own_type = number if isinstance(number, np.dtype) else np.dtype(str(number).split(".")[-1])
    scaled, unit = scaled_values(matrix, own_type if F is None else F.dtype)
    if F is None:
        F = planned(scaled, kind=kind, ordering=ordering, matching=matching, dtype=number)
    own = factorization is None or isinstance(factorization, ComplexFactors)
    default = own and matching == "graph" and isinstance(ordering, str) and ordering == "auto"
    plain = default and F.dtype == np.float64 and not F.plan.symmetric and isinstance(system.b, np.ndarray)
    first = plain and takes_exchanges_first(matrix.graph)
    solution = solved(system, matrix, scaled, unit, F, partial(exchanged_solutions, known=known), first)
    return _result(solution, system, Conditions(solution, matrix, F, conditions_of))


def _gathered_solution(A: Any, b: Any, factorization: Any, options: dict[str, Any]) -> DirectResult:
    """The solution where rows lie over processes: each solves the whole system and keeps its rows."""
    space, n_local, b = A.space, A.local_shape[0], one_column(b)
    if not hasattr(A, "gathered"):
        advice = "Give a matrix with entries."
        raise TypeError(message("direct", "A", "be a sparse matrix", kind_of(A), advice))
    wanted, order = "be None for a matrix over ranks", options["ordering"]
    require(factorization is None, "direct", "factorization", wanted, repr(factorization), "Leave it out.")
    require(isinstance(order, str), "direct", "ordering", "be a name for a matrix over ranks", kind_of(order))
    common_samples("direct", n_local, {"b": samples_of(b)}, A=A)
    whole = space.gathered(np.asarray(samples_of(b)))
    found: DirectResult = direct(A.gathered(), Ensemble(whole, set_of(b)), **options)
    outcome = {name: getattr(found, name) for name in OF_SAMPLES}
    own = np.ascontiguousarray(samples_of(found.x)[space.first : space.first + n_local])
    return replace(found, x=wrap_like(b, own, is_shared(A), set_of(found.x)), **space.agreed(outcome))


def _complex_solution(A: Any, b: Any, kind: str, factorization: Any, options: dict[str, Any]) -> DirectResult:
    """The solution of a complex system, from a real one of twice the size, whose factors are complex where they can be.

    LDL^T of a real form is that of a Hermitian matrix, and a matching by means is that of real entries.
    """
    matrix = as_crs(A)
    if matrix is NotImplemented:
        raise TypeError(message("direct", "A", "be a sparse matrix", kind_of(A)))
    if factorization is not None:
        raise TypeError(message("direct", "factorization", "be None where numbers are complex", repr(factorization)))
    b = one_column(b)
    common_samples("direct", matrix.shape[0], {"b": samples_of(b)}, A=matrix)
    for name, value in (("A", matrix), ("b", samples_of(b))):
        require_numpy("direct", name, value)
    order = checked_order(options["ordering"], matrix.shape[0], "direct", ("auto", *ORDERINGS))
    one_of(kind, ("auto", "ldlt", "lu"), "direct", "kind")
    factors, real, pairs = None, real_matrix(matrix), interleaved(b)
    if kind != "ldlt" and options["matching"] == "graph":
        number = np.result_type(real.dtype, pairs.dtype) if options["dtype"] is None else options["dtype"]
        symmetric = isinstance(A, SymmetricCrsMatrix) and kind == "auto"
        factors = complex_factors(matrix, symmetric, order, floating(number, "direct", "dtype"))
    options["ordering"] = order if isinstance(order, str) else (2 * order[:, None] + np.arange(2)).reshape(-1)
    kind = "lu" if kind == "auto" else kind
    found = _solution(real, pairs, kind=kind, factorization=factors, **options)
    return replace(found, x=from_interleaved(found.x))


def _result_of_known(known: KnownSolutions, A: CrsMatrix, b: Any) -> DirectResult:
    """The outcome where known sequences of pivots solved every sample."""
    found, steps = known.found, known.found.steps
    status = np.empty(steps.size, object)
    status.fill(Status.converged)
    x = wrap_like(b, known.x, A.values.shape[1] == 1 and not A.batched, A.sample_set)
    norms = np.ascontiguousarray(found.norms[: max(steps.tolist()) + 1])
    return DirectResult(
        x, status, steps, norms, found.target, "direct", found.norm, found.error, known.exchanged,
        ConditionsByKnown(A, found.prints, known.exchanged), known.alone,
    )  # fmt: skip


def _result(solution: DirectSolution, system: LinearSystem, conditions: Conditions) -> DirectResult:
    """The outcome of all samples of a system."""
    with np.errstate(all="ignore"):
        target = system.rtol * solution.norm_b
        reached = solution.norm <= target
        good = reached | ((solution.error <= solution.tolerance) & ~solution.nearly_singular())
        known = np.isfinite(solution.error) & np.isfinite(solution.norm)
    status = OUTCOMES[np.where(known, good, 2)]
    warn_of_conditions(solution.rcond, known & good & solution.nearly_singular(), known & good & solution.uncertain)
    x = solution.x
    shape = (-1, system.block_size) if system.block_size > 1 else x.shape[:1]
    x = wrap_like(system.like, array_namespace(x).reshape(x, (*shape, x.shape[1])), system.is_shared, system.sample_set)
    return DirectResult(
        x, status, solution.iterations, np.stack(solution.history), target, "direct", solution.norm, solution.error,
        solution.repaired, conditions, solution.alone,
    )  # fmt: skip
