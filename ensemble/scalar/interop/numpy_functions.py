"""NumPy's functions on ensembles: the lifted function of the Array API, or the function on every sample by itself."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import is_array
from ensemble._check import kind_of, message, require_one_library
from ensemble._compile.trace.operations import ARRAY_API_NAMES
from ensemble._typing import Array
from ensemble.scalar.ensemble import Ensemble, as_array, wrap
from ensemble.scalar.interop.numpy_batches import BATCHES
from ensemble.scalar.interop.numpy_each_sample import EACH_SAMPLE, on_each_sample, signature_of, written_arguments
from ensemble.scalar.interop.numpy_entries import ENTRIES
from ensemble.scalar.interop.numpy_one_sample import ALONE, NOT_ALONE, on_one_sample
from ensemble.scalar.interop.numpy_products import PRODUCTS
from ensemble.scalar.interop.numpy_rules import RULES, NotByRuleError
from ensemble.scalar.interop.numpy_searches import SEARCHES
from ensemble.scalar.interop.numpy_writes import WRITES
from ensemble.scalar.interop.ufuncs import first_ensemble, unsupported
from ensemble.scalar.lift.reductions import visible_axes
from ensemble.scalar.namespace import EnsembleNamespace, namespace_of
from ensemble.scalar.protocol_table import PROTOCOLS

__all__ = ["EACH_SAMPLE", "call_function"]


TABLES = (RULES, BATCHES, PRODUCTS, ENTRIES, SEARCHES, WRITES)
"""The rules for all samples at once, in the order in which they are tried."""


def call_function(function: Any, arguments: Any, options: Any) -> Any:
    """The implementation of ``__array_function__``."""
    if function in ALONE:  # most of what one sample costs is what decides for several
        first = arguments[0] if arguments else None
        if type(first) is not Ensemble:
            first = first_ensemble((*arguments, *options.values()))
        if first.samples.shape[-1] == 1:
            result = on_one_sample(function, arguments, options)
            if result is not NOT_ALONE:
                return result
    tables = [table for table in TABLES if function in table]
    if tables:
        first = arguments[0] if arguments else None
        if type(first) is not Ensemble:
            first = first_ensemble((*arguments, *options.values()))
        if type(first.samples) is np.ndarray:
            _require_one_library(function, arguments)
            for table in tables:
                try:
                    return table[function](*arguments, **options)
                except NotByRuleError:
                    pass
                except (ValueError, TypeError, IndexError):
                    if table is RULES:
                        raise
                    # The error of one sample alone follows, from the calls of each.
    module = (getattr(function, "__module__", "") or "").removeprefix("numpy").removeprefix(".")
    name = function.__name__
    short_name = f"{module}.{name}" if module else name
    first = first_ensemble((*arguments, *options.values()))
    _require_one_library(function, arguments)
    ns = namespace_of(first, None)
    written = written_arguments(function, arguments, options)
    why = f"{', '.join(written)} is written to"
    if not written:
        try:
            return _lifted(ns, module, short_name, function, arguments, options)
        except NotLiftedError as reason:
            why = str(reason)
    if not isinstance(first.samples, np.ndarray):
        why = f"the samples are {kind_of(first.samples)}, and {why}"
    elif short_name in EACH_SAMPLE:
        return on_each_sample(ns, f"np.{short_name}", function, arguments, options, written)
    raise unsupported(f"np.{short_name}", why)


def _lifted(ns: EnsembleNamespace, module: str, short_name: str, function: Any, arguments: Any, options: Any) -> Any:
    """The function of all samples at once."""
    special = SPECIAL.get(short_name)
    if special is not None:
        return special(ns, *arguments, **options)
    name = function.__name__
    place = getattr(ns, module, None) if module else ns
    lifted = getattr(place, ARRAY_API_NAMES.get(name, name), None)
    if not callable(lifted) or lifted is function or short_name in OTHERWISE:
        raise NotLiftedError("it is not in the Array API")
    return _translated(ns, function, lifted, arguments, options)


OF_NUMPY = frozenset((np.ndarray, bool, int, float, complex, str, list, tuple, type(None)))
"""Types of arguments among which no two are arrays of different libraries."""


def _require_one_library(function: Any, arguments: Any) -> None:
    """Raise where arguments are ensembles or arrays of several libraries."""
    for value in arguments:
        kind = type(value)
        if kind not in OF_NUMPY and (kind is not Ensemble or type(value.samples) is not np.ndarray):
            arrays = [value.samples if type(value) is Ensemble else value for value in arguments]
            arrays = [array for array in arrays if not isinstance(array, np.generic)]
            require_one_library(f"np.{function.__name__}", "operands", *arrays)
            return


OTHERWISE = frozenset(["linspace"])
"""Functions of NumPy that promote otherwise than the function of the Array API of the same name."""


class NotLiftedError(Exception):
    """The reason why a call cannot take all samples at once."""


RENAMED = {"ddof": "correction", "a_min": "min", "a_max": "max"}

ARRAYS = frozenset(("x", "x1", "x2", "indices", "sorter"))
"""Parameters of the Array API for which NumPy also takes lists."""


def _translated(ns: EnsembleNamespace, function: Any, lifted: Any, arguments: Any, options: Any) -> Any:
    """Call `lifted` with the NumPy call's arguments; an option that only NumPy has must keep its default."""
    given = signature_of(function).bind(*arguments, **options)
    if given.arguments.get("ddof", 0) and "correction" in given.arguments:
        raise ValueError(message(f"np.{function.__name__}", "ddof and correction", "not be given both", "both"))
    parameters = signature_of(lifted).parameters.values()
    values = list(given.arguments.items())
    positional: list[Any] = []
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL and values:
            positional.extend(values.pop(0)[1])
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY and values:
            value = values.pop(0)[1]
            if parameter.name == "indices" and isinstance(value, int):
                value = ns.asarray(value)
            positional.append(_array(ns, value) if parameter.name in ARRAYS else value)
    accepted = {p.name for p in parameters if p.kind not in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)}
    defaults = signature_of(function).parameters
    keyword: dict[str, Any] = {}
    for key, value in values:
        new = RENAMED.get(key, key)
        if new in accepted:
            keyword[new] = _array(ns, value) if new in ARRAYS else value
        elif value is not defaults[key].default and value is not None:
            raise NotLiftedError(f"the option {key} is not in the Array API")
    return lifted(*positional, **keyword)


