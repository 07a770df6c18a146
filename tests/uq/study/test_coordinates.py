"""Coordinates of the axes of outputs, and units: from what a user says to datasets, files, pictures and stores."""

import datetime
import json

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from tests.uq.store.trees import tree

T = np.linspace(0.0, 2.0, 5)
SPECIES = ["CO2", "N2", "O2"]
UNITS = {"t": "s", "height": "m", "tip": "mm"}


def inputs():
    return en.Inputs(speed=stats.norm(20.0, 1.0), v=en.uq.Vector(stats.norm(), 2))


def model(x):
    height = x.speed * T - 4.905 * T**2
    return {"height": height, "tip": 2.0 * x.speed, "flow": x.speed * np.arange(3.0), "grid": x.speed * np.ones((5, 3))}


def said(**more):
    return en.Outputs(t=T, species=SPECIES, units=UNITS, **more)


def study(n=64, **options):
    options = {"outputs": said(), "seed": 3, **options}
    return en.propagate(model, inputs(), n, progress=False, **options)


def test_results_name_axes_coordinates_and_units():
    result = study()
    assert result.dims == {"height": ("t",), "tip": (), "flow": ("species",), "grid": ("t", "species")}
    assert np.array_equal(result.coordinates["t"], T) and result.coordinates["species"].tolist() == SPECIES
    assert result.units == UNITS


def test_datasets_have_coordinates_whatever_they_are_made_from(tmp_path):
    xarray = pytest.importorskip("xarray")
    path = tmp_path / "run.zarr"
    study(32, store=path)
    study(64, store=path, resume=True, outputs=None)  # extended: what was said before holds
    memory, stored, opened = study().to_xarray(), en.uq.open_study(path).to_xarray(), xarray.open_zarr(path)
    assert memory.equals(stored) and memory.height.attrs == {"units": "m"} and memory.t.attrs == {"units": "s"}
    assert stored.height.sel(t=0.5).shape == (64,) and stored.flow.sel(species="N2").shape == (64,)
    assert np.array_equal(opened.t, T) and opened.height.dims == ("t", "sample") and opened.tip.attrs["units"] == "mm"
    assert opened.species.attrs["labels"] == SPECIES and np.array_equal(opened.grid.sel(t=2.0), memory.grid[-1])
    few = study(keep="statistics").to_xarray()
    assert few.height_mean.dims == ("t",) and np.array_equal(few.t, T) and few.grid_std.attrs == {}


def test_dates_are_coordinates_too(tmp_path):
    xarray = pytest.importorskip("xarray")
    days = [datetime.date(2026, 1, 1) + datetime.timedelta(days=k) for k in range(5)]
    path = tmp_path / "run.zarr"
    outputs = en.Outputs(day=days, species=SPECIES)
    result = study(store=path, outputs=outputs)
    expected = np.array(days, dtype="M8[ns]")
    for dataset in (result.to_xarray(), en.uq.open_study(path).to_xarray(), xarray.open_zarr(path)):
        assert np.array_equal(dataset.day.values.astype("M8[ns]"), expected)
    result.save(tmp_path / "run.csv")
    assert "height(day=2026-01-03)" in (tmp_path / "run.csv").read_text().splitlines()[0]


