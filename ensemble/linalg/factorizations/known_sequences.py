"""Solutions of samples by the sequences of pivots that a graph has met, each tile of samples in one pass.

They are those that the groups of `sequences.exchanged_together` have, to the bit, in less time: what is kept between
steps stays in the cache, and Python sees one call for a sequence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.kept_memory import empty
from ensemble._kernels.direct.solved_at_once import Limits, Solved, solved_at_once
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.factorizations.sequences import PivotRules

__all__ = ["KnownSolutions", "Limits", "solved_by_known"]


class KnownSolutions(NamedTuple):
    """The solutions of samples by known sequences; those of samples that are left mean nothing."""

    x: np.ndarray
    found: Solved
    exchanged: np.ndarray
    """True where some row did not take the column that the graph prefers."""
    alone: np.ndarray
    """True where no other sample has the sequence."""


def solved_by_known(
    A: CrsMatrix, b: np.ndarray, samples: np.ndarray | None, rtol: Any, limits: Limits, rules: PivotRules
) -> KnownSolutions | None:
    """Solve ``A x = b`` for the samples named, shape (n_chosen,), by sequences that the graph of A has met.

    A and `b` hold float64 in NumPy's arrays; `b` has one column for each sample, or is one vector for all. All samples
    are solved where none is named. Where a graph has met no sequence, that of the first of several samples is worked
    out. None where none is known. `rules` are those of the graph.
    """
    values = np.ascontiguousarray(A.values)
    count = values.shape[1] if samples is None else samples.size
    left: np.ndarray | None = None
    made: KnownSolutions | None = None
    known = rules.known
    if not known and count > 1:
        rules.learn(np.ascontiguousarray(values[:, :1] if samples is None else values[:, samples[:1]]))
        known = rules.known
    chosen = samples
    for rule in known:
        served = dict[bytes, int]()
        for key, kept in reversed(rule.plans.items()):
            if kept.at_once is None:
                continue
            x = empty((kept.at_once.n, count), np.float64) if made is None else made.x
            part = solved_at_once(values, b, chosen, rtol, kept.at_once, limits, x, left)
            others, size = part.others(), count if left is None else left.size
            n_members = size - others.size
            if made is None:
                made = KnownSolutions(x, part, _marks(count, kept.exchanges > 0), _marks(count, n_members == 1))
            elif n_members:
                assert left is not None
                members = slice(None) if n_members == size else ~part.other
                places = left[members]
                made.found.rows[:, places] = part.rows[:, members]
                made.exchanged[places], made.alone[places] = kept.exchanges > 0, n_members == 1
            if n_members:
                served[key] = n_members
            if n_members == size:
                rule.put_best_first(served)
                return made
            if n_members or left is None:
                left = others if left is None else left[others]
                chosen = left if samples is None else samples[left]
        rule.put_best_first(served)
    return made


def _marks(count: int, value: bool) -> np.ndarray:
    """Make an array of one truth; `numpy.full` takes five times as long."""
    made = np.empty(count, bool)
    made.fill(value)
    return made
