"""Linear algebra: samples become one more batch axis in front, and come back last.

A matrix that all samples share is not copied: its product with an ensemble of vectors is one matrix product.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._check import message, require, samples_text
from ensemble._compile.kept_memory import empty
from ensemble._typing import Array, Namespace
from ensemble.scalar._operators import mismatch
from ensemble.scalar.divergence.policy import Decider, failure, in_run, policy_in_force
from ensemble.scalar.ensemble import Ensemble, packed, view, wrap
from ensemble.scalar.lift.each_sample import each_sample
from ensemble.scalar.lift.reductions import visible_axes, visible_axis
from ensemble.scalar.namespace import EnsembleNamespace, named, samples_of, set_of
from ensemble.scalar.plain_arrays import LARGE_STACK, samples_of_stack, stack_of
from ensemble.scalar.row_reductions import norm, products

SIGNATURES: dict[str, tuple[tuple[str, Any, Any], ...]] = {
    "cholesky": (("upper", False, inspect.Parameter.KEYWORD_ONLY),),
    "matrix_power": (("n", inspect.Parameter.empty, inspect.Parameter.POSITIONAL_ONLY),),
    "pinv": (("rtol", None, inspect.Parameter.KEYWORD_ONLY),),
    "qr": (("mode", "reduced", inspect.Parameter.KEYWORD_ONLY),),
    "svd": (("full_matrices", True, inspect.Parameter.KEYWORD_ONLY),),
}

RESULTS: dict[str, Any] = {
    "eig": namedtuple("EigResult", "eigenvalues eigenvectors"),
    "eigh": namedtuple("EighResult", "eigenvalues eigenvectors"),
    "qr": namedtuple("QRResult", "Q R"),
    "slogdet": namedtuple("SlogdetResult", "sign logabsdet"),
    "svd": namedtuple("SVDResult", "U S Vh"),
}
"""The standard's names of several results: not every library's own tuples can be built from parts."""


def samples_first(ns: EnsembleNamespace, x: Ensemble, ndim: int = 0) -> Any:
    """The samples of `x` as the first axis, with axes of length 1 after it up to `ndim` visible axes.

    A copy of NumPy's arrays: BLAS and LAPACK take matrices in the order of memory.
    """
    base = ns.main.base
    front = stack_of(x.samples) if type(x.samples) is np.ndarray else base.moveaxis(x.samples, -1, 0)
    if x.ndim < ndim:
        front = base.reshape(front, (front.shape[0], *(1,) * (ndim - x.ndim), *front.shape[1:]))
    return front


def samples_last(ns: EnsembleNamespace, front: Any, sample_set: Any) -> Ensemble:
    """The ensemble of what `samples_first` went through."""
    if type(front) is np.ndarray:
        return wrap(samples_of_stack(front), sample_set)
    return wrap(packed(ns.main.base.moveaxis(front, 0, -1)), sample_set)


def one_result(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule of a function of stacked matrices with one result."""
    return _of_matrices(ns, name, several=False)


