"""Numbers of a factorisation and of substitutions on a device, in the form of `schedules.Tasks`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._kernels.direct.levels import multiply_adds_of, triangles
from ensemble._kernels.direct.symbolic.elimination import Elimination
from ensemble._kernels.direct.symbolic.schedules import NONE, Tasks, row_positions

__all__ = ["Work", "factor_work", "solve_work"]


class Work(NamedTuple):
    """Numbers that a program makes, and what becomes of them."""

    tasks: Tasks
    out: np.ndarray
    """The row of memory that a number is written to, or NONE: values, and rows of x behind them."""
    pivot: np.ndarray
    """Whether the reciprocal is kept."""
    behind: int
    """Rows of the first array of memory; sources and results from there on are those of the second."""


FIELDS: dict[str, Any] = {
    "source": NONE, "begin": NONE, "scale": NONE, "pivot": False, "out": NONE, "passive": False
}  # fmt: skip


def _group(time: Any, rank: Any, terms: Any = None, **others: Any) -> dict[str, Any]:
    """Numbers of one kind; `terms` are starts and both factors."""
    none = np.zeros(time.size + 1, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    starts, left, right = none if terms is None else terms
    return {"time": time, "rank": rank, "starts": starts, "left": left, "right": right} | FIELDS | others


def _work(groups: list[dict[str, Any]], behind: int) -> Work:
    """The numbers of all groups, one behind another."""
    at = {
        name: np.concatenate([np.broadcast_to(g[name], g["time"].shape) for g in groups])
        for name in ("time", "rank", *FIELDS)
    }
    shifts = np.cumsum([0, *(g["left"].size for g in groups)])
    starts = [g["starts"][:-1] + shift for g, shift in zip(groups, shifts[:-1], strict=True)]
    left, right = (np.concatenate([g[side] for g in groups]).astype(np.int64) for side in ("left", "right"))
    numbers = {name: at[name].astype(np.int64) for name in ("time", "rank", "begin", "scale", "source")}
    tasks = Tasks(
        starts=np.concatenate([*starts, shifts[-1:]]), left=left, right=right, passive=at["passive"], **numbers
    )
    return Work(tasks, at["out"].astype(np.int64), at["pivot"], behind)


def _times(plan: Elimination, closely: bool) -> np.ndarray:
    """When each row is due: in the order of elimination, or in one in which rows follow closely those they need."""
    return row_positions(plan) if closely else np.arange(plan.diagonal.size)


def factor_work(plan: Elimination, nnz: int, closely: bool, with_rhs: bool, with_solution: bool) -> Work:
    """Numbers of a factorisation; with those of forward substitution, and of backward substitution, if wanted."""
    n, n_values, symmetric = plan.diagonal.size, plan.n_values, plan.symmetric
    line, time = np.arange(n), _times(plan, closely)
    left, right = triangles(plan)
    # Numbers: values, y, the values of LDL^T and its y times their pivots, x.
    y, after = n_values, n_values + n
    scaled, scaled_y = after, after + left[2].size
    x = scaled_y + n if symmetric else after
    due, rank = np.empty(n_values, np.int64), np.zeros(n_values, np.int64)
    due[plan.diagonal], due[right[2]] = time, time[right[0]]
    rank[plan.diagonal], rank[right[2]] = n, n + 1 + right[1]
    scale, pivot = np.full(n_values, NONE, np.int64), np.zeros(n_values, bool)
    pivot[plan.diagonal] = True
    own_time = time[left[0] if closely else left[1]]  # of a value left of the diagonal
    if not symmetric:
        due[left[2]], scale[left[2]] = own_time, plan.diagonal[left[1]]
        rank[left[2]] = left[1] if closely else 2 * n + 1 + left[0]
    starts, pairs, _ = multiply_adds_of(plan)
    first, second = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    if symmetric:
        of_value = np.empty(n_values, np.int64)
        of_value[left[2]] = scaled + np.arange(left[2].size)
        first = of_value[first]
    out = np.arange(n_values)
    groups = [_group(due, rank, (starts, first, second), source=plan.sources, scale=scale, pivot=pivot, out=out)]
    if with_rhs or symmetric:
        own = np.searchsorted(left[0], np.arange(n + 1))
        above = (scaled_y if symmetric else y) + left[1]
        to = NONE if with_solution or not with_rhs else n_values + plan.columns
        terms = (own, above, left[2]) if with_rhs else None
        groups.append(_group(time, 3 * n + 1, terms, source=nnz + plan.rows if with_rhs else NONE, out=to,
                             passive=not with_rhs))  # fmt: skip
    if symmetric:  # l_ik for the row i that reads it
        rank = left[1] if closely else 2 * n + 1 + left[0]
        groups.append(_group(own_time, rank, begin=left[2], scale=plan.diagonal[left[1]]))
        groups.append(_group(time, 3 * n + 2, begin=y + line, scale=plan.diagonal, passive=not with_rhs))
    if with_solution:
        own = np.searchsorted(right[0], np.arange(n + 1))
        terms = own, right[2], x + right[1]
        groups.append(_group(2 * n - time, 0, terms, begin=y + line, scale=plan.diagonal, out=n_values + plan.columns))
    return _work(groups, nnz)


class Pass(NamedTuple):
    """One pass of a substitution in elimination order."""

    terms: tuple[np.ndarray, np.ndarray, np.ndarray]
    """(row, column, place of the value) of the terms."""
    down: bool
    """Whether rows follow from the first to the last; they need the rows before them then."""
    ascending: bool
    """The order of a row's terms by their columns."""
    own: np.ndarray
    """The row of x of each row."""
    source: np.ndarray
    """The row that its sum begins as."""
    scaled: bool
    """Whether sums are multiplied by the reciprocal pivot of their rows."""


