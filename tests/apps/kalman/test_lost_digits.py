"""Where covariances lose too many digits, a series goes by square roots or has failed; others keep their bits."""

import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    NonlinearGaussianModel,
    OnlineFilter,
    extended_kalman_filter,
    iterated_smoother,
    kalman_filter,
    log_likelihood,
    rts_smoother,
    two_filter_smoother,
    unscented_kalman_filter,
)
from ensemble.scalar import Ensemble
from tests.apps.kalman.digits import in_many_digits
from tests.apps.kalman.models import random_parts

PAIRED = np.eye(2)


def drifting(T=60, seed=5):
    """Two states that drift apart with accelerations of their own; only their sum is seen."""
    parts = {
        "F": np.kron(np.array([[1.0, 1.0, 0.5], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]), PAIRED),
        "Q": np.kron(np.diag([0.0, 0.0, 1e-6]), PAIRED),
        "H": np.kron(np.array([[1.0, 0.0, 0.0]]), np.ones((4, 2))),
        "R": 1e-3 * np.eye(4),
        "m0": np.zeros(6),
        "P0": 1e4 * np.eye(6),
    }
    return parts, 0.03 * np.random.default_rng(seed).standard_normal((T, 4))


def truth(parts, y):
    m, P, s, _, terms = in_many_digits(parts, y, "before")
    return m.astype(float), P.astype(float), s.astype(float), float(sum(terms))


def sums(mean):
    return mean[:, 0] + mean[:, 1]


RUNS = {
    "recursion": lambda m, y: kalman_filter(m, y),
    "square root": lambda m, y: kalman_filter(m, y, form="square_root"),
    "scan": lambda m, y: kalman_filter(m, y, method="scan"),
    "smoother": lambda m, y: rts_smoother(m, y).filtered,
    "two filters": lambda m, y: two_filter_smoother(m, y).filtered,
}


@pytest.mark.parametrize("name", RUNS)
def test_directions_that_are_not_seen_may_drift_apart(name):
    parts, y = drifting()
    mean, P, _, total = truth(parts, y)
    got = RUNS[name](LinearGaussianModel(**parts), y)
    spread = np.sqrt(P[-1, 0, 0] + P[-1, 1, 1] + 2 * P[-1, 0, 1])
    assert not bool(got.failed)
    assert abs(float(got.log_likelihood) - total) < 1e-7 * abs(total)
    assert np.max(np.abs(sums(got.mean) - sums(mean))) < 1e-6 * max(spread, 0.01)


def test_the_likelihood_alone_and_the_smoother_are_right():
    parts, y = drifting()
    _, _, smooth, _ = truth(parts, y)
    model = LinearGaussianModel(**parts)
    assert log_likelihood(model, y) == kalman_filter(model, y).log_likelihood
    got = rts_smoother(model, y)
    assert not bool(got.failed)
    np.testing.assert_allclose(sums(got.mean), sums(smooth), atol=1e-6)


def test_only_the_samples_that_lose_digits_change_their_form():
    parts, y = drifting(30)
    widths = np.array([1e-4, 1e4, 1e-2])
    model = LinearGaussianModel(**{**parts, "P0": Ensemble(widths) * np.eye(6)})
    got = rts_smoother(model, y)
    for i, width in enumerate(widths):
        alone = rts_smoother(LinearGaussianModel(**{**parts, "P0": width * np.eye(6)}), y)
        for name in ("mean", "covariance", "log_likelihood"):
            np.testing.assert_array_equal(getattr(got, name).sample(i), getattr(alone, name), name)
    assert bool(got.filtered.by_roots.sample(1))


def test_a_model_that_loses_nothing_keeps_its_form():
    parts, y = random_parts(40, 4, 2)
    assert kalman_filter(LinearGaussianModel(**parts), y).by_roots is None


@pytest.mark.parametrize("prior", [1e8, 1e12, 1e16])
def test_a_wide_prior_leaves_the_digits_of_what_is_learnt(prior):
    dt = 0.1
    F, H = np.array([[1.0, dt], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    Q = np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    parts = {"F": F, "Q": Q, "H": H, "R": np.array([[0.01]]), "m0": np.zeros(2), "P0": prior * np.eye(2)}
    y = np.random.default_rng(0).standard_normal((20, 1)).cumsum(axis=0)
    mean, P, _, total = truth(parts, y)
    linear = NonlinearGaussianModel(lambda x, k, xp: (x[0] + dt * x[1], x[1]), lambda x, k, xp: (x[0],), Q,
                                    parts["R"], parts["m0"], parts["P0"])  # fmt: skip
    model = LinearGaussianModel(**parts)
    online = OnlineFilter(model)
    for row in y:
        online.step(row)
    deviation = np.sqrt(np.diag(P[-1]))
    assert np.max(np.abs(online.mean - mean[-1]) / deviation) < 1e-6
    for got in (kalman_filter(model, y), extended_kalman_filter(linear, y), unscented_kalman_filter(linear, y)):
        assert np.max(np.abs(got.mean - mean) / np.sqrt(np.einsum("kii->ki", P))) < 1e-6
        assert abs(float(got.log_likelihood) - total) < 1e-6


@pytest.mark.parametrize("size", [3, 12])
def test_many_series_find_those_that_lose_digits(size):
    """Up to eight states in straight-line code, beyond in loops; series that share their covariances, too."""
    rng = np.random.default_rng(77)
    lots = rng.standard_normal((4, 8, 1))
    F, H = np.eye(size), np.ones((1, size))
    parts = {"F": F, "Q": 0.0 * F, "H": H, "R": np.array([[1e-4]]), "m0": np.zeros(size), "P0": 1e9 * F}
    got = kalman_filter(LinearGaussianModel(**parts), lots)
    for i in range(4):
        _, _, _, total = truth(parts, lots[i])
        assert abs(float(got.log_likelihood[i]) - total) < 1e-6 * abs(total)
        assert log_likelihood(LinearGaussianModel(**parts), lots[i]) == got.log_likelihood[i]


def test_the_start_of_an_iterated_smoother_loses_no_digits_either():
    parts, y = drifting()
    F, H = parts["F"], parts["H"]
    times = lambda A: lambda x, k, xp: tuple(sum(a * b for a, b in zip(row, x, strict=True)) for row in A.tolist())
    model = NonlinearGaussianModel(times(F), times(H), parts["Q"], parts["R"], parts["m0"], parts["P0"])
    got = iterated_smoother(model, y, line_search=False)
    assert bool(got.converged)
    np.testing.assert_allclose(sums(got.mean), sums(truth(parts, y)[2]), atol=1e-6)
    for run in (extended_kalman_filter, unscented_kalman_filter):
        np.testing.assert_allclose(run(model, y).log_likelihood, truth(parts, y)[3], rtol=1e-7)
