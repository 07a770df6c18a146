"""Online steps of many series and samples in one kernel: the bits of each alone, whatever form model and data have."""

import copy
import pickle

import numpy as np
import pytest

from ensemble.apps.kalman import LinearGaussianModel, OnlineFilter, kalman_filter, rts_smoother
from ensemble.scalar import Ensemble, SampleSet

N, STEPS = 5, 9


def parts_of(nx=3, ny=2, dtype=np.float64):
    rng = np.random.default_rng(8)
    X = rng.standard_normal((nx, nx))
    F, H = 0.9 * np.linalg.qr(rng.standard_normal((nx, nx)))[0], rng.standard_normal((ny, nx))
    parts = {"F": F, "Q": X @ X.T, "H": H, "R": np.eye(ny), "m0": rng.standard_normal(nx), "P0": np.eye(nx),
             "u": rng.standard_normal(nx), "d": rng.standard_normal(ny)}  # fmt: skip
    return {name: a.astype(dtype) for name, a in parts.items()}


def noises(S=True, nx=3, ny=2):
    return 0.2 * np.random.default_rng(9).standard_normal((N, nx, ny))


def observations(ny=2, n=N):
    y = np.random.default_rng(10).standard_normal((STEPS, n, ny))
    y[2, 1, 0] = y[3] = y[5, :, 1] = np.nan
    return y


def last(a):
    """Series in front as samples behind."""
    return Ensemble(np.ascontiguousarray(np.moveaxis(a, 0, -1)))


def cases():
    """Pairs: a model of five series or samples, the models of each, and their observations in both forms."""
    parts, y = parts_of(), observations()
    scales = np.linspace(1.0, 2.0, N)
    Q = scales[:, None, None] * parts["Q"]
    alone = [LinearGaussianModel(**{**parts, "Q": q}) for q in Q]
    yield "samples", LinearGaussianModel(**{**parts, "Q": last(Q)}), alone, [last(z) for z in y], y
    yield "samples, data alike", LinearGaussianModel(**{**parts, "Q": last(Q)}), alone, list(y[:, 0]), y[:, [0] * N]
    yield "batch", LinearGaussianModel(**{**parts, "Q": Q[:, None]}), alone, list(y), y
    same = [LinearGaussianModel(**parts)] * N
    lifted = {**parts, "F": Ensemble(parts["F"][..., None])}
    yield "samples of data", LinearGaussianModel(**lifted), same, [last(z) for z in y], y
    priors = np.repeat(parts["m0"][None], N, axis=0)
    yield "batch of data", LinearGaussianModel(**{**parts, "m0": priors}), same, list(y), y
    S = noises()
    own = [LinearGaussianModel(**{**parts, "S": s}) for s in S]
    yield "correlated samples", LinearGaussianModel(**{**parts, "S": last(S)}), own, [last(z) for z in y], y
    yield "correlated batch", LinearGaussianModel(**{**parts, "S": S[:, None]}), own, list(y), y
    F = np.stack([parts["F"] * (1.0 + 0.1 * k) for k in range(STEPS)])
    d = np.random.default_rng(3).standard_normal((STEPS, 2))
    varying = {**parts, "F": F, "d": d}
    mine = [LinearGaussianModel(**{**varying, "S": s}) for s in S]
    yield "varying", LinearGaussianModel(**{**varying, "S": last(S)}), mine, [last(z) for z in y], y
    large, wide = parts_of(9, 2), 2.0 * np.eye(9)
    big = [LinearGaussianModel(**{**large, "P0": s * wide}) for s in scales]
    yield "nine states", LinearGaussianModel(**{**large, "P0": Ensemble(scales) * wide}), big, [last(z) for z in y], y


def part(a, i):
    return a.sample(i) if isinstance(a, Ensemble) else a[i]


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case[0])
@pytest.mark.parametrize("split", [False, True], ids=["steps", "predictions and updates"])
def test_each_series_online_has_the_bits_of_its_own_filter(case, split):
    _, model, alone, rows, y = case
    together, each = OnlineFilter(model), [OnlineFilter(m) for m in alone]
    for k in range(STEPS):
        for online, row in ((together, rows[k]), *zip(each, y[k], strict=True)):
            if split and k % 2:
                online.predict()
                online.update(row)
            else:
                online.step(row)
        for i, online in enumerate(each):
            for name in ("mean", "covariance"):
                np.testing.assert_array_equal(part(getattr(together, name), i), getattr(online, name))
            assert float(part(together.log_likelihood, i)) == online.log_likelihood


