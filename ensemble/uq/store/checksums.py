"""CRC-32 of the compacted chunks: damage on the disk is an error when a chunk is first read.

The file maps each chunk, by its path in the store, to the checksums that it may have: one, and those before and after
a compaction that was killed between. Chunks without an entry are not checked: those of a compaction that was killed
before the entries were written, of which the journal still has every sample.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from ensemble import _check
from ensemble._files import Replacements
from ensemble.uq.store.manifest import by_lines

__all__ = ["Checksums"]


class Checksums:
    """The checksums of the chunks of the store in `folder`, in the file ``checksums.json`` of `private`."""

    def __init__(self, folder: Path, private: Path) -> None:
        self.folder, self.path = folder, private / "checksums.json"
        self._sums: dict[str, list[int]] = {}
        self._checked: set[str] = set()
        self._changed = False
        self._load()

    def _load(self) -> None:
        try:
            self._sums = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            self._sums = {}
        except ValueError as error:
            raise ValueError(f"Store: {self.path} is damaged: {error}. Restore it from a copy.") from None

    def check(self, path: Path, contents: Any) -> None:
        """Raise ValueError unless the chunk at `path` has the bytes that were written; once for each chunk."""
        key = path.relative_to(self.folder).as_posix()
        if key in self._checked or key not in self._sums:
            return
        found = zlib.crc32(contents)
        if found not in self._sums[key]:
            self._load()  # another process may have compacted meanwhile
        if found not in self._sums.get(key, [found]):
            seen = f"CRC-32 {found:08x}, and not {self._sums[key][-1]:08x}, in {path}"
            raise ValueError(
                _check.message("Store", "a chunk", "have the bytes that were written", seen, "Restore it.")
            )
        self._checked.add(key)

    def note(self, path: Path, contents: Any) -> None:
        """The chunk at `path` is about to have these contents."""
        key, new = path.relative_to(self.folder).as_posix(), zlib.crc32(contents)
        before = self._sums.get(key, [])
        if before != [new]:
            self._sums[key] = [*(one for one in before if one != new), new]
            self._changed = True

    def write(self, files: Replacements) -> None:
        """Write the file before the chunks are put in place: with them, or ahead where they replace others."""
        if not self._changed:
            return
        self._changed = False
        if not self._open():
            files.write(self.path, self._fill)
            return
        with Replacements(durable=True) as own:
            own.write(self.path, self._fill)

    def drop_earlier(self) -> None:
        """Forget the earlier checksums of each chunk: a compaction writes all chunks that one before it began."""
        if self._open():
            self._sums = {key: sums[-1:] for key, sums in self._sums.items()}
            with Replacements(durable=True) as own:
                own.write(self.path, self._fill)

    def _open(self) -> bool:
        """Whether a chunk may have one of several contents."""
        return any(len(sums) > 1 for sums in self._sums.values())

    def _fill(self, file: BinaryIO) -> None:
        file.write(by_lines(dict(sorted(self._sums.items()))))
