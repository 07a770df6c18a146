"""Refactorisation and one solve per sample of matrices on one graph, against other solvers one sample at a time.

One thread. A factorisation of ``multiply_adds`` multiplications is bound by them, a solve by the bytes of its values:
``8 n_values`` per sample, read twice for LDL^T. "both" is one call of `Factorization.solve`, which keeps no values:
what a call of another solver does for one sample. How the other solvers are had: `benchmarks.direct_peers`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.common import SEED, EnsembleBenchmark, interleaved, median, one_thread, ratio, reader, save, show
from benchmarks.direct_peers import PEERS, peers_for
from ensemble._compile.lanes.types import load, store
from ensemble._compile.numba import compiled, per_width, prange
from ensemble._compile.processor import register_bytes
from ensemble.krylov import cg, direct
from ensemble.linalg import CrsGraph, CrsMatrix, Factorization
from ensemble.multigrid import smoothed_aggregation

SLOW = 5e7
"""Multiply-adds from which on solvers without blocks are left out."""


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

    def time_update_and_solve(self, backend: str, n_samples: int) -> None:
        self.F.solve(self.A, self.b)

    def time_direct(self, backend: str, n_samples: int) -> None:
        direct(self.A, self.b, kind="ldlt")


@per_width
def _multiply(width):
    @compiled
    def loop(factors, sums, rounds):
        for _ in prange(1):
            a, b = load(factors, 0, width), load(factors, width, width)
            t0, t1 = load(sums, 0 * width, width), load(sums, 1 * width, width)
            t2, t3 = load(sums, 2 * width, width), load(sums, 3 * width, width)
            t4, t5 = load(sums, 4 * width, width), load(sums, 5 * width, width)
            t6, t7 = load(sums, 6 * width, width), load(sums, 7 * width, width)
            t8, t9 = load(sums, 8 * width, width), load(sums, 9 * width, width)
            t10, t11 = load(sums, 10 * width, width), load(sums, 11 * width, width)
            for _k in range(rounds):
                t0, t1, t2, t3 = t0 - a * t0, t1 - b * t1, t2 - a * t2, t3 - b * t3
                t4, t5, t6, t7 = t4 - a * t4, t5 - b * t5, t6 - a * t6, t7 - b * t7
                t8, t9, t10, t11 = t8 - a * t8, t9 - b * t9, t10 - a * t10, t11 - b * t11
            store(sums, 0, t0 + t1 + t2 + t3 + t4 + t5 + t6 + t7 + t8 + t9 + t10 + t11)

    return loop


def multiply_adds_per_second() -> float:
    """Multiplications, each with a subtraction, that one thread does in registers: twelve sums, all in flight."""
    width, rounds = register_bytes() // 8, 1 << 21
    factors, sums = np.full(2 * width, 1e-9), np.ones(12 * width)
    seconds = timed({"": lambda: _multiply(width)(factors, sums, rounds)}, 5)[""]
    return 12.0 * width * rounds / min(seconds)


def timed(functions: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Processor seconds of a call of each function, in turn; short ones are called several times in a round."""
    counts = {}
    for name, function in functions.items():
        function()
        start = time.process_time()
        function()
        counts[name] = max(1, min(100, int(3e-3 / max(time.process_time() - start, 1e-6))))
    repeated = {
        name: (lambda function=function, count=counts[name]: [function() for _ in range(count)])
        for name, function in functions.items()
    }
    seconds = interleaved(repeated, rounds, time.process_time)
    return {name: [value / counts[name] for value in values] for name, values in seconds.items()}


