"""Smoothed aggregation: the textbook's identities, the known level sizes, and each sample by itself."""

import numpy as np
import pyamg.gallery
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ensemble import gallery
from ensemble._kernels.multigrid.aggregation import aggregate
from ensemble._kernels.multigrid.dense import inverse_of
from ensemble.krylov import cg
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.multigrid import Chebyshev, coarse, smoothed_aggregation
from ensemble.multigrid.aggregation import aggregates_of
from ensemble.multigrid.coarse import CoarseSolver
from ensemble.multigrid.relaxation import inverse_diagonal, largest_eigenvalue, start_vector
from ensemble.multigrid.tentative import tentative_prolongator
from ensemble.scalar import Ensemble


def brick(nodes):
    """The 27-point graph of a block of hexahedra, with explicit zeros to the eliminated planes z = 0 and z = 1."""
    line = sp.diags_array([np.ones(nodes - 1), np.ones(nodes), np.ones(nodes - 1)], offsets=[-1, 0, 1])
    pattern = sp.csr_array(sp.kron(line, sp.kron(line, line)))
    pattern.sort_indices()
    n = nodes**3
    boundary = np.zeros(n, bool)
    boundary[: nodes**2] = boundary[-(nodes**2) :] = True
    graph = CrsGraph(pattern.indptr, pattern.indices, (n, n))
    rows, columns = graph.row_of_entry, graph.indices
    values = np.where(rows == columns, 26.5, -1.0)
    values[(boundary[rows] | boundary[columns]) & (rows != columns)] = 0.0
    return CrsMatrix(graph, values)


@pytest.mark.parametrize(
    "cells, sizes", [(16, [4913, 180]), (32, [35937, 1331, 64]), (64, [274625, 10164, 448])], ids=str
)
def test_level_sizes_of_the_papers_mesh(cells, sizes):
    hierarchy = smoothed_aggregation(brick(cells + 1))
    assert [level.A.shape[0] for level in hierarchy.levels] == sizes


def test_aggregates_of_a_chain_are_triples():
    A = gallery.poisson((10,))
    member, count = aggregates_of(A)
    assert member.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3] and count == 4


def test_left_over_nodes_join_the_neighbour_with_most_edges():
    """Root 0 takes 1, root 4 takes 3 and 5; node 2 has one edge into the first aggregate and two into the second."""
    edges = [(0, 1), (1, 2), (1, 3), (2, 3), (2, 5), (3, 4), (4, 5)]
    a = sp.coo_array((np.ones(len(edges)), np.array(edges).T), shape=(6, 6))
    a = sp.csr_array(a + a.T + sp.eye_array(6))
    a.sort_indices()
    member, count = aggregate(a.indptr[:-1], a.indptr[1:], a.indices, np.ones(6, bool))
    assert count == 2 and member.tolist() == [0, 0, 1, 1, 1, 1]


def test_boundary_rows_stay_out():
    A = brick(5)
    member, _ = aggregates_of(A)
    assert np.all(member[:25] == -1) and np.all(member[-25:] == -1) and np.all(member[25:-25] >= 0)
    level = smoothed_aggregation(A, coarse_size=10).levels[0]
    assert np.all(np.diff(level.P.graph.indptr)[:25] == 0)
    assert np.all(level.P.graph.indices >= 0)


@given(n=st.integers(4, 60), k=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
def test_tentative_prolongator_reproduces_the_near_nullspace(n, k, seed):
    rng = np.random.default_rng(seed)
    count = max(1, n // (k + 3))
    aggregates = np.where(rng.random(n) < 0.1, -1, rng.integers(0, count, n)).astype(np.int32)
    B = rng.standard_normal((n, k))
    T, coarse = tentative_prolongator(aggregates, count, B)
    inside = aggregates >= 0
    np.testing.assert_allclose((T.to_scipy() @ coarse)[inside], B[inside], rtol=0, atol=1e-12)
    gram = (T.to_scipy().T @ T.to_scipy()).toarray()
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), rtol=0, atol=1e-12)
    diagonal = np.diag(gram)
    assert np.all((np.abs(diagonal - 1) < 1e-12) | (diagonal == 0))


