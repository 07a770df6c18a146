"""Seconds from a new right-hand side to its first result, beside a second call: translation alone.

Each right-hand side holds a number that no run had before, so that nothing is read from disk. The driver and the shared
kernels of many unknowns are translated by a first call of each method.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import save, show
from ensemble import Ensemble, gallery, ode

Function = Callable[..., list[Any]]


def ring(n: int, exponential: bool, number: float) -> Function:
    """Unknowns that are coupled to both neighbours, with an exponential in each or none."""

    def f(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        values = []
        for i in range(n):
            value = y[i - 1] - 2.0 * number * y[i] + y[(i + 1) % n] - y[i] * y[i] * p[0]
            values.append(value + 0.01 * xp.exp(-y[i] * y[i]) if exponential else value)
        return values

    return f


def lorenz(number: float) -> Function:
    """The system of Lorenz (1963)."""
    return lambda t, y, p, xp: [
        10.0 * number * (y[1] - y[0]), y[0] * (p[0] - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2]
    ]  # fmt: skip


def hires(number: float) -> Function:
    """Eight reactions of plant physiology (Hairer, Wanner II, section IV.10)."""
    f, rates = gallery.hires().f, [number * float(rate) for rate in gallery.hires().p]
    return lambda t, y, p, xp: f(t, y, rates, xp)


CASES: dict[tuple[str, str], tuple[Callable[[float], Function], int, dict[str, float]]] = {
    ("Lorenz", "rk4"): (lorenz, 3, {"step": 0.01}),
    ("Lorenz", "tsit5"): (lorenz, 3, {}),
    ("Lorenz", "dop853"): (lorenz, 3, {}),
    ("Lorenz", "taylor"): (lorenz, 3, {"rtol": 1e-9, "atol": 1e-12}),
    ("HIRES", "rodas4"): (hires, 8, {}),
    ("ring of 30", "rodas4"): (lambda number: ring(30, False, number), 30, {}),
    ("ring of 30, exp", "rodas4"): (lambda number: ring(30, True, number), 30, {}),
    ("ring of 40", "rodas4"): (lambda number: ring(40, False, number), 40, {}),
    ("ring of 40", "dop853"): (lambda number: ring(40, False, number), 40, {}),
    ("ring of 40, exp", "dop853"): (lambda number: ring(40, True, number), 40, {}),
}


def main() -> None:
    argparse.ArgumentParser(prog="python -m benchmarks ode-compile", description=__doc__).parse_args()
    rng = np.random.default_rng()
    rows = []

    def seconds(f: Function, n: int, method: str, options: dict[str, float]) -> float:
        y0 = Ensemble(np.random.default_rng(50817).random((n, 16)) * 0.1 + 0.1)
        start = time.perf_counter()
        ode.solve(f, y0, (0.0, 0.1), p=[1.0], method=method, **options)
        return time.perf_counter() - start

    for make, n, method, options in ((ring_of(3), 3, "tsit5", {}), (ring_of(40), 40, "rodas4", {})):
        seconds(make(1.0 + rng.random()), n, method, options)
    for (name, method), (make, n, options) in CASES.items():
        times = []
        for _ in range(5):
            f = make(1.0 + 1e-3 * rng.random())
            times.append((seconds(f, n, method, options), seconds(f, n, method, options)))
        first, second = np.median(times, axis=0)
        rows.append({"system": name, "method": method, "first call s": first, "second call s": second})
    show("A new right-hand side", rows)
    save("ode-compile", rows)


def ring_of(n: int) -> Callable[[float], Function]:
    """Rings of `n` unknowns by their number."""
    return lambda number: ring(n, False, number)


if __name__ == "__main__":
    main()
