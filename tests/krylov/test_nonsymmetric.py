"""BiCGSTAB and GMRES: right answers, each sample by itself."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble import gallery
from ensemble.krylov import Status, bicgstab, gmres
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble
from tests.conftest import examples
from tests.krylov.problems import (
    COUPLINGS,
    SOLVERS,
    convection,
    each_solver,
    equal,
    jacobi,
    jacobi_of,
    nonsymmetric,
    same,
    true_residuals,
)


# --- right answers
@each_solver
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("n_samples", [1, 3, 33])
def test_residuals_meet_their_targets(solve, rng, coupling, n_samples):
    A = nonsymmetric(60, n_samples, seed=61027)
    b = rng.standard_normal((60, n_samples)) * 10.0 ** rng.uniform(-6, 0, n_samples)
    result = solve(A, Ensemble(b), rtol=1e-9, coupling=coupling)
    assert result.converged.all()
    assert np.all(true_residuals(A, result.x.samples, b) <= 1e-9 * np.linalg.norm(b, axis=0) * (1 + 1e-12))
    exact = np.stack([np.linalg.solve(A.to_scipy(i).toarray(), b[:, i]) for i in range(n_samples)], axis=1)
    error = np.linalg.norm(result.x.samples - exact, axis=0) / np.linalg.norm(exact, axis=0)
    assert np.all(error <= 1e-6)


@pytest.mark.parametrize("name", ["bicgstab", "gmres"])
def test_iterations_are_those_of_scipy(rng, name):
    """Same method, same count: SciPy's, on the same preconditioned problem, may differ by one at the threshold."""
    A, b = nonsymmetric(80, 1, seed=31181), rng.standard_normal(80)
    matrix, seen = A.to_scipy(0), []
    diagonal = sp.diags_array(1.0 / matrix.diagonal())
    options = {"restart": 80, "callback_type": "pr_norm"} if name == "gmres" else {}
    right = matrix @ diagonal  # preconditioned from the right: the residuals are those of A
    getattr(scipy.sparse.linalg, name)(right, b, rtol=1e-8, callback=seen.append, **options)
    result = (gmres if options else bicgstab)(A, b, M=jacobi(A), rtol=1e-8, **({"restart": 80} if options else {}))
    assert abs(result.iterations[0] - len(seen)) <= 1


def test_gmres_residuals_are_the_smallest_there_are(rng):
    """After k steps from zero: the least-squares minimum over the Krylov space, by a dense basis."""
    A, b = nonsymmetric(12, 1, seed=71023), rng.standard_normal(12)
    dense = A.to_scipy(0).toarray()
    for k in range(1, 7):
        space = np.linalg.qr(np.stack([np.linalg.matrix_power(dense, i) @ b for i in range(k)], axis=1))[0]
        y = np.linalg.lstsq(dense @ space, b, rcond=None)[0]
        result = gmres(A, b, rtol=0.0, max_iterations=k)
        np.testing.assert_allclose(result.x, space @ y, rtol=0, atol=1e-9)
        assert result.residual_norms[-1, 0] == pytest.approx(np.linalg.norm(b - dense @ space @ y), rel=1e-9)


@pytest.mark.parametrize("n_distinct", [1, 2, 3, 4])
def test_gmres_is_exact_in_as_many_steps_as_there_are_eigenvalues(n_distinct):
    """Lucky breakdown, at another step in each of four samples that run together."""
    spectra = [1.0, 1, 1, 1], [1.0, -2, -2, -2], [1.0, 2, 3, 3], [1.0, 2, 3, 4]
    A = CrsMatrix.from_scipy([sp.diags_array(eigenvalues).tocsr() for eigenvalues in spectra])
    result = gmres(A, np.ones(4), rtol=1e-13)
    assert result.iterations.tolist() == [1, 2, 3, 4] and result.converged.all()
    alone = gmres(A.sample(n_distinct - 1), np.ones(4), rtol=1e-13)
    assert same(result, alone, n_distinct - 1)


def test_a_rotation_needs_all_its_dimensions():
    """GMRES stands still on a cyclic shift until the last step; a shorter cycle never moves: it has stagnated."""
    n = 7
    A = sp.csr_array(np.roll(np.eye(n), 1, axis=0))
    b = np.eye(n)[0]
    whole = gmres(A, b)
    assert whole.iterations[0] == n and whole.converged.all()
    np.testing.assert_allclose(whole.residual_norms[:-1, 0], 1.0, rtol=1e-14)
    np.testing.assert_allclose(A @ whole.x, b, rtol=0, atol=1e-14)
    short = gmres(A, b, restart=n - 1, max_iterations=40)
    assert short.status[0] == Status.max_iterations and short.iterations[0] == 40


