"""The array itself: storage, operators, conversions, protocols."""

import copy
import operator
import pickle

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble._backend import to_numpy
from ensemble.scalar import DivergenceError, Ensemble, SampleSet, from_samples, namespace, shared

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


def test_shape_never_counts_samples(matrix):
    assert (matrix.shape, matrix.ndim, matrix.size, matrix.n_samples, len(matrix)) == ((3, 4), 2, 12, 5, 3)
    assert matrix.T.shape == matrix.mT.shape == (4, 3)
    assert not matrix.is_shared
    assert matrix.device == matrix.samples.device


def test_numpy_samples_become_contiguous():
    fortran = np.asfortranarray(np.ones((4, 3)))
    assert Ensemble(fortran).samples.strides == (24, 8)
    ready = np.ones((4, 3))
    assert Ensemble(ready).samples is ready


@pytest.mark.parametrize(
    "call", [lambda x: x.T, lambda x: x.T.T, lambda x: x[::2], lambda x: x[:, [2, 0]], lambda x: x @ x.T]
)
def test_results_are_contiguous(call):
    x = Ensemble(np.random.default_rng(55117).normal(size=(3, 4, 5)))
    assert call(x).samples.strides[-1] == 8


@pytest.mark.parametrize("operation", [*ARITHMETIC, *COMPARISONS], ids=lambda f: f.__name__)
@settings(max_examples=5, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), n_samples=st.sampled_from([1, 2, 9]))
def test_operators_work_sample_by_sample(operation, seed, n_samples):
    rng = np.random.default_rng(seed)
    x, y = Ensemble(rng.uniform(0.5, 3.0, (3, 4, n_samples))), Ensemble(rng.uniform(0.5, 3.0, (4, n_samples)))
    plain, number = rng.uniform(0.5, 3.0, (3, 4)), 1.7
    for a, b in ((x, y), (x, plain), (plain, x), (x, number), (number, x), (x, shared(plain)), (y, plain)):
        got = operation(a, b)
        assert isinstance(got, Ensemble)
        for s in range(n_samples):
            one = [v.sample(s) if isinstance(v, Ensemble) else v for v in (a, b)]
            np.testing.assert_array_equal(got.sample(s), operation(*one))


@pytest.mark.parametrize("operation", [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow])
def test_in_place_operators_keep_the_memory(operation, base):
    x = Ensemble(base.asarray([[1.0, 2.0], [3.0, 4.0]]))
    before, expected = x.samples, operation(base.asarray([[1.0, 2.0], [3.0, 4.0]]), base.asarray([[2.0], [3.0]]))
    y = operation(x, base.asarray([2.0, 3.0]))
    assert y is x
    assert x.samples is before or base.__name__.startswith("jax")  # whose arrays cannot be written to
    np.testing.assert_array_equal(to_numpy(x.samples), to_numpy(expected))


def test_bitwise_operators(base):
    m = Ensemble(base.asarray([[True, False], [True, True]]))
    k = Ensemble(base.asarray([[1, 2], [3, 4]]))
    np.testing.assert_array_equal(to_numpy((m & ~m[0] | (m ^ True)).samples), [[False, True], [False, True]])
    np.testing.assert_array_equal(to_numpy(((k << 2) >> 1).samples), [[2, 4], [6, 8]])


def test_python_numbers_keep_the_dtype(base):
    x = Ensemble(base.ones((2, 3), dtype=base.float32))
    assert (2.0 * x + 1).dtype == base.float32


@pytest.mark.parametrize("scalar", [np.float64(2.0), np.float32(2.0), np.int64(2)])
def test_numpy_scalars_give_ensembles(scalar, x):
    assert isinstance(scalar * x, Ensemble)
    assert isinstance(x * scalar, Ensemble)
    np.testing.assert_array_equal(to_numpy((scalar * x).samples), 2 * to_numpy(x.samples))


def test_arrays_of_another_library_are_refused():
    with pytest.raises(TypeError, match="operands must come from one array library"):
        Ensemble(np.ones((2, 3))) + array_api_strict.ones(2)


