"""Smoothed aggregation: the hierarchy of levels, built once by graph and filled for all samples at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, contiguous, home_of, is_array, moved
from ensemble._check import integer, message, positive, require
from ensemble._kernels._memory import empty_like
from ensemble._kernels.krylov import dot
from ensemble.linalg import AffineMatrix, CrsGraph, CrsMatrix, GalerkinProduct
from ensemble.linalg.adapt import as_operator
from ensemble.linalg.operators import samples_of, wrap_like
from ensemble.multigrid.aggregation import aggregates_of
from ensemble.multigrid.coarse import CoarseSolver
from ensemble.multigrid.conversion import converted_v_cycle
from ensemble.multigrid.cycle import Workspace, v_cycle
from ensemble.multigrid.prolongation import prolongator_graph, smoothed_prolongator, smoothing_tasks
from ensemble.multigrid.relaxation import Chebyshev, ChebyshevSmoother, inverse_diagonal, largest_eigenvalue
from ensemble.multigrid.tentative import tentative_prolongator
from ensemble.scalar import Ensemble

CHEBYSHEV = Chebyshev(degree=2, ratio=7)

LARGEST_DENSE = 4000
"""Rows above which a coarsest level that would not coarsen further is smoothed instead of inverted."""


@dataclass
class Plan:
    """What the graph of one level decides, for all samples and all later values."""

    aggregates: np.ndarray
    T: CrsMatrix
    graph_p: CrsGraph
    galerkin: GalerkinProduct
    smoothing: dict[Any, Any] = field(default_factory=dict)

    def prolongator(self, A: CrsMatrix, dinv: Any, omega: Any, out: Any) -> CrsMatrix:
        """The smoothed prolongator for the values of `A`."""
        home = home_of(A.values)
        if home not in self.smoothing:
            self.smoothing[home] = smoothing_tasks(A, self.T, self.graph_p)
        return smoothed_prolongator(A, self.T, self.graph_p, dinv, omega, self.smoothing[home], out)


@dataclass
class Level:
    """One level: its matrix (stored or affine), its smoother, and the prolongator from the next coarser level."""

    A: Any
    plan: Plan | None = None
    P: CrsMatrix | None = None
    lambda_max: np.ndarray = field(default_factory=lambda: np.zeros(0))
    smoother: ChebyshevSmoother | None = None


class Hierarchy:
    """A multigrid hierarchy: a `LinearOperator` that applies one V-cycle, made by `smoothed_aggregation`.

    ``hierarchy @ r`` is the V-cycle's approximation of ``A^-1 r``, sample by sample (eq. 6 of Phipps et al. 2017 holds
    exactly, because damping and smoother bounds are each sample's own). ``repr`` prints the level table.
    """

    __array_ufunc__ = None
    queues_kernels = True  # a device may run ahead of the host through `apply`

    def __init__(self, levels: list[Level], coarse: CoarseSolver | None, smoother: Chebyshev, damping: float) -> None:
        self.levels, self.coarse, self.smoother, self.damping = levels, coarse, smoother, damping

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the finest matrix."""
        return self.levels[0].A.shape

    @property
    def n_samples(self) -> int:
        """Samples held; 1 serves every sample alike."""
        return self.levels[0].A.n_samples

    @property
    def dtype(self) -> Any:
        """Type in which the V-cycle computes."""
        return self.levels[0].A.dtype

    @property
    def home(self) -> Any:
        """An array that lives where this hierarchy does."""
        return self.levels[0].A.home

    @property
    def operator_complexity(self) -> float:
        """Stored entries of all levels over those of the finest."""
        return sum(level.A.nnz for level in self.levels) / max(self.levels[0].A.nnz, 1)

    @property
    def grid_complexity(self) -> float:
        """Rows of all levels over those of the finest."""
        return sum(level.A.shape[0] for level in self.levels) / max(self.shape[0], 1)

    def __repr__(self) -> str:
        lines = [
            f"Hierarchy: {len(self.levels)} levels, {self.n_samples} samples, {self.dtype}, "
            f"operator complexity {self.operator_complexity:.3f}, grid complexity {self.grid_complexity:.3f}",
            "level       rows        nnz  nnz/row  lambda_max",
        ]
        for k, level in enumerate(self.levels):
            rows, nnz = level.A.shape[0], level.A.nnz
            bounds = f"{level.lambda_max.min():.3f} .. {level.lambda_max.max():.3f}" if level.smoother else "direct"
            lines.append(f"{k:5d} {rows:10d} {nnz:10d} {nnz / max(rows, 1):8.1f}  {bounds}")
        return "\n".join(lines)

    def workspace(self, n_samples: int) -> Workspace:
        """Vectors for `apply`; a solver makes them once."""
        return Workspace([level.A.shape[0] for level in self.levels], n_samples, self.home)

    def apply(self, r: Any, out: Any = None, workspace: Workspace | None = None) -> Any:
        """One V-cycle on bare arrays: `r` of shape (n, n_samples)."""
        if workspace is None or workspace.n_samples != r.shape[1]:
            workspace = self.workspace(r.shape[1])
        if out is None:
            out = empty_like(r)
        if r.dtype == self.dtype:
            return v_cycle(self.levels, self.coarse, r, out, workspace)
        return converted_v_cycle(self.levels, self.coarse, None, r, out, workspace)[0]

    def apply_dot(self, r: Any, out: Any = None, workspace: Workspace | None = None) -> Any:
        """`apply` to `out`, and the inner products of `r` with it, one value a sample."""
        if r.dtype == self.dtype:
            return dot(r, self.apply(r, out, workspace), None)
        if workspace is None or workspace.n_samples != r.shape[1]:
            workspace = self.workspace(r.shape[1])
        return converted_v_cycle(self.levels, self.coarse, None, r, out, workspace)[1]

    def __matmul__(self, r: Any) -> Any:
        if not is_array(r) and not isinstance(r, Ensemble):
            return NotImplemented
        samples = samples_of(r)
        require(
            samples.ndim == 2 and samples.shape[0] == self.shape[1], "Hierarchy @", "r",
            f"be a vector of {self.shape[1]}", f"shape {tuple(samples.shape[:-1])}",
        )  # fmt: skip
        n_samples = max(self.n_samples, samples.shape[1])
        require(samples.shape[1] in (1, n_samples) and self.n_samples in (1, n_samples), "Hierarchy @", "r",
                f"have {self.n_samples} samples, or 1", samples.shape[1])  # fmt: skip
        wide = contiguous(array_namespace(samples).broadcast_to(samples, (samples.shape[0], n_samples)))
        return wrap_like(r, self.apply(wide), self.n_samples)

    def take_samples(self, samples: Any) -> Hierarchy:
        """The hierarchy of the samples named; the graph work is shared."""
        if self.n_samples == 1:
            return self
        samples = np.asarray(samples)
        levels = []
        for level in self.levels:
            new = Level(level.A.take_samples(samples), level.plan, level.P and level.P.take_samples(samples))
            if level.smoother is not None:
                new.lambda_max = level.lambda_max[samples]
                new.smoother = level.smoother.take_samples(new.A, samples)
            levels.append(new)
        coarse = self.coarse and self.coarse.take_samples(samples)
        return Hierarchy(levels, coarse, self.smoother, self.damping)

    def update(self, A: Any) -> Hierarchy:
        """Fill the hierarchy with new values on the same graph, in place; returns it.

        Aggregates, graphs and the symbolic Galerkin products are kept; everything that depends on values is redone.

        Raises
        ------
        ValueError
            If `A` does not have the graph that the hierarchy was built for.
        """
        graph = self.levels[0].A.graph
        same = A.graph is graph or (
            A.shape == graph.shape
            and np.array_equal(A.graph.indptr, graph.indptr)
            and np.array_equal(A.graph.indices, graph.indices)
        )
        require(same, "Hierarchy.update", "A", "have the graph the hierarchy was built for", repr(A.graph),
                "Build a new one with smoothed_aggregation.")  # fmt: skip
        values = A.values.astype(self.dtype, copy=False)
        self.levels[0].A = CrsMatrix(graph, values)
        self._fill()
        return self

    def _fill(self) -> None:
        """The numeric phase: everything below the finest matrix that depends on values."""
        last = len(self.levels) - 1
        for k, level in enumerate(self.levels):
            if k == last and self.coarse is not None:
                self.coarse = CoarseSolver(level.A)
                break
            fill_level(level, self.smoother)
            if level.plan is not None:
                self.levels[k + 1].A = coarse_matrix(level, self.damping, self.levels[k + 1].A)


