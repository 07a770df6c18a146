"""Arrays of libraries other than NumPy and CuPy, as NumPy arrays on the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, is_traced, library_of, needs_gradient, on_cpu, to_numpy
from ensemble._check import kind_of, message, require_one_library
from ensemble._typing import Array
from ensemble.linalg.bcrs_matrix import BcrsMatrix
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs
from ensemble.linalg.linear_operator import LinearOperator
from ensemble.linalg.operators import samples_of
from ensemble.linalg.symmetric import SymmetricCrsMatrix
from ensemble.scalar import Ensemble

__all__ = [
    "HostOperator", "array_in", "dtype_of", "host_matrix", "host_tolerance", "host_view", "in_library", "is_elsewhere",
    "one_library", "refuse", "require_no_gradient",
]  # fmt: skip

OWN = ("numpy", "cupy")
"""The libraries for which there are kernels."""


def array_in(value: Any) -> Any:
    """The array that `value`, an ensemble, operator or array, holds; None where it holds none."""
    if isinstance(value, Ensemble):
        return value.samples
    if library_of(value) is not None:
        return value
    found = getattr(value, "reference_array", None)
    return found if library_of(found) is not None else None


def is_elsewhere(*values: Any) -> bool:
    """Whether one of these holds an array of a library other than NumPy and CuPy."""
    for value in values:
        kind = type(value)
        if value is None or kind is np.ndarray or (kind is Ensemble and type(value.samples) is np.ndarray):
            continue
        if kind is CrsMatrix and type(value.values) is np.ndarray:
            continue
        array = array_in(value)
        if array is not None and library_of(array) not in OWN:
            return True
    return False


def refuse(function: str, argument: str, array: Any, why: str = "", advice: str = "") -> TypeError:
    """The error for an array of another library where it is not served."""
    seen = f"{kind_of(array)} of {library_of(array)}"
    advice = advice or f"Give np.asarray of it; where it runs and has gradients: {TABLE}."
    return TypeError(message(function, argument, why or "hold arrays of NumPy or CuPy", seen, advice))


TABLE = 'the table "What runs where" in the README'


def host_view(array: Array, function: str, argument: str) -> np.ndarray:
    """`array` as NumPy's, on the same memory, without its gradient.

    Raises
    ------
    TypeError
        If it is not on the CPU, has a type of numbers that NumPy lacks, or is being traced.
    """
    if type(array) is np.ndarray:
        return array
    if not on_cpu(array):
        advice = "Move it: .cpu() in PyTorch, jax.device_put in JAX, or to CuPy's kernels by cupy.from_dlpack."
        raise refuse(function, argument, array, "be on the CPU", advice)
    if is_traced(array):
        advice = "Build it outside the function that is transformed, of arrays."
        raise refuse(function, argument, array, "hold numbers that are known", advice)
    try:
        return to_numpy(array)
    except (TypeError, RuntimeError) as error:
        seen = f"dtype {getattr(array, 'dtype', None)} ({error})"
        advice = "Convert to float32 or float64."
        raise TypeError(message(function, argument, "have a type of NumPy", seen, advice)) from None


def host_tolerance(value: Any) -> Any:
    """A tolerance, which may be an array or Ensemble, in NumPy's numbers."""
    if not is_elsewhere(value):
        return value
    samples = host_view(array_in(value), "tolerance", "rtol, atol")
    return Ensemble(samples) if isinstance(value, Ensemble) else samples


def one_library(function: str, **values: Any) -> Array:
    """An array of the library, other than NumPy's and CuPy's, that all `values` are of, or an error."""
    arrays = {name: array for name, value in values.items() if (array := array_in(value)) is not None}
    like = next(array for array in arrays.values() if library_of(array) not in OWN)
    require_one_library(function, " and ".join(arrays), *arrays.values())
    return like


def in_library(value: Any, like: Array) -> Any:
    """`value`, an array or Ensemble, and numbers of other kinds as an array of the library of `like`."""
    if value is None or array_in(value) is not None:
        return value
    return asarray_like(np.asarray(value, np.float64), like)


def dtype_of(function: str, *arrays: Any) -> np.dtype:
    """The floating type common to `arrays`, in NumPy's terms."""
    names = [str(array.dtype).rpartition(".")[2] for array in arrays if array is not None]
    names = ["float32" if name == "bfloat16" else name for name in names]
    try:
        found = np.result_type(*(np.dtype(name) for name in names), np.float32)
    except TypeError:
        seen = " and ".join(dict.fromkeys(names))
        advice = "Convert to float32 or float64."
        raise TypeError(message(function, "A, b, x0", "have a type of numbers that NumPy has", seen, advice)) from None
    return found


def host_matrix(A: Any, function: str, argument: str = "A") -> Any:
    """`A` with its values as NumPy's arrays, for preconditioners and factors; itself where they are already."""
    if not is_elsewhere(A):
        return A
    if isinstance(A, BcrsMatrix | SymmetricCrsMatrix):
        return type(A)(A.graph, Ensemble(host_view(A.values, function, argument), A.sample_set))
    matrix = as_crs(A)
    if matrix is NotImplemented:
        raise refuse(function, argument, array_in(A))
    return CrsMatrix(matrix.graph, Ensemble(host_view(matrix.values, function, argument), matrix.sample_set))


def require_no_gradient(function: str, argument: str, *values: Any) -> None:
    """Raise where a gradient is needed that the function has not."""
    for value in values:
        array = array_in(value)
        if array is not None and needs_gradient(array):
            advice = "Detach it: tensor.detach() in PyTorch, jax.lax.stop_gradient in JAX."
            raise refuse(function, argument, array, "need no gradient, for which there is no rule", advice)


class HostOperator(LinearOperator):
    """An operator on arrays of another library, as one on NumPy's."""

    def __init__(self, operator: Any, like: Array) -> None:
        self.operator, self.like = operator, like
        self.shape, self.n_samples = tuple(operator.shape), getattr(operator, "n_samples", 1)
        self.sample_set = getattr(operator, "sample_set", None)
        self.takes_samples = hasattr(operator, "take_samples") and getattr(operator, "takes_samples", True)

    def foreign_product(self, x: Array) -> Array:
        """The product with an array of the other library, shape (n, n_samples)."""
        if hasattr(self.operator, "apply"):
            out = array_namespace(x).empty_like(x)
            y = self.operator.apply(x, out)
            return out if y is None else y
        y = samples_of(self.operator @ Ensemble(x))
        return array_namespace(x).broadcast_to(y, x.shape)

    def apply(self, x: Array, out: Array = None) -> Array:
        """The product with `x`, by way of the other library."""
        y = to_numpy(self.foreign_product(asarray_like(np.ascontiguousarray(x), self.like)))
        if out is None:
            return np.array(y, dtype=x.dtype, order="C")
        out[...] = y
        return out

    def take_samples(self, samples: Any) -> HostOperator:
        """The operator of the samples named."""
        return HostOperator(self.operator.take_samples(samples), self.like)

    @property
    def T(self) -> HostOperator:
        """The transpose, where the operator has one."""
        return HostOperator(self.operator.T, self.like)
