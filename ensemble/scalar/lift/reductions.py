"""Reductions over visible axes: never over samples."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._check import message
from ensemble._typing import Array
from ensemble.scalar.ensemble import Ensemble, wrap
from ensemble.scalar.namespace import EnsembleNamespace, named
from ensemble.scalar.row_reductions import placed, reduced, running


def visible_axis(axis: Any, ndim: int, function: str) -> int:
    """`axis` counted from the front, so that the hidden last axis does not matter."""
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        requirement = f"be from {-ndim} to {ndim - 1}" if ndim else "be None for a 0-d ensemble"
        raise np.exceptions.AxisError(message(function, "axis", requirement, axis, "The sample axis has no number."))
    result: int = axis % ndim
    return result


def visible_axes(axis: int | Sequence[int] | None, ndim: int, function: str) -> tuple[int, ...]:
    """All visible axes for None, else those named."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, tuple | list):
        return tuple(visible_axis(k, ndim, function) for k in axis)
    return (visible_axis(axis, ndim, function),)


def flat(ns: EnsembleNamespace, x: Ensemble) -> Ensemble:
    """`x` as a vector."""
    return x if x.ndim == 1 else wrap(ns.base.reshape(x.samples, (x.size, x.n_samples)), x.sample_set)


def reduction(*options: str) -> Callable[[EnsembleNamespace, str], Callable[..., Any]]:
    """Rule: ``f(x, /, *, axis=None, keepdims=False)`` and the further keyword `options`."""
    defaults = {"axis": None, "dtype": None, "correction": 0.0, "keepdims": False}
    keyword = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value)
        for name, value in defaults.items()
        if name in ("axis", "keepdims", *options)
    ]
    signature = inspect.Signature([inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY), *keyword])
    allowed = frozenset(parameter.name for parameter in keyword)

    def rule(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
        f = getattr(ns.base, name)

        def lifted(x: Array, /, *, axis: Any = None, **more: Any) -> Ensemble:
            if "out" in more and more["out"] is None:  # which NumPy's functions pass on to methods of other types
                del more["out"]
            if not more.keys() <= allowed:
                raise TypeError(message(name, "keywords", f"be among {sorted(allowed)}", sorted(more)))
            x = ns.lift(x, name)
            axes = visible_axes(axis, len(x.samples.shape) - 1, name)
            if not axes and ("correction" in options or name == "count_nonzero"):
                # Of single numbers; PyTorch ignores NaN there, and counts over all axes.
                more.pop("keepdims", None)
                return wrap(f(ns.base.expand_dims(x.samples, axis=0), axis=0, **more), x.sample_set)
            if more.keys() <= {"keepdims"}:
                found = reduced(name, x.samples, axes, **more)
                if found is not None:
                    return wrap(found, x.sample_set)
            return wrap(f(x.samples, axis=axes, **more), x.sample_set)

        lifted.__signature__ = signature  # type: ignore[attr-defined]
        return named(lifted, name)

    return rule


def position(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule of `argmax` and `argmin`: each sample has its own place."""
    f = getattr(ns.base, name)

    def lifted(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Ensemble:
        x = ns.lift(x, name)
        axes = tuple(range(x.ndim)) if axis is None else (visible_axis(axis, x.ndim, name),)
        found = placed(name, x.samples, axes, keepdims)
        if found is not None:
            return wrap(found, x.sample_set)
        if axis is not None:
            return wrap(f(x.samples, axis=axes[0], keepdims=keepdims), x.sample_set)
        samples = f(flat(ns, x).samples, axis=0)
        if keepdims:
            samples = ns.base.reshape(samples, (*(1,) * x.ndim, x.n_samples))
        return wrap(samples, x.sample_set)

    return named(lifted, name)


def cumulative(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule of `cumulative_sum` and `cumulative_prod`."""
    f = getattr(ns.base, name)

    def lifted(x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Ensemble:
        x = ns.lift(x, name)
        if axis is None and x.ndim != 1:
            raise ValueError(message(name, "axis", "be given where x has not 1 axis", f"None for shape {x.shape}"))
        k = 0 if axis is None else visible_axis(axis, x.ndim, name)
        if type(x.samples) is np.ndarray and not include_initial and dtype in (None, x.dtype):
            found = running(x.samples, k, name == "cumulative_prod")
            if found is not None:
                return wrap(found, x.sample_set)
        return wrap(f(x.samples, axis=k, dtype=dtype, include_initial=include_initial), x.sample_set)

    return named(lifted, name)
