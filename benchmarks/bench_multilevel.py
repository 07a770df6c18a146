"""Multilevel against plain Monte Carlo for the mean of `RandomDiffusion` at equal error: seconds and errors."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.common import SEED, EnsembleBenchmark, save, show
from ensemble.apps.fem import RandomDiffusion
from ensemble.scalar import Ensemble
from ensemble.uq import Inputs, Vector
from ensemble.uq.algorithms.multilevel import MultilevelResult, multilevel

INPUTS = Inputs(y=Vector(stats.uniform(-1.0, 2.0), 5))


def diffusion(cells: int) -> Callable[[Any], Ensemble]:
    """The model: the integral of u^2 over the cube, by the trapezoidal rule on the mesh."""
    problem = RandomDiffusion(cells)
    weights = np.ones(problem.mesh.n_nodes)
    for x in problem.mesh.points.T:
        planes = np.unique(x.round(12))
        gaps = np.diff(planes, prepend=planes[0], append=planes[-1])
        weights *= (0.5 * (gaps[:-1] + gaps[1:]))[np.searchsorted(planes, x.round(12))]

    def model(x: Any) -> Ensemble:
        u = problem.solve(x.y, operator="affine").u.samples
        return Ensemble(np.einsum("i,is,is->s", weights, u, u))

    return model


class Multilevel(EnsembleBenchmark):
    """The mean of the integral of u^2 on meshes of 4 and 8 cells along an edge."""

    params = (["numba"], [32])

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.models = [diffusion(n) for n in (4, 8)]
        self.time_multilevel(backend, n_samples)

    def time_multilevel(self, backend: str, n_samples: int) -> None:
        multilevel(self.models, INPUTS, atol=1e-2, finest_is_exact=True, seed=SEED, n_pilot=n_samples)


def monte_carlo(model: Callable[[Any], Ensemble], n: int, seed: int, size: int) -> tuple[float, float]:
    """Mean and standard error of `n` samples in ensembles of `size`."""
    samples = INPUTS.samples(n, sampler="monte_carlo", seed=seed)
    groups = [np.arange(i, min(i + size, n)) for i in range(0, n, size)]
    values = np.concatenate([model(samples.take(group)).samples for group in groups])
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(n))


def compare(models: list[Callable[[Any], Ensemble]], names: list[int], error: float, repeats: int) -> list[dict]:
    """Both methods `repeats` times in turn, errors against a much more accurate multilevel estimate."""

    def estimate(seed: int, atol: float = error) -> MultilevelResult:
        return multilevel(models, INPUTS, atol=atol, finest_is_exact=True, seed=seed, n_pilot=32)

    reference = estimate(SEED, error / 10.0)
    print(reference)
    spread = float(np.sqrt(reference.variances[0, 0]))
    n = int(np.ceil((spread / error) ** 2))
    found: dict[str, list[tuple[float, float, float]]] = {"multilevel": [], "Monte Carlo": []}
    for k in range(repeats):
        start = time.perf_counter()
        result = estimate(SEED + 1 + k)
        middle = time.perf_counter()
        found["multilevel"].append((middle - start, result.mean - reference.mean, result.error))
        mean, standard_error = monte_carlo(models[-1], n, SEED + 1 + k, 32)
        found["Monte Carlo"].append((time.perf_counter() - middle, mean - reference.mean, standard_error))
    print(result)
    rows = []
    for method, values in found.items():
        seconds, errors, estimated = np.array(values).T
        rows.append(
            {
                "levels": " ".join(map(str, names)) if method == "multilevel" else str(names[-1]),
                "method": method,
                "repeats": repeats,
                "samples": " ".join(map(str, result.n_samples)) if method == "multilevel" else str(n),
                "error aimed at": error,
                "estimated error": float(np.sqrt(np.mean(estimated**2))),
                "actual error": float(np.sqrt(np.mean(errors**2))),
                "seconds": float(np.median(seconds)),
            }
        )
    for r in rows:
        r["work less by"] = rows[1]["seconds"] / r["seconds"]
    return rows


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks multilevel", description=__doc__)
    parser.add_argument("--error", type=float, default=5e-4, help="root mean square error (default 5e-4)")
    parser.add_argument("--repeats", type=int, default=10, help="repeats where the finest mesh is 32^3 (default 10)")
    parser.add_argument("--finest", type=int, default=64, help="cells along an edge of the finest mesh (default 64)")
    options = parser.parse_args()
    cells = [n for n in (8, 16, 32, 64) if n <= options.finest]
    models = [diffusion(n) for n in cells]
    for model in models:
        model(INPUTS.samples(32, sampler="monte_carlo", seed=SEED))
    rows = []
    if len(cells) > 2:
        rows += compare(models[:3], cells[:3], options.error, options.repeats)
    if len(cells) != 3:
        rows += compare(models, cells, options.error, 1)
    show("Mean of the integral of u^2 over the cube, at the same root mean square error", rows)
    save("multilevel-1threads", rows)


if __name__ == "__main__":
    main()
