"""Products with symmetric matrices over processes: of the entries inside a domain the upper triangle is stored.

Couplings between domains are all stored. A row is summed in the order of its columns, as with all entries stored: its
sum begins with the couplings to earlier domains, when it enters the ring of unfinished sums; then the rows before it
in its domain add theirs (see `symmetric`); then come its own entries, and those to later domains. So the bits are those
of a matrix with all entries.

A matrix is ``graph = (starts, own, later, columns, offsets, first_blocks, coupled, first_coupled, before,
before_columns, before_places, sums_of, targets, first_targets, n_waiting, reach)`` and `values`:

- where the stored values of each row start, where those inside its domain start, the first of which is the diagonal,
  and where those to later domains start; the column of each stored value;
- the first row of each domain and the number of rows; the first block of rows of each domain and the number of blocks;
- the rows with couplings to earlier domains; the first of them in each domain and their number; for each of them the
  place of its sum, or -1 where it stores such entries; of those with a sum, where their entries to earlier domains
  start, their columns, and the places of their values;
- for each stored entry to a later domain the place of the sum that its transpose is added to, or -1; the first such
  entry of each domain;
- how many sums wait at a time, and the largest ``column - row`` inside a domain.

`x` has the rows of this process, and behind them those of others that columns name.

Bytes a product must move: those of `symmetric`, for 15 entries a row instead of 13.6 of a 27-point matrix in domains of
2000 rows.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.lanes.types import PREFETCH_BYTES, load, prefetch, splat, store, zeros
from ensemble._compile.numba import (
    ROW_BLOCK,
    compiled,
    compiled_procedure,
    empty,
    output,
    per_width,
    prange,
    spliced,
    streams,
    thread_count,
    tiles,
)
from ensemble._kernels.multigrid.symmetric import (
    DOT,
    FINISH,
    FIRST,
    LAST,
    POWER,
    PRODUCT,
    RESIDUAL,
    STEP,
    ring_of,
    row_end,
)
from ensemble._kernels.sparse.crs import U
from ensemble._kernels.sparse.row_passes import block_lists
from ensemble._kernels.sparse.row_sums import ordered_sum

__all__ = [
    "domain_chebyshev_first",
    "domain_chebyshev_last",
    "domain_chebyshev_step",
    "domain_finish",
    "domain_power_step",
    "domain_residual",
    "domain_restricted_residual",
    "domain_spmv",
    "domain_spmv_dot",
    "places_of_waiting",
]

RESTRICTED = -1
"""As `RESIDUAL`, of which coarse rows take their shares at once."""

GROUP = 64
"""Rows whose couplings to earlier domains are added to the ring together: one loop over rows that have some."""

ROWS_AHEAD = 4
"""Rows with couplings to earlier domains ahead that such couplings are prefetched: they lie apart in memory.

