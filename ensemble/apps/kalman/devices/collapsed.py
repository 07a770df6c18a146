"""The filter of series with more observations than states, by fewer observations that say the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.kalman.collapse import collapse, have_roots
from ensemble._kernels.kalman.recursions import LARGEST, filter_series

__all__ = ["FACTOR", "filter_host"]

FACTOR = 2
"""Observations per state from which on they are collapsed, where there are more than are written out."""

Outputs = Any
"""Means, covariances and terms, as `filter_series` returns them."""


def filter_host(arguments: list[np.ndarray], predict_first: bool, series_last: bool, keep: bool = True) -> Outputs:
    """What `filter_series` returns for arrays of the CPU.

    Observations are collapsed for each series whose noises have a factor at all steps, see `have_roots`, and whose
    observations are no farther from zero than `FARTHEST`. With gaps in single entries what
    is collapsed varies in time; a series without has the covariances of a constant model, whatever others have.
    """
    H, y = arguments[2], arguments[6]
    ny, nx = H.shape[-2:]
    if ny <= LARGEST or ny < FACTOR * nx or y.dtype != np.float64 or 0 in y.shape:
        return filter_series(*arguments, predict_first, series_last, keep)
    kinds = np.broadcast_to(np.where(have_roots(arguments[3]), 1 + _has_gaps(y), 0), y.shape[:1])
    return _by_kind(kinds, arguments, predict_first, series_last, keep)


def _by_kind(
    kinds: np.ndarray, arguments: list[np.ndarray], predict_first: bool, series_last: bool, keep: bool
) -> Outputs:
    """The filter of all series, those of each kind together."""
    different = np.unique(kinds).tolist()
    if len(different) == 1:
        return _of_kind(different[0], arguments, predict_first, series_last, keep)
    outs: Any = None
    for kind in different:
        chosen = kinds == kind
        some = [a if a.shape[0] == 1 else a[chosen] for a in arguments]
        found = _of_kind(kind, some, predict_first, series_last, keep)
        outs = outs or tuple(np.empty((len(kinds), *a.shape[1:]), a.dtype) for a in found)
        for out, a in zip(outs, found, strict=True):
            out[chosen] = a
    return outs


def _has_gaps(y: np.ndarray) -> np.ndarray:
    """Whether any step of a series misses some of its entries but not all: bools (n_series or 1,)."""
    missing = np.isnan(y[:1] if y.strides[0] == 0 else y)
    return np.asarray((missing.any(axis=-1) & ~missing.all(axis=-1)).any(axis=-1))


def _of_kind(kind: int, arguments: list[np.ndarray], predict_first: bool, series_last: bool, keep: bool) -> Outputs:
    """The filter of series of one kind: 0 as they are, 1 collapsed without gaps, 2 with gaps."""
    if kind == 0:
        return filter_series(*arguments, predict_first, series_last, keep)
    F, Q, H, R, u, d, y, m0, P0 = arguments
    nx, n_series = H.shape[-1], y.shape[0]
    if not d.any():  # where no offset is given: samples may share what is collapsed
        d = np.zeros((1, 1, y.shape[-1]))
    T, z, terms = collapse(H, R, d, y, kind == 1)
    far = np.isnan(terms).any(axis=1)
    if far.any():  # these run as they are
        kinds = np.broadcast_to(np.where(far, 0, kind), (n_series,))
        return _by_kind(kinds, arguments, predict_first, series_last, keep)
    z = np.broadcast_to(z, (n_series, *z.shape[1:]))
    one, zero = np.eye(nx)[None, None], np.zeros((1, 1, nx))
    outs = filter_series(F, Q, T, one, u, zero, z, m0, P0, predict_first, series_last, keep)
    outs[2][...] += terms
    return outs
