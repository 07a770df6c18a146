"""Kalman filter and smoothers on a CUDA device at every size, against the CPU: largest errors and times.

``python -m benchmarks kalman-sizes-device [--sizes 1 2 ... 16] [--T 37 500 3000] [--timed 6x2 20x2] [--timed-T
100000]``: random time-varying models with gaps, filter, RTS and two-filter smoother, float64 and float32; errors of
means in posterior deviations, of covariances relative to the largest entry. The CPU's answers are float64 prefix sums
of Array API code. Models are compiled and answered on all cores first. Then public calls are timed against one CPU
thread, and the first call of a size.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import SEED, cuda_device, median, save

METHODS = ("filter", "rts", "two_filter")
PARTS = ("F", "Q", "H", "R", "u", "d", "m0", "P0")


def random_model(T: int, nx: int, ny: int) -> tuple[dict[str, Any], Any]:
    """A model that varies in time, and observations a third of whose entries are missing."""
    rng = np.random.default_rng([SEED, T, nx, ny])
    draw = rng.standard_normal
    X, W, X0 = draw((T, nx, nx)), draw((T, ny, ny)), draw((nx, nx))
    parts = {"F": 0.99 * np.linalg.qr(draw((T, nx, nx)))[0], "Q": X @ X.mT, "H": draw((T, ny, nx)),
             "R": W @ W.mT + 0.05 * np.eye(ny), "m0": draw(nx), "P0": X0 @ X0.mT, "u": draw((T, nx)),
             "d": draw((T, ny))}  # fmt: skip
    y = 3.0 * np.sqrt(nx) * draw((T, ny)) + parts["d"]
    y = np.where(rng.random((T, ny)) < 0.3, np.nan, y)
    y[4::5] = np.nan
    return parts, y


def runs(which: str, parts: dict[str, Any], y: Any, **options: Any) -> Any:
    """The public call of one method."""
    from ensemble.apps import kalman

    model = kalman.LinearGaussianModel(**parts)
    call = {"filter": kalman.kalman_filter, "rts": kalman.rts_smoother, "two_filter": kalman.two_filter_smoother}[which]
    return call(model, y, **options)


def answer(case: tuple[int, int, int, str]) -> None:
    """The CPU's answer, in a file."""
    T, nx, ny, folder = case
    parts, y = random_model(T, nx, ny)
    smooth = runs("rts", parts, y, method="scan")
    given = (smooth.filtered.mean, smooth.filtered.covariance, smooth.log_likelihoods, smooth.mean, smooth.covariance)
    np.savez(Path(folder) / f"{T}-{nx}-{ny}.npz", *given)


def compile_size(size: tuple[int, int, str]) -> None:
    """Compile all kernels of a size that the device keeps in registers."""
    from ensemble._kernels.kalman import block_launch, kalman_launch

    nx, ny, dtype = size
    if max(nx, ny) <= kalman_launch.LARGEST:
        for file in ("filter", "smooth", "combine", "recursion"):
            kalman_launch.function(dtype, nx, 1 if file == "smooth" else ny, kalman_launch.KERNEL_FILES[file][0][0])
    for names in block_launch.KERNEL_FILES.values():
        block_launch.function(dtype, names[-1])


def errors(method: str, got: Any, truth: Any) -> tuple[float, float]:
    """Of means, in posterior deviations, and of covariances, relative to the largest entry."""
    mean, covariance = (truth["arr_0"], truth["arr_1"]) if method == "filter" else (truth["arr_3"], truth["arr_4"])
    deviation = np.sqrt(np.einsum("kii->ki", covariance))
    far = np.max(np.abs(got.mean.get() - mean) / deviation)
    wide = np.max(np.abs(got.covariance.get() - covariance)) / np.max(np.abs(covariance))
    terms = got.log_likelihoods.get()
    wide = max(wide, np.max(np.abs(terms - truth["arr_2"])) / np.max(np.abs(truth["arr_2"])))
    return float(far), float(wide)


def check(cp: Any, sizes: list[tuple[int, int]], lengths: list[int], workers: int) -> list[dict[str, Any]]:
    """Largest errors over all sizes."""
    rows: list[dict[str, Any]] = []
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        cases = [(T, nx, ny, folder) for T, (nx, ny) in itertools.product(lengths, sizes)]
        with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
            begun = time.perf_counter()
            sized = [(nx, ny, dtype) for nx, ny in sizes for dtype in ("float64", "float32")]
            compiling = [pool.submit(compile_size, size) for size in sized]
            answering = [pool.submit(answer, case) for case in cases]
            for future in (*compiling, *answering):
                future.result()
            print(f"compiled and answered on the CPU in {time.perf_counter() - begun:.0f} s", flush=True)
        for T, nx, ny, _ in cases:
            truth = np.load(Path(folder) / f"{T}-{nx}-{ny}.npz")
            parts, y = random_model(T, nx, ny)
            for dtype, method in itertools.product(("float64", "float32"), METHODS):
                there = {name: cp.asarray(a, dtype=dtype) for name, a in parts.items()}
                far, wide = errors(method, runs(method, there, cp.asarray(y, dtype=dtype)), truth)
                rows.append({"T": T, "nx": nx, "ny": ny, "dtype": dtype, "method": method, "mean": far, "other": wide})
    return rows


