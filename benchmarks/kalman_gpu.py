"""The Kalman kernels on a CUDA device: checked against a float64 filter on the CPU, timed, as tables and JSON.

``python -m benchmarks.kalman_gpu [--T 10000 100000 1000000] [--out FILE]``: the random model of Särkkä and
García-Fernández, 4 states, 2 observations, all time-varying, float32. PKF, PRTS, PTFS by chunks, by every other scan
up to ``--scans-T``, and the recursion on one thread. Median of 10 calls after 2; PRTS and PTFS contain the filter.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.bench_kalman import NX, NY, random_model
from ensemble._kernels import kalman_cuda as kernels
from ensemble._kernels.scan import SCANS, prefix_scan
from ensemble.apps.kalman import LinearGaussianModel, rts_smoother
from ensemble.apps.kalman.elements import (
    combine_filter,
    combine_smoother,
    filter_elements,
    filter_neutral,
    smoother_elements,
    smoother_neutral,
)
from ensemble.apps.kalman.model import aligned
from ensemble.apps.kalman.smoothers import meet

READ = NX * NX * 2 + NY * NX + NY * NY + NX + 2 * NY
WRITTEN = NX + NX * NX


def milliseconds(cp: Any, run: Callable[[], Any], calls: int = 10) -> float:
    """Median time of a call, from its first launch to the end of its last kernel."""
    times = []
    for _ in range(calls + 2):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        cp.cuda.get_current_stream().synchronize()
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(cp.cuda.get_elapsed_time(start, stop))
    return statistics.median(times[2:])


def errors(cp: Any, got: tuple[Any, Any], exact: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Largest error of a mean in posterior deviations, and of a covariance relative to its largest entry."""
    m, P = (cp.asnumpy(a).reshape(e.shape) for a, e in zip(got, exact, strict=True))
    deviation = np.sqrt(np.einsum("kii->ki", exact[1]))
    scale = np.abs(exact[1]).max((1, 2))
    return float(np.max(np.abs(m - exact[0]) / deviation)), float(np.max(np.abs(P - exact[1]).max((1, 2)) / scale))


def bound(cp: Any) -> float:
    """Bytes a second of a triad of 1e8 float32."""
    a, b = cp.ones(100_000_000, cp.float32), cp.ones(100_000_000, cp.float32)
    c = cp.empty_like(a)
    triad = cp.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x + 2.0f * y", "triad")
    return 1.2e9 / (1e-3 * milliseconds(cp, lambda: triad(a, b, c)))


def scanned(
    series: Any, neutral: tuple[Any, ...], backwards: tuple[Any, ...], way: str, name: str
) -> Callable[[], Any]:
    """PKF, PRTS or PTFS by one of the scans of `prefix_scan`, elements included."""

    def pkf() -> Any:
        _, m, P, _, _ = prefix_scan(combine_filter, filter_elements(series), algorithm=way, neutral=neutral)
        return m, P

    def prts() -> Any:
        elements = smoother_elements(series, *pkf())
        return prefix_scan(combine_smoother, elements, algorithm=way, reverse=True, neutral=backwards)[1:]

    def ptfs() -> Any:
        elements = filter_elements(series)
        _, m, P, _, _ = prefix_scan(combine_filter, elements, algorithm=way, neutral=neutral)
        later = tuple(_ahead(a, e) for a, e in zip(elements, neutral, strict=True))
        *_, eta, J = prefix_scan(combine_filter, later, algorithm=way, reverse=True, neutral=neutral)
        return meet(m, P, eta, J)

    return {"PKF": pkf, "PRTS": prts, "PTFS": ptfs}[name]


def _ahead(a: Any, end: Any) -> Any:
    """`a` without its first entry, `end` behind it."""
    import cupy as cp

    return cp.concatenate([a[1:], end[None]])


