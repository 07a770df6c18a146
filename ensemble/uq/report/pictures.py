"""The pictures of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble.uq.inputs.categorical import Categorical
from ensemble.uq.inputs.univariate import FrozenDistribution
from ensemble.uq.inputs.variable import Variable
from ensemble.uq.plots import fan_of, tails_of
from ensemble.uq.report.convergence import Convergence
from ensemble.uq.report.drawing import BLUE, INK, LINE, ORANGE, Drawings
from ensemble.uq.report.failures import Place, shares_in_bins
from ensemble.uq.report.influence import Influence
from ensemble.uq.report.markup import Markup, joined
from ensemble.uq.report.source import Source
from ensemble.uq.report.texts import number

__all__ = ["Pictures"]

LEVELS = (0.5, 0.8, 0.95)
MOST_MARKS = 400
MOST_CELLS = 48
MOST_NAMED = 8
MOST_BARS = 60
LEAST_SHARE = 1e-4
"""Probability of a value, as a share of the largest, below which it has no bar."""

SMALL = (2.9, 1.7)


class Pictures:
    """Draws the pictures of one page."""

    def __init__(self, source: Source) -> None:
        self._source, self._drawings = source, Drawings()

    # --- inputs
    def density(self, name: str, variable: Variable) -> Markup | None:
        """The density of an input of one number, or the probabilities of its values."""
        if variable.shape or not variable.n_germs:
            return None
        values = getattr(variable, "values", np.empty(0))
        at: Any
        heights: Any
        if isinstance(variable, Categorical):
            at, heights = np.arange(len(variable.labels)), variable.probabilities
        elif getattr(variable, "discrete", False):
            at, heights = (
                (values, variable.pmf(values))
                if values.size and isinstance(variable, FrozenDistribution)
                else (None, None)
            )
        else:
            return self._curve(name, variable)
        if at is None:
            return None
        if not isinstance(variable, Categorical):
            likely = heights >= LEAST_SHARE * heights.max()
            at, heights = at[likely], heights[likely]

        def draw(figure: Any) -> None:
            ax = figure.subplots()
            if at.size > MOST_BARS:
                ax.fill_between(at, heights, color=BLUE, alpha=0.25, linewidth=0)
                ax.plot(at, heights, color=BLUE)
                ax.set_ylim(bottom=0.0)
                ax.set_ylabel("probability")
                return
            ax.bar(at, heights, 0.8 * (np.diff(at).min() if at.size > 1 else 1.0), color=BLUE, alpha=0.8)
            if isinstance(variable, Categorical) and at.size <= 8:
                ax.set_xticks(at, [str(label)[:12] for label in variable.labels])
            ax.set_ylabel("probability")

        if at.size <= MOST_NAMED:
            names = variable.labels if isinstance(variable, Categorical) else map(number, at)
            said = ", ".join(f"{one} {number(p)}" for one, p in zip(names, heights, strict=True))
        else:
            said = f"highest at {number(at[np.argmax(heights)])}, from {number(at[0])} to {number(at[-1])}"
        return self._drawings.draw(draw, f"Probabilities of the values of the input {name}: {said}.", SMALL)

    def _curve(self, name: str, variable: Variable) -> Markup:
        x, heights = density_of(variable)

        def draw(figure: Any) -> None:
            ax = figure.subplots()
            ax.fill_between(x, heights, color=BLUE, alpha=0.25, linewidth=0)
            ax.plot(x, heights, color=BLUE)
            ax.set_ylim(bottom=0.0)
            ax.set_yticks([])
            ax.margins(x=0)
            ax.spines["left"].set_visible(False)

        label = f"Density of the input {name}, highest at {x[np.argmax(heights)]:.4g}, from {x[0]:.4g} to {x[-1]:.4g}."
        return self._drawings.draw(draw, label, SMALL)

    # --- outputs
    def output(self, name: str, level: float) -> Markup | None:
        """A histogram of a number, a fan of a line, maps of a field; None of other outputs."""
        result = self._source.result
        shape, kind = np.shape(result.mean(name)), np.asarray(result.mean(name)).dtype.kind
        if kind == "c" or (result.weights is not None and np.any(result.weights < 0.0)):
            return None
        if shape == () and self._source.kept:
            return self._histogram(name, level)
        if len(shape) == 1 and shape[0] > 1:
            return self._fan(name)
        return self._field(name) if len(shape) == 2 and min(shape) > 1 else None

    def _histogram(self, name: str, level: float) -> Markup:
        result = self._source.result

        def draw(figure: Any) -> None:
            ax = result.plot.hist(name, level=level, ax=figure.subplots())
            for line in ax.lines:
                line.set_color(INK)
            ax.get_legend().remove()
            figure.legend(loc="outside lower center")

        y = np.asarray(result.samples(name).samples)
        label = (
            f"Histogram of {name} from {y.min():.4g} to {y.max():.4g}, with a line at the mean {result.mean(name):.4g}."
        )
        return self._drawings.draw(draw, label)

    def _fan(self, name: str) -> Markup:
        result, declared = self._source.result, self._source.declared
        quantiles = np.asarray(result.quantile(name, tails_of(LEVELS)))
        dim = result.dims[name][0]

        def draw(figure: Any) -> None:
            ax = fan_of(quantiles, declared.places(dim), LEVELS, figure.subplots(), BLUE)
            declared.name_axis(ax.xaxis, dim)
            if not ax.get_xlabel():
                ax.set_xlabel("entry")
            ax.set_ylabel(declared.label(name))

        label = f"Fan chart of {name} along {dim}: median {quantiles[0].min():.4g} to {quantiles[0].max():.4g}."
        return self._drawings.draw(draw, label)

    def _field(self, name: str) -> Markup:
        result, declared = self._source.result, self._source.declared
        mean, std = np.asarray(result.mean(name)), np.asarray(result.std(name))
        every = [slice(None, None, -(-n // MOST_CELLS)) for n in mean.shape]
        places = [declared.places(dim) for dim in result.dims[name]]
        rows, columns = (
            np.arange(n)[cut] if at is None else at[cut] for at, n, cut in zip(places, mean.shape, every, strict=True)
        )

        def maps(values: np.ndarray, title: str, colors: str) -> Markup:
            def draw(figure: Any) -> None:
                ax = figure.subplots()
                shown = ax.pcolormesh(columns, rows, values[tuple(every)], cmap=colors, shading="nearest",
                                      edgecolor="face", linewidth=0.4)  # fmt: skip
                bar = figure.colorbar(shown, ax=ax)
                bar.set_label(declared.label(name))
                ax.set_title(title)
                ax.set_xlabel(declared.label(result.dims[name][1]))
                ax.set_ylabel(declared.label(result.dims[name][0]))

            label = f"Map of {name}: {title} {values.min():.4g} to {values.max():.4g}."
            return self._drawings.draw(draw, label)

        return joined((maps(mean, "mean", "viridis"), maps(std, "standard deviation", "magma")))

    def convergence(self, found: Convergence, level: float) -> Markup:
        """The mean and its interval against the number of samples."""

        def draw(figure: Any) -> None:
            ax = figure.subplots()
            x = np.log2(found.counts)
            if np.isfinite(found.low).any():
                ax.fill_between(x, found.low, found.high, color=BLUE, alpha=0.25, linewidth=0,
                                label=f"{100 * level:g} % interval")  # fmt: skip
            ax.plot(x, found.mean, "o-", color=BLUE, markersize=4, label="mean")
            ax.set_xticks(x, [f"{n:,}" for n in found.counts])
            ax.set_xlabel("samples")
            ax.set_ylabel(found.name)
            ax.legend()

        label = (
            f"Mean of {found.name} from {found.counts[0]:,} to {found.counts[-1]:,} samples: last {found.mean[-1]:.5g}."
        )
        return self._drawings.draw(draw, label)

    # --- inputs and outputs
    def indices(self, found: Influence) -> Markup:
        """Bars of the indices of an output, the largest first, at most twelve inputs."""
        order = np.argsort(-found.total, kind="stable")[:12]

        def draw(figure: Any) -> None:
            ax = figure.subplots()
            at = np.arange(order.size)
            ax.barh(at - 0.2, found.first[order], 0.36, color=BLUE, label="first index: the input alone")
            ax.barh(at + 0.2, found.total[order], 0.36, color=ORANGE, label="total index: with interactions")
            ax.set_yticks(at, [found.inputs[k] for k in order])
            ax.invert_yaxis()
            ax.set_xlabel("part of the variance")
            ax.set_xlim(0.0, max(1.0, 1.02 * float(found.total.max())))
            figure.legend(loc="outside lower center")

        largest = ", ".join(f"{found.inputs[k]} {found.total[k]:.2f}" for k in order[:3])
        size = (4.8, 1.5 + 0.36 * order.size)
        return self._drawings.draw(draw, f"Sobol' indices of {found.name}; largest total indices: {largest}.", size)

    def scatter(self, name: str, column: str) -> Markup:
        """One output against one number of the inputs."""
        result = self._source.result
        x = next(one for one in self._source.columns if one.name == column).values[result.ids]
        y = np.asarray(result.samples(name).samples)
        some = slice(None, None, -(-y.size // MOST_MARKS))

        def draw(figure: Any) -> None:
            ax = figure.subplots()
            ax.scatter(x[some], y[some], s=7, color=BLUE, alpha=0.6, linewidths=0)
            ax.set_xlabel(column)
            ax.set_ylabel(self._source.declared.label(name))

        return self._drawings.draw(draw, f"{name} against {column}, a mark for each sample.", (4.2, 3.0))

    # --- failures
    def failures(self, place: Place) -> Markup:
        """The share of failed samples along one number of the inputs."""
        edges, shares = shares_in_bins(place)

        def draw(figure: Any) -> None:
            ax = figure.subplots()
            ax.stairs(np.nan_to_num(100.0 * shares), edges, fill=True, color=ORANGE, alpha=0.85)
            ax.set_xlabel(place.column.name)
            ax.set_ylabel("failed, %")
            ax.set_ylim(bottom=0.0)
            if place.column.labels:
                ax.set_xticks(range(len(place.column.labels)), place.column.labels)

        worst = int(np.nanargmax(shares))
        where = f"{edges[worst]:.4g} and {edges[worst + 1]:.4g}"
        label = f"Share of failed samples along {place.column.name}: most, {shares[worst]:.0%}, between {where}."
        return self._drawings.draw(draw, label, (4.2, 2.6))

    def failure_map(self, places: Sequence[Place]) -> Markup:
        """Failed samples and others in the plane of two numbers of the inputs."""
        first, second = (place.column for place in places[:2])
        result = self._source.result
        bad, good = np.flatnonzero(result.failed), result.ids
        marks = [(good[:: max(1, -(-good.size // MOST_MARKS))], "o", LINE, 6, "others")]
        marks += [(bad[:: max(1, -(-bad.size // MOST_MARKS))], "x", ORANGE, 22, "failed")]

        def draw(figure: Any) -> None:
            ax = figure.subplots()
            for ids, marker, color, size, label in marks:
                width = 0 if marker == "o" else 1.4
                ax.scatter(first.values[ids], second.values[ids], s=size, marker=marker, color=color,
                           linewidths=width, alpha=0.9, label=label)  # fmt: skip
            ax.set_xlabel(first.name)
            ax.set_ylabel(second.name)
            figure.legend(loc="outside upper center", ncols=2)

        label = f"Failed samples, crosses, and others, dots, in the plane of {first.name} and {second.name}."
        return self._drawings.draw(draw, label, (4.2, 3.4))


def density_of(variable: Variable) -> tuple[np.ndarray, np.ndarray]:
    """Places and density of an input of one number, between its quantiles of 0.001 and 0.999.

    Without a density of its own, by differences of the inverse distribution function.
    """
    ends = variable.from_uniform(np.array([[0.001, 0.999]]))
    density = getattr(getattr(variable, "frozen", variable), "pdf", None)
    if density is not None and ends[0] < ends[1]:
        x = np.linspace(ends[0], ends[1], 201)
        with np.errstate(all="ignore"):
            heights = np.asarray(density(x), np.float64)
        if np.isfinite(heights).all():
            return x, heights
    p = np.linspace(0.001, 0.999, 200)
    x = np.asarray(variable.from_uniform(p[None]), np.float64)
    edges = np.linspace(x[0], x[-1], 61) if x[-1] > x[0] else np.array([x[0] - 0.5, x[0] + 0.5])
    many = np.asarray(variable.from_uniform(((np.arange(4096) + 0.5) / 4096.0)[None]), np.float64)
    heights, _ = np.histogram(many, edges, density=True)
    return 0.5 * (edges[1:] + edges[:-1]), heights
