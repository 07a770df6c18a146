"""Tiles turned round in registers."""

import numba
import numpy as np
import pytest

from ensemble._compile.lanes.transpose import Transpose
from ensemble._compile.plain_code import entry


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_a_tile_is_turned_round_and_nothing_else_is_touched(n, dtype):
    transpose = entry(Transpose(n))
    compiled = numba.njit(lambda source, target, stride, pitch: transpose(source, 3, stride, target, 5, pitch))
    stride, pitch = n + 2, n + 7
    source = np.random.default_rng(n).standard_normal(3 + n * stride).astype(dtype)
    target = np.zeros(5 + n * pitch, dtype)
    compiled(source, target, stride, pitch)
    expected = np.zeros_like(target)
    for i in range(n):
        for j in range(n):
            expected[5 + j * pitch + i] = source[3 + i * stride + j]
    np.testing.assert_array_equal(target, expected)
