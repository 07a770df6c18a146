"""What each rank of MPI runs for `bench_distributed`: a task, by its name and its options in JSON.

Rank 0 writes its rows to a file. A rank that has nothing to do sleeps, so that it takes no time from the other one.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_assembly import parameters
from benchmarks.common import median
from ensemble._kernels.multigrid import domain_triangles
from ensemble._kernels.sparse import crs
from ensemble._kernels.sparse.exact_sums import ROW_LENGTH
from ensemble.apps.fem import RandomDiffusion
from ensemble.apps.fem.rank_discretization import UPPER_SAMPLES
from ensemble.distributed import serial
from ensemble.distributed.halo import Halo
from ensemble.distributed.messages import all_sum, gathered, meet
from ensemble.distributed.rank_matrix import RankMatrix
from ensemble.krylov import cg
from ensemble.multigrid import smoothed_aggregation
from ensemble.multigrid.cycle import Workspace, v_cycle
from ensemble.scalar import Ensemble

RTOL = 1e-7


def sleep_until_all(comm: Any) -> None:
    """Wait for all ranks without using the processor."""
    if comm.size > 1:
        request = comm.Ibarrier()
        while not request.Test():
            time.sleep(2e-3)


def low(values: list[float]) -> float:
    """The lower decile: a shared machine makes some rounds longer, none shorter."""
    return float(np.quantile(values, 0.1))


def per_call(comm: Any, call: Callable[[], Any], budget: float, calls: int = 10) -> tuple[float, float]:
    """Median and lower decile of the seconds of a call, over batches of `calls` that all ranks begin together."""
    call()
    seconds: list[float] = []
    start = time.perf_counter()
    rounds = 0
    while True:
        meet(comm)
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        seconds.append((time.perf_counter() - begin) / calls)
        rounds += 1
        if rounds % 8 == 0:
            over = np.array([rounds >= 1000 or time.perf_counter() - start > budget], np.int64)
            if all_sum(comm, over)[0]:
                return median(seconds), low(seconds)


# --- messages
def halo_of(comm: Any, rows: int, pieces: int = 1, step: int = 2) -> Halo:
    """An exchange of `rows` rows each way between two ranks, in `pieces` messages; every second row, or a run of them.

    Rows of a run are sent from where they lie, others are packed.
    """
    offsets = np.arange(comm.size + 1, dtype=np.int64) * 2 * rows
    other = 1 - comm.rank
    halo = Halo(comm, offsets, offsets[other] + step * np.arange(rows, dtype=np.int64))
    if pieces > 1:
        bounds = np.linspace(0, rows, pieces + 1).astype(int)
        ((_, sent),) = halo.sends
        halo.receives = [(other, int(a), int(b)) for a, b in itertools.pairwise(bounds)]
        halo.sends = [(other, sent[a:b]) for a, b in itertools.pairwise(bounds)]
    return halo


def halo(comm: Any, rows: list[int], samples: list[int], pieces: list[int], budget: float) -> list[dict[str, Any]]:
    """Microseconds of exchanges, of their parts, of reductions and of all-gathers between two ranks.

    Vectors stay as they are between exchanges: what a core has written costs as much again to be read by another.
    """
    found = []
    for (name, step), n in itertools.product({"exchange": 2, "exchange of a run": 1}.items(), rows):
        exchange = halo_of(comm, n, step=step)
        for S in samples:
            whole = np.ones((3 * n, S))
            calls = 10 if 8 * n * S <= 65536 else 1  # a short time in which no other program may interrupt
            middle, least = per_call(comm, lambda w=whole, e=exchange: e.exchange(w), budget, calls)
            found.append({"what": name, "rows": n, "samples": S, "messages": 1,
                          "us": 1e6 * middle, "least us": 1e6 * least})  # fmt: skip
    for k in pieces:
        exchange, whole = halo_of(comm, 52, k), np.ones((156, 1))
        middle, least = per_call(comm, lambda w=whole, e=exchange: e.exchange(w), budget)
        found.append({"what": "pieces", "rows": 52, "samples": 1, "messages": k,
                      "us": 1e6 * middle, "least us": 1e6 * least})  # fmt: skip
    for S in samples:
        digits, part = np.zeros((S, ROW_LENGTH), np.int64), np.ones((100, S))
        offsets = 100 * np.arange(comm.size + 1)
        for name, call in {
            "reduction": lambda d=digits: all_sum(comm, d),
            "all-gather": lambda p=part, o=offsets: gathered(comm, p, o),
        }.items():
            middle, least = per_call(comm, call, budget)
            found.append({"what": name, "rows": 100, "samples": S, "messages": 1,
                          "us": 1e6 * middle, "least us": 1e6 * least})  # fmt: skip
    return found


# --- solves
def system(comm: Any, cells: Any, S: int) -> tuple[Any, Ensemble]:
    """Matrix and right-hand side of random diffusion over `comm`, without ranks for None, stored as a solve does.

    Both sides store upper triangles from 4 samples on, over ranks those of domains.
    """
    problem = RandomDiffusion(cells, comm=comm)
    upper = S >= UPPER_SAMPLES and problem.discretization.keeps_upper(S)
    A, b = problem.assemble(parameters(S), symmetric=upper)
    return A, Ensemble(np.ascontiguousarray(b.samples))


def timed_solve(A: Any, b: Any) -> dict[str, float]:
    """Seconds and processor seconds of set-up and solve, and iterations."""
    marks = [(time.perf_counter(), time.process_time())]
    hierarchy = smoothed_aggregation(A)
    marks.append((time.perf_counter(), time.process_time()))
    result = cg(A, b, M=hierarchy, rtol=RTOL).raise_if_failed()
    marks.append((time.perf_counter(), time.process_time()))
    (w0, c0), (w1, c1), (w2, c2) = marks
    return {"setup": w1 - w0, "solve": w2 - w1, "setup cpu": c1 - c0, "solve cpu": c2 - c1,
            "iterations": int(result.iterations.max())}  # fmt: skip


def product(A: Any, x: np.ndarray, y: np.ndarray, repeats: int) -> dict[str, float]:
    """Seconds of one product on the rows of this process, without messages; over ranks `x` has ghost rows."""
    call = A.apply
    if isinstance(A, RankMatrix):
        kernel: Any = domain_triangles.domain_spmv if A.stores_upper else crs.spmv
        call = partial(kernel, *A.arrays)
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        call(x, y)
    return {
        "product": (time.perf_counter() - start) / repeats,
        "product cpu": (time.process_time() - cpu) / repeats,
    }


def solve(comm: Any, cells: int, samples: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Rounds of a solve without ranks, by one rank and by all ranks; and of products alone by one and by all.

    The time of several ranks is the longest of them.
    """
    S, found = samples, []
    runs: dict[str, Any] = {}
    if comm.rank == 0:
        runs = {"serial": system(None, cells, S), "one rank": system(serial(), cells, S)}
    shared, own = system(comm, cells, S)
    repeats = max(1, int(2e8 / (shared.nnz * S)))
    x, y = np.ones((shared.local_shape[0] + shared.halo.n_ghosts, S)), np.empty((shared.local_shape[0], S))
    stored = {name: type(matrix).__name__ for name, (matrix, _) in {**runs, "all ranks": (shared, own)}.items()}
    whole_x, whole_y = (np.ones((shared.shape[0], S)) for _ in range(2)) if comm.rank == 0 else (None, None)
    begin = time.perf_counter()
    for k in range(rounds + 1):
        row: dict[str, Any] = {"round": k, "load": os.getloadavg()[0], "stored": stored}
        for name, (matrix, vector) in runs.items():
            row[name] = timed_solve(matrix, vector)
        if comm.rank == 0:
            row["one product"] = product(runs["serial"][0], whole_x, whole_y, repeats)
        sleep_until_all(comm)
        meet(comm)
        both = product(shared, x, y, repeats)
        meet(comm)
        together = timed_solve(shared, own)
        for name, part in (("all products", both), ("all ranks", together)):
            row[name] = {key: max(values) for key, values in zip(part, zip(*comm.allgather(list(part.values()))))}
        if k:  # the first round compiles and takes new memory
            found.append(row)
        over = np.array([k > 1 and time.perf_counter() - begin > seconds], np.int64)
        if all_sum(comm, over)[0]:
            break
    return found


