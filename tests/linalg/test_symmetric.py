"""A matrix that stores its upper triangle gives the bits of the one that stores every entry."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble import Ensemble, SampleSet
from ensemble._kernels.multigrid import symmetric as kernels
from ensemble.gallery import poisson
from ensemble.krylov import cg
from ensemble.linalg import CrsGraph, CrsMatrix, Diagonal, Factorization, SymmetricCrsMatrix, apply_dirichlet, eigsh
from ensemble.multigrid import smoothed_aggregation
from tests.conftest import examples


def random_pair(seed, n, n_samples, density=0.02, dtype=np.float64):
    """A random matrix, positive definite by its diagonal: every entry stored, and the upper triangle."""
    rng = np.random.default_rng(seed)
    pattern = sp.random_array((n, n), density=density, rng=rng)
    pattern = sp.csr_array(abs(pattern) + abs(pattern.T) + sp.eye_array(n))
    pattern.sort_indices()
    graph = CrsGraph(pattern.indptr, pattern.indices, (n, n))
    starts = graph.upper.starts
    values = -rng.random((int(starts[-1]), n_samples)).astype(dtype)
    values[starts[:-1]] = np.diff(graph.indptr)[:, None] + rng.random((n, n_samples))
    half = SymmetricCrsMatrix(graph, values)
    return half.to_crs(), half


def test_a_matrix_by_hand():
    graph = CrsGraph([0, 2, 5, 7], [0, 1, 0, 1, 2, 1, 2], (3, 3))
    A = SymmetricCrsMatrix(graph, np.array([2.0, -1.0, 3.0, 5.0, 7.0]))
    np.testing.assert_array_equal(A.to_scipy().toarray(), [[2, -1, 0], [-1, 3, 5], [0, 5, 7]])
    np.testing.assert_array_equal(A @ np.array([1.0, 10.0, 100.0]), [-8, 529, 750])
    np.testing.assert_array_equal(A.diagonal().sample(0), [2, 3, 7])
    assert (A.nnz, A.n_samples, A.T) == (7, 1, A)
    assert repr(A) == "SymmetricCrsMatrix(shape=(3, 3), nnz=7, n_samples=1, float64)"


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 5, 600, 1300]), st.sampled_from([1, 3, 8]), st.integers(1, 6))
def test_products_have_the_bits_of_the_full_matrix_on_any_number_of_threads(seed, n, n_samples, n_threads):
    full, half = random_pair(seed, n, n_samples, density=min(1.0, 8.0 / n))
    rng = np.random.default_rng(seed)
    x, b, dinv = (rng.standard_normal((n, n_samples)) for _ in range(3))
    a, c = rng.standard_normal((2, n_samples))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "thread_count", lambda: n_threads)
        np.testing.assert_array_equal(half.apply(x), full.apply(x))
        np.testing.assert_array_equal(half.residual(x, b), full.residual(x, b))
        for got, expected in zip(half.apply_dot(x), full.apply_dot(x), strict=True):
            np.testing.assert_array_equal(got, expected)
        steps = half.chebyshev_last(dinv, b, x, a, c, b, None)
        np.testing.assert_array_equal(steps, x + (a * b + c * (dinv * full.residual(x, b))))


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n_samples", [1, 3, 8])
def test_a_restricted_residual_has_the_bits_of_two_products_on_any_number_of_threads(n_samples, n_threads, monkeypatch):
    full, half = random_pair(5, 1300, n_samples, density=0.005)
    rng = np.random.default_rng(6)
    prolongator = sp.random_array((1300, 90), density=0.03, rng=rng, format="csr")
    prolongator.sort_indices()
    P = CrsMatrix(CrsGraph(prolongator.indptr, prolongator.indices, (1300, 90)), rng.random((prolongator.nnz, 1)))
    x, b = (rng.standard_normal((1300, n_samples)) for _ in range(2))
    expected = P.T.apply(full.residual(x, b))
    monkeypatch.setattr(kernels, "thread_count", lambda: n_threads)
    np.testing.assert_array_equal(half.restricted_residual(x, b, P), expected)


def test_each_sample_is_its_own_scalar_run():
    _, half = random_pair(1, 700, 5)
    x = np.random.default_rng(2).standard_normal((700, 5))
    together = half @ Ensemble(x)
    for i in range(5):
        np.testing.assert_array_equal(together.sample(i), half.sample(i) @ x[:, i])
        np.testing.assert_array_equal(half.take_samples([i]).values, half.sample(i).values)


def test_nan_stays_in_its_sample():
    full, half = random_pair(3, 60, 4)
    broken = SymmetricCrsMatrix(half.graph, half.values.copy())
    broken.values[10, 2] = np.nan
    x = np.ones((60, 4))
    got = broken.apply(x)
    np.testing.assert_array_equal(got[:, [0, 1, 3]], full.apply(x)[:, [0, 1, 3]])
    assert np.isnan(got[:, 2]).any()


def test_one_matrix_serves_many_vectors():
    full, half = random_pair(4, 90, 1)
    x = np.random.default_rng(0).standard_normal((90, 7))
    np.testing.assert_array_equal(half.apply(x), full.apply(x))
    assert half.take_samples([0, 0]) is half


def test_from_crs_keeps_the_upper_triangle():
    full, half = random_pair(5, 80, 3)
    full.values[full.graph.diagonal_entries[4], 1] = np.nan
    again = SymmetricCrsMatrix.from_crs(full)
    np.testing.assert_array_equal(again.to_crs().values, full.values)
    assert np.isnan(again.values).sum() == 1
    assert again.values.shape == half.values.shape


def test_from_crs_wants_symmetry_to_the_last_bit():
    full, _ = random_pair(6, 30, 2)
    k = int(full.graph.indptr[-1]) - 2
    full.values[k, 1] = np.nextafter(full.values[k, 1], 2.0)
    with pytest.raises(ValueError, match=r"from_crs: A must equal its transpose to the last bit; got another value at"):
        SymmetricCrsMatrix.from_crs(full)


@pytest.mark.parametrize(
    ("indptr", "indices"), [([0, 2, 3], [0, 1, 1]), ([0, 1, 2], [1, 0])], ids=["one triangle", "no diagonal"]
)
def test_the_graph_must_be_symmetric_with_a_diagonal(indptr, indices):
    with pytest.raises(ValueError, match="the graph must be symmetric, with a diagonal entry in every row"):
        SymmetricCrsMatrix(CrsGraph(indptr, indices, (2, 2)), np.ones(len(indices)))


def test_wrong_arguments_are_named():
    graph = CrsGraph([0, 2, 4], [0, 1, 0, 1], (2, 2))
    with pytest.raises(ValueError, match=r"values must have one row per entry on and above the diagonal \(3\)"):
        SymmetricCrsMatrix(graph, np.ones(4))
    with pytest.raises(TypeError, match="graph must be a CrsGraph"):
        SymmetricCrsMatrix(np.eye(2), np.ones(3))
    assert SymmetricCrsMatrix(graph, [1, 2, 3]).dtype == np.float64


def test_products_with_matrices_expand():
    full, half = random_pair(7, 25, 1)
    np.testing.assert_array_equal((half @ full).to_scipy().toarray(), (full @ full).to_scipy().toarray())
    assert half.astype(np.float32).dtype == np.float32


@pytest.mark.parametrize("options", [{}, {"dtype": np.float32}], ids=str)
def test_multigrid_gives_the_bits_of_the_full_matrix(options):
    A = poisson((40, 40))
    rng = np.random.default_rng(8)
    full = CrsMatrix(A.graph, A.values * rng.uniform(0.5, 2.0, 3))
    half = SymmetricCrsMatrix.from_crs(full)
    b = Ensemble(rng.standard_normal((1600, 3)))
    hierarchy = smoothed_aggregation(half, **options)
    expected = cg(full, b, M=smoothed_aggregation(full, **options))
    for M in (hierarchy, smoothed_aggregation(full, **options).update(half), hierarchy.update(half)):
        result = cg(half, b, M=M)
        np.testing.assert_array_equal(result.iterations, expected.iterations)
        if "dtype" not in options:
            np.testing.assert_array_equal(result.x.samples, expected.x.samples)
        np.testing.assert_allclose(result.x.samples, expected.x.samples, rtol=1e-6)


def test_a_matrix_too_small_to_coarsen_is_solved_directly():
    full, half = random_pair(9, 50, 2)
    r = np.random.default_rng(1).standard_normal((50, 2))
    np.testing.assert_array_equal(smoothed_aggregation(half).apply(r), smoothed_aggregation(full).apply(r))


def test_samples_that_are_not_there_are_named():
    _, half = random_pair(5, 12, 3)
    np.testing.assert_array_equal(half.sample(-1).values, half.sample(2).values)
    with pytest.raises(IndexError, match=r"SymmetricCrsMatrix: i in sample\(i\) must be from -3 to 2; got 3"):
        half.sample(3)
    with pytest.raises(IndexError, match=r"SymmetricCrsMatrix.take_samples: samples must be"):
        half.take_samples([0, 7])


def test_a_sample_set_stays_where_that_of_the_full_matrix_does():
    samples = SampleSet.monte_carlo(3, 1, seed=20371)
    kappa = Ensemble(np.array([1.0, 2.0, 3.0]), samples)
    full = kappa * poisson((5,))
    A = SymmetricCrsMatrix.from_crs(full)
    made = [
        A, SymmetricCrsMatrix(A.graph, Ensemble(A.values, samples)), kappa * SymmetricCrsMatrix.from_crs(poisson((5,))),
        A.to_crs(), 2 * A, -A, A / kappa, A + A, A - A, A + Diagonal(np.ones(5)), A + full, A[1:3],
        A.astype(np.float32),
        A.T, A.eliminate_zeros(), A.diagonal(), A @ np.ones(5), np.ones(5) @ A, A @ A,
        apply_dirichlet(A, np.ones(5), [0], 1.0)[0], Factorization(A) @ np.ones(5), cg(A, np.ones(5)).x,
        eigsh(A, 2).values,
    ]  # fmt: skip
    assert all(thing.sample_set is samples for thing in made)
    assert A.take_samples([2, 0]).sample_set == full.take_samples([2, 0]).sample_set != samples
    assert A.sample(1).sample_set is None
    other = Ensemble(np.ones(3), SampleSet.monte_carlo(3, 1, seed=4))
    with pytest.raises(ValueError, match="sample"):
        other * A
