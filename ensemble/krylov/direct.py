"""`direct`: factorisation, solution and refinement of many systems, and pivoting for the samples that need it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, to_numpy
from ensemble._check import floating, kind_of, message, require_type
from ensemble._compile.memory import empty
from ensemble._kernels.krylov.backward_error import backward_error
from ensemble._kernels.krylov.narrowing import narrowed_values
from ensemble._kernels.krylov.vectors import dot
from ensemble.krylov._complex import from_interleaved, has_complex, interleaved, real_matrix, require_numpy
from ensemble.krylov._norms import fetched, norms
from ensemble.krylov._system import LinearSystem, as_array, common_samples, linear_system, one_column
from ensemble.krylov.elsewhere import on_every_library
from ensemble.krylov.result import SolveResult, Status
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs
from ensemble.linalg.exchanges import pivoted
from ensemble.linalg.factorization import Factorization, planned
from ensemble.linalg.operators import samples_of, wrap_like
from ensemble.linalg.orderings import ORDERINGS, checked_order
from ensemble.linalg.symmetric import SymmetricCrsMatrix
from ensemble.scalar import Ensemble

REFINEMENTS = 10  # steps at most

ROUNDOFFS = 450.0
"""Backward error, in units of rounding, above which a solution is refined or replaced: 1e-13 in float64."""

FLOOR = 4.0  # backward error, in units of rounding, that refinement does not reduce

BUDGET = 1 << 31  # bytes of factorisations that are held together

FAR = 64  # powers of two by which values may differ from one before they are scaled to be held in float32

OUTCOMES = np.array([Status.stagnated, Status.converged, Status.breakdown], dtype=object)
"""The status of a sample whose residual is large, small, not finite."""


@dataclass(frozen=True, repr=False)
class DirectResult(SolveResult):
    """Outcome of `direct`: a `SolveResult` whose iterations are refinements.

    Attributes
    ----------
    backward_errors : array, shape (n_samples,)
        The largest ``|r_i| / (sum_j |a_ij| max_j |x_j| + |b_i|)`` over the rows.
    repaired : array of bool, shape (n_samples,)
        Samples that were solved by themselves, with partial pivoting.
    """

    backward_errors: np.ndarray | None = None
    repaired: np.ndarray | None = None

    @property
    def summary(self) -> str:
        """That of a `SolveResult`, and how many samples were solved with pivoting."""
        count = 0 if self.repaired is None else int(self.repaired.sum())
        return super().summary + (f"; {count} solved with pivoting" if count else "")


@on_every_library(symmetric=False)
def direct(
    A: Any,
    b: Any,
    *,
    rtol: Any = 1e-12,
    kind: str = "auto",
    ordering: Any = "auto",
    matching: str = "graph",
    dtype: Any = None,
    factorization: Factorization | None = None,
) -> DirectResult:
    """Solve ``A x = b`` for every sample by a sparse factorisation.

    The matrices of all samples are factorised together without exchanges, and their solutions refined while the
    residual halves [1]_. A sample whose backward error stays above 1e-13 (450 units of rounding) is solved by
    itself with ``scipy.sparse.linalg.splu``, which exchanges rows, and is marked in `repaired`. A sample has converged
    when its backward error is at most 1e-13, or its residual norm at most ``rtol * norm(b)``: an ill-conditioned matrix
    allows the first alone. Where the factorisations of all samples would take more than 2 GiB, samples are solved part
    by part, and the result is the same.

    Complex systems are solved as real ones of twice the size, with about twice the operations of complex elimination;
    backward errors are those of the real system. ``kind="ldlt"`` is for Hermitian matrices then.

    Arrays of PyTorch, JAX and other libraries on the CPU are solved by NumPy's kernels, with derivatives by A and b;
    those of a sample that does not converge are NaN.

    Parameters
    ----------
    A : CrsMatrix, SymmetricCrsMatrix or SciPy sparse matrices, shape (n, n)
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

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.gallery import poisson
    >>> from ensemble.krylov import direct
    >>> direct(poisson((10,), n_samples=3), np.ones(10))
    DirectResult(direct: 3 of 3 samples converged, 0 iterations)
    """
    A = CrsMatrix.from_scipy(A) if isinstance(A, list | tuple) else A
    b = as_array(b, "direct", "b")
    if has_complex(A, b):
        options = {"rtol": rtol, "ordering": ordering, "matching": matching, "dtype": dtype}
        return _complex_solution(A, b, kind, factorization, options)
    if factorization is not None:
        require_type(factorization, Factorization, "direct", "factorization", "be a Factorization")
    symmetric = isinstance(A, SymmetricCrsMatrix)
    system = linear_system("direct", A, b, None, None, rtol, 0.0, REFINEMENTS, "independent")
    matrix = as_crs(system.A)
    if matrix is NotImplemented:
        advice = "Give a CrsMatrix, a SymmetricCrsMatrix or a SciPy sparse matrix."
        raise TypeError(message("direct", "A", "be a sparse matrix", kind_of(A), advice))
    kind = "ldlt" if symmetric and kind == "auto" else kind
    F, number = factorization, system.b.dtype if dtype is None else floating(dtype, "direct", "dtype")
    scaled, unit = _scaled(matrix, np.dtype(str(number).split(".")[-1]) if F is None else F.dtype)
    if F is None:
        F = planned(scaled, kind=kind, ordering=ordering, matching=matching, dtype=number)
    return _solved(system, matrix, scaled, unit, F).result(system)


def _solved(system: LinearSystem, A: CrsMatrix, scaled: CrsMatrix, unit: Any, plan: Factorization) -> _Solution:
    """The solutions of all samples; part by part where their factorisations together would take too much memory."""
    tile = 64 // plan.dtype.itemsize
    size = max(BUDGET // max(plan.n_values * plan.dtype.itemsize, 1) // tile, 1) * tile
    if scaled.n_samples <= size:
        with np.errstate(all="ignore"):  # a broken sample's arithmetic concerns no other
            return _Solution(system, A, unit, *_factors_and_product(plan, scaled, system.b)).finish()
    parts = []
    for first in range(0, scaled.n_samples, size):
        chosen = np.arange(first, min(first + size, scaled.n_samples))
        rtol = system.rtol[chosen] if np.ndim(system.rtol) else system.rtol
        part = replace(system, b=contiguous(system.b[:, first : first + size]), rtol=rtol)
        with np.errstate(all="ignore"):
            made = _factors_and_product(plan, scaled.take_samples(chosen), part.b)
            own = _Solution(part, A.take_samples(chosen), None if unit is None else unit[chosen], *made).finish()
        del own.F, made  # before the next one is made
        parts.append(own)
    return _joined(parts)


def _factors_and_product(plan: Factorization, scaled: CrsMatrix, b: Any) -> tuple[Factorization, Any, Any]:
    """The factorisation, its product with `b` and the norms of `b`; None for what is left to another pass."""
    if not isinstance(b, np.ndarray) or plan.dtype.itemsize == b.dtype.itemsize:
        return *plan._update_and_apply(scaled, b), None
    norm = _norms(b, fetched(dot(b, b, None))[0])
    unit = _power_of_two(norm)
    narrow = _narrow(b, unit, plan.dtype)
    F, x = plan._update_and_apply(scaled, narrow)
    return F, np.multiply(F.apply(narrow) if x is None else x, unit, out=empty(b.shape, b.dtype)), norm


def _power_of_two(norm: np.ndarray) -> np.ndarray:
    """The power of two next to each norm; 1 for norms that have none."""
    exponent = np.where(np.isfinite(norm) & (norm > 0.0), np.frexp(norm)[1] - 1, 0)
    return np.ldexp(1.0, exponent)


def _narrow(r: np.ndarray, unit: np.ndarray, dtype: Any) -> np.ndarray:
    """``r / unit`` in another type."""
    narrow: np.ndarray = np.divide(r, unit, out=empty(r.shape, dtype), casting="same_kind")
    return narrow


def _complex_solution(A: Any, b: Any, kind: str, factorization: Any, options: dict[str, Any]) -> DirectResult:
    """The solution of a complex system, from a real one of twice the size."""
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
    options["ordering"] = order if isinstance(order, str) else (2 * order[:, None] + np.arange(2)).reshape(-1)
    found: DirectResult = direct(real_matrix(matrix), interleaved(b), kind="lu" if kind == "auto" else kind, **options)
    return replace(found, x=from_interleaved(found.x))


def _scaled(A: CrsMatrix, dtype: Any) -> tuple[CrsMatrix, np.ndarray | None]:
    """`A` over powers of two, one per sample, by which its values fit into float32; None for no such powers.

    In float32 already where no power is needed and its values are in NumPy's arrays.
    """
    if dtype != np.float32 or A.values.dtype.itemsize == 4 or not A.nnz:
        return A, None
    xp, narrow = array_namespace(A.values), None
    with np.errstate(all="ignore"):
        if isinstance(A.values, np.ndarray):
            narrow, largest = narrowed_values(A.values, empty(A.values.shape, np.float32))
        else:
            largest = to_numpy(xp.maximum(xp.max(A.values, axis=0), -xp.min(A.values, axis=0)))
    exponent = np.where(np.isfinite(largest) & (largest > 0.0), np.frexp(largest)[1], 0)
    far = np.abs(exponent) > FAR
    if far.any():
        # Other samples keep the bits of their own run.
        unit = np.ldexp(1.0, np.where(far, np.minimum(exponent, 1023), 0))
        return A / Ensemble(asarray_like(unit, A.values)), unit
    return (A if narrow is None else CrsMatrix(A.graph, Ensemble(narrow, A.sample_set))), None


class _Solution:
    """Solutions of all samples, with their residuals and backward errors."""

    def __init__(self, system: LinearSystem, A: CrsMatrix, unit: Any, F: Factorization, x: Any, norm_b: Any) -> None:
        """`x` is the product of `F`, the factorisation of A over `unit`, with b, whose norms are `norm_b`, or None."""
        self.system, self.A, self.F, self.b = system, A, F, system.b
        self.unit = None if unit is None else asarray_like(unit, system.b)
        n_samples = self.b.shape[1]
        self.tolerance = ROUNDOFFS * _limits(self.b.dtype)[0]
        if x is None:
            self.norm_b = _norms(self.b, fetched(dot(self.b, self.b, None))[0])
            self.x = self.solve(self.b, self.norm_b)
            self.r, self.error, self.norm = self.judged(self.x)
        else:
            self.x = x if self.unit is None else x / self.unit
            squares = [dot(self.b, self.b, None)] if norm_b is None else []
            marks = [] if F._marks is None else [F._marks]
            self.r, self.error, self.norm, *there = self.judged(self.x, *squares, *marks)
            self.norm_b = _norms(self.b, there[0]) if norm_b is None else norm_b
            if marks and F._settle(there[-1], self.x):
                self.r, self.error, self.norm = self.judged(self.x)
        self.iterations = np.zeros(n_samples, np.int64)
        self.repaired = np.zeros(n_samples, bool)
        self.history = [self.norm.copy()]

    def solve(self, r: Any, norm: np.ndarray) -> Any:
        """The product of the inverse that the factorisation stands for with `r`, whose norms are given."""
        x = self.F.apply(r) if self.F.dtype.itemsize == r.dtype.itemsize else self.solve_scaled(r, norm)
        return x if self.unit is None else x / self.unit

    def solve_scaled(self, r: Any, norm: np.ndarray) -> Any:
        """The same in the type of the factorisation, of `r` over the power of two next to its norm."""
        with np.errstate(all="ignore"):
            unit = asarray_like(_power_of_two(norm), r)
            if isinstance(r, np.ndarray):
                return np.multiply(self.F.apply(_narrow(r, unit, self.F.dtype)), unit, out=empty(r.shape, r.dtype))
            xp = array_namespace(r)
            narrow = contiguous(xp.astype(r / unit, getattr(xp, self.F.dtype.name)))
            return xp.astype(self.F.apply(narrow), r.dtype) * unit

    def judged(self, x: Any, *others: Any) -> tuple[Any, ...]:
        """The residual of `x`, its backward errors and norms, and `others` on the host."""
        r, error = backward_error(*self.A.arrays, x, self.b)
        error, squares, *others_there = fetched(error, dot(r, r, None), *others)
        return r, error, _norms(r, squares), *others_there

    def finish(self) -> _Solution:
        """These solutions as good as they get."""
        self.refine()
        self.refined = len(self.history)
        self.repair()
        return self

    def refine(self) -> None:
        """Add corrections while they halve the residual of a sample that is not yet small enough."""
        xp = array_namespace(self.x)
        active = self.unfinished() & np.isfinite(self.error)
        for _ in range(REFINEMENTS):
            if not active.any():
                return
            corrected = self.solve(self.r, self.norm)
            corrected += self.x
            r, error, norm = self.judged(corrected)
            better = active & (norm < self.norm) & np.isfinite(error)
            if not better.all():
                chosen = asarray_like(better, self.x)
                corrected, r = xp.where(chosen, corrected, self.x), xp.where(chosen, r, self.r)
            self.x, self.r = corrected, r
            going_on = better & (norm <= 0.5 * self.norm)
            self.norm, self.error = np.where(better, norm, self.norm), np.where(better, error, self.error)
            self.iterations += active
            self.history.append(self.norm.copy())
            active = going_on & self.unfinished()

    def unfinished(self) -> np.ndarray:
        """Samples with a backward error or a residual that refinement may still reduce."""
        reducible = self.error > FLOOR / ROUNDOFFS * self.tolerance
        large: np.ndarray = self.norm > self.system.rtol * self.norm_b
        wanted: np.ndarray = (self.error > self.tolerance) | (large & reducible)
        return wanted

    def repair(self) -> None:
        """Solve the samples whose backward error is too large by themselves, with exchanges of rows."""
        bad = np.flatnonzero(~(self.error <= self.tolerance))
        if not bad.size:
            return
        values = to_numpy(self.A.take_samples(bad).values)
        for i, s in enumerate(bad.tolist()):
            own = values[:, i if values.shape[1] > 1 else 0]
            b = to_numpy(self.b[:, s])
            if not (np.isfinite(own).all() and np.isfinite(b).all()):
                continue
            x = _with_pivoting(self.A.to_scipy(s), b)
            if x is None:
                continue
            self.repaired[s] = True
            wide = asarray_like(np.ascontiguousarray(x[:, None]), self.x)
            matrix, own_b = self.A.take_samples([s]), contiguous(self.b[:, s : s + 1])
            r, error = backward_error(*matrix.arrays, wide, own_b)
            error = float(to_numpy(error)[0])
            if error < self.error[s] or not np.isfinite(self.error[s]):
                self.x[:, s], self.r[:, s] = wide[:, 0], r[:, 0]
                self.error[s], self.norm[s] = error, _norms(r, fetched(dot(r, r, None))[0])[0]
        self.history.append(self.norm.copy())

    def result(self, system: LinearSystem) -> DirectResult:
        """The outcome of all samples of a system."""
        with np.errstate(all="ignore"):
            target = system.rtol * self.norm_b
            good = (self.error <= self.tolerance) | (self.norm <= target)
            known = np.isfinite(self.error) & np.isfinite(self.norm)
        status = OUTCOMES[np.where(known, good, 2)]
        shape = (-1, system.block_size) if system.block_size > 1 else self.x.shape[:1]
        x = array_namespace(self.x).reshape(self.x, (*shape, self.x.shape[1]))
        x = wrap_like(system.like, x, system.operator_samples, system.sample_set)
        return DirectResult(
            x, status, self.iterations, np.stack(self.history), target, "direct", self.norm, self.error, self.repaired
        )


def _joined(parts: list[_Solution]) -> _Solution:
    """The solutions of neighbouring samples as one."""
    joined, steps = parts[0], max(part.refined for part in parts)
    repaired = any(len(part.history) > part.refined for part in parts)  # which has a last row for all
    for part in parts:
        norms = part.history[: part.refined]
        part.history = norms + [norms[-1]] * (steps - part.refined) + [part.history[-1]] * repaired
    joined.x = array_namespace(joined.x).concat([part.x for part in parts], axis=1)
    joined.history = [np.concatenate(norms) for norms in zip(*(part.history for part in parts), strict=True)]
    for name in ("error", "iterations", "repaired", "norm_b", "norm"):
        setattr(joined, name, np.concatenate([getattr(part, name) for part in parts]))
    return joined


def _with_pivoting(A: Any, b: np.ndarray) -> np.ndarray | None:
    """The solution by SuperLU with one refinement, None for a singular matrix."""
    lu = pivoted(A)
    if lu is None:
        return None
    x = lu.solve(b)
    refined: np.ndarray = x + lu.solve(b - A @ x)
    return refined


@functools.cache
def _limits(dtype: Any) -> tuple[float, float, float]:
    """The rounding of a type of real numbers, and the norms between which squares stay in its range."""
    limits = np.finfo(str(dtype).split(".")[-1])
    eps, least, most = float(limits.eps), float(limits.smallest_normal), float(limits.max)
    return eps, float(np.sqrt(least)) / eps, float(np.sqrt(most)) / 2.0


def _norms(r: Any, squares: np.ndarray) -> np.ndarray:
    """2-norms per sample, float64 on the host, of vectors whose `squares` may have left the range of numbers."""
    if not r.shape[0]:
        return np.zeros(r.shape[1])
    plain: np.ndarray = np.sqrt(squares)
    _, low, high = _limits(r.dtype)
    if low < plain.min() and plain.max() < high:  # false where one is NaN
        return plain
    xp, odd = array_namespace(r), ~((plain > low) & (plain < high))
    largest = xp.max(xp.abs(r), axis=0)
    unit = xp.where((largest > 0) & xp.isfinite(largest), largest, xp.ones_like(largest))
    return np.where(odd, norms(r / unit) * np.asarray(to_numpy(unit), np.float64), plain)
