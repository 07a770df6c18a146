"""Entries of the inverse inside the filled graph, from a factorisation (Takahashi, Fagan, Chin 1973).

With ``A = L U``, ``U Z = L^-1`` and ``Z L = U^-1`` give, from the last row up (Erisman, Tinney 1975, Comm. ACM 18,
177), ``z_ij = -sum_k u_ik z_kj / u_ii`` and ``z_ji = -sum_k z_jk l_ki`` for j > i, and
``z_ii = (1 - sum_k u_ik z_ki) / u_ii``. Every entry on the right lies inside the filled symmetric graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile.allocation import new, new_full
from ensemble._compile.lanes.types import load, splat, store, zeros
from ensemble._compile.numba import compiled, compiled_unrolled, inner, output, per_width, prange
from ensemble._compile.registry import into, kernel
from ensemble._kernels.direct.forms.tiles import tiles_by_width

__all__ = ["FilledGraph", "selected_inverse"]

WIDEST = 8
"""Samples of a tile."""

PADDED = 1 << 17
"""Numbers of the inverses up to which tiles are filled with copies of the last sample: one width is compiled."""

LEAST_DENSE, MOST_DENSE = 64, 1024
"""Rows of matrices of which one sample's inverse is kept dense, twice: that of the coarsest level of a hierarchy."""

DENSE_GAIN, FEW = 6.0, 4
"""Products that the dense inverse takes in the time of one of the other way, about; samples up to which it pays.

Measured again by `benchmarks direct`.
"""

APART = 1 << 26
"""Bytes of a tile's inverses up to which a tile has memory of its own."""

COLUMNS = 32
"""Columns of a dense inverse that are summed at once: a sum for one of eight waits four cycles for each addition."""


class FilledGraph(NamedTuple):
    """The entries right of the diagonal of a filled symmetric graph, and where a factorisation has their values.

    `of_upper` holds the places of u_ij in row i, `of_lower` those of l_ji; -1 for a value that is always zero. Of
    LDL^T, u_ij stands for both, and l_ji is u_ij times the reciprocal pivot.
    """

    symmetric: bool
    starts: np.ndarray
    columns: np.ndarray
    of_upper: np.ndarray
    of_lower: np.ndarray
    diagonal: np.ndarray


@kernel
def selected_inverse(factors, graph, out):
    """The inverse on the filled graph: the diagonal, the entries right of it, those left of it across from these."""
    xp = array_namespace(factors)
    zero = xp.zeros(factors.shape[1:], dtype=factors.dtype)
    n, m = graph.diagonal.size, graph.columns.size
    value = lambda e: factors[e, ...] if e >= 0 else zero
    z: dict[tuple[int, int], Any] = {}
    for i in reversed(range(n)):
        run = range(int(graph.starts[i]), int(graph.starts[i + 1]))
        columns, pivot = [int(graph.columns[t]) for t in run], value(int(graph.diagonal[i]))
        u = {j: value(int(graph.of_upper[t])) for j, t in zip(columns, run, strict=True)}
        lower = {j: u[j] * pivot if graph.symmetric else value(int(graph.of_lower[t])) for j, t in zip(columns, run, strict=True)}  # fmt: skip  # noqa: E501
        total = zero
        for j in columns:
            right, left = zero, zero
            for k in columns:
                right, left = right + u[k] * z[k, j], left + lower[k] * z[j, k]
            z[i, j], z[j, i] = (zero - right) * pivot, zero - left
            total = total + u[j] * z[j, i]
        z[i, i] = (1.0 - total) * pivot
    places = [(i, int(graph.columns[t])) for i in range(n) for t in range(int(graph.starts[i]), int(graph.starts[i + 1]))]  # fmt: skip  # noqa: E501
    made = [z[i, i] for i in range(n)] + [z[i, j] for i, j in places] + [z[j, i] for i, j in places]
    return into(out, xp.stack(made) if n + m else xp.zeros((0, *zero.shape), dtype=factors.dtype))


@inner
def _value(factors, e, n_samples, first, nothing):
    return load(factors, np.int64(e) * n_samples + first, nothing) if e >= 0 else nothing


