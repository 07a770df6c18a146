"""Ctrl-C during `plan.tell`: the group counts once or not at all, at whichever line the signal comes."""

import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import ensemble as en
from ensemble.uq import open_study
from ensemble.uq.store.remote import Folder
from tests.uq.study.models import INPUTS, beam, same_bits

PACKAGE = Path(en.__file__).parent
FILES = (
    "uq/study/plan.py",
    "uq/study/study_memory.py",
    "uq/study/streams.py",
    "uq/store/store.py",
    "uq/store/index.py",
)


class Bell:
    """Sends SIGINT to this process at the line `place` of `FILES`, when it is first run."""

    def __init__(self, place=None):
        self.place, self.places = place, []

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.called)

    def __exit__(self, *_):
        sys.settrace(self.before)

    def called(self, frame, event, argument):
        name = frame.f_code.co_filename
        known = name.startswith(str(PACKAGE)) and Path(name).relative_to(PACKAGE).as_posix() in FILES
        return self.line if known else None

    def line(self, frame, event, argument):
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and place not in self.places:
            self.places.append(place)
            if place == self.place:
                sys.settrace(self.before)
                signal.raise_signal(signal.SIGINT)
        return self.line


def told(store, keep, again, bell):
    """A study of two groups, told by a user who goes on after each interrupt; with `again` its failed samples."""

    def groups(study, limit, bell):
        for _ in range(8):
            group = next(study.groups(), None)
            if group is None:
                return
            failed = group.samples.load.samples > limit
            reasons = {int(i): f"above {limit}" for i in group.ids[failed]}
            outputs = {name: values.samples for name, values in beam(group.samples).items()}
            try:
                with bell:
                    study.tell(group, outputs, failed=failed, reasons=reasons)
            except KeyboardInterrupt:
                pass
        raise AssertionError("groups are given again without end")

    options = {"seed": 7, "ensemble_size": 8, "store": store, "keep": keep}
    if again:
        with en.plan(INPUTS, 16, **options) as study:
            groups(study, 1.1, Bell())
        options |= {"resume": True, "retry_failed": True}
    with en.plan(INPUTS, 16, **options) as study:
        groups(study, 1.3, bell)
        return study.result()


KINDS = [(False, "all", False), (False, "statistics", False), (True, "all", False), (True, "statistics", False),
         (True, "all", True), (True, "statistics", True)]  # fmt: skip


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stored, keep, again", KINDS)
def test_an_interrupt_at_any_line_loses_nothing_and_counts_nothing_twice(tmp_path, stored, keep, again, step):
    bell = Bell()
    path = (lambda k: tmp_path / f"{k}.zarr") if stored else (lambda k: None)
    expected = told(path("calm"), keep, again, bell)
    assert len(bell.places) > 25
    places = bell.places if step == 1 else [*bell.places[::step], *[p for p in bell.places if "plan.py" in p[0]][::4]]
    for k, place in enumerate(places):
        found = told(path(k), keep, again, Bell(place))
        assert same_bits(found, expected) and found.earlier_reasons == expected.earlier_reasons, place
        assert np.array_equal(found.quantile("tip", 0.3), expected.quantile("tip", 0.3)), place
        if stored:
            kept = open_study(path(k))
            assert same_bits(kept, expected) and kept.earlier_reasons == expected.earlier_reasons, place


def test_an_interrupt_while_a_server_is_waited_for_ends_the_wait(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    expected, calls = told(None, "all", False, Bell()), []
    write = Folder.write

    def waits(self, name, data):
        if "groups/" in name and not calls:
            calls.append(name)
            signal.raise_signal(signal.SIGINT)
        write(self, name, data)

    monkeypatch.setattr(Folder, "write", waits)
    with monkeypatch.context():
        found = told("memory://interrupted/run.zarr", "all", False, Bell())
    assert len(calls) == 1 and same_bits(found, expected)
    assert same_bits(open_study("memory://interrupted/run.zarr"), expected)


@pytest.mark.parametrize("stored", [False, True])
def test_an_interrupt_while_a_study_grows_leaves_it_whole(tmp_path, stored):
    def grown(bell, path):
        with en.plan(INPUTS, 16, seed=7, ensemble_size=8, store=path if stored else None) as study:
            for n in (32, 64):
                while study.n < n:
                    try:
                        with bell:
                            study.extend(n)
                    except KeyboardInterrupt:
                        pass
                for group in study.groups():
                    study.tell(group, beam(group.samples))
            return study.result()

    bell = Bell()
    expected = grown(bell, tmp_path / "calm.zarr")
    for k, place in enumerate(p for p in bell.places if "plan.py" in p[0] or "store.py" in p[0]):
        assert same_bits(grown(Bell(place), tmp_path / f"{k}.zarr"), expected), place


def test_a_study_that_cannot_grow_stays_as_it_was(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with en.plan(INPUTS, 16, seed=7, store=tmp_path / "run.zarr") as study:
        with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
            patched.setattr("ensemble.uq.store.manifest.write", full)
            study.extend(32)
        assert study.n == 16 and study.samples.n_samples == 16
        for group in study.groups():
            study.tell(group, beam(group.samples))
        assert study.result().n_done == 16
