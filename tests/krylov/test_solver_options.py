"""Options of the solvers: tolerances, starts, callbacks, array libraries, preconditioners that change."""

import array_api_strict as strict
import numpy as np
import pytest

from ensemble import gallery
from ensemble.krylov import SolveError, Status, cg, gmres
from ensemble.krylov._iteration import KrylovIteration
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble
from tests.krylov.problems import COUPLINGS, each_solver, jacobi, nonsymmetric, same, true_residuals


# --- options
@each_solver
def test_each_sample_has_a_tolerance_of_its_own(solve, rng):
    A, b = nonsymmetric(30, 3, seed=33013), rng.standard_normal((30, 3))
    rtol = np.array([1e-2, 1e-6, 1e-10])
    result = solve(A, Ensemble(b), rtol=rtol)
    np.testing.assert_array_equal(result.target, rtol * np.linalg.norm(b, axis=0).astype(float))
    for i in range(3):
        assert same(result, solve(A.sample(i), b[:, i], rtol=rtol[i]), i)


@each_solver
def test_starting_guess_counts(solve, rng):
    A, b = nonsymmetric(30, 4, seed=12007), Ensemble(rng.standard_normal((30, 4)))
    first = solve(A, b, rtol=1e-10)
    again = solve(A, b, x0=first.x, rtol=1e-9)
    assert np.all(again.iterations == 0) and np.array_equal(again.x.samples, first.x.samples)


@each_solver
def test_callback_sees_every_iteration(solve, rng):
    A, b = nonsymmetric(30, 3, seed=14009), Ensemble(rng.standard_normal((30, 3)))
    seen = []
    result = solve(A, b, callback=lambda k, norms: seen.append((k, norms.copy())))
    assert [k for k, _ in seen] == list(range(1, len(seen) + 1))
    np.testing.assert_array_equal(seen[-1][1], result.residual_norms[-1])


@each_solver
def test_float32_stays_float32(solve, rng):
    A = nonsymmetric(20, 3, seed=15013)
    A = CrsMatrix(A.graph, A.values.astype(np.float32))
    result = solve(A, Ensemble(rng.standard_normal((20, 3)).astype(np.float32)), rtol=1e-4)
    assert result.x.dtype == np.float32 and result.converged.all()


@each_solver
def test_no_iterations_allowed(solve):
    result = solve(gallery.poisson((4,)), np.ones(4), max_iterations=0)
    assert result.status[0] == Status.max_iterations and not result.x.any()
    with pytest.raises(SolveError, match=r"1 of 1 samples did not converge in 0 iterations.*preconditioner M"):
        result.raise_if_failed()


class Dense:
    """A dense matrix a sample, of any array library."""

    def __init__(self, entries):
        self.entries, self.shape, self.n_samples = entries, entries.shape[:2], entries.shape[2]

    def apply(self, x, out):
        out[...] = strict.sum(self.entries * x[None, :, :], axis=1)
        return out

    def take_samples(self, samples):
        return Dense(strict.take(self.entries, strict.asarray(samples), axis=2))


@each_solver
def test_vectors_of_any_library(solve, rng, monkeypatch):
    """An operator on another library, compaction included: the answers of NumPy."""
    narrowed, compact = [], KrylovIteration.compact
    monkeypatch.setattr(KrylovIteration, "compact", lambda self, kept: (narrowed.append(kept), compact(self, kept))[1])
    A = nonsymmetric(20, 6, seed=81017)
    A.values[A.graph.diagonal_entries] += np.array([1.0, 1.0, 20.0, 20.0, 20.0, 20.0])
    b = rng.standard_normal((20, 6))
    entries = np.stack([A.to_scipy(i).toarray() for i in range(6)], axis=2)
    result = solve(Dense(strict.asarray(entries)), Ensemble(strict.asarray(b)), rtol=1e-9, max_iterations=100)
    assert narrowed
    expected = solve(A, Ensemble(b), rtol=1e-9)
    assert result.converged.all() and np.all(np.abs(result.iterations - expected.iterations) <= 1)
    np.testing.assert_allclose(np.asarray(result.x.samples), expected.x.samples, rtol=0, atol=1e-6)


