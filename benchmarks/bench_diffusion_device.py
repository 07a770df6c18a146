"""Kernels and whole solves on a CUDA device, against the triad bandwidth, cuSPARSE, our own scalar run and PyAMG.

Device times are medians over repeats between CUDA events, after warm-up; solves are timed by the host up to a
synchronisation.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.bench_multigrid import pyamgs
from benchmarks.bench_spmv import brick_graph, compulsory_bytes
from benchmarks.common import SEED, cuda_device, save, show
from ensemble import Ensemble
from ensemble._kernels.krylov import basis, bicgstab
from ensemble._kernels.krylov import vectors as krylov
from ensemble._kernels.multigrid import relaxation
from ensemble._kernels.sparse import crs
from ensemble.apps.fem import Multigrid, RandomDiffusion
from ensemble.krylov import cg
from ensemble.linalg import AffineMatrix, CrsMatrix
from ensemble.multigrid import smoothed_aggregation
from ensemble.multigrid.coarse import CoarseSolver
from ensemble.multigrid.relaxation import inverse_diagonal

POWER_STEPS = 10
"""Of the eigenvalue estimate on each level."""

QUEUED = 10
"""Calls between two events, so that the device never waits for the host."""

SIZES = (1, 4, 8, 16, 32, 64)

COLD = 32
"""Matrices in a rotation that no cache holds: 2.8 GB at 64^3 cells."""


def milliseconds(function: Callable[[], Any], repeats: int = 7, queued: int = QUEUED) -> float:
    """Median time of one call on the device: `queued` calls recorded as a CUDA graph, so that no launch is waited for.

    What cannot be recorded (it asks the device for memory or for numbers) is queued call by call.
    """
    import cupy

    for _ in range(3):
        function()
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        run = recorded(function, stream, queued)
        times = []
        for _ in range(repeats):
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, end) / queued)
    return statistics.median(times)


def recorded(function: Callable[[], Any], stream: Any, queued: int) -> Callable[[], Any]:
    """`queued` calls of `function` as one launch of a graph, or call by call where that is not possible."""
    import cupy

    def plain() -> None:
        for _ in range(queued):
            function()

    plain()
    stream.synchronize()
    try:
        stream.begin_capture()
        try:
            plain()
        finally:
            graph = stream.end_capture()
        graph.launch()
        stream.synchronize()
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.memory.OutOfMemoryError, RuntimeError):
        return plain
    return graph.launch


def triad() -> float:
    """GB/s of ``a = b + 3 c`` over three arrays of 1 GiB."""
    import cupy

    n = 1 << 27
    a, b, c = (cupy.random.random(n) for _ in range(3))
    kernel = cupy.ElementwiseKernel("float64 b, float64 c", "float64 a", "a = b + 3.0 * c", "triad")
    return 24.0 * n / milliseconds(lambda: kernel(b, c, a)) / 1e6


def kernels(cells: int, sizes: tuple[int, ...] = SIZES) -> list[dict[str, Any]]:
    """Each kernel's time and the fraction of the triad bandwidth that its compulsory bytes reach."""
    import cupy

    bandwidth = triad()
    graph = brick_graph(cells)
    n, nnz = graph.shape[0], graph.nnz
    rows: list[dict[str, Any]] = []
    for s in sizes:
        A = CrsMatrix(graph, cupy.random.random((nnz, s)))
        x, y, b, w = (cupy.random.random((n, s)) for _ in range(4))
        c, dinv = cupy.random.random(s), cupy.random.random((n, s))
        matrix, vector = 8.0 * s * nnz + 4.0 * nnz + 4.0 * n, 8.0 * s * n
        alpha = cupy.full(s, 1e-9)
        runs: dict[str, tuple[Callable[[], Any], float]] = {
            "spmv": (lambda A=A, x=x, y=y: A.apply(x, y), compulsory_bytes(graph, s)),
            "residual": (lambda A=A, x=x, b=b, y=y: A.residual(x, b, y), matrix + 3 * vector),
            "spmv_dot": (lambda A=A, x=x, y=y: A.apply_dot(x, y), matrix + 2 * vector),
            "chebyshev_last": (
                lambda A=A, dinv=dinv, b=b, x=x, c=c, w=w, y=y: relaxation.chebyshev_last(
                    *A.arrays, dinv, b, x, c, c, w, y
                ),
                matrix + 5 * vector,
            ),
            "power_step": (
                lambda A=A, dinv=dinv, x=x, c=c, y=y: relaxation.power_step(*A.arrays, dinv, x, c, y),
                matrix + 3 * vector,
            ),
            "cg_update": (lambda x=x, y=y, b=b, w=w, a=alpha: krylov.cg_update(a, x, y, b, w), 6 * vector),
            "dot": (lambda x=x, y=y: krylov.dot(x, y, None), 2 * vector),
            "cg_direction": (lambda x=x, y=y, a=alpha: krylov.cg_direction(a, x, y), 3 * vector),
        }
        runs |= krylov_runs(x, y, b, w, alpha) | float32_runs(graph, s)
        shared = cupy.random.random((nnz, 1))
        terms = cupy.random.random((nnz, 6))
        for kind, precision in (("float64", np.float64), ("float32", np.float32)):
            B = AffineMatrix(graph, terms.astype(precision), Ensemble(cupy.random.random((5, s)).astype(precision)))
            u, v = x.astype(precision), y.astype(precision)
            size = np.dtype(precision).itemsize
            runs[f"affine spmv, {kind}"] = (
                lambda B=B, u=u, v=v: B.apply(u, v), nnz * (6.0 * size + 4) + 4.0 * n + 2.0 * size * s * n
            )  # fmt: skip
        runs["spmv, shared values"] = (
            lambda v=shared, x=x, y=y: crs.spmv(*graph.arrays_on(v), v, x, y), 12.0 * nnz + 4.0 * n + 2 * vector,
        )  # fmt: skip
        rows += timed(runs, s, bandwidth) + vendor(graph, s, shared, x)
        del A, x, y, b, w, dinv, runs
        release()
        for precision in (np.float64, np.float32):
            rows += timed(matrix_free_runs(cells, s, precision), s, bandwidth)
        release()
    show(f"Kernels, {cells}^3 cells, float64, triad {bandwidth:.0f} GB/s", rows)
    return rows


