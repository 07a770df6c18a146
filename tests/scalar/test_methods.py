"""The methods of arrays and floats: each sample's result is that of the sample's own method."""

import copy
import math

import numpy as np
import pytest

from ensemble._backend import to_numpy
from ensemble.scalar import Ensemble, namespace, run
from ensemble.scalar.interop.methods import METHODS

RNG = np.random.default_rng(28411)
MATRIX = RNG.normal(size=(4, 4, 3))
CALLS = {
    "all": lambda x: (x > -1.0).all(axis=0),
    "any": lambda x: (x > 1.0).any(),
    "argmax": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(axis=1),
    "argpartition": lambda x: x.argpartition(1, axis=0),
    "argsort": lambda x: x.argsort(axis=0),
    "astype": lambda x: x.astype(np.float32),
    "astype word": lambda x: x.astype(int, copy=False),
    "choose": lambda x: (x > 0).astype(int).choose([x, 2 * x]),
    "clip": lambda x: x.clip(-0.5, 0.5),
    "compress": lambda x: x.compress([True, False, True], axis=1),
    "clip one": lambda x: x.clip(min=0.0),
    "conj": lambda x: (x * 1j).conj(),
    "conjugate": lambda x: x.conjugate(),
    "copy": lambda x: x.copy(),
    "cumprod": lambda x: x.cumprod(axis=1),
    "cumsum": lambda x: x.cumsum(),
    "diagonal": lambda x: x.diagonal(1),
    "dot": lambda x: x.dot(x),
    "flatten": lambda x: x.flatten(),
    "flatten columns first": lambda x: x.flatten("F"),
    "imag": lambda x: (x * (1 + 2j)).imag,
    "imag of real": lambda x: x.imag,
    "item": lambda x: x.item(2, 1),
    "max": lambda x: x.max(axis=-1, keepdims=True),
    "mean": lambda x: x.mean(axis=(0, 1)),
    "min": lambda x: x.min(),
    "prod": lambda x: x.prod(axis=0),
    "ravel": lambda x: x.ravel(),
    "real": lambda x: (x * (1 + 2j)).real,
    "real of real": lambda x: x.real,
    "repeat": lambda x: x.repeat(2, axis=0),
    "reshape": lambda x: x.reshape(2, -1),
    "reshape columns first": lambda x: x.reshape(2, -1, order="F"),
    "reshape tuple": lambda x: x.reshape((16,), order="C"),
    "round": lambda x: x.round(),
    "round digits": lambda x: x.round(2),
    "searchsorted": lambda x: x[0].cumsum().clip(0.0).searchsorted(0.5),
    "squeeze": lambda x: x[:1].squeeze(),
    "std": lambda x: x.std(ddof=1),
    "sum": lambda x: x.sum(axis=0),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "T": lambda x: x[0].T + x.T,
    "take": lambda x: x.take([2, 0], axis=1),
    "trace": lambda x: x.trace(),
    "transpose": lambda x: x.transpose(),
    "transpose axes": lambda x: x.reshape(2, 2, 4).transpose(2, 0, 1),
    "transpose tuple": lambda x: x.transpose((1, 0)),
    "var": lambda x: x.var(),
}


def assert_like_samples(call, x):
    got = call(x)
    assert isinstance(got, Ensemble)
    for s in range(x.n_samples):
        expected = np.asarray(call(x.sample(s)))
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        # sums of 16 terms in another order
        np.testing.assert_allclose(got.sample(s), expected, rtol=100 * np.finfo(float).eps, atol=1e-15)


@pytest.mark.parametrize("name", CALLS)
def test_a_method_of_arrays_is_that_of_each_sample(name):
    assert_like_samples(CALLS[name], Ensemble(MATRIX))


def test_an_unknown_order_is_refused():
    with pytest.raises(ValueError, match=r"reshape: order must be one of 'C', 'F', 'A'; got 'X'"):
        Ensemble(MATRIX).reshape(16, order="X")


def test_every_method_has_a_case():
    assert set(METHODS) - {"nonzero"} <= {name.split()[0] for name in CALLS}
    (places,) = Ensemble(np.array([[1.0, 2.0], [0.0, 0.0]])).nonzero()
    np.testing.assert_array_equal(places.samples, [[0, 0]])


