"""Pairs of factors: index arrays of two graphs with which a device gathers each entry of a product.

8 bytes a pair (16 where positions need 64 bits), shared by all samples, made on the device in the order in which the
CPU kernels add.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._compile import cuda
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.sparse.complex_numbers import conjugated

__all__ = [
    "CUDA",
    "GalerkinPairs",
    "Pairs",
    "ProlongatorPairs",
    "galerkin_pairs",
    "galerkin_product",
    "pairs_of",
    "prolongator_pairs",
    "sum_products",
]

PRODUCTS = (
    *(f"sum_products<{a}, {b}>" for a in ("false", "true") for b in ("false", "true")),
    "restrict_slab<false>", "restrict_slab<true>", "smooth_prolongator",
)  # fmt: skip
CUDA = cuda.KernelModule(
    "multigrid/galerkin", [*PRODUCTS, "count_pairs", "fill_pairs", "cut_pairs", "own_entries"], of_complex=PRODUCTS
)


class Pairs(NamedTuple):
    """Entry t of a product is the sum of ``a[left[q]] * b[right[q]]`` over q in ``starts[t]:starts[t + 1]``."""

    starts: Any
    left: Any
    right: Any


def _of_one_type(*graphs):
    """The arrays of graphs on a device as kernels take them, graph by graph; whether positions need 64 bits."""
    xp = array_namespace(graphs[0][0])
    wide = any(cuda.is_wide(graph[0]) for graph in graphs)
    types = (xp.int64 if wide else xp.int32, xp.int32)
    return [xp.astype(array, t, copy=False) for graph in graphs for array, t in zip(graph, types, strict=True)], wide


def pairs_of(graph_a, graph_b, graph_c, entries=None):
    """The pairs of the product on `graph_c`, in the order in which the CPU kernels add; graphs are on a device."""
    graphs, wide = _of_one_type(graph_a, graph_b, graph_c)
    xp, dtype = array_namespace(graphs[0]), graphs[0].dtype
    entries = None if entries is None else xp.astype(entries, dtype, copy=False)
    n_rows, nnz = graph_c[0].shape[0] - 1, graph_c[1].shape[0]
    grid, layout = (-(-n_rows // cuda.THREADS),), cuda.Layout("double", 1, 1, 1)
    counts = xp.zeros(nnz + 1, dtype=xp.int64)
    CUDA.launch("count_pairs", layout, grid, cuda.THREADS, (*graphs, counts[1:], np.int64(n_rows)), wide)
    starts = xp.cumulative_sum(counts)
    left, right = (xp.empty(int(starts[-1]), dtype=dtype) for _ in range(2))
    arguments = (*graphs, entries, xp.asarray(starts[:-1], copy=True), left, right, np.int64(n_rows))
    CUDA.launch("fill_pairs", layout, grid, cuda.THREADS, arguments, wide)
    return Pairs(starts, left, right)


def sum_products(pairs, a, b, out):
    """Values of a product for every sample from its pairs, on a device."""
    n_samples, n_targets = max(a.shape[1], b.shape[1]), pairs.starts.shape[0] - 1
    out = cuda.output(out, a, (n_targets, n_samples))
    shared_a, shared_b = a.shape[1] != n_samples, b.shape[1] != n_samples
    layout = cuda.layout_of(n_samples, out, *(x for x, shared in ((a, shared_a), (b, shared_b)) if not shared))
    name = cuda.instance("sum_products", shared_a, shared_b)
    CUDA.rows(name, n_targets, n_samples, (*pairs, a, b, out), layout, cuda.is_wide(pairs.left))
    return out


class ProlongatorPairs(NamedTuple):
    """The pairs of A T, and for each entry of P its row, and its entry in T or -1."""

    pairs: Pairs
    rows: Any
    own: Any


def prolongator_pairs(graph_a, graph_t, graph_p):
    """The pairs for `smooth_prolongator`, of graphs on a device."""
    graphs, wide = _of_one_type(graph_p, graph_t)
    pairs, nnz = pairs_of(graph_a, graph_t, graph_p), graph_p[1].shape[0]
    xp, n_rows = array_namespace(graphs[0]), graph_p[0].shape[0] - 1
    rows, own = xp.empty(nnz, dtype=xp.int32), xp.empty(nnz, dtype=graphs[0].dtype)
    layout, grid = cuda.Layout("double", 1, 1, 1), (-(-n_rows // cuda.THREADS),)
    CUDA.launch("own_entries", layout, grid, cuda.THREADS, (*graphs, rows, own, np.int64(n_rows)), wide)
    return ProlongatorPairs(pairs, rows, xp.astype(own, pairs.left.dtype, copy=False))


N_SLABS = 16
"""Slabs of fine rows that A P may be made in."""

SLAB_BYTES = 1 << 27
"""Bytes of A P that are made at once, where slabs can be that thin."""


class GalerkinPairs(NamedTuple):
    """The pairs of A P and of P^T (A P), and where slabs of A P begin.

    Slab k holds the entries of A P from ``edges[k]`` on (host numbers); a target's pairs from ``cuts[k]`` on belong to
    it.
    """

    product: Pairs
    restriction: Pairs
    edges: Any
    cuts: Any


def galerkin_pairs(graph_a, graph_p, graph_ap, restriction, graph_c):
    """The pairs for `galerkin_values`, of graphs on a device."""
    product = pairs_of(graph_a, graph_p, graph_ap)
    pairs = pairs_of(restriction[:2], graph_ap, graph_c, restriction[2])
    indptr = graph_ap[0]
    xp, n_rows, n_targets = array_namespace(indptr), indptr.shape[0] - 1, graph_c[1].shape[0]
    n_slabs = max(1, min(N_SLABS, n_rows))
    edges = xp.astype(xp.take(indptr, xp.asarray([n_rows * k // n_slabs for k in range(n_slabs + 1)])), xp.int64)
    cuts = xp.empty((n_slabs + 1, n_targets), dtype=xp.int64)
    layout, grid = cuda.Layout("double", 1, 1, 1), (-(-n_targets // cuda.THREADS),)
    arguments = (pairs.starts, pairs.right, edges, np.int32(n_slabs + 1), cuts, np.int64(n_targets))
    CUDA.launch("cut_pairs", layout, grid, cuda.THREADS, arguments, cuda.is_wide(pairs.right))
    return GalerkinPairs(product, pairs, to_numpy(edges), cuts)


def galerkin_product(tasks, values, p, out, add=False):
    """P^T A P, of complex numbers P^H A P, for every sample on a device: A P slab by slab.

    Each slab is given to the coarse entries at once.
    With `add`, the product is added to `out`, entry by entry in the order of fine rows.
    """
    n_samples, n_slabs, n_targets = max(values.shape[1], p.shape[1]), tasks.edges.size - 1, tasks.cuts.shape[1]
    out = cuda.output(out, values, (n_targets, n_samples))
    n_bytes = int(tasks.edges[-1]) * n_samples * values.dtype.itemsize
    n_parts = max(1, min(n_slabs, -(-n_bytes // SLAB_BYTES)))
    ends = [n_slabs * k // n_parts for k in range(n_parts + 1)]
    places = [int(tasks.edges[k]) for k in ends]
    longest = max(b - a for a, b in itertools.pairwise(places))
    slab = empty_like(out, (longest, n_samples))
    shared, adjoint = p.shape[1] != n_samples, conjugated(p)
    layout = cuda.layout_of(n_samples, out, slab, *(() if shared else (adjoint,)))
    name, (_, left, right) = cuda.instance("restrict_slab", shared), tasks.restriction
    for k, (first, last) in enumerate(itertools.pairwise(places)):
        rows = tasks.product._replace(starts=tasks.product.starts[first : last + 1])
        sum_products(rows, values, p, slab[: last - first])
        cuts = tasks.cuts[ends[k]], tasks.cuts[ends[k + 1]]
        arguments = (*cuts, left, right, adjoint, slab, out, np.int64(first), np.int32(k == 0 and not add))
        CUDA.rows(name, n_targets, n_samples, arguments, layout, cuda.is_wide(left))
    return out
