"""Every method and every scan against the textbook's recursions: lengths, sizes, singular models, missing data."""

import functools

import numpy as np
import pytest

from ensemble._kernels.kalman.scan import SCANS
from ensemble.apps.kalman import LinearGaussianModel, rts_smoother, two_filter_smoother
from tests.apps.kalman.models import car, close, random_parts, sequentially, with_gaps

SMOOTHERS = {
    "recursion": lambda *a, **o: rts_smoother(*a, method="sequential", **o),
    "square_root": lambda *a, **o: rts_smoother(*a, form="square_root", **o),
    **{f"rts-{s}": lambda *a, s=s, **o: rts_smoother(*a, method="scan", scan=s, **o) for s in SCANS},
    **{f"two-{s}": lambda *a, s=s, **o: two_filter_smoother(*a, scan=s, **o) for s in SCANS},
}

QUICK = [name for name in SMOOTHERS if "sequential" not in name and name != "square_root"]
"""Those that do not go step after step in Python."""


def exact_start(parts):
    return {**parts, "P0": np.zeros_like(parts["P0"])}


def rank_one(parts):
    return {**parts, "Q": parts["Q"][..., :1] @ parts["Q"][..., :1].mT}


KINDS = {
    "full": lambda parts, y: (parts, y),
    "gaps": lambda parts, y: (parts, with_gaps(y)),
    "all_missing": lambda parts, y: (parts, np.full_like(y, np.nan)),
    "singular": lambda parts, y: (rank_one(exact_start(parts)), with_gaps(y)),
    "no_noise": lambda parts, y: ({**exact_start(parts), "Q": 0.0 * parts["Q"]}, y),
}

ALL_SIZES = [(nx, ny) for nx in range(1, 9) for ny in (1, 2, 3)]


@functools.lru_cache(maxsize=2)
def case(T, nx, ny, kind):
    parts, y = KINDS[kind](*random_parts(T, nx, ny, seed=1000 * nx + 100 * ny + T))
    return LinearGaussianModel(**parts), y, sequentially(parts, y)


def check(name, T, size, kind):
    model, y, (means, covariances, smooth, spread, terms) = case(T, *size, kind)
    got = SMOOTHERS[name](model, y)
    close(got.filtered.mean, means)
    close(got.filtered.covariance, covariances)
    close(got.mean, smooth)
    close(got.covariance, spread)
    close(got.log_likelihoods, terms)
    close(got.log_likelihood, terms.sum())


@pytest.mark.parametrize("name", SMOOTHERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("T", [1, 2, 3])
def test_the_shortest_series(name, kind, size, T):
    check(name, T, size, kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTHERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", ALL_SIZES, ids=str)
@pytest.mark.parametrize("T", [1, 2, 3, 7])
def test_short_series_of_every_size(name, kind, size, T):
    check(name, T, size, kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTHERS)
@pytest.mark.parametrize("size", ALL_SIZES, ids=str)
def test_a_thousand_steps_of_every_size(name, size):
    check(name, 1000, size, "gaps")


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTHERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (4, 2), (8, 3)], ids=str)
@pytest.mark.parametrize("T", [1000, 4097])
def test_thousands_of_steps_of_every_kind(name, kind, size, T):
    check(name, T, size, kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_thousand_steps_of_every_kind(name, kind):
    check(name, 100_000, (4, 2), kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(SMOOTHERS) - set(QUICK)))
def test_a_hundred_thousand_steps_one_by_one(name):
    check(name, 100_000, (4, 2), "gaps")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (3, 1), (5, 2), (8, 3)], ids=str)
def test_a_hundred_thousand_steps_of_many_sizes(name, size):
    check(name, 100_000, size, "gaps")


def scaled(T, q, r, seed=60913):
    """The random model of Särkkä and García-Fernández with its noises scaled, and observations of it."""
    parts, y = random_parts(T, 4, 2, seed)
    rng = np.random.default_rng(seed + 1)
    parts["Q"], parts["R"] = q * parts["Q"], r * (parts["R"] - 0.05 * np.eye(2))
    roots = np.linalg.cholesky(parts["Q"]), np.linalg.cholesky(parts["R"])
    x = rng.multivariate_normal(parts["m0"], parts["P0"])
    for k in range(T):
        x = parts["F"][k] @ x + parts["u"][k] + roots[0][k] @ rng.standard_normal(4)
        y[k] = parts["H"][k] @ x + parts["d"][k] + roots[1][k] @ rng.standard_normal(2)
    narrow = {name: a.astype(np.float32) for name, a in parts.items()}
    return narrow, {name: a.astype(np.float64) for name, a in narrow.items()}, y


ROWS = {
    "random": (lambda: scaled(20_000, 1.0, 1.0), 1.0e-4),
    "small Q": (lambda: scaled(20_000, 1e-4, 1.0), 2.3e-4),
    "small R": (lambda: scaled(20_000, 1.0, 1e-6), 1.2e-3),
    "car": (lambda: car(20_000, 1.0, 0.25), 4.9e-2),
    "calm car": (lambda: car(20_000, 1e-4, 1.0), 7e-3),
    "sharp car": (lambda: car(20_000, 1.0, 1e-6), 4.0),
}
"""Models of the float32 study, and the error of the filter's mean, in posterior deviations, of its best method."""


@functools.lru_cache(maxsize=1)
def single(row):
    narrow, wide, y = ROWS[row][0]()
    y = y.astype(np.float32)
    return LinearGaussianModel(**narrow), y, rts_smoother(LinearGaussianModel(**wide), y.astype(np.float64))


def error(got, exact):
    return np.max(np.abs(got.mean - exact.mean) / np.sqrt(np.einsum("kii->ki", exact.covariance)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, "square_root"])
@pytest.mark.parametrize("row", ROWS)
def test_float32_with_wide_means_is_as_good_as_the_best(name, row, request):
    if (name, row) == ("square_root", "small Q"):  # the square-root form is not the study's best method
        request.applymarker(pytest.mark.xfail(strict=True, reason="3.7e-4 posterior deviations, 2.3e-4 asked for"))
    model, y, exact = single(row)
    got = SMOOTHERS[name](model, y, mean_dtype="float64")
    assert error(got.filtered, exact.filtered) <= ROWS[row][1]