def test_smoothed_prolongator_is_its_formula():
    A = gallery.anisotropic((9, 8), 3)
    hierarchy = smoothed_aggregation(A, coarse_size=10, max_levels=2, dtype=np.float64)
    level = hierarchy.levels[0]
    for i in range(3):
        a, t = A.to_scipy(i), level.plan.T.to_scipy()
        expected = t - (4 / 3) / level.lambda_max[i] * sp.diags_array(1 / a.diagonal()) @ a @ t
        np.testing.assert_allclose(level.P.to_scipy(i).toarray(), expected.toarray(), rtol=0, atol=1e-14)
        coarse = level.P.to_scipy(i).T @ a @ level.P.to_scipy(i)
        built = hierarchy.levels[1].A.to_scipy(i)
        np.testing.assert_allclose(built.toarray(), coarse.toarray(), rtol=0, atol=1e-12)


def test_eigenvalue_estimate_is_each_samples_own_and_below_the_largest():
    A = gallery.anisotropic((12, 11), 4, strength=30.0)
    estimate = largest_eigenvalue(A, inverse_diagonal(A))
    for i in range(4):
        a = A.to_scipy(i)
        exact = np.linalg.eigvals((sp.diags_array(1 / a.diagonal()) @ a).toarray()).real.max()
        assert 0.8 * exact < estimate[i] < 1.0001 * exact
        alone = A.sample(i)
        assert estimate[i] == largest_eigenvalue(alone, inverse_diagonal(alone))[0]


def test_start_vector_depends_on_the_row_number_alone():
    assert np.array_equal(start_vector(5), start_vector(9)[:5])
    assert np.all(np.abs(start_vector(10000)) <= 1) and abs(start_vector(10000).mean()) < 0.02


def test_chebyshev_smoother_is_its_polynomial():
    """Degree 3 from zero: the error polynomial on each eigenvector is the scaled Chebyshev polynomial."""
    option = Chebyshev(degree=3, ratio=5.0)
    lam = np.array([2.0])
    steps = option.coefficients(lam)
    alpha, beta = 2.0 / 5.0, 1.1 * 2.0
    for value in np.linspace(0.1, 2.3, 7):
        x, w = 0.0, 0.0
        for a, c in steps:
            w = a[0] * w + c[0] * (1.0 - value * x)
            x += w

        def cheb(t):
            return 4 * t**3 - 3 * t

        error = cheb((beta + alpha - 2 * value) / (beta - alpha)) / cheb((beta + alpha) / (beta - alpha))
        assert abs((1.0 - value * x) - error) < 1e-13


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_v_cycle_is_symmetric_positive(rng, degree):
    A = gallery.anisotropic((12, 12), 3)
    M = smoothed_aggregation(A, coarse_size=10, smoother=Chebyshev(degree=degree), dtype=np.float64)
    assert len(M.levels) == 3
    x, y = (Ensemble(rng.standard_normal((144, 3))) for _ in range(2))
    left, right = (np.sum(u.samples * (M @ v).samples, axis=0) for u, v in ((x, y), (y, x)))
    np.testing.assert_allclose(left, right, rtol=1e-10)
    assert np.all(np.sum(x.samples * (M @ x).samples, axis=0) > 0)


