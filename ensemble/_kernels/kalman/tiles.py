"""Matrices of any size, in `plain_code`: products in register tiles, factors, copies; and the arrays of series.

A matrix is the array that starts at its first entry, and the stride of its rows, which are padded to whole registers.
Every entry is made of the same operations in the same order as where steps are written out, so it has the same bits (a
sum that starts at zero is its first product).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.tiles import Reflect, Tile, TransposeSquare
from ensemble._compile.lanes.transpose import Prefetch
from ensemble._compile.plain_code import (
    LANES,
    Integers,
    Numbers,
    behind,
    fma,
    inlined,
    load,
    numbers_at,
    plain,
    rolled,
    store,
)

__all__ = [
    "DESCRIPTOR",
    "add_matrices",
    "add_row",
    "array_of",
    "copy",
    "copy_entries",
    "copy_transposed",
    "factor",
    "fill",
    "is_same",
    "mirror",
    "negate",
    "padded",
    "prefetch_entries",
    "product",
    "row_product",
    "scaled_row",
    "transposed_rows",
]

DESCRIPTOR = 4
"""Numbers that describe an array: its address, and its strides over series, steps of time and entries."""

BLOCK = 32
"""Entries that are compared at once."""

tile_1_3, tile_1_2, tile_1_1 = (Tile(1, n) for n in (3, 2, 1))
transpose_square, reflect, prefetch = TransposeSquare(), Reflect(), Prefetch()


# --- matrices
@inlined
def padded(n: int) -> int:
    """`n` rounded up to whole registers."""
    return (n + LANES - 1) // LANES * LANES


@rolled
def product(
    A: Numbers, by_row: int, by_inner: int, B: Numbers, C: Numbers, base: Numbers, from_base: bool, stride: int,
    rows: int, inner: int, upper: bool,
) -> None:  # fmt: skip
    """C as ``A B``, added to the matrix `base` or, without `from_base`, to zero.

    Rows of B, C and `base` are `stride` apart. With `upper` without the registers left of the diagonal.
    """
    i = 0
    while i < rows:
        j = i // LANES * LANES if upper else 0
        at = i * stride + j
        a, b, c, old = behind(A, i * by_row), behind(B, j), behind(C, at), behind(base, at)
        if i + 4 <= rows:
            _rows_4(a, by_row, by_inner, b, c, old, from_base, stride, stride - j, inner)
        elif i + 3 == rows:
            _rows_3(a, by_row, by_inner, b, c, old, from_base, stride, stride - j, inner)
        elif i + 2 == rows:
            _rows_2(a, by_row, by_inner, b, c, old, from_base, stride, stride - j, inner)
        else:
            row_product(a, by_inner, b, c, old, from_base, stride, stride - j, inner)
        i += 4


def _several_rows(rows: int, language: Any) -> Any:
    wide, middle, narrow = (Tile(rows, n) for n in (3, 2, 1))

    @language
    def row_products(
        A: Numbers, by_row: int, by_inner: int, B: Numbers, C: Numbers, base: Numbers, from_base: bool, stride: int,
        columns: int, inner: int,
    ) -> None:  # fmt: skip
        j = 0
        while j < columns:
            left = (columns - j) // LANES
            b, c, old = behind(B, j), behind(C, j), behind(base, j)
            if left == 3 or left > 4:
                wide(A, by_row, by_inner, b, inner, c, old, from_base, stride)
                j += 3 * LANES
            elif left > 1:
                middle(A, by_row, by_inner, b, inner, c, old, from_base, stride)
                j += 2 * LANES
            else:
                narrow(A, by_row, by_inner, b, inner, c, old, from_base, stride)
                j += LANES

    return row_products


_rows_4, _rows_3, _rows_2 = _several_rows(4, inlined), _several_rows(3, rolled), _several_rows(2, rolled)


@rolled
def row_product(
    A: Numbers, by_inner: int, B: Numbers, C: Numbers, base: Numbers, from_base: bool, stride: int, columns: int,
    inner: int,
) -> None:  # fmt: skip
    """One row of a `product`."""
    j = 0
    while j < columns:
        left = (columns - j) // LANES
        b, c, old = behind(B, j), behind(C, j), behind(base, j)
        if left == 3 or left > 4:
            tile_1_3(A, 0, by_inner, b, inner, c, old, from_base, stride)
            j += 3 * LANES
        elif left > 1:
            tile_1_2(A, 0, by_inner, b, inner, c, old, from_base, stride)
            j += 2 * LANES
        else:
            tile_1_1(A, 0, by_inner, b, inner, c, old, from_base, stride)
            j += LANES


@rolled
def add_row(x: float, B: Numbers, C: Numbers, stride: int) -> None:
    """Add x times a row of B to a row of C."""
    for j in range(0, stride, LANES):
        store(C, j, fma(load(B, j), x, load(C, j)))


@rolled
def scaled_row(x: float, B: Numbers, C: Numbers, stride: int) -> None:
    """A row of C as x times a row of B."""
    for j in range(0, stride, LANES):
        store(C, j, load(B, j) * x)


@rolled
def copy(A: Numbers, by_row: int, rows: int, columns: int, C: Numbers, stride: int) -> None:
    """Rows of A, `by_row` apart, to rows of C, `stride` apart."""
    for i in range(rows):
        at, to = i * by_row, i * stride
        for j in range(0, columns - LANES + 1, LANES):
            store(C, to + j, load(A, at + j))
        for j in range(columns // LANES * LANES, columns):
            C[to + j] = A[at + j]


@rolled
def copy_transposed(A: Numbers, by_row: int, rows: int, columns: int, C: Numbers, stride: int) -> None:
    whole, side = rows // LANES * LANES, columns // LANES * LANES
    for i in range(0, whole, LANES):
        for j in range(0, side, LANES):
            transpose_square(behind(A, i * by_row + j), by_row, behind(C, j * stride + i), stride)
        for j in range(side, columns):
            for k in range(i, i + LANES):
                C[j * stride + k] = A[k * by_row + j]
    for i in range(whole, rows):
        for j in range(columns):
            C[j * stride + i] = A[i * by_row + j]


@rolled
def transposed_rows(A: Numbers, rows: int, stride: int, C: Numbers, pitch: int) -> None:
    """Rows of A in whole registers, as columns of C; further columns get what follows A in memory."""
    for i in range(0, rows, LANES):
        for j in range(0, stride, LANES):
            transpose_square(behind(A, i * stride + j), stride, behind(C, j * pitch + i), pitch)


@rolled
def mirror(A: Numbers, stride: int) -> None:
    """The entries above the diagonal below it, too; the matrix has as many rows as columns, padding included."""
    for i in range(0, stride, LANES):
        reflect(behind(A, i * stride + i), stride)
        for j in range(i + LANES, stride, LANES):
            transpose_square(behind(A, i * stride + j), stride, behind(A, j * stride + i), stride)


@rolled
def prefetch_entries(A: Numbers, first: int, count: int) -> None:
    """Prefetch entries from `first` on."""
    i = first
    while i < first + count:
        prefetch(A, i)
        i += 2 * LANES


@rolled
def fill(C: Numbers, count: int) -> None:
    """Zeros in whole registers."""
    for i in range(0, count, LANES):
        store(C, i, 0.0)


@inlined
def copy_entries(A: Numbers, B: Numbers, count: int) -> None:
    """The entries of A, in B."""
    copy(A, count, 1, count, B, count)


@rolled
def negate(A: Numbers, B: Numbers, count: int) -> None:
    """The negatives of the entries of A, in B."""
    for c in range(0, count - LANES + 1, LANES):
        store(B, c, -load(A, c))
    for c in range(count // LANES * LANES, count):
        B[c] = -A[c]


@plain
def is_same(A: Numbers, B: Numbers, count: int) -> bool:
    """Whether the entries of A equal those of B."""
    first = 0
    while first < count:
        last, unlike = min(first + BLOCK, count), 0
        for c in range(first, last):
            unlike += 1 if A[c] != B[c] else 0
        if unlike > 0:
            return False
        first = last
    return True


@rolled
def add_matrices(A: Numbers, B: Numbers, rows: int, C: Numbers, stride: int) -> None:
    """Rows of C, `stride` apart, those of A and B concatenated, added."""
    for i in range(rows):
        at, to = i * rows, i * stride
        for j in range(0, rows - LANES + 1, LANES):
            store(C, to + j, load(A, at + j) + load(B, at + j))
        for j in range(rows // LANES * LANES, rows):
            C[to + j] = A[at + j] + B[at + j]


@rolled
def factor(S: Numbers, low: Numbers, inverses: Numbers, n: int, p: int, least_pivot: float) -> None:
    """Unit lower triangle, pivots, on the diagonal of S, and their inverses of ``S = L D L'``, S read above it.

    The inverse is NaN for a pivot below `least_pivot` of its diagonal entry, and zero where that entry is zero. With a
    negative `least_pivot` neither is tested.
    """
    for i in range(n):
        diagonal = S[i * p + i]
        for j in range(i):
            low[i * p + j] = S[j * p + i] * inverses[j]
        for c in range(i // LANES * LANES, p, LANES):
            rest = load(S, i * p + c)
            for j in range(i):
                rest = fma(load(S, j * p + c), -low[i * p + j], rest)
            store(S, i * p + c, rest)
        pivot = S[i * p + i]
        inverses[i] = 1.0 / pivot
        if least_pivot >= 0.0:
            if diagonal <= 0.0:
                inverses[i] = 0.0
            elif pivot <= least_pivot * diagonal:
                inverses[i] = np.nan


# --- series
@inlined
def array_of(places: Integers, number: int, s: int) -> Numbers:
    """Series s of array `number`."""
    at = number * DESCRIPTOR
    return behind(numbers_at(places[at]), s * places[at + 1])
