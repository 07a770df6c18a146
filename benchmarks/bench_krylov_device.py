"""BiCGSTAB and GMRES on a CUDA device: scalars on the device against scalars on the host.

`python -m benchmarks krylov-device` checks that both give the same bits, then times an iteration of each, without a
preconditioner and with a V-cycle, against the traffic of its passes at the triad's bandwidth. Record: `gpu-krylov-64`.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.bench_diffusion_device import release, triad
from benchmarks.common import SEED, cuda_device, save, show
from ensemble import Ensemble
from ensemble._backend import synchronize, to_numpy
from ensemble.apps.fem import RandomDiffusion
from ensemble.krylov import bicgstab, gmres
from ensemble.multigrid import smoothed_aggregation

METHODS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "bicgstab": (bicgstab, {}),
    "gmres(30)": (gmres, {"restart": 30}),
    "gmres(30), flexible": (gmres, {"restart": 30, "flexible": True}),
}
FEW, MANY = 30, 90
"""Iterations whose times are subtracted: whole cycles of GMRES."""


@contextlib.contextmanager
def scalars_on_the_host(yes: bool) -> Iterator[None]:
    """Solves fetch every inner product."""
    module: Any = importlib.import_module("ensemble.krylov._solve")
    runs_on_device = module.runs_on_device
    try:
        if yes:
            module.runs_on_device = lambda *arguments: False
        yield
    finally:
        module.runs_on_device = runs_on_device


def seconds(run: Callable[[], Any], reference_array: Any, repeats: int) -> float:
    """Median time of a call, to the end of what it queued."""
    run()
    times = []
    for _ in range(repeats):
        synchronize(reference_array)
        start = time.perf_counter()
        run()
        synchronize(reference_array)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@contextlib.contextmanager
def second_passes() -> Iterator[list[int]]:
    """The lengths of the bases that a solve with scalars on the host went over once more."""
    module: Any = importlib.import_module("ensemble.krylov.host_scalars.gmres")
    add, lengths = module.kernels.basis_add, []
    seen: list[Any] = [None]

    def counted(h: Any, basis: Any, w: Any) -> Any:
        if seen[0] is w:  # the vector that the basis has just been taken out of
            lengths.append(basis.shape[0])
        seen[0] = w
        return add(h, basis, w)

    module.kernels.basis_add = counted
    try:
        yield lengths
    finally:
        module.kernels.basis_add = add


def passes(name: str, A: Any, n_samples: int, again: list[int]) -> float:
    """Bytes that an iteration moves without a preconditioner, each pass reading and writing its vectors once."""
    n, nnz = A.shape[0], A.nnz
    matrix, vector = 8.0 * n_samples * nnz + 4.0 * nnz + 4.0 * n, 8.0 * n_samples * n
    if name == "bicgstab":
        return 2 * (matrix + 2 * vector) + 21 * vector
    lengths = np.arange(1, FEW + 1)
    iteration = matrix + 2 * vector + float(np.mean((lengths + 1) + (lengths + 2) + 3)) * vector
    turn = matrix + 3 * vector + (FEW + 1 + 3 + 1 + 3) * vector
    return iteration + turn / FEW + sum(2 * length + 3 for length in again) * vector / MANY


def rows_of(problem: RandomDiffusion, n_samples: int, bandwidth: float, repeats: int) -> list[dict[str, Any]]:
    """Milliseconds with scalars on host and device, an iteration without a preconditioner and a solve with one."""
    y = np.random.default_rng(SEED).uniform(-1.0, 1.0, (5, n_samples))
    A, b = problem.assemble(Ensemble(y))
    rows = []
    for name, (method, options) in METHODS.items():
        for M in (smoothed_aggregation(A),) if "flexible" in name else (None, smoothed_aggregation(A)):
            solve = functools.partial(method, A, b, M=M, **options)
            row: dict[str, Any] = {"method": name, "M": "none" if M is None else "V-cycle", "samples": n_samples}
            solves = {}
            for where in ("host", "device"):
                with scalars_on_the_host(where == "host"):
                    row[f"{where} ms"], solves[where] = timed(solve, M is None, b.samples, repeats)
            require_same_bits(solves["host"], solves["device"])
            bound = float("nan")
            if M is None:
                with scalars_on_the_host(True), second_passes() as again:
                    solve(rtol=0.0, max_iterations=MANY)
                bound = passes(name, A, n_samples, again) / bandwidth / 1e6
            row |= {
                "host/device": row["host ms"] / row["device ms"],
                "bound ms": bound,
                "of bound": bound / row["device ms"],
                "iterations": int(solves["device"].iterations.max()),
                "what": "an iteration" if M is None else "a solve, rtol 1e-10",
            }
            rows.append(row)
    return rows


def timed(solve: Callable[..., Any], an_iteration: bool, reference_array: Any, repeats: int) -> tuple[float, Any]:
    """Milliseconds of an iteration or of a whole solve, and a result to compare."""
    if an_iteration:
        few, many = (functools.partial(solve, rtol=0.0, max_iterations=k) for k in (FEW, MANY))
        return 1e3 * (seconds(many, reference_array, repeats) - seconds(few, reference_array, repeats)) / (
            MANY - FEW
        ), many()
    whole = functools.partial(solve, rtol=1e-10, max_iterations=200)
    return 1e3 * seconds(whole, reference_array, repeats), whole()


def require_same_bits(one: Any, other: Any) -> None:
    """Host and device scalars lead to the same kernels and decisions."""
    for attribute in ("status", "iterations", "residual_norms"):
        np.testing.assert_array_equal(getattr(one, attribute), getattr(other, attribute))
    np.testing.assert_array_equal(to_numpy(one.x.samples), to_numpy(other.x.samples))


def main() -> None:
    """Check, time, print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--advection", type=float, default=20.0)
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--backend", default="cupy", help="numpy: a trial without a device, on what stands in for one")
    options = parser.parse_args()
    on_device = options.backend == "cupy"
    bandwidth = triad() if on_device else 1e3
    problem = RandomDiffusion(options.cells, advection=options.advection, grading=0.0, backend=options.backend)
    rows = []
    for n_samples in options.samples:
        rows += rows_of(problem, n_samples, bandwidth, options.repeats)
        if on_device:
            release()
    title = f"BiCGSTAB and GMRES, {options.cells}^3 cells, advection {options.advection:g}, triad {bandwidth:.0f} GB/s"
    show(title, rows)
    if on_device:
        save(f"gpu-krylov-{options.cells}", rows, **cuda_device())
