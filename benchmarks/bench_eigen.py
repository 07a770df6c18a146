"""A few eigenpairs of many symmetric matrices on one graph, against a loop of SciPy's `eigsh` (ARPACK).

Matrices of Matrix Market files come by `--matrices`; those of the record are 494_bus, bcsstk13 and jagmesh7 of the
SuiteSparse collection. Samples are D A D with lognormal D. Seconds are of the processor, the least of the rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from benchmarks.common import SEED, EnsembleBenchmark, one_thread, save, show
from ensemble.gallery import poisson
from ensemble.linalg import CrsMatrix, eigsh

WAYS: dict[str, dict[str, Any]] = {
    "LM": {"which": "LM"}, "LA": {"which": "LA"}, "SA": {"which": "SA"}, "sigma=0": {"sigma": 0.0},
}  # fmt: skip

SPREAD = 0.02
"""Standard deviation of the logarithm of D."""


def matrices(folder: Path | None) -> Iterator[tuple[str, sp.csr_array]]:
    """Names and matrices: grids, a path, pyamg's airfoil where it is installed, and the files of a folder."""
    for name, shape in (("grid 30^2", (30, 30)), ("grid 100^2", (100, 100)), ("path 300", (300,))):
        yield name, sp.csr_array(poisson(shape).to_scipy())
    try:
        from pyamg.gallery import load_example
    except ImportError:
        pass
    else:
        yield "airfoil", sp.csr_array(load_example("airfoil")["A"])
    for path in sorted(folder.glob("*.mtx")) if folder else ():
        A = sp.csr_array(scipy.io.mmread(path)).astype(float)
        yield path.stem, sp.csr_array(0.5 * (A + A.T))


def samples_of(A: sp.csr_array, n_samples: int) -> list[sp.csr_array]:
    """A itself, or matrices scaled from both sides."""
    A.sort_indices()
    if n_samples == 1:
        return [A]
    logs = SPREAD * np.random.default_rng(SEED).standard_normal((n_samples, A.shape[0]))
    return [sp.csr_array(sp.diags_array(d) @ A @ sp.diags_array(d)) for d in np.exp(logs)]


def compared(
    name: str, A: sp.csr_array, n_samples: int, way: str, k: int, rounds: int, patience: float
) -> dict[str, Any]:
    """One row: seconds per sample of both, and the largest relative difference of values of one sample."""
    each, options = samples_of(A, n_samples), WAYS[way]
    together, own, theirs = CrsMatrix.from_scipy(each), [], []
    result, expected = eigsh(together, k, **options), None
    begun = time.perf_counter()
    for turn in range(rounds):
        start = time.process_time()
        result = eigsh(together, k, **options)
        own.append((time.process_time() - start) / n_samples)
        start, place = time.process_time(), turn % n_samples
        try:
            expected = np.sort(spla.eigsh(each[place], k, maxiter=3000, **options)[0])
        except spla.ArpackNoConvergence:
            expected = None
        theirs.append(time.process_time() - start)
        if time.perf_counter() - begun > patience:
            break
    found = result.values.samples[:, place]
    difference = float(np.abs(found - expected).max() / np.abs(expected).max()) if expected is not None else None
    return {
        "matrix": name, "rows": A.shape[0], "n_samples": n_samples, "way": way, "scipy ms": 1e3 * min(theirs),
        "ms": 1e3 * min(own), "ratio": min(theirs) / min(own), "converged": int(result.converged.sum()),
        "bases": int(result.iterations.max()), "scipy converged": expected is not None, "difference": difference,
    }  # fmt: skip


def main() -> None:
    """The table of all matrices and ways, one thread."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks eigen", description=__doc__)
    parser.add_argument("--matrices", type=Path, help="a folder of Matrix Market files")
    parser.add_argument("--pairs", type=int, default=6, help="eigenpairs of each matrix (default 6)")
    parser.add_argument("--rounds", type=int, default=40, help="rounds at most (default 40)")
    parser.add_argument("--patience", type=float, default=2.0, help="seconds for each row, about (default 2)")
    parser.add_argument("--name", default="eigen-1threads", help="name of the record (default eigen-1threads)")
    options = parser.parse_args()
    one_thread()
    rows = [
        compared(name, A, n_samples, way, options.pairs, options.rounds, options.patience)
        for name, A in matrices(options.matrices)
        for n_samples in (1, 32)
        for way in WAYS
    ]
    show(f"{options.pairs} eigenpairs, ms per sample, against SciPy", rows)
    save(options.name, rows, pairs=options.pairs)


class Eigenpairs(EnsembleBenchmark):
    """Pairs of the upper end of grids, and those nearest to zero."""

    params = (["numba"], [1, 8, 32])

    def setup(self, backend: str, n_samples: int) -> None:
        """Make the matrices and compile."""
        super().setup(backend, n_samples)
        self.A = CrsMatrix.from_scipy(samples_of(sp.csr_array(poisson((20, 20)).to_scipy()), n_samples))
        self.time_upper_end(backend, n_samples)
        self.time_nearest_to_zero(backend, n_samples)

    def time_upper_end(self, backend: str, n_samples: int) -> None:
        """By products and inverses."""
        eigsh(self.A, 4, which="LA")

    def time_nearest_to_zero(self, backend: str, n_samples: int) -> None:
        """By inverses alone."""
        eigsh(self.A, 4, sigma=0.0)
