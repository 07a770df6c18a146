"""Factorisation and substitution on a device: the lists of their tasks by levels of the elimination tree.

A level holds rows that do not depend on each other. Each row stands in the last level that its dependents allow, so
that its values are read soon after they are written. A task is one value of the factorisation, or one row of a
substitution, and gathers its sum in the order of the CPU: the bits are those of `factors` and `triangular`.

Bytes that must move, float64: ``8 S (nnz + n_values)`` for a factorisation, ``8 S n_values`` (twice what lies right of
the diagonal for LDL^T) and ``16 n k S`` for a substitution; 8 bytes for each multiply-add and block, from the caches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import asarray_like
from ensemble._compile import cuda, device
from ensemble._compile.allocation import new_full
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.numba import compiled_arrays, compiled_procedure
from ensemble._kernels.direct.symbolic.elimination import Elimination

__all__ = [
    "MOST_MULTIPLY_ADDS",
    "MOST_ROW_BYTES",
    "factor_outputs",
    "factorized_by_levels",
    "kept_lists",
    "layout_of",
    "multiply_adds_of",
    "solution_arrays",
    "solved_by_levels",
    "triangles",
]

MOST_MULTIPLY_ADDS = 1 << 26
"""Multiply-adds up to which their list, 8 or 12 bytes for each, is made."""

MOST_ROW_BYTES = 1 << 32
"""Bytes of a row of all samples, below which a row's place takes one multiplication."""

MOST_THREADS = 512
"""Of a block, as in pivots.cuh."""

FLAGS = ("false", "true")
OF_OWN_TYPE = "substitutions<real>"

CUDA = cuda.KernelModule(
    "direct/levels",
    [
        *(f"factor<{symmetric}>" for symmetric in FLAGS),
        "substitutions<float>",
        "substitutions<double>",
    ],
    headers=("direct/pivots.cuh",),
    only=cuda.Layout("double", 1, 1, 1),
    of_complex=(*(f"factor<{symmetric}>" for symmetric in FLAGS), OF_OWN_TYPE),
)


class Tasks(NamedTuple):
    """Lists that a kernel goes through, sorted by levels: `starts` says where each level begins."""

    starts: Any
    tasks: Any
    """Four numbers for each task."""
    rows: Any
    """Of a substitution, the row of b, or in elimination order."""
    pairs: Any
    """Two operands of each multiply-add."""
    scales: Any
    """A third factor of each multiply-add, or none."""


# --- lists
@compiled_arrays
def _last_levels(lower_starts, lower, upper_starts, upper):
    """The level of each row, as late as the rows that need it allow, and the number of levels."""
    n = upper_starts.size - 1
    height = np.zeros(n, np.int32)
    # Row i needs row k where l_ik or u_ki is stored; both are handed on from k.
    for i in range(n):
        for p in range(lower_starts[i], lower_starts[i + 1]):
            height[i] = max(height[i], height[lower[p]] + 1)
        for p in range(upper_starts[i], upper_starts[i + 1]):
            height[upper[p]] = max(height[upper[p]], height[i] + 1)
    n_levels = height.max() + 1 if n else 0
    level = np.full(n, n_levels - 1, np.int32)
    for i in range(n - 1, -1, -1):
        for p in range(upper_starts[i], upper_starts[i + 1]):
            level[i] = min(level[i], level[upper[p]] - 1)
        for p in range(lower_starts[i], lower_starts[i + 1]):
            level[lower[p]] = min(level[lower[p]], level[i] - 1)
    return level, n_levels


