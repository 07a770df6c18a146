"""Element growth of factorisations without exchanges: how many digits an elimination lost.

Bytes that must move, float64: ``8 S n_values``, read twice.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile.lanes.arithmetic import absolute
from ensemble._compile.lanes.types import load, select, splat, store, zeros
from ensemble._compile.numba import compiled, prange
from ensemble._compile.work_sharing import ALL_THREADS, ONE_THREAD
from ensemble._kernels.direct.forms.tiles import Tiles, aligned
from ensemble._kernels.direct.symbolic.elimination import Elimination

__all__ = ["element_growth", "jobs_of", "padded"]

SMALL = 1 << 17
"""Numbers below which one thread works (`benchmarks direct`)."""

SEED = 40_961


@functools.cache
def _growth(width: int) -> Any:
    """Longer than 60 lines: one compiled loop, whose parts share five vectors of a tile."""

    @compiled
    def loop(
        values, bases, stride, given, starts, across, n_entries, sources, symmetric, diagonal, first, lower_starts,
        lower, upper_starts, upper, probes, out,
    ):  # fmt: skip
        n, w = diagonal.size, np.int64(width)
        for job in prange(bases.size):
            base, nothing = bases[job], zeros(values, width)
            work = aligned(5 * n * w, values)
            one, size_one, two, size_two, columns = 0, n * w, 2 * n * w, 3 * n * w, 4 * n * w
            for j in range(n):
                store(work, columns + j * w, nothing)
            for i in range(n if n_entries else 0):
                for e in range(first[i], first[i + 1]):
                    if sources[e] >= 0:
                        j = np.int64(i)
                        if e < diagonal[i]:
                            j = np.int64(lower[lower_starts[i] + e - first[i]])
                        elif e > diagonal[i]:
                            j = np.int64(upper[upper_starts[i] + e - diagonal[i] - 1])
                        entry = absolute(load(given, starts[job] + np.int64(sources[e]) * across, nothing))
                        most = load(work, columns + j * w, nothing)
                        store(work, columns + j * w, select(entry > most, entry, most))
                        if symmetric:
                            most = load(work, columns + i * w, nothing)
                            store(work, columns + i * w, select(entry > most, entry, most))
            for i in range(n - 1, -1, -1):  # U v and |U| |v|
                most = load(work, columns + i * w, nothing)
                scale = 1.0 / select(most > 0.0, most, splat(1.0, values, nothing))
                pivot = 1.0 / load(values, base + np.int64(diagonal[i]) * stride, nothing)
                a = pivot * (scale * splat(probes[2 * i], values, nothing))
                b = pivot * (scale * splat(probes[2 * i + 1], values, nothing))
                size_a, size_b = absolute(a), absolute(b)
                place = base + (np.int64(diagonal[i]) + 1) * stride
                for t in range(upper_starts[i], upper_starts[i + 1]):
                    u, j = load(values, place, nothing), np.int64(upper[t])
                    most = load(work, columns + j * w, nothing)
                    scale = 1.0 / select(most > 0.0, most, splat(1.0, values, nothing))
                    part = u * (scale * splat(probes[2 * j], values, nothing))
                    a, size_a = a + part, size_a + absolute(part)
                    part = u * (scale * splat(probes[2 * j + 1], values, nothing))
                    b, size_b = b + part, size_b + absolute(part)
                    place += stride
                store(work, one + i * w, a)
                store(work, size_one + i * w, size_a)
                store(work, two + i * w, b)
                store(work, size_two + i * w, size_b)
            for i in range(n - 1, -1, -1):  # L times these, in place: rows above are not changed yet
                if symmetric:
                    inverse = load(values, base + np.int64(diagonal[i]) * stride, nothing)
                    a, b = load(work, one + i * w, nothing) * inverse, load(work, two + i * w, nothing) * inverse
                    inverse = absolute(inverse)
                    size_a = load(work, size_one + i * w, nothing) * inverse
                    size_b = load(work, size_two + i * w, nothing) * inverse
                    place = base + (np.int64(diagonal[i]) + 1) * stride
                    for t in range(upper_starts[i], upper_starts[i + 1]):
                        u, j = load(values, place, nothing), np.int64(upper[t]) * w
                        store(work, one + j, load(work, one + j, nothing) + u * a)
                        store(work, two + j, load(work, two + j, nothing) + u * b)
                        u = absolute(u)
                        store(work, size_one + j, load(work, size_one + j, nothing) + u * size_a)
                        store(work, size_two + j, load(work, size_two + j, nothing) + u * size_b)
                        place += stride
                else:
                    a, size_a = load(work, one + i * w, nothing), load(work, size_one + i * w, nothing)
                    b, size_b = load(work, two + i * w, nothing), load(work, size_two + i * w, nothing)
                    place = base + np.int64(first[i]) * stride
                    for t in range(lower_starts[i], lower_starts[i + 1]):
                        u, j = load(values, place, nothing), np.int64(lower[t]) * w
                        a = a + u * load(work, one + j, nothing)
                        b = b + u * load(work, two + j, nothing)
                        u = absolute(u)
                        size_a = size_a + u * load(work, size_one + j, nothing)
                        size_b = size_b + u * load(work, size_two + j, nothing)
                        place += stride
                    store(work, one + i * w, a)
                    store(work, size_one + i * w, size_a)
                    store(work, two + i * w, b)
                    store(work, size_two + i * w, size_b)
            growth, check = nothing, nothing
            for i in range(n):
                a, b = absolute(load(work, one + i * w, nothing)), absolute(load(work, two + i * w, nothing))
                total = select(b > a, b, a)
                a, b = load(work, size_one + i * w, nothing), load(work, size_two + i * w, nothing)
                check = check + ((a - a) + (b - b))
                ratio = select(b > a, b, a) / total
                growth = select(ratio > growth, ratio, growth)
            store(out, job * w, growth + check)

    return loop


def element_growth(values: Tiles | np.ndarray, plan: Elimination, given: np.ndarray | None) -> np.ndarray:
    """The size of ``|L| |U|`` by that of ``L U``, row by row, the largest per sample; NaN where a value is not finite.

    An estimate from products with two vectors: the backward error of an elimination is this times rounding [1]_.
    The vectors are over the largest entries of the columns of the matrix, whose values `given`, shape
    (nnz, n_samples or 1), are: growth in a small column counts although other columns are large.

    .. [1] Higham (2002), Accuracy and Stability of Numerical Algorithms, 2nd ed., section 9.3.
    """
    n = plan.diagonal.size
    n_samples = values.n_samples if isinstance(values, Tiles) else values.shape[1]
    if not n or not n_samples:
        return np.ones(n_samples)
    data, bases, width, n_samples = jobs_of(values)
    entries = np.zeros((0, width), data.dtype)
    if given is not None:
        wide = np.broadcast_to(given, (given.shape[0], n_samples)) if given.shape[1] == 1 else given
        entries = padded(wide, bases.size * width).astype(data.dtype, copy=False)
    starts = np.arange(bases.size) * width
    rng = np.random.default_rng(SEED)
    probes = rng.uniform(1.0, 2.0, (n, 2)) * rng.choice([-1.0, 1.0], (n, 2))
    growth = np.empty(bases.size * width, data.dtype)
    with np.errstate(all="ignore"):
        _growth(width)(
            data.reshape(-1), bases, data.shape[2], entries.reshape(-1), starts, entries.shape[1], entries.shape[0],
            plan.sources, plan.symmetric, plan.diagonal, plan.first, plan.lower_starts, plan.lower, plan.upper_starts,
            plan.upper, probes.reshape(-1).astype(data.dtype), growth,
            threads=ONE_THREAD if data.size <= SMALL else ALL_THREADS,
        )  # fmt: skip
    return growth[:n_samples].astype(np.float64)


def jobs_of(values: Tiles | np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Values by tiles, where those of 64 bytes of samples each begin, the number of these samples, and that of all."""
    n_samples = values.n_samples if isinstance(values, Tiles) else values.shape[1]
    width = 64 // (values.data.itemsize if isinstance(values, Tiles) else values.itemsize)
    jobs = np.arange(-(-n_samples // width))
    if isinstance(values, Tiles) and values.data.shape[2] % width == 0:
        data = values.data
    else:
        data = padded(values.rows(slice(None)) if isinstance(values, Tiles) else values, jobs.size * width)[None]
    tile, part = np.divmod(jobs, data.shape[2] // width)
    return data, tile * data.shape[1] * data.shape[2] + part * width, width, n_samples


def padded(values: np.ndarray, lanes: int) -> np.ndarray:
    """Values of more samples, the last one again and again; themselves where there are as many."""
    if values.shape[1] == lanes:
        return np.ascontiguousarray(values)
    padded = np.empty((values.shape[0], lanes), values.dtype)
    padded[:, : values.shape[1]] = values
    padded[:, values.shape[1] :] = values[:, -1:]
    return padded
