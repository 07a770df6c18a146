"""How often 95 % intervals of analyses from few runs hold the true value, with SALib's beside them.

Elementary effects, first indices of given data, indices of sparse expansions, and predictions of Gaussian processes.
The models are those of `few-runs`, Morokoff's and a sum of correlated normals; of every analysis the table has the mean
coverage over inputs, the smallest of one input, the error (root mean square) and the median half-width.
"""

from __future__ import annotations

import argparse
import importlib
import warnings
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from typing import Any

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

import ensemble as en
from benchmarks.bench_few_runs import Case, cases
from benchmarks.common import save, show

LEVEL = 0.95
MOROKOFF = 5
"""Inputs of Morokoff's function."""


def morokoff(x: np.ndarray) -> np.ndarray:
    """The product of the d-th roots, times ``(1 + 1/d)^d``; its mean is 1."""
    d = len(x)
    result: np.ndarray = (1.0 + 1.0 / d) ** d * np.prod(x ** (1.0 / d), axis=0)
    return result


def all_cases() -> list[Case]:
    """The models with independent inputs; Morokoff's first indices follow from the variances of its factors."""
    share = 1.0 / (MOROKOFF * (MOROKOFF + 2.0))
    first = np.full(MOROKOFF, share / ((1.0 + share) ** MOROKOFF - 1.0))
    return [*cases(), Case("Morokoff", [(0.0, 1.0)] * MOROKOFF, morokoff, first)]


Found = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Values of an analysis, and the ends of their intervals."""


def row(title: str, model: str, runs: int, program: str, truth: np.ndarray, found: Iterable[Found]) -> dict[str, Any]:
    """Coverage, error and width over the repeats."""
    values, lows, highs = (np.array(part) for part in zip(*found, strict=True))
    slack = 1e-9 * max(1.0, float(np.abs(truth).max()))
    held = ((lows <= truth + slack) & (truth - slack <= highs)).mean(axis=0)
    return {
        "analysis": title, "model": model, "runs": runs, "program": program, "coverage": float(held.mean()),
        "least of one input": float(held.min()), "error": float(np.sqrt(np.mean((values - truth) ** 2))),
        "half-width": float(np.median(0.5 * (highs - lows))),
    }  # fmt: skip


def drawn(case: Case, n: int, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Independent samples, their points and outputs."""
    x = case.inputs.samples(n, seed=1000 + seed, sampler="monte_carlo")
    points = case.points(x)
    return x, points, case.function(points)


def morris(case: Case, rows: int, repeats: int) -> list[dict[str, Any]]:
    """Mean sizes of elementary effects."""

    def ours(n: int, seed: int) -> Found:
        found = en.uq.morris(case.model, case.inputs, n, seed=seed, ensemble_size=4096, progress=False)
        return (found.mu_star["y"], *found.interval("y", "mu_star"))

    runs = rows * (len(case.bounds) + 1)
    exact = ours(2**14, 10**6)[0]
    result = [row("Morris", case.name, runs, "ensemble", exact, (ours(rows, seed) for seed in range(repeats)))]
    with suppress(ImportError):
        analyze, sample = (importlib.import_module(f"SALib.{part}.morris") for part in ("analyze", "sample"))

        def salib(n: int, seed: int) -> Found:
            x = sample.sample(case.problem, n, num_levels=4, seed=seed)
            found = analyze.analyze(case.problem, x, case.function(x.T), num_levels=4, seed=seed)
            size, half = (np.asarray(found[key], dtype=float) for key in ("mu_star", "mu_star_conf"))
            return size, size - half, size + half

        theirs = (salib(rows, seed) for seed in range(repeats))
        result.append(row("Morris", case.name, runs, "SALib", salib(2**12, 10**6)[0], theirs))
    return result


def given(case: Case, n: int, repeats: int) -> list[dict[str, Any]]:
    """First indices of given data."""

    def ours(seed: int) -> Found:
        x, _, y = drawn(case, n, seed)
        found = en.uq.given_data(x, y, methods=["first"], n_permutations=0)
        return (found.first["y"], *found.interval("y", "first"))

    result = [row("first, given data", case.name, n, "ensemble", case.first, map(ours, range(repeats)))]
    with suppress(ImportError):
        delta = importlib.import_module("SALib.analyze.delta")

        def salib(seed: int) -> Found:
            _, points, y = drawn(case, n, seed)
            found = delta.analyze(case.problem, points.T, y, num_resamples=100, seed=seed)
            value, half = np.asarray(found["S1"], dtype=float), np.asarray(found["S1_conf"], dtype=float)
            return value, value - half, value + half

        few = range(min(repeats, 20))  # two seconds each
        result.append(row("first, given data", case.name, n, "SALib", case.first, map(salib, few)))
    return result


