"""`Categorical`: one of several labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from ensemble._check import kind_of, message, require
from ensemble._keywords import explains_construction
from ensemble.scalar import Ensemble
from ensemble.scalar.labels import labelled
from ensemble.uq.inputs.variable import Variable, normal_of

__all__ = ["Categorical"]


@explains_construction("Categorical")
class Categorical(Variable):
    """An input that takes one of several labels, each with its probability.

    Parameters
    ----------
    probabilities : mapping of label to float, or sequence of labels
        Zero or above; they add up to 1. The labels of a sequence are equally probable. Labels are texts or numbers.

    Attributes
    ----------
    labels : tuple
        In the order given. A model gets the place of a label among them, an int64, which compares with a text by the
        label: ``x.material == "wood"`` is True in samples of wood. A model of plain numbers, called with
        ``x.sample(i)``, gets the label.
    probabilities : ndarray, shape (n_labels,)

    Raises
    ------
    TypeError
        If a label is neither text nor number.
    ValueError
        If there is no label, or one twice, or the probabilities are negative or do not add up to 1.

    Examples
    --------
    >>> import ensemble as en
    >>> inputs = en.Inputs(material=en.Categorical({"steel": 0.3, "wood": 0.7}))
    >>> x = inputs.from_uniform([[0.2], [0.9]])
    >>> x.material.samples, inputs["material"].labels, x.sample(1).material
    (array([0, 1]), ('steel', 'wood'), 'wood')
    """

    def __init__(self, probabilities: Mapping[Any, float] | Sequence[Any]) -> None:
        even = not isinstance(probabilities, Mapping)
        if not isinstance(probabilities, Iterable):
            wanted = "be labels, or a dict of labels to probabilities"
            raise TypeError(message("Categorical", "probabilities", wanted, kind_of(probabilities)))
        labels = tuple(probabilities)
        require(len(labels) > 0, "Categorical", "probabilities", "name one label or more", "none")
        for label in labels:
            if not isinstance(label, str | int | float):
                seen = f"{label!r}, {kind_of(label)}"
                raise TypeError(message("Categorical", "labels", "be texts or numbers", seen))
        require(len(set(labels)) == len(labels), "Categorical", "labels", "differ from each other", labels)
        shares = np.full(len(labels), 1.0 / len(labels))
        if isinstance(probabilities, Mapping):
            shares = np.array([float(p) for p in probabilities.values()])
        good = bool(np.all(shares >= 0.0) and abs(shares.sum() - 1.0) <= 1e-9)
        seen = f"{shares.tolist()}, of sum {shares.sum():.10g}"
        require(even or good, "Categorical", "probabilities", "be zero or above and add up to 1", seen)
        self.labels = labels
        self.probabilities = shares
        self._ends = np.cumsum(shares)[: np.flatnonzero(shares)[-1]]

    def __repr__(self) -> str:
        return f"Categorical({dict(zip(self.labels, self.probabilities.tolist(), strict=True))})"

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        """The places of the labels, int64: the label ends where the sum of the probabilities so far is u."""
        places: np.ndarray = np.searchsorted(self._ends, u[0], side="left").astype(np.int64)
        return places

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        places: np.ndarray = np.searchsorted(ndtri(self._ends), z[0], side="left").astype(np.int64)
        return places

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        """The points of labels or of their places, each in the middle of its probabilities."""
        numbers = {label: place for place, label in enumerate(self.labels)}
        if values.dtype.kind in "iu" and not all(label in numbers for label in np.unique(values).tolist()):
            numbers = {place: place for place in range(len(self.labels))}
        places = np.array([numbers.get(label, -1) for label in values.tolist()], dtype=np.intp)
        ends = np.cumsum(self.probabilities)
        shares = self.probabilities[places]
        below = ends[places] - 0.5 * shares
        return np.where((places >= 0) & (shares > 0.0), normal_of(below, 1.0 - below), np.nan)[None]

    def lift(self, values: np.ndarray) -> Ensemble:
        """The places of the labels, which compare with a text by their labels."""
        found: Ensemble = labelled(Ensemble(values), self.labels)
        return found

    def plain(self, value: np.ndarray) -> Any:
        """The label at the place `value`."""
        return self.labels[int(value)]

    def description(self) -> dict[str, Any]:
        """Labels and probabilities."""
        return {"kind": "categorical", "labels": list(self.labels), "probabilities": self.probabilities.tolist()}
