"""One case or more for every function of the lifted Array API: how to call it on drawn samples.

A case is (kind of data, call). `call(f, X)` gets the function and two ensembles, or two plain arrays of one sample;
it must give the same either way. `exact` cases agree to the bit; the others to round-off, as a library is free in the
order of its sums.
"""

from dataclasses import dataclass
from typing import Any

import array_api_compat
import array_api_strict
import numpy as np
import pytest

from ensemble._backend import is_array, to_numpy
from ensemble.scalar import Ensemble, namespace


def names(text):
    """The words of a text."""
    return text.split()


@dataclass
class Case:
    """How to call one function."""

    name: str
    call: Any
    kind: str = "real"
    shapes: tuple = ((3, 4), (4,))
    exact: bool = True
    missing: tuple = ()  # libraries whose own function cannot do this, so that there is nothing to compare with

    def __str__(self):
        return self.name


UNARY_REAL = names(
    "abs atan asinh ceil cos cosh exp expm1 floor isfinite isinf isnan negative positive round sign signbit sin sinh "
    "square tan tanh trunc conj real reciprocal"
)
UNARY_POSITIVE = names("sqrt log log10 log1p log2")
UNARY_UNIT = names("acos asin atanh")
BINARY_REAL = names(
    "add atan2 copysign divide equal greater greater_equal hypot less less_equal logaddexp maximum minimum multiply "
    "nextafter not_equal subtract floor_divide remainder"
)
BINARY_INTEGER = names("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift")
BINARY_BOOL = names("logical_and logical_or logical_xor")
REDUCTIONS = names("sum prod mean max min std var")


def one(f, xp, a, b):
    return f(a)


def two(f, xp, a, b):
    return f(a, b)


