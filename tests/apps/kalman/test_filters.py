"""Filters and smoothers against plain conditioning of Gaussians, and against one another."""

import math

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble._kernels.kalman.scan import SCANS
from ensemble._kernels.kalman.sums import sum_steps
from ensemble.apps.kalman import (
    LinearGaussianModel,
    kalman_filter,
    rts_smoother,
    sample_posterior,
    two_filter_smoother,
)
from ensemble.scalar import Ensemble
from tests.apps.kalman.models import LENGTHS, SIZES, close, conditioned, random_parts, with_gaps

PRIORS = ["before", "first_observation"]

FILTERS = {
    "recursion": {"method": "sequential"},
    "square_root": {"form": "square_root"},
    **{scan: {"method": "scan", "scan": scan} for scan in SCANS},
}

SMOOTHERS = {
    "recursion": lambda *a: rts_smoother(*a, method="sequential"),
    "square_root": lambda *a: rts_smoother(*a, form="square_root"),
    **{f"rts-{s}": lambda *a, s=s: rts_smoother(*a, method="scan", scan=s) for s in SCANS},
    **{f"two-{s}": lambda *a, s=s: two_filter_smoother(*a, scan=s) for s in SCANS},
}


def singular(parts):
    """Noise of rank one, and a prior known exactly."""
    X = parts["Q"][..., :1]
    return {**parts, "Q": X @ X.mT, "P0": np.zeros_like(parts["P0"])}


KINDS = {
    "full": lambda parts, y: (parts, y),
    "gaps": lambda parts, y: (parts, with_gaps(y)),
    "all_missing": lambda parts, y: (parts, np.full_like(y, np.nan)),
    "singular": lambda parts, y: (singular(parts), y),
    "no_noise": lambda parts, y: ({**parts, "Q": 0.0 * parts["Q"], "P0": 0.0 * parts["P0"]}, y),
    "blind_row": lambda parts, y: ({**parts, "H": np.concatenate([0 * parts["H"][:, :1], parts["H"][:, 1:]], 1)}, y),
}


@pytest.mark.parametrize("prior_at", PRIORS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", FILTERS)
def test_filter_is_conditioning_on_the_past(name, size, kind, prior_at):
    parts, y = KINDS[kind](*random_parts(7, *size))
    result = kalman_filter(LinearGaussianModel(**parts, prior_at=prior_at), y, **FILTERS[name])
    before = 0.0
    for k in range(7):
        mean, covariance, log_density = conditioned(parts, y, k, prior_at)
        close(result.mean[k], mean[k])
        close(result.covariance[k], covariance[k])
        close(result.log_likelihoods[k], log_density - before)
        before = log_density
    close(result.log_likelihood, before)


@pytest.mark.parametrize("prior_at", PRIORS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", SMOOTHERS)
def test_smoother_is_conditioning_on_everything(name, size, kind, prior_at):
    parts, y = KINDS[kind](*random_parts(6, *size))
    result = SMOOTHERS[name](LinearGaussianModel(**parts, prior_at=prior_at), y)
    mean, covariance, log_density = conditioned(parts, y, prior_at=prior_at)
    close(result.mean, mean)
    close(result.covariance, covariance)
    close(result.log_likelihood, log_density)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(9, 2), (2, 9), (12, 5)], ids=str)
def test_models_too_large_to_write_out_are_conditioned_too(size, kind):
    parts, y = KINDS[kind](*random_parts(6, *size))
    result = rts_smoother(LinearGaussianModel(**parts), y)
    mean, covariance, log_density = conditioned(parts, y)
    close(result.mean, mean)
    close(result.covariance, covariance)
    close(result.log_likelihood, log_density)


