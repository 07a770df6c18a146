"""GBEES against Monte Carlo: Table 1 of Hanson et al., and what binned counts say of the same distributions.

``python -m benchmarks gbees-monte-carlo [lorenz63] [lorenz96] [--backend cupy] [--samples 100000]``. The
Bhattacharyya coefficient at the first measurement or the end: with the kernel density estimate of the samples (Scott's
bandwidth, divided by its sum over the cells), as the paper has it, and with their counts in bins of 1, 2, 4 cells.
`--seeds` samples anew; `--threshold` and `--factor` replace the configuration's own. Moments of both stand beside, and
on the CPU the coefficient over all stored cells. Records: `gbees-monte-carlo`, on a device `gbees-table1-lorenz96`;
other thresholds and widths keep none.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.common import SEED, cuda_device, save, show
from benchmarks.papers.gbees import ACCURACY, COEFFICIENTS, LORENZ96
from ensemble._backend import prototype, synchronize, to_numpy
from ensemble.apps.gbees import (
    Cells,
    Gbees,
    active,
    bhattacharyya,
    binned,
    configuration,
    draw,
    kernel_density,
    propagate,
)
from ensemble.apps.gbees.analysis.distribution import covariance, mean, positions

PAPER = dict(zip(("lorenz63", "lorenz96"), COEFFICIENTS["CPU-optimized"], strict=True))
BINS = (1.0, 2.0, 4.0)


def carried(problem: Any, options: argparse.Namespace) -> tuple[Gbees, float]:
    """The distribution at the end of the first span, and the seconds that it took; kernels are compiled before."""
    changed = {name: value for name in ("threshold", "factor") if (value := getattr(options, name)) is not None}
    arguments = {**problem.options, **changed, "backend": options.backend, "dtype": np.dtype(options.dtype)}
    small = {**arguments, "factor": 0.25, "threshold": 1e-3}
    Gbees(problem.drift, problem.mean, problem.covariance, **small).advance(1e-3 * problem.span)
    run = Gbees(problem.drift, problem.mean, problem.covariance, **arguments)
    start = time.perf_counter()
    # As recorded by the public programs: steps end at every record.
    for k in range(1, problem.records):
        run.advance(problem.span * k / (problem.records - 1))
    synchronize(prototype("cupy" if options.backend == "cupy" else "numpy"))
    return run, time.perf_counter() - start


def compared(problem: Any, cells: Cells, seed: int, options: argparse.Namespace, every: Cells) -> dict[str, Any]:
    """Coefficients over `cells`, on the CPU over `every` cell, too, and moments against one set of samples."""
    library = "cupy" if options.backend == "cupy" else "numpy"
    start = time.perf_counter()
    x = draw(problem.mean, problem.covariance, options.samples, seed=seed, backend=library)
    x = propagate(problem.drift, x, problem.span)
    synchronize(x.samples)
    middle = time.perf_counter()
    row: dict[str, Any] = {"seed": seed, "samples s": middle - start}
    kind = np.float32 if options.backend == "cupy" else None
    row["BC (KDE)"] = bhattacharyya(cells, kernel_density(x, cells, dtype=kind))
    row["KDE s"] = time.perf_counter() - middle
    if library == "numpy":
        row |= over_all(x, cells, every)
    for size in BINS:
        widths = size * np.asarray(cells.widths)
        row[f"BC, bins of {size:g} cells"] = bhattacharyya(cells, binned(x, cells, widths=widths), widths=widths)
    samples = to_numpy(x.samples)
    row["mean, MC"] = samples.mean(axis=1).round(4).tolist()
    row["std, MC"] = samples.std(axis=1).round(4).tolist()
    return row


def over_all(x: Any, cells: Cells, every: Cells) -> dict[str, float]:
    """The coefficient over `every` stored cell, and the shares of the estimate's mass that lie in the cells of both.

    Shares are counts of as many draws from the estimate: a sample and a normal deviate of the kernel's covariance.
    """
    samples = to_numpy(x.samples)
    n, count = samples.shape
    kernel = np.linalg.cholesky(np.cov(samples)) * count ** (-1.0 / (n + 4))
    drawn = samples + kernel @ np.random.default_rng(SEED).standard_normal(samples.shape)
    widths, first = np.asarray(every.widths), positions(every)[0]
    at = np.rint((drawn.T - first) / widths).astype(np.int64) + every.indices[0]
    places = {tuple(index) for index in at.tolist()}
    row = {"BC (KDE), stored": bhattacharyya(every, kernel_density(x, every))}
    for name, some in (("active", cells), ("stored", every)):
        held = places & {tuple(index) for index in np.asarray(some.indices).tolist()}
        row[f"KDE mass, {name}"] = sum(tuple(index) in held for index in at.tolist()) / count
    return row


def main() -> None:
    """Print the table of each problem, and keep them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gbees-monte-carlo", description=__doc__)
    add = parser.add_argument
    add("problems", nargs="*", metavar="PROBLEM", help="lorenz63 (default), lorenz96 or another configuration")
    add("--backend", default="numpy", choices=("numpy", "array", "cupy"))
    add("--dtype", default="float64", choices=("float64", "float32"))
    add("--samples", type=int, default=100_000)
    add("--seeds", type=int, nargs="+", default=[20731])
    add("--threshold", type=float)
    add("--factor", type=float)
    options = parser.parse_args()
    found = {}
    for name in options.problems or ["lorenz63"]:
        problem = configuration(name)
        run, seconds = carried(problem, options)
        every = run.cells()
        assert isinstance(every, Cells)
        threshold = options.threshold or problem.options["threshold"]
        cells = active(every, threshold)
        summary = {
            "t": run.time, "steps": run.n_steps, "cell-steps": run.cell_steps, "active cells": len(cells.probabilities),
            "s": seconds, "M cell-steps/s": run.cell_steps / seconds / 1e6, "mean": mean(every).round(4).tolist(),
            "std": np.sqrt(np.diag(covariance(every))).round(4).tolist(),
        }  # fmt: skip
        show(f"{name}, {options.backend}, {options.dtype}, threshold {threshold:g}", [summary])
        rows = [compared(problem, cells, seed, options, every) for seed in options.seeds]
        show(f"{name} against {options.samples:,} samples (the paper: {PAPER.get(name, 'none')})", rows)
        found[name] = {"run": summary, "comparisons": rows}
    if options.threshold is None and options.factor is None:
        device = options.backend == "cupy"
        about = cuda_device() if device else {}
        save(
            (LORENZ96 if device else ACCURACY).name, [], samples=options.samples, dtype=options.dtype, **found, **about
        )
