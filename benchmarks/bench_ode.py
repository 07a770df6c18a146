"""Ensembles of initial value problems on one CPU thread, beside heyoka, JAX, SciPy, NumPy, CVODES and LSODA.

`python -m benchmarks ode` integrates Lorenz 63 (fixed steps of order 4 and adaptive), HIRES, Robertson and a stiff
reaction-diffusion system. Peers that are not installed are left out. The bound of the fixed steps is that of their 45
operations at the rate of fused products that is measured in the same run; where sums have units of their own, that of
the 37 operations which need a multiplier. Errors are the largest over trajectories against DOP853 at 1e-13. Record:
`ode-1threads`.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from benchmarks.common import SEED, EnsembleBenchmark, interleaved, median, one_thread, save, show
from ensemble import Ensemble, gallery, ode
from ensemble._compile.lanes.graph_loop import graph_loop
from ensemble._compile.lanes.library import assembly_of
from ensemble._compile.machine_code import assembled, code_of
from ensemble._compile.processor import register_bytes
from ensemble._compile.trace.contraction import contracted
from ensemble._compile.trace.numba_source import scalar_function
from ensemble._compile.trace.tracer import Scalar, trace

OPERATIONS, MULTIPLIER_OPERATIONS = 45, 37
STEPS = 1000


def lorenz(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
    """The system of Lorenz (1963) with parameter rho."""
    return [10.0 * (y[1] - y[0]), y[0] * (p[0] - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2]]


class Trajectories(EnsembleBenchmark):
    """Lorenz 63 over one unit of time: 100 fixed steps of order 4, and adaptive steps of order 5."""

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.rho = Ensemble(np.linspace(26.0, 30.0, n_samples)[None])
        self.time_fixed(backend, n_samples)
        self.time_adaptive(backend, n_samples)

    def time_fixed(self, backend: str, n_samples: int) -> None:
        ode.solve(lorenz, np.ones(3), (0.0, 1.0), p=self.rho, method="rk4", step=0.01, backend=self.library)
        self.wait()

    def time_adaptive(self, backend: str, n_samples: int) -> None:
        ode.solve(lorenz, np.ones(3), (0.0, 1.0), p=self.rho, backend=self.library)
        self.wait()


def fused_products() -> float:
    """Fused multiply-adds of float64 per second and thread, of independent chains in registers."""
    real, n, width, repeats = Scalar("float64"), 12, register_bytes() // 8, 8

    def body(*values: Any) -> tuple[Any, ...]:
        chains, (a, b) = list(values[:n]), values[n:]
        for _ in range(repeats):
            chains = [x * a + b for x in chains]
        return (*chains, a < 0.0, a < 0.0)

    function = graph_loop(contracted(trace(body, *[real] * (n + 2))), "loop", n, width, "float64")
    place = code_of(assembled([function]), ["loop"], assembly_of)["loop"]
    pointer = ctypes.POINTER(ctypes.c_double)
    loop = ctypes.CFUNCTYPE(ctypes.c_int64, pointer, ctypes.c_int64, ctypes.c_int64)(place)
    memory = np.zeros((n + 2) * width + 8)
    first = -memory.ctypes.data % 64 // 8
    rows = memory[first : first + (n + 2) * width]
    rows[n * width : (n + 1) * width] = 0.5
    at, rates = rows.ctypes.data_as(pointer), []
    for _ in range(9):
        start = time.perf_counter()
        loop(at, width + 1, 20_000)
        rates.append(20_000 * repeats * n * width / (time.perf_counter() - start))
    return max(rates)


def rk4_step(xp: Any, y: Any, rho: Any, h: float) -> Any:
    """A step of the classical method, of the library `xp`."""
    f = lambda y: xp.stack(lorenz(0.0, y, [rho], xp))
    k1 = f(y)
    k2 = f(y + 0.5 * h * k1)
    k3 = f(y + 0.5 * h * k2)
    k4 = f(y + h * k3)
    return y + h / 6.0 * (k1 + 2.0 * (k2 + k3) + k4)


def numpy_rk4(rho: np.ndarray) -> np.ndarray:
    """The classical method over arrays of all trajectories."""
    y, h = np.ones((3, rho.size)), 1.0 / STEPS

    for _ in range(STEPS):
        y = rk4_step(np, y, rho, h)
    return y


def jax_rk4() -> Callable[[np.ndarray], np.ndarray] | None:
    """The same, jitted, one trajectory vectorised over all."""
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    jnp, h = jax.numpy, 1.0 / STEPS

    def one(rho: Any) -> Any:
        return jax.lax.fori_loop(0, STEPS, lambda _, y: rk4_step(jnp, y, rho, h), jnp.ones(3))

    run = jax.jit(jax.vmap(one))
    return lambda rho: np.asarray(run(rho)).T


def heyoka_batch(tolerance: float, batch: int = 16) -> Callable[[np.ndarray], np.ndarray] | None:
    """Taylor integration by heyoka, `batch` trajectories at a time."""
    try:
        import heyoka
    except ImportError:
        return None
    x, y, z = heyoka.make_vars("x", "y", "z")
    rho = heyoka.par[0]
    system = [(x, 10.0 * (y - x)), (y, x * (rho - z) - y), (z, x * y - 8.0 / 3.0 * z)]
    integrator = heyoka.taylor_adaptive_batch(system, np.ones((3, batch)), tol=tolerance, pars=np.ones((1, batch)))

    def run(values: np.ndarray) -> np.ndarray:
        out = np.empty((3, values.size))
        for first in range(0, values.size, batch):
            integrator.set_time(0.0)
            integrator.state[:], integrator.pars[0] = 1.0, values[first : first + batch]
            integrator.propagate_until(1.0)
            out[:, first : first + batch] = integrator.state
        return out

    return run


def cvodes(problem: Any, tolerance: float, absolute: float) -> Callable[[np.ndarray], np.ndarray] | None:
    """CasADi's CVODES, one sample after the other."""
    try:
        import casadi
    except ImportError:
        return None
    y, p = casadi.SX.sym("y", problem.y0.size), casadi.SX.sym("p", problem.p.size)
    f = casadi.vertcat(*problem.f(0.0, [y[i] for i in range(y.numel())], [p[i] for i in range(p.numel())], casadi))
    options = {"abstol": absolute, "reltol": tolerance, "max_num_steps": 100_000}
    solver = casadi.integrator("F", "cvodes", {"x": y, "p": p, "ode": f}, 0.0, problem.t[1], options)

    def run(parameters: np.ndarray) -> np.ndarray:
        ends = [np.asarray(solver(x0=problem.y0, p=parameters[:, s])["xf"]) for s in range(parameters.shape[1])]
        return np.concatenate(ends, axis=1)

    return run


