"""Element quantities of linear tetrahedra: nodal values, gradients and volumes, edge lengths.

Components stand before elements and samples: a component of consecutive elements is one contiguous vector. A lane of a
SIMD register, or a thread of a device, carries one pair of element and sample, whatever the number of samples; every
load and store but those at nodes is coalesced.

Bytes that must move (float64, E elements, N nodes, S samples, Q points; a node is shared by about 22 elements
and read from the cache after the first):

* `tet_values`, C components: ``16 E + 8 C N S + 32 C E S``;
* `tet_transform`: ``16 E + 24 N S + 104 Q E S``;
* `tet_closed_form`: ``16 E + 24 N S + 128 E S``, with derivatives ``384 E S``;
* `tet_edge_lengths`, K copies: ``16 E + 24 N S + 72 K E S``.
"""

from __future__ import annotations

import math

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.lanes.arithmetic import absolute, gather
from ensemble._compile.lanes.types import load, sqrt, store
from ensemble._compile.numba import compiled, output, per_width, prange, spliced
from ensemble._compile.registry import into, kernel
from ensemble._kernels.fem.tet_geometry import (
    ONE_VALUE,
    TILES,
    cross,
    dot,
    edges_at,
    edges_of,
    launch,
    node_at,
    owned_pairs,
    places_of,
    product,
    square,
    width_of,
)

__all__ = ["tet_closed_form", "tet_edge_lengths", "tet_transform", "tet_values"]

NEWTON_STEPS = 4
"""From the start below, the trace of a root has all its digits after four, for any eigenvalues."""

ROOT_2 = math.sqrt(2.0)

FIXED = (1, 3, 9)
"""Components of a field of one sample whose number is a constant of a device's kernel."""

BY_THREADS = ("TRANSFORM", "MASS", "LENGTHS")
"""What a kernel of a device makes of the geometry, a pair per thread: gradients and weights, N_i N_j, edge lengths."""

QUANTITY_THREADS = 256
"""Threads of a block of a device in which each writes the quantity of a pair."""

ROW_THREADS, ROW_PAIRS = 256, 128
"""Threads and pairs of a block of a device whose warps write the 48 rows of FIRST one by one.

The block also computes the four pairs that follow. The rows of the other quantities go as fast by threads."""


def _by_rows(one: bool) -> str:
    """The kernel that writes row by row, for one sample or any number."""
    return cuda.instance("tet_quantity_by_rows", "FIRST", one, ROW_THREADS, ROW_PAIRS)


CUDA = cuda.KernelModule(
    "fem/element",
    [
        "tet_values",
        *(f"tet_values_of_one<{c}>" for c in FIXED),
        *(f"tet_quantity<{kind}>" for kind in BY_THREADS),
        *(_by_rows(one) for one in (True, False)),
    ],
    headers=("fem/result_rows.cuh",),
    only=ONE_VALUE,
)


@kernel
def tet_values(field, tets, out):
    """Values at the corners: (4, C, E, S) of a nodal field (N, C, S)."""
    xp = array_namespace(field)
    at = [xp.permute_dims(xp.take(field, tets[:, a], axis=0), (1, 0, 2)) for a in range(4)]
    return into(out, xp.stack(at))


@kernel
def tet_transform(points, tets, weights, out):
    """Gradients of the linear functions at Q points and weights times volume, (13 Q, E, S).

    Row 12 q + 3 i + d is the derivative of function i along axis d at point q, row 12 Q + q the weight. Points
    (N, 3, S), weights (Q,).
    """
    xp = array_namespace(points)
    a, b, c = edges_of(points, tets)
    u, v, w = cross(b, c), cross(c, a), cross(a, b)
    determinant = dot(a, u)
    inverse, volume = 1.0 / determinant, xp.abs(determinant) * (1.0 / 6.0)
    u, v, w = ([entry * inverse for entry in row] for row in (u, v, w))
    first = [-(u[d] + v[d] + w[d]) for d in range(3)]
    n_points = weights.shape[0]
    return into(out, xp.stack([*first, *u, *v, *w] * n_points + [volume * weights[q] for q in range(n_points)]))


