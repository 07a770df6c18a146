"""Calls in which a plain array, a dtype, a sign or a layout could take one sample's result from another's."""

import math

import numpy as np
import pytest

from ensemble._backend import to_numpy
from ensemble.scalar import (
    DivergenceError,
    Ensemble,
    Moments,
    SampleSet,
    namespace,
    run,
    sample_corr,
    sample_mean,
    sample_quantile,
    sample_std,
)

RNG = np.random.default_rng(50287)
INTEGERS = RNG.integers(-5, 6, size=(3, 3))
SQUARE = RNG.normal(size=(3, 3, 3))
LARGE = np.array([[2**53 + 1, -(2**60) + 3, 7], [2**62 + 1, 5, -9]])


def assert_like_samples(call, *arrays):
    """``call`` on ensembles is, to the bit, its call on the samples of each."""
    got = call(*(Ensemble(array.copy()) for array in arrays))
    for s in range(arrays[0].shape[-1]):
        expected = np.asarray(call(*(array[..., s].copy() for array in arrays)))
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(got.sample(s), expected)


CALLS = {
    "full_like of a list": lambda x: np.full_like(x, [1.0, 2.0, 3.0]),
    "full_like of an array": lambda x: np.full_like(x, np.array([1.5, 2.5, 3.5])),
    "full_like in another shape": lambda x: np.full_like(x, [1, 2, 3], shape=(2, 3)),
    "tril of a vector": lambda x: np.tril(x),
    "triu of a vector": lambda x: np.triu(x, k=-1),
    "clip of integers between halves": lambda x: np.clip(x, -0.5, 2.5),
    "clip by an array": lambda x: np.clip(x, None, np.array([0.5, 1.5, 2.5])),
    "isclose of small integers": lambda x: np.isclose(
        np.where(x > 0, np.int8(127), np.int8(-128)), np.int8(-128), atol=1.0
    ),
    "isclose of unsigned integers": lambda x: np.isclose(x.astype(np.uint8), np.uint8(3), atol=2.0),
    "linspace of integers": lambda x: np.linspace(x[0], np.float32(2.0), 4),
    "fmod by a list": lambda x: np.fmod(x, [1.5, 2.0, 2.5]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_on_integers_is_that_of_each_sample(name):
    assert_like_samples(CALLS[name], INTEGERS)


def test_small_integers_are_close_whatever_the_library(base):
    x = Ensemble(base.asarray(np.array([[127, -128], [-128, 3]], dtype=np.int8)))
    y = Ensemble(base.asarray(np.array([[-128, -128], [127, 4]], dtype=np.int8)))
    np.testing.assert_array_equal(to_numpy(np.isclose(x, y, atol=1.0).samples), [[False, True], [False, True]])
    z = Ensemble(base.asarray(np.array([[np.nan, 1.0]])))
    assert np.allclose(z, z, equal_nan=True) and not np.isclose(z, z).samples[0, 0]


def test_full_of_an_array_fills_visible_axes():
    xp = namespace(np, 3)
    np.testing.assert_array_equal(xp.full((2, 3), [1.0, 2.0, 3.0]).sample(1), np.full((2, 3), [1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(xp.full_like(xp.zeros(3), np.arange(3.0)).sample(2), np.arange(3.0))


def test_a_triangle_of_the_standard_wants_a_matrix():
    with pytest.raises(ValueError, match=r"tril: x must have 2 axes or more; got shape \(3,\)"):
        namespace(np).tril(Ensemble(INTEGERS))


PRODUCTS = {
    "matmul of a vector with a dtype": lambda a, v: np.matmul(v, a, dtype=np.float64),
    "matmul by a vector with a dtype": lambda a, v: np.matmul(a, v, dtype=np.complex128),
    "matmul of vectors with a dtype": lambda a, v: np.matmul(v, v, dtype=np.float32, casting="same_kind"),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_with_options_is_that_of_each_sample(name):
    A, v = Ensemble(SQUARE), Ensemble(SQUARE[0])
    got = PRODUCTS[name](A, v)
    for s in range(3):
        expected = np.asarray(PRODUCTS[name](SQUARE[..., s].copy(), SQUARE[0, :, s].copy()))
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(got.sample(s), expected, rtol=1e-5 if got.dtype == np.float32 else 1e-13)


def test_a_product_in_place_keeps_the_shape():
    A, v = Ensemble(SQUARE.copy()), Ensemble(SQUARE[0].copy())
    with pytest.raises(ValueError, match=r"A in x @= A must be a matrix that keeps the shape of x; got a product of"):
        A @= v
    with pytest.raises(TypeError, match=r"the product in x @= A must be of the kind of x; got float64 for int64"):
        B = Ensemble(np.ones((3, 3, 2), dtype=np.int64))
        B @= np.eye(3)
    expected = [SQUARE[..., s] @ SQUARE[..., s] for s in range(3)]
    A @= A
    np.testing.assert_allclose(A.samples, np.stack(expected, axis=-1), rtol=1e-13)


@pytest.mark.parametrize("value", [-1, np.array(-1.0), Ensemble(np.array([-1.0, -2.0, -3.0]))], ids=str)
def test_a_mask_of_each_sample_spares_every_bit_of_the_others(value):
    x = Ensemble(LARGE.copy())
    mask = Ensemble(np.array([[True, False, False], [False, True, False]]))
    x[mask] = value
    for s in range(3):
        expected = LARGE[:, s].copy()
        expected[mask.sample(s)] = value.sample(s) if isinstance(value, Ensemble) else value
        np.testing.assert_array_equal(x.sample(s), expected)


def test_copyto_spares_every_bit_of_what_its_mask_leaves_out():
    x = Ensemble(LARGE.copy())
    np.copyto(x, -1.5, casting="unsafe", where=Ensemble(np.array([True, False, False])))
    np.testing.assert_array_equal(x.samples[:, 1:], LARGE[:, 1:])
    np.testing.assert_array_equal(x.sample(0), [-1, -1])


@pytest.mark.parametrize(
    "values",
    [[complex(0.0, 1.0), complex(-0.0, 1.0)], [complex(1.0, 0.0), complex(1.0, -0.0)],
     [complex(math.nan, 1.0), complex(math.nan, 2.0)]],
    ids=["zero real part", "zero imaginary part", "NaN"],
)  # fmt: skip
def test_a_complex_number_is_one_where_both_parts_agree(values):
    with pytest.raises(DivergenceError, match="a Python complex must be one number"):
        complex(Ensemble(np.array(values)))
    result = run(lambda z: repr(complex(z)), Ensemble(np.array(values)))
    assert [result.sample(s) for s in range(2)] == [repr(value) for value in values]
    agreeing = complex(Ensemble(np.array([complex(math.nan, -0.0)] * 2)))
    assert math.isnan(agreeing.real) and math.copysign(1.0, agreeing.imag) == -1.0


# -- powers: NumPy squares, inverts or takes the root where one exponent serves a loop --------------------------------

BASES = RNG.uniform(0.2, 3.0, size=(40, 6))
EXPONENTS = np.array([2.0, 0.5, -1.0, 3.0, 1.7, 0.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("power", [lambda x, e: x**e, np.power, lambda x, e: namespace(np).pow(x, e)])
def test_a_power_has_the_bits_of_each_sample(power, dtype):
    x, e = BASES.astype(dtype), EXPONENTS.astype(dtype)
    got = power(Ensemble(x), Ensemble(e))
    in_place = Ensemble(x.copy())
    in_place **= Ensemble(e)
    turned = power(Ensemble(np.abs(e)), Ensemble(x))
    for s in range(6):
        np.testing.assert_array_equal(got.sample(s), x[:, s].copy() ** e[s])
        np.testing.assert_array_equal(in_place.sample(s), x[:, s].copy() ** e[s])
        np.testing.assert_array_equal(turned.sample(s), np.abs(e[s]) ** x[:, s].copy())


def test_a_power_by_a_plain_vector_has_the_bits_of_each_sample():
    exponents = np.resize(EXPONENTS, 40)
    got = Ensemble(BASES) ** exponents
    for s in range(6):
        np.testing.assert_array_equal(got.sample(s), BASES[:, s].copy() ** exponents)


@pytest.mark.parametrize(
    "call", [lambda n, v: n**v, lambda n, v: v**n, lambda n, v: n**n], ids=["n**v", "v**n", "n**n"]
)
def test_inside_run_a_power_has_the_bits_of_the_scalar_run(call):
    numbers, vector = np.array([1.7, 2.0, 0.5, 3.0, 2.5, 0.1]), BASES[:16, 0].copy()
    result = run(lambda n: call(n, vector), Ensemble(numbers))
    for s, number in enumerate(numbers):
        np.testing.assert_array_equal(result.sample(s), call(np.float64(number), vector))


# -- weights -----------------------------------------------------------------------------------------------------------

TINY = SampleSet(weights=[1e-18, 1.0, 1e-18])
HUGE = SampleSet(weights=[1e308, 1.5e308, 1e308])


@pytest.mark.parametrize("method", ["linear", "inverted_cdf"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_extremes_are_the_extremes_whatever_the_weights(method, dtype):
    x = Ensemble(np.array([10.0, 20.0, 30.0], dtype=dtype), TINY)
    np.testing.assert_array_equal(sample_quantile(x, [0.0, 0.5, 1.0], method=method), [10.0, 20.0, 30.0])


@pytest.mark.parametrize("scale", [1e-300, 1e-5, 1e308])
def test_only_the_ratios_of_weights_count(scale):
    weights = np.array([0.25, 0.5, 1.0, 0.125])
    x = RNG.normal(size=(2, 4))
    one, other = Ensemble(x, SampleSet(weights=weights)), Ensemble(x, SampleSet(weights=weights * scale))
    for statistic in (sample_mean, sample_std, lambda v: sample_std(v, ddof=1), lambda v: sample_quantile(v, 0.3)):
        # 4 eps: the scaled weights are rounded
        np.testing.assert_allclose(statistic(other), statistic(one), rtol=4 * np.finfo(float).eps)
    assert repr(other) == repr(one)


def test_a_mean_of_weights_near_the_largest_number():
    # By fractions: (10 * 1 + 20 * 1.5 + 30 * 1) / 3.5
    assert math.isclose(sample_mean(Ensemble(np.array([10.0, 20.0, 30.0]), HUGE)), 20.0, rel_tol=1e-15)
    with pytest.raises(ValueError, match=r"Moments\.update: weights must have a finite sum of squares above 0; got we"):
        Moments(Ensemble(np.array([10.0, 20.0, 30.0]), HUGE))


@pytest.mark.parametrize("weighted", ["x", "y", "both"])
def test_a_correlation_takes_the_weights_of_either_argument(weighted):
    a, b = RNG.normal(size=(2, 8))
    b += a
    samples = SampleSet(weights=RNG.uniform(0.1, 3.0, size=8))
    x = Ensemble(a, samples if weighted in ("x", "both") else None)
    y = Ensemble(b, samples if weighted in ("y", "both") else None)
    covariance = np.cov(a, b, aweights=samples.weights, ddof=0)
    expected = covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1])
    # 20 eps: sums of 8 terms in another order
    np.testing.assert_allclose(sample_corr(x, y), expected, rtol=20 * np.finfo(float).eps)


# -- views and copies --------------------------------------------------------------------------------------------------

VIEWS = {
    "split": lambda x: np.split(x, 2)[1],
    "array_split": lambda x: np.array_split(x, 3, axis=1)[2],
    "hsplit": lambda x: np.hsplit(x, 2)[0],
    "atleast_1d": lambda x: np.atleast_1d(x),
    "atleast_3d": lambda x: np.atleast_3d(x),
    "fliplr": lambda x: np.fliplr(x),
    "flipud": lambda x: np.flipud(x),
    "rot90": lambda x: np.rot90(x),
    "diagonal of einsum": lambda x: np.einsum("ii->i", x),
    "transpose of einsum": lambda x: np.einsum("ij->ji", x),
    "ravel": lambda x: np.ravel(x),
    "ravel in the order of columns": lambda x: np.ravel(x.T, order="F"),
    "reshape in the order of columns": lambda x: np.reshape(x.T, (2, 8), order="F"),
    "an Ellipsis": lambda x: x[0, 0, ...],
}


@pytest.mark.parametrize("name", VIEWS)
def test_what_numpy_gives_as_a_view_is_a_view(name):
    plain, x = np.arange(16.0).reshape(4, 4), Ensemble(np.arange(48.0).reshape(4, 4, 3))
    assert np.shares_memory(VIEWS[name](plain), plain)
    part = VIEWS[name](x)
    part[...] = Ensemble(np.array([-1.0, -2.0, -3.0]))
    changed = np.sum(x.samples < 0.0)
    assert changed == 3 * part.size and np.shares_memory(part.samples, x.samples)


VALUES = {
    "item": lambda x: x.item(),
    "an empty index": lambda x: x[()],
    "tolist": lambda x: x.tolist(),
    "flip": lambda x: np.flip(x),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_numpy_gives_as_a_value_is_a_value(name):
    x = Ensemble(np.array([1.0, 2.0]))
    value = VALUES[name](x)
    x[...] = 7.0
    np.testing.assert_array_equal(value.samples, [1.0, 2.0])


def test_an_entry_by_its_number_counts_rows_first():
    x = Ensemble(np.arange(24.0).reshape(2, 4, 3))
    np.testing.assert_array_equal(x.item(5).samples, x.samples[1, 1])
    with pytest.raises(ValueError, match=r"item: x\.item\(i, \.\.\.\) must have 2 indices; got 3"):
        x.item(0, 0, 0)


def test_a_row_at_an_index_of_each_sample_is_not_for_writing():
    x = Ensemble(np.arange(12.0).reshape(3, 2, 2))
    row = x[Ensemble(np.array([0, 2]))]
    np.testing.assert_array_equal(row.samples[:, 1], x.samples[2, :, 1])
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1.0
    x[Ensemble(np.array([1, 1]))][0] = -5.0  # where the samples agree it is a view
    assert np.all(x.samples[1, 0] == -5.0)
    copy = x[Ensemble(np.array([[0], [2]]).T)]
    copy[0] = 1.0  # an index with axes gives a copy in NumPy, too


def test_a_view_that_no_sample_array_has_is_not_for_writing():
    padded = Ensemble(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))
    with pytest.raises(ValueError, match="read-only"):
        np.trim_zeros(padded)[0] = 5.0


def test_zeros_at_the_same_ends_of_all_samples_leave_a_view():
    padded = Ensemble(np.array([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]))
    np.trim_zeros(padded)[0] = 5.0  # as NumPy's does
    assert np.array_equal(padded.samples, [[0.0, 0.0], [5.0, 5.0], [0.0, 0.0]])


def test_a_view_keeps_shared_data_shared():
    x = namespace(np).zeros((2, 2))
    halves = np.split(x, 2)
    with pytest.raises(ValueError, match="shared data that another ensemble is a view of"):
        x[0, 0] = Ensemble(np.array([1.0, 2.0]))
    del halves