def _passes(plan: Elimination, transposed: bool) -> tuple[Pass, Pass]:
    """Forward and backward substitution."""
    (row, column, place), (upper_row, upper_column, upper_place) = triangles(plan)
    rows, columns = (plan.columns, plan.rows) if transposed else (plan.rows, plan.columns)
    if transposed and not plan.symmetric:
        before, after = (upper_column, upper_row, upper_place), (column, row, place)
    else:
        before, after = (row, column, place), (upper_row, upper_column, upper_place)
    by_columns = transposed and not plan.symmetric
    forward = Pass(before, True, True, columns, rows, by_columns)
    return forward, Pass(after, False, not by_columns, columns, columns, not by_columns)


def _pass_groups(plan: Elimination, given: Pass, time: np.ndarray, first: int, begin: Any, out: Any) -> Any:
    """Numbers of a pass, its rows as numbers from `first` on: the values come first, a number for each term."""
    n, n_values, (row, column, place) = plan.diagonal.size, plan.n_values, given.terms
    order = np.lexsort((column if given.ascending else -column, row))
    row, column, place = row[order], column[order], place[order]
    starts, line = np.searchsorted(row, np.arange(n + 1)), np.arange(n)
    groups, values, rows = [], first, first + place.size
    operands = rows + column
    pivots: Any = NONE
    groups.append(_group(time[column], 0, source=place, passive=True))
    extra = first + place.size + n
    if given.down and plan.symmetric:  # terms multiply y by its reciprocal pivot first
        operands, pivots = extra + n + column, extra + line
    elif given.scaled:
        pivots = extra + line
    source = n_values + given.source if begin is None else NONE
    groups.append(
        _group(time, 1, (starts, values + np.arange(place.size), operands), source=source,
               begin=NONE if begin is None else begin, scale=NONE if given.down and plan.symmetric else pivots, out=out)
    )  # fmt: skip
    if not isinstance(pivots, int):
        groups.append(_group(time, 0, source=plan.diagonal, passive=True))
    if given.down and plan.symmetric:
        groups.append(_group(time, 2, begin=rows + line, scale=pivots))
    return groups, rows


def solve_work(plan: Elimination, transposed: bool, closely: bool, at_once: bool) -> tuple[Work, ...]:
    """Numbers of a substitution's two passes; `at_once` those of both together, with y in slots."""
    n, line = plan.diagonal.size, np.arange(plan.diagonal.size)
    forward, backward = _passes(plan, transposed)
    time = _times(plan, closely)
    down, y = _pass_groups(plan, forward, time, 0, None, NONE if at_once else plan.n_values + forward.own)
    count = sum(g["time"].size for g in down) if at_once else 0
    begin = y + line if at_once else None
    up, _ = _pass_groups(plan, backward, 2 * n - time, count, begin, plan.n_values + backward.own)
    behind = plan.n_values
    return (_work(down + up, behind),) if at_once else (_work(down, behind), _work(up, behind))
