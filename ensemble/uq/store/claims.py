"""Claims: which job works on which part of a study, without a lock server.

A claim is a file that one job alone can make (`O_EXCL`). Its time of change is a sign of life, which the job renews. A
claim without a sign for `LOST_AFTER`, or of a process of this machine that has ended, is lost.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ensemble._check import message

__all__ = [
    "LOST_AFTER",
    "PARTS",
    "Claim",
    "PartState",
    "ended_files",
    "is_lost",
    "latest",
    "require_no_jobs",
    "states",
    "take",
]

PARTS = "parts"
"""Folder of claims and journals in the private folder of a store."""

SECONDS_BETWEEN_SIGNS = 20.0

LOST_AFTER = 300.0
"""Seconds without a sign after which a job of another machine is taken for lost."""

NAME = re.compile(r"(\d{5})-of-(\d{5})\.(\d{4})\.(claim|ended)")


class PartState(NamedTuple):
    """One attempt at a part.

    Attributes
    ----------
    part, n_parts : int
        Part `part` of `n_parts`, from 1.
    attempt : int
        From 1.
    state : {"running", "lost", "ended"}
    host : str
    process : int
    finished : bool
        Whether an attempt that has ended had run all samples of its part.
    seconds : float
        Since its last sign.
    """

    part: int
    n_parts: int
    attempt: int
    state: str
    host: str
    process: int
    finished: bool
    seconds: float

    @property
    def stem(self) -> str:
        """The name of its files without their ending."""
        return stem_of(self.part, self.n_parts, self.attempt)


def stem_of(part: int, n_parts: int, attempt: int) -> str:
    """The name of the files of an attempt without their ending."""
    return f"{part:05d}-of-{n_parts:05d}.{attempt:04d}"


def start_of(process: int) -> int:
    """When a process of this machine started, in ticks since the machine did; 0 of one that is unknown or a zombie."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return 0 if state in ("Z", "X") else int(fields[18])
    return 0


def is_here_and_ended(contents: dict[str, Any]) -> bool:
    """Whether a claim is of a process of this machine that does not run any more."""
    if contents.get("host") != socket.gethostname() or os.name != "posix":  # elsewhere signal 0 ends a process
        return False
    process = int(contents.get("process", 0))
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return start_of(process) != int(contents.get("start", 0))


class Claim:
    """A claim of this process, which gives signs until it is ended.

    Parameters
    ----------
    path : Path
        The file, which must not be there: FileExistsError otherwise.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.owner = path, os.getpid()
        self.removed = threading.Event()
        self._ended = threading.Event()
        contents = {"host": socket.gethostname(), "process": self.owner, "start": start_of(self.owner)}
        job = {name: os.environ[name] for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID") if name in os.environ}
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(contents | job).encode())
        threading.Thread(target=self._give_signs, daemon=True, name="signs of a part").start()

    def _give_signs(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_SIGNS):
            if os.getpid() != self.owner:
                return
            try:
                os.utime(self.path)
            except FileNotFoundError:
                self.removed.set()
                return
            except OSError:  # the file system is away: others see no sign either
                continue

    def now(self) -> float:
        """The time by the clock of the file system."""
        with contextlib.suppress(OSError):
            os.utime(self.path)
            return self.path.stat().st_mtime
        return time.time()

    def end(self, *, finished: bool) -> None:
        """Say that this process does not work on it any more."""
        if self._ended.is_set() or os.getpid() != self.owner:
            return
        self._ended.set()
        with contextlib.suppress(OSError):  # it was taken for lost, and its files are gone
            if self.path.suffix != ".claim" or not NAME.fullmatch(self.path.name):
                self.path.unlink()
                return
            contents = json.loads(self.path.read_bytes()) | {"finished": finished}
            part = self.path.with_name(f".{self.path.name}.{self.owner}")
            part.write_bytes(json.dumps(contents).encode())
            part.replace(self.path)
            self.path.replace(self.path.with_suffix(".ended"))


def contents_of(path: Path) -> dict[str, Any]:
    """What a claim says; nothing of one that is being written."""
    with contextlib.suppress(ValueError):
        found = json.loads(path.read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


def is_lost(path: Path) -> bool:
    """Whether nobody gives signs for a claim any more."""
    return time.time() - path.stat().st_mtime > LOST_AFTER or is_here_and_ended(contents_of(path))


def states(folder: Path, now: float | None = None) -> list[PartState]:
    """All attempts at parts, in the order of parts and attempts."""
    found: dict[tuple[int, int, int], PartState] = {}
    now = time.time() if now is None else now
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    for name in names:
        match = NAME.fullmatch(name)
        if match is None:
            continue
        with contextlib.suppress(FileNotFoundError):  # ended or removed meanwhile
            seconds = now - (folder / name).stat().st_mtime
            contents = contents_of(folder / name)
            if not contents and seconds < LOST_AFTER and match[4] == "claim":
                state = "running"
            elif match[4] == "ended":
                state = "ended"
            else:
                state = "lost" if seconds > LOST_AFTER or is_here_and_ended(contents) else "running"
            part, n_parts, attempt = int(match[1]), int(match[2]), int(match[3])
            key = (n_parts, part, attempt)
            if key in found and found[key].state == "ended":
                continue
            found[key] = PartState(
                part, n_parts, attempt, state, str(contents.get("host", "")), int(contents.get("process", 0)),
                bool(contents.get("finished", False)), seconds,
            )  # fmt: skip
    return [found[key] for key in sorted(found)]


def latest(folder: Path, n_parts: int, now: float | None = None) -> dict[int, PartState]:
    """The last attempt at each part of `n_parts` that was begun."""
    return {one.part: one for one in states(folder, now) if one.n_parts == n_parts}


def take(folder: Path, part: int, n_parts: int) -> Claim | None:
    """Claim a part that nobody works on; None where somebody does, or is faster."""
    before = latest(folder, n_parts).get(part)
    if before is not None and before.state == "running":
        return None
    attempt = 1 if before is None else before.attempt + 1
    try:
        return Claim(folder / f"{stem_of(part, n_parts, attempt)}.claim")
    except FileExistsError:
        return None


def ended_files(folder: Path, journals: Iterable[Path]) -> list[Path]:
    """The files of jobs that have ended or were lost, but for journals that are not among `journals`."""
    read = {path.name.removesuffix(".journal") for path in journals if path.parent == folder}
    over = [one.stem for one in states(folder) if one.state != "running"]
    stems = [stem for stem in over if stem in read or not (folder / f"{stem}.journal").exists()]
    return [folder / f"{stem}.{kind}" for stem in stems for kind in ("journal", "ended", "claim")]


def require_no_jobs(function: str, folder: Path) -> None:
    """Raise BlockingIOError where jobs work on parts of a study."""
    running = [one for one in states(folder) if one.state == "running"]
    if running:
        seen = ", ".join(f"part {one.part}/{one.n_parts} by process {one.process} on {one.host}" for one in running[:3])
        more = f" and {len(running) - 3} more" if len(running) > 3 else ""
        text = message(function, "path", "be a store that nobody else writes to", seen + more, "Wait until they end.")
        raise BlockingIOError(errno.EWOULDBLOCK, text)
