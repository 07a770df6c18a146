"""NumPy's functions on ensembles that work entry by entry, or are made of such: the samples stay in the last axis.

What a function here does not serve is left to calls of each sample by `NotByRuleError`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._compile.kept_memory import empty
from ensemble.scalar.ensemble import Ensemble, as_array, packed, view, wrap
from ensemble.scalar.interop.numpy_batch_arguments import agree, arrays, bound, lifted, real
from ensemble.scalar.interop.numpy_rules import NotByRuleError
from ensemble.scalar.lift.reductions import visible_axes, visible_axis
from ensemble.scalar.plain_arrays import NUMBERS

__all__ = ["ENTRIES"]

Function = Callable[..., Any]

# -- entry by entry ----------------------------------------------------------------------------------------------------


def _gradient(*given: Any, **options: Any) -> Any:
    """Samples last; the distances are the same for all."""
    named = bound(np.gradient, given, options, "f varargs axis edge_order")
    f, spacing = named["f"], named["varargs"]
    arrays(f)
    real(f)
    for distance in spacing:
        plain = type(distance) in (float, int) or (type(distance) is np.ndarray and distance.dtype.char == "d")
        if not plain:
            raise NotByRuleError("distances of each sample")
    axes = visible_axes(named["axis"], f.ndim, "np.gradient")
    axes = tuple(range(f.ndim)) if axes is None else axes
    one = named["axis"] is not None and not np.iterable(named["axis"])
    found = np.gradient(f.samples, *spacing, axis=axes[0] if one else axes, edge_order=named["edge_order"])
    return tuple(wrap(part, f.sample_set) for part in found) if isinstance(found, tuple) else wrap(found, f.sample_set)


def _unwrap(*given: Any, **options: Any) -> Any:
    named = bound(np.unwrap, given, options, "p discont axis period")
    p = named.pop("p")
    arrays(p)
    real(p)
    if any(isinstance(value, Ensemble) for value in named.values()):
        raise NotByRuleError("an option of each sample")
    named["axis"] = visible_axis(named["axis"], p.ndim, "np.unwrap")
    return wrap(np.unwrap(p.samples, **named), p.sample_set)


def _choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    if out is not None or not isinstance(choices, list | tuple) or not choices:
        raise NotByRuleError("choices in an array, or out=")
    parts = [lifted(a), *map(lifted, choices)]
    arrays(*parts)
    agreed, n = agree(np.choose, *parts), max(x.ndim for x in parts)
    samples = [x.samples.reshape((1,) * (n - x.ndim) + x.samples.shape) for x in parts]
    choose: Function = np.choose
    return wrap(packed(choose(samples[0], samples[1:], mode=mode)), agreed)


def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if type(default) not in NUMBERS or len(condlist) != len(choicelist) or not condlist:
        raise NotByRuleError("a default of each sample")
    conditions = [lifted(x) for x in condlist]
    choices = [x if type(x) in NUMBERS else lifted(x) for x in choicelist]
    of_arrays = [x for x in (*conditions, *choices) if isinstance(x, Ensemble)]
    arrays(*of_arrays)
    agreed = agree(np.select, *of_arrays)
    samples = [x.samples if isinstance(x, Ensemble) else x for x in choices]
    return wrap(packed(np.select([x.samples for x in conditions], samples, default)), agreed)


def _vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    arrays(x)
    real(x)
    if x.ndim != 1 or x.dtype.char != "d":
        raise NotByRuleError("not a vector, or float32, of which NumPy makes float64")
    n = x.shape[0] if N is None else operator.index(N)
    result = np.empty((x.shape[0], n, x.n_samples), x.dtype)
    powers = result if increasing else result[:, ::-1]
    if n > 0:
        powers[:, 0] = 1
    if n > 1:
        powers[:, 1:] = x.samples[:, None]
        np.multiply.accumulate(powers[:, 1:], out=powers[:, 1:], axis=1)
    return wrap(result, x.sample_set)


def _polyval(p: Any, x: Any) -> Any:
    """Horner's rule, entry by entry."""
    if isinstance(p, list | tuple) or isinstance(x, list | tuple | np.poly1d) or isinstance(p, np.poly1d):
        raise NotByRuleError("another container")
    arrays(p, x)
    real(p, x)
    if p.ndim != 1:
        raise NotByRuleError("not a vector")
    agreed = agree(np.polyval, p, x)
    coefficients, points = lifted(p).samples, lifted(x).samples
    if isinstance(p, Ensemble):
        shape = (*points.shape[:-1], max(points.shape[-1], coefficients.shape[-1]))
    else:
        coefficients, shape = coefficients[:, 0], points.shape
    if coefficients.dtype != points.dtype or not coefficients.shape[0]:
        y = np.zeros_like(points)
        for coefficient in coefficients:
            y = y * points + coefficient
        return wrap(y, agreed)
    y = np.add(np.zeros_like(points) * points, coefficients[0], out=empty(shape, points.dtype))
    for coefficient in coefficients[1:]:
        np.multiply(y, points, out=y)
        np.add(y, coefficient, out=y)
    return wrap(y, agreed)