def largest(rows: list[dict[str, Any]], lengths: list[int]) -> list[dict[str, Any]]:
    """The largest errors over all sizes, for each type, method and length; NaN is larger than any."""
    found = []
    for dtype, method, T in itertools.product(("float64", "float32"), METHODS, lengths):
        some = [row for row in rows if (row["dtype"], row["method"], row["T"]) == (dtype, method, T)]
        one: dict[str, Any] = {"dtype": dtype, "method": method, "T": T, "sizes": len(some)}
        for kind in ("mean", "other"):
            row = max(some, key=lambda row: np.nan_to_num(row[kind], nan=np.inf))
            one |= {kind: row[kind], f"{kind}_at": f"({row['nx']}, {row['ny']})"}
        found.append(one)
    return found


def timed(cp: Any, sizes: list[tuple[int, int]], T: int) -> list[dict[str, Any]]:
    """Public calls on the device, and one thread of the CPU on fewer steps."""
    rows = []
    for (nx, ny), method in itertools.product(sizes, METHODS):
        n = max(64, 4_000_000 // (nx * nx * 200))
        parts, y = random_model(min(n, T), nx, ny)
        seconds = {}
        if method != "two_filter":
            for _ in range(3):
                begun = time.perf_counter()
                runs(method, parts, y)
                seconds["cpu"] = time.perf_counter() - begun
        many = -(-T // y.shape[0])
        wide = {name: cp.asarray(np.tile(a, (many, *(1,) * (a.ndim - 1)))[:T] if name not in ("m0", "P0") else a)
                for name, a in parts.items()}  # fmt: skip
        there = cp.asarray(np.tile(y, (many, 1))[:T])
        times = []
        for k in range(4):
            begun = time.perf_counter()
            result = runs(method, wide, there)
            cp.cuda.Device().synchronize()
            if k:
                times.append(time.perf_counter() - begun)
            else:
                first = time.perf_counter() - begun
        each = 1e6 * seconds["cpu"] / y.shape[0] if seconds else float("nan")
        row = {"nx": nx, "ny": ny, "method": method, "T": T, "device_s": median(times), "cpu_us_a_step": each,
               "speedup": each * 1e-6 * T / median(times), "first_s": first}  # fmt: skip
        rows.append(row)
        text = f"{nx:3d}x{ny:<3d} {method:10s} T={T}: {1e3 * median(times):9.2f} ms, first {first:6.2f} s"
        print(f"{text}, CPU {each:7.2f} us a step, x {row['speedup']:.0f}", flush=True)
        del result
    return rows


def first_calls(cp: Any, sizes: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Seconds of the first call of each method at sizes that nothing was compiled for."""
    rows = []
    for nx, ny in [(2, 1), *sizes]:  # CuPy's own kernels are compiled with the first
        parts, y = random_model(64, nx, ny)
        there, seen = {name: cp.asarray(a) for name, a in parts.items()}, cp.asarray(y)
        for method in METHODS:
            begun = time.perf_counter()
            runs(method, there, seen)
            cp.cuda.Device().synchronize()
            rows.append({"nx": nx, "ny": ny, "method": method, "first_call_s": time.perf_counter() - begun})
            print(f"first call {nx}x{ny} {method}: {rows[-1]['first_call_s']:.2f} s", flush=True)
    return rows


def pairs(texts: list[str]) -> list[tuple[int, int]]:
    """Sizes out of "6x2"."""
    return [(int(a), int(b)) for a, _, b in (text.partition("x") for text in texts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(range(1, 17)))
    parser.add_argument("--T", type=int, nargs="+", default=[37, 500, 3000])
    parser.add_argument("--timed", nargs="*", default=["4x2", "6x2", "9x2", "12x4", "16x3", "16x16", "20x2"])
    parser.add_argument("--timed-T", type=int, default=100_000)
    parser.add_argument("--first", nargs="*", default=["4x2", "4x4", "7x5", "12x4"])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    import cupy as cp

    machine = cuda_device()
    workers = max(1, (os.cpu_count() or 2) - 2)
    first = first_calls(cp, pairs(given.first))
    rows = check(cp, list(itertools.product(given.sizes, given.sizes)), given.T, workers)
    worst = largest(rows, given.T)
    for row in worst:
        text = (
            "{dtype} {method:10s} T={T:5d} {sizes} sizes: means {mean:.1e} deviations at {mean_at}, others {other:.1e}"
        )
        print((text + " at {other_at}").format(**row), flush=True)
    times = timed(cp, pairs(given.timed), given.timed_T)
    save("kalman-sizes-cuda", [*worst, *times, *first], path=given.out, **machine)
