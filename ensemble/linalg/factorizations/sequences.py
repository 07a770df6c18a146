"""Factorisations with exchanges of many samples: those that take the same pivots are factorised together.

What a sample gets depends on its own numbers and the graph: its zeros, units of its rows and columns, and the rule of
`pivot_sequences`. The eliminations that were met on a graph are kept and tried first. Whether one is a sample's own
shows in its factors, so what was met before changes the time and no bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from ensemble._kernels.direct.equilibration import Units, units_of
from ensemble._kernels.direct.pivot_sequences import BETTER, CANDIDATE, Sequence, follows, pivot_sequence, sizes_in
from ensemble._kernels.direct.solved_at_once import Pivots
from ensemble._kernels.direct.symbolic.elimination import Elimination
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.factorizations.condition import one_norms, reciprocal_conditions
from ensemble.linalg.factorizations.orderings import FLAT, elimination_of, inverse_order, matched_rows, with_places
from ensemble.linalg.factorizations.triangular_factors import TriangularFactors
from ensemble.linalg.graph import CrsGraph

__all__ = ["Group", "PivotRule", "exchanged_together", "rules_met", "rules_of", "takes_exchanges_first"]

PATTERNS = 8
"""Sets of zeros on one graph that are remembered."""

PLANS = 8
"""Eliminations with one set of zeros that are remembered."""

VAIN = 3
"""Eliminations in a row that served no other sample, after which only those are tried that two samples take."""

RULES = ("pivot rules",)
"""What a graph keeps its rules by."""

MET = 4096
"""Sequences of pivots of single samples that are remembered to know those that are met again."""


def takes_exchanges_first(graph: CrsGraph) -> bool:
    """Whether the diagonal is not stored in full, so that no choice of pivots by the graph is better than any other."""
    found: bool = graph.kept(("full diagonal",), lambda: bool((graph.diagonal_entries < 0).any()))
    return found


class ExchangedFactors(TriangularFactors):
    """LU of samples by the elimination of one of them, as an operator."""


class Kept(NamedTuple):
    """An elimination that was met, the columns of its values, where these were preferred, and its exchanges."""

    F: ExchangedFactors
    columns: np.ndarray
    marks: np.ndarray
    exchanges: int
    at_once: Pivots | None
    """The same for `solved_at_once`, where it has a list."""


class Group(NamedTuple):
    """Samples with one sequence of pivots, and maybe others that were factorised with them and have another one."""

    lanes: np.ndarray
    """The samples whose numbers the factorisation has."""
    members: np.ndarray
    """Which of these have the sequence, True for one at least: the numbers of others mean nothing."""
    F: ExchangedFactors
    x: np.ndarray | None
    """The solutions for the right-hand sides that were given with the matrix."""
    units: np.ndarray
    """The units of columns by which pivots were compared, shape (n, n_lanes)."""
    row_units: np.ndarray
    """Those of rows."""
    prints: np.ndarray
    """A number for each lane that changes with its values."""
    exchanges: int
    """Rows that did not take the column that the graph prefers."""

    @property
    def samples(self) -> np.ndarray:
        """Return the samples that take this sequence of pivots."""
        found: np.ndarray = self.lanes[self.members]
        return found

    def alone(self) -> Group:
        """Take the samples that follow the sequence alone, without the others of their tiles."""
        if self.members.all():
            return self
        own = np.flatnonzero(self.members)
        x = None if self.x is None else _columns(self.x, own)
        units, row_units, F = _columns(self.units, own), _columns(self.row_units, own), self.F.take_samples(own)
        return Group(self.lanes[own], self.members[own], F, x, units, row_units, self.prints[own], self.exchanges)

    def sizes(self, x: np.ndarray) -> np.ndarray:
        """Find the largest entry of each sample of `x`, shape (n, n_samples), in the units of the columns."""
        wide = self.units.shape == x.shape
        return sizes_in(x, self.units if wide else np.ascontiguousarray(np.broadcast_to(self.units, x.shape)))

    def has_small_pivots(self, limit: float) -> np.ndarray:
        """Whether the reciprocal of some pivot is above `limit` in the units of its row and column, per lane."""
        columns = self.F.plan.columns[inverse_order(self.F.plan.rows)]
        least = self.row_units * self.units[columns]
        found: np.ndarray = (np.abs(self.F._reciprocal_pivots()) > limit * least).any(axis=0)
        return found

    def conditions(self, A: CrsMatrix, samples: np.ndarray) -> np.ndarray:
        """Estimate reciprocal condition numbers of samples of A after rows and columns are scaled to one size."""
        own = samples if A.n_samples > 1 else samples[:1]
        F, columns = self.F.take_samples(own), self.units if self.units.shape[1] == 1 else _columns(self.units, own)
        values = np.abs(A.values if A.n_samples == 1 else A.take_samples(own).values)
        values *= columns[A.graph.indices]
        rows = 1.0 / CrsMatrix(A.graph, values).apply(np.ones_like(columns))
        values *= rows[A.graph.row_of_entry]
        found = reciprocal_conditions(
            one_norms(CrsMatrix(A.graph, values)),
            lambda x: F.apply(x / rows) / columns,
            lambda x: F.T.apply(x / columns) / rows,
            A.shape[0],
        )
        return found if A.n_samples > 1 else np.repeat(found, samples.size)


def _columns(array: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Take the columns of `array` named; `array` itself where these are all."""
    return array if samples.size == array.shape[1] else np.ascontiguousarray(array[:, samples])


