"""NumPy's products of matrices on ensembles: stacks of matrices for BLAS, the samples first.

What a function here does not serve is left to calls of each sample by `NotByRuleError`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._compile.kept_memory import empty
from ensemble.scalar.ensemble import Ensemble, packed, wrap
from ensemble.scalar.interop.numpy_along import NotByRuleError
from ensemble.scalar.interop.numpy_batch_arguments import agree, arrays, lifted, real
from ensemble.scalar.interop.numpy_batches import front, of_front
from ensemble.scalar.lift.reductions import visible_axes
from ensemble.scalar.namespace import samples_of
from ensemble.scalar.plain_arrays import samples_of_stack, stack_of
from ensemble.scalar.row_reductions import sums

__all__ = ["PRODUCTS"]

Function = Callable[..., Any]


def _stack(x: Any, order: tuple[int, ...], shape: tuple[int, int]) -> np.ndarray:
    """The samples as a stack of matrices of this shape, the visible axes in this order."""
    stack = stack_of(x.samples).transpose(0, *(k + 1 for k in order))
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


def _einsum(*given: Any, **options: Any) -> Any:
    """Samples first: its loops over the letters are those of one sample."""
    if options or not isinstance(given[0], str) or "." in given[0] or len(given) > 4:
        raise NotByRuleError("options, an ellipsis or lists of axes")
    subscripts, operands = given[0].replace(" ", ""), [lifted(x) for x in given[1:]]
    left, arrow, right = subscripts.partition("->")
    parts = left.split(",")
    if not arrow:
        right = "".join(sorted({c for c in left if left.count(c) == 1 and c != ","}))
    if len(parts) != len(operands) or any(len(p) != x.ndim for p, x in zip(parts, operands, strict=True)):
        raise NotByRuleError("letters that do not fit")
    real(*operands)
    letters = {c: n for part, x in zip(parts, operands, strict=True) for c, n in zip(part, x.shape, strict=True)}
    has_sums = len(letters) > len(set(right))
    found = _einsum_of_rows(parts, operands, letters, right) if len({x.dtype for x in operands}) == 1 else None
    if found is not None:
        return found
    if len({x.dtype for x in operands}) > 1 or (has_sums and len(operands) > 2):
        raise NotByRuleError("several types, or a sum of products of three factors")
    if has_sums and math.prod(letters.values()) > np.getbufsize():
        raise NotByRuleError("sums that NumPy divides into the parts of a buffer")
    agreed, n_samples = agree(np.einsum, *operands), samples_of("np.einsum", *operands)
    hidden = next(c for c in "zyxwvutsrqponmlkjihgfedcbaZ" if c not in subscripts)
    fronts = []
    for k, x in enumerate(operands):
        if not x.ndim:
            raise NotByRuleError("a value without axes")
        shared = x.n_samples == 1 and n_samples > 1
        fronts.append(front(x)[0] if shared else front(x))
        parts[k] = parts[k] if shared else hidden + parts[k]
    return of_front(np.einsum(f"{','.join(parts)}->{hidden}{right}", *fronts), agreed)


def _times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(np.multiply(a, b, out=empty(np.broadcast_shapes(a.shape, b.shape), a.dtype)))


def _einsum_of_rows(parts: list[str], operands: list[Any], letters: dict[str, int], right: str) -> Any:
    """Products entry by entry, and sums of them over the last letters, in the order of `np.sum`; None for others."""
    summed = "".join(c for c in letters if c not in right)
    order = right + summed
    whole = math.prod(letters.values())
    if len(order) != len(letters) or "Z" in order or not whole or whole > 2 * max(x.size for x in operands):
        return None
    agreed, n_samples = agree(np.einsum, *operands), samples_of("np.einsum", *operands)
    if n_samples == 1:
        return None
    factors = []
    for part, x in zip(parts, operands, strict=True):
        if not x.ndim or any(letters[c] != n for c, n in zip(part, x.shape, strict=True)):
            return None
        named = [c for c in order if c in part]
        samples = np.einsum(f"{part}Z->{''.join(named)}Z", x.samples)  # a view
        factors.append(samples.reshape(*(letters[c] if c in part else 1 for c in order), samples.shape[-1]))
    if len(factors) == 2:
        factors.sort(key=lambda factor: -factor.size)
    *first, last = factors
    product = functools.reduce(_times, first) if first else last
    if not summed:
        if first:
            product = _times(product, last)
            np.add(product, 0.0, out=product)
        return wrap(packed(product), agreed)
    shape = (*(letters[c] for c in right), math.prod(letters[c] for c in summed), n_samples)
    if product.size != whole * n_samples or not (product.flags.c_contiguous or operands[0].size > whole):
        return None
    rows = np.ascontiguousarray(product).reshape(-1, *shape[-2:])
    if not first:
        return wrap(sums("x", rows).reshape(*shape[:-2], n_samples), agreed)
    shared_by_rows = all(n == 1 for n in last.shape[: len(right)])
    other_shape = ((1,) * len(right) if shared_by_rows else shape[:-2]) + tuple(letters[c] for c in summed)
    other = np.ascontiguousarray(np.broadcast_to(last, (*other_shape, n_samples)))
    return wrap(sums("xy", rows, other.reshape(-1, *shape[-2:])).reshape(*shape[:-2], n_samples), agreed)


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
    np.einsum: _einsum,
    np.tensordot: _tensordot,
    np.inner: _inner,
    np.linalg.multi_dot: _multi_dot,
}
"""The rule of each function, by the function itself."""
