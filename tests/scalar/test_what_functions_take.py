"""What the everyday functions take besides the plainest call, and what they say to anything else."""

import numpy as np
import pytest

from ensemble.scalar import (
    Ensemble,
    SampleSet,
    all_samples,
    any_sample,
    count_samples,
    divide,
    from_samples,
    fuse,
    sample_corr,
    sample_quantile,
)

RNG = np.random.default_rng(47110)
X = Ensemble(RNG.normal(size=(4, 4, 5)))
V = Ensemble(RNG.normal(size=(4, 5)))

W, INVERTED = np.arange(1.0, 17.0).reshape(4, 4), "inverted_cdf"

CALLS = {
    "sort of all entries": lambda x, v: np.sort(x, axis=None),
    "argsort of all entries": lambda x, v: np.argsort(x, axis=None),
    "sort along an axis": lambda x, v: np.sort(x, axis=0),
    "diff after a number": lambda x, v: np.diff(x, prepend=0.0, axis=0),
    "diff before a list": lambda x, v: np.diff(v, append=[1.0, 2.0]),
    "diff after a value of each sample": lambda x, v: np.diff(v, n=2, prepend=v[0]),
    "R alone": lambda x, v: np.linalg.qr(x, mode="r"),
    "complete Q": lambda x, v: np.linalg.qr(x[:, :2], mode="complete")[0],
    "std about a plain mean": lambda x, v: np.std(x, axis=1, mean=np.arange(4.0)[:, None]),
    "var about a plain mean": lambda x, v: v.var(axis=0, mean=np.zeros(1)),
    "quantile with weights of all entries": lambda x, v: np.quantile(x, 0.4, axis=(1, 0), weights=W, method=INVERTED),
    "quantile with weights of x along an axis": lambda x, v: np.quantile(x, 0.4, axis=0, weights=W, method=INVERTED),
    "percentile with weights of an axis": lambda x, v: np.percentile(x, 40, axis=1, weights=W[0], method=INVERTED),
    "pseudo-inverse of integers": lambda x, v: np.linalg.pinv(np.floor(4 * x).astype(np.int64)).round(10),
    "a list beside a value": lambda x, v: v[0] + [1.0, 2.0],
    "a list in a division": lambda x, v: divide([1.0, 2.0], v[:2]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_that_of_each_sample(name):
    got = CALLS[name](X, V)
    for s in range(5):
        expected = CALLS[name](X.sample(s), V.sample(s))
        assert got.shape == expected.shape and got.dtype == expected.dtype
        np.testing.assert_array_equal(got.sample(s), expected)


def test_a_whole_number_repeats_a_list():
    n = Ensemble(np.array([2, 2]))
    assert [0, 1] * n == [0, 1, 0, 1]


def test_masks_may_be_lists():
    assert not all_samples([True, False]) and any_sample((True, False)) and count_samples([True, False, True]) == 2


def test_a_quantile_for_every_level():
    levels = np.array([[0.0, 0.1, 0.25], [0.5, 0.9, 1.0]])
    np.testing.assert_allclose(sample_quantile(V, levels), np.quantile(V.samples, levels, axis=-1), rtol=1e-14)
    assert sample_quantile(V, []).shape == (0, 4)


def test_correlations_stay_in_the_unit_circle():
    """Weights and odd numbers make roundoff; before, some diagonals came to 1 + eps."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        samples = rng.normal(size=(6, 50)) * (1.0 + 1j * (seed % 2))
        x = Ensemble(samples, SampleSet(weights=rng.random(50)))
        found = sample_corr(x)
        assert np.abs(found).max() <= 1.0
        np.testing.assert_allclose(np.diagonal(found), 1.0, rtol=1e-14)


def test_a_correlation_with_what_does_not_vary_is_nan():
    """Whatever the rounding of its mean."""
    for n in range(2, 40):
        weights = np.random.default_rng(n).random(n)
        for dtype in (np.float64, np.float32):
            constant = Ensemble(np.full(n, 0.1, dtype), SampleSet(weights=weights))
            assert np.isnan(sample_corr(constant)) and np.isnan(sample_corr(constant, Ensemble(np.arange(float(n)))))
    one = Ensemble(np.array([0.1, 0.1, 7.0]), SampleSet(weights=[1.0, 2.0, 0.0]))
    assert np.isnan(sample_corr(one))


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1e170, 1e300])
def test_a_correlation_does_not_depend_on_units(size):
    a, b = np.random.default_rng(7).standard_normal((2, 3, 20))
    np.testing.assert_allclose(
        sample_corr(Ensemble(size * a), Ensemble(b)), sample_corr(Ensemble(a), Ensemble(b)), rtol=1e-12
    )


def test_a_fused_constant_is_the_constant():
    assert fuse(lambda x: 1.5)(V) == 1.5
    pair = fuse(lambda x: (2.0 * x, 1.5))(V)
    assert np.array_equal(pair[0].samples, 2.0 * V.samples) and np.all(pair[1].samples == 1.5)


def test_bytes_are_those_of_tobytes():
    agreeing = Ensemble(np.array([[1, 1], [2, 2]]))
    assert bytes(V) == V.tobytes() and bytes(agreeing) == agreeing.tobytes()


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: all_samples("yes"), TypeError, "all_samples: m must be a bool, an array of bools or .*; got a str"),
        (lambda: any_sample(None), TypeError, "any_sample: m must be a bool.*; got None"),
        (lambda: Ensemble(np.ones(3), "weights"), TypeError, "Ensemble: sample_set must be a SampleSet; got a str"),
        (lambda: V.sample(1.5), TypeError, r"i in sample\(i\) must be from -5 to 4; got 1.5"),
        (lambda: from_samples([V, V]), TypeError, "from_samples: samples must be plain arrays or numbers; got an Ens"),
        (lambda: SampleSet(n_samples=0), ValueError, "SampleSet: n_samples must be an integer of at least 1; got 0"),
        (lambda: SampleSet(n_samples=2.5), TypeError, r"n_samples must be an integer of at least 1; got 2\.5"),
        (lambda: SampleSet(weights=[]), ValueError, "SampleSet: n_samples must be 1 or more; got 0"),
        (lambda: SampleSet(weights=np.ones((2, 2))), ValueError, r"weights must be a vector; got shape \(2, 2\)"),
        (lambda: sample_quantile(V, "half"), TypeError, "sample_quantile: q must hold numbers in"),
    ],
)
def test_bad_arguments_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("name", ["inv", "pinv", "svd", "svdvals", "qr", "eig", "eigvals", "eigh", "eigvalsh", "det"])
@pytest.mark.parametrize("length", [3, 5])
def test_a_vector_is_no_matrix(name, length):
    """The sample axis is none of a matrix, also where there are as many samples as entries."""
    x = Ensemble(RNG.normal(size=(length, 5)))
    for functions in (np.linalg, x.__array_namespace__().linalg):
        with pytest.raises(np.linalg.LinAlgError):
            getattr(functions, name)(x)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.matrix_power(x, 2)


def test_tensordot_needs_the_axes_that_it_sums():
    with pytest.raises(ValueError, match="tensordot: axes must be at most the axes of each operand"):
        np.tensordot(np.ones((2, 3)), Ensemble(np.arange(3.0)), axes=1)


def test_sizes_along_axes():
    assert np.size(X) == 16 and np.size(X, 1) == np.size(X, axis=-1) == 4


def test_static_values_are_told_apart_by_type_and_sign():
    ratio = fuse(lambda a, s: a / s, static="s")
    with np.errstate(divide="ignore"):
        assert np.all(ratio(V, 0.0).samples == -ratio(V, -0.0).samples)
    times = fuse(lambda a, c, unit: a * (c / unit), static=("c", "unit"))
    for unit, size in (("s", 1.0), ("m", 60.0)):
        assert np.array_equal(times(V, np.timedelta64(1, unit), np.timedelta64(1, "s")).samples, V.samples * size)
    product = fuse(lambda a, c: a * c[0])
    whole = Ensemble(np.arange(3))
    for factor in (2, 2.0, np.float32(2), 2):
        assert product(whole, (factor,)).dtype == (whole * factor).dtype


def test_numbers_beyond_integers_compare_as_in_numpy():
    x = Ensemble(np.array([1, 2], np.int32))
    for number in (2**40, -(2**70), 2):
        for compare in (lambda a, k: a > k, lambda a, k: a == k):
            assert np.array_equal(fuse(compare)(x, number).samples, compare(x.samples, number))
    assert np.array_equal(fuse(lambda a: a < 2**40)(x).samples, [True, True])
    with pytest.raises(OverflowError):
        fuse(lambda a: a + 2**40)(x)
    with pytest.raises(TypeError, match="reciprocal must be floating-point numbers"):
        fuse(lambda a: np.reciprocal(a))(x)


def test_out_keeps_its_samples_where_inputs_have_none():
    own, other = SampleSet(weights=[1.0, 2.0, 3.0]), SampleSet(weights=[3.0, 2.0, 1.0])
    target = Ensemble(np.zeros((2, 3)), own)
    np.add(Ensemble(np.ones((2, 3))), 1.0, out=target)
    assert target.sample_set is own
    np.sum(Ensemble(np.ones((2, 2, 3))), axis=0, out=target)
    assert target.sample_set is own
    with pytest.raises(ValueError, match="share one sample set"):
        np.add(Ensemble(np.ones((2, 3)), other), 1.0, out=target, where=np.array([True, False]))
    np.add(Ensemble(np.ones((2, 3)), other), 1.0, out=target)
    assert target.sample_set is other


def test_whole_numbers_beyond_64_bits_are_refused():
    with pytest.raises(ValueError, match="fit a 64-bit integer in every sample; got other values in sample 0"):
        round(Ensemble(np.array([2**63 + 5, 3], np.uint64)))
    assert np.array_equal(round(Ensemble(np.array([5, 3], np.uint64))).samples, [5, 3])
    assert np.array_equal(round(Ensemble(np.array([5, 3], np.float16))).samples, [5, 3])
    assert np.array_equal(round(Ensemble(np.array([2**63 - 1, -(2**63)]))).samples, [2**63 - 1, -(2**63)])


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("exponent", [2, 0.5, -1.0, 3.0, True])
def test_power_is_the_function_not_the_operator(dtype, exponent):
    """Types and last bits differ between them for bools and complex numbers."""
    x = (np.arange(12.0).reshape(2, 2, 3) + (1j if dtype is np.complex128 else 0.0)).astype(dtype)
    with np.errstate(all="ignore"):
        found = np.power(Ensemble(x), exponent)
        expected = np.stack([np.power(x[..., s], exponent) for s in range(3)], axis=-1)
    assert found.dtype == expected.dtype and np.array_equal(found.samples, expected, equal_nan=True)