def krylov_runs(x: Any, y: Any, b: Any, w: Any, alpha: Any) -> dict[str, tuple[Callable[[], Any], float]]:
    """Kernels of BiCGSTAB and GMRES, and the bytes that each must move."""
    import cupy

    vector, s = float(x.nbytes), x.shape[1]
    V, h = cupy.random.random((8, *x.shape)), cupy.full((8, s), 1e-9)
    return {
        "basis_dots, 8 vectors": (lambda: basis.basis_dots(V, x, None), 9 * vector),
        "basis_add, 8 vectors": (lambda: basis.basis_add(h, V, w), 10 * vector),
        "bicgstab_update": (lambda: bicgstab.bicgstab_update(alpha, x, y, V[0], b, w), 7 * vector),
        "bicgstab_direction": (lambda: bicgstab.bicgstab_direction(alpha, alpha, x, y, b), 4 * vector),
    }


def float32_runs(graph: Any, s: int) -> dict[str, tuple[Callable[[], Any], float]]:
    """The last Chebyshev step in float32."""
    import cupy

    values = cupy.random.random((graph.nnz, s), dtype=np.float32)
    x, y, b, w, dinv = (cupy.random.random((graph.shape[0], s), dtype=np.float32) for _ in range(5))
    c = cupy.random.random(s, dtype=np.float32)
    indptr, indices = graph.arrays_on(values)
    graph_bytes = 4.0 * (graph.nnz + x.shape[0])
    return {
        "chebyshev_last, float32": (
            lambda: relaxation.chebyshev_last(indptr, indices, values, dinv, b, x, c, c, w, y),
            4.0 * graph.nnz * s + graph_bytes + 5.0 * x.nbytes,
        ),
    }


