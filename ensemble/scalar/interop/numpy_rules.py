"""NumPy's functions on ensembles over NumPy: the function itself, called once on arrays that hold all samples.

Three rules cover what needs no sample by itself. An *elementwise* function takes arrays with the sample axis last. A
function *along axes* does so too, its axes counted without that axis. A function that only *moves* entries takes arrays
of the visible shape whose every entry is the run of bytes of its samples: results are views exactly where NumPy's are.
Promotion, options and errors are NumPy's own.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._check import message
from ensemble._typing import Array
from ensemble.scalar._memory import refill
from ensemble.scalar._operators import NUMBERS
from ensemble.scalar.ensemble import Ensemble, as_array, packed, view, wrap
from ensemble.scalar.interop import ufuncs
from ensemble.scalar.interop.numpy_along import NotByRuleError, along, lifted_array
from ensemble.scalar.interop.ufuncs import first_ensemble, result_of, samples_in, taken_outputs, written_to_outputs
from ensemble.scalar.lift.each_sample import each_sample
from ensemble.scalar.lift.reductions import visible_axis
from ensemble.scalar.namespace import namespace_of, samples_of, set_of
from ensemble.scalar.plain_arrays import LARGE_STACK, array_like, samples_of_stack, stack_of
from ensemble.scalar.sample_set import common_set

__all__ = ["RULES", "NotByRuleError"]

Function = Callable[..., Any]


N_ARRAYS: dict[Function, int] = {np.where: 3, np.clip: 3, np.isclose: 5, np.angle: 2}
"""Number of arguments by position that broadcast; those after them are options."""


def elementwise(function: Function) -> Function:
    """Rule: the arguments by position are arrays or numbers that broadcast; the result is a new array."""
    name, n_arrays, is_where = function.__name__, N_ARRAYS.get(function, 1), function is np.where

    def lifted(*values: Any, **options: Any) -> Any:
        if len(values) > n_arrays:
            raise NotByRuleError("an option by place")
        if is_where and len(values) == 1:
            raise NotByRuleError("the places of entries that are not zero do not broadcast")
        arrays: list[Array] = []
        sample_set = None
        for value in values:
            kind = type(value)
            if kind is Ensemble:
                arrays.append(value.samples)
                if value.sample_set is not sample_set:
                    sample_set = common_set(sample_set, value.sample_set)
            elif kind is np.ndarray:
                arrays.append(value[..., None])
            else:
                arrays.append(value if value is None or kind in NUMBERS else samples_in(value))
        if options:
            return _with_options(function, values, arrays, options)
        try:
            result = function(*arrays)
        except ValueError:
            samples_of(f"np.{name}", *values)
            raise
        if type(result) is np.ndarray and result.dtype.kind in "biufc":
            lifted_result = wrap(packed(result), sample_set)
            # NumPy's `where` gives no scalar.
            return as_array(lifted_result) if is_where and result.ndim == 1 else lifted_result
        return result_of(result, sample_set, name)

    return lifted


ARRAY_OPTIONS = frozenset(("a_min", "a_max", "min", "max", "where", "rtol", "atol", "nan", "posinf", "neginf"))


def _with_options(function: Function, values: Any, arrays: list[Array], options: dict[str, Any]) -> Any:
    """An elementwise function with options: those that are arrays broadcast, too, and `out` is an ensemble."""
    name = f"np.{function.__name__}"
    if options.get("copy") is False:
        raise NotByRuleError("copy=False")
    options = dict(options)
    if "out" in options:
        given = options["out"]
        options["out"] = given if isinstance(given, tuple) or given is None else (given,)
    parts = [*values, *(options[key] for key in ARRAY_OPTIONS & options.keys())]
    n_samples, sample_set = samples_of(name, *parts), set_of(*parts)
    outputs = taken_outputs(name, options, n_samples)
    samples_of(name, *parts, *outputs)
    for key in ARRAY_OPTIONS & options.keys():
        value = options[key]
        options[key] = value if value is None or type(value) in NUMBERS else samples_in(value)
    if "out" in options:
        (options["out"],) = options["out"]
    if first_ensemble(options.values()) is not None:
        raise NotByRuleError("an ensemble among its options")
    return written_to_outputs(outputs, function(*arrays, **options), sample_set, function.__name__)


# -- functions that move entries ---------------------------------------------------------------------------------------


@functools.cache
def _run_of_bytes(n_bytes: int) -> np.dtype[Any]:
    return np.dtype((np.void, n_bytes))


def entries(x: Ensemble) -> Any:
    """A view of the visible shape: every entry is the run of bytes of its samples; of a value, that run as a scalar."""
    samples = packed(x.samples)
    result = samples.view(_run_of_bytes(samples.itemsize * samples.shape[-1]))[..., 0]
    return result[()] if x.is_value else result


def of_entries(values: Any, x: Ensemble) -> Any:
    """The ensembles of what a function made of the `entries` of `x`, views of `x` where it gave views."""
    if isinstance(values, list | tuple):
        return type(values)(of_entries(part, x) for part in values)
    if type(values) is not np.ndarray:  # a value, as NumPy's scalars are
        return wrap(np.array(values, copy=True)[None].view(x.samples.dtype), x.sample_set)
    samples = values[..., None].view(x.samples.dtype)
    if not np.may_share_memory(samples, x.samples):
        return as_array(wrap(samples, x.sample_set))
    return as_array(view(x, samples))


def moving(function: Function, place: int = 0) -> Function:
    """Rule: one argument, at `place`, is the array whose entries are moved; the others are the same for all samples."""

    def lifted(*arguments: Any, **options: Any) -> Any:
        if len(arguments) <= place or not isinstance(arguments[place], Ensemble) or options.get("out") is not None:
            raise NotByRuleError("its array by name, or out=")
        x = arguments[place]
        others = [*arguments[:place], *arguments[place + 1 :]]
        if first_ensemble((*others, *options.values())) is not None:
            raise NotByRuleError("an index or count of each sample")
        plain = (*arguments[:place], entries(x), *arguments[place + 1 :])
        return of_entries(function(*plain, **options), x)

    return lifted


def _meshgrid(*arrays: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Each grid holds the entries of one array: a copy, or what NumPy gives as a view."""
    lifted = [lifted_array(array) for array in arrays]
    samples_of("np.meshgrid", *lifted)
    given: list[Any] = [entries(x) for x in lifted]
    options: dict[str, Any] = {"copy": copy, "sparse": sparse, "indexing": indexing}
    grids = np.meshgrid(*given, **options)
    return type(grids)(of_entries(grid, x) for grid, x in zip(grids, lifted, strict=True))


