"""What is done for a tile of samples by known pivots: reading, units of columns, residuals, norms.

A tile lies in one array `work`, ``(rows, lanes)`` from a place on that is given for each matrix and vector.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.lanes.arithmetic import absolute, any_lane, bits
from ensemble._compile.lanes.types import load, prefetch, prefetch_for_writing, select, splat, sqrt, store
from ensemble._compile.numba import ROW_BLOCK, inner
from ensemble._kernels.direct.equilibration import SWEEPS, inverse_of

__all__ = [
    "corrected", "either", "follow_each_other", "judged", "norm_of", "other_than_zero", "read_entries",
    "read_rows", "unit_columns",
]  # fmt: skip

AHEAD = 32
"""Entries ahead of the present one that are prefetched, and places that they are copied to (`benchmarks direct`)."""

NEARLY = 0.9
"""Share of the largest quotient so far up to which a quotient is not worked out."""

U = np.uint64  # an unsigned index needs no test for a negative one


@inner
def follow_each_other(samples, first, width):
    """Whether a tile's samples are neighbours: the last one may be there several times, so its number does not tell."""
    found = True
    for lane in range(width):
        found = found and samples[first + lane] == samples[first] + lane
    return found


@inner
def read_rows(source, n_rows, n_samples, samples, first, together, work, to, nothing, width):
    """Copy the rows of a tile, those of one vector for all samples where `n_samples` is zero."""
    if n_samples == 0:
        for k in range(n_rows):
            store(work, to + k * width, splat(source[k], work, nothing))
    elif together:
        for k in range(n_rows):
            store(work, to + k * width, load(source, k * n_samples + samples[first], nothing))
    else:
        for k in range(n_rows):
            for lane in range(width):
                work[to + k * width + lane] = source[k * n_samples + samples[first + lane]]


@inner
def added_to_columns(indices, low, high, work, values, sums, unit, width):
    """Add magnitudes of the entries of a row, times its unit, to sums of columns."""
    for k in range(low, high):
        to = sums + np.int64(indices[k]) * width
        entry = absolute(load(work, values + np.int64(k) * width, unit))
        store(work, to, load(work, to, unit) + entry * unit)


@inner
def read_entries(
    source, places, indptr, indices, n_samples, samples, first, together, work, to, rows, sums, nothing, width
):  # fmt: skip
    """Copy the entries of a tile; the units of rows by their sums to `rows`, and sums of columns by these to `sums`.

    Returns marks of zeros and of what is not finite, and sums of bits.
    """
    one, n, start, kept = splat(1.0, work, nothing), indptr.size - 1, samples[first], np.int64(places.size)
    mark, sum_of_bits = nothing, bits(nothing)
    for j in range(n):
        store(work, sums + j * width, nothing)
    if not together:
        for place in range(kept):
            for lane in range(width):
                work[to + place * width + lane] = source[np.int64(places[place]) * n_samples + samples[first + lane]]
    for i in range(n):
        total, low, high = nothing, U(indptr[i]), U(indptr[i + 1])
        for k in range(low, high):
            own = to + np.int64(k) * width
            if together:
                ahead = min(np.int64(k) + AHEAD, kept - 1)
                prefetch(source, np.int64(places[U(ahead)]) * n_samples + start, width)
                prefetch_for_writing(work, to + ahead * width, width)
                store(work, own, load(source, np.int64(places[k]) * n_samples + start, nothing))
            entry = load(work, own, nothing)
            sum_of_bits = sum_of_bits + bits(entry)
            entry = absolute(entry)
            mark = select(entry == nothing, one, mark) + (entry - entry)
            total = total + entry
        unit = inverse_of(total, one)
        store(work, rows + i * width, unit)
        added_to_columns(indices, low, high, work, to, sums, unit, width)
    return mark, sum_of_bits


@inner
def other_than_zero(source, places, n_samples, samples, first, together, work, free, nothing, width):
    """One for samples of a tile that are not zero at some of the places."""
    found, one = nothing, splat(1.0, work, nothing)
    for k in range(U(places.size)):
        row = np.int64(places[k]) * n_samples
        if together:
            found = select(load(source, row + samples[first], nothing) == nothing, found, one)
        else:
            for lane in range(width):
                work[free + lane] = source[row + samples[first + lane]]
            found = select(load(work, free, nothing) == nothing, found, one)
    return found


