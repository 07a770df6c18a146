"""Right-hand sides over arrays, dense Jacobians, and one sample of small and of banded stiff systems. One thread.

`python -m benchmarks ode-dense` integrates Kuramoto's model and linear systems with `tsit5` and `dop853` beside SciPy's
RK45 and DOP853 with NumPy's f, and reaction networks with `rodas4` and `bdf` beside numbalsoda's LSODA (skipped where
numbalsoda is missing); "at LSODA's error" is at the loosest tolerance that has no larger one. Robertson's and HIRES'
reactions stand beside SciPy's BDF, a reaction with diffusion of 2000 unknowns beside SciPy's LSODA with bands. "first"
is a process's first call with this f, trace included. Errors are the largest over unknowns of the first sample against
a tolerance of 1e-10. Times are of the processor. Record: `ode-dense`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from scipy.integrate import solve_ivp

from benchmarks.common import RESULTS, SEED, median, one_thread, save, show
from ensemble import Ensemble, gallery, ode

SIZES = (30, 100, 200)
NETWORKS = ((53, 325), (100, 600))
SAMPLES = (1, 64)


def best(call: Callable[[], Any], rounds: int) -> tuple[Any, float]:
    """The result, and the median of the seconds of processor time, which other processes change less."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        result = call()
        seconds.append(time.process_time() - start)
    return result, median(seconds)


def couplings(n: int) -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """By name, f as lists or arrays for us, and f of NumPy for SciPy."""
    rng = np.random.default_rng(SEED)
    w, A = rng.normal(size=n), rng.normal(size=(n, n)) / np.sqrt(n) - 2.0 * np.eye(n)

    def kuramoto(t: Any, y: Any, p: Any, xp: Any) -> Any:
        return w + p[0] / n * xp.sum(xp.sin(y[None] - y[:, None]), axis=1)

    def listed(t: Any, y: Any, p: Any, xp: Any) -> Any:
        return [w[i] + p[0] / n * sum(xp.sin(y[j] - y[i]) for j in range(n)) for i in range(n)]

    def linear(t: Any, y: Any, p: Any, xp: Any) -> Any:
        return p[0] * (xp.asarray(A) @ y)

    return {"Kuramoto, arrays": (kuramoto, kuramoto), "Kuramoto, lists": (listed, kuramoto),
            "matrix": (linear, linear)}  # fmt: skip


