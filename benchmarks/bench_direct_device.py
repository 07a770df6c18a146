"""Factorisation and solution of 10,000 matrices on one graph on a CUDA device, against splu on all cores and cuDSS.

`python -m benchmarks direct-device` times launches between CUDA events, and `krylov.direct` as a whole. Bounds are the
larger of two times: that of the bytes of the matrices, of the values once, of b and of x at the device's bandwidth; and
that of multiplications and subtractions, each an instruction, at its rate for doubles. "cache of bound": all that a
factorisation's tasks read and write, at the bandwidth of the second-level cache, which is measured by copies of 8 MB.
Record: `direct-cuda`.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu
from threadpoolctl import threadpool_limits

from benchmarks.bench_direct import band, chemistry, laplacian, power_grid
from benchmarks.common import SEED, cuda_device, save, show
from benchmarks.device_clock import peak_bandwidth
from ensemble._kernels.direct.on_device import factorized_with_solution
from ensemble._kernels.krylov.backward_error import backward_error
from ensemble.krylov import direct
from ensemble.linalg import CrsGraph, CrsMatrix, Factorization
from ensemble.scalar import Ensemble

INSTRUCTIONS = 16.7e12
"""Of a Hopper device, as its data sheet states: instructions on doubles outside of matrix units, per second."""

CASES: dict[str, tuple[Any, str, Any, int]] = {
    "chemistry": (chemistry, "lu", "auto", 10_000),
    "grid-like": (power_grid, "lu", "auto", 10_000),
    "tridiagonal": (lambda: band(1000, 1), "lu", np.arange(1000), 10_000),
    "tridiagonal, nd": (lambda: band(1000, 1), "lu", "nd", 10_000),
    "band": (band, "lu", "auto", 10_000),
    "2-D 50": (lambda: laplacian(50, 50), "ldlt", "auto", 2_000),
    "tridiagonal, 8 samples": (lambda: band(1000, 1), "lu", np.arange(1000), 8),
    "tridiagonal, nd, 8 samples": (lambda: band(1000, 1), "lu", "nd", 8),
    "grid-like, 8 samples": (power_grid, "lu", "auto", 8),
}
"""Matrix, kind, ordering and number of samples of each row of the table."""


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    """Median time of the device for what a call queues: other work is queued before, so that it waits for no launch."""
    import cupy

    start, end, other = cupy.cuda.Event(), cupy.cuda.Event(), cupy.zeros(1 << 27)
    for _ in range(2):
        call()
    times = []
    for _ in range(repeats):
        other += 1.0  # 0.5 ms, and the cache holds nothing of earlier calls
        other += 1.0
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end))
    return statistics.median(times)


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Median time of a call and of what it queues."""
    import cupy

    call()
    times = []
    for _ in range(repeats):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        call()
        cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def samples_on_device(base: sp.csr_array, symmetric: bool, n_samples: int) -> CrsMatrix:
    """As `bench_direct.samples_of`, made on the device."""
    import cupy

    base.sort_indices()
    graph = CrsGraph(base.indptr, base.indices, base.shape)
    scale = cupy.exp(0.1 * cupy.random.default_rng(SEED).standard_normal((base.shape[0], n_samples)))
    left = scale if symmetric else scale[::-1]
    values = cupy.asarray(base.data)[:, None] * left[cupy.asarray(graph.row_of_entry)]
    values *= scale[cupy.asarray(graph.indices)]
    return CrsMatrix(graph, values)


# --- splu on all cores
def solve_all(given: tuple[sp.csr_array, np.ndarray]) -> float:
    """Wall seconds of `splu` and one solve of each sample."""
    base, values = given
    with threadpool_limits(1):
        start = time.perf_counter()
        for own in values:
            matrix = sp.csc_array((own, base.indices, base.indptr), shape=base.shape)
            splu(matrix).solve(np.ones(base.shape[0]))
        return time.perf_counter() - start


