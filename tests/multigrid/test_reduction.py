"""Reduction-based multigrid: its matrices by their formulas, PyAMG's iteration counts, and each sample by itself."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

from ensemble import gallery
from ensemble._kernels.multigrid.splitting import split_rows
from ensemble.krylov import bicgstab, gmres
from ensemble.linalg import AffineMatrix, CrsGraph, CrsMatrix, SymmetricCrsMatrix
from ensemble.multigrid import approximate_ideal_restriction, smoothed_aggregation
from ensemble.multigrid.reduction import Options, Reduction
from ensemble.multigrid.relaxation import inverse_diagonal
from ensemble.multigrid.splitting import SharedStrength
from ensemble.scalar import Ensemble

N = 40


def straight(peclet, angle, n=N):
    """Samples of one Peclet number and direction each; numbers or lists of them."""
    peclet, angle = np.broadcast_arrays(np.atleast_1d(peclet), np.atleast_1d(angle))
    return gallery.convection_diffusion((n, n), [np.sin(angle), np.cos(angle)], 1.0 / peclet)


def recirculating(peclet, n=N):
    """Four closed vortices: the curl of sin(2 pi x) sin(2 pi y)."""
    y, x = 2.0 * np.pi * np.indices((n, n)) / (n + 1) + 2.0 * np.pi / (n + 1)
    velocity = np.array([-np.cos(x) * np.sin(y), np.sin(x) * np.cos(y)])
    return gallery.convection_diffusion((n, n), velocity[..., None], 1.0 / peclet)


def right_hand_side(n, n_samples=1, seed=41123):
    b = np.random.default_rng(seed).standard_normal((n, n_samples))
    return b[:, 0] if n_samples == 1 else Ensemble(b)


PROBLEMS = {
    **{f"angle {angle}, Peclet {peclet:.0e}": (straight, peclet, angle)
       for peclet in (1e0, 1e2, 1e4, 1e8) for angle in (0.0, 0.3, 2.5, 4.0)},
    **{f"recirculating, Peclet {peclet:.0e}": (recirculating, peclet) for peclet in (1e0, 1e2, 1e4, 1e8)},
    **{f"advection_2d, angle {angle}": (lambda angle: pyamg.gallery.advection_2d((N, N), theta=angle)[0], angle)
       for angle in (0.1, math.pi / 4, 1.3)},
    "recirc_flow": (lambda: pyamg.gallery.load_example("recirc_flow")["A"],),
    "poisson": (lambda: pyamg.gallery.poisson((N, N)),),
}  # fmt: skip


@pytest.mark.parametrize("method", [gmres, bicgstab], ids=lambda method: method.__name__)
@pytest.mark.parametrize("name", PROBLEMS)
def test_iterations_are_at_most_a_fifth_more_than_those_of_pyamg(name, method):
    """PyAMG's air_solver with its defaults, in the same Krylov method; 1.2 times its iterations, rounded up."""
    build, *arguments = PROBLEMS[name]
    A = build(*arguments)
    A = A.to_scipy() if isinstance(A, CrsMatrix) else sp.csr_array(A)
    b = right_hand_side(A.shape[0])
    np.random.seed(20731)  # noqa: NPY002  what PyAMG draws from
    reference = method(A, b, M=pyamg.air_solver(A).aspreconditioner("V"), max_iterations=100)
    result = method(A, b, M=approximate_ideal_restriction(A), max_iterations=100)
    assert result.converged.all()
    assert result.iterations[0] <= math.ceil(1.2 * reference.iterations[0])
    assert np.linalg.norm(b - A @ result.x) <= 1.001e-8 * np.linalg.norm(b)


def test_strong_convection_converges_where_smoothed_aggregation_does_not():
    A = straight([1e3, 1e4, 1e6], 0.3)
    b = right_hand_side(N**2, 3)
    limit = {"restart": 50, "max_iterations": 50}
    assert not gmres(A, b, M=smoothed_aggregation(A, coarse_size=100), **limit).converged.any()
    assert np.all(gmres(A, b, M=approximate_ideal_restriction(A), **limit).iterations <= 6)


