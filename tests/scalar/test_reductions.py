"""Inner products: the same bits for a sample in any company, coupled only where asked."""

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble._backend import to_numpy
from ensemble.scalar import Ensemble, EnsembleTrait, dot, norm, shared


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.sampled_from([0, 1, 5, 511, 512, 513, 1500]),
    n_samples=st.sampled_from([1, 2, 5, 33]),
    dtype=st.sampled_from([np.float32, np.float64, np.complex128]),
)
def test_a_sample_has_the_same_bits_in_any_company(seed, n, n_samples, dtype):
    rng = np.random.default_rng(seed)
    x, y = (Ensemble(rng.normal(size=(n, n_samples)).astype(dtype)) for _ in range(2))
    for f in (lambda x, y: dot(x, y), lambda x, y: dot(x, shared(np.ones(n, dtype))), lambda x, y: norm(x)):
        got = f(x, y)
        assert got.shape == ()
        for s in range(n_samples):
            alone = f(x.sample(s), y.sample(s))
            one = alone.sample(0) if isinstance(alone, Ensemble) else alone
            np.testing.assert_array_equal(got.sample(s), one)


def test_over_all_is_the_sum_over_samples(matrix):
    coupled = dot(matrix, 2.0 * matrix, over="all")
    assert not isinstance(coupled, Ensemble)
    # 60 terms
    np.testing.assert_allclose(float(coupled), 2.0 * np.sum(to_numpy(matrix.samples) ** 2), rtol=60 * 2.2e-16)
    np.testing.assert_allclose(float(norm(matrix, over="all")) ** 2, float(coupled) / 2.0, rtol=1e-14)


def test_complex_products_conjugate_the_first():
    x = Ensemble(np.array([[1j, 2.0]]))
    np.testing.assert_array_equal(dot(x, shared(np.array([1.0 + 0j]))).samples, [-1j, 2.0])
    assert norm(x).dtype == np.float64


def test_plain_arrays_give_plain_numbers(base):
    x = base.asarray([3.0, 4.0])
    assert float(norm(x)) == 5.0
    assert not isinstance(dot(x, x), Ensemble)
    assert dot(shared(x), shared(x)).is_shared


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda x: dot(x, x[:2]), ValueError, r"dot: x and y must have one shape; got \(3,\) and \(2,\)"),
        (lambda x: dot(x, x, over="time"), ValueError, "dot: over must be one of 'space', 'all'; got 'time'"),
        (lambda x: dot(x, [1.0, 2.0, 3.0]), TypeError, "dot: y must be an Ensemble or an array; got a list"),
        (lambda x: dot(x, Ensemble(np.ones((3, 4)))), ValueError, "dot: operands must have one number of samples"),
        (lambda x: norm(Ensemble(np.ones((3, 4), dtype=int))), TypeError, "norm: x must hold floating-point numbers"),
    ],
)
def test_bad_arguments_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call(Ensemble(np.ones((3, 5))))


@pytest.mark.parametrize(
    "value, kind, size",
    [
        (2.5, float, 1),
        (2, int, 1),
        (np.float32(2.5), np.float32, 1),
        (np.ones(2), np.float64, 1),
        (np.ones(2, np.int64), np.int64, 1),
        (Ensemble(np.ones(3)), np.float64, 3),
        (Ensemble(np.ones((2, 3), np.float32)), np.float32, 3),
        (Ensemble(np.ones((2, 3), complex)), np.complex128, 3),
    ],
    ids=str,
)
def test_traits_speak_of_plain_values_and_ensembles(value, kind, size):
    trait = EnsembleTrait(value)
    assert (trait.value_type, trait.ensemble_size, trait.n_samples) == (kind, size, size)
    assert np.all(np.asarray(trait.coeff(value, size - 1)) == np.asarray(getattr(value, "samples", value)).flat[0])
    assert repr(trait) == f"EnsembleTrait(value_type={kind.__name__}, ensemble_size={size})"


@pytest.mark.parametrize("shape", [(), (2,), (2, 0), (2, 3)])
def test_a_coefficient_is_a_reference_to_its_sample_alone(shape):
    """Figure 7 of Phipps et al. assigns to it; a plain array stands for its one sample."""
    y = Ensemble(np.zeros((*shape, 3)))
    for i in range(EnsembleTrait(y).ensemble_size):
        EnsembleTrait.coeff(y, i)[...] = i + 1.0
        EnsembleTrait.coeff(y, i)[...] += 1.0
    assert np.array_equal(y.samples, np.broadcast_to([2.0, 3.0, 4.0], (*shape, 3)))
    plain = np.zeros(shape)
    EnsembleTrait.coeff(plain, 0)[...] = 7.0
    assert np.all(plain == 7.0)


def test_a_coefficient_of_shared_data_is_its_one_sample_and_numbers_out_of_range_are_refused():
    x = Ensemble(np.full((2, 1), 4.0))
    assert np.all(EnsembleTrait.coeff(x, 5) == 4.0)
    for i in (3, -4, 1.5):
        with pytest.raises((IndexError, TypeError), match=r"EnsembleTrait\.coeff"):
            EnsembleTrait.coeff(Ensemble(np.ones(3)), i)


def test_traits_of_other_libraries():
    x = Ensemble(array_api_strict.zeros((2, 3)))
    assert EnsembleTrait(x).value_type == array_api_strict.float64
    EnsembleTrait.coeff(x, 1)[...] = 5.0
    assert np.array_equal(np.asarray(x.samples), [[0.0, 5.0, 0.0], [0.0, 5.0, 0.0]])
    assert "float64" in repr(EnsembleTrait(x))
