"""Forms on tetrahedra: against scikit-fem, against calculus, and each sample against its own run."""

import array_api_strict as strict
import numpy as np
import pytest
import scipy.sparse.linalg as spla

from ensemble._kernels.fem import forms as form_kernels
from ensemble.apps import fem
from ensemble.linalg import BcrsMatrix
from ensemble.scalar import Ensemble, SampleSet
from tests.apps.fem.form_problems import (
    CASES,
    WITHOUT_FIELDS,
    advection,
    cases,
    diffusion,
    divergence,
    elasticity,
    flux,
    laplace,
    load,
    mass,
    mesh_of,
    momentum,
    stabilised,
    tensor_diffusion,
    values_of,
)

skfem = pytest.importorskip("skfem")
helpers = pytest.importorskip("skfem.helpers")


@pytest.fixture(scope="module")
def mesh():
    return mesh_of()


@pytest.fixture(scope="module")
def basis(mesh):
    made = skfem.MeshTet(np.ascontiguousarray(mesh.points.T), np.ascontiguousarray(mesh.tets.T), sort_t=False)
    np.testing.assert_array_equal(made.t.T, mesh.tets)
    return skfem.Basis(made, skfem.ElementTetP1(), intorder=4)


def close(matrix, expected, i=0):
    """Equal to 1e-14 of the largest entry."""
    assert abs(matrix.to_scipy(i) - expected).max() <= 1e-14 * abs(expected).max()


# --- against scikit-fem on the same mesh
def test_laplace_and_mass_equal_scikit_fem(mesh, basis):
    close(laplace.assemble(mesh), skfem.BilinearForm(lambda u, v, w: helpers.dot(u.grad, v.grad)).assemble(basis))
    close(mass.assemble(mesh), skfem.BilinearForm(lambda u, v, w: u * v).assemble(basis))


def test_fields_at_nodes_and_elements_equal_scikit_fem(mesh, basis, rng):
    kappa, wind = rng.uniform(0.5, 2, (mesh.n_elements, 3)), rng.normal(size=(mesh.n_nodes, 3, 3))
    per_element, at_nodes = (
        diffusion.assemble(mesh, kappa=Ensemble(kappa)),
        advection.assemble(mesh, wind=Ensemble(wind)),
    )
    n_points = basis.X.shape[1]
    for i in range(3):
        k = np.repeat(kappa[:, i, None], n_points, axis=1)
        close(
            per_element, skfem.BilinearForm(lambda u, v, w: w.k * helpers.dot(u.grad, v.grad)).assemble(basis, k=k), i
        )
        w = {name: basis.interpolate(wind[:, d, i]) for d, name in enumerate("abc")}
        form = skfem.BilinearForm(lambda u, v, w: (w.a * u.grad[0] + w.b * u.grad[1] + w.c * u.grad[2]) * v)
        close(at_nodes, form.assemble(basis, **w), i)


def test_coordinates_and_gradients_of_fields_equal_scikit_fem(mesh, basis, rng):
    potential, wind = rng.normal(size=mesh.n_nodes), rng.normal(size=(mesh.n_nodes, 3))
    h = np.repeat(np.cbrt(6 * mesh.volumes)[:, None], basis.X.shape[1], axis=1)
    fields = {"p": basis.interpolate(potential), "hh": h}
    fields |= {name: basis.interpolate(wind[:, d]) for d, name in enumerate("abc")}
    expected = skfem.LinearForm(
        lambda v, w: helpers.dot(w.p.grad, v.grad) * w.hh + (w.a.grad[0] + w.b.grad[1] + w.c.grad[2]) * v
    ).assemble(basis, **fields)
    got = flux.assemble(mesh, potential=potential, wind=wind).samples[:, 0]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-14 * abs(expected).max())
    expected = skfem.LinearForm(lambda v, w: (w.x[0] ** 2 + 2.0) * v).assemble(basis)
    got = load.assemble(mesh, source=2.0).samples[:, 0]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-14 * abs(expected).max())


