"""Element kernels against einsum over the definitions, closed forms, and one run per sample."""

import array_api_strict
import mpmath
import numpy as np
import pytest

from ensemble.apps import fem
from ensemble.apps.fem.element_arrays import Arguments
from ensemble.linalg import small
from ensemble.scalar import Ensemble
from tests.apps.fem.form_problems import mesh_of

KEAST, WEIGHTS = fem.tetrahedron_rule(4)


@pytest.fixture(scope="module")
def mesh():
    return mesh_of()


@pytest.fixture(scope="module")
def moved(mesh):
    """The mesh with points of five samples."""
    shifts = np.random.default_rng(60497).uniform(-0.01, 0.01, (*mesh.points.shape, 5))
    return fem.TetArrays(Ensemble(mesh.points[..., None] + shifts), mesh.tets)


def defined(points, tets):
    """Gradients (E, 4, 3) and volumes by NumPy's inverse of the Jacobian."""
    corners = points[tets]
    derivatives = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, -1]])
    jacobian = np.einsum("eid,ik->edk", corners, derivatives)
    gradients = np.einsum("ekd,ik->eid", np.linalg.inv(jacobian), derivatives)
    return gradients, np.abs(np.linalg.det(jacobian)) / 6.0


def close(got, expected, rtol=2e-14):
    """Errors relative to the largest number of each element."""
    size = np.abs(expected).reshape(len(expected), -1).max(axis=1)
    assert got.shape == expected.shape
    assert (np.abs(got - expected).reshape(len(expected), -1).max(axis=1) <= rtol * size).all()


@pytest.mark.parametrize("shape", [(), (3,), (3, 3)])
def test_element_values_are_those_at_the_corners(mesh, shape, rng):
    field = rng.standard_normal((mesh.n_nodes, *shape))
    np.testing.assert_array_equal(fem.element_values(mesh, field), field[mesh.tets])
    many = rng.standard_normal((mesh.n_nodes, *shape, 3))
    got = fem.element_values(mesh, Ensemble(many))
    np.testing.assert_array_equal(got.samples, many[mesh.tets])


def test_gradients_and_volumes_are_those_of_the_definition(mesh):
    gradients, volumes = defined(mesh.points, mesh.tets)
    made = fem.transform_to_physical(mesh)
    close(made.dshape, gradients)
    np.testing.assert_allclose(made.detwei, volumes, rtol=1e-14)
    np.testing.assert_allclose(made.detwei.sum(), 1.0 * 1.5 * 0.8, rtol=1e-13)


def test_paper_shaped_transforms_repeat_the_collapsed_ones(mesh):
    once, paper = (fem.transform_to_physical(mesh, collapsed=collapsed) for collapsed in (True, False))
    assert paper.dshape.shape == (mesh.n_elements, 11, 4, 3) and paper.detwei.shape == (mesh.n_elements, 11)
    np.testing.assert_array_equal(paper.dshape, np.repeat(once.dshape[:, None], 11, axis=1))
    np.testing.assert_allclose(paper.detwei, once.detwei[:, None] * WEIGHTS, rtol=1e-15)
    np.testing.assert_allclose(paper.detwei.sum(axis=1), once.detwei, rtol=1e-14)
    assert fem.transform_to_physical(mesh, collapsed=False, degree=2).detwei.shape == (mesh.n_elements, 4)


def test_mass_matrices_are_the_closed_form(mesh):
    _, volumes = defined(mesh.points, mesh.tets)
    expected = volumes[:, None, None] / 20.0 * (1.0 + np.eye(4))
    paper = fem.transform_to_physical(mesh, collapsed=False)
    for given in (mesh, fem.transform_to_physical(mesh), paper):
        close(fem.shape_shape(given), expected)
    close(fem.shape_shape(paper), np.einsum("qi,qj,eq->eij", KEAST, KEAST, paper.detwei))


def test_first_derivatives_are_the_closed_form(mesh):
    gradients, volumes = defined(mesh.points, mesh.tets)
    expected = np.einsum("e,ejd->edj", volumes / 4.0, gradients)[:, :, None, :].repeat(4, axis=2)
    paper = fem.transform_to_physical(mesh, collapsed=False)
    for given in (mesh, fem.transform_to_physical(mesh), paper):
        close(fem.shape_dshape(given), expected)
    close(fem.shape_dshape(paper), np.einsum("qi,eqjd,eq->edij", KEAST, paper.dshape, paper.detwei))


