"""CRC-32 of the compacted files: damage on the disk is an error when a file is first read.

The file maps each chunk and each metadata file, by its path in the store, to the checksums that it may have: one, and
those before and after a compaction that was killed between. Files without an entry are those of a compaction that was
killed before the entries were written, of which the journal still has every sample.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ensemble import _check
from ensemble._files import Replacements
from ensemble.uq.store.descriptions import GROUP_FILE, is_name
from ensemble.uq.store.manifest import sealed, unsealed

__all__ = ["AGAIN", "Checksums"]

AGAIN = "propagate(..., resume=True) or `ensemble resume` runs the samples of damaged files again."


class Checksums:
    """The checksums of the files of the store in `folder`, in the file ``checksums.json`` of `private`.

    Attributes
    ----------
    problem : str
        Why the file cannot be used; empty where it can.
    """

    def __init__(self, folder: Path, private: Path, identity: int = 0) -> None:
        self.folder, self.private, self.path, self.identity = folder, private, private / "checksums.json", identity
        self._sums: dict[str, list[int]] = {}
        self._checked: set[str] = set()
        self._changed = False
        self.reload()

    def reload(self) -> bool:
        """Read the file again; returns whether it has changed."""
        before, self._sums, self.problem = self._sums, {}, ""
        try:
            found = unsealed(self.path.read_bytes())
            if not all(is_key(key, self.private.name) and is_sums(sums) for key, sums in found.items()):
                raise ValueError("it names no files of this store")
            self._sums = found
        except FileNotFoundError:
            self.problem = "is missing"
        except ValueError as error:
            self.problem = f"is damaged: {error}"
        return self._sums != before

    def __contains__(self, key: str) -> bool:
        return key in self._sums

    def __iter__(self) -> Iterator[str]:
        """The paths in the store of the files that have checksums."""
        return iter(self._sums)

    def key_of(self, path: Path) -> str:
        """The path in the store of a file."""
        return path.relative_to(self.folder).as_posix()

    def matches(self, key: str, contents: Any) -> bool:
        """Whether a file has the bytes that were written; once for each file that has."""
        if key not in self._checked and zlib.crc32(contents) in self._sums.get(key, []):
            self._checked.add(key)
        return key in self._checked

    def check(self, path: Path, contents: Any) -> None:
        """Raise ValueError unless the chunk at `path` has the bytes that were written; once for each chunk."""
        key = self.key_of(path)
        if key not in self._sums or self.matches(key, contents):
            return
        self.reload()  # another process may have compacted meanwhile
        if key in self._sums and not self.matches(key, contents):
            seen = f"CRC-32 {zlib.crc32(contents):08x}, and not {self._sums[key][-1]:08x}, in {path}"
            raise ValueError(_check.message("Store", "a chunk", "have the bytes that were written", seen, AGAIN))

    def note(self, path: Path, contents: Any) -> None:
        """The file at `path` is about to have these contents."""
        key, new = self.key_of(path), zlib.crc32(contents)
        before = self._sums.get(key, [])
        if before != [new]:
            self._sums[key] = [*(one for one in before if one != new), new]
            self._checked.discard(key)
            self._changed = True

    def write(self, files: Replacements) -> None:
        """Write the file before the chunks are put in place: with them, or ahead where they replace others."""
        if not self._changed:
            return
        self._changed = False
        if not self.is_open():
            files.write(self.path, self._fill)
            return
        with Replacements(durable=True) as own:
            own.write(self.path, self._fill)

    def drop_earlier(self) -> None:
        """Forget the earlier checksums of each chunk: a compaction writes all chunks that one before it began."""
        if self.is_open():
            self._sums = {key: sums[-1:] for key, sums in self._sums.items()}
            with Replacements(durable=True) as own:
                own.write(self.path, self._fill)

    def is_open(self) -> bool:
        """Whether a file may have one of several contents: a compaction was killed, or goes on."""
        return any(len(sums) > 1 for sums in self._sums.values())

    def _fill(self, file: BinaryIO) -> None:
        file.write(sealed(dict(sorted(self._sums.items()))))


def is_key(key: str, private: str) -> bool:
    """Whether `key` can be the path of a compacted file in its store."""
    folder, _, file = key.rpartition("/")
    if not folder:
        return file == GROUP_FILE
    return is_name(file) and (folder == private or is_name(folder))


def is_sums(sums: Any) -> bool:
    """Whether `sums` are the checksums of a file."""
    return isinstance(sums, list) and bool(sums) and all(type(one) is int for one in sums)
