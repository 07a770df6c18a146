"""Compaction: the samples in the journal are moved into the chunks of a Zarr group.

Every file is written under another name, flushed to the disk, and renamed; first the chunks of outputs and inputs, then
the masks, then the metadata. Only afterwards is the journal emptied. A process killed in between leaves the journal
with all its records, and compacting again writes the same files.

At most `PANEL_BYTES`, one chunk and one piece of a record are in memory at a time: less than 256 MiB.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ensemble._check import message
from ensemble._files import Replacements
from ensemble.uq.store.axes import axis_files, unit_in
from ensemble.uq.store.checksums import AGAIN, Checksums
from ensemble.uq.store.damage import EARLIER, REASONS
from ensemble.uq.store.descriptions import GROUP_FILE, RESERVED, Output, described_output, supported
from ensemble.uq.store.index import Index, Part, gather
from ensemble.uq.store.journal import Journal
from ensemble.uq.store.manifest import CHECKSUM, WIDTH, by_lines, text_of
from ensemble.uq.store.places import marked_blocks
from ensemble.uq.store.zarr_array import MASKS, ZarrArray

__all__ = ["MASKS", "compact", "read_earlier", "read_reasons"]

PANEL_BYTES = 1 << 27
FLUSH_BYTES = 1 << 28

SAMPLE = Output("sample", np.dtype("<i8"), ())


def reasons_text(reasons: Mapping[int, Any]) -> bytes:
    """The bytes of the files ``reasons.json`` and ``earlier.json``."""
    return by_lines({str(i): reasons[i] for i in sorted(reasons)})


def read_reasons(private: Path) -> dict[int, str]:
    """Why compacted samples failed; of those whose file is damaged nothing is known."""
    try:
        found = json.loads((private / REASONS).read_bytes())
        return {int(i): str(reason) for i, reason in found.items()}
    except (FileNotFoundError, ValueError, AttributeError, RecursionError):
        return {}


def read_earlier(private: Path) -> dict[int, list[str]]:
    """Why earlier attempts of compacted samples failed; a file that is damaged says nothing."""
    try:
        found = json.loads((private / EARLIER).read_bytes())
        return {int(i): [str(reason) for reason in texts] for i, texts in found.items()}
    except (FileNotFoundError, ValueError, AttributeError, TypeError, RecursionError):
        return {}


class Writer:
    """Replacements that are put in place whenever `FLUSH_BYTES` are waiting."""

    def __init__(self, files: Replacements, checksums: Checksums) -> None:
        self.files, self.checksums, self.waiting = files, checksums, 0

    def write(self, path: Path, contents: Any) -> None:
        self.files.write(path, lambda file: file.write(contents))
        self.waiting += len(contents)
        if self.waiting > FLUSH_BYTES:
            self.commit()

    def write_chunk(self, path: Path, contents: np.ndarray) -> None:
        """Write a chunk and note its checksum."""
        self.checksums.note(path, contents)
        self.write(path, contents)

    def commit(self) -> None:
        """Put in place what is waiting."""
        self.checksums.write(self.files)
        self.files.commit()
        self.waiting = 0

    def write_changed(self, path: Path, contents: bytes, *, note: bool = True) -> None:
        """Write `contents` unless the file has them, and note their checksum."""
        if note:
            self.checksums.note(path, contents)
        if not path.exists() or path.read_bytes() != contents:
            self.write(path, contents)


def compact(
    folder: Path, private: Path, manifest: dict[str, Any], outputs: Iterable[Output], journal: Journal, index: Index,
    inputs: Mapping[str, np.ndarray], checksums: Checksums, damaged: Mapping[str, set[int]],
) -> None:  # fmt: skip
    """Bring the Zarr group in `folder` up to the journal's state; the journal stays as it is.

    Columns of chunks that are `damaged`, by array, are written anew from the journal and from `inputs`.
    """
    n = len(index.done)
    kept_as: dict[str, Any] = {"checksums": checksums, "most": manifest.get(WIDTH)}
    arrays = [ZarrArray(folder / o.name, o, dims=dims_of(manifest, o), **kept_as) for o in outputs]
    found = coordinate_outputs({array.output.name for array in arrays}, inputs, n)
    coordinates = {ZarrArray(folder / o.name, o, **kept_as): values for o, values in found}
    masks = {ZarrArray(folder / o.name, o, **kept_as): getattr(index, o.name) for o in MASKS}
    ids = ZarrArray(folder / SAMPLE.name, SAMPLE, **kept_as)
    with Replacements(durable=True) as files:
        writer = Writer(files, checksums)
        source = Source(journal, index)
        for array in arrays:
            write_outputs(writer, array, source, damaged.get(array.output.name, set()))
        for array, values in {**coordinates, ids: np.arange(n)}.items():
            write_values(writer, array, values, written_columns(array, index, damaged))
        for name, texts in ((REASONS, index.reasons), (EARLIER, index.earlier)):
            if texts or checksums.key_of(private / name) in checksums:  # those of samples that were run again go
                writer.write_changed(private / name, reasons_text(texts))
        writer.write(private / "manifest.json", text_of(manifest))
        files.sync_folder(folder.parent)  # `create` leaves all to the first flush
        for array, values in masks.items():
            write_values(writer, array, values, written_columns(array, index, damaged))
        members = {a.output.name: a.metadata(n, unit_in(manifest, a.output.name)) for a in arrays}
        members |= {
            a.output.name: a.metadata(n, labels_in(manifest, name))
            for name, a in [*((None, a) for a in (*masks, ids)), *zip(inputs, coordinates, strict=True)]
        }
        for name, (metadata, chunk) in axis_files(manifest).items():
            writer.write_changed(folder / name / "c.0", chunk)
            members[name] = metadata
        lost = GROUP_FILE in damaged and bool(inputs)
        kept = {} if lost else kept_coordinates(folder, set(members), n)
        members |= kept
        for name, metadata in members.items():
            writer.write_changed(folder / name / GROUP_FILE, json_text(metadata))
        names = [*(array.output.name for array in coordinates), *kept]
        writer.write_changed(folder / GROUP_FILE, group_text(manifest, names, members), note=False)
        writer.commit()
    checksums.drop_earlier()


def dims_of(manifest: dict[str, Any], output: Output) -> tuple[str, ...] | None:
    """Names of the output's axes, if the manifest has them."""
    dims = manifest["outputs"][output.name].get("dims")
    return None if dims is None else tuple(dims)


