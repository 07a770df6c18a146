"""Compiled kernels on disk: what their key contains, and that processes may write them at once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ensemble
from ensemble._compile import machine_code

ROOT = Path(ensemble.__file__).parents[1]

CODE = """
import numpy as np
from ensemble._compile import machine_code
from ensemble._kernels.krylov import vectors
made = []
kept_file = machine_code.kept_file
machine_code.kept_file = lambda name, make: kept_file(name, lambda: made.append(name) or make())
for n_samples in {widths}:
    x, before = np.ones((3, n_samples)), len(made)
    vectors.dot(x, x, None)
    print(len(made) - before)
"""


def misses(folder, cache, widths=(4,)):
    """Kernels that a new process compiles, by width."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", CODE.format(widths=widths)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, cwd=folder)
    return [int(line) for line in done.stdout.split()]


@pytest.fixture
def copied(tmp_path):
    """A copy of the library, whose sources a test may edit."""
    shutil.copytree(ROOT / "ensemble", tmp_path / "copy" / "ensemble", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "copy"


def test_names_of_files_depend_on_the_sources_of_the_lanes_and_on_the_processor(monkeypatch):
    """What is made for sources that were edited, or on another processor, has a name of its own."""
    names = []
    monkeypatch.setattr(machine_code, "_alive", {})
    monkeypatch.setattr(machine_code, "kept_file", lambda name, make: names.append(name) or b"")
    monkeypatch.setattr(machine_code, "Code", lambda content, functions: names[-1])
    digest, target = machine_code.digest_of, machine_code.target
    machine_code.kept_code("text", None, [], str)
    machine_code.kept_code("another text", None, [], str)
    monkeypatch.setattr(machine_code, "digest_of", lambda folder: digest(folder) + "edited" * (folder == "_compile"))
    machine_code.kept_code("text", None, [], str)
    monkeypatch.setattr(machine_code, "digest_of", digest)
    monkeypatch.setattr(machine_code, "target", lambda: (*target()[:2], "+another"))
    machine_code.kept_code("text", None, [], str)
    assert len(set(names)) == len(names) == 4


@pytest.mark.slow
def test_an_edit_of_the_lanes_compiles_kernels_anew(copied, tmp_path):
    """The file of the kernel itself is not changed by such an edit."""
    first = misses(copied, tmp_path / "cache")
    assert first[0] > 0
    assert misses(copied, tmp_path / "cache") == [0]
    lanes = copied / "ensemble" / "_compile" / "lanes" / "types.py"
    lanes.write_text(lanes.read_text() + "\n# edited\n")
    assert misses(copied, tmp_path / "cache") == first


def test_processes_that_compile_at_once_lose_no_kernel(tmp_path):
    """Each process writes the kernels of its width into the folder of all."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    widths = (1, 4)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CODE.format(widths=(n,))], env=environment, stdout=subprocess.DEVNULL, cwd=ROOT
        )
        for n in widths
    ]
    assert [process.wait() for process in running] == [0] * len(widths)
    assert misses(ROOT, tmp_path, widths) == [0] * len(widths)