CASES = [
    *(Case(name, one) for name in UNARY_REAL),
    *(Case(name, one, "positive") for name in UNARY_POSITIVE),
    *(Case(name, one, "unit") for name in UNARY_UNIT),
    *(Case(name, one, "special") for name in ["isfinite", "isinf", "isnan", "abs", "sign", "square"]),
    *(Case(name, two, "integer") for name in ["equal", "not_equal", "less", "maximum"]),
    Case("acosh", lambda f, xp, a, b: f(a + 1.0), "positive"),
    Case("imag", one, "complex"),
    Case("real", one, "complex"),
    Case("conj", one, "complex"),
    Case("exp", one, "complex"),
    Case("bitwise_invert", one, "integer"),
    Case("logical_not", one, "bool"),
    *(Case(name, two) for name in BINARY_REAL),
    *(Case(name, two, "integer") for name in BINARY_INTEGER),
    *(Case(name, two, "bool") for name in BINARY_BOOL),
    Case("pow", two, "positive"),
    Case("multiply", two, "complex"),
    Case("add", lambda f, xp, a, b: f(a, 1.5)),
    Case("subtract", lambda f, xp, a, b: f(1.5, a)),
    Case("clip", lambda f, xp, a, b: f(a, min=-0.5, max=0.5)),
    Case("clip", lambda f, xp, a, b: f(a, max=b)),
    Case("where", lambda f, xp, a, b: f(a > 0, a, b)),
    Case("where", lambda f, xp, a, b: f(a > 0, a, 1.0)),
    # reductions
    *(Case(n, lambda f, xp, a, b: f(a), exact=n in "max min") for n in REDUCTIONS),
    *(Case(n, lambda f, xp, a, b: f(a, axis=-1, keepdims=True), exact=n in "max min") for n in REDUCTIONS),
    *(Case(n, lambda f, xp, a, b: f(a, axis=(0, 1)), exact=n in "max min") for n in ["sum", "mean", "max", "min"]),
    Case("var", lambda f, xp, a, b: f(a, axis=0, correction=1.0), exact=False),
    *(Case(n, lambda f, xp, a, b: f(b[0, ...]), exact=False) for n in REDUCTIONS),  # of a value without axes
    *(Case(n, lambda f, xp, a, b: f(b[0, ...] > 0.0)) for n in ["all", "any", "count_nonzero"]),
    *(Case(n, lambda f, xp, a, b: f(a > 0, axis=-1)) for n in ["all", "any", "count_nonzero"]),
    *(Case(n, one) for n in ["argmax", "argmin"]),
    *(Case(n, lambda f, xp, a, b: f(a, axis=-1, keepdims=True)) for n in ["argmax", "argmin"]),
    *(Case(n, lambda f, xp, a, b: f(a, axis=-2)) for n in ["cumulative_sum", "cumulative_prod"]),
    Case("cumulative_sum", lambda f, xp, a, b: f(b, include_initial=True)),
    # shapes
    Case("broadcast_arrays", two),
    Case("broadcast_to", lambda f, xp, a, b: f(b, (2, 3, 4))),
    Case("concat", lambda f, xp, a, b: f([a, a], axis=-1)),
    Case("concat", lambda f, xp, a, b: f([a, b], axis=None)),
    Case("stack", lambda f, xp, a, b: f([b, b + 1.0], axis=-1)),
    Case("unstack", lambda f, xp, a, b: f(a, axis=-1)),
    Case("expand_dims", lambda f, xp, a, b: f(a, axis=-1)),
    Case("squeeze", lambda f, xp, a, b: f(a, axis=-2), shapes=((3, 1, 4), (4,))),
    Case("flip", one),
    Case("flip", lambda f, xp, a, b: f(a, axis=-1)),
    Case("moveaxis", lambda f, xp, a, b: f(a, 0, -1), shapes=((2, 3, 4), (4,))),
    Case("permute_dims", lambda f, xp, a, b: f(a, (2, 0, 1)), shapes=((2, 3, 4), (4,))),
    Case("matrix_transpose", one, shapes=((2, 3, 4), (4,))),
    Case("repeat", lambda f, xp, a, b: f(a, 2)),
    Case("repeat", lambda f, xp, a, b: f(a, xp.asarray([1, 0, 2, 1]), axis=-1)),
    Case("reshape", lambda f, xp, a, b: f(a, (2, -1))),
    Case("roll", lambda f, xp, a, b: f(a, 2)),
    Case("roll", lambda f, xp, a, b: f(a, (1, 2), axis=(0, -1))),
    Case("tile", lambda f, xp, a, b: f(a, (2, 1, 3))),
    # creation
    *(Case(n, lambda f, xp, a, b: f((2, 3)) + b[0]) for n in ["zeros", "ones"]),
    *(Case(n, one) for n in ["zeros_like", "ones_like"]),
    Case("empty", lambda f, xp, a, b: xp.zeros_like(f((2, 3))) + b[0]),
    Case("empty_like", lambda f, xp, a, b: xp.zeros_like(f(a))),
    Case("full", lambda f, xp, a, b: f((2,), 2.5) * b[0]),
    Case("full_like", lambda f, xp, a, b: f(a, 2.5)),
    Case("asarray", one),
    Case("arange", lambda f, xp, a, b: f(2.0, 12.0, 3.0) * b[0]),
    Case("linspace", lambda f, xp, a, b: f(0.0, 1.0, 7) * b[0]),
    Case("eye", lambda f, xp, a, b: f(3, 4, k=1) * a),
    Case("tril", one),
    Case("triu", lambda f, xp, a, b: f(a, k=1), shapes=((2, 3, 4), (4,))),
    Case("meshgrid", lambda f, xp, a, b: f(a[0, ...], b)),
    Case("meshgrid", lambda f, xp, a, b: f(a[0, ...], b, indexing="ij")),
    Case("from_dlpack", one),
    Case("astype", lambda f, xp, a, b: f(a, xp.float32)),
    # search
    Case("argsort", one),
    Case("argsort", lambda f, xp, a, b: f(a, axis=0, descending=True)),
    Case("sort", one),
    Case("diff", lambda f, xp, a, b: f(a, n=2)),
    Case("diff", lambda f, xp, a, b: f(b, prepend=b[:1], append=b[-1:])),
    Case("take", lambda f, xp, a, b: f(a, xp.asarray([2, 0]), axis=-1)),
    Case("take", lambda f, xp, a, b: f(a, xp.argsort(b), axis=-1)),
    Case("take_along_axis", lambda f, xp, a, b: f(a, xp.argsort(a, axis=-1), axis=-1)),
    Case("searchsorted", lambda f, xp, a, b: f(xp.sort(b), a[0, ...])),
    Case("searchsorted", lambda f, xp, a, b: f(b, a[0, ...], sorter=xp.argsort(b), side="right")),
    Case("isin", lambda f, xp, a, b: f(a, b), "integer"),
    Case("nonzero", lambda f, xp, a, b: f(a * 0.0 + xp.eye(3, 4))),
    Case("nonzero", lambda f, xp, a, b: f(xp.argsort(b) > 1)),
    *(Case(n, one) for n in ["unique_values", "unique_counts", "unique_inverse", "unique_all"]),
    # products
    Case("matmul", two, exact=False),
    Case("matmul", lambda f, xp, a, b: f(b, xp.matrix_transpose(a)), exact=False),
    Case("matmul", two, shapes=((2, 3, 4), (4, 5)), exact=False),
    Case("matmul", two, shapes=((4,), (4,)), exact=False),
    Case("matmul", two, shapes=((4,), (2, 4, 3)), exact=False),
    Case("tensordot", lambda f, xp, a, b: f(a, b, axes=1), exact=False),
    Case("tensordot", lambda f, xp, a, b: f(a, b, axes=((1,), (0,))), shapes=((3, 4), (4, 2)), exact=False),
    Case("vecdot", two, exact=False),
    Case("vecdot", two, "complex", exact=False),
    Case("vecdot", lambda f, xp, a, b: f(a, b, axis=-2), shapes=((3, 4), (3, 1)), exact=False),
]

