"""Factorisation and solution by a flat list: every entry gathers its own sum in registers.

For graphs with little fill. The list holds, for every value in its order, its source in the matrix and the places of
the pairs of values whose products are subtracted, in ascending order: all bits are those of the other forms. It is read
once for the samples of a tile, whose values are contiguous, ``(entries, lanes)``.

Operations: a multiply-add takes two loads of registers and 8 bytes of the list; an entry is written once.

The functions of one tile are `plain`; code that Numba compiles calls them as `factor_one`, `solve_one`
and `factor_solve_one`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.allocation import new, new_full
from ensemble._compile.numba import compiled_procedure
from ensemble._compile.plain_code import (
    LANES,
    Indices,
    Numbers,
    Register,
    behind,
    entry,
    inlined,
    load,
    plain,
    prefetch,
    store,
)
from ensemble._kernels.direct.forms.tiles import begun, reciprocal

__all__ = ["LU", "SYMMETRIC", "TRANSPOSED", "factor_one", "factor_solve_one", "flat_list", "solve_one"]

LU, TRANSPOSED, SYMMETRIC = 0, 1, 2
"""Orders of substitution."""

AHEAD = 16
"""Values ahead of the present one whose entries of the matrix are prefetched (`benchmarks direct`)."""

HEAD = 11
"""Numbers before the first part of a list: its rows, its values, and the places of its parts."""


# --- the list
@compiled_procedure
def _pairs(symmetric, n_values, lower_starts, lower, across, upper_starts, upper, first, diagonal, out):
    """Write what each value is made of; returns the number of integers.

    Of every row: the values left and right of the diagonal. Of every value: the number of its pairs, left of the
    diagonal the place of the reciprocal pivot, and the pairs.
    """
    n = diagonal.size
    place = new_full(n, -1, np.int64)  # of the values of the row, by column
    counts = new_full(n_values, 0, np.int64)
    cursor = new(n_values, np.int64)
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
                    out[at] = counts[e]
                    at += 1
                    if e < own:
                        out[at] = diagonal[lower[low + e - begin]]
                        at += 1
                    cursor[e] = at
                    at += 2 * counts[e]
    return at


def flat_list(plan: Any) -> np.ndarray:
    """All indices of an elimination, int32: those of its solutions, and the pairs of its factorisation."""
    parts = [plan.first, plan.diagonal, plan.lower_starts, plan.upper_starts, plan.rows, plan.columns]
    parts += [plan.lower, plan.upper, plan.sources, np.full(AHEAD, -1)]
    places = HEAD + np.cumsum([0, *(part.size for part in parts)])
    size = 2 * plan.diagonal.size + plan.n_values + plan.lower.size + 2 * plan.multiply_adds
    pairs = np.empty(size, np.int32)
    count = _pairs(
        plan.symmetric, plan.n_values, plan.lower_starts, plan.lower, plan.across, plan.upper_starts, plan.upper,
        plan.first, plan.diagonal, pairs,
    )  # fmt: skip
    head = [plan.diagonal.size, *places[1:]]
    return np.concatenate([head, *parts, pairs[:count]]).astype(np.int32)


# --- one tile
@inlined
def _gathered(total: Register, pairs: Indices, low: int, high: int, left: Numbers, right: Numbers) -> Register:
    """`total` less the products of pairs."""
    for p in range(low, high, 2):
        total = total - load(left, pairs[p] * LANES) * load(right, pairs[p + 1] * LANES)
    return total


@inlined
def _vector(b: Numbers, place: int, shared: bool, y: Numbers, to: int) -> Register:
    """Entry `place` of the right-hand side, one number for all lanes if `shared`; ``y[to]`` is free."""
    if shared:
        store(y, to, b[place])
    else:
        store(y, to, load(b, place))
    return load(y, to)


@inlined
def _factorized(
    values: Numbers, first: int, stride: int, factors: Numbers, to: int, scaled: Numbers, broken: Numbers, bad: int,
    program: Indices, symmetric: bool, solves: bool, b: Numbers, far: int, shared: bool, y: Numbers, zero: Register,
) -> None:  # fmt: skip
    """`factor_tile`; if `solves`, and forward substitution from `b` to `y` with each row while it is in the cache."""
    out, given = behind(factors, to), behind(values, first)
    sources, pairs = behind(program, program[8]), behind(program, program[10])
    rows, orders = behind(program, program[4]), behind(program, program[5])
    lower, upper = behind(program, program[6]), behind(program, program[7])
    n, check, part, e, at, left, right = program[0], zero, zero, 0, 0, 0, 0
    if solves and symmetric:
        for i in range(n):
            part = _vector(b, orders[i] * far, shared, y, i * LANES)
    for i in range(n):
        end, last = e + pairs[at], e + pairs[at] + pairs[at + 1]
        at += 2
        if solves and not symmetric:
            part = _vector(b, rows[i] * far, shared, y, i * LANES)
        while e < end:
            high = at + 2 + 2 * pairs[at]
            prefetch(given, sources[e + AHEAD] * stride)
            total = begun(given, stride, sources[e])
            total = _gathered(total, pairs, at + 2, high, out, out) * load(out, pairs[at + 1] * LANES)
            check = check + (total - total)
            store(out, e * LANES, total)
            if solves:
                part = part - total * load(y, lower[left] * LANES)
                left += 1
            e, at = e + 1, high
        high = at + 1 + 2 * pairs[at]
        prefetch(given, sources[e + AHEAD] * stride)
        total = begun(given, stride, sources[e])
        if symmetric:
            pivot = reciprocal(_gathered(total, pairs, at + 1, high, scaled, out))
        else:
            pivot = reciprocal(_gathered(total, pairs, at + 1, high, out, out))
        check = check + (pivot - pivot)
        store(out, e * LANES, pivot)
        e, at = e + 1, high
        if solves and symmetric:
            part = load(y, i * LANES) * pivot
        if solves and not symmetric:
            store(y, i * LANES, part)
        while e <= last:
            high = at + 1 + 2 * pairs[at]
            prefetch(given, sources[e + AHEAD] * stride)
            total = begun(given, stride, sources[e])
            if symmetric:
                total = _gathered(total, pairs, at + 1, high, scaled, out)
                store(scaled, e * LANES, total * pivot)
                if solves:
                    place = upper[right] * LANES
                    store(y, place, load(y, place) - total * part)
                    right += 1
            else:
                total = _gathered(total, pairs, at + 1, high, out, out)
            check = check + (total - total)
            store(out, e * LANES, total)
            e, at = e + 1, high
    store(broken, bad, check)


@plain
def factor_tile(
    values: Numbers, first: int, stride: int, factors: Numbers, to: int, scaled: Numbers, broken: Numbers, bad: int,
    program: Indices, symmetric: bool, zero: Register,
) -> None:  # fmt: skip
    """The values of the factorisation of a tile from ``factors[to]`` on.

    Entry k of the matrix lies at ``values[first + k * stride]``. Of LDL^T, `scaled` is free for as many numbers. From
    ``broken[bad]`` on there will be NaN where a value is not finite, else zero.
    """
    _factorized(
        values, first, stride, factors, to, scaled, broken, bad, program, symmetric, False, values, 0, True, broken,
        zero,
    )  # fmt: skip


@plain
def factor_solve_tile(
    values: Numbers, first: int, stride: int, factors: Numbers, to: int, scaled: Numbers, scaled_first: int,
    broken: Numbers, bad: int, program: Indices, symmetric: bool, b: Numbers, b_first: int, b_far: int, shared: bool,
    x: Numbers, x_first: int, x_far: int, y: Numbers, y_first: int, zero: Register,
) -> None:  # fmt: skip
    """`factor_tile` and `solve_tile` in one pass."""
    free = behind(y, y_first)
    _factorized(
        values, first, stride, factors, to, behind(scaled, scaled_first), broken, bad, program, symmetric, True,
        behind(b, b_first), b_far, shared, free, zero,
    )  # fmt: skip
    _rows_after(behind(factors, to), LANES, program, behind(x, x_first), x_far, free)


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
    number for all lanes if `shared`. `y` is free for one vector. Only the width of `zero` counts.
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


factor_one, solve_one, factor_solve_one = entry(factor_tile), entry(solve_tile), entry(factor_solve_tile)
