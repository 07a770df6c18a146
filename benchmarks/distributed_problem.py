"""A box of nodes over ranks: rows of a diffusion matrix that each rank makes by itself, and times of its solves."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble import Ensemble
from ensemble._backend import array_namespace, asarray_like, synchronize
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.streams import CudaGraph, own_stream
from ensemble._kernels.sparse.row_sums import in_space
from ensemble.distributed import DistributedCrsMatrix, Partition
from ensemble.krylov import cg
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.linalg.reordering import taken_rows
from ensemble.multigrid import smoothed_aggregation

STIFFNESS, MASS = np.array([-1.0, 2.0, -1.0]), np.array([1.0, 4.0, 1.0]) / 6.0
"""Entries of linear elements of length one along an axis."""

OFFSETS = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
"""The steps to the nodes that a node is coupled to, and itself."""

BLOCK = 1 << 16
"""Entries that are made at a time in memory of the host, and 64 times as many on a device."""


def local_rows(rows: np.ndarray, shape: tuple[int, int, int], n_samples: int, like: Any = None) -> CrsMatrix:
    """Rows of trilinear elements on a box of nodes, zero around it, scaled on both sides by a smooth positive field.

    A sample has a field of its own. Columns are numbered as rows, along the last axis first. Values are made in the
    library and on the device of `like`.
    """
    columns, offset_of_entry, indptr = graph_of_rows(rows, shape)
    k, m = STIFFNESS[OFFSETS + 1], MASS[OFFSETS + 1]
    stencil = k[:, 0] * m[:, 1] * m[:, 2] + m[:, 0] * k[:, 1] * m[:, 2] + m[:, 0] * m[:, 1] * k[:, 2]
    like = np.empty(0) if like is None else like
    values = empty_like(like, (columns.size, n_samples))
    row_of_entry, nodes = np.repeat(rows, np.diff(indptr)), field(shape, n_samples, like)
    block = BLOCK if isinstance(like, np.ndarray) else 64 * BLOCK
    for begin in range(0, columns.size, block):
        part = slice(begin, begin + block)
        scale = taken_rows(nodes, columns[part])
        scale *= taken_rows(nodes, row_of_entry[part])
        values[part] = scale * asarray_like(stencil[offset_of_entry[part]][:, None], like)
    graph = CrsGraph.unchecked(indptr, columns.astype(np.int32), (rows.size, int(np.prod(shape))))
    return CrsMatrix(graph, Ensemble(values))


def graph_of_rows(rows: np.ndarray, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(columns, offset of each entry, indptr) of rows of the box: neighbours along faces, edges and corners."""
    place = np.unravel_index(rows, shape)
    valid = [[(p + step >= 0) & (p + step < n) for step in (-1, 0, 1)] for p, n in zip(place, shape, strict=True)]
    inside = np.stack([valid[0][a + 1] & valid[1][b + 1] & valid[2][c + 1] for a, b, c in OFFSETS.tolist()], axis=1)
    row, offset = np.nonzero(inside)
    strides = np.array([shape[1] * shape[2], shape[2], 1])
    counts = np.cumsum(inside.sum(axis=1))
    indptr = np.append(0, counts).astype(np.int32 if row.size < 2**31 else np.int64)
    return rows[row] + (OFFSETS @ strides)[offset], offset.astype(np.int8), indptr


def field(shape: tuple[int, int, int], n_samples: int, like: Any) -> Any:
    """A positive number for each node and sample."""
    phase = sum(
        each * factor for each, factor in zip(np.ogrid[tuple(map(slice, shape))], (0.11, 0.07, 0.05), strict=True)
    )
    xp, phase = array_namespace(like), asarray_like(np.ascontiguousarray(phase).reshape(-1, 1), like)
    return xp.exp(0.4 * xp.sin(phase + asarray_like(0.7 * np.arange(n_samples), like)))


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
    A = DistributedCrsMatrix(partition, local_rows(partition.rows, shape, n_samples, like))
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
