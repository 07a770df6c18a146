"""Pictures of samples: a histogram of a value, a ribbon along an array. Needs matplotlib, which is imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import array_of, message, require, require_type
from ensemble._optional import optional
from ensemble._typing import Array
from ensemble.scalar.ensemble import Ensemble
from ensemble.scalar.statistics.quantiles import sample_quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_histogram", "plot_ribbon"]


def _axes(ax: Any, function: str) -> Any:
    if ax is not None:
        return ax
    return optional("matplotlib.pyplot", function).gca()


def _real(x: Ensemble, function: str, ndim: int) -> Ensemble:
    require_type(x, Ensemble, function, "x", "be an Ensemble")
    requirement = "have no axis" if ndim == 0 else f"have {ndim} axis"
    require(x.ndim == ndim, function, "x", requirement, f"shape {x.shape}", "Index it first.")
    if to_numpy(x.samples).dtype.kind == "c":
        raise TypeError(message(function, "x", "be real", f"dtype {x.dtype}", "Plot xp.real(x) or xp.abs(x)."))
    return x


def plot_histogram(x: Ensemble, *, ax: Axes | None = None, bins: Any = "auto", **style: Any) -> Axes:
    """Draw how the samples of one value are spread, as a density; weights are honoured.

    Parameters
    ----------
    x : real Ensemble, shape ()
    ax : matplotlib.axes.Axes, optional
        Default: the current ones.
    bins : int, str or sequence of edges
        As in `numpy.histogram_bin_edges`.
    **style
        Passed on to ``ax.stairs``.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If `x` has axes, or no sample of it is finite.
    TypeError
        If `x` is complex, or no Ensemble.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> x = Ensemble(np.array([1.0, 2.0, 2.5, 4.0]))
    >>> ax = plot_histogram(x, ax=Figure().add_subplot(), bins=3)
    >>> ax.get_ylabel()
    'density'
    """
    x = _real(x, "plot_histogram", 0)
    values = to_numpy(x.samples).astype(np.float64)
    weights = None if x.sample_set is None else x.sample_set.weights
    weights = np.ones(x.n_samples) if weights is None else weights
    keep = np.isfinite(values) & (weights > 0.0)
    require(bool(np.any(keep)), "plot_histogram", "x", "have a finite sample", f"{x.n_samples} that are not")
    edges = np.histogram_bin_edges(values[keep], bins=bins)
    density, edges = np.histogram(values[keep], bins=edges, weights=weights[keep], density=True)
    ax = _axes(ax, "plot_histogram")
    ax.stairs(density, edges, **({"fill": True} | style))
    ax.set_ylabel("density")
    return ax


def plot_ribbon(
    x: Ensemble,
    along: Array | Sequence[float] | None = None,
    *,
    ax: Axes | None = None,
    levels: tuple[float, float] = (0.05, 0.95),
    **style: Any,
) -> Any:
    """Draw the median of each entry as a line, and the range between two quantiles as a band around it.

    Parameters
    ----------
    x : real Ensemble, shape (n,)
    along : array, shape (n,), optional
        Coordinates of the entries. Default: 0, 1, 2, ...
    ax : matplotlib.axes.Axes, optional
        Default: the current ones.
    levels : two floats in [0, 1], dimensionless
        The quantiles that bound the band.
    **style
        Passed on to ``ax.plot``.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If `x` has not 1 axis, or `along` has another length.
    TypeError
        If `x` is complex, or no Ensemble.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> x = Ensemble(np.random.default_rng(1).normal(size=(10, 50)))
    >>> ax = plot_ribbon(x, ax=Figure().add_subplot())
    >>> len(ax.lines), len(ax.collections)
    (1, 1)
    """
    x = _real(x, "plot_ribbon", 1)
    places = np.arange(len(x)) if along is None else to_numpy(along)
    require(places.shape == x.shape, "plot_ribbon", "along", f"have shape {x.shape}", f"shape {places.shape}")
    bounds = array_of(levels, "plot_ribbon", "levels", "be two numbers in [0, 1]")
    good = bounds.shape == (2,) and bounds.dtype.kind in "biuf" and np.all((bounds >= 0.0) & (bounds <= 1.0))
    require(bool(good), "plot_ribbon", "levels", "be two numbers in [0, 1]", levels, "Divide percentages by 100.")
    low, middle, high = to_numpy(sample_quantile(x, [levels[0], 0.5, levels[1]]))
    ax = _axes(ax, "plot_ribbon")
    (line,) = ax.plot(places, middle, **style)
    ax.fill_between(places, low, high, alpha=0.3, color=line.get_color(), linewidth=0)
    return ax
