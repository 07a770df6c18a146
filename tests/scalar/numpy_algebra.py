"""Random calls of linear algebra, Fourier transforms, statistics and polynomials."""

from __future__ import annotations

import numpy as np

from tests.scalar.numpy_calls import Own
from tests.scalar.numpy_table import add
from tests.scalar.numpy_ufuncs import products

add("dot inner vdot", lambda d, f: (products(d, f)[0], {}), exact=False, weight=2)
add("outer kron", lambda d, f: ((d.array(0, 2), d.array(0, 2, own=0.5)), {}), exact=False)
add(
    "tensordot",
    lambda d, f: (
        lambda n, m: (
            (d.array(shape=(2, n, m), dtypes="qdfD"), d.array(shape=(n, m), dtypes="qdf", own=0.5)),
            d.options(axes=lambda: d.pick([2, ((1, 2), (0, 1)), (1, 0), ([1], [0]), 0])),
        )
    )(d.pick([3, d.n_samples]), d.pick([3, 2])),
    exact=False,
)
add(
    "cross",
    lambda d, f: (
        (
            d.array(shape=d.pick([(3,), (2, 3), (3, 3)]), dtypes="qdf"),
            d.array(shape=d.pick([(3,), (3, 3)]), dtypes="qd", own=0.5),
        ),
        d.options(axis=-1),
    ),
    exact=False,
)
add("trace", lambda d, f: ((d.array(2, 3),), d.options(offset=1, axis1=1, axis2=0, dtype=np.dtype("d"))), exact=False)
add(
    "diagonal",
    lambda d, f: (
        (d.array(2, 3),),
        d.options(offset=lambda: d.integer(-1, 2), axis1=lambda: d.pick([0, 1, -1]), axis2=lambda: d.pick([0, 1, -2])),
    ),
)
EINSUMS = [
    "ii->i",
    "ii",
    "ij->ji",
    "ij,jk",
    "ij,j->i",
    "i,i",
    "ij->j",
    "ij->",
    "...i->...",
    "ij,jk->ik",
    "i...->...i",
    "ij,ij->ij",
]
add("einsum", lambda d, f: einsums(d, f), exact=False, weight=2)


def einsums(d, f):
    form = d.pick(EINSUMS)
    n = d.pick([3, d.n_samples, 2])
    shapes = {"i": (n,), "...i": (2, n), "i...": (n, 3)}
    operands = [
        d.array(shape=shapes.get(part, (n,) * len(part)), dtypes="qdfD", own=0.8)
        for part in form.split("->")[0].split(",")
    ]
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
add(
    "det inv pinv slogdet svdvals matrix_norm matrix_rank eigvals cond",
    matrices(),
    module=LA,
    exact=False,
    memory=False,
)
add("cholesky eigvalsh", matrices(symmetric=2), module=LA, exact=False)
add("matrix_power", lambda d, f: ((*matrices()(d, f)[0], d.integer(-2, 4)), {}), module=LA, exact=False)
add("qr", lambda d, f: (matrices()(d, f)[0], d.options(mode=lambda: d.pick(["r", "complete"]))), module=LA, exact=False)
add(
    "solve",
    lambda d, f: (
        lambda a: (
            (*a, d.array(shape=d.pick([a[0].shape[-1:], (*a[0].shape[:-1], 2), (a[0].shape[-1], 2)]), dtypes="fd")),
            {},
        )
    )(matrices()(d, f)[0]),
    module=LA,
    exact=False,
)
add(
    "lstsq",
    lambda d, f: ((Own(d.rng.normal(size=(4, 2, d.n_samples))), d.array(shape=(4,), dtypes="d")), {"rcond": None}),
    module=LA,
    exact=False,
)
add("norm", lambda d, f: normed(d), module=LA, exact=False, weight=3)
add(
    "vector_norm",
    lambda d, f: (
        lambda x: (
            (x,),
            d.options(axis=lambda: d.axes(x), ord=lambda: d.pick([1, 2, 0, np.inf, -np.inf, 3]), keepdims=True),
        )
    )(d.array(dtypes="fdFDq?")),
    module=LA,
    exact=False,
)
add("vecdot matmul", lambda d, f: (products(d, None)[0], {}), module=LA, exact=False)
add("outer cross", lambda d, f: ((d.array(shape=(3,)), d.array(shape=(3,), own=0.5)), {}), module=LA, exact=False)
add(
    "trace diagonal",
    lambda d, f: ((d.array(2, 3),), d.options(offset=lambda: d.integer(-1, 2))),
    module=LA,
    exact=False,
)
add(
    "tensordot",
    lambda d, f: ((d.array(shape=(2, 3), dtypes="qd"), d.array(shape=(3, 2), dtypes="qd", own=0.5)), {"axes": 1}),
    module=LA,
    exact=False,
)
add(
    "multi_dot",
    lambda d, f: (
        ([d.array(shape=(2, 3), dtypes="qd"), d.array(shape=(3, 4), dtypes="qd"), d.array(shape=(4, 2), dtypes="d")],),
        {},
    ),
    module=LA,
    exact=False,
)
add("matrix_transpose", lambda d, f: ((d.array(1, 3),), {}), module=LA)


