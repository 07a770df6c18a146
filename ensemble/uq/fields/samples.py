"""`FieldSamples`: a random field for some samples, a function of points."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ensemble.scalar import Ensemble

__all__ = ["FieldSamples", "PlainField"]


class Expansion(Protocol):
    """What samples of a field need of it."""

    def evaluate(self, coefficients: np.ndarray, points: Any) -> tuple[np.ndarray, tuple[int, ...]]:
        """Return values of shape (n_points, n_samples) for coefficients (n_terms, n_samples), and the points' shape."""


class FieldSamples:
    """The value of a field input in a model: call it with points.

    Attributes
    ----------
    field : KarhunenLoeve
    coefficients : Ensemble, shape (n_terms,)
        The random numbers y of the expansion.

    Examples
    --------
    >>> import numpy as np
    >>> import ensemble as en
    >>> kappa = en.fields.KarhunenLoeve.exponential([(0, 1), (0, 1)], 0.5, 8, mean=1.0, std=0.1)
    >>> x = en.Inputs(kappa=kappa).samples(64, seed=12)
    >>> points = np.random.default_rng(3).random((10, 2))
    >>> x.kappa(points).shape, x.kappa(points).n_samples, x.kappa.coefficients.shape
    ((10,), 64, (8,))
    """

    def __init__(self, field: Expansion, coefficients: np.ndarray) -> None:
        self.field = field
        self.coefficients = Ensemble(coefficients)

    def __call__(self, points: Any = None) -> Ensemble:
        """The field at points.

        Parameters
        ----------
        points : array_like, shape (\\*shape, d), optional
            In the field's units of length; in one dimension the last axis may be left out. Default: the nodes of an
            expansion made on points.

        Returns
        -------
        Ensemble, shape `shape`
        """
        values, shape = self.field.evaluate(self.coefficients.samples, points)
        return Ensemble(values.reshape(*shape, values.shape[-1]))

    def __repr__(self) -> str:
        return f"FieldSamples({self.field!r}, n_samples={self.coefficients.n_samples})"


class PlainField:
    """A field of one sample: a function of points that gives plain arrays."""

    def __init__(self, field: Expansion, coefficients: np.ndarray) -> None:
        self.field = field
        self.coefficients = coefficients

    def __call__(self, points: Any = None) -> np.ndarray:
        """The field at points ``(*shape, d)``: an array of that shape."""
        values, shape = self.field.evaluate(self.coefficients[:, None], points)
        return values.reshape(shape)
