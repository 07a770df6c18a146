"""`direct` with default options on real matrices that need exchanges, against SuperLU and KLU one sample at a time.

One thread. Circuits, processes, a linear program and optimal control, of the SuiteSparse Matrix Collection: the files
`FILES`, in the folder that ``--matrices`` or the environment variable ``MATRICES`` names. Two families of each: values
times random factors, and rows and columns times random factors, which no two samples share. "KLU" is one
``klu_refactor`` and one solve per sample with the pivots of the first, without refinement; "splu" orders and pivots
anew. "bound us" is the time of the multiply-adds of one elimination in registers, of its values written and read, and
of the matrix read for units, factors and residuals; exchanges and refinement are not in it.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from benchmarks.bench_direct import multiply_adds_per_second, timed
from benchmarks.common import (
    SEED,
    EnsembleBenchmark,
    add_options_of_matrices,
    median,
    one_thread,
    ratio,
    reader,
    save,
    show,
)
from benchmarks.direct_peers import Klu, Splu
from ensemble.krylov import direct
from ensemble.linalg import CrsMatrix, Factorization
from ensemble.linalg.factorizations.matched_pivots import matched_pivots_of
from ensemble.linalg.factorizations.sequences import exchanged_together

FILES = ("rajat19", "west0479", "bp_1200", "hangGlider_2", "bayer10")
"""Rajat/rajat19, HB/west0479, HB/bp_1200, VDOL/hangGlider_2, Grund/bayer10."""

FAMILIES = ("values", "units")


def samples_of(A: sp.csr_array, family: str, n_samples: int) -> CrsMatrix:
    """Samples around A: entries times lognormal numbers of 5 %, or rows and columns times those of a factor e."""
    rng, graph = np.random.default_rng(SEED), CrsMatrix.from_scipy(A).graph
    if family == "values":
        return CrsMatrix(graph, A.data[:, None] * np.exp(0.05 * rng.standard_normal((A.nnz, n_samples))))
    rows, columns = np.exp(rng.standard_normal((2, A.shape[0], n_samples)))
    return CrsMatrix(graph, A.data[:, None] * rows[graph.row_of_entry] * columns[graph.indices])


def needing_exchanges(n: int = 400) -> sp.csr_array:
    """A matrix without a diagonal whose other choices of pivots fail, for quick runs."""
    rng = np.random.default_rng(SEED)
    base = sp.random_array((n, n), density=4.0 / n, rng=rng, data_sampler=rng.standard_normal)
    order = rng.permutation(n)
    return sp.csr_array(sp.csr_array(base + sp.diags_array(3.0 + rng.random(n)))[order])


class DirectExchanges(EnsembleBenchmark):
    """`direct` on matrices without a diagonal."""

    params = (["numba"], [1, 32])

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.A, self.b = samples_of(needing_exchanges(), "units", n_samples), np.ones(400)
        direct(self.A, self.b)

    def time_direct(self, backend: str, n_samples: int) -> None:
        direct(self.A, self.b)


def row(A: sp.csr_array, name: str, family: str, n_samples: int, rounds: int, speed: float) -> dict[str, Any]:
    """Times of one file and family, microseconds per sample."""
    E, b = samples_of(A, family, n_samples), np.random.default_rng(SEED + 1).standard_normal(A.shape[0])
    mean, klu, splu = Factorization(E, matching="mean"), Klu(A, False), Splu(A, False)
    single = [np.ascontiguousarray(E.values[:, s]) for s in range(n_samples)]
    read, n_bytes = reader(0.25)
    seconds = timed(
        {
            "read": read,
            "direct": lambda: direct(E, b),
            "mean": lambda: direct(E, b, factorization=mean),
            "KLU": lambda: [klu(values, b) for values in single],
            "splu": lambda: [splu(values, b) for values in single],
        },
        rounds,
    )
    found, with_mean = direct(E, b), direct(E, b, factorization=mean)
    groups: list[Any] = list(matched_pivots_of(E.graph).plans)  # of a large graph
    groups = groups or [group.F for group in exchanged_together(E, np.arange(n_samples))]
    work = max((F.plan.multiply_adds for F in groups), default=0)
    n_values = max((F.n_values for F in groups), default=0)
    micro = {key: 1e6 * median(values) / n_samples for key, values in seconds.items()}
    bound = 1e6 * (work / speed + 8 * (2 * n_values + 5 * A.nnz) * median(seconds["read"]) / n_bytes)
    return {
        "case": name,
        "family": family,
        "n_samples": n_samples,
        "groups": len(groups),
        "converged": int(found.converged.sum()),
        "multiply-adds": work,
        "direct us": micro["direct"],
        "bound us": bound,
        "KLU us": micro["KLU"],
        "splu us": micro["splu"],
        "x KLU": ratio(seconds["KLU"], seconds["direct"]),
        "x splu": ratio(seconds["splu"], seconds["direct"]),
        "mean us": micro["mean"],
        "mean: repaired": int(with_mean.repaired.sum()),
        "mean x KLU": ratio(seconds["KLU"], seconds["mean"]),
    }


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks direct-exchanges", description=__doc__.partition("\n")[0]
    )
    add_options_of_matrices(parser, FILES)
    arguments = parser.parse_args()
    one_thread()
    warnings.simplefilter("ignore")
    rows, speed = [], multiply_adds_per_second()
    for name in arguments.cases:
        A = sp.csr_array(scipy.io.mmread(arguments.matrices / f"{name}.mtx")).astype(np.float64)
        A.sort_indices()
        for family in FAMILIES:
            for n_samples in arguments.samples:
                rows.append(row(A, name, family, n_samples, arguments.rounds, speed))
                if arguments.name:
                    save(arguments.name, rows)
    show("Direct solves with exchanges, microseconds per sample, one thread", rows)
