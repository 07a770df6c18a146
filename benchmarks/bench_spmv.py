"""The sparse product on the 27-point matrix of a block of hexahedra, against SciPy and the read bandwidth.

``python -m benchmarks spmv-orders`` compares three matrices in three orders of their rows, on one thread;
``python -m benchmarks spmv-small`` times calls on small matrices.

Bytes it must move (float64, int32): nnz * (8 S + 4) + rows * (16 S + 4); of a symmetric matrix that stores its upper
triangle, half of the entries and the sums under way, which stay in the cache.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.common import SEED, EnsembleBenchmark, interleaved, median, one_thread, ratio, reader, save, show
from ensemble._backend import asarray_like
from ensemble._compile.numba import empty
from ensemble.linalg import CrsGraph, CrsMatrix, SymmetricCrsMatrix
from ensemble.scalar import Ensemble


def brick_graph(cells: int) -> CrsGraph:
    """The graph of trilinear elements on cells^3 hexahedra: (3 (cells + 1) - 2)^3 entries."""
    n = cells + 1
    line = sp.diags_array([np.ones(n - 1), np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1])
    pattern = sp.csr_array(sp.kron(line, sp.kron(line, line)))
    pattern.sort_indices()
    return CrsGraph(pattern.indptr, pattern.indices, (n**3, n**3))


def random_values(shape: tuple[int, ...], seed: int = SEED) -> Any:
    values = empty(shape, np.float64)
    np.random.default_rng(seed).random(out=values)
    return values


def compulsory_bytes(graph: CrsGraph, n_samples: int) -> float:
    """Values and columns once, x once, y once, row pointers."""
    return graph.nnz * (8.0 * n_samples + 4.0) + graph.shape[0] * (16.0 * n_samples + 4.0)


class SparseProduct(EnsembleBenchmark):
    """y = A x on 24^3 hexahedra."""

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        graph = brick_graph(24)
        self.A = CrsMatrix(graph, random_values((graph.nnz, n_samples))).to(self.reference_array)
        x = random_values((graph.shape[1], n_samples))
        self.x = asarray_like(x, self.reference_array)
        self.y = self.A.apply(self.x)
        self.scipy, self.scipy_x = self.A.to_scipy(0), x[:, 0].copy()
        self.wait()

    def time_spmv(self, backend: str, n_samples: int) -> None:
        self.A.apply(self.x, self.y)
        self.wait()

    def time_scipy_one_by_one(self, backend: str, n_samples: int) -> None:
        for _ in range(n_samples):
            self.scipy @ self.scipy_x

    def track_bandwidth(self, backend: str, n_samples: int) -> float:
        """GB/s of compulsory bytes."""
        seconds = interleaved({"spmv": lambda: self.time_spmv(backend, n_samples)})["spmv"]
        return compulsory_bytes(self.A.graph, n_samples) / median(seconds) / 1e9

    track_bandwidth.unit = "GB/s"


def table(cells: int = 64, sizes: tuple[int, ...] = (8, 16, 32), rounds: int = 11) -> list[dict[str, Any]]:
    """Per ensemble size: time per sample, fraction of the bound, speed against SciPy and our own scalar kernel."""
    graph = brick_graph(cells)
    one = CrsMatrix(graph, random_values((graph.nnz, 1)))
    scipy_matrix = one.to_scipy(0)
    x = random_values((graph.shape[1],))
    x1, y1 = x[:, None], empty((graph.shape[0], 1), np.float64)
    read, n_read = reader()
    rows = []
    for s in sizes:
        A = CrsMatrix(graph, random_values((graph.nnz, s)))
        xs, ys = random_values((graph.shape[1], s)), empty((graph.shape[0], s), np.float64)
        ys[...] = 0.0
        half = SymmetricCrsMatrix(graph, random_values((int(graph.upper.starts[-1]), s)))
        seconds = interleaved(
            {
                "read": read,
                "ours": lambda A=A, xs=xs, ys=ys: A.apply(xs, ys),
                "half": lambda half=half, xs=xs, ys=ys: half.apply(xs, ys),
                "scalar": lambda: one.apply(x1, y1),
                "scipy": lambda: scipy_matrix @ x,
            },
            rounds,
        )
        bound = [compulsory_bytes(graph, s) * t / n_read for t in seconds["read"]]
        half_bytes = half.values.nbytes + 4.0 * half.values.shape[0] + graph.shape[0] * (16.0 * s + 8.0)
        half_bound = [half_bytes * t / n_read for t in seconds["read"]]
        rows.append(
            {
                "n_samples": s,
                "ms": 1e3 * median(seconds["ours"]),
                "GFLOP/s": 2e-9 * graph.nnz * s / median(seconds["ours"]),
                "read GB/s": n_read / median(seconds["read"]) / 1e9,
                "fraction of bound": median([b / t for b, t in zip(bound, seconds["ours"], strict=True)]),
                "one sample ms": 1e3 * median(seconds["scalar"]),
                "SciPy ms": 1e3 * median(seconds["scipy"]),
                "x scalar kernel": ratio(seconds["scalar"], seconds["ours"], s),
                "x SciPy": ratio(seconds["scipy"], seconds["ours"], s),
                "upper triangle ms": 1e3 * median(seconds["half"]),
                "its fraction of bound": median([b / t for b, t in zip(half_bound, seconds["half"], strict=True)]),
                "x every entry": ratio(seconds["ours"], seconds["half"]),
            }
        )
    show(f"Sparse product, {cells}^3 hexahedra, {graph.nnz} entries, float64: speed-ups are per sample", rows)
    return rows


def main(cells: int, threads: int) -> None:
    """Print and keep the table."""
    save(f"spmv-{cells}-{threads}threads", table(cells), cells=cells)


# --- three matrices, each in three orders of its rows
def five_point(n: int = 700) -> Any:
    """The 5-point matrix of n^2 unknowns."""
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    return sp.csr_array(sp.kron(line, sp.eye_array(n)) + sp.kron(sp.eye_array(n), line))


def twenty_seven_point(cells: int = 44) -> Any:
    """The 27-point matrix of trilinear elements on cells^3 hexahedra."""
    graph = brick_graph(cells)
    return sp.csr_array((np.ones(graph.nnz), graph.indices, graph.indptr), shape=graph.shape)


def tetrahedral(cells: int = 52) -> Any:
    """The mass matrix of linear tetrahedra on cells^3 cubes of six each, by scikit-fem."""
    import skfem
    from skfem.models.poisson import mass

    points = np.linspace(0.0, 1.0, cells + 1)
    return sp.csr_array(
        mass.assemble(skfem.Basis(skfem.MeshTet.init_tensor(points, points, points), skfem.ElementTetP1()))
    )


def in_three_orders(matrix: Any) -> dict[str, CrsGraph]:
    """The graph in its natural order, in a random one, and that random one in reverse Cuthill-McKee order."""
    p = np.random.default_rng(SEED).permutation(matrix.shape[0])
    shuffled = sp.csr_array(matrix[p][:, p])
    for m in (matrix, shuffled):
        m.sort_indices()
    natural, random = (CrsGraph(m.indptr, m.indices, m.shape) for m in (matrix, shuffled))
    return {"natural": natural, "shuffled": random, "reordered": random.reordered().graph}


def alternating(
    functions: dict[str, Callable[[], Any]], rounds: int, before: Callable[[], Any] = lambda: None
) -> dict[str, list[float]]:
    """Seconds of this thread's own processor time, forwards and backwards in turn, after one warm-up each.

    Other programs on the machine delay a thread, which does not count here; that they empty its caches does.
    What comes `before` each call does not count either.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for k in range(rounds):
        for name in list(functions)[:: -1 if k % 2 else 1]:
            before()
            start = time.thread_time()
            functions[name]()
            seconds[name].append(time.thread_time() - start)
    return seconds


