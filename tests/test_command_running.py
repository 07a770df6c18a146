"""Options of the command for long studies: reruns, time limits, programs, parts of a study."""

import json
import sys

import pytest

from tests.command_line import exit_status

MODEL = """
import os
from scipy import stats
import ensemble as en

inputs = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))

def tip(x):
    if not os.path.exists("licence"):
        x.fail(x.load > 1.2, "no licence")
    return {"tip": x.load / x.stiffness}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a model in it."""
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def ensemble(capsys, *arguments):
    """Status and what was printed."""
    status = exit_status([str(argument) for argument in arguments])
    return status, *capsys.readouterr()


def test_failed_samples_run_again_from_the_shell(folder, capsys):
    status, _, _ = ensemble(capsys, "run", "model.py:tip", "-n", 64, "--store", "run.zarr", "--quiet")
    assert status == 1
    status, out, _ = ensemble(capsys, "status", "run.zarr")
    assert status == 1 and "failed: no licence" in out and "ensemble resume --failed run.zarr" in out
    (folder / "licence").touch()
    assert ensemble(capsys, "resume", "run.zarr", "--quiet")[0] == 1  # without the option they stay as they are
    status, out, _ = ensemble(capsys, "resume", "--failed", "run.zarr", "--quiet")
    assert status == 0 and "succeeded when run again: no licence" in out
    status, out, _ = ensemble(capsys, "status", "run.zarr", "--json")
    found = json.loads(out)
    counts = found["failures"]["no licence"]
    assert status == 0 and counts == {"failed": 0, "repeated": 0, "recovered": found["run_again"]}
    ensemble(capsys, "run", "model.py:tip", "-n", 64, "--store", "calm.zarr", "--quiet")
    printed = [ensemble(capsys, "stats", store)[1].splitlines()[2:] for store in ("run.zarr", "calm.zarr")]
    assert [line for line in printed[0] if "run again" not in line] == printed[1]
