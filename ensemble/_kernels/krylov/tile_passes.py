"""Passes over the vectors of a tile of samples, for `many_iterations`: products, sums, updates.

Vectors are flat, with the `width` samples of a tile beside each other. Elementwise passes take `LANES` numbers at a
time, whatever the width; their coefficients stand in arrays of `LANES` numbers, those of the samples repeated. Sums
have the order of the kernels for single iterations. `nothing` are zeros as wide as the tile, `wide` are `LANES` zeros.
Scalars are real: they read and write `parts`, the same memory as `lanes`, which of complex numbers holds both parts.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.lanes.arithmetic import conjugate_product
from ensemble._compile.lanes.types import load, select, store
from ensemble._compile.numba import ROW_BLOCK, inner
from ensemble._kernels.sparse.crs import DOT, FEW_SAMPLES, few_sample_rows, row_product

__all__ = [
    "BEFORE", "BEST", "BROKEN", "CHECK", "CODES", "COUNTS", "DOUBTFUL", "DUE", "FRESH", "GROUP", "HISTORY", "LANES",
    "LAST", "LEAST", "LEFT", "NORMS", "NUMBERS", "PHASES", "RESTS", "RUNNING",
    "begin_phase", "copy_marked", "dot_of_rows", "end_sample", "imaginary", "product", "product_with_dot", "real",
    "set_imaginary", "set_lane", "update", "whole_registers",
]  # fmt: skip

RUNNING, BROKEN, DUE, DOUBTFUL, RESTS = range(5)
"""What a sample does after the call: goes on, has broken down, needs a decision about its last iterate, needs one in
the middle of an iteration about whether to keep its iterate, or does not take part."""

CHECK, LEAST, LAST, BEST, FRESH = range(5)
"""Rows of `ManyIterations.norms`: at which a decision is due, the least, the last, that of the kept iterate; whether
the recurrence begins again."""

NUMBERS, NORMS, HISTORY, COUNTS, CODES, PHASES, LEFT, BEFORE = range(8)
"""Scalars of the samples, see `ManyIterations.arrays`."""

LANES, TOGETHER = 8, 4
"""Numbers of a register, blocks of rows that are summed at a time."""

GROUP = TOGETHER * ROW_BLOCK
"""Rows that a pass updates before it sums them: the first-level cache holds them."""


@inner(forceinline=True)
def set_lane(lane, s, width, value):
    """Write the coefficient of sample `s` of a tile, a real number."""
    step = lane.size // LANES
    for k in range(s, LANES, width):
        lane[k * step] = value
        if step == 2:
            lane[k * step + 1] = 0.0


@inner(forceinline=True)
def set_imaginary(lane, s, width, value):
    """Write the imaginary part of a coefficient; nothing of real numbers."""
    if lane.size // LANES == 2:
        for k in range(s, LANES, width):
            lane[2 * k + 1] = value


@inner(forceinline=True)
def real(lane, s):
    """The real part of number `s`, in the lanes' type."""
    return lane[s * (lane.size // LANES)]


@inner(forceinline=True)
def imaginary(lane, s):
    """Its imaginary part, float64; zero of a real number."""
    part = 0.0
    if lane.size // LANES == 2:
        part = np.float64(lane[2 * s + 1])
    return part


@inner(forceinline=True)
def begin_phase(phase, parts, scalars, first, width):
    """Mark the samples that take part in a phase of an iteration in the first lane; how many."""
    counts, codes, phases, left = scalars[COUNTS], scalars[CODES], scalars[PHASES], scalars[LEFT]
    n_going = 0
    for s in range(width):
        at, goes = first + s, 0.0
        if codes[at] == RUNNING and phases[at] == phase and (phase > 0 or counts[at] < left[at]):
            goes = 1.0
            n_going += 1
        set_lane(parts[0], s, width, goes)
    return n_going


@inner(forceinline=True)
def end_sample(scalars, at, norm, asks, breaks):
    """Note the norm of a sample's new residual, and whether its iterate needs a decision: also where the method `asks`.

    One that is not finite ends the sample where the method has nothing else to do then, which `breaks`. A sample that
    has broken down before keeps its code.
    """
    norms, history, counts, codes = scalars[NORMS], scalars[HISTORY], scalars[COUNTS], scalars[CODES]
    history[counts[at], at] = norm
    if codes[at] == RUNNING:
        if breaks and not np.isfinite(norm):
            codes[at] = BROKEN
        elif asks or norm <= norms[CHECK, at]:
            codes[at] = DUE


@inner(forceinline=True)
def copy_marked(marks, source, out, n_rows, width, n_samples, first, nothing):
    """out = source in the samples marked; `out` has `n_samples` samples, the tile's from `first` on."""
    marked = load(marks, 0, nothing) != nothing
    for i in range(n_rows):
        here = np.int64(i) * n_samples + first
        store(out, here, select(marked, load(source, np.int64(i) * width, nothing), load(out, here, nothing)))


@inner(forceinline=True)
def whole_registers(low, high, width):
    """Where the last whole register of rows `low` to `high` ends."""
    return low * width + (high - low) * width // LANES * LANES


@inner(forceinline=True)
def dot_of_rows(total, a, b, low, high, width, nothing):
    """`total` and a . b of rows `low` to `high`, at most `GROUP`: blocks in order, whose sums do not wait.

    Complex numbers of a are conjugated.
    """
    n_whole = (high - low) // ROW_BLOCK
    if n_whole > 0:
        last = n_whole - 1
        p1, p2 = min(np.int64(1), last) * ROW_BLOCK * width, min(np.int64(2), last) * ROW_BLOCK * width
        p3 = min(np.int64(3), last) * ROW_BLOCK * width
        s0, s1, s2, s3 = nothing, nothing, nothing, nothing
        for i in range(low * width, (low + ROW_BLOCK) * width, width):
            s0 = s0 + conjugate_product(load(a, i, nothing), load(b, i, nothing))
            s1 = s1 + conjugate_product(load(a, i + p1, nothing), load(b, i + p1, nothing))
            s2 = s2 + conjugate_product(load(a, i + p2, nothing), load(b, i + p2, nothing))
            s3 = s3 + conjugate_product(load(a, i + p3, nothing), load(b, i + p3, nothing))
        total = total + s0
        if n_whole > 1:
            total = total + s1
        if n_whole > 2:
            total = total + s2
        if n_whole > 3:
            total = total + s3
    start = low + n_whole * ROW_BLOCK
    if start < high:
        part = nothing
        for i in range(start * width, high * width, width):
            part = part + conjugate_product(load(a, i, nothing), load(b, i, nothing))
        total = total + part
    return total


@inner(forceinline=True)
def update_at(i, step, p, q, x, r, like):
    """x += step p, r -= step q from number `i` on, as many as `like`; nothing where `step` is zero."""
    moving = step != like
    old_x, old_r = load(x, i, like), load(r, i, like)
    new_x, new_r = old_x + step * load(p, i, like), old_r - step * load(q, i, like)
    store(x, i, select(moving, new_x, old_x))
    store(r, i, select(moving, new_r, old_r))


@inner(forceinline=True)
def update(alpha, p, q, x, r, low, high, width, nothing, wide):
    """x += alpha p, r -= alpha q in rows `low` to `high`; nothing of a sample whose `alpha` is zero. p may be r."""
    stop, step, one = whole_registers(low, high, width), load(alpha, 0, wide), load(alpha, 0, nothing)
    for i in range(low * width, stop, LANES):
        update_at(i, step, p, q, x, r, wide)
    if width < LANES:
        for i in range(stop, high * width, width):
            update_at(i, one, p, q, x, r, nothing)


@inner(forceinline=True)
def product(indptr, indices, values, p, q, low, high, width, shared, ahead, ending, nothing):
    """q = A p in rows `low` to `high`; p . q of them where `ending` is `DOT`, else zero. `ahead`: x is prefetched."""
    if width == 1 or (width <= FEW_SAMPLES and not shared):
        return few_sample_rows(indptr, indices, values, p, p, q, width, ahead, np.int64(ending), low, high, nothing)
    part = nothing
    for i in range(low, high):
        row = row_product(indptr, indices, values, p, i, width, 0, shared, False, nothing)
        store(q, np.int64(i) * width, row)
        if ending == DOT:
            part = part + conjugate_product(load(p, np.int64(i) * width, nothing), row)
    return part


@inner(forceinline=True)
def product_with_dot(indptr, indices, values, p, q, n_rows, width, shared, ahead, nothing):
    """q = A p; p . q, blocks of rows in order."""
    total = nothing
    for low in range(0, n_rows, ROW_BLOCK):
        high = min(low + ROW_BLOCK, n_rows)
        total = total + product(indptr, indices, values, p, q, low, high, width, shared, ahead, DOT, nothing)
    return total
