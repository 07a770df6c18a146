"""A study killed at random moments ends with the files of an undisturbed one, byte for byte."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "kills, seed", [(5, 48211), pytest.param(50, 39175, marks=pytest.mark.slow)], ids=["5 kills", "50 kills"]
)
def test_a_killed_study_ends_with_the_files_of_an_undisturbed_one(tmp_path, kills, seed):
    """Other group sizes, orders, workers and numbers of samples after each kill; half of the kills hit compactions."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.uq.store.killed_study", str(tmp_path), str(kills), str(seed)],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["differing"] == []
    assert report["kills"] == kills and report["files"] > 100
    assert kills < 50 or min(report["phases"][1:]) >= 5
