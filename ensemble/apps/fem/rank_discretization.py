"""The discrete random diffusion problem over ranks: each assembles the rows of its nodes, without messages."""

from __future__ import annotations

import contextlib
import hashlib
from functools import cached_property
from typing import Any

import numpy as np

from ensemble._typing import Array
from ensemble.apps.fem.box_part import BoxPart, box_part
from ensemble.apps.fem.discretization import BOTTOM, TOP, Discretization, scaled_axis_modes
from ensemble.apps.fem.mesh import HexMesh
from ensemble.distributed import DistributedCrsMatrix, Partition
from ensemble.distributed.agreement import agreement, require_same
from ensemble.distributed.matrix import DistributedSymmetricCrsMatrix
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.scalar import Ensemble
from ensemble.uq.fields.unit_cube import KarhunenLoeve

__all__ = ["RankDiscretization"]

UPPER_SAMPLES = 4
"""Samples from which on a solve stores the upper triangle: below, products take longer with it. Bits are the same.

Measured again by `benchmarks distributed`.
"""


class RankDiscretization(Discretization):
    """A `Discretization` whose vectors have the nodes of one rank, in domain order.

    An entry adds its cells in the order of the mesh, as on one process, so that it has the same bits. The cells around
    a rank's nodes are evaluated on that rank, also where another rank evaluates them, too. The residual reads u at the
    nodes of those cells: one exchange.

    Parameters
    ----------
    partition : Partition
        Of the nodes of the mesh.
    mesh, *others
        Those of `Discretization`.
    """

    def __init__(self, partition: Partition, mesh: HexMesh, *others: Any) -> None:
        self.partition, self.comm = partition, partition.comm
        super().__init__(mesh, *others)
        self.space = partition.layout.space

    def _cover(self, field: KarhunenLoeve, standard_deviation: float) -> np.ndarray:
        mesh, partition = self.mesh, self.partition
        part = box_part(mesh, partition)
        # those of rank 0: the processors of others may round a sine differently
        factors = self.comm.bcast(scaled_axis_modes(mesh, field, standard_deviation) if self.comm.rank == 0 else None)
        self.modes = modes_of(factors, part)
        # the largest product is that of the largest factors: rounding keeps order
        largest = [np.abs(factor).max(axis=(0, 1)) for factor in factors]
        self.largest_modes = largest[2] * largest[1] * largest[0]
        graph = CrsGraph.unchecked(
            part.indptr, partition.caller_of(part.numbers).astype(np.int32), (partition.n_local, partition.n)
        )
        self.template = DistributedCrsMatrix(partition, CrsMatrix(graph, np.zeros((part.numbers.size, 1))))
        self.graph = CrsGraph.unchecked(
            part.indptr, self.template.indices, (partition.n_local, partition.n_local + self.template.halo.n_ghosts)
        )
        height = np.concatenate([partition.rows, partition.caller_of(self.template.halo.ghosts)])
        height //= mesh.axes[0].size * mesh.axes[1].size
        self.fixed = (height == 0) | (height == mesh.axes[2].size - 1)
        own = height[: partition.n_local, None]
        self.boundary_values = np.where(own == 0, BOTTOM, np.where(own == mesh.axes[2].size - 1, TOP, 0.0))
        self.slots, self._numbers = part.slots, part.cells
        corners = self.template.halo.numbers(part.corners).astype(np.int32)
        self._shared = (part.first, part.around, part.corner, corners, self.fixed)
        widths = [np.diff(axis)[place] for axis, place in zip(mesh.axes, part.places, strict=True)]
        return np.stack(widths, axis=1)

    def keeps_upper(self, n_samples: int) -> bool:
        """Whether a solve of so many samples stores the upper triangle of each domain alone."""
        return self.stores_upper and n_samples >= UPPER_SAMPLES

    @cached_property
    def upper_template(self) -> DistributedSymmetricCrsMatrix:
        """A matrix over ranks, to be given other values, that stores the upper triangle of each domain."""
        return DistributedSymmetricCrsMatrix.unchecked(self.template)

    def stored_as(self, symmetric: bool) -> tuple[type, int]:
        """The class of `matrix`, and how many values it stores of each sample on this rank."""
        template = self.upper_template if symmetric else self.template
        return type(template), int(template.values.shape[0])

    def matrix(self, values: Any, symmetric: bool) -> DistributedCrsMatrix:
        """The matrix over ranks with these values, an array or an Ensemble."""
        batched = isinstance(values, Ensemble)
        samples = values.samples if batched else values
        template = self.upper_template if symmetric else self.template
        made = template.with_values(samples, values.sample_set if batched else None)
        made.batched = batched
        return made

    def alike(self) -> contextlib.AbstractContextManager[None]:
        """A context whose error on one rank is raised on all."""
        return agreement(self.comm)

    def require_same(self, values: np.ndarray, function: str, argument: str) -> None:
        """Raise ValueError on every rank unless all have the same `values`, to the bit."""
        digest = hashlib.blake2b(values.tobytes(), digest_size=8).hexdigest()
        head = f"{values.dtype} of shape {values.shape[:-1]} with {values.shape[-1]} samples"
        require_same(self.comm.allgather(f"{head}, digest {digest}"), function, argument)

    def residual(self, kappa: Array, u: Array) -> Array:
        """The residual on this rank's rows; u comes with those rows, too."""
        return super().residual(kappa, self.template.whole(u))

    def jacobian_and_residual(
        self, kappa: Array, u: Array, values: Array = None, symmetric: bool = False
    ) -> tuple[Array, Array]:
        """The values of this rank's rows of the Jacobian, and the residual."""
        return super().jacobian_and_residual(kappa, self.template.whole(u), values, symmetric)

    def _upper_graph(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where rows of stored entries start, their columns, and slots; below zero those that are not stored."""
        triangles, indptr = self.upper_template.triangles, self.graph.indptr
        starts, columns = triangles.places[0], triangles.places[3]
        row = np.repeat(np.arange(self.n_rows), np.diff(self._shared[0]))[:, None]
        entry = indptr[row] + self.slots
        slots = np.where(triangles.stored[entry], triangles.entries[entry] - starts[row], -1)
        return starts, columns, slots.astype(self.slots.dtype)

    def _lowest(self, kappa: np.ndarray) -> tuple[float, int]:
        lowest = int(np.argmin(kappa)) if kappa.size else 0
        own = (float(kappa[lowest]), int(self._numbers[lowest // 8]) * 8 + lowest % 8) if kappa.size else (np.inf, -1)
        found = self.comm.allgather(own)
        nan = [place for place in found if np.isnan(place[0])]
        value, place = nan[0] if nan else min(found)
        return float(value), int(place)


def modes_of(factors: tuple[np.ndarray, ...], part: BoxPart) -> np.ndarray:
    """The modes at Gauss point q of cell e of a part in row 8 e + q, shape (8 * n_cells, n_terms)."""
    x, y, z = (factor[place] for factor, place in zip(factors, part.places, strict=True))
    product: np.ndarray = z[:, :, None, None] * y[:, None, :, None] * x[:, None, None, :]
    return product.reshape(-1, x.shape[-1])
