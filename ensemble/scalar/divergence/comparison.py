"""``run(..., check=k)``: some samples run alone, and what the run gave them compared with that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble._backend import is_array, to_numpy
from ensemble._check import message
from ensemble._containers import Attribute, parts_of
from ensemble.scalar.divergence.run_result import IN_ROUNDING, TO_THE_BIT, Group

__all__ = ["compared", "samples_to_check"]

SEED = 20731

ROUNDING = 2.0**12
"""Units of rounding of the largest number in an array that sums and products of matrices may differ by."""


def samples_to_check(k: int, n_samples: int, groups: Sequence[Group]) -> list[int]:
    """`k` samples, at random by a fixed seed, from every group in turn."""
    rng = np.random.default_rng(SEED)
    parts = [rng.permutation(group.samples).tolist() for group in groups] or [rng.permutation(n_samples).tolist()]
    chosen: list[int] = []
    while parts and len(chosen) < k:
        chosen += [part.pop() for part in parts]
        parts = [part for part in parts if part]
    return sorted(int(s) for s in chosen[:k])


def compared(s: int, got: Any, alone: Any) -> str:
    """ "equal to the bit" or "equal within rounding": the result for sample `s` in the run and its run alone.

    Raises
    ------
    RuntimeError
        If they differ by more than rounding; it names the sample, the place and both values.
    """
    found = list(_differences(got, alone, "result"))
    for place, one, other in found:
        if not _is_rounding(one, other):
            seen = f"{_shown(one)} in the run and {_shown(other)} alone"
            advice = (
                "What f asks of its arguments has another answer for an ensemble (a type, a method that only ensembles "
                "have), or f is not a function of its arguments alone. Use run(..., loop=True)."
            )
            raise RuntimeError(message("run", f"{place} of sample {s}", "be what the sample gives alone", seen, advice))
    return IN_ROUNDING if found else TO_THE_BIT


def _differences(got: Any, alone: Any, place: str) -> Any:
    if isinstance(got, Exception) or isinstance(alone, Exception):
        if type(got) is not type(alone) or str(got) != str(alone):
            yield place, got, alone
        return
    parts, others = parts_of(got), parts_of(alone)
    if parts is not None and others is not None and type(got) is type(alone) and parts.keys() == others.keys():
        for key in parts:
            where = f"{place}.{key.name}" if isinstance(key, Attribute) else f"{place}[{key!r}]"
            yield from _differences(parts[key], others[key], where)
    elif _is_number(got) and _is_number(alone):
        if not _same_bits(_numbers(got), _numbers(alone)):
            yield place, got, alone
    elif parts is not None or others is not None or type(got) is not type(alone) or _is_other(got, alone):
        yield place, got, alone


def _is_other(got: Any, alone: Any) -> bool:
    """Whether two values without parts differ, as far as that can be decided."""
    return isinstance(got, str | bytes) and got != alone


def _numbers(value: Any) -> np.ndarray:
    return to_numpy(value) if is_array(value) and not isinstance(value, np.generic) else np.asarray(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex | np.generic) or is_array(value)


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal shapes, kinds of numbers and bits, one NaN for another."""
    if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
        return False
    if a.dtype.kind == "c":
        return _same_bits(a.real, b.real) and _same_bits(a.imag, b.imag)
    if a.dtype.kind != "f":
        return bool(np.all(a == b))
    return bool(np.all(((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))))


def _is_rounding(got: Any, alone: Any) -> bool:
    if not (_is_number(got) and _is_number(alone)):
        return False
    a, b = _numbers(got), _numbers(alone)
    if a.shape != b.shape or a.dtype != b.dtype or a.dtype.kind not in "fc":
        return False
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    largest = float(np.max(np.abs(b[finite]), initial=0.0))
    return bool(np.all(np.abs(a[finite] - b[finite]) <= ROUNDING * np.finfo(b.dtype).eps * largest))


def _shown(value: Any) -> str:
    if isinstance(value, Exception):
        return f"{type(value).__name__}: {value}"
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
