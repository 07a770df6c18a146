"""Arrays of NumPy's subclasses and types of other libraries beside ensembles: served, deferred to, or refused."""

import array
import operator
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray

from ensemble.scalar import DivergenceError, Ensemble, divide, from_samples, run, shared

VALUES = np.arange(1.0, 13.0).reshape(4, 3)
RNG = np.random.default_rng(71261)
FIELD = RNG.normal(size=(4, 5, 3))


def x():
    return Ensemble(VALUES.copy())


class Marked(np.ndarray):
    """A subclass that only adds a name."""


@pytest.fixture(params=["memmap", "recarray", "subclass"])
def plain_subclass(request, tmp_path):
    values = np.array([1.0, 2.0, 3.0, 4.0])
    if request.param == "memmap":
        array = np.memmap(tmp_path / "data", dtype=float, mode="w+", shape=(4,))
        array[:] = values
        return array
    return np.rec.array(values) if request.param == "recarray" else values.view(Marked)


OPERATIONS = {
    "x + a": lambda v, a: v + a,
    "a - x": lambda v, a: a - v,
    "x < a": lambda v, a: v < a,
    "np.hypot": lambda v, a: np.hypot(a, v),
    "x @ a": lambda v, a: v @ a,
    "a @ x": lambda v, a: a @ v,
    "np.dot": lambda v, a: np.dot(a, v),
    "concatenate": lambda v, a: np.concatenate([v, a]),
    "stack": lambda v, a: np.stack([a, v]),
    "where": lambda v, a: np.where(v > 2.0, v, a),
    "interp": lambda v, a: np.interp(v, a, a),
    "clip": lambda v, a: np.clip(v, a, 9.0),
    "einsum": lambda v, a: np.einsum("i,i", a, v),
    "index": lambda v, a: v[np.asarray(a, dtype=int) - 1],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_array_of_a_plain_subclass_is_a_plain_array(name, plain_subclass):
    got = OPERATIONS[name](x(), plain_subclass)
    assert type(got.samples) is np.ndarray
    for s in range(3):
        np.testing.assert_array_equal(got.sample(s), np.asarray(OPERATIONS[name](VALUES[:, s], plain_subclass)))


def test_an_ensemble_of_a_subclass_keeps_its_memory(plain_subclass):
    made = Ensemble(plain_subclass)
    assert type(made.samples) is np.ndarray and made.n_samples == 4
    assert np.shares_memory(made.samples, plain_subclass)
    assert shared(plain_subclass).shape == (4,)
    assert from_samples([plain_subclass, plain_subclass]).shape == (4,)
    y = x()
    y[...] = plain_subclass
    np.testing.assert_array_equal(y.samples, np.broadcast_to(np.asarray(plain_subclass)[:, None], (4, 3)))


MASKED = np.ma.masked_array([1.0, 2.0, 3.0, 4.0], [False, True, False, False])
MATRIX = np.array([[1.0, 2.0, 3.0, 4.0]]).view(np.matrix)

REFUSED = {
    "x + a": lambda v, a: v + a,
    "a + x": lambda v, a: a + v,
    "x * a": lambda v, a: v * a,
    "a * x": lambda v, a: a * v,
    "np.add": lambda v, a: np.add(v, a),
    "concatenate": lambda v, a: np.concatenate([v, a]),
    "where": lambda v, a: np.where(v > 2.0, v, a),
    "dot": lambda v, a: np.dot(a, v),
    "assignment": lambda v, a: v.__setitem__(..., a),
    "Ensemble": lambda v, a: Ensemble(a),
    "from_samples": lambda v, a: from_samples([a, a]),
    "namespace": lambda v, a: v.__array_namespace__().add(v, a),
}


@pytest.mark.parametrize("array", [MASKED, MATRIX], ids=["masked", "matrix"])
@pytest.mark.parametrize("name", REFUSED)
def test_masks_and_matrices_are_refused_on_both_sides(name, array):
    with pytest.raises(TypeError, match=r"MaskedArray|matrix|conversion to a plain array"):
        REFUSED[name](x(), array)


def test_records_are_refused():
    records = np.rec.array([(1, 2.0), (3, 4.0)], dtype=[("a", int), ("b", float)])
    for call in (lambda: x()[:2] + records, lambda: Ensemble(records), lambda: records + x()[:2]):
        with pytest.raises(TypeError):
            call()


class Holder:
    """A type that holds an array, as those with units do, and handles NumPy's functions."""

    def __init__(self, value):
        self.value = value

    def __array_function__(self, function, types, args, kwargs):
        return function.__name__, Ensemble in types

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return ufunc.__name__, any(isinstance(value, Ensemble) for value in inputs)


FUNCTIONS = {
    "interp": lambda v, h: np.interp(v, VALUES[:, 0], h),
    "where": lambda v, h: np.where(v > 0.0, v, h),
    "concatenate": lambda v, h: np.concatenate([v, h]),
    "clip": lambda v, h: np.clip(v, h, 3.0),
    "dot": lambda v, h: np.dot(v, h),
    "linspace": lambda v, h: np.linspace(v, h, 3),
    "add": lambda v, h: np.add(v, h),
    "operator": operator.add,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_type_that_holds_arrays_handles_the_call(name):
    if name == "operator":
        with pytest.raises(TypeError):
            FUNCTIONS[name](x(), Holder(1.0))  # it has no operators
        return
    assert FUNCTIONS[name](x(), Holder(1.0))[1]


def test_units_stay():
    pint = pytest.importorskip("pint")
    unit = pint.UnitRegistry()
    table = np.arange(4.0) * unit.m
    for got in (np.interp(x(), np.arange(4.0), table), np.interp(x() * unit.s, np.arange(4.0) * unit.s, table)):
        assert got.units == unit.m
        for s in range(3):
            np.testing.assert_array_equal(
                got.magnitude.sample(s), np.interp(VALUES[:, s], np.arange(4.0), np.arange(4.0))
            )
    lengths = x() * unit.m
    assert np.concatenate([lengths, table]).units == np.where(x() > 2.0, table, 0.0 * unit.m).units == unit.m
    assert np.sum(lengths).units == np.dot(x(), table).units == np.linalg.norm(lengths).units == unit.m
    for call in (lambda: x() + table, lambda: np.add(x(), table), lambda: table + x()):
        with pytest.raises(pint.DimensionalityError):
            call()


def data(values):
    xarray = pytest.importorskip("xarray")
    return xarray.DataArray(values, dims=("t", "s"), coords={"t": np.arange(4.0)})


XARRAY = {
    "rolling mean": lambda d: d.rolling(t=2).mean(),
    "rolling max, centred": lambda d: d.rolling(t=3, center=True).max(),
    "rolling sum of few": lambda d: d.rolling(t=3, min_periods=1).sum(),
    "rolling construct": lambda d: d.rolling(t=2, s=2).construct(t="w", s="u"),
    "rolling reduce": lambda d: d.rolling(t=2).reduce(np.sum),
    "rolling std": lambda d: d.rolling(t=2).std(),
    "pad": lambda d: d.pad(t=1),
    "pad edge": lambda d: d.pad(t=(1, 2), mode="edge"),
    "pad value": lambda d: d.pad(t=1, constant_values=3.0),
    "shift": lambda d: d.shift(t=1),
    "shift back": lambda d: d.shift(t=-1, fill_value=0.0),
    "polyfit": lambda d: d.polyfit("t", 2).polyfit_coefficients,
    "polyfit of a vector": lambda d: d.isel(s=0).polyfit("t", 1).polyfit_coefficients,
    "polyfit covariance": lambda d: d.polyfit("t", 1, cov=True).polyfit_covariance,
    "differentiate": lambda d: d.differentiate("t"),
    "integrate": lambda d: d.integrate("t"),
    "cumulative_integrate": lambda d: d.cumulative_integrate("t"),
    "coarsen": lambda d: d.coarsen(t=2).mean(),
    "groupby": lambda d: d.groupby("t").mean(),
    "quantile": lambda d: d.quantile([0.1, 0.5], "t"),
    "where": lambda d: d.where(d.t > 1.0, drop=True),
    "reindex": lambda d: d.reindex(t=[0.0, 1.0, 9.0]),
    "weighted": lambda d: d.weighted(d.t + 1.0).mean("t"),
    "plus an array": lambda d: d + d.data,
}


@pytest.mark.parametrize("name", XARRAY)
def test_xarray_around_an_ensemble_is_that_of_each_sample(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = XARRAY[name](data(Ensemble(FIELD)))
        for s in range(3):
            alone = XARRAY[name](data(FIELD[..., s]))
            assert got.dims == alone.dims
            np.testing.assert_allclose(got.data.sample(s), alone.values, rtol=1e-12, atol=1e-12)


def test_xarray_gives_one_number_where_all_samples_agree():
    xarray = pytest.importorskip("xarray")
    differing = xarray.DataArray(Ensemble(np.array([1.0, 2.0])))
    agreed = xarray.DataArray(Ensemble(np.array([2.0, 2.0])))
    assert bool(differing > 0.0) and float(agreed) == 2.0 and int(agreed) == 2
    for call in (lambda: bool(differing > 1.0), lambda: float(differing)):
        with pytest.raises(DivergenceError):
            call()
    with pytest.raises(TypeError, match="conversion to a plain array"):
        np.asarray(agreed)
    result = run(lambda v: 1.0 if xarray.DataArray(v) > 1.0 else 0.0, Ensemble(np.array([1.0, 2.0])))
    np.testing.assert_array_equal(result.value.samples, [0.0, 1.0])


def test_attributes_of_samples_are_no_attributes_of_ensembles():
    x = Ensemble(np.ones((3, 4)))
    for name in ("ctypes", "hex", "as_integer_ratio", "nbytes_of_nothing"):
        assert not hasattr(x, name) and not hasattr(Ensemble, name) and name not in dir(x)
        with pytest.raises(AttributeError, match=f"'Ensemble' object has no attribute '{name}'"):
            getattr(x, name)
    assert not hasattr(Ensemble, "__getattr__")  # with one, the interpreter caches no attribute of the class
    result = run(
        lambda v: (v.hex() if hasattr(v, "hex") else None, getattr(v, "magnitude", 0)), Ensemble(np.arange(4.0))
    )
    assert [result.sample(s) for s in range(4)] == [(np.float64(s).hex(), 0) for s in range(4)]


def test_an_attribute_that_no_sample_has_is_refused_in_the_words_of_a_sample():
    def words(v):
        try:
            return v.magnitude
        except AttributeError as error:
            return str(error)

    result = run(words, Ensemble(np.arange(4.0)), loop=False)
    assert result.n_runs == 1 and result.sample(2) == "'numpy.float64' object has no attribute 'magnitude'"


class OfOwn:
    """An array-like: NumPy makes an array of it."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values)


ARRAY_LIKES = {
    "series": pd.Series,
    "data array": xarray.DataArray,
    "own": OfOwn,
    "range": lambda values: range(1, len(values) + 1),
    "array": lambda values: array.array("d", values),
    "memory view": lambda values: memoryview(np.array(values)),
    "list": list,
}


@pytest.mark.parametrize("kind", ARRAY_LIKES)
@pytest.mark.parametrize(
    "write",
    [
        lambda x, v: x.__setitem__(slice(None), v),
        lambda x, v: x.__setitem__(..., v),
        lambda x, v: x.__setitem__(x == x, v),
        lambda x, v: x.__setitem__(Ensemble(np.array([[0, 1, 2, 0], [1, 2, 0, 2], [2, 0, 1, 1]])), v),
        lambda x, v: np.copyto(x, np.full_like(x, v)),
    ],
)
def test_axes_of_array_likes_that_are_written_are_visible_ones(kind, write):
    make = ARRAY_LIKES[kind]
    got, wanted = Ensemble(np.zeros((3, 4))), Ensemble(np.zeros((3, 4)))
    write(got, make([1.0, 2.0, 3.0]))
    write(wanted, np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(got.samples, wanted.samples)
    for refused in got, got[0, ...]:  # four values for four samples
        with pytest.raises((ValueError, TypeError, IndexError)):
            write(refused, make([1.0, 2.0, 3.0, 4.0]))
    with pytest.raises((ValueError, TypeError)):
        got[0] = make([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(got.samples, wanted.samples)


@pytest.mark.parametrize("kind", sorted(ARRAY_LIKES.keys() - {"series", "data array"}))
def test_array_likes_are_compared_entry_by_entry(kind):
    x = Ensemble(np.array([[1.0, 2.0], [2.0, 3.0], [3.0, 3.0]]))
    other = ARRAY_LIKES[kind]([1.0, 2.0, 3.0])
    np.testing.assert_array_equal((x == other).samples, [[True, False], [True, False], [True, True]])
    np.testing.assert_array_equal((x != other).samples, [[False, True], [False, True], [False, False]])


@pytest.mark.parametrize(
    "call",
    [
        lambda x, q: x.__setitem__(0, q),
        lambda x, q: x.fill(q),
        lambda x, q: np.full_like(x, q),
        lambda x, q: x.__array_namespace__().full_like(x, q),
        lambda x, q: divide(x, q),
        lambda x, q: from_samples([q, q]),
    ],
)
def test_a_quantity_does_not_lose_its_unit_without_a_word(call):
    pint = pytest.importorskip("pint")
    x = Ensemble(np.ones((3, 2)))
    with pytest.raises((pint.DimensionalityError, pint.UnitStrippedWarning)):
        call(x, 2.0 * pint.UnitRegistry().meter)
