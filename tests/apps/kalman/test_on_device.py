"""What is composed of the kernels and of Array API code, on a CUDA device."""

import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    NonlinearGaussianModel,
    iterated_smoother,
    rts_smoother,
    two_filter_smoother,
)
from tests.apps.kalman.models import close, random_parts, with_gaps
from tests.apps.kalman.test_iterated import radar, simulated
from tests.apps.kalman.test_mean_dtype import car, errors

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]

SMOOTHERS = {
    "auto": rts_smoother,
    "recursion": lambda *a, **o: rts_smoother(*a, method="sequential", **o),
    "sengupta": lambda *a, **o: rts_smoother(*a, method="scan", scan="sengupta", **o),
    "two": two_filter_smoother,
}


def moved(parts):
    cupy = pytest.importorskip("cupy")
    return {name: cupy.asarray(a) for name, a in parts.items()}


class Fetched:
    """A result with its arrays on the host."""

    def __init__(self, result):
        self.mean, self.covariance = result.mean.get(), result.covariance.get()
        self.filtered = Fetched(result.filtered) if hasattr(result, "filtered") else None


@pytest.mark.parametrize("q, r, narrow_loses", [(1.0, 0.25, 1e-2), (1e-4, 1.0, 1e-3), (1.0, 1e-6, 0.1)])
@pytest.mark.parametrize("name", SMOOTHERS)
def test_wide_means_beside_narrow_covariances(name, q, r, narrow_loses):
    narrow, wide, y = car(20_000, q, r)
    exact = rts_smoother(LinearGaussianModel(**wide), y)
    model, there = LinearGaussianModel(**moved(narrow)), moved({"y": y})["y"]
    plain, got = SMOOTHERS[name](model, there.astype(np.float32)), SMOOTHERS[name](model, there, mean_dtype="float64")
    assert got.mean.dtype == np.float64 and got.covariance.dtype == np.float32
    lost, left = max(errors(Fetched(plain), exact)), max(errors(Fetched(got), exact))
    print(f"{name}: {lost:.1e} -> {left:.1e} deviations")
    assert lost > narrow_loses
    assert left < 1e-4


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("scan", ["chunked", "blelloch"])
def test_the_recursion_takes_over_where_scans_say_nothing(scan, batch):
    """The last series alone moves and is seen without noise: the others keep their bits."""
    parts, y = random_parts(600, 3, 1, batch=batch)
    parts["H"] = np.zeros_like(parts["H"]) + np.array([1.0, 0.0, 0.0])
    regular = {name: a.copy() for name, a in parts.items()}
    last = batch and (-1,)
    for name, key in (("Q", (..., 0, slice(None))), ("Q", (..., slice(None), 0)), ("R", ...)):
        parts[name][last][key] = 0.0
    exact = rts_smoother(LinearGaussianModel(**parts), y)
    there = moved({"y": y})["y"]
    runs = (
        lambda m: rts_smoother(m, there, method="scan", scan=scan),
        lambda m: two_filter_smoother(m, there, scan=scan),
    )
    for run in runs:
        got, full = run(LinearGaussianModel(**moved(parts))), run(LinearGaussianModel(**moved(regular)))
        assert not bool(got.failed.any())
        close(got.mean.get(), exact.mean)
        close(got.filtered.covariance.get(), exact.filtered.covariance)
        close(got.log_likelihoods.get(), exact.log_likelihoods)
        if batch:
            np.testing.assert_array_equal(got.mean[:-1].get(), full.mean[:-1].get())


@pytest.mark.parametrize("batch", [(), (5,)])
@pytest.mark.parametrize("scan", ["hillis_steele", "blelloch", "ladner_fischer", "sengupta", "sequential"])
def test_every_scan_of_the_public_face(scan, batch):
    parts, y = random_parts(257, 4, 2, batch=batch)
    y = with_gaps(y)
    exact = rts_smoother(LinearGaussianModel(**parts), y)
    model, there = LinearGaussianModel(**moved(parts)), moved({"y": y})["y"]
    for got in (rts_smoother(model, there, method="scan", scan=scan), two_filter_smoother(model, there, scan=scan)):
        close(got.mean.get(), exact.mean)
        close(got.covariance.get(), exact.covariance)
        close(got.log_likelihoods.get(), exact.log_likelihoods)


@pytest.mark.parametrize("options", [{}, {"method": "scan"}, {"method": "scan", "scan": "sengupta"}], ids=str)
def test_the_iterated_smoother(options):
    model = radar()
    y = with_gaps(simulated(model, 60))
    start = np.nan_to_num(np.stack([y[:, 0], 0.0 * y[:, 0], 0.0 * y[:, 0], 0.0 * y[:, 0]], -1), nan=6.0) + 1.0
    expected = iterated_smoother(model, y, x0=start)
    parts = moved({name: getattr(model.linear, name) for name in ("Q", "R", "m0", "P0")})
    arrays = moved({"y": y, "x0": start})
    got = iterated_smoother(NonlinearGaussianModel(model.f, model.h, **parts), arrays["y"], x0=arrays["x0"], **options)
    assert bool(got.converged) == bool(expected.converged)
    close(got.mean.get(), expected.mean, 1e-6)
    close(got.covariance.get(), expected.covariance, 1e-6)
