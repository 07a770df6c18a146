"""Diffusion with correlated noise: against exact Gaussians, its stability, and its sign."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm

from ensemble._backend import to_numpy
from ensemble.apps.gbees import Gbees
from ensemble.apps.gbees.engines.array import ArrayEngine
from ensemble.apps.gbees.mixing import mixing_of
from tests.apps.gbees.grids import boxed
from tests.conftest import examples

DOMINATED = np.array([[0.1, 0.05], [0.05, 0.1]])
OPPOSED = np.array([[0.1, -0.05], [-0.05, 0.1]])
STEEP = np.array([[0.01, 0.05], [0.05, 0.3]])
ALMOST_ONE = np.array([[0.1, 0.19], [0.19, 0.4]])


def exact_covariance(A, Q, P, T):
    """Of ``dx = A x dt + noise``, by Van Loan's block exponential."""
    n = len(A)
    M = expm(T * np.block([[-A, Q], [np.zeros((n, n)), A.T]]))
    F = M[n:, n:].T
    return F @ P @ F.T + F @ M[:n, n:]


@pytest.mark.parametrize("Q", [DOMINATED, OPPOSED, STEEP, ALMOST_ONE], ids=["along", "across", "steep", "rank one"])
def test_a_linear_drift_with_correlated_noise_is_the_exact_gaussian(Q):
    A, P, T = np.array([[-0.3, 1.0], [-1.0, -0.3]]), 0.04 * np.eye(2), 0.6
    exact, errors = exact_covariance(A, Q, P, T), []
    for factor in (1.0, 2.0):
        run = Gbees(
            lambda x, t, xp: (-0.3 * x[0] + x[1], -x[0] - 0.3 * x[1]), [1.0, 0.0], P, threshold=1e-9, extent=5.0,
            factor=factor, diffusion=Q, time_order=2, backend="array",
        )  # fmt: skip
        run.advance(T)
        errors.append(np.abs(run.covariance() - exact).max())
        np.testing.assert_allclose(run.mean(), expm(T * A) @ [1.0, 0.0], atol=1e-3 / factor)
    assert errors[1] < 0.01 * np.max(exact)
    assert np.log2(errors[0] / errors[1]) > 1.5


def test_rows_that_are_dominated_keep_probability_and_its_sign():
    checkers = lambda x: np.where((np.rint(x.sum(axis=1) / 0.1) % 2) > 0, 1.0, 1e-12)
    for Q, positive in ((DOMINATED, True), (STEEP, False)):
        mixing = mixing_of(Q, np.array([0.1, 0.1]))
        assert mixing.is_positive == positive
        problem, indices, p = boxed(
            lambda x, t, xp: (0.0 * x[0], 0.0), [0.0, 0.0], [0.1, 0.1], 6, checkers, diffusion=np.diag(Q).copy(),
            mixing=mixing,
        )  # fmt: skip
        run = ArrayEngine(problem, indices, p)
        steps = run.advance(0.0, 0.3)
        np.testing.assert_allclose(steps.masses - steps.clipped, 1.0, atol=1e-13)
        assert np.all(to_numpy(run.cells()[1]) >= 0.0)
        assert (steps.clipped.max() == 0.0) == positive


def symbol(mixing, widths, phases):
    """By how much a wave of these `phases` from cell to cell decays in unit time."""
    n = len(widths)
    total = np.sum((mixing.faces / widths**2)[:, None] * (1.0 - np.cos(phases)), axis=0)
    for i in range(n):
        for j in range(i + 1, n):
            total += mixing.corners[i, j] * (1.0 - np.cos(phases[i] + phases[j]))
            total += mixing.corners[j, i] * (1.0 - np.cos(phases[i] - phases[j]))
    return total


@given(st.integers(2, 6), st.integers(1, 6), st.integers(0, 2**31))
@settings(max_examples=examples(60), deadline=None)
def test_no_wave_grows_in_the_largest_step(n, rank, seed):
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((n, min(rank, n))) + 0.5 * rng.standard_normal()
    widths = np.exp(rng.standard_normal(n))
    Q = G @ G.T
    mixing = mixing_of(Q, widths)
    phases = np.concatenate(
        [rng.uniform(-np.pi, np.pi, (n, 4000)), np.outer(np.ones(n), np.linspace(0, np.pi, 200))], 1
    )
    signs = rng.choice([-1.0, 1.0], (n, phases.shape[1]))
    decay = symbol(mixing, widths, signs * phases)
    rate = np.sum(np.diag(Q) / widths**2) + mixing.rate
    assert np.all(decay >= -1e-10 * rate)
    assert np.all(decay <= 2.0 * rate * (1.0 + 1e-10))
    # long waves see the matrix itself
    long = 1e-3 * rng.standard_normal((n, 50))
    q = Q / np.outer(widths, widths)
    np.testing.assert_allclose(
        symbol(mixing, widths, long), 0.5 * np.einsum("ik,ij,jk->k", long, q, long), atol=1e-5 * rate * 1e-6 * n * n
    )


def test_a_diagonal_matrix_is_the_published_kind():
    assert mixing_of(np.diag([1.0, 2.0]), np.ones(2)) is None
    runs = [
        Gbees(lambda x, t, xp: (x[1], -x[0]), [1.0, 0.0], 0.04, threshold=1e-5, diffusion=Q, backend="array")
        for Q in ([0.1, 0.2], np.diag([0.1, 0.2]))
    ]
    for run in runs:
        run.advance(0.3)
    np.testing.assert_array_equal(runs[0].cells().probabilities, runs[1].cells().probabilities)
