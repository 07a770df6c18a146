"""Checked arguments of the Krylov methods: operators, vectors of one number of samples and one type, tolerances."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, library_and_device, to_numpy
from ensemble._check import array_of, integer, message, one_of, positive, real_array, require, require_unmasked
from ensemble.krylov._complex import has_complex, over_complex
from ensemble.linalg import Identity
from ensemble.linalg.adapt import as_operator
from ensemble.linalg.graph import Reordering
from ensemble.linalg.linear_operator import LinearOperator
from ensemble.linalg.operators import is_shared, samples_of, set_of
from ensemble.linalg.reordering import reordered_vectors
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set

DEFAULT_RTOL, DEFAULT_RTOL_FLOAT32 = 1e-8, 1e-5
"""`rtol` where none is given."""


@dataclass
class LinearSystem:
    """Checked arguments of a solver: operators, wide vectors, and the form of the result."""

    function: str
    A: LinearOperator
    M: LinearOperator
    b: Any
    x0: Any
    rtol: Any
    atol: Any
    coupled: bool
    like: Any
    is_shared: bool
    """Whether the operators hold no samples, so that a plain `b` has a plain solution."""
    sample_set: SampleSet | None
    order: Reordering | None = None
    """The order of rows in which the system is solved; None for the caller's."""
    block_size: int = 1
    """Components of an unknown where the caller's `b` has an axis of them."""

    def of_samples(self, samples: np.ndarray) -> LinearSystem:
        """Take the samples named of b and of tolerances."""
        rtol = self.rtol[samples] if np.ndim(self.rtol) else self.rtol
        is_range = np.array_equal(samples, np.arange(samples[0], samples[0] + samples.size))  # a view
        own = slice(int(samples[0]), int(samples[-1]) + 1) if is_range else asarray_like(samples, self.b)
        return replace(self, b=contiguous(self.b[:, own]), rtol=rtol)


def linear_system(
    function: str, A: Any, b: Any, x0: Any, M: Any, rtol: Any, atol: Any, max_iterations: int, coupling: str
) -> LinearSystem:
    """Check what every solver takes, and give all vectors one number of samples and one type."""
    b, x0 = (as_array(value, function, name) for name, value in (("b", b), ("x0", x0)))
    A = as_operator(A, function, "A")
    M = Identity() if M is None else as_operator(M, function, "M")
    b, x0, shared = one_column(b), one_column(x0), is_shared(A, M)
    n, given_shape = A.local_shape[0], getattr(b, "shape", ())
    b, x0 = (flattened(vector, n, A.block_size) for vector in (b, x0))
    block_size = int(A.block_size) if tuple(getattr(b, "shape", ())) != tuple(given_shape) else 1
    advice = "Solve the normal equations or use lsmr."
    require(A.shape[0] == A.shape[1], function, "A", "be square", f"shape {tuple(A.shape)}", advice)
    require(
        isinstance(M, Identity) or tuple(M.local_shape) == (n, n),
        function,
        "M",
        f"have shape {tuple(A.shape)}",
        f"shape {M.shape}",
    )
    integer(max_iterations, function, "max_iterations", minimum=0)
    one_of(coupling, ("independent", "ensemble"), function, "coupling")
    given = {"b": b} if x0 is None else {"b": b, "x0": x0}
    vectors = {name: samples_of(v) for name, v in given.items()}
    n_samples = common_samples(function, n, vectors, A=A, M=M)
    dtype = common_dtype(function, vectors, A, M)
    rtol = default_rtol(vectors["b"], dtype) if rtol is None else tolerance(rtol, function, "rtol", n_samples)
    atol = tolerance(atol, function, "atol", n_samples)
    complex_vectors = (
        dtype.kind == "c" if isinstance(dtype, np.dtype) else "complex" in str(dtype)
    )  # kernels have no mixed products
    A, M = (over_complex(m, dtype) if complex_vectors else m.astype(dtype) for m in (A, M))
    wide = {name: widen(v, n_samples, dtype) for name, v in vectors.items()}
    require_one_device(function, wide["b"], A=A, M=M)
    like = x0 if x0 is not None and vectors["x0"].shape[-1] > vectors["b"].shape[-1] else b
    sets = [set_of(v) for v in (A, M, b, x0) if getattr(v, "n_samples", 1) == n_samples]
    sample_set = functools.reduce(common_set, sets, None)
    coupled = coupling == "ensemble"
    order = None
    own = M.in_own_order(A)
    if own is not None:
        A, M, order = own
        wide = {name: reordered_vectors(v, order) for name, v in wide.items()}
    b, start = wide["b"], wide.get("x0")
    return LinearSystem(
        function, A, M, b, start, rtol, atol, coupled, like, shared, sample_set, order, block_size
    )  # fmt: skip


