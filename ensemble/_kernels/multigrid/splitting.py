"""Graph work of reduction-based multigrid: which entries are strong, and which rows are coarse. Deterministic."""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled, compiled_serial, prange
from ensemble._compile.registry import kernel
from ensemble._kernels.sparse.product_graphs import ROW_CHUNK

__all__ = [
    "ALL_ENTRIES",
    "COARSE",
    "DIAGONAL",
    "FINE",
    "OFF_DIAGONAL",
    "UNDECIDED",
    "split_free_rows",
    "split_rows",
    "strong_entries",
]

OFF_DIAGONAL, DIAGONAL, ALL_ENTRIES = range(3)
"""The scale of the entries of a row: its largest off-diagonal entry, its diagonal entry, its largest entry."""

UNDECIDED, FINE, COARSE = range(3)


@kernel
def strong_entries(indptr, indices, values, measure, threshold, mean):
    """True for each entry with ``|values[k, s]| >= threshold * scale[i, s]`` in some sample, or on their mean.

    ``scale[i, s]`` is the absolute value that `measure` names in row i; an entry that is zero is never strong, and one
    whose row has scale zero is strong. With `mean`, the mean of ``|values| / scale`` over the samples is compared with
    `threshold`. Diagonal entries are strong where `measure` is DIAGONAL and never where it is OFF_DIAGONAL. Values are
    finite.
    """
    n_rows, n_samples = indptr.shape[0] - 1, values.shape[1]
    rows = np.repeat(np.arange(n_rows), np.diff(indptr))
    on_diagonal, size = indices == rows, np.abs(values)
    measured = {OFF_DIAGONAL: ~on_diagonal, DIAGONAL: on_diagonal, ALL_ENTRIES: np.ones_like(on_diagonal)}[measure]
    scale = np.zeros((n_rows, n_samples), size.dtype)
    np.maximum.at(scale, rows[measured], size[measured])
    scale, threshold = scale[rows], size.dtype.type(threshold)
    if mean:
        total = np.zeros(indices.shape[0], size.dtype)
        for s in range(n_samples):
            total = total + np.divide(size[:, s], scale[:, s], out=np.sign(size[:, s]), where=scale[:, s] > 0)
        strong = (total >= threshold * size.dtype.type(n_samples)) & (total > 0)
    else:
        strong = ((size >= threshold * scale) & (size > 0)).any(axis=1)
    return strong | on_diagonal if measure == DIAGONAL else strong & (measured | (measure == ALL_ENTRIES))


