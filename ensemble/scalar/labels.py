"""Labels of the numbers of an ensemble: a comparison with a text is that of each sample's label."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Label", "labelled", "labels_of_numbers", "place_of_label", "places_among", "with_labels"]

NO_PLACE = -1
"""Stands for a label that there is not: equal to no place."""


class Label(np.int64):
    """The place of one sample's label: a number that compares with a text as the label does."""

    _labels: tuple[Any, ...]

    def __new__(cls, place: Any, labels: tuple[Any, ...]) -> Label:
        made = super().__new__(cls, place)
        made._labels = labels
        return made

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, Label):
            return np.bool_(self._labels[int(self)] == other._labels[int(other)])
        return np.bool_(self._labels[int(self)] == other) if isinstance(other, str) else super().__eq__(other)

    def __ne__(self, other: Any) -> Any:
        equal = self == other
        return ~equal if isinstance(equal, np.ndarray | np.bool_) else not equal

    __hash__ = np.int64.__hash__

    def __getitem__(self, key: Any) -> Any:
        return self if isinstance(key, tuple) and not key else np.asarray(int(self))[key]

    def __copy__(self) -> Label:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None) -> Label:
        return self

    def __reduce__(self) -> Any:
        return Label, (int(self), self._labels)


def labelled(x: Any, labels: tuple[Any, ...] | None) -> Any:
    """The ensemble `x`, whose numbers are places among `labels`; what is computed from it has none."""
    if labels is not None:
        x._labels = labels
    return x


def with_labels(kind: type[Any], samples: Any, sample_set: Any, labels: tuple[Any, ...]) -> Any:
    """An ensemble with labels, as it is unpickled."""
    return labelled(kind(samples, sample_set), labels)


def labels_of_numbers(x: Any) -> tuple[Any, ...] | None:
    """The labels of an ensemble; None of one without."""
    return getattr(x, "_labels", None)


def place_of_label(x: Any, text: str) -> int | None:
    """The place of a text among the labels of `x`; None where it has no labels."""
    labels = labels_of_numbers(x)
    if labels is None:
        return None
    return labels.index(text) if text in labels else NO_PLACE


def places_among(x: Any, other: Any) -> Any:
    """The samples of `other` as places among the labels of `x`, where both have labels, and others."""
    own, labels = labels_of_numbers(x), labels_of_numbers(other)
    if own is None or labels is None or own == labels:
        return other.samples
    table = np.array([own.index(label) if label in own else NO_PLACE for label in labels])
    samples = other.samples
    if isinstance(samples, np.ndarray):
        return table[samples]
    places = samples * 0 + NO_PLACE  # in any library: `table` is one of NumPy
    for place, mine in enumerate(table.tolist()):
        places = places + (samples == place) * (mine - NO_PLACE)
    return places
