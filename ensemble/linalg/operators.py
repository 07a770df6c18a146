"""The identity operator; conversion of operands to bare arrays and back."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, contiguous, is_array
from ensemble._check import array_of, kind_of, message, require, require_one_library, require_unmasked
from ensemble._kernels.sparse.complex_numbers import complex_of
from ensemble._typing import Ids, Vectors
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.linear_operator import LinearOperator, MatrixOperator
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set


def samples_of(x: Any) -> Any:
    """The bare array of shape ``(*shape, n_samples)`` of `x`; a plain array or list is one shared sample."""
    if isinstance(x, Ensemble):
        return x.samples
    return (x if is_array(x) else np.asarray(x))[..., None]


def numbers_of(value: Any, function: str, argument: str) -> Any:
    """The bare array of `value`, whose entries are numbers; an Ensemble's with its sample axis."""
    if isinstance(value, Ensemble):
        return value.samples
    array = value if is_array(value) else array_of(value, function, argument, "hold numbers")
    if isinstance(array, np.ndarray) and array.dtype.kind not in "biufc":
        raise TypeError(message(function, argument, "hold numbers", f"dtype {array.dtype}"))
    require_unmasked(array, function, argument)
    return array


def with_sample_axis(value: Any, axes: int, function: str, argument: str, requirement: str, advice: str = "") -> Any:
    """The bare numbers of `value`, integers as real numbers: `axes` axes, and that of samples as the last.

    An Ensemble has its sample axis. A plain array of `axes` axes gets one; one of `axes` + 1 axes has it.
    """
    samples = numbers_of(value, function, argument)
    if samples.ndim == axes and not isinstance(value, Ensemble):
        samples = samples[..., None]
    require(samples.ndim == axes + 1, function, argument, requirement, shape_text(value), advice)
    return as_real(samples)


def as_real(samples: Any) -> Any:
    """Integers and bools as the library's real numbers, float64 in NumPy; other numbers as they are."""
    if isinstance(samples, np.ndarray):
        return samples.astype(np.float64) if samples.dtype.kind in "iub" else samples
    xp = array_namespace(samples)
    if not xp.isdtype(samples.dtype, ("bool", "integral")):
        return samples
    return xp.astype(samples, xp.__array_namespace_info__().default_dtypes()["real floating"])


def shape_text(value: Any) -> str:
    """The shape of an argument for a message: of an Ensemble the visible one."""
    if isinstance(value, Ensemble):
        return f"an Ensemble of shape {tuple(value.shape)} with {value.n_samples} samples"
    return f"shape {tuple(value.shape if is_array(value) else np.shape(value))}"


def entry_values(name: str, graph: Any, values: Any, axes: int, requirement: str, advice: str = "") -> Any:
    """The bare values of a matrix on `graph`, integers as real numbers, with a sample axis after `axes` others."""
    if not isinstance(graph, CrsGraph):
        raise TypeError(message(name, "graph", "be a CrsGraph", kind_of(graph)))
    samples = with_sample_axis(values, axes, name, "values", requirement, advice)
    require(samples.shape[0] == graph.nnz, name, "values", requirement, shape_text(values), advice)
    return samples


def has_sample_axis(values: Any, axes: int) -> bool:
    """Whether a plain array of values of `axes` axes came with one of samples: a batch, of one sample too."""
    ndim = getattr(values, "ndim", None)
    return not isinstance(values, Ensemble) and (np.ndim(values) if ndim is None else ndim) == axes + 1


def set_of(x: Any) -> SampleSet | None:
    """The sample set of an ensemble or an operator, None where there is none."""
    return x.sample_set if isinstance(x, Ensemble | LinearOperator) else None


def is_shared(*operators: Any) -> bool:
    """Whether products of the operators with plain arrays are plain: none holds samples, a batch of one included."""
    return all(operator.n_samples == 1 and not getattr(operator, "batched", False) for operator in operators)


def wrap_like(x: Any, samples: Any, shared: bool, sample_set: SampleSet | None = None) -> Any:
    """`samples` as what the operands call for: plain if `x` is plain and the operator `shared`, else an Ensemble.

    `sample_set` is the operator's.
    """
    if isinstance(x, Ensemble):
        return Ensemble(samples, common_set(x.sample_set, sample_set))
    return samples[..., 0] if shared else Ensemble(samples, sample_set)


def multiply(operator: Any, x: Any, name: str) -> Any:
    """``operator @ x`` for a vector or an array of columns, plain or Ensemble; `name` is what messages call it.

    `operator` has `shape`, `n_samples`, `dtype` and ``apply(x)`` on bare arrays of shape (n, n_samples). A shared one
    takes columns and samples in one pass.
    """
    product = _short_product(operator, x)
    if product is not None:
        return product
    if not is_array(x) and not isinstance(x, Ensemble | list | tuple):
        return NotImplemented
    x = x if isinstance(x, Ensemble) else numbers_of(x, f"{name} @", "x")
    (rows, n), own, samples = getattr(operator, "local_shape", operator.shape), operator.n_samples, samples_of(x)
    require(
        samples.ndim > 1 and samples.shape[0] == n, f"{name} @", "x",
        f"have {n} rows (the matrix has shape {tuple(operator.shape)})", f"shape {tuple(samples.shape[:-1])}",
    )  # fmt: skip
    columns, given = samples.shape[1:-1], samples.shape[-1]
    requirement = "have the same n_samples, or 1"
    require(own == given or 1 in (own, given), f"{name} @", "operands", requirement, f"{own} and {given}")
    operator, dtype, by_parts = _meeting(operator, samples, name)
    n_samples, n_columns, xp = max(own, given), math.prod(columns), array_namespace(samples)
    product = functools.partial(product_of_parts, operator.apply, own == 1) if by_parts else operator.apply
    if own == 1:
        y = product(contiguous(xp.reshape(samples, (n, n_columns * given)), dtype))
    else:
        wide = xp.broadcast_to(xp.reshape(samples, (n, n_columns, given)), (n, n_columns, n_samples))
        parts = [product(contiguous(wide[:, j, :], dtype)) for j in range(n_columns)]
        y = xp.stack(parts, axis=1) if parts else xp.zeros((rows, 0), dtype=dtype)
    return wrap_like(x, xp.reshape(y, (rows, *columns, n_samples)), is_shared(operator), set_of(operator))


