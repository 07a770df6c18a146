"""Analyses from few runs of a model, accuracy and time beside SALib, OpenTURNS and scikit-learn on the same samples.

Models with known indices: Ishigami's, the G-function of Sobol', and the borehole (indices of an expansion of degree 5
from 4096 samples). Errors are root mean squares over inputs and seeds.
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

import ensemble as en
from benchmarks.common import median, save, show

SEEDS = range(8)

BOREHOLE = {
    "rw": (0.05, 0.15), "r": (100.0, 50000.0), "Tu": (63070.0, 115600.0), "Hu": (990.0, 1110.0),
    "Tl": (63.1, 116.0), "Hl": (700.0, 820.0), "L": (1120.0, 1680.0), "Kw": (9855.0, 12045.0),
}  # fmt: skip
"""Ranges of Morris, Mitchell, Ylvisaker (1993), all uniform."""


class Case(NamedTuple):
    """A model of uniform inputs, and its first and total indices."""

    name: str
    bounds: list[tuple[float, float]]
    function: Callable[[np.ndarray], np.ndarray]
    """Outputs of points ``(D, n)``."""
    first: np.ndarray

    @property
    def inputs(self) -> Any:
        return en.Inputs(**{f"x{i}": stats.uniform(a, b - a) for i, (a, b) in enumerate(self.bounds)})

    def points(self, x: Any) -> np.ndarray:
        return np.stack([np.asarray(x[name].samples) for name in x.names])

    def model(self, x: Any) -> dict[str, Any]:
        return {"y": en.Ensemble(self.function(self.points(x)))}

    @property
    def problem(self) -> dict[str, Any]:
        """The inputs as SALib describes them."""
        names = [f"x{i}" for i in range(len(self.bounds))]
        return {"num_vars": len(names), "names": names, "bounds": [list(pair) for pair in self.bounds]}


def ishigami(x: np.ndarray) -> np.ndarray:
    sine: np.ndarray = np.sin(x[0])
    return sine + 7.0 * np.sin(x[1]) ** 2 + 0.1 * x[2] ** 4 * sine


def g_function(x: np.ndarray) -> np.ndarray:
    a = np.array([0.0, 0.5, 3.0, 9.0, 99.0, 99.0])[:, None]
    result: np.ndarray = np.prod((np.abs(4.0 * x - 2.0) + a) / (1.0 + a), axis=0)
    return result


def borehole(x: np.ndarray) -> np.ndarray:
    rw, r, tu, hu, tl, hl, length, kw = x
    log = np.log(r / rw)
    result: np.ndarray = 2.0 * np.pi * tu * (hu - hl) / (log * (1.0 + tu / tl) + 2.0 * length * tu / (rw**2 * kw))
    return result


def cases() -> list[Case]:
    """The three models."""
    one, two, both = 0.5 * (1.0 + 0.1 * np.pi**4 / 5.0) ** 2, 49.0 / 8.0, 0.01 * np.pi**8 * (1.0 / 18.0 - 1.0 / 50.0)
    parts = 1.0 / (3.0 * (1.0 + np.array([0.0, 0.5, 3.0, 9.0, 99.0, 99.0])) ** 2)
    bore = Case("borehole", list(BOREHOLE.values()), borehole, np.zeros(8))
    x = bore.inputs.samples(4096, seed=1)
    exact = en.uq.chaos(bore.inputs, x, bore.function(bore.points(x)), degree=5)  # leave-one-out error 8e-8
    return [
        Case("Ishigami", [(-np.pi, np.pi)] * 3, ishigami, np.array([one, two, 0.0]) / (one + two + both)),
        Case("G", [(0.0, 1.0)] * 6, g_function, parts / (np.prod(1.0 + parts) - 1.0)),
        bore._replace(first=exact.first["y"]),
    ]


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, and what it returns; warnings are not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        found = function()
        return time.perf_counter() - start, found


def root_mean_square(errors: list[np.ndarray]) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def table(title: str, case: Case, n: int, programs: dict[str, Callable[[int], np.ndarray]]) -> list[dict[str, Any]]:
    """A row per program: the error over `SEEDS`, and the median time."""
    rows = []
    for name, program in programs.items():
        seconds, errors = [], []
        for seed in SEEDS:
            spent, found = timed(lambda seed=seed, program=program: program(seed))  # type: ignore[misc]
            seconds.append(spent)
            errors.append(found)
        rows.append(
            {"analysis": title, "model": case.name, "runs": n, "program": name,
             "error": root_mean_square(errors), "ms": 1e3 * median(seconds)},
        )  # fmt: skip
    return rows


def drawn(case: Case, n: int, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Samples, their points ``(D, n)`` and outputs."""
    x = case.inputs.samples(n, seed=100 + seed)
    points = case.points(x)
    return x, points, case.function(points)


