"""Labelled inputs for every kernel: the awkward values are planted here, once, for all backends."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ensemble._backend import to_numpy
from ensemble._kernels.all_kernels import KERNELS
from ensemble._kernels.sparse.exact_sums import ROW_LENGTH
from ensemble._kernels.sparse.product_graphs import product_graph, slab_tasks, transpose_graph
from ensemble.apps.fem import HexMesh, elements
from ensemble.apps.fem.discretization import upper_graph
from ensemble.linalg import CrsGraph
from ensemble.linalg.factorizations.orderings import elimination_of, filled_graph
from ensemble.multigrid.gauss_seidel import colours_of


@dataclass(frozen=True)
class Case:
    """One call of a kernel: positional arrays, the last usually an output buffer or None."""

    kernel: str
    label: str
    arrays: tuple[Any, ...]
    in_place: tuple[int, ...] = ()  # arguments that the kernel changes and the test compares
    host_only: bool = False  # arguments that no device kernel is ever given

    def __str__(self) -> str:
        return f"{self.kernel}-{self.label}"


def random_graph(rng, n_rows, n_columns, per_row=4, square_diagonal=False):
    """(indptr, indices) with rows of up to `per_row` entries, one of them empty."""
    columns = rng.integers(0, n_columns, (n_rows, per_row)).tolist()
    lengths = rng.integers(0, min(per_row, n_columns) + 1, n_rows).tolist()
    rows = [
        sorted({*chosen[:length], *([i] if square_diagonal else [])})
        for i, (chosen, length) in enumerate(zip(columns, lengths, strict=True))
    ]
    if n_rows > 1 and not square_diagonal:
        rows[1] = []
    indptr = np.zeros(n_rows + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    return indptr, np.array([j for row in rows for j in row], np.int32)


# 4, 5, 32 and 37 samples are tiles of 32, 4 and 1, for some kernels of 4 and 1: every width of a tile is compiled by
# itself, for every kernel. Slow tests have the others.
SHAPES = {
    "one_sample": (9, 9, 1, np.float64),
    "odd_samples": (9, 9, 5, np.float64),
    "wide": (13, 13, 32, np.float64),
    "many_tiles": (5, 5, 37, np.float64),
    "float32": (9, 9, 4, np.float32),
    "not_square": (6, 11, 5, np.float64),
    "no_entries": (4, 4, 4, np.float64),
    "over_one_block": (700, 700, 5, np.float64),
    "long_rows": (150, 150, 4, np.float64),
}


def settings(seed, square=False):
    """One generator, shape and dtype per label; square kernels skip the shape that is not."""
    for k, (label, (n, m, s, dtype)) in enumerate(SHAPES.items()):
        if square and n != m:
            continue
        yield label, np.random.default_rng(seed + k), n, m, s, dtype


def graph_for(label, rng, n, m):
    if label == "no_entries":
        return np.zeros(n + 1, np.int32), np.zeros(0, np.int32)
    return random_graph(rng, n, m, per_row=60 if label == "long_rows" else 4)


def numbers(rng, shape, dtype, nan_in_last=True):
    """Normal numbers with a NaN and an infinity in the last of several samples."""
    values = rng.standard_normal(shape).astype(dtype)
    if nan_in_last and shape[-1] > 1 and values.size:
        values[..., -1].reshape(-1)[0] = np.nan
        values[shape[0] // 2, ..., -1] = np.inf
    return values


def product_cases(name, seed, extra=0):
    for label, rng, n, m, s, dtype in settings(seed):
        indptr, indices = graph_for(label, rng, n, m)
        vectors = [numbers(rng, (m if k == 0 else n, s), dtype) for k in range(1 + extra)]
        for kind, width in (("", s), ("_shared", 1)):
            values = rng.standard_normal((indices.size, width)).astype(dtype)
            out = numbers(rng, (n, s), dtype) if name == "spmv_add" else None
            in_place = (4,) if name == "spmv_add" else ()
            yield Case(name, label + kind, (indptr, indices, values, *vectors, out), in_place)


def square_cases(name, seed, build):
    """Cases of kernels on a square matrix: `build(rng, n, s, dtype, values)` gives the arguments after the matrix."""
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        indptr, indices = graph_for(label, rng, n, n)
        for kind, width in (("", s), ("_shared", 1)):
            values = rng.standard_normal((indices.size, width)).astype(dtype)
            arguments, in_place = build(rng, n, s, dtype, width)
            yield Case(name, label + kind, (indptr, indices, values, *arguments), in_place)


BLOCKS = {"not_square": (1, 3), "many_tiles": (6, 6), "wide": (2, 2), "one_sample": (3, 3)}
"""Block shapes by label; others have 3 by 3 blocks."""


def block_cases(name, seed, build=None):
    """Cases of kernels on matrices of blocks; with `build`, as for `square_cases`, on square ones."""
    for label, rng, n, m, s, dtype in settings(seed, square=build is not None):
        if label in ("many_tiles", "long_rows") and name != "block_spmv":
            continue  # all share one way over tiles and rows, and every width is compiled anew
        graph, (r, c) = graph_for(label, rng, n, m), BLOCKS.get(label, (3, 3))
        for kind, width in (("", s), ("_shared", 1)):
            if kind and label in ("wide", "many_tiles"):
                continue
            values = rng.standard_normal((graph[1].size, r, c, width)).astype(dtype)
            if build is not None:
                arguments, in_place = build(rng, n * r, s, dtype, width)
                yield Case(name, label + kind, (*graph, values, *arguments), in_place)
            elif name == "block_spmv_transpose":
                x = numbers(rng, (n * r, s), dtype)
                yield Case(name, label + kind, (*transpose_graph(*graph, m), values, x, None))
            else:
                vectors = [numbers(rng, (m * c, s), dtype), numbers(rng, (n * r, s), dtype)]
                yield Case(name, label + kind, (*graph, values, *vectors[: 1 + (name == "block_residual")], None))


def gather_cases(seed):
    for label, rng, n, m, s, dtype in settings(seed):
        graph = graph_for(label, rng, n, m)
        yield Case("gather_sums", label, (*graph, numbers(rng, (m, s), dtype), None))
        if label == "odd_samples":
            sources = rng.integers(0, m, graph[1].size).astype(np.int32)
            yield Case(
                "gather_sums",
                label + "_blocks",
                (graph[0], sources, numbers(rng, (m, 3, 3, s), dtype).reshape(m, 9 * s), None),
            )


def packed_cases(seed):
    for label, rng, n, m, s, dtype in settings(seed):
        x, rows = numbers(rng, (m, s), dtype), rng.integers(0, m, n)
        yield Case("packed_rows", label, (x, rows, None))
        yield Case("packed_rows", label + "_int32", (x, rows.astype(np.int32), None))


DIGIT_SHAPES = {
    "one_sum": (1, 40, [0, 3, 3, 11, 40], 1, np.float64),
    "two_sums": (2, 9, [0, 4, 9], 5, np.float64),
    "many_domains": (1, 300, range(0, 301, 2), 4, np.float64),
    "float32": (3, 7, [0, 2, 7], 4, np.float32),
    "no_chunks": (1, 0, [0], 3, np.float64),
}


def partial_sums(rng, shape, dtype):
    """Of all magnitudes and signs, zeros and subnormal numbers among them, with NaN and both infinities."""
    span = (-1000, 900) if dtype == np.float64 else (-140, 120)
    values = np.ldexp(rng.standard_normal(shape), rng.integers(*span, shape)).astype(dtype)
    values[rng.uniform(size=shape) < 0.1] = 0.0
    if values.size > 20:
        values[..., 0, 0] = np.finfo(dtype).smallest_subnormal
        values[0, 1, -1], values[-1, 2, -1] = np.nan, -np.inf
        if shape[2] > 2:
            values[0, :2, 1], values[0, 2, 2] = [np.inf, -np.inf], np.inf
    return values


def digit_cases(seed):
    for k, (label, (n_sums, n_chunks, starts, s, dtype)) in enumerate(DIGIT_SHAPES.items()):
        partials = partial_sums(np.random.default_rng(seed + k), (n_sums, n_chunks, s), dtype)
        digits = np.zeros((n_sums, s, ROW_LENGTH), np.int64)
        yield Case("domain_digits", label, (partials, np.array(starts, np.int64), digits), (2,))


def exact_total_cases(seed):
    for k, (label, (n_sums, n_chunks, starts, s, dtype)) in enumerate(DIGIT_SHAPES.items()):
        partials = partial_sums(np.random.default_rng(seed + k), (n_sums, n_chunks, s), dtype)
        work = np.zeros((n_sums, s, ROW_LENGTH), np.int64), np.zeros(n_sums, np.int32)
        arrays = partials, np.array(starts, np.int64), *work, np.ones((n_sums, s), dtype)
        yield Case("exact_totals", label, arrays, (2, 3))


def rounding_cases(seed):
    """Sums of few and many numbers, whose digits have either sign, and sums that cancel."""
    for k, (label, dtype) in enumerate([("double", np.float64), ("float32", np.float32)]):
        rng, sums = np.random.default_rng(seed + k), []
        for size in (1, 2, 3, 5, 40):
            for spread in (2, 80, 1500):
                x = np.ldexp(rng.standard_normal((1, size, 8)), rng.integers(-1074, -1074 + spread, (1, size, 8)))
                with np.errstate(over="ignore"):
                    sums += [x, np.ldexp(x, 1000), np.ldexp(x, 1074)]
        ties = np.array([1.0, 2.0**-53, 2.0**-53, -(2.0**-1074), 2.0**1023, 2.0**1023, -(2.0**970), 2.0**-1074])
        sums += [np.tril(np.ones((8, 8))).T[None] * ties[None, :, None], partial_sums(rng, (1, 9, 8), np.float64)]
        digits = np.zeros((len(sums), 8, ROW_LENGTH), np.int64)
        for own, terms in zip(digits, sums, strict=True):
            KERNELS["domain_digits"].reference(terms, np.arange(terms.shape[1] + 1), own[None])
        yield Case("rounded_digits", label, (digits, np.zeros((len(sums), 8), dtype)), (0,))


def symmetric_matrix(rng, n, s, dtype, per_row=3):
    """The graph and the stored values of a symmetric matrix; its last row reaches the first."""
    indptr, indices = random_graph(rng, n, n, per_row, square_diagonal=True)
    pattern = sp.csr_array((np.ones(indices.size), indices, indptr), shape=(n, n))
    corner = sp.csr_array(([1.0], ([0], [n - 1])), shape=(n, n))
    pattern = sp.csr_array(pattern + pattern.T + corner + corner.T)
    pattern.sort_indices()
    graph = CrsGraph(pattern.indptr, pattern.indices, (n, n))
    values = rng.standard_normal((int(graph.upper.starts[-1]), s)).astype(dtype)
    return (graph.indptr, graph.indices, *graph.upper), values


def symmetric_cases(name, seed, build):
    """Cases of kernels on symmetric matrices: `build` as for `square_cases`."""
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        for kind, width in (("", s), ("_shared", 1)):
            if label == "many_tiles" and (width == 1 or name != "symmetric_spmv"):
                continue  # all share one way over the tiles, and every width is compiled anew
            graph, values = symmetric_matrix(rng, n, width, dtype, per_row=60 if label == "long_rows" else 3)
            arguments, in_place = build(rng, n, s, dtype, width)
            if label == "no_entries":
                graph, values = (graph[0][:1] * 0, graph[1][:0], graph[2][:1] * 0, graph[3][:0], 0), values[:0]
                arguments = tuple(a[:0] if getattr(a, "ndim", 0) == 2 else a for a in arguments)
            yield Case(name, label + kind, (graph, values, *arguments), tuple(i - 1 for i in in_place))


def vector_cases(name, seed, build):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        arguments, in_place = build(rng, n, s, dtype)
        yield Case(name, label, arguments, in_place)


def coefficients(rng, s, dtype):
    """One value a sample; the second sample is a finished one."""
    values = rng.uniform(0.5, 1.5, s).astype(dtype)
    values[1:2] = 0.0
    return values


def spmv_dot_arguments(rng, n, s, dtype, width):
    return (numbers(rng, (n, s), dtype), None), ()


def chebyshev_arguments(first):
    def build(rng, n, s, dtype, width):
        b, x, w = (numbers(rng, (n, s), dtype) for _ in range(3))
        dinv = rng.uniform(0.5, 1.5, (n, width)).astype(dtype)
        a, c = coefficients(rng, s, dtype), coefficients(rng, s, dtype)
        if first:
            return (dinv, b, x, c, np.full_like(w, np.nan), None), (7,)
        return (dinv, b, x, a, c, w, None), (8,)

    return build


def relax_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        indptr, indices = graph_for(label, rng, n, n)
        marks = rng.integers(0, 2, n).astype(np.uint8)
        for kind, width in (("", s), ("_shared", 1)):
            if kind and label in ("wide", "many_tiles"):
                continue  # every width is compiled anew
            values, dinv = (rng.standard_normal((rows, width)).astype(dtype) for rows in (indices.size, n))
            vectors = (numbers(rng, (n, s), dtype) for _ in range(2))
            yield Case("relax_rows", label + kind, (marks, 1, indptr, indices, values, dinv, *vectors, None))


def strong_cases(seed):
    for label, rng, n, m, s, dtype in settings(seed):
        indptr, indices = graph_for(label, rng, n, m)
        values = rng.standard_normal((indices.size, s)).astype(dtype)
        values[rng.uniform(size=values.shape) < 0.2] = 0.0
        for measure, name in enumerate(("off_diagonal", "diagonal", "all_entries")):
            for mean in (False, True):
                yield Case(
                    "strong_entries", f"{label}_{name}{'_mean' * mean}", (indptr, indices, values, measure, 0.4, mean)
                )


def power_arguments(rng, n, s, dtype, width):
    dinv = rng.uniform(0.5, 1.5, (n, width)).astype(dtype)
    return (dinv, numbers(rng, (n, s), dtype), rng.uniform(0.5, 1.5, s).astype(dtype), None), ()


def chebyshev_start_arguments(rng, n, s, dtype):
    dinv = rng.uniform(0.5, 1.5, (n, s)).astype(dtype)
    return (dinv, numbers(rng, (n, s), dtype), coefficients(rng, s, dtype), None), ()


def gauss_seidel_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        if label in ("many_tiles", "long_rows"):
            continue  # one way over the tiles and rows for all kernels, and every width is compiled anew
        indptr, indices = graph_for(label, rng, n, n)
        rows, starts = colours_of(CrsGraph(indptr, indices, (n, n)))
        order = rng.permutation(np.repeat(np.arange(len(starts) - 1), 2)).tolist()
        for kind, width in (("", s), ("_shared", 1)):
            values = rng.standard_normal((indices.size, width)).astype(dtype)
            dinv = rng.uniform(0.5, 1.5, (n, width)).astype(dtype)
            b, x = (numbers(rng, (n, s), dtype) for _ in range(2))
            arrays = indptr, indices, values, dinv, rows, starts, order, b, x
            yield Case("gauss_seidel", label + kind, arrays, (8,))


def transpose_cases(seed):
    for label, rng, n, m, s, dtype in settings(seed):
        graph = graph_for(label, rng, n, m)
        values = rng.standard_normal((graph[1].size, s)).astype(dtype)
        yield Case("spmv_transpose", label, (*transpose_graph(*graph, m), values, numbers(rng, (n, s), dtype), None))
        yield Case(
            "spmv_transpose", label + "_shared",
            (*transpose_graph(*graph, m), values[:, :1].copy(), numbers(rng, (n, s), dtype), None),
        )  # fmt: skip


def diagonal_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        values = numbers(rng, (3 * n, s), dtype)
        entries = rng.integers(0, 3 * n, n).astype(np.int32)
        entries[::3] = -1
        yield Case("diagonal", label, (entries, values, None))
    yield Case("diagonal", "no_values", (np.full(3, -1, np.int32), np.zeros((0, 2)), None))


def dense_cases(seed):
    for label, rng, n, m, s, dtype in settings(seed):
        if n > 100:
            continue
        matrix = rng.standard_normal((n, m, s)).astype(dtype)
        yield Case("dense_product", label, (matrix, numbers(rng, (m, s), dtype), None))
        yield Case("dense_product", label + "_shared", (matrix[:, :, :1].copy(), numbers(rng, (m, s), dtype), None))


def inverse_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        if n > 100 or label == "no_entries":
            continue
        for kind, size in (("", n), ("_blocks", 37), ("_tiles", 137)):
            full = rng.standard_normal((size, size, s))
            full = np.einsum("iks,jks->ijs", full, full) + size * np.eye(size)[..., None]
            if s > 1 and not kind:
                full[..., -1] = np.ones((size, size))  # singular
            rows, columns = (np.asarray(a, np.int32) for a in np.nonzero(np.ones((size, size))))
            yield Case("dense_inverses", label + kind, (rows, columns, full.reshape(-1, s).astype(dtype), size, None))


def element_cases(name, seed):
    """Tetrahedra of random corners, for one block of a device and more; the second element has no volume."""
    for k, (n_elements, n_samples) in enumerate(((397, 1), (1, 1), (5, 3), (3, 8), (4, 33))):
        rng = np.random.default_rng(seed + k)
        n_nodes = n_elements + 4
        tets = np.array([rng.permutation(n_nodes)[:4] for _ in range(n_elements)], np.int32)
        points = numbers(rng, (n_nodes, 3, n_samples), np.float64)
        if n_elements > 1:
            tets[1, 3] = tets[1, 0]
        label = f"{n_elements}_by_{n_samples}"
        if name == "tet_values":
            for n_components in (1, 3, 9):
                field = numbers(rng, (n_nodes, n_components, n_samples), np.float64)
                yield Case(name, f"{label}_of_{n_components}", (field, tets, None))
        for count in (1, 11) if name != "tet_values" else ():
            option = count == 1 if name == "tet_closed_form" else count
            option = rng.uniform(-1.0, 1.0, count) if name == "tet_transform" else option
            yield Case(name, f"{label}_{count}", (points, tets, option, None))


def element_matrix_cases(name, seed):
    """Operands with samples of their own or one for all; one point, eleven, more than are read at once; many tiles."""
    for k, (n_elements, n_samples, own, n_points) in enumerate(
        ((141, 1, (1, 1, 1, 1), 11), (1, 1, (1, 1, 1, 1), 1), (5, 3, (3, 1, 3, 3), 2), (3, 8, (1, 8, 1, 1), 1),
         (151, 2, (2, 1, 1, 2), 3), (70, 2, (2, 2, 2, 2), 25), (1, 2, (1, 2, 1, 2), 11), (1301, 2, (1, 1, 1, 2), 11))
    ):  # fmt: skip
        rng = np.random.default_rng(seed + k)
        a, tensor, b, detwei = (
            numbers(rng, (n_points, *shape, n_elements, s), np.float64)
            for shape, s in zip(((4, 3), (3, 3), (4, 3), ()), own, strict=True)
        )
        label = f"{n_elements}_by_{n_samples}_at_{n_points}"
        if name == "tet_gradient_tensor":
            yield Case(name, label, (a, tensor, b, detwei, None))
            yield Case(name, label + "_same", (a, tensor, None, detwei, None))
            continue
        shape, detwei = rng.standard_normal((n_points, 4)), numbers(rng, (n_points, n_elements, n_samples), np.float64)
        products = shape[:, :, None] * shape[:, None, :]
        own_arrays = (products,) if name == "tet_shape_shape" else (shape, a)
        yield Case(name, label, (*own_arrays, detwei, None))


def small_solve_cases(seed):
    """Unsorted pivots, a singular matrix and one with a NaN; sizes in and beyond registers of a device."""
    sizes = ((3, 1, 37, float), (6, 2, 8, float), (1, 1, 1, float), (9, 2, 5, np.float32), (4, 1, 0, float))
    for k, (n, sides, count, dtype) in enumerate(sizes):
        rng = np.random.default_rng(seed + k)
        A, b = (rng.standard_normal((n, m, count)).astype(dtype) for m in (n, sides))
        if count > 1:
            A[:, -1, 1] = 2 * A[:, 0, 1] if n > 1 else 0.0
            A[n // 2, 0, -1], b[0, 0, 2] = np.nan, np.inf
            A[0, 0, 3] = 0.0
        yield Case("small_solve", f"{n}_by_{sides}_of_{count}", (A, b, None))


def symmetric3_cases(name, seed):
    """Full, diagonal, repeated, graded, singular and zero matrices, and what is not finite."""
    for k, (count, dtype) in enumerate(((37, float), (8, np.float32), (5, float), (1, float), (0, float))):
        rng = np.random.default_rng(seed + k)
        A = rng.standard_normal((3, 3, count))
        A = np.einsum("iks,jks->ijs", A, A)
        if count > 8:
            A[..., 1], A[..., 2], A[..., 3] = 0.0, np.eye(3), np.diag([3.0, 1.0, 2.0])
            A[..., 4] = np.ones((3, 3)) + 1e-9 * np.eye(3)
            A[..., 5] *= np.outer([1e8, 1.0, 1e-8], [1e8, 1.0, 1e-8])
            A[..., 6] -= 2.0 * np.eye(3)
            A[1, 1, 7], A[2, 0, 9], A[..., 10] = np.nan, np.inf, np.inf
            A[..., 11:15] /= np.abs(A[..., 11:15]).max(axis=(0, 1))
            A[..., 11], A[..., 12] = np.finfo(dtype).max * A[..., 11], 1e10 * np.finfo(dtype).tiny * A[..., 12]
            A[..., 13] *= 1e-3 * np.finfo(dtype).tiny
            A[..., 14] *= np.finfo(dtype).max
            A[1, 1, 14] = np.nan
        options = ((False,), (True,)) if name == "small_root3" else ((),)
        for option in options:
            yield Case(name, "_".join(map(str, (count, np.dtype(dtype), *option))), (A.astype(dtype), *option, None))


def sample_cases(name, seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        chosen = rng.permutation(s)[: max(1, s // 2)]
        if name == "take_samples":
            yield Case(name, label, (numbers(rng, (n, s), dtype), chosen, None))
        else:
            narrow, wide = numbers(rng, (n, chosen.size), dtype), numbers(rng, (n, s), dtype)
            yield Case(name, label, (narrow, chosen, wide), (2,))


def coupled_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        indptr, indices = graph_for(label, rng, n, n)
        values = numbers(rng, (indices.size, s), dtype) if indices.size else np.zeros((0, s), dtype)
        values[: indices.size // 2] = 0.0
        yield Case("coupled_rows", label, ((indptr, indices), values))
        if label != "no_entries":
            graph, stored = symmetric_matrix(rng, n, s, dtype)
            stored[: stored.shape[0] // 2] = 0.0
            yield Case("coupled_rows", label + "_symmetric", ((*graph[:2], graph[3]), stored))


def reciprocal_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        d = numbers(rng, (n, s), dtype)
        d[: n // 3], d[n // 3 : n // 2] = 0.0, -np.finfo(dtype).smallest_normal / 4
        yield Case("reciprocal", label, (d,), (0,))


def too_small_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        size = np.abs(numbers(rng, (n, s), dtype))
        size[: n // 2, ::2] *= dtype(1e-6)
        size[n // 2 :, 1::2] = 0.0
        yield Case("too_small", label, (size, np.exp2(rng.integers(-3, 4, s)).astype(dtype), 1e-5))


def galerkin_setting(rng, n, per_row=3):
    a = random_graph(rng, n, n, square_diagonal=True)
    n_coarse = max(1, n // 3)
    p = random_graph(rng, n, n_coarse, per_row=per_row)
    return a, p, n_coarse


def product_values_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        a, p, n_coarse = galerkin_setting(rng, n)
        graph = product_graph(*a, *p, n_coarse)
        for kind, width_a, width_p in (("", s, s), ("_shared_a", 1, s), ("_shared_p", s, 1)):
            values = numbers(rng, (a[1].size, width_a), dtype)
            b = rng.standard_normal((p[1].size, width_p)).astype(dtype)
            yield Case("product_values", label + kind, (a, values, p, b, graph, None))


def galerkin_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        a, p, n_coarse = galerkin_setting(rng, 2500 if label == "over_one_block" else n)
        ap = product_graph(*a, *p, n_coarse)
        restriction = transpose_graph(*p, n_coarse)
        coarse = product_graph(*restriction[:2], *ap, n_coarse)
        tasks = 256, *slab_tasks(*restriction[:2], a[0].size - 1, 256)
        for kind, width_a, width_p in (("", s, s), ("_shared_a", 1, s), ("_shared_p", s, 1)):
            values = numbers(rng, (a[1].size, width_a), dtype)
            b = rng.standard_normal((p[1].size, width_p)).astype(dtype)
            yield Case("galerkin_values", label + kind, (a, values, p, b, ap, restriction, tasks, coarse, None))
        entries = rng.integers(0, a[1].size, a[1].size).astype(np.int32)  # several entries may share a value
        arrays = ((*a, entries), values, p, b[:, :1].copy(), ap, restriction, tasks, coarse, None)
        yield Case("galerkin_values", label + "_mapped", arrays, (), True)


def prolongator_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        a = random_graph(rng, n, n, square_diagonal=True)
        n_coarse = max(1, n // 3)
        owner = rng.integers(-1, n_coarse, n)
        indptr = np.zeros(n + 1, np.int32)
        np.cumsum(owner >= 0, out=indptr[1:])
        t = (indptr, owner[owner >= 0].astype(np.int32))
        full = product_graph(*a, *t, n_coarse)
        inside, length = owner >= 0, np.diff(full[0])
        kept = np.zeros_like(full[0])
        np.cumsum(np.where(inside, length, 0), out=kept[1:])
        p = (kept, full[1][np.repeat(inside, length)])
        values, dinv = numbers(rng, (a[1].size, s), dtype), rng.uniform(0.5, 1.5, (n, s)).astype(dtype)
        tentative = rng.uniform(0.2, 0.8, (t[1].size, 1)).astype(dtype)
        yield Case(
            "smooth_prolongator", label, (a, values, dinv, coefficients(rng, s, dtype), t, tentative, p, None, None)
        )
        mapped = (*a, rng.integers(0, a[1].size, a[1].size).astype(np.int32))
        arrays = (mapped, values, dinv, coefficients(rng, s, dtype), t, tentative, p, None, None)
        yield Case("smooth_prolongator", label + "_mapped", arrays, (), True)


def cg_update_arguments(rng, n, s, dtype):
    p, q = numbers(rng, (n, s), dtype), numbers(rng, (n, s), dtype)
    x, r = numbers(rng, (n, s), dtype, False), numbers(rng, (n, s), dtype, False)
    alpha = coefficients(rng, s, dtype)
    alpha[-1] = 0.0 if s > 1 else alpha[-1]  # the sample whose direction is NaN is frozen
    return (alpha, p, q, x, r), (3, 4)


def cg_direction_arguments(rng, n, s, dtype):
    return (coefficients(rng, s, dtype), numbers(rng, (n, s), dtype), numbers(rng, (n, s), dtype)), (2,)


def basis_cases(name, seed):
    """Bases of one and of five vectors; a NaN in the last sample, whose coefficients are zero where there are any."""
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        for n_vectors in (1, 5):
            basis = numbers(rng, (n_vectors, n, s), dtype)
            if name == "basis_dots":
                yield Case(name, f"{label}_{n_vectors}", (basis, numbers(rng, (n, s), dtype), None))
            else:
                h = rng.standard_normal((n_vectors, s)).astype(dtype)
                h[:, 1:2] = 0.0
                h[:, -1] = 0.0 if s > 1 else h[:, -1]
                yield Case(name, f"{label}_{n_vectors}", (h, basis, numbers(rng, (n, s), dtype, False)), (2,))


def basis_block_cases(name, seed):
    """Blocks of one to four vectors, of which three are treated together; NaN and zeros as in `basis_cases`."""
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        for n_vectors, n_block in ((1, 1), (5, 2), (4, 3), (2, 4)):
            basis, block = numbers(rng, (n_vectors, n, s), dtype), numbers(rng, (n_block, n, s), dtype, False)
            if name == "block_dots":
                yield Case(name, f"{label}_{n_vectors}_{n_block}", (basis, block, None))
            else:
                h = rng.standard_normal((n_vectors, n_block, s)).astype(dtype)
                h[:, :, 1:2] = 0.0
                h[:, :, -1] = 0.0 if s > 1 else h[:, :, -1]
                yield Case(name, f"{label}_{n_vectors}_{n_block}", (h, basis, block), (2,))


def bicgstab_update_arguments(rng, n, s, dtype):
    omega, z, t, x, r = cg_update_arguments(rng, n, s, dtype)[0]
    return (omega, numbers(rng, (n, s), dtype), z, t, x, r), (4, 5)


def bicgstab_direction_arguments(rng, n, s, dtype):
    beta, omega = coefficients(rng, s, dtype), coefficients(rng, s, dtype)
    return (beta, omega, *(numbers(rng, (n, s), dtype) for _ in range(3))), (4,)


def lanczos_step_arguments(rng, n, s, dtype):
    h = rng.uniform(0.5, 1.5, (3, s)).astype(dtype)
    h[2, ::3] = 0.0
    return (h, *(numbers(rng, (n, s), dtype) for _ in range(3))), (3,)


def minres_update_arguments(rng, n, s, dtype):
    h = rng.uniform(0.5, 1.5, (6, s)).astype(dtype)
    h[1, ::3], h[2, ::2], h[3, 1::4] = 0.0, 0.0, 0.0
    z, w, p, v = (numbers(rng, (n, s), dtype) for _ in range(4))
    x, r = numbers(rng, (n, s), dtype, False), numbers(rng, (n, s), dtype, False)
    return (h, z, w, p, x, v, r), (3, 4, 6)


MESHES = {
    "one_sample": ((2, 3, 2), 1, np.float64),
    "odd_samples": ((3, 2, 4), 5, np.float64),
    "many_tiles": ((2, 2, 2), 37, np.float64),
    "float32": ((3, 2, 2), 4, np.float32),
    "over_one_block": ((8, 9, 7), 5, np.float64),
    "tall": ((1, 2, 19), 4, np.float64),
}


def coefficient_cases(seed):
    for k, (label, (cells, s, dtype)) in enumerate(MESHES.items()):
        rng = np.random.default_rng(seed + k)
        modes = rng.standard_normal((8 * int(np.prod(cells)), 3)).astype(dtype)
        yield Case("affine_coefficient", label, (np.ones(1, dtype), modes, numbers(rng, (3, s), dtype), None))


def diffusion_cases(name, seed):
    """Graded meshes, with and without reaction and advection; a NaN in the last sample's coefficient and state."""
    for k, (label, (cells, s, dtype)) in enumerate(MESHES.items()):
        mesh = HexMesh.box(cells, grading=1.0)
        incidence, (indptr, indices) = mesh.row_incidence(), mesh.coupling_graph()
        fixed = mesh.on_face(2, 0) | mesh.on_face(2, -1)
        for kind, reaction, flow in (("", np.zeros((0, 8, 8)), 0.0), ("_full", 1.4 * elements.MASS, -0.4)):
            rng = np.random.default_rng(seed + k)
            tables = (mesh.edges, elements.SHAPE, elements.STIFFNESS, reaction, flow * elements.ADVECTION)
            arrays = (
                *incidence[:3], mesh.connectivity, fixed, *(table.astype(dtype) for table in tables),
                numbers(rng, (8 * mesh.n_cells, s), dtype), numbers(rng, (mesh.n_nodes, s), dtype),
            )  # fmt: skip
            if name == "diffusion_residual":
                yield Case(name, label + kind, (*arrays, None))
            else:
                out = (np.full((indices.size, s), np.nan, dtype), np.full((mesh.n_nodes, s), np.nan, dtype))
                yield Case(name, label + kind, (*arrays, indptr, indices, incidence.slots, *out), (15, 16))
                starts, columns, slots = upper_graph(indptr, indices, incidence)
                half = (np.full((columns.size, s), np.nan, dtype), out[1].copy())
                yield Case(name, label + kind + "_upper", (*arrays, starts, columns, slots, *half), (15, 16), True)


