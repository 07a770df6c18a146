"""Singular innovation covariances: of the scan's elements, where the recursion answers, and of the model itself."""

import numpy as np
import pytest

from ensemble._kernels.kalman.scan import SCANS
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter, rts_smoother, two_filter_smoother
from ensemble.krylov import SolveError
from ensemble.scalar import Ensemble
from tests.apps.kalman.models import close, exact_observations, random_parts, turned

RUNS = {
    "filter": lambda *a, scan: kalman_filter(*a, method="scan", scan=scan),
    "rts": lambda *a, scan: rts_smoother(*a, method="scan", scan=scan),
    "two": lambda *a, scan: two_filter_smoother(*a, scan=scan),
}


@pytest.mark.parametrize("scan", sorted(SCANS))
@pytest.mark.parametrize("run", RUNS)
def test_rounding_hides_no_singular_series(run, scan):
    parts, y = turned(*exact_observations(T=9))
    S = parts["H"] @ parts["Q"] @ parts["H"].mT + parts["R"]
    assert 0 < np.abs(S[1]).max() < 1e-14 < S[0].min()
    expected = (kalman_filter if run == "filter" else rts_smoother)(LinearGaussianModel(**parts), y)
    got = RUNS[run](LinearGaussianModel(**parts), y, scan=scan)
    close(got.mean, expected.mean)
    close(got.log_likelihood, expected.log_likelihood)
    close(got.covariance, expected.covariance)


@pytest.mark.parametrize("scan", sorted(SCANS))
@pytest.mark.parametrize("run", RUNS)
def test_scans_answer_where_only_the_recursion_is_regular(run, scan):
    parts, y = exact_observations(T=4)
    expected = (kalman_filter if run == "filter" else rts_smoother)(LinearGaussianModel(**parts), y)
    assert np.isfinite(expected.mean).all() and np.isfinite(expected.log_likelihood).all()
    got = RUNS[run](LinearGaussianModel(**parts), y, scan=scan)
    for attribute in ("mean", "covariance", "log_likelihoods", "log_likelihood"):
        close(getattr(got, attribute), getattr(expected, attribute))
    np.testing.assert_array_equal(got.log_likelihoods[1], expected.log_likelihoods[1])


@pytest.mark.parametrize("run", RUNS)
def test_a_singular_sample_changes_no_bit_of_the_others(run):
    parts, y = exact_observations(T=6)
    lifted = {k: Ensemble(np.ascontiguousarray(np.moveaxis(a, 0, -1))) for k, a in parts.items()}
    together = RUNS[run](LinearGaussianModel(**lifted), Ensemble(np.ascontiguousarray(y.transpose(1, 2, 0))),
                         scan="hillis_steele")  # fmt: skip
    for i in range(3):
        one = {name: a[i] for name, a in parts.items()}
        alone = RUNS[run](LinearGaussianModel(**one), y[i], scan="hillis_steele")
        close(together.mean.sample(i), alone.mean, 1e-13)
        close(together.covariance.sample(i), alone.covariance, 1e-13)
        assert np.isfinite(alone.mean).all()


@pytest.mark.parametrize("options", [{"method": "sequential"}, {"method": "scan"}, {"form": "square_root"}], ids=str)
def test_a_model_without_density_says_so(options):
    """A state known exactly, and observed without noise: in one series from the third step on."""
    parts, y = random_parts(5, 2, 1, batch=(4,))
    for name in ("Q", "P0"):
        parts[name][2:] = 0.0
    parts["R"][3], parts["R"][2, 2:] = 0.0, 0.0
    with np.errstate(all="ignore"):
        result = kalman_filter(LinearGaussianModel(**parts), y, **options)
    assert result.failed.tolist() == [False, False, True, True]
    assert np.isfinite(result.log_likelihoods[2, :2]).all() and np.isfinite(result.mean[:2]).all()
    with pytest.raises(SolveError, match=r"not positive definite from step 0 on \(series \(2,\), \(3,\)\)"):
        result.raise_if_failed()
    good = {name: a[:2] for name, a in parts.items()}
    smooth = rts_smoother(LinearGaussianModel(**good), y[:2])
    assert smooth.raise_if_failed() is smooth and not smooth.failed.any()


def test_failed_samples_are_named():
    R = Ensemble(np.array([[[1.0, 0.0, 1.0, 0.0]]]))
    zero = np.zeros((1, 1))
    model = LinearGaussianModel(np.eye(1), zero, np.eye(1), R, np.zeros(1), zero)
    result = kalman_filter(model, [[np.nan], [1.0], [1.0]])
    assert result.failed.samples.tolist() == [False, True, False, True]
    with pytest.raises(SolveError, match=r"from step 1 on \(samples 1, 3\)"):
        result.raise_if_failed()
