"""Failed samples of a stored study run again: the same bits as without the fault, and the reasons of all attempts."""

import numpy as np
import pytest

import ensemble as en
from ensemble.uq import Store, open_study
from ensemble.uq.study.failures import Failures, failures_by_reason, kind_of_reason
from tests.uq.study.models import INPUTS, SWITCH, beam, faulty, same_bits


def study(path, monkeypatch, faults="", n=256, **options):
    monkeypatch.setenv(SWITCH, faults)
    options = {"ensemble_size": 32, "resume": Store.exists(path)} | options
    return en.propagate(faulty, INPUTS, n, seed=7, progress=False, store=path, on_failure="mask", **options)


@pytest.mark.parametrize("keep", ["all", "statistics"])
@pytest.mark.parametrize(
    "again", [{}, pytest.param({"executor": 2}, marks=pytest.mark.slow), {"ensemble_size": 5}, {"n": 512}], ids=str
)
def test_a_study_whose_fault_went_away_ends_with_the_bits_of_one_without(tmp_path, monkeypatch, keep, again):
    if "executor" in again and keep == "all":
        pytest.skip("one run by processes is enough")
    n = again.get("n", 256)
    expected = study(tmp_path / "calm.zarr", monkeypatch, n=n, keep=keep)
    first = study(tmp_path / "run.zarr", monkeypatch, "licence disk", keep=keep)
    assert first.n_failed > expected.n_failed + 50
    kept = study(tmp_path / "run.zarr", monkeypatch, keep=keep)
    assert kept.n_failed == first.n_failed  # without retry_failed they stay as they are
    found = study(tmp_path / "run.zarr", monkeypatch, keep=keep, retry_failed=True, **again)
    assert same_bits(found, expected) and np.array_equal(found.failed, expected.failed)
    assert found.reasons == expected.reasons
    assert same_bits(open_study(tmp_path / "run.zarr"), open_study(tmp_path / "calm.zarr"))


def test_reasons_of_all_attempts_are_kept_and_counted(tmp_path, monkeypatch):
    path = tmp_path / "run.zarr"
    first = study(path, monkeypatch, "licence")
    study(path, monkeypatch, "licence disk", retry_failed=True)
    last = study(path, monkeypatch, retry_failed=True)
    again = open_study(path)
    for result in (last, again):
        transient = sorted(i for i, text in first.reasons.items() if "licence" in text and i not in last.reasons)
        assert result.earlier_reasons[transient[0]] == ("no licence for process 17",) * 2
        assert result.attempts[transient[0]] == 3 and set(result.attempts) == {1, 3}
        real = result.n_failed
        assert result.failures["diverged"] == Failures(real, real, 0)
        assert result.failures["no licence for process 17"] == Failures(0, 0, len(transient))
    saved = last.save(tmp_path / "copy.zarr") or open_study(tmp_path / "copy.zarr")
    assert saved.earlier_reasons == last.earlier_reasons


@pytest.mark.parametrize("where", ["journal", "compacted"])
def test_an_interrupted_rerun_goes_on_and_loses_nothing(tmp_path, monkeypatch, where):
    path, expected = tmp_path / "run.zarr", study(tmp_path / "calm.zarr", monkeypatch)
    study(path, monkeypatch, "licence")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt) as caught:
        if where == "journal":  # a kill before the end: the records of both attempts stay in the journal
            patched.setattr(Store, "compact", lambda *_: None)
        study(path, patched, "kill", retry_failed=True, ensemble_size=32)
    done = caught.value.result
    assert 0 < done.n_failed < 200 and open_study(path).reasons == done.reasons
    found = study(path, monkeypatch, retry_failed=True)
    assert same_bits(found, expected) and found.reasons == expected.reasons
    assert found.attempts.max() <= 3 and open_study(path).earlier_reasons == found.earlier_reasons


def test_a_kill_inside_any_write_of_a_compaction_counts_no_attempt_twice(tmp_path, monkeypatch):
    from ensemble import _files

    path, expected = tmp_path / "run.zarr", study(tmp_path / "calm.zarr", monkeypatch)
    study(path, monkeypatch, "licence")
    commit, left = _files.Replacements.commit, [0]

    def killed(self):
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        left[0] -= 1
        commit(self)

    for n_commits in range(3):
        left[0] = n_commits
        with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
            patched.setattr(_files.Replacements, "commit", killed)
            study(path, patched, retry_failed=n_commits == 0)
    found = study(path, monkeypatch)
    assert same_bits(found, expected) and found.reasons == expected.reasons
    assert set(found.attempts) == {1, 2}


def test_a_retry_at_once_keeps_the_first_reason():
    calls = set()

    def twice(load, stiffness):
        if load > 1.2 and load not in calls:
            calls.add(load)
            raise ConnectionError("no licence")
        return load / stiffness

    result = en.propagate(
        en.vectorize(twice, keywords=True), INPUTS, 64, seed=7, on_failure="retry", progress=False, ensemble_size=32
    )
    assert result.n_failed == 0 and result.failures == {"ConnectionError: no licence": Failures(0, 0, len(calls))}
    assert "succeeded when run again: ConnectionError" in repr(result)


def test_a_plan_gives_failed_samples_again(tmp_path):
    def told(again, **options):
        with en.plan(INPUTS, 64, seed=7, store=tmp_path / "run.zarr", **options) as work:
            for group in work.groups():
                x = group.samples.load.samples
                work.tell(group, {"y": x}, failed=np.zeros(x.shape, bool) if again else x > 1.1)
            return work.result()

    assert told(False).n_failed > 5
    assert told(False, resume=True).n_failed > 5
    assert told(True, resume=True, retry_failed=True).n_failed == 0


