"""Which rows each rank holds: consecutive domains, whose sizes depend on the problem alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.cuda import CHUNK
from ensemble.distributed.offsets import offsets_of
from ensemble.distributed.space import RankSpace

__all__ = ["RowLayout"]


class RowLayout:
    """Rows in domain order over ranks.

    Attributes
    ----------
    comm : communicator
    domain_offsets : array of int64, shape (n_domains + 1,)
        The first row of each domain, and the number of rows.
    rank_domains : array of int64, shape (size + 1,)
        The first domain of each rank.
    offsets : array of int64, shape (size + 1,)
        The first row of each rank.
    space : RankSpace
        Space of the vectors over these rows.
    """

    def __init__(self, comm: Any, domain_offsets: np.ndarray, rank_domains: np.ndarray) -> None:
        self.comm, self.domain_offsets, self.rank_domains = comm, domain_offsets, rank_domains
        self.offsets = domain_offsets[rank_domains]
        self.n = int(domain_offsets[-1])
        rank = comm.rank
        self.first, self.n_local = int(self.offsets[rank]), int(self.offsets[rank + 1] - self.offsets[rank])
        own = slice(int(rank_domains[rank]), int(rank_domains[rank + 1]) + 1)
        self.local_domain_offsets = domain_offsets[own] - self.first
        self.space = RankSpace(comm, self.first, self.local_domain_offsets)

    @property
    def has_whole_chunks(self) -> bool:
        """Whether all domains, those of other ranks too, begin with a chunk of rows, by which devices sum."""
        return not (self.domain_offsets[:-1] % CHUNK).any()

    @property
    def n_domains(self) -> int:
        """How many domains there are."""
        return self.domain_offsets.size - 1

    def owner_of(self, rows: np.ndarray) -> np.ndarray:
        """The rank that holds each row."""
        return np.searchsorted(self.offsets, rows, side="right") - 1

    def domain_of(self, rows: np.ndarray) -> np.ndarray:
        """The domain of each row."""
        return np.searchsorted(self.domain_offsets, rows, side="right") - 1

    def joined(self, sizes: np.ndarray, smallest: int) -> RowLayout:
        """The layout of a coarser level: unions of consecutive domains, each on the rank of its first domain.

        Parameters
        ----------
        sizes : array of int64, shape (n_domains,)
            Coarse rows of each domain, those of all ranks.
        smallest : int
            Domains 2k and 2k + 1 are joined while their mean size is below this.
        """
        firsts = np.arange(self.n_domains)
        sizes = sizes.copy()
        while sizes.size > 1 and sizes.sum() < smallest * sizes.size:
            pairs = np.arange(0, sizes.size, 2)
            sizes, firsts = np.add.reduceat(sizes, pairs), firsts[pairs]
        offsets = offsets_of(sizes)
        owners = np.searchsorted(self.rank_domains, firsts, side="right") - 1
        rank_domains = np.searchsorted(owners, np.arange(self.comm.size + 1)).astype(np.int64)
        return RowLayout(self.comm, offsets, rank_domains)
