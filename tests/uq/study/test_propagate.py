"""`propagate`: the loop over groups, failures, targets, stores, interrupts."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse
from scipy import stats

import ensemble as en
from ensemble.krylov import direct
from ensemble.linalg import CrsMatrix
from ensemble.uq import MonteCarlo, OutputError, SampleError, Sobol
from ensemble.uq.study import ensemble_size as tuning
from tests.uq.store.trees import tree
from tests.uq.study.models import INPUTS, beam, failing_above, interrupted_beam, plain_beam, same_bits


def run(model=beam, n=256, **options):
    return en.propagate(model, INPUTS, n, **{"seed": 7, "progress": False, "ensemble_size": 32} | options)


@pytest.mark.parametrize("keep", ["all", "statistics"])
@pytest.mark.parametrize("size", [1, 3, 8, 32, 33, "auto"])
@pytest.mark.parametrize("group_by", [None, "stiffness"])
def test_results_are_the_same_bits_for_every_ensemble_size(size, group_by, keep):
    assert same_bits(run(n=128, ensemble_size=size, group_by=group_by, keep=keep), run(n=128))


def test_a_model_that_branches_runs_in_run():
    def branching(load, stiffness):
        return load / stiffness if load > 1.0 else 2.0 * load

    result = run(lambda x: en.run(branching, x.load, x.stiffness).value)
    alone = run(en.vectorize(branching, keywords=True))
    assert result.names == ("y",) and same_bits(result, alone)


@pytest.mark.parametrize("on_failure", ["mask", "retry"])
def test_a_branch_on_an_ensemble_is_an_error_unless_samples_run_alone(on_failure):
    def model(x):
        return x.load if x.load > 1.0 else 2.0 * x.load

    if on_failure == "retry":
        assert run(model, on_failure="retry").n_failed == 0
    else:
        with pytest.raises(en.DivergenceError) as caught:
            run(model)
        assert "runs inside en.run" in caught.value.__notes__[0]


def raising(x):
    if np.any(x.load.samples > 1.3):
        raise ArithmeticError("too much load")
    return beam(x)


def test_a_call_that_raises_fails_as_a_whole_when_masked():
    result = run(raising, ensemble_size=8)
    large = INPUTS.samples(256, seed=7).load.samples > 1.3
    np.testing.assert_array_equal(result.failed, np.repeat(large.reshape(-1, 8).any(axis=1), 8))
    assert result.reasons[int(np.flatnonzero(large)[0])] == "ArithmeticError: too much load"


@pytest.mark.parametrize("size", [1, 8, 256])
def test_retried_samples_fail_alone(size):
    result = run(raising, ensemble_size=size, on_failure="retry")
    np.testing.assert_array_equal(result.failed, INPUTS.samples(256, seed=7).load.samples > 1.3)
    assert same_bits(result, run(raising, ensemble_size=1))


def test_raised_errors_name_the_samples():
    with pytest.raises(ArithmeticError, match=r"too much load") as caught:
        run(raising, ensemble_size=4, on_failure="raise")
    assert "propagate: the model raised this on samples" in caught.value.__notes__[0]
    assert caught.value.result.n_done % 4 == 0


@pytest.mark.parametrize("on_failure", ["mask", "retry"])
@pytest.mark.parametrize("size", [1, 7, 256])
def test_marked_samples_fail_and_touch_no_other(size, on_failure):
    result = run(failing_above(1.3), ensemble_size=size, on_failure=on_failure)
    large = INPUTS.samples(256, seed=7).load.samples > 1.3
    np.testing.assert_array_equal(result.failed, large)
    whole = run()
    np.testing.assert_array_equal(result.values("field")[:, ~large], whole.values("field")[:, ~large])
    assert np.all(np.isnan(result.values("tip")[large])) and set(result.reasons.values()) == {"too much load"}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_fails_its_sample(value):
    def model(x):
        return {"tip": x.load, "field": en.where(x.load > 1.3, value, x.load)}

    result = run(model)
    np.testing.assert_array_equal(result.failed, INPUTS.samples(256, seed=7).load.samples > 1.3)
    assert set(result.reasons.values()) == {"output 'field' is not finite"}
    with pytest.raises(SampleError, match=r"of 32 samples of a group failed \(samples? \d.*'field' is not finite\)"):
        run(model, on_failure="raise")


@pytest.mark.parametrize(
    "model, error, text",
    [
        (lambda x: {}, OutputError, "propagate: the model must return at least one output; got none"),
        (lambda x: None, OutputError, "propagate: the model must return at least one output"),
        (lambda x: {"a": x.load.samples}, OutputError, r"output 'a' must be an Ensemble or a number; got an ndarray"),
        (lambda x: {"a": x.load if x.ids[0] else x.load[None]}, OutputError, r"output 'a' must have shape \(1,\)"),
        (lambda x: missing, NameError, "missing"),  # noqa: F821
    ],
    ids=["empty", "none", "array", "shape", "name"],
)
def test_errors_of_the_program_are_raised_in_every_mode(model, error, text):
    with pytest.raises(error, match=text):
        run(model, on_failure="mask")


def test_a_study_in_which_all_failed_says_why():
    result = run(lambda x: 1 / 0, n=64, on_failure="mask")
    assert result.n_failed == 64 and "64 failed; first sample 0: ZeroDivisionError: division by zero" in repr(result)
    with pytest.raises(ValueError, match=r"must have a sample; got 64 failed of 64 that were run. First: ZeroDivision"):
        result.mean("y")


# --- ensemble_size="auto"
def calls_of(sizes):
    def model(x):
        sizes.append(x.n_samples)
        return beam(x)

    return model


def test_timed_groups_are_kept(monkeypatch):
    sizes = []
    monkeypatch.setattr(tuning, "GAIN", np.inf)
    result = run(calls_of(sizes), n=512, ensemble_size="auto")
    assert sizes[:10] == [8, 8, 16, 16, 32, 32, 64, 64, result.ensemble_size, result.ensemble_size]
    assert sum(sizes) == 512 and same_bits(result, run(n=512))


def test_larger_groups_are_tried_while_they_are_faster(monkeypatch):
    sizes = []
    monkeypatch.setattr(tuning, "GAIN", 0.0)
    assert run(calls_of(sizes), n=512, ensemble_size="auto").ensemble_size in (8, 16)
    assert sizes[:4] == [8, 8, 16, 16] and set(sizes[4:-1]) <= {8, 16}


@pytest.mark.parametrize("on_failure", ["mask", "raise"])
def test_groups_that_do_not_fit_into_memory_are_divided(on_failure):
    def model(x):
        if x.n_samples > 16:
            raise MemoryError("too many samples")
        return beam(x)

    result = run(model, n=256, ensemble_size="auto", on_failure=on_failure)
    assert result.ensemble_size <= 16 and result.n_failed == 0 and same_bits(result, run())


def test_memory_caps_the_size(monkeypatch):
    peaks = iter(range(0, 10**12, 10**10))
    monkeypatch.setattr(tuning, "peak_memory", lambda: next(peaks))
    monkeypatch.setattr(tuning, "available_bytes", lambda array: 3 * 10**10)
    monkeypatch.setattr(tuning, "GAIN", np.inf)
    sizes = []
    result = run(calls_of(sizes), n=512, ensemble_size="auto")
    assert sizes[:2] == [8, 8] and result.ensemble_size == 8 and set(sizes) == {8}


@pytest.mark.parametrize("n", [1, 5, 8, 15, 17, 40])
def test_few_samples_need_no_timing(n):
    assert run(n=n, ensemble_size="auto", sampler="monte_carlo").n_done == n


# --- n="auto"
def test_samples_are_doubled_until_the_interval_is_narrow():
    result = run(n="auto", target={"tip": 2e-4})
    low, high = result.confidence_interval("tip")
    assert result.target_met and 0.5 * (high - low) <= 2e-4 * result.mean("tip") and result.n in (512, 1024, 2048, 4096)
    half = run(n=result.n // 2)
    low, high = half.confidence_interval("tip")
    assert 0.5 * (high - low) > 2e-4 * half.mean("tip") and same_bits(result, run(n=result.n))


def test_a_missed_target_is_told():
    result = run(n="auto", target={"tip": 1e-9, "field": (0.0, 1.0)}, max_n=600)
    assert result.target_met is False and result.n == 512 and "the target was missed" in repr(result)


def test_a_target_ends_with_the_time():
    result = run(n="auto", target={"tip": 1e-9}, max_seconds=1e-9)
    assert result.n_done == 0 and result.target_met is False


@pytest.mark.parametrize("size", [32, "auto"])
def test_no_group_begins_after_the_time(size):
    result = run(max_seconds=1e-9, ensemble_size=size)
    assert result.n_done == 0 and result.target_met is None and "256 not run" in repr(result)


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"n": "auto"}, ValueError, "propagate: target must name an output and its relative half-width"),
        ({"n": "auto", "target": {}}, ValueError, "propagate: target must name an output"),
        ({"n": "auto", "target": {"tip": 0.0}}, ValueError, r"propagate: target\['tip'\] must be above zero"),
        ({"n": "auto", "target": {"tip": "x"}}, TypeError, r"propagate: target\['tip'\] must be a finite number"),
        ({"n": "auto", "target": {"a": 0.1}}, ValueError, "propagate: target must be one of 'tip', 'field'; got 'a'"),
        (
            {"n": "auto", "target": {"tip": 1.0}, "max_n": 1},
            ValueError,
            "propagate: max_n must be an integer of at lea",
        ),
        (
            {"n": "auto", "target": {"tip": 1.0}, "sampler": Sobol(replicates=1)},
            ValueError,
            "got one replicate of Sobol",
        ),
        ({"n": "many"}, ValueError, "propagate: n must be an integer or 'auto'; got 'many'"),
        ({"target": {"tip": 0.1}}, ValueError, "propagate: target and max_n must go with n='auto'"),
        ({"max_seconds": 0}, ValueError, "propagate: max_seconds must be a finite number above zero"),
        ({"on_failure": "ignore"}, ValueError, "propagate: on_failure must be one of 'mask', 'retry', 'raise'"),
        ({"backend": "torch"}, ValueError, "propagate: backend must be one of 'numpy', 'cupy'"),
        ({"model": 3}, TypeError, "propagate: model must be callable; got an int"),
        (
            {"ensemble_size": "large"},
            TypeError,
            "propagate: ensemble_size must be an integer of at least 1; got 'large'",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_arguments_are_named(options, error, text):
    with pytest.raises(error, match=text):
        run(**options)


# --- interrupts and stores
@pytest.fixture
def third_call_is_last(monkeypatch):
    monkeypatch.setenv("CALLS_LEFT", "3")


def test_an_interrupt_hands_over_what_was_done(third_call_is_last):
    text = "propagate: 96 of 256 samples were done; they are in error.result"
    with pytest.raises(KeyboardInterrupt, match=text) as caught:
        run(interrupted_beam)
    result = caught.value.result
    assert result.n_done == 96 and result.values("tip")[:96].tobytes() == run().values("tip")[:96].tobytes()


@pytest.mark.parametrize("keep", ["all", "statistics"])
@pytest.mark.parametrize("size", [5, 32])
def test_a_stored_study_goes_on_with_another_ensemble_size(tmp_path, third_call_is_last, size, keep):
    path = tmp_path / "run.zarr"
    with pytest.raises(KeyboardInterrupt, match=r"run.zarr': resume=True goes on") as caught:
        run(interrupted_beam, store=path)
    assert caught.value.result.n_done == 96
    sizes = []
    result = run(interrupted_beam, store=path, resume=True, ensemble_size=size, keep=keep)
    assert same_bits(result, run(keep=keep)) and np.array_equal(result.samples("tip").samples, run().values("tip"))
    again = run(calls_of(sizes), store=path, resume="force", keep=keep)
    assert not sizes and same_bits(again, run(keep=keep))


def test_equal_studies_have_equal_files(tmp_path, third_call_is_last):
    with pytest.raises(KeyboardInterrupt):
        run(interrupted_beam, store=tmp_path / "a")
    run(interrupted_beam, store=tmp_path / "a", resume=True, ensemble_size=7)
    run(interrupted_beam, store=tmp_path / "b", ensemble_size=256)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_a_stored_study_is_extended(tmp_path):
    run(n=128, store=tmp_path / "a")
    assert same_bits(run(n=512, store=tmp_path / "a", resume=True, seed=None), run(n=512))


def test_a_stored_study_never_shrinks(tmp_path):
    run(n=256, store=tmp_path / "a")
    assert same_bits(run(n=64, store=tmp_path / "a", resume=True), run(n=256))


def test_a_target_goes_on_from_a_store(tmp_path):
    run(n="auto", target={"tip": 1e-3}, store=tmp_path / "a")
    result = run(n="auto", target={"tip": 2e-4}, store=tmp_path / "a", resume=True)
    assert result.target_met and same_bits(result, run(n="auto", target={"tip": 2e-4}))


def test_failed_samples_are_stored_with_their_reasons(tmp_path):
    result = run(failing_above(1.3), store=tmp_path / "a")
    again = run(failing_above(1.3), store=tmp_path / "a", resume=True)
    assert again.n_failed > 0 and same_bits(result, again)


@pytest.mark.parametrize(
    "options, text",
    [
        ({}, "resume=True"),
        ({"resume": True, "seed": 8}, "seed: stored 7, given 8"),
        ({"resume": True, "model": plain_beam}, "pass resume='force'"),
        ({"resume": True, "sampler": MonteCarlo()}, "sampler"),
    ],
    ids=["exists", "seed", "model", "sampler"],
)
def test_another_study_is_refused(tmp_path, options, text):
    run(store=tmp_path / "a")
    with pytest.raises(ValueError, match=text):
        run(store=tmp_path / "a", **options)


def test_a_store_without_a_sample_is_taken_away_after_an_error(tmp_path):
    with pytest.raises(NameError):
        run(lambda x: missing, store=tmp_path / "a")  # noqa: F821
    assert not (tmp_path / "a").exists()
    run(store=tmp_path / "a")


def test_the_store_opens_in_xarray(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    result = run(failing_above(1.3), store=tmp_path / "a")
    stored, given = xarray.open_zarr(tmp_path / "a"), result.to_xarray()
    assert set(stored.variables) == set(given.variables)
    for name in given.variables:
        assert stored[name].dims == given[name].dims
        np.testing.assert_array_equal(stored[name].values, given[name].values)


def test_a_study_killed_while_its_store_was_made_is_started(tmp_path):
    (tmp_path / "run.zarr" / ".ensemble").mkdir(parents=True)
    (tmp_path / "run.zarr" / ".ensemble" / ".manifest.json.part").write_bytes(b"{")
    inputs = en.Inputs(a=stats.norm())
    result = en.propagate(lambda x: x.a, inputs, 8, seed=3, store=tmp_path / "run.zarr", resume=True, progress=False)
    assert result.n_done == 8 and en.uq.open_study(tmp_path / "run.zarr").n_done == 8


def test_resuming_what_is_not_there_is_refused(tmp_path):
    inputs = en.Inputs(a=stats.norm())
    with pytest.raises(ValueError, match=r"be a stored study; got .*which does not exist"):
        en.propagate(lambda x: x.a, inputs, 8, store=tmp_path / "run.zarr", resume=True, progress=False)


@pytest.mark.parametrize("name", ["sample", "done", "failed", "sample_weight"])
@pytest.mark.parametrize("stored", [False, True])
def test_names_of_a_dataset_are_no_outputs(tmp_path, name, stored):
    reserved = r"sample, done, failed, sample_weight, zarr\.json"
    text = rf"propagate: the name of an output must be none of {reserved}; got '{name}'"
    with pytest.raises(ValueError, match=text):
        en.propagate(lambda x: {name: x.load}, INPUTS, 8, store=tmp_path / "s" if stored else None, progress=False)


@pytest.mark.parametrize(
    "inputs, outputs", [(("a", "a_input"), ("a",)), (("a",), ("a", "a_input")), (("done", "done_input"), ("y",))]
)
def test_names_that_a_dataset_would_take_twice_are_refused(inputs, outputs):
    variables = en.Inputs(**{name: stats.norm() for name in inputs})
    name = inputs[0]
    text = rf"propagate: outputs must differ from '{name}' or '{name}_input'; got both beside an input '{name}'"
    with pytest.raises(ValueError, match=text):
        en.propagate(lambda x: dict.fromkeys(outputs, x[name]), variables, 8, progress=False)


def test_an_input_that_there_is_not_is_an_error_of_the_program():
    with pytest.raises(AttributeError, match=r"InputSamples has no input 'laod'; it has load, stiffness\."):
        en.propagate(lambda x: x.laod, INPUTS, 8, progress=False)


def test_a_store_stays_in_its_place_where_the_model_changes_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def model(x):
        os.chdir(tmp_path / "elsewhere")
        return x.load

    en.propagate(model, INPUTS, 8, store="s", progress=False)
    assert not os.listdir(tmp_path / "elsewhere") and (tmp_path / "s" / "zarr.json").exists()


@pytest.mark.parametrize("executor", [None, "threads"])
def test_a_model_that_raises_on_every_sample_of_the_first_call_ends_the_study(executor):
    def of_two(x, y):
        return x.load * y

    executor = executor and ThreadPoolExecutor(2)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'") as caught:
        run(of_two, executor=executor)
    notes = " ".join(caught.value.__notes__)
    assert "so it does on all samples of the first call together" in notes and "on_failure='mask'" in notes
    assert run(of_two, on_failure="mask", executor=executor).n_failed == 256


def test_a_first_call_that_raises_while_a_sample_alone_does_not_is_masked():
    calls = []

    def raising_at_first(x):
        calls.append(x.n_samples)
        if x.n_samples > 1 and x.ids[0] == 0:
            raise ArithmeticError("these samples together")
        return beam(x)

    result = run(raising_at_first)
    assert result.n_failed == 32 and calls == [32, 1, *7 * [32]]


def test_a_later_call_that_raises_is_not_tried_again():
    calls = []

    def raising_later(x):
        calls.append(x.n_samples)
        if x.ids[0] >= 64:
            raise ArithmeticError("late")
        return beam(x)

    assert run(raising_later).n_failed == 192 and calls == 8 * [32]


@pytest.mark.parametrize("name", ["_y", ".y", "a/b", "zarr.json", ""])
def test_names_of_outputs_that_a_store_cannot_have_are_refused(name):
    with pytest.raises(OutputError, match="the name of an output must be"):
        run(lambda x: {name: x.load})


def test_a_target_of_a_complex_output_is_refused_after_the_first_group():
    calls = []

    def model(x):
        calls.append(x.n_samples)
        return {"y": x.load * (1.0 + 1.0j)}

    with pytest.raises(TypeError, match=r"propagate: target must name real outputs, .*got 'y' of dtype complex128"):
        run(model, "auto", target={"y": 0.01})
    assert len(calls) == 1


def test_a_long_journal_is_compacted_before_the_end(tmp_path, monkeypatch):
    whole = run(store=tmp_path / "whole.zarr")
    monkeypatch.setattr("ensemble.uq.study.plan.JOURNAL_BYTES", 5000)
    lengths = []

    def model(x):
        lengths.append((tmp_path / "often.zarr" / ".ensemble" / "journal").stat().st_size)
        return beam(x)

    often = run(model, store=tmp_path / "often.zarr")
    assert same_bits(often, whole) and max(lengths) < 5000 and lengths.count(16) == 2
    for name in ("tip/c.0", "load/c.0", "done/c.0", ".ensemble/checksums.json"):
        assert (tmp_path / "often.zarr" / name).read_bytes() == (tmp_path / "whole.zarr" / name).read_bytes()


def test_warnings_of_solvers_name_samples_by_their_numbers_in_the_study():
    """Groups of four: the numbers are those of `failed`, whatever the place in the group."""

    def model(x):
        solved = en.ode.solve(lambda t, y, p, xp: [p[0] * y[0] * y[0]], [1.0], (0.0, 1.0), p=[x.load], max_steps=100)
        return solved.y[0]

    with pytest.warns(en.ode.OdeWarning) as caught:
        result = run(model, n=16, ensemble_size=4, on_failure="mask")
    text = " ".join(str(warning.message) for warning in caught)
    named = {int(i) for part in re.findall(r"samples? ([\d, ]+) of the study", text) for i in part.split(",")}
    assert named == set(np.flatnonzero(result.failed)) and max(named) >= 4


@pytest.mark.parametrize("size", [1, 3, 8, 32, 33])
def test_solvers_with_a_shared_right_hand_side_run_in_groups_of_one_sample(size):
    """There they return an array instead of an Ensemble; the last of 33 samples is alone in groups of 8 and 32."""
    ones, n = np.ones(20), 33
    diagonals = scipy.sparse.diags_array([-ones[1:], 2.0 * ones, -ones[1:]], offsets=[-1, 0, 1])
    laplace = CrsMatrix.from_scipy(diagonals.tocsr())

    def model(x):
        return {"u": direct(x.load * laplace, ones).x, "v": (x.stiffness * laplace) @ ones}

    whole = run(model, n=n, ensemble_size=n, sampler=MonteCarlo())
    assert same_bits(run(model, n=n, ensemble_size=size, sampler=MonteCarlo()), whole)


def test_a_sample_that_fails_again_alone_may_return_anything():
    def model(x):
        if x.n_samples == 1 and float(x.load) > 1.0:
            return float("nan")
        return en.xp.astype(en.xp.where(x.load > 1.0, np.nan, x.load), en.xp.float32)

    result = run(model, n=16, ensemble_size=16, on_failure="retry")
    np.testing.assert_array_equal(result.failed, INPUTS.samples(16, seed=7).load.samples > 1.0)
