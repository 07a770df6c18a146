"""What kernels of factorisations share: tiles of samples, first values, and pivots."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.allocation import new
from ensemble._compile.numba import inner, tiles
from ensemble._compile.plain_code import Numbers, Register, inlined, load, spread

__all__ = [
    "Tiles",
    "aligned",
    "begun",
    "fill_broken",
    "read_tile",
    "reciprocal",
    "runs_of_tiles",
    "tiles_by_width",
    "write_tile",
]

BLOCKS = 64
"""Runs of tiles that threads share; each has one buffer (`benchmarks direct`)."""


@inlined
def begun(given: Numbers, stride: int, source: int) -> Register:
    """Return what a value of the factors begins as: the entry of the matrix at `source`, zero where it is negative."""
    return load(given, source * stride) if source >= 0 else spread(0.0)


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


class Tiles(NamedTuple):
    """Values of a factorisation, shape (n_tiles, n_values, width): those of a tile of samples are neighbours.

    The last tile may have lanes without a sample.
    """

    data: np.ndarray
    n_samples: int

    def rows(self, places: Any) -> np.ndarray:
        """Some of the values, shape (n_places, n_samples)."""
        if self.data.shape[0] == 1 and self.data.shape[2] == self.n_samples:
            return np.ascontiguousarray(self.data[0, places])
        chosen = self.data[:, places, :].transpose(1, 0, 2)
        lanes = self.data.shape[0] * self.data.shape[2]
        return np.ascontiguousarray(chosen.reshape(chosen.shape[0], lanes)[:, : self.n_samples])

    def fill(self, samples: np.ndarray, value: float) -> None:
        """Set all values of some samples."""
        tile, lane = np.divmod(np.asarray(samples), self.data.shape[2])
        self.data[tile, :, lane] = value


@inner
def read_tile(source, n_samples, first, count, tile, width):
    """Rows of a tile: `count` samples from `first` on, the last one again in the lanes that are left."""
    for row in range(tile.size // width):
        for lane in range(width):
            tile[row * width + lane] = source[row * n_samples + first + min(lane, count - 1)]


@inner
def write_tile(target, n_samples, first, count, tile, width):
    """The first `count` lanes of a tile to the samples from `first` on."""
    for row in range(tile.size // width):
        for lane in range(count):
            target[row * n_samples + first + lane] = tile[row * width + lane]


@inner
def fill_broken(x, n_samples, first, count, broken):
    """NaN for the samples whose mark is NaN, of `count` from `first` on."""
    for sample in range(first, first + count):
        if broken[sample] != broken[sample]:
            for row in range(x.size // n_samples):
                x[row * n_samples + sample] = np.nan
