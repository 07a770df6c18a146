"""What a direct solver works out from a graph: row matching, elimination order, and fill."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import (
    maximum_bipartite_matching,
    min_weight_full_bipartite_matching,
    reverse_cuthill_mckee,
)

from ensemble._backend import to_numpy
from ensemble._check import array_of, message, require
from ensemble._interrupts import go_on
from ensemble._kernels.direct.equilibration import units_of
from ensemble._kernels.direct.forms.flat import flat_list
from ensemble._kernels.direct.inverse import FilledGraph
from ensemble._kernels.direct.symbolic import elimination as kernels
from ensemble._kernels.direct.symbolic.elimination import Elimination
from ensemble._kernels.direct.symbolic.fill_levels import levels_of_fill
from ensemble._kernels.direct.symbolic.minimum_degree import minimum_degree
from ensemble._kernels.direct.symbolic.nested_dissection import nested_dissection
from ensemble._kernels.direct.symbolic.supernodes import merged_rows, padded_columns, supernodes_of
from ensemble._kernels.sparse.product_graphs import transpose_graph
from ensemble.linalg.graph import CrsGraph

__all__ = [
    "ORDERINGS",
    "checked_order",
    "elimination_of",
    "entries_in",
    "filled_graph",
    "incomplete_elimination_of",
    "inverse_order",
    "matched_rows",
    "mean_weights",
    "symmetric_pattern",
    "thinned",
    "value_places",
    "with_places",
]

EXACT_MULTIPLY_ADDS = 1 << 26
"""Multiply-adds up to which the fill of an unsymmetric graph is worked out without the entries that nothing reaches."""

SUPERNODAL = 30
"""Multiply-adds for each value from which on neighbouring rows are treated as one."""

FLAT = 1 << 19
"""Multiply-adds up to which their pairs of values are listed, 8 bytes each."""

LARGE = 500
"""Rows from which on nested dissection is considered."""

SYMMETRIC_SHARE = 0.6
"""The form by supernodes stores a symmetric graph: not where others need less than this share of its multiply-adds."""


def _band_order(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The given order or reverse Cuthill-McKee, whichever has the smaller bandwidth."""
    n = indptr.size - 1
    rows = np.repeat(np.arange(n), np.diff(indptr))
    given: np.ndarray = np.arange(n)
    if not indices.size:
        return given
    pattern = sp.csr_matrix((np.ones(indices.size, np.int8), indices, indptr), shape=(n, n))
    found: np.ndarray = reverse_cuthill_mckee(pattern, symmetric_mode=True).astype(np.int64)
    place = inverse_order(found)
    return found if np.abs(place[rows] - place[indices]).max() < np.abs(rows - indices).max() else given


BAND = "band"
ORDERINGS = {"amd": minimum_degree, "nd": nested_dissection, BAND: _band_order}
"""Orders of elimination by name."""

STEPS_OF_WEIGHTS = 1024.0
"""Weights of a matching are multiples of one over this: logarithms of magnitudes, of which three digits tell enough."""


