"""Forms on bases of scikit-fem: the matrices and vectors of its own assembly, for all samples at once."""

import numpy as np
import pytest

from ensemble._kernels.fem import form_cuda
from ensemble._kernels.fem import forms as form_kernels
from ensemble.apps import fem
from ensemble.scalar import Ensemble
from tests import cuda_on_cpu
from tests.apps.fem.form_problems import advection, diffusion, elasticity, emulated, laplace, mass, mesh_of, values_of

skfem = pytest.importorskip("skfem")
helpers = pytest.importorskip("skfem.helpers")


def moved(mesh, seed=61223):
    """The mesh with its inner nodes moved, so that no two elements are alike."""
    inner = np.setdiff1d(np.arange(mesh.p.shape[1]), mesh.boundary_nodes())
    points = mesh.p.copy()
    points[:, inner] += np.random.default_rng(seed).uniform(-0.04, 0.04, (points.shape[0], inner.size))
    return type(mesh)(points, mesh.t).with_boundaries({"left": lambda x: x[0] == 0.0})


def axes(dim):
    return [np.linspace(0.0, 1.0, n) for n in (4, 5, 3)[:dim]]


def tetrahedra():
    mesh = mesh_of((2, 3, 2))
    made = skfem.MeshTet(np.ascontiguousarray(mesh.points.T), np.ascontiguousarray(mesh.tets.T), sort_t=False)
    return made.with_boundaries({"left": lambda x: x[0] == 0.0})


MESHES = {
    "Tri": moved(skfem.MeshTri.init_tensor(*axes(2))),
    "Quad": moved(skfem.MeshQuad.init_tensor(*axes(2))),
    "Tet": tetrahedra(),
    "Hex": moved(skfem.MeshHex.init_tensor(*axes(3))),
}
ELEMENTS = ["TriP1", "TriP2", "TetP1", "TetP2", "Quad1", "Hex1"]


def basis_of(name, make=skfem.Basis, vector=False, **options):
    element = getattr(skfem, f"Element{name}")()
    return make(MESHES[name.rstrip("P12")], skfem.ElementVector(element) if vector else element, **options)


def close(got, expected):
    """Equal to 1e-14 of the largest entry."""
    assert abs(got - expected).max() <= 1e-14 * abs(expected).max()


# --- matrices of elements
@pytest.mark.parametrize("name", ELEMENTS)
def test_laplace_and_mass_are_those_of_scikit_fem(name):
    basis = basis_of(name)
    space = fem.from_skfem(basis)
    expected = skfem.BilinearForm(lambda u, v, w: helpers.dot(u.grad, v.grad)).assemble(basis)
    close(laplace.assemble(space).to_scipy(), expected)
    close(mass.assemble(space).to_scipy(), skfem.BilinearForm(lambda u, v, w: u * v).assemble(basis))


@pytest.mark.parametrize("name", ELEMENTS)
def test_diffusion_with_a_coefficient_at_dofs_elements_or_points_is_that_of_scikit_fem(name, rng):
    basis = basis_of(name)
    space = fem.from_skfem(basis)
    form = skfem.BilinearForm(lambda u, v, w: w.kappa * helpers.dot(u.grad, v.grad))
    at_dofs, per_element = (rng.uniform(0.5, 2.0, (n, 2)) for n in (basis.N, basis.nelems))
    at_points = rng.uniform(0.5, 2.0, (*basis.dx.shape, 2))
    made = {
        "dofs": diffusion.assemble(space, kappa=fem.at_nodes(Ensemble(at_dofs))),
        "elements": diffusion.assemble(space, kappa=fem.per_element(Ensemble(per_element))),
        "points": diffusion.assemble(space, kappa=fem.at_points(Ensemble(at_points))),
    }
    for i in range(2):
        repeated = np.repeat(per_element[:, i, None], basis.dx.shape[1], axis=1)
        close(made["dofs"].to_scipy(i), form.assemble(basis, kappa=basis.interpolate(at_dofs[:, i])))
        close(made["elements"].to_scipy(i), form.assemble(basis, kappa=repeated))
        close(made["points"].to_scipy(i), form.assemble(basis, kappa=at_points[..., i]))


@pytest.mark.parametrize("name", ELEMENTS)
def test_advection_by_a_field_of_vector_dofs_is_that_of_scikit_fem(name, rng):
    basis, vectors = basis_of(name), basis_of(name, vector=True)
    dim = basis.mesh.dim()
    wind = rng.normal(size=vectors.N)
    form = skfem.BilinearForm(lambda u, v, w: helpers.dot(w.wind, u.grad) * v)
    got = advection.assemble(fem.from_skfem(basis), wind=fem.at_nodes(wind.reshape(-1, dim)))
    close(got.to_scipy(), form.assemble(basis, wind=vectors.interpolate(wind)))


