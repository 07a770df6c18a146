"""What is composed of the kernels and of Array API code, on a CUDA device."""

import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    NonlinearGaussianModel,
    Sengupta,
    iterated_smoother,
    log_likelihood,
    rts_smoother,
    two_filter_smoother,
)
from ensemble.scalar import Ensemble
from tests.apps.kalman import statsmodels_models
from tests.apps.kalman.models import car, close, errors, radar, random_parts, simulated, with_gaps

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


def samples_last(a, array_type=np.asarray):
    return Ensemble(array_type(np.ascontiguousarray(np.moveaxis(a, 0, -1))))


@pytest.mark.parametrize("one_model", [True, False])
@pytest.mark.parametrize("size", [(2, 1), (4, 2), (9, 1), (10, 2)], ids=str)
@pytest.mark.parametrize("name", SMOOTHERS)
def test_ensembles_have_the_results_of_the_host(name, size, one_model):
    cupy = pytest.importorskip("cupy")
    parts, y = random_parts(30, *size, batch=(5,))
    y = y if one_model else with_gaps(y)
    models = []
    for array_type in (np.asarray, cupy.asarray):
        own = {n: array_type(a[0]) if one_model else samples_last(a, array_type) for n, a in parts.items()}
        models.append(LinearGaussianModel(**own))
    host = SMOOTHERS[name](models[0], samples_last(y))
    got = SMOOTHERS[name](models[1], samples_last(y, cupy.asarray))
    for attribute in ("mean", "covariance", "log_likelihood"):
        there = getattr(got, attribute).samples
        assert isinstance(there, cupy.ndarray)
        close(there.get(), np.broadcast_to(getattr(host, attribute).samples, there.shape), 1e-8)
    one = log_likelihood(models[1], samples_last(y, cupy.asarray)).samples.get()
    close(one, host.log_likelihood.samples, 1e-8)


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
@pytest.mark.parametrize(
    "scan", ["hillis_steele", "blelloch", "ladner_fischer", "sengupta", Sengupta(20), "sequential"], ids=str
)
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


SAMPLED = [
    (1, 1),
    (3, 2),
    (4, 4),
    (5, 1),
    (1, 5),
    (6, 2),
    (6, 6),
    (2, 6),
    (7, 5),
    (5, 8),
    (9, 2),
    (16, 3),
    (3, 16),
    (20, 2),
]


def check_every_method(T, nx, ny, dtype, tolerance):
    wide, y = random_parts(T, nx, ny)
    y = with_gaps(y)
    exact = rts_smoother(LinearGaussianModel(**wide), y, method="scan")
    parts, y = {name: a.astype(dtype) for name, a in wide.items()}, y.astype(dtype)
    model, there = LinearGaussianModel(**moved(parts)), moved({"y": y})["y"]
    for got in (
        rts_smoother(model, there),
        rts_smoother(model, there, method="sequential"),
        two_filter_smoother(model, there),
    ):
        close(got.mean.get(), exact.mean, tolerance)
        close(got.covariance.get(), exact.covariance, tolerance)
        close(got.filtered.mean.get(), exact.filtered.mean, tolerance)
        close(got.filtered.covariance.get(), exact.filtered.covariance, tolerance)
        close(got.log_likelihoods.get(), exact.log_likelihoods, tolerance)


@pytest.mark.parametrize("T", [1, 2, 9, 300])
@pytest.mark.parametrize("nx, ny", SAMPLED)
def test_sizes_beyond_registers(nx, ny, T):
    """Whole chunks, a short one at the end, a single step."""
    check_every_method(T, nx, ny, np.float64, 1e-9)


@pytest.mark.parametrize("nx, ny", SAMPLED)
def test_sizes_in_float32(nx, ny):
    check_every_method(300, nx, ny, np.float32, 1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 1e-2)])
@pytest.mark.parametrize("ny", range(1, 17))
@pytest.mark.parametrize("nx", range(1, 17))
def test_every_size(nx, ny, dtype, tolerance):
    check_every_method(301, nx, ny, np.dtype(dtype), tolerance)


@pytest.mark.parametrize("name", [name for name in statsmodels_models.MODELS if "diffuse" not in name])
def test_models_of_statsmodels(name):
    """Wide priors, no noise in observations, noise of low rank: on the device as on the CPU."""
    model, params, _ = statsmodels_models.at_start(name)
    ours, y = LinearGaussianModel.from_statsmodels(model, params), statsmodels_models.observations(model)
    parts = {part: np.asarray(getattr(ours, part)) for part in ("F", "Q", "H", "R", "m0", "P0", "u", "d")}
    there = LinearGaussianModel(**moved(parts), prior_at=ours.prior_at)
    exact = rts_smoother(ours, y)
    seen = moved({"y": y})["y"]
    for got in (rts_smoother(there, seen), rts_smoother(there, seen, method="scan"), two_filter_smoother(there, seen)):
        assert not bool(got.failed.any())
        close(got.mean.get(), exact.mean, 1e-6)
        close(got.log_likelihood.get(), exact.log_likelihood, 1e-9)
