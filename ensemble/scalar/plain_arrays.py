"""Arrays of NumPy's subclasses as plain ones, or refused."""

from __future__ import annotations

import array
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble._backend import is_array
from ensemble._check import kind_of, message
from ensemble._compile.kept_memory import empty

__all__ = [
    "LARGE_ROWS", "LARGE_STACK", "NUMBERS", "array_like", "compared_with", "compiled_rows", "masked_as_nan",
    "never_equals", "plain_array", "plain_arrays", "samples_behind", "samples_in_front", "samples_of_stack", "stack_of",
    "stack_of_rows",
]  # fmt: skip

NUMBERS = frozenset((bool, int, float, complex))
"""Python's own numbers keep their type: the array's dtype decides, not theirs."""


def plain_array(value: Any, function: str, argument: str) -> Any:
    """`value`; an array of a subclass of NumPy's as a plain one over the same memory.

    Masked arrays and matrices are refused: a mask would be lost, and products of matrices are others.
    """
    if not isinstance(value, np.ndarray) or type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray | np.matrix):
        masked = isinstance(value, np.ma.MaskedArray)
        advice = "Use np.ma.filled(x, np.nan), or en.where with the mask." if masked else "Use np.asarray(x)."
        raise TypeError(message(function, argument, "be arrays or numbers", kind_of(value), advice))
    return np.asarray(value)


def masked_as_nan(value: Any) -> Any:
    """A masked array of real numbers with NaN where it is masked, as floats; other values pass as they are.

    What stands below a mask is no data: readers of files leave fill values of any size there.
    """
    if not isinstance(value, np.ma.MaskedArray):
        return value
    if np.ma.getmask(value) is np.ma.nomask:
        return value.data
    if value.dtype.kind not in "biufc":
        return value  # refused by its dtype
    return np.ma.filled(value.astype(value.dtype if value.dtype.kind in "fc" else np.float64), np.nan)


def array_like(value: Any) -> Any:
    """The array that NumPy makes of a series, a range or another array-like, whose axes are visible ones.

    Numbers, arrays of any library, ensembles and texts pass as they are. A quantity with a unit is refused by its own
    conversion to a number.
    """
    if isinstance(value, bool | int | float | complex | np.generic | np.ndarray | str | bytes | None) or is_array(
        value
    ):
        return value
    if hasattr(type(value), "take_samples"):
        return value
    made = np.asarray(value)
    if made.ndim:
        return made
    if getattr(type(value), "__array_ufunc__", None) is None:
        return value
    return complex(value) if made.dtype.kind == "c" else float(value)


def compared_with(samples: Any, other: Any) -> Any:
    """The array that NumPy compares with for a range, a memory view or another sequence of numbers, or None."""
    numeric = type(samples) is np.ndarray and getattr(type(other), "__array_ufunc__", None) is None
    if not numeric or not (hasattr(other, "__array__") or isinstance(other, Sequence | memoryview | array.array)):
        return None
    value = np.asarray(other)
    return value if value.ndim and value.dtype.kind in "biufc" else None


def never_equals(other: Any) -> bool:
    """Whether no number equals `other`: None and texts."""
    return other is None or isinstance(other, str | bytes)


def plain_arrays(tree: Any, function: str) -> Any:
    """The arguments `tree` of NumPy's `function` with plain arrays alone."""
    if type(tree) is dict:
        return {key: plain_arrays(value, function) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(plain_arrays(value, function) for value in tree)
    return plain_array(tree, f"np.{function}", "operands")


def samples_in_front(samples: np.ndarray) -> np.ndarray:
    """A view of an array of NumPy with the sample axis first; a fraction of the time of `moveaxis`."""
    n = samples.ndim
    return samples.T if n < 3 else samples.transpose(n - 1, *range(n - 1))


def samples_behind(rows: np.ndarray) -> np.ndarray:
    """A view with the first axis, of samples, behind the others."""
    return rows.T if rows.ndim < 3 else rows.transpose(*range(1, rows.ndim), 0)


def stack_of(samples: np.ndarray) -> np.ndarray:
    """A copy in the order of rows with the sample axis first, ``(n_samples, *shape)``."""
    *shape, n_samples = samples.shape
    if not samples.flags.c_contiguous or samples.size < LARGE_STACK:
        return np.array(samples_in_front(samples), order="C")
    flat, stack = samples.reshape(-1, n_samples), empty((n_samples, *shape), samples.dtype)
    rows = stack.reshape(n_samples, -1)
    if _transposed(flat, rows):
        return stack
    for k in range(0, flat.shape[0], ENTRIES):
        rows[:, k : k + ENTRIES] = flat[k : k + ENTRIES].T
    return stack


def samples_of_stack(stack: np.ndarray) -> np.ndarray:
    """A copy in the order of rows with the first axis, of samples, last: the inverse of `stack_of`."""
    n_samples, *shape = stack.shape
    if not stack.flags.c_contiguous or stack.size < LARGE_STACK or stack.ndim < 2:
        return samples_behind(stack).copy(order="C")
    rows, samples = stack.reshape(n_samples, -1), empty((*shape, n_samples), stack.dtype)
    flat = samples.reshape(-1, n_samples)
    if _transposed(rows, flat):
        return samples
    for k in range(0, flat.shape[0], ENTRIES):
        flat[k : k + ENTRIES] = rows[:, k : k + ENTRIES].T
    return samples


def stack_of_rows(rows: list[np.ndarray]) -> np.ndarray:
    """A copy of arrays of one shape and type, with axes, one after the other; large ones in memory used before."""
    first = rows[0]
    if first.size * len(rows) < LARGE_STACK:
        return np.concatenate(rows).reshape(len(rows), *first.shape)
    stack = empty((len(rows), *first.shape), first.dtype)
    np.concatenate(rows, out=stack.reshape(-1, *first.shape[1:]))
    return stack


def _transposed(source: np.ndarray, target: np.ndarray) -> bool:
    """Whether a large matrix was transposed by compiled code."""
    if source.itemsize not in (4, 8) or min(source.shape) < 8 or not compiled_rows(source.size):
        return False
    from ensemble._kernels.arrays.transposes import transpose

    transpose(source, target)
    return True


_waiting = [1 << 25]
"""Numbers that may still go through NumPy before Numba is imported for them."""


def compiled_rows(n_numbers: int) -> bool:
    """Whether compiled loops are to be used for so many numbers, where they only save time.

    Numba's import takes 0.2 s. It waits until as much was lost without it, or until something else imports it: the
    results have the same bits.
    """
    if "numba" in sys.modules:
        return True
    _waiting[0] -= n_numbers
    return _waiting[0] < 0


LARGE_STACK = 1 << 15
"""Numbers from which a stack is made by runs of entries."""

LARGE_ROWS = 1 << 13
"""Numbers from which compiled loops over rows are faster than NumPy's calls (`benchmarks numpy-functions`)."""

ENTRIES = 128
"""Entries of a run: its cache lines stay in the first-level cache, which is a fourth of the time of one pass."""