# --- flexible methods
class InnerSolve:
    """A preconditioner that is itself a few steps of CG: another operator for every vector."""

    def __init__(self, A, steps):
        self.A, self.steps, self.shape, self.n_samples = A, steps, A.shape, A.n_samples

    def apply(self, r, out=None):
        x = cg(self.A, Ensemble(r), rtol=1e-2, max_iterations=self.steps).x.samples
        if out is None:
            return x
        out[...] = x
        return out

    def take_samples(self, samples):
        return InnerSolve(self.A.take_samples(samples), self.steps)


@pytest.mark.parametrize("steps", [2, 5])
def test_flexible_methods_take_a_preconditioner_that_changes(rng, steps):
    A = gallery.anisotropic((12, 12), 5, strength=20.0)
    b = rng.standard_normal((144, 5))
    inner = InnerSolve(A, steps)
    for result in (
        gmres(A, Ensemble(b), M=inner, flexible=True, rtol=1e-10),
        cg(A, Ensemble(b), M=inner, flexible=True, rtol=1e-10),
    ):
        assert result.converged.all()
        assert np.all(true_residuals(A, result.x.samples, b) <= 1e-10 * np.linalg.norm(b, axis=0) * (1 + 1e-12))
        one = A.sample(2)
        method = cg if result.solver == "cg" else gmres
        alone = method(one, b[:, 2], M=InnerSolve(one, steps), flexible=True, rtol=1e-10)
        assert same(result, alone, 2)


class Alternating:
    """Two multigrid hierarchies that take turns, one of them unsmoothed."""

    def __init__(self, A):
        self.hierarchies = [smoothed_aggregation(A, coarse_size=20, damping=damping) for damping in (4 / 3, 0.0)]
        self.shape, self.n_samples, self.turn = A.shape, A.n_samples, 0

    def apply(self, r, out=None):
        self.turn += 1
        return self.hierarchies[self.turn % 2].apply(r, out)


def test_flexible_methods_bear_what_plain_ones_do_not(rng):
    A, b = gallery.poisson((30, 30), 3), Ensemble(rng.standard_normal((900, 3)))
    plain = cg(A, b, M=Alternating(A), rtol=1e-10)
    for method in (cg, gmres):
        flexible = method(A, b, M=Alternating(A), flexible=True, rtol=1e-10)
        assert flexible.converged.all()
        assert np.all(1.3 * flexible.iterations < plain.iterations), (flexible.iterations, plain.iterations)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_flexible_cg_is_cg_where_the_preconditioner_stands_still(rng, coupling):
    A, b = gallery.random_spd(40, 6), rng.standard_normal((40, 6))
    plain = cg(A, Ensemble(b), M=jacobi(A), coupling=coupling)
    flexible = cg(A, Ensemble(b), M=jacobi(A), flexible=True, coupling=coupling)
    np.testing.assert_array_equal(plain.iterations, flexible.iterations)
    np.testing.assert_allclose(plain.x.samples, flexible.x.samples, rtol=0, atol=1e-7)


def test_flexible_cg_survives_compaction(rng):
    A = CrsMatrix.from_scipy([gallery.poisson((40,)).to_scipy() + d * np.eye(40) for d in (0, 50, 60, 70, 80, 90)])
    b = Ensemble(rng.standard_normal((40, 6)))
    wide, narrow = (cg(A, b, M=jacobi(A), flexible=True, rtol=1e-10, compact=c) for c in (False, True))
    np.testing.assert_array_equal(wide.x.samples, narrow.x.samples)
    np.testing.assert_array_equal(wide.residual_norms, narrow.residual_norms)
