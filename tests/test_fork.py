"""Processes made by fork after kernels have run on several threads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

SCRIPT = """
import multiprocessing, threading
import numpy as np
from ensemble.gallery import poisson

A, x = poisson((400, 400)), np.linspace(0.0, 1.0, 160_000)  # too large for one thread

def product(i):
    return A @ (x * (i + 1))

def products_of_threads(i):
    found = [None] * 3
    def work(k):
        found[k] = product(i)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
"""

POOL = """
expected = [product(i) for i in range(4)]
with multiprocessing.get_context("fork").Pool(2) as pool:
    got = pool.map_async(product, range(4)).get(timeout=60)
    assert all(np.array_equal(a, b) for a, b in zip(got, expected))
    got = pool.map_async(products_of_threads, range(2)).get(timeout=60)
    assert all(np.array_equal(a, b) for a, three in zip(expected, got) for b in three)
assert np.array_equal(product(1), expected[1])
print("done", flush=True)
"""

GENERATIONS = """
import os, sys
expected = product(0)
def descend(generations):
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)
    good = np.array_equal(product(0), expected)
    os._exit(1 if not good else descend(generations - 1) if generations > 1 else 0)
assert descend(3) == 0
print("done")
"""


def test_kernels_run_in_children_of_a_pool_and_in_children_of_forked_children():
    setting = os.environ | {"NUMBA_NUM_THREADS": "2", "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        SCRIPT + POOL + GENERATIONS,
    ]  # Python 3.12 warns of any fork
    done = subprocess.run(command, env=setting, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "done\ndone\n", done.stderr