class PivotRule:
    """What the graph of the entries that are not zero decides: an order of rows, and columns in order of preference."""

    def __init__(self, graph: CrsGraph, kept: np.ndarray) -> None:
        self.whole, self.places, self.dropped = graph, np.flatnonzero(kept), np.flatnonzero(~kept)
        self.graph, n = graph.subgraph(kept), graph.shape[0]
        counts = np.bincount(self.graph.indices, minlength=n)
        self.rank = inverse_order(np.lexsort((np.arange(n), counts)))
        rows, columns = self.graph.row_of_entry.astype(np.int64), self.graph.indices.astype(np.int64)
        symmetric = np.array_equal(np.sort(columns * n + rows), self.graph.keys)
        if symmetric:  # entries that are not stored become numbers by the elimination of others
            plan = elimination_of(self.graph, False, np.arange(n), "amd")
        else:
            plan = elimination_of(self.graph, False, matched_rows(self.graph, "direct"), "auto")
        self.rows, self.preferred = plan.rows.astype(np.int64), plan.columns.astype(np.int64)
        self.plans: dict[bytes, Kept] = {}
        self.met: dict[int, None] = {}
        self.vain = 0

    def units(self, values: np.ndarray) -> Units:
        """Compute units of the columns of samples, whose values have the shape (nnz, n_samples)."""
        return units_of(self.graph.indptr, self.graph.indices, self.places, self.dropped, values)

    def factors(self, plan: Elimination) -> ExchangedFactors:
        """Make a factorisation that has no numbers yet."""
        made = object.__new__(ExchangedFactors)
        made.plan, made.dtype = plan, np.dtype(np.float64)
        made.graph, made.shape = self.whole, self.whole.shape
        return made

    def sequence(self, values: np.ndarray, units: np.ndarray, **limits: Any) -> Sequence | None:
        """Choose the pivots of one sample of values, shape (nnz,), and eliminate; None where it is singular.

        `limits` are those of `pivot_sequence`.
        """
        return pivot_sequence(
            self.graph.indptr, self.graph.indices, values[self.places], np.ascontiguousarray(units), self.rows,
            self.preferred, self.rank, **limits,
        )  # fmt: skip

    def own_factors(self, found: Sequence) -> ExchangedFactors:
        """Make the factorisation of one sample from the numbers of its elimination."""
        n, none = self.rows.size, np.empty(0, np.int64)
        diagonal = found.lower_starts[1:] + np.arange(n) + found.upper_starts[:-1]
        first = np.append(found.lower_starts[:-1] + np.arange(n) + found.upper_starts[:-1], found.values.size)
        plan = Elimination(
            False, self.rows, found.columns, found.lower_starts, found.lower, none, found.upper_starts, found.upper,
            first, diagonal, none, 0, np.zeros(n, np.int32), lists={},
        )  # fmt: skip
        made = self.factors(plan)
        made.values, made.n_samples, made.broken = found.values[:, None], 1, np.zeros(1, bool)
        made.sample_set, made.batched = None, True
        return made

    def remember(self, found: Sequence) -> Kept:
        """Plan the elimination of one sample for others that take its pivots."""
        n = self.rows.size
        i = inverse_order(self.rows)[self.graph.row_of_entry]
        j = inverse_order(found.columns)[self.graph.indices]
        lower, upper = (found.lower_starts, found.lower, np.empty(0, np.int64)), (found.upper_starts, found.upper)
        entries = i, j, self.places
        plan = with_places(False, (self.rows, found.columns), lower, upper, entries)
        place = self.rank.copy()
        row, column = np.repeat(np.arange(n), np.diff(found.upper_starts)), found.columns[found.upper]
        better = (place[column] < place[found.columns[row]]) | (column == self.preferred[row])
        better &= (found.columns != self.preferred)[row]
        marks = np.where(better, BETTER, CANDIDATE).astype(np.int8)
        column = column.astype(np.int32)
        return Kept(self.factors(plan), column, marks, found.exchanges, self._at_once(plan, column, marks))

    def _at_once(self, plan: Elimination, columns: np.ndarray, marks: np.ndarray) -> Pivots | None:
        """Prepare `solved_at_once` for an elimination, whose entries are counted without zeros; None without a list."""
        if plan.flat is None:
            return None
        number = np.full(self.whole.nnz + 1, self.places.size, np.int32)  # of the last place, -1, too: it is zero
        number[self.places] = np.arange(self.places.size)
        program, first = plan.flat.copy(), int(plan.flat[8])
        program[first : first + plan.n_values] = number[plan.sources]
        return Pivots(
            self.graph.indptr, self.graph.indices, self.places.astype(np.int32), self.dropped.astype(np.int32), program,
            plan.diagonal, plan.upper_starts, columns, marks, plan.columns, self.rows,
            plan.n_values,
        )  # fmt: skip

    def keep(self, found: Sequence, kept: Kept, comes_first: bool = True) -> None:
        """Try an elimination first from now on, or else after those that are kept, fewer than `PLANS`."""
        key = found.columns.tobytes()
        plans = {**self.plans, key: kept} if comes_first else {key: kept, **self.plans}
        self.plans = dict(list(plans.items())[-PLANS:])  # others may read the old ones meanwhile

    def is_worth_a_plan(self, found: Sequence, met: set[int], more: bool) -> bool:
        """Whether an elimination is likely to serve other samples, of a call in which those of `met` stood alone."""
        key = hash(found.columns.tobytes())
        again = key in met
        met.add(key)
        return again or (more and self.vain < VAIN)

    def is_kept_for_later(self, found: Sequence, alone: bool) -> bool:
        """Whether an elimination that served one sample alone is to be kept for later calls.

        Where the sample is `alone` in a call, when that is the second time. Among others, at once, while fewer than
        `PLANS` are kept and where solutions by it take a list: the next call with about these samples is one pass.
        """
        if not alone:
            return len(self.plans) < PLANS and multiply_adds_of(found) <= FLAT
        key = hash(found.columns.tobytes())
        again = key in self.met
        self.met[key] = None
        if len(self.met) > MET:
            self.met = {}
        return again

    def groups(self, A: CrsMatrix, b: Any, units: Units, samples: np.ndarray, is_alone: bool) -> Iterator[Group]:
        """Factorise samples of A, numbered `samples`; yield groups of equal pivots, without samples that have none.

        `is_alone` where there is no other sample in the call.
        """
        left, met, served = np.arange(samples.size), set[int](), dict[bytes, int]()
        for key, kept in reversed(self.plans.items()):
            left, group = self._served(kept, A, b, units, left, samples)
            if group is not None:
                served[key] = group.samples.size
                yield group
            if not left.size:
                break
        while left.size:
            s, left = int(left[0]), left[1:]
            found = self.sequence(A.values[:, s], units.columns[:, s])
            if found is None:
                continue
            columns, rows = (np.ascontiguousarray(kind[:, s : s + 1]) for kind in (units.columns, units.rows))
            yield Group(
                samples[s : s + 1], np.ones(1, bool), self.own_factors(found), None, columns, rows,
                units.prints[s : s + 1], found.exchanges,
            )  # fmt: skip
            more = left.size > 0
            kept_for_later = self.is_kept_for_later(found, is_alone)
            if self.is_worth_a_plan(found, met, more) or kept_for_later:
                kept = self.remember(found)
                left, group = self._served(kept, A, b, units, left, samples)
                self.vain = self.vain + 1 if more and group is None else 0
                if group is not None or not more or kept_for_later:
                    self.keep(found, kept, comes_first=is_alone or group is not None)
                if group is not None:
                    served[found.columns.tobytes()] = 1 + group.samples.size
                    yield group
        self.put_best_first(served)

    def put_best_first(self, served: dict[bytes, int]) -> None:
        """Try the eliminations that serve most samples first, and keep them longest."""
        if served and len(self.plans) > 1:
            self.plans = dict(sorted(self.plans.items(), key=lambda item: served.get(item[0], 0)))

    def _served(
        self, kept: Kept, A: CrsMatrix, b: Any, units: Units, left: np.ndarray, samples: np.ndarray
    ) -> tuple[np.ndarray, Group | None]:
        """Factorise those of `left` that take the pivots of an elimination; return those that do not, and the group."""
        if not left.size:
            return left, None
        own, columns = A if left.size == A.n_samples else A.take_samples(left), _columns(units.columns, left)
        if b is None or b.shape[1] != A.n_samples:
            F, x = kept.F.update(own), None
        else:
            F, x = kept.F._update_and_apply(own, _columns(b, left))
            if F._marks is not None:
                F._settle(F._marks, x)
        good = follows(F.values if F.tiles is None else F.tiles, F.plan, kept.columns, kept.marks, columns) & ~F.broken
        if not good.any():
            return left, None
        rows = _columns(units.rows, left)
        group = Group(samples[left], good, F, x, columns, rows, units.prints[left], kept.exchanges)
        few = 2 * int(good.sum()) < good.size  # others cost less in lanes of their own than copies of the members do
        return left[~good], group.alone() if few else group