def weak(comm: Any, edge: int, samples: list[int], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Microseconds of an iteration on one rank with ``edge^3`` cells, and on all ranks with as many each."""
    found = []
    for S in samples:
        runs = {}
        if comm.rank == 0:
            runs[1] = system(serial(), edge, S)
        runs[comm.size] = system(comm, (comm.size * edge, edge, edge), S)
        hierarchies = {ranks: smoothed_aggregation(matrix) for ranks, (matrix, _) in sorted(runs.items(), reverse=True)}
        times: dict[int, list[float]] = {ranks: [] for ranks in runs}
        steps, begin = dict.fromkeys(runs, 1), time.perf_counter()
        for k in range(rounds + 1):
            for ranks, (matrix, b) in runs.items():
                if ranks > 1:
                    sleep_until_all(comm)
                    meet(comm)
                start = time.perf_counter()
                steps[ranks] = int(cg(matrix, b, M=hierarchies[ranks], rtol=RTOL).iterations.max())
                if k:
                    times[ranks].append((time.perf_counter() - start) / steps[ranks])
            over = np.array([k > 0 and time.perf_counter() - begin > seconds], np.int64)
            if all_sum(comm, over)[0]:
                break
        for ranks, values in times.items():
            found.append({"edge": edge, "samples": S, "ranks": ranks, "iterations": steps[ranks],
                          "us": 1e6 * median(values), "least us": 1e6 * low(values)})  # fmt: skip
    return found


# --- kernels
def kernels(comm: Any, cells: list[int], samples: list[int], calls: int, seconds: float) -> list[dict[str, Any]]:
    """Processor time of a product, of each level of a V-cycle and of an iteration, on one rank and one thread."""
    found, begin = [], time.perf_counter()
    for n, S in itertools.product(cells, samples):
        if time.perf_counter() - begin > seconds:
            break
        M, right = system(comm, n, S)
        hierarchy = smoothed_aggregation(M)
        x = M.space.vector(right.samples)
        x[...] = 1.0
        fewer = max(3, int(calls / (1 + 1e-8 * M.nnz * S)))

        def add(what: str, rows: int, entries: int, us: float, S: int = S, n: int = n) -> None:
            found.append({"what": what, "cells": n, "samples": S, "rows": rows, "entries": entries, "us": us})

        add("product", M.shape[0], M.nnz, _least(M.apply, x, np.empty_like(x), calls=fewer))
        down = _cycles(hierarchy, S, fewer)
        for k, level in enumerate(hierarchy.levels):
            last = k + 1 == len(down)
            add("coarse" if last else "level", level.A.shape[0], level.A.nnz, down[k] - (0.0 if last else down[k + 1]))
        few, many = (
            _least(lambda A, b, m, k=k: cg(A, b, M=m, rtol=1e-30, max_iterations=k), M, right, hierarchy, calls=turns)
            for k, turns in ((2, fewer), (6, fewer))
        )
        add("iteration", M.shape[0], M.nnz, (many - few) / 4.0)
    return found


def _cycles(hierarchy: Any, n_samples: int, calls: int) -> list[float]:
    """Microseconds of the V-cycle from each level down."""
    levels, found = hierarchy.levels, []
    workspace = Workspace([level.A for level in levels], n_samples)
    for k, level in enumerate(levels):
        b = level.A.space.vector(np.empty((level.A.local_shape[0], n_samples), level.A.dtype))
        b[...] = 1.0
        found.append(_least(v_cycle, levels, hierarchy.coarse, b, level.A.space.vector(b), workspace, k, calls=calls))
    return found


def _least(call: Callable[..., Any], *arguments: Any, calls: int) -> float:
    """The lower decile of the processor time of a call, in microseconds."""
    call(*arguments)
    seconds = []
    for _ in range(calls):
        start = time.process_time()
        call(*arguments)
        seconds.append(time.process_time() - start)
    return 1e6 * low(seconds)


TASKS = {"halo": halo, "solve": solve, "weak": weak, "kernels": kernels}


def run(words: list[str]) -> None:
    """Run one task on this rank."""
    task, file, options = words
    try:
        from mpi4py import MPI

        comm: Any = MPI.COMM_WORLD
    except ImportError:
        comm = serial()
    rows = TASKS[task](comm, **json.loads(options))
    if comm.rank == 0:
        Path(file).write_text(json.dumps(rows))


if __name__ == "__main__":
    run(sys.argv[1:])
