"""One group through a model."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.uq import SampleError
from ensemble.uq.study.evaluation import evaluate
from tests.uq.study.models import INPUTS, beam, failing_above


def test_an_outcome_has_outputs_marks_reasons_and_time():
    x = INPUTS.samples(64, seed=7)
    outcome = evaluate(failing_above(1.3), x, "mask")
    np.testing.assert_array_equal(outcome.failed, x.load.samples > 1.3)
    assert set(outcome.reasons) == set(np.flatnonzero(outcome.failed).tolist()) and outcome.seconds > 0.0
    assert outcome.outputs["field"].shape == (3, 64) and not outcome.out_of_memory


def test_marks_of_an_earlier_call_are_forgotten():
    x = INPUTS.samples(64, seed=7)
    assert evaluate(failing_above(1.0), x, "mask").failed.any()
    assert not evaluate(beam, x, "mask").failed.any()


def test_samples_that_were_mended_keep_their_values():
    calls = []

    def unsteady(x):
        calls.append(x.n_samples)
        if x.n_samples > 1:
            x.fail(x.load > 1.0, "not converged")
        return beam(x)

    x = INPUTS.samples(64, seed=7)
    outcome, whole = evaluate(unsteady, x, "retry"), evaluate(beam, x, "mask")
    assert calls == [64] + [1] * np.count_nonzero(x.load.samples > 1.0) and not outcome.failed.any()
    for name, array in whole.outputs.items():
        assert outcome.outputs[name].tobytes() == array.tobytes()
    assert not outcome.reasons


def test_the_models_own_arrays_stay_as_they_are():
    kept = []

    def model(x):
        if x.n_samples > 1:
            x.fail(x.load > 1.0, "not converged")
        kept.append(x.load * 2.0 if x.n_samples > 1 else x.load * 3.0)
        return kept[-1]

    x = INPUTS.samples(64, seed=7)
    outcome = evaluate(model, x, "retry")
    np.testing.assert_array_equal(kept[0].samples, 2.0 * x.load.samples)
    np.testing.assert_array_equal(outcome.outputs["y"], np.where(x.load.samples > 1.0, 3.0, 2.0) * x.load.samples)


@pytest.mark.parametrize("on_failure", ["mask", "retry"])
def test_memory_that_runs_out_is_told(on_failure):
    def model(x):
        if x.n_samples > 1:
            raise MemoryError
        return beam(x)

    outcome = evaluate(model, INPUTS.samples(64, seed=7), on_failure)
    assert outcome.out_of_memory and outcome.failed.all() == (on_failure == "mask")


def test_raised_failures_name_samples_and_the_first_reason():
    x = INPUTS.samples(64, seed=7)
    with pytest.raises(SampleError, match=r"propagate: \d+ of 64 samples of a group failed \(.*; too much load\)"):
        evaluate(failing_above(1.2), x, "raise")


def rooted(a, b):
    if b > 1.0:
        raise ValueError("b is large")
    return {"root": a**0.5, "count": 3 if a > 0.5 else 2}


@pytest.mark.parametrize("ensemble_size", [1, 8])
@pytest.mark.parametrize("on_failure", ["mask", "retry"])
def test_a_result_of_run_keeps_the_exceptions_of_its_samples(on_failure, ensemble_size):
    inputs = en.Inputs(a=stats.uniform(), b=stats.norm())
    options = {"seed": 3, "progress": False, "on_failure": on_failure, "ensemble_size": ensemble_size}
    found = en.propagate(lambda x: en.run(rooted, x.a, x.b), inputs, 64, **options)
    plain = en.propagate(en.vectorize(rooted, keywords=True), inputs, 64, **options)
    assert found.reasons == plain.reasons and set(found.reasons.values()) == {"ValueError: b is large"}
    for name in ("root", "count"):
        assert np.array_equal(found.samples(name).samples, plain.samples(name).samples)
