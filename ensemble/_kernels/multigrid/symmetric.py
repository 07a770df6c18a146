"""Products with symmetric matrices of which only the upper triangle, diagonal included, is stored.

Each stored entry serves twice: a_ij adds a_ij x_j to row i and a_ij x_i to row j. Rows are processed in ascending
order, so the entries of row j left of the diagonal have been added, ascending, before row j itself is processed: its
sum has the order, and the bits, of the product with all entries stored. Unfinished sums are kept in a ring buffer of as
many rows as the matrix reaches above its diagonal, which fits the second-level cache. Each thread takes a range of
rows, and first computes the contributions of the rows before that range.

A matrix is ``graph = (indptr, indices, starts, entries, reach)`` and `values`: the full graph; where the stored values
of each row start; for each entry of the full graph its place in `values`; and the largest ``column - row``.

Bytes a product must move (float64, int32 columns, k entries a row stored, S samples; per stored entry and sample):
``8 + 4/S + (8 + 8 + 8/S)/k``. A 27-point matrix stores 13.6 entries a row instead of 26.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile.lanes.arithmetic import convert
from ensemble._compile.lanes.types import PREFETCH_BYTES, load, prefetch, splat, store, stream, zeros
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
from ensemble._compile.registry import kernel
from ensemble._kernels.multigrid import relaxation, scaling
from ensemble._kernels.sparse import crs as sparse
from ensemble._kernels.sparse.crs import U
from ensemble._kernels.sparse.row_sums import SERIAL
from ensemble._typing import Array

__all__ = [
    "expanded",
    "symmetric_chebyshev_first",
    "symmetric_chebyshev_last",
    "symmetric_chebyshev_step",
    "symmetric_finish",
    "symmetric_power_step",
    "symmetric_residual",
    "symmetric_restricted_residual",
    "symmetric_spmv",
    "symmetric_spmv_dot",
]

PRODUCT, RESIDUAL, FIRST, STEP, LAST, DOT, POWER, FINISH = range(8)
"""Operation of a pass on the product; those from `DOT` on sum up inner products."""

MASKED = 1 << 18
"""Bytes up to which a ring is lengthened to a power of two rows."""


def expanded(graph: Any, values: Array) -> tuple[Array, Array, Array]:
    """(indptr, indices, values) with every entry stored."""
    indptr, indices, _, entries, _ = graph
    return indptr, indices, array_namespace(values).take(values, entries, axis=0)


@kernel
def symmetric_spmv(graph, values, x, out):
    """y = A x."""
    return sparse.spmv.reference(*expanded(graph, values), x, out)


@kernel
def symmetric_residual(graph, values, x, b, out):
    """r = b - A x."""
    return sparse.residual.reference(*expanded(graph, values), x, b, out)


@kernel
def symmetric_restricted_residual(graph, values, x, b, graph_p, restriction, p, r, out):
    """P^T (b - A x), `restriction` being (indptr, indices, entries) of P^T; `r` is scratch memory or None.

    On one thread the residual is never written: each row of it is spread over the coarse rows at once, which come to
    ascending sums over fine rows as in `sparse.spmv_transpose`.
    """
    r = sparse.residual.reference(*expanded(graph, values), x, b, None)
    return sparse.spmv_transpose.reference(*restriction, p, r, out)


@kernel
def symmetric_spmv_dot(graph, values, x, out):
    """y = A x and the inner product of x and y: returns (y, one value a sample)."""
    return sparse.spmv_dot.reference(*expanded(graph, values), x, out)


@kernel
def symmetric_chebyshev_first(graph, values, dinv, b, x, c, w, out):
    """First step from x: w = c * dinv * (b - A x), and x + w goes to `out`, which must not be `x`."""
    return relaxation.chebyshev_first.reference(*expanded(graph, values), dinv, b, x, c, w, out)


@kernel
def symmetric_chebyshev_step(graph, values, dinv, b, x, a, c, w, out):
    """w = a * w + c * dinv * (b - A x) in place, and x + w goes to `out`, which must not be `x`."""
    return relaxation.chebyshev_step.reference(*expanded(graph, values), dinv, b, x, a, c, w, out)


@kernel
def symmetric_chebyshev_last(graph, values, dinv, b, x, a, c, w, out):
    """x + a * w + c * dinv * (b - A x) to `out`, which must not be `x`; `w` is only read and may be `x`."""
    return relaxation.chebyshev_last.reference(*expanded(graph, values), dinv, b, x, a, c, w, out)


@kernel
def symmetric_finish(leave, graph, values, dinv, b, x, a, c, w, r, out):
    """The last step in the type of r: leave * (x + a * w + c * dinv * (b - A x)); see `scaling.scaled_finish`."""
    return scaling.scaled_finish.reference(None, leave, *expanded(graph, values), dinv, b, x, a, c, w, r, out)


@kernel
def symmetric_power_step(graph, values, dinv, q, scale, out):
    """One step of the power method on D^-1 A: z = dinv * (A (scale * q)); see `relaxation.power_step`."""
    return relaxation.power_step.reference(*expanded(graph, values), dinv, q, scale, out)


@spliced
def upper_row(
    indptr, indices, starts, values, x, ring, base, slot, ring_rows, masked, i, n_samples, first, ahead, shared, width,
    total,
):  # fmt: skip
    """`total` plus the stored entries of row i times `x`; their transposes are added to the sums in the ring."""
    row, stride, start = U(i), U(n_samples), U(first)
    begin, end = U(starts[row]), U(starts[row + U(1)])
    before = U(indptr[row + U(1)]) - end
    own = load(x, np.int64(row * stride + start), width)
    for m in range(begin, end):
        if shared:
            entry = splat(values[m], values, width)
        else:
            entry = load(values, np.int64(m * stride + start), width)
            prefetch(values, np.int64((m + ahead) * stride + start), width)
        j = U(indices[m + before])
        total = total + entry * load(x, np.int64(j * stride + start), width)
        if m > begin:  # the first is the diagonal
            place = slot + np.int64(j - row)
            if masked:
                place &= ring_rows - 1
            elif place >= ring_rows:
                place -= ring_rows
            place = base + place * width
            store(ring, place, load(ring, place, width) + entry * own)
    return total


@spliced
def row_end(
    kind, shared, total, i, here, first, dinv, b, x, a, c, w, leave, r, out, past_cache, width, inner, square
):  # fmt: skip
    """Write row i of a pass whose product has `total` there; returns the two partial sums with its terms added."""
    if kind == RESIDUAL:
        total = load(b, here, width) - total
    elif kind == DOT:
        inner = inner + convert(load(x, here, width) * total, out)
    elif kind == POWER:
        inverse = splat(dinv[i], dinv, width) if shared else load(dinv, here, width)
        factor = load(c, first, width)
        total = factor * (inverse * total)
        inner = inner + convert((factor * load(x, here, width)) * total, out)
        square = square + convert(total * total, out)
    elif kind != PRODUCT:
        inverse = splat(dinv[i], dinv, width) if shared else load(dinv, here, width)
        step = load(c, first, width) * (inverse * (load(b, here, width) - total))
        if kind != FIRST:
            step = load(a, first, width) * load(w, here, width) + step
        if kind != LAST and kind != FINISH:
            store(w, here, step)
        total = load(x, here, width) + step
    answer = convert(total, out)
    if kind == FINISH:
        answer = load(leave, first, width) * answer
        inner = inner + load(r, here, width) * answer
    if past_cache:
        stream(out, here, answer)
    else:
        store(out, here, answer)
    return inner, square


@per_width
def _pass(width, shared, masked, one_sample):
    """`masked` is what `ring_of` returns; `one_sample` means that there is one sample: strides are constants."""

    @compiled
    def loop(
        indptr, indices, starts, entries, reach, values, dinv, b, x, a, c, w, leave, r, out, ring, sums, squares,
        ring_rows, n_chunks, past_cache, stride, offset, kind,
    ):  # fmt: skip
        n_samples, first = (1, 0) if one_sample else (stride, offset)
        ahead = U(PREFETCH_BYTES // (n_samples * values.itemsize))
        n_rows = indptr.size - 1
        n_blocks = (n_rows + ROW_BLOCK - 1) // ROW_BLOCK
        for chunk in prange(n_chunks):
            first_block, last_block = chunk * n_blocks // n_chunks, (chunk + 1) * n_blocks // n_chunks
            low, base, slot = first_block * ROW_BLOCK, chunk * ring_rows * width, np.int64(0)
            for i in range(low, low + ring_rows):
                total = zeros(values, width)
                if low > 0 and i < n_rows:
                    for k in range(indptr[i], indptr[i + 1]):
                        if indices[k] >= low:
                            break
                        m = np.int64(entries[k])
                        entry = (
                            splat(values[m], values, width) if shared else load(values, m * n_samples + first, width)
                        )
                        total = total + entry * load(x, np.int64(indices[k]) * n_samples + first, width)
                store(ring, base + (i - low) * width, total)
            for block in range(first_block, last_block):
                inner, square = zeros(out, width), zeros(out, width)
                for i in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, n_rows)):
                    total = upper_row(
                        indptr, indices, starts, values, x, ring, base, slot, ring_rows, masked, i, n_samples, first,
                        ahead, shared, width, load(ring, base + slot * width, width),
                    )  # fmt: skip
                    store(ring, base + slot * width, zeros(values, width))
                    slot = 0 if slot + 1 == ring_rows else slot + 1
                    here = np.int64(i) * n_samples + first
                    inner, square = row_end(
                        kind, shared, total, i, here, first, dinv, b, x, a, c, w, leave, r, out, past_cache, width,
                        inner, square,
                    )  # fmt: skip
                if kind >= DOT:
                    store(sums, block * n_samples + first, inner)
                if kind == POWER:
                    store(squares, block * n_samples + first, square)

    return loop


def chunks_of(n_rows):
    """Row ranges that the threads share."""
    return max(1, min(thread_count(), -(-n_rows // ROW_BLOCK)))


def ring_of(reach, row_bytes):
    """Rows of the ring of a matrix of this reach, and whether they are a power of two, by which places are masked.

    A large ring is not lengthened: it would outgrow the cache.
    """
    ring_rows = 1 << int(reach).bit_length()
    return (ring_rows, True) if ring_rows * row_bytes <= MASKED else (reach + 1, False)


def _run(kind, graph, values, dinv, b, x, a, c, w, out, leave=None, r=None):
    """One pass over the stored half of A; returns `out` and two arrays of partial sums, where the kind makes them."""
    n_rows, n_samples = x.shape
    leave, r = (x if array is None else array for array in (leave, r))
    out = output(out, x.shape, r.dtype)
    shared = values.shape[1] != n_samples
    n_blocks = SERIAL.bounds(n_rows).size - 1 if kind >= DOT else 0
    sums, squares = (np.zeros((n_blocks, n_samples), r.dtype) for _ in range(2))
    n_chunks = chunks_of(n_rows)
    flat = [array.reshape(-1) for array in (values, dinv, b, x, a, c, w, leave, r, out)]
    for first, width in tiles(n_samples):
        ring_rows, masked = ring_of(graph[-1], width * x.itemsize)
        ring = empty((n_chunks * ring_rows * width,), x.dtype)
        _pass(width, shared, masked, n_samples == 1)(
            *graph, *flat, ring, sums.reshape(-1), squares.reshape(-1), ring_rows, n_chunks, streams(out), n_samples,
            first, kind,
        )  # fmt: skip
    return out, sums, squares


@symmetric_spmv.register("numba")
def _(graph, values, x, out):
    return _run(PRODUCT, graph, values, x, x, x, x, x, x, out)[0]


@symmetric_residual.register("numba")
def _(graph, values, x, b, out):
    return _run(RESIDUAL, graph, values, x, b, x, x, x, x, out)[0]


@per_width
def _restricted(width, shared, shared_p, masked, one_sample):
    @compiled_procedure
    def loop(
        indptr, indices, starts, values, b, x, indptr_p, indices_p, p, ring, ring_rows, out, n_coarse, stride, offset
    ):  # fmt: skip
        n_samples, first = (1, 0) if one_sample else (stride, offset)
        ahead = U(PREFETCH_BYTES // (n_samples * values.itemsize))
        slot = np.int64(0)
        for i in range(ring_rows):
            store(ring, i * width, zeros(values, width))
        for i in range(n_coarse):
            store(out, i * n_samples + first, zeros(values, width))
        for i in range(indptr.size - 1):
            total = upper_row(
                indptr, indices, starts, values, x, ring, 0, slot, ring_rows, masked, i, n_samples, first,
                ahead, shared, width, load(ring, slot * width, width),
            )  # fmt: skip
            store(ring, slot * width, zeros(values, width))
            slot = 0 if slot + 1 == ring_rows else slot + 1
            total = load(b, np.int64(i) * n_samples + first, width) - total
            for k in range(U(indptr_p[i]), U(indptr_p[i + 1])):
                if shared_p:
                    factor = splat(p[k], p, width)
                else:
                    factor = load(p, np.int64(k * U(n_samples) + U(first)), width)
                place = np.int64(U(indices_p[k]) * U(n_samples) + U(first))
                store(out, place, load(out, place, width) + factor * total)

    return loop


@symmetric_restricted_residual.register("numba")
def _(graph, values, x, b, graph_p, restriction, p, r, out):
    n_rows, n_samples = x.shape
    if chunks_of(n_rows) > 1:  # the sums of several threads would not come in the order of one
        r = _run(RESIDUAL, graph, values, x, b, x, x, x, x, r)[0]
        return sparse.spmv_transpose(*restriction, p, r, out)
    n_coarse = restriction[0].size - 1
    out = output(out, (n_coarse, n_samples), x.dtype)
    shared, shared_p = values.shape[1] != n_samples, p.shape[1] != n_samples
    flat = [array.reshape(-1) for array in (values, b, x)]
    for first, width in tiles(n_samples):
        ring_rows, masked = ring_of(graph[-1], width * x.itemsize)
        ring = empty((ring_rows * width,), x.dtype)
        _restricted(width, shared, shared_p, masked, n_samples == 1)(
            *graph[:3], *flat, *graph_p, p.reshape(-1), ring, ring_rows, out.reshape(-1), n_coarse, n_samples, first
        )
    return out


@symmetric_spmv_dot.register("numba")
def _(graph, values, x, out):
    out, sums, _ = _run(DOT, graph, values, x, x, x, x, x, x, out)
    return out, SERIAL.total(sums)


@symmetric_chebyshev_first.register("numba")
def _(graph, values, dinv, b, x, c, w, out):
    w = output(w, x.shape, x.dtype)
    return w, _run(FIRST, graph, values, dinv, b, x, c, c, w, out)[0]


@symmetric_chebyshev_step.register("numba")
def _(graph, values, dinv, b, x, a, c, w, out):
    return w, _run(STEP, graph, values, dinv, b, x, a, c, w, out)[0]


@symmetric_chebyshev_last.register("numba")
def _(graph, values, dinv, b, x, a, c, w, out):
    return _run(LAST, graph, values, dinv, b, x, a, c, w, out)[0]


@symmetric_finish.register("numba")
def _(leave, graph, values, dinv, b, x, a, c, w, r, out):
    out, sums, _ = _run(FINISH, graph, values, dinv, b, x, a, c, w, out, leave, r)
    return out, SERIAL.total(sums)


@symmetric_power_step.register("numba")
def _(graph, values, dinv, q, scale, out):
    out, sums, squares = _run(POWER, graph, values, dinv, q, q, scale, scale, q, out)
    return out, SERIAL.total(sums), SERIAL.total(squares)
