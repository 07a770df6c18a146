"""GBEES on one GPU: whole runs of the paper's two cases, and many grids at once.

``python -m benchmarks gbees-device [--published]``: first every reference run is checked, then

* Lorenz63 at p* = 5e-6, both intervals and the measurement between them, 963 steps, and at half the cell width;
* Lorenz96 in six dimensions, cells 0.1 wide, to t = 1.3 at p* = 1e-6; with ``--published`` also at the paper's 8e-9;
* 64 Lorenz63 problems with different r, in one run;
* Lorenz63 in float64 and, with ``--published``, Lorenz96 in float32 again, with the seconds at times of the run.

Times are from the first step to the last by the host's clock, with the device idle before and after; compiling is not
in them. Medians of 5 where a run takes less than a second. The bound is the traffic of a step at the measured bandwidth
of a triad: per cell and step two keys, all neighbours twice, p three times, T once written and once read, p once
written, one mark.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.bench_diffusion_device import triad
from benchmarks.common import cuda_device, save
from ensemble.apps.gbees.engines.cuda import CudaEngine
from ensemble.apps.gbees.engines.cuda_grid import bytes_per_cell
from ensemble.apps.gbees.problem import Problem
from ensemble.apps.gbees.systems.lorenz import lorenz63, lorenz96


def box(cp: Any, n: int, half: int, widths: np.ndarray, sigma: float) -> tuple[Any, Any]:
    """Multi-indices of a cube of cells and the Gaussian on them, on the device."""
    axes = [cp.arange(-half, half + 1)] * n
    indices = cp.stack([axis.ravel() for axis in cp.meshgrid(*axes, indexing="ij")], axis=1)
    p = cp.exp(-0.5 * cp.sum((cp.asarray(widths) * indices / sigma) ** 2, axis=1))
    return indices, p / p.sum()


class OnDevice(CudaEngine):
    """An engine that takes and gives NumPy arrays, for the checks."""

    def __init__(self, problem: Problem, indices: Any, p: Any, time: float = 0.0) -> None:
        import cupy as cp

        super().__init__(problem, cp.asarray(indices), cp.asarray(p), time)

    def cells(self) -> tuple[Any, Any]:
        indices, p = super().cells()
        return indices.get(), p.get()


def checks() -> Iterator[str]:
    """Every reference run: what agreed, or an AssertionError."""
    # the runs that the tests know; asv, which imports this file, has no tests beside it
    from tests.apps.gbees.references import assert_same, distance, reference, start
    from tests.apps.gbees.test_references import run_lorenz63

    bits = []
    for attempt in range(2):
        for run, data, record, done in run_lorenz63(OnDevice):  # noqa: B007
            assert_same(run, data, record, rtol=1e-11)
        assert done == (963, 6_512_143), done
        bits.append(run.cells())
        yield f"Lorenz63, run {attempt + 1}: 963 steps, 6512143 cell-steps, every record within 1e-11"
    assert all(np.array_equal(a, b) for a, b in zip(*bits, strict=True))
    yield "two runs give the same bits"
    worst = max(distance(run, data, record) for run, data, record, _ in run_lorenz63(OnDevice, dtype=np.float32))
    assert worst < 1e-6, worst
    yield f"Lorenz63, float32: L1 {worst:.1e}"
    worst = max(distance(run, data, record) for run, data, record, _ in run_lorenz63(OnDevice, prune="parallel"))
    assert worst < 2e-5, worst
    yield f"Lorenz63, parallel prune: L1 {worst:.1e}"
    problem, indices, p = start("l96_short")
    run = OnDevice(problem, indices, p)
    n_steps = len(run.advance(0.0, 0.1)) + len(run.advance(0.1, 0.1))
    assert_same(run, reference("l96_short"), "P0_pdf_2", rtol=1e-11)
    assert n_steps == 35, n_steps
    yield "Lorenz96, 35 steps in six dimensions: within 1e-11"


def both_intervals(cp: Any, factor: int, **options: Any) -> tuple[float, int, int, int]:
    """The paper's Lorenz63 run with cells of 0.5 / `factor`: seconds, steps, cell-steps, most cells."""
    widths = np.full(3, 0.5 / factor)
    problem = Problem(lorenz63, np.array([-11.5, -10.0, 9.5]), widths, 5e-6 / factor**3, **options)
    engine = CudaEngine(problem, *box(cp, 3, 6 * factor, widths, 1.0))
    cp.cuda.Device().synchronize()
    begun = time.perf_counter()
    taken = [engine.advance(0.25 * k, 0.25) for k in range(4)]
    indices, _ = engine.cells()
    engine.reweight(-0.5 * (widths[2] * indices[:, 2] + 9.5 + 8.0) ** 2)
    taken += [engine.advance(1 + 0.25 * k, 0.25) for k in range(4)]
    cp.cuda.Device().synchronize()
    seconds = time.perf_counter() - begun
    cells = np.concatenate([part.cells for part in taken])
    return seconds, len(cells), int(cells.sum()), int(cells.max())


