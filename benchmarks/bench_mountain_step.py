"""A time step of transport over the mountain: assembly, boundary, solve and copies, for one sample and for many.

`python -m benchmarks mountain-step` times each part of a step of the theta method with SUPG and BiCGSTAB; `--backend
cupy` keeps everything on a device but the wind, which the host gives for every step. The published step beside it is of
a model with six such matrices, solved on the CPU. Record: `mountain-step-BACKEND`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numba
import numpy as np

from benchmarks.common import cuda_device, median, save, show
from benchmarks.mountain import mountain_mesh, step_fields
from ensemble import Ensemble
from ensemble._backend import array_namespace, asarray_like, prototype, synchronize
from ensemble.apps import fem
from ensemble.krylov import bicgstab
from ensemble.linalg import Diagonal, apply_dirichlet

STEP, THETA = 20.0, 0.5

PUBLISHED = {
    "assembly of six matrices": (31.311 / 1.2, 0.1084),
    "solver (PETSc)": (5.212, 5.6045),
    "other": (10.136, 11.4341),
    "step": (41.433, 17.147),
}
"""Seconds on one CPU core, and with an A100, Fluidity-Atmosphere (Li et al.), table 10."""


def upwind(v: Any, w: Any) -> Any:
    """The test function of SUPG."""
    speed = np.sqrt(fem.dot(w.wind, w.wind) + 1e-6)
    return v + w.h / (2.0 * speed) * fem.dot(w.wind, fem.grad(v))


@fem.bilinear_form
def mass(u: Any, v: Any, w: Any) -> Any:
    """Of the time derivative."""
    return u * upwind(v, w)


@fem.bilinear_form
def transport(u: Any, v: Any, w: Any) -> Any:
    """Advection and diffusion."""
    return fem.dot(w.wind, fem.grad(u)) * upwind(v, w) + fem.dot(fem.grad(v), fem.mul(w.diffusivity, fem.grad(u)))


class Clock:
    """Seconds of the parts of a step."""

    def __init__(self, reference_array: Any) -> None:
        self.reference_array, self.parts = reference_array, dict[str, float]()
        self.last = time.perf_counter()

    def part(self, name: str) -> None:
        """End a part."""
        synchronize(self.reference_array)
        now = time.perf_counter()
        self.parts[name] = self.parts.get(name, 0.0) + now - self.last
        self.last = now


def steps(mesh: fem.TetMesh, n_samples: int, backend: str, count: int) -> list[dict[str, float]]:
    """Seconds of the parts of each of `count` steps, and the mean iterations; the first step is left out."""
    like = prototype(backend)

    def there(values: np.ndarray) -> Ensemble:
        return Ensemble(asarray_like(values, like))

    fields = step_fields(mesh, n_samples)
    per_element = fields["wind"].samples[mesh.tets].mean(axis=1)  # (n_elements, 3, S): no quadrature of products
    diffusivity = there(fields["diffusivity"].samples)
    inflow = mesh.nodes_where(lambda x, y, z: x == x.min())
    height = np.exp(-mesh.points[:, 2] / 2e3)
    c, found = there(np.repeat(height[:, None], n_samples, axis=1)), []
    matrices = None
    for k in range(count + 1):
        gust = 1.0 + 0.1 * np.sin(0.7 * k)
        moved = per_element * gust
        clock = Clock(like)
        wind = there(moved)
        clock.part("copies to the device")
        matrices = fem.assemble(mesh, mass, transport, out=matrices, backend=backend, check=False, wind=wind,
                                diffusivity=diffusivity)  # fmt: skip
        clock.part("assembly")
        M, A = matrices
        right = M @ c - (1.0 - THETA) * STEP * (A @ c)
        left, right = apply_dirichlet(M + THETA * STEP * A, right, inflow, 1.0, symmetric=False)
        clock.part("right-hand side and boundary")
        solved = bicgstab(left, right, x0=c, M=Diagonal(1.0 / left.diagonal()), rtol=1e-8)
        c = solved.raise_if_failed().x
        clock.part("solve")
        xp = array_namespace(c.samples)
        float(xp.sum(c.samples))
        clock.part("copies to the host")
        found.append({**clock.parts, "iterations": float(np.mean(solved.iterations))})
    return found[1:]


def main() -> None:
    """Print the table and keep it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks mountain-step", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--backend", choices=("numpy", "cupy"), default="numpy")
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=numba.get_num_threads())
    options = parser.parse_args()
    numba.set_num_threads(options.threads)
    mesh, rows = mountain_mesh(), []
    for n_samples in options.samples:
        found = steps(mesh, n_samples, options.backend, options.steps)
        row: dict[str, Any] = {"samples": n_samples}
        row |= {f"{name}, ms" if name != "iterations" else name: (1e3 if name != "iterations" else 1.0)
                * median([each[name] for each in found]) for name in found[0]}  # fmt: skip
        total = sum(value for name, value in row.items() if name.endswith(", ms"))
        rows.append({**row, "step, ms": total, "solve, share": row["solve, ms"] / total})
    about = cuda_device() if options.backend == "cupy" else {}
    show(f"{mesh.n_elements} tetrahedra, {mesh.n_nodes} nodes; {options.backend}", rows)
    save(f"mountain-step-{options.backend}", rows, published=PUBLISHED, elements=mesh.n_elements, **about)


if __name__ == "__main__":
    main()
