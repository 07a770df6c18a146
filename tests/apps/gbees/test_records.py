"""Saved runs against the public program's records, files there and back, and runs that go on where they stopped."""

import dataclasses
import warnings

import numpy as np
import pytest

from ensemble.apps.gbees import (
    Cells,
    Configuration,
    Drift,
    Measurement,
    RecordedRun,
    SavedRun,
    configuration,
    read_binary,
    read_text,
)
from ensemble.apps.gbees.run import recorded_run
from ensemble.apps.gbees.systems.oscillators import duffing
from tests.apps.gbees.references import reference


def circle(x, t, xp):
    return x[1], -x[0]


SMALL = Configuration(
    "circle",
    circle,
    np.array([1.0, 0.0]),
    0.04 * np.eye(2),
    0.5,
    (Measurement(lambda x, xp: (x[0],), (0.9,), 0.01 * np.eye(1), 0.4),),
    records=3,
    options={"threshold": 1e-4},
    axes=("x", "v"),
)

DRIVEN = Configuration("driven", duffing, np.array([0.0, 1.0]), 0.01 * np.eye(2), 0.6, records=3,
                       options={"threshold": 1e-5, "time_varying": True})  # fmt: skip


def same(a, b):
    """Two saved runs agree to the bit."""
    mine, theirs = a.arrays(), b.arrays()
    assert set(mine) == set(theirs)
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)


@pytest.mark.parametrize("case, name", [("l63_p5e-6", "lorenz63")])
def test_the_published_run_is_recorded_as_the_public_program_records_it(case, name):
    data = reference(case)
    got = RecordedRun(configuration(name)).run()
    assert (len(got.steps), got.cell_steps) == (963, 6_512_143)
    assert got.spans == [0] * 5 + [1] * 5
    for k, (cells, span) in enumerate(zip(got.distributions, got.spans, strict=True)):
        record = f"P{span}_pdf_{k - 5 * span}"
        np.testing.assert_allclose(cells.time, data[f"{record}_t"], rtol=1e-13)
        np.testing.assert_array_equal(cells.indices, data[f"{record}_s"])
        np.testing.assert_allclose(cells.probabilities, data[f"{record}_p"], rtol=1e-11)
    np.testing.assert_allclose(got.step_times[-1], 2.0, rtol=1e-12)


def test_records_are_at_the_configurations_times_and_around_measurements():
    got = RecordedRun(SMALL).run()
    np.testing.assert_allclose([c.time for c in got.distributions], [0.0, 0.25, 0.5, 0.5, 0.7, 0.9], rtol=1e-15)
    assert got.spans == [0, 0, 0, 1, 1, 1] and len(got.log_evidences) == 1
    assert all(c.probabilities.min() >= 1e-4 for c in got.distributions)
    np.testing.assert_allclose(got.step_times[-1], 0.9, rtol=1e-14)


@pytest.mark.parametrize(
    "times, expected",
    [
        ([0.3], [(0.3, 0)]),
        ([0.0, 0.5, 0.9], [(0.0, 0), (0.5, 0), (0.9, 1)]),
        ([0.6, 0.1], [(0.1, 0), (0.6, 1)]),
        ([], []),
    ],
)
def test_records_are_where_they_are_asked_for_and_the_run_goes_to_its_end(times, expected):
    run = RecordedRun(SMALL, times=times)
    got = run.run()
    assert [(c.time, span) for c, span in zip(got.distributions, got.spans, strict=True)] == expected
    assert run.done and len(got.log_evidences) == 1
    np.testing.assert_allclose(run.gbees.time, 0.9, rtol=1e-15)


@pytest.mark.parametrize("every", [1, 3, 50])
def test_every_so_many_steps_without_cutting_one(every):
    plain = RecordedRun(SMALL, times=[0.0, 0.9]).run()
    got = RecordedRun(SMALL, times=[0.0, 0.9], every=every).run()
    np.testing.assert_array_equal(got.steps.cells, plain.steps.cells)
    np.testing.assert_array_equal(got.steps.lengths, plain.steps.lengths)
    np.testing.assert_array_equal(got.distributions[-1].probabilities, plain.distributions[-1].probabilities)
    times = np.array([c.time for c in got.distributions])
    step_of = np.array([0, *(1 + np.argmin(np.abs(got.step_times - time)) for time in times[1:])])
    np.testing.assert_allclose(times[1:], got.step_times[step_of[1:] - 1], rtol=1e-12)
    gaps = np.diff(step_of)[:-1]
    # The step count starts anew at no record of its own: 0.5, where the measurement is, cuts a step but is no record.
    assert np.all(gaps >= every)
    assert every > 10 or np.all(gaps <= every + 1)


