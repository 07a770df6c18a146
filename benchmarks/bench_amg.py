"""Iterations to 1e-8 on sixty-six problems, against PyAMG, each side at the best of its documented settings.

`python -m benchmarks amg [PART OF A NAME ...]`: all problems, or those named, which are not kept.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.amg_problems import PROBLEMS, Problem
from benchmarks.common import save
from ensemble.krylov import cg, gmres
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import (
    Chebyshev,
    EvolutionStrength,
    GaussSeidel,
    approximate_ideal_restriction,
    smoothed_aggregation,
)

RTOL = 1e-8
MOST = 500
DIRECT = 1000
"""Rows below which our code is given to coarsen; PyAMG's coarsest level has at most ten unknowns."""

EVOLUTION = {"strength": ("evolution", {"epsilon": 4.0, "k": 2, "proj_type": "l2"})}
PYAMG_SYMMETRIC: dict[str, dict[str, Any]] = {
    "default": {},
    "symmetric 0.25": {"strength": ("symmetric", {"theta": 0.25})},
    "evolution": EVOLUTION,
    "evolution, energy": {**EVOLUTION, "smooth": ("energy", {"krylov": "cg", "maxiter": 2, "degree": 1})},
}
"""Keywords of ``pyamg.smoothed_aggregation_solver``."""
CUBIC = {"smoother": Chebyshev(degree=3)}
OURS_SYMMETRIC: dict[str, dict[str, Any]] = {
    "default": {},
    "degree 3": CUBIC,
    "strength 0.08": {"strength": 0.08, **CUBIC},
    "strength 0.25": {"strength": 0.25, **CUBIC},
    "evolution": {"strength": EvolutionStrength(), **CUBIC},
    "evolution 4": {"strength": EvolutionStrength(epsilon=4.0), **CUBIC},
    "candidates": {"improve_candidates": 8, **CUBIC},
    "Gauss-Seidel": {"smoother": GaussSeidel()},
}
"""Keywords of ``smoothed_aggregation``."""


def pyamg_solvers(problem: Problem) -> dict[str, Callable[[], Any]]:
    """Name of a setting to what sets it up."""
    import pyamg

    A, B = problem.A.copy(), None if problem.near_nullspace is None else problem.near_nullspace.copy()  # written to
    if not problem.symmetric:
        both = {"symmetry": "nonsymmetric", "B": B, "BH": None if B is None else B.copy()}
        return {
            "aggregation": lambda: pyamg.smoothed_aggregation_solver(A, **both),
            "AIR": lambda: pyamg.air_solver(A),
        }
    if problem.block_size > 1:
        A = A.tobsr((problem.block_size, problem.block_size))

    def setup(options: dict[str, Any]) -> Callable[[], Any]:
        return lambda: pyamg.smoothed_aggregation_solver(A, B=B, **options)

    return {name: setup(options) for name, options in PYAMG_SYMMETRIC.items()}


def pyamg_iterations(problem: Problem, setup: Callable[[], Any]) -> dict[str, Any]:
    """Set up and solve."""
    b, residuals = problem.right_hand_side(), []
    np.random.seed(0)  # noqa: NPY002  PyAMG starts its eigenvalue estimates from it
    start = time.perf_counter()
    solver = setup()
    middle = time.perf_counter()
    accel = "cg" if problem.symmetric else "gmres"
    x = solver.solve(b, tol=RTOL, maxiter=MOST, accel=accel, residuals=residuals)
    end = time.perf_counter()
    return outcome(problem, b, x, len(residuals) - 1, start, middle, end, solver.operator_complexity())