AFFINE_TERMS = {"no_entries": 1}
"""Terms of an affine entry where they are not three: every other number is another set of compiled kernels."""


def affine_cases(name, seed, build, square=True):
    """Cases of kernels on affine matrices: `build(rng, n, m, s, dtype)` gives the arguments after the coefficients."""
    for label, rng, n, m, s, dtype in settings(seed, square):
        graph = graph_for(label, rng, n, m)
        if label == "many_tiles" and name != "affine_spmv":
            continue
        n_terms = AFFINE_TERMS.get(label, 3)
        terms = rng.standard_normal((graph[1].size, n_terms)).astype(dtype)
        coefficients = numbers(rng, (n_terms - 1, s), dtype)
        matrix = transpose_graph(*graph, m) if name == "affine_spmv_transpose" else graph
        arguments, in_place = build(rng, n, m, s, dtype)
        yield Case(name, label, (*matrix, terms, coefficients, *arguments), in_place)


def affine_vector(which):
    def build(rng, n, m, s, dtype):
        x = numbers(rng, (n if which == "transpose" else m, s), dtype)
        return (x, None) if which != "residual" else (x, numbers(rng, (n, s), dtype), None), ()

    return build


def affine_chebyshev_arguments(first):
    def build(rng, n, m, s, dtype):
        arguments, in_place = chebyshev_arguments(first)(rng, n, s, dtype, s)
        return arguments, tuple(i + 1 for i in in_place)

    return build


