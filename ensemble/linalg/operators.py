"""Operators without stored entries: identity and diagonal; conversion of operands to bare arrays and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, is_array
from ensemble._check import message, require
from ensemble.linalg.arithmetic import MatrixArithmetic, per_sample
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.linear_operator import LinearOperator, MatrixOperator
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set


def samples_of(x: Any) -> Any:
    """The bare array of shape ``(*shape, n_samples)`` of `x`; a plain array or list is one shared sample."""
    if isinstance(x, Ensemble):
        return x.samples
    return (x if is_array(x) else np.asarray(x))[..., None]


def entry_values(name: str, graph: Any, values: Any, axes: int) -> Any:
    """The bare values of a matrix on `graph`, integers as float64, with a sample axis after `axes` others."""
    if not isinstance(graph, CrsGraph):
        raise TypeError(message(name, "graph", "be a CrsGraph", f"a {type(graph).__name__}"))
    values = values.samples if isinstance(values, Ensemble) else values
    values = values if is_array(values) else np.asarray(values)
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "biufc":
            raise TypeError(message(name, "values", "hold numbers", f"dtype {values.dtype}"))
        values = values.astype(np.float64) if values.dtype.kind in "iub" else values
    return values[..., None] if values.ndim == axes else values


def set_of(x: Any) -> SampleSet | None:
    """The sample set of an ensemble or an operator, None where there is none."""
    return x.sample_set if isinstance(x, Ensemble | LinearOperator) else None


def wrap_like(x: Any, samples: Any, n_samples: int, sample_set: SampleSet | None = None) -> Any:
    """`samples` as what the operands call for: plain if `x` is plain and the operator is shared, else an Ensemble.

    `n_samples` and `sample_set` are the operator's.
    """
    if isinstance(x, Ensemble):
        return Ensemble(samples, common_set(x.sample_set, sample_set))
    return samples[..., 0] if n_samples == 1 else Ensemble(samples, sample_set)


def places_of(samples: Any, n_samples: int, function: str, argument: str = "samples") -> np.ndarray:
    """The samples named, counted from 0, once it is sure that there are such; or the rows of an axis."""
    places = np.asarray(samples)
    if places.size and places.dtype.kind not in "iu":
        raise TypeError(message(function, argument, "be integers", f"dtype {places.dtype}"))
    inside = not places.size or (places.min() >= -n_samples and places.max() < n_samples)
    if not inside:
        seen = f"{places.min()} ... {places.max()}"
        raise IndexError(message(function, argument, f"be from {-n_samples} to {n_samples - 1}", seen))
    return places.astype(np.intp) % max(n_samples, 1)


def multiply(operator: Any, x: Any, name: str) -> Any:
    """``operator @ x`` for a vector or an array of columns, plain or Ensemble; `name` is what messages call it.

    `operator` has `shape`, `n_samples`, `dtype` and ``apply(x)`` on bare arrays of shape (n, n_samples). A shared one
    takes columns and samples in one pass.
    """
    if not is_array(x) and not isinstance(x, Ensemble | list | tuple):
        return NotImplemented
    (rows, n), own, samples = operator.shape, operator.n_samples, samples_of(x)
    require(
        samples.ndim > 1 and samples.shape[0] == n, f"{name} @", "x",
        f"have {n} rows (the matrix has shape {tuple(operator.shape)})", f"shape {tuple(samples.shape[:-1])}",
    )  # fmt: skip
    columns, given = samples.shape[1:-1], samples.shape[-1]
    requirement = "have the same n_samples, or 1"
    require(own == given or 1 in (own, given), f"{name} @", "operands", requirement, f"{own} and {given}")
    operator, dtype = _meeting(operator, samples, name)
    n_samples, n_columns, xp = max(own, given), math.prod(columns), array_namespace(samples)
    if own == 1:
        y = operator.apply(contiguous(xp.reshape(samples, (n, n_columns * given)), dtype))
    else:
        wide = xp.broadcast_to(xp.reshape(samples, (n, n_columns, given)), (n, n_columns, n_samples))
        parts = [operator.apply(contiguous(wide[:, j, :], dtype)) for j in range(n_columns)]
        y = xp.stack(parts, axis=1) if parts else xp.zeros((rows, 0), dtype=dtype)
    return wrap_like(x, xp.reshape(y, (rows, *columns, n_samples)), own, set_of(operator))


def _meeting(operator: Any, samples: Any, name: str) -> tuple[Any, Any]:
    """The operator in the type that the product has, and the type to give `samples`."""
    xp, own = array_namespace(samples), operator.dtype
    if isinstance(operator, MatrixOperator):
        dtype = xp.result_type(own, samples.dtype)
        return operator if dtype == own else operator.astype(dtype), dtype
    if xp.isdtype(samples.dtype, "complex floating"):
        raise TypeError(message(f"{name} @", "x", "be real", f"dtype {samples.dtype}"))
    if xp.isdtype(samples.dtype, "real floating"):
        return operator, samples.dtype
    return operator, operator.matrix_dtype


def premultiply(x: Any, operator: Any) -> Any:
    """``x @ operator`` for a row, or an array of rows, plain or Ensemble: the transpose does the work."""
    if not is_array(x) and not isinstance(x, Ensemble | list | tuple):
        return NotImplemented
    row = x if is_array(x) or isinstance(x, Ensemble) else np.asarray(x)
    return operator.T @ row if len(row.shape) < 2 else (operator.T @ row.T).T


class Identity(LinearOperator):
    """The operator that changes nothing: the preconditioner of plain CG."""

    shape = (0, 0)
    queues_kernels = True

    def apply(self, x: Any, out: Any = None) -> Any:
        """`x` itself, or copied into `out`."""
        if out is None:
            return x
        out[...] = x
        return out

    def take_samples(self, samples: Any) -> Identity:
        """The same for every choice of samples."""
        return self

    def __matmul__(self, x: Any) -> Any:
        return x


class Diagonal(MatrixArithmetic, MatrixOperator):
    """A diagonal matrix, for Jacobi preconditioning: ``Diagonal(1 / A.diagonal())``.

    Parameters
    ----------
    entries : Ensemble or array, shape (n,)

    Examples
    --------
    >>> from ensemble.gallery import poisson
    >>> A = poisson((3,), n_samples=2)
    >>> M = Diagonal(1 / A.diagonal())
    >>> (M @ A.diagonal()).samples
    array([[1., 1.],
           [1., 1.],
           [1., 1.]])
    """

    __array_ufunc__ = None
    queues_kernels = True

    def __init__(self, entries: Any) -> None:
        self.entries, self.sample_set = samples_of(entries), set_of(entries)
        require(self.entries.ndim == 2, "Diagonal", "entries", "be a vector", f"shape {tuple(self.entries.shape[:-1])}")
        self.shape = (self.entries.shape[0],) * 2
        self.n_samples = self.entries.shape[1]

    @property
    def reference_array(self) -> Any:
        """An array in the library and on the device of this matrix."""
        return self.entries

    @property
    def dtype(self) -> Any:
        """Type of the entries."""
        return self.entries.dtype

    @property
    def T(self) -> Diagonal:
        """The transpose: itself."""
        return self

    def astype(self, dtype: Any) -> Diagonal:
        """The same entries in another type."""
        xp = array_namespace(self.entries)
        return Diagonal(Ensemble(xp.astype(self.entries, dtype, copy=False), self.sample_set))

    def _plus(self, other: Any) -> Any:
        if not isinstance(other, Diagonal):
            return NotImplemented  # a matrix on a graph takes it
        entries = self.entries + asarray_like(other.entries, self.entries)
        return Diagonal(Ensemble(entries, common_set(self.sample_set, other.sample_set)))

    def _scaled(self, operation: Callable[[Any, Any], Any], factor: Any, sample_set: SampleSet | None) -> Diagonal:
        entries = operation(self.entries, per_sample(factor, self.entries))
        return Diagonal(Ensemble(entries, common_set(self.sample_set, sample_set)))

    def apply(self, x: Any, out: Any = None) -> Any:
        """The product on bare arrays of shape (n, n_samples)."""
        return array_namespace(x).multiply(self.entries, x, **({} if out is None else {"out": out}))

    def take_samples(self, samples: Any) -> Diagonal:
        """The diagonal of the samples named."""
        if self.n_samples == 1:
            return self
        places = places_of(samples, self.n_samples, "Diagonal.take_samples")
        chosen = array_namespace(self.entries).take(self.entries, asarray_like(places, self.entries), axis=1)
        return Diagonal(Ensemble(chosen, self.sample_set and self.sample_set.take(places)))

    def __matmul__(self, x: Any) -> Any:
        return multiply(self, x, "Diagonal")

    def __rmatmul__(self, x: Any) -> Any:
        return premultiply(x, self)
