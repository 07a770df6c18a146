"""Indexing reaches visible axes only, and each sample may have its own index."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble._backend import to_numpy
from ensemble.scalar import DivergenceError, Ensemble, from_samples, namespace

BASIC = [
    0,
    -1,
    slice(1, None),
    slice(None, None, -1),
    Ellipsis,
    None,
    (1, 2),
    (..., 0),
    (slice(None), 1),
    (None, ..., None),
    (2, ...),
    (),
]
ARRAYS = [
    np.array([2, 0, 0]),
    np.array([True, False, True]),
    (np.array([0, 2]), np.array([1, 3])),
    (slice(None), np.array([[1], [2]])),
]


@pytest.mark.parametrize("key", BASIC, ids=str)
def test_basic_indices_act_on_every_sample(matrix, key):
    got = matrix[key]
    for s in range(5):
        np.testing.assert_array_equal(to_numpy(got.sample(s)), to_numpy(matrix.samples)[..., s][key])


@pytest.mark.parametrize("key", ARRAYS, ids=str)
def test_array_indices_act_on_every_sample(key):
    x = Ensemble(np.random.default_rng(10831).normal(size=(3, 4, 5)))
    for s in range(5):
        np.testing.assert_array_equal(x[key].sample(s), x.sample(s)[key])


def test_array_indices_of_a_strict_library(matrix, base):
    rows, columns = base.asarray([0, 2]), base.asarray([1, 3])
    np.testing.assert_array_equal(to_numpy(matrix[rows, columns].samples), to_numpy(matrix.samples)[[0, 2], [1, 3]])
    mask = base.asarray(np.arange(12).reshape(3, 4) % 3 == 0)
    np.testing.assert_array_equal(to_numpy(matrix[mask].samples), to_numpy(matrix.samples)[to_numpy(mask)])
    matrix[mask] = 0.0
    assert not np.any(to_numpy(matrix.samples)[to_numpy(mask)])


@pytest.mark.parametrize(
    "key", [(0, 0, 0), (slice(None),) * 3, (0, 0, Ellipsis, 0), np.ones((3, 4, 5), dtype=bool)], ids=str
)
def test_an_index_never_reaches_the_samples(matrix, key):
    with pytest.raises(IndexError, match=r"an index must have at most 2 entries for shape .*; got 3. The sample axis"):
        matrix[key]


def test_a_value_without_axes_has_no_index():
    with pytest.raises(IndexError, match="an index must have at most 0 entries"):
        Ensemble(np.ones(3))[0]


@pytest.mark.parametrize("key", ["a", 1.5, np.array([1.0])], ids=str)
def test_an_index_of_another_kind_is_refused(key):
    with pytest.raises(IndexError):
        Ensemble(np.ones((3, 2)))[key]


def test_slices_are_views():
    x = Ensemble(np.zeros((3, 2)))
    x[1:][0] = 7.0
    np.testing.assert_array_equal(x.samples, [[0.0, 0.0], [7.0, 7.0], [0.0, 0.0]])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), n_samples=st.sampled_from([1, 2, 4]), rank=st.sampled_from([0, 1, 2]))
def test_an_index_may_differ_from_sample_to_sample(seed, n_samples, rank):
    rng = np.random.default_rng(seed)
    x = Ensemble(rng.normal(size=(5, *(3,) * rank, n_samples)))
    index = Ensemble(rng.integers(-5, 5, size=(*(2,) * rank, n_samples)))
    got = x[index]
    for s in range(n_samples):
        np.testing.assert_array_equal(got.sample(s), x.sample(s)[index.sample(s)])


def test_shared_data_is_indexed_by_each_sample():
    table = Ensemble(np.array([[10.0], [20.0], [30.0]]))
    np.testing.assert_array_equal(table[Ensemble(np.array([2, 0]))].samples, [30.0, 10.0])


def test_boolean_index_must_select_equally_many():
    x = Ensemble(np.array([[1.0, -1.0], [2.0, 2.0], [-3.0, 3.0]]))
    np.testing.assert_array_equal(x[x > 0].samples, [[1.0, 2.0], [2.0, 3.0]])
    with pytest.raises(DivergenceError, match=r"must select equally many entries in every sample; got .*1, 2"):
        x[x > 1.5]


def test_boolean_assignment_is_free_in_every_sample(base):
    values = np.random.default_rng(90407).normal(size=(3, 4, 5))
    x = Ensemble(base.asarray(values))
    x[x > 0] = 0.0
    np.testing.assert_array_equal(to_numpy(x.samples), np.where(values > 0, 0.0, values))


def test_boolean_assignment_of_one_value_a_sample():
    values = np.random.default_rng(31091).normal(size=(3, 4, 5))
    x, fill = Ensemble(values.copy()), np.arange(5.0)
    x[x > 0] = Ensemble(fill)
    np.testing.assert_array_equal(x.samples, np.where(values > 0, fill, values))
    y = Ensemble(values.copy())
    y[y[:, 0] > 0] = -1.0
    np.testing.assert_array_equal(y.samples, np.where(values[:, :1] > 0, -1.0, values))


@pytest.mark.parametrize(
    "value", [2.5, np.arange(4.0), Ensemble(np.arange(5.0)), Ensemble(np.arange(20.0).reshape(4, 5))]
)
@pytest.mark.parametrize("key", [0, (slice(None), slice(None)), Ellipsis, np.array([0, 2])], ids=str)
def test_assignment_acts_on_every_sample(key, value):
    x = Ensemble(np.random.default_rng(72253).normal(size=(3, 4, 5)))
    expected = [x.sample(s) for s in range(5)]
    for s in range(5):
        expected[s][key] = value.sample(s) if isinstance(value, Ensemble) else value
    x[key] = value
    np.testing.assert_array_equal(x.samples, from_samples(expected).samples)


def test_assignment_at_an_index_of_each_sample():
    x = Ensemble(np.zeros((3, 2)))
    x[Ensemble(np.array([2, 0]))] = Ensemble(np.array([5.0, 6.0]))
    np.testing.assert_array_equal(x.samples, [[0.0, 6.0], [0.0, 0.0], [5.0, 0.0]])


def test_assignment_to_shared_data_widens(base):
    x = namespace(base).zeros(2)
    x[0] = Ensemble(base.asarray([1.0, 2.0]))
    np.testing.assert_array_equal(to_numpy(x.samples), [[1.0, 2.0], [0.0, 0.0]])


def test_assignment_of_other_samples_is_refused():
    x = Ensemble(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="must have the samples of x; got 4 for 3 samples"):
        x[0] = Ensemble(np.ones(4))


@pytest.mark.parametrize("key", [np.array(1), (np.array(1), slice(None)), (slice(None), np.array(-1))], ids=str)
def test_an_integer_in_an_array_picks_a_copy(key):
    plain = np.arange(12.0).reshape(3, 4)
    assert not np.shares_memory(plain[key], plain)
    x = Ensemble(np.repeat(plain[..., None], 3, axis=-1))
    x[key][...] = 7.0
    np.testing.assert_array_equal(x.sample(1), plain)