def test_foreign_operands_are_left_to_the_other_side(x):
    with pytest.raises(TypeError, match="unsupported operand"):
        x + "text"


def test_a_plain_array_is_the_same_for_every_sample():
    x = Ensemble(np.zeros((3, 3)))  # as many samples as entries: no guessing
    np.testing.assert_array_equal((x + np.array([1.0, 2.0, 3.0])).samples, [[1.0] * 3, [2.0] * 3, [3.0] * 3])


@pytest.mark.parametrize(
    "add", [lambda x, y: x + y, lambda x, y: y + x, np.add, lambda x, y: x.__array_namespace__().add(x, y)]
)
def test_operands_of_other_shapes_are_named_by_their_visible_shapes(add):
    """NumPy's own message shows the sample axis, which a user does not see: (2,3) (3,1)."""
    x = Ensemble(np.zeros((2, 3)))
    with pytest.raises(
        ValueError, match=r"have visible shapes that broadcast; got \(2,\) and \(3,\)\.$|got \(3,\) and \(2,\)"
    ):
        add(x, Ensemble(np.zeros((3, 3))))
    with pytest.raises(ValueError, match=r"Ensemble\(array\) takes an array whose last axis counts samples"):
        add(x, np.zeros((2, 3)))


@pytest.mark.parametrize(
    "bad, error, text",
    [
        ([1.0, 2.0], TypeError, "samples must be an array of an Array API library; got a list"),
        (np.float64(1.0), TypeError, "samples must be an array"),
        (np.array(1.0), ValueError, "samples must have a last axis that counts samples; got a 0-d array"),
        (np.zeros((2, 0)), ValueError, "samples must hold one sample or more"),
        (np.array(["a"]), TypeError, "samples must hold numbers or bools; got dtype <U1. Convert the values first."),
        (np.ma.ones((2, 2)), TypeError, "samples must be arrays or numbers; got a MaskedArray. Use np.ma.filled"),
        (np.ones((1, 2)).view(np.matrix), TypeError, "samples must be arrays or numbers; got a matrix. Use np.asarray"),
    ],
)
def test_bad_samples_are_refused(bad, error, text):
    with pytest.raises(error, match=text):
        Ensemble(bad)


def test_a_sample_is_a_copy(x):
    column = x.sample(2)
    assert type(column) is type(x.samples)
    if not type(column).__module__.startswith("jax"):  # whose arrays cannot be written to
        column[0] = 100.0
    assert float(x.samples[0, 2]) != 100.0
    np.testing.assert_array_equal(to_numpy(x.sample(-1)), to_numpy(x.samples)[..., 4])
    with pytest.raises(IndexError, match=r"i in sample\(i\) must be from -5 to 4; got 5"):
        x.sample(5)


def test_shared_data_answers_for_every_sample():
    np.testing.assert_array_equal(shared([1.0, 2.0]).sample(17), [1.0, 2.0])


def test_shared_makes_no_copy():
    plain = np.arange(5.0)
    assert np.shares_memory(shared(plain).samples, plain)
    with pytest.raises(ValueError, match="shared: x must be the same for every sample; got 3 samples"):
        shared(Ensemble(np.ones((2, 3))))


def test_from_samples(base):
    x = from_samples([base.asarray([1.0, 2.0]), base.asarray([3.0, 4.0])])
    np.testing.assert_array_equal(to_numpy(x.samples), [[1.0, 3.0], [2.0, 4.0]])
    with pytest.raises(ValueError, match=r"samples must have one shape; got \(\), \(2,\)"):
        from_samples([base.asarray([1.0, 2.0]), base.asarray(3.0)])
    with pytest.raises(ValueError, match="samples must hold one sample or more"):
        from_samples([])


def test_iteration_goes_over_the_first_visible_axis(matrix):
    rows = list(matrix)
    assert [row.shape for row in rows] == [(4,)] * 3
    with pytest.raises(TypeError, match="iter: x must have an axis"):
        iter(matrix[0, 0])
    with pytest.raises(TypeError, match="len: x must have an axis"):
        len(matrix[0, 0])