def affine_values_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        n_terms = AFFINE_TERMS.get(label, 3)
        terms = rng.standard_normal((0 if label == "no_entries" else 3 * n, n_terms)).astype(dtype)
        yield Case("affine_values", label, (terms, numbers(rng, (n_terms - 1, s), dtype), None))


def scaled_kinds(rng, n, s, dtype):
    """Scaled or not, narrowing or not: (label, scale, dinv, dtype of r)."""
    scale = rng.uniform(0.5, 1.5, (n, s)).astype(dtype)
    for kind, scaled, width, outside in (("", True, s, np.float64), ("_plain", False, 1, dtype)):
        yield kind, scale if scaled else None, rng.uniform(0.5, 1.5, (n, width)).astype(dtype), outside


def scaled_start_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        for kind, scale, dinv, outside in scaled_kinds(rng, n, s, dtype):
            b, out = (np.full((n, s), np.nan, dtype) for _ in range(2))
            enter = powers_of_two(rng, s, outside)
            arrays = (scale, enter, numbers(rng, (n, s), outside), dinv, coefficients(rng, s, dtype), b, out)
            yield Case("scaled_start", label + kind, arrays, (5, 6))


def scaled_finish_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        indptr, indices = graph_for(label, rng, n, n)
        for kind, scale, dinv, outside in scaled_kinds(rng, n, s, dtype):
            values = rng.standard_normal((indices.size, dinv.shape[1])).astype(dtype)
            b, x, w = (numbers(rng, (n, s), dtype) for _ in range(3))
            a, c = coefficients(rng, s, dtype), coefficients(rng, s, dtype)
            r = numbers(rng, (n, s), outside)
            leave = powers_of_two(rng, s, outside)
            arrays = (scale, leave, indptr, indices, values, dinv, b, x, a, c, w, r, None)
            yield Case("scaled_finish", label + kind, arrays)