def test_vector_forms_equal_scikit_fem(mesh, basis, rng):
    vectors = basis.with_element(skfem.ElementVector(skfem.ElementTetP1()))
    mu = rng.uniform(0.5, 2, mesh.n_elements)

    def both(u, v, w):
        e, d = helpers.sym_grad(u), helpers.sym_grad(v)
        return 2.0 * w.mu * helpers.ddot(e, d) + 1.5 * helpers.div(u) * helpers.div(v)

    given = np.repeat(mu[:, None], vectors.X.shape[1], axis=1)
    close(elasticity.assemble(mesh, mu=mu, kappa=1.5), skfem.BilinearForm(both).assemble(vectors, mu=given))
    expected = skfem.BilinearForm(lambda u, v, w: helpers.div(u) * v).assemble(vectors, basis)
    close(divergence.assemble(mesh), expected)


# --- calculus
def test_stiffness_is_symmetric_with_zero_row_sums_and_mass_sums_to_the_volume(mesh, rng):
    tensor = rng.normal(size=(mesh.n_elements, 3, 3))
    tensor = tensor @ np.swapaxes(tensor, 1, 2)
    K = fem.stiffness_matrix(mesh, tensor).to_scipy().toarray()
    np.testing.assert_allclose(K, K.T, rtol=0, atol=1e-15 * abs(K).max())
    np.testing.assert_allclose(K.sum(axis=1), 0.0, atol=1e-14 * abs(K).max())
    assert fem.mass_matrix(mesh).values.sum() == pytest.approx(1.0 * 1.5 * 0.8, rel=1e-14)
    assert fem.mass_matrix(mesh, density=3.0).values.sum() == pytest.approx(3.6, rel=1e-14)


@pytest.mark.parametrize("n_samples", [1, 5])
def test_linear_functions_pass_the_patch_test_in_every_sample(mesh, rng, n_samples):
    tensor = rng.normal(size=(3, 3, n_samples))
    K = fem.stiffness_matrix(mesh, Ensemble(tensor))
    u = mesh.points @ [0.7, -1.3, 2.1] + 0.4
    inner = np.setdiff1d(np.arange(mesh.n_nodes), mesh.boundary_nodes())
    assert inner.size
    residual = (K @ Ensemble(u[:, None])).samples[inner]
    np.testing.assert_allclose(residual, 0.0, atol=1e-13 * abs(K.values).max() * abs(u).max())


def exact(x, y, z):
    return np.sin(np.pi * x) * np.sin(np.pi * y) * np.sin(np.pi * z)


@fem.linear_form(degree=4)
def squared_error(v, w):
    return (w.u - exact(*w.x)) ** 2 * v


@fem.linear_form(degree=4)
def squared_gradient_error(v, w):
    g, (x, y, z) = fem.grad(w.u), (np.pi * c for c in w.x)
    parts = (
        g[0] - np.pi * np.cos(x) * np.sin(y) * np.sin(z),
        g[1] - np.pi * np.sin(x) * np.cos(y) * np.sin(z),
        g[2] - np.pi * np.sin(x) * np.sin(y) * np.cos(z),
    )
    return fem.dot(parts, parts) * v


@fem.linear_form
def source_of_exact(v, w):
    return 3.0 * np.pi**2 * exact(*w.x) * v


