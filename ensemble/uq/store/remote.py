"""`RemoteStore`: the files of a study on an object store, through fsspec.

A finished group is one object, which appears whole or not at all: the records of the journal of a `Store` on this
machine, which the study writes to beside. The records are what the study is; the Zarr group of the end is made from
them, and only for other programs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._interrupts import held, postpone, released
from ensemble.uq.store import journal, manifest
from ensemble.uq.store.checks import URL
from ensemble.uq.store.costs import COST_FILE
from ensemble.uq.store.descriptions import GROUP_FILE
from ensemble.uq.store.store import PRIVATE, Store

__all__ = ["RemotePath", "RemoteStore", "is_url"]

GROUPS = f"{PRIVATE}/groups"
MANIFEST = f"{PRIVATE}/manifest.json"

NO_OBJECTS = ("file", "local", "http", "https")
"""Schemes of folders of this machine, and of servers that take no objects."""

MOST_LISTINGS = 5
"""How often a reader lists the groups again where a writer has just packed them."""


def is_url(path: Any) -> bool:
    """Whether a store is named by the URL of a server that keeps objects, as s3://bucket/run.zarr."""
    if not isinstance(path, str) or not URL.match(path) or "://" not in path or "::" in path:
        return False
    return path.partition("://")[0].lower() not in NO_OBJECTS


