"""Condition estimates of direct solves, nearly singular samples, and refinement of small components."""

import pickle
import warnings

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import LinAlgWarning

from ensemble.gallery import poisson
from ensemble.krylov import SolveError, Status, direct
from ensemble.krylov._conditions import digits_kept
from ensemble.linalg import CrsMatrix, SymmetricCrsMatrix
from ensemble.linalg.factorizations.exchanges import pivoted
from ensemble.scalar import Ensemble

EPS = np.finfo(np.float64).eps


def neumann(m):
    """The Laplacian of an m x m grid with free edges: constants are its null space."""
    d = sp.diags_array([-np.ones(m - 1), np.r_[1.0, 2 * np.ones(m - 2), 1.0], -np.ones(m - 1)], offsets=[-1, 0, 1])
    return sp.csr_array(sp.kronsum(d, d))


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
@pytest.mark.parametrize("dtype", [None, "float32"])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e150])
def test_a_forgotten_boundary_condition_is_no_solution(kind, dtype, scale):
    A, b = neumann(20), np.random.default_rng(0).standard_normal(400)
    result = direct([scale * A, 2 * A, A + 0.1 * sp.eye_array(400)], b, kind=kind, dtype=dtype)
    assert result.converged.tolist() == [False, False, True]
    assert (result.rcond[:2] < EPS).all() and result.rcond[2] > 1e-4
    if dtype is None:
        assert result.status[0] is Status.stagnated
        assert "nearly singular: samples 0, 1" in repr(result)
        with pytest.raises(SolveError, match=r"A is nearly singular \(samples 0, 1; rcond .*null space"):
            result.raise_if_failed()


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_consistent_singular_system_converges_with_a_warning(symmetric):
    A = neumann(12)
    b = A @ np.random.default_rng(1).standard_normal(144)
    matrix = CrsMatrix.from_scipy([A, A + sp.eye_array(144)])
    with pytest.warns(LinAlgWarning, match=r"nearly singular matrix in 1 of 2 samples \(sample 0; rcond \d"):
        result = direct(SymmetricCrsMatrix.from_crs(matrix) if symmetric else matrix, b)
    assert result.converged.all()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("power", [0, 6, 12])
def test_the_estimate_is_within_a_factor_of_ten(seed, power):
    rng, n = np.random.default_rng(70_000 + seed), 25
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    A = left * np.logspace(0, -power, n) @ right
    found = direct([sp.csr_array(A), sp.csr_array(3 * A.T)], rng.standard_normal(n)).rcond
    for value, matrix in zip(found, (A, A.T), strict=True):
        exact = 1.0 / np.linalg.cond(matrix, 1)
        assert 0.99 * exact <= value <= 10.0 * exact


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unit", [1.0, 2.0**40, 2.0**-40])
def test_samples_that_need_exchanges_have_a_condition_in_both_types(dtype, unit):
    """The least pivot of the second is small, whatever the order of its rows; the third is singular."""
    good, nearly, singular = np.array([[0.0, 1, 1], [1, 0, 1], [1, 1, 0]]), np.ones((3, 3)), np.ones((3, 3))
    nearly[1, 1], nearly[2, 2] = 1.0 + 2.0 * np.sqrt(np.finfo(dtype).eps), 2.0
    singular[2, 2] = 2.0
    A = CrsMatrix.from_scipy([sp.csr_array(unit * a) for a in (good, nearly, singular)]).astype(dtype)
    b = (unit * np.array([[3.0, 1, 1], [1, 2, 3], [1, 2, 3]]).T).astype(dtype)
    together = direct(A, Ensemble(b))
    assert together.x.dtype == dtype and together.rcond[2] == 0.0
    for s, a in enumerate((good, nearly)):
        assert together.converged[s] and 0.5 < together.rcond[s] * np.linalg.cond(a, 1) < 4.0
        expected = np.linalg.solve(a.astype(dtype).astype(float), b[:, s] / unit)
        np.testing.assert_allclose(together.x.samples[:, s], expected, rtol=1e-6 if s == 0 else 1e-2)


