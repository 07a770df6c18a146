"""Smoothed aggregation: from a matrix to the hierarchy of its levels."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._check import floating, host_array, integer, message, positive, require, require_type
from ensemble._keywords import explains_calls
from ensemble._typing import DType
from ensemble.linalg import AffineMatrix, BcrsMatrix, CrsMatrix, GalerkinProduct, SymmetricCrsMatrix
from ensemble.linalg.adapt import as_operator
from ensemble.linalg.bridge.host import host_matrix
from ensemble.linalg.reordering import reordered_matrix
from ensemble.multigrid.affine import AffineHierarchy
from ensemble.multigrid.aggregation import aggregates_of
from ensemble.multigrid.aggregation_hierarchy import (
    AggregationHierarchy,
    Level,
    Plan,
    Precision,
    SmootherOption,
    fill_level,
    finest_matrix,
)
from ensemble.multigrid.candidates import improved_candidates
from ensemble.multigrid.coarse import LARGEST_DENSE, coarse_solver_of, is_coarsest
from ensemble.multigrid.gauss_seidel import GaussSeidel
from ensemble.multigrid.hierarchy import (
    Hierarchy,
    complex_matrix,
    entry_by_entry,
    holds_complex,
    require_square_and_real,
    stored_matrix,
)
from ensemble.multigrid.jacobi import Jacobi
from ensemble.multigrid.prolongation import prolongator_graph
from ensemble.multigrid.relaxation import Chebyshev
from ensemble.multigrid.reordered import ReorderedHierarchy, order_of
from ensemble.multigrid.strength import EvolutionStrength, StrongGraph, strength_of
from ensemble.multigrid.tentative import tentative_prolongator
from ensemble.scalar import Ensemble

CHEBYSHEV = Chebyshev(degree=2, ratio=7)


@explains_calls("smoothed_aggregation")
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
    dtype: DType | None = None,
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
    A : CrsMatrix, BcrsMatrix or SymmetricCrsMatrix, shape (n, n), symmetric positive definite in each sample
        For a `BcrsMatrix` the finest level keeps the blocks, and aggregates are formed of its nodes. A
        `SymmetricCrsMatrix` halves the time of all passes over the finest matrix, and gives the same bits. A SciPy
        sparse matrix is accepted, too. For an `AffineMatrix` the prolongators come from the mean matrix and all levels
        are affine: the set-up serves every later set of coefficients, by `update`.
        A complex matrix (of NumPy's or CuPy's arrays) has complex levels: coarse matrices are ``P^H A P``, and
        strengths and bounds of smoothers go by magnitudes. The cycle is Hermitian where A is. Of other complex
        matrices it preconditions `gmres` and `bicgstab` where their eigenvalues lie near a ray from zero, as those of a
        Laplacian with a complex shift do.
    near_nullspace : array, shape (n,) or (n, k), optional
        Vectors that A almost annihilates, the same for all samples; for elasticity `rigid_body_modes`. Default: the
        constants, one for each of a node's `block_size` unknowns.
    block_size : int
        Unknowns per node; consecutive rows of a node stay in one aggregate. For a `BcrsMatrix` the size of its blocks.
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
        Damping of the prolongator smoothing, over each sample's largest eigenvalue of D^-1 A. 0: plain aggregation.
    dtype : float32 or float64, optional
        Type of the V-cycle, of a complex A that of real and imaginary parts, by default those of A. The Krylov method
        around it stays in A's type, and vectors are converted on entry and out. By default float32 for a matrix of
        float64 values, which halves the bytes of the preconditioner; values are scaled into range by a power of two of
        each sample's own. A sample that float32 does not serve is held in float64: one whose diagonal entries differ by
        more than 1e24, or whose small eigenvalues rounding could move (nearly singular, or coefficients that jump by a
        factor of 1e3 and more around islands). Each sample is judged by itself. Of an `AffineMatrix`, the default is
        the type of A.
    reorder : {"auto", True, False}
        Whether the levels are kept in the reverse Cuthill-McKee order of the graph. Vectors, `update` and
        `take_samples` stay in the caller's order; `levels` are in the other. By default so where A has at least 1000
        nodes and more than one entry in eight of 64 rows is farther than 64 columns from all entries of the row before,
        and not so in that order: unknowns numbered at random, say. The graph alone decides, so that every number of
        samples has the same order. Krylov methods with ``M=hierarchy`` reorder a stored A during the solve, too.
        An `AffineMatrix` keeps its order.

    Returns
    -------
    Hierarchy
        A `LinearOperator`: ``cg(A, b, M=hierarchy)``.

    Raises
    ------
    ValueError
        If `A` is not square, the near-nullspace does not fit it, or `dtype` is none of those; or `GaussSeidel` is given
        for an `AffineMatrix`, which stores no values; or `EvolutionStrength` is given for blocks or several
        near-nullspace vectors; or this or `improve_candidates` for a complex A.
    TypeError
        If `A` is no such matrix, or complex and not of NumPy's or CuPy's arrays on one process.

    Notes
    -----
    One property of all samples decides the graphs: which rows stay out of the hierarchy. It is the rows whose
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
    name = "smoothed_aggregation"
    if dtype is not None:
        dtype = floating(dtype, name, "dtype")
    affine = host_matrix(as_operator(A, name, "A"), name)
    if hasattr(affine, "with_coefficients"):  # an AffineMatrix, or one over processes
        return affine_hierarchy(
            affine, dtype, reorder, near_nullspace=near_nullspace, block_size=block_size, coarse_size=coarse_size,
            max_levels=max_levels, strength=strength, improve_candidates=improve_candidates, smoother=smoother,
            damping=damping,
        )  # fmt: skip
    advice = "Give A.to_crs(), or build the hierarchy of its mean with scaled_aggregation."
    if not hasattr(A, "to_crs"):
        advice = "Give CrsMatrix.from_scipy(scipy.sparse.csr_array(A)) for an array."
    kinds = "be a CrsMatrix, BcrsMatrix, SymmetricCrsMatrix, sparse matrix of SciPy or AffineMatrix"
    matrix = stored_matrix(A, name, kinds, advice, blocks=True)
    is_complex = holds_complex(matrix)
    if not is_complex:
        require_square_and_real(matrix, name)
    if isinstance(matrix, BcrsMatrix):
        own = matrix.block_shape[0]
        require(matrix.block_shape == (own, own), name, "A", "have square blocks", matrix.block_shape)
        require(block_size in (1, own), name, "block_size", f"be {own}, that of A", block_size)
        block_size = own
    if is_complex:
        dtype = np.result_type(matrix.dtype if dtype is None else dtype, np.complex64)
        matrix = complex_system(matrix, dtype, strength, improve_candidates)
    own_options = getattr(matrix, "require_options", None)
    if own_options is not None:
        own_options(name, strength=strength, improve_candidates=improve_candidates, reorder=reorder is True,
                    smoother=smoother if isinstance(smoother, GaussSeidel) else None)  # fmt: skip
    n = matrix.local_shape[0]
    graph: Any = getattr(matrix, "graph", None)
    require_options(n, block_size, coarse_size, max_levels, improve_candidates, smoother, damping)
    B = near_nullspace_of(near_nullspace, n, block_size)
    strength = strength_of(strength, matrix, block_size)
    by_rows = isinstance(smoother, GaussSeidel) or strength is not None or improve_candidates
    if isinstance(matrix, BcrsMatrix | SymmetricCrsMatrix) and by_rows:
        matrix = matrix.to_crs()
        graph = matrix.graph
    blocks = isinstance(matrix, BcrsMatrix)
    order = None if graph is None else order_of(graph, 1 if blocks else block_size, reorder, name)
    if order is not None and blocks:
        order = order.of_blocks(block_size)
    if order is not None:
        matrix, B = reordered_matrix(matrix, graph, order), B[order.rows]
    finest, precision = finest_matrix(matrix, Precision(dtype))
    if improve_candidates:
        B = improved_candidates(matrix, B, improve_candidates)
    levels = build_levels(
        Level(finest), matrix, B, block_size, strength, coarse_size, max_levels, smoother, damping,
        precision.fits is not None,
    )  # fmt: skip
    direct = levels[-1].smoother is None
    hierarchy = AggregationHierarchy(
        levels, coarse_solver_of(levels[-1].A) if direct else None, smoother, damping, precision
    )
    hierarchy.hold_in_double(matrix)
    return hierarchy if order is None else ReorderedHierarchy(hierarchy, graph, order)


def complex_system(A: Any, dtype: DType, strength: Any, improve_candidates: int) -> CrsMatrix:
    """A complex matrix as `smoothed_aggregation` takes it; options that are for real ones are refused."""
    name = "smoothed_aggregation"
    matrix = complex_matrix(A, dtype, name)
    require(A.shape[0] == A.shape[1], name, "A", "be square", f"shape {A.shape}")
    wanted = "be None, 'auto', a number or a SymmetricStrength where A is complex"
    require(not isinstance(strength, EvolutionStrength), name, "strength", wanted, repr(strength))
    require(improve_candidates == 0, name, "improve_candidates", "be 0 where A is complex", repr(improve_candidates),
            "Give the vectors as near_nullspace, which is real.")  # fmt: skip
    return matrix


def affine_hierarchy(A: AffineMatrix, dtype: DType | None, reorder: bool | str, **options: Any) -> AffineHierarchy:
    """The hierarchy of the mean of `A`, with the terms of `A` on every level; `options` of `smoothed_aggregation`."""
    name = "smoothed_aggregation"
    require(reorder is not True, name, "reorder", "be False or 'auto' for an AffineMatrix",
            "True", "Build the AffineMatrix on A.graph.reordered().graph.")  # fmt: skip
    require(not isinstance(options["smoother"], GaussSeidel), name, "smoother",
            "be a Chebyshev or a Jacobi for an AffineMatrix", repr(options["smoother"]))  # fmt: skip
    mean = smoothed_aggregation(A.mean, dtype=A.dtype, reorder=False, **options)
    assert isinstance(mean, AggregationHierarchy)
    return AffineHierarchy(mean, A.terms, np.dtype(A.dtype if dtype is None else dtype)).update(A)


def require_options(
    n: int, block_size: int, coarse_size: int | None, max_levels: int, improve_candidates: int,
    smoother: SmootherOption, damping: float,
) -> None:  # fmt: skip
    """Refuse options of `smoothed_aggregation` that are out of range for a matrix of `n` rows."""
    name = "smoothed_aggregation"
    if coarse_size is not None:
        integer(coarse_size, name, "coarse_size", minimum=1)
    integer(max_levels, name, "max_levels", minimum=1)
    integer(block_size, name, "block_size", minimum=1)
    require(n % block_size == 0, name, "block_size", f"divide the {n} rows of A", block_size)
    positive(damping, name, "damping", zero=True)
    wanted = "be a Chebyshev, a Jacobi or a GaussSeidel"
    require_type(smoother, (Chebyshev, Jacobi, GaussSeidel), name, "smoother", wanted, "Use Chebyshev(degree=2).")
    integer(improve_candidates, name, "improve_candidates", minimum=0)


def build_levels(
    finest: Level, matrix: CrsMatrix | BcrsMatrix | SymmetricCrsMatrix, B: np.ndarray, block_size: int, strength: Any,
    coarse_size: int | None, max_levels: int, smoother: SmootherOption, damping: float, with_energy: bool,
) -> list[Level]:  # fmt: skip
    """The levels from `finest` on, coarsened by the values of `matrix`, the caller's; `B` is the near-nullspace.

    The coarsest level has a smoother unless it is small enough to be solved directly. `with_energy`: see
    `coarse_matrix`.
    """
    levels = [finest]
    while len(levels) < max_levels and levels[-1].A.shape[0] >= (1 if coarse_size is None else coarse_size):
        level = levels[-1]
        decisive = matrix if len(levels) == 1 else level.A
        coarsening = coarsening_of(decisive, B, block_size, strength)
        block_size = B.shape[1]  # a coarse node has one unknown per near-nullspace vector
        coarse_rows = coarsening.coarse_rows
        if coarse_size is None and is_coarsest([level.A.nnz for level in levels], level.A.shape[0], coarse_rows):
            break
        fill_level(level, smoother)
        if not 0 < coarse_rows < level.A.shape[0]:
            break
        level.plan, B = coarsening.plan(level.A)
        levels.append(Level(level.plan.coarse_matrix(level, damping, None, with_energy)))
    if levels[-1].smoother is None and levels[-1].A.shape[0] > LARGEST_DENSE:
        fill_level(levels[-1], smoother)
    return levels


@functools.singledispatch
def coarsening_of(A: Any, B: np.ndarray, block_size: int, strength: Any) -> Any:
    """The `Coarsening` of a level by the values of `A`; matrices over several processes register their own."""
    return Coarsening(A, B, block_size, strength)


class Coarsening:
    """The aggregates of a level, and how many rows the next level has.

    Parameters
    ----------
    A : CrsMatrix, BcrsMatrix or SymmetricCrsMatrix
        Its values decide, where values do.
    B : array, shape (n, k)
        The near-nullspace.
    block_size : int
        Rows of a node.
    strength : strength of connection or None
    """

    def __init__(self, A: Any, B: np.ndarray, block_size: int, strength: Any) -> None:
        self.B = B
        self.strong = None if strength is None else StrongGraph(A, strength, B, block_size)
        self.aggregates, self.count = aggregates_of(A, block_size, self.strong)
        self.coarse_rows = self.count * B.shape[1]

    def plan(self, A: Any) -> tuple[Plan, np.ndarray]:
        """The graph work for the matrix `A` of the level, and the near-nullspace of the next."""
        T, B = tentative_prolongator(self.aggregates, self.count, self.B)
        graph, strong = entry_by_entry(A).graph, self.strong
        graph_p = prolongator_graph(graph if strong is None or strong.graph is None else strong.graph, T.graph)
        return Plan(self.aggregates, T, graph_p, GalerkinProduct(graph, graph_p), strong), B


def near_nullspace_of(vectors: Any, n: int, block_size: int = 1) -> np.ndarray:
    """The near-nullspace as float64 columns, shape (n, k): one constant for each unknown of a node by default."""
    if vectors is None:
        return np.tile(np.eye(block_size), (n // block_size, 1))
    name = "smoothed_aggregation", "near_nullspace"
    if isinstance(vectors, Ensemble):
        require(vectors.is_shared, *name, "be the same for all samples", f"{vectors.n_samples} samples")
        vectors = vectors.samples[..., 0]
    B = host_array(vectors, *name, f"have shape ({n},) or ({n}, k)")
    if B.dtype.kind not in "biuf":
        raise TypeError(message(*name, "be real", f"dtype {B.dtype}"))
    fits = B.ndim in (1, 2) and B.shape[0] == n and B.size > 0
    require(fits or (n == 0 and B.ndim in (1, 2)), *name, f"have shape ({n},) or ({n}, k)", f"shape {B.shape}")
    B = B.astype(np.float64).reshape(n, -1) if n else np.ones((0, 1))
    require(bool(np.all(np.isfinite(B))), *name, "be finite", "NaN or infinity")
    empty = np.flatnonzero(~B.any(axis=0)) if n else np.zeros(0, int)
    require(empty.size == 0, *name, "have no column of zeros", f"zeros in column {empty[0] if empty.size else 0}")
    return B
