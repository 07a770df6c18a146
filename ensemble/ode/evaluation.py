"""Graphs evaluated for arrays of all samples, and what implicit methods need of a right-hand side."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ensemble._compile.numba import one_thread
from ensemble._compile.trace.derivatives import jacobian_pattern
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._kernels.ode.group_plan import Groups, groups_of, sums_of
from ensemble._kernels.ode.groups import run_groups
from ensemble._kernels.ode.program import Program, program_of, run_program
from ensemble._typing import Array
from ensemble.linalg import CrsGraph, CrsMatrix, Factorization
from ensemble.ode.methods.straight_line_lu import finite_pivot
from ensemble.ode.system import System

__all__ = [
    "Evaluation", "Parts", "columns_of", "evaluation_of", "kept_plan", "parts_of", "pattern_of", "plan_of",
    "threads_of",
]  # fmt: skip

Made = TypeVar("Made")

VALUES = 1 << 17
"""Values of y that are in progress at a time; of 32 samples at least."""

FACTORS = 1 << 25
"""Values of factors that are kept at a time; of 8 samples at least."""

FEW = 1 << 13
"""Values of y in progress up to which one thread works: a pass takes less time than threads need to start and wait.

Measured again by `benchmarks stiff`.
"""

LARGE, SMALL = 256, 8
"""Operations of a group, on average, from which groups are faster than an instruction for each node, and are of use.

Networks of 325 reactions, with 70 to 100, take 1.4 times as long by groups; a matrix of 100 unknowns half as long.
Measured again by `benchmarks ode-dense`.
"""

MOSTLY = 0.5
"""Of all operations in long sums, from which groups are faster than instructions of basic operations.

A stencil of 2000 unknowns takes 64 us by instructions and 148 by groups; rows of a matrix stay in registers by groups.
Measured again by `benchmarks ode-dense`.
"""

KEPT = 16
"""Systems of which the programs are kept."""


class Evaluation:
    """A graph of t, y, p and more, for arrays of all samples."""

    def __init__(self, graph: Graph, n: int, dtype: str, least: int = LARGE) -> None:
        self.graph = graph
        self.groups: Groups | None = groups_of(graph, n, dtype, least)
        self._program: Program | None = None
        if self.groups is None or (least == LARGE and sums_of(self.groups) < MOSTLY):
            self._program = program_of(graph, n, dtype)
            if self._program is not None and not self._program.whole:
                self.groups = None

    @property
    def basic(self) -> Program | None:
        """The program, of basic operations alone, which kernels of whole steps run; None where there is none."""
        return None if self._program is None or self._program.whole or self.groups is not None else self._program

    def __call__(self, rows: Array, y: Array, out: Array | None = None) -> Array:
        """The outputs, (n_outputs, S): `rows` holds t, the parameters and more, (n_rows, S)."""
        if self.groups is not None:
            return run_groups(self.groups, rows, y, out)
        if self._program is not None:
            return run_program(self._program, rows, y, out)
        results = replay(self.graph, [rows[0], *y, *rows[1:]], np)
        out = np.empty((len(results), y.shape[1]), y.dtype) if out is None else out
        for k, result in enumerate(results):
            out[k] = result
        return out


class Parts(NamedTuple):
    """What the steps of one system need."""

    f: Evaluation
    matrix: Evaluation
    """The stored entries of ``shift I - J``; the last row is the shift."""
    slope: Evaluation | None
    """df/dt; None where f does not depend on the time."""
    graph: CrsGraph
    plans: dict[Any, Any]
    """What is made from these alone, by a name and what else it depends on (`kept_plan`)."""


_kept: dict[Any, Parts] = {}


def parts_of(system: System) -> Parts:
    """The programs and the sparsity of a system, kept by its trace."""
    key = (system.graph, system.n_parameters, system.dtype)
    if key not in _kept:
        if len(_kept) >= KEPT:
            _kept.pop(next(iter(_kept)))
        _kept[key] = _parts(system)
    return _kept[key]


def pattern_of(graph: Graph, n: int) -> tuple[list[tuple[int, int]], CrsGraph]:
    """The places of entries of the Jacobian that may be other than zero, and the diagonal, in the order of the rows."""
    places = {(i, position - 1) for i, position in jacobian_pattern(graph, range(1, n + 1))}
    pattern = sorted(places | {(i, i) for i in range(n)})
    indptr = np.concatenate([[0], np.cumsum(np.bincount([i for i, _ in pattern], minlength=n))])
    return pattern, CrsGraph(indptr, [j for _, j in pattern], (n, n))


def _parts(system: System) -> Parts:
    system = system.traced()
    n, k, real = system.n, system.n_parameters, Scalar(system.dtype)
    pattern, graph = pattern_of(system.graph, n)
    constant, unbounded = False, system.has_unbounded_slopes()

    def matrix(*values: Any) -> Any:
        shift, zero = values[-1], 0.0 * values[-1]
        xp = shift.__array_namespace__()
        entries = system.bound(xp).jacobian(values[0], values[1 : n + 1], values[n + 1 : -1])

        def pivot(value: Any) -> Any:
            return finite_pivot(shift - value, shift, xp) if unbounded else shift - value

        stored = [entries.get(place) for place in pattern]
        return [
            shift if i == j and value is None else pivot(value) if i == j else zero if value is None else zero - value
            for (i, j), value in zip(pattern, stored, strict=True)
        ]

    def slope(*values: Any) -> Any:
        nonlocal constant
        xp = values[0].__array_namespace__()
        slopes = system.bound(xp).time_derivative(values[0], values[1 : n + 1], values[n + 1 :])
        constant = all(value is None for value in slopes)
        return [xp.full_like(values[0], 0.0 if value is None else value) for value in slopes]

    point = [real] * (1 + n + k)
    slope_graph = trace(slope, *point, function="ode.solve")
    evaluated = Evaluation(system.graph, n, system.dtype)
    whole = Evaluation(trace(matrix, *point, real, function="ode.solve"), n, system.dtype)
    return Parts(evaluated, whole, None if constant else Evaluation(slope_graph, n, system.dtype), graph, {})


@functools.lru_cache(maxsize=KEPT)
def evaluation_of(graph: Graph, n: int, dtype: str) -> Evaluation:
    """The evaluation of a graph, kept; by groups of operations wherever it has several of a kind."""
    return Evaluation(graph, n, dtype, SMALL)


def plan_of(parts: Parts, n: int, dtype: str) -> tuple[Factorization, int]:
    """A factorisation whose `update` makes those of samples, and how many samples are in progress at a time."""

    def make() -> Factorization:
        return Factorization(CrsMatrix(parts.graph, np.ones((parts.graph.nnz, 1), dtype)))

    plan = kept_plan(parts, ("factors", dtype), make)
    return plan, max(8, min(columns_of(n), FACTORS // plan.n_values))


def kept_plan(parts: Parts, key: Any, make: Callable[[], Made]) -> Made:
    """What `make` makes from parts of a system, kept with them; `key` names it and all else that it depends on."""
    if key not in parts.plans:
        parts.plans[key] = make()
    made: Made = parts.plans[key]
    return made


def columns_of(n: int) -> int:
    """How many samples of `n` unknowns are in progress at a time."""
    return max(VALUES // n, 32)


def threads_of(n: int, n_samples: int) -> contextlib.AbstractContextManager[None]:
    """One thread for few unknowns and samples, all threads otherwise."""
    return one_thread() if n * n_samples <= FEW else contextlib.nullcontext()
