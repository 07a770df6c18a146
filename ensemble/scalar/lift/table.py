"""The one table of names: which rule lifts each name of the Array API over the sample axis."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from ensemble.scalar.lift import creation, elementwise, fft, linalg, reductions, search, shapes
from ensemble.scalar.lift.special import special
from ensemble.scalar.namespace import CONSTANTS, DTYPES, EnsembleNamespace, Rule, bound, constant
from ensemble.scalar.protocol_table import PROTOCOLS

UNARY = (
    "abs acos acosh asin asinh atan atanh bitwise_invert ceil cos cosh exp expm1 floor isfinite isinf isnan log log10 "
    "log1p log2 logical_not negative positive reciprocal round sign signbit sin sinh sqrt square tan tanh trunc"
)

BINARY = (
    "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal "
    "floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum "
    "minimum multiply nextafter not_equal pow remainder subtract"
)


def every(names: str | Iterable[str], rule: Rule) -> dict[str, Rule]:
    """The same rule for all `names`."""
    return dict.fromkeys(names.split() if isinstance(names, str) else names, rule)


def written(functions: SimpleNamespace | Any, names: str) -> dict[str, Rule]:
    """The rules of functions that are written out under their own names."""
    return {name: bound(getattr(functions, name)) for name in names.split()}


def extension(table: dict[str, Rule]) -> Rule:
    """A namespace inside the namespace."""

    def rule(ns: EnsembleNamespace, name: str) -> EnsembleNamespace:
        return EnsembleNamespace(getattr(ns.base, name), ns.n_samples, table, f"{ns.__name__}.{name}", ns)

    return rule


LINALG: dict[str, Rule] = {
    **every("cholesky det inv matrix_power pinv svdvals eigvalsh eigvals", linalg.one_result),
    **every("eig eigh qr slogdet svd", linalg.several_results),
    **written(linalg, "cross diagonal matmul matrix_norm matrix_rank outer solve tensordot trace vecdot vector_norm"),
    **written(shapes, "matrix_transpose"),
}

FFT: dict[str, Rule] = {
    **every("fft ifft rfft irfft hfft ihfft", fft.along_one_axis),
    **every("fftn ifftn rfftn irfftn", fft.along_axes),
    **every("fftshift ifftshift", fft.shifted),
    **every("fftfreq rfftfreq", fft.frequencies),
}

TABLE: dict[str, Rule] = {
    **every((*CONSTANTS, *DTYPES), constant),
    **every(UNARY, elementwise.unary),
    **every("conj imag real", elementwise.part),
    **every(BINARY, elementwise.binary),
    **written(elementwise, "clip where"),
    **every("all any count_nonzero max mean min", reductions.reduction()),
    **every("sum prod", reductions.reduction("dtype")),
    **every("std var", reductions.reduction("correction")),
    **every("argmax argmin", reductions.position),
    **every("cumulative_prod cumulative_sum", reductions.cumulative),
    **written(
        shapes,
        "broadcast_arrays broadcast_shapes broadcast_to concat expand_dims flip matrix_transpose moveaxis permute_dims "
        "repeat reshape roll squeeze stack tile unstack",
    ),
    **every("empty ones zeros", creation.allocation),
    **every("empty_like ones_like zeros_like", creation.allocation_like),
    **every("tril triu", creation.triangle),
    **written(
        creation,
        "arange asarray astype can_cast eye finfo from_dlpack full full_like iinfo isdtype linspace meshgrid "
        "result_type",
    ),
    **every("argsort sort", search.ordering),
    **written(
        search,
        "diff isin nonzero searchsorted take take_along_axis unique_all unique_counts unique_inverse unique_values",
    ),
    **written(linalg, "matmul tensordot vecdot"),
    "linalg": extension(LINALG),
    "fft": extension(FFT),
    "special": special,
    "__array_namespace_info__": bound(creation.namespace_info),
}


PROTOCOLS.lifted_names = TABLE
