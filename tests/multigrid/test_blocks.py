"""Hierarchies of matrices of blocks: elasticity with rigid-body modes."""

import numpy as np
import pytest

from ensemble.apps import fem
from ensemble.krylov import cg
from ensemble.linalg import BcrsMatrix, apply_dirichlet, norm
from ensemble.multigrid import EvolutionStrength, GaussSeidel, Jacobi, rigid_body_modes, smoothed_aggregation
from ensemble.scalar import Ensemble
from tests.apps.fem.form_problems import elasticity

YOUNG = np.array([1e9, 2.1e11, 7e10, 3.0])
"""In Pa, per sample."""


def cantilever(cells, young=YOUNG, shuffled=False):
    """A beam of Poisson's ratio 0.3, fixed at x = 0 and pulled down at its end: matrix, right-hand side, points."""
    mesh = fem.TetMesh.box(cells, lengths=tuple(n / 8 for n in cells))
    mesh = mesh.renumbered("shuffled", seed=4903) if shuffled else mesh
    E, nu = Ensemble(np.asarray(young)), 0.3
    A = elasticity.assemble(mesh, mu=E / (2 * (1 + nu)), kappa=E * nu / ((1 + nu) * (1 - 2 * nu)))
    x = mesh.points[:, 0]
    fixed = np.flatnonzero(x < 1e-12)
    b = np.zeros((mesh.n_nodes, 3))
    b[x > x.max() - 1e-12, 2] = -1.0
    rows = (3 * fixed[:, None] + np.arange(3)).reshape(-1)
    return *apply_dirichlet(A, b.reshape(-1), rows), mesh.points


@pytest.fixture(scope="module")
def problem():
    return cantilever((8, 8, 8))


def test_elasticity_converges_in_few_iterations_and_each_sample_as_alone(problem):
    A, b, points = problem
    B = rigid_body_modes(points)
    hierarchy = smoothed_aggregation(A, near_nullspace=B)
    assert isinstance(hierarchy.levels[0].A, BcrsMatrix)
    assert isinstance(hierarchy.levels[0].smoother.A, BcrsMatrix)
    result = cg(A, b, M=hierarchy, rtol=1e-8)
    assert result.converged.all() and result.iterations.max() <= 25
    assert (norm(A @ result.x - b).samples <= 1e-8 * np.linalg.norm(b)).all()
    for i in (0, 3):
        alone = cg(A.sample(i), b, M=smoothed_aggregation(A.sample(i), near_nullspace=B), rtol=1e-8)
        assert alone.iterations[0] == result.iterations[i]
        np.testing.assert_array_equal(alone.x, result.x.sample(i))


def test_iterations_hardly_grow_with_the_length_of_the_beam(problem):
    A, b, points = cantilever((20, 6, 6), young=[1.0])
    hierarchy = smoothed_aggregation(A, near_nullspace=rigid_body_modes(points))
    assert cg(A, b, M=hierarchy, rtol=1e-8).iterations.max() <= 30
    plain = smoothed_aggregation(A)
    assert cg(A, b, M=plain, rtol=1e-8).iterations.max() > cg(A, b, M=hierarchy, rtol=1e-8).iterations.max()


def test_blocks_give_the_iterations_of_the_entries(problem):
    A, b, points = problem
    options = {"near_nullspace": rigid_body_modes(points), "dtype": np.float64}
    entries = A.to_crs()
    expected = cg(entries, b, M=smoothed_aggregation(entries, block_size=3, **options), rtol=1e-8)
    result = cg(A, b, M=smoothed_aggregation(A, **options), rtol=1e-8)
    np.testing.assert_array_equal(result.iterations, expected.iterations)
    size = abs(expected.x.samples).max(axis=0)
    np.testing.assert_allclose(result.x.samples / size, expected.x.samples / size, rtol=0, atol=1e-10)


