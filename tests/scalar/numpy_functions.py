"""How to call NumPy's functions at random: one entry for every function that is tried."""

from __future__ import annotations

import operator

import numpy as np
from numpy_calls import Call, Own

CALLS = {}


def add(names, make, *, exact=True, module=np, weight=1, memory=True):
    """The calls of the functions `names` of `module`; ``make(d, f)`` draws arguments and options."""
    for name in names.split():
        f = getattr(module, name) if isinstance(name, str) else name
        prefix = {np.linalg: "linalg.", np.fft: "fft.", operator: "operator."}.get(module, "")
        CALLS[prefix + name] = (f, make, exact, weight, memory)


def drawn(d, name):
    """A random call of the function `name` with one ensemble of several samples or more among the arguments."""
    from numpy_calls import Plain, leaves

    f, make, exact, _, memory = CALLS[name]
    for _ in range(40):
        try:
            args, kwargs = make(d, f)
        except (TypeError, ValueError, IndexError, np.exceptions.AxisError, OverflowError, ZeroDivisionError, np.linalg.LinAlgError):
            continue
        if leaves((args, kwargs), Own):
            # NumPy's own loops depend on layout and length: another last bit (of complex products everywhere), and
            # either zero for a tie of 0.0 and -0.0.
            owns = leaves((args, kwargs), Own)
            if name.rpartition(".")[2] in VECTORISED:
                arrays = leaves((args, kwargs), (Own, Plain))
                exact = not kwargs and not any(own.steps for own in owns)
                exact = exact and not any(array.dtype.kind == "c" for array in arrays)
            return Call(name, f, tuple(args), kwargs, exact, memory, signed_zeros=name.rpartition(".")[2] not in TIES)
    return None


# -- ufuncs ------------------------------------------------------------------------------------------------------------

VECTORISED = frozenset(
    "exp expm1 log log1p log2 log10 sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh cbrt exp2 "
    "absolute abs angle power float_power multiply divide square mul truediv imul itruediv ipow arctan2 hypot logaddexp logaddexp2 reciprocal sqrt pow".split()
)
TIES = frozenset(["reduce", "fmax", "fmin", "maximum", "minimum", "max", "min", "amax", "amin", "nanmax", "nanmin", "clip"])


def ufunc_options(d, f, args, outputs=1):
    kwargs = {}
    if d.chance(0.25):
        out = tuple(d.output(f, args, {}) for _ in range(outputs)) if outputs == 1 else None
        if out is not None:
            kwargs["out"] = out[0]
            if d.chance(0.4):
                kwargs["where"] = d.mask(args[0])
    if d.chance(0.1):
        kwargs["dtype"] = np.dtype(d.pick("fdFDqi"))
    if d.chance(0.1) and "out" not in kwargs:  # NaN as an integer is whatever the loop makes of it
        kwargs["casting"] = d.pick(["unsafe", "same_kind", "safe"])
    if d.chance(0.1):
        kwargs["order"] = d.pick("CFKA")
    return kwargs


def unary(kinds):
    def make(d, f):
        args = (d.array(dtypes=kinds, own=1),)
        return args, ufunc_options(d, f, args)

    return make


def binary(kinds, kinds2=None):
    def make(d, f):
        a = d.array(dtypes=kinds)
        args = a, d.like(a, kinds2 or kinds)
        if d.chance(0.4):
            args = args[::-1] if kinds2 is None else args
        return args, ufunc_options(d, f, args)

    return make


ALL, REAL, FLOAT, INTEGER, INEXACT = "?bBhHiIqQfdFD", "?bBhHiIqQfd", "fd", "bBhHiIqQ", "fdFD"
add("absolute negative positive sign conjugate square reciprocal sqrt exp expm1 log log1p log2 log10 sin cos tan sinh "
    "cosh tanh arcsin arccos arctan arcsinh arccosh arctanh isfinite isinf isnan logical_not", unary(ALL))
add("floor ceil trunc rint signbit fabs cbrt deg2rad rad2deg exp2 spacing degrees radians isnat", unary(REAL))
add("invert", unary("?bBhiIqQ"))
add("add subtract multiply divide power maximum minimum fmax fmin equal not_equal less less_equal greater greater_equal "
    "logical_and logical_or logical_xor float_power", binary(ALL), weight=2)
