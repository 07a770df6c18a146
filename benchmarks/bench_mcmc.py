"""Own cost of the ensemble sampler per evaluation of the density: `uq.mcmc` beside emcee."""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.common import SEED, interleaved, median, ratio, save, show
from ensemble.scalar import Ensemble
from ensemble.uq.algorithms.mcmc import mcmc


def log_density(z: np.ndarray) -> np.ndarray:
    """A standard normal, of points in columns."""
    return -0.5 * np.einsum("is,is->s", z, z)


def densities(n_germs: int, n_chains: int, n_steps: int, rows: bool) -> None:
    """The density alone, as often as a sampler needs it."""
    z = np.zeros((n_chains // 2, n_germs)).T if rows else np.zeros((n_germs, n_chains // 2))
    for _ in range(2 * n_steps):
        log_density(z)


def row(n_germs: int, n_chains: int, n_steps: int, rounds: int) -> dict[str, object]:
    """Microseconds per evaluation beyond those of the density."""
    import emcee

    start = np.random.default_rng(SEED).standard_normal((n_chains, n_germs))

    def run_emcee() -> None:
        sampler = emcee.EnsembleSampler(n_chains, n_germs, lambda z: log_density(z.T), vectorize=True)
        sampler.run_mcmc(start, n_steps)

    def run_ours() -> None:
        mcmc(lambda x: Ensemble(log_density(x.samples)), n_germs, n_steps, start=start, prior="flat", seed=SEED)

    seconds = interleaved(
        {
            "emcee": run_emcee,
            "ours": run_ours,
            "bare emcee": lambda: densities(n_germs, n_chains, n_steps, True),
            "bare ours": lambda: densities(n_germs, n_chains, n_steps, False),
        },
        rounds,
        time.process_time,
    )
    scale = 1e6 / (n_chains * n_steps)
    own = {k: [a - b for a, b in zip(seconds[k], seconds[f"bare {k}"], strict=True)] for k in ("emcee", "ours")}
    return {
        "coordinates": n_germs,
        "chains": n_chains,
        "steps": n_steps,
        "emcee us": median(own["emcee"]) * scale,
        "ours us": median(own["ours"]) * scale,
        "ours least us": min(own["ours"]) * scale,
        "emcee / ours": ratio(own["emcee"], own["ours"]),
    }


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks mcmc", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of interleaved timings (default 5)")
    parser.add_argument("--steps", type=int, default=400, help="steps per chain (default 400)")
    options = parser.parse_args()
    rows = [row(5, n_chains, options.steps, options.rounds) for n_chains in (64, 256, 1024, 4096)]
    rows += [row(20, 1024, options.steps, options.rounds)]
    show("CPU microseconds per evaluation beyond the density itself, diagnostics included in ours", rows)
    save("mcmc-1threads", rows)


if __name__ == "__main__":
    main()
