"""LU of a small sparse matrix as straight-line arithmetic on scalars: no loop over rows, no exchanges, no zeros.

The order of elimination is fixed beforehand from the pattern.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ensemble._compile.trace.derivatives import plus, times
from ensemble._typing import Namespace

__all__ = ["ShiftedFactors", "elimination_order", "finite_pivot"]


def elimination_order(pattern: Iterable[tuple[int, int]], n: int) -> list[int]:
    """Diagonal pivots in the order of the smallest product of row and column counts (Markowitz 1957).

    Ties go to the smaller index. `pattern` is the pairs (row, column) that may be other than zero; the diagonal is
    taken for stored.
    """
    rows: list[set[int]] = [set() for _ in range(n)]
    columns: list[set[int]] = [set() for _ in range(n)]
    for i, j in pattern:
        if i != j:
            rows[i].add(j)
            columns[j].add(i)
    left, order = set(range(n)), []
    while left:
        k = min(left, key=lambda i: (len(rows[i]) * len(columns[i]), i))
        left.remove(k)
        order.append(k)
        for i in columns[k]:
            rows[i] |= rows[k] - {i}
            rows[i].discard(k)
        for j in rows[k]:
            columns[j] |= columns[k] - {j}
            columns[j].discard(k)
    return order


def finite_pivot(pivot: Any, shift: Any, xp: Namespace) -> Any:
    """`pivot`, or `shift` where it is infinite: an infinite derivative counts as zero.

    Otherwise its reciprocal is zero, and with it the step and the estimate of its error.
    """
    return xp.where(xp.abs(pivot) == math.inf, shift, pivot)


class ShiftedFactors:
    """The factors of ``shift I - J``.

    Off the diagonal the entries of J are kept with their own sign, so that eliminations add:
    ``J_ij + (J_ik / W_kk) J_kj`` is minus the entry of the matrix.

    Parameters
    ----------
    shift : value
        A number per sample.
    entries : mapping
        ``{(i, j): J_ij}``; what is missing is zero, a Python float is a known number.
    order : sequence of n int
        The pivots (`elimination_order`).
    xp : namespace, optional
        Where pivots may be infinite: `shift` takes their place (`finite_pivot`).
    """

    def __init__(
        self, shift: Any, entries: Mapping[tuple[int, int], Any], order: Sequence[int], xp: Namespace | None = None
    ) -> None:
        self._order, n = order, len(order)
        place = {k: position for position, k in enumerate(order)}
        rows: list[dict[int, Any]] = [{} for _ in range(n)]
        diagonal = [shift] * n
        for (i, j), value in sorted(entries.items()):
            if i == j:
                diagonal[i] = shift - value
            else:
                rows[i][j] = value
        self._reciprocals: dict[int, Any] = {}
        self._lower: dict[int, list[tuple[int, Any]]] = {}
        for k in order:
            pivot = diagonal[k] if xp is None else finite_pivot(diagonal[k], shift, xp)
            self._reciprocals[k] = reciprocal = 1.0 / pivot
            below = [i for i in order[place[k] + 1 :] if k in rows[i]]
            self._lower[k] = [(i, times(rows[i].pop(k), reciprocal)) for i in below]
            for i, factor in self._lower[k]:
                for j, value in rows[k].items():
                    change = times(factor, value)
                    if i == j:
                        diagonal[i] = diagonal[i] - change
                    else:
                        rows[i][j] = plus(rows[i].get(j), change)
        self._upper = rows

    def solve(self, b: Sequence[Any]) -> list[Any]:
        """x in ``(shift I - J) x = b``."""
        x = list(b)
        for k in self._order:
            for i, factor in self._lower[k]:
                x[i] = x[i] + times(factor, x[k])
        for k in reversed(self._order):
            total = x[k]
            for j, value in self._upper[k].items():
                total = total + times(value, x[j])
            x[k] = total * self._reciprocals[k]
        return x