SIZES = (1, 2, 4, 8, 16, 32)


def orders(sizes: tuple[int, ...] = SIZES, rounds: int = 7) -> list[dict[str, Any]]:
    """Time per sample against as many SciPy products, each of a matrix of its own on shared index arrays."""
    read, n_read = reader()
    rows = []
    for name, make in (("5-point", five_point), ("27-point", twenty_seven_point), ("tetrahedra", tetrahedral)):
        for order, graph in in_three_orders(make()).items():
            for s in sizes:
                A = CrsMatrix(graph, random_values((graph.nnz, s)))
                x, y = random_values((graph.shape[1], s)), empty((graph.shape[0], s), np.float64)
                given = [sp.csr_array((v.copy(), graph.indices, graph.indptr), shape=graph.shape) for v in A.values.T]
                columns = [column.copy() for column in x.T]
                functions = {
                    "read": read,
                    "ours": lambda A=A, x=x, y=y: A.apply(x, y),
                    "scipy": lambda given=given, columns=columns: [m @ v for m, v in zip(given, columns, strict=True)],
                }
                seconds = alternating(functions, rounds, read)  # all begin with what `read` leaves in the caches
                bound = compulsory_bytes(graph, s) * median(seconds["read"]) / n_read
                rows.append(
                    {
                        "matrix": name,
                        "order": order,
                        "rows": graph.shape[0],
                        "nnz": graph.nnz,
                        "n_samples": s,
                        "ms per sample": 1e3 * median(seconds["ours"]) / s,
                        "SciPy ms": 1e3 * median(seconds["scipy"]) / s,
                        "x SciPy": ratio(seconds["scipy"], seconds["ours"]),
                        "fraction of bound": bound / median(seconds["ours"]),
                        "read GB/s": n_read / median(seconds["read"]) / 1e9,
                    }
                )
    show("Sparse products in three orders of rows, float64, processor time of one thread", rows)
    return rows


