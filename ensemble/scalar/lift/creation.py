"""Creation functions, dtypes and inspection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from ensemble._backend import copy_of, is_array, library_of, needs_gradient, numbers, to_numpy
from ensemble._check import message, require, require_one_library
from ensemble._typing import Array
from ensemble.scalar.ensemble import Ensemble, as_array, packed, view, wrap
from ensemble.scalar.lift.shapes import as_shape
from ensemble.scalar.namespace import EnsembleNamespace, named, samples_of, set_of
from ensemble.scalar.plain_arrays import array_like


def allocation(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule of `empty`, `zeros`, `ones`: memory to write into, for every sample of the namespace."""
    f = getattr(ns.base, name)

    def lifted(shape: Any, *, dtype: Any = None, device: Any = None) -> Ensemble:
        return as_array(wrap(f((*as_shape(shape), ns.n_samples), dtype=dtype, device=device)))

    return named(lifted, name)


def allocation_like(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule of `empty_like`, `zeros_like`, `ones_like`."""
    f = getattr(ns.base, name.removesuffix("_like"))

    def lifted(x: Array, /, *, dtype: Any = None, device: Any = None) -> Ensemble:
        x = ns.lift(x, name)
        n_samples = max(x.n_samples, ns.n_samples)
        device = x.device if device is None else device
        samples = f((*x.shape, n_samples), dtype=x.dtype if dtype is None else dtype, device=device)
        return as_array(wrap(samples, x.sample_set))

    return named(lifted, name)


def full(ns: EnsembleNamespace, shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Ensemble:
    """One value everywhere; an ensemble gives each sample its own, and arrays broadcast against the visible `shape`."""
    fill_value = array_like(fill_value)
    if isinstance(fill_value, list | tuple) or is_array(fill_value):
        fill_value = asarray(ns, fill_value)
    if not isinstance(fill_value, Ensemble):
        samples = ns.base.full((*as_shape(shape), ns.n_samples), fill_value, dtype=dtype, device=device)
        return as_array(wrap(samples))
    n_samples = samples_of("full", fill_value, ns.zeros(()))
    visible = as_shape(shape)
    fits = len(fill_value.shape) <= len(visible)
    fits = fits and all(m in (1, n) for m, n in zip(fill_value.shape[::-1], visible[::-1], strict=False))
    require(fits, "full", "fill_value", f"broadcast to shape {visible}", f"shape {fill_value.shape}")
    dtype = fill_value.dtype if dtype is None else dtype
    values = ns.base.asarray(ns.base.astype(fill_value.samples, dtype), device=device)
    samples = ns.base.broadcast_to(values, (*visible, n_samples))
    return as_array(wrap(packed(copy_of(samples)), fill_value.sample_set))


def full_like(
    ns: EnsembleNamespace, x: Array, /, fill_value: Any, *, dtype: Any = None, device: Any = None
) -> Ensemble:
    """One value everywhere, in the shape and dtype of `x`."""
    x = ns.lift(x, "full_like")
    dtype = x.dtype if dtype is None else dtype
    device = x.device if device is None else device
    n_samples = samples_of("full_like", x, fill_value)
    if n_samples > ns.n_samples:
        ns = _wider(ns, n_samples)
    filled = full(ns, x.shape, fill_value, dtype=dtype, device=device)
    return as_array(wrap(filled.samples, set_of(x, fill_value)))


def _wider(ns: EnsembleNamespace, n_samples: int) -> Any:
    from ensemble.scalar.namespace import namespace

    return namespace(ns, n_samples, api_version=ns.__array_api_version__)


def asarray(ns: EnsembleNamespace, obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Ensemble:
    """`obj` as an ensemble: plain data becomes shared; nested sequences may hold 0-d ensembles."""
    if isinstance(obj, Ensemble):
        samples = ns.base.asarray(obj.samples, dtype=dtype, device=device, copy=copy)
        return as_array(wrap(packed(samples), obj.sample_set) if copy else view(obj, samples))
    if isinstance(obj, list | tuple) and _holds_ensembles(obj):
        result: Ensemble = ns.stack([asarray(ns, item, dtype=dtype, device=device) for item in obj])
        return result
    return as_array(wrap(ns.base.asarray(obj, dtype=dtype, device=device, copy=copy)[..., None]))


def _holds_ensembles(obj: Any) -> bool:
    if isinstance(obj, list | tuple):
        return any(_holds_ensembles(item) for item in obj)
    return isinstance(obj, Ensemble)


def from_dlpack(ns: EnsembleNamespace, x: Array, /, *, device: Any = None, copy: bool | None = None) -> Ensemble:
    """The data of another library's array, shared by all samples; of an ensemble, all its samples."""
    options = {"device": device} if device is not None else {}
    if copy is not None:
        options["copy"] = copy
    if isinstance(x, Ensemble):
        return wrap(ns.base.from_dlpack(x.samples, **options), x.sample_set)
    return wrap(ns.base.from_dlpack(x, **options)[..., None])


def arange(
    ns: EnsembleNamespace, start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> Ensemble:
    """Evenly spaced numbers from `start` to below `stop`: shared."""
    return wrap(ns.base.arange(start, stop, step, dtype=dtype, device=device)[..., None])


def _line(base: Any, start: Any, stop: Any, num: int, dtype: Any, device: Any, endpoint: bool) -> Any:
    """``base.linspace(start, stop, num)``, with the derivatives that PyTorch's has not."""
    ends = start, stop
    if not any(library_of(end) == "torch" and needs_gradient(end) for end in ends):
        return base.linspace(start, stop, num, dtype=dtype, device=device, endpoint=endpoint)
    known = [to_numpy(end).item() if is_array(end) else end for end in ends]
    line = base.linspace(*known, num, dtype=dtype, device=device, endpoint=endpoint)
    unit = base.linspace(0.0, 1.0, num, dtype=line.dtype, device=device, endpoint=endpoint)
    own = start + (stop - start) * unit
    return own - own.detach() + line


def linspace(
    ns: EnsembleNamespace,
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Ensemble:
    """`num` evenly spaced numbers: shared, or one row per sample where `start` or `stop` is a 0-d ensemble."""
    if not isinstance(start, Ensemble) and not isinstance(stop, Ensemble):
        plain = ns.base.linspace(start, stop, num, dtype=dtype, device=device, endpoint=endpoint)
        return wrap(plain[..., None])
    n_samples = samples_of("linspace", start, stop)
    first, last = (
        numbers(ns.base.broadcast_to(v.samples, (n_samples,))) if isinstance(v, Ensemble) else [v] * n_samples
        for v in (start, stop)
    )
    rows = [_line(ns.base, a, b, num, dtype, device, endpoint) for a, b in zip(first, last, strict=True)]
    return wrap(ns.base.stack(rows, axis=-1), set_of(start, stop))


def eye(
    ns: EnsembleNamespace,
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
) -> Ensemble:
    """Ones on a diagonal: shared."""
    return wrap(ns.base.eye(n_rows, n_cols, k=k, dtype=dtype, device=device)[..., None])


def triangle(ns: EnsembleNamespace, name: str) -> Callable[..., Any]:
    """Rule of `tril` and `triu`."""
    f = getattr(ns.base, name)

    def lifted(x: Array, /, *, k: int = 0) -> Ensemble:
        x = ns.lift(x, name)
        require(x.ndim > 1, name, "x", "have 2 axes or more", f"shape {x.shape}")
        front = ns.base.moveaxis(x.samples, -1, 0)
        return wrap(packed(ns.base.moveaxis(f(front, k=k), 0, -1)), x.sample_set)

    return named(lifted, name)


def meshgrid(ns: EnsembleNamespace, *arrays: Array, indexing: str = "xy") -> Sequence[Ensemble]:
    """Coordinate arrays of a grid; each keeps its own samples."""
    if indexing not in ("xy", "ij"):
        raise ValueError(message("meshgrid", "indexing", "be 'xy' or 'ij'", repr(indexing)))
    lifted = [ns.lift(x, "meshgrid") for x in arrays]
    n = len(lifted)
    lines = [ns.reshape(x, (*(1,) * k, -1, *(1,) * (n - k - 1))) for k, x in enumerate(lifted)]
    grids = ns.broadcast_arrays(*lines) if n else ()
    if indexing == "xy" and n > 1:
        grids = tuple(ns.permute_dims(grid, (1, 0, *range(2, n))) for grid in grids)
    result: Sequence[Ensemble] = ns.sequence()(wrap(packed(copy_of(grid.samples)), grid.sample_set) for grid in grids)
    return result


# -- dtypes and inspection ---------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    return value.samples if isinstance(value, Ensemble) else value


def astype(ns: EnsembleNamespace, x: Array, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Ensemble:
    """`x` with values of another type."""
    x = ns.lift(x, "astype")
    samples = ns.base.astype(x.samples, dtype, copy=copy)
    result = wrap(samples, x.sample_set) if copy else view(x, samples)
    result = result if x.is_value else as_array(result)
    return result if device is None else result.to_device(device)


def can_cast(ns: EnsembleNamespace, from_: Any, to: Any, /) -> bool:
    """Whether values of `from_` keep their kind as `to`."""
    result: bool = ns.base.can_cast(from_.dtype if isinstance(from_, Ensemble) else from_, to)
    return result


def result_type(ns: EnsembleNamespace, *arrays_and_dtypes: Any) -> Any:
    """The common dtype of the arguments by the rules of type promotion."""
    plain = [_plain(value) for value in arrays_and_dtypes]
    require_one_library("result_type", "operands", *plain)
    return ns.base.result_type(*plain)


def isdtype(ns: EnsembleNamespace, dtype: Any, kind: Any) -> bool:
    """Whether `dtype` is of `kind`."""
    result: bool = ns.base.isdtype(dtype, kind)
    return result


def finfo(ns: EnsembleNamespace, type: Any, /) -> SimpleNamespace:
    """The limits of a floating-point dtype, as Python floats."""
    dtype = _dtype_of(type)
    limits = ns.base.finfo(dtype)
    names = ("eps", "max", "min", "smallest_normal")
    values = {name: float(getattr(limits, name)) for name in names}
    return SimpleNamespace(bits=int(limits.bits), dtype=_dtype_named(ns, limits.dtype), **values)


def iinfo(ns: EnsembleNamespace, type: Any, /) -> SimpleNamespace:
    """The limits of an integer dtype, as Python ints."""
    limits = ns.base.iinfo(_dtype_of(type))
    return SimpleNamespace(
        bits=int(limits.bits), max=int(limits.max), min=int(limits.min), dtype=_dtype_named(ns, limits.dtype)
    )


def _dtype_named(ns: EnsembleNamespace, dtype: Any) -> Any:
    """PyTorch gives a name for a dtype here."""
    return getattr(ns.base, dtype) if isinstance(dtype, str) else dtype


def _dtype_of(value: Any) -> Any:
    """The dtype of an array or ensemble, or the dtype that `value` is; NumPy's scalar types look like arrays."""
    lifted = not isinstance(value, type) and (isinstance(value, Ensemble) or is_array(value))
    return value.dtype if lifted else value


class _Info:
    """The base library's inspection, with the devices in the container of this version of the standard."""

    def __init__(self, ns: EnsembleNamespace) -> None:
        self._info = ns.base.__array_namespace_info__()
        self._sequence = ns.sequence()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._info, name)

    def devices(self) -> Sequence[Any]:
        result: Sequence[Any] = self._sequence(self._info.devices())
        return result


def namespace_info(ns: EnsembleNamespace) -> _Info:
    """What the base library can do: dtypes, devices, capabilities."""
    return _Info(ns)