def test_each_sample_may_have_a_direction_and_a_viscosity_of_its_own():
    rng = np.random.default_rng(58111)
    A = straight(10.0 ** rng.uniform(0, 8, 12), rng.uniform(0.0, 2.0 * np.pi, 12))
    b = right_hand_side(N**2, 12)
    for strength in ("largest", "mean", "graph"):
        result = gmres(A, b, M=approximate_ideal_restriction(A, strength=strength), max_iterations=60)
        assert result.converged.all() and result.iterations.max() <= 18
    norms = np.linalg.norm((b - A @ result.x).samples, axis=0)
    assert np.all(norms <= 1.001e-8 * np.linalg.norm(b.samples, axis=0))


def test_directions_within_a_quadrant_cost_no_iteration():
    A = straight(1e4, np.linspace(0.2, 1.3, 5))
    b = right_hand_side(N**2, 5)
    together = gmres(A, b, M=approximate_ideal_restriction(A)).iterations
    alone = [
        gmres(A.sample(s), b.samples[:, s], M=approximate_ideal_restriction(A.sample(s))).iterations[0]
        for s in range(5)
    ]
    assert np.all(together <= np.array(alone) + 1)


# --- the law of the library
def mixture(n_samples, n=24):
    rng = np.random.default_rng(36913)
    return straight(10.0 ** rng.uniform(0, 8, n_samples), rng.uniform(0.0, 2.0 * np.pi, n_samples), n)


@pytest.mark.parametrize("n_samples", [2, 7])
def test_each_sample_is_its_scalar_hierarchy_where_the_graph_alone_decides(n_samples):
    A, options = mixture(n_samples), {"strength": "graph", "coarse_size": 20}
    r = right_hand_side(A.shape[0], n_samples).samples
    z = (approximate_ideal_restriction(A, **options) @ Ensemble(r)).samples
    for s in range(n_samples):
        alone = approximate_ideal_restriction(A.sample(s), **options) @ r[:, s]
        np.testing.assert_array_equal(z[:, s], alone)


@pytest.mark.parametrize("strength", ["largest", "mean"])
def test_each_sample_is_the_same_hierarchy_updated_to_it_alone(strength):
    A = mixture(5)
    r = right_hand_side(A.shape[0], 5).samples
    M = approximate_ideal_restriction(A, strength=strength, coarse_size=20)
    z = (M @ Ensemble(r)).samples
    for s in range(5):
        np.testing.assert_array_equal(z[:, s], M.update(A.sample(s)) @ r[:, s])


@pytest.mark.parametrize("strength", ["largest", "mean"])
def test_samples_that_decide_alike_have_the_bits_of_their_scalar_runs(strength):
    """Powers of two change no decision and no bit of a quotient."""
    one = straight(1e2, 0.3, 24)
    A = CrsMatrix(one.graph, one.values * 2.0 ** np.array([0, -3, 5]))
    r = right_hand_side(A.shape[0], 3).samples
    z = (approximate_ideal_restriction(A, strength=strength, coarse_size=20) @ Ensemble(r)).samples
    for s in range(3):
        np.testing.assert_array_equal(z[:, s], approximate_ideal_restriction(A.sample(s), coarse_size=20) @ r[:, s])


@pytest.mark.parametrize("strength", ["largest", "mean"])
def test_a_sample_that_is_not_finite_decides_nothing(strength):
    A = mixture(4)
    values = np.insert(A.values, 1, A.values[::-1, 0], axis=1)
    values[77, 1] = np.nan
    r = right_hand_side(A.shape[0], 5).samples
    z = (approximate_ideal_restriction(CrsMatrix(A.graph, values), strength=strength) @ Ensemble(r)).samples
    expected = approximate_ideal_restriction(A, strength=strength) @ Ensemble(np.delete(r, 1, axis=1))
    assert np.isnan(z[:, 1]).any()
    np.testing.assert_array_equal(np.delete(z, 1, axis=1), expected.samples)


