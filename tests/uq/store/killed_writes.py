"""A study of two parts and a rerun, killed at each write: ``python -m tests.uq.store.killed_writes FOLDER STEP``.

It prints the number of kills, and the kills after which the files are not those of a study that was never killed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from pathlib import Path

import numpy as np
from scipy import stats

import ensemble as en
from tests.uq.store.trees import tree

WRITES = ("write", "replace", "rename", "link", "unlink", "ftruncate", "fsync")
INPUTS = en.Inputs(a=stats.norm())
FAULTS = "ENSEMBLE_TEST_FAULT"


def model(x: en.uq.InputSamples) -> dict[str, en.Ensemble]:
    """Some samples fail in each run, some while there are faults."""
    x.fail(x.ids % 7 == 3, "diverged")
    if os.environ[FAULTS]:
        x.fail(x.ids % 5 == 1, "no licence")
    return {"y": 2.0 * x.a}


def steps(store: Path) -> None:
    """Both parts, and the rerun of what has failed."""
    options = {"seed": 3, "progress": False, "ensemble_size": 4, "store": store, "sampler": "monte_carlo"}
    os.environ[FAULTS] = "now"
    for part in ("1/2", "2/2"):
        en.propagate(model, INPUTS, 24, part=part, on_failure="mask", **options)
    os.environ[FAULTS] = ""
    en.propagate(model, INPUTS, 24, resume=True, retry_failed=True, on_failure="mask", **options)


def kill_at(k: int) -> None:
    """End this process, as a kill does, before its `k`-th write."""
    count = [0]

    def counted(function):
        def call(*arguments, **options):
            count[0] += 1
            if count[0] == k:
                os._exit(9)
            return function(*arguments, **options)

        return call

    for name in WRITES:
        setattr(os, name, counted(getattr(os, name)))


def in_child(store: Path, k: int | None) -> int:
    """The steps in a forked process that is killed at a write; its exit status."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if k is not None:
                kill_at(k)
            steps(store)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def files(store: Path) -> dict[str, bytes]:
    """The files of a study, without claims and what a kill has left beside a path.

    A sample that fails in each run may have run once more: the file of earlier reasons differs, and its checksum.
    """
    other = ("lock", "earlier.json", "checksums.json")
    return {
        name: text for name, text in tree(store).items()
        if "/parts/" not in name and not name.rpartition("/")[2].startswith(".") and not name.endswith(other)
    }  # fmt: skip


def main(folder: Path, step: int) -> None:
    """Kill at every `step`-th write."""
    assert in_child(folder / "calm", None) == 0
    expected, wrong, k = files(folder / "calm"), [], 1
    while True:
        store = folder / f"run{k}"
        code = in_child(store, k)
        if code == 0:
            break
        assert code == 9, code
        again = in_child(store, None)
        if again != 0 or files(store) != expected:
            wrong.append(k)
        else:
            shutil.rmtree(store)
        k += step
    counted = np.array(en.uq.open_study(folder / "calm").attempts)
    print(json.dumps({"kills": (k - 1) // step, "wrong": wrong, "attempts": np.unique(counted).tolist()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
