"""Hierarchies of smoothed aggregation, built once by graph and filled for all samples at once."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ensemble._backend import asarray_like, library_and_device
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.krylov.vectors import dot, put_samples, take_samples
from ensemble._kernels.sparse.row_sums import SERIAL, in_space
from ensemble._typing import Array, Ids, Vectors
from ensemble.linalg import BcrsMatrix, CrsGraph, CrsMatrix, GalerkinProduct, SymmetricCrsMatrix
from ensemble.multigrid.coarse import CoarseSolver, coarse_solver_of
from ensemble.multigrid.conversion import converted_v_cycle
from ensemble.multigrid.cycle import Workspace, v_cycle
from ensemble.multigrid.gauss_seidel import GaussSeidel, GaussSeidelSmoother
from ensemble.multigrid.hierarchy import (
    Hierarchy,
    complex_matrix,
    entry_by_entry,
    require_same_graph,
    stored_matrix,
)
from ensemble.multigrid.jacobi import Jacobi
from ensemble.multigrid.precision import in_single_precision, relative_energy, single_precision_serves
from ensemble.multigrid.prolongation import smoothed_prolongator, smoothing_tasks
from ensemble.multigrid.relaxation import (
    Chebyshev,
    ChebyshevSmoother,
    SymmetricSmoother,
    inverse_diagonal,
    largest_eigenvalue,
)
from ensemble.multigrid.repeated import repeated_cycle
from ensemble.multigrid.strength import StrongGraph

SmootherOption = Chebyshev | Jacobi | GaussSeidel


@dataclass
class Plan:
    """Symbolic set-up of one level: what follows from its graph, for all samples and all later values."""

    aggregates: np.ndarray
    T: CrsMatrix
    graph_p: CrsGraph
    galerkin: GalerkinProduct
    strong: StrongGraph | None = None
    smoothing: dict[Any, Any] = field(default_factory=dict)

    def coarse_matrix(self, level: Level, damping: float, old: Any, with_energy: bool) -> Any:
        """Prolongator and Galerkin matrix of `level`; see `coarse_matrix`."""
        return coarse_matrix(level, damping, old, with_energy)

    def prolongator(self, A: Any, dinv: Array, omega: Array, out: Array) -> CrsMatrix:
        """The smoothed prolongator for the values of `A`."""
        place = library_and_device(A.values)
        if place not in self.smoothing:
            self.smoothing[place] = smoothing_tasks(A, self.T, self.graph_p)
        return smoothed_prolongator(A, self.T, self.graph_p, dinv, omega, self.smoothing[place], out)


@dataclass
class Level:
    """One level: its matrix (stored or affine), its smoother, and the prolongator from the next coarser level."""

    A: Any
    plan: Plan | None = None
    P: CrsMatrix | None = None
    lambda_max: np.ndarray = field(default_factory=lambda: np.zeros(0))
    smoother: ChebyshevSmoother | GaussSeidelSmoother | None = None
    energy: np.ndarray | None = None
    """`relative_energy` of the next coarser matrix; None where the precision was requested."""


class AggregationHierarchy(Hierarchy):
    """A `Hierarchy` of a symmetric positive definite matrix, made by `smoothed_aggregation`.

    Each sample has the V-cycle of its scalar run: eq. 6 of Phipps et al. (2017) holds exactly, because damping and
    smoother bounds are each sample's own.
    """

    levels: list[Level]

    def __init__(
        self,
        levels: list[Level],
        coarse: CoarseSolver | None,
        smoother: SmootherOption,
        damping: float,
        precision: Precision | None = None,
    ) -> None:
        self.levels, self.coarse, self.smoother, self.damping = levels, coarse, smoother, damping
        self.precision = Precision(levels[0].A.dtype) if precision is None else precision
        self.double: tuple[AggregationHierarchy, np.ndarray] | None = None  # in double precision, and of which samples
        self._units: dict[Any, Any] = {}
        self._cycle: tuple[Any, tuple[list[Level], Any]] | None = None  # what it was made of, and the cycle

    @property
    def cycle(self) -> tuple[list[Level], Any]:
        """The levels of a V-cycle, and the solver of the last of them."""
        made_of = self.levels, self.coarse, self.levels[0].A
        if self._cycle is None or any(a is not b for a, b in zip(self._cycle[0], made_of, strict=True)):
            self._cycle = made_of, cycle_of(self.levels[0].A, self.levels, self.coarse)
        return self._cycle[1]

    @property
    def matrix_dtype(self) -> np.dtype:
        return self.dtype if self.precision.unit is None else np.dtype(np.float64)

    def __repr__(self) -> str:
        double = "" if self.double is None else f" ({self.double[1].size} in float64)"
        entries = [
            f"  {level.lambda_max.min():.3f} .. {level.lambda_max.max():.3f}" if level.smoother else "  direct"
            for level in self.levels
        ]
        heading = f"Hierarchy: {len(self.levels)} levels, {self.n_samples} samples, {self.dtype}{double}"
        return self.level_table(heading, "  lambda_max", entries)

    def replay_parts(self) -> tuple[Any, ...] | None:
        parts: list[Any] = [self.cycle[1], self.precision]
        for level in self.levels:
            for operator in (level.A, level.P):
                found = () if operator is None else operator.replay_parts()
                if found is None or not isinstance(level.smoother, ChebyshevSmoother | None):
                    return None
                parts += [*found, level.smoother]
        return None if self.double is not None else tuple(parts)

    @property
    def repeats_on_host(self) -> bool:
        if self.double is not None or self.space is not SERIAL or self._is_complex:
            return False
        return type(self.levels[0].smoother) is ChebyshevSmoother and all(
            type(level.A) is CrsMatrix
            and type(level.P) in (CrsMatrix, type(None))
            and type(level.smoother) in (ChebyshevSmoother, type(None))
            for level in self.levels
        )

    def workspace(self, n_samples: int) -> Workspace:
        return Workspace([level.A for level in self.levels], n_samples)

    def apply(self, r: Vectors, out: Vectors | None = None, workspace: Workspace | None = None) -> Array:
        return self._applied(r, out, workspace, None)

    def precondition(self, r: Vectors, out: Vectors, workspace: Any, norm: Vectors | None = None) -> Vectors:
        """The product with `r` in `out`; `norm` are the norms of r, if they are known."""
        known = norm is not None
        found: Vectors = self._applied(r, out, workspace, norm) if known else super().precondition(r, out, workspace)
        return found

    def _applied(self, r: Array, out: Array, workspace: Workspace | None, norm: Array) -> Any:
        workspace = self.workspace_for(r, workspace)
        if out is None:
            out = empty_like(r)
        if r.dtype == self.dtype and self.precision.unit is None:
            return v_cycle(*self.cycle, r, out, workspace)
        if self._is_complex:  # kernels have complex numbers of one type
            out[...] = v_cycle(*self.cycle, r.astype(self.dtype), empty_like(r, dtype=self.dtype), workspace)
            return out
        return self.converted(None, r, out, workspace, norm=norm, inner=False)[0]

    @property
    def takes_norms(self) -> bool:
        """Whether a norm spares a reduction: over processes, for a V-cycle that enters in units of r."""
        return self.precision.unit is not None and self.space is not SERIAL

    def precondition_dot(
        self,
        r: Vectors,
        out: Vectors | None = None,
        workspace: Workspace | None = None,
        norm: Vectors | None = None,
    ) -> Array:
        cycle = None if out is None else repeated_cycle(self, r)
        if cycle is not None and out is not None:
            return cycle(r, out)[1]
        if self._is_complex or (r.dtype == self.dtype and self.precision.unit is None):
            with in_space(self.space):
                return dot(r, self.apply(r, out, workspace), None)
        workspace = self.workspace_for(r, workspace)
        if out is None:
            out = empty_like(r)
        return self.converted(None, r, out, workspace, norm=norm)[1]

    def converted(
        self, scale: Array, r: Array, out: Array, workspace: Workspace, unit: Array = None,
        norm: Vectors | None = None, inner: bool = True,
    ) -> tuple[Any, Any]:  # fmt: skip
        """`converted_v_cycle` on these levels, in units of powers of two: the hierarchy's, or `unit` in their place."""
        if unit is None:
            unit = self.unit_for(r)
        product = converted_v_cycle(*self.cycle, scale, r, out, workspace, unit, norm, inner)[1]
        if self.double is not None:
            hierarchy, samples = self.double
            places = asarray_like(samples, r)
            if workspace.double is None:
                workspace.double = hierarchy.workspace(samples.size)
            part = hierarchy.apply(take_samples(r, places, None), None, workspace.double)
            put_samples(part, places, out)
            if inner:
                with in_space(self.space):
                    product = dot(r, out, None)
        return out, product

    def unit_for(self, r: Array) -> Any:
        """The unit of each sample of `r`, in its type and on its device; None for a hierarchy without units."""
        if self.precision.unit is None:
            return None
        key = library_and_device(r), r.dtype, r.shape[1]
        if key not in self._units:
            times = r.shape[1] if self.n_samples == 1 else 1
            self._units[key] = asarray_like(np.repeat(self.precision.unit, times).astype(str(r.dtype)), r)
        return self._units[key]

    def take_samples(self, samples: Ids) -> AggregationHierarchy:
        if self.n_samples == 1:
            return self
        samples = np.asarray(samples)
        levels = []
        for level in self.levels:
            taken = Level(level.A.take_samples(samples), level.plan, level.P and level.P.take_samples(samples))
            if level.smoother is not None:
                taken.lambda_max = level.lambda_max[samples]
                taken.smoother = level.smoother.take_samples(taken.A, samples)
            levels.append(taken)
        coarse = self.coarse and self.coarse.take_samples(samples)
        precision = self.precision.take_samples(samples)
        part = AggregationHierarchy(levels, coarse, self.smoother, self.damping, precision)
        part._cycle = (levels, coarse, levels[0].A), (levels, coarse)
        if self.double is not None:
            hierarchy, double = self.double
            chosen = np.flatnonzero(np.isin(samples, double))
            if chosen.size == samples.size:
                return hierarchy.take_samples(np.searchsorted(double, samples))
            if chosen.size:
                part.double = hierarchy.take_samples(np.searchsorted(double, samples[chosen])), chosen
        return part

    def update(self, A: Any) -> AggregationHierarchy:
        """As `Hierarchy.update`; aggregates, the near-nullspace and the symbolic Galerkin products are kept."""
        A = stored_matrix(A, "Hierarchy.update", blocks=isinstance(self.levels[0].A, BcrsMatrix))
        if self._is_complex:
            A = complex_matrix(A, self.dtype, "Hierarchy.update")
        require_same_graph(A, self.levels[0].A, "Hierarchy.update", "smoothed_aggregation", self._is_complex)
        plan = self.levels[0].plan
        by_rows = isinstance(self.smoother, GaussSeidel) or (plan is not None and plan.strong is not None)
        if by_rows and isinstance(A, SymmetricCrsMatrix):
            A = A.to_crs()
        self.levels[0].A, self.precision = finest_matrix(A, self.precision)
        self._units, self._cycle = {}, None  # the old matrix is not kept
        self.forget_recordings()
        self._fill()
        self.hold_in_double(A)
        return self

    def hold_in_double(self, A: Any) -> None:
        """Hold the samples in double precision that single precision does not serve, unless a type was requested."""
        self.double = None
        if self.precision.fits is None:
            return
        energies = [level.energy for level in self.levels if level.energy is not None]
        amplified = None if self.coarse is None else self.coarse.amplification(self.levels[-1].A)
        serves = self.space.agreed(single_precision_serves(self.precision.fits, energies, amplified))
        samples = np.flatnonzero(~serves)
        if not samples.size:
            return
        part = A if samples.size == self.n_samples else A.take_samples(samples)
        levels = [Level(part, self.levels[0].plan), *(Level(None, level.plan) for level in self.levels[1:])]
        double = AggregationHierarchy(levels, self.coarse, self.smoother, self.damping)
        double._fill()
        if samples.size < self.n_samples:
            self.double = double, samples
        else:
            self.levels, self.coarse = double.levels, double.coarse
            self.precision = Precision(None)

    def _fill(self) -> None:
        """The numeric phase: everything below the finest matrix that depends on values."""
        last = len(self.levels) - 1
        for k, level in enumerate(self.levels):
            if k == last and self.coarse is not None:
                self.coarse = coarse_solver_of(level.A)
                break
            fill_level(level, self.smoother)
            if level.plan is not None:
                self.levels[k + 1].A = level.plan.coarse_matrix(
                    level, self.damping, self.levels[k + 1].A, self.precision.fits is not None
                )


