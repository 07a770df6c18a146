"""Random calls of functions that move, join and repeat entries."""

from __future__ import annotations

import numpy as np

from tests.scalar.numpy_calls import Own
from tests.scalar.numpy_table import ALL, add


def reshaped(d, f):
    x = d.array()
    n = int(np.prod(x.shape))
    shapes = [(-1,), -1, (n,), n, (1, n), (n, 1), x.shape[::-1], (*x.shape, 1), (d.pick([2, 3]), -1)]
    return (x, d.pick(shapes)), d.options(order=lambda: d.pick("CCFA"), copy=lambda: d.pick([True, False]))


add("reshape", reshaped, weight=2)
add("ravel", lambda d, f: ((d.array(),), d.options(order=lambda: d.pick("CFAK"))), weight=2)
add(
    "transpose",
    lambda d, f: (lambda x: ((x,), d.options(axes=lambda: tuple(int(k) for k in d.rng.permutation(len(x.shape))))))(
        d.array()
    ),
)
add(
    "permute_dims",
    lambda d, f: (lambda x: ((x,), d.options(axes=lambda: [int(k) for k in d.rng.permutation(len(x.shape))])))(
        d.array()
    ),
)
add("swapaxes", lambda d, f: (lambda x: ((x, d.axis(x), d.axis(x)), {}))(d.array(low=1)))
add(
    "moveaxis",
    lambda d, f: (lambda x: ((x, d.axis(x), d.axis(x)) if d.chance(0.6) else (x, [0, 1], [-1, 0]), {}))(d.array(low=1)),
)
add("rollaxis", lambda d, f: (lambda x: ((x, d.axis(x)), d.options(start=lambda: d.axis(x))))(d.array(low=1)))
add("matrix_transpose", lambda d, f: ((d.array(low=1),), {}))
add("squeeze", lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axes(x))))(d.array()))
add("expand_dims", lambda d, f: (lambda x: ((x, d.pick([0, -1, (0, 1), len(x.shape)])), {}))(d.array()))
add("flip", lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axes(x))))(d.array()))
add("fliplr flipud", lambda d, f: ((d.array(),), {}))
add(
    "rot90",
    lambda d, f: (
        (d.array(low=1),),
        d.options(k=lambda: d.integer(-1, 4), axes=lambda: d.pick([(0, 1), (1, 0), (0, -1)])),
    ),
    weight=2,
)
add("atleast_1d atleast_2d atleast_3d", lambda d, f: (tuple(d.array() for _ in range(d.pick([1, 1, 2]))), {}))
add("broadcast_to", lambda d, f: (lambda x: ((x, d.pick([(2, *x.shape), x.shape, (3, 2, *x.shape)])), {}))(d.array()))
add("broadcast_arrays", lambda d, f: (lambda x: ((x, d.like(x)), {}))(d.array()))
add(
    "split array_split",
    lambda d, f: (lambda x: ((x, d.pick([1, 2, 3, [1], [1, 2], [0, 2, 5]])), d.options(axis=lambda: d.axis(x))))(
        d.array(low=1)
    ),
    weight=2,
)
add("hsplit vsplit dsplit", lambda d, f: ((d.array(low=1), d.pick([1, 2, 3, [1], [1, 2]])), {}))
add("unstack", lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axis(x))))(d.array(low=1)))
add("roll", lambda d, f: (lambda x: ((x, d.pick([1, -2, (1, 2)])), d.options(axis=lambda: d.axes(x))))(d.array()))
add("tile", lambda d, f: ((d.array(), d.pick([2, (2,), (2, 1), (1, 2, 2), 0])), {}))
add("repeat", lambda d, f: repeated(d))
add("concatenate", lambda d, f: joined(d, f), weight=2)
add("stack", lambda d, f: joined(d, f, equal=True))
add(
    "hstack vstack dstack column_stack",
    lambda d, f: (
        lambda r: (
            r[0],
            {k: v for k, v in r[1].items() if k in ("dtype", "casting") and f.__name__ in ("hstack", "vstack")},
        )
    )(joined(d, f)),
)
add(
    "append",
    lambda d, f: (lambda x: ((x, d.array(shape=x.shape, own=0.5)), d.options(axis=lambda: d.axis(x))))(d.array()),
)
add("block", lambda d, f: (lambda x: (([[x, d.array(shape=x.shape, own=0.5)], [x, x]],), {}))(d.array(2, 2)))
add(
    "insert",
    lambda d, f: (lambda x: ((x, d.pick([0, 1, [0, 1]]), d.number()), d.options(axis=lambda: d.axis(x))))(
        d.array(low=1)
    ),
)
add(
    "delete",
    lambda d, f: (lambda x: ((x, d.pick([0, [0, 1], slice(0, 2)])), d.options(axis=lambda: d.axis(x))))(d.array(low=1)),
)
add("resize", lambda d, f: ((d.array(), d.pick([3, (2, 2), (4, 3)])), {}))
add(
    "pad",
    lambda d, f: (
        (d.array(low=1), d.pick([1, (1, 2)])),
        d.options(mode=lambda: d.pick(["constant", "edge", "wrap", "reflect"])),
    ),
)
add("trim_zeros", lambda d, f: ((d.array(1, 1, "qd"),), {}))
add("compress", lambda d, f: ((np.array([True, False, True]), d.array(low=1)), d.options(axis=0)))
add(
    "extract",
    lambda d, f: (lambda x: ((Own(x.memory > 0) if isinstance(x, Own) else x.memory > 0, x), {}))(
        d.array(dtypes="fdq")
    ),
)


