"""`RunFolders`: the folders in which a program runs, one for each sample: made, kept, packed or removed."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import tarfile
from pathlib import Path

from ensemble._check import one_of

__all__ = ["KEEP", "RunFolders"]

KEEP = ("failed", "all", "packed", "none")

COUNTER = itertools.count()


class RunFolders:
    """Run folders below one folder.

    A program runs in a folder with a name of its own, which gets the name of its sample at the end: a run that was
    killed, and one of the same sample in another process, never mix with it.

    Parameters
    ----------
    folder : path
    keep : {"failed", "all", "packed", "none"}
        The folders of failed samples; all; all, each as a file ``.tar.gz``; or none.
    """

    def __init__(self, folder: str | os.PathLike[str], keep: str) -> None:
        self.folder, self.keep = Path(os.path.expanduser(folder)).absolute(), one_of(keep, KEEP, "Program", "keep")
        self._start = os.path.join(self.folder, "")
        self._cleaned = False

    def new(self, sample: int) -> Path:
        """An empty folder for a run of a sample."""
        if not self._cleaned:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_left()
            self._cleaned = True
        place = f"{self._start}.{name_of(sample)}.{socket.gethostname()}.{os.getpid()}.{next(COUNTER)}"
        os.mkdir(place)
        return Path(place)

    def finish(self, place: Path, sample: int, *, failed: bool) -> None:
        """Keep, pack or remove the folder of a run that has ended."""
        final = f"{self._start}{name_of(sample)}"
        packed = f"{final}.tar.gz"
        for earlier in (final, packed):
            if os.path.lexists(earlier):
                remove(earlier)
        if self.keep == "packed":
            part = f"{place}.part"
            with tarfile.open(part, "w:gz", compresslevel=1) as archive:
                archive.add(place, arcname=name_of(sample))
            os.rename(part, packed)
        if self.keep == "all" or (self.keep == "failed" and failed):
            os.rename(place, final)
        else:
            remove(str(place))

    def drop(self, place: Path) -> None:
        """Remove the folder of a run that was interrupted."""
        remove(str(place))

    def _remove_left(self) -> None:
        """Remove the folders of runs that were killed with a process of this machine."""
        host = socket.gethostname()
        for entry in self.folder.glob(".sample-*.*"):
            parts = entry.name.rsplit(".part", 1)[0].rsplit(".", 2)
            own = len(parts) == 3 and parts[0].endswith(f".{host}") and parts[1].isdecimal()
            if own and not is_alive(int(parts[1])):
                remove(str(entry))


def name_of(sample: int) -> str:
    """The name of the folder of a sample."""
    return f"sample-{sample:06d}"


def is_alive(process: int) -> bool:
    """Whether a process of this machine runs."""
    if os.name != "posix":  # where signal 0 ends a process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def remove(path: str) -> None:
    """Remove a folder or a file; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        try:
            entries = list(os.scandir(path))
        except NotADirectoryError:
            os.unlink(path)
            return
        for entry in entries:  # most folders are flat: `shutil.rmtree` takes twice as long
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
        os.rmdir(path)
