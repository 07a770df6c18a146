"""Matrices of blocks: against SciPy, against the matrix of their entries, and sample by sample."""

import array_api_strict as strict
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ensemble.krylov import cg
from ensemble.linalg import BcrsMatrix, CrsGraph, CrsMatrix, norm
from ensemble.scalar import Ensemble, SampleSet
from tests.linalg.block_problems import random_blocks


def definite(rng, n, size, n_samples):
    """Symmetric positive definite blocks, one matrix per sample."""
    A = random_blocks(rng, n, n, (size, size), n_samples)
    A = A + A.T
    shift = 2.0 * float(np.abs(A.to_scipy(0)).sum(axis=1).max()) + 20.0
    graph = CrsGraph(np.arange(n + 1), np.arange(n), (n, n))
    return A + BcrsMatrix(graph, np.tile(shift * np.eye(size), (n, 1, 1)))


SHAPES = st.sampled_from([(3, 3), (1, 3), (3, 1)])


@given(
    n=st.integers(1, 8), m=st.integers(1, 8), block_shape=SHAPES, n_samples=st.sampled_from([1, 2, 5, 9]),
    seed=st.integers(0, 2**32 - 1), density=st.floats(0, 1),
)  # fmt: skip
def test_products_have_the_bits_of_the_matrix_entry_by_entry(n, m, block_shape, n_samples, seed, density):
    rng = np.random.default_rng(seed)
    A = random_blocks(rng, n, m, block_shape, n_samples, density)
    entries = A.to_crs()
    assert entries.shape == A.shape == (n * block_shape[0], m * block_shape[1])
    assert entries.nnz == A.nnz
    x, y = (Ensemble(rng.standard_normal((size, n_samples))) for size in A.shape[::-1])
    np.testing.assert_array_equal((A @ x).samples, (entries @ x).samples)
    np.testing.assert_array_equal((A.T @ y).samples, (entries.T @ y).samples)
    np.testing.assert_array_equal(A.residual(x.samples, y.samples), entries.residual(x.samples, y.samples))
    for i in range(n_samples):
        np.testing.assert_array_equal((A @ x).sample(i), A.sample(i) @ x.sample(i))
        np.testing.assert_allclose((A @ x).sample(i), A.to_scipy(i) @ x.sample(i), rtol=0, atol=1e-13)


def test_vectors_of_nodes_give_vectors_of_nodes(rng):
    A = random_blocks(rng, 6, 8, (3, 3), 4)
    x = rng.standard_normal((8, 3, 4))
    flat = (A @ Ensemble(x.reshape(24, 4))).samples
    np.testing.assert_array_equal((A @ Ensemble(x)).samples, flat.reshape(6, 3, 4))
    y = rng.standard_normal((6, 3))
    np.testing.assert_array_equal((A.T @ y).samples, (A.T @ y.reshape(-1)).samples.reshape(8, 3, 4))
    divergence = random_blocks(rng, 6, 8, (1, 3), 1)
    assert (divergence @ x[..., 0]).shape == (6,)
    assert (divergence.T @ np.ones(6)).shape == (24,)


def test_columns_are_multiplied_one_by_one(rng):
    A = random_blocks(rng, 6, 8, (3, 3), 2)
    X = rng.standard_normal((24, 5))
    got = A @ X
    for j in range(5):
        np.testing.assert_array_equal(got.samples[:, j], (A @ X[:, j]).samples)


def test_shared_blocks_serve_every_sample_and_a_shared_vector_every_matrix(rng):
    shared, many = random_blocks(rng, 6, 6, (2, 2), 1), random_blocks(rng, 6, 6, (2, 2), 5)
    x, v = rng.standard_normal((12, 5)), rng.standard_normal(12)
    for i in range(5):
        np.testing.assert_array_equal((shared @ Ensemble(x)).sample(i), shared @ x[:, i])
        np.testing.assert_array_equal((many @ v).sample(i), many.sample(i) @ v)


def test_a_nan_stays_in_its_sample(rng):
    A = random_blocks(rng, 5, 5, (3, 3), 4, density=1.0)
    good = (A @ np.ones(15)).samples
    A.values[0, 0, 0, 2] = np.nan
    bad = (A @ np.ones(15)).samples
    assert np.isnan(bad[0, 2])
    np.testing.assert_array_equal(bad[:, [0, 1, 3]], good[:, [0, 1, 3]])


def test_scipy_matrices_come_back(rng):
    matrices = [sp.bsr_array(sp.random_array((12, 8), density=0.2, rng=rng).tobsr((3, 2))) for _ in range(3)]
    A = BcrsMatrix.from_scipy(matrices)
    assert A.block_shape == (3, 2) and A.n_samples == 3
    for i in range(3):
        assert abs(A.to_scipy(i) - matrices[i]).max() == 0.0
        assert isinstance(A.to_scipy(i), sp.bsr_array)
    one = BcrsMatrix.from_scipy(matrices[0].tocsr(), (2, 2))
    assert one.block_shape == (2, 2) and abs(one.to_scipy() - matrices[0]).max() == 0.0
    again = BcrsMatrix.from_crs(A.to_crs(), (3, 2))
    np.testing.assert_array_equal(again.values, A.values)


