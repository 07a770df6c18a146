"""`TriangularFactors`: values of an elimination for many samples, and solutions with them.

Longer than 400 lines: one class, its transpose, and the places of their values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, copy_in_pieces, is_array, is_traced, to_numpy
from ensemble._check import kind_of, message, one_of, places_of, require, samples_text
from ensemble._compile.numba import LONG, heard
from ensemble._compile.registry import into
from ensemble._kernels.direct.forms.by_tiles import (
    empty_tiles,
    factorized_tiles,
    has_tiles,
    solved_at_once,
    solved_tiles,
)
from ensemble._kernels.direct.forms.copies import copy_samples
from ensemble._kernels.direct.forms.tiles import Tiles
from ensemble._kernels.direct.forms.triangular import factor_solve
from ensemble._kernels.direct.on_device import factorized_with_solution
from ensemble._kernels.direct.symbolic.elimination import Elimination
from ensemble._kernels.sparse.complex_numbers import complex_of
from ensemble._typing import Ids
from ensemble.linalg.bridge.factors import product, source_and_host
from ensemble.linalg.bridge.host import host_view, is_elsewhere
from ensemble.linalg.crs_matrix import CrsMatrix, is_matrix
from ensemble.linalg.factorizations.orderings import checked_order
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.linear_operator import LinearOperator
from ensemble.linalg.operators import is_shared, numbers_of, premultiply, samples_of, wrap_like
from ensemble.linalg.square_matrices import factor_dtype, matrix_of, require_symmetric
from ensemble.linalg.symmetric import SymmetricCrsMatrix
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import common_set

__all__ = [
    "ConjugateFactors",
    "TransposedFactors",
    "TriangularFactors",
    "factor_tiles",
    "put_samples",
    "updated",
    "with_capacity",
]

Factors = TypeVar("Factors", bound="TriangularFactors")
Result = TypeVar("Result")

PLAN_WORK = 1000
"""Multiply-adds that take as long as one entry of a graph in an order of elimination, about (`benchmarks direct`)."""


class TriangularFactors(LinearOperator):
    """LU or LDL^T of many matrices by an elimination without exchanges, as the operator that solves with them."""

    __array_ufunc__ = None
    _orderings: tuple[str, ...] = ("auto",)
    _options: tuple[Any, ...] = ()
    """What else the elimination of a graph depends on."""
    _takes_complex = False
    """Whether factors may be complex: products alone know what to do with them."""
    tiles: Tiles | None = None
    """The values of many samples in NumPy's arrays, where they lie by tiles."""
    _matrix: CrsMatrix | None = None
    """What the values were worked out from, a copy where a sample broke; that of `_samples` where these are given."""
    _samples: np.ndarray | None = None
    _marks: Any = None
    """NaN for each sample that broke, else zero, until `_settle` knows them."""
    source: CrsMatrix | None = None
    """The matrix whose values are of PyTorch, JAX or another library; None where they are of NumPy or CuPy."""
    is_deferred = False
    """Whether the values are not known while JAX transforms a function: factors are made when it runs."""

    def __init__(self, A: Any, kind: str, ordering: Any, dtype: Any) -> None:
        matrix = self._plan(A, kind, ordering, dtype)
        if self.plan.symmetric and not isinstance(A, SymmetricCrsMatrix) and not is_traced(matrix.values):
            require_symmetric(matrix, self.name)
        self._put(matrix)

    def _plan(self, A: Any, kind: str, ordering: Any, dtype: Any) -> CrsMatrix:
        """Check arguments and work out the elimination; returns the matrix."""
        name = self.name
        one_of(kind, ("auto", "ldlt", "lu"), name, "kind")
        symmetric = kind == "ldlt" or (kind == "auto" and isinstance(A, SymmetricCrsMatrix))
        matrix = matrix_of(A, name)
        n = matrix.shape[0]
        self.graph, self.shape = matrix.graph, (n, n)
        self.dtype = factor_dtype(matrix, name, dtype, self._takes_complex)
        order = checked_order(ordering, n, name, self._orderings)
        self.plan = self._plan_for(matrix, symmetric, order)
        return matrix  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """The class in messages."""
        return type(self).__name__.removeprefix("Transposed")

    def _planned(self, graph: CrsGraph, symmetric: bool, ordering: np.ndarray | str) -> Elimination:
        """The elimination of a graph."""
        raise NotImplementedError

    def _plan_for(self, A: CrsMatrix, symmetric: bool, ordering: np.ndarray | str) -> Elimination:
        """The elimination of `A`, made once per graph."""
        key = (self.name, symmetric, ordering if isinstance(ordering, str) else ordering.tobytes(), *self._options)
        plan: Elimination = A.graph.kept(
            key, lambda: self._heard_plan(A.graph, lambda: self._planned(A.graph, symmetric, ordering))
        )
        return plan

    def _heard_plan(self, graph: CrsGraph, call: Callable[[], Result]) -> Result:
        """Return what `call` works out from a graph; where that takes long, Ctrl-C interrupts it."""
        return heard(call, PLAN_WORK * (graph.nnz + graph.shape[0]))

    def _put(self, A: CrsMatrix, b: Any = None) -> Any:
        """The numbers of the matrix `A` on this graph; the product with bare `b` of the same samples, or None.

        With `b`, a device is not waited for: `_marks` may be set then, and `_settle` is yet to be called.
        """
        self.sample_set, self.n_samples, self.batched = A.sample_set, A.values.shape[1], A.batched
        self.source, A = source_and_host(A, self.name)
        self._matrix = A
        if A is self.source:
            self.is_deferred, self.broken = True, np.zeros(self.n_samples, bool)
            return None
        if has_tiles(self.plan) and type(A.values) is np.ndarray and self.n_samples > 1:
            values, x = np.ascontiguousarray(A.values, self.dtype), None
            if b is None:
                self.tiles, broken = self._heard(lambda: factorized_tiles(values, self.plan), values)
            else:
                x, self.tiles, broken = self._heard(lambda: solved_at_once(values, self.plan, b, False, True), values)
            self.broken = broken != broken
            if self.broken.any():
                assert self.tiles is not None
                self.tiles.fill(np.flatnonzero(self.broken), np.nan)
                self._copy_matrix()
            return x
        xp = array_namespace(A.values)
        values = contiguous(xp.astype(A.values, getattr(xp, self.dtype.name), copy=False))
        with np.errstate(all="ignore"):  # a broken sample's arithmetic concerns no other
            self.values, broken, x = self._heard(lambda: factorized_with_solution(values, self.plan, b), values)
        if x is None:
            self._settle(to_numpy(broken), None)
        else:
            self._marks = broken
        return x

    def _heard(self, call: Callable[[], Result], values: Any) -> Result:
        """A factorisation of `values`; Ctrl-C is heard while it runs on the CPU."""
        own = type(values) is np.ndarray
        return heard(call, self.plan.multiply_adds * values.shape[1]) if own else call()

    def _settle(self, marks: np.ndarray, x: Any) -> bool:
        """Put NaN into the values and into the product `x` of samples whose marks are NaN; whether there are any."""
        self.broken, self._marks = marks != marks, None
        found = bool(self.broken.any())
        if found:  # half of their values may be numbers
            for array in (self.values,) if x is None else (self.values, x):
                array[:, asarray_like(self.broken, array)] = np.nan
            self._copy_matrix()
        return found

    def _copy_matrix(self) -> None:
        """Keep a copy of the matrix: the values of broken samples do not tell whether it was changed in place."""
        A = self._matrix
        assert A is not None
        values = array_namespace(A.values).asarray(A.values, copy=True)
        self._matrix = CrsMatrix(A.graph, Ensemble(values, A.sample_set))

    @cached_property
    def values(self) -> Any:
        """The values of the factorisation, shape (n_values, n_samples)."""
        if self.is_deferred:
            assert self.source is not None
            host_view(self.source.values, self.name, "A")  # which says that they are not known
        assert self.tiles is not None
        return self.tiles.rows(slice(None))

    def _with_plan(self) -> Self:
        """Another object on the same graph, without values."""
        made = object.__new__(type(self))
        made.graph, made.shape, made.plan, made.dtype = self.graph, self.shape, self.plan, self.dtype
        return made

    def __repr__(self) -> str:
        kind = "LDL^T" if self.plan.symmetric else "LU"
        text = f"{self.name}({kind}, shape={self.shape}, {self.n_values} values, n_samples={self.n_samples}"
        broken = np.flatnonzero(self.broken)
        return f"{text}, {self.dtype}{f'; broken: {samples_text(broken)}' if broken.size else ''})"

    def update(self, A: Any) -> Self:
        """The factorisation of other values on the same graph, in the same order; this one is not changed.

        Raises
        ------
        ValueError
            If `A` has another graph.
        """
        A = self._checked(A)
        made = self._with_plan()
        made._put(A)
        return made

    def _checked(self, A: Any) -> CrsMatrix:
        """`A` as a `CrsMatrix` on this graph."""
        if type(A) is CrsMatrix and A.graph is self.graph and A.values.dtype == self.dtype:
            return A
        matrix, name = matrix_of(A, self.name), self.name
        require(
            self.graph.same_as(matrix.graph), f"{name}.update", "A", "have the same graph", repr(matrix.graph),
            f"Make a new {name}.",
        )  # fmt: skip
        factor_dtype(matrix, name, None, self.dtype.kind == "c")
        return matrix  # type: ignore[no-any-return]

    def _update_and_apply(self, A: CrsMatrix, b: Any) -> tuple[Self, Any]:
        """`update`, and the product with bare `b`, shape (n, n_samples), or None where that takes another pass.

        Where `_marks` of the first are not None, the caller calls its `_settle` with them.
        """
        A, made = self._checked(A), self._with_plan()
        own = self.dtype if type(b) is np.ndarray else getattr(array_namespace(b), self.dtype.name)
        together = b.dtype == own and b.shape[1] == A.values.shape[1]
        return made, made._put(A, b if together else None)

    # --- what it is
    @property
    def n_values(self) -> int:
        """Numbers kept for one sample."""
        return self.plan.n_values

    @property
    def multiply_adds(self) -> int:
        """Multiplications of one sample's factorisation."""
        return self.plan.multiply_adds

    def _reciprocal_pivots(self) -> Any:
        """Reciprocals of the pivots in the order of the rows of A, shape (n, n_samples), in an array of their own."""
        places = self.plan.diagonal[np.argsort(self.plan.rows)]
        if self.tiles is not None:
            return self.tiles.rows(places)
        values = self.values
        return array_namespace(values).take(values, asarray_like(places, values), axis=0)

    @property
    def reference_array(self) -> Any:
        """An array in the library and on the device of the values."""
        if self.is_deferred and self.source is not None:
            return self.source.values
        return self.values if self.tiles is None else self.tiles.data

    def take_samples(self, samples: Ids) -> Self:
        """The factorisation of the samples named, in that order; a shared one is its own answer."""
        if self.n_samples == 1:
            return self
        places = places_of(samples, self.n_samples, f"{self.name}.take_samples")
        values = contiguous(array_namespace(self.values).take(self.values, asarray_like(places, self.values), axis=1))
        made = self._with_plan()
        made.values, made.broken, made.n_samples = values, self.broken[places], places.size
        made._matrix, made.batched = self._matrix, self.batched
        made._samples = places if self._samples is None else self._samples[places]
        made.sample_set = self.sample_set and self.sample_set.take(places)
        return made

    # --- solutions
    def apply(self, x: Any, out: Any = None) -> Any:
        """A^-1 x on bare arrays of shape (n, n_samples)."""
        return self._solve(x[:, None, :], False, None if out is None else out[:, None, :])[:, 0, :]

    def apply_columns(self, x: Any) -> Any:
        """A^-1 x on bare arrays of shape (n, k, n_samples)."""
        wide = array_namespace(x).reshape(x, (x.shape[0], 1, -1)) if self.n_samples == 1 else x
        return array_namespace(x).reshape(self._solve(wide, False), x.shape)

    def _solve(self, b: Any, transposed: bool, out: Any = None) -> Any:
        if self.dtype.kind == "c" and b.dtype != self.dtype:  # kernels have complex numbers of one type
            wide = np.result_type(b.dtype, np.complex64)
            return into(out, self._solve(b.astype(self.dtype), transposed).astype(wide))
        tiles = self.tiles
        if tiles is not None and type(b) is np.ndarray and (b.dtype == self.dtype or self.plan.flat is None):
            return self._heard_solution(lambda place: solved_tiles(tiles, self.plan, b, transposed, place), b, out)
        values = self.values
        if values.shape[1] != 1 and b.shape[2] == 1:
            b = contiguous(array_namespace(b).broadcast_to(b, (*b.shape[:2], values.shape[1])))
        with np.errstate(all="ignore"):
            if type(values) is not np.ndarray:
                return factor_solve(values, self.plan, b, transposed, out)
            return self._heard_solution(lambda place: factor_solve(values, self.plan, b, transposed, place), b, out)

    def _heard_solution(self, call: Callable[[Any], Any], b: Any, out: Any) -> Any:
        """A substitution with `b`, shape (n, k, n_samples), in `out` or new memory; Ctrl-C is heard while it runs."""
        work = self.plan.n_values * b.shape[1] * max(b.shape[2], self.n_samples)
        if work < LONG:
            return call(out)
        made = heard(lambda: call(None), work)  # after an interrupt the code goes on, and must not write to `out`
        if out is None:
            return made
        copy_in_pieces(out, made)
        return out

    def _with_exchanges(self, y: Any, b: Any, transposed: bool) -> Any:
        """Solutions with those of the samples that need exchanges of rows; the solutions themselves where none does."""
        return y

    def _multiply(self, x: Any, transposed: bool) -> Any:
        if self.source is not None or is_elsewhere(x):
            return product(self, x, transposed)
        if self.tiles is not None and (quick := self._multiply_vector(x, transposed)) is not None:
            return quick
        name, n, own = self.name + (".T" if transposed else ""), self.shape[0], self.n_samples
        if is_matrix(x):
            advice = "Give its columns as an array of shape (n, k)."
            raise TypeError(message(f"{name} @", "x", "be a vector or an array", kind_of(x), advice))
        numbers_of(x, f"{name} @", "x")
        samples = samples_of(x)
        require(
            samples.ndim > 1 and samples.shape[0] == n, f"{name} @", "x", f"have {n} rows",
            f"shape {tuple(samples.shape[:-1])}",
        )  # fmt: skip
        given, columns, xp = samples.shape[-1], samples.shape[1:-1], array_namespace(samples)
        requirement = "have the same n_samples, or 1"
        require(own == given or 1 in (own, given), f"{name} @", "operands", requirement, f"{own} and {given}")
        dtype = samples.dtype
        if self.dtype.kind == "c":
            dtype = np.result_type(dtype if dtype.kind in "fc" else np.float64, np.complex64)
        elif xp.isdtype(dtype, "complex floating"):
            parts = [self._multiply(Ensemble(part(samples)), transposed).samples for part in (xp.real, xp.imag)]
            return wrap_like(x, complex_of(*parts), is_shared(self), self.sample_set)
        elif not xp.isdtype(dtype, "real floating"):
            dtype = xp.float64
        count = int(np.prod(columns, dtype=np.int64))
        if own == 1:  # columns and samples alike are right-hand sides of one matrix
            b = contiguous(xp.reshape(samples, (n, 1, count * given)), dtype)
        else:
            b = contiguous(xp.reshape(samples, (n, count, given)), dtype)
        y = self._with_exchanges(self._solve(b, transposed), b, transposed)
        return wrap_like(x, xp.reshape(y, (n, *columns, max(own, given))), is_shared(self), self.sample_set)

    def _multiply_vector(self, x: Any, transposed: bool) -> Ensemble | None:
        """The product with one vector for all samples, or one for each, that needs no conversion; else None."""
        given = type(x) is Ensemble
        samples, wanted = (x.samples, (self.shape[0], self.n_samples)) if given else (x, self.shape[:1])
        fits = type(samples) is np.ndarray and samples.shape == wanted and samples.dtype == self.dtype
        if not (fits and samples.flags.c_contiguous):
            return None
        b = samples[:, None, :] if given else samples[:, None, None]
        own = common_set(x.sample_set, self.sample_set) if given else self.sample_set
        y = self._with_exchanges(self._solve(b, transposed), b, transposed)
        return Ensemble(y[:, 0, :], own)

    def _solved_at_once(self, A: Any, b: Any) -> Ensemble | None:
        """``update(A) @ b`` in one pass where nothing needs conversion, as in `_multiply_vector`; else None."""
        if type(A) is not CrsMatrix or A.graph is not self.graph or not has_tiles(self.plan):
            return None
        values, given, dtype = A.values, type(b) is Ensemble, self.dtype
        samples, n_samples = b.samples if given else b, values.shape[1]
        wanted = (self.shape[0], n_samples) if given else self.shape[:1]
        if not (
            type(values) is np.ndarray and type(samples) is np.ndarray and samples.shape == wanted and n_samples > 1
            and values.dtype == samples.dtype == dtype and samples.flags.c_contiguous
        ):  # fmt: skip
            return None
        own = common_set(b.sample_set, A.sample_set) if given else A.sample_set
        x, *_ = self._heard(lambda: solved_at_once(values, self.plan, samples, not given, False), values)
        return Ensemble(x, own)

    def __matmul__(self, x: Any) -> Any:
        return self._multiply(x, False)

    def __rmatmul__(self, x: Any) -> Any:
        return premultiply(x, self)

    @property
    def T(self) -> TransposedFactors:
        """The inverse of the transpose, as an operator on the same values."""
        return TransposedFactors(self)

    @property
    def H(self) -> LinearOperator:
        """The inverse of the conjugate transpose, as an operator on the same values; `T` where they are real."""
        return ConjugateFactors(self) if self.dtype.kind == "c" else self.T


