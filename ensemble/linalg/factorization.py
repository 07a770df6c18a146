"""`Factorization`: LU or LDL^T of many sparse matrices on one graph."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, to_numpy
from ensemble._check import floating, message, one_of, require, samples_text
from ensemble._kernels.direct.elimination import Elimination
from ensemble._kernels.direct.factors import factorized
from ensemble._kernels.direct.inverse import selected_inverse
from ensemble._kernels.direct.triangular import factor_solve
from ensemble._kernels.krylov.vectors import dot
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs
from ensemble.linalg.linear_operator import LinearOperator
from ensemble.linalg.operators import places_of, premultiply, samples_of, wrap_like
from ensemble.linalg.orderings import checked_order, elimination_of, entries_in, filled_graph, matched_rows
from ensemble.linalg.symmetric import SymmetricCrsMatrix
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet

NAME = "Factorization"


class Factorization(LinearOperator):
    """The inverse of a sparse matrix as an operator: ``Factorization(A) @ b`` is x in ``A x = b``, for every sample.

    Order of elimination, fill and places of all values are worked out once per graph; the numbers of all samples follow
    together. Pivots are the diagonal of a fixed order, without exchanges at run time: every sample goes through the
    same operations, and has the bits of its own run. Matrices that need exchanges lose digits, so a solution is judged
    by its residual: `ensemble.krylov.direct` does that, refines, and treats the samples that stay bad by themselves.

    Parameters
    ----------
    A : CrsMatrix, SymmetricCrsMatrix or SciPy sparse matrices, shape (n, n)
    kind : {"auto", "ldlt", "lu"}
        "ldlt" reads the entries on and above the diagonal, and takes half the operations and values. "auto" takes it
        for a SymmetricCrsMatrix, "lu" for any other.
    ordering : "auto" or array of int, shape (n,)
        Columns in the order of elimination. "auto" is the approximate minimum degree order [1]_ of the graph of
        ``A + A^T``.
    matching : {"graph", "mean"}
        For "lu", which row gives each column its pivot. "graph" looks at stored entries alone: the diagonal where it is
        stored. "mean" makes the product of the mean magnitudes of the pivots the largest [2]_. This couples the
        samples: the result of one depends on the others. `update` keeps the choice.
    dtype : data type, optional
        float32 or float64; that of A by default. Solutions have the type of the right-hand side.

    Attributes
    ----------
    broken : array of bool, shape (n_samples,)
        Samples with a pivot that is zero or a value that is not finite; all their solutions are NaN.
    multiply_adds : int
        Multiplications that one sample's factorisation takes.
    n_values : int
        Numbers that it keeps for one sample.

    Raises
    ------
    ValueError
        If A is not square, or structurally singular: some rows cannot have a pivot each whatever the values are.
    TypeError
        If A is no sparse matrix, or complex.

    References
    ----------
    .. [1] Amestoy, Davis, Duff (1996), SIAM J. Matrix Anal. 17, 886-905.
    .. [2] Duff, Koster (2001), SIAM J. Matrix Anal. 22, 973-996; solved by ``scipy.sparse.csgraph``.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.linalg import CrsGraph, CrsMatrix
    >>> graph = CrsGraph([0, 2, 4], [0, 1, 0, 1], (2, 2))
    >>> A = CrsMatrix(graph, np.array([[2.0, 4.0], [1.0, 1.0], [1.0, 1.0], [2.0, 4.0]]))
    >>> F = Factorization(A)
    >>> (F @ np.array([3.0, 0.0])).samples
    array([[ 2. ,  0.8],
           [-1. , -0.2]])
    >>> np.exp(F.logdet().samples)
    array([ 3., 15.])
    """

    __array_ufunc__ = None

    def __init__(
        self, A: Any, *, kind: str = "auto", ordering: Any = "auto", matching: str = "graph", dtype: Any = None
    ) -> None:
        one_of(kind, ("auto", "ldlt", "lu"), NAME, "kind")
        one_of(matching, ("graph", "mean"), NAME, "matching")
        symmetric = kind == "ldlt" or (kind == "auto" and isinstance(A, SymmetricCrsMatrix))
        A = _matrix(A)
        n = A.shape[0]
        self.graph, self.shape = A.graph, (n, n)
        self.dtype = np.dtype(_real(A) if dtype is None else floating(dtype, NAME, "dtype"))
        order = checked_order(ordering, n, NAME)
        if matching == "mean" and not symmetric:
            self.plan = elimination_of(A.graph, False, matched_rows(A.graph, NAME, _mean_weights(A)), order)
        else:
            key = ("elimination", symmetric, None if order is None else order.tobytes())
            self.plan = A.graph.kept(key, lambda: _plan(A.graph, symmetric, order))
        self._put(A)

    def _put(self, A: CrsMatrix) -> None:
        """The numbers of the matrix `A` on this graph."""
        xp = array_namespace(A.values)
        values = contiguous(xp.astype(A.values, getattr(xp, self.dtype.name), copy=False))
        with np.errstate(all="ignore"):  # a broken sample's arithmetic concerns no other
            self.values, broken = factorized(values, self.plan, None)
        self.sample_set, self.n_samples = A.sample_set, int(self.values.shape[1])
        broken = to_numpy(broken)
        self.broken = broken != broken
        if self.broken.any():  # half of its values may be numbers
            self.values[:, asarray_like(self.broken, self.values)] = np.nan

    @classmethod
    def _of(cls, like: Factorization, values: Any, broken: np.ndarray, sample_set: SampleSet | None) -> Factorization:
        made = object.__new__(cls)
        made.graph, made.shape, made.plan, made.dtype = like.graph, like.shape, like.plan, like.dtype
        made.values, made.broken, made.sample_set, made.n_samples = values, broken, sample_set, int(values.shape[1])
        return made

    def __repr__(self) -> str:
        kind = "LDL^T" if self.plan.symmetric else "LU"
        text = f"Factorization({kind}, shape={self.shape}, {self.n_values} values, n_samples={self.n_samples}"
        broken = np.flatnonzero(self.broken)
        return f"{text}, {self.dtype}{f'; broken: {samples_text(broken)}' if broken.size else ''})"

    def update(self, A: Any) -> Factorization:
        """The factorisation of other values on the same graph, in the same order; this one is not changed.

        Raises
        ------
        ValueError
            If `A` has another graph.
        """
        A = _matrix(A)
        advice = "Make a new Factorization."
        require(self.graph.same_as(A.graph), f"{NAME}.update", "A", "have the same graph", repr(A.graph), advice)
        _real(A)
        made: Factorization = object.__new__(type(self))
        made.graph, made.shape, made.plan, made.dtype = self.graph, self.shape, self.plan, self.dtype
        made._put(A)
        return made

    # --- what it is
    @property
    def n_values(self) -> int:
        """Numbers kept for one sample."""
        return self.plan.n_values

    @property
    def multiply_adds(self) -> int:
        """Multiplications of one sample's factorisation."""
        return self.plan.multiply_adds

    @property
    def reference_array(self) -> Any:
        """An array in the library and on the device of the values."""
        return self.values

    def take_samples(self, samples: Any) -> Factorization:
        """The factorisation of the samples named, in that order; a shared one is its own answer."""
        if self.n_samples == 1:
            return self
        places = places_of(samples, self.n_samples, f"{NAME}.take_samples")
        values = contiguous(array_namespace(self.values).take(self.values, asarray_like(places, self.values), axis=1))
        return self._of(self, values, self.broken[places], self.sample_set and self.sample_set.take(places))

    # --- solutions
    def apply(self, x: Any, out: Any = None) -> Any:
        """A^-1 x on bare arrays of shape (n, n_samples)."""
        return self._solve(x[:, None, :], False, None if out is None else out[:, None, :])[:, 0, :]

    def _solve(self, b: Any, transposed: bool, out: Any = None) -> Any:
        values = self.values
        if values.shape[1] != 1 and b.shape[2] == 1:
            b = contiguous(array_namespace(b).broadcast_to(b, (*b.shape[:2], values.shape[1])))
        with np.errstate(all="ignore"):
            return factor_solve(values, self.plan, b, transposed, out)

    def _multiply(self, x: Any, transposed: bool) -> Any:
        name, n, own = NAME + (".T" if transposed else ""), self.shape[0], self.n_samples
        samples = samples_of(x)
        require(
            samples.ndim > 1 and samples.shape[0] == n, f"{name} @", "x", f"have {n} rows",
            f"shape {tuple(samples.shape[:-1])}",
        )  # fmt: skip
        given, columns, xp = samples.shape[-1], samples.shape[1:-1], array_namespace(samples)
        requirement = "have the same n_samples, or 1"
        require(own == given or 1 in (own, given), f"{name} @", "operands", requirement, f"{own} and {given}")
        dtype = samples.dtype
        if xp.isdtype(dtype, "complex floating"):
            raise TypeError(message(f"{name} @", "x", "be real", f"dtype {dtype}"))
        if not xp.isdtype(dtype, "real floating"):
            dtype = xp.float64
        count = int(np.prod(columns, dtype=np.int64))
        if own == 1:  # columns and samples alike are right-hand sides of one matrix
            y = self._solve(contiguous(xp.reshape(samples, (n, 1, count * given)), dtype), transposed)
        else:
            y = self._solve(contiguous(xp.reshape(samples, (n, count, given)), dtype), transposed)
        return wrap_like(x, xp.reshape(y, (n, *columns, max(own, given))), own, self.sample_set)

    def __matmul__(self, x: Any) -> Any:
        return NotImplemented if hasattr(x, "tocsr") else self._multiply(x, False)

    def __rmatmul__(self, x: Any) -> Any:
        return premultiply(x, self)

    @property
    def T(self) -> TransposedFactorization:
        """The inverse of the transpose, as an operator on the same values."""
        return TransposedFactorization(self)

    # --- determinants
    @property
    def _pivots(self) -> Any:
        """Reciprocals of the pivots, shape (n, n_samples)."""
        return array_namespace(self.values).take(self.values, asarray_like(self.plan.diagonal, self.values), axis=0)

    def logdet(self) -> Any:
        """The logarithm of the determinant's magnitude, an Ensemble of shape (); NaN for a broken sample."""
        xp, pivots = array_namespace(self.values), self._pivots
        logarithms = xp.log(xp.abs(pivots))
        return Ensemble(-dot(logarithms, xp.ones_like(logarithms), None), self.sample_set)

    def sign(self) -> Any:
        """The sign of the determinant, 1 or -1, an Ensemble of shape (); NaN for a broken sample."""
        xp = array_namespace(self.values)
        signs = xp.prod(xp.sign(self._pivots), axis=0)
        return Ensemble(signs * _parity(self.plan.rows) * _parity(self.plan.columns), self.sample_set)

    def inertia(self) -> np.ndarray:
        """Numbers of negative and positive eigenvalues, shape (2, n_samples), by Sylvester's law; -1 where broken.

        Raises
        ------
        ValueError
            If this is no LDL^T.
        """
        advice = 'Factorize a symmetric matrix with kind="ldlt".'
        require(self.plan.symmetric, f"{NAME}.inertia", "the factorisation", "be LDL^T", "LU", advice)
        pivots = to_numpy(self._pivots)
        counts = np.stack([(pivots < 0).sum(axis=0), (pivots > 0).sum(axis=0)])
        return np.where(self.broken, -1, counts)

    # --- entries of the inverse
    @cached_property
    def _inverse(self) -> tuple[Any, Any]:
        graph = self.graph.kept(("filled", id(self.plan)), lambda: (self.plan, filled_graph(self.plan)))[1]
        with np.errstate(all="ignore"):
            return graph, selected_inverse(self.values, graph, None)

    def inverse_diagonal(self) -> Any:
        """The diagonal of the inverse, an Ensemble of shape (n,), without computing the rest of it."""
        n = self.shape[0]
        graph, z = self._inverse
        own = np.arange(n)
        places = entries_in(graph, self.plan, own, own)
        xp = array_namespace(z)
        diagonal = xp.take(z, asarray_like(np.maximum(places, 0), z), axis=0) if n else z[:0, ...]
        for i in np.flatnonzero(places < 0).tolist():  # outside of the filled graph: a column of the inverse
            unit = np.zeros((n, 1, 1), self.dtype)
            unit[i] = 1.0
            diagonal[i, :] = self._solve(asarray_like(unit, z), False)[i, 0, :]
        return Ensemble(diagonal, self.sample_set)

    def inverse_entries(self) -> CrsMatrix:
        """Entries of the transposed inverse on the graph of A: at (i, j), entry (j, i) of the inverse.

        That is the derivative of ``log |det A|`` by the entry (i, j) of A. For a symmetric matrix it is the inverse
        itself.
        """
        graph, z = self._inverse
        places = entries_in(graph, self.plan, self.graph.indices.astype(np.int64), self.graph.row_of_entry)
        values = array_namespace(z).take(z, asarray_like(places, z), axis=0)
        return CrsMatrix(self.graph, Ensemble(values, self.sample_set))


