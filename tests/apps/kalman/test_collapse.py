"""More observations than states: fewer that say the same, against the joint density, and per series."""

import numpy as np
import pytest

from ensemble.apps.kalman import LinearGaussianModel, kalman_filter, log_likelihood, rts_smoother
from ensemble.apps.kalman.devices import collapsed
from ensemble.scalar import Ensemble
from tests.apps.kalman.joint import Joint

NX, NY, T, N = 2, 9, 6, 5


def parts_of(nx=NX, ny=NY, steps=(), seed=5):
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((nx, nx)), rng.standard_normal((*steps, ny, ny))
    return {"F": 0.9 * np.linalg.qr(rng.standard_normal((nx, nx)))[0], "Q": X @ X.T, "m0": rng.standard_normal(nx),
            "H": rng.standard_normal((*steps, ny, nx)), "R": W @ W.mT + np.eye(ny), "P0": np.eye(nx),
            "u": rng.standard_normal(nx), "d": rng.standard_normal(ny)}  # fmt: skip


def data(gaps="none", ny=NY, n=None):
    y = np.random.default_rng(6).standard_normal((T, ny) if n is None else (n, T, ny))
    if gaps in ("steps", "both"):
        y[..., [0, 3], :] = np.nan
    if gaps in ("entries", "both"):
        y[..., 1, ::2] = y[..., 2, 1:] = np.nan  # the last has fewer entries than there are states
    return y


@pytest.fixture
def apart(monkeypatch):
    """A function that runs without collapsing."""

    def run(function):
        with monkeypatch.context() as changed:
            changed.setattr(collapsed, "FACTOR", 10**9)
            return function()

    return run


def in_time(parts):
    return {name: a if name in ("m0", "P0") else np.broadcast_to(a, (T, *a.shape[-(1 if name in "ud" else 2) :]))
            if a.ndim == (1 if name in "ud" else 2) else a for name, a in parts.items()}  # fmt: skip


KINDS = {
    "full noise": lambda parts: parts,
    "diagonal noise": lambda parts: {**parts, "R": np.diag(np.linspace(0.5, 2.0, NY))},
    "varying": lambda parts: parts_of(steps=(T,)),
    "dependent columns": lambda parts: {**parts, "H": parts["H"][:, [0, 0]]},
    "states not seen": lambda parts: {**parts, "H": 0.0 * parts["H"]},
    "one row alone": lambda parts: {**parts, "H": np.eye(NY)[:, [4, 4]]},
}


