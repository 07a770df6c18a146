"""GBEES on the CPU against the public C program: Lorenz63 with the paper's threshold, Lorenz96 in six dimensions.

``python -m benchmarks gbees [--threads T] [--lorenz63 PROGRAM] [--lorenz96 PROGRAM]``

PROGRAM is the public program's example (github.com/bhanson10/gbees), built with ``gcc -O3 -march=native``, with the
thresholds, records and cell widths of `CASES` and without output; it is timed by the seconds that it prints itself.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np

from benchmarks.common import EnsembleBenchmark, interleaved, median, ratio, reader, save, show
from ensemble import Ensemble
from ensemble.apps.gbees import Gbees
from ensemble.apps.gbees.engines.array import ArrayEngine
from ensemble.apps.gbees.engines.cpu import CompiledEngine
from ensemble.apps.gbees.problem import Problem
from ensemble.apps.gbees.systems.lorenz import lorenz63, lorenz96

CASES = {
    "lorenz63": {"mean": [-11.5, -10.0, 9.5], "sigma": 1.0, "half": 6, "threshold": 5e-6, "cell_steps": 6_512_143},
    "lorenz96": {"mean": [4.5] + [4.0] * 5, "sigma": 0.2, "half": 3, "threshold": 1e-5, "cell_steps": 3_096_283},
}
"""dx = 0.5, two intervals of length 1 with the measurement x3 = -8 between them; dx = 0.2 to t = 0.2."""


class Lorenz63(EnsembleBenchmark):
    """The first 0.1 of the paper's run, from a mean of each sample's own, its first grid included."""

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        mean = np.array(CASES["lorenz63"]["mean"])[:, None] + np.linspace(0.0, 0.5, n_samples)
        self.mean = Ensemble(mean)
        self.time_advance(backend, n_samples)

    def time_advance(self, backend: str, n_samples: int) -> None:
        run = Gbees(lorenz63, self.mean, np.eye(3), threshold=5e-6, backend=self.library)
        run.advance(0.1)
        self.wait()


def start(name: str, dtype: Any) -> tuple[Problem, np.ndarray, np.ndarray]:
    """Problem, multi-indices and probabilities of a case."""
    case: dict[str, Any] = CASES[name]
    n, half = len(case["mean"]), case["half"]
    widths = np.full(n, 3.0 * case["sigma"] / half)
    drift = lorenz63 if name == "lorenz63" else lorenz96(4.0)
    problem = Problem(drift, np.array(case["mean"]), widths, case["threshold"], dtype=dtype)
    indices = np.stack(np.meshgrid(*[np.arange(-half, half + 1)] * n, indexing="ij"), axis=-1).reshape(-1, n)
    p = np.exp(-0.5 * np.sum((widths * indices / case["sigma"]) ** 2, axis=1))
    return problem, indices, p / p.sum()


def run(name: str, engine: Any, dtype: Any = np.float64) -> None:
    """The whole run, its first grid included."""
    problem, indices, p = start(name, dtype)
    grid = engine(problem, indices, p)
    if name == "lorenz96":
        taken = [grid.advance(0.0, 0.1), grid.advance(0.1, 0.1)]
    else:
        taken = [grid.advance(0.25 * k, 0.25) for k in range(4)]
        x3 = problem.widths[2] * grid.cells()[0][:, 2] + problem.origin[2]
        grid.reweight(-0.5 * (x3 + 8.0) ** 2)
        taken += [grid.advance(1.0 + 0.25 * k, 0.25) for k in range(4)]
    assert sum(int(part.cells.sum()) for part in taken) == CASES[name]["cell_steps"] or dtype == np.float32


def program(path: str) -> float:
    """Seconds that the public program takes, by its own clock."""
    folder = Path(path).resolve()
    text = subprocess.run([str(folder)], cwd=folder.parent, capture_output=True, text=True, check=True).stdout
    return float(re.findall(r"Program time: ([\d.]+) s", text)[-1])


def traffic(n: int, itemsize: int) -> int:
    """Bytes that one cell-step has to move when no cache holds the grid, each array read or written once a pass."""
    outflow = 2 * 4 * n + itemsize * (1 + n + 2 * n + 1)  # links, p and v in; both flows and what stays out
    inflow = 2 * 4 * n + itemsize * (2 * n + 2)
    return outflow + inflow + itemsize * 2 + itemsize + 1  # scaling; looking for cells to grow


def table(name: str, peer: str | None, rounds: int) -> list[dict[str, Any]]:
    """Ours in both precisions, the Array API code and the public program, in turn."""
    functions = {
        "compiled, float64": lambda: run(name, CompiledEngine),
        "compiled, float32": lambda: run(name, CompiledEngine, np.float32),
        "Array API on NumPy": lambda: run(name, ArrayEngine),
    }
    theirs: list[float] = []
    if peer is not None:
        functions["public C program"] = lambda: theirs.append(program(peer))
    seconds = interleaved(functions, rounds)
    if peer is not None:
        seconds["public C program"] = theirs[1:]
    cell_steps, n = int(CASES[name]["cell_steps"]), len(CASES[name]["mean"])  # type: ignore[arg-type]
    rows = []
    for engine, taken in seconds.items():
        row = {"case": name, "run": engine, "s": median(taken), "Mcell-steps/s": cell_steps / median(taken) / 1e6}
        ours = engine.startswith("compiled")
        moved = traffic(n, 4 if engine.endswith("32") else 8) if ours else None
        row |= {"bytes a cell-step": moved, "GB/s": moved * cell_steps / median(taken) / 1e9 if moved else None}
        if peer is not None:
            row["x C program"] = ratio(seconds["public C program"], taken)
        rows.append(row)
    return rows


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    for name in CASES:
        parser.add_argument(f"--{name}", help="the public program of this case")
    options = parser.parse_args()
    numba.set_num_threads(options.threads)
    begun = time.perf_counter()
    rows = [row for name in CASES for row in table(name, getattr(options, name), options.rounds)]
    show("GBEES", rows)
    read, n_bytes = reader()
    bandwidth = n_bytes / median(interleaved({"read": read})["read"]) / 1e9
    print(f"read bandwidth {bandwidth:.1f} GB/s; {time.perf_counter() - begun:.0f} s in all")
    save("gbees-cpu" if options.threads == 1 else f"gbees-cpu-{options.threads}threads", rows, bandwidth=bandwidth)
