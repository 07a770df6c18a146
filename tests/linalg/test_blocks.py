"""Kronecker products and matrices of blocks, against SciPy sample by sample, to the bit."""

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble.gallery import poisson
from ensemble.linalg import CrsGraph, CrsMatrix, Diagonal, SymmetricCrsMatrix, block, kron
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet
from tests.linalg.problems import random_matrix


def matrix(seed, n_samples, shape=(9, 7)):
    return random_matrix(np.random.default_rng(seed), *shape, n_samples, 0.4)


def checked(A):
    """The matrix, once the checks of a graph have seen its own."""
    CrsGraph(A.graph.indptr, A.graph.indices, A.graph.shape)
    return A


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("n_samples", [1, 3])
def test_products_with_the_identity_are_scipys(n, n_samples):
    A = matrix(52711, n_samples)
    inner, outer = checked(kron(A, n)), checked(kron(n, A))
    for s in range(n_samples):
        own = A.to_scipy(s)
        assert np.array_equal(inner.to_scipy(s).toarray(), sp.kron(own, sp.eye_array(n)).toarray())
        assert np.array_equal(outer.to_scipy(s).toarray(), sp.kron(sp.eye_array(n), own).toarray())
    assert inner.nnz == outer.nnz == n * A.nnz and inner.n_samples == n_samples


def test_laplacians_of_two_dimensions_are_sums_of_products():
    one = poisson((5,))
    assert np.array_equal((kron(one, 5) + kron(5, one)).to_scipy().toarray(), poisson((5, 5)).to_scipy().toarray())


def test_graphs_of_products_are_made_once_and_everything_sparse_is_taken():
    A = matrix(10771, 2)
    assert kron(A, 3).graph is kron(CrsMatrix(A.graph, A.values + 1.0), 3).graph
    assert kron(A, 3).graph is not kron(3, A).graph
    assert np.array_equal(kron(A.T, 2).to_scipy(1).toarray(), np.kron(A.to_scipy(1).toarray().T, np.eye(2)))
    assert kron(sp.eye_array(3), 2).shape == (6, 6)
    S = SymmetricCrsMatrix.from_crs(poisson((4,)))
    assert np.array_equal(kron(2, S).to_scipy().toarray(), np.kron(np.eye(2), S.to_scipy().toarray()))
    empty = CrsMatrix(CrsGraph([0, 0], [], (1, 0)), np.zeros((0, 2)))
    assert kron(empty, 3).shape == (3, 0) and kron(3, empty).shape == (3, 0)


@pytest.mark.parametrize("samples", [(1, 1), (3, 1), (1, 3), (3, 3)], ids=str)
def test_products_of_two_matrices_are_scipys(samples):
    A, B = matrix(52711, samples[0], (6, 4)), matrix(31771, samples[1], (3, 5))
    product = checked(kron(A, B))
    for s in range(max(samples)):
        expected = sp.kron(A.to_scipy(s % samples[0]), B.to_scipy(s % samples[1])).toarray()
        assert np.array_equal(product.to_scipy(s).toarray(), expected)
    assert kron(A, B / 2.0).graph is product.graph
    assert np.array_equal(kron(np.eye(2), A).to_scipy(0).toarray(), kron(2, A).to_scipy(0).toarray())


def test_products_that_are_none_are_refused():
    A = matrix(10771, 2)
    with pytest.raises(TypeError, match="kron: A or B must be a matrix; got 2 and 3"):
        kron(2, 3)
    for wrong in (1.5, None, "A"):
        with pytest.raises(TypeError, match=r"sparse matrices, or one of them an integer; got (a |None)"):
            kron(A, wrong)
    with pytest.raises(ValueError, match="the order of the identity must be an integer of at least 1; got 0"):
        kron(0, A)
    with pytest.raises(ValueError, match=r"A and B must have the same n_samples, or 1; got \[2, 3\]"):
        kron(A, matrix(10771, 3))


