"""Means in float64 beside covariances in float32."""

import array_api_strict
import numpy as np
import pytest

from ensemble._kernels.kalman.scan import SCANS
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter, rts_smoother, two_filter_smoother
from ensemble.scalar import Ensemble
from tests.apps.kalman.models import car, close, errors, random_parts, with_gaps

SMOOTHERS = {
    "recursion": lambda *a, **o: rts_smoother(*a, method="sequential", **o),
    "square_root": lambda *a, **o: rts_smoother(*a, form="square_root", **o),
    **{f"rts-{s}": lambda *a, s=s, **o: rts_smoother(*a, method="scan", scan=s, **o) for s in SCANS},
    **{f"two-{s}": lambda *a, s=s, **o: two_filter_smoother(*a, scan=s, **o) for s in SCANS},
}


def check_car(name, T, q, r, start, narrow_loses):
    """Lost in float32 is the mean; what remains with wide means is the covariance's error: 1e-6 to 1e-5."""
    narrow, wide, y = car(T, q, r, start=start)
    exact = rts_smoother(LinearGaussianModel(**wide), y)
    plain = SMOOTHERS[name](LinearGaussianModel(**narrow), y.astype(np.float32))
    got = SMOOTHERS[name](LinearGaussianModel(**narrow), y, mean_dtype="float64")
    assert got.mean.dtype == np.float64 and got.covariance.dtype == np.float32
    assert max(errors(plain, exact)) > narrow_loses
    assert max(errors(got, exact)) < 1e-4
    assert abs(got.log_likelihood - exact.log_likelihood) < 1e-6 * abs(exact.log_likelihood)


@pytest.mark.parametrize("q, r, narrow_loses", [(1.0, 0.25, 1e-2), (1e-4, 1.0, 5e-3), (1.0, 1e-6, 1.0)])
@pytest.mark.parametrize("name", SMOOTHERS)
def test_a_car_far_from_the_origin(name, q, r, narrow_loses):
    check_car(name, 300, q, r, 1e5, narrow_loses)


@pytest.mark.parametrize("q, r, narrow_loses", [(1.0, 0.25, 1e-2), (1e-4, 1.0, 1e-3), (1.0, 1e-6, 0.1)])
@pytest.mark.parametrize("name", ["recursion", "rts-chunked", "two-chunked"])
def test_a_car_on_a_long_drive(name, q, r, narrow_loses):
    """20,000 steps: in float32 the means are off by 1e-2 to 10 deviations."""
    check_car(name, 20_000, q, r, 0.0, narrow_loses)


@pytest.mark.parametrize("prior_at", ["before", "first_observation"])
@pytest.mark.parametrize("name", ["recursion", "square_root", "rts-chunked", "two-blelloch"])
def test_wide_means_of_any_model(name, prior_at):
    """Everything time-varying, inputs and offsets, gaps, batches: within float32 of float64."""
    parts, y = random_parts(40, 3, 2, batch=(2,))
    y = with_gaps(y)
    narrow = {name: a.astype(np.float32) for name, a in parts.items()}
    wide = {name: a.astype(np.float64) for name, a in narrow.items()}
    exact = rts_smoother(LinearGaussianModel(**wide, prior_at=prior_at), y)
    got = SMOOTHERS[name](LinearGaussianModel(**narrow, prior_at=prior_at), y, mean_dtype=np.float64)
    assert max(errors(got, exact)) < 3e-4
    close(got.log_likelihoods, exact.log_likelihoods, 1e-4)
    alone = kalman_filter(LinearGaussianModel(**narrow, prior_at=prior_at), y, mean_dtype=np.float64)
    close(alone.mean, exact.filtered.mean, 1e-4)


def test_a_sample_sees_only_itself():
    """Series of a batch, samples of an Ensemble and each alone: the same bits, beside one that ends in NaN."""
    parts, y = random_parts(9, 2, 1, batch=(5,), dtype=np.float32)
    y = with_gaps(y.astype(np.float64))
    parts["m0"][4] = np.float32(3e38)
    with np.errstate(all="ignore"):
        batch = rts_smoother(LinearGaussianModel(**parts), y, mean_dtype="float64")
        last = {name: Ensemble(np.ascontiguousarray(np.moveaxis(a, 0, -1))) for name, a in parts.items()}
        y_last = Ensemble(np.ascontiguousarray(np.moveaxis(y, 0, -1)))
        lifted = rts_smoother(LinearGaussianModel(**last), y_last, mean_dtype="float64")
    for i in range(4):
        one = LinearGaussianModel(**{name: a[i] for name, a in parts.items()})
        alone = rts_smoother(one, y[i], mean_dtype="float64")
        assert np.isfinite(alone.mean).all()
        for attribute in ("mean", "covariance", "log_likelihoods"):
            np.testing.assert_array_equal(getattr(batch, attribute)[i], getattr(alone, attribute))
            np.testing.assert_array_equal(getattr(lifted, attribute).sample(i), getattr(alone, attribute))


def test_runs_on_array_api_strict():
    narrow, _, y = car(20, 1.0, 0.25)
    xp = array_api_strict
    strict = LinearGaussianModel(**{k: xp.asarray(a) for k, a in narrow.items()})
    expected = rts_smoother(LinearGaussianModel(**narrow), y, mean_dtype="float64")
    for got in (
        rts_smoother(strict, xp.asarray(y), mean_dtype=xp.float64),
        two_filter_smoother(strict, xp.asarray(y), mean_dtype="float64"),
    ):
        assert got.mean.dtype == xp.float64 and got.covariance.dtype == xp.float32
        close(np.asarray(got.mean), expected.mean, 1e-5)


def test_the_type_of_the_matrices_changes_nothing():
    _, wide, y = car(20, 1.0, 0.25)
    model = LinearGaussianModel(**wide)
    np.testing.assert_array_equal(kalman_filter(model, y, mean_dtype="float64").mean, kalman_filter(model, y).mean)


@pytest.mark.parametrize("mean_dtype", ["float16", "float32", int])
def test_a_narrow_type_is_refused(mean_dtype):
    _, wide, y = car(5, 1.0, 0.25)
    with pytest.raises(ValueError, match="kalman_filter: mean_dtype must be float32 or float64 and as wide as float64"):
        kalman_filter(LinearGaussianModel(**wide), y, mean_dtype=mean_dtype)