@pytest.mark.parametrize("two", [False, True])
def test_tensors_between_gradients_are_the_sum_over_points(mesh, two, rng):
    """The tensor is not symmetric and stands behind the row vector."""
    paper = fem.transform_to_physical(mesh, collapsed=False)
    tensor = rng.standard_normal((mesh.n_elements, 11, 3, 3))
    other = rng.standard_normal(paper.dshape.shape) if two else None
    right = other if two else paper.dshape
    got = fem.dshape_tensor_dshape(paper.dshape, tensor, other, detwei=paper.detwei)
    expected = np.einsum("eqik,eqkl,eqjl,eq->eij", paper.dshape, tensor, right, paper.detwei)
    close(got, expected, 1e-13)


def test_the_mean_tensor_gives_the_sum_over_points(mesh, rng):
    gradients, volumes = fem.transform_to_physical(mesh)
    tensor = rng.uniform(0.5, 1.0, (mesh.n_elements, 11, 3, 3))
    paper = fem.transform_to_physical(mesh, collapsed=False)
    mean = np.einsum("q,eqkl->ekl", WEIGHTS, tensor)
    expected = fem.dshape_tensor_dshape(paper.dshape, tensor, detwei=paper.detwei)
    close(fem.dshape_tensor_dshape(gradients, mean, detwei=volumes), expected, 1e-13)


@pytest.mark.parametrize("own", [(5, 1, 1, 1), (1, 5, 1, 1), (1, 5, 5, 1), (1, 1, 1, 5), (5, 5, 5, 5)])
@pytest.mark.parametrize("points", [(), (3,)])
def test_operands_of_one_or_of_all_samples(own, points, rng):
    shapes = ((13, *points, 4, 3), (13, *points, 3, 3), (13, *points, 4, 3), (13, *points))
    a, tensor, b, detwei = (rng.standard_normal((*shape, s)) for shape, s in zip(shapes, own, strict=True))
    got = fem.dshape_tensor_dshape(Ensemble(a), Ensemble(tensor), Ensemble(b), detwei=Ensemble(detwei))
    assert got.n_samples == 5
    for i in range(5):
        alone = (x[..., i % x.shape[-1]] for x in (a, tensor, b, detwei))
        a_i, tensor_i, b_i, detwei_i = alone
        expected = fem.dshape_tensor_dshape(a_i, tensor_i, b_i, detwei=detwei_i)
        np.testing.assert_array_equal(got.samples[..., i], expected)


def outcomes(mesh):
    """What each kernel that takes a mesh gives, as arrays."""
    paper = fem.transform_to_physical(mesh, collapsed=False)
    return [
        *fem.transform_to_physical(mesh), *paper, fem.shape_shape(mesh), fem.shape_shape(paper), fem.shape_dshape(mesh),
        fem.shape_dshape(paper), fem.edge_lengths(mesh), fem.edge_lengths(mesh, copies=11),
        fem.edge_lengths(mesh, "paper"),
    ]  # fmt: skip


def test_each_sample_has_the_bits_of_its_own_run(moved):
    together = outcomes(moved)
    for i in range(5):
        alone = outcomes(fem.TetArrays(np.ascontiguousarray(moved.points.samples[..., i]), moved.tets))
        for got, expected in zip(together, alone, strict=True):
            np.testing.assert_array_equal(got.samples[..., i], expected)


def test_a_nan_stays_in_its_sample(moved):
    samples = moved.points.samples.copy()
    samples[moved.tets[3, 0], 1, 2] = np.nan
    spoilt = fem.TetArrays(Ensemble(samples), moved.tets)
    for got, expected in zip(outcomes(spoilt), outcomes(moved), strict=True):
        others = [0, 1, 3, 4]
        np.testing.assert_array_equal(got.samples[..., others], expected.samples[..., others])
        assert np.isnan(got.samples[3, ..., 2]).any()


