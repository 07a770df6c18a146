"""Operators of complex systems, and complex systems as real ones of twice the size, for factorisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import is_array
from ensemble._check import message
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.registry import into
from ensemble._typing import Array
from ensemble.linalg import BcrsMatrix, CrsMatrix, Identity, SymmetricCrsMatrix
from ensemble.linalg.adapt import AdaptedOperator
from ensemble.linalg.linear_operator import LinearOperator
from ensemble.linalg.operators import product_of_parts, samples_of
from ensemble.scalar import Ensemble

__all__ = [
    "RealParts",
    "from_interleaved",
    "has_complex",
    "interleaved",
    "over_complex",
    "real_matrix",
    "real_type",
    "require_numpy",
]


def has_complex(*values: Any) -> bool:
    """Whether one of the matrices and vectors holds complex numbers."""
    for value in values:
        dtype = getattr(value, "dtype", None)
        if dtype is None and isinstance(value, complex):
            dtype = np.dtype(complex)
        if dtype.kind == "c" if isinstance(dtype, np.dtype) else "complex" in str(dtype):
            return True
    return False


def require_numpy(function: str, argument: str, value: Any) -> None:
    """Raise TypeError for arrays of other libraries than NumPy, with which alone complex systems are solved."""
    array = samples_of(value) if isinstance(value, Ensemble) or is_array(value) else value.reference_array
    if array is not None and not isinstance(array, np.ndarray):
        advice = "Solve with Factorization(A) @ b, which takes CuPy's arrays, too."
        seen = f"a {type(array).__module__.split('.')[0]} array"
        raise TypeError(message(function, argument, "hold NumPy arrays where numbers are complex", seen, advice))


def over_complex(operator: LinearOperator, dtype: Any) -> LinearOperator:
    """Wrap a real operator so that it takes complex vectors of type `dtype`.

    A real one is applied to real and imaginary parts, but for a `CrsMatrix`: its compiled products are those of one
    type. Complex matrices of other storage become one for the same reason.
    """
    foreign = isinstance(operator, AdaptedOperator) and operator.dtype is None  # it may well be complex
    if isinstance(operator, Identity) or foreign:
        return operator
    if not has_complex(operator) and not isinstance(operator, CrsMatrix):
        return RealParts(operator.astype(real_type(dtype)), dtype)
    operator = operator.astype(dtype)
    return operator.to_crs() if isinstance(operator, BcrsMatrix | SymmetricCrsMatrix) else operator


class RealParts(LinearOperator):
    """A real operator on complex vectors: its products with real and with imaginary parts."""

    def __init__(self, operator: LinearOperator, dtype: Any) -> None:
        self.operator, self.dtype = operator, dtype
        self.shape, self.n_samples, self.batched = operator.shape, operator.n_samples, operator.batched
        self.sample_set, self.takes_samples = operator.sample_set, operator.takes_samples
        self.space, self.block_size = operator.space, operator.block_size
        self.reference_array = operator.reference_array

    @property
    def local_shape(self) -> tuple[int, int]:
        """That of the operator."""
        return self.operator.local_shape

    def apply(self, x: Array, out: Array = None) -> Array:
        """The product on complex vectors."""
        return into(out, product_of_parts(self.operator.apply, self.n_samples == 1, x))

    def workspace(self, n_samples: int) -> Any:
        """That of the operator for the vectors that it is applied to."""
        return self.operator.workspace(2 * n_samples if self.n_samples == 1 else n_samples)

    def precondition(self, r: Array, out: Array, workspace: Any) -> Array:
        """The product with `r` as a preconditioner's."""
        product = lambda part: self.operator.precondition(part, empty_like(part), workspace)
        return into(out, product_of_parts(product, self.n_samples == 1, r))

    def take_samples(self, samples: Any) -> RealParts:
        """The operator of the samples named."""
        return RealParts(self.operator.take_samples(samples), self.dtype)

    def astype(self, dtype: Any) -> RealParts:
        """The operator for complex vectors of another type."""
        return RealParts(self.operator.astype(real_type(dtype)), dtype)


def real_type(dtype: Any) -> Any:
    """Return the type of real and imaginary parts of `dtype`; a real type itself."""
    name = str(dtype).split(".")[-1]
    return {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}.get(name, dtype)


def real_matrix(A: CrsMatrix) -> CrsMatrix:
    """Build a real matrix with a block ``[[Re a, -Im a], [Im a, Re a]]`` for each entry a of a complex one."""
    graph, places = A.graph.expanded(2, 2)
    values = np.stack([A.values.real, -np.imag(A.values), np.imag(A.values), A.values.real], axis=1)
    flat = values.reshape(-1, A.n_samples)
    return CrsMatrix(graph, Ensemble(flat[places], A.sample_set))


def interleaved(b: Any) -> Any:
    """Write a complex vector, shape (n,), as a real one of alternating real and imaginary parts, shape (2 n,)."""
    samples = samples_of(b)
    pairs = np.stack([samples.real, np.imag(samples)], axis=1).reshape(-1, samples.shape[-1])
    pairs = pairs if pairs.dtype.kind == "f" else pairs.astype(np.float64)
    return Ensemble(pairs, b.sample_set) if isinstance(b, Ensemble) else pairs[:, 0]


def from_interleaved(x: Any) -> Any:
    """Turn what `interleaved` made back into a complex vector."""
    samples = samples_of(x)
    made = np.empty((samples.shape[0] // 2, samples.shape[1]), np.result_type(samples.dtype, np.complex64))
    made.real, made.imag = samples[0::2], samples[1::2]
    return Ensemble(made, x.sample_set) if isinstance(x, Ensemble) else made[:, 0]