def test_singular_samples_leave_the_others_alone():
    """A matrix of zeros, one with a row of zeros, one without inflow: flagged or solved, and no bit elsewhere."""
    A = mixture(3)
    periodic = A.values[:, 0].copy()
    diagonal = A.graph.diagonal_entries
    sums = CrsMatrix(A.graph, periodic).apply(np.ones((A.shape[0], 1)))[:, 0]
    periodic[diagonal] -= sums  # constants are its null space
    hollow = A.values[:, 1].copy()
    hollow[A.graph.indptr[300] : A.graph.indptr[301]] = 0.0
    values = np.column_stack([A.values, np.zeros(A.nnz), hollow, periodic])
    b = right_hand_side(A.shape[0], 6).samples
    options = {"strength": "graph", "coarse_size": 20}
    spoiled = CrsMatrix(A.graph, values)
    result = gmres(spoiled, Ensemble(b), M=approximate_ideal_restriction(spoiled, **options), max_iterations=40)
    clean = gmres(A, Ensemble(b[:, :3]), M=approximate_ideal_restriction(A, **options), max_iterations=40)
    assert clean.converged.all() and not result.converged[3:].any()
    np.testing.assert_array_equal(result.x.samples[:, :3], clean.x.samples)


def test_singular_matrix_converges_for_a_compatible_right_hand_side():
    """Advection around a ring with diffusion and no inflow: columns and rows sum to zero."""
    n = 400
    A = sp.diags_array([-0.4, -2.0, 2.4, -0.4, -2.0], offsets=[1 - n, -1, 0, 1, n - 1], shape=(n, n)).tocsr()
    b = right_hand_side(n)
    b -= b.mean()
    result = gmres(A, b, M=approximate_ideal_restriction(A, coarse_size=20), max_iterations=40)
    assert result.converged.all()


def test_units_of_rows_change_no_decision():
    """(D A)^-1 D r = A^-1 r for the V-cycle too; powers of two are exact."""
    A = straight([1e2, 1e6], 0.3, 24)
    d = 2.0 ** np.random.default_rng(71011).integers(-12, 13, A.shape[0])[:, None]
    scaled = CrsMatrix(A.graph, A.values * d[A.graph.row_of_entry])
    r = right_hand_side(A.shape[0], 2).samples
    M, other = (approximate_ideal_restriction(matrix, coarse_size=20) for matrix in (A, scaled))
    assert other.operator_complexity == M.operator_complexity
    np.testing.assert_allclose((other @ Ensemble(d * r)).samples, (M @ Ensemble(r)).samples, rtol=1e-9, atol=1e-12)


# --- a linear operator
def test_compaction_changes_no_bit():
    A = straight([1e0, 1e8, 1e8, 1e8], 0.3)
    b = right_hand_side(A.shape[0], 4)
    M = approximate_ideal_restriction(A)
    for method in (gmres, bicgstab):
        runs = [method(A, b, M=M, compact=compact, rtol=1e-12) for compact in (True, False)]
        assert runs[0].converged.all()
        np.testing.assert_array_equal(runs[0].x.samples, runs[1].x.samples)


def test_samples_taken_are_columns_of_the_whole():
    A = mixture(5)
    M = approximate_ideal_restriction(A, coarse_size=20)
    r = right_hand_side(A.shape[0], 5).samples
    z = (M @ Ensemble(r)).samples
    part = M.take_samples([3, 0])
    assert part.n_samples == 2
    np.testing.assert_array_equal((part @ Ensemble(r[:, [3, 0]])).samples, z[:, [3, 0]])


def test_a_shared_hierarchy_serves_every_sample():
    M = approximate_ideal_restriction(straight(1e4, 0.3, 24), coarse_size=20)
    r = right_hand_side(M.shape[0], 3).samples
    z = (M @ Ensemble(r)).samples
    assert M.take_samples([1]) is M
    for s in range(3):
        np.testing.assert_array_equal(z[:, s], M @ r[:, s])


def test_v_cycle_is_linear():
    M = approximate_ideal_restriction(mixture(2), coarse_size=20)
    r, q = (right_hand_side(M.shape[0], 2, seed) for seed in (11003, 11004))
    np.testing.assert_allclose((M @ (2.0 * r - q)).samples, (2.0 * (M @ r) - M @ q).samples, rtol=1e-10, atol=1e-14)


def test_update_equals_a_new_hierarchy():
    A = mixture(3)
    options = {"strength": "graph", "coarse_size": 20}
    M = approximate_ideal_restriction(A.sample(0), **options).update(A)
    r = right_hand_side(A.shape[0], 3)
    assert M.n_samples == 3
    np.testing.assert_array_equal((M @ r).samples, (approximate_ideal_restriction(A, **options) @ r).samples)
    with pytest.raises(ValueError, match=r"ReductionHierarchy.update: A must have the graph .* approximate_ideal"):
        M.update(gallery.poisson((5, 5)))


