"""Arrays that compiled functions allocate."""

import numpy as np
import pytest

from ensemble._compile.allocation import new, new_full
from ensemble._compile.numba import compiled_serial

KINDS = [(np.int64, -1), (np.int32, 7), (np.uint64, 3), (np.float32, 0.1), (np.bool_, True)]


@pytest.mark.parametrize("dtype, value", KINDS, ids=lambda kind: getattr(kind, "__name__", str(kind)))
def test_arrays_are_numpys(dtype, value):
    @compiled_serial
    def made(n, value):
        empty = new(n, dtype)
        for i in range(n):
            empty[i] = i % 2
        return empty, new_full(n, value, empty.dtype)

    for n in (0, 1, 19):
        written, filled = made(n, value)
        np.testing.assert_array_equal(written, np.arange(n) % 2)
        np.testing.assert_array_equal(filled, np.full(n, value, dtype))
        assert written.dtype == filled.dtype == dtype
        assert filled.flags.c_contiguous and filled.flags.writeable
