"""`PartStore`: the store of a study that many jobs write at once, each to a journal of its own.

The journals of all jobs stand in the folder ``parts`` beside the main one, and readers take all of them. The job that
ends the study, or whoever opens the store for writing later, moves them into the Zarr group.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._files import sync, write_new
from ensemble.uq.store import claims
from ensemble.uq.store import manifest as manifests
from ensemble.uq.store.checks import Writing, local_folder, require_empty, require_no_journal
from ensemble.uq.store.claims import PARTS, Claim
from ensemble.uq.store.journal import Journal, empty
from ensemble.uq.store.store import PRIVATE, Store

__all__ = ["MOST_ATTEMPTS", "PartStore", "ids_of_part"]

MOST_ATTEMPTS = 3
"""Attempts at a part after which no job takes it by itself."""

COLLECT = "collect.claim"


def ids_of_part(part: int, n_parts: int, n: int) -> np.ndarray:
    """Which samples of `n` are in part `part` of `n_parts`, from 1: bool, shape (n,).

    One of each `n_parts` samples in turn, at a place that changes from block to block: replicates of a sampler are
    spread over all parts. It does not depend on `n`.
    """
    block, place = np.divmod(np.arange(n, dtype=np.uint64), np.uint64(n_parts))
    shift = (block * np.uint64(0x9E3779B1) % np.uint64(2**32)) >> np.uint64(16)
    mine: np.ndarray = (place + shift) % np.uint64(n_parts) == part - 1
    return mine


def _merged(function: str, stored: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The manifest of the study that both are; another source of the model is refused, as jobs may run at the time."""
    try:
        return manifests.merged(function, stored, given, force=False)
    except ValueError as error:
        instead = "call propagate(..., resume='force') without part"
        raise ValueError(str(error).replace("pass force=True", instead)) from None


