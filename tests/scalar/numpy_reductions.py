"""Random calls of reductions, of functions that order and of those that search."""

from __future__ import annotations

import numpy as np

from tests.scalar.numpy_calls import Own
from tests.scalar.numpy_table import ALL, FLOAT, REAL, add


def reduction(kinds, **more):
    def make(d, f):
        x = d.array(dtypes=kinds)
        options = {"axis": lambda: d.axes(x), "keepdims": lambda: d.chance(0.8)}
        for name in more:
            options[name] = {
                "dtype": lambda: np.dtype(d.pick("fdDq")),
                "ddof": lambda: d.pick([0, 1, 0.5]),
                "correction": lambda: d.pick([0, 1]),
                "initial": lambda: d.number(x.dtype.char),
                "where": lambda: d.mask(x),
                "overwrite_input": False,
                "mean": lambda: np.mean,
            }[name]
        kwargs = d.options(**options)
        if d.chance(0.15):
            kwargs["out"] = d.output(f, (x,), kwargs)
        if d.chance(0.2) and "axis" in kwargs:
            return (x, kwargs.pop("axis")), kwargs
        return (x,), kwargs

    return make


add("sum prod", reduction(ALL, dtype=1, initial=1, where=1), exact=False, weight=2)
add("mean", reduction(ALL, dtype=1, where=1), exact=False, weight=2)
add("std var", reduction(ALL, dtype=1, where=1, ddof=1, correction=1), exact=False, weight=2)
add("max min amax amin", reduction(ALL, initial=1, where=1), weight=1)
add("all any", reduction(ALL, where=1))
add("ptp", reduction(REAL))
add("nansum nanprod", reduction(ALL, dtype=1, initial=1, where=1), exact=False)
add("nanmean nanvar nanstd", reduction(ALL, dtype=1, where=1), exact=False)
add("nanmax nanmin", reduction(ALL, initial=1, where=1))
add("median nanmedian", reduction(REAL), exact=False)
add("count_nonzero", lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axes(x), keepdims=True)))(d.array(own=1)))


def quantiles(d, f):
    x = d.array(low=1, dtypes=FLOAT + "qi")
    top = 100.0 if "percentile" in f.__name__ else 1.0
    q = d.pick(
        [
            lambda: top * d.rng.random(),
            lambda: (top * d.rng.random(3)).tolist(),
            lambda: d.own((), "d"),
            lambda: top * d.rng.random((2, 2)),
        ]
    )()
    if isinstance(q, Own):
        q = Own(np.abs(np.nan_to_num(q.memory)) % 1.0 * top)
    method = lambda: d.pick(["linear", "lower", "nearest", "weibull", "inverted_cdf", "hazen"])
    return (x, q), d.options(axis=lambda: d.axes(x), keepdims=True, method=method)


add("quantile percentile nanquantile nanpercentile", quantiles, exact=False)


def averaged(d, f):
    x = d.array(low=1, dtypes="fdq")
    axis = d.axis(x)
    kwargs = d.options(axis=axis, returned=True, keepdims=True)
    if d.chance(0.5):
        shape = x.shape if "axis" not in kwargs or d.chance(0.5) else (x.shape[axis],)
        kwargs["weights"] = d.array(shape=shape, dtypes="d", own=0.5)
    return (x,), kwargs


add("average", averaged, exact=False)
add("cumsum cumprod nancumsum nancumprod", lambda d, f: cumulated(d, f), exact=False)
add(
    "cumulative_sum cumulative_prod",
    lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axis(x), include_initial=True)))(d.array(low=1)),
    exact=False,
)


def cumulated(d, f):
    x = d.array()
    kwargs = d.options(axis=lambda: d.axis(x), dtype=lambda: np.dtype(d.pick("dDq")))
    if d.chance(0.15):
        kwargs["out"] = d.output(f, (x,), kwargs)
    return (x,), kwargs


def placed(d, f):
    x = d.array(low=0, dtypes=ALL)
    kwargs = d.options(axis=lambda: d.axis(x), keepdims=True)
    if d.chance(0.1):
        kwargs["out"] = d.output(f, (x,), kwargs)
    return (x,), kwargs


add("argmax argmin nanargmax nanargmin", placed)
add(
    "sort argsort",
    lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.pick([None, d.axis(x)]), kind="stable", stable=True)))(
        d.array()
    ),
    exact=True,
)
add("partition", lambda d, f: (lambda x: ((x, d.integer(0, max(1, x.shape[-1]))), {}))(d.array(low=1)))
add("sort_complex", lambda d, f: ((d.array(low=1, high=2),), {}))
add("lexsort", lambda d, f: (([d.array(shape=(4,)), d.array(shape=(4,))],), {}))
add("searchsorted digitize", lambda d, f: searched(d, f))


def searched(d, f):
    line = d.array(shape=(d.pick([3, d.n_samples, 5]),), dtypes=FLOAT + "q", own=0.6)
    line = type(line)(np.sort(line.memory, axis=0))
    values = d.array(0, 2, FLOAT + "q", own=0.6)
    if f is np.digitize:
        return (values, line), d.options(right=True)
    return (line, values if d.chance(0.8) else d.number("dq")), d.options(side="right")


add("isin", lambda d, f: ((d.array(0, 2), d.array(0, 2, own=0.5)), d.options(invert=True, assume_unique=False)))
add("nonzero flatnonzero argwhere", lambda d, f: ((d.array(low=1, own=1),), {}), memory=False)
add(
    "unique",
    lambda d, f: (
        (d.array(low=0, high=2, dtypes="?bq"),),
        d.options(return_index=True, return_inverse=True, return_counts=True),
    ),
)
add("unique_values unique_counts unique_inverse unique_all", lambda d, f: ((d.array(low=0, high=2, dtypes="?bq"),), {}))
add("intersect1d union1d setdiff1d setxor1d", lambda d, f: ((d.array(1, 1, "?bq"), d.array(1, 1, "?bq", own=0.4)), {}))
