"""Gaussian-process surrogates: errors, deviations, leave-one-out, what is refused."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from tests.uq.sensitivity.problems import ISHIGAMI_VARIANCE, ishigami, ishigami_inputs

pytest.importorskip("sklearn")


def smooth_inputs():
    return en.Inputs(a=stats.uniform(-1.0, 2.0), b=stats.uniform(-1.0, 3.0), c=3.0)


def smooth(x):
    return {"y": np.sin(2.0 * x.a) + 0.3 * x.b**2 + x.c, "f": np.stack([x.a * x.b, 0.0 * x.a, x.b])}


@pytest.fixture(scope="module")
def fitted():
    inputs = smooth_inputs()
    study = en.propagate(smooth, inputs, 64, seed=5, progress=False)
    return inputs, study, en.uq.gaussian_process(inputs, study)


def test_predictions_are_the_model_s_and_deviations_tell_their_errors(fitted):
    inputs, _, surrogate = fitted
    fresh = inputs.samples(256, seed=8)
    exact = smooth(fresh)
    for name in ("y", "f"):
        error = np.asarray(exact[name].samples) - np.asarray(surrogate(fresh)[name].samples)
        deviation = np.asarray(surrogate.std(fresh)[name].samples)
        assert error.std() < 0.03
        assert np.mean(np.abs(error) <= 3.0 * deviation + 1e-6) > 0.95
    assert surrogate.inputs == ("a", "b") and surrogate.outputs == ("y", "f")
    assert np.all(np.asarray(surrogate(fresh)["f"].samples)[1] == 0.0)


def test_errors_without_a_sample_are_those_of_fits_without_it(fitted, rng):
    inputs, study, _ = fitted
    y = np.asarray(study.samples("y").samples) + 0.1 * rng.normal(size=64)
    surrogate = en.uq.gaussian_process(inputs, study.inputs, y)
    fit = surrogate._fits["y"]
    y = (y - y.mean()) / y.std()
    covariance = fit.kernel(fit.x)
    errors = []
    for k in range(len(y)):
        rest = np.arange(len(y)) != k
        weights = np.linalg.solve(covariance[np.ix_(rest, rest)], y[rest])
        errors.append(y[k] - fit.kernel(fit.x[k : k + 1], fit.x[rest]) @ weights)
    assert surrogate.loo_error["y"] == pytest.approx(np.mean(np.square(errors)), rel=1e-6)


def test_a_sample_is_predicted_alone_as_among_others(fitted):
    inputs, _, surrogate = fitted
    fresh = inputs.samples(16, seed=8)
    whole = np.asarray(surrogate(fresh)["y"].samples)
    alone = [np.asarray(surrogate(fresh.take([k]))["y"].samples)[0] for k in range(16)]
    np.testing.assert_array_equal(alone, whole)


def test_a_surrogate_stands_for_the_model_in_a_study(fitted):
    inputs, _, surrogate = fitted
    study = en.propagate(surrogate, inputs, 512, seed=2, progress=False)
    exact = en.propagate(smooth, inputs, 512, seed=2, progress=False)
    np.testing.assert_allclose(study.mean("y"), exact.mean("y"), atol=5e-3)


def kink(x):
    """A product of kinks: the deviations of a smooth process are too small for it."""
    return {"y": np.abs(4.0 * x.a - 2.0) * np.abs(4.0 * x.b - 2.0), "f": np.stack([x.a, 0.0 * x.a])}


@pytest.fixture(scope="module")
def kinked():
    inputs = en.Inputs(a=stats.uniform(), b=stats.uniform(), c=stats.uniform(), d=stats.uniform())
    found = []
    for seed in range(12):
        samples = inputs.samples(48, seed=seed, sampler="monte_carlo")
        found.append(en.uq.gaussian_process(inputs, samples, kink(samples), n_restarts=0))
    return inputs, found


@pytest.mark.filterwarnings("ignore:gaussian_process")
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_intervals_hold_new_values_as_often_as_they_say(kinked, level):
    inputs, found = kinked
    fresh = inputs.samples(512, seed=90, sampler="monte_carlo")
    exact, held, normal = kink(fresh)["y"].samples, [], []
    for surrogate in found:
        low, high = (end.samples for end in surrogate.interval(fresh, level)["y"])
        held.append(np.mean((low <= exact) & (exact <= high)))
        half = stats.norm.ppf(0.5 + 0.5 * level) * surrogate.std(fresh)["y"].samples
        normal.append(np.mean(np.abs(exact - surrogate(fresh)["y"].samples) <= half))
    assert np.mean(normal) < level - 0.05 < np.mean(held)


@pytest.mark.filterwarnings("ignore:gaussian_process")
def test_entries_have_intervals_of_their_own(kinked):
    inputs, (surrogate, *_) = kinked
    low, high = surrogate.interval(inputs.samples(8, seed=90))["f"]
    assert low.shape == high.shape == (2,) and low.n_samples == 8
    assert np.all(low.samples[1] == 0.0) and np.all(high.samples[1] == 0.0)  # a constant
    assert np.all(low.samples[0] < high.samples[0])


def test_a_level_needs_samples(fitted):
    inputs, _, surrogate = fitted
    with pytest.raises(ValueError, match=r"interval: level must be at most n / \(n \+ 1\) = 0.9846 of 64 samples"):
        surrogate.interval(inputs.samples(8, seed=1), 0.99)
    with pytest.raises(ValueError, match="Divide percentages by 100"):
        surrogate.interval(inputs.samples(8, seed=1), 95)
    drawn = inputs.samples(19, seed=5, sampler="monte_carlo")
    few = en.uq.gaussian_process(inputs, drawn, smooth(drawn))
    assert np.all(np.isfinite(few.interval(inputs.samples(8, seed=1))["y"][0].samples))


def test_units_change_nothing_but_units():
    inputs = en.Inputs(a=stats.uniform(-1e6, 2e6), b=stats.norm(0.0, 1e-9))
    model = lambda x: {"y": 1e9 * (np.sin(2e-6 * x.a) + 1e9 * x.b)}
    study = en.propagate(model, inputs, 64, seed=5, progress=False)
    assert en.uq.gaussian_process(inputs, study).loo_error["y"] < 1e-3


def test_too_few_samples_are_said():
    inputs = ishigami_inputs()
    study = en.propagate(ishigami, inputs, 32, seed=5, progress=False)
    with pytest.warns(UserWarning, match="miss"):
        found = en.uq.gaussian_process(inputs, study)
    assert "of the variance" in found.notes[0] and found.loo_error["y"] > 0.05
    assert ISHIGAMI_VARIANCE > 0.0


def test_what_cannot_be_is_refused():
    inputs = smooth_inputs()
    study = en.propagate(smooth, inputs, 16, seed=5, progress=False)
    with pytest.raises(TypeError, match="inputs must be Inputs"):
        en.uq.gaussian_process(study, inputs)
    with pytest.raises(ValueError, match="kernel"):
        en.uq.gaussian_process(inputs, study, kernel="linear")
    with pytest.raises(TypeError, match="samples must be InputSamples"):
        en.uq.gaussian_process(inputs, study, n_restarts=0)(np.zeros((4, 2)))
