"""`Outputs`: what a user says of a model's outputs, the coordinates of their axes and units."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ensemble._check import host_array, kind_of, message, require, require_unmasked
from ensemble.scalar import Ensemble
from ensemble.uq.store.axes import (
    MOST_ENTRIES,
    coordinate_in,
    described_coordinate,
    is_axis_name,
    names_of_axes,
)
from ensemble.uq.study.outputs import Layout, OutputError

__all__ = ["Outputs", "labelled"]

MOST_TEXTS = 24
"""Texts beside an axis of a picture; of more only every second, third, ... is written."""

FORM = "be a vector of different finite numbers, texts or dates"


class Outputs:
    """The coordinates of the axes of a model's outputs, and units, for datasets, files and pictures.

    Parameters
    ----------
    coordinates : mapping of str to array_like, shape (n,), optional
        By the name of an axis the coordinates of its n entries: different numbers, texts (labels of categories), or
        dates. Names that are no Python names, or ``axes`` and ``units``, stand here.
    axes : mapping of str to sequence of str or None, optional
        By the name of an output the names of its axes, None for one without coordinates. An output that is not listed
        has on each axis the coordinates of that length, which must be those of one axis alone.
    units : mapping of str to str, optional
        Units of outputs and of axes, ``{"t": "s", "height": "m"}``. They are labels: nothing is converted.
    **more
        Coordinates, too: ``t=np.linspace(0.0, 10.0, 101)``.

    Attributes
    ----------
    coordinates : dict of str to array, shape (n,)
    axes : dict of str to tuple of str or None
    units : dict of str to str

    Raises
    ------
    TypeError, ValueError
        If coordinates are no vector, not finite or not different, or of the wrong kind; if `axes` names an axis without
        coordinates; if a unit is no text.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> t = np.linspace(0.0, 2.0, 5)
    >>> outputs = en.Outputs(t=t, units={"t": "s", "height": "m"})
    >>> inputs = en.Inputs(speed=stats.norm(20.0, 1.0))
    >>> def model(x):
    ...     return {"height": x.speed * t - 4.905 * t**2}
    >>> result = en.propagate(model, inputs, 64, seed=3, outputs=outputs, progress=False)
    >>> result.dims["height"], result.coordinates["t"]
    (('t',), array([0. , 0.5, 1. , 1.5, 2. ]))
    """

    def __init__(
        self,
        coordinates: Mapping[str, Any] | None = None,
        /,
        *,
        axes: Mapping[str, Any] | None = None,
        units: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        given = [] if coordinates is None else list(_mapping(coordinates, "coordinates").items())
        self.coordinates: dict[str, np.ndarray] = {}
        for name, values in [*given, *more.items()]:
            wanted = "be texts without '/' that do not begin with '.' or '_', and no names of a store's own arrays"
            require(is_axis_name(name), "Outputs", "names of axes", wanted, repr(name))
            require(name not in self.coordinates, "Outputs", "coordinates", "name each axis once", repr(name))
            self.coordinates[name] = _coordinate(name, values)
        self.axes = {
            name: self._axes_of(name, names)
            for name, names in _mapping(axes if axes is not None else {}, "axes").items()
        }
        self.units = dict(_mapping(units if units is not None else {}, "units"))
        for name, unit in self.units.items():
            if not isinstance(unit, str) or not isinstance(name, str):
                raise TypeError(message("Outputs", f"units[{name!r}]", "be a text", kind_of(unit)))
            dates = name in self.coordinates and self.coordinates[name].dtype.kind == "M"
            require(not dates, "Outputs", f"units[{name!r}]", "be left out for dates", repr(unit))

    def _axes_of(self, name: Any, names: Any) -> tuple[str | None, ...]:
        """The names of the axes of an output."""
        if not isinstance(name, str) or not (names is None or isinstance(names, str | Iterable)):
            raise TypeError(message("Outputs", "axes", "have a sequence of names for each output", kind_of(names)))
        given = (names,) if names is None or isinstance(names, str) else tuple(names)
        known = ", ".join(self.coordinates) or "none"
        for one in given:
            seen = f"{one!r} of output {name!r}"
            advice = "None stands for an axis without."
            fits = one is None or (isinstance(one, str) and one in self.coordinates)
            require(fits, "Outputs", "axes", f"name coordinates ({known})", seen, advice)
        require(
            len(set(given) - {None}) == len([one for one in given if one is not None]),
            "Outputs", "axes", "name each axis of an output once", f"{given} of output {name!r}",
        )  # fmt: skip
        return given

    def __bool__(self) -> bool:
        return bool(self.coordinates or self.axes or self.units)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outputs) and self.description() == other.description()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [f"{name}: {values.size} of {values[0]} to {values[-1]}" for name, values in self.coordinates.items()]
        parts += [f"{name}({', '.join(map(str, names))})" for name, names in self.axes.items()]
        parts += [f"{name} in {unit}" for name, unit in self.units.items()]
        return f"Outputs({'; '.join(parts)})"

    def description(self) -> dict[str, Any]:
        """What a manifest says: equal declarations have equal ones, whatever their order."""
        found = {
            "coordinates": {name: described_coordinate(self.coordinates[name]) for name in sorted(self.coordinates)},
            "of": {name: list(self.axes[name]) for name in sorted(self.axes)},
            "units": {name: self.units[name] for name in sorted(self.units)},
        }
        return {key: part for key, part in found.items() if part}

    @classmethod
    def from_description(cls, axes: Mapping[str, Any] | None) -> Outputs:
        """Those of a manifest; without coordinates where it has none."""
        table = axes or {}
        coordinates = {name: coordinate_in(one) for name, one in table.get("coordinates", {}).items()}
        return cls(coordinates, axes=table.get("of"), units=table.get("units"))

    def dims(self, layout: Layout, function: str) -> dict[str, tuple[str, ...]]:
        """The names of the axes of every output; OutputError where the outputs are not such as was said."""
        try:
            return names_of_axes(function, self.description(), {name: shape for name, (shape, _) in layout.items()})
        except ValueError as error:
            raise OutputError(str(error)) from None

    def label(self, name: str) -> str:
        """The name of an output or an axis with its unit, for a picture or a table."""
        return labelled(name, self.units.get(name, ""))

    def places(self, dim: str) -> np.ndarray | None:
        """Where the entries of an axis stand in a picture, texts at 0, 1, 2, ...; None without coordinates."""
        values = self.coordinates.get(dim)
        return np.arange(values.size) if values is not None and values.dtype.kind == "U" else values

    def name_axis(self, axis: Any, dim: str) -> None:
        """Name an axis of a picture and, where the coordinates are texts, its entries."""
        values = self.coordinates.get(dim)
        if values is None:
            return
        axis.set_label_text(self.label(dim))
        if values.dtype.kind == "U":
            every = -(-values.size // MOST_TEXTS)
            axis.set_ticks(np.arange(values.size)[::every], values[::every].tolist())


def labelled(name: str, unit: str) -> str:
    """A name with its unit, ``height [m]``."""
    return f"{name} [{unit}]" if unit else name


def _mapping(value: Any, argument: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(message("Outputs", argument, "be a dict by name", kind_of(value)))
    return value


def _coordinate(name: str, values: Any) -> np.ndarray:
    """The coordinates of an axis as an array of its own that cannot be written."""
    if isinstance(values, Ensemble):
        raise TypeError(message("Outputs", name, "be coordinates that all samples share", kind_of(values)))
    require_unmasked(values, "Outputs", name)
    if isinstance(values, list | tuple) and any(isinstance(one, str) for one in values):
        values = np.array(values, dtype=object)  # NumPy makes texts of numbers beside texts
    array = host_array(values, "Outputs", name, FORM)
    if array.dtype.kind == "O":
        array = _of_objects(name, array)
    if array.ndim == 1 and array.dtype.kind in "iu" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        wide = array.astype(np.float64)
        lost = [n for n, near in zip(array.tolist(), wide.tolist(), strict=True) if n != int(near)]
        wanted, advice = "be integers below 2**63, or floats", "Give texts, or places from 0 on."
        require(not lost, "Outputs", name, wanted, f"{lost[0] if lost else ''}, which no float equals", advice)
        array = wide
    for kinds, dtype in (("iu", np.int64), ("f", np.float64), ("M", "M8[ns]"), ("U", None)):
        if array.dtype.kind in kinds:
            found = array.copy() if dtype is None else array.astype(dtype)
            break
    else:
        raise TypeError(message("Outputs", name, FORM, f"dtype {array.dtype}", "Give durations as numbers."))
    require(found.ndim == 1 and found.size > 0, "Outputs", name, FORM, f"shape {found.shape}")
    advice = "Leave out the coordinates of a larger axis."
    require(found.size <= MOST_ENTRIES, "Outputs", name, f"have at most {MOST_ENTRIES:,} entries", found.size, advice)
    finite = (
        True if found.dtype.kind == "U" else np.all(~np.isnat(found) if found.dtype.kind == "M" else np.isfinite(found))
    )
    require(bool(finite), "Outputs", name, FORM, "values that are not finite")
    same = found.dtype.kind != "M" or bool(np.all(found.astype(array.dtype) == array))
    require(same, "Outputs", name, "be dates from 1678 to 2261, in nanoseconds", f"{array[0]} to {array[-1]}")
    _, counts = np.unique(found, return_counts=True)
    require(bool(np.all(counts == 1)), "Outputs", name, FORM, f"{int(np.sum(counts > 1))} values more than once")
    found.flags.writeable = False
    return found


def _of_objects(name: str, array: np.ndarray) -> np.ndarray:
    """Texts, or dates."""
    parts = array.reshape(-1).tolist()
    if all(isinstance(one, str) for one in parts):
        return array.astype(np.str_)
    zoned = any(getattr(one, "tzinfo", None) is not None for one in parts)
    if all(isinstance(one, datetime.date) for one in parts) and not zoned:
        return array.astype("M8[us]")
    seen = "dates with a time zone" if zoned else "a mixture of kinds, or other objects"
    raise TypeError(message("Outputs", name, FORM, seen))