class TransposedFactorization(LinearOperator):
    """``F.T`` of a `Factorization`: solves with the transposed matrix."""

    __array_ufunc__ = None

    def __init__(self, factorization: Factorization) -> None:
        self.T = factorization
        self.shape, self.n_samples, self.dtype = factorization.shape, factorization.n_samples, factorization.dtype
        self.sample_set, self.reference_array = factorization.sample_set, factorization.values

    def __repr__(self) -> str:
        return f"{self.T!r}.T"

    def apply(self, x: Any, out: Any = None) -> Any:
        """A^-T x on bare arrays of shape (n, n_samples)."""
        return self.T._solve(x[:, None, :], True, None if out is None else out[:, None, :])[:, 0, :]

    def take_samples(self, samples: Any) -> TransposedFactorization:
        """That of the samples named."""
        return TransposedFactorization(self.T.take_samples(samples))

    def __matmul__(self, x: Any) -> Any:
        return NotImplemented if hasattr(x, "tocsr") else self.T._multiply(x, True)

    def __rmatmul__(self, x: Any) -> Any:
        return premultiply(x, self)


def _matrix(A: Any) -> CrsMatrix:
    """`A`, or a list of SciPy matrices, as a square `CrsMatrix`."""
    matrix = CrsMatrix.from_scipy(A) if isinstance(A, list | tuple) else as_crs(A)
    if matrix is NotImplemented:
        advice = "Give a CrsMatrix, a SymmetricCrsMatrix, or SciPy sparse matrices."
        raise TypeError(message(NAME, "A", "be a sparse matrix", f"a {type(A).__name__}", advice))
    advice = "A system with more rows than unknowns has no inverse: solve the normal equations."
    require(matrix.shape[0] == matrix.shape[1], NAME, "A", "be square", f"shape {matrix.shape}", advice)
    return matrix