def _derivative(p: Any, m: Any = 1) -> Any:
    arrays(p)
    real(p)
    if m != 1 or p.ndim != 1 or p.dtype.char != "d":
        raise NotByRuleError("another derivative")
    return p[:-1] * np.arange(p.shape[0] - 1, 0, -1)


def _integral(p: Any, m: Any = 1, k: Any = None) -> Any:
    arrays(p)
    real(p)
    if m != 1 or k is not None or p.ndim != 1 or p.dtype.char != "d":
        raise NotByRuleError("another integral")
    return np.concatenate((p / np.arange(p.shape[0], 0, -1), np.zeros(1)))


def _polynomial_sum(operation: Function) -> Function:
    def rule(a1: Any, a2: Any) -> Any:
        arrays(a1, a2)
        real(a1, a2)
        if a1.ndim != 1 or a2.ndim != 1:
            raise NotByRuleError("not vectors")
        more = a2.shape[0] - a1.shape[0]
        if more > 0:
            a1 = np.concatenate((np.zeros(more, a1.dtype), a1))
        elif more:
            a2 = np.concatenate((np.zeros(-more, a2.dtype), a2))
        return operation(a1, a2)

    return rule


def _cross(*given: Any, **options: Any) -> Any:
    named = bound(np.cross, given, options, "a b")
    a, b = named["a"], named["b"]
    arrays(a, b)
    real(a, b)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise NotByRuleError("vectors of two entries")
    agreed = agree(np.cross, a, b)
    return wrap(packed(np.cross(lifted(a).samples, lifted(b).samples, axisa=-2, axisb=-2, axisc=-2)), agreed)


def _linspace(*given: Any, **options: Any) -> Any:
    """The step of one sample that is zero has NumPy take another way for all."""
    named = bound(np.linspace, given, options, "start stop num endpoint")
    ends = [named["start"], named["stop"]]
    parts = [lifted(end) for end in ends if type(end) not in NUMBERS]
    if any(x.ndim or x.dtype.char != "d" for x in parts):
        raise NotByRuleError("ends with axes, or not of float64")
    agreed = agree(np.linspace, *parts)
    start, stop = (end if type(end) in NUMBERS else lifted(end).samples for end in ends)
    n = operator.index(named["num"])
    places = n - 1 if named["endpoint"] else n
    if places < 1 or np.any((stop - start) / places == 0.0):
        raise NotByRuleError("a step of zero")
    return as_array(wrap(np.linspace(start, stop, n, named["endpoint"], axis=0), agreed))


def _logspace(*given: Any, **options: Any) -> Any:
    named = bound(np.logspace, given, options, "start stop num endpoint")
    return np.power(10.0, _linspace(named["start"], named["stop"], named["num"], named["endpoint"]))


# -- without NaN -------------------------------------------------------------------------------------------------------


def _without_nan(function: Function, other: Function) -> Function:
    """Make the rule of a function that leaves NaN out: where there are none, it is `other`."""

    def rule(a: Any, *given: Any, **options: Any) -> Any:
        arrays(a)
        real(a)
        if options.keys() - {"axis", "q"} or len(given) > 1 + (other is not np.median):
            raise NotByRuleError("options")
        axis = options.get("axis")
        if not (axis is None or type(axis) is int) or np.isnan(lifted(a).samples).any():
            raise NotByRuleError("NaN, or several axes")
        return other(a, *given, **options)

    return rule


def _cumulated(function: Function, neutral: float) -> Function:
    def rule(a: Any, axis: Any = None) -> Any:
        arrays(a)
        real(a)
        return function(np.where(np.isnan(a), neutral, a), axis=axis)

    return rule


# -- arrays put together -----------------------------------------------------------------------------------------------


def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    if axis is None:
        return np.concatenate((np.ravel(arr), np.ravel(values)))
    return np.concatenate((arr, values), axis=axis)


def _joined(prepared: Function, axis: int) -> Function:
    def rule(tup: Any, **options: Any) -> Any:
        if options or not isinstance(tup, list | tuple) or not tup:
            raise NotByRuleError("options, or another container")
        parts = [prepared(part if isinstance(part, Ensemble) else np.asarray(part)) for part in tup]
        return np.concatenate(parts, axis=0 if axis == 1 and prepared is np.atleast_1d and parts[0].ndim == 1 else axis)

    return rule


def _column(x: Any) -> Any:
    return np.atleast_2d(x).T if x.ndim < 2 else x


def _block(arrays: Any) -> Any:
    """Rows of blocks."""
    if not isinstance(arrays, list) or not arrays or not all(isinstance(row, list) and row for row in arrays):
        raise NotByRuleError("not a list of rows")
    parts = [part for row in arrays for part in row]
    if any(not hasattr(part, "ndim") or part.ndim != 2 for part in parts):
        raise NotByRuleError("blocks that are no matrices")
    return np.concatenate([np.concatenate(row, axis=-1) for row in arrays], axis=-2)