@functools.singledispatch
def cycle_of(A: Any, levels: list[Level], coarse: Any) -> tuple[list[Level], Any]:
    """The levels of a V-cycle and the solver of its last one; matrices over several processes register their own."""
    return levels, coarse


@dataclass
class Precision:
    """The type that a hierarchy computes in, and the scale of its values."""

    requested: Any
    """The data type; None for single precision where it serves a real matrix in double precision."""
    unit: np.ndarray | None = None
    """Powers of two, one per sample: the finest level holds ``unit * A``. None for a hierarchy in the type of A."""
    fits: np.ndarray | None = None
    """Which samples are in the range of single precision; None where a type was requested."""

    def take_samples(self, samples: np.ndarray) -> Precision:
        """The units of the samples named."""
        unit, fits = (None if one is None or one.size == 1 else one[samples] for one in (self.unit, self.fits))
        return Precision(self.requested, self.unit if unit is None else unit, self.fits if fits is None else fits)


def finest_matrix(A: Any, precision: Precision) -> tuple[Any, Precision]:
    """`A` in the type of `precision`."""
    requested = precision.requested
    double = str(A.dtype).endswith("float64")
    if double and (requested is None or np.dtype(requested) == np.float32):
        narrow, unit, fits = in_single_precision(A)
        return narrow, Precision(requested, unit, fits if requested is None else None)
    if requested is not None:
        A = A.with_values(A.values.astype(requested, copy=False))
    return A, Precision(requested)


