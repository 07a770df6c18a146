"""Reductions of masks over samples, and arithmetic that runs only where a mask holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, is_array, to_numpy
from ensemble._check import array_of, kind_of, message, require_one_library
from ensemble.scalar.ensemble import Ensemble
from ensemble.scalar.namespace import samples_of
from ensemble.scalar.plain_arrays import array_like

__all__ = ["all_samples", "any_sample", "count_samples", "divide", "where"]


def truth_values(m: Any, function: str) -> np.ndarray:
    """The value of each sample, shape (n_samples,)."""
    if isinstance(m, Ensemble):
        samples, most = m.samples, 0
    elif is_array(m) or isinstance(m, list | tuple):
        samples, most = m if is_array(m) else array_of(m, function, "m", "have one entry per sample"), 1
        if isinstance(samples, np.ndarray) and samples.dtype.kind not in "biufc":
            raise TypeError(message(function, "m", "hold bools", f"dtype {samples.dtype}"))
    elif isinstance(m, bool | int | float):
        return np.array([bool(m)])
    else:
        requirement = "be a bool, an array of bools or a bool Ensemble"
        raise TypeError(message(function, "m", requirement, kind_of(m)))
    m = samples if most else m
    if len(m.shape) > most:
        advice = "Reduce its visible axes first, with xp.all or xp.any."
        requirement = "have no axis" if most == 0 else "have one entry per sample"
        raise ValueError(message(function, "m", requirement, f"shape {tuple(m.shape)}", advice))
    return np.atleast_1d(to_numpy(samples)).astype(bool, copy=False)


def all_samples(m: Any) -> bool:
    """Tell whether `m` holds in every sample.

    Parameters
    ----------
    m : bool Ensemble, shape (), or bool array, shape (n_samples,) or (), or bool

    Returns
    -------
    bool

    Raises
    ------
    ValueError
        If `m` has more axes.

    Examples
    --------
    >>> import numpy as np
    >>> x = Ensemble(np.array([1.0, 2.0, -1.0]))
    >>> all_samples(x > 0.0), all_samples(True)
    (False, True)
    """
    return bool(truth_values(m, "all_samples").all())


def any_sample(m: Any) -> bool:
    """Tell whether `m` holds in one sample or more.

    Parameters
    ----------
    m : bool Ensemble, shape (), or bool array, shape (n_samples,) or (), or bool

    Returns
    -------
    bool

    Raises
    ------
    ValueError
        If `m` has more axes.

    Examples
    --------
    >>> import numpy as np
    >>> any_sample(Ensemble(np.array([1.0, 2.0, -1.0])) < 0.0)
    True
    """
    return bool(truth_values(m, "any_sample").any())


def count_samples(m: Any) -> int:
    """Count the samples in which `m` holds; a plain or shared value counts as one sample.

    Parameters
    ----------
    m : bool Ensemble, shape (), or bool array, shape (n_samples,) or (), or bool

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If `m` has more axes.

    Examples
    --------
    >>> import numpy as np
    >>> count_samples(Ensemble(np.array([1.0, 2.0, -1.0])) > 0.0)
    2
    """
    return int(np.count_nonzero(truth_values(m, "count_samples")))


def _is_plain(value: Any) -> bool:
    """Whether `value` is a number, neither array nor ensemble."""
    return not isinstance(value, Ensemble) and not is_array(value)


def _namespace_of(*values: Any) -> Any:
    """The namespace that decides: of an ensemble where there is one, else of an array, else NumPy's."""
    arrays = [v for v in values if isinstance(v, Ensemble)] or [v for v in values if not _is_plain(v)]
    return array_namespace(arrays[0] if arrays else np.empty(0))


def _plain_mask(m: Any, function: str, argument: str) -> np.ndarray:
    """A mask that is no array as one; a text, None or an object is none, although NumPy gives each a truth value."""
    requirement = "be a bool, an array of bools or a bool Ensemble"
    mask = array_of(m, function, argument, requirement)
    if mask.dtype.kind not in "biufc":
        seen = kind_of(m) if mask.ndim == 0 else f"dtype {mask.dtype}"
        raise TypeError(message(function, argument, requirement, seen))
    return mask


def where(m: Any, a: Any, b: Any) -> Any:
    """Choose `a` where `m` holds and `b` elsewhere, entry by entry and sample by sample.

    Parameters
    ----------
    m : bool Ensemble, bool array or bool
    a, b : Ensemble, array or number
        Broadcast against `m`.

    Returns
    -------
    Ensemble, or a plain array where no argument is an ensemble

    Notes
    -----
    Both `a` and `b` are evaluated before the call; use `divide` or `cond` where one of them must not be.

    Examples
    --------
    >>> import numpy as np
    >>> x = Ensemble(np.array([1.0, 2.0, -1.0]))
    >>> where(x > 0.0, x, 0.0).samples
    array([1., 2., 0.])
    """
    xp = _namespace_of(m, a, b)
    for name, value in (("a", a), ("b", b)):
        if value is None or isinstance(value, str | bytes):
            raise TypeError(message("where", name, "be an Ensemble, an array or a number", kind_of(value)))
    if _is_plain(m):
        m = xp.asarray(_plain_mask(m, "where", "m"))
    if _is_plain(a) and _is_plain(b):
        a = xp.asarray(a)
    return xp.where(m, a, b)


def divide(a: Any, b: Any, *, where: Any = True, fill: Any = 0.0) -> Any:
    """Compute ``a / b`` where the mask holds, `fill` elsewhere; a masked division is never carried out.

    Parameters
    ----------
    a, b : Ensemble, array or number
    where : bool Ensemble, bool array or bool
        Broadcast against `a` and `b`.
    fill : Ensemble, array or number
        The result where `where` does not hold.

    Returns
    -------
    Ensemble, or a plain array where no argument is an ensemble

    Notes
    -----
    Where the mask fails the divisor is replaced by 1 first: no warning and no NaN comes of it, in any library, and
    the divisions that count are the ordinary ones, to the bit.

    Examples
    --------
    >>> import numpy as np
    >>> b = Ensemble(np.array([2.0, 0.0, 4.0]))
    >>> divide(1.0, b, where=b != 0.0).samples
    array([0.5 , 0.  , 0.25])
    """
    a, b, where, fill = (np.asarray(v) if isinstance(v, list | tuple) else array_like(v) for v in (a, b, where, fill))
    xp = _namespace_of(a, b, where, fill)
    samples_of("divide", a, b, where, fill)
    given = [v.samples if isinstance(v, Ensemble) else v for v in (a, b, where, fill) if not isinstance(v, np.generic)]
    require_one_library("divide", "operands", *given)
    mask = xp.asarray(_plain_mask(where, "divide", "where")) if _is_plain(where) else where
    arrays, numbers = [v for v in (a, b) if not _is_plain(v)], [v for v in (a, b) if _is_plain(v)]
    dtype = xp.result_type(*(v.dtype for v in arrays), *numbers) if arrays else None

    def masked(value: Any, quiet: int) -> Any:
        # A masked operand may be zero, infinite or NaN; what takes its place divides quietly and is not kept.
        if _is_plain(value):
            value = xp.asarray(value, dtype=dtype)
        return xp.where(mask, value, xp.asarray(quiet, dtype=value.dtype))

    return xp.where(mask, masked(a, 0) / masked(b, 1), fill)
