"""What the rules for all samples at once ask of their arguments; what does not fit is left to calls of each sample."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble.scalar.ensemble import Ensemble, wrap
from ensemble.scalar.interop.numpy_each_sample import signature_of
from ensemble.scalar.interop.numpy_rules import NotByRuleError
from ensemble.scalar.namespace import samples_of, set_of
from ensemble.scalar.plain_arrays import NUMBERS

__all__ = ["agree", "arrays", "bound", "lifted", "real"]

Function = Callable[..., Any]


def real(*values: Any) -> None:
    """Go on only with real floats: complex products have other bits in other loops, small integers other promotion."""
    for value in values:
        if type(value) in NUMBERS:
            if type(value) is complex:
                raise NotByRuleError("a complex number")
        elif np.dtype(getattr(value, "dtype", object)).char not in "fd":
            raise NotByRuleError("not of real floats")


def arrays(*values: Any) -> None:
    """Go on only with ensembles and plain arrays that have an axis."""
    for value in values:
        if not (isinstance(value, Ensemble) or type(value) is np.ndarray) or not value.ndim:
            raise NotByRuleError("a value without axes, or another container")


def agree(function: Function, *values: Any) -> Any:
    """The sample set of `values`, whose numbers of samples are checked."""
    samples_of(f"np.{function.__name__}", *values)
    return set_of(*values)


@functools.cache
def _parameters(function: Function) -> tuple[tuple[str, ...], dict[str, Any], str]:
    """The names of the parameters by place, the defaults, and the name of ``*more``."""
    parameters = signature_of(function).parameters.values()
    by_place = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    return by_place, defaults, next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")


def bound(function: Function, given: Any, options: Any, allowed: str) -> dict[str, Any]:
    """The arguments by name, defaults included; only those in `allowed` may differ from their defaults."""
    names, defaults, more = _parameters(function)
    found = dict(zip(names, given, strict=False))
    if more:
        found[more] = given[len(names) :]
    elif len(given) > len(names):
        raise NotByRuleError("arguments that do not fit")
    if options:
        if not options.keys().isdisjoint(found) or not options.keys() <= {*names, *defaults}:
            raise NotByRuleError("arguments that do not fit")
        found |= options
    used = allowed.split()
    for key, value in found.items():
        if key not in used and value is not defaults.get(key) and value is not None and value is not np._NoValue:
            raise NotByRuleError(f"the option {key}")
    if any(name not in found and name not in defaults for name in names):
        raise NotByRuleError("arguments that do not fit")
    return {**{name: defaults.get(name) for name in names}, **defaults, **found}


def lifted(value: Any) -> Ensemble:
    """`value` as an ensemble of NumPy."""
    if isinstance(value, Ensemble):
        return value
    plain = np.asarray(value)
    if plain.dtype.kind not in "biufc":
        raise NotByRuleError("an array of other things than numbers")
    return wrap(plain[..., None])
