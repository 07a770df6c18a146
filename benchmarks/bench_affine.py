"""Affine and matrix-free operators, float32 hierarchies: products, and setup and solve against PyAMG one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.bench_assembly import parameters
from benchmarks.bench_multigrid import RTOL, pyamgs
from benchmarks.common import EnsembleBenchmark, interleaved, median, reader, save, show
from ensemble._backend import asarray_like
from ensemble._compile import registry
from ensemble._compile.kept_memory import release_memory
from ensemble._compile.lanes.arithmetic import fma
from ensemble._compile.lanes.types import load, store, zeros
from ensemble._compile.numba import compiled, empty, prange
from ensemble._kernels.fem import matrix_free
from ensemble._kernels.sparse import affine, crs
from ensemble.apps.fem import Multigrid, RandomDiffusion
from ensemble.apps.fem.diffusion_operator import DiffusionOperator
from ensemble.krylov import cg
from ensemble.linalg import AffineMatrix
from ensemble.multigrid import scaled_aggregation, smoothed_aggregation
from ensemble.scalar import Ensemble

STUDY = 256
"""Samples over which a set-up that serves all of them is spread."""


class Affine(EnsembleBenchmark):
    """Products and solve on 16^3 cells."""

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.problem, self.y = RandomDiffusion(16, backend=self.library), parameters(n_samples)
        self.A = affine_matrix(self.problem, self.y)
        self.x = asarray_like(np.ones((self.A.shape[0], n_samples)), self.reference_array)
        self.time_product(backend, n_samples)
        self.time_solve(backend, n_samples)

    def time_product(self, backend: str, n_samples: int) -> None:
        self.A.apply(self.x)
        self.wait()

    def time_solve(self, backend: str, n_samples: int) -> None:
        self.problem.solve(self.y, operator="affine", preconditioner=Multigrid(dtype=np.float32))
        self.wait()


# --- kernels
@compiled
def _multiply_add(x, sums, repeats):
    for thread in prange(64):
        t0, t1, t2, t3 = load(x, 0, 8), load(x, 8, 8), load(x, 16, 8), load(x, 24, 8)
        t4, t5, t6, t7 = load(x, 32, 8), load(x, 40, 8), load(x, 48, 8), load(x, 56, 8)
        t8, t9, a = load(x, 64, 8), load(x, 72, 8), load(x, 80, 8)
        for _ in range(repeats):
            t0, t1, t2, t3, t4 = fma(t0, a, a), fma(t1, a, a), fma(t2, a, a), fma(t3, a, a), fma(t4, a, a)
            t5, t6, t7, t8, t9 = fma(t5, a, a), fma(t6, a, a), fma(t7, a, a), fma(t8, a, a), fma(t9, a, a)
        store(sums, thread * 8, ((t0 + t1) + (t2 + t3)) + ((t4 + t5) + (t6 + t7)) + (t8 + t9) + zeros(x, 8))


def multiply_adder(repeats: int = 400_000) -> tuple[Callable[[], Any], float]:
    """A function that does nothing but float64 multiply-adds in registers, and its billions of operations."""
    x, sums = np.full(88, 0.5), np.zeros(512)
    return lambda: _multiply_add(x, sums, repeats), 64 * repeats * 10 * 8 * 2e-9


def affine_matrix(problem: RandomDiffusion, y: Ensemble) -> AffineMatrix:
    """The problem's matrix as terms."""
    return AffineMatrix(problem.graph, problem.discretization.affine_terms[0], y)


