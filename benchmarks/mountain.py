"""The mountain mesh and the forms of an atmospheric model's time step: what the finite-element benchmarks share."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from benchmarks.common import SEED
from ensemble.apps import fem
from ensemble.scalar import Ensemble

__all__ = ["NINE_OF_TEN", "SCALARS", "STEP_FORMS", "mountain_mesh", "step_fields"]

VARIABLE = "ENSEMBLE_MOUNTAIN_MESH"
"""Names a file with `X` (n_nodes, 3) and `T` (n_elements, 4); without it a box of 103,635 nodes is generated."""


def hill(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Height of the ground, in m: 400 m in the middle, half-width 1 km."""
    r2 = ((x - 3e4) ** 2 + (y - 3e4) ** 2) / 1e6
    return np.asarray(400.0 / (1.0 + r2) ** 1.5)


def mountain_mesh(cells: tuple[int, int, int] = (46, 44, 48)) -> fem.TetMesh:
    """The mesh of 60 x 60 x 16 km over a hill: from the file named by the environment, or a generated box."""
    path = os.environ.get(VARIABLE)
    if path:
        with np.load(path) as arrays:
            return fem.TetMesh(arrays["X"], arrays["T"])
    return fem.TetMesh.box(cells, lengths=(6e4, 6e4, 1.6e4), jitter=0.1, terrain=hill, seed=SEED)


# --- the matrices of one time step (theta = 1/2)
SCALARS = ("temperature", "water vapour", "cloud water", "rain water")


def advection_diffusion(name: str) -> Any:
    """The form of the transported scalar `name`: mass, advection with its divergence, diffusion by a tensor of its own.

    Crank-Nicolson. A form of its own for each scalar: `fem.assemble` computes equal forms of equal fields once.
    """
    diffusivity = f"diffusivity of {name}".replace(" ", "_")

    @fem.bilinear_form
    def form(u: Any, v: Any, w: Any) -> Any:
        carried = fem.dot(w.wind, fem.grad(u)) * v + fem.div(w.wind) * u * v
        diffused = fem.dot(fem.grad(v), fem.mul(getattr(w, diffusivity), fem.grad(u)))
        return u * v + w.half_step * (carried + diffused)

    return form


@fem.bilinear_form(trial="vector", test="vector")
def momentum(u: Any, v: Any, w: Any) -> Any:
    """Velocity: mass, advection and viscous stress, 3 x 3 blocks."""
    carried = fem.Vector(fem.dot(w.wind, fem.grad(u[i])) for i in range(3))
    stress = 2.0 * w.viscosity * fem.ddot(fem.sym_grad(u), fem.sym_grad(v))
    return fem.dot(u, v) + w.half_step * (fem.dot(carried, v) + stress)


@fem.bilinear_form(trial="vector")
def divergence(u: Any, v: Any, w: Any) -> Any:
    """The divergence of the velocity, tested by the pressure: 1 x 3 blocks."""
    return v * fem.div(u)


@fem.bilinear_form
def pressure_diffusion(u: Any, v: Any, w: Any) -> Any:
    """The factor of the pressure stabilisation: half of grad(v) . lengths grad(u)."""
    return 0.5 * fem.dot(fem.grad(v), fem.mul(w.lengths, fem.grad(u)))


@fem.bilinear_form
def projection(u: Any, v: Any, w: Any) -> Any:
    """The Laplacian of the pressure correction, scaled by the inverse density."""
    return w.volume_per_mass * fem.dot(fem.grad(u), fem.grad(v))


STEP_FORMS = {
    **{name: advection_diffusion(name) for name in SCALARS},
    "momentum": momentum,
    "divergence": divergence,
    "pressure diffusion": pressure_diffusion,
    "projection": projection,
}
"""The eight matrices of the model's time step, of eight sets of coefficients."""

NINE_OF_TEN = tuple(name for name in STEP_FORMS if name != "pressure diffusion")
"""The matrices of nine in ten steps: the published run makes the pressure diffusion once in ten."""


def step_fields(mesh: fem.TetMesh, n_samples: int = 1) -> dict[str, Any]:
    """Wind (m/s) at nodes, diffusivities (m2/s), viscosity and inverse density per element, for `n_samples` samples.

    `diffusivity` and the diffusivity of each of the `SCALARS` are drawn each on its own.
    """
    rng = np.random.default_rng(SEED)
    n, e = mesh.n_nodes, mesh.n_elements
    height = mesh.points[:, 2] / mesh.points[:, 2].max()
    speed = 10.0 + 2.0 * rng.standard_normal(n_samples)
    wind = np.zeros((n, 3, n_samples))
    wind[:, 0] = speed * (0.5 + height[:, None])
    wind[:, 2] = 0.1 * speed * np.sin(mesh.points[:, :1] * 1e-4)
    spread = np.exp(0.2 * rng.standard_normal((e, n_samples)))
    base = np.diag([20.0, 20.0, 5.0])
    diffusivity = np.einsum("ij,es->eijs", base, spread)
    own = {}
    for name in SCALARS:
        factor = np.exp(0.2 * rng.standard_normal((e, n_samples)))
        own[f"diffusivity_of_{name.replace(' ', '_')}"] = Ensemble(np.einsum("ij,es->eijs", base, factor))
    return {
        **own,
        "half_step": 2.5,
        "wind": Ensemble(wind),
        "diffusivity": Ensemble(diffusivity),
        "viscosity": Ensemble(15.0 * spread),
        "volume_per_mass": Ensemble(spread[:, ::-1].copy()),
        "lengths": fem.edge_lengths(mesh),
    }