def test_threads_share_a_hierarchy():
    A = mixture(3)
    M = approximate_ideal_restriction(A, coarse_size=20)
    vectors = [right_hand_side(A.shape[0], 3, seed) for seed in range(70001, 70009)]
    expected = [(M @ r).samples for r in vectors]
    with ThreadPoolExecutor(4) as pool:
        for z, right in zip(pool.map(lambda r: (M @ r).samples, vectors), expected, strict=True):
            np.testing.assert_array_equal(z, right)


def test_float32_hierarchy_under_float64_gmres():
    A = straight([1e1, 1e3, 1e5], 0.3)
    b = right_hand_side(A.shape[0], 3)
    M = approximate_ideal_restriction(A, dtype=np.float32)
    narrow = gmres(A, b, M=M, rtol=1e-10, flexible=True)
    wide = gmres(A, b, M=approximate_ideal_restriction(A), rtol=1e-10)
    assert M.dtype == np.float32 and (M @ b).dtype == np.float64
    assert narrow.converged.all() and np.all(narrow.iterations <= wide.iterations + 1)


@pytest.mark.parametrize(
    "kind", [lambda A: A.to_scipy(), lambda A: A, SymmetricCrsMatrix.from_crs], ids=["scipy", "crs", "symmetric"]
)
def test_every_stored_matrix_is_taken(kind):
    A = gallery.poisson((24, 24))
    r = right_hand_side(A.shape[0])
    z = approximate_ideal_restriction(kind(A)) @ r
    np.testing.assert_array_equal(z, approximate_ideal_restriction(A) @ r)


def test_a_diagonal_matrix_has_nothing_to_coarsen():
    d = np.random.default_rng(90001).uniform(1.0, 2.0, 5000)
    M = approximate_ideal_restriction(sp.diags_array(d))
    assert len(M.levels) == 1 and M.coarse is None and "relaxed" in repr(M)
    np.testing.assert_allclose(M @ d, np.ones(5000), rtol=1e-15)


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ({"theta": 1.5}, ValueError, "theta must be from 0 to 1; got 1.5"),
        ({"drop_coarse": -1.0}, ValueError, "drop_coarse must be a finite number, zero or above"),
        ({"degree": -1}, ValueError, "degree must be an integer of at least 0"),
        ({"strength": "any"}, ValueError, "strength must be one of 'largest', 'mean', 'graph'; got 'any'"),
        ({"sweeps": (1, 1, 1)}, ValueError, r"sweeps must be \(fine, coarse\)"),
        ({"coarse_size": 0}, ValueError, "coarse_size must be an integer of at least 1"),
        ({"dtype": int}, ValueError, "dtype must be float32 or float64"),
    ],
)
def test_bad_options_are_refused(arguments, error, text):
    with pytest.raises(error, match=f"approximate_ideal_restriction: {text}"):
        approximate_ideal_restriction(gallery.poisson((4, 4)), **arguments)


def test_bad_matrices_are_refused():
    A = gallery.poisson((3,))
    affine = AffineMatrix(A.graph, np.repeat(A.values, 2, axis=1), Ensemble(np.ones((1, 3))))
    with pytest.raises(TypeError, match=r"A must be a CrsMatrix, .* got an AffineMatrix. Give A.to_crs"):
        approximate_ideal_restriction(affine)
    with pytest.raises(ValueError, match=r"A must be square; got shape \(2, 3\)"):
        approximate_ideal_restriction(sp.csr_array(np.ones((2, 3))))


# --- the matrices of one level
def one_level(A, theta=0.25, degree=2):
    """The splitting, R, P and coarse matrix of `A`, nothing dropped."""
    strength = SharedStrength("largest")
    plan = Reduction(A, strength, Options(theta, degree, 0.0, 0.0, 0.0))
    R, P = plan.restriction(A, inverse_diagonal(A), strength), plan.interpolation(A)
    return plan.coarse, R, P, plan.coarse_matrix(A, R, P, strength)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("hollow", [False, True], ids=["", "rows without diagonal"])
