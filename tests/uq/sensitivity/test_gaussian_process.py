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
