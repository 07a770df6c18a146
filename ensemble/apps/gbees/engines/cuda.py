"""GBEES steps on a CUDA device: many steps in one kernel, and many small grids in one launch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._compile import device as _device
from ensemble._compile.device import address
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._kernels.gbees.launch import Reason, Setting, kernels, launch, source
from ensemble.apps.gbees.engines.cuda_grid import DeviceGrid, bytes_per_cell
from ensemble.apps.gbees.engines.engine import Steps
from ensemble.apps.gbees.engines.keys import Packing
from ensemble.apps.gbees.engines.memory import Room
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.problem import Problem

__all__ = ["CudaEngine"]

SMALL = 1 << 15
"""Cells of room that every grid has, and up to which one cluster of blocks carries a grid where there are many."""

CLUSTER_THREADS = 512
"""Of a block, where a cluster of them carries one of many small grids."""

ALONE_THREADS, ALONE_BLOCKS = 128, 2
"""Of a block, and blocks that a multiprocessor holds, where all of them carry one small grid."""

GRID_THREADS, GRID_BLOCKS = 256, {4: 3, 8: 2}
"""The same for a large grid, by the bytes of a number."""

LARGEST_CLUSTER = 8
"""Blocks; what every device with clusters can run."""

MOST_STEPS = 4096
"""Steps of one launch."""

MOST_WORK = 1 << 29
"""Cell-steps of one launch where somebody watches: about a quarter of a second."""


class CudaEngine:
    """One grid under way, see `Engine`; `together` carries many.

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
        self.taken, self.report_each_step = Steps.of([]), False
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
        self._log = _device.device_empty((MOST_STEPS, 4), np.float64)
        self._reserve(self.grid.n)
        self._build()

    @property
    def is_small(self) -> bool:
        """Whether one cluster of blocks will do."""
        return self.grid.capacity <= SMALL

    @property
    def n_cells(self) -> int:
        """Cells stored, active or not."""
        return self.grid.n

    def cells(self) -> tuple[Any, Any]:
        """Multi-indices (N, n) and probabilities (N,) of every stored cell, on the device."""
        keys, p = self.grid.ordered()
        return array_namespace(keys).stack(self.grid.columns(keys), axis=1), p

    def advance(
        self, time: float, span: float, watch: Callable[[float, int, int], None] | None = None, elapsed: float = 0.0
    ) -> Steps:
        """Steps from `time` on until `span` is over, of which `elapsed` is gone."""
        failure = self.together([self], [time], [span], watch, [elapsed])[0]
        if failure is not None:
            raise failure
        return self.taken

    @staticmethod
    def together(
        engines: Sequence[CudaEngine], times: Sequence[float], spans: Sequence[float],
        watch: Callable[[float, int, int], None] | None = None, elapsed: Sequence[float] | None = None,
    ) -> list[Exception | None]:  # fmt: skip
        """Carry each engine over its span, all small grids at once; each leaves its steps in `taken`.

        Every grid goes its own way, with its own time steps: what happens in one changes no bit of another.

        Parameters
        ----------
        engines : sequence of CudaEngine
        times, spans : sequence of float
            Start and length of each engine's way.
        watch : callable, optional
            Called between launches with the least elapsed part of a span among engines still under way, the cells
            stored in all grids, and the cell-steps of this call.
        elapsed : sequence of float, optional
            What is gone of each span.

        Returns
        -------
        list of GridError, MemoryError or None
            What stopped each engine; the others have come to their ends.
        """
        gone = elapsed or [0.0] * len(engines)
        journeys = [_Journey(*each) for each in zip(engines, times, spans, gone, strict=True)]
        most_work = 1 << 60
        if watch is not None:
            most_work = 1 if any(engine.report_each_step for engine in engines) else MOST_WORK
        while under_way := [journey for journey in journeys if not journey.done]:
            groups: dict[int, list[_Journey]] = {}
            for journey in under_way:
                # one object for each kind of problem: those share a launch
                engine = journey.engine
                kind = id(_kernels(engine.problem, 1, True)) if engine.is_small else id(journey)
                groups.setdefault(kind, []).append(journey)
            for group in groups.values():
                _launch(group, most_work)
            if watch is not None:
                left = [journey.elapsed for journey in journeys if not journey.done]
                work = sum(int(np.sum(engine.taken.cells)) for engine in engines)
                watch(min(left or [journeys[-1].elapsed]), sum(engine.n_cells for engine in engines), work)
        return [journey.failure for journey in journeys]

    def reweight(self, log_weights: Any) -> float:
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
        grid.replace(keys, xp.astype(weighed / mass, p.dtype))
        self._build()
        try:
            self._prune()
        except GridError:
            grid.replace(keys, p)
            raise
        self._build()
        self.count = 0
        return float(np.log(mass)) + top

    # --- room
    def _reserve(self, n_cells: int) -> None:
        """Room for `n_cells` and some more: half as many where grids are small, less where memory counts."""
        capacity = max(n_cells + n_cells // (2 if n_cells < 1 << 23 else 16), SMALL)
        try:
            self.room.take(capacity, self.grid.capacity)
        except MemoryError:
            capacity = n_cells + n_cells // 64 + 64
            self.room.take(capacity, self.grid.capacity)
        self.grid.reserve(capacity)

    def _build(self) -> None:
        if not self.grid.built:
            self.grid.record["velocity_time"] = self.velocity_time
            self.grid.build(_kernels(self.problem, 0, False))

    def _prune(self) -> None:
        """Prune now: by the steps' own kernel, or by the host where that gives up."""
        record = self.grid.describe()
        record["velocity_time"], record["only_prune"] = self.velocity_time, 1
        back = _advanced([self], [record])[0]
        back["only_prune"] = 0
        self.grid.take_back(back)
        if back["reason"][0] == Reason.PRUNE:
            self.grid.prune(_kernels(self.problem, 0, False))

    def _answer(self, reason: int, time: float) -> None:
        """Do what the kernel came back for."""
        grid = self.grid
        if reason == Reason.PRUNE:
            grid.prune(_kernels(self.problem, 0, False))
        elif reason == Reason.FULL:
            self._reserve(max(int(grid.record["n"][0]), grid.capacity))
        elif reason == Reason.KEY_OVERFLOW:
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


def _kernels(problem: Problem, cluster: int, small: bool) -> dict[str, Any]:
    """The kernels for a problem's kind; `cluster` blocks work on one grid, 0: all. One object for each kind."""
    dtype = np.dtype(problem.dtype)
    threads, blocks = (CLUSTER_THREADS, 1) if cluster else (ALONE_THREADS, ALONE_BLOCKS)
    if not (cluster or small):
        threads, blocks = GRID_THREADS, GRID_BLOCKS[dtype.itemsize]
    setting = Setting(
        n=problem.n, n_parameters=len(problem.drift.parameters), dtype=dtype.name, limiter=problem.limiter,
        rotated=problem.rotation is not None, time_varying=problem.time_varying, periodic=any(problem.periods),
        diffusive=problem.diffusion is not None, mixing=problem.mixing is not None, time_order=problem.time_order,
        cluster=cluster, threads=threads, blocks=blocks,
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

    def __init__(self, engine: CudaEngine, time: float, span: float, elapsed: float) -> None:
        self.engine, self.time, self.span, self.elapsed = engine, float(time), float(span), float(elapsed)
        engine.taken = Steps.of([])
        self.failure: Exception | None = None
        self.done = not self.elapsed < self.span

    def describe(self, most_work: int) -> np.ndarray:
        """The record that the next launch starts from."""
        engine = self.engine
        engine._build()
        r = engine.grid.describe()
        r["time"], r["span"], r["elapsed"] = self.time, self.span, self.elapsed
        r["velocity_time"], r["count"] = engine.velocity_time, engine.count
        r["most_steps"], r["most_work"], r["log"] = MOST_STEPS, most_work, address(engine._log)
        return r

    def take_back(self, record: np.ndarray) -> None:
        """Go on from what a launch left."""
        engine = self.engine
        engine.grid.take_back(record)
        taken = int(record["taken"][0])
        if taken:
            lengths, cells, masses, clipped = to_numpy(engine._log[:taken]).T
            engine.taken = engine.taken.then(Steps(lengths, cells.astype(np.int64), masses, clipped))
        engine.count, self.elapsed = int(record["count"][0]), float(record["elapsed"][0])
        engine.velocity_time = float(record["velocity_time"][0])
        engine._answer(int(record["reason"][0]), self.time + self.elapsed)
        self.done = self.elapsed >= self.span


def _launch(group: list[_Journey], most_work: int) -> None:
    """One launch of `advance` for grids of one kind, and what each of them asks for after it."""
    records = [journey.describe(most_work) for journey in group]
    for journey, record in zip(group, _advanced([journey.engine for journey in group], records), strict=True):
        try:
            journey.take_back(record)
        except (GridError, MemoryError) as error:
            journey.failure, journey.done = error, True


def _advanced(engines: list[CudaEngine], records: list[np.ndarray]) -> list[np.ndarray]:
    """Launch `advance`: the records that it leaves, one an engine."""
    problem, small = engines[0].problem, engines[0].is_small
    device = _device.device_array(np.concatenate(records).view(np.uint8))
    if len(engines) > 1:
        cluster = _cluster_for(len(engines))
        launch(_kernels(problem, cluster, small)["advance"], cluster * len(engines), CLUSTER_THREADS, (device,))
    else:
        threads, per_multiprocessor = (ALONE_THREADS, ALONE_BLOCKS) if small else (
            GRID_THREADS, GRID_BLOCKS[np.dtype(problem.dtype).itemsize])  # fmt: skip
        wanted = -(-engines[0].grid.capacity // threads)
        n_blocks = max(1, min(_device.multiprocessors() * per_multiprocessor, wanted))
        launch(_kernels(problem, 0, small)["advance"], n_blocks, threads, (device,), together=True)
    back = to_numpy(device).view(records[0].dtype)
    return [back[k : k + 1].copy() for k in range(len(engines))]


def _cluster_for(n_grids: int) -> int:
    """Blocks for each of `n_grids`: as many as keep the device busy at one block a multiprocessor."""
    cluster = 1
    while cluster < LARGEST_CLUSTER and 2 * cluster * n_grids <= _device.multiprocessors():
        cluster *= 2
    return cluster