@pytest.mark.parametrize("problem", [SMALL, DRIVEN], ids=lambda c: c.name)
@pytest.mark.parametrize("stop_at", [2, 9])
def test_an_interrupted_run_goes_on_to_the_bit(problem, stop_at, tmp_path):
    whole = RecordedRun(problem).run()
    path = tmp_path / "run.npz"
    calls = []

    def interrupt(time, cells, cell_steps):
        calls.append(time)
        if len(calls) == stop_at:
            raise KeyboardInterrupt

    first = RecordedRun(problem, checkpoint=path)
    first.gbees.report_each_step()
    with pytest.raises(KeyboardInterrupt):
        first.run(callback=interrupt)
    assert 0 < len(first.saved_run.steps) < len(whole.steps)
    again = RecordedRun.resume(problem, path)
    assert again.gbees.time == first.gbees.time
    same(again.run(), whole)


def test_a_run_goes_on_from_between_records_and_can_be_read_meanwhile(tmp_path):
    path = tmp_path / "run.npz"
    RecordedRun(SMALL, checkpoint=path).run(until=0.5)
    halfway = SavedRun.load(path)
    assert [c.time for c in halfway.distributions] == [0.0, 0.25, 0.5, 0.5]
    same(RecordedRun.resume(SMALL, path).run(), RecordedRun(SMALL).run())


def test_a_checkpoint_is_written_when_it_is_due(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    monkeypatch.setattr("ensemble.apps.gbees.run.recorded_run.clock.monotonic", iter(range(10**6)).__next__)
    saved = []
    write = recorded_run.write_arrays
    monkeypatch.setattr(
        "ensemble.apps.gbees.run.recorded_run.write_arrays",
        lambda target, arrays: (saved.append(len(arrays["step_cells"])), write(target, arrays)),
    )
    got = RecordedRun(SMALL, checkpoint=path, checkpoint_seconds=3.0, backend="array").run()
    assert len(saved) > 6 and np.all(np.diff(saved) >= 0)
    same(got, RecordedRun(SMALL, backend="array").run())


def test_a_grid_that_cannot_go_on_leaves_a_checkpoint_of_its_last_step(tmp_path):
    def breaks(x, t, xp):
        return x[1] / xp.sqrt(1.3 - x[0]), 0.0 * x[0]

    path = tmp_path / "run.npz"
    problem = dataclasses.replace(SMALL, drift=breaks, mean=np.array([0.0, 1.0]))
    run = RecordedRun(problem, checkpoint=path)
    with warnings.catch_warnings(), pytest.raises(ValueError, match="finite"):
        warnings.simplefilter("ignore")
        run.run()
    kept = SavedRun.load(path)
    assert len(kept.steps) > 0 and len(kept.distributions) >= 1


# --- files


def test_a_recording_comes_back_from_its_file(tmp_path):
    got = RecordedRun(SMALL, rotate=True).run()
    got.save(tmp_path / "r.npz")
    back = SavedRun.load(tmp_path / "r.npz")
    same(back, got)
    assert back.title == "circle" and back.threshold == 1e-4
    assert back.distributions[0].indices.dtype == np.int64 and back.distributions[0].rotation is not None
    assert [path.name for path in tmp_path.iterdir()] == ["r.npz"]


@pytest.mark.parametrize("form, read, digits", [("text", read_text, 1e-10), ("binary", read_binary, 0.0)])
def test_exported_distributions_are_the_public_programs_files(form, read, digits, tmp_path):
    got = RecordedRun(SMALL).run()
    written = got.export(tmp_path / "out", form=form)
    ending = {"text": "txt", "binary": "bin"}[form]
    names = [str(path.relative_to(tmp_path)) for path in written]
    assert names == [f"out/P{m}/pdf_{i}.{ending}" for m in (0, 1) for i in range(3)]
    for path, cells in zip(written, got.distributions, strict=True):
        back = read(path).cells(cells.origin, cells.widths)
        np.testing.assert_array_equal(back.indices, cells.indices)
        np.testing.assert_allclose(back.probabilities, cells.probabilities, rtol=digits)


def test_large_indices_keep_their_values(tmp_path):
    for largest in (127, 128, 40_000, 2**40):
        s = np.array([[-largest, 0], [1, largest]])
        saved_run = SavedRun(threshold=0.0)
        saved_run.keep(Cells(s, np.array([0.5, 0.5]), np.zeros(2), np.ones(2)), 0)
        saved_run.save(tmp_path / "r.npz")
        np.testing.assert_array_equal(SavedRun.load(tmp_path / "r.npz").distributions[0].indices, s)


def test_damaged_and_foreign_files_are_refused(tmp_path):
    got = RecordedRun(SMALL, checkpoint=tmp_path / "c.npz")
    got.run(until=0.25)
    whole = (tmp_path / "c.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut.npz must be a whole .npz file"):
        SavedRun.load(tmp_path / "cut.npz")
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"must be a whole .npz file"):
        SavedRun.load(tmp_path / "array.npy")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="must hold 'format'; got 1 other arrays"):
        SavedRun.load(tmp_path / "other.npz")
    arrays = got.saved_run.arrays()
    with pytest.raises(ValueError, match="must be of format 1; got 7"):
        SavedRun.of({**arrays, "format": np.array(7)})
    with pytest.raises(ValueError, match="distribution 1 must have one probability per cell"):
        SavedRun.of({**arrays, "probabilities_1": np.ones(2)})
    with pytest.raises(ValueError, match="lengths that differ"):
        SavedRun.of({**arrays, "step_cells": np.ones(2)})
    with pytest.raises(FileNotFoundError):
        SavedRun.load(tmp_path / "nothing.npz")
    got.saved_run.save(tmp_path / "r.npz")
    with pytest.raises(ValueError, match=r"must be a checkpoint; got an .npz file without"):
        RecordedRun.resume(SMALL, tmp_path / "r.npz")


