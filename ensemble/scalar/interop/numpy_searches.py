"""NumPy's functions on ensembles that look for numbers or their range, all samples at once.

What a function here does not serve is left to calls of each sample by `NotByRuleError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble.scalar.ensemble import Ensemble, as_array, wrap
from ensemble.scalar.interop.numpy_along import NotByRuleError
from ensemble.scalar.interop.numpy_batch_arguments import agree, arrays, bound, lifted
from ensemble.scalar.row_reductions import with_row

__all__ = ["SEARCHES"]


def _isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Equal to one of few numbers, one after the other."""
    arrays(element, test_elements)
    x, few = lifted(element), lifted(test_elements)
    if assume_unique or x.dtype != few.dtype or x.dtype.kind not in "iuf" or not 0 < few.size <= 16:
        raise NotByRuleError("many numbers, or several types")
    agreed = agree(np.isin, x, few)
    rows = few.samples.reshape(few.size, few.n_samples)
    found = with_row(np.equal, x.samples, rows[0])
    for row in rows[1:]:
        np.logical_or(found, with_row(np.equal, x.samples, row), out=found)
    return as_array(wrap(np.logical_not(found, out=found) if invert else found, agreed))


def _trim_zeros(filt: Any, trim: str = "fb") -> Any:
    """A view of the same entries of all samples, where all begin and end at the same places."""
    if not isinstance(filt, Ensemble) or filt.ndim != 1 or trim not in ("fb", "f", "b") or not filt.size:
        raise NotByRuleError("other axes")
    samples, ends = filt.samples, [0, filt.size - 1]
    for k, direction in enumerate((1, -1)):
        if not samples[ends[k]].all():
            ends[k] = int(np.flatnonzero(samples.any(axis=1))[::direction][:1].sum())  # 0 where all are zero
            if not samples[ends[k]].all():
                raise NotByRuleError("other places in other samples")
    return filt[ends[0] if "f" in trim else None : ends[1] + 1 if "b" in trim else None]


def _bin_edges(*given: Any, **options: Any) -> Any:
    """Equal bins over the range of each sample."""
    named = bound(np.histogram_bin_edges, given, options, "a bins")
    x, bins = named["a"], named["bins"]
    arrays(x)
    if x.dtype.char != "d" or type(bins) is not int or bins < 1 or not x.size:
        raise NotByRuleError("other bins")
    low, high = np.min(x), np.max(x)
    if not np.isfinite(low.samples).all() or not np.isfinite(high.samples).all():
        raise NotByRuleError("a range that is not finite")
    return np.linspace(low, high, bins + 1)


SEARCHES: dict[Any, Callable[..., Any]] = {
    np.isin: _isin,
    np.trim_zeros: _trim_zeros,
    np.histogram_bin_edges: _bin_edges,
}
"""The rule of each function, by the function itself."""
