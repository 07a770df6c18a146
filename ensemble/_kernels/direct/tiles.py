"""What kernels of factorisations share: tiles of samples, and pivots."""

from __future__ import annotations

from typing import Any

from ensemble._compile.allocation import new
from ensemble._compile.numba import inner, tiles
from ensemble._compile.plain_code import Register, inlined

__all__ = ["aligned", "reciprocal", "runs_of_tiles", "tiles_by_width"]

BLOCKS = 64
"""Runs of tiles that threads share; each has one buffer."""


@inlined
def reciprocal(pivot: Register) -> Register:
    """1 / pivot; NaN where that is zero or not finite."""
    inverse = 1.0 / pivot
    return inverse + (pivot - pivot) + (inverse - inverse)


@inner
def aligned(count, like):
    """A new array of the type of `like` whose first number starts a cache line: no register straddles two lines."""
    line = 64 // like.itemsize
    raw = new(count + line, like.dtype)
    start = -(raw.ctypes.data // like.itemsize) % line
    return raw[start : start + count]


@inner
def runs_of_tiles(n_tiles):
    """Tiles of one run."""
    return max(1, (n_tiles + BLOCKS - 1) // BLOCKS)


def tiles_by_width(n_samples: int, widest: int) -> Any:
    """``(first, width, n_tiles)``: neighbouring tiles of one width together."""
    found: list[list[int]] = []
    for first, width in tiles(n_samples, widest):
        if found and found[-1][1] == width:
            found[-1][2] += 1
        else:
            found.append([first, width, 1])
    return found