@kernel
def tet_closed_form(points, tets, derivatives, out):
    """Integrals of N_i N_j, (16, E, S), or with `derivatives` of N_i dN_j/dx_d, (48, E, S).

    Rows 4 i + j and 16 d + 4 i + j; ``V / 20 (1 + delta_ij)`` and ``V / 4 dN_j/dx_d``.
    """
    xp = array_namespace(points)
    made = tet_transform.reference(points, tets, xp.ones(1, dtype=points.dtype), None)
    volume = made[12, ...]
    if derivatives:
        return into(
            out, xp.stack([0.25 * volume * made[3 * j + d, ...] for d in range(3) for _ in range(4) for j in range(4)])
        )
    return into(out, xp.stack([(0.1 if i == j else 0.05) * volume for i in range(4) for j in range(4)]))


@kernel
def tet_edge_lengths(points, tets, copies, out):
    """The roots of half the sum of e e^T over the six edges e, (9 * copies, E, S).

    From the invariants of the sum C: trace I, sum of principal minors II (from areas) and determinant III (from the
    volume), all sums of squares. The trace x of the root solves (x^2 - I)^2 / 4 = II + 2 x sqrt(III).
    """
    xp = array_namespace(points)
    a, b, c = edges_of(points, tets)
    edges = [a, b, c, *([y[d] - x[d] for d in range(3)] for x, y in ((a, b), (a, c), (b, c)))]
    C = [[0.5 * sum((e[k] * e[m] for e in edges[1:]), a[k] * a[m]) for m in range(3)] for k in range(3)]
    u, v, w = cross(b, c), cross(c, a), cross(a, b)
    z = [u[d] + v[d] + w[d] for d in range(3)]
    one, two = C[0][0] + C[1][1] + C[2][2], dot(u, u) + dot(v, v) + dot(w, w) + dot(z, z)
    three = xp.abs(dot(a, u)) * ROOT_2
    x = xp.sqrt(one + 2.0 * xp.sqrt(two + 2.0 * three * xp.sqrt(3.0 * one)))
    for _ in range(NEWTON_STEPS):
        q = x * x - one
        x = x - (q * q * 0.25 - two - 2.0 * three * x) / (x * q - 2.0 * three)
    second = xp.sqrt(two + 2.0 * three * x)
    scale = 1.0 / (x * second - three)
    diagonal, linear = x * three, x * x - second
    root = [[linear * C[k][m] - dot(C[k], C[m]) for m in range(3)] for k in range(3)]
    rows = [(root[k][m] + diagonal if k == m else root[k][m]) * scale for k in range(3) for m in range(3)]
    return into(out, xp.stack(rows * copies))


