"""The part of a tetrahedral mesh that one rank has: its nodes, and one layer of elements around them."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np

from ensemble._check import require
from ensemble.distributed import DistributedCrsMatrix, Partition
from ensemble.distributed.agreement import agreement
from ensemble.distributed.halo import Halo
from ensemble.distributed.messages import all_largest
from ensemble.distributed.rank_matrix import RankMatrix
from ensemble.linalg import BcrsMatrix, CrsGraph, CrsMatrix
from ensemble.scalar import Ensemble

__all__ = ["MeshPart", "shared_mesh"]


class MeshPart:
    """Which nodes and elements of a mesh a rank has, and what its matrices and vectors over ranks are.

    Local nodes are sorted by their numbers in domain order: the rank's own are consecutive among them. Local elements
    are those that touch an own node, in the order of the whole mesh.

    Parameters
    ----------
    partition : Partition
        Of the nodes.
    numbers : array of int64, shape (n_nodes,), ascending
        The local nodes, in domain order.
    elements : array of int64, shape (n_elements,), ascending
        The local elements.
    alone : array of int64
        The boundary facets of the whole mesh that belong to local elements, facet i of element e as ``4 e + i``.
    """

    def __init__(self, partition: Partition, numbers: np.ndarray, elements: np.ndarray, alone: np.ndarray) -> None:
        self.partition, self.numbers, self.elements, self.alone = partition, numbers, elements, alone
        self.first = int(np.searchsorted(numbers, partition.first))
        self.own = slice(self.first, self.first + partition.n_local)
        ghosts = np.delete(numbers, self.own)
        self.halo = Halo(partition.comm, partition.offsets, ghosts)
        self._blocked = {1: partition}

    @functools.cached_property
    def nodes(self) -> np.ndarray:
        """The caller's numbers of the local nodes."""
        return self.partition.caller_of(self.numbers)

    def blocked(self, size: int) -> Partition:
        """The partition of `size` unknowns for each node."""
        if size not in self._blocked:
            self._blocked[size] = self.partition.blocked(size)
        return self._blocked[size]

    # --- fields
    def common_places(self, function: str, places: dict[str, list[str]]) -> dict[str, str]:
        """The place that each field has on all ranks, if there is one: small parts have as many nodes as elements."""
        told = self.partition.comm.allgather(places)
        found = {}
        for name in places:
            given = [rank.get(name, []) for rank in told]
            common = [place for place in given[0] if all(place in own for own in given)]
            seen = ", ".join(sorted({" or ".join(own) for own in given if own}))
            fits = bool(common) or not all(given)
            require(fits, function, name, "be given at the same place on every rank", seen, "Say which: at_nodes, ...")
            if len(common) == 1:
                found[name] = common[0]
        return found

    def agree(self, function: str, fields: dict[str, tuple[str, int]]) -> None:
        """Raise on every rank unless nodal fields are given alike: for own nodes, or for all local ones.

        `fields` has the place and the length of each; where both lengths are one, nothing is exchanged.
        """
        own, n_nodes = self.partition.n_local, self.numbers.size
        seen = {name: length == own for name, (place, length) in fields.items() if place == "node" and own != n_nodes}
        told = self.partition.comm.allgather(seen)
        for name in fields:
            given = {rank[name] for rank in told if name in rank}
            seen_all = "own nodes on some ranks and all nodes of their elements on others"
            require(len(given) < 2, function, name, "be given for the same nodes on every rank", seen_all)

    def with_ghosts(self, values: np.ndarray) -> np.ndarray:
        """The values at all local nodes of a field that is given at own nodes."""
        n_own = self.partition.n_local
        whole = np.empty((self.numbers.size, *values.shape[1:]), values.dtype)
        whole[:n_own] = values
        self.halo.exchange(whole)
        return np.concatenate([whole[n_own : n_own + self.first], whole[:n_own], whole[n_own + self.first :]])

    def bounds(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The least of `low` and the largest of `high` over all ranks: orders of space are those of the whole mesh."""
        comm = self.partition.comm
        return -all_largest(comm, np.ascontiguousarray(-low)), all_largest(comm, np.ascontiguousarray(high))

    def anywhere(self, flag: bool) -> bool:
        """Whether it holds on some rank."""
        return bool(self.partition.layout.space.any(np.array(flag)))

    def alike(self) -> contextlib.AbstractContextManager[None]:
        """A context whose error on one rank is raised on all."""
        return agreement(self.partition.comm)

    # --- results
    def vector(self, made: Ensemble) -> Ensemble:
        """The rows of this rank of a vector over local nodes; components of a node follow each other."""
        own = made.samples[self.own]
        return Ensemble(np.ascontiguousarray(own.reshape(-1, own.shape[-1])), made.sample_set)

    def matrix(self, kept: dict[Any, Any], made: CrsMatrix | BcrsMatrix) -> RankMatrix:
        """The rows of this rank of a matrix over local nodes; `kept` has the graphs of earlier ones on this space."""
        first, last = (int(made.graph.indptr[row]) for row in (self.own.start, self.own.stop))
        indptr = made.graph.indptr[self.own.start : self.own.stop + 1] - made.graph.indptr[self.own.start]
        graph = CrsGraph.unchecked(indptr, made.graph.indices[first:last], (indptr.size - 1, made.graph.shape[1]))
        rows, columns = made.block_shape if isinstance(made, BcrsMatrix) else (1, 1)
        values = Ensemble(made.values[first:last], made.sample_set)
        local = BcrsMatrix(graph, values).to_crs() if isinstance(made, BcrsMatrix) else CrsMatrix(graph, values)
        if (rows, columns) not in kept:
            kept[rows, columns] = self._template(local.graph, rows, columns)
        over = kept[rows, columns].with_values(np.ascontiguousarray(local.values), made.sample_set)
        over.batched = made.batched
        return over  # type: ignore[no-any-return]

    def _template(self, graph: CrsGraph, rows: int, columns: int) -> RankMatrix:
        """A matrix of one sample on a graph of local places."""
        numbers = self.numbers[graph.indices // columns] * columns + graph.indices % columns
        over, across = self.blocked(rows), self.blocked(columns)
        values = np.zeros((numbers.size, 1))
        if rows != columns:
            return RankMatrix(over.layout, across.layout, graph.indptr, numbers, values)
        callers = across.caller_of(numbers).astype(np.int32)
        return DistributedCrsMatrix(
            over, CrsMatrix(CrsGraph.unchecked(graph.indptr, callers, (over.n_local, over.n)), values)
        )


def shared_mesh(comm: Any, domains: int | None, make: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, MeshPart]:
    """Points, elements and volumes of this rank's part of the mesh that ``make()`` gives on rank 0.

    With the mesh come its boundary facets, facet i of element e as ``4 e + i``. Nodes are partitioned by coordinates.
    """
    whole, facets = None, np.zeros(0, np.int64)
    with agreement(comm):
        if comm.rank == 0:
            whole, facets = make()
    n = comm.bcast(None if whole is None else whole.n_nodes)
    partition = Partition(n, comm, domains, coordinates=None if whole is None else whole.points, method="coordinates")
    pieces = None
    if whole is not None:
        numbers = partition.number_of(np.arange(n))[whole.tets]
        owners = partition.owner_of(numbers.reshape(-1)).reshape(numbers.shape)
        alone = np.zeros((whole.n_elements, 4), bool)
        alone.reshape(-1)[facets] = True
        pieces = [_piece(whole, partition, numbers, alone, (owners == rank).any(axis=1)) for rank in range(comm.size)]
    nodes, elements, points, tets, volumes, alone = comm.scatter(pieces)
    require(nodes.size < 2**31, "TetMesh", "points", "be fewer than 2**31 on a rank", nodes.size)
    return points, tets, volumes, MeshPart(partition, nodes, elements, alone)


def _piece(whole: Any, partition: Partition, numbers: np.ndarray, alone: np.ndarray, touches: np.ndarray) -> Any:
    """What one rank gets: its nodes, elements, points, corners, volumes and facets."""
    elements = np.flatnonzero(touches)
    nodes, places = np.unique(numbers[elements], return_inverse=True)
    points = whole.points[partition.caller_of(nodes)]
    tets = places.reshape(-1, 4).astype(np.int32)
    return nodes, elements, points, tets, whole.volumes[elements], np.flatnonzero(alone[elements].reshape(-1))
