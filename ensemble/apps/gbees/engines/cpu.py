"""The engine of compiled loops for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._compile.numba import compile_for, thread_count
from ensemble._compile.trace.fingerprint import kept_under_code
from ensemble._compile.trace.numbers import hoisted
from ensemble._interrupts import released
from ensemble._kernels.gbees import gbees_generated
from ensemble._kernels.gbees import grid as kernels
from ensemble._typing import Array
from ensemble.apps.gbees.engines.engine import Steps
from ensemble.apps.gbees.engines.failures import (
    drift_not_finite,
    no_cell_left,
    no_probability_left,
    step_too_small,
)
from ensemble.apps.gbees.engines.grid_memory import MemoryBudget
from ensemble.apps.gbees.engines.keys import Packing
from ensemble.apps.gbees.engines.reweighting import weighted
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.problem import Problem

__all__ = ["CompiledEngine"]

RECORDS = 1024
"""Steps that one call of compiled code can record."""

BUDGET = 1 << 21
"""Cell-steps, times dimensions, between two calls of `callback`: a tenth of a second or two."""

KEPT = 64
"""Drifts whose code is kept, at most."""

SMALL = 1 << 14
"""Cells up to which one thread is faster than several (`benchmarks gbees`)."""


class CompiledEngine:
    """The grid of one run in compiled loops; parameters and errors as for `Engine`."""

    def __init__(self, problem: Problem, indices: Array, probabilities: Array, time: float = 0.0) -> None:
        n = problem.n
        self.problem, self.n = problem, n
        indices, probabilities = np.asarray(indices, dtype=np.int64), np.asarray(probabilities)
        columns = list(indices.T)
        self.packing = Packing.of(columns, problem.periods)
        keys = self.packing.pack(columns)
        order = np.argsort(keys)
        self.loops, dtype = _Loops(problem), np.dtype(problem.dtype)
        bytes_per_cell = kernels.bytes_per_cell(n, dtype.itemsize)
        self.memory_budget = MemoryBudget(bytes_per_cell, problem.memory_limit, probabilities)
        self.memory_budget.reserve(len(keys))
        self.grid = kernels.make_arrays(n, kernels.capacity_for(len(keys) + len(keys) // 4), dtype)
        end = kernels.BASE + len(keys)
        self.grid[0][kernels.BASE : end] = keys[order]
        self.grid[1][kernels.BASE : end] = probabilities[order]
        self.grid[7][kernels.BASE : end] = True
        self.packing_rows = self._packing_rows()
        self.state = np.zeros(len(gbees_generated.STATE), np.int64)
        self.reals = np.zeros(len(gbees_generated.REALS))
        self._set(END=end, VELOCITIES_END=kernels.BASE, SORTED=end, START=end, PRUNE_EVERY=problem.prune_every,
                  SEQUENTIAL=problem.prune == "sequential", TIME_VARYING=problem.time_varying)  # fmt: skip
        self._set(VELOCITY_TIME=time, THRESHOLD=problem.threshold, CFL=problem.cfl)
        kernels.link(n, self.grid[0], self.grid[4], self.packing_rows, end)
        kernels.build_table(self.grid[0], end, self.grid[9])
        self.taken = Steps.of([])
        self.report_each_step = False
        self.advance(time, 0.0)

    @property
    def count(self) -> int:
        """Steps since the start or the last `reweight`."""
        return int(self._get("COUNT"))

    @count.setter
    def count(self, value: int) -> None:
        self._set(COUNT=value)

    @property
    def velocity_time(self) -> float:
        """Time of the velocities in use."""
        return float(self._get("VELOCITY_TIME"))

    @velocity_time.setter
    def velocity_time(self, value: float) -> None:
        self._set(VELOCITY_TIME=value)

    def _set(self, **values: Array) -> None:
        for name, value in values.items():
            if name in gbees_generated.STATE:
                self.state[gbees_generated.STATE.index(name)] = value
            else:
                self.reals[gbees_generated.REALS.index(name)] = value

    def _get(self, name: str) -> Any:
        if name in gbees_generated.STATE:
            return int(self.state[gbees_generated.STATE.index(name)])
        return float(self.reals[gbees_generated.REALS.index(name)])

    def _packing_rows(self) -> np.ndarray:
        """The array ``packing`` of the compiled code."""
        packing, diffusion = self.packing, self.problem.diffusion
        diffuses = [0] * self.n if diffusion is None else [int(q > 0) for q in diffusion]
        masks = [2**b - 1 for b in packing.bits]
        strides = [2**shift for shift in packing.shifts]
        periods = [period or 0 for period in packing.periods]
        return np.array([packing.shifts, masks, packing.lows, strides, periods, diffuses], dtype=np.int64)

    @property
    def n_cells(self) -> int:
        """Cells stored, active or not."""
        return int(self._get("END")) - kernels.BASE

    def _columns(self, cells: slice) -> list[np.ndarray]:
        return [self.packing.column(self.grid[0][cells], i) for i in range(self.n)]

    @property
    def _cells(self) -> slice:
        return slice(kernels.BASE, self._get("END"))

    def cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Multi-indices (N, n) and probabilities (N,) of every stored cell."""
        order = np.argsort(self.grid[0][self._cells])
        p = self.grid[1][self._cells][order]
        return np.stack([s[order] for s in self._columns(self._cells)], axis=1), p

    def advance(
        self, time: float, span: float, callback: Callable[[float, int, int], None] | None = None, elapsed: float = 0.0
    ) -> Steps:
        """Steps from `time` + `elapsed` to `time` + `span`."""
        self.taken, reported = Steps.of([]), 0
        self._set(TIME=time, SPAN=span, ELAPSED=elapsed)
        try:
            while (status := self._run_steps()) != "DONE":
                self._resolve(status, time + self._get("ELAPSED"))
                # inside a step the grid has cells of the next one already, which a checkpoint must not hold
                if callback is not None and len(self.taken) > reported and not self._get("GROWTH_BEGUN"):
                    reported = len(self.taken)
                    callback(self._get("ELAPSED"), self.n_cells, int(self.taken.cells.sum()))
        except BaseException:
            self._undo_growth()
            raise
        if callback is not None and len(self.taken) > reported:
            callback(span, self.n_cells, int(self.taken.cells.sum()))
        return self.taken

    def _run_steps(self) -> str:
        """One call of the compiled loops; returns the name of its status."""
        records = np.empty(RECORDS), np.empty(RECORDS, np.int64), np.empty(RECORDS), np.empty(RECORDS)
        self._set(RECORDED=0, BUDGET=1 if self.report_each_step else BUDGET // self.problem.n)
        parallel = self.n_cells > SMALL and thread_count() > 1
        arguments = self.grid, self.packing_rows, self.state, self.reals, *records
        status = self.loops.advance(parallel, *arguments)
        if self._get("SWAPPED"):
            self.grid = (self.grid[0], self.grid[2], self.grid[1], *self.grid[3:])
            self._set(SWAPPED=0)
        n_steps = self._get("RECORDED")
        if n_steps:
            self.taken = self.taken.then(Steps(*(values[:n_steps].copy() for values in records)))
        return gbees_generated.STATUS[status]

    def _resolve(self, status: str, time: float) -> None:
        """Do what the next step needs, or raise an error."""
        if status == "FULL":
            self._enlarge()
        elif status == "KEY_OVERFLOW":
            self._repack()
        elif status == "NOT_FINITE":
            raise self._not_finite(time)
        elif status == "STEP_TOO_SHORT":
            dt = self.problem.cfl / self._get("RATE")
            raise step_too_small(f"a step of {dt:.3g} at", time)
        elif status == "EMPTY":
            raise no_probability_left("none that is finite", self.n_cells)
        elif status == "NONE_LEFT":
            raise no_cell_left(self.problem, self.n_cells)

    def _enlarge(self) -> None:
        """Enlarge the arrays by half, or by a sixteenth where memory is short."""
        n_cells = self.n_cells
        wanted = n_cells + max(n_cells // 2, 4096)
        try:
            self.memory_budget.reserve(wanted)
        except MemoryError:
            wanted = n_cells + n_cells // 16 + 64
            self.memory_budget.reserve(wanted)
        old, end = self.grid, self._get("END")
        capacity = kernels.capacity_for(wanted)
        new = kernels.make_arrays(self.n, capacity, old[1].dtype)
        for target, source in zip(new[:-1], old[:-1], strict=True):
            per_cell = source.size // old[0].size
            rows = target.reshape(per_cell, capacity), source.reshape(per_cell, old[0].size)
            rows[0][:, :end] = rows[1][:, :end]
        kernels.build_table(new[0], end, new[9])
        self.grid = new

    def _repack(self) -> None:
        """Keys with a new range of indices; the order of cells and the links stay."""
        columns = self._columns(self._cells)
        self.packing = Packing.of(columns, self.packing.periods, margin=1)
        self.grid[0][self._cells] = self.packing.pack(columns)
        self.packing_rows = self._packing_rows()
        kernels.build_table(self.grid[0], self._get("END"), self.grid[9])

    def _undo_growth(self) -> None:
        """Back to the cells of the last whole step."""
        start, end = self._get("START"), self._get("END")
        if self._get("GROWTH_BEGUN"):
            links = self.grid[4]
            links[links >= start] = 0
            for part in self.grid[1:7]:
                part.reshape(-1, self.grid[0].size)[:, start:end] = 0
            self.grid[7][kernels.BASE : start] = True
            kernels.build_table(self.grid[0], start, self.grid[9])
            known = kernels.BASE if self.problem.time_varying else min(start, self._get("VELOCITIES_END"))
            self._set(END=start, VELOCITIES_END=known, GROWTH_BEGUN=0)

    def _not_finite(self, time: float) -> GridError:
        """The error for the first velocity that is not finite."""
        problem = self.problem
        v = self.grid[3].reshape(self.n, -1)[:, self._cells]
        i, cell = np.argwhere(~np.isfinite(v))[0]
        z = [float(s[cell]) * float(width) for s, width in zip(self._columns(self._cells), problem.widths, strict=True)]
        z[i] += float(problem.widths[i]) / 2.0
        return drift_not_finite(problem, z, float(v[i, cell]), int(i), time)

    def reweight(self, log_weights: Array) -> float:
        """Multiply by ``exp(log_weights)``, normalise, prune, normalise; returns the logarithm of the mass."""
        cells = self._cells
        order = np.argsort(self.grid[0][cells])
        product, largest = weighted(self.grid[1][cells][order], log_weights)
        mass = float(product.sum())
        self.grid[2][cells][order] = product / mass
        reweighted = (self.grid[0], self.grid[2], self.grid[1], *self.grid[3:])
        end = kernels.prune(
            self.n, reweighted, self.packing_rows, self._get("END"), self._get("SORTED"), self.problem.threshold, 1.0,
            int(self.problem.prune == "sequential"),
        )  # fmt: skip
        if end == 0:
            raise no_cell_left(self.problem, self.n_cells)
        self.grid = reweighted
        # velocities are computed again, and with them the largest rate
        self._set(END=end, VELOCITIES_END=kernels.BASE, SORTED=end, START=end, COUNT=0, RATE=0.0)
        return float(np.log(mass)) + largest


class _Code:
    """Traces of a drift and of bounds, and the compiled loops that call them; samples of one drift share it."""

    def __init__(self, problem: Problem) -> None:
        n, rotated, n_parameters = problem.n, problem.rotation is not None, len(problem.drift.parameters)
        at = gbees_generated.layout(n, n_parameters, rotated)
        n_numbers = at["parameters"] + n_parameters
        graph = gbees_generated.trace_face_velocities(problem.drift.function, n, n_parameters, rotated)
        graph, self.constants = hoisted(graph, n + 1 + n_numbers)
        bounds = None
        if problem.bounds is not None:
            bounds = gbees_generated.trace_bounds_at_centre(problem.bounds, n, n_parameters, rotated)
            bounds, constants = hoisted(bounds, n + n_numbers + len(self.constants))
            self.constants = self.constants + constants
        dtype = np.dtype(problem.dtype).name
        self.traced = (graph, n, dtype), (bounds, n, at["range"])
        self.options = n, problem.limiter, dtype, _terms(problem)
        self.steps: dict[bool, Callable[..., int]] = {}
        self.addresses: tuple[int, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """State without compiled code, which cannot be pickled; it is loaded again on the next call."""
        return self.__dict__ | {"steps": {}, "addresses": ()}

    def advance(self, parallel: bool, numbers: Array, grid: Array, packing: Array, *state: Any) -> int:
        """Run steps, on several threads if `parallel`; returns the status."""
        if parallel not in self.steps:
            with released():  # compiling takes seconds, and changes nothing of the grid
                drift, bounds = self.traced
                self.addresses = (
                    gbees_generated.drift_address(*drift),
                    gbees_generated.bounds_address(*bounds),
                    kernels.prune_address(drift[2]),
                )
                step = gbees_generated.step_of(*self.options, parallel)
                compile_for(step, grid, packing, numbers, *self.addresses, *state)
                self.steps[parallel] = step
        return self.steps[parallel](grid, packing, numbers, *self.addresses, *state)


def _terms(problem: Problem) -> gbees_generated.StepTerms:
    """The terms of a step of a problem."""
    return gbees_generated.StepTerms(
        problem.diffusion is not None, problem.mixing is not None, problem.time_order == 2, problem.bounds is not None
    )


_codes: dict[Any, _Code] = {}


def _code_of(problem: Problem) -> _Code:
    """The code of a problem, kept for others with the same drift and bounds."""
    functions = [problem.drift.function, *([] if problem.bounds is None else [problem.bounds])]
    about = (problem.n, len(problem.drift.parameters), problem.rotation is None, problem.limiter,
             np.dtype(problem.dtype).name, _terms(problem))  # fmt: skip
    return kept_under_code(_codes, KEPT, lambda: _Code(problem), functions, *about)


class _Loops:
    """The compiled loops of a problem, and their array ``numbers``."""

    def __init__(self, problem: Problem) -> None:
        n, mixing = problem.n, problem.mixing
        widths = np.asarray(problem.widths, dtype=np.float64)
        noise = np.zeros(n) if problem.diffusion is None else np.asarray(problem.diffusion, dtype=np.float64)
        diffusion_rates = noise / widths**2
        if mixing is not None:
            diffusion_rates[0] += mixing.rate  # only their sum matters
        self.code = _code_of(problem)
        numbers = [
            widths,
            widths / 2.0,
            diffusion_rates,
            0.5 * problem.face_diffusion / widths**2,
            np.zeros(n * n) if mixing is None else np.ravel(mixing.corners),
            problem.origin,
            np.ravel([] if problem.rotation is None else problem.rotation),
            problem.bounds_range,
            [float(value) for value in problem.drift.parameters],
            self.code.constants,
        ]
        self.numbers = np.concatenate(numbers).astype(np.float64)

    def advance(self, parallel: bool, *state: Any) -> int:
        """Run steps, on several threads if `parallel`; returns the status."""
        return self.code.advance(parallel, self.numbers, *state)
