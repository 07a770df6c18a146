"""PyTorch's own protocol: ``tensor * x``, ``torch.sin(x)`` give ensembles or raise an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ensemble._check import message
from ensemble._compile.trace.operations import ARRAY_API_NAMES
from ensemble._typing import Array
from ensemble.scalar.ensemble import Ensemble, shared
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
    if (name.endswith("_") and not name.endswith("__")) or name == "__setitem__" or "out" in options:
        advice = "A plain tensor cannot hold samples; make an Ensemble of it with en.shared(tensor)."
        raise TypeError(message(full_name, "the tensor written to", "be an Ensemble", "a Tensor", advice))
    ns = namespace_of(first, None)
    if not type(first.samples).__module__.startswith("torch"):
        seen = f"an ensemble of {type(first.samples).__module__}"
        raise TypeError(message(full_name, "operands", "come from one array library", seen, "Convert first."))
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


def _extreme(standard: str) -> Callable[..., Any]:
    def reduce(ns: EnsembleNamespace, x: Array) -> Any:
        return getattr(ns, standard)(x)

    return reduce


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


def _norm(ns: EnsembleNamespace, x: Array) -> Any:
    return ns.linalg.vector_norm(x)


def _clamp(ns: EnsembleNamespace, x: Array, min: Any = None, max: Any = None) -> Any:
    return ns.clip(x, min, max)


def _reshape(ns: EnsembleNamespace, x: Array, *shape: Any) -> Any:
    return ns.reshape(x, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)


def _add(standard: str) -> Callable[..., Any]:
    def add(ns: EnsembleNamespace, a: Any, b: Any, *, alpha: Any = 1) -> Any:
        return getattr(ns, standard)(a, b if alpha == 1 else b * alpha)

    return add


def _zeros_like(ns: EnsembleNamespace, x: Array) -> Any:
    return ns.zeros_like(x)


def _where(ns: EnsembleNamespace, condition: Array, *choices: Any) -> Any:
    return ns.where(condition, *choices) if choices else ns.nonzero(condition)


SPECIAL: dict[str, Callable[..., Any]] = {
    "where": _where,
    **{name: _reduction(name) for name in ("sum", "prod", "mean", "all", "any")},
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "std": _spread("std"),
    "var": _spread("var"),
    **{name: _extreme(name) for name in ("max", "min", "argmax", "argmin")},
    **{name: _joined("concat") for name in ("cat", "concat", "concatenate")},
    "stack": _joined("stack"),
    "cumsum": _cumulative("cumulative_sum"),
    "cumprod": _cumulative("cumulative_prod"),
    **dict.fromkeys(("mm", "mv", "dot", "__matmul__"), _product),
    "__getitem__": _getitem,
    "equal": _equal,
    "linalg_norm": _norm,
    "linalg_vector_norm": _norm,
    "clamp": _clamp,
    "clip": _clamp,
    "reshape": _reshape,
    "add": _add("add"),
    "sub": _add("subtract"),
    "zeros_like": _zeros_like,
}


PROTOCOLS.call_torch_function = call_function
