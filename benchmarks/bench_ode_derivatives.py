"""Derivatives and statistics of initial value problems over the integration alone, on one CPU thread.

`python -m benchmarks ode-derivatives` integrates Lorenz 63 with three parameters per sample: tangents in P directions
beside the bound of 1.2 (1 + P) integrations, gradients beside five, statistics over time without a history. Times are
those of the processor, medians of interleaved rounds. Record: `ode-derivatives-1threads`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import median, one_thread, save, show
from ensemble import Ensemble, ode

METHODS: dict[str, dict[str, Any]] = {
    "rk4": {"step": 0.002},
    "tsit5": {"rtol": 1e-8, "atol": 1e-10},
    "dop853": {"rtol": 1e-9, "atol": 1e-12},
    "taylor": {"rtol": 1e-9, "atol": 1e-12},
    "rodas4": {"rtol": 1e-6},
}

END = 4.0


def lorenz(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
    """The system of Lorenz (1963) with parameters rho, sigma, beta."""
    return [p[1] * (y[1] - y[0]), y[0] * (p[0] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]]


def runs(method: str, samples: int) -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    p = Ensemble(np.stack([np.linspace(0.0, 21.0, samples), np.full(samples, 10.0), np.full(samples, 8.0 / 3.0)]))
    start, span, weights, times = [1.0, 1.0, 1.0], (0.0, END), np.ones(3), np.linspace(0.0, END, 41)
    options: dict[str, Any] = {"p": p, "method": method, **METHODS[method]}
    wanted: dict[int, Any] = {1: {"p": [0]}, 3: "p", 6: ("y0", "p")}

    def forward(count: int) -> Callable[[], Any]:
        return lambda: ode.sensitivities(lorenz, start, span, wrt=wanted[count], **options)

    return {
        "solve": lambda: ode.solve(lorenz, start, span, **options),
        **{f"{count} directions": forward(count) for count in wanted},
        "gradient": lambda: ode.gradient(lorenz, start, span, weights, **options),
        "gradient of 41 times": lambda: ode.gradient(lorenz, start, span, np.ones((41, 3)), t_eval=times, **options),
        "statistics over time": lambda: ode.time_statistics(lorenz, start, span, **options),
    }


def rows_of(method: str, samples: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each run: processor time, and that over the integration's."""
    every = runs(method, samples)
    found: dict[str, list[float]] = {name: [] for name in every}
    for number in range(rounds + 1):
        for name, run in every.items():
            begin = time.process_time()
            run()
            if number:
                found[name].append(time.process_time() - begin)
    plain, rows = median(found["solve"]), []
    for name, values in found.items():
        ratio = median(values) / plain
        row: dict[str, Any] = {
            "method": method,
            "run": name,
            "milliseconds": 1e3 * median(values),
            "integrations": ratio,
        }
        row["bound"] = 1.2 * (1 + int(name[0])) if "directions" in name else 5.0 if name == "gradient" else None
        rows.append(row)
    return rows


def main() -> None:
    """Print the table and keep it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ode-derivatives", description=__doc__)
    parser.add_argument("--samples", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    one_thread()
    rows = [row for method in METHODS for row in rows_of(method, options.samples, options.rounds)]
    show("Derivatives of initial value problems, one thread", rows)
    save("ode-derivatives-1threads", rows, samples=options.samples)
