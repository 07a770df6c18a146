"""NumPy's products of matrices on ensembles: stacks of matrices for BLAS, the samples first.

What a function here does not serve is left to calls of each sample by `NotByRuleError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble.scalar.ensemble import Ensemble, wrap
from ensemble.scalar.interop.numpy_along import NotByRuleError
from ensemble.scalar.interop.numpy_batch_arguments import agree, arrays, lifted, real
from ensemble.scalar.lift.reductions import visible_axes
from ensemble.scalar.plain_arrays import samples_of_stack, stack_of

__all__ = ["PRODUCTS"]

Function = Callable[..., Any]


def _stack(x: Any, front: tuple[int, ...], shape: tuple[int, int]) -> np.ndarray:
    """The samples as a stack of matrices of this shape, the visible axes in the order `front`."""
    stack = stack_of(x.samples).transpose(0, *(k + 1 for k in front))
    return stack.reshape(stack.shape[0], *shape)


def _product(function: Function, a: Any, b: Any, left: Sequence[int], right: Sequence[int]) -> Any:
    """The sum of products over the axes `left` of `a` and `right` of `b`."""
    arrays(a, b)
    real(a, b)
    a, b = lifted(a), lifted(b)
    lengths = [a.shape[k] for k in left]
    if a.dtype != b.dtype or lengths != [b.shape[k] for k in right] or not a.size or not b.size:
        raise NotByRuleError("axes that do not fit")
    agreed, n = agree(function, a, b), math.prod(lengths)
    if a.n_samples == b.n_samples == 1:
        raise NotByRuleError("one sample")
    rows, columns = ([k for k in range(x.ndim) if k not in own] for x, own in ((a, left), (b, right)))
    first = _stack(a, (*rows, *left), (-1, n))
    second = _stack(b, (*right, *columns), (n, -1))
    product = np.matmul(first, second)
    shape = (*(a.shape[k] for k in rows), *(b.shape[k] for k in columns))
    return wrap(samples_of_stack(product.reshape(product.shape[0], *shape)), agreed)


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    arrays(a, b)
    if isinstance(axes, int):
        if not 0 < axes <= min(a.ndim, b.ndim):
            raise NotByRuleError("other numbers of axes")
        return _product(np.tensordot, a, b, range(a.ndim - axes, a.ndim), range(axes))
    left, right = (visible_axes(k, x.ndim, "np.tensordot") for k, x in zip(axes, (a, b), strict=True))
    if len({*left}) < len(left) or len({*right}) < len(right) or not left:
        raise NotByRuleError("no axes, or one of them twice")
    return _product(np.tensordot, a, b, left, right)


def _inner(*given: Any, **options: Any) -> Any:
    if options or len(given) != 2:
        raise NotByRuleError("arguments by name")
    a, b = given
    arrays(a, b)
    if a.ndim == b.ndim == 1:
        raise NotByRuleError("vectors")
    return _product(np.inner, a, b, (a.ndim - 1,), (b.ndim - 1,))


def _multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """Three matrices: two products in the order that takes less work, as NumPy decides by their shapes."""
    if out is not None or not isinstance(arrays, list | tuple) or len(arrays) != 3:
        raise NotByRuleError("other numbers of matrices")
    if any(getattr(x, "ndim", 0) != 2 or not isinstance(x, Ensemble | np.ndarray) for x in arrays):
        raise NotByRuleError("vectors")
    a, b, c = arrays
    (m, n), (p, q) = a.shape, c.shape
    if b.shape != (n, p):
        raise NotByRuleError("shapes that do not fit")
    if m * p * (n + q) < n * q * (m + p):
        return np.dot(np.dot(a, b), c)
    return np.dot(a, np.dot(b, c))


PRODUCTS: dict[Any, Function] = {
    np.tensordot: _tensordot,
    np.inner: _inner,
    np.linalg.multi_dot: _multi_dot,
}
"""The rule of each function, by the function itself."""
