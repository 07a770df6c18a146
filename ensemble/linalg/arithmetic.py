"""Arithmetic on matrices: sums, differences, and multiples by a number or by one number per sample."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, is_array, to_numpy
from ensemble._check import kind_of, message, require
from ensemble._compile.kept_memory import empty
from ensemble.linalg.graph import CrsGraph
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet

ZEROS_AT_ONCE = 1 << 22
"""Values that one step of the search for zeros compares."""


class MatrixArithmetic:
    """``A + B``, ``A - B``, ``a * A``, ``A / a`` and ``-A`` for a class with `_plus` and `_scaled`.

    `a` is a number, or an Ensemble of shape (): one number per sample.
    """

    shape: Any
    n_samples: Any
    dtype: Any
    T: Any

    def _plus(self, other: Any) -> Any:
        """The sum with `other`, or NotImplemented."""
        raise NotImplementedError

    def _scaled(self, operation: Callable[[Any, Any], Any], factor: Any, sample_set: SampleSet | None) -> Any:
        """``operation(A, factor)``, a product or quotient; `factor` is a number or an array of shape (n_samples,)."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        if isinstance(other, numbers.Number) and not other:  # what `sum` starts from
            return self
        if isinstance(other, numbers.Number | Ensemble) or is_array(other):
            advice = "Diagonal(e) has the numbers e on its diagonal."
            self._refuse("+", "be a sparse matrix", other, advice)
        self._check_pair("+", other)
        return self._plus(other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if hasattr(other, "tocsr") and other.dtype.kind in "biu":  # the minus of -128 in 8 bits is -128
            other = other.astype(np.float64)
        return self + (other if is_array(other) or not hasattr(other, "__neg__") else -other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> Any:
        return self._scaled(operator.mul, -1, None)

    def __pos__(self) -> Any:
        return self

    def __mul__(self, factor: Any) -> Any:
        return self._times(operator.mul, "*", factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Any:
        return self._times(operator.truediv, "/", divisor)

    def conj(self) -> Any:
        """The matrix of conjugate values; itself where they are real."""
        if "complex" not in str(self.dtype):
            return self
        return self._scaled(lambda values, _: array_namespace(values).conj(values), 1, None)

    @property
    def H(self) -> Any:
        """The conjugate transpose; the transpose where values are real."""
        return self.conj().T

    def _times(self, operation: Callable[[Any, Any], Any], symbol: str, factor: Any) -> Any:
        if isinstance(factor, Ensemble) and factor.ndim == 0:
            self._check_pair(symbol, factor)
            return self._scaled(operation, factor.samples, factor.sample_set)
        if not isinstance(factor, numbers.Number) and not (is_array(factor) and factor.ndim == 0):
            advice = "A product of matrices is A @ B; kappa * (A @ x) scales the rows of a product."
            self._refuse(symbol, "be a number or an Ensemble of shape ()", factor, advice)
        return self._scaled(operation, factor, None)

    def _refuse(self, symbol: str, requirement: str, other: Any, advice: str) -> None:
        shape = f" of shape {tuple(other.shape)}" if isinstance(other, Ensemble) or is_array(other) else ""
        seen = f"{kind_of(other)}{shape}"
        raise TypeError(message(f"{type(self).__name__} {symbol}", "the other operand", requirement, seen, advice))

    def _check_pair(self, symbol: str, other: Any) -> None:
        """`other` has this matrix's shape, if it is a matrix, and its samples."""
        name, shape = f"{type(self).__name__} {symbol}", tuple(getattr(other, "shape", ()))
        require(not shape or shape == self.shape, name, "operands", "have one shape", f"{self.shape} and {shape}")
        own, given = self.n_samples, getattr(other, "n_samples", 1)
        agree = own == given or 1 in (own, given)
        require(agree, name, "operands", "have the same n_samples, or 1", f"{own} and {given}")


UFUNCS: dict[Any, np.ufunc] = {operator.add: np.add, operator.mul: np.multiply, operator.truediv: np.true_divide}


def computed(operation: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """``operation(a, b)``; large arrays of NumPy get memory that is kept for the next one."""
    if type(a) is not np.ndarray or a.dtype.kind != "f" or operation not in UFUNCS:
        return operation(a, b)
    if type(b) is not np.ndarray and not isinstance(b, int | float):
        return operation(a, b)
    out = empty(np.broadcast_shapes(a.shape, np.shape(b)), np.result_type(a, b))
    return UFUNCS[operation](a, b, out=out)


def per_sample(factor: Any, values: Any) -> Any:
    """`factor` in the library and on the device of `values`, whose last axis is that of samples."""
    return asarray_like(factor, values) if is_array(factor) else factor


def united(a: CrsGraph, b: CrsGraph) -> tuple[CrsGraph, np.ndarray | None, np.ndarray | None]:
    """The union of two graphs, and for each of its entries the position of the entry in `a` and in `b`, or -1.

    None instead of positions where the union is the graph itself.
    """
    if a.same_as(b):
        return a, None, None
    n_rows, n_columns = a.shape
    union, place = np.unique(np.concatenate([a.keys, b.keys]), return_inverse=True)
    first, second = (np.full(union.size, -1, np.int64) for _ in range(2))
    first[place[: a.nnz]], second[place[a.nnz :]] = np.arange(a.nnz), np.arange(b.nnz)
    starts = np.searchsorted(union, np.arange(n_rows + 1, dtype=np.int64) * n_columns)
    indptr = starts.astype(np.int32 if union.size < 2**31 else np.int64)
    return CrsGraph.unchecked(indptr, (union % max(n_columns, 1)).astype(a.indices.dtype), a.shape), first, second


def placed(values: Any, positions: np.ndarray | None) -> Any:
    """The rows of `values` at `positions`, zero where a position is -1; `values` itself without positions."""
    if positions is None:
        return values
    xp = array_namespace(values)
    found = asarray_like(positions >= 0, values)[:, None]
    if values.shape[0] == 0:
        return xp.zeros((positions.size, values.shape[1]), dtype=values.dtype)
    rows = xp.take(values, asarray_like(np.maximum(positions, 0), values), axis=0)
    return xp.where(found, rows, xp.zeros_like(rows))


def nonzero_rows(values: Any) -> np.ndarray:
    """True for each row of `values` that is not zero in every column; NaN is not zero."""
    xp, step = array_namespace(values), max(1, ZEROS_AT_ONCE // values.shape[1])
    starts, end = range(0, values.shape[0], step), values.shape[0]
    parts = [to_numpy(xp.any(values[k : min(k + step, end), ...] != 0, axis=1)) for k in starts]
    return np.concatenate([np.zeros(0, bool), *parts])


def product_terms(a: CrsGraph, b: CrsGraph, product: CrsGraph) -> tuple[np.ndarray, np.ndarray, CrsGraph]:
    """The terms of a product: the numbers of their entries in both factors, and the graph of a matrix of sums."""
    counts = np.diff(b.indptr)[a.indices]
    first = np.repeat(np.arange(a.nnz), counts)
    starts = np.repeat(b.indptr[:-1][a.indices] - np.cumsum(counts) + counts, counts)
    second = starts + np.arange(first.size)
    columns = b.indices[second].astype(np.int64)
    entry = np.searchsorted(product.keys, a.row_of_entry[first] * np.int64(product.shape[1]) + columns)
    order = np.argsort(entry, kind="stable")
    starts = np.searchsorted(entry[order], np.arange(product.nnz + 1))
    sums = CrsGraph.unchecked(starts, np.arange(first.size), (product.nnz, first.size))
    return first[order], second[order], sums