@inner
def _load_factors(factors, graph, i, right, left, width, n_samples, first, symmetric, nothing):
    """Row i of U and column i of L, dense."""
    starts, columns, of_upper, of_lower, diagonal = graph
    pivot = load(factors, diagonal[i] * n_samples + first, nothing)
    for t in range(starts[i], starts[i + 1]):
        place = np.int64(columns[t]) * width
        value = _value(factors, of_upper[t], n_samples, first, nothing)
        store(right, place, value)
        store(left, place, value * pivot if symmetric else _value(factors, of_lower[t], n_samples, first, nothing))


@inner
def _sum_products(graph, z, i, met, right, left, row, column, width, pitch, place, nothing):
    """The sums of products with entries of the inverse, dense, each in ascending order of the other index."""
    starts, columns, _, _, diagonal = graph
    n, m = diagonal.size, columns.size
    for t in range(starts[i], starts[i + 1]):
        met[columns[t]] = i
        store(row, np.int64(columns[t]) * width, nothing)
        store(column, np.int64(columns[t]) * width, nothing)
    for t in range(starts[i], starts[i + 1]):
        k = np.int64(columns[t])
        at = k * width
        u, lower = load(right, at, nothing), load(left, at, nothing)
        for s in range(starts[k], starts[k + 1]):  # entries (k, j) and (j, k) with j > k
            if met[columns[s]] == i:
                to = np.int64(columns[s]) * width
                above = load(z, (n + s) * pitch + place, nothing)
                below = load(z, (n + m + s) * pitch + place, nothing)
                store(row, to, load(row, to, nothing) + u * above)
                store(column, to, load(column, to, nothing) + lower * below)
    for t in range(starts[i], starts[i + 1]):
        j = np.int64(columns[t])
        at = j * width
        own = load(z, j * pitch + place, nothing)
        total, other = load(row, at, nothing), load(column, at, nothing)
        total, other = total + load(right, at, nothing) * own, other + load(left, at, nothing) * own
        for s in range(starts[j], starts[j + 1]):
            if met[columns[s]] == i:
                to = np.int64(columns[s]) * width
                above = load(z, (n + s) * pitch + place, nothing)
                below = load(z, (n + m + s) * pitch + place, nothing)
                total = total + load(right, to, nothing) * below
                other = other + load(left, to, nothing) * above
        store(row, at, total)
        store(column, at, other)


@per_width
def _selected(width, symmetric, apart):
    """Of tiles `apart` entries lie together while they are read: among those of all samples each has a page."""

    @compiled_unrolled
    def loop(factors, graph, z, n_samples, begin, n_tiles):
        for tile in prange(n_tiles):
            starts, columns, _, _, diagonal = graph
            n, m = diagonal.size, columns.size
            first = begin + np.int64(tile) * width
            if apart:
                own, pitch, place = new((n + 2 * m) * width, z.dtype), np.int64(width), np.int64(0)
            else:
                own, pitch, place = z, n_samples, first
            right, left, row, column = (
                new(n * width, z.dtype), new(n * width, z.dtype), new(n * width, z.dtype),
                new(n * width, z.dtype),
            )  # fmt: skip
            met = new_full(n, -1, np.int64)
            nothing = zeros(z, width)
            for i in range(n - 1, -1, -1):
                _load_factors(factors, graph, i, right, left, width, n_samples, first, symmetric, nothing)
                _sum_products(graph, own, i, met, right, left, row, column, width, pitch, place, nothing)
                pivot = load(factors, diagonal[i] * n_samples + first, nothing)
                total = nothing
                for t in range(starts[i], starts[i + 1]):
                    at = np.int64(columns[t]) * width
                    below = nothing - load(column, at, nothing)
                    store(own, (n + t) * pitch + place, (nothing - load(row, at, nothing)) * pivot)
                    store(own, (n + m + t) * pitch + place, below)
                    total = total + load(right, at, nothing) * below
                store(own, i * pitch + place, (1.0 - total) * pivot)
            if apart:
                for e in range(n + 2 * m):
                    store(z, e * n_samples + first, load(own, e * width, nothing))

    return loop