def matrix_free_runs(cells: int, s: int, dtype: Any) -> dict[str, tuple[Callable[[], Any], float]]:
    """The diffusion operator from its coefficient, and in float64 what assembles it."""
    import cupy

    problem, size = RandomDiffusion(cells, backend="cupy"), np.dtype(dtype).itemsize
    discrete, n_cells = problem.discretization, problem.mesh.n_cells
    y = np.random.default_rng(SEED).uniform(-1.0, 1.0, (5, s)).astype(dtype)
    A = problem.operator(Ensemble(discrete.coefficient(y)))
    x = cupy.random.random((A.shape[0], s)).astype(dtype)
    out = x * 0.0
    moved = size * s * (8.0 * n_cells + 2 * A.shape[0]) + 3.0 * size * n_cells
    runs: dict[str, Any] = {f"matrix-free spmv, {np.dtype(dtype)}": (lambda: A.apply(x, out), moved)}
    if dtype == np.float64:
        guess = discrete.initial_guess(s, A.dtype)
        values = discrete.jacobian_and_residual(A.kappa, guess)[0]
        assemble = lambda: discrete.jacobian_and_residual(A.kappa, guess, values)
        runs["assembly"] = (assemble, float(values.nbytes + A.kappa.nbytes + 2 * x.nbytes))
        runs["diagonal, matrix-free"] = (A.diagonal, float(A.kappa.nbytes + x.nbytes))
    return runs


def timed(runs: dict[str, tuple[Callable[[], Any], float]], s: int, bandwidth: float) -> list[dict[str, Any]]:
    """A row a kernel: its time, and the fraction of the triad's bandwidth that its compulsory bytes reach."""
    rows = []
    for name, (run, moved) in runs.items():
        ms = milliseconds(run)
        of_triad = moved / ms / 1e6 / bandwidth
        rows.append({"kernel": name, "samples": s, "ms": ms, "TB/s": moved / ms / 1e9, "of triad": of_triad})
    return rows


def vendor(graph: Any, s: int, values: Any, x: Any) -> list[dict[str, Any]]:
    """cuSPARSE through CuPy: one matrix times many columns (in Fortran order, as it wants), and products of one sample.

    A study multiplies a different matrix for each sample: `COLD` of them in turn, which together are far larger than
    the second-level cache. The same matrix again and again comes from that cache for the most part.
    """
    import cupy
    import cupyx.cusparse
    import cupyx.scipy.sparse as csp

    indptr, indices = graph.arrays_on(values)
    matrix = csp.csr_matrix((values[:, 0].copy(), indices, indptr), shape=graph.shape)
    times = {}
    if s == 1:
        vectors = cupy.random.random((2, COLD, graph.shape[0]))
        same = prepared_spmv(matrix, vectors[0, 0], vectors[1, 0])
        times["cuSPARSE spmv, same matrix"] = milliseconds(same)
        turns = []
        for u, v in zip(*vectors, strict=True):
            A = csp.csr_matrix((cupy.random.random(graph.nnz), indices, indptr), shape=graph.shape)
            turns.append(prepared_spmv(A, u, v))
        in_turn = lambda: [turn() for turn in turns]
        times[f"cuSPARSE spmv, {COLD} matrices in turn"] = milliseconds(in_turn, queued=1) / COLD
    else:
        columns, out = cupy.asfortranarray(x), cupy.empty(x.shape, order="F")
        times["cuSPARSE spmm"] = milliseconds(lambda: cupyx.cusparse.spmm(matrix, columns, out))
    return [{"kernel": name, "samples": s, "ms": ms, "TB/s": 0.0, "of triad": 0.0} for name, ms in times.items()]


def prepared_spmv(matrix: Any, x: Any, y: Any) -> Callable[[], Any]:
    """cuSPARSE's product with everything made beforehand that can be, so that the device never waits for the host."""
    import cupy
    import cupyx.cusparse as wrapped
    from cupy_backends.cuda.libs import cusparse

    one, zero = np.ones(1), np.zeros(1)
    descriptors = wrapped.SpMatDescriptor.create(matrix), *(wrapped.DnVecDescriptor.create(v) for v in (x, y))
    A, u, v = (d.desc for d in descriptors)
    handle, double, algorithm = cupy.cuda.device.get_cusparse_handle(), 1, cusparse.CUSPARSE_MV_ALG_DEFAULT
    told = (handle, 0, one.ctypes.data, A, u, zero.ctypes.data, v, double, algorithm)
    room = cupy.empty(max(1, cusparse.spMV_bufferSize(*told)), cupy.int8)
    held = (descriptors, matrix, x, y, one, zero)
    return lambda held=held: cusparse.spMV(*told, room.data.ptr)