def correlated(n: int, repeats: int) -> list[dict[str, Any]]:
    """First indices of given data of a sum of three normals: the squared correlations with the sum."""
    factors = np.array([1.0, 0.7, 0.4])
    covariance = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 1.0]])
    inputs = en.Inputs(v=stats.multivariate_normal(np.zeros(3), covariance))
    exact = (covariance @ factors) ** 2 / (factors @ covariance @ factors)

    def ours(seed: int) -> Found:
        x = inputs.samples(n, seed=2000 + seed, sampler="monte_carlo")
        found = en.uq.given_data(x, factors @ x.v.samples, methods=["first"], n_permutations=0)
        return (found.first["y"], *found.interval("y", "first"))

    return [row("first, given data", "correlated normals", n, "ensemble", exact, map(ours, range(repeats)))]


def expansions(case: Case, n: int, degree: int, method: str, repeats: int) -> list[dict[str, Any]]:
    """First indices of polynomial expansions, with 100 resamples."""

    def ours(seed: int) -> Found:
        x, _, y = drawn(case, n, seed)
        found = en.uq.chaos(case.inputs, x, y, degree=degree, method=method, n_resamples=100)
        return (found.first["y"], *found.interval("y", "first"))

    title = "sparse chaos" if method == "sparse" else f"chaos, degree {degree}"
    return [row(title, case.name, n, "ensemble", case.first, map(ours, range(repeats)))]


def surrogates(case: Case, n: int, repeats: int) -> list[dict[str, Any]]:
    """Predictions of Gaussian processes at 500 new points: their intervals, and normal ones of their deviation."""
    fresh = case.inputs.samples(500, seed=7, sampler="monte_carlo")
    exact, factor = case.function(case.points(fresh)), float(stats.norm.ppf(0.5 + 0.5 * LEVEL))
    measured, normal = list[Found](), list[Found]()
    for seed in range(repeats):
        x, _, y = drawn(case, n, seed)
        process = en.uq.gaussian_process(case.inputs, x, y, n_restarts=0)
        mean, half = process(fresh)["y"].samples, factor * process.std(fresh)["y"].samples
        measured.append((mean, *(end.samples for end in process.interval(fresh, LEVEL)["y"])))
        normal.append((mean, mean - half, mean + half))
    titles = {"Gaussian process": measured, "Gaussian process, 1.96 deviations": normal}
    found = (row(title, case.name, n, "ensemble", exact, every) for title, every in titles.items())
    return [one | {"least of one input": None} for one in found]


def rows_of(name: str, k: int | None, *arguments: Any) -> list[dict[str, Any]]:
    """The rows of one function of this module, of the `k`-th case."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of errors without a sample, which the table has
        found: list[dict[str, Any]] = globals()[name](*([] if k is None else [all_cases()[k]]), *arguments)
    return found


def main(words: list[str] | None = None) -> None:
    """Measure, show and keep the coverage."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks few-runs-coverage", description=__doc__)
    parser.add_argument("--repeats", type=int, default=200, help="studies of each row (default 200)")
    parser.add_argument("--processes", type=int, default=1, help="rows that are made at the same time")
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    options = parser.parse_args(words)
    repeats, tasks = options.repeats, list[tuple[Any, ...]]()
    for k, case in enumerate(all_cases()):
        degree = 10 if len(case.bounds) == 3 else 4
        tasks += [
            ("morris", k, 20, repeats),
            ("given", k, 512, repeats),
            ("expansions", k, 128, degree, "sparse", repeats),
            ("expansions", k, 128, 4 if degree == 10 else 2, "regression", repeats),
            ("surrogates", k, 64, max(2, repeats // 5)),
        ]
    tasks.append(("correlated", None, 512, repeats))
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        for future in [pool.submit(rows_of, *task) for task in tasks]:
            rows += future.result()
            if not options.dry:
                save("few-runs-coverage", rows, repeats=options.repeats, level=LEVEL)
    show(f"coverage of intervals of 95 %, {options.repeats} repeats", rows)


if __name__ == "__main__":
    main()
