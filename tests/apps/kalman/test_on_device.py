"""What is composed of the kernels and of Array API code, on a CUDA device."""

import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    NonlinearGaussianModel,
    iterated_smoother,
    kalman_filter,
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


@pytest.mark.parametrize("scan", ["chunked", "blelloch"])
def test_scans_of_singular_models_answer_or_say_so(scan):
    """The compiled scan gives NaN and tells; the others take the recursion."""
    parts, y = random_parts(600, 3, 1)
    parts["H"] = np.zeros_like(parts["H"]) + np.array([1.0, 0.0, 0.0])
    parts["Q"][:, 0, :] = parts["Q"][:, :, 0] = parts["R"][:] = 0.0
    exact = kalman_filter(LinearGaussianModel(**parts), y)
    model = LinearGaussianModel(**moved(parts))
    got = kalman_filter(model, moved({"y": y})["y"], method="scan", scan=scan)
    if scan == "chunked":
        assert bool(got.failed)
        got = kalman_filter(model, moved({"y": y})["y"], method="sequential")
    assert not bool(got.failed)
    close(got.mean.get(), exact.mean)


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
