"""NumPy's functions on ensembles, all samples in one call, where the order of operations is that of each sample alone.

The arrays of the samples stand one after the other in memory, as a stack that the function takes along its axes. Its
innermost loops are those of one sample then, so sums have that sample's bits. What a function here does not serve is
left to calls of each sample by `NotByRuleError`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._compile.kept_memory import empty
from ensemble.scalar.ensemble import Ensemble, as_array, wrap
from ensemble.scalar.interop.numpy_batch_arguments import agree, arrays, bound, lifted, real
from ensemble.scalar.interop.numpy_rules import NotByRuleError
from ensemble.scalar.lift.reductions import visible_axes, visible_axis
from ensemble.scalar.namespace import samples_of, set_of
from ensemble.scalar.plain_arrays import NUMBERS, samples_of_stack, stack_of, stack_of_rows
from ensemble.scalar.row_reductions import products, sums

__all__ = ["BATCHES", "front", "of_front"]

Function = Callable[..., Any]

# -- stacks ------------------------------------------------------------------------------------------------------------


def front(x: Any) -> np.ndarray:
    """The arrays of the samples, one after the other: shape ``(n_samples, *shape)``; a plain array in front of one."""
    if not isinstance(x, Ensemble):
        plain = np.asarray(x)
        if plain.dtype.kind not in "biufc" or not plain.flags.c_contiguous:
            raise NotByRuleError("an array of another order of memory")
        return plain[None]
    samples = x.samples
    if not x.ndim or type(samples) is not np.ndarray:
        raise NotByRuleError("a value without axes")
    if samples.ndim > 2 and not samples.flags.c_contiguous:
        raise NotByRuleError("an array of another order of memory")
    return stack_of(samples)


def of_front(rows: Any, sample_set: Any) -> Any:
    """The ensemble of a stack."""
    if isinstance(rows, tuple | list):
        return type(rows)(of_front(part, sample_set) for part in rows)
    return wrap(samples_of_stack(rows), sample_set)


def stacked(function: Function, allowed: str, *, last: bool = True, floats: bool = True) -> Function:
    """Samples first, along `axis` of the first argument: -1 or all entries by default, `last` says which."""

    def rule(*given: Any, **options: Any) -> Any:
        named = bound(function, given, options, allowed)
        first = next(iter(named))
        x = named.pop(first)
        arrays(x)
        if floats:
            real(x)
        others = [value for value in named.values() if isinstance(value, Ensemble)]
        if others:
            raise NotByRuleError("an ensemble among its options")
        rows, axis = front(x), named.pop("axis", None)
        if axis is None:
            rows, axis = rows.reshape(rows.shape[0], -1), 1
        else:
            axis = visible_axis(axis, x.ndim, f"np.{function.__name__}") + 1
        used = {key: named[key] for key in allowed.split() if key in named}
        return of_front(function(rows, **used, axis=axis), x.sample_set)

    return rule


# -- products and sums -------------------------------------------------------------------------------------------------


def _outer(*given: Any, **options: Any) -> Any:
    named = bound(np.outer, given, options, "a b")
    a, b = lifted(named["a"]), lifted(named["b"])
    real(a, b)
    agreed = agree(np.outer, a, b)
    left, right = (x.samples.reshape(x.size, x.n_samples) for x in (a, b))
    return wrap(np.multiply(left[:, None], right[None]), agreed)


def _kron(*given: Any, **options: Any) -> Any:
    named = bound(np.kron, given, options, "a b")
    arrays(named["a"], named["b"])
    a, b = lifted(named["a"]), lifted(named["b"])
    real(a, b)
    agreed, n = agree(np.kron, a, b), max(a.ndim, b.ndim)
    shapes = [(1,) * (n - x.ndim) + x.shape for x in (a, b)]
    left, right = (
        x.samples.reshape(*(length for one in shape for length in ((one, 1) if k == 0 else (1, one))), x.n_samples)
        for k, (x, shape) in enumerate(zip((a, b), shapes, strict=True))
    )
    product = left * right
    return wrap(product.reshape(*(p * q for p, q in zip(*shapes, strict=True)), product.shape[-1]), agreed)


def _of_vectors(function: Function) -> Function:
    """Make the rule of `inner` and `vdot` of two vectors: one inner product of NumPy for each sample."""

    def rule(*given: Any, **options: Any) -> Any:
        if options or len(given) != 2:
            raise NotByRuleError("arguments by name")
        a, b = given
        arrays(a, b)
        real(a, b)
        if a.ndim > 1 or b.ndim > 1 or a.shape != b.shape or a.dtype != b.dtype:
            raise NotByRuleError("matrices")
        agreed = agree(function, a, b)
        first, second = (lifted(x).samples for x in ((b, a) if lifted(a).is_shared else (a, b)))
        found = products(first, second)
        return wrap(np.vecdot(front(a), front(b)) if found is None else found, agreed)

    return rule


def _sliding(function: Function) -> Function:
    """`convolve` and `correlate`: one call of `correlate` for each sample, with little around it."""
    reverses = function is np.convolve

    def rule(*given: Any, **options: Any) -> Any:
        named = bound(function, given, options, "a v mode")
        a, v, mode = named["a"], named["v"], named["mode"]
        arrays(a, v)
        real(a, v)
        if a.ndim > 1 or v.ndim > 1 or not a.size or not v.size or a.dtype != v.dtype:
            raise NotByRuleError("not vectors")
        agreed, n_samples = agree(function, a, v), samples_of(f"np.{function.__name__}", a, v)
        if reverses and v.size > a.size:
            a, v = v, a
        left, right = (list(rows) * (n_samples // rows.shape[0]) for rows in (front(a), front(v)))
        if reverses:
            right = [x[::-1] for x in right]
        results = [np.correlate(x, y, mode) for x, y in zip(left, right, strict=True)]
        return of_front(stack_of_rows(results), agreed)

    return rule


def _trapezoid(*given: Any, **options: Any) -> Any:
    named = bound(np.trapezoid, given, options, "y x dx axis")
    y, x, dx = named["y"], named["x"], named["dx"]
    arrays(y)
    real(y, dx)
    axis = visible_axis(named["axis"], y.ndim, "np.trapezoid") + 1
    found = _trapezoid_of_rows(y, dx if x is None else x, x is None) if axis == y.ndim else None
    if found is not None:
        return found
    if x is None:
        return of_front(np.trapezoid(front(y), dx=dx, axis=axis), set_of(y))
    arrays(x)
    real(x)
    if x.ndim != 1 or (isinstance(x, Ensemble) and not (x.is_shared or y.ndim == 1)):
        raise NotByRuleError("points of every entry")
    agreed = agree(np.trapezoid, y, x)
    points = front(x)
    return of_front(np.trapezoid(front(y), points[0] if points.shape[0] == 1 else points, axis=axis), agreed)


def _trapezoid_of_rows(y: Any, x: Any, even: bool) -> Any:
    """Along the last visible axis, samples last: each step is made in one piece of memory."""
    if not isinstance(y, Ensemble) or y.is_shared or y.shape[-1] < 2 or not y.samples.flags.c_contiguous:
        return None
    if even and type(x) not in (float, int):
        return None
    agreed, samples = set_of(y), y.samples
    if not even:
        fits = isinstance(x, Ensemble | np.ndarray) and x.ndim == 1 and x.dtype == y.dtype
        if not fits or len(x) != y.shape[-1] or (isinstance(x, Ensemble) and x.n_samples not in (1, y.n_samples)):
            return None
        agreed, x = agree(np.trapezoid, y, x), np.diff(lifted(x).samples, axis=0)
    shape = (*samples.shape[:-2], samples.shape[-2] - 1, samples.shape[-1])
    terms = np.add(samples[..., 1:, :], samples[..., :-1, :], out=empty(shape, samples.dtype))
    np.multiply(x, terms, out=terms)
    np.divide(terms, 2.0, out=terms)
    return wrap(sums("x", terms.reshape(-1, *shape[-2:])).reshape(*shape[:-2], shape[-1]), agreed)


def _average(*given: Any, **options: Any) -> Any:
    named = bound(np.average, given, options, "a axis weights")
    a, weights = named["a"], named["weights"]
    if weights is None:
        raise NotByRuleError("no weights")
    arrays(a, weights)
    real(a, weights)
    if a.shape != weights.shape or a.dtype != weights.dtype:
        raise NotByRuleError("weights of an axis")
    agreed = agree(np.average, a, weights)
    values, factors = np.broadcast_arrays(front(a), front(weights))
    axis = named["axis"]
    if axis is None:
        axis, (values, factors) = 1, (part.reshape(part.shape[0], -1) for part in (values, factors))
    else:
        axis = tuple(k + 1 for k in visible_axes(axis, a.ndim, "np.average"))
    return of_front(np.average(values, axis, factors), agreed)


def _trace(*given: Any, **options: Any) -> Any:
    named = bound(np.trace, given, options, "a offset axis1 axis2")
    a = named["a"]
    real(a)
    if a.ndim != 2 or not a.samples.flags.c_contiguous:
        raise NotByRuleError("several matrices")
    axes = [visible_axis(named[key], 2, "np.trace") for key in ("axis1", "axis2")]
    diagonal = np.diagonal(a.samples, named["offset"], *axes)  # with the samples before it
    return of_front(np.ascontiguousarray(diagonal).sum(axis=-1), set_of(a))


# -- order and search --------------------------------------------------------------------------------------------------


def _lexsort(*given: Any, **options: Any) -> Any:
    named = bound(np.lexsort, given, options, "keys axis")
    keys, axis = named["keys"], named["axis"]
    if not isinstance(keys, list | tuple):
        raise NotByRuleError("keys in one array")
    arrays(*keys)
    if len({key.shape for key in keys}) > 1:
        raise NotByRuleError("keys of several shapes")
    agreed = agree(np.lexsort, *keys)
    rows = np.broadcast_arrays(*(front(key) for key in keys))
    return of_front(np.lexsort(rows, axis=visible_axis(axis, keys[0].ndim, "np.lexsort") + 1), agreed)


def _searchsorted(*given: Any, **options: Any) -> Any:
    """The points of all samples in one table, or one call of the array's own method for each."""
    named = bound(np.searchsorted, given, options, "a v side")
    a, v, side = named["a"], named["v"], named["side"]
    if type(v) in NUMBERS or isinstance(v, np.generic):
        v = np.asarray(v)
    if not (isinstance(a, Ensemble) or type(a) is np.ndarray) or a.ndim != 1:
        raise NotByRuleError("no table")
    points = lifted(v)
    agreed, n_samples = agree(np.searchsorted, a, points), samples_of("np.searchsorted", a, points)
    tables = front(a)
    if tables.shape[0] == 1:
        return wrap(np.asarray(tables[0].searchsorted(points.samples, side)), agreed)
    wanted = [points.samples[..., 0]] * n_samples if points.n_samples == 1 else list(stack_of(points.samples))
    rows = np.empty((n_samples, *points.shape), np.intp)
    for s, table in enumerate(tables):
        rows[s] = table.searchsorted(wanted[s], side)
    found = wrap(samples_of_stack(rows), agreed)
    return found if points.ndim or points.is_value else as_array(found)


