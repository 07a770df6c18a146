"""Forms on boundary facets: the divergence theorem, scikit-fem's facet bases, and the places of rows."""

import copy
import pickle

import numpy as np
import pytest

from ensemble._kernels.fem import form_cuda
from ensemble._kernels.fem import forms as form_kernels
from ensemble.apps import fem
from ensemble.scalar import Ensemble
from tests import cuda_on_cpu
from tests.apps.fem.form_problems import emulated, laplace, mass, mesh_of, values_of

skfem = pytest.importorskip("skfem")
helpers = pytest.importorskip("skfem.helpers")


@pytest.fixture(scope="module")
def mesh():
    return mesh_of()


@pytest.fixture(scope="module")
def facet_basis(mesh):
    made = skfem.MeshTet(np.ascontiguousarray(mesh.points.T), np.ascontiguousarray(mesh.tets.T), sort_t=False)
    return skfem.FacetBasis(made, skfem.ElementTetP1(), facets=made.facets_satisfying(low, True), intorder=4)


def low(x):
    """A condition on midpoints that scikit-fem takes."""
    return x[2] + x[0] < 0.9


def left(x, y, z):
    return x == 0.0


def close(got, expected):
    """Equal to 1e-14 of the largest entry."""
    assert abs(got - expected).max() <= 1e-14 * abs(expected).max()


@fem.bilinear_form
def robin(u, v, w):
    return w.alpha * u * v


@fem.bilinear_form
def nitsche(u, v, w):
    return w.alpha / w.h * u * v - fem.dot(w.n, fem.grad(u)) * v - fem.dot(w.n, fem.grad(v)) * u


@fem.linear_form
def outflow(v, w):
    x, y, z = w.x
    return (x**3 * y * w.n[0] + (y**2 - x * z) * w.n[1] + z**3 * x * w.n[2]) * v


@fem.linear_form
def divergence_of_flow(v, w):
    x, y, z = w.x
    return (3 * x**2 * y + 2 * y + 3 * z**2 * x) * v


# --- calculus
def test_the_divergence_theorem_holds(mesh):
    inside = divergence_of_flow.assemble(mesh).samples.sum()
    assert outflow.assemble(fem.BoundarySpace(mesh)).samples.sum() == pytest.approx(inside, rel=1e-13)


def test_greens_identity_holds_for_every_test_function(mesh):
    """The outflow of the gradient of a linear function, against the integral over elements."""
    u = mesh.points @ [0.7, -1.3, 2.1] + 0.4
    through = fem.linear_form(lambda v, w: fem.dot(w.n, fem.grad(w.u)) * v)
    got = through.assemble(fem.BoundarySpace(mesh, gradients=True), u=u).samples[:, 0]
    np.testing.assert_allclose(got, laplace.assemble(mesh).to_scipy() @ u, rtol=0, atol=1e-14)


def test_a_robin_condition_alone_fixes_the_solution(mesh):
    """-div grad u = 0 with u + du/dn = 2 on the boundary has the solution u = 2."""
    boundary = fem.BoundarySpace(mesh)
    A = laplace.assemble(mesh) + robin.assemble(boundary, alpha=1.0)
    b = fem.linear_form(lambda v, w: w.g * v).assemble(boundary, g=2.0)
    u = np.linalg.solve(A.to_scipy().toarray(), b.samples[:, 0])
    np.testing.assert_allclose(u, 2.0, rtol=1e-12)


# --- against scikit-fem
def test_robin_and_flux_matrices_are_those_of_scikit_fem(mesh, facet_basis, rng):
    space = fem.BoundarySpace(mesh, lambda x, y, z: low((x, y, z)))
    assert 0 < space.n_elements == facet_basis.nelems < len(mesh.boundary_facets)
    alpha = rng.uniform(0.5, 2.0, (mesh.n_nodes, 2))
    got = robin.assemble(space, alpha=Ensemble(alpha))
    full = fem.BoundarySpace(mesh, space.facets, gradients=True)
    coupled = nitsche.assemble(full, alpha=Ensemble(alpha))
    form = skfem.BilinearForm(lambda u, v, w: w.alpha * u * v)
    normal = skfem.BilinearForm(
        lambda u, v, w: w.alpha / w.h * u * v - helpers.dot(w.n, u.grad) * v - helpers.dot(w.n, v.grad) * u
    )
    for i in range(2):
        given = facet_basis.interpolate(alpha[:, i])
        close(got.to_scipy(i), form.assemble(facet_basis, alpha=given))
        close(coupled.to_scipy(i), normal.assemble(facet_basis, alpha=given))


def test_boundary_loads_are_those_of_scikit_fem(mesh, facet_basis):
    space = fem.BoundarySpace(mesh, lambda x, y, z: low((x, y, z)))
    traction = fem.linear_form(test="vector")(lambda v, w: w.x[0] * fem.dot(w.n, v) + w.h * v[1])
    vectors = facet_basis.with_element(skfem.ElementVector(skfem.ElementTetP1()))
    expected = skfem.LinearForm(lambda v, w: w.x[0] * helpers.dot(w.n, v) + w.h * v[1]).assemble(vectors)
    close(traction.assemble(space).samples[..., 0].reshape(-1), expected)


# --- rows, samples, other implementations
def test_rows_of_other_nodes_are_empty(mesh):
    A = mass.assemble(fem.BoundarySpace(mesh, left)).to_scipy()
    assert A.shape == (mesh.n_nodes, mesh.n_nodes)
    np.testing.assert_array_equal(np.flatnonzero(np.diff(A.indptr)), mesh.boundary_nodes(left))
    np.testing.assert_array_equal(mesh.boundary_nodes(left), mesh.nodes_where(left))


