"""Arrays in the Zarr format: Zarr-Python reads what is written, and chunks depend on the output only."""

import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ensemble.uq.store import widths, zarr_array
from ensemble.uq.store.journal import Output
from ensemble.uq.store.widths import samples_per_chunk
from ensemble.uq.store.zarr_array import ZarrArray, fill_value

zarr = pytest.importorskip("zarr")

DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]


def write(array, values):
    """All chunks of `values`, (*shape, n), and the metadata."""
    n = values.shape[-1]
    array.folder.mkdir(parents=True)
    array.metadata_path.write_text(json.dumps(array.metadata(n)))
    flat, width = values.reshape(-1, n), array.n_chunk
    for column in range(-(-n // width)):
        for block in array.row_blocks():
            part = flat[block.start : block.stop, column * width : (column + 1) * width]
            chunk = np.full((len(part), width), array.fill, dtype=array.output.dtype)
            chunk[:, : part.shape[1]] = part
            path = array.path(block, column)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(array.chunk_bytes(chunk))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(widths, "MAX_SAMPLES", 16)
    monkeypatch.setattr(widths, "MIN_SAMPLES", 4)
    monkeypatch.setattr(widths, "COLUMN_BYTES", 2048)
    monkeypatch.setattr(zarr_array, "CHUNK_BYTES", 512)


@given(shape=st.lists(st.integers(1, 9), max_size=3), n=st.integers(1, 40), dtype=st.sampled_from(DTYPES))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_zarr_reads_the_array_that_was_written(small, tmp_path_factory, shape, n, dtype):
    values = np.random.default_rng(77191).integers(0, 100, (*shape, n)).astype(dtype)
    array = ZarrArray(tmp_path_factory.mktemp("zarr") / "y", Output("y", values.dtype, tuple(shape)))
    write(array, values)
    found = zarr.open_array(array.folder, mode="r")
    assert found.dtype == values.dtype and np.array_equal(found[...], values)
    assert found.metadata.dimension_names == (*array.dims, "sample")
    assert math.prod(found.chunks) * values.itemsize <= max(512, 4 * values.itemsize)
    ids = np.random.default_rng(n).permutation(n)[:7]
    mine = np.zeros((math.prod(shape), len(ids)), dtype=dtype)
    array.read(ids, np.arange(len(ids)), mine)
    assert np.array_equal(mine.reshape(*shape, len(ids)), values[..., ids])


@pytest.mark.parametrize("dtype", DTYPES)
def test_samples_without_a_chunk_are_fill(tmp_path, dtype):
    array = ZarrArray(tmp_path / "y", Output("y", np.dtype(dtype), (2,)))
    array.folder.mkdir()
    array.metadata_path.write_text(json.dumps(array.metadata(3)))
    expected = np.full((2, 3), fill_value(np.dtype(dtype)), dtype=dtype)
    mine = np.ones((2, 3), dtype=dtype)
    array.read(np.arange(3), np.arange(3), mine)
    np.testing.assert_array_equal(mine, expected)
    np.testing.assert_array_equal(zarr.open_array(array.folder, mode="r")[...], expected)
    assert np.isnan(expected).all() == (np.dtype(dtype).kind in "fc")


def test_an_output_without_values_has_no_chunks(tmp_path):
    array = ZarrArray(tmp_path / "y", Output("y", np.dtype("f8"), (0, 3)))
    write(array, np.zeros((0, 3, 5)))
    assert zarr.open_array(array.folder, mode="r")[...].shape == (0, 3, 5)


@pytest.mark.parametrize(
    "size, dtype, samples, shape",
    [
        ((), "f8", 4096, ()),
        ((100,), "f8", 4096, (100,)),
        ((1000,), "f8", 4096, (128,)),
        ((1000, 1000), "f8", 32, (16, 1000)),
        ((7, 1_000_000), "f8", 32, (1, 16384)),
        ((1_000_000,), "f4", 32, (32768,)),
        ((10**9,), "c16", 32, (8192,)),
    ],
    ids=str,
)
def test_chunks_depend_on_the_output_only(tmp_path, size, dtype, samples, shape):
    array = ZarrArray(tmp_path, Output("y", np.dtype(dtype), size))
    assert (array.n_chunk, array.chunk) == (samples, shape)
    assert samples_per_chunk(array.output) == samples
    assert array.n_rows * samples * array.output.dtype.itemsize <= zarr_array.CHUNK_BYTES


@pytest.mark.parametrize("shape", [(5,), (7, 5), (40,), (3, 40), (2, 3, 40)], ids=str)
def test_the_chunks_of_an_output_cover_its_values_once(small, tmp_path, shape):
    array = ZarrArray(tmp_path, Output("y", np.dtype("f8"), shape))
    blocks = list(array.row_blocks())
    covered = [k for block in blocks for k in range(block.start, block.stop)]
    assert covered == list(range(math.prod(shape)))
    assert len({block.key for block in blocks}) == len(blocks)


def test_a_chunk_of_another_length_is_damage(tmp_path):
    array = ZarrArray(tmp_path / "y", Output("y", np.dtype("f8"), ()))
    write(array, np.arange(3.0))
    path = tmp_path / "y" / "c.0"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"c\.0 is damaged: it has 32760 bytes and not 32768"):
        array.read(np.arange(3), np.arange(3), np.zeros((1, 3)))