def scipy_solver(problem: Any, method: str, rtol: float, atol: float) -> Callable[[np.ndarray], np.ndarray]:
    """SciPy's `solve_ivp`, one sample after the other; the values at the end."""
    from scipy.integrate import solve_ivp

    def run(parameters: np.ndarray) -> np.ndarray:
        ends = []
        for s in range(parameters.shape[1]):
            p = parameters[:, s]
            f = lambda t, y, p=p: problem.f(t, y, p, np)
            ends.append(solve_ivp(f, problem.t, problem.y0, method=method, rtol=rtol, atol=atol).y[:, -1])
        return np.stack(ends, axis=1)

    return run


def lsoda(problem: Any, rtol: float, atol: float) -> Callable[[np.ndarray], np.ndarray] | None:
    """numbalsoda's LSODA, one sample after the other: f and the loop over samples compiled by Numba."""
    try:
        import numbalsoda
    except ImportError:
        return None
    real, n, m = Scalar("float64"), problem.y0.size, problem.p.size
    graph = trace(lambda t, y, p: tuple(problem.f(t, y, p, t.__array_namespace__())), real, [real] * n, [real] * m)
    inputs = ["t", *(f"y[{i}]" for i in range(n)), *(f"p[{i}]" for i in range(m))]
    given = ", ".join(inputs[int(name[1:])] for name in graph.parameters)
    lines = [f"    dy[{i}] = r[{i}]" for i in range(n)]
    source = [scalar_function(graph, "rates"), f"def f(t, y, dy, p):\n    r = compiled({given})", *lines]
    names: dict[str, Any] = {}
    exec("\n".join(source), {"math": math, "np": np, "compiled": lambda *_: None}, names)
    names["f"].__globals__["compiled"] = numba.njit(names["rates"])
    address, times = numba.cfunc(numbalsoda.lsoda_sig)(names["f"]).address, np.array(problem.t, np.float64)
    integrate = numbalsoda.lsoda

    @numba.njit
    def run(start, parameters, out):
        for s in range(out.shape[1]):
            ends, good = integrate(address, start, times, parameters[s], rtol, atol, 100_000)
            out[:, s] = ends[1]
            if not good:
                out[:, s] = np.nan

    def solve(parameters: np.ndarray) -> np.ndarray:
        out = np.empty((n, parameters.shape[1]))
        run(problem.y0.astype(np.float64), np.ascontiguousarray(parameters.T), out)
        return out

    return solve