FLOAT32 = Multigrid(dtype=np.float32)
VARIANTS: dict[str, dict[str, Any]] = {
    "stored": {},
    "stored, float32 hierarchy": {"preconditioner": FLOAT32},
    "matrix-free, float32 hierarchy": {"operator": "matrix-free", "preconditioner": FLOAT32},
    "affine": {"operator": "affine"},
    "affine, float32 hierarchy": {"operator": "affine", "preconditioner": FLOAT32},
}


def solves(cells: int, sizes: tuple[int, ...] = SIZES, grading: float = 0.0) -> list[dict[str, Any]]:
    """The paper's problem, set-up and solve: milliseconds by phase, the median of some solves after a first."""
    import cupy

    rng = np.random.default_rng(SEED)
    parameters = {s: Ensemble(rng.uniform(-1.0, 1.0, (5, s))) for s in sizes}
    rows = [peer(cells, parameters[sizes[0]], grading)]
    alone = {}
    for variant, options in VARIANTS.items():
        problem = RandomDiffusion(cells, grading=grading, backend="cupy")
        for s, y in parameters.items():
            start = time.perf_counter()
            problem.solve(y, **options)
            first = time.perf_counter() - start
            results = sorted((problem.solve(y, **options) for _ in range(5)), key=lambda r: r.seconds["total"])
            result = results[2]
            total = 1e3 * result.seconds["total"] / s
            alone.setdefault(s, total) if s == 1 else None
            rows.append(
                {
                    "run": variant, "samples": s, "iterations": int(result.iterations.max()), "first ms": 1e3 * first,
                    **{f"{name} ms": 1e3 * seconds for name, seconds in result.seconds.items() if name != "total"},
                    "ms a sample": total, "x one stored": alone[1] / total if alone else 1.0,
                    "x PyAMG": rows[0]["ms a sample"] / total,
                }
            )  # fmt: skip
        del problem
        cupy.get_default_memory_pool().free_all_blocks()
    show(f"Random diffusion, {cells}^3 cells, grading {grading:g}", rows)
    return rows


def peer(cells: int, y: Ensemble, grading: float) -> dict[str, Any]:
    """PyAMG on one core of the same machine, one sample: the better of two runs."""
    import os

    import scipy.sparse as sp

    A, b = RandomDiffusion(cells, grading=grading).assemble(y)
    matrix, rhs = sp.csr_matrix(A.to_scipy(0)), b.samples[:, 0].copy()
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        setup, solve, iterations = min((pyamgs(matrix, rhs) for _ in range(2)), key=lambda run: run[0] + run[1])
    finally:
        os.sched_setaffinity(0, cores)
    phases = {"coefficient ms": 0.0, "assembly ms": 0.0, "setup ms": 1e3 * setup, "solve ms": 1e3 * solve}
    total = 1e3 * (setup + solve)
    return {
        "run": "PyAMG, one core", "samples": 1, "iterations": iterations, "first ms": total, **phases,
        "ms a sample": total, "x one stored": 0.0, "x PyAMG": 1.0,
    }  # fmt: skip


def phases(cells: int, sizes: tuple[int, ...] = (1, 8, 32, 64)) -> list[dict[str, Any]]:
    """Milliseconds of each part of a solve of stored matrices, by level: kernels between events, times how often."""
    rng = np.random.default_rng(SEED)
    rows = []
    for s in sizes:
        problem = RandomDiffusion(cells, grading=0.0, backend="cupy")
        y = rng.uniform(-1.0, 1.0, (5, s))
        A, b = problem.assemble(Ensemble(y))
        hierarchy = smoothed_aggregation(A)
        n = int(cg(A, b, M=hierarchy, rtol=1e-7).iterations.max())
        row = {"samples": s, "iterations": n, **setup_phases(problem, A, hierarchy, y)}
        row.update(solve_phases(A, b, hierarchy, n))
        rows.append(row)
        del problem, A, b, hierarchy
        release()
    show(f"Where the time goes, {cells}^3 cells: ms", rows)
    return rows


