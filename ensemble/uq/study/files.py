"""A result as a table of columns, a CSV or NetCDF file, or a store: `UqResult.save` and `UqResult.to_pandas`."""

from __future__ import annotations

import csv
import importlib.util
import io
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ensemble._check import message, one_of, require
from ensemble._files import write_whole
from ensemble._optional import optional
from ensemble.uq.store.checks import local_folder
from ensemble.uq.store.store import Store
from ensemble.uq.study.dataset import dataset_of, weighted_columns
from ensemble.uq.study.declared import labelled
from ensemble.uq.study.outputs import Layout, blank
from ensemble.uq.study.study_protocols import StudyResult

__all__ = ["MOST_COLUMNS", "SUFFIXES", "Parts", "entry_names", "frame_of", "save"]

SUFFIXES = (".csv", ".nc", ".zarr")

MOST_COLUMNS = 2**14
"""Columns of a table: what spreadsheets take."""

GROUP = 1024
"""Samples of one record of a store that is written from a result."""

STATISTICS = ("mean", "std", "minimum", "maximum")


class Parts(NamedTuple):
    """What a result is written from, beside its public attributes."""

    inputs: Any
    layout: Layout
    manifest: Callable[[], dict[str, Any]]
    read: Callable[[str, np.ndarray], np.ndarray]
    has_samples: bool


class Column(NamedTuple):
    """One column of a table, with its unit, which may be empty."""

    name: str
    unit: str
    values: np.ndarray


def texts_of(values: np.ndarray) -> list[str]:
    """Coordinates as texts: numbers with as few digits as tell them apart."""
    if values.dtype.kind == "M":
        return [str(text) for text in np.datetime_as_string(values, unit="auto")]
    if values.dtype.kind != "f":
        return [str(value) for value in values.tolist()]
    for digits in range(6, 18):
        texts = [f"{value:.{digits}g}" for value in values.tolist()]
        if len(set(texts)) == len(texts):
            break
    return texts


def entry_names(
    name: str,
    dims: Sequence[str],
    shape: Sequence[int],
    coordinates: Mapping[str, np.ndarray],
    units: Mapping[str, str],
) -> list[str]:
    """The names of the entries of an array, ``height(t=0.5 s)``; places where an axis has no coordinates."""
    if not shape:
        return [name]
    parts = []
    for dim, length in zip(dims, shape, strict=True):
        if dim in coordinates:
            unit = f" {units[dim]}" if dim in units else ""
            parts.append([f"{dim}={text}{unit}" for text in texts_of(coordinates[dim])])
        else:
            parts.append([str(k) for k in range(length)])
    return [
        f"{name}({'; '.join(part[k] for part, k in zip(parts, place, strict=True))})" for place in np.ndindex(*shape)
    ]


def columns_of(dataset: Any, function: str) -> list[Column]:
    """One row for each sample of a dataset: its number, the inputs, the outputs entry by entry, what failed."""
    variables = {name: v for name, v in {**dataset.coords, **dataset.data_vars}.items() if v.dims[-1:] == ("sample",)}
    count = sum(int(np.prod(v.shape[:-1])) for v in variables.values())
    if count > MOST_COLUMNS:
        sizes = ", ".join(f"{name} {v.shape[:-1]}" for name, v in variables.items() if v.ndim > 1)
        advice = "Write NetCDF (FILE.nc), or choose outputs."
        raise ValueError(message(function, "outputs", f"have at most {MOST_COLUMNS:,} columns", sizes, advice))
    axes = {str(name): v.values for name, v in dataset.coords.items() if v.dims == (name,) and name != "sample"}
    units = {str(name): v.attrs["units"] for name, v in dataset.variables.items() if "units" in v.attrs}
    found = []
    for name in ["sample", *(name for name in variables if name != "sample")]:
        v = variables[name]
        shape = v.shape[:-1]
        rows = v.values.reshape(-1, v.shape[-1])
        names = entry_names(str(name), v.dims[:-1], shape, axes, units)
        found += [Column(one, units.get(str(name), ""), row) for one, row in zip(names, rows, strict=True)]
    return found


def statistics_of(result: StudyResult, outputs: Sequence[str]) -> list[Column]:
    """One row for each entry of each output: its statistics, where no samples were kept."""
    names: list[str] = []
    columns: dict[str, list[Any]] = {statistic: [] for statistic in STATISTICS}
    for name in outputs:
        mean = np.asarray(result.mean(name))
        names += entry_names(name, result.dims[name], mean.shape, result.coordinates, result.units)
        for statistic, values in columns.items():
            values += np.asarray(getattr(result, statistic)(name)).reshape(-1).tolist()
    return [Column("output", "", np.array(names)), *(Column(name, "", np.array(c)) for name, c in columns.items())]