def test_errors_fall_at_the_rates_of_theory_on_refined_meshes():
    mesh, errors = fem.TetMesh.box(3, jitter=0.1, seed=60133), []
    for _ in range(3):
        mesh = mesh.refined()
        inner = np.setdiff1d(np.arange(mesh.n_nodes), mesh.boundary_nodes())
        K, b = laplace.assemble(mesh).to_scipy(), source_of_exact.assemble(mesh).samples[:, 0]
        u = np.zeros(mesh.n_nodes)
        u[inner], status = spla.cg(K[inner][:, inner], b[inner], rtol=1e-10)
        assert status == 0
        forms = (squared_error, squared_gradient_error)
        errors.append([np.sqrt(form.assemble(mesh, u=u).samples.sum()) for form in forms])
    rates = np.log2(np.array(errors[-2]) / np.array(errors[-1]))
    assert abs(rates[0] - 2.0) <= 0.1
    assert abs(rates[1] - 1.0) <= 0.1
    assert errors[-1][0] < 0.02


# --- samples
@pytest.mark.parametrize("k", CASES)
@pytest.mark.parametrize("n_samples", [5, 33])
def test_a_sample_sees_only_itself(mesh, k, n_samples):
    form, fields = cases(mesh, np.random.default_rng(7331), n_samples)[k]
    together = values_of(form.assemble(mesh, **fields))
    for i in range(together.shape[1]):
        own = {}
        for name, value in fields.items():
            inner = value.values if isinstance(value, fem.Field) else value
            one = inner.sample(i) if isinstance(inner, Ensemble) else inner
            own[name] = fem.at_points(one) if isinstance(value, fem.Field) else one
        np.testing.assert_array_equal(values_of(form.assemble(mesh, **own))[:, 0], together[:, i])


@pytest.mark.parametrize("k", CASES)
def test_the_number_of_threads_changes_no_bit(mesh, k, monkeypatch):
    form, fields = cases(mesh, np.random.default_rng(90127), 3)[k]
    whole = values_of(form.assemble(mesh, **fields))
    for count in (1, 3, 7):
        monkeypatch.setattr(form_kernels, "thread_count", lambda count=count: count)
        np.testing.assert_array_equal(values_of(form.assemble(mesh, **fields)), whole)


@pytest.mark.parametrize("k", [k for k in CASES if k not in WITHOUT_FIELDS])
def test_the_reference_gives_the_same_values(mesh, k):
    form, fields = cases(mesh, np.random.default_rng(41), 2)[k]
    expected = values_of(form.assemble(mesh, **fields))
    moved = {}
    for name, value in fields.items():
        inner = value.values if isinstance(value, fem.Field) else value
        inner = Ensemble(strict.asarray(inner.samples)) if isinstance(inner, Ensemble) else inner
        moved[name] = fem.at_points(inner) if isinstance(value, fem.Field) else inner
    made = form.assemble(mesh, **moved)
    got = made.values if hasattr(made, "values") else made.samples
    got = np.asarray(got).reshape(expected.shape)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-14 * abs(expected).max())


def test_a_bad_number_stays_in_its_sample_and_is_named(mesh, rng):
    kappa = rng.uniform(0.5, 2, (mesh.n_elements, 4))
    good = diffusion.assemble(mesh, kappa=Ensemble(kappa)).values
    kappa[3, 2] = np.nan
    with pytest.warns(RuntimeWarning, match=r"diffusion: kappa should be finite; got NaN or infinity in .*2"):
        bad = diffusion.assemble(mesh, kappa=Ensemble(kappa)).values
    assert np.isnan(bad[:, 2]).any()
    np.testing.assert_array_equal(bad[:, [0, 1, 3]], good[:, [0, 1, 3]])
    diffusion.assemble(mesh, kappa=Ensemble(kappa), check=False)


def test_sample_sets_are_carried_along_and_must_agree(mesh, rng):
    first, second = (SampleSet(points=rng.normal(size=(1, 3))) for _ in range(2))
    kappa = Ensemble(rng.uniform(0.5, 2, (mesh.n_elements, 3)), first)
    assert diffusion.assemble(mesh, kappa=kappa).sample_set is first
    with pytest.raises(ValueError, match="sample set"):
        elasticity.assemble(mesh, mu=kappa, kappa=Ensemble(np.ones(3), second))


