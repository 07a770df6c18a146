"""Fields of a form: where they are given, by their shapes, and their form in an integrand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, is_array, to_numpy
from ensemble._check import array_of, message, require, require_unmasked, samples_text, warn_caller
from ensemble._kernels.fem.form_terms import FieldKind
from ensemble._typing import Array
from ensemble.apps.fem.spaces import Space
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set

__all__ = [
    "Field",
    "Fields",
    "at_nodes",
    "at_points",
    "common_samples",
    "constant",
    "fitting_places",
    "per_element",
    "placed_field",
    "warn_if_not_finite",
]


class Field:
    """Values with the place where they are given; made by `constant`, `at_nodes`, `per_element` and `at_points`."""

    def __init__(self, values: Any, place: str | None) -> None:
        self.values, self.place = values, place


def constant(values: Any) -> Field:
    """Return a field of shape (), (d,) or (d, d) with one value for the domain, whatever the number of elements."""
    return Field(values, "number")


def at_nodes(values: Any) -> Field:
    """Return a field of shape (n_nodes, ...) given at nodes, whatever the number of elements.

    Of a space with other than linear functions on a mesh the values are coefficients, one per unknown.
    """
    return Field(values, "node")


def per_element(values: Any) -> Field:
    """Return a field of shape (n_elements, ...) that is constant on each element."""
    return Field(values, "element")


def at_points(values: Any) -> Field:
    """Return a field of shape (n_elements, n_points, ...) given at the quadrature points of each element."""
    return Field(values, "point")


class Fields:
    """What an integrand reads besides its functions: one attribute per field, `x` (coordinates, m) and `h` (m)."""

    def __init__(self, function: str, values: Mapping[str, Any]) -> None:
        self._function, self._values = function, values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._values:
            known = ", ".join(self._values)
            raise AttributeError(f"{self._function}: field {name!r} must be passed to assemble; got {known}.")
        return self._values[name]

    __getitem__ = __getattr__


def placed_field(function: str, name: str, value: Any, space: Space) -> tuple[FieldKind, Any, SampleSet | None]:
    """The kind of a field, its values (*visible shape, n_samples) and its sample set."""
    place = value.place if isinstance(value, Field) else None
    value = value.values if isinstance(value, Field) else value
    require_unmasked(value, function, name)
    if isinstance(value, Ensemble):
        values, sample_set = value.samples, value.sample_set
    else:
        wanted = "be a number, an array of real numbers or an Ensemble"
        values, sample_set = value if is_array(value) else array_of(value, function, name, wanted), None
        if isinstance(values, np.ndarray) and values.dtype.kind not in "biuf":
            raise TypeError(message(function, name, wanted, repr(value)))
        values = values[..., None]
    xp = array_namespace(values)
    if not xp.isdtype(values.dtype, ("bool", "integral", "real floating")):
        wanted = "be a number, an array of real numbers or an Ensemble"
        raise TypeError(message(function, name, wanted, f"dtype {values.dtype}"))
    values = xp.astype(values, xp.float64, copy=False)
    shape = tuple(values.shape[:-1])
    fitting = _fitting(shape, space, place)
    if place is None:
        require(
            len(fitting) <= 1, function, name, "fit one place of the mesh",
            f"shape {shape}, which fits {' and '.join(fitting)}",
            "Say which: constant, at_nodes, per_element or at_points.",
        )  # fmt: skip
        place = fitting[0] if fitting else None
    d = space.dim
    n = f"() or ({d},) or ({d}, {d}), ({space.n_nodes}, ...) at nodes, ({space.n_elements}, ...) per element"
    require(place in fitting, function, name, f"have shape {n}", f"{shape}")
    assert place is not None
    leading = {"number": 0, "node": 1, "element": 1, "point": 2}[place]
    return FieldKind(name, place, shape[leading:], values.shape[-1] > 1), values, sample_set


def fitting_places(value: Any, space: Space) -> list[str]:
    """The places where a field may be given, by its shape or as its maker says; none for what has no shape."""
    place = value.place if isinstance(value, Field) else None
    value = value.values if isinstance(value, Field) else value
    shape = value.samples.shape[:-1] if isinstance(value, Ensemble) else np.shape(value)
    return [found for found in _fitting(tuple(shape), space, place) if place in (None, found)]


def _fitting(shape: tuple[int, ...], space: Space, named: str | None) -> list[str]:
    """The places where a field of this shape may be given; `named` is the one that the caller says."""
    found = []
    small = len(shape) <= 2 and all(0 < length <= 9 for length in shape)
    at_nodes = {space.n_nodes} | ({space.part.partition.n_local} if space.part is not None else set())
    other = bool(shape) and shape[0] in {*at_nodes, space.n_elements} and shape != (space.dim, space.dim)
    if small and (named == "number" or not other or space.part is not None):  # then ranks agree on the place
        found.append("number")
    if shape and shape[0] in at_nodes and len(shape) <= 3:
        found.append("node")
    if shape and shape[0] == space.n_elements:
        at_points = len(shape) > 1 and (shape[1] > 3 if named is None else named == "point")
        unclear = named is None and len(shape) > 1 and shape[1] == space.n_points
        if at_points or unclear:
            found.append("point")
        if len(shape) <= 3 and not at_points:
            found.append("element")
    return found


def common_samples(function: str, given: Mapping[str, Any]) -> tuple[int, SampleSet | None]:
    """The number of samples, and the sample set of the fields."""
    n_samples, sample_set = 1, None
    for name, (_, values, own) in given.items():
        count = 1 if values is None else int(values.shape[-1])
        if count not in (1, n_samples):
            require(n_samples == 1, function, name, f"have {n_samples} samples, as the fields before it", count)
            n_samples = count
        sample_set = common_set(sample_set, own)
    return n_samples, sample_set


def warn_if_not_finite(function: str, name: str, values: Array) -> None:
    """Name the samples of a field that hold NaN or infinity; a shared field has one column."""
    xp = array_namespace(values)
    with np.errstate(invalid="ignore"):
        sums = xp.sum(xp.reshape(values, (-1, values.shape[-1])) * 0.0, axis=0)
    bad = [s for s, total in enumerate(to_numpy(sums)) if total != 0.0]
    if bad:
        own = f"{samples_text(bad, of=sums.shape[0])}. Only these samples of the result are affected."
        where = own if sums.shape[0] > 1 else "a field that all samples share."
        text = f"{function}: {name} should be finite; got NaN or infinity in {where}"
        warn_caller(text, RuntimeWarning)
