"""The compacted store: xarray opens it, and its bytes depend on the outputs only."""

import errno
import json
import os
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ensemble.uq import Store
from ensemble.uq.store import compaction, widths, zarr_array
from tests.uq.store.trees import tree

xarray = pytest.importorskip("xarray")
zarr = pytest.importorskip("zarr")

N = 150
INPUTS = {"E": np.sqrt(np.arange(N)), "nodes": np.arange(3 * N).reshape(3, N)}


def make_chunks_small(patch):
    """Several chunks along every axis."""
    patch.setattr(widths, "MAX_SAMPLES", 32)
    patch.setattr(widths, "MIN_SAMPLES", 8)
    patch.setattr(widths, "COLUMN_BYTES", 2048)
    patch.setattr(zarr_array, "CHUNK_BYTES", 512)
    patch.setattr(compaction, "PANEL_BYTES", 1024)
    patch.setattr(compaction, "FLUSH_BYTES", 2048)


@pytest.fixture
def small(monkeypatch):
    make_chunks_small(monkeypatch)


def outputs_of(ids):
    ids = np.asarray(ids)
    return {
        "tip": np.cos(ids),
        "count": ids**2,
        "good": ids % 2 == 0,
        "wave": np.exp(1j * ids),
        "field": np.sin(np.add.outer(np.arange(20.0).reshape(4, 5), ids)).astype(np.float32),
    }


def append(store, ids):
    failed = ids % 7 == 3
    store.append(ids, outputs_of(ids), failed, {int(i): f"reason {i}" for i in ids[failed]})


def study(path, groups, compact_after=(), n=N):
    with Store.create(path, {"n": n, "seed": 4}) as store:
        for k, ids in enumerate(groups):
            append(store, ids)
            if k in compact_after:
                store.compact(INPUTS)
        store.compact(INPUTS)
    return path


def expected(name, ids=None):
    ids = np.arange(N) if ids is None else ids
    values = outputs_of(ids)[name]
    failed = ids % 7 == 3
    values[..., failed] = zarr_array.fill_value(values.dtype)
    return values


def in_order(size):
    return [np.arange(k, min(k + size, N)) for k in range(0, N, size)]


