"""What every benchmark shares: fair timing, the measured bandwidth, tables, and results with their machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from ensemble._backend import prototype, synchronize
from ensemble._compile.lanes.types import load, store, zeros
from ensemble._compile.numba import compiled, empty, prange

RESULTS = Path(os.environ.get("ENSEMBLE_BENCHMARK_RESULTS", Path(__file__).parent / "results"))
SEED = 20731


class EnsembleBenchmark:
    """Base of the asv classes: backend and number of samples are its parameters, absent backends are skipped."""

    params = (["numba", "cuda"], [1, 8, 32])
    param_names = ("backend", "n_samples")
    timeout = 300

    def setup(self, backend: str, n_samples: int) -> None:
        self.library = {"numba": "numpy", "cuda": "cupy"}[backend]
        try:
            self.reference_array = prototype(self.library)
        except RuntimeError as absent:
            raise NotImplementedError(str(absent)) from absent

    def wait(self) -> None:
        """Until the device has done what was queued: the end of every timed method."""
        synchronize(self.reference_array)


def add_options_of_matrices(parser: argparse.ArgumentParser, cases: Sequence[str]) -> None:
    """Add the options of a comparison on files of matrices to a parser: files, samples, rounds, the record."""
    folder = Path(os.environ.get("MATRICES", "."))
    parser.add_argument("--matrices", type=Path, default=folder, help="folder of the files (default: MATRICES)")
    parser.add_argument("--cases", nargs="*", choices=cases, default=list(cases), help="cases")
    parser.add_argument("--samples", nargs="*", type=int, default=[1, 32], help="samples (default 1 and 32)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which each is timed once (default 5)")
    parser.add_argument("--name", help="name of the record (default: none is kept)")


# --- timing
def interleaved(
    functions: dict[str, Callable[[], Any]], rounds: int = 7, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each function over `rounds` rounds in which each runs once, after one warm-up round.

    On a shared machine, speed drifts from second to second: what is compared is timed in turn. ``time.process_time`` as
    `clock` leaves out what other processes take.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            start = clock()
            function()
            seconds[name].append(clock() - start)
    return seconds


def median(values: list[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def ratio(slow: list[float], fast: list[float], factor: float = 1.0) -> float:
    """Median over rounds of ``factor * slow / fast``, pair by pair."""
    return median([factor * a / b for a, b in zip(slow, fast, strict=True)])


@compiled
def _read(values, sums):
    block = 1 << 15
    for b in prange(sums.size // 8):
        t0, t1, t2, t3 = zeros(values, 8), zeros(values, 8), zeros(values, 8), zeros(values, 8)
        for i in range(b * block, (b + 1) * block, 32):
            t0 = t0 + load(values, i, 8)
            t1 = t1 + load(values, i + 8, 8)
            t2 = t2 + load(values, i + 16, 8)
            t3 = t3 + load(values, i + 24, 8)
        store(sums, b * 8, t0 + t1 + t2 + t3)


def one_thread() -> None:
    """Let Numba, and the linear algebra of NumPy and SciPy, take one thread until the process ends.

    Threads of OpenBLAS that wait are busy for a while: beside one thread they slow whatever runs next.
    """
    numba.set_num_threads(1)
    threadpool_limits(1)


def reader(gigabytes: float = 1.0) -> tuple[Callable[[], Any], float]:
    """A function that reads an array once with SIMD loads on all threads, and the bytes it reads."""
    n_blocks = int(gigabytes * 1e9 / 8) >> 15
    values = empty((n_blocks << 15,), np.float64)
    values[:] = 1.0
    sums = np.zeros(n_blocks * 8)
    return lambda: _read(values, sums), float(values.nbytes)


# --- output
def machine() -> dict[str, Any]:
    """Processor, threads and versions, for the head of a result."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        flags = cpuinfo.read_text()
        model = f"{names[0]}{', AVX-512' if 'avx512f' in flags else ', AVX2' if 'avx2' in flags else ''}"
    packages = ("numpy", "numba", "scipy", "pyamg", "scikit-fem", "numexpr", "jax")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "threads": numba.get_num_threads(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in packages if _installed(name)},
    }


def cuda_device() -> dict[str, Any]:
    """Name of the CUDA device, and versions, for the head of a result."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    runtime = cupy.cuda.runtime.runtimeGetVersion()
    return {"device": properties["name"].decode(), "cupy": cupy.__version__, "cuda": runtime}


def of_device(stem: str, device: str) -> str:
    """The name of a record by its device: `stem`-h200 of an H200, which the pages show, `stem`-cuda of another."""
    return f"{stem}-{'h200' if 'H200' in device else 'cuda'}"


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as one aligned table under its title and machine; a row may have fewer columns than the first."""
    texts = [{key: _text(row.get(key, "")) for key in rows[0]} for row in rows]
    width = {key: max(len(key), *(len(t[key]) for t in texts)) for key in texts[0]}
    about = machine()
    print(f"\n{title}\n{about['processor']}, {about['cores']} cores, {about['threads']} threads")
    print("  ".join(key.rjust(w) for key, w in width.items()))
    for text in texts:
        print("  ".join(text[key].rjust(w) for key, w in width.items()))


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def save(name: str, rows: list[dict[str, Any]], *, path: Path | None = None, **about: Any) -> None:
    """Keep rows with machine and versions as JSON at `path` or in `RESULTS`, each list of numbers on one line."""
    RESULTS.mkdir(exist_ok=True)
    content = {"benchmark": name, "machine": machine(), **about, "rows": rows}
    text = re.sub(r"\[[^][{}\"]*\]", lambda numbers: " ".join(numbers[0].split()), json.dumps(content, indent=1))
    (path or RESULTS / f"{name}.json").write_text(text + "\n")
