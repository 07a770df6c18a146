"""Powers of samples: the routine, and so the bits, that NumPy takes for one sample alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble.scalar.divergence.policy import as_scalars
from ensemble.scalar.plain_arrays import NUMBERS, samples_of_stack, stack_of

__all__ = ["array_power", "in_place_power", "power"]

SHORTENED = (2, 0.5, -1)
"""Exponents for which NumPy has a shortcut of other rounding."""


def power(a: Any, b: Any) -> Any:
    """``a ** b`` on samples, to the bit of each sample's own.

    NumPy's scalars have a routine of their own, which `float_power` shares.
    """
    if type(b) is not np.ndarray:
        scalars = type(b) in NUMBERS and as_scalars(a)
    else:
        numbers = type(a) in NUMBERS or isinstance(a, np.generic) or (type(a) is np.ndarray and a.ndim == 1)
        scalars = numbers and as_scalars(b)
    dtype = np.result_type(a, b) if scalars else None
    if dtype == np.float64:
        return np.float_power(a, b)
    if dtype is not None and dtype.kind == "f" and type(a) is np.ndarray:  # `float_power` would give float64
        exponents = b if type(b) is np.ndarray else [b]
        n_samples = max(a.size, len(exponents))
        pairs = [(a[s % a.size], exponents[s % len(exponents)]) for s in range(n_samples)]
        return np.array([base**exponent for base, exponent in pairs])
    return array_power(a, b)


def array_power(a: Any, b: Any) -> Any:
    """``np.power(a, b)`` on samples, to the bit of each sample's own.

    NumPy squares, takes the root or inverts where one exponent serves a whole loop. Samples in one array make other
    loops than one sample does.
    """
    if type(a) is not np.ndarray or type(b) is not np.ndarray or not _is_shortened(a, b):
        return a**b
    if b.ndim == 1:
        return _by_exponents(a, b)
    n_samples = max(a.shape[-1], b.shape[-1])
    if not (a.flags.c_contiguous and b.flags.c_contiguous):
        return np.stack([_sample_of(a, s) ** _sample_of(b, s) for s in range(n_samples)], axis=-1)
    left, right = (stack_of(x) for x in (a, b))
    rows = [left[s % len(left)] ** right[s % len(right)] for s in range(n_samples)]
    return samples_of_stack(np.stack(rows))


def _by_exponents(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """One exponent for each sample, or one for all: the samples with a shortcut together, and the others."""
    if b.size == 1:
        return np.asarray(a ** b.reshape(()))
    whole = np.broadcast_to(a, (*a.shape[:-1], b.size)) if a.shape[-1] == 1 else a
    for exponent in SHORTENED:
        if np.all(b == exponent):
            return np.asarray(whole ** b[:1].reshape(()))
    result: np.ndarray = whole**b
    for exponent in SHORTENED:
        chosen = b == exponent
        if chosen.any():
            result[..., chosen] = whole[..., chosen] ** b[chosen][:1].reshape(())
    return result


def _is_shortened(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether some exponent is one for which NumPy has a shortcut of other rounding."""
    if a.shape[-1] != b.shape[-1] and 1 not in (a.shape[-1], b.shape[-1]):
        return False
    if (a.dtype if a.dtype == b.dtype else np.result_type(a, b)).kind not in "fc":
        return False
    if b.size == 1:
        return b.item() in SHORTENED
    return any(np.any(b == exponent) for exponent in SHORTENED)


def _sample_of(samples: np.ndarray, s: int) -> np.ndarray:
    return samples[..., 0 if samples.shape[-1] == 1 else s].copy(order="K")


def in_place_power(a: Any, b: Any) -> Any:
    if type(a) is not np.ndarray or type(b) is not np.ndarray or not _is_shortened(a, b):
        a **= b
        return a
    result = power(a, b)
    if result.shape != a.shape:
        a **= b  # raises the error with the reason
        return a
    np.copyto(a, result, casting="same_kind")
    return a
