"""Iterations of GMRES to 1e-8 for convection: reduction-based multigrid, smoothed aggregation, PyAMG and ILU."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyamg
import scipy.sparse.linalg as sla

from benchmarks.bench_assembly import parameters
from benchmarks.common import SEED, EnsembleBenchmark, save, show
from ensemble import Ensemble
from ensemble.apps.fem import RandomDiffusion
from ensemble.gallery import convection_diffusion
from ensemble.krylov import bicgstab, cg, gmres
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import approximate_ideal_restriction, smoothed_aggregation

LIMIT = {"restart": 60, "max_iterations": 60}


class Krylov(EnsembleBenchmark):
    """Forty iterations without a preconditioner on 16^3 cells; advection, so nonsymmetric matrices, but for CG."""

    params = (*EnsembleBenchmark.params, ["cg", "bicgstab", "gmres"])
    param_names = (*EnsembleBenchmark.param_names, "method")

    def setup(self, backend: str, n_samples: int, method: str) -> None:
        super().setup(backend, n_samples)
        problem = RandomDiffusion(16, advection=0.0 if method == "cg" else 20.0, backend=self.library)
        self.A, self.b = problem.assemble(parameters(n_samples))
        self.solve = {"cg": cg, "bicgstab": bicgstab, "gmres": gmres}[method]
        self.time_iterations(backend, n_samples, method)

    def time_iterations(self, backend: str, n_samples: int, method: str) -> None:
        self.solve(self.A, self.b, rtol=1e-15, max_iterations=40)
        self.wait()


def straight(n: int, peclet: Any, angle: Any) -> CrsMatrix:
    """One direction in space, or one for each sample."""
    peclet, angle = np.broadcast_arrays(np.atleast_1d(peclet), np.atleast_1d(angle))
    return convection_diffusion((n, n), [np.sin(angle), np.cos(angle)], 1.0 / peclet)


def recirculating(n: int, peclet: float) -> CrsMatrix:
    """Four closed vortices: the curl of sin(2 pi x) sin(2 pi y)."""
    y, x = 2.0 * np.pi * (np.indices((n, n)) + 1) / (n + 1)
    velocity = np.array([-np.cos(x) * np.sin(y), np.sin(x) * np.cos(y)])
    return convection_diffusion((n, n), velocity[..., None], 1.0 / peclet)


def problems(n: int) -> dict[str, CrsMatrix]:
    """Single matrices."""
    found = {}
    for peclet in (1e0, 1e2, 1e4, 1e6, 1e8):
        for angle in (0.0, 0.3, np.pi / 4, 2.5):
            found[f"Peclet {peclet:.0e}, angle {angle:.2f}"] = straight(n, peclet, angle)
        found[f"Peclet {peclet:.0e}, vortices"] = recirculating(n, peclet)
    for angle in (0.1, np.pi / 4, 1.3):
        matrix = pyamg.gallery.advection_2d((n + 1, n + 1), theta=angle)[0]
        found[f"pyamg advection_2d, angle {angle:.2f}"] = CrsMatrix.from_scipy(matrix)
    found["pyamg recirc_flow"] = CrsMatrix.from_scipy(pyamg.gallery.load_example("recirc_flow")["A"])
    return found


def mixtures(n: int, n_samples: int = 16) -> dict[str, CrsMatrix]:
    """Ensembles of different matrices."""
    rng = np.random.default_rng(SEED)
    return {
        "angles 0.2 to 1.3, Peclet 1e4": straight(n, 1e4, rng.uniform(0.2, 1.3, n_samples)),
        "all angles, Peclet 1e6": straight(n, 1e6, rng.uniform(0.0, 2.0 * np.pi, n_samples)),
        "Peclet 1 to 1e8, angle 0.5": straight(n, 10.0 ** rng.uniform(0.0, 8.0, n_samples), 0.5),
        "all angles, Peclet 1 to 1e8": straight(
            n, 10.0 ** rng.uniform(0.0, 8.0, n_samples), rng.uniform(0.0, 2.0 * np.pi, n_samples)
        ),
    }


def iterations(A: CrsMatrix, M: Any) -> str:
    """Iterations of all samples, or what stands in for them where some do not converge."""
    b = np.random.default_rng(SEED).standard_normal((A.shape[0], A.n_samples))
    result = gmres(A, Ensemble(b), M=M, **LIMIT)
    low, high = result.iterations.min(), result.iterations.max()
    if not result.converged.all():
        return f"{int(result.converged.sum())} of {A.n_samples} converge"
    return str(low) if low == high else f"{low} to {high}"


def main(cells: int, threads: int) -> None:
    """Two tables: single matrices beside PyAMG and SciPy's ILU, and ensembles beside their samples alone."""
    rows = []
    for name, A in problems(cells).items():
        a, ours = A.to_scipy(), approximate_ideal_restriction(A)
        a.eliminate_zeros()
        theirs = pyamg.air_solver(a)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ilu = sla.spilu(a.tocsc())
        row = {"matrix": name, "reduction": iterations(A, ours), "complexity": ours.operator_complexity}
        row |= {"PyAMG air_solver": iterations(A, theirs.aspreconditioner("V"))}
        row |= {"PyAMG's complexity": float(theirs.operator_complexity())}
        row |= {"SciPy spilu": iterations(A, sla.LinearOperator(A.shape, ilu.solve))}
        rows.append(row | {"smoothed aggregation": iterations(A, smoothed_aggregation(A))})
    show(f"GMRES iterations to 1e-8, {cells} x {cells} points", rows)
    save(f"convection-{cells}", rows, cells=cells)
    rows = []
    for name, A in mixtures(cells).items():
        each = [A.sample(s) for s in range(A.n_samples)]
        alone = [int(iterations(a, approximate_ideal_restriction(a))) for a in each]
        row: dict[str, Any] = {"samples": name, "each alone": f"{min(alone)} to {max(alone)}"}
        for strength in ("largest", "mean", "graph"):
            row[strength] = iterations(A, approximate_ideal_restriction(A, strength=strength))
        row["largest, sweeps=(3, 1)"] = iterations(A, approximate_ideal_restriction(A, sweeps=(3, 1)))
        rows.append(row)
    show(f"GMRES iterations to 1e-8, ensembles of 16, {cells} x {cells} points", rows)
    save(f"convection-ensembles-{cells}", rows, cells=cells)