def symmetric_finish_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        if label in ("many_tiles", "no_entries"):
            continue  # as the other kernels on symmetric matrices
        for kind, _, dinv, outside in scaled_kinds(rng, n, s, dtype):
            graph, values = symmetric_matrix(rng, n, dinv.shape[1], dtype)
            b, x, w = (numbers(rng, (n, s), dtype) for _ in range(3))
            a, c = coefficients(rng, s, dtype), coefficients(rng, s, dtype)
            r, leave = numbers(rng, (n, s), outside), powers_of_two(rng, s, outside)
            yield Case("symmetric_finish", label + kind, (leave, graph, values, dinv, b, x, a, c, w, r, None))


def restricted_residual_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        if label == "many_tiles":
            continue  # as the other kernels on symmetric matrices
        n_coarse = 0 if label == "no_entries" else n // 3
        for kind, width, width_p in (("", s, s), ("_shared", 1, 1), ("_shared_prolongator", s, 1)):
            graph, values = symmetric_matrix(rng, n, width, dtype, per_row=60 if label == "long_rows" else 3)
            graph_p = np.zeros(n + 1, np.int32), np.zeros(0, np.int32)
            if n_coarse:
                graph_p = random_graph(rng, n, n_coarse)
            p = rng.standard_normal((graph_p[1].size, width_p)).astype(dtype)
            x, b = (numbers(rng, (n, s), dtype) for _ in range(2))
            r = None if label == "odd_samples" else np.full((n, s), np.nan, dtype)
            arrays = (graph, values, x, b, graph_p, transpose_graph(*graph_p, n_coarse), p, r, None)
            yield Case("symmetric_restricted_residual", label + kind, arrays)