Solver = Callable[[np.ndarray], np.ndarray]


def table(case: str, solvers: dict[str, tuple[Solver | None, int]], parameters: np.ndarray, exact: np.ndarray,
          rounds: int) -> list[dict[str, Any]]:  # fmt: skip
    """Rows of one case: each solver takes its number of samples, the first of `parameters`."""
    there = {name: (solver, count) for name, (solver, count) in solvers.items() if solver is not None}
    ends: dict[str, np.ndarray] = {}

    def call(name: str) -> None:
        solver, count = there[name]
        ends[name] = solver(parameters[..., :count])

    seconds = interleaved({name: (lambda name=name: call(name)) for name in there}, rounds)
    ours = next(iter(there))
    rows = []
    for name, (_, count) in there.items():
        rate = count / median(seconds[name])
        error = float(np.abs(ends[name] - exact[:, : ends[name].shape[1]]).max())
        factor = median([b / there[name][1] * there[ours][1] / a for a, b in zip(seconds[ours], seconds[name])])
        rows.append({"case": case, "solver": name, "samples": count, "per second": rate, "largest error": error,
                     "x slower than the first": factor})  # fmt: skip
    return rows


def ours(problem: Any, method: str, **options: Any) -> Solver:
    """A call of `ode.solve` as a function of parameters (k, S)."""

    def run(parameters: np.ndarray) -> np.ndarray:
        result = ode.solve(problem.f, problem.y0, problem.t, p=Ensemble(parameters), method=method, **options)
        return result.raise_if_failed().y.samples

    return run


