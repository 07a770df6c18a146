"""The GBEES step on a CUDA device: many steps in one kernel, and many small grids in one launch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._kernels import _compile
from ensemble._kernels._emit_cuda import address
from ensemble._kernels._trace import Scalar, trace
from ensemble._kernels.gbees_cuda import Reason, Setting, kernels, launch, source
from ensemble.apps.gbees.cuda_grid import DeviceGrid, bytes_per_cell
from ensemble.apps.gbees.engine import Steps
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.keys import Packing
from ensemble.apps.gbees.memory import Room
from ensemble.apps.gbees.problem import Problem

__all__ = ["CudaEngine", "advance_together"]

SMALL = 1 << 15
"""Cells of room up to which one cluster of blocks carries a grid."""

CLUSTER_THREADS, GRID_THREADS = 512, 256

GRID_BLOCKS = 2
"""Blocks that a multiprocessor holds at once when all blocks work on one grid."""

LARGEST_CLUSTER = 8
"""Blocks; what every device with clusters can run."""

MOST_STEPS = 4096
"""Steps of one launch."""

MOST_WORK = 1 << 29
"""Cell-steps of one launch where somebody watches: about a quarter of a second."""


class CudaEngine:
    """One grid under way, see `Engine`; `advance_together` carries many.

    Parameters
    ----------
    problem : Problem
        Its drift, and its bounds, are traced: parameters of the drift are arguments of the kernels.
    indices : array of int64, shape (N, n)
    probabilities : array, shape (N,)
    time : float
        When the velocities of the first cells are taken, where the drift varies in time.

    Raises
    ------
    GridError
        If the drift is not finite in one of the cells, or the cells lie too far apart for keys of 63 bits.
    MemoryError
        If the cells do not fit.
    """

    def __init__(self, problem: Problem, indices: Any, probabilities: Any, time: float = 0.0) -> None:
        xp = array_namespace(probabilities)
        self.problem, self.count, self.velocity_time = problem, 0, float(time)
        self.taken = Steps.of([])
        columns = [indices[:, i] for i in range(problem.n)]
        lowest, highest = [int(xp.min(s)) for s in columns], [int(xp.max(s)) for s in columns]
        packing = Packing.around(lowest, highest, tuple(problem.periods) or (None,) * problem.n)
        real = np.dtype(problem.dtype)
        keys = xp.astype(packing.pack(columns), xp.int64)
        order = xp.argsort(keys)
        p = xp.astype(probabilities, xp.float32 if real == np.float32 else xp.float64)
        parameters = tuple(float(value) for value in problem.drift.parameters)
        self.room = Room(bytes_per_cell(problem.n, real.itemsize), problem.memory_limit, p)
        self.grid = DeviceGrid(problem, keys[order], p[order], packing, parameters)
        self.grid.normalise()
        self._log = tuple(_compile.device_empty((MOST_STEPS,), kind) for kind in (np.float64, np.int64, np.float64))
        self._reserve(self.grid.n)
        self._build()

    @property
    def n_cells(self) -> int:
        """Cells stored, active or not."""
        return self.grid.n

    def cells(self) -> tuple[Any, Any]:
        """Multi-indices (N, n) and probabilities (N,) of every stored cell, on the device."""
        keys, p = self.grid.ordered()
        return array_namespace(keys).stack(self.grid.columns(keys), axis=1), p

    def advance(self, time: float, span: float, watch: Callable[[float, int, int], None] | None = None) -> Steps:
        """Steps from `time` on until `span` is over."""
        advance_together([self], [time], [span], watch)
        return self.taken

    def weigh(self, log_weights: Any) -> float:
        """Multiplies by ``exp(log_weights)``, normalises, prunes, normalises; gives the logarithm of the mass."""
        xp, grid = array_namespace(self.grid.p), self.grid
        log_weights = xp.astype(xp.asarray(log_weights), xp.float64)
        if bool(xp.any(xp.isnan(log_weights))) or bool(xp.any(log_weights == float("inf"))):
            raise GridError("Gbees: the likelihood must be a number in every cell; got NaN or infinity.")
        keys, p = grid.ordered()
        top = float(xp.max(xp.where(p > 0, log_weights, xp.asarray(-float("inf")))))
        if top == -float("inf"):
            raise GridError(
                f"Gbees: the likelihood must be above zero somewhere; got zero in all {self.n_cells} cells. "
                "Check the measurement, or give it a larger variance."
            )
        weighed = xp.where(p > 0, xp.astype(p, xp.float64) * xp.exp(xp.where(p > 0, log_weights - top, 0.0)), 0.0)
        mass = float(xp.sum(weighed))
        if grid.n_sorted < grid.n:
            grid.keys[: grid.n] = keys
            grid.n_sorted, grid.built = grid.n, False
        grid.p[: grid.n] = xp.astype(weighed / mass, p.dtype)
        grid.marks[...] = 0
        grid.normalise()
        self._build()
        try:
            grid.prune(_kernels(self.problem, 0))
        except GridError:
            grid.p[: grid.n] = p
            grid.normalise()
            raise
        self._build()
        self.count = 0
        return float(np.log(mass)) + top

    # --- room
    def _reserve(self, n_cells: int) -> None:
        """Room for `n_cells` and some more: half as many where grids are small, less where memory counts."""
        capacity = n_cells + max(n_cells // (2 if n_cells < 1 << 23 else 8), 4096)
        try:
            self.room.take(capacity, self.grid.capacity)
        except MemoryError:
            capacity = n_cells + n_cells // 64 + 64
            self.room.take(capacity, self.grid.capacity)
        self.grid.reserve(capacity)

    def _build(self) -> None:
        if not self.grid.built:
            self.grid.record["velocity_time"] = self.velocity_time
            self.grid.build(_kernels(self.problem, 0))

    def _answer(self, reason: int, time: float) -> None:
        """Do what the kernel came back for."""
        grid = self.grid
        if reason == Reason.PRUNE:
            grid.prune(_kernels(self.problem, 0))
        elif reason == Reason.FULL:
            self._reserve(max(int(grid.record["n"][0]), grid.capacity))
        elif reason == Reason.RIM:
            grid.repack()
        elif reason == Reason.NOT_FINITE:
            raise grid.not_finite(time)
        elif reason == Reason.NOTHING_LEFT:
            raise GridError(
                f"Gbees: some probability must stay on the grid; got a total of 0 over {grid.n} cells. "
                "All of it left over the rim, or bounds shut it out: widen them or lower the threshold."
            )
        elif reason == Reason.STUCK:
            raise GridError(f"Gbees: time steps must move the time; got steps too small for t = {time:.6g}.")


def _kernels(problem: Problem, cluster: int) -> dict[str, Any]:
    """The kernels for a problem's kind; `cluster` blocks work on one grid, 0: all. One object for each kind."""
    setting = Setting(
        n=problem.n, n_parameters=len(problem.drift.parameters), dtype=np.dtype(problem.dtype).name,
        limiter=problem.limiter, rotated=problem.rotation is not None, time_varying=problem.time_varying,
        periodic=any(problem.periods), diffusive=problem.diffusion is not None, cluster=cluster,
        threads=CLUSTER_THREADS if cluster else GRID_THREADS, blocks=1 if cluster else GRID_BLOCKS,
    )  # fmt: skip
    return kernels(_source(problem.drift.function, problem.bounds, setting))


