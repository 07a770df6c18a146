"""The few types that signatures share."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

Array = Any
"""An array of any Array API library."""

Namespace = Any
"""A module or object that offers the Array API."""


@runtime_checkable
class LinearOperator(Protocol):
    """What a Krylov method needs to know of a matrix or a preconditioner."""

    shape: tuple[int, int]

    def __matmul__(self, x: Array) -> Array: ...