@compiled
def _strong_entries(indptr, indices, values, measure, threshold, mean, strong):
    n_rows, n_samples = indptr.size - 1, values.shape[1]
    zero, one, least = values.dtype.type(0), values.dtype.type(1), threshold * values.dtype.type(n_samples)
    for chunk in prange((n_rows + ROW_CHUNK - 1) // ROW_CHUNK):
        scale = np.empty(n_samples, values.dtype)
        for i in range(chunk * ROW_CHUNK, min((chunk + 1) * ROW_CHUNK, n_rows)):
            scale[:] = zero
            for k in range(indptr[i], indptr[i + 1]):
                if measure == ALL_ENTRIES or (indices[k] == i) == (measure == DIAGONAL):
                    for s in range(n_samples):
                        scale[s] = max(scale[s], abs(values[k, s]))
            for k in range(indptr[i], indptr[i + 1]):
                if indices[k] == i and measure != ALL_ENTRIES:
                    strong[k] = measure == DIAGONAL
                    continue
                total, found = zero, False
                for s in range(n_samples):
                    size = abs(values[k, s])
                    if mean and size > 0:
                        total += size / scale[s] if scale[s] > 0 else one
                    elif size > 0 and size >= threshold * scale[s]:
                        found = True
                        break
                strong[k] = total >= least and total > 0 if mean else found


@strong_entries.register("numba")
def _(indptr, indices, values, measure, threshold, mean):
    strong = np.empty(indices.size, np.bool_)
    _strong_entries(indptr, indices, values, measure, values.dtype.type(threshold), mean, strong)
    return strong


@compiled_serial
def _exchange(order, place, a, b):
    """Let the rows at the places `a` and `b` of the order change places."""
    i, j = order[a], order[b]
    order[a], order[b] = j, i
    place[i], place[j] = b, a


def split_rows(indptr, indices, indptr_t, indices_t):
    """True for the coarse rows of a graph of strong entries; see `split_free_rows`."""
    n = indptr.size - 1
    return split_free_rows(indptr, indices, indptr_t, indices_t, np.full(n, UNDECIDED, np.int8), n)


@compiled_serial
def split_free_rows(indptr, indices, indptr_t, indices_t, state, n_free):
    """True for the coarse rows of a graph of strong entries (no diagonal), by Ruge and Stueben (1987), section 4.6.

    Longer than 60 lines: both passes change one set of counts.

    1. The weight of a row is the number of rows that depend on it, those already fine counted twice. The undecided row
       of the largest weight becomes coarse, the undecided rows that depend on it become fine. Rows on which no row
       depends are fine.
    2. Of two fine rows of which one depends on the other, and which depend on no coarse row in common, one becomes
       coarse.

    Rows from `n_free` on are decided: `state` says how, and has UNDECIDED for the others. One that depends on a coarse
    row of these is fine, and one that shares no coarse row with a fine row of these is coarse.

    ``(indptr_t, indices_t)`` is the graph of the transpose. `order` holds the rows by ascending weight, and rows of
    weight w lie at the places from ``begin[w]`` on, ``count[w]`` of them: a weight changes by one in constant time.
    """
    n = indptr.size - 1
    for i in range(n_free):
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] >= n_free and state[indices[k]] == COARSE:
                state[i] = FINE
    weight = np.zeros(n, np.int64)
    heaviest = 0
    for i in range(n):
        for k in range(indptr_t[i], indptr_t[i + 1]):
            of = state[indices_t[k]]
            weight[i] += 2 if of == FINE else (0 if of == COARSE else 1)
        heaviest = max(heaviest, indptr_t[i + 1] - indptr_t[i])
    begin, count = np.zeros(2 * heaviest + 2, np.int64), np.zeros(2 * heaviest + 2, np.int64)  # a weight may double
    for i in range(n):
        count[weight[i]] += 1
    for w in range(1, begin.size):
        begin[w] = begin[w - 1] + count[w - 1]
    order, place, at = np.empty(n, np.int64), np.empty(n, np.int64), begin.copy()
    for i in range(n):
        place[i] = at[weight[i]]
        order[place[i]] = i
        at[weight[i]] += 1
    for i in range(n):
        if weight[i] == 0 and state[i] == UNDECIDED:
            state[i] = FINE
    # phase 1
    for last in range(n - 1, -1, -1):
        i = order[last]
        count[weight[i]] -= 1
        if state[i] != UNDECIDED:
            continue
        state[i] = COARSE
        for k in range(indptr_t[i], indptr_t[i + 1]):
            j = indices_t[k]
            if state[j] != UNDECIDED:
                continue
            state[j] = FINE
            for m in range(indptr[j], indptr[j + 1]):
                row = indices[m]
                if state[row] == UNDECIDED:
                    w = weight[row]
                    count[w] -= 1
                    _exchange(order, place, place[row], begin[w] + count[w])
                    begin[w + 1] = place[row]
                    count[w + 1] += 1
                    weight[row] = w + 1
        for k in range(indptr[i], indptr[i + 1]):
            row = indices[k]
            if state[row] == UNDECIDED and weight[row] > 0:
                w = weight[row]
                _exchange(order, place, place[row], begin[w])
                count[w] -= 1
                begin[w] += 1
                count[w - 1] += 1
                begin[w - 1] = begin[w] - count[w - 1]
                weight[row] = w - 1
    # phase 2
    mark = np.full(n, -1, np.int64)
    for i in range(n_free):
        if state[i] != FINE:
            continue
        for k in range(indptr[i], indptr[i + 1]):
            if state[indices[k]] == COARSE:
                mark[indices[k]] = i
        tentative = -1
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            if state[j] != FINE:
                continue
            common = False
            for m in range(indptr[j], indptr[j + 1]):
                if mark[indices[m]] == i and state[indices[m]] == COARSE:
                    common = True
                    break
            if common:
                continue
            if tentative < 0 and j < n_free:
                tentative = j
                state[j] = COARSE
                mark[j] = i
            else:
                if tentative >= 0:
                    state[tentative] = FINE
                state[i] = COARSE
                break
    return state == COARSE
