"""Pairs of factors: what a device needs to know of two graphs, so that every entry of a product gathers its own sum.

8 bytes a pair (16 where positions need 64 bits), shared by all samples, made on the device in the order in which the
CPU kernels add.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace
from ensemble._kernels import _cuda

__all__ = [
    "CUDA",
    "GalerkinPairs",
    "Pairs",
    "ProlongatorPairs",
    "galerkin_pairs",
    "pairs_of",
    "prolongator_pairs",
    "sum_products",
]

CUDA = _cuda.Family(
    "galerkin",
    [
        *(f"sum_products<{a}, {b}>" for a in ("false", "true") for b in ("false", "true")),
        "smooth_prolongator", "count_pairs", "fill_pairs",
    ],
)  # fmt: skip


class Pairs(NamedTuple):
    """Entry t of a product is the sum of ``a[left[q]] * b[right[q]]`` over q in ``starts[t]:starts[t + 1]``."""

    starts: Any
    left: Any
    right: Any


def pairs_of(graph_a, graph_b, graph_c, entries=None):
    """The pairs of the product on `graph_c`, in the order in which the CPU kernels add; graphs live on a device."""
    indptrs = [graph[0] for graph in (graph_a, graph_b, graph_c)]
    xp = array_namespace(indptrs[0])
    dtype = xp.int64 if any(map(_cuda.is_wide, indptrs)) else xp.int32
    graphs = [
        xp.astype(array, t, copy=False) for g in (graph_a, graph_b, graph_c) for array, t in zip(g, (dtype, xp.int32))
    ]
    entries = None if entries is None else xp.astype(entries, dtype, copy=False)
    n_rows, nnz = graph_c[0].shape[0] - 1, graph_c[1].shape[0]
    wide, grid = dtype == xp.int64, (-(-n_rows // _cuda.THREADS),)
    layout = _cuda.Layout("double", 1, 1, 1)
    counts = xp.zeros(nnz + 1, dtype=xp.int64)
    CUDA.launch("count_pairs", layout, grid, _cuda.THREADS, (*graphs, counts[1:], np.int64(n_rows)), wide)
    starts = xp.cumulative_sum(counts)
    left, right = (xp.empty(int(starts[-1]), dtype=dtype) for _ in range(2))
    arguments = (*graphs, entries, xp.asarray(starts[:-1], copy=True), left, right, np.int64(n_rows))
    CUDA.launch("fill_pairs", layout, grid, _cuda.THREADS, arguments, wide)
    return Pairs(starts, left, right)


def sum_products(pairs, a, b, out):
    """Values of a product for every sample from its pairs, on a device."""
    n_samples, n_targets = max(a.shape[1], b.shape[1]), pairs.starts.shape[0] - 1
    out = _cuda.output(out, a, (n_targets, n_samples))
    shared_a, shared_b = a.shape[1] != n_samples, b.shape[1] != n_samples
    layout = _cuda.layout_of(n_samples, out, *(x for x, shared in ((a, shared_a), (b, shared_b)) if not shared))
    name = f"sum_products<{str(shared_a).lower()}, {str(shared_b).lower()}>"
    CUDA.rows(name, n_targets, n_samples, (*pairs, a, b, out), layout, _cuda.is_wide(pairs.left))
    return out


class ProlongatorPairs(NamedTuple):
    """The pairs of A T, and for each entry of P its row, and its entry in T or -1."""

    pairs: Pairs
    rows: Any
    own: Any


def prolongator_pairs(graph_a, graph_t, graph_p):
    """The pairs for `smooth_prolongator`, of graphs on a device."""
    xp = array_namespace(graph_a[0])
    rows, rows_t = (
        xp.repeat(xp.arange(g[0].shape[0] - 1, dtype=xp.int64), xp.astype(g[0][1:] - g[0][:-1], xp.int64))
        for g in (graph_p, graph_t)
    )
    pairs = pairs_of(graph_a, graph_t, graph_p)
    dtype = pairs.left.dtype
    n_coarse = 1 + max((int(xp.max(g[1])) for g in (graph_p, graph_t) if g[1].shape[0]), default=0)
    keys, keys_t = rows * n_coarse + graph_p[1], rows_t * n_coarse + graph_t[1]  # both ascend
    own = xp.full(keys.shape, -1, dtype=dtype)
    if keys.shape[0]:
        place = xp.searchsorted(keys, keys_t)
        own[place] = xp.arange(keys_t.shape[0], dtype=dtype)
    return ProlongatorPairs(pairs, xp.astype(rows, xp.int32), own)


class GalerkinPairs(NamedTuple):
    """The pairs of A P and of P^T (A P)."""

    product: Pairs
    restriction: Pairs


def galerkin_pairs(graph_a, graph_p, graph_ap, restriction, graph_c):
    """The pairs for `galerkin_values`, of graphs on a device."""
    product = pairs_of(graph_a, graph_p, graph_ap)
    return GalerkinPairs(product, pairs_of(restriction[:2], graph_ap, graph_c, restriction[2]))
