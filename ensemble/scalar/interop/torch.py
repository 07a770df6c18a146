"""PyTorch's own protocol: ``tensor * x``, ``torch.sin(x)`` give ensembles or raise an error."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ensemble._backend import is_array
from ensemble._check import message, require_one_library
from ensemble._compile.trace.operations import ARRAY_API_NAMES
from ensemble._typing import Array
from ensemble.scalar.ensemble import Ensemble, shared, wrap
from ensemble.scalar.interop.ufuncs import first_ensemble, unsupported
from ensemble.scalar.lift.table import BINARY, UNARY
from ensemble.scalar.namespace import EnsembleNamespace, namespace_of
from ensemble.scalar.protocol_table import PROTOCOLS

__all__ = ["call_function"]

TORCH_NAMES = ARRAY_API_NAMES | {
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
    "__floordiv__": "floor_divide",
    "bitwise_not": "bitwise_invert",
    "div": "divide",
    "eq": "equal",
    "ge": "greater_equal",
    "gt": "greater",
    "le": "less_equal",
    "lt": "less",
    "mul": "multiply",
    "ne": "not_equal",
    "neg": "negative",
    "sub": "subtract",
    "special_expm1": "expm1",
    "special_log1p": "log1p",
}

ELEMENTWISE = frozenset((*UNARY.split(), *BINARY.split(), "conj", "imag", "matmul", "real"))
"""Functions that take arrays alone, in the order of the Array API."""

LINALG = frozenset(["cholesky", "det", "eigh", "eigvalsh", "inv", "pinv", "slogdet", "solve", "svdvals"])

FFT = frozenset(["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn"])


def call_function(function: Any, arguments: Any, options: Any) -> Any:
    """The implementation of ``__torch_function__``."""
    name = function.__name__
    first = first_ensemble((*arguments, *options.values()))
    full_name = f"torch.{name}"
    if options.get("out", 0) is None:
        options = {key: value for key, value in options.items() if key != "out"}
    if (name.endswith("_") and not name.endswith("__")) or name == "__setitem__" or "out" in options:
        advice = "A plain tensor cannot hold samples; make an Ensemble of it with en.shared(tensor)."
        raise TypeError(message(full_name, "the tensor written to", "be an Ensemble", "a Tensor", advice))
    ns = namespace_of(first, None)
    if not type(first.samples).__module__.startswith("torch"):
        require_one_library(
            full_name, "operands", first.samples, *(v for v in arguments if is_array(v) and v is not first)
        )
    special = SPECIAL.get(name)
    if special is not None:
        return special(ns, *arguments, **options)
    standard = TORCH_NAMES.get(name, name)
    if standard in ELEMENTWISE and not options:
        return getattr(ns, standard)(*arguments)
    for extension, names in (("linalg", LINALG), ("fft", FFT)):
        short = name.removeprefix(f"{extension}_")
        if short != name and short in names:
            renamed = {("axis" if key == "dim" else key): value for key, value in options.items()}
            return getattr(getattr(ns, extension), short)(*arguments, **renamed)
    raise unsupported(full_name, "it is not in the Array API, or not with these options")


def _reduction(standard: str) -> Callable[..., Any]:
    def reduce(ns: EnsembleNamespace, x: Array, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        return getattr(ns, standard)(x, axis=dim, keepdims=keepdim, **options)

    return reduce


def _spread(standard: str) -> Callable[..., Any]:
    """`std` and `var`: PyTorch corrects by 1 by default, as ``std(x, False)`` does in its older form."""

    def reduce(
        ns: EnsembleNamespace,
        x: Array,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if correction is None:
            correction = 0 if unbiased is False else 1
        return getattr(ns, standard)(x, axis=dim, correction=correction, keepdims=keepdim)

    return reduce


def _equal(ns: EnsembleNamespace, a: Any, b: Any) -> bool:
    """One truth value: whether shapes and all entries are equal."""
    return tuple(a.shape) == tuple(b.shape) and bool(ns.all(ns.equal(a, b)))


def _full(standard: str) -> Callable[..., Any]:
    """The form without `dim`: over all entries."""

    def reduce(ns: EnsembleNamespace, x: Array, *, keepdim: bool = False) -> Any:
        return getattr(ns, standard)(x)

    return reduce


def _extreme(standard: str) -> Callable[..., Any]:
    """`max` and `min`: over all entries, along an axis with the places, or of two arguments."""
    along, of_two = _along(standard, ("dim", "keepdim"), None), f"{standard}imum"

    def reduce(ns: EnsembleNamespace, x: Array, *arguments: Any, **options: Any) -> Any:
        if not arguments and not options:
            return getattr(ns, standard)(x)
        second = arguments[0] if arguments else options.get("other")
        if second is not None and not isinstance(second, int):
            return getattr(ns, of_two)(x, second)
        return along(ns, x, *arguments, **options)

    return reduce


def _dims_of(dim: Any, ndim: int, name: str) -> Any:
    """Visible axes as axes of the samples, of which negative numbers count the sample axis, too."""
    if dim is None or isinstance(dim, list | tuple):
        return dim if dim is None else type(dim)(_dims_of(d, ndim, name) for d in dim)
    if not -ndim <= dim < ndim:
        raise IndexError(message(f"torch.{name}", "dim", f"be from {-ndim} to {ndim - 1}", dim))
    return dim if dim >= 0 else dim - 1


def _along(
    name: str, names: tuple[str, ...], default: Any, whole: Callable[..., Any] | None = None, new_axis: bool = False
) -> Callable[..., Any]:
    """PyTorch's own function along visible axes, with its keywords and its type of results.

    `names` are its arguments after the tensor, in their order; `default` is that of the axis. `whole` is called where
    the axis is None. `new_axis`: whether the function adds one.
    """

    def call(ns: EnsembleNamespace, x: Any, *arguments: Any, **options: Any) -> Any:
        import torch

        x = ns.lift(x, f"torch.{name}")
        if len(names) == 1 and len(arguments) > 1:  # torch.flip(x, 0, 1), as methods have it
            arguments = (arguments,)
        given = dict(zip(names, arguments, strict=False)) | options
        axis = next(key for key in names if key.startswith("dim"))
        chosen = given.pop(axis, given.pop("axis", default))
        if chosen is None and whole is not None:
            return whole(ns, x, **given)
        dims = _dims_of(chosen, x.ndim + new_axis, name)
        return _wrapped(getattr(torch, name)(x.samples, **{axis: dims}, **given), x.sample_set)

    return call


def _wrapped(result: Any, sample_set: Any) -> Any:
    """Tensors as ensembles, several of them in what PyTorch returns them in."""
    if isinstance(result, list | tuple):
        return type(result)([_wrapped(part, sample_set) for part in result])
    return wrap(result, sample_set)


def _joined(standard: str) -> Callable[..., Any]:
    def join(ns: EnsembleNamespace, tensors: Any, dim: int = 0) -> Any:
        return getattr(ns, standard)(tensors, axis=dim)

    return join


def _cumulative(standard: str) -> Callable[..., Any]:
    def cumulate(ns: EnsembleNamespace, x: Array, dim: int, *, dtype: Any = None) -> Any:
        return getattr(ns, standard)(x, axis=dim, dtype=dtype)

    return cumulate


def _product(ns: EnsembleNamespace, a: Any, b: Any) -> Any:
    return ns.matmul(a, b)


def _getitem(ns: EnsembleNamespace, x: Array, key: Any) -> Any:
    return (x if isinstance(x, Ensemble) else shared(x))[key]


def _norm(
    ns: EnsembleNamespace, x: Array, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    x = ns.lift(x, "torch.linalg.vector_norm")
    x = x if dtype is None else ns.astype(x, dtype)
    return ns.linalg.vector_norm(x, axis=dim, keepdims=keepdim, ord=2 if ord is None else ord)


def _any_norm(
    ns: EnsembleNamespace, x: Array, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """`torch.linalg.norm`, which is a norm of matrices where an order is given for two axes."""
    x = ns.lift(x, "torch.linalg.norm")
    axes = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    if ord is None or len(axes) == 1:
        return _norm(ns, x, ord, dim, keepdim, dtype=dtype)
    matrices = ns.moveaxis(x if dtype is None else ns.astype(x, dtype), tuple(axes), (-2, -1))
    found = ns.linalg.matrix_norm(matrices, ord=ord)
    return ns.reshape(found, tuple(1 if k in axes else n for k, n in enumerate(x.shape))) if keepdim else found


def _squeeze(ns: EnsembleNamespace, x: Any, dim: Any = None) -> Any:
    x = ns.lift(x, "torch.squeeze")
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return ns.squeeze(x, tuple(d for d in dims if x.shape[d] == 1))


def _flatten(ns: EnsembleNamespace, x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    x = ns.lift(x, "torch.flatten")
    first, last = (d % max(x.ndim, 1) for d in (start_dim, end_dim))
    return ns.reshape(x, (*x.shape[:first], -1, *x.shape[last + 1 :]))


def _picked(standard: str, dim_first: bool) -> Callable[..., Any]:
    """`index_select` and `take_along_dim`."""

    def pick(ns: EnsembleNamespace, x: Any, first: Any = None, second: Any = None, **options: Any) -> Any:
        dim, index = (first, second) if dim_first else (second, first)
        dim = options.get("dim", dim)
        index = options.get("index", options.get("indices", index))
        if not dim_first and dim is None:
            x, index, dim = ns.reshape(x, (-1,)), ns.reshape(index, (-1,)), 0
        return getattr(ns, standard)(x, index, axis=dim)

    return pick


def _positional(standard: str, names: tuple[str, ...]) -> Callable[..., Any]:
    """A function of the namespace that takes by position what PyTorch calls `names`."""

    def call(ns: EnsembleNamespace, x: Any, *arguments: Any, **options: Any) -> Any:
        if len(names) == 1 and len(arguments) > 1:
            arguments = (arguments,)
        given = (*arguments, *(options[key] for key in names[len(arguments) :]))
        function: Any = functools.reduce(getattr, standard.split("."), ns)
        return function(x, *given)

    return call


def _middle(ns: EnsembleNamespace, x: Any, **options: Any) -> Any:
    """`median` of all entries: the lower one of two."""
    flat = ns.reshape(x, (-1,))
    return wrap(flat.samples.median(dim=0).values, flat.sample_set)


def _clamp(ns: EnsembleNamespace, x: Array, min: Any = None, max: Any = None) -> Any:
    return ns.clip(x, min, max)


def _reshape(ns: EnsembleNamespace, x: Array, *shape: Any) -> Any:
    return ns.reshape(x, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)


def _add(standard: str) -> Callable[..., Any]:
    def add(ns: EnsembleNamespace, a: Any, b: Any, *, alpha: Any = 1) -> Any:
        return getattr(ns, standard)(a, b if alpha == 1 else b * alpha)

    return add


def _like(standard: str) -> Callable[..., Any]:
    def make(ns: EnsembleNamespace, x: Array, *value: Any, dtype: Any = None, **options: Any) -> Any:
        value = (*value, *(options.pop(key) for key in ("fill_value",) if key in options))
        if any(option not in (None, False) for option in options.values()):
            raise unsupported(f"torch.{standard}", f"of its options only dtype is lifted; got {sorted(options)}")
        return getattr(ns, standard)(x, *value, dtype=dtype)

    return make


def _tensordot(ns: EnsembleNamespace, a: Any, b: Any, dims: Any = 2) -> Any:
    if not isinstance(dims, int):
        dims = tuple(tuple([d] if isinstance(d, int) else d) for d in dims)
    return ns.tensordot(a, b, axes=dims)


def _renamed(standard: str, names: tuple[str, ...], **renamed: str) -> Callable[..., Any]:
    """A function of the namespace whose arguments after the first have PyTorch's `names`, some `renamed`."""

    def call(ns: EnsembleNamespace, x: Any, *arguments: Any, **options: Any) -> Any:
        given = dict(zip(names, arguments, strict=False)) | options
        function: Any = functools.reduce(getattr, standard.split("."), ns)
        return function(x, **{renamed.get(key, key): value for key, value in given.items()})

    return call


