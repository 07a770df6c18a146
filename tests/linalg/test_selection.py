"""Rows and columns of a matrix, against SciPy sample by sample, to the bit."""

import numpy as np
import pytest

from ensemble.gallery import poisson
from ensemble.linalg import AffineMatrix, BcrsMatrix, CrsGraph, CrsMatrix, Diagonal, SymmetricCrsMatrix
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet
from tests.linalg.problems import random_matrix
from tests.walked import every

ROWS, COLUMNS = 9, 7


def matrix(seed, n_samples):
    return random_matrix(np.random.default_rng(seed), ROWS, COLUMNS, n_samples, 0.4)


MASK = np.array([True, False, True, True, False, False, True])
CHOICES = [
    slice(None), slice(1, 5), slice(None, None, -1), slice(5, 1, -2), slice(3, 3), [0], [4, 2, 0], [-1, 0, -7],
    [2, 2, 5], [], MASK,
]  # fmt: skip


def wider(choice, n):
    """The choice as one of `n` rows: a vector of bools needs its length."""
    return np.resize(choice, n) if choice is MASK else choice


def as_index(choice):
    return np.asarray(choice, int) if isinstance(choice, list) else choice


@every("columns", CHOICES)
@every("rows", CHOICES)
@every("n_samples", [1, 3])
def test_a_selection_is_scipys_in_every_sample(rows, columns, n_samples):
    A = matrix(40213, n_samples)
    rows = wider(rows, ROWS)
    B = A.submatrix(rows, columns)
    for s in range(n_samples):
        dense = A.to_scipy(s).toarray()[as_index(rows)][:, as_index(columns)]
        found = B.to_scipy(s)
        assert found.shape == dense.shape and found.has_canonical_format
        assert np.array_equal(found.toarray(), dense)
        assert np.array_equal(B.sample(s).values, A.sample(s).submatrix(rows, columns).values)
    CrsGraph(B.graph.indptr, B.graph.indices, B.graph.shape)  # its checks


def test_brackets_are_numpys(rng):
    A = matrix(91733, 2)
    D = A.to_scipy(1).toarray()
    for which in (
        [0, 3], slice(2, 5), np.resize(MASK, ROWS), (slice(None), [1, 0]), (slice(1, 4), slice(2, None)),
        ([3, 1], slice(None)), np.ix_([3, 1, 3], [0, 6, 2]), np.ix_(np.resize(MASK, ROWS), MASK),
    ):  # fmt: skip
        assert np.array_equal(A[which].to_scipy(1).toarray(), D[which])


def test_transposed_and_symmetric_matrices_are_selected_from_alike():
    A = matrix(77031, 2)
    assert np.array_equal(A.T[[4, 1]].to_scipy(0).toarray(), A.to_scipy(0).toarray().T[[4, 1]])
    S = SymmetricCrsMatrix.from_crs(poisson((4, 3), n_samples=3))
    inner = S[np.ix_([5, 2, 4], [2, 4])]
    assert isinstance(inner, CrsMatrix)
    assert np.array_equal(inner.to_scipy(2).toarray(), S.to_scipy(2).toarray()[np.ix_([5, 2, 4], [2, 4])])
    assert isinstance(S[:], CrsMatrix) and S[:].shape == S.shape


def test_every_kind_of_matrix_is_selected_from(rng):
    A = CrsMatrix(poisson((4, 2)).graph, rng.standard_normal((poisson((4, 2)).nnz, 2)))
    affine = AffineMatrix(A.graph, A.values, Ensemble(np.array([[1.0, 2.0]])))
    for B in (BcrsMatrix.from_crs(A, (2, 2)), affine, affine.T, Diagonal(Ensemble(rng.standard_normal((8, 2))))):
        chosen = B[[5, 0, 5], 2:6]
        assert isinstance(chosen, CrsMatrix)
        assert np.array_equal(chosen.to_scipy(1).toarray(), B.to_scipy(1).toarray()[[5, 0, 5], 2:6])


def test_graph_work_is_done_once():
    A, other = matrix(10177, 2), [3, 0, 0, 5]
    first = A.submatrix(other, [1, 2])
    again = CrsMatrix(A.graph, 2.0 * A.values).submatrix(np.array(other), [1, 2])
    assert again.graph is first.graph and np.array_equal(again.values, 2.0 * first.values)
    assert A.submatrix(other, [2, 1]).graph is not first.graph
    assert A.submatrix().graph is A.graph


def test_sample_sets_and_types_are_carried_along():
    points = SampleSet(points=np.arange(3.0)[None, :])
    graph = matrix(1, 1).graph
    A = CrsMatrix(graph, Ensemble(np.ones((graph.nnz, 3), np.float32), points))
    assert A[[1, 2]].sample_set is points and A[[1, 2]].dtype == np.float32
    C = CrsMatrix(graph, np.arange(graph.nnz) * (1.0 + 2.0j))
    assert np.array_equal(C[[8, 2]].to_scipy().toarray(), C.to_scipy().toarray()[[8, 2]])


@pytest.mark.parametrize(
    ("which", "error", "text"),
    [
        ([9], IndexError, r"submatrix: rows must be from -9 to 8; got 9 \.\.\. 9"),
        ((slice(None), [-8]), IndexError, r"submatrix: columns must be from -7 to 6"),
        ([0.0], TypeError, "rows must be integers or bools; got dtype float64"),
        (3, TypeError, r"rows must be a slice or a vector; got shape \(\)\. A\[\[i\]\]"),
        (([0, 1], [1, 2]), TypeError, r"be a slice and a vector, or np.ix_ of two; .*A.submatrix"),
        ((0, 1), TypeError, "np.ix_ of two"),
        (np.zeros((2, 2), int), TypeError, "rows must be a slice or a vector"),
        (np.ones(3, bool), IndexError, "rows must have 9 entries where they are bools; got 3"),
        (Ensemble(np.zeros((2, 3), int)), TypeError, "rows must be the same for all samples; got an Ensemble"),
    ],
)
def test_what_names_no_rows_is_refused(which, error, text):
    with pytest.raises(error, match=text):
        matrix(40111, 3)[which]


def test_empty_matrices_have_empty_selections():
    A = CrsMatrix(CrsGraph([0], [], (0, 4)), np.zeros((0, 3)))
    assert A[:, [1, 2]].shape == (0, 2) and A[[]].n_samples == 3
    with pytest.raises(IndexError, match="rows must be from"):
        A[[0]]
