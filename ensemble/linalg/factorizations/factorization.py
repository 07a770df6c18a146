"""`Factorization`: LU or LDL^T of many sparse matrices on one graph.

Longer than 400 lines: one class, whose factors, solutions and judgements share their state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._check import message, one_of, require
from ensemble._compile.numba import heard
from ensemble._kernels.direct.growth import element_growth
from ensemble._kernels.direct.inverse import FilledGraph, selected_inverse
from ensemble._kernels.direct.symbolic.elimination import Elimination
from ensemble._kernels.krylov.vectors import dot
from ensemble._keywords import explains_construction
from ensemble._typing import DType
from ensemble.linalg.bridge import factors as bridge
from ensemble.linalg.bridge.host import host_matrix
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs
from ensemble.linalg.factorizations.backward_errors import error_limit, larger_error, magnitudes_of
from ensemble.linalg.factorizations.exchanges import (
    LARGE_GROWTH,
    PivotedFactors,
    parity,
    pivoted,
    pivoted_determinant,
    pivoted_inertia,
    pivoted_inverse,
)
from ensemble.linalg.factorizations.orderings import (
    ORDERINGS,
    elimination_of,
    entries_in,
    filled_graph,
    matched_rows,
    mean_weights,
)
from ensemble.linalg.factorizations.triangular_factors import TriangularFactors
from ensemble.linalg.graph import CrsGraph
from ensemble.scalar import Ensemble

NAME = "Factorization"

GROWTH = 100.0
"""Growth of entries up to which products with a factorisation are not judged."""


FILLED_WORK = 100
"""Multiply-adds that take as long as one value in the graph of the inverse, about (`benchmarks direct`)."""

SEED = 29_531
"""Of the vectors by which the growth of complex entries is measured."""

REFINEMENTS = 2
"""Corrections of a product where entries grew, before factors with exchanges are made."""

N_JUDGED = 4
"""Products of a factorisation that are judged before the growth of its entries is worked out."""


@explains_construction("Factorization")
class Factorization(TriangularFactors):
    """The inverse of a sparse matrix as an operator: ``Factorization(A) @ b`` is x in ``A x = b``, for every sample.

    Order of elimination, fill and places of all values are worked out once per graph; the numbers of all samples follow
    together. Pivots are the diagonal of a fixed order, without exchanges at run time: every sample goes through the
    same operations, and has the bits of its own run. Matrices that need exchanges lose digits, so a solution is judged
    by its residual: `ensemble.krylov.direct` does that, refines, and treats the samples that stay bad by themselves.

    Parameters
    ----------
    A : CrsMatrix, SymmetricCrsMatrix or SciPy sparse matrices, shape (n, n)
    kind : {"auto", "ldlt", "lu"}
        "ldlt" is for symmetric matrices, and takes half the operations and values; `update` and `solve` then read the
        entries on and above the diagonal alone. "auto" takes it for a SymmetricCrsMatrix, "lu" for any other.
    ordering : {"auto", "amd", "nd", "band"} or array of int, shape (n,)
        Columns in the order of elimination. "amd" is the approximate minimum degree order [1]_ of the graph of
        ``A + A^T``, "nd" nested dissection [3]_, "auto" the one of these with fewer multiply-adds (of
        fewer than 500 rows, "amd"). "band" is the given order, or reverse Cuthill-McKee where its band is narrower; a
        full band of half-width 2 to 24 has kernels of its own on CUDA devices.
    matching : {"graph", "mean"}
        For "lu", which row gives each column its pivot. "graph" looks at stored entries alone: row i for column i, as
        far as the diagonal is stored and the rest has a pivot each. "mean" makes the product of the mean magnitudes of
        the pivots the largest [2]_. This couples the samples: the result of one depends on the others. `update` keeps
        the choice.
    dtype : data type, optional
        float32 or float64; that of A by default. Solutions have the type of the right-hand side. Of a complex A, the
        type of real and imaginary parts: factors are complex then, LDL^T without conjugates, and A lies in NumPy's or
        CuPy's arrays.

    Attributes
    ----------
    broken : array of bool, shape (n_samples,)
        Samples with a pivot that is zero or a value that is not finite. `apply` gives NaN for them.
    lossy : array of bool, shape (n_samples,)
        Samples that are broken, or whose entries grew so much that elimination without exchanges lost a third of all
        digits. Products and `solve` are judged by their backward errors where entries grew more than hundredfold.
        Where these are large, two corrections at most are added in double precision, and where they do not suffice
        SuperLU's factors are taken. A is kept for that: such a solution is NaN where A is singular or not finite, or
        its values were changed in place since.
    multiply_adds : int
        Multiplications that one sample's factorisation takes.
    n_values : int
        Numbers that it keeps for one sample.

    Raises
    ------
    ValueError
        If A is not square, not symmetric where `kind` is "ldlt", or structurally singular: some rows cannot have a
        pivot each whatever the values are.
    TypeError
        If A is no sparse matrix, or complex numbers are in arrays of other libraries. `inertia`, `inverse_diagonal` and
        `inverse_entries` raise it for complex factors.

    References
    ----------
    .. [1] Amestoy, Davis, Duff (1996), SIAM J. Matrix Anal. 17, 886-905.
    .. [2] Duff, Koster (2001), SIAM J. Matrix Anal. 22, 973-996; solved by ``scipy.sparse.csgraph``.
    .. [3] George (1973), SIAM J. Numer. Anal. 10, 345-363; separators after Ashcraft, Liu (1998), SIAM J. Matrix Anal.
       19, 325-354.

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

    _orderings = ("auto", *ORDERINGS)
    _takes_complex = True
    _n_judged = 0

    def __init__(
        self, A: Any, *, kind: str = "auto", ordering: Any = "auto", matching: str = "graph", dtype: DType | None = None
    ) -> None:
        self._matching = one_of(matching, ("graph", "mean"), NAME, "matching")
        super().__init__(A, kind, ordering, dtype)

    def _planned(self, graph: CrsGraph, symmetric: bool, ordering: np.ndarray | str) -> Elimination:
        pivots = matched_rows(graph, NAME)  # which refuses a graph that is structurally singular
        return elimination_of(graph, symmetric, np.arange(graph.shape[0]) if symmetric else pivots, ordering)

    def _plan_for(self, A: CrsMatrix, symmetric: bool, ordering: np.ndarray | str) -> Elimination:
        if self._matching == "mean" and not symmetric:
            weights = mean_weights(host_matrix(A, NAME))
            return self._heard_plan(
                A.graph, lambda: elimination_of(A.graph, False, matched_rows(A.graph, NAME, weights), ordering)
            )
        return super()._plan_for(A, symmetric, ordering)

    # --- other values on the graph
    def solve(self, A: Any, b: Any) -> Any:
        """x in ``A x = b`` for other values on the same graph: ``update(A) @ b`` without a factorisation that is kept.

        The same bits, in one pass over the samples: the values of a few samples at a time are worked out, used and
        overwritten. A sample whose backward error is above 450 units of rounding goes the other way, and is solved
        with exchanges where its entries grew.

        Parameters
        ----------
        A : CrsMatrix, SymmetricCrsMatrix or SciPy sparse matrices, shape (n, n)
        b : Ensemble or array, shape (n,) or (n, k)

        Returns
        -------
        Ensemble, or an array where `A` and an array `b` have one sample, shape of `b`

        Raises
        ------
        ValueError
            If `A` has another graph, or `b` other rows or samples.

        Examples
        --------
        >>> import numpy as np
        >>> from ensemble.gallery import poisson
        >>> F = Factorization(poisson((10,)), kind="ldlt")
        >>> F.solve(Ensemble(np.array([1.0, 2.0])) * poisson((10,)), np.ones(10)).samples[4]
        array([15. ,  7.5])
        """
        quick = self._solved_at_once(A, b)
        if quick is None:
            return self.update(A) @ b
        x, given = quick.samples, b.samples if type(b) is Ensemble else np.repeat(b[:, None], quick.n_samples, axis=1)
        doubtful = np.flatnonzero(~(larger_error(A, x, given) <= error_limit(self.dtype)))
        if doubtful.size:  # by way of the values, which tell whether exchanges are needed
            some = Ensemble(np.ascontiguousarray(given[:, doubtful]))
            x[:, doubtful] = (self.update(A.take_samples(doubtful)) @ some).samples
        return quick

    # --- determinants
    @property
    def _pivots(self) -> Any:
        """Reciprocals of the pivots, shape (n, n_samples)."""
        if self.tiles is not None:
            return self.tiles.rows(self.plan.diagonal)
        return array_namespace(self.values).take(self.values, asarray_like(self.plan.diagonal, self.values), axis=0)

    def logdet(self) -> Any:
        """The logarithm of the determinant's magnitude, an Ensemble of shape (); NaN where a value of A is not finite.

        Samples in which elimination without exchanges lost many digits, or met a pivot that is zero, are factorised by
        themselves with exchanges, here and in `sign`, `inertia`, `inverse_diagonal` and `inverse_entries`. A is kept
        for that, a copy of it where a sample is broken. A sample whose values in A were changed in place since is NaN.
        The determinant is ``sign * exp(logdet)``, as of ``numpy.linalg.slogdet``, of complex matrices, too.
        """
        return self.logdet_on_host() if self.source is None else bridge.logdet(self)

    def logdet_on_host(self) -> Ensemble:
        """`logdet` of NumPy's or CuPy's values."""
        xp, pivots = array_namespace(self.reference_array), self._pivots
        logarithms = xp.log(magnitudes_of(pivots) if self._is_complex else xp.abs(pivots))
        found = -dot(logarithms, xp.ones_like(logarithms), None)
        return Ensemble(self._replaced(found, lambda A: pivoted_determinant(A)[1]), self.sample_set)

    def sign(self) -> Any:
        """The sign of the determinant, 1 or -1, 0 of a singular matrix, an Ensemble of shape (); NaN as in `logdet`.

        Of complex matrices it is the determinant over its magnitude, a complex number.
        """
        xp = array_namespace(self.reference_array)
        if self._is_complex:
            pivots = self._pivots
            angles = np.arctan2(pivots.imag, pivots.real)
            angle = -dot(angles, np.ones_like(angles), None)
            found = (np.cos(angle) + 1j * np.sin(angle)).astype(self.dtype)
        else:
            found = xp.prod(xp.sign(self._pivots), axis=0)
        found = found * (parity(self.plan.rows) * parity(self.plan.columns))
        signs = self._replaced(found, lambda A: pivoted_determinant(A)[0])
        return Ensemble(signs if self.source is None else asarray_like(signs, self.source.values), self.sample_set)

    @property
    def _is_complex(self) -> bool:
        """Whether the factors are complex."""
        return bool(self.dtype.kind == "c")

    def _require_real(self, method: str, advice: str) -> None:
        """Refuse what complex factors do not serve."""
        if self._is_complex:
            raise TypeError(message(f"{NAME}.{method}", "A", "be real", str(self.dtype), advice))

    def _least_pivot(self) -> np.ndarray:
        """The least of the pivots, shape (n_samples,); NaN for a broken sample."""
        with np.errstate(all="ignore"):
            least: np.ndarray = (1.0 / to_numpy(self._pivots)).min(axis=0, initial=np.inf)
        return least

    def inertia(self) -> np.ndarray:
        """Numbers of negative and positive eigenvalues, shape (2, n_samples), by Sylvester's law; -1 where unknown.

        That is where `logdet` is NaN, and of matrices with more than 2000 rows where exchanges are needed.

        Raises
        ------
        ValueError
            If this is no LDL^T.
        """
        self._require_real("inertia", "Eigenvalues of a complex symmetric matrix have no signs.")
        advice = 'Factorize a symmetric matrix with kind="ldlt".'
        require(self.plan.symmetric, f"{NAME}.inertia", "the factorisation", "be LDL^T", "LU", advice)
        pivots = to_numpy(self._pivots)
        counts = np.stack([(pivots < 0).sum(axis=0), (pivots > 0).sum(axis=0)])
        found: np.ndarray = self._replaced(counts, pivoted_inertia, -1)
        return found

    # --- samples that need exchanges
    @cached_property
    def lossy(self) -> np.ndarray:
        """True for the samples in which elimination without exchanges broke down or lost a third of all digits or more.

        Products solve these samples with exchanges of rows; `apply` does not.
        """
        lossy: np.ndarray = ~(self._growth <= float(np.finfo(self.dtype).eps) ** -LARGE_GROWTH)
        return lossy

    @cached_property
    def _growth(self) -> np.ndarray:
        """The growth of entries per sample; 1 of LDL^T with positive pivots, infinite for a broken sample."""
        pivots, growth = to_numpy(self._pivots), np.ones(self.n_samples)
        if self._is_complex:
            growth[~self.broken] = self._measured_growth()[~self.broken]
            growth[self.broken] = np.inf
            return growth
        doubtful = ~self.broken & ~((pivots > 0.0).all(axis=0) & self.plan.symmetric)
        if doubtful.any():
            values = to_numpy(self.values) if self.tiles is None else self.tiles
            entries = self._entries()
            found = heard(lambda: element_growth(values, self.plan, entries), 2 * self.plan.multiply_adds * growth.size)
            growth[doubtful] = found[doubtful]
        growth[self.broken] = np.inf
        return growth

    def _measured_growth(self) -> np.ndarray:
        """What stands for the growth of complex entries: backward errors of two solutions over rounding, per sample.

        1 where the matrix that was factorised is not known. The solutions are vectors of real numbers that depend on
        the number of rows alone.
        """
        A, most = self._judged_matrix(), np.ones(self.n_samples)
        if A is None:
            return most
        n, rng = self.shape[0], np.random.default_rng(SEED)
        probes = rng.uniform(1.0, 2.0, (n, 2)) * rng.choice([-1.0, 1.0], (n, 2))
        for j in range(2):
            x = np.ascontiguousarray(np.broadcast_to(probes[:, j : j + 1], (n, self.n_samples)), A.dtype)
            b = A.apply(x)
            found = self._solve(asarray_like(b[:, None, :], self.reference_array), False)
            error = larger_error(A, to_numpy(found)[:, 0, :], b)
            most = np.maximum(most, error / float(np.finfo(self.dtype).eps))
        return most

    def _judged_matrix(self) -> CrsMatrix | None:
        """What was factorised, in double precision, of LDL^T made of the upper triangle; None where it is not known."""
        values = self._entries()
        if values is None or self._matrix is None:
            return None
        graph = self._matrix.graph
        A = CrsMatrix(graph, values.astype(np.result_type(values.dtype, np.float64), copy=False))
        if not self.plan.symmetric:
            return A
        rows, columns = graph.row_of_entry, graph.indices
        upper, strict = (np.where(mask[:, None], A.values, 0.0) for mask in (rows <= columns, rows < columns))
        made: CrsMatrix = CrsMatrix(graph, upper) + CrsMatrix(graph, strict).T
        return made

    def _entries(self) -> np.ndarray | None:
        """The values of the matrix that was factorised, on the host; None where it is not known."""
        if self._matrix is None:
            return None
        values: np.ndarray = to_numpy(self._matrix.values)
        return values if self._samples is None or values.shape[1] == 1 else values[:, self._samples]

    def _exchanged(self, s: int) -> tuple[Any, Callable[[], PivotedFactors | None]]:
        """The matrix of sample s, None where it is not known, and its factors with exchanges, which are kept."""
        found = self._exchanged_factors
        if s not in found:
            A = self._matrix_of(s, self._values_of(np.array([s]))[:, 0])
            found[s] = A, cache(partial(pivoted, A))
        return found[s]

    @cached_property
    def _exchanged_factors(self) -> dict[int, tuple[Any, Callable[[], PivotedFactors | None]]]:
        return {}

    @cached_property
    def _refinable(self) -> tuple[CrsMatrix, np.ndarray] | None:
        """The matrix that was factorised, and the samples that need refinement and were not changed since.

        None where there are none, and for factors in single precision.
        """
        A = self._judged_matrix() if np.finfo(self.dtype).bits == 64 else None
        samples = np.flatnonzero(~(self._growth <= GROWTH) & ~self.broken)
        if A is None or not samples.size:
            return None
        assert self._matrix is not None
        places = samples if self._samples is None else self._samples[samples]
        again = self.update(self._matrix.take_samples(places if self._matrix.n_samples > 1 else [0]))
        same = (again._values_of(np.arange(samples.size)) == self._values_of(samples)).all(axis=0)
        return (A, samples[same]) if same.any() else None

    def _refine(self, y: np.ndarray, b: np.ndarray, transposed: bool, like: Any) -> np.ndarray:
        """Correct solutions y by the factors themselves where that suffices; returns the samples that are left.

        y, of shape (n, k, n_samples), is written to; b may have one sample for all. Those are left whose entries grew
        and whose backward errors stay above the limit. `like` is an array where the factors are.
        """
        grown, found = ~(self._growth <= GROWTH), self._refinable
        if found is None:
            return np.flatnonzero(grown)
        A, samples = found
        left, limit = np.zeros(self.n_samples, bool), error_limit(self.dtype)
        left[np.setdiff1d(np.flatnonzero(grown), samples)] = True
        A = as_crs(A.T) if transposed else A
        for j in range(y.shape[1]):
            own = y[:, j], np.broadcast_to(b[:, j], y[:, j].shape)
            x, right = (np.ascontiguousarray(v if self.n_samples == 1 else v[:, samples]) for v in own)
            x, bad = self._refined_columns(A, samples, x, right, transposed, like, limit)
            if self.n_samples == 1:
                y[:, j], left[0] = x, left[0] | bad.any()
            else:
                y[:, j, samples], left[samples] = x, left[samples] | bad
        return np.flatnonzero(left)

    def _refined_columns(
        self, A: CrsMatrix, samples: np.ndarray, x: np.ndarray, b: np.ndarray, transposed: bool, like: Any, limit: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Correct x, solutions of the samples named, where backward errors are above `limit`; mark those that stay."""
        A = A if samples.size == self.n_samples else A.take_samples(samples)
        F = self if samples.size == self.n_samples else self.take_samples(samples)
        error = larger_error(A, x, b)
        for _ in range(REFINEMENTS):
            bad = ~(error <= limit)
            if not bad.any():
                break
            with np.errstate(all="ignore"):
                change = F._solve(asarray_like((b - A.apply(x))[:, None, :], like), transposed)
                corrected = x + to_numpy(change)[:, 0, :]
            latest = larger_error(A, corrected, b)
            better = bad & (latest < error)
            x, error = np.where(better, corrected, x), np.where(better, latest, error)
        return x, ~(error <= limit)

    def _is_accurate(self, y: Any, b: Any, transposed: bool) -> bool:
        """Whether the backward errors show that nothing is to be done, which is less work than the growth is.

        After a few products the growth is: it is known then for all others.
        """
        if transposed or self.plan.symmetric or self._matrix is None or type(y) is not np.ndarray:
            return False
        self._n_judged += 1
        values = self._entries()
        if values is None or (self._n_judged > N_JUDGED and "_growth" not in vars(self)):
            return False
        number = np.result_type(y.dtype, values.dtype, np.float64)
        A = CrsMatrix(self._matrix.graph, values.astype(number, copy=False))
        wide = np.broadcast_to(b, y.shape)
        pairs = ((np.ascontiguousarray(a[:, j], number) for a in (y, wide)) for j in range(y.shape[1]))
        return all((larger_error(A, *pair) <= error_limit(self.dtype)).all() for pair in pairs)

    def _with_exchanges(self, y: Any, b: Any, transposed: bool) -> Any:
        """Solutions of shape (n, k, n_samples), with exchanges those that growth of entries made inaccurate.

        `b` has the shape of y, or one sample for all. NaN where a sample needs exchanges and its matrix is not known.
        """
        known = vars(self).get("_growth")
        if known is not None and (known <= GROWTH).all():
            return y
        if self._is_accurate(y, b, transposed) or (self._growth <= GROWTH).all():
            return y
        made, given, limit = to_numpy(y).copy(), to_numpy(b), error_limit(self.dtype)
        for s in self._refine(made, given, transposed, y).tolist():  # their own cost is that of SuperLU
            A, factors = self._exchanged(s)
            columns = slice(None) if self.n_samples == 1 else slice(s, s + 1)
            own = given[:, :, columns if given.shape[2] > 1 else slice(None)]
            number = np.result_type(self.dtype, np.float64)
            own = np.ascontiguousarray(own.reshape(given.shape[0], -1), number)
            x = np.ascontiguousarray(made[:, :, columns].reshape(own.shape), number)
            if A is not None:
                matrix = CrsMatrix.from_scipy(A.T if transposed else A)
                bad = ~(larger_error(matrix, x, own) <= limit)
            else:
                bad = np.ones(x.shape[1], bool)
            if bad.any():
                pivots = None if A is None else factors()
                x[:, bad] = np.nan if pivots is None else pivots.refined(A, own[:, bad], transposed)
            made[:, :, columns] = x.reshape(made[:, :, columns].shape)
        return asarray_like(made, y)

    def _replaced(self, found: Any, one: Callable[[Any], Any], unknown: float = np.nan) -> Any:
        """`found`, samples in its last axis, with ``one(matrix)`` for the samples that need exchanges."""
        if not self.lossy.any():
            return found
        replaced, lossy = to_numpy(found).copy(), np.flatnonzero(self.lossy)
        values = self._values_of(lossy)
        for i, s in enumerate(lossy.tolist()):
            A = self._matrix_of(s, values[:, i])
            replaced[..., s] = unknown if A is None else one(A)
        return asarray_like(replaced, found)

    def _values_of(self, samples: np.ndarray) -> np.ndarray:
        """The values of the factorisation of some samples, on the host."""
        values = self.values if self.tiles is None else self.tiles.rows(slice(None))
        chosen: np.ndarray = to_numpy(values)[:, samples]
        return chosen

    def _matrix_of(self, s: int, values: np.ndarray) -> Any:
        """The matrix of a sample, of SciPy; None where it is not known, has not these `values`, or is not finite."""
        if self._matrix is None:
            return None
        own = self._matrix.take_samples([s if self._samples is None else int(self._samples[s])])
        if not np.array_equal(to_numpy(self.update(own).values)[:, 0], values, equal_nan=True):  # changed in place
            return None
        A = own.to_scipy().astype(np.result_type(own.dtype, np.float64))
        if self.plan.symmetric:
            A = sp.csr_array(sp.triu(A) + sp.triu(A, 1).T)
        return A if np.isfinite(A.data).all() else None

    # --- entries of the inverse
    @cached_property
    def _inverse(self) -> tuple[Any, Any]:
        _, graph = self.graph.kept(("filled", id(self.plan)), lambda: (self.plan, self._filled_graph()))
        with np.errstate(all="ignore"):
            return graph, self._heard(lambda: selected_inverse(self.values, graph, None), self.values)

    def _filled_graph(self) -> FilledGraph:
        plan = self.plan
        return heard(lambda: filled_graph(plan), FILLED_WORK * plan.n_values)

    def _inverse_at(self, rows: np.ndarray, columns: np.ndarray) -> Ensemble:
        """Entries (row, column) of the inverse."""
        graph, z = self._inverse
        places = entries_in(graph, self.plan, rows, columns)
        xp = array_namespace(z)
        found = xp.take(z, asarray_like(np.maximum(places, 0), z), axis=0) if places.size else z[:0, ...]
        outside = np.flatnonzero(places < 0)
        for j in np.unique(columns[outside]).tolist():  # not in the filled graph: column j of the inverse
            unit = np.zeros((self.shape[0], 1, 1), self.dtype)
            unit[j] = 1.0
            column = self._solve(asarray_like(unit, z), False)
            for t in outside[columns[outside] == j].tolist():
                found[t, :] = column[int(rows[t]), 0, :]
        return Ensemble(self._replaced(found, lambda A: pivoted_inverse(A, rows, columns)), self.sample_set)

    def inverse_diagonal(self) -> Any:
        """The diagonal of the inverse, an Ensemble of shape (n,), without computing the rest of it."""
        self._require_real("inverse_diagonal", "Solve with columns of the identity: F @ columns.")
        own = np.arange(self.shape[0])
        return bridge.given_back(self, f"{NAME}.inverse_diagonal", self._inverse_at(own, own))

    def inverse_entries(self) -> CrsMatrix:
        """Entries of the transposed inverse on the graph of A: at (i, j), entry (j, i) of the inverse.

        That is the derivative of ``log |det A|`` by the entry (i, j) of A. For a symmetric matrix it is the inverse
        itself.
        """
        self._require_real("inverse_entries", "Solve with columns of the identity: F @ columns.")
        found = self.entries_on_host()
        entries = Ensemble(found.values, found.sample_set)
        return CrsMatrix(self.graph, bridge.given_back(self, f"{NAME}.inverse_entries", entries))

    def entries_on_host(self) -> CrsMatrix:
        """`inverse_entries` of NumPy's or CuPy's values."""
        return CrsMatrix(self.graph, self._inverse_at(self.graph.indices.astype(np.int64), self.graph.row_of_entry))


def planned(A: Any, *, kind: str, ordering: Any, matching: str, dtype: DType | None) -> Factorization:
    """What the graph of `A` decides, without numbers: its `update` makes factorisations."""
    made = object.__new__(Factorization)
    made._matching = one_of(matching, ("graph", "mean"), NAME, "matching")
    made._plan(A, kind, ordering, dtype)
    return made


def upper_factorized(A: CrsMatrix) -> Factorization:
    """LDL^T of the entries on and above the diagonal, whatever lies below it."""
    return planned(A, kind="ldlt", ordering="auto", matching="graph", dtype=None).update(A)
