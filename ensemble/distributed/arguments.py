"""The arguments of a partition: checked on each rank, then compared between them."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ensemble._check import array_of, integer, kind_of, message, one_of, real_array, require, require_unmasked
from ensemble.distributed.agreement import agreement, require_same
from ensemble.distributed.domains import default_domains
from ensemble.linalg import CrsGraph
from ensemble.linalg.scipy_matrices import require_valid

__all__ = ["Request", "agreed_method", "checked_request"]

METHODS = ("auto", "rows", "graph", "coordinates")

ON_RANKS = "be given on every rank, or on rank 0 with None elsewhere"

SAME = 1e-6
"""Part of their extent by which coordinates of two ranks may differ: mathematical libraries differ by less."""


class Request(NamedTuple):
    """Checked arguments of `Partition`; `n`, graph and coordinates are those of nodes, of `block_size` rows each."""

    n: int
    domains: int
    method: str
    graph: CrsGraph | None
    coordinates: np.ndarray | None
    block_size: int


def checked_request(n: Any, domains: Any, graph: Any, coordinates: Any, method: Any, block_size: Any) -> Request:
    """The arguments of this rank; those that `method` does not use are not looked at."""
    n = integer(n, "Partition", "n", minimum=0)
    require(n < 2**62, "Partition", "n", "be below 2**62", n)
    if domains is None:
        domains = default_domains(n)
    block_size = integer(block_size, "Partition", "block_size", minimum=1)
    require(n % block_size == 0, "Partition", "block_size", f"divide the {n} rows", block_size)
    nodes = n // block_size
    domains = min(integer(domains, "Partition", "domains", minimum=1), max(nodes, 1))
    one_of(method, METHODS, "Partition", "method")
    graph = _graph(graph, n, block_size) if graph is not None and method in ("auto", "graph") else None
    by_place = coordinates is not None and method in ("auto", "coordinates")
    coordinates = _coordinates(coordinates, n, block_size) if by_place else None
    return Request(nodes, domains, method, graph, coordinates, block_size)


def agreed_method(request: Request, comm: Any) -> str:
    """The method that all ranks use; an error on all of them where their arguments do not fit together."""
    graph, coordinates = request.graph, request.coordinates
    digests = (
        None if graph is None else _digest(graph.indptr, graph.indices),
        None if coordinates is None else _digest(coordinates),
    )
    told = comm.allgather(((request.n * request.block_size, *request[1:3], request.block_size), digests))
    for place, argument in enumerate(("n", "domains", "method", "block_size")):
        require_same([values[place] for values, _ in told], "Partition", argument)
    given = {"graph": [d[0] for _, d in told], "coordinates": [d[1] for _, d in told]}
    method = request.method
    if method == "auto":
        method = next((name for name in ("coordinates", "graph") if any(given[name])), "rows")
    if method not in given:  # rows: their numbers are enough
        return method
    _require_given(given[method], method, request.method)
    if method == "graph":
        require_same([digest for digest in given[method] if digest], "Partition", "graph")
    elif len({digest for digest in given[method] if digest}) > 1:
        _require_alike(coordinates, comm)
    return method


def _require_given(digests: list[str | None], argument: str, method: str) -> None:
    """Raise ValueError unless all ranks gave an argument, or rank 0 alone."""
    without = [rank for rank, digest in enumerate(digests) if digest is None]
    if len(without) == len(digests):
        require(False, "Partition", argument, f"be given for method={method!r}", "None")
    missing = without if len(without) < len(digests) - 1 or 0 in without else []
    shown = ", ".join(str(rank) for rank in missing[:6]) + (", ..." if len(missing) > 6 else "")
    require(not missing, "Partition", argument, ON_RANKS, f"None on rank {shown} of {len(digests)}")


def _require_alike(coordinates: np.ndarray | None, comm: Any) -> None:
    """Raise ValueError on every rank unless all have nearly the coordinates of rank 0."""
    first = comm.bcast(coordinates if comm.rank == 0 else None, root=0)
    with agreement(comm):
        if coordinates is not None:
            requirement = "be the same on every rank"
            same_shape = coordinates.shape == first.shape
            require(same_shape, "Partition", "coordinates", requirement, f"shapes {first.shape}, {coordinates.shape}")
            extent = float(np.ptp(first, axis=0).max(initial=0.0))
            apart = float(np.abs(coordinates - first).max(initial=0.0))
            seen = f"differences up to {apart:.3g} in an extent of {extent:.3g}"
            require(apart <= SAME * extent, "Partition", "coordinates", requirement, seen)


def _digest(*arrays: np.ndarray) -> str:
    """A text that differs where arrays differ, for comparisons between ranks and for their messages."""
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(repr((array.dtype.str, array.shape)).encode() + np.ascontiguousarray(array).tobytes())
    return f"{arrays[-1].size} numbers with checksum {digest.hexdigest()}"


def _coordinates(coordinates: Any, n: int, block_size: int) -> np.ndarray:
    require_unmasked(coordinates, "Partition", "coordinates")
    values = real_array(coordinates, "Partition", "coordinates", "be real numbers")
    rows = (n, n // block_size)
    fits = values.ndim == 2 and values.shape[0] in rows and (values.shape[1] > 0 or n == 0)
    wanted = f"have shape (n, d) with n = {n}" + (f" or {rows[1]}" if block_size > 1 else "")
    require(fits, "Partition", "coordinates", wanted, f"shape {values.shape}")
    values = values if len(values) == rows[1] else values[::block_size]
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    seen = f"{bad.size} rows that are not, row {bad[0]} first" if bad.size else ""
    require(not bad.size, "Partition", "coordinates", "be finite", seen)
    return values


def _graph(graph: Any, n: int, block_size: int) -> CrsGraph:
    """The graph of nodes, from one of the accepted forms of that of nodes or rows; columns ascending and each once."""
    nodes = n // block_size
    if block_size > 1 and isinstance(getattr(graph, "block_shape", None), tuple):
        n = nodes if graph.graph.shape[0] == nodes else n  # a matrix of blocks has the graph of its nodes
    elif block_size > 1:
        length = len(graph[0]) - 1 if isinstance(graph, list | tuple) and len(graph) == 2 else _rows_of(graph)
        n = nodes if length == nodes else n
    found = _any_graph(graph, n)
    if n == nodes:
        return found
    rows, columns = found.row_of_entry // block_size, found.indices // block_size
    pattern = sp.csr_array((np.ones(rows.size, bool), (rows, columns)), shape=(nodes, nodes))
    pattern.sort_indices()
    return CrsGraph.unchecked(pattern.indptr, pattern.indices, (nodes, nodes))


def _rows_of(graph: Any) -> int:
    shape = getattr(graph, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else -1


def _any_graph(graph: Any, n: int) -> CrsGraph:
    """The graph of one of the accepted forms, columns ascending and each once."""
    if isinstance(getattr(graph, "graph", None), CrsGraph):  # a matrix of this library
        graph = graph.graph
    if isinstance(graph, CrsGraph):
        require(graph.shape == (n, n), "Partition", "graph", f"have shape ({n}, {n})", f"shape {graph.shape}")
        return graph
    if isinstance(graph, list | tuple) and len(graph) == 2:
        graph = _from_arrays(graph, n)
    if not sp.issparse(graph):
        requirement = "be a CrsGraph, a sparse matrix of SciPy or (indptr, indices)"
        raise TypeError(message("Partition", "graph", requirement, kind_of(graph)))
    require(graph.shape == (n, n), "Partition", "graph", f"have shape ({n}, {n})", f"shape {graph.shape}")
    require_valid(graph, "Partition", "graph")
    rows = sp.csr_array(graph)
    pattern = sp.csr_array((np.ones(rows.indices.size, bool), rows.indices.copy(), rows.indptr.copy()), shape=(n, n))
    pattern.sum_duplicates()
    return CrsGraph.unchecked(pattern.indptr, pattern.indices, (n, n))


def _from_arrays(arrays: Any, n: int) -> Any:
    """A matrix of SciPy with these (indptr, indices), whose lengths and numbers are checked later."""
    parts = [array_of(part, "Partition", "graph", "be (indptr, indices), two vectors of integers") for part in arrays]
    for part in parts:
        if part.ndim != 1 or (part.dtype.kind not in "iu" and part.size):
            seen = f"{part.dtype} {part.shape}"
            raise TypeError(message("Partition", "graph", "be (indptr, indices), two vectors of integers", seen))
    indptr, indices = (part.astype(np.int64) for part in parts)
    require(indptr.size == n + 1, "Partition", "graph", f"have {n + 1} entries in indptr", indptr.size)
    matrix = sp.csr_array((n, n), dtype=bool)
    matrix.indptr, matrix.indices, matrix.data = indptr, indices, np.ones(indices.size, bool)
    return matrix
