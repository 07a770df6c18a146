"""How often 95 % intervals of studies hold the true value, over samplers, families of outputs and statistics.

Every entry of an output is a study of its own: entry k takes the points of the k-th seed, so that one call of
`UqResult.confidence_interval` gives the intervals of all repeats.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize, stats

import ensemble as en
from benchmarks.common import SEED, save, show

LEVEL = 0.95
QUANTILES = (0.01, 0.05, 0.5, 0.95, 0.99)
SAMPLERS = ("monte_carlo", "latin_hypercube", "sobol")
STATISTICS = ("mean", "std", *(f"quantile {q}" for q in QUANTILES), *(f"probability {p}" for p in (0.5, 0.05, 0.01)))
Points = np.ndarray


def _ishigami(u: Points) -> np.ndarray:
    """Ishigami's function, a = 7 and b = 0.1, of uniform angles."""
    x, y, z = np.pi * (2.0 * u[:3] - 1.0)
    return np.asarray(np.sin(x) + 7.0 * np.sin(y) ** 2 + 0.1 * z**4 * np.sin(x))


def _bimodal(u: Points) -> np.ndarray:
    """Three tenths N(-3, 1), seven tenths N(3, 1)."""
    return np.asarray(np.where(u[0] < 0.3, -3.0, 3.0) + stats.norm.ppf(u[1]))


FAMILIES: dict[str, Callable[[Points], np.ndarray]] = {
    "normal": lambda u: stats.norm.ppf(u[0]),
    "lognormal 0.5": lambda u: np.exp(0.5 * stats.norm.ppf(u[0])),
    "lognormal 1": lambda u: np.exp(stats.norm.ppf(u[0])),
    "bimodal": _bimodal,
    "Poisson 3": lambda u: np.searchsorted(stats.poisson(3.0).cdf(np.arange(40)), u[0]).astype(float),
    "sum of 5 exponentials": lambda u: -np.log1p(-u[:5]).sum(axis=0),
    "Ishigami": _ishigami,
}
"""Outputs of points of the unit cube, shape (5, ...)."""


def truths() -> dict[str, dict[str, float]]:
    """Mean, deviation, quantiles, and thresholds with the probability to be above, of every family."""
    found = {}
    closed = {
        "normal": stats.norm(),
        "lognormal 0.5": stats.lognorm(0.5),
        "lognormal 1": stats.lognorm(1.0),
        "Poisson 3": stats.poisson(3.0),
        "sum of 5 exponentials": stats.gamma(5.0),
    }
    for name, d in closed.items():
        found[name] = {"mean": float(d.mean()), "std": float(d.std())}
        found[name] |= {f"quantile {q}": float(d.ppf(q)) for q in QUANTILES}
        for p in (0.5, 0.05, 0.01):
            found[name] |= {f"threshold {p}": float(d.ppf(1 - p)), f"probability {p}": float(d.sf(d.ppf(1 - p)))}

    def below(x: float) -> float:
        return float(0.3 * stats.norm.cdf(x + 3.0) + 0.7 * stats.norm.cdf(x - 3.0))

    found["bimodal"] = {"mean": 1.2, "std": float(np.sqrt(10.0 - 1.44))}
    for q in QUANTILES:
        found["bimodal"][f"quantile {q}"] = float(optimize.brentq(lambda x, q=q: below(x) - q, -10.0, 10.0))
    y = np.sort(_ishigami(stats.qmc.Sobol(3, rng=np.random.default_rng(SEED)).random_base2(22).T))
    variance = 0.5 + 49.0 / 8.0 + 0.1 * np.pi**4 / 5.0 + 0.01 * np.pi**8 / 18.0
    found["Ishigami"] = {"mean": 3.5, "std": float(np.sqrt(variance))}
    found["Ishigami"] |= {f"quantile {q}": float(y[int(q * y.size)]) for q in QUANTILES}
    for name in ("bimodal", "Ishigami"):
        for p in (0.5, 0.05, 0.01):
            found[name] |= {f"threshold {p}": found[name][f"quantile {round(1 - p, 2)}"], f"probability {p}": p}
    return found


def cells(sampler: str, n: int, repeats: int, exact: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Coverage and median width of every family and statistic for one sampler and number of samples."""
    inputs = en.Inputs(u=stats.uniform())
    # A design of a Latin hypercube is one of the eight replicates of a study.
    made = {"monte_carlo": en.uq.MonteCarlo(), "sobol": en.uq.Sobol()}.get(sampler, en.uq.LatinHypercube(block=n // 8))
    points = np.stack([made.points(np.arange(n), 5, SEED + 1000003 * k).T for k in range(repeats)], axis=1)
    rows = []
    for family, function in FAMILIES.items():
        y, true = function(points), exact[family]
        result = en.propagate(
            lambda x, y=y: {"y": en.Ensemble(y[:, x.ids])}, inputs, n, sampler=made, seed=1, keep="all", progress=False
        )
        row: dict[str, Any] = {"sampler": sampler, "n": n, "family": family}
        for name in STATISTICS:
            kind, _, number = name.partition(" ")
            more: dict[str, Any] = {"q": float(number)} if kind == "quantile" else {}
            if kind == "probability":
                more = {"condition": f"> {true[f'threshold {number}']!r}"}
            low, high = result.confidence_interval("y", LEVEL, of=kind, **more)
            slack = 1e-9 * abs(true[name])
            row[name] = float(np.mean((low <= true[name] + slack) & (true[name] - slack <= high)))
            width = float(np.median(high - low))
            row[f"{name}, median width"] = width if np.isfinite(width) else None
        rows.append(row)
    return rows


def main() -> None:
    """Measure, show and keep the coverage."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks coverage", description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000, help="studies of each cell (default 1000)")
    parser.add_argument("--n", type=int, nargs="+", default=[64, 512, 4096], help="samples (default 64 512 4096)")
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    options = parser.parse_args()
    exact, rows = truths(), []
    for n in options.n:
        for sampler in SAMPLERS:
            rows += cells(sampler, n, options.repeats, exact)
            shown = [{k: v for k, v in row.items() if not k.endswith("width")} for row in rows[-len(FAMILIES) :]]
            show(f"coverage of intervals of 95 %, {options.repeats} repeats", shown)
    if not options.dry:
        save("coverage", rows, repeats=options.repeats, level=LEVEL)


if __name__ == "__main__":
    main()