def faster(x, t, xp):
    return x[1], -1.5 * x[0]


def branching(x, xp):
    return x[0] if float(np.sum(x[0])) > -1e9 else x[1]  # asks a traced value for a number


def other_measurement(**values):
    return {"measurements": (dataclasses.replace(SMALL.measurements[0], **values),)}


SPRING = Drift(lambda x, t, xp, k: (x[1], -k * x[0]), (1.0,), ("k",))
BOUNDED = dataclasses.replace(SMALL, options={"threshold": 1e-4, "bounds": lambda x, xp: x[0] + 0.5 * x[1]})


@pytest.mark.parametrize(
    "options, text",
    [
        ({"threshold": 2e-4}, "got another threshold: 0.0001 there, 0.0002 here"),
        ({"factor": 2.0}, "got another widths"),
        ({"dtype": np.float32}, "got another dtype: float64 there, float32 here"),
        ({"times": [0.3]}, "another schedule"),
        ({"limiter": "superbee"}, "got another limiter: mc there, superbee here"),
        ({"cfl": 0.5}, "got another cfl: 1.0 there, 0.5 here"),
        ({"prune": "parallel"}, "got another prune: sequential there, parallel here"),
        ({"prune_every": 7}, "got another prune_every: 20 there, 7 here"),
        ({"diffusion": 0.01}, r"got another diffusion: None there, \[0.01, 0.01\] here"),
        ({"periods": (6.0, None)}, "another periods"),
        ({"rotate": True}, "another rotation"),
        ({"time_varying": True}, "got another time_varying: False there, True here"),
        ({"bounds": lambda x, xp: x[0]}, "another bounds"),
        ({"backend": "numpy"}, "got another backend: array there, numpy here"),
        ({"cfl": 0.5, "limiter": "none"}, "another limiter: mc there, none here; another cfl: 1.0 there, 0.5 here"),
    ],
)
def test_a_checkpoint_of_a_run_with_other_options_is_refused(options, text, tmp_path):
    RecordedRun(SMALL, checkpoint=tmp_path / "c.npz", backend="array").run(until=0.25)
    with pytest.raises(ValueError, match=rf"c.npz must be of the same run; .*{text}"):
        RecordedRun.resume(SMALL, tmp_path / "c.npz", **{"backend": "array", **options})


