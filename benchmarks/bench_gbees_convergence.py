"""Convergence of GBEES in time step and cell width on Lorenz63: the figures 7 and 8 of Hanson et al. (2025).

``python -m benchmarks gbees-convergence time|width [--backend NAME] [--reference R]``

The paper compares propagations with steps of 1, 0.5, 0.2 and 0.1 of the stable one against 0.01, and cells of 1.25, 1,
0.8 and 0.6 of the default width against 0.5 at a CFL number of 0.1, by E(t), the 1-norm of the difference, and BC(t),
the Bhattacharyya coefficient. Cells of different widths are compared on a grid of the default width, to which both
distributions are transferred by overlaps; thresholds are scaled with the cells' volume, so that all runs are cut at one
density.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.common import save, show
from ensemble.apps.gbees import Cells, Gbees, lorenz63
from ensemble.apps.gbees.analysis.comparison import compare

STUDIES: dict[str, tuple[tuple[float, ...], float]] = {
    "time": ((1.0, 0.5, 0.2, 0.1), 0.01),
    "width": ((1.25, 1.0, 0.8, 0.6), 0.5),
}
"""What is varied, and the reference."""

THRESHOLD, WIDTH = 5e-6, 0.5
RECORDS = np.arange(1, 21) / 10


def records(study: str, value: float, backend: str) -> tuple[list[Cells], int, float]:
    """The distribution at each of `RECORDS`, with the measurement x3 = -8 at t = 1; cell-steps and seconds."""
    options: dict[str, Any] = {"cfl": value} if study == "time" else {"cfl": 0.1, "factor": 1.0 / value}
    threshold = THRESHOLD * (value**3 if study == "width" else 1.0)
    run = Gbees(lorenz63, [-11.5, -10.0, 9.5], np.eye(3), threshold=threshold, backend=backend, **options)
    kept, begin = [], time.perf_counter()
    for t in RECORDS:
        run.advance(t)
        kept.append(run.cells())  # before the measurement, where there is one
        if t == 1.0:
            run.update(lambda x, xp: x[2], -8.0, 1.0)
    return kept, run.cell_steps, time.perf_counter() - begin


def study(name: str, backend: str, reference: float) -> list[dict[str, Any]]:
    """E(t) and BC(t) of every propagation against the reference."""
    truth, cell_steps, seconds = records(name, reference, backend)
    print(f"reference {reference}: {cell_steps / 1e6:.1f} M cell-steps, {seconds:.1f} s", flush=True)
    rows = []
    for value in STUDIES[name][0]:
        kept, cell_steps, seconds = records(name, value, backend)
        on = WIDTH if name == "width" else None
        differences = [compare(a, b, widths=on) for a, b in zip(truth, kept, strict=True)]
        rows.append(
            {
                name: value,
                "M cell-steps": cell_steps / 1e6,
                "s": seconds,
                **{f"E({t:g})": c.l1 for t, c in zip(RECORDS, differences, strict=True)},
                **{f"BC({t:g})": c.bhattacharyya for t, c in zip(RECORDS, differences, strict=True)},
            }
        )
        print(f"{name} {value}: E(1) = {rows[-1]['E(1)']:.4f}, BC(1) = {rows[-1]['BC(1)']:.4f}", flush=True)
    return rows


def main() -> None:
    """One study, its table and its record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--backend", default="numpy")
    parser.add_argument("--reference", type=float, help="what to compare with (0.01 and 0.5 as in the paper)")
    options = parser.parse_args()
    reference = options.reference or STUDIES[options.study][1]
    rows = study(options.study, options.backend, reference)
    about = ("M cell-steps", "s", "E(0.5)", "E(1)", "E(2)", "BC(0.5)", "BC(1)", "BC(2)")
    show(
        f"Lorenz63 against {options.study} {reference:g}",
        [{key: row[key] for key in (options.study, *about)} for row in rows],
    )
    save(f"gbees-convergence-{options.study}", rows, reference=reference, backend=options.backend)