def release() -> None:
    """Give what the pool keeps back to the device."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


def setup_phases(problem: RandomDiffusion, A: CrsMatrix, hierarchy: Any, y: np.ndarray) -> dict[str, float]:
    """Milliseconds of coefficient, assembly, and each step of the set-up on each level."""
    discrete, s = problem.discretization, y.shape[1]
    kappa, guess = discrete.coefficient(y), discrete.initial_guess(s, y.dtype)
    values = A.values * 1.0
    row = {
        "coefficient": milliseconds(lambda: discrete.coefficient(y, kappa)),
        "assembly": milliseconds(lambda: discrete.jacobian_and_residual(kappa, guess, values)),
    }
    for k, level in enumerate(hierarchy.levels[:-1]):
        B, dinv = level.A, level.smoother.dinv
        q, z, one = dinv * 1.0, dinv * 1.0, dinv[0] * 0.0 + 1e-3
        row[f"power method {k}"] = POWER_STEPS * milliseconds(
            lambda B=B, d=dinv, q=q, z=z, one=one: relaxation.power_step(*B.arrays, d, q, one, z)
        )
        row[f"diagonal {k}"] = milliseconds(lambda B=B: inverse_diagonal(B))
        P, coarse = level.P.values * 1.0, hierarchy.levels[k + 1].A.values * 1.0
        omega = one * 1.0
        row[f"prolongator {k}"] = milliseconds(
            lambda L=level, B=B, d=dinv, o=omega, P=P: L.plan.prolongator(B, d, o, P)
        )
        row[f"Galerkin {k}"] = milliseconds(lambda L=level, B=B, c=coarse: L.plan.galerkin(B, L.P, c))
    last = hierarchy.levels[-1].A
    row["inverses"] = milliseconds(lambda: CoarseSolver(last), queued=1)
    return row


def solve_phases(A: CrsMatrix, b: Ensemble, hierarchy: Any, n: int) -> dict[str, float]:
    """Milliseconds of `n` iterations in each of their parts."""
    row = {}
    s = b.samples.shape[1]
    work = hierarchy.workspace(s)
    x, y, r, z = (b.samples * 1.0 for _ in range(4))
    alpha = r[0] * 0.0 + 1e-9
    row["A p"] = n * milliseconds(lambda: A.apply_dot(x, y))
    row["vectors"] = n * (
        milliseconds(lambda: krylov.cg_update(alpha, x, y, r, z))
        + milliseconds(lambda: krylov.dot(x, y, None))
        + milliseconds(lambda: krylov.cg_direction(alpha, x, y))
    )
    for k, level in enumerate(hierarchy.levels[:-1]):
        here, there, w = work.swap[k], work.scratch[k] * 1.0, work.scratch[k]
        right = x.astype(here.dtype) if k == 0 else work.b[k]  # levels may have another precision than the solve
        smooth = lambda L=level, b=right, h=here, t=there, w=w: L.smoother.smooth(b, None, h, t, w)
        again = lambda L=level, b=right, h=here, t=there, w=w: L.smoother.smooth(b, h, h, t, w)
        row[f"smoother {k}"] = n * (milliseconds(smooth) + milliseconds(again))
        row[f"residual {k}"] = n * milliseconds(lambda L=level, b=right, h=here, w=w: L.A.residual(h, b, w))
        below = work.b[k + 1]
        down = lambda L=level, w=w, c=below: crs.spmv_transpose(*L.P.transposed_arrays, w, c)
        up = lambda L=level, h=here, c=below: crs.spmv_add(*L.P.arrays, c, h)
        row[f"transfer {k}"] = n * (milliseconds(down) + milliseconds(up))
    row["coarsest"] = n * milliseconds(lambda: hierarchy.coarse.apply(work.b[-1], work.x[-1]))
    return row


def main(cells: int, threads: int) -> None:
    """Run and keep all tables."""
    save(f"gpu-kernels-{cells}", kernels(cells), **cuda_device())
    save(f"gpu-phases-{cells}", phases(cells), **cuda_device())
    for grading in (0.0, 1.0):
        save(f"gpu-solves-{cells}-grading{grading:.0f}", solves(cells, grading=grading), **cuda_device())
