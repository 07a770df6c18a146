"""Direct solves of many samples: backward errors or a status that says otherwise, and each sample its own run."""

from importlib import import_module

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla

from ensemble import Ensemble
from ensemble._kernels.krylov.backward_error import backward_error
from ensemble.gallery import poisson
from ensemble.krylov import Status, direct, newton
from ensemble.linalg import BcrsMatrix, CrsGraph, CrsMatrix, Factorization, SymmetricCrsMatrix
from ensemble.linalg.factorizations import orderings


@pytest.fixture(params=["flat", "rows", "supernodes"])
def form(request, monkeypatch):
    """Every form of the numbers, whatever the counts."""
    if request.param != "flat":
        monkeypatch.setattr(orderings, "FLAT", -1)
    monkeypatch.setattr(orderings, "SUPERNODAL", 0 if request.param == "supernodes" else np.inf)
    monkeypatch.setattr(orderings, "SYMMETRIC_SHARE", 0.0)


def weak_family(n, n_samples, sigma, seed=5):
    """Random unsymmetric matrices with a diagonal as small as the other entries, lognormal with `sigma`."""
    rng = np.random.default_rng(seed)
    base = sp.random_array((n, n), density=5.0 / n, rng=rng, data_sampler=rng.standard_normal)
    base = sp.csr_array(base + sp.diags_array(rng.standard_normal(n)))
    base.sort_indices()
    graph = CrsGraph(base.indptr, base.indices, (n, n))
    return CrsMatrix(graph, base.data[:, None] * np.exp(sigma * rng.standard_normal((graph.nnz, n_samples))))


def normwise(A, x, b):
    """The backward error of Rigal and Gaches in the largest norm, which is at most the one by rows."""
    r = np.abs(b - A @ x).max()
    return r / (abs(A).sum(axis=1).max() * np.abs(x).max() + np.abs(b).max())


@pytest.mark.parametrize("n_samples, shared", [(1, False), (5, False), (33, False), (5, True)])
def test_the_compiled_backward_error_has_the_bits_of_its_reference(n_samples, shared, rng):
    A = weak_family(20, 1 if shared else n_samples, 0.5)
    x, b = rng.standard_normal((2, 20, n_samples))
    inverse = rng.standard_normal((20, A.n_samples))
    for compiled, expected in zip(
        backward_error(*A.arrays, x, b, inverse), backward_error.reference(*A.arrays, x, b, inverse), strict=True
    ):
        np.testing.assert_array_equal(compiled, expected)
    x[3, 0] = np.nan
    assert np.isnan(backward_error(*A.arrays, x, b, inverse)[1]).tolist() == [True] + [False] * (n_samples - 1)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 2.0])
def test_random_families_are_solved_or_flagged(sigma, form):
    A, b = weak_family(120, 24, sigma), np.random.default_rng(8).standard_normal(120)
    result = direct(A, b)
    assert result.converged.all() and (result.backward_errors <= 1e-13).all()
    for s in range(24):
        exact = A.to_scipy(s)
        assert normwise(exact, result.x.samples[:, s], b) <= 1e-13
        lu = sla.splu(exact.tocsc())
        condition = np.linalg.cond(exact.toarray())
        difference = np.abs(result.x.samples[:, s] - lu.solve(b)).max() / np.abs(lu.solve(b)).max()
        assert difference <= 1e-15 * condition


def test_weak_pivots_are_refined_and_some_samples_need_pivoting(form):
    result = direct(weak_family(300, 64, 2.0), np.ones(300))
    assert result.iterations.max() > 0 and (result.backward_errors <= 1e-13).all()
    zero = CrsMatrix(CrsGraph([0, 2, 4], [0, 1, 0, 1], (2, 2)), [[0.0, 2.0], [1.0, 1.0], [1.0, 1.0], [0.0, 2.0]])
    result = direct(zero, np.array([1.0, 2.0]))
    assert result.repaired.tolist() == [True, False] and result.converged.all()
    assert "1 solved with pivoting" in repr(result)
    np.testing.assert_allclose(result.x.samples[:, 0], [2.0, 1.0])


