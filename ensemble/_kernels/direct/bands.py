"""Factorisation and substitution of full bands on a device: the window behind the pivot in registers of a block.

Bytes that must move are those of `slots`; each entry, value and row is read or written once in a pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile import cuda
from ensemble._kernels.direct.chains import LDLT, LU, TRANSPOSED, orders_of
from ensemble._kernels.direct.levels import MOST_ROW_BYTES, factor_outputs, kept_lists, layout_of, solution_arrays
from ensemble._kernels.direct.symbolic.elimination import Elimination

__all__ = ["MOST_HALF", "band_factorized", "band_solved", "half_width"]

LEAST_HALF, MOST_HALF = 2, 24
"""Half-widths of bands that these kernels take."""

FEW_WARPS, MANY_WARPS, FEW_HALF = 2, 4, 8
"""Rows and columns of warps in a block, up to a half-width of `FEW_HALF` and above."""

WARP, RING, SOLVE_RING = 32, 6, 4
"""As in bands.cu."""

TILES = [(FEW_WARPS, r) for r in range(1, 5)] + [(MANY_WARPS, r) for r in range(3, 7)]

CUDA = cuda.KernelModule(
    "direct/bands",
    [
        *(f"band_factor<{p}, {r}, {symmetric}>" for p, r in TILES for symmetric in ("false", "true")),
        *(f"band_solve<{kind}, {number}>" for kind in range(3) for number in ("float", "double")),
    ],
    headers=("direct/pivots.cuh", "../_compile/include/async_copies.cuh"),
    only=cuda.Layout("double", 1, 1, 1),
    apart=True,
)


def half_width(plan: Elimination) -> int:
    """The half-width of a plan whose values are those of a full band, else 0."""
    n = plan.diagonal.size
    half = int(plan.upper_starts[1]) if n else 0
    line = np.arange(n)
    lengths = np.minimum(half, n - 1 - line)
    if half == 0 or plan.upper.size != lengths.sum() or not np.array_equal(np.diff(plan.upper_starts), lengths):
        return 0
    row = np.repeat(line, lengths)
    if not np.array_equal(plan.upper, row + 1 + np.arange(row.size) - plan.upper_starts[row]):
        return 0
    if plan.symmetric:
        return half
    lengths = lengths[::-1]
    if plan.lower.size != lengths.sum() or not np.array_equal(np.diff(plan.lower_starts), lengths):
        return 0
    row = np.repeat(line, lengths)
    return half * np.array_equal(plan.lower, row - lengths[row] + np.arange(row.size) - plan.lower_starts[row])


def _half(plan: Elimination, like: Any, row_bytes: int) -> int:
    """The half-width where the kernels take the plan, else 0."""
    if row_bytes >= MOST_ROW_BYTES:
        return 0
    half: int = kept_lists(plan, like, ("band",), lambda: half_width(plan))
    return half if LEAST_HALF <= half <= MOST_HALF else 0


def _mask(half: int) -> int:
    """Rows of the solution that stay in shared memory, less one: a power of two."""
    return (1 << half.bit_length()) - 1


def _solve(factors: Any, plan: Elimination, b: Any, x: Any, kind: int, orders: Any, half: int, k: int) -> None:
    n, n_samples = plan.diagonal.size, x.shape[-1]
    mask, number = _mask(half), "double" if factors.dtype.itemsize == 8 else "float"
    widest = max(factors.dtype.itemsize, x.dtype.itemsize)
    shared = WARP * (widest * SOLVE_RING * (half + 2) + x.dtype.itemsize * (mask + 1))
    own = factors.shape[1] == 1 and n_samples != 1
    extent = (n, half, mask, k, own, n_samples)
    arguments = (factors, b, x, *orders, *(np.int32(each) for each in extent))
    grid = (-(-n_samples // WARP), k)
    CUDA.launch(f"band_solve<{kind}, {number}>", layout_of(x), grid, WARP, arguments, shared=shared)


def band_factorized(values: Any, plan: Elimination, b: Any) -> Any:
    """As `factorized_by_levels`; None for a plan that is no band of a half-width that the kernels take."""
    n, n_samples = plan.diagonal.size, values.shape[1]
    half = _half(plan, values, n_samples * values.dtype.itemsize)
    if not half:
        return None
    orders = orders_of(plan, values)
    out, broken, x = factor_outputs(values, plan.n_values, b)
    p = FEW_WARPS if half <= FEW_HALF else MANY_WARPS
    r = -(-half // p)
    shared = values.dtype.itemsize * WARP * (RING + 2) * (2 * p * r + 2)
    extent = (np.int32(n), np.int32(half), np.int32(n_samples))
    name = f"band_factor<{p}, {r}, {'true' if plan.symmetric else 'false'}>"
    grid = (-(-n_samples // WARP),)
    CUDA.launch(
        name, layout_of(values), grid, (WARP, p * p), (values, b, out, x, broken, *orders, *extent), shared=shared
    )
    if b is not None:
        _solve(out, plan, None, x, LDLT if plan.symmetric else LU, orders[1:], half, 1)
    return out, broken, x


def band_solved(factors: Any, plan: Elimination, b: Any, transposed: bool, out: Any) -> Any:
    """As `solved_by_levels`; None for a plan that is no band of a half-width that the kernels take."""
    _, k, n_samples = b.shape
    half = _half(plan, b, k * n_samples * b.dtype.itemsize)
    if not half:
        return None
    b, out = solution_arrays(b, out)
    if not out.size:
        return out
    kind = LDLT if plan.symmetric else TRANSPOSED if transposed else LU
    _, rows, columns = orders_of(plan, b)
    _solve(factors, plan, b, out, kind, (columns, rows) if transposed else (rows, columns), half, k)
    return out
