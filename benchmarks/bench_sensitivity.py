"""Sobol' indices of a field in one pass and chaos of many outputs, against SALib, SciPy, OpenTURNS and chaospy.

Times are those of the process without the model. A peer that works output by output is timed on some of them; the time
for all outputs is extrapolated from that, and the table says where.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from typing import Any

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

import ensemble as en
from benchmarks.common import SEED, EnsembleBenchmark, interleaved, median, save, show

D = 3
ROUNDS = 5
N_INPUTS, DEGREE, N_CHAOS = 6, 4, 1000


class TimedModel:
    """Outputs ``w_k (x1 + x2 x3 + k)``, written into memory that is used again; counts its own time."""

    def __init__(self, n_outputs: int, n_samples: int) -> None:
        self.weights = np.linspace(0.5, 1.5, n_outputs)[:, None]
        self.values = np.empty((n_outputs, n_samples))
        self.seconds = 0.0

    def __call__(self, x: Any) -> dict[str, Any]:
        start = time.process_time()
        sample = (x.x1 + x.x2 * x.x3).samples
        values = self.values[:, : sample.size]
        np.multiply(self.weights, sample + 3.0, out=values)
        self.seconds += time.process_time() - start
        return {"y": en.Ensemble(values)}


def uniform_inputs(n: int) -> Any:
    """Independent inputs x1, x2, ... on [-1, 1]."""
    return en.Inputs(**{f"x{i + 1}": stats.uniform(-1.0, 2.0) for i in range(n)})


def field_indices(n_outputs: int, n_rows: int, ensemble_size: int) -> dict[str, float]:
    """Seconds without the model, and the largest memory of the process in MB."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    model = TimedModel(n_outputs, ensemble_size)
    with threadpool_limits(1):
        start, wall = time.process_time(), time.perf_counter()
        indices = en.sobol_indices(
            model, uniform_inputs(D), n_rows, seed=SEED, ensemble_size=ensemble_size, progress=False
        )
        seconds = time.process_time() - start - model.seconds
    first = indices.first["y"]
    assert first.shape == (D, n_outputs) and np.all(np.ptp(first, axis=1) < 1e-9)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"seconds": seconds, "wall": time.perf_counter() - wall, "MB": peak, "MB before": before}


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The value of a function in a process of its own, whose largest memory is that of the function."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def salib_seconds(n_rows: int, n_outputs: int) -> float | None:
    """SALib's time for one output with 100 resamples; None where it is not installed."""
    try:
        from SALib.analyze import sobol
    except ImportError:
        return None
    problem = {"num_vars": D, "names": ["x1", "x2", "x3"], "bounds": [[-1.0, 1.0]] * D}
    values = np.random.default_rng(SEED).normal(size=(n_outputs, n_rows * (D + 2)))

    def analyze() -> None:
        for one in values:
            sobol.analyze(problem, one, calc_second_order=False, num_resamples=100, seed=1)

    return median(interleaved({"SALib": analyze}, 3, time.process_time)["SALib"]) / n_outputs


def scipy_seconds(n_rows: int, n_outputs: int) -> float:
    """SciPy's time for one output, without intervals."""
    rng = np.random.default_rng(SEED)
    values = {"f_A": rng.normal(size=(n_outputs, n_rows)), "f_B": rng.normal(size=(n_outputs, n_rows))}
    values["f_AB"] = rng.normal(size=(D, n_outputs, n_rows))

    def analyze() -> None:
        stats.sobol_indices(func=values, n=n_rows)

    return median(interleaved({"SciPy": analyze}, 3, time.process_time)["SciPy"]) / n_outputs


def sobol_rows(n_outputs: int, n_rows: int) -> list[dict[str, Any]]:
    """The table of Sobol' indices."""
    ours = in_new_process(field_indices, n_outputs, n_rows, 2 * (D + 2))
    rows = [
        {"program": "ensemble", "outputs": n_outputs, "timed on": n_outputs, "intervals": "yes",
         "s": ours["seconds"], "memory MB": ours["MB"]},
    ]  # fmt: skip
    everything = n_outputs * n_rows * (D + 2) * 8 / 1e6
    peers = {"SALib": (salib_seconds(n_rows, 10), 10, "yes"), "SciPy": (scipy_seconds(n_rows, 500), 500, "no")}
    for name, (seconds, timed, intervals) in peers.items():
        if seconds is not None:
            rows.append(
                {"program": f"{name} (extrapolated)", "outputs": n_outputs, "timed on": timed, "intervals": intervals,
                 "s": seconds * n_outputs, "memory MB": everything},
            )  # fmt: skip
    return rows


def chaos_outputs(x: Any) -> np.ndarray:
    """Smooth outputs of six inputs, ``(N_CHAOS, n_samples)``."""
    t = np.linspace(0.0, 1.0, N_CHAOS)[:, None]
    x1, x2, x3, x4, x5, x6 = (x[f"x{i + 1}"].samples for i in range(N_INPUTS))
    return np.exp(-t * x1) * np.cos(t * x2) + x3 * x4 + x5**3 * x6


