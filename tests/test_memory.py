"""Memory that is used again: aligned, never shared by two living arrays, bounded."""

import gc

import numpy as np
import pytest

from ensemble._compile import kept_memory as _memory
from ensemble._compile.kept_memory import empty, release_memory


@pytest.fixture(autouse=True)
def nothing_spare():
    gc.collect()
    release_memory()
    yield
    release_memory()


def spare_bytes():
    return sum(piece[0].nbytes for pieces in _memory._spare.values() for piece in pieces)


@pytest.mark.parametrize("n", [1, 3, 1000, 1 << 18])
def test_arrays_start_a_cache_line(n):
    array = empty((n, 3), np.float32)
    assert array.shape == (n, 3) and array.dtype == np.float32 and array.flags.c_contiguous
    assert array.ctypes.data % 64 == 0 and array.flags.writeable


def test_memory_of_a_dead_array_is_used_again():
    array = empty((1 << 18,), np.float64)
    array[:] = 1.0
    address = array.ctypes.data
    del array
    again = empty((1 << 18,), np.float64)
    assert again.ctypes.data == address and not spare_bytes()


def test_a_view_keeps_the_memory_alive():
    array = empty((1 << 18,), np.float64)
    part = array[5:9]
    part[:] = 7.0
    del array
    other = empty((1 << 18,), np.float64)
    other[:] = 0.0
    assert np.array_equal(part, np.full(4, 7.0))


def test_living_arrays_never_overlap():
    arrays = [empty((1 << 17,), np.float64) for _ in range(4)]
    for k, array in enumerate(arrays):
        array[:] = k
    assert [array[0] for array in arrays] == [0.0, 1.0, 2.0, 3.0]


def test_much_larger_memory_is_not_wasted_on_a_small_array():
    del_me = empty((1 << 20,), np.float64)
    del del_me
    empty((1 << 18,), np.float64)
    assert any(_memory._spare[size] for size in _memory._spare if size > 1 << 22)


def test_spare_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(_memory, "LIMIT", 3 << 20)
    arrays = [empty((1 << 17,), np.float64) for _ in range(8)]
    del arrays
    assert 0 < spare_bytes() <= 3 << 20
