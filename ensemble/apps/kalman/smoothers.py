"""Smoothers: the state given all observations, by Rauch, Tung and Striebel or by two filters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ensemble._backend import array_namespace
from ensemble._kernels.kalman.scan import Sengupta, prefix_scan
from ensemble._typing import Array
from ensemble.apps.kalman.array.agreement import differ, solve
from ensemble.apps.kalman.array.elements import (
    combine_filter,
    combine_smoother,
    filter_elements,
    filter_identity,
    has_no_elements,
    smoother_elements,
    smoother_identity,
)
from ensemble.apps.kalman.array.square_root import square_root_smoother
from ensemble.apps.kalman.array.steps import apply, rts_gain, smooth, stacked, symmetric
from ensemble.apps.kalman.devices.compiled import (
    compiled_backend,
    compiled_rts,
    compiled_square_root_smoother,
    compiled_two_filter,
)
from ensemble.apps.kalman.diffuse import diffuse_smoother
from ensemble.apps.kalman.filter_forms import Options, form_of, form_text
from ensemble.apps.kalman.filters import (
    any_true,
    choose_results,
    filtered,
    result_of,
    scan_filter,
    select_series,
)
from ensemble.apps.kalman.results import FilterResult, SmootherResult
from ensemble.apps.kalman.sample_axes import smoother_of_samples, with_sample_axis
from ensemble.apps.kalman.series import Series

__all__ = [
    "SMOOTHERS",
    "backwards",
    "by_square_roots",
    "combine_information",
    "rts",
    "sequential_rts",
    "smoothed",
    "time_first",
    "two_filters",
]


def rts(series: Series, method: str, scan: str | Sengupta, form: str = "covariance") -> SmootherResult:
    """Return the filter and the smoother of a series, by the form that serves it."""
    options = Options(method, scan, form)
    name, backend = form_of(series, options)
    if name != "diffuse":
        return SMOOTHERS[name](series, filtered(series, *options), options, backend)
    stack = with_sample_axis(series, method)
    if stack is not None:
        return smoother_of_samples(series, rts(stack, *options))
    result = diffuse_smoother(series, lambda later: rts(later, *options))
    return replace(result, filtered=replace(result.filtered, form=form_text(name, None, result.filtered.form)))


def backwards(
    series: Series, result: FilterResult, method: str, scan: str | Sengupta, form: str = "covariance"
) -> SmootherResult:
    """Return the smoother from the filter's result."""
    options = Options(method, scan, form)
    name, backend = form_of(series if series.diffuse is None else replace(series, diffuse=None), options)
    return SMOOTHERS[name](series, result, options, backend)


def _by_arrays(series: Series, result: FilterResult, options: Options, backend: str | None) -> SmootherResult:
    m, P = time_first(series, result)
    found = scan_rts(series, m, P, options.scan) if options.method == "scan" else sequential_rts(series, m, P)
    run = smoothed(series, result, *found)
    if result.by_roots is not None:
        last = run.mean[..., -1:, :]
        nothing = array_namespace(last).concat([run.mean[..., :-1, :] + float("nan"), last], axis=-2)
        run = SmootherResult(select_series(result.by_roots, nothing, run.mean, 2), run.covariance, result)
    return by_square_roots(series, result, run) if any_true(gain_failed(run)) else run


def gain_failed(run: SmootherResult) -> Array:
    """Where the gain of a step is NaN, and the filter is not: shape batch."""
    xp = array_namespace(run.mean)
    return xp.logical_and(xp.isnan(run.mean[..., 0, 0]), xp.logical_not(xp.isnan(run.filtered.mean[..., -1, 0])))


def by_square_roots(series: Series, result: FilterResult, run: SmootherResult | None = None) -> SmootherResult:
    """The smoother on square roots of covariances; with `run`, of the series whose gain failed there."""
    if compiled_backend(series, "sequential") == "numba":
        return compiled_square_root_smoother(series, result, run)
    roots = smoothed(series, result, *square_root_smoother(series))
    if run is None:
        return roots
    failed = gain_failed(run)
    mean = select_series(failed, roots.mean, run.mean, 2)
    return SmootherResult(mean, select_series(failed, roots.covariance, run.covariance, 3), result)


