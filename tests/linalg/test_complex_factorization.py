"""Factorisations of complex matrices: dense truths, each sample by itself, exchanges, determinants, refusals."""

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble.krylov import direct, gmres
from ensemble.linalg import CrsMatrix, Factorization, SymmetricCrsMatrix
from ensemble.scalar import Ensemble
from tests.linalg.complex_problems import N, columns, convection, helmholtz, numbers

CASES = {
    "LU": (convection, {}), "LDL^T": (lambda rng, count: helmholtz(count), {"kind": "ldlt"}),
    "mean": (convection, {"matching": "mean"}), "single": (convection, {"dtype": "float32"}),
}  # fmt: skip


def dense(A, s=0):
    return A.to_scipy(s).toarray()


@pytest.mark.parametrize("case", list(CASES))
def test_solutions_and_determinants_are_those_of_dense_algebra(case, rng):
    make, options = CASES[case]
    A, b = make(rng, 3), Ensemble(numbers(rng, N, 3))
    F, single = Factorization(A, **options), case == "single"
    assert F.dtype == (np.complex64 if single else np.complex128)
    x, transposed, adjoint, wide = F @ b, F.T @ b, F.H @ b, F @ numbers(rng, N, 2)
    sign, logdet = F.sign(), F.logdet()
    assert x.dtype == np.complex128 and logdet.dtype == F.dtype.type(0).real.dtype and wide.shape == (N, 2)
    tolerance = 1e-3 if single else 1e-10
    for s in range(3):
        matrix = dense(A, s)
        np.testing.assert_allclose(x.samples[:, s], np.linalg.solve(matrix, b.samples[:, s]), rtol=tolerance)
        expected = np.linalg.solve(matrix.T, b.samples[:, s])
        np.testing.assert_allclose(transposed.samples[:, s], expected, rtol=tolerance)
        expected = np.linalg.solve(matrix.conj().T, b.samples[:, s])
        np.testing.assert_allclose(adjoint.samples[:, s], expected, rtol=tolerance)
        expected = np.linalg.slogdet(matrix)
        np.testing.assert_allclose([sign.samples[s], logdet.samples[s]], expected, rtol=tolerance, atol=tolerance)
    assert F.lossy.sum() == 0 and not F.broken.any() and F.H.H is F
    np.testing.assert_array_equal(F.H.apply(b.samples), adjoint.samples)
    np.testing.assert_array_equal(columns(F.H.sample(1) @ b.sample(1))[:, 0], adjoint.samples[:, 1])


@pytest.mark.parametrize("case", list(CASES))
def test_each_sample_is_its_scalar_run(case, rng):
    make, options = CASES[case]
    A, b = make(rng, 5), Ensemble(numbers(rng, N, 5))
    F = Factorization(A, **options)
    again = F.update(CrsMatrix(A.graph, 1.5j * A.values))
    results = [F @ b, F.T @ b, again @ b, F.solve(A, b)]
    for s in range(5) if case != "mean" else ():  # whose matching all samples decide
        one, own = A.sample(s), b.sample(s)
        f = Factorization(one, **options)
        alone = [f @ own, f.T @ own, f.update(CrsMatrix(A.graph, 1.5j * one.values)) @ own, f.solve(one, own)]
        for together, single in zip(results, alone, strict=True):
            np.testing.assert_array_equal(together.samples[:, s], columns(single)[:, 0])
        assert F.logdet().samples[s] == f.logdet().samples[0] and F.sign().samples[s] == f.sign().samples[0]


def test_update_takes_real_values_and_real_right_hand_sides(rng):
    A = convection(rng, 2)
    real = CrsMatrix(A.graph, A.values.real.copy())
    F, b = Factorization(A).update(real), rng.standard_normal(N)
    found = F @ b
    assert found.dtype == np.complex128
    np.testing.assert_allclose(found.samples[:, 1], np.linalg.solve(dense(real, 1), b), rtol=1e-10, atol=1e-14)