def several_results(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule of a function of stacked matrices with a named tuple of results."""
    return _of_matrices(ns, name, several=True)


def _of_matrices(ns: EnsembleNamespace, name: str, several: bool) -> Callable[..., Any]:
    f = getattr(ns.base, name)
    more = [inspect.Parameter(key, kind, default=default) for key, default, kind in SIGNATURES.get(name, ())]
    signature = inspect.Signature([inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY), *more])

    def lifted(x: Array, /, *arguments: Any, **options: Any) -> Any:
        x = _matrices(ns, x, name)
        options = {key: _per_matrix(ns, value) for key, value in options.items()}
        call = functools.partial(_swapped, f, arguments, options)
        front = samples_first(ns, x)
        result = _sample_by_sample(ns, name, call, front)
        if result is front:  # the first power of a matrix
            return view(x, x.samples)
        if name in ("eig", "eigvals"):
            _refuse_mixed_types(name, x.dtype, result[0] if several else result)
        if not several:
            return samples_last(ns, result, x.sample_set)
        return RESULTS[name](*(samples_last(ns, part, x.sample_set) for part in result))

    lifted.__signature__ = signature  # type: ignore[attr-defined]
    return named(lifted, name)


def _refuse_mixed_types(name: str, dtype: Any, front: Any) -> None:
    """Raise in code that runs as if for one sample: alone, NumPy gives real numbers where all eigenvalues are real."""
    if not in_run() or type(front) is not np.ndarray or np.dtype(dtype).kind == "c" or front.dtype.kind != "c":
        return
    if np.any(np.all(front.imag == 0.0, axis=tuple(range(1, front.ndim)))):
        raise failure(TypeError(message(name, "results", "be all real or all complex", "both")))


def _matrices(ns: EnsembleNamespace, x: Array, name: str) -> Ensemble:
    """`x`, whose last two visible axes are matrices; numbers that `pinv` takes as floats are floats."""
    lifted: Ensemble = ns.lift(x, name)
    if lifted.ndim < 2:
        raise np.linalg.LinAlgError(message(name, "x", "have 2 axes or more", f"shape {lifted.shape}"))
    base = ns.main.base
    if name == "pinv" and not base.isdtype(lifted.dtype, ("real floating", "complex floating")):
        return wrap(base.astype(lifted.samples, base.float64), lifted.sample_set)
    return lifted


def _swapped(f: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], x: Array) -> Any:
    return f(x, *arguments, **options)


def _per_matrix(ns: EnsembleNamespace, value: Any) -> Any:
    """A tolerance that may be an ensemble, in front order."""
    return samples_first(ns, value) if isinstance(value, Ensemble) else value


def _sample_by_sample(ns: EnsembleNamespace, name: str, f: Callable[..., Any], *fronts: Any) -> Any:
    """`f` on all samples at once; where that fails, on each, with NaN for those that fail alone."""
    try:
        return f(*fronts)
    except Exception as raised:
        n_samples = max(front.shape[0] for front in fronts)
        if n_samples == 1 or not _is_failure_of_numbers(fronts):
            raise
        if isinstance(policy_in_force.get(), Decider):
            raise failure(raised) from None
    results: list[Any] = []
    failed: list[int] = []
    errors: list[Exception] = []
    for s in range(n_samples):
        try:
            results.append(f(*(front[s : s + 1, ...] if front.shape[0] > 1 else front for front in fronts)))
        except Exception as raised:
            failed, errors = [*failed, s], [raised.with_traceback(None)]
            results.append(None)
    good = next((result for result in results if result is not None), None)
    if good is None:
        raise errors.pop()
    seen = f"a failure in {len(failed)} of {n_samples}, {samples_text(failed, of=n_samples)} ({errors[0]})"
    text = message(name, "x", "be fit for the method in every sample", seen, "The result of these samples is NaN.")
    warnings.warn(text, RuntimeWarning, stacklevel=4)
    base = ns.main.base
    if not isinstance(good, tuple):
        return base.concat([_nan_like(base, good) if r is None else r for r in results], axis=0)
    columns = [[_nan_like(base, good[k]) if r is None else r[k] for r in results] for k in range(len(good))]
    return tuple(base.concat(column, axis=0) for column in columns)


def _is_failure_of_numbers(fronts: Sequence[Any]) -> bool:
    """Whether trying each sample alone can help: the matrices are stacks of real or complex floats."""
    return all(len(front.shape) > 1 for front in fronts)


def _nan_like(base: Namespace, x: Array) -> Any:
    return base.full(x.shape, base.nan, dtype=x.dtype)


def solve(ns: EnsembleNamespace, x1: Array, x2: Array, /) -> Ensemble:
    """The solution of ``x1 @ x = x2``; NaN in samples whose matrix is singular."""
    a, b = _matrices(ns, x1, "solve"), ns.lift(x2, "solve")
    n_samples, sample_set = samples_of("solve", a, b), set_of(a, b)
    base = ns.main.base
    if a.is_shared and a.ndim == 2 and b.ndim in (1, 2) and n_samples > 1:  # one factorisation for all samples
        columns = base.reshape(b.samples, (b.shape[0], math.prod(b.samples.shape[1:])))
        return wrap(packed(base.reshape(ns.base.solve(a.samples[..., 0], columns), b.samples.shape)), sample_set)
    if b.ndim == 1:
        b = wrap(base.expand_dims(b.samples, axis=1), sample_set)
        x = _solve_matrices(ns, a, b, sample_set)
        return wrap(packed(x.samples[..., 0, :]), sample_set)
    return _solve_matrices(ns, a, b, sample_set)


def _solve_matrices(ns: EnsembleNamespace, a: Ensemble, b: Ensemble, sample_set: Any) -> Ensemble:
    ndim = max(a.ndim, b.ndim)
    fronts = samples_first(ns, a, ndim), samples_first(ns, b, ndim)
    batches = [tuple(front.shape[:-2]) for front in fronts]
    if batches[0] != batches[1]:  # CuPy requires equal batch axes
        batch, base = np.broadcast_shapes(*batches), ns.main.base
        fronts = tuple(base.broadcast_to(front, (*batch, *front.shape[-2:])) for front in fronts)
    return samples_last(ns, _sample_by_sample(ns, "solve", ns.base.solve, *fronts), sample_set)


def matmul(ns: EnsembleNamespace, x1: Array, x2: Array, /) -> Ensemble:
    """The matrix product over visible axes."""
    base = ns.main.base
    a, b = ns.lift(x1, "matmul"), ns.lift(x2, "matmul")
    n_samples, sample_set = samples_of("matmul", a, b), set_of(a, b)
    fits = a.ndim > 0 and b.ndim > 0 and a.shape[-1] == b.shape[-2 if b.ndim > 1 else 0]
    require(fits, "matmul", "operands", "fit each other", f"shapes {a.shape} and {b.shape}")
    if n_samples == 1:
        return wrap(base.matmul(a.samples[..., 0], b.samples[..., 0])[..., None])
    if a.is_shared and a.ndim == 2 and b.ndim <= 2:  # one product with all samples as columns
        columns = base.reshape(b.samples, (b.shape[0], math.prod(b.shape[1:]) * n_samples))
        product = base.matmul(a.samples[..., 0], columns)
        return wrap(packed(base.reshape(product, (a.shape[0], *b.shape[1:], n_samples))), sample_set)
    if b.is_shared and b.ndim == 2 and a.ndim == 1:
        return wrap(packed(base.matmul(base.matrix_transpose(b.samples[..., 0]), a.samples)), sample_set)
    if b.ndim == 1 and type(a.samples) is np.ndarray:  # sums of products, whose order is that of `np.sum`
        found = products(a.samples, b.samples) if type(b.samples) is np.ndarray else None
        if found is None and a.ndim == 1 and a.is_shared:
            found = products(b.samples, a.samples)
        if found is not None:
            return wrap(found, sample_set)
    front = samples_first(ns, a), samples_first(ns, b)
    row, column = a.ndim == 1, b.ndim == 1
    left = base.expand_dims(front[0], axis=-2) if row else front[0]
    right = base.expand_dims(front[1], axis=-1) if column else front[1]
    ndim = max(len(left.shape), len(right.shape))
    left, right = (base.reshape(m, (m.shape[0], *(1,) * (ndim - len(m.shape)), *m.shape[1:])) for m in (left, right))
    product = _stacked_product(base, left, right)
    if column:
        product = base.squeeze(product, axis=-1)
    if row:
        product = base.squeeze(product, axis=-1 if column else -2)
    return samples_last(ns, product, sample_set)


def _stacked_product(base: Namespace, left: Any, right: Any) -> Any:
    """``matmul(left, right)``; large products of NumPy's floats in memory that was used before."""
    large = type(left) is np.ndarray and type(right) is np.ndarray and left.size + right.size >= LARGE_STACK
    if not large or left.dtype != right.dtype or left.dtype.kind not in "fc":
        return base.matmul(left, right)
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    out = empty((*batch, left.shape[-2], right.shape[-1]), left.dtype)
    return np.matmul(left, right, out=out)


def vecdot(ns: EnsembleNamespace, x1: Array, x2: Array, /, *, axis: int = -1) -> Ensemble:
    """The sum of ``conj(x1) * x2`` along a visible axis."""
    base = ns.main.base
    a, b = ns.lift(x1, "vecdot"), ns.lift(x2, "vecdot")
    samples_of("vecdot", a, b)
    sample_set = set_of(a, b)
    require(min(a.ndim, b.ndim) > 0 and axis < 0, "vecdot", "axis", "be negative and in both arrays", axis)
    require(min(a.ndim, b.ndim) >= -axis, "vecdot", "axis", "be negative and in both arrays", axis)
    fits = a.shape[axis] == b.shape[axis]
    require(fits, "vecdot", "operands", "be equally long on axis", f"shapes {a.shape} and {b.shape}")
    left, right = a.samples, b.samples
    if axis == -1 and type(left) is np.ndarray and left.shape == right.shape:
        found = products(left, right)
        if found is not None:
            return wrap(found, sample_set)
    if base.isdtype(left.dtype, "complex floating"):
        left = base.conj(left)
    product = left * right
    return wrap(base.sum(product, axis=axis - 1, dtype=product.dtype), sample_set)


def tensordot(ns: EnsembleNamespace, x1: Array, x2: Array, /, *, axes: Any = 2) -> Ensemble:
    """The sum of products over pairs of visible axes."""
    a, b = ns.lift(x1, "tensordot"), ns.lift(x2, "tensordot")
    if isinstance(axes, int):
        shapes = f"{axes} for shapes {a.shape} and {b.shape}"
        require(0 <= axes <= min(a.ndim, b.ndim), "tensordot", "axes", "be at most the axes of each operand", shapes)
    else:
        left, right = (visible_axes(tuple(k), x.ndim, "tensordot") for k, x in zip(axes, (a, b), strict=True))
        axes = (left, right)
    if a.is_shared and not b.is_shared:  # the samples ride along as a free axis at the end
        if isinstance(axes, int):
            axes = (tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes)))
        product = ns.main.base.tensordot(a.samples[..., 0], b.samples, axes=axes)
        return wrap(packed(product), b.sample_set)
    result: Ensemble = each_sample(ns, "tensordot", functools.partial(ns.main.base.tensordot, axes=axes), a, b)
    return result


