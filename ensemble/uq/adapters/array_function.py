"""`ArrayFunction`: a model in the form of other packages, a function of a matrix of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._check import integer, kind_of, message, one_of, real_array, require, require_type
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.inputs.samples import InputSamples
from ensemble.uq.study.evaluation import evaluate

__all__ = ["ArrayFunction"]


class ArrayFunction:
    """A model as a function of points ``(n, n_columns)`` that gives values ``(n, n_values)``.

    The model is called on groups of samples, so that packages that pass all their points at once have them
    evaluated as ensembles.

    Parameters
    ----------
    model : callable
        As in `propagate`.
    inputs : Inputs
    outputs : sequence of str, optional
        Which outputs, in this order. Default: all, in the model's order.
    ensemble_size : int, at least 1
        Samples in a call of the model.

    Attributes
    ----------
    columns : tuple of str
        What the columns of the points are: ``"E"``, ``"v[0]"``, ``"v[1]"``; of a field the coefficients of its terms.
        Constants have none.
    values : tuple of str
        What the columns of the result are, likewise. Found by one call at the medians of the inputs.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind, the model fails at the medians, or there is no such output.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> inputs = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))
    >>> tip = ArrayFunction(lambda x: {"tip": x.load / x.stiffness}, inputs)
    >>> tip.columns, tip.values, tip(np.array([[1.0, 4.0], [3.0, 2.0]])).tolist()
    (('load', 'stiffness'), ('tip',), [[0.25], [1.5]])
    """

    def __init__(
        self,
        model: Callable[[Any], Any],
        inputs: Inputs,
        outputs: Sequence[str] | None = None,
        *,
        ensemble_size: int = 32,
    ) -> None:
        name = "ArrayFunction"
        if not callable(model):
            raise TypeError(message(name, "model", "be callable", kind_of(model)))
        require_type(inputs, Inputs, name, "inputs", "be Inputs")
        self.model, self.inputs = model, inputs
        self.ensemble_size = integer(ensemble_size, name, "ensemble_size", minimum=1)
        self.sizes = {key: math.prod(v.shape) for key, v in inputs.variables.items() if v.n_germs}
        self.columns = tuple(text for key in self.sizes for text in labels(key, inputs.variables[key].shape))
        centre = evaluate(model, inputs.from_normal(np.zeros((1, inputs.n_germs))), "mask")
        advice = "It is called there once to see what it gives."
        require(
            not centre.failed[0], name, "model", "succeed at the medians of the inputs", centre.reasons.get(0), advice
        )
        self.shapes = {key: array.shape[:-1] for key, array in centre.outputs.items()}
        for key, array in centre.outputs.items():
            require(array.dtype.kind != "c", name, f"output {key!r}", "be real", f"dtype {array.dtype}")
        for key in outputs or ():
            one_of(key, self.shapes, name, "outputs")
        self.outputs = tuple(outputs) if outputs else tuple(self.shapes)
        self.values = tuple(text for key in self.outputs for text in labels(key, self.shapes[key]))

    def __call__(self, points: Any) -> np.ndarray:
        """Values at points in the units of the inputs.

        Parameters
        ----------
        points : array_like, shape (n, n_columns)

        Returns
        -------
        float64 array, shape (n, n_values)
            NaN in samples that failed.

        Raises
        ------
        ValueError
            If `points` has another shape or is not finite.
        """
        return self._evaluated(self.samples_at(points))

    def from_uniform(self, u: Any) -> np.ndarray:
        """Values at points of the unit cube ``(n, n_germs)``, which the inverse distributions map to inputs."""
        return self._evaluated(self.inputs.from_uniform(u))

    def samples_at(self, points: Any) -> InputSamples:
        """The inputs at points in their own units: what the model gets."""
        wanted = f"have one row per sample and the columns {', '.join(self.columns)}"
        array = real_array(points, "ArrayFunction", "points", wanted)
        good = array.ndim == 2 and array.shape[0] > 0 and array.shape[1] == len(self.columns)
        require(good, "ArrayFunction", "points", wanted, f"shape {array.shape}")
        require(bool(np.all(np.isfinite(array))), "ArrayFunction", "points", "be finite", "NaN or infinity")
        values, first = {}, 0
        for name, variable in self.inputs.variables.items():
            if variable.n_germs == 0:
                values[name] = variable.from_uniform(np.empty((0, array.shape[0])))
                continue
            columns = array[:, first : first + self.sizes[name]].T
            values[name] = np.ascontiguousarray(columns).reshape(*variable.shape, array.shape[0])
            first += self.sizes[name]
        return InputSamples(self.inputs.variables, values, np.arange(array.shape[0]))

    def _evaluated(self, samples: InputSamples) -> np.ndarray:
        """All groups, and in each the outputs side by side."""
        result = np.full((samples.n_samples, len(self.values)), np.nan)
        for start in range(0, samples.n_samples, self.ensemble_size):
            places = np.arange(start, min(samples.n_samples, start + self.ensemble_size))
            outcome = evaluate(self.model, samples.take(places), "retry")
            if not outcome.outputs:
                continue
            rows = [outcome.outputs[name].reshape(-1, places.size) for name in self.outputs]
            result[places] = np.concatenate(rows).T
            result[places[outcome.failed]] = np.nan
        return result


def labels(name: str, shape: tuple[int, ...]) -> list[str]:
    """``name``, or ``name[0]``, ``name[1]``, ... of an array."""
    return [f"{name}[{','.join(map(str, index))}]" if index else name for index in np.ndindex(*shape)]