@functools.lru_cache(maxsize=256)
def _source(drift: Callable[..., Any], bounds: Callable[..., Any] | None, setting: Setting) -> str:
    """Drift and bounds, traced, and the kernels around them."""
    n, one = setting.n, Scalar("float64")

    def body(x: tuple[Any, ...], t: Any, parameters: tuple[Any, ...]) -> list[Any]:
        f = drift(x, t, x[0].__array_namespace__(), *parameters)
        return [v if getattr(v, "dtype", None) == np.float64 else v * 1.0 for v in f]

    graph = trace(body, (one,) * n, one, (one,) * setting.n_parameters, function="Gbees")
    limits = None
    if bounds is not None:
        limits = trace(lambda x: bounds(x, x[0].__array_namespace__()), (one,) * n, function="Gbees")
    return source(graph, limits, setting)


class _Journey:
    """One engine's way through its span."""

    def __init__(self, engine: CudaEngine, time: float, span: float) -> None:
        self.engine, self.time, self.span, self.elapsed = engine, float(time), float(span), 0.0
        self.parts: list[Steps] = []
        self.failure: Exception | None = None
        self.done = not span > 0.0

    @property
    def is_small(self) -> bool:
        return self.engine.grid.capacity <= SMALL

    def describe(self, most_work: int) -> np.ndarray:
        """The record that the next launch starts from."""
        engine = self.engine
        engine._build()
        r = engine.grid.describe()
        r["time"], r["span"], r["elapsed"] = self.time, self.span, self.elapsed
        r["velocity_time"], r["count"] = engine.velocity_time, engine.count
        r["most_steps"], r["most_work"] = MOST_STEPS, most_work
        for name, array in zip(("lengths", "cells", "mass_ratios"), engine._log, strict=True):
            r[name] = address(array)
        return r

    def take_back(self, record: np.ndarray) -> None:
        """Go on from what a launch left."""
        engine = self.engine
        engine.grid.take_back(record)
        taken = int(record["taken"][0])
        if taken:
            self.parts.append(Steps(*(to_numpy(array[:taken]).copy() for array in engine._log)))
        engine.count, self.elapsed = int(record["count"][0]), float(record["elapsed"][0])
        engine.velocity_time = float(record["velocity_time"][0])
        engine.taken = functools.reduce(Steps.then, self.parts, Steps.of([]))
        engine._answer(int(record["reason"][0]), self.time + self.elapsed)
        self.done = self.elapsed >= self.span


