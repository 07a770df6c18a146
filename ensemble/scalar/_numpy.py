"""NumPy's own protocols: ``np.sin(x)``, ``np.dot(a, x)``, ``plain * x`` give ensembles, or raise and say why."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import is_array, to_numpy
from ensemble._check import message
from ensemble.scalar.divergence import failure
from ensemble.scalar.ensemble import Ensemble, packed, wrap
from ensemble.scalar.namespace import EnsembleNamespace, namespace_of, samples_of, set_of

__all__ = ["call_function", "call_ufunc", "to_numpy"]

GENERALISED = {"matmul": "matmul", "vecdot": "vecdot"}

OTHER_NAMES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctanh": "atanh",
    "arctan2": "atan2",
    "conjugate": "conj",
    "power": "pow",
    "concatenate": "concat",
    "transpose": "permute_dims",
    "amax": "max",
    "amin": "min",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "true_divide": "divide",
    "cumsum": "cumulative_sum",
    "cumprod": "cumulative_prod",
    "swapaxes": "moveaxis",
}


def _first(values: Any) -> Ensemble:
    """The first ensemble among nested arguments."""
    for value in values:
        if isinstance(value, Ensemble):
            return value
        if isinstance(value, list | tuple):
            found = _first(value)
            if found is not None:
                return found
        elif isinstance(value, dict):
            found = _first(value.values())
            if found is not None:
                return found
    return None  # type: ignore[return-value]


def _samples(value: Any) -> Any:
    if isinstance(value, Ensemble):
        return value.samples
    if isinstance(value, list | tuple):
        value = np.asarray(value)
    if isinstance(value, np.ma.MaskedArray | np.matrix):
        seen = f"a {type(value).__name__}"
        raise TypeError(message("Ensemble", "operands", "be arrays or numbers", seen, "Use np.asarray of it."))
    return np.asarray(value)[..., None] if isinstance(value, np.ndarray) else value


def call_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What ``__array_ufunc__`` answers."""
    return _guarded(_ufunc, ufunc, method, inputs, options)


def _guarded(answer: Callable[..., Any], *asked: Any) -> Any:
    """``answer(*asked)``; its failure is `divergence`'s to judge, as one sample alone might not fail."""
    try:
        return answer(*asked)
    except Exception as error:
        if (other := failure(error)) is error:
            raise
        raise other from None


def _ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    first = _first((*inputs, *options.values()))
    if not isinstance(first.samples, np.ndarray):
        return _on_other_library(ufunc, method, inputs, options, first)
    if ufunc.signature is not None:
        return _call_generalised(ufunc, method, inputs, options, first)
    if method in ("reduce", "accumulate"):
        return _call_reduction(ufunc, method, inputs, options)
    if method != "__call__":
        raise _unsupported(f"np.{ufunc.__name__}.{method}", "it has no meaning sample by sample")
    options, outputs = _with_outputs(ufunc, inputs, options)
    samples_of(f"np.{ufunc.__name__}", *inputs, *outputs)
    sample_set = set_of(*inputs, options.get("where"))
    if "where" in options:
        options["where"] = _samples(options["where"])
    results = ufunc(*(_samples(value) for value in inputs), **options)
    if outputs:
        for output in outputs:
            output.sample_set = sample_set
        return outputs[0] if len(outputs) == 1 else outputs
    return tuple(wrap(r, sample_set) for r in results) if isinstance(results, tuple) else wrap(results, sample_set)


def _with_outputs(ufunc: Any, inputs: Any, options: dict[str, Any]) -> tuple[dict[str, Any], tuple[Ensemble, ...]]:
    """`options` on plain arrays, and the ensembles that `out` names."""
    options = dict(options)
    outputs = options.get("out") or ()
    n_samples = samples_of(f"np.{ufunc.__name__}", *inputs)
    for output in outputs:
        if not isinstance(output, Ensemble):
            seen, advice = f"a {type(output).__name__}", "A plain array cannot hold samples."
            raise TypeError(message(f"np.{ufunc.__name__}", "out", "be an Ensemble", seen, advice))
        if output.is_shared and n_samples > 1:
            output._widen(n_samples)
    if outputs:
        options["out"] = tuple(output.samples for output in outputs)
    return options, outputs


