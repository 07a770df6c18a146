"""Boxes of nodes and their graphs, and measures of a cut."""

import numpy as np
import scipy.sparse as sp


def box(cells):
    """Coordinates of the (cells + 1)^3 nodes of a unit box, and the 27-point graph between them."""
    nodes = cells + 1
    axes = np.meshgrid(*[np.arange(nodes) / cells] * 3, indexing="ij")
    line = sp.diags_array([np.ones(nodes - 1), np.ones(nodes), np.ones(nodes - 1)], offsets=[-1, 0, 1])
    return np.stack(axes, axis=-1).reshape(-1, 3), sp.csr_array(sp.kron(sp.kron(line, line), line))


def random_graph(n, entries, seed):
    """A symmetric graph of about `entries` random couplings, which need not be connected."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, n, (2, entries))
    half = sp.coo_array((np.ones(entries), (i, j)), shape=(n, n))
    return sp.csr_array(half + half.T)


def halo_rows(graph, owner):
    """Rows that ranks need of others, summed over the ranks; `owner` is the rank of each row."""
    entries = sp.coo_array(graph)
    here, there = owner[entries.coords[0]], owner[entries.coords[1]]
    foreign = here != there
    return np.unique(here[foreign].astype(np.int64) * graph.shape[0] + entries.coords[1][foreign]).size