add("floor_divide remainder fmod arctan2 hypot logaddexp logaddexp2 copysign nextafter heaviside", binary(REAL))
add("bitwise_and bitwise_or bitwise_xor", binary("?bBhiIq"))
add("left_shift right_shift gcd lcm", binary("bBhiIq"))
add("ldexp", binary(FLOAT, "bhi"))
add("bitwise_count", unary(INTEGER))
add("modf frexp", lambda d, f: ((d.array(dtypes=FLOAT),), {}))
add("divmod", lambda d, f: (lambda a: ((a, d.like(a, REAL)), {}))(d.array(dtypes=REAL)))
add("matmul vecdot matvec vecmat", lambda d, f: products(d, f), exact=False, weight=2)
add("add sub mul truediv floordiv mod pow lt le gt ge eq ne and_ or_ xor", lambda d, f: (pair(d, ALL), {}), module=operator)
add("iadd isub imul itruediv ifloordiv imod ipow iand ior ixor", lambda d, f: in_place(d), module=operator)
add("matmul", lambda d, f: (products(d, f)[0], {}), module=operator, exact=False)
add("imatmul", lambda d, f: (products(d, f)[0], {}), module=operator, exact=False)
add("neg pos abs invert", lambda d, f: ((d.array(own=1),), {}), module=operator)


def pair(d, kinds):
    a = d.array(dtypes=kinds, own=1)
    b = d.like(a, kinds)
    return (a, b) if d.chance(0.6) else (b, a)


def in_place(d):
    a = d.array(low=1, own=1)
    return (a, d.like(a)), {}


def products(d, f):
    kinds = d.pick(["d", "d", "fd", "q", "?bBhiqfdFD"])
    n = d.pick([d.n_samples, 3, 2, 1])
    m, k = d.pick([2, 3, d.n_samples]), d.pick([1, 2, 3])
    batch = tuple(d.pick([2, 3, d.n_samples, 1]) for _ in range(d.integer(0, 2)))
    left, right = d.pick([((n,), (n,)), ((m, n), (n,)), ((n,), (n, k)), ((m, n), (n, k)), ((n, n), (n, n))])
    a = d.array(shape=(*batch * (len(left) > 1), *left), dtypes=kinds, own=0.7)
    b = d.array(shape=(*batch * (len(right) > 1) * d.integer(0, 2), *right), dtypes=kinds, own=0.6)
    kwargs = {}
    if isinstance(f, np.ufunc):
        if d.chance(0.15):
            kwargs["dtype"] = np.dtype(d.pick("fdD"))
        if d.chance(0.15):
            kwargs["casting"] = "unsafe"
        elif d.chance(0.2) and f is not np.vecmat:  # NumPy 2.4.6 gives wrong numbers where its `out` is not contiguous
            kwargs["out"] = d.output(f, (a, b), kwargs)
        if d.chance(0.1):
            kwargs["axes"] = d.pick([[(-2, -1), (-2, -1), (-2, -1)], [(0, 1), (0, 1), (0, 1)], [-1, -1, ()]])
        if d.chance(0.05):
            kwargs["axis"] = -1
    return (a, b), kwargs


def reduced(d, f):
    u = d.pick([np.add, np.multiply, np.maximum, np.minimum, np.logical_and, np.bitwise_or, np.subtract, np.hypot])
    x = d.array(low=0, dtypes="?bBhiq" if u is np.bitwise_or else REAL if u in (np.hypot,) else ALL)
    kwargs = d.options(axis=lambda: d.axes(x), keepdims=True, dtype=lambda: np.dtype(d.pick("dDq")), initial=lambda: d.number(x.dtype.char))
    if d.chance(0.2):
        kwargs["where"] = d.mask(x)
    if d.chance(0.15):
        kwargs["out"] = d.output(lambda *a, **k: u.reduce(*a, **k), (x,), kwargs)
    return (u, x), kwargs


CALLS["ufunc.reduce"] = (lambda u, x, **k: u.reduce(x, **k), reduced, False, 3, True)


