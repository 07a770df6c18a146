"""A series over ranks that one rank filters and smooths as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._backend import asarray_like, to_numpy
from ensemble._compile.streams import on_device_of
from ensemble._typing import Array
from ensemble.apps.kalman.array.exact_rank import marked_without_density
from ensemble.apps.kalman.devices.compiled import PARTS
from ensemble.apps.kalman.devices.time_cuts import TimeCuts
from ensemble.apps.kalman.filters import filtered
from ensemble.apps.kalman.results import FilterResult, SmootherResult
from ensemble.apps.kalman.series import Series
from ensemble.apps.kalman.smoothers import rts
from ensemble.distributed.agreement import agreement
from ensemble.distributed.messages import from_first, meet
from ensemble.scalar import Ensemble
from ensemble.scalar.namespace import set_of

__all__ = ["by_rank_0"]

STEPS = tuple(name for name in PARTS if name not in ("m0", "P0"))


def by_rank_0(series: Series, comm: Any, cuts: TimeCuts, smooth: bool, function: str) -> Any:
    """The result for the steps of this rank, of the recursion over the whole series on rank 0."""
    meet(comm)
    told = comm.gather({name: _hosted(getattr(series, name)) for name in STEPS})
    n_batch = len(series.batch)
    pieces: Any = None
    shared: Any = None
    with agreement(comm):
        if comm.rank == 0:
            with on_device_of(_values(series.y)):
                whole = marked_without_density(_joined(series, told))
                found: Any = rts(whole, "sequential", "chunked") if smooth else filtered(whole, "sequential", "chunked")
            last = found.filtered if smooth else found
            arrays = [last.mean, last.covariance, last.log_likelihoods, *([found.mean, found.covariance] * smooth)]
            hosted = [_hosted(a) for a in arrays]
            pieces = [[a[(slice(None),) * n_batch + (cuts.of_rank(r),)] for a in hosted] for r in range(comm.size)]
            shared = _hosted(last.log_likelihood), None if last.by_roots is None else _hosted(last.by_roots)
            before = [_before(pieces[r - 1], n_batch) if r else None for r in range(comm.size)]
            pieces = list(zip(pieces, before, strict=True))
    meet(comm)
    own, before = comm.scatter(pieces)
    total, by_roots = from_first(comm, shared)
    with on_device_of(_values(series.y)):
        if before is not None:
            m0, P0 = (_like(a, series) for a in before)
            series = replace(series, m0=m0, P0=P0, predict_first=True)
        mean, covariance, terms, *back = (_like(a, series) for a in own)
        roots = None if by_roots is None else _like(by_roots, series)
        result = FilterResult(mean, covariance, terms, _like(total, series), series, by_roots=roots)
    return SmootherResult(back[0], back[1], result) if smooth else result


def _before(piece: list[np.ndarray], n_batch: int) -> tuple[np.ndarray, np.ndarray]:
    """The last state of a rank's steps."""
    key = (slice(None),) * n_batch + (-1,)
    return piece[0][key], piece[1][key]


def _joined(series: Series, told: list[dict[str, np.ndarray]]) -> Series:
    """The whole series of rank 0."""
    parts = {}
    lengths = [said["y"].shape[0] for said in told]
    for name in STEPS:
        arrays = [said[name] for said in told]
        constant = name != "y" and all(a.shape[0] == 1 for a in arrays)
        if constant and all(np.array_equal(a, arrays[0], equal_nan=True) for a in arrays):
            parts[name] = getattr(series, name)
            continue
        arrays = [np.broadcast_to(a, (n, *a.shape[1:])) for a, n in zip(arrays, lengths, strict=True)]
        shape = np.broadcast_shapes(*(a.shape[1:] for a in arrays))
        parts[name] = _like(
            np.concatenate([np.broadcast_to(a, (len(a), *shape)) for a in arrays]), series, getattr(series, name)
        )
    return replace(series, index=None, **parts)


def _values(a: Any) -> Any:
    return a.samples if isinstance(a, Ensemble) else a


def _hosted(a: Any) -> np.ndarray:
    """The values of an array or Ensemble in memory of the host."""
    return np.ascontiguousarray(to_numpy(_values(a)))


def _like(values: np.ndarray, series: Series, a: Any = None) -> Array:
    """Values in the form of `a`, or of results of `series`."""
    found = asarray_like(np.ascontiguousarray(values), _values(series.y))
    parts = [getattr(series, name) for name in PARTS]
    lifted = isinstance(a, Ensemble) if a is not None else any(isinstance(part, Ensemble) for part in parts)
    return Ensemble(found, set_of(*parts)) if lifted else found