@pytest.mark.parametrize("kind", ["gaps", "singular"])
@pytest.mark.parametrize("T", [*LENGTHS, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(SCANS))
def test_every_scan_is_the_sequential_filter(name, T, kind):
    if name == "sequential" and T > 5000:
        pytest.skip("a scan one by one, 100,000 times")
    parts, y = KINDS[kind](*random_parts(T, 4, 2))
    model = LinearGaussianModel(**parts)
    expected, got = kalman_filter(model, y), kalman_filter(model, y, **FILTERS[name])
    smooth = rts_smoother(model, y)
    parallel, met = rts_smoother(model, y, **FILTERS[name]), two_filter_smoother(model, y, scan=name)
    for a, b in ((got, expected), (parallel, smooth), (met, smooth)):
        close(a.mean, b.mean)
        close(a.covariance, b.covariance)
        close(a.log_likelihoods, b.log_likelihoods)


@pytest.mark.parametrize("scan", sorted(SCANS))
def test_float32_scans_stay_near_float64(scan):
    """Within the best of the known errors of the scan in float32 on the random model: 3.5e-4 of a deviation."""
    parts, y = random_parts(1000, 4, 2)
    narrow = {name: a.astype(np.float32) for name, a in parts.items()}
    wide = {name: a.astype(np.float64) for name, a in narrow.items()}
    y = y.astype(np.float32)
    expected = kalman_filter(LinearGaussianModel(**wide), y.astype(np.float64))
    got = kalman_filter(LinearGaussianModel(**narrow), y, method="scan", scan=scan)
    assert got.mean.dtype == np.float32
    deviation = np.sqrt(np.einsum("kii->ki", expected.covariance))
    assert np.max(np.abs(got.mean - expected.mean) / deviation) < 3.5e-4
    assert np.max(np.abs(got.covariance - expected.covariance)) < 2e-5 * np.max(expected.covariance)


@pytest.mark.parametrize("name", ["recursion", "square_root", "chunked"])
def test_runs_on_array_api_strict(name):
    parts, y = random_parts(5, 3, 2)
    y = with_gaps(y)
    xp = array_api_strict
    strict = LinearGaussianModel(**{k: xp.asarray(a) for k, a in parts.items()})
    got = rts_smoother(strict, xp.asarray(y), **FILTERS[name])
    close(np.asarray(got.mean), rts_smoother(LinearGaussianModel(**parts), y).mean)
    met = two_filter_smoother(strict, xp.asarray(y))
    close(np.asarray(met.covariance), rts_smoother(LinearGaussianModel(**parts), y).covariance)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the sample that overflows
@given(
    S=st.integers(1, 11),
    T=st.integers(1, 12),
    size=st.sampled_from([(2, 1), (1, 2), (4, 2), (9, 2), (9, 1)]),
    seed=st.integers(0, 999),
)
def test_a_sample_sees_only_itself(S, T, size, seed):
    """Sample i of an Ensemble, series i of a batch and series i alone: the same bits; a NaN stays where it is."""
    parts, y = random_parts(T, *size, seed, batch=(S,))
    y = with_gaps(y, seed)
    parts["F"][-1] *= 1e200  # overflows: this sample ends in NaN
    batch = rts_smoother(LinearGaussianModel(**parts), y)
    last = {name: Ensemble(np.ascontiguousarray(np.moveaxis(a, 0, -1))) for name, a in parts.items()}
    lifted = rts_smoother(LinearGaussianModel(**last), Ensemble(np.ascontiguousarray(np.moveaxis(y, 0, -1))))
    for i in range(S):
        one = rts_smoother(LinearGaussianModel(**{name: a[i] for name, a in parts.items()}), y[i])
        for attribute in ("mean", "covariance", "log_likelihoods", "log_likelihood"):
            alone = getattr(one, attribute)
            np.testing.assert_array_equal(getattr(batch, attribute)[i], alone)
            np.testing.assert_array_equal(getattr(lifted, attribute).sample(i), alone)
        if i < S - 1:
            assert np.isfinite(one.mean).all()


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("prior_at", PRIORS)
@pytest.mark.parametrize("size", [(2, 1), (4, 2), (9, 1), (12, 2), (3, 9), (17, 5)], ids=str)
def test_one_model_for_all_series_changes_no_bit(size, prior_at, gap):
    """Series of one model share a covariance recursion unless one of them has a gap; none can tell."""
    n_series = 6 if max(size) <= 8 else 11
    parts, _ = random_parts(9, *size)
    if size[0] == 12:  # constant: its covariances may converge
        parts = {name: a[0] if name in "FQHR" else a for name, a in parts.items()}
    y = np.random.default_rng(73).standard_normal((n_series, 9, size[1]))
    y[0, 3, 0] = np.nan if gap else y[0, 3, 0]
    model = LinearGaussianModel(**parts, prior_at=prior_at)
    batch, lifted = rts_smoother(model, y), rts_smoother(model, Ensemble(np.ascontiguousarray(np.moveaxis(y, 0, -1))))
    assert lifted.filtered.covariance.is_shared == (not gap)
    for i in range(n_series):
        one = rts_smoother(model, y[i])
        for attribute in ("mean", "covariance", "log_likelihoods", "log_likelihood"):
            np.testing.assert_array_equal(getattr(batch, attribute)[i], getattr(one, attribute))
            np.testing.assert_array_equal(getattr(lifted, attribute).sample(i), getattr(one, attribute))


@pytest.mark.parametrize("T", [1, 7, 8, 511, 513, 1100])
def test_a_sum_over_time_depends_on_its_series_alone(T):
    """Many series, one, and either order in memory, compiled and not: the same bits, and nearly the exact sum."""
    terms = np.random.default_rng(T).standard_normal((T, 70))
    sums = sum_steps(terms)
    np.testing.assert_allclose(sums, [math.fsum(series) for series in terms.T], atol=1e-13 * T)
    np.testing.assert_array_equal(sum_steps(np.asfortranarray(terms)), sums)
    np.testing.assert_array_equal(sum_steps.reference(terms), sums)
    np.testing.assert_array_equal([sum_steps(terms[:, i : i + 1])[0] for i in range(70)], sums)


def test_shared_parts_broadcast():
    """Constants, one entry a step, a constant a series and Ensembles in one model."""
    parts, y = random_parts(6, 2, 1, batch=(3,))
    S = 4
    scale = Ensemble(np.linspace(0.5, 2.0, S))
    mixed = {**parts, "F": parts["F"][0, 0], "H": parts["H"][:, :1], "Q": scale * parts["Q"][0], "m0": np.zeros(2)}
    result = kalman_filter(LinearGaussianModel(**mixed), y)
    assert result.mean.shape == (3, 6, 2) and result.mean.n_samples == S
    for s in range(S):
        full = {**mixed, "Q": scale.sample(s) * parts["Q"][0]}
        for b in range(3):
            one = {n: np.broadcast_to(a, (3, *a.shape[-(1 if n in "ud" or n == "m0" else 2):]))[b]
                   if n in ("m0", "P0") and a.ndim == 1 else a for n, a in full.items()}  # fmt: skip
            one["H"], one["R"], one["d"], one["u"], one["P0"] = (full[n][b] for n in ("H", "R", "d", "u", "P0"))
            one["m0"] = np.zeros(2)
            close(result.mean.sample(s)[b], kalman_filter(LinearGaussianModel(**one), y[b]).mean, 1e-13)


def test_a_mask_is_a_missing_entry():
    parts, y = random_parts(9, 2, 3)
    mask = np.isnan(with_gaps(y))
    model = LinearGaussianModel(**parts)
    np.testing.assert_array_equal(kalman_filter(model, y, mask=mask).mean, kalman_filter(model, with_gaps(y)).mean)
    whole = np.arange(9) % 3 == 0
    gone = np.where(whole[:, None], np.nan, y)
    np.testing.assert_array_equal(kalman_filter(model, y, mask=whole).mean, kalman_filter(model, gone).mean)


def test_square_roots_survive_where_covariances_lose_their_sign():
    """A nearly exact observation of a vague state, in float32."""
    parts = {"F": np.eye(2), "Q": 1e-9 * np.eye(2), "H": [[1.0, 1.0]], "R": [[1e-8]], "m0": [0.0, 0.0],
             "P0": 1e4 * np.eye(2)}  # fmt: skip
    y = np.ones((40, 1))
    model = LinearGaussianModel(**{k: np.asarray(a, np.float32) for k, a in parts.items()})
    exact = kalman_filter(LinearGaussianModel(**parts), y)
    rooted = kalman_filter(model, y.astype(np.float32), form="square_root")
    assert np.min(np.linalg.eigvalsh(rooted.covariance.astype(np.float64))) > -1e-3
    assert np.max(np.abs(rooted.mean - exact.mean)) < 1e-3


@pytest.mark.parametrize("method", ["sequential", "scan"])
def test_draws_have_the_posterior_moments(method):
    parts, y = random_parts(6, 3, 2, batch=(2,))
    model = LinearGaussianModel(**parts)
    draws = sample_posterior(model, y, 40_000, seed=88007, method=method)
    smooth = rts_smoother(model, y)
    deviation = np.sqrt(np.einsum("...ii->...i", smooth.covariance))
    assert draws.shape == (2, 6, 3)
    assert np.max(np.abs(draws.samples.mean(-1) - smooth.mean) / deviation) < 5 / np.sqrt(40_000)
    centred = draws.samples - smooth.mean[..., None]
    np.testing.assert_allclose(np.mean(centred**2, -1) / deviation**2, 1.0, atol=5 * np.sqrt(2 / 40_000))
    # Neighbours in time are drawn together: Cov(x[k], x[k+1] | y) = E[k] P[k+1].
    F, Q = parts["F"][:, 1:], parts["Q"][:, 1:]
    P = smooth.filtered.covariance[:, :-1]
    gain = np.linalg.solve(F @ P @ F.mT + Q, F @ P).mT
    lag = np.mean(centred[:, :-1, :, None] * centred[:, 1:, None, :], -1)
    scale = deviation[:, :-1, :, None] * deviation[:, 1:, None, :]
    assert np.max(np.abs(lag - gain @ smooth.covariance[:, 1:]) / scale) < 5 * np.sqrt(2 / 40_000)


def test_draws_with_a_seed_repeat_and_refuse_ensembles():
    parts, y = random_parts(4, 3, 2)
    model = LinearGaussianModel(**parts)
    a, b = (sample_posterior(model, y, 3, seed=5, method=m) for m in ("sequential", "scan"))
    close(a.samples, b.samples, 1e-12)
    with pytest.raises(TypeError, match="hold plain arrays"):
        sample_posterior(model, Ensemble(np.stack([y, y], -1)), 3)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"method": "fast"}, "method must be one of"),
        ({"scan": "fast"}, "scan must be one of"),
        ({"form": "cubic"}, "form must be one of"),
        ({"form": "square_root", "method": "scan"}, "form must be 'covariance'"),
        ({"mask": np.zeros((2, 2), bool)}, "mask must have the shape of y"),
        ({"mask": np.zeros((4, 1))}, "mask must hold bools"),
        ({"y": np.zeros((4, 2))}, r"y must have shape \(..., 4, 1\)"),
        ({"y": np.zeros((5, 1))}, "y must have 4 steps"),
        ({"y": np.zeros((0, 1))}, "y must hold one observation or more"),
    ],
)
def test_bad_calls_are_named(options, match):
    parts, y = random_parts(4, 2, 1)
    y = options.pop("y", y)
    with pytest.raises(ValueError, match=f"kalman_filter: {match}"):
        kalman_filter(LinearGaussianModel(**parts), y, **options)


