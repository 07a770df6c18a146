"""One series over several ranks of MPI, each of which has consecutive steps.

Every range of steps is reduced to an element (A, b, C, eta, J); all ranks get all elements in one exchange, and compute
the states between the ranges and the information of later observations, in their order. Then each rank runs the
recursions over its own ranges. What this cannot do, rank 0 does for the whole series, by the recursion.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._check import integer, kind_of, one_of, require
from ensemble._compile.streams import on_device_of
from ensemble._kernels.kalman.rank_ranges import RankRanges
from ensemble._kernels.kalman.recursions import LARGEST
from ensemble._typing import Array
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.array.exact_rank import counts_of
from ensemble.apps.kalman.devices.compiled import compiled_backend, filter_arguments, from_series, n_samples_of
from ensemble.apps.kalman.devices.host_ranges import HostRanges
from ensemble.apps.kalman.devices.time_cuts import TimeCuts, time_cuts
from ensemble.apps.kalman.devices.whole_series import by_rank_0
from ensemble.apps.kalman.filters import METHODS, choose_results, select_series
from ensemble.apps.kalman.model import LinearGaussianModel
from ensemble.apps.kalman.results import FilterResult, SmootherResult
from ensemble.apps.kalman.series import Series
from ensemble.distributed.agreement import agreement, require_communicator, require_same
from ensemble.distributed.messages import all_largest, device_messages_for, gathered

__all__ = ["filter_over_ranks", "smooth_over_ranks"]


def filter_over_ranks(
    model: LinearGaussianModel, y: Any, mask: Any, comm: Any, n_ranges: int, method: str, function: str
) -> FilterResult:
    """The filter's result for the steps of this rank, see `kalman_filter`."""
    run = _prepared(model, y, mask, comm, n_ranges, method, function)
    result: FilterResult = run.result(smooth=False)
    return result


def smooth_over_ranks(
    model: LinearGaussianModel, y: Any, mask: Any, comm: Any, n_ranges: int, method: str, function: str
) -> SmootherResult:
    """The smoother's result for the steps of this rank, see `rts_smoother`."""
    run = _prepared(model, y, mask, comm, n_ranges, method, function)
    result: SmootherResult = run.result(smooth=True)
    return result


def _prepared(
    model: LinearGaussianModel, y: Any, mask: Any, comm: Any, n_ranges: int, method: str, function: str
) -> _Run:
    """The series of this rank, its ranges and how they are run; what is wrong on one rank is raised on all."""
    require_communicator(comm, function)
    with agreement(comm):
        one_of(method, METHODS, function, "method")
        n_ranges = integer(n_ranges, function, "n_ranges", minimum=1)
        free, advice = getattr(model, "diffuse", None), "Give a proper prior, or leave comm out."
        require(free is None, function, "model", "have no diffuse states with comm", f"diffuse={free!r}", advice)
        series = aligned(model, y, mask, function)
        about = series.F.shape[-1], series.y.shape[-1], series.batch, str(series.y.dtype).split(".")[-1]
        way = _way_of(series, method)
        reached = way != "cuda" or comm.size == 1 or device_messages_for(comm, series.y) is not None
        wanted, advice = "be that of distributed.devices for arrays of CuPy", "Use distributed.devices(comm)."
        require(reached, function, "comm", wanted, kind_of(comm), advice)
        own = series.n_steps, (*about, n_samples_of(series) or 0, n_ranges, method), way
    told = comm.allgather(own)
    require_same([said for _, said, _ in told], function, "sizes, batch, type, samples, n_ranges and method of y")
    cuts = time_cuts(sum(n for n, *_ in told), comm.size, n_ranges, function)
    for rank, (n, *_) in enumerate(told):
        steps = cuts.of_rank(rank)
        wanted = f"have the {steps.stop - steps.start} steps from {steps.start} to {steps.stop} on rank {rank}"
        advice = f"They are those of time_range({int(cuts.steps[-1])}, comm)."
        require(n == steps.stop - steps.start, function, "y", wanted, f"{n} steps", advice)
    ways = {way for *_, way in told}
    way = ways.pop() if len(ways) == 1 else "whole"
    advice = "Use method='auto', or arrays of NumPy or CuPy of up to 8 states and observations."
    scans = way != "whole" or method != "scan"
    require(scans, function, "model and y", "have elements of each range for method='scan'", way, advice)
    return _Run(series, comm, cuts, way, function)


