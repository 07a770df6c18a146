"""The discrete random diffusion problem on plain arrays: mesh, modes, tables, and the two assembly passes."""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._backend import array_namespace, asarray_like, contiguous, prototype, to_numpy
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.fem.assembly import affine_coefficient, diffusion_jacobian_and_residual, diffusion_residual
from ensemble._kernels.sparse.row_sums import SERIAL, Space
from ensemble._typing import Array
from ensemble.apps.fem import elements
from ensemble.apps.fem.mesh import HexMesh
from ensemble.linalg import CrsGraph, CrsMatrix, SymmetricCrsMatrix
from ensemble.uq.fields.unit_cube import KarhunenLoeve

__all__ = ["Discretization"]

BOTTOM, TOP = 1.0, 2.0
"""The prescribed u at z = 0 and z = 1."""


class Discretization:
    """Tables that all samples share, made once; methods take and return arrays with the samples in the last axis.

    Parameters
    ----------
    mesh : HexMesh
    field : KarhunenLoeve
        In three dimensions.
    mean, standard_deviation : float
        Of the diffusivity.
    source, advection : float
        The coefficients c and a of the equation.
    lognormal : bool
        Whether the expansion is that of log(kappa / mean) instead of kappa - mean.
    backend : {"numpy", "cupy"}
        Whose arrays the methods take and return.
    """

    def __init__(
        self,
        mesh: HexMesh,
        field: KarhunenLoeve,
        mean: float,
        standard_deviation: float,
        source: float,
        advection: float,
        lognormal: bool = False,
        backend: str = "numpy",
    ) -> None:
        self.mesh = mesh
        self.reference_array = prototype(backend)
        self.lognormal = lognormal
        self.mean = mean
        self.source = source
        self.has_advection = advection != 0.0
        self.stores_upper = not self.has_advection and isinstance(self.reference_array, np.ndarray)
        """Whether the upper triangle of each matrix may be stored alone."""
        edges = self._cover(field, standard_deviation)
        # The derivative of c u^2 is 2 c u; an empty table means no source.
        reaction = 2.0 * source * elements.MASS if source else np.empty((0, 8, 8))
        self._floats = (edges, elements.SHAPE, elements.STIFFNESS, reaction, advection * elements.ADVECTION)
        self._by_dtype: dict[np.dtype, tuple[Any, ...]] = {}
        self._graphs: dict[bool, tuple[Any, ...]] = {}
        self._matrix_free: dict[np.dtype, tuple[Any, ...]] = {}

    def _cover(self, field: KarhunenLoeve, standard_deviation: float) -> np.ndarray:
        """Make the modes, the graph and the incidences of the rows that are assembled; returns the edges of cells."""
        mesh = self.mesh
        self.modes = product_modes(scaled_axis_modes(mesh, field, standard_deviation))
        self.fixed = mesh.on_face(2, 0) | mesh.on_face(2, -1)
        self.graph = CrsGraph.unchecked(*mesh.coupling_graph(), (mesh.n_nodes, mesh.n_nodes))
        incidence = mesh.row_incidence()
        self.slots = incidence.slots
        self._shared = (incidence.first, incidence.cells, incidence.corners, mesh.connectivity, self.fixed)
        return mesh.edges

    # --- the rows and cells that this process has: all of them
    space: Space = SERIAL
    """That of vectors over the nodes."""

    @property
    def n_rows(self) -> int:
        """Rows that are assembled here."""
        return int(self._shared[0].size) - 1

    @property
    def n_cells(self) -> int:
        """Cells that contribute to those rows."""
        return int(self.modes.shape[0]) // 8

    @property
    def nnz(self) -> int:
        """Stored entries of those rows."""
        return self.graph.nnz

    def keeps_upper(self, n_samples: int) -> bool:
        """Whether a solve of so many samples stores the upper triangle of each matrix alone."""
        return self.stores_upper

    def stored_as(self, symmetric: bool) -> tuple[type, int]:
        """The class of `matrix`, and how many values it stores of each sample."""
        if symmetric:
            return SymmetricCrsMatrix, int(self.graph.upper.starts[-1])
        return CrsMatrix, self.graph.nnz

    def matrix(self, values: Any, symmetric: bool) -> Any:
        """The matrix with these values, an array or an Ensemble."""
        return (SymmetricCrsMatrix if symmetric else CrsMatrix)(self.graph, values)

    def alike(self) -> contextlib.AbstractContextManager[None]:
        """A context in which arguments are checked: over ranks an error of one of them is raised on all."""
        return contextlib.nullcontext()

    def require_same(self, values: np.ndarray, function: str, argument: str) -> None:
        """Raise ValueError on every rank unless all have the same `values`; there are no others here."""

    @cached_property
    def largest_modes(self) -> np.ndarray:
        """The largest magnitude of each scaled mode over all Gauss points, shape (n_terms,)."""
        largest: np.ndarray = np.abs(self.modes).max(axis=0)
        return largest

    @cached_property
    def affine_terms(self) -> tuple[Array, Array]:
        """Jacobian and residual at the initial guess as terms, shapes (nnz, n_terms + 1) and (n_nodes, n_terms + 1).

        Term 0 belongs to the mean diffusivity, term m to mode m: without a source both are affine in y. One assembly,
        the modes in the place of samples. Rows of fixed nodes are the identity's, whatever y.
        """
        mean = np.full((self.modes.shape[0], 1), self.mean)
        kappa = np.concatenate([mean, self.modes], axis=1)
        guess = self.initial_guess(kappa.shape[1], kappa.dtype)
        values, residual = self.jacobian_and_residual(asarray_like(kappa, self.reference_array), guess)
        row = np.repeat(np.arange(self.fixed.size, dtype=self.graph.indices.dtype), np.diff(self.graph.indptr))
        values[asarray_like(np.flatnonzero(self.fixed[row]), self.reference_array), 1:] = 0.0
        return values, residual

    @cached_property
    def mean_values(self) -> Array:
        """The stored matrix of the mean diffusivity, shape (nnz, 1)."""
        if "affine_terms" in self.__dict__:
            return contiguous(self.affine_terms[0][:, :1])  # the same bits: a sample is its own scalar run
        kappa = asarray_like(np.full((self.modes.shape[0], 1), self.mean), self.reference_array)
        return self.jacobian_and_residual(kappa, self.initial_guess(1, kappa.dtype))[0]

    def matrix_free_tables(self, dtype: np.dtype) -> tuple[Any, ...]:
        """The cells around each node, which are fixed, conductances and squared slopes, floats of `dtype`."""
        if dtype not in self._matrix_free:
            h = self.mesh.edges
            # on a box only edge lengths enter: face over length, times the Gauss weight 1/8
            factors = np.ascontiguousarray(h.prod(axis=1, keepdims=True) / h**2 / 8.0, dtype=dtype)
            slopes = 8.0 * np.stack([np.diagonal(table).T for table in elements.STIFFNESS])
            tables = (*self._shared[:3], self.fixed, factors, np.ascontiguousarray(slopes, dtype=dtype))
            self._matrix_free[dtype] = tuple(asarray_like(table, self.reference_array) for table in tables)
        return self._matrix_free[dtype]

    def tables(self, dtype: np.dtype) -> tuple[Any, ...]:
        """The mean, the modes and what the assembly kernels share, with floats of `dtype`."""
        if dtype not in self._by_dtype:
            floats = [
                asarray_like(np.ascontiguousarray(table, dtype=dtype), self.reference_array) for table in self._floats
            ]
            mean, modes = np.full(1, self.mean, dtype=dtype), np.ascontiguousarray(self.modes, dtype=dtype)
            shared = [asarray_like(table, self.reference_array) for table in self._shared]
            self._by_dtype[dtype] = (
                asarray_like(mean, self.reference_array),
                asarray_like(modes, self.reference_array),
                (*shared, *floats),
            )
        return self._by_dtype[dtype]

    def coefficient(self, y: np.ndarray, out: Array = None) -> Array:
        """The diffusivity at all Gauss points, shape (8 * n_cells, n_samples)."""
        mean, modes, _ = self.tables(y.dtype)
        y = asarray_like(y, self.reference_array)
        if not self.lognormal:
            return affine_coefficient(mean, modes, y, out)
        xp, kappa = array_namespace(y), affine_coefficient(mean * 0.0, modes, y, out)
        return xp.multiply(xp.exp(kappa, out=kappa), mean[0], out=kappa)

    def residual(self, kappa: Array, u: Array) -> Array:
        """The residual alone, shape (n_nodes, n_samples)."""
        _, _, shared = self.tables(kappa.dtype)
        return diffusion_residual(*shared, kappa, u, None)

    def jacobian_and_residual(
        self, kappa: Array, u: Array, values: Array = None, symmetric: bool = False
    ) -> tuple[Array, Array]:
        """The Jacobian's values, shape (nnz, n_samples), and the residual.

        With `symmetric` only the values on and above the diagonal, as a `SymmetricCrsMatrix` keeps them.
        """
        _, _, shared = self.tables(kappa.dtype)
        if symmetric not in self._graphs:
            graph = self._upper_graph() if symmetric else (self.graph.indptr, self.graph.indices, self.slots)
            self._graphs[symmetric] = tuple(asarray_like(array, self.reference_array) for array in graph)
        values, residual = diffusion_jacobian_and_residual(*shared, kappa, u, *self._graphs[symmetric], values, None)
        return values, residual

    def _upper_graph(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where rows of stored entries start, their columns, and slots; below zero those that are not stored."""
        return upper_graph(self.graph.indptr, self.graph.indices, self.mesh.row_incidence())

    def initial_guess(self, n_samples: int, dtype: np.dtype) -> Array:
        """The boundary values, and zero inside, shape (n_nodes, n_samples)."""
        u = empty_like(self.reference_array, (self.n_rows, n_samples), dtype)
        u[...] = self.boundary_values
        return u

    @cached_property
    def boundary_values(self) -> Array:
        """The prescribed u, and zero inside, shape (n_nodes, 1)."""
        values = np.zeros((self.mesh.n_nodes, 1))
        values[self.mesh.on_face(2, 0)] = BOTTOM
        values[self.mesh.on_face(2, -1)] = TOP
        return asarray_like(values, self.reference_array)

    def require_positive(self, y: np.ndarray, function: str) -> None:
        """Raise ValueError unless the diffusivity is above zero at every Gauss point of every sample.

        A sample that holds NaN passes: it affects itself alone, and the solver flags it.
        """
        if self.lognormal:
            return
        # No Gauss point lies below this bound; samples whose bound is not positive are evaluated point by point.
        bound = self.mean - self.largest_modes @ np.abs(y)
        for s in np.flatnonzero(bound <= 0.0):
            value, lowest = self._lowest(to_numpy(self.coefficient(np.ascontiguousarray(y[:, s : s + 1])))[:, 0])
            if value <= 0.0:
                x = ", ".join(f"{c:.4g}" for c in self.mesh.gauss_point(lowest // 8, lowest % 8))
                raise ValueError(
                    _check.message(
                        function,
                        "y",
                        "keep the diffusivity above zero at every Gauss point",
                        f"kappa = {value:.4g} in sample {s} at ({x})",
                        "Lower the variance, raise the mean, or draw y from a narrower range.",
                    )
                )

    def _lowest(self, kappa: np.ndarray) -> tuple[float, int]:
        """The lowest of one sample's diffusivities, and the number of its Gauss point in the mesh."""
        lowest = int(np.argmin(kappa))
        return float(kappa[lowest]), lowest


def scaled_axis_modes(mesh: HexMesh, field: KarhunenLoeve, standard_deviation: float) -> tuple[np.ndarray, ...]:
    """The factors of ``sigma sqrt(lambda_m) phi_m`` along x, y and z, shapes (n_x, 2, n_terms) and so on."""
    x, y, z = (
        field.modes_along(axis, points.reshape(-1)).reshape(-1, 2, field.n_terms)
        for axis, points in enumerate(mesh.gauss_axes())
    )
    return x, y, z * (standard_deviation * np.sqrt(field.eigenvalues))


def product_modes(factors: tuple[np.ndarray, ...]) -> np.ndarray:
    """The modes at Gauss point q of cell e in row 8 e + q, shape (8 * n_cells, n_terms)."""
    x, y, z = factors
    product: np.ndarray = z[:, None, None, :, None, None] * y[:, None, None, :, None] * x[:, None, None, :]
    return product.reshape(-1, x.shape[-1])


def upper_graph(indptr: np.ndarray, indices: np.ndarray, incidence: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The upper triangle of a mesh's graph: where its rows start, columns, and slots; below zero those left of it."""
    above = indices >= np.repeat(np.arange(indptr.size - 1, dtype=indices.dtype), np.diff(indptr))
    number = np.concatenate([np.zeros(1, np.int64), np.cumsum(above)]).astype(indptr.dtype)
    diagonal = np.take_along_axis(incidence.slots, incidence.corners[:, None].astype(np.int64), axis=1)
    return number[indptr], indices[above], incidence.slots - diagonal
