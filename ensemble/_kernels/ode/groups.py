"""Large graphs evaluated by loops over groups of operations: nothing is compiled for a graph, whatever its length.

A group is a loop over its nodes and a tile of samples in packed instructions. Sums stay in registers. Elementwise
operations are the C functions of `lanes/elementwise_loop.py`, one per operation, kept on disk.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.c_functions import call_elements
from ensemble._compile.lanes.types import load, splat, store
from ensemble._compile.numba import compiled, empty, inner, prange, thread_count
from ensemble._kernels.ode.group_plan import ELEMENTWISE, MULTIPLY, PRODUCTS, Groups
from ensemble._typing import Array

__all__ = ["memory_of", "run_groups", "run_stages", "stages_of_tile"]

CACHE = 1 << 20
"""Bytes of values of a tile of samples that stay in a cache."""

WIDTHS = (32, 8, 1)
"""Samples of a tile: as many as the cache holds, eight at least."""


# --- loops
def run_groups(groups: Groups, rows: Array, state: Array, out: Array | None = None) -> Array:
    """The outputs, shape (n_outputs, S), for `rows` of shape (n_rows, S) and `state` of shape (n, S)."""
    S, dtype = rows.shape[1], groups.constants.dtype
    out = empty((groups.outputs.size, S), dtype) if out is None else out
    if S:
        memory, width = memory_of(groups, S)
        rows, state = (np.ascontiguousarray(array) for array in (rows, state))
        _run(groups.table, groups.index, groups.coefficients, groups.constants, groups.inputs, groups.outputs,
             rows, state, memory, out, width, groups.n_slots, groups.largest)  # fmt: skip
    return out


def run_stages(
    groups: Groups, rows: Array, y: Array, t: Array, h: Array, stages: Array, weights: Array, nodes: Array, first: int
) -> Array:
    """Write the stages of an explicit method from number `first` on, one for each row of `weights`; their last point.

    Stage i is f at ``t + nodes[i] h`` and ``y + h (weights[i, 0] stages[0] + ...)``. The first of `rows` is overwritten
    with the time.
    """
    point = empty(y.shape, y.dtype)
    memory, width = memory_of(groups, y.shape[1])
    _run_stages(groups.table, groups.index, groups.coefficients, groups.constants, groups.inputs, groups.outputs,
                rows, y, t, h, stages, weights, nodes, first, point, memory, width, groups.n_slots,
                groups.largest)  # fmt: skip
    return point


def memory_of(groups: Groups, n_samples: int) -> tuple[Array, int]:
    """The slots of each thread, and how many samples a tile has."""
    size, dtype = groups.n_slots + 3 * groups.largest, groups.constants.dtype
    fitting = [width for width in WIDTHS[:-1] if width * size * dtype.itemsize <= CACHE]
    width = min(fitting[0] if fitting else WIDTHS[-2], n_samples)
    return empty((min(thread_count(), -(-n_samples // width)), size * width), dtype), width


@inner
def operand(slots, index, offset, first, m, w, place):
    """Where m operands of w numbers lie: their own slots, or from `place` on, where they are brought together."""
    if first >= 0:
        return first * w
    if w == 1:
        for j in range(m):
            slots[place + j] = slots[index[offset + j]]
    else:
        for j in range(m):
            source, target = index[offset + j] * w, place + j * w
            for s in range(w):
                slots[target + s] = slots[source + s]
    return place


@inner
def begin_sums(slots, index, row, w):
    """Write what the sums of a group begin with."""
    m, out, offset, first = row[1], row[2] * w, row[5], row[6]
    for j in range(m):
        source = (first + j if first >= 0 else index[offset + j]) * w
        for s in range(w):
            slots[out + j * w + s] = slots[source + s]


@inner
def linear_of_one(slots, index, coefficients, row):
    """Sums of products of numbers and slots of one sample; those of one factor for all sums in packed instructions."""
    m, out, length, offset, place = row[1], row[2], row[3], row[7], row[8]
    begin_sums(slots, index, row, 1)
    j = 0
    if row[9]:
        while j + 32 <= m:
            wide = load(slots, out + j, 32)
            for k in range(length):
                x = splat(slots[index[offset + k * m]], slots, 32)
                wide = wide + x * load(coefficients, place + k * m + j, 32)
            store(slots, out + j, wide)
            j += 32
        while j + 8 <= m:
            some = load(slots, out + j, 8)
            for k in range(length):
                y = splat(slots[index[offset + k * m]], slots, 8)
                some = some + y * load(coefficients, place + k * m + j, 8)
            store(slots, out + j, some)
            j += 8
    for k in range(length):
        for i in range(j, m):
            slots[out + i] += coefficients[place + k * m + i] * slots[index[offset + k * m + i]]


@inner
def linear_of_four(slots, index, coefficients, row, w, s, j, lanes):
    """Sums `j` to `j` + 3 of a group with the same slots in all sums, in registers; samples from `s` on."""
    m, out, length, offset, place = row[1], row[2] * w, row[3], row[7], row[8]
    at = out + j * w + s
    a, b = load(slots, at, lanes), load(slots, at + w, lanes)
    c, d = load(slots, at + 2 * w, lanes), load(slots, at + 3 * w, lanes)
    for k in range(length):
        x, p = load(slots, index[offset + k * m] * w + s, lanes), place + k * m + j
        a = a + splat(coefficients[p], slots, lanes) * x
        b = b + splat(coefficients[p + 1], slots, lanes) * x
        c = c + splat(coefficients[p + 2], slots, lanes) * x
        d = d + splat(coefficients[p + 3], slots, lanes) * x
    store(slots, at, a)
    store(slots, at + w, b)
    store(slots, at + 2 * w, c)
    store(slots, at + 3 * w, d)


@inner
def linear(slots, index, coefficients, row, w):
    """Sums of products of numbers and slots, samples in packed instructions."""
    m, out, length, offset, place = row[1], row[2] * w, row[3], row[7], row[8]
    begin_sums(slots, index, row, w)
    done = m // 4 * 4 if row[9] > 0 and w % 8 == 0 else 0
    for j in range(0, done, 4):
        first = 0
        while first + 32 <= w:
            linear_of_four(slots, index, coefficients, row, w, first, j, 32)
            first += 32
        while first < w:
            linear_of_four(slots, index, coefficients, row, w, first, j, 8)
            first += 8
    for j in range(done, m):
        s = 0
        while s + 32 <= w:
            wide = load(slots, out + j * w + s, 32)
            for k in range(length):
                c = splat(coefficients[place + k * m + j], slots, 32)
                wide = wide + c * load(slots, index[offset + k * m + j] * w + s, 32)
            store(slots, out + j * w + s, wide)
            s += 32
        while s + 8 <= w:
            some = load(slots, out + j * w + s, 8)
            for k in range(length):
                d = splat(coefficients[place + k * m + j], slots, 8)
                some = some + d * load(slots, index[offset + k * m + j] * w + s, 8)
            store(slots, out + j * w + s, some)
            s += 8
        while s < w:
            total = slots[out + j * w + s]
            for k in range(length):
                total += coefficients[place + k * m + j] * slots[index[offset + k * m + j] * w + s]
            slots[out + j * w + s] = total
            s += 1


@inner
def products(slots, index, row, w):
    """Sums of products of slots; without a sum to begin with (MULTIPLY), products alone."""
    m, out, length, left, right, alone = row[1], row[2] * w, row[3], row[7], row[8], row[0] == MULTIPLY
    if not alone:
        begin_sums(slots, index, row, w)
    for j in range(m):
        s = 0
        while s + 32 <= w:
            wide = load(slots, index[left + j] * w + s, 32) * load(slots, index[right + j] * w + s, 32)
            if not alone:
                wide = load(slots, out + j * w + s, 32) + wide
            for k in range(1, length):
                a, b = index[left + k * m + j] * w + s, index[right + k * m + j] * w + s
                wide = wide + load(slots, a, 32) * load(slots, b, 32)
            store(slots, out + j * w + s, wide)
            s += 32
        while s + 8 <= w:
            some = load(slots, index[left + j] * w + s, 8) * load(slots, index[right + j] * w + s, 8)
            if not alone:
                some = load(slots, out + j * w + s, 8) + some
            for k in range(1, length):
                a, b = index[left + k * m + j] * w + s, index[right + k * m + j] * w + s
                some = some + load(slots, a, 8) * load(slots, b, 8)
            store(slots, out + j * w + s, some)
            s += 8
        while s < w:
            total = slots[index[left + j] * w + s] * slots[index[right + j] * w + s]
            if not alone:
                total = slots[out + j * w + s] + total
            for k in range(1, length):
                total += slots[index[left + k * m + j] * w + s] * slots[index[right + k * m + j] * w + s]
            slots[out + j * w + s] = total
            s += 1


@inner
def evaluate(table, index, coefficients, constants, inputs, rows, state, slots, first, w, n_slots, largest):
    """All groups for the samples from `first` on, w of them."""
    itemsize, base = slots.itemsize, slots.ctypes.data
    places, numbers = np.empty(4, np.int64), np.empty(1, np.int64)
    for k in range(constants.size):
        for s in range(w):
            slots[k * w + s] = constants[k]
    for k in range(inputs.shape[0]):
        place, row = (constants.size + k) * w, inputs[k, 1]
        for s in range(w):
            slots[place + s] = state[row, first + s] if inputs[k, 0] else rows[row, first + s]
    for g in range(table.shape[0]):
        row_of = table[g]
        kind, m, out, count = row_of[0], row_of[1], row_of[2], row_of[3]
        if kind == ELEMENTWISE:
            for q in range(count):
                spare = (n_slots + q * largest) * w
                begins = operand(slots, index, row_of[5 + 2 * q], row_of[6 + 2 * q], m, w, spare)
                places[q] = base + begins * itemsize
            places[count] = base + out * w * itemsize
            call_elements(row_of[4], (places, m * w, 0, numbers))
        elif kind >= PRODUCTS:
            products(slots, index, row_of, w)
        elif w == 1:
            linear_of_one(slots, index, coefficients, row_of)
        else:
            linear(slots, index, coefficients, row_of, w)


@compiled
def _run(
    table, index, coefficients, constants, inputs, outputs, rows, state, memory, out, width, n_slots, largest
):  # fmt: skip
    n_parts, n_tiles = memory.shape[0], (out.shape[1] + width - 1) // width
    for part in prange(n_parts):
        slots = memory[part]
        for tile in range(np.int64(part), n_tiles, n_parts):
            first = tile * width
            w = min(width, out.shape[1] - first)
            evaluate(table, index, coefficients, constants, inputs, rows, state, slots, first, w, n_slots, largest)
            for k in range(outputs.size):
                for s in range(w):
                    out[k, first + s] = slots[outputs[k] * w + s]


@inner
def stages_of_tile(
    table, index, coefficients, constants, inputs, outputs, rows, y, t, h, stages, weights, nodes, begin, point,
    slots, first, w, n_slots, largest
):  # fmt: skip
    """`run_stages` for the samples from `first` on, w of them."""
    for i in range(begin, weights.shape[0]):
        for r in range(y.shape[0]):
            for s in range(first, first + w):
                point[r, s] = stages[0, r, s] * weights[i, 0]
            for j in range(1, i):
                weight = weights[i, j]
                if weight != 0.0:
                    for s in range(first, first + w):
                        point[r, s] += stages[j, r, s] * weight
            for s in range(first, first + w):
                point[r, s] = y[r, s] + h[s] * point[r, s]
        for s in range(first, first + w):
            rows[0, s] = t[s] + h[s] if nodes[i] == 1.0 else t[s] + nodes[i] * h[s]
        evaluate(table, index, coefficients, constants, inputs, rows, point, slots, first, w, n_slots, largest)
        for k in range(outputs.size):
            for s in range(w):
                stages[i, k, first + s] = slots[outputs[k] * w + s]


@compiled
def _run_stages(
    table, index, coefficients, constants, inputs, outputs, rows, y, t, h, stages, weights, nodes, begin, point,
    memory, width, n_slots, largest
):  # fmt: skip
    n_parts, n_tiles = memory.shape[0], (y.shape[1] + width - 1) // width
    for part in prange(n_parts):
        slots = memory[part]
        for tile in range(np.int64(part), n_tiles, n_parts):
            first = tile * width
            w = min(width, y.shape[1] - first)
            stages_of_tile(table, index, coefficients, constants, inputs, outputs, rows, y, t, h, stages, weights,
                           nodes, begin, point, slots, first, w, n_slots, largest)  # fmt: skip
