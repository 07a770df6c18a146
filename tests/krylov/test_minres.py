"""MINRES: right answers for indefinite matrices, each sample by itself, and bad samples that harm nobody."""

import array_api_strict as strict
import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg
from hypothesis import given
from hypothesis import strategies as st

from ensemble import gallery
from ensemble.krylov import Status, direct, minres
from ensemble.krylov.minres import MinresIteration
from ensemble.linalg import BcrsMatrix, CrsGraph, CrsMatrix, Diagonal, Factorization, block
from ensemble.scalar import Ensemble
from tests.krylov.problems import COUPLINGS, equal, nonsymmetric, same, true_residuals


def indefinite(n, n_samples, seed, density=0.15, shift=2.0):
    """Random symmetric matrices of both signs on one graph."""
    rng = np.random.default_rng(seed)
    pattern = sp.random_array((n, n), density=density, rng=rng).tocsr()
    made = []
    for _ in range(n_samples):
        off = sp.csr_array((rng.uniform(-1.0, 1.0, pattern.nnz), pattern.indices, pattern.indptr), shape=(n, n))
        made.append(off + off.T + sp.diags_array(shift * rng.choice([-1.0, 1.0], n) * rng.uniform(1.0, 2.0, n)))
    return CrsMatrix.from_scipy(made)


def positive_diagonal(A, seed=20693):
    rng = np.random.default_rng(seed)
    return Diagonal(Ensemble(rng.uniform(0.5, 2.0, (A.shape[0], 1)) * np.ones((1, A.n_samples))))


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("n_samples", [1, 3, 8, 33])
def test_residuals_meet_their_targets(rng, coupling, n_samples, preconditioned):
    A = indefinite(40, n_samples, 30103)
    b = rng.standard_normal((40, n_samples)) * 10.0 ** rng.uniform(-6, 0, n_samples)
    M = positive_diagonal(A) if preconditioned else None
    result = minres(A, Ensemble(b), M=M, rtol=1e-7, coupling=coupling, max_iterations=40 * n_samples + 200)
    assert result.converged.all()
    norms = true_residuals(A, result.x.samples, b)
    assert np.all(norms <= 1e-7 * np.linalg.norm(b, axis=0) * (1 + 1e-12))
    np.testing.assert_allclose(result.true_residual_norms, norms, rtol=1e-6)


def test_solutions_and_iterations_are_scipys(rng):
    A, b = indefinite(40, 5, 51001), rng.standard_normal((40, 5))
    result = minres(A, Ensemble(b), rtol=1e-10)
    exact = direct(A, Ensemble(b)).x
    np.testing.assert_allclose(result.x.samples, exact.samples, rtol=0, atol=1e-7)
    for s in range(5):
        seen = []
        one = A.to_scipy(s)
        scipy.sparse.linalg.minres(one, b[:, s], rtol=1e-12, callback=lambda x, seen=seen: seen.append(x.copy()))
        norms = [np.linalg.norm(b[:, s] - one @ x) for x in seen[:12]]
        np.testing.assert_allclose(result.residual_norms[1:13, s], norms, rtol=1e-8)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_iterates_minimise_the_residual_over_the_krylov_space(rng, preconditioned):
    """In the norm r^T M r, over x in the span of M b, M A M b, ...; and the residual of the method is the true one."""
    A, b = indefinite(20, 1, 88001), rng.standard_normal(20)
    D, m = A.to_scipy().toarray(), rng.uniform(0.5, 2.0, 20) if preconditioned else np.ones(20)
    basis, norms = np.zeros((20, 0)), []
    for k in range(1, 9):
        column = m * (b if k == 1 else D @ basis[:, -1])
        basis = np.linalg.qr(np.column_stack([basis, column]))[0]
        y = np.linalg.lstsq(np.sqrt(m)[:, None] * (D @ basis), np.sqrt(m) * b, rcond=None)[0]
        expected = basis @ y
        seen = []
        M = Diagonal(m) if preconditioned else None
        minres(A, b, M=M, rtol=0.0, max_iterations=k, callback=lambda i, norm, seen=seen: seen.append(norm[0]))
        residual = b - D @ expected
        norms.append(np.sqrt(residual @ (m * residual)))
        np.testing.assert_allclose(seen[-1], np.linalg.norm(residual), rtol=1e-8)
    assert np.all(np.diff(norms) <= 0.0)