def _atleast(function: Function) -> Function:
    def lifted(*arrays: Array) -> Any:
        lifted = [lifted_array(array) for array in arrays]
        found = tuple(of_entries(function(entries(x)), x) for x in lifted)
        return found[0] if len(found) == 1 else found

    return lifted


def _triangle(function: Function) -> Function:
    """`tril` and `triu`: a vector is broadcast to a square matrix of equal rows."""
    keep = function is np.tril

    def lifted(m: Any, k: int = 0) -> Any:
        x = lifted_array(m)
        n_rows, n_columns = x.shape[-2:] if x.ndim > 1 else (*x.shape, *x.shape)
        inside = np.tri(n_rows, n_columns, k=k if keep else k - 1, dtype=bool)
        zero = np.zeros(1, dtype=x.dtype)
        samples = np.where((inside if keep else ~inside)[..., None], x.samples, zero)
        return wrap(samples, x.sample_set)

    return lifted


def _full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **more: Any
) -> Any:
    x = lifted_array(a)
    n_samples = samples_of("np.full_like", x, fill_value)
    visible = x.shape if shape is None else _as_shape(shape)
    result = np.empty((*visible, n_samples), dtype=x.dtype if dtype is None else dtype)
    np.copyto(result, samples_in(array_like(fill_value)), casting="unsafe")
    return as_array(wrap(result, set_of(x, fill_value)))


def _as_shape(shape: Any) -> tuple[int, ...]:
    return tuple(shape) if np.iterable(shape) else (operator.index(shape),)


def _like(function: Function) -> Function:
    """`zeros_like`, `ones_like`, `empty_like`: as many samples as the array has."""

    def lifted(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **more: Any) -> Any:
        x = lifted_array(a)
        if shape is not None:
            shape = (*_as_shape(shape), x.n_samples)
            return as_array(wrap(function(x.samples, dtype=dtype, shape=shape), x.sample_set))
        return as_array(wrap(packed(function(x.samples, dtype=dtype)), x.sample_set))

    return lifted


def _einsum(subscripts: Any, *operands: Any, **options: Any) -> Any:
    """A diagonal or another order of axes: a view, as NumPy's is."""
    plain = isinstance(subscripts, str) and "->" in subscripts and len(operands) == 1 and not options
    if not plain or not isinstance(operands[0], Ensemble):
        raise NotByRuleError("a sum")
    (x,) = operands
    left, right = subscripts.replace(" ", "").split("->")
    if set(left) != set(right) or left.count(".") != right.count("."):
        raise NotByRuleError("a sum")
    lengths: dict[str, set[int]] = {}
    for letter, n in zip(left, x.shape, strict=False):
        lengths.setdefault(letter, set()).add(n)
    if "." not in left and any(len(found) > 1 for found in lengths.values()):
        # NumPy gives a view beyond the memory of an array of shape (0, 4) here.
        requirement = "have equal lengths on axes of one letter"
        raise ValueError(message("np.einsum", "the operand", requirement, f"shape {x.shape} for {left!r}"))
    hidden = next(letter for letter in "zyxwvutsrqponmlkjihgfedcbaZ" if letter not in subscripts)
    return view(x, np.einsum(f"{left}{hidden}->{right}{hidden}", x.samples))