def _real(A: CrsMatrix) -> Any:
    """The type of a real matrix."""
    dtype = str(A.dtype).split(".")[-1]
    if dtype not in ("float32", "float64"):
        advice = "Solve the real system of twice the size, [[Re A, -Im A], [Im A, Re A]]." * ("complex" in dtype)
        raise TypeError(message(NAME, "A", "hold float32 or float64", dtype, advice))
    return dtype


def _plan(graph: Any, symmetric: bool, order: np.ndarray | None) -> Elimination:
    pivots = np.arange(graph.shape[0]) if symmetric else matched_rows(graph, NAME)
    return elimination_of(graph, symmetric, pivots, order)


def _mean_weights(A: CrsMatrix) -> np.ndarray:
    """1 + log of the largest mean magnitude of the column over that of the entry, from samples that are finite."""
    values = np.abs(to_numpy(A.values))
    with np.errstate(all="ignore"):
        finite = np.all(np.isfinite(values), axis=0)
        size = np.log(values[:, finite] if finite.any() else np.ones_like(values))
        largest = size.max(axis=1, initial=-np.inf)
        mean = largest + np.log(np.mean(np.exp(size - largest[:, None]), axis=1))
    mean = np.where(np.isfinite(mean), mean, -np.inf)
    most = np.full(A.shape[1], -np.inf)
    np.maximum.at(most, A.graph.indices.astype(np.intp), mean)
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(mean), 1.0 + most[A.graph.indices] - mean, np.inf)


def _parity(order: np.ndarray) -> int:
    """The sign of a permutation."""
    left, sign = np.ones(order.size, bool), 1
    for start in range(order.size):
        i, length = start, 0
        while left[i]:
            left[i] = False
            i, length = int(order[i]), length + 1
        sign = -sign if length and length % 2 == 0 else sign
    return sign
