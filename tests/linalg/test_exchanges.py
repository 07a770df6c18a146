"""Products with factorisations whose pivots are small, judged and solved with exchanges of rows."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble.krylov import direct
from ensemble.linalg import CrsGraph, CrsMatrix, Factorization, SymmetricCrsMatrix
from ensemble.scalar import Ensemble

EPS = np.finfo(np.float64).eps


def family(seed, n, n_samples, *, symmetric=False, tiny=1e-14, units=0):
    """Random matrices, in every second sample with diagonals of size `tiny`, rows and columns in powers of two."""
    rng = np.random.default_rng(seed)
    pattern = sp.random_array((n, n), density=0.1, rng=rng) + sp.eye_array(n)
    A = CrsMatrix.from_scipy(sp.csr_array(pattern + pattern.T))
    graph: CrsGraph = A.graph
    values = rng.standard_normal((graph.nnz, n_samples))
    if symmetric:
        values = values + values[graph.transposed[2]]
    values[graph.diagonal_entries[: n // 2], ::2] *= tiny
    rows = rng.integers(-units, units + 1, n)
    columns = rows if symmetric else rng.integers(-units, units + 1, n)
    return CrsMatrix(graph, np.ldexp(values, (rows[graph.row_of_entry] + columns[graph.indices])[:, None]))


def errors(A, x, b, transposed=False):
    """Backward errors by rows of each sample."""
    found = []
    for s in range(x.shape[1]):
        own = A.to_scipy(s if A.n_samples > 1 else 0)
        own = sp.csr_array(own.T) if transposed else own
        size = abs(own).sum(axis=1) * np.abs(x[:, s]).max() + np.abs(b[:, s])
        found.append(np.max(np.abs(own @ x[:, s] - b[:, s]) / size))
    return np.array(found)


@pytest.mark.parametrize("tiny", [1e-16, 1e-12, 1e-8, 0.0])
def test_a_tiny_pivot_gives_the_right_solution_in_every_form_of_product(tiny):
    graph = CrsMatrix.from_scipy(sp.csr_array(np.ones((2, 2)))).graph
    A = CrsMatrix(graph, np.array([[tiny, 1.0], [1.0, 1.0], [1.0, 1.0], [2.0, 2.0]]))
    b = np.array([2.0, 5.0])
    exact = np.array([[(5.0 - 4.0) / (1.0 - 2.0 * tiny), -1.0], [(2.0 - 5.0 * tiny) / (1.0 - 2.0 * tiny), 3.0]])
    F = Factorization(A)
    assert F.lossy.tolist() == [tiny < 1e-4, False]
    for found in (F @ b, F.solve(A, b), F.update(A) @ b, F.T @ b, direct(A, b, factorization=F).x):
        np.testing.assert_allclose(found.samples, exact, rtol=1e-12)
    np.testing.assert_allclose((F @ np.stack([b, 2 * b], axis=1)).samples[:, 1], 2 * exact, rtol=1e-12)


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
@pytest.mark.parametrize("n_samples", [1, 3, 33])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_samples_of_large_growth_are_solved_and_equal_their_own_runs(kind, n_samples, dtype):
    A = family(50_113, 40, n_samples, symmetric=kind == "ldlt").astype(dtype)
    b = np.random.default_rng(6).standard_normal((40, n_samples)).astype(dtype)
    F = Factorization(A, kind=kind)
    assert F.lossy.any()
    for found, transposed in ((F @ Ensemble(b), False), (F.solve(A, Ensemble(b)), False), (F.T @ Ensemble(b), True)):
        assert errors(A, found.samples.astype(float), b, transposed).max() <= 1000 * np.finfo(dtype).eps
    x, y = (F @ Ensemble(b)).samples, F.solve(A, Ensemble(b)).samples
    np.testing.assert_array_equal(x, y)
    for s in range(min(n_samples, 4)):
        own = F.update(A.sample(s))
        np.testing.assert_array_equal(own @ b[:, s], x[:, s])
        np.testing.assert_array_equal(F.solve(A.sample(s), b[:, s]), x[:, s])


def test_growth_in_a_column_of_small_units_is_seen():
    """Beside the large first column the growth of the second is small by rows, and the first unknown had no digit."""
    graph = CrsMatrix.from_scipy(sp.csr_array(np.ones((2, 2)))).graph
    A = CrsMatrix(graph, np.array([[1e-3, 1.0], [1.0, 1.0], [1e13, 3.0], [1.0, 1.0]]))
    b = np.array([2.0, 5.0])
    exact = np.linalg.solve(np.array([[1.0, 1.0], [1e16, 1.0]]), b)  # with the first unknown in other units
    x = (Factorization(A) @ b).samples[:, 0]
    np.testing.assert_allclose(x, exact * [1e3, 1.0], rtol=1e-12)
    np.testing.assert_array_equal(Factorization(A).solve(A, b).samples[:, 0], x)


def test_a_singular_sample_and_one_changed_in_place_are_nan():
    A = family(50_114, 20, 4)
    A.values[A.graph.indptr[3] : A.graph.indptr[4], 1] = 0.0
    F, b = Factorization(A), np.ones(20)
    x = (F @ b).samples
    assert np.isnan(x[:, 1]).all() and np.isfinite(x[:, [0, 2, 3]]).all()
    A = A.take_samples([0, 2, 2])
    F = Factorization(A)
    A.values[:, 2] *= 2.0
    assert F.lossy[2] and np.isnan((F @ b).samples[:, 2]).all()


def test_a_shared_matrix_with_columns_and_samples_on_the_right():
    A = family(50_115, 30, 1).sample(0)
    F, rng = Factorization(A), np.random.default_rng(8)
    assert F.lossy.all()
    b = rng.standard_normal((30, 3, 5))
    x = (F @ Ensemble(b)).samples
    for k in range(3):
        assert errors(A, x[:, k], b[:, k]).max() <= 1e-13
        np.testing.assert_array_equal((F @ Ensemble(b[:, k])).samples, x[:, k])


def test_a_definite_matrix_is_not_judged(monkeypatch):
    import ensemble.linalg.factorizations.factorization as module

    monkeypatch.setattr(module, "element_growth", None)  # calling it would fail
    A = SymmetricCrsMatrix.from_crs(CrsMatrix.from_scipy(sp.csr_array(np.diag([1e-16, 1.0, 1e16]))))
    np.testing.assert_allclose(Factorization(A) @ np.ones(3), [1e16, 1.0, 1e-16])


@pytest.mark.parametrize("n_samples", [1, 3])
def test_accurate_products_are_not_factorised_again(n_samples, monkeypatch):
    import ensemble.linalg.factorizations.factorization as module
    from ensemble.gallery import poisson

    monkeypatch.setattr(module, "pivoted", lambda A: pytest.fail("SuperLU is called"))
    A = poisson((100, 100))
    A = CrsMatrix(A.graph, A.values * np.linspace(1.0, 2.0, n_samples))
    F, b = Factorization(A, kind="lu"), np.ones(10_000)
    first = (F @ b).samples
    for _ in range(module.N_JUDGED):
        np.testing.assert_array_equal((F @ b).samples, first)
    assert (F._growth > module.GROWTH).all()  # by chance: the estimate is from few vectors
    np.testing.assert_array_equal(F.solve(A, b).samples, first)


def test_any_three_samples_that_need_exchanges_have_their_own_solutions():
    """They fill a tile in part: whichever they are, no number of a sample between them is taken for theirs.

    Those between would take the same pivots, but their products are accurate.
    """
    rng, n, n_samples = np.random.default_rng(50_116), 40, 10
    A = family(50_116, n, 1, tiny=1.0)
    graph, b = A.graph, rng.standard_normal((n, n_samples))
    good = A.values * (1.0 + 0.001 * rng.random((graph.nnz, n_samples)))
    bad = good.copy()
    good[graph.diagonal_entries] *= 1e-12
    bad[graph.diagonal_entries] *= 1e-17
    own = [direct(CrsMatrix(graph, bad[:, s]), b[:, s], kind="lu") for s in range(n_samples)]
    for chosen in map(list, itertools.combinations(range(n_samples), 3)):
        values = good.copy()
        values[:, chosen] = bad[:, chosen]
        A = CrsMatrix(graph, values)
        result = direct(A, Ensemble(b), kind="lu")
        assert np.flatnonzero(result.repaired).tolist() == chosen and result.converged.all()
        assert errors(A, result.x.samples, b).max() <= 1e-13, chosen
        for s in chosen:
            np.testing.assert_array_equal(result.x.samples[:, s], own[s].x)
            np.testing.assert_array_equal(result.backward_errors[s], own[s].backward_errors[0])


@pytest.mark.slow
def test_2000_random_families_give_no_wrong_number():
    """Tiny pivots, units of rows and columns, near-singular samples: rows of what is returned fit, or it is marked."""
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        n, n_samples, symmetric = int(rng.integers(2, 60)), int(rng.choice([1, 2, 5, 9, 33])), bool(rng.integers(2))
        A = family(
            seed, n, n_samples, symmetric=symmetric, tiny=10.0 ** rng.uniform(-18, 0), units=int(rng.choice([0, 5, 60]))
        )
        b = rng.standard_normal((n, n_samples))
        F = Factorization(A, kind="ldlt" if symmetric else "lu")
        for x in ((F @ Ensemble(b)).samples, F.solve(A, Ensemble(b)).samples):
            bad = ~(errors(A, x, b) <= 1e-12)
            assert not (bad & np.isfinite(x).all(axis=0)).any(), seed
        with np.errstate(all="ignore"):
            import warnings

            with warnings.catch_warnings(record=True):
                result = direct(A, Ensemble(b), kind="ldlt" if symmetric else "lu")
        assert (errors(A, result.x.samples, b)[result.converged] <= 1e-12).all(), seed
