"""Graph work of smoothed aggregation: which rows form an aggregate. No sample axis; natural order; deterministic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._compile import cuda
from ensemble._compile.allocation import new_full
from ensemble._compile.numba import compiled, compiled_procedure, prange
from ensemble._compile.registry import kernel
from ensemble._kernels.multigrid import measures
from ensemble._kernels.sparse.complex_numbers import is_complex

__all__ = ["aggregate", "coupled_rows", "number_by_rows", "square_on_graph"]

U = np.uint64  # an unsigned index needs no test for a negative one

CHUNK = 4096
"""Rows of a squared matrix that share one marker array."""


@kernel
def coupled_rows(graph, values):
    """True for each row with an off-diagonal entry that is not zero in some sample; the others are boundary rows.

    `graph` is (indptr, indices), or (indptr, indices, entries) where entry k has the value ``values[entries[k]]``. A
    NaN counts as a coupling, so that a broken sample does not change the graph of the others.
    """
    xp, (indptr, indices, *entries) = array_namespace(values), graph
    nonzero = to_numpy(xp.any(values != 0, axis=1))
    nonzero = nonzero[to_numpy(entries[0])] if entries else nonzero
    rows = np.repeat(np.arange(indptr.shape[0] - 1), to_numpy(indptr[1:] - indptr[:-1]))
    coupled = np.zeros(indptr.shape[0] - 1, bool)
    coupled[rows[nonzero & (to_numpy(indices) != rows)]] = True
    return coupled


@compiled
def _coupled_rows(indptr, indices, entries, mapped, values, coupled):
    for i in prange(indptr.size - 1):
        found = False
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] != i:
                m = np.int64(entries[k]) if mapped else np.int64(k)
                for s in range(values.shape[1]):
                    if values[m, s] != 0:
                        found = True
                        break
            if found:
                break
        coupled[i] = found


@coupled_rows.register("numba", complex_numbers=True)
def _(graph, values):
    if is_complex(values):  # parts are samples of their own
        values = values.view(values.real.dtype)
    coupled = np.empty(graph[0].size - 1, np.bool_)
    _coupled_rows(*graph[:2], graph[-1], len(graph) == 3, values, coupled)
    return coupled


@coupled_rows.register("cuda", complex_numbers=True)
def _(graph, values):
    (indptr, indices, *entries), n_samples = graph, values.shape[1]
    n_rows, xp = indptr.shape[0] - 1, array_namespace(values)
    renamed = xp.astype(entries[0], indptr.dtype, copy=False) if entries else None
    coupled, layout = xp.zeros(n_rows, dtype=xp.bool), cuda.layout_of(n_samples, values)
    arguments = (indptr, indices, renamed, values, coupled)
    measures.CUDA.rows("coupled_rows", n_rows, n_samples, arguments, layout, cuda.is_wide(indptr))
    return to_numpy(coupled)


def aggregate(
    begins: np.ndarray, ends: np.ndarray, indices: np.ndarray, included: np.ndarray, early: Sequence[np.ndarray] = ()
) -> tuple[np.ndarray, int]:
    """Aggregates of a graph, by the uncoupled scheme of Vanek, Mandel and Brezina (1996) in natural order.

    Node i has the neighbours ``indices[begins[i]:ends[i]]``.

    1. A node none of whose neighbours is in an aggregate forms one with all of them. Nodes of ``early[0]`` come first,
       then those of ``early[1]``, and so on: those that have most of their neighbours, where the graph is a part of
       another one. A node at a side of the part would form a smaller aggregate.
    2. A node left over joins the neighbouring aggregate of phase 1 to which most of its edges lead (the lowest number
       among equals).
    3. What is still left forms aggregates with its left-over neighbours.

    Nodes outside `included` belong to no aggregate and are no neighbours. Returns (aggregates, number of aggregates);
    -1 marks an excluded node.
    """
    member, count = np.full(begins.size, -1, np.int32), 0
    for roots in (*(some & included for some in early), included):
        count = _aggregates_of_roots(begins, ends, indices, included, roots, member, count)
    return member, _aggregate_rest(begins, ends, indices, included, member, count)


@compiled_procedure
def _aggregates_of_roots(begins, ends, indices, included, roots, member, n_aggregates):
    """Phase 1 from the nodes of `roots`, beside the aggregates in `member`; returns how many there are then."""
    for i in range(member.size):
        if not roots[i] or member[i] >= 0:
            continue
        free, alone = True, True
        for k in range(U(begins[i]), U(ends[i])):
            j = U(indices[k])
            if included[j] and j != U(i):
                alone = False
                if member[j] >= 0:
                    free = False
                    break
        if free and not alone:
            member[i] = n_aggregates
            for k in range(U(begins[i]), U(ends[i])):
                j = U(indices[k])
                if included[j]:
                    member[j] = n_aggregates
            n_aggregates += 1
    return n_aggregates


@compiled_procedure
def _aggregate_rest(begins, ends, indices, included, member, n_aggregates):
    """Phases 2 and 3; returns how many aggregates there are then."""
    n = member.size
    joined = new_full(n, -1, np.int32)
    edges = new_full(max(n_aggregates, 1), 0, np.int64)
    for i in range(n):  # phase 2
        if not included[i] or member[i] >= 0:
            continue
        best = -1
        for k in range(U(begins[i]), U(ends[i])):
            a = member[U(indices[k])]
            if a >= 0:
                edges[U(a)] += 1
                most = edges[U(max(best, 0))]
                if best < 0 or edges[U(a)] > most or (edges[U(a)] == most and a < best):
                    best = a
        joined[i] = best
        for k in range(U(begins[i]), U(ends[i])):
            a = member[U(indices[k])]
            if a >= 0:
                edges[U(a)] = 0
    for i in range(n):
        if joined[i] >= 0:
            member[i] = joined[i]
    for i in range(n):  # phase 3
        if not included[i] or member[i] >= 0:
            continue
        member[i] = n_aggregates
        for k in range(U(begins[i]), U(ends[i])):
            j = U(indices[k])
            if included[j] and member[j] < 0:
                member[j] = n_aggregates
        n_aggregates += 1
    return n_aggregates


def number_by_rows(member: np.ndarray, count: int) -> np.ndarray:
    """Number `count` aggregates in `member` in the order of their first nodes, in place; returns these."""
    number, first = np.full(count, -1, np.int32), np.empty(count, np.int64)
    _number_by_rows(member, number, first)
    return first


@compiled_procedure
def _number_by_rows(member, number, first):
    met = 0
    for i in range(member.size):
        a = member[i]
        if a >= 0:
            if number[a] < 0:
                number[a] = met
                first[met] = i
                met += 1
            member[i] = number[a]


@compiled
def square_on_graph(indptr, indices, values, out):
    """The entries of the square of a matrix that lie on its own graph: one sample, to `out`, shape (nnz,)."""
    n = indptr.size - 1
    for chunk in prange((n + CHUNK - 1) // CHUNK):
        place = new_full(n, -1, np.int64)  # of each column's entry in the row at hand; earlier rows' lie before it
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, n)):
            for k in range(indptr[i], indptr[i + 1]):
                place[indices[k]] = k
                out[k] = 0.0
            for k in range(indptr[i], indptr[i + 1]):
                for m in range(indptr[indices[k]], indptr[indices[k] + 1]):
                    if place[indices[m]] >= indptr[i]:
                        out[place[indices[m]]] += values[k] * values[m]
