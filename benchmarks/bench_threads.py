"""Seconds of long calls on 1, 2, 4, ... threads of one machine, up to all of them, in one run.

Product, set-up of a hierarchy and CG with it of random diffusion; Gauss-Hermite quadrature; a filter of many series.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.bench_analyses import ALL, threads
from benchmarks.bench_assembly import parameters
from benchmarks.bench_kalman import constant_model
from benchmarks.common import save, show
from ensemble.apps.analyses import gauss_hermite
from ensemble.apps.fem import RandomDiffusion
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter
from ensemble.krylov import cg
from ensemble.multigrid import smoothed_aggregation

SECONDS = 0.5
"""Calls are repeated up to this time, at most nine times."""


def calls(cells: int, n_samples: int, n_series: int) -> dict[str, Callable[[], Any]]:
    """What is timed."""
    A, b = RandomDiffusion(cells).assemble(parameters(n_samples))
    hierarchy, x, out = smoothed_aggregation(A), b.samples, (A @ b).samples
    parts, y = constant_model(4, n_series, 1000)
    model = LinearGaussianModel(**parts)
    problem = f"{cells}^3, {n_samples} samples"
    return {
        f"product, {problem}": lambda: A.apply(x, out),
        f"set-up of a hierarchy, {problem}": lambda: smoothed_aggregation(A),
        f"cg with it to 1e-7, {problem}": lambda: cg(A, b, M=hierarchy, rtol=1e-7),
        "Gauss-Hermite, 9 variables": lambda: gauss_hermite(9),
        "Gauss-Hermite, 13 variables": lambda: gauss_hermite(13),
        f"kalman_filter, {n_series} series of 1000 steps": lambda: kalman_filter(model, y),
    }


def milliseconds(call: Callable[[], Any]) -> float:
    """Median time of a call, after one that compiles."""
    call()
    times: list[float] = []
    while not times or (sum(times) < SECONDS and len(times) < 9):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main() -> None:
    """Measure, keep and show."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks threads", description=__doc__)
    parser.add_argument("--cells", type=int, default=64, help="hexahedra along each edge (default 64)")
    parser.add_argument("--samples", type=int, default=32, help="samples of the systems (default 32)")
    parser.add_argument("--series", type=int, default=1000, help="series of the filter (default 1000)")
    options = parser.parse_args()
    counts = sorted({ALL, *(1 << k for k in range(ALL.bit_length()))})
    rows = []
    for name, call in calls(options.cells, options.samples, options.series).items():
        row: dict[str, Any] = {"call": name}
        for count in counts:
            with threads(count):
                row[f"{count}, ms"] = milliseconds(call)
        rows.append(row | {"gain": row["1, ms"] / row[f"{ALL}, ms"]})
        save("threads", rows)
    show("threads", rows)


if __name__ == "__main__":
    main()