class FactorsView(LinearOperator):
    """An inverse on the values of `TriangularFactors`, other than that of the matrix itself.

    Attributes
    ----------
    factors : TriangularFactors
    """

    __array_ufunc__ = None

    def __init__(self, factors: TriangularFactors) -> None:
        self.factors = factors
        self.shape, self.n_samples, self.dtype = factors.shape, factors.n_samples, factors.dtype
        self.sample_set, self.reference_array = factors.sample_set, factors.reference_array
        self.batched = factors.batched

    def sample(self, i: int) -> Self:
        """Return the factors of sample `i` alone, without an axis of samples in products."""
        return type(self)(self.factors.sample(i))

    def take_samples(self, samples: Ids) -> Self:
        """Return the factors of the samples named, in that order."""
        return type(self)(self.factors.take_samples(samples))

    def __rmatmul__(self, x: Any) -> Any:
        return premultiply(x, self)


class TransposedFactors(FactorsView):
    """``F.T`` of `TriangularFactors`: solves with the transposed matrix."""

    def __repr__(self) -> str:
        return f"{self.factors!r}.T"

    @property
    def T(self) -> TriangularFactors:
        """The factors."""
        return self.factors

    def apply(self, x: Any, out: Any = None) -> Any:
        """A^-T x on bare arrays of shape (n, n_samples)."""
        return self.factors._solve(x[:, None, :], True, None if out is None else out[:, None, :])[:, 0, :]

    def __matmul__(self, x: Any) -> Any:
        return self.factors._multiply(x, True)


