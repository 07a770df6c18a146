"""Results of sensitivity studies: indices by output name, with intervals and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._check import message, one_of
from ensemble._optional import optional
from ensemble.uq.sensitivity.row_sums import Estimate, RowSums
from ensemble.uq.sensitivity.sobol_sums import PairSums
from ensemble.uq.store.axes import default_names
from ensemble.uq.study.dataset import axes_of
from ensemble.uq.study.declared import Outputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from xarray import Dataset

__all__ = ["MorrisEffects", "SensitivityIndices", "ShapleyEffects", "SobolIndices"]


class SensitivityIndices:
    """Indices of every output, their intervals, and what they could be without the failures.

    Attributes
    ----------
    inputs : tuple of str
        Names of the inputs, in the order of the first axis of every index.
    outputs : tuple of str
    level : float, dimensionless
        Probability of the intervals.
    n_rows, n_used : int
        Rows of samples in the study; those whose samples all succeeded, from which the indices are made.
    n_samples, n_failed : int
        Samples of the study; those that failed.
    seed : int
        Seed of the draw.
    notes : tuple of str
        What a reader must know, such as outputs that do not vary.
    """

    kinds: tuple[str, ...] = ()

    def __init__(
        self,
        inputs: tuple[str, ...],
        shapes: Mapping[str, tuple[int, ...]],
        sums: Mapping[str, RowSums],
        *,
        level: float,
        n_failed: int = 0,
        seed: int | None = None,
        declared: Outputs | None = None,
        dims: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.inputs = inputs
        self.outputs = tuple(shapes)
        self.level = level
        self.seed = seed
        self._declared = Outputs() if declared is None else declared
        self._dims = dict(dims or {name: default_names(name, len(shape)) for name, shape in shapes.items()})
        self.n_failed = n_failed
        self._values: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in self.kinds}
        self._half_widths: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in self.kinds}
        self._bounds: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in self.kinds}
        self._moments: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        notes = []
        for name, shape in shapes.items():
            one = sums[name]
            self.n_rows, self.n_used = one.rows_seen, one.n_used
            self.n_samples = one.rows_seen * one.n_parts
            estimates = one.estimates(len(self.kinds), level)
            for kind, estimate in zip(self.kinds, estimates, strict=True):
                self._set(kind, name, (len(inputs), *shape), estimate)
            mean, variance = one.moments()
            self._moments[name] = (mean.reshape(shape), variance.reshape(shape))
            notes += _constant_note(name, estimates[0].value)
        if self.n_used < self.n_rows:
            notes.insert(0, self._failure_note())
        self.notes = tuple(notes)

    def _set(self, kind: str, name: str, shape: tuple[int, ...], estimate: Estimate) -> None:
        self._values[kind][name] = estimate.value.reshape(shape)
        self._half_widths[kind][name] = estimate.half_width.reshape(shape)
        if self.n_used < self.n_rows:
            self._bounds[kind][name] = estimate.bounds.reshape(2, *shape)

    def _failure_note(self) -> str:
        rows = f"{self.n_rows - self.n_used} of {self.n_rows} rows are left out"
        return f"{self.n_failed} of {self.n_samples} samples failed: {rows}. `bounds` has the largest possible effect."

    def _checked(self, name: str, kind: str | None, method: str) -> str:
        function = f"{type(self).__name__}.{method}"
        if name not in self.outputs:
            raise KeyError(message(function, "name", f"be one of {', '.join(self.outputs)}", repr(name)))
        return self.kinds[0] if kind is None else one_of(kind, self.kinds, function, "kind")

    def interval(self, name: str, kind: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The confidence interval of an output's indices, from the spread of the replicates.

        Parameters
        ----------
        name : str
            Name of the output.
        kind : str, optional
            "first" or "total" of Sobol' indices. Default: the first kind.

        Returns
        -------
        low, high : ndarray, shape (n_inputs, *shape), dimensionless
            NaN for constant outputs, and where there is one replicate.

        Raises
        ------
        KeyError, ValueError
            If there is no such output or kind.
        """
        kind = self._checked(name, kind, "interval")
        value, half_width = self._values[kind][name], self._half_widths[kind][name]
        return value - half_width, value + half_width

    def bounds(self, name: str, kind: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """What an output's indices could be if the failed rows had values in the output's observed range.

        Parameters
        ----------
        name, kind
            As `interval`.

        Returns
        -------
        low, high : ndarray, shape (n_inputs, *shape), dimensionless
            An enclosure: numerator and variance are bounded each on its own. Without failures, the indices twice.

        Raises
        ------
        KeyError, ValueError
            If there is no such output or kind.
        """
        kind = self._checked(name, kind, "bounds")
        value = self._values[kind][name]
        low, high = self._bounds[kind].get(name, (value, value))
        return low, high

    def mean(self, name: str) -> np.ndarray:
        """The mean of an output over the independent points of the rows in use, shape `shape`."""
        self._checked(name, None, "mean")
        return self._moments[name][0]

    def std(self, name: str) -> np.ndarray:
        """The standard deviation of an output over the independent points of the rows in use, shape `shape`."""
        self._checked(name, None, "std")
        deviation: np.ndarray = np.sqrt(self._moments[name][1])
        return deviation

    def aggregated(self, name: str, kind: str | None = None) -> np.ndarray:
        """The indices of an output as a whole: the mean over its entries, weighted by their variances [1]_.

        Returns
        -------
        ndarray, shape (n_inputs,), dimensionless

        References
        ----------
        .. [1] Gamboa, Janon, Klein, Lagnoux (2014), Electronic Journal of Statistics 8, 575-603, eq. 6.
        """
        kind = self._checked(name, kind, "aggregated")
        value = self._values[kind][name].reshape(len(self.inputs), -1)
        weights = np.where(np.isnan(value[0]), 0.0, self._moments[name][1].ravel())
        with np.errstate(invalid="ignore"):
            result: np.ndarray = np.nansum(value * weights, axis=1) / np.sum(weights)
        return result

    def to_xarray(self) -> Dataset:
        """All indices as an `xarray.Dataset`.

        Returns
        -------
        xarray.Dataset
            Variables ``NAME_KIND``, ``NAME_KIND_low`` and ``NAME_KIND_high`` with dimension ``input`` before those of
            the output; attributes of the study.
        """
        xarray = optional("xarray", "to_xarray")

        variables: dict[str, Any] = {}
        for kind in self.kinds:
            for name, value in self._values[kind].items():
                dims = ("input", *self._dims[name])
                low, high = self.interval(name, kind)
                variables |= {f"{name}_{kind}": (dims, value)}
                variables |= {f"{name}_{kind}_low": (dims, low), f"{name}_{kind}_high": (dims, high)}
        attributes: dict[str, Any] = {
            "level": self.level,
            "n_rows": self.n_rows,
            "n_used": self.n_used,
            "n_failed": self.n_failed,
        }
        attributes |= {} if self.seed is None else {"seed": self.seed}
        attributes |= {"notes": list(self.notes)} if self.notes else {}
        axes = axes_of(self._declared.coordinates, self._declared.units)
        made: Dataset = xarray.Dataset(variables, coords={"input": list(self.inputs), **axes}, attrs=attributes)
        return made

    def plot(self, name: str | None = None, *, along: Any = None, ax: Axes | None = None) -> Axes:
        """Draw the indices of one output as bars with their intervals; of a field, along its entries as lines.

        Parameters
        ----------
        name : str, optional
            Default: the only output.
        along : array, shape (n,), optional
            Coordinates of the entries of an output of shape (n,). Default: those of `Outputs`, or 0, 1, 2, ...
        ax : matplotlib.axes.Axes, optional
            Default: the current ones.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ValueError
            If there are several outputs and no `name`, or the output has more than one axis.
        """
        from ensemble.uq.plots import only_output
        from ensemble.uq.study_plots import plot_along

        name = only_output(name, self.outputs, f"{type(self).__name__}.plot")
        self._checked(name, None, "plot")
        values = {kind: (self._values[kind][name], self._half_widths[kind][name]) for kind in self.kinds}
        axes: Axes = plot_along(values, self.inputs, along, ax, self._declared, self._dims[name])
        return axes

    def _head(self) -> str:
        rows = f"{self.n_used} of {self.n_rows} rows, {self.n_samples} samples"
        return f"{type(self).__name__}: {rows}, intervals of {100 * self.level:g} %"

    def __repr__(self) -> str:
        lines = [self._head()]
        width = max(len(name) for name in self.inputs)
        for name in self.outputs:
            shape = self._moments[name][0].shape
            lines.append(f"{name}" + (f", shape {shape}: means over entries, weighted by variance" if shape else ""))
            lines.append(" " * (width + 2) + "".join(f"  {kind:17}" for kind in self.kinds).rstrip())
            for i, one in enumerate(self.inputs):
                cells = "".join(f"  {self._cell(kind, name, i):17}" for kind in self.kinds)
                lines.append(f"  {one:{width}}{cells}".rstrip())
        return "\n".join([*lines, *self.notes])

    def _cell(self, kind: str, name: str, i: int) -> str:
        value = self._values[kind][name]
        if value.ndim > 1:
            return f"{self.aggregated(name, kind)[i]:.4f}"
        half_width = self._half_widths[kind][name][i]
        return f"{value[i]:.4f}" + ("" if np.isnan(half_width) else f" +- {half_width:.4f}")


def _square(rows: np.ndarray, places: list[tuple[int, int]], shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of pairs ``(n_pairs, n_outputs)`` as a symmetric table ``(n_inputs, *shape)`` of inputs by inputs."""
    table = np.full((shape[0], shape[0], rows.shape[1]), np.nan)
    for row, (i, j) in zip(rows, places, strict=True):
        table[i, j] = table[j, i] = row
    return table.reshape(shape[0], *shape)


def _constant_note(name: str, value: np.ndarray) -> list[str]:
    constant = int(np.sum(np.isnan(value[0])))
    if constant == 0:
        return []
    what = f"output {name!r} is" if value.shape[1] == 1 else f"{constant} of {value.shape[1]} entries of {name!r} are"
    return [f"{what} constant: no index is defined, NaN stands for it."]


class SobolIndices(SensitivityIndices):
    """First and total Sobol' indices of every output, by `sobol_indices`.

    Attributes
    ----------
    first, total : dict of str to ndarray
        By output name, shape (n_inputs, \\*shape), dimensionless. ``first[name][i]`` is the part of the variance that
        input i explains alone, ``total[name][i]`` the part that would be left if all others were known.
    """

    __doc__ += (SensitivityIndices.__doc__ or "").partition("----------\n")[2]
    kinds = ("first", "total")

    def __init__(
        self,
        inputs: tuple[str, ...],
        shapes: Mapping[str, tuple[int, ...]],
        sums: Mapping[str, RowSums],
        **options: Any,
    ) -> None:
        super().__init__(inputs, shapes, sums, **options)
        self._pairs: dict[str, dict[str, np.ndarray]] = {}
        for name, shape in shapes.items():
            one = sums[name]
            if isinstance(one, PairSums):
                found = one.pairs(self.level)
                rows = {"value": found.value, "half_width": found.half_width, "low": found.bounds[0]}
                rows["high"] = found.bounds[1]
                self._pairs[name] = {key: _square(row, one.places, (len(inputs), *shape)) for key, row in rows.items()}

    @property
    def second(self) -> dict[str, np.ndarray]:
        """The parts of the variance that pairs of inputs explain beyond each alone, by output name.

        Shape (n_inputs, n_inputs, \\*shape), dimensionless, symmetric; NaN on the diagonal and for constant outputs.

        Raises
        ------
        AttributeError
            If `sobol_indices` was called without ``pairs=True``.
        """
        if not self._pairs:
            raise AttributeError("SobolIndices: second is made by sobol_indices(..., pairs=True).")
        return {name: pair["value"] for name, pair in self._pairs.items()}

    def interval(self, name: str, kind: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        if kind != "second" or not self._pairs:
            return super().interval(name, kind)
        self._checked(name, None, "interval")
        value = self.second[name]
        half_width = self._pairs[name]["half_width"]
        return value - half_width, value + half_width

    def bounds(self, name: str, kind: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        if kind != "second" or not self._pairs:
            return super().bounds(name, kind)
        self._checked(name, None, "bounds")
        return self._pairs[name]["low"], self._pairs[name]["high"]

    @property
    def first(self) -> dict[str, np.ndarray]:
        """First indices by output name, shape (n_inputs, \\*shape)."""
        return self._values["first"]

    @property
    def total(self) -> dict[str, np.ndarray]:
        """Total indices by output name, shape (n_inputs, \\*shape)."""
        return self._values["total"]


class ShapleyEffects(SensitivityIndices):
    """Shapley effects of every output, by `shapley_effects`: parts of the variance that add up to 1.

    Attributes
    ----------
    effects : dict of str to ndarray
        By output name, shape (n_inputs, \\*shape), dimensionless.
    """

    __doc__ += (SensitivityIndices.__doc__ or "").partition("----------\n")[2]
    kinds = ("effect",)

    @property
    def effects(self) -> dict[str, np.ndarray]:
        """Shapley effects by output name, shape (n_inputs, \\*shape)."""
        return self._values["effect"]


class MorrisEffects(SensitivityIndices):
    """Elementary effects of every output, by `morris`, in its unit.

    Attributes
    ----------
    mu_star, mu, sigma : dict of str to ndarray
        By output name, shape (n_inputs, \\*shape), units of the output: the mean of the sizes of the effects, their
        mean, and their standard deviation.
    """

    __doc__ += (SensitivityIndices.__doc__ or "").partition("----------\n")[2]
    kinds = ("mu_star", "mu", "sigma")

    @property
    def mu_star(self) -> dict[str, np.ndarray]:
        """Means of the sizes of the effects by output name, shape (n_inputs, \\*shape)."""
        return self._values["mu_star"]

    @property
    def mu(self) -> dict[str, np.ndarray]:
        """Means of the effects by output name, shape (n_inputs, \\*shape)."""
        return self._values["mu"]

    @property
    def sigma(self) -> dict[str, np.ndarray]:
        """Standard deviations of the effects by output name, shape (n_inputs, \\*shape)."""
        return self._values["sigma"]
