"""The Galerkin product A_c = P^T A P on known graphs, of complex numbers P^H A P, and the smoothed prolongator.

The graph work is done once, for all samples and all later values (`product_graphs`); these kernels only add. Rows of
A P are made in slabs, on the CPU of `SLAB_ROWS` rows a thread that stay in its cache; each coarse row then takes its
share of the slab. Every sum runs over ascending fine rows, whatever the threads.

The graph of A is (indptr, indices), or (indptr, indices, entries) of a symmetric matrix that stores its upper triangle:
``entries[k]`` is then the place of the value of entry k.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, backend_of, to_numpy
from ensemble._compile import cuda
from ensemble._compile.allocation import new
from ensemble._compile.lanes.types import load, prefetch, splat, store, zeros
from ensemble._compile.numba import compiled, compiled_unrolled, empty, output, per_width, prange, thread_count, tiles
from ensemble._compile.registry import into, kernel
from ensemble._kernels.multigrid.pairs import (
    CUDA,
    GalerkinPairs,
    ProlongatorPairs,
    galerkin_pairs,
    galerkin_product,
    pairs_of,
    prolongator_pairs,
    sum_products,
)
from ensemble._kernels.sparse.complex_numbers import conjugated, times
from ensemble._kernels.sparse.product_graphs import ROW_CHUNK, SLAB_ROWS, U, slab_tasks
from ensemble._typing import Array

__all__ = [
    "add_galerkin_values",
    "galerkin_values",
    "product_values",
    "smooth_prolongator",
]

MOST_THREADS = 32
"""Threads for which slabs are made longer."""

ENTRIES_AHEAD = np.uint64(32)
"""Entries ahead of their use that values of a symmetric matrix's lower triangle are prefetched.

