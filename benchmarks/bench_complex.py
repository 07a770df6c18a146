"""Complex matrices: products, `gmres`, `bicgstab` and `direct` against SciPy, one sample at a time.

One thread, SciPy's libraries included. Two model problems on a square, a step of Crank and Nicolson for
Schroedinger's equation (I + i L) and a damped Helmholtz equation (L - (0.3 - 0.1 i) I), and files of the SuiteSparse
Matrix Collection, `FILES`, where the folder that ``--matrices`` or the environment variable ``MATRICES`` names has
them. Samples are their entries times lognormal numbers of 5 %. Iterations are those of the first sample; "x" is
SciPy's time over ours.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from scipy.sparse import linalg

from benchmarks.common import (
    SEED,
    EnsembleBenchmark,
    add_options_of_matrices,
    interleaved,
    median,
    one_thread,
    ratio,
    save,
    show,
)
from ensemble import Ensemble
from ensemble.gallery import poisson
from ensemble.krylov import bicgstab, direct, gmres
from ensemble.linalg import CrsMatrix

FILES = ("young1c", "mhd1280b", "qc324")
"""HB/young1c (acoustic scattering), Bai/mhd1280b (magnetohydrodynamics), Bai/qc324 (quantum chemistry)."""

MODELS = ("schroedinger", "helmholtz")
TASKS = ("product", "gmres", "bicgstab", "direct")
RESTART, MOST = 30, 600
"""Length of a cycle of GMRES; iterations at most."""


def model(name: str, cells: int = 64) -> sp.csr_array:
    """The matrix of a model problem on `cells` by `cells` points."""
    L = sp.csr_array(poisson((cells, cells)).to_scipy())
    eye = sp.eye_array(cells * cells)
    return sp.csr_array(eye + 1j * L if name == "schroedinger" else L - (0.3 - 0.1j) * eye)


def samples_of(A: sp.csr_array, n_samples: int) -> CrsMatrix:
    """A matrix of samples around A."""
    factors = np.exp(0.05 * np.random.default_rng(SEED).standard_normal((A.nnz, n_samples)))
    return CrsMatrix(CrsMatrix.from_scipy(A).graph, A.data[:, None] * factors)


class ComplexProducts(EnsembleBenchmark):
    """Products and solves of a damped Helmholtz equation."""

    params = (["numba"], [1, 32])

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.A, self.b = samples_of(model("helmholtz", 32), n_samples), np.ones(1024, complex)
        self.x = Ensemble(np.ones((1024, n_samples), complex))
        self.A @ self.x
        gmres(self.A, self.b, max_iterations=30)

    def time_product(self, backend: str, n_samples: int) -> None:
        self.A @ self.x

    def time_gmres(self, backend: str, n_samples: int) -> None:
        gmres(self.A, self.b, max_iterations=30)


def scipys_iterations(method: str, A: sp.csr_array, b: np.ndarray) -> int:
    """Iterations that SciPy takes."""
    seen: list[int] = []
    scipys(method, callback=lambda _: seen.append(0))(A, b)
    return len(seen)


def scipys(method: str, **options: Any) -> Callable[[sp.csr_array, np.ndarray], Any]:
    """SciPy's solver with the options of ours."""
    if method == "gmres":
        options |= {"restart": RESTART, "maxiter": MOST // RESTART, "callback_type": "pr_norm"}
        return partial(linalg.gmres, rtol=1e-8, **options)
    return partial(linalg.bicgstab, rtol=1e-8, maxiter=MOST, **options)


def row(A: sp.csr_array, name: str, what: str, n_samples: int, rounds: int) -> dict[str, Any]:
    """Times of one matrix and one task, microseconds per sample."""
    rng, E = np.random.default_rng(SEED + 1), samples_of(A, n_samples)
    b = rng.standard_normal(A.shape[0]) + 1j * rng.standard_normal(A.shape[0])
    single = [E.to_scipy(s) for s in range(n_samples)]
    found: dict[str, Any] = {"case": name, "task": what, "n_samples": n_samples}
    ours: Callable[[], Any]
    if what == "product":
        x = Ensemble(np.repeat(b[:, None], n_samples, axis=1))
        ours, theirs = lambda: E @ x, lambda: [one @ b for one in single]
    elif what == "direct":
        columns = [sp.csc_array(one) for one in single]
        ours, theirs = lambda: direct(E, b), lambda: [linalg.splu(one).solve(b) for one in columns]
        found["converged"] = int(direct(E, b).converged.sum())
    else:
        method = {"gmres": partial(gmres, restart=RESTART), "bicgstab": bicgstab}[what]
        ours = lambda: method(E, b, rtol=1e-8, max_iterations=MOST)
        theirs = lambda: [scipys(what)(one, b) for one in single]
        result = ours()
        found |= {"converged": int(result.converged.sum()), "iterations": int(result.iterations[0])}
        found["SciPy's"] = scipys_iterations(what, single[0], b)
    seconds = interleaved({"ours": ours, "SciPy": theirs}, rounds)
    micro = {key: 1e6 * median(values) / n_samples for key, values in seconds.items()}
    return {**found, "us": micro["ours"], "SciPy us": micro["SciPy"], "x": ratio(seconds["SciPy"], seconds["ours"])}


def matrix_named(name: str, folder: Path) -> sp.csr_array | None:
    """The matrix of a case; None where there is no such file."""
    if name in MODELS:
        return model(name)
    path = folder / f"{name}.mtx"
    if not path.exists():
        print(f"{path}: no such file")
        return None
    A = sp.csr_array(scipy.io.mmread(path)).astype(np.complex128)
    A.sort_indices()
    return A


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks complex", description=__doc__.partition("\n")[0])
    add_options_of_matrices(parser, MODELS + FILES)
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS), help="tasks")
    arguments = parser.parse_args()
    one_thread()
    warnings.simplefilter("ignore")
    rows = []
    for name in arguments.cases:
        A = matrix_named(name, arguments.matrices)
        for what in arguments.tasks if A is not None else ():
            for n_samples in arguments.samples:
                rows.append(row(A, name, what, n_samples, arguments.rounds))
                if arguments.name:
                    save(arguments.name, rows)
    show("Complex matrices, microseconds per sample, one thread", rows)
