"""What leaves the process comes back as it was, and what is shown names what matters."""

import io
import math
import pickle
import xml.etree.ElementTree

import matplotlib
import numpy as np
import pytest

from ensemble._backend import to_numpy
from ensemble.scalar import DivergenceError, Ensemble, SampleSet, load, plot_histogram, plot_ribbon, sample_mean, save

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
        (lambda: plot_histogram(np.ones(3)), "x must be an Ensemble; got an ndarray"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, text):
    with pytest.raises((TypeError, ValueError), match=text):
        call()


# -- what a sample set holds goes along --------------------------------------------------------------------------------

POINTS = np.arange(15.0).reshape(3, 5)
WHOLE_SETS = {
    "weights": SampleSet(weights=[1, 2, 3, 4, 0.5]),
    "points": SampleSet(POINTS, method="sobol", seed=7),
    "a vector of points": SampleSet(POINTS[0]),
    "a table of points": SampleSet(POINTS.reshape(3, 1, 5)),
    "ids": SampleSet(ids=[9, 8, 7, 6, 5]),
    "a long seed": SampleSet(n_samples=5, seed=2**80 + 1),
    "a negative seed": SampleSet(n_samples=5, seed=-3),
    "everything": SampleSet(POINTS, [1, 0, 3, 4, 0.5], [4, 4, 1, 2, 9], "by hand", 2**63),
}


@pytest.mark.parametrize("name", WHOLE_SETS)
def test_a_sample_set_comes_back_from_everywhere(name, tmp_path):
    pytest.importorskip("xarray")
    x = Ensemble(np.random.default_rng(60103).normal(size=(2, 5)), WHOLE_SETS[name])
    file = tmp_path / "x.npz"
    np.savez(file, **x.state())
    with np.load(file, allow_pickle=False) as state:
        same(x, Ensemble.from_state(state))
    same(x, Ensemble.from_xarray(x.to_xarray()))
    save(tmp_path / "one", x)
    same(x, load(tmp_path / "one"))
    save(tmp_path / "several.npz", u=x, v=x[0])
    several = load(tmp_path / "several.npz")
    assert sorted(several) == ["u", "v"]
    same(x[0], several["v"])
    same(x, several["u"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "several.npz", "x.npz"]


def test_what_is_missing_of_a_sample_set_is_left_out():
    xarray = pytest.importorskip("xarray")
    x = Ensemble(np.ones((2, 3)), SampleSet(np.arange(6.0).reshape(2, 3), [1.0, 2.0, 3.0]))
    state = {name: array for name, array in x.state().items() if name not in ("ids", "method")}
    assert Ensemble.from_state(state).sample_set == x.sample_set
    assert Ensemble.from_xarray(x.to_xarray().drop_vars("sample")).sample_set == x.sample_set
    plain = xarray.DataArray(np.ones((2, 3)), dims=["t", "sample"], attrs={"units": "Pa"})
    assert Ensemble.from_xarray(plain).sample_set is None


def test_a_symbolic_link_to_a_saved_file_stays(tmp_path):
    link = tmp_path / "link.npz"
    link.symlink_to(tmp_path / "file.npz")
    save(link, Ensemble(np.array([1.0, 2.0])))
    assert link.is_symlink() and load(tmp_path / "file.npz").samples.tolist() == [1.0, 2.0]


def test_what_cannot_be_saved_is_refused(tmp_path):
    x = Ensemble(np.ones((2, 3)))
    path = tmp_path / "x.npz"
    for call, text in (
        (lambda: save(path), "save: the ensembles must be one without a name, or several by name; got nothing"),
        (lambda: save(path, x, y=x), "or several by name; got both"),
        (lambda: save(path, y=np.ones(3)), r"save: y must be an Ensemble; got an ndarray\. Use en\.shared\(x\)"),
    ):
        with pytest.raises(TypeError, match=text):
            call()
    assert not list(tmp_path.iterdir())
    np.savez(path, a=np.ones(3))
    with pytest.raises(ValueError, match=r"load: path must name a file that save has written; got .*x\.npz"):
        load(path)


def test_chosen_samples_keep_their_weights(base):
    values = np.random.default_rng(60103).normal(size=(2, 3))
    weights = np.array([1.0, 3.0, 0.02])
    x = Ensemble(base.asarray(values), SampleSet(POINTS[:, :3], weights, [7, 8, 9]))
    for chosen in ([True, True, False], np.array([0, 1]), [0, -2], Ensemble(np.array([True, True, False]))):
        some = x.take_samples(chosen)
        np.testing.assert_array_equal(to_numpy(some.samples), values[:, :2])
        expected = np.average(values[:, :2], axis=1, weights=weights[:2])
        np.testing.assert_allclose(to_numpy(sample_mean(some)), expected, rtol=1e-15)
        np.testing.assert_array_equal(some.sample_set.ids, [7, 8])
        np.testing.assert_array_equal(some.sample_set.points, POINTS[:, :2])
    shared_data = Ensemble(base.asarray(values[:, :1]))
    assert shared_data.take_samples([True, False]).is_shared


@pytest.mark.parametrize(
    "chosen, error, text",
    [
        ([False] * 3, ValueError, "chosen must name one sample or more; got none"),
        ([True] * 4, ValueError, "chosen must have one entry per sample; got 4 for 3 samples"),
        ([0, 3], IndexError, "chosen must be from -3 to 2; got 0 to 3"),
        ([0.5], ValueError, "chosen must be a vector of integers or bools; got dtype float64"),
        (1, ValueError, r"chosen must be a vector of integers or bools; got dtype int64, shape \(\)"),
    ],
)
def test_samples_that_are_not_there_cannot_be_chosen(chosen, error, text):
    with pytest.raises(error, match=rf"Ensemble\.take_samples: {text}"):
        Ensemble(np.ones((2, 3))).take_samples(chosen)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"no numbers", b"\x93NUMPY", "npy", "cut"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "damaged.npz"
    if content == "npy":
        with open(path, "wb") as file:
            np.save(file, np.ones(3))
    elif content == "cut":
        save(path, Ensemble(np.ones((30, 2))))
        path.write_bytes(path.read_bytes()[:-40])
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"load: path must name a file that save has written; got .*damaged\.npz"):
        load(path)


@pytest.mark.parametrize("use", [math.sin, bool, float, int, range])
def test_where_samples_part_the_ways_for_unchanged_code_are_named(use):
    x = Ensemble(np.array([0, 2])) if use in (int, range) else Ensemble(np.array([0.0, 2.0]))
    with pytest.raises(DivergenceError, match=r"ensemble\.run takes unchanged code; ensemble\.vectorize calls"):
        use(x)
