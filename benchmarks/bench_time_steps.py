"""Steps of implicit diffusion in two dimensions with a matrix that stays, per sample and step, one thread.

Each of 32 samples has a conductivity of its own. What is kept between steps: SciPy's `splu` of each sample, a
`Factorization` of all, or a multigrid hierarchy for `cg` to 1e-8, begun at the last state; "plain cg" keeps nothing.
"bound us" is the time in which the values of the factorisation are read twice.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from benchmarks.bench_direct import laplacian, timed
from benchmarks.common import SEED, EnsembleBenchmark, median, one_thread, ratio, reader, save, show
from ensemble import Ensemble
from ensemble.krylov import cg
from ensemble.linalg import CrsMatrix, Factorization
from ensemble.multigrid import smoothed_aggregation

STEP = 1.0
"""The time step, over the square of the grid's spacing."""

KEPT = ("splu", "Factorization", "cg", "plain cg")


def stepped(cells: int, n_samples: int) -> CrsMatrix:
    """1 + dt K of each sample on a square of `cells` by `cells`."""
    K = laplacian(cells, cells)
    identity = sp.csr_array(sp.eye_array(K.shape[0]) + 0.0 * K)
    conductivity = np.exp(0.5 * np.random.default_rng(SEED).standard_normal(n_samples))
    return CrsMatrix.from_scipy([sp.csr_array(identity + STEP * c * K) for c in conductivity])


class TimeSteps(EnsembleBenchmark):
    """A step on 30 by 30 cells."""

    params = (["numba"], [1, 8])

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.u = Ensemble(np.random.default_rng(SEED).standard_normal((900, n_samples)))
        self.F = Factorization(stepped(30, n_samples), kind="ldlt")

    def time_step(self, backend: str, n_samples: int) -> None:
        self.F @ self.u


def row(cells: int, n_samples: int, rounds: int) -> dict[str, Any]:
    """Microseconds of a step of one sample."""
    A = stepped(cells, n_samples)
    u = Ensemble(np.random.default_rng(SEED).standard_normal((cells**2, n_samples)))
    F, hierarchy = Factorization(A, kind="ldlt"), smoothed_aggregation(A)
    kept = [splu(A.to_scipy(s).tocsc()) for s in range(n_samples)]
    columns = [np.ascontiguousarray(u.samples[:, s]) for s in range(n_samples)]
    read, n_bytes = reader(0.25)
    seconds = timed(
        {
            "read": read,
            "splu": lambda: [lu.solve(column) for lu, column in zip(kept, columns, strict=True)],
            "Factorization": lambda: F @ u,
            "cg": lambda: cg(A, u, x0=u, M=hierarchy, rtol=1e-8),
            "plain cg": lambda: cg(A, u, x0=u, rtol=1e-8),
        },
        rounds,
    )
    micro = {f"{name} us": 1e6 * median(seconds[name]) / n_samples for name in KEPT}
    return {
        "cells": cells,
        "n_samples": n_samples,
        **micro,
        "bound us": 1e6 * 16 * F.n_values * median(seconds["read"]) / n_bytes,
        "Factorization x splu": ratio(seconds["splu"], seconds["Factorization"]),
        "cg x splu": ratio(seconds["splu"], seconds["cg"]),
        "plain cg x splu": ratio(seconds["splu"], seconds["plain cg"]),
    }


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks time-steps", description=__doc__.partition("\n")[0])
    parser.add_argument("--squares", nargs="*", type=int, default=[30, 60, 120], help="cells along an edge")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which each is timed once (default 5)")
    parser.add_argument("--name", help="name of the record (default: none is kept)")
    arguments = parser.parse_args()
    one_thread()
    rows = [row(cells, n, arguments.rounds) for cells in arguments.squares for n in (1, 32)]
    show("Time steps with a matrix that stays, microseconds per sample, one thread", rows)
    if arguments.name:
        save(arguments.name, rows)