@inner
def unit_columns(indptr, indices, work, values, units, rows, sums, nothing, width):
    """`equilibration.units_of` of a tile, for the first sweep's units of rows and sums of columns."""
    one, n = splat(1.0, work, nothing), indptr.size - 1
    for sweep in range(SWEEPS):
        if sweep > 0:
            for i in range(n):
                total, low, high = nothing, U(indptr[i]), U(indptr[i + 1])
                for k in range(low, high):
                    entry = absolute(load(work, values + np.int64(k) * width, nothing))
                    total = total + entry * load(work, units + np.int64(indices[k]) * width, nothing)
                unit = inverse_of(total, one)
                store(work, rows + i * width, unit)
                added_to_columns(indices, low, high, work, values, sums, unit, width)
        for j in range(n):
            store(work, units + j * width, inverse_of(load(work, sums + j * width, nothing), one))
            store(work, sums + j * width, nothing)


@inner
def corrected(work, x, old, units, n, adds, nothing, width):
    """`pivot_sequences.sizes_in` of a tile; then add `old` to `x` if `adds`, and find the largest magnitude of `x`."""
    most, check, largest = nothing, nothing, nothing
    for j in range(n):
        given = load(work, x + j * width, nothing)
        value = absolute(given)
        unit = load(work, units + j * width, nothing)
        if any_lane(value > NEARLY * (most * unit)):
            size = value / unit
            most = select(size > most, size, most)
        check = check + (value - value)
        if adds:
            given = given + load(work, old + j * width, nothing)
            store(work, x + j * width, given)
            value = absolute(given)
        largest = select(value > largest, value, largest)
    return most + check, largest


@inner
def judged(indptr, indices, work, values, x, b, r, largest, nothing, width):
    """`krylov.backward_error` of a tile, the residual to `r`; both errors, and the sum of squares of the residual.

    `largest` is the largest magnitude of `x`.
    """
    n = indptr.size - 1
    most, worst, check, squares = nothing, nothing, nothing, nothing
    for begin in range(0, n, ROW_BLOCK):
        own = nothing
        for i in range(begin, min(begin + ROW_BLOCK, n)):
            total, size, weight = nothing, nothing, nothing
            for k in range(U(indptr[i]), U(indptr[i + 1])):
                entry = load(work, values + np.int64(k) * width, nothing)
                part = load(work, x + np.int64(indices[k]) * width, nothing)
                total = total + entry * part
                entry = absolute(entry)
                size = size + entry
                weight = weight + entry * absolute(part)
            right = load(work, b + i * width, nothing)
            total = right - total
            store(work, r + i * width, total)
            own = own + total * total
            right = absolute(right)
            size = size * largest + right
            weight = weight + right
            check = check + ((total - total) + (size - size))
            total = absolute(total)
            if any_lane(total > NEARLY * (most * size)):
                ratio = select(total == 0.0, nothing, total / size)
                most = select(ratio > most, ratio, most)
            if any_lane(total > NEARLY * (worst * weight)):
                ratio = select(total == 0.0, nothing, total / weight)
                worst = select(ratio > worst, ratio, worst)
        squares = squares + own
    return most + check, worst + check, squares


@inner
def norm_of(work, r, n, squares, low, high, nothing, width):
    """The norm of a vector whose sum of squares may have left the range of numbers."""
    plain, one = sqrt(squares), splat(1.0, work, nothing)
    odd = select(plain > low, select(plain < high, nothing, one), one)
    if any_lane(odd > nothing):
        unit = nothing
        for i in range(n):
            value = absolute(load(work, r + i * width, nothing))
            unit = select(value > unit, value, unit)
        unit = select(unit - unit == nothing, select(unit > nothing, unit, one), one)
        total = nothing
        for begin in range(0, n, ROW_BLOCK):
            own = nothing
            for i in range(begin, min(begin + ROW_BLOCK, n)):
                value = load(work, r + i * width, nothing) / unit
                own = own + value * value
            total = total + own
        plain = select(odd > nothing, sqrt(total) * unit, plain)
    return plain


@inner
def either(condition, other, one, nothing):
    """One where one of two masks holds."""
    return select(condition, one, select(other, one, nothing))
