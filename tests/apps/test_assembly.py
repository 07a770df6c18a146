"""Jacobian and residual: against scikit-fem, against the reference kernels, and by the laws of the method."""

import array_api_strict
import numpy as np
import pytest
import scipy.sparse
import skfem
from skfem.helpers import dot

from ensemble._kernels.fem.assembly import affine_coefficient, diffusion_jacobian_and_residual
from ensemble.apps.fem import HexMesh, exponential_covariance
from ensemble.apps.fem.discretization import Discretization

CELLS = (3, 4, 2)
EQUATIONS = [(0.0, 0.0), (1.0, 0.0), (0.7, -0.4)]


def discretize(source, advection, cells=CELLS):
    field = exponential_covariance(4, 0.5)
    return Discretization(HexMesh.box(cells, grading=1.0), field, 1.0, 0.3, source, advection)


def random_state(problem, n_samples, seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = rng.uniform(-1.0, 1.0, (4, n_samples)).astype(dtype)
    return y, rng.uniform(1.0, 2.0, (problem.mesh.n_nodes, n_samples)).astype(dtype)


def matrix_of(problem, values, sample):
    return scipy.sparse.csr_array((values[:, sample], problem.graph.indices, problem.graph.indptr))


@pytest.fixture(params=EQUATIONS, ids=lambda e: f"source={e[0]},advection={e[1]}")
def equation(request):
    return request.param


def by_scikit_fem(problem, field, y, u, source, advection):
    """The Jacobian and residual of one sample without boundary conditions, nodes in our order."""
    mesh = skfem.MeshHex.init_tensor(*problem.mesh.axes)
    basis = skfem.Basis(mesh, skfem.ElementHex1(), intorder=3)  # two Gauss points a direction
    key = lambda points: np.lexsort(np.round(points, 9))
    ours, theirs = key(problem.mesh.points.T), key(mesh.p)
    order = np.empty_like(ours)
    order[ours] = theirs
    modes = 0.3 * np.sqrt(field.eigenvalues)

    def kappa(x):
        return 1.0 + (field.modes_at(x.reshape(3, -1).T) @ (modes * y)).reshape(x.shape[1:])

    @skfem.BilinearForm
    def linear(v, w, context):
        x = context.x
        flow = advection * sum(v.grad) * w
        return kappa(x) * dot(v.grad, w.grad) + flow

    @skfem.BilinearForm
    def reaction(v, w, context):
        return source * context.u * v * w

    at = np.empty_like(u)
    at[order] = u
    K = linear.assemble(basis)
    M = reaction.assemble(basis, u=basis.interpolate(at))
    jacobian = (K + 2.0 * M).tocsr()[order][:, order]
    return jacobian, (K @ at + M @ at)[order]


def test_agrees_with_scikit_fem(equation):
    problem, field = discretize(*equation), exponential_covariance(4, 0.5)
    y, u = random_state(problem, 2, seed=30517)
    values, residual = problem.jacobian_and_residual(problem.coefficient(y), u)
    free = ~problem.fixed
    for s in range(2):
        expected, r = by_scikit_fem(problem, field, y[:, s], u[:, s], *equation)
        got = matrix_of(problem, values, s).toarray()
        # 64 terms of size about 1 meet in an entry, 512 in a residual.
        inner = np.ix_(free, free)
        np.testing.assert_allclose(got[inner], expected.toarray()[inner], rtol=0, atol=64 * 2e-16)
        np.testing.assert_allclose(residual[free, s], r[free], rtol=0, atol=512 * 2e-16)


def test_the_residual_alone_has_the_bits_of_the_one_pass(equation):
    problem = discretize(*equation)
    y, u = random_state(problem, 3, seed=60607)
    kappa = problem.coefficient(y)
    np.testing.assert_array_equal(problem.residual(kappa, u), problem.jacobian_and_residual(kappa, u)[1])


def test_references_are_written_in_the_array_api(equation):
    xp = array_api_strict
    problem = discretize(*equation, cells=(2, 1, 2))
    y, u = random_state(problem, 2, seed=11213)
    mean, modes, shared = problem.tables(y.dtype)
    graph = (problem.graph.indptr, problem.graph.indices, problem.slots)
    lift = lambda arrays: [xp.asarray(a) for a in arrays]
    kappa = affine_coefficient(*lift((mean, modes, y)), None)
    values, residual = diffusion_jacobian_and_residual(*lift(shared), kappa, xp.asarray(u), *lift(graph), None, None)
    expected, r = problem.jacobian_and_residual(problem.coefficient(y), u)
    np.testing.assert_array_equal(np.asarray(values), expected)
    np.testing.assert_array_equal(np.asarray(residual), r)


@pytest.mark.parametrize("n_samples", [1, 3, 8, 32, 33])
def test_a_sample_sees_only_itself(n_samples):
    problem = discretize(0.7, -0.4)
    y, u = random_state(problem, n_samples, seed=41039)
    values, residual = problem.jacobian_and_residual(problem.coefficient(y), u)
    for s in {0, n_samples // 2, n_samples - 1}:
        alone = [np.ascontiguousarray(array[:, s : s + 1]) for array in (y, u)]
        v, r = problem.jacobian_and_residual(problem.coefficient(alone[0]), alone[1])
        np.testing.assert_array_equal(values[:, s], v[:, 0])
        np.testing.assert_array_equal(residual[:, s], r[:, 0])


def test_nan_stays_in_its_sample():
    problem = discretize(1.0, 0.0)
    y, u = random_state(problem, 5, seed=51001)
    clean = problem.jacobian_and_residual(problem.coefficient(y), u)
    y[1, 3] = np.nan
    values, residual = problem.jacobian_and_residual(problem.coefficient(y), u)
    others = [0, 1, 2, 4]
    np.testing.assert_array_equal(values[:, others], clean[0][:, others])
    np.testing.assert_array_equal(residual[:, others], clean[1][:, others])
    assert np.isnan(values[:, 3]).any()


def test_buffers_are_written_in_place():
    problem = discretize(1.0, 0.0)
    y, u = random_state(problem, 3, seed=20903)
    kappa, values = problem.coefficient(y), np.full((problem.graph.indices.size, 3), np.nan)
    got, residual = problem.jacobian_and_residual(kappa, u, values)
    assert got is values
    fresh, r = problem.jacobian_and_residual(kappa, u)
    np.testing.assert_array_equal(values, fresh)
    np.testing.assert_array_equal(residual, r)


def test_diffusion_is_symmetric_and_kills_constants():
    problem = discretize(0.0, 0.0)
    y, u = random_state(problem, 2, seed=77017)
    free = ~problem.fixed
    kappa = problem.coefficient(y)
    values, _ = problem.jacobian_and_residual(kappa, u)
    A = matrix_of(problem, values, 1)
    # The same 64 products meet in a_ij and a_ji, in another order of cells.
    assert abs(A - A.T).max() < 64 * 2e-16
    ones = np.ones_like(u)
    np.testing.assert_allclose(problem.residual(kappa, ones), 0.0, rtol=0, atol=512 * 2e-16)
    inner = free & ~np.isin(
        np.arange(free.size), problem.graph.indices[np.repeat(problem.fixed, np.diff(problem.graph.indptr))]
    )
    np.testing.assert_allclose((A @ ones[:, 0])[inner], 0.0, rtol=0, atol=512 * 2e-16)


def test_fixed_nodes_have_identity_rows_and_columns(equation):
    problem = discretize(*equation)
    y, u = random_state(problem, 2, seed=90001)
    values, residual = problem.jacobian_and_residual(problem.coefficient(y), u)
    A = matrix_of(problem, values, 0).toarray()
    fixed = np.flatnonzero(problem.fixed)
    np.testing.assert_array_equal(A[fixed], np.eye(problem.mesh.n_nodes)[fixed])
    np.testing.assert_array_equal(A[:, fixed], np.eye(problem.mesh.n_nodes)[:, fixed])
    assert not residual[fixed].any()


def test_patch_a_linear_u_has_no_residual():
    problem = Discretization(HexMesh.box(CELLS, grading=-1.5), exponential_covariance(1, 1.0), 2.0, 0.0, 0.0, 0.0)
    x = problem.mesh.points
    u = (1.0 + x @ np.array([[0.0], [0.0], [3.0]])) @ np.ones((1, 4))
    kappa = problem.coefficient(np.zeros((1, 4)))
    # Free faces in x and y: only a u that is linear in z carries no flux through them.
    np.testing.assert_allclose(problem.residual(kappa, u), 0.0, rtol=0, atol=512 * 6 * 2e-16)


def test_jacobian_is_the_derivative_of_the_residual(equation):
    problem = discretize(*equation)
    y, u = random_state(problem, 2, seed=13007)
    kappa = problem.coefficient(y)
    values, _ = problem.jacobian_and_residual(kappa, u)
    step = np.where(problem.fixed[:, None], 0.0, np.random.default_rng(80021).normal(size=u.shape))
    # The residual is quadratic in u: the central difference is exact but for round-off.
    difference = 0.5 * (problem.residual(kappa, u + step) - problem.residual(kappa, u - step))
    for s in range(2):
        np.testing.assert_allclose(matrix_of(problem, values, s) @ step[:, s], difference[:, s], rtol=0, atol=1e-13)


def test_the_bound_clears_a_safe_field_and_names_an_unsafe_point():
    problem = Discretization(HexMesh.box(4, grading=1.0), exponential_covariance(3, 0.25), 1.0, 1.0, 0.0, 0.0)
    y = np.zeros((3, 4))
    y[:, 1] = np.nan
    problem.require_positive(y, "solve")
    y[:, 2] = -2.0
    kappa = problem.coefficient(y)[:, 2]
    point = int(kappa.argmin())
    place = ", ".join(f"{c:.4g}" for c in problem.mesh.gauss_point(point // 8, point % 8))
    with pytest.raises(ValueError, match=r"solve: y must keep the diffusivity above zero") as caught:
        problem.require_positive(y, "solve")
    assert f"kappa = {kappa[point]:.4g} in sample 2 at ({place})" in str(caught.value)
