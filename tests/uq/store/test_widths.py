"""Chunks of studies of many samples are wider; stores that began with narrow ones keep them."""

import json

import numpy as np
import pytest

from ensemble.uq import Store
from ensemble.uq.store import manifest as manifests
from ensemble.uq.store import widths
from ensemble.uq.store.descriptions import Output
from ensemble.uq.store.widths import chunk_samples_for, samples_per_chunk
from tests.uq.store.trees import tree

zarr = pytest.importorskip("zarr")

N = 300
INPUTS = {"E": np.sqrt(np.arange(2 * N))}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(widths, "MAX_SAMPLES", 8)
    monkeypatch.setattr(widths, "MIN_SAMPLES", 2)
    monkeypatch.setattr(widths, "WIDER_BYTES", 1024)


def outputs_of(ids):
    return {"tip": np.cos(ids), "flag": ids % 2 == 0, "field": np.sin(np.add.outer(np.arange(100.0), ids))}


def carry_on(path, n):
    """Make the store, or go on with it, in two compactions; a sample in 7 fails."""
    given = {"n": n, "seed": 4}
    with Store.open(path, given) if Store.exists(path) else Store.create(path, given) as store:
        for ids in np.array_split(np.flatnonzero(~store.done()), 2):
            store.append(ids, outputs_of(ids), ids % 7 == 3)
            store.compact({name: values[:n] for name, values in INPUTS.items()})
    return Store.open(path)


def narrow(patch):
    """As stores were before there were wide chunks."""
    patch.setattr(widths, "chunk_samples_for", lambda n: 8)


def check(store):
    ids = np.arange(store.n)
    for name, values in outputs_of(ids).items():
        found, shown = store.read(name, ids), zarr.open_group(store.path, mode="r")[name][...]
        assert np.array_equal(found[..., ids % 7 != 3], values[..., ids % 7 != 3])
        assert np.array_equal(found, shown, equal_nan=found.dtype.kind == "f")


@pytest.mark.parametrize("n, most", [(1, 8), (127, 8), (128, 16), (256, 32), (300, 32), (511, 32), (512, 64)])
def test_a_lost_file_has_at_most_an_eighth_of_a_study_that_has_wider_chunks(n, most):
    assert chunk_samples_for(n) == most and (most == 8 or most * 8 <= n)


@pytest.mark.parametrize(
    "shape, dtype, width", [((), "f8", 64), ((), "?", 64), ((3,), "f8", 32), ((16,), "f8", 8), ((100,), "f8", 8)]
)
def test_chunks_of_few_bytes_are_made_wider(shape, dtype, width):
    output = Output("y", np.dtype(dtype), shape)
    assert (samples_per_chunk(output), samples_per_chunk(output, 64)) == (8, width)


def test_a_study_of_many_samples_has_few_files_that_zarr_reads(tmp_path):
    store = carry_on(tmp_path / "run.zarr", N)
    assert store.manifest["format"] == 3 and store.manifest[manifests.WIDTH] == 32 and store.block_size == 8
    counts = {name: len(list((tmp_path / "run.zarr" / name).glob("c.*"))) for name in ("tip", "done", "E", "field")}
    assert counts == {"tip": 10, "done": 10, "E": 10, "field": 38}
    check(store)


def test_a_study_of_few_samples_has_the_files_that_it_had(tmp_path, monkeypatch):
    carry_on(tmp_path / "new.zarr", 100)
    narrow(monkeypatch)
    carry_on(tmp_path / "old.zarr", 100)
    assert tree(tmp_path / "new.zarr") == tree(tmp_path / "old.zarr")


def test_a_store_with_narrow_chunks_is_read_and_continued_with_them(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        narrow(patch)
        carry_on(tmp_path / "old.zarr", N)
        carry_on(tmp_path / "calm.zarr", N)
        carry_on(tmp_path / "calm.zarr", 2 * N)
    assert manifests.WIDTH not in Store.stored_manifest(tmp_path / "old.zarr")
    check(Store.open(tmp_path / "old.zarr"))
    check(carry_on(tmp_path / "old.zarr", 2 * N))
    assert tree(tmp_path / "old.zarr") == tree(tmp_path / "calm.zarr")


def test_an_extended_study_keeps_the_chunks_with_which_it_began(tmp_path):
    carry_on(tmp_path / "run.zarr", 200)
    found = carry_on(tmp_path / "run.zarr", 2 * N)
    assert found.manifest[manifests.WIDTH] == 16
    check(found)


def test_a_lost_wide_chunk_is_run_again(tmp_path):
    path = tmp_path / "run.zarr"
    carry_on(path, N)
    before = tree(path)
    (path / "tip" / "c.2").unlink()
    with pytest.warns(RuntimeWarning, match="tip/c.2 is missing"):
        store = Store.open(path, {"n": N, "seed": 4})
    lost = np.flatnonzero(~store.done())
    store.close()
    assert lost.tolist() == [i for i in range(64, 96) if i % 7 != 3]
    with pytest.warns(RuntimeWarning, match="tip/c.2 is missing"):
        carry_on(path, N)
    assert tree(path) == before


@pytest.mark.parametrize("width", ["32", 4, 33, 2**40, True])
def test_a_damaged_number_of_samples_per_chunk_is_refused(tmp_path, width):
    manifest = manifests.checked("f", {"n": N}) | {manifests.WIDTH: width}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="the manifest must have a number of samples per chunk"):
        manifests.read("f", tmp_path / "manifest.json")
