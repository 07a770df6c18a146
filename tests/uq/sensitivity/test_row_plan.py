"""Groups of rows in any order: the bits of their order by number; memory of groups that is used again."""

import numpy as np
import pytest

from ensemble.uq.sensitivity.row_plan import RowStream
from ensemble.uq.sensitivity.sobol_sums import SobolSums

VALUES = np.random.default_rng(91243).normal(size=(2, 100))


def stream_of(groups, again=False):
    stream = RowStream((2,), SobolSums(3, 4))
    memory = np.empty((2, 100))
    for ids in groups:
        numbers = np.asarray(ids)
        part = memory[:, : numbers.size] if again else np.empty((2, numbers.size))
        part[:] = VALUES[:, numbers]
        stream.add(numbers, part, np.ones(numbers.size, bool))
        part[:] = np.nan
    stream.sums.finish()
    return stream.sums


IN_ORDER = [range(33), range(33, 60), range(60, 100)]


@pytest.mark.parametrize(
    "groups",
    [
        IN_ORDER[::-1],
        [IN_ORDER[1], IN_ORDER[0], IN_ORDER[2]],
        [np.arange(99, -1, -1)],
        [np.arange(1, 100, 2), np.arange(0, 100, 2)],
        [np.arange(20, 100), np.random.default_rng(5).permutation(20)],
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_groups_in_any_order_give_the_bits_of_their_order_by_number(groups, again):
    found, expected = stream_of(groups, again), stream_of(IN_ORDER)
    assert found.n_used == 20
    np.testing.assert_array_equal(found.sums, expected.sums)
    np.testing.assert_array_equal(found.shift, expected.shift)


def test_a_group_without_outputs_counts_as_failed():
    stream = RowStream((2,), SobolSums(3, 4))
    stream.add(np.arange(50), VALUES[:, :50], np.ones(50, bool))
    stream.add(np.arange(50, 75), None, np.zeros(25, bool))
    stream.add(np.arange(75, 100), VALUES[:, 75:], np.ones(25, bool))
    assert (stream.sums.rows_seen, stream.sums.n_used) == (20, 15)
