"""Pictures of the how-to pages on multilevel Monte Carlo, inversion, MCMC and rare events.

Each is computed anew, in seconds.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.common import SEED
from benchmarks.plots import BLUE, GREEN, ORANGE, legend_panel, panels, save
from ensemble import Ensemble
from ensemble.uq import Inputs, kalman_inversion, mcmc, multilevel, subset_simulation

COLOURS = ("0.75", "#a1c9f4", "#6f9bd1", BLUE, "#2a3f6b", ORANGE)


MARKS = "os^DvP"


def euler(n: int) -> Any:
    """The solution of y' = -a y, y(0) = 1 at time 1 by `n` steps of Euler's method."""
    return lambda x: (1.0 - x.a / n) ** n


def draw_multilevel() -> None:
    """Variances and numbers of samples by level, cost by error."""
    sizes = [4 * 2**k for k in range(9)]
    models, costs = [euler(n) for n in sizes], [float(n) for n in sizes]
    inputs, errors = Inputs(a=stats.uniform(0.5, 2.0)), [8e-3, 4e-3, 2e-3, 1e-3]
    results = [multilevel(models, inputs, atol=e, costs=costs, seed=SEED, ensemble_size=None) for e in errors]
    figure, axes = panels(2, 2, 6.2)
    left, middle, right = axes.flat[:3]
    last = results[-1]
    levels = np.arange(len(last.costs))
    left.semilogy(levels, last.variances[:, 0], "o-", color=BLUE, label="variance")
    left.semilogy(levels, np.abs(last.means[:, 0]), "s--", color=ORANGE, label="|mean|")
    left.set(xlabel="level", title="differences of\nneighbouring levels", xticks=levels)
    left.legend(loc="upper right")
    for error, result, colour, mark in zip(errors, results, COLOURS[1:], MARKS):
        drawn = np.arange(len(result.costs)), result.n_samples
        middle.semilogy(*drawn, f"{mark}-", color=colour, label=f"{error:g}")
    middle.set(xlabel="level", title="samples of\neach level", xticks=levels)
    right.loglog(errors, [r.monte_carlo_cost for r in results], "s--", color=ORANGE, label="Monte Carlo")
    right.loglog(errors, [r.total_cost for r in results], "o-", color=BLUE, label="multilevel")
    right.set(xlabel="standard error wanted", title="cost, time steps")
    right.legend(loc="upper right")
    right.set_xticks(errors, [f"{e:g}" for e in errors])
    right.set_xticks([], minor=True)
    title = "samples of each level,\nby standard error wanted"
    legend_panel(axes[1, 1], *middle.get_legend_handles_labels(), title=title)
    save(figure, "multilevel.png")


def decay(x: Any) -> Ensemble:
    """A concentration that decays, at six times."""
    t = np.linspace(0.5, 3.0, 6)[:, None]
    return Ensemble(x.start.samples * np.exp(-x.rate.samples * t))


def draw_inversion() -> None:
    """Prior, posterior samples and their curves."""
    inputs = Inputs(start=stats.lognorm(0.5, scale=1.0), rate=stats.lognorm(0.7, scale=0.7))
    t, y = np.linspace(0.5, 3.0, 6), np.array([1.23, 0.74, 0.58, 0.37, 0.19, 0.16])
    result = kalman_inversion(decay, y, 0.05**2, inputs, n_samples=400, seed=SEED)
    chains = mcmc(lambda x: -0.5 * ((decay(x) - y) ** 2).sum() / 0.05**2, inputs, 1500, n_chains=64, seed=SEED)
    exact, prior = chains.draws(), inputs.samples(400, sampler="monte_carlo", seed=SEED)
    figure, (left, right) = panels(1, 2, 4.2)
    fine = np.linspace(0.0, 3.3, 100)[:, None]
    for x, colour, label in ((prior, "0.8", "prior"), (result.samples, BLUE, "posterior")):
        curves = x.start.samples * np.exp(-x.rate.samples * fine)
        left.plot(fine, curves[:, :60], color=colour, lw=0.5, alpha=0.6)
        left.plot([], [], color=colour, label=label)
    left.errorbar(t, y, 0.1, fmt="o", color=ORANGE, label="observed, ± 2 deviations", zorder=5)
    left.set(xlabel="time", ylabel="concentration", ylim=(0.0, 2.6), xlim=(0.0, 3.3))
    above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
    left.legend(**above)
    right.plot(prior.start.samples, prior.rate.samples, ".", color="0.8", ms=4, label="prior")
    right.plot(exact.start.samples[:2000], exact.rate.samples[:2000], ".", color=ORANGE, ms=2, alpha=0.5, label="MCMC")
    right.plot(result.samples.start.samples, result.samples.rate.samples, ".", color=BLUE, ms=4, label="inversion")
    right.set(xlabel="start", ylabel="rate", xlim=(0.8, 2.8), ylim=(0.5, 1.7))
    right.legend(markerscale=2, **above)
    save(figure, "inversion.png")


def banana(z: Ensemble) -> Ensemble:
    """A curved density on the plane."""
    return -0.5 * (z[0] ** 2 / 4.0 + 4.0 * (z[1] + 0.5 * z[0] ** 2 - 2.0) ** 2)


def draw_mcmc() -> None:
    """Draws of a curved density, traces of chains, autocorrelation."""
    result = mcmc(banana, 2, 6000, n_chains=64, prior="flat", seed=SEED)
    draws, chain = result.draws(thin=40).samples, result.chain.samples
    figure, (left, right) = panels(2, 1, 6.6)
    left.plot(*draws[:, ::4], ".", color=BLUE, ms=1.5, alpha=0.4)
    x, y = np.meshgrid(np.linspace(-6.5, 6.5, 200), np.linspace(-16.0, 5.0, 200))
    density = banana(Ensemble(np.stack([x.ravel(), y.ravel()]))).samples.reshape(x.shape)
    left.contour(x, y, density, levels=[-4.5, -2.0, -0.5], colors=ORANGE, linewidths=1.0, linestyles="solid")
    left.plot([], [], "o", color=BLUE, ms=4, label="draws")
    left.plot([], [], color=ORANGE, label="1, 2 and 3 deviations")
    left.set(xlabel="$z_0$", ylabel="$z_1$", xlim=(-6.5, 6.5), ylim=(-16.0, 4.0))
    left.set_title("draws of the curved density")
    left.legend(loc="lower center")
    steps = np.arange(400)
    for k, (colour, dashes) in enumerate(((BLUE, "-"), (ORANGE, "--"), (GREEN, ":"))):
        right.plot(steps, chain[:400, 0, 7 * k], color=colour, ls=dashes, lw=1.2)
    time = result.autocorrelation_time[0]
    right.set(xlabel="step", ylabel="$z_0$")
    right.set_title(f"three of 64 chains, autocorrelation time {time:.0f} steps")
    save(figure, "mcmc.png")


def two_branches(z: Ensemble) -> Ensemble:
    """At most zero beyond either of two lines."""
    return 4.0 - abs(z[0] + z[1]) / np.sqrt(2.0) + 0.1 * (z[0] - z[1]) ** 2


def draw_rare_events() -> None:
    """Samples of each level in the plane, and the estimates against the probability of each threshold."""
    from ensemble.uq.algorithms.subset_run import run_levels

    kept: list[np.ndarray] = []

    def recording(z: np.ndarray) -> np.ndarray:
        kept.append(z.copy())
        return two_branches(Ensemble(z)).samples

    run = run_levels(recording, 2, 2000, 10, 20, SEED, 0)
    figure, (left, right) = panels(1, 2, 4.2)
    pieces = [kept[0], *(np.concatenate(kept[1 + 9 * k : 10 + 9 * k], axis=1) for k in range(len(run.fractions) - 1))]
    x, y = np.meshgrid(np.linspace(-6.0, 6.0, 300), np.linspace(-6.0, 6.0, 300))
    values = two_branches(Ensemble(np.stack([x.ravel(), y.ravel()]))).samples.reshape(x.shape)
    for k, (z, colour) in enumerate(zip(pieces, COLOURS)):
        below = two_branches(Ensemble(z)).samples <= (run.thresholds[k - 1] if k else np.inf)
        left.plot(*z[:, below], ".", color=colour, ms=2)
        left.plot([], [], "o", color=colour, ms=5, label=f"level {k + 1}")
    left.contour(x, y, values, levels=[0.0], colors="k", linewidths=1.2)
    left.set(xlabel="$z_0$", ylabel="$z_1$", aspect="equal", xlim=(-6, 6), ylim=(-6, 6))
    left.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, handletextpad=0.1, columnspacing=0.6)
    thresholds = np.arange(2.0, 7.01, 0.5)
    total = lambda z: Ensemble(z.samples.sum(axis=0))
    results = [
        subset_simulation(total, 100, 10.0 * t, event="above", n_per_level=2000, seed=SEED + k)
        for k, t in enumerate(thresholds)
    ]
    low, high = np.array([r.confidence_interval() for r in results]).T
    estimates = np.array([r.probability for r in results])
    right.semilogy(thresholds, stats.norm.sf(thresholds), color=ORANGE, label="exact")
    right.errorbar(
        thresholds, estimates, [estimates - low, high - estimates], fmt="o", ms=4, color=BLUE,
        label="subset simulation,\n95 % interval",
    )  # fmt: skip
    right.set(xlabel="standard deviations", ylabel="probability", title="sum of 100 normals,\none run each")
    right.legend()
    save(figure, "rare-events.png")


def main() -> None:
    """Draw them."""
    pictures = {
        "multilevel": draw_multilevel,
        "inversion": draw_inversion,
        "mcmc": draw_mcmc,
        "rare-events": draw_rare_events,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=pictures, help="one of the pictures")
    only = parser.parse_args().only
    for draw in pictures.values() if only is None else [pictures[only]]:
        draw()


if __name__ == "__main__":
    main()