# -- functions that need more than a change of names -------------------------------------------------------------------


def _dot(ns: EnsembleNamespace, a: Any, b: Any, out: None = None) -> Any:
    a, b = (v if isinstance(v, Ensemble) or is_array(v) else np.asarray(v) for v in (a, b))
    if not len(a.shape) or not len(b.shape):
        return ns.multiply(a, b)
    if len(b.shape) <= 2:
        return ns.matmul(a, b)
    return ns.tensordot(a, b, axes=((len(a.shape) - 1,), (len(b.shape) - 2,)))


def _norm(ns: EnsembleNamespace, x: Array, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if axis is None and ord is None:
        return ns.linalg.vector_norm(x, keepdims=keepdims)
    if axis is None and x.ndim not in (1, 2):
        seen = f"shape {x.shape} with ord={ord!r}"
        raise ValueError(message("np.linalg.norm", "x", "have 1 or 2 axes where axis is not given", seen))
    if (axis is None and x.ndim == 2) or (isinstance(axis, tuple | list) and len(axis) == 2):
        if axis is not None:
            x = ns.moveaxis(x, tuple(axis), (-2, -1))
        if axis is not None and keepdims:
            raise NotLiftedError("keepdims of a matrix norm on named axes is not lifted")
        return ns.linalg.matrix_norm(x, ord="fro" if ord is None else ord, keepdims=keepdims)
    return ns.linalg.vector_norm(x, axis=axis, ord=2 if ord is None else ord, keepdims=keepdims)


def _where(ns: EnsembleNamespace, condition: Array, *choices: Any) -> Any:
    if not choices:
        return ns.nonzero(condition)
    return ns.where(_array(ns, condition), *(_array(ns, choice) for choice in choices))


def _array(ns: EnsembleNamespace, value: Any) -> Any:
    """NumPy's functions of arrays also take lists."""
    return ns.asarray(value) if isinstance(value, list | tuple) else value


def _joined(name: str) -> Callable[..., Any]:
    def join(ns: EnsembleNamespace, arrays: Any, axis: Any = 0, out: None = None, **options: Any) -> Any:
        if options:
            raise NotLiftedError("its options besides axis are not lifted")
        return getattr(ns, ARRAY_API_NAMES.get(name, name))([_array(ns, array) for array in arrays], axis=axis)

    return join


def _round(ns: EnsembleNamespace, a: Ensemble, decimals: int = 0, out: None = None) -> Any:
    if not decimals:
        return ns.round(a)
    if not hasattr(a.samples, "round"):
        raise NotLiftedError("the option decimals is not in the Array API")
    return wrap(a.samples.round(decimals=decimals), a.sample_set)


def _svd(ns: EnsembleNamespace, a: Any, full_matrices: bool = True, compute_uv: bool = True, **options: Any) -> Any:
    if options.pop("hermitian", False) or options:
        raise NotLiftedError("the option hermitian is not in the Array API")
    return ns.linalg.svd(a, full_matrices=full_matrices) if compute_uv else ns.linalg.svdvals(a)


def _eigenvalues(name: str) -> Callable[..., Any]:
    """`eig` and `eigvals`: of real matrices NumPy gives real results where all eigenvalues are real."""

    def eigenvalues(ns: EnsembleNamespace, a: Any) -> Any:
        result = getattr(ns.linalg, name)(a)
        values = result[0] if name == "eig" else result
        real = isinstance(values.samples, np.ndarray) and a.dtype.kind != "c"
        if not real or values.dtype.kind != "c" or np.any(values.samples.imag != 0.0):
            return result
        if name == "eigvals":
            return values.real.copy()
        return type(result)(*(part.real.copy() for part in result))

    return eigenvalues


def _qr(ns: EnsembleNamespace, a: Any, mode: str = "reduced") -> Any:
    if mode in ("reduced", "complete"):
        return ns.linalg.qr(a, mode=mode)
    if mode != "r":
        raise NotLiftedError(f"mode={mode!r} is not lifted")
    return ns.linalg.qr(a)[1]


def _diff(ns: EnsembleNamespace, a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    if isinstance(n, int) and not n:
        return a
    a, edges = ns.asarray(a), {}
    for key, value in (("prepend", prepend), ("append", append)):
        if value is None or value is np._NoValue:
            continue
        edge = ns.asarray(value)
        if not edge.ndim:  # one number for a slice
            shape = list(a.shape)
            shape[axis] = 1
            edge = ns.broadcast_to(edge, tuple(shape))
        edges[key] = edge
    return ns.diff(a, axis=axis, n=n, **edges)


def _ordered(name: str) -> Callable[..., Any]:
    def ordered(
        ns: EnsembleNamespace, a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
    ) -> Any:
        if order is not None:
            raise NotLiftedError("the option order is not in the Array API")
        if not a.ndim:
            raise NotLiftedError("it orders a value without axes")
        return getattr(ns, name)(a, axis=axis) if axis is not None else getattr(ns, name)(ns.reshape(a, -1))

    return ordered


def _copyto(ns: EnsembleNamespace, dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, Ensemble):
        raise unsupported("np.copyto", "a plain array cannot hold samples")
    value = ns.asarray(src)
    if not np.can_cast(value.dtype, dst.dtype, casting):
        raise unsupported("np.copyto", f"{value.dtype} is not cast to {dst.dtype} by the rule {casting!r}")
    value = ns.astype(value, dst.dtype)  # before `where`, so that unmasked entries keep every bit
    dst[...] = value if where is True else ns.where(_array(ns, where), value, dst)


def _has_complex_type(ns: EnsembleNamespace, x: Ensemble) -> bool:
    known: bool = ns.isdtype(x.dtype, "complex floating")
    return known


def _transpose(ns: EnsembleNamespace, a: Ensemble, axes: Any = None) -> Any:
    return ns.permute_dims(a, tuple(reversed(range(a.ndim))) if axes is None else axes)


def _swapaxes(ns: EnsembleNamespace, a: Ensemble, axis1: int, axis2: int) -> Any:
    return ns.moveaxis(a, (axis1, axis2), (axis2, axis1))


def _cumulate(name: str) -> Callable[..., Any]:
    def cumulate(ns: EnsembleNamespace, a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
        return getattr(ns, name)(a if axis is not None else ns.reshape(a, -1), axis=axis, dtype=dtype)

    return cumulate


def _shape_of(attribute: str) -> Callable[..., Any]:
    return lambda ns, a: getattr(a, attribute)


def _size(ns: EnsembleNamespace, a: Any, axis: Any = None) -> int:
    return math.prod(a.shape if axis is None else (a.shape[k] for k in visible_axes(axis, a.ndim, "np.size")))


def _ravel(ns: EnsembleNamespace, a: Any, order: str = "C") -> Any:
    if order != "C":
        raise NotLiftedError(f"order={order!r} is not lifted")
    return ns.reshape(a, -1)


def _squeeze(ns: EnsembleNamespace, a: Ensemble, axis: Any = None) -> Any:
    return ns.squeeze(a, tuple(k for k, n in enumerate(a.shape) if n == 1) if axis is None else axis)


def _copy(ns: EnsembleNamespace, a: Any, order: str = "K", subok: bool = False) -> Any:
    return ns.asarray(a, copy=True)


def _isclose(
    ns: EnsembleNamespace, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    inexact = ("real floating", "complex floating")  # differences of integers would wrap around
    a, b = (x if ns.isdtype(x.dtype, inexact) else ns.astype(x, ns.float64) for x in (ns.asarray(a), ns.asarray(b)))
    close = ns.where(ns.isfinite(b), ns.abs(a - b) <= atol + rtol * ns.abs(b), a == b)
    return close | (ns.isnan(a) & ns.isnan(b)) if equal_nan else close


def _allclose(ns: EnsembleNamespace, a: Any, b: Any, *tolerances: Any, **options: Any) -> bool:
    return bool(ns.all(_isclose(ns, a, b, *tolerances, **options)))


def _places_in_shape(name: str) -> Callable[..., Any]:
    """Places that only depend on the shape of an array: plain arrays."""
    return lambda ns, a, *more: getattr(np, name)(np.broadcast_to(np.False_, a.shape), *more)


def _share_memory(name: str) -> Callable[..., Any]:
    def share(ns: EnsembleNamespace, a: Any, b: Any, *more: Any, **options: Any) -> bool:
        plain = (x.samples if isinstance(x, Ensemble) else x for x in (a, b))
        shared: bool = getattr(np, name)(*plain, *more, **options)
        return shared

    return share


def _common_type(ns: EnsembleNamespace, *arrays: Any) -> Any:
    return np.common_type(*(x.samples if isinstance(x, Ensemble) else x for x in arrays))


def _isin(ns: EnsembleNamespace, element: Any, test_elements: Any, *options: Any, **more: Any) -> Any:
    given = signature_of(np.isin).bind(element, test_elements, *options, **more).arguments
    found = (x if isinstance(x, Ensemble | int) else ns.asarray(x) for x in (element, test_elements))
    return as_array(ns.isin(*found, invert=bool(given.get("invert", False))))  # NumPy gives no scalar


def _broadcast_arrays(ns: EnsembleNamespace, *arrays: Any, subok: bool = False) -> Any:
    arrays = ns.broadcast_arrays(*(x if isinstance(x, Ensemble) else ns.asarray(x) for x in arrays))
    return type(arrays)(as_array(x) for x in arrays)


SPECIAL: dict[str, Callable[..., Any]] = {
    "broadcast_arrays": _broadcast_arrays,
    "isin": _isin,
    "dot": _dot,
    "linalg.norm": _norm,
    "where": _where,
    "transpose": _transpose,
    "swapaxes": _swapaxes,
    "cumsum": _cumulate("cumulative_sum"),
    "cumprod": _cumulate("cumulative_prod"),
    "shape": _shape_of("shape"),
    "ndim": _shape_of("ndim"),
    "size": _size,
    "ravel": _ravel,
    "squeeze": _squeeze,
    "copy": _copy,
    "concatenate": _joined("concatenate"),
    "stack": _joined("stack"),
    "round": _round,
    "around": _round,
    "linalg.svd": _svd,
    "linalg.qr": _qr,
    "linalg.eig": _eigenvalues("eig"),
    "linalg.eigvals": _eigenvalues("eigvals"),
    "diff": _diff,
    "sort": _ordered("sort"),
    "argsort": _ordered("argsort"),
    "copyto": _copyto,
    "common_type": _common_type,
    **{name: _places_in_shape(name) for name in ("diag_indices_from", "tril_indices_from", "triu_indices_from")},
    **{name: _share_memory(name) for name in ("may_share_memory", "shares_memory")},
    "iscomplexobj": _has_complex_type,
    "isrealobj": lambda ns, x: not _has_complex_type(ns, x),
    "isclose": _isclose,
    "allclose": _allclose,
}


PROTOCOLS.call_numpy_function = call_function
