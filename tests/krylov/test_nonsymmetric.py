"""BiCGSTAB and GMRES: right answers, each sample by itself, and bad samples that harm nobody."""

import array_api_strict as strict
import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble import gallery
from ensemble.krylov import SolveError, Status, bicgstab, cg, gmres
from ensemble.linalg import CrsMatrix, Diagonal
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble
from tests.krylov.test_cg import jacobi, same, true_residuals

SOLVERS = {
    "bicgstab": bicgstab,
    "gmres": gmres,
    "gmres_short": lambda *args, **options: gmres(*args, restart=6, **options),
    "gmres_flexible": lambda *args, **options: gmres(*args, restart=9, flexible=True, **options),
}
COUPLINGS = ["independent", "ensemble"]


@pytest.fixture(params=SOLVERS)
def solve(request):
    return SOLVERS[request.param]


def nonsymmetric(n, n_samples, seed, spread=3.0, density=0.15):
    """Random graphs with values of each sample's own; the diagonal dominates more from sample to sample."""
    rng = np.random.default_rng(seed)
    pattern = sp.random_array((n, n), density=density, rng=rng).tocsr()
    matrices = []
    for s in range(n_samples):
        off = sp.csr_array((rng.uniform(-1.0, 1.0, pattern.nnz), pattern.indices, pattern.indptr), shape=(n, n))
        rows = np.asarray(abs(off).sum(axis=1)).reshape(-1)
        matrices.append(off + sp.diags_array((0.6 + spread * s / n_samples) * rows + 0.1))
    return CrsMatrix.from_scipy(matrices)


def convection(n, peclet, n_samples=1):
    """Central differences of -u'' + c u' on a line; sample s has (s + 1) times the flow."""
    off = [peclet * (s + 1) / 2 for s in range(n_samples)]
    return CrsMatrix.from_scipy(
        [sp.diags_array([-1.0 - c, 2.0, -1.0 + c], offsets=[-1, 0, 1], shape=(n, n)).tocsr() for c in off]
    )


# --- right answers
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
    """GMRES stands still on a cyclic shift until the last step; a shorter cycle never moves, and says so."""
    n = 7
    A = sp.csr_array(np.roll(np.eye(n), 1, axis=0))
    b = np.eye(n)[0]
    whole = gmres(A, b)
    assert whole.iterations[0] == n and whole.converged.all()
    np.testing.assert_allclose(whole.residual_norms[:-1, 0], 1.0, rtol=1e-14)
    np.testing.assert_allclose(A @ whole.x, b, rtol=0, atol=1e-14)
    short = gmres(A, b, restart=n - 1, max_iterations=40)
    assert short.status[0] == Status.max_iterations and short.iterations[0] == 40


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


def test_history_is_the_true_residual(solve, rng):
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
@settings(max_examples=40)
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


def jacobi_of(A):
    diagonal = A.diagonal().samples
    return Diagonal(Ensemble(np.where(np.abs(diagonal) > 1e-3, 1.0 / np.where(diagonal == 0.0, 1.0, diagonal), 1.0)))


def equal(one, other, i, j=0):
    """As `same`, for samples that may hold NaN."""
    n = one.iterations[i] + 1
    x = np.reshape(getattr(other.x, "samples", other.x), (one.x.shape[0], -1))[:, j]
    return (
        np.array_equal(one.x.samples[:, i], x, equal_nan=True)
        and one.iterations[i] == other.iterations[j]
        and one.status[i] == other.status[j]
        and np.array_equal(one.residual_norms[:n, i], other.residual_norms[:n, j], equal_nan=True)
    )


@given(n_samples=st.integers(2, 20), seed=st.integers(0, 2**32 - 1), name=st.sampled_from([*SOLVERS]))
@settings(max_examples=25)
def test_permuting_splitting_and_duplicating_samples(n_samples, seed, name):
    rng = np.random.default_rng(seed)
    A = nonsymmetric(15, n_samples, seed, spread=20.0)
    b = rng.standard_normal((15, n_samples))
    whole = SOLVERS[name](A, Ensemble(b))
    chosen = rng.integers(0, n_samples, rng.integers(1, 2 * n_samples))
    part = SOLVERS[name](A.take_samples(chosen), Ensemble(b[:, chosen]))
    for j, i in enumerate(chosen):
        assert equal(whole, part, i, j)


