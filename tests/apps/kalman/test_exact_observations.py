"""Observations without noise: nonlinear filters with singular innovation covariances, states that are seen exactly."""

import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    NonlinearGaussianModel,
    OnlineFilter,
    extended_kalman_filter,
    extended_kalman_smoother,
    iterated_smoother,
    kalman_filter,
    rts_smoother,
    two_filter_smoother,
    unscented_kalman_filter,
    unscented_kalman_smoother,
)
from ensemble.scalar import Ensemble

DT = 0.1
F = np.array([[1.0, DT], [0.0, 1.0]])
Q = np.array([[DT**3 / 3, DT**2 / 2], [DT**2 / 2, DT]])
H = np.array([[1.0, 0.0]])


def walk(T=40, seed=0):
    return np.random.default_rng(seed).standard_normal((T, 1)).cumsum(axis=0)


def both(R, P0, rows=H, noise=Q):
    parts = (noise, R, np.zeros(2), P0)
    linear = LinearGaussianModel(F, noise, rows, *parts[1:])
    matrix = rows.tolist()
    other = NonlinearGaussianModel(
        lambda x, k, xp: (x[0] + DT * x[1], x[1]),
        lambda x, k, xp: tuple(a * x[0] + b * x[1] for a, b in matrix), *parts)  # fmt: skip
    return linear, other


ROWS = {"position": H, "sum": np.array([[1.0, 1.0]]), "everything": np.array([[1.0, 0.5], [0.3, -1.0]])}


@pytest.mark.parametrize("prior", [0.0, 1.0])
@pytest.mark.parametrize("noise", [0.0, 1e-18, 1e-12])
@pytest.mark.parametrize("rows", ROWS)
def test_nonlinear_filters_of_linear_models_are_the_kalman_filter(rows, noise, prior):
    rows = ROWS[rows]
    ny = len(rows)
    y = np.random.default_rng(3).standard_normal((40, ny)).cumsum(axis=0)
    linear, other = both(noise * np.eye(ny), prior * np.eye(2), rows)
    truth, smooth = kalman_filter(linear, y, form="square_root"), rts_smoother(linear, y, form="square_root")
    scale = np.abs(truth.mean).max()
    for run in (extended_kalman_filter, unscented_kalman_filter):
        got = run(other, y)
        assert not bool(got.failed), run
        np.testing.assert_allclose(got.mean, truth.mean, atol=1e-8 * scale, err_msg=str(run))
        np.testing.assert_allclose(got.covariance, truth.covariance, atol=1e-10)
        np.testing.assert_allclose(got.log_likelihood, truth.log_likelihood, rtol=1e-9)
    for run in (extended_kalman_smoother, unscented_kalman_smoother):
        got = run(other, y)
        assert not bool(got.failed), run
        np.testing.assert_allclose(got.mean, smooth.mean, atol=1e-7 * scale, err_msg=str(run))
    got = iterated_smoother(other, y, line_search=False)
    assert bool(got.converged)
    np.testing.assert_allclose(got.mean, smooth.mean, atol=1e-7 * scale)


@pytest.mark.parametrize("seed", range(6))
def test_a_state_that_is_seen_exactly_has_not_failed(seed):
    rng = np.random.default_rng(seed)
    A, rows = rng.standard_normal((2, 2)), rng.standard_normal((2, 2))
    noise = A @ A.T + 0.1 * np.eye(2)
    model = LinearGaussianModel(0.5 * rng.standard_normal((2, 2)), noise, rows, np.zeros((2, 2)), np.zeros(2), noise)
    y = rng.standard_normal((30, 2))
    exact = np.linalg.solve(rows, y.T).T
    for run in (kalman_filter, rts_smoother, two_filter_smoother,
                lambda *a: rts_smoother(*a, method="scan"),
                lambda *a: rts_smoother(*a, form="square_root")):  # fmt: skip
        got = run(model, y).raise_if_failed()
        assert not bool(got.failed)
        np.testing.assert_allclose(got.mean, exact, atol=1e-12 * np.abs(exact).max())


