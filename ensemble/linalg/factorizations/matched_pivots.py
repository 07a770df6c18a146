"""Eliminations of large graphs whose pivots fit the numbers of one sample, kept for others.

They are for solutions whose digits do not depend on the elimination: `krylov/_rounded_solution.py`.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import heard
from ensemble._kernels.direct.equilibration import prints_of
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.factorizations.orderings import elimination_of, matched_rows, mean_weights
from ensemble.linalg.factorizations.sequences import ExchangedFactors, rules_of
from ensemble.linalg.factorizations.triangular_factors import PLAN_WORK
from ensemble.linalg.graph import CrsGraph

__all__ = ["VAIN", "MatchedPivots", "matched_pivots_of", "prints_of"]

PLANS = 4
"""Eliminations of one graph that are remembered."""

VAIN = 4
"""Eliminations in a row that served in no later call, after which no more are made."""

THRESHOLD = 0.1
"""Share of the largest entry of a row below which it is no pivot in an elimination with exchanges."""

FILL = 64
"""Values of such an elimination, over entries and rows, from which on it is given up."""


class MatchedPivots:
    """The eliminations of one graph, factorisations without numbers, the one that served last first."""

    def __init__(self, graph: CrsGraph) -> None:
        self.graph = graph
        self.plans: tuple[ExchangedFactors, ...] = ()
        self.vain = 0

    def matched(self, values: np.ndarray) -> ExchangedFactors | None:
        """Plan the elimination of one sample, of finite values of shape (nnz, 1); None where no pivots are.

        Values that are zero are left out: other samples may have others there, which the factors do not see.
        """
        kept = values[:, 0] != 0.0
        own = CrsMatrix(self.graph.subgraph(kept), np.ascontiguousarray(values[kept]))
        try:
            plan = heard(
                lambda: elimination_of(
                    own.graph, False, matched_rows(own.graph, "direct", mean_weights(own)), "auto",
                    sources=np.flatnonzero(kept),
                ),
                PLAN_WORK * (own.graph.nnz + self.graph.shape[0]),
            )  # fmt: skip
        except ValueError:  # structurally singular
            return None
        made = object.__new__(ExchangedFactors)
        made.plan, made.dtype, made.graph, made.shape = plan, np.dtype(np.float64), self.graph, self.graph.shape
        return made

    def exchanged(self, values: np.ndarray) -> ExchangedFactors | None:
        """Plan the elimination that one sample takes with exchanges, of finite values of shape (nnz, 1)."""
        rule = rules_of(self.graph).rule_of(values[:, 0])
        if rule is None:
            return None
        most = FILL * (rule.places.size + self.graph.shape[0])
        units = rule.units(values).columns[:, 0]
        found = rule.sequence(values[:, 0], units, threshold=THRESHOLD, most_values=most)
        return None if found is None else rule.remember(found).F

    def put_first(self, plan: ExchangedFactors) -> None:
        """Keep an elimination, and try it before the others from now on."""
        self.plans = (plan, *(other for other in self.plans if other is not plan))[:PLANS]


def matched_pivots_of(graph: CrsGraph) -> MatchedPivots:
    """Return the eliminations that a graph keeps."""
    found: MatchedPivots = graph.kept(("matched pivots",), lambda: MatchedPivots(graph))
    return found
