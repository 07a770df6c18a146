"""The Kalman filter: step after step, or all steps at once by a prefix sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ensemble._backend import array_namespace
from ensemble._check import message, one_of, require
from ensemble._kernels.kalman.scan import Sengupta, prefix_scan
from ensemble._typing import Array
from ensemble.apps.kalman.array.agreement import differ
from ensemble.apps.kalman.array.chunks import chunk_filter
from ensemble.apps.kalman.array.elements import (
    Element,
    combine_filter,
    filter_elements,
    filter_identity,
    has_no_elements,
)
from ensemble.apps.kalman.array.square_root import square_root_filter
from ensemble.apps.kalman.array.steps import predict, stacked, update
from ensemble.apps.kalman.devices.compiled import compiled_filter, compiled_square_root_filter
from ensemble.apps.kalman.diffuse import diffuse_filter
from ensemble.apps.kalman.filter_forms import Options, form_of, form_text
from ensemble.apps.kalman.results import FilterResult, sum_over_time
from ensemble.apps.kalman.sample_axes import filter_of_samples, with_sample_axis
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = [
    "FILTERS",
    "METHODS",
    "any_true",
    "check_form",
    "check_scannable",
    "choose_results",
    "filtered",
    "result_of",
    "scan_filter",
    "select_series",
    "sequential_filter",
]

METHODS = ("auto", "sequential", "scan")


def check_scannable(series: Series, function: str) -> None:
    """Scans solve with general matrices, which array libraries do for two types only."""
    dtype, advice = str(series.F.dtype).split(".")[-1], "method='sequential' takes any type."
    if dtype not in ("float32", "float64"):
        raise TypeError(message(function, "model and y", "be of float32 or float64 for a scan", dtype, advice))


def check_form(form: str, method: str, function: str) -> None:
    """Square roots have no scan."""
    one_of(form, ("covariance", "square_root"), function, "form")
    fits = form == "covariance" or method != "scan"
    require(fits, function, "form", "be 'covariance' with method='scan'", repr(form), "Use method='sequential'.")


def filtered(series: Series, method: str, scan: str | Sengupta, form: str = "covariance") -> FilterResult:
    """Return the filter of a series, by the form that serves it."""
    options = Options(method, scan, form)
    name, backend = form_of(series, options)
    result = FILTERS[name](series, options, backend)
    return replace(result, form=form_text(name, backend, result.form if name == "diffuse" else ""))


def _diffuse(series: Series, options: Options, backend: str | None) -> FilterResult:
    stack = with_sample_axis(series, options.method)
    if stack is None:
        return diffuse_filter(series, lambda later: filtered(later, *options))
    result = _diffuse(stack, options, backend) if stack.diffuse is not None else filtered(stack, *options)
    return filter_of_samples(series, result)


def _recursion(series: Series, options: Options, backend: str | None) -> FilterResult:
    return with_roots(series, result_of(series, *sequential_filter(series)))


def _scanned(series: Series, options: Options, backend: str | None) -> FilterResult:
    result = with_roots(series, result_of(series, *scan_filter(series, options.scan)))
    by_recursion = has_no_elements(series)
    if not any_true(by_recursion):
        return result
    recursion = filtered(series, "sequential", options.scan)
    return replace(choose_results(by_recursion, recursion, result), by_recursion=by_recursion)


def with_roots(series: Series, result: FilterResult) -> FilterResult:
    """A result whose series without a finite likelihood are filtered on square roots of covariances."""
    lost = result.failed
    if not any_true(lost):
        return result
    return replace(
        choose_results(lost, filtered(series, "sequential", "chunked", "square_root"), result), by_roots=lost
    )


def any_true(mask: Array) -> bool:
    """Whether a mask holds for any series of any sample."""
    values = mask.samples if isinstance(mask, Ensemble) else mask
    return bool(array_namespace(values).any(values))


def choose_results(by_recursion: Array, recursion: FilterResult, scanned: FilterResult) -> FilterResult:
    """The recursion's result for the series in `by_recursion`, the scan's for all others."""
    names = (("mean", 2), ("covariance", 3), ("log_likelihoods", 1), ("log_likelihood", 0))
    parts = {
        name: select_series(by_recursion, getattr(recursion, name), getattr(scanned, name), n) for name, n in names
    }
    flags = [r.by_roots for r in (recursion, scanned)]
    if all(flag is None for flag in flags):
        return FilterResult(series=scanned.series, form=scanned.form, **parts)
    none = array_namespace(by_recursion).zeros_like(by_recursion)
    first, second = (none if flag is None else flag for flag in flags)
    roots = select_series(by_recursion, first, second, 0)
    return FilterResult(series=scanned.series, by_roots=roots, form=scanned.form, **parts)


def select_series(mask: Array, a: Array, b: Array, n_axes: int) -> Array:
    """`a` where the series' mask holds, else `b`; both have `n_axes` axes after the batch."""
    xp = array_namespace(mask, a, b)
    return xp.where(xp.reshape(mask, (*mask.shape, *(1,) * n_axes)), a, b)


