"""The Kalman kernels on a CUDA device: checked against a float64 filter on the CPU, timed, as tables and JSON.

``python -m benchmarks kalman-device [--T 1000 10000 100000 1000000 10000000] [--out FILE]``: the random model of Särkkä
and García-Fernández, 4 states, 2 observations, all time-varying, float32. PKF, PRTS and PTFS by chunks and, up to
``--scans-T``, by every other scan over packed elements, each of its levels one launch; the plain recursion on one
thread. PRTS and PTFS contain the filter. Median of 10 calls after 2, between events: ``call`` with all that Python does
for each launch, ``graph`` as a recorded CUDA graph, which is what the device itself takes. ``--jax 10000`` runs JAX's
`associative_scan` (`benchmarks.kalman_jax`), too, timed as ``wall``: by the host's clock until the device is done, ours
as well. Plots: ``benchmarks.plots.kalman``.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import kalman_jax
from benchmarks.bench_kalman import NX, NY, random_model
from benchmarks.common import cuda_device, save
from ensemble._compile.streams import CudaGraph
from ensemble._kernels.kalman import kalman_launch
from ensemble._kernels.kalman.level_scans import scan_filter, scan_smoother, scan_two_filters
from ensemble.apps.kalman import LinearGaussianModel, rts_smoother

READ = NX * NX * 2 + NY * NX + NY * NY + NX + 2 * NY
"""Numbers that a step of the filter must read."""

WRITTEN = {"PKF": NX + NX * NX + 1, "PRTS": NX + NX * NX, "PTFS": NX + NX * NX}
"""Numbers of a step that each method must write: the filter its likelihood too."""

SIMULATED = 1_000_000
"""Steps of the longest model that is drawn; longer ones repeat it."""

SCANS: dict[str, tuple[str, dict[str, int]]] = {
    "Hillis-Steele": ("hillis_steele", {}),
    "Blelloch": ("blelloch", {}),
    "Ladner-Fischer": ("ladner_fischer", {}),
    "Sengupta A": ("sengupta", {"threshold": 1}),
    "Sengupta B": ("sengupta", {"threshold": 20_000}),
}
"""The scans of the paper by its names; N = 20000 is its choice for a large GPU."""


drawn_model = functools.cache(random_model)


def milliseconds(cp: Any, run: Callable[[], Any], calls: int = 10, warm: int = 2) -> float:
    """Median time of a call, from its first launch to the end of its last kernel."""
    times = []
    for _ in range(calls + warm):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        cp.cuda.get_current_stream().synchronize()
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(cp.cuda.get_elapsed_time(start, stop))
    return statistics.median(times[warm:])


def errors(cp: Any, got: tuple[Any, Any], exact: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Largest error of a mean in posterior deviations, and of a covariance relative to its largest entry."""
    m, P = (cp.asnumpy(a).reshape(e.shape) for a, e in zip(got, exact, strict=True))
    deviation = np.sqrt(np.einsum("kii->ki", exact[1]))
    scale = np.abs(exact[1]).max((1, 2))
    return float(np.max(np.abs(m - exact[0]) / deviation)), float(np.max(np.abs(P - exact[1]).max((1, 2)) / scale))


TRIAD = r"""
extern "C" __global__ void triad(const float4* a, const float4* b, float4* c, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float4 x = a[i], y = b[i];
    c[i] = make_float4(x.x + 2 * y.x, x.y + 2 * y.y, x.z + 2 * y.z, x.w + 2 * y.w);
}
"""


