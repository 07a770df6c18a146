"""Incomplete factorisations of complex matrices: SciPy's and dense truths, each sample by itself, no part dropped."""

import array_api_strict as strict
import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg

from ensemble import gallery
from ensemble.krylov import gmres
from ensemble.linalg import CrsMatrix, IncompleteFactorization, SymmetricCrsMatrix
from ensemble.scalar import Ensemble
from tests.linalg.complex_problems import N, columns, convection, helmholtz, numbers

OPTIONS = {
    "ILU(0)": {}, "fill": {"fill_level": 2}, "dropped": {"drop_tolerance": 1e-2}, "blocks": {"block_size": 12},
    "IC(0)": {"kind": "ldlt"}, "filled IC": {"kind": "ldlt", "fill_level": 2}, "single": {"dtype": "float32"},
}  # fmt: skip


@pytest.mark.parametrize("option", list(OPTIONS))
@pytest.mark.parametrize("n_samples", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_each_sample_is_its_scalar_run(rng, option, n_samples):
    A, b = helmholtz(n_samples), Ensemble(numbers(rng, N, 3))
    M = IncompleteFactorization(A, **OPTIONS[option])
    result, y = gmres(A, b, M=M), M @ b
    assert M.dtype == (np.complex64 if option == "single" else np.complex128)
    assert result.converged.all()
    np.testing.assert_allclose((A @ result.x).samples, b.samples, atol=1e-4)
    for s in range(3) if option != "dropped" else ():  # whose pattern all samples decide
        one = A.sample(s) if n_samples > 1 else A
        alone = IncompleteFactorization(one, **OPTIONS[option])
        assert np.array_equal(y.samples[:, s], columns(alone @ b.sample(s))[:, 0])
        assert np.array_equal(result.x.samples[:, s], columns(gmres(one, b.sample(s), M=alone).x)[:, 0])


@pytest.mark.parametrize("option", ["ILU(0)", "IC(0)", "blocks"])
def test_factors_agree_with_dense_elimination_on_the_pattern(option):
    """The textbook's loops on a dense matrix, entries outside of the pattern left out."""
    A = helmholtz(1)
    M = IncompleteFactorization(A, **OPTIONS[option])
    dense = A.to_scipy().toarray()
    kept = dense != 0
    if option == "blocks":
        block = np.arange(N) // 12
        kept = block[:, None] == block
    F = np.where(kept, dense, 0.0)
    for i in range(N):
        for k in np.flatnonzero(kept[i, :i]):
            F[i, k] /= F[k, k]
            own = kept[i] & (np.arange(N) > k)
            F[i, own] -= F[i, k] * F[k, own]
    product = (np.tril(F, -1) + np.eye(N)) @ np.triu(F)
    b = np.exp(1j * np.arange(N))
    np.testing.assert_allclose(columns(M @ (product @ b))[:, 0], b, rtol=1e-11)
    np.testing.assert_allclose(columns(M.T @ (product.T @ b))[:, 0], b, rtol=1e-11)


def test_dropped_fill_takes_about_the_iterations_of_scipys_incomplete_factors(rng):
    A, b = helmholtz(1), numbers(rng, N)
    theirs = scipy.sparse.linalg.spilu(sp.csc_array(A.to_scipy()), drop_tol=1e-3)
    seen = []
    operator = scipy.sparse.linalg.LinearOperator((N, N), theirs.solve, dtype=complex)
    scipy.sparse.linalg.gmres(A.to_scipy(), b, M=operator, rtol=1e-8, callback=seen.append, callback_type="pr_norm")
    ours = gmres(A, b, M=IncompleteFactorization(A, drop_tolerance=1e-3), rtol=1e-8)
    assert ours.converged.all() and ours.iterations[0] <= len(seen) + 2
    plain = gmres(A, b, rtol=1e-8).iterations[0]
    assert plain > 2 * gmres(A, b, M=IncompleteFactorization(A), rtol=1e-8).iterations[0]


def test_products_take_every_kind_of_vector(rng):
    A = convection(rng, 3)
    exact = IncompleteFactorization(A, fill_level=N)
    for x in (
        numbers(rng, N), rng.standard_normal(N), np.arange(N), numbers(rng, N, 2), numbers(rng, N).astype(np.complex64),
        Ensemble(numbers(rng, N, 3)), Ensemble(rng.standard_normal((N, 3))), Ensemble(numbers(rng, N, 2, 3)),
    ):  # fmt: skip
        y = exact @ x
        assert y.dtype == (np.complex64 if getattr(x, "dtype", None) == np.complex64 else np.complex128)
        close = 1e-4 if y.dtype == np.complex64 else 1e-11
        np.testing.assert_allclose((A @ y).samples, np.broadcast_to(columns(x), y.samples.shape), atol=close)
    y = exact.T @ (A.T @ np.ones(N))
    np.testing.assert_allclose(y.samples, 1.0, atol=1e-11)


def test_update_takes_other_complex_numbers_and_real_ones(rng):
    A = convection(rng, 3)
    F = IncompleteFactorization(A)
    twice = F.update(CrsMatrix(A.graph, 2j * A.values))
    np.testing.assert_allclose((twice @ np.ones(N)).samples, (F @ np.ones(N)).samples / 2j, rtol=1e-12)
    real = F.update(A.real)
    assert real.dtype == np.complex128
    same = IncompleteFactorization(A.real) @ np.ones(N)
    np.testing.assert_allclose((real @ np.ones(N)).samples, same.samples, rtol=1e-12)
    with pytest.raises(TypeError, match=r"IncompleteFactorization: A must hold float32 or float64; got complex128"):
        IncompleteFactorization(A.real).update(A)


def test_broken_samples_are_nan_and_the_others_their_own_runs(rng):
    A = helmholtz(3)
    A.values[:, 0], A.values[3, 1] = 0.0, np.nan
    M, b = IncompleteFactorization(A), numbers(rng, N)
    assert M.broken.tolist() == [True, True, False]
    y = (M @ b).samples
    assert np.isnan(y[:, :2]).all()
    assert np.array_equal(y[:, 2], columns(IncompleteFactorization(A.sample(2)) @ b)[:, 0])
    assert gmres(A, b, M=M).converged.tolist() == [False, False, True]


@pytest.mark.parametrize("size", [2.0**-300, 2.0**300])
def test_units_far_from_one_change_nothing(rng, size):
    A, b = helmholtz(2), numbers(rng, N)
    scaled = IncompleteFactorization(CrsMatrix(A.graph, A.values * size)) @ b
    np.testing.assert_allclose(scaled.samples * size, (IncompleteFactorization(A) @ b).samples, rtol=1e-14)


def test_symmetric_storage_takes_factors_without_conjugates(rng):
    A = helmholtz(2)
    M = IncompleteFactorization(SymmetricCrsMatrix.from_crs(A))
    assert "LDL^T" in repr(M)
    b = numbers(rng, N)
    assert np.array_equal((M @ b).samples, (IncompleteFactorization(A, kind="ldlt") @ b).samples)


def test_what_cannot_be_served_is_refused():
    laplacian, A = gallery.poisson((12, 12)), helmholtz(1)
    hermitian = CrsMatrix(A.graph, laplacian.values + 1j * np.sign(A.graph.indices - A.graph.row_of_entry)[:, None])
    with pytest.raises(ValueError, match=r'A must be symmetric where kind="ldlt"'):
        IncompleteFactorization(hermitian, kind="ldlt")
    with pytest.raises(ValueError, match=r"dtype must be float32 or float64"):
        IncompleteFactorization(A, dtype="int32")
    elsewhere = CrsMatrix(A.graph, strict.asarray(A.values))
    with pytest.raises(TypeError, match=r"A must hold arrays of NumPy or CuPy where numbers are complex"):
        IncompleteFactorization(elsewhere)
