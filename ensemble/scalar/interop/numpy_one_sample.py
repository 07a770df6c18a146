"""NumPy's functions on ensembles of one sample: one call on plain arrays, where the result is a new array."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble.scalar.ensemble import Ensemble, as_array, wrap
from ensemble.scalar.interop.numpy_each_sample import EACH_SAMPLE, is_only_read
from ensemble.scalar.lift.linalg import RESULTS

__all__ = ["ALONE", "NOT_ALONE", "on_one_sample"]

OTHERS = (
    "all any copy count_nonzero full_like isclose meshgrid ones_like tile tril triu where zeros_like "
    "linalg.cholesky linalg.det linalg.eig linalg.eigvals linalg.inv linalg.matrix_power linalg.slogdet "
    "linalg.solve"
)
"""Functions that have a rule, and are not called on each sample."""

DECIDED_ELSEWHERE = (
    "array_split atleast_1d atleast_2d atleast_3d diagonal dsplit fliplr flipud hsplit ravel real_if_close rollaxis "
    "rot90 split trim_zeros vsplit "  # views
    "apply_along_axis apply_over_axes piecewise "  # functions of the user's
    "array_equal array_equiv "  # truth values
    "linalg.norm"  # sums in the order of the library
)


def _named(name: str) -> Any:
    """The function of NumPy, None where this version has none."""
    module, _, own = name.rpartition(".")
    return getattr(getattr(np, module) if module else np, own, None)


ALONE = frozenset(map(_named, {*EACH_SAMPLE, *OTHERS.split()}.difference(DECIDED_ELSEWHERE.split()))) - {None}
"""Functions that give new arrays, with the bits of one sample among others."""

NOT_ALONE = object()
"""What `on_one_sample` gives where the rules for several samples have to decide."""

NAMED = {made.__name__: made for made in RESULTS.values()}
"""Types of several results with names."""

NUMBERS = frozenset((int, float, complex, bool, str, type(None)))

PLAIN = NUMBERS | {np.ndarray, type(Ellipsis), slice, type}
"""Types of arguments that NumPy is given as they are; a function of the user's may write to its argument."""


def _dot(a: Any, b: Any) -> Any:
    """`np.dot` of vectors and matrices, as the product that it is for several samples; `NOT_ALONE` of others."""
    if not 0 < np.ndim(a) < 3 > np.ndim(b) > 0:
        return NOT_ALONE
    return np.matmul(a, b)


def on_one_sample(function: Any, arguments: Any, options: Any) -> Any:
    """The function on the arrays of the one sample.

    `NOT_ALONE` where it raises, may write to an argument, or gives a view of one.
    """
    if not is_only_read(function, arguments, options):
        return NOT_ALONE
    arrays: list[np.ndarray] = []
    given, named = [], options
    for argument in arguments:
        plain = argument if type(argument) in NUMBERS else _plain(argument, arrays)
        if plain is NOT_ALONE:
            return NOT_ALONE
        given.append(plain)
    if options:
        named = {key: _plain(argument, arrays) for key, argument in options.items()}
        for plain in named.values():
            if plain is NOT_ALONE:
                return NOT_ALONE
    try:
        result = (_dot if function is np.dot else function)(*given, **named)
    except Exception:  # whatever NumPy refuses: the rules for several samples raise it, with the names of arguments
        return NOT_ALONE
    return _lifted(result, arrays)


def _plain(argument: Any, arrays: list[np.ndarray]) -> Any:
    """What the call on one sample takes for an argument; `NOT_ALONE` where that is not known."""
    kind = type(argument)
    if kind is Ensemble:
        samples = argument.samples
        if type(samples) is not np.ndarray or samples.shape[-1] != 1:
            return NOT_ALONE
        if samples.ndim == 1 and argument._memory_token is None:
            return samples[0]
        plain = samples[..., 0]
        arrays.append(plain)
        return plain
    if kind in PLAIN:
        if kind is np.ndarray:
            arrays.append(argument)
        return argument
    if kind is list or kind is tuple:
        parts = [_plain(part, arrays) for part in argument]
        for part in parts:
            if part is NOT_ALONE:
                return NOT_ALONE
        return parts if kind is list else tuple(parts)
    return argument if isinstance(argument, np.generic | np.dtype) else NOT_ALONE


def _lifted(result: Any, arrays: list[np.ndarray]) -> Any:
    """A result as ensembles of one sample."""
    kind = type(result)
    if kind is np.ndarray:
        if result.dtype.kind not in "biufc":
            return NOT_ALONE
        if result.base is None:
            for array in arrays:
                if array is result:
                    return NOT_ALONE
        else:
            for array in arrays:
                if np.may_share_memory(array, result):
                    return NOT_ALONE
        return wrap(result[..., None]) if result.ndim else as_array(wrap(result.reshape(1)))
    if isinstance(result, np.generic):
        return wrap(np.array([result]))
    if not isinstance(result, tuple):
        return NOT_ALONE
    parts = [_lifted(part, arrays) for part in result]
    for part in parts:
        if part is NOT_ALONE:
            return NOT_ALONE
    if kind is tuple:
        return tuple(parts)
    named = NAMED.get(kind.__name__)
    return NOT_ALONE if named is None else named(*parts)