def test_facets_have_elements_areas_and_normals(mesh):
    space = fem.BoundarySpace(mesh, left)
    np.testing.assert_array_equal(space.normals, np.broadcast_to([-1.0, 0.0, 0.0], (space.n_elements, 3)))
    assert space.areas.sum() == pytest.approx(1.5 * 0.8, rel=1e-14)
    corners = mesh.tets[space.elements]
    assert (corners[:, :, None] == space.nodes[:, None]).any(axis=1).all()


def test_merged_nodes_share_an_unknown(mesh, rng):
    numbers = np.minimum(np.arange(mesh.n_nodes), 7)
    alpha = rng.uniform(0.5, 2.0, mesh.n_nodes)
    P = np.eye(8)[numbers]
    expected = P.T @ robin.assemble(fem.BoundarySpace(mesh), alpha=alpha).to_scipy() @ P
    got = robin.assemble(fem.BoundarySpace(mesh, None, numbers), alpha=alpha).to_scipy().toarray()
    close(got, expected)


@pytest.mark.parametrize("gradients", [False, True])
def test_samples_the_reference_and_the_device_code_agree(mesh, rng, gradients, monkeypatch):
    space, alpha = fem.BoundarySpace(mesh, gradients=gradients), Ensemble(rng.uniform(0.5, 2.0, (mesh.n_nodes, 5)))
    form = nitsche if gradients else robin
    expected = values_of(form.assemble(space, alpha=alpha))
    for i in range(5):
        own = values_of(form.assemble(space, alpha=alpha.sample(i)))
        np.testing.assert_array_equal(own[:, 0], expected[:, i])
    atol = 2e-14 * abs(expected).max()
    monkeypatch.setattr(form_kernels, "backend_of", lambda *arrays: "reference")
    np.testing.assert_allclose(values_of(form.assemble(space, alpha=alpha)), expected, rtol=0, atol=atol)
    if cuda_on_cpu.COMPILER is None:
        pytest.skip("no g++")
    monkeypatch.setattr(form_kernels, "backend_of", lambda *arrays: "cuda")
    monkeypatch.setattr(form_cuda, "_kernel", emulated)
    np.testing.assert_allclose(values_of(form.assemble(space, alpha=alpha)), expected, rtol=0, atol=atol / 5)


# --- what is refused
def test_gradients_on_facets_must_be_chosen(mesh):
    space = fem.BoundarySpace(mesh)
    wanted = r"must take no gradients on this BoundarySpace; got grad or div. Make it by .*gradients=True"
    with pytest.raises(ValueError, match="laplace: the integrand " + wanted):
        laplace.assemble(space)
    with pytest.raises(ValueError, match=wanted):
        fem.linear_form(lambda v, w: fem.grad(w.f)[0] * v).assemble(space, f=mesh.points[:, 0])
    with pytest.raises(AttributeError, match="field 'n' must be passed"):
        outflow.assemble(mesh)


@pytest.mark.parametrize(
    ("facets", "expected"),
    [
        (lambda x, y, z: x > 9.0, "facets must choose a facet; got none"),
        (lambda x, y, z: x, r"facets_where: condition must give 104 bools, one per boundary facet; got float64"),
        ([0, 104], "facets must be different numbers from 0 to 103; got 0 to 104"),
        ([1, 1], "facets must be different numbers from 0 to 103; got int64"),
        ([0.5], "facets must be different numbers .*; got float64"),
    ],
)
def test_facets_that_are_none_are_refused(mesh, facets, expected):
    with pytest.raises(ValueError, match=expected):
        fem.BoundarySpace(mesh, facets)


def test_facets_are_chosen_by_bools():
    mesh = fem.TetMesh.box(2)
    number = mesh.facets_where(lambda x, y, z: z == 1.0)
    chosen = np.isin(np.arange(len(mesh.boundary_facets)), number)
    np.testing.assert_array_equal(fem.BoundarySpace(mesh, chosen).facets, number)
    with pytest.raises(ValueError, match="BoundarySpace: facets must choose a facet; got none"):
        fem.BoundarySpace(mesh, [])
    with pytest.raises(ValueError, match="BoundarySpace: facets must be different numbers"):
        fem.BoundarySpace(mesh, chosen[:-1])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda space: pickle.loads(pickle.dumps(space))])
@pytest.mark.parametrize("make", [lambda mesh: mesh, fem.BoundarySpace])
def test_a_copy_of_a_mesh_or_space_holds_nothing_that_was_worked_out(mesh, make, copied):
    """A process of `propagate` receives such a copy. Copies on a device are found by the identity of arrays."""
    space = make(mesh)
    expected = mass.assemble(space)
    again = copied(space)
    assert again.__dict__.keys() < space.__dict__.keys()
    made = mass.assemble(again)
    assert made.graph.same_as(expected.graph) and made.graph is not expected.graph
    np.testing.assert_array_equal(made.values, expected.values)


@pytest.mark.parametrize("make", [fem.BoundarySpace, fem.LinearSpace, fem.mass_matrix])
def test_bare_arrays_are_no_mesh(mesh, make):
    with pytest.raises(TypeError, match=r"mesh must be a TetMesh.*; got a TetArrays"):
        make(fem.TetArrays(mesh.points, mesh.tets))