def accumulated(d, f):
    u = d.pick([np.add, np.multiply, np.maximum, np.logical_or])
    x = d.array(low=1)
    kwargs = d.options(axis=lambda: d.axis(x), dtype=lambda: np.dtype(d.pick("dDq")))
    if d.chance(0.2):
        kwargs["out"] = d.output(lambda *a, **k: u.accumulate(*a, **k), (x,), kwargs)
    return (u, x), kwargs


CALLS["ufunc.accumulate"] = (lambda u, x, **k: u.accumulate(x, **k), accumulated, True, 1, True)


def cut(d, f):
    x = d.array(low=1)
    axis = d.axis(x)
    n = x.shape[axis]
    places = np.sort(d.rng.integers(0, n, size=2)) if d.chance(0.7) else [0, n - 1]
    return (d.pick([np.add, np.maximum]), x, places), d.options(axis=axis)


CALLS["ufunc.reduceat"] = (lambda u, x, i, **k: u.reduceat(x, i, **k), cut, False, 1, True)


def outer_ufunc(d, f):
    return (d.pick([np.add, np.multiply, np.less, np.arctan2]), d.array(0, 2, REAL), d.array(0, 2, REAL, own=0.5)), {}


CALLS["ufunc.outer"] = (lambda u, a, b, **k: u.outer(a, b, **k), outer_ufunc, True, 1, True)


def at(d, f):
    x = d.array(low=1, high=2, own=1)
    n = x.shape[0]
    i = d.pick([lambda: d.rng.integers(-n, n, size=3), lambda: d.integer(-n, n), lambda: slice(None), lambda: d.own((2,), "q") if False else d.rng.integers(0, n, size=(2,))])()
    return (d.pick([np.add, np.multiply, np.maximum]), x, i, d.number(x.dtype.char)), {}


CALLS["ufunc.at"] = (lambda u, x, i, v: u.at(x, i, v), at, True, 1, True)

# -- reductions --------------------------------------------------------------------------------------------------------


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
    q = d.pick([lambda: top * d.rng.random(), lambda: (top * d.rng.random(3)).tolist(), lambda: d.own((), "d"), lambda: top * d.rng.random((2, 2))])()
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
add("cumulative_sum cumulative_prod", lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axis(x), include_initial=True)))(d.array(low=1)), exact=False)


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
add("sort argsort", lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.pick([None, d.axis(x)]), kind="stable", stable=True)))(d.array()), exact=True)
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
add("unique", lambda d, f: ((d.array(low=0, high=2, dtypes="?bq"),), d.options(return_index=True, return_inverse=True, return_counts=True)))
add("unique_values unique_counts unique_inverse unique_all", lambda d, f: ((d.array(low=0, high=2, dtypes="?bq"),), {}))
add("intersect1d union1d setdiff1d setxor1d", lambda d, f: ((d.array(1, 1, "?bq"), d.array(1, 1, "?bq", own=0.4)), {}))

# -- elementwise functions that are no ufuncs --------------------------------------------------------------------------

add("angle real imag isreal iscomplex nan_to_num i0 sinc fix isneginf isposinf real_if_close iscomplexobj isrealobj",
    lambda d, f: ((d.array(),), {}))
add("round around", lambda d, f: (lambda x: ((x,), d.options(decimals=lambda: d.integer(-1, 3), out=lambda: d.output(f, (x,), {}))))(d.array()))


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
    kwargs = d.options(rtol=lambda: d.pick([0.1, 1e-5, d.like(a, "d")]), atol=lambda: d.pick([0.0, 1.0]), equal_nan=True)
    return ((a, b) if d.chance(0.7) else (b, a)), kwargs