Measured again by `benchmarks multigrid`.
"""


def every_entry(graph_a, values):
    """(indptr, indices) and the values of all entries, in their order."""
    if len(graph_a) == 2:
        return graph_a, values
    return graph_a[:2], array_namespace(values).take(values, graph_a[2], axis=0)


# --- P = T - omega D^-1 A T
def prolongator_tasks(values: Any, graph_a: Any, graph_t: Any, graph_p: Any) -> Any:
    """Arguments of `smooth_prolongator` besides the graphs, on the device of `values`: pairs on a device, else none."""
    return prolongator_pairs(graph_a, graph_t, graph_p) if backend_of(values) == "cuda" else None


@kernel
def smooth_prolongator(graph_a, values, dinv, omega, graph_t, tentative, graph_p, tasks, out):
    """P[i, J] = T[i, J] - omega[s] * dinv[i, s] * sum over j of A[i, j, s] * T[j, J], on the known graph of P.

    Each graph is (indptr, indices); `tentative` holds T's values, the same for all samples, as shape (nnz, 1); rows of
    T without entries are boundary rows and stay empty in P. `tasks` is None or from `prolongator_tasks`.
    """
    graph_a, values = every_entry(graph_a, values)
    (indptr_a, indices_a), (indptr_t, indices_t), (indptr_p, indices_p) = graph_a, graph_t, graph_p
    p = np.zeros((indices_p.shape[0], values.shape[1]), values.dtype)
    for i in range(indptr_p.shape[0] - 1):
        columns = {int(j): m for m, j in enumerate(indices_p[indptr_p[i] : indptr_p[i + 1]], start=indptr_p[i])}
        if not columns:
            continue
        for k in range(indptr_a[i], indptr_a[i + 1]):
            j = indices_a[k]
            for m in range(indptr_t[j], indptr_t[j + 1]):
                p[columns[int(indices_t[m])]] += times(values[k], tentative[m])
        for m in columns.values():
            p[m] = times(-times(omega, dinv[i]), p[m])
        for m in range(indptr_t[i], indptr_t[i + 1]):
            p[columns[int(indices_t[m])]] += tentative[m]
    return into(out, p)


@per_width
def _smooth_prolongator(width, mapped):
    @compiled
    def loop(
        indptr_a, indices_a, entries, values, dinv, omega, indptr_t, indices_t, tentative, indptr_p, indices_p,
        n_coarse, p, n_samples, first,
    ):  # fmt: skip
        n_rows = indptr_p.size - 1
        stride, start, last = U(n_samples), U(first), U(entries.size - 1)
        for chunk in prange((n_rows + ROW_CHUNK - 1) // ROW_CHUNK):
            place = new(n_coarse, np.int64)  # of each coarse column's entry in the row at hand
            for i in range(U(chunk * ROW_CHUNK), U(min((chunk + 1) * ROW_CHUNK, n_rows))):
                begin, end = U(indptr_p[i]), U(indptr_p[i + U(1)])
                if begin == end:
                    continue
                for m in range(begin, end):
                    here = np.int64(m * stride + start)
                    place[U(indices_p[m])] = here
                    store(p, here, zeros(values, width))
                for k in range(U(indptr_a[i]), U(indptr_a[i + U(1)])):
                    j = U(indices_a[k])
                    m_a = U(entries[k]) if mapped else k
                    entry = load(values, np.int64(m_a * stride + start), width)
                    if mapped:  # indirect addresses: the hardware does not prefetch them
                        later = U(entries[min(k + ENTRIES_AHEAD, last)])
                        prefetch(values, np.int64(later * stride + start), width)
                    for m in range(U(indptr_t[j]), U(indptr_t[j + U(1)])):
                        here = place[U(indices_t[m])]
                        store(p, here, load(p, here, width) + entry * splat(tentative[m], values, width))
                factor = load(omega, first, width) * load(dinv, np.int64(i * stride + start), width)
                factor = zeros(values, width) - factor
                for m in range(begin, end):
                    here = np.int64(m * stride + start)
                    store(p, here, factor * load(p, here, width))
                for m in range(U(indptr_t[i]), U(indptr_t[i + U(1)])):
                    here = place[U(indices_t[m])]
                    store(p, here, load(p, here, width) + splat(tentative[m], values, width))

    return loop


@smooth_prolongator.register("cuda", complex_numbers=True)
def _(graph_a, values, dinv, omega, graph_t, tentative, graph_p, tasks, out):
    graph_a, values = every_entry(graph_a, values)
    if not isinstance(tasks, ProlongatorPairs):
        tasks = prolongator_pairs(graph_a, graph_t, graph_p)
    n_samples = values.shape[1]
    out = cuda.output(out, values, (graph_p[1].shape[0], n_samples))
    arguments = (*tasks.pairs, tasks.rows, tasks.own, values, tentative, dinv, omega, out)
    layout, wide = cuda.layout_of(n_samples, values, dinv, omega, out), cuda.is_wide(tasks.own)
    CUDA.rows("smooth_prolongator", out.shape[0], n_samples, arguments, layout, wide)
    return out


@smooth_prolongator.register("numba", complex_numbers=True)
def _(graph_a, values, dinv, omega, graph_t, tentative, graph_p, tasks, out):
    n_samples = values.shape[1]
    out = output(out, (graph_p[1].shape[0], n_samples), values.dtype)
    n_coarse = int(graph_p[1].max()) + 1 if graph_p[1].size else 0
    for first, width in tiles(n_samples):
        _smooth_prolongator(width, len(graph_a) == 3)(
            *graph_a[:2], graph_a[-1], values.reshape(-1), dinv.reshape(-1), omega, *graph_t, tentative.reshape(-1),
            *graph_p, n_coarse, out.reshape(-1), n_samples, first,
        )  # fmt: skip
    return out


# --- C = A B
@kernel
def product_values(graph_a, values, graph_b, b, graph_c, out):
    """Values of the product A B for every sample on the graph `graph_c` made by `product_graph`."""
    if not isinstance(values, np.ndarray):  # its library may not write at places
        graphs = [tuple(to_numpy(index) for index in graph) for graph in (graph_a, graph_b, graph_c)]
        c = product_values(graphs[0], to_numpy(values), graphs[1], to_numpy(b), graphs[2], None)
        return into(out, asarray_like(c, values))
    (indptr_a, indices_a), (indptr_b, indices_b), (indptr_c, indices_c) = graph_a, graph_b, graph_c
    c = np.zeros((indices_c.shape[0], max(values.shape[1], b.shape[1])), values.dtype)
    for i in range(indptr_c.shape[0] - 1):
        place = {int(indices_c[m]): m for m in range(indptr_c[i], indptr_c[i + 1])}
        for k in range(indptr_a[i], indptr_a[i + 1]):
            for m in range(indptr_b[indices_a[k]], indptr_b[indices_a[k] + 1]):
                c[place[int(indices_b[m])]] += times(values[k], b[m])
    return into(out, c)


@product_values.register("numba", complex_numbers=True)
def _(graph_a, values, graph_b, b, graph_c, out):
    n_samples = max(values.shape[1], b.shape[1])
    shared = (values.shape[1] != n_samples, b.shape[1] != n_samples)
    out = output(out, (graph_c[1].size, n_samples), values.dtype)
    n_columns = int(graph_c[1].max()) + 1 if graph_c[1].size else 0
    for first, width in tiles(n_samples):
        _product_rows(width, *shared)(
            *graph_a, graph_a[1], values.reshape(-1), *graph_b, b.reshape(-1), *graph_c, out.reshape(-1), n_columns,
            0, graph_a[0].size - 1, n_samples, first, n_samples, first, False,
        )  # fmt: skip
    return out


@product_values.register("cuda", complex_numbers=True)
def _(graph_a, values, graph_b, b, graph_c, out):
    return sum_products(pairs_of(graph_a, graph_b, graph_c), values, b, out)


# --- A_c = P^T A P
def galerkin_tasks(values: Array, graph_a: Any, graph_p: Any, graph_ap: Any, restriction: Any, graph_c: Any) -> Any:
    """Arguments of `galerkin_values` besides the graphs: slab tasks on the host, or pairs on the device of `values`."""
    if backend_of(values) != "cuda":
        slab_rows = SLAB_ROWS * min(thread_count(), MOST_THREADS)
        return slab_rows, *slab_tasks(restriction[0], restriction[1], graph_a[0].shape[0] - 1, slab_rows)
    return galerkin_pairs(graph_a[:2], graph_p, graph_ap, restriction, graph_c)


@kernel
def galerkin_values(graph_a, values, graph_p, p, graph_ap, restriction, tasks, graph_c, out):
    """Values of P^T A P, of complex numbers P^H A P, for every sample on the graph `graph_c`; see `galerkin_tasks`."""
    graph_a, values = every_entry(graph_a, values)
    adjoint = conjugated(p)
    (indptr_a, indices_a), (indptr_p, indices_p) = graph_a, graph_p
    indptr_c, indices_c = graph_c
    n_samples = max(values.shape[1], p.shape[1])
    c = np.zeros((indices_c.shape[0], n_samples), values.dtype)
    place = {}
    for i in range(indptr_c.shape[0] - 1):
        place.update({(i, int(indices_c[k])): k for k in range(indptr_c[i], indptr_c[i + 1])})
    for i in range(indptr_a.shape[0] - 1):  # fine rows ascending
        ap = {}
        for k in range(indptr_a[i], indptr_a[i + 1]):
            for m in range(indptr_p[indices_a[k]], indptr_p[indices_a[k] + 1]):
                j = int(indices_p[m])
                ap[j] = ap.get(j, 0) + times(values[k], p[m])
        for m in range(indptr_p[i], indptr_p[i + 1]):
            for j, value in ap.items():
                c[place[int(indices_p[m]), j]] += times(adjoint[m], value)
    return into(out, c)


@per_width
def _product_rows(width, shared_a, shared_p):
    """Rows `begin` to `end` of A P, whose first entry has the place 0 in `product`."""

    @compiled_unrolled
    def loop(
        indptr_a, indices_a, entries, values, indptr_p, indices_p, p, indptr_ap, indices_ap, product, n_coarse, begin,
        end, stride, offset, n_samples, first, mapped,
    ):  # fmt: skip
        base = np.int64(indptr_ap[begin])
        samples, start, last = U(n_samples), U(first), U(entries.size - 1)
        for chunk in prange((end - begin + ROW_CHUNK - 1) // ROW_CHUNK):
            place = new(n_coarse, np.int64)  # of each coarse column's entry in the row at hand
            low = begin + chunk * ROW_CHUNK
            for i in range(U(low), U(min(low + ROW_CHUNK, end))):
                for m in range(U(indptr_ap[i]), U(indptr_ap[i + U(1)])):
                    here = (np.int64(m) - base) * stride + offset
                    place[U(indices_ap[m])] = here
                    store(product, here, zeros(product, width))
                for k in range(U(indptr_a[i]), U(indptr_a[i + U(1)])):
                    j = U(indices_a[k])
                    m_a = U(entries[k]) if mapped else k
                    if shared_a:
                        a = splat(values[m_a], values, width)
                    else:
                        a = load(values, np.int64(m_a * samples + start), width)
                        if mapped:  # indirect addresses: the hardware does not prefetch them
                            later = U(entries[min(k + ENTRIES_AHEAD, last)])
                            prefetch(values, np.int64(later * samples + start), width)
                    for m in range(U(indptr_p[j]), U(indptr_p[j + U(1)])):
                        here = place[U(indices_p[m])]
                        if shared_p:
                            factor = splat(p[m], p, width)
                        else:
                            factor = load(p, np.int64(m * samples + start), width)
                        store(product, here, load(product, here, width) + a * factor)

    return loop


@per_width
def _restrict_slab(width, shared_p):
    """Add to the coarse rows what each task's entries of P^T make of the rows of A P in `buffer`."""

    @compiled_unrolled
    def loop(
        rows, begins, ends, task_begin, task_end, indices_r, entries_r, p, indptr_ap, indices_ap, buffer, base,
        indptr_c, indices_c, c, n_coarse, n_samples, first,
    ):  # fmt: skip
        n_chunks = (task_end - task_begin + 15) // 16
        stride, start = U(n_samples), U(first)
        for chunk in prange(n_chunks):
            place = new(n_coarse, np.int64)  # of each column's entry in the coarse row at hand
            for task in range(task_begin + chunk * 16, min(task_begin + (chunk + 1) * 16, task_end)):
                row = rows[task]
                for m in range(U(indptr_c[row]), U(indptr_c[row + 1])):
                    place[U(indices_c[m])] = np.int64(m * stride + start)
                for k in range(U(begins[task]), U(ends[task])):
                    i, m_p = U(indices_r[k]), U(entries_r[k])
                    if shared_p:
                        factor = splat(p[m_p], p, width)
                    else:
                        factor = load(p, np.int64(m_p * stride + start), width)
                    for m in range(U(indptr_ap[i]), U(indptr_ap[i + U(1)])):
                        here = place[U(indices_ap[m])]
                        term = factor * load(buffer, (np.int64(m) - base) * width, width)
                        store(c, here, load(c, here, width) + term)

    return loop


