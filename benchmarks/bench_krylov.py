"""Krylov methods without a preconditioner against SciPy, one sample at a time, one thread.

Poisson's equation on squares of 30 to 200 points a side, times a factor of each sample; `LIMIT` iterations of each
method, which none ends before. SciPy solves the samples in turn. "bound us" is the time in which the values and indices
of the matrix are read once for each product, at the read bandwidth of the same run. "x" is SciPy's time over ours.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp
from scipy.sparse import linalg

from benchmarks.common import SEED, interleaved, median, ratio, reader, save, show
from ensemble import Ensemble
from ensemble.gallery import poisson
from ensemble.krylov import bicgstab, cg, gmres, minres
from ensemble.linalg import CrsMatrix

METHODS = {"cg": cg, "minres": minres, "bicgstab": bicgstab, "gmres": gmres}
PRODUCTS = {"bicgstab": 2}
"""Products of an iteration where they are not one."""

LIMIT, RESTART = 60, 30
"""Iterations of each method; length of a cycle of GMRES."""


def samples_of(side: int, n_samples: int) -> CrsMatrix:
    """Poisson's matrix on `side` by `side` points times factors from 1 to 2."""
    P = poisson((side, side))
    return CrsMatrix(P.graph, Ensemble(P.values.reshape(-1, 1) * np.linspace(1.0, 2.0, n_samples)))


def ours(method: str, A: CrsMatrix, b: np.ndarray) -> Any:
    """The result of `LIMIT` iterations."""
    options = {"restart": RESTART} if method == "gmres" else {}
    return METHODS[method](A, b, rtol=1e-14, max_iterations=LIMIT, **options)


def scipys(method: str) -> Callable[[sp.csr_array, np.ndarray], Any]:
    """SciPy's solver with the same limits."""
    if method == "gmres":
        return partial(linalg.gmres, rtol=1e-14, restart=RESTART, maxiter=LIMIT // RESTART)
    return partial(getattr(linalg, method), rtol=1e-14, maxiter=LIMIT)


def row(method: str, side: int, n_samples: int, rounds: int) -> dict[str, Any]:
    """Microseconds of an iteration per sample."""
    A, b = samples_of(side, n_samples), np.random.default_rng(SEED).standard_normal(side * side)
    single, theirs, (read, n_bytes) = [A.to_scipy(s) for s in range(n_samples)], scipys(method), reader(0.1)
    found = ours(method, A, b)
    seconds = interleaved(
        {"ours": lambda: ours(method, A, b), "SciPy": lambda: [theirs(one, b) for one in single], "read": read}, rounds
    )
    per = 1e6 / n_samples / LIMIT
    moved = PRODUCTS.get(method, 1) * (A.values.nbytes + A.graph.indices.nbytes)
    bound = per * LIMIT * moved / n_bytes * median(seconds["read"])
    return {
        "method": method, "unknowns": side * side, "n_samples": n_samples, "iterations": int(found.iterations.max()),
        "us": per * median(seconds["ours"]), "SciPy us": per * median(seconds["SciPy"]), "bound us": bound,
        "x": ratio(seconds["SciPy"], seconds["ours"]),
    }  # fmt: skip


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks krylov", description=__doc__.partition("\n")[0])
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS), help="methods")
    parser.add_argument("--sides", nargs="*", type=int, default=[30, 100, 200], help="points along each side")
    parser.add_argument("--samples", nargs="*", type=int, default=[1, 32], help="samples (default 1 and 32)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which each is timed once (default 5)")
    parser.add_argument("--name", default="krylov-1threads", help="name of the record")
    options = parser.parse_args()
    numba.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = [
        row(method, side, n_samples, options.rounds)
        for side in options.sides
        for method in options.methods
        for n_samples in options.samples
    ]
    show("Krylov methods without preconditioner, microseconds of an iteration per sample, one thread", rows)
    save(options.name, rows)