def test_units_of_rows_and_columns_make_no_matrix_singular():
    rng = np.random.default_rng(70_010)
    A = poisson((12, 12)).to_scipy()
    rows, columns = (np.ldexp(1.0, rng.integers(-200, 200, 144)) for _ in range(2))
    result = direct(sp.csr_array(sp.diags_array(rows) @ A @ sp.diags_array(columns)), rows)
    assert result.converged.all() and result.backward_errors.max() < 1e-13  # and no warning, which would be an error
    np.testing.assert_allclose(result.x * columns, direct(A, np.ones(144)).x, rtol=1e-12)


@pytest.mark.parametrize("units", [0, 20])
def test_entries_far_below_the_others_make_no_matrix_singular(units):
    """What assembly leaves of sums that cancel is no unit of its own; the last sample has two rows alike."""
    rng, n, dtype = np.random.default_rng(70_013), 16, np.float32
    for _ in range(8):
        plain = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.3) + 4.0 * np.eye(n)[rng.permutation(n)]
        plain[:2, :] = [[2.0] + [0.0] * (n - 1), [0.0, 3.0] + [0.0] * (n - 2)]
        noise = np.where((rng.random((n, n)) < 0.2) & (plain == 0.0), 1e-14 * rng.standard_normal((n, n)), 0.0)
        singular = plain * (np.arange(n) > 0)[:, None] + 2.0 * (np.arange(n)[:, None] == 0) * plain[1]
        rows, columns = rng.integers(-units, units + 1, n), rng.integers(-units, units + 1, n)
        scaled = [np.ldexp(a, rows[:, None] + columns).astype(dtype) for a in (plain + noise, singular)]
        b = np.ldexp(rng.standard_normal(n), rows).astype(dtype)
        result = direct([sp.csr_array(a) for a in scaled], b)
        assert result.converged.tolist() == [True, False], (result, np.linalg.cond(plain))
        expected = np.linalg.solve(plain + noise, np.ldexp(b.astype(float), -rows))
        tolerance = 50.0 * np.finfo(dtype).eps * np.linalg.cond(plain) * np.abs(expected).max()
        got = np.ldexp(result.x.samples[:, 0].astype(float), columns)
        np.testing.assert_allclose(got, expected, rtol=0.0, atol=tolerance)


def nearly_dependent(rng):
    """A matrix with a row that is nearly a sum of others, in any units, and a right-hand side, consistent or not."""
    n = int(rng.integers(6, 12))
    A = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.35) + 3.0 * np.eye(n)
    rows = rng.choice(n, 3, replace=False)
    difference = 10.0 ** -rng.uniform(4, 20) * rng.standard_normal(n) * (rng.random(n) < 0.5)
    A[rows[0]] = rng.standard_normal(2) @ A[rows[1:]] + difference
    A = np.ldexp(A[rng.permutation(n)], rng.integers(-30, 31, n)[:, None] + rng.integers(-30, 31, n))
    b = A @ rng.standard_normal(n) if rng.random() < 0.5 else rng.standard_normal(n) * np.abs(A).max(axis=1)
    return A, b


