"""Krylov methods without preconditioner beside SciPy's, time of an iteration and sample, and the bytes that it moves.

One thread, NumPy's and SciPy's libraries included. Five-point matrices with lognormal entries for each sample, for
`bicgstab` and `gmres` not symmetric; 60 iterations, tolerances that nothing meets. "x" is SciPy's time over ours, per
sample. "bytes, x" is the bytes of SciPy's iteration over ours: what "x" would be if both moved them at one rate.
SciPy's are counted from the operations of its Python code, each with its operands and temporary arrays, and its
product.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse import linalg
from threadpoolctl import threadpool_limits

from benchmarks.common import SEED, EnsembleBenchmark, interleaved, median, one_thread, ratio, save, show
from ensemble import Ensemble
from ensemble.gallery import poisson
from ensemble.krylov import bicgstab, cg, gmres, minres
from ensemble.linalg import CrsMatrix

METHODS: dict[str, Callable[..., Any]] = {"cg": cg, "minres": minres, "bicgstab": bicgstab, "gmres": gmres}
RESTART, MOST = 30, 60
"""Length of a cycle of GMRES; iterations."""

VECTORS = {"cg": (88, 152, 1), "minres": (144, 304, 1), "bicgstab": (248, 328, 2)}
"""Bytes of a row in vector operations: ours with the product's vectors, SciPy's without; products of an iteration."""


def system(method: str, points: int, n_samples: int) -> tuple[CrsMatrix, np.ndarray]:
    """A matrix of samples and their right-hand sides."""
    rng, grid = np.random.default_rng(SEED), poisson((points, points))
    values = grid.values.reshape(-1, 1) * rng.lognormal(sigma=0.1, size=n_samples)
    if method in ("bicgstab", "gmres"):
        values = values * (1.0 + 0.1 * rng.standard_normal((grid.values.size, 1)))
    return CrsMatrix(grid.graph, values), rng.standard_normal((grid.shape[0], n_samples))


class PlainIterations(EnsembleBenchmark):
    """Iterations of methods without preconditioner, 1,024 rows."""

    params = (["numba"], [1, 32])

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.systems = {method: system(method, 32, n_samples) for method in METHODS}
        for method in METHODS:
            self.solve(method)

    def solve(self, method: str) -> None:
        A, b = self.systems[method]
        METHODS[method](A, Ensemble(b), rtol=1e-30, max_iterations=MOST)

    def time_cg(self, backend: str, n_samples: int) -> None:
        self.solve("cg")

    def time_minres(self, backend: str, n_samples: int) -> None:
        self.solve("minres")

    def time_bicgstab(self, backend: str, n_samples: int) -> None:
        self.solve("bicgstab")

    def time_gmres(self, backend: str, n_samples: int) -> None:
        self.solve("gmres")


def bytes_of_row(method: str, entries: float, n_samples: int) -> tuple[float, float]:
    """Bytes of an iteration for one row of one sample: ours, SciPy's; `entries` of a row; two samples of ours
    share their graph."""
    ours, theirs = 8 * entries + (4 * entries + 4) / min(n_samples, 2) + 16, 12 * entries + 4 + 16
    if method != "gmres":
        vectors, scipys, products = VECTORS[method]
        return products * (ours - 16) + vectors, products * theirs + scipys
    basis = sum(range(1, RESTART + 1)) / RESTART  # ours thrice: inner products, sums with the next ones, sums
    return ours + 3 * 8 * basis + 56, theirs + (16 + 16 + 24) * basis + 32


def row(method: str, points: int, n_samples: int, rounds: int) -> dict[str, Any]:
    """Times of one method and size, microseconds an iteration and sample."""
    A, b = system(method, points, n_samples)
    right, solve = (Ensemble(b) if n_samples > 1 else b[:, 0]), METHODS[method]
    one, column, peer = sp.csr_array(A.to_scipy(0)), b[:, 0].copy(), getattr(linalg, method)
    options: dict[str, Any] = {"rtol": 1e-30, "maxiter": MOST}
    if method == "gmres":
        options |= {"maxiter": MOST // RESTART, "restart": RESTART}
    ours = lambda: solve(A, right, rtol=1e-30, max_iterations=MOST)
    seconds = interleaved({"ours": ours, "SciPy": lambda: peer(one, column, **options)}, rounds)
    moved, theirs = bytes_of_row(method, A.values.shape[0] / A.shape[0], n_samples)
    micro = {"ours": 1e6 * median(seconds["ours"]) / (MOST * n_samples), "SciPy": 1e6 * median(seconds["SciPy"]) / MOST}
    x = ratio(seconds["SciPy"], seconds["ours"], n_samples)
    return {
        "method": method, "rows": A.shape[0], "n_samples": n_samples, "us": micro["ours"], "SciPy us": micro["SciPy"],
        "x": x, "bytes, x": theirs / moved, "GB/s": A.shape[0] * moved / micro["ours"] / 1e3,
    }  # fmt: skip


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks plain-iterations", description=__doc__)
    parser.add_argument("--points", type=int, nargs="*", default=[32, 100], help="points along each edge (32 100)")
    parser.add_argument("--samples", type=int, nargs="*", default=[1, 32], help="numbers of samples (1 32)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of both (default 9)")
    parser.add_argument("--name", default="", help="name of the record (default: none is kept)")
    arguments = parser.parse_args()
    one_thread()
    warnings.simplefilter("ignore")
    rows = []
    for method in METHODS:
        for points in arguments.points:
            for n_samples in arguments.samples:
                with threadpool_limits(1):
                    rows.append(row(method, points, n_samples, arguments.rounds))
    show("Without preconditioner, an iteration and sample, one thread", rows)
    if arguments.name:
        save(arguments.name, rows)