def test_an_earlier_matrix_is_filled_again(mesh, rng):
    kappa = [Ensemble(rng.uniform(0.5, 2, (mesh.n_elements, 3))) for _ in range(2)]
    A = diffusion.assemble(mesh, kappa=kappa[0])
    again = diffusion.assemble(mesh, kappa=kappa[1], out=A)
    assert again is A
    np.testing.assert_array_equal(A.values, diffusion.assemble(mesh, kappa=kappa[1]).values)
    assert A.graph is laplace.assemble(mesh).graph


def test_vector_forms_make_blocks_and_fill_them_again(mesh, rng):
    mu = [Ensemble(rng.uniform(0.5, 2, (mesh.n_elements, 3))) for _ in range(2)]
    A = elasticity.assemble(mesh, mu=mu[0], kappa=1.5)
    assert isinstance(A, BcrsMatrix) and A.block_shape == (3, 3)
    assert A.graph is laplace.assemble(mesh).graph
    assert divergence.assemble(mesh).block_shape == (1, 3)
    again = elasticity.assemble(mesh, mu=mu[1], kappa=1.5, out=A)
    assert again is A
    np.testing.assert_array_equal(A.values, elasticity.assemble(mesh, mu=mu[1], kappa=1.5).values)


def test_forms_that_read_alike_are_kernels_of_their_own(mesh):
    @fem.bilinear_form
    def twice(u, v, w):
        return 2.0 * np.sin(w.x[0]) * u * v

    @fem.bilinear_form
    def other(u, v, w):
        return 2.0 * np.cos(w.x[0]) * u * v

    a, b = twice.assemble(mesh).values, other.assemble(mesh).values
    assert abs(a - b).max() > 1e-3


# --- periodic
def test_merged_nodes_share_an_unknown(rng):
    mesh = fem.TetMesh.box((4, 3, 2))
    left, right = mesh.nodes_where(lambda x, y, z: x == 0.0), mesh.nodes_where(lambda x, y, z: x == 1.0)
    numbers = np.arange(mesh.n_nodes)
    numbers[right] = left
    numbers = np.unique(numbers, return_inverse=True)[1]
    space = fem.LinearSpace(mesh, numbers)
    P = np.zeros((mesh.n_nodes, space.n_unknowns))
    P[np.arange(mesh.n_nodes), numbers] = 1.0
    kappa = rng.uniform(0.5, 2, mesh.n_nodes)  # fields keep the numbers of nodes
    expected = P.T @ diffusion.assemble(mesh, kappa=kappa).to_scipy() @ P
    got = diffusion.assemble(space, kappa=kappa).to_scipy().toarray()
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-14 * abs(expected).max())


# --- what cannot be assembled
def square(u, v, w):
    return u * u * v


def without_test(u, v, w):
    return u * v + w.f * u


def quotient(u, v, w):
    return u * v / u


def branch(u, v, w):
    return u if u else v


def a_number(u, v, w):
    return 1.0


@pytest.mark.parametrize(
    ("integrand", "expected"),
    [
        (square, "linear in the trial function; got a product with itself"),
        (without_test, "every term must hold the trial and the test function; got one without"),
        (quotient, "linear in its functions; got a quotient by one of them"),
        (branch, "must not be a truth value"),
        (a_number, "must be linear in each of its functions; got a float"),
        (lambda u, v, w: w.missing * u * v, r"field 'missing' must be passed to assemble; got f, x, h"),
        (lambda u, v, w: fem.grad(w.x[0] * 2.0)[0] * u * v, "grad must be of a trial or test function"),
        (lambda u, v, w: fem.dot(fem.grad(u), (1.0, 2.0)) * v, "dot must have vectors of one length; got 3 and 2"),
    ],
)
def test_integrands_that_are_no_forms_are_refused(mesh, integrand, expected):
    with pytest.raises((TypeError, ValueError, AttributeError), match=expected):
        fem.bilinear_form(integrand).assemble(mesh, f=1.0)