def test_restriction_is_its_neumann_series(degree, hollow):
    """A row that stores no diagonal entry takes no part in the series."""
    rng = np.random.default_rng(23209)
    full = sp.csr_array(sp.random_array((60, 60), density=0.08, rng=rng) + 2.0 * sp.eye_array(60))
    if hollow:
        full.setdiag(np.where(np.arange(60) % 7 == 3, 0.0, full.diagonal()))
        full.eliminate_zeros()
    A = CrsMatrix.from_scipy(full)
    coarse, R, P, Ac = one_level(A, degree=degree)
    dense, f, c = full.toarray(), np.flatnonzero(~coarse), np.flatnonzero(coarse)
    d = np.diag(dense)[f]
    inverse = np.diag(np.divide(1.0, d, out=np.zeros_like(d), where=d != 0.0))
    L = -inverse @ (dense[np.ix_(f, f)] - np.diag(d))
    series = sum(np.linalg.matrix_power(L, k) for k in range(degree + 1)) @ inverse
    expected = np.zeros((c.size, 60))
    expected[:, c], expected[:, f] = np.eye(c.size), -dense[np.ix_(c, f)] @ series
    np.testing.assert_allclose(R.to_scipy().toarray(), expected, rtol=0, atol=1e-14)
    product = R.to_scipy() @ full @ P.to_scipy()
    np.testing.assert_allclose(Ac.to_scipy().toarray(), product.toarray(), rtol=0, atol=1e-13)


def test_interpolation_reproduces_constants_where_rows_sum_to_zero():
    A = straight(1e2, 0.3, 20)
    full = A.to_scipy()
    coarse, _, P, _ = one_level(A)
    interpolated = P.to_scipy() @ np.ones(P.shape[1])
    inside = np.abs(full @ np.ones(400)) < 1e-9 * full.diagonal()
    assert (inside & ~coarse).sum() > 100
    np.testing.assert_allclose(interpolated[inside], 1.0, rtol=1e-12)
    np.testing.assert_array_equal(P.to_scipy()[np.flatnonzero(coarse)].toarray(), np.eye(P.shape[1]))


def test_reduction_is_exact_for_advection_along_a_line():
    """The fine block is diagonal on every level: the V-cycle is the inverse."""
    n = 1000
    A = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(n, n)).tocsr()
    M = approximate_ideal_restriction(A, coarse_size=4)
    r = right_hand_side(n)
    assert [level.A.shape[0] for level in M.levels][:3] == [1000, 500, 250]
    np.testing.assert_allclose(M @ r, np.cumsum(r), rtol=0, atol=1e-11)


# --- the splitting
def graph_of(pattern):
    pattern = sp.csr_array(pattern)
    pattern.setdiag(0)
    pattern.eliminate_zeros()
    pattern.sort_indices()
    return CrsGraph(pattern.indptr, pattern.indices, pattern.shape)


@pytest.mark.parametrize("n, density, seed", [(1, 0.0, 1), (30, 0.1, 44017), (400, 0.01, 44018), (200, 0.2, 44019)])
def test_fine_rows_that_depend_on_each_other_have_a_coarse_row_in_common(n, density, seed):
    graph = graph_of(sp.random_array((n, n), density=density, rng=np.random.default_rng(seed)))
    coarse = split_rows(graph.indptr, graph.indices, *graph.transposed[:2])
    rows = [set(graph.indices[graph.indptr[i] : graph.indptr[i + 1]].tolist()) for i in range(n)]
    near = [{j for j in row if coarse[j]} for row in rows]
    for i in np.flatnonzero(~coarse):
        for j in rows[i]:
            assert coarse[j] or near[i] & near[j]


def test_splitting_of_the_five_point_graph_is_a_checkerboard():
    A = gallery.poisson((12, 12))
    graph = graph_of(A.to_scipy())
    coarse = split_rows(graph.indptr, graph.indices, *graph.transposed[:2]).reshape(12, 12)
    i, j = np.indices((12, 12))
    assert np.all(coarse == ((i + j) % 2 == coarse[0, 1]))


def test_splitting_has_as_many_coarse_rows_as_pyamgs():
    for A in (straight(1e2, 0.3), recirculating(1e4), gallery.poisson((30, 30))):
        strong = pyamg.strength.classical_strength_of_connection(A.to_scipy(), theta=0.25)
        theirs = pyamg.classical.split.RS(strong, second_pass=True).sum()
        graph = graph_of(strong)
        ours = split_rows(graph.indptr, graph.indices, *graph.transposed[:2]).sum()
        assert abs(int(ours) - int(theirs)) <= 0.05 * theirs
