"""Sums and multiples of matrices over ranks: each rank works on its rows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble.linalg.arithmetic import MatrixArithmetic, computed, per_sample, placed, united
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.linear_operator import inherited
from ensemble.scalar.sample_set import SampleSet, common_set

__all__ = ["RankArithmetic"]


class RankArithmetic(MatrixArithmetic):
    """``A + B``, ``A - B``, ``a * A``, ``A / a`` and ``-A`` of matrices on the same rows and columns of each rank."""

    def _plus(self, other: Any) -> Any:
        if not isinstance(other, RankArithmetic):
            return NotImplemented
        a: Any = self
        b: Any = other
        if a.stores_upper or b.stores_upper:
            full = [each.to_crs() if each.stores_upper else each for each in (a, b)]
            total = full[0]._plus(full[1])
            return total.upper() if a.stores_upper and b.stores_upper else total
        if a.rows.n_local != b.rows.n_local or a.columns.n_local != b.columns.n_local:
            return NotImplemented
        together = common_set(a.sample_set, b.sample_set)
        differ = not (a.numbers is b.numbers or np.array_equal(a.numbers, b.numbers))
        differ = differ or not np.array_equal(a.indptr, b.indptr)
        if not a.space.any(np.array(differ)):
            return inherited(a.with_values(computed(operator.add, a.values, b.values), together), a, b)
        shape = a.rows.n_local, a.columns.n
        graph, own, given = united(*(CrsGraph.unchecked(each.indptr, each.numbers, shape) for each in (a, b)))
        values = computed(operator.add, placed(a.values, own), placed(b.values, given))
        return inherited(a.on_graph(graph.indptr, graph.indices, values, together), a, b)

    def _scaled(self, operation: Callable[[Any, Any], Any], factor: Any, sample_set: SampleSet | None) -> Any:
        a: Any = self
        values = computed(operation, a.values, per_sample(factor, a.values))
        return inherited(a.with_values(values, common_set(a.sample_set, sample_set)), a)