def advance_together(
    engines: Sequence[CudaEngine], times: Sequence[float], spans: Sequence[float],
    watch: Callable[[float, int, int], None] | None = None,
) -> None:  # fmt: skip
    """Carry each engine over its span, all small grids at once; each leaves its steps in `taken`.

    Every grid goes its own way, with its own time steps: what happens in one changes no bit of another.

    Parameters
    ----------
    engines : sequence of CudaEngine
    times, spans : sequence of float
        Start and length of each engine's way.
    watch : callable, optional
        Called between launches with the elapsed part of the span of the first engine that is still under way, the cells
        stored in all grids, and the cell-steps of this call.

    Raises
    ------
    GridError, MemoryError
        If a grid cannot be carried on, after the others have come to their ends; a note names the grids.
    """
    journeys = [_Journey(*each) for each in zip(engines, times, spans, strict=True)]
    for engine in engines:
        engine.taken = Steps.of([])
    most_work = MOST_WORK if watch is not None else 1 << 60
    while True:
        under_way = [journey for journey in journeys if not journey.done]
        if not under_way:
            break
        groups: dict[Any, list[_Journey]] = {}
        for journey in under_way:
            alone = not journey.is_small
            kind = id(journey) if alone else id(_kernels(journey.engine.problem, 1))
            groups.setdefault(kind, []).append(journey)
        for group in groups.values():
            _launch(group, most_work)
        if watch is not None:
            first = next((journey for journey in journeys if not journey.done), journeys[-1])
            work = sum(int(np.sum(part.cells)) for journey in journeys for part in journey.parts)
            watch(first.elapsed, sum(engine.n_cells for engine in engines), work)
    failed = [(k, journey.failure) for k, journey in enumerate(journeys) if journey.failure is not None]
    if failed:
        first_failure = failed[0][1]
        if len(engines) > 1:
            first_failure.add_note(f"{len(failed)} of {len(engines)} grids: {', '.join(str(k) for k, _ in failed)}")
        raise first_failure


def _launch(group: list[_Journey], most_work: int) -> None:
    """One launch of `advance` for grids of one kind, and what each of them asks for after it."""
    first = group[0]
    records = np.concatenate([journey.describe(most_work) for journey in group])
    device = _compile.device_array(records.view(np.uint8))
    if first.is_small:
        cluster = _cluster_for(len(group))
        run = _kernels(first.engine.problem, cluster)["advance"]
        launch(run, cluster * len(group), CLUSTER_THREADS, (device,))
    else:
        wanted = -(-first.engine.grid.capacity // GRID_THREADS)
        n_blocks = max(1, min(_compile.multiprocessors() * GRID_BLOCKS, wanted))
        launch(_kernels(first.engine.problem, 0)["advance"], n_blocks, GRID_THREADS, (device,), together=True)
    back = to_numpy(device).view(records.dtype)
    for k, journey in enumerate(group):
        try:
            journey.take_back(back[k : k + 1].copy())
        except (GridError, MemoryError) as error:
            journey.failure, journey.done = error, True


def _cluster_for(n_grids: int) -> int:
    """Blocks for each of `n_grids`: as many as keep the device busy at one block a multiprocessor."""
    cluster = 1
    while cluster < LARGEST_CLUSTER and 2 * cluster * n_grids <= _compile.multiprocessors():
        cluster *= 2
    return cluster