@pytest.mark.parametrize("samples", [(1, 1, 1), (3, 3, 3), (1, 3, 1), (3, 1, 3)], ids=str)
def test_blocks_are_scipys_in_every_sample(samples):
    A = matrix(52711, samples[0], (6, 4))
    B = matrix(31771, samples[1], (6, 3))
    C = matrix(90031, samples[2], (2, 4))
    K = checked(block([[A, None, B], [C, None, None], [None, sp.eye_array(5), None]]))
    assert K.n_samples == max(samples) and K.shape == (13, 12)
    for s in range(K.n_samples):
        a, b, c = (m.to_scipy(s) for m in (A, B, C))
        expected = sp.block_array([[a, None, b], [c, None, None], [None, sp.eye_array(5), None]])
        assert np.array_equal(K.to_scipy(s).toarray(), expected.toarray())


def test_saddle_points_and_every_kind_of_matrix():
    S = SymmetricCrsMatrix.from_crs(poisson((6,), n_samples=2))
    B = matrix(61771, 1, (2, 6))
    K = block([[S, B.T], [B, -1.0 * Diagonal(np.ones(2))]])
    D = K.to_scipy(1).toarray()
    assert np.array_equal(D, D.T) and np.array_equal(D[6:, 6:], -np.eye(2))
    again = block([[S, B.T], [B, None]])
    assert again.nnz == K.nnz - 2


def test_graphs_of_blocks_are_made_once():
    A, B = matrix(52711, 2, (6, 4)), matrix(31771, 1, (6, 3))
    first, again = block([[A, B]]), block([[CrsMatrix(A.graph, 2.0 * A.values), B]])
    assert again.graph is first.graph
    assert np.array_equal(again.to_scipy(0).toarray()[:, :4], 2.0 * first.to_scipy(0).toarray()[:, :4])
    C = matrix(80231, 1, (6, 3))
    other = block([[A, C]]).to_scipy(1).toarray()
    assert np.array_equal(other, np.hstack([A.to_scipy(1).toarray(), C.to_scipy(0).toarray()]))
    assert block([[B, A]]).graph is not first.graph and block([[A], [A]]).graph is not first.graph


def test_types_and_sample_sets_of_blocks_meet():
    points = SampleSet(points=np.arange(3.0)[None, :])
    graph = CrsGraph([0, 1], [0], (1, 1))
    A = CrsMatrix(graph, Ensemble(np.ones((1, 3), np.float32), points))
    K = block([[A, CrsMatrix(graph, np.array([2.0]))]])
    assert K.sample_set is points and K.dtype == np.float64
    other = CrsMatrix(graph, Ensemble(np.ones((1, 3)), SampleSet(points=np.ones((1, 3)))))
    with pytest.raises(ValueError, match="sample"):
        block([[A, other]])


@pytest.mark.parametrize(
    ("blocks", "error", "text"),
    [
        ("abc", TypeError, "blocks must be a list of lists; got a str"),
        ([1, 2], TypeError, "blocks must be a list of lists"),
        ([], ValueError, "rows of one length, one or more"),
        ([[], []], ValueError, "rows of one length, one or more"),
        ([[None], [None, None]], ValueError, "rows of one length"),
        ([[None, sp.eye_array(2)]], ValueError, "have a matrix in each column; got none in column 0.*from_coo"),
        ([[sp.eye_array(2)], [None]], ValueError, "have a matrix in each row; got none in row 1"),
        ([[sp.eye_array(2), sp.eye_array(3)]], ValueError, r"blocks\[0\]\[1\] must have 2 rows; got 3"),
        ([[sp.eye_array(2)], [sp.eye_array(3)]], ValueError, r"blocks\[1\]\[0\] must have 2 columns; got 3"),
        ([[np.eye(2)]], TypeError, r"blocks\[0\]\[0\] must be a sparse matrix or None; got an ndarray"),
        ([[poisson((2,), n_samples=2), poisson((2,), n_samples=3)]], ValueError, r"n_samples, or 1; got \[2, 3\]"),
    ],
)  # fmt: skip
def test_blocks_that_do_not_fit_are_refused(blocks, error, text):
    with pytest.raises(error, match=text):
        block(blocks)