def _call_reduction(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    from ensemble.scalar._lift_reductions import visible_axes, visible_axis

    name = f"np.{ufunc.__name__}.{method}"
    x = inputs[0]
    options = {key: value for key, value in options.items() if value is not None or key == "axis"}
    if not isinstance(x, Ensemble) or "out" in options or isinstance(options.get("where"), Ensemble | np.ndarray):
        raise _unsupported(name, "out= and where= are not lifted")
    axis = options.pop("axis", 0)
    if method == "reduce":
        return wrap(packed(ufunc.reduce(x.samples, axis=visible_axes(axis, x.ndim, name), **options)), x.sample_set)
    return wrap(packed(ufunc.accumulate(x.samples, axis=visible_axis(axis, x.ndim, name), **options)), x.sample_set)


def _call_generalised(ufunc: Any, method: str, inputs: Any, options: dict[str, Any], first: Ensemble) -> Any:
    name = GENERALISED.get(ufunc.__name__)
    if name is None or method != "__call__" or options:
        raise _unsupported(f"np.{ufunc.__name__}", "only matmul and vecdot are lifted, without options")
    return getattr(first.__array_namespace__(), name)(*inputs)


def _on_other_library(ufunc: Any, method: str, inputs: Any, options: dict[str, Any], first: Ensemble) -> Any:
    """NumPy scalars meet an ensemble of another library: its own function, on Python's numbers."""
    name = OTHER_NAMES.get(ufunc.__name__, ufunc.__name__)
    plain = [value.item() if isinstance(value, np.generic) else value for value in inputs]
    if method != "__call__" or options or any(isinstance(value, np.ndarray) for value in plain):
        raise _unsupported(f"np.{ufunc.__name__}", f"the samples are a {type(first.samples).__name__}")
    return getattr(first.__array_namespace__(), name)(*plain)


def _unsupported(function: str, why: str) -> TypeError:
    advice = "Use x.__array_namespace__(), x.samples (the last axis holds the samples) or per_sample."
    return TypeError(message(function, "a function of an Ensemble", "be lifted over the samples", why, advice))


# -- __array_function__ ------------------------------------------------------------------------------------------------


def call_function(function: Any, arguments: Any, options: Any) -> Any:
    """What ``__array_function__`` answers: the lifted function of the same name, where there is one."""
    return _guarded(_function, function, arguments, options)


def _function(function: Any, arguments: Any, options: Any) -> Any:
    module = (getattr(function, "__module__", "") or "").removeprefix("numpy").removeprefix(".")
    name = function.__name__
    full_name = ".".join(("np", *([module] if module else []), name))
    first = _first((*arguments, *options.values()))
    ns: Any = namespace_of(first, None)
    special = SPECIAL.get(f"{module}.{name}" if module else name)
    if special is not None:
        return special(ns, *arguments, **options)
    if module:
        ns = getattr(ns, module, None)
    lifted = getattr(ns, OTHER_NAMES.get(name, name), None) if ns is not None else None
    if lifted is None or not callable(lifted):
        raise _unsupported(full_name, "it is not in the Array API")
    return _translated(function, lifted, full_name, arguments, options)


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


RENAMED = {"ddof": "correction", "a_min": "min", "a_max": "max"}


def _translated(function: Any, lifted: Any, full_name: str, arguments: Any, options: Any) -> Any:
    """Call `lifted` with what the NumPy call said; an option that only NumPy has must keep its default."""
    given = _signature(function).bind(*arguments, **options)
    parameters = _signature(lifted).parameters.values()
    values = list(given.arguments.items())
    positional: list[Any] = []
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL and values:
            positional.extend(values.pop(0)[1])
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY and values:
            positional.append(values.pop(0)[1])
    accepted = {p.name for p in parameters if p.kind not in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)}
    defaults = _signature(function).parameters
    keyword: dict[str, Any] = {}
    for key, value in values:
        new = RENAMED.get(key, key)
        if new in accepted:
            keyword[new] = value
        elif value is not defaults[key].default and value is not None:
            raise _unsupported(full_name, f"the option {key} is not in the Array API")
    return lifted(*positional, **keyword)


