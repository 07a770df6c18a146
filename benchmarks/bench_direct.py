"""Refactorisation and one solve per sample of matrices on one graph, against SciPy's ``splu`` one sample at a time.

One thread. A factorisation of ``multiply_adds`` multiplications is bound by them, a solve by the bytes of its values:
``8 n_values`` per sample, read twice for LDL^T.
"""

from __future__ import annotations

import argparse
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from benchmarks.common import SEED, EnsembleBenchmark, interleaved, median, ratio, save, show
from ensemble.krylov import direct
from ensemble.linalg import CrsGraph, CrsMatrix, Factorization


def laplacian(*cells: int) -> sp.csr_array:
    """The 5-point or 7-point matrix of a grid."""
    total = sp.csr_array((1, 1))
    for m in cells:
        line = sp.diags_array([-np.ones(m - 1), 2.0 * np.ones(m), -np.ones(m - 1)], offsets=[-1, 0, 1])
        total = sp.kron(total, sp.eye_array(m)) + sp.kron(sp.eye_array(total.shape[0]), line)
    return sp.csr_array(total)


def chemistry(n: int = 70) -> sp.csr_array:
    """A few species react with many, most with few: 8 % of the entries, little fill."""
    rng = np.random.default_rng(SEED)
    hubs = rng.integers(0, n // 12, 2 * n)
    rows, columns = np.concatenate([rng.integers(0, n, 2 * n), hubs]), np.concatenate([hubs, rng.integers(0, n, 2 * n)])
    return sp.csr_array(sp.csr_array((rng.random(4 * n), (rows, columns)), shape=(n, n)) + 8.0 * sp.eye_array(n))


def power_grid(n: int = 2000) -> sp.csr_array:
    """A tree with a few loops between neighbours, its values unsymmetric."""
    rng = np.random.default_rng(SEED)
    first = np.arange(1, n)
    other = np.maximum(0, first - rng.integers(1, 30, n - 1))
    loops = rng.integers(0, n - 20, n // 5)
    rows = np.concatenate([first, loops])
    columns = np.concatenate([other, loops + rng.integers(1, 20, loops.size)])
    half = sp.csr_array((rng.random(rows.size), (rows, columns)), shape=(n, n))
    return sp.csr_array(half + 0.7 * half.T + 9.0 * sp.eye_array(n))


def band(n: int = 1000, half: int = 20) -> sp.csr_array:
    """A full band, dominated by its diagonal."""
    rng = np.random.default_rng(SEED)
    offsets = range(-half, half + 1)
    return sp.csr_array(sp.diags_array([rng.random(n - abs(k)) + 40.0 * (k == 0) for k in offsets], offsets=offsets))


CASES: dict[str, tuple[Any, str, int]] = {
    "chemistry": (chemistry, "lu", 32),
    "grid-like": (power_grid, "lu", 32),
    "band": (band, "lu", 32),
    "tridiagonal": (lambda: band(1000, 1), "lu", 32),
    "2-D 50": (lambda: laplacian(50, 50), "ldlt", 32),
    "2-D 100": (lambda: laplacian(100, 100), "ldlt", 32),
    "3-D 16": (lambda: laplacian(16, 16, 16), "ldlt", 32),
    "2-D 300": (lambda: laplacian(300, 300), "ldlt", 16),
    "3-D 30": (lambda: laplacian(30, 30, 30), "ldlt", 16),
}
"""Matrix, kind and number of samples of each row of the table."""


def samples_of(base: sp.csr_array, symmetric: bool, n_samples: int) -> CrsMatrix:
    """Matrices around `base`: rows and columns scaled by lognormal numbers of each sample."""
    base.sort_indices()
    graph = CrsGraph(base.indptr, base.indices, base.shape)
    scale = np.exp(0.1 * np.random.default_rng(SEED).standard_normal((base.shape[0], n_samples)))
    left = scale if symmetric else scale[::-1]
    return CrsMatrix(graph, base.data[:, None] * left[graph.row_of_entry] * scale[graph.indices])


class Direct(EnsembleBenchmark):
    """Factorisation and solution on a 50 by 50 grid."""

    params = (["numba"], [1, 8, 32])

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.A = samples_of(laplacian(50, 50), True, n_samples)
        self.b = np.ones(2500)
        self.F = Factorization(self.A, kind="ldlt")
        self.F @ self.b
        direct(self.A, self.b, kind="ldlt")

    def time_update(self, backend: str, n_samples: int) -> None:
        self.F.update(self.A)

    def time_solve(self, backend: str, n_samples: int) -> None:
        self.F @ self.b

    def time_direct(self, backend: str, n_samples: int) -> None:
        direct(self.A, self.b, kind="ldlt")


def row(name: str, rounds: int) -> dict[str, Any]:
    """Times of one case, microseconds per sample."""
    make, kind, n_samples = CASES[name]
    A = samples_of(make(), kind == "ldlt", n_samples)
    b = np.ones(A.shape[0])
    F, single = Factorization(A, kind=kind), Factorization(A, kind=kind, dtype="float32")
    one = A.to_scipy(0).tocsc()
    seconds = interleaved(
        {
            "factor": lambda: F.update(A),
            "solve": lambda: F @ b,
            "float32": lambda: direct(A, b, factorization=single, dtype="float32"),
            "direct": lambda: direct(A, b, factorization=F),
            "splu": lambda: splu(one).solve(b),
        },
        rounds,
    )
    both = [f + s for f, s in zip(seconds["factor"], seconds["solve"], strict=True)]
    micro = {key: 1e6 * median(values) / (1 if key == "splu" else n_samples) for key, values in seconds.items()}
    return {
        "case": name,
        "n_samples": n_samples,
        "n_values": F.n_values,
        "multiply-adds": F.multiply_adds,
        "factor us": micro["factor"],
        "solve us": micro["solve"],
        "Gflop/s": 2e-3 * F.multiply_adds / micro["factor"],
        "direct us": micro["direct"],
        "float32 direct us": micro["float32"],
        "splu us": micro["splu"],
        "x splu": ratio(seconds["splu"], both, n_samples),
    }


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks direct", description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES), help="rows of the table")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which each is timed once (default 5)")
    parser.add_argument("--name", help="name of the record (default: none is kept)")
    arguments = parser.parse_args()
    numba.set_num_threads(1)
    rows = [row(name, arguments.rounds) for name in arguments.cases]
    show("Refactorisation and one solve, microseconds per sample, one thread", rows)
    if arguments.name:
        save(arguments.name, rows)