def result_of(series: Series, m: Array, P: Array, terms: Array) -> FilterResult:
    """Arrays with time first as a result with time after the batch."""
    xp, n_batch = array_namespace(m, terms), len(series.batch)
    return FilterResult(
        mean=xp.moveaxis(m, 0, n_batch),
        covariance=xp.moveaxis(P, 0, n_batch),
        log_likelihoods=xp.moveaxis(terms, 0, n_batch),
        log_likelihood=sum_over_time(terms),
        series=series,
    )


def sequential_filter(series: Series) -> tuple[Array, Array, Array]:
    """Predict and update, step after step."""
    m, P = series.m0, series.P0
    means, covariances, terms = [], [], []
    for k in range(series.n_steps):
        if k or series.predict_first:
            m, P = predict(series.at("F", k), series.at("Q", k), series.at("u", k), m, P)
        m, P, term = update(series.at("H", k), series.at("R", k), series.at("d", k), series.y[k, ...], m, P)
        means.append(m)
        covariances.append(P)
        terms.append(term)
    xp = array_namespace(*terms)
    terms = [xp.broadcast_to(term, series.batch) for term in terms]
    return *stacked(series.batch, means, covariances), xp.stack(terms, axis=0)


def scan_filter(series: Series, scan: str | Sengupta, elements: Element | None = None) -> tuple[Array, ...]:
    """The prefix sum of the filter elements; likelihoods follow from the states one step before, all steps at once.

    "chunked" replays the recursion inside each chunk instead.
    """
    if scan == "chunked" and series.n_steps > 1:
        *whole, rest = chunk_filter(series)
        if rest is None:
            return tuple(whole)
        end = sequential_filter(rest)
        return tuple(array_namespace(a, z).concat([a, z], axis=0) for a, z in zip(whole, end, strict=True))
    xp = array_namespace(series.y, series.F, series.m0)
    elements = elements or filter_elements(series)
    identity = filter_identity(xp, series.F.shape[-1], elements[0].dtype)
    _, m, P, _, _ = prefix_scan(combine_filter, elements, algorithm=scan, identity=identity)
    return m, P, log_densities(series, m, P)


def log_densities(series: Series, m: Array, P: Array) -> Array:
    """``log p(y[k] | y[:k])`` of every step, from the filtered states of all steps.

    NaN where the state of a step is not what the recursion makes of the one before it.
    """
    xp = array_namespace(m, P)
    first = (series.m0, series.P0)
    if series.predict_first:
        first = predict(series.at("F", 0), series.at("Q", 0), series.at("u", 0), *first)
    *again, term = update(series.at("H", 0), series.at("R", 0), series.at("d", 0), series.y[0, ...], *first)
    lost = differ((m[0, ...], P[0, ...]), again, series.at("R", 0), first[1])
    terms = xp.broadcast_to(xp.where(lost, term + float("nan"), term), series.batch)[None, ...]
    if series.n_steps == 1:
        return terms
    F, Q, u, H, R, d = (series.each(name, slice(1, None)) for name in ("F", "Q", "u", "H", "R", "d"))
    ahead = predict(F, Q, u, m[:-1, ...], P[:-1, ...])
    *again, rest = update(H, R, d, series.y[1:, ...], *ahead)
    rest = xp.where(differ((m[1:, ...], P[1:, ...]), again, R, ahead[1]), rest + float("nan"), rest)
    return xp.concat([terms, rest], axis=0)


FILTERS: dict[str, Callable[[Series, Options, str | None], FilterResult]] = {
    "diffuse": _diffuse,
    "compiled roots": lambda series, options, backend: compiled_square_root_filter(series),
    "roots": lambda series, options, backend: result_of(series, *square_root_filter(series)),
    "compiled": lambda series, options, backend: compiled_filter(series, str(backend), options.method, options.scan),
    "recursion": _recursion,
    "scan": _scanned,
}
"""What each form of `FORMS` runs."""
