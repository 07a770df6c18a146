"""The journal of a store: an append-only file with one checksummed record per finished group of samples.

A record is a fixed header (marker with the record's version, number of samples, lengths, CRC-32 of the body, CRC-32 of
the header) and a body: layout (names, data types and shapes as JSON), reasons of failures (JSON), sample ids, mask of
failed samples, and each output as raw bytes of shape ``(*shape, n_samples)``. All parts start at multiples of eight
bytes, and all numbers are little-endian. Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ensemble._check import message
from ensemble._files import write_whole
from ensemble.uq.store.descriptions import Output, described_output
from ensemble.uq.store.record_texts import aligned, padded, padding, reasons_bytes, reasons_read

__all__ = ["EMPTY", "Journal", "Layout", "Output", "Record", "TornRecord", "empty"]

VERSION = 1
FILE_HEADER = struct.Struct("<8sII")
MAGIC = b"ensjrnl\n"
EMPTY = FILE_HEADER.pack(MAGIC, VERSION, 0)
"""Contents of a journal without records, of a study whose manifest has no identity."""

RECORD_HEADER = struct.Struct("<4sIQIIII")
NAME_OF_RECORDS = b"GRP"
MARKER = NAME_OF_RECORDS + bytes([VERSION])
AGAIN_MARKER = NAME_OF_RECORDS + bytes([2])
"""A record with samples that had failed before, and the reasons of their earlier attempts."""

ONE_WRITE = 1 << 20
"""Records up to this length are joined and written by one call; larger ones are not copied."""

CHECK_BYTES = 1 << 22
RESTORE = "Restore the file from a copy."


class Layout(NamedTuple):
    """The outputs of a record, and their padded JSON."""

    outputs: tuple[Output, ...]
    text: bytes

    @classmethod
    def of(cls, outputs: Sequence[Output]) -> Layout:
        text = json.dumps([[o.name, o.dtype.str, list(o.shape)] for o in outputs])
        return cls(tuple(outputs), padded(text.encode()))

    @classmethod
    def read(cls, text: bytes, path: Path) -> Layout:
        """The layout of a record of the journal `path`."""
        try:
            described = [(name, kind, shape) for name, kind, shape in json.loads(text.rstrip(b"\0"))]
        except (ValueError, TypeError, RecursionError) as error:
            raise damage(f"the layout of a record of {path}, which is no list of outputs ({error})", RESTORE) from None
        return cls(tuple(described_output("Store.open", str(path), *one) for one in described), text)


class Record(NamedTuple):
    """Where one group stands in the file."""

    number: int
    offset: int
    length: int
    n_samples: int
    layout: Layout
    arrays: int
    source: Any = None
    """The journal that has it, where that is not the one of its store."""

    def place(self, name: str) -> tuple[Output, int] | None:
        """The output `name` and the offset of its bytes; None if the group has no such output."""
        offset = self.arrays
        for output in self.layout.outputs:
            if output.name == name:
                return output, offset
            offset += aligned(output.size * output.dtype.itemsize * self.n_samples)
        return None


class Group(NamedTuple):
    """The part of a record about its samples, without the outputs."""

    record: Record
    ids: np.ndarray
    failed: np.ndarray
    reasons: dict[int, str]
    earlier: dict[int, list[str]]
    """Why all earlier attempts of a sample failed, by id."""


class TornRecord(NamedTuple):
    """The incomplete end of a journal."""

    number: int
    offset: int
    n_bytes: int


def empty(identity: int) -> bytes:
    """Contents of a journal without records of the study `identity`."""
    return FILE_HEADER.pack(MAGIC, VERSION, identity)


def damage(seen: str, advice: str) -> ValueError:
    """The error for a journal whose records cannot be trusted."""
    return ValueError(message("Store.open", "the journal", "hold whole records", seen, advice))


def newer(seen: str) -> ValueError:
    """The error for a journal that a newer version of the library has written."""
    requirement = f"be of format version {VERSION} or earlier"
    return ValueError(message("Store.open", "the journal", requirement, seen, "Use a newer version of ensemble."))


class Journal:
    """One journal file, opened for appending or for reading.

    Appending keeps the file position of the last whole record: what a failed write leaves behind is cut off, and
    overwritten by the next record where even that fails.
    """

    def __init__(self, path: Path, *, writable: bool, identity: int = 0) -> None:
        self.path, self.identity, self._writable = path, identity, writable
        flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)  # the latter on Windows
        self._descriptor = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | flags)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self._layouts: dict[Any, Layout] = {}
        self._texts: dict[bytes, Layout] = {}
        self._n_records = 0
        self._synced = True
        self.end = FILE_HEADER.size
        self.torn: TornRecord | None = None

    @property
    def n_bytes(self) -> int:
        """Length of the records."""
        return self.end - FILE_HEADER.size

    def append(
        self,
        ids: np.ndarray,
        outputs: Mapping[str, np.ndarray],
        failed: np.ndarray,
        reasons: Mapping[int, str],
        earlier: Mapping[int, Sequence[str]] | None = None,
    ) -> Record:
        """Write one group; arrays are C-contiguous, little-endian, `ids` int64 and `failed` bool."""
        layout = self._layout(outputs)
        why = reasons_bytes(reasons, earlier)
        parts: list[Any] = [layout.text, why, ids, failed, padding(failed.nbytes)]
        n_bytes = len(layout.text) + len(why) + ids.nbytes + aligned(failed.nbytes)
        arrays = self.end + RECORD_HEADER.size + n_bytes
        for array in outputs.values():
            if array.nbytes:
                parts += (array, padding(array.nbytes))
                n_bytes += aligned(array.nbytes)
        if n_bytes <= ONE_WRITE:
            parts = [b"".join(parts)]
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        marker = AGAIN_MARKER if earlier else MARKER
        header = RECORD_HEADER.pack(marker, len(ids), n_bytes, len(layout.text), len(why), checksum, 0)[:-4]
        header += struct.pack("<I", zlib.crc32(header))
        record = Record(self._n_records, self.end, RECORD_HEADER.size + n_bytes, len(ids), layout, arrays)
        self._write([header, *parts], record.length)
        self._n_records += 1
        self.end += record.length
        self._synced = False
        return record

    def _layout(self, outputs: Mapping[str, np.ndarray]) -> Layout:
        key = tuple((name, a.dtype, a.shape[:-1]) for name, a in outputs.items())
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = Layout.of([Output(*one) for one in key])
        return found

    def _write(self, parts: list[Any], length: int) -> None:
        """Write at the end of the last record; on any failure the file ends there again."""
        os.lseek(self._descriptor, self.end, os.SEEK_SET)
        if length <= ONE_WRITE:
            chunks: list[Any] = [b"".join(parts)]
        else:
            chunks = [np.frombuffer(part, dtype=np.uint8) for part in parts if len(part)]
        try:
            for chunk in chunks:
                written = os.write(self._descriptor, chunk)
                while written < len(chunk):  # the kernel writes at most 2 GiB by one call, and less on a full disk
                    written += os.write(self._descriptor, chunk[written:])
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.end)
            raise

    def sync(self) -> None:
        """Wait until the records are on the disk."""
        if not self._synced:
            getattr(os, "fdatasync", os.fsync)(self._descriptor)
            self._synced = True

    def groups(self) -> Iterator[Group]:
        """Check and describe all records in order; `torn` is the incomplete end afterwards, if there is one.

        Raises ValueError where whole records follow on a damaged one.
        """
        size = os.fstat(self._descriptor).st_size
        if size:
            self._check_file_header(size)
        elif self._writable:
            os.write(self._descriptor, empty(self.identity))
        while self.end < size:
            group = self._group(self.end, size)
            if group is None:
                self._end_or_damage(size)
                return
            self._n_records += 1
            self.end += group.record.length
            yield group

    def require_as_written(self) -> None:
        """Raise where another program has changed records, or put the journal of another study in their place.

        Where the file was moved or removed, the open one still has all records.
        """
        wanted, size, at = "hold what the study wrote", os.fstat(self._descriptor).st_size, FILE_HEADER.size
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            found = file.read(FILE_HEADER.size)
            if len(found) == FILE_HEADER.size and FILE_HEADER.unpack(found)[2] != self.identity:
                seen = f"that of another study, which was begun meanwhile, in {self.path}"
                raise ValueError(message("Store.compact", "the journal", wanted, seen, "Give each a path of its own."))
        if size >= self.end > at:
            with mmap.mmap(self._descriptor, self.end, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
                while at < self.end and view[at : at + len(NAME_OF_RECORDS)] == NAME_OF_RECORDS:
                    fields = RECORD_HEADER.unpack_from(view, at)
                    body = at + RECORD_HEADER.size
                    if zlib.crc32(view[body : body + fields[2]]) != fields[5]:
                        break
                    at = body + fields[2]
        if at != self.end:
            seen = f"other bytes from offset {at} of {self.path}"
            advice = "Another program has changed the file while the study ran."
            raise ValueError(message("Store.compact", "the journal", wanted, seen, advice))

    def cut(self) -> str:
        """Remove the incomplete end; returns what is removed."""
        os.ftruncate(self._descriptor, self.end)
        record, offset, n_bytes = self.torn or (self._n_records, self.end, 0)
        return (
            f"record {record} of the journal, the last, is incomplete ({n_bytes} bytes from byte offset {offset}). "
            "It is cut off, and its samples run again."
        )

    def emptied(self) -> Journal:
        """A journal without records in the place of this one, which is closed; readers keep the old file.

        It need not reach the disk: after a power failure the old one is compacted again, and a file without any
        contents is an empty journal.
        """
        write_whole(self.path, lambda file: file.write(empty(self.identity)))
        self.close()
        return Journal(self.path, writable=True, identity=self.identity)

    def rows(self, record: Record, output: Output, offset: int, start: int, stop: int) -> np.ndarray:
        """Values `start` to `stop` of an output that starts at `offset`, for all samples: (stop - start, n_samples)."""
        row = record.n_samples * output.dtype.itemsize
        read = self._read(offset + start * row, (stop - start) * row)
        return np.frombuffer(read, dtype=output.dtype).reshape(stop - start, record.n_samples)

    @property
    def opened(self) -> bool:
        """Whether `close` has not been called."""
        return self._close.alive

    def close(self) -> None:
        """Close the file."""
        self._close()

    def _read(self, offset: int, n_bytes: int) -> bytes:
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        pieces = []
        while n_bytes:
            piece = os.read(self._descriptor, n_bytes)
            if not piece:
                raise damage(f"one that ends at byte offset {offset} in {self.path}", RESTORE)
            pieces.append(piece)
            n_bytes -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _check_file_header(self, size: int) -> None:
        found = self._read(0, min(FILE_HEADER.size, size))
        if len(found) < FILE_HEADER.size or found[: len(MAGIC)] != MAGIC:
            raise damage(f"{self.path}, which does not start as one", RESTORE)
        _, version, identity = FILE_HEADER.unpack(found)
        if version > VERSION:
            raise newer(f"format version {version} in {self.path}")
        if identity != self.identity:
            raise damage(f"those of another study in {self.path}", RESTORE)

    def _header(self, offset: int, size: int) -> tuple[int, int, int, int, int] | None:
        """Samples, body length, layout length, reasons length, checksum of the record at `offset`; None if damaged."""
        if offset + RECORD_HEADER.size > size:
            return None
        found = self._read(offset, RECORD_HEADER.size)
        marker, *fields, own = RECORD_HEADER.unpack(found)
        if marker[:3] != NAME_OF_RECORDS or zlib.crc32(found[:-4]) != own:
            return None
        if marker not in (MARKER, AGAIN_MARKER):
            raise newer(f"format version {marker[3]} in record {self._n_records} (byte offset {offset}) of {self.path}")
        n_samples, length, layout, reasons, checksum = fields
        return n_samples, length, layout, reasons, checksum

    def _whole(self, offset: int, size: int) -> tuple[int, int, int, int] | None:
        """The header of the record at `offset` without its checksum; None if any byte of the record is damaged."""
        header = self._header(offset, size)
        if header is None or offset + RECORD_HEADER.size + header[1] > size:
            return None
        *fields, expected = header
        at, left, checksum = offset + RECORD_HEADER.size, header[1], 0
        while left:
            piece = self._read(at, min(left, CHECK_BYTES))
            checksum = zlib.crc32(piece, checksum)
            at, left = at + len(piece), left - len(piece)
        return (fields[0], fields[1], fields[2], fields[3]) if checksum == expected else None

    def _group(self, offset: int, size: int) -> Group | None:
        header = self._whole(offset, size)
        if header is None:
            return None
        n_samples, length, layout_length, reasons_length = header
        head = layout_length + reasons_length
        n_front = head + 8 * n_samples + aligned(n_samples)
        if n_front > length:
            raise damage(f"record {self._n_records} of {self.path}, whose parts are longer than it is", RESTORE)
        front = self._read(offset + RECORD_HEADER.size, n_front)
        text = front[:layout_length]
        layout = self._texts.get(text)
        if layout is None:
            layout = self._texts[text] = Layout.read(text, self.path)
        n_arrays = sum(aligned(one.size * one.dtype.itemsize * n_samples) for one in layout.outputs)
        if n_front + n_arrays != length:
            raise damage(f"record {self._n_records} of {self.path}, whose arrays are not as long as it says", RESTORE)
        why = front[layout_length:head].rstrip(b"\0")
        record = Record(
            self._n_records, offset, RECORD_HEADER.size + length, n_samples, layout,
            offset + RECORD_HEADER.size + len(front),
        )  # fmt: skip
        ids = np.frombuffer(front, dtype="<i8", count=n_samples, offset=head)
        failed = np.frombuffer(front, dtype=bool, count=n_samples, offset=head + 8 * n_samples)
        reasons, earlier = reasons_read(why)
        return Group(record, ids, failed, reasons, earlier)

    def _end_or_damage(self, size: int) -> None:
        """Note the incomplete end, unless a whole record follows: then this is damage in the middle."""
        later = self._next_whole(self.end, size)
        if later is not None:
            raise damage(
                f"record {self._n_records} at byte offset {self.end} of {self.path}, which does not match its checksum "
                f"while whole records follow from byte offset {later}",
                f"{RESTORE} Or keep the {self._n_records} records before it, and the samples after it run again: "
                f"truncate -s {self.end} {self.path}",
            )
        self.torn = TornRecord(self._n_records, self.end, size - self.end)

    def _next_whole(self, start: int, size: int) -> int | None:
        """Byte offset of the next whole record after `start`."""
        with mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ) as contents:
            at = contents.find(NAME_OF_RECORDS, start + 1)
            while at >= 0:
                if self._whole(at, size) is not None:
                    return at
                at = contents.find(NAME_OF_RECORDS, at + 1)
        return None
