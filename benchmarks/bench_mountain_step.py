"""A time step of transport over the mountain: assembly, boundary, solve and copies, for one sample and for many.

`python -m benchmarks mountain-step` times each part of a step of the theta method with SUPG and BiCGSTAB; `--backend
cupy` keeps everything on a device but the wind, which the host gives for every step. There the step is timed with three
kinds of copies: of the own wind before the assembly ("in turn"), of the wind of the next step beside the kernels
("beside"), and these from pinned memory ("beside, pinned"); all give the same bits. The published step is of a model
with six such matrices, solved on the CPU. Record: `mountain-step-BACKEND`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numba
import numpy as np

from benchmarks.common import cuda_device, median, save, show
from benchmarks.mountain import mountain_mesh, step_fields
from benchmarks.papers.published_atmosphere import STEP_SECONDS
from ensemble import Ensemble
from ensemble._backend import array_namespace, asarray_like, prototype, to_numpy
from ensemble.apps import fem
from ensemble.krylov import bicgstab
from ensemble.linalg import Diagonal, apply_dirichlet

STEP, THETA = 20.0, 0.5

PUBLISHED = {
    "assembly of six matrices": tuple(sum(values[k] for name, values in STEP_SECONDS.items() if name.endswith("matrix"))
                                      for k in range(2)),
    "solver (PETSc)": STEP_SECONDS["PETSc"][:2],
    "other": STEP_SECONDS["other modules"][:2],
    "step": STEP_SECONDS["step"][:2],
}  # fmt: skip
"""Seconds on one CPU core, and with an A100, Fluidity-Atmosphere (Li et al.), table 10; the first sums six rows."""


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


KINDS = {"numpy": ("in turn",), "cupy": ("in turn", "beside", "beside, pinned")}
"""Kinds of copies by backend."""


def wait_for_kernels(backend: str) -> None:
    """Until the current stream has done what was queued; copies on other streams go on."""
    if backend == "cupy":
        import cupy

        cupy.cuda.get_current_stream().synchronize()


class Clock:
    """Seconds of the parts of a step."""

    def __init__(self, backend: str) -> None:
        self.backend, self.parts = backend, dict[str, float]()
        self.last = time.perf_counter()

    def part(self, name: str) -> None:
        """End a part."""
        wait_for_kernels(self.backend)
        now = time.perf_counter()
        self.parts[name] = self.parts.get(name, 0.0) + now - self.last
        self.last = now


class Winds:
    """The wind of each step on the host, and its copies where the steps run.

    The winds of all steps are made beforehand where copies run beside kernels: no copy goes on while no clock runs.
    """

    def __init__(self, per_element: np.ndarray, backend: str, kind: str, count: int) -> None:
        self.per_element, self.like = per_element, prototype(backend)
        self.copies = fem.DeviceCopies(backend=backend) if kind != "in turn" else None
        self.made: list[np.ndarray] = []
        if self.copies is not None:
            pinned = kind.endswith("pinned")
            self.made = [(self.copies.empty if pinned else np.empty)(per_element.shape) for _ in range(count)]
            for step, wind in enumerate(self.made):
                np.multiply(per_element, gust(step), out=wind)
            self.coming = self.copies.start(Ensemble(self.made[0]))

    def of(self, step: int) -> Ensemble:
        """The wind of `step` on the host, where no copy was begun before."""
        return Ensemble(self.made[step] if self.made else self.per_element * gust(step))

    def there(self, step: int, own: Ensemble) -> Ensemble:
        """The wind of `step` where the steps run; that of the next step is on its way then."""
        if self.copies is None:
            return Ensemble(asarray_like(own.samples, self.like))
        wind: Ensemble = self.coming.wait()
        self.coming = self.copies.start(Ensemble(self.made[step + 1]))
        return wind


def gust(step: int) -> float:
    """The factor of the wind."""
    return float(1.0 + 0.1 * np.sin(0.7 * step))


def steps(
    mesh: fem.TetMesh, n_samples: int, backend: str, count: int, kind: str = "in turn"
) -> tuple[list[dict[str, float]], np.ndarray]:
    """Seconds of the parts of each of `count` steps, and the mean iterations, the first step left out; the result."""
    like = prototype(backend)
    fields = step_fields(mesh, n_samples)
    per_element = fields["wind"].samples[mesh.tets].mean(axis=1)  # (n_elements, 3, S): no quadrature of products
    diffusivity = Ensemble(asarray_like(fields["diffusivity"].samples, like))
    inflow = mesh.nodes_where(lambda x, y, z: x == x.min())
    height = np.exp(-mesh.points[:, 2] / 2e3)
    c, found = Ensemble(asarray_like(np.repeat(height[:, None], n_samples, axis=1), like)), []
    winds, matrices = Winds(per_element, backend, kind, count + 2), None  # the last step begins a copy, too
    for k in range(count + 1):
        own = winds.of(k)
        clock = Clock(backend)
        wind = winds.there(k, own)
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
    return found[1:], to_numpy(c.samples)


def row_of(n_samples: int, kind: str, found: list[dict[str, float]]) -> dict[str, Any]:
    """Medians over steps."""
    row: dict[str, Any] = {"samples": n_samples, "copies": kind}
    for name in found[0]:
        middle = median([each[name] for each in found])
        row |= {name: middle} if name == "iterations" else {f"{name}, ms": 1e3 * middle}
    total = sum(value for name, value in row.items() if name.endswith(", ms"))
    return {**row, "step, ms": total, "solve, share": row["solve, ms"] / total}


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
        results = []
        for kind in KINDS[options.backend]:
            found, result = steps(mesh, n_samples, options.backend, options.steps, kind)
            rows.append(row_of(n_samples, kind, found))
            results.append(result)
        assert all(np.array_equal(result, results[0]) for result in results)
    about = cuda_device() if options.backend == "cupy" else {}
    show(f"{mesh.n_elements} tetrahedra, {mesh.n_nodes} nodes; {options.backend}", rows)
    save(f"mountain-step-{options.backend}", rows, published=PUBLISHED, elements=mesh.n_elements, **about)


if __name__ == "__main__":
    main()