def outer(ns: EnsembleNamespace, x1: Array, x2: Array, /) -> Ensemble:
    """All products of an entry of `x1` and an entry of `x2`."""
    a, b = ns.lift(x1, "outer"), ns.lift(x2, "outer")
    require(a.ndim == b.ndim == 1, "outer", "operands", "have 1 axis", f"shapes {a.shape} and {b.shape}")
    try:
        return wrap(a.samples[:, None, :] * b.samples[None, :, :], set_of(a, b))
    except Exception as error:
        raise mismatch(a, b) or error from None


def cross(ns: EnsembleNamespace, x1: Array, x2: Array, /, *, axis: int = -1) -> Ensemble:
    """The vector product along a visible axis of length 3."""
    a, b = ns.lift(x1, "cross"), ns.lift(x2, "cross")
    samples_of("cross", a, b)
    require(min(a.ndim, b.ndim) > 0, "cross", "operands", "have an axis", f"shapes {a.shape} and {b.shape}")
    axis = visible_axis(axis, min(a.ndim, b.ndim), "cross") - min(a.ndim, b.ndim) if axis < 0 else axis
    places = [visible_axis(axis, x.ndim, "cross") - x.ndim for x in (a, b)]
    fits = places[0] == places[1] and a.shape[places[0]] == b.shape[places[1]] == 3
    require(fits, "cross", "operands", "have length 3 on axis", f"shapes {a.shape} and {b.shape}")
    base, sample_set = ns.main.base, set_of(a, b)
    x, y = (base.moveaxis(v.samples, place - 1, 0) for v, place in zip((a, b), places, strict=True))
    parts = [x[i, ...] * y[j, ...] - x[j, ...] * y[i, ...] for i, j in ((1, 2), (2, 0), (0, 1))]
    return wrap(packed(base.stack(parts, axis=places[0] - 1)), sample_set)