@given(n_samples=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_each_sample_is_its_scalar_hierarchy(n_samples, seed):
    rng = np.random.default_rng(seed)
    A = gallery.anisotropic((9, 8), n_samples, seed=seed)
    r = Ensemble(rng.standard_normal((72, n_samples)))
    M = smoothed_aggregation(A, coarse_size=12)
    z = M @ r
    chosen = rng.integers(0, n_samples, 2)
    part = M.take_samples(chosen) @ Ensemble(r.samples[:, chosen])
    for j, i in enumerate(chosen):
        alone = smoothed_aggregation(A.sample(i), coarse_size=12)
        assert np.array_equal(z.sample(i), alone @ r.sample(i))
        assert np.array_equal(z.sample(i), part.sample(j))
        assert M.levels[0].lambda_max[i] == alone.levels[0].lambda_max[0]


def test_shared_hierarchy_serves_every_sample(rng):
    A = gallery.poisson((9, 9))
    M = smoothed_aggregation(A, coarse_size=12)
    r = rng.standard_normal((81, 4))
    z = M @ Ensemble(r)
    for i in range(4):
        assert np.array_equal(z.sample(i), M @ r[:, i])


@pytest.mark.parametrize("n_samples", [3, 5])
def test_update_equals_a_new_hierarchy(rng, n_samples):
    old, new = gallery.anisotropic((9, 9), 3, seed=1234), gallery.anisotropic((9, 9), n_samples, seed=98765)
    r = Ensemble(rng.standard_normal((81, n_samples)))
    M = smoothed_aggregation(old, coarse_size=12)
    assert M.update(new) is M
    assert np.array_equal((M @ r).samples, (smoothed_aggregation(new, coarse_size=12) @ r).samples)
    with pytest.raises(ValueError, match="A must have the graph the hierarchy was built for"):
        M.update(gallery.poisson((9, 8)))


def cycle_factor(A, **options):
    """Mean reduction of the residual by one V-cycle over twenty, as PyAMG's own tests measure it."""
    M = smoothed_aggregation(A, **options)
    x = np.zeros(A.shape[0])
    b = np.random.default_rng(60221).standard_normal(A.shape[0])
    norms = []
    for _ in range(20):
        r = b - A @ x
        norms.append(np.linalg.norm(r))
        x = x + M @ r
    return (norms[-1] / norms[0]) ** (1 / len(norms))


def elasticity():
    """Plane elasticity on 50 by 50 squares, two unknowns a node, and its three rigid body modes."""
    matrix, B = pyamg.gallery.linear_elasticity((50, 50))
    return CrsMatrix.from_scipy(sp.csr_array(matrix.tocsr())), B


GALLERY = {
    # bounds from a first run with Chebyshev of degree 2; PyAMG's, with symmetric Gauss-Seidel: 0.40, 0.42, 0.32
    "poisson-5000": (lambda: gallery.poisson((5000,)), {}, 0.44),
    "poisson-60x60": (lambda: gallery.poisson((60, 60)), {}, 0.28),
    "elasticity-50x50": (lambda: elasticity()[0], {"near_nullspace": elasticity()[1], "block_size": 2}, 0.36),
}


@pytest.mark.parametrize("name", GALLERY)
def test_gallery_problems_converge_within_their_bounds(name):
    make, options, bound = GALLERY[name]
    assert cycle_factor(make(), coarse_size=10, **options) < bound


def test_rigid_body_modes_pay():
    A, B = elasticity()
    M = smoothed_aggregation(A, near_nullspace=B, block_size=2, coarse_size=10)
    b = np.random.default_rng(60221).standard_normal(A.shape[0])
    result = cg(A, b, M=M, rtol=1e-8)
    assert result.converged.all()
    plain = cg(A, b, M=smoothed_aggregation(A, coarse_size=10), rtol=1e-8)
    assert result.iterations[0] <= 10 and 5 * result.iterations[0] < plain.iterations[0]


@pytest.mark.parametrize("scale", [1e-3, 7.0])
def test_diagonal_scaling_changes_no_iteration_count(scale):
    """CG with smoothed aggregation does not see a constant factor of the matrix."""
    A = gallery.poisson((20, 20))
    b = np.random.default_rng(1729).standard_normal(400)
    scaled = CrsMatrix(A.graph, scale * A.values)
    runs = [cg(m, b, M=smoothed_aggregation(m, coarse_size=20)) for m in (A, scaled)]
    assert runs[0].iterations[0] == runs[1].iterations[0]


def test_nan_stays_in_its_sample(rng):
    A = gallery.anisotropic((9, 9), 4)
    r = Ensemble(rng.standard_normal((81, 4)))
    clean = (smoothed_aggregation(A, coarse_size=12) @ r).samples
    A.values[17, 1] = np.nan
    z = (smoothed_aggregation(A, coarse_size=12) @ r).samples
    assert np.isnan(z[:, 1]).any()
    assert np.array_equal(np.delete(z, 1, axis=1), np.delete(clean, 1, axis=1))


def test_a_coarsest_matrix_is_factorized_where_that_is_safe(monkeypatch):
    """Singular, unsymmetric and indefinite samples and NaN keep their dense inverses, alone as among others."""
    n = 80
    off = -np.ones(n - 1)
    poisson = sp.diags_array([off, 2.0 * np.ones(n), off], offsets=[-1, 0, 1]).tocsr()
    neumann = sp.diags_array([off, np.r_[1.0, 2.0 * np.ones(n - 2), 1.0], off], offsets=[-1, 0, 1]).tocsr()
    skew = sp.diags_array([2.0 * off, 3.0 * np.ones(n), off], offsets=[-1, 0, 1]).tocsr()
    A = CrsMatrix.from_scipy([poisson, neumann, 3.0 * poisson, skew, -1.0 * poisson, np.nan * poisson])
    solver, b = CoarseSolver(A), np.random.default_rng(3).standard_normal((n, 6))
    assert solver.others.tolist() == [1, 3, 4, 5] and solver.inverse.shape == (n, n, 4)
    x = solver.apply(b, None)
    amplified = solver.amplification(A)
    for i in range(6):
        alone = CoarseSolver(A.take_samples([i]))
        np.testing.assert_array_equal(alone.apply(b[:, i : i + 1].copy(), None)[:, 0], x[:, i])
        np.testing.assert_array_equal(alone.amplification(A.take_samples([i])), amplified[i : i + 1])
    part = solver.take_samples(np.array([3, 0, 5]))
    np.testing.assert_array_equal(part.apply(b[:, [3, 0, 5]], None), x[:, [3, 0, 5]])
    np.testing.assert_array_equal(solver.take_samples([2, 0]).apply(b[:, [2, 0]], None), x[:, [2, 0]])
    narrow = CrsMatrix(A.graph, A.values.astype(np.float32))
    single = CoarseSolver(narrow).apply(b.astype(np.float32), None)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single[:, :5], x[:, :5], rtol=0, atol=1e-4 * np.nanmax(np.abs(x)))
    monkeypatch.setattr(coarse, "FACTORIZED", 1000)
    dense = CoarseSolver(A)
    np.testing.assert_allclose(x, dense.apply(b, None), rtol=0, atol=1e-11 * np.nanmax(np.abs(x)))
    np.testing.assert_allclose(amplified, dense.amplification(A), rtol=1e-9)


