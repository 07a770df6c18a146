"""What it is worth to run like with like, and to start from a solved neighbour: iterations, not seconds."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import SEED, save, show
from ensemble.apps.fem import RandomDiffusion
from ensemble.gallery import anisotropic
from ensemble.krylov import WarmStart, anisotropy, cg, group_samples, predict_iterations
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble

STRENGTH = 10.0
"""Square root of the range that each axis' diffusivity is drawn from, log-uniformly; the third axis has 1."""


def grouping(n: int = 16, n_samples: int = 64, size: int = 16, known: int = 32) -> list[dict[str, Any]]:
    """R of each grouping of `n_samples` anisotropic problems on an `n`^3 grid, preconditioned by multigrid."""
    rng = np.random.default_rng(SEED)
    logs = rng.uniform(-1.0, 1.0, (2, n_samples))
    weights = np.concatenate([STRENGTH**logs, np.ones((1, n_samples))])
    b = rng.standard_normal((n**3, n_samples))

    def iterations(samples: np.ndarray, coupling: str) -> np.ndarray:
        A = anisotropic((n, n, n), weights=weights[:, samples])
        M = smoothed_aggregation(A)
        return cg(A, Ensemble(b[:, samples]), M=M, rtol=1e-7, coupling=coupling).raise_if_failed().iterations

    natural = group_samples(n_samples, size)
    alone = natural.restore([iterations(group, "independent") for group in natural])
    ran = np.arange(known)
    keys = {
        "natural order": n_samples,
        "anisotropy": anisotropy(weights),
        f"surrogate, quadratic, {known} known": predict_iterations(logs, logs[:, ran], alone[ran]),
        f"surrogate, nearest, {known} known": predict_iterations(logs, logs[:, ran], alone[ran], method="nearest"),
        "iterations known beforehand": alone,
    }
    rows = []
    for name, key in keys.items():
        groups = group_samples(key, size)
        coupled = [int(iterations(group, "ensemble").max()) for group in groups]
        rows.append(
            {
                "grouping": name,
                "slowest sample of each group": " ".join(str(alone[g].max()) for g in groups),
                "R independent": groups.efficiency(alone),
                "coupled iterations of each group": " ".join(map(str, coupled)),
                "R coupled": groups.efficiency(alone, coupled),
            }
        )
    spread = f"{alone.min()}..{alone.max()}, mean {alone.mean():.1f}"
    show(f"{n_samples} anisotropic problems on {n}^3, groups of {size}; iterations alone {spread}", rows)
    return rows


def warm_start(cells: int = 8, n_samples: int = 128, size: int = 16) -> list[dict[str, Any]]:
    """Iterations of a study of the random-diffusion problem, ensemble after ensemble, by starting guess."""
    rows = []
    for name, options in (("linear", {}), ("source 1", {"source": 1.0}), ("advection 5", {"advection": 5.0})):
        for variance in (0.01, 0.1):
            problem = RandomDiffusion(cells, variance=variance, **options)
            y = np.random.default_rng(SEED).uniform(-1.0, 1.0, (5, n_samples))
            totals = {}
            for order in ("none", "nearest", "linear"):
                start = None if order == "none" else WarmStart(order, capacity=n_samples)
                counts = []
                for k in range(0, n_samples, size):
                    part = Ensemble(np.ascontiguousarray(y[:, k : k + size]))
                    result = problem.solve(part, u0=start and start.guess(part)).raise_if_failed()
                    counts.append(result.iterations)
                    if start is not None:
                        start.add(part, result.u, result.converged)
                totals[order] = (np.mean(counts), np.mean(counts[-1]))
            rows.append(
                {
                    "problem": name,
                    "variance": variance,
                    **{f"{order}": totals[order][0] for order in totals},
                    **{f"{order}, last {size}": totals[order][1] for order in totals},
                }
            )
    show(f"Linear iterations a sample over {n_samples} samples, {cells}^3 cells, by starting guess", rows)
    return rows


def main(cells: int, threads: int) -> None:
    """Print and keep both tables; the numbers depend on neither threads nor machine."""
    save("grouping", grouping())
    save("warm-start", warm_start())