def table_columns(result: StudyResult, parts: Parts, outputs: Iterable[str] | None, function: str) -> list[Column]:
    """The columns of a result; the first of them numbers or names its rows."""
    if result.keep == "statistics":
        return statistics_of(result, result.names if outputs is None else tuple(outputs))
    return columns_of(chosen(result, parts, outputs, function), function)


def chosen(result: StudyResult, parts: Parts, outputs: Iterable[str] | None, function: str) -> Any:
    """The dataset of a result with these outputs, by default all."""
    dataset = dataset_of(result, parts.inputs, function)
    if outputs is None:
        return dataset
    names = set(outputs)
    if result.keep == "statistics":
        names = {f"{name}_{statistic}" for name in names for statistic in STATISTICS}
    others = [name for name in dataset.data_vars if name not in (*names, "done", "failed")]
    dropped = dataset.drop_vars(others)
    return dropped.drop_vars([name for name in result.coordinates if not used(dropped, name)])


def used(dataset: Any, axis: str) -> bool:
    """Whether an output of a dataset has the axis."""
    return any(axis in v.dims for v in dataset.data_vars.values())


def frame_of(result: StudyResult, parts: Parts) -> Any:
    """The table as a `pandas.DataFrame`, units as its attribute ``attrs["units"]``."""
    pandas = optional("pandas", "UqResult.to_pandas")
    index, *columns = table_columns(result, parts, None, "UqResult.to_pandas")
    frame = pandas.DataFrame({column.name: column.values for column in columns})
    frame.index = pandas.Index(index.values, name=index.name)
    units = {column.name: column.unit for column in columns if column.unit}
    if units:
        frame.attrs["units"] = units
    return frame


def as_csv(columns: list[Column]) -> bytes:
    """The bytes of a CSV file: names with their units, then a line per row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([labelled(column.name, column.unit) for column in columns])
    writer.writerows(zip(*(column.values.tolist() for column in columns), strict=True))
    return text.getvalue().encode()


def as_netcdf(dataset: Any, function: str) -> bytes:
    """The bytes of a NetCDF file: of version 4 where h5netcdf is installed, else of version 3."""
    dataset.attrs["seed"] = str(dataset.attrs["seed"])  # version 3 has integers of 32 bits
    if importlib.util.find_spec("h5netcdf") is not None:
        return bytes(dataset.to_netcdf(engine="h5netcdf"))
    try:
        return bytes(dataset.to_netcdf(engine="scipy"))
    except (TypeError, ValueError) as error:
        seen = f"an error: {str(error).partition('. ')[0]}"
        text = message(function, "outputs", "be such as NetCDF 3 holds", seen, "Install h5netcdf.")
        raise ValueError(text) from None


def save(result: StudyResult, parts: Parts, path: Any, outputs: Iterable[str] | None, function: str) -> None:
    """Write a result to a file or a store, by the ending of its name; nothing is left where that fails."""
    place = local_folder(function, path)
    suffix = place.suffix.lower()
    require(suffix in SUFFIXES, function, "path", f"end in one of {', '.join(SUFFIXES)}", repr(str(path)))
    for name in outputs or ():
        one_of(name, result.names, function, "outputs")
    if suffix == ".zarr":
        require(outputs is None, function, "outputs", "be None for a store, which has all", outputs)
        save_store(result, parts, place, function)
        return
    contents = as_csv(table_columns(result, parts, outputs, function)) if suffix == ".csv" else None
    whole = as_netcdf(chosen(result, parts, outputs, function), function) if contents is None else contents
    write_whole(place, lambda file: file.write(whole))


def save_store(result: StudyResult, parts: Parts, place: Path, function: str) -> None:
    """Write the samples of a result as a new store."""
    advice = "Run it with keep='all' or with a store."
    require(parts.has_samples, function, "the study", "have kept its samples", "statistics alone", advice)
    existed = place.exists()
    store = Store.create(place, parts.manifest())
    try:
        with store:
            done = np.flatnonzero(result.done)
            for first in range(0, done.size, GROUP):
                ids = done[first : first + GROUP]
                earlier = {i: result.earlier_reasons[i] for i in ids.tolist() if i in result.earlier_reasons}
                store.append(*group_of(result, parts, ids), earlier=earlier)
            store.compact(weighted_columns(parts.inputs))
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        if existed:
            place.mkdir(exist_ok=True)
        raise


def group_of(result: StudyResult, parts: Parts, ids: np.ndarray) -> tuple[Any, ...]:
    """Samples that were run, as `Store.append` takes them."""
    failed = result.failed[ids]
    good = np.flatnonzero(~failed)
    outputs = {}
    for name, (shape, dtype) in parts.layout.items() if good.size else ():
        values = blank(shape, dtype, ids.size)
        values[..., good] = parts.read(name, ids[good])
        outputs[name] = values
    reasons = {int(i): result.reasons[int(i)] for i in ids[failed] if int(i) in result.reasons}
    return ids, outputs, failed, reasons