def fill_level(level: Level, smoother: SmootherOption) -> None:
    """Eigenvalue estimate and smoother of a level whose matrix is set."""
    dinv = inverse_diagonal(level.A)
    level.lambda_max = largest_eigenvalue(level.A, dinv)
    if isinstance(smoother, GaussSeidel):
        level.smoother = smoother.smoother_of(level.A, dinv, level.smoother)
        return
    kind = SymmetricSmoother if level.A.has_fused_steps else ChebyshevSmoother
    level.smoother = kind(level.A, dinv, smoother.coefficients(level.lambda_max))


def coarse_matrix(level: Level, damping: float, old: Any, with_energy: bool = False) -> CrsMatrix:
    """Prolongator and Galerkin matrix of a level whose plan and smoother are set; buffers of earlier values are reused.

    With `with_energy`, `level.energy` is set to the energy that single precision keeps.
    """
    plan, A = level.plan, entry_by_entry(level.A)
    assert plan is not None and level.smoother is not None
    F, dinv, lambda_max = A, level.smoother.dinv, level.lambda_max
    if plan.strong is not None and plan.strong.graph is not None:
        F = plan.strong.filtered(A)
        dinv = inverse_diagonal(F)
        lambda_max = largest_eigenvalue(F, dinv)
    with np.errstate(all="ignore"):
        omega = asarray_like((damping / lambda_max).astype(A.dtype), A.values)
    kept = level.P is not None and level.P.n_samples == A.n_samples and level.P.dtype == A.dtype
    p = level.P.values if kept and level.P is not None else None
    level.P = plan.prolongator(F, dinv, omega, p)
    kept = isinstance(old, CrsMatrix) and old.n_samples == A.n_samples and old.dtype == A.dtype
    coarse = plan.galerkin.with_adjoint(A, level.P, old.values if kept else None)
    level.energy = relative_energy(A, plan.T, coarse) if with_energy else None
    return coarse