def diagonal(ns: EnsembleNamespace, x: Array, /, *, offset: int = 0) -> Ensemble:
    """The diagonals of the matrices in the last two visible axes."""
    x = ns.lift(x, "diagonal")
    require(x.ndim > 1, "diagonal", "x", "have 2 axes or more", f"shape {x.shape}")
    front = ns.base.diagonal(ns.main.base.moveaxis(x.samples, -1, 0), offset=offset)  # a view
    return view(x, ns.main.base.moveaxis(front, 0, -1))


def trace(ns: EnsembleNamespace, x: Array, /, *, offset: int = 0, dtype: Any = None) -> Ensemble:
    """The sum over each diagonal."""
    x = ns.lift(x, "trace")
    require(x.ndim > 1, "trace", "x", "have 2 axes or more", f"shape {x.shape}")
    return samples_last(ns, ns.base.trace(samples_first(ns, x), offset=offset, dtype=dtype), x.sample_set)


def matrix_norm(ns: EnsembleNamespace, x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Ensemble:
    """A norm of the matrices in the last two visible axes."""
    x = ns.lift(x, "matrix_norm")
    require(x.ndim > 1, "matrix_norm", "x", "have 2 axes or more", f"shape {x.shape}")
    return samples_last(ns, ns.base.matrix_norm(samples_first(ns, x), keepdims=keepdims, ord=ord), x.sample_set)


def matrix_rank(ns: EnsembleNamespace, x: Array, /, *, rtol: Any = None) -> Ensemble:
    """The number of singular values above a tolerance."""
    x = ns.lift(x, "matrix_rank")
    require(x.ndim > 1, "matrix_rank", "x", "have 2 axes or more", f"shape {x.shape}")

    def rank(matrix: Any, tolerance: Any) -> Any:
        return ns.main.base.asarray(ns.base.matrix_rank(matrix, rtol=tolerance))

    result: Ensemble = each_sample(ns, "matrix_rank", rank, x, rtol)
    return result


def vector_norm(
    ns: EnsembleNamespace, x: Array, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
) -> Ensemble:
    """A norm of the vectors along visible axes."""
    x = ns.lift(x, "vector_norm")
    axes = visible_axes(axis, x.ndim, "vector_norm")
    if not axes:  # a vector of one entry; NumPy makes floats of integers and bools first
        base, line = ns.main.base, ns.main.base.expand_dims(x.samples, axis=0)
        if not base.isdtype(line.dtype, ("real floating", "complex floating")):
            line = base.astype(line, base.float64)
        return wrap(packed(ns.base.vector_norm(line, axis=0, ord=ord)), x.sample_set)
    if ord == 2 and not keepdims and type(x.samples) is np.ndarray:
        found = norm(x.samples, axes)
        if found is not None:
            return wrap(found, x.sample_set)
    return wrap(packed(ns.base.vector_norm(x.samples, axis=axes, keepdims=keepdims, ord=ord)), x.sample_set)
