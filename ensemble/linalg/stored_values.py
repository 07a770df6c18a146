"""What matrices with one stored value per entry and sample have in common: samples, types and libraries of values."""

from __future__ import annotations

from typing import Any, Self

from ensemble._backend import array_namespace, asarray_like, is_array, to_numpy
from ensemble._check import places_of, sample_number
from ensemble._kernels.krylov import vectors
from ensemble._typing import DType, Ids
from ensemble.linalg.graph import OnGraph
from ensemble.linalg.linear_operator import inherited
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet

__all__ = ["StoredValues"]


class StoredValues(OnGraph):
    """A matrix on a graph whose `values` have the samples in their last axis."""

    sample_set: SampleSet | None

    def _with(self, values: Any, sample_set: SampleSet | None) -> Self:
        """Return this kind of matrix on the same graph with other values, batched where this one is."""
        made = self.with_values(Ensemble(values, sample_set))
        found: Self = inherited(made, self)
        return found

    def sample(self, i: int) -> Self:
        """Sample `i` alone, on the same graph."""
        made: Self = self.with_values(self.values[..., sample_number(i, self.n_samples, type(self).__name__)])
        return made

    def take_samples(self, samples: Ids) -> Self:
        """The matrix of the samples named, in that order; a shared matrix is its own answer."""
        if self.n_samples == 1:
            return self
        xp, shape = array_namespace(self.values), self.values.shape
        places = places_of(samples, self.n_samples, f"{type(self).__name__}.take_samples")
        rows = xp.reshape(self.values, (-1, shape[-1]))
        chosen = vectors.take_samples(rows, asarray_like(places, self.values), None)
        return self._with(
            xp.reshape(chosen, (*shape[:-1], places.size)), self.sample_set and self.sample_set.take(places)
        )

    def astype(self, dtype: DType) -> Self:
        """The same matrix with values of another type; itself where that is its type."""
        if dtype == self.dtype:
            return self
        return self._with(array_namespace(self.values).astype(self.values, dtype), self.sample_set)

    def to(self, like: Any) -> Self:
        """This matrix with its values in the library and on the device of the array `like`."""
        if is_array(like) and type(like) is type(self.values):
            return self
        return self._with(asarray_like(to_numpy(self.values), like), self.sample_set)
