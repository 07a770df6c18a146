"""Random fields: closed-form and numerical eigenpairs, covariance, transforms, and samples that stay as they are."""

import json
import pickle

import numpy as np
import pytest
from scipy import sparse, stats

import ensemble as en
from ensemble.apps.fem import TetMesh, exponential_covariance, mass_matrix
from ensemble.uq.fields import KarhunenLoeve

POINTS = np.random.default_rng(90101).random((30, 2)) * [2.0, 1.0]


def expanded(field, points):
    """The covariance that the kept terms have at points."""
    phi = field.expansion.modes_at(points)
    return (phi * field.eigenvalues) @ phi.T


def exponential(points, lengths):
    return np.exp(-np.sum(np.abs(points[:, None] - points) / lengths, axis=-1))


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_on_the_unit_cube_it_is_the_expansion_of_the_benchmark(dimension):
    field = KarhunenLoeve.exponential([(0.0, 1.0)] * dimension, 0.4, 12)
    known = exponential_covariance(12, 0.4, dimension=dimension)
    points = np.random.default_rng(90102).random((20, dimension))
    np.testing.assert_allclose(field.eigenvalues, known.eigenvalues, rtol=1e-15)
    np.testing.assert_allclose(field.expansion.modes_at(points), known.modes_at(points), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("domain, lengths", [([(-1.0, 2.0)], [0.7]), ([(0.0, 2.0), (3.0, 3.5)], [0.3, 4.0])])
def test_modes_on_a_box_solve_the_integral_equation(domain, lengths):
    field = KarhunenLoeve.exponential(domain, lengths, 4)
    place = np.array([a + 0.3 * (b - a) for a, b in domain])
    rules = []
    x, w = np.polynomial.legendre.leggauss(40)
    for (a, b), split in zip(domain, place, strict=True):
        halves = [((p + q + (q - p) * x) / 2, (q - p) / 2 * w) for p, q in [(a, split), (split, b)]]
        rules.append(tuple(np.concatenate(both) for both in zip(*halves, strict=True)))
    grids = np.meshgrid(*[x for x, _ in rules], indexing="ij")
    weights = np.prod(np.meshgrid(*[w for _, w in rules], indexing="ij"), axis=0).ravel()
    nodes = np.stack([g.ravel() for g in grids], axis=1)
    kernel = np.exp(-np.sum(np.abs(nodes - place) / lengths, axis=1))
    integral = (kernel * weights) @ field.expansion.modes_at(nodes)
    np.testing.assert_allclose(integral, field.eigenvalues * field.expansion.modes_at(place[None])[0], atol=1e-9)
    gram = (field.expansion.modes_at(nodes).T * weights) @ field.expansion.modes_at(nodes)
    np.testing.assert_allclose(gram, np.eye(4), atol=1e-9)


def test_many_terms_give_the_covariance_back():
    field = KarhunenLoeve.exponential([(0.0, 2.0), (0.0, 1.0)], [0.8, 0.5], 3000)
    np.testing.assert_allclose(expanded(field, POINTS), exponential(POINTS, [0.8, 0.5]), atol=0.05)
    assert 0.97 < field.energy < 1.0


@pytest.mark.parametrize("energy", [0.5, 0.9, 0.97])
def test_as_few_terms_as_have_the_energy_are_kept(energy):
    field = KarhunenLoeve.exponential([(0.0, 2.0), (0.0, 1.0)], 0.5, energy=energy)
    fewer = KarhunenLoeve.exponential([(0.0, 2.0), (0.0, 1.0)], 0.5, field.n_terms - 1)
    assert fewer.energy < energy <= field.energy
    on_points = KarhunenLoeve.from_points(POINTS, "matern32", length=0.5, energy=energy)
    fewer = KarhunenLoeve.from_points(POINTS, "matern32", on_points.n_terms - 1, length=0.5)
    assert fewer.energy < energy <= on_points.energy


@pytest.mark.parametrize("count", [200, 900], ids=["all eigenpairs", "Lanczos"])
def test_eigenpairs_on_points_converge_to_the_closed_form(count):
    x, w = np.polynomial.legendre.leggauss(count)
    field = KarhunenLoeve.from_points(1.0 + x, "exponential", 4, length=0.6, weights=w)
    closed = KarhunenLoeve.exponential([(0.0, 2.0)], 0.6, 4)
    np.testing.assert_allclose(field.eigenvalues, closed.eigenvalues, rtol=30.0 / count**2 * 10.0)
    other = np.linspace(0.05, 1.95, 17)[:, None]
    found, expected = field.expansion.modes_at(other), closed.expansion.modes_at(other)
    signs = np.sign(np.sum(found * expected, axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=0.01)


def test_all_terms_on_points_give_the_covariance_matrix_back():
    field = KarhunenLoeve.from_points(POINTS, "matern52", 30, length=[0.7, 0.4])
    h = (POINTS[:, None] - POINTS) / [0.7, 0.4]
    r = np.sqrt(5.0) * np.linalg.norm(h, axis=-1)
    np.testing.assert_allclose(expanded(field, POINTS), (1.0 + r + r**2 / 3.0) * np.exp(-r), atol=1e-10)
    assert abs(field.energy - 1.0) < 1e-12


@pytest.mark.parametrize("name", ["exponential", "matern12", "matern32", "matern52", "gaussian"])
def test_a_covariance_by_name_is_its_formula(name):
    def formula(x, y):
        h = (x[:, None] - y) / 0.6
        r = np.linalg.norm(h, axis=-1)
        return {
            "exponential": np.exp(-np.abs(h).sum(axis=-1)),
            "matern12": np.exp(-r),
            "matern32": (1.0 + np.sqrt(3.0) * r) * np.exp(-np.sqrt(3.0) * r),
            "matern52": (1.0 + np.sqrt(5.0) * r + 5.0 * r**2 / 3.0) * np.exp(-np.sqrt(5.0) * r),
            "gaussian": np.exp(-0.5 * r**2),
        }[name]

    one, other = KarhunenLoeve.from_points(POINTS, name, 4, length=0.6), KarhunenLoeve.from_points(POINTS, formula, 4)
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-12)


def test_a_mass_matrix_gives_the_eigenpairs_of_openturns():
    ot = pytest.importorskip("openturns")
    mesh = ot.IntervalMesher([12, 12]).build(ot.Interval([0.0, 0.0], [1.0, 1.0]))
    algorithm = ot.KarhunenLoeveP1Algorithm(mesh, ot.AbsoluteExponential([0.5, 0.3]), 0.0)
    algorithm.run()
    result = algorithm.getResult()
    mass = sparse.csr_array(np.array(mesh.computeP1Gram()))
    field = KarhunenLoeve.from_points(np.array(mesh.getVertices()), "exponential", 8, length=[0.5, 0.3], weights=mass)
    np.testing.assert_allclose(field.eigenvalues, np.array(result.getEigenvalues())[:8], rtol=1e-10)
    mode = np.array(result.getModesAsProcessSample()[0]).ravel()
    np.testing.assert_allclose(field.expansion.modes[:, 0], np.abs(mode), atol=1e-10)


def test_a_mass_matrix_of_this_library_and_lanczos_give_the_same_as_all_eigenpairs():
    mesh = TetMesh.box(7)
    assert mesh.points.shape[0] > 400
    mass = mass_matrix(mesh)
    field = KarhunenLoeve.from_points(mesh.points, "gaussian", 5, length=[0.3, 0.5, 0.9], weights=mass)
    w = mass.to_scipy()
    c = np.exp(-0.5 * np.sum(((mesh.points[:, None] - mesh.points) / [0.3, 0.5, 0.9]) ** 2, axis=-1))
    root = np.linalg.cholesky(w.toarray())
    values = np.linalg.eigvalsh(root.T @ c @ root)[::-1]
    np.testing.assert_allclose(field.eigenvalues, values[:5], rtol=1e-9)
    np.testing.assert_allclose(field.expansion.modes.T @ (w @ field.expansion.modes), np.eye(5), atol=1e-9)
    np.testing.assert_allclose(field.energy, values[:5].sum() / np.trace(c @ w.toarray()), rtol=1e-9)


def test_rows_made_for_each_product_give_the_same_as_a_matrix(monkeypatch):
    from ensemble.uq.fields import numerical

    points = np.random.default_rng(90103).random((500, 2))
    one = KarhunenLoeve.from_points(points, "gaussian", 4, length=0.5)
    monkeypatch.setattr(numerical, "DENSE", 100)
    monkeypatch.setattr(numerical, "BLOCK", 20_000)
    other = KarhunenLoeve.from_points(points, "gaussian", 4, length=0.5)
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-10)
    np.testing.assert_allclose(one.expansion.modes, other.expansion.modes, atol=1e-8)