@pytest.mark.parametrize("n_slow, late", [(1, 3), (4, 5)])
def test_compaction_changes_nothing_and_happens(solve, monkeypatch, n_slow, late):
    """Within a cycle and between cycles, with a second round of it for the slowest."""
    from ensemble.krylov._run import Run

    rng = np.random.default_rng(55021)
    shifts = [0.02] * n_slow + [1.0] * late + [40.0] * (2 * n_slow + 2 * late)
    A = CrsMatrix.from_scipy([convection(60, 0.3).to_scipy() + d * sp.eye_array(60) for d in shifts])
    b = Ensemble(rng.standard_normal((60, len(shifts))))
    widths = []
    original = Run.compact
    monkeypatch.setattr(Run, "compact", lambda self, kept: (widths.append(kept.size), original(self, kept))[1])
    wide = solve(A, b, rtol=1e-10, compact=False)
    assert not widths
    narrow = solve(A, b, rtol=1e-10)
    assert widths and widths[-1] <= n_slow + late
    for attribute in ("iterations", "residual_norms", "status"):
        np.testing.assert_array_equal(getattr(wide, attribute), getattr(narrow, attribute))
    np.testing.assert_array_equal(wide.x.samples, narrow.x.samples)


# --- coupled samples
def test_coupled_iterates_are_those_of_the_block_diagonal_matrix(solve, rng):
    A, b = nonsymmetric(25, 3, seed=20101), rng.standard_normal((25, 3))
    blocks = sp.csr_array(sp.block_diag([A.to_scipy(i) for i in range(3)]))
    for k in range(1, 8):
        coupled = solve(A, Ensemble(b), coupling="ensemble", rtol=0.0, max_iterations=k)
        stacked = solve(blocks, b.T.reshape(-1), rtol=0.0, max_iterations=k)
        np.testing.assert_allclose(coupled.x.samples.T.reshape(-1), stacked.x, rtol=0, atol=1e-10)
        np.testing.assert_allclose(
            np.sqrt(np.sum(coupled.residual_norms**2, axis=1)), stacked.residual_norms[:, 0], rtol=1e-8
        )


def test_coupled_samples_share_one_iteration_count(solve, rng):
    A, b = nonsymmetric(40, 5, seed=90011), Ensemble(rng.standard_normal((40, 5)))
    apart, together = solve(A, b), solve(A, b, coupling="ensemble")
    assert np.unique(together.iterations).size == 1 and together.converged.all()
    np.testing.assert_allclose(together.x.samples, apart.x.samples, rtol=0, atol=1e-6)


# --- bad samples
def bad_samples():
    """Zero rhs, singular, NaN in the matrix, skew-symmetric, tiny rhs, infinity in the rhs, good, good."""
    rng = np.random.default_rng(90127)
    A = nonsymmetric(40, 8, seed=90128, spread=1.0)
    b = rng.standard_normal((40, 8))
    rows, columns = A.graph.row_of_entry, A.graph.indices
    b[:, 0] = 0.0
    A.values[rows == 39, 1] = 0.0  # the last equation says 0 = b
    A.values[3, 2] = np.nan
    position = {(i, j): k for k, (i, j) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True))}
    A.values[:, 3] = [
        (1.0 if i < j else -1.0) * A.values[min(k, position[j, i]), 3] if i != j and (j, i) in position else 0.0
        for (i, j), k in position.items()
    ]
    b[:, 4] *= 1e-12
    b[7, 5] = np.inf
    return A, b


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
    assert result.status[0] == Status.breakdown  # <r, A r> = 0 = <A r, r>: nothing to build on, and it says so
    tilted = bicgstab(A, np.array([1.0, 0.3]), rtol=1e-12)
    assert tilted.converged.all()


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