def flattened(vector: Any, n: int, block_size: int) -> Any:
    """Flatten a vector with an axis of components, shape (n / block_size, block_size), to length n."""
    if block_size == 1 or tuple(getattr(vector, "shape", ())) != (n // block_size, block_size):
        return vector
    if not isinstance(vector, Ensemble):
        return array_namespace(vector).reshape(vector, (n,))
    samples = array_namespace(vector.samples).reshape(vector.samples, (n, vector.n_samples))
    return Ensemble(samples, vector.sample_set)


def default_rtol(like: Any, dtype: Any) -> float:
    """Return the relative tolerance that numbers of `dtype` usually reach."""
    return DEFAULT_RTOL if array_namespace(like).finfo(dtype).bits > 32 else DEFAULT_RTOL_FLOAT32


def tolerance(value: Any, function: str, argument: str, n_samples: int) -> Any:
    """Check a tolerance: one number, or one for each sample, in an array or an Ensemble."""
    if isinstance(value, Ensemble) and not value.ndim:
        value = to_numpy(value.samples) if value.n_samples > 1 else value.samples[0]
    if not isinstance(value, list | tuple) and np.ndim(value) == 0:
        return positive(value, function, argument, zero=True)
    requirement = f"be a number or {n_samples} of them"
    value = real_array(value, function, argument, requirement)
    require(value.shape == (n_samples,), function, argument, requirement, f"shape {value.shape}")
    valid = (value >= 0.0) & (value < np.inf)
    if not valid.all():
        requirement = "be a finite number, zero or above, in every sample"
        require(False, function, argument, requirement, f"{value[np.argmin(valid)]} in sample {np.argmin(valid)}")
    return value


def as_array(vector: Any, function: str, argument: str) -> Any:
    """Turn a list into an array; refuse masked entries; return an array, an Ensemble or None as it is."""
    require_unmasked(vector, function, argument)
    if isinstance(vector, list | tuple):
        return array_of(vector, function, argument, "be a vector of numbers")
    return vector


def one_column(vector: Any) -> Any:
    """Flatten an array of shape (n, 1), as SciPy's solvers do; return anything else as it is."""
    if isinstance(vector, Ensemble) or vector is None:
        return vector
    vector = vector if hasattr(vector, "ndim") else np.asarray(vector)
    return vector[:, 0] if vector.ndim == 2 and vector.shape[1] == 1 else vector


def common_samples(function: str, n: int, vectors: dict[str, Any], **operators: LinearOperator) -> int:
    """Find the common number of samples of vectors and operators; 1 fits every other."""
    counts: dict[str, int] = {name: operator.n_samples for name, operator in operators.items()}
    for name, samples in vectors.items():
        require(
            samples.ndim == 2 and samples.shape[0] == n, function, name, f"be a vector of length {n}",
            f"shape {tuple(samples.shape[:-1])}",
            "For many samples, pass an Ensemble, its samples in the last axis." if samples.ndim > 2 else "",
        )  # fmt: skip
        counts[name] = int(samples.shape[1])
    n_samples = max(counts.values())
    for name, count in counts.items():
        require(count in (1, n_samples), function, name, f"have {n_samples} samples, or 1", count)
    return n_samples


def common_dtype(function: str, vectors: dict[str, Any], A: LinearOperator, M: LinearOperator) -> Any:
    """Find the floating type common to vectors and matrix, complex where the preconditioner's numbers are."""
    first = vectors["b"]
    if isinstance(first, np.ndarray):
        least = np.complex64 if has_complex(M) else np.float32
        dtype = np.result_type(*vectors.values(), np.float64 if A.dtype is None else A.dtype, least)
        if dtype.kind not in "fc":
            raise TypeError(message(function, "A, b and x0", "hold numbers", dtype))
        return dtype
    xp = array_namespace(first)
    dtype = xp.result_type(*(v.dtype for v in vectors.values()), first.dtype if A.dtype is None else A.dtype)
    if not xp.isdtype(dtype, ("real floating", "complex floating")):
        raise TypeError(message(function, "A, b and x0", "be floating numbers", dtype))
    return xp.result_type(dtype, xp.complex64) if has_complex(M) else dtype


def widen(samples: Any, n_samples: int, dtype: Any) -> Any:
    """Repeat or convert `samples` to `n_samples` contiguous columns of `dtype`."""
    if samples.shape[1] != n_samples:
        samples = array_namespace(samples).broadcast_to(samples, (samples.shape[0], n_samples))
    return contiguous(samples, dtype)


def require_one_device(function: str, b: Any, **operators: LinearOperator) -> None:
    """Raise unless matrix, preconditioner and vectors lie in one library and on one device."""
    for name, operator in operators.items():
        values = operator.reference_array
        if values is not None and library_and_device(values) != library_and_device(b):
            library, device = library_and_device(values)
            require(
                False, function, "b", f"live where {name} does ({library}, {device})", " ".join(library_and_device(b)),
                "Move one of them: xp.asarray for vectors, A.to(b) for a matrix.",
            )  # fmt: skip
