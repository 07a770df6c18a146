"""Finite-element assembly on trilinear hexahedra: coefficient fields, and Jacobian and residual row by row.

A matrix row is gathered by one thread from the (at most eight) cells around its node: no atomics, no colouring, no
element matrices in memory, and one order of summation, so every sample gets the bits of its own scalar run.

Bytes that must move (float64, S samples, N nodes, C cells, Z entries; write-allocate not counted):

* `affine_coefficient`, P points, M terms: ``8 P S`` written, ``8 P M`` read;
* `diffusion_jacobian_and_residual`: ``8 Z S + 8 N S`` written; ``64 C S`` read for the coefficient, ``8 N S`` for u;
  shared by all samples: ``65 C + 24 C + 32 C + 8 N`` for incidences and slots, edges and corners;
* `diffusion_residual`: the same without ``8 Z S``.

A 64^3-cell mesh (N = 274,625, C = 262,144, Z = 7,189,057) at S = 32: 0.54 GB and 2.55 GB.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.allocation import new
from ensemble._compile.lanes.types import load, splat, store, zeros
from ensemble._compile.numba import ROW_BLOCK, compiled, compiled_unrolled, output, per_width, prange, spliced, tiles
from ensemble._compile.registry import into, kernel

__all__ = ["affine_coefficient", "diffusion_jacobian_and_residual", "diffusion_residual"]

ROW_THREADS = 32
"""Threads of a block of the device's row kernel, as in assembly.cu."""

CUDA = cuda.KernelModule(
    "fem/assembly",
    [
        "affine_coefficient",
        "hex_diagonal",
        *(f"gather_rows<{r}, {m}>" for r in ("false", "true") for m in ("false", "true")),
    ],
    apart=True,  # a row kernel takes the compiler seconds
)


@kernel
def affine_coefficient(mean, modes, y, out):
    """kappa[p, s] = mean[0] + sum over m of modes[p, m] * y[m, s]."""
    xp = array_namespace(modes)
    kappa = xp.zeros((modes.shape[0], y.shape[1]), dtype=y.dtype) + mean[0]
    for m in range(modes.shape[1]):
        kappa = kappa + modes[:, m, None] * y[None, m, :]
    return into(out, kappa)


