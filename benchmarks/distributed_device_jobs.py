"""What each process of `bench_distributed_device` measures besides solves: series, farms, groups, messages, assembly.

A job is a function of the options and the communicator of MPI; it writes its rows as it goes, by ``write(row)``.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.distributed_problem import distributed_box, repeated, right_hand_side, seconds

Write = Callable[[dict[str, Any]], None]

SAMPLES = (1, 2, 4, 8, 16, 32, 64)
"""Samples in a message."""

STAGED = [0]
"""Bytes that went through pinned memory of the host in this process."""


def count_staged_bytes() -> None:
    """Count from now on what is copied to and from pinned memory for messages."""
    from ensemble._compile.device_messages import PinnedCopies

    for name, place in (("fetch", 0), ("put", 1)):
        original = getattr(PinnedCopies, name)

        def counted(self: Any, *arrays: Any, original: Any = original, place: int = place) -> None:
            STAGED[0] += arrays[place].nbytes
            original(self, *arrays)

        setattr(PinnedCopies, name, counted)


def staged_bytes(comm: Any) -> int:
    """Those of all ranks."""
    return int(sum(comm.allgather(STAGED[0])))


def digest_of(arrays: list[Any]) -> str:
    """A digest of the bits of arrays."""
    from ensemble._backend import to_numpy

    text = b"".join(np.ascontiguousarray(to_numpy(a)).tobytes() for a in arrays)
    return hashlib.md5(text).hexdigest()[:12]


# --- one long series
def kalman(options: argparse.Namespace, comm: Any, write: Write) -> None:
    """Filter and smoother of a series, as long for each GPU, then as long for all of them."""
    import cupy

    from benchmarks.distributed_series import series_row
    from ensemble import distributed

    comm = distributed.devices(comm)
    lengths = {"weak": options.steps * comm.size, "strong": options.steps, "short": options.steps // 10}
    for kind, n_steps in lengths.items():
        row = {"run": options.name, "kalman": kind, "ranks": comm.size, "messages": comm.messages}
        write(row | series_row(cupy, comm, n_steps) | {"staged bytes": staged_bytes(comm)})
        cupy.get_default_memory_pool().free_all_blocks()


# --- farms
def lorenz(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
    return [10.0 * (y[1] - y[0]), y[0] * (p[0] - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2]]


def farms(options: argparse.Namespace, comm: Any, write: Write) -> None:
    """Differential equations and GBEES runs dealt to GPUs: as many in all, whatever the number of GPUs."""
    import cupy

    from ensemble import Ensemble, distributed, ode
    from ensemble.apps.gbees import Gbees
    from ensemble.apps.gbees.systems.lorenz import lorenz63

    comm = distributed.devices(comm)
    like, spent = cupy.empty(0), [0.0]
    rho = Ensemble(np.linspace(20.0, 50.0, options.trajectories))
    r = Ensemble(np.linspace(44.0, 52.0, options.grids))

    def timed(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*parts: Any) -> Any:
            start = time.perf_counter()
            result = run(*parts)
            cupy.cuda.get_current_stream().synchronize()
            spent[0] = time.perf_counter() - start
            return result

        return call

    def trajectories(p: Any) -> Any:
        result = ode.solve(lorenz, [1.0, 1.0, 1.0], (0.0, 20.0), p=[p], rtol=1e-8, atol=1e-8, backend="cupy")
        return result.y, result.status, result.n_steps

    def grids(r: Any) -> Any:
        run = Gbees(
            lorenz63.with_parameters(r=r),
            [-11.5, -10.0, 9.5],
            [1.0, 1.0, 1.0],
            factor=1.0,
            threshold=5e-6,
            backend="cupy",
        )
        run.advance(1.0)
        return run.mean(), run.covariance(), run.failed

    for name, function, samples in (("trajectories", trajectories, rho), ("grids", grids, r)):
        found: list[Any] = []
        run = partial(distributed.farm, comm, timed(function), samples)
        whole = seconds(lambda run=run, found=found: found.__setitem__(slice(None), [run()]), like, comm, 3)
        longest = float(max(comm.allgather(spent[0])))
        row = {"run": options.name, "farm": name, "ranks": comm.size, "samples": samples.n_samples}
        bits = [getattr(a, "samples", a) for a in found[0]]
        write(row | {"s": whole, "longest part s": longest, "failed": _failed(name, found[0]), "bits": digest_of(bits)})


def _failed(name: str, result: Any) -> int:
    """Samples that failed."""
    from ensemble._backend import to_numpy

    return int(np.sum(to_numpy(result[1]) != 1)) if name == "trajectories" else int(np.sum(result[2]))


# --- groups
def groups(options: argparse.Namespace, comm: Any, write: Write) -> None:
    """A study whose ensembles go to the GPU that is free."""
    from scipy import stats

    import ensemble as en
    from ensemble import distributed
    from ensemble.apps import fem

    distributed.devices(comm)  # a GPU for each rank
    problem = fem.RandomDiffusion(options.group_cells, backend="cupy")
    taken = [0]

    def model(x: Any, comm: Any) -> dict[str, Any]:
        taken[0] += 1
        return {"response": problem.solve(x.y).response}

    inputs = en.Inputs(y=en.uq.Vector(stats.norm(), 5))
    workers = distributed.groups(comm, 1, seconds=60.0)
    study = partial(en.propagate, model, inputs, executor=workers, ensemble_size=32, seed=7, progress=False)
    study(n=32 * comm.size)  # compiles on every rank, if each is free in turn
    taken[0] = 0
    comm.Barrier()
    start = time.perf_counter()
    result = study(n=options.group_samples)
    spent = time.perf_counter() - start
    row = {"run": options.name, "groups": comm.size, "ranks": comm.size, "samples": options.group_samples}
    row |= {"cells": options.group_cells, "s": float(max(comm.allgather(spent))), "ensembles": comm.allgather(taken[0])}
    values = [float(result.mean("response")), float(result.std("response"))]
    write(row | {"mean": values[0], "bits": digest_of([np.array(values)])})


# --- messages
def messages(options: argparse.Namespace, comm: Any, write: Write) -> None:
    """Microseconds of all-reduces and exchanges by their bytes, each with the fit a + b s."""
    import cupy

    from ensemble import distributed
    from ensemble._kernels.sparse.exact_sums import ROW_LENGTH

    comm = distributed.devices(comm)
    if comm.size == 1:
        return
    sender = comm.device_messages
    beside = sorted({(comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size})
    for rows in (1, 50, 1000, 4225, 16641):
        us = []
        for s in SAMPLES:
            out, into = cupy.ones((rows, s)), cupy.zeros((2 * rows, s))
            sends = [(r, out) for r in beside]
            receives = [(r, into[k * rows : (k + 1) * rows]) for k, r in enumerate(beside)]
            call = repeated(partial(sender.exchange, sends, receives), 20)
            us.append(1e6 * seconds(call, out, comm, 7) / 20)
        write(fitted(options, comm, f"exchange of {rows} rows", 8 * rows, us))
    us = []
    for s in SAMPLES:
        digits = cupy.zeros((s, ROW_LENGTH), dtype=np.int64)
        us.append(1e6 * seconds(repeated(partial(sender.all_reduce, digits), 20), digits, comm, 7) / 20)
    write(fitted(options, comm, "all-reduce of exact sums", 8 * ROW_LENGTH, us))
    us = []
    for n in SAMPLES:
        array = cupy.zeros(1024 * n)
        us.append(1e6 * seconds(repeated(partial(sender.all_reduce, array), 20), array, comm, 7) / 20)
    write(fitted(options, comm, "all-reduce of 1024 float64", 8192, us))


def fitted(options: argparse.Namespace, comm: Any, what: str, n_bytes: int, us: list[float]) -> dict[str, Any]:
    """Times by the number of samples, and their fit a + b s with its largest relative error."""
    x = np.stack([np.ones(len(SAMPLES)), np.array(SAMPLES, float)], axis=1)
    weight = 1.0 / np.array(us)
    a, b = np.linalg.lstsq(x * weight[:, None], np.ones(len(us)), rcond=None)[0]
    error = float(np.abs((x @ [a, b]) * weight - 1.0).max())
    times = {f"{n_bytes * k} bytes": t for k, t in zip(SAMPLES, us, strict=True)}
    return {"run": options.name, "ranks": comm.size, "messages": comm.messages, "message": what, "a us": float(a),
            "b us": float(b), "GB/s": n_bytes / max(b, 1e-9) / 1e3, "error": error, "us": times,
            "staged bytes": staged_bytes(comm)}  # fmt: skip


# --- set-up and assembly
def assembly(options: argparse.Namespace, comm: Any, write: Write) -> None:
    """Seconds of the assembly of a diffusion problem on the hosts of the ranks, as many cells for each."""
    from ensemble import Ensemble
    from ensemble.apps import fem

    cells = (options.cells * comm.size, options.cells, options.cells)
    start = time.perf_counter()
    problem = fem.RandomDiffusion(cells, comm=comm)
    made = time.perf_counter() - start
    y = Ensemble(0.1 * right_hand_side(np.arange(5), options.scaling_samples))
    A, _ = problem.assemble(y)
    took = seconds(lambda: problem.assemble(y), np.empty(0), comm, 3)
    row = {"run": options.name, "assembly": "x".join(map(str, cells)), "ranks": comm.size, "samples": y.n_samples}
    write(
        row | {"partition s": float(max(comm.allgather(made))), "assembly s": took, "entries": int(A.values.shape[0])}
    )


# --- what waits for what
class Recorded:
    """Messages between events: what ran when on the stream, and how long messages took with their waits."""

    can_be_recorded = False

    def __init__(self, messages: Any) -> None:
        self.messages, self.kind, self.events = messages, messages.kind, []  # type: ignore[var-annotated]

    def has(self, array: Any) -> bool:
        return bool(self.messages.has(array))

    def _between(self, what: str, n_bytes: int, call: Callable[[], Any]) -> Any:
        import cupy

        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record()
        result = call()
        last.record()
        self.events.append((what, n_bytes, first, last))
        return result

    def all_reduce(self, array: Any, largest: bool = False) -> Any:
        call = partial(self.messages.all_reduce, array, largest)
        return self._between("all-reduce", array.nbytes, call)

    def exchange(self, sends: Any, receives: Any) -> None:
        self._between("exchange", sum(a.nbytes for _, a in sends), partial(self.messages.exchange, sends, receives))

    def all_gather(self, whole: Any, offsets: Any) -> Any:
        return self._between("all-gather", whole.nbytes, partial(self.messages.all_gather, whole, offsets))


def timeline(options: argparse.Namespace, comm: Any, write: Write) -> None:
    """Each message of a product, a V-cycle and a solve on the stream of each rank, without CUDA graphs."""
    import cupy

    from ensemble import distributed
    from ensemble._compile.kept_memory import empty_like
    from ensemble._kernels.sparse.row_sums import in_space
    from ensemble.krylov import cg
    from ensemble.multigrid import smoothed_aggregation

    comm = distributed.devices(comm)
    shape = (options.cells * comm.size, options.cells, options.cells)
    _, A, b = distributed_box(comm, shape, options.scaling_samples, cupy.empty(0))
    M = smoothed_aggregation(A, reorder="auto")
    x, y, z = A.space.vector(b.samples), empty_like(b.samples), empty_like(b.samples)
    x[...] = b.samples
    workspace = M.workspace(b.n_samples)
    recorded = Recorded(comm.device_messages)
    holders = holders_of(A, M, comm)
    for holder in holders:
        holder.device_messages = recorded
    calls = {
        "product": lambda: A.apply(x, y),
        "V-cycle": lambda: M.precondition(x, z, workspace),
        "solve": lambda: cg(A, b, M=M),
    }
    for name, call in calls.items():
        with in_space(A.space):
            call()
            comm.Barrier()
            recorded.events.clear()
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            call()
            end.record()
            end.synchronize()
        since = lambda event, start=start: 1e3 * cupy.cuda.get_elapsed_time(start, event)
        parts = [(what, n, since(first), since(last) - since(first)) for what, n, first, last in recorded.events]
        own = {"total us": since(end), "messages us": sum(part[3] for part in parts), "count": len(parts)}
        for rank, told in enumerate(comm.allgather(own)):
            write({"run": options.name, "timeline": name, "ranks": comm.size, "rank": rank, **told})
        lines = [f"{at:9.1f} us  {us:8.1f} us  {n:10d} bytes  {what}" for what, n, at, us in parts[:60]]
        write({"run": options.name, "timeline": name, "ranks": comm.size, "stream of rank 0": lines})


def holders_of(A: Any, M: Any, comm: Any) -> list[Any]:
    """All communicators by which a matrix and its hierarchy send."""
    from ensemble.distributed.devices import DeviceCommunicator

    found, seen, left = [comm], set(), [A, M]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, DeviceCommunicator):
            found.append(one)
        elif isinstance(one, list | tuple):
            left += one
        elif isinstance(one, dict):
            left += one.values()
        elif type(one).__module__.startswith("ensemble."):
            left += vars(one).values() if hasattr(one, "__dict__") else []
            slots = getattr(type(one), "__slots__", ())
            left += [getattr(one, name) for name in slots if hasattr(one, name)]
    return found


JOBS: dict[str, Callable[[argparse.Namespace, Any, Write], None]] = {
    "kalman": kalman, "farms": farms, "groups": groups, "messages": messages, "assembly": assembly,
    "timeline": timeline,
}  # fmt: skip
