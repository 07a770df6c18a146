"""Graded boxes of hexahedra, and the incidence tables of an assembly row by row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ensemble import _check
from ensemble._keywords import explains_construction
from ensemble.apps.fem.elements import GAUSS

__all__ = ["HexMesh", "RowIncidence", "cell_counts", "read_only"]

STEEPEST = 3.0 * np.sqrt(3.0)
"""From this grading on, g + b g^2 (1-g)^2 is no longer increasing."""


class RowIncidence(NamedTuple):
    """For each node, the cells around it and where their contributions go in the node's matrix row.

    Incidence p, with ``first[i] <= p < first[i + 1]``, says: node i is corner ``corners[p]`` of cell ``cells[p]``, and
    the entry that couples it to corner b of that cell is the ``slots[p, b]``-th of the row. One thread can then build a
    whole row by itself: no atomics, no colouring, and one order of summation.
    """

    first: np.ndarray
    cells: np.ndarray
    corners: np.ndarray
    slots: np.ndarray


def cell_counts(cells: int | tuple[int, int, int], function: str) -> list[int]:
    """The cells along x, y and z, where one count may stand for the three."""
    counts = _check.array_of(cells, function, "cells", "be one count or three")
    along = (cells,) * 3 if counts.ndim == 0 else tuple(cells)  # type: ignore[arg-type]
    _check.require(len(along) == 3, function, "cells", "be one count or three", f"{len(along)} counts")
    return [_check.integer(n, function, "cells", minimum=1) for n in along]


def read_only(*arrays: np.ndarray) -> np.ndarray:
    """The first of the arrays; none can be changed from now on."""
    for array in arrays:
        array.flags.writeable = False
    return arrays[0]


@explains_construction("HexMesh")
@dataclass(frozen=True, eq=False)
class HexMesh:
    """Trilinear hexahedra on the tensor product of three lists of coordinates.

    Node (i, j, k) has number ``i + (n_x + 1) (j + (n_y + 1) k)``; cells count alike: x runs fastest.

    Attributes
    ----------
    axes : tuple of three ndarrays, shapes (n_x + 1,), (n_y + 1,), (n_z + 1,)
        Increasing coordinates along x, y and z.

    Examples
    --------
    >>> mesh = HexMesh.box((2, 2, 1))
    >>> mesh.n_nodes, mesh.n_cells, mesh.points.shape
    (18, 4, (18, 3))
    """

    axes: tuple[np.ndarray, np.ndarray, np.ndarray]

    @classmethod
    def box(cls, cells: int | tuple[int, int, int], *, grading: float = 0.0) -> HexMesh:
        """Mesh the unit cube, its nodes at ``g + b g^2 (1 - g)^2`` for evenly spaced g.

        Parameters
        ----------
        cells : int or three ints, each at least 1
            Cells along x, y and z.
        grading : float, dimensionless
            The b of the formula, the same in every direction; 0 spaces the nodes evenly.

        Returns
        -------
        HexMesh

        Raises
        ------
        ValueError
            If a count is below 1, or `grading` would make nodes cross (``abs(grading) >= 3 sqrt(3)``).

        References
        ----------
        The map is that of the hexahedral benchmark of Phipps et al. (2017), SIAM J. Sci. Comput. 39, section 4.

        Examples
        --------
        >>> HexMesh.box(2).n_nodes
        27
        """
        counts = cell_counts(cells, "HexMesh.box")
        b = _check.finite(grading, "HexMesh.box", "grading")
        _check.require(
            abs(b) < STEEPEST,
            "HexMesh.box",
            "grading",
            "lie between -5.196 and 5.196 (3 sqrt(3)), so that nodes keep their order",
            b,
        )
        x, y, z = (graded(n, b) for n in counts)
        return cls((x, y, z))

    @property
    def cells(self) -> tuple[int, int, int]:
        """Cells along x, y and z."""
        x, y, z = self.axes
        return x.size - 1, y.size - 1, z.size - 1

    @property
    def n_nodes(self) -> int:
        """The number of nodes."""
        return int(np.prod([axis.size for axis in self.axes]))

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return int(np.prod(self.cells))

    @cached_property
    def points(self) -> np.ndarray:
        """Coordinates of the nodes, shape (n_nodes, 3)."""
        z, y, x = np.meshgrid(*self.axes[::-1], indexing="ij")
        return np.stack([x, y, z], axis=-1).reshape(-1, 3)

    @cached_property
    def connectivity(self) -> np.ndarray:
        """The nodes of each cell, shape (n_cells, 8); corner b lies at the cell's far x end if bit 0 of b is set."""
        number = self._node_grid()
        corners = [_shifted(number, i, j, k) for k in (0, 1) for j in (0, 1) for i in (0, 1)]
        return np.stack(corners, axis=-1).reshape(-1, 8)

    @cached_property
    def edges(self) -> np.ndarray:
        """Edge lengths h_x, h_y, h_z of each cell, shape (n_cells, 3)."""
        z, y, x = np.meshgrid(*(np.diff(axis) for axis in self.axes[::-1]), indexing="ij")
        return np.stack([x, y, z], axis=-1).reshape(-1, 3)

    def gauss_axes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Coordinates of the Gauss points along x, y and z, shapes (n_x, 2), (n_y, 2), (n_z, 2)."""
        x, y, z = (axis[:-1, None] + np.diff(axis)[:, None] * GAUSS for axis in self.axes)
        return x, y, z

    def gauss_point(self, cell: int, q: int) -> tuple[float, float, float]:
        """Where Gauss point `q` of `cell` lies."""
        nx, ny, _ = self.cells
        place = (cell % nx, cell // nx % ny, cell // (nx * ny))
        x, y, z = (float(axis[place[d], q >> d & 1]) for d, axis in enumerate(self.gauss_axes()))
        return x, y, z

    def on_face(self, axis: int, end: int) -> np.ndarray:
        """Which nodes lie on a face of the box: `axis` 0, 1, 2 for x, y, z; `end` 0 or -1. Shape (n_nodes,), bool."""
        mask = np.zeros([a.size for a in self.axes[::-1]], dtype=bool)
        np.moveaxis(mask, 2 - axis, 0)[end] = True
        return mask.reshape(-1)

    def coupling_graph(self) -> tuple[np.ndarray, np.ndarray]:
        """The graph of nodes that share a cell, each row sorted: `indptr` and `indices`, int32."""
        exists = self._neighbours()
        nx, ny, _ = (axis.size for axis in self.axes)
        offset = np.array([i + nx * (j + ny * k) for k in (-1, 0, 1) for j in (-1, 0, 1) for i in (-1, 0, 1)])
        columns = np.arange(self.n_nodes, dtype=np.int32)[:, None] + offset.astype(np.int32)
        indptr = np.zeros(self.n_nodes + 1, dtype=np.int32)
        np.cumsum(exists.sum(axis=1), out=indptr[1:])
        return indptr, columns[exists]

    def row_incidence(self) -> RowIncidence:
        """The cells around each node, in ascending order, and their places in the rows of `coupling_graph`."""
        sizes = [axis.size for axis in self.axes]
        slot = np.cumsum(self._neighbours(), axis=1, dtype=np.int8) - np.int8(1)
        # The cell on side (i, j, k), each -1 (before the node) or 0 (after), sees the node as its corner (-i, -j, -k).
        sides = [(i, j, k) for k in (-1, 0) for j in (-1, 0) for i in (-1, 0)]
        corner = np.array([-i - 2 * j - 4 * k for i, j, k in sides], dtype=np.int8)
        exists = _product([_inside(n - 1, (-1, 0), n) for n in sizes])
        nx, ny, _ = self.cells
        cell_of_node = self._place(np.array([1, nx, nx * ny]))
        shift = np.array([i + nx * (j + ny * k) for i, j, k in sides], dtype=np.int32)
        neighbour = np.array([[_offset_code(b, int(a)) for b in range(8)] for a in corner])
        first = np.zeros(self.n_nodes + 1, dtype=np.int32)
        np.cumsum(exists.sum(axis=1), out=first[1:])
        return RowIncidence(
            first,
            (cell_of_node[:, None] + shift)[exists],
            np.broadcast_to(corner, exists.shape)[exists],
            slot[:, neighbour][exists],
        )

    def _neighbours(self) -> np.ndarray:
        """Which of the 27 neighbours of each node exist, shape (n_nodes, 27)."""
        return _product([_inside(axis.size, (-1, 0, 1), axis.size) for axis in self.axes])

    def _node_grid(self) -> np.ndarray:
        """Node numbers, shape (n_z + 1, n_y + 1, n_x + 1)."""
        return np.arange(self.n_nodes, dtype=np.int32).reshape([axis.size for axis in self.axes[::-1]])

    def _place(self, stride: np.ndarray) -> np.ndarray:
        """``i * stride[0] + j * stride[1] + k * stride[2]`` for each node, int32."""
        k, j, i = np.meshgrid(*(np.arange(axis.size) for axis in self.axes[::-1]), indexing="ij", sparse=True)
        place: np.ndarray = i * stride[0] + j * stride[1] + k * stride[2]
        return place.astype(np.int32).reshape(-1)


def graded(n: int, b: float) -> np.ndarray:
    """The n + 1 coordinates g + b g^2 (1-g)^2 of [0, 1]."""
    g = np.arange(n + 1) / n
    return g + b * g**2 * (1.0 - g) ** 2


def _shifted(number: np.ndarray, i: int, j: int, k: int) -> np.ndarray:
    """The corner (i, j, k) of every cell."""
    nz, ny, nx = (n - 1 for n in number.shape)
    return number[k : k + nz, j : j + ny, i : i + nx]


def _inside(count: int, offsets: tuple[int, ...], n_nodes: int) -> np.ndarray:
    """Whether index i + offset is one of `count`, shape (n_nodes, offsets)."""
    index: np.ndarray = np.arange(n_nodes)[:, None] + np.array(offsets)
    inside: np.ndarray = (index >= 0) & (index < count)
    return inside


def _product(inside: list[np.ndarray]) -> np.ndarray:
    """Combine one table (node, offset) per axis into one for all nodes and offsets, x fastest in both."""
    x, y, z = inside
    both: np.ndarray = z[:, None, None, :, None, None] & y[:, None, None, :, None] & x[:, None, None, :]
    return both.reshape(x.shape[0] * y.shape[0] * z.shape[0], -1)


def _offset_code(b: int, a: int) -> int:
    """The number, 0 to 26, of the neighbour that is corner `b` of a cell seen from its corner `a`."""
    return sum(((b >> d & 1) - (a >> d & 1) + 1) * 3**d for d in range(3))