def joined(d, f, equal=False):
    x = d.array(low=0 if equal else 1)
    parts = [x, *(d.array(shape=x.shape, own=0.5) for _ in range(d.integer(0, 3)))]
    if d.chance(0.3):
        parts = parts[::-1]
    options = {
        "axis": lambda: d.pick([None, d.axis(x), 0, -1]) if not equal else d.axis(x),
        "dtype": lambda: np.dtype(d.pick("fdDq")),
        "casting": "unsafe",
    }
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
    n = x.shape[kwargs["axis"]] if "axis" in kwargs else int(np.prod(x.shape))
    if not n:
        kwargs.pop("mode", None)  # NumPy's "wrap" of nothing does not end
        n = 1
    i = d.pick(
        [
            lambda: d.integer(-n, n),
            lambda: d.rng.integers(-n, n, size=2),
            lambda: d.rng.integers(0, n, size=(2, 2)),
            lambda: Own(d.rng.integers(-n, n, size=(2, d.n_samples))),
            lambda: Own(d.rng.integers(-n, n, size=(d.n_samples,))),
            lambda: [0, n - 1],
        ]
    )()
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
add(
    "diff",
    lambda d, f: (
        lambda x: (
            (x,),
            d.options(
                n=lambda: d.integer(0, 3),
                axis=lambda: d.axis(x),
                prepend=lambda: d.number(x.dtype.char),
                append=lambda: d.array(shape=x.shape),
            ),
        )
    )(d.array(low=1)),
    weight=2,
)
add("ediff1d", lambda d, f: ((d.array(),), d.options(to_end=lambda: d.plain((2,), "b"), to_begin=0)))
add(
    "gradient",
    lambda d, f: (lambda x: ((x,), d.options(axis=lambda: d.axis(x), edge_order=2)))(d.array(low=1, dtypes="fdq")),
    exact=False,
)
add(
    "trapezoid",
    lambda d, f: (lambda x: ((x,), d.options(dx=0.5, axis=lambda: d.axis(x))))(d.array(low=1, dtypes="fdq")),
    exact=False,
)
add(
    "copyto",
    lambda d, f: (
        lambda x: ((x, d.like(x)), d.options(casting=lambda: d.pick(["unsafe", "same_kind"]), where=lambda: d.mask(x)))
    )(d.array(own=1)),
)
add("put", lambda d, f: ((d.array(low=1, own=1), [0, 1], d.number()), {}))
add("putmask place", lambda d, f: (lambda x: ((x, d.mask(x), [1, 2]), {}))(d.array(low=1, own=1)))
add("fill_diagonal", lambda d, f: ((d.array(shape=(3, 3), own=1), d.number()), {}))
add("put_along_axis", lambda d, f: ((d.array(shape=(3, 3), own=1), np.array([[0, 1, 2]]), d.number(), 0), {}))
add("ndim shape size", lambda d, f: ((d.array(own=1),), {}))
add("result_type can_cast", lambda d, f: ((d.array(own=1), np.dtype(d.pick(ALL))), {}))
add("result_type", lambda d, f: ((d.array(own=1), d.pick([1, 1.0, 1j, True, np.dtype(d.pick(ALL))])), {}))
add("common_type min_scalar_type", lambda d, f: ((d.array(own=1),), {}))
add("apply_along_axis", lambda d, f: (lambda x: ((lambda v: v[:1] if len(v) else v, d.axis(x), x), {}))(d.array(low=1)))