def test_sensitivity_indices_take_failed_samples_again(tmp_path, monkeypatch):
    def indices(path, faults="", **options):
        monkeypatch.setenv(SWITCH, faults)
        return en.sobol_indices(faulty, INPUTS, 64, seed=7, store=path, progress=False, on_failure="mask", **options)

    indices(tmp_path / "run.zarr", "licence")
    found = indices(tmp_path / "run.zarr", resume=True, retry_failed=True)
    expected = indices(tmp_path / "calm.zarr")
    assert np.array_equal(found.first["tip"], expected.first["tip"])


def test_a_number_of_attempts_ends_reruns(tmp_path, monkeypatch):
    path = tmp_path / "run.zarr"
    first = study(path, monkeypatch, n=128)
    always = first.n_failed
    assert always > 0
    for n_attempts in (2, 3, 3, 3):
        found = study(path, monkeypatch, n=128, retry_failed=3)
        assert found.attempts[first.failed].tolist() == [n_attempts] * always
    assert set(study(path, monkeypatch, n=128, retry_failed=np.int64(4)).attempts) == {1, 4}
    part = {"part": "1/1", "resume": False}
    assert set(study(path, monkeypatch, n=128, retry_failed=4, **part).attempts) == {1, 4}
    assert set(study(path, monkeypatch, n=128, retry_failed=5, **part).attempts) == {1, 5}
    assert set(study(path, monkeypatch, n=128, retry_failed=True).attempts) == {1, 6}


def test_samples_without_attempts_left_stay_while_others_run_again(tmp_path, monkeypatch):
    path = tmp_path / "run.zarr"
    before = study(path, monkeypatch, n=64)
    for _ in range(2):
        study(path, monkeypatch, n=64, retry_failed=True)
    study(path, monkeypatch, "licence", n=256)
    found = study(path, monkeypatch, n=256, retry_failed=3)
    assert same_bits(found, study(tmp_path / "calm.zarr", monkeypatch))
    assert set(found.attempts[:64][before.failed]) == {3} and set(found.attempts[64:]) == {1, 2}


@pytest.mark.parametrize(
    ("given", "error", "seen"),
    [
        ("yes", TypeError, "be True, False or a number of attempts; got 'yes'"),
        (None, TypeError, "be True, False or a number of attempts; got None"),
        (2.0, TypeError, "be True, False or a number of attempts; got 2.0"),
        (1, ValueError, "be an integer of at least 2; got 1."),
        (0, ValueError, "be an integer of at least 2; got 0."),
    ],
    ids=str,
)
@pytest.mark.parametrize("options", [{"resume": True}, {"part": "1/2"}], ids=str)
def test_wrong_numbers_of_attempts_are_refused(tmp_path, given, error, seen, options):
    with pytest.raises(error, match=f"propagate: retry_failed must {seen}"):
        en.propagate(beam, INPUTS, 32, seed=1, store=tmp_path / "run.zarr", retry_failed=given, **options)
    assert not (tmp_path / "run.zarr").exists()


def test_a_rerun_needs_a_study(tmp_path):
    with pytest.raises(ValueError, match=r"propagate: retry_failed must go with resume=True; got resume=False"):
        en.propagate(beam, INPUTS, 32, store=tmp_path / "run.zarr", retry_failed=True)


def test_a_store_takes_again_what_has_failed_and_nothing_else(tmp_path):
    with Store.create(tmp_path / "run.zarr", {"n": 4, "seed": 1}) as store:
        store.append(np.arange(3), {"y": np.arange(3.0)}, np.array([False, True, True]), {1: "a", 2: "b"})
        with pytest.raises(ValueError, match=r"Store.append: ids must be samples that are not stored; got sample 0"):
            store.append(np.array([0, 1]), {"y": np.zeros(2)}, again=True)
        with pytest.raises(ValueError, match="ids must be samples that are not stored; got sample 1"):
            store.append(np.array([1]), {"y": np.zeros(1)})
        store.append(np.array([1, 2]), {"y": np.array([5.0, 6.0])}, np.array([False, True]), {2: "c"}, again=True)
    store = Store.open(tmp_path / "run.zarr")
    assert store.read("y", [0, 1]).tolist() == [0.0, 5.0]
    assert store.reasons() == {2: "c"} and store.earlier_reasons() == {1: ["a"], 2: ["b"]}


@pytest.mark.parametrize(
    "text, kind",
    [
        ("ValueError: load 0.31 is below 1e-3", "ValueError: load # is below #"),
        ("exit code 139; step 7\nlast lines:\n  a", "exit code 139; step #"),
        ("", "no reason was given"),
        ("model2 failed in step -4", "model2 failed in step #"),
    ],
)
def test_reasons_that_differ_in_numbers_are_one_kind(text, kind):
    assert kind_of_reason(text) == kind


def test_counts_name_a_single_text_as_it_is():
    reasons = {1: "exit code 3", 2: "exit code 3", 5: "step 4", 6: "step 5"}
    assert failures_by_reason(reasons, {2: ["step 9"], 9: ["step 1", "step 2"]}) == {
        "step #": Failures(2, 0, 1),
        "exit code 3": Failures(2, 1, 0),
    }
