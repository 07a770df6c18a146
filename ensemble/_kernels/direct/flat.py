"""Factorisation and solution by a flat list: every entry gathers its own sum in registers.

For graphs with little fill. The list holds, for every value in its order, its source in the matrix and the places of
the pairs of values whose products are subtracted, in ascending order: all bits are those of the other forms. It is read
once for the samples of a tile, whose values are contiguous, ``(entries, lanes)``.

Operations: a multiply-add takes two loads of registers and 8 bytes of the list; an entry is written once.

The functions of one tile are `plain`; code that Numba compiles calls them as `factor_one` and `solve_one`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile.lanes.types import zeros
from ensemble._compile.memory import empty
from ensemble._compile.numba import compiled, compiled_serial, inner, prange
from ensemble._compile.plain_code import LANES, Indices, Numbers, Register, behind, entry, inlined, load, plain, store
from ensemble._compile.work_sharing import ALL_THREADS, ONE_THREAD
from ensemble._kernels.direct.tiles import runs_of_tiles

__all__ = ["LU", "SYMMETRIC", "TRANSPOSED", "factor_one", "factorized_flat", "flat_list", "solve_one", "solved_flat"]

LU, TRANSPOSED, SYMMETRIC = 0, 1, 2
"""Orders of substitution."""

WIDE = 32
"""Samples of a wide tile; a narrow one has 64 bytes of them. The last tile of either may be partly empty."""

CACHED, REUSED = 1 << 20, 4
"""Bytes of the values of a wide tile, and multiply-adds for each value, above both of which tiles are narrow."""

SMALL = 1 << 17
"""Numbers of the values of all samples below which one thread works."""

HEAD = 9
"""Numbers before the first part of a list: its rows, its values, and the places of its parts."""


# --- the list
@compiled_serial
def _pairs(symmetric, sources, lower_starts, lower, across, upper_starts, upper, first, diagonal, out):
    """Write what each value is made of; returns the number of integers.

    Of every row: the values left and right of the diagonal. Of every value: its source, the number of its pairs, left
    of the diagonal the place of the reciprocal pivot, and the pairs.
    """
    n = diagonal.size
    place = np.full(n, -1, np.int64)  # of the values of the row, by column
    counts = np.zeros(sources.size, np.int64)
    cursor = np.empty(sources.size, np.int64)
    at = 0
    for i in range(n):
        low, high = lower_starts[i], lower_starts[i + 1]
        begin, own = first[i], diagonal[i]
        if not symmetric:
            for p in range(low, high):
                place[lower[p]] = begin + p - low
        place[i] = own
        for t in range(upper_starts[i], upper_starts[i + 1]):
            place[upper[t]] = own + 1 + t - upper_starts[i]
        for turn in range(2):
            for p in range(low, high):
                k = lower[p]
                shift = diagonal[k] + 1 - upper_starts[k]
                start = across[p] if symmetric else upper_starts[k]
                factor = start + shift if symmetric else begin + p - low
                for t in range(start, upper_starts[k + 1]):
                    e = place[upper[t]]
                    if e < begin:
                        continue
                    if turn == 0:
                        counts[e] += 1
                    else:
                        out[cursor[e]], out[cursor[e] + 1] = factor, t + shift
                        cursor[e] += 2
            if turn == 0:
                out[at], out[at + 1] = own - begin, first[i + 1] - own - 1
                at += 2
                for e in range(begin, first[i + 1]):
                    out[at], out[at + 1] = sources[e], counts[e]
                    at += 2
                    if e < own:
                        out[at] = diagonal[lower[low + e - begin]]
                        at += 1
                    cursor[e] = at
                    at += 2 * counts[e]
    return at


def flat_list(plan: Any) -> np.ndarray:
    """All indices of an elimination, int32: those of its solutions, and the pairs of its factorisation."""
    parts = [plan.first, plan.diagonal, plan.lower_starts, plan.upper_starts, plan.rows, plan.columns]
    parts += [plan.lower, plan.upper]
    places = HEAD + np.cumsum([0, *(part.size for part in parts)])
    size = 2 * plan.diagonal.size + 2 * plan.n_values + plan.lower.size + 2 * plan.multiply_adds
    pairs = np.empty(size, np.int32)
    count = _pairs(
        plan.symmetric, plan.sources, plan.lower_starts, plan.lower, plan.across, plan.upper_starts, plan.upper,
        plan.first, plan.diagonal, pairs,
    )  # fmt: skip
    head = [plan.diagonal.size, *places[1:]]
    return np.concatenate([head, *parts, pairs[:count]]).astype(np.int32)


# --- one tile
@inlined
def _reciprocal(pivot: Register) -> Register:
    """1 / pivot; NaN where that is zero or not finite."""
    inverse = 1.0 / pivot
    return inverse + (pivot - pivot) + (inverse - inverse)


@inlined
def _gathered(total: Register, pairs: Indices, low: int, high: int, left: Numbers, right: Numbers) -> Register:
    """`total` less the products of pairs."""
    for p in range(low, high, 2):
        total = total - load(left, pairs[p] * LANES) * load(right, pairs[p + 1] * LANES)
    return total


@plain
def factor_tile(
    values: Numbers, first: int, stride: int, out: Numbers, scaled: Numbers, broken: Numbers, program: Indices,
    symmetric: bool, zero: Register,
) -> None:  # fmt: skip
    """The values of the factorisation of a tile in `out`, and in `broken` NaN where one is not finite, else zero.

    Entry k of the matrix lies at ``values[first + k * stride]``. Of LDL^T, `scaled` is free for as many numbers as
    `out`.
    """
    given, pairs, check, e, at = behind(values, first), behind(program, program[8]), zero, 0, 0
    for _i in range(program[0]):
        end, last = e + pairs[at], e + pairs[at] + pairs[at + 1]
        at += 2
        while e < end:
            source, high = pairs[at], at + 3 + 2 * pairs[at + 1]
            total = load(given, source * stride) if source >= 0 else zero
            total = _gathered(total, pairs, at + 3, high, out, out) * load(out, pairs[at + 2] * LANES)
            check = check + (total - total)
            store(out, e * LANES, total)
            e, at = e + 1, high
        source, high = pairs[at], at + 2 + 2 * pairs[at + 1]
        total = load(given, source * stride) if source >= 0 else zero
        if symmetric:
            pivot = _reciprocal(_gathered(total, pairs, at + 2, high, scaled, out))
        else:
            pivot = _reciprocal(_gathered(total, pairs, at + 2, high, out, out))
        check = check + (pivot - pivot)
        store(out, e * LANES, pivot)
        e, at = e + 1, high
        while e <= last:
            source, high = pairs[at], at + 2 + 2 * pairs[at + 1]
            total = load(given, source * stride) if source >= 0 else zero
            if symmetric:
                total = _gathered(total, pairs, at + 2, high, scaled, out)
                store(scaled, e * LANES, total * pivot)
            else:
                total = _gathered(total, pairs, at + 2, high, out, out)
            check = check + (total - total)
            store(out, e * LANES, total)
            e, at = e + 1, high
    store(broken, 0, check)


@inlined
def _rows_before(
    factors: Numbers, stride: int, program: Indices, b: Numbers, far: int, shared: bool, y: Numbers
) -> None:
    """Forward substitution by rows of L, from `b` to `y`."""
    n = program[0]
    first, starts = behind(program, HEAD), behind(program, program[2])
    rows, columns = behind(program, program[4]), behind(program, program[6])
    for i in range(n):
        if shared:
            store(y, i * LANES, b[rows[i] * far])
            total = load(y, i * LANES)
        else:
            total = load(b, rows[i] * far)
        low, at = starts[i], first[i] * stride
        for p in range(low, starts[i + 1]):
            total = total - load(factors, at + (p - low) * stride) * load(y, columns[p] * LANES)
        store(y, i * LANES, total)


@inlined
def _rows_after(factors: Numbers, stride: int, program: Indices, x: Numbers, far: int, y: Numbers) -> None:
    """Backward substitution by rows of U, from `y` to `x`."""
    n = program[0]
    diagonal, starts = behind(program, program[1]), behind(program, program[3])
    to, columns = behind(program, program[5]), behind(program, program[7])
    for i in range(n - 1, -1, -1):
        total = load(y, i * LANES)
        low, at = starts[i], (diagonal[i] + 1) * stride
        for p in range(low, starts[i + 1]):
            total = total - load(factors, at + (p - low) * stride) * load(y, columns[p] * LANES)
        total = total * load(factors, at - stride)
        store(y, i * LANES, total)
        store(x, to[i] * far, total)


@inlined
def _columns_before(
    factors: Numbers, stride: int, program: Indices, b: Numbers, far: int, shared: bool, y: Numbers, symmetric: bool
) -> None:
    """Forward substitution by columns of U^T, from `b` to `y`."""
    n = program[0]
    diagonal, starts = behind(program, program[1]), behind(program, program[3])
    rows, columns = behind(program, program[5]), behind(program, program[7])
    for i in range(n):
        if shared:
            store(y, i * LANES, b[rows[i] * far])
        else:
            store(y, i * LANES, load(b, rows[i] * far))
    for i in range(n):
        low, at = starts[i], (diagonal[i] + 1) * stride
        total = load(y, i * LANES) * load(factors, at - stride)
        if not symmetric:
            store(y, i * LANES, total)
        for p in range(low, starts[i + 1]):
            place = columns[p] * LANES
            store(y, place, load(y, place) - load(factors, at + (p - low) * stride) * total)


@inlined
def _columns_after(factors: Numbers, stride: int, program: Indices, x: Numbers, far: int, y: Numbers) -> None:
    """Backward substitution by columns of L^T, from `y` to `x`."""
    n = program[0]
    first, starts = behind(program, HEAD), behind(program, program[2])
    to, columns = behind(program, program[4]), behind(program, program[6])
    for i in range(n - 1, -1, -1):
        total = load(y, i * LANES)
        store(x, to[i] * far, total)
        low, at = starts[i], first[i] * stride
        for p in range(low, starts[i + 1]):
            place = columns[p] * LANES
            store(y, place, load(y, place) - load(factors, at + (p - low) * stride) * total)


@plain
def solve_tile(
    factors: Numbers, first: int, stride: int, program: Indices, b: Numbers, b_first: int, b_far: int, shared: bool,
    x: Numbers, x_first: int, x_far: int, y: Numbers, order: int, zero: Register,
) -> None:  # fmt: skip
    """x in ``A x = b``, of a tile.

    Value e of the factorisation lies at ``factors[first + e * stride]``, row i of b at ``b[b_first + i * b_far]``, one
    number for all lanes if `shared`. `y` is free for one vector.
    """
    own, given, made = behind(factors, first), behind(b, b_first), behind(x, x_first)
    if order == LU:
        _rows_before(own, stride, program, given, b_far, shared, y)
    else:
        _columns_before(own, stride, program, given, b_far, shared, y, order == SYMMETRIC)
    if order == TRANSPOSED:
        _columns_after(own, stride, program, made, x_far, y)
    else:
        _rows_after(own, stride, program, made, x_far, y)


factor_one, solve_one = entry(factor_tile), entry(solve_tile)


# --- all samples
@inner
def _read(source, n_samples, first, count, tile, width):
    """Rows of a tile: `count` samples from `first` on, the last one again in the lanes that are left."""
    for row in range(tile.size // width):
        for lane in range(width):
            tile[row * width + lane] = source[row * n_samples + first + min(lane, count - 1)]


@inner
def _write(tile, width, target, n_samples, first, count):
    """The first `count` lanes of a tile to the samples from `first` on."""
    for row in range(tile.size // width):
        for lane in range(count):
            target[row * n_samples + first + lane] = tile[row * width + lane]


@functools.cache
def _factor(width: int) -> Any:
    @compiled
    def loop(values, out, broken, program, n_values, symmetric, n_samples, begin, n_tiles):
        run = runs_of_tiles(n_tiles)
        for r in prange((n_tiles + run - 1) // run):
            entries, bad = values.size // n_samples, np.empty(width, values.dtype)
            work = out if n_samples == width else np.empty(n_values * width, values.dtype)
            scaled = np.empty(n_values * width if symmetric else 0, values.dtype)
            nothing = zeros(values, width)
            for tile in range(np.int64(r) * run, min((np.int64(r) + 1) * run, n_tiles)):
                first = begin + tile * width
                count = min(np.int64(width), n_samples - first)
                if count == width:
                    given, stride, start = values, n_samples, first
                else:
                    given, stride, start = np.empty(entries * width, values.dtype), np.int64(width), np.int64(0)
                    _read(values, n_samples, first, count, given, width)
                factor_one(given, start, stride, work, scaled, bad, program, symmetric, nothing)
                if n_samples != width:
                    _write(work, width, out, n_samples, first, count)
                for lane in range(count):
                    broken[first + lane] = bad[lane]

    return loop


@functools.cache
def _solve(width: int) -> Any:
    @compiled
    def loop(factors, program, b, x, n, k, shared, order, n_samples, begin, n_tiles):
        run = runs_of_tiles(n_tiles)
        for r in prange((n_tiles + run - 1) // run):
            y, nothing = np.empty(n * width, factors.dtype), zeros(factors, width)
            for tile in range(np.int64(r) * run, min((np.int64(r) + 1) * run, n_tiles)):
                first = begin + tile * width
                count = min(np.int64(width), n_samples - first)
                if count == width:
                    for c in range(k):
                        start, far = (c, k) if shared else (c * n_samples + first, k * n_samples)
                        solve_one(
                            factors, first, n_samples, program, b, start, far, shared, x, c * n_samples + first,
                            k * n_samples, y, order, nothing,
                        )  # fmt: skip
                else:
                    w = np.int64(width)
                    own = np.empty(factors.size // n_samples * width, factors.dtype)
                    _read(factors, n_samples, first, count, own, width)
                    given, made = b, np.empty(n * k * width, factors.dtype)
                    if not shared:
                        given = np.empty(n * k * width, factors.dtype)
                        _read(b, n_samples, first, count, given, width)
                    for c in range(k):
                        start, far = (c, k) if shared else (c * w, k * w)
                        solve_one(
                            own, 0, w, program, given, start, far, shared, made, c * w, k * w, y, order, nothing
                        )  # fmt: skip
                    _write(made, width, x, n_samples, first, count)

    return loop


def _tiles(plan: Any, n_samples: int, itemsize: int) -> list[tuple[int, int, int]]:
    """``(first, width, n_tiles)``: wide tiles, then narrow ones; a half-filled tile may be the last."""
    narrow = 64 // itemsize
    n_wide = (n_samples + WIDE // 2 - 1) // WIDE
    if WIDE * itemsize * plan.n_values > CACHED and plan.multiply_adds > REUSED * plan.n_values:
        n_wide = 0
    rest = n_samples - n_wide * WIDE
    found = [(0, WIDE, n_wide)] if n_wide else []
    return [*found, (n_wide * WIDE, narrow, -(-rest // narrow))] if rest > 0 else found


def factorized_flat(values: Any, plan: Any, out: Any, broken: Any) -> None:
    """`factors.factorized` by the plan's list."""
    n_samples, itemsize = values.shape[1], values.itemsize
    flat_values, flat_out = values.reshape(-1), out.reshape(-1)
    threads = ONE_THREAD if out.size <= SMALL else ALL_THREADS
    for first, width, count in _tiles(plan, n_samples, itemsize):
        _factor(width)(
            flat_values, flat_out, broken, plan.flat, plan.n_values, plan.symmetric, n_samples, first, count,
            threads=threads,
        )  # fmt: skip


def solved_flat(factors: Any, plan: Any, b: Any, order: int, out: Any) -> Any:
    """`triangular.factor_solve` by the plan's list; `b` may have one sample for all."""
    n_samples, (n, k, given) = factors.shape[1], b.shape
    out = empty((n, k, n_samples), b.dtype) if out is None else out
    flat_factors, flat_b, flat_x = factors.reshape(-1), b.reshape(-1), out.reshape(-1)
    threads = ONE_THREAD if factors.size <= SMALL else ALL_THREADS
    for first, width, count in _tiles(plan, n_samples, b.itemsize):
        _solve(width)(
            flat_factors, plan.flat, flat_b, flat_x, n, k, given != n_samples, order, n_samples, first, count,
            threads=threads,
        )  # fmt: skip
    return out