add("array_equal array_equiv", lambda d, f: (lambda a: ((a, a if d.chance(0.4) else d.like(a)), {}))(d.array(high=2)))
add("select", lambda d, f: (lambda x: (([d.like(x, "?"), d.like(x, "?")], [x, d.like(x)]), d.options(default=lambda: d.number())))(d.array()))
add("choose", lambda d, f: (lambda x: ((x, [d.like(x), d.like(x)]), d.options(mode=lambda: d.pick(["clip", "wrap"]))))(d.array(dtypes="b")))
add("piecewise", lambda d, f: (lambda x: ((x, [Own(np.asarray(x.memory.real > 0), x.steps)] if isinstance(x, Own) else [x.memory > 0], [1.0, 2.0]), {}))(d.array(dtypes="fdq")))
add("nan_to_num", lambda d, f: ((d.array(),), d.options(nan=lambda: d.number("d"), posinf=1.5, copy=lambda: d.chance(0.5))))
add("copy", lambda d, f: ((d.array(),), d.options(order=lambda: d.pick("CFKA"))))
add("astype", lambda d, f: ((d.array(own=1), np.dtype(d.pick(ALL))), d.options(copy=False)))
add("interp", lambda d, f: ((d.array(0, 2, "fdq"), np.sort(d.rng.normal(size=3)), d.array(shape=(3,), dtypes="fdD", own=0.5)), d.options(left=0.5, right=lambda: d.number("d"), period=lambda: d.pick([None, 2.0]))), exact=False)
add("unwrap", lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axis(x))))(d.array(low=1, dtypes="fdq")), exact=False)
add("digitize", searched)

# -- creation ----------------------------------------------------------------------------------------------------------


def filled(d, f):
    x = d.array()
    value = d.pick([lambda: d.number(), lambda: d.plain(x.shape), lambda: d.like(x), lambda: d.own(()), lambda: d.plain((d.n_samples,))])()
    return (x, value), d.options(dtype=lambda: np.dtype(d.pick(ALL)), shape=lambda: d.shape(0, 2), order=lambda: d.pick("CFKA"), subok=False)


add("full_like", filled, weight=3)
add("zeros_like ones_like", lambda d, f: ((d.array(own=1),), d.options(dtype=lambda: np.dtype(d.pick(ALL)), shape=lambda: d.shape(0, 2), order=lambda: d.pick("CFKA"))))
add("linspace", lambda d, f: ((d.array(0, 2, "dfqD"), d.array(0, 0, "dfq", own=0.5)), {"num": d.integer(1, 5), **d.options(endpoint=False, axis=-1, dtype=lambda: np.dtype(d.pick("dq")))}), exact=False)
add("geomspace logspace", lambda d, f: ((d.array(0, 1, "d"), 3.0), {"num": 3}), exact=False)
add("tril triu", lambda d, f: ((d.array(1, 3),), d.options(k=lambda: d.integer(-2, 3))), weight=2)
add("diag diagflat", lambda d, f: ((d.array(0, 3),), d.options(k=lambda: d.integer(-2, 3))))
add("vander", lambda d, f: ((d.array(1, 2, "bqfd"),), d.options(N=3, increasing=True)), exact=False)
add("meshgrid", lambda d, f: ((d.array(0, 1), d.array(0, 1), d.array(1, 1))[: d.integer(1, 4)], d.options(indexing="ij", sparse=True, copy=lambda: d.chance(0.5))))
add("asarray asanyarray array ascontiguousarray", lambda d, f: ((d.array(own=1),), {}))

# -- shapes ------------------------------------------------------------------------------------------------------------


def reshaped(d, f):
    x = d.array()
    n = int(np.prod(x.shape))
    shapes = [(-1,), -1, (n,), n, (1, n), (n, 1), x.shape[::-1], (*x.shape, 1), (d.pick([2, 3]), -1)]
    return (x, d.pick(shapes)), d.options(order=lambda: d.pick("CCFA"), copy=lambda: d.pick([True, False]))


