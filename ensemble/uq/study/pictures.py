"""Pictures of a result: ``result.plot.hist("tip")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._check import message, require
from ensemble.uq.study.dataset import input_columns

if TYPE_CHECKING:
    from ensemble.uq.study.result import UqResult

__all__ = ["Pictures"]

MOST_SCATTERED = 8
"""Rows of a scatter matrix."""


class Pictures:
    """What can be drawn of a result; matplotlib is imported on use. Made by ``result.plot``."""

    def __init__(self, result: UqResult) -> None:
        self._result = result

    def _real(self, name: str | None, function: str, ndims: tuple[int, ...], instead: str) -> str:
        """An output of so many axes; the only one or the first where none is named."""
        result = self._result
        found = result.names[0] if name is None and result.names else name
        shape = np.shape(result.mean(found))  # type: ignore[arg-type]
        if np.asarray(result.mean(found)).dtype.kind == "c":  # type: ignore[arg-type]
            raise TypeError(message(f"plot.{function}", f"output {found!r}", "be real", "complex numbers"))
        wanted = " or ".join(("a number", "one axis", "two axes")[k] for k in ndims)
        require(
            len(shape) in ndims, f"plot.{function}", f"output {found!r}", f"have {wanted}", f"shape {shape}", instead
        )
        return str(found)

    def hist(self, name: str | None = None, *, ax: Any = None, level: float = 0.95, **style: Any) -> Any:
        """Draw the histogram of a number, its mean and the interval of the mean where there is one.

        Parameters
        ----------
        name : str, optional
            Default: the first output.
        ax : matplotlib.axes.Axes, optional
            Default: the current ones.
        level : float in (0, 1), dimensionless
            Of the interval.
        **style
            Passed on to ``ax.stairs``; also `bins`.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ValueError, TypeError
            If there is no such output, or it is an array or complex; if samples were not kept.
        """
        from ensemble.uq.plots import plot_histogram_with_interval

        found = self._real(name, "hist", (0,), "Use plot.fan or plot.field.")
        result = self._result
        interval = None if result.no_interval() else tuple(map(float, result.confidence_interval(found, level)))
        ax = plot_histogram_with_interval(result.samples(found), interval=interval, ax=ax, **style)  # type: ignore[arg-type]
        ax.set_xlabel(found)
        return ax

    def fan(self, name: str | None = None, along: Any = None, *, levels: Sequence[float] = (0.5, 0.8, 0.95),
            ax: Any = None, color: Any = "C0") -> Any:  # fmt: skip
        """Draw the fan chart of an array of one axis: its median and central ranges of growing probability.

        Parameters
        ----------
        name : str, optional
            Default: the first output.
        along : array, shape (n,), optional
            Coordinates of the entries. Default: 0, 1, 2, ...
        levels : sequence of float in (0, 1), dimensionless
        ax : matplotlib.axes.Axes, optional
        color : matplotlib color

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ValueError, TypeError
            As `hist`.
        """
        from ensemble.uq.plots import plot_fan

        found = self._real(name, "fan", (1,), "Use plot.hist for numbers, plot.field for maps.")
        ax = plot_fan(self._result.samples(found), along, levels=levels, ax=ax, color=color)
        ax.set_ylabel(found)
        return ax

    def scatter(self, names: Sequence[str] | None = None, *, figure: Any = None, size: float = 4.0) -> Any:
        """Draw the scatter matrix of inputs and outputs that are numbers.

        Parameters
        ----------
        names : sequence of str, optional
            Inputs and outputs. Default: all numbers, at most 8 of them.
        figure : matplotlib.figure.Figure, optional
        size : float, points squared
            Of the markers.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ValueError
            If a name is no number of the study, or there are fewer than two.
        """
        from ensemble.uq.plots import plot_scatter

        result = self._result
        found = {name: np.asarray(column) for name, column in input_columns(result.inputs).items() if column.ndim == 1}
        varying = {name: column for name, column in found.items() if column.size and np.any(column != column[0])}
        numbers = [name for name in result.names if np.ndim(result.mean(name)) == 0]
        varying |= {name: np.asarray(result.samples(name).samples) for name in numbers}
        for name in names or ():
            wanted = f"be some of {', '.join(varying)}"
            require(name in varying, "plot.scatter", "names", wanted, repr(name))
        chosen = list(names) if names is not None else [*varying][-MOST_SCATTERED:]
        return plot_scatter({name: varying[name] for name in chosen}, figure=figure, size=size)

    def field(self, name: str | None = None, *, points: Any = None, triangles: Any = None, figure: Any = None,
              labels: Any = None) -> Any:  # fmt: skip
        """Draw mean and standard deviation of an array: a line with a band, or two maps.

        Parameters
        ----------
        name : str, optional
            Default: the first output.
        points, triangles, figure, labels : optional
            Coordinates: of a line ``(n,)``; of scattered values ``(n, 2)``, with the triangles of a mesh or without;
            of a grid the pair of its columns' and rows' coordinates.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ValueError, TypeError
            As `hist`.
        """
        from ensemble.uq.plots import plot_field

        found = self._real(name, "field", (1, 2), "Use plot.hist.")
        result = self._result
        return plot_field(
            result.mean(found), result.std(found), points=points, triangles=triangles, figure=figure, labels=labels
        )
