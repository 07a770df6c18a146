"""Tridiagonal matrices on a device, one sample per thread (the algorithm of Thomas), rows in elimination order.

Bytes that must move, float64, n rows: ``48 n S`` for a factorisation, ``40 n S`` for a solution with it. Operations
and bits are those of `levels`; where samples are few, an order by nested dissection gives those kernels log2(n) levels,
which is cyclic reduction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import asarray_like
from ensemble._compile import cuda
from ensemble._kernels.direct.levels import factor_outputs, kept_lists, layout_of, solution_arrays
from ensemble._kernels.direct.symbolic.elimination import Elimination

__all__ = ["LDLT", "LU", "TRANSPOSED", "chain_factorized", "chain_solved", "is_chain", "orders_of"]

SHORTEST = 8
"""Rows from which on a thread takes a sample."""

THREADS = 32
"""Of a block: with few samples each, all multiprocessors have some."""

LU, TRANSPOSED, LDLT = range(3)

CUDA = cuda.KernelModule(
    "direct/chains",
    [
        *(f"{name}<{symmetric}>" for name in ("chain_factor", "chain_back") for symmetric in ("false", "true")),
        *(f"chain_solve<{kind}, {number}>" for kind in range(3) for number in ("float", "double")),
    ],
    headers=("direct/pivots.cuh", "../_compile/include/async_copies.cuh"),
    only=cuda.Layout("double", 1, 1, 1),
)


def is_chain(plan: Elimination) -> bool:
    """Whether each row has entries in the columns before and behind it, and no others."""
    n = plan.diagonal.size
    if n < SHORTEST or plan.upper.size != n - 1 or (not plan.symmetric and plan.lower.size != n - 1):
        return False
    line = np.arange(n - 1)
    if not (np.array_equal(plan.upper_starts[: n - 1], line) and np.array_equal(plan.upper, line + 1)):
        return False
    return plan.symmetric or bool(
        np.array_equal(plan.lower_starts[1:], np.arange(n)) and np.array_equal(plan.lower, line)
    )


def orders_of(plan: Elimination, like: Any) -> Any:
    """(sources, rows, columns) on the device of `like`, worked out once; None stands for all numbers in their order."""
    return kept_lists(
        plan, like, ("orders",), lambda: tuple(_moved(each, like) for each in (plan.sources, plan.rows, plan.columns))
    )


def _is_chain(plan: Elimination, like: Any) -> bool:
    found: bool = kept_lists(plan, like, ("chain",), lambda: is_chain(plan))
    return found


def _moved(order: np.ndarray, like: Any) -> Any:
    plain = np.array_equal(order, np.arange(order.size))
    return None if plain else asarray_like(np.ascontiguousarray(order, np.int32), like)


def chain_factorized(values: Any, plan: Elimination, b: Any) -> Any:
    """As `factorized_by_levels`; None for a plan that is no chain."""
    if not _is_chain(plan, values):
        return None
    orders = orders_of(plan, values)
    n, n_samples = plan.diagonal.size, values.shape[1]
    out, broken, x = factor_outputs(values, plan.n_values, b)
    extent, grid = (np.int32(n), np.int32(n_samples)), (-(-n_samples // THREADS),)
    kind, layout = f"<{'true' if plan.symmetric else 'false'}>", layout_of(values)
    CUDA.launch(f"chain_factor{kind}", layout, grid, THREADS, (values, b, out, x, broken, *orders, *extent))
    if b is not None:
        CUDA.launch(f"chain_back{kind}", layout, grid, THREADS, (out, x, orders[2], *extent))
    return out, broken, x


def chain_solved(factors: Any, plan: Elimination, b: Any, transposed: bool, out: Any) -> Any:
    """As `solved_by_levels`; None for a plan that is no chain."""
    if not _is_chain(plan, b):
        return None
    orders = orders_of(plan, b)
    n, k, n_samples = b.shape
    b, out = solution_arrays(b, out)
    if not out.size:
        return out
    kind = LDLT if plan.symmetric else TRANSPOSED if transposed else LU
    _, rows, columns = orders
    rows, columns = (columns, rows) if transposed else (rows, columns)
    shared = factors.shape[1] == 1 and n_samples != 1
    number = "double" if factors.dtype.itemsize == 8 else "float"
    extent = (np.int32(n), np.int32(k), np.int32(shared), np.int32(n_samples))
    grid = (-(-n_samples // THREADS), k)
    CUDA.launch(
        f"chain_solve<{kind}, {number}>", layout_of(b), grid, THREADS, (factors, b, out, rows, columns, *extent)
    )
    return out
