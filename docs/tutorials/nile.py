"""The level of the Nile: a filter, a smoother, gaps, a fit by Ensembles of candidates, and draws.

Run it, from any folder: ``python nile.py`` prints what it finds and draws ``nile.png`` in the current folder, or
the file that its argument names. It needs ``pip install 'ensemble-arrays[plots]'``.
"""

import sys
from pathlib import Path

import numpy as np

import ensemble as en
from ensemble.apps.kalman import (
    LinearGaussianModel,
    kalman_filter,
    maximum_likelihood,
    rts_smoother,
    sample_posterior,
)

HERE = Path(__file__).parent

# %% The data: how much water passed Aswan each year, 1871 to 1970, in 10^8 cubic metres.
years, volume = np.loadtxt(HERE / "nile.csv", delimiter=",", skiprows=4, unpack=True)
y = volume[:, None]  # one series of T observations with one entry each: shape (T, 1)

# %% The model: a level that walks at random, seen in noise.
#
#     level[k] = level[k-1] + N(0, walk),    y[k] = level[k] + N(0, noise)
#
# Of the first level nothing is known: its variance is a number much larger than any that matters.
one = np.eye(1)


def local_level(theta):
    """The model for theta = (noise, walk), numbers or Ensembles."""
    noise, walk = theta[0] * one, theta[1] * one
    return LinearGaussianModel(
        F=one, Q=walk, H=one, R=noise, m0=np.zeros(1), P0=1e9 * one, prior_at="first_observation"
    )


# %% Many candidates at once: theta is an Ensemble of 48 x 48 pairs, and one call filters the series for all of them.
# The first term of the likelihood says only how vague the prior is, so it is left out.
deviations = np.meshgrid(np.linspace(60.0, 180.0, 48), np.linspace(4.0, 110.0, 48), indexing="ij")
candidates = en.Ensemble(np.stack([d.ravel() ** 2 for d in deviations]))
scanned = kalman_filter(local_level(candidates), y)
surface = scanned.log_likelihoods.samples[1:].sum(axis=0).reshape(48, 48)

# %% The fit does the same with a few candidates around where it stands, until the likelihood cannot rise.
fit = maximum_likelihood(local_level, y, start=[1e4, 1e3], bounds=[(0.0, None), (0.0, None)], burn=1).raise_if_failed()

# %% The filter uses the past, the smoother all observations. Both come from one call.
smooth = rts_smoother(fit.model, y)
filtered = smooth.filtered

# %% Gaps are NaN. Here two times twenty years are forgotten: the level is bridged, its band widens.
gone = ((years > 1890) & (years <= 1910)) | ((years > 1930) & (years <= 1950))
bridged = rts_smoother(fit.model, np.where(gone[:, None], np.nan, y))

# %% Draws of whole trajectories show what means and bands cannot: by how much did the level fall between the ten
# years before 1899 and the ten from then on? Each draw gives one value.
draws = sample_posterior(fit.model, y, 4000, seed=1899)
before, after = (years >= 1889) & (years < 1899), (years >= 1899) & (years < 1909)
fall = draws.samples[before, 0].mean(axis=0) - draws.samples[after, 0].mean(axis=0)


def report():
    """What was found, in words."""
    (noise, walk), (noise_error, walk_error) = fit.estimate, fit.standard_errors
    print(f"variance of the noise      {noise:8.1f} ± {noise_error:.0f}   (10^8 m^3)^2")
    print(f"variance of the walk       {walk:8.1f} ± {walk_error:.0f}")
    print(f"log-likelihood             {fit.log_likelihood:8.2f}, {fit.evaluations} candidates, {fit.iterations} steps")
    print(f"fall of the level in 1899  {fall.mean():8.1f} ± {fall.std():.1f}, smallest of all draws {fall.min():.0f}")


def draw(path):
    """The four pictures."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ink, grey, blue, orange = "#1b2733", "#8a96a3", "#2f6f9f", "#d9662b"
    style = {"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
             "legend.frameon": False, "text.color": ink, "axes.labelcolor": ink, "axes.edgecolor": grey}  # fmt: skip

    def band(axes, result, colour, label, alpha=0.25):
        mean, half = result.mean[:, 0], 1.96 * np.sqrt(result.covariance[:, 0, 0])
        axes.fill_between(years[1:], (mean - half)[1:], (mean + half)[1:], color=colour, alpha=alpha, linewidth=0)
        axes.plot(years[1:], mean[1:], color=colour, linewidth=1.6, label=label)

    with matplotlib.rc_context(style):
        figure = Figure(figsize=(6.4, 13.0), layout="constrained")
        FigureCanvasAgg(figure)
        upper, gaps, likelihood, lower = figure.subplots(4, 1)
        for axes in (upper, gaps, lower):
            axes.plot(years[~gone], volume[~gone], ".", color=ink, markersize=4, label="observed")
            axes.set(xlim=(1868, 1973), ylim=(430, 1430), ylabel="discharge, $10^8$ m³ a year")
        for axes in (upper, lower):
            axes.plot(years[gone], volume[gone], ".", color=ink, markersize=4)
        band(upper, filtered, grey, "filter: the past")
        band(upper, smooth, blue, "smoother: all years", alpha=0.35)
        upper.set_title("Filter and smoother, 95 % bands")
        gaps.plot(years[gone], volume[gone], "o", markerfacecolor="none", color=grey, markersize=3.5, label="forgotten")
        band(gaps, bridged, blue, "smoother")
        gaps.set_title("Two gaps of twenty years")
        levels = surface.max() - np.array([20.0, 10.0, 6.0, 3.0, 1.0, 0.3])
        drawn = likelihood.contour(
            *deviations, surface, levels=levels, cmap="Blues", linewidths=1.3, vmin=levels[0] - 15
        )
        likelihood.clabel(drawn, fmt=lambda v: f"{v - surface.max():.1f}", fontsize=9.5)
        likelihood.plot(*np.sqrt(fit.estimate), "o", color=orange, label="maximum likelihood")
        likelihood.errorbar(*np.sqrt(fit.estimate), *(fit.standard_errors / (2 * np.sqrt(fit.estimate)))[::-1],
                            color=orange, linewidth=1.2, label="± one standard error")  # fmt: skip
        likelihood.set(xlabel="standard deviation of the noise", ylabel="standard deviation of the walk", ylim=(4, 127))
        likelihood.set_title("Log-likelihood less its maximum, 2304 candidates at once")
        lower.plot(years, draws.samples[:, 0, :40], color=blue, linewidth=0.5, alpha=0.5)
        lower.plot([], [], color=blue, linewidth=0.8, label="40 of 4000 draws")
        lower.axvline(1898.5, color=orange, linewidth=1.0, linestyle=(0, (4, 3)))
        lower.set_title(f"The level falls by {fall.mean():.0f} ± {fall.std():.0f} around 1899")
        for axes in (upper, gaps, likelihood, lower):
            axes.legend(loc="upper right", frameon=True, framealpha=0.85, edgecolor="none")
        figure.savefig(path, dpi=130)


if __name__ == "__main__":
    report()
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "nile.png"))
