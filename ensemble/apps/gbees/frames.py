"""Cells of one grid as cells of another: projection on fewer axes, shifts, and exact transfer between grids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ensemble import _check
from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._typing import Array
from ensemble.apps.gbees.analysis.distribution import positions
from ensemble.apps.gbees.cells import Cells

__all__ = ["collected", "project", "shift_between", "transferred"]

NEARLY_WHOLE = 1e-9
"""Fraction of a cell: grids whose origins differ by a whole number of cells up to this have the same cells."""


def spans(*indices: Array) -> tuple[list[int], list[int]]:
    """The lowest index and the number of indices along each axis, over all of several sets of cells."""
    n = indices[0].shape[1]
    full = [s for s in indices if s.shape[0] > 0]
    if not full:
        return [0] * n, [1] * n
    ends = []
    for i in range(n):
        columns = [(array_namespace(s), s[:, i]) for s in full]
        low = min(int(xp.min(column)) for xp, column in columns)
        ends.append((low, max(int(xp.max(column)) for xp, column in columns) - low + 1))
    return [low for low, _ in ends], [count for _, count in ends]


def keys_of(indices: Array, lowest: list[int], counts: list[int]) -> Array:
    """One int64 a cell, in lexicographic order of the multi-indices."""
    size = 1
    for count in counts:
        size *= count
    _check.require(
        size < 2**63,
        "cells",
        "the box around all cells",
        "have fewer than 2**63 cells",
        " x ".join(str(count) for count in counts),
        "Leave out cells of small probability, or project on fewer axes.",
    )
    xp = array_namespace(indices)
    key = xp.zeros(indices.shape[0], dtype=xp.int64)
    for i, (low, count) in enumerate(zip(lowest, counts)):
        key = key * count + (xp.astype(indices[:, i], xp.int64) - low)
    return key


def indices_of(keys: Array, lowest: list[int], counts: list[int]) -> Array:
    """Decode the keys of `keys_of` to indices of cells, shape (N, n)."""
    xp = array_namespace(keys)
    columns = []
    for low, count in zip(reversed(lowest), reversed(counts)):
        columns.append(keys % count + low)
        keys = keys // count
    return xp.stack(columns[::-1], axis=1)


def collected(indices: Array, probabilities: Array) -> tuple[Array, Array]:
    """Each multi-index once, in lexicographic order, with the sum of the probabilities given for it (float64).

    On CUDA devices the order of additions, and with it the last bit, may differ from run to run.
    """
    xp = array_namespace(indices)
    lowest, counts = spans(indices)
    unique, inverse = xp.unique_inverse(keys_of(indices, lowest, counts))
    p = xp.astype(probabilities, xp.float64)
    if hasattr(xp, "bincount"):
        sums = xp.bincount(xp.reshape(inverse, (-1,)), weights=p, minlength=unique.shape[0])
    else:  # the standard has no scatter
        sums = np.bincount(to_numpy(inverse).ravel(), weights=to_numpy(p), minlength=unique.shape[0])
        sums = asarray_like(sums, p)
    return indices_of(unique, lowest, counts), sums


def project(cells: Cells, axes: Sequence[int]) -> Cells:
    """Return the marginal distribution over some of the grid's axes, still sparse.

    Parameters
    ----------
    cells : Cells
    axes : sequence of int
        Axes to keep, in the order required. In a rotated grid they are the grid's axes, not those of space.

    Returns
    -------
    Cells
        Unrotated; for a rotated grid in the grid's own coordinates, in which the origin is expressed, too.

    Raises
    ------
    ValueError
        If `axes` are empty, repeated or out of range.
    """
    chosen = checked_axes(axes, len(cells.widths), "project")
    xp = array_namespace(cells.indices)
    columns = xp.stack([cells.indices[:, i] for i in chosen], axis=1)
    indices, p = collected(columns, cells.probabilities)
    origin = np.asarray(cells.origin, dtype=np.float64)
    if cells.rotation is not None:
        origin = np.asarray(cells.rotation).T @ origin
    periods = tuple(cells.periods[i] for i in chosen) if cells.periods else ()
    return Cells(indices, p, origin[chosen], np.asarray(cells.widths)[chosen], None, cells.time, periods)


def checked_axes(axes: Sequence[int], n: int, function: str) -> list[int]:
    """`axes` as a list of distinct ints in range."""
    if not isinstance(axes, Sequence | np.ndarray):
        raise TypeError(_check.message(function, "axes", "be a sequence of integers", _check.kind_of(axes)))
    chosen = [_check.integer(axis, function, "axes", minimum=0) for axis in axes]
    good = 0 < len(chosen) == len(set(chosen)) and max(chosen) < n
    _check.require(good, function, "axes", f"be different numbers from 0 to {n - 1}", list(axes))
    return chosen


def shift_between(a: Cells, b: Cells) -> np.ndarray | None:
    """By how many cells the indices of `b` must be moved to be indices of `a`; None where their cells differ."""
    if a.indices.shape[1] != b.indices.shape[1] or not np.array_equal(a.widths, b.widths):
        return None
    turned = a.rotation is not None or b.rotation is not None
    if turned and (a.rotation is None or b.rotation is None or not np.array_equal(a.rotation, b.rotation)):
        return None
    shift = np.asarray(b.origin, dtype=np.float64) - np.asarray(a.origin, dtype=np.float64)
    cells = (shift if not turned else np.asarray(a.rotation).T @ shift) / np.asarray(a.widths)
    whole = np.rint(cells)
    return whole.astype(np.int64) if np.all(np.abs(cells - whole) <= NEARLY_WHOLE) else None


def transferred(cells: Cells, widths: Array, *, origin: Array = None, rotation: Array = None, points: int = 4) -> Cells:
    """Return the distribution on another grid, each cell's probability spread evenly over its volume.

    Between unrotated grids every cell is shared out by the exact volumes of its overlaps. With a rotation on either
    side it is shared out by ``points**n`` points in each cell, to the cells that hold them.

    Parameters
    ----------
    cells : Cells
    widths : float or array, shape (n,)
        Widths of the new cells.
    origin : array, shape (n,), optional
        A cell centre of the new grid; by default the old one's origin.
    rotation : array, shape (n, n), optional
        Columns are the new grid's axes in space; by default unrotated.
    points : int
        Points along each edge of a cell, where a rotation is involved.

    Returns
    -------
    Cells
        The probabilities' sum is the same, to rounding.

    Raises
    ------
    ValueError
        If `widths` are not finite numbers above zero.
    """
    n = len(cells.widths)
    new = np.broadcast_to(np.asarray(widths, dtype=np.float64), (n,)).copy()
    good = bool(np.all(np.isfinite(new)) and np.all(new > 0.0))
    _check.require(good, "transferred", "widths", "be finite numbers above zero", new.tolist())
    centre = np.asarray(cells.origin if origin is None else origin, dtype=np.float64)
    if cells.rotation is None and rotation is None:
        indices, p = overlaps(cells, new, centre)
    else:
        indices, p = scattered(cells, new, centre, rotation, _check.integer(points, "transferred", "points", minimum=1))
    indices, p = collected(indices, p)
    return Cells(indices, p, centre, new, None if rotation is None else np.asarray(rotation), cells.time)


def overlaps(cells: Cells, widths: np.ndarray, origin: np.ndarray) -> tuple[Array, Array]:
    """Indices and shares of probability, cell by cell of the new grid that an old one may reach into."""
    xp = array_namespace(cells.indices)
    firsts, shares = [], []
    for i in range(len(widths)):
        # Everything in units of new cells, whose edges are then at half-integers plus 1/2: at integers.
        ratio = float(cells.widths[i]) / float(widths[i])
        offset = (float(cells.origin[i]) - float(origin[i])) / float(widths[i]) + 0.5
        low = (xp.astype(cells.indices[:, i], xp.float64) - 0.5) * ratio + offset
        first = xp.floor(low)
        inside = low - first
        reach = int(np.ceil(ratio)) + 1
        parts = []
        for k in range(reach):
            covered = xp.clip(inside + ratio, float(k), float(k + 1)) - xp.clip(inside, float(k), float(k + 1))
            parts.append(covered / ratio)
        firsts.append(xp.astype(first, xp.int64))
        shares.append(parts)
    pieces, amounts = [], []
    p = xp.astype(cells.probabilities, xp.float64)
    for step in itertools.product(*(range(len(parts)) for parts in shares)):
        amount = p
        for i, k in enumerate(step):
            amount = amount * shares[i][k]
        reached = xp.nonzero(amount > 0.0)[0]
        piece = xp.stack([first + k for first, k in zip(firsts, step)], axis=1)
        pieces.append(xp.take(piece, reached, axis=0))
        amounts.append(xp.take(amount, reached))
    return xp.concat(pieces, axis=0), xp.concat(amounts)


def scattered(
    cells: Cells, widths: np.ndarray, origin: np.ndarray, rotation: Array, points: int
) -> tuple[Array, Array]:
    """Indices and shares of probability, point by point of the pattern inside an old cell."""
    xp = array_namespace(cells.indices)
    places = (np.arange(points) + 0.5) / points - 0.5
    share = xp.astype(cells.probabilities, xp.float64) / float(points ** len(widths))
    pieces = []
    for inside in itertools.product(places, repeat=len(widths)):
        s = xp.astype(cells.indices, xp.float64) + asarray_like(np.array(inside), cells.indices)
        x = positions(replace(cells, indices=s))
        pieces.append(cell_of(x, widths, origin, rotation))
    return xp.concat(pieces, axis=0), xp.concat([share] * len(pieces))


def cell_of(x: Array, widths: np.ndarray, origin: np.ndarray, rotation: Array) -> Array:
    """Multi-indices (N, n) of the cells that hold the points `x` (N, n)."""
    xp = array_namespace(x)
    z = x - asarray_like(np.asarray(origin, dtype=np.float64), x)
    if rotation is not None:
        z = z @ asarray_like(np.ascontiguousarray(rotation, dtype=np.float64), x)
    return xp.astype(xp.floor(z / asarray_like(np.asarray(widths, dtype=np.float64), x) + 0.5), xp.int64)
