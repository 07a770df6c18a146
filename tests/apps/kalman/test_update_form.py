"""The update of the covariance keeps its digits: wide priors, sharp observations, against 50 digits."""

import functools

import mpmath
import numpy as np
import pytest

from ensemble.apps.kalman import LinearGaussianModel, kalman_filter
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.filters import sequential_filter

mpmath.mp.dps = 50

STEP, NOISE = 0.01, 0.01


@functools.cache
def regression(T, prior, noise=NOISE):
    """Regressors 1, t, sin t, cos t, observations, and mean and deviations given all of them, by 50 digits."""
    t = STEP * np.arange(T)
    H = np.stack([np.ones(T), t, np.sin(t), np.cos(t)], axis=1)
    y = H @ np.array([1.0, 0.5, 2.0, -1.0]) + np.sqrt(noise) * np.random.default_rng(60913).standard_normal(T)
    exact = mpmath.matrix(H.tolist())
    information = exact.T * exact / mpmath.mpf(noise) + mpmath.eye(4) / mpmath.mpf(prior)
    covariance = information**-1
    mean = covariance * (exact.T * mpmath.matrix(y.tolist())) / mpmath.mpf(noise)
    variances = np.array([float(covariance[i, i]) for i in range(4)])
    return H, y[:, None], np.array([float(v) for v in mean]), variances


def regression_model(H, prior, noise=NOISE):
    zeros = np.zeros((4, 4))
    return LinearGaussianModel(np.eye(4), zeros, H[:, None, :], [[noise]], np.zeros(4), prior * np.eye(4))


def compiled(model, y):
    result = kalman_filter(model, y)
    return result.mean, result.covariance


def by_matrices(model, y):
    return sequential_filter(aligned(model, y, None, "test"))[:2]


def in_lanes(model, y):
    result = kalman_filter(model, np.stack([y] * 3))
    return result.mean[1], result.covariance[1]


def by_loops(model, y):
    """The same model with nine idle states in front: too large to write out."""
    wide = {"F": np.eye(13), "Q": np.zeros((13, 13)), "m0": np.zeros(13), "P0": np.eye(13), "R": model.R}
    wide["P0"][9:, 9:] = model.P0
    wide["H"] = np.concatenate([np.zeros((*model.H.shape[:-1], 9)), model.H], axis=-1)
    result = kalman_filter(LinearGaussianModel(**wide), y)
    return result.mean[:, 9:], result.covariance[:, 9:, 9:]


WAYS = {"compiled": compiled, "matrices": by_matrices, "lanes": in_lanes, "loops": by_loops}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("prior", [1e6, 1e7])
def test_a_regression_under_a_wide_prior_keeps_its_digits(way, prior):
    # the first updates cancel P0 / R = 1e8 and 1e9: 1e-16 times that, and a margin of 10, is left to the variances
    H, y, mean, variances = regression(300, prior)
    means, covariances = WAYS[way](regression_model(H, prior), y)
    assert np.max(np.abs(means[-1] - mean) / np.sqrt(variances)) < 1e-16 * prior / NOISE * 10
    assert np.max(np.abs(np.diag(covariances[-1]) / variances - 1.0)) < 1e-16 * prior / NOISE * 10


def exact_filter(F, Q, H, R, P, T):
    """The filtered covariances of a constant model, by 50 digits."""
    out = []
    for _ in range(T):
        P = F * P * F.T + Q
        PHt = P * H.T
        P = P - PHt * (H * PHt + R) ** -1 * PHt.T
        out.append(P)
    return out


@pytest.mark.parametrize("way", ["compiled", "matrices"])
@pytest.mark.parametrize("noise", [1e-6, 1e-14, 1e-20, 0.0])
def test_variances_keep_their_digits_under_sharp_observations(way, noise):
    F, H = np.array([[1.0, 0.25], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    Q, P0 = np.array([[1.0 / 192, 1.0 / 32], [1.0 / 32, 0.25]]), np.eye(2)
    T = 50
    model = LinearGaussianModel(F, Q, H, [[noise]], np.zeros(2), P0)
    _, covariances = WAYS[way](model, np.zeros((T, 1)))
    exact = exact_filter(*(mpmath.matrix(a.tolist()) for a in (F, Q, H, np.array([[noise]]), P0)), T)
    truth = np.array([[float(P[i, i]) for i in range(2)] for P in exact])
    got = np.einsum("kii->ki", covariances)
    # a variance below eps^2 of its prior is lost in the rounding of the residual that finds it
    bound = 1e-13 * truth + 1e-31
    assert np.all(np.abs(got - truth) <= bound), np.max(np.abs(got - truth) / np.maximum(truth, 1e-300))


def test_covariances_are_symmetric_to_the_bit():
    H, y, _, _ = regression(300, 1e6)
    for way in WAYS.values():
        covariances = way(regression_model(H, 1e6), y)[1]
        np.testing.assert_array_equal(covariances, covariances.mT)