@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_solutions_that_are_said_to_keep_their_digits_are_right_in_every_component(count):
    """Truths by mpmath with 60 digits; some are kept, and some are not."""
    rng, kept = np.random.default_rng(70_020), 0
    for _ in range(count):
        A, b = nearly_dependent(rng)
        matrix = CrsMatrix.from_scipy(sp.csr_array(A))
        factors = pivoted(matrix.to_scipy(0))
        if factors is None:
            continue
        x = factors.refined(A, b)
        for _ in range(2):
            x = x + factors.solve(b - A @ x)
        if not digits_kept(matrix, x[:, None], b[:, None], factors.solve)[0][0]:
            continue
        kept += 1
        with mpmath.workdps(60):
            exact = mpmath.lu_solve(mpmath.matrix(A.tolist()), mpmath.matrix(b.tolist()))
            np.testing.assert_allclose(x, np.array([float(v) for v in exact]), rtol=0.02)
    assert 0.2 * count < kept < 0.9 * count


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_solutions_without_a_warning_have_more_than_one_digit(count):
    """In the units of the columns, of rows that are nearly dependent; and only solutions that lost digits warn."""
    rng, silent, wrong = np.random.default_rng(70_021), 0, 0
    for _ in range(count):
        A, b = nearly_dependent(rng)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = direct(sp.csr_array(A), b)
            except ValueError:  # structurally singular
                continue
        lost = any("two digits" in str(warning.message) for warning in caught)
        if not result.converged[0] or (caught and not lost):
            continue
        with mpmath.workdps(60):
            exact = mpmath.lu_solve(mpmath.matrix(A.tolist()), mpmath.matrix(b.tolist()))
        x = np.array([float(v) for v in exact])
        unit = (np.abs(A) / np.abs(A).max(axis=1, keepdims=True)).max(axis=0)
        error = (unit * np.abs(result.x - x)).max() / (unit * np.abs(x)).max()
        assert error > 1e-6 or not lost
        wrong += error > 0.05 and not lost
        silent += not lost
    assert wrong <= count // 200  # the changes that are tried miss some
    assert 0.2 * count < silent < 0.9 * count


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_cascade_of_entries_of_all_sizes_is_solved_without_a_condition(seed, shuffled):
    """Its pivots are as unlike in any units as those of a singular matrix, and every component of x is known."""
    rng, n = np.random.default_rng(seed), 40
    base = sp.random_array((n, n), density=4.0 / n, rng=rng, data_sampler=rng.standard_normal)
    cascade = 1e12 * sp.tril(base, -1) + 1e-12 * sp.triu(base, 1) + sp.diags_array(1.0 + rng.random(n))
    A, b = sp.csr_array(cascade[rng.permutation(n)] if shuffled else cascade), rng.standard_normal(n)
    result = direct([A, 2.0 * A], b)  # and no warning, which would be an error
    assert result.converged.all()
    with mpmath.workdps(200):
        exact = mpmath.lu_solve(mpmath.matrix(A.toarray().tolist()), mpmath.matrix(b.tolist()))
        expected = np.array([float(v) for v in exact])
    np.testing.assert_allclose(result.x.samples, np.outer(expected, [1.0, 0.5]), rtol=0.02)


def test_each_sample_has_the_condition_of_its_own_run():
    rng = np.random.default_rng(70_011)
    A = poisson((6, 6), n_samples=5)
    A = CrsMatrix(A.graph, A.values * np.exp(rng.standard_normal(A.values.shape)))
    together = direct(A, np.ones(36)).rcond
    for s in range(5):
        assert direct(A.sample(s), np.ones(36)).rcond[0] == together[s]
    shared = direct(A.sample(2), Ensemble(rng.standard_normal((36, 4)))).rcond
    np.testing.assert_array_equal(shared, np.full(4, together[2]))


def test_values_changed_in_place_and_broken_samples_have_no_condition():
    A = poisson((5, 5), n_samples=3)
    values = A.values.copy()
    values[0, 2] = np.nan
    A = CrsMatrix(A.graph, values)
    result = direct(A, np.ones(25))
    A.values[4, 1] *= 1.5
    assert np.isnan(result.rcond).tolist() == [False, True, True]
    again = pickle.loads(pickle.dumps(direct(A, np.ones(25))))
    assert again.rcond[1] > 0.0 and again.conditions.known is not None


def test_small_components_are_as_accurate_as_large_ones():
    """Unknowns from 1 to 1e-12: the residual by rows was small, and the small ones had no digits."""
    rng, n = np.random.default_rng(70_012), 60
    A = poisson((n,)).to_scipy() + sp.random_array((n, n), density=0.05, rng=rng)
    exact = np.logspace(0, -12, n)[rng.permutation(n)]
    graph = CrsMatrix.from_scipy(sp.csr_array(A)).graph
    matrices = [sp.csr_array(A), sp.csr_array(A * rng.uniform(0.5, 2.0))]
    b = np.stack([m @ exact for m in matrices], axis=1)
    result = direct(CrsMatrix(graph, np.stack([m.data for m in matrices], axis=1)), Ensemble(b))
    for s, matrix in enumerate(matrices):
        x = result.x.samples[:, s]
        entries = np.abs(b[:, s] - matrix @ x) / (abs(matrix) @ np.abs(x) + np.abs(b[:, s]))
        assert entries.max() <= 10 * EPS
