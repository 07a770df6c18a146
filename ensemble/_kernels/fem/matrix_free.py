"""The diffusion operator on boxes, applied from the coefficient at the Gauss points: no matrix entry is ever formed.

On a box the gradient of a trilinear u along one axis does not vary along that axis: at the 8 Gauss points it takes 4
values, each a difference of corners interpolated in two directions. The flux through them needs the coefficient summed
along the axis; the same interpolations, transposed, bring it back to the corners. That is about 190 operations per cell
against 2 * 27 * 8 for its element matrix times u.

Cell (i, j, k) has number ``i + n_x (j + n_y k)``, node (i, j, k) the same with n + 1. Gauss points and corners count
with x fastest. A node adds its cells in ascending order, whatever the threads.

Bytes that must move (8-byte numbers, C cells, N nodes, S samples): ``64 C S`` for the coefficient, ``16 N S`` for x and
y, ``24 C`` for the geometry; a stored matrix takes ``8 * 27 N S`` in the place of the first.
"""

from __future__ import annotations

import itertools

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.lanes.types import load, prefetch, splat, store, zeros
from ensemble._compile.numba import (
    WIDTHS,
    compiled,
    output,
    per_width,
    prange,
    spliced,
    thread_count,
    tiles,
)  # fmt: skip
from ensemble._compile.registry import into, kernel
from ensemble._kernels.fem import assembly

__all__ = ["hex_diagonal", "hex_product"]

CELLS_AHEAD = 2
"""How far ahead the coefficient is prefetched (`benchmarks affine`)."""

GAUSS = 0.5 - 12.0**-0.5
"""The first of the two Gauss points of [0, 1]; the other is its mirror image."""


SIDE, DEPTH = 7, 8
"""On a device: nodes along the edges of a block (as in matrix_free.cu), and layers of nodes it goes through."""

CUDA = cuda.KernelModule("fem/matrix_free", ["hex_product"], widest=4)


def mixed(a, c, g):
    """Values at the two Gauss points between `a` and `c`; the matrix of this map is symmetric."""
    shift = g * (c - a)
    return a + shift, c - shift


@kernel
def hex_product(counts, factors, fixed, kappa, x, out):
    """y = A x, rows and columns of `fixed` nodes the identity's.

    `counts` are the cells along x, y and z, three ints; `factors`, shape (cells, 3), is ``h_y h_z / (8 h_x)`` and so
    on; `kappa`, shape (8 * cells, n_samples), the coefficient at point q of cell e in row 8 e + q.
    """
    xp = array_namespace(kappa)
    nx, ny, nz = counts
    n_samples = x.shape[1]
    u = xp.where(fixed[:, None], xp.zeros_like(x), x)
    u = xp.reshape(u, (nz + 1, ny + 1, nx + 1, n_samples))
    corners = [
        u[cz : cz + nz, cy : cy + ny, cx : cx + nx, :] for cz in (0, 1) for cy in (0, 1) for cx in (0, 1)
    ]  # fmt: skip
    points = xp.reshape(kappa, (nz, ny, nx, 8, n_samples))
    sums = [None] * 8
    g = xp.asarray(GAUSS, dtype=x.dtype)
    for axis in range(3):
        along, one, two = 1 << axis, 1 << (axis + 1) % 3, 1 << (axis + 2) % 3
        one, two = min(one, two), max(one, two)
        slope = {(a, b): corners[along + a * one + b * two] - corners[a * one + b * two]
                 for a in (0, 1) for b in (0, 1)}  # fmt: skip
        for b in (0, 1):
            slope[0, b], slope[1, b] = mixed(slope[0, b], slope[1, b], g)
        for a in (0, 1):
            slope[a, 0], slope[a, 1] = mixed(slope[a, 0], slope[a, 1], g)
        factor = xp.reshape(factors[:, axis], (nz, ny, nx, 1))
        flux = {}
        for a, b in slope:
            q = a * one + b * two
            flux[a, b] = (factor * (points[..., q, :] + points[..., q + along, :])) * slope[a, b]
        for a in (0, 1):
            flux[a, 0], flux[a, 1] = mixed(flux[a, 0], flux[a, 1], g)
        for b in (0, 1):
            flux[0, b], flux[1, b] = mixed(flux[0, b], flux[1, b], g)
        for (a, b), value in flux.items():
            low = a * one + b * two
            sums[low] = -value if axis == 0 else sums[low] - value
            sums[low + along] = value if axis == 0 else sums[low + along] + value
    y = xp.zeros_like(u)
    for b in range(7, -1, -1):  # a node is corner 7 of the lowest of its cells
        cx, cy, cz = b & 1, b >> 1 & 1, b >> 2
        y[cz : cz + nz, cy : cy + ny, cx : cx + nx, :] += sums[b]
    return into(out, xp.where(fixed[:, None], x, xp.reshape(y, x.shape)))


