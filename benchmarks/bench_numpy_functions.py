"""NumPy's functions on ensembles against the same call in a loop over samples: every function that ensembles take."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import median, save, show
from benchmarks.numpy_cases import CASES, SIZES, arguments
from ensemble import DivergenceError
from ensemble.scalar import Ensemble

SAMPLES = (1, 32, 256)


def both_ways(f: Callable[..., Any], given: list[Any], n_samples: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The call on ensembles, and the loop over samples whose results are put into one array."""
    lifted = [a[0] if isinstance(a, tuple) else Ensemble(a) for a in given]
    columns = [
        [(a[0] if isinstance(a, tuple) else np.ascontiguousarray(a[..., s])[()]) for a in given]
        for s in range(n_samples)
    ]

    def loop() -> Any:
        results = [f(*column) for column in columns]
        return None if results[0] is None else np.stack(results, axis=-1) if n_samples > 1 else results[0]

    return lambda: f(*lifted), loop


def seconds(f: Callable[[], Any], at_least: float) -> float:
    """Processor seconds of one call, of as many as take `at_least` seconds."""
    n, spent = 1, 0.0
    while True:
        start = time.process_time()
        for _ in range(n):
            f()
        spent = time.process_time() - start
        if spent >= at_least or n >= 1000:
            return spent / n
        n = min(1000, max(2 * n, int(1.2 * n * at_least / max(spent, 1e-9))))


def measured(name: str, n: int, n_samples: int, rounds: int = 5, at_least: float = 2e-3) -> dict[str, Any]:
    """One line of the table."""
    kind, f = CASES[name]
    ours, loop = both_ways(f, arguments(kind, f, n, n_samples), n_samples)
    row: dict[str, Any] = {"function": name, "n": n, "samples": n_samples}
    try:
        ours()
    except DivergenceError:
        return {**row, "loop us": "", "ours us": "", "x": "diverges"}
    loop()
    pairs = [(seconds(loop, at_least), seconds(ours, at_least)) for _ in range(rounds)]
    loop_us, ours_us = (1e6 * median([pair[k] for pair in pairs]) for k in (0, 1))
    return {**row, "loop us": loop_us, "ours us": ours_us, "x": median([a / b for a, b in pairs])}


def table(names: list[str], samples: tuple[int, ...] = SAMPLES, rounds: int = 5) -> list[dict[str, Any]]:
    """Every function, size and number of samples; the largest arrays only up to 32 samples."""
    rows = []
    for name in names:
        for n in SIZES[CASES[name][0]]:
            for n_samples in samples:
                if n_samples > 32 and n == SIZES[CASES[name][0]][-1]:
                    continue
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    rows.append(measured(name, n, n_samples, rounds))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks numpy-functions", description=__doc__)
    parser.add_argument("--names", nargs="*", help="functions (default: all)")
    parser.add_argument("--samples", type=int, nargs="*", default=SAMPLES, help="numbers of samples")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the median counts (default 5)")
    parser.add_argument("--no-save", action="store_true", help="keep no record")
    options = parser.parse_args()
    rows = table(options.names or list(CASES), tuple(options.samples), options.rounds)
    show("NumPy's functions on ensembles: microseconds of a loop over samples, of one call on the ensemble", rows)
    if not options.no_save:
        save("numpy-functions-1thread", rows)


if __name__ == "__main__":
    main()