@compiled_procedure
def _pairs(graph, symmetric, starts, pairs, scales, fill):
    """Count the multiply-adds of each value, ``starts[e + 1]``, or write their operands with `fill`."""
    lower_starts, lower, across, upper_starts, upper, first, diagonal = graph
    n = diagonal.size
    where = new_full(n, -1, np.int64)
    for i in range(n):
        low, high = upper_starts[i], upper_starts[i + 1]
        where[i] = diagonal[i]
        for t in range(low, high):
            where[upper[t]] = diagonal[i] + 1 + t - low
        if not symmetric:
            for p in range(lower_starts[i], lower_starts[i + 1]):
                where[lower[p]] = first[i] + p - lower_starts[i]
        for p in range(lower_starts[i], lower_starts[i + 1]):
            k = np.int64(lower[p])
            shift = diagonal[k] + 1 - upper_starts[k]
            begin = across[p] if symmetric else upper_starts[k]
            own = begin + shift if symmetric else where[k]
            for t in range(begin, upper_starts[k + 1]):
                e = where[upper[t]]
                if e < 0:  # without fill, what no row stores is left out
                    continue
                if fill:
                    pairs[starts[e], 0], pairs[starts[e], 1] = own, t + shift
                    if symmetric:
                        scales[starts[e]] = diagonal[k]
                    starts[e] += 1
                else:
                    starts[e + 1] += 1
        for t in range(low, high):
            where[upper[t]] = -1
        where[i] = -1
        if not symmetric:
            for p in range(lower_starts[i], lower_starts[i + 1]):
                where[lower[p]] = -1


def multiply_adds_of(plan: Elimination) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the multiply-adds of each value begin, their operands, and their third factors."""
    graph = (plan.lower_starts, plan.lower, plan.across, plan.upper_starts, plan.upper, plan.first, plan.diagonal)
    starts = np.zeros(plan.n_values + 1, np.int64)
    none = np.empty((0, 2), np.int32), np.empty(0, np.int32)
    _pairs(graph, plan.symmetric, starts, *none, False)
    starts = np.cumsum(starts)
    count = int(starts[-1])
    pairs = np.empty((count, 2), np.int32)
    scales = np.empty(count if plan.symmetric else 0, np.int32)
    _pairs(graph, plan.symmetric, starts[:-1].copy(), pairs, scales, True)
    return starts, pairs, scales


def triangles(plan: Elimination) -> tuple[Any, Any]:
    """(row, column, place) of the values left and right of the diagonal, in the order of rows."""
    line = np.arange(plan.diagonal.size)
    found = []
    for starts, columns, first in (
        (plan.lower_starts, plan.lower, plan.first[:-1]),
        (plan.upper_starts, plan.upper, plan.diagonal + 1),
    ):
        row = np.repeat(line, np.diff(starts))
        found.append((row, columns.astype(np.int64), (first - starts[:-1])[row] + np.arange(row.size)))
    (row, column, place), right = found
    if plan.symmetric:  # l_ik is u_ki over the pivot
        k = column
        place = plan.diagonal[k] + 1 + plan.across - plan.upper_starts[k]
    return (row, column, place), right


def _sorted(level: np.ndarray, n_levels: int, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tasks by levels, long ones first, and where each level begins."""
    order = np.lexsort((-lengths, level))
    return order, np.searchsorted(level[order], np.arange(n_levels + 1)).astype(np.int32)


def _int32(*columns: Any) -> np.ndarray:
    return np.ascontiguousarray(np.stack(columns, axis=-1).astype(np.int32))


class FactorLists(NamedTuple):
    """What a factorisation goes through: values of each level, then those left of the diagonal times their pivots."""

    values: Tasks
    scaled_starts: Any
    scaled: Any