def _permute(ns: EnsembleNamespace, x: Any, *dims: Any) -> Any:
    return ns.permute_dims(x, dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)


def _exchanged(ns: EnsembleNamespace, x: Any, dim0: int, dim1: int) -> Any:
    x = ns.lift(x, "torch.transpose")
    axes = list(range(x.ndim))
    axes[dim0], axes[dim1] = axes[dim1], axes[dim0]
    return ns.permute_dims(x, tuple(axes))


ALONG: dict[str, Callable[..., Any]] = {
    "argmax": _along("argmax", ("dim", "keepdim"), None, _full("argmax")),
    "argmin": _along("argmin", ("dim", "keepdim"), None, _full("argmin")),
    "argsort": _along("argsort", ("dim", "descending", "stable"), -1),
    "cummax": _along("cummax", ("dim",), None),
    "cummin": _along("cummin", ("dim",), None),
    "diff": _along("diff", ("n", "dim"), -1),
    "flip": _along("flip", ("dims",), None),
    "kthvalue": _along("kthvalue", ("k", "dim", "keepdim"), -1),
    "log_softmax": _along("log_softmax", ("dim", "dtype"), None),
    "logcumsumexp": _along("logcumsumexp", ("dim",), None),
    "logsumexp": _along("logsumexp", ("dim", "keepdim"), None),
    "max": _extreme("max"),
    "median": _along("median", ("dim", "keepdim"), None, _middle),
    "min": _extreme("min"),
    "roll": _along("roll", ("shifts", "dims"), None, lambda ns, x, shifts: ns.roll(x, shifts)),
    "softmax": _along("softmax", ("dim", "dtype"), None),
    "sort": _along("sort", ("dim", "descending", "stable"), -1),
    "topk": _along("topk", ("k", "dim", "largest", "sorted"), -1),
    "unbind": _along("unbind", ("dim",), 0),
    "unsqueeze": _along("unsqueeze", ("dim",), None, new_axis=True),
}
"""Functions along visible axes that PyTorch's own work on the samples serves."""