def products(cells: int, n_samples: int) -> dict[str, tuple[Callable[[], Any], float, float]]:
    """By name: a product, the gigabytes it must move, and the billions of multiply-adds and the like it must do."""
    problem, y = RandomDiffusion(cells), parameters(n_samples)
    A, graph, n, nnz = affine_matrix(problem, y), problem.graph, problem.mesh.n_nodes, problem.graph.nnz
    free = problem.operator(Ensemble(problem.discretization.coefficient(y.samples)))
    *_, factors, _ = problem.discretization.matrix_free_tables(np.dtype(np.float64))
    chosen: dict[str, tuple[Callable[[], Any], float, float]] = {}
    for name, dtype in (("float64", np.float64), ("float32", np.float32)):
        size = np.dtype(dtype).itemsize
        x, out = (empty((n, n_samples), dtype) for _ in range(2))
        x[...] = np.random.default_rng(11).standard_normal((n, n_samples))
        vectors = 2 * n * n_samples * size
        lanes = 64 // size
        stored, terms, c = (v.astype(dtype) for v in (A.to_crs().values, A.terms, A.coefficients))
        mean, kappa, faces = (np.ascontiguousarray(v, dtype) for v in (A.terms[:, :1], free.kappa, factors))
        graph_bytes = 4 * (nnz + n)
        m = terms.shape[1]
        chosen |= {
            f"stored {name}": (
                lambda v=stored, x=x, out=out: crs.spmv(graph.indptr, graph.indices, v, x, out),
                (stored.nbytes + vectors + graph_bytes) * 1e-9, 2 * nnz * n_samples / lanes * 1e-9,
            ),
            f"affine {name}": (
                lambda t=terms, c=c, x=x, out=out: affine.affine_spmv(graph.indptr, graph.indices, t, c, x, out),
                (terms.nbytes + vectors + graph_bytes) * 1e-9, m * nnz * n_samples / lanes * 1e-9,
            ),
            f"shared {name}": (
                lambda v=mean, x=x, out=out: crs.spmv(graph.indptr, graph.indices, v, x, out),
                (mean.nbytes + vectors + graph_bytes) * 1e-9, 2 * nnz * n_samples / lanes * 1e-9,
            ),
            f"matrix-free {name}": (
                lambda k=kappa, f=faces, x=x, out=out: matrix_free.hex_product(
                    problem.mesh.cells, f, problem.discretization.fixed, k, x, out
                ),
                (kappa.nbytes + faces.nbytes + vectors) * 1e-9, 180 * kappa.size / 8 / lanes * 1e-9,
            ),
        }  # fmt: skip
    return chosen


def kernels(cells: int = 64, n_samples: int = 32, rounds: int = 5) -> list[dict[str, Any]]:
    """Per product: milliseconds, effective GFLOP/s (two an entry and sample), and the fraction of its bound.

    The bound is the larger of its bytes over the measured read bandwidth and its vector operations over the rate
    measured in registers.
    """
    run = products(cells, n_samples)
    read, n_bytes = reader()
    adds, operations = multiply_adder()
    seconds = interleaved({"read": read, "adds": adds, **{name: f for name, (f, _, _) in run.items()}}, rounds)
    bandwidth = [n_bytes * 1e-9 / t for t in seconds["read"]]
    rate = [operations / 16 / t for t in seconds["adds"]]  # vector instructions of 8 float64: billions a second
    nnz = RandomDiffusion(cells).graph.nnz
    rows = []
    for name, (_, gigabytes, instructions) in run.items():
        bounds = [max(gigabytes / b, instructions / r) for b, r in zip(bandwidth, rate, strict=True)]
        t = median(seconds[name])
        rows.append(
            {
                "product": name,
                "ms": 1e3 * t,
                "GFLOP/s": 2e-9 * nnz * n_samples / t,
                "must move GB": gigabytes,
                "bound by": "memory" if gigabytes / median(bandwidth) > instructions / median(rate) else "arithmetic",
                "fraction of bound": median([b / t for b, t in zip(bounds, seconds[name], strict=True)]),
                "x stored float64": median(seconds["stored float64"]) / t,
            }
        )
    show(
        f"Products, {cells}^3 cells, {n_samples} samples; {median(bandwidth):.1f} GB/s read, "
        f"{32 * median(rate) / 2:.0f} GFLOP/s of multiply-adds in float64", rows,
    )  # fmt: skip
    return rows


