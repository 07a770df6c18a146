"""Nonlinear filters and smoothers of linear models below wide priors: the digits of square roots of the linear ones.

The sigma points lie along a factor of P. Where P has lost the digits of narrow directions, so has each matrix that is
found from them, and the cancellation does not show in the innovation covariance.
"""

import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    extended_kalman_filter,
    extended_kalman_smoother,
    rts_smoother,
    unscented_kalman_filter,
    unscented_kalman_smoother,
)
from ensemble.scalar import Ensemble
from tests.apps.kalman.digits import truth
from tests.apps.kalman.models import alike, as_nonlinear, partly_seen

RUNS = {
    "extended filter": extended_kalman_filter,
    "unscented filter": unscented_kalman_filter,
    "extended smoother": extended_kalman_smoother,
    "unscented smoother": unscented_kalman_smoother,
}


def error(got, mean, variances, total, scale):
    """The largest error of means in deviations, of variances relative to them, and of the log-likelihood."""
    off = np.max(np.abs(got.mean - mean) / scale)
    relative = np.max(np.abs(np.einsum("kii->ki", got.covariance) - variances) / scale**2)
    return max(off, relative, abs(float(got.log_likelihood) - float(total)))


CASES = [(4, 1e3, 1e5, 1e-5), (3, 100.0, 1e7, 1e-5), (3, 1e3, 1e9, 1.0), (5, 1e3, 1e6, 1e-3), (2, 1e3, 1e6, 1e-6)]


@pytest.mark.parametrize("prior_at", ["before", "first_observation"])
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("columns, offset, prior, noise", CASES)
def test_nonlinear_runs_of_regressions_on_columns_alike_keep_their_digits(
    columns, offset, prior, noise, name, prior_at
):
    parts, y = alike(columns, offset, prior=prior, noise=noise)
    right = rts_smoother(LinearGaussianModel(**parts), y, form="square_root")
    mean, P, smooth, total = truth(parts, y)
    variances = np.einsum("kii->ki", P)
    got = RUNS[name](as_nonlinear(parts, len(y), prior_at), y)
    assert not bool(got.failed)
    if "smoother" in name:
        spread = np.einsum("kii->ki", right.covariance)
        assert error(got, smooth, spread, total, np.sqrt(spread)) < 1e-4
        got = got.filtered
    assert error(got, mean, variances, total, np.sqrt(variances)) < 1e-4


@pytest.mark.parametrize("name", RUNS)
def test_samples_of_all_widths_are_their_own_nonlinear_runs(name):
    parts, y = alike(3, 100.0, prior=1.0, noise=1e-5)
    priors = np.array([1e-2, 1e7, 1e2])
    together = RUNS[name](as_nonlinear({**parts, "P0": Ensemble(priors) * np.eye(3)}, len(y)), y)
    for i, prior in enumerate(priors):
        alone = RUNS[name](as_nonlinear({**parts, "P0": prior * np.eye(3)}, len(y)), y)
        for part in ("mean", "covariance", "log_likelihood"):
            np.testing.assert_array_equal(getattr(together, part).sample(i), getattr(alone, part), part)
    flags = getattr(together, "filtered", together).by_roots
    assert bool(flags.sample(1)) and not bool(flags.sample(0))


def test_sigma_points_of_what_keeps_its_digits_go_by_covariances():
    """States that are known exactly or have ordinary priors lose nothing."""
    for prior, noise in ((1.0, 0.1), (1e3, 1.0), (0.0, 1.0)):
        parts, y = alike(3, 1.0, prior=prior, noise=noise)
        assert unscented_kalman_filter(as_nonlinear(parts, len(y)), y).by_roots is None, (prior, noise)


@pytest.mark.parametrize("name", ["unscented filter", "unscented smoother"])
def test_sigma_points_in_float32_keep_digits_or_have_failed(name):
    for offset, prior in ((1.0, 1e2), (10.0, 1e4), (100.0, 1e4)):
        parts, y = alike(3, offset, prior=prior, noise=1.0)
        narrow = {key: a.astype(np.float32) for key, a in parts.items()}
        wide, y = {key: a.astype(float) for key, a in narrow.items()}, y.astype(np.float32)
        right = rts_smoother(LinearGaussianModel(**wide), y.astype(float), form="square_root")
        right = right if "smoother" in name else right.filtered
        got = RUNS[name](as_nonlinear(narrow, len(y)), y)
        variances = np.einsum("kii->ki", right.covariance)
        if not bool(got.failed):
            assert error(got, right.mean, variances, right.log_likelihood, np.sqrt(variances)) < 0.1, offset


@pytest.mark.slow
def test_300_nonlinear_runs_agree_with_square_roots():
    """Regressions and dynamics of which some is seen; beyond one over the rounding of square roots all lose digits."""
    rng, tried = np.random.default_rng(41_300), 0
    for case in range(300):
        if case % 2:
            parts, y = partly_seen(case)
        else:
            columns, noise, prior = int(rng.integers(2, 6)), 10.0 ** -rng.integers(0, 9), 10.0 ** rng.integers(2, 10)
            parts, y = alike(columns, 10.0 ** rng.integers(0, 4), prior=prior, noise=noise, seed=case)
        widest = np.max(np.abs(parts["H"])) * np.sqrt(np.max(parts["P0"]) / np.min(np.diag(parts["R"])))
        exact = rts_smoother(LinearGaussianModel(**parts), y, form="square_root")
        if np.finfo(float).eps * widest > 1e-6 or bool(exact.failed):
            continue
        model = as_nonlinear(parts, len(y))
        for name, run in RUNS.items():
            right = exact if "smoother" in name else exact.filtered
            variances = np.einsum("kii->ki", right.covariance)
            scale = np.sqrt(variances) + (1e-9 * np.max(np.abs(right.mean)) if case % 2 else 0.0)
            got = run(model, y)
            assert not bool(got.failed), (name, case)
            assert error(got, right.mean, variances, right.log_likelihood, scale) < 1e-3, (name, case)
        tried += 1
    assert tried > 150