class Folder:
    """A folder of an object store: whole objects by their names in it."""

    def __init__(self, function: str, url: str) -> None:
        self.function, self.url = function, url.rstrip("/")
        try:
            import fsspec

            self._fs, self._root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except ImportError as error:
            kind = url.partition(":")[0]
            advice = "pip install 'ensemble-arrays[cloud]' has fsspec, s3fs and gcsfs."
            text = _check.message(
                function, "store", f"be on a server whose package is installed ({kind})", error, advice
            )
            raise ImportError(text) from None
        except ValueError as error:
            raise ValueError(
                _check.message(function, "store", "be a URL that fsspec knows", f"{url!r}: {error}")
            ) from None

    def _tried(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What a call of the file system gives; its errors as an OSError that names the store."""
        try:
            return call(*arguments, **options)
        except FileNotFoundError:
            raise
        except Exception as error:
            known = isinstance(error, OSError) or type(error).__module__.startswith(("botocore", "aiohttp", "gcsfs"))
            if not known:
                raise
            seen = f"{type(error).__name__}: {' '.join(str(error).split())[:200]} at {self.url}"
            raise OSError(_check.message(self.function, "store", "be reachable and permit it", seen)) from error

    def read(self, name: str) -> bytes | None:
        """An object; None where there is none."""
        try:
            return bytes(self._tried(self._fs.cat_file, f"{self._root}/{name}"))
        except FileNotFoundError:
            return None

    def write(self, name: str, contents: bytes) -> None:
        """Put an object, whole."""
        self._put(self._fs.pipe_file, f"{self._root}/{name}", contents)

    def write_file(self, name: str, file: Path) -> None:
        """Put the contents of a file as an object, whole; large ones in several parts, which appear together."""
        self._put(self._fs.put_file, str(file), f"{self._root}/{name}")

    def _put(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Put an object; FileNotFoundError says here that there is no such bucket."""
        try:
            self._tried(call, *arguments)
        except FileNotFoundError as error:
            seen = f"{' '.join(str(error).split())[:200]} at {self.url}"
            raise OSError(_check.message(self.function, "store", "be reachable and permit it", seen)) from error

    def names(self, folder: str) -> list[str]:
        """The names of the objects in a folder, in order."""
        try:
            found = self._tried(self._fs.ls, f"{self._root}/{folder}", detail=False)
        except FileNotFoundError:
            return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def remove(self, names: list[str]) -> None:
        """Remove objects, many in a request."""
        try:
            if names:
                self._tried(self._fs.rm, [f"{self._root}/{name}" for name in names])
        except FileNotFoundError:  # of one, which may keep the others
            for name in names if len(names) > 1 else ():
                self.remove([name])


class RemotePath(os.PathLike[str]):
    """The place of a remote store, and the folder of this machine where its files are kept meanwhile."""

    def __init__(self, url: str, local: Path) -> None:
        self.url, self.local = url, local
        self.name = url.rpartition("/")[2]

    def __truediv__(self, name: str) -> Path:
        return self.local / name

    def __fspath__(self) -> str:
        return self.url

    def __str__(self) -> str:
        return self.url


class RemoteStore:
    """A `Store` whose finished groups are objects of a server; all its other methods are those of the local one.

    `create` and `open` make one. There is no lock: two writers run the same samples twice, and spoil nothing, as each
    object has a name of its own.
    """

    def __init__(self, local: Store, folder: Folder) -> None:
        self._local, self._folder = local, folder
        self.path = RemotePath(folder.url, local.path)
        self._remove = weakref.finalize(self, shutil.rmtree, local.path.parent, ignore_errors=True)
        self._written: list[str] = []
        self._manifest: bytes | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._local, name)

    # --- what is there
    @staticmethod
    def exists(url: str, function: str = "Store.exists") -> bool:
        """Whether there is a study."""
        return Folder(function, url).read(MANIFEST) is not None

    @staticmethod
    def stored_manifest(url: str) -> dict[str, Any]:
        """The manifest of the study, one request; ValueError where there is none."""
        with kept_files("Store.open", Folder("Store.open", url), records=False) as local:
            return manifest.read("Store.open", local / MANIFEST)

    @classmethod
    def create(cls, url: str, contents: Mapping[str, Any]) -> RemoteStore:
        """Start the store of a new study: one object, its manifest."""
        folder = Folder("Store.create", url)
        if folder.read(MANIFEST) is not None:
            advice = "Pass resume=True to continue it, or give another path."
            raise ValueError(_check.message("Store.create", "path", "be a new one", f"a study at {url}", advice))
        names = [name for name in (*folder.names(""), *folder.names(GROUPS)) if name != PRIVATE]
        advice = "Give another path, or remove what is there."
        _check.require(not names, "Store.create", "path", "be without objects", f"{names[:3]} at {url}", advice)
        store = cls(Store.create(Path(tempfile.mkdtemp(prefix="ensemble-")) / "store", contents), folder)
        store._sync_manifest()
        return store

    @classmethod
    def open(cls, url: str, contents: Mapping[str, Any] | None = None, *, force: bool = False) -> RemoteStore:
        """Open the store of a study: to continue it with a manifest, to read it without."""
        folder = Folder("Store.open", url)
        with kept_files("Store.open", folder) as local:
            store = cls(Store.open(local, contents, force=force), folder)
        store._written = [f"{GROUPS}/{name}" for name in folder.names(GROUPS)] if contents is not None else []
        store._manifest = (local / MANIFEST).read_bytes()
        if contents is not None:
            store._manifest = folder.read(MANIFEST)
            store._sync_manifest()
        return store

    # --- writing
    def append(self, ids: np.ndarray, outputs: Mapping[str, np.ndarray], *arguments: Any, **options: Any) -> None:
        """Store one finished group: one object.

        An interrupt while the server is waited for ends the wait: `compact` sends the group.
        """
        with held():
            before = self._local.journal_bytes
            self._local.append(ids, outputs, *arguments, **options)
            with (self._local.path / PRIVATE / "journal").open("rb") as file:
                file.seek(len(journal.empty(0)) + before)
                record = file.read()
            name = f"{GROUPS}/{time.time_ns():020d}-{uuid.uuid4().hex}"
            try:
                with released():
                    self._folder.write(name, record)
            except KeyboardInterrupt:
                postpone()
            self._written.append(name)

    def extend(self, n: int) -> None:
        """Let the study have `n` samples: the manifest is put again."""
        self._local.extend(n)
        self._sync_manifest()

    def compact(self, inputs: Mapping[str, np.ndarray] | None = None) -> None:
        """Pack the groups into one object, and write the Zarr group; its first file comes last.

        A kill at any instant loses nothing: a group is removed when the object that has it is there.
        """
        if self._written and self._local.journal_bytes:
            self._pack()
        self._local.compact(inputs)
        self._sync_manifest()
        self._folder.remove([GROUP_FILE] if self._folder.read(GROUP_FILE) is not None else [])
        root = self._local.path
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            name = file.relative_to(root).as_posix()
            if not name.startswith(f"{PRIVATE}/") and name != GROUP_FILE:
                self._folder.write_file(name, file)
        self._folder.write_file(GROUP_FILE, root / GROUP_FILE)
        cost = root / PRIVATE / COST_FILE
        if cost.exists():
            self._folder.write_file(f"{PRIVATE}/{COST_FILE}", cost)

    def _pack(self) -> None:
        """Put the records of the local journal as one object, and remove those that it holds."""
        if len(self._written) < 2:
            return
        source = self._local.path / PRIVATE / "journal"
        packed = source.with_name("pack")
        try:
            with source.open("rb") as file, packed.open("wb") as target:
                file.seek(len(journal.empty(0)))
                shutil.copyfileobj(file, target)
            name = f"{GROUPS}/{time.time_ns():020d}-{uuid.uuid4().hex}"
            self._folder.write_file(name, packed)
        finally:
            packed.unlink(missing_ok=True)
        old, self._written = self._written, [name]
        self._folder.remove(old)

    def _sync_manifest(self) -> None:
        """Put the manifest where it has changed."""
        text = (self._local.path / PRIVATE / "manifest.json").read_bytes()
        if text != self._manifest:
            self._folder.write(MANIFEST, text)
            self._manifest = text

    def close(self) -> None:
        """Close the store. A result reads the files of this machine, which are removed with the last use of it."""
        self._local.close()

    def discard(self) -> None:
        """Take away the store of a study that ended before its first group."""
        self.close()
        self._remove()
        names = [f"{GROUPS}/{name}" for name in self._folder.names(GROUPS)]
        self._folder.remove([*names, MANIFEST])