@spliced
def _mixed(a, c, g):
    shift = g * (c - a)
    return a + shift, c - shift


@spliced
def _fluxes(d00, d10, d01, d11, k00, k10, k01, k11, factor, g):
    """Interpolate the four slopes of one axis, multiply by conductance, and bring the fluxes back; `dab` is (a, b)."""
    d00, d10 = _mixed(d00, d10, g)
    d01, d11 = _mixed(d01, d11, g)
    d00, d01 = _mixed(d00, d01, g)
    d10, d11 = _mixed(d10, d11, g)
    f00, f10 = (factor * k00) * d00, (factor * k10) * d10
    f01, f11 = (factor * k01) * d01, (factor * k11) * d11
    f00, f01 = _mixed(f00, f01, g)
    f10, f11 = _mixed(f10, f11, g)
    f00, f10 = _mixed(f00, f10, g)
    f01, f11 = _mixed(f01, f11, g)
    return f00, f10, f01, f11


@spliced
def _corner(x, fixed, node, n_samples, at, like):
    """The node's values, zero where it is fixed."""
    if fixed[node]:
        return zeros(x, like)
    return load(x, np.int64(node) * n_samples + at, like)


@spliced
def _add(y, fixed, node, n_samples, at, value):
    if not fixed[node]:
        here = np.int64(node) * n_samples + at
        store(y, here, load(y, here, value) + value)


@spliced
def _begin(x, fixed, y, first_node, last_node, n_samples, begin, end, width, like):
    """x where nodes are fixed and zero elsewhere: what the cells add to."""
    for node in range(first_node, last_node):
        for at in range(begin, end, width):
            here = np.int64(node) * n_samples + at
            if fixed[node]:
                store(y, here, load(x, here, like))
            else:
                store(y, here, zeros(y, like))


