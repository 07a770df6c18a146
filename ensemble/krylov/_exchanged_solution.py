"""Solutions of the samples whose factorisations need exchanges, those with the same pivots together."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._backend import asarray_like, to_numpy
from ensemble._kernels.sparse.row_sums import SERIAL, space_in_force
from ensemble.krylov._conditions import UNEVEN, Conditions, digits_kept, estimated, limits_of
from ensemble.krylov._direct_solution import FLOOR, REFINEMENTS, ROUNDOFFS, DirectSolution
from ensemble.krylov._rounded_solution import conditions_by_superlu, is_large, rounded_solution
from ensemble.krylov._system import LinearSystem
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.factorizations.known_sequences import KnownSolutions, Limits, solved_by_known
from ensemble.linalg.factorizations.sequences import Group, exchanged_together, rules_met, rules_of
from ensemble.scalar import Ensemble

DOUBT = 1e-5
"""Last correction over the first solution from which on the digits of a solution are tried."""

CANCELLED = 1e-6
"""Rounding over a pivot, in the units of its row and column, from which on they are tried, too."""

EXACT = np.dtype(np.float64)

EPS, LOW, HIGH = limits_of(EXACT)

LIMITS = Limits(
    ROUNDOFFS * EPS, FLOOR / ROUNDOFFS * (ROUNDOFFS * EPS), UNEVEN, UNEVEN * EPS, LOW, HIGH, DOUBT, float(np.sqrt(EPS)),
    CANCELLED / EPS, REFINEMENTS,
)  # fmt: skip
"""What `DirectSolution` compares with."""


class ExchangedSolution(DirectSolution):
    """Solutions of samples that take the same pivots.

    `cancelled` has numbers that change with the values instead of sums over pivots.
    """

    def __init__(self, system: LinearSystem, A: CrsMatrix, group: Group) -> None:
        x = group.x
        self.group: Any = group
        self.largest: list[np.ndarray] = [] if x is None else [group.sizes(x)]
        super().__init__(system, A, None, group.F, x, None)
        self.error[~np.broadcast_to(group.members, self.error.shape)] = np.nan  # nothing is refined for those
        self.repaired[:], self.exchanged[:] = group.exchanges > 0, True
        self.alone[:] = group.samples.size == 1
        self.cancelled = np.broadcast_to(group.prints, self.norm.shape).copy()

    def reciprocal_pivots(self) -> Any:
        """Return an empty array: pivots with exchanges are not compared with sums of rows."""
        return self.b[:0]

    def solve(self, r: Any, norm: np.ndarray) -> Any:
        """Multiply `r` by the inverse, and note the largest entry of each sample."""
        x = self.F.apply(r)
        self.largest.append(self.group.sizes(x))
        return x

    def uneven(self) -> np.ndarray:
        """Mark samples that refinement may improve or that had none: its correction tells how accurate they are."""
        found: np.ndarray = super().uneven() | (self.iterations == 0)
        return found

    def finish(self, exchanged: Any = None) -> ExchangedSolution:
        """Refine, and estimate certain digits and conditions of doubtful samples."""
        self.refine()
        self.refined = len(self.history)
        last = np.stack(self.largest)[self.iterations, np.arange(self.iterations.size)]
        moved, large = ~(last <= DOUBT * self.largest[0]), self.norm > np.sqrt(self.eps) * self.norm_b
        doubtful = (moved | large) & np.isfinite(self.error)
        if (doubtful & ~moved).any():  # one more correction is less work than three trials are
            doubtful &= moved | ~(self.group.sizes(self.F.apply(self.r)) <= DOUBT * self.largest[0])
        # Where the residual of few rows decides, it may be zero by chance: then the pivots tell.
        doubtful |= self.group.has_small_pivots(CANCELLED / self.eps) & np.isfinite(self.error)
        if doubtful.any():
            kept, lost = digits_kept(self.A, self.x, self.b, self.F.apply)
            self.uncertain, doubtful = doubtful & lost, doubtful & ~kept
        chosen = np.flatnonzero(doubtful)
        if chosen.size:
            self.rcond[chosen] = self.group.conditions(self.A, chosen)
        self.F = self.group = None  # before those of the next group are made
        return self

    def good(self) -> np.ndarray:
        """Mark samples whose solutions need no other factors."""
        found: np.ndarray = (self.error <= self.tolerance) & (self.entries <= self.tolerance)
        return found


class KnownSolution(DirectSolution):
    """Solutions of samples by known sequences of pivots, as `ExchangedSolution` has them."""

    def __init__(self, known: KnownSolutions, chosen: Any) -> None:
        """Take the solutions of `known` that are `chosen`, a mask or a slice of all."""
        found = known.found
        self.x = known.x if isinstance(chosen, slice) else np.ascontiguousarray(known.x[:, chosen])
        self.iterations = steps = found.steps[chosen]
        n_samples = steps.size
        self.eps, self.tolerance = EPS, LIMITS.tolerance
        self.error, self.entries, self.norm = found.error[chosen], found.entries[chosen], found.norm[chosen]
        self.norm_b, self.cancelled = found.norm_b[chosen], found.prints[chosen]
        self.history = [norms[chosen] for norms in found.norms[: int(steps.max(initial=0)) + 1]]
        self.repaired, self.alone = known.exchanged[chosen], known.alone[chosen]
        self.exchanged, self.rcond = np.ones(n_samples, bool), np.full(n_samples, np.nan)
        self.uncertain = np.zeros(n_samples, bool)  # those are left to others
        self.refined, self.F = len(self.history), None


def solved_again(A: Any, b: Any, rtol: Any) -> KnownSolutions | None:
    """The solutions of all samples by the sequences of pivots that were met, where nothing needs conversion; else None.

    That is where A is a `CrsMatrix` and `b` a vector or an Ensemble of as many samples, both float64 of NumPy, `rtol`
    one number, and the graph such that exchanges come first.
    """
    if type(A) is not CrsMatrix or type(rtol) is not float or not 0.0 <= rtol < np.inf:
        return None
    right, values, graph = b.samples if type(b) is Ensemble else b, A.values, A.graph
    if type(values) is not np.ndarray or type(right) is not np.ndarray or not values.dtype == right.dtype == EXACT:
        return None
    n, n_samples = graph.shape[0], values.shape[1]
    shape = (n, n_samples) if right is not b else (n,)
    if right.shape != shape or not n_samples or space_in_force() is not SERIAL:
        return None
    rules = rules_met(graph)  # a first call checks the graph
    if rules is None or not rules.rules or not rules.come_first or is_large(graph):
        return None
    return solved_by_known(A, np.ascontiguousarray(right), None, rtol, LIMITS, rules)


def solved_with_known_pivots(
    system: LinearSystem, A: CrsMatrix, samples: np.ndarray, known: KnownSolutions | None
) -> tuple[np.ndarray, DirectSolution | None, np.ndarray]:
    """Solve samples by sequences of pivots that are known; return those solved, their solutions, and those left.

    A sample whose backward error stays too large is in neither; one whose condition is to be estimated is left. `known`
    is what `solved_again` found for all samples of a call.
    """
    nobody = samples[:0]
    if A.n_samples != system.b.shape[1] or not samples.size or space_in_force() is not SERIAL:
        return nobody, None, samples
    if known is None or known.alone.size != samples.size:
        known = solved_by_known(A, system.b, samples, system.rtol, LIMITS, rules_of(A.graph))
    if known is None:
        return nobody, None, samples
    found = known.found
    solved = ~(found.left | found.doubtful)
    if solved.all():
        return samples, KnownSolution(known, slice(None)), nobody
    others = found.other | (found.doubtful & ~found.left)
    return samples[solved], KnownSolution(known, solved) if solved.any() else None, samples[others]


def exchanged_solutions(
    system: LinearSystem, A: CrsMatrix, samples: np.ndarray, known: KnownSolutions | None = None
) -> Iterator[tuple[np.ndarray, DirectSolution]]:
    """Solve samples by factors with exchanges; yield groups of samples that share pivots, with their solutions.

    `known` is what `solved_again` found for all samples of a call.

    A sample that is singular, not finite, or whose backward error stays too large, is in no group, and none is where
    numbers are not float64. Samples on a device are solved on the host, so that they have the bits of the CPU.
    """
    here = type(A.values) is type(system.b) is np.ndarray
    if not (
        A.values.dtype == system.b.dtype == EXACT if here else str(A.values.dtype) == str(system.b.dtype) == "float64"
    ):
        return
    if not here:
        for chosen, solution in exchanged_solutions(*_on_host(system, A, samples), np.arange(samples.size)):
            solution.x = asarray_like(np.ascontiguousarray(solution.x), system.b)
            yield samples[chosen], solution
        return
    found: Any
    if is_large(A.graph):
        own, found, samples = rounded_solution(system, A, samples)
    else:
        own, found, samples = solved_with_known_pivots(system, A, samples, known)
    if found is not None:
        yield own, found
    if not samples.size:
        return
    for group in exchanged_together(A, samples if A.n_samples > 1 else np.zeros(1, np.int64), system.b):
        chosen = group.lanes if A.n_samples > 1 else samples
        every = chosen.size == system.b.shape[1] and np.array_equal(chosen, np.arange(chosen.size))
        part, matrix = system, A
        if not every:
            part = system.of_samples(chosen)
            matrix = A if A.n_samples == 1 else A.take_samples(chosen)
        solution = exchanged = ExchangedSolution(part, matrix, group).finish()
        good = exchanged.good()  # of no sample that takes other pivots
        if good.all():
            yield chosen, solution
        elif good.any():
            yield chosen[good], solution.taken(np.flatnonzero(good))


def _on_host(system: LinearSystem, A: CrsMatrix, samples: np.ndarray) -> tuple[LinearSystem, CrsMatrix]:
    """Copy the samples named of a system into arrays of NumPy."""
    own = A.take_samples(samples) if A.n_samples > 1 else A
    part = system.of_samples(samples)
    return replace(part, b=np.ascontiguousarray(to_numpy(part.b))), own.to(np.empty(0))


class ConditionsByKnown(Conditions):
    """Conditions of samples that known sequences of pivots solved, each computed at its first use."""

    def __init__(self, A: CrsMatrix, prints: np.ndarray, repaired: np.ndarray) -> None:
        self.A, self.plan, self.of_exchanged, self.known = A, None, conditions_of, None
        self.cancelled, self.repaired, self.n_samples, self.eps = prints, repaired, prints.size, EPS

    @functools.cached_property
    def equilibrated(self) -> np.ndarray:
        """Return NaN for all samples: none was estimated."""
        return np.full(self.n_samples, np.nan)

    @functools.cached_property
    def exchanged(self) -> np.ndarray:
        """Mark all samples: each took pivots by its own numbers."""
        return np.ones(self.n_samples, bool)


def conditions_of(A: CrsMatrix, samples: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Samples solved in this way, with numbers that change with their values, and reciprocal condition numbers."""
    if is_large(A.graph):
        yield conditions_by_superlu(A, samples)
        return
    for group in map(Group.alone, exchanged_together(A, samples)):
        own = A.take_samples(group.samples) if A.n_samples > 1 else A
        yield group.samples, group.prints, estimated(group.F, own, None, np.arange(group.samples.size), False)