# --- solves
class OperatorSolve:
    """One operator and preconditioner: what is set up once for a study, and what each ensemble costs."""

    def __init__(self, problem: RandomDiffusion, operator: str, hierarchy: str, dtype: Any) -> None:
        self.problem, self.operator, self.own, self.dtype = problem, operator, hierarchy == "own", dtype
        self.preconditioner: Any = None

    def matrix(self, y: Ensemble) -> Any:
        """The operator of an ensemble."""
        discrete = self.problem.discretization
        if self.operator == "affine":
            return affine_matrix(self.problem, y)
        if self.operator == "matrix-free":
            return DiffusionOperator(discrete, discrete.coefficient(y.samples))
        return self.problem.assemble(y)[0]

    def once(self) -> None:
        """Terms and hierarchy; a stored matrix has nothing that lasts but the graph's part, which stays warm."""
        discrete = self.problem.discretization
        if self.operator == "stored":
            return
        for kept in ("affine_terms", "mean_values"):
            discrete.__dict__.pop(kept, None)
        A = self.matrix(Ensemble(np.zeros((self.problem.field.n_terms, 1))))
        make = smoothed_aggregation if self.own else scaled_aggregation
        self.preconditioner = make(A, dtype=self.dtype)

    def ensemble(self, y: Ensemble, b: Any) -> tuple[float, float, Any]:
        """Seconds of set-up (operator and preconditioner) and of the solve, and its result."""
        start = time.perf_counter()
        A = self.matrix(y)
        if self.preconditioner is None:
            self.preconditioner = smoothed_aggregation(A, dtype=self.dtype)
        else:
            self.preconditioner.update(A)
        middle = time.perf_counter()
        result = cg(A, b, M=self.preconditioner, rtol=RTOL).raise_if_failed()
        return middle - start, time.perf_counter() - middle, result


OPERATORS = (("affine", "mean", np.float32), ("matrix-free", "mean", np.float32))
VARIANTS = (
    ("stored", "own", np.float64),
    ("stored", "own", np.float32),
    ("affine", "own", np.float32),
    ("affine", "mean", np.float64),
)


def load_kernels(y: Ensemble, operators: Any) -> None:
    """Have all compiled code read from disk, on a small mesh: a process pays that once, not a study."""
    problem = RandomDiffusion(8)
    for name in operators:
        solve = OperatorSolve(problem, *name)
        solve.once()
        solve.ensemble(y, Ensemble(np.ones((problem.graph.shape[0], y.n_samples))))


def solves(
    cells: int = 64, n_samples: int = 32, rounds: int = 2, grading: float = 0.0, operators: Any = OPERATORS
) -> list[dict[str, Any]]:
    """Per operator: seconds once, seconds per ensemble, speed per sample against PyAMG for one ensemble and for 256."""
    import scipy.sparse as sp

    y = parameters(n_samples)
    load_kernels(y, operators)
    problem = RandomDiffusion(cells, grading=grading)
    load = problem.discretization.affine_terms[1]
    b = Ensemble(np.ascontiguousarray(load[:, :1] + load[:, 1:] @ y.samples))
    matrix = sp.csr_matrix(affine_matrix(problem, y).to_scipy(0))
    made = {name: OperatorSolve(problem, *name) for name in operators}
    timed: dict[Any, list[Any]] = {key: [] for key in (*operators, "PyAMG")}
    for turn in range(rounds):
        for name, solve in made.items():
            if name[0] == "stored" and turn:
                continue  # takes ten times as long as the others: timed once
            start = time.perf_counter()
            solve.once()
            once = time.perf_counter() - start
            solve.ensemble(y, b)  # unmeasured: pages that are new to the process are slow at the first write
            *seconds, result = solve.ensemble(y, b)
            timed[name].append((once, *seconds, int(result.iterations.max())))
            solve.preconditioner = None
            del result
            release_memory()
        pyamgs(matrix, b.sample(0))
        timed["PyAMG"].append(pyamgs(matrix, b.sample(0)))
    peer = min(setup + solve for setup, solve, _ in timed["PyAMG"])
    rows = []
    for name in operators:
        once, setup, solve = (median([t[k] for t in timed[name]]) for k in range(3))
        one, study = once + setup + solve, once * n_samples / STUDY + setup + solve
        operator, hierarchy, dtype = name
        rows.append(
            {
                "operator": operator,
                "hierarchy": f"{hierarchy} {np.dtype(dtype)}",
                "iterations": timed[name][0][3],
                "once s": once,
                "setup s": setup,
                "solve s": solve,
                "ms a sample, one ensemble": 1e3 * one / n_samples,
                f"ms a sample, {STUDY}": 1e3 * study / n_samples,
                "x PyAMG, one ensemble": n_samples * peer / one,
                f"x PyAMG, {STUDY}": n_samples * peer / study,
            }
        )
    its = timed["PyAMG"][0][2]
    last = {"operator": "PyAMG", "iterations": its, "ms a sample, one ensemble": 1e3 * peer}
    rows.append({key: last.get(key, "") for key in rows[0]})
    show(f"To {RTOL:g}, {cells}^3 cells, grading {grading:g}, {n_samples} samples: speed-ups per sample", rows)
    return rows