def test_log_likelihood_is_that_of_statsmodels():
    """The Nile with a local level, and an ARMA-like model with gaps, by another library."""
    statsmodels = pytest.importorskip("statsmodels.api")
    nile = statsmodels.datasets.nile.load_pandas().data["volume"].to_numpy()[:, None]
    nile = np.where(np.arange(len(nile))[:, None] % 17 == 3, np.nan, nile)
    other = statsmodels.tsa.statespace.MLEModel(nile, k_states=1, initialization="known", constant=[0.0],
                                                stationary_cov=[[1e7]])  # fmt: skip
    other["design"], other["transition"], other["selection"] = [[1.0]], [[1.0]], [[1.0]]
    other["obs_cov"], other["state_cov"] = [[15099.0]], [[1469.1]]
    expected = other.ssm.smooth()
    model = LinearGaussianModel(F=[[1.0]], Q=[[1469.1]], H=[[1.0]], R=[[15099.0]], m0=[0.0], P0=[[1e7]],
                                prior_at="first_observation")  # fmt: skip
    result = rts_smoother(model, nile)
    close(result.log_likelihood, expected.llf)
    close(result.log_likelihoods, expected.llf_obs)
    close(result.mean, expected.smoothed_state.T)
    close(result.filtered.mean, expected.filtered_state.T)
    close(result.covariance, np.moveaxis(expected.smoothed_state_cov, -1, 0))


@pytest.mark.parametrize("size", [(2, 1), (4, 2)], ids=str)
def test_a_sample_of_the_square_root_filter_is_its_own_run(size):
    parts, y = random_parts(40, *size, seed=31907)
    samples = np.stack([y, with_gaps(y), 3.0 * y], axis=-1)
    parts["Q"] = Ensemble(np.stack([parts["Q"], 2.0 * parts["Q"], 0.1 * parts["Q"]], axis=-1))
    together = kalman_filter(LinearGaussianModel(**parts), Ensemble(samples), form="square_root")
    for i in range(3):
        own = {**parts, "Q": np.ascontiguousarray(parts["Q"].samples[..., i])}
        alone = kalman_filter(LinearGaussianModel(**own), samples[..., i], form="square_root")
        np.testing.assert_array_equal(together.mean.samples[..., i], alone.mean)
        np.testing.assert_array_equal(together.covariance.samples[..., i], alone.covariance)
        np.testing.assert_array_equal(together.log_likelihoods.samples[..., i], alone.log_likelihoods)
