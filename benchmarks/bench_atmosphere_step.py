"""A time step of a moist atmosphere over the mountain, every part timed: tables 9 and 10 of Li et al. as far as given.

``python -m benchmarks atmosphere-step [--samples 1 8] [--steps 3] [--picard 1]``. The paper names the parts of its step
and not all of its equations; those here are the usual ones. Picard iterations (one as published: its matrices are made
once in a step, by tables 4, 6 and 10), in each of which temperature, water vapour, cloud water and rain water are
advected and diffused (theta = 1/2), vapour above saturation condenses and heats, cloud water turns to rain (Kessler),
the momentum equation with advection, viscous stress and buoyancy is solved for a velocity, and a pressure correction
lowers its divergence. Velocity is given on the boundary, scalars at the inflow. The mesh is that of `mountain_mesh`;
BiCGSTAB with Jacobi solves transport and momentum, CG with smoothed aggregation the pressure. Processor time where one
thread runs. Record: `atmosphere-step-1threads`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from benchmarks.common import median, save, show
from benchmarks.mountain import SCALARS, STEP_FORMS, mountain_mesh, step_fields
from ensemble.apps import fem
from ensemble.krylov import bicgstab, cg
from ensemble.linalg import Diagonal, apply_dirichlet
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble

STEP = 5.0
GRAVITY, THETA, FREQUENCY, LATENT = 9.81, 293.15, 0.01, 2500.0
"""m/s2; K at the ground; 1/s of the stratification; K by which all condensed vapour of a kilogram would heat it."""


@fem.bilinear_form
def mass(u: Any, v: Any, w: Any) -> Any:
    """Of the scalars, and of each component of velocity."""
    return u * v


class Clock:
    """Seconds of the parts of a step."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = time.process_time if numba.get_num_threads() == 1 else time.perf_counter
        self.parts, self.iterations, self.last = dict[str, float](), dict[str, float](), self.now()

    def part(self, name: str) -> None:
        """End a part."""
        now = self.now()
        self.parts[name] = self.parts.get(name, 0.0) + now - self.last
        self.last = now

    def solved(self, name: str, solution: Any) -> Any:
        """The solution of a part, its iterations added."""
        self.part(name)
        count = float(np.mean(solution.iterations))
        self.iterations[name] = self.iterations.get(name, 0.0) + count
        return solution.raise_if_failed().x.samples