@pytest.mark.parametrize("gaps", ["none", "steps", "entries", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_collapsed_is_the_joint_gaussian(kind, gaps, apart):
    parts, y = KINDS[kind](parts_of()), data(gaps)
    model = LinearGaussianModel(**parts)
    found, other = rts_smoother(model, y), apart(lambda: rts_smoother(model, y))
    mean, covariance, *_, density = Joint(in_time(parts)).given(y)
    np.testing.assert_allclose(found.mean, mean, atol=1e-12)
    np.testing.assert_allclose(found.covariance, covariance[np.arange(T), :, np.arange(T)], atol=1e-12)
    np.testing.assert_allclose(found.log_likelihood, density, rtol=1e-12)
    np.testing.assert_allclose(found.log_likelihoods, other.log_likelihoods, atol=1e-12)
    assert log_likelihood(model, y) == found.log_likelihood
    assert found.filtered.by_roots is None
    for name in ("innovation", "innovation_covariance", "gain", "predicted_mean"):  # of all observations
        ours, theirs = getattr(found.filtered, name), getattr(other.filtered, name)
        np.testing.assert_allclose(ours, theirs, atol=1e-11)


def mixtures():
    """Models of five series that differ in what collapsing asks: exact entries, gaps, noises close to singular."""
    parts, y = parts_of(), data(n=N)
    y[1, 2, 3:] = y[2, 4] = np.nan
    R = np.repeat(parts["R"][None], N, axis=0)
    R[3, 0] = R[3, :, 0] = 0.0  # seen exactly
    B = np.random.default_rng(2).standard_normal((NY, 3))
    R[4] = B @ B.T + 1e-13 * np.eye(NY)
    scales = np.linspace(1.0, 2.0, N)[:, None, None]
    yield "data", parts, {}, y
    yield "noises", parts, {"R": R}, y
    yield "rows", parts, {"H": scales * parts["H"]}, y
    yield (
        "moves",
        parts,
        {"Q": scales * parts["Q"], "d": np.repeat(parts["d"][None], N, axis=0)},
        np.repeat(y[1:2], N, axis=0),
    )
    moving = data(n=N)
    moving[1, [0, 3]] = np.nan
    yield "varying", parts_of(steps=(T,)), {"m0": np.repeat(parts["m0"][None], N, axis=0)}, moving
    large = parts_of(9, 20)
    wide = data(n=N, ny=20)
    wide[1, 2, 3:] = np.nan
    yield "nine states", large, {"Q": scales * large["Q"]}, wide


@pytest.mark.parametrize("case", list(mixtures()), ids=lambda case: case[0])
def test_each_series_has_the_bits_that_it_has_alone(case):
    _, parts, own, y = case
    behind = lambda a: Ensemble(np.ascontiguousarray(np.moveaxis(a, 0, -1)))
    batch = rts_smoother(
        LinearGaussianModel(**{**parts, **{k: a if k == "m0" else a[:, None] for k, a in own.items()}}), y
    )
    lifted = rts_smoother(LinearGaussianModel(**{**parts, **{k: behind(a) for k, a in own.items()}}), behind(y))
    for i in range(N):
        model = LinearGaussianModel(**{**parts, **{k: a[i] for k, a in own.items()}})
        one = rts_smoother(model, y[i])
        for name in ("mean", "covariance", "log_likelihoods", "log_likelihood"):
            np.testing.assert_array_equal(getattr(batch, name)[i], getattr(one, name))
            np.testing.assert_array_equal(getattr(lifted, name).sample(i), getattr(one, name))
        assert bool(batch.failed[i]) == bool(one.failed)
    samples = log_likelihood(LinearGaussianModel(**{**parts, **{k: behind(a) for k, a in own.items()}}), behind(y))
    np.testing.assert_array_equal(samples.samples, batch.log_likelihood)


def test_exact_entries_and_noises_close_to_singular_are_not_collapsed(apart):
    parts = parts_of()
    sharp = np.diag(np.r_[0.0, np.ones(NY - 1)])
    B = np.random.default_rng(2).standard_normal((NY, 3))
    for R in (sharp, B @ B.T + 1e-13 * np.eye(NY)):
        model = LinearGaussianModel(**{**parts, "R": R})
        found, other = kalman_filter(model, data()), apart(lambda m=model: kalman_filter(m, data()))
        for name in ("mean", "covariance", "log_likelihoods"):
            np.testing.assert_array_equal(getattr(found, name), getattr(other, name))
    two = LinearGaussianModel(**{**parts, "R": np.diag(np.r_[0.0, 0.0, np.ones(NY - 2)]), "Q": np.diag([1.0, 0.0]),
                                 "P0": np.zeros((NX, NX))})  # fmt: skip
    assert kalman_filter(two, data()).failed


def test_an_entry_far_away_costs_the_others_no_digits(apart):
    """What the large entry would leave in the others is more than they may lose: that series runs as it is."""
    parts = {**parts_of(), "R": np.eye(NY), "d": np.zeros(NY)}
    parts["H"] = parts["H"].copy()
    parts["H"][0] = 0.0
    y = data()
    y[2, 0] = 1e13
    model = LinearGaussianModel(**parts)
    found, other = kalman_filter(model, y), apart(lambda: kalman_filter(model, y))
    np.testing.assert_array_equal(found.mean, other.mean)
    np.testing.assert_array_equal(found.log_likelihoods, other.log_likelihoods)
    batch = kalman_filter(model, np.stack([y, data(), y]))
    for i, alone in enumerate((found, kalman_filter(model, data()), found)):
        np.testing.assert_array_equal(batch.mean[i], alone.mean)


def test_what_is_no_number_fails_and_is_not_missing():
    y = data()
    y[1, 0] = 1e308
    parts = {**parts_of(), "d": np.full(NY, -1e308)}
    with np.errstate(over="ignore"):
        found = kalman_filter(LinearGaussianModel(**parts), y)
    assert found.failed


def test_float32_and_few_observations_are_as_they_were(apart):
    for parts, y in (({k: a.astype(np.float32) for k, a in parts_of().items()}, data().astype(np.float32)),
                     (parts_of(2, 8), data(ny=8))):  # fmt: skip
        model = LinearGaussianModel(**parts)
        found, other = kalman_filter(model, y), apart(lambda m=model, z=y: kalman_filter(m, z))
        np.testing.assert_array_equal(found.mean, other.mean)
        np.testing.assert_array_equal(found.log_likelihoods, other.log_likelihoods)