def chunked(arrays: tuple[Any, ...], chunk: int) -> dict[str, Callable[[], Any]]:
    """PKF, PRTS and PTFS by chunks of `chunk` steps."""
    F, Q, u = arrays[0], arrays[1], arrays[4]

    def prts() -> Any:
        m, P, _ = kernels.filter_chunks(*arrays, True, chunk)
        return kernels.smooth_chunks(F, Q, u, m, P, chunk)

    return {
        "PKF": lambda: kernels.filter_chunks(*arrays, True, chunk)[:2],
        "PRTS": prts,
        "PTFS": lambda: kernels.two_filter_chunks(*arrays, True, chunk)[3:],
    }


def measured(cp: Any, T: int, scans_T: int, bandwidth: float) -> list[dict[str, Any]]:
    """The rows of one length."""
    parts, y = random_model(T)
    smooth = rts_smoother(LinearGaussianModel(**parts), y) if T <= 1_000_000 else None
    exact = None
    if smooth is not None:
        filtered = (smooth.filtered.mean, smooth.filtered.covariance)
        exact = {"PKF": filtered, "PRTS": (smooth.mean, smooth.covariance), "PTFS": (smooth.mean, smooth.covariance)}
    device = {name: cp.asarray(a, cp.float32) for name, a in parts.items()}
    seen = cp.asarray(y, cp.float32)
    arrays = (*(device[name][None] for name in ("F", "Q", "H", "R", "u", "d")), seen[None], device["m0"][None],
              device["P0"][None])  # fmt: skip
    best = kernels.chunk_length(1, T) or T
    rows: list[dict[str, Any]] = []

    def add(name: str, way: str, run: Callable[[], Any], calls: int = 10) -> None:
        error = (float("nan"),) * 2 if exact is None else errors(cp, run(), exact[name])
        ms = milliseconds(cp, run, calls)
        least = 4 * T * (READ + WRITTEN) / bandwidth * 1e3
        rows.append({"T": T, "method": name, "scan": way, "ms": ms, "% of the traffic bound": 100 * least / ms,
                     "error / deviation": error[0], "relative error of P": error[1]})  # fmt: skip
        print("  ".join(f"{v:>14.4g}" if isinstance(v, float) else f"{v!s:>14}" for v in rows[-1].values()), flush=True)

    for chunk in sorted({max(2, best // 2), best, 2 * best}):
        for name, run in chunked(arrays, chunk).items():
            add(name, f"chunks of {chunk}", run)
    if scans_T >= T:
        series = aligned(LinearGaussianModel(**device), seen, None, "benchmark")
        neutral = filter_neutral(cp, NX, cp.float32)
        backwards = smoother_neutral(cp, NX, cp.float32)
        for way in sorted(set(SCANS) - {"sequential", "chunked"}):
            for name in ("PKF", "PRTS", "PTFS"):
                add(name, way, scanned(series, neutral, backwards, way, name))
    if T <= 100_000:
        add("PKF", "one thread", lambda: kernels.filter_chunks(*arrays, True)[:2], 1)
    return rows


def main() -> None:
    """Print and keep the table."""
    import cupy as cp

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--T", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--scans-T", type=int, default=1_000_000)
    parser.add_argument("--out", default="kalman-gpu.json")
    options = parser.parse_args()
    name = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    bandwidth = bound(cp)
    print(f"{name}, CuPy {cp.__version__}, triad {bandwidth / 1e12:.2f} TB/s")
    rows = []
    for T in options.T:
        rows += measured(cp, T, options.scans_T, bandwidth)
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(
                {"benchmark": "kalman-gpu", "device": name, "triad_TB_s": bandwidth / 1e12, "rows": rows},
                file,
                indent=1,
            )
    alone = [r for r in rows if r["scan"] == "one thread"]
    if alone:
        each = alone[-1]["ms"] / alone[-1]["T"]
        for row in rows:
            if row["method"] == "PKF" and row["scan"].startswith("chunks"):
                print(f"T {row['T']}, {row['scan']}: {each * row['T'] / row['ms']:.0f} x one thread")


if __name__ == "__main__":
    main()