def test_correlated_noises_of_a_batch_with_one_noise_of_the_observations():
    parts, y, S = parts_of(), observations(), noises()
    found = kalman_filter(LinearGaussianModel(**parts, S=S[:, None]), np.moveaxis(y, 1, 0))
    for i in range(N):
        own = kalman_filter(LinearGaussianModel(**parts, S=S[i]), y[:, i])
        np.testing.assert_allclose(found.mean[i], own.mean, rtol=1e-12, atol=1e-12)
        online = OnlineFilter(LinearGaussianModel(**parts, S=S[i]))
        for row in y[:, i]:
            online.step(row)
        np.testing.assert_allclose(online.mean, own.mean[-1], rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(online.log_likelihood, own.log_likelihood, rtol=1e-11)


@pytest.mark.parametrize("case", [c for c in cases() if c[0] in ("samples", "batch", "correlated samples")],
                         ids=lambda case: case[0])  # fmt: skip
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))],
                         ids=["copy", "deepcopy", "pickle"])  # fmt: skip
@pytest.mark.parametrize("alone", [False, True], ids=["together", "alone"])
def test_a_copy_of_a_filter_goes_its_own_way(case, duplicate, alone):
    _, model, own, rows, y = case
    if alone:
        model, rows = own[0], list(y[:, 0])
    values = lambda online: [a.samples if isinstance(a, Ensemble) else np.asarray(a)
                             for a in (online.mean, online.covariance, online.log_likelihood)]  # fmt: skip
    first = OnlineFilter(model)
    for k in range(3):
        first.step(rows[k])
    second, before = duplicate(first), values(first)
    second.step(rows[0])
    second.step(rows[1])
    for a, b in zip(values(first), before, strict=True):
        np.testing.assert_array_equal(a, b)
    first.step(rows[4])
    other = OnlineFilter(model)
    for k in (0, 1, 2, 0, 1):
        other.step(rows[k])
    for a, b in zip(values(second), values(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_samples_that_lose_digits_after_a_copy_take_their_own_steps_again():
    def model(moves):
        return LinearGaussianModel(F=np.eye(2), Q=moves * np.eye(2), H=[[1.0, 1.0]], R=[[1e-6]], m0=np.zeros(2),
                                   P0=1e13 * np.eye(2))  # fmt: skip

    moves = np.linspace(0.0, 1e-8, N)
    together, each = OnlineFilter(model(Ensemble(moves))), [OnlineFilter(model(m)) for m in moves]
    for online in (together, *each):
        online.step([1.0])
        other = copy.copy(online)
        for _ in range(3):
            other.step([5.0])
        for _ in range(4):
            online.step([2.0])
    for i, online in enumerate(each):
        assert np.isfinite(online.log_likelihood)
        np.testing.assert_allclose(together.mean.sample(i), online.mean, rtol=1e-9)
        np.testing.assert_allclose(float(together.log_likelihood.sample(i)), online.log_likelihood, rtol=1e-9)


def test_a_nan_of_one_sample_stays_there():
    parts, y = parts_of(), observations()[:3]
    Q = np.repeat(parts["Q"][..., None], N, axis=-1)
    clean, spoiled = OnlineFilter(LinearGaussianModel(**{**parts, "Q": Ensemble(Q)})), None
    spoiled = copy.copy(clean)
    for z in y:
        clean.step(last(z))
        z = z.copy()
        z[2] = np.nan
        spoiled.step(last(z))
    for i in (0, 1, 3, 4):
        np.testing.assert_array_equal(clean.mean.sample(i), spoiled.mean.sample(i))
        np.testing.assert_array_equal(clean.covariance.sample(i), spoiled.covariance.sample(i))


def test_samples_of_an_observation_must_be_those_of_the_model():
    online = OnlineFilter(LinearGaussianModel(**{**parts_of(), "Q": Ensemble(np.ones(3)) * np.eye(3)}))
    with pytest.raises(ValueError, match="OnlineFilter: y must have 3 samples as the model has; got 4"):
        online.step(Ensemble(np.ones((2, 4))))
    assert online.k == -1
    online.step(Ensemble(np.ones((2, 3))))
    assert online.mean.n_samples == 3


def test_the_sample_set_of_model_and_observations_is_kept():
    weights = SampleSet(weights=np.array([0.2, 0.3, 0.5]))
    lifted = {**parts_of(), "Q": Ensemble(np.ones(3), weights) * np.eye(3)}
    online = OnlineFilter(LinearGaussianModel(**lifted))
    online.step(np.ones(2))
    assert online.mean.sample_set is weights
    plain = OnlineFilter(LinearGaussianModel(**{**parts_of(), "F": Ensemble(np.eye(3)[..., None])}))
    plain.step(Ensemble(np.ones((2, 3)), weights))
    assert plain.mean.sample_set is weights and plain.covariance.n_samples == 1


def test_weighted_samples_of_data_share_their_covariance():
    weights = SampleSet(weights=np.array([0.2, 0.3, 0.5]))
    y = Ensemble(observations(n=3)[:2].transpose(0, 2, 1), weights)
    found = rts_smoother(LinearGaussianModel(**parts_of()), y)
    assert found.mean.sample_set is weights and found.covariance.n_samples == 1