@per_width
def _hex_product(width):
    @compiled
    def loop(counts, factors, fixed, kappa, x, y, n_blocks, point, n_samples, begin, end):
        nx, ny, nz = counts[0], counts[1], counts[2]
        line, layer = nx + 1, (nx + 1) * (ny + 1)
        n_layers = nz + 1
        for block in prange(n_blocks):
            low, high = n_layers * block // n_blocks, n_layers * (block + 1) // n_blocks  # layers of nodes
            g = splat(point[0], x, width)
            _begin(x, fixed, y, low * layer, (low + 1) * layer, n_samples, begin, end, width, g)
            for k in range(max(low - 1, 0), min(high, nz)):
                below, above = k >= low, k + 1 < high
                if above and k >= low:  # while the layer is still in the cache
                    _begin(x, fixed, y, (k + 1) * layer, (k + 2) * layer, n_samples, begin, end, width, g)
                for j in range(ny):
                    for i in range(nx):
                        cell = i + nx * (j + ny * k)
                        n0 = i + line * j + layer * k
                        n2, n4 = n0 + line, n0 + layer
                        n6 = n4 + line
                        for at in range(begin, end, width):
                            for q in range(8):
                                prefetch(kappa, (np.int64(cell) * 8 + CELLS_AHEAD * 8 + q) * n_samples + at, width)
                            u0, u1 = (_corner(x, fixed, n0, n_samples, at, g),
                                      _corner(x, fixed, n0 + 1, n_samples, at, g))  # fmt: skip
                            u2, u3 = (_corner(x, fixed, n2, n_samples, at, g),
                                      _corner(x, fixed, n2 + 1, n_samples, at, g))  # fmt: skip
                            u4, u5 = (_corner(x, fixed, n4, n_samples, at, g),
                                      _corner(x, fixed, n4 + 1, n_samples, at, g))  # fmt: skip
                            u6, u7 = (_corner(x, fixed, n6, n_samples, at, g),
                                      _corner(x, fixed, n6 + 1, n_samples, at, g))  # fmt: skip
                            p = np.int64(cell) * 8 * n_samples + at
                            k0, k1 = load(kappa, p, width), load(kappa, p + n_samples, width)
                            k2, k3 = load(kappa, p + 2 * n_samples, width), load(kappa, p + 3 * n_samples, width)
                            k4, k5 = load(kappa, p + 4 * n_samples, width), load(kappa, p + 5 * n_samples, width)
                            k6, k7 = load(kappa, p + 6 * n_samples, width), load(kappa, p + 7 * n_samples, width)
                            x00, x10, x01, x11 = _fluxes(
                                u1 - u0, u3 - u2, u5 - u4, u7 - u6, k0 + k1, k2 + k3, k4 + k5, k6 + k7,
                                splat(factors[3 * cell], x, width), g,
                            )  # fmt: skip
                            y00, y10, y01, y11 = _fluxes(
                                u2 - u0, u3 - u1, u6 - u4, u7 - u5, k0 + k2, k1 + k3, k4 + k6, k5 + k7,
                                splat(factors[3 * cell + 1], x, width), g,
                            )  # fmt: skip
                            z00, z10, z01, z11 = _fluxes(
                                u4 - u0, u5 - u1, u6 - u2, u7 - u3, k0 + k4, k1 + k5, k2 + k6, k3 + k7,
                                splat(factors[3 * cell + 2], x, width), g,
                            )  # fmt: skip
                            if below:
                                _add(y, fixed, n0, n_samples, at, ((zeros(x, width) - x00) - y00) - z00)
                                _add(y, fixed, n0 + 1, n_samples, at, (x00 - y10) - z10)
                                _add(y, fixed, n2, n_samples, at, (y00 - x10) - z01)
                                _add(y, fixed, n2 + 1, n_samples, at, (x10 + y10) - z11)
                            if above:
                                _add(y, fixed, n4, n_samples, at, ((zeros(x, width) - x01) - y01) + z00)
                                _add(y, fixed, n4 + 1, n_samples, at, (x01 - y11) + z10)
                                _add(y, fixed, n6, n_samples, at, (y01 - x11) + z01)
                                _add(y, fixed, n6 + 1, n_samples, at, (x11 + y11) + z11)

    return loop


