"""GBEES steps on a CUDA device: many steps in one kernel, and many small grids in one launch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._compile import device as _device
from ensemble._compile.device import address
from ensemble._errors import kept
from ensemble._kernels.gbees.frame import trace_bounds, trace_velocity
from ensemble._kernels.gbees.gbees_launch import Reason, Setting, kernels, launch, source
from ensemble._typing import Array
from ensemble.apps.gbees.engines.cuda_grid import DeviceGrid, bytes_per_cell
from ensemble.apps.gbees.engines.engine import Steps
from ensemble.apps.gbees.engines.failures import no_probability_left, step_too_small
from ensemble.apps.gbees.engines.grid_memory import MemoryBudget
from ensemble.apps.gbees.engines.keys import Packing
from ensemble.apps.gbees.engines.reweighting import weighted
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.problem import Problem

__all__ = ["CudaEngine"]

SMALL = 1 << 15
"""Least capacity of a grid in cells; of many grids of this capacity, each is computed by one cluster of blocks."""

CLUSTER_THREADS = 512
"""Threads per block, where a cluster of blocks computes one of many small grids."""

SINGLE_GRID_THREADS, SINGLE_GRID_BLOCKS = 128, 2
"""Threads per block, and blocks per multiprocessor, where all blocks compute one small grid."""

GRID_THREADS, GRID_BLOCKS = 256, {4: 3, 8: 2}
"""The same for a large grid, by the bytes of a number."""

LARGEST_CLUSTER = 8
"""Blocks per cluster that every device with clusters supports."""

MAX_STEPS = 4096
"""Steps of one launch."""

MAX_CELL_STEPS = 1 << 29
"""Cell-steps of one launch with a callback: about a quarter of a second."""


class CudaEngine:
    """The grid of one run on a CUDA device; parameters and errors as for `Engine`. `advance_many` takes many."""

    def __init__(self, problem: Problem, indices: Array, probabilities: Array, time: float = 0.0) -> None:
        xp = array_namespace(probabilities)
        self.problem, self.count, self.velocity_time = problem, 0, float(time)
        self.taken, self.report_each_step = Steps.of([]), False
        columns = [indices[:, i] for i in range(problem.n)]
        packing = Packing.of(columns, problem.periods)
        real = np.dtype(problem.dtype)
        keys = xp.astype(packing.pack(columns), xp.int64)
        order = xp.argsort(keys)
        p = xp.astype(probabilities, xp.float32 if real == np.float32 else xp.float64)
        parameters = tuple(float(value) for value in problem.drift.parameters)
        self.memory_budget = MemoryBudget(bytes_per_cell(problem.n, real.itemsize), problem.memory_limit, p)
        self.grid = DeviceGrid(problem, keys[order], p[order], packing, parameters)
        self._log = _device.device_empty((MAX_STEPS, 4), np.float64)
        self._reserve(self.grid.n)
        self._build()

    @property
    def is_small(self) -> bool:
        """Whether one cluster of blocks can compute the grid."""
        return self.grid.capacity <= SMALL

    @property
    def n_cells(self) -> int:
        """Cells stored, active or not."""
        return self.grid.n

    def cells(self) -> tuple[Array, Array]:
        """Multi-indices (N, n) and probabilities (N,) of every stored cell, on the device."""
        keys, p = self.grid.ordered()
        return array_namespace(keys).stack(self.grid.columns(keys), axis=1), p

    def advance(
        self, time: float, span: float, callback: Callable[[float, int, int], None] | None = None, elapsed: float = 0.0
    ) -> Steps:
        """Steps from `time` + `elapsed` to `time` + `span`."""
        failures = [each for each in self.advance_many([self], [time], [span], callback, [elapsed]) if each is not None]
        if failures:
            raise failures.pop()
        return self.taken

    @staticmethod
    def advance_many(
        engines: Sequence[CudaEngine], times: Sequence[float], spans: Sequence[float],
        callback: Callable[[float, int, int], None] | None = None, elapsed: Sequence[float] | None = None,
    ) -> list[Exception | None]:  # fmt: skip
        """Advance each engine over its span, all small grids in one launch; their steps are left in `taken`.

        Grids are independent, each with its own time steps: results are those of separate calls, to the bit.

        Parameters
        ----------
        engines : sequence of CudaEngine
        times, spans : sequence of float
            Start and length of each engine's advance.
        callback : callable, optional
            Called between launches with the least elapsed part of a span among unfinished engines, the cells stored in
            all grids, and the cell-steps of this call.
        elapsed : sequence of float, optional
            Elapsed part of each span.

        Returns
        -------
        list of GridError, MemoryError or None
            The error that stopped each engine, None for those that finished.
        """
        elapsed = elapsed or [0.0] * len(engines)
        advances = [_UnfinishedAdvance(*each) for each in zip(engines, times, spans, elapsed, strict=True)]
        max_cell_steps = 1 << 60
        if callback is not None:
            max_cell_steps = 1 if any(engine.report_each_step for engine in engines) else MAX_CELL_STEPS
        while remaining := [advance for advance in advances if not advance.done]:
            groups: dict[int, list[_UnfinishedAdvance]] = {}
            for advance in remaining:
                # problems with the same kernels share a launch
                engine = advance.engine
                kind = id(_kernels(engine.problem, 1, True)) if engine.is_small else id(advance)
                groups.setdefault(kind, []).append(advance)
            for group in groups.values():
                _launch(group, max_cell_steps)
            if callback is not None:
                left = [advance.elapsed for advance in advances if not advance.done]
                work = sum(int(np.sum(engine.taken.cells)) for engine in engines)
                callback(min(left or [advances[-1].elapsed]), sum(engine.n_cells for engine in engines), work)
        return [advance.failure for advance in advances]

    def reweight(self, log_weights: Array) -> float:
        """Multiply by ``exp(log_weights)``, normalise, prune, normalise; returns the logarithm of the mass."""
        xp, grid = array_namespace(self.grid.p), self.grid
        keys, p = grid.ordered()
        product, largest = weighted(p, log_weights)
        mass = float(xp.sum(product))
        grid.replace(keys, xp.astype(product / mass, p.dtype))
        self._build()
        try:
            self._prune()
        except GridError:
            grid.replace(keys, p)
            raise
        self._build()
        self.count = 0
        return float(np.log(mass)) + largest

    # --- memory
    def _reserve(self, n_cells: int) -> None:
        """Reserve memory for `n_cells` and half as many more; less for large grids or where memory is short."""
        capacity = max(n_cells + n_cells // (2 if n_cells < 1 << 23 else 16), SMALL)
        try:
            self.memory_budget.reserve(capacity, self.grid.capacity)
        except MemoryError:
            capacity = n_cells + n_cells // 64 + 64
            self.memory_budget.reserve(capacity, self.grid.capacity)
        self.grid.reserve(capacity)

    def _build(self) -> None:
        if not self.grid.built:
            self.grid.record["velocity_time"] = self.velocity_time
            self.grid.build(_kernels(self.problem, 0, False))

    def _prune(self) -> None:
        """Prune now: in `advance`, or from the host where that does not suit the grid."""
        record = self.grid.make_record()
        record["velocity_time"], record["only_prune"] = self.velocity_time, 1
        record = _advanced([self], [record])[0]
        record["only_prune"] = 0
        self.grid.update_from(record)
        if record["reason"][0] == Reason.PRUNE:
            self.grid.prune(_kernels(self.problem, 0, False))

    def _resolve(self, reason: int, time: float) -> None:
        """Do what the kernel returned for, or raise an error."""
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
            raise no_probability_left("a total of 0", grid.n)
        elif reason == Reason.STEP_TOO_SHORT:
            raise step_too_small("steps too small for", time)


def _kernels(problem: Problem, cluster: int, small: bool) -> dict[str, Any]:
    """The kernels of a problem; `cluster` blocks compute one grid, 0: all. The same object for equal sources."""
    dtype = np.dtype(problem.dtype)
    threads, blocks = (CLUSTER_THREADS, 1) if cluster else (SINGLE_GRID_THREADS, SINGLE_GRID_BLOCKS)
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
def _source(drift: Callable[..., Sequence[Array]], bounds: Callable[..., Array] | None, setting: Setting) -> str:
    """The source of the kernels with drift and bounds traced into it."""
    n, rotated = setting.n, setting.rotated
    graph = trace_velocity(drift, n, setting.n_parameters, rotated)
    limits = None if bounds is None else trace_bounds(bounds, n, rotated)
    return source(graph, limits, setting)


class _UnfinishedAdvance:
    """The advance of one engine over its span, in as many launches as it takes."""

    def __init__(self, engine: CudaEngine, time: float, span: float, elapsed: float) -> None:
        self.engine, self.time, self.span, self.elapsed = engine, float(time), float(span), float(elapsed)
        engine.taken = Steps.of([])
        self.failure: Exception | None = None
        self.done = not self.elapsed < self.span

    def make_record(self, max_cell_steps: int) -> np.ndarray:
        """The record for the next launch."""
        engine = self.engine
        engine._build()
        r = engine.grid.make_record()
        r["time"], r["span"], r["elapsed"] = self.time, self.span, self.elapsed
        r["velocity_time"], r["count"] = engine.velocity_time, engine.count
        r["max_steps"], r["max_cell_steps"], r["log"] = MAX_STEPS, max_cell_steps, address(engine._log)
        return r

    def update_from(self, record: np.ndarray) -> None:
        """Read back the record of a launch."""
        engine = self.engine
        engine.grid.update_from(record)
        taken = int(record["taken"][0])
        if taken:
            lengths, cells, masses, clipped = to_numpy(engine._log[:taken]).T
            engine.taken = engine.taken.then(Steps(lengths, cells.astype(np.int64), masses, clipped))
        engine.count, self.elapsed = int(record["count"][0]), float(record["elapsed"][0])
        engine.velocity_time = float(record["velocity_time"][0])
        engine._resolve(int(record["reason"][0]), self.time + self.elapsed)
        self.done = self.elapsed >= self.span


def _launch(group: list[_UnfinishedAdvance], max_cell_steps: int) -> None:
    """One launch of `advance` for grids with the same kernels, and what each of them needs after it."""
    records = [advance.make_record(max_cell_steps) for advance in group]
    for advance, record in zip(group, _advanced([advance.engine for advance in group], records), strict=True):
        try:
            advance.update_from(record)
        except (GridError, MemoryError) as error:
            advance.failure, advance.done = kept(error), True


def _advanced(engines: list[CudaEngine], records: list[np.ndarray]) -> list[np.ndarray]:
    """Launch `advance`; returns the records after it, one per engine."""
    problem, small = engines[0].problem, engines[0].is_small
    device = _device.device_array(np.concatenate(records).view(np.uint8))
    if len(engines) > 1:
        cluster = _cluster_for(len(engines))
        launch(_kernels(problem, cluster, small)["advance"], cluster * len(engines), CLUSTER_THREADS, (device,))
    else:
        threads, per_multiprocessor = (SINGLE_GRID_THREADS, SINGLE_GRID_BLOCKS) if small else (
            GRID_THREADS, GRID_BLOCKS[np.dtype(problem.dtype).itemsize])  # fmt: skip
        wanted = -(-engines[0].grid.capacity // threads)
        n_blocks = max(1, min(_device.multiprocessors() * per_multiprocessor, wanted))
        launch(_kernels(problem, 0, small)["advance"], n_blocks, threads, (device,), cooperative=True)
    record = to_numpy(device).view(records[0].dtype)
    return [record[k : k + 1].copy() for k in range(len(engines))]


def _cluster_for(n_grids: int) -> int:
    """Blocks for each of `n_grids`: as many as fill the device at one block per multiprocessor."""
    cluster = 1
    while cluster < LARGEST_CLUSTER and 2 * cluster * n_grids <= _device.multiprocessors():
        cluster *= 2
    return cluster