@pytest.mark.filterwarnings("error")
def test_results_are_taken_without_a_copy(mesh):
    made = fem.transform_to_physical(mesh, collapsed=False)
    arguments = Arguments("test")
    operand = arguments.operand(arguments.samples("dshape", made.dshape), 1)
    assert np.shares_memory(operand, made.dshape) and operand.flags.c_contiguous


# --- edge lengths
def test_a_regular_tetrahedron_has_its_edge_times_the_identity():
    corners = np.array([[1.0, 1, 1], [-1, 1, -1], [1, -1, -1], [-1, -1, 1]])
    rotation = np.linalg.qr(np.random.default_rng(11).standard_normal((3, 3)))[0]
    mesh = fem.TetMesh.oriented(3.7 / np.sqrt(8.0) * corners @ rotation + 40.0, [[0, 1, 2, 3]])
    for method in ("closed", "paper"):
        np.testing.assert_allclose(fem.edge_lengths(mesh, method)[0], 3.7 * np.eye(3), atol=1e-13)


def test_edges_have_unit_length_in_the_metric(mesh):
    metric = np.linalg.inv(fem.edge_lengths(mesh) @ fem.edge_lengths(mesh))
    corners = mesh.points[mesh.tets]
    for i in range(4):
        for j in range(i):
            edge = corners[:, i] - corners[:, j]
            np.testing.assert_allclose(np.einsum("ek,ekl,el->e", edge, metric, edge), 1.0, rtol=1e-12)


def test_closed_form_and_metric_agree(mesh):
    close(fem.edge_lengths(mesh), fem.edge_lengths(mesh, "paper"), 1e-12)
    for method in ("closed", "paper"):
        copies = fem.edge_lengths(mesh, method, copies=11)
        assert copies.shape == (mesh.n_elements, 11, 3, 3)
        np.testing.assert_array_equal(copies, np.repeat(fem.edge_lengths(mesh, method)[:, None], 11, axis=1))


@pytest.mark.parametrize("stretch", [(1.0, 1.0, 1e-3), (1.0, 1e-3, 1e-3), (1.0, 1e-2, 1e-4), (1e5, 1e5, 1e5)])
def test_roots_of_stretched_elements_give_back_the_sum_over_edges(stretch, rng):
    """The error grows with the aspect ratio, as that of the square root itself."""
    points = rng.standard_normal((200, 4, 3)) * stretch
    volumes = np.linalg.det(points[:, 1:] - points[:, :1])
    points = points[np.abs(volumes) > 0.1 * np.prod(stretch)]
    tets = np.arange(4 * len(points)).reshape(-1, 4)
    lengths = fem.edge_lengths(fem.TetArrays(points.reshape(-1, 3), tets))
    edges = np.stack([points[:, i] - points[:, j] for i in range(4) for j in range(i)], axis=1)
    half = np.einsum("enk,enl->ekl", edges, edges) / 2.0
    close(lengths @ lengths, half, 1e-14 * max(stretch) / min(stretch))
    close(lengths, small.sqrtm_spd(half), 1e-14 * max(stretch) / min(stretch))


