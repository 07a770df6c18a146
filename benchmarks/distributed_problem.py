"""A box of nodes over ranks: rows of a diffusion matrix that each rank makes by itself, and times of its solves."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble import Ensemble
from ensemble._backend import asarray_like, synchronize
from ensemble._compile.memory import empty_like
from ensemble._compile.streams import CudaGraph, own_stream
from ensemble._kernels.sparse.row_sums import in_space
from ensemble.distributed import DistributedCrsMatrix, Partition
from ensemble.krylov import cg
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.multigrid import smoothed_aggregation

STIFFNESS, MASS = np.array([-1.0, 2.0, -1.0]), np.array([1.0, 4.0, 1.0]) / 6.0
"""Entries of linear elements of length one along an axis."""

BLOCK = 1 << 16
"""Entries that are made at a time."""


def local_rows(rows: np.ndarray, shape: tuple[int, int, int], n_samples: int) -> CrsMatrix:
    """Rows of trilinear elements on a box of nodes, zero around it, scaled on both sides by a smooth positive field.

    A sample has a field of its own. Columns are numbered as rows, along the last axis first.
    """
    place = np.stack(np.unravel_index(rows, shape), axis=1)
    steps = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    neighbour = place[:, None, :] + steps
    inside = ((neighbour >= 0) & (neighbour < shape)).all(axis=2)
    k, m = STIFFNESS[steps + 1], MASS[steps + 1]
    stencil = k[:, 0] * m[:, 1] * m[:, 2] + m[:, 0] * k[:, 1] * m[:, 2] + m[:, 0] * m[:, 1] * k[:, 2]
    which = np.nonzero(inside)
    columns = np.ravel_multi_index(tuple(neighbour[which].T), shape)
    nodes = field(np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1), n_samples)
    values = np.empty((columns.size, n_samples))
    for begin in range(0, columns.size, BLOCK):
        part = slice(begin, begin + BLOCK)
        np.multiply(nodes[columns[part]], nodes[rows[which[0][part]]], out=values[part])
        values[part] *= stencil[which[1][part]][:, None]
    indptr = np.concatenate([[0], np.cumsum(inside.sum(axis=1))]).astype(np.int32)
    n = int(np.prod(shape))
    return CrsMatrix(CrsGraph.unchecked(indptr, columns.astype(np.int32), (rows.size, n)), values)


def field(place: np.ndarray, n_samples: int) -> np.ndarray:
    """A positive number for each node and sample."""
    phase = (place @ np.array([0.11, 0.07, 0.05]))[:, None] + 0.7 * np.arange(n_samples)
    return np.exp(0.4 * np.sin(phase))


def right_hand_side(rows: np.ndarray, n_samples: int) -> np.ndarray:
    """Numbers from 0 to 1 without a pattern, of the row and the sample alone."""
    x = np.sin(12.9898 * (rows[:, None] + 1.0) + 78.233 * np.arange(n_samples)) * 43758.5453
    return x - np.floor(x)


def distributed_box(comm: Any, shape: tuple[int, int, int], n_samples: int, like: Any) -> tuple[Any, Any, Any]:
    """Partition, matrix and right-hand side on the device of `like`."""
    n = int(np.prod(shape))
    root = comm.rank == 0
    at = np.stack(np.unravel_index(np.arange(n), shape), axis=1).astype(float) if root else None
    partition = Partition(n, comm, coordinates=at, method="coordinates")
    A = DistributedCrsMatrix(partition, local_rows(partition.rows, shape, n_samples)).to(like)
    return partition, A, Ensemble(asarray_like(right_hand_side(partition.rows, n_samples), like))


def without_ranks(A: DistributedCrsMatrix) -> CrsMatrix:
    """The matrix of one rank as one without ranks, rows in domain order."""
    return CrsMatrix(CrsGraph.unchecked(A.indptr, A.numbers.astype(np.int32), A.shape), A.values)


def seconds(run: Callable[[], Any], like: Any, comm: Any, repeats: int) -> float:
    """Median time of a call to the end of what it queued, of the slowest rank."""
    run()
    run()
    times = []
    for _ in range(repeats):
        synchronize(like)
        comm.Barrier()
        start = time.perf_counter()
        run()
        synchronize(like)
        times.append(time.perf_counter() - start)
    return float(max(comm.allgather(statistics.median(times))))


def repeated(call: Callable[[], Any], times: int) -> Callable[[], None]:
    """A function that calls another one several times."""

    def run() -> None:
        for _ in range(times):
            call()

    return run


def measured(A: Any, b: Ensemble, comm: Any, partition: Any, repeats: int = 5) -> dict[str, Any]:
    """Milliseconds of product, V-cycle and solve, of set-up, and a digest of the solution."""
    start = time.perf_counter()
    M = smoothed_aggregation(A, reorder="auto" if partition is not None else False)
    synchronize(b.samples)
    set_up = time.perf_counter() - start
    x, y, z = A.space.vector(b.samples), empty_like(b.samples), empty_like(b.samples)
    x[...] = b.samples
    workspace = M.workspace(b.n_samples)
    with in_space(A.space), own_stream(x) as record:
        record = record and A.space.queues_kernels
        product = CudaGraph(repeated(lambda: A.apply(x, y), 10), record)
        cycle = CudaGraph(repeated(lambda: M.precondition(x, z, workspace), 5), record)
        product_ms = 1e3 * seconds(product, x, comm, repeats) / 10
        cycle_ms = 1e3 * seconds(cycle, x, comm, repeats) / 5
    found: list[Any] = []

    def solve() -> None:
        found[:] = [cg(A, b, M=M)]

    solve_ms = 1e3 * seconds(solve, x, comm, repeats)
    whole = None if partition is None else partition.gather(found[0].x)
    return {
        "product ms": product_ms,
        "V-cycle ms": cycle_ms,
        "solve ms": solve_ms,
        "iterations": int(found[0].iterations.max()),
        "converged": bool(found[0].converged.all()),
        "levels": len(M.levels),
        "set-up s": set_up,
        "digest": "" if whole is None else hashlib.md5(np.ascontiguousarray(whole.samples).tobytes()).hexdigest()[:12],
    }