def lorenz96_run(cp: Any, threshold: float, until: float, **options: Any) -> dict[str, Any]:
    """Lorenz96 in six dimensions as in the paper."""
    pool = cp.get_default_memory_pool()
    pool.free_all_blocks()
    widths = np.full(6, 0.1)
    problem = Problem(lorenz96(4.0), np.array([4.5, 4, 4, 4, 4, 4.0]), widths, threshold, **options)
    indices, p = box(cp, 6, 6, widths, 0.2)
    engine = CudaEngine(problem, indices, p)
    del indices, p
    pool.free_all_blocks()
    cp.cuda.Device().synchronize()
    begun = time.perf_counter()
    taken = engine.advance(0.0, until)
    cp.cuda.Device().synchronize()
    seconds = time.perf_counter() - begun
    most = int(taken.cells.max())
    return {
        "seconds": seconds, "steps": len(taken), "cell_steps": int(taken.cells.sum()), "most_cells": most,
        "cells_at_end": engine.n_cells, "pool_bytes_a_cell": pool.total_bytes() / most,
        "bytes_a_cell_of_capacity": bytes_per_cell(6, np.dtype(problem.dtype).itemsize),
        "capacity": engine.grid.capacity, "mass_ratios": [float(taken.masses.min()), float(taken.masses.max())],
        "times": np.cumsum(taken.lengths).round(6).tolist(), "cells": taken.cells.tolist(),
    }  # fmt: skip