def _where(ns: EnsembleNamespace, condition: Array, *choices: Any) -> Any:
    return ns.where(condition, *choices) if choices else ns.nonzero(condition)


SPECIAL: dict[str, Callable[..., Any]] = {
    "where": _where,
    **{name: _reduction(name) for name in ("sum", "prod", "mean", "all", "any")},
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "count_nonzero": _reduction("count_nonzero"),
    "std": _spread("std"),
    "var": _spread("var"),
    **ALONG,
    **{name: _joined("concat") for name in ("cat", "concat", "concatenate")},
    "stack": _joined("stack"),
    "cumsum": _cumulative("cumulative_sum"),
    "cumprod": _cumulative("cumulative_prod"),
    **dict.fromkeys(("mm", "mv", "dot", "bmm", "__matmul__"), _product),
    "__getitem__": _getitem,
    "equal": _equal,
    "linalg_norm": _any_norm,
    "linalg_vector_norm": _norm,
    "clamp": _clamp,
    "clip": _clamp,
    "reshape": _reshape,
    "add": _add("add"),
    "sub": _add("subtract"),
    **{name: _like(name) for name in ("empty_like", "full_like", "ones_like", "zeros_like")},
    "tensordot": _tensordot,
    "outer": _positional("linalg.outer", ("vec2",)),
    "isin": _positional("isin", ("test_elements",)),
    "squeeze": _squeeze,
    "flatten": _flatten,
    "ravel": _flatten,
    "index_select": _picked("take", dim_first=True),
    "take_along_dim": _picked("take_along_axis", dim_first=False),
    "trace": _renamed("linalg.trace", ()),
    "tril": _renamed("tril", ("diagonal",), diagonal="k"),
    "triu": _renamed("triu", ("diagonal",), diagonal="k"),
    "broadcast_to": _renamed("broadcast_to", ("size",), size="shape"),
    "tile": _positional("tile", ("dims",)),
    "repeat_interleave": lambda ns, x, repeats, dim=None: ns.repeat(x, repeats, axis=dim),
    **dict.fromkeys(("moveaxis", "movedim"), _positional("moveaxis", ("source", "destination"))),
    "permute": _permute,
    **dict.fromkeys(("swapaxes", "swapdims", "transpose"), _exchanged),
}


PROTOCOLS.call_torch_function = call_function