def our_solvers(problem: Problem) -> dict[str, Callable[[CrsMatrix], Any]]:
    """Name of a setting to what sets it up."""
    given = {"near_nullspace": problem.near_nullspace, "block_size": problem.block_size}
    if problem.A.shape[0] < DIRECT:  # else the whole problem would be the coarsest level
        given["coarse_size"] = 50

    def setup(options: dict[str, Any]) -> Callable[[CrsMatrix], Any]:
        return lambda A: smoothed_aggregation(A, **given, **options)

    if not problem.symmetric:
        return {
            "default": setup({}),
            "reduction": approximate_ideal_restriction,
            "reduction, mean": lambda A: approximate_ideal_restriction(A, strength="mean"),
            "reduction, 3 + 1 sweeps": lambda A: approximate_ideal_restriction(A, sweeps=(3, 1)),
        }
    return {name: setup(options) for name, options in OURS_SYMMETRIC.items()}


def our_iterations(problem: Problem, setup: Callable[[CrsMatrix], Any]) -> dict[str, Any]:
    """Set up and solve."""
    A, b = CrsMatrix.from_scipy(problem.A), problem.right_hand_side()
    start = time.perf_counter()
    M = setup(A)
    middle = time.perf_counter()
    method = cg if problem.symmetric else gmres
    result = method(A, b, M=M, rtol=RTOL, max_iterations=MOST)
    end = time.perf_counter()
    x = np.asarray(result.x)
    return outcome(problem, b, x, int(result.iterations[0]), start, middle, end, M.operator_complexity)


def outcome(
    problem: Problem, b: Any, x: Any, iterations: int, start: float, middle: float, end: float, complexity: float
) -> dict[str, Any]:
    """What is kept of one solve."""
    residual = float(np.linalg.norm(b - problem.A @ x) / np.linalg.norm(b))
    solved = residual <= 2.0 * RTOL
    return {
        "iterations": iterations if solved else None, "residual": residual, "operator complexity": float(complexity),
        "setup": middle - start, "solve": end - middle,
    }  # fmt: skip


def attempts(problem: Problem, solvers: dict[str, Any], solve: Callable[..., Any]) -> dict[str, Any]:
    """Every setting; one that raises has no iterations."""
    found = {}
    for name, setup in solvers.items():
        try:
            found[name] = solve(problem, setup)
        except Exception as error:
            found[name] = {"iterations": None, "error": f"{type(error).__name__}: {error}"[:200]}
    return found


def best(found: dict[str, Any]) -> tuple[str, int | None]:
    """The setting of fewest iterations."""
    counts = {name: row["iterations"] for name, row in found.items() if row["iterations"] is not None}
    if not counts:
        return "none", None
    name = min(counts, key=counts.__getitem__)
    return name, counts[name]


def table(names: list[str]) -> list[dict[str, Any]]:
    """One row per problem."""
    rows = []
    print(f"{'problem':38}{'rows':>8}  {'PyAMG':>5} {'setting':18} {'ours':>5} {'setting':24} ratio  all of ours")
    for name in names:
        problem = PROBLEMS[name]()
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            peers = attempts(problem, pyamg_solvers(problem), pyamg_iterations)
            ours = attempts(problem, our_solvers(problem), our_iterations)
        (peer, theirs), (own, mine) = best(peers), best(ours)
        ratio = None if mine is None or not theirs else mine / theirs
        rows.append({"problem": name, "rows": problem.A.shape[0], "pyamg": peers, "ours": ours, "ratio": ratio})
        counts = " ".join(str(row["iterations"] or "-") for row in ours.values())
        shown = "-" if ratio is None else f"{ratio:.2f}"
        print(
            f"{name:38}{problem.A.shape[0]:8}  {theirs or '-':>5} {peer:18} {mine or '-':>5} {own:24} {shown:>5}",
            counts,
            flush=True,
        )
    return rows


def main() -> None:
    """Print the table; keep it where it is whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="parts of the names of problems (default: all)")
    parts = parser.parse_args().parts
    names = [name for name in PROBLEMS if not parts or any(part in name for part in parts)]
    rows = table(names)
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    within = sum(ratio <= 1.2 for ratio in ratios)
    print(f"{len(rows)} problems; at most 1.2 times PyAMG's iterations in {within} of {len(ratios)} that both solve")
    if not parts:
        save("amg", rows)
