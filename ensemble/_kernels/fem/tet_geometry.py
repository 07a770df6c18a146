"""What kernels on linear tetrahedra share: gathers at corners, vectors of lanes, tiles and launches."""

from __future__ import annotations

import math

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda, device
from ensemble._compile.lanes.arithmetic import as_int64, gather
from ensemble._compile.lanes.types import load
from ensemble._compile.numba import spliced

__all__ = [
    "ONE_VALUE", "TILES", "cross", "dot", "edges_at", "edges_of", "launch", "node_at", "owned_pairs", "places_of",
    "product", "square", "width_of",
]  # fmt: skip

TILES = 32
"""Tiles of SIMD width that a thread goes through with one piece of memory."""

ONE_VALUE = cuda.Layout("double", 1, 1, 1)
"""A thread carries one value of one sample."""

SECTOR_BYTES = 32
"""What memory of a device reads and writes at least."""


def width_of(count):
    """Lanes of a tile: tiles cover `count` values, the last one overlaps the one before it."""
    return next(width for width in (8, 4, 2, 1) if width <= count)


# --- references
def edges_of(points, tets):
    """The edges from corner 0 to the others, ``edges[k][d]``, each (E, S)."""
    xp = array_namespace(points)
    at = [xp.take(points, tets[:, a], axis=0) for a in range(4)]
    return [[corner[:, d, :] - at[0][:, d, :] for d in range(3)] for corner in at[1:]]


def cross(x, y):
    """The vector product of two lists of arrays."""
    return [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]]


def dot(x, y):
    """The scalar product of two lists of arrays."""
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]


# --- lanes
@spliced
def places_of(places, at, first, n_samples, width):
    """The elements and samples of `width` consecutive pairs, as lanes; ``places[at:]`` is memory for them."""
    if n_samples == 1:
        for i in range(width):
            places[at + i] = first + i
            places[at + width + i] = 0
    else:
        element, sample = first // n_samples, first % n_samples
        for i in range(width):
            places[at + i] = element
            places[at + width + i] = sample
            sample += 1
            if sample == n_samples:
                element, sample = element + 1, 0
    return load(places, at, width), load(places, at + width, width)


@spliced
def node_at(tets, element, a):
    """Corner `a` of the elements, as lanes."""
    return as_int64(gather(tets, a, element * 4))


@spliced
def _vector(points, node, shift, stride):
    place = node * (3 * stride) + shift
    return gather(points, 0, place), gather(points, stride, place), gather(points, 2 * stride, place)


@spliced
def edges_at(points, tets, element, shift, stride):
    """The edges from corner 0 to the others, as nine lanes."""
    x, y, z = _vector(points, node_at(tets, element, 0), shift, stride)
    ax, ay, az = _vector(points, node_at(tets, element, 1), shift, stride)
    bx, by, bz = _vector(points, node_at(tets, element, 2), shift, stride)
    cx, cy, cz = _vector(points, node_at(tets, element, 3), shift, stride)
    return ax - x, ay - y, az - z, bx - x, by - y, bz - z, cx - x, cy - y, cz - z


@spliced
def product(ax, ay, az, bx, by, bz):
    """The vector product of lanes."""
    return ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx


@spliced
def square(x, y, z):
    """The squared length of a vector of lanes."""
    return x * x + y * y + z * z


# --- devices
def owned_pairs(pairs, count, out):
    """How many of the `pairs` of a block are its own (result_rows.cuh); `out` has rows of `count` values."""
    whole = 8 * count % SECTOR_BYTES == device.address(out) % SECTOR_BYTES == 0
    return np.int32(pairs if whole else pairs - SECTOR_BYTES // 8)


def launch(module, function, count, n_samples, arguments, threads=cuda.THREADS, per_block=None, shared=0):
    """Queue a kernel over `count` pairs of element and sample, a thread each or `per_block` in a block of `threads`.

    `shared`: bytes of dynamic shared memory of a block.
    """
    extent = (np.int32(n_samples), np.int64(count))
    n_threads = math.prod(threads) if isinstance(threads, tuple) else threads
    grid = (-(-count // int(per_block or n_threads)),)
    wide = count >= 2**31 - n_threads
    module.launch(function, ONE_VALUE, grid, threads, (*arguments, *extent), wide, shared=shared)
