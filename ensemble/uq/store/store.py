"""`Store`: the files of one study, from the first finished group to the Zarr group that xarray opens.

Longer than 400 lines: one class, half of it docstrings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._check import warn_caller
from ensemble._files import Replacements, sync, write_whole
from ensemble._interrupts import held
from ensemble._typing import Ids
from ensemble.uq.store import compaction
from ensemble.uq.store import manifest as manifests
from ensemble.uq.store.axes import AXES, names_of_axes
from ensemble.uq.store.checks import (
    Reading,
    Writing,
    group_checked,
    has_groups,
    local_folder,
    require_empty,
    require_no_journal,
    seconds_checked,
)
from ensemble.uq.store.checksums import AGAIN, Checksums
from ensemble.uq.store.claims import PARTS, Claim, ended_files, require_no_jobs
from ensemble.uq.store.damage import Examination, examined
from ensemble.uq.store.descriptions import GROUP_FILE, Output
from ensemble.uq.store.index import Index, gather
from ensemble.uq.store.journal import Group, Journal, empty
from ensemble.uq.store.lock import Lock
from ensemble.uq.store.widths import MAX_SAMPLES, samples_per_chunk
from ensemble.uq.store.zarr_array import ZarrArray, fill_value

__all__ = ["Store"]

PRIVATE = ".ensemble"
"""Folder of the journal, the manifest and the lock: names with a dot are hidden from Zarr's listing."""