add("reshape", reshaped, weight=2)
add("ravel", lambda d, f: ((d.array(),), d.options(order=lambda: d.pick("CFAK"))), weight=2)
add("transpose", lambda d, f: (lambda x: ((x,), d.options(axes=lambda: tuple(int(k) for k in d.rng.permutation(len(x.shape))))))(d.array()))
add("permute_dims", lambda d, f: (lambda x: ((x,), d.options(axes=lambda: [int(k) for k in d.rng.permutation(len(x.shape))])))(d.array()))
add("swapaxes", lambda d, f: (lambda x: ((x, d.axis(x), d.axis(x)), {}))(d.array(low=1)))
add("moveaxis", lambda d, f: (lambda x: ((x, d.axis(x), d.axis(x)) if d.chance(0.6) else (x, [0, 1], [-1, 0]), {}))(d.array(low=1)))
add("rollaxis", lambda d, f: (lambda x: ((x, d.axis(x)), d.options(start=lambda: d.axis(x))))(d.array(low=1)))
add("matrix_transpose", lambda d, f: ((d.array(low=1),), {}))
add("squeeze", lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axes(x))))(d.array()))
add("expand_dims", lambda d, f: (lambda x: ((x, d.pick([0, -1, (0, 1), len(x.shape)])), {}))(d.array()))
add("flip", lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axes(x))))(d.array()))
add("fliplr flipud", lambda d, f: ((d.array(),), {}))
add("rot90", lambda d, f: ((d.array(low=1),), d.options(k=lambda: d.integer(-1, 4), axes=lambda: d.pick([(0, 1), (1, 0), (0, -1)]))), weight=2)
add("atleast_1d atleast_2d atleast_3d", lambda d, f: (tuple(d.array() for _ in range(d.pick([1, 1, 2]))), {}))
add("broadcast_to", lambda d, f: (lambda x: ((x, d.pick([(2, *x.shape), x.shape, (3, 2, *x.shape)])), {}))(d.array()))
add("broadcast_arrays", lambda d, f: (lambda x: ((x, d.like(x)), {}))(d.array()))
add("split array_split", lambda d, f: (lambda x: ((x, d.pick([1, 2, 3, [1], [1, 2], [0, 2, 5]])), d.options(axis=lambda: d.axis(x))))(d.array(low=1)), weight=2)
add("hsplit vsplit dsplit", lambda d, f: ((d.array(low=1), d.pick([1, 2, 3, [1], [1, 2]])), {}))
add("unstack", lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axis(x))))(d.array(low=1)))
add("roll", lambda d, f: (lambda x: ((x, d.pick([1, -2, (1, 2)])), d.options(axis=lambda: d.axes(x))))(d.array()))
add("tile", lambda d, f: ((d.array(), d.pick([2, (2,), (2, 1), (1, 2, 2), 0])), {}))
add("repeat", lambda d, f: repeated(d))
add("concatenate", lambda d, f: joined(d, f), weight=2)
add("stack", lambda d, f: joined(d, f, equal=True))
add("hstack vstack dstack column_stack", lambda d, f: (lambda r: (r[0], {k: v for k, v in r[1].items() if k in ("dtype", "casting") and f.__name__ in ("hstack", "vstack")}))(joined(d, f)))
add("append", lambda d, f: (lambda x: ((x, d.array(shape=x.shape, own=0.5)), d.options(axis=lambda: d.axis(x))))(d.array()))
add("block", lambda d, f: (lambda x: (([[x, d.array(shape=x.shape, own=0.5)], [x, x]],), {}))(d.array(2, 2)))
add("insert", lambda d, f: (lambda x: ((x, d.pick([0, 1, [0, 1]]), d.number()), d.options(axis=lambda: d.axis(x))))(d.array(low=1)))
add("delete", lambda d, f: (lambda x: ((x, d.pick([0, [0, 1], slice(0, 2)])), d.options(axis=lambda: d.axis(x))))(d.array(low=1)))
add("resize", lambda d, f: ((d.array(), d.pick([3, (2, 2), (4, 3)])), {}))
add("pad", lambda d, f: ((d.array(low=1), d.pick([1, (1, 2)])), d.options(mode=lambda: d.pick(["constant", "edge", "wrap", "reflect"]))))
add("trim_zeros", lambda d, f: ((d.array(1, 1, "qd"),), {}))
add("compress", lambda d, f: ((np.array([True, False, True]), d.array(low=1)), d.options(axis=0)))
add("extract", lambda d, f: (lambda x: ((Own(x.memory > 0) if isinstance(x, Own) else x.memory > 0, x), {}))(d.array(dtypes="fdq")))


