"""Stiff systems of 200 to 20,000 unknowns, rodas4 and bdf beside SciPy's BDF with sparsity, one thread.

`python -m benchmarks stiff` integrates the Brusselator with diffusion on a line and on a square, parameters varied by
sample. SciPy is given f over arrays and the sparsity of the Jacobian. Errors at the end are the largest over unknowns
of the first samples, against `rodas4` at 1e-6 of them. Record: `stiff`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.integrate import solve_ivp

from benchmarks.bench_ode import ours
from benchmarks.common import SEED, median, one_thread, save, show
from ensemble import gallery


class Case(NamedTuple):
    """A mesh: dimension, points along an edge, samples of ours, of SciPy and of the reference."""

    dimension: int
    points: int
    samples: int
    peers: int
    exact: int


CASES = {
    "line, 200": Case(1, 100, 512, 4, 8),
    "line, 2,000": Case(1, 1000, 128, 2, 8),
    "line, 10,000": Case(1, 5000, 32, 1, 2),
    "square, 5,000": Case(2, 50, 32, 1, 2),
    "square, 20,000": Case(2, 100, 8, 1, 1),
}

TOLERANCES = {"rodas4": (1e-3, 1e-4), "bdf": (1e-4, 1e-5)}


def square(m: int) -> gallery.InitialValueProblem:
    """The Brusselator on a square of m by m points with periodic edges (Hairer, Wanner II, section IV.10, "BRUS2D")."""

    def f(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        rates, spread = [], p[2] * float(m * m)
        for i in range(m):
            for j in range(m):
                u, v = (2 * (i * m + j) + k for k in range(2))
                beside = [2 * ((i + a) % m * m + (j + b) % m) for a, b in ((-1, 0), (1, 0), (0, -1), (0, 1))]
                reaction = y[u] * y[u] * y[v]
                sides = [y[b] + y[c] + y[d] + y[e] for b, c, d, e in (beside, [k + 1 for k in beside])]
                rates.append(p[0] + reaction - (p[1] + 1.0) * y[u] + spread * (sides[0] - 4.0 * y[u]))
                rates.append(p[1] * y[u] - reaction + spread * (sides[1] - 4.0 * y[v]))
        return rates

    x = np.arange(m) / m
    start = np.empty((m, m, 2))
    start[..., 0], start[..., 1] = (22.0 * x * (1.0 - x) ** 1.5)[None, :], (27.0 * x * (1.0 - x) ** 1.5)[:, None]
    return gallery.InitialValueProblem(f, start.reshape(-1), np.array([1.0, 3.4, 0.1]), (0.0, 1.5))


def line_arrays(p: np.ndarray) -> Callable[[float, np.ndarray], np.ndarray]:
    """`gallery.brusselator` on arrays."""

    def f(t: float, y: np.ndarray) -> np.ndarray:
        u, v = y[0::2], y[1::2]
        spread, reaction = p[2] * (u.size + 1) ** 2, u * u * v
        wide = [np.concatenate([[edge], part, [edge]]) for edge, part in ((p[0], u), (p[1] / p[0], v))]
        du, dv = (spread * (w[:-2] - 2.0 * w[1:-1] + w[2:]) for w in wide)
        return np.stack([p[0] + reaction - (p[1] + 1.0) * u + du, p[1] * u - reaction + dv], axis=1).reshape(-1)

    return f


def square_arrays(p: np.ndarray, m: int) -> Callable[[float, np.ndarray], np.ndarray]:
    """`square` on arrays."""

    def f(t: float, y: np.ndarray) -> np.ndarray:
        grid = y.reshape(m, m, 2)
        u, v = grid[..., 0], grid[..., 1]
        sides = sum(np.roll(grid, shift, axis) for axis in (0, 1) for shift in (-1, 1))
        flow, reaction = p[2] * m * m * (sides - 4.0 * grid), u * u * v
        rates = np.stack([p[0] + reaction - (p[1] + 1.0) * u, p[1] * u - reaction], axis=-1)
        return (rates + flow).reshape(-1)

    return f


def sparsity(case: Case) -> Any:
    """The pattern of the Jacobian."""
    m = case.points
    ring = sp.eye_array(m) + sp.eye_array(m, k=1) + sp.eye_array(m, k=-1)
    if case.dimension == 1:
        return sp.csc_array(sp.kron(ring, np.ones((2, 2))))
    ring = ring + sp.eye_array(m, k=m - 1) + sp.eye_array(m, k=1 - m)
    eye = sp.eye_array(m)
    return sp.csc_array(sp.kron(sp.kron(ring, eye) + sp.kron(eye, ring), np.ones((2, 2))))


def rows_of(name: str, rounds: int) -> list[dict[str, Any]]:
    """A row for each solver and tolerance; processor time of whole calls, f traced in each."""
    case = CASES[name]
    problem: Any = gallery.brusselator(case.points) if case.dimension == 1 else square(case.points)
    factors = np.random.default_rng(SEED).uniform(0.95, 1.05, (3, case.samples))
    parameters, rows = problem.p[:, None] * factors, []
    exact = ours(problem, "rodas4", rtol=1e-6, atol=1e-8)(parameters[:, : case.exact])

    def scipy_bdf(p: np.ndarray, rtol: float) -> np.ndarray:
        f = line_arrays(p) if case.dimension == 1 else square_arrays(p, case.points)
        return solve_ivp(f, problem.t, problem.y0, "BDF", rtol=rtol, atol=1e-2 * rtol, jac_sparsity=pattern).y[:, -1]

    pattern = sparsity(case)
    for method, rtol in [(name, rtol) for name, tolerances in TOLERANCES.items() for rtol in tolerances]:
        solver = ours(problem, method, rtol=rtol, atol=1e-2 * rtol)
        if rtol == TOLERANCES[method][0]:
            solver(parameters[:, :2])
        ends, seconds = timed(lambda solver=solver: solver(parameters), rounds if problem.y0.size < 2500 else 1)
        rows.append(_row(name, f"ensemble {method}", rtol, case.samples, ends, exact, seconds))
    for rtol in (1e-4, 1e-5) if problem.y0.size < 10_000 else (1e-4,):
        ends, seconds = timed(
            lambda rtol=rtol: np.stack([scipy_bdf(p, rtol) for p in parameters.T[: case.peers]], axis=1), 1
        )
        rows.append(_row(name, "SciPy BDF", rtol, case.peers, ends, exact, seconds))
    return rows


def timed(call: Callable[[], np.ndarray], rounds: int) -> tuple[np.ndarray, float]:
    """The result, and the median of the seconds of the processor."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        ends = call()
        seconds.append(time.process_time() - start)
    return ends, median(seconds)


def _row(name: str, solver: str, rtol: float, count: int, ends: np.ndarray, exact: np.ndarray, seconds: float) -> Any:
    both = min(ends.shape[1], exact.shape[1])
    error = float(np.abs(ends[:, :both] - exact[:, :both]).max())
    return {"case": name, "solver": solver, "tolerance": rtol, "samples": count, "largest error": error,
            "ms per sample": 1e3 * seconds / count}  # fmt: skip


def main() -> None:
    """Print the table and keep it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks stiff", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", choices=tuple(CASES), nargs="*", default=())
    options = parser.parse_args()
    one_thread()
    rows = []
    for name in options.part or CASES:
        rows += (made := rows_of(name, options.rounds))
        show("Stiff reaction and diffusion, one thread", made)
    if not options.part:
        save("stiff", rows)