def powers_of_two(rng, s, dtype):
    return np.ldexp(1.0, rng.integers(-9, 9, s)).astype(dtype)


def entry_units_cases(seed):
    """Beside others a sample of zeros, one beyond the range of squares, and one with an infinity."""
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        r = numbers(rng, (n, s), dtype)
        if label == "odd_samples":
            r[:, 0], r[:, 1] = 0.0, r[:, 1] * np.finfo(dtype).smallest_normal
            r[n // 2, 2] = np.inf
        yield Case("entry_units", label, (r, powers_of_two(rng, s, dtype), None))


def narrowed_cases(seed):
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        values = numbers(rng, (n, s), np.float64)
        yield Case("narrowed", label, (values, powers_of_two(rng, s, np.float64), np.empty((n, s), dtype)), (2,))


def narrowed_values_cases(seed):
    for label, rng, n, _, s, _ in settings(seed):
        values = numbers(rng, (n, s), np.float64)
        yield Case("narrowed_values", label, (values, np.empty((n, s), np.float32)), (1,))


def symmetric_residual_arguments(rng, n, s, dtype, width):
    return (numbers(rng, (n, s), dtype), numbers(rng, (n, s), dtype), None), ()


def matrix_free_cases(name, seed):
    for k, (label, (cells, s, dtype)) in enumerate(MESHES.items()):
        rng, mesh = np.random.default_rng(seed + k), HexMesh.box(cells, grading=1.0)
        fixed = mesh.on_face(2, 0) | mesh.on_face(2, -1) | mesh.on_face(0, 0)
        factors = rng.uniform(0.5, 1.5, (mesh.n_cells, 3)).astype(dtype)
        kappa = numbers(rng, (8 * mesh.n_cells, s), dtype)
        if name == "hex_product":
            x = numbers(rng, (mesh.n_nodes, s), dtype)
            yield Case(name, label, (mesh.cells, factors, fixed, kappa, x, None))
        else:
            slopes = rng.uniform(0.0, 1.0, (3, 8, 8)).astype(dtype)
            yield Case(name, label, (*mesh.row_incidence()[:3], fixed, factors, slopes, kappa, None))


def series_parts(rng, n_series, n_steps, nx, ny, dtype):
    """Parts of a random state-space model; a part in turn is shared by all series, or constant in time."""

    def part(k, *shape):
        lead = (1 if k % 3 == 0 else n_series, 1 if k % 3 == 1 else n_steps)
        return rng.standard_normal((*lead, *shape)).astype(dtype)

    def covariance(k, n):
        X = part(k, n, n)
        return X @ X.mT

    F, Q, H, R = part(0, nx, nx), covariance(1, nx), part(2, ny, nx), covariance(4, ny)
    y = part(2, ny)
    y[rng.random(y.shape) < 0.3] = np.nan
    m0, X0 = rng.standard_normal((n_series, nx)).astype(dtype), rng.standard_normal((1, nx, nx)).astype(dtype)
    if n_series > 1:
        m0[-1, 0] = np.inf
    return F, Q, H, R, part(3, nx), part(1, ny), y, m0, X0 @ X0.mT


SERIES = {
    "one_series": (1, 7, 3, 2, np.float64),
    "one_step": (1, 1, 3, 2, np.float64),
    "two_series": (2, 5, 3, 2, np.float64),
    "lanes": (11, 6, 3, 2, np.float64),
    "float32": (17, 6, 3, 2, np.float32),
    "more_observations": (4, 5, 1, 2, np.float64),
    "large_state": (1, 3, 9, 1, np.float64),
    "large_float32": (1, 4, 11, 3, np.float32),
    "many_observations": (3, 4, 2, 9, np.float64),
}


def filter_cases(seed):
    for k, (label, sizes) in enumerate(SERIES.items()):
        for last in (False, True):
            arrays = series_parts(np.random.default_rng(seed + k), *sizes)
            yield Case("filter_series", f"{label}{'_last' * last}", (*arrays, k % 2 == 0, last))
            if label in ("lanes", "float32"):  # covariances that are alike
                rng = np.random.default_rng(seed)
                F, Q, H, R, u, d, y, m0, P0 = arrays
                alike = (F[:1], Q[:1], H[:1], R[:1], u, d, rng.standard_normal(y.shape).astype(y.dtype), m0, P0[:1])
                yield Case("filter_series", f"{label}_alike{'_last' * last}", (*alike, k % 2 == 0, last))


def filter_element_cases(seed):
    for k, (label, sizes) in enumerate(SERIES.items()):
        rng = np.random.default_rng(seed + k)
        *steps, m, P = series_parts(rng, *sizes)
        n, nx = m.shape
        A, eta, X = (rng.standard_normal((n, *shape)).astype(m.dtype) for shape in ((nx, nx), (nx,), (nx, nx)))
        yield Case("filter_elements", label, (*steps, A, m, P + np.zeros_like(X), eta, X @ X.mT))


def step_sum_cases(seed):
    rng = np.random.default_rng(seed)
    for n_steps, n_series in ((1, 1), (7, 3), (513, 70), (1030, 1)):
        yield Case("sum_steps", f"{n_steps}_{n_series}", (rng.standard_normal((n_steps, n_series)),), host_only=True)


def smooth_cases(seed):
    for k, (label, sizes) in enumerate(SERIES.items()):
        rng = np.random.default_rng(seed + k)
        F, Q, _, _, u, *_ = series_parts(rng, *sizes)
        n_series, n_steps, nx = sizes[:3]
        m = rng.standard_normal((n_series, n_steps, nx)).astype(sizes[-1])
        X = rng.standard_normal((n_series, n_steps, nx, nx)).astype(sizes[-1])
        X[..., -1] = 0.0  # singular
        for last in (False, True):
            yield Case("smooth_series", f"{label}{'_last' * last}", (F, Q, u, m, X @ X.mT, last))


def factor_cases(name, seed):
    """Factorisations of both kinds, and what is done with them: diagonally dominant but for the planted numbers."""
    for label, rng, n, _, s, dtype in settings(seed, square=True):
        if label in ("over_one_block", "long_rows"):
            continue  # the reference takes each multiplication by itself
        graph = CrsGraph(*random_graph(rng, n, n, square_diagonal=True), (n, n))
        for symmetric in (False, True):
            plan = elimination_of(graph, symmetric, np.arange(n), "amd")
            values = numbers(rng, (graph.nnz, s), dtype)
            values[graph.diagonal_entries] += 8
            if name == "factorized_with_solution":
                for b in (None, numbers(rng, (n, s), dtype)):
                    text = f"{label}{'_symmetric' * symmetric}{'_alone' * (b is None)}"
                    yield Case(name, text, (values, plan, b))
                continue
            if name == "factorized":
                yield Case(name, f"{label}{'_symmetric' * symmetric}", (values, plan, None))
                continue
            with np.errstate(all="ignore"):
                factors = KERNELS["factorized"].reference(values, plan, None)[0]
            if name == "selected_inverse":
                yield Case(name, f"{label}{'_symmetric' * symmetric}", (factors, filled_graph(plan), None))
                continue
            b = numbers(rng, (n, 2, s), dtype)
            for transposed in (False, True):
                text = f"{label}{'_symmetric' * symmetric}{'_transposed' * transposed}"
                yield Case(name, text, (factors, plan, b, transposed, None))
                if not symmetric:
                    yield Case(name, f"{text}_shared", (factors[:, :1].copy(), plan, b, transposed, None))


CASES = {
    "factorized": lambda seed: factor_cases("factorized", seed),
    "factorized_with_solution": lambda seed: factor_cases("factorized_with_solution", seed),
    "factor_solve": lambda seed: factor_cases("factor_solve", seed),
    "selected_inverse": lambda seed: factor_cases("selected_inverse", seed),
    "backward_error": lambda seed: square_cases("backward_error", seed, lambda rng, n, s, dtype, width: (
        (numbers(rng, (n, s), dtype), numbers(rng, (n, s), dtype), numbers(rng, (n, width), dtype)), ())),
    "affine_spmv": lambda seed: affine_cases("affine_spmv", seed, affine_vector("product"), square=False),
    "affine_spmv_dot": lambda seed: affine_cases("affine_spmv_dot", seed, affine_vector("product")),
    "affine_residual": lambda seed: affine_cases("affine_residual", seed, affine_vector("residual"), square=False),
    "affine_spmv_transpose": lambda seed: affine_cases(
        "affine_spmv_transpose", seed, affine_vector("transpose"), square=False),
    "affine_values": affine_values_cases,
    "affine_chebyshev_first": lambda seed: affine_cases(
        "affine_chebyshev_first", seed, affine_chebyshev_arguments(True)),
    "affine_chebyshev_step": lambda seed: affine_cases(
        "affine_chebyshev_step", seed, affine_chebyshev_arguments(False)),
    "affine_chebyshev_last": lambda seed: affine_cases(
        "affine_chebyshev_last", seed, affine_chebyshev_arguments(False)),
    "entry_units": entry_units_cases,
    "narrowed": narrowed_cases,
    "narrowed_values": narrowed_values_cases,
    "symmetric_finish": symmetric_finish_cases,
    "symmetric_restricted_residual": restricted_residual_cases,
    "scaled_start": scaled_start_cases,
    "scaled_finish": scaled_finish_cases,
    "hex_product": lambda seed: matrix_free_cases("hex_product", seed),
    "hex_diagonal": lambda seed: matrix_free_cases("hex_diagonal", seed),
    "affine_coefficient": coefficient_cases,
    "diffusion_residual": lambda seed: diffusion_cases("diffusion_residual", seed),
    "diffusion_jacobian_and_residual": lambda seed: diffusion_cases("diffusion_jacobian_and_residual", seed),
    "spmv": lambda seed: product_cases("spmv", seed),
    "spmv_add": lambda seed: product_cases("spmv_add", seed),
    "residual": lambda seed: product_cases("residual", seed, extra=1),
    "spmv_dot": lambda seed: square_cases("spmv_dot", seed, spmv_dot_arguments),
    "symmetric_spmv": lambda seed: symmetric_cases("symmetric_spmv", seed, spmv_dot_arguments),
    "symmetric_spmv_dot": lambda seed: symmetric_cases("symmetric_spmv_dot", seed, spmv_dot_arguments),
    "symmetric_residual": lambda seed: symmetric_cases("symmetric_residual", seed, symmetric_residual_arguments),
    "symmetric_chebyshev_first": lambda seed: symmetric_cases(
        "symmetric_chebyshev_first", seed, chebyshev_arguments(True)),
    "symmetric_chebyshev_step": lambda seed: symmetric_cases(
        "symmetric_chebyshev_step", seed, chebyshev_arguments(False)),
    "symmetric_chebyshev_last": lambda seed: symmetric_cases(
        "symmetric_chebyshev_last", seed, chebyshev_arguments(False)),
    "symmetric_power_step": lambda seed: symmetric_cases("symmetric_power_step", seed, power_arguments),
    "gather_sums": gather_cases,
    "packed_rows": packed_cases,
    "domain_digits": digit_cases,
    "rounded_digits": rounding_cases,
    "exact_totals": exact_total_cases,
    "block_spmv": lambda seed: block_cases("block_spmv", seed),
    "block_residual": lambda seed: block_cases("block_residual", seed),
    "block_spmv_transpose": lambda seed: block_cases("block_spmv_transpose", seed),
    "block_chebyshev_first": lambda seed: block_cases("block_chebyshev_first", seed, chebyshev_arguments(True)),
    "block_chebyshev_step": lambda seed: block_cases("block_chebyshev_step", seed, chebyshev_arguments(False)),
    "block_chebyshev_last": lambda seed: block_cases("block_chebyshev_last", seed, chebyshev_arguments(False)),
    "spmv_transpose": transpose_cases,
    "diagonal": diagonal_cases,
    "dot": lambda seed: vector_cases("dot", seed, lambda rng, n, s, dtype: (
        (numbers(rng, (n, s), dtype), numbers(rng, (n, s), dtype), None), ())),
    "cg_update": lambda seed: vector_cases("cg_update", seed, cg_update_arguments),
    "cg_direction": lambda seed: vector_cases("cg_direction", seed, cg_direction_arguments),
    "lanczos_step": lambda seed: vector_cases("lanczos_step", seed, lanczos_step_arguments),
    "minres_update": lambda seed: vector_cases("minres_update", seed, minres_update_arguments),
    "copy_chosen": lambda seed: vector_cases("copy_chosen", seed, lambda rng, n, s, dtype: (
        ((rng.uniform(size=s) < 0.5).astype(dtype), numbers(rng, (n, s), dtype), numbers(rng, (n, s), dtype)), (2,))),
    "basis_dots": lambda seed: basis_cases("basis_dots", seed),
    "basis_add": lambda seed: basis_cases("basis_add", seed),
    "block_dots": lambda seed: basis_block_cases("block_dots", seed),
    "block_add": lambda seed: basis_block_cases("block_add", seed),
    "scale": lambda seed: vector_cases("scale", seed, lambda rng, n, s, dtype: (
        (coefficients(rng, s, dtype), numbers(rng, (n, s), dtype)), (1,))),
    "dot_and_square": lambda seed: vector_cases("dot_and_square", seed, lambda rng, n, s, dtype: (
        (numbers(rng, (n, s), dtype), numbers(rng, (n, s), dtype)), ())),
    "bicgstab_update": lambda seed: vector_cases("bicgstab_update", seed, bicgstab_update_arguments),
    "bicgstab_direction": lambda seed: vector_cases("bicgstab_direction", seed, bicgstab_direction_arguments),
    "take_samples": lambda seed: sample_cases("take_samples", seed),
    "put_samples": lambda seed: sample_cases("put_samples", seed),
    "gauss_seidel": gauss_seidel_cases,
    "chebyshev_start": lambda seed: vector_cases("chebyshev_start", seed, chebyshev_start_arguments),
    "chebyshev_first": lambda seed: square_cases("chebyshev_first", seed, chebyshev_arguments(True)),
    "chebyshev_step": lambda seed: square_cases("chebyshev_step", seed, chebyshev_arguments(False)),
    "chebyshev_last": lambda seed: square_cases("chebyshev_last", seed, chebyshev_arguments(False)),
    "relax_rows": relax_cases,
    "strong_entries": strong_cases,
    "power_step": lambda seed: square_cases("power_step", seed, power_arguments),
    "dense_product": dense_cases,
    "dense_inverses": inverse_cases,
    "tet_values": lambda seed: element_cases("tet_values", seed),
    "tet_transform": lambda seed: element_cases("tet_transform", seed),
    "tet_closed_form": lambda seed: element_cases("tet_closed_form", seed),
    "tet_edge_lengths": lambda seed: element_cases("tet_edge_lengths", seed),
    "tet_shape_shape": lambda seed: element_matrix_cases("tet_shape_shape", seed),
    "tet_shape_dshape": lambda seed: element_matrix_cases("tet_shape_dshape", seed),
    "tet_gradient_tensor": lambda seed: element_matrix_cases("tet_gradient_tensor", seed),
    "small_solve": small_solve_cases,
    "small_eigh3": lambda seed: symmetric3_cases("small_eigh3", seed),
    "small_root3": lambda seed: symmetric3_cases("small_root3", seed),
    "coupled_rows": coupled_cases,
    "reciprocal": reciprocal_cases,
    "too_small": too_small_cases,
    "product_values": product_values_cases,
    "galerkin_values": galerkin_cases,
    "smooth_prolongator": prolongator_cases,
    "filter_elements": filter_element_cases,
    "filter_series": filter_cases,
    "sum_steps": step_sum_cases,
    "smooth_series": smooth_cases,
}  # fmt: skip


@functools.cache
def all_cases(seed):
    """Every case of every kernel that has cases here; tests copy what they change."""
    return tuple(case for name in KERNELS if name in CASES for case in CASES[name](seed))


def device_cases(seed):
    """Those that a device implementation must know."""
    return [c for c in all_cases(seed) if "cuda" in KERNELS[c.kernel].implementations and not c.host_only]


SEED = 20731


def rebuilt(like, members):
    """A tuple of `members` of the class of `like`."""
    return type(like)(*members) if hasattr(like, "_fields") else tuple(members)


def contiguous(argument):
    if isinstance(argument, tuple):
        return rebuilt(argument, map(contiguous, argument))
    return np.ascontiguousarray(argument) if isinstance(argument, np.ndarray) else argument


def results(implementation, case, prepare=copy.deepcopy):
    """All that a call returns or changes, as arrays."""
    arrays = prepare(tuple(map(contiguous, case.arrays)))
    returned = implementation(*arrays)
    returned = returned if isinstance(returned, tuple) else (returned,)
    return [to_numpy(a) for a in (*returned, *(arrays[i] for i in case.in_place))]


SUMS_DIFFER = {
    "affine_spmv_dot", "basis_add", "basis_dots", "bicgstab_update", "cg_update", "dense_inverses", "dense_product",
    "dot", "dot_and_square", "power_step", "scaled_finish", "spmv_dot",
}  # fmt: skip
"""Kernels whose device form adds in an order of its own."""


def tolerance(expected):
    """Rows added, times the unit roundoff, times the size of what is added."""
    finite = np.abs(expected[np.isfinite(expected)])
    return 1000 * np.finfo(expected.dtype).eps * (1.0 + finite.max(initial=0.0))