def bound(cp: Any) -> float:
    """Bytes a second of a triad of 2.5e8 float32, 16 bytes a thread."""
    n = 250_000_000 // 4
    a, b, c = (cp.ones(4 * n, cp.float32) for _ in range(3))
    triad = cp.RawKernel(TRIAD, "triad")
    run = lambda: triad((-(-n // 256),), (256,), (a, b, c, np.int64(n)))
    return 3 * 16 * n / (1e-3 * milliseconds(cp, run))


def chunked(arrays: tuple[Any, ...], chunk: int) -> dict[str, Callable[[], Any]]:
    """PKF, PRTS and PTFS by chunks of `chunk` steps."""
    F, Q, u = arrays[0], arrays[1], arrays[4]

    def prts() -> Any:
        m, P, *_ = kalman_launch.filter_chunks(*arrays, True, chunk)
        return kalman_launch.smooth_chunks(F, Q, u, m, P, chunk)

    return {
        "PKF": lambda: kalman_launch.filter_chunks(*arrays, True, chunk)[:2],
        "PRTS": prts,
        "PTFS": lambda: kalman_launch.two_filter_chunks(*arrays, True, chunk)[4:],
    }


def scanned(arrays: tuple[Any, ...], way: str) -> dict[str, Callable[[], Any]]:
    """PKF, PRTS and PTFS by one of the classical scans."""
    algorithm, options = SCANS[way]
    given = (*arrays, True)

    def prts() -> Any:
        m, P, *_ = scan_filter(given, algorithm, **options)
        return scan_smoother(given, m, P, algorithm, **options)

    return {
        "PKF": lambda: scan_filter(given, algorithm, **options)[:2],
        "PRTS": prts,
        "PTFS": lambda: scan_two_filters(given, algorithm, **options)[4:],
    }


def problem(cp: Any, T: int) -> tuple[tuple[Any, ...], dict[str, tuple[np.ndarray, np.ndarray]] | None]:
    """The model's arrays on the device, and the states of a float64 filter and smoother."""
    drawn = min(T, SIMULATED)
    parts, y = drawn_model(drawn)
    exact = None
    if drawn == T:
        smooth = rts_smoother(LinearGaussianModel(**parts), y)
        both = (smooth.mean, smooth.covariance)
        exact = {"PKF": (smooth.filtered.mean, smooth.filtered.covariance), "PRTS": both, "PTFS": both}
    times = -(-T // drawn)
    device = {name: cp.asarray(a, cp.float32) for name, a in {**parts, "y": y}.items()}
    steps = {name: cp.tile(device[name], (times, *(1,) * (device[name].ndim - 1)))[:T]
             for name in ("F", "Q", "H", "R", "u", "d", "y")}  # fmt: skip
    return (*(a[None] for a in steps.values()), device["m0"][None], device["P0"][None]), exact


def lengths(T: int, tune: bool) -> list[int]:
    """Steps of a chunk to try."""
    best = kalman_launch.chunk_length(1, T) or T
    return sorted({max(4, best // 8 * 4), best, 2 * best}) if tune else [best]


def row(
    T: int, name: str, way: str, times: dict[str, float], error: tuple[float, float], bandwidth: float,
) -> dict[str, Any]:  # fmt: skip
    """What was found about one method by one scan, printed."""
    least = 4 * T * (READ + WRITTEN[name]) / bandwidth * 1e3
    numbers = {**times, "% of the traffic bound": 100 * least / min(times.values()), "error / deviation": error[0],
               "relative error of P": error[1]}  # fmt: skip
    print(T, name, way, *(f"{key} {value:.4g}" for key, value in numbers.items()), sep="  ", flush=True)
    return {"T": T, "method": name, "scan": way, **numbers}


def measured(cp: Any, T: int, scans_T: int, bandwidth: float, tune: bool) -> list[dict[str, Any]]:
    """The rows of one length."""
    arrays, exact = problem(cp, T)
    rows: list[dict[str, Any]] = []

    def add(name: str, way: str, run: Callable[[], Any], record: bool = True, calls: int = 10, warm: int = 2) -> None:
        error = (float("nan"),) * 2 if exact is None else errors(cp, run(), exact[name])
        call = milliseconds(cp, run, calls, warm)
        times = {"graph ms": call, "call ms": call}
        if way.startswith("chunks"):
            times["wall ms"] = kalman_jax.milliseconds(lambda: (run(), cp.cuda.get_current_stream().synchronize()))
        if record:
            kept: list[Any] = []
            replay = CudaGraph(lambda: kept.__setitem__(slice(None), run()))
            times["graph ms"] = milliseconds(cp, replay, calls, 3)
            if exact is not None:
                again = errors(cp, tuple(kept), exact[name])
                error = (max(error[0], again[0]), max(error[1], again[1]))
        rows.append(row(T, name, way, times, error, bandwidth))

    for chunk in lengths(T, tune):
        for name, run in chunked(arrays, chunk).items():
            add(name, f"chunks of {chunk}", run)
    for way in SCANS if scans_T >= T else ():
        for name, run in scanned(arrays, way).items():
            add(name, way, run)
    few = T > 100_000
    alone = lambda: kalman_launch.filter_chunks(*arrays, True)[:2]
    add("PKF", "one thread", alone, False, 1 if few else 10, 0 if few else 2)
    return rows


def jax_rows(cp: Any, lengths: list[int], bandwidth: float) -> Iterator[dict[str, Any]]:
    """JAX at these lengths, a row as soon as it is measured."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    models, exact = {}, {}
    for T in lengths:
        parts, y = drawn_model(T)
        models[T] = tuple({**parts, "y": y}[name] for name in ("F", "Q", "H", "R", "u", "d", "y", "m0", "P0"))
        exact[T] = problem(cp, T)[1]
    for T, name, form, run in kalman_jax.programs(models):
        error = errors(cp, tuple(np.asarray(a) for a in run()), exact[T][name])
        yield row(T, name, f"JAX {form}", {"wall ms": kalman_jax.milliseconds(run)}, error, bandwidth)


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--T", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--scans-T", type=int, default=1_000_000)
    parser.add_argument("--tune", action="store_true", help="chunks half and twice as long too")
    parser.add_argument("--jax", type=int, nargs="*", default=[], help="lengths at which JAX runs, too")
    parser.add_argument("--out", type=Path, help="instead of the record `kalman-cuda`")
    options = parser.parse_args()
    import cupy as cp

    with cp.cuda.Stream(non_blocking=True):
        bandwidth = bound(cp)
        about = {**cuda_device(), "triad_TB_s": bandwidth / 1e12}
        print(about)
        rows = []

        def keep() -> None:
            save("kalman-cuda", rows, path=options.out, **about)

        for T in options.T:
            rows += measured(cp, T, options.scans_T, bandwidth, options.tune)
            keep()
        for found in jax_rows(cp, options.jax, bandwidth):
            rows.append(found)
            keep()
    for T in options.T:
        filters = [r for r in rows if r["T"] == T and r["method"] == "PKF"]
        best = min(r["graph ms"] for r in filters if r["scan"].startswith("chunks"))
        alone = next(r["call ms"] for r in filters if r["scan"] == "one thread")
        print(f"T {T}: PKF by chunks {alone / best:.0f} x one thread")