def test_containment_asks_every_sample():
    x = Ensemble(np.array([[1.0, 2.0], [2.0, 1.0]]))
    assert 1.0 in x
    assert 3.0 not in x
    with pytest.raises(DivergenceError):
        assert 1.0 in x[:1]


def test_one_value_where_all_samples_agree(base):
    assert float(Ensemble(base.asarray([2.5, 2.5]))) == 2.5
    assert int(Ensemble(base.asarray([2, 2]))) == 2
    assert complex(Ensemble(base.asarray([1j, 1j]))) == 1j
    assert [5, 6, 7][Ensemble(base.asarray([1, 1]))] == 6
    assert np.isnan(float(Ensemble(base.asarray([np.nan, np.nan]))))


@pytest.mark.parametrize("convert", [float, int, complex, operator.index], ids=lambda f: f.__name__)
def test_no_single_number_where_samples_differ(convert, base):
    with pytest.raises(DivergenceError, match=r"must be one number; got 2 samples with 2 different values \(1, 2\)"):
        convert(Ensemble(base.asarray([1, 2])))


def test_signed_zeros_do_not_agree():
    with pytest.raises(DivergenceError):
        float(Ensemble(np.array([0.0, -0.0])))


def test_one_entry_has_a_truth_value_whatever_its_axes(base):
    if base.__name__ == "array_api_strict":
        with pytest.raises(TypeError, match="must have no axis"):
            bool(Ensemble(base.asarray([[1.0, 2.0]])))
        return
    assert bool(Ensemble(base.asarray([[1.0, 2.0]]))) and not bool(Ensemble(base.asarray([[[0.0, 0.0]]])))
    with pytest.raises(DivergenceError):
        bool(Ensemble(base.asarray([[1.0, 0.0]])))
    with pytest.raises(TypeError, match=r"must have no axis; got shape \(0,\)"):
        bool(Ensemble(np.zeros((0, 2))))


@pytest.mark.parametrize("convert", [float, int, complex, operator.index], ids=lambda f: f.__name__)
def test_conversions_need_a_value_without_axes(convert):
    with pytest.raises(TypeError, match=r"must have no axis; got shape \(1,\)"):
        convert(Ensemble(np.ones((1, 3), dtype=int)))


def test_an_ensemble_has_no_hash(x):
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_have_their_own_memory(duplicate):
    samples = SampleSet(weights=[1.0, 2.0, 3.0], method="sobol", seed=4)
    x = Ensemble(np.arange(6.0).reshape(2, 3), samples)
    y = duplicate(x)
    np.testing.assert_array_equal(y.samples, x.samples)
    assert y.sample_set == samples
    assert not np.shares_memory(y.samples, x.samples)
    _ = x + y  # one sample set, though maybe two objects


def test_tobytes_is_all_samples(matrix):
    np.testing.assert_array_equal(np.frombuffer(matrix.tobytes()).reshape(3, 4, 5), to_numpy(matrix.samples))


def test_dlpack_exports_only_what_is_one_array():
    plain = np.arange(3.0)
    np.testing.assert_array_equal(np.from_dlpack(shared(plain)), plain)
    np.testing.assert_array_equal(np.from_dlpack(Ensemble(np.repeat(plain[:, None], 4, axis=1))), plain)
    with pytest.raises(DivergenceError, match="an exported array must be one array; got 2 different samples"):
        np.from_dlpack(Ensemble(np.eye(2)))


def test_devices(x):
    assert x.to_device("cpu" if isinstance(x.samples, np.ndarray) else x.device).shape == x.shape