class PartStore(Store):
    """A store for one part of a study. Made by `join`.

    Attributes
    ----------
    parts : list of int
        The parts that this process works on: its own, and lost ones that it took.
    """

    n_parts: int
    parts: list[int]
    claimed: dict[int, Claim]
    given: dict[str, Any]

    @classmethod
    def join(
        cls,
        path: str | os.PathLike[str],
        manifest: Mapping[str, Any],
        part: int,
        n_parts: int,
        *,
        sync_seconds: float = 5.0,
    ) -> PartStore:
        """Open a store for part `part` of `n_parts`; the first job makes it.

        Raises
        ------
        ValueError
            If the store is of another study.
        BlockingIOError
            If a job works on that part, or on parts of another number of parts.
        """
        function = "Store.join"
        folder = local_folder(function, path)
        private, own = folder / PRIVATE, folder / PRIVATE / PARTS
        given = manifests.checked(function, manifest)
        with Writing(function, folder):
            made = not Store.exists(folder)
            if made:
                require_empty(function, folder, PRIVATE)
                require_no_journal(function, private / "journal")
            own.mkdir(parents=True, exist_ok=True)
            if made:
                make(private, manifests.identified(given))
            stored = manifests.read(function, private / "manifest.json")
            advice = "Extend the study by ensemble resume or propagate(..., resume=True), and begin its parts then."
            _check.require(given["n"] == stored["n"], function, "n", f"be {stored['n']}", given["n"], advice)
            current = _merged(function, stored, given)
            claim = claimed_part(own, part, n_parts)
            try:
                identity = manifests.identity_of(stored)
                journal_path = claim.path.with_suffix(".journal")
                write_new(journal_path, empty(identity))
                journal = Journal(journal_path, writable=True, identity=identity)
                others = [Journal(private / "journal", writable=False, identity=identity)]
                others += cls.journals_of_parts(private, identity, but=journal_path)
                store = cls(folder, current, journal, claim, sync_seconds, others)
            except BaseException:
                claim.end(finished=False)
                raise
        store.n_parts, store.parts, store.claimed, store.given = n_parts, [part], {part: claim}, dict(given)
        return store

    @property
    def journal_bytes(self) -> int:
        """0: the journal of a part is compacted with those of the others, however long it is."""
        return 0

    def append(self, *arguments: Any, **options: Any) -> None:
        """As `Store.append`; BlockingIOError where this job was taken for lost and its journal is gone."""
        if any(claim.removed.is_set() for claim in self.claimed.values()):
            seen = f"none for {claims.LOST_AFTER:g} s"
            advice = "Its samples were handed out to another job."
            text = _check.message("Store.append", "the job", "give signs of life", seen, advice)
            raise BlockingIOError(errno.EWOULDBLOCK, text)
        super().append(*arguments, **options)

    def extend(self, n: int) -> None:
        """Refused: the other jobs do not know of it."""
        advice = "Extend the study by ensemble resume, and begin its parts then."
        raise ValueError(_check.message("Store.extend", "n", f"be {self.n} for a part of a study", n, advice))

    def take_lost(self) -> tuple[int, np.ndarray] | None:
        """Claim a part whose job was lost or has ended early; None where there is none.

        Returns
        -------
        part : int
        done : bool array, (n,)
            Which samples are stored by now, by any job.
        """
        folder = self._private / PARTS
        now = self.claimed[self.parts[0]].now()
        waiting = [
            one for one in claims.latest(folder, self.n_parts, now).values()
            if one.state != "running" and not one.finished and one.attempt < MOST_ATTEMPTS
            and one.part not in self.parts
        ]  # fmt: skip
        for one in waiting:
            claim = claims.take(folder, one.part, self.n_parts)
            if claim is None:
                continue
            with Store.open(self.path) as present:  # after the claim: nobody else adds to the part now
                done = present.done()
            mine = ids_of_part(one.part, self.n_parts, self.n)
            if (done | ~mine).all():
                claim.end(finished=True)
                continue
            self.parts.append(one.part)
            self.claimed[one.part] = claim
            return one.part, done
        return None

    def compact(self, inputs: Mapping[str, np.ndarray] | None = None) -> None:
        """End the own parts; move all journals into the Zarr group where that ends the study."""
        self._require_writable("Store.compact")
        with Writing("Store.compact", self.path):
            self._sync()
            self._end_parts()
        self._collect(inputs or {})

    def _end_parts(self) -> None:
        """Say of each part whether all of its samples are stored."""
        with Store.open(self.path) as present:
            done = present.done()
        for part, claim in self.claimed.items():
            claim.end(finished=bool(done[ids_of_part(part, self.n_parts, self.n)].all()))

    def _collect(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Compact the store if all samples are there and no other job does it."""
        folder = self._private / PARTS
        with Store.open(self.path) as present:
            complete = bool(present.done().all())
        if not complete or any(one.state == "running" for one in claims.states(folder)):
            return
        path = folder / COLLECT
        with contextlib.suppress(FileNotFoundError):
            if claims.is_lost(path):
                path.unlink()
        try:
            claim = Claim(path)
        except FileExistsError:
            return
        try:
            with contextlib.suppress(BlockingIOError), Store.open(self.path, self.given) as whole:
                whole.compact(inputs)
        finally:
            claim.end(finished=True)

    def close(self) -> None:
        """End the own parts; the journals stay open, as results read them."""
        if self._lock is not None and self._lock.owner == os.getpid():
            with Writing("Store.close", self.path):
                self._sync()
            for claim in self.claimed.values():
                claim.end(finished=False)
        self._lock = None


def claimed_part(folder: Path, part: int, n_parts: int) -> Claim:
    """A claim of one part; BlockingIOError where a job works on it."""
    running = [one for one in claims.states(folder) if one.state == "running"]
    other = next((one for one in running if one.n_parts != n_parts), None)
    if other is None:
        claim = claims.take(folder, part, n_parts)
        if claim is not None:
            return claim
        other = claims.latest(folder, n_parts).get(part)
    who = "another job" if other is None else f"process {other.process} on {other.host}"
    what = "" if other is None else f", part {other.part} of {other.n_parts}"
    requirement = f"be a part of {n_parts} that no job works on"
    text = _check.message(
        "Store.join", "part", requirement, f"{part}/{n_parts}, while {who} runs{what}", "Wait for it."
    )
    raise BlockingIOError(errno.EWOULDBLOCK, text)


def make(private: Path, manifest: dict[str, Any]) -> None:
    """Write the files of a new study; the first of several jobs that do so at once wins."""
    write_new(private / "journal", empty(manifests.identity_of(manifest)))
    write_new(private / "manifest.json", manifests.text_of(manifest))
    sync([private / "journal", private / "manifest.json", private, private.parent])