class Store:
    """Outputs of a study on disk: a journal of finished groups, compacted into a Zarr group.

    `create` and `open` make one; the constructor is not for users. The folder is a Zarr group of version 3 after the
    first `compact`, and ``xarray.open_zarr(path)`` opens it: one variable per output with dimensions ``(..., sample)``,
    the masks ``done`` and ``failed``, and the input values as coordinates. Samples that failed or are not done are NaN;
    in integer and bool outputs they are 0 and False, and only the masks tell.

    Studies with equal outputs end with equal files, byte for byte, whatever the order and size of their groups and
    wherever they were interrupted: chunks depend on the output's size and data type, and in studies that begin with
    65,536 samples or more on that number.

    Attributes
    ----------
    path : pathlib.Path
    manifest : dict
        What the study is, as JSON reads it back, with the library's versions and the outputs.
    outputs : dict of str to Output
        Name, data type and shape per sample; empty until the first group with outputs is stored.

    Notes
    -----
    `append` hands a record to the operating system before it returns: a process that is killed loses no group whose
    `append` has returned. The record reaches the disk within `sync_seconds` of further appends, or at `compact` or
    `close`: a power failure loses at most the groups of the last `sync_seconds` before the last append. What it loses
    runs again on resuming.

    One process writes at a time, from one thread; any number may read. Nothing read from a store is unpickled.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "run.zarr")
    >>> with Store.create(path, {"n": 4, "seed": 1}) as store:
    ...     store.append(np.array([2, 0]), {"tip": np.array([2.5, 0.5])})
    ...     store.compact()
    >>> store = Store.open(path)
    >>> store.done()
    array([ True, False,  True, False])
    >>> store.read("tip", [0, 2])
    array([0.5, 2.5])
    """

    def __init__(
        self,
        path: Path,
        manifest: dict[str, Any],
        journal: Journal,
        lock: Lock | Claim | None,
        sync_seconds: float,
        others: Sequence[Journal] = (),
    ) -> None:
        self.path, self._private, self._journal = path, path / PRIVATE, journal
        self.manifest, self.outputs = manifest, manifests.outputs_of(manifest, self._private / "manifest.json")
        self._lock, self._sync_seconds, self._synced = lock, sync_seconds, time.monotonic()
        self._on_disk = True
        self._accepted: dict[str, Any] = {}  # of another model, until it has given a group that fits
        self._index = Index(manifest["n"])
        self._others = list(others)
        for one in [*others, journal] if isinstance(lock, Claim) else [journal, *others]:
            self._read_journal(one)
        self._checksums = Checksums(path, self._private, manifests.identity_of(manifest))
        axes = (manifest.get(AXES) or {}).get("coordinates", {})
        in_journal = self._index.record_of >= 0
        whole = isinstance(lock, Lock)  # who rewrites chunks compares all of them
        self._most = manifest.get(manifests.WIDTH)
        found = examined(self.outputs, in_journal, self._checksums, whole=whole, axes=axes, most=self._most)
        self._damaged_columns = found.columns
        reasons = {} if found.reasons_lost else compaction.read_reasons(self._private)
        earlier = compaction.read_earlier(self._private)
        self._index.add_compacted(found.done, found.failed, reasons, earlier)
        if found.problems:
            self._tell_damage(found)
        if journal.torn is not None and lock is not None:
            warn_caller(f"Store.open: {journal.cut()}", RuntimeWarning)

    def _read_journal(self, journal: Journal) -> None:
        """Take over the groups of one journal."""
        for group in journal.groups():
            if journal is not self._journal:
                group = group._replace(record=group.record._replace(source=journal))
            self._index.add(group)
            outputs = group.record.layout.outputs
            if outputs and not self.outputs:
                self._add_outputs(outputs)
            if outputs and {output.name: output for output in outputs} != self.outputs:
                seen = f"others in record {group.record.number} of {journal.path}"
                raise ValueError(_check.message("Store.open", "outputs", f"be {', '.join(self.outputs)}", seen))

    def _tell_damage(self, found: Examination) -> None:
        """Refuse a damaged store to readers; say what a writer has to run again."""
        if self._lock is None:
            seen = f"damage in {self.path}: {found.text()}"
            raise ValueError(_check.message("Store.open", "the store", "have the files that were written", seen, AGAIN))
        again = np.flatnonzero(found.lost)
        what = f"{_check.samples_text(again)} run again" if again.size else "it is made again"
        text = f"Store.open: files of {self.path} are damaged: {found.text()}; what they held is lost, and {what}."
        _check.warn_caller(text, RuntimeWarning)

    @property
    def writable(self) -> bool:
        """Whether this object may append and compact."""
        return self._lock is not None

    @property
    def n(self) -> int:
        """Number of samples of the study."""
        return len(self._index.done)

    @property
    def journal_bytes(self) -> int:
        """Length of the records that are not compacted yet."""
        return self._journal.n_bytes

    @property
    def block_size(self) -> int:
        """Samples per block of `blocks`: a power of two that depends on the outputs' sizes and data types only."""
        return min((samples_per_chunk(output) for output in self.outputs.values()), default=MAX_SAMPLES)

    @staticmethod
    def exists(path: str | os.PathLike[str]) -> bool:
        """Whether `path` holds a study: one killed while `create` ran is none, and can be created again."""
        return (local_folder("Store.exists", path) / PRIVATE / "manifest.json").exists()

    @classmethod
    def stored_manifest(cls, path: str | os.PathLike[str]) -> dict[str, Any]:
        """The manifest of the study at `path`, from its file alone: nothing else is read or checked.

        Raises
        ------
        ValueError
            If there is no study, or its manifest is damaged.
        """
        private = cls._private_of("Store.open", path)
        with Reading("Store.open", private):
            return manifests.read("Store.open", private / "manifest.json")

    @classmethod
    def _private_of(cls, function: str, path: str | os.PathLike[str]) -> Path:
        """The private folder of the study at `path`; ValueError where there is none."""
        folder = local_folder(function, path)
        private = folder / PRIVATE
        with Reading(function, folder):
            if cls.exists(folder):
                return private
            if has_groups(private / "journal") or (folder / GROUP_FILE).exists():
                advice = "Restore it from a copy; zarr.json, where there is one, has its text as attribute 'manifest'."
                seen = f"a damaged one: {private / 'manifest.json'} is missing"
                raise ValueError(_check.message(function, "path", "be a stored study", seen, advice))
        advice = "Store.create, or en.propagate(..., store=path) without resume, starts a study."
        seen = f"{Path(path)}, which {'has no manifest of a study' if folder.exists() else 'does not exist'}"
        raise ValueError(_check.message(function, "path", "be a stored study", seen, advice))

    @classmethod
    def create(cls, path: str | os.PathLike[str], manifest: Mapping[str, Any], *, sync_seconds: float = 5.0) -> Store:
        """Start the store of a new study.

        Parameters
        ----------
        path : path of a folder
            It is made, with its parents; an empty one is used.
        manifest : dict
            What makes the study this study and no other, of numbers, text, lists and dicts. ``n`` is the number of
            samples. ``source_digest``, ``versions`` (added if it is missing) and ``outputs`` (added with the first
            group: name to ``{"dtype": ..., "shape": [...], "dims": [...]}``) are as in `open`.
        sync_seconds : float, s
            Longest time between two flushes of the journal to the disk while groups are appended; 0 flushes after
            every group, ``inf`` never.

        Returns
        -------
        Store

        Raises
        ------
        ValueError
            If `path` is a study already, or a file, or a folder with other files, or a URL.
        TypeError
            If `manifest` is no dict or holds what JSON cannot.
        BlockingIOError
            If another process is creating a study there.
        OSError
            If the files cannot be written.
        """
        seconds = seconds_checked("Store.create", sync_seconds)
        folder = local_folder("Store.create", path)
        copy = manifests.identified(manifests.checked("Store.create", manifest))
        advice = "Pass resume=True to continue it, or give another path."
        _check.require(
            not cls.exists(folder), "Store.create", "path", "be a new one", f"a study at {Path(path)}", advice
        )
        require_empty("Store.create", Path(os.path.expanduser(path)), PRIVATE)
        require_no_journal("Store.create", folder / PRIVATE / "journal")
        with Writing("Store.create", folder):
            (folder / PRIVATE).mkdir(parents=True, exist_ok=True)
            lock = Lock("Store.create", folder / PRIVATE / "lock")
            try:
                with Replacements() as files:
                    journal = empty(manifests.identity_of(copy))
                    files.write(folder / PRIVATE / "journal", lambda file: file.write(journal))
                    files.write(folder / PRIVATE / "manifest.json", lambda file: file.write(manifests.text_of(copy)))
                store = cls(folder, copy, cls._journal_of(folder / PRIVATE, copy, writable=True), lock, seconds)
                store._on_disk = False
                return store
            except BaseException:
                lock.release()
                raise

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        manifest: Mapping[str, Any] | None = None,
        *,
        force: bool = False,
        sync_seconds: float = 5.0,
    ) -> Store:
        """Open the store of a study: to continue it with `manifest`, to read it without.

        Parameters
        ----------
        path : path of a folder
        manifest : dict, optional
            As for `create`. It must equal the stored one, but for ``n``, which may grow, and ``versions``: other
            versions warn, as results may differ in the last digits, and are noted as ``later_versions``. Without
            it the store is opened for reading, also while another process writes.
        force : bool
            Accept another ``source_digest``, and nothing else; it is stored with the first group that fits.
        sync_seconds : float, s
            As for `create`.

        Returns
        -------
        Store

        Raises
        ------
        ValueError
            If there is no study at `path`, or `path` is a URL; it is of a newer format, its manifest is damaged or
            differs (each key is named with both values), or its journal is damaged other than at its end; without
            `manifest` also if any other file is missing, cut, altered or of another study.
        BlockingIOError
            If another process writes to the store.
        OSError
            If the files cannot be written, or not be read.

        Warns
        -----
        RuntimeWarning
            If the last record of the journal is incomplete or files are damaged (their samples are not done, and run
            again), or versions differ.
        """
        private = cls._private_of("Store.open", path)
        folder = private.parent
        if manifest is None:
            with Reading("Store.open", folder):
                stored = manifests.read("Store.open", private / "manifest.json")
                others = cls.journals_of_parts(private, manifests.identity_of(stored))
                journal = cls._journal_of(private, stored, writable=False)
                # After the journals once more: outputs are in one of them.
                return Store(
                    folder, manifests.read("Store.open", private / "manifest.json"), journal, None, 0.0, others
                )
        given = manifests.checked("Store.open", manifest)
        seconds = seconds_checked("Store.open", sync_seconds)
        with Writing("Store.open", folder):
            lock = Lock("Store.open", private / "lock")
            try:
                stored = manifests.read("Store.open", private / "manifest.json")
                current = manifests.merged("Store.open", stored, given, force=force)
                accepted = {key: current[key] for key in ("source_digest",) if current.get(key) != stored.get(key)}
                current = {key: value for key, value in current.items() if key not in accepted}
                current |= {key: stored[key] for key in accepted if key in stored}
                if current != stored:
                    manifests.write(private, current)
                require_no_jobs("Store.open", private / PARTS)
                others = cls.journals_of_parts(private, manifests.identity_of(current))
                store = Store(folder, current, cls._journal_of(private, current, writable=True), lock, seconds, others)
                store._accepted = accepted
                if not store._index.done.any():
                    store._accept()
                return store
            except BaseException:
                lock.release()
                raise

    @staticmethod
    def journals_of_parts(private: Path, identity: int, *, but: Path | None = None) -> list[Journal]:
        """The journals of the jobs that have worked on parts of a study, in the order of parts and attempts."""
        found = []
        for path in sorted((private / PARTS).glob("*.journal")):
            with suppress(FileNotFoundError):  # compacted meanwhile
                if path != but:
                    found.append(Journal(path, writable=False, identity=identity))
        return found

    @staticmethod
    def _journal_of(private: Path, manifest: Mapping[str, Any], *, writable: bool) -> Journal:
        """The journal of a study; a writer starts another one where it is missing, and its samples run again."""
        path, identity = private / "journal", manifests.identity_of(manifest)
        if not path.exists():
            seen = f"no file {path}"
            if not writable:
                raise ValueError(_check.message("Store.open", "the journal", "be there", seen, AGAIN))
            write_whole(path, lambda file: file.write(empty(identity)))
            text = f"Store.open: {path} is missing; samples that were not compacted are lost, and run again."
            _check.warn_caller(text, RuntimeWarning)
        return Journal(path, writable=writable, identity=identity)

    def _accept(self) -> None:
        """Store what `force` accepted of another model."""
        if self._accepted:
            self.manifest = {**self.manifest, **self._accepted}
            self._accepted = {}
            manifests.write(self._private, self.manifest)

    def extend(self, n: int) -> None:
        """Let the study have `n` samples, at least as many as now."""
        self._require_writable("Store.extend")
        n = _check.integer(n, "Store.extend", "n", minimum=self.n)
        with Writing("Store.extend", self.path):
            manifest = {**self.manifest, "n": n}
            manifests.write(self._private, manifest)
        self.manifest = manifest
        self._index.grow(n)

    def append(
        self,
        ids: np.ndarray,
        outputs: Mapping[str, np.ndarray],
        failed: np.ndarray | None = None,
        reasons: Mapping[int, str] | None = None,
        *,
        again: bool = False,
        earlier: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        """Store one finished group.

        Parameters
        ----------
        ids : int array, (k,)
            Sample ids, in any order; none may be stored already.
        outputs : dict of str to array, each (\\*shape, k)
            Numbers or bools. Names, data types and shapes are those of the first group. A group whose samples all
            failed may have none.
        failed : bool array, (k,), optional
            Samples without a result; what `outputs` holds for them is replaced by NaN (0, False).
        reasons : dict of int to str, optional
            Why a sample failed, by id.
        again : bool
            Also take samples that are stored as failed: they were run again, and what they gave now takes the place of
            the failure, whose reason `earlier_reasons` keeps.
        earlier : dict of int to list of str, optional
            Why attempts failed that came before this one and are not stored, by id.

        Raises
        ------
        ValueError
            If ids are stored already or out of range, or an array does not fit.
        OSError
            If the record cannot be written, as on a full disk: the journal then is as it was before.
        """
        self._require_writable("Store.append")
        stored = self._index.done & ~self._index.failed if again else self._index.done
        group = group_checked(ids, outputs, failed, reasons, self.outputs, stored)
        before = self._earlier_of(group.ids, earlier or {}) if again or earlier else {}
        with held():  # the journal and its index belong together
            with Writing("Store.append", self.path, "Nothing stored is lost: free space, then resume."):
                self._accept()
                record = self._journal.append(group.ids, group.outputs, group.failed, group.reasons, before)
            if group.outputs and not self.outputs:
                self._add_outputs(record.layout.outputs)
            self._index.add(Group(record, group.ids, group.failed, group.reasons, before), group.places)
        if time.monotonic() - self._synced >= self._sync_seconds:
            self._sync()

    def _earlier_of(self, ids: np.ndarray, added: Mapping[int, Sequence[str]]) -> dict[int, list[str]]:
        """Why all attempts failed that come before those of a group, by id; only of samples that had some."""
        index, found = self._index, {}
        for i in ids.tolist():
            stored = [index.reasons.get(i, "")] if index.done[i] else []
            texts = [*index.earlier.get(i, []), *stored, *added.get(i, [])]
            if texts:
                found[i] = texts
        return found

    def done(self) -> np.ndarray:
        """Which samples are stored, bool (n,)."""
        return self._index.done.copy()

    def failed(self) -> np.ndarray:
        """Which of them failed, bool (n,)."""
        return self._index.failed.copy()

    def reasons(self) -> dict[int, str]:
        """Why samples failed, by id, in order of ids."""
        return dict(sorted(self._index.reasons.items()))

    def earlier_reasons(self) -> dict[int, list[str]]:
        """Why the attempts before the last one failed, of samples that were run more than once, by id."""
        return {i: list(texts) for i, texts in sorted(self._index.earlier.items())}

    def read(self, name: str, ids: Ids) -> np.ndarray:
        """Output `name` of the stored samples `ids`, (\\*shape, len(ids)); NaN (0, False) for those that failed."""
        _check.one_of(name, self.outputs, "Store.read", "name")
        wanted = _check.array_of(ids, "Store.read", "ids", "be stored samples")
        if wanted.ndim > 1 or (wanted.size and wanted.dtype.kind not in "iu"):
            seen = f"{wanted.dtype} of shape {wanted.shape}"
            raise TypeError(_check.message("Store.read", "ids", "be a vector of integers", seen))
        wanted = np.atleast_1d(wanted).astype(np.int64)
        outside = (wanted < 0) | (wanted >= self.n)
        missing = wanted[outside | ~self._index.done[np.where(outside, 0, wanted)]] if self.n else wanted
        if len(missing):
            raise ValueError(
                _check.message("Store.read", "ids", "be stored samples", _check.samples_text(missing), "See done().")
            )
        return self._read(self.outputs[name], wanted)

    def blocks(self, size: int | None = None) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]]:
        """Iterate over the stored samples in the order of their ids.

        Parameters
        ----------
        size : int, optional
            Block k has the stored samples among ``k * size`` to ``(k + 1) * size - 1``. By default `block_size`, which
            keeps one block of one output below 64 MiB, or at 32 samples.

        Yields
        ------
        ids : int array, (k,)
        outputs : dict of str to array, each (\\*shape, k)
        failed : bool array, (k,)
        """
        step = self.block_size if size is None else _check.integer(size, "Store.blocks", "size", minimum=1)
        for first in range(0, self.n, step):
            ids = first + np.flatnonzero(self._index.done[first : first + step])
            if len(ids):
                outputs = {name: self._read(output, ids) for name, output in self.outputs.items()}
                yield ids, outputs, self._index.failed[ids]

    def inputs(self) -> dict[str, np.ndarray]:
        """The compacted values of the inputs, each (\\*shape, n); NaN (0, False) for samples not compacted yet.

        Empty where no sample is compacted: closing a study without samples writes arrays without chunks.
        """
        if not np.any(self._index.done & (self._index.record_of < 0)):
            return {}
        return compaction.read_coordinates(self.path, self.outputs, self.n, self._checksums, self._most)

    def compact(self, inputs: Mapping[str, np.ndarray] | None = None) -> None:
        """Move the samples in the journal into the Zarr group.

        Parameters
        ----------
        inputs : dict of str to array, each (\\*shape, n), optional
            Values of the inputs of all samples, which become coordinates. An input with the name of an output is called
            ``NAME_input``.

        Raises
        ------
        ValueError
            If an array of `inputs` has another number of samples, or is not of numbers.
        OSError
            If the files cannot be written, as on a full disk: the journal keeps its records.

        Notes
        -----
        A kill at any instant loses nothing: the journal is emptied when all else is on the disk, and compacting again
        writes the same files. Less than 256 MiB are in memory at a time, besides `inputs`.
        """
        self._require_writable("Store.compact")
        self._journal.require_as_written()
        with Writing("Store.compact", self.path, "Nothing stored is lost: free space, then compact again."):
            compaction.compact(
                self.path, self._private, self.manifest, self.outputs.values(), self._journal, self._index,
                inputs or {}, self._checksums, self._damaged_columns,
            )  # fmt: skip
            self._damaged_columns = {}
            self._on_disk = True
            if self._journal.n_bytes:
                self._journal = self._journal.emptied()
            self._index.clear_journal()
            for path in ended_files(self._private / PARTS, [journal.path for journal in self._others]):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Flush the journal to the disk and let other processes write."""
        if self._lock is not None and self._lock.owner == os.getpid():
            with Writing("Store.close", self.path):
                if self._index.done.all():  # there was nothing to compute
                    self._accept()
                self._sync()
            if isinstance(self._lock, Lock):
                self._lock.release()
        self._lock = None
        self._journal.close()
        for journal in self._others:
            journal.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add_outputs(self, outputs: Iterable[Output]) -> None:
        """Take over the outputs of the first group that has any."""
        self.outputs = {output.name: output for output in outputs}
        described: dict[str, Any] = {
            o.name: {"dtype": o.dtype.name, "shape": list(o.shape)} for o in self.outputs.values()
        }
        if axes := self.manifest.get(AXES):
            shapes = {name: output.shape for name, output in self.outputs.items()}
            for name, dims in names_of_axes("Store", axes, shapes).items():
                described[name]["dims"] = list(dims)
        self.manifest = {**self.manifest, "outputs": described}

    def _sync(self) -> None:
        """Bring the journal to the disk, and before its first time what `create` has written."""
        if not self._on_disk:
            sync([self._private / "manifest.json", self._private, self.path, self.path.parent])
            self._on_disk = True
        self._journal.sync()
        self._synced = time.monotonic()

    def _read(self, output: Output, ids: np.ndarray) -> np.ndarray:
        """The output of stored samples, from the journal and from the chunks."""
        result = np.empty((output.size, len(ids)), dtype=output.dtype)
        in_journal = self._index.record_of[ids] >= 0
        if in_journal.any():
            places = np.flatnonzero(in_journal)
            result[:, places] = fill_value(output.dtype)
            gather(self._journal, self._index.parts(ids[places], places), output, 0, output.size, result)
        if not in_journal.all():
            array, places = (
                ZarrArray(self.path / output.name, output, checksums=self._checksums, most=self._most),
                np.flatnonzero(~in_journal),
            )
            array.read(ids, places, result, needed=~self._index.failed[ids])
        return result.reshape(*output.shape, len(ids))

    def _require_writable(self, function: str) -> None:
        if self._lock is None or self._lock.owner != os.getpid():
            here = "in another process" if self._lock is not None else "for reading" if self._journal.opened else ""
            seen = f"one opened {here}" if here else "a closed one"
            advice = "Store.create, or Store.open with a manifest, opens it for writing."
            raise ValueError(_check.message(function, "the store", "be open for writing", seen, advice))
