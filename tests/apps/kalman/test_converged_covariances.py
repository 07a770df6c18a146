"""Constant models too large to write out: covariances that have converged are kept, until an entry is missing."""

import numpy as np
import pytest

from ensemble._kernels.kalman.recursions import smooth_series
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter
from ensemble.scalar import Ensemble
from tests.apps.kalman.models import random_parts

NX, NY, T = 9, 2, 400


def constant_parts(seed=60913):
    """A stable constant model, and observations whose entry 250 is missing in part."""
    parts, y = random_parts(T, NX, NY, seed)
    parts = {name: a[0] if name in "FQHRud" else a for name, a in parts.items()}
    parts["F"] = 0.8 * parts["F"]
    y = np.random.default_rng(seed).standard_normal((T, NY))
    y[250, 1] = np.nan
    return parts, y


def each_step(parts):
    """The same model with an entry for each step: no covariance is kept."""
    return {name: np.repeat(a[None], T, axis=0) if name in "FQHRud" else a for name, a in parts.items()}


def test_kept_covariances_are_those_of_the_recursion():
    parts, y = constant_parts()
    kept, full = (kalman_filter(LinearGaussianModel(**p), y) for p in (parts, each_step(parts)))
    deviations = np.sqrt(np.einsum("kii->ki", full.covariance))
    scale = deviations[:, :, None] * deviations[:, None, :]
    # 8 eps is the criterion; the recursion itself differs by as much from step to step
    assert np.max(np.abs(kept.covariance - full.covariance) / scale) < 1e-13
    assert np.max(np.abs(kept.mean - full.mean) / deviations) < 1e-12
    np.testing.assert_allclose(kept.log_likelihoods, full.log_likelihoods, rtol=0, atol=1e-11)


def test_covariances_are_kept_between_gaps_and_only_there():
    parts, y = constant_parts()
    P = kalman_filter(LinearGaussianModel(**parts), y).covariance
    same = np.all(P[1:] == P[:-1], axis=(1, 2))
    assert same[150:249].all()
    assert not same[249] and not same[250]
    assert same[-20:].all()


@pytest.mark.parametrize("seed", [40127, 51803])
def test_a_sample_with_gaps_leaves_the_others_alone(seed):
    parts, y = constant_parts(seed)
    samples = np.stack([y, np.nan_to_num(y), np.roll(y, 30, axis=0)], axis=-1)
    model = LinearGaussianModel(**parts)
    together = kalman_filter(model, Ensemble(samples))
    for i in range(3):
        alone = kalman_filter(model, samples[..., i])
        np.testing.assert_array_equal(together.mean.samples[..., i], alone.mean)
        np.testing.assert_array_equal(together.covariance.samples[..., i], alone.covariance)
        np.testing.assert_array_equal(together.log_likelihood.samples[i], alone.log_likelihood)


def smoother_arguments(parts, filtered):
    """What the kernel takes, of one series: F, Q, u, the filtered mean and covariance."""
    F, Q, u = (parts[name][None] if parts[name].shape[0] == T else parts[name][None, None] for name in "FQu")
    return F, Q, u, filtered.mean[None], filtered.covariance[None], False


def test_the_smoother_with_kept_gains_has_the_bits_of_one_that_computes_each():
    parts, y = constant_parts()
    filtered = kalman_filter(LinearGaussianModel(**parts), y)
    assert np.any(np.all(filtered.covariance[1:] == filtered.covariance[:-1], axis=(1, 2)))
    kept, full = (smooth_series(*smoother_arguments(p, filtered)) for p in (parts, each_step(parts)))
    for a, b in zip(kept, full, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.all(np.isfinite(kept[0]))


@pytest.mark.parametrize("rank", [0, 1])
def test_smoothers_of_nine_states_are_flagged_like_the_reference(rank):
    """A component without variance drops out; one that is nearly the copy of another makes all before it NaN."""
    rng = np.random.default_rng(73121)
    F = np.repeat(0.3 * rng.standard_normal((1, 1, NX, NX)), 5, axis=1)
    F[..., 3, :] = 0.0
    F[:, 2, 3] = F[:, 2, 1] if rank else 0.0
    X, Y = rng.standard_normal((2, 1, 5, NX, NX))
    Q, P = X @ X.mT, Y @ Y.mT
    Q[..., 3, :], Q[..., :, 3] = 0.0, 0.0
    if rank:
        Q[:, 2, 3], Q[:, 2, :, 3] = Q[:, 2, 1], Q[:, 2, :, 1]
        Q[:, 2, 3, 3] = Q[:, 2, 1, 1] * (1 + 1e-12)
    arguments = F, Q, rng.standard_normal((1, 1, NX)), rng.standard_normal((1, 5, NX)), P, False
    got, want = smooth_series(*arguments), smooth_series.reference(*arguments)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.isnan(got[0][0, :, 0]).tolist() == [bool(rank), bool(rank), False, False, False]