@per_width
def _selected_dense(width, symmetric):
    """As `_selected` for one sample: lanes are `width` columns of a dense inverse, kept as it is and transposed.

    A row is summed for all columns behind it, also for those that it does not have: their sums are not used.
    """

    @compiled
    def loop(factors, graph, z, pitch, n_samples, begin, n_tiles):
        for tile in prange(n_tiles):
            starts, columns, of_upper, of_lower, diagonal = graph
            n, m = diagonal.size, columns.size
            inverse, across = new_full(n * pitch, 0.0, z.dtype), new_full(n * pitch, 0.0, z.dtype)
            right, left, at = new(n, z.dtype), new(n, z.dtype), new(n, np.int64)
            row, column = new(pitch, z.dtype), new(pitch, z.dtype)
            first = begin + np.int64(tile)
            for i in range(n - 1, -1, -1):
                start, count = starts[i], starts[i + 1] - starts[i]
                pivot = factors[diagonal[i] * n_samples + first]
                for t in range(count):
                    e, f = of_upper[start + t], of_lower[start + t]
                    u = factors[e * n_samples + first] if e >= 0 else 0.0
                    lower = u * pivot
                    if not symmetric:
                        lower = factors[f * n_samples + first] if f >= 0 else 0.0
                    right[t] = u
                    left[t] = lower
                    at[t] = np.int64(columns[start + t]) * pitch
                for b in range((i + 1) // width * width, pitch, width):
                    above, below = zeros(z, width), zeros(z, width)
                    for t in range(count):
                        above = above + splat(right[t], z, width) * load(inverse, at[t] + b, width)
                        below = below + splat(left[t], z, width) * load(across, at[t] + b, width)
                    store(row, b, above)
                    store(column, b, below)
                total = 0.0
                for t in range(count):
                    j = np.int64(columns[start + t])
                    upper, under = (0.0 - row[j]) * pivot, 0.0 - column[j]
                    inverse[i * pitch + j], across[at[t] + i] = upper, upper
                    inverse[at[t] + i], across[i * pitch + j] = under, under
                    z[(n + start + t) * n_samples + first] = upper
                    z[(n + m + start + t) * n_samples + first] = under
                    total = total + right[t] * under
                own = (1.0 - total) * pivot
                inverse[i * pitch + i], across[i * pitch + i] = own, own
                z[i * n_samples + first] = own

    return loop


def _is_nearly_dense(graph: FilledGraph) -> bool:
    """Whether sums for all columns behind a row, several at once, take less time than sums for its own columns."""
    n, lengths = graph.diagonal.size, np.diff(graph.starts).astype(np.float64)
    everywhere, own = np.sum(lengths * np.arange(n, 0, -1)), np.sum(lengths**2)
    return LEAST_DENSE <= n <= MOST_DENSE and bool(everywhere <= DENSE_GAIN * own and n * n <= DENSE_GAIN * own)


@selected_inverse.register("numba")
def _(factors: np.ndarray, graph: FilledGraph, out: Any) -> np.ndarray:
    n, n_samples = graph.diagonal.size, factors.shape[1]
    out = output(out, (n + 2 * graph.columns.size, n_samples), factors.dtype)
    if 0 < n_samples <= FEW and factors.dtype == np.float64 and _is_nearly_dense(graph):
        pitch = -(-n // COLUMNS) * COLUMNS
        loop = _selected_dense(COLUMNS, graph.symmetric)
        loop(factors.reshape(-1), graph[1:], out.reshape(-1), pitch, n_samples, 0, n_samples)
        return out
    widest = tiles_by_width(WIDEST, WIDEST)[0][1]
    missing = -n_samples % widest
    if n_samples and missing and out.shape[0] * (n_samples + missing) <= PADDED:
        filled = np.concatenate([factors, np.repeat(factors[:, -1:], missing, axis=1)], axis=1)
        out[...] = selected_inverse(filled, graph, None)[:, :n_samples]
        return out
    for first, width, count in tiles_by_width(n_samples, WIDEST):
        apart = width < n_samples and out.shape[0] * width * out.itemsize <= APART
        loop = _selected(width, graph.symmetric, apart)
        loop(factors.reshape(-1), graph[1:], out.reshape(-1), n_samples, first, count)
    return out
