"""Tasks of a factorisation on a device, in the order of `schedules.Tasks`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._kernels.direct.elimination import Elimination
from ensemble._kernels.direct.levels import multiply_adds_of, triangles
from ensemble._kernels.direct.schedules import NONE, Tasks, row_positions

__all__ = ["FactorTasks", "factor_tasks"]


class FactorTasks(NamedTuple):
    """Tasks of a factorisation, and of the substitutions for one right-hand side."""

    tasks: Tasks
    source: np.ndarray
    """Where the sum begins: an entry of the matrix, one of b behind them, or NONE for zero."""
    out: np.ndarray
    """The value that is written, a row of x behind them, or NONE."""
    pivot: np.ndarray
    """Whether the reciprocal is kept."""


def _numbered(groups: list[dict[str, Any]], n_numbers: int) -> FactorTasks:
    """The tasks of all groups in one order."""
    at = {name: np.concatenate([np.broadcast_to(g[name], g["number"].shape) for g in groups]) for name in FIELDS}
    lengths = np.concatenate([np.diff(g["starts"]) for g in groups])
    shifts = np.cumsum([0, *(g["left"].size for g in groups)])
    starts = np.concatenate([g["starts"][:-1] + shift for g, shift in zip(groups, shifts, strict=False)])
    left, right = (np.concatenate([g[side] for g in groups]) for side in ("left", "right"))
    order = np.lexsort((at["rank"], at["position"]))
    place = np.full(n_numbers + 1, NONE, np.int64)  # the last one stands for NONE
    place[at["number"][order]] = np.arange(order.size)
    ends = np.cumsum(lengths[order])
    first = np.append(0, ends)
    terms = np.arange(int(first[-1])) - np.repeat(first[:-1] - starts[order], lengths[order])
    tasks = Tasks(first, place[left[terms]], place[right[terms]], place[at["begin"][order]], place[at["scale"][order]])
    return FactorTasks(tasks, at["source"][order], at["out"][order], at["pivot"][order])


FIELDS = ("number", "position", "rank", "source", "begin", "scale", "pivot", "out")


def _group(number: np.ndarray, position: Any, rank: Any, terms: Any = None, **others: Any) -> dict[str, Any]:
    """Tasks of one kind; `terms` are starts and both factors."""
    none = np.zeros(number.size + 1, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    starts, left, right = none if terms is None else terms
    fields = {"source": NONE, "begin": NONE, "scale": NONE, "pivot": False, "out": NONE} | others
    return {
        "number": number,
        "position": position,
        "rank": rank,
        "starts": starts,
        "left": left,
        "right": right,
    } | fields


def factor_tasks(plan: Elimination, nnz: int, with_rhs: bool, with_solution: bool) -> FactorTasks:
    """Tasks of a factorisation; with forward substitution, and with backward substitution, if wanted."""
    n, n_values, symmetric = plan.diagonal.size, plan.n_values, plan.symmetric
    line, position = np.arange(n), row_positions(plan)
    left, right = triangles(plan)
    # Numbers: values, y, the values of LDL^T and its y times their pivots, x.
    y, scaled, scaled_y, x = n_values, n_values + n, 2 * n_values + n, 2 * n_values + 2 * n
    row, rank = np.empty(n_values, np.int64), np.zeros(n_values, np.int64)
    row[plan.diagonal], row[right[2]] = line, right[0]
    rank[plan.diagonal], rank[right[2]] = n, n + 1 + right[1]
    scale, pivot = np.full(n_values, NONE, np.int64), np.zeros(n_values, bool)
    pivot[plan.diagonal] = True
    if not symmetric:
        row[left[2]], rank[left[2]], scale[left[2]] = left[0], left[1], plan.diagonal[left[1]]
    starts, pairs, _ = multiply_adds_of(plan)
    first, second = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    values = np.arange(n_values)
    terms = starts, (scaled + first if symmetric else first), second
    groups = [_group(values, position[row], rank, terms, source=plan.sources, scale=scale, pivot=pivot, out=values)]
    if symmetric:  # l_ik for the row i that reads it
        groups.append(_group(scaled + left[2], position[left[0]], left[1], begin=left[2], scale=plan.diagonal[left[1]]))
    if with_rhs:
        own = np.searchsorted(left[0], np.arange(n + 1))
        above = (scaled_y if symmetric else y) + left[1]
        out = NONE if with_solution else n_values + plan.columns
        groups.append(_group(y + line, position, 2 * n + 1, (own, above, left[2]), source=nnz + plan.rows, out=out))
        if symmetric:
            groups.append(_group(scaled_y + line, position, 2 * n + 2, begin=y + line, scale=plan.diagonal))
    if with_solution:
        own = np.searchsorted(right[0], np.arange(n + 1))
        terms = own, right[2], x + right[1]
        groups.append(
            _group(
                x + line, 2 * n - position, 0, terms, begin=y + line, scale=plan.diagonal, out=n_values + plan.columns
            )
        )
    return _numbered(groups, 2 * n_values + 3 * n)
