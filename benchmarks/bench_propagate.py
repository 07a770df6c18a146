"""What `propagate` costs over the bare calls of the model: a model of 1 ms a sample in groups of 32, with a store.

``python -m benchmarks propagate [--n N] [--rounds R]``; processor time, so that other processes do not count.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import ensemble as en
from benchmarks.common import SEED, EnsembleBenchmark, median, save, show

ENSEMBLE_SIZE = 32

INPUTS = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0), width=stats.uniform(0.5, 1.0))


WORK = np.linspace(0.0, 1.0, 4096)


class Model:
    """Three outputs, one of 100 entries, after `seconds` of work per sample."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.clocked = 0.0

    def __call__(self, x: Any) -> dict[str, en.Ensemble]:
        start = time.process_time()
        tip = x.load / x.stiffness
        outputs = {"tip": tip, "stress": tip * x.width, "field": tip * np.linspace(0.0, 1.0, 100)}
        while time.process_time() - start < self.seconds * x.n_samples:
            np.sin(WORK)
        self.clocked += time.process_time() - start
        return outputs


class Propagate(EnsembleBenchmark):
    """A study of 256 samples whose model takes no time: what `propagate` itself costs."""

    params = (["numba"], [1, 32])

    def time_propagate(self, backend: str, n_samples: int) -> None:
        en.propagate(Model(0.0), INPUTS, 256, seed=SEED, ensemble_size=n_samples, progress=False)


def seconds_over_model(n: int, folder: Path | None, seconds: float, **options: Any) -> tuple[float, float]:
    """Processor seconds of a study outside its model, and inside."""
    model = Model(seconds)
    start = time.process_time()
    en.propagate(
        model, INPUTS, n, seed=SEED, ensemble_size=ENSEMBLE_SIZE, store=folder, progress=False, **options
    )  # fmt: skip
    return time.process_time() - start - model.clocked, model.clocked


def table(n: int, rounds: int) -> list[dict[str, Any]]:
    """The cost of each way of keeping results, all ways in turn each round."""
    ways: dict[str, dict[str, Any]] = {
        "memory": {},
        "statistics": {"keep": "statistics"},
        "store": {"store": True},
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as name:
        for k in range(rounds + 1):
            for way, options in ways.items():
                folder = Path(name) / "run.zarr" if options.get("store") else None
                rest = {key: value for key, value in options.items() if key != "store"}
                timed = seconds_over_model(n, folder, 1e-3, **rest)
                if k:  # the first round imports
                    found[way].append(timed)
                if folder is not None:
                    shutil.rmtree(folder)
    return [
        {
            "kept in": way,
            "us a group": 1e6 * median([a for a, _ in timed]) * ENSEMBLE_SIZE / n,
            "% of the model": 100.0 * median([a / b for a, b in timed]),
        }
        for way, timed in found.items()
    ]


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks propagate", description=__doc__)
    parser.add_argument("--n", type=int, default=4096, help="samples (default 4096)")
    parser.add_argument("--rounds", type=int, default=5, help="repetitions (default 5)")
    options = parser.parse_args()
    rows = table(options.n, options.rounds)
    show(f"propagate, {options.n} samples of 1 ms in groups of {ENSEMBLE_SIZE}", rows)
    save("propagate", rows, n=options.n, ensemble_size=ENSEMBLE_SIZE)