class ConjugateFactors(FactorsView):
    """``F.H`` of complex `TriangularFactors`: solves with the conjugate transpose of the matrix."""

    def __repr__(self) -> str:
        return f"{self.factors!r}.H"

    @property
    def H(self) -> TriangularFactors:
        """The factors."""
        return self.factors

    def apply(self, x: Any, out: Any = None) -> Any:
        """A^-H x on bare arrays of shape (n, n_samples)."""
        return into(out, np.conj(self.factors.T.apply(np.conj(x))))

    def __matmul__(self, x: Any) -> Any:
        return _conjugate(self.factors.T @ _conjugate(x))


def _conjugate(x: Any) -> Any:
    """The conjugate of a vector; what holds no numbers is refused by the product."""
    if isinstance(x, Ensemble):
        return Ensemble(_conjugate(x.samples), x.sample_set)
    x = np.asarray(x) if isinstance(x, list | tuple) else x
    return array_namespace(x).conj(x) if is_array(x) and "complex" in str(x.dtype) else x


def with_capacity(like: Factors, n_samples: int) -> Factors:
    """Factors on the graph of `like` for `n_samples` samples of NumPy's, to be filled by `put_samples`."""
    made = like._with_plan()
    made.n_samples, made.sample_set, made.broken = n_samples, None, np.ones(n_samples, bool)
    if has_tiles(made.plan) and n_samples > 1:
        made.tiles = empty_tiles(made.plan, n_samples, made.dtype)
        made.tiles.data[...] = np.nan
    else:
        made.values = np.full((made.plan.n_values, n_samples), np.nan, made.dtype)
    return made


