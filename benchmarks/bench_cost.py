"""Cost a sample against the size of the ensemble: the figures 8, 9 and 12 of Phipps et al. (2017), on this machine."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks.bench_assembly import parameters
from benchmarks.bench_multigrid import ours
from benchmarks.common import median, save, show
from benchmarks.plots.cost import draw
from ensemble._compile.numba import empty
from ensemble.apps.fem import RandomDiffusion
from ensemble.krylov import cg
from ensemble.multigrid import smoothed_aggregation

SIZES = (1, 4, 8, 16, 32, 64)
PHASES = ("product", "assembly", "setup", "solve")


def table(cells: int = 64, sizes: tuple[int, ...] = SIZES, rounds: int = 5) -> list[dict[str, Any]]:
    """Milliseconds a sample of each phase, and what an ensemble gains over one sample, all sizes in turn each round."""
    problem = RandomDiffusion(cells, grading=0.0)
    systems = {s: problem.assemble(parameters(s), symmetric=True) for s in sizes}
    products = {s: empty(b.samples.shape, np.float64) for s, (_, b) in systems.items()}
    seconds: dict[int, list[tuple[float, ...]]] = {s: [] for s in sizes}
    for k in range(rounds + 1):
        for s, (A, b) in systems.items():
            start = time.perf_counter()
            problem.assemble(parameters(s), out=A, symmetric=True)
            middle = time.perf_counter()
            A.apply(b.samples, products[s])
            timed = (time.perf_counter() - middle, middle - start, *ours(A, b)[:2])
            if k > 0:  # the first round compiles and warms memory up
                seconds[s].append(timed)
    rows = [
        {"n_samples": s, **{f"{name} ms": 1e3 * median([t[k] for t in timed]) / s for k, name in enumerate(PHASES)}}
        for s, timed in seconds.items()
    ]
    for row in rows:
        for name in PHASES:
            row[f"x {name}"] = rows[0][f"{name} ms"] / row[f"{name} ms"]
    show(f"Cost a sample against ensemble size, {cells}^3 cells, float64", rows)
    return rows


def main(cells: int, threads: int) -> None:
    """Print and keep the table, and draw it."""
    rows = table(cells)
    save(f"cost-{cells}-{threads}threads", rows, cells=cells, grading=0.0, stored="upper triangle")
    draw(rows, f"Random diffusion, {cells}³ cells, {threads} threads")


# --- memory
def held_bytes(A: Any, b: Any, hierarchy: Any) -> dict[str, float]:
    """Bytes that setup and solve cannot do without: values, hierarchy, vectors."""
    vectors = 7 * b.samples.nbytes  # b, x, r, p, z or q, and two of the V-cycle
    levels = sum(level.A.values.nbytes for level in hierarchy.levels[1:])
    levels += sum(level.P.values.nbytes + level.smoother.dinv.nbytes for level in hierarchy.levels[:-1])
    levels += hierarchy.coarse.inverse.nbytes
    graphs = sum(g.indices.nbytes + g.indptr.nbytes for g in (level.A.graph for level in hierarchy.levels))
    return {"values": A.values.nbytes, "hierarchy": levels, "vectors": vectors, "graphs": graphs}


def measure_memory(cells: int, n_samples: int) -> None:
    """In a process of its own: solve once, print the bytes held and the peak."""
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    problem, y = RandomDiffusion(cells), parameters(n_samples)
    problem.solve(y).raise_if_failed()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    A, b = problem.assemble(y, symmetric=True)
    hierarchy = smoothed_aggregation(A)
    cg(A, b, M=hierarchy, rtol=1e-7)
    held = held_bytes(A, b, hierarchy)
    print(base, peak, *held.values())


def memory(cells: int, threads: int) -> None:
    """Peak memory of a solve of 32 samples in a process of its own, against the bytes that must be held."""
    n_samples = 32
    code = f"from benchmarks.bench_cost import measure_memory; measure_memory({cells}, {n_samples})"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    base, peak, values, hierarchy, vectors, graphs = (float(t) for t in output.split())
    held = values + hierarchy + vectors + graphs
    row = {
        "n_samples": n_samples, "values GB": values / 1e9, "hierarchy GB": hierarchy / 1e9, "vectors GB": vectors / 1e9,
        "graphs GB": graphs / 1e9, "must be held GB": held / 1e9, "peak GB": peak / 1e9,
        "libraries GB": base / 1e9, "peak / held": (peak - base) / held,
    }  # fmt: skip
    show(f"Peak memory of setup and solve, {cells}^3 cells, float64", [row])
    save(f"memory-{cells}", [row], cells=cells)
