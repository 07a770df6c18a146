"""Residuals at the limit of rounding: restarts, the status stagnated, and the best iterate."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg

from ensemble import gallery
from ensemble.krylov import SolveError, Status, bicgstab, cg, gmres
from ensemble.linalg import CrsMatrix, Diagonal
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble
from tests.krylov.problems import EVERY_METHOD, equal, jacobi_of, true_residuals

pyamg = pytest.importorskip("pyamg")

every_method = pytest.mark.parametrize("name", EVERY_METHOD)


def solve(name, A, b, **options):
    method, own = EVERY_METHOD[name]
    return method(A, b, **own, **options)


def attainable(matrix, b, x=None):
    """eps (|A| |x| + |b|), with |A| bounded by its row and column sums and x from a direct solve."""
    x = scipy.sparse.linalg.splu(sp.csc_array(matrix)).solve(b) if x is None else x
    size = np.sqrt(abs(matrix).sum(axis=0).max() * abs(matrix).sum(axis=1).max())
    return np.finfo(float).eps * (size * np.linalg.norm(x) + np.linalg.norm(b))


def exact_residual(matrix, b, x):
    """The 2-norm of b - A x, every product and sum in extended precision."""
    entries = sp.coo_array(matrix)
    residual = b.astype(np.longdouble)
    products = entries.data.astype(np.longdouble) * x[entries.coords[1]]
    np.subtract.at(residual, entries.coords[0], products)
    return float(np.sqrt(np.sum(residual**2)))


# --- a disproved claim
@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("coupling", ["independent", "ensemble"])
def test_cg_does_not_diverge_below_the_attainable_accuracy(flexible, coupling):
    A, b = gallery.poisson((60, 60)), np.ones(3600)
    M = smoothed_aggregation(A)
    result = cg(A, b, M=M, rtol=1e-15, flexible=flexible, coupling=coupling)
    assert result.status[0] == Status.stagnated and result.iterations[0] < 60
    assert exact_residual(A.to_scipy(), b, result.x) <= 10 * attainable(A.to_scipy(), b)


@pytest.mark.slow
def test_cg_on_a_fine_grid_reaches_its_tolerance_or_says_that_it_cannot():
    """The relative residual of 300 x 300 unknowns cannot fall much below 1e-12."""
    A, b = gallery.poisson((300, 300)), np.ones(90000)
    M = smoothed_aggregation(A)
    for rtol in (1e-12, 1e-13):
        result = cg(A, b, M=M, rtol=rtol)
        assert result.status[0] in (Status.converged, Status.stagnated) and result.iterations[0] <= 40
        assert exact_residual(A.to_scipy(), b, result.x) <= 2e-12 * np.linalg.norm(b)


# --- the status
@every_method
@pytest.mark.parametrize("rtol", [1e-17, 0.0])
def test_a_tolerance_beyond_rounding_ends_as_stagnated(name, rtol):
    A, rng = gallery.poisson((12, 12), n_samples=3), np.random.default_rng(30757)
    b = rng.standard_normal((144, 3)) * [1.0, 1e-6, 1e6]
    result = solve(name, A, Ensemble(b), M=smoothed_aggregation(A, coarse_size=20), rtol=rtol)
    assert (result.status == Status.stagnated).all() and result.iterations.max() < 80
    for i in range(3):
        matrix = A.to_scipy(i)
        assert exact_residual(matrix, b[:, i], result.x.samples[:, i]) <= 10 * attainable(matrix, b[:, i])
    np.testing.assert_allclose(
        result.true_residual_norms, true_residuals(A, result.x.samples, b), rtol=0, atol=1e-14 * np.abs(b).max()
    )
    with pytest.raises(SolveError, match=r"3 stagnated; worst residual .*ask for no smaller rtol or atol"):
        result.raise_if_failed()
    assert "stagnated: samples 0, 1, 2" in repr(result)


@every_method
def test_exactly_solvable_systems_converge_at_a_tolerance_of_zero(name):
    A = CrsMatrix.from_scipy(2.0 * sp.eye_array(7).tocsr())
    result = solve(name, A, np.arange(7.0), rtol=0.0)
    assert result.converged.all() and result.true_residual_norms[0] == 0.0


@every_method
def test_samples_that_stagnate_are_their_scalar_runs(name):
    """Tolerances that are met, beyond rounding and zero, with the finished samples taken out or not."""
    rng, n = np.random.default_rng(41203), 18
    bases = [np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(6)]
    A = CrsMatrix.from_scipy([sp.csr_array(q @ np.diag(np.logspace(0, d, n)) @ q.T) for d, q in enumerate(bases)])
    b = rng.standard_normal((n, 6))
    rtol = np.array([1e-15, 1e-6, 0.0, 1e-14, 1e-13, 1e-12])
    options = {"max_iterations": 150}
    together = solve(name, A, Ensemble(b), rtol=rtol, **options)
    apart = solve(name, A, Ensemble(b), rtol=rtol, compact=False, **options)
    assert (together.status == Status.stagnated).any() or name.startswith("gmres")
    assert not together.converged.all()
    for i in range(6):
        alone = solve(name, A.sample(i), Ensemble(b[:, i : i + 1]), rtol=rtol[i], **options)
        assert equal(together, alone, i) and equal(together, apart, i, i)
        assert together.true_residual_norms[i] == alone.true_residual_norms[0] == apart.true_residual_norms[i]


@pytest.mark.parametrize("name", ["cg", "cg_flexible", "bicgstab", "gmres"])
def test_slow_convergence_is_not_stagnation(name):
    """1-D Laplacian scaled by D A D: the residual stays on a plateau for hundreds of iterations."""
    n, rng = 120, np.random.default_rng(90911)
    scale = sp.diags_array(10.0 ** rng.uniform(-1.5, 1.5, n))
    laplacian = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    A, b = sp.csr_array(scale @ laplacian @ scale), rng.standard_normal(n)
    result = solve(name, A, b, max_iterations=1500)
    assert result.status[0] in (Status.converged, Status.max_iterations) and result.iterations[0] >= 1000


def test_a_plateau_before_convergence_is_not_stagnation():
    """Jumps of 1e6 in the coefficient: CG needs many times as many iterations as there are unknowns."""
    rng, n = np.random.default_rng(51439), 150
    k = np.where(rng.uniform(size=n + 1) < 0.5, 1.0, 1e6)
    A = sp.csr_array(sp.diags_array([-k[1:-1], k[1:] + k[:-1], -k[1:-1]], offsets=[-1, 0, 1]))
    b = rng.standard_normal(n)
    result = cg(A, b, max_iterations=20000, rtol=1e-5)
    assert result.converged.all() and result.iterations[0] > 4 * n


# --- the best iterate
@every_method
def test_the_best_iterate_is_returned(name):
    """Indefinite samples and a limit of iterations: the residual of what is returned is near the least of the solve."""
    rng = np.random.default_rng(20771)
    A, b = gallery.random_spd(40, 8), rng.standard_normal((40, 8))
    diagonal = A.graph.row_of_entry == A.graph.indices
    values = A.values * np.where(np.arange(8) % 2, 1.0, 1e3 ** (np.arange(40) / 40)[A.graph.row_of_entry][:, None])
    values[np.flatnonzero(diagonal)[:3], 4] *= -1.0
    A = CrsMatrix(A.graph, (values + values) / 2)
    for limit in (3, 6, 12):
        result = solve(name, A, Ensemble(b), rtol=1e-14, max_iterations=limit)
        norms = true_residuals(A, result.x.samples, b)
        np.testing.assert_allclose(result.true_residual_norms, norms, rtol=1e-7)
        assert not result.converged.all()
        least = np.nanmin(result.residual_norms, axis=0)
        if name == "bicgstab":  # of which the iterates 0, 1, 2, 4, 8 and the last are compared
            history = result.residual_norms[[k for k in (0, 1, 2, 4, 8, -1) if k < len(result.residual_norms)]]
            least = np.nanmin(history, axis=0)
        assert np.all(norms <= 4.0 * least * (1 + 1e-7))


# --- float32
@every_method
def test_float32_meets_its_default_tolerance(name):
    A = gallery.poisson((24, 24), n_samples=2)
    A = CrsMatrix(A.graph, A.values.astype(np.float32))
    b = np.random.default_rng(77023).standard_normal((576, 2)).astype(np.float32)
    M = smoothed_aggregation(A, coarse_size=50)
    result = solve(name, A, Ensemble(b), M=M)
    np.testing.assert_allclose(result.target, 1e-5 * np.linalg.norm(b, axis=0), rtol=1e-5)
    assert result.converged.all()
    beyond = solve(name, A, Ensemble(b), M=M, rtol=1e-8)
    assert (beyond.status == Status.stagnated).all() and beyond.iterations.max() < 40


# --- one broken sample beside another
def test_gmres_leaves_a_zero_diagonal_finite_with_and_without_compaction():
    """Its preconditioner is infinite: what it found, nothing, is not multiplied by that."""
    A = gallery.poisson((24,), n_samples=2)
    values = A.values.copy()
    values[A.graph.row_of_entry == A.graph.indices, 1] = 0.0
    A = CrsMatrix(A.graph, values)
    with np.errstate(all="ignore"):
        M = Diagonal(1.0 / A.diagonal())
    b = np.random.default_rng(60631).standard_normal((24, 2))
    results = [gmres(A, Ensemble(b), M=M, rtol=1e-10, compact=compact) for compact in (True, False)]
    for result in results:
        assert [s.value for s in result.status] == ["converged", "breakdown"]
        assert equal(result, results[0], 0) and equal(result, results[0], 1, 1)
        assert not result.x.samples[:, 1].any()


# --- what a caller may do
@every_method
def test_a_callback_stops_the_solve(name):
    A, b = gallery.random_spd(40, 3), np.random.default_rng(66301).standard_normal((40, 3))
    calls = []

    def stops(iteration, norms):
        calls.append(iteration)
        return iteration == 4

    result = solve(name, A, Ensemble(b), rtol=1e-14, callback=stops)
    assert calls == [1, 2, 3, 4] and (result.status == Status.stopped).all()
    assert np.all(result.iterations == 4) and "stopped: samples 0, 1, 2" in repr(result)
    least = result.residual_norms.min(axis=0)
    assert np.all(true_residuals(A, result.x.samples, b) <= 4.0 * least * (1 + 1e-10))
    for answer in (None, 1, "yes", False):
        assert solve(name, A, Ensemble(b), rtol=1e-6, callback=lambda k, norms, a=answer: a).converged.all()


@every_method
def test_a_column_is_a_vector_as_for_scipy(name):
    A, b = gallery.poisson((9,)), np.arange(1.0, 10.0)
    result = solve(name, A, b[:, None], x0=np.ones((9, 1)))
    assert result.x.shape == (9,)
    np.testing.assert_array_equal(result.x, solve(name, A, b, x0=np.ones(9)).x)
    assert solve(name, gallery.poisson((9,), n_samples=2), b[:, None]).x.samples.shape == (9, 2)


# --- every problem, every tolerance
def pyamg_problems():
    for name in ("airfoil", "bar", "knot", "unit_cube", "unit_square", "recirc_flow", "local_disc_galerkin_diffusion"):
        yield name, sp.csr_array(pyamg.gallery.load_example(name)["A"])
    for epsilon in (1.0, 1e-3):
        stencil = pyamg.gallery.diffusion_stencil_2d(epsilon=epsilon, theta=0.5, type="FE")
        yield f"anisotropy {epsilon}", sp.csr_array(pyamg.gallery.stencil_grid(stencil, (30, 30)))
    yield "elasticity", sp.csr_array(pyamg.gallery.linear_elasticity((12, 12))[0])


def library_problems():
    yield "poisson", gallery.poisson((30, 30)).to_scipy()
    yield "poisson in space", gallery.poisson((8, 8, 8)).to_scipy()
    yield "anisotropic", gallery.anisotropic((20, 20), 1, strength=100.0).to_scipy(0)
    yield "random", gallery.random_spd(60, 1).to_scipy(0)


def assert_attains(name, matrix, rtol):
    """Converged, or stagnated within ten times the attainable accuracy."""
    symmetric = abs(matrix - matrix.T).max() <= 1e-12 * abs(matrix).max()
    x = np.random.default_rng(33703).standard_normal(matrix.shape[0])
    b = matrix @ x  # of a singular matrix's range, too
    A = CrsMatrix.from_scipy(matrix)
    M, limit = smoothed_aggregation(A) if symmetric else jacobi_of(A), attainable(matrix, b, x)
    for method in [cg, bicgstab, gmres] if symmetric else [bicgstab]:
        result = method(A, b, M=M, rtol=rtol, max_iterations=3000)
        residual = exact_residual(matrix, b, np.asarray(result.x).reshape(-1))
        assert result.status[0] in (Status.converged, Status.stagnated), (name, method.__name__, result)
        assert residual <= max(rtol * np.linalg.norm(b) * (1 + 1e-6), 10 * limit), (name, method.__name__, result)
        if result.status[0] == Status.stagnated:
            assert residual <= 10 * limit, (name, method.__name__, result)


@pytest.mark.parametrize("rtol", [1e-8, 1e-12, 1e-15])
def test_residuals_attain_what_rounding_allows(rtol):
    for name, matrix in library_problems():
        assert_attains(name, matrix, rtol)


@pytest.mark.slow
@pytest.mark.parametrize("rtol", [1e-8, 1e-10, 1e-12, 1e-13, 1e-14, 1e-15])
def test_residuals_of_every_gallery_problem_attain_what_rounding_allows(rtol):
    for name, matrix in [*library_problems(), *pyamg_problems()]:
        assert_attains(name, matrix, rtol)
