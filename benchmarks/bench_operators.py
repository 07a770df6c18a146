"""Operators on ensembles against NumPy on the same array and a loop over samples: expressions with temporaries."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import SEED, interleaved, median, ratio, save, show
from ensemble.scalar import Ensemble

SHAPES = ((10, 32), (300, 32), (1000, 32), (10_000, 32), (100_000, 32), (10_000, 1))
EXPRESSIONS: dict[str, Callable[[Any], Any]] = {
    "x + x": lambda x: x + x,
    "x * 2 + x": lambda x: x * 2 + x,
    "four operations": lambda x: (x - 1.0) * x / (x + 2.0) - 3.0,
}
ROUNDS = 15


def ways_of(f: Callable[[Any], Any], x: np.ndarray, times: int) -> dict[str, Callable[[], Any]]:
    """Each way to evaluate `f`, so many times."""
    ensemble, columns = Ensemble(x), [np.ascontiguousarray(x[:, s]) for s in range(x.shape[1])]
    ways: dict[str, Callable[[], Any]] = {
        "ensemble": lambda: f(ensemble),
        "numpy": lambda: f(x),
        "loop": lambda: [f(column) for column in columns],
    }

    def repeated(way: Callable[[], Any]) -> Callable[[], None]:
        def turn() -> None:
            for _ in range(times):
                way()

        return turn

    return {name: repeated(way) for name, way in ways.items()}


def table() -> list[dict[str, Any]]:
    """Microseconds of processor time of each way, in turn, medians; ratios are the peer's time over ours."""
    rows = []
    for n, n_samples in SHAPES:
        x = np.random.default_rng(SEED).random((n, n_samples))
        times = max(1, 200_000 // x.size)
        for name, f in EXPRESSIONS.items():
            found = interleaved(ways_of(f, x, times), ROUNDS, time.process_time)
            rows.append({
                "expression": name, "n": n, "samples": n_samples,
                **{f"{way} us": 1e6 * median(seconds) / times for way, seconds in found.items()},
                "x numpy": ratio(found["numpy"], found["ensemble"]),
                "x loop": ratio(found["loop"], found["ensemble"]),
            })  # fmt: skip
    show("Operators, processor time", rows)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks operators", description=__doc__)
    parser.add_argument("--no-save", action="store_true", help="keep no record")
    options = parser.parse_args()
    rows = table()
    if not options.no_save:
        save("operators-1thread", rows)


if __name__ == "__main__":
    main()
