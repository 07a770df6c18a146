"""NumPy's functions along axes on ensembles over NumPy: called once, their axes counted without that of the samples."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble.scalar._operators import NUMBERS
from ensemble.scalar.ensemble import Ensemble, as_array, wrap
from ensemble.scalar.interop import ufuncs
from ensemble.scalar.interop.numpy_each_sample import signature_of
from ensemble.scalar.interop.ufuncs import first_ensemble, result_of, samples_in, taken_outputs, written_to_outputs
from ensemble.scalar.lift.each_sample import each_sample
from ensemble.scalar.lift.reductions import visible_axes, visible_axis
from ensemble.scalar.namespace import namespace_of, samples_of, set_of
from ensemble.scalar.plain_arrays import LARGE_STACK, stack_of
from ensemble.scalar.row_reductions import placed, reduced

__all__ = ["NotByRuleError", "along", "lifted_array"]

Function = Callable[..., Any]


class NotByRuleError(Exception):
    """No rule covers this call; the next implementation is tried."""


def lifted_array(value: Any) -> Ensemble:
    """`value`, or an ensemble of one sample of the array that NumPy makes of it."""
    return value if isinstance(value, Ensemble) else wrap(np.asarray(value)[..., None])


KEEPS = frozenset(("keepdims",))

QUICK_OPTIONS = {np.std: KEEPS | {"ddof"}, np.var: KEEPS | {"ddof"}}
"""Options that the reductions of `row_reductions.py` take, too."""


def along(function: Function) -> Function:
    """Rule: the first argument is reduced along `axis`, over all its visible axes by default; `where` broadcasts."""
    parameters = list(signature_of(function).parameters)
    one_axis = function in (np.argmax, np.argmin, np.nanargmax, np.nanargmin)
    axis_second = parameters[1] == "axis"
    quick = functools.partial(placed if one_axis else reduced, function.__name__)
    general = _with_options(function, parameters[0], one_axis, quick)

    def lifted(*arguments: Any, **options: Any) -> Any:
        if not options and arguments and type(arguments[0]) is Ensemble and arguments[0].samples.ndim == 2:
            x = arguments[0]
            if len(arguments) == 1 + (not axis_second):  # all entries of a vector, no options: the common case
                more = arguments[1:]
                if axis_second or type(more[0]) in NUMBERS:
                    found = quick(x.samples, (0,)) if not more else None
                    if found is None:
                        turned = one_axis and x.samples.size >= LARGE_STACK  # for NumPy's SIMD loops along rows
                        found = function(stack_of(x.samples).T if turned else x.samples, *more, axis=0)
                    return result_of(found, x.sample_set, function.__name__)
        return general(*arguments, **options)

    return lifted


def _with_options(function: Function, first: str, one_axis: bool, quick: Function) -> Function:
    name, options_of_quick = f"np.{function.__name__}", QUICK_OPTIONS.get(function, KEEPS)

    def lifted(*arguments: Any, **options: Any) -> Any:
        given = dict(signature_of(function).bind(*arguments, **options).arguments)
        x = lifted_array(given.pop(first))
        where, out, axis = (given.pop(key, np._NoValue) for key in ("where", "out", "axis"))
        if where is np._NoValue:
            where = True
        out = None if out is np._NoValue else out
        axis = None if axis is np._NoValue else axis
        if first_ensemble(given.values()) is not None:
            raise NotByRuleError("an ensemble among its options")
        n_samples, sample_set = samples_of(name, x, where), set_of(x, where)
        samples = x.samples
        if samples.shape[-1] != n_samples:
            samples = np.broadcast_to(samples, (*x.shape, n_samples))
        if not x.ndim:
            if axis is not None:  # some functions take 0 for an axis of NumPy's scalars
                if where is not True or out is not None:
                    raise NotByRuleError("an axis of a value without axes")
                return _of_scalars(function, axis, given, x)
            samples, axis = samples[None, :], 0
            given.pop("keepdims", None)
        elif axis is None and one_axis:
            keep, given["keepdims"] = given.get("keepdims", False), False
            samples = samples.reshape(x.size, n_samples)
            axis = 0
            if keep is True:
                raise NotByRuleError("keepdims without an axis")
        else:
            axis = visible_axis(axis, x.ndim, name) if one_axis else visible_axes(axis, x.ndim, name)
        taken = {"out": (out,)} if out is not None else {}
        outputs = taken_outputs(name, taken, n_samples)
        samples_of(name, x, where, *outputs)
        result = None
        if where is True and not taken and given.keys() <= options_of_quick:
            result = quick(samples, axis if isinstance(axis, tuple) else (axis,), **given)
        if result is None:
            if taken:
                (given["out"],) = taken["out"]
            if where is not True:
                given["where"] = samples_in(where)
            result = function(samples, axis=axis, **ufuncs.options_in(given, x.shape, samples))
        return written_to_outputs(outputs, result, sample_set, function.__name__)

    return lifted


def _of_scalars(function: Function, axis: Any, options: dict[str, Any], x: Ensemble) -> Any:
    """The function on the scalars of NumPy that samples without axes are."""
    kinds: set[type] = set()

    def call(value: np.ndarray) -> Any:
        result = function(value[()], axis=axis, **options)
        kinds.add(type(result))
        return result

    found = each_sample(namespace_of(x, None), function.__name__, call, x)
    return as_array(found) if np.ndarray in kinds else found