Measured again by `benchmarks distributed`.
"""


@spliced
def main_entries(
    columns, begin, later, end, values, x, ring, base, slot, ring_rows, masked, waiting, waiting_base, targets, target,
    i, n_samples, first, ahead, shared, width, total,
):  # fmt: skip
    """`total` plus the stored entries `begin` to `end` of row i times `x`; the first of them is on the diagonal.

    The transposes of those before `later` are added to the sums in the ring, those of the others to sums that wait.
    """
    row, stride, start = U(i), U(n_samples), U(first)
    own = load(x, np.int64(row * stride + start), width)
    for m in range(begin, later):
        if shared:
            entry = splat(values[m], values, width)
        else:
            entry = load(values, np.int64(m * stride + start), width)
            prefetch(values, np.int64((m + ahead) * stride + start), width)
        j = U(columns[m])
        total = total + entry * load(x, np.int64(j * stride + start), width)
        if m > begin:
            place = slot + np.int64(j - row)
            if masked:
                place &= ring_rows - 1
            elif place >= ring_rows:
                place -= ring_rows
            place = base + place * width
            store(ring, place, load(ring, place, width) + entry * own)
    for m in range(later, end):
        if shared:
            entry = splat(values[m], values, width)
        else:
            entry = load(values, np.int64(m * stride + start), width)
            prefetch(values, np.int64((m + ahead) * stride + start), width)
        total = total + entry * load(x, np.int64(U(columns[m]) * stride + start), width)
        place = np.int64(targets[target + (m - later)])
        if place >= 0:
            place = waiting_base + place * width
            store(waiting, place, load(waiting, place, width) + entry * own)
    return total


@spliced
def earlier_entries(columns, begin, end, following, values, x, n_samples, first, shared, width, total):
    """`total` plus the stored entries `begin` to `end` times `x`; as many values from `following` on are prefetched."""
    stride, start = U(n_samples), U(first)
    for m in range(begin, end):
        if shared:
            entry = splat(values[m], values, width)
        else:
            entry = load(values, np.int64(m * stride + start), width)
            prefetch(values, np.int64((following + (m - begin)) * stride + start), width)
        total = total + entry * load(x, np.int64(U(columns[m]) * stride + start), width)
    return total


@spliced
def entries_before(low, begin, end, columns, places, values, x, n_samples, first, shared, width):
    """The sum of a row's entries `begin` to `end` in columns below `low`, whose values lie at `places`."""
    total = zeros(values, width)
    for m in range(begin, end):
        j = np.int64(columns[m])
        if j < low:
            place = np.int64(places[m])
            entry = splat(values[place], values, width) if shared else load(values, place * n_samples + first, width)
            total = total + entry * load(x, j * n_samples + first, width)
    return total


@spliced
def spread(begin, end, indices, p, term, coarse, n_samples, first, shared, width):
    """Add `term` times the entries `begin` to `end` of a row of P to its coarse rows."""
    stride, start = U(n_samples), U(first)
    for k in range(begin, end):
        factor = splat(p[k], p, width) if shared else load(p, np.int64(k * stride + start), width)
        place = np.int64(U(indices[k]) * stride + start)
        store(coarse, place, load(coarse, place, width) + factor * term)