@per_width
def _affine(width):
    @compiled
    def loop(mean, modes, y, kappa, n_terms, n_samples, first):
        for p in prange(modes.size // n_terms):
            total = splat(mean[0], kappa, width)
            for m in range(n_terms):
                total = total + splat(modes[p * n_terms + m], kappa, width) * load(y, m * n_samples + first, width)
            store(kappa, np.int64(p) * n_samples + first, total)

    return loop


@affine_coefficient.register("numba")
def _(mean, modes, y, out):
    n_terms, n_samples = y.shape
    out = output(out, (modes.shape[0], n_samples), y.dtype)
    for first, width in tiles(n_samples):
        _affine(width)(mean, modes.reshape(-1), y.reshape(-1), out.reshape(-1), n_terms, n_samples, first)
    return out


@affine_coefficient.register("cuda")
def _(mean, modes, y, out):
    n_terms, n_samples = y.shape
    out = cuda.output(out, y, (modes.shape[0], n_samples))
    arguments = (mean, modes, y, out, np.int32(n_terms))
    layout = cuda.layout_of(n_samples, y, out)
    CUDA.rows("affine_coefficient", modes.shape[0], n_samples, arguments, layout)
    return out


def element_rows(connectivity, edges, interpolation, stiffness, reaction, advection, kappa, u):
    """K + M/2 and K + M for every cell, (C * 64, S): row a, column b of cell e lies at 64 e + 8 a + b.

    K holds diffusion and advection, M the derivative of the reaction term; the residual of the latter is M u / 2.
    """
    xp = array_namespace(kappa)
    hx, hy, hz = (edges[:, d, None, None] for d in range(3))
    drift = hy * hz * advection[0, ...] + hx * hz * advection[1, ...] + hx * hy * advection[2, ...]
    fx, fy, fz = (f[..., None] for f in (hy * hz / hx, hx * hz / hy, hx * hy / hz))
    geometry = fx * stiffness[0, ...] + fy * stiffness[1, ...] + fz * stiffness[2, ...]
    n_cells, n_samples = connectivity.shape[0], kappa.shape[1]
    kappa = xp.reshape(kappa, (n_cells, 1, 1, 8, n_samples))
    linear = xp.zeros((n_cells, 8, 8, n_samples), dtype=kappa.dtype) + drift[..., None]
    for q in range(8):
        linear = linear + kappa[..., q, :] * geometry[..., q, None]
    if reaction.shape[0] == 0:
        linear = xp.reshape(linear, (n_cells * 64, n_samples))
        return linear, linear
    at_corners = xp.reshape(xp.take(u, xp.reshape(connectivity, (-1,)), axis=0), (n_cells, 8, n_samples))
    derivative = xp.zeros_like(linear)
    for q in range(8):
        value = xp.zeros((n_cells, n_samples), dtype=kappa.dtype)
        for b in range(8):
            value = value + at_corners[:, b, :] * interpolation[q, b]
        value = value * (hx * hy * hz)[:, :, 0]
        derivative = derivative + value[:, None, None, :] * reaction[..., q, None]
    shape = (n_cells * 64, n_samples)
    return xp.reshape(linear + derivative * 0.5, shape), xp.reshape(linear + derivative, shape)


@kernel
def diffusion_residual(
    first_cell, cells, corners, connectivity, fixed, edges, interpolation, stiffness, reaction, advection, kappa, u, out
):
    """r[i, s] = sum over the cells around node i, and their corners b, of (K + M/2)[i, b] u[b]; 0 at fixed nodes.

    Rows are those of `first_cell`: the first nodes of u, which may have more.
    """
    xp = array_namespace(kappa)
    rows, _ = element_rows(connectivity, edges, interpolation, stiffness, reaction, advection, kappa, u)
    count = first_cell[1:] - first_cell[:-1]
    n_rows = count.shape[0]
    residual = xp.zeros_like(u[:n_rows, ...])
    for offset in range(8):  # the offset-th cell of every node at once
        live = count > offset
        p = xp.where(live, first_cell[:-1] + offset, xp.zeros_like(count))
        cell, corner = xp.take(cells, p), xp.astype(xp.take(corners, p), cells.dtype)
        for b in range(8):
            term = xp.take(rows, cell * 64 + corner * 8 + b, axis=0) * xp.take(
                u, xp.take(connectivity[:, b], cell), axis=0
            )
            residual = xp.where(live[:, None], residual + term, residual)
    return into(out, xp.where(fixed[:n_rows, None], xp.zeros_like(residual), residual))


def sum_by_target(terms, source, target, n_targets):
    """Row t of the result adds ``terms[source[k]]`` over all k with ``target[k] == t``, in the order of k."""
    xp = array_namespace(terms)
    order = xp.argsort(target, stable=True)
    source = xp.take(source, order)
    start = xp.searchsorted(xp.take(target, order), xp.arange(n_targets + 1, dtype=target.dtype))
    first, last = start[:-1], start[1:]
    total = xp.zeros((n_targets, terms.shape[1]), dtype=terms.dtype)
    for offset in range(int(xp.max(last - first))):  # the offset-th contribution to every target at once
        live = first + offset < last
        term = xp.take(terms, xp.take(source, xp.where(live, first + offset, xp.zeros_like(first))), axis=0)
        total = xp.where(live[:, None], total + term, total)
    return total


@kernel
def diffusion_jacobian_and_residual(
    first_cell, cells, corners, connectivity, fixed, edges, interpolation, stiffness, reaction, advection, kappa, u,
    indptr, indices, slots, values, residual,
):  # fmt: skip
    """The residual, and the entries K + M of its Jacobian; rows and columns of fixed nodes are the identity's.

    An entry whose slot is below zero is not stored: that is how a symmetric matrix gets its upper triangle alone.
    """
    xp = array_namespace(kappa)
    shared = (first_cell, cells, corners, connectivity, fixed, edges, interpolation, stiffness, reaction, advection)
    _, rows = element_rows(connectivity, edges, interpolation, stiffness, reaction, advection, kappa, u)
    n_rows = first_cell.shape[0] - 1
    node = xp.repeat(xp.arange(n_rows), xp.astype(first_cell[1:] - first_cell[:-1], xp.int64))
    target = xp.take(indptr, node)[:, None] + xp.astype(slots, indptr.dtype)
    source = (cells * 64 + xp.astype(corners, cells.dtype) * 8)[:, None] + xp.arange(8, dtype=cells.dtype)
    nnz = indices.shape[0]
    entries = sum_by_target(rows, source[slots >= 0], target[slots >= 0], nnz)
    row = xp.repeat(xp.arange(n_rows, dtype=indices.dtype), xp.astype(indptr[1:] - indptr[:-1], xp.int64))
    held = xp.take(fixed, row) | xp.take(fixed, indices)
    identity = xp.astype(row == indices, kappa.dtype)[:, None]
    entries = xp.where(held[:, None], xp.broadcast_to(identity, entries.shape), entries)
    return into(values, entries), diffusion_residual.reference(*shared, kappa, u, residual)


@spliced
def _cell_geometry(edges, cell, a, stiffness, geometry):
    """Row `a` of the stiffness integrand of one cell: ``geometry[b * 8 + q]``, the same for all samples."""
    hx, hy, hz = edges[cell, 0], edges[cell, 1], edges[cell, 2]
    fx, fy, fz = hy * hz / hx, hx * hz / hy, hx * hy / hz
    for b in range(8):
        k = (a * 8 + b) * 8
        x = splat(fx, geometry, 8) * load(stiffness, k, 8)
        y = splat(fy, geometry, 8) * load(stiffness, k + 512, 8)
        z = splat(fz, geometry, 8) * load(stiffness, k + 1024, 8)
        store(geometry, b * 8, x + y + z)


@spliced
def _cell_drift(edges, cell, k, advection):
    """The advective coupling ``k = 8 a + b`` of one cell."""
    hx, hy, hz = edges[cell, 0], edges[cell, 1], edges[cell, 2]
    return hy * hz * advection[k] + hx * hz * advection[k + 64] + hx * hy * advection[k + 128]


@per_width
def _gather_rows(width, reacts, with_matrix):
    # Closing over a compiled function would spoil the cache on disk: all that needs `width` is written out here.
    @compiled_unrolled
    def loop(
        first_cell, cells, corners, connectivity, fixed, edges, interpolation, stiffness, reaction, advection, kappa, u,
        indptr, slots, values, residual, n_samples, first,
    ):  # fmt: skip
        n_rows = first_cell.size - 1  # `fixed` and u may have more nodes, those of other ranks
        for block in prange((n_rows + ROW_BLOCK - 1) // ROW_BLOCK):
            geometry = new(64, kappa.dtype)
            volume_u = new(8 * width, kappa.dtype)
            for i in range(block * ROW_BLOCK, min(n_rows, (block + 1) * ROW_BLOCK)):
                r = zeros(kappa, width)
                row = np.int64(indptr[i]) if with_matrix else 0
                if with_matrix:
                    for k in range(row, np.int64(indptr[i + 1])):
                        store(values, k * n_samples + first, zeros(kappa, width))
                if fixed[i]:
                    if with_matrix:
                        p = first_cell[i]
                        diagonal = row + slots[p, corners[p]]
                        store(values, diagonal * n_samples + first, splat(1.0, kappa, width))
                    store(residual, np.int64(i) * n_samples + first, r)
                    continue
                for p in range(first_cell[i], first_cell[i + 1]):
                    cell, a = np.int64(cells[p]), np.int64(corners[p])
                    _cell_geometry(edges, cell, a, stiffness, geometry)
                    if reacts:
                        volume = splat(edges[cell, 0] * edges[cell, 1] * edges[cell, 2], u, width)
                        for q in range(8):
                            value = zeros(u, width)
                            for b in range(8):
                                at_corner = load(u, np.int64(connectivity[cell, b]) * n_samples + first, width)
                                value = value + at_corner * splat(interpolation[q * 8 + b], u, width)
                            store(volume_u, q * width, value * volume)
                    for b in range(8):
                        entry = splat(_cell_drift(edges, cell, a * 8 + b, advection), kappa, width)
                        for q in range(8):
                            kappa_q = load(kappa, (cell * 8 + q) * n_samples + first, width)
                            entry = entry + kappa_q * splat(geometry[b * 8 + q], kappa, width)
                        at_corner = load(u, np.int64(connectivity[cell, b]) * n_samples + first, width)
                        if reacts:
                            derivative = zeros(kappa, width)
                            for q in range(8):
                                weight = splat(reaction[(a * 8 + b) * 8 + q], kappa, width)
                                derivative = derivative + load(volume_u, q * width, width) * weight
                            r = r + (entry + derivative * splat(0.5, kappa, width)) * at_corner
                            entry = entry + derivative
                        else:
                            r = r + entry * at_corner
                        if with_matrix and slots[p, b] >= 0 and not fixed[connectivity[cell, b]]:
                            k = (row + slots[p, b]) * n_samples + first
                            store(values, k, load(values, k, width) + entry)
                store(residual, np.int64(i) * n_samples + first, r)

    return loop


def _run(with_matrix, mesh, tables, kappa, u, indptr, slots, values, residual):
    """Call the compiled loop tile by tile; `tables` end with reaction and advection."""
    n_samples = u.shape[1]
    flat = [table.reshape(-1) for table in tables]
    for first, width in tiles(n_samples):
        _gather_rows(width, tables[2].shape[0] > 0, with_matrix)(
            *mesh, *flat, kappa.reshape(-1), u.reshape(-1), indptr, slots, values.reshape(-1), residual.reshape(-1),
            n_samples, first,
        )  # fmt: skip


@diffusion_residual.register("numba")
def _(
    first_cell, cells, corners, connectivity, fixed, edges, interpolation, stiffness, reaction, advection, kappa, u, out
):
    out = output(out, (first_cell.size - 1, u.shape[1]), u.dtype)
    mesh = (first_cell, cells, corners, connectivity, fixed, edges)
    tables = (interpolation, stiffness, reaction, advection)
    no_slots, no_values = np.empty((0, 8), dtype=np.int8), np.empty(0, dtype=u.dtype)
    _run(False, mesh, tables, kappa, u, first_cell, no_slots, no_values, out)
    return out


@diffusion_jacobian_and_residual.register("numba")
def _(
    first_cell, cells, corners, connectivity, fixed, edges, interpolation, stiffness, reaction, advection, kappa, u,
    indptr, indices, slots, values, residual,
):  # fmt: skip
    residual = output(residual, (first_cell.size - 1, u.shape[1]), u.dtype)
    values = output(values, (int(indptr[-1]), u.shape[1]), u.dtype)
    mesh = (first_cell, cells, corners, connectivity, fixed, edges)
    tables = (interpolation, stiffness, reaction, advection)
    _run(True, mesh, tables, kappa, u, indptr, slots, values, residual)
    return values, residual


def _run_on_device(with_matrix, mesh, tables, kappa, u, indptr, slots, values, residual):
    """Queue the assembly kernel; `tables` end with reaction and advection."""
    n_rows, n_samples = mesh[0].size - 1, u.shape[1]
    written = (values, residual) if with_matrix else (residual,)
    layout = cuda.layout_of(n_samples, u, kappa, *written)
    reacts = tables[2].shape[0] > 0
    rows = ROW_THREADS // layout.lanes
    interpolation, stiffness, *others = tables
    tables = (interpolation, cuda.aligned(stiffness), *others)
    arguments = (*mesh, *tables, kappa, u, indptr, slots, values, residual, np.int64(n_rows), np.int32(n_samples))
    name = cuda.instance("gather_rows", reacts, with_matrix)
    grid = (-(-n_rows // rows), layout.tiles)
    CUDA.launch(name, layout, grid, ROW_THREADS, arguments, with_matrix and cuda.is_wide(indptr))


@diffusion_residual.register("cuda")
def _(
    first_cell, cells, corners, connectivity, fixed, edges, interpolation, stiffness, reaction, advection, kappa, u, out
):
    out = cuda.output(out, u, (first_cell.size - 1, u.shape[1]))
    mesh = (first_cell, cells, corners, connectivity, fixed, edges)
    _run_on_device(False, mesh, (interpolation, stiffness, reaction, advection), kappa, u, None, None, None, out)
    return out


@diffusion_jacobian_and_residual.register("cuda")
def _(
    first_cell, cells, corners, connectivity, fixed, edges, interpolation, stiffness, reaction, advection, kappa, u,
    indptr, indices, slots, values, residual,
):  # fmt: skip
    residual = cuda.output(residual, u, (first_cell.size - 1, u.shape[1]))
    values = cuda.output(values, u, (indices.shape[0], u.shape[1]))
    mesh = (first_cell, cells, corners, connectivity, fixed, edges)
    tables = (interpolation, stiffness, reaction, advection)
    _run_on_device(True, mesh, tables, kappa, u, indptr, slots, values, residual)
    return values, residual