def multiply_adds_of(found: Sequence) -> int:
    """Multiply-adds of an elimination."""
    return int(np.diff(found.upper_starts)[found.lower].sum())


class PivotRules:
    """The rules of one graph, by which entries are zero."""

    def __init__(self, graph: CrsGraph) -> None:
        self.graph, self.rules = graph, dict[bytes, PivotRule | None]()
        self.come_first = takes_exchanges_first(graph)
        self.known: tuple[PivotRule, ...] = ()
        """Those that are kept and of no singular matrix, the one used last first."""

    def learn(self, values: np.ndarray) -> None:
        """Keep the sequence of a sample, of values of shape (nnz, 1), where solutions by it take a list."""
        rule = self.rule_of(values[:, 0])
        found = None if rule is None else rule.sequence(values[:, 0], rule.units(values).columns[:, 0])
        if rule is not None and found is not None and multiply_adds_of(found) <= FLAT:
            rule.keep(found, rule.remember(found))

    def rule_of(self, values: np.ndarray) -> PivotRule | None:
        """Return the pivot rule for the zeros of one sample's values; None where they make the matrix singular."""
        kept = values != 0.0
        key = np.packbits(kept).tobytes()
        rules = dict(self.rules)
        if key not in rules:
            try:
                rules[key] = PivotRule(self.graph, kept)
            except ValueError:  # structurally singular
                rules[key] = None
        rules[key] = rules.pop(key)
        self.rules = dict(list(rules.items())[-PATTERNS:])
        self.known = tuple(rule for rule in reversed(self.rules.values()) if rule is not None)
        return rules[key]