def _insert(*given: Any, **options: Any) -> Any:
    named = bound(np.insert, given, options, "arr obj values axis")
    x, places, axis = named["arr"], named["obj"], named["axis"]
    if not isinstance(x, Ensemble) or not x.ndim or type(named["values"]) not in NUMBERS:
        raise NotByRuleError("values of each sample")
    if isinstance(places, Ensemble):
        raise NotByRuleError("places of each sample")
    samples = x.samples.reshape(x.size, x.n_samples) if axis is None else x.samples
    axis = 0 if axis is None else visible_axis(axis, x.ndim, "np.insert")
    return wrap(np.insert(samples, places, named["values"], axis=axis), x.sample_set)


MOVING_MODES = frozenset(("constant", "edge", "reflect", "symmetric", "wrap", "empty"))


def _pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    if not isinstance(array, Ensemble) or not array.ndim or mode not in MOVING_MODES or isinstance(pad_width, dict):
        raise NotByRuleError("another way")
    if any(type(value) not in (int, float, str) for value in options.values()):
        raise NotByRuleError("values of each sample, or of each axis")
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2)).tolist()
    return wrap(packed(np.pad(array.samples, [*widths, (0, 0)], mode, **options)), array.sample_set)


def _array_equal(a1: Any, a2: Any) -> Any:
    arrays(a1, a2)
    if a1.shape != a2.shape:
        raise NotByRuleError("several shapes")
    return np.all(np.equal(a1, a2))


def _real_if_close(a: Any, tol: float = 100) -> Any:
    if not isinstance(a, Ensemble) or a.dtype.kind == "c":
        raise NotByRuleError("complex values")
    return as_array(view(a, a.samples))


def _union1d(ar1: Any, ar2: Any) -> Any:
    arrays(ar1, ar2)
    return np.unique(np.concatenate((np.ravel(ar1), np.ravel(ar2))))


def _digitize(*given: Any, **options: Any) -> Any:
    named = bound(np.digitize, given, options, "x bins right")
    x, bins = named["x"], named["bins"]
    if isinstance(bins, Ensemble) or not isinstance(x, Ensemble) or not x.ndim:
        raise NotByRuleError("bins of each sample")
    return wrap(np.digitize(x.samples, bins, named["right"]), x.sample_set)


def _ediff1d(ary: Any) -> Any:
    real(ary)
    return np.diff(np.ravel(ary))


OVER_AXES = frozenset((np.sum, np.prod, np.mean, np.max, np.min, np.any, np.all, np.std, np.var, np.ptp, np.median))


def _apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    """Reductions of NumPy, axis by axis."""
    arrays(a)
    if func not in OVER_AXES or not isinstance(a, Ensemble):
        raise NotByRuleError("a function of the user's")
    for axis in (axes,) if type(axes) is int else axes:
        a = func(a, axis=visible_axis(axis, a.ndim, "np.apply_over_axes"), keepdims=True)
    return a


PIECE = 8192
"""Numbers of which `i0` is computed at a time: its temporaries stay in the cache."""


def _i0(x: Any) -> Any:
    if not isinstance(x, Ensemble) or x.dtype.char != "d" or not x.samples.flags.c_contiguous:
        raise NotByRuleError("another type")
    if x.samples.size <= 2 * PIECE:
        return wrap(np.i0(x.samples), x.sample_set)
    result = empty(x.samples.shape, x.dtype)
    flat, source = result.reshape(-1), x.samples.reshape(-1)
    for k in range(0, flat.size, PIECE):
        flat[k : k + PIECE] = np.i0(source[k : k + PIECE])
    return wrap(result, x.sample_set)


ENTRIES: dict[Any, Function] = {
    np.apply_over_axes: _apply_over_axes,
    np.i0: _i0,
    np.gradient: _gradient,
    np.unwrap: _unwrap,
    np.choose: _choose,
    np.select: _select,
    np.vander: _vander,
    np.polyval: _polyval,
    np.polyder: _derivative,
    np.polyint: _integral,
    np.polyadd: _polynomial_sum(operator.add),
    np.polysub: _polynomial_sum(operator.sub),
    np.cross: _cross,
    np.linspace: _linspace,
    np.logspace: _logspace,
    np.nanmedian: _without_nan(np.nanmedian, np.median),
    np.nanpercentile: _without_nan(np.nanpercentile, np.percentile),
    np.nanquantile: _without_nan(np.nanquantile, np.quantile),
    np.nancumsum: _cumulated(np.cumsum, 0.0),
    np.nancumprod: _cumulated(np.cumprod, 1.0),
    np.digitize: _digitize,
    np.ediff1d: _ediff1d,
    np.union1d: _union1d,
    np.append: _append,
    np.hstack: _joined(np.atleast_1d, 1),
    np.vstack: _joined(np.atleast_2d, 0),
    np.dstack: _joined(np.atleast_3d, 2),
    np.column_stack: _joined(_column, 1),
    np.block: _block,
    np.insert: _insert,
    np.pad: _pad,
    np.array_equal: _array_equal,
    np.real_if_close: _real_if_close,
}
"""The rule of each function, by the function itself."""
