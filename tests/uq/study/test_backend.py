"""Inputs of a model in another array library."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.uq.study import evaluation
from ensemble.uq.study.backend import BackendSamples

INPUTS = en.Inputs(
    load=stats.norm(1.0, 0.2), kappa=en.fields.KarhunenLoeve.exponential([(0.0, 1.0)], 0.5, 3), width=2.0
)


def model(x):
    inside = x.kappa(np.array([0.25, 0.75]))
    x.fail(x["load"] > 1.3, "too much load")
    return {"tip": x.load * x.width * inside[0] * x.kappa.coefficients[1]}


def test_values_are_in_the_library_asked_for(monkeypatch):
    strict = pytest.importorskip("array_api_strict")
    seen = []

    def recorded(x):
        seen.append(type(x.load.samples))
        return model(x)

    monkeypatch.setattr(evaluation, "prototype", lambda backend: strict.empty(0))
    x = INPUTS.samples(64, seed=3)
    moved = evaluation.evaluate(recorded, x, "mask", "other")
    plain = evaluation.evaluate(model, INPUTS.samples(64, seed=3), "mask")
    assert seen == [type(strict.empty(0))] and plain.failed.any()
    np.testing.assert_array_equal(moved.outputs["tip"], plain.outputs["tip"])
    np.testing.assert_array_equal(moved.failed, plain.failed)


def test_all_else_is_that_of_the_samples():
    x = INPUTS.samples(64, seed=3)
    moved = BackendSamples(x, np.empty(0))
    assert len(moved) == 64 and moved.n_samples == 64 and moved.names == x.names and moved.ids is x.ids
    assert moved.kappa.field is x.kappa.field and moved.sample(3).load == x.sample(3).load
    with pytest.raises(AttributeError):
        moved.nothing  # noqa: B018


@pytest.mark.cuda
def test_a_model_on_a_device():
    on_device = en.propagate(model, INPUTS, 64, seed=3, backend="cupy", progress=False)
    here = en.propagate(model, INPUTS, 64, seed=3, progress=False)
    np.testing.assert_allclose(on_device.values("tip"), here.values("tip"), rtol=1e-14)
