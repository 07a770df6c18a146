"""`BackendSamples`: input samples whose Ensembles are on a device."""

from __future__ import annotations

from typing import Any

from ensemble._backend import asarray_like
from ensemble._typing import Array
from ensemble.scalar import Ensemble
from ensemble.scalar.labels import labelled, labels_of_numbers

__all__ = ["BackendSamples"]


class BackendSamples:
    """What `InputSamples` are, with the values of inputs in the library of `like`; all else stays on the host."""

    def __init__(self, samples: Any, like: Array) -> None:
        self._samples, self._like = samples, like
        self._moved: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._moved:
            value = self._samples[name]
            moved = self._of(value) if isinstance(value, Ensemble) else BackendField(value, self)
            self._moved[name] = moved
        return self._moved[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name] if name in self._samples.names else getattr(self._samples, name)

    def __len__(self) -> int:
        return len(self._samples)

    def _of(self, value: Ensemble) -> Ensemble:
        moved = Ensemble(asarray_like(value.samples, self._like), value.sample_set)
        found: Ensemble = labelled(moved, labels_of_numbers(value))
        return found


class BackendField:
    """A field that is evaluated on the host and moved."""

    def __init__(self, field: Any, samples: BackendSamples) -> None:
        self._field, self._move = field, samples._of

    def __call__(self, *points: Any) -> Ensemble:
        return self._move(self._field(*points))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._field, name)
        return self._move(value) if isinstance(value, Ensemble) else value
