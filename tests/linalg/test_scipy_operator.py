"""Matrices and hierarchies as operators of scipy.sparse.linalg."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spla

import ensemble as en
from ensemble.gallery import poisson
from ensemble.linalg import AffineMatrix, CrsMatrix, Diagonal, SymmetricCrsMatrix
from ensemble.multigrid import scaled_aggregation, smoothed_aggregation

A = poisson((24, 24))
N = A.shape[0]
CONVECTION = CrsMatrix.from_scipy(A.to_scipy() + sp.diags_array([0.3] * (N - 1), offsets=1, shape=(N, N)))
OPERATORS = {
    "crs": CONVECTION,
    "transposed": CONVECTION.T,
    "symmetric": SymmetricCrsMatrix.from_crs(A),
    "affine": AffineMatrix(CONVECTION.graph, CONVECTION.values, en.Ensemble(np.zeros((0, 1)))),
    "diagonal": Diagonal(A.diagonal()),
}


@pytest.mark.parametrize("kind", OPERATORS)
def test_products_through_scipy_are_the_matrixs(kind):
    matrix = OPERATORS[kind]
    operator = spla.aslinearoperator(matrix)
    assert operator.shape == matrix.shape and operator.dtype == np.float64
    reference = np.diag(matrix.entries[:, 0]) if kind == "diagonal" else matrix.to_scipy().toarray()
    X = np.random.default_rng(30103).standard_normal((N, 3))
    x = X[:, 0]
    np.testing.assert_allclose(operator.matvec(x), reference @ x, atol=1e-13)
    np.testing.assert_allclose(operator.rmatvec(x), reference.T @ x, atol=1e-13)
    for columns in (X[:, :1], X):
        np.testing.assert_allclose(operator.matmat(columns), reference @ columns, atol=1e-13)
        np.testing.assert_allclose(operator.rmatmat(columns), reference.T @ columns, atol=1e-13)
    np.testing.assert_allclose(operator @ X, reference @ X, atol=1e-13)
    np.testing.assert_allclose(operator.H @ X, reference.T @ X, atol=1e-13)
    np.testing.assert_allclose(matrix.matmat(X), reference @ X, atol=1e-13)


def test_the_adjoint_of_a_complex_matrix_is_conjugated():
    B = CrsMatrix.from_scipy(CONVECTION.to_scipy() * (1 + 0.5j))
    x = np.random.default_rng(41081).standard_normal(N) * (1 - 2j)
    expected = B.to_scipy().conj().T @ x
    np.testing.assert_allclose(spla.aslinearoperator(B).rmatvec(x), expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("make", [smoothed_aggregation, lambda A: scaled_aggregation(A, mean=A)], ids=["own", "scaled"])
@pytest.mark.parametrize("method", [spla.cg, spla.gmres, spla.bicgstab, spla.minres])
def test_scipys_solvers_take_matrix_and_hierarchy(method, make):
    b, counts = np.ones(N), [0, 0]

    def counted(i):
        def callback(_):
            counts[i] += 1

        return callback

    extra = {"callback_type": "legacy"} if method is spla.gmres else {}
    M = make(A)
    x, info = method(A, b, M=M, rtol=1e-10, callback=counted(0), **extra)
    assert info == 0 and np.linalg.norm(b - A.to_scipy() @ x) <= 1e-6 * np.linalg.norm(b)  # MINRES tests another norm
    method(A, b, rtol=1e-10, callback=counted(1), **extra)
    assert counts[0] < counts[1]
    assert np.array_equal(M.matvec(b[:, None])[:, 0], M @ b)


def test_eigenvalues_through_scipy():
    got = spla.eigsh(A, k=2, which="LA", return_eigenvectors=False)
    expected = spla.eigsh(A.to_scipy(), k=2, which="LA", return_eigenvectors=False)
    np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_several_samples_are_refused():
    many = poisson((4, 4), n_samples=3)
    for operator in (many, smoothed_aggregation(many), many.T):
        with pytest.raises(
            ValueError, match=rf"{type(operator).__name__}.matvec: .* must hold one sample; got 3. Take"
        ):
            spla.aslinearoperator(operator).matvec(np.ones(16))
    with pytest.raises(ValueError, match=r"must hold one sample"):
        spla.cg(many, np.ones(16))