def chaos_rows(n_samples: int) -> list[dict[str, Any]]:
    """The table of polynomial chaos: fit and Sobol' indices of all outputs."""
    inputs = uniform_inputs(N_INPUTS)
    x = inputs.samples(n_samples, seed=SEED, sampler="halton")
    y = chaos_outputs(x)
    points = np.stack([x[f"x{i + 1}"].samples for i in range(N_INPUTS)], axis=1)

    def ours() -> Any:
        expansion = en.uq.chaos(inputs, x, y, degree=DEGREE)
        return expansion.first, expansion.total

    programs: dict[str, tuple[Callable[[], Any], int, int]] = {"ensemble": (ours, N_CHAOS, DEGREE)}
    programs |= openturns_program(points, y[:: N_CHAOS // 20])
    programs |= chaospy_programs(points, y)
    rows = []
    with threadpool_limits(1):
        for name, (function, timed, degree) in programs.items():
            rounds = ROUNDS if name == "ensemble" else 1
            seconds = min(interleaved({name: function}, rounds, time.process_time)[name])
            rows.append({"program": name, "degree": degree, "samples": n_samples, "timed on": timed,
                         "ms": 1e3 * seconds, "ms for 1000 outputs": 1e3 * seconds * N_CHAOS / timed})  # fmt: skip
    return rows


def openturns_program(points: np.ndarray, y: np.ndarray) -> dict[str, tuple[Callable[[], Any], int, int]]:
    """OpenTURNS' least squares and indices of some outputs."""
    try:
        ot = importlib.import_module("openturns")
    except ImportError:
        return {}
    laws = [ot.Uniform(-1.0, 1.0)] * N_INPUTS
    numbering = ot.LinearEnumerateFunction(N_INPUTS)
    factories = [ot.StandardDistributionPolynomialFactory(law) for law in laws]
    basis = ot.OrthogonalProductPolynomialFactory(factories, numbering)
    n_terms = numbering.getStrataCumulatedCardinal(DEGREE)
    inputs, outputs = ot.Sample(points), ot.Sample(y.T)

    def run() -> Any:
        strategy = ot.FixedStrategy(basis, n_terms)
        algorithm = ot.FunctionalChaosAlgorithm(
            inputs, outputs, ot.JointDistribution(laws), strategy, ot.LeastSquaresStrategy()
        )
        algorithm.run()
        indices = ot.FunctionalChaosSobolIndices(algorithm.getResult())
        kinds = (indices.getSobolIndex, indices.getSobolTotalIndex)
        return [[kind(i, k) for i in range(N_INPUTS) for k in range(len(y))] for kind in kinds]

    return {"OpenTURNS": (run, len(y), DEGREE)}


def chaospy_programs(points: np.ndarray, y: np.ndarray) -> dict[str, tuple[Callable[[], Any], int, int]]:
    """chaospy's regression, and its regression with indices at a lower degree, where they end in seconds."""
    try:
        cp = importlib.import_module("chaospy")
    except ImportError:
        return {}
    law = cp.J(*(cp.Uniform(-1.0, 1.0) for _ in range(N_INPUTS)))

    def fit() -> Any:
        return cp.fit_regression(cp.generate_expansion(DEGREE, law, normed=True), points.T, y[:20].T)

    def fit_and_indices() -> Any:
        fitted = cp.fit_regression(cp.generate_expansion(2, law, normed=True), points.T, y[0])
        return cp.Sens_m(fitted, law), cp.Sens_t(fitted, law)

    return {"chaospy, fit alone": (fit, 20, DEGREE), "chaospy, with indices": (fit_and_indices, 1, 2)}


class Sensitivity(EnsembleBenchmark):
    """Sobol' indices of a field of 10,000 outputs; a fit of 50 outputs."""

    params = (["numba"], [20])

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.inputs = uniform_inputs(N_INPUTS)
        self.x = self.inputs.samples(256, seed=SEED)
        self.y = chaos_outputs(self.x)[::20]

    def time_indices(self, backend: str, n_samples: int) -> None:
        model = TimedModel(10_000, n_samples)
        en.sobol_indices(model, uniform_inputs(D), 64, seed=SEED, ensemble_size=n_samples, progress=False)

    def time_chaos(self, backend: str, n_samples: int) -> None:
        en.uq.chaos(self.inputs, self.x, self.y, degree=2)


def peer_versions() -> dict[str, str]:
    """Versions of the peers that are installed."""
    found = {}
    for name in ("SALib", "openturns", "chaospy"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def main(words: list[str] | None = None) -> None:
    """Both tables, kept in ``benchmarks/results/sensitivity.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks sensitivity", description=__doc__)
    parser.add_argument("--outputs", type=int, default=1_000_000, help="entries of the field (default 1000000)")
    parser.add_argument("--rows", type=int, default=1024, help="rows of D + 2 = 5 samples (default 1024)")
    options = parser.parse_args(words)
    indices = sobol_rows(options.outputs, options.rows)
    show(f"Sobol' indices, {options.rows} rows, {D} inputs", indices)
    fits = chaos_rows(420) + chaos_rows(1024)
    show(f"polynomial chaos, {N_INPUTS} inputs, 210 terms at degree {DEGREE}", fits)
    save("sensitivity", indices + fits, n_rows=options.rows, **peer_versions())