def orders_main() -> None:
    """Three matrices, each in three orders of its rows, one thread, processor time: against SciPy."""
    parser = argparse.ArgumentParser(description=orders.__doc__)
    parser.add_argument("--samples", type=int, nargs="+", default=SIZES)
    chosen = tuple(parser.parse_args().samples)
    one_thread()
    save("-".join(["spmv-orders", *(() if chosen == SIZES else map(str, chosen)), "1threads"]), orders(chosen))


# --- small matrices: what a call costs before and after its loop
def small_products(sides: tuple[int, ...] = (5, 10, 30), rounds: int = 25) -> list[dict[str, Any]]:
    """Microseconds per sample of ``A @ x`` on 5-point matrices of side^2 rows, against SciPy; processor time."""
    rows = []
    for side in sides:
        for dtype in (np.float64, np.complex128):
            graph = CrsMatrix.from_scipy(five_point(side)).graph
            theirs = sp.csr_array(five_point(side).astype(dtype))
            x, calls = np.ones(side * side, dtype), 30_000 // (side * side + 100)
            for s in (1, 32):
                A = CrsMatrix(graph, theirs.data if s == 1 else np.repeat(theirs.data[:, None], s, axis=1))
                given: Any = x if s == 1 else Ensemble(np.repeat(x[:, None], s, axis=1))
                functions = {
                    "ours": lambda A=A, given=given, calls=calls: [A @ given for _ in range(calls)],
                    "scipy": lambda theirs=theirs, x=x, calls=calls: [theirs @ x for _ in range(calls)],
                }
                seconds = alternating(functions, rounds)
                ours, scipys = (1e6 * median(seconds[name]) / calls for name in ("ours", "scipy"))
                rows.append({
                    "rows": side * side, "type": np.dtype(dtype).name, "n_samples": s, "us per sample": ours / s,
                    "SciPy us": scipys, "x SciPy": ratio(seconds["scipy"], seconds["ours"], s),
                })  # fmt: skip
    show("Products of small matrices, processor time of one thread", rows)
    return rows


def small_main() -> None:
    """Products of small matrices against SciPy, one thread, processor time; keeps a record where it is named."""
    parser = argparse.ArgumentParser(description=small_products.__doc__)
    parser.add_argument("--name", help="name of the record (default: none is kept)")
    name = parser.parse_args().name
    one_thread()
    rows = small_products()
    if name:
        save(name, rows)
