"""Studies that are killed at any moment and resumed otherwise end as undisturbed ones."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ensemble as en
from tests.uq.store.trees import tree
from tests.uq.study.models import INPUTS, slow_beam

ROOT = Path(__file__).parents[3]

PROGRAM = """
import sys
import ensemble as en
from tests.uq.study.models import INPUTS, slow_beam

if __name__ == "__main__":
    path, size, executor, resume = sys.argv[1:]
    en.propagate(slow_beam, INPUTS, 2048, seed=7, progress=False, store=path, resume=resume == "True",
                 ensemble_size=int(size), executor=int(executor) or None)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Store.open. record:RuntimeWarning")
def test_a_study_killed_at_random_moments_has_the_files_of_an_undisturbed_one(tmp_path):
    """With another ensemble size after each kill, and at last two processes."""
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    rng = np.random.default_rng(31013)
    store = tmp_path / "killed.zarr"
    n_done = []
    for k in range(6):
        words = [store, [8, 33, 16][k % 3], 0, en.uq.Store.exists(store)]
        process = subprocess.Popen([sys.executable, tmp_path / "program.py", *map(str, words)], env=environment)
        while process.poll() is None and not (store / ".ensemble" / "journal").exists():
            time.sleep(0.01)
        time.sleep(rng.uniform(1.0, 4.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        with en.uq.Store.open(store) as reader:
            n_done.append(int(reader.done().sum()))
    assert n_done == sorted(n_done) and n_done[0] < 2048
    command = [sys.executable, tmp_path / "program.py", store, "32", "2", "True"]
    subprocess.run([*map(str, command)], env=environment, check=True)
    whole = tmp_path / "whole.zarr"
    en.propagate(slow_beam, INPUTS, 2048, seed=7, progress=False, store=whole, ensemble_size=512)
    assert tree(store) == tree(whole)