def _way_of(series: Series, method: str) -> str:
    """How ranges are run: "cuda", "numba", or by rank 0 for the whole series."""
    way = compiled_backend(series, "sequential")
    if method == "sequential" or way is None or counts_of(series) is not None:
        return "whole"
    if way == "cuda":
        alone = n_samples_of(series) is None and math.prod(series.batch) == 1
        return way if alone else "whole"
    return way if max(series.F.shape[-1], series.y.shape[-1]) <= LARGEST else "whole"


@dataclass(frozen=True)
class _Run:
    """A filter or smoother over ranks."""

    series: Series
    comm: Any
    cuts: TimeCuts
    way: str
    function: str

    def result(self, smooth: bool) -> Any:
        """The result for the steps of this rank."""
        if self.way == "whole":
            return by_rank_0(self.series, self.comm, self.cuts, smooth, self.function)
        run = self._on_device if self.way == "cuda" else self._on_host
        result, lost = run(smooth)
        all_largest(self.comm, lost)
        if not lost.any():
            return result
        found = by_rank_0(self.series, self.comm, self.cuts, smooth, self.function)
        return found if lost.all() else _chosen(self.series, lost, found, result)

    def gather(self, rows: Array) -> Array:
        """Rows of all ranges, on every rank."""
        offsets = self.cuts.ranks
        return gathered(self.comm, rows, offsets)

    def _on_host(self, smooth: bool) -> tuple[Any, np.ndarray]:
        """Filter, or also smooth, on the host; return the result and which series it does not serve."""
        ranges = HostRanges(self.series, self.cuts, self.comm.rank)
        result: Any
        result, sums = ranges.filtered(self.gather(ranges.elements()))
        lost = ranges.lost()
        if smooth:
            result, lost_back = ranges.smoothed(result)
            lost = lost | lost_back
        total = functools.reduce(np.add, self.gather(sums))
        total = from_series(self.series, total, n_samples_of(self.series))
        return _with_total(result, total), lost.astype(np.int64)

    def _on_device(self, smooth: bool) -> tuple[Any, np.ndarray]:
        """The result, and whether it has a NaN."""
        series, rank = self.series, self.comm.rank
        with on_device_of(series.y):
            *arrays, m0, P0 = filter_arguments(series, None)
            first = int(self.cuts.ranks[rank])
            about = self.cuts.groups(rank), first, self.cuts.n_ranges, self.cuts.longest
            ranges = RankRanges(tuple(arrays), (m0, P0), *about, series.predict_first, smooth)
            states, sums = ranges.complete(self.gather(ranges.reduce()))
            xp = array_namespace(states[0])
            total = xp.sum(self.gather(xp.concat(sums, axis=0)), axis=0)
            if rank:
                shapes = series.m0.shape, series.P0.shape
                m, P = (xp.reshape(a[first], n) for a, n in zip(ranges.before, shapes, strict=True))
                series = replace(series, m0=m, P0=P, predict_first=True)
            mean, covariance, terms, *back = (from_series(series, a, None) for a in states)
            result: Any = FilterResult(mean, covariance, terms, from_series(series, total[None], None), series)
            seen = states[0][0, -1, 0]
            if smooth:
                result = SmootherResult(back[0], back[1], result)
                seen = seen + states[3][0, 0, 0]
            lost = np.isnan(to_numpy(seen[None]))
        return result, lost.astype(np.int64)


def _with_total(result: Any, total: Array) -> Any:
    """A result whose log-likelihood is that of all ranks."""
    if isinstance(result, SmootherResult):
        return replace(result, filtered=replace(result.filtered, log_likelihood=total))
    return replace(result, log_likelihood=total)


def _chosen(series: Series, lost: np.ndarray, whole: Any, ranges: Any) -> Any:
    """The result of rank 0 for the series that are lost, that of the ranges for all others."""
    mask = from_series(series, asarray_like(lost > 0, _values(series.y)), n_samples_of(series))
    if isinstance(ranges, FilterResult):
        return choose_results(mask, whole, ranges)
    mean = select_series(mask, whole.mean, ranges.mean, 2)
    covariance = select_series(mask, whole.covariance, ranges.covariance, 3)
    return SmootherResult(mean, covariance, choose_results(mask, whole.filtered, ranges.filtered))


def _values(a: Any) -> Any:
    return getattr(a, "samples", a)