@given(n_samples=st.integers(1, 40), seed=st.integers(0, 2**32 - 1), preconditioned=st.booleans())
def test_each_sample_is_its_scalar_run(n_samples, seed, preconditioned):
    A = indefinite(16, n_samples, seed, 0.2)
    rng = np.random.default_rng(seed)
    b = Ensemble(rng.standard_normal((16, n_samples)))
    M = positive_diagonal(A) if preconditioned else None
    together = minres(A, b, M=M, rtol=1e-6)
    for i in rng.integers(0, n_samples, 3):
        alone = minres(A.sample(i), b.sample(i), M=M and M.sample(i), rtol=1e-6)
        assert same(together, alone, i)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_compaction_changes_nothing_and_happens(monkeypatch, rng, preconditioned):
    base = gallery.poisson((40,)).to_scipy() - 1.3 * sp.eye_array(40)
    A = CrsMatrix.from_scipy([base - d * sp.eye_array(40) for d in (0, 50, 60, 70, 80, 90)])
    M = positive_diagonal(A) if preconditioned else None
    b = Ensemble(rng.standard_normal((40, 6)))
    calls, original = [], MinresIteration.compact
    monkeypatch.setattr(
        MinresIteration, "compact", lambda self, kept: (calls.append(kept.size), original(self, kept))[1]
    )
    wide = minres(A, b, M=M, rtol=1e-10, compact=False)
    assert not calls
    narrow = minres(A, b, M=M, rtol=1e-10)
    assert calls and narrow.converged.all()
    for name in ("iterations", "residual_norms"):
        assert np.array_equal(getattr(wide, name), getattr(narrow, name))
    assert np.array_equal(wide.x.samples, narrow.x.samples)


def test_exact_in_as_many_steps_as_there_are_eigenvalues():
    spectra = [1.0, 1, 1, 1], [1.0, -2, -2, -2], [1.0, -2, 3, 3], [-1.0, 2, -3, 4]
    A = CrsMatrix.from_scipy([sp.diags_array(eigenvalues) for eigenvalues in spectra])
    assert minres(A, np.ones(4), rtol=1e-12).iterations.tolist() == [1, 2, 3, 4]


def test_saddle_points_with_block_preconditioners_take_three_iterations(rng):
    """diag(A^-1, S^-1) with the Schur complement S: three eigenvalues (Murphy, Golub, Wathen 2000)."""
    A = gallery.random_spd(30, 4)
    B = CrsMatrix.from_scipy(sp.csr_array(rng.standard_normal((7, 30))))
    K = block([[A, B.T], [B, None]])
    inverses = []
    for s in range(4):
        a, b = A.to_scipy(s).toarray(), B.to_scipy().toarray()
        inverse = np.linalg.inv(a)
        blocks = inverse, np.linalg.inv(b @ inverse @ b.T)
        inverses.append(sp.block_diag([sp.coo_array(block) for block in blocks]))
    result = minres(K, Ensemble(rng.standard_normal((37, 4))), M=CrsMatrix.from_scipy(inverses), rtol=1e-8)
    assert result.converged.all() and result.iterations.max() <= 4


def test_factorisations_and_blocks_are_taken(rng):
    A = gallery.random_spd(20, 3)
    shifted = A - Diagonal(np.full(20, 0.7))
    b = rng.standard_normal((20, 3))
    result = minres(shifted, Ensemble(b), M=Factorization(A, kind="ldlt"), rtol=1e-9)
    assert result.converged.all()
    assert np.all(true_residuals(shifted, result.x.samples, b) <= 1e-9 * np.linalg.norm(b, axis=0) * (1 + 1e-12))
    graph = CrsGraph([0, 1, 2], [0, 1], (2, 2))
    blocks = BcrsMatrix(graph, np.array([[[0.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.0, -3.0]]]))
    x = minres(blocks, np.ones((2, 2))).x
    np.testing.assert_allclose(x, [[0.25, 0.5], [1.0, -1 / 3]], rtol=1e-7)


