"""States without noises, seen without noise: once they are known there is no density; before, there is one."""

import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    OnlineFilter,
    extended_kalman_filter,
    extended_kalman_smoother,
    kalman_filter,
    log_likelihood,
    rts_smoother,
    two_filter_smoother,
    unscented_kalman_filter,
)
from ensemble.apps.kalman.array import exact_rank
from ensemble.scalar import Ensemble
from tests.apps.kalman.digits import in_many_digits
from tests.apps.kalman.models import as_nonlinear
from tests.conftest import examples

LINEAR = {
    "recursion": kalman_filter,
    "square root": lambda m, y: kalman_filter(m, y, form="square_root"),
    "scan": lambda m, y: kalman_filter(m, y, method="scan"),
    "smoother": rts_smoother,
    "two filters": two_filter_smoother,
}
NONLINEAR = {
    "extended": extended_kalman_filter,
    "extended smoother": extended_kalman_smoother,
    "unscented": unscented_kalman_filter,
}


def mixtures(seed, extra=3, ny=1):
    """Random dynamics without noise, in units of their own, of which mixtures are seen exactly; `extra` times more."""
    rng = np.random.default_rng(seed)
    nx = 2 + seed % 4
    units = 10.0 ** rng.uniform(-5, 5, nx) if seed % 3 == 0 else np.full(nx, 10.0 ** rng.uniform(-4, 4))
    F, H = rng.standard_normal((nx, nx)) / np.sqrt(nx), rng.standard_normal((ny, nx))
    parts = {"F": units[:, None] * F / units, "Q": np.zeros((nx, nx)), "H": H / units, "R": np.zeros((ny, ny)),
             "m0": units * rng.standard_normal(nx), "P0": np.diag(units**2)}  # fmt: skip
    x, y = parts["m0"] + units * rng.standard_normal(nx), []
    for _ in range(-(-nx // ny) + extra):
        x = parts["F"] @ x
        y.append(parts["H"] @ x)
    return parts, np.array(y)


@pytest.mark.parametrize("name", [*LINEAR, *NONLINEAR])
def test_mixtures_of_states_that_are_known_have_no_density(name):
    for seed in range(30 if name in LINEAR else 6):
        parts, y = mixtures(seed, ny=1 + seed % 2)
        if name in LINEAR:
            model = LinearGaussianModel(**parts)
            got = LINEAR[name](model, y)
            assert not np.isfinite(log_likelihood(model, y)), seed
        else:
            got = NONLINEAR[name](as_nonlinear(parts, len(y)), y)
        assert bool(got.failed), seed


def test_what_is_not_known_yet_keeps_its_density_and_its_bits():
    """Up to the last state; with a gap one step later."""
    for seed in range(30):
        parts, y = mixtures(seed, extra=3)
        nx = len(parts["m0"])
        model, all_of_it = LinearGaussianModel(**parts), kalman_filter(LinearGaussianModel(**parts), y)
        assert np.all(np.isnan(all_of_it.log_likelihoods[nx:]))
        start = kalman_filter(model, y[: nx - 1])
        terms = in_many_digits(parts, y[: nx - 1], "before")[4].astype(float)
        assert not bool(start.failed), seed
        np.testing.assert_allclose(start.log_likelihoods, terms, rtol=1e-5, atol=1e-5)
        gaps = y[:nx].copy()
        gaps[0] = np.nan
        assert np.isfinite(kalman_filter(model, gaps).log_likelihood), seed


def test_samples_and_series_are_counted_apart():
    parts, y = mixtures(5)
    R, Q = np.array([0.0, 1e-2, 0.0, 1.0]), np.array([0.0, 0.0, 1.0, 0.0])
    nx = len(parts["m0"])
    model = LinearGaussianModel(**{**parts, "R": Ensemble(R) * np.eye(1), "Q": Ensemble(Q) * np.eye(nx)})
    for run in (kalman_filter, rts_smoother, two_filter_smoother):
        together = run(model, y)
        assert together.failed.samples.tolist() == [True, False, False, False]
        for i in range(4):
            alone = run(LinearGaussianModel(**{**parts, "R": R[i] * np.eye(1), "Q": Q[i] * np.eye(nx)}), y)
            rounding = 1e-9 if run is two_filter_smoother else 0.0
            np.testing.assert_allclose(together.mean.sample(i), alone.mean, rtol=rounding)
            np.testing.assert_allclose(together.log_likelihood.sample(i), alone.log_likelihood, rtol=rounding)
    lots = np.stack([y, np.where(np.arange(len(y))[:, None] < nx - 1, y, np.nan)])
    got = kalman_filter(LinearGaussianModel(**parts), lots)
    assert got.failed.tolist() == [True, False]
    found = kalman_filter(LinearGaussianModel(**parts), Ensemble(np.moveaxis(lots, 0, -1)))
    assert found.failed.samples.tolist() == [True, False]


@pytest.mark.parametrize("samples", [False, True])
def test_one_observation_at_a_time_is_counted_as_the_filter_counts(samples):
    for seed in range(examples(12)):
        parts, y = mixtures(seed, ny=1 + seed % 2)
        noise = Ensemble(np.array([0.0, 1e-2, 0.0])) if samples else 0.0
        model = LinearGaussianModel(**{**parts, "R": noise * np.eye(y.shape[1])})
        online, right = OnlineFilter(model), kalman_filter(model, y)
        for k, row in enumerate(y):
            if k % 2:
                online.step(row)
            else:
                online.predict()
                online.update(row)
            found, known = online.log_likelihood, right.log_likelihoods
            if samples:
                assert np.isfinite(found.samples).tolist() == np.isfinite(known.samples[k]).tolist(), (seed, k)
                assert np.isnan(online.mean.samples[:, 0]).all() == np.isnan(found.sample(0))
            else:
                assert bool(np.isfinite(found)) == bool(np.isfinite(known[k])), (seed, k)


@pytest.mark.parametrize("diffuse", [False, True])
def test_noises_of_the_state_and_of_other_entries_are_no_failure(diffuse):
    """As many noises as exact entries; exact entries for some steps only; a diffuse state that is seen exactly."""
    rng = np.random.default_rng(4)
    parts, _ = mixtures(7, ny=2)
    nx, T = len(parts["m0"]), 20
    y = rng.standard_normal((T, 2))
    free = {"diffuse": np.arange(nx) < 2, "P0": np.diag(np.arange(nx) >= 2).astype(float)} if diffuse else {}
    unit = {**parts, "F": 0.5 * np.eye(nx), "H": rng.standard_normal((2, nx)), "P0": np.eye(nx), **free}
    seen = np.where(np.arange(T) == 0, 0.0, 0.1)[:, None, None] * np.eye(2)
    for change in ({"Q": np.eye(nx)}, {"Q": np.diag([0.0] * (nx - 2) + [1.0, 1.0])}, {"R": seen}):
        assert not bool(kalman_filter(LinearGaussianModel(**{**unit, **change}), y).failed), change
    none = kalman_filter(LinearGaussianModel(**unit), y)
    assert bool(none.failed)


def test_exact_entries_are_looked_for_once_for_each_model(monkeypatch):
    """On a device the question whether a variance is zero waits for all that was queued."""
    parts, y = mixtures(1)
    exact, noisy = (LinearGaussianModel(**parts | {"R": r * np.eye(1)}) for r in (0.0, parts["P0"].max()))
    assert bool(kalman_filter(exact, y).failed)
    monkeypatch.setattr(exact_rank, "to_numpy", None)
    monkeypatch.setattr(exact_rank, "_diagonal", None)
    for run in (*LINEAR.values(), log_likelihood):
        found = run(noisy, y)
        assert np.isfinite(found if run is log_likelihood else found.mean).all()


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["scan", "recursion", "smoother", "two filters"])
def test_mixtures_of_states_that_are_known_have_no_density_on_a_device(name):
    cupy = pytest.importorskip("cupy")
    for seed in range(8):
        parts, y = mixtures(seed, ny=1 + seed % 2)
        there = {part: cupy.asarray(a) for part, a in parts.items()}
        assert bool(LINEAR[name](LinearGaussianModel(**there), cupy.asarray(y)).failed), seed
        few = y[: parts["F"].shape[0] // y.shape[1]]
        host = LINEAR[name](LinearGaussianModel(**parts), few)
        got = LINEAR[name](LinearGaussianModel(**there), cupy.asarray(few))
        assert bool(got.failed) == bool(host.failed), seed
