"""Domains and coarse levels of a box of many ranks, made and coarsened for real, and their messages.

Every domain is a cube of ``edge^3`` nodes of hexahedra, and the box has ``2^k`` of them, in the order in which
`Partition` numbers them. The graph of one domain, with offsets to its neighbours, stands for all of them: it is
aggregated by the library's own `aggregate`, its prolongator smoothed and its Galerkin matrix formed by products of
graphs, level by level. Where domains get small, the library's own `RowLayout.joined` joins them over all domains and
ranks, and the graph of a domain becomes that of two. Rows at the surface of the box count as inner ones, and a domain
that the order reflects counts as its neighbour that is not.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ensemble._kernels.multigrid.aggregation import aggregate
from ensemble.distributed.bisection import coordinate_order
from ensemble.distributed.coarsening import SMALLEST_DOMAIN, early_parts
from ensemble.distributed.cost_model import LevelLoad
from ensemble.distributed.domains import rank_domains
from ensemble.distributed.layout import RowLayout
from ensemble.distributed.serial import SerialCommunicator
from ensemble.multigrid.coarse import is_coarsest

__all__ = ["Box", "SimulatedLevel", "cube_graph", "simulate"]

Offset = tuple[int, int, int]
Couplings = dict[Offset, Any]
"""For each offset of a neighbour, which rows of a domain couple to which of that neighbour: matrices of 0 and 1."""


class ManyRanks(SerialCommunicator):
    """A rank among `size` for what it works out by itself."""

    def __init__(self, size: int) -> None:
        self.size = size


# --- the box
class Box:
    """A box of ``2^k`` equal domains, two to each power along its axes, over `ranks` ranks of equally many domains.

    Attributes
    ----------
    shape : tuple of int
        Domains along each axis.
    at : array of int, shape (domains, 3)
        Where each domain lies, in the order of domains.
    axes : list of int
        Along which axis domains are joined, from the first joining on.
    """

    def __init__(self, domains: int, ranks: int) -> None:
        if domains & (domains - 1) or ranks & (ranks - 1) or domains < ranks:
            raise ValueError(f"Box: domains and ranks must be powers of two, ranks fewer; got {domains}, {ranks}.")
        self.domains, self.ranks = domains, ranks
        power = domains.bit_length() - 1
        self.shape = tuple(1 << ((power + 2 - axis) // 3) for axis in range(3))
        grid = np.stack(np.meshgrid(*map(np.arange, self.shape), indexing="ij"), axis=-1).reshape(-1, 3)
        self.at = grid[coordinate_order(grid.astype(float), np.arange(domains + 1, dtype=np.int64))[0]]
        extents = [np.ptp(self.at[: 1 << t], axis=0) for t in range(power + 1)]
        self.axes = [int(np.argmax(after - before)) for before, after in itertools.pairwise(extents)]

    def grid(self, joins: int) -> np.ndarray:
        """Domains along each axis after `joins` joinings."""
        return np.array(self.shape) // self._united(0, joins)

    def place(self, joins: int, united: int) -> Place:
        """A rank that has, of the domains after `joins` joinings, those that `united` joinings unite."""
        return Place(self._united(joins, united), self.grid(joins))

    def existing(self, A: Couplings, joins: int) -> Couplings:
        """The couplings to neighbours that some domain has."""
        return {o: part for o, part in A.items() if np.all(np.abs(o) < self.grid(joins))}

    def _united(self, first: int, last: int) -> np.ndarray:
        shape = np.ones(3, np.int64)
        np.multiply.at(shape, self.axes[first:last], 2)
        return shape


# --- the graph of a domain
@functools.lru_cache(maxsize=4)
def cube_graph(edge: int) -> Couplings:
    """The 27-point graph of a cube of ``edge^3`` nodes among its like."""
    n, found = edge**3, {}
    node = np.arange(n).reshape((edge,) * 3)
    pairs: dict[Offset, list[np.ndarray]] = {}
    for step in itertools.product((-1, 0, 1), repeat=3):
        place = np.indices((edge,) * 3) + np.array(step).reshape(3, 1, 1, 1)
        offset, inside = np.floor_divide(place, edge), place % edge
        column = node[tuple(inside)]
        for o in {tuple(int(k) for k in row) for row in offset.reshape(3, -1).T}:
            here = np.all(offset == np.array(o).reshape(3, 1, 1, 1), axis=0)
            pairs.setdefault(o, []).append(np.stack([node[here], column[here]]))
    for o, parts in pairs.items():
        rows, columns = np.concatenate(parts, axis=1)
        found[o] = sp.csr_array((np.ones(rows.size, bool), (rows, columns)), (n, n))
    return found


def _shift(a: Offset, b: Offset, sign: int) -> Offset:
    return tuple(y + sign * x for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


def _products(left: Couplings, right: Couplings, sign: int) -> Couplings:
    """The graph of a product: offsets add, or the first is taken back where `left` is a transpose."""
    found: Couplings = {}
    for (o, A), (q, B) in itertools.product(left.items(), right.items()):
        part = (A.T if sign < 0 else A) @ B
        if part.nnz:
            to = _shift(o, q, sign)
            found[to] = part if to not in found else found[to] + part
    return found


def coarsened(A: Couplings) -> tuple[Couplings, Couplings]:
    """The prolongator and the Galerkin matrix of aggregates within the domain."""
    own = sp.csr_array(A[0, 0, 0])
    own.sort_indices()
    n = own.shape[0]
    couplings = sum(np.diff(part.indptr) for part in A.values())
    member, count = aggregate(
        own.indptr[:-1].astype(np.int32),
        own.indptr[1:].astype(np.int32),
        own.indices.astype(np.int32),
        np.ones(n, bool),
        [np.diff(own.indptr) >= part * couplings for part in early_parts(n, 1)],
    )
    rows = np.flatnonzero(member >= 0)
    T = sp.csr_array((np.ones(rows.size, bool), (rows, member[rows])), (n, count))
    P = _products(A, {(0, 0, 0): T}, 1)
    return P, _products(P, _products(A, P, 1), -1)


def doubled(A: Couplings, axis: int) -> Couplings:
    """The graph of two neighbouring domains along `axis` as one."""
    found: dict[Offset, Any] = {}
    for o, part in A.items():
        for half in range(2):
            whole, other = divmod(half + o[axis], 2)
            unit = sp.csr_array((np.ones(1, bool), ([half], [other])), (2, 2))
            to: Offset = (*o[:axis], whole, *o[axis + 1 :])  # type: ignore[assignment]
            block = sp.kron(unit, part, format="csr")
            found[to] = sp.csr_array(block) if to not in found else found[to] + block
    return found


# --- messages
class Place:
    """The domains of a rank, inside the box where it has inner domains.

    Parameters
    ----------
    shape : array of int, shape (3,)
        Domains of the rank along each axis.
    grid : array of int, shape (3,)
        Domains of the whole along each axis.
    """

    def __init__(self, shape: np.ndarray, grid: np.ndarray) -> None:
        self.shape, self.grid = shape, grid
        self.first = np.where(grid // shape > 2, shape, 0)
        inside = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, 3)
        self.cells = inside + self.first

    def reached(self, offset: Offset, owned: Place | None) -> np.ndarray:
        """The domains at an offset from its own that exist and are not `owned`."""
        cells = self.cells + np.array(offset)
        there = np.all((cells >= 0) & (cells < self.grid), axis=1)
        if owned is not None:
            there &= np.any((cells < owned.first) | (cells >= owned.first + owned.shape), axis=1)
        return cells[there]


def read_rows(A: Couplings, place: Place, owned: Place | None, unit: np.ndarray) -> tuple[int, int]:
    """Ranks and rows that a rank reads in a product with `A`; it has those of `owned`, others `unit` each."""
    found = [(place.reached(o, owned), np.unique(part.indices)) for o, part in A.items()]
    return _distinct(found, unit)


def read_transposed(P: Couplings, coarse: Place, fine: Place) -> tuple[int, int]:
    """Ranks and fine rows that a rank reads which owns the coarse rows of `coarse` and the fine rows of `fine`."""
    found = []
    for o, part in P.items():
        back: Offset = tuple(-k for k in o)  # type: ignore[assignment]
        found.append((coarse.reached(back, fine), np.flatnonzero(np.diff(part.indptr))))
    return _distinct(found, fine.shape)


def _distinct(found: list[tuple[np.ndarray, np.ndarray]], unit: np.ndarray) -> tuple[int, int]:
    """How many ranks of `unit` domains, and how many distinct rows of distinct domains."""
    rows: dict[tuple[int, ...], list[np.ndarray]] = {}
    for cells, used in found:
        for cell in map(tuple, cells.tolist()) if used.size else ():
            rows.setdefault(cell, []).append(used)
    ranks = {tuple((np.array(cell) // unit).tolist()) for cell in rows}
    return len(ranks), sum(np.unique(np.concatenate(parts)).size for parts in rows.values())


# --- the levels
@dataclass(frozen=True)
class SimulatedLevel:
    """A level: what its busiest rank does, and what all of them do together.

    Attributes
    ----------
    load : LevelLoad
    domains : int
    rows_per_domain : int
    most_neighbours, mean_neighbours : int, float
        Ranks that a rank with rows exchanges with, by the graph of all domains.
    """

    load: LevelLoad
    domains: int
    rows_per_domain: int
    most_neighbours: int
    mean_neighbours: float


def neighbours(box: Box, joins: int, layout: RowLayout) -> tuple[int, float]:
    """The most and the mean number of ranks that a rank with rows couples to, by the graph of all domains."""
    domain = np.empty(box.shape, np.int64)
    domain[tuple(box.at.T)] = np.arange(box.domains) >> joins
    owner = np.searchsorted(layout.rank_domains, np.arange(layout.n_domains), side="right") - 1
    rank = owner[domain]
    pairs = []
    for step in itertools.product((0, 1), (-1, 0, 1), (-1, 0, 1)):
        if step <= (0, 0, 0):
            continue
        ahead = tuple(slice(max(s, 0), n + min(s, 0)) for s, n in zip(step, box.shape, strict=True))
        behind = tuple(slice(max(-s, 0), n + min(-s, 0)) for s, n in zip(step, box.shape, strict=True))
        a, b = rank[ahead].ravel(), rank[behind].ravel()
        apart = a != b
        pairs.append(np.minimum(a, b)[apart] * box.ranks + np.maximum(a, b)[apart])
    unique = np.unique(np.concatenate(pairs))
    counts = np.bincount(np.concatenate(np.divmod(unique, box.ranks)), minlength=1)
    active = np.unique(owner).size
    return int(counts.max(initial=0)), float(counts.sum() / active)


MADE: dict[tuple[Any, ...], Any] = {}
"""What was made before, by all steps that led to it: boxes of many ranks share most graphs."""


def graphs(edge: int, box: Box, smallest: int) -> Iterator[tuple[Couplings, Couplings, int]]:
    """The matrix of each level, its prolongator, and how often its domains were joined, without an end.

    A coarse level is joined while its domains have fewer than `smallest` rows.
    """
    steps: tuple[Any, ...] = (edge,)

    def step(name: Any, make: Callable[[], Any]) -> Any:
        nonlocal steps
        steps = (*steps, name)
        if steps not in MADE:
            MADE[steps] = make()
        return MADE[steps]

    def kept(A: Couplings, joins: int) -> Couplings:
        found = box.existing(A, joins)
        return step(frozenset(found), lambda: found)  # type: ignore[no-any-return]

    A, joins = kept(cube_graph(edge), 0), 0
    while True:
        P, coarse = step("coarsened", lambda A=A: coarsened(A))
        yield A, P, joins
        rows = coarse[0, 0, 0].shape[0]
        while box.domains >> joins > 1 and rows < smallest:
            coarse = step(box.axes[joins], lambda A=coarse, axis=box.axes[joins]: doubled(A, axis))
            coarse, joins, rows = kept(coarse, joins + 1), joins + 1, 2 * rows
        A = coarse


def simulate(edge: int, ranks: int, domains_per_rank: int = 1, smallest: int = SMALLEST_DOMAIN) -> list[SimulatedLevel]:
    """Return the levels of a hierarchy of ``ranks * domains_per_rank`` domains of ``edge^3`` rows each.

    Parameters
    ----------
    edge : int
        Nodes along the edge of a domain.
    ranks, domains_per_rank : int
        Powers of two.
    smallest : int
        Rows of a domain below which two are joined.
    """
    box, own = Box(ranks * domains_per_rank, ranks), domains_per_rank.bit_length() - 1
    offsets = np.arange(box.domains + 1, dtype=np.int64) * edge**3
    layout = RowLayout(ManyRanks(ranks), offsets, rank_domains(offsets, ranks))
    found, entries, made = [], [], graphs(edge, box, smallest)
    A, P, joins = next(made)
    while True:
        rows, per_domain = A[0, 0, 0].shape[0], sum(part.nnz for part in A.values())
        count, coarse_rows = box.domains >> joins, P[0, 0, 0].shape[1]
        assert layout.n_domains == count and layout.n == rows * count, "the domains are joined as the layout is"
        entries.append(per_domain * count)
        last = not coarse_rows < rows or is_coarsest(entries, rows * count, coarse_rows * count)
        place = box.place(joins, max(own, joins))
        held = place.cells.shape[0]
        transfers = (0, 0), (0, 0)
        if not last:
            following = next(made)
            wide = box.place(joins, max(own, following[2]))
            kept = wide if following[2] <= own else None  # else a rank that has no coarse rows reads the most
            transfers = read_transposed(P, wide, place), read_rows(P, place, kept, wide.shape)
        load = LevelLoad(held * rows, held * per_domain, *read_rows(A, place, place, place.shape), *transfers[0],
                         *transfers[1], rows * count, int(np.count_nonzero(np.diff(layout.rank_domains))))  # fmt: skip
        found.append(SimulatedLevel(load, count, rows, *neighbours(box, joins, layout)))
        if last:
            return found
        layout = layout.joined(np.full(count, coarse_rows, np.int64), smallest)
        A, P, joins = following