def splu_per_second(pool: Any, workers: int, base: sp.csr_array, values: np.ndarray) -> float:
    """Samples per second of all workers together: each solves the samples of `values` over and over."""
    transposed = sp.csr_array(base.T)  # its rows are the columns that splu reads; times do not depend on the values
    transposed.sort_indices()
    work = [(transposed, values)] * workers
    list(pool.map(solve_all, work))
    start = time.perf_counter()
    list(pool.map(solve_all, work))
    return workers * len(values) / (time.perf_counter() - start)


# --- cuDSS
class Cudss:
    """cuDSS's uniform batch: values of shape (n_samples, nnz), one graph; refactorisation and solve."""

    def __init__(self, A: CrsMatrix) -> None:
        import cupy

        path = os.environ.get("CUDSS_LIBRARY", "libcudss.so.0")
        self.c = ctypes.CDLL(path)
        n, n_samples = A.shape[0], A.n_samples
        self.values = cupy.ascontiguousarray(A.values.T)
        self.indptr = cupy.asarray(A.graph.indptr, cupy.int32)
        self.indices = cupy.asarray(A.graph.indices, cupy.int32)
        self.x, self.b = cupy.zeros((n_samples, n)), cupy.ones((n_samples, n))
        self.handle, self.config, self.data, self.A, self.X, self.B = (ctypes.c_void_p() for _ in range(6))
        self._try("Create", ctypes.byref(self.handle))
        self._try("ConfigCreate", ctypes.byref(self.config))
        self._try("DataCreate", self.handle, ctypes.byref(self.data))
        count, every, batch_size, batch_index, real = ctypes.c_int(n_samples), ctypes.c_int(-1), 19, 20, 1
        self._try("ConfigSet", self.config, batch_size, ctypes.byref(count), ctypes.c_size_t(4))
        self._try("ConfigSet", self.config, batch_index, ctypes.byref(every), ctypes.c_size_t(4))
        wide, at = ctypes.c_int64, lambda array: ctypes.c_void_p(array.data.ptr)
        for matrix, array in ((self.X, self.x), (self.B, self.b)):
            self._try("MatrixCreateDn", ctypes.byref(matrix), wide(n), wide(1), wide(n), at(array), real, 0)
        int32, general, full, zero_based = 10, 0, 0, 0
        self._try(
            "MatrixCreateCsr", ctypes.byref(self.A), wide(n), wide(n), wide(A.nnz), at(self.indptr), None,
            at(self.indices), at(self.values), int32, real, general, full, zero_based,
        )  # fmt: skip
        minor, analysis, factorization = ctypes.c_int(), 3, 4
        self._try("GetProperty", 1, ctypes.byref(minor))
        self.solve = 0x3F0 if minor.value > 6 else 0x70  # all parts of the solution
        self._phase(analysis)
        self._phase(factorization)

    def _try(self, name: str, *arguments: Any) -> None:
        status = getattr(self.c, f"cudss{name}")(*arguments)
        if status:
            raise RuntimeError(f"cudss{name}: status {status}")

    def _phase(self, phase: int) -> None:
        self._try("Execute", self.handle, phase, self.config, self.data, self.A, self.X, self.B)

    def __call__(self) -> None:
        refactorization = 8
        self._phase(refactorization)
        self._phase(self.solve)

    def close(self) -> None:
        """Give the memory of the factors back."""
        for matrix in (self.A, self.X, self.B):
            self._try("MatrixDestroy", matrix)
        self._try("DataDestroy", self.handle, self.data)
        self._try("ConfigDestroy", self.config)
        self._try("Destroy", self.handle)


