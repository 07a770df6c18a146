"""BiCGSTAB and GMRES where samples are singular, broken or hard: flagged, and harming nobody."""

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble import gallery
from ensemble.krylov import Status, bicgstab, gmres
from ensemble.linalg import CrsMatrix
from ensemble.scalar import Ensemble
from tests.krylov.problems import COUPLINGS, SOLVERS, bad_samples, each_solver, jacobi_of, nonsymmetric, true_residuals

# --- bad samples


@each_solver
@pytest.mark.parametrize("preconditioned", [False, True])
def test_bad_samples_are_flagged_and_the_others_finish(solve, preconditioned):
    A, b = bad_samples()
    result = solve(A, Ensemble(b), M=jacobi_of(A) if preconditioned else None, max_iterations=200)
    assert not result.converged[[1, 3]].any()
    assert result.status[2] == result.status[5] == Status.breakdown
    good = [0, 4, 6, 7]
    assert result.converged[good].all()
    norms = true_residuals(A.take_samples(good), result.x.samples[:, good], b[:, good])
    assert np.all(norms <= 1e-8 * np.linalg.norm(b[:, good], axis=0) * (1 + 1e-12))
    assert np.array_equal(result.x.samples[:, 0], np.zeros(40)) and result.iterations[0] == 0
    apart = solve(
        A.take_samples(np.array(good)),
        Ensemble(b[:, good]),
        M=jacobi_of(A.take_samples(np.array(good))) if preconditioned else None,
        max_iterations=200,
    )
    assert np.array_equal(result.x.samples[:, good], apart.x.samples)
    assert np.array_equal(result.iterations[good], apart.iterations)


@each_solver
def test_a_lost_sample_is_put_out_of_the_coupled_space(solve):
    A, b = bad_samples()
    chosen = np.array([6, 2, 7, 5, 4])
    result = solve(A.take_samples(chosen), Ensemble(b[:, chosen]), coupling="ensemble", max_iterations=300)
    assert [s.value for s in result.status] == ["converged", "breakdown", "converged", "breakdown", "converged"]


def test_skew_symmetric_matrices_are_beyond_bicgstab_and_not_beyond_gmres():
    A = sp.csr_array(np.array([[0.0, 1.0, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 2], [0, 0, -2, 0]]))
    assert bicgstab(A, np.ones(4)).status[0] == Status.breakdown
    assert bicgstab(A, np.ones(4)).iterations[0] == 1
    result = gmres(A, np.ones(4))
    assert result.converged.all() and result.iterations[0] <= 4


def test_a_lost_shadow_is_replaced_by_a_new_one():
    """Permuted blocks make the first shadow orthogonal to what follows; a fresh one solves the system."""
    A = CrsMatrix.from_scipy([sp.csr_array([[0.0, 1.0], [1.0, 0.0]]), sp.csr_array([[2.0, 1.0], [1.0, 3.0]])])
    b = np.array([1.0, 0.0])
    result = bicgstab(A, b, rtol=1e-12, max_iterations=50)
    assert result.converged[1]
    assert result.status[0] == Status.breakdown  # <r, A r> = 0 = <A r, r>: no direction is left
    tilted = bicgstab(A, np.array([1.0, 0.3]), rtol=1e-12)
    assert tilted.converged.all()


@each_solver
def test_consistent_singular_systems(solve, rng):
    """A Neumann problem: the solution is one of many, GMRES and BiCGSTAB find it in the range."""
    A = gallery.poisson((10,)).to_scipy().tolil()
    A[0, 0] = A[9, 9] = 1.0
    A = sp.csr_array(A)
    b = A @ rng.standard_normal(10)
    result = solve(A, b, rtol=1e-10)
    assert result.converged.all()
    np.testing.assert_allclose(A @ result.x, b, rtol=0, atol=1e-8)


