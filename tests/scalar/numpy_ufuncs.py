"""Random calls of ufuncs, their methods, and the operators."""

from __future__ import annotations

import operator

import numpy as np

from tests.scalar.numpy_table import ALL, CALLS, FLOAT, INTEGER, REAL, add


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


add(
    "absolute negative positive sign conjugate square reciprocal sqrt exp expm1 log log1p log2 log10 sin cos tan sinh "
    "cosh tanh arcsin arccos arctan arcsinh arccosh arctanh isfinite isinf isnan logical_not",
    unary(ALL),
)
add("floor ceil trunc rint signbit fabs cbrt deg2rad rad2deg exp2 spacing degrees radians isnat", unary(REAL))
add("invert", unary("?bBhiIqQ"))
add(
    "add subtract multiply divide power maximum minimum fmax fmin equal not_equal less less_equal greater "
    "greater_equal logical_and logical_or logical_xor float_power",
    binary(ALL),
    weight=2,
)
add("floor_divide remainder fmod arctan2 hypot logaddexp logaddexp2 copysign nextafter heaviside", binary(REAL))
add("bitwise_and bitwise_or bitwise_xor", binary("?bBhiIq"))
add("left_shift right_shift gcd lcm", binary("bBhiIq"))
add("ldexp", binary(FLOAT, "bhi"))
add("bitwise_count", unary(INTEGER))
add("modf frexp", lambda d, f: ((d.array(dtypes=FLOAT),), {}))
add("divmod", lambda d, f: (lambda a: ((a, d.like(a, REAL)), {}))(d.array(dtypes=REAL)))
add("matmul vecdot matvec vecmat", lambda d, f: products(d, f), exact=False, weight=2)
add(
    "add sub mul truediv floordiv mod pow lt le gt ge eq ne and_ or_ xor",
    lambda d, f: (pair(d, ALL), {}),
    module=operator,
)
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
    kwargs = d.options(
        axis=lambda: d.axes(x),
        keepdims=True,
        dtype=lambda: np.dtype(d.pick("dDq")),
        initial=lambda: d.number(x.dtype.char),
    )
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
    i = d.pick(
        [
            lambda: d.rng.integers(-n, n, size=3),
            lambda: d.integer(-n, n),
            lambda: slice(None),
            lambda: d.own((2,), "q") if False else d.rng.integers(0, n, size=(2,)),
        ]
    )()
    return (d.pick([np.add, np.multiply, np.maximum]), x, i, d.number(x.dtype.char)), {}


CALLS["ufunc.at"] = (lambda u, x, i, v: u.at(x, i, v), at, True, 1, True)
