"""Factorisations without fill, against their definition."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from ensemble._kernels.direct.forms import factors
from ensemble.gallery import convection_diffusion, poisson
from ensemble.krylov import cg, gmres
from ensemble.linalg import CrsMatrix, Factorization, IncompleteFactorization


def ilu0(A):
    """L and U of ILU(0) by the loop of the textbook (Saad 2003, algorithm 10.4)."""
    A, n = A.copy(), A.shape[0]
    stored = A != 0
    for i in range(n):
        for k in range(i):
            if stored[i, k]:
                A[i, k] /= A[k, k]
                for j in range(k + 1, n):
                    if stored[i, j]:
                        A[i, j] -= A[i, k] * A[k, j]
    return np.tril(A, -1) + np.eye(n), np.triu(A)


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_it_is_the_elimination_that_drops_fill(kind, rng):
    base = sp.random_array((25, 25), density=0.15, rng=rng)
    base = sp.csr_array(base + base.T + 6.0 * sp.eye_array(25))
    A = CrsMatrix.from_scipy([sp.csr_array(base * c) + sp.eye_array(25) for c in (1.0, 2.0, 3.0)])
    M, b = IncompleteFactorization(A, kind=kind), rng.standard_normal(25)
    for s in range(3):
        L, U = ilu0(A.to_scipy(s).toarray())
        np.testing.assert_allclose((M @ b).samples[:, s], np.linalg.solve(L @ U, b), rtol=1e-12)
        np.testing.assert_allclose((M.T @ b).samples[:, s], np.linalg.solve((L @ U).T, b), rtol=1e-12)
    expected, _ = factors.factorized.reference(A.values, M.plan, None)
    np.testing.assert_array_equal(M.values, expected)
    assert M.n_values == (A.nnz if kind == "lu" else (A.nnz + 25) // 2)


def test_a_matrix_without_fill_is_factorised_exactly(rng):
    A = CrsMatrix.from_scipy(sp.diags_array([np.ones(29), 4 * np.ones(30), np.ones(29)], offsets=[-1, 0, 1]).tocsr())
    b = rng.standard_normal(30)
    natural = Factorization(A, ordering=np.arange(30)) @ b
    np.testing.assert_array_equal(IncompleteFactorization(A) @ b, natural)


def test_it_preconditions_convection_and_diffusion():
    A = convection_diffusion((24, 24), [[1.0] * 3, [0.6] * 3], diffusion=np.array([1e-2, 1e-4, 1e-6]))
    b = np.ones(576)
    result = gmres(A, b, M=IncompleteFactorization(A))
    assert result.converged.all() and result.iterations[1:].max() <= 5 < result.iterations[0] <= 15
    A = poisson((24, 24), n_samples=3)
    plain, better = cg(A, b), cg(A, b, M=IncompleteFactorization(A, kind="ldlt"))
    assert better.converged.all() and better.iterations.max() < 0.6 * plain.iterations.max()


def test_samples_equal_their_own_runs_and_update_keeps_the_plan():
    A = convection_diffusion((6, 6), [[1.0] * 33, [0.6] * 33], diffusion=np.logspace(-3, 0, 33))
    M, b = IncompleteFactorization(A), np.ones(36)
    for s in (0, 16, 32):
        np.testing.assert_array_equal((M @ b).samples[:, s], IncompleteFactorization(A.sample(s)) @ b)
    assert M.update(A * 2.0).plan is M.plan and repr(M).startswith("IncompleteFactorization(LU, shape=(36, 36), 156")


def test_a_zero_pivot_is_flagged():
    M = IncompleteFactorization(CrsMatrix.from_scipy([sp.csr_array([[c, 1.0], [1.0, 2.0]]) for c in (0.0, 1.0)]))
    assert M.broken.tolist() == [True, False]
    with pytest.raises(TypeError, match="IncompleteFactorization: A must be a sparse matrix"):
        IncompleteFactorization(np.eye(2))


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
@pytest.mark.parametrize("size", [1, 4, 25])
def test_block_jacobi_solves_with_the_diagonal_blocks(kind, size, rng):
    base = sp.random_array((25, 25), density=0.15, rng=rng)
    base = sp.csr_array(base + base.T + 6.0 * sp.eye_array(25))
    A = CrsMatrix.from_scipy([sp.csr_array(base * c) + sp.eye_array(25) for c in (1.0, 2.0, 3.0)])
    M, b, block = IncompleteFactorization(A, kind=kind, block_size=size), rng.standard_normal(25), np.arange(25) // size
    for s in range(3):
        blocks = np.where(block[:, None] == block, A.to_scipy(s).toarray(), 0.0)
        np.testing.assert_allclose((M @ b).samples[:, s], np.linalg.solve(blocks, b), rtol=1e-12)
    np.testing.assert_array_equal((M.update(A * 2.0) @ b).samples, 0.5 * (M @ b).samples)
    assert cg(A, b, M=M).converged.all()


def test_block_sizes_are_checked_and_singular_blocks_named():
    A = sp.csr_array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    np.testing.assert_allclose(IncompleteFactorization(A, block_size=2) @ np.ones(3), [1.0, 1.0, 1.0])
    with pytest.raises(
        ValueError, match=r"IncompleteFactorization\(block_size=1\): A must have a graph .*: rows 0, 1 left"
    ):
        IncompleteFactorization(A, block_size=1)
    with pytest.raises(ValueError, match="block_size must be an integer of at least 1; got 0"):
        IncompleteFactorization(A, block_size=0)


def ilu_of_levels(A, most):
    """L and U of ILU(most) by the loop of the textbook (Saad 2003, algorithm 10.5), dense."""
    A, n = A.copy(), A.shape[0]
    level = np.where(A != 0, 0, 10**6)
    for i in range(n):
        for k in range(i):
            if level[i, k] <= most:
                A[i, k] /= A[k, k]
                for j in range(k + 1, n):
                    A[i, j] -= A[i, k] * A[k, j]
                    level[i, j] = min(level[i, j], level[i, k] + level[k, j] + 1)
        A[i, level[i] > most] = 0.0
    return np.tril(A, -1) + np.eye(n), np.triu(A)


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
@pytest.mark.parametrize("level", [1, 2, 5])
def test_fill_is_kept_up_to_its_level(kind, level, rng):
    base = sp.random_array((40, 40), density=0.06, rng=rng)
    base = sp.csr_array((base + base.T if kind == "ldlt" else base) + 6.0 * sp.eye_array(40))
    A = CrsMatrix.from_scipy([sp.csr_array(base * c) + sp.eye_array(40) for c in (1.0, 2.0, 3.0)])
    M, b = IncompleteFactorization(A, kind=kind, fill_level=level), rng.standard_normal(40)
    assert IncompleteFactorization(A, kind=kind).n_values < M.n_values
    for s in range(3):
        L, U = ilu_of_levels(A.to_scipy(s).toarray(), level)
        np.testing.assert_allclose((M @ b).samples[:, s], np.linalg.solve(L @ U, b), rtol=1e-11)
        own = IncompleteFactorization(A.sample(s), kind=kind, fill_level=level)
        np.testing.assert_array_equal(own @ b, (M @ b).samples[:, s])


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_all_levels_of_fill_are_the_whole_elimination(kind, rng):
    A, b = poisson((9, 9)), rng.standard_normal(81)
    M = IncompleteFactorization(A, kind=kind, fill_level=81)
    np.testing.assert_allclose(A @ (M @ b), b, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_a_drop_tolerance_keeps_what_is_large_in_any_sample(kind):
    A = poisson((30, 30))
    weights = np.where(A.graph.row_of_entry == A.graph.indices, 3.0, 1.0)
    both = CrsMatrix(
        A.graph, np.stack([A.values[:, 0] * weights, A.values[:, 0]], axis=1)
    )  # one is dominant, one is not
    sizes = [
        IncompleteFactorization(matrix, kind=kind, drop_tolerance=1e-3).n_values
        for matrix in (both.sample(0), both.sample(1), both)
    ]
    assert sizes[0] < sizes[1] == sizes[2] < IncompleteFactorization(both, kind=kind, fill_level=8).n_values
    M = IncompleteFactorization(both, kind=kind, drop_tolerance=1e-3)
    for s in range(2):  # on the pattern, each sample's arithmetic is its own
        np.testing.assert_array_equal(M.update(both.sample(s)).values[:, 0], M.values[:, s])
    assert (
        IncompleteFactorization(both, kind=kind, drop_tolerance=10.0).n_values
        == IncompleteFactorization(both, kind=kind).n_values
    )
    capped = IncompleteFactorization(both, kind=kind, drop_tolerance=1e-6, fill_factor=2.0)
    assert (
        capped.n_values
        <= 2.0 * A.nnz + A.shape[0]
        < IncompleteFactorization(both, kind=kind, drop_tolerance=1e-6).n_values * 2
    )


def test_fill_takes_fewer_iterations_than_superlus_incomplete_factors():
    """With as many values: 8 levels and a tolerance of 1e-4, against drop_tol=1e-4 and fill_factor=10."""
    A, b = poisson((40, 40)), np.random.default_rng(40_227).standard_normal(1600)
    a, theirs = sp.csc_array(A.to_scipy()), []
    factors = spla.spilu(a, drop_tol=1e-4, fill_factor=10)
    M = spla.LinearOperator(a.shape, factors.solve)
    spla.gmres(a, b, rtol=1e-8, M=M, restart=100, callback=theirs.append, callback_type="pr_norm")
    own = IncompleteFactorization(A, drop_tolerance=1e-4)
    assert own.n_values <= factors.nnz
    assert gmres(A, b, M=own, rtol=1e-8).raise_if_failed().iterations[0] < len(theirs)
    assert cg(A, b, M=IncompleteFactorization(A, kind="ldlt", fill_level=3), rtol=1e-8).iterations[0] <= 20
    assert cg(A, b, M=IncompleteFactorization(A, kind="ldlt"), rtol=1e-8).iterations[0] >= 40


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fill_level": -1}, "fill_level must be an integer of at least 0; got -1"),
        ({"drop_tolerance": -1.0}, "drop_tolerance must be a finite number, zero or above"),
        ({"fill_factor": 2.0}, "fill_factor must have a drop_tolerance"),
        ({"block_size": 2, "fill_level": 1}, "fill_level must be None with a block_size; got 1"),
        ({"block_size": 2, "drop_tolerance": 0.1}, "drop_tolerance must be None with a block_size"),
    ],
)
def test_options_that_exclude_each_other_are_refused(options, text):
    with pytest.raises(ValueError, match=f"IncompleteFactorization: {text}"):
        IncompleteFactorization(poisson((5,)), **options)


def test_a_sample_of_nan_does_not_decide_what_is_dropped():
    A = poisson((12, 12))
    values = np.repeat(A.values, 2, axis=1)
    values[3, 1] = np.nan
    M = IncompleteFactorization(CrsMatrix(A.graph, values), drop_tolerance=1e-3)
    own = IncompleteFactorization(A, drop_tolerance=1e-3)
    assert M.broken.tolist() == [False, True] and M.n_values == own.n_values
    np.testing.assert_array_equal(M.values[:, 0], own.values[:, 0])