# --- singular systems
def neumann(n):
    rows = np.full(n, 2.0)
    rows[[0, -1]] = 1.0
    return sp.diags_array([-np.ones(n - 1), rows, -np.ones(n - 1)], offsets=[-1, 0, 1]).tocsr()


def test_singular_systems_with_a_solution_are_solved(rng):
    b = rng.standard_normal((50, 3))
    b -= b.mean(axis=0)
    result = minres(neumann(50), Ensemble(b))
    assert result.converged.all()
    assert np.all(np.abs(result.x.samples.mean(axis=0)) < 1e-6)  # x has no part in the null space


@pytest.mark.parametrize("n", [8, 20, 200])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_singular_systems_without_a_solution_get_the_least_residual(rng, n, preconditioned):
    b, m = rng.standard_normal((n, 2)), rng.uniform(0.5, 2.0, n) if preconditioned else np.ones(n)
    result = minres(neumann(n), Ensemble(b), M=Diagonal(m), max_iterations=3 * n)
    assert not result.converged.any() and (n > 8 or all(status is Status.stagnated for status in result.status))
    residual = b - neumann(n) @ result.x.samples
    norms = np.sqrt(np.sum(m[:, None] * residual**2, axis=0))
    expected = np.abs(b.sum(axis=0)) / np.sqrt(np.sum(1 / m))  # r = c / m, what the range of A leaves
    np.testing.assert_allclose(norms, expected, rtol=1e-6)


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("seed", [40111, 40112, 40113])
def test_iterations_beyond_the_least_residual_do_not_spoil_the_solution(seed, preconditioned):
    """Rounding let A r and the recursive residual fall again: residuals of 1e14 were returned."""
    rng, n = np.random.default_rng(seed), 12
    Q, values = np.linalg.qr(rng.standard_normal((n, n)))[0], np.append(0.0, np.geomspace(1.0, 100.0, n - 1))
    A, b = (Q * values) @ Q.T, rng.standard_normal((n, 3))
    A, m = 0.5 * (A + A.T), rng.uniform(0.5, 2.0, n) if preconditioned else np.ones(n)
    result = minres(sp.csr_array(A), Ensemble(b), M=Diagonal(m))
    null = Q[:, 0]  # r = M^-1 null c, what the range of A leaves
    residuals = b - A @ result.x.samples
    norms = np.sqrt(np.sum(m[:, None] * residuals**2, axis=0))
    np.testing.assert_allclose(norms, np.abs(null @ b) / np.sqrt(null @ (null / m)), rtol=1e-5)


# --- bad samples
def bad_samples():
    """Zero rhs, singular, NaN in the matrix, unsymmetric, tiny rhs, infinity in the rhs, good, good."""
    A = indefinite(30, 8, 90173)
    A.values.flags.writeable = True
    b = np.random.default_rng(90174).standard_normal((30, 8))
    diagonal = A.graph.diagonal_entries
    b[:, 0] = 0.0
    touched = (A.graph.row_of_entry == 29) | (A.graph.indices == 29)
    A.values[touched, 1] = 0.0
    A.values[3, 2] = np.nan
    A.values[:, 3] = np.where(A.graph.row_of_entry < A.graph.indices, A.values[:, 3], 0.0)
    A.values[diagonal, 3] = 1.0
    b[:, 4] *= 1e-12
    b[7, 5] = np.inf
    return A, b


@pytest.mark.parametrize("preconditioned", [False, True])
def test_bad_samples_are_flagged_and_the_others_are_their_own_runs(preconditioned):
    A, b = bad_samples()
    M = positive_diagonal(A) if preconditioned else None
    result = minres(A, Ensemble(b), M=M, max_iterations=200)
    assert [result.status[i] for i in (2, 5)] == [Status.breakdown] * 2
    assert not result.converged[[1, 3]].any()
    assert result.converged[[0, 4, 6, 7]].all() and result.iterations[0] == 0
    for i in range(8):
        alone = minres(A.take_samples([i]), Ensemble(b[:, [i]]), M=M and M.take_samples([i]), max_iterations=200)
        assert equal(result, alone, i)