# --- arguments
@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda m: fem.element_values(m, np.ones(3)), ValueError, "element_values: field must have 60 rows"),
        (lambda m: fem.element_values(m, "x"), TypeError, "element_values: field must be an array or an Ensemble"),
        (lambda m: fem.element_values(m, 1j * np.ones(60)), TypeError, "field must be an array of real numbers"),
        (lambda m: fem.transform_to_physical(3), TypeError, "transform_to_physical: mesh must be a TetMesh"),
        (lambda m: fem.edge_lengths(m, "eig"), ValueError, "edge_lengths: method must be one of 'closed', 'paper'"),
        (lambda m: fem.edge_lengths(m, copies=0), ValueError, "edge_lengths: copies must be an integer of at least 1"),
        (
            lambda m: fem.shape_shape(fem.transform_to_physical(m, collapsed=False), degree=2),
            ValueError, "shape_shape: degree must be that of the transform, 11 points",
        ),
        (
            lambda m: fem.dshape_tensor_dshape(np.ones((2, 4, 3)), np.ones((3, 3, 3)), detwei=np.ones(2)),
            ValueError, r"dshape_tensor_dshape: tensor must have shape \(2, 3, 3\), as a",
        ),
        (
            lambda m: fem.dshape_tensor_dshape(
                Ensemble(np.ones((2, 4, 3, 2))), Ensemble(np.ones((2, 3, 3, 3))), detwei=np.ones(2)),
            ValueError, "dshape_tensor_dshape: tensor must have 2 samples",
        ),
        (
            lambda m: fem.edge_lengths(fem.TetArrays(m.points, m.tets * 1.0)),
            TypeError, "edge_lengths: mesh.tets must be integers",
        ),
        (lambda m: fem.edge_lengths(fem.TetArrays(m.points[:, :2], m.tets)), ValueError, "mesh.points must have"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(mesh, call, error, text):
    with pytest.raises(error, match=text):
        call(mesh)


# --- other libraries and devices
def test_other_libraries_take_the_reference(mesh):
    strict = fem.TetArrays(array_api_strict.asarray(mesh.points), array_api_strict.asarray(mesh.tets))
    for got, expected in zip(outcomes(strict), outcomes(mesh), strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)


def test_device_code_gives_the_bits_of_the_cpu(mesh, moved, rng, request):
    tensor = rng.standard_normal((mesh.n_elements, 11, 3, 3))

    def run(given):
        paper = fem.transform_to_physical(given, collapsed=False)
        return [*outcomes(given), fem.dshape_tensor_dshape(paper.dshape, tensor, detwei=paper.detwei)]

    expected = run(mesh), run(moved)
    request.getfixturevalue("as_device")
    for got, wanted in zip((*run(mesh), *run(moved)), (*expected[0], *expected[1]), strict=True):
        np.testing.assert_array_equal(getattr(got, "samples", got), getattr(wanted, "samples", wanted))


@pytest.mark.cuda
def test_a_device_gives_the_bits_of_the_cpu(mesh):
    import cupy

    on_device = fem.TetArrays(cupy.asarray(mesh.points), cupy.asarray(mesh.tets))
    for got, expected in zip(outcomes(on_device), outcomes(mesh), strict=True):
        np.testing.assert_array_equal(got.get(), expected)
    field = np.random.default_rng(5).standard_normal((mesh.n_nodes, 3))
    np.testing.assert_array_equal(fem.element_values(mesh, cupy.asarray(field)).get(), field[mesh.tets])


def exact_lengths(corners):
    """The root of half the sum of e e^T over the six edges, by eigenvalues in longer arithmetic."""
    total = mpmath.matrix(3, 3)
    for i in range(4):
        for j in range(i):
            edge = [mpmath.mpf(float(p)) - mpmath.mpf(float(q)) for p, q in zip(corners[i], corners[j], strict=True)]
            total += mpmath.matrix([[a * b / 2 for b in edge] for a in edge])
    w, V = mpmath.eigsy(total)
    root = V * mpmath.diag([mpmath.sqrt(value) for value in w]) * V.T
    return np.array(root.tolist(), dtype=np.longdouble)


@pytest.mark.parametrize("w", [1.0, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(("kind", "bound"), [("flat", lambda w: 20.0), ("needle", lambda w: 50.0 / w)])
def test_edge_lengths_of_thin_elements_have_the_errors_of_the_docstring(kind, bound, w, rng):
    corners = rng.standard_normal((6, 4, 3)) * ([1.0, 1.0, w] if kind == "flat" else [1.0, w, w])
    corners = corners @ np.linalg.qr(rng.standard_normal((3, 3)))[0]
    arrays = fem.TetArrays(corners.reshape(-1, 3), np.arange(24, dtype=np.int32).reshape(6, 4))
    closed, paper = (fem.edge_lengths(arrays, method) for method in ("closed", "paper"))
    with mpmath.workdps(60):
        expected = np.stack([exact_lengths(each) for each in corners])
    size, eps = np.abs(expected).max(axis=(1, 2)), np.finfo(float).eps
    assert (np.abs(closed - expected).max(axis=(1, 2)) <= bound(w) * eps * size).all()
    assert (np.abs(paper - expected).max(axis=(1, 2)) <= 2000.0 * eps / w**2 * size).all()