def _interp(x: Array, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    if not isinstance(x, Ensemble) or first_ensemble((xp, fp, left, right, period)) is not None:
        raise NotByRuleError("a table of each sample")
    return wrap(np.asarray(np.interp(x.samples, xp, fp, left, right, period)), x.sample_set)


def _ordered(function: Function) -> Function:
    """`sort` and `argsort`, with NumPy's own algorithm: which one decides the order of equal entries."""

    def lifted(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
        x = lifted_array(a)
        samples = x.samples
        if axis is None:
            samples, axis = x.samples.reshape(x.size, x.n_samples), 0
        elif x.ndim:
            axis = visible_axis(axis, x.ndim, f"np.{function.__name__}")
        else:
            raise NotByRuleError("a value without axes")
        options = {"kind": kind, "order": order, "stable": stable}
        if samples.size >= LARGE_STACK and samples.flags.c_contiguous:  # rows of one sample lie together
            return wrap(samples_of_stack(function(stack_of(samples), axis=axis + 1, **options)), x.sample_set)
        return wrap(packed(function(samples, axis=axis, **options)), x.sample_set)

    return lifted


def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, Ensemble):
        raise NotByRuleError("a plain array written to")
    ufuncs.refuse_value("np.copyto", dst)
    n_samples, sample_set = samples_of("np.copyto", dst, src, where), set_of(dst, src, where)
    if dst.is_shared and n_samples > 1:
        dst._widen(n_samples)
    np.copyto(dst.samples, samples_in(src), casting=casting, where=samples_in(where))
    dst.sample_set = sample_set
    refill(dst._memory_token)


def _truth(function: Function) -> Function:
    """`allclose`: a truth value of all entries."""

    def lifted(*values: Any, **options: Any) -> bool:
        return bool(np.all(function(*values, **options)))

    return lifted


def _own_order(function: Function) -> Function:
    """Functions whose order of results is NumPy's own, sample by sample."""

    def lifted(x: Array) -> Any:
        return each_sample(namespace_of(x, None), function.__name__, function, x)

    return lifted


_UNIQUE = (np.unique_values, np.unique_counts, np.unique_inverse, np.unique_all)

MOVING = (
    "array_split broadcast_to delete diag diagflat diagonal dsplit expand_dims flip fliplr flipud hsplit moveaxis "
    "permute_dims ravel repeat reshape resize roll rollaxis rot90 split squeeze swapaxes take tile transpose "
    "unstack vsplit matrix_transpose"
)
ELEMENTWISE = "clip isclose angle nan_to_num sinc fix isneginf isposinf isreal iscomplex"
ALONG = (
    "all any argmax argmin max mean median min nanargmax nanargmin nanmax nanmean nanmin nanprod nanstd nansum nanvar "
    "percentile prod ptp quantile std sum var"
)

_NUMPY = (
    *((getattr(np, name), moving) for name in MOVING.split()),
    *((getattr(np, name), elementwise) for name in ELEMENTWISE.split()),
    *((getattr(np, name), along) for name in ALONG.split()),
    *((f, _atleast) for f in (np.atleast_1d, np.atleast_2d, np.atleast_3d)),
    *((f, moving) for f in (np.linalg.diagonal, np.linalg.matrix_transpose)),
    *((f, _triangle) for f in (np.tril, np.triu)),
    *((f, _like) for f in (np.zeros_like, np.ones_like, np.empty_like)),
    *((f, _ordered) for f in (np.sort, np.argsort)),
)

RULES: dict[Any, Function] = {
    **{function: rule(function) for function, rule in _NUMPY},
    np.compress: moving(np.compress, 1),
    np.lib.stride_tricks.sliding_window_view: moving(np.lib.stride_tricks.sliding_window_view),
    np.meshgrid: _meshgrid,
    np.where: elementwise(np.where),
    np.allclose: _truth(np.isclose),
    np.full_like: _full_like,
    np.copyto: _copyto,
    np.einsum: _einsum,
    np.interp: _interp,
    **{function: _own_order(function) for function in _UNIQUE},
    np.real: lambda val: val.real,
    np.imag: lambda val: val.imag,
}
"""The rule of each function, by the function itself."""
