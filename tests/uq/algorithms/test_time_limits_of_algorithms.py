"""Time limits of the four sequential algorithms: a sample that hangs fails, and `max_seconds` holds beside it."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.uq.algorithms.algorithm_result import AlgorithmError

NAP = 30.0

INPUTS = en.Inputs(a=stats.norm(1.0, 0.2), b=stats.norm(2.0, 0.3))


class Hangs:
    """A model of single samples of which those of large `a` take long, or fail."""

    def __init__(self, above, how, shift=0.0):
        self.above, self.how, self.shift = above, how, shift

    def __call__(self, s):
        if s.a > self.above:
            if self.how == "fails":
                raise ValueError("too large")
            until = time.monotonic() + NAP
            while time.monotonic() < until:
                time.sleep(0.01)
        return -((s.a - 1.1) ** 2) - (s.b - 2.0) ** 2 + self.shift


def model(how, above=1.25, shift=0.0):
    return en.vectorize(Hangs(above, how, shift))


RUNS = {
    "mcmc": lambda m, **o: en.uq.mcmc(m(), INPUTS, 6, n_chains=8, seed=5, **o),
    "kalman_inversion": lambda m, **o: en.uq.kalman_inversion(
        m(), [-0.01], 0.01, INPUTS, n_samples=32, seed=5, max_iterations=2, **o
    ),
    "subset_simulation": lambda m, **o: en.uq.subset_simulation(
        m(), INPUTS, -0.9, n_per_level=40, fraction=0.25, max_levels=3, seed=5, **o
    ),
    "multilevel": lambda m, **o: en.uq.multilevel(
        [m(shift=2.0**-k) for k in range(3)], INPUTS, atol=0.3, costs=[1.0, 2.0, 4.0], n_pilot=16, seed=5, **o
    ),
}


def numbers(result):
    """All public numbers of a result."""
    return {
        name: np.asarray(value).tolist()
        for name, value in vars(result).items()
        if not name.startswith("_") and isinstance(value, int | float | str | np.ndarray)
    }


@pytest.mark.parametrize("name", RUNS)
def test_samples_that_hang_fail_and_all_else_has_the_same_bits(name, tmp_path):
    """Those of a study whose model raises there: also from a store, where they are not run again."""
    calm = RUNS[name](lambda **o: model("fails", **o), ensemble_size=4)
    options = {"ensemble_size": 4, "sample_seconds": 0.2, "store": tmp_path / "run"}
    began = time.monotonic()
    found = RUNS[name](lambda **o: model("sleeps", **o), executor=ThreadPoolExecutor(8), **options)
    assert time.monotonic() - began < NAP
    assert numbers(found) == numbers(calm) and np.sum(found.n_failed) > 0
    again = RUNS[name](lambda **o: model("sleeps", **o), resume=True, **options)
    assert numbers(again) == numbers(calm)


@pytest.mark.parametrize("name", RUNS)
def test_a_time_holds_although_a_sample_hangs(name):
    began = time.monotonic()
    try:
        RUNS[name](lambda **o: model("sleeps", 0.8, **o), ensemble_size=4, max_seconds=0.1)
    except AlgorithmError as error:
        assert "was finished within max_seconds" in str(error)
    assert time.monotonic() - began < NAP


@pytest.mark.parametrize("name", RUNS)
def test_a_wrong_limit_is_named(name):
    with pytest.raises(ValueError, match=f"{name}: sample_seconds must be"):
        RUNS[name](lambda **o: model("fails", **o), sample_seconds=-1.0)


@pytest.mark.slow
def test_processes_that_hang_are_ended():
    """Each takes a new process a few seconds to start."""
    calm = RUNS["subset_simulation"](lambda **o: model("fails", 1.4, **o), ensemble_size=4)
    began = time.monotonic()
    options = {"ensemble_size": 4, "sample_seconds": 0.3, "executor": 3}
    found = RUNS["subset_simulation"](lambda **o: model("sleeps", 1.4, **o), **options)
    assert numbers(found) == numbers(calm) and time.monotonic() - began < NAP