def test_modes_do_not_depend_on_what_the_eigensolver_chose():
    from ensemble.uq.fields.numerical import fixed_modes

    values = np.array([3.0, 2.0, 2.0, 2.0, 1.0])
    rng = np.random.default_rng(90104)
    modes = np.linalg.qr(rng.normal(size=(9, 5)))[0]
    turned = modes.copy()
    turned[:, 1:4] = modes[:, 1:4] @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    turned[:, [0, 4]] *= -1.0
    one, other = fixed_modes(values, modes)[1], fixed_modes(values, turned)[1]
    np.testing.assert_allclose(one, other, atol=1e-12)
    np.testing.assert_allclose(one.T @ one, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(one[:, 1:4] @ one[:, 1:4].T, modes[:, 1:4] @ modes[:, 1:4].T, atol=1e-12)


def test_equal_eigenvalues_are_not_cut_apart():
    x, y = np.meshgrid(*[np.linspace(0.0, 1.0, 9)] * 2)
    grid = np.stack([x.ravel(), y.ravel()], axis=1)
    two = KarhunenLoeve.from_points(grid, "gaussian", 2, length=0.5)
    three = KarhunenLoeve.from_points(grid, "gaussian", 3, length=0.5)
    np.testing.assert_allclose(three.eigenvalues[1], three.eigenvalues[2], rtol=1e-9)
    np.testing.assert_allclose(two.expansion.modes, three.expansion.modes[:, :2], atol=1e-8)


def test_samples_have_the_mean_and_the_covariance():
    field = KarhunenLoeve.exponential(
        [(0.0, 2.0), (0.0, 1.0)], 0.8, 40, mean=lambda p: 2.0 + p[:, 0], std=lambda p: 0.5 + p[:, 1]
    )
    x = en.Inputs(kappa=field).samples(2**13, seed=90105)
    values = x.kappa(POINTS).samples
    np.testing.assert_allclose(values.mean(axis=1), 2.0 + POINTS[:, 0], atol=0.02)
    std = 0.5 + POINTS[:, 1]
    np.testing.assert_allclose(np.cov(values), expanded(field, POINTS) * std[:, None] * std, atol=0.08)


def test_transforms_are_of_the_whole_field():
    options = {"mean": 0.3, "std": 0.2}
    plain, lognormal, square = (
        KarhunenLoeve.exponential([(0, 2), (0, 1)], 0.8, 5, transform=t, **options)
        for t in (None, "lognormal", np.square)
    )
    x = en.Inputs(a=plain).samples(16, seed=90106).a(POINTS).samples
    assert np.array_equal(en.Inputs(a=lognormal).samples(16, seed=90106).a(POINTS).samples, np.exp(x))
    assert np.array_equal(en.Inputs(a=square).samples(16, seed=90106).a(POINTS).samples, np.square(x))


def test_other_distributions_of_the_coefficients():
    field = KarhunenLoeve(exponential_covariance(5, 1.0), mean=1.0, std=0.1, distribution=stats.uniform(-1.0, 2.0))
    x = en.Inputs(y=field).samples(64, seed=90107)
    y = x.y.coefficients
    assert y.shape == (5,) and np.all(np.abs(y.samples) < 1.0) and np.isnan(field.energy)
    points = np.random.default_rng(90108).random((7, 3))
    known = exponential_covariance(5, 1.0)
    expected = 1.0 + 0.1 * (known.modes_at(points) * np.sqrt(known.eigenvalues)) @ y.samples
    np.testing.assert_allclose(x.y(points).samples, expected, rtol=1e-14)


@pytest.mark.parametrize("transform", [None, "lognormal"])
def test_a_sample_of_a_field_is_the_same_alone_and_among_others(transform):
    field = KarhunenLoeve.exponential([(0.0, 2.0), (0.0, 1.0)], 0.8, 9, transform=transform)
    x = en.Inputs(a=stats.norm(), kappa=field).samples(37, sampler="monte_carlo", seed=90109)
    among = x.kappa(POINTS).samples
    for size in (1, 2, 5, 8, 32):
        part = x.take(np.arange(3, 3 + size)).kappa(POINTS).samples
        assert np.array_equal(part, among[:, 3 : 3 + size])
    assert np.array_equal(x.sample(4).kappa(POINTS), among[:, 4])


def test_interpolated_modes_of_a_point_do_not_depend_on_the_other_points():
    field = KarhunenLoeve.from_points(POINTS, "matern32", 7, length=0.5)
    points = np.random.default_rng(90114).random((100, 2))
    every = field.expansion.modes_at(points)
    assert np.array_equal(field.expansion.modes_at(points[13:18]), every[13:18])
    assert np.array_equal(field.expansion.modes_at(points[99:]), every[99:])


def test_points_keep_their_shape():
    field = KarhunenLoeve.exponential([(0.0, 2.0), (0.0, 1.0)], 0.8, 3)
    x = en.Inputs(kappa=field).samples(8, seed=90110)
    assert x.kappa(POINTS.reshape(5, 6, 2)).shape == (5, 6)
    assert x.kappa(POINTS[0]).shape == () and x.sample(0).kappa(POINTS[0]).shape == ()
    line = en.Inputs(kappa=KarhunenLoeve.exponential([(0.0, 2.0)], 0.8, 3)).samples(8, seed=90111)
    assert line.kappa(np.linspace(0.0, 2.0, 7)).shape == (7,)
    assert np.array_equal(line.kappa([0.5, 1.5]).samples, line.kappa([[0.5], [1.5]]).samples)


def test_a_field_of_a_matrix_is_known_at_its_nodes():
    covariance = exponential(POINTS, [0.8, 0.5])
    field = KarhunenLoeve.from_matrix(covariance, 6, mean=1.0)
    x = en.Inputs(kappa=field).samples(8, seed=90112)
    assert x.kappa().shape == (30,) and x.sample(0).kappa().shape == (30,)
    placed = KarhunenLoeve.from_matrix(covariance, 6, points=POINTS, mean=lambda p: p[:, 0])
    assert en.Inputs(kappa=placed).samples(8, seed=90112).kappa(POINTS).shape == (30,)
    on_points = KarhunenLoeve.from_points(POINTS, "exponential", 6, length=[0.8, 0.5])
    np.testing.assert_allclose(field.eigenvalues, on_points.eigenvalues, rtol=1e-12)


def test_fields_go_through_pickle_without_their_tables():
    x = en.Inputs(kappa=KarhunenLoeve.from_points(POINTS, "gaussian", 5, length=0.5)).samples(8, seed=90113)
    values = x.kappa(POINTS).samples
    again = pickle.loads(pickle.dumps(x))
    assert np.array_equal(again.kappa(POINTS).samples, values)


def test_descriptions_are_json_and_tell_fields_apart():
    fields = [
        KarhunenLoeve.exponential([(0, 1)], 0.5, 3),
        KarhunenLoeve.exponential([(0, 1)], 0.5, 4),
        KarhunenLoeve.exponential([(0, 1)], 0.5, 3, mean=1.0),
        KarhunenLoeve.exponential([(0, 1)], 0.5, 3, transform="lognormal"),
        KarhunenLoeve.exponential([(0, 1)], 0.5, 3, mean=lambda p: p[:, 0]),
        KarhunenLoeve.exponential([(0, 1)], 0.5, 3, transform=np.tanh),
        KarhunenLoeve.from_points(POINTS, "gaussian", 3, length=0.5),
        KarhunenLoeve.from_points(POINTS, "gaussian", 3, length=0.6),
        KarhunenLoeve.from_points(POINTS, "gaussian", 3, length=0.5, weights=np.arange(1.0, 31.0)),
        KarhunenLoeve.from_matrix(np.eye(3), 3),
        KarhunenLoeve(exponential_covariance(3, 0.5, dimension=2)),
    ]
    texts = [json.dumps(en.Inputs(kappa=field).description()) for field in fields]
    assert len(set(texts)) == len(texts)
    assert texts[6] == json.dumps(
        en.Inputs(kappa=KarhunenLoeve.from_points(POINTS, "gaussian", 3, length=0.5)).description()
    )


BOX = [(0.0, 1.0)]


@pytest.mark.parametrize(
    "make, error, match",
    [
        (lambda: KarhunenLoeve(3), TypeError, "expansion must have eigenvalues, dimension and modes_at"),
        (
            lambda: KarhunenLoeve.exponential(BOX, 0.5),
            ValueError,
            "n_terms, energy must be given one without the other",
        ),
        (lambda: KarhunenLoeve.exponential(BOX, 0.5, 3, energy=0.9), ValueError, "got both"),
        (lambda: KarhunenLoeve.exponential(BOX, 0.5, energy=1.0), ValueError, "energy must be a share of the variance"),
        (lambda: KarhunenLoeve.exponential(BOX, 1e-5, energy=0.999), ValueError, "a share that 20000 terms reach"),
        (lambda: KarhunenLoeve.exponential(BOX, 0.0, 3), ValueError, "length must be a finite number above zero"),
        (lambda: KarhunenLoeve.exponential(BOX, 1e-13, 3), ValueError, "length must lie between 1e-12 and 1e"),
        (
            lambda: KarhunenLoeve.exponential([(1.0, 0.0)], 0.5, 3),
            ValueError,
            "domain must have a lower and a higher end",
        ),
        (lambda: KarhunenLoeve.exponential([1.0], 0.5, 3), TypeError, "domain must have a pair of numbers"),
        (lambda: KarhunenLoeve.exponential(BOX, 0.5, 0), ValueError, "n_terms must be an integer of at least 1"),
        (lambda: KarhunenLoeve.exponential(BOX, 0.5, 3, std=-1.0), ValueError, "std must be a finite number, zero or"),
        (lambda: KarhunenLoeve.exponential(BOX, 0.5, 3, mean=np.nan), ValueError, "mean must be finite"),
        (
            lambda: KarhunenLoeve.exponential(BOX, 0.5, 3, transform="log"),
            ValueError,
            "transform must be None, 'lognormal'",
        ),
        (lambda: KarhunenLoeve.from_points(POINTS, "cubic", 3, length=1.0), ValueError, "covariance must be one of"),
        (lambda: KarhunenLoeve.from_points(POINTS, "gaussian", 3), ValueError, "length must be given"),
        (lambda: KarhunenLoeve.from_points(POINTS, exponential, 3, length=1.0), ValueError, "length must be left out"),
        (lambda: KarhunenLoeve.from_points(POINTS, lambda x, y: x, 3), ValueError, "covariance must take points"),
        (
            lambda: KarhunenLoeve.from_points(POINTS, lambda x, y: x[:, :1] - y[:, 0], 3),
            ValueError,
            "be symmetric and finite",
        ),
        (
            lambda: KarhunenLoeve.from_points(POINTS, lambda x, y: x[:, :1] * y[:, 0], 3),
            ValueError,
            "as many eigenvalues above zero as terms; got 1 for 3",
        ),
        (
            lambda: KarhunenLoeve.from_points(POINTS, "gaussian", 31, length=1.0),
            ValueError,
            "n_terms must be at most 30",
        ),
        (
            lambda: KarhunenLoeve.from_points(POINTS * np.nan, "gaussian", 3, length=1.0),
            ValueError,
            "points must be finite",
        ),
        (
            lambda: KarhunenLoeve.from_points(POINTS, "gaussian", 3, length=1.0, weights=[1.0]),
            ValueError,
            "weights must be 30 numbers above zero",
        ),
        (
            lambda: KarhunenLoeve.from_points(POINTS, "gaussian", 3, length=1.0, weights=sparse.eye_array(3)),
            ValueError,
            "be a matrix of 30 rows",
        ),
        (lambda: KarhunenLoeve.from_matrix(np.ones((2, 3)), 1), ValueError, "matrix must be square"),
        (
            lambda: KarhunenLoeve.from_matrix([[1.0, 0.5], [0.4, 1.0]], 1),
            ValueError,
            "matrix must be symmetric; got entries that differ by 0.1",
        ),
        (lambda: KarhunenLoeve.from_matrix([[1.0, np.nan], [np.nan, 1.0]], 1), ValueError, "matrix must be finite"),
        (
            lambda: KarhunenLoeve.from_matrix(np.zeros((2, 2)), 1),
            ValueError,
            "covariance must have a variance above zero",
        ),
        (lambda: KarhunenLoeve.from_matrix(np.eye(2), 1, points=POINTS), ValueError, "points must have 2 rows"),
    ],
)
def test_fields_that_cannot_be_are_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()


FIELD = KarhunenLoeve.exponential([(0.0, 2.0), (0.0, 1.0)], 0.8, 3)


@pytest.mark.parametrize(
    "field, points, error, match",
    [
        (FIELD, None, ValueError, "points must be given; got none. The expansion has no nodes"),
        (FIELD, [[3.0, 0.5]], ValueError, "points must lie in the domain"),
        (FIELD, [[0.5]], ValueError, "points must have 2 coordinates in the last axis"),
        (FIELD, [[0.5, np.nan]], ValueError, "points must be finite"),
        (FIELD, en.Ensemble(np.zeros((2, 3))), TypeError, "points must be a plain array; got an Ensemble"),
        (KarhunenLoeve.from_matrix(np.eye(2), 1), [[0.5]], ValueError, "points must be left out"),
        (
            KarhunenLoeve.from_matrix(np.eye(2), 1, points=[0.0, 1.0]),
            [[0.5]],
            ValueError,
            "the nodes of the covariance matrix",
        ),
        (KarhunenLoeve.from_matrix(np.eye(2), 1, mean=lambda p: p), None, ValueError, "mean must be a number"),
        (
            KarhunenLoeve.exponential(BOX, 0.5, 3, mean=lambda p: p),
            [0.5, 0.6],
            ValueError,
            "mean must give 2 finite numbers",
        ),
        (
            KarhunenLoeve.exponential(BOX, 0.5, 3, transform=np.sum),
            [0.5, 0.6],
            ValueError,
            "transform must give an array of the shape",
        ),
    ],
)
def test_points_that_a_field_has_no_values_at_are_refused(field, points, error, match):
    x = en.Inputs(a=1.0, kappa=field).from_normal(np.zeros((2, field.n_terms)))
    with pytest.raises(error, match=match):
        x.kappa(points)
