"""Factorisations and solutions of all samples by supernodes, tile by tile.

Bytes that must move, float64: as in `flat_tiles.py`. The rows of a supernode above lie one after another in memory, a
cache line for each entry of a tile.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile.allocation import new
from ensemble._compile.kept_memory import empty, empty_like
from ensemble._compile.lanes.types import zeros
from ensemble._compile.numba import compiled, prange, thread_count
from ensemble._kernels.direct.forms.flat import LU, SYMMETRIC
from ensemble._kernels.direct.forms.supernodal import BLOCK, FACTORS, factor_tile
from ensemble._kernels.direct.forms.tiles import Tiles, aligned, fill_broken, read_tile, write_tile
from ensemble._kernels.direct.forms.triangular import ahead_of, graph_arrays, solve_tile, solve_tiles

__all__ = ["empty_panels", "factorized_panels", "solved_panels"]


@functools.cache
def _panel_loop(width: int) -> Any:
    """Factorisations, and solutions where `solved`; a tile's values are kept in `tiles` if `kept`, else until the next.

    The last tile may have lanes without a sample: these repeat the last sample.
    """

    @compiled
    def loop(values, plan, nodes, sizes, tiles, broken, n_samples, n_tiles, n_runs, flags, graph, ahead, b, x):
        for r in prange(n_runs):
            symmetric, kept, solved = flags
            begins, pivots = plan
            rows, starts, columns, updates, sources, left = nodes
            lower_starts, lower, upper_starts, upper, first_value, diagonal, nested, order, places = graph
            widest, longest, area = sizes
            w, n, n_values, entries = np.int64(width), pivots.size, begins.size, values.size // n_samples
            count = 2 * area + 2 * widest * widest + widest // 4 * FACTORS + 16 * widest
            work = aligned(count * w + BLOCK, values)
            work[:] = 0
            y = aligned(n * w if solved else 0, values)
            integers = np.empty(rows[rows.size - 1] + longest + 4 + 3 * widest, np.int64)
            for tile in range(np.int64(r) * n_tiles // n_runs, (np.int64(r) + 1) * n_tiles // n_runs):
                first, at = tile * w, (tile if kept else np.int64(r)) * w * n_values
                rest, given, start, stride = min(n_samples - first, w), values, first, n_samples
                if rest < w:
                    padded = new(entries * w, values.dtype)
                    read_tile(values, n_samples, first, rest, padded, width)
                    given, start, stride = padded, np.int64(0), w
                factor_tile(
                    given, start, stride, tiles, at, broken, first, begins, pivots, rows, rows.size - 1, starts,
                    columns, left, updates, sources, widest, longest, area, work, integers, zeros(values, width),
                    symmetric,
                )  # fmt: skip
                if not solved:
                    continue
                right, made, start, stride = b, x, first, n_samples
                if rest < w:
                    padded_b = new(n * w, b.dtype)
                    read_tile(b, n_samples, first, rest, padded_b, width)
                    right, made, start, stride = padded_b, new(n * w, b.dtype), np.int64(0), w
                solve_tile(
                    tiles, at, w, False, lower_starts, lower, upper_starts, upper, first_value, diagonal, nested, order,
                    places, n, right, made, 1, stride, start, y, SYMMETRIC if symmetric else LU, ahead,
                    zeros(b, width),
                )  # fmt: skip
                if rest < w:
                    write_tile(x, n_samples, first, rest, made, width)
                fill_broken(x, n_samples, first, rest, broken)

    return loop


def _width(n_samples: int, itemsize: int) -> int:
    """Samples of a tile: 64 bytes of them, or 32 where that is enough."""
    lanes = 64 // itemsize
    return 1 if n_samples == 1 else lanes // 2 if n_samples <= lanes // 2 else lanes


def empty_panels(n_samples: int, n_values: int, dtype: Any) -> Tiles:
    """Tiles without numbers."""
    width = _width(n_samples, np.dtype(dtype).itemsize)
    return Tiles(empty((-(-n_samples // width), n_values, width), dtype), n_samples)


def factorized_panels(values: Any, plan: Any, b: Any = None, keep: bool = True) -> tuple[Any, Tiles | None, np.ndarray]:
    """x in ``A x = b`` where `b` is given, the values if `keep`, and what is NaN for a sample that broke.

    b and x have shape (n, n_samples); x is NaN for a sample that broke.
    """
    *nodes, sizes = plan.supernodes
    n_samples = values.shape[1]
    width = _width(n_samples, values.itemsize)
    n_tiles = -(-n_samples // width)
    n_runs = min(n_tiles, thread_count())
    tiles = Tiles(empty((n_tiles if keep else n_runs, plan.n_values, width), values.dtype), n_samples)
    broken, x = np.empty(n_tiles * width, values.dtype), None if b is None else empty(b.shape, b.dtype)
    right, made = (a.reshape(-1) if a is not None else broken for a in (b, x))
    _panel_loop(width)(
        values.reshape(-1), (plan.sources, plan.diagonal), tuple(nodes), sizes, tiles.data.reshape(-1), broken,
        n_samples, n_tiles, n_runs, (plan.symmetric, keep, b is not None), graph_arrays(plan, False),
        ahead_of(width * values.itemsize), right, made,
    )  # fmt: skip
    return x, tiles if keep else None, broken[:n_samples]


def solved_panels(tiles: Tiles, plan: Any, b: Any, transposed: bool, out: Any) -> Any:
    """`triangular.factor_solve` with values in tiles."""
    n_samples = b.shape[2]
    out = empty(b.shape, b.dtype) if out is None else out
    width = tiles.data.shape[2]
    full, rest = divmod(n_samples, width)
    if full:
        solve_tiles(tiles.data[:full], plan, b, transposed, out)
    if rest:
        last = np.repeat(b[..., -1:], width, axis=2)
        last[..., :rest] = b[..., full * width :]
        out[..., full * width :] = solve_tiles(tiles.data[full:], plan, last, transposed, empty_like(last))[..., :rest]
    return out