class Atmosphere:
    """Fields at nodes, samples last: `scalars` by name, `velocity` (n_nodes, 3, S)."""

    def __init__(self, mesh: fem.TetMesh, n_samples: int, picard: int = 1) -> None:
        self.mesh, self.fields, self.picard = mesh, step_fields(mesh, n_samples), picard
        self.velocity = self.fields["wind"].samples.copy()
        height = np.repeat(mesh.points[:, 2:], n_samples, axis=1)
        theta = THETA * np.exp(FREQUENCY**2 / GRAVITY * height)
        self.background = theta
        vapour = 0.9 * self.saturation(theta)
        cloud = 1e-3 * np.exp(-(((height - 3e3) / 1e3) ** 2))
        self.scalars = {"temperature": theta.copy(), "water vapour": vapour, "cloud water": cloud,
                        "rain water": 0.1 * cloud}  # fmt: skip
        x, _, z = mesh.points.T
        self.inflow, self.top = np.nonzero(x == x.min())[0], np.nonzero(z == z.max())[0]
        self.outer = np.asarray(mesh.boundary_nodes())
        self.M = mass.assemble(mesh)
        self.lumped = self.M.to_scipy(0).sum(axis=1)[:, None]
        self.matrices: dict[str, Any] = {}

    def saturation(self, theta: np.ndarray) -> np.ndarray:
        """Vapour that air can hold, kg/kg, by temperature alone."""
        return 0.015 * np.exp(0.06 * (theta - THETA) - self.mesh.points[:, 2:] / 2500.0)

    def assembled(self, name: str, clock: Clock, velocity: np.ndarray) -> Any:
        """The matrix of a part with the velocity of this iteration."""
        fields = {**self.fields, "wind": Ensemble(velocity), "half_step": 0.5 * STEP}
        made = STEP_FORMS[name].assemble(self.mesh, check=False, **fields)
        clock.part(f"{name} matrix")
        return made

    def condensed(self, scalars: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Vapour above saturation to cloud water, with its heat; cloud water to rain, with a time of 1000 s."""
        excess = np.maximum(scalars["water vapour"] - self.saturation(scalars["temperature"]), 0.0) / 2.0
        rain = STEP / 1000.0 * np.maximum(scalars["cloud water"] - 5e-4, 0.0)
        return {
            "temperature": scalars["temperature"] + LATENT * excess,
            "water vapour": scalars["water vapour"] - excess,
            "cloud water": scalars["cloud water"] + excess - rain,
            "rain water": scalars["rain water"] + rain,
        }

    def step(self) -> Clock:
        """One time step."""
        clock, scalars, velocity = Clock(), self.scalars, self.velocity
        new, after = scalars, velocity
        for _ in range(self.picard):
            carrying = 0.5 * (velocity + after)
            new = {name: self.transported(name, scalars[name], carrying, clock) for name in SCALARS}
            new = self.condensed(new)
            clock.part("moisture")
            after = self.projected(self.pushed(velocity, carrying, new, clock), clock)
        self.scalars, self.velocity = new, after
        return clock

    def transported(self, name: str, c: np.ndarray, carrying: np.ndarray, clock: Clock) -> np.ndarray:
        """A scalar after the step: (M + K) c1 = (M - K) c0."""
        A = self.assembled(name, clock, carrying)
        right = 2.0 * (self.M @ Ensemble(c)) - A @ Ensemble(c)
        A, right = apply_dirichlet(A, right, self.inflow, Ensemble(c[self.inflow]), symmetric=False)
        clock.part("right-hand sides and boundaries")
        solved = bicgstab(A, right, x0=Ensemble(c), M=Diagonal(1.0 / A.diagonal()), rtol=1e-8)
        return np.asarray(clock.solved("solution of the scalars", solved))

    def pushed(self, u: np.ndarray, carrying: np.ndarray, scalars: dict[str, np.ndarray], clock: Clock) -> np.ndarray:
        """The velocity after the momentum equation with buoyancy."""
        A = self.assembled("momentum", clock, carrying).to_crs()
        n, samples = u.shape[0], u.shape[2]
        flat = Ensemble(u.reshape(3 * n, samples))
        force = GRAVITY * ((scalars["temperature"] - self.background) / self.background - scalars["cloud water"]
                           - scalars["rain water"])  # fmt: skip
        weighed = np.zeros_like(u)
        for k in range(3):
            weighed[:, k] = 2.0 * (self.M @ Ensemble(np.ascontiguousarray(u[:, k]))).samples
        weighed[:, 2] += STEP * self.lumped * force
        right = Ensemble(weighed.reshape(3 * n, samples)) - A @ flat
        rows = (3 * self.outer[:, None] + np.arange(3)).ravel()
        A, right = apply_dirichlet(A, right, rows, Ensemble(flat.samples[rows]), symmetric=False)
        clock.part("right-hand sides and boundaries")
        solved = bicgstab(A, right, x0=flat, M=Diagonal(1.0 / A.diagonal()), rtol=1e-8)
        return np.asarray(clock.solved("solution of the momentum", solved)).reshape(u.shape)

    def projected(self, u: np.ndarray, clock: Clock) -> np.ndarray:
        """The velocity less the gradient of a pressure whose Laplacian is its divergence."""
        D = self.assembled("divergence", clock, u)
        L = self.assembled("projection", clock, u)
        right = (-1.0 / STEP) * (D @ Ensemble(u.reshape(-1, u.shape[2])))
        L, right = apply_dirichlet(L, right, self.top, 0.0)
        clock.part("right-hand sides and boundaries")
        hierarchy = smoothed_aggregation(L)
        clock.part("set-up of the pressure")
        p = clock.solved("solution of the pressure", cg(L, right, M=hierarchy, rtol=1e-8))
        change = (D.T @ Ensemble(p)).samples.reshape(u.shape)
        after = u + STEP * change / self.lumped[:, None]
        after[self.outer] = u[self.outer]
        clock.part("correction of the velocity")
        return np.asarray(after)

    def divergence(self, u: np.ndarray) -> float:
        """Root mean square of the divergence at inner nodes."""
        D = STEP_FORMS["divergence"].assemble(self.mesh, check=False)
        inner = np.setdiff1d(np.arange(self.mesh.n_nodes), self.outer)
        return float(np.sqrt(np.mean(((D @ Ensemble(u.reshape(-1, u.shape[2]))).samples / self.lumped)[inner] ** 2)))


def row_of(n_samples: int, clocks: list[Clock]) -> dict[str, Any]:
    """Medians over steps, in milliseconds, and iterations."""
    row: dict[str, Any] = {"samples": n_samples}
    row |= {f"{name}, ms": 1e3 * median([clock.parts[name] for clock in clocks]) for name in clocks[0].parts}
    row["step, ms"] = median([1e3 * sum(clock.parts.values()) for clock in clocks])
    return row | {f"iterations, {name}": median([c.iterations[name] for c in clocks]) for name in clocks[0].iterations}


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks atmosphere-step", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--samples", type=int, nargs="+", default=[1])
    parser.add_argument("--steps", type=int, default=3, help="after one that compiles")
    parser.add_argument("--picard", type=int, default=1, help="Picard iterations of a step (default 1)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cells", type=int, nargs=3, default=(46, 44, 48), help="of the generated box")
    options = parser.parse_args()
    numba.set_num_threads(options.threads)
    rows, mesh = [], mountain_mesh(tuple(options.cells))
    for n_samples in options.samples:
        model = Atmosphere(mesh, n_samples, options.picard)
        clocks = [model.step() for _ in range(options.steps + 1)][1:]
        rows.append(row_of(n_samples, clocks))
    for row in rows:
        show(f"A time step, {mesh.n_elements} tetrahedra", [{"part": k, "value": v} for k, v in row.items()])
    if tuple(options.cells) == (46, 44, 48):
        about = {"elements": mesh.n_elements, "nodes": mesh.n_nodes, "picard": options.picard, "step": STEP}
        save(f"atmosphere-step-{options.threads}threads", rows, **about)


if __name__ == "__main__":
    main()