def row(name: str, rounds: int, speed: float) -> dict[str, Any]:
    """Times of one case, microseconds per sample, and those of others over one call that factorises and solves.

    `speed` is that of `multiply_adds_per_second`. "bound us" is the time of the multiply-adds at that speed, and of the
    bytes of the values, written once and read once or twice, at the bandwidth that is measured.
    """
    make, kind, n_samples = CASES[name]
    A = samples_of(make(), kind == "ldlt", n_samples)
    b = np.ones(A.shape[0])
    F, single = Factorization(A, kind=kind), Factorization(A, kind=kind, dtype="float32")
    others = peers_for(A.to_scipy(0), kind == "ldlt", [] if F.multiply_adds < SLOW else ["splu", "KLU"])
    one = np.ascontiguousarray(A.values[:, 0])
    read, n_bytes = reader(0.25)
    seconds = timed(
        {
            "read": read,
            "factor": lambda: F.update(A),
            "solve": lambda: F @ b,
            "both": lambda: F.solve(A, b),
            "direct": lambda: direct(A, b, factorization=F),
            "float32": lambda: direct(A, b, factorization=single, dtype="float32"),
            **{peer: (lambda solver=solver: solver(one, b)) for peer, solver in others.items()},
        },
        rounds,
    )
    both = seconds["both"]
    apart = [f + s for f, s in zip(seconds["factor"], seconds["solve"], strict=True)]
    best = [min(times) for times in zip(*(seconds[peer] for peer in others), strict=True)]
    micro = {key: 1e6 * median(values) / (1 if key in others else n_samples) for key, values in seconds.items()}
    passes = 3 if kind == "ldlt" else 2
    bound = 1e6 * (F.multiply_adds / speed + 8 * passes * F.n_values * median(seconds["read"]) / n_bytes)
    return {
        "case": name,
        "n_samples": n_samples,
        "n_values": F.n_values,
        "multiply-adds": F.multiply_adds,
        "form": "supernodes" if F.plan.supernodes is not None else "rows" if F.tiles is None else "list",
        "factor us": micro["factor"],
        "solve us": micro["solve"],
        "Gflop/s": 2e-3 * F.multiply_adds / micro["factor"],
        "bound us": bound,
        "both us": micro["both"],
        "of bound": bound / micro["both"],
        "direct us": micro["direct"],
        "float32 direct us": micro["float32"],
        **{f"{peer} us": micro[peer] if peer in others else None for peer in PEERS},
        "x best": ratio(best, both, n_samples),
        "in two calls x best": ratio(best, apart, n_samples),
        "float32 x best": ratio(best, seconds["float32"], n_samples),
        "x splu": ratio(seconds["splu"], both, n_samples) if "splu" in others else None,
    }


def curve(cells: tuple[int, ...], n_samples: int, rounds: int) -> dict[str, Any]:
    """Microseconds per sample of a direct solve, and of one with multigrid, with the numbers of a graph that stands."""
    A = samples_of(laplacian(*cells), True, n_samples)
    b = np.ones(A.shape[0])
    F, hierarchy = Factorization(A, kind="ldlt"), smoothed_aggregation(A)
    seconds = timed(
        {
            "direct": lambda: F.solve(A, b),
            "multigrid": lambda: cg(A, b, M=hierarchy.update(A), rtol=1e-10),
        },
        rounds,
    )
    micro = {f"{key} us": 1e6 * median(values) / n_samples for key, values in seconds.items()}
    return {"dimensions": len(cells), "n": A.shape[0], "n_samples": n_samples, **micro}


def curves(rounds: int) -> list[dict[str, Any]]:
    """Cost against the number of unknowns with 16 samples, and against the number of samples."""
    sizes = [(m, m) for m in (10, 20, 40, 80, 160)] + [(m, m, m) for m in (5, 8, 12, 16, 22)]
    rows = [curve(cells, 16, rounds) for cells in sizes]
    return rows + [curve((60, 60), n_samples, rounds) for n_samples in (1, 2, 4, 8, 16, 32, 64, 128)]


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks direct", description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES), help="rows of the table")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which each is timed once (default 5)")
    parser.add_argument("--curves", action="store_true", help="cost against size and samples, and multigrid, instead")
    parser.add_argument("--name", help="name of the record (default: none is kept)")
    arguments = parser.parse_args()
    one_thread()
    if arguments.curves:
        rows, title = curves(arguments.rounds), "Direct solver and multigrid"
    else:
        speed, title = multiply_adds_per_second(), "Refactorisation and one solve"
        rows = []
        for name in arguments.cases:  # each row is kept at once: the last ones take long
            rows.append(row(name, arguments.rounds, speed))
            if arguments.name:
                save(arguments.name, rows)
    show(f"{title}, microseconds per sample, one thread", rows)
    if arguments.name:
        save(arguments.name, rows)
