"""What leaves the process comes back as it was, and what is shown names what matters."""

import io
import pickle
import xml.etree.ElementTree

import matplotlib
import numpy as np
import pytest

from ensemble._backend import to_numpy
from ensemble.scalar import Ensemble, SampleSet, plot_histogram, plot_ribbon

matplotlib.use("agg")
SETS = {
    "none": None,
    "plain": SampleSet(n_samples=5),
    "full": SampleSet(np.eye(2, 5), [1, 2, 3, 4, 0], [9, 8, 7, 6, 6], method="sobol", seed=3),
}


def same(x, y):
    assert type(y.samples) is type(x.samples)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(to_numpy(y.samples), to_numpy(x.samples))
    assert y.sample_set == x.sample_set


@pytest.mark.parametrize("sample_set", SETS.values(), ids=SETS)
def test_an_npz_file_brings_everything_back(sample_set):
    x = Ensemble(np.random.default_rng(60103).normal(size=(2, 5)).astype(np.float32), sample_set)
    file = io.BytesIO()
    np.savez(file, **x.state())
    file.seek(0)
    with np.load(file, allow_pickle=False) as state:
        same(x, Ensemble.from_state(state))


def test_a_state_without_samples_is_refused():
    with pytest.raises(ValueError, match=r"from_state: state must have an array named samples; got \['ids'\]"):
        Ensemble.from_state({"ids": np.arange(3)})


@pytest.mark.parametrize("sample_set", SETS.values(), ids=SETS)
@pytest.mark.parametrize("dtype", [bool, np.int8, np.float32, np.complex128])
def test_bytes_are_one_message(dtype, sample_set):
    x = Ensemble((np.random.default_rng(60103).normal(size=(2, 3, 5)) * 3).astype(dtype)[::-1], sample_set)
    message = x.tobytes()
    assert len(message) == 30 * np.dtype(dtype).itemsize
    y = Ensemble.from_bytes(memoryview(message), like=x)
    same(x, y)
    y[0] = 0  # memory of its own
    with pytest.raises(ValueError, match=r"from_bytes: message_bytes must hold .* bytes; got"):
        Ensemble.from_bytes(message + b"1", like=x)


def test_bytes_and_copies_of_every_library(matrix):
    same(matrix, Ensemble.from_bytes(matrix.tobytes(), like=matrix))
    same(matrix, matrix.__copy__())
    if not type(matrix.samples).__module__.startswith("array_api_strict"):
        same(matrix, pickle.loads(pickle.dumps(matrix)))


def test_xarray_there_and_back():
    pytest.importorskip("xarray")
    x = Ensemble(np.random.default_rng(60103).normal(size=(2, 3, 5)), SampleSet(None, [1, 2, 3, 4, 0], [9, 8, 7, 6, 6]))
    array = x.to_xarray(sample_dim="draw", dims=["row", "column"])
    assert array.dims == ("row", "column", "draw")
    same(x, Ensemble.from_xarray(array, "draw"))
    same(x, Ensemble.from_xarray(array.transpose("draw", ...), "draw"))
    named = Ensemble(np.ones((1, 5)), SampleSet(n_samples=5, method="sobol", seed=12))
    same(named, Ensemble.from_xarray(named.to_xarray()))
    same(Ensemble(np.ones((1, 5))), Ensemble.from_xarray(Ensemble(np.ones((1, 5))).to_xarray()))
    with pytest.raises(ValueError, match=r"from_xarray: sample_dim must be one of .*; got 'sample'"):
        Ensemble.from_xarray(array)


def picture(x):
    """The drawing in the HTML of `x`, checked to be well formed."""
    text = x._repr_html_()
    return xml.etree.ElementTree.fromstring(text.replace("<br>", "")).find("{http://www.w3.org/2000/svg}svg")


def test_html_draws_a_histogram_of_a_value_and_a_band_of_an_array():
    rng = np.random.default_rng(33161)
    bars = picture(Ensemble(rng.normal(size=100)))
    assert len(bars) == 10
    assert max(float(bar.get("height")) for bar in bars) == 36.0
    band = picture(Ensemble(rng.normal(size=(4000, 9))))
    assert [part.tag.rpartition("}")[2] for part in band] == ["polygon", "polyline"]
    assert len(band[1].get("points").split()) == 180


@pytest.mark.parametrize(
    "samples",
    [np.ones((2, 1)), np.empty((0, 3)), np.ones((2, 3)) * 1j, np.full((2, 3), np.nan)],
    ids=["shared", "empty", "complex", "nan"],
)
def test_html_without_a_picture(samples):
    assert picture(Ensemble(samples)) is None


def test_html_leaves_out_samples_that_are_not_finite_or_weigh_nothing():
    values = np.array([1.0, np.nan, 2.0, 3.0])
    assert picture(Ensemble(values)) is not None
    assert picture(Ensemble(values[1:], SampleSet(weights=[1, 0, 0]))) is None
    assert picture(Ensemble(np.ones((3, 4)))) is not None  # no spread at all


def test_a_histogram_honours_weights():
    from matplotlib.figure import Figure

    x = Ensemble(np.array([0.0, 1.0, 1.0, np.nan]), SampleSet(weights=[2.0, 1.0, 0.0, 1.0]))
    ax = plot_histogram(x, ax=Figure().add_subplot(), bins=[0.0, 0.5, 1.0])
    np.testing.assert_allclose(ax.patches[0].get_data().values, [4 / 3, 2 / 3])


def test_a_ribbon_spans_quantiles():
    from matplotlib.figure import Figure

    x = Ensemble(np.linspace(0.0, 1.0, 101) + np.arange(4.0)[:, None])
    ax = plot_ribbon(x, [1.0, 2.0, 3.0, 5.0], ax=Figure().add_subplot(), levels=(0.1, 0.9), color="black")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.arange(4.0) + 0.5)
    vertices = ax.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose([vertices[:, 1].min(), vertices[:, 1].max()], [0.1, 3.9])


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: plot_histogram(Ensemble(np.ones((2, 3)))), "plot_histogram: x must have no axis"),
        (lambda: plot_ribbon(Ensemble(np.ones(3))), "plot_ribbon: x must have 1 axis"),
        (lambda: plot_ribbon(Ensemble(np.ones((2, 3))), [1.0]), r"along must have shape \(2,\); got shape \(1,\)"),
        (lambda: plot_histogram(Ensemble(np.ones(3) * 1j)), "x must be real; got dtype complex128"),
        (lambda: plot_histogram(Ensemble(np.full(3, np.nan))), "x must have a finite sample"),
        (lambda: plot_histogram(np.ones(3)), "x must be an Ensemble; got a ndarray"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, text):
    with pytest.raises((TypeError, ValueError), match=text):
        call()
