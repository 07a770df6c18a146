"""Elementwise functions: broadcasting over the hidden last axis does the lifting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import is_array
from ensemble._check import kind_of, message, require_one_library
from ensemble._typing import Array
from ensemble.scalar._operators import operand, operand_error, promoted
from ensemble.scalar.ensemble import Ensemble, packed, view, wrap
from ensemble.scalar.namespace import EnsembleNamespace, named, samples_of, set_of
from ensemble.scalar.powers import power
from ensemble.scalar.sample_set import common_set


def unary(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule: ``f(x, /)``."""
    f, own = getattr(ns.base, name), ns.own_types

    def lifted(x: Array, /) -> Ensemble:
        if type(x) is not Ensemble or type(x.samples) not in own:
            x = ns.lift(x, name)
        return wrap(f(x.samples), x.sample_set)

    return named(lifted, name)


def part(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule: ``f(x, /)`` of a base function that may return a view (`real`, `imag`, `conj`)."""
    f = getattr(ns.base, name)

    def lifted(x: Array, /) -> Ensemble:
        x = ns.lift(x, name)
        samples = f(x.samples)
        return view(x, samples) if samples is x.samples else wrap(packed(samples), x.sample_set)

    return named(lifted, name)


def binary(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule: ``f(x1, x2, /)``; one of the two may be a Python number."""
    f = power if name == "pow" and getattr(ns.base, name) is np.power else getattr(ns.base, name)

    def lifted(x1: Array, x2: Array, /) -> Ensemble:
        if type(x1) is Ensemble:
            a, sample_set = x1.samples, x1.sample_set
            if type(x2) is Ensemble:
                b = x2.samples
                if type(a) is not type(b):
                    require_one_library(name, "operands", a, b)
                if x2.sample_set is not sample_set:
                    sample_set = common_set(sample_set, x2.sample_set)
            else:
                b = other(a, x2, name)
        elif type(x2) is Ensemble:
            b, sample_set = x2.samples, x2.sample_set
            a = other(b, x1, name)
        else:
            a, b, sample_set = *numbers_and_arrays(ns, name, x1, x2), None
        if type(a) is not np.ndarray:
            a, b = promoted(a, b)
            if is_array(a):
                ns.require_own(a, name)
        try:
            return wrap(f(a, b), sample_set)
        except Exception as error:
            raise operand_error(error, x1, x2) from None

    return named(lifted, name)


def other(samples: Array, value: Any, name: str) -> Any:
    """A plain array or number as the operand of a function of `samples`."""
    result = operand(samples, value)
    if result is NotImplemented:
        requirement = "be Ensembles, arrays or Python numbers"
        raise TypeError(message(name, "operands", requirement, kind_of(value), "Make one with xp.asarray."))
    return result


def numbers_and_arrays(ns: EnsembleNamespace, name: str, x1: Array, x2: Array) -> tuple[Any, Any]:
    """Two operands of which none is an ensemble; one at least is an array."""
    if isinstance(x1, int | float | complex):
        b = ns.lift(x2, name).samples
        return other(b, x1, name), b
    a = ns.lift(x1, name).samples
    return a, other(a, x2, name)


def clip(ns: EnsembleNamespace, x: Array, /, min: Any = None, max: Any = None) -> Ensemble:
    """Each entry, kept between `min` and `max`; both may be numbers, arrays or ensembles."""
    x = ns.lift(x, "clip")
    n_samples = samples_of("clip", x, min, max)
    sample_set = set_of(x, min, max)
    samples = x.samples
    if n_samples > x.n_samples:
        samples = ns.base.broadcast_to(samples, (*x.shape, n_samples))
    limits = [None if limit is None else _samples(samples, limit, "clip") for limit in (min, max)]
    try:
        return wrap(packed(ns.base.clip(samples, *limits)), sample_set)
    except Exception as error:
        raise operand_error(error, x, min, max) from None


def where(ns: EnsembleNamespace, condition: Array, x1: Array, x2: Array, /) -> Ensemble:
    """`x1` where `condition` holds and `x2` elsewhere, entry by entry and sample by sample."""
    condition = ns.lift(condition, "where")
    samples_of("where", condition, x1, x2)
    sample_set = set_of(condition, x1, x2)
    a, b = promoted(*(_samples(condition.samples, value, "where") for value in (x1, x2)))
    try:
        return wrap(ns.base.where(condition.samples, a, b), sample_set)
    except Exception as error:
        raise operand_error(error, condition, x1, x2) from None


def _samples(samples: Array, value: Any, name: str) -> Any:
    return value.samples if type(value) is Ensemble else other(samples, value, name)