def test_coupled_samples_go_on_without_one_that_breaks_down(rng):
    A, b = indefinite(30, 4, 66107), rng.standard_normal((30, 4))
    broken = CrsMatrix(A.graph, A.values.copy())
    broken.values[5, 2] = np.nan
    result = minres(broken, Ensemble(b), coupling="ensemble", max_iterations=900)
    assert result.status[2] == Status.breakdown and result.converged[[0, 1, 3]].all()
    apart = minres(A.take_samples([0, 1, 3]), Ensemble(b[:, [0, 1, 3]]), coupling="ensemble", max_iterations=900)
    np.testing.assert_allclose(result.x.samples[:, [0, 1, 3]], apart.x.samples, rtol=0, atol=1e-5)


class FailsLate:
    """A matrix whose third sample is no number from the sixth product on."""

    def __init__(self, A):
        self.A, self.shape, self.n_samples, self.calls = A, A.shape, A.n_samples, 0

    def apply(self, x, out=None):
        y = self.A.apply(x, out)
        self.calls += 1
        if self.calls > 5:
            y[:, 2] = np.nan
        return y


def test_coupled_samples_begin_again_from_where_they_are(rng):
    """The old Krylov space belongs to inner products that the lost sample was part of."""
    A, b = indefinite(30, 4, 66107), rng.standard_normal((30, 4))
    good = [0, 1, 3]
    begun = minres(A, Ensemble(b), coupling="ensemble", max_iterations=5, rtol=0.0).x.samples
    seen, expected = [], []
    result = minres(
        FailsLate(A), Ensemble(b), coupling="ensemble", max_iterations=9, rtol=0.0, compact=False,
        callback=lambda k, norms: seen.append(norms[good]),
    )  # fmt: skip
    minres(
        A.take_samples(good), Ensemble(b[:, good]), x0=Ensemble(begun[:, good]), coupling="ensemble", max_iterations=4,
        rtol=0.0, callback=lambda k, norms: expected.append(norms),
    )  # fmt: skip
    assert result.status[2] == Status.breakdown
    np.testing.assert_allclose(seen[5:], expected, rtol=1e-9)
    true = true_residuals(A.take_samples(good), result.x.samples[:, good], b[:, good])
    np.testing.assert_allclose(true, seen[-1], rtol=1e-9)


def test_preconditioners_that_are_not_positive_definite_break_down(rng):
    A, b = indefinite(20, 2, 47711), rng.standard_normal(20)
    signs = np.ones((20, 2))
    signs[::2, 1] = -1.0
    result = minres(A, b, M=Diagonal(Ensemble(signs)))
    assert result.converged[0] and result.status[1] == Status.breakdown
    assert minres(A, b, M=Diagonal(np.zeros(20))).status[0] == Status.breakdown


def test_a_negative_length_of_a_later_vector_is_a_breakdown(rng):
    """r . M r is positive at the start, that of the second Lanczos vector is negative: no space ends there."""
    n = 12
    A = sp.diags_array([np.ones(n - 1), 4.0 * np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1]).tocsr()
    b = np.zeros(n)
    b[0] = 1.0
    bad = np.where(np.arange(n) == 1, -1.0, 1.0)
    result = minres(CrsMatrix.from_scipy([A, A]), b, M=Diagonal(Ensemble(np.stack([np.ones(n), bad], axis=1))))
    assert result.status.tolist() == [Status.converged, Status.breakdown]
    assert result.iterations[1] == 0 and not result.x.samples[:, 1].any()


