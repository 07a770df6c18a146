"""Plots of distributions on a grid and of the grid's size; matplotlib is imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._backend import to_numpy
from ensemble._optional import optional
from ensemble._typing import Array
from ensemble.apps.gbees.analysis.isosurface import isosurface
from ensemble.apps.gbees.analysis.marginals import marginal
from ensemble.apps.gbees.cells import Cells
from ensemble.scalar import Ensemble

__all__ = ["legend_handles", "plot_cells", "plot_isosurfaces", "plot_marginals", "plot_region"]

SIGMAS = tuple(float(np.exp(-0.5 * k * k)) for k in (1, 2, 3))
"""Gaussian density at 1, 2, 3 standard deviations over its maximum: 0.607, 0.135, 0.011."""

COLOUR = "#2f6f9f"


def plot_isosurfaces(
    cells: Cells,
    axes: Sequence[int] = (0, 1, 2),
    *,
    ax: Any = None,
    levels: Sequence[float] = SIGMAS,
    masses: Sequence[float] = (),
    color: Any = COLOUR,
    samples: Array = None,
    names: Sequence[str] = (),
) -> Any:
    """Draw surfaces of constant density of three coordinates, all others summed over.

    `legend_handles` makes legend entries with the enclosed probabilities.

    Parameters
    ----------
    cells : Cells
    axes : three ints
    ax : Axes3D, optional
        Default: a new figure's. Several distributions may share it.
    levels : sequence of float in (0, 1)
        Densities relative to the largest one.
    masses : sequence of float in (0, 1), optional
        Instead of `levels`: the surfaces enclose the smallest regions with these probabilities.
    color : matplotlib colour
        Colour of all surfaces; inner ones are less transparent.
    samples : Ensemble, shape (n,), or array, shape (n, n_samples), optional
        Points to draw, for example of a Monte Carlo run; at most 5000 of them.
    names : sequence of str, optional
        Names of all coordinates, with their units.

    Returns
    -------
    Axes3D

    Raises
    ------
    ValueError
        If `axes` are not three, or a level or a mass is outside (0, 1).
    """
    pyplot = optional("matplotlib.pyplot", "plot_isosurfaces")
    to_rgb = optional("matplotlib.colors", "plot_isosurfaces").to_rgb
    Poly3DCollection = optional("mpl_toolkits.mplot3d.art3d", "plot_isosurfaces").Poly3DCollection
    _check.require(len(axes) == 3, "plot_isosurfaces", "axes", "be three numbers", list(axes))
    for name, values in (("levels", levels), ("masses", masses)):
        good = all(0.0 < value < 1.0 for value in values)
        _check.require(good, "plot_isosurfaces", name, "be in (0, 1)", list(values))
    _check.require(len(levels) + len(masses) > 0, "plot_isosurfaces", "levels", "be at least one", "none")
    ax = pyplot.figure().add_subplot(projection="3d") if ax is None else ax
    found = marginal(cells, axes)
    had_data = bool(ax.collections or ax.lines)
    heights = found.levels(masses) if len(masses) else float(found.density.max()) * np.asarray(levels)
    for height, alpha in zip(np.sort(heights), opacities(len(heights)), strict=True):
        triangles = isosurface(found.density, float(height), found.coordinates)
        if not len(triangles):  # the level of the likeliest cell
            continue
        surface = Poly3DCollection(triangles, facecolors=shaded(triangles, to_rgb(color), alpha), edgecolors="none")
        surface.set_rasterized(True)  # avoids vector files with every triangle
        ax.add_collection3d(surface)
    ends = [(c[0] - width, c[-1] + width) for c, width in zip(found.coordinates, found.widths)]
    ax.auto_scale_xyz(*ends, had_data=had_data)
    if samples is not None:
        x = to_numpy(samples.samples if isinstance(samples, Ensemble) else samples)[list(axes), :5000]
        ax.plot(*x, ".", color="0.25", markersize=1.0, alpha=0.35, rasterized=True)
    label_beside_ticks(ax, [names[axis] if names else f"x{axis + 1}" for axis in axes])
    return ax


def opacities(n: int) -> list[float]:
    """Opacities of `n` surfaces, the outermost first."""
    return [0.1 + 0.7 * ((k + 1) / n) ** 2 for k in range(n)]


def legend_handles(masses: Sequence[float], surfaces: bool = True) -> list[Any]:
    """Return legend entries with the probability inside each surface or region of a plot.

    Parameters
    ----------
    masses : sequence of float in (0, 1)
        As passed to `plot_isosurfaces` or `plot_region`.
    surfaces : bool
        True for `plot_isosurfaces`, False for `plot_region`.

    Returns
    -------
    list of matplotlib.patches.Patch
    """
    Patch = optional("matplotlib.patches", "legend_handles").Patch
    n, shade = len(masses), 0.25
    alphas = opacities(n) if surfaces else [0.25 + 0.7 * (k + 1) / n for k in range(n)]
    return [
        Patch(facecolor=(shade, shade, shade, alpha), edgecolor="none", label=f"{100.0 * mass:.4g} % inside")
        for mass, alpha in zip(sorted(masses), alphas[::-1], strict=True)
    ]


def label_beside_ticks(ax: Any, labels: Sequence[str]) -> None:
    """Label the axes of a three-dimensional plot, as close to the tick labels as possible."""
    from matplotlib.ticker import MaxNLocator

    ax.tick_params(labelsize=8, pad=0)
    ax.tick_params(axis="z", pad=4)
    for name, label in zip("xyz", labels, strict=True):
        axis = getattr(ax, f"{name}axis")
        axis.set_major_locator(MaxNLocator(4))
        texts = axis.get_major_formatter().format_ticks(axis.get_majorticklocs())
        axis.set_label_text(label)
        axis.labelpad = LABEL_PADS[name] * max(map(len, texts))


LABEL_PADS = {"x": 0.7, "y": 0.7, "z": 1.0}
"""Label distance in points per character of the longest tick label."""

LIGHT = np.array([-0.5, -0.6, 0.62])
"""Direction of the light, a unit vector."""


def shaded(triangles: np.ndarray, rgb: tuple[float, float, float], alpha: float) -> np.ndarray:
    """A colour for each triangle, darker where it faces away from the light, shape (n_triangles, 4)."""
    # Coordinates may have very different units: normals are those of the distribution scaled to a cube.
    corners = triangles / np.maximum(np.ptp(triangles, axis=(0, 1)), np.finfo(np.float64).tiny)
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.maximum(np.linalg.norm(normal, axis=1), np.finfo(np.float64).tiny)
    brightness = 0.72 + 0.28 * (normal @ LIGHT) / length
    colours = np.empty((len(triangles), 4))
    colours[:, :3] = np.clip(np.array(rgb) * brightness[:, None], 0.0, 1.0)
    colours[:, 3] = alpha
    return colours


def plot_region(
    cells: Cells,
    axes: Sequence[int],
    *,
    ax: Any = None,
    masses: Sequence[float] = (0.5, 0.9, 0.99),
    color: Any = COLOUR,
    samples: Array = None,
    names: Sequence[str] = (),
) -> Any:
    """Draw the regions of highest density of two coordinates, all others summed over.

    Parameters
    ----------
    cells : Cells
    axes : two ints
    ax : matplotlib.axes.Axes, optional
        Default: the current ones.
    masses : sequence of float in (0, 1), ascending
        Probability inside each region.
    color : matplotlib colour
        Base colour of the regions.
    samples, names
        As for `plot_isosurfaces`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If `axes` are not two, or a mass is outside (0, 1].
    """
    pyplot = optional("matplotlib.pyplot", "plot_region")
    LinearSegmentedColormap = optional("matplotlib.colors", "plot_region").LinearSegmentedColormap
    _check.require(len(axes) == 2, "plot_region", "axes", "be two numbers", list(axes))
    ax = pyplot.gca() if ax is None else ax
    found = marginal(cells, axes)
    # A border of zeros closes the contours.
    values = np.pad(found.density, 1)
    x, y = (
        np.concatenate([c[:1] - width, c, c[-1:] + width]) for c, width in zip(found.coordinates, found.widths)
    )  # fmt: skip
    levels = np.unique(found.levels(masses))
    shades = LinearSegmentedColormap.from_list("shades", ["white", color])
    colours = [shades(0.25 + 0.7 * (k + 1) / levels.size) for k in range(levels.size)]
    ax.contourf(x, y, values.T, levels=[*levels, np.inf], colors=colours)
    ax.contour(x, y, values.T, levels=levels, colors=[color], linewidths=0.6)
    if samples is not None:
        points = to_numpy(samples.samples if isinstance(samples, Ensemble) else samples)[list(axes), :5000]
        ax.plot(*points, ".", color="0.2", markersize=1.0, alpha=0.3, rasterized=True, zorder=3)
    ax.set(xlabel=names[axes[0]] if names else f"x{axes[0] + 1}", ylabel=names[axes[1]] if names else f"x{axes[1] + 1}")
    return ax


def plot_marginals(
    cells: Cells,
    *,
    axes: Sequence[int] | None = None,
    masses: Sequence[float] = (0.5, 0.9, 0.99),
    color: Any = COLOUR,
    samples: Array = None,
    names: Sequence[str] = (),
    figure: Any = None,
) -> Any:
    """Draw the marginal of each coordinate on the diagonal, and the highest-density regions of each pair below it.

    Parameters
    ----------
    cells : Cells
    axes : sequence of int, optional
        Default: all coordinates.
    masses, color, names
        As for `plot_region`.
    samples : Ensemble, shape (n,), or array, shape (n, n_samples), optional
        For example of a Monte Carlo run: histograms on the diagonal, points below it.
    figure : matplotlib.figure.Figure, optional
        Default: a new one.

    Returns
    -------
    matplotlib.figure.Figure
    """
    pyplot = optional("matplotlib.pyplot", "plot_marginals")
    chosen = list(range(len(cells.widths))) if axes is None else list(axes)
    n = len(chosen)
    figure = pyplot.figure(figsize=(1.9 * n + 0.6, 1.9 * n + 0.6), layout="constrained") if figure is None else figure
    table = figure.subplots(n, n, sharex="col", squeeze=False)
    points = None if samples is None else to_numpy(samples.samples if isinstance(samples, Ensemble) else samples)
    for i, j in np.ndindex(n, n):
        ax = table[i, j]
        if j > i:
            ax.remove()
            continue
        if i == j:
            found = marginal(cells, chosen[i])
            edges = np.append(found.coordinates[0], found.coordinates[0][-1] + found.widths[0]) - 0.5 * found.widths[0]
            ax.stairs(found.density, edges, color=color, fill=True, alpha=0.35)
            ax.stairs(found.density, edges, color=color)
            if points is not None:
                ax.hist(points[chosen[i]], bins=edges, density=True, histtype="step", color="0.2", linewidth=0.9)
            ax.set_yticks([])
            ax.set_ylim(bottom=0.0)
            ax.set_xlabel(names[chosen[i]] if names else f"x{chosen[i] + 1}")
        else:
            pair = (chosen[j], chosen[i])
            plot_region(cells, pair, ax=ax, masses=masses, color=color, samples=samples, names=names)
        if i < n - 1:
            ax.set_xlabel("")
        if 0 < j < i:
            ax.set_ylabel("")
            ax.tick_params(labelleft=False)
    return figure


def plot_cells(times: Array, cells: Any, *, ax: Any = None, label: str | None = None, **style: Any) -> Any:
    """Plot the number of cells of a run against time.

    Parameters
    ----------
    times, cells : array, shape (n_steps,)
        `SavedRun.step_times` and ``SavedRun.steps.cells``.
    ax : matplotlib.axes.Axes, optional
        Default: the current ones.
    label : str, optional
    **style
        Passed on to ``ax.plot``.

    Returns
    -------
    matplotlib.axes.Axes
    """
    pyplot = optional("matplotlib.pyplot", "plot_cells")
    ax = pyplot.gca() if ax is None else ax
    marker = "o" if np.size(times) == 1 else None  # one step gives no line
    style = {"color": COLOUR, "linewidth": 1.4, "marker": marker, **style}
    ax.plot(np.asarray(times), np.asarray(cells), label=label, **style)
    ax.set(xlabel="time", ylabel="cells")
    ax.set_ylim(bottom=0.0)
    if label is not None:
        ax.legend(frameon=False)
    return ax