def test_a_hierarchy_takes_new_values_and_samples(problem):
    A, _, points = problem
    B = rigid_body_modes(points)
    hierarchy = smoothed_aggregation(A.take_samples([1, 0, 3, 2]), near_nullspace=B).update(A)
    fresh = smoothed_aggregation(A, near_nullspace=B)
    r = np.random.default_rng(3391).standard_normal((A.shape[0], 4))
    np.testing.assert_array_equal((hierarchy @ Ensemble(r)).samples, (fresh @ Ensemble(r)).samples)
    part = fresh.take_samples(np.array([2, 0]))
    np.testing.assert_array_equal((part @ Ensemble(r[:, [2, 0]])).samples, (fresh @ Ensemble(r)).samples[:, [2, 0]])
    with pytest.raises(ValueError, match="graph the hierarchy was built for"):
        fresh.update(cantilever((3, 3, 3))[0])


def test_scattered_nodes_are_put_in_order():
    A, b, points = cantilever((10, 9, 9), young=[1.0, 5.0], shuffled=True)
    B = rigid_body_modes(points)
    hierarchy = smoothed_aggregation(A, near_nullspace=B)
    assert type(hierarchy).__name__ == "ReorderedHierarchy"
    kept = cg(A, b, M=smoothed_aggregation(A, near_nullspace=B, reorder=False), rtol=1e-8)
    result = cg(A, b, M=hierarchy, rtol=1e-8)
    assert result.converged.all() and abs(result.iterations - kept.iterations).max() <= 3
    size = abs(kept.x.samples).max(axis=0)
    np.testing.assert_allclose(result.x.samples / size, kept.x.samples / size, rtol=0, atol=1e-5)
    again = cg(A, b, M=hierarchy.update(A), rtol=1e-8)
    np.testing.assert_array_equal(again.x.samples, result.x.samples)


@pytest.mark.parametrize(
    "options", [{"smoother": GaussSeidel()}, {"smoother": Jacobi()}, {"strength": 0.01}, {"strength": "auto"}]
)
def test_other_options_are_taken(options):
    A, b, points = cantilever((6, 4, 4), young=[1.0, 2.0])
    hierarchy = smoothed_aggregation(A, near_nullspace=rigid_body_modes(points), coarse_size=100, **options)
    assert cg(A, b, M=hierarchy, rtol=1e-8).converged.all()
    assert cg(A, b, M=hierarchy.update(A), rtol=1e-8).converged.all()


def test_a_shared_matrix_of_blocks_serves_many_right_hand_sides():
    A, b, points = cantilever((4, 4, 4), young=[2.0])
    sides = Ensemble(np.stack([b, 3.0 * b], axis=1))
    result = cg(A, sides, M=smoothed_aggregation(A, near_nullspace=rigid_body_modes(points)), rtol=1e-8)
    assert result.converged.all() and A.n_samples == 1


# --- rigid-body modes
@pytest.mark.parametrize("dim", [2, 3])
def test_rigid_body_modes_have_no_strain(dim, rng):
    points = rng.standard_normal((12, dim))
    modes = rigid_body_modes(points).reshape(12, dim, -1)
    assert modes.shape[2] == {2: 3, 3: 6}[dim]
    assert np.linalg.matrix_rank(modes.reshape(12 * dim, -1)) == modes.shape[2]
    apart = points[:, None] - points[None]
    for j in range(modes.shape[2]):  # distances do not change to first order
        u = modes[:, :, j]
        np.testing.assert_allclose(np.sum((u[:, None] - u[None]) * apart, axis=2), 0.0, atol=1e-14)


def test_stiffness_annihilates_rigid_body_modes():
    mesh = fem.TetMesh.box((3, 2, 2), jitter=0.1)
    A = elasticity.assemble(mesh, mu=1.0, kappa=1.5)
    np.testing.assert_allclose(A @ rigid_body_modes(mesh.points), 0.0, atol=1e-13)


def test_bad_input_is_refused(problem):
    A, _, points = problem
    with pytest.raises(ValueError, match="have shape"):
        rigid_body_modes(points[:, 0])
    with pytest.raises(ValueError, match="be finite"):
        rigid_body_modes(np.full((3, 3), np.nan))
    with pytest.raises(ValueError, match="block_size must be 3"):
        smoothed_aggregation(A, block_size=9)
    with pytest.raises(ValueError, match="be square"):
        smoothed_aggregation(BcrsMatrix(A.graph, np.ones((A.graph.nnz, 1, 3))))
    with pytest.raises(ValueError, match="got 3 vectors, block_size 3"):
        smoothed_aggregation(A, strength=EvolutionStrength())