def coordinate_outputs(taken: set[str], inputs: Mapping[str, np.ndarray], n: int) -> list[tuple[Output, np.ndarray]]:
    """The input values by what they are in the store: an input with the name of an output is called NAME_input."""
    found: list[tuple[Output, np.ndarray]] = []
    used = {*taken, *RESERVED}
    for name, given in inputs.items():
        values = np.asarray(given)
        if values.ndim < 1 or values.shape[-1] != n or not supported(values.dtype):
            requirement = f"be an array of numbers of shape (..., {n})"
            seen = f"shape {values.shape} of {values.dtype}"
            raise ValueError(message("Store.compact", f"inputs[{name!r}]", requirement, seen))
        own = name
        while own in used or (own != name and own in inputs):
            own += "_input"
        used.add(own)
        found.append((Output(own, values.dtype.newbyteorder("<"), values.shape[:-1]), values))
    return found


def labels_in(manifest: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """The labels of a categorical input as an attribute of its array, which holds their places."""
    inputs = manifest.get("inputs")
    described = inputs.get("inputs", {}) if isinstance(inputs, dict) else {}
    one = described.get(name) if isinstance(described, dict) else None
    return {"labels": one["labels"]} if isinstance(one, dict) and one.get("kind") == "categorical" else {}


def group_members(folder: Path) -> dict[str, dict[str, Any]]:
    """Metadata of the input values in the Zarr group, by name; none where nothing is compacted."""
    path = folder / GROUP_FILE
    if not path.exists():
        return {}
    try:
        group = json.loads(path.read_bytes())
        members = group["consolidated_metadata"]["metadata"]
        found = {name: dict(members[name]) for name in group["attributes"]["coordinates"].split()}
        for name, member in found.items():
            described_output("Store", str(path), name, member["data_type"], member["shape"][:-1])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        seen = f"the damaged {path} ({type(error).__name__}: {error})"
        raise ValueError(message("Store", "the metadata", "describe the inputs", seen, AGAIN)) from None
    return found


def read_coordinates(
    folder: Path, outputs: Iterable[str], n: int, checksums: Checksums, most: int | None
) -> dict[str, np.ndarray]:
    """The input values of the first `n` samples; fill where nothing is compacted."""
    found, taken = {}, {f"{name}_input" for name in (*outputs, *RESERVED)}
    for name, member in group_members(folder).items():
        output = described_output("Store", str(folder / GROUP_FILE), name, member["data_type"], member["shape"][:-1])
        array = ZarrArray(folder / name, output, checksums=checksums, most=most)
        require_chunk(array, folder)
        values = np.full((output.size, n), array.fill, dtype=output.dtype)
        array.read(np.arange(n), np.arange(n), values)
        found[name.removesuffix("_input") if name in taken else name] = values.reshape(*output.shape, n)
    return found


def require_chunk(array: ZarrArray, folder: Path) -> None:
    """Raise ValueError unless an array of inputs has a column of whole chunks: they bear its description out."""
    first = next(array.row_blocks(), None)
    columns = (int(path.name.rpartition(".")[2]) for path in array.folder.glob("c.*") if path.suffix[1:].isdecimal())
    column = next(columns, None)
    if first is not None and (column is None or array.chunk_values(first, column) is None):
        seen = f"no chunk of {array.output.name!r} in {folder}"
        raise ValueError(message("Store", "an input", "have its values in the store", seen, AGAIN))


def kept_coordinates(folder: Path, written: set[str], n: int) -> dict[str, Any]:
    """Metadata of input values that an earlier compaction wrote and this one was not given."""
    members = {name: member for name, member in group_members(folder).items() if name not in written}
    return {name: {**member, "shape": [*member["shape"][:-1], n]} for name, member in members.items()}


def written_columns(array: ZarrArray, index: Index, damaged: Mapping[str, set[int]]) -> np.ndarray:
    """The columns of chunks that are written, in order: of samples in the journal, and damaged ones.

    Of an array that is new, those of all samples that are done.
    """
    columns = marked_blocks(index.record_of >= 0 if array.metadata_path.exists() else index.done, array.n_chunk)
    extra = [column for column in damaged.get(array.output.name, ()) if column * array.n_chunk < len(index.done)]
    return np.union1d(columns, np.array(extra, dtype=columns.dtype))


def write_values(writer: Writer, array: ZarrArray, values: np.ndarray, columns: np.ndarray) -> None:
    """Write columns of chunks of an array that is in memory."""
    flat = values.reshape(array.output.size, values.shape[-1]) if values.size else values
    width = array.n_chunk
    for column in columns.tolist():
        for block in array.row_blocks():
            part = flat[block.start : block.stop, column * width : (column + 1) * width]
            chunk = np.full((len(part), width), array.fill, dtype=array.output.dtype)
            chunk[:, : part.shape[1]] = part
            writer.write_chunk(array.path(block, column), array.chunk_bytes(chunk))


class Source:
    """The samples of the journal by record, for the columns of chunks that are being written."""

    def __init__(self, journal: Journal, index: Index) -> None:
        self.journal, self.index = journal, index
        self._last: tuple[Any, list[Part]] = (None, [])

    def parts(self, panel: np.ndarray, width: int) -> list[Part]:
        """The samples of the columns `panel` of chunks; those of the last call are kept for the next output."""
        key = (width, panel.tobytes())
        if self._last[0] != key:
            first, last = int(panel[0]) * width, (int(panel[-1]) + 1) * width
            chosen = first + np.flatnonzero(self.index.record_of[first:last] >= 0)
            if len(panel) * width == last - first:
                places = chosen - first
            else:
                columns, rest = np.divmod(chosen, width)
                inside = np.isin(columns, panel)
                chosen, places = chosen[inside], (np.searchsorted(panel, columns) * width + rest)[inside]
            self._last = key, self.index.parts(chosen, places)
        return self._last[1]


def write_outputs(writer: Writer, array: ZarrArray, source: Source, damaged: set[int]) -> None:
    """Write the chunks of an output, as many columns of chunks at a time as `PANEL_BYTES` hold."""
    width, journal, index = array.n_chunk, source.journal, source.index
    columns = written_columns(array, index, {array.output.name: damaged})
    older = set(marked_blocks(index.done & (index.record_of < 0), width).tolist()) - damaged
    per_panel = max(1, PANEL_BYTES // (array.n_rows * width * array.output.dtype.itemsize))
    for first in range(0, len(columns), per_panel):
        panel = columns[first : first + per_panel]
        parts = source.parts(panel, width)
        for block in array.row_blocks():
            tile = np.full((block.stop - block.start, len(panel) * width), array.fill, dtype=array.output.dtype)
            for k, column in enumerate(panel.tolist()):
                before = array.chunk_values(block, column) if column in older else None
                if before is not None:
                    tile[:, k * width : (k + 1) * width] = before
                    done = index.done[column * width : (column + 1) * width]
                    if not done.all():  # those whose chunk of another output was lost
                        tile[:, k * width + np.flatnonzero(~done)] = array.fill
            gather(journal, parts, array.output, block.start, block.stop, tile)
            for k, column in enumerate(panel.tolist()):
                chunk = tile[:, k * width : (k + 1) * width]
                writer.write_chunk(array.path(block, column), array.chunk_bytes(chunk))


def json_text(contents: Mapping[str, Any]) -> bytes:
    """The bytes of a metadata file, a key on a line: `json` indents in Python code, ten times as slow."""
    return by_lines(contents)


def group_text(manifest: dict[str, Any], coordinates: list[str], members: dict[str, Any]) -> bytes:
    """The bytes of the group's ``zarr.json``, with the metadata of its arrays."""
    # The manifest is one text: attributes of NetCDF files, to which xarray exports, cannot be nested.
    attributes = {"coordinates": " ".join(coordinates), "manifest": json.dumps(manifest)}
    consolidated = {"kind": "inline", "must_understand": False, "metadata": members}
    group = {"attributes": attributes, "zarr_format": 3, "node_type": "group", "consolidated_metadata": consolidated}
    checksum = zlib.crc32(by_lines(group))
    return json_text({**group, "attributes": {**attributes, CHECKSUM: checksum}})
