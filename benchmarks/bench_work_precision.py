"""Work against precision of initial value problems beside SciPy, heyoka, CVODES, numbalsoda and diffrax, one core.

`python -m benchmarks work-precision` integrates three problems that are not stiff and two that are, each with a range
of tolerances, parameters varied by sample. Peers that are not installed are left out. The error is the root mean square
over samples and unknowns of the error at the end, over the largest magnitude of the unknown. References: `dop853` at
1e-14 and `rodas4` at 1e-12. Record: `work-precision`; figure: `plots-work-precision`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.bench_ode import cvodes, lsoda, ours, scipy_solver
from benchmarks.common import SEED, median, one_thread, save, show
from ensemble import gallery

Solver = Callable[[np.ndarray], np.ndarray]

CASES = {
    "Lorenz 63": (gallery.lorenz63, 0.1, False),
    "Three bodies": (gallery.figure_eight, 0.01, False),
    "Pleiades": (gallery.pleiades, 0.001, False),
    "HIRES": (gallery.hires, 0.1, True),
    "Robertson": (gallery.robertson, 0.1, True),
}
"""By case: the problem, the spread of its parameters, and whether it is stiff."""

NOT_STIFF, STIFF = (1e-4, 1e-6, 1e-8, 1e-10, 1e-12), (1e-3, 1e-5, 1e-7, 1e-9)
"""Relative tolerances."""

ABSOLUTE = {"HIRES": 1e-3, "Robertson": 1e-7}
"""The absolute tolerance over the relative one; 1 where none is given."""

SAMPLES, FEW, FEWER = 4096, 1024, 256
"""Of small systems, of stiff and of large ones; peers that take milliseconds per sample have 1 to 8."""


def heyoka_solver(problem: Any, tolerance: float, batch: int = 16) -> Solver | None:
    """heyoka's Taylor integrator, `batch` samples at a time."""
    try:
        import heyoka
    except ImportError:
        return None

    class Functions:
        """heyoka's functions under the names of the Array API."""

        sqrt = staticmethod(heyoka.sqrt)

    names = [f"y{i}" for i in range(problem.y0.size)]
    unknowns = heyoka.make_vars(*names)
    rates = problem.f(None, list(unknowns), [heyoka.par[k] for k in range(problem.p.size)], Functions)
    start = np.repeat(problem.y0[:, None], batch, axis=1)
    parameters = np.repeat(problem.p[:, None], batch, axis=1)
    system = list(zip(unknowns, rates, strict=True))
    integrator = heyoka.taylor_adaptive_batch(system, start.copy(), tol=tolerance, pars=parameters)

    def run(values: np.ndarray) -> np.ndarray:
        out = np.empty((problem.y0.size, values.shape[1]))
        for first in range(0, values.shape[1], batch):
            integrator.set_time(problem.t[0])
            integrator.state[:], integrator.pars[:] = start, values[:, first : first + batch]
            integrator.propagate_until(problem.t[1])
            out[:, first : first + batch] = integrator.state
        return out

    return run


def diffrax_solvers(problem: Any, solver: str) -> Callable[[float, float], Solver] | None:
    """diffrax under jit and vmap, compiled once for all tolerances."""
    try:
        import diffrax
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    jnp, method = jax.numpy, getattr(diffrax, solver)()
    term = diffrax.ODETerm(lambda t, y, p: jnp.stack(problem.f(t, y, p, jnp)))

    def one(p: Any, rtol: Any, atol: Any) -> Any:
        control = diffrax.PIDController(rtol=rtol, atol=atol)
        end = diffrax.diffeqsolve(term, method, problem.t[0], problem.t[1], None, jnp.asarray(problem.y0), p,
                                  stepsize_controller=control, max_steps=100_000, throw=False,
                                  adjoint=diffrax.ForwardMode())  # fmt: skip
        return end.ys[-1]

    whole = jax.jit(jax.vmap(one, (0, None, None)))
    return lambda rtol, atol: lambda parameters: np.asarray(whole(parameters.T, rtol, atol)).T


