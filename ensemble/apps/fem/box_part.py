"""The part of a graded box that one rank assembles: its nodes, and one layer of cells around them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble.apps.fem.mesh import HexMesh

__all__ = ["BoxPart", "box_part"]

SIDES = np.array([(i, j, k) for k in (-1, 0) for j in (-1, 0) for i in (-1, 0)])
"""Where the cells around a node lie, before it (-1) or after it (0), in ascending order of cells."""

CORNERS = np.array([(i, j, k) for k in (0, 1) for j in (0, 1) for i in (0, 1)])

NEIGHBOURS = np.array([(i, j, k) for k in (-1, 0, 1) for j in (-1, 0, 1) for i in (-1, 0, 1)])


class BoxPart(NamedTuple):
    """Tables of the rows of one rank.

    Attributes
    ----------
    cells : array of int64, shape (n_cells,), ascending
        Numbers in the mesh of the cells that touch a node of this rank.
    places : tuple of three arrays of int64, shape (n_cells,)
        Their places along x, y and z.
    corners : array of int64, shape (n_cells, 8)
        The nodes of each cell, by their numbers in domain order.
    indptr, numbers : arrays
        The graph of the rows; columns in domain order, ascending.
    first, around, corner, slots : arrays
        As `RowIncidence`, with places in `cells`.
    """

    cells: np.ndarray
    places: tuple[np.ndarray, np.ndarray, np.ndarray]
    corners: np.ndarray
    indptr: np.ndarray
    numbers: np.ndarray
    first: np.ndarray
    around: np.ndarray
    corner: np.ndarray
    slots: np.ndarray


def box_part(mesh: HexMesh, partition: Any) -> BoxPart:
    """The tables of this rank's rows of `partition`, worked out of their numbers alone: no table of the whole mesh."""
    nodes, counts = np.array([axis.size for axis in mesh.axes]), np.array(mesh.cells)
    own = _along(partition.rows, nodes)
    # cells around each node
    at = own[:, None, :] + SIDES
    exists = ((at >= 0) & (at < counts)).all(axis=2)
    cells, around = np.unique(_number(at, counts)[exists], return_inverse=True)
    first = np.concatenate([[0], np.cumsum(exists.sum(axis=1))])
    corner = np.broadcast_to(-SIDES @ np.array([1, 2, 4]), exists.shape)[exists]
    places = _along(cells, counts)
    corners = partition.number_of(_number(places[:, None, :] + CORNERS, nodes))
    # neighbours of each node, ascending in domain order
    at = own[:, None, :] + NEIGHBOURS
    coupled = ((at >= 0) & (at < nodes)).all(axis=2)
    numbers = np.full(coupled.shape, partition.n, np.int64)
    numbers[coupled] = partition.number_of(_number(at, nodes)[coupled])
    order = np.argsort(numbers, axis=1)
    slot = np.empty(order.shape, np.int8)
    np.put_along_axis(slot, order, np.arange(27, dtype=np.int8)[None, :], axis=1)
    ordered = np.take_along_axis(numbers, order, axis=1)
    indptr = np.concatenate([[0], np.cumsum(coupled.sum(axis=1))])
    seen = (SIDES[:, None, :] + CORNERS + 1) @ np.array([1, 3, 9])  # corner b of the cell at a side, as a neighbour
    return BoxPart(
        cells, tuple(np.ascontiguousarray(places.T)), corners, indptr.astype(_index(indptr)),
        ordered[ordered < partition.n], first.astype(_index(first)), around.reshape(-1).astype(np.int32),
        corner.astype(np.int8), slot[:, seen][exists],
    )  # fmt: skip


def _along(numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Places along x, y and z, shape (n, 3), of what is numbered with x fastest."""
    nx, ny, _ = counts
    return np.stack([numbers % nx, numbers // nx % ny, numbers // (nx * ny)], axis=1)


def _number(places: np.ndarray, counts: np.ndarray) -> np.ndarray:
    nx, ny, _ = counts
    found: np.ndarray = places @ np.array([1, nx, nx * ny])
    return found


def _index(bounds: np.ndarray) -> Any:
    return np.int32 if bounds[-1] < 2**31 else np.int64
