"""Element matrices of linear tetrahedra from gradients, weights and tensors at Q quadrature points.

With the 11 points of Keast's rule these are the loops over points of general elements; gradients, which are constant
on a linear tetrahedron, are then read 11 times. With Q = 1, the volume as weight and the mean of a tensor, the same
kernels give the collapsed forms. Layout as in `element.py`; an operand is given once for all samples or for each.

Bytes that must move (float64, E elements, S samples):

* `tet_shape_shape`: ``8 Q E S + 128 E S``;
* `tet_shape_dshape`: ``104 Q E S + 384 E S``;
* `tet_gradient_tensor`: ``176 Q E S + 128 E S`` of equal gradients, ``272 Q E S + 128 E S`` of two.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda, device
from ensemble._compile.lanes.arithmetic import gather
from ensemble._compile.lanes.types import load, store, zeros
from ensemble._compile.numba import compiled, output, per_width, prange, spliced
from ensemble._compile.registry import into, kernel
from ensemble._kernels.fem.tet_geometry import ONE_VALUE, TILES, launch, owned_pairs, places_of, width_of

__all__ = ["tet_gradient_tensor", "tet_shape_dshape", "tet_shape_shape"]

DERIVATIVE_THREADS = 192
"""Threads of a block of a device in which each has one of three derivatives."""

STREAMED_POINTS = 11
"""Points whose weights the copy engine brings on a device that has one: those of Keast's rule."""

STREAM_THREADS, STREAM_TILES, STREAM_BLOCKS = 96, 3, 3
"""Threads of such a block, tiles of weights in its shared memory, and blocks of a multiprocessor."""

CUDA = cuda.KernelModule(
    "fem/element_matrices",
    [
        "tet_shape_shape<1>",
        "tet_shape_shape<2>",
        f"tet_shape_shape_streamed<{STREAMED_POINTS}>",
        "tet_shape_dshape",
        *(cuda.instance("tet_gradient_tensor", same, whole) for same in (True, False) for whole in (True, False)),
    ],
    headers=("fem/result_rows.cuh", "../_compile/include/copy_engine.cuh"),
    only=ONE_VALUE,
)


@kernel
def tet_shape_shape(products, detwei, out):
    """Sums over points of ``products[q, i, j] * detwei[q]``, (16, E, S); products (Q, 4, 4), detwei (Q, E, S)."""
    rows = [sum(products[q, i, j] * detwei[q, ...] for q in range(detwei.shape[0])) for i in range(4) for j in range(4)]
    return into(out, array_namespace(detwei).stack(rows))


@kernel
def tet_shape_dshape(shape, dshape, detwei, out):
    """Sums over points of ``shape[q, i] * detwei[q] * dshape[q, j, d]``, (48, E, S) with row 16 d + 4 i + j.

    Shape (Q, 4), dshape (Q, 4, 3, E, S), detwei (Q, E, S).
    """
    points = range(detwei.shape[0])
    scaled = [[shape[q, i] * detwei[q, ...] for i in range(4)] for q in points]
    places = [(d, i, j) for d in range(3) for i in range(4) for j in range(4)]
    rows = [sum(scaled[q][i] * dshape[q, j, d, ...] for q in points) for d, i, j in places]
    return into(out, array_namespace(detwei).stack(rows))


@kernel
def tet_gradient_tensor(a, tensor, b, detwei, out):
    """Sums over points of ``(a[q, i] . tensor[q]) . b[q, j] * detwei[q]``, (16, E, S) with row 4 i + j.

    Gradients a and b (Q, 4, 3, E, S), b None where it equals a; tensor (Q, 3, 3, E, S), detwei (Q, E, S).
    """
    b = a if b is None else b
    total = [0] * 16
    for q in range(detwei.shape[0]):
        for i in range(4):
            g, T = [a[q, i, k, ...] for k in range(3)], tensor[q, ...]
            h = [(g[0] * T[0, m, ...] + g[1] * T[1, m, ...] + g[2] * T[2, m, ...]) * detwei[q, ...] for m in range(3)]
            for j in range(4):
                term = h[0] * b[q, j, 0, ...] + h[1] * b[q, j, 1, ...] + h[2] * b[q, j, 2, ...]
                total[4 * i + j] = total[4 * i + j] + term
    return into(out, array_namespace(detwei).stack(total))


# --- CPU: a block of tiles goes through one point after another, so that few streams are read at a time
@spliced
def _read(x, row, own, first, count, element, n_elements, width):
    """Row `row` of an operand with samples of its `own`, or with one for all."""
    if own:
        return load(x, row * count + first, width)
    return gather(x, row * n_elements, element)


