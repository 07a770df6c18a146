"""Random calls of elementwise functions that are no ufuncs, and of functions that make arrays."""

from __future__ import annotations

import numpy as np

from tests.scalar.numpy_calls import Own
from tests.scalar.numpy_reductions import searched
from tests.scalar.numpy_table import ALL, add

add(
    "angle real imag isreal iscomplex nan_to_num i0 sinc fix isneginf isposinf real_if_close iscomplexobj isrealobj",
    lambda d, f: ((d.array(),), {}),
)
add(
    "round around",
    lambda d, f: (lambda x: ((x,), d.options(decimals=lambda: d.integer(-1, 3), out=lambda: d.output(f, (x,), {}))))(
        d.array()
    ),
)


def clipped(d, f):
    x = d.array()
    low, high = (d.pick([lambda: None, lambda: d.like(x), lambda: d.number()])() for _ in range(2))
    kwargs = d.options(dtype=lambda: np.dtype(d.pick("fdqD")), casting="unsafe")
    if d.chance(0.15):
        kwargs["out"] = d.output(f, (x, low, high), kwargs)
    style = d.integer(0, 3)
    if style == 1:
        return (x,), {"a_min": low, "a_max": high, **kwargs}
    if style == 2:
        return (x,), {"min": low, "max": high, **kwargs}
    return (x, low, high), kwargs


add("clip", clipped, weight=4)


def chosen(d, f):
    m = d.array(dtypes="?" * 3 + ALL)
    return (m, d.like(m), d.like(m)), {}


add("where", chosen, weight=4)
add("isclose allclose", lambda d, f: close(d), weight=2)


def close(d):
    a = d.array()
    b = a if d.chance(0.3) else d.like(a)
    kwargs = d.options(
        rtol=lambda: d.pick([0.1, 1e-5, d.like(a, "d")]), atol=lambda: d.pick([0.0, 1.0]), equal_nan=True
    )
    return ((a, b) if d.chance(0.7) else (b, a)), kwargs


add("array_equal array_equiv", lambda d, f: (lambda a: ((a, a if d.chance(0.4) else d.like(a)), {}))(d.array(high=2)))
add(
    "select",
    lambda d, f: (
        lambda x: (([d.like(x, "?"), d.like(x, "?")], [x, d.like(x)]), d.options(default=lambda: d.number()))
    )(d.array()),
)
add(
    "choose",
    lambda d, f: (lambda x: ((x, [d.like(x), d.like(x)]), d.options(mode=lambda: d.pick(["clip", "wrap"]))))(
        d.array(dtypes="b")
    ),
)
add(
    "piecewise",
    lambda d, f: (
        lambda x: (
            (x, [Own(np.asarray(x.memory.real > 0), x.steps)] if isinstance(x, Own) else [x.memory > 0], [1.0, 2.0]),
            {},
        )
    )(d.array(dtypes="fdq")),
)
add(
    "nan_to_num",
    lambda d, f: ((d.array(),), d.options(nan=lambda: d.number("d"), posinf=1.5, copy=lambda: d.chance(0.5))),
)
add("copy", lambda d, f: ((d.array(),), d.options(order=lambda: d.pick("CFKA"))))
add("astype", lambda d, f: ((d.array(own=1), np.dtype(d.pick(ALL))), d.options(copy=False)))
add(
    "interp",
    lambda d, f: (
        (d.array(0, 2, "fdq"), np.sort(d.rng.normal(size=3)), d.array(shape=(3,), dtypes="fdD", own=0.5)),
        d.options(left=0.5, right=lambda: d.number("d"), period=lambda: d.pick([None, 2.0])),
    ),
    exact=False,
)
add(
    "unwrap",
    lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axis(x))))(d.array(low=1, dtypes="fdq")),
    exact=False,
)
add("digitize", searched)


def filled(d, f):
    x = d.array()
    value = d.pick(
        [
            lambda: d.number(),
            lambda: d.plain(x.shape),
            lambda: d.like(x),
            lambda: d.own(()),
            lambda: d.plain((d.n_samples,)),
        ]
    )()
    return (x, value), d.options(
        dtype=lambda: np.dtype(d.pick(ALL)), shape=lambda: d.shape(0, 2), order=lambda: d.pick("CFKA"), subok=False
    )


add("full_like", filled, weight=3)
add(
    "zeros_like ones_like",
    lambda d, f: (
        (d.array(own=1),),
        d.options(dtype=lambda: np.dtype(d.pick(ALL)), shape=lambda: d.shape(0, 2), order=lambda: d.pick("CFKA")),
    ),
)
add(
    "linspace",
    lambda d, f: (
        (d.array(0, 2, "dfqD"), d.array(0, 0, "dfq", own=0.5)),
        {"num": d.integer(1, 5), **d.options(endpoint=False, axis=-1, dtype=lambda: np.dtype(d.pick("dq")))},
    ),
    exact=False,
)
add("geomspace logspace", lambda d, f: ((d.array(0, 1, "d"), 3.0), {"num": 3}), exact=False)
add("tril triu", lambda d, f: ((d.array(1, 3),), d.options(k=lambda: d.integer(-2, 3))), weight=2)
add("diag diagflat", lambda d, f: ((d.array(0, 3),), d.options(k=lambda: d.integer(-2, 3))))
add("vander", lambda d, f: ((d.array(1, 2, "bqfd"),), d.options(N=3, increasing=True)), exact=False)
add(
    "meshgrid",
    lambda d, f: (
        (d.array(0, 1), d.array(0, 1), d.array(1, 1))[: d.integer(1, 4)],
        d.options(indexing="ij", sparse=True, copy=lambda: d.chance(0.5)),
    ),
)
add("asarray asanyarray array ascontiguousarray", lambda d, f: ((d.array(own=1),), {}))