def _factor_lists(plan: Elimination, nnz: int, with_rhs: bool) -> FactorLists:
    """The tasks of a factorisation; with those of forward substitution as one more column, if wanted."""
    row_level, n_levels = _last_levels(plan.lower_starts, plan.lower, plan.upper_starts, plan.upper)
    left, right = triangles(plan)
    n, n_values = plan.diagonal.size, plan.n_values
    level = np.empty(n_values, np.int64)
    level[plan.diagonal] = row_level
    level[right[2]] = row_level[right[0]]
    scaled = np.empty((0, 2), np.int64), np.zeros(n_levels + 1, np.int32)
    if not plan.symmetric:
        level[left[2]] = row_level[left[1]]
        order, starts = _sorted(level[left[2]], n_levels, np.zeros(left[2].size))
        scaled = _int32(left[2], plan.diagonal[left[1]])[order], starts
    starts, pairs, scales = multiply_adds_of(plan)
    place, source = np.arange(n_values), plan.sources.copy()
    place[plan.diagonal] = ~plan.diagonal
    begin, end = starts[:-1], starts[1:]
    if with_rhs:  # row i is value n_values + i: less the products of its left values with the rows above
        own = np.searchsorted(left[0], np.arange(n + 1)) + starts[-1]
        place, source = np.append(place, n_values + np.arange(n)), np.append(source, nnz + plan.rows)
        level, begin, end = np.append(level, row_level), np.append(begin, own[:-1]), np.append(end, own[1:])
        above = n_values + left[1]
        pairs = np.concatenate([pairs, _int32(*((above, left[2]) if plan.symmetric else (left[2], above)))])
        scales = np.append(scales, plan.diagonal[left[1]]) if plan.symmetric else scales
    order, level_starts = _sorted(level, n_levels, end - begin)
    tasks = _int32(place, source, begin, end)[order]
    return FactorLists(
        Tasks(level_starts, tasks, None, pairs, scales.astype(np.int32)), scaled[1], scaled[0].astype(np.int32)
    )


def _pass(plan: Elimination, triangle: Any, sources: Any, rows: Any, own: Any, down: bool, scales: bool) -> Tasks:
    """Rows that gather the products of their values with other rows; `own` and `rows` name them in x and in b."""
    row_level, n_levels = _last_levels(plan.lower_starts, plan.lower, plan.upper_starts, plan.upper)
    row, column, place = triangle
    n = plan.diagonal.size
    order = np.lexsort((column if down else -column, row))
    starts = np.searchsorted(row[order], np.arange(n + 1))
    terms = _int32(place, sources[column])[order]
    pivots = plan.diagonal[column][order].astype(np.int32) if scales else np.empty(0, np.int32)
    order, level_starts = _sorted(row_level, n_levels, np.diff(starts))
    tasks = _int32(own, starts[:-1], starts[1:], plan.diagonal)[order]
    return Tasks(level_starts, tasks, rows[order].astype(np.int32), terms, pivots)


def _solve_lists(plan: Elimination, transposed: bool) -> tuple[Tasks, Tasks]:
    """The tasks of forward and of backward substitution."""
    (row, column, place), (upper_row, upper_column, upper_place) = triangles(plan)
    rows, columns = (plan.columns, plan.rows) if transposed else (plan.rows, plan.columns)
    if transposed and not plan.symmetric:
        before, after = (upper_column, upper_row, upper_place), (column, row, place)
        down = False  # the rows below are subtracted from the last one up
    else:
        before, after, down = (row, column, place), (upper_row, upper_column, upper_place), True
    forward = _pass(plan, before, columns, rows, columns, True, plan.symmetric)
    return forward, _pass(plan, after, columns, rows, columns, down, False)


def _back_lists(plan: Elimination) -> Tasks:
    """The tasks of backward substitution in the rows of elimination order; results go to the rows of x."""
    line = np.arange(plan.diagonal.size)
    return _pass(plan, triangles(plan)[1], plan.n_values + line, line, plan.columns, True, False)


def kept_lists(plan: Elimination, like: Any, key: tuple[Any, ...], make: Any) -> Any:
    """The lists of a plan where `like` lives, made once."""
    place = (*key, device.device_of(like))
    kept: dict[Any, Any] = plan.lists if plan.lists is not None else {}
    if place not in kept:
        kept[place] = _moved(make(), like)
    return kept[place]


def _moved(lists: Any, like: Any) -> Any:
    if isinstance(lists, np.ndarray):
        return asarray_like(lists, like)
    if isinstance(lists, tuple):
        moved = [_moved(each, like) for each in lists]
        return type(lists)(*moved) if hasattr(lists, "_fields") else tuple(moved)
    return lists


# --- launches
def layout_of(array: Any) -> cuda.Layout:
    """One sample per thread in the type of `array`."""
    return cuda.single_layout(array)