def rows_of_couplings(n: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each right-hand side, method and number of samples."""
    y0, rows = np.random.default_rng(SEED + 1).normal(size=n), []
    for name, (f, plain) in couplings(n).items():
        for method, peer in (("tsit5", "RK45"), ("dop853", "DOP853")):

            def scipy(plain: Any = plain, peer: str = peer) -> Any:
                return solve_ivp(lambda t, y: plain(t, y, [1.0], np), (0.0, 5.0), y0, peer, rtol=1e-6, atol=1e-9)

            start = time.process_time()
            ode.solve(f, y0, (0.0, 5.0), p=[1.0], method=method)
            first = time.process_time() - start
            expected, alone = best(scipy, rounds)
            for S in SAMPLES:
                p = Ensemble(np.linspace(1.0, 1.1, S)[None])
                made, seconds = best(
                    lambda f=f, p=p, method=method: ode.solve(f, y0, (0.0, 5.0), p=p, method=method), rounds
                )
                rows.append({"case": f"{name}, n = {n}", "method": method, "samples": S, "first, s": first,
                             "ms per sample": 1e3 * seconds / S, "SciPy, ms": 1e3 * alone,
                             "ratio": alone * S / seconds,
                             "distance": float(np.abs(made.y.samples[:, 0] - expected.y[:, -1]).max())})  # fmt: skip
    return rows


class Network:
    """Random reactions of one or two species, rates over six orders of magnitude."""

    def __init__(self, n: int, n_reactions: int) -> None:
        rng = np.random.default_rng(SEED)
        self.n, self.y0 = n, np.full(n, 1.0 / n)
        self.a, self.b, self.c = (rng.integers(0, n, n_reactions) for _ in range(3))
        self.k, self.two = 10.0 ** rng.uniform(-2, 4, n_reactions), rng.random(n_reactions) < 0.7

    def __call__(self, t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        rates = [0.0 * y[0]] * self.n
        for a, b, c, k, two in zip(self.a, self.b, self.c, self.k, self.two, strict=True):
            r = k * p[0] * y[a] * (y[b] if two else 1.0)
            rates[a] = rates[a] - r
            rates[b] = rates[b] - r if two else rates[b]
            rates[c] = rates[c] + (2.0 * r if two else r)
        return rates

    def lsoda(self) -> Callable[[float, float, float], np.ndarray]:
        """The state at t = 10 by numbalsoda, for the factor of all rates and the tolerances."""
        import numbalsoda

        a, b, c, k, two, n, count = self.a, self.b, self.c, self.k, self.two, self.n, self.k.size

        @numba.cfunc(numbalsoda.lsoda_sig)  # type: ignore[untyped-decorator, unused-ignore]
        def rhs(t: Any, u: Any, du: Any, p: Any) -> None:
            y, d = numba.carray(u, (n,)), numba.carray(du, (n,))
            d[:] = 0.0
            for i in range(count):
                r = k[i] * p[0] * y[a[i]] * (y[b[i]] if two[i] else 1.0)
                d[a[i]] -= r
                if two[i]:
                    d[b[i]] -= r
                d[c[i]] += 2.0 * r if two[i] else r

        def solve(factor: float, rtol: float, atol: float) -> np.ndarray:
            made, _ = numbalsoda.lsoda(rhs.address, self.y0, np.array([0.0, 10.0]), np.array([factor]), rtol, atol)
            end: np.ndarray = made[-1]
            return end

        return solve


def rows_of_network(n: int, n_reactions: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each method and number of samples."""
    f, rows, name = Network(n, n_reactions), [], f"{n} species, {n_reactions} reactions"
    rtol, atol = 1e-4, 1e-8
    exact = ode.solve(f, f.y0, (0.0, 10.0), p=[1.0], method="rodas4", rtol=1e-9, atol=1e-12).y.samples[:, 0]
    lsoda, reached = None, None
    if importlib.util.find_spec("numbalsoda") is not None:
        solver = f.lsoda()
        end, seconds = best(lambda: solver(1.0, rtol, atol), 5 * rounds)
        lsoda, reached = 1e3 * seconds, float(np.abs(end - exact).max())
        rows.append({"case": name, "method": "numbalsoda lsoda", "samples": 1, "ms per sample": lsoda, "ratio": 1.0,
                     "rtol": rtol, "error": reached})  # fmt: skip
    for method in ("rodas4", "bdf"):

        def made(S: int, rtol: float, method: str = method) -> Any:
            p = Ensemble(np.linspace(0.9, 1.1, S)[None] if S > 1 else np.ones((1, 1)))
            atol = 1e-4 * rtol
            return ode.solve(f, f.y0, (0.0, 10.0), p=p, method=method, rtol=rtol, atol=atol)

        def error(rtol: float, made: Callable[..., Any] = made) -> float:
            return float(np.abs(made(1, rtol).y.samples[:, 0] - exact).max())

        tolerances = [(name, rtol)]
        if reached is not None:
            few = next(10.0**-k for k in np.arange(3.0, 8.0, 0.25) if error(10.0**-k) <= reached)
            tolerances.append((f"{name}, at LSODA's error", few))
        for case, given in tolerances:
            for S in (1, 32, 256):
                made(S, given)
                _, seconds = best(lambda S=S, given=given, made=made: made(S, given), rounds)
                rows.append({"case": case, "method": method, "samples": S, "ms per sample": 1e3 * seconds / S,
                             "ratio": lsoda and lsoda * S / (1e3 * seconds), "rtol": given,
                             "error": error(given) if S == 1 else float("nan")})  # fmt: skip
    return rows


def rows_of_small(rounds: int) -> list[dict[str, Any]]:
    """A row for each small system and number of samples: `bdf` and SciPy's."""
    rows = []
    for name, atol in (("robertson", 1e-12), ("hires", 1e-9)):
        problem = getattr(gallery, name)()

        def scipy(problem: Any = problem, atol: float = atol) -> Any:
            f = lambda t, y: problem.f(t, y, problem.p, np)
            return solve_ivp(f, problem.t, problem.y0, "BDF", rtol=1e-6, atol=atol)

        expected, alone = best(scipy, rounds)
        for method in ("bdf", "rodas4"):
            for S in (1, 8, 64):
                p = Ensemble(problem.p[:, None] * np.linspace(1.0, 1.1, S))
                call = lambda problem=problem, p=p, atol=atol, method=method: ode.solve(
                    problem.f, problem.y0, problem.t, p=p, method=method, rtol=1e-6, atol=atol
                )
                call()
                made, seconds = best(call, rounds)
                rows.append({"case": f"{name}, beside SciPy BDF", "method": method, "samples": S,
                             "ms per sample": 1e3 * seconds / S, "SciPy, ms": 1e3 * alone, "ratio": alone * S / seconds,
                             "distance": float(np.abs(made.y.samples[:, 0] - expected.y[:, -1]).max())})  # fmt: skip
    return rows


def rows_of_band(n: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each method and number of samples of a reaction with diffusion in one dimension."""
    x, scale = np.arange(1, n + 1) / (n + 1), (n + 1.0) ** 2
    y0 = np.exp(-100.0 * (x - 0.5) ** 2)

    def f(t: Any, y: Any, p: Any, xp: Any) -> list[Any]:
        inside = [0.0, *y, 0.0]
        return [p[0] * scale * (inside[i] - 2.0 * y[i] + inside[i + 2]) + y[i] * (1.0 - y[i]) for i in range(n)]

    def plain(t: float, y: np.ndarray) -> np.ndarray:
        z = np.concatenate([[0.0], y, [0.0]])
        rate: np.ndarray = 0.01 * scale * (z[:-2] - 2.0 * y + z[2:]) + y * (1.0 - y)
        return rate

    lsoda = lambda rtol=1e-6, atol=1e-9: solve_ivp(
        plain, (0.0, 1.0), y0, "LSODA", rtol=rtol, atol=atol, lband=1, uband=1
    )
    exact = lsoda(1e-11, 1e-13).y[:, -1]
    made, alone = best(lsoda, rounds)
    rows = [{"case": f"band of {n}", "method": "SciPy LSODA, bands", "samples": 1, "ms per sample": 1e3 * alone,
             "ratio": 1.0, "error": float(np.abs(made.y[:, -1] - exact).max())}]  # fmt: skip
    for method in ("rodas4", "bdf"):
        for S in (1, 8, 32):
            p = Ensemble(np.linspace(0.01, 0.011, S)[None])
            call = lambda p=p, method=method: ode.solve(f, y0, (0.0, 1.0), p=p, method=method)
            call()
            result, seconds = best(call, rounds)
            rows.append({"case": f"band of {n}", "method": method, "samples": S, "ms per sample": 1e3 * seconds / S,
                         "ratio": alone * S / seconds,
                         "error": float(np.abs(result.y.samples[:, 0] - exact).max())})  # fmt: skip
    return rows


PARTS: dict[str, tuple[str, Callable[[int], list[dict[str, Any]]]]] = {
    "couplings": ("Couplings of all unknowns, one thread",
                  lambda rounds: [row for n in SIZES for row in rows_of_couplings(n, rounds)]),
    "networks": ("Dense Jacobians, one thread",
                 lambda rounds: [row for sizes in NETWORKS for row in rows_of_network(*sizes, rounds)]),
    "small": ("Small systems, one thread", rows_of_small),
    "band": ("Bands, one thread", lambda rounds: rows_of_band(2000, rounds)),
}  # fmt: skip


def main() -> None:
    """Print the tables and keep them; parts that are not made keep the rows of their record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ode-dense", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts to run")
    options = parser.parse_args()
    one_thread()
    record = RESULTS / "ode-dense.json"
    before = json.loads(record.read_text())["rows"] if record.exists() else []
    rows = []
    for part, (title, make) in PARTS.items():
        if part in options.parts:
            made = [{"part": part} | row for row in make(options.rounds)]
            show(title, made)
        else:
            made = [row for row in before if row.get("part") == part]
        rows += made
    save("ode-dense", rows)