@each_solver
@pytest.mark.parametrize("n", range(3, 10))
def test_tiny_tridiagonal_systems_by_the_thousand(solve, n):
    """1024 systems (-1, 2 + d, -1): the squared residual falls to 1e3 units of roundoff."""
    rng = np.random.default_rng(41011)
    stencil = gallery.poisson((n,)).to_scipy()
    shift = np.concatenate([[0.0], rng.uniform(0.0, 1.0, 1023)])
    A = CrsMatrix.from_scipy(stencil)
    A = CrsMatrix(A.graph, A.values + np.where(A.graph.row_of_entry == A.graph.indices, 1.0, 0.0)[:, None] * shift)
    b = rng.standard_normal((n, 1024))
    result = solve(A, Ensemble(b), rtol=np.sqrt(1e3 * np.finfo(float).eps))
    assert result.converged.all()
    assert np.all(true_residuals(A, result.x.samples, b) ** 2 <= 1e3 * 2.3e-16 * np.sum(b**2, axis=0))


@each_solver
def test_three_point_stencil_stops_after_five_when_told_to(solve):
    A = gallery.poisson((33,), 3)
    b = Ensemble(np.random.default_rng(51001).standard_normal((33, 3)))
    result = solve(A, b, rtol=0.0, max_iterations=5)
    assert result.iterations.tolist() == [5, 5, 5] and (result.status == Status.max_iterations).all()
    finished = solve(A, b, rtol=1e-5)
    assert finished.converged.all()
    np.testing.assert_allclose(finished.residual_norms[-1], true_residuals(A, finished.x.samples, b.samples), rtol=1e-6)


@pytest.mark.parametrize("n, n_samples", [(33, 257), (12, 1025)])
def test_many_random_positive_definite_systems(n, n_samples):
    A = gallery.random_spd(n, n_samples, density=0.2)
    exact = np.random.default_rng(70009).standard_normal((n, n_samples))
    b = (A @ Ensemble(exact)).samples
    for method in (bicgstab, gmres):
        result = method(A, Ensemble(b), rtol=1e-8)
        assert result.converged.all()
        assert np.all(true_residuals(A, result.x.samples, b) <= 1e-7 * np.linalg.norm(b, axis=0))
        error = np.linalg.norm(result.x.samples - exact, axis=0)
        assert np.all(error <= 5e-7 * np.linalg.norm(exact, axis=0))


@each_solver
def test_one_dimensional_laplacians_with_a_known_solution(solve):
    """-a u'' = b with u = b / (2 a) x (1 - x): the finite difference solution is exact at the nodes."""
    n, samples = 50, np.arange(16)
    a, b = 1 + samples / 16, -1 + samples / 16
    h = 1.0 / (n + 1)
    A = CrsMatrix.from_scipy([value / h**2 * gallery.poisson((n,)).to_scipy() for value in a])
    rhs = Ensemble(np.broadcast_to(b, (n, 16)).copy())
    x = h * np.arange(1, n + 1)
    exact = b / (2 * a) * (x * (1 - x))[:, None]
    result = solve(A, rhs, M=smoothed_aggregation(A, coarse_size=10), rtol=1e-12).raise_if_failed()
    np.testing.assert_allclose(result.x.samples, exact, rtol=0, atol=1e-9)


@each_solver
def test_history_is_the_true_residual(solve, rng, last_iterates):
    A, b = nonsymmetric(40, 3, seed=50087), rng.standard_normal((40, 3))
    result = solve(A, Ensemble(b), M=jacobi(A))
    assert result.iterations.min() >= 5
    for k in (1, 3, 5):
        x = solve(A, Ensemble(b), M=jacobi(A), rtol=0.0, max_iterations=k).x.samples
        np.testing.assert_allclose(result.residual_norms[k], true_residuals(A, x, b), rtol=1e-6)
    np.testing.assert_allclose(result.residual_norms[-1], true_residuals(A, result.x.samples, b), rtol=1e-6)


def test_gmres_residuals_never_grow(rng):
    A, b = convection(60, 0.4, 5), rng.standard_normal((60, 5))
    norms = gmres(A, Ensemble(b), restart=8, max_iterations=100).residual_norms
    assert np.all(np.diff(norms, axis=0) <= 1e-10 * norms[0])