def test_an_exhausted_space_without_a_solution_is_a_breakdown():
    A = sp.csr_array(np.diag([1.0, 2.0, 0.0]))
    result = gmres(A, np.ones(3))
    assert result.status[0] == Status.breakdown
    assert result.residual_norms[-1, 0] == pytest.approx(1.0, rel=1e-12)  # the least-squares residual
    np.testing.assert_allclose(result.x[:2], [1.0, 0.5], rtol=1e-12)


@each_solver
def test_scaled_right_hand_sides_each_meet_their_own_target(solve, rng):
    """Twelve decades. Coupled, they ask more of one Krylov space than a short cycle gives: only long ones are tried."""
    A = nonsymmetric(50, 7, seed=10007)
    b = rng.standard_normal((50, 7)) * 10.0 ** -np.arange(0, 14, 2)
    for coupling in COUPLINGS if solve in (bicgstab, gmres) else ["independent"]:
        result = solve(A, Ensemble(b), rtol=1e-7, coupling=coupling)
        assert result.converged.all()
        assert np.all(true_residuals(A, result.x.samples, b) <= 1e-7 * np.linalg.norm(b, axis=0) * (1 + 1e-12))


@each_solver
def test_convergence_is_claimed_from_the_true_residual_only(solve, rng):
    """At the limit of rounding the recursive residual goes on falling while the true one stands still."""
    n = 30
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    A = CrsMatrix.from_scipy([sp.csr_array(left @ np.diag(np.logspace(0, d, n)) @ right) for d in (0.3, 6, 8)])
    b = rng.standard_normal((n, 3))
    result = solve(A, Ensemble(b), rtol=1e-15, max_iterations=150)
    norms = true_residuals(A, result.x.samples, b)
    assert np.all(norms[result.converged] <= result.target[result.converged] * (1 + 1e-6))
    assert not result.converged[2]


# --- errors
@pytest.mark.parametrize("name", ["bicgstab", "gmres"])
def test_bad_input_is_refused(name):
    solve, A, b = SOLVERS[name], gallery.poisson((4,), 3), np.ones(4)
    with pytest.raises(ValueError, match=rf"{name}: A must be square; got shape \(2, 3\)"):
        solve(np.ones((2, 3)), np.ones(3))
    with pytest.raises(ValueError, match=f"{name}: b must be a vector of length 4"):
        solve(A, np.ones(5))
    with pytest.raises(ValueError, match=f"{name}: b must have 3 samples, or 1; got 2"):
        solve(A, Ensemble(np.ones((4, 2))))
    with pytest.raises(ValueError, match=rf"{name}: rtol must be a finite number, zero or above; got -1.0"):
        solve(A, b, rtol=-1)
    with pytest.raises(ValueError, match=rf"{name}: rtol must be a number or 3 of them; got shape \(2,\)"):
        solve(A, b, rtol=np.ones(2))
    with pytest.raises(ValueError, match=rf"{name}: atol must be a finite number, .* in every sample; got -2.0"):
        solve(A, b, atol=np.array([0.0, -2.0, 1.0]))
    with pytest.raises(ValueError, match=rf"{name}: rtol must be a finite number, .* in every sample; got nan"):
        solve(A, b, rtol=[0.0, np.nan, 1.0])
    with pytest.raises(ValueError, match=f"{name}: coupling must be one of 'independent', 'ensemble'; got 'loose'"):
        solve(A, b, coupling="loose")
    with pytest.raises(ValueError, match=f"{name}: max_iterations must be an integer of at least 0; got -1"):
        solve(A, b, max_iterations=-1)
    with pytest.raises(TypeError, match=f"{name}: A must be a matrix or a linear operator"):
        solve("A", b)
    with pytest.raises(ValueError, match=rf"{name}: M must have shape \(4, 4\)"):
        solve(A, b, M=gallery.poisson((5,)))
    with pytest.raises(ValueError, match="gmres: restart must be an integer of at least 1; got 0"):
        gmres(A, b, restart=0)
