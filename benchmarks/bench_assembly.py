"""Assembly of the random-diffusion problem, matrix and residual for all samples, against scikit-fem one by one.

Bytes it must write (float64): nnz * 8 S for the matrix, and twice 8 elements * 8 S for the coefficient it reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import SEED, EnsembleBenchmark, interleaved, median, ratio, save, show
from ensemble.apps.fem import RandomDiffusion
from ensemble.scalar import Ensemble


def parameters(n_samples: int, n_terms: int = 5) -> Ensemble:
    """Uniform samples of y on (-1, 1)."""
    return Ensemble(np.random.default_rng(SEED).uniform(-1.0, 1.0, (n_terms, n_samples)))


class Assembly(EnsembleBenchmark):
    """Matrix and residual on 16^3 cells."""

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.problem, self.y = RandomDiffusion(16, backend=self.library), parameters(n_samples)
        self.problem.assemble(self.y)

    def time_assemble(self, backend: str, n_samples: int) -> None:
        self.problem.assemble(self.y)
        self.wait()


def scikit_fem_assembly(problem: RandomDiffusion, y: np.ndarray) -> Any:
    """The same matrix and residual by scikit-fem: its basis and the coefficient are made beforehand."""
    import skfem
    from skfem.helpers import dot, grad

    @skfem.BilinearForm
    def stiffness(u, v, w):
        return w.kappa * dot(grad(u), grad(v))

    @skfem.LinearForm
    def residual(v, w):
        return w.kappa * dot(grad(w.state), grad(v))

    x = np.unique(problem.mesh.points[:, 0])
    mesh = skfem.MeshHex.init_tensor(x, x, x)
    basis = skfem.Basis(mesh, skfem.ElementHex1(), intorder=2)
    points = basis.global_coordinates().value.reshape(3, -1).T
    modes = problem.field.modes_at(points) if hasattr(problem.field, "modes_at") else None
    shape = basis.global_coordinates().value.shape[1:]
    kappa = np.ones(shape)
    if modes is not None:
        modes = modes if modes.shape[0] == y.size else modes.T
        kappa = kappa + 0.1 * (np.sqrt(problem.field.eigenvalues) * y @ modes).reshape(shape)
    state = basis.interpolate(1.0 + mesh.p[2])

    def assemble():
        return stiffness.assemble(basis, kappa=kappa), residual.assemble(basis, kappa=kappa, state=state)

    return assemble


def table(cells: int = 64, sizes: tuple[int, ...] = (1, 8, 32), rounds: int = 5) -> list[dict[str, Any]]:
    """Per ensemble size: seconds, seconds a sample, and speed against scikit-fem's per-sample loop."""
    problem = RandomDiffusion(cells)
    peer = scikit_fem_assembly(problem, parameters(1).sample(0))
    samples = {s: parameters(s) for s in sizes}
    matrices = {s: problem.assemble(samples[s])[0] for s in sizes}
    ours = {f"ours {s}": (lambda s=s: problem.assemble(samples[s], out=matrices[s])) for s in sizes}
    seconds = interleaved({**ours, "scikit-fem": peer}, rounds)
    rows = []
    for s in sizes:
        mine = seconds[f"ours {s}"]
        rows.append(
            {
                "n_samples": s,
                "seconds": median(mine),
                "ms a sample": 1e3 * median(mine) / s,
                "written GB/s": 8e-9 * problem.graph.nnz * s / median(mine),
                "scikit-fem s a sample": median(seconds["scikit-fem"]),
                "x scikit-fem": ratio(seconds["scikit-fem"], mine, s),
                "x ours, one sample": ratio(seconds[f"ours {sizes[0]}"], mine, s / sizes[0]),
            }
        )
    show(f"Assembly of matrix and residual, {cells}^3 cells, float64: speed-ups are per sample", rows)
    return rows


def main(cells: int, threads: int) -> None:
    """Print and keep the table."""
    save(f"assembly-{cells}-{threads}threads", table(cells), cells=cells)
