"""Models and inputs of the tests; at the top level of a module, so that other processes can import them."""

import os
import subprocess
import time
from pathlib import Path

import numpy as np
from scipy import stats

import ensemble as en

INPUTS = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))


def beam(x):
    """A scalar and a field of three entries."""
    tip = x.load / x.stiffness
    return {"tip": tip, "field": en.xp.stack([tip, np.sin(tip), x.load])}


def failing_above(limit):
    """The beam, with samples marked as failed where the load is above `limit`."""

    def model(x):
        x.fail(x.load > limit, "too much load")
        return beam(x)

    return model


def plain_beam(x):
    """The beam for one sample; raises for large loads."""
    if x.load > 1.3:
        raise ValueError("too much load")
    tip = x.load / x.stiffness
    return {"tip": tip, "field": np.array([tip, np.sin(tip), x.load])}


class DyingBeam:
    """The beam; the process dies at sample `sample`, `times` times, which it counts in a folder."""

    def __init__(self, folder, sample, times):
        self.folder, self.sample, self.times = Path(folder), sample, times

    def __call__(self, x):
        if self.sample in x.ids:
            deaths = len(list(self.folder.iterdir()))
            if deaths < self.times:
                (self.folder / str(deaths)).touch()
                os.kill(os.getpid(), 9)
        return beam(x)


def interrupted_beam(x):
    """The beam; the call that the variable CALLS_LEFT counts down to is interrupted."""
    left = int(os.environ.get("CALLS_LEFT", "-1"))
    os.environ["CALLS_LEFT"] = str(left - 1)
    if left == 0:
        raise KeyboardInterrupt
    return beam(x)


SWITCH = "ENSEMBLE_TEST_FAULT"
"""The faults in force: kept in the environment, so that the source of the model stays the same."""


def faulty(x):
    faults = os.environ.get(SWITCH, "")
    if "licence" in faults:
        x.fail(x.load > 1.1, "no licence for process 17")
    if "disk" in faults:
        x.fail(x.load < 0.7, "no space left")
    x.fail(x.stiffness > 3.5, "diverged")
    if "kill" in faults and len(x) < 32:
        raise KeyboardInterrupt
    return beam(x)


NAP = os.environ.setdefault("ENSEMBLE_TEST_NAP", f"60.{os.getpid()}")
"""Seconds that a program sleeps which a test has to end: others sleep other times; worker processes inherit it."""


def napping():
    """The sleeping programs of this test run that nobody has ended."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if line.split()[:2] == ["sleep", NAP]]


def slow_beam(x):
    """The beam after a time that depends on the samples, so that groups finish out of order."""
    time.sleep(0.02 * (1 + int(x.ids[0]) % 3))
    return beam(x)


def same_bits(a, b):
    """Whether two results have the same samples and statistics, to the bit."""
    for name in a.names:
        for statistic in ("mean", "std", "minimum", "maximum"):
            if np.asarray(getattr(a, statistic)(name)).tobytes() != np.asarray(getattr(b, statistic)(name)).tobytes():
                return False
        if a.keep == b.keep == "all" and a.values(name).tobytes() != b.values(name).tobytes():
            return False
    return a.names == b.names and np.array_equal(a.failed, b.failed) and a.reasons == b.reasons