@pytest.mark.parametrize("open_it", [xarray.open_zarr, lambda path: xarray.open_dataset(path, engine="zarr")])
def test_xarray_opens_the_store_without_a_warning(small, tmp_path, open_it):
    path = study(tmp_path / "run.zarr", in_order(32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = open_it(path)
    with dataset:
        assert set(dataset.data_vars) == {*outputs_of([0]), "done", "failed"}
        assert set(dataset.coords) == {"sample", *INPUTS}
        for name in outputs_of([0]):
            assert dataset[name].dtype == expected(name).dtype
            np.testing.assert_array_equal(dataset[name].values, expected(name))
        for name, values in INPUTS.items():
            np.testing.assert_array_equal(dataset[name].values, values)
        assert dataset.done.values.all()
        np.testing.assert_array_equal(dataset.failed.values, np.arange(N) % 7 == 3)
        np.testing.assert_array_equal(dataset.sample.values, np.arange(N))
        assert dataset.field.dims == ("field_dim_0", "field_dim_1", "sample")
        manifest = json.loads(dataset.attrs["manifest"])
        assert manifest["seed"] == 4 and manifest["outputs"]["field"] == {"dtype": "float32", "shape": [4, 5]}
        assert np.isfinite(float(dataset.tip.sel(sample=[0, 1, 2]).mean()))


def test_zarr_opens_the_group(small, tmp_path):
    group = zarr.open_group(study(tmp_path / "run.zarr", in_order(32)), mode="r")
    assert set(group.array_keys()) == {*outputs_of([0]), *INPUTS, "done", "failed", "sample"}
    np.testing.assert_array_equal(group["field"][...], expected("field"))


def test_the_dataset_can_be_written_as_netcdf(small, tmp_path):
    """Nested attributes could not."""
    with xarray.open_zarr(study(tmp_path / "run.zarr", in_order(32))) as dataset:
        dataset.drop_vars("wave").to_netcdf(tmp_path / "run.nc", engine="scipy")
    with xarray.open_dataset(tmp_path / "run.nc", engine="scipy") as dataset:
        np.testing.assert_array_equal(dataset.field.values, expected("field"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        yield tree(study(tmp_path_factory.mktemp("undisturbed") / "run.zarr", in_order(32)))


@given(
    order=st.permutations(range(N)),
    cuts=st.lists(st.integers(1, N - 1), unique=True, max_size=12).map(sorted),
    compact_after=st.sets(st.integers(0, 12), max_size=4),
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_files_depend_on_the_outputs_only(small, undisturbed, tmp_path_factory, order, cuts, compact_after):
    groups = np.split(np.array(order), cuts)
    path = study(tmp_path_factory.mktemp("study") / "run.zarr", groups, compact_after)
    assert tree(path) == undisturbed


def test_an_extended_study_has_the_files_of_a_longer_one(small, undisturbed, tmp_path):
    path = tmp_path / "run.zarr"
    with Store.create(path, {"n": 70, "seed": 4}) as store:
        append(store, np.arange(70))
        store.compact({name: values[..., :70] for name, values in INPUTS.items()})
    with Store.open(path, {"n": N, "seed": 4}) as store:
        append(store, np.arange(70, N))
        store.compact(INPUTS)
    assert tree(path) == undisturbed


def test_compacting_again_changes_nothing(small, undisturbed, tmp_path):
    path = study(tmp_path / "run.zarr", in_order(50))
    with Store.open(path, {"n": N, "seed": 4}) as store:
        store.compact(INPUTS)
        store.compact()
    assert tree(path) == undisturbed


def test_a_study_of_which_all_failed_at_first(small, tmp_path):
    """Outputs become known after the samples of a whole chunk have been compacted without any."""
    failing, others = np.arange(40), np.arange(40, N)
    reasons = {int(i): f"reason {i}" for i in failing}
    one, other = tmp_path / "one.zarr", tmp_path / "other.zarr"
    with Store.create(one, {"n": N, "seed": 4}) as store:
        store.append(failing, {}, np.ones(40, dtype=bool), reasons)
        store.compact(INPUTS)
        with xarray.open_zarr(one) as dataset:
            assert set(dataset.data_vars) == {"done", "failed"}
        append(store, others)
        assert np.isnan(store.read("tip", failing)).all()
        store.compact(INPUTS)
        assert np.isnan(store.read("tip", failing)).all()
    with Store.create(other, {"n": N, "seed": 4}) as store:
        append(store, others)
        store.append(failing, outputs_of(failing), np.ones(40, dtype=bool), reasons)
        store.compact(INPUTS)
    assert tree(one) == tree(other)


@pytest.mark.parametrize("compacted", [(), (1,), (0, 1, 2)])
def test_reading_is_the_same_from_journal_and_chunks(small, tmp_path, compacted):
    ids = np.random.default_rng(40127).permutation(N)[:60]
    with Store.create(tmp_path / "run.zarr", {"n": N}) as store:
        for k, group in enumerate(np.split(ids, [7, 40])):
            append(store, group)
            if k in compacted:
                store.compact()
        wanted = ids[::-3]
        for name in outputs_of([0]):
            np.testing.assert_array_equal(store.read(name, wanted), expected(name, wanted))
        found = list(store.blocks(50))
    assert [list(block[0]) for block in found] == [sorted(i for i in ids if k <= i < k + 50) for k in (0, 50, 100)]
    for numbers, outputs, failed in found:
        np.testing.assert_array_equal(failed, numbers % 7 == 3)
        for name, values in outputs.items():
            np.testing.assert_array_equal(values, expected(name, numbers))


def test_a_partly_done_study_has_nan_and_says_what_is_done(small, tmp_path):
    path = tmp_path / "run.zarr"
    with Store.create(path, {"n": N}) as store:
        append(store, np.arange(40, 60))
        store.compact(INPUTS)
    with xarray.open_zarr(path) as dataset:
        done = (np.arange(N) >= 40) & (np.arange(N) < 60)
        np.testing.assert_array_equal(dataset.done.values, done)
        assert np.isnan(dataset.field.values[..., ~done]).all() and not dataset["count"].values[~done].any()


def test_inputs_keep_their_values_where_a_later_compaction_has_none(small, tmp_path):
    path = tmp_path / "run.zarr"
    with Store.create(path, {"n": 100}) as store:
        append(store, np.arange(64))
        store.compact({"E": INPUTS["E"][:100]})
        store.extend(N)
        append(store, np.arange(64, 150))
        store.compact()
        with xarray.open_zarr(path) as dataset:
            np.testing.assert_array_equal(dataset.E.values[:64], INPUTS["E"][:64])
            assert dataset.E.shape == (N,)


def test_an_input_with_the_name_of_an_output_is_renamed(small, tmp_path):
    with Store.create(tmp_path / "run.zarr", {"n": 3}) as store:
        store.append(np.arange(3), {"x": np.arange(3.0)})
        store.compact({"x": np.arange(3.0) + 5, "done": np.arange(3)})
    with xarray.open_zarr(tmp_path / "run.zarr") as dataset:
        assert set(dataset.coords) == {"sample", "x_input", "done_input"}
        assert list(dataset.x_input.values) == [5, 6, 7] and list(dataset.x.values) == [0, 1, 2]


def test_renamed_inputs_are_told_apart(small, tmp_path):
    with Store.create(tmp_path / "run.zarr", {"n": 1}) as store:
        store.append(np.arange(1), {"x": np.zeros(1), "y_input": np.zeros(1)})
        store.compact({"x": np.ones(1), "x_input": np.full(1, 2.0), "y": np.full(1, 3.0), "y_input": np.full(1, 4.0)})
    with xarray.open_zarr(tmp_path / "run.zarr") as dataset:
        found = {name: float(dataset[name][0]) for name in dataset.variables}
    expected = {"x": 0, "y_input": 0, "x_input_input": 1, "x_input": 2, "y": 3, "y_input_input": 4}
    assert {name: found[name] for name in expected} == expected


def test_axes_have_the_names_of_the_manifest(small, tmp_path):
    outputs = {"u": {"dtype": "float64", "shape": [2], "dims": ["node"]}}
    with Store.create(tmp_path / "run.zarr", {"n": 3, "outputs": outputs}) as store:
        store.append(np.arange(3), {"u": np.zeros((2, 3))})
        store.compact()
    with xarray.open_zarr(tmp_path / "run.zarr") as dataset:
        assert dataset.u.dims == ("node", "sample")


@pytest.mark.parametrize(
    "inputs, text",
    [
        (
            {"E": np.zeros(4)},
            r"inputs\['E'\] must be an array of numbers of shape \(..., 3\); got shape \(4,\) of float64",
        ),
        ({"E": np.float64(1)}, r"got shape \(\) of float64"),
        ({"E": np.array(["a", "b", "c"])}, r"got shape \(3,\) of <U1"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(tmp_path, inputs, text):
    with Store.create(tmp_path / "run.zarr", {"n": 3}) as store:
        store.append(np.arange(3), {"u": np.zeros(3)})
        with pytest.raises(ValueError, match=f"^Store.compact: .*{text}"):
            store.compact(inputs)
        store.compact()


@pytest.mark.parametrize("n_files", [0, 1, 5, 40])
def test_a_full_disk_in_a_compaction_loses_nothing(small, undisturbed, tmp_path, monkeypatch, n_files):
    path = tmp_path / "run.zarr"
    with Store.create(path, {"n": N, "seed": 4}) as store:
        append(store, np.arange(0, 90))
        store.compact(INPUTS)
        append(store, np.arange(90, N))
        write, count = compaction.Replacements.write, []

        def full(files, target, fill):
            count.append(target)
            if len(count) > n_files:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
            write(files, target, fill)

        monkeypatch.setattr(compaction.Replacements, "write", full)
        text = (
            "Store.compact: path must be .*; got No space left on device at .*run.zarr.* Nothing stored is lost: free"
        )
        with pytest.raises(OSError, match=text):
            store.compact(INPUTS)
        monkeypatch.setattr(compaction.Replacements, "write", write)
        assert not list(path.rglob("*.part"))
        np.testing.assert_array_equal(store.read("field", np.arange(N)), expected("field"))
        store.compact(INPUTS)
    assert tree(path) == undisturbed


@pytest.mark.parametrize("size, k, n_groups", [(40000, 16, 4), (2000, 1280, 1)])
def test_memory_is_bounded_where_the_output_is_large(tmp_path, monkeypatch, size, k, n_groups):
    """Neither the panel nor a piece of a record grows with the number of samples or values."""
    monkeypatch.setattr(compaction, "PANEL_BYTES", 1 << 20)
    monkeypatch.setattr(widths, "COLUMN_BYTES", 1 << 20)
    monkeypatch.setattr(zarr_array, "CHUNK_BYTES", 1 << 18)
    monkeypatch.setattr("ensemble.uq.store.index.PIECE_BYTES", 1 << 18)
    values = np.random.default_rng(90217).normal(size=(size, k))
    with Store.create(tmp_path / "run.zarr", {"n": n_groups * k}) as store:
        for first in range(n_groups):
            store.append(np.arange(first, n_groups * k, n_groups), {"u": values})
        tracemalloc.start()
        try:
            store.compact()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 << 20 < 16 << 20 < n_groups * values.nbytes
        np.testing.assert_array_equal(store.read("u", np.arange(n_groups - 1, n_groups * k, n_groups)), values)