def test_an_integrand_with_the_wrong_arguments_is_refused():
    with pytest.raises(ValueError, match="must take 3 arguments, trial u, test v and fields w; got 2"):
        fem.bilinear_form(lambda v, w: v)
    with pytest.raises(ValueError, match=r"functions must be .*scalar.*vector"):
        fem.bilinear_form(trial="tensor")(square)


def test_fields_that_fit_no_place_are_refused(mesh):
    with pytest.raises(ValueError, match=rf"kappa must have shape .*\({mesh.n_nodes}, ...\) at nodes.*got \(17,\)"):
        diffusion.assemble(mesh, kappa=np.ones(17))
    with pytest.raises(TypeError, match="kappa must be a number, an array of real numbers or an Ensemble"):
        diffusion.assemble(mesh, kappa="one")
    with pytest.raises(ValueError, match="kappa must have 3 samples"):
        elasticity.assemble(mesh, mu=Ensemble(np.ones(3)), kappa=Ensemble(np.ones(4)))
    with pytest.raises(TypeError, match="mesh must be a TetMesh or a space; got an int"):
        laplace.assemble(3)


def test_a_shape_that_fits_two_places_must_be_named():
    mesh = fem.TetMesh.box((2, 1, 1))
    assert mesh.n_nodes == mesh.n_elements == 12
    with pytest.raises(
        ValueError, match=r"must fit one place of the mesh; got shape .12,., which fits node and element"
    ):
        diffusion.assemble(mesh, kappa=np.arange(12.0))
    nodes = diffusion.assemble(mesh, kappa=fem.at_nodes(np.arange(12.0))).values
    elements = diffusion.assemble(mesh, kappa=fem.per_element(np.arange(12.0))).values
    assert abs(nodes - elements).max() > 0.1


def test_fields_at_points_need_the_points_of_the_rule(mesh, rng):
    kappa = rng.uniform(0.5, 2, (mesh.n_elements, 4))
    with pytest.raises(
        ValueError, match=r"must have 1 points per element, as the rule of degree 1; got 4. Set degree="
    ):
        diffusion.assemble(mesh, kappa=kappa)
    points, _ = fem.tetrahedron_rule(2)
    form = fem.bilinear_form(degree=2)(diffusion.integrand)
    at_nodes = rng.uniform(0.5, 2, mesh.n_nodes)
    at_points = at_nodes[mesh.tets] @ points.T
    expected = diffusion.assemble(mesh, kappa=at_nodes).values
    np.testing.assert_allclose(
        form.assemble(mesh, kappa=at_points).values, expected, rtol=0, atol=1e-14 * abs(expected).max()
    )


def test_unused_places_of_tensors_are_kept_apart(mesh, rng):
    tensor = rng.normal(size=(3, 3))
    one = tensor_diffusion.assemble(mesh, kappa=tensor).values
    every = tensor_diffusion.assemble(mesh, kappa=np.broadcast_to(tensor, (mesh.n_elements, 3, 3))).values
    nodes = tensor_diffusion.assemble(mesh, kappa=np.broadcast_to(tensor, (mesh.n_nodes, 3, 3))).values
    np.testing.assert_array_equal(one, every)
    np.testing.assert_allclose(nodes, one, rtol=0, atol=2e-15 * abs(one).max())


def test_degrees_follow_the_integrand(mesh, rng):
    wind = rng.normal(size=(mesh.n_nodes, 3))
    windy = ((form, {"wind": wind}) for form in (advection, momentum, stabilised))
    for form, fields in ((laplace, {}), (mass, {}), *windy):
        form.assemble(mesh, **fields)
    degree = {form.name: next(iter(form.traced.values())).degree for form in (laplace, mass, advection, momentum)}
    assert degree == {"laplace": 0, "mass": 2, "advection": 2, "momentum": 2}
