"""The graph and the places of element matrices, against sums over a dense matrix."""

import numpy as np
import pytest

from ensemble._kernels.sparse import element_map as _element_map
from ensemble._kernels.sparse.element_map import element_map


@pytest.mark.parametrize(("n_elements", "k", "n"), [(0, 4, 3), (1, 4, 9), (40, 3, 12), (3000, 4, 700), (50, 10, 60)])
@pytest.mark.parametrize("ordered", [True, False])
def test_element_matrices_add_up_to_the_matrix(n_elements, k, n, ordered, rng):
    unknowns = np.array([rng.choice(n, k, replace=False) for _ in range(n_elements)], dtype=np.int32).reshape(-1, k)
    order = None if ordered else rng.permutation(n).astype(np.int32)
    made = element_map(unknowns, n, order)
    matrices = rng.integers(-9, 9, (n_elements, k, k)).astype(float)
    dense = np.zeros((n, n))
    for nodes, matrix in zip(unknowns, matrices, strict=True):
        dense[np.ix_(nodes, nodes)] += matrix
    rows = np.repeat(np.arange(n), np.diff(made.indptr))
    values = np.zeros(made.indices.size)
    np.add.at(values, made.indptr[unknowns][:, :, None] + made.slots, matrices)
    got = np.zeros((n, n))
    got[rows, made.indices] = values
    np.testing.assert_array_equal(got, dense)
    assert (np.diff(rows * n + made.indices) > 0).all()
    coupled = np.zeros((n, n), dtype=bool)
    for nodes in unknowns:
        coupled[np.ix_(nodes, nodes)] = True
    assert coupled.sum() == made.indices.size


def test_rows_receive_their_elements_in_ascending_order(rng):
    unknowns = np.array([rng.choice(30, 4, replace=False) for _ in range(80)], dtype=np.int32)
    made = element_map(unknowns, 30)
    for i in range(30):
        pairs = made.incidences[made.first[i] : made.first[i + 1]]
        assert (np.diff(pairs) > 0).all()
        np.testing.assert_array_equal(unknowns.reshape(-1)[pairs], i)
    assert made.incidences.size == unknowns.size


def test_rows_that_are_too_long_are_refused(monkeypatch):
    star = np.stack([np.zeros(50, np.int32), np.arange(1, 51, dtype=np.int32)], axis=1)
    assert element_map(star, 51).slots.max() == 50
    monkeypatch.setattr(_element_map, "LONGEST", 40)
    with pytest.raises(ValueError, match="a row must hold at most 40 entries; got 51"):
        element_map(star, 51)