# --- where time goes
@contextmanager
def clock(spent: dict[str, float]) -> Iterator[None]:
    """Add up the seconds of each kernel called within."""
    call = registry.Kernel.__call__

    def timed(kernel: Any, *arguments: Any) -> Any:
        start = time.perf_counter()
        result = call(kernel, *arguments)
        rows = max(a.shape[0] for a in arguments if isinstance(a, np.ndarray) and a.ndim == 2)
        key = f"{kernel.__name__} {'finest' if rows > 50_000 else 'coarser'}"
        spent[key] = spent.get(key, 0.0) + time.perf_counter() - start
        return result

    registry.Kernel.__call__ = timed  # type: ignore[method-assign]
    try:
        yield
    finally:
        registry.Kernel.__call__ = call  # type: ignore[method-assign]


def profile(cells: int = 64, n_samples: int = 32) -> list[dict[str, Any]]:
    """Per kernel: milliseconds of one solve, affine operator under the float32 hierarchy of the mean."""
    problem, y = RandomDiffusion(cells, grading=0.0), parameters(n_samples)
    solve = OperatorSolve(problem, "affine", "mean", np.float32)
    load = problem.discretization.affine_terms[1]
    b = Ensemble(np.ascontiguousarray(load[:, :1] + load[:, 1:] @ y.samples))
    solve.once()
    solve.ensemble(y, b)
    spent: dict[str, float] = {}
    with clock(spent):
        setup, solve, _ = solve.ensemble(y, b)
    rows = [{"kernel": name, "ms": 1e3 * t, "share": t / (setup + solve)} for name, t in spent.items()]
    rows.sort(key=lambda row: -row["ms"])
    rows.append({"kernel": "all", "ms": 1e3 * (setup + solve), "share": 1.0})
    show(f"Where the time of one update and solve goes, {cells}^3 cells, {n_samples} samples", rows)
    return rows


def main(cells: int, threads: int) -> None:
    """Print and keep the tables of products, of one profile, and of solves on the even and on the graded mesh."""
    save(f"affine-products-{cells}-{threads}threads", kernels(cells), cells=cells)
    save(f"affine-profile-{cells}-{threads}threads", profile(cells), cells=cells)
    for grading in (0.0, 1.0):
        rows = solves(cells, grading=grading)
        save(f"affine-{cells}-grading{grading:g}-{threads}threads", rows, cells=cells, grading=grading)


def variants(cells: int, threads: int) -> None:
    """Solves by affine operators with every kind of hierarchy, on the even mesh."""
    save(f"affine-variants-{cells}-{threads}threads", solves(cells, operators=VARIANTS), cells=cells, grading=0.0)
