"""The law of the library: every sample is its own run, and a failing one disturbs no other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ensemble as en
from ensemble.apps.gbees import Drift, Gbees, GridError, lorenz63, lorenz96
from ensemble.apps.gbees.engines.array import ArrayEngine
from ensemble.apps.gbees.engines.backends import BACKENDS, Backend
from tests.apps.gbees.conftest import ENGINES
from tests.apps.gbees.problems import backend_of
from tests.conftest import examples

pendulum = Drift(lambda x, t, xp, g, c: (x[1], -g * xp.sin(x[0]) - c * x[1]), (1.0, 0.1), ("g", "c"))


def column(value, i):
    """Sample `i` of what may be an Ensemble."""
    return value.sample(i) if isinstance(value, en.Ensemble) else value


def run_of(arguments, i, backend):
    """Predict, measure, predict; sample `i` alone, or all of them where `i` is None."""
    own = {name: value if i is None else column(value, i) for name, value in arguments.items()}
    drift = pendulum.with_parameters(g=own["g"] if i is None else float(own["g"]), c=0.1)
    run = Gbees(drift, own["mean"], own["covariance"], threshold=1e-4, backend=backend, prune_every=7)
    run.advance(0.3)
    evidence = run.update(lambda x, xp: x[0] + 0.5 * x[1], own["y"], 0.3)
    run.advance(0.7)
    return run, evidence


@st.composite
def problems(draw):
    n = draw(st.integers(2, 4))
    numbers = st.floats(-1.0, 1.0)

    def ensemble(shape, low, high):
        size = int(np.prod(shape, dtype=int)) * n
        values = draw(st.lists(st.floats(low, high), min_size=size, max_size=size))
        return en.Ensemble(np.array(values).reshape(*shape, n))

    varying = draw(st.sets(st.sampled_from(["g", "mean", "covariance", "y"]), min_size=1))
    return n, {
        "g": ensemble((), 0.5, 2.0) if "g" in varying else 1.3,
        "mean": ensemble((2,), -1.0, 1.0) if "mean" in varying else np.array([draw(numbers), 0.4]),
        "covariance": ensemble((2,), 0.02, 0.1) if "covariance" in varying else np.array([0.05, 0.04]),
        "y": ensemble((), -0.5, 0.5) if "y" in varying else 0.2,
    }


@pytest.mark.parametrize("name", ENGINES)
@given(problems())
@settings(max_examples=examples(8))
def test_each_sample_is_its_own_run_to_the_bit(name, case):
    n, arguments = case
    backend = backend_of(ENGINES[name])
    together, evidence = run_of(arguments, None, backend)
    assert together.n_samples == n and not together.failed.any()
    assert together.time == 0.7
    mean, covariance, draws = together.mean(), together.covariance(), together.sample(5, seed=3)
    for i in range(n):
        alone, own_evidence = run_of(arguments, i, backend)
        assert evidence.sample(i) == own_evidence
        assert (together.n_steps[i], together.cell_steps[i]) == (alone.n_steps, alone.cell_steps)
        for mine, own in zip(together.cells()[i], alone.cells(), strict=True):
            np.testing.assert_array_equal(mine, own)
        np.testing.assert_array_equal(mean.sample(i), alone.mean())
        np.testing.assert_array_equal(covariance.sample(i), alone.covariance())
        np.testing.assert_array_equal(draws[i].samples, alone.sample(5, seed=3).samples)
        assert together.mass_loss.sample(i) == alone.mass_loss
        assert together.log_evidence.sample(i) == alone.log_evidence


def test_shared_ensembles_are_one_sample():
    run = Gbees(pendulum.with_parameters(g=en.shared(1.0)), [0.1, 0.2], [0.1, 0.1], threshold=1e-3)
    assert run.n_samples == 1
    run.advance(0.1)
    assert isinstance(run.mean(), en.Ensemble) and run.mean().shape == (2,)


def test_a_measured_ensemble_splits_a_run(engine):
    plain = [Gbees(pendulum, [0.5, 0.0], [0.05, 0.05], threshold=1e-4, backend=backend_of(engine)) for _ in range(3)]
    for run in plain:
        run.advance(0.2)
    plain[0].update(lambda x, xp: x[0], en.Ensemble(np.array([0.4, 0.6])), 0.1)
    assert plain[0].n_samples == 2
    for run, y in zip(plain[1:], (0.4, 0.6), strict=True):
        run.update(lambda x, xp: x[0], y, 0.1)
        run.advance(0.5)
    plain[0].advance(0.5)
    for i in (0, 1):
        for mine, own in zip(plain[0].cells()[i], plain[i + 1].cells(), strict=True):
            np.testing.assert_array_equal(mine, own)


def test_a_copied_run_goes_the_same_way():
    run = Gbees(pendulum, [0.5, 0.0], [0.05, 0.05], threshold=1e-4, backend="array", prune_every=7)
    run.advance(0.2)
    one = run._runs.runs[0]
    assert one.engine.count % 7 != 0  # the next prune is due at the same step
    other = one.copy()
    for each in (one, other):
        each.advance(1.0)
    assert len(other.steps) == len(one.steps)
    for mine, own in zip(other.cells(), one.cells(), strict=True):
        np.testing.assert_array_equal(mine, own)


def blowing_up(x, t, xp, a):
    return 1.0, xp.log(a - x[0])  # not finite from x[0] = a on


def test_a_failing_sample_is_flagged_and_the_others_finish(patient_engine):
    a = [50.0, 1.2, 60.0]
    make = lambda value: Gbees(
        Drift(blowing_up, (value,), ("a",)),
        [0.5, 0.5],
        [0.01, 0.01],
        threshold=1e-4,
        backend=backend_of(patient_engine),
    )
    run = make(en.Ensemble(np.array(a)))
    run.advance(1.0)
    assert run.failed.tolist() == [False, True, False]
    assert "drift must be finite; got" in run.messages[1] and run.messages[0] is None
    mean = run.mean()
    assert np.all(np.isnan(mean.sample(1)))
    assert run.cells()[1] is None
    for i in (0, 2):
        alone = make(a[i])
        alone.advance(1.0)
        np.testing.assert_array_equal(mean.sample(i), alone.mean())
    with pytest.raises(GridError, match=r"1 of 3 samples could not go on. Sample 1: Gbees: drift must be finite"):
        run.raise_if_failed()
    with pytest.raises(GridError, match=r"drift must be finite; got (nan|-inf) in component 1 at x = \(1\.\d+, .*t = "):
        make(1.2).advance(1.0)
    again = make(en.Ensemble(np.array(a))).restore(run.state())
    assert again.messages == run.messages
    evidence = run.update(lambda x, xp: x[0], en.Ensemble(np.array([1.0, 1.0, 1e200])), 1.0)
    assert np.isnan(evidence.samples).tolist() == [False, True, True]
    assert "y must be possible" in run.messages[2]
    assert np.isfinite(run.mean().sample(0)).all()


def test_a_sample_may_fail_on_its_first_grid(patient_engine):
    drift = Drift(blowing_up, (en.Ensemble(np.array([0.4, 9.0])),), ("a",))
    run = Gbees(drift, [0.5, 0.5], [0.01, 0.01], threshold=1e-4, backend=backend_of(patient_engine))
    run.advance(0.1)
    assert run.failed.tolist() == [True, False]
    assert run.n_steps[0] == 0 and run.n_steps[1] > 0
    state = run.state()
    again = Gbees(drift, [0.5, 0.5], [0.01, 0.01], threshold=1e-4, backend=backend_of(patient_engine)).restore(state)
    np.testing.assert_array_equal(again.mean().samples, run.mean().samples)
    assert again.messages == run.messages


class Convoy(ArrayEngine):
    """An engine that carries many grids in one call, one after the other."""

    calls = 0

    @staticmethod
    def advance_many(engines, times, spans, callback, elapsed):
        Convoy.calls += 1
        failures = []
        for engine, time, span, gone in zip(engines, times, spans, elapsed, strict=True):
            try:
                engine.advance(time, span, callback, gone)
                failures.append(None)
            except (GridError, MemoryError) as error:
                failures.append(error)
        return failures


def test_an_engine_may_carry_all_samples_at_once(monkeypatch):
    monkeypatch.setitem(BACKENDS, "convoy", Backend(Convoy, "numpy"))
    drift = Drift(blowing_up, (en.Ensemble(np.array([50.0, 1.2, 60.0, 0.4])),), ("a",))
    runs = [
        Gbees(drift, [0.5, 0.5], [0.01, 0.01], threshold=1e-4, backend=name) for name in ("array", "convoy", "convoy")
    ]

    def callback(time, cells, cell_steps):
        if time > 0.2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs[2].advance(0.5, callback)
    assert 0.0 < runs[2]._runs.runs[0].time < 0.5
    for until in (0.5, 1.0):
        for run in runs:
            run.advance(until)
    assert Convoy.calls == 5
    for run in runs[1:]:
        assert run.messages == runs[0].messages
        assert run.failed.tolist() == [False, True, False, True]
        assert run.time == 1.0
        np.testing.assert_array_equal(run.mean().samples, runs[0].mean().samples)
        np.testing.assert_array_equal(run.n_steps, runs[0].n_steps)


def test_lorenz_systems_take_ensembles(patient_engine):
    run = Gbees(
        lorenz63.with_parameters(r=en.Ensemble(np.array([30.0, 48.0]))), [-11.5, -10.0, 9.5], np.eye(3),
        threshold=1e-4, backend=backend_of(patient_engine),
    )  # fmt: skip
    run.advance(0.05)
    assert np.all(run.n_steps > 5)
    six = Gbees(
        lorenz96(en.Ensemble(np.array([4.0, 8.0]))), [4.5, 4.0, 4.0, 4.0], 0.04, factor=0.5, threshold=1e-4,
        backend=backend_of(patient_engine),
    )  # fmt: skip
    six.advance(0.05)
    shift = six.mean().sample(1) - six.mean().sample(0)
    np.testing.assert_allclose(shift, 4.0 * 0.05, rtol=0.1)  # the forcing alone, to first order


@pytest.mark.parametrize(
    "build, text",
    [
        (lambda a, b: Gbees(pendulum.with_parameters(g=a), b, [0.1, 0.1], threshold=1e-3), "g: 3, mean: 2"),
        (lambda a, b: Gbees(pendulum.with_parameters(g=b), [0.0, 0.0], 0.1, threshold=1e-3), "parameter g must be one"),
        (
            lambda a, b: Gbees(pendulum.with_parameters(g=a), [0.0, 0.0], 0.1, threshold=1e-3).update(
                lambda x, xp: x, b, 1.0
            ),
            "y and R must fit the samples of the run; got 2 samples for 3",
        ),
    ],
)
def test_numbers_of_samples_must_agree(build, text):
    with pytest.raises(ValueError, match=text):
        build(en.Ensemble(np.ones(3)), en.Ensemble(np.full((2, 2), 0.5)))


def test_parameters_are_changed_by_name():
    with pytest.raises(TypeError, match=r"known by name \(sigma, b, r\); got rho"):
        lorenz63.with_parameters(rho=28.0)
