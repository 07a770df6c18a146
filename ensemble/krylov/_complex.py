"""Complex systems as real ones of twice the size: ``[[Re A, -Im A], [Im A, Re A]]`` on real and imaginary parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, is_array
from ensemble._check import message
from ensemble._typing import Array
from ensemble.linalg import CrsMatrix, Identity
from ensemble.linalg.adapt import AdaptedOperator
from ensemble.linalg.linear_operator import LinearOperator
from ensemble.linalg.operators import samples_of
from ensemble.scalar import Ensemble

__all__ = [
    "RealForm",
    "complex_parts",
    "from_interleaved",
    "has_complex",
    "interleaved",
    "real_form",
    "real_matrix",
    "require_numpy",
    "squared_parts",
    "stacked",
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
    """Complex systems are solved with NumPy's arrays alone."""
    array = samples_of(value) if isinstance(value, Ensemble) or is_array(value) else value.reference_array
    if array is not None and not isinstance(array, np.ndarray):
        advice = "Solve the real system of twice the size, [[Re A, -Im A], [Im A, Re A]]."
        seen = f"a {type(array).__module__.split('.')[0]} array"
        raise TypeError(message(function, argument, "hold NumPy arrays where numbers are complex", seen, advice))


def stacked(vectors: Array) -> Array:
    """Real parts above imaginary parts, shape (2 n, n_samples)."""
    real: np.ndarray = np.concatenate([vectors.real, np.imag(vectors)], axis=0)
    return real if real.dtype.kind == "f" else real.astype(np.float64)


def complex_parts(vectors: Array) -> Array:
    """The complex vectors of which `stacked` made these."""
    n = vectors.shape[0] // 2
    made = np.empty((n, *vectors.shape[1:]), np.result_type(vectors.dtype, np.complex64))
    made.real, made.imag = vectors[:n], vectors[n:]
    return made


class RealForm(LinearOperator):
    """The real operator on stacked vectors that a complex, or real, one stands for."""

    def __init__(self, operator: LinearOperator) -> None:
        self.operator = operator
        rows, columns = operator.shape
        self.shape, self.n_samples = (2 * rows, 2 * columns), operator.n_samples
        self.sample_set, self.takes_samples = operator.sample_set, operator.takes_samples
        self.reference_array = None if operator.reference_array is None else np.empty(0)
        foreign = isinstance(operator, AdaptedOperator) and operator.dtype is None
        self.is_complex = has_complex(operator) or foreign  # of an unknown type it may well be complex
        if operator.dtype is not None:
            self.dtype = np.finfo(operator.dtype).dtype if np.dtype(operator.dtype).kind in "fc" else np.dtype("f8")

    def _halves(self, x: Array, out: Array, product: Any) -> Array:
        n = x.shape[0] // 2
        out = np.empty_like(x) if out is None else out
        if self.is_complex:
            y = product(complex_parts(x), None)
            out[:n], out[n:] = y.real, y.imag
            return out
        for half in (slice(0, n), slice(n, 2 * n)):
            y = product(x[half], None)
            out[half] = y
        return out

    def apply(self, x: Array, out: Array = None) -> Array:
        """The product on stacked vectors."""
        return self._halves(x, out, self.operator.apply)

    def workspace(self, n_samples: int) -> Any:
        """That of the operator."""
        return self.operator.workspace(n_samples)

    def precondition(self, r: Array, out: Array, workspace: Any) -> Array:
        """The product with `r` as a preconditioner's."""
        return self._halves(r, out, lambda x, _: self.operator.precondition(x, np.empty_like(x), workspace))

    def take_samples(self, samples: Any) -> RealForm:
        """The operator of the samples named."""
        return RealForm(self.operator.take_samples(samples))

    def astype(self, dtype: Any) -> RealForm:
        """The operator for real vectors of another type."""
        number = np.result_type(dtype, np.complex64) if self.is_complex else dtype
        return RealForm(self.operator.astype(number))


def real_form(operator: LinearOperator) -> LinearOperator:
    """`RealForm` of an operator; the identity stays."""
    return operator if isinstance(operator, Identity) else RealForm(operator)


def real_matrix(A: CrsMatrix) -> CrsMatrix:
    """The real matrix of a complex one with a block ``[[Re a, -Im a], [Im a, Re a]]`` for each entry."""
    graph, places = A.graph.expanded(2, 2)
    values = np.stack([A.values.real, -np.imag(A.values), np.imag(A.values), A.values.real], axis=1)
    flat = values.reshape(-1, A.n_samples)
    return CrsMatrix(graph, Ensemble(flat[places], A.sample_set))


def interleaved(b: Any) -> Any:
    """A complex vector, shape (n,), as a real one, shape (2 n,), of pairs of parts."""
    samples = samples_of(b)
    pairs = np.stack([samples.real, np.imag(samples)], axis=1).reshape(-1, samples.shape[-1])
    pairs = pairs if pairs.dtype.kind == "f" else pairs.astype(np.float64)
    return Ensemble(pairs, b.sample_set) if isinstance(b, Ensemble) else pairs[:, 0]


def from_interleaved(x: Any) -> Any:
    """The complex vector of which `interleaved` made this one."""
    samples = samples_of(x)
    made = np.empty((samples.shape[0] // 2, samples.shape[1]), np.result_type(samples.dtype, np.complex64))
    made.real, made.imag = samples[0::2], samples[1::2]
    return Ensemble(made, x.sample_set) if isinstance(x, Ensemble) else made[:, 0]


def squared_parts(vectors: Array) -> Array:
    """Vectors whose inner products with themselves are real: those of complex ones, stacked."""
    xp = array_namespace(vectors)
    if not xp.isdtype(vectors.dtype, "complex floating"):
        return vectors
    return xp.concat([xp.real(vectors), xp.imag(vectors)], axis=0)
