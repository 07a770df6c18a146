"""Coarse and fine rows over ranks: domain by domain, in an order that depends on the domains alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.multigrid.splitting import COARSE, UNDECIDED, split_free_rows
from ensemble._kernels.sparse.product_graphs import transpose_graph
from ensemble.distributed.messages import gathered
from ensemble.distributed.offsets import narrow, offsets_of
from ensemble.distributed.rank_matrix import RankMatrix
from ensemble.distributed.row_fetch import RowFetch

__all__ = ["coarse_rows_by_domains", "colours_of"]


def coarse_rows_by_domains(A: RankMatrix, strong: np.ndarray) -> np.ndarray:
    """True for the coarse rows of this rank, by the `strong` entries of A.

    Domains are coloured, so that no two neighbours have one colour, and split colour by colour: a domain sees what its
    neighbours of earlier colours decided. After each colour ranks exchange their decisions.
    """
    layout, n = A.rows, A.rows.n_local
    rows = np.repeat(np.arange(n), np.diff(A.indptr))
    counts = offsets_of(np.bincount(rows[strong], minlength=n))
    numbers = A.numbers[strong]
    ghosts = RowFetch(layout, counts, numbers, A.halo.ghosts)
    starts = np.concatenate([counts, counts[-1] + ghosts.indptr[1:]])
    numbers = np.concatenate([numbers, ghosts.numbers])
    state = np.full((n + A.halo.n_ghosts, 1), UNDECIDED, np.int8)
    first = int(layout.rank_domains[layout.comm.rank])
    colours = colours_of(A)
    bounds = layout.local_domain_offsets
    for colour in range(int(colours.max(initial=0)) + 1):
        for d in np.flatnonzero(colours[first : first + bounds.size - 1] == colour).tolist():
            split_domain(A, starts, numbers, int(bounds[d]), int(bounds[d + 1]), state)
        A.halo.exchange(state)
    return np.asarray(state[:n, 0] == COARSE)


def split_domain(A: RankMatrix, starts: np.ndarray, numbers: np.ndarray, a: int, b: int, state: np.ndarray) -> None:
    """Decide on the local rows ``a:b``, a domain, beside the rows that they are coupled to and that are decided.

    ``(starts, numbers)`` are the strong entries of local rows and ghosts.
    """
    first, n_free = A.rows.first, b - a
    around = np.unique(A.numbers[A.indptr[a] : A.indptr[b]])
    around = around[(around < first + a) | (around >= first + b)]
    place = A.halo.numbers(around)
    decided = state[place, 0] != UNDECIDED
    around, place = around[decided], place[decided]
    chosen = np.concatenate([np.arange(a, b), place])
    lengths = starts[chosen + 1] - starts[chosen]
    ends = np.cumsum(lengths)
    entries = np.arange(int(ends[-1]) if ends.size else 0) + np.repeat(starts[chosen] - (ends - lengths), lengths)
    columns, row = numbers[entries], np.repeat(np.arange(chosen.size), lengths)
    own = (columns >= first + a) & (columns < first + b)
    found = np.minimum(np.searchsorted(around, columns), max(around.size - 1, 0))
    known = own | (around[found] == columns if around.size else np.zeros(columns.size, bool))
    indices = np.where(own, columns - first - a, n_free + found)[known].astype(np.int32)
    indptr = narrow(offsets_of(np.bincount(row[known], minlength=chosen.size)))
    mine = np.concatenate([np.full(n_free, UNDECIDED, np.int8), state[place, 0]])
    split_free_rows(indptr, indices, *transpose_graph(indptr, indices, chosen.size)[:2], mine, n_free)
    state[a:b, 0] = mine[:n_free]


def colours_of(A: Any) -> np.ndarray:
    """A number for each domain, those of all ranks, other than that of domains whose rows it is coupled to."""
    layout = A.rows
    own = layout.domain_of(layout.first + np.repeat(np.arange(layout.n_local), np.diff(A.indptr)))
    pairs = np.unique(own * layout.n_domains + layout.domain_of(A.numbers))
    i, j = np.divmod(gathered(layout.comm, pairs), layout.n_domains)
    i, j = np.concatenate([i, j]), np.concatenate([j, i])
    order = np.argsort(i, kind="stable")
    neighbours = np.split(j[order], np.searchsorted(i[order], np.arange(1, layout.n_domains)))
    colours = np.full(layout.n_domains, -1)
    for d, near in enumerate(neighbours):
        taken = set(colours[near[near != d]].tolist())
        colours[d] = next(c for c in range(len(taken) + 1) if c not in taken)
    return colours