def _short_product(operator: Any, x: Any) -> Any:
    """``operator @ x`` of a matrix and one vector of NumPy or CuPy that need no conversion; None for all others.

    `multiply` takes several times as long as the product of a small matrix, or as its launch on a device.
    """
    kind = type(x)
    if kind is Ensemble:
        samples, given_set = x.samples, x.sample_set
    elif _has_flags(kind) and x.ndim == 1:
        samples, given_set = x[:, None], None
    else:
        return None
    array = type(samples)
    if not _has_flags(array) or samples.ndim != 2 or not isinstance(operator, MatrixOperator):
        return None
    own, like, own_set = operator.n_samples, operator.reference_array, operator.sample_set
    if type(like) is not array or samples.dtype != operator.dtype or not samples.flags.c_contiguous:
        return None
    n, given = samples.shape
    if n != operator.local_shape[1] or own not in (1, given):
        return None
    y = operator.apply(samples)
    if kind is array and own == 1 and not operator.batched:
        return y[:, 0]
    return Ensemble(y, common_set(given_set, own_set))


def _has_flags(kind: type) -> bool:
    """Whether arrays of a type say by `flags` how they lie in memory: those of NumPy and CuPy."""
    return kind is np.ndarray or kind.__module__.partition(".")[0] == "cupy"


def product_of_parts(product: Callable[[Any], Any], shared: bool, x: Any) -> Any:
    """The product of a real operator with complex vectors, from real and imaginary parts.

    Where all samples have one operator (`shared`), the parts are beside each other.
    """
    xp = array_namespace(x)
    if not shared:
        return complex_of(*(product(contiguous(part(x))) for part in (xp.real, xp.imag)))
    if isinstance(x, np.ndarray):
        return product(x.view(x.real.dtype)).view(x.dtype)
    y, count = product(xp.concat([xp.real(x), xp.imag(x)], axis=1)), x.shape[1]
    return complex_of(y[:, :count], y[:, count:])


def _meeting(operator: Any, samples: Any, name: str) -> tuple[Any, Any, bool]:
    """The operator as the product takes it, the type to give `samples`, and whether their parts are multiplied."""
    xp, own, like = array_namespace(samples), operator.dtype, operator.reference_array
    if like is not None and array_namespace(like) is not xp:
        require_one_library(f"{name} @", "x and the matrix", samples, like)
    if isinstance(operator, MatrixOperator):
        dtype = wanted = xp.result_type(own, samples.dtype)
        by_parts = xp.isdtype(dtype, "complex floating") and xp.isdtype(own, "real floating")
        if by_parts:
            wanted = xp.real(xp.zeros((0,), dtype=dtype)).dtype
        return operator if wanted == own else operator.astype(wanted), dtype, by_parts
    if own is not None and "complex" in str(own):
        return operator, xp.result_type(samples.dtype, xp.complex64), False
    if xp.isdtype(samples.dtype, "complex floating"):
        return operator, samples.dtype, True
    if xp.isdtype(samples.dtype, "real floating"):
        return operator, samples.dtype, False
    return operator, operator.matrix_dtype, False


def premultiply(x: Any, operator: Any) -> Any:
    """``x @ operator`` for a row, or an array of rows, plain or Ensemble: the transpose does the work."""
    if not is_array(x) and not isinstance(x, Ensemble | list | tuple):
        return NotImplemented
    kind, rows = type(operator).__name__, operator.shape[0]
    name = f"{type(operator.T).__name__}.T" if kind.startswith("Transposed") else kind
    row = x if is_array(x) or isinstance(x, Ensemble) else array_of(x, f"@ {name}", "x", "hold numbers")
    require(
        len(row.shape) > 0 and row.shape[-1] == rows, f"@ {name}", "x",
        f"have {rows} entries in its last axis (the matrix has shape {tuple(operator.shape)})",
        f"shape {tuple(row.shape)}",
    )  # fmt: skip
    return operator.T @ row if len(row.shape) < 2 else (operator.T @ row.T).T


class Identity(LinearOperator):
    """The operator that changes nothing: the preconditioner of plain CG."""

    shape = (0, 0)
    queues_kernels = True

    def apply(self, x: Vectors, out: Vectors | None = None) -> Any:
        """`x` itself, or copied into `out`."""
        if out is None:
            return x
        out[...] = x
        return out

    def take_samples(self, samples: Ids) -> Identity:
        """The same for every choice of samples."""
        return self

    def __matmul__(self, x: Any) -> Any:
        return x