def test_scaled_right_hand_sides_each_meet_their_own_target(solve, rng):
    """Twelve decades. Coupled, they ask more of one Krylov space than a short cycle gives: only long ones are tried."""
    A = nonsymmetric(50, 7, seed=10007)
    b = rng.standard_normal((50, 7)) * 10.0 ** -np.arange(0, 14, 2)
    for coupling in COUPLINGS if solve in (bicgstab, gmres) else ["independent"]:
        result = solve(A, Ensemble(b), rtol=1e-7, coupling=coupling)
        assert result.converged.all()
        assert np.all(true_residuals(A, result.x.samples, b) <= 1e-7 * np.linalg.norm(b, axis=0) * (1 + 1e-12))


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


# --- options
def test_each_sample_has_a_tolerance_of_its_own(solve, rng):
    A, b = nonsymmetric(30, 3, seed=33013), rng.standard_normal((30, 3))
    rtol = np.array([1e-2, 1e-6, 1e-10])
    result = solve(A, Ensemble(b), rtol=rtol)
    np.testing.assert_array_equal(result.target, rtol * np.linalg.norm(b, axis=0).astype(float))
    for i in range(3):
        assert same(result, solve(A.sample(i), b[:, i], rtol=rtol[i]), i)


def test_starting_guess_counts(solve, rng):
    A, b = nonsymmetric(30, 4, seed=12007), Ensemble(rng.standard_normal((30, 4)))
    first = solve(A, b, rtol=1e-10)
    again = solve(A, b, x0=first.x, rtol=1e-9)
    assert np.all(again.iterations == 0) and np.array_equal(again.x.samples, first.x.samples)


def test_callback_sees_every_iteration(solve, rng):
    A, b = nonsymmetric(30, 3, seed=14009), Ensemble(rng.standard_normal((30, 3)))
    seen = []
    result = solve(A, b, callback=lambda k, norms: seen.append((k, norms.copy())))
    assert [k for k, _ in seen] == list(range(1, len(seen) + 1))
    np.testing.assert_array_equal(seen[-1][1], result.residual_norms[-1])


def test_float32_stays_float32(solve, rng):
    A = nonsymmetric(20, 3, seed=15013)
    A = CrsMatrix(A.graph, A.values.astype(np.float32))
    result = solve(A, Ensemble(rng.standard_normal((20, 3)).astype(np.float32)), rtol=1e-4)
    assert result.x.dtype == np.float32 and result.converged.all()


def test_no_iterations_allowed(solve):
    result = solve(gallery.poisson((4,)), np.ones(4), max_iterations=0)
    assert result.status[0] == Status.max_iterations and not result.x.any()
    with pytest.raises(SolveError, match="1 of 1 samples did not converge in 0 iterations"):
        result.raise_if_failed()


class Dense:
    """A dense matrix a sample, of any array library."""

    def __init__(self, entries):
        self.entries, self.shape, self.n_samples = entries, entries.shape[:2], entries.shape[2]

    def apply(self, x, out):
        out[...] = strict.sum(self.entries * x[None, :, :], axis=1)
        return out

    def take_samples(self, samples):
        return Dense(strict.take(self.entries, strict.asarray(samples), axis=2))


def test_vectors_of_any_library(solve, rng):
    """On the strictest Array API library, compaction included: the answers of NumPy."""
    A = nonsymmetric(20, 6, seed=81017, spread=100.0)
    b = rng.standard_normal((20, 6))
    entries = np.stack([A.to_scipy(i).toarray() for i in range(6)], axis=2)
    result = solve(Dense(strict.asarray(entries)), Ensemble(strict.asarray(b)), rtol=1e-9)
    expected = solve(A, Ensemble(b), rtol=1e-9)
    assert result.converged.all() and np.all(np.abs(result.iterations - expected.iterations) <= 1)
    np.testing.assert_allclose(np.asarray(result.x.samples), expected.x.samples, rtol=0, atol=1e-6)


# --- flexible methods
class InnerSolve:
    """A preconditioner that is itself a few steps of CG: another operator for every vector."""

    def __init__(self, A, steps):
        self.A, self.steps, self.shape, self.n_samples = A, steps, A.shape, A.n_samples

    def apply(self, r, out=None):
        x = cg(self.A, Ensemble(r), rtol=1e-2, max_iterations=self.steps).x.samples
        if out is None:
            return x
        out[...] = x
        return out

    def take_samples(self, samples):
        return InnerSolve(self.A.take_samples(samples), self.steps)