@per_width
def _pass(width, shared, masked, one_sample):
    """See `symmetric`. Threads share the domains of the list `domains`.

    Longer than 60 lines: one compiled loop, whose parts share the ring of partial sums.
    """

    @compiled
    def loop(
        starts, own, later, columns, offsets, first_blocks, coupled, first_coupled, before, before_columns,
        before_places, sums_of, targets, first_targets, domains, values, dinv, b, x, a, c, w, leave, r, out, ring,
        waiting, sums, squares, reach, n_waiting, ring_rows, n_chunks, past_cache, stride, offset, kind, indptr_p,
        indices_p, p, coarse,
    ):  # fmt: skip
        n_samples, first = (1, 0) if one_sample else (stride, offset)
        ahead = U(PREFETCH_BYTES // (n_samples * values.itemsize))
        for chunk in prange(n_chunks):
            base, waiting_base = chunk * ring_rows * width, chunk * n_waiting * width
            for i in range(ring_rows):
                store(ring, base + i * width, zeros(values, width))
            for i in range(n_waiting):
                store(waiting, waiting_base + i * width, zeros(values, width))
            first_place, last_place = chunk * domains.size // n_chunks, (chunk + 1) * domains.size // n_chunks
            if chunk > 0:  # what rows of other threads would have added
                begin = offsets[domains[first_place]]
                for place in range(first_place, last_place):
                    for k in range(first_coupled[domains[place]], first_coupled[domains[place] + 1]):
                        if sums_of[k] >= 0 and before_columns[before[k]] < begin:  # its place is not another's yet
                            total = entries_before(
                                begin, before[k], before[k + 1], before_columns, before_places, values, x, n_samples,
                                first, shared, width,
                            )  # fmt: skip
                            store(waiting, waiting_base + np.int64(sums_of[k]) * width, total)
            for place in range(first_place, last_place):
                domain = domains[place]
                low, high, block, slot = offsets[domain], offsets[domain + 1], first_blocks[domain], np.int64(0)
                k, last, target = first_coupled[domain], first_coupled[domain + 1], first_targets[domain]
                inner, square = zeros(out, width), zeros(out, width)
                for begin in range(low, high, GROUP):
                    while k < last and coupled[k] < begin + GROUP + reach:
                        j = U(coupled[k])
                        if sums_of[k] >= 0:
                            place = waiting_base + np.int64(sums_of[k]) * width
                            total = load(waiting, place, width)
                            store(waiting, place, zeros(values, width))
                        else:
                            following = U(starts[coupled[min(k + 1 + ROWS_AHEAD, coupled.size - 1)]])
                            total = earlier_entries(
                                columns, U(starts[j]), U(own[j]), following, values, x, n_samples, first, shared,
                                width, zeros(values, width),
                            )  # fmt: skip
                        k += 1
                        place = slot + np.int64(j) - begin
                        if masked:
                            place &= ring_rows - 1
                        elif place >= ring_rows:
                            place -= ring_rows
                        store(ring, base + place * width, total)
                    for i in range(begin, min(begin + GROUP, high)):
                        total = main_entries(
                            columns, U(own[i]), U(later[i]), U(starts[i + 1]), values, x, ring, base, slot,
                            ring_rows, masked, waiting, waiting_base, targets, U(target), i, n_samples, first, ahead,
                            shared, width, load(ring, base + slot * width, width),
                        )  # fmt: skip
                        target += starts[i + 1] - later[i]
                        store(ring, base + slot * width, zeros(values, width))
                        slot = 0 if slot + 1 == ring_rows else slot + 1
                        here = np.int64(i) * n_samples + first
                        if kind == RESTRICTED:
                            spread(
                                U(indptr_p[i]), U(indptr_p[i + 1]), indices_p, p, load(b, here, width) - total, coarse,
                                n_samples, first, shared, width,
                            )  # fmt: skip
                        else:
                            inner, square = row_end(
                                kind, shared, total, i, here, first, dinv, b, x, a, c, w, leave, r, out, past_cache,
                                width, inner, square,
                            )  # fmt: skip
                    if (begin + GROUP - low) % ROW_BLOCK == 0 or begin + GROUP >= high:
                        if kind >= DOT:
                            store(sums, block * n_samples + first, inner)
                        if kind == POWER:
                            store(squares, block * n_samples + first, square)
                        inner, square = zeros(out, width), zeros(out, width)
                        block += 1

    return loop


def _run(kind, graph, values, dinv, b, x, a, c, w, out, leave=None, r=None, prolongator=None):
    """One pass over the matrix; returns `out` and two arrays of partial sums, where the kind makes them."""
    *places, n_waiting, reach = graph
    n_rows, n_samples = places[1].size, x.shape[1]
    leave, r = (x if array is None else array for array in (leave, r))
    *graph_p, p, coarse = prolongator or (places[0], places[3], values, values)
    out = r if kind == RESTRICTED else output(out, (n_rows, n_samples), r.dtype)
    shared = values.shape[1] != n_samples
    n_blocks = int(places[5][-1]) if kind >= DOT else 0
    sums, squares = (np.zeros((n_blocks, n_samples), r.dtype) for _ in range(2))
    flat = [array.reshape(-1) for array in (values, dinv, b, x, a, c, w, leave, r, out)]
    for domains in block_lists(places[4].size - 1):
        n_chunks = max(1, min(thread_count(), domains.size))
        for first, width in tiles(n_samples):
            ring_rows, masked = ring_of(reach + GROUP, width * x.itemsize)
            ring, waiting = (empty((n_chunks * rows * width,), x.dtype) for rows in (ring_rows, n_waiting))
            _pass(width, shared, masked, n_samples == 1)(
                *places, domains, *flat, ring, waiting, sums.reshape(-1), squares.reshape(-1), reach, n_waiting,
                ring_rows, n_chunks, streams(out), n_samples, first, kind, *graph_p, p.reshape(-1), coarse.reshape(-1),
            )  # fmt: skip
    return out, sums, squares


@compiled_procedure
def places_of_waiting(later, ends, columns, sums_of, taken, targets, free):
    """Give each sum that waits a place from its first term until its row comes; returns how many places serve.

    `sums_of` has for each row 0 where it has such a sum and -1 elsewhere; what is -1 in `targets` is left alone.
    `taken` and `free`, as long as the rows, are scratch memory; `taken` is -1 everywhere.
    """
    most, n_free, target = 0, 0, 0
    for i in range(later.size):
        if sums_of[i] >= 0:
            sums_of[i] = taken[i]
            free[n_free] = taken[i]
            n_free += 1
        for m in range(later[i], ends[i]):
            if targets[target] >= 0:
                j = columns[m]
                if taken[j] < 0:
                    if n_free > 0:
                        n_free -= 1
                        taken[j] = free[n_free]
                    else:
                        taken[j] = most
                        most += 1
                targets[target] = taken[j]
            target += 1
    return most


def domain_spmv(graph, values, x, out):
    """y = A x."""
    return _run(PRODUCT, graph, values, x, x, x, x, x, x, out)[0]


def domain_residual(graph, values, x, b, out):
    """r = b - A x."""
    return _run(RESIDUAL, graph, values, x, b, x, x, x, x, out)[0]


def domain_restricted_residual(graph, values, x, b, graph_p, p, out):
    """P^T (b - A x) on one thread, for P with as many samples as A; the residual is never written.

    Coarse rows are summed over ascending fine rows, as by `symmetric.symmetric_restricted_residual`.
    """
    out[...] = 0.0
    _run(RESTRICTED, graph, values, x, b, x, x, x, x, None, prolongator=(*graph_p, p, out))
    return out


def domain_spmv_dot(graph, values, x, out):
    """y = A x and the inner product of x and y: returns (y, one value a sample)."""
    out, sums, _ = _run(DOT, graph, values, x, x, x, x, x, x, out)
    return out, ordered_sum(sums)


def domain_chebyshev_first(graph, values, dinv, b, x, c, w, out):
    """w = c * dinv * (b - A x), and x + w to `out`, which must not be `x`."""
    return w, _run(FIRST, graph, values, dinv, b, x, c, c, w, out)[0]


def domain_chebyshev_step(graph, values, dinv, b, x, a, c, w, out):
    """w = a * w + c * dinv * (b - A x) in place, and x + w to `out`, which must not be `x`."""
    return w, _run(STEP, graph, values, dinv, b, x, a, c, w, out)[0]


def domain_chebyshev_last(graph, values, dinv, b, x, a, c, w, out):
    """x + a * w + c * dinv * (b - A x) to `out`, which must not be `x`; `w` is only read and may be `x`."""
    return _run(LAST, graph, values, dinv, b, x, a, c, w, out)[0]


def domain_finish(leave, graph, values, dinv, b, x, a, c, w, r, out):
    """leave * (x + a * w + c * dinv * (b - A x)) in the type of r, and its inner product with r."""
    out, sums, _ = _run(FINISH, graph, values, dinv, b, x, a, c, w, out, leave, r)
    return out, ordered_sum(sums)


def domain_power_step(graph, values, dinv, q, scale, out):
    """One step of the power method on D^-1 A: z = dinv * (A (scale * q)); see `relaxation.power_step`."""
    out, sums, squares = _run(POWER, graph, values, dinv, q, q, scale, scale, q, out)
    return out, ordered_sum(sums), ordered_sum(squares)
