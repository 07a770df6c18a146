"""Cheap functions of numbers under `run`, against plain loops over the samples in the same run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import SEED, interleaved, median, ratio, save, show
from ensemble.scalar import Ensemble, run

SIZES = (8, 32, 128, 512)
ROUNDS = 25


def polynomial(x: float) -> float:
    """Forty operations without a branch."""
    y = x
    for _ in range(10):
        y = y * x + 0.5
        y = y - x * 0.25
    return y


def branches(x: float) -> float:
    """Ten branches, each with three operations."""
    y = x
    for k in range(10):
        if y > 1.0:
            y = y * 0.5 - 0.1 * k
        else:
            y = y * 1.5 + 0.1 * k
    return y


def functions(x: float) -> float:
    """Ten sines."""
    y = 0.0
    for k in range(10):
        y = y + math.sin(k * x)
    return y


def collatz(n: float) -> int:
    """Steps to one: a path for nearly every sample."""
    steps = 0
    while n != 1.0:
        n, steps = (n / 2.0 if n % 2.0 == 0.0 else 3.0 * n + 1.0), steps + 1
    return steps


def newton(x: float) -> float:
    """The square root by Newton's method, with its exceptions handled."""
    try:
        y = 1.0
        for _ in range(50):
            y, before = 0.5 * (y + x / y), y
            if abs(y - before) <= 1e-15 * y:
                return y
    except ZeroDivisionError:
        return math.inf
    return y


def array_written(x: float) -> float:
    """An array of its own, filled entry by entry."""
    u = np.zeros(10)
    u[0] = x
    for k in range(1, 10):
        u[k] = 0.9 * u[k - 1] + 0.1 * x
    return float(u[9])


CHEAP = (polynomial, branches, functions, collatz, newton, array_written)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {f.__name__: f for f in CHEAP}


def times(f: Callable[[Any], Any], values: np.ndarray) -> dict[str, list[float]]:
    """Processor seconds of each way, over rounds in which each has its turn."""
    x = Ensemble(values)
    ways: dict[str, Callable[[], Any]] = {
        "run": lambda: run(f, x),
        "run, ensembles": lambda: run(f, x, loop=False),
        "loop over floats": lambda: np.array([f(value) for value in values.tolist()]),
        "loop over NumPy's scalars": lambda: np.array([f(value) for value in values]),
    }
    turns = max(1, 2000 // values.size)

    def repeated(way: Callable[[], Any], number: int) -> Callable[[], None]:
        def turn() -> None:
            for _ in range(number):
                way()

        return turn

    counts = {name: 1 if name == "run, ensembles" else turns for name in ways}
    seconds = interleaved({name: repeated(way, counts[name]) for name, way in ways.items()}, ROUNDS, time.process_time)
    return {name: [value / counts[name] for value in found] for name, found in seconds.items()}


def table() -> list[dict[str, Any]]:
    """Microseconds of a run of all samples."""
    rng = np.random.default_rng(SEED)
    rows = []
    with np.errstate(all="ignore"):
        for name, f in FUNCTIONS.items():
            for n_samples in SIZES:
                values = np.arange(1.0, n_samples + 1.0) if f is collatz else rng.uniform(0.1, 1.0, n_samples)
                found = times(f, values)
                rows.append({
                    "function": name, "n_samples": n_samples, "way": run(f, Ensemble(values)).execution,
                    **{f"{way} us": 1e6 * median(seconds) for way, seconds in found.items()},
                    "run / loop over floats": ratio(found["run"], found["loop over floats"]),
                })  # fmt: skip
    show("Cheap functions under run, processor time", rows)
    return rows


def main(cells: int, threads: int) -> None:
    """Print and keep the table; sizes and threads are fixed."""
    save("run", table())