def samples_of(problem: Any, stiff: bool) -> int:
    """The number of samples of our methods and of peers that take many at once."""
    return FEWER if problem.y0.size >= 20 else FEW if stiff else SAMPLES


def solvers_of(case: str, problem: Any, stiff: bool) -> Iterator[tuple[str, float, Solver | None, int]]:
    """Name, tolerance, solver and number of samples."""
    small, ratio = problem.y0.size < 20, ABSOLUTE.get(case, 1.0)
    many = samples_of(problem, stiff)
    made = diffrax_solvers(problem, "Kvaerno5" if stiff else "Dopri8") if small else None
    for rtol in STIFF if stiff else NOT_STIFF:
        atol = ratio * rtol
        given = {"rtol": rtol, "atol": atol}
        if stiff:
            for method in ("rodas4", "bdf"):
                yield f"ensemble {method}", rtol, ours(problem, method, **given), many
            for method in ("LSODA", "BDF", "Radau"):
                yield f"SciPy {method}", rtol, scipy_solver(problem, method, rtol, atol), 2
            yield "numbalsoda LSODA", rtol, lsoda(problem, rtol, atol), FEWER
            yield "CasADi CVODES", rtol, cvodes(problem, rtol, atol), 8
            if made and case == "HIRES" and rtol > 1e-8:
                yield "diffrax Kvaerno5", rtol, made(rtol, atol), 8
        else:
            for method in ("tsit5", "dop853", "taylor"):
                if method != "taylor" or small or rtol in NOT_STIFF[1::2]:
                    yield f"ensemble {method}", rtol, ours(problem, method, **given), many
            for method in ("DOP853", "LSODA"):
                yield f"SciPy {method}", rtol, scipy_solver(problem, method, rtol, atol), 2 if small else 1
            if small or rtol in NOT_STIFF[1::2]:
                yield "heyoka", rtol, heyoka_solver(problem, rtol, 16 if small else 8), many
            if made:
                yield "diffrax Dopri8", rtol, made(rtol, atol), many


def timed(solver: Solver, parameters: np.ndarray, rounds: int) -> tuple[np.ndarray, float]:
    """The ends of the samples and the median of the processor's seconds, after a call that compiles."""
    ends, seconds = solver(parameters), []
    for _ in range(rounds):
        start = time.process_time()
        ends = solver(parameters)
        seconds.append(time.process_time() - start)
    return ends, median(seconds)


def rows_of(case: str, rounds: int) -> list[dict[str, Any]]:
    """A row for each solver and tolerance."""
    make, spread, stiff = CASES[case]
    problem: Any = make()
    shape = (problem.p.size, samples_of(problem, stiff))
    factors = np.random.default_rng(SEED).uniform(1.0 - spread, 1.0 + spread, shape)
    parameters = problem.p[:, None] * factors
    method, tight, floor = ("rodas4", 1e-12, 1e-17) if stiff else ("dop853", 1e-14, 1e-14)
    exact = ours(problem, method, rtol=tight, atol=floor)(parameters)
    largest, rows = np.abs(exact).max(axis=1, keepdims=True), []
    for name, rtol, solver, count in solvers_of(case, problem, stiff):
        if solver is None:
            continue
        ends, seconds = timed(solver, parameters[:, :count], rounds if name.startswith(("ens", "hey")) else 1)
        error = float(np.sqrt((((ends - exact[:, :count]) / largest) ** 2).mean()))
        rows.append({"case": case, "solver": name, "tolerance": rtol, "samples": count, "error": error,
                     "us per sample": 1e6 * seconds / count})  # fmt: skip
    return rows


def main() -> None:
    """Print the table and keep it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks work-precision", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", choices=tuple(CASES), nargs="*", default=())
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX starts its threads
    one_thread()
    rows = [row for case in options.part or CASES for row in rows_of(case, options.rounds)]
    show("Work and precision, one core", rows)
    if not options.part:
        save("work-precision", rows)
