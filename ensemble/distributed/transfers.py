"""Whole vectors from one rank to the ranks that hold their rows, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ensemble._backend import library_of, to_numpy
from ensemble._check import array_of, integer, kind_of, message, require, require_unmasked
from ensemble.distributed.agreement import agreement, require_same
from ensemble.scalar import Ensemble

__all__ = ["ROUND_BYTES", "gather_rows", "scatter_rows"]

ROUND_BYTES = 1 << 27
"""Bytes that root sends or receives at a time: counts of MPI have 31 bits, and root has no second copy of a vector."""


def scatter_rows(x: Any, partition: Any, root: int) -> Any:
    """The rows of this rank of `x`, which is given on `root` in the caller's order."""
    comm, name = partition.comm, "Partition.scatter"
    values, head = None, None
    with agreement(comm):
        root = _root(root, comm, name)
        if comm.rank == root:
            values, head = _values_of(x, name)
            seen = f"shape {values.shape[: values.ndim - head[0]]}"
            require(values.shape[0] == partition.n, name, "x", f"have {partition.n} rows on root", seen)
    heads = comm.allgather((root, head))
    require_same([given for given, _ in heads], name, "root")
    is_ensemble, dtype, trailing, sample_set = heads[root][1]
    local = np.empty((partition.n_local, *trailing), dtype)
    for ranges in _rounds(partition.offsets, local.itemsize * int(np.prod(trailing))):
        sent = None
        if values is not None:
            rows = np.concatenate([np.arange(low, high) for low, high in ranges])
            sent = _message(np.take(values, partition.caller_of(rows), axis=0), ranges)
        comm.Scatterv(sent, _bytes(local[_own(ranges, partition)]), root=root)
    return Ensemble(local, sample_set) if is_ensemble else local


def gather_rows(x: Any, partition: Any, root: int) -> Any:
    """All rows of vectors of which `x` has those of this rank, on `root` in the caller's order; None elsewhere."""
    comm, name = partition.comm, "Partition.gather"
    with agreement(comm):
        root = _root(root, comm, name)
        values, head = _values_of(x, name)
        seen = f"shape {values.shape[: values.ndim - head[0]]}"
        require(values.shape[0] == partition.n_local, name, "x", f"have the {partition.n_local} rows of its rank", seen)
    heads = comm.allgather((root, head[:3]))
    require_same([given for given, _ in heads], name, "root")
    require_same([f"{'an Ensemble' if e else 'an array'} of {d} and {t}" for _, (e, d, t) in heads], name, "x")
    is_ensemble, dtype, trailing, sample_set = head
    kept = comm.bcast(sample_set, root=root)
    with agreement(comm):
        require(sample_set == kept, name, "x", f"have the sample set that it has on rank {root}", repr(sample_set))
    whole = np.empty((partition.n, *trailing), dtype) if comm.rank == root else None
    for ranges in _rounds(partition.offsets, values.itemsize * int(np.prod(trailing))):
        sent, received, rows = _bytes(np.ascontiguousarray(values[_own(ranges, partition)])), None, None
        if whole is not None:
            rows = np.concatenate([np.arange(low, high) for low, high in ranges])
            received = np.empty((rows.size, *trailing), dtype)
        comm.Gatherv(sent, None if received is None else _message(received, ranges), root=root)
        if whole is not None:
            whole[partition.caller_of(rows)] = received
    return Ensemble(whole, sample_set) if is_ensemble and whole is not None else whole


def _root(root: Any, comm: Any, function: str) -> int:
    number = integer(root, function, "root", minimum=0)
    require(number < comm.size, function, "root", f"be below the number of ranks ({comm.size})", number)
    return number


def _values_of(x: Any, function: str) -> tuple[np.ndarray, tuple[bool, str, tuple[int, ...], Any]]:
    """The array of a vector, and what other ranks must know of it: its kind, dtype, axes after rows, sample set."""
    requirement = "be an array of NumPy or an Ensemble of one, with rows along its first axis"
    is_ensemble = isinstance(x, Ensemble)
    values = x.samples if is_ensemble else x
    if isinstance(values, list | tuple):
        values = array_of(values, function, "x", requirement)
    require_unmasked(values, function, "x")
    if library_of(values) == "cupy":
        values = to_numpy(values)
    if not isinstance(values, np.ndarray):
        advice = "" if values is None else "Copy it to the host first."
        raise TypeError(message(function, "x", requirement, kind_of(values), advice))
    if values.dtype.kind not in "biufc":
        raise TypeError(message(function, "x", "hold numbers", f"dtype {values.dtype}"))
    require(values.ndim > 0, function, "x", requirement, "a number without axes")
    return values, (is_ensemble, values.dtype.str, values.shape[1:], x.sample_set if is_ensemble else None)


def _rounds(offsets: np.ndarray, row_bytes: int) -> Iterator[list[tuple[int, int]]]:
    """For each message of all ranks the range of rows, in the order of domains, that each rank has a part in."""
    if row_bytes == 0:
        return
    each = max(1, ROUND_BYTES // (row_bytes * (offsets.size - 1)))
    for begin in range(0, int(np.diff(offsets).max(initial=0)), each):
        lows = np.minimum(offsets[:-1] + begin, offsets[1:])
        highs = np.minimum(lows + each, offsets[1:])
        yield list(zip(lows.tolist(), highs.tolist(), strict=True))


def _own(ranges: list[tuple[int, int]], partition: Any) -> slice:
    low, high = ranges[partition.comm.rank]
    return slice(low - partition.first, high - partition.first)


def _bytes(values: np.ndarray) -> np.ndarray:
    """The bytes of a contiguous array, as a vector that shares its memory."""
    return values.reshape(-1).view(np.uint8)


def _message(values: np.ndarray, ranges: list[tuple[int, int]]) -> list[Any]:
    """A buffer of mpi4py with the bytes of each rank's rows."""
    row_bytes = values.itemsize * int(np.prod(values.shape[1:]))
    counts = [(high - low) * row_bytes for low, high in ranges]
    starts = [0, *np.cumsum(counts[:-1]).tolist()]
    return [_bytes(values), (counts, starts)]