def cudss_milliseconds(A: CrsMatrix, repeats: int) -> float | None:
    """Time of cuDSS, None where it is not there or its solution is wrong."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()  # cuDSS allocates outside of it
    try:
        solver = Cudss(A)
        ms = 1e3 * seconds(solver, repeats)
        error = backward_error(*A.arrays, solver.x.T.copy(), (b := solver.b.T.copy()), b[:0])[1]
        solver.close()
        return ms if float(error.max()) < 1e-9 else None
    except (OSError, RuntimeError) as absent:
        print(f"cuDSS: {absent}", flush=True)
        return None


def cache_bandwidth() -> float:
    """Bytes per second of copies that the second-level cache holds."""
    import cupy

    source, target = cupy.zeros(1 << 20), cupy.zeros(1 << 20)
    ms = milliseconds(lambda: [cupy.copyto(target, source) for _ in range(100)], 5)
    return 100 * 2 * source.nbytes / (1e-3 * ms)


def row(name: str, repeats: int, pool: Any, workers: int, cache: float) -> dict[str, Any]:
    """Times of one case."""
    import cupy

    make, kind, ordering, n_samples = CASES[name]
    base = make()
    A = samples_on_device(base, kind == "ldlt", n_samples)
    n, b = A.shape[0], cupy.ones((A.shape[0], n_samples))
    F = Factorization(A, kind=kind, ordering=ordering)
    factor = milliseconds(lambda: factorized_with_solution(A.values, F.plan, None), repeats)
    solve = milliseconds(lambda: F.apply(b), repeats)
    both = milliseconds(lambda: factorized_with_solution(A.values, F.plan, b), repeats)
    whole = 1e3 * seconds(lambda: direct(A, Ensemble(b), factorization=F), repeats)
    error = float(backward_error(*A.arrays, factorized_with_solution(A.values, F.plan, b)[2], b, b[:0])[1].max())
    if not error < 1e-12:
        raise AssertionError(f"{name}: backward error {error:.1e}")
    read = A.nnz if kind == "lu" else (A.nnz + n) // 2
    bandwidth = peak_bandwidth()
    arithmetic = 2 * F.multiply_adds * n_samples / INSTRUCTIONS
    bounds = {
        "factor": max(8 * n_samples * (read + F.n_values) / bandwidth, arithmetic),
        "solve": 8 * n_samples * (F.n_values * (1 if kind == "lu" else 2) + 2 * n) / bandwidth,
        "both": max(8 * n_samples * (read + F.n_values + 2 * n) / bandwidth, arithmetic),
    }
    operands = (2 if kind == "lu" else 3) * F.multiply_adds + 3 * (0 if kind == "ldlt" else F.plan.lower.size)
    touched = 8 * n_samples * (read + F.n_values + operands)
    few = min(n_samples, max(2, int(2e5 / A.nnz)))
    per_second = splu_per_second(pool, workers, base, cupy.asnumpy(A.values[:, :few].T)) if n_samples > 100 else None
    splu_ms = None if per_second is None else 1e3 * n_samples / per_second
    there = cudss_milliseconds(A, repeats) if n_samples > 100 else None
    return {
        "case": name, "n": n, "n_samples": n_samples, "n_values": F.n_values, "multiply-adds": F.multiply_adds,
        "factor ms": factor, "of bound": 1e3 * bounds["factor"] / factor,
        "cache of bound": 1e3 * touched / cache / factor,
        "solve ms": solve, "solve of bound": 1e3 * bounds["solve"] / solve,
        "both ms": both, "both of bound": 1e3 * bounds["both"] / both, "direct ms": whole,
        "splu ms": splu_ms, "x splu": splu_ms and splu_ms / both, "direct x splu": splu_ms and splu_ms / whole,
        "cuDSS ms": there, "x cuDSS": there and there / both, "backward error": error,
    }  # fmt: skip


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks direct-device", description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES), help="rows of the table")
    parser.add_argument("--repeats", type=int, default=7, help="times that each is timed (default 7)")
    parser.add_argument("--name", help="name of the record (default: none is kept)")
    arguments = parser.parse_args()
    workers = len(os.sched_getaffinity(0))
    rows = []
    # Processes are made before the device is used. Threads hold each other up: splu keeps Python's lock.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        list(pool.map(abs, range(workers)))
        cache = cache_bandwidth()
        print(f"second-level cache: {1e-12 * cache:.2f} TB/s", flush=True)
        for name in arguments.cases:
            rows.append(row(name, arguments.repeats, pool, workers, cache))
            print(rows[-1], flush=True)
            if arguments.name:
                save(arguments.name, rows, cache_bandwidth=cache, **cuda_device())
    show(f"Factorisation and solution, {workers} cores for splu", rows)