def many_lorenz63(cp: Any, n_grids: int, **options: Any) -> dict[str, Any]:
    """`n_grids` Lorenz63 problems, r from 44 to 52, to t = 1, together."""
    widths = np.full(3, 0.5)
    indices, p = box(cp, 3, 6, widths, 1.0)
    one = Problem(lorenz63, np.array([-11.5, -10.0, 9.5]), widths, 5e-6, **options)

    def engines() -> list[CudaEngine]:
        drifts = (lorenz63.with_parameters(r=r) for r in np.linspace(44.0, 52.0, n_grids))
        return [CudaEngine(replace(one, drift=drift), indices, p) for drift in drifts]

    def run(each: list[CudaEngine]) -> float:
        cp.cuda.Device().synchronize()
        begun = time.perf_counter()
        CudaEngine.advance_many(each, [0.0] * len(each), [1.0] * len(each))
        cp.cuda.Device().synchronize()
        return time.perf_counter() - begun

    run(engines())
    together = [engines() for _ in range(3)]
    seconds = statistics.median(run(each) for each in together)
    alone = engines()[:: max(1, n_grids // 4)]
    each_alone = [run([engine]) for engine in alone]
    for engine, other in zip(alone, together[0][:: max(1, n_grids // 4)], strict=True):
        same = all(cp.array_equal(a, b) for a, b in zip(engine.cells(), other.cells(), strict=True))
        assert same, "a grid among others must be its own run"
    work = sum(int(engine.taken.cells.sum()) for engine in together[0])
    return {"grids": n_grids, "seconds": seconds, "cell_steps": work, "seconds_alone": statistics.median(each_alone)}


def median_of(runs: int, run: Callable[[], tuple[float, int, int, int]]) -> tuple[float, int, int, int]:
    """The run of median time, after one that compiles."""
    run()
    return sorted(run() for _ in range(runs))[runs // 2]


def line(name: str, seconds: float, work: int, extra: str = "") -> None:
    """One line of the table."""
    print(f"{name:<46} {1e3 * seconds:>10.2f} ms {work / seconds / 1e6:>9.1f} M cell-steps/s  {extra}", flush=True)


def against_time(
    cp: Any, engine: CudaEngine, until: float, span: float, measured_at: float | None = None
) -> dict[str, list[float]]:
    """Seconds and cells at multiples of `span`, where steps end; the measurement x3 = -8 comes at `measured_at`."""
    times, seconds, cells = [0.0], [0.0], [engine.n_cells]
    cp.cuda.Device().synchronize()
    begun = time.perf_counter()
    for k in range(round(until / span)):
        engine.advance(span * k, span)
        cp.cuda.Device().synchronize()
        times.append(round(span * (k + 1), 6))
        seconds.append(time.perf_counter() - begun)
        cells.append(engine.n_cells)
        if times[-1] == measured_at:
            indices, _ = engine.cells()
            engine.reweight(-0.5 * (0.5 * indices[:, 2] + 9.5 + 8.0) ** 2)
    return {"times": times, "seconds": seconds, "cells": cells}


def curves(cp: Any, published: bool) -> dict[str, Any]:
    """What figures 10 to 12 of the paper show."""
    problem = Problem(lorenz63, np.array([-11.5, -10.0, 9.5]), np.full(3, 0.5), 5e-6, dtype=np.float64)
    found = {
        "Lorenz63 against time, float64": against_time(
            cp, CudaEngine(problem, *box(cp, 3, 6, problem.widths, 1.0)), 2.0, 0.25, 1.0
        )
    }
    if published:
        cp.get_default_memory_pool().free_all_blocks()
        mean = np.array([4.5, 4, 4, 4, 4, 4.0])
        problem = Problem(lorenz96(4.0), mean, np.full(6, 0.1), 8e-9, dtype=np.float32, prune="parallel")
        engine = CudaEngine(problem, *box(cp, 6, 6, problem.widths, 0.2))
        found["Lorenz96 against time, float32"] = against_time(cp, engine, 1.3, 0.1)
    return found


def main() -> None:
    """Check, time, print, and keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--no-checks", action="store_true")
    options = parser.parse_args()
    import cupy as cp

    about = cuda_device()
    bandwidth = 1e9 * triad()
    kept: dict[str, Any] = {**about, "triad_TB_s": bandwidth / 1e12}
    print(f"{about['device']}, CuPy {cp.__version__}, triad {bandwidth / 1e12:.2f} TB/s")
    if not options.no_checks:
        for text in checks():
            print("ok:", text, flush=True)
    for dtype in (np.float64, np.float32):
        kind = np.dtype(dtype).name
        for factor in (1, 2):
            seconds, steps, work, most = median_of(5, lambda f=factor, d=dtype: both_intervals(cp, f, dtype=d))
            title = f"Lorenz63, dx {0.5 / factor}, {kind}"
            line(title, seconds, work, f"{steps} steps, up to {most} cells")
            kept[title] = {"seconds": seconds, "steps": steps, "cell_steps": work, "most_cells": most}
        title = f"64 Lorenz63 to t = 1, {kind}"
        kept[title] = many = many_lorenz63(cp, 64, dtype=dtype)
        line(title, many["seconds"], many["cell_steps"], f"one alone {1e3 * many['seconds_alone']:.2f} ms")
    for dtype in (np.float32, np.float64):
        size = np.dtype(dtype).itemsize
        for threshold in (1e-6, 8e-9) if options.published else (1e-6,):
            lorenz96_run(cp, 1e-5, 0.02, dtype=dtype, prune="parallel", prune_every=2)  # compiles
            title = f"Lorenz96, p* {threshold:g}, {np.dtype(dtype).name}"
            kept[title] = run = lorenz96_run(cp, threshold, 1.3, dtype=dtype, prune="parallel")
            run["fraction_of_bound"] = run["cell_steps"] * (17 + 16 * 6 + 6 * size) / bandwidth / run["seconds"]
            line(title, run["seconds"], run["cell_steps"],
                 f"{run['steps']} steps, up to {run['most_cells']} cells, {run['pool_bytes_a_cell']:.0f} B a cell, "
                 f"{100 * run['fraction_of_bound']:.1f} % of the traffic bound")  # fmt: skip
            save("gbees-gpu", [], **kept)
    save("gbees-gpu", [], **kept, **curves(cp, options.published))


if __name__ == "__main__":
    main()
