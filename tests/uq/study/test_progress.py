"""What a study says while it runs."""

import io

import numpy as np
import pytest

import ensemble as en
from ensemble.uq import MonteCarlo, Sobol
from ensemble.uq.study import progress as module
from tests.uq.study.models import INPUTS, beam, failing_above


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(monkeypatch, stream, model=beam, seconds=0.0, **options):
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", seconds)
    monkeypatch.setattr(module, "SECONDS_BETWEEN_INTERVALS", 0.0)
    en.propagate(model, INPUTS, 256, **{"seed": 7, "ensemble_size": 64} | options)
    return stream.getvalue()


@pytest.mark.parametrize("sampler", ["sobol", MonteCarlo()], ids=str)
def test_lines_tell_rate_interval_and_failures(monkeypatch, sampler):
    lines = run(monkeypatch, io.StringIO(), failing_above(1.3), sampler=sampler).splitlines()
    assert len(lines) == 4
    assert lines[-1].startswith("256/256 samples, ") and " a second, 0 s left, tip 0.3" in lines[-1]
    assert " to 0.3" in lines[-1] and lines[-1].endswith(" failed")


def test_lines_are_seconds_apart(monkeypatch):
    assert run(monkeypatch, io.StringIO(), seconds=5.0) == ""


def test_a_terminal_shows_a_bar(monkeypatch):
    text = run(monkeypatch, Terminal(), failing_above(1.3))
    assert "100%" in text and "256/256" in text and "failed" in text and "tip 0.3" in text


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["file", "terminal"])
def test_progress_can_be_left_out(monkeypatch, stream):
    assert run(monkeypatch, stream, progress=False, ensemble_size="auto") == ""


def test_the_chosen_size_is_told(monkeypatch):
    assert "ensemble size " in run(monkeypatch, io.StringIO(), ensemble_size="auto", seconds=5.0)


def test_without_an_interval_none_is_shown(monkeypatch):
    last = run(monkeypatch, io.StringIO(), sampler=Sobol(replicates=1)).splitlines()[-1]
    assert last.endswith("s left")


def test_a_bar_grows_with_its_target(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    en.propagate(beam, INPUTS, "auto", seed=7, target={"tip": 1e-9}, max_n=512, ensemble_size=64)
    assert "512/512" in stream.getvalue()


def test_a_model_without_real_outputs_shows_no_interval(monkeypatch):
    lines = run(monkeypatch, io.StringIO(), lambda x: {"z": 1j * x.load}).splitlines()
    assert lines[-1].endswith("s left") and np.all(["z" not in line for line in lines])