@contextlib.contextmanager
def kept_files(function: str, folder: Folder, *, records: bool = True) -> Iterator[Path]:
    """A new folder with the manifest of a remote study and a journal of all its groups; removed where that fails."""
    text = folder.read(MANIFEST)
    if text is None:
        advice = "en.propagate(..., store=url) without resume starts a study."
        seen = f"{folder.url}, which has no manifest of a study"
        raise ValueError(_check.message(function, "path", "be a stored study", seen, advice))
    top = Path(tempfile.mkdtemp(prefix="ensemble-"))
    try:
        local = top / "store"
        (local / PRIVATE).mkdir(parents=True)
        (local / MANIFEST).write_bytes(text)
        if records:
            identity = manifest.identity_of(manifest.read(function, local / MANIFEST))
            with (local / PRIVATE / "journal").open("wb") as file:
                file.write(journal.empty(identity))
                for record in groups_of(function, folder):
                    file.write(record)
            if (cost := folder.read(f"{PRIVATE}/{COST_FILE}")) is not None:
                (local / PRIVATE / COST_FILE).write_bytes(cost)
        yield local
    except BaseException:
        shutil.rmtree(top, ignore_errors=True)
        raise
    else:
        if not records:
            shutil.rmtree(top, ignore_errors=True)


def groups_of(function: str, folder: Folder) -> list[bytes]:
    """The records of all groups, in the order in which they were written."""
    found: dict[str, bytes] = {}
    for _ in range(MOST_LISTINGS):
        names = folder.names(GROUPS)
        for name in names:
            if name not in found:
                contents = folder.read(f"{GROUPS}/{name}")
                if contents is None:  # a writer has packed it since
                    break
                found[name] = contents
        else:
            return [found[name] for name in names]
    seen = f"objects of {folder.url} that were removed while they were read"
    raise OSError(_check.message(function, "store", "stay while it is read", seen, "Try again."))
