"""`ChaosExpansion`: outputs as polynomials of the inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from ensemble._check import message, one_of, real_array, require
from ensemble.scalar import Ensemble
from ensemble.uq.inputs.samples import InputSamples, values_of
from ensemble.uq.sensitivity.chaos_basis import Basis
from ensemble.uq.study.declared import Outputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ChaosExpansion"]

KINDS = ("first", "total", "mean", "std")
"""Numbers of an output that have intervals."""


class ChaosExpansion:
    """Outputs as sums of orthonormal polynomials of the inputs, made by `chaos`.

    Called with `InputSamples` it gives a dict of Ensembles, as a model does: it may stand for the model anywhere.

    Attributes
    ----------
    inputs : tuple of str
        Names of the inputs that are not constant, in their order.
    outputs : tuple of str
    indices : ndarray of int, shape (n_terms, n_germs)
        Degree of each term in each germ; the first term is the constant.
    coefficients : dict of str to ndarray, shape (n_terms, \\*shape)
        By output name, in the unit of the output.
    loo_error : dict of str to ndarray, shape `shape`, dimensionless
        Leave-one-out error: mean square of the errors of predictions by fits without the sample, over the variance of
        the samples. NaN for quadrature, and for outputs that are constant.
    n_samples, n_terms : int
    condition_number : float, dimensionless
        In the 1-norm, of the triangular factor of the design or of the Gram matrix of a quadrature.
    method : {"regression", "sparse", "quadrature"}
    notes : tuple of str
    """

    def __init__(
        self,
        inputs: Any,
        basis: Basis,
        shapes: Mapping[str, tuple[int, ...]],
        coefficients: Mapping[str, np.ndarray],
        errors: Mapping[str, np.ndarray],
        *,
        method: str,
        n_samples: int,
        condition_number: float,
        notes: tuple[str, ...] = (),
        declared: Outputs | None = None,
        dims: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.inputs = tuple(name for name, part in inputs.germs.items() if part.stop > part.start)
        self.outputs = tuple(shapes)
        self.indices = basis.indices
        self.method = method
        self.n_samples = n_samples
        self.n_terms = basis.n_terms
        self.condition_number = condition_number
        self.notes = notes
        self.coefficients = {name: coefficients[name].reshape(-1, *shape) for name, shape in shapes.items()}
        self.loo_error = {name: errors[name].reshape(shape) for name, shape in shapes.items()}
        self._basis = basis
        self._inputs = inputs
        self._intervals: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
        self._declared, self._dims = Outputs() if declared is None else declared, dict(dims or {})

    def _named(self, name: str, method: str) -> np.ndarray:
        if name not in self.coefficients:
            wanted = f"be one of {', '.join(self.outputs)}"
            raise KeyError(message(f"ChaosExpansion.{method}", "name", wanted, repr(name)))
        return self.coefficients[name]

    def mean(self, name: str) -> np.ndarray:
        """The mean of an output: the coefficient of the constant, shape `shape`."""
        mean: np.ndarray = self._named(name, "mean")[0]
        return mean

    def var(self, name: str) -> np.ndarray:
        """The variance of an output: the sum of the squares of all further coefficients, shape `shape`."""
        rest = self._named(name, "var")[1:]
        variance: np.ndarray = np.sum(rest * rest, axis=0)
        return variance

    def std(self, name: str) -> np.ndarray:
        """The standard deviation of an output, shape `shape`."""
        self._named(name, "std")
        deviation: np.ndarray = np.sqrt(self.var(name))
        return deviation

    @property
    def first(self) -> dict[str, np.ndarray]:
        """First Sobol' indices by output name, shape (n_inputs, \\*shape), dimensionless [1]_; NaN where constant.

        Raises
        ------
        ValueError
            If different inputs are correlated; components of one may be.

        References
        ----------
        .. [1] Sudret (2008), Reliability Engineering and System Safety 93(7), 964-979, eq. 39.
        """
        return {name: self._of_kind(name, "first") for name in self.outputs}

    @property
    def total(self) -> dict[str, np.ndarray]:
        """Total Sobol' indices by output name, shape (n_inputs, \\*shape), dimensionless; NaN for constant outputs.

        Raises
        ------
        ValueError
            If different inputs are correlated; components of one may be.
        """
        return {name: self._of_kind(name, "total") for name in self.outputs}

    @property
    def second(self) -> dict[str, np.ndarray]:
        """The parts of the variance that pairs of inputs explain beyond each alone, by output name.

        Shape (n_inputs, n_inputs, \\*shape), dimensionless, symmetric; NaN on the diagonal and for constant outputs.

        Raises
        ------
        ValueError
            If different inputs are correlated; components of one may be.
        """
        groups = self._groups()
        n, pairs = len(groups), np.sum(groups, axis=0) == 2
        both = (groups[:, None] & groups[None] & pairs).reshape(n * n, -1)
        found = {}
        for name in self.outputs:
            shares = self._shares(name, both)
            shares = shares.reshape(n, n, *shares.shape[1:])
            shares[np.arange(n), np.arange(n)] = np.nan
            found[name] = shares
        return found

    def closed(self, name: str, inputs: Any) -> np.ndarray:
        """The part of an output's variance that some inputs explain together, alone and with each other.

        Parameters
        ----------
        name : str
            Name of the output.
        inputs : sequence of str
            Names of inputs.

        Returns
        -------
        ndarray, shape `shape`, dimensionless
            The closed Sobol' index; NaN for constant outputs.

        Raises
        ------
        KeyError, ValueError
            If there is no such output or input; if different inputs are correlated.
        """
        self._named(name, "closed")
        names = [inputs] if isinstance(inputs, str) else list(inputs)
        unknown = [one for one in names if one not in self.inputs]
        if unknown:
            wanted = f"be among {', '.join(self.inputs)}"
            raise KeyError(message("ChaosExpansion.closed", "inputs", wanted, ", ".join(map(repr, unknown))))
        groups = self._groups()
        others = np.array([one not in names for one in self.inputs])
        chosen = np.any(groups, axis=0) & ~np.any(groups[others], axis=0)
        share: np.ndarray = self._shares(name, chosen[None])[0]
        return share

    def _of_kind(self, name: str, kind: str) -> np.ndarray:
        """Return the mean, the deviation, or the first or total indices of an output, as `kind` says."""
        if kind in ("mean", "std"):
            value: np.ndarray = getattr(self, kind)(name)
            return value
        groups = self._groups()
        return self._shares(name, groups if kind == "total" else groups & (np.sum(groups, axis=0) == 1))

    def set_intervals(
        self, resampled: Iterable[Mapping[str, np.ndarray]], missed: Mapping[str, np.ndarray], level: float
    ) -> None:
        """Take intervals from the spread of the same numbers with coefficients of resamples, and from what is missed.

        `missed` has the variance that the expansion of each entry misses, in the unit of the output squared. It may
        belong to any of the inputs, so that an index is between those of none and of all of it.
        """
        kinds = KINDS if not self._inputs.copula.between else ("mean", "std")
        wanted = [(name, kind) for name in self.outputs for kind in kinds]
        sums = {each: np.zeros((2, *self._of_kind(*each).shape)) for each in wanted}
        count, own = 0, self.coefficients
        for coefficients in resampled:
            count += 1
            self.coefficients = {name: coefficients[name].reshape(own[name].shape) for name in own}
            for each in wanted:
                value = self._of_kind(*each)
                sums[each] += value, value * value
            self.coefficients = own
        factor = float(ndtri(0.5 + 0.5 * level))
        for (name, kind), (total, squares) in sums.items():
            variance = np.maximum(squares - total * total / count, 0.0) / max(count - 1, 1)
            half = factor * np.sqrt(variance) if count > 1 else np.full_like(total, np.nan)
            low, high = self._with_missed(name, kind, missed[name].reshape(own[name].shape[1:]))
            self._intervals[name, kind] = low - half, high + half

    def _with_missed(self, name: str, kind: str, missed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ends between which a number is, whatever part of the variance `missed` belongs to it."""
        value, variance = self._of_kind(name, kind), self.var(name)
        if kind == "mean":
            return value, value
        if kind == "std":
            return np.where(np.isnan(missed), np.nan, value), np.sqrt(variance + missed)
        with np.errstate(invalid="ignore"):  # 0 / 0 of constant outputs
            known = variance / (variance + missed)
        return value * known, value * known + (1.0 - known)

    def interval(self, name: str, kind: str = "first") -> tuple[np.ndarray, np.ndarray]:
        """The interval of an output's index, mean or deviation, from bootstrap resamples and what the expansion misses.

        Parameters
        ----------
        name : str
            Name of the output.
        kind : {"first", "total", "mean", "std"}

        Returns
        -------
        low, high : ndarray, shape (n_inputs, *shape) of indices, else `shape`
            They hold what is uncertain for lack of samples, and the variance that the polynomials miss, which may
            belong to any input; so the value is not in the middle. NaN where there are as many terms as samples.

        Raises
        ------
        KeyError, ValueError
            If there is no such output or kind; if `chaos` was called without `n_resamples`.
        """
        self._named(name, "interval")
        one_of(kind, KINDS, "ChaosExpansion.interval", "kind")
        known = (name, kind) in self._intervals
        require(known, "ChaosExpansion.interval", "chaos", "be called with n_resamples", "none", "100 are usual.")
        low, high = self._intervals[name, kind]
        return low.copy(), high.copy()

    def _groups(self) -> np.ndarray:
        """Which inputs take part in each term."""
        n_pairs = len(self._inputs.copula.between)
        advice = "uq.shapley_effects shares the variance out among dependent inputs."
        seen = f"{n_pairs} correlated pair{'s' if n_pairs > 1 else ''}"
        require(n_pairs == 0, "ChaosExpansion", "inputs", "be independent for Sobol' indices", seen, advice)
        return self._basis.groups()

    def _shares(self, name: str, groups: np.ndarray) -> np.ndarray:
        """The parts of the variance that some terms have."""
        coefficients = self.coefficients[name]
        squares = coefficients.reshape(self.n_terms, -1) ** 2
        variance = np.sum(squares[1:], axis=0)
        variance[variance <= squares[0] * (64.0 * np.finfo(float).eps) ** 2] = np.nan
        shares: np.ndarray = np.stack([np.sum(squares[group], axis=0) for group in groups]) / variance
        return shares.reshape(len(groups), *coefficients.shape[1:])

    def __call__(self, samples: Any) -> dict[str, Ensemble]:
        """The outputs at new samples of the inputs, as a model gives them: the same as `predict`."""
        return self.predict(samples)

    def predict(self, samples: Any) -> dict[str, Ensemble]:
        """The outputs at new samples of the inputs.

        Parameters
        ----------
        samples : InputSamples, or array, shape (n_samples, n_germs)
            An array holds independent standard normal germs, as of ``inputs.from_normal``. Polynomials of germs
            (correlated inputs, random fields, ``basis="hermite"``) need them: of `InputSamples` they are found from the
            values, which discrete distributions do not allow.

        Returns
        -------
        dict of str to Ensemble, shape `shape`

        Raises
        ------
        ValueError
            If the expansion is one in germs, `samples` are values, and an input is discrete.
        """
        germs = None
        if not isinstance(samples, InputSamples):
            germs = real_array(
                samples, "ChaosExpansion.predict", "samples", "be InputSamples or an array of normal germs"
            )
            samples = self._inputs.from_normal(germs)
        elif self._basis.needs_germs:
            germs = self._germs_of(samples)
        design = self._basis.evaluate(samples, germs)
        found = {}
        for name, coefficients in self.coefficients.items():
            values = coefficients.reshape(self.n_terms, -1).T @ design
            found[name] = Ensemble(values.reshape(*coefficients.shape[1:], samples.n_samples))
        return found

    def _germs_of(self, samples: InputSamples) -> np.ndarray:
        """The independent normal germs of values, shape (n_samples, n_germs)."""
        inputs = self._inputs.variables.items()
        discrete = [name for name, v in inputs if any(part.breaks().size for part in v.components() or (v,))]
        advice = "Draw germs z, and give them here and to inputs.from_normal(z)."
        wanted = "be an array of normal germs for an expansion in germs of a discrete input"
        require(not discrete, "ChaosExpansion.predict", "samples", wanted, f"values of {', '.join(discrete)}", advice)
        germs: np.ndarray = self._inputs.to_normal(values_of(samples))
        return germs

    def plot(self, name: str | None = None, *, along: Any = None, ax: Axes | None = None) -> Axes:
        """Draw the Sobol' indices of one output, without intervals; all else as `SobolIndices.plot`."""
        from ensemble.uq.plots import only_output
        from ensemble.uq.study_plots import plot_along

        name = only_output(name, self.outputs, "ChaosExpansion.plot")
        self._named(name, "plot")
        kinds = {"first": self.first[name], "total": self.total[name]}
        values = {kind: (value, np.full_like(value, np.nan)) for kind, value in kinds.items()}
        axes: Axes = plot_along(values, self.inputs, along, ax, self._declared, self._dims.get(name, ()))
        return axes

    def __repr__(self) -> str:
        text = f"{self.n_terms} terms of {self.indices.shape[1]} germs to degree {self.indices.sum(axis=1).max()}"
        lines = [f"ChaosExpansion: {text} by {self.method} from {self.n_samples} samples"]
        lines[0] += f", condition number {self.condition_number:.3g}"
        dependent = bool(self._inputs.copula.between)
        for name in self.outputs:
            error = self.loo_error[name]
            known = error.size > 0 and not np.all(np.isnan(error))
            worst = f", leave-one-out error {np.nanmax(error):.3g}" if known else ""
            shape = (
                f", shape {error.shape}" if error.ndim else f", mean {self.mean(name):.6g}, std {self.std(name):.6g}"
            )
            lines.append(f"{name}{shape}{worst}")
            if error.ndim == 0 and not dependent:
                for one, first, total in zip(self.inputs, self.first[name], self.total[name]):
                    lines.append(f"  {one}  first {first:.4f}  total {total:.4f}")
        return "\n".join([*lines, *self.notes])