@pytest.mark.parametrize("name", ["sum", "copy", "mean", "reshape", "real of real", "cumsum", "T", "max", "clip"])
def test_methods_are_there_whatever_the_library(name, base):
    if base.__name__ == "array_api_strict" and name == "cumsum":
        name = "sum"  # it wants an axis there
    x = Ensemble(base.asarray(MATRIX))
    got = CALLS[name](x)
    assert type(got.samples) is type(x.samples)
    np.testing.assert_allclose(to_numpy(got.samples), CALLS[name](Ensemble(MATRIX)).samples, rtol=1e-13)


# -- numbers -----------------------------------------------------------------------------------------------------------

NUMBERS = np.array([-2.5, 1.5, 3.0, 0.49999999999999994, -0.0])


@pytest.mark.parametrize("function", [round, math.floor, math.ceil, math.trunc], ids=lambda f: f.__name__)
def test_rounding_gives_every_sample_its_own_integer(function):
    got = function(Ensemble(NUMBERS))
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got.samples, [function(float(value)) for value in NUMBERS])
    assert function(Ensemble(np.array([2, 3]))).dtype == np.int64
    with pytest.raises(TypeError, match=f"{function.__name__}: x must have no axis"):
        function(Ensemble(MATRIX))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e300])
def test_what_is_no_integer_is_never_rounded_to_one(bad):
    x = Ensemble(np.array([1.0, bad, 2.0]))
    with pytest.raises(ValueError, match=r"floor: x must be finite and fit .* sample 1\. Use xp\.floor"):
        math.floor(x)


def test_rounding_to_digits_and_whole_numbers():
    x = Ensemble(NUMBERS)
    np.testing.assert_array_equal(round(x, 1).samples, [round(np.float64(value), 1) for value in NUMBERS])
    np.testing.assert_array_equal(x.is_integer().samples, [value.is_integer() for value in NUMBERS])
    assert not Ensemble(np.array([np.inf, np.nan])).is_integer()
    assert Ensemble(np.array([1, 2])).is_integer()


def test_inside_run_whole_numbers_are_those_of_python():
    result = run(lambda x: math.floor(x) ** 70, Ensemble(np.array([3.5, 2.5])))  # beyond 64 bits
    assert [result.sample(0), result.sample(1)] == [3**70, 2**70]


# -- writing -----------------------------------------------------------------------------------------------------------


def test_a_copy_has_its_own_memory():
    x = Ensemble(MATRIX.copy())
    for y in (x.copy(), x.flatten(), copy.deepcopy({"x": [x]})["x"][0]):
        y[0] = 100.0
        assert x.samples.max() < 100.0


def test_fill_and_sort_write_in_place():
    x = Ensemble(MATRIX.copy())
    x.sort(axis=0)
    np.testing.assert_array_equal(x.samples, np.sort(MATRIX, axis=0))
    x.fill(Ensemble(np.array([1.0, 2.0, 3.0])))
    np.testing.assert_array_equal(x.samples, np.broadcast_to([1.0, 2.0, 3.0], (4, 4, 3)))


def test_a_part_of_complex_values_refuses_to_be_written_to():
    z = Ensemble(MATRIX * (1 + 1j))
    for part in (z.real, z.imag):
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 1.0
        with pytest.raises(ValueError, match="read-only"):
            part += 1.0
    y = z.real.copy()
    y[0] = 1.0
    x = Ensemble(MATRIX.copy())
    x.real[0] = 9.0  # real values are their own real part, as in NumPy
    assert x.samples[0].min() == 9.0


def test_entries_and_lists():
    x = Ensemble(MATRIX)
    np.testing.assert_array_equal(x[0, :1].item().samples, MATRIX[0, 0])
    np.testing.assert_array_equal(x.tolist()[1][2].samples, MATRIX[1, 2])
    with pytest.raises(ValueError, match=r"item: x must have one entry; got shape \(4, 4\)"):
        x.item()


def test_a_list_of_values_is_assigned_entry_by_entry(base):
    x = namespace(base).zeros(3)
    x[:2] = [Ensemble(base.asarray([1.0, 2.0])), 5.0]
    np.testing.assert_array_equal(to_numpy(x.samples), [[1.0, 2.0], [5.0, 5.0], [0.0, 0.0]])