def test_an_unsymmetric_matrix_is_never_called_solved(rng):
    A, b = nonsymmetric(30, 4, 71003, spread=0.5), rng.standard_normal((30, 4))
    result = minres(A, Ensemble(b), max_iterations=300)
    norms = true_residuals(A, result.x.samples, b)
    assert np.all(norms[result.converged] <= result.target[result.converged] * (1 + 1e-12))
    assert np.all(norms <= np.linalg.norm(b, axis=0) * (1 + 1e-12))


# --- options
def test_starting_guesses_tolerances_and_callbacks(rng):
    A, b = indefinite(30, 3, 12553), Ensemble(rng.standard_normal((30, 3)))
    first = minres(A, b, rtol=1e-10)
    again = minres(A, b, x0=first.x, rtol=1e-9)
    assert np.all(again.iterations == 0) and np.array_equal(again.x.samples, first.x.samples)
    rtol = np.array([1e-2, 1e-6, 1e-10])
    own = minres(A, b, rtol=rtol)
    assert np.all(np.diff(own.iterations) > 0)
    seen = []
    stopped = minres(A, b, callback=lambda k, norms: (seen.append(norms), k == 4)[1])
    assert all(status is Status.stopped for status in stopped.status) and len(seen) == 4
    np.testing.assert_array_equal(np.stack(seen), stopped.residual_norms[1:])


def test_float32_stays_float32(rng):
    A = indefinite(20, 3, 15013)
    A = CrsMatrix(A.graph, A.values.astype(np.float32))
    result = minres(A, Ensemble(rng.standard_normal((20, 3)).astype(np.float32)), rtol=1e-4)
    assert result.x.dtype == np.float32 and result.converged.all()


@pytest.mark.parametrize("power", [-400, 400])
def test_the_size_of_the_matrix_changes_nothing(rng, power):
    A, b = indefinite(25, 3, 22079), Ensemble(rng.standard_normal((25, 3)))
    scaled = CrsMatrix(A.graph, np.ldexp(A.values, power))
    one, other = minres(A, b), minres(scaled, b)
    assert np.array_equal(one.iterations, other.iterations) and other.converged.all()
    np.testing.assert_array_equal(np.ldexp(other.x.samples, power), one.x.samples)


class Dense:
    """A dense matrix per sample, of any array library."""

    def __init__(self, entries):
        self.entries, self.shape, self.n_samples = entries, entries.shape[:2], entries.shape[2]

    def apply(self, x, out):
        out[...] = strict.sum(self.entries * x[None, :, :], axis=1)
        return out

    def take_samples(self, samples):
        return Dense(strict.take(self.entries, strict.asarray(samples), axis=2))


def test_vectors_of_any_library(rng):
    A, b = indefinite(15, 4, 81017), rng.standard_normal((15, 4))
    entries = np.stack([A.to_scipy(i).toarray() for i in range(4)], axis=2)
    result = minres(Dense(strict.asarray(entries)), Ensemble(strict.asarray(b)), rtol=1e-9)
    expected = minres(A, Ensemble(b), rtol=1e-9)
    assert result.converged.all() and np.all(np.abs(result.iterations - expected.iterations) <= 1)
    np.testing.assert_allclose(np.asarray(result.x.samples), expected.x.samples, rtol=0, atol=1e-6)


def test_vectors_may_stay_on_a_device(as_device, rng):
    """The scalars are on the host, the vectors where they were."""
    A, b = indefinite(15, 3, 81019), Ensemble(rng.standard_normal((15, 3)))
    result = minres(A, b, rtol=1e-9)
    assert result.converged.all()
    assert np.all(true_residuals(A, result.x.samples, b.samples) <= 1e-9 * np.linalg.norm(b.samples, axis=0) * 1.001)


def test_bad_input_is_refused():
    A, b = gallery.poisson((4,), 3), np.ones(4)
    with pytest.raises(ValueError, match=r"minres: A must be square; got shape \(2, 3\)"):
        minres(np.ones((2, 3)), np.ones(3))
    with pytest.raises(ValueError, match="minres: b must be a vector of length 4"):
        minres(A, np.ones(5))
    with pytest.raises(ValueError, match="minres: coupling must be one of"):
        minres(A, b, coupling="loose")