def two_filters(series: Series, scan: str | Sengupta) -> SmootherResult:
    """The two-filter smoother of a series in one form."""
    if series.diffuse is not None:
        return diffuse_smoother(series, lambda later: two_filters(later, scan))
    if compiled_backend(series, "scan") == "cuda":
        return compiled_two_filter(series, scan)
    xp = array_namespace(series.y, series.F, series.m0)
    elements = filter_elements(series)
    identity = filter_identity(xp, series.F.shape[-1], elements[0].dtype)
    m, P, terms = scan_filter(series, scan, elements)
    result = result_of(series, m, P, terms)
    end = [xp.broadcast_to(e, a.shape[1:])[None, ...] for e, a in zip(identity, elements, strict=True)]
    later = tuple(xp.concat([a[1:, ...], e], axis=0) for a, e in zip(elements, end, strict=True))
    _, _, _, eta, J = prefix_scan(combine_filter, later, algorithm=scan, identity=identity, reverse=True)
    found = combine_information(m, P, eta, J)
    run = smoothed(series, result, *found)
    by_recursion = xp.logical_or(has_no_elements(series), result.failed)
    by_recursion = xp.logical_or(by_recursion, _differs_from_recursion(series, m, P, *found))
    if not any_true(by_recursion):
        return run
    recursion = rts(series, "sequential", scan)
    return SmootherResult(
        select_series(by_recursion, recursion.mean, run.mean, 2),
        select_series(by_recursion, recursion.covariance, run.covariance, 3),
        choose_results(by_recursion, recursion.filtered, run.filtered),
    )


def _differs_from_recursion(series: Series, m: Array, P: Array, mean: Array, covariance: Array) -> Array:
    """Whether a smoothed state of any step is not what one step of the recursion makes of the next one, shape batch."""
    xp = array_namespace(m, P, mean)
    if series.n_steps == 1:
        return xp.zeros(series.batch, dtype=xp.bool)
    F, Q, u, R = (series.each(name, slice(1, None)) for name in ("F", "Q", "u", "R"))
    step = rts_gain(F, Q, u, m[:-1, ...], P[:-1, ...])
    again = smooth(*step, mean[1:, ...], covariance[1:, ...])
    found = differ((mean[:-1, ...], covariance[:-1, ...]), again, R, P[:-1, ...])
    return xp.broadcast_to(xp.any(found, axis=0), series.batch)


def combine_information(m: Array, P: Array, eta: Array, J: Array) -> tuple[Array, Array]:
    """The product of the filter's Gaussian and the information of all later observations."""
    xp = array_namespace(m, P)
    n = m.shape[-1]
    right = xp.concat([P, (m + apply(P, eta))[..., None]], axis=-1)
    solved = solve(xp.eye(n, dtype=m.dtype) + P @ J, right)
    return solved[..., n], symmetric(solved[..., :n])


def time_first(series: Series, result: FilterResult) -> tuple[Array, Array]:
    """Mean and covariance of a result with time first."""
    xp, n_batch = array_namespace(result.mean), len(series.batch)
    return xp.moveaxis(result.mean, n_batch, 0), xp.moveaxis(result.covariance, n_batch, 0)


def smoothed(series: Series, result: FilterResult, m: Array, P: Array) -> SmootherResult:
    """Arrays with time first as a result with time after the batch."""
    xp, n_batch = array_namespace(m, P), len(series.batch)
    return SmootherResult(xp.moveaxis(m, 0, n_batch), xp.moveaxis(P, 0, n_batch), result)


def sequential_rts(series: Series, m: Array, P: Array) -> tuple[Array, Array]:
    """The recursion of Rauch, Tung and Striebel, from the last step back."""
    T = series.n_steps
    mean, covariance = m[T - 1, ...], P[T - 1, ...]
    means, covariances = [mean], [covariance]
    for k in range(T - 2, -1, -1):
        F, Q, u = (series.at(name, k + 1) for name in ("F", "Q", "u"))
        mean, covariance = smooth(*rts_gain(F, Q, u, m[k, ...], P[k, ...]), mean, covariance)
        means.append(mean)
        covariances.append(covariance)
    return stacked(series.batch, means[::-1], covariances[::-1])


def scan_rts(series: Series, m: Array, P: Array, scan: str | Sengupta) -> tuple[Array, Array]:
    """The backward prefix sum of the smoother's elements."""
    xp = array_namespace(m, P)
    identity = smoother_identity(xp, m.shape[-1], m.dtype)
    elements = smoother_elements(series, m, P)
    _, mean, covariance = prefix_scan(combine_smoother, elements, algorithm=scan, identity=identity, reverse=True)
    return mean, covariance


SMOOTHERS: dict[str, Callable[[Series, FilterResult, Options, str | None], SmootherResult]] = {
    "compiled roots": lambda series, result, options, backend: by_square_roots(series, result),
    "roots": lambda series, result, options, backend: by_square_roots(series, result),
    "compiled": lambda series, result, options, backend: compiled_rts(
        series, result, str(backend), options.method, options.scan
    ),
    "recursion": _by_arrays,
    "scan": _by_arrays,
}
"""What each form of `FORMS` runs behind its filter; diffuse steps are smoothed in `diffuse.py`."""
