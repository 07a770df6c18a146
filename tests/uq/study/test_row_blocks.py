"""Passes over samples by blocks of rows: the bits of one pass over all."""

import numpy as np
import pytest

from ensemble.uq.study.intervals import jump_of
from ensemble.uq.study.row_blocks import AT_A_TIME, by_rows, largest_change, power_sums


@pytest.mark.parametrize("shape", [(), (3,), (40, 5)])
@pytest.mark.parametrize("n", [7, 1000, 2 * AT_A_TIME])
def test_blocks_of_rows_have_the_bits_of_all_rows(shape, n, rng):
    if n > AT_A_TIME and shape == (40, 5):
        shape = (2, 2)
    values = rng.standard_normal((*shape, n)) ** 3
    mean, scale = values.mean(axis=-1), values.std(axis=-1)
    np.testing.assert_array_equal(by_rows(largest_change, values, mean), largest_change(values, mean))
    ordered = np.sort(values, axis=-1)
    np.testing.assert_array_equal(by_rows(jump_of, ordered), jump_of(ordered))
    z = (values - mean[..., None]) / scale[..., None]
    square = z * z
    wanted = [p.sum(axis=-1) for p in (square, square * z, square * square, (square * z) ** 2)]
    np.testing.assert_array_equal(power_sums(values, mean, scale, None, 6), wanted)
    np.testing.assert_array_equal(power_sums(values, mean, scale, None, 3)[:2], wanted[:2])
    weights = rng.uniform(0.5, 2.0, n)
    np.testing.assert_array_equal(power_sums(values, mean, scale, weights, 3)[0], (weights * square).sum(axis=-1))
