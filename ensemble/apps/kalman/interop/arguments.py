"""Arguments as arrays of real floats: nested numbers, masked arrays, tables of pandas."""

from __future__ import annotations

import decimal
import numbers
import reprlib
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, is_array
from ensemble._check import kind_of, message, require
from ensemble._typing import Array
from ensemble.scalar import Ensemble
from ensemble.scalar.plain_arrays import masked_as_nan

__all__ = ["index_of", "is_pandas", "owned", "real_array", "unmasked", "with_gaps_as_nan"]


def is_pandas(value: Any) -> bool:
    """Whether `value` is a Series or DataFrame; pandas itself is not imported."""
    return type(value).__module__.split(".")[0] == "pandas" and hasattr(value, "to_numpy") and hasattr(value, "index")


def index_of(y: Any) -> Any:
    """The index of a pandas table; None for anything else."""
    return y.index if is_pandas(y) else None


def with_gaps_as_nan(y: Any, function: str) -> Any:
    """Observations with NaN where a masked array masks them, or where pandas has NA; a Series becomes one column."""
    if is_pandas(y):
        _check_columns(y, function)
        try:
            values = y.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            kinds = ", ".join(sorted({str(kind) for kind in np.atleast_1d(np.asarray(y.dtypes, dtype=object))}))
            seen = f"{kind_of(y)} of {kinds}"
            raise TypeError(message(function, "y", "hold numbers", seen, "Convert its columns with astype.")) from None
        return values[:, None] if values.ndim == 1 else values
    return masked_as_nan(y)


def _check_columns(y: Any, function: str) -> None:
    """Refuse columns of dates, durations, complex numbers and text, which pandas would convert, by name."""
    columns = [(y.name, y)] if len(y.shape) == 1 else [(name, y.iloc[:, i]) for i, name in enumerate(y.columns)]
    odd = [f"column {name!r} of {found}" for name, column in columns if (found := _odd_kind(column))]
    if odd:
        seen = f"{kind_of(y)} with " + ", ".join(odd[:6]) + (f", ... ({len(odd)} in all)" if len(odd) > 6 else "")
        raise TypeError(message(function, "y", "hold numbers", seen, "Convert its columns with astype."))


def _odd_kind(column: Any) -> str | None:
    """The type of a column that does not hold real numbers; None where it does."""
    dtype = getattr(column.dtype, "categories", column).dtype
    if getattr(dtype, "kind", "O") in "biuf":
        return None
    if getattr(dtype, "kind", "O") != "O" or str(dtype) != "object":
        return str(column.dtype)
    values = column.to_numpy(dtype=object)
    odd = {type(v).__name__ for v in values if not (v is None or isinstance(v, (numbers.Real, decimal.Decimal))
                                                     or type(v).__name__ == "NAType")}  # fmt: skip
    return f"object ({', '.join(sorted(odd))})" if odd else None


def unmasked(a: Any, name: str, function: str) -> Any:
    """`a` without a mask that masks nothing; masked entries are refused."""
    if not isinstance(a, np.ma.MaskedArray):
        return a
    n = int(np.sum(np.ma.getmaskarray(a)))
    require(n == 0, function, name, "have no masked entries", f"{n} of them", "Only observations may be missing.")
    return a.data


def owned(a: Array) -> Array:
    """A copy of `a`: what is kept must not be what the caller may write to."""
    if type(a) is np.ndarray:
        return np.array(a)
    if isinstance(a, Ensemble):
        values = a.samples
        if type(values) is np.ndarray:
            return Ensemble(np.array(values), a.sample_set)
        return Ensemble(array_namespace(values).asarray(values, copy=True), a.sample_set)
    return array_namespace(a).asarray(a, copy=True)


def real_array(value: Any, name: str, function: str = "LinearGaussianModel", as_is: bool = False) -> Array:
    """`value` as an array of real floats; with `as_is`, of any real numbers or bools."""
    if type(value) is np.ndarray and value.dtype.kind == "f":  # the usual case
        return value
    given = value = unmasked(value, name, function)
    if not (is_array(value) or isinstance(value, Ensemble)) or isinstance(value, np.generic):
        try:
            value = np.asarray(value)
        except ValueError:
            value = np.empty((), object)
        if value.dtype.kind not in "biufc":
            raise TypeError(message(function, name, "be an array, an Ensemble or nested numbers", reprlib.repr(given)))
    xp = array_namespace(value)
    if not xp.isdtype(value.dtype, ("bool", "integral", "real floating")):
        raise TypeError(message(function, name, "be real numbers", f"dtype {value.dtype}"))
    if not (as_is or xp.isdtype(value.dtype, "real floating")):
        return xp.astype(value, xp.float64)
    return value