def fill_level(level: Level, smoother: Chebyshev) -> None:
    """Eigenvalue estimate and smoother of a level whose matrix is set."""
    dinv = inverse_diagonal(level.A)
    level.lambda_max = largest_eigenvalue(level.A, dinv)
    level.smoother = ChebyshevSmoother(level.A, dinv, smoother.coefficients(level.lambda_max))


def coarse_matrix(level: Level, damping: float, old: CrsMatrix | None) -> CrsMatrix:
    """Prolongator and Galerkin matrix of a level whose plan and smoother are set; old buffers are used again."""
    plan, A = level.plan, level.A
    assert plan is not None and level.smoother is not None
    with np.errstate(all="ignore"):
        omega = moved((damping / level.lambda_max).astype(A.dtype), A.values)
    p = level.P.values if level.P is not None and level.P.n_samples == A.n_samples else None
    level.P = plan.prolongator(A, level.smoother.dinv, omega, p)
    return plan.galerkin(A, level.P, old.values if old is not None and old.n_samples == A.n_samples else None)


def smoothed_aggregation(
    A: Any,
    *,
    near_nullspace: Any = None,
    block_size: int = 1,
    coarse_size: int = 500,
    max_levels: int = 20,
    smoother: Chebyshev = CHEBYSHEV,
    damping: float = 4.0 / 3.0,
    dtype: Any = None,
) -> Hierarchy:
    """Build a smoothed-aggregation multigrid hierarchy for all samples of `A` at once.

    Aggregates follow the graph alone, without dropping, so all samples share them; prolongator damping and Chebyshev
    bounds are each sample's own, so that a sample's V-cycle is exactly that of its scalar run [1]_, [2]_.

    Parameters
    ----------
    A : CrsMatrix, shape (n, n), symmetric positive definite in each sample
        A SciPy sparse matrix is taken too. Of an `AffineMatrix` the prolongators come from the mean matrix and all
        levels are affine: the set-up serves every later set of coefficients, by `update`.
    near_nullspace : array, shape (n,) or (n, k), optional
        Vectors that A almost annihilates, the same for all samples (rigid body modes, say). Default: constants.
    block_size : int
        Unknowns per node; consecutive rows of a node stay in one aggregate.
    coarse_size : int
        Coarsen until a level has fewer rows than this; that level is solved directly.
    max_levels : int
        At most this many levels.
    smoother : Chebyshev
    damping : float, dimensionless
        Of the prolongator smoothing, over each sample's largest eigenvalue of D^-1 A. Zero: plain aggregation.
    dtype : data type, optional
        float32 halves the bytes of the preconditioner; the Krylov method around it stays in A's type.

    Returns
    -------
    Hierarchy
        A `LinearOperator`: ``cg(A, b, M=hierarchy)``.

    Raises
    ------
    ValueError
        If `A` is not square, or the near-nullspace does not fit it.

    References
    ----------
    .. [1] Vanek, Mandel, Brezina (1996), Computing 56, 179-196.
    .. [2] Phipps et al. (2017), SIAM J. Sci. Comput. 39, section 3.5 and eq. 6.

    Examples
    --------
    >>> from ensemble.gallery import poisson
    >>> smoothed_aggregation(poisson((40, 40)))
    Hierarchy: 2 levels, 1 samples, float64, operator complexity 1.302, grid complexity 1.175
    level       rows        nnz  nnz/row  lambda_max
        0       1600       7840      4.9  1.888 .. 1.888
        1        280       2368      8.5  direct
    """
    A = as_operator(A, "smoothed_aggregation", "A")
    if isinstance(A, AffineMatrix):
        from ensemble.multigrid.affine import AffineHierarchy

        mean = smoothed_aggregation(
            A.mean, near_nullspace=near_nullspace, block_size=block_size, coarse_size=coarse_size,
            max_levels=max_levels, smoother=smoother, damping=damping,
        )  # fmt: skip
        return AffineHierarchy(mean, A.terms, np.dtype(A.dtype if dtype is None else dtype)).update(A)
    if not isinstance(A, CrsMatrix):
        advice = "Give A.to_crs(), or build the hierarchy of its mean with scaled_aggregation."
        raise TypeError(
            message("smoothed_aggregation", "A", "be a CrsMatrix or AffineMatrix", f"a {type(A).__name__}", advice)
        )
    n = A.shape[0]
    require(A.shape == (n, n), "smoothed_aggregation", "A", "be square", f"shape {A.shape}")
    integer(coarse_size, "smoothed_aggregation", "coarse_size", minimum=1)
    integer(max_levels, "smoothed_aggregation", "max_levels", minimum=1)
    integer(block_size, "smoothed_aggregation", "block_size", minimum=1)
    require(n % block_size == 0, "smoothed_aggregation", "block_size", f"divide the {n} rows of A", block_size)
    positive(damping, "smoothed_aggregation", "damping", zero=True)
    B = np.ones((n, 1)) if near_nullspace is None else np.asarray(near_nullspace, np.float64).reshape(n, -1)
    require(bool(np.all(np.isfinite(B))), "smoothed_aggregation", "near_nullspace", "be finite", "NaN or infinity")
    if dtype is not None:
        A = CrsMatrix(A.graph, A.values.astype(dtype, copy=False))
    levels = [Level(A)]
    while levels[-1].A.shape[0] >= coarse_size and len(levels) < max_levels:
        level = levels[-1]
        fill_level(level, smoother)
        aggregates, count = aggregates_of(level.A, block_size)
        block_size = B.shape[1]  # a coarse node has one unknown per near-nullspace vector
        if count == 0 or count * B.shape[1] >= level.A.shape[0]:
            break
        T, B = tentative_prolongator(aggregates, count, B)
        graph_p = prolongator_graph(level.A.graph, T.graph)
        level.plan = Plan(aggregates, T, graph_p, GalerkinProduct(level.A.graph, graph_p))
        levels.append(Level(coarse_matrix(level, damping, None)))
    direct = levels[-1].smoother is None and levels[-1].A.shape[0] <= LARGEST_DENSE
    if levels[-1].smoother is None and not direct:
        fill_level(levels[-1], smoother)
    return Hierarchy(levels, CoarseSolver(levels[-1].A) if direct else None, smoother, damping)
