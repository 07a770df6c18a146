"""CuPy's arrays and functions meet ensembles on a device: right, or refused with a reason."""

import copy
import pickle

import numpy as np
import pytest

from ensemble._backend import to_numpy
from ensemble.scalar import (
    DivergenceError,
    Ensemble,
    Moments,
    SampleSet,
    all_samples,
    cond,
    divide,
    dot,
    from_samples,
    namespace,
    norm,
    per_sample,
    plot_ribbon,
    probability,
    run,
    sample_confidence_interval,
    sample_corr,
    sample_cov,
    sample_max,
    sample_mean,
    sample_min,
    sample_quantile,
    sample_std,
    where,
    while_loop,
)
from tests.scalar.libraries import cupy_with_a_device

pytestmark = pytest.mark.cuda

VALUES = np.random.default_rng(61871).uniform(0.5, 2.0, size=(4, 4, 3))
PLAIN = np.random.default_rng(42901).uniform(0.5, 2.0, size=(4, 4))
EPS = np.finfo(np.float64).eps


@pytest.fixture(scope="module")
def cupy():
    return cupy_with_a_device()


@pytest.fixture
def x(cupy):
    return Ensemble(cupy.asarray(VALUES))


CALLS = {
    "left product": lambda cp, p, x: p * x,
    "left sum": lambda cp, p, x: p[0] + x,
    "left difference": lambda cp, p, x: p - x,
    "left quotient": lambda cp, p, x: p / x,
    "left power": lambda cp, p, x: p**x,
    "left floor": lambda cp, p, x: p // x,
    "left remainder": lambda cp, p, x: p % x,
    "left matmul": lambda cp, p, x: p @ x,
    "left comparison": lambda cp, p, x: p < x,
    "left equality": lambda cp, p, x: p == x,
    "left and": lambda cp, p, x: (p > 1) & (x > 1),
    "0-d left": lambda cp, p, x: p[0, 0] * x,
    "right": lambda cp, p, x: x - p,
    "NumPy's scalar": lambda cp, p, x: np.float64(2.0) * x,
    "NumPy's function": lambda cp, p, x: np.sum(x, axis=0),
    "NumPy's ufunc": lambda cp, p, x: np.sin(x),
    "cupy.sin": lambda cp, p, x: cp.sin(x),
    "cupy.add": lambda cp, p, x: cp.add(p, x),
    "cupy.maximum": lambda cp, p, x: cp.maximum(x, 1.0),
    "cupy.deg2rad": lambda cp, p, x: cp.deg2rad(x),
    "cupy.modf": lambda cp, p, x: cp.modf(x)[0],
    "method": lambda cp, p, x: x.sum(axis=1),
    "copy": lambda cp, p, x: x.copy(),
}


@pytest.mark.parametrize("name", CALLS)
def test_cupy_functions_work_sample_by_sample(name, cupy, x):
    plain = cupy.asarray(PLAIN)
    got = CALLS[name](cupy, plain, x)
    assert isinstance(got, Ensemble)
    for s in range(3):
        expected = CALLS[name](cupy, plain, x.sample(s))
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(to_numpy(got.sample(s)), to_numpy(expected), rtol=100 * EPS)


REFUSED = {
    "+=": lambda cp, p, x: p.__iadd__(x),
    "assignment": lambda cp, p, x: p.__setitem__(slice(None), x),
    "entry": lambda cp, p, x: p.__setitem__((0, 0), x[0, 0]),
    "out": lambda cp, p, x: cp.sin(x, out=p),
    "asarray": lambda cp, p, x: cp.asarray(x),
    "array": lambda cp, p, x: cp.array(x),
    "asnumpy": lambda cp, p, x: cp.asnumpy(x),
    "solve": lambda cp, p, x: cp.linalg.solve(p, x),
    "numpy array": lambda cp, p, x: np.ones((4, 4)) * x,
    "numpy.asarray": lambda cp, p, x: np.asarray(x),
    "numpy ensemble": lambda cp, p, x: x + Ensemble(VALUES),
    "kernel": lambda cp, p, x: cp.ElementwiseKernel("float64 x", "float64 y", "y = x", "same")(x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_right_raises_and_changes_nothing(name, cupy, x):
    plain = cupy.asarray(PLAIN)
    with pytest.raises((TypeError, ValueError, AttributeError, BufferError, DivergenceError, np.linalg.LinAlgError)):
        REFUSED[name](cupy, plain, x)
    np.testing.assert_array_equal(to_numpy(plain), PLAIN)


def test_truth_values_and_numbers_on_the_device(cupy):
    x = Ensemble(cupy.asarray([1.0, -2.0, 3.0]))
    with pytest.raises(DivergenceError, match=r"2 True among 3 samples \(0, 2\)"):
        bool(x > 0.0)
    with pytest.raises(DivergenceError, match="3 different values"):
        float(x)
    assert not all_samples(x > 0.0)
    assert [5, 6, 7][Ensemble(cupy.asarray([1, 1]))] == 6
    np.testing.assert_array_equal(to_numpy(where(x > 0.0, x, 0.0).samples), [1.0, 0.0, 3.0])
    np.testing.assert_array_equal(to_numpy(divide(1.0, x, where=x > 0.0).samples), [1.0, 0.0, 1 / 3])
    root = cond(x > 0.0, lambda v: v**0.5, lambda v: 0.0 * v, x)
    np.testing.assert_allclose(to_numpy(root.samples), [1.0, 0.0, 3**0.5], rtol=4 * EPS)
    state, steps = while_loop(lambda v: v > 1.0, lambda v: v / 2.0, x)
    np.testing.assert_array_equal(steps, [0, 0, 2])
    np.testing.assert_array_equal(to_numpy(state.samples), [1.0, -2.0, 0.75])
    assert to_numpy(per_sample(lambda v: v * 2.0 if v > 0.0 else v)(x).samples).tolist() == [2.0, -2.0, 6.0]
    assert to_numpy(run(lambda v: v * 2.0 if v > 0.0 else v, x).value.samples).tolist() == [2.0, -2.0, 6.0]


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.0, 1.0, 1.0]])
def test_statistics_are_those_of_the_host(weights, cupy):
    values = np.random.default_rng(33289).normal(size=(3, 5))
    sample_set = None if weights is None else SampleSet(weights=weights)
    host, x = Ensemble(values, sample_set), Ensemble(cupy.asarray(values), sample_set)
    for statistic in (sample_mean, sample_std, sample_min, sample_max, sample_cov, sample_corr):
        got = statistic(x)
        assert isinstance(got, cupy.ndarray)
        np.testing.assert_allclose(to_numpy(got), statistic(host), rtol=1e-13, atol=1e-15)
    for method in ("linear", "inverted_cdf"):
        levels = [0.0, 0.3, 0.5, 1.0]
        got = sample_quantile(x, levels, method=method)
        np.testing.assert_allclose(to_numpy(got), sample_quantile(host, levels, method=method), rtol=1e-13)
    np.testing.assert_allclose(to_numpy(probability(x > 0.0)), probability(host > 0.0), rtol=1e-14)
    pair = zip(sample_confidence_interval(x), sample_confidence_interval(host), strict=True)
    for got, expected in pair:
        np.testing.assert_allclose(to_numpy(got), expected, rtol=1e-12)
    np.testing.assert_allclose(to_numpy(Moments(x).var(ddof=1)), Moments(host).var(ddof=1), rtol=1e-13)


