"""Figures 12 and 13 of the paper on prefix-sum Kalman filters: smoothers on one CUDA device and on two.

``python -m benchmarks kalman-split-device [--out FILE]``: PRTS and PTFS on one device, and PTFS on two. With the
classical scans two devices work as in the paper: one runs the filter, the other the scan from the end, the filter's
states are copied over and met there. Ours, `smooth_split_series`, gives each device half of the steps; states and
information at the cut are all that travels, and each device keeps its half of the result. On one device ours are the
public smoothers, too. float32, the random model, median of 10 calls after 2 by the clock of the host, which waits for
both devices: everything that Python does for a launch is in it.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_kalman_device import SCANS, errors, problem, scanned
from benchmarks.common import cuda_device, save
from ensemble._kernels.kalman.level_scans import scan_two_filters
from ensemble.apps.kalman import (
    LinearGaussianModel,
    rts_smoother,
    smooth_split_series,
    split_series,
    two_filter_smoother,
)

WAYS = tuple(name for name in SCANS if name != "Hillis-Steele")
"""The classical scans that are shown: the paper leaves Hillis and Steele's out, too."""


def milliseconds(cp: Any, run: Callable[[], Any], calls: int = 10) -> float:
    """Median time of a call until both devices are done."""
    times = []
    for _ in range(calls + 2):
        start = time.perf_counter()
        run()
        for device in (0, 1):
            with cp.cuda.Device(device):
                cp.cuda.Device(device).synchronize()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[2:])


def on(cp: Any, device: int, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of arrays on a device."""
    hosted = [cp.asnumpy(a) for a in arrays]
    with cp.cuda.Device(device):
        return tuple(cp.asarray(a) for a in hosted)


def gathered(cp: Any, parts: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Smoothed means and covariances of all parts."""
    return tuple(np.concatenate([cp.asnumpy(getattr(part, k)) for part in parts]) for k in ("mean", "covariance"))


def measured(cp: Any, T: int, scans_T: int) -> list[dict[str, Any]]:
    """The rows of one length."""
    arrays, exact = problem(cp, T)
    rows: list[dict[str, Any]] = []

    def add(name: str, run: Callable[[], Any], result: Callable[[Any], Any] = lambda out: out) -> None:
        error = float("nan")
        if exact is not None:
            error = errors(cp, tuple(cp.asarray(a) for a in result(run())), exact["PTFS"])[0]
        rows.append({"T": T, "run": name, "ms": milliseconds(cp, run), "error / deviation": error})
        print("  ".join(f"{v:>9.4g}" if isinstance(v, float) else f"{v!s:>32}" for v in rows[-1].values()), flush=True)

    names = ("F", "Q", "H", "R", "u", "d", "y", "m0", "P0")
    given = {name: a[0] for name, a in zip(names, arrays, strict=True)}
    y = given.pop("y")
    model = LinearGaussianModel(**given)
    states = lambda result: (result.mean, result.covariance)
    add("PRTS, one, ours", lambda: rts_smoother(model, y, method="scan"), states)
    add("PTFS, one, ours", lambda: two_filter_smoother(model, y), states)
    parts = split_series(model, y, devices=[0, 1])
    add("PTFS, two, ours", lambda: smooth_split_series(parts), lambda out: gathered(cp, out))
    if scans_T < T:
        return rows
    there = on(cp, 1, arrays)
    for way in WAYS:
        algorithm, options = SCANS[way]
        for method in ("PRTS", "PTFS"):
            add(f"{method}, one, {way}", scanned(arrays, way)[method])
        both = lambda a=algorithm, o=options: scan_two_filters((*arrays, True), a, elsewhere=(*there, True), **o)[4:]
        add(f"PTFS, two, {way}", both)
    return rows


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--T", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--scans-T", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, help="instead of the record `kalman-two-gpus`")
    options = parser.parse_args()
    import cupy as cp

    direct = cp.cuda.runtime.deviceCanAccessPeer(0, 1)
    for device in (0, 1) if direct else ():
        with cp.cuda.Device(device), contextlib.suppress(cp.cuda.runtime.CUDARuntimeError):  # CuPy may have done it
            cp.cuda.runtime.deviceEnablePeerAccess(1 - device)
    about = {**cuda_device(), "devices": 2, "direct copies": bool(direct)}
    print(about)
    rows = []
    for T in options.T:
        rows += measured(cp, T, options.scans_T)
        save("kalman-two-gpus", rows, path=options.out, **about)
