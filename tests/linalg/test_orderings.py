"""Orders of elimination, and the runs of rows that are treated as one."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble._kernels.direct.bands import half_width
from ensemble._kernels.direct.symbolic import elimination
from ensemble._kernels.direct.symbolic import nested_dissection as dissection
from ensemble._kernels.direct.symbolic.nested_dissection import nested_dissection
from ensemble._kernels.direct.symbolic.supernodes import merged_rows, padded_columns
from ensemble.linalg import CrsMatrix, Factorization, IncompleteFactorization
from ensemble.linalg.factorizations import orderings


def box(*cells):
    """The graph of a grid, with a dominant diagonal."""
    total = sp.csr_array((1, 1))
    for m in cells:
        line = sp.diags_array([-np.ones(m - 1), 2.0 * np.ones(m), -np.ones(m - 1)], offsets=[-1, 0, 1])
        total = sp.kron(total, sp.eye_array(m)) + sp.kron(sp.eye_array(total.shape[0]), line)
    return sp.csr_array(total)


def pattern(A):
    A = sp.csr_array(A)
    A.setdiag(0)
    A.eliminate_zeros()
    A.sort_indices()
    return A.indptr, A.indices


def apart():
    """Components of all sizes, and vertices without neighbours."""
    return sp.csr_array(sp.block_diag([box(20, 20), box(300), sp.csr_array((70, 70)), box(12, 20), box(5)]))


def star(n=400):
    A = sp.lil_array((n, n))
    A[0, :] = A[:, 0] = 1.0
    return A.tocsr()


@pytest.mark.parametrize(
    "A",
    [sp.csr_array((0, 0)), sp.csr_array((1, 1)), box(500), box(25, 30), box(9, 8, 7), apart(), star(),
     sp.csr_array(np.ones((200, 200)))],
    ids=["empty", "one", "line", "square", "cube", "apart", "star", "full"],
)  # fmt: skip
def test_nested_dissection_is_a_permutation(A):
    order = nested_dissection(*pattern(A))
    assert sorted(order) == list(range(A.shape[0]))
    np.testing.assert_array_equal(order, nested_dissection(*pattern(A)))


def test_separators_come_after_the_parts_that_they_separate():
    A = box(30, 31)
    separator = dissection._separators(*(part.astype(np.int64) for part in pattern(A)))
    first = separator == 0
    assert 25 <= first.sum() <= 40
    rest = sp.csgraph.connected_components(A[~first][:, ~first])[1]
    assert np.bincount(rest).max() <= 0.7 * 930 and rest.max() == 1
    assert set(nested_dissection(*pattern(A))[-first.sum() :]) == set(np.flatnonzero(first))


def test_a_cube_has_less_fill_by_nested_dissection_than_by_minimum_degree():
    A = CrsMatrix.from_scipy(box(14, 14, 14))
    count = {name: Factorization(A, kind="ldlt", ordering=name).multiply_adds for name in ("amd", "nd", "auto")}
    assert count["nd"] < 0.7 * count["amd"] and count["auto"] == count["nd"]


def test_the_automatic_order_of_a_band_is_minimum_degree():
    A = CrsMatrix.from_scipy(box(400))
    values = {name: Factorization(A, ordering=name).n_values for name in ("amd", "nd", "auto")}
    assert values["auto"] == values["amd"] < values["nd"]


@pytest.mark.parametrize("ordering", ["amd", "nd", "auto"])
def test_solutions_agree_in_every_order(ordering, rng):
    A, b = box(13, 12), rng.standard_normal(156)
    for kind in ("lu", "ldlt"):
        x = Factorization(A, kind=kind, ordering=ordering) @ b
        np.testing.assert_allclose(A @ x, b, atol=1e-12)


def test_names_are_those_of_each_class():
    with pytest.raises(
        ValueError, match=r'Factorization: ordering must be "auto", "amd", "nd", "band" or a permutation'
    ):
        Factorization(box(3), ordering="metis")
    with pytest.raises(ValueError, match=r'IncompleteFactorization: ordering must be "auto" or a permutation'):
        IncompleteFactorization(box(3), ordering="nd")


# --- supernodes
def filled_box(*cells):
    plan = Factorization(CrsMatrix.from_scipy(box(*cells)), kind="ldlt").plan
    return plan.upper_starts, plan.upper


def test_merged_rows_keep_all_entries_and_add_few_zeros(monkeypatch):
    monkeypatch.setattr(orderings, "SUPERNODAL", np.inf)
    starts, columns = filled_box(15, 14)
    runs = merged_rows(starts, columns)
    assert runs[0] == 0 and runs[-1] == 210 and (np.diff(runs) > 0).all()
    longer, padded = padded_columns(starts, columns, runs)
    for i in range(210):
        own = padded[longer[i] : longer[i + 1]]
        assert np.isin(columns[starts[i] : starts[i + 1]], own).all() and (np.diff(own) > 0).all()
    assert columns.size < padded.size < 1.3 * columns.size
    for low, high in itertools.pairwise(runs):
        last = padded[longer[high - 1] : longer[high]]
        for i in range(low, high):
            np.testing.assert_array_equal(padded[longer[i] : longer[i + 1]], [*range(i + 1, high), *last])


def test_the_form_is_chosen_by_counts(rng):
    cube, tree = box(16, 16, 16), box(2000)
    assert Factorization(cube, kind="ldlt").plan.supernodes is not None
    assert Factorization(tree, kind="ldlt").plan.supernodes is None
    triangle = sp.csr_array(np.triu(rng.random((250, 250))) + np.eye(250))
    assert Factorization(triangle).plan.supernodes is None and Factorization(triangle).n_values == 250 * 251 // 2
    full = sp.csr_array(rng.random((250, 250)) + 250.0 * np.eye(250))
    F, b = Factorization(full), rng.standard_normal(250)
    assert F.plan.supernodes is not None
    np.testing.assert_allclose(F @ b, np.linalg.solve(full.toarray(), b), rtol=1e-12)
    np.testing.assert_allclose(F.T @ b, np.linalg.solve(full.toarray().T, b), rtol=1e-12)


def test_band_finds_the_band_of_a_shuffled_matrix():
    n, half = 60, 3
    base = sp.csr_array(sp.diags_array([np.ones(n - abs(k)) * (9.0 if k == 0 else 0.5) for k in range(-half, half + 1)],
                                       offsets=range(-half, half + 1)))  # fmt: skip
    shuffled = np.random.default_rng(4).permutation(n)
    for matrix, given in ((base, True), (base[shuffled][:, shuffled], False)):
        F = Factorization([matrix, 2.0 * matrix], ordering="band")
        assert half_width(F.plan) == half
        assert np.array_equal(F.plan.columns, np.arange(n)) == given
        np.testing.assert_allclose(matrix @ (F @ np.ones(n)).samples[:, 0], np.ones(n), rtol=1e-12)
    assert Factorization([sp.csr_array(np.eye(3))], ordering="band").plan.columns.tolist() == [0, 1, 2]


def test_children_that_need_most_at_one_time_come_first():
    """A vertex with two subtrees: a leaf, and a chain whose rows are longer."""
    parent, lengths = np.array([4, 2, 3, 4, -1]), np.array([1, 3, 2, 1, 0])
    excess = elimination.excess_storage(parent, lengths)
    assert excess[3] > excess[0] == 3
    assert elimination.postorder(parent, excess).tolist() == [1, 2, 3, 0, 4]
    assert elimination.postorder(parent, -np.arange(5)).tolist() == [0, 1, 2, 3, 4]


def test_weights_of_a_matching_have_exact_sums(monkeypatch):
    """SciPy's search goes on for ever where they are rounded, as those of a circuit with rows in other units were."""
    given = []
    search = orderings.min_weight_full_bipartite_matching
    monkeypatch.setattr(
        orderings, "min_weight_full_bipartite_matching", lambda graph: given.append(graph.data) or search(graph)
    )
    rng = np.random.default_rng(5)
    A = CrsMatrix.from_scipy(sp.csr_array(np.eye(30)[rng.permutation(30)] + 0.1 * rng.random((30, 30))))
    Factorization(A, matching="mean")
    (weights,) = given
    steps = weights * 1024.0
    assert np.array_equal(steps, np.rint(steps)) and np.unique(steps).size > 100
