"""The random diffusion problem without stored matrices: affine, matrix-free, and hierarchies of the mean."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble.apps.fem import DiffusionOperator, Multigrid, RandomDiffusion
from ensemble.krylov import Status, cg
from ensemble.linalg import AffineMatrix
from ensemble.multigrid import scaled_aggregation
from ensemble.scalar import Ensemble, SampleSet
from tests.conftest import examples

EPS = np.finfo(float).eps
FLOAT32 = Multigrid(dtype=np.float32)
OPTIONS = {
    "affine": {"operator": "affine"},
    "affine-float32": {"operator": "affine", "preconditioner": FLOAT32},
    "affine-sample": {"operator": "affine", "preconditioner": Multigrid(matrix="sample")},
    "affine-sample-float32": {
        "operator": "affine",
        "preconditioner": Multigrid(matrix="sample", dtype=np.float32),
    },
    "matrix-free": {"operator": "matrix-free"},
    "matrix-free-float32": {"operator": "matrix-free", "preconditioner": FLOAT32},
    "stored-mean": {"operator": "stored", "preconditioner": Multigrid(matrix="mean")},
    "stored-mean-float32": {"operator": "stored", "preconditioner": Multigrid(matrix="mean", dtype=np.float32)},
    "stored-float32": {"operator": "stored", "preconditioner": FLOAT32},
}
each_operator = pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))


@pytest.fixture(scope="module")
def problem():
    return RandomDiffusion(10, n_terms=2, variance=0.1)  # three terms, as in the other tests: fewer kernels to compile


@pytest.fixture(scope="module")
def lognormal():
    return RandomDiffusion((6, 5, 7), coefficient="lognormal", variance=1.0, n_terms=3)


def draw(n_terms, n_samples, seed):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (n_terms, n_samples))


# Samples in this file: 5 of them, or 1. Both kinds of tiles, of 4 samples and of 1, and no kernel for a third width.


@each_operator
def test_every_operator_gives_the_answer_and_each_sample_its_own_bits(problem, options):
    y = draw(2, 5, seed=60493)
    stored, other = problem.solve(Ensemble(y), cg_rtol=1e-10, rtol=1e-9), problem.solve(Ensemble(y), **options)
    assert other.converged.all()
    assert np.all(other.iterations <= 7)
    # the residual is 1e-7 of the first in both; the smallest eigenvalue of the matrix is near pi^2 / 10^3
    np.testing.assert_allclose(other.u.samples, stored.u.samples, rtol=0, atol=1e-5)
    for s in (0, 4):
        alone = problem.solve(y[:, s], **options)
        np.testing.assert_array_equal(other.u.samples[:, s], alone.u)
        assert other.response.samples[s] == alone.response
        assert other.iterations[s] == alone.iterations[0]


@each_operator
def test_a_tighter_tolerance_is_met(problem, options):
    """The preconditioner's precision does not limit the answer's."""
    y = draw(2, 5, seed=82219)
    tight = {"rtol": 1e-11, "cg_rtol": 1e-12}
    result = problem.solve(Ensemble(y), **options, **tight)
    assert result.converged.all()
    reference = problem.solve(Ensemble(y), **tight)
    np.testing.assert_allclose(result.u.samples, reference.u.samples, rtol=0, atol=1e-9)
    assert result.u.samples.dtype == np.float64


@pytest.mark.parametrize("cells", [16, pytest.param(64, marks=pytest.mark.slow)])
def test_iterations_on_the_papers_even_mesh(cells):
    problem = RandomDiffusion(cells, grading=0.0, n_terms=2)
    y = Ensemble(draw(2, 5, seed=20731))
    for name in ("affine-float32", "affine-sample"):
        assert problem.solve(y, **OPTIONS[name]).iterations.max() <= 7


@given(seed=st.integers(0, 2**32 - 1), n_samples=st.sampled_from([1, 4, 5]))
@settings(max_examples=examples(15))
def test_the_matrix_free_product_is_the_assembled_one(seed, n_samples):
    """27 couplings of 8 points in 8 cells: at most 64 roundings of the magnitudes that they add."""
    rng = np.random.default_rng(seed)
    problem = RandomDiffusion(tuple(rng.integers(1, 5, 3)), n_terms=1)
    kappa, x = (
        rng.lognormal(0, 2, (8 * problem.mesh.n_cells, n_samples)),
        rng.standard_normal((problem.mesh.n_nodes, n_samples)),
    )
    A = problem.operator(Ensemble(kappa))
    assert isinstance(A, DiffusionOperator) and A.T is A
    y, b = (A @ Ensemble(x)).samples, rng.standard_normal(x.shape)
    r, (z, inner) = A.residual(x, b), A.apply_dot(x)
    for s in range(n_samples):
        stored = A.to_scipy(s)
        bound = 64 * EPS * (abs(stored) @ np.abs(x[:, s])).max()
        assert np.abs(y[:, s] - stored @ x[:, s]).max() <= bound
        assert np.abs(r[:, s] - (b[:, s] - stored @ x[:, s])).max() <= 2 * bound + 2 * EPS * np.abs(b).max()
        assert np.abs(A.diagonal().sample(s) - stored.diagonal()).max() <= bound + 64 * EPS * stored.diagonal().max()
        assert np.array_equal(A.sample(s) @ x[:, s], y[:, s])
        assert np.isclose(inner[s], x[:, s] @ y[:, s], rtol=1e-10, atol=1e-10)
    assert np.array_equal(z, y)


def test_the_matrix_free_operator_is_symmetric_and_kills_constants(rng):
    """Away from the fixed nodes a constant has no flux: the row sums of the free rows are their fixed columns."""
    problem = RandomDiffusion((4, 3, 5), n_terms=1)
    kappa = Ensemble(rng.lognormal(0, 1, (8 * problem.mesh.n_cells, 5)))
    A = problem.operator(kappa)
    x, y = rng.standard_normal((2, problem.mesh.n_nodes, 5))
    left, right = np.sum(x * A.apply(y), axis=0), np.sum(y * A.apply(x), axis=0)
    np.testing.assert_allclose(left, right, rtol=1e-11)
    inside = (problem.mesh.points[:, 2] > 0.3) & (problem.mesh.points[:, 2] < 0.6)
    assert inside.any()
    assert np.abs((A @ Ensemble(np.ones((problem.mesh.n_nodes, 5)))).samples[inside]).max() < 1e-12


def test_threads_change_no_bit(rng):
    from ensemble._compile import numba as _compile

    problem = RandomDiffusion((7, 7, 40), n_terms=1)
    A = problem.operator(Ensemble(rng.lognormal(0, 1, (8 * problem.mesh.n_cells, 5))))
    x = rng.standard_normal((problem.mesh.n_nodes, 5))
    before = _compile.thread_count()
    expected = A.apply(x)
    try:
        _compile.numba.set_num_threads(1)
        np.testing.assert_array_equal(A.apply(x), expected)
    finally:
        _compile.numba.set_num_threads(before)


@pytest.mark.parametrize("n_samples", [1, 5])
def test_lognormal_samples_see_only_themselves(lognormal, n_samples):
    y = 2.0 * draw(3, n_samples, seed=93131)
    stored, free = lognormal.solve(Ensemble(y)), lognormal.solve(Ensemble(y), operator="matrix-free")
    assert stored.converged.all() and free.converged.all()
    np.testing.assert_allclose(free.u.samples, stored.u.samples, rtol=0, atol=1e-5)
    for options in ({}, {"operator": "matrix-free"}):
        whole = lognormal.solve(Ensemble(y), **options)
        alone = lognormal.solve(y[:, -1], **options)
        np.testing.assert_array_equal(whole.u.samples[:, -1], alone.u)


def test_lognormal_coefficient_is_the_exponential_of_the_expansion(lognormal):
    y = draw(3, 1, seed=14009)
    A = lognormal.operator(np.ones(8 * lognormal.mesh.n_cells))
    kappa = lognormal.discretization.coefficient(y)
    points = np.array([lognormal.mesh.gauss_point(e, q) for e in range(lognormal.mesh.n_cells) for q in range(8)])
    expansion = lognormal.field.modes_at(points) @ (np.sqrt(lognormal.field.eigenvalues)[:, None] * y)
    np.testing.assert_allclose(kappa, np.exp(expansion), rtol=1e-13)
    assert np.all(kappa > 0) and A.n_samples == 1


def test_a_constant_lognormal_coefficient_gives_a_linear_u(lognormal):
    for options in ({}, {"operator": "matrix-free"}):
        u = lognormal.solve(np.zeros(3), rtol=1e-13, cg_rtol=1e-12, **options).u
        np.testing.assert_allclose(u, 1.0 + lognormal.mesh.points[:, 2], rtol=0, atol=1e-11)


def test_any_coefficient_solves_with_the_hierarchy_of_the_mean(problem, rng):
    z = problem.mesh.points[:, 2]
    fixed = (z == 0) | (z == 1)
    kappa = rng.uniform(0.5, 2.0, (8 * problem.mesh.n_cells, 5))
    A = problem.operator(Ensemble(kappa))
    b = np.where(fixed[:, None], 0.0, rng.standard_normal((problem.mesh.n_nodes, 5)))
    result = cg(A, Ensemble(b), M=scaled_aggregation(A, dtype=np.float32))
    assert result.converged.all()
    residual = A.to_scipy(2) @ result.x.sample(2) - b[:, 2]
    assert np.linalg.norm(residual) <= 1.01e-8 * np.linalg.norm(b[:, 2])


@each_operator
def test_nan_stays_in_its_sample(options):
    problem = RandomDiffusion(8, n_terms=2)
    y = draw(2, 5, seed=33301)
    clean = problem.solve(Ensemble(y), **options)
    y[1, 3] = np.nan
    result = problem.solve(Ensemble(y), **options)
    others = np.arange(5) != 3
    assert result.status[3] == Status.breakdown and np.isnan(result.response.samples[3])
    np.testing.assert_array_equal(result.u.samples[:, others], clean.u.samples[:, others])


def test_affine_terms_are_the_assembled_matrices(problem):
    y = draw(2, 5, seed=55001)
    stored, residual = problem.assemble(Ensemble(y))
    values, load = problem.discretization.affine_terms
    A = AffineMatrix(problem.graph, values, Ensemble(y))
    np.testing.assert_allclose(A.to_crs().values, stored.values, rtol=0, atol=64 * EPS * np.abs(stored.values).max())
    np.testing.assert_allclose(load[:, :1] + load[:, 1:] @ y, residual.samples, rtol=0, atol=64 * EPS)


@pytest.mark.parametrize(
    "problem_options, options, text",
    [
        ({}, {"operator": "dense"}, "operator must be one of 'stored', 'affine', 'matrix-free'; got 'dense'"),
        ({"source": 1.0}, {"operator": "affine"}, "operator must be 'stored' where there is a source.*source = 1"),
        ({"source": 1.0}, {"operator": "matrix-free"}, "operator must be 'stored' where there is a source"),
        ({"coefficient": "lognormal"}, {"operator": "affine"}, "operator must be 'stored' or 'matrix-free' for a logn"),
        (
            {},
            {"operator": "matrix-free", "preconditioner": Multigrid(matrix="sample")},
            "preconditioner must have matrix='mean' for operator='matrix-free'; got Multigrid",
        ),
    ],
)
def test_choices_that_do_not_go_together_are_named(problem_options, options, text):
    with pytest.raises(ValueError, match=text):
        RandomDiffusion(2, **problem_options).solve(np.zeros(5), **options)


@pytest.mark.parametrize(
    "kappa, text",
    [
        (
            np.ones(7),
            r"RandomDiffusion.operator: kappa must have shape \(64,\), a value a Gauss point; got shape \(7,\)",
        ),
        (np.zeros(64), "kappa must be above zero at every Gauss point; got 0 in sample 0"),
    ],
)
def test_bad_coefficients_are_refused(kappa, text):
    with pytest.raises(ValueError, match=text):
        RandomDiffusion(2).operator(kappa)


ARGUMENTS = {
    "y": (5, lambda p, y: p.solve(y)),
    "u": (27, lambda p, u: p.assemble(np.zeros(5), u)),
    "u0": (27, lambda p, u0: p.solve(np.zeros(5), u0=u0)),
    "kappa": (64, lambda p, kappa: p.operator(kappa)),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_masked_and_complex_numbers_are_refused(name):
    """What stands below a mask is no data, and an imaginary part is none to leave out."""
    size, call = ARGUMENTS[name]
    problem, mask = RandomDiffusion(2), np.arange(size) == 1
    with pytest.raises(ValueError, match=f"{name} must have no masked entries; got 1 of {size} masked"):
        call(problem, np.ma.masked_array(np.ones(size), mask))
    with pytest.raises(TypeError, match=f"{name} must be real; got complex128"):
        call(problem, np.ones(size) + 1j)


def test_sample_sets_are_carried_along_and_must_agree(rng):
    problem, (own, other) = RandomDiffusion(2), (SampleSet.monte_carlo(4, 5, seed=seed) for seed in (1, 2))
    y, u = Ensemble(own.points, own), Ensemble(rng.uniform(size=(27, 4)), other)
    for call in (lambda: problem.assemble(y, u), lambda: problem.solve(y, u0=u)):
        with pytest.raises(ValueError, match="share one sample set"):
            call()
    matrices = [problem.assemble(y, symmetric=symmetric)[0] for symmetric in (False, True)]
    operator = problem.operator(Ensemble(rng.uniform(1.0, 2.0, (64, 4)), own))
    made = [*matrices, operator @ np.ones(27), operator.to_crs(), operator.diagonal(), operator.astype(np.float32)]
    assert all(each.sample_set is own for each in made)
    assert operator.take_samples([2, 1]).sample_set == own.take([2, 1])
    with pytest.raises(ValueError, match="share one sample set"):
        operator @ u


def test_an_unknown_coefficient_is_refused():
    with pytest.raises(ValueError, match="coefficient must be one of 'affine', 'lognormal'; got 'gamma'"):
        RandomDiffusion(2, coefficient="gamma")


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: Multigrid(matrix="none"), ValueError, "Multigrid: matrix must be one of 'sample', 'mean'; got 'none'"),
        (lambda: Multigrid(dtype=np.float16), ValueError, "Multigrid: dtype must be float32 or float64"),
        (
            lambda: RandomDiffusion(2).solve(np.zeros(5), preconditioner="mean"),
            TypeError,
            "preconditioner must be a Multigrid; got a str",
        ),
        (lambda: RandomDiffusion(2).solve(np.zeros(5), hierarchy="mean"), TypeError, "unexpected keyword argument"),
    ],
)
def test_other_preconditioners_are_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()