def updated(like: Factors, values: np.ndarray) -> Factors:
    """`update` of entries of NumPy's on the graph of `like`, (nnz, n_samples), of its dtype and all known to fit.

    The matrix is not kept: products are not judged.
    """
    if not has_tiles(like.plan):
        return like.update(CrsMatrix(like.graph, values))
    made = like._with_plan()
    made.n_samples, made.sample_set, made.batched = values.shape[1], None, True
    made.tiles, broken = factorized_tiles(values, made.plan)
    made.broken = broken != broken
    if made.broken.any():
        made.tiles.fill(np.flatnonzero(made.broken), np.nan)
    return made


def factor_tiles(factors: TriangularFactors) -> np.ndarray | None:
    """The values by tiles, (n_tiles, n_values, width), of factors by a list; None of others."""
    return None if factors.plan.flat is None else _by_tiles(factors)


def put_samples(kept: TriangularFactors, places: np.ndarray, other: TriangularFactors, chosen: np.ndarray) -> None:
    """Replace samples `places` of `kept` by samples `chosen` of factors on the same graph, in place."""
    copy_samples(_by_tiles(kept), places, _by_tiles(other), chosen)
    kept.broken[places] = other.broken[chosen]
    if kept.tiles is not None:
        vars(kept).pop("values", None)


def _by_tiles(factors: TriangularFactors) -> np.ndarray:
    """The values, shape (n_tiles, n_values, width); one wide tile where they are in the usual order."""
    values: np.ndarray = factors.values[None] if factors.tiles is None else factors.tiles.data
    return values
