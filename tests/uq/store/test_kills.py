"""A study killed at random moments ends with the files of an undisturbed one, byte for byte."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "kind, kills, seed",
    [
        pytest.param("store", 4, 48211, marks=pytest.mark.slow),
        ("propagate", 4, 60347),
        pytest.param("store", 50, 39175, marks=pytest.mark.slow),
        pytest.param("propagate", 50, 75209, marks=pytest.mark.slow),
    ],
)
def test_a_killed_study_ends_with_the_files_of_an_undisturbed_one(tmp_path, kind, kills, seed):
    """Other group sizes, orders, workers and numbers of samples after each kill; half of the kills hit compactions."""
    command = [sys.executable, "-W", "error", "-m", "tests.uq.store.killed_study"]
    arguments = [kind, str(tmp_path), str(kills), str(seed)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["differing"] == []
    assert report["kills"] == kills and report["files"] > 100
    assert kills < 50 or min(*report["phases"][1:], report["with_workers"]) >= 5
