"""Geometry of many tetrahedra at once, and the words of messages about them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ensemble import _check

__all__ = ["Condition", "doubles", "named", "places_where", "squared_lengths", "tet_volumes", "triple_products"]

Condition = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""A function of coordinates x, y, z, arrays in m, that gives bools."""


def tet_volumes(points: np.ndarray, tets: np.ndarray) -> np.ndarray:
    """Signed volumes of tetrahedra."""
    x0, x1, x2, x3 = (points[tets[:, i]] for i in range(4))
    volumes: np.ndarray = triple_products(x1 - x0, x2 - x0, x3 - x0) / 6.0
    return volumes


def triple_products(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a . (b x c), row by row."""
    (ax, ay, az), (bx, by, bz), (cx, cy, cz) = a.T, b.T, c.T
    product: np.ndarray = ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx)
    return product


def places_where(condition: Condition, points: np.ndarray, function: str, each: str) -> np.ndarray:
    """The numbers of the points for which `condition` holds."""
    if not callable(condition):
        raise TypeError(_check.message(function, "condition", "be a function (x, y, z)", _check.kind_of(condition)))
    found = _check.array_of(condition(*points.T), function, "condition", f"give {len(points)} bools, {each}")
    good = found.dtype == bool and found.shape == (len(points),)
    _check.require(good, function, "condition", f"give {len(points)} bools, {each}", f"{found.dtype} {found.shape}")
    return np.flatnonzero(found)


def squared_lengths(vectors: np.ndarray) -> np.ndarray:
    """The squared length of each row."""
    squares: np.ndarray = np.einsum("ed,ed->e", vectors, vectors)
    return squares


def doubles(ordered: np.ndarray) -> np.ndarray:
    """The rows of `ordered` that equal an earlier one, ascending; equal rows have equal sums of products."""
    factors = np.array(
        [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], dtype=np.uint64
    )
    keys = (ordered.astype(np.uint64) * factors).sum(axis=1)
    sorted_keys = np.sort(keys)
    again = sorted_keys[1:][sorted_keys[1:] == sorted_keys[:-1]]
    if not again.size:
        return np.zeros(0, dtype=np.int64)
    suspects = np.flatnonzero(np.isin(keys, again))
    order = suspects[np.lexsort(ordered[suspects].T[::-1])]
    same = (ordered[order[1:]] == ordered[order[:-1]]).all(axis=1)
    return np.sort(order[1:][same])


def named(what: str, indices: np.ndarray) -> str:
    """ "3 elements (0, 4, 9)", at most six of them."""
    plural = "" if indices.size == 1 else "s"
    more = ", ..." if indices.size > 6 else ""
    return f"{indices.size} {what}{plural} ({', '.join(map(str, indices[:6]))}{more})"
