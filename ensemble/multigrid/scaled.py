"""One hierarchy for all samples of a study: that of a mean matrix, scaled to each sample by its diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._check import kind_of, message, require
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.krylov.vectors import take_samples
from ensemble._kernels.multigrid.scaling import entry_units, narrowed
from ensemble._kernels.sparse.row_sums import in_space
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Ids, Vectors
from ensemble.linalg import CrsMatrix
from ensemble.linalg.linear_operator import LinearOperator
from ensemble.linalg.operators import multiply
from ensemble.multigrid.aggregation_hierarchy import AggregationHierarchy
from ensemble.multigrid.conversion import converted_v_cycle
from ensemble.multigrid.cycle import Workspace
from ensemble.multigrid.setup import smoothed_aggregation


class ScaledHierarchy(LinearOperator):
    """``S V S`` for each sample: V one V-cycle of the mean matrix, S the root of mean over own diagonal.

    Made by `scaled_aggregation`; a `LinearOperator`: ``cg(A, b, M=M)``. Of each sample only S is stored, one vector;
    `update` costs no more than that vector.
    """

    __array_ufunc__ = None
    queues_kernels = True

    def __init__(self, hierarchy: AggregationHierarchy, scale: Array, unit: Array = None) -> None:
        """`unit`: what results are multiplied by, one power of two per sample; None for a hierarchy without units."""
        self.hierarchy, self.scale, self.unit = hierarchy, scale, unit
        self.shape, self.space = hierarchy.shape, hierarchy.space

    @classmethod
    def of(cls, A: Any, hierarchy: AggregationHierarchy) -> ScaledHierarchy:
        """The preconditioner of `A` on a mean's hierarchy that is there already."""
        return cls(hierarchy, *scale_of(A, hierarchy))

    @property
    def local_shape(self) -> tuple[int, int]:
        return self.hierarchy.local_shape

    @property
    def n_samples(self) -> int:
        """Samples held."""
        return int(self.scale.shape[1])

    @property
    def dtype(self) -> np.dtype:
        """Type in which the V-cycle computes."""
        return self.hierarchy.dtype

    @property
    def matrix_dtype(self) -> np.dtype:
        return self.hierarchy.matrix_dtype

    @property
    def reference_array(self) -> Any:
        """An array in the library and on the device of this operator."""
        return self.scale

    def __repr__(self) -> str:
        return f"ScaledHierarchy: {self.n_samples} samples, each a diagonal scaling of\n{self.hierarchy!r}"

    def workspace(self, n_samples: int) -> Workspace:
        return self.hierarchy.workspace(n_samples)

    def _run(self, r: Array, out: Array, workspace: Workspace | None) -> tuple[Any, Any]:
        if workspace is None or workspace.n_samples != r.shape[1]:
            workspace = self.workspace(r.shape[1])
        if out is None:
            out = empty_like(r)
        scale, unit = self.scale, self.unit
        xp = array_namespace(scale)
        if scale.shape[1] != r.shape[1]:
            scale = xp.repeat(scale, r.shape[1], axis=1)
            unit = None if unit is None else xp.repeat(unit, r.shape[1])
        if unit is not None:
            unit = xp.astype(unit, r.dtype, copy=False)
        return converted_v_cycle(self.hierarchy.levels, self.hierarchy.coarse, scale, r, out, workspace, unit)

    def apply(self, r: Vectors, out: Vectors | None = None, workspace: Workspace | None = None) -> Array:
        """One scaled V-cycle on bare arrays: `r` of shape (n, n_samples)."""
        return self._run(r, out, workspace)[0]

    def precondition(self, r: Vectors, out: Vectors, workspace: Any) -> Array:
        return self.apply(r, out, workspace)

    def precondition_dot(self, r: Vectors, out: Vectors | None = None, workspace: Workspace | None = None) -> Array:
        """`apply` to `out`, and the inner products of `r` with it, one per sample, in the same pass."""
        return self._run(r, out, workspace)[1]

    def __matmul__(self, r: Array) -> Any:
        return multiply(self, r, "ScaledHierarchy")

    def take_samples(self, samples: Ids) -> ScaledHierarchy:
        """The preconditioner of the samples named; the hierarchy is shared."""
        if self.n_samples == 1:
            return self
        places = asarray_like(np.asarray(samples), self.scale)
        unit = None if self.unit is None else array_namespace(self.unit).take(self.unit, places)
        return ScaledHierarchy(self.hierarchy, take_samples(self.scale, places, None), unit)

    def update(self, A: Any) -> ScaledHierarchy:
        """Fit the scaling to other matrices, in place; returns this. The hierarchy stays as it is.

        Raises
        ------
        ValueError
            If `A` does not have this shape.
        """
        require(tuple(A.shape) == tuple(self.shape), "ScaledHierarchy.update", "A", f"have shape {self.shape}", A.shape)
        self.scale, self.unit = scale_of(A, self.hierarchy)
        return self


