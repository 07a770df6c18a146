"""A study of a program that crashes and hangs, whose drivers and workers are killed.

As a program it is the driver: ``python -m tests.uq.study.rough_study KIND FOLDER N [PART]``.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scipy import stats

import ensemble as en
from ensemble.uq import Store
from ensemble.uq.store.journal import Journal
from ensemble.uq.store.remote import RemoteStore
from ensemble.uq.study.limited_calls import children_of

FAULTS = "ENSEMBLE_TEST_FAULTS"
"""The folder in which a run notes that its sample has had its fault; no faults without it."""

FULL = "ENSEMBLE_TEST_FULL_DISK"
"""How many groups fit on the disk."""

SECONDS = 0.4

DISK_BYTES = 40 * 1024
"""A file system of so many bytes is full after less than 100 groups."""

BUCKET = "s3://rough"

SCRIPT = f"""#!/bin/sh
i={{{{sample}}}}
if [ -n "${FAULTS}" ] && [ ! -e "${FAULTS}/$i" ]; then
  [ $((i % 20)) = 3 ] && : > "${FAULTS}/$i" && echo "lost the licence" >&2 && exit 5
  [ $((i % 100)) = 11 ] && : > "${FAULTS}/$i" && sleep 60
fi
[ $((i % 50)) = 7 ] && echo "diverged in sample $i" >&2 && exit 9
echo "{{{{load}}}}" > y.txt
"""
"""5 % of the samples crash and 1 % hang in their first run; 2 % fail in each."""

TRANSIENT = ("exit code 5", "TimeLimit", "No space left", "its worker died")


def study(kind: str, folder: Path, n: int, part: str | None = None) -> en.uq.UqResult:
    """Run or go on with the study; failed samples run again."""
    template = folder / "template"
    model = en.uq.Program("./run.sh", {"y": "y.txt"}, template=template, folder=folder / f"runs-{kind}", keep="none")
    inputs = en.Inputs(load=stats.norm(1.0, 0.2))
    store = store_of(kind, folder)
    options = {"seed": 5, "sampler": "monte_carlo", "progress": False, "store": store}
    options |= {"ensemble_size": 8, "on_failure": "mask"}
    if kind != "calm":
        options |= {"sample_seconds": SECONDS}
    if part is not None:
        return en.propagate(model, inputs, n, part=part, **options)
    again = (RemoteStore if kind == "s3" else Store).exists(store)
    options |= {"resume": again, "retry_failed": again}
    if kind != "dask":
        return en.propagate(model, inputs, n, executor=2 if kind in ("processes", "s3") else None, **options)
    import distributed

    workers = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**workers) as cluster, distributed.Client(cluster) as client:
        return en.propagate(model, inputs, n, executor=client, **options)


def store_of(kind: str, folder: Path) -> Any:
    """Where the study of a kind is: on a server for "s3", on a disk of its own for "processes"."""
    if kind == "s3":
        return f"{BUCKET}/run.zarr"
    return folder / "disk" / "run.zarr" if kind == "processes" else folder / f"{kind}.zarr"


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[], None] | None]:
    """A file system of `DISK_BYTES` at `folder`, and what makes it large; None where none may be mounted."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        subprocess.run(["mount", *options], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=512m", str(folder)], check=True) and None
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def write_template(folder: Path) -> None:
    """The program's template."""
    (folder / "template").mkdir()
    (folder / "template" / "run.sh").write_text(SCRIPT)
    (folder / "template" / "run.sh").chmod(0o755)


def fill_disk() -> None:
    """Let the disk be full after some groups."""
    left, write = [int(os.environ.pop(FULL))], Journal._write

    def full(self, parts, length):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device", str(self.path))
        write(self, parts, length)

    Journal._write = full


def start(kind: str, folder: Path, n: int, part: str | None = None, **environment: str) -> subprocess.Popen:
    """A driver in a process of its own."""
    (folder / "faults").mkdir(exist_ok=True)
    variables = {**os.environ, FAULTS: str(folder / "faults"), **environment}
    given = [sys.executable, "-m", "tests.uq.study.rough_study", kind, str(folder), str(n), *([part] if part else [])]
    log = (folder / f"{kind}.log").open("ab")
    with log:
        return subprocess.Popen(given, env=variables, stdout=log, stderr=log, start_new_session=True)


def age_of(process: int) -> float:
    """Seconds since a process began."""
    ticks = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def workers_of(driver: int, least: float) -> list[int]:
    """Worker processes of a driver, of any kind, that are at least so many seconds old."""
    found = []
    for child in children_of(driver, None):
        with contextlib.suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes() and age_of(child) >= least:
                found.append(child)
    return found


def disturb(
    driver: subprocess.Popen, runs: Path, rng: random.Random, n_workers: int, slower: float, pace: float
) -> tuple[int, bool]:
    """Kill workers of a driver one by one, then it; how many workers were killed, and whether the driver was.

    The seconds between kills are about `slower` times `pace`.

    Nothing is killed before programs run in the folder `runs`: a cluster of Dask that loses a worker while it starts
    ends by itself.
    """
    killed, began, until = 0, runs.stat().st_mtime_ns, time.monotonic() + 120.0 * slower
    least = 3.0 * pace if slower > 1.0 else 0.0
    while driver.poll() is None and time.monotonic() < until:
        time.sleep(slower * pace * rng.uniform(0.3, 1.5))
        if runs.stat().st_mtime_ns == began:
            continue
        workers = workers_of(driver.pid, least)
        if killed < n_workers and workers:
            with contextlib.suppress(OSError):
                os.kill(rng.choice(workers), signal.SIGKILL)
                killed += 1
        elif killed == n_workers:
            break
    alive = driver.poll() is None
    driver.kill()
    driver.wait()
    return killed, alive


def lose_chunk(store: Any) -> None:
    """Remove the first chunk of the output."""
    if isinstance(store, Path):
        min((store / "y").glob("c.*")).unlink()
        return
    import fsspec

    files, root = fsspec.core.url_to_fs(store, use_listings_cache=False)
    files.rm(min(name for name in files.ls(f"{root}/y", detail=False) if "/c." in name))


if __name__ == "__main__":
    if FULL in os.environ:
        fill_disk()
    print(study(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