def test_sums_and_multiples_are_scipys(rng):
    A, B = random_blocks(rng, 5, 5, (2, 2), 3), random_blocks(rng, 5, 5, (2, 2), 1)
    factor = Ensemble(np.array([2.0, -1.0, 0.5]))
    total = factor * A - B / 4.0 + A.T
    assert isinstance(total, BcrsMatrix)
    for i in range(3):
        a, b = A.to_scipy(i).toarray(), B.to_scipy().toarray()
        expected = factor.samples[i] * a - b / 4.0 + a.T
        np.testing.assert_allclose(total.to_scipy(i).toarray(), expected, rtol=0, atol=1e-14)
    other = CrsMatrix.from_scipy(sp.eye_array(10, format="csr"))
    assert isinstance(A + other, CrsMatrix) and isinstance(other + A, CrsMatrix)
    np.testing.assert_allclose((other + A).to_scipy(1).toarray(), A.to_scipy(1).toarray() + np.eye(10), atol=1e-15)


def test_products_of_matrices_are_those_of_their_entries(rng):
    A, B = random_blocks(rng, 4, 5, (2, 3), 2), random_blocks(rng, 5, 4, (3, 2), 2)
    for i in range(2):
        expected = A.to_scipy(i).toarray() @ B.to_scipy(i).toarray()
        np.testing.assert_allclose((A @ B).to_scipy(i).toarray(), expected, atol=1e-13)
        np.testing.assert_allclose(
            (A @ A.T).to_scipy(i).toarray(), A.to_scipy(i) @ A.to_scipy(i).T.toarray(), atol=1e-13
        )


@pytest.mark.parametrize("block_shape", [(3, 3), (1, 3)])
def test_diagonal_and_zero_blocks(rng, block_shape):
    A = random_blocks(rng, 6, 6, block_shape, 2)
    for i in range(2):
        np.testing.assert_array_equal(A.diagonal().sample(i), A.to_scipy(i).diagonal())
    A.values[::2] = 0.0
    slim = A.eliminate_zeros()
    assert slim.graph.nnz == A.graph.nnz // 2
    assert abs(slim.to_scipy(1) - A.to_scipy(1)).max() == 0.0


def test_samples_are_taken_with_their_set(rng):
    chosen = SampleSet(points=rng.standard_normal((1, 4)))
    A = random_blocks(rng, 4, 4, (2, 2), 4)
    A = BcrsMatrix(A.graph, Ensemble(A.values, chosen))
    part = A.take_samples([3, 1])
    np.testing.assert_array_equal(part.values, A.values[..., [3, 1]])
    assert part.sample_set.n_samples == 2 and A.T.sample_set is chosen
    assert A.astype(np.float32).dtype == np.float32 and A.to_crs().sample_set is chosen


def test_other_libraries_give_the_same_numbers(rng):
    A = random_blocks(rng, 5, 5, (3, 3), 2)
    moved = BcrsMatrix(A.graph, strict.asarray(A.values))
    x = rng.standard_normal((15, 2))
    for operator, other in ((A, moved), (A.T, moved.T), (A.to_crs(), moved.to_crs())):
        got = (other @ Ensemble(strict.asarray(x))).samples
        np.testing.assert_array_equal(np.asarray(got), (operator @ Ensemble(x)).samples)
    np.testing.assert_array_equal(np.asarray(moved.diagonal().samples), A.diagonal().samples)


def test_conjugate_gradients_solve_with_blocks_as_with_entries(rng):
    A = definite(rng, 30, 3, 4)
    b = Ensemble(rng.standard_normal((90, 4)))
    result, expected = cg(A, b, rtol=1e-10), cg(A.to_crs(), b, rtol=1e-10)
    assert result.converged.all()
    np.testing.assert_array_equal(result.iterations, expected.iterations)
    assert (norm(A @ result.x - b).samples <= 1e-10 * norm(b).samples).all()
    for i in range(4):
        np.testing.assert_array_equal(result.x.sample(i), cg(A.sample(i), b.sample(i), rtol=1e-10).x)


def test_expanded_graphs_are_made_once(rng):
    graph = random_blocks(rng, 5, 4, (1, 1), 1).graph
    assert graph.expanded(3, 2)[0] is graph.expanded(3, 2)[0]
    dense = np.kron(sp.csr_array((np.ones(graph.nnz), graph.indices, graph.indptr), shape=graph.shape).toarray(),
                    np.ones((3, 2)))  # fmt: skip
    scalar = graph.expanded(3, 2)[0]
    expected = sp.csr_array(dense)
    np.testing.assert_array_equal(scalar.indptr, expected.indptr)
    np.testing.assert_array_equal(scalar.indices, expected.indices)


def test_bad_blocks_are_refused(rng):
    graph = CrsGraph([0, 1, 2], [0, 1], (2, 2))
    with pytest.raises(ValueError, match=r"values must have shape \(nnz, r, c\)"):
        BcrsMatrix(graph, np.ones((3, 2, 2)))
    with pytest.raises(ValueError, match="hold one row"):
        BcrsMatrix(graph, np.ones((2, 0, 2)))
    with pytest.raises(TypeError, match="hold numbers"):
        BcrsMatrix(graph, np.array([[["a"]], [["b"]]]))
    with pytest.raises(TypeError, match="graph must be a CrsGraph"):
        BcrsMatrix(None, np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match="have 4 rows"):
        BcrsMatrix(graph, np.ones((2, 2, 2))) @ np.ones(3)
    with pytest.raises(ValueError, match="block_shape must divide"):
        BcrsMatrix.from_scipy(sp.eye_array(5, format="csr"), (2, 2))
    with pytest.raises(TypeError, match="Give block_shape"):
        BcrsMatrix.from_scipy(sp.eye_array(4, format="csr"))
