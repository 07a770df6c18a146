"""Packed multi-indices: one to one, in order, with neighbours by addition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble.apps.gbees import GridError
from ensemble.apps.gbees.engines.array import ArrayEngine
from ensemble.apps.gbees.engines.keys import Packing, find
from tests.apps.gbees.grids import boxed, table


@st.composite
def indices(draw):
    n = draw(st.integers(1, 6))
    low = draw(st.lists(st.integers(-10_000, 10_000), min_size=n, max_size=n))
    rows = draw(
        st.lists(st.tuples(*(st.integers(a, a + draw(st.integers(0, 200))) for a in low)), min_size=1, max_size=30)
    )
    return np.unique(np.array(rows, dtype=np.int64).reshape(-1, n), axis=0)


@given(indices())
def test_keys_sort_as_multi_indices_do_and_come_back(s):
    n = s.shape[1]
    packing = Packing.around(s.min(axis=0).tolist(), s.max(axis=0).tolist(), (None,) * n)
    columns = [s[:, i] for i in range(n)]
    keys = packing.pack(columns)
    assert np.all(np.diff(keys) > 0)  # np.unique sorts rows lexicographically
    assert packing.fits(columns)
    for i in range(n):
        np.testing.assert_array_equal(packing.column(keys, i), s[:, i])
        for step in (1, -1):
            moved = [column + (step if k == i else 0) for k, column in enumerate(columns)]
            np.testing.assert_array_equal(packing.neighbour(keys, i, step), packing.pack(moved))
            where = find(keys, packing.neighbour(keys, i, step))
            rows = {tuple(row): k for k, row in enumerate(s.tolist())}
            assert where.tolist() == [rows.get(tuple(row), len(s)) for row in np.stack(moved, axis=1).tolist()]


@given(st.integers(3, 40), st.integers(-1, 1))
def test_a_periodic_dimension_wraps_around(period, low):
    packing = Packing.around([low, 0], [low, 5], (period, None))
    first = -(period // 2)
    columns = [np.arange(first, first + period), np.full(period, 3)]
    keys = packing.pack(columns)
    np.testing.assert_array_equal(packing.column(packing.neighbour(keys, 0, 1), 0), np.roll(columns[0], -1))
    np.testing.assert_array_equal(packing.column(packing.neighbour(keys, 0, -1), 0), np.roll(columns[0], 1))
    np.testing.assert_array_equal(packing.column(packing.neighbour(keys, 0, 1), 1), columns[1])


def test_spans_beyond_63_bits_are_refused():
    with pytest.raises(GridError, match=r"fit keys of 63 bits; got 1000000 x 1000000 x 1000000 x 1000000 cells across"):
        Packing.around([0] * 4, [999_999] * 4, (None,) * 4)


def test_a_grid_that_wanders_is_packed_anew():
    n, v = 10, 1.0
    problem, _, _ = boxed(lambda x, t, xp: [v] + [0.0] * (n - 1), [0.0], [1.0], 0, lambda x: np.ones(len(x)))
    problem = problem.__class__(problem.drift, np.zeros(n), np.ones(n), 1e-12)
    run = ArrayEngine(problem, np.zeros((1, n), dtype=np.int64), np.ones(1))
    first = run.grid.packing
    run.advance(0.0, 100.0)
    assert run.grid.packing != first
    assert {s: q for s, q in table(run).items() if q > 0} == {(100,) + (0,) * (n - 1): 1.0}