def joined(d, f, equal=False):
    x = d.array(low=0 if equal else 1)
    parts = [x, *(d.array(shape=x.shape, own=0.5) for _ in range(d.integer(0, 3)))]
    if d.chance(0.3):
        parts = parts[::-1]
    options = {"axis": lambda: d.pick([None, d.axis(x), 0, -1]) if not equal else d.axis(x), "dtype": lambda: np.dtype(d.pick("fdDq")), "casting": "unsafe"}
    kwargs = d.options(**options)
    if d.chance(0.1) and "dtype" not in kwargs:
        kwargs["out"] = d.output(f, (parts,), kwargs)
    return (parts if d.chance(0.7) else tuple(parts),), kwargs


def repeated(d):
    x = d.array()
    axis = d.axis(x) if len(x.shape) else None
    kwargs = d.options(axis=axis)
    n = x.shape[axis] if kwargs.get("axis") is not None else int(np.prod(x.shape))
    return (x, d.pick([2, 0, [2], (d.rng.integers(0, 3, size=n)).tolist(), d.rng.integers(0, 3, size=n)])), kwargs


def taken(d, f):
    x = d.array(low=1)
    kwargs = d.options(axis=lambda: d.axis(x), mode=lambda: d.pick(["clip", "wrap", "raise"]))
    n = max(1, x.shape[kwargs["axis"]] if "axis" in kwargs else int(np.prod(x.shape)))
    i = d.pick([lambda: d.integer(-n, n), lambda: d.rng.integers(-n, n, size=2), lambda: d.rng.integers(0, n, size=(2, 2)),
                lambda: Own(d.rng.integers(-n, n, size=(2, d.n_samples))), lambda: Own(d.rng.integers(-n, n, size=(d.n_samples,))), lambda: [0, n - 1]])()
    return (x, i), kwargs


add("take", taken, weight=2)


def taken_along(d, f):
    x = d.array(low=1)
    axis = d.axis(x)
    shape = list(x.shape)
    shape[axis] = 2
    n = x.shape[axis]
    low = -n
    i = Own(d.rng.integers(low, n, size=(*shape, d.n_samples))) if d.chance(0.6) else d.rng.integers(low, n, size=shape)
    return (x, i), ({"axis": axis} if d.chance(0.9) else {})


add("take_along_axis", taken_along)
add("argpartition", lambda d, f: (lambda x: ((x, 0), {}))(d.array(shape=(1,))))
add("diff", lambda d, f: (lambda x: ((x,), d.options(n=lambda: d.integer(0, 3), axis=lambda: d.axis(x), prepend=lambda: d.number(x.dtype.char), append=lambda: d.array(shape=x.shape))))(d.array(low=1)), weight=2)
add("ediff1d", lambda d, f: ((d.array(),), d.options(to_end=lambda: d.plain((2,), "b"), to_begin=0)))
add("gradient", lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axis(x), edge_order=2)))(d.array(low=1, dtypes="fdq")), exact=False)
add("trapezoid", lambda d, f: (lambda x: ((x,), d.options(dx=0.5, axis=lambda: d.axis(x))))(d.array(low=1, dtypes="fdq")), exact=False)
add("copyto", lambda d, f: (lambda x: ((x, d.like(x)), d.options(casting=lambda: d.pick(["unsafe", "same_kind"]), where=lambda: d.mask(x))))(d.array(own=1)))
add("put", lambda d, f: ((d.array(low=1, own=1), [0, 1], d.number()), {}))
add("putmask place", lambda d, f: (lambda x: ((x, d.mask(x), [1, 2]), {}))(d.array(low=1, own=1)))
add("fill_diagonal", lambda d, f: ((d.array(shape=(3, 3), own=1), d.number()), {}))
add("put_along_axis", lambda d, f: ((d.array(shape=(3, 3), own=1), np.array([[0, 1, 2]]), d.number(), 0), {}))
add("ndim shape size", lambda d, f: ((d.array(own=1),), {}))
add("result_type can_cast", lambda d, f: ((d.array(own=1), np.dtype(d.pick(ALL))), {}))
add("result_type", lambda d, f: ((d.array(own=1), d.pick([1, 1.0, 1j, True, np.dtype(d.pick(ALL))])), {}))
add("common_type min_scalar_type", lambda d, f: ((d.array(own=1),), {}))
add("apply_along_axis", lambda d, f: (lambda x: ((lambda v: v[:1] if len(v) else v, d.axis(x), x), {}))(d.array(low=1)))

