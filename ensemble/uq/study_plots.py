"""The pictures of a study: ``result.plot``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ensemble._check import message, require
from ensemble.uq.inputs.samples import labels_of
from ensemble.uq.plots import (
    fan_of,
    only_output,
    plot_field,
    plot_histogram_with_interval,
    plot_indices,
    plot_scatter,
    tails_of,
)
from ensemble.uq.study.declared import Outputs

__all__ = ["StudyPlots", "plot_along"]


def name_places(axes: Sequence[Any], k: int, n: int, labels: Sequence[str]) -> None:
    """Name the places of categories in row and column `k` of a scatter matrix of `n` by their labels."""
    for i in range(n):
        axes[i * n + k].set_xticks(range(len(labels)), labels)
        if i != k:
            axes[k * n + i].set_yticks(range(len(labels)), labels)


def plot_along(
    values: Mapping[str, tuple[np.ndarray, np.ndarray]],
    inputs: Sequence[str],
    along: Any,
    ax: Any,
    declared: Outputs,
    dims: Sequence[str],
) -> Any:
    """Sensitivity indices, those of a field along the coordinates of its axis."""
    dim = dims[0] if len(dims) == 1 and along is None else ""
    ax = plot_indices(values, inputs, along=declared.places(dim) if along is None else along, ax=ax)
    declared.name_axis(ax.xaxis, dim)
    return ax


class StudyPlots:
    """The pictures of a study: ``result.plot.hist("tip")``.

    Parameters
    ----------
    result : UqResult
    declared : Outputs
        Coordinates and units of the outputs.
    """

    def __init__(self, result: Any, declared: Outputs) -> None:
        self._result, self._declared = result, declared

    def __call__(self, *_arguments: Any, **_keywords: Any) -> NoReturn:
        advice = "Write plot.hist(...), plot.fan(...), plot.scatter(...) or plot.field(...)."
        raise TypeError(message("UqResult.plot", "the picture", "be named", "a call of plot itself", advice))

    def _named(self, name: str | None, function: str) -> str:
        return only_output(name, self._result.names, f"UqResult.plot.{function}")

    def hist(self, name: str | None = None, *, level: float = 0.95, ax: Any = None, bins: Any = "auto") -> Any:
        """A histogram of an output of shape (), its mean, and the interval of the mean.

        Parameters
        ----------
        name : str, optional
            Default: the only output.
        level : float in (0, 1), dimensionless
            Probability of the interval; it is left out where the sampler has none.
        ax : matplotlib.axes.Axes, optional
        bins : int, str or sequence of edges

        Returns
        -------
        matplotlib.axes.Axes
        """
        name = self._named(name, "hist")
        y = self._result.samples(name)
        interval = None if self._result.no_interval() else self._result.confidence_interval(name, level)
        ax = plot_histogram_with_interval(y, interval=interval, ax=ax, bins=bins)
        ax.set_xlabel(self._declared.label(name))
        return ax

    def fan(
        self,
        name: str | None = None,
        along: Any = None,
        *,
        levels: Sequence[float] = (0.5, 0.8, 0.95),
        ax: Any = None,
        color: Any = "C0",
    ) -> Any:
        """A fan chart of an output of shape (n,): as `plot_fan`; from histograms where samples were not kept.

        `along` is, by default, the coordinates of the output's axis.
        """
        name = self._named(name, "fan")
        quantiles = self._result.quantile(name, tails_of(levels))
        seen = f"shape {quantiles.shape[1:]}"
        require(quantiles.ndim == 2, "UqResult.plot.fan", f"output {name!r}", "have 1 axis", seen)
        dim = self._result.dims[name][0] if along is None else ""
        ax = fan_of(quantiles, self._declared.places(dim) if along is None else along, levels, ax, color)
        self._declared.name_axis(ax.xaxis, dim)
        ax.set_ylabel(self._declared.label(name))
        return ax

    def scatter(
        self, names: Sequence[str] | None = None, *, outputs: Sequence[str] | None = None, figure: Any = None
    ) -> Any:
        """A scatter matrix of inputs and outputs of shape ().

        Parameters
        ----------
        names : sequence of str, optional
            Names of inputs and outputs. Default: all random inputs and outputs of shape () of real numbers, at most 8.
        outputs : sequence of str, optional
            Names of outputs to draw beside the inputs where `names` are not given.
        figure : matplotlib.figure.Figure, optional

        Returns
        -------
        matplotlib.figure.Figure
        """
        inputs, result = self._result.inputs, self._result
        if names is None:
            scalars = [name for name in inputs.names if getattr(inputs[name], "shape", None) == ()]
            varying = [name for name in scalars if not inputs[name].is_shared]
            if outputs is None:
                samples = {name: result.samples(name) for name in result.names}
                outputs = [name for name, y in samples.items() if y.dtype.kind in "iuf" and y.shape == ()]
            names = [*varying, *outputs][:8]
        values, categories = {}, {}
        for name in names:
            if name not in self._result.names and (labels := labels_of(inputs, name)):
                categories[name] = [str(label) for label in labels]
            y = self._result.samples(name) if name in self._result.names else inputs[name]
            values[name] = np.asarray(y.samples)
        figure = plot_scatter({self._declared.label(name): value for name, value in values.items()}, figure=figure)
        for name, texts in categories.items():
            name_places(figure.axes, list(values).index(name), len(values), texts)
        return figure

    def field(self, name: str | None = None, **options: Any) -> Any:
        """Mean and standard deviation of an output: `options` as in `plot_field`.

        Axes are drawn along their coordinates, and named with their units; the values of a map stand in its colour bars
        in the unit of the output.
        """
        name = self._named(name, "field")
        mean, dims = np.asarray(self._result.mean(name)), self._result.dims[name]
        given = {key: options[key] for key in ("points", "triangles", "labels") if options.get(key) is not None}
        mine = not given and 1 <= mean.ndim <= 2 and any(dim in self._result.coordinates for dim in dims)
        if mine:
            places = [self._declared.places(dim) for dim in dims]
            places = [np.arange(n) if at is None else at for at, n in zip(places, mean.shape, strict=True)]
            options |= {"points": places[0] if mean.ndim == 1 else (places[1], places[0])}
        figure = plot_field(mean, self._result.std(name), **options)
        if mean.ndim == 1 and not given:
            self._declared.name_axis(figure.axes[0].xaxis, dims[0])
            figure.axes[0].set_ylabel(self._declared.label(name))
        elif mine:
            self._name_map(figure, name, dims)
        return figure

    def _name_map(self, figure: Any, name: str, dims: Sequence[str]) -> None:
        """Name the axes and colour bars of the two maps of an output."""
        units = [self._result.units.get(dim) for dim in dims]
        alike = units[0] is not None and units[0] == units[1]
        maps, bars = figure.axes[:2], figure.axes[2:]
        for ax in maps:
            self._declared.name_axis(ax.xaxis, dims[1])
            self._declared.name_axis(ax.yaxis, dims[0])
            if not alike:
                ax.set_aspect("auto")  # a time and a length have no common scale
        for bar in bars:
            bar.set_ylabel(self._declared.label(name))
