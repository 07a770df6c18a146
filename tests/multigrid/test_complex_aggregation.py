"""Smoothed aggregation of complex matrices: dense truths of the cycle, SciPy's iterations beaten, samples alone."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg

from ensemble import gallery
from ensemble.krylov import bicgstab, cg, gmres
from ensemble.linalg import BcrsMatrix, CrsMatrix, Diagonal, SymmetricCrsMatrix
from ensemble.multigrid import EvolutionStrength, GaussSeidel, SymmetricStrength, smoothed_aggregation
from ensemble.scalar import Ensemble
from tests.multigrid.complex_problems import (
    CELLS,
    PROBLEMS,
    SMOOTHERS,
    N,
    columns,
    hermitian,
    laplacian,
    numbers,
    shifted,
)

SLOW = pytest.mark.slow


@pytest.mark.parametrize("problem", list(PROBLEMS))
@pytest.mark.parametrize("smoother", ["Chebyshev", *(pytest.param(s, marks=SLOW) for s in ("Jacobi", "Gauss-Seidel"))])
def test_preconditioned_solves_take_few_iterations(rng, problem, smoother):
    A, b = PROBLEMS[problem](1), numbers(rng, N)
    result = gmres(A, b, M=smoothed_aggregation(A, **SMOOTHERS[smoother]), rtol=1e-8)
    assert result.converged.all() and result.iterations[0] <= 25
    x = scipy.sparse.linalg.spsolve(sp.csc_array(A.to_scipy()), b)
    np.testing.assert_allclose(columns(result.x)[:, 0], x, atol=1e-6 * np.abs(x).max())
    if problem != "schroedinger":
        assert result.iterations[0] * 3 <= gmres(A, b, rtol=1e-8, max_iterations=300).iterations[0]


def test_iterations_do_not_grow_with_the_mesh(rng):
    counts = []
    for cells in (16, 48):
        L = gallery.poisson((cells, cells))
        A = L + Diagonal(np.full(cells * cells, 0.02j))
        result = gmres(A, numbers(rng, cells * cells), M=smoothed_aggregation(A), rtol=1e-8)
        counts.append(int(result.iterations[0]))
    assert counts[1] <= counts[0] + 4


def test_conjugate_gradients_take_the_hierarchy_of_a_hermitian_matrix(rng):
    """The cycle is Hermitian and positive, which a transpose without conjugates would not be."""
    A, b = hermitian(1), numbers(rng, N)
    M = smoothed_aggregation(A)
    V = np.stack([columns(M @ e)[:, 0] for e in np.eye(N)[::23].astype(complex)], 1)[::23]
    np.testing.assert_allclose(V, V.conj().T, atol=1e-12)
    assert np.linalg.eigvalsh(V).min() > 0
    coarse = M.levels[1].A.to_scipy()
    assert abs(coarse - coarse.conj().T).max() < 1e-13 and abs(coarse - coarse.T).max() > 1e-3
    result = cg(A, b, M=M, rtol=1e-8)
    assert result.converged.all() and result.iterations[0] <= gmres(A, b, M=M, rtol=1e-8).iterations[0] + 3


@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_levels_are_what_dense_matrices_give(problem):
    A = PROBLEMS[problem](2)
    M = smoothed_aggregation(A, coarse_size=40)
    fine = A.to_scipy(1)
    scaled = sp.diags_array(1.0 / fine.diagonal()) @ fine
    largest = abs(scipy.sparse.linalg.eigs(scaled, 1, which="LM", v0=np.ones(N, complex), return_eigenvectors=False)[0])
    assert 0.6 * largest <= M.levels[0].lambda_max[1] <= 1.01 * largest
    for s in range(2):
        fine, level = A.to_scipy(s).toarray(), M.levels[0]
        T, P = level.plan.T.to_scipy().toarray(), level.P.to_scipy(s).toarray()
        smoothed = T - (4.0 / 3.0 / level.lambda_max[s]) * (fine @ T) / np.diag(fine)[:, None]
        np.testing.assert_allclose(P, smoothed, atol=1e-13)
        np.testing.assert_allclose(M.levels[1].A.to_scipy(s).toarray(), P.conj().T @ fine @ P, atol=1e-12)
        last = M.levels[-1].A.to_scipy(s).toarray()
        b = np.exp(1j * np.arange(last.shape[0]))[:, None]
        found = M.coarse.apply(np.repeat(b, 2, axis=1), None)[:, s]
        np.testing.assert_allclose(found, np.linalg.solve(last, b[:, 0]), rtol=1e-9)


@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"smoother": GaussSeidel()}, marks=SLOW), pytest.param({"dtype": "float32"}, marks=SLOW)],
    ids=str,
)
def test_each_sample_is_its_scalar_run(rng, options):
    A, b = shifted(3), Ensemble(numbers(rng, N, 3))
    M = smoothed_aggregation(A, **options)
    assert M.dtype == (np.complex64 if "dtype" in options else np.complex128)
    result, y = bicgstab(A, b, M=M), M @ b
    assert result.converged.all() and y.dtype == np.complex128
    for s in range(3):
        alone = smoothed_aggregation(A.sample(s), **options)
        assert np.array_equal(y.samples[:, s], columns(alone @ b.sample(s))[:, 0])
        assert np.array_equal(y.samples[:, s], columns(M.sample(s) @ b.sample(s))[:, 0])
        assert np.array_equal(result.x.samples[:, s], columns(bicgstab(A.sample(s), b.sample(s), M=alone).x)[:, 0])


def test_one_hierarchy_serves_every_sample(rng):
    M, b = smoothed_aggregation(shifted(1)), Ensemble(numbers(rng, N, 3))
    result = gmres(shifted(3), b, M=M)
    assert result.converged.all() and result.iterations.max() <= 40
    one = columns(M @ b.sample(1))[:, 0]
    assert np.array_equal((M @ b).samples[:, 1], one)
    real = np.arange(N) / N
    np.testing.assert_allclose(columns(M @ real), columns(M @ real.astype(complex)), rtol=0)


def test_update_is_a_new_hierarchy(rng):
    A, B, b = shifted(2), shifted(2, -0.02 + 0.2j), numbers(rng, N)
    M = smoothed_aggregation(A)
    assert np.array_equal((M.update(B) @ b).samples, (smoothed_aggregation(B) @ b).samples)


@SLOW
def test_update_takes_real_numbers(rng):
    M, b = smoothed_aggregation(shifted(2)), numbers(rng, N)
    real = M.update(laplacian(2))
    assert real.dtype == np.complex128
    expected = (smoothed_aggregation(laplacian(2), dtype="float64") @ b).samples
    np.testing.assert_allclose((real @ b).samples, expected, rtol=1e-9)


@SLOW
def test_complex_numbers_without_imaginary_parts_give_the_cycle_of_real_ones(rng):
    L, b = laplacian(2), numbers(rng, N)
    made = smoothed_aggregation(L.astype(complex), strength=SymmetricStrength(0.08))
    expected = smoothed_aggregation(L, strength=SymmetricStrength(0.08), dtype="float64")
    np.testing.assert_allclose((made @ b).samples, (expected @ b).samples, rtol=1e-9)


def test_strength_goes_by_magnitudes(rng):
    """Weak couplings across x, of any phase: aggregates follow the strong ones."""
    L = gallery.poisson((CELLS, CELLS))
    rows, to = L.graph.row_of_entry.astype(int), L.graph.indices.astype(int)
    apart = np.abs(rows - to)
    values = np.where(apart == 0, 2.02 + 0j, np.where(apart == 1, -1.0, -0.01j))
    A, b = CrsMatrix(L.graph, values), numbers(rng, N)
    weak = smoothed_aggregation(A, strength=0.25)
    aggregates = weak.levels[0].plan.aggregates
    assert all(np.unique(np.flatnonzero(aggregates == k) // CELLS).size == 1 for k in range(5))
    assert gmres(A, b, M=weak).iterations[0] < gmres(A, b, M=smoothed_aggregation(A)).iterations[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_bad_samples_are_flagged_and_the_others_are_their_own_runs(rng, bad):
    A, b = shifted(3), numbers(rng, N)
    A.values[:, 1] = bad
    with np.errstate(all="ignore"):
        result = gmres(A, b, M=smoothed_aggregation(A))
    assert result.converged.tolist() == [True, False, True]
    for s in (0, 2):
        alone = gmres(A.sample(s), b, M=smoothed_aggregation(A.sample(s)))
        assert np.array_equal(result.x.samples[:, s], columns(alone.x)[:, 0])


@pytest.mark.parametrize("size", [2.0**-300, 2.0**300])
def test_units_far_from_one_change_nothing(rng, size):
    A, b = shifted(2), numbers(rng, N)
    scaled = smoothed_aggregation(CrsMatrix(A.graph, A.values * size)) @ b
    np.testing.assert_allclose(scaled.samples * size, (smoothed_aggregation(A) @ b).samples, rtol=1e-9)


def test_storage_and_order_change_the_numbers_alone(rng):
    A, b = shifted(2), numbers(rng, N)
    expected = (smoothed_aggregation(A) @ b).samples
    assert np.array_equal((smoothed_aggregation(SymmetricCrsMatrix.from_crs(A)) @ b).samples, expected)
    shuffled = smoothed_aggregation(A, reorder=True)
    assert gmres(A, b, M=shuffled).converged.all()
    blocks = BcrsMatrix.from_crs(A, 2)
    nodes = smoothed_aggregation(blocks)
    assert np.array_equal((nodes @ b).samples, (smoothed_aggregation(blocks.to_crs(), block_size=2) @ b).samples)


def test_what_cannot_be_served_is_refused():
    A = shifted(1)
    with pytest.raises(ValueError, match=r"strength must be None, 'auto', a number or a SymmetricStrength"):
        smoothed_aggregation(A, strength=EvolutionStrength())
    with pytest.raises(ValueError, match=r"improve_candidates must be 0 where A is complex; got 2"):
        smoothed_aggregation(A, improve_candidates=2)
    with pytest.raises(TypeError, match=r"A must be real; got dtype complex128"):
        smoothed_aggregation(laplacian(1)).update(A)