SPD = ((4, 4), (4, 4))

LINALG_CASES = [
    Case("cholesky", lambda f, xp, a, b: f(a, upper=True), "spd", SPD, False),
    Case("cross", two, shapes=((2, 3), (3,))),
    Case("cross", lambda f, xp, a, b: f(a, b, axis=-2), shapes=((3, 2), (3, 1))),
    *(Case(n, one, "spd", SPD, False) for n in ["det", "inv", "pinv", "eigvalsh", "svdvals", "slogdet"]),
    Case("inv", one, "spd", ((2, 4, 4), (4, 4)), False),
    Case("matrix_power", lambda f, xp, a, b: f(a, 3), "spd", SPD, False),
    Case("eigh", lambda f, xp, a, b: f(a)[0], "spd", SPD, False),
    Case("qr", lambda f, xp, a, b: xp.abs(f(a)[1]), "real", ((4, 3), (4,)), False),
    Case("svd", lambda f, xp, a, b: f(a)[1], "real", ((4, 3), (4,)), False),
    Case("solve", two, "spd", SPD, False),
    Case("solve", lambda f, xp, a, b: f(a, b[0, ...]), "spd", SPD, False),
    Case("solve", two, "spd", ((4, 4), (2, 4, 4)), False, ("cupy",)),
    Case("solve", lambda f, xp, a, b: f(a, b[0, 0, ...]), "spd", ((2, 4, 4), (2, 4, 4)), False),
    Case("diagonal", lambda f, xp, a, b: f(a, offset=1), shapes=((2, 3, 4), (4,))),
    Case("trace", one, shapes=((2, 3, 4), (4,)), exact=False),
    Case("matrix_norm", one, shapes=((2, 3, 4), (4,)), exact=False),
    Case("matrix_norm", lambda f, xp, a, b: f(a, ord="nuc", keepdims=True), exact=False),
    Case("matrix_rank", one, shapes=((2, 3, 4), (4,))),
    Case("matrix_rank", lambda f, xp, a, b: f(xp.where(b[0, ...] > 0.0, a, xp.zeros_like(a)))),
    Case("vector_norm", one, exact=False),
    Case("vector_norm", lambda f, xp, a, b: f(a, axis=-1, ord=1, keepdims=True), exact=False),
    Case("outer", two, shapes=((3,), (4,))),
    Case("matmul", two, exact=False),
    Case("matrix_transpose", one),
    Case("tensordot", lambda f, xp, a, b: f(a, b, axes=1), exact=False),
    Case("vecdot", two, exact=False),
    # numpy only, see test_namespace
    Case("eig", lambda f, xp, a, b: xp.sort(xp.real(f(a)[0])), "spd", SPD, False),
    Case("eigvals", lambda f, xp, a, b: xp.sort(xp.real(f(a))), "spd", SPD, False),
]