# -- linear algebra ----------------------------------------------------------------------------------------------------

add("dot inner vdot", lambda d, f: (products(d, f)[0], {}), exact=False, weight=2)
add("outer kron", lambda d, f: ((d.array(0, 2), d.array(0, 2, own=0.5)), {}), exact=False)
add("tensordot", lambda d, f: (lambda n, m: ((d.array(shape=(2, n, m), dtypes="qdfD"), d.array(shape=(n, m), dtypes="qdf", own=0.5)), d.options(axes=lambda: d.pick([2, ((1, 2), (0, 1)), (1, 0), ([1], [0]), 0]))))(d.pick([3, d.n_samples]), d.pick([3, 2])), exact=False)
add("cross", lambda d, f: ((d.array(shape=d.pick([(3,), (2, 3), (3, 3)]), dtypes="qdf"), d.array(shape=d.pick([(3,), (3, 3)]), dtypes="qd", own=0.5)), d.options(axis=-1)), exact=False)
add("trace", lambda d, f: ((d.array(2, 3),), d.options(offset=1, axis1=1, axis2=0, dtype=np.dtype("d"))), exact=False)
add("diagonal", lambda d, f: ((d.array(2, 3),), d.options(offset=lambda: d.integer(-1, 2), axis1=lambda: d.pick([0, 1, -1]), axis2=lambda: d.pick([0, 1, -2]))))
EINSUMS = ["ii->i", "ii", "ij->ji", "ij,jk", "ij,j->i", "i,i", "ij->j", "ij->", "...i->...", "ij,jk->ik", "i...->...i", "ij,ij->ij"]
add("einsum", lambda d, f: einsums(d, f), exact=False, weight=2)


def einsums(d, f):
    form = d.pick(EINSUMS)
    n = d.pick([3, d.n_samples, 2])
    shapes = {"i": (n,), "...i": (2, n), "i...": (n, 3)}
    operands = [d.array(shape=shapes.get(part, (n,) * len(part)), dtypes="qdfD", own=0.8) for part in form.split("->")[0].split(",")]
    return (form, *operands), d.options(optimize=True)


def matrices(kinds="fdFD", regular=True, symmetric=False):
    def make(d, f):
        n = d.pick([d.n_samples, 2, 3, 1])
        x = d.own((*((2,) * d.integer(0, 2)), n, n), d.pick(kinds))
        m = np.nan_to_num(d.rng.normal(size=x.memory.shape)).astype(x.dtype)
        if x.dtype.kind == "c":
            m = (m + 1j * d.rng.normal(size=m.shape)).astype(m.dtype)
        m = m + 3 * np.eye(n, dtype=m.dtype)[..., None]
        if symmetric:
            m = m + np.conj(np.swapaxes(m, -2, -3))
        if symmetric == 2:
            m = np.einsum("...iks,...jks->...ijs", m, np.conj(m)).astype(m.dtype)
        return (Own(np.ascontiguousarray(m)),), {}

    return make