def test_inner_products_on_the_device(cupy, x):
    v = x[0]
    np.testing.assert_allclose(to_numpy(dot(v, v).samples), np.sum(VALUES[0] ** 2, axis=0), rtol=1e-14)
    np.testing.assert_allclose(float(norm(v, over="all")), np.linalg.norm(VALUES[0]), rtol=1e-14)


def test_ways_out_and_back(cupy, x):
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), Ensemble.from_bytes(x.tobytes(), like=x)):
        assert isinstance(y.samples, cupy.ndarray)
        np.testing.assert_array_equal(to_numpy(y.samples), VALUES)
    np.testing.assert_array_equal(Ensemble.from_state(x.state()).samples, VALUES)
    assert isinstance(x.sample(1), cupy.ndarray)
    assert x.device == x.samples.device
    assert x.to_device(x.device).samples is x.samples
    np.testing.assert_array_equal(x.to_device("cpu").samples, VALUES)
    shared = namespace(cupy).asarray([1.0, 2.0])
    np.testing.assert_array_equal(to_numpy(cupy.from_dlpack(shared)), [1.0, 2.0])
    np.testing.assert_array_equal(np.from_dlpack(shared, device="cpu", copy=True), [1.0, 2.0])
    with pytest.raises(DivergenceError):
        cupy.from_dlpack(x)


def test_looks(cupy, x):
    assert repr(x) == repr(Ensemble(VALUES))
    assert f"{x[0, 0]:.3f}" == f"{Ensemble(VALUES)[0, 0]:.3f}"
    assert x._repr_html_() == Ensemble(VALUES)._repr_html_()


def test_pictures_and_labels(cupy, x):
    figure = pytest.importorskip("matplotlib.figure")
    assert len(plot_ribbon(x[0], cupy.arange(4), ax=figure.Figure().add_subplot()).lines) == 1
    pytest.importorskip("xarray")
    np.testing.assert_array_equal(x.to_xarray().values, VALUES)


def test_indices_on_the_device(cupy, x):
    places = cupy.asarray([2, 0])
    np.testing.assert_array_equal(to_numpy(x[places].samples), VALUES[[2, 0]])
    np.testing.assert_array_equal(to_numpy(x[1, [0, 2]].samples), VALUES[1, [0, 2]])
    np.testing.assert_array_equal(to_numpy(x[cupy.asarray(PLAIN) > 1.0].samples), VALUES[PLAIN > 1.0])
    np.testing.assert_array_equal(to_numpy(x[cupy.asarray(1)].samples), VALUES[1])
    each = Ensemble(cupy.asarray([0, 1, 2]))
    expected = np.stack([VALUES[s, :, s] for s in range(3)], axis=-1)
    np.testing.assert_array_equal(to_numpy(x[each].samples), expected)
    x[x > 1.0] = 0.0
    x[0] = from_samples([cupy.asarray(PLAIN[s]) for s in range(3)])
    changed = np.where(VALUES > 1.0, 0.0, VALUES)
    changed[0] = PLAIN[:3].T
    np.testing.assert_array_equal(to_numpy(x.samples), changed)


def test_samples_stay_contiguous(cupy, x):
    xp = x.__array_namespace__()
    for result in (xp.linalg.inv(x), x @ x, xp.sort(x, axis=0), xp.fft.fft(x, axis=0), x.T):
        assert result.samples.strides[-1] == result.samples.itemsize