# --- each sample by itself
@given(
    n_samples=st.integers(1, 24),
    seed=st.integers(0, 2**32 - 1),
    compact=st.booleans(),
    name=st.sampled_from([*SOLVERS]),
)
@settings(max_examples=examples(40))
def test_each_sample_is_its_scalar_run(n_samples, seed, compact, name):
    rng = np.random.default_rng(seed)
    A = nonsymmetric(20, n_samples, seed, spread=rng.choice([0.5, 30.0]))
    b = rng.standard_normal((20, n_samples)) * 10.0 ** rng.uniform(-9, 9, n_samples)
    kind = rng.integers(0, 5, n_samples)
    b[:, kind == 1] = 0.0
    A.values[:, kind == 2] *= rng.integers(0, 2, (A.nnz, 1))  # entries and maybe whole rows gone
    A.values[A.graph.diagonal_entries[3], kind == 3] = np.nan
    x0 = Ensemble(rng.standard_normal((20, n_samples))) if seed % 2 else None
    solve = SOLVERS[name]
    together = solve(A, Ensemble(b), M=jacobi_of(A), x0=x0, rtol=1e-6, compact=compact, max_iterations=60)
    for i in rng.integers(0, n_samples, 3):
        start = None if x0 is None else x0.sample(i)
        one = A.sample(i)
        alone = solve(one, b[:, i], M=jacobi_of(one), x0=start, rtol=1e-6, max_iterations=60)
        assert equal(together, alone, i)


@given(n_samples=st.integers(2, 20), seed=st.integers(0, 2**32 - 1), name=st.sampled_from([*SOLVERS]))
@settings(max_examples=examples(25))
def test_permuting_splitting_and_duplicating_samples(n_samples, seed, name):
    rng = np.random.default_rng(seed)
    A = nonsymmetric(15, n_samples, seed, spread=20.0)
    b = rng.standard_normal((15, n_samples))
    whole = SOLVERS[name](A, Ensemble(b))
    chosen = rng.integers(0, n_samples, rng.integers(1, 2 * n_samples))
    part = SOLVERS[name](A.take_samples(chosen), Ensemble(b[:, chosen]))
    for j, i in enumerate(chosen):
        assert equal(whole, part, i, j)


@each_solver
@pytest.mark.parametrize("n_slow, late", [(1, 3), (4, 5)])
def test_compaction_changes_nothing_and_happens(solve, monkeypatch, n_slow, late):
    """Within a cycle and between cycles, with a second round of it for the slowest."""
    from ensemble.krylov._iteration import KrylovIteration

    rng = np.random.default_rng(55021)
    shifts = [0.02] * n_slow + [1.0] * late + [40.0] * (2 * n_slow + 2 * late)
    A = CrsMatrix.from_scipy([convection(60, 0.3).to_scipy() + d * sp.eye_array(60) for d in shifts])
    b = Ensemble(rng.standard_normal((60, len(shifts))))
    widths = []
    original = KrylovIteration.compact
    monkeypatch.setattr(
        KrylovIteration, "compact", lambda self, kept: (widths.append(kept.size), original(self, kept))[1]
    )
    wide = solve(A, b, rtol=1e-10, compact=False)
    assert not widths
    narrow = solve(A, b, rtol=1e-10)
    assert widths and widths[-1] <= n_slow + late
    for attribute in ("iterations", "residual_norms", "status"):
        np.testing.assert_array_equal(getattr(wide, attribute), getattr(narrow, attribute))
    np.testing.assert_array_equal(wide.x.samples, narrow.x.samples)


# --- coupled samples
@each_solver
def test_coupled_iterates_are_those_of_the_block_diagonal_matrix(solve, rng, last_iterates):
    A, b = nonsymmetric(25, 3, seed=20101), rng.standard_normal((25, 3))
    blocks = sp.csr_array(sp.block_diag([A.to_scipy(i) for i in range(3)]))
    for k in range(1, 8):
        coupled = solve(A, Ensemble(b), coupling="ensemble", rtol=0.0, max_iterations=k)
        stacked = solve(blocks, b.T.reshape(-1), rtol=0.0, max_iterations=k)
        np.testing.assert_allclose(coupled.x.samples.T.reshape(-1), stacked.x, rtol=0, atol=1e-10)
        np.testing.assert_allclose(
            np.sqrt(np.sum(coupled.residual_norms**2, axis=1)), stacked.residual_norms[:, 0], rtol=1e-8
        )


@each_solver
def test_coupled_samples_share_one_iteration_count(solve, rng):
    A, b = nonsymmetric(40, 5, seed=90011), Ensemble(rng.standard_normal((40, 5)))
    apart, together = solve(A, b), solve(A, b, coupling="ensemble")
    assert np.unique(together.iterations).size == 1 and together.converged.all()
    np.testing.assert_allclose(together.x.samples, apart.x.samples, rtol=0, atol=1e-6)