LA = np.linalg
add("det inv pinv slogdet svdvals matrix_norm matrix_rank eigvals cond", matrices(), module=LA, exact=False, memory=False)
add("cholesky eigvalsh", matrices(symmetric=2), module=LA, exact=False)
add("matrix_power", lambda d, f: ((*matrices()(d, f)[0], d.integer(-2, 4)), {}), module=LA, exact=False)
add("qr", lambda d, f: (matrices()(d, f)[0], d.options(mode=lambda: d.pick(["r", "complete"]))), module=LA, exact=False)
add("solve", lambda d, f: (lambda a: ((*a, d.array(shape=d.pick([a[0].shape[-1:], (*a[0].shape[:-1], 2), (a[0].shape[-1], 2)]), dtypes="fd")), {}))(matrices()(d, f)[0]), module=LA, exact=False)
add("lstsq", lambda d, f: ((Own(d.rng.normal(size=(4, 2, d.n_samples))), d.array(shape=(4,), dtypes="d")), {"rcond": None}), module=LA, exact=False)
add("norm", lambda d, f: normed(d), module=LA, exact=False, weight=3)
add("vector_norm", lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axes(x), ord=lambda: d.pick([1, 2, 0, np.inf, -np.inf, 3]), keepdims=True)))(d.array(dtypes="fdFDq?")), module=LA, exact=False)
add("vecdot matmul", lambda d, f: (products(d, None)[0], {}), module=LA, exact=False)
add("outer cross", lambda d, f: ((d.array(shape=(3,)), d.array(shape=(3,), own=0.5)), {}), module=LA, exact=False)
add("trace diagonal", lambda d, f: ((d.array(2, 3),), d.options(offset=lambda: d.integer(-1, 2))), module=LA, exact=False)
add("tensordot", lambda d, f: ((d.array(shape=(2, 3), dtypes="qd"), d.array(shape=(3, 2), dtypes="qd", own=0.5)), {"axes": 1}), module=LA, exact=False)
add("multi_dot", lambda d, f: (([d.array(shape=(2, 3), dtypes="qd"), d.array(shape=(3, 4), dtypes="qd"), d.array(shape=(4, 2), dtypes="d")],), {}), module=LA, exact=False)
add("matrix_transpose", lambda d, f: ((d.array(1, 3),), {}), module=LA)


def normed(d):
    x = d.array(dtypes="fdFDq?")
    n = len(x.shape)
    axis = d.pick([None, None, d.axis(x), (0, 1) if n > 1 else 0, (-1, 0) if n > 2 else -1])
    order = d.pick([None, None, 1, 2, np.inf, -np.inf, 0, 3, "fro", "nuc", -1])
    return (x,), {k: v for k, v in d.options(axis=axis, ord=order, keepdims=True).items()}


# -- Fourier transforms, statistics, polynomials -----------------------------------------------------------------------

FFT = np.fft
add("fft ifft rfft irfft hfft ihfft", lambda d, f: (lambda x: ((x,), d.options(n=lambda: d.integer(1, 6), axis=lambda: d.axis(x), norm=lambda: d.pick(["ortho", "forward", None]))))(d.array(low=1, dtypes="fdqD")), module=FFT, exact=False)
add("fftn ifftn rfftn irfftn fft2 ifft2 rfft2 irfft2", lambda d, f: (lambda x: ((x,), d.options(axes=lambda: d.pick([(0,), (0, 1), (-1,)]), norm="ortho", s=lambda: d.pick([(2,), (2, 3), None]))))(d.array(low=1, dtypes="fdqD")), module=FFT, exact=False)
add("fftshift ifftshift", lambda d, f: (lambda x: ((x,), d.options(axes=lambda: d.axes(x))))(d.array(low=1)), module=FFT)
add("cov corrcoef", lambda d, f: ((d.array(1, 2, "fdq"),), d.options(rowvar=False)), exact=False)
add("convolve correlate", lambda d, f: ((d.array(1, 1, "fdqD"), d.array(1, 1, "fdq", own=0.5)), d.options(mode=lambda: d.pick(["full", "same", "valid"]))), exact=False)
add("histogram", lambda d, f: ((d.array(1, 2, "q"),), d.options(bins=lambda: d.pick([3, [0, 1, 2]]), range=(0, 3))), exact=False)
add("bincount", lambda d, f: ((Own(d.rng.integers(0, 3, size=(4, d.n_samples))),), {"minlength": 3}))
add("poly roots", lambda d, f: ((d.array(shape=(3,), dtypes="d"),), {}), exact=False, memory=False)
add("polyval", lambda d, f: ((d.array(shape=(3,), dtypes="qd"), d.array(0, 2, "qd")), {}), exact=False)
add("polyadd polysub polymul", lambda d, f: ((d.array(shape=(3,), dtypes="qd"), d.array(shape=(2,), dtypes="qd")), {}), exact=False)
add("polyder polyint", lambda d, f: ((d.array(shape=(3,), dtypes="qd"),), {}), exact=False)