def _dot(ns: EnsembleNamespace, a: Any, b: Any) -> Any:
    a, b = (v if isinstance(v, Ensemble) or is_array(v) else np.asarray(v) for v in (a, b))
    if not len(a.shape) or not len(b.shape):
        return ns.multiply(a, b)
    if len(b.shape) <= 2:
        return ns.matmul(a, b)
    return ns.tensordot(a, b, axes=((len(a.shape) - 1,), (len(b.shape) - 2,)))


def _norm(ns: EnsembleNamespace, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if axis is None and ord is None:
        return ns.linalg.vector_norm(x, keepdims=keepdims)
    if (axis is None and x.ndim == 2) or (isinstance(axis, tuple | list) and len(axis) == 2):
        if axis is not None:
            x = ns.moveaxis(x, tuple(axis), (-2, -1))
        if axis is not None and keepdims:
            raise _unsupported("np.linalg.norm", "keepdims of a matrix norm on named axes is not lifted")
        return ns.linalg.matrix_norm(x, ord="fro" if ord is None else ord, keepdims=keepdims)
    return ns.linalg.vector_norm(x, axis=axis, ord=2 if ord is None else ord, keepdims=keepdims)


def _where(ns: EnsembleNamespace, condition: Any, *choices: Any) -> Any:
    return ns.where(condition, *choices) if choices else ns.nonzero(condition)


def _transpose(ns: EnsembleNamespace, a: Ensemble, axes: Any = None) -> Any:
    return ns.permute_dims(a, tuple(reversed(range(a.ndim))) if axes is None else axes)


def _swapaxes(ns: EnsembleNamespace, a: Ensemble, axis1: int, axis2: int) -> Any:
    return ns.moveaxis(a, (axis1, axis2), (axis2, axis1))


def _cumulate(name: str) -> Callable[..., Any]:
    def cumulate(ns: EnsembleNamespace, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        if out is not None:
            raise _unsupported(f"np.{name}", "out= is not lifted")
        return getattr(ns, name)(a if axis is not None else ns.reshape(a, -1), axis=axis, dtype=dtype)

    return cumulate


def _shape_of(attribute: str) -> Callable[..., Any]:
    return lambda ns, a: getattr(a, attribute)


def _ravel(ns: EnsembleNamespace, a: Any, order: str = "C") -> Any:
    if order != "C":
        raise _unsupported("np.ravel", f"order={order!r} is not lifted")
    return ns.reshape(a, -1)


def _squeeze(ns: EnsembleNamespace, a: Ensemble, axis: Any = None) -> Any:
    return ns.squeeze(a, tuple(k for k, n in enumerate(a.shape) if n == 1) if axis is None else axis)


def _copy(ns: EnsembleNamespace, a: Any, order: str = "K", subok: bool = False) -> Any:
    return ns.asarray(a, copy=True)


def _isclose(ns: EnsembleNamespace, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Any:
    a, b = ns.asarray(a), ns.asarray(b)
    close = ns.abs(a - b) <= atol + rtol * ns.abs(b)
    return ns.where(ns.isfinite(b), close, a == b)


def _allclose(ns: EnsembleNamespace, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    return bool(ns.all(_isclose(ns, a, b, rtol, atol)))


SPECIAL: dict[str, Callable[..., Any]] = {
    "dot": _dot,
    "linalg.norm": _norm,
    "where": _where,
    "transpose": _transpose,
    "swapaxes": _swapaxes,
    "cumsum": _cumulate("cumulative_sum"),
    "cumprod": _cumulate("cumulative_prod"),
    "shape": _shape_of("shape"),
    "ndim": _shape_of("ndim"),
    "size": _shape_of("size"),
    "ravel": _ravel,
    "squeeze": _squeeze,
    "copy": _copy,
    "isclose": _isclose,
    "allclose": _allclose,
}