@pytest.mark.parametrize("steps", [2, 5])
def test_flexible_methods_take_a_preconditioner_that_changes(rng, steps):
    A = gallery.anisotropic((12, 12), 5, strength=20.0)
    b = rng.standard_normal((144, 5))
    inner = InnerSolve(A, steps)
    for result in (
        gmres(A, Ensemble(b), M=inner, flexible=True, rtol=1e-10),
        cg(A, Ensemble(b), M=inner, flexible=True, rtol=1e-10),
    ):
        assert result.converged.all()
        assert np.all(true_residuals(A, result.x.samples, b) <= 1e-10 * np.linalg.norm(b, axis=0) * (1 + 1e-12))
        one = A.sample(2)
        method = cg if result.solver == "cg" else gmres
        alone = method(one, b[:, 2], M=InnerSolve(one, steps), flexible=True, rtol=1e-10)
        assert same(result, alone, 2)


class Wavering:
    """A diagonal preconditioner that grows and shrinks from one application to the next."""

    def __init__(self, A):
        n = A.shape[0]
        self.shape, self.turn = A.shape, 0
        self.factors = [10.0 ** np.sin(np.arange(n) * k)[:, None] for k in (1, 2, 3)]

    def apply(self, r, out=None):
        self.turn += 1
        return np.multiply(r, self.factors[self.turn % 3], out=out)


def test_flexible_cg_bears_what_cg_does_not(rng):
    A, b = gallery.poisson((12, 12), 3), Ensemble(rng.standard_normal((144, 3)))
    plain = cg(A, b, M=Wavering(A), max_iterations=400)
    flexible = cg(A, b, M=Wavering(A), flexible=True, max_iterations=400)
    assert flexible.converged.all()
    assert flexible.iterations.sum() < plain.iterations.sum(), (flexible.iterations, plain.iterations)
    assert gmres(A, b, M=Wavering(A), flexible=True, restart=100).converged.all()


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_flexible_cg_is_cg_where_the_preconditioner_stands_still(rng, coupling):
    A, b = gallery.random_spd(40, 6), rng.standard_normal((40, 6))
    plain = cg(A, Ensemble(b), M=jacobi(A), coupling=coupling)
    flexible = cg(A, Ensemble(b), M=jacobi(A), flexible=True, coupling=coupling)
    np.testing.assert_array_equal(plain.iterations, flexible.iterations)
    np.testing.assert_allclose(plain.x.samples, flexible.x.samples, rtol=0, atol=1e-7)


def test_flexible_cg_survives_compaction(rng):
    A = CrsMatrix.from_scipy([gallery.poisson((40,)).to_scipy() + d * np.eye(40) for d in (0, 50, 60, 70, 80, 90)])
    b = Ensemble(rng.standard_normal((40, 6)))
    wide, narrow = (cg(A, b, M=jacobi(A), flexible=True, rtol=1e-10, compact=c) for c in (False, True))
    np.testing.assert_array_equal(wide.x.samples, narrow.x.samples)
    np.testing.assert_array_equal(wide.residual_norms, narrow.residual_norms)


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
    with pytest.raises(ValueError, match=rf"{name}: atol must be zero or above in every sample; got -2.0"):
        solve(A, b, atol=np.array([0.0, -2.0, 1.0]))
    with pytest.raises(ValueError, match=f"{name}: coupling must be one of 'independent', 'ensemble'; got 'loose'"):
        solve(A, b, coupling="loose")
    with pytest.raises(ValueError, match=f"{name}: max_iterations must be an integer of at least 0; got -1"):
        solve(A, b, max_iterations=-1)
    with pytest.raises(TypeError, match=f"{name}: A must be a matrix or a linear operator"):
        solve("A", b)
    with pytest.raises(TypeError, match=f"{name}: A, b and x0 must be real; got complex128"):
        solve(A, b * 1j)
    with pytest.raises(ValueError, match=rf"{name}: M must have shape \(4, 4\)"):
        solve(A, b, M=gallery.poisson((5,)))
    with pytest.raises(ValueError, match="gmres: restart must be an integer of at least 1; got 0"):
        gmres(A, b, restart=0)
