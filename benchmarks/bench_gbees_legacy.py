"""The legacy method of GBEES and what each change gains, Lorenz '63: tables 1 and 3, figures 9 and 10 of Hanson et al.

``python -m benchmarks gbees-legacy``: the paper's run to t = 2 by one program in plain loops (`legacy_gbees`), first
with a nested list, a fixed step and all 3^n - 1 neighbours, then with one change after the other, at last by the
engine of this library. The fixed step is the least of the largest stable steps of a run with all neighbours, so that no
step is unstable. Processor time of one thread, one run each after one that compiles; then table 1's coefficient.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.bench_gbees import start
from benchmarks.common import one_thread, save, show
from benchmarks.legacy_gbees import Legacy
from ensemble.apps.gbees import Cells, active, bhattacharyya, configuration, draw, kernel_density, propagate
from ensemble.apps.gbees.engines.cpu import CompiledEngine

VERSIONS: dict[str, dict[str, bool]] = {
    "legacy": {"hashed": False, "adaptive": False, "directional": False},
    "hashtable": {"hashed": True, "adaptive": False, "directional": False},
    "stable steps": {"hashed": True, "adaptive": True, "directional": False},
    "directional growing and pruning": {"hashed": True, "adaptive": True, "directional": True},
}
SPAN, ENGINE = 0.25, "this library, one thread"


def plain(options: dict[str, Any], until: float = 2.0) -> tuple[list[dict[str, float]], Any, dict[str, Any]]:
    """Seconds and cells at multiples of `SPAN`, the cells at t = 1 before the measurement, and what was done."""
    _, indices, p = start("lorenz63", np.float64)
    run = Legacy(indices, p, **options)
    curve, taken, kept, seconds = [], [], None, 0.0
    for k in range(round(until / SPAN)):
        begun = time.process_time()
        taken += run.advance(SPAN)
        seconds += time.process_time() - begun
        curve.append({"t": SPAN * (k + 1), "s": seconds, "cells": run.n_cells})
        if curve[-1]["t"] == 1.0:
            kept = run.distribution()
            begun = time.process_time()
            run.measure(-8.0)
            seconds += time.process_time() - begun
    cells = [count for _, count in taken]
    done = {"s": seconds, "steps": len(taken), "cell_steps": sum(cells), "most_cells": max(cells),
            "least step": min(dt for dt, _ in taken[:-1]), "longest step": max(dt for dt, _ in taken)}  # fmt: skip
    return curve, kept, done


def least_stable_step(options: dict[str, Any]) -> float:
    """The least of the largest stable steps of a run with adaptive ones, cut ones left out."""
    _, indices, p = start("lorenz63", np.float64)
    run, least = Legacy(indices, p, **{**options, "adaptive": True}), np.inf
    for k in range(round(2.0 / SPAN)):
        taken = run.advance(SPAN)
        least = min(least, min(dt for dt, _ in taken[:-1]))  # the last one is cut
        if k == 3:
            run.measure(-8.0)
    return float(least)


def engine() -> tuple[list[dict[str, float]], Any, dict[str, Any]]:
    """The same by the compiled engine."""
    problem, indices, p = start("lorenz63", np.float64)
    grid = CompiledEngine(problem, indices, p)
    curve, kept, steps, lengths, seconds = [], None, [], [], 0.0
    for k in range(round(2.0 / SPAN)):
        begun = time.process_time()
        taken = grid.advance(SPAN * k, SPAN)
        if k == 3:
            kept = grid.cells()
            x3 = problem.widths[2] * kept[0][:, 2] + problem.origin[2]
            grid.reweight(-0.5 * (x3 + 8.0) ** 2)
        seconds += time.process_time() - begun
        steps += taken.cells.tolist()
        lengths += taken.lengths.tolist()
        curve.append({"t": SPAN * (k + 1), "s": seconds, "cells": len(kept[0]) if k == 3 else grid.n_cells})
    return curve, kept, {"s": seconds, "steps": len(steps), "cell_steps": sum(steps), "most_cells": max(steps),
                         "least step": min(lengths), "longest step": max(lengths)}  # fmt: skip


def coefficient(kept: tuple[np.ndarray, np.ndarray], samples: Any) -> float:
    """Table 1: against the kernel estimate over the cells above the threshold."""
    problem, _, _ = start("lorenz63", np.float64)
    cells = active(Cells(*kept, np.asarray(problem.origin), np.asarray(problem.widths)), problem.threshold)
    return float(bhattacharyya(cells, kernel_density(samples, cells)))


def main() -> None:
    """Print and keep the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    one_thread()
    plain(VERSIONS["directional growing and pruning"], 0.25)
    plain({**VERSIONS["legacy"], "step": 1e-2}, 0.25)
    engine()
    step = least_stable_step(VERSIONS["hashtable"])
    runs = {name: plain({**options, "step": step}) for name, options in VERSIONS.items()} | {ENGINE: engine()}
    problem = configuration("lorenz63")
    samples = propagate(problem.drift, draw(problem.mean, problem.covariance, 100_000, seed=1), 1.0)
    rows = [{"engine": name, **done, "BC (KDE)": coefficient(kept, samples)} for name, (_, kept, done) in runs.items()]
    curves = []
    for k in range(round(2.0 / SPAN)):
        row = {"t": SPAN * (k + 1)}
        for name, (curve, _, _) in runs.items():
            row |= {f"{name}, s": curve[k]["s"]}
        for name in ("legacy", ENGINE):
            row |= {f"cells, {name}": runs[name][0][k]["cells"]}
        curves.append(row)
    show("Lorenz '63 to t = 2, one change after the other", rows)
    show("Seconds and cells against time", curves)
    save("gbees-legacy", rows, curves=curves, step=step)


if __name__ == "__main__":
    main()
