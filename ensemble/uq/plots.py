"""Pictures of studies: histograms, fan charts, scatter matrices, fields and sensitivity indices.

matplotlib is imported on use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ensemble._check import message, require
from ensemble._optional import optional
from ensemble.scalar.display.plotting import plot_histogram
from ensemble.scalar.ensemble import Ensemble
from ensemble.scalar.statistics.quantiles import sample_quantile

__all__ = [
    "fan_of",
    "only_output",
    "plot_fan",
    "plot_field",
    "plot_histogram_with_interval",
    "plot_indices",
    "plot_scatter",
    "tails_of",
]

BAND = 0.25
"""Opacity of intervals."""


def _axes(ax: Any, function: str) -> Any:
    if ax is not None:
        return ax
    return optional("matplotlib.pyplot", function).gca()


def only_output(name: str | None, outputs: Sequence[str], function: str) -> str:
    """`name`, or the only output."""
    if name is not None:
        return name
    seen = ", ".join(map(repr, outputs))
    require(len(outputs) == 1, function, "name", f"be one of {seen}", None)
    return outputs[0]


def plot_indices(
    values: Mapping[str, tuple[np.ndarray, np.ndarray]], inputs: Sequence[str], *, along: Any = None, ax: Any = None
) -> Any:
    """Draw sensitivity indices: bars by input with their intervals, or lines along an output's entries with bands.

    Parameters
    ----------
    values : mapping of str to (index, half_width), each shape (n_inputs,) or (n_inputs, n)
        By kind: "first" and "total", say. Of a field, each kind has a line style of its own.
    inputs : sequence of str
    along : array, shape (n,), optional
        Coordinates of the entries of a field. Default: 0, 1, 2, ...
    ax : matplotlib.axes.Axes, optional
        Default: the current ones.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If an index has more than two axes, or `along` has another length.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> first = (np.array([0.3, 0.4]), np.array([0.02, 0.03]))
    >>> ax = plot_indices({"first": first}, ["E", "load"], ax=Figure().add_subplot())
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['E', 'load']
    """
    for index, _ in values.values():
        advice = "Plot one line of it, or to_xarray()."
        require(index.ndim <= 2, "plot_indices", "values", "have one axis beside that of the inputs",
                f"shape {index.shape}", advice)  # fmt: skip
    ax = _axes(ax, "plot_indices")
    lines = any(index.ndim == 2 for index, _ in values.values())
    if lines:
        _index_lines(ax, values, inputs, along)
    else:
        _index_bars(ax, values, inputs)
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    ax.set_ylabel("part of the variance")
    return ax


def _index_bars(ax: Any, values: Mapping[str, tuple[np.ndarray, np.ndarray]], inputs: Sequence[str]) -> None:
    places = np.arange(len(inputs))
    width = 0.8 / len(values)
    for k, (kind, (index, half_width)) in enumerate(values.items()):
        at = places + (k - 0.5 * (len(values) - 1)) * width
        errors = None if np.all(np.isnan(half_width)) else half_width
        ax.bar(at, index, 0.92 * width, yerr=errors, capsize=3.0, label=kind, error_kw={"elinewidth": 1.0})
    ax.set_xticks(places, list(inputs))
    if len(values) > 1:
        ax.legend(frameon=False)


def _index_lines(
    ax: Any, values: Mapping[str, tuple[np.ndarray, np.ndarray]], inputs: Sequence[str], along: Any
) -> None:
    n = next(iter(values.values()))[0].shape[1]
    places = np.arange(n) if along is None else np.asarray(along)
    require(places.shape == (n,), "plot_indices", "along", f"have shape ({n},)", f"shape {places.shape}")
    for (kind, (index, half_width)), style in zip(values.items(), ("-", "--", ":")):
        for i, name in enumerate(inputs):
            label = name if len(values) == 1 else f"{name}, {kind}"
            ax.plot(places, index[i], style, color=f"C{i}", label=label)
            low, high = index[i] - half_width[i], index[i] + half_width[i]
            ax.fill_between(places, low, high, color=f"C{i}", alpha=BAND, linewidth=0)
    if along is None:
        ax.set_xlabel("entry")
    ax.margins(x=0)
    lines = ax.lines[-len(inputs) * len(values) :]  # of one kind after the other
    by_input = [line for i in range(len(inputs)) for line in lines[i :: len(inputs)]]
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}  # above the data
    ax.legend(handles=by_input, frameon=False, fontsize="small", ncols=min(len(inputs), 4), **place)


def plot_histogram_with_interval(
    y: Ensemble, *, interval: tuple[float, float] | None = None, ax: Any = None, bins: Any = "auto", **style: Any
) -> Any:
    """Draw a histogram of an output, its mean as a line and the interval of the mean as a band.

    Parameters
    ----------
    y : real Ensemble, shape ()
    interval : (low, high), optional
        Interval of the mean. Default: none is drawn.
    ax, bins, **style
        As `plot_histogram`.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> y = Ensemble(np.array([1.0, 2.0, 2.5, 4.0]))
    >>> ax = plot_histogram_with_interval(y, interval=(2.0, 2.7), ax=Figure().add_subplot(), bins=3)
    >>> len(ax.lines)
    1
    """
    from ensemble.scalar import sample_mean

    ax = plot_histogram(_finite(y), ax=ax, bins=bins, **({"alpha": 0.6} | style))
    mean = float(sample_mean(_finite(y)))
    ax.axvline(mean, color="black", linewidth=1.2, label=f"mean {mean:.4g}")
    if interval is not None:
        low, high = (float(end) for end in interval)
        ax.axvspan(low, high, color="black", alpha=BAND, linewidth=0, label=f"its interval {low:.4g} to {high:.4g}")
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False, fontsize="small")
    return ax


def _finite(y: Ensemble) -> Ensemble:
    """The samples that are finite in every entry."""
    values = np.asarray(y.samples)
    finite = np.all(np.isfinite(values.reshape(-1, values.shape[-1])), axis=0)
    return y if np.all(finite) else Ensemble(values[..., finite])


def plot_fan(
    y: Ensemble,
    along: Any = None,
    *,
    levels: Sequence[float] = (0.5, 0.8, 0.95),
    ax: Any = None,
    color: Any = "C0",
) -> Any:
    """Draw a fan chart: the median of each entry and central ranges of growing probability around it.

    Parameters
    ----------
    y : real Ensemble, shape (n,)
    along : array, shape (n,), optional
        Coordinates of the entries. Default: 0, 1, 2, ...
    levels : sequence of float in (0, 1), dimensionless
        Probabilities of the ranges.
    ax : matplotlib.axes.Axes, optional
        Default: the current ones.
    color : matplotlib color

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If a level is not between 0 and 1, `y` has not 1 axis, or `along` has another length.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> y = Ensemble(np.random.default_rng(1).normal(size=(10, 50)))
    >>> ax = plot_fan(y, levels=(0.5, 0.9), ax=Figure().add_subplot())
    >>> len(ax.collections)
    2
    """
    tails = tails_of(levels)
    require(y.ndim == 1, "plot_fan", "y", "have 1 axis", f"shape {y.shape}", "Index it first.")
    return fan_of(sample_quantile(_finite(y), tails), along, levels, ax, color)


def tails_of(levels: Sequence[float]) -> list[float]:
    """The median, and the quantiles that bound each range, widest first."""
    ordered = sorted((float(level) for level in levels), reverse=True)
    inside = bool(ordered) and ordered[-1] > 0.0 and ordered[0] < 1.0
    require(inside, "plot_fan", "levels", "lie between 0 and 1", list(levels))
    return [0.5, *(q for level in ordered for q in (0.5 - 0.5 * level, 0.5 + 0.5 * level))]


def fan_of(quantiles: Any, along: Any, levels: Sequence[float], ax: Any, color: Any) -> Any:
    """Median and ranges, from quantiles in the order of `tails_of`."""
    median, *ends = np.asarray(quantiles)
    places = np.arange(len(median)) if along is None else np.asarray(along)
    require(places.shape == median.shape, "plot_fan", "along", f"have shape {median.shape}", f"shape {places.shape}")
    patches = optional("matplotlib.patches", "plot_fan")
    ax = _axes(ax, "plot_fan")
    handles = []
    for k, level in enumerate(sorted(levels, reverse=True)):
        ax.fill_between(places, ends[2 * k], ends[2 * k + 1], color=color, alpha=BAND, linewidth=0)
        seen = 1.0 - (1.0 - BAND) ** (k + 1)  # through all that lie above each other
        handles.append(patches.Patch(facecolor=color, alpha=seen, linewidth=0, label=f"{100 * level:g} %"))
    handles += ax.plot(places, median, color=color, label="median")
    ax.margins(x=0)
    ax.legend(handles=handles, frameon=False, fontsize="small")
    return ax


def plot_scatter(values: Mapping[str, Any], *, figure: Any = None, size: float = 4.0) -> Any:
    """Draw a scatter matrix: each value against each other, and histograms on the diagonal.

    Parameters
    ----------
    values : mapping of str to array, shape (n_samples,)
        Inputs and outputs by name, two or more. Samples with a value that is not finite are left out.
    figure : matplotlib.figure.Figure, optional
        Default: a new one.
    size : float, points squared
        Area of the markers.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there are fewer than two values, or they have several axes or different lengths.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> x = np.random.default_rng(2).normal(size=(2, 30))
    >>> len(plot_scatter({"a": x[0], "b": x[1]}, figure=Figure()).axes)
    4
    """
    require(len(values) >= 2, "plot_scatter", "values", "be two or more", len(values))
    columns = {name: np.asarray(value) for name, value in values.items()}
    shapes = {value.shape for value in columns.values()}
    good = len(shapes) == 1 and len(next(iter(shapes))) == 1
    require(good, "plot_scatter", "values", "be vectors of one length", ", ".join(map(str, sorted(shapes))))
    finite = np.all([np.isfinite(value) for value in columns.values()], axis=0)
    if figure is None:
        pyplot = optional("matplotlib.pyplot", "plot_scatter")
        figure = pyplot.figure(figsize=(1.9 * len(columns) + 1.0,) * 2, layout="constrained")
    n = len(columns)
    axes = figure.subplots(n, n, sharex="col", squeeze=False)
    for i, (row, y) in enumerate(columns.items()):
        for j, (column, x) in enumerate(columns.items()):
            ax = axes[i, j]
            if i == j:
                ax.hist(x[finite], bins="auto", color="C0", alpha=0.6)
                ax.set_yticks([])
            else:
                ax.scatter(x[finite], y[finite], s=size, alpha=0.4, linewidths=0)
                ax.tick_params(labelleft=j == 0)
            if j == 0:
                ax.set_ylabel(row)
            if i == n - 1:
                ax.set_xlabel(column)
    return figure


def plot_field(
    mean: Any, std: Any, *, points: Any = None, triangles: Any = None, figure: Any = None, labels: Any = None
) -> Any:
    """Draw mean and standard deviation of a field: a line with a band, or two maps beside each other.

    Parameters
    ----------
    mean, std : array, shape (n,) or (n_rows, n_columns)
    points : array, optional
        Coordinates: of a line, shape (n,); of scattered points, shape (n, 2); of a grid, a pair
        ``(x, y)`` of the coordinates of its columns and rows.
    triangles : array of int, shape (n_triangles, 3), optional
        Triangles of the mesh whose nodes are `points`. Default: Delaunay's.
    figure : matplotlib.figure.Figure, optional
        Default: a new one.
    labels : pair of str, optional
        Labels of the two axes of coordinates.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If the shapes do not fit each other.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> x = np.linspace(0.0, 1.0, 20)
    >>> len(plot_field(x**2, 0.1 * x, points=x, figure=Figure()).axes)
    1
    """
    mean, std = np.asarray(mean), np.asarray(std)
    good = mean.shape == std.shape and mean.ndim in (1, 2)
    requirement = "be arrays of one shape with one or two axes"
    require(good, "plot_field", "mean and std", requirement, f"shapes {mean.shape} and {std.shape}")
    flat = mean.ndim == 1 and (points is None or np.ndim(points) == 1)
    if figure is None:
        pyplot = optional("matplotlib.pyplot", "plot_field")
        figure = pyplot.figure(figsize=(6.0, 4.0) if flat else (10.0, 4.0), layout="constrained")
    if flat:
        axes = [figure.subplots()]
        _line_with_band(axes[0], mean, std, points)
    else:
        axes = list(figure.subplots(1, 2))
        for ax, values, title, colors in zip(axes, (mean, std), ("mean", "standard deviation"), ("viridis", "magma")):
            shown = _map(ax, values, points, triangles, colors)
            figure.colorbar(shown, ax=ax)
            ax.set_title(title)
            ax.set_aspect("equal")
    for ax in axes:
        if labels is not None:
            ax.set_xlabel(labels[0])
            ax.set_ylabel(labels[1])
    return figure


def _line_with_band(ax: Any, mean: np.ndarray, std: np.ndarray, points: Any) -> None:
    x = np.arange(len(mean)) if points is None else np.asarray(points)
    require(x.shape == mean.shape, "plot_field", "points", f"have shape {mean.shape}", f"shape {x.shape}")
    ax.plot(x, mean, color="C0", label="mean")
    ax.fill_between(x, mean - std, mean + std, color="C0", alpha=BAND, linewidth=0, label="one standard deviation")
    ax.margins(x=0)
    ax.legend(frameon=False, fontsize="small")


def _map(ax: Any, values: np.ndarray, points: Any, triangles: Any, colors: str) -> Any:
    if values.ndim == 2:
        rows, columns = values.shape
        x, y = (np.arange(columns), np.arange(rows)) if points is None else (np.asarray(one) for one in points)
        if x.shape != (columns,) or y.shape != (rows,):
            requirement = f"be coordinates of {columns} columns and {rows} rows"
            raise ValueError(message("plot_field", "points", requirement, f"shapes {x.shape} and {y.shape}"))
        return ax.pcolormesh(x, y, values, cmap=colors, shading="nearest")
    at = np.asarray(points)
    require(at.shape == (len(values), 2), "plot_field", "points", f"have shape ({len(values)}, 2)", f"shape {at.shape}")
    return ax.tripcolor(at[:, 0], at[:, 1], values, triangles=triangles, cmap=colors, shading="gouraud")