def test_the_upper_triangle_decides_a_symmetric_factorisation(rng):
    A = helmholtz(2)
    below = A.graph.row_of_entry > A.graph.indices
    F = Factorization(A, kind="ldlt").update(CrsMatrix(A.graph, np.where(below[:, None], 7.0, A.values)))
    b = numbers(rng, N)
    np.testing.assert_array_equal((F @ b).samples, (Factorization(SymmetricCrsMatrix.from_crs(A)) @ b).samples)
    assert not F.lossy.any()


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_samples_that_need_exchanges_are_solved_with_them(dtype, rng):
    matrices = [np.diag(np.full(20, 3.0 + 1.0j)) + 0.2 * numbers(rng, 20, 20) for _ in range(4)]
    for s, pivot in ((1, 1e-13j), (2, 0.0)):
        matrices[s][[0, 1]] = matrices[s][[1, 0]]
        matrices[s][0, 0] = pivot
    rows, cols = np.indices((20, 20)).reshape(2, -1)
    graph = CrsMatrix.from_scipy(sp.csr_array(np.ones((20, 20)))).graph
    A = CrsMatrix(graph, np.stack([m[rows, cols] for m in matrices], axis=1).astype(dtype))
    F, b = Factorization(A, ordering=np.arange(20)), Ensemble(numbers(rng, 20, 4).astype(dtype))
    assert F.lossy.tolist() == [False, True, True, False]
    tolerance = 2e-3 if dtype == "complex64" else 1e-11
    x, y, sign, logdet = F @ b, F.T @ b, F.sign().samples, F.logdet().samples
    for s in range(4):
        own, right = A.values[:, s].reshape(20, 20).astype(complex), b.samples[:, s]
        np.testing.assert_allclose(x.samples[:, s], np.linalg.solve(own, right), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(y.samples[:, s], np.linalg.solve(own.T, right), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose([sign[s], logdet[s]], np.linalg.slogdet(own), rtol=tolerance, atol=tolerance)
    alone = Factorization(A.sample(0), ordering=np.arange(20))
    np.testing.assert_array_equal(x.samples[:, 0], columns(alone @ b.sample(0))[:, 0])


def test_bad_samples_change_no_other(rng):
    A, b = convection(rng, 4), Ensemble(numbers(rng, N, 4))
    good, values = Factorization(A) @ b, A.values.copy()
    values[5, 0], values[:, 2] = np.nan * 1j, 0.0
    F = Factorization(CrsMatrix(A.graph, values))
    assert F.broken.tolist() == [True, False, True, False]
    found = F @ b
    np.testing.assert_array_equal(found.samples[:, [1, 3]], good.samples[:, [1, 3]])
    assert np.isnan(found.samples[:, [0, 2]]).all()
    assert F.sign().samples[2] == 0.0 and F.logdet().samples[2] == -np.inf and np.isnan(F.logdet().samples[0])


def test_factors_of_one_parameter_precondition_another(rng):
    A, b = convection(rng, 3), Ensemble(numbers(rng, N, 3))
    plain = gmres(A, b)
    found = gmres(A, b, M=Factorization(CrsMatrix(A.graph, 1.01 * A.values)))
    assert found.converged.all() and found.iterations.max() <= 3 < plain.iterations.min()


def test_what_complex_factors_do_not_serve_is_refused_in_one_line(rng):
    A = helmholtz(2)
    F = Factorization(A, kind="ldlt")
    for method in ("inertia", "inverse_diagonal", "inverse_entries"):
        with pytest.raises(TypeError, match=rf"Factorization\.{method}: A must be real; got complex128\. "):
            getattr(F, method)()
    with pytest.raises(TypeError, match="direct: factorization must be real; got complex128"):
        direct(CrsMatrix(A.graph, A.values.real.copy()), np.ones(N), factorization=F)
    real = Factorization(CrsMatrix(A.graph, A.values.real.copy()))
    with pytest.raises(TypeError, match="Factorization: A must hold float32 or float64; got complex128"):
        real.update(A)
    with pytest.raises(ValueError, match='A must be symmetric where kind="ldlt"'):
        Factorization(convection(rng, 2), kind="ldlt")