@pytest.mark.parametrize(
    "first, changes, text",
    [
        (SMALL, {"drift": faster}, r"another drift, in line 1 of its program: t0 = .* there, t0 = multiply\("),
        (SMALL, {"covariance": np.array([[0.04, 0.01], [0.01, 0.04]])}, "got another start: 169 cells"),
        (SMALL, other_measurement(y=(0.8,)), "got another y of measurement 0: .0.9. there, .0.8. here"),
        (SMALL, other_measurement(R=0.02 * np.eye(1)), "another R of measurement 0: ..0.01.. there, ..0.02.. here"),
        (SMALL, other_measurement(h=lambda x, xp: (x[1],)), r"of measurement 0.*: result x\[0\] there, .* x\[1\] here"),
        (SMALL, other_measurement(h=branching), "another h of measurement 0, in line 1 of its program"),
        (dataclasses.replace(SMALL, drift=SPRING), {"drift": SPRING.with_parameters(k=2.0)},
         "got another drift parameters: .1.0. there, .2.0. here"),
        (BOUNDED, {"options": {"threshold": 1e-4, "bounds": lambda x, xp: x[0] + 0.6 * x[1]}}, "another bounds"),
    ],
)  # fmt: skip
def test_a_checkpoint_of_another_problem_is_refused(first, changes, text, tmp_path):
    RecordedRun(first, checkpoint=tmp_path / "c.npz", backend="array").run(until=0.25)
    with pytest.raises(ValueError, match=rf"c.npz must be of the same run; .*{text}"):
        RecordedRun.resume(dataclasses.replace(first, **changes), tmp_path / "c.npz", backend="array")


def test_the_same_problem_written_anew_goes_on(tmp_path):
    again = dataclasses.replace(SMALL, drift=lambda x, t, xp: (x[1], -x[0]), **other_measurement(h=lambda x, xp: x[0]))
    RecordedRun(SMALL, checkpoint=tmp_path / "c.npz", backend="array").run(until=0.25)
    assert RecordedRun.resume(again, tmp_path / "c.npz", backend="array", memory_limit=1e9).gbees.time == 0.25


@pytest.mark.parametrize(
    "options, text",
    [
        ({"times": [1.0]}, r"times must lie between 0 and 0.9; got \[1.0\]"),
        ({"times": [-0.1, 0.2]}, "times must lie between"),
        ({"times": [0.1, np.nan, 0.2]}, "times must lie between"),
        ({"time": np.nan}, "Gbees: time must be finite; got nan"),
        ({"every": 0}, "every must be an integer of at least 1"),
        ({"checkpoint_seconds": 0.0}, "checkpoint_seconds must be a finite number above zero"),
    ],
)
def test_bad_input_is_named(options, text):
    with pytest.raises(ValueError, match=text):
        RecordedRun(SMALL, **options)


def test_a_run_to_no_time_is_refused():
    with pytest.raises(ValueError, match=r"RecordedRun.run: until must be a number; got nan"):
        RecordedRun(SMALL, backend="array").run(until=float("nan"))


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"records": 1}, "Configuration: records must be an integer of at least 2; got 1"),
        ({"span": np.nan}, "Configuration: span must be a finite number above zero; got nan"),
    ],
)
def test_a_configuration_that_runs_nothing_is_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        dataclasses.replace(SMALL, **changes)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"R": -np.eye(1)}, "measurement 0: R must be a covariance matrix, positive definite"),
        ({"R": np.eye(2)}, r"measurement 0: R must be a number or have shape \(1,\) or \(1, 1\)"),
        ({"y": (np.nan,)}, "measurement 0: y must be finite"),
        ({"h": lambda x, xp: x}, "measurement 0: h must give one number for each of y; got 2 for 1 measured"),
        ({"h": lambda x, xp: x[3]}, "measurement 0: h must take n scalars x and a namespace; got IndexError"),
    ],
)
def test_a_measurement_that_cannot_be_used_is_refused_before_the_first_step(changes, text):
    with pytest.raises(ValueError, match=text):
        RecordedRun(dataclasses.replace(SMALL, **other_measurement(**changes)), backend="array")


def test_the_span_of_a_measurement_is_checked():
    with pytest.raises(ValueError, match="Measurement: span must be a finite number above zero; got inf"):
        other_measurement(span=np.inf)
