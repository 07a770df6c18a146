"""Complex approximate ideal restriction: a real one turned by phases, dense truths, samples alone."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg

from ensemble import gallery
from ensemble._kernels.multigrid.reduction import relax_rows
from ensemble.krylov import bicgstab, gmres
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import approximate_ideal_restriction, smoothed_aggregation
from ensemble.scalar import Ensemble
from tests.multigrid.complex_problems import N_OF_TRANSPORT, columns, convection, harmonic, numbers

N = N_OF_TRANSPORT


@pytest.mark.parametrize("strength", ["largest", "graph"])
def test_phases_of_rows_turn_the_cycle_and_nothing_else(rng, strength):
    A, r = convection(2), numbers(rng, N, 2)
    phase = np.exp(2j * np.pi * rng.random((N, 2)))
    turned = CrsMatrix(A.graph, A.values * phase[A.graph.row_of_entry])
    M, other = (approximate_ideal_restriction(m, strength=strength, coarse_size=20) for m in (A, turned))
    assert [level.A.shape for level in M.levels] == [level.A.shape for level in other.levels]
    y = (other @ Ensemble(phase * r)).samples
    np.testing.assert_allclose(y, (M @ Ensemble(r)).samples, atol=1e-11 * np.abs(y).max())


def test_oscillating_transport_takes_few_iterations(rng):
    A, b = harmonic(3), Ensemble(numbers(rng, N, 3))
    M = approximate_ideal_restriction(A)
    assert M.dtype == np.complex128
    result = gmres(A, b, M=M, rtol=1e-9)
    plain = gmres(A, b, rtol=1e-9, max_iterations=200)
    assert result.converged.all() and result.iterations.max() <= 10
    assert 3 * result.iterations.max() <= plain.iterations.min()
    for s in range(3):
        x = scipy.sparse.linalg.spsolve(sp.csc_array(A.to_scipy(s)), b.samples[:, s])
        np.testing.assert_allclose(result.x.samples[:, s], x, atol=1e-7 * np.abs(x).max())


def test_coarse_matrices_are_what_dense_ones_give():
    A = harmonic(2)
    M = approximate_ideal_restriction(A, strength="graph", coarse_size=100)
    level = M.levels[0]
    for s in range(2):
        R, P, fine = (m.to_scipy(s).toarray() for m in (level.R, level.P, level.A))
        np.testing.assert_allclose(M.levels[1].A.to_scipy(s).toarray(), R @ fine @ P, atol=1e-11 * np.abs(fine).max())
        marks = level.plan.coarse
        D = np.diag(1.0 / np.diag(fine[~marks][:, ~marks]))
        L = np.eye(D.shape[0]) - D @ fine[~marks][:, ~marks]
        ideal = -fine[marks][:, ~marks] @ (np.eye(D.shape[0]) + L + L @ L) @ D
        np.testing.assert_allclose(R[:, ~marks], ideal, atol=1e-12)


@pytest.mark.parametrize("options", [{}, pytest.param({"dtype": "float32"}, marks=pytest.mark.slow)], ids=str)
def test_each_sample_is_its_scalar_run(rng, options):
    A, b = harmonic(3), Ensemble(numbers(rng, N, 3))
    M = approximate_ideal_restriction(A, strength="graph", **options)
    assert M.dtype == (np.complex64 if options else np.complex128)
    y, result = M @ b, bicgstab(A, b, M=M)
    assert y.dtype == np.complex128 and result.converged.all()
    for s in range(3):
        alone = approximate_ideal_restriction(A.sample(s), strength="graph", **options)
        assert np.array_equal(y.samples[:, s], columns(alone @ b.sample(s))[:, 0])
        assert np.array_equal(y.samples[:, s], columns(M.sample(s) @ b.sample(s))[:, 0])
        assert np.array_equal(result.x.samples[:, s], columns(bicgstab(A.sample(s), b.sample(s), M=alone).x)[:, 0])


def test_update_orders_and_broken_samples(rng):
    A, B, b = harmonic(3), harmonic(3) * 1.5, numbers(rng, N)
    M = approximate_ideal_restriction(A, strength="graph")
    expected = (approximate_ideal_restriction(B, strength="graph") @ b).samples
    assert np.array_equal((M.update(B) @ b).samples, expected)
    order = rng.permutation(N)
    moved = CrsMatrix.from_scipy([sp.csr_array(A.to_scipy(s))[order][:, order] for s in range(3)])
    result = gmres(moved, b[order], M=approximate_ideal_restriction(moved, reorder=True), rtol=1e-8)
    assert result.converged.all() and result.iterations.max() <= 12
    values = A.values.copy()
    values[7, 1] = complex(0.0, np.nan)
    y = (approximate_ideal_restriction(CrsMatrix(A.graph, values)) @ b).samples
    assert np.isnan(y[:, 1]).any() and np.isfinite(y[:, [0, 2]]).all()
    one = approximate_ideal_restriction(A.sample(0), strength="graph") @ np.arange(N)
    assert one.dtype == np.complex128


def test_relaxation_has_the_bits_of_the_reference(rng):
    A, x, b = harmonic(3), numbers(rng, N, 3), numbers(rng, N, 3)
    dinv, marks = 1.0 / A.diagonal().samples, rng.integers(0, 2, N).astype(np.uint8)
    found, expected = np.empty_like(x), np.empty_like(x)
    relax_rows(marks, 0, *A.arrays, dinv, b, x, found)
    relax_rows.reference(marks, 0, *A.arrays, dinv, b, x, expected)
    assert np.array_equal(found, expected) and not np.array_equal(found, x)
    assert np.array_equal(found[marks == 1], x[marks == 1])


@pytest.mark.parametrize("build", [smoothed_aggregation, approximate_ideal_restriction])
@pytest.mark.parametrize("turn", [1j, 0.3], ids=["complex diagonal", "Hermitian"])
def test_a_coarsest_level_of_a_hundred_rows_is_solved_with_its_imaginary_parts(rng, build, turn):
    """Real matrices of 64 rows and more are factorised: of complex ones that took the real parts alone."""
    A = gallery.poisson((10, 10))
    off = np.sign(A.graph.row_of_entry - A.graph.indices)
    turned = A.values.reshape(-1) * (np.exp(1j * turn * off) if turn == 0.3 else 1.0) + turn * (off == 0)
    A, r = CrsMatrix(A.graph, turned[:, None] * np.array([1.0, 3.0])), numbers(rng, 100, 2)
    M = build(A, coarse_size=200, dtype=np.float64)
    assert len(M.levels) == 1
    y = (M @ Ensemble(r)).samples
    for s in range(2):
        np.testing.assert_allclose(y[:, s], np.linalg.solve(A.to_scipy(s).toarray(), r[:, s]), atol=1e-12)