def normed(d):
    x = d.array(dtypes="fdFDq?")
    n = len(x.shape)
    axis = d.pick([None, None, d.axis(x), (0, 1) if n > 1 else 0, (-1, 0) if n > 2 else -1])
    order = d.pick([None, None, 1, 2, np.inf, -np.inf, 0, 3, "fro", "nuc", -1])
    return (x,), d.options(axis=axis, ord=order, keepdims=True)


FFT = np.fft
add(
    "fft ifft rfft irfft hfft ihfft",
    lambda d, f: (
        lambda x: (
            (x,),
            d.options(
                n=lambda: d.integer(1, 6), axis=lambda: d.axis(x), norm=lambda: d.pick(["ortho", "forward", None])
            ),
        )
    )(d.array(low=1, dtypes="fdqD")),
    module=FFT,
    exact=False,
)
add(
    "fftn ifftn rfftn irfftn fft2 ifft2 rfft2 irfft2",
    lambda d, f: (
        lambda x: (
            (x,),
            d.options(axes=lambda: d.pick([(0,), (0, 1), (-1,)]), norm="ortho", s=lambda: d.pick([(2,), (2, 3), None])),
        )
    )(d.array(low=1, dtypes="fdqD")),
    module=FFT,
    exact=False,
)
add(
    "fftshift ifftshift", lambda d, f: (lambda x: ((x,), d.options(axes=lambda: d.axes(x))))(d.array(low=1)), module=FFT
)
add("cov corrcoef", lambda d, f: ((d.array(1, 2, "fdq"),), d.options(rowvar=False)), exact=False)
add(
    "convolve correlate",
    lambda d, f: (
        (d.array(1, 1, "fdqD"), d.array(1, 1, "fdq", own=0.5)),
        d.options(mode=lambda: d.pick(["full", "same", "valid"])),
    ),
    exact=False,
)
add(
    "histogram",
    lambda d, f: ((d.array(1, 2, "q"),), d.options(bins=lambda: d.pick([3, [0, 1, 2]]), range=(0, 3))),
    exact=False,
)
add("bincount", lambda d, f: ((Own(d.rng.integers(0, 3, size=(4, d.n_samples))),), {"minlength": 3}))
add("poly roots", lambda d, f: ((d.array(shape=(3,), dtypes="d"),), {}), exact=False, memory=False)
add("polyval", lambda d, f: ((d.array(shape=(3,), dtypes="qd"), d.array(0, 2, "qd")), {}), exact=False)
add(
    "polyadd polysub polymul",
    lambda d, f: ((d.array(shape=(3,), dtypes="qd"), d.array(shape=(2,), dtypes="qd")), {}),
    exact=False,
)
add("polyder polyint", lambda d, f: ((d.array(shape=(3,), dtypes="qd"),), {}), exact=False)
