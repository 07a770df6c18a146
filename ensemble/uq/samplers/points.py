"""The user's own points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ensemble._check import one_of, real_array, require, require_type
from ensemble._keywords import explains_construction
from ensemble._typing import Ids
from ensemble.uq.inputs.variable import array_digest
from ensemble.uq.samplers.sampled_inputs import SampledInputs
from ensemble.uq.samplers.sampler import Sampler, checked_ids

__all__ = ["Points"]


@explains_construction("Points")
class Points(Sampler):
    """Points of your own making: a design, a rule, measured values.

    Parameters
    ----------
    points : array_like, shape (n, n_germs), optional
        One row per sample.
    values : mapping of input names to arrays, shape (\\*shape, n), optional
        In place of `points`: values of every input that is no constant; labels or their places for a categorical
        input, coefficients for a field. They are taken through the inverse of `Inputs.from_normal`, so that a model
        gets them to rounding.
    weights : array_like, shape (n,), optional
        What each sample counts in a mean; some may be negative. Default: all the same.
    space : {"uniform", "normal"}
        Whether `points` lie in the unit cube or in standard normal space.

    Raises
    ------
    ValueError
        If shapes do not fit, weights are not finite or add up to zero, both or none of `points` and `values` are given,
        or a value is none of its distribution's.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> inputs = en.Inputs(a=stats.norm(), b=stats.expon())
    >>> x = inputs.samples(sampler=en.uq.Points(values={"a": [0.5, 1.0], "b": [2.0, 3.0]}))
    >>> x.b.samples.round(12)
    array([2., 3.])
    """

    name = "points"
    extendable = False

    def __init__(
        self,
        points: Any = None,
        *,
        values: Mapping[str, Any] | None = None,
        weights: Any = None,
        space: str = "uniform",
    ) -> None:
        given = "both" if points is not None else "none of them"
        require(
            (points is None) != (values is None), "Points", "points, values", "be given one without the other", given
        )
        self.space = one_of(space, ("uniform", "normal"), "Points", "space")
        if values is not None:
            require_type(values, Mapping, "Points", "values", "be a dict of values by input")
        self.values = None if values is None else dict(values)
        self._points: np.ndarray | None = None
        if points is not None:
            array = real_array(points, "Points", "points", "have one row per sample").copy()
            good = array.ndim == 2 and array.shape[0] > 0
            require(good, "Points", "points", "have one row per sample", f"shape {array.shape}")
            self._points = array
        self._weights = None
        if weights is not None:
            vector = real_array(weights, "Points", "weights", "be finite and not add up to zero").copy()
            good = vector.ndim == 1 and bool(np.all(np.isfinite(vector))) and abs(float(vector.sum())) > 0.0
            require(good, "Points", "weights", "be finite and not add up to zero", f"shape {vector.shape}")
            self._weights = vector

    def for_inputs(self, inputs: SampledInputs, n: int | None) -> Sampler:
        """The sampler with its values as points of normal space."""
        resolved = self
        if self.values is not None:
            resolved = Points(inputs.to_normal(self.values), weights=self._weights, space="normal")
        assert resolved._points is not None
        count, columns = resolved._points.shape
        wanted = f"have {inputs.n_germs} columns, the germs of the inputs"
        require(columns == inputs.n_germs, "Points", "points", wanted, columns)
        good = resolved._weights is None or resolved._weights.size == count
        seen = 0 if resolved._weights is None else resolved._weights.size
        require(good, "Points", "weights", f"be {count}, one for each point", seen)
        return resolved

    def count(self) -> int | None:
        return None if self._points is None else self._points.shape[0]

    def points(self, ids: Ids, n_germs: int, seed: int) -> np.ndarray:
        require(self._points is not None, "Points.points", "inputs", "be given to for_inputs first", "none")
        assert self._points is not None
        points: np.ndarray = self._points[checked_ids(ids, "Points.points", self.count())]
        return points

    def weights(self, ids: Ids) -> np.ndarray | None:
        return None if self._weights is None else self._weights[checked_ids(ids, "Points.weights", self.count())]

    def description(self) -> dict[str, Any]:
        """The name, the space, and a digest of points and weights."""
        arrays = [array for array in (self._points, self._weights) if array is not None]
        return {"name": self.name, "space": self.space, "count": self.count(), "digest": array_digest(*arrays)}

    def __repr__(self) -> str:
        return (
            f"Points({self.count()} points)" if self.values is None else f"Points(values of {', '.join(self.values)})"
        )