FFT_CASES = [
    *(Case(n, one, "complex", exact=False) for n in ["fft", "ifft", "fftn", "ifftn"]),
    *(Case(n, lambda f, xp, a, b: f(a, n=6, axis=0), "complex", exact=False) for n in ["fft", "ifft", "hfft", "irfft"]),
    *(Case(n, one, exact=False) for n in ["rfft", "ihfft", "rfftn"]),
    *(Case(n, one, "complex", exact=False) for n in ["irfft", "hfft", "irfftn"]),
    Case("fftn", lambda f, xp, a, b: f(a, axes=(0,), norm="ortho"), "complex", exact=False),
    Case("fftn", lambda f, xp, a, b: f(a, s=(5,), axes=(-1,)), "complex", exact=False),
    *(Case(n, one) for n in ["fftshift", "ifftshift"]),
    *(Case(n, lambda f, xp, a, b: f(a, axes=-1)) for n in ["fftshift", "ifftshift"]),
    *(Case(n, lambda f, xp, a, b: f(6, d=0.5) * b[0]) for n in ["fftfreq", "rfftfreq"]),
]


def draw_samples(rng, kind, shape, n_samples):
    """Values of a kind, shape (*shape, n_samples), different in every sample."""
    full = (*shape, n_samples)
    match kind:
        case "real":
            return rng.normal(size=full)
        case "positive":
            return rng.uniform(0.1, 5.0, size=full)
        case "unit":
            return rng.uniform(-1.0, 1.0, size=full)
        case "special":
            return rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], size=full)
        case "complex":
            return rng.normal(size=full) + 1j * rng.normal(size=full)
        case "integer":
            return rng.integers(0, 9, size=full)
        case "bool":
            return rng.random(size=full) < 0.5
        case "spd":
            half = rng.normal(size=full)
            gram = np.einsum("...iks,...jks->...ijs", half, half)
            return np.ascontiguousarray(gram + 4.0 * np.eye(shape[-1])[..., None])
    raise AssertionError(kind)


def flat_results(value):
    """Arrays among tuples of results, in order."""
    return [array for part in value for array in flat_results(part)] if isinstance(value, tuple | list) else [value]


ALL_CASES = [
    pytest.param(case, extension, id=f"{extension or 'main'}-{case.name}-{k}")
    for extension, cases in (("", CASES), ("linalg", LINALG_CASES), ("fft", FFT_CASES))
    for k, case in enumerate(cases)
]


def assert_same(got, expected, exact):
    got, expected = (to_numpy(v) if is_array(v) else np.asarray(v) for v in (got, expected))
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    if exact:
        np.testing.assert_array_equal(got, expected)
    else:
        # 100: sums of up to 24 terms and well-conditioned solves of order 4
        scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=1.0)
        np.testing.assert_allclose(got, expected, rtol=0, atol=100 * np.finfo(np.float64).eps * scale)


def check_law(base, case, extension, seed, n_samples, shared, mixed=lambda x: x):
    """The operand that `shared` names holds one sample only; `mixed` may spoil a result.

    NumPy's elementwise functions agree to the bit; PyTorch's and XLA's vector loops have ends of other rounding.
    """
    if base.__name__ in case.missing:
        return
    rng = np.random.default_rng(seed)
    plain_xp = array_api_compat.array_namespace(base.asarray([0.0]))
    a, b = (draw_samples(rng, case.kind, shape, n) for shape, n in zip(case.shapes, (n_samples, n_samples)))
    a, b = (v[..., :1] if name == shared else v for name, v in (("a", a), ("b", b)))
    ensembles = [Ensemble(base.asarray(v)) for v in (a, b)]
    lifted_xp = namespace(base, n_samples)
    lifted, plain = (getattr(xp, extension) if extension else xp for xp in (lifted_xp, plain_xp))
    results = [mixed(x) for x in flat_results(case.call(getattr(lifted, case.name), lifted_xp, *ensembles))]
    for s in range(n_samples):
        one = [x.sample(s) for x in ensembles]
        expected = flat_results(case.call(getattr(plain, case.name), plain_xp, *one))
        assert len(results) == len(expected)
        for got, wanted in zip(results, expected):
            assert_same(got.sample(s), wanted, case.exact and base in (np, array_api_strict))