def test_singular_coarse_matrix_gets_its_pseudo_inverse():
    """Pure Neumann: the constant is deflated, the rest is solved."""
    n = 6
    neumann = sp.diags_array(
        [-np.ones(n - 1), np.r_[1.0, 2 * np.ones(n - 2), 1.0], -np.ones(n - 1)], offsets=[-1, 0, 1]
    )
    np.testing.assert_allclose(inverse_of(neumann.toarray()), np.linalg.pinv(neumann.toarray()), rtol=0, atol=1e-12)
    assert np.isnan(inverse_of(np.full((2, 2), np.nan))).all()
    solver = CoarseSolver(CrsMatrix.from_scipy([neumann, sp.eye_array(n)]))
    np.testing.assert_array_equal(solver.inverse[:, :, 1], np.eye(n))


@pytest.mark.parametrize("i, j", [(1, 0), (31, 30), (32, 31), (32, 0), (69, 68), (64, 63), (40, 33), (69, 2)])
def test_one_pair_of_entries_makes_a_coarse_matrix_nonsymmetric(rng, i, j):
    dense = rng.standard_normal((70, 70))
    dense = dense @ dense.T + 70.0 * np.eye(70)
    dense[i, j] += 1e-3 * np.sqrt(dense[i, i] * dense[j, j])
    for one in (dense, dense.T):
        np.testing.assert_allclose(inverse_of(np.ascontiguousarray(one)) @ one, np.eye(70), rtol=0, atol=1e-12)


def test_coarse_inverse_of_nonsymmetric_matrices(rng):
    dense = rng.standard_normal((9, 9)) + 4.0 * np.eye(9)
    np.testing.assert_allclose(inverse_of(dense) @ dense, np.eye(9), rtol=0, atol=1e-12)
    singular = dense.copy()
    singular[4] = singular[2]
    np.testing.assert_allclose(inverse_of(singular), np.linalg.pinv(singular), rtol=0, atol=1e-12)
    singular[4] = 0.0
    np.testing.assert_allclose(inverse_of(singular), np.linalg.pinv(singular), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "rows, columns",
    [
        (np.r_[1e8, 1.0, 1.0, 1.0], np.ones(4)),
        (np.r_[1e-10, 1.0, 1.0, 1e10], np.r_[1.0, 1e-6, 1e5, 1.0]),
    ],
    ids=["rows of fixed unknowns", "units"],
)
def test_coarse_inverse_of_nonsymmetric_matrices_with_rows_in_other_units(rows, columns):
    """The inverse of diag(r) A diag(c) is diag(1/c) A^-1 diag(1/r), A lower bidiagonal."""
    dense = 2.0 * np.eye(4) - np.diag([0.0, 1.0, 1.0], -1)
    expected = np.linalg.inv(dense) / columns[:, None] / rows
    np.testing.assert_allclose(inverse_of(rows[:, None] * dense * columns), expected, rtol=1e-13, atol=0)


