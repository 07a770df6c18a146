"""The GBEES step in Array API code: runs with any array library, and is the reference of the compiled engines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.gbees.engines.engine import Steps
from ensemble.apps.gbees.engines.failures import no_probability_left, step_too_small
from ensemble.apps.gbees.engines.flux import advected, rates
from ensemble.apps.gbees.engines.grid import Grid, face_velocities
from ensemble.apps.gbees.engines.grid_memory import MemoryBudget
from ensemble.apps.gbees.engines.growth import grown
from ensemble.apps.gbees.engines.keys import Packing
from ensemble.apps.gbees.engines.pruning import pruned
from ensemble.apps.gbees.engines.reweighting import weighted
from ensemble.apps.gbees.problem import Problem

__all__ = ["ArrayEngine"]


class ArrayEngine:
    """The grid of one run in Array API code; parameters and errors as for `Engine`."""

    def __init__(self, problem: Problem, indices: Array, probabilities: Array, time: float = 0.0) -> None:
        xp = array_namespace(probabilities)
        self.problem = problem
        self.count = 0
        self.report_each_step = True
        self.velocity_time = time
        self.taken = Steps.of([])
        n = problem.n
        columns = [indices[:, i] for i in range(n)]
        packing = Packing.of(columns, problem.periods)
        keys = packing.pack(columns)
        order = xp.argsort(keys)
        columns = [xp.take(s, order) for s in columns]
        dtype = xp.float32 if np.dtype(problem.dtype) == np.float32 else xp.float64
        p = xp.take(xp.astype(probabilities, dtype, copy=False), order)
        with np.errstate(all="ignore"):
            velocities = face_velocities(problem, columns, time, dtype)
        self.grid = Grid(packing, xp.take(keys, order), p, velocities, xp.zeros(p.shape[0], dtype=xp.bool))
        itemsize = 4 if dtype is xp.float32 else 8
        # keys and neighbours; velocities; about six temporaries per dimension and twelve others within a step
        self.memory_budget = MemoryBudget(8 + 16 * n + itemsize * (7 * n + 12), problem.memory_limit, p)

    @property
    def n_cells(self) -> int:
        """Cells stored, active or not."""
        return self.grid.size

    def cells(self) -> tuple[Array, Array]:
        """Multi-indices (N, n) and probabilities (N,) of every stored cell."""
        xp = array_namespace(self.grid.keys)
        return xp.stack(self.grid.columns, axis=1), self.grid.p

    def advance(
        self, time: float, span: float, callback: Callable[[float, int, int], None] | None = None, elapsed: float = 0.0
    ) -> Steps:
        """Steps from `time` + `elapsed` to `time` + `span`."""
        cell_steps = 0
        taken: list[tuple[float, int, float, float]] = []
        try:
            while elapsed < span:
                with np.errstate(all="ignore"):  # values that are not finite raise an error below
                    dt, n_cells, mass, clipped = self._step(time + elapsed, span - elapsed)
                elapsed = elapsed + dt if dt < span - elapsed else span
                cell_steps += n_cells
                taken.append((dt, n_cells, mass, clipped))
                if callback is not None:
                    callback(elapsed, self.n_cells, cell_steps)
        finally:
            self.taken = Steps.of(taken)
        return self.taken

    def _step(self, time: float, longest: float) -> tuple[float, int, float, float]:
        """Grow, advect, normalise, and every `prune_every` steps prune."""
        problem = self.problem
        xp = array_namespace(self.grid.keys)
        grid = grown(problem, self.grid, time, lambda n_cells: self.memory_budget.reserve(n_cells, self.grid.size))
        if problem.time_varying:
            # cells have grown by the velocities of the previous step, as in the public programs
            grid = grid.changed(velocities=face_velocities(problem, grid.columns, time, grid.p.dtype))
        largest = float(xp.max(rates(problem, grid)))
        dt = min(problem.cfl / largest, longest) if largest > 0.0 else longest
        if time + dt == time and dt < longest:
            raise step_too_small(f"a step of {dt:.3g} at", time)
        if problem.time_varying and problem.time_order == 2:
            time = time + 0.5 * dt
            grid = grid.changed(velocities=face_velocities(problem, grid.columns, time, grid.p.dtype))
        p = advected(problem, grid, dt)
        clipped = -float(xp.sum(xp.clip(p, max=0.0), dtype=xp.float64))
        grid, mass = normalised(grid.changed(p=xp.clip(p, min=0.0)))
        n_cells = grid.size
        if (self.count + 1) % problem.prune_every == 0:
            grid, _ = normalised(pruned(problem, grid))
        self.grid, self.velocity_time = grid, time
        self.count += 1
        return dt, n_cells, mass, clipped

    def reweight(self, log_weights: Array) -> float:
        """Multiply by ``exp(log_weights)``, normalise, prune, normalise; returns the logarithm of the mass."""
        xp, p = array_namespace(self.grid.p), self.grid.p
        product, largest = weighted(p, log_weights)
        grid, mass = normalised(self.grid.changed(p=xp.astype(product, p.dtype)))
        self.grid, _ = normalised(pruned(self.problem, grid))
        self.count = 0
        return float(np.log(mass)) + largest


def normalised(grid: Grid) -> tuple[Grid, float]:
    """The grid with probabilities divided by their sum, and the sum, taken in float64."""
    xp = array_namespace(grid.p)
    mass = float(xp.sum(grid.p, dtype=xp.float64))
    if not 0.0 < mass < float("inf"):
        raise no_probability_left(f"a total of {mass:g}", grid.size)
    return grid.changed(p=grid.p / mass), mass
