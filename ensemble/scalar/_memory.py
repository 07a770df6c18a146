"""Memory that ensembles share: who is a view of whom, and parts that cannot be views but follow their array."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["MemoryToken", "follow", "refill"]


Part = tuple["weakref.ref[np.ndarray]", Callable[[np.ndarray], None]]

NO_PARTS: list[Part] = []
"""Stays empty."""


class MemoryToken:
    """Shared by all ensembles that are views of one memory: its reference count shows whether another one exists.

    `copies` are the parts of that memory that NumPy has as views and an ensemble cannot: each sample's comes from
    another place. They are arrays of their own, which are filled anew when the memory is written to.
    """

    # Of the class until there is a part: most ensembles get a token, and few have parts.
    limit: int = 16
    copies: list[Part] = NO_PARTS

    def in_use(self) -> bool:
        """Whether such a part exists."""
        if self.copies:
            self.copies = [copy for copy in self.copies if copy[0]() is not None]
        return bool(self.copies)


def follow(x: Any, part: Any, fill: Callable[[np.ndarray], None]) -> Any:
    """`part`, read-only, made to hold what ``fill(memory)`` writes, now and whenever the memory of `x` has changed."""
    memory = part.samples if part.samples.flags.owndata and part.samples.flags.writeable else np.array(part.samples)
    part.samples = memory.view()
    part.samples.flags.writeable = False
    if x._memory_token is None:
        x._memory_token = MemoryToken()
    part._memory_token = token = MemoryToken()

    def fill_all(memory: np.ndarray) -> None:
        fill(memory)
        refill(token)  # copies of parts of the part

    kept = x._memory_token
    if kept.copies is NO_PARTS:
        kept.copies = []
    kept.copies.append((weakref.ref(memory), fill_all))
    if len(kept.copies) > kept.limit:
        kept.in_use()  # forgets those that have gone; rarely, so that many that stay take no time
        kept.limit = 2 * len(kept.copies) + 16
    return part


def refill(token: MemoryToken | None) -> None:
    """Fill the copies of a memory that has been written to."""
    if token is None or not token.copies:
        return
    for reference, fill in token.copies:
        memory = reference()
        if memory is not None:
            fill(memory)