def test_a_negative_variance_that_is_no_rounding_has_failed():
    model = LinearGaussianModel(F, Q, H, [[0.01]], np.zeros(2), np.eye(2))
    got = rts_smoother(model, walk())
    broken = type(got)(got.mean, got.covariance - 0.1 * np.eye(2), got.filtered)
    assert bool(broken.failed) and not bool(got.failed)


NONE = (0.0 * Q, np.zeros((1, 1)))


@pytest.mark.parametrize("rows", ["position", "sum"])
def test_what_is_known_exactly_has_no_density_a_second_time(rows):
    """Constants, seen without noise, twice: no filter gives a likelihood."""
    rows = ROWS[rows]
    constants = LinearGaussianModel(np.eye(2), NONE[0], rows, NONE[1], np.zeros(2), np.eye(2))
    matrix = rows.tolist()
    other = NonlinearGaussianModel(lambda x, k, xp: (x[0], x[1]),
                                   lambda x, k, xp: tuple(a * x[0] + b * x[1] for a, b in matrix),
                                   *NONE, np.zeros(2), np.eye(2))  # fmt: skip
    y = np.array([[0.3], [0.4]])
    for got in (kalman_filter(constants, y), kalman_filter(constants, y, form="square_root"),
                kalman_filter(constants, y, method="scan"), extended_kalman_filter(other, y),
                unscented_kalman_filter(other, y), rts_smoother(constants, y)):  # fmt: skip
        assert bool(got.failed)
    online = OnlineFilter(constants)
    for row in y:
        online.step(row)
    assert not np.isfinite(online.log_likelihood)


def test_samples_of_nonlinear_filters_have_the_bits_of_their_own_runs():
    gravity = np.array([5.0, 9.81, 12.0, 20.0])

    def pendulum(g, R):
        return NonlinearGaussianModel(
            lambda x, k, xp: (x[0] + 0.1 * x[1], x[1] - 0.1 * g * xp.sin(x[0])), lambda x, k, xp: (xp.sin(x[0]),),
            [[1e-4, 0.0], [0.0, 1e-2]], R * np.eye(1), [0.5, 0.0], [[0.1, 0.0], [0.0, 0.1]])  # fmt: skip

    y = np.sin(np.cumsum(0.1 * np.random.default_rng(0).standard_normal(60)))[:, None]
    y[10:13] = np.nan
    noises = np.array([0.1, 0.0, 0.1, 1e-6])
    for run in (extended_kalman_filter, unscented_kalman_filter, extended_kalman_smoother, unscented_kalman_smoother,
                iterated_smoother):  # fmt: skip
        options = {"line_search": False} if run is iterated_smoother else {}
        together = run(pendulum(Ensemble(gravity), Ensemble(noises)), y, **options)
        for i, g in enumerate(gravity):
            alone = run(pendulum(g, noises[i]), y, **options)
            for name in ("mean", "covariance", "log_likelihood"):
                found, own = getattr(together, name).sample(i), getattr(alone, name)
                np.testing.assert_array_equal(found, own, f"{run.__name__} {name} {i}")


@pytest.mark.parametrize("sizes", [(3, 2), (10, 3)])
def test_samples_of_an_online_filter_have_the_bits_of_their_own_runs(sizes):
    nx, ny = sizes
    rng = np.random.default_rng(1)
    moves, rows = 0.3 * rng.standard_normal((nx, nx, 5)), rng.standard_normal((ny, nx))
    y = rng.standard_normal((20, ny))
    y[3, 0] = np.nan

    def model(moves):
        return LinearGaussianModel(moves, np.eye(nx), rows, np.eye(ny), np.zeros(nx), np.eye(nx))

    together, each = OnlineFilter(model(Ensemble(moves))), [OnlineFilter(model(moves[..., i])) for i in range(5)]
    for k, row in enumerate(y):
        for online in (together, *each):
            if k % 3:
                online.step(row)
            else:
                online.predict()
                online.update(row)
    for i, online in enumerate(each):
        np.testing.assert_array_equal(together.mean.sample(i), online.mean)
        np.testing.assert_array_equal(together.covariance.sample(i), online.covariance)
        assert float(together.log_likelihood.sample(i)) == online.log_likelihood
