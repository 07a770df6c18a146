"""Strength of connection: which couplings aggregates follow, decided once for all samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._check import kind_of, message, positive, require
from ensemble._kernels.multigrid.aggregation import square_on_graph
from ensemble._kernels.sparse.complex_numbers import conjugated, is_complex, magnitudes, times
from ensemble._keywords import explains_construction
from ensemble.linalg import CrsGraph, CrsMatrix, SymmetricCrsMatrix
from ensemble.multigrid.relaxation import largest_eigenvalue

CHUNK, DEVICE_CHUNK = 1 << 15, 1 << 24
"""Values of all samples that are reduced at a time: they stay in the cache, or keep a device busy."""

JUMP = 100.0
"""Ratio of neighbours' diagonal entries from which on a weak coupling between them is that of a jump."""

LEAST_DIAGONAL = 0.1
"""Share of a diagonal entry that must be left when weak entries are added to it."""


@explains_construction("SymmetricStrength")
@dataclass(frozen=True)
class SymmetricStrength:
    """Coupling (i, j) is strong where ``|a_ij| >= theta * sqrt(|a_ii a_jj|)`` (Vanek, Mandel, Brezina 1996).

    The samples share one strong graph, judged on the quotient of both sides, its mean or its largest value over the
    samples. So samples are coupled through this choice, and through nothing else: a sample has the bits of its scalar
    run where that finds the same strong graph. Samples whose quotient is not finite do not count.

    Parameters
    ----------
    theta : float in [0, 1), dimensionless
        Larger keeps fewer couplings. A stencil of m equal neighbours has quotients of 1/m: theta must stay below. 0.25
        suits plane problems of strong anisotropy, 0.08 most others.
    over : "mean" or "largest"
        The second calls strong what is strong in any sample.

    Examples
    --------
    >>> from ensemble.gallery import poisson
    >>> from ensemble.multigrid import smoothed_aggregation
    >>> len(smoothed_aggregation(poisson((40, 40)), strength=SymmetricStrength(theta=0.1)).levels)
    3
    """

    theta: float = 0.08
    over: str = "mean"

    def __post_init__(self) -> None:
        theta = positive(self.theta, "SymmetricStrength", "theta", zero=True)
        require(theta < 1.0, "SymmetricStrength", "theta", "be below 1", self.theta)
        wanted = "be 'mean' or 'largest'"
        require(self.over in ("mean", "largest"), "SymmetricStrength", "over", wanted, repr(self.over))

    def strong(self, A: CrsMatrix, mean: CrsMatrix, B: np.ndarray, block_size: int) -> sp.csr_array:
        """The couplings of nodes that are strong, with their quotients; no diagonal."""
        quotient = scaled_magnitudes(A, self.over)
        rows, columns = A.graph.row_of_entry, A.graph.indices
        if block_size > 1:  # Frobenius norms of blocks
            n = A.shape[0] // block_size
            entries = quotient**2, (rows // block_size, columns // block_size)
            blocks = sp.csr_array(sp.coo_array(entries, shape=(n, n)))
            blocks.data = np.sqrt(blocks.data)
            rows, columns, quotient = np.repeat(np.arange(n), np.diff(blocks.indptr)), blocks.indices, blocks.data
            own = np.sqrt(blocks.diagonal())
            with np.errstate(all="ignore"):
                quotient = quotient / (own[rows] * own[columns])
        else:
            n = A.shape[0]
        least = self.theta * (1.0 - 16.0 * np.finfo(A.dtype).eps)  # equal neighbours are all strong or all weak
        kept = (rows != columns) & (quotient >= least) & (quotient > 0.0)
        return symmetrized(quotient[kept], rows[kept], columns[kept], n)


@explains_construction("EvolutionStrength")
@dataclass(frozen=True)
class EvolutionStrength:
    """Coupling (i, j) is strong where a unit value at i, smoothed, agrees at j with the near-nullspace [1]_.

    Column i of ``(I - D^-1 A / lambda_max)^2`` is compared with the near-nullspace vector of the same value at i: a
    small relative difference e_ij makes a strong coupling. Row i keeps what is at most `epsilon` times its smallest
    e_ij.
    It finds the directions of anisotropy that is not aligned with the mesh, and does not depend on how A is scaled.

    The matrix judged is the mean over samples, each divided by the mean of its diagonal. So samples are coupled through
    this choice, and through nothing else: a sample has the bits of its scalar run where that finds the same strong
    graph. Samples that are not finite do not count.

    Parameters
    ----------
    epsilon : float above 1, dimensionless
        Larger keeps more couplings: fewer iterations where all couplings are alike, more where they are not.

    References
    ----------
    .. [1] Olson, Schroder, Tuminaro (2010), A new perspective on strength measures in algebraic multigrid, Numer.
       Linear Algebra Appl. 17, 713-733.

    Examples
    --------
    >>> from ensemble.gallery import poisson
    >>> from ensemble.multigrid import smoothed_aggregation
    >>> len(smoothed_aggregation(poisson((40, 40)), strength=EvolutionStrength()).levels)
    3
    """

    epsilon: float = 2.0
    theta = np.inf  # the filtered matrix keeps strong couplings alone

    def __post_init__(self) -> None:
        epsilon = positive(self.epsilon, "EvolutionStrength", "epsilon")
        require(epsilon > 1.0, "EvolutionStrength", "epsilon", "be above 1", self.epsilon)

    def strong(self, A: CrsMatrix, mean: CrsMatrix, B: np.ndarray, block_size: int) -> sp.csr_array:
        """The couplings of nodes that are strong, with the inverse of their differences; no diagonal."""
        if block_size > 1 or B.shape[1] > 1:
            seen = f"{B.shape[1]} vectors, block_size {block_size}"
            advice = "Use SymmetricStrength."
            raise ValueError(
                message("EvolutionStrength", "near_nullspace", "be one vector of single unknowns", seen, advice)
            )
        n, rows, columns = mean.shape[0], mean.graph.row_of_entry, mean.graph.indices
        diagonal = mean.diagonal().samples[:, 0]
        with np.errstate(all="ignore"):
            dinv = np.where(diagonal != 0.0, 1.0 / diagonal, 0.0)
        step = -mean.values[:, 0] * (dinv[rows] / largest_eigenvalue(mean, dinv[:, None]))
        step[rows == columns] += 1.0
        square = np.empty(columns.size)
        square_on_graph(mean.graph.indptr, columns, step, square)
        indptr, columns, entries = mean.graph.transposed  # row i: a unit value at i
        rows, values = np.repeat(np.arange(n), np.diff(indptr)), square[entries]
        b, own = B[:, 0], np.zeros(n)
        own[rows[rows == columns]] = values[rows == columns]
        with np.errstate(all="ignore"):
            agreement = (own[rows] * b[columns] / b[rows]) / values
            difference = np.where(agreement > 0.0, np.abs(1.0 - agreement), np.inf)
        difference = np.where(np.isnan(difference), np.inf, np.maximum(difference, 1e-8))
        difference[rows == columns] = np.inf
        least = np.full(n, np.inf)
        np.minimum.at(least, rows, difference)
        kept = (difference <= self.epsilon * least[rows]) & np.isfinite(difference)
        return symmetrized(1.0 / difference[kept], rows[kept], columns[kept], n)


def scaled_magnitudes(A: CrsMatrix, over: str) -> np.ndarray:
    """``|a_ij| / sqrt(|a_ii a_jj|)`` of each stored entry, its mean or largest value over the samples, shape (nnz,)."""
    xp, nnz = array_namespace(A.values), A.graph.nnz
    out = np.zeros(nnz)
    size = magnitudes if is_complex(A.values) else xp.abs
    diagonal = size(A.diagonal().samples)
    with np.errstate(all="ignore"):
        root = xp.where(diagonal > 0, 1.0 / xp.sqrt(diagonal), 0.0)
        rows, columns = A.graph.coordinates_on(A.values)
        run = entries_at_once(A)
        for first in range(0, nnz, run):
            here = slice(first, first + run)
            quotient = size(A.values[here]) * xp.take(root, rows[here], axis=0) * xp.take(root, columns[here], axis=0)
            finite = xp.isfinite(quotient)
            quotient = xp.where(finite, quotient, 0.0)
            if over == "largest":
                chosen = xp.max(quotient, axis=1)
            else:
                count = xp.sum(xp.astype(finite, quotient.dtype), axis=1)
                chosen = xp.sum(quotient, axis=1) / xp.where(count > 0, count, 1.0)
            out[here] = to_numpy(chosen)
    return out


def entries_at_once(A: CrsMatrix) -> int:
    """Entries whose values are reduced at a time."""
    return max(1, (CHUNK if isinstance(A.values, np.ndarray) else DEVICE_CHUNK) // A.n_samples)


def mean_matrix(A: CrsMatrix) -> CrsMatrix:
    """The mean over finite samples, each over its mean diagonal: one sample, in NumPy arrays of double precision."""
    xp = array_namespace(A.values)
    wide = np.complex128 if is_complex(A.values) else np.float64
    if A.n_samples == 1:
        return CrsMatrix(A.graph, to_numpy(A.values).astype(wide))
    with np.errstate(all="ignore"):
        size = to_numpy(xp.mean(xp.abs(A.diagonal().samples), axis=0)).astype(np.float64)
        finite = to_numpy(xp.all(xp.isfinite(A.values), axis=0)) & (size > 0.0)
    if not finite.any():
        return CrsMatrix(A.graph, np.full((A.graph.nnz, 1), np.nan))
    weight = np.where(finite, 1.0 / np.where(finite, size, 1.0), 0.0) / np.count_nonzero(finite)
    weight, chosen = (asarray_like(array, A.values) for array in (weight, finite))
    values, run = np.zeros(A.graph.nnz, wide), entries_at_once(A)
    for first in range(0, A.graph.nnz, run):
        part = xp.astype(A.values[first : first + run], getattr(xp, np.dtype(wide).name))
        values[first : first + run] = to_numpy(xp.sum(xp.where(chosen, part, 0.0) * weight, axis=1))
    return CrsMatrix(A.graph, values)


def symmetrized(values: np.ndarray, rows: np.ndarray, columns: np.ndarray, n: int) -> sp.csr_array:
    """The matrix of these entries with its transpose added, so that strength is mutual."""
    S = sp.csr_array(sp.coo_array((values, (rows, columns)), shape=(n, n)))
    S = sp.csr_array(S + S.T)
    S.sort_indices()
    return S


def strength_of(option: Any, A: CrsMatrix | SymmetricCrsMatrix, block_size: int) -> Any:
    """The measure that `smoothed_aggregation` was given, or that it chooses: None, or a measure."""
    if isinstance(option, str) and option == "auto":
        return SymmetricStrength() if has_jumps(A, block_size) else None
    if option is None or isinstance(option, SymmetricStrength | EvolutionStrength):
        return option
    if isinstance(option, int | float | np.floating) and not isinstance(option, bool):
        theta = positive(option, "smoothed_aggregation", "strength", zero=True)
        require(theta < 1.0, "smoothed_aggregation", "strength", "be below 1", option)
        return SymmetricStrength(theta=theta)
    wanted = "be None, 'auto', a number, a SymmetricStrength or an EvolutionStrength"
    raise TypeError(message("smoothed_aggregation", "strength", wanted, kind_of(option)))


def has_jumps(A: CrsMatrix | SymmetricCrsMatrix, block_size: int) -> bool:
    """Whether a coefficient jumps in every finite sample; at least one must be finite.

    It does where two neighbours' diagonal entries differ by more than `JUMP` and their coupling is weak to
    `SymmetricStrength()`: at the edge of an island. Both hold for no anisotropy, no scaling ``D A D`` of a smooth
    coefficient and no graded mesh. Of blocks, entries between like unknowns count.
    """
    A = A if isinstance(A, CrsMatrix) else A.to_crs()
    xp, theta = array_namespace(A.values), SymmetricStrength().theta
    found, valid = np.zeros(A.n_samples, bool), np.ones(A.n_samples, bool)
    with np.errstate(all="ignore"):
        root = xp.sqrt(xp.abs(A.diagonal().samples))
        rows, columns = A.graph.coordinates_on(A.values)
        run = entries_at_once(A)
        for first in range(0, A.graph.nnz, run):
            i, j, values = rows[first : first + run], columns[first : first + run], A.values[first : first + run]
            size, other = (xp.take(root, k, axis=0) for k in (i, j))
            ratio, quotient = size / other, xp.abs(values) / size / other
            apart = (ratio > JUMP**0.5) & (quotient > 0.0) & (quotient < theta)
            if block_size > 1:
                apart = apart & ((i - j) % block_size == 0)[:, None]
            found |= to_numpy(xp.any(apart, axis=0))
            valid &= to_numpy(xp.all(xp.isfinite(values), axis=0))
    return bool(valid.any() and found[valid].all())


class StrongGraph:
    """The strong couplings of one level's nodes, and the filtered matrix that smooths its prolongator.

    For a weak coupling (i, j), ``a_ij b_j / b_i`` is added to the diagonal, b being the near-nullspace vector: the
    filtered matrix maps b to what A maps it to. An entry of at least `theta` times its row's diagonal stays: row i
    depends on j, though j does not depend on i, as at jumps of a coefficient. With several vectors, or blocks, A itself
    smooths the prolongator.
    """

    def __init__(self, A: Any, measure: Any, B: np.ndarray, block_size: int) -> None:
        mean = mean_matrix(A)
        strong = measure.strong(A, mean, B, block_size)
        self.nodes = strong.indptr.astype(np.int32), strong.indices.astype(np.int32)
        self.graph: CrsGraph | None = None
        self.nearest: np.ndarray | None = None
        if block_size == 1 and B.shape[1] == 1:
            self._filter(mean, strong, B[:, 0], measure.theta)

    def _filter(self, mean: CrsMatrix, strong: sp.csr_array, b: np.ndarray, theta: float) -> None:
        """The filtered matrix's graph, the sparse matrix that maps the values of A to its own, and `nearest`."""
        graph = mean.graph
        columns: Any = graph.indices
        n, nnz, rows = graph.shape[0], graph.nnz, graph.row_of_entry
        own = rows == columns
        if np.count_nonzero(own) != n:
            return  # rows without a diagonal entry to add weak entries to
        with np.errstate(all="ignore"):
            ratio = np.where(b[rows] != 0.0, b[columns] / b[rows], 0.0)  # 0: a boundary row
            size = np.abs(mean.values[:, 0] * ratio)
            share = np.nan_to_num(size / size[own][rows], nan=0.0)
        share[own] = 0.0
        kept = own | (share >= theta)
        keys, stored = CrsGraph.unchecked(strong.indptr, strong.indices, graph.shape).keys, graph.keys
        place = np.minimum(np.searchsorted(stored, keys), nnz - 1)  # both are sorted
        kept[place[stored[place] == keys]] = True
        self.nearest = nearest_nodes(strong.indptr, graph, np.where(share >= theta, share, 0.0))
        if kept.all():
            return
        number = np.cumsum(kept) - 1  # of each kept entry
        self.graph = graph.subgraph(kept)
        place = np.where(kept, number, number[own][rows])
        weight = np.where(kept, 1.0, ratio)
        entries = sp.csr_array((weight, (place, np.arange(nnz))), shape=(int(kept.sum()), nnz))
        entries.sort_indices()
        self.weights = CrsMatrix(CrsGraph(entries.indptr, entries.indices, entries.shape), entries.data)

    def filtered(self, A: Any) -> Any:
        """The filtered matrix of `A`; a row whose diagonal would lose its sign keeps that of `A`."""
        if self.graph is None:
            return A
        values = self.weights.astype(A.dtype).to(A.values).apply(A.values)
        F = CrsMatrix(self.graph, values)
        xp = array_namespace(values)
        own, lumped = A.diagonal().samples, F.diagonal().samples
        if is_complex(values):
            bad = ~(times(lumped, conjugated(own)).real > LEAST_DIAGONAL * times(own, conjugated(own)).real)
        else:
            bad = ~(lumped * xp.sign(own) > LEAST_DIAGONAL * xp.abs(own))
        values[self.graph.diagonal_on(values)] = xp.where(bad, own, lumped)
        return F


def nearest_nodes(indptr: np.ndarray, graph: CrsGraph, share: np.ndarray) -> np.ndarray:
    """For each node without strong couplings the neighbour of the largest `share`, the first among equals; else -1."""
    nearest = np.full(graph.shape[0], -1, np.int64)
    alone = np.diff(indptr) == 0
    rows, columns = graph.row_of_entry, graph.indices.astype(np.int64)
    chosen = np.flatnonzero(alone[rows] & (share > 0.0))
    order = chosen[np.lexsort((-columns[chosen], share[chosen], rows[chosen]))]
    nearest[rows[order]] = columns[order]  # the last of a row, its largest, stays
    return nearest