# --- CPU
@per_width
def _values(width):
    @compiled
    def loop(field, tets, out, n_components, n_samples, count):
        n_tiles = (count + width - 1) // width
        for block in prange((n_tiles + TILES - 1) // TILES):
            places = np.empty(2 * width, np.int64)
            for tile in range(block * TILES, min((block + 1) * TILES, n_tiles)):
                first = min(tile * width, count - width)
                element, sample = places_of(places, 0, first, n_samples, width)
                for a in range(4):
                    place = node_at(tets, element, a) * (n_components * n_samples) + sample
                    for k in range(n_components):
                        value = gather(field, k * n_samples, place)
                        store(out, (a * n_components + k) * count + first, value)

    return loop


@spliced
def _gradients(points, tets, element, sample, n_samples, work, width):
    """The gradients as 12 rows of `work`, and the volume."""
    ax, ay, az, bx, by, bz, cx, cy, cz = edges_at(points, tets, element, sample, n_samples)
    ux, uy, uz = product(bx, by, bz, cx, cy, cz)
    vx, vy, vz = product(cx, cy, cz, ax, ay, az)
    wx, wy, wz = product(ax, ay, az, bx, by, bz)
    determinant = ax * ux + ay * uy + az * uz
    inverse = 1.0 / determinant
    for d, (u, v, w) in enumerate(((ux, vx, wx), (uy, vy, wy), (uz, vz, wz))):
        u, v, w = u * inverse, v * inverse, w * inverse
        store(work, d * width, -(u + v + w))
        store(work, (3 + d) * width, u)
        store(work, (6 + d) * width, v)
        store(work, (9 + d) * width, w)
    return absolute(determinant) * (1.0 / 6.0)


@per_width
def _transform(width):
    @compiled
    def loop(points, tets, weights, out, n_samples, count):
        n_tiles, n_points = (count + width - 1) // width, weights.size
        for block in prange((n_tiles + TILES - 1) // TILES):
            places, work = np.empty(2 * width, np.int64), np.empty(12 * width)
            for tile in range(block * TILES, min((block + 1) * TILES, n_tiles)):
                first = min(tile * width, count - width)
                element, sample = places_of(places, 0, first, n_samples, width)
                volume = _gradients(points, tets, element, sample, n_samples, work, width)
                for q in range(n_points):
                    for k in range(12):
                        store(out, (12 * q + k) * count + first, load(work, k * width, width))
                    store(out, (12 * n_points + q) * count + first, volume * weights[q])

    return loop


@per_width
def _closed_form(width, derivatives):
    @compiled
    def loop(points, tets, out, n_samples, count):
        n_tiles = (count + width - 1) // width
        for block in prange((n_tiles + TILES - 1) // TILES):
            places, work = np.empty(2 * width, np.int64), np.empty(12 * width)
            for tile in range(block * TILES, min((block + 1) * TILES, n_tiles)):
                first = min(tile * width, count - width)
                element, sample = places_of(places, 0, first, n_samples, width)
                volume = _gradients(points, tets, element, sample, n_samples, work, width)
                for i in range(4):
                    for j in range(4):
                        at = (4 * i + j) * count + first
                        if derivatives:
                            for d in range(3):
                                slope = load(work, (3 * j + d) * width, width)
                                store(out, 16 * d * count + at, 0.25 * volume * slope)
                        else:
                            store(out, at, volume * (0.1 if i == j else 0.05))

    return loop


@per_width
def _lengths(width):
    @compiled
    def loop(points, tets, copies, out, n_samples, count):
        n_tiles = (count + width - 1) // width
        for block in prange((n_tiles + TILES - 1) // TILES):
            places = np.empty(2 * width, np.int64)
            C, e = np.empty(9 * width), np.empty(18 * width)
            for tile in range(block * TILES, min((block + 1) * TILES, n_tiles)):
                first = min(tile * width, count - width)
                element, sample = places_of(places, 0, first, n_samples, width)
                ax, ay, az, bx, by, bz, cx, cy, cz = edges_at(points, tets, element, sample, n_samples)
                for d, (x, y, z) in enumerate(((ax, bx, cx), (ay, by, cy), (az, bz, cz))):
                    store(e, d * width, x)
                    store(e, (3 + d) * width, y)
                    store(e, (6 + d) * width, z)
                    store(e, (9 + d) * width, y - x)
                    store(e, (12 + d) * width, z - x)
                    store(e, (15 + d) * width, z - y)
                for k in range(3):
                    for m in range(k + 1):
                        total = load(e, k * width, width) * load(e, m * width, width)
                        for n in range(3, 18, 3):
                            total = total + load(e, (n + k) * width, width) * load(e, (n + m) * width, width)
                        store(C, (3 * k + m) * width, 0.5 * total)
                        store(C, (3 * m + k) * width, 0.5 * total)
                ux, uy, uz = product(bx, by, bz, cx, cy, cz)
                vx, vy, vz = product(cx, cy, cz, ax, ay, az)
                wx, wy, wz = product(ax, ay, az, bx, by, bz)
                one = load(C, 0, width) + load(C, 4 * width, width) + load(C, 8 * width, width)
                two = square(ux, uy, uz) + square(vx, vy, vz) + square(wx, wy, wz)
                two = two + square(ux + vx + wx, uy + vy + wy, uz + vz + wz)
                three = absolute(ax * ux + ay * uy + az * uz) * ROOT_2
                x = sqrt(one + 2.0 * sqrt(two + 2.0 * three * sqrt(3.0 * one)))
                for _ in range(NEWTON_STEPS):
                    q = x * x - one
                    x = x - (q * q * 0.25 - two - 2.0 * three * x) / (x * q - 2.0 * three)
                second = sqrt(two + 2.0 * three * x)
                scale = 1.0 / (x * second - three)
                diagonal, linear = x * three, x * x - second
                for k in range(3):
                    for m in range(3):
                        i, j = 3 * k * width, 3 * m * width
                        total = load(C, i, width) * load(C, j, width)
                        total = total + load(C, i + width, width) * load(C, j + width, width)
                        total = total + load(C, i + 2 * width, width) * load(C, j + 2 * width, width)
                        total = linear * load(C, i + m * width, width) - total
                        if k == m:
                            total = total + diagonal
                        total = total * scale
                        for copy in range(copies):
                            store(out, (9 * copy + 3 * k + m) * count + first, total)

    return loop


@tet_values.register("numba")
def _(field, tets, out):
    n_components, n_samples = field.shape[1:]
    out = output(out, (4, n_components, tets.shape[0], n_samples), field.dtype)
    count = tets.shape[0] * n_samples
    _values(width_of(count))(field.reshape(-1), tets.reshape(-1), out.reshape(-1), n_components, n_samples, count)
    return out


@tet_transform.register("numba")
def _(points, tets, weights, out):
    n_elements, n_samples = tets.shape[0], points.shape[2]
    out = output(out, (13 * weights.size, n_elements, n_samples), points.dtype)
    count = n_elements * n_samples
    arguments = (points.reshape(-1), tets.reshape(-1), weights, out.reshape(-1))
    _transform(width_of(count))(*arguments, n_samples, count)
    return out


@tet_closed_form.register("numba")
def _(points, tets, derivatives, out):
    n_elements, n_samples = tets.shape[0], points.shape[2]
    out = output(out, (48 if derivatives else 16, n_elements, n_samples), points.dtype)
    count = n_elements * n_samples
    _closed_form(width_of(count), derivatives)(points.reshape(-1), tets.reshape(-1), out.reshape(-1), n_samples, count)
    return out


@tet_edge_lengths.register("numba")
def _(points, tets, copies, out):
    n_elements, n_samples = tets.shape[0], points.shape[2]
    out = output(out, (9 * copies, n_elements, n_samples), points.dtype)
    count = n_elements * n_samples
    arguments = (points.reshape(-1), tets.reshape(-1), copies, out.reshape(-1))
    _lengths(width_of(count))(*arguments, n_samples, count)
    return out


# --- devices
@tet_values.register("cuda")
def _(field, tets, out):
    n_components, n_samples = field.shape[1:]
    out = cuda.output(out, field, (4, n_components, tets.shape[0], n_samples))
    count = tets.shape[0] * n_samples
    function = f"tet_values_of_one<{n_components}>" if n_samples == 1 and n_components in FIXED else "tet_values"
    launch(CUDA, function, count, n_samples, (field, cuda.aligned(tets), out, np.int32(n_components)))
    return out


def _quantity(kind, n_rows, points, tets, weights, copies, out):
    """Queue the kernel that writes `n_rows` rows of values of the geometry."""
    n_elements, n_samples = tets.shape[0], points.shape[2]
    out = cuda.output(out, points, (n_rows, n_elements, n_samples))
    tets, count = cuda.aligned(tets), n_elements * n_samples
    if kind == "FIRST":
        shared, arguments = 8 * 12 * (ROW_PAIRS + 6), (points, tets, out, np.int32(n_rows))
        launch(CUDA, _by_rows(n_samples == 1), count, n_samples, arguments, ROW_THREADS, ROW_PAIRS, shared)
    else:
        own = owned_pairs(QUANTITY_THREADS, count, out)
        arguments = (points, tets, weights, out, np.int32(copies), own)
        launch(CUDA, f"tet_quantity<{kind}>", count, n_samples, arguments, QUANTITY_THREADS, own)
    return out


@tet_transform.register("cuda")
def _(points, tets, weights, out):
    return _quantity("TRANSFORM", 13 * weights.size, points, tets, weights, weights.size, out)


@tet_closed_form.register("cuda")
def _(points, tets, derivatives, out):
    return _quantity("FIRST" if derivatives else "MASS", 48 if derivatives else 16, points, tets, None, 1, out)


@tet_edge_lengths.register("cuda")
def _(points, tets, copies, out):
    return _quantity("LENGTHS", 9 * copies, points, tets, None, copies, out)