def scale_of(A: Any, hierarchy: AggregationHierarchy) -> tuple[Any, Any]:
    """The root of the mean's diagonal over each sample's own, shape (n, n_samples), in the hierarchy's type; the unit.

    For a hierarchy that holds its matrix in units of its own, powers of two are taken out of the root, too: the largest
    entry of each sample is scaled into [1, 2), and what undoes it is part of the unit of that sample.
    """
    own = A.diagonal().samples  # a new array: its memory is used for the result
    xp = array_namespace(own)
    mean = xp.astype(hierarchy.levels[0].A.diagonal().samples, xp.float64)
    unit = hierarchy.precision.unit
    with np.errstate(all="ignore"):  # a NaN stays in its sample
        if unit is not None:
            mean /= unit[0]
        xp.sqrt(xp.divide(mean, own, out=own), out=own)
    if unit is not None:
        one = asarray_like(np.ones(own.shape[1]), own)
        with in_space(hierarchy.space):
            enter, leave = entry_units(own, one, None)
        scale = empty_like(own, dtype=hierarchy.dtype)
        return narrowed(own, enter, scale), unit[0] * leave * leave
    if own.dtype == hierarchy.dtype:
        return own, None
    scale = empty_like(own, dtype=hierarchy.dtype)
    scale[...] = own
    return scale, None


@explains_calls("scaled_aggregation")
def scaled_aggregation(A: Any, mean: Any = None, **options: Any) -> ScaledHierarchy:
    """Build one smoothed-aggregation hierarchy for every sample there will be, from the mean matrix.

    The preconditioner of a sample is ``S V S``, where V is a V-cycle for the mean matrix and
    ``S = sqrt(diag(mean) / diag(A))`` is the sample's own. For a diffusion operator this is a change of variables: with
    ``v = sqrt(kappa) u``, ``-div(kappa grad u) = sqrt(kappa) (-div(grad v) + q v)``, and the potential
    ``q = div(grad(sqrt(kappa))) / sqrt(kappa)`` is small against the operator where kappa is smooth [1]_; plain
    mean-based preconditioning (``S = 1``) has to make up for the whole spread of kappa. A matrix that is the mean times
    a number is preconditioned exactly as the mean is.

    Set-up costs what one sample costs, once for all samples; every level, smoother and coarse solve is shared.

    Parameters
    ----------
    A : AffineMatrix, CrsMatrix, DistributedCrsMatrix or operator with a ``diagonal()``, shape (n, n)
        Symmetric positive definite in each sample.
    mean : CrsMatrix or DistributedCrsMatrix of one sample, shape (n, n), optional
        The matrix to build the hierarchy of; by default ``A.mean``. A stored ensemble must be given one: the mean over
        its samples would make a sample's result depend on the others.
    **options
        Options of `smoothed_aggregation` but `reorder`: levels are in the order of `A`. By default the V-cycle computes
        in float32 where that serves the mean matrix.

    Returns
    -------
    ScaledHierarchy

    Raises
    ------
    ValueError
        If `mean` does not fit.
    TypeError
        If `A` has no mean of its own and none is given.

    References
    ----------
    .. [1] Liouville's transformation: Courant, Hilbert (1953), Methods of Mathematical Physics I, chapter V, 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.gallery import poisson
    >>> from ensemble.linalg import AffineMatrix
    >>> from ensemble.scalar import Ensemble
    >>> mean = poisson((20, 20))
    >>> terms = np.concatenate([mean.values, 0.5 * mean.values], axis=1)
    >>> A = AffineMatrix(mean.graph, terms, Ensemble(np.array([[0.0, 1.0]])))
    >>> scaled_aggregation(A).n_samples
    2
    """
    if mean is None:
        mean = getattr(A, "mean", None)
    if not isinstance(mean, CrsMatrix) and not hasattr(mean, "require_same_places"):
        raise TypeError(
            message(
                "scaled_aggregation",
                "mean",
                "be given for a matrix without a mean of its own",
                f"{mean!r} with {kind_of(A)}",
                "Give a CrsMatrix of one sample, the same for every ensemble.",
            )
        )
    require(
        tuple(mean.local_shape) == tuple(A.local_shape) and mean.n_samples == 1, "scaled_aggregation", "mean",
        f"have shape {tuple(A.shape)} and one sample", f"shape {mean.shape} and {mean.n_samples} samples",
    )  # fmt: skip
    require("reorder" not in options, "scaled_aggregation", "options", "not name reorder", repr(options.get("reorder")),
            "Reorder the matrices: CrsGraph.reordered().")  # fmt: skip
    hierarchy = smoothed_aggregation(mean, reorder=False, **options)
    assert isinstance(hierarchy, AggregationHierarchy)
    return ScaledHierarchy.of(A, hierarchy)