@pytest.mark.parametrize("name", ["TriP1", "TriP2", "TetP1", "TetP2"])
def test_elasticity_of_vector_elements_has_the_dofs_of_scikit_fem(name, rng):
    basis = basis_of(name, vector=True, intorder=3)
    mu = rng.uniform(0.5, 2.0, basis.nelems)

    def both(u, v, w):
        e, d = helpers.sym_grad(u), helpers.sym_grad(v)
        return 2.0 * w.mu * helpers.ddot(e, d) + 1.5 * helpers.div(u) * helpers.div(v)

    expected = skfem.BilinearForm(both).assemble(basis, mu=np.repeat(mu[:, None], basis.dx.shape[1], axis=1))
    close(elasticity.assemble(fem.from_skfem(basis), mu=fem.per_element(mu), kappa=1.5).to_scipy(), expected)


@pytest.mark.parametrize("name", ELEMENTS)
def test_numbers_of_dofs_are_those_of_the_rows(name):
    for vector in (False, True):
        basis = basis_of(name, vector=vector)
        space = fem.from_skfem(basis)
        assert space.n_unknowns * space.n_components == basis.N
        dofs = space.unknowns[:, :, None] * space.n_components + np.arange(space.n_components)
        np.testing.assert_array_equal(dofs.reshape(basis.nelems, -1).T, basis.element_dofs)
        np.testing.assert_array_equal(space.boundary("left"), np.sort(basis.get_dofs("left").flatten()))
        np.testing.assert_array_equal(np.unique(basis.doflocs[0, space.boundary("left")]), [0.0])
    assert space.boundary().size > space.boundary("left").size > 0


@fem.bilinear_form
def scaled(u, v, w):
    return (w.h + w.x[0] * w.x[1]) * u * v


@pytest.mark.parametrize("name", ["TriP1", "Quad1", "Hex1"])
def test_sizes_and_coordinates_are_those_of_scikit_fem(name):
    basis = basis_of(name)
    expected = skfem.BilinearForm(lambda u, v, w: (w.h + w.x[0] * w.x[1]) * u * v).assemble(basis)
    close(scaled.assemble(fem.from_skfem(basis)).to_scipy(), expected)


def test_a_basis_of_some_elements_has_the_unknowns_of_all():
    basis = basis_of("TriP2", elements=np.array([3, 5, 6]))
    expected = skfem.BilinearForm(lambda u, v, w: u * v).assemble(basis)
    space = fem.from_skfem(basis)
    assert (space.n_elements, space.n_unknowns) == (3, basis.N)
    close(mass.assemble(space).to_scipy(), expected)


@pytest.mark.parametrize("name", ["TriP3", "TriMorley", "Quad2"])
def test_elements_of_other_kinds_are_taken(name):
    """Those of Morley have values that differ from element to element."""
    basis = skfem.Basis(MESHES[name[:3].replace("Qua", "Quad")], getattr(skfem, f"Element{name}")())
    close(mass.assemble(fem.from_skfem(basis)).to_scipy(), skfem.BilinearForm(lambda u, v, w: u * v).assemble(basis))


def test_curved_elements_have_their_own_determinants():
    basis = skfem.Basis(skfem.MeshTri2.init_circle(2), skfem.ElementTriP2())
    form = skfem.BilinearForm(lambda u, v, w: helpers.dot(u.grad, v.grad))
    close(laplace.assemble(fem.from_skfem(basis)).to_scipy(), form.assemble(basis))


# --- facets
@fem.bilinear_form
def robin(u, v, w):
    return w.alpha * u * v + fem.dot(w.n, fem.grad(u)) * v


@fem.linear_form
def boundary_load(v, w):
    return (w.g + w.x[0] + w.n[1]) * v + w.h * fem.dot(w.n, fem.grad(v))


@pytest.mark.parametrize("name", ELEMENTS)
def test_forms_on_facets_are_those_of_scikit_fem(name, rng):
    basis = basis_of(name, skfem.FacetBasis)
    space = fem.from_skfem(basis)
    assert space.shape.shape == (basis.nelems, *basis.dx.shape[1:], basis.Nbfun)  # of each facet its own
    alpha, g = rng.uniform(0.5, 2.0, basis.nelems), rng.uniform(0.5, 2.0, basis.N)
    repeated = np.repeat(alpha[:, None], basis.dx.shape[1], axis=1)
    form = skfem.BilinearForm(lambda u, v, w: w.alpha * u * v + helpers.dot(w.n, u.grad) * v)
    expected = form.assemble(basis, alpha=repeated)
    close(robin.assemble(space, alpha=fem.per_element(alpha)).to_scipy(), expected)
    close(mass.assemble(space).to_scipy(), skfem.BilinearForm(lambda u, v, w: u * v).assemble(basis))
    load = skfem.LinearForm(lambda v, w: (w.g + w.x[0] + w.n[1]) * v + w.h * helpers.dot(w.n, v.grad))
    got = boundary_load.assemble(space, g=fem.at_nodes(g)).samples[:, 0]
    close(got, load.assemble(basis, g=basis.interpolate(g)))


