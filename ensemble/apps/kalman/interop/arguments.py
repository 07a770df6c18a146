"""Arguments as arrays of real floats: nested numbers, masked arrays, tables of pandas."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, is_array
from ensemble._check import kind_of, message, require
from ensemble._typing import Array
from ensemble.scalar import Ensemble

__all__ = ["index_of", "is_pandas", "real_array", "unmasked", "with_gaps_as_nan"]


def is_pandas(value: Any) -> bool:
    """Whether `value` is a Series or DataFrame; pandas itself is not imported."""
    return type(value).__module__.split(".")[0] == "pandas" and hasattr(value, "to_numpy") and hasattr(value, "index")


def index_of(y: Any) -> Any:
    """The index of a pandas table; None for anything else."""
    return y.index if is_pandas(y) else None


def with_gaps_as_nan(y: Any, function: str) -> Any:
    """Observations with NaN where a masked array masks them, or where pandas has NA; a Series becomes one column."""
    if is_pandas(y):
        try:
            values = y.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            kinds = ", ".join(sorted({str(kind) for kind in np.atleast_1d(np.asarray(y.dtypes, dtype=object))}))
            seen = f"{kind_of(y)} of {kinds}"
            raise TypeError(message(function, "y", "hold numbers", seen, "Convert its columns with astype.")) from None
        return values[:, None] if values.ndim == 1 else values
    if not isinstance(y, np.ma.MaskedArray):
        return y
    if np.ma.getmask(y) is np.ma.nomask:
        return y.data
    if y.dtype.kind not in "biuf":
        return y  # refused by its dtype
    return np.ma.filled(y.astype(y.dtype if y.dtype.kind == "f" else np.float64), np.nan)


def unmasked(a: Any, name: str, function: str) -> Any:
    """`a` without a mask that masks nothing; masked entries are refused."""
    if not isinstance(a, np.ma.MaskedArray):
        return a
    n = int(np.sum(np.ma.getmaskarray(a)))
    require(n == 0, function, name, "have no masked entries", f"{n} of them", "Only observations may be missing.")
    return a.data


def real_array(value: Any, name: str, function: str = "LinearGaussianModel", as_is: bool = False) -> Array:
    """`value` as an array of real floats; with `as_is`, of any real numbers or bools."""
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