@pytest.mark.parametrize(
    "samples, text",
    [
        (np.array([1.0, 3.0]), "Ensemble(shape=(), n_samples=2, float64) 2 ± 1"),
        (np.array([[1, 3], [4, 4]]), "Ensemble(shape=(2,), n_samples=2, int64) [2 ± 1, 4 ± 0]"),
        (np.array([True, False, False, False]), "Ensemble(shape=(), n_samples=4, bool) 25% True"),
        (np.array([[1.0], [2.0]]), "Ensemble(shape=(2,), shared, float64) [1, 2]"),
        (np.array([[True]]), "Ensemble(shape=(1,), shared, bool) [True]"),
        (np.array([1.0, np.nan, 3.0]), "Ensemble(shape=(), n_samples=3, float64) 2 ± 1 (sample 1 of 3 NaN)"),
        (np.zeros((0, 3)), "Ensemble(shape=(0,), n_samples=3, float64) []"),
        (np.array([1j, 3j]), "Ensemble(shape=(), n_samples=2, complex128) 0+2j ± 1"),
    ],
)
def test_repr_is_short_and_names_nan_samples(samples, text):
    assert repr(Ensemble(samples)) == text


def test_repr_of_long_ensembles_stays_short():
    assert len(repr(Ensemble(np.random.default_rng(62591).normal(size=(50, 50, 8))))) < 1500


def test_format_applies_to_mean_and_deviation():
    assert f"{Ensemble(np.array([1.0, 3.0])):.2f}" == "2.00 ± 1.00"
    assert f"{Ensemble(np.array([1.0, np.nan, 3.0])):.2f}" == "2.00 ± 1.00 (sample 1 of 3 NaN)"
    assert f"{Ensemble(np.array([1.0, 3.0]))}".startswith("Ensemble(")


# -- shared data that meets samples in place ---------------------------------------------------------------------------


def test_shared_data_widens_in_place(base):
    x = namespace(base).zeros(2)
    x += Ensemble(base.asarray([[1.0, 2.0], [3.0, 4.0]]))
    assert x.n_samples == 2
    np.testing.assert_array_equal(to_numpy(x.samples), [[1.0, 2.0], [3.0, 4.0]])


def test_widening_never_detaches_a_view_in_silence(base):
    x = namespace(base).zeros(4)
    tail = x[2:]
    with pytest.raises(ValueError, match="shared data that another ensemble is a view of"):
        x += Ensemble(base.ones((4, 3)))
    with pytest.raises(ValueError, match="shared data that another ensemble is a view of"):
        tail[0] = Ensemble(base.ones((3,)))
    del tail
    x += Ensemble(base.ones((4, 3)))
    assert x.n_samples == 3


# -- sample sets -------------------------------------------------------------------------------------------------------


def test_sample_sets_are_carried_along():
    samples = SampleSet(n_samples=3, seed=1)
    x, y = Ensemble(np.ones((2, 3)), samples), Ensemble(np.ones((2, 3)))
    xp = x.__array_namespace__()
    for result in (x + y, y + x, 2.0 * x, -x, x > y, x[0], xp.sin(x), xp.sum(x), xp.stack([y, x]), y @ x, np.exp(x)):
        assert result.sample_set is samples
    y += x
    assert y.sample_set is samples


def test_two_sample_sets_do_not_mix():
    a, b = (Ensemble(np.ones((2, 3)), SampleSet(n_samples=3, seed=seed)) for seed in (1, 2))
    xp = a.__array_namespace__()
    for call in (lambda: a + b, lambda: xp.add(a, b), lambda: xp.concat([a, b]), lambda: xp.where(a > 0, a, b)):
        with pytest.raises(ValueError, match=r"operands must share one sample set; got .*seed=1.*seed=2"):
            call()


def test_a_sample_set_must_fit():
    with pytest.raises(ValueError, match="sample_set must have as many samples; got 4 for 3 samples"):
        Ensemble(np.ones((2, 3)), SampleSet(n_samples=4))


def test_to_xarray_names_the_samples():
    xarray = pytest.importorskip("xarray")
    x = Ensemble(np.ones((2, 3)), SampleSet(n_samples=3))
    assert isinstance(x.to_xarray(), xarray.DataArray)
    assert x.to_xarray(dims=["space"]).dims == ("space", "sample")
