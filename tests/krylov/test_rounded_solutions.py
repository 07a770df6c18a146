"""`direct` on large graphs that need exchanges: exact solutions, rounded, whatever elimination found them."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp

from ensemble import Ensemble
from ensemble._kernels.krylov.extended import corrected, extended_residual
from ensemble.krylov import Status, _rounded_solution, direct
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.linalg.factorizations.matched_pivots import MatchedPivots, matched_pivots_of

N = 18


@pytest.fixture(autouse=True)
def every_graph_is_large(monkeypatch):
    monkeypatch.setattr(_rounded_solution, "LARGE", 1)


def pattern(rng, n=N, diagonal=False):
    """A sparse matrix with a full transversal, off the diagonal unless that is asked for."""
    base = sp.random_array((n, n), density=3.0 / n, rng=rng, data_sampler=rng.standard_normal)
    A = sp.csr_array(sp.csr_array(base + sp.diags_array(1.0 + rng.random(n)))[np.roll(np.arange(n), 3)])
    if diagonal:
        A = sp.csr_array(A + sp.diags_array(np.full(n, 1e-25)))
    A.sort_indices()
    return A


def values_of(A, kind, n_samples, rng):
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    noise = A.data[:, None] * np.exp(0.1 * rng.standard_normal((A.nnz, n_samples)))
    if kind == "values":
        return noise
    r, c = np.exp((3.0 if kind == "units" else 60.0) * rng.standard_normal((2, A.shape[0], n_samples)))
    return noise * r[rows] * c[A.indices]


def exact(A, values, b):
    """The solution of one sample in numbers of 500 digits, rounded once."""
    with mpmath.workdps(500):
        M = sp.csr_array((values, A.indices, A.indptr), shape=A.shape).toarray()
        x = mpmath.lu_solve(mpmath.matrix(M.tolist()), mpmath.matrix(b.tolist()))
        return np.array([float(v) for v in x])


def alone(A, values, b):
    """The solution of one sample on a graph that has met no other."""
    x = direct(CrsMatrix(CrsGraph(A.indptr, A.indices, A.shape), values[:, None]), b).x
    return np.asarray(getattr(x, "samples", x)).reshape(-1)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("kind", ["values", "units", "far units"])
def test_every_component_is_the_exact_one_rounded(kind, diagonal, rng):
    A = pattern(rng, diagonal=diagonal)
    values, b = values_of(A, kind, 9, rng), rng.standard_normal((N, 9))
    found = direct(CrsMatrix(CrsGraph(A.indptr, A.indices, A.shape), values), Ensemble(b))
    assert found.converged.all()
    if not diagonal:
        assert found.repaired.all() and (found.iterations == 0).all()
    for s in np.flatnonzero(found.repaired):
        np.testing.assert_array_equal(found.x.samples[:, s], exact(A, values[:, s], b[:, s]))


@pytest.mark.parametrize("kind", ["values", "units"])
def test_each_sample_has_the_bits_of_its_own_run(kind, rng):
    A = pattern(rng)
    values, b = values_of(A, kind, 10, rng), rng.standard_normal(N)
    graph = CrsGraph(A.indptr, A.indices, A.shape)
    direct(CrsMatrix(graph, values_of(A, "far units", 2, rng)), b)  # whose eliminations are kept
    found = direct(CrsMatrix(graph, values), b)
    assert matched_pivots_of(graph).plans
    for s in range(10):
        np.testing.assert_array_equal(found.x.samples[:, s], alone(A, values[:, s], b))
    part = direct(CrsMatrix(graph, values[:, 3:6].copy()), b)
    np.testing.assert_array_equal(part.x.samples, found.x.samples[:, 3:6])
    for name in ("residual_norms", "backward_errors", "iterations", "target", "rcond"):
        np.testing.assert_array_equal(getattr(part, name), getattr(found, name)[..., 3:6], name)


@pytest.mark.parametrize("without", [("matched",), ("matched", "exchanged")])
def test_other_eliminations_find_the_same_bits(without, rng, monkeypatch):
    A = pattern(rng)
    values, b = values_of(A, "units", 10, rng), rng.standard_normal(N)
    found = direct(CrsMatrix(CrsGraph(A.indptr, A.indices, A.shape), values), b)
    for name in without:
        monkeypatch.setattr(MatchedPivots, name, lambda self, values: None)
    other = direct(CrsMatrix(CrsGraph(A.indptr, A.indices, A.shape), values), b)
    np.testing.assert_array_equal(other.x.samples, found.x.samples)
    assert not found.alone.any()
    assert other.alone.all() == (len(without) == 2)


@pytest.mark.parametrize("matched", [True, False])
def test_components_that_cancel_are_zero(matched, rng, monkeypatch):
    if not matched:
        monkeypatch.setattr(MatchedPivots, "matched", lambda self, values: None)
        monkeypatch.setattr(MatchedPivots, "exchanged", lambda self, values: None)
    A = pattern(rng)
    values = np.rint(1e6 * values_of(A, "values", 9, rng)) + 0.0
    values[values == 0.0] = 1.0
    x = rng.integers(-3, 4, (N, 9)).astype(float)
    b = np.stack([sp.csr_array((values[:, s], A.indices, A.indptr), shape=A.shape) @ x[:, s] for s in range(9)], axis=1)
    found = direct(CrsMatrix(CrsGraph(A.indptr, A.indices, A.shape), values), Ensemble(b))
    assert (x == 0.0).any() and found.converged.all()
    np.testing.assert_array_equal(found.x.samples, x)
    nothing = direct(CrsMatrix(CrsGraph(A.indptr, A.indices, A.shape), values), np.zeros(N))
    assert nothing.converged.all() and not nothing.x.samples.any()


def test_one_matrix_serves_many_right_hand_sides(rng):
    A, b = pattern(rng), rng.standard_normal((N, 9))
    found = direct(CrsMatrix(CrsGraph(A.indptr, A.indices, A.shape), A.data[:, None]), Ensemble(b))
    for s in range(9):
        np.testing.assert_array_equal(found.x.samples[:, s], exact(A, A.data, b[:, s]))


def test_broken_and_singular_samples_end_as_elsewhere_and_touch_no_other(rng, monkeypatch):
    A = pattern(rng)
    values, b = values_of(A, "values", 10, rng), rng.standard_normal(N)
    rows = np.repeat(np.arange(N), np.diff(A.indptr))
    values[0, 0], values[5, 1] = np.nan, np.inf
    values[rows == 4, 2] = 0.0
    values[:, 3] = 1e-290 * values[:, 3]  # products are no numbers any more
    found = direct(CrsMatrix(CrsGraph(A.indptr, A.indices, A.shape), values), b)
    monkeypatch.setattr(_rounded_solution, "LARGE", 1 << 60)
    before = direct(CrsMatrix(CrsGraph(A.indptr, A.indices, A.shape), values), b)
    assert found.status.tolist() == before.status.tolist()
    assert found.status[0] is Status.breakdown and not found.converged[:3].any()
    for s in range(4, 10):
        np.testing.assert_array_equal(found.x.samples[:, s], exact(A, values[:, s], b))


def test_nearly_singular_matrices_are_named(rng):
    A = pattern(rng).toarray()
    A[6] += A[5]
    A[5] = A[6] * (1.0 + 1e-15 * rng.standard_normal(N))
    A = sp.csr_array(A)
    values = np.repeat(A.data[:, None], 9, axis=1)
    found = direct(CrsMatrix(CrsGraph(A.indptr, A.indices, A.shape), values), rng.standard_normal(N))
    assert not found.converged.any() and (found.rcond < 1e-15).all()
    assert "nearly singular" in found.summary


@pytest.mark.parametrize("large", [True, False])
def test_conditions_are_those_of_the_samples_and_tell_of_changes(large, rng, monkeypatch):
    """A change by a power of two alters the exponent alone."""
    monkeypatch.setattr(_rounded_solution, "LARGE", 1 if large else 1 << 60)
    A = pattern(rng)
    values, b = values_of(A, "values", 3, rng), rng.standard_normal(N)
    E = CrsMatrix(CrsGraph(A.indptr, A.indices, A.shape), values)
    found, changed = direct(E, b), direct(E, b)
    for s in range(3):
        M = sp.csr_array((values[:, s], A.indices, A.indptr), shape=A.shape).toarray()
        true = 1.0 / np.linalg.cond(M, 1)
        assert true <= found.rcond[s] * (1.0 + 1e-10) and found.rcond[s] <= 10.0 * true
    E.values[0, 1] *= 2.0
    assert np.isnan(changed.rcond).tolist() == [False, True, False]


@pytest.mark.parametrize("n_samples", [1, 9])
def test_residuals_have_the_digits_of_twice_the_precision(n_samples, rng):
    A = pattern(rng)
    values, x = values_of(A, "units", n_samples, rng), rng.standard_normal((N, n_samples))
    low, matrix = x * 2.0**-54 * rng.random(x.shape), CrsMatrix(CrsGraph(A.indptr, A.indices, A.shape), values)
    b = matrix.apply(x)
    r, odd = extended_residual(*matrix.arrays, x, low, b)
    assert not odd.any()
    for s in range(n_samples):
        exact_x = [Fraction(high) + Fraction(rest) for high, rest in zip(x[:, s], low[:, s], strict=True)]
        for i in range(N):
            chosen = range(A.indptr[i], A.indptr[i + 1])
            parts = [Fraction(values[k, s]) * exact_x[A.indices[k]] for k in chosen]
            true, size = Fraction(b[i, s]) - sum(parts), sum(map(abs, parts)) + abs(Fraction(b[i, s]))
            assert abs(Fraction(r[i, s]) - true) <= abs(true) * Fraction(2.0**-52) + size * Fraction(2.0**-98)
        one = np.ascontiguousarray(values[:, s : s + 1])
        alone = extended_residual(
            *CrsMatrix(matrix.graph, one).arrays, *(np.ascontiguousarray(v[:, s : s + 1]) for v in (x, low, b))
        )[0]
        np.testing.assert_array_equal(alone[:, 0], r[:, s])


def test_sums_that_may_round_otherwise_are_doubtful():
    x, low = np.array([[1.0, 1.0, 1.0]]), np.array([[2.0**-60, 2.0**-53 * (1.0 - 2.0**-20), 2.0**-60]])
    change = np.array([[2.0**-90, 2.0**-76, np.nan]])
    ratios, doubts = corrected(x, low, change)
    assert doubts.tolist()[:2] == [False, True]
    np.testing.assert_array_equal(ratios, [2.0**-90, 2.0**-76, np.nan])
    assert x[0, 0] == 1.0 and low[0, 0] == 2.0**-60 + 2.0**-90
