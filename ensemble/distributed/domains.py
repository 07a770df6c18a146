"""How many domains, which sizes, and which of them a rank holds."""

from __future__ import annotations

import numpy as np

__all__ = ["BLOCK", "default_domains", "domain_offsets", "rank_domains"]

BLOCK = 512
"""Rows of a block in sums over rows. A domain that begins at a multiple leaves these blocks as they are."""

ROWS = 2048
"""Rows of a domain, about: a power of two of domains has between 0.71 and 1.41 of it.

Ranks are most often a power of two as well. Then a rank has a whole side of a cut: on 8 and 32 ranks the halo of a box
of 64^3 cells has 26,700 and 64,700 rows with 128 domains, 30,600 and 79,300 with 135 of 2048 rows.
"""


def default_domains(n: int) -> int:
    """The power of two of domains that comes nearest to 2048 rows in each, by the ratio."""
    domains = 1
    while n * n >= 2 * (domains * ROWS) ** 2:  # n / domains >= sqrt(2) ROWS, without rounding
        domains *= 2
    return domains


def domain_offsets(n: int, domains: int) -> np.ndarray:
    """Where each domain begins in the order of domains, shape (domains + 1,), int64.

    From 512 rows in each domain on, all sizes but the last are multiples of 512 and differ by at most 512; below that
    they differ by at most one.
    """
    if n < BLOCK * domains:
        return _shares(n, domains)
    offsets: np.ndarray = np.minimum(BLOCK * _shares(-(-n // BLOCK), domains), n)
    return offsets


def _shares(count: int, parts: int) -> np.ndarray:
    """The bounds of nearly equal shares: ``floor(k count / parts)`` for k from 0 to `parts`."""
    whole, rest = divmod(count, parts)
    k: np.ndarray = np.arange(parts + 1, dtype=np.int64)
    bounds: np.ndarray = k * whole + k * rest // parts
    return bounds


def rank_domains(offsets: np.ndarray, size: int) -> np.ndarray:
    """The first domain of each rank, shape (size + 1,), int64: a domain is on the rank whose share has its middle.

    A share is an equal range of rows. With more ranks than domains some ranks have none.
    """
    domains = offsets.size - 1
    middle = offsets[:-1] + offsets[1:]  # twice, as the shares: integers
    whole, rest = divmod(2 * max(int(offsets[-1]), 1), size)
    rank = np.arange(size + 1, dtype=np.int64)
    share = rank * whole - (-rank * rest // size)  # rounded up
    first = np.searchsorted(middle, share).astype(np.int64)
    first[-1] = domains
    return first
