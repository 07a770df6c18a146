"""Axes of outputs as a manifest describes them: names, coordinates and units, and their arrays in the Zarr group.

The table ``axes`` of a manifest has the coordinates by the name of the axis, the names of the axes of outputs where
they were given, and units. A manifest without it is that of a study without coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ensemble._check import message
from ensemble.uq.store.descriptions import RESERVED, is_name

__all__ = [
    "AXES", "MOST_ENTRIES", "axis_files", "coordinate_in", "default_names", "described_coordinate", "is_axis_name",
    "names_of_axes", "require_axes", "unit_in",
]  # fmt: skip

AXES = "axes"
"""Key of the table in a manifest."""

MOST_ENTRIES = 2**20
"""Entries of an axis with coordinates: they are part of the manifest."""

KINDS = {"int64": "<i8", "float64": "<f8", "datetime64[ns]": "<M8[ns]"}

Shapes = Mapping[str, tuple[int, ...]]


def is_axis_name(name: Any) -> bool:
    """Whether an axis may have this name."""
    return is_name(name) and name not in (*RESERVED, "sample_weight")


def described_coordinate(values: np.ndarray) -> dict[str, Any]:
    """Coordinates for a manifest: their kind, and a list of numbers or texts."""
    if values.dtype.kind == "U":
        return {"kind": "text", "values": values.tolist()}
    kind = next(kind for kind, dtype in KINDS.items() if values.dtype == np.dtype(dtype))
    return {"kind": kind, "values": (values.view(np.int64) if kind.startswith("datetime") else values).tolist()}


def coordinate_in(table: Mapping[str, Any]) -> np.ndarray:
    """The coordinates of an axis that a manifest describes."""
    if table["kind"] == "text":
        return np.array(table["values"], dtype=np.str_)
    if table["kind"] == "datetime64[ns]":
        return np.array(table["values"], dtype=np.int64).view("M8[ns]")
    return np.array(table["values"], dtype=KINDS[table["kind"]])


def unit_in(manifest: Mapping[str, Any], name: str) -> dict[str, str]:
    """The unit of an output or an axis as an attribute of its array; empty where none was given."""
    units = (manifest.get(AXES) or {}).get("units", {})
    return {"units": units[name]} if name in units else {}


def default_names(name: str, n_axes: int) -> tuple[str, ...]:
    """The names of axes without coordinates."""
    return tuple(f"{name}_dim_{k}" for k in range(n_axes))


def require_axes(function: str, where: str, axes: Any) -> None:
    """Raise ValueError for a table that no study has written."""
    good = isinstance(axes, dict) and all(isinstance(axes.get(key, {}), dict) for key in ("coordinates", "of", "units"))
    good = good and all(_is_coordinate(name, one) for name, one in axes.get("coordinates", {}).items())
    good = good and all(_are_names(one) for one in axes.get("of", {}).values())
    good = good and all(isinstance(unit, str) for unit in axes.get("units", {}).values())
    if not good:
        seen = f"{str(axes)[:80]} in {where}, which is damaged"
        raise ValueError(message(function, "axes", "describe coordinates", seen, "Restore the file from a copy."))


def _is_coordinate(name: Any, table: Any) -> bool:
    if not is_axis_name(name) or not isinstance(table, dict) or not isinstance(table.get("values"), list):
        return False
    wanted: Any = {"text": str, "int64": int, "datetime64[ns]": int, "float64": (float, int)}.get(
        str(table.get("kind"))
    )
    if wanted is None or not all(isinstance(value, wanted) for value in table["values"]):
        return False
    try:
        coordinate_in(table)
    except (OverflowError, ValueError, TypeError):
        return False
    return True


def _are_names(names: Any) -> bool:
    return isinstance(names, list) and all(name is None or isinstance(name, str) for name in names)


def names_of_axes(function: str, axes: Mapping[str, Any] | None, shapes: Shapes) -> dict[str, tuple[str, ...]]:
    """The names of the axes of every output, by its shape.

    An output that the table does not list has, on each axis, the coordinates of that length.

    Raises
    ------
    ValueError
        If the coordinates are not those of the outputs: a length differs or fits several, or a name is that of no
        output, or of both.
    """
    if not axes:
        return {name: default_names(name, len(shape)) for name, shape in shapes.items()}
    lengths = {name: len(table["values"]) for name, table in axes.get("coordinates", {}).items()}
    both = [name for name in shapes if name in lengths]
    if both:
        advice = "Give the axis another name, or leave the output out."
        raise ValueError(message(function, "names of axes", "differ from those of outputs", repr(both[0]), advice))
    listed, units = axes.get("of", {}), axes.get("units", {})
    for argument, given, known in (("axes", listed, shapes), ("units", units, {**shapes, **lengths})):
        unknown = [name for name in given if name not in known]
        if unknown:
            requirement = f"be of {', '.join(map(repr, known))}"
            raise ValueError(message(function, f"{argument} of Outputs", requirement, repr(unknown[0])))
    found = {}
    for name, shape in shapes.items():
        if name in listed:
            found[name] = _listed(function, name, shape, listed[name], lengths)
        else:
            found[name] = _by_length(function, name, shape, lengths)
    used = {one for names in found.values() for one in names}
    unused = [name for name in lengths if name not in used]
    if unused:
        seen = ", ".join(f"{name!r} of shape {shape}" for name, shape in shapes.items())
        requirement = f"have an axis of {lengths[unused[0]]} for the coordinates {unused[0]!r}"
        raise ValueError(message(function, "outputs", requirement, seen))
    return found


def _known(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({length})" for name, length in lengths.items())


def _listed(
    function: str, name: str, shape: tuple[int, ...], names: list[str | None], lengths: Mapping[str, int]
) -> tuple[str, ...]:
    """The names that were given, which must have the lengths of the axes."""
    wanted = tuple(None if one is None else lengths.get(one) for one in names)
    fits = len(names) == len(shape) and all(
        one is None or length == lengths.get(one) for one, length in zip(names, shape, strict=True)
    )
    if not fits:
        lengths_text = ", ".join(str(length) if length is not None else "any" for length in wanted)
        requirement = f"have the axes ({', '.join(map(str, names))}), of lengths ({lengths_text})"
        raise ValueError(message(function, f"output {name!r}", requirement, f"shape {shape}"))
    return tuple(
        plain if one is None else one for one, plain in zip(names, default_names(name, len(shape)), strict=True)
    )


def _by_length(function: str, name: str, shape: tuple[int, ...], lengths: Mapping[str, int]) -> tuple[str, ...]:
    """On each axis the coordinates of its length: one that has none, or several, is an error."""
    if not lengths:
        return default_names(name, len(shape))
    found: list[str] = []
    for length in shape:
        fitting = [one for one, own in lengths.items() if own == length]
        if len(fitting) != 1 or fitting[0] in found:
            none = not fitting
            requirement = f"have axes as long as {'' if none else 'one of '}the coordinates {_known(lengths)}"
            said = ", ".join("None" if none and own == length else "..." for own in shape)
            trailing = "," if len(shape) == 1 else ""
            advice = f"Name its axes: Outputs(axes={{{name!r}: ({said}{trailing})}}, ...)"
            advice += ", None for one without coordinates." if none else "."
            seen = f"shape {shape}" + ("" if none else f", where {length} fits more than one axis")
            raise ValueError(message(function, f"output {name!r}", requirement, seen, advice))
        found.append(fitting[0])
    return tuple(found)


def axis_files(manifest: Mapping[str, Any]) -> dict[str, tuple[dict[str, Any], bytes]]:
    """Metadata and the one chunk of the array of each axis with coordinates.

    Texts are stored as their places, with the texts as attribute ``labels``, as those of categorical inputs.
    """
    axes = manifest.get(AXES) or {}
    found = {}
    for name, table in axes.get("coordinates", {}).items():
        values, attributes = coordinate_in(table), unit_in(manifest, name)
        if table["kind"] == "text":
            attributes["labels"] = table["values"]
            values = np.arange(values.size)
        if table["kind"] == "datetime64[ns]":  # the convention of CF, which xarray decodes
            attributes |= {"units": "nanoseconds since 1970-01-01", "calendar": "proleptic_gregorian"}
            values = values.view(np.int64)
        values = values.astype(values.dtype.newbyteorder("<"))
        found[name] = _metadata(name, values, attributes), values.tobytes()
    return found


def _metadata(name: str, values: np.ndarray, attributes: dict[str, Any]) -> dict[str, Any]:
    """The contents of ``zarr.json`` of an array with one chunk."""
    return {
        "shape": [values.size],
        "data_type": values.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [max(1, values.size)]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": "NaN" if values.dtype.kind == "f" else 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": attributes,
        "dimension_names": [name],
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