def lorenz_rows(rounds: int, n_samples: int = 10_000) -> list[dict[str, Any]]:
    """Lorenz 63, rho from 0 to 21, t from 0 to 1."""
    problem = gallery.lorenz63()._replace(f=lorenz, y0=np.ones(3), t=(0.0, 1.0))
    rho = np.linspace(0.0, 21.0, n_samples)[None]
    exact = ours(problem, "dop853", rtol=1e-13, atol=1e-13)(rho)
    jax_run, rows = jax_rk4(), []
    fixed = {
        "ensemble rk4": (ours(problem, "rk4", step=1.0 / STEPS), n_samples),
        "JAX rk4": (None if jax_run is None else lambda p: jax_run(p[0]), n_samples),
        "NumPy rk4": (lambda p: numpy_rk4(p[0]), n_samples),
    }
    rows += table("Lorenz 63, 1000 steps of order 4", fixed, rho, exact, rounds)
    batch = heyoka_batch(1e-9)
    adaptive = {
        "ensemble taylor 1e-9": (ours(problem, "taylor", rtol=1e-9, atol=1e-9), n_samples),
        "ensemble dop853 1e-10": (ours(problem, "dop853", rtol=1e-10, atol=1e-10), n_samples),
        "ensemble tsit5 1e-9": (ours(problem, "tsit5", rtol=1e-9, atol=1e-9), n_samples),
        "heyoka 1e-9, batches of 16": (None if batch is None else lambda p: batch(p[0]), n_samples // 16 * 16),
        "SciPy DOP853 1e-9": (scipy_solver(problem, "DOP853", 1e-9, 1e-9), 40),
    }
    return rows + table("Lorenz 63, adaptive", adaptive, rho, exact, rounds)


def stiff_rows(rounds: int, n_samples: int = 1000) -> list[dict[str, Any]]:
    """HIRES and Robertson's reactions, rates varied by ten per cent."""
    rng, rows = np.random.default_rng(SEED), []
    for name, problem, rtol, atol in (("HIRES", gallery.hires(), 1e-5, 1e-7),
                                      ("Robertson", gallery.robertson(), 1e-5, 1e-9)):  # fmt: skip
        parameters = problem.p[:, None] * rng.uniform(0.9, 1.1, (problem.p.size, n_samples))
        exact = ours(problem, "rodas4", rtol=1e-11, atol=1e-14)(parameters)
        solvers = {
            f"ensemble rodas4 {rtol:.0e}": (ours(problem, "rodas4", rtol=rtol, atol=atol), n_samples),
            f"CasADi CVODES {rtol:.0e}": (cvodes(problem, rtol, atol) if name == "HIRES" else None, 20),
            f"numbalsoda LSODA {rtol:.0e}": (lsoda(problem, rtol, atol), n_samples),
            f"SciPy LSODA {rtol:.0e}": (scipy_solver(problem, "LSODA", rtol, atol), 20),
            f"SciPy Radau {rtol:.0e}": (scipy_solver(problem, "Radau", rtol, atol), 10),
        }
        rows += table(name, solvers, parameters, exact, rounds)
    return rows


def brusselator_rows(rounds: int, n_samples: int = 256) -> list[dict[str, Any]]:
    """Reaction and diffusion on a line, 200 unknowns."""
    problem = gallery.brusselator(100)
    rng = np.random.default_rng(SEED)
    parameters = problem.p[:, None] * rng.uniform(0.95, 1.05, (problem.p.size, n_samples))
    exact = ours(problem, "rodas4", rtol=1e-8, atol=1e-10)(parameters)
    solvers = {
        "ensemble rodas4 1e-4": (ours(problem, "rodas4", rtol=1e-4, atol=1e-6), n_samples),
        "SciPy BDF 1e-4": (scipy_solver(problem, "BDF", 1e-4, 1e-6), 2),
        "SciPy BDF 1e-5": (scipy_solver(problem, "BDF", 1e-5, 1e-7), 2),
    }
    return table("Brusselator, 200 unknowns", solvers, parameters, exact, rounds)


def main() -> None:
    """Print the tables and keep them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ode", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", choices=("lorenz", "stiff", "brusselator"), nargs="*", default=())
    options = parser.parse_args()
    one_thread()
    parts = {"lorenz": lorenz_rows, "stiff": stiff_rows, "brusselator": brusselator_rows}
    rows = [row for name in options.part or parts for row in parts[name](options.rounds)]
    products = fused_products()
    bounds = {
        "of 45 operations": products / (OPERATIONS * STEPS),
        "of 37 multiplications": products / (MULTIPLIER_OPERATIONS * STEPS),
    }
    rk4 = [row["per second"] for row in rows if row["solver"] == "ensemble rk4"]
    summary: dict[str, Any] = {"fused products per second": products, "bounds of rk4 per second": bounds}
    if rk4:
        summary["fractions of the bounds"] = {name: rk4[0] / bound for name, bound in bounds.items()}
    show("Initial value problems, one thread", rows)
    print(summary)
    if not options.part:
        save("ode-1threads", rows, **summary)
