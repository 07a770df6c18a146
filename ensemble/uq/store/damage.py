"""What is left of the compacted samples of a store whose files may be missing, cut, altered or of another study.

Every file of a compaction has a checksum. A sample counts as done where the masks mark it and each chunk that holds its
outputs is there; of damaged files the samples are lost and run again. Files of a killed compaction are no damage: the
journal still has every sample that it began to write.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import zlib
from collections.abc import Collection, Mapping

import numpy as np

from ensemble.uq.store.checksums import Checksums
from ensemble.uq.store.descriptions import GROUP_FILE, Output
from ensemble.uq.store.manifest import CHECKSUM, by_lines
from ensemble.uq.store.places import marked_blocks
from ensemble.uq.store.zarr_array import MASKS, ZarrArray

__all__ = ["EARLIER", "REASONS", "Examination", "examined"]

REASONS = "reasons.json"

EARLIER = "earlier.json"
"""Why earlier attempts failed of samples that were run again."""

MISSING = "is missing"


class Examination:
    """The compacted samples of a store, and its damaged files.

    Attributes
    ----------
    done, failed : bool array, (n,)
        The compacted samples that are whole.
    problems : dict of str to str
        What is wrong with a file, by its path in the store.
    lost : bool array, (n,)
        Samples that were compacted and have to run again, as far as they are known by number.
    reasons_lost : bool
        Whether the reasons of failures cannot be trusted.
    columns : dict of str to set of int
        Columns of chunks that have to be written again, by array; it has the key ``zarr.json`` where that is damaged.
    """

    def __init__(
        self,
        outputs: Mapping[str, Output],
        in_journal: np.ndarray,
        checksums: Checksums,
        whole: bool,
        axes: Collection[str],
        most: int | None,
    ) -> None:
        self.folder, self.checksums, self.in_journal, self.whole = checksums.folder, checksums, in_journal, whole
        n, self.most = len(in_journal), most
        self.done, self.failed, self.lost = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        self.problems: dict[str, str] = {}
        self.columns: dict[str, set[int]] = {}
        self.reasons_lost = False
        self._small = {"sample", *axes}
        self._seen: set[str] = set()
        self._is_open = checksums.is_open()
        self._masks()
        for output in outputs.values():
            self._output(output)
        self._others()
        self.done &= ~self.lost
        self.failed &= ~self.lost

    def _state(self, key: str, size: int | None, *, read: bool) -> str:
        """What is wrong with a file; empty where nothing is."""
        path = self.folder / key
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                return "is no file"
            if found.st_size != size and (size is not None or not found.st_size):
                return f"has {found.st_size} bytes" + (f" and not {size}" if size else "")
            if key not in self.checksums:
                return "has no checksum"
            if read and not self.checksums.matches(key, np.memmap(path, dtype=np.uint8, mode="r")):
                return "is not what was written"
        except (FileNotFoundError, NotADirectoryError):
            return MISSING
        return ""

    def _note(self, key: str, text: str) -> None:
        """Note a damaged file, and the column of chunks that it is part of."""
        self.problems[key] = text
        if key == GROUP_FILE:
            self.columns[key] = set()
        name, _, file = key.rpartition("/")
        column = file.rpartition(".")[2]
        if file != GROUP_FILE and column.isdecimal():
            self.columns.setdefault(name, set()).add(int(column))

    def _masks(self) -> None:
        """Take the masks over; those of a damaged column are False."""
        unlisted: list[str] = []
        arrays = [ZarrArray(self.folder / mask.name, mask, most=self.most) for mask in MASKS]
        width = arrays[0].n_chunk
        for column in self._mask_columns(-(-len(self.done) // width)):
            keys = [f"{mask.name}/c.{column}" for mask in MASKS]
            texts = [self._state(key, width, read=True) for key in keys]
            self._seen.update(keys)
            ids = slice(column * width, min((column + 1) * width, len(self.done)))
            if not any(texts):
                for key, own in zip(keys, (self.done, self.failed), strict=True):
                    own[ids] = np.memmap(self.folder / key, dtype=bool, mode="r")[: ids.stop - ids.start]
            elif self._is_killed(keys, texts, ids):
                continue
            else:
                for key, text in zip(keys, texts, strict=True):
                    if text:
                        self._note(key, text)
                        unlisted += [key] if key not in self.checksums else []
        self._checksum_file(unlisted)

    def _mask_columns(self, n_columns: int) -> list[int]:
        """The columns of which there is a chunk of a mask, or ought to be."""
        folders = {mask.name for mask in MASKS}
        found = {file for folder, _, file in (key.rpartition("/") for key in self.checksums) if folder in folders}
        for folder in folders:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found.update(os.listdir(self.folder / folder))
        columns = {int(name[2:]) for name in found if name.startswith("c.") and name[2:].isdecimal()}
        return sorted(column for column in columns if column < n_columns)

    def _is_killed(self, keys: list[str], texts: list[str], ids: slice) -> bool:
        """Whether these chunks of masks are those of a killed compaction, which the journal replaces."""
        for key, text in zip(keys, texts, strict=True):
            if text == MISSING and (self._is_open or key not in self.checksums):
                continue
            if text and text != "has no checksum":
                return False
        first = self.folder / keys[0]
        if texts[0] == MISSING:
            return self._is_open or texts[1] == MISSING
        said = np.memmap(first, dtype=bool, mode="r")[: ids.stop - ids.start]
        return bool((self.in_journal[ids] | ~said).all())

    def _checksum_file(self, unlisted: list[str]) -> None:
        """Name the file of checksums where it is the cause."""
        checksums = self.checksums
        if not checksums.problem:
            return
        compacted = (self.folder / GROUP_FILE).exists()
        killed = checksums.problem == MISSING and not unlisted and (not compacted or self.in_journal.any())
        if not killed:
            for key in unlisted:
                del self.problems[key]
            self.problems[checksums.key_of(checksums.path)] = checksums.problem
            self.columns[GROUP_FILE] = set()

    def _output(self, output: Output) -> None:
        """Find the samples whose chunks of an output are not whole."""
        array = ZarrArray(self.folder / output.name, output, most=self.most)
        width, size = array.n_chunk, array.n_rows * array.n_chunk * output.dtype.itemsize
        needed = self.done & ~self.failed & ~self.in_journal
        for column in marked_blocks(needed, width).tolist():
            for block in array.row_blocks():
                key = self.checksums.key_of(array.path(block, column))
                self._seen.add(key)
                text = self._state(key, size, read=self.whole)
                if text:
                    self._note(key, text)
                    ids = slice(column * width, (column + 1) * width)
                    self.lost[ids] |= needed[ids]
                    if not self.whole:
                        break  # a reader is refused anyway: the size of a damaged description bounds nothing

    def _others(self) -> None:
        """Find damage in the files of inputs, in metadata and in the reasons of failures."""
        if text := self._group_text():
            self._note(GROUP_FILE, text)
        reasons = f"{self.checksums.private.name}/{REASONS}"
        for key in self.checksums:
            small = key.endswith("json") or key.partition("/")[0] in self._small
            text = "" if key in self._seen else self._state(key, None, read=small or self.whole)
            if not text or (text == MISSING and self._is_open):
                continue
            self._note(key, text)
            if key == reasons:
                self.reasons_lost = True
                self.lost |= self.done & self.failed & ~self.in_journal

    def _group_text(self) -> str:
        """What is wrong with the metadata of the group, which have a checksum of their own."""
        compacted = self.done & ~self.in_journal
        try:
            group = json.loads((self.folder / GROUP_FILE).read_bytes())
            expected = group["attributes"].pop(CHECKSUM, None)
            found = json.loads(group["attributes"]["manifest"])
            if found.get("identity", self.checksums.identity) != self.checksums.identity:
                self.lost |= compacted
                self.reasons_lost = True
                return "is of another study"
            return "" if expected in (None, zlib.crc32(by_lines(group))) else "is not what was written"
        except FileNotFoundError:
            return MISSING if compacted.any() else ""
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return f"is damaged: {type(error).__name__}"

    def text(self) -> str:
        """The damaged files in a message."""
        shown = [f"{key} {text}" for key, text in sorted(self.problems.items())]
        more = f", ... ({len(shown)} files in all)" if len(shown) > 6 else ""
        return ", ".join(shown[:6]) + more


def examined(
    outputs: Mapping[str, Output],
    in_journal: np.ndarray,
    checksums: Checksums,
    *,
    whole: bool,
    axes: Collection[str] = (),
    most: int | None,
) -> Examination:
    """The compacted samples of a store; `whole` compares the bytes of all chunks, and not of small files alone.

    Coordinates of `axes` are small files. `most` is that of `samples_per_chunk`.
    """
    found = Examination(outputs, in_journal, checksums, whole, axes, most)
    while found.problems and checksums.reload():  # another process has compacted meanwhile
        found = Examination(outputs, in_journal, checksums, whole, axes, most)
    return found