def test_neumann_problem_converges_for_a_compatible_right_hand_side(rng):
    n = 900
    line = sp.diags_array([-np.ones(29), np.r_[1.0, 2 * np.ones(28), 1.0], -np.ones(29)], offsets=[-1, 0, 1])
    A = CrsMatrix.from_scipy(sp.csr_array(sp.kron(line, sp.eye_array(30)) + sp.kron(sp.eye_array(30), line)))
    b = rng.standard_normal(n)
    b -= b.mean()
    assert cg(A, b, M=smoothed_aggregation(A, coarse_size=50), rtol=1e-8, max_iterations=50).converged.all()


def test_a_diagonal_matrix_has_nothing_to_coarsen(rng):
    A = CrsMatrix.from_scipy(sp.diags_array(rng.uniform(1, 2, 700)))
    M = smoothed_aggregation(A)
    assert len(M.levels) == 1 and M.coarse is None
    assert cg(A, np.ones(700), M=M).converged.all()


def test_float32_hierarchy_under_float64_cg(rng):
    A = gallery.anisotropic((20, 20), 3)
    b = Ensemble(rng.standard_normal((400, 3)))
    narrow = cg(A, b, M=smoothed_aggregation(A, coarse_size=20, dtype=np.float32), rtol=1e-10)
    wide = cg(A, b, M=smoothed_aggregation(A, coarse_size=20), rtol=1e-10)
    assert narrow.converged.all() and narrow.x.dtype == np.float64
    assert np.all(narrow.iterations <= wide.iterations + 1)


def test_repr_is_the_level_table():
    text = repr(smoothed_aggregation(gallery.poisson((40, 40), 2)))
    assert "3 levels, 2 samples" in text and "direct" in text and "1600" in text


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ({"coarse_size": 0}, ValueError, "coarse_size must be an integer of at least 1; got 0"),
        ({"block_size": 7}, ValueError, "block_size must divide the 16 rows of A; got 7"),
        ({"damping": -1.0}, ValueError, "damping must be a finite number, zero or above"),
        ({"near_nullspace": np.full(16, np.nan)}, ValueError, "near_nullspace must be finite"),
    ],
)
def test_bad_options_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        smoothed_aggregation(gallery.poisson((4, 4)), **arguments)


def test_bad_matrices_are_refused():
    with pytest.raises(ValueError, match=r"A must be square; got shape \(2, 3\)"):
        smoothed_aggregation(CrsMatrix.from_scipy(sp.csr_array(np.ones((2, 3)))))
    with pytest.raises(ValueError, match=r"Chebyshev: ratio must be above 1; got 1.0"):
        Chebyshev(ratio=1.0)


@pytest.mark.parametrize("shape, rows", [((1000,), 38), ((50, 50), 54), ((20, 20), 70)], ids=str)
def test_a_small_problem_is_coarsened_until_its_inverse_is_cheap(shape, rows):
    """One inverse of 334 rows takes longer than all else in the set-up of 1000 unknowns."""
    M = smoothed_aggregation(gallery.poisson(shape))
    assert M.levels[-1].A.shape[0] == rows and M.levels[-1].smoother is None


def test_the_coarsest_level_depends_on_the_graph_alone():
    sizes = [
        [level.A.shape[0] for level in smoothed_aggregation(gallery.anisotropic((30, 30), n, strength=s)).levels]
        for n, s in ((1, 1.5), (1, 100.0), (40, 10.0))
    ]
    assert sizes[0] == sizes[1] == sizes[2]


def test_a_coarse_size_given_is_kept():
    M = smoothed_aggregation(gallery.poisson((1000,)), coarse_size=500)
    assert [level.A.shape[0] for level in M.levels] == [1000, 334]
    assert len(smoothed_aggregation(gallery.poisson((20, 20)), coarse_size=401).levels) == 1


def test_blocks_without_a_near_nullspace_take_one_constant_for_each_unknown_of_a_node():
    A, _ = elasticity()
    b = np.random.default_rng(60221).standard_normal(A.shape[0])
    constants = np.kron(np.ones((2500, 1)), np.eye(2))
    given = smoothed_aggregation(A, near_nullspace=constants, block_size=2)
    M = smoothed_aggregation(A, block_size=2)
    assert np.array_equal(M @ b, given @ b)
    assert cg(A, b, M=M, rtol=1e-8).iterations[0] <= 20
