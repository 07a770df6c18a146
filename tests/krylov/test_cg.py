"""CG: right answers, each sample by itself, and bad samples that harm nobody."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ensemble import gallery
from ensemble.krylov import SolveError, Status, cg
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble
from tests.krylov.problems import jacobi, same, true_residuals

COUPLINGS = ["independent", "ensemble"]


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("n_samples", [1, 3, 8, 33])
def test_residuals_meet_their_targets(rng, coupling, n_samples):
    A = gallery.random_spd(60, n_samples)
    b = rng.standard_normal((60, n_samples)) * 10.0 ** rng.uniform(-6, 0, n_samples)
    result = cg(A, Ensemble(b), rtol=1e-9, coupling=coupling)
    assert result.converged.all()
    assert np.all(true_residuals(A, result.x.samples, b) <= 1e-9 * np.linalg.norm(b, axis=0) * (1 + 1e-12))


@given(n_samples=st.integers(1, 40), seed=st.integers(0, 2**32 - 1), compact=st.booleans())
def test_each_sample_is_its_scalar_run(n_samples, seed, compact):
    rng = np.random.default_rng(seed)
    A = gallery.anisotropic((5, 4), n_samples, strength=100.0, seed=seed)
    b = Ensemble(rng.standard_normal((20, n_samples)))
    together = cg(A, b, M=jacobi(A), rtol=1e-6, compact=compact)
    for i in rng.integers(0, n_samples, 3):
        alone = cg(A.sample(i), b.sample(i), M=jacobi(A.sample(i)), rtol=1e-6)
        assert same(together, alone, i)


@given(n_samples=st.integers(2, 40), seed=st.integers(0, 2**32 - 1))
def test_permuting_splitting_and_duplicating_samples(n_samples, seed):
    rng = np.random.default_rng(seed)
    A = gallery.random_spd(15, n_samples, density=0.2, seed=seed)
    b = rng.standard_normal((15, n_samples))
    whole = cg(A, Ensemble(b))
    chosen = rng.integers(0, n_samples, rng.integers(1, 2 * n_samples))
    part = cg(A.take_samples(chosen), Ensemble(b[:, chosen]))
    for j, i in enumerate(chosen):
        assert np.array_equal(whole.x.samples[:, i], np.reshape(part.x.samples, (15, -1))[:, j])
        assert whole.iterations[i] == part.iterations[j]


def test_compaction_changes_nothing_and_happens(monkeypatch):
    from ensemble.krylov.cg import CgIteration

    rng = np.random.default_rng(55021)
    A = CrsMatrix.from_scipy([gallery.poisson((40,)).to_scipy() + d * np.eye(40) for d in (0, 50, 60, 70, 80, 90)])
    b = Ensemble(rng.standard_normal((40, 6)))
    calls = []
    original = CgIteration.compact
    monkeypatch.setattr(CgIteration, "compact", lambda self, kept: (calls.append(kept.size), original(self, kept))[1])
    wide = cg(A, b, rtol=1e-10, compact=False)
    assert not calls
    narrow = cg(A, b, rtol=1e-10)
    assert calls
    assert np.array_equal(wide.x.samples, narrow.x.samples)
    assert np.array_equal(wide.iterations, narrow.iterations)
    assert np.array_equal(wide.residual_norms, narrow.residual_norms)


def test_exact_in_as_many_steps_as_there_are_eigenvalues():
    spectra = [1.0, 1, 1, 1], [1.0, 2, 2, 2], [1.0, 2, 3, 3], [1.0, 2, 3, 4]
    A = CrsMatrix.from_scipy([sp.diags_array(eigenvalues) for eigenvalues in spectra])
    result = cg(A, np.ones(4), rtol=1e-12)
    assert result.iterations.tolist() == [1, 2, 3, 4]


def test_one_dimensional_laplacians_with_a_known_solution():
    """-a u'' = b with u = b / (2 a) x (1 - x): the finite difference solution is exact at the nodes."""
    n, samples = 50, np.arange(16)
    a, b = 1 + samples / 16, 1 + 2 * samples / 16
    h = 1.0 / (n + 1)
    A = CrsMatrix.from_scipy([value / h**2 * gallery.poisson((n,)).to_scipy() for value in a])
    rhs = Ensemble(np.broadcast_to(b, (n, 16)).copy())
    x = h * np.arange(1, n + 1)
    exact = b / (2 * a) * (x * (1 - x))[:, None]
    for M in (None, jacobi(A), smoothed_aggregation(A, coarse_size=10)):
        result = cg(A, rhs, M=M, rtol=1e-12).raise_if_failed()
        np.testing.assert_allclose(result.x.samples, exact, rtol=0, atol=1e-9)


def test_shared_matrix_with_many_right_hand_sides(rng):
    A = gallery.poisson((8, 8))
    b = rng.standard_normal((64, 5))
    together = cg(A, Ensemble(b), M=smoothed_aggregation(A, coarse_size=10))
    for i in range(5):
        assert same(together, cg(A, b[:, i], M=smoothed_aggregation(A, coarse_size=10)), i)


def test_plain_arrays_in_plain_arrays_out(rng):
    A, b = gallery.poisson((9,)), rng.standard_normal(9)
    result = cg(A, b)
    assert isinstance(result.x, np.ndarray) and result.x.shape == (9,)
    np.testing.assert_allclose(A.to_scipy() @ result.x, b, rtol=0, atol=1e-7)
    scipy_result = cg(A.to_scipy(), b)
    assert np.array_equal(scipy_result.x, result.x)


def test_starting_guess_counts(rng):
    A = gallery.random_spd(30, 4)
    b = Ensemble(rng.standard_normal((30, 4)))
    first = cg(A, b, rtol=1e-10)
    again = cg(A, b, x0=first.x, rtol=1e-9)
    assert np.all(again.iterations == 0) and np.array_equal(again.x.samples, first.x.samples)


def bad_samples(n_samples=8):
    """In this order: zero rhs, singular, NaN in the matrix, indefinite, tiny rhs, infinity in the rhs, good, good."""
    rng = np.random.default_rng(90127)
    A = gallery.random_spd(40, n_samples, density=0.1)
    b = rng.standard_normal((40, n_samples))
    on_diagonal = A.graph.diagonal_entries
    b[:, 0] = 0.0
    A.values[:, 1] = 0.0
    A.values[on_diagonal[:-1], 1] = 1.0  # the last unknown has no equation
    A.values[3, 2] = np.nan
    A.values[on_diagonal[::2], 3] *= -1.0
    b[:, 4] *= 1e-12
    b[7, 5] = np.inf
    return A, b


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("preconditioned", [False, True])
def test_bad_samples_are_flagged_and_the_others_finish(coupling, preconditioned):
    A, b = bad_samples()
    if coupling == "ensemble":  # a singular sample never converges, and coupled samples wait for each other
        A.values[:, 1] = A.values[:, 7]
    M = smoothed_aggregation(A, coarse_size=10) if preconditioned else None
    result = cg(A, Ensemble(b), M=M, coupling=coupling, max_iterations=200)
    for i in (2, 3, 5):
        assert result.status[i] == Status.breakdown
    assert coupling == "ensemble" or not result.converged[1]
    good = [0, 4, 6, 7]
    assert result.converged[good].all()
    norms = true_residuals(A.take_samples(good), result.x.samples[:, good], b[:, good])
    assert np.all(norms <= 1e-8 * np.linalg.norm(b[:, good], axis=0) * (1 + 1e-12))
    assert np.array_equal(result.x.samples[:, 0], np.zeros(40)) and result.iterations[0] == 0


@pytest.mark.parametrize("preconditioned", [False, True])
def test_good_samples_have_the_bits_of_a_run_without_the_bad_ones(preconditioned):
    A, b = bad_samples()
    good = np.array([0, 4, 6, 7])

    def solve(A, b):
        M = smoothed_aggregation(A, coarse_size=10) if preconditioned else None
        return cg(A, Ensemble(b), M=M, max_iterations=200)

    together, apart = solve(A, b), solve(A.take_samples(good), b[:, good])
    assert np.array_equal(together.x.samples[:, good], apart.x.samples)
    assert np.array_equal(together.iterations[good], apart.iterations)


def test_scaled_right_hand_sides_each_meet_their_own_target(rng):
    """Right-hand sides over twelve decades: a coupled norm would stop with the small ones unsolved."""
    A = gallery.random_spd(50, 7)
    b = rng.standard_normal((50, 7)) * 10.0 ** -np.arange(0, 14, 2)
    for coupling in COUPLINGS:
        result = cg(A, Ensemble(b), rtol=1e-7, coupling=coupling)
        assert result.converged.all()
        assert np.all(true_residuals(A, result.x.samples, b) <= 1e-7 * np.linalg.norm(b, axis=0) * (1 + 1e-12))


def test_coupled_samples_share_one_iteration_count(rng):
    A = gallery.anisotropic((6, 6), 5, strength=50.0)
    b = Ensemble(rng.standard_normal((36, 5)))
    apart, together = cg(A, b), cg(A, b, coupling="ensemble")
    assert np.unique(together.iterations).size == 1
    assert together.iterations[0] >= apart.iterations.max()
    np.testing.assert_allclose(together.x.samples, apart.x.samples, rtol=0, atol=1e-6)


def test_coupled_energy_error_falls_monotonically(rng):
    """Coupled CG is CG on the block-diagonal matrix: its energy error, summed over samples, falls each step."""
    A = gallery.random_spd(20, 3, density=0.3)
    b = rng.standard_normal((20, 3))
    exact = np.stack([np.linalg.solve(A.to_scipy(i).toarray(), b[:, i]) for i in range(3)], axis=1)
    energies = []
    for k in range(12):
        x = cg(A, Ensemble(b), coupling="ensemble", rtol=0.0, max_iterations=k).x.samples
        error = x - exact
        energies.append(np.sum(error * (A @ Ensemble(error)).samples))
    assert np.all(np.diff(energies) < 0)


def test_coupled_iterates_are_those_of_the_block_diagonal_matrix(rng, last_iterates):
    """Eq. 4: one inner product for all samples is plain CG on diag(A_0, A_1, A_2)."""
    A = gallery.anisotropic((5, 5), 3, strength=30.0)
    b = rng.standard_normal((25, 3))
    blocks = sp.csr_array(sp.block_diag([A.to_scipy(i) for i in range(3)]))
    for k in range(1, 8):
        coupled = cg(A, Ensemble(b), coupling="ensemble", rtol=0.0, max_iterations=k).x.samples
        stacked = cg(blocks, b.T.reshape(-1), rtol=0.0, max_iterations=k).x
        np.testing.assert_allclose(coupled.T.reshape(-1), stacked, rtol=0, atol=1e-11)


def test_convergence_is_claimed_from_the_true_residual_only(rng):
    """At the limit of rounding the recursive residual goes on falling while the true one stands still."""
    n = 40
    rotation = np.linalg.qr(rng.standard_normal((n, n)))[0]
    matrices = [sp.csr_array(rotation @ np.diag(np.logspace(0, decades, n)) @ rotation.T) for decades in (1, 6, 7)]
    A = CrsMatrix.from_scipy([(m + m.T) / 2 for m in matrices])
    b = rng.standard_normal((n, 3))
    result = cg(A, Ensemble(b), rtol=1e-15, max_iterations=400)
    norms = true_residuals(A, result.x.samples, b)
    assert not result.converged[1:].any()
    assert np.all(norms[result.converged] <= result.target[result.converged] * (1 + 1e-6))


def test_zero_tolerance_runs_to_the_limit_and_says_so(rng):
    A = gallery.poisson((30,), 2)
    result = cg(A, Ensemble(rng.standard_normal((30, 2))), rtol=0.0, max_iterations=5)
    assert result.iterations.tolist() == [5, 5]
    assert (result.status == Status.max_iterations).all()
    with pytest.raises(SolveError, match=r"2 of 2 samples .* in 5 iterations \(samples 0, 1; 2 max_iterations; worst"):
        result.raise_if_failed()


def test_history_is_the_true_residual(rng):
    A = gallery.random_spd(30, 3)
    b = rng.standard_normal((30, 3))
    seen = []
    result = cg(A, Ensemble(b), callback=lambda k, norms: seen.append((k, norms.copy())))
    assert [k for k, _ in seen] == list(range(1, len(result.residual_norms)))
    np.testing.assert_array_equal(seen[-1][1], result.residual_norms[-1])
    np.testing.assert_allclose(result.residual_norms[-1], true_residuals(A, result.x.samples, b), rtol=1e-6)


def test_float32_stays_float32(rng):
    A = gallery.poisson((10,), 3)
    A = CrsMatrix(A.graph, A.values.astype(np.float32))
    result = cg(A, Ensemble(rng.standard_normal((10, 3)).astype(np.float32)), rtol=1e-4)
    assert result.x.dtype == np.float32 and result.converged.all()


def test_bad_input_is_refused(rng):
    A = gallery.poisson((4,), 3)
    b = np.ones(4)
    with pytest.raises(ValueError, match=r"cg: A must be square; got shape \(2, 3\)"):
        cg(np.ones((2, 3)), np.ones(3))
    with pytest.raises(ValueError, match="cg: b must be a vector of length 4"):
        cg(A, np.ones(5))
    with pytest.raises(ValueError, match="cg: b must have 3 samples, or 1; got 2"):
        cg(A, Ensemble(np.ones((4, 2))))
    with pytest.raises(ValueError, match=r"cg: rtol must be a finite number, zero or above; got -1.0"):
        cg(A, b, rtol=-1)
    with pytest.raises(ValueError, match="cg: coupling must be one of 'independent', 'ensemble'; got 'loose'"):
        cg(A, b, coupling="loose")
    with pytest.raises(TypeError, match="cg: A must be a matrix or a linear operator"):
        cg("A", b)
    with pytest.raises(ValueError, match=r"cg: M must have shape \(4, 4\)"):
        cg(A, b, M=gallery.poisson((5,)))
