"""A probability of 1e-6 in 100 dimensions: errors over seeds of `uq.subset_simulation` and OpenTURNS."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtri

from benchmarks.common import save, show
from ensemble.scalar import Ensemble
from ensemble.uq.algorithms.rare_events import subset_simulation

N_GERMS, PROBABILITY = 100, 1e-6
LIMIT = float(-ndtri(PROBABILITY) * np.sqrt(N_GERMS))


def ours(seed: int, n_per_level: int) -> tuple[float, float, int]:
    """Probability, estimated coefficient of variation, evaluations."""
    result = subset_simulation(
        lambda z: Ensemble(z.samples.sum(axis=0)), N_GERMS, LIMIT, event="above", n_per_level=n_per_level, seed=seed
    )
    return result.probability, result.coefficient_of_variation, result.n_evaluations


def openturns(seed: int, n_per_level: int) -> tuple[float, float, int]:
    """The same by OpenTURNS, one block of all samples per call."""
    import openturns as ot

    ot.RandomGenerator.SetSeed(seed)
    model = ot.PythonFunction(N_GERMS, 1, func_sample=lambda z: np.asarray(z).sum(axis=1, keepdims=True))
    vector = ot.CompositeRandomVector(model, ot.RandomVector(ot.Normal(N_GERMS)))
    algorithm = ot.SubsetSampling(ot.ThresholdEvent(vector, ot.Greater(), LIMIT))
    algorithm.setMaximumOuterSampling(n_per_level // 100)
    algorithm.setBlockSize(100)
    algorithm.setConditionalProbability(0.1)
    algorithm.run()
    result = algorithm.getResult()
    return (
        result.getProbabilityEstimate(),
        result.getCoefficientOfVariation(),
        result.getOuterSampling() * result.getBlockSize(),
    )


def row(name: str, run: Callable[[int, int], tuple[float, float, int]], n: int, n_seeds: int) -> dict[str, Any]:
    """Statistics over seeds 0, 1, ..."""
    start = time.process_time()
    found = np.array([run(seed, n) for seed in range(n_seeds)])
    seconds = (time.process_time() - start) / n_seeds
    return {
        "method": name,
        "seeds": n_seeds,
        "per level": n,
        "mean evaluations": float(found[:, 2].mean()),
        "most evaluations": int(found[:, 2].max()),
        "mean / exact": float(found[:, 0].mean() / PROBABILITY),
        "variation": float(found[:, 0].std(ddof=1) / PROBABILITY),
        "estimated variation": float(np.sqrt(np.mean(found[:, 1] ** 2))),
        "CPU s per run": seconds,
    }


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks rare-events", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="runs of each method (default 100)")
    options = parser.parse_args()
    rows = [
        row("ours", ours, 10900, options.seeds),
        row("OpenTURNS", openturns, 10000, options.seeds),
    ]
    show("Subset simulation: a sum of 100 standard normals is above 47.5 with probability 1e-6", rows)
    save("rare-events", rows)


if __name__ == "__main__":
    main()