def screening(case: Case, n: int) -> list[dict[str, Any]]:
    """Mean sizes of elementary effects, against those of 4096 rows of the same program."""
    runs = n * (len(case.bounds) + 1)

    def ours(rows: int, seed: int) -> np.ndarray:
        found = en.uq.morris(case.model, case.inputs, rows, seed=seed, ensemble_size=1024, progress=False)
        return found.mu_star["y"]

    programs: dict[str, Callable[[int, int], np.ndarray]] = {"ensemble": ours}
    with suppress(ImportError):
        analyze, sample = (importlib.import_module(f"SALib.{part}.morris") for part in ("analyze", "sample"))

        def salib(rows: int, seed: int) -> np.ndarray:
            x = sample.sample(case.problem, rows, num_levels=4, seed=seed)
            found = analyze.analyze(case.problem, x, case.function(x.T), num_levels=4, seed=seed)
            return np.asarray(found["mu_star"], dtype=float)

        programs["SALib"] = salib
    exact = {name: program(4096, 99) for name, program in programs.items()}
    relative = {
        name: lambda seed, name=name, program=program: (program(n, seed) - exact[name]) / exact[name].max()
        for name, program in programs.items()
    }
    return table("Morris", case, runs, relative)


def given(case: Case, n: int) -> list[dict[str, Any]]:
    """First indices and densities from samples that are there, with 100 resamples."""

    def ours(seed: int) -> np.ndarray:
        x, _, y = drawn(case, n, seed)
        found = en.uq.given_data(x, y, methods=["first", "delta"], n_permutations=0)
        return found.first["y"] - case.first

    programs = {"ensemble": ours}
    with suppress(ImportError):
        delta = importlib.import_module("SALib.analyze.delta")

        def salib(seed: int) -> np.ndarray:
            _, points, y = drawn(case, n, seed)
            found = delta.analyze(case.problem, points.T, y, num_resamples=100, seed=seed)
            return np.asarray(found["S1"], dtype=float) - case.first

        programs["SALib"] = salib
    return table("first, given data", case, n, programs)


def independence(case: Case, n: int) -> list[dict[str, Any]]:
    """The normalised independence criterion and its significance, against OpenTURNS' values."""
    ot = importlib.import_module("openturns")

    def peer(seed: int) -> np.ndarray:
        _, points, y = drawn(case, n, seed)
        columns = [*points, y]
        kernels = [ot.SquaredExponential([column.std(ddof=1)]) for column in columns]
        found = ot.HSICEstimatorGlobalSensitivity(kernels, ot.Sample(points.T), ot.Sample(y[:, None]), ot.HSICVStat())
        return np.array([found.getR2HSICIndices(), found.getPValuesAsymptotic()])

    def ours(seed: int) -> np.ndarray:
        x, _, y = drawn(case, n, seed)
        found = en.uq.given_data(x, y, methods=["hsic"])
        return np.array([found.hsic["y"], found.p_value("y")])

    exact = [peer(seed) for seed in SEEDS]
    return table(
        "HSIC", case, n,
        {"ensemble": lambda seed: ours(seed) - exact[seed], "OpenTURNS": lambda seed: peer(seed) - exact[seed]},
    )  # fmt: skip


