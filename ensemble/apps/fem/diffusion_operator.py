"""`DiffusionOperator`: the stiffness matrix of many samples, applied from their coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble import _check
from ensemble._backend import array_namespace, asarray_like, contiguous, is_array, library_and_device, to_numpy
from ensemble._kernels.fem.matrix_free import hex_diagonal, hex_product
from ensemble._kernels.krylov.vectors import dot, dot_partials, take_samples
from ensemble._typing import DType, Ids, Vectors
from ensemble.apps.fem.discretization import Discretization
from ensemble.linalg import CrsMatrix
from ensemble.linalg.linear_operator import MatrixOperator
from ensemble.linalg.operators import multiply, premultiply, set_of
from ensemble.scalar import Ensemble

if TYPE_CHECKING:
    import scipy.sparse

__all__ = ["DiffusionOperator", "real_samples", "require_coefficient"]


class DiffusionOperator(MatrixOperator):
    """The matrix of ``-div(kappa grad u)`` on a box mesh, one per sample, with the methods of a `CrsMatrix`.

    The coefficient at the Gauss points is stored: 8 numbers per cell and sample instead of 27 per node. It need not be
    affine in anything. Made by `RandomDiffusion.operator`.

    Attributes
    ----------
    kappa : array, shape (8 * n_cells, n_samples)
        The diffusivity at Gauss point q of cell e in row 8 e + q.
    mean : CrsMatrix, shape (n_nodes, n_nodes)
        The stored matrix of the mean diffusivity, the same for all samples: what to precondition with
        (`scaled_aggregation`).

    Notes
    -----
    On a cell that is a box the gradient along one axis takes 4 values at the 8 Gauss points; sums are factored over the
    axes, as in the spectral element method [1]_. The answer differs from the assembled matrix by rounding.

    References
    ----------
    .. [1] Orszag (1980), J. Comput. Phys. 37, 70-92.
    """

    has_partial_dots = True
    __array_ufunc__ = None

    def __init__(self, discretization: Discretization, kappa: Any) -> None:
        self.discretization = discretization
        self.graph = discretization.graph
        self.sample_set = set_of(kappa)
        self.kappa = kappa.samples if isinstance(kappa, Ensemble) else kappa

    def __repr__(self) -> str:
        return f"DiffusionOperator(shape={self.shape}, n_samples={self.n_samples}, {self.dtype})"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.graph.shape

    @property
    def n_samples(self) -> int:
        """Samples held; 1 means shared by all."""
        return int(self.kappa.shape[1])

    @property
    def dtype(self) -> np.dtype:
        """Type of the coefficient."""
        made: np.dtype = self.kappa.dtype
        return made

    @property
    def reference_array(self) -> Any:
        """An array of the library and the device of this operator."""
        return self.kappa

    @property
    def T(self) -> DiffusionOperator:
        """The transpose: itself."""
        return self

    @property
    def mean(self) -> CrsMatrix:
        """The stored matrix of the mean diffusivity."""
        return CrsMatrix(self.graph, self.discretization.mean_values)

    def sample(self, i: int) -> DiffusionOperator:
        """Sample `i` alone."""
        return self.take_samples([_check.sample_number(i, self.n_samples, "DiffusionOperator")])

    def take_samples(self, samples: Ids) -> DiffusionOperator:
        """The operators of the samples named, in that order; a shared operator is returned as it is."""
        if self.n_samples == 1:
            return self
        places = _check.places_of(samples, self.n_samples, "DiffusionOperator.take_samples")
        chosen = take_samples(self.kappa, asarray_like(places, self.kappa), None)
        return DiffusionOperator(
            self.discretization, Ensemble(chosen, self.sample_set and self.sample_set.take(places))
        )

    def astype(self, dtype: DType) -> DiffusionOperator:
        """The operator of the coefficient in another floating-point type; itself where that is its type."""
        dtype = np.dtype(dtype)
        if dtype.kind != "f":
            raise TypeError(_check.message("DiffusionOperator", "the type of a product", "be real", dtype))
        if dtype == self.dtype:
            return self
        return DiffusionOperator(self.discretization, Ensemble(self.kappa.astype(dtype), self.sample_set))

    def diagonal(self) -> Ensemble:
        """The main diagonal, an Ensemble of shape (n_nodes,); 1 at fixed nodes."""
        tables = self.discretization.matrix_free_tables(self.dtype)
        return Ensemble(hex_diagonal(*tables, self.kappa, None), self.sample_set)

    def to_crs(self) -> CrsMatrix:
        """The assembled matrices."""
        guess = self.discretization.initial_guess(self.n_samples, self.dtype)
        values = self.discretization.jacobian_and_residual(self.kappa, guess)[0]
        return CrsMatrix(self.graph, Ensemble(values, self.sample_set))

    def to_scipy(self, i: int = 0) -> scipy.sparse.csr_array:
        """Sample `i`, assembled, as a ``scipy.sparse.csr_array``; a shared operator serves every sample."""
        return self.sample(i).to_crs().to_scipy()

    # --- products, on bare arrays of shape (n_nodes, n_samples)
    def apply(self, x: Vectors, out: Vectors | None = None) -> Any:
        """A x."""
        *_, fixed, factors, _ = self.discretization.matrix_free_tables(self.dtype)
        kappa = self.kappa
        if kappa.shape[1] != x.shape[1]:
            kappa = array_namespace(kappa).repeat(kappa, x.shape[1], axis=1)
        return hex_product(self.discretization.mesh.cells, factors, fixed, kappa, x, out)

    def apply_dot(self, x: Vectors, out: Vectors | None = None) -> tuple[Any, Any]:
        """A x and the inner product of x with it, one value per sample."""
        y = self.apply(x, out)
        return y, dot(x, y, None)

    def apply_dot_partials(self, x: Vectors, out: Vectors | None = None) -> tuple[Any, Any]:
        """`apply_dot` on a device, its inner products left as partial sums."""
        y = self.apply(x, out)
        return y, dot_partials(x, y)

    def residual(self, x: Vectors, b: Vectors, out: Vectors | None = None) -> Any:
        """b - A x."""
        y = self.apply(x, out)
        return array_namespace(y).subtract(b, y, out=y)

    def __matmul__(self, x: Any) -> Any:
        return multiply(self, x, "DiffusionOperator")

    def __rmatmul__(self, x: Any) -> Any:
        return premultiply(x, self)


def real_samples(value: Any, function: str, argument: str) -> Any:
    """An argument as a bare array of real numbers, the samples last."""
    _check.require_unmasked(value, function, argument)
    samples = (
        value.samples
        if isinstance(value, Ensemble)
        else (value if is_array(value) else _check.array_of(value, function, argument, "be real"))[..., None]
    )
    if getattr(samples.dtype, "kind", "f") not in "fiu":
        raise TypeError(_check.message(function, argument, "be real", samples.dtype))
    return samples


def require_coefficient(kappa: Any, n_cells: int, reference_array: Any, function: str) -> Any:
    """The coefficient as an array of shape (8 * n_cells, n_samples) where `reference_array` lies, or an error."""
    samples = real_samples(kappa, function, "kappa")
    library, wanted = (library_and_device(array)[0].split(".")[-1] for array in (samples, reference_array))
    if library not in ("numpy", wanted):
        raise TypeError(_check.message(function, "kappa", f"hold arrays of numpy or {wanted}", library))
    _check.require(
        samples.shape[:-1] == (8 * n_cells,), function, "kappa", f"have shape ({8 * n_cells},), a value a Gauss point",
        f"shape {samples.shape[:-1]}", "For many samples, pass an Ensemble, its samples in the last axis.",
    )  # fmt: skip
    samples = contiguous(
        asarray_like(samples, reference_array), samples.dtype if samples.dtype == np.float32 else np.float64
    )
    worst = to_numpy(samples.min(axis=0))
    bad = np.flatnonzero(worst <= 0.0)  # NaN passes: it affects its own sample alone
    _check.require(
        bad.size == 0, function, "kappa", "be above zero at every Gauss point",
        f"{worst[bad[0]] if bad.size else 0:.4g} in sample {bad[0] if bad.size else 0}",
    )  # fmt: skip
    return samples