def matched_rows(graph: CrsGraph, function: str, weights: np.ndarray | None = None) -> np.ndarray:
    """The row that gives each column its pivot, shape (n,): as many diagonal entries as can be, or least weights.

    Parameters
    ----------
    graph : CrsGraph, shape (n, n)
    function : str
        The name in messages.
    weights : array, shape (nnz,), optional
        Numbers of 1 and above; the sum over the pivots is the least.

    Raises
    ------
    ValueError
        If no choice of rows gives every column a pivot: the graph is structurally singular.
    """
    n = graph.shape[0]
    if weights is None:
        if bool(np.all(graph.diagonal_entries >= 0)):
            return np.arange(n)
        weights = np.where(graph.indices == graph.row_of_entry, 1.0, 2.0)
    pattern = sp.csr_array((weights, graph.indices, graph.indptr), shape=graph.shape)
    partner = maximum_bipartite_matching(sp.csr_matrix(pattern), perm_type="column")
    if np.any(partner < 0):
        without = np.flatnonzero(partner < 0)
        shown = ", ".join(str(i) for i in without[:6]) + (", ..." if without.size > 6 else "")
        raise ValueError(
            message(
                function, "A", "have a graph in which every row can have a pivot of its own",
                f"a structurally singular one: row{'s' * (without.size > 1)} {shown} left without",
                "Remove the unknowns that no equation determines, or store the entries that can be nonzero.",
            )
        )  # fmt: skip
    # SciPy's search never ends where sums of weights are rounded: of these they are exact.
    pattern.data = np.rint(pattern.data * STEPS_OF_WEIGHTS) / STEPS_OF_WEIGHTS
    of_row, of_column = min_weight_full_bipartite_matching(sp.csr_matrix(pattern))
    chosen = np.empty(n, np.int64)
    chosen[of_column] = of_row
    return chosen


def symmetric_pattern(rows: np.ndarray, columns: np.ndarray, n: int) -> sp.csr_array:
    """The graph of A + A^T without its diagonal, columns ascending."""
    off = rows != columns
    ones = np.ones(int(off.sum()), np.int8)
    half = sp.csr_array((ones, (rows[off], columns[off])), shape=(n, n))
    whole = sp.csr_array(half + half.T)
    whole.sort_indices()
    return whole