MISMATCHES = {
    "length": (en.Outputs(t=T[:4], species=SPECIES), r"output 'height' must have axes .* t \(4\); got shape \(5,\)"),
    "other axis": (en.Outputs(t=T), r"output 'flow' must have axes as long as the coordinates t \(5\)"),
    "unused": (en.Outputs(t=T, species=SPECIES, z=[1, 2]), "outputs must have an axis of 2 for the coordinates 'z'"),
    "ambiguous": (en.Outputs(t=T, u=T + 1.0, species=SPECIES), "where 5 fits more than one axis. Name its axes"),
    "an output's name": (en.Outputs(tip=T, species=SPECIES), "names of axes must differ from those of outputs"),
    "unknown output": (en.Outputs(t=T, species=SPECIES, axes={"x": ["t"]}), "axes of Outputs must be of 'height'"),
    "unknown unit": (en.Outputs(t=T, species=SPECIES, units={"x": "m"}), "units of Outputs must be of 'height'"),
    "listed": (
        en.Outputs(t=T, species=SPECIES, axes={"grid": ["species", "t"]}),
        r"output 'grid' must have the axes \(",
    ),
    "too few": (en.Outputs(t=T, species=SPECIES, axes={"grid": ["t"]}), r"output 'grid' must have the axes \(t\)"),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_coordinates_that_do_not_fit_end_the_study_before_anything_is_stored(tmp_path, case):
    outputs, text = MISMATCHES[case]
    with pytest.raises(en.uq.OutputError, match=text):
        study(outputs=outputs, store=tmp_path / "run.zarr")
    assert not (tmp_path / "run.zarr").exists()
    plan = en.plan(inputs(), 64, seed=3, outputs=outputs)
    group = next(plan.groups())
    with pytest.raises(en.uq.OutputError, match=text):
        plan.tell(group, model(group.samples))
    assert plan.n_done == 0


def test_axes_are_named_where_lengths_do_not_tell_them_apart():
    def square(x):
        return {"a": x.speed * np.ones((3, 3)), "b": x.speed * np.ones((3, 3)), "c": x.speed * np.ones(3)}

    axes = {"a": ("z", "t"), "b": ("t", None), "c": None}
    outputs = en.Outputs({"t": T[:3], "z": [1, 2, 3]}, axes=axes)
    result = en.propagate(square, inputs(), 64, seed=3, outputs=outputs, progress=False)
    assert result.dims == {"a": ("z", "t"), "b": ("t", "b_dim_1"), "c": ("c_dim_0",)}


@pytest.mark.parametrize("name", ["speed", "v_input"])
def test_axes_with_the_name_of_an_input_are_refused_before_the_model_runs(name):
    with pytest.raises(ValueError, match="names of axes must differ from inputs"):
        en.propagate(lambda x: 1 / 0, inputs(), 64, outputs=en.Outputs({name: T}), progress=False)


OTHERS = {
    "values": en.Outputs(t=T + 1.0, species=SPECIES, units=UNITS),
    "kind": en.Outputs(t=[str(t) for t in T], species=SPECIES, units=UNITS),
    "name": en.Outputs(time=T, species=SPECIES, units={"height": "m", "tip": "mm"}),
    "unit": en.Outputs(t=T, species=SPECIES, units={"t": "s"}),
    "axes": said(axes={"grid": ("t", None)}),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_study_is_not_resumed_with_other_coordinates(tmp_path, case):
    path = tmp_path / "run.zarr"
    study(store=path)
    before = tree(path)
    for resume in (True, "force"):
        with pytest.raises(ValueError, match="must equal the stored one; got axes"):
            study(128, store=path, resume=resume, outputs=OTHERS[case])
    assert tree(path) == before
    order = en.Outputs(species=SPECIES, t=T.tolist(), units=dict(reversed(UNITS.items())))
    assert study(128, store=path, resume=True, outputs=order).n_done == 128


def test_a_study_without_coordinates_is_read_and_resumed_as_before(tmp_path):
    path = tmp_path / "run.zarr"
    study(store=path, outputs=None)
    assert "axes" not in json.loads((path / ".ensemble" / "manifest.json").read_text())
    result = en.uq.open_study(path)
    assert result.dims["grid"] == ("grid_dim_0", "grid_dim_1") and not result.coordinates and not result.units
    assert study(128, store=path, resume=True, outputs=None).dims == result.dims
    with pytest.raises(ValueError, match="got axes: stored nothing, given"):
        study(256, store=path, resume=True)


@pytest.mark.parametrize("damage", ["missing", "cut", "altered"])
@pytest.mark.parametrize("file", ["t/c.0", "species/c.0", "t/zarr.json"])
def test_damaged_coordinates_are_named_and_made_again(tmp_path, file, damage):
    path = tmp_path / "run.zarr"
    study(store=path)
    before = tree(path)
    whole = (path / file).read_bytes()
    if damage == "missing":
        (path / file).unlink()
    else:
        (path / file).write_bytes(whole[:-1] if damage == "cut" else bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(ValueError, match=file):
        en.uq.open_study(path)
    with pytest.warns(RuntimeWarning, match=file):
        study(store=path, resume=True)
    assert tree(path) == before


FORGED = [
    [], {"coordinates": []}, {"coordinates": {"../t": {"kind": "int64", "values": [1]}}},
    {"coordinates": {"t": {"kind": "int64", "values": ["a"]}}}, {"coordinates": {"t": {"kind": "O", "values": []}}},
    {"coordinates": {"t": {"kind": "int64", "values": [2**80]}}}, {"of": {"height": "t"}}, {"units": {"t": 1}},
    {"coordinates": {"t": [1]}}, {"coordinates": {"done": {"kind": "int64", "values": [1]}}},
]  # fmt: skip


@pytest.mark.parametrize("axes", FORGED, ids=lambda axes: json.dumps(axes)[:60])
def test_a_damaged_table_of_axes_is_refused_by_name(tmp_path, axes):
    path = tmp_path / "run.zarr"
    study(store=path)
    manifest = json.loads((path / ".ensemble" / "manifest.json").read_text())
    del manifest["crc32"]
    (path / ".ensemble" / "manifest.json").write_text(json.dumps(manifest | {"axes": axes}))
    with pytest.raises(ValueError, match=r"axes must describe coordinates.*manifest.json, which is damaged"):
        en.uq.open_study(path)


WRONG = {
    "two axes": (lambda: en.Outputs(t=np.ones((2, 2))), ValueError, "t must be a vector"),
    "a number": (lambda: en.Outputs(t=1.0), ValueError, r"got shape \(\)"),
    "none": (lambda: en.Outputs(t=[]), ValueError, r"got shape \(0,\)"),
    "NaN": (lambda: en.Outputs(t=[1.0, np.nan]), ValueError, "values that are not finite"),
    "NaT": (lambda: en.Outputs(t=np.array(["2026", "NaT"], "M8[D]")), ValueError, "not finite"),
    "far date": (lambda: en.Outputs(t=np.array(["2026", "9999"], "M8[D]")), ValueError, "dates from 1678"),
    "twice": (lambda: en.Outputs(t=[1, 2, 1]), ValueError, "1 values more than once"),
    "beyond int64": (lambda: en.Outputs(t=np.array([2**63 + 1, 0], np.uint64)), ValueError, "integers below"),
    "mixture": (lambda: en.Outputs(t=["a", 1]), TypeError, "a mixture of kinds"),
    "complex": (lambda: en.Outputs(t=[1j]), TypeError, "dtype complex128"),
    "bools": (lambda: en.Outputs(t=[True, False]), TypeError, "dtype bool"),
    "durations": (lambda: en.Outputs(t=np.arange(3).astype("m8[s]")), TypeError, "Give durations as numbers"),
    "zone": (lambda: en.Outputs(t=[datetime.datetime.now(datetime.UTC)]), TypeError, "time zone"),
    "ensemble": (lambda: en.Outputs(t=en.Ensemble(np.ones((2, 3)))), TypeError, "that all samples share"),
    "masked": (lambda: en.Outputs(t=np.ma.masked_array([1.0, 2.0], [0, 1])), (TypeError, ValueError), "t must"),
    "slash": (lambda: en.Outputs({"a/b": T}), ValueError, "names of axes must be texts without '/'"),
    "reserved": (lambda: en.Outputs(sample=T), ValueError, "names of axes must"),
    "name twice": (lambda: en.Outputs({"t": T}, t=T), ValueError, "name each axis once"),
    "unit": (lambda: en.Outputs(t=T, units={"t": 1}), TypeError, "must be a text"),
    "unit of dates": (lambda: en.Outputs(t=np.array(["2026"], "M8[D]"), units={"t": "d"}), ValueError, "for dates"),
    "axes": (lambda: en.Outputs(t=T, axes={"y": ["x"]}), ValueError, r"name coordinates \(t\); got 'x'"),
    "axis twice": (lambda: en.Outputs(t=T, axes={"y": ["t", "t"]}), ValueError, "each axis of an output once"),
    "no dict": (lambda: en.Outputs(T), TypeError, "coordinates must be a dict by name"),
    "no Outputs": (lambda: study(outputs={"t": T}), TypeError, "propagate: outputs must be Outputs"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_declarations_are_one_clear_error(case):
    make, kind, text = WRONG[case]
    with pytest.raises(kind, match=text):
        make()


@pytest.mark.parametrize(
    "values", [range(5), np.float32(T), [str(t) for t in T], np.array(SPECIES * 2)[:0].tolist() or list("abcde"),
               np.arange(5, dtype=np.uint8), T[::-1], np.arange("2026-01", "2026-06", dtype="M8[M]")],
    ids=["range", "float32", "texts", "labels", "uint8", "reversed", "months"],
)  # fmt: skip
def test_coordinates_of_any_kind_come_back_from_a_store(tmp_path, values):
    outputs = en.Outputs({"time axis": values}, axes={"flow": None, "grid": ("time axis", None)})
    result = study(store=tmp_path / "run.zarr", outputs=outputs)
    stored = en.uq.open_study(tmp_path / "run.zarr").coordinates["time axis"]
    assert np.array_equal(stored, np.asarray(values)) and stored.dtype == result.coordinates["time axis"].dtype


# --- as people expect results
def test_outputs_are_items_of_a_result():
    result = study()
    assert np.array_equal(result["tip"].samples, result.samples("tip").samples)
    assert "tip" in result and "x" not in result
    assert list(result) == ["height", "tip", "flow", "grid"] and dict(result)["flow"].shape == (3,)
    with pytest.raises(KeyError, match="name must be one of 'height', 'tip', 'flow', 'grid'; got 'x'"):
        result["x"]
    with pytest.raises(KeyError, match="Inputs are in the attribute inputs"):
        result["speed"]


def test_tables_have_a_column_for_each_entry(tmp_path):
    pandas = pytest.importorskip("pandas")

    def fragile(x):
        x.fail(x.speed > 21.0, "fast")
        return model(x)

    result = en.propagate(fragile, inputs(), 64, seed=3, outputs=said(), progress=False)
    frame = result.to_pandas()
    assert frame.index.name == "sample" and frame.shape == (64, 1 + 2 + 5 + 1 + 3 + 15 + 2)
    assert np.array_equal(frame["height(t=0.5 s)"], result.values("height")[1], equal_nan=True)
    assert np.array_equal(frame["v(1)"], result.to_xarray().v[1]) and frame.failed.sum() == result.n_failed > 0
    assert np.array_equal(frame["grid(t=2 s; species=N2)"], result.values("grid")[-1, 1], equal_nan=True)
    assert frame.attrs["units"]["height(t=2 s)"] == "m" and frame.attrs["units"]["tip"] == "mm"
    result.save(tmp_path / "run.csv")
    table = pandas.read_csv(tmp_path / "run.csv", index_col="sample")
    assert np.array_equal(table["height(t=0.5 s) [m]"], frame["height(t=0.5 s)"], equal_nan=True)
    rows = study(keep="statistics").to_pandas()
    assert rows.loc["flow(species=O2)", "mean"] == study().mean("flow")[2] and rows.shape == (24, 4)


def test_coordinates_are_told_apart_in_names_of_columns():
    close = 1.0 + 1e-9 * np.arange(5)
    names = study(outputs=en.Outputs(t=close, species=SPECIES)).to_pandas().columns
    assert "height(t=1.000000001)" in names and names.is_unique


def test_tables_of_too_many_columns_are_refused(tmp_path):
    result = en.propagate(lambda x: {"y": x.speed * np.ones(2**14)}, inputs(), 8, seed=3, progress=False)
    with pytest.raises(ValueError, match=r"have at most 16,384 columns; got v \(2,\), y \(16384,\). Write NetCDF"):
        result.save(tmp_path / "run.csv")
    assert not (tmp_path / "run.csv").exists()


def test_netcdf_has_coordinates_units_and_labels(tmp_path):
    xarray = pytest.importorskip("xarray")
    study().save(tmp_path / "run.nc")
    with xarray.open_dataset(tmp_path / "run.nc") as dataset:
        assert np.array_equal(dataset.t, T) and dataset.t.attrs["units"] == "s" and dataset.height.attrs["units"] == "m"
        assert dataset.species.values.astype(str).tolist() == SPECIES
    study().save(tmp_path / "one.nc", outputs=["flow"])
    with xarray.open_dataset(tmp_path / "one.nc") as dataset:
        assert set(dataset.data_vars) == {"flow", "done", "failed"} and "t" not in dataset.coords


def test_a_saved_store_is_that_of_the_study(tmp_path):
    def fragile(x):
        x.fail(x.speed > 21.0, "fast")
        return model(x)

    options = {"seed": 3, "outputs": said(), "progress": False}
    result = en.propagate(fragile, inputs(), 64, **options)
    stored = en.propagate(fragile, inputs(), 64, store=tmp_path / "a.zarr", **options)
    result.save(tmp_path / "b.zarr")
    en.uq.open_study(tmp_path / "a.zarr").save(tmp_path / "c.zarr")
    expected = tree(tmp_path / "a.zarr")
    assert tree(tmp_path / "b.zarr") == tree(tmp_path / "c.zarr") == expected
    stored.save(tmp_path / "d.zarr")
    more = en.propagate(fragile, inputs(), 128, store=tmp_path / "d.zarr", resume=True, **options)
    assert more.n_done == 128 and np.array_equal(more.values("tip")[:64], result.values("tip"), equal_nan=True)


@pytest.mark.parametrize("name", ["run.txt", "run", "s3://bucket/run.nc", "run.zarr"])
def test_what_cannot_be_saved_is_refused_and_leaves_nothing(tmp_path, name):
    result = study(keep="statistics")
    with pytest.raises(ValueError, match=r"UqResult.save: (path must|the study must have kept)"):
        result.save(name if "://" in name else tmp_path / name)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"UqResult.save: outputs must be one of"):
        result.save(tmp_path / "run.csv", outputs=["x"])


def test_a_store_is_not_overwritten_by_saving(tmp_path):
    study(store=tmp_path / "run.zarr")
    before = tree(tmp_path / "run.zarr")
    with pytest.raises(ValueError, match="path must be a new one"):
        study().save(tmp_path / "run.zarr")
    assert tree(tmp_path / "run.zarr") == before


# --- pictures
def axes_of():
    return pytest.importorskip("matplotlib.figure").Figure().add_subplot()


def test_pictures_are_drawn_along_coordinates_and_name_them():
    figure = pytest.importorskip("matplotlib.figure").Figure
    plot = study().plot
    fan = plot.fan("height", ax=axes_of())
    assert fan.get_xlabel() == "t [s]" and fan.get_ylabel() == "height [m]"
    assert np.array_equal(fan.lines[0].get_xdata(), T)
    labels = plot.fan("flow", ax=axes_of())
    assert [text.get_text() for text in labels.get_xticklabels()] == SPECIES and labels.get_xlabel() == "species"
    assert plot.hist("tip", ax=axes_of()).get_xlabel() == "tip [mm]"
    assert plot.scatter(["speed", "tip"], figure=figure()).axes[-1].get_xlabel() == "tip [mm]"
    line = plot.field("height", figure=figure()).axes[0]
    assert line.get_xlabel() == "t [s]" and np.array_equal(line.lines[0].get_xdata(), T)
    maps = plot.field("grid", figure=figure()).axes
    assert maps[0].get_ylabel() == "t [s]" and maps[1].get_xlabel() == "species" and maps[0].get_aspect() == "auto"
    assert plot.fan("height", T**2, ax=axes_of()).get_xlabel() == ""  # the user's own coordinates have no name


@pytest.mark.parametrize("analysis", ["sobol_indices", "shapley_effects", "chaos"])
def test_sensitivities_have_the_coordinates(analysis):
    if analysis == "chaos":
        found = en.uq.chaos(inputs(), study(), degree=1)
    else:
        found = getattr(en.uq, analysis)(model, inputs(), 64, seed=3, outputs=said(), progress=False)
        dataset = found.to_xarray()
        assert np.array_equal(dataset.t, T) and dataset.t.attrs["units"] == "s"
        assert dataset["height_first" if analysis == "sobol_indices" else "height_effect"].dims == ("input", "t")
    ax = found.plot("height", ax=axes_of())
    assert ax.get_xlabel() == "t [s]" and np.array_equal(ax.lines[0].get_xdata(), T)
    names = found.plot("flow", ax=axes_of()).get_xticklabels()
    assert [text.get_text() for text in names] == SPECIES


def test_an_axis_called_input_is_refused_by_sensitivities():
    with pytest.raises(ValueError, match="sobol_indices: names of axes must differ from the axis of the inputs"):
        en.sobol_indices(model, inputs(), 64, outputs=en.Outputs({"input": T, "species": SPECIES}), progress=False)