@hex_product.register("numba")
def _(counts, factors, fixed, kappa, x, out):
    n_samples = x.shape[1]
    out = output(out, x.shape, x.dtype)
    point = np.full(1, GAUSS, x.dtype)
    n_blocks = max(1, min(thread_count(), (int(counts[2]) + 1) // 4))
    flat = [array.reshape(-1) for array in (kappa, x, out)]
    widest = max(w for w in WIDTHS if w * x.itemsize <= 64)
    cut = list(tiles(n_samples, widest))
    for width, run in itertools.groupby(cut, key=lambda tile: tile[1]):
        firsts = [first for first, _ in run]
        _hex_product(width)(
            counts, factors.reshape(-1), fixed, *flat, n_blocks, point, n_samples, firsts[0], firsts[-1] + width
        )
    return out


@hex_product.register("cuda")
def _(counts, factors, fixed, kappa, x, out):
    n_samples = x.shape[1]
    out = cuda.output(out, x, x.shape)
    layout = CUDA.layout_of(n_samples, x, kappa, out)
    nx, ny, nz = counts
    grid = (layout.tiles, (nx // SIDE + 1) * (ny // SIDE + 1), nz // DEPTH + 1)
    sizes = (np.int32(n) for n in (nx, ny, nz, DEPTH, n_samples))
    arguments = (factors, fixed, kappa, x, out, x.dtype.type(GAUSS), *sizes)
    CUDA.launch("hex_product", layout, grid, (SIDE + 1) ** 2 * layout.lanes, arguments)
    return out


@kernel
def hex_diagonal(first_cell, cells, corners, fixed, factors, stiffness, kappa, out):
    """The diagonal of that operator, 1 at fixed nodes.

    Node i is corner ``corners[p]`` of cell ``cells[p]`` for p from ``first_cell[i]`` on; ``stiffness[d, b, q]`` is 8
    times the square of corner b's slope along axis d at point q of the unit cube.
    """
    xp = array_namespace(kappa)
    count = first_cell[1:] - first_cell[:-1]
    points = xp.reshape(kappa, (factors.shape[0], 8, kappa.shape[1]))
    diagonal = xp.zeros((fixed.shape[0], kappa.shape[1]), dtype=kappa.dtype)
    for offset in range(8):  # the offset-th cell of every node at once
        live = count > offset
        p = xp.where(live, first_cell[:-1] + offset, xp.zeros_like(count))
        cell, corner = xp.take(cells, p), xp.astype(xp.take(corners, p), cells.dtype)
        part = xp.zeros_like(diagonal)
        for q in range(8):
            weight = xp.zeros((fixed.shape[0],), dtype=kappa.dtype)
            for d in range(3):
                weight = weight + xp.take(factors[:, d], cell) * xp.take(stiffness[d, :, q], corner)
            part = part + weight[:, None] * xp.take(points[:, q, :], cell, axis=0)
        diagonal = xp.where(live[:, None], diagonal + part, diagonal)
    return into(out, xp.where(fixed[:, None], xp.ones_like(diagonal), diagonal))


@per_width
def _hex_diagonal(width):
    @compiled
    def loop(first_cell, cells, corners, fixed, factors, stiffness, kappa, out, n_samples, first):
        for i in prange(fixed.size):
            total = zeros(kappa, width)
            for p in range(first_cell[i], first_cell[i + 1]):
                cell, b = np.int64(cells[p]), np.int64(corners[p])
                part = zeros(kappa, width)
                for q in range(8):
                    weight = factors.dtype.type(0)
                    for d in range(3):
                        weight = weight + factors[cell * 3 + d] * stiffness[(d * 8 + b) * 8 + q]
                    here = (cell * 8 + q) * n_samples + first
                    part = part + splat(weight, kappa, width) * load(kappa, here, width)
                total = total + part
            if fixed[i]:
                total = splat(kappa.dtype.type(1), kappa, width)
            store(out, np.int64(i) * n_samples + first, total)

    return loop


@hex_diagonal.register("numba")
def _(first_cell, cells, corners, fixed, factors, stiffness, kappa, out):
    n_samples = kappa.shape[1]
    out = output(out, (fixed.shape[0], n_samples), kappa.dtype)
    flat = [array.reshape(-1) for array in (factors, stiffness, kappa, out)]
    for first, width in tiles(n_samples):
        _hex_diagonal(width)(first_cell, cells, corners, fixed, *flat, n_samples, first)
    return out


@hex_diagonal.register("cuda")
def _(first_cell, cells, corners, fixed, factors, stiffness, kappa, out):
    n_rows, n_samples = fixed.shape[0], kappa.shape[1]
    out = cuda.output(out, kappa, (n_rows, n_samples))
    arguments = (first_cell, cells, corners, fixed, factors, stiffness, kappa, out)
    assembly.CUDA.rows("hex_diagonal", n_rows, n_samples, arguments, cuda.layout_of(n_samples, kappa, out))
    return out
