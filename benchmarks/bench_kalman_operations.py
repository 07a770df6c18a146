"""Figures 6 and 7 of the paper on prefix-sum Kalman filters: time on a simulated machine, in floating-point operations.

``python -m benchmarks kalman-operations [--threads 15000]``: PKF, PRTS and PTFS by every scan and by our chunks with
replay, 4 states and 2 observations; tables, ``results/kalman-operations.json``, and its plots.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.common import save, show
from benchmarks.simulated_machine import simulate, step_flops

METHODS = ("PKF", "PRTS", "PTFS")

SCANS: dict[str, tuple[str, dict[str, int]]] = {
    "Hillis-Steele": ("hillis_steele", {}),
    "Blelloch": ("blelloch", {}),
    "Ladner-Fischer": ("ladner_fischer", {}),
    "Sengupta A": ("sengupta", {"threshold": 1}),
    "Sengupta B": ("sengupta", {"threshold": 15_000}),
    "ours": ("replay", {}),
}
"""The scans of the paper by its names, and ours."""

LENGTHS = tuple(round(10 ** (e / 4)) for e in range(12, 25))
"""Steps, four lengths a decade from 1e3 to 1e6."""


def measured(threads: int) -> list[dict[str, Any]]:
    """Operations of every method by every scan at every length."""
    rows = []
    for T in LENGTHS:
        alone = simulate("KF", T).time
        for method in METHODS:
            for name, (scan, options) in SCANS.items():
                run = simulate(method, T, scan=scan, threads=threads, **options)
                rows.append({"T": T, "method": method, "scan": name, "time": run.time, "work": run.work,
                             "depth": run.depth, "speed-up": alone / run.time})  # fmt: skip
    return rows


def table(rows: list[dict[str, Any]], T: int) -> list[dict[str, Any]]:
    """Times of one length, a row for each scan."""
    at = {(r["scan"], r["method"]): r for r in rows if r["T"] == T}
    return [{"scan": scan, **{m: at[scan, m]["time"] for m in METHODS}, "depth of PKF": at[scan, "PKF"]["depth"],
             "speed-up of PKF": at[scan, "PKF"]["speed-up"]} for scan in SCANS]  # fmt: skip


def main() -> None:
    """Tables, record and plots."""
    from benchmarks.plots.kalman import OPERATIONS, lines

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=15_000)
    threads = parser.parse_args().threads
    rows = measured(threads)
    show("Operations of one item", [step_flops()])
    for T in (1000, 10_000, 100_000, 1_000_000):
        show(f"{T} steps on {threads} threads: time in operations", table(rows, T))
    save("kalman-operations", rows, threads=threads, flops=step_flops())
    lines(rows, "time", OPERATIONS, "kalman-operations.png")