def _interp(*given: Any, **options: Any) -> Any:
    """One call for each sample, with little around it."""
    named = bound(np.interp, given, options, "x xp fp")
    parts = [named["x"], named["xp"], named["fp"]]
    arrays(*parts)
    real(*parts)
    if any(part.ndim > 1 for part in parts):
        raise NotByRuleError("matrices")
    agreed, n_samples = agree(np.interp, *parts), samples_of("np.interp", *parts)
    columns = [list(rows) * (n_samples // rows.shape[0]) for rows in map(front, parts)]
    return of_front(np.array([np.interp(*row) for row in zip(*columns, strict=True)]), agreed)


def _unique(*given: Any, **options: Any) -> Any:
    """Vectors without two equal entries or NaN: their sorted entries."""
    named = bound(np.unique, given, options, "ar return_index return_inverse return_counts")
    x = named["ar"]
    arrays(x)
    real(x)
    rows = front(x)
    rows = rows.reshape(rows.shape[0], -1)
    wants_places = named["return_index"] or named["return_inverse"]
    if wants_places and x.ndim > 1:
        raise NotByRuleError("the places of a matrix")
    order: Any = np.argsort(rows, axis=-1) if wants_places else None
    ordered = np.sort(rows, axis=-1) if order is None else np.take_along_axis(rows, order, -1)
    if not (ordered[:, 1:] > ordered[:, :-1]).all() or np.isnan(ordered).any():
        raise NotByRuleError("equal entries")
    found = [ordered]
    if named["return_index"]:
        found.append(order)
    if named["return_inverse"]:
        inverse = np.empty_like(order)
        np.put_along_axis(inverse, order, np.broadcast_to(np.arange(rows.shape[1]), rows.shape), -1)
        found.append(inverse)
    if named["return_counts"]:
        found.append(np.ones(rows.shape, np.intp))
    return of_front(tuple(found) if len(found) > 1 else ordered, x.sample_set)


def _bincount(*given: Any, **options: Any) -> Any:
    """One count for all: each sample has its own numbers."""
    x, weights, least = _bincount_arguments(*given, **options)
    arrays(x)
    if x.ndim != 1 or x.dtype.kind != "i" or not x.size:
        raise NotByRuleError("not a vector of integers")
    agreed, n_samples = agree(np.bincount, x, weights), samples_of("np.bincount", x, weights)
    if x.size > 1000 and weights is None:  # each sample by itself, with little around it
        counts = [np.bincount(row, None, least) for row in front(x)]
        if len({len(count) for count in counts}) > 1:
            raise NotByRuleError("results of several lengths")
        return of_front(np.concatenate(counts).reshape(len(counts), -1), agreed)
    rows = np.broadcast_to(front(x), (n_samples, x.size)).astype(np.intp)
    sizes = np.maximum(rows.max(axis=1) + 1, least)
    if rows.min() < 0 or sizes.min() != sizes.max() or sizes[0] > 8 * x.size + least:
        raise NotByRuleError("numbers below 0, or results of several lengths")
    n = int(sizes[0])
    rows += n * np.arange(n_samples)[:, None]
    if weights is not None:
        arrays(weights)
        weights = np.broadcast_to(front(weights), rows.shape).reshape(-1)
    return of_front(np.bincount(rows.reshape(-1), weights, n * n_samples).reshape(n_samples, n), agreed)


def _bincount_arguments(x: Any, /, weights: Any = None, minlength: Any = 0) -> tuple[Any, Any, int]:
    return x, weights, operator.index(minlength)


# -- matrices ----------------------------------------------------------------------------------------------------------


def _of_matrix(function: Function) -> Function:
    """Samples first: LAPACK for each matrix; one that fails leaves all to calls of each sample."""

    def rule(*given: Any, **options: Any) -> Any:
        if options or len(given) != 1:
            raise NotByRuleError("options")
        (x,) = given
        arrays(x)
        real(x)
        if x.ndim < 2 or not math.prod(x.shape):
            raise NotByRuleError("no matrix")
        try:
            return of_front(function(front(x)), x.sample_set)
        except np.linalg.LinAlgError:
            raise NotByRuleError("a matrix that fails") from None

    return rule


BATCHES: dict[Any, Function] = {
    np.outer: _outer,
    np.kron: _kron,
    np.inner: _of_vectors(np.inner),
    np.vdot: _of_vectors(np.vdot),
    np.convolve: _sliding(np.convolve),
    np.correlate: _sliding(np.correlate),
    np.trapezoid: _trapezoid,
    np.average: _average,
    np.trace: _trace,
    np.partition: stacked(np.partition, "a kth axis"),
    np.argpartition: stacked(np.argpartition, "a kth axis"),
    np.lexsort: _lexsort,
    np.searchsorted: _searchsorted,
    np.interp: _interp,
    np.unique: _unique,
    np.bincount: _bincount,
    np.linalg.cond: _of_matrix(np.linalg.cond),
    np.linalg.matrix_rank: _of_matrix(np.linalg.matrix_rank),
}
"""The rule of each function, by the function itself."""
