"""Bases of Lanczos' process by factorisations, all vectors of a basis in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.types import zeros
from ensemble._compile.numba import compiled, per_width, prange
from ensemble._kernels.direct.forms.tiles import aligned
from ensemble._kernels.direct.forms.triangular import ahead_of, graph_arrays, order_of, solve_tile
from ensemble._kernels.direct.symbolic.elimination import Elimination
from ensemble._kernels.krylov.lanczos import Basis
from ensemble._kernels.krylov.lanczos_steps import INTERLEAVED, end_of_step

__all__ = ["extend_by_inverse"]


@per_width
def _by_inverse(width: int, alone: bool) -> Any:
    @compiled
    def loop(
        v, behind, factors, graph, order, ahead, given, diagonal, c, sums, n_rows, n, first, last, capacity, n_tiles
    ):
        for t in prange(n_tiles):
            lower_starts, lower, upper_starts, upper, first_value, middle, nested, rows, columns = graph
            many, length, tile = zeros(v, width), np.int64(n_rows) * width, np.int64(t)
            one, lanes, y = zeros(v, 1), zeros(v, INTERLEAVED), aligned(n * width, v)
            base, own = tile * capacity * length, tile * capacity * width
            at = tile * (factors.size // n_tiles)
            for j in range(first, last):
                solve_tile(
                    factors, at, width, False, lower_starts, lower, upper_starts, upper, first_value, middle, nested,
                    rows, columns, n, v, behind, 1, width, base + j * length, y, order, ahead, many,
                )  # fmt: skip
                end_of_step(
                    v, given, diagonal, c, sums, n_rows, width, alone, base, own, tile, j, first, many, lanes, one
                )

    return loop


def extend_by_inverse(basis: Basis, values: np.ndarray, plan: Elimination, first: int, last: int) -> None:
    """Vectors of a basis after `first` up to `last`, by inverses with factors of shape (n_tiles, n_values, width)."""
    v, given, diagonal, rest = basis.flat
    n_rows, width = basis.vectors.shape[2], basis.width
    _by_inverse(width, width == 1)(
        v, v[n_rows * width :], values.reshape(-1), graph_arrays(plan, False), order_of(plan, False),
        ahead_of(width * values.itemsize), given, diagonal, rest, basis.partial, n_rows, basis.n, first, last,
        basis.capacity, basis.n_tiles,
    )  # fmt: skip