def sparse(case: Case, n: int, degree: int) -> list[dict[str, Any]]:
    """First indices of sparse expansions."""

    def ours(seed: int) -> np.ndarray:
        x, _, y = drawn(case, n, seed)
        return en.uq.chaos(case.inputs, x, y, degree=degree, method="sparse").first["y"] - case.first

    programs = {"ensemble": ours}
    with suppress(ImportError):
        ot = importlib.import_module("openturns")
        laws = [ot.Uniform(*pair) for pair in case.bounds]
        numbering = ot.LinearEnumerateFunction(len(laws))
        basis = ot.OrthogonalProductPolynomialFactory([ot.LegendreFactory()] * len(laws), numbering)
        n_terms = numbering.getStrataCumulatedCardinal(degree)

        def openturns(seed: int) -> np.ndarray:
            _, points, y = drawn(case, n, seed)
            selection = ot.LeastSquaresMetaModelSelectionFactory(ot.LARS(), ot.CorrectedLeaveOneOut())
            algorithm = ot.FunctionalChaosAlgorithm(
                ot.Sample(points.T), ot.Sample(y[:, None]), ot.JointDistribution(laws),
                ot.FixedStrategy(basis, n_terms), ot.LeastSquaresStrategy(selection),
            )  # fmt: skip
            algorithm.run()
            indices = ot.FunctionalChaosSobolIndices(algorithm.getResult())
            return np.array([indices.getSobolIndex(i) for i in range(len(laws))]) - case.first

        programs["OpenTURNS"] = openturns
    return table("sparse chaos", case, n, programs)


def surrogates(case: Case, n: int) -> list[dict[str, Any]]:
    """Predictions of Gaussian processes at 2000 new points, relative to the standard deviation."""
    fresh = case.inputs.samples(2000, seed=7, sampler="monte_carlo")
    exact = case.function(case.points(fresh))

    def ours(seed: int) -> np.ndarray:
        x, _, y = drawn(case, n, seed)
        found = en.uq.gaussian_process(case.inputs, x, y)
        return (np.asarray(found(fresh)["y"].samples) - exact) / exact.std()

    programs = {"ensemble": ours}
    with suppress(ImportError):
        ot = importlib.import_module("openturns")

        def openturns(seed: int) -> np.ndarray:
            _, points, y = drawn(case, n, seed)
            low, high = np.array(case.bounds).T
            scaled = (points.T - low) / (high - low)
            kernel = ot.MaternModel([1.0] * len(low), [1.0], 2.5)
            basis = ot.ConstantBasisFactory(len(low)).build()
            fitter = ot.GaussianProcessFitter(ot.Sample(scaled), ot.Sample(y[:, None]), kernel, basis)
            fitter.run()
            regression = ot.GaussianProcessRegression(fitter.getResult())
            regression.run()
            at = ot.Sample((case.points(fresh).T - low) / (high - low))
            return (np.array(regression.getResult().getMetaModel()(at))[:, 0] - exact) / exact.std()

        programs["OpenTURNS"] = openturns
    return table("Gaussian process", case, n, programs)


def main(words: list[str] | None = None) -> None:
    """All tables, kept in ``benchmarks/results/few-runs.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks few-runs", description=__doc__)
    parser.parse_args(words)
    rows = []
    with threadpool_limits(1):
        for case in cases():
            degree = 10 if len(case.bounds) == 3 else 4
            rows += screening(case, 20) + given(case, 512) + independence(case, 512)
            rows += sparse(case, 64, degree) + sparse(case, 256, degree) + surrogates(case, 64)
    show("few runs: error and time, one thread", rows)
    versions = {}
    for name in ("SALib", "openturns", "scikit-learn"):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    save("few-runs", rows, **versions)