def factor_outputs(values: Any, n_rows: int, b: Any) -> tuple[Any, Any, Any]:
    """Arrays for a factorisation of `n_rows` rows, the marks of samples, and the solution unless `b` is None."""
    n_samples = values.shape[1]
    out, broken = empty_like(values, (n_rows, n_samples)), empty_like(values, (n_samples,))
    return out, broken, None if b is None else empty_like(b)


def solution_arrays(b: Any, out: Any) -> tuple[Any, Any]:
    """`b`, copied where the solution takes its place, and the array of the solution."""
    if out is None:
        return b, empty_like(b)
    return (b.copy() if b.size and device.address(out) == device.address(b) else b), out


def _block(n_samples: int, n_blocks: int, widest: int, like: Any) -> tuple[int, int]:
    """Samples and rows of threads of a block, of which there are `n_blocks` for each tile of samples."""
    lanes = device.lanes_of(n_samples, n_blocks, like)
    return lanes, max(1, min(MOST_THREADS // lanes, widest))


def _widest(starts: Any) -> int:
    """Tasks of the largest level."""
    return int(np.diff(starts).max(initial=1))


def factorized_by_levels(values: Any, plan: Elimination, b: Any) -> tuple[Any, Any, Any]:
    """The values of the factorisation, a zero or NaN for each sample, and the solution for `b` unless that is None."""
    nnz, n_samples = values.shape
    n, n_values = plan.diagonal.size, plan.n_values
    rows = n_values + (0 if b is None else n)
    make = lambda: _with_widest(_factor_lists(plan, nnz, b is not None))
    widest, lists = kept_lists(plan, values, ("factor", nnz, b is not None), make)
    back = None if b is None else kept_lists(plan, values, ("back",), lambda: _back_lists(plan))
    lanes, height = _block(n_samples, 1, widest, values)
    out, broken, x = factor_outputs(values, rows, b)
    tasks, own = lists.values, (lists.scaled_starts, lists.scaled)
    behind = (None,) * 4 if back is None else (back.starts, back.tasks, back.rows, back.pairs)
    arguments = (
        values, b, out, x, broken, tasks.starts, tasks.tasks, tasks.pairs, tasks.scales, *own, *behind,
        np.int32(nnz), np.int32(n_values), np.int32(tasks.starts.shape[0] - 1), np.int32(n_samples),
    )  # fmt: skip
    name = f"factor<{FLAGS[plan.symmetric]}>"
    grid = (-(-n_samples // lanes),)
    CUDA.launch(name, layout_of(values), grid, (lanes, height), arguments)
    return out[:n_values, ...], broken, x


def _with_widest(lists: FactorLists) -> tuple[int, FactorLists]:
    return _widest(lists.values.starts), lists


def solved_by_levels(factors: Any, plan: Elimination, b: Any, transposed: bool, out: Any) -> Any:
    """x in ``A x = b`` or ``A^T x = b``; the arrays are those of `factor_solve`."""
    _, k, n_samples = b.shape
    b, out = solution_arrays(b, out)
    if not out.size:
        return out
    widest, (forward, backward) = kept_lists(
        plan, b, ("solve", transposed), lambda: (_widest((made := _solve_lists(plan, transposed))[0].starts), made)
    )
    lanes, height = _block(n_samples, k, widest, b)
    by_columns = transposed and not plan.symmetric
    arguments = (
        factors, b, out, forward.starts, forward.tasks, forward.rows, forward.pairs,
        forward.scales if plan.symmetric else None, backward.starts, backward.tasks, backward.pairs,
        np.int32(by_columns), np.int32(not by_columns), np.int32(forward.starts.shape[0] - 1), np.int32(k),
        np.int32(factors.shape[1] == 1 and n_samples != 1), np.int32(n_samples),
    )  # fmt: skip
    own = layout_of(factors)
    name = OF_OWN_TYPE if own.is_complex else f"substitutions<{own.real}>"
    CUDA.launch(name, layout_of(b), (-(-n_samples // lanes), k), (lanes, height), arguments)
    return out