@per_width
def _shape_shape(width):
    @compiled
    def loop(products, detwei, out, n_points, count):
        n_tiles = (count + width - 1) // width
        for tile in prange(n_tiles):
            first = min(tile * width, count - width)
            for i in range(4):
                for j in range(i + 1):
                    total = zeros(out, width)
                    for q in range(n_points):
                        total = total + products[16 * q + 4 * i + j] * load(detwei, q * count + first, width)
                    store(out, (4 * i + j) * count + first, total)
                    store(out, (4 * j + i) * count + first, total)

    return loop


@per_width
def _shape_dshape(width):
    @compiled
    def loop(shape, dshape, detwei, out, own, n_points, n_samples, count):
        n_tiles = (count + width - 1) // width
        n_elements = count // n_samples
        for block in prange((n_tiles + TILES - 1) // TILES):
            begin, end = block * TILES, min((block + 1) * TILES, n_tiles)
            places, sums = np.empty(2 * TILES * width, np.int64), np.zeros(48 * TILES * width)
            scaled = np.empty(4 * width)
            for tile in range(begin, end):
                places_of(places, 2 * (tile - begin) * width, min(tile * width, count - width), n_samples, width)
            for q in range(n_points):
                for tile in range(begin, end):
                    first, to = min(tile * width, count - width), 48 * (tile - begin) * width
                    element = load(places, 2 * (tile - begin) * width, width)
                    weight = load(detwei, q * count + first, width)
                    for i in range(4):
                        store(scaled, i * width, shape[4 * q + i] * weight)
                    for j in range(4):
                        for d in range(3):
                            slope = _read(dshape, (4 * q + j) * 3 + d, own, first, count, element, n_elements, width)
                            for i in range(4):
                                at = to + (16 * d + 4 * i + j) * width
                                store(sums, at, load(sums, at, width) + load(scaled, i * width, width) * slope)
            for row in range(48):
                for tile in range(begin, end):
                    first, to = min(tile * width, count - width), 48 * (tile - begin) * width
                    store(out, row * count + first, load(sums, to + row * width, width))

    return loop


@per_width
def _gradient_tensor(width):
    @compiled
    def loop(a, tensor, b, detwei, out, same, own_a, own_tensor, own_b, own_detwei, n_points, n_samples, count):
        n_tiles = (count + width - 1) // width
        n_elements = count // n_samples
        for block in prange((n_tiles + TILES - 1) // TILES):
            begin, end = block * TILES, min((block + 1) * TILES, n_tiles)
            places, sums = np.empty(2 * TILES * width, np.int64), np.zeros(16 * TILES * width)
            g, G = np.empty(12 * width), np.empty(12 * width)
            right = g if same else G
            for tile in range(begin, end):
                places_of(places, 2 * (tile - begin) * width, min(tile * width, count - width), n_samples, width)
            for q in range(n_points):
                for tile in range(begin, end):
                    first, to = min(tile * width, count - width), 16 * (tile - begin) * width
                    element = load(places, 2 * (tile - begin) * width, width)
                    for k in range(12):
                        row = 12 * q + k
                        store(g, k * width, _read(a, row, own_a, first, count, element, n_elements, width))
                        if not same:
                            store(G, k * width, _read(b, row, own_b, first, count, element, n_elements, width))
                    weight = _read(detwei, q, own_detwei, first, count, element, n_elements, width)
                    t00 = _read(tensor, 9 * q, own_tensor, first, count, element, n_elements, width)
                    t01 = _read(tensor, 9 * q + 1, own_tensor, first, count, element, n_elements, width)
                    t02 = _read(tensor, 9 * q + 2, own_tensor, first, count, element, n_elements, width)
                    t10 = _read(tensor, 9 * q + 3, own_tensor, first, count, element, n_elements, width)
                    t11 = _read(tensor, 9 * q + 4, own_tensor, first, count, element, n_elements, width)
                    t12 = _read(tensor, 9 * q + 5, own_tensor, first, count, element, n_elements, width)
                    t20 = _read(tensor, 9 * q + 6, own_tensor, first, count, element, n_elements, width)
                    t21 = _read(tensor, 9 * q + 7, own_tensor, first, count, element, n_elements, width)
                    t22 = _read(tensor, 9 * q + 8, own_tensor, first, count, element, n_elements, width)
                    for i in range(4):
                        x, y = load(g, 3 * i * width, width), load(g, (3 * i + 1) * width, width)
                        z = load(g, (3 * i + 2) * width, width)
                        h0 = (x * t00 + y * t10 + z * t20) * weight
                        h1 = (x * t01 + y * t11 + z * t21) * weight
                        h2 = (x * t02 + y * t12 + z * t22) * weight
                        for j in range(4):
                            term = h0 * load(right, 3 * j * width, width) + h1 * load(right, (3 * j + 1) * width, width)
                            term = term + h2 * load(right, (3 * j + 2) * width, width)
                            at = to + (4 * i + j) * width
                            store(sums, at, load(sums, at, width) + term)
            for row in range(16):
                for tile in range(begin, end):
                    first, to = min(tile * width, count - width), 16 * (tile - begin) * width
                    store(out, row * count + first, load(sums, to + row * width, width))

    return loop


@tet_shape_shape.register("numba")
def _(products, detwei, out):
    n_points, n_elements, n_samples = detwei.shape
    out = output(out, (16, n_elements, n_samples), detwei.dtype)
    count = n_elements * n_samples
    _shape_shape(width_of(count))(products.reshape(-1), detwei.reshape(-1), out.reshape(-1), n_points, count)
    return out


@tet_shape_dshape.register("numba")
def _(shape, dshape, detwei, out):
    n_points, n_elements, n_samples = detwei.shape
    out = output(out, (48, n_elements, n_samples), detwei.dtype)
    count = n_elements * n_samples
    arrays = (array.reshape(-1) for array in (shape, dshape, detwei, out))
    _shape_dshape(width_of(count))(*arrays, dshape.shape[-1] == n_samples, n_points, n_samples, count)
    return out


@tet_gradient_tensor.register("numba")
def _(a, tensor, b, detwei, out):
    operands = (a, tensor, a if b is None else b, detwei)
    n_points, n_elements = detwei.shape[:2]
    n_samples = max(operand.shape[-1] for operand in operands)
    out = output(out, (16, n_elements, n_samples), detwei.dtype)
    count = n_elements * n_samples
    arrays = (array.reshape(-1) for array in (*operands, out))
    own = (operand.shape[-1] == n_samples for operand in operands)
    _gradient_tensor(width_of(count))(*arrays, b is None, *own, n_points, n_samples, count)
    return out


# --- devices
@tet_shape_shape.register("cuda")
def _(products, detwei, out):
    n_points, n_elements, n_samples = detwei.shape
    out = cuda.output(out, detwei, (16, n_elements, n_samples))
    count = n_elements * n_samples
    pairs = count % 2 == 0 and (device.address(detwei) | device.address(out)) % 16 == 0
    if pairs and n_points == STREAMED_POINTS and device.has_copy_engine(out):
        own = owned_pairs(2 * STREAM_THREADS, count, out)
        function = f"tet_shape_shape_streamed<{n_points}>"
        shared = 16 * STREAM_THREADS * (STREAM_TILES * n_points + 16)
        per_block = max(int(own), -(-count // (STREAM_BLOCKS * device.multiprocessors_of(out))))
        launch(CUDA, function, count, n_samples, (products, detwei, out, own), STREAM_THREADS, per_block, shared)
        return out
    per = 2 if pairs else 1
    own = owned_pairs(per * cuda.THREADS, count, out)
    arguments = (products, detwei, out, own, np.int32(n_points))
    launch(CUDA, f"tet_shape_shape<{per}>", count, n_samples, arguments, per_block=own)
    return out


@tet_shape_dshape.register("cuda")
def _(shape, dshape, detwei, out):
    n_points, n_elements, n_samples = detwei.shape
    out = cuda.output(out, detwei, (48, n_elements, n_samples))
    arguments = (shape, dshape, detwei, out, np.int32(dshape.shape[-1] == n_samples), np.int32(n_points))
    count = n_elements * n_samples
    launch(CUDA, "tet_shape_dshape", count, n_samples, arguments, DERIVATIVE_THREADS, DERIVATIVE_THREADS // 3)
    return out


@tet_gradient_tensor.register("cuda")
def _(a, tensor, b, detwei, out):
    operands = (a, tensor, a if b is None else b, detwei)
    n_points, n_elements = detwei.shape[:2]
    n_samples = max(operand.shape[-1] for operand in operands)
    out = cuda.output(out, detwei, (16, n_elements, n_samples))
    own = np.int32(sum(1 << k for k, operand in enumerate(operands) if operand.shape[-1] == n_samples))
    count = n_elements * n_samples
    owned = owned_pairs(cuda.THREADS, count, out)
    function = cuda.instance("tet_gradient_tensor", b is None, owned == cuda.THREADS)
    launch(CUDA, function, count, n_samples, (*operands, out, owned, own, np.int32(n_points)), per_block=owned)
    return out
