"""Memory that ensembles share: who is a view of whom, and parts that cannot be views but follow their array."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["MemoryToken", "follow", "refill"]


class MemoryToken:
    """Shared by all ensembles that are views of one memory: its reference count shows whether another one exists.

    `copies` are the parts of that memory that NumPy has as views and an ensemble cannot: each sample's comes from
    another place. They are arrays of their own, which are filled anew when the memory is written to.
    """

    __slots__ = ("copies",)

    def __init__(self) -> None:
        self.copies: list[tuple[weakref.ref[np.ndarray], Callable[[np.ndarray], None]]] = []

    def in_use(self) -> bool:
        """Whether such a part exists."""
        self.copies = [copy for copy in self.copies if copy[0]() is not None]
        return bool(self.copies)


def follow(x: Any, part: Any, fill: Callable[[np.ndarray], None]) -> Any:
    """`part`, read-only, made to hold what ``fill(memory)`` writes, now and whenever the memory of `x` has changed."""
    memory = np.array(part.samples)
    part.samples = memory.view()
    part.samples.flags.writeable = False
    if x._memory_token is None:
        x._memory_token = MemoryToken()
    part._memory_token = token = MemoryToken()

    def fill_all(memory: np.ndarray) -> None:
        fill(memory)
        refill(token)  # copies of parts of the part

    x._memory_token.in_use()  # forgets those that have gone
    x._memory_token.copies.append((weakref.ref(memory), fill_all))
    return part


def refill(token: MemoryToken | None) -> None:
    """Fill the copies of a memory that has been written to."""
    if token is None or not token.copies:
        return
    for reference, fill in token.copies:
        memory = reference()
        if memory is not None:
            fill(memory)
