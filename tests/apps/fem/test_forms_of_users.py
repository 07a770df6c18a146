"""Forms, fields and results as users write and pass them: right answers, or one clear error."""

import functools
import types
import warnings

import array_api_strict as strict
import numpy as np
import pytest

from ensemble.apps import fem
from ensemble.linalg import apply_dirichlet, small
from ensemble.scalar import Ensemble, SampleSet
from tests.apps.fem.form_problems import diffusion, mesh_of

load = fem.linear_form(lambda v, w: w.f * v)
vector_mass = fem.bilinear_form(lambda u, v, w: fem.dot(u, v), trial="vector", test="vector")


@pytest.fixture(scope="module")
def mesh():
    return mesh_of()


def bilinear(integrand, **options):
    return fem.bilinear_form(integrand, **options)


def total_of(form, mesh, **fields):
    """The sum of the entries of a vector, by the reference, which is not compiled."""
    made = form.assemble(mesh, **{name: strict.asarray(value) for name, value in fields.items()})
    return np.asarray(made.samples).sum()


# --- integrands
@pytest.mark.parametrize("n_samples", [1, 3])
@pytest.mark.parametrize(
    ("integrand", "integral"),
    [
        (lambda v, w: 2.0 ** w.x[0] * v, 1.0 / np.log(2.0)),
        (lambda v, w: (1.0 + w.x[0]) ** 0.3 * v, (2.0**1.3 - 1.0) / 1.3),
        (lambda v, w: (1.0 + w.x[0]) ** w.k * v, 1.5),
        (lambda v, w: ((3.0 * w.k) // 2.0) * v, 1.0),
        (lambda v, w: ((3.0 * w.k) % 2.0) * v, 1.0),
    ],
)
def test_powers_and_remainders_of_fields_are_integrated(integrand, integral, n_samples):
    """In shared forms, too, whose registers hold one number."""
    k = Ensemble(np.ones(n_samples))
    found = fem.linear_form(integrand, degree=5).assemble(fem.TetMesh.box(2), k=k)
    np.testing.assert_allclose(found.samples.sum(axis=0), integral, rtol=1e-6)


@pytest.mark.parametrize(
    "integrand",
    [
        lambda v, w: np.True_ * v + np.True_ * v,
        lambda v, w: 3.0 * v - np.uint8(1) * v,
        lambda v, w: np.int8(100) * v + np.int8(100) * v - 198.0 * v,
        lambda v, w: v / np.float32(3.0) + 5.0 / 3.0 * v,
        lambda v, w: np.array(2) * +v,
    ],
)
def test_factors_of_numpy_are_added_as_real_numbers(mesh, integrand):
    """Sums of bools are bools, those of small integers overflow, and quotients by float32 have seven digits."""
    made = fem.linear_form(integrand).assemble(mesh).samples
    np.testing.assert_array_equal(made, fem.linear_form(lambda v, w: 2.0 * v).assemble(mesh).samples)


@pytest.mark.parametrize(("constant", "f"), [(1e-200, 1e300), (1e200, 1e-300)])
def test_constants_whose_product_leaves_the_range_are_not_taken_together(mesh, constant, f):
    form = fem.linear_form(lambda v, w: (w.f * constant) * constant * v)
    expected = f * constant * constant * mesh.volumes.sum()
    np.testing.assert_allclose(total_of(form, mesh, f=np.array(f)), expected, rtol=1e-13)


def test_conditions_are_numbers_in_sums_and_products(mesh):
    k = np.where(np.arange(mesh.n_elements) % 3 == 0, 1.0, 3.0)
    form = fem.linear_form(lambda v, w: (w.k > 0.0) * v + (w.k > 2.0) * v * (w.k < 4.0))
    expected = mesh.volumes.sum() + mesh.volumes[k == 3.0].sum()
    np.testing.assert_allclose(total_of(form, mesh, k=k), expected, rtol=1e-13)


def test_vectors_are_added_and_cut_like_arrays(mesh):
    shift, ones = (1, 2, 3), np.ones(3)

    def integrand(v, w):
        total = sum([w.b, w.b]) + (shift + w.b) - (ones - w.b)
        return fem.dot(total[:2] * 2.0, w.b[1:] + w.b[:2]) * v

    b = np.array([2.0, 5.0, 7.0])
    total = 2.0 * b + (np.arange(1.0, 4.0) + b) - (1.0 - b)
    expected = (total[:2] * 2.0) @ (b[1:] + b[:2]) * mesh.volumes.sum()
    np.testing.assert_allclose(total_of(fem.linear_form(integrand), mesh, b=b), expected, rtol=1e-13)


def test_terms_are_added_by_sum(mesh):
    wind = np.array([1.0, 2.0, 3.0])
    added = bilinear(lambda u, v, w: sum(w.wind[d] * fem.grad(u)[d] for d in range(3)) * v).assemble(mesh, wind=wind)
    whole = bilinear(lambda u, v, w: fem.dot(w.wind, fem.grad(u)) * v).assemble(mesh, wind=wind)
    np.testing.assert_allclose(added.values, whole.values, rtol=1e-13, atol=1e-16)


def test_a_form_that_is_zero_gives_zeros(mesh):
    for form in (fem.linear_form(lambda v, w: 0.0 * v), fem.linear_form(lambda v, w: v - v)):
        assert form.assemble(mesh).shape == (mesh.n_nodes,) and not form.assemble(mesh).samples.any()
    A = bilinear(lambda u, v, w: 0.0 * w.k * u * v).assemble(mesh, k=Ensemble(np.ones(2)))
    assert A.graph.same_as(diffusion.assemble(mesh, kappa=1.0).graph) and not A.values.any()
    facets = fem.BoundarySpace(mesh)
    assert not bilinear(lambda u, v, w: 0.0 * u * v).assemble(facets).values.any()
    assert not fem.linear_form(lambda v, w: 0.0 * v[2], test="vector").assemble(mesh).samples.any()


@pytest.mark.parametrize(
    ("integrand", "error", "text"),
    [
        (lambda u, v, w: 1j * u * v, TypeError, "form: a constant factor must be a real number; got 1j"),
        (lambda u, v, w: np.ones(3) * u * v, TypeError, r"form: a constant factor must be a real number; got array"),
        (lambda u, v, w: np.nan * u * v, ValueError, "form: a constant factor must be finite; got nan"),
        (lambda u, v, w: u[0] * v, TypeError, r"form: a scalar has no components; .* trial=\"vector\""),
        (lambda u, v, w: fem.dot(u, v), TypeError, "form: a scalar has no components"),
        (lambda u, v, w: fem.div(u) * v, TypeError, "form: a scalar has no components"),
        (lambda u, v, w: fem.ddot(fem.sym_grad(u), fem.sym_grad(v)), TypeError, "form: a scalar has no components"),
        (lambda u, v, w: fem.ddot(fem.grad(u), fem.grad(v)), TypeError, "form: a scalar has no components"),
        (lambda u, v, w: fem.grad(u)[3] * v, IndexError, "form: a component must be from 0 to 2; got 3"),
        (lambda u, v, w: fem.grad(u) @ fem.grad(v), TypeError, r"form: @ is not taken; write dot\(a, b\)"),
        (lambda u, v, w: abs(u) * v, TypeError, "form: an integrand must be linear in its functions; got abs"),
        (
            lambda u, v, w: (u > 0) * v,
            TypeError,
            "form: an integrand must be linear in its functions; got a comparison",
        ),
        (lambda u, v, w: (u == 0) * u * v, TypeError, "must be linear in its functions; got a comparison"),
        (lambda u, v, w: (w.k != 0) * u * v, TypeError, "form: a comparison must be of numbers; got a vector"),
        (lambda u, v, w: u + fem.grad(v), TypeError, "form: a vector of 3 entries must be added to its like; got a"),
        (lambda u, v, w: w.k * [1, 2, 3, 4, 5], TypeError, "form: two vectors must be multiplied by dot, mul or ddot"),
        (
            lambda u, v, w: fem.dot(fem.dot(np.eye(3), fem.grad(u)), fem.grad(v)),
            TypeError,
            r"form: dot must be of a vector; got a tensor. Write mul\(A, b\) of a tensor and a vector",
        ),
        (lambda u, v, w: fem.dot(w.h, fem.grad(u)) * v, TypeError, "form: dot must be of a vector; got a number"),
        (lambda u, v, w: fem.dot(fem.mul(w.k, fem.grad(u)), fem.grad(v)), TypeError, "mul must be of a tensor; got a"),
        (lambda u, v, w: fem.ddot(np.eye(2), np.eye(3)) * u * v, ValueError, "ddot must have tensors of one shape"),
        (
            lambda u, v, w: fem.ddot(fem.sym_grad(w.tensor), w.tensor) * u * v,
            TypeError,
            "sym_grad must be of a vector; got a tensor",
        ),
        (
            lambda u, v, w: fem.ddot(fem.transpose(fem.grad(w.tensor)), w.tensor) * u * v,
            TypeError,
            "transpose must be of a tensor; got a gradient of a tensor",
        ),
        (lambda u, v, w: fem.div(w.pair) * u * v, TypeError, "div must be of a vector of 3 components; got one of 2"),
        (
            lambda u, v, w: w.k * u * v,
            TypeError,
            r"the integrand must be one number at a point; got a vector of 5. .*\(k has shape \(5,\)",
        ),
    ],
)
def test_integrands_with_a_mistake_are_told_what_it_is(mesh, integrand, error, text):
    with pytest.raises(error, match=text):
        tensor = np.ones((mesh.n_nodes, 3, 3))
        bilinear(integrand).assemble(mesh, k=np.ones(5), pair=np.ones((mesh.n_nodes, 2)), tensor=tensor)


def test_the_divergence_of_a_tensor_field_is_that_of_each_row(mesh):
    x, y, z = mesh.points.T
    tensor = np.stack([2.0 * x, 3.0 * y, z, x, -y, x + y, y, z, 5.0 * z], axis=-1).reshape(-1, 3, 3)
    form = fem.linear_form(lambda v, w: fem.dot(fem.div(w.T), v), test="vector")
    total = form.assemble(mesh, T=fem.at_nodes(tensor)).samples.sum(axis=0)[:, 0]
    np.testing.assert_allclose(total, np.array([6.0, 0.0, 5.0]) * mesh.volumes.sum(), atol=1e-13)
    turned = fem.linear_form(lambda v, w: fem.dot(fem.div(fem.transpose(w.T)), v), test="vector")
    total = turned.assemble(mesh, T=fem.at_nodes(tensor)).samples.sum(axis=0)[:, 0]
    np.testing.assert_allclose(total, np.array([2.0, 0.0, 6.0]) * mesh.volumes.sum(), atol=1e-13)


@pytest.mark.parametrize("constant", [np.inf, np.nan])
def test_a_constant_factor_of_a_field_is_finite(mesh, constant):
    with pytest.raises(ValueError, match="form: a constant factor must be finite; got"):
        fem.linear_form(lambda v, w: w.f * constant * v).assemble(mesh, f=1.0)


@pytest.mark.parametrize("make", [fem.bilinear_form, fem.linear_form])
def test_an_integrand_is_a_function(make):
    with pytest.raises(TypeError, match="must be a function; got 'u"):
        make("u * v")


def test_an_integrand_may_have_parameters_with_defaults(mesh):
    forms = [fem.linear_form(lambda v, w, d=d: w.b[d] * v) for d in range(2)]
    made = [total_of(form, mesh, b=np.array([1.0, 2.0, 3.0])) for form in forms]
    np.testing.assert_allclose(made, np.array([1.0, 2.0]) * mesh.volumes.sum(), rtol=1e-13)


@pytest.mark.parametrize("degree", ["2", 2.5, -1])
def test_a_degree_is_checked_where_the_form_is_made(degree):
    with pytest.raises((TypeError, ValueError), match="source: degree must be an integer of at least 0; got"):
        fem.linear_form(degree=degree)(_Model().source)


SCALE = {"factor": 1.0}


def _scaled(x):
    return SCALE["factor"] * x


class _Model:
    def __init__(self):
        self.time = 0.0

    def source(self, v, w):
        return self.time * v


def test_values_from_outside_are_those_of_the_call(mesh, monkeypatch):
    time, table, model = 0.0, np.array([0.0, 1.0]), _Model()
    forms = [
        fem.linear_form(lambda v, w: time * v), fem.linear_form(lambda v, w: table[0] * v),
        fem.linear_form(lambda v, w: _scaled(v)), fem.linear_form(model.source),
    ]  # fmt: skip
    volume = mesh.volumes.sum()
    first = [form.assemble(mesh).samples.sum() / volume for form in forms]
    np.testing.assert_allclose(first, [0.0, 0.0, 1.0, 0.0], atol=1e-13)
    time, model.time, table[0] = 3.0, 3.0, 3.0
    monkeypatch.setitem(SCALE, "factor", 3.0)
    np.testing.assert_allclose([form.assemble(mesh).samples.sum() / volume for form in forms], 3.0, rtol=1e-13)
    assert [len(form.traced) for form in forms] == [2, 2, 2, 2]


class _Slots:
    __slots__ = ("rate",)


class _Property:
    value = 1.0
    rate = property(lambda self: self.value)

    def __call__(self, v, w):
        return self.rate * v

    def source(self, v, w):
        return self._inner(v)

    def _inner(self, v):
        return self.rate * v


def _of_large_array():
    values = np.ones(3000)
    return (lambda v, w: values[5] * v), lambda: values.__setitem__(5, 3.0)


def _of_slots():
    owner = _Slots()
    owner.rate = 1.0
    return (lambda v, w: owner.rate * v), lambda: setattr(owner, "rate", 3.0)


def _of_property():
    owner = _Property()
    return (lambda v, w: owner.rate * v), lambda: setattr(owner, "value", 3.0)


def _of_callable():
    owner = _Property()
    return owner, lambda: setattr(owner, "value", 3.0)


def _of_method():
    owner = _Property()
    return owner.source, lambda: setattr(owner, "value", 3.0)


def _of_partial():
    rates = [1.0]
    return functools.partial(lambda given, v, w: given[0] * v, rates), lambda: rates.__setitem__(0, 3.0)


def _of_module():
    module = types.ModuleType("rates")
    module.rate = 1.0
    return (lambda v, w: module.rate * v), lambda: setattr(module, "rate", 3.0)


def _of_set():
    rates = {1.0}
    return (lambda v, w: max(rates) * v), lambda: rates.add(3.0)


def _of_nested_function():
    def f(v, w):
        def inner():
            return SCALE["factor"]

        return inner() * v

    return f, lambda: SCALE.__setitem__("factor", 3.0)


CHANGES = [
    _of_large_array, _of_slots, _of_property, _of_callable, _of_method, _of_partial, _of_module, _of_set,
    _of_nested_function,
]  # fmt: skip


@pytest.mark.parametrize("make", CHANGES)
def test_every_changed_value_that_an_integrand_reads_is_seen(mesh, make, monkeypatch):
    monkeypatch.setitem(SCALE, "factor", 1.0)
    integrand, change = make()
    form = fem.linear_form(integrand)
    volume = mesh.volumes.sum()
    np.testing.assert_allclose(form.assemble(mesh).samples.sum(), volume, rtol=1e-13)
    change()
    np.testing.assert_allclose(form.assemble(mesh).samples.sum(), 3.0 * volume, rtol=1e-13)


def test_a_trace_of_numbers_and_operators_is_kept(mesh):
    rate = 2.0
    form = fem.bilinear_form(lambda u, v, w: rate * w.kappa * fem.dot(fem.grad(u), fem.grad(v)))
    for kappa in (1.0, 2.0):
        form.assemble(mesh, kappa=kappa)
    assert len(form.traced) == 1


# --- fields
@pytest.mark.parametrize("values", [1j, Ensemble(np.ones((3, 2)) * 1j), strict.asarray([1j]), np.array([1j])])
def test_complex_fields_are_refused(mesh, values):
    with pytest.raises(TypeError, match="kappa must be a number, an array of real numbers or an Ensemble"):
        diffusion.assemble(mesh, kappa=values)


def test_masked_entries_are_refused(mesh):
    """What stands below a mask is no data, and would be used."""
    values = np.ma.masked_array(np.ones(mesh.n_nodes), np.arange(mesh.n_nodes) < 2)
    seen = rf"must have no masked entries; got 2 of {mesh.n_nodes} masked. Fill them"
    for call in (
        lambda: load.assemble(mesh, f=values),
        lambda: fem.mass_matrix(mesh, fem.at_nodes(values)),
        lambda: fem.element_values(mesh, values),
        lambda: fem.DeviceCopies(backend="numpy").start(values),
        lambda: fem.write_mesh("never.vtu", mesh, {"u": values}),
        lambda: apply_dirichlet(fem.mass_matrix(mesh), values, [0]),
        lambda: apply_dirichlet(fem.mass_matrix(mesh), np.zeros(mesh.n_nodes), np.arange(mesh.n_nodes), values),
        lambda: small.sqrtm_spd(values),
    ):
        with pytest.raises(ValueError, match=seen):
            call()
    for make in (fem.TetMesh, fem.TetMesh.oriented):
        with pytest.raises(ValueError, match=r"TetMesh: points must have no masked entries; got 3 of"):
            make(np.ma.masked_array(mesh.points, np.arange(mesh.n_nodes)[:, None] == [0, 0, 0]), mesh.tets)
    whole = np.ma.masked_array(np.ones(mesh.n_nodes), False)
    np.testing.assert_array_equal(
        load.assemble(mesh, f=whole).samples, load.assemble(mesh, f=np.ones(mesh.n_nodes)).samples
    )


def test_an_empty_field_is_refused(mesh):
    with pytest.raises(ValueError, match=r"kappa must have shape .*; got \(0,\)"):
        diffusion.assemble(mesh, kappa=np.ones(0))


def test_infinity_gets_the_one_warning_of_fields(mesh):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        diffusion.assemble(mesh, kappa=Ensemble(np.array([1.0, np.inf])))
    assert [str(w.message).split(".")[0] for w in caught] == [
        "diffusion: kappa should be finite; got NaN or infinity in sample 1"
    ]


def test_infinity_in_a_shared_field_is_one_of_all_samples(mesh):
    """No sample is named: each has it."""
    shared = np.where(np.arange(mesh.n_elements) == 3, np.inf, 1.0)
    with pytest.warns(RuntimeWarning) as caught:
        made = load.assemble(mesh, f=fem.per_element(strict.asarray(shared)))
    assert not np.isfinite(np.asarray(made.samples)).all()
    text = "<lambda>: f should be finite; got NaN or infinity in a field that all samples share."
    assert [str(w.message) for w in caught] == [text]


# --- results of earlier calls
def test_an_error_in_one_form_leaves_the_results_of_all(mesh):
    """Bilinear forms are assembled in a pass before that of linear forms."""
    A, b = fem.assemble(mesh, diffusion, load, kappa=2.0, f=np.ones(mesh.n_nodes))
    before = A.values.copy(), b.samples.copy()
    with pytest.raises(ValueError, match="f must have 4 points per element, as the rule of degree 2; got 7"):
        fem.assemble(mesh, diffusion, load, kappa=5.0, f=np.ones((mesh.n_elements, 7)), out=[A, b])
    np.testing.assert_array_equal(A.values, before[0])
    np.testing.assert_array_equal(b.samples, before[1])


def test_a_result_that_shares_memory_with_a_field_or_another_result_is_refused(mesh):
    b = load.assemble(mesh, f=Ensemble(np.ones(3)))
    for field in (b, fem.at_nodes(b), Ensemble(b.samples)):
        with pytest.raises(ValueError, match="out must not share memory with the field f"):
            load.assemble(mesh, f=field, out=b)
    with pytest.raises(ValueError, match="out must not share memory with another result"):
        fem.assemble(mesh, load, load, f=Ensemble(np.ones(3)), out=[b, Ensemble(b.samples)])


def test_a_filled_result_has_the_sample_set_of_its_fields(mesh):
    first, second = (SampleSet.monte_carlo(3, 1, seed=seed) for seed in (90211, 31174))
    ones = np.ones(3)
    for form, name in ((load, "f"), (diffusion, "kappa")):
        made = form.assemble(mesh, **{name: Ensemble(ones, first)})
        assert form.assemble(mesh, **{name: Ensemble(ones, second)}, out=made).sample_set is second
        assert form.assemble(mesh, **{name: Ensemble(ones)}, out=made).sample_set is None


def test_results_that_cannot_be_written_are_refused(mesh):
    values = np.zeros((mesh.n_nodes, 1))
    values.flags.writeable = False
    with pytest.raises(ValueError, match="out must be writable"):
        load.assemble(mesh, f=1.0, out=Ensemble(values))
    assert not values.any()
    with pytest.raises(TypeError, match="out must be a list of 2 results"):
        fem.assemble(mesh, load, load, f=1.0, out=values)


def test_other_libraries_fill_results(mesh, rng):
    first, second = (strict.asarray(rng.uniform(1.0, 2.0, (mesh.n_elements, 2))) for _ in range(2))
    A = diffusion.assemble(mesh, kappa=Ensemble(first))
    expected = np.asarray(diffusion.assemble(mesh, kappa=Ensemble(second)).values)
    assert diffusion.assemble(mesh, kappa=Ensemble(second), out=A) is A
    np.testing.assert_array_equal(np.asarray(A.values), expected)


# --- tabulated spaces
TABLES = {
    "unknowns": np.array([[0, 1], [1, 2]]), "n_unknowns": 3, "shape": np.array([[0.5, 0.5]]),
    "gradients": np.array([-1.0, 1.0] * 2).reshape(2, 1, 2, 1), "dx": np.ones((2, 1)), "x": np.zeros((2, 1, 1)),
}  # fmt: skip


def test_a_tabulated_space_by_hand():
    M = fem.bilinear_form(lambda u, v, w: u * v).assemble(fem.TabulatedSpace(**TABLES))
    expected = [[0.25, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.25]]
    np.testing.assert_array_equal(M.to_scipy().toarray(), expected)


def test_a_tabulated_space_keeps_what_it_was_given():
    """The caller's arrays may change afterwards; read-only ones are not copied."""
    given = {**TABLES, "unknowns": TABLES["unknowns"].astype(np.int32)}
    own = {name: np.array(value) for name, value in given.items() if name != "n_unknowns"}
    space, form = fem.TabulatedSpace(**own, n_unknowns=3), fem.bilinear_form(lambda u, v, w: w.x[0] * u * v + u * v)
    for array in own.values():
        array.fill(10**8)
    expected = form.assemble(fem.TabulatedSpace(**given)).values
    np.testing.assert_array_equal(np.asarray(form.assemble(space).values), np.asarray(expected))
    assert np.shares_memory(fem.TabulatedSpace(**given | {"dx": space.dx}).dx, space.dx)
    view = own["dx"][:]
    view.flags.writeable = False
    assert not np.shares_memory(fem.TabulatedSpace(**given | {"dx": view}).dx, own["dx"])


@pytest.mark.parametrize(
    "table, value, error, text",
    [
        ("unknowns", TABLES["unknowns"] + 1, ValueError, "lie between 0 and 2; got others in 1 elements, the first 1"),
        ("unknowns", TABLES["unknowns"] - 1, ValueError, "lie between 0 and 2; got others in 1 elements, the first 0"),
        ("unknowns", TABLES["unknowns"] * 1.0, TypeError, "be integers of shape"),
        ("unknowns", TABLES["unknowns"][0], TypeError, "be integers of shape"),
        ("n_unknowns", 3.0, TypeError, "be an integer of at least 1"),
        ("shape", np.ones((1, 3)), ValueError, r"have shape \(1, 2\)"),
        ("shape", 1j * TABLES["shape"], TypeError, "hold real numbers; got dtype complex128"),
        ("gradients", TABLES["gradients"][:1], ValueError, r"have shape \(2, 1, 2, 1\); got shape \(1, 1, 2, 1\)"),
        ("gradients", TABLES["gradients"][0], ValueError, "have four axes"),
        ("dx", np.ones((1, 1)), ValueError, r"have shape \(2, 1\); got shape \(1, 1\)"),
        ("dx", np.array([[1.0], [np.nan]]), ValueError, "be finite; got NaN or infinity"),
        ("x", np.zeros((2, 1, 2)), ValueError, r"have shape \(2, 1, 1\)"),
        ("h", np.zeros(2), ValueError, r"have shape \(2, 1\); got shape \(2,\)"),
    ],
)
def test_tables_that_do_not_fit_are_refused(table, value, error, text):
    """Loops read them without a look at their range."""
    with pytest.raises(error, match=f"TabulatedSpace: {table} must {text}"):
        fem.TabulatedSpace(**TABLES | {table: value})


def test_an_ensemble_from_outside_is_refused_whatever_its_samples(mesh):
    for factor in (Ensemble(np.ones(3)), Ensemble(np.arange(3.0))):
        form = fem.linear_form(functools.partial(lambda factor, v, w: factor * v, factor))
        with pytest.raises(TypeError, match="Pass arrays and samples as fields"):
            form.assemble(mesh)