def rules_of(graph: CrsGraph) -> PivotRules:
    """Return the pivot rules that a graph keeps, one for each set of zeros."""
    found: PivotRules = graph.kept(RULES, lambda: PivotRules(graph))
    return found


def rules_met(graph: CrsGraph) -> PivotRules | None:
    """Return what `rules_of` has made for a graph; None where it was not called."""
    return cast("PivotRules | None", graph.met(RULES))


def exchanged_together(A: CrsMatrix, samples: np.ndarray, b: Any = None) -> Iterator[Group]:
    """Factorise the samples named with exchanges; yield groups that take the same pivots.

    A holds float64 in NumPy's arrays, `b` right-hand sides of all its samples. Samples that are singular or not finite
    are left out; others have the bits of their own run.
    """
    rules = rules_of(A.graph)
    left = np.asarray(samples)
    with np.errstate(all="ignore"):
        known = iter(rules.known)
        while left.size:
            own = A if left.size == A.n_samples else A.take_samples(left)
            given = b if b is None or b.shape[1] != A.n_samples else _columns(b, left)
            rule = next(known, None)
            new = rule is None
            if rule is None:
                rule = rules.rule_of(own.values[:, 0])
            if rule is None:
                left = left[1:]
                continue
            units = rule.units(own.values)
            fit, other = units.odd == 0.0, units.odd > 0.0
            if fit.all():
                yield from rule.groups(own, given, units, left, A.n_samples == 1)
                return
            if fit.any():
                chosen = np.flatnonzero(fit)
                part = Units(*(np.ascontiguousarray(array[..., chosen]) for array in units))
                given = None if given is None else np.ascontiguousarray(given[:, chosen])
                yield from rule.groups(own.take_samples(chosen), given, part, left[chosen], A.n_samples == 1)
            left = left[1:][other[1:]] if new else left[other]
