"""Transposes of large matrices by square tiles in registers: samples last become samples first, and back.

Bytes (m by n numbers of 8 bytes): ``16 m n``.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.lanes.lane_blocks import transpose_tile
from ensemble._compile.numba import compiled_procedure

__all__ = ["TILE", "transpose"]

TILE = 8
"""Rows and columns of a tile, and the fewest of a matrix."""

BLOCK = 64
"""Rows and columns whose tiles follow each other, so that their lines are read and written as a whole in the cache."""


@compiled_procedure
def _transpose(source, target, n_rows, n_columns):
    for top in range(0, n_rows, BLOCK):
        for left in range(0, n_columns, BLOCK):
            for i in range(top, min(top + BLOCK, n_rows), TILE):
                row = min(i, n_rows - TILE)  # the last tile takes rows again that another one had
                for j in range(left, min(left + BLOCK, n_columns), TILE):
                    column = min(j, n_columns - TILE)
                    at, to = row * n_columns + column, column * n_rows + row
                    transpose_tile(source, at, n_columns, target, to, n_rows, TILE)


def transpose(source: np.ndarray, target: np.ndarray) -> None:
    """``target[...] = source.T`` of matrices in C order, both sides at least `TILE`, numbers of 4 or 8 bytes."""
    kind = np.int64 if source.itemsize == 8 else np.int32
    n_rows, n_columns = source.shape
    _transpose(source.view(kind).reshape(-1), target.view(kind).reshape(-1), n_rows, n_columns)
