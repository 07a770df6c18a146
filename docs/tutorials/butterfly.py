"""A distribution on Lorenz's attractor: prediction, a measurement, Monte Carlo beside it, and several systems at once.

Run it, from any folder: ``python butterfly.py`` prints what it finds and draws ``butterfly.png`` in the current folder,
or the file that its argument names. It needs ``pip install 'ensemble-arrays[plots]'``.
"""

import sys
import warnings
from pathlib import Path

import numpy as np

import ensemble as en
from ensemble.apps import gbees

# %% The published cells are coarse for this problem: up to t = 1 a tenth of the probability leaves over the grid's rim,
# and as much is made up where negative values are set to zero. `saved_run.steps` has both; the warnings are known here.
warnings.simplefilter("ignore", gbees.GridWarning)

# %% The problem: Lorenz's system of 1963, an initial state known to a standard deviation of 1 in each coordinate, and
# at t = 1 a measurement x3 = -8 with noise of variance 1. It is one of the published configurations.
problem = gbees.configuration("lorenz63")

# %% The distribution is carried by the drift, on cells of half a standard deviation that come and go with it. It is
# recorded at five times before the measurement and five after it.
saved_run = gbees.RecordedRun(problem).run()
first, last = saved_run.distributions[0], saved_run.distributions[-1]
before, after = saved_run.distributions[4], saved_run.distributions[5]

# %% What it says: by t = 1 the probability has parted to both wings of the butterfly; no mean and covariance tell that.
# How many cells hold half of it, and 95 %? How much is on the left wing?
regions = gbees.highest_density_regions(before, (0.5, 0.95))
left_wing = float(before.probabilities[gbees.positions(before)[:, 0] < 0.0].sum() / before.probabilities.sum())

# %% The measurement says where the point is in height, not on which wing. Its evidence is the density of what was
# measured, given all that was known before.
log_evidence = saved_run.log_evidences[0]

# %% Monte Carlo for comparison: 20,000 samples in one Ensemble, each with its own step lengths. The samples become a
# distribution by a kernel density estimate, as in the paper, or by counting them in bins of 2 cells.
samples = gbees.draw(problem.mean, problem.covariance, 20_000, seed=1963)
samples = gbees.propagate(problem.drift, samples, 1.0)
by_kernels = gbees.bhattacharyya(before, gbees.kernel_density(samples, before))
by_bins = gbees.bhattacharyya(before, gbees.binned(samples, before, widths=1.0), widths=1.0)

# %% Several systems at once: the parameter r is an Ensemble, so every sample has a grid and time steps of its own. Here
# the means at t = 0.5 for each r.
r = en.Ensemble(np.array([28.0, 38.0, 48.0]))
many = gbees.Gbees(gbees.lorenz63.with_parameters(r=r), problem.mean, problem.covariance, threshold=1e-5)
many.advance(0.5)
means = many.mean().samples


def report():
    """What was found, in words."""
    largest = saved_run.steps.cells.max()
    print(f"{len(saved_run.steps)} steps, {saved_run.cell_steps:,} cell-steps, at most {largest:,} cells")
    print(f"half of the probability at t = 1 is in {regions.counts[0]:,} cells, 95 % in {regions.counts[1]:,}")
    print(f"the left wing has {left_wing:.2f} of it; log evidence of the measurement {log_evidence:.3f}")
    print(f"Bhattacharyya coefficient with Monte Carlo: {by_kernels:.3f} (kernels), {by_bins:.3f} (bins of 2 cells)")
    for k in range(r.n_samples):
        print(f"r = {r.samples[k]:g}: mean at t = 0.5 {means[:, k].round(2)}, {many.cell_steps[k]:,} cell-steps")


def draw(path):
    """The distributions before and after the measurement, and the number of cells."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style = {"font.size": 10.5, "axes.titlesize": 10.5, "axes.titlelocation": "left", "legend.frameon": False}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(6.4, 10.4), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(3, 1)
        colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, 5))[:, :3]
        for span in (0, 1):
            axes = figure.add_subplot(grid[span], projection="3d")
            for k in range(5):
                cells = saved_run.distributions[5 * span + k]
                dots = samples if span == 0 and k == 4 else None
                gbees.plot_isosurfaces(cells, ax=axes, masses=(0.5, 0.9, 0.99), color=colours[k], samples=dots)
                axes.plot([], [], [], "s", color=colours[k], label=f"t = {cells.time:g}")
            axes.legend(loc="center left", bbox_to_anchor=(1.15, 0.5), handletextpad=0.1)
            axes.set_box_aspect(None, zoom=0.92)
            axes.set_title("Before the measurement; dots: Monte Carlo" if span == 0 else "After the measurement")
        figure.legend(handles=gbees.legend_handles((0.5, 0.9, 0.99)), loc="outside lower left", ncols=3)
        axes = gbees.plot_cells(saved_run.step_times, saved_run.steps.cells, ax=figure.add_subplot(grid[2]))
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
        axes.axvline(1.0, color="0.5", lw=0.9, ls="--")
        axes.annotate("measurement", (1.0, 1.0), (4, -2), xycoords=("data", "axes fraction"),
                      textcoords="offset points", va="top", color="0.35")  # fmt: skip
        axes.set_title("Cells stored")
        figure.savefig(path, dpi=130)


if __name__ == "__main__":
    report()
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "butterfly.png"))