@pytest.mark.parametrize("name", ["TriP2", "Hex1"])
def test_tractions_on_facets_of_vector_elements_are_those_of_scikit_fem(name):
    basis = basis_of(name, skfem.FacetBasis, vector=True)
    traction = fem.linear_form(test="vector")(lambda v, w: w.x[0] * fem.dot(w.n, v) + w.h * v[1])
    expected = skfem.LinearForm(lambda v, w: w.x[0] * helpers.dot(w.n, v) + w.h * v[1]).assemble(basis)
    close(traction.assemble(fem.from_skfem(basis)).samples[..., 0].reshape(-1), expected)


def test_a_matrix_of_facets_is_added_to_one_of_elements():
    basis, facets = basis_of("TetP1"), basis_of("TetP1", skfem.FacetBasis)
    form = skfem.BilinearForm(lambda u, v, w: u * v)
    total = mass.assemble(fem.from_skfem(basis)) + mass.assemble(fem.from_skfem(facets))
    close(total.to_scipy(), form.assemble(basis) + form.assemble(facets))


# --- samples and other implementations
def problems(rng, n_samples):
    """(form, space, fields) with tables of all elements and of each."""
    cells, facets = fem.from_skfem(basis_of("TriP2")), fem.from_skfem(basis_of("TetP1", skfem.FacetBasis))
    vectors = fem.from_skfem(basis_of("Quad1", vector=True))

    def drawn(*shape):
        return Ensemble(rng.uniform(0.5, 2.0, (*shape, n_samples)))

    return [
        (diffusion, cells, {"kappa": fem.at_nodes(drawn(cells.n_unknowns))}),
        (robin, facets, {"alpha": fem.at_nodes(drawn(facets.n_unknowns))}),
        (boundary_load, facets, {"g": fem.per_element(drawn(facets.n_elements))}),
        (elasticity, vectors, {"mu": fem.at_points(drawn(*vectors.dx.shape)), "kappa": fem.per_element(1.5)}),
    ]


def sample_of(value, i):
    return fem.Field(value.values.sample(i), value.place) if isinstance(value.values, Ensemble) else value


@pytest.mark.parametrize("k", range(4))
def test_a_sample_has_the_bits_of_its_own_run(k):
    form, space, fields = problems(np.random.default_rng(8837), 5)[k]
    fields = {name: value for name, value in fields.items() if isinstance(value.values, Ensemble)}
    fields |= {"kappa": 1.5} if form is elasticity else {}
    together = values_of(form.assemble(space, **fields))
    for i in range(5):
        own = {name: sample_of(v, i) if isinstance(v, fem.Field) else v for name, v in fields.items()}
        np.testing.assert_array_equal(values_of(form.assemble(space, **own))[:, 0], together[:, i])


@pytest.mark.parametrize("k", range(4))
def test_the_reference_and_the_device_code_give_the_same_values(k, monkeypatch):
    form, space, fields = problems(np.random.default_rng(52259), 2)[k]
    fields |= {"kappa": 1.5} if form is elasticity else {}
    expected = values_of(form.assemble(space, **fields))
    largest = abs(expected).max()
    monkeypatch.setattr(form_kernels, "backend_of", lambda *arrays: "reference")
    np.testing.assert_allclose(values_of(form.assemble(space, **fields)), expected, rtol=0, atol=2e-14 * largest)
    if cuda_on_cpu.COMPILER is None:
        pytest.skip("no g++")
    monkeypatch.setattr(form_kernels, "backend_of", lambda *arrays: "cuda")
    monkeypatch.setattr(form_cuda, "_kernel", emulated)
    np.testing.assert_allclose(values_of(form.assemble(space, **fields)), expected, rtol=0, atol=4e-15 * largest)


# --- what is refused
def test_bases_without_scalar_functions_are_refused():
    mesh = MESHES["Tri"]
    for element in (skfem.ElementTriRT0(), skfem.ElementTriP2() * skfem.ElementTriP1()):
        with pytest.raises(ValueError, match="from_skfem: basis must be of an element of scalar functions with grad"):
            fem.from_skfem(skfem.Basis(mesh, element))
    with pytest.raises(ValueError, match=r"basis must have 2 components, one per axis, if .*; got 3"):
        fem.from_skfem(skfem.Basis(mesh, skfem.ElementVector(skfem.ElementTriP1(), 3)))
    with pytest.raises(TypeError, match="from_skfem: basis must be a basis of scikit-fem; got a MeshTri1"):
        fem.from_skfem(mesh)


def test_values_at_three_points_of_a_triangle_must_be_named():
    space = fem.from_skfem(basis_of("TriP1"))
    assert space.n_points == 3
    with pytest.raises(ValueError, match=r"which fits point and element\. Say which"):
        diffusion.assemble(space, kappa=np.ones((space.n_elements, 3)))
    with pytest.raises(ValueError, match=r"kappa must have 3 points per element, as the space; got 4\.$"):
        diffusion.assemble(space, kappa=np.ones((space.n_elements, 4)))


def test_a_scalar_form_on_a_vector_element_is_refused():
    """Its matrix has one row per node, and the basis two."""
    basis = skfem.Basis(skfem.MeshTri().refined(1), skfem.ElementVector(skfem.ElementTriP1()))
    with pytest.raises(ValueError, match="mass: functions must be vectors on this space; got scalars"):
        mass.assemble(fem.from_skfem(basis))