@pytest.mark.parametrize("n_samples", [1, 3, 8, 32, 33])
def test_samples_equal_their_own_runs_to_the_bit(n_samples, form):
    A = weak_family(40, n_samples, 2.0)
    values = A.values.copy()
    values[A.graph.diagonal_entries[:2], 0] = 0.0  # one that may need pivoting
    A, b = CrsMatrix(A.graph, values), np.ones(40)
    together = direct(A, Ensemble(np.outer(b, np.arange(1.0, n_samples + 1))))
    for s in {0, n_samples // 2, n_samples - 1}:
        alone = direct(CrsMatrix(A.graph, values[:, s]), (s + 1) * b)
        np.testing.assert_array_equal(together.x.samples[:, s], alone.x)
        assert together.status[s] == alone.status[0] and together.iterations[s] == alone.iterations[0]
        assert together.repaired[s] == alone.repaired[0]


def test_singular_and_undefined_samples_are_flagged_alone(form):
    A = poisson((6, 6), n_samples=6)
    values = np.array(A.values, copy=True)
    values[:, 1] = 0.0
    values[4, 2] = np.nan
    values[4, 3] = np.inf
    singular = CrsMatrix.from_scipy(sp.csr_array(np.ones((3, 3))))
    assert direct(singular, np.array([1.0, 2.0, 3.0])).status[0] == Status.breakdown
    b = np.ones(36)
    result, good = direct(CrsMatrix(A.graph, values), b), direct(A, b)
    assert result.converged.tolist() == [True, False, False, False, True, True]
    assert (result.status[1:4] == Status.breakdown).all()
    np.testing.assert_array_equal(result.x.samples[:, [0, 4, 5]], good.x.samples[:, [0, 4, 5]])
    with pytest.raises(RuntimeError, match="3 of 6 samples did not converge"):
        result.raise_if_failed()
    undefined = Ensemble(np.stack([b, b * np.nan], axis=1))
    assert direct(poisson((6, 6)), undefined).converged.tolist() == [True, False]


def test_a_nearly_singular_matrix_has_a_small_backward_error(rng):
    n = 30
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    A = sp.csr_array(left * np.logspace(0, -13, n) @ right)
    b = rng.standard_normal(n)
    result = direct(A, b)
    assert result.converged.all() and result.backward_errors[0] <= 1e-13
    assert normwise(A, result.x, b) <= 1e-13


@pytest.mark.parametrize("scale", [1e150, 1e-150])
@pytest.mark.parametrize("dtype", [None, "float32"])
def test_scaled_values(scale, dtype, form):
    A = weak_family(40, 4, 0.3)
    scaled = A * Ensemble(np.array([1.0, scale, 1.0, scale]))
    result = direct(scaled, np.ones(40), dtype=dtype)
    assert result.converged.all() and (result.backward_errors <= 1e-13).all()
    x = direct(A, np.ones(40)).x.samples
    np.testing.assert_allclose(result.x.samples[:, 1] * scale, x[:, 1], rtol=1e-9)


def test_norms_of_parts_are_noted_in_the_same_rows(monkeypatch):
    """The first part repairs a sample and refines none, the second refines: repairs are the last row of all."""
    A = weak_family(40, 24, 1.0, seed=7)
    values, diagonal = A.values.copy(), A.graph.diagonal_entries
    values[diagonal, 1:8], values[diagonal[:3], 0] = 1e3, 0.0
    values[diagonal[:20], 10] *= 1e-13
    A = CrsMatrix(A.graph, values)
    together = direct(A, np.ones(40), rtol=1e-15)
    monkeypatch.setattr(import_module("ensemble.krylov._direct_solution"), "BUDGET", 1)
    parts = direct(A, np.ones(40), rtol=1e-15)
    assert together.repaired[0] and not together.iterations[0] and together.iterations.max() > 1
    np.testing.assert_array_equal(parts.residual_norms, together.residual_norms)


def test_units_of_a_float32_factorisation_are_each_samples_own():
    """Small entries are subnormal in float32 beside the largest; one huge sample must not scale them."""
    n, rng = 12, np.random.default_rng(3)
    values = np.diag(2.0**-130 * rng.uniform(1.0, 2.0, n))
    values[1:, 1:] += 2.0**-135 * rng.standard_normal((n - 1, n - 1))
    values[:, 0] += 2.0**-62 * rng.standard_normal(n)
    huge = 1e150 * (np.eye(n) + 0.1 * rng.standard_normal((n, n)))
    both = CrsMatrix.from_scipy([sp.csr_array(values), sp.csr_array(huge)])
    result = direct(both, np.ones(n), dtype="float32")
    for s in range(2):
        alone = direct(both.sample(s), np.ones(n), dtype="float32")
        np.testing.assert_array_equal(result.x.samples[:, s], alone.x)
        assert (result.iterations[s], result.repaired[s]) == (alone.iterations[0], alone.repaired[0])


def test_float32_factors_of_the_largest_numbers():
    result = direct(CrsMatrix(CrsGraph([0, 1], [0], (1, 1)), np.array([[1e308, 1.0]])), np.ones(1), dtype="float32")
    assert result.converged.all() and not result.repaired.any()
    np.testing.assert_allclose(result.x.samples, [[1e-308, 1.0]])


def test_float32_factors_reach_float64_accuracy(form):
    A, b = poisson((30, 30), n_samples=4), np.ones(900)
    result = direct(A, b, dtype="float32", kind="ldlt")
    exact = direct(A, b)
    assert result.converged.all() and (result.backward_errors <= 1e-13).all()
    assert result.iterations.min() >= 1 and result.iterations.max() <= 4 and exact.iterations.max() == 0
    np.testing.assert_allclose(result.x.samples, exact.x.samples, rtol=1e-10)


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_the_norm_of_the_right_hand_side_is_taken_once(dtype, monkeypatch):
    module, b, taken = import_module("ensemble.krylov._direct_solution"), np.ones((40, 3)), []
    b[7, 1] = 1e-200
    dot = module.dot
    monkeypatch.setattr(module, "dot", lambda x, y, out: taken.append(np.array_equal(x, b)) or dot(x, y, out))
    assert direct(weak_family(40, 3, 1.0), Ensemble(b), dtype=dtype).converged.all()
    assert sum(taken) == 1


@pytest.mark.parametrize("dtype, size", [(None, 8), ("float32", 16)])
def test_samples_that_are_solved_part_by_part_have_the_same_bits(dtype, size, monkeypatch):
    A, b = weak_family(40, 37, 1.0), np.ones(40)
    rtol = np.geomspace(1e-14, 1e-6, 37)
    together = direct(A, b, dtype=dtype, rtol=rtol)
    made = []
    put = Factorization._put
    monkeypatch.setattr(Factorization, "_put", lambda F, A, b: made.append(A.n_samples) or put(F, A, b))
    monkeypatch.setattr(import_module("ensemble.krylov._direct_solution"), "BUDGET", 1)
    parts = direct(A, b, dtype=dtype, rtol=rtol)
    assert made == [size] * (37 // size) + [37 % size]
    np.testing.assert_array_equal(parts.x.samples, together.x.samples)
    for name in ("status", "iterations", "backward_errors", "repaired", "residual_norms", "target"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(together, name))
    with pytest.raises(ValueError, match="matching must be one of"):
        direct(A, b, matching="none")


def test_float32_systems_have_the_bound_of_float32():
    A = poisson((8, 8), n_samples=2).astype(np.float32)
    result = direct(A, np.ones(64, np.float32))
    assert result.x.dtype == np.float32 and result.converged.all()


def test_a_shared_matrix_with_many_right_hand_sides(rng):
    A, b = poisson((5, 5)), Ensemble(rng.standard_normal((25, 6)))
    result = direct(A, b)
    for s in range(6):
        np.testing.assert_array_equal(result.x.samples[:, s], direct(A, b.samples[:, s]).x)


def test_symmetric_matrices_and_given_factorisations():
    A = poisson((6, 6), n_samples=3)
    symmetric = SymmetricCrsMatrix.from_crs(A)
    b = np.ones(36)
    x = direct(symmetric, b).x.samples
    np.testing.assert_array_equal(x, direct(A, b, kind="ldlt").x.samples)
    first = Factorization(A * 2.0)
    np.testing.assert_array_equal(direct(A, b, factorization=first).x.samples, direct(A, b).x.samples)


def test_newton_takes_it():
    A = poisson((5, 5), n_samples=3)
    result = newton(lambda u: A @ u - 1.0, lambda u: A, np.zeros(25), solver=direct)
    assert result.converged.all() and result.iterations.max() <= 2


def test_what_is_refused():
    with pytest.raises(ValueError, match="direct: A must be square"):
        direct(sp.csr_array(np.ones((2, 3))), np.ones(2))
    with pytest.raises(TypeError, match="direct: A must be a sparse matrix"):
        direct(np.eye(2), np.ones(2))
    with pytest.raises(ValueError, match="structurally singular"):
        direct(sp.csr_array([[1.0, 0.0], [1.0, 0.0]]), np.ones(2))


def test_empty_and_one():
    assert direct(CrsMatrix(CrsGraph([0], [], (0, 0)), np.zeros((0, 2))), np.zeros(0)).converged.all()
    assert direct(sp.csr_array([[4.0]]), np.array([2.0])).x[0] == 0.5


def test_norms_and_targets_of_any_magnitude(rng):
    """Squares of the right-hand side leave the range of numbers; each sample has its own units."""
    A, b = poisson((12,), n_samples=4), rng.standard_normal((12, 1)) * np.array([1.0, 1e-200, 1e200, 0.0])
    result = direct(A, Ensemble(b), rtol=1e-6)
    assert result.converged.all()
    expected = 1e-6 * np.linalg.norm(b[:, 0]) * np.array([1.0, 1e-200, 1e200, 0.0])
    np.testing.assert_allclose(result.target, expected, rtol=1e-12)
    for s in range(4):
        assert result.target[s] == direct(A.sample(s), b[:, s], rtol=1e-6).target[0]


def test_a_factorisation_of_another_graph_is_refused():
    A = poisson((6,), n_samples=2)
    other = CrsMatrix.from_scipy([A.to_scipy(s).tolil()[::-1].tocsr() for s in range(2)])
    with pytest.raises(ValueError, match=r"Factorization.update: A must have the same graph"):
        direct(A, np.ones(6), factorization=Factorization(other))


def test_what_is_no_factorisation_is_refused_and_vectors_of_nodes_keep_their_shape():
    with pytest.raises(TypeError, match="direct: factorization must be a Factorization; got a str"):
        direct(sp.eye_array(2, format="csr"), np.ones(2), factorization="lu")
    A = BcrsMatrix(CrsGraph([0, 1, 2], [0, 1], (2, 2)), 2.0 * np.stack([np.eye(2)] * 2))
    assert direct(A, np.ones((2, 2))).x.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_a_list_has_one_matrix_per_sample():
    A = [sp.csr_array([[c, 1.0], [0.0, 2.0]]) for c in (1.0, 4.0)]
    np.testing.assert_allclose(direct(A, np.array([2.0, 2.0])).x.samples, [[1.0, 0.25], [1.0, 1.0]])
    with pytest.raises(TypeError, match="must be SciPy sparse matrices with two axes; got a str"):
        direct(["A"], np.ones(2))


def test_small_pivots_in_rows_of_very_different_units_are_solved(rng):
    """Every sample needs exchanges; those by the largest entry of a column gave backward errors near one."""
    n = 60
    pattern = sp.csr_array(sp.random_array((n, n), density=0.12, rng=rng) + sp.eye_array(n))
    A = CrsMatrix.from_scipy(pattern)
    values = rng.normal(size=(A.nnz, 8)) * rng.lognormal(0.0, 1.0, (A.nnz, 8))
    values[A.graph.diagonal_entries] *= 1e-12
    units = np.rint(rng.uniform(-500.0, 500.0, n)).astype(int)[A.graph.row_of_entry]
    result = direct(CrsMatrix(A.graph, np.ldexp(values, units[:, None])), np.ones(n))
    assert result.converged.all() and result.repaired.all() and result.backward_errors.max() <= 1e-13


def test_a_singular_sample_was_not_solved_and_overflow_warns_of_nothing():
    A = CrsMatrix(CrsGraph([0, 1], [0], (1, 1)), np.array([[2.0, 0.0]]))
    result = direct(A, np.ones(1))
    assert result.repaired.tolist() == [False, False] and result.status[1] is Status.breakdown
    with np.errstate(all="raise"):
        found = direct(1e-300 * A, np.array([1e300]), dtype="float32")
    assert found.status[0] is Status.breakdown
