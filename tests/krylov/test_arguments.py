"""What all solvers take alike: types, layouts, samples shared or not, and whose sample set the answer has."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg

from ensemble import SampleSet, gallery
from ensemble.apps.fem import RandomDiffusion
from ensemble.krylov import Status, bicgstab, cg, gmres
from ensemble.linalg import AffineMatrix, BcrsMatrix, CrsGraph, CrsMatrix, Diagonal
from ensemble.scalar import Ensemble
from tests.krylov.problems import EVERY_METHOD, same, true_residuals

each_method = pytest.mark.parametrize("name", EVERY_METHOD)


def solve(name, A, b, **options):
    method, own = EVERY_METHOD[name]
    return method(A, b, **own, **options)


def system(n_samples=3):
    """Symmetric positive definite, well conditioned: every method converges soon."""
    A = gallery.random_spd(12, n_samples)
    A = CrsMatrix(A.graph, A.values + 2.0 * (A.graph.row_of_entry == A.graph.indices)[:, None])
    return A, np.random.default_rng(30011).standard_normal((12, n_samples))


def single(A):
    return CrsMatrix(A.graph, A.values.astype(np.float32))


# --- types
@each_method
def test_a_matrix_of_less_precision_is_raised_to_that_of_the_vectors(name):
    """float32 values, float64 vectors: the bits of the matrix converted by hand."""
    A, b = system()
    matrix = single(A)
    by_hand = CrsMatrix(A.graph, matrix.values.astype(np.float64))
    got, expected = solve(name, matrix, Ensemble(b)), solve(name, by_hand, Ensemble(b))
    assert got.x.dtype == np.float64 and got.converged.all()
    np.testing.assert_array_equal(got.x.samples, expected.x.samples)
    assert solve(name, matrix.sample(0), np.arange(12, dtype=np.int32)).x.dtype == np.float64


def test_other_operators_of_less_precision():
    A, b = system()
    terms = np.concatenate([A.values[:, :1], 0.01 * A.values[:, 1:2]], axis=1).astype(np.float32)
    affine = AffineMatrix(A.graph, terms, Ensemble(np.array([[0.1, 0.2, 0.3]], np.float32)))
    problem = RandomDiffusion(4)
    diffusion = problem.operator(np.ones(8 * problem.mesh.n_cells, np.float32))
    wide = np.random.default_rng(30013).standard_normal(diffusion.shape[0])
    for operator, vector in ((affine, Ensemble(b)), (diffusion, wide)):
        result = cg(operator, vector, rtol=1e-9)
        assert result.converged.all() and result.x.dtype == np.float64
        assert (operator @ vector).dtype == np.float64
    np.testing.assert_allclose((affine.T @ Ensemble(b)).samples, (affine @ Ensemble(b)).samples, rtol=1e-6, atol=1e-6)


@each_method
def test_a_matrix_preconditions(name):
    """A sparse approximate inverse, a `CrsMatrix` as M; of any precision."""
    A, b = system()
    inverse = np.where(A.graph.row_of_entry == A.graph.indices, 1.0, 0.0)[:, None] / 4.0
    M = CrsMatrix(A.graph, inverse)
    result = solve(name, A, Ensemble(b), M=M, rtol=1e-9)
    assert result.converged.all()
    np.testing.assert_array_equal(result.x.samples, solve(name, A, Ensemble(b), M=single(M), rtol=1e-9).x.samples)
    diagonal = solve(name, A, Ensemble(b), M=Diagonal(np.full(12, 0.25)), rtol=1e-9)
    np.testing.assert_array_equal(result.x.samples, diagonal.x.samples)


# --- kinds of operators
@each_method
def test_scipy_operators(name):
    A, b = system()
    one = A.sample(1)
    result = solve(name, scipy.sparse.linalg.aslinearoperator(one.to_scipy()), Ensemble(b), rtol=1e-9)
    assert result.converged.all()
    assert np.all(true_residuals(one, result.x.samples, b) <= 1.1e-9 * np.linalg.norm(b, axis=0))


# --- layouts and samples
@each_method
def test_vectors_need_not_be_contiguous(name):
    A, b = system()
    whole = solve(name, A, Ensemble(b), x0=Ensemble(b[::-1].copy()))
    strided = solve(name, A, Ensemble(np.asfortranarray(b)), x0=Ensemble(b[::-1]))
    assert all(same(whole, strided, i, i) for i in range(3))
    every_other = np.repeat(b[:, 0], 2)[::2]
    assert same(solve(name, A, Ensemble(b)), solve(name, A.sample(0), every_other), 0)


@each_method
def test_arguments_are_left_as_they_are(name):
    A, b = system()
    right, start = Ensemble(b.copy()), Ensemble(0.5 * b)
    solve(name, A, right, x0=start)
    np.testing.assert_array_equal(right.samples, b)
    np.testing.assert_array_equal(start.samples, 0.5 * b)


@each_method
@pytest.mark.parametrize("wide", ["A", "b", "x0", "M"])
def test_any_operand_may_be_shared(name, wide):
    """One operand has samples: each of them is its scalar run, and a plain vector gives an Ensemble."""
    A, b = system()
    x0, M = np.ones((12, 3)) * np.arange(3), Ensemble(1.0 / (1.0 + A.diagonal().samples))
    given = {"A": A.sample(0), "b": b[:, 0], "x0": x0[:, 1], "M": Diagonal(M.sample(0))}
    alone = {"A": A.sample, "b": lambda i: b[:, i], "x0": lambda i: x0[:, i], "M": lambda i: Diagonal(M.sample(i))}
    every = {"A": A, "b": Ensemble(b), "x0": Ensemble(x0), "M": Diagonal(M)}
    result = solve(name, **(given | {wide: every[wide]}))
    assert isinstance(result.x, Ensemble) and result.x.n_samples == 3
    for i in range(3):
        assert same(result, solve(name, **(given | {wide: alone[wide](i)})), i)


@each_method
def test_the_answer_has_the_sample_set_of_the_operands(name):
    A, b = system()
    one, other = (SampleSet(weights=weights) for weights in ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]))
    assert solve(name, A, Ensemble(b, one)).x.sample_set is one
    assert solve(name, A, Ensemble(b), x0=Ensemble(b, one)).x.sample_set is one
    assert solve(name, A.sample(0), b[:, 0], x0=Ensemble(b, one)).x.sample_set is one
    assert solve(name, CrsMatrix(A.graph, Ensemble(A.values, one)), Ensemble(b)).x.sample_set is one
    with pytest.raises(ValueError, match="share one sample set"):
        solve(name, A, Ensemble(b, one), x0=Ensemble(b, other))


# --- ends
@each_method
@pytest.mark.parametrize("coupling", ["independent", "ensemble"])
def test_what_is_solved_takes_no_iteration(name, coupling):
    A, b = system()
    b[:, 1] = 0.0
    solved = solve(name, A, Ensemble(b), rtol=1e-11, coupling=coupling)
    for limit in (0, 5):
        again = solve(name, A, Ensemble(b), x0=solved.x, rtol=1e-9, coupling=coupling, max_iterations=limit)
        assert again.converged.all() and not again.iterations.any()
    nothing = solve(name, A, Ensemble(b), coupling=coupling, max_iterations=0)
    assert [s.value[0] for s in nothing.status] == ["m", "c", "m"] and not nothing.x.samples.any()


@each_method
def test_a_start_that_is_not_finite_breaks_its_sample_alone(name):
    A, b = system()
    x0 = np.ones((12, 3))
    x0[4, 1] = np.nan
    result = solve(name, A, Ensemble(b), x0=Ensemble(x0))
    assert result.status[1] == Status.breakdown and result.converged[[0, 2]].all()
    assert same(result, solve(name, A.sample(2), b[:, 2], x0=x0[:, 2]), 2)


@each_method
def test_an_absolute_tolerance_bounds_each_sample(name):
    A, b = system()
    result = solve(name, A, Ensemble(b), rtol=0.0, atol=np.array([1e-2, 1e-5, 1e-8]))
    assert result.converged.all() and np.all(np.diff(result.iterations) > 0)
    np.testing.assert_array_equal(result.target, [1e-2, 1e-5, 1e-8])


@each_method
@pytest.mark.parametrize("start", [None, 3.0])
def test_a_zero_right_hand_side_is_solved_by_zero_at_once(name, start):
    """As SciPy does, whatever x0 is; the samples beside it are not touched by that."""
    A, b = system()
    b[:, 1] = 0.0
    x0 = None if start is None else Ensemble(np.full((12, 3), start))
    for coupling in ("independent", "ensemble"):
        result = solve(name, A, Ensemble(b), x0=x0, coupling=coupling)
        assert result.converged.all() and result.iterations[1] == 0 and result.iterations[[0, 2]].all()
        assert not result.x.samples[:, 1].any() and result.true_residual_norms[1] == 0.0
        if coupling == "independent":
            start_of_one = None if start is None else np.full(12, start)
            assert same(result, solve(name, A.sample(2), b[:, 2], x0=start_of_one), 2)


@each_method
def test_callbacks_are_given_norms_of_their_own(name):
    A, b = system()
    seen = []
    result = solve(name, A, Ensemble(b), callback=lambda k, norms: seen.append(norms))
    np.testing.assert_array_equal(seen[-1], result.residual_norms[-1])
    assert not np.array_equal(seen[0], seen[-1])


@each_method
def test_a_limit_is_never_passed(name):
    """Nor where the last claim of convergence fails."""
    rng, n = np.random.default_rng(88019), 16
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    A = sp.csr_array(basis @ np.diag(np.logspace(0, 9, n)) @ basis.T)
    b = rng.standard_normal(n)
    for limit in range(1, 40):
        result = solve(name, A, b, rtol=1e-15, max_iterations=limit)
        assert result.iterations[0] <= limit


def test_iterations_of_conjugate_gradients_are_those_of_scipy():
    A, b = gallery.poisson((15, 15)), np.random.default_rng(31183).standard_normal(225)
    seen = []
    scipy.sparse.linalg.cg(A.to_scipy(), b, rtol=1e-8, callback=seen.append)
    assert abs(cg(A, b, rtol=1e-8).iterations[0] - len(seen)) <= 1


@pytest.mark.parametrize("method", [cg, bicgstab, gmres])
def test_vectors_of_a_matrix_of_blocks_may_have_an_axis_of_components(method, rng):
    graph = CrsGraph([0, 2, 4], [0, 1, 0, 1], (2, 2))
    values = rng.normal(scale=0.1, size=(4, 3, 3, 2))
    values[[0, 3]] += 3.0 * np.eye(3)[..., None]
    values = values + values[[0, 2, 1, 3]].transpose(0, 2, 1, 3)
    A, b, x0 = BcrsMatrix(graph, values), rng.normal(size=(2, 3)), rng.normal(size=(2, 3, 2))
    flat = method(A, b.reshape(6), x0=Ensemble(x0.reshape(6, 2)), rtol=1e-12).raise_if_failed()
    made = method(A, b, x0=Ensemble(x0), rtol=1e-12).raise_if_failed()
    assert made.x.shape == (2, 3)
    np.testing.assert_array_equal(made.x.samples.reshape(6, 2), flat.x.samples)
    assert method(A.sample(1), b, rtol=1e-12).x.shape == (2, 3)
    with pytest.raises(ValueError, match=r"b must be a vector of length 6; got shape \(3, 2\)"):
        method(A, b.T)
