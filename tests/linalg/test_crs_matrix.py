"""Sparse products: against SciPy, against dense algebra, and sample by sample."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ensemble import gallery
from ensemble.linalg import CrsGraph, CrsMatrix, GalerkinProduct
from ensemble.scalar import Ensemble
from tests.linalg.problems import random_matrix


@given(
    n=st.integers(1, 12), m=st.integers(1, 12), n_samples=st.integers(1, 40), seed=st.integers(0, 2**32 - 1),
    density=st.floats(0, 1),
)  # fmt: skip
def test_product_is_scipys_in_every_sample(n, m, n_samples, seed, density):
    rng = np.random.default_rng(seed)
    A = random_matrix(rng, n, m, n_samples, density)
    x = Ensemble(rng.standard_normal((m, n_samples)))
    y, z = A @ x, A.T @ Ensemble(rng.standard_normal((n, n_samples)))
    assert y.shape == (n,) and z.shape == (m,)
    for i in range(n_samples):
        np.testing.assert_allclose(y.sample(i), A.to_scipy(i) @ x.sample(i), rtol=0, atol=1e-13)
        assert np.array_equal(y.sample(i), A.sample(i) @ x.sample(i))


@given(n_samples=st.integers(1, 70), seed=st.integers(0, 2**32 - 1))
def test_products_ignore_the_other_samples(n_samples, seed):
    """Permuting, splitting and duplicating samples does the same to the results, to the bit."""
    rng = np.random.default_rng(seed)
    A = random_matrix(rng, 9, 9, n_samples)
    x = rng.standard_normal((9, n_samples))
    y = (A @ Ensemble(x)).samples
    chosen = rng.integers(0, n_samples, rng.integers(1, n_samples + 1))
    picked = CrsMatrix(A.graph, A.values[:, chosen]) @ Ensemble(x[:, chosen])
    assert np.array_equal(picked.samples, y[:, chosen])


def test_shared_values_serve_every_sample_without_a_copy(rng):
    A = random_matrix(rng, 8, 8, 1)
    x = Ensemble(rng.standard_normal((8, 5)))
    y = A @ x
    assert A.values.shape[1] == 1
    for i in range(5):
        assert np.array_equal(y.sample(i), A @ x.sample(i))


def test_shared_vector_meets_many_matrices(rng):
    A = random_matrix(rng, 8, 8, 5)
    x = rng.standard_normal(8)
    for i in range(5):
        assert np.array_equal((A @ x).sample(i), A.sample(i) @ x)
        assert np.array_equal((A @ Ensemble(x[:, None])).sample(i), A.sample(i) @ x)


def test_tall_arrays_are_multiplied_column_by_column(rng):
    A = random_matrix(rng, 6, 8, 3)
    X = rng.standard_normal((8, 2, 3))
    np.testing.assert_allclose((A @ Ensemble(X)).sample(1), A.to_scipy(1) @ X[..., 1], rtol=0, atol=1e-13)


def test_matrix_product_is_associative(rng):
    A, B = random_matrix(rng, 7, 9, 4), random_matrix(rng, 9, 5, 4)
    x = Ensemble(rng.standard_normal((5, 4)))
    np.testing.assert_allclose(((A @ B) @ x).samples, (A @ (B @ x)).samples, rtol=0, atol=1e-12)


def test_transpose_is_the_adjoint(rng):
    A = random_matrix(rng, 7, 9, 4)
    x, y = rng.standard_normal((9, 4)), rng.standard_normal((7, 4))
    left = np.sum((A @ Ensemble(x)).samples * y, axis=0)
    right = np.sum(x * (A.T @ Ensemble(y)).samples, axis=0)
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-12)
    assert np.array_equal(A.T.to_matrix().to_scipy(2).toarray(), A.to_scipy(2).toarray().T)
    assert A.T.T is A


def test_ensemble_product_is_the_commuted_kronecker_product(rng):
    """Eq. 3 of Phipps et al.: one sparse matrix of blocks diag(a_ij of every sample) does the same."""
    A = random_matrix(rng, 6, 6, 4)
    rows, columns = A.graph.row_of_entry, A.graph.indices
    blocks = sp.coo_array(
        (A.values.reshape(-1), tuple((index[:, None] * 4 + np.arange(4)).reshape(-1) for index in (rows, columns))),
        shape=(24, 24),
    )  # fmt: skip
    x = rng.standard_normal((6, 4))
    np.testing.assert_allclose((A @ Ensemble(x)).samples.reshape(-1), blocks @ x.reshape(-1), rtol=0, atol=1e-13)


def test_diagonal_is_zero_where_no_entry_is_stored():
    A = CrsMatrix(CrsGraph([0, 1, 2], [1, 1], (2, 2)), np.array([[5.0, 6.0], [7.0, 8.0]]))
    assert np.array_equal(A.diagonal().samples, [[0.0, 0.0], [7.0, 8.0]])


def test_from_scipy_takes_the_union_of_patterns(rng):
    given_matrices = [sp.random_array((5, 6), density=0.4, rng=rng) for _ in range(3)]
    A = CrsMatrix.from_scipy(given_matrices)
    for i, m in enumerate(given_matrices):
        assert np.array_equal(A.to_scipy(i).toarray(), m.toarray())


def test_from_scipy_sums_doubles_and_keeps_explicit_zeros():
    m = sp.coo_array(([1.0, 2.0, 0.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    A = CrsMatrix.from_scipy(m)
    assert A.nnz == 2
    assert np.array_equal(A.to_scipy().toarray(), [[0.0, 3.0], [0.0, 0.0]])


def test_integer_values_become_floats():
    assert CrsMatrix(CrsGraph([0, 1], [0], (1, 1)), np.array([2])).dtype == np.float64


def test_nan_stays_in_its_sample(rng):
    A = random_matrix(rng, 9, 9, 5, density=0.9)
    clean = (A @ Ensemble(np.ones((9, 5)))).samples
    A.values[3, 2] = np.nan
    y = (A @ Ensemble(np.ones((9, 5)))).samples
    assert np.isnan(y[:, 2]).any()
    assert np.array_equal(np.delete(y, 2, axis=1), np.delete(clean, 2, axis=1))


@given(n_samples=st.integers(1, 20), seed=st.integers(0, 2**32 - 1), n=st.integers(2, 30))
def test_galerkin_product_is_scipys(n_samples, seed, n):
    rng = np.random.default_rng(seed)
    A, P = random_matrix(rng, n, n, n_samples), random_matrix(rng, n, max(1, n // 3), n_samples)
    product = GalerkinProduct(A.graph, P.graph)
    C = product(A, P)
    again = product(A, P, C.values)
    assert again.values is C.values
    for i in range(n_samples):
        expected = P.to_scipy(i).T @ A.to_scipy(i) @ P.to_scipy(i)
        np.testing.assert_allclose(C.to_scipy(i).toarray(), expected.toarray(), rtol=0, atol=1e-11)
        assert np.array_equal(C.values[:, i], product(A.sample(i), P.sample(i)).values[:, 0])


@pytest.mark.parametrize("n_samples", [1, 3])
def test_gallery_matrices_are_symmetric_positive_definite(n_samples):
    for A in (
        gallery.poisson((4, 5), n_samples),
        gallery.anisotropic((4, 5), n_samples),
        gallery.random_spd(20, n_samples),
    ):
        assert A.n_samples == n_samples
        for i in range(n_samples):
            dense = A.to_scipy(i).toarray()
            np.testing.assert_allclose(dense, dense.T, rtol=0, atol=0)
            assert np.linalg.eigvalsh(dense).min() > 0


@pytest.mark.parametrize(
    "arguments, text",
    [
        (([0, 1], [0], (2, 2)), "indptr must have one entry more than there are rows"),
        (([0, 2, 1], [0], (2, 2)), "indptr must ascend from 0 to nnz = 1"),
        (([0, 1, 2], [0, 2], (2, 2)), "indices must lie between 0 and 1"),
        (([0, 2, 2], [1, 0], (2, 2)), "indices must ascend within each row"),
        (([0, 2, 2], [1, 1], (2, 2)), "indices must ascend within each row"),
    ],
)
def test_a_bad_graph_is_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        CrsGraph(*arguments)


def test_bad_operands_are_refused(rng):
    A = random_matrix(rng, 4, 4, 3)
    with pytest.raises(ValueError, match=r"values must have one row per stored entry \(nnz = \d+\)"):
        CrsMatrix(A.graph, np.zeros((A.nnz + 1, 3)))
    with pytest.raises(TypeError, match="graph must be a CrsGraph"):
        CrsMatrix(np.eye(2), np.ones(2))
    with pytest.raises(ValueError, match="x must have 4 rows"):
        A @ np.ones(5)
    with pytest.raises(ValueError, match="same n_samples"):
        A @ Ensemble(np.ones((4, 2)))
    with pytest.raises(TypeError, match="indices must be a vector of integers"):
        CrsGraph([0, 1], [0.5], (1, 1))