def _elimination_order(rows: np.ndarray, columns: np.ndarray, n: int, ordering: str) -> np.ndarray:
    """The order of that name, or the one of fewer multiply-adds, with the postorder of its elimination tree."""
    pattern = symmetric_pattern(rows, columns, n)
    if ordering == BAND:  # as it is: a postorder may widen it
        return _band_order(pattern.indptr, pattern.indices)
    methods = [ORDERINGS[ordering]] if ordering != "auto" else [minimum_degree, nested_dissection][: 1 + (n >= LARGE)]
    found = []
    for method in methods:
        go_on()
        order = method(pattern.indptr, pattern.indices)
        go_on()
        place = inverse_order(order)
        moved = symmetric_pattern(place[rows], place[columns], n)
        parent = kernels.elimination_tree(moved.indptr, moved.indices)
        length = kernels.row_lengths(moved.indptr, moved.indices, parent)
        count = int(np.sum(length * (length + 1)) // 2)
        # Supernodes grow where the last child is the one before its parent: those stay in ascending order.
        few = count < SUPERNODAL * (n + int(length.sum()))
        weights = kernels.excess_storage(parent, length) if few else -np.arange(n)
        found.append((count, order[kernels.postorder(parent, weights)]))
    best: np.ndarray = min(found, key=lambda pair: pair[0])[1]
    return best


def elimination_of(
    graph: CrsGraph,
    symmetric: bool,
    pivots: np.ndarray,
    ordering: np.ndarray | str,
    sources: np.ndarray | None = None,
) -> Elimination:
    """The elimination of a square graph, row ``pivots[j]`` giving the pivot of column j.

    `ordering` holds columns in the order of elimination, or is the name of a method. Of a symmetric matrix, entries on
    and above the diagonal are read. Where the matrix has entries outside of the graph, `sources` has the numbers of
    those inside, shape (nnz,).
    """
    n = graph.shape[0]
    if isinstance(ordering, str):
        place = inverse_order(pivots)
        rows, columns = place[graph.row_of_entry], graph.indices.astype(np.int64)
        ordering = _elimination_order(rows, columns, n, ordering)
    i, j, entries = _moved_entries(graph, symmetric, pivots, ordering)
    entries = entries if sources is None else sources[entries]
    orders = pivots[ordering], ordering
    go_on()  # after an interrupt, before the memory for fill is taken
    moved = symmetric_pattern(i, j, n)
    upper = kernels.filled(moved.indptr, moved.indices, kernels.elimination_tree(moved.indptr, moved.indices))
    lower = _transposed(upper[0], upper[1], n)
    go_on()
    count = kernels.count_multiply_adds(lower[1], upper[0], symmetric)
    n_values = n + upper[1].size * (1 if symmetric else 2)
    if not symmetric and count <= EXACT_MULTIPLY_ADDS:
        exact = sp.csr_array((np.ones(i.size, np.int8), (i, j)), shape=(n, n))
        marks = kernels.reached(exact.indptr, exact.indices, *lower[:2], *upper)
        left, right = _kept(lower[0], lower[1], marks[0]), _kept(*upper, marks[1])
        fewer = kernels.count_multiply_adds(left[1], right[0], symmetric)
        if fewer < SYMMETRIC_SHARE * count or count < SUPERNODAL * n_values:
            return with_places(symmetric, orders, (*left, lower[2]), right, (i, j, entries))
    if count < SUPERNODAL * n_values:
        return with_places(symmetric, orders, lower, upper, (i, j, entries))
    runs = merged_rows(*upper)
    upper = padded_columns(*upper, runs)
    return with_places(symmetric, orders, _transposed(upper[0], upper[1], n), upper, (i, j, entries), runs)


def incomplete_elimination_of(
    graph: CrsGraph, symmetric: bool, pivots: np.ndarray, ordering: np.ndarray | str, level: int = 0
) -> Elimination:
    """As `elimination_of`, with fill up to a level alone: other entries outside of the graph are dropped.

    The order is the given one.
    """
    n = graph.shape[0]
    order = np.arange(n) if isinstance(ordering, str) else ordering
    i, j, entries = _moved_entries(graph, symmetric, pivots, order)
    own = sp.csr_array((np.ones(i.size, np.int8), (i, j)), shape=(n, n))
    if level:
        whole = sp.csr_array(own + own.T if symmetric else own) + sp.eye_array(n, dtype=np.int8, format="csr")
        whole.sort_indices()
        starts, columns = levels_of_fill(whole.indptr, whole.indices, level)
        own = sp.csr_array((np.ones(columns.size, np.int8), columns, starts), shape=(n, n))
    upper, lower = sp.csr_array(sp.triu(own, 1)), sp.csr_array(sp.tril(own, -1))
    for triangle in (upper, lower):
        triangle.sort_indices()
    right = upper.indptr.astype(np.int64), upper.indices
    left = lower.indptr.astype(np.int64), lower.indices, np.empty(0, np.int64)
    if symmetric:
        left = _transposed(right[0], right[1], n)
    return with_places(symmetric, (pivots[order], order), left, right, (i, j, entries))


def thinned(plan: Elimination, graph: CrsGraph, kept: np.ndarray) -> Elimination:
    """An incomplete elimination of `graph` without the values that are neither `kept` nor entries of the matrix."""
    kept = kept | (plan.sources >= 0)
    right = _kept(plan.upper_starts, plan.upper, kept[value_places(plan.upper_starts, plan.diagonal + 1)])
    if plan.symmetric:
        left = _transposed(right[0], right[1], plan.rows.size)
    else:
        below = _kept(plan.lower_starts, plan.lower, kept[value_places(plan.lower_starts, plan.first[:-1])])
        left = *below, np.empty(0, np.int64)
    pivots = plan.rows[inverse_order(plan.columns)]
    entries = _moved_entries(graph, plan.symmetric, pivots, plan.columns)
    return with_places(plan.symmetric, (plan.rows, plan.columns), left, right, entries)


def value_places(starts: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """The places of values of rows, those of row i from ``begin[i]`` on."""
    lengths = np.diff(starts)
    return np.repeat(begin - starts[:-1], lengths) + np.arange(int(starts[-1]))


def _transposed(starts: np.ndarray, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`transpose_graph`, whose code for indices of 32 bits every hierarchy needs too."""
    narrow = np.int32 if columns.size < 2**31 else np.int64
    new_starts, new_columns, entries = transpose_graph(starts.astype(narrow), columns, n)
    return new_starts.astype(starts.dtype), new_columns, entries.astype(starts.dtype)


def inverse_order(order: np.ndarray) -> np.ndarray:
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    return place


def _moved_entries(graph: CrsGraph, symmetric: bool, pivots: np.ndarray, order: np.ndarray) -> tuple[Any, Any, Any]:
    """(row, column) of the entries in elimination order, and their numbers; of a symmetric matrix the upper ones."""
    rows, columns, entries = graph.row_of_entry.astype(np.int64), graph.indices.astype(np.int64), np.arange(graph.nnz)
    if symmetric:
        above = rows <= columns
        rows, columns, entries = rows[above], columns[above], entries[above]
    place = inverse_order(order)
    i, j = place[inverse_order(pivots)[rows]], place[columns]
    return (np.minimum(i, j), np.maximum(i, j), entries) if symmetric else (i, j, entries)


def _kept(starts: np.ndarray, columns: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    before = np.concatenate([[0], np.cumsum(kept)])
    return before[starts], columns[kept]


def with_places(symmetric: bool, orders: Any, lower: Any, upper: Any, entries: Any, runs: Any = None) -> Elimination:
    """The elimination with the places of its values."""
    (lower_starts, left, across), (upper_starts, right) = lower, upper
    left, right = left.astype(np.int32, copy=False), right.astype(np.int32, copy=False)
    n = upper_starts.size - 1
    n_left = np.zeros(n, np.int64) if symmetric else np.diff(lower_starts)
    first = np.concatenate([[0], np.cumsum(n_left + 1 + np.diff(upper_starts))])
    diagonal = first[:-1] + n_left
    sources = _sources(first, diagonal, left, lower_starts, right, upper_starts, symmetric, entries)
    if not symmetric:
        across = np.empty(0, np.int64)
    nested = kernels.nested_rows(upper_starts, right)
    count = int(kernels.count_multiply_adds(left, upper_starts, symmetric))
    nodes = None if runs is None else supernodes_of(runs, upper_starts, right, lower_starts, first, symmetric)
    plan = Elimination(
        symmetric, orders[0], orders[1], lower_starts, left, across, upper_starts, right, first, diagonal, sources,
        count, nested, nodes, None, {},
    )  # fmt: skip
    return plan._replace(flat=flat_list(plan)) if nodes is None and count <= FLAT else plan


def _sources(
    first: Any,
    diagonal: Any,
    left: Any,
    lower_starts: Any,
    right: Any,
    upper_starts: Any,
    symmetric: bool,
    entries: Any,
) -> np.ndarray:
    """The entry of the given matrix that each value begins as, -1 for none."""
    n, (i, j, numbers) = diagonal.size, entries
    line = np.arange(n)
    keys = np.empty(int(first[-1]), np.int64)
    keys[diagonal] = line * (n + 1)
    for starts, columns, at in ((lower_starts, left, first[:-1]), (upper_starts, right, diagonal + 1)):
        if starts is lower_starts and symmetric:
            continue
        row = np.repeat(line, np.diff(starts))
        keys[(at - starts[:-1])[row] + np.arange(columns.size)] = row * n + columns
    sources = np.full(keys.size, -1, np.int64)
    sources[np.searchsorted(keys, i * n + j)] = numbers
    return sources


def checked_order(ordering: Any, n: int, function: str, names: tuple[str, ...] = ("auto",)) -> np.ndarray | str:
    """A permutation of the columns, or one of the names."""
    if isinstance(ordering, str) and ordering in names:
        return ordering
    known = ", ".join(f'"{name}"' for name in names)
    wanted = f"be {known} or a permutation of 0 ... {n - 1}"
    order = array_of(ordering, function, "ordering", wanted)
    good = order.shape == (n,) and (order.dtype.kind in "iu" or not n) and np.array_equal(np.sort(order), np.arange(n))
    seen = repr(ordering) if isinstance(ordering, str) else f"an array of {order.dtype}, shape {order.shape}"
    require(good, function, "ordering", wanted, seen)
    return order.astype(np.int64)


def filled_graph(plan: Elimination) -> FilledGraph:
    """The filled symmetric graph of an elimination, with the places of its values."""
    n = plan.diagonal.size
    line = np.arange(n)
    row, left_row = (np.repeat(line, np.diff(starts)) for starts in (plan.upper_starts, plan.lower_starts))
    starts, columns = plan.upper_starts, plan.upper
    if not plan.symmetric:
        both = np.concatenate([row, left_row]), np.concatenate([plan.upper, plan.lower]).astype(np.int64)
        moved = symmetric_pattern(*both, n)
        parent = kernels.elimination_tree(moved.indptr, moved.indices)
        starts, columns = kernels.filled(moved.indptr, moved.indices, parent)
    keys = np.repeat(line, np.diff(starts)) * n + columns
    above, below = np.full(keys.size, -1, np.int64), np.full(keys.size, -1, np.int64)
    within = np.arange(row.size) - plan.upper_starts[row]
    above[np.searchsorted(keys, row * n + plan.upper)] = plan.diagonal[row] + 1 + within
    if not plan.symmetric:
        within = np.arange(left_row.size) - plan.lower_starts[left_row]
        below[np.searchsorted(keys, plan.lower.astype(np.int64) * n + left_row)] = plan.first[left_row] + within
    return FilledGraph(plan.symmetric, starts, columns, above, below, plan.diagonal)


def entries_in(graph: FilledGraph, plan: Elimination, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Where `selected_inverse` has the entries (row, column) of the inverse, -1 for those that it has not."""
    n, m = graph.diagonal.size, graph.columns.size
    of_row, of_column = np.empty(n, np.int64), np.empty(n, np.int64)
    of_row[plan.columns], of_column[plan.rows] = np.arange(n), np.arange(n)
    i, j = of_row[rows], of_column[columns]
    keys = np.repeat(np.arange(n), np.diff(graph.starts)) * n + graph.columns
    wanted = np.minimum(i, j) * n + np.maximum(i, j)
    found = np.minimum(np.searchsorted(keys, wanted), max(m - 1, 0))
    there = keys[found] == wanted if m else np.zeros(wanted.size, bool)
    places = np.where(there, n + found + m * (i > j), -1)
    return np.where(i == j, i, places)


def mean_weights(A: Any) -> np.ndarray:
    """1 + log of the largest mean magnitude of the column over that of the entry, from samples that are finite.

    Rows and columns of each sample are over their sizes, for units differ between samples. An entry that is always zero
    weighs more than any choice of others.
    """
    values, every = np.ascontiguousarray(np.abs(to_numpy(A.values)), np.float64), np.arange(A.nnz)
    with np.errstate(all="ignore"):
        finite = np.all(np.isfinite(values), axis=0)
        some = np.ascontiguousarray(values[:, finite]) if finite.any() else np.ones_like(values)
        some = some * units_of(A.graph.indptr, A.graph.indices, every, every[:0], some).columns[A.graph.indices]
        sums = sp.csr_array((np.ones(A.nnz), every, A.graph.indptr), shape=(A.shape[0], A.nnz)) @ some
        size = np.log(some / np.where(sums > 0.0, sums, 1.0)[A.graph.row_of_entry])
        largest = size.max(axis=1, initial=-np.inf)
        mean = largest + np.log(np.mean(np.exp(size - largest[:, None]), axis=1))
    known = np.isfinite(mean)
    most = np.full(A.shape[1], -np.inf)
    np.maximum.at(most, A.graph.indices[known].astype(np.intp), mean[known])
    weights = np.zeros(A.nnz)
    weights[known] = 1.0 + most[A.graph.indices[known]] - mean[known]
    weights[~known] = 1.0 + A.shape[0] * weights.max(initial=0.0)
    return weights
