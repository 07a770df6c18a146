"""Reductions of NumPy's arrays along visible axes, samples last, with the bits of the call on each sample alone.

NumPy reduces samples side by side row by row, a call of its inner loop for a few numbers, and adds them in that order,
where it adds the row of one sample by halves. Here sums have the order of one sample, in one of two ways with the same
bits: small arrays as stacks, large ones by compiled loops. What needs no order is folded to long rows first.

Every function returns None for what it does not serve: NumPy's own call follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._compile.kept_memory import empty
from ensemble.scalar.plain_arrays import LARGE_ROWS, compiled_rows, stack_of

__all__ = ["norm", "placed", "products", "reduced", "rows_along", "running", "sums", "sums_between",
    "with_row",
]  # fmt: skip

FLOATS = frozenset("fd")
SUMMED = frozenset("fdFD")

FOLDED = 1600
"""Numbers of the rows to which arrays are folded: they stay in the first-level cache."""

SMALL = 4096
"""Numbers below which an array is not folded."""


def rows_along(samples: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, ...]] | None:
    """A view of shape (n_rows, n, width) whose second axis is `axes`, and the shape without them.

    The last axis holds what lies behind them. None where they are not neighbours, or the memory is in another order.
    """
    if not axes or not samples.flags.c_contiguous or not samples.size or len({*axes}) < len(axes):
        return None
    shape = samples.shape
    low, high = min(axes), max(axes) + 1
    if high - low != len(axes) and any(shape[k] > 1 for k in range(low, high) if k not in axes):
        return None
    n = math.prod(shape[low:high])
    return samples.reshape(-1, n, math.prod(shape[high:])), tuple(m for k, m in enumerate(shape) if k not in axes)


def with_row(ufunc: Any, samples: np.ndarray, row: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Return ``ufunc(samples, row)`` for a row of one number a sample, by calls on several rows of `samples` each."""
    width, most = row.shape[-1], FOLDED // max(row.shape[-1], 1)
    n = samples.size // width if width else 0
    if most < 2 or n < 4 * most or samples.shape[-1] != width or not samples.flags.c_contiguous:
        return np.asarray(ufunc(samples, row) if out is None else ufunc(samples, row, out=out))
    if out is None:
        out = np.empty(samples.shape, ufunc(samples.reshape(-1)[:1], row[:1]).dtype)
    rows, results, whole = samples.reshape(n, width), out.reshape(n, width), n - n % most
    long = (whole // most, most * width)
    ufunc(rows[:whole].reshape(long), np.tile(row, most), out=results[:whole].reshape(long))
    if whole < n:
        ufunc(rows[whole:], row, out=results[whole:])
    return out


# -- sums --------------------------------------------------------------------------------------------------------------


def sums(kind: str, rows: np.ndarray, other: np.ndarray | None = None) -> np.ndarray:
    """The sums over the second axis of `rows`, of its products with `other` ("xy") or of its squares ("xx").

    Parameters
    ----------
    kind : {"x", "xy", "xx"}
    rows : array, shape (n_rows, n, n_samples), in C order, of floats; complex ones for "x" alone
    other : array, shape (n_rows, n, n_samples) or (1, n, n_samples), of the same type, in C order
    """
    n_rows, _, width = rows.shape
    if rows.size >= LARGE_ROWS and compiled_rows(rows.size):
        from ensemble._kernels.arrays.sums import sum_rows

        return sum_rows(kind, rows, other, np.empty((n_rows, width), rows.dtype))
    terms = rows if kind == "x" else rows * (rows if kind == "xx" else other)
    total: np.ndarray = np.add.reduce(stack_of(terms), axis=-1)
    return total.T


def _summed(samples: np.ndarray, axes: tuple[int, ...], kind: str = "x") -> tuple[np.ndarray, tuple[int, ...]] | None:
    """The sums along the last visible axes, shape (n_rows, n_samples), and the shape of the result."""
    char = samples.dtype.char
    if char not in SUMMED or samples.shape[-1] == 1 or (kind != "x" and char not in FLOATS):
        return None
    found = rows_along(samples, axes)
    if found is None or found[0].shape[2] != samples.shape[-1]:
        return None
    return sums(kind, found[0]), found[1]


def _sum(samples: np.ndarray, axes: tuple[int, ...]) -> np.ndarray | None:
    found = _summed(samples, axes)
    return None if found is None else found[0].reshape(found[1])


def _divided(total: np.ndarray, count: Any) -> np.ndarray:
    """As in NumPy's `mean`: quotients of float64 for float32, rounded."""
    np.true_divide(total, np.intp(count) if type(count) is int else count, out=total, casting="unsafe")
    return total


def _mean(samples: np.ndarray, axes: tuple[int, ...]) -> np.ndarray | None:
    found = _summed(samples, axes)
    if found is None:
        return None
    return _divided(np.ascontiguousarray(found[0]), samples.size // found[0].size).reshape(found[1])


def variance(samples: np.ndarray, axes: tuple[int, ...], ddof: float = 0) -> np.ndarray | None:
    """The mean of the squared distances from the mean, as NumPy's `var` computes it."""
    found = rows_along(samples, axes) if samples.dtype.char in FLOATS and samples.shape[-1] > 1 else None
    if found is None or found[0].shape[2] != samples.shape[-1]:
        return None
    rows, shape = found
    n = rows.shape[1]
    if n <= ddof or type(ddof) not in (int, float):
        return None
    mean = _divided(np.ascontiguousarray(sums("x", rows)), n)
    distances = empty(rows.shape, rows.dtype)
    if len(rows) == 1:
        with_row(np.subtract, rows[0], mean[0], distances[0])
    else:
        np.subtract(rows, mean[:, None], out=distances)
    squares = np.ascontiguousarray(sums("xx", distances))
    return _divided(squares, n - ddof).reshape(shape)


def _deviation(samples: np.ndarray, axes: tuple[int, ...], ddof: float = 0) -> np.ndarray | None:
    squares = variance(samples, axes, ddof)
    return None if squares is None else np.sqrt(squares, out=squares)


def sums_between(samples: np.ndarray, places: np.ndarray) -> np.ndarray | None:
    """The sums of a vector from each of few places to the next, as `np.add.reduceat` has them."""
    few = places.ndim == 1 and places.dtype.kind == "i" and 0 < 256 * places.size < samples.shape[0]
    if samples.ndim != 2 or samples.dtype.char not in FLOATS or samples.shape[-1] == 1 or not few:
        return None
    n, found = samples.shape[0], np.empty((places.size, samples.shape[-1]), samples.dtype)
    if not samples.flags.c_contiguous or places.min() < 0 or places.max() >= n:
        return None
    ends = [*places.tolist()[1:], n]
    for k, (begin, end) in enumerate(zip(places.tolist(), ends, strict=True)):
        if end > begin + 1:
            np.add(samples[begin], sums("x", samples[None, begin + 1 : end])[0], out=found[k])
        else:
            found[k] = samples[begin]
    return None if (found == 0.0).any() else found  # the sign of zero is NumPy's matter


def norm(samples: np.ndarray, axes: tuple[int, ...]) -> np.ndarray | None:
    """The square root of the sum of squares."""
    found = _summed(samples, axes, "xx")
    return None if found is None else np.sqrt(found[0]).reshape(found[1])


def products(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """The sums of products along the last visible axis; `b` of the shape of `a`, or a vector for all its rows.

    Of the two the number of samples is one, or the same.
    """
    if a.dtype.char not in FLOATS or a.dtype != b.dtype or a.ndim < 2 or not a.size:
        return None
    n_samples = a.shape[-1]
    if n_samples == 1 or b.shape[-1] not in (1, n_samples) or a.shape[-2] != b.shape[-2]:
        return None
    if b.shape[:-1] != a.shape[:-1] and b.ndim != 2:
        return None
    if not a.flags.c_contiguous:
        return None
    if b.shape[-1] == 1:
        if 8 * b.size > a.size:  # to copy it for each sample would cost what is to be saved
            return None
        b = np.broadcast_to(b, (*b.shape[:-1], n_samples))
    rows = a.reshape(-1, *a.shape[-2:])
    other = np.ascontiguousarray(b).reshape(-1, *b.shape[-2:])
    return sums("xy", rows, other).reshape(*a.shape[:-2], n_samples)


# -- extremes and truth values -----------------------------------------------------------------------------------------


def _folded(ufunc: Any, rows: np.ndarray) -> np.ndarray:
    """``ufunc.reduce(rows, axis=1)`` of an operation without order: neighbouring rows are put together to long ones."""
    n_rows, n, width = rows.shape
    most = min(FOLDED // width, n // 4)
    if n_rows > 1:
        while most > 1 and n % most:
            most -= 1
    if most < 2:
        return np.asarray(ufunc.reduce(rows, axis=1))
    whole = n - n % most
    parts = ufunc.reduce(rows[:, :whole].reshape(n_rows, whole // most, most * width), axis=1)
    result: np.ndarray = ufunc.reduce(parts.reshape(n_rows, most, width), axis=1)
    if whole < n:
        result = ufunc(result, ufunc.reduce(rows[:, whole:], axis=1))
    return result


def _foldable(samples: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, ...]] | None:
    if samples.size < SMALL or samples.dtype.kind not in "biuf" or samples.shape[-1] == 1:
        return None
    found = rows_along(samples, axes)
    return None if found is None or 2 * found[0].shape[2] > FOLDED else found


def _by_folds(ufunc: Any) -> Callable[..., np.ndarray | None]:
    def reduce(samples: np.ndarray, axes: tuple[int, ...]) -> np.ndarray | None:
        found = _foldable(samples, axes)
        return None if found is None else _folded(ufunc, found[0]).reshape(found[1])

    return reduce


def _without_nan(ufunc: Any) -> Callable[..., np.ndarray | None]:
    """`nanmax` and `nanmin` of rows of which none is NaN alone."""

    folded = _by_folds(ufunc)

    def reduce(samples: np.ndarray, axes: tuple[int, ...]) -> np.ndarray | None:
        result = folded(samples, axes)
        return None if result is None or (result.dtype.kind == "f" and np.isnan(result).any()) else result

    return reduce


def _range(samples: np.ndarray, axes: tuple[int, ...]) -> np.ndarray | None:
    found = _foldable(samples, axes)
    if found is None or samples.dtype.kind == "b":
        return None
    width: np.ndarray = np.subtract(_folded(np.maximum, found[0]), _folded(np.minimum, found[0]))
    return width.reshape(found[1])


PIECE = 1 << 15
"""Numbers after which it is looked whether all truth values are decided."""


def _truth(either: bool) -> Callable[..., np.ndarray | None]:
    """`any` and `all`: pieces of rows until every result is decided."""
    ufunc = np.logical_or if either else np.logical_and

    def reduce(samples: np.ndarray, axes: tuple[int, ...]) -> np.ndarray | None:
        found = _foldable(samples, axes)
        if found is None:
            return None
        rows, shape = found
        n_rows, n, width = rows.shape
        if n_rows > 1:
            return _folded(ufunc, _not_zero(rows)).reshape(shape)
        step, result = max(1, PIECE // width), np.full((1, width), not either)
        for k in range(0, n, step):
            result = ufunc(result, _folded(ufunc, _not_zero(rows[:, k : k + step])))
            if result.all() if either else not result.any():
                break
        return result.reshape(shape)

    return reduce


def _not_zero(rows: np.ndarray) -> np.ndarray:
    return rows if rows.dtype.kind == "b" else np.not_equal(rows, 0)


def _count(samples: np.ndarray, axes: tuple[int, ...]) -> np.ndarray | None:
    """How many numbers are not zero: up to 255 of them in bytes, whose counts are added up."""
    found = _foldable(samples, axes)
    if found is None:
        return None
    rows, shape = found
    n_rows, n, width = rows.shape
    counted, parts = _not_zero(rows).view(np.uint8), -(-n // 255)
    if n_rows > 1 and n % parts:
        return None
    whole = n - n % parts
    total: np.ndarray
    total = np.add.reduce(counted[:, :whole].reshape(n_rows, whole // parts, parts * width), axis=1, dtype=np.uint8)
    total = np.add.reduce(total.reshape(n_rows, parts, width), axis=1, dtype=np.intp)
    if whole < n:
        total += np.add.reduce(counted[:, whole:], axis=1, dtype=np.intp)
    return total.reshape(shape)


REDUCTIONS: dict[str, Callable[..., np.ndarray | None]] = {
    "sum": _sum,
    "mean": _mean,
    "var": variance,
    "std": _deviation,
    "max": _by_folds(np.maximum),
    "min": _by_folds(np.minimum),
    "nanmax": _without_nan(np.fmax),
    "nanmin": _without_nan(np.fmin),
    "ptp": _range,
    "any": _truth(True),
    "all": _truth(False),
    "count_nonzero": _count,
}


def reduced(name: str, samples: Any, axes: tuple[int, ...], keepdims: Any = False, **options: Any) -> Any:
    """The reduction of this name along visible axes, None for one that is not served."""
    reduction = REDUCTIONS.get(name)
    if reduction is None or type(samples) is not np.ndarray or not samples.flags.c_contiguous:
        return None
    result = reduction(samples, axes, **options)
    if result is None or keepdims is np._NoValue or not keepdims:
        return result
    return result.reshape(_kept(samples, axes))


def _kept(samples: np.ndarray, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if k in axes else n for k, n in enumerate(samples.shape))


# -- places and running sums -------------------------------------------------------------------------------------------


def placed(name: str, samples: Any, axes: tuple[int, ...], keepdims: bool = False) -> np.ndarray | None:
    """Where the largest (`argmax`) or smallest (`argmin`) number first stands along a visible axis."""
    if type(samples) is not np.ndarray or samples.size < LARGE_ROWS or samples.dtype.char not in FLOATS:
        return None
    found = rows_along(samples, axes) if name in ("argmax", "argmin") else None
    if found is None or not 8 <= found[0].shape[2] < FOLDED or not compiled_rows(samples.size):
        return None
    from ensemble._kernels.arrays.scans import extreme_places

    rows, shape = found
    result = extreme_places(rows, np.empty((rows.shape[0], rows.shape[2]), np.int64), name == "argmax")
    return result.reshape(_kept(samples, axes) if keepdims else shape)


def running(samples: np.ndarray, axis: int, product: bool) -> np.ndarray | None:
    """The running sums, or products, along a visible axis."""
    if samples.size < LARGE_ROWS or samples.dtype.char not in FLOATS:
        return None
    found = rows_along(samples, (axis,))
    if found is None or not compiled_rows(samples.size):
        return None
    from ensemble._kernels.arrays.scans import running as run

    return run(found[0], empty(found[0].shape, samples.dtype), product).reshape(samples.shape)