@galerkin_values.register("cuda", complex_numbers=True)
def _(graph_a, values, graph_p, p, graph_ap, restriction, tasks, graph_c, out):
    graph_a, values = every_entry(graph_a, values)
    if not isinstance(tasks, GalerkinPairs):
        tasks = galerkin_pairs(graph_a, graph_p, graph_ap, restriction, graph_c)
    return galerkin_product(tasks, values, p, out)


@galerkin_values.register("numba", complex_numbers=True)
def _(graph_a, values, graph_p, p, graph_ap, restriction, tasks, graph_c, out):
    out = output(out, (graph_c[1].size, max(values.shape[1], p.shape[1])), values.dtype)
    out[...] = 0
    add_galerkin_values(graph_a, values, graph_p, p, graph_ap, restriction, tasks, graph_c, graph_c[0].size - 1, out)
    return out


def add_galerkin_values(graph_a, values, graph_p, p, graph_ap, restriction, tasks, graph_c, n_columns, out):
    """Add what some fine rows make of P^T A P, or P^H A P, to `out`; the rows in pieces, each after those before it.

    `tasks` are those of `galerkin_tasks`, of graphs on the device on which the values are.
    Rows of `graph_a` and `graph_ap` are those of the piece; `restriction` refers to them, and its entries to `p`.
    Rows of `graph_p` are the columns of `graph_a`. The coarse matrix has `n_columns` columns.
    """
    if isinstance(tasks, GalerkinPairs):
        galerkin_product(tasks, values, p, out, add=True)
        return
    n_samples = out.shape[1]
    shared_a, shared_p = values.shape[1] != n_samples, p.shape[1] != n_samples
    adjoint = conjugated(p).reshape(-1)
    indptr_ap, indices_ap = graph_ap
    _, indices_r, entries_r = restriction
    slab_rows, starts, rows, begins, ends = tasks
    n_fine = indptr_ap.size - 1
    edges = [*range(0, n_fine, slab_rows), n_fine]
    longest = max((int(indptr_ap[e]) - int(indptr_ap[b]) for b, e in itertools.pairwise(edges)), default=0)
    for first, width in tiles(n_samples):
        buffer = empty((longest * width,), values.dtype)
        for slab, (begin, end) in enumerate(itertools.pairwise(edges)):
            _product_rows(width, shared_a, shared_p)(
                *graph_a[:2], graph_a[-1], values.reshape(-1), *graph_p, p.reshape(-1), indptr_ap, indices_ap, buffer,
                n_columns, begin, end, width, 0, n_samples, first, len(graph_a) == 3,
            )  # fmt: skip
            _restrict_slab(width, shared_p)(
                rows, begins, ends, starts[slab], starts[slab + 1], indices_r, entries_r, adjoint,
                indptr_ap, indices_ap, buffer, np.int64(indptr_ap[begin]), *graph_c, out.reshape(-1), n_columns,
                n_samples, first,
            )  # fmt: skip
