"""Smoothed aggregation: from a matrix to the hierarchy of its levels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, is_array, to_numpy
from ensemble._check import floating, integer, message, positive, require, require_type
from ensemble.linalg import AffineMatrix, CrsMatrix, GalerkinProduct, SymmetricCrsMatrix
from ensemble.linalg.adapt import as_operator
from ensemble.linalg.reordering import reordered_matrix
from ensemble.multigrid.affine import AffineHierarchy
from ensemble.multigrid.aggregation import aggregates_of
from ensemble.multigrid.candidates import improved_candidates
from ensemble.multigrid.coarse import LARGEST_DENSE, CoarseSolver, is_coarsest
from ensemble.multigrid.gauss_seidel import GaussSeidel
from ensemble.multigrid.hierarchy import (
    Hierarchy,
    Level,
    Plan,
    Precision,
    SmootherOption,
    coarse_matrix,
    fill_level,
    finest_matrix,
)
from ensemble.multigrid.jacobi import Jacobi
from ensemble.multigrid.prolongation import prolongator_graph
from ensemble.multigrid.relaxation import Chebyshev
from ensemble.multigrid.reordered import ReorderedHierarchy, order_of
from ensemble.multigrid.strength import StrongGraph, strength_of
from ensemble.multigrid.tentative import tentative_prolongator
from ensemble.scalar import Ensemble

CHEBYSHEV = Chebyshev(degree=2, ratio=7)


def smoothed_aggregation(
    A: Any,
    *,
    near_nullspace: Any = None,
    block_size: int = 1,
    coarse_size: int | None = None,
    max_levels: int = 20,
    strength: Any = None,
    improve_candidates: int = 0,
    smoother: SmootherOption = CHEBYSHEV,
    damping: float = 4.0 / 3.0,
    dtype: Any = None,
    reorder: bool | str = "auto",
) -> Hierarchy:
    """Build a smoothed-aggregation multigrid hierarchy for all samples of `A` at once.

    Aggregates follow the graph alone, without dropping, so all samples share them; prolongator damping and smoother
    bounds are each sample's own, so that a sample's V-cycle is exactly that of its scalar run [1]_, [2]_.

    `strength` and `improve_candidates` couple samples: values decide what all samples share, the aggregates and the
    tentative prolongator. With `strength`, a sample has the bits of its scalar run where that finds the same strong
    graphs; with `improve_candidates`, it is no longer its scalar run. A sample's system is solved all the same.

    Parameters
    ----------
    A : CrsMatrix or SymmetricCrsMatrix, shape (n, n), symmetric positive definite in each sample
        The second halves the time of all that reads the finest matrix, and gives the same bits. A SciPy sparse matrix
        is taken too. Of an `AffineMatrix` the prolongators come from the mean matrix and all
        levels are affine: the set-up serves every later set of coefficients, by `update`.
    near_nullspace : array, shape (n,) or (n, k), optional
        Vectors that A almost annihilates, the same for all samples (rigid body modes, say). Default: the constants, one
        for each of a node's `block_size` unknowns.
    block_size : int
        Unknowns per node; consecutive rows of a node stay in one aggregate.
    coarse_size : int, optional
        Coarsen until a level has fewer rows than this; that level is solved directly. Default: the first level below
        500 rows whose dense inverse costs less than further levels, or little beside the finer levels. The estimate
        counts rows and stored entries alone, so that it is the same for every number of samples.
    max_levels : int
        At most this many levels.
    strength : float, "auto", SymmetricStrength or EvolutionStrength, optional
        Which couplings aggregates follow, on every level; a number is theta of `SymmetricStrength`. Of prolongators
        with one near-nullspace vector and no blocks, the smoothing drops weak couplings, too. Default: all stored
        entries are strong, whatever their values. "auto" is `SymmetricStrength` where a coefficient jumps in every
        finite sample (two neighbours have diagonal entries that differ by more than 100, and a weak coupling), else the
        default: not the default itself, because then a sample that jumps would take another hierarchy beside samples
        that do not.
    improve_candidates : int
        Symmetric Gauss-Seidel sweeps that the near-nullspace gets on ``A x = 0``, A being the mean over samples, each
        sample over its mean diagonal: for matrices whose near-nullspace is not known, like ``D A D``.
    smoother : Chebyshev, Jacobi or GaussSeidel
        The last keeps all entries row by row: not for an `AffineMatrix`.
    damping : float, dimensionless
        Of the prolongator smoothing, over each sample's largest eigenvalue of D^-1 A. Zero: plain aggregation.
    dtype : float32 or float64, optional
        Type of the V-cycle; the Krylov method around it stays in A's type, and vectors are converted on the way in and
        out. By default float32 for a matrix of float64 values, which halves the bytes of the preconditioner; values are
        brought into range by a power of two of each sample's own. A sample that float32 does not serve is held in
        float64: one whose diagonal entries differ by more than 1e24, or whose small eigenvalues rounding could move
        (nearly singular, or coefficients that jump by a factor of 1e3 and more around islands). Each sample is judged
        by itself. Of an `AffineMatrix`, the default is the type of A.
    reorder : {"auto", True, False}
        Whether the levels are kept in the reverse Cuthill-McKee order of the graph. Vectors, `update` and
        `take_samples` stay in the caller's order; `levels` are in the other. By default so where A has at least 1000
        nodes and more than one entry in eight of 64 rows is farther than 64 columns from all entries of the row before,
        and not so in that order: unknowns numbered at random, say. The graph alone decides, so that every number of
        samples has the same order. ``cg(A, b, M=hierarchy)`` and its kin reorder a stored A for the time of the solve,
        too. An `AffineMatrix` keeps its order.

    Returns
    -------
    Hierarchy
        A `LinearOperator`: ``cg(A, b, M=hierarchy)``.

    Raises
    ------
    ValueError
        If `A` is not square, the near-nullspace does not fit it, or `dtype` is none of those; or `GaussSeidel` is given
        for an `AffineMatrix`, which stores no values; or `EvolutionStrength` meets blocks or several near-nullspace
        vectors.

    Notes
    -----
    One property of all samples together decides the graphs: which rows stay out of the hierarchy. It is the rows whose
    off-diagonal entries are zero in every sample. Where a row is so in some samples only, those samples have another
    hierarchy here than alone: their solutions agree to the tolerance, not to the bit, and iterations may differ. Every
    stored entry counts as a coupling, zeros included, and stored zeros cost iterations: see
    `CrsMatrix.eliminate_zeros`.

    References
    ----------
    .. [1] Vanek, Mandel, Brezina (1996), Computing 56, 179-196.
    .. [2] Phipps et al. (2017), SIAM J. Sci. Comput. 39, section 3.5 and eq. 6.

    Examples
    --------
    >>> from ensemble.gallery import poisson
    >>> smoothed_aggregation(poisson((40, 40)))
    Hierarchy: 3 levels, 1 samples, float32, operator complexity 1.341, grid complexity 1.196
    level       rows        nnz  nnz/row  lambda_max
        0       1600       7840      4.9  1.888 .. 1.888
        1        280       2368      8.5  1.344 .. 1.344
        2         34        302      8.9  direct
    """
    given, A = A, as_operator(A, "smoothed_aggregation", "A")
    if dtype is not None:
        dtype = floating(dtype, "smoothed_aggregation", "dtype")
    if isinstance(A, AffineMatrix):
        require(reorder is not True, "smoothed_aggregation", "reorder", "be False or 'auto' for an AffineMatrix",
                "True", "Build the AffineMatrix on A.graph.reordered().graph.")  # fmt: skip
        require(not isinstance(smoother, GaussSeidel), "smoothed_aggregation", "smoother",
                "be a Chebyshev or a Jacobi for an AffineMatrix", repr(smoother))  # fmt: skip
        mean = smoothed_aggregation(
            A.mean, near_nullspace=near_nullspace, block_size=block_size, coarse_size=coarse_size,
            max_levels=max_levels, strength=strength, improve_candidates=improve_candidates, smoother=smoother,
            damping=damping, dtype=A.dtype, reorder=False,
        )  # fmt: skip
        return AffineHierarchy(mean, A.terms, np.dtype(A.dtype if dtype is None else dtype)).update(A)
    if not isinstance(A, CrsMatrix | SymmetricCrsMatrix):
        advice = "Give A.to_crs(), or build the hierarchy of its mean with scaled_aggregation."
        wanted = "be a CrsMatrix, SymmetricCrsMatrix or AffineMatrix"
        raise TypeError(message("smoothed_aggregation", "A", wanted, f"a {type(given).__name__}", advice))
    n = A.shape[0]
    require(A.shape == (n, n), "smoothed_aggregation", "A", "be square", f"shape {A.shape}")
    if not array_namespace(A.values).isdtype(A.dtype, "real floating"):
        raise TypeError(message("smoothed_aggregation", "A", "be real", f"dtype {A.dtype}"))
    if coarse_size is not None:
        integer(coarse_size, "smoothed_aggregation", "coarse_size", minimum=1)
    integer(max_levels, "smoothed_aggregation", "max_levels", minimum=1)
    integer(block_size, "smoothed_aggregation", "block_size", minimum=1)
    require(n % block_size == 0, "smoothed_aggregation", "block_size", f"divide the {n} rows of A", block_size)
    positive(damping, "smoothed_aggregation", "damping", zero=True)
    kinds = Chebyshev, Jacobi, GaussSeidel
    wanted = "be a Chebyshev, a Jacobi or a GaussSeidel"
    require_type(smoother, kinds, "smoothed_aggregation", "smoother", wanted, "Chebyshev(degree=2)?")
    B = near_nullspace_of(near_nullspace, n, block_size)
    strength = strength_of(strength, A, block_size)
    integer(improve_candidates, "smoothed_aggregation", "improve_candidates", minimum=0)
    by_rows = isinstance(smoother, GaussSeidel)
    if isinstance(A, SymmetricCrsMatrix) and (by_rows or strength is not None or improve_candidates):
        A = A.to_crs()
    graph = A.graph
    order = order_of(graph, block_size, reorder, "smoothed_aggregation")
    if order is not None:
        A, B = reordered_matrix(A, graph, order), B[order.rows]
    given = A
    A, precision = finest_matrix(A, Precision(dtype))
    if improve_candidates:
        B = improved_candidates(given, B, improve_candidates)
    levels = [Level(A)]
    while len(levels) < max_levels and levels[-1].A.shape[0] >= (1 if coarse_size is None else coarse_size):
        level = levels[-1]
        decisive = given if len(levels) == 1 else level.A  # aggregates follow the caller's values
        strong = None if strength is None else StrongGraph(decisive, strength, B, block_size)
        aggregates, count = aggregates_of(decisive, block_size, strong)
        block_size = B.shape[1]  # a coarse node has one unknown per near-nullspace vector
        coarse_rows = count * B.shape[1]
        if coarse_size is None and is_coarsest([level.A.nnz for level in levels], level.A.shape[0], coarse_rows):
            break
        fill_level(level, smoother)
        if not 0 < coarse_rows < level.A.shape[0]:
            break
        T, B = tentative_prolongator(aggregates, count, B)
        smoothed = level.A.graph if strong is None or strong.graph is None else strong.graph
        graph_p = prolongator_graph(smoothed, T.graph)
        level.plan = Plan(aggregates, T, graph_p, GalerkinProduct(level.A.graph, graph_p), strong)
        levels.append(Level(coarse_matrix(level, damping, None, precision.fits is not None)))
    direct = levels[-1].smoother is None and levels[-1].A.shape[0] <= LARGEST_DENSE
    if levels[-1].smoother is None and not direct:
        fill_level(levels[-1], smoother)
    coarse = CoarseSolver(levels[-1].A) if direct else None
    hierarchy = Hierarchy(levels, coarse, smoother, damping, precision)
    hierarchy.keep_accurate(given)
    return hierarchy if order is None else ReorderedHierarchy(hierarchy, graph, order)


def near_nullspace_of(vectors: Any, n: int, block_size: int = 1) -> np.ndarray:
    """The near-nullspace as float64 columns, shape (n, k): one constant for each unknown of a node by default."""
    if vectors is None:
        return np.tile(np.eye(block_size), (n // block_size, 1))
    name = "smoothed_aggregation", "near_nullspace"
    if isinstance(vectors, Ensemble):
        require(vectors.is_shared, *name, "be the same for all samples", f"{vectors.n_samples} samples")
        vectors = vectors.samples[..., 0]
    B = to_numpy(vectors) if is_array(vectors) else np.asarray(vectors)
    if B.dtype.kind not in "biuf":
        raise TypeError(message(*name, "be real", f"dtype {B.dtype}"))
    fits = B.ndim in (1, 2) and B.shape[0] == n and B.size > 0
    require(fits or (n == 0 and B.ndim in (1, 2)), *name, f"have shape ({n},) or ({n}, k)", f"shape {B.shape}")
    B = B.astype(np.float64).reshape(n, -1) if n else np.ones((0, 1))
    require(bool(np.all(np.isfinite(B))), *name, "be finite", "NaN or infinity")
    empty = np.flatnonzero(~B.any(axis=0)) if n else np.zeros(0, int)
    require(empty.size == 0, *name, "have no column of zeros", f"zeros in column {empty[0] if empty.size else 0}")
    return B
