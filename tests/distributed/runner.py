"""Runs functions of test modules on several ranks of MPI.

In a test, with the fixture `mpi` of this folder's conftest::

    def total(comm, add):
        return comm.allreduce(comm.rank + add)

    def test_every_rank_has_the_total(mpi):
        assert mpi(total, 3, 10) == [33, 33, 33]

The function is defined in a module of tests; its arguments and values can be pickled. An exception on one rank ends all
ranks; the error has the traceback of each rank that failed. At the time limit each rank writes its stack.
Ranks are started once for all calls, since Python, MPI and loading compiled kernels take seconds: three of them, or as
many as a call needs, and a call on fewer runs on the first ones. They start again after a failure; a function must
leave modules as they were. With ``fresh=True`` as many ranks as needed are started for one call and end after it. Call
what ranks call in one process first: each rank compiles a kernel that is not in the cache yet.
The same from a shell: ``mpiexec -n 3 python -m tests.distributed.runner tests.distributed.test_runner:total``.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
import importlib.util
import itertools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

START = 120.0
"""Most seconds until Python and MPI have started on all ranks of a busy machine."""

GRACE = 3.0
"""Seconds after the time limit for the ranks to write their stacks; then they are ended."""

SHORT_POLLS = 300
"""How often a rank polls for its next call every 3 ms before it polls every 30 ms."""

LEAST_RANKS, KEPT_RANKS, MOST_CALLS = 3, 8, 500
"""Least number of ranks that are started; most ranks that are kept for further calls; most calls of one set of ranks,
since MPICH has 2,048 communicators."""

ENVIRONMENT = {
    **{f"{name}_NUM_THREADS": "1" for name in ("NUMBA", "OMP", "OPENBLAS", "MKL")},
    # More ranks than cores, and the user root of a container: Open MPI 4 and 5 refuse both unless told.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}  # fmt: skip


class RanksFailedError(AssertionError):
    """A rank raised, ended early or did not end; the message has the output of each rank and of the launcher."""


def launcher() -> str | None:
    """The path of `mpiexec`, that beside this Python first; None without one or without mpi4py."""
    if importlib.util.find_spec("mpi4py") is None:
        return None
    return shutil.which("mpiexec", path=os.path.dirname(sys.executable)) or shutil.which("mpiexec")


class Ranks:
    """Processes of MPI that wait for calls of functions.

    They communicate by files in a folder: ``call-K`` is read by all ranks; rank R writes the returned value to
    ``value-K-R`` and errors to ``errors-R``. A rank that waited for a message of MPI would keep a core busy.
    """

    def __init__(self, size: int) -> None:
        program = launcher()
        assert program is not None, "no mpiexec or no mpi4py"
        self.size, self.calls = size, 0
        self.folder = Path(tempfile.mkdtemp(prefix="ensemble-ranks-"))
        command = [program, "-n", str(size), sys.executable, "-m", "tests.distributed.runner", str(self.folder)]
        with open(self.folder / "output", "w") as output:
            self.process = subprocess.Popen(
                [*command, str(os.getpid())], cwd=ROOT, env={**os.environ, **ENVIRONMENT}, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def call(self, name: str, ranks: int, arguments: tuple[Any, ...], limit: float) -> list[Any]:
        """The values that the function `name` returned on the first `ranks` ranks."""
        number, self.calls = self.calls, self.calls + 1
        _write(self.folder / f"call-{number}", (name, ranks, arguments, limit))
        values = [self.folder / f"value-{number}-{rank}" for rank in range(ranks)]
        started = [self.folder / f"errors-{rank}" for rank in range(self.size)]
        for paths, seconds in ((started, START), (values, limit + GRACE)):
            end = time.monotonic() + seconds
            while not all(path.exists() for path in paths):
                code = self.process.poll()
                if code is not None or time.monotonic() > end:
                    self.close()
                    raise RanksFailedError(self._report(name, code, values))
                time.sleep(0.003)
        found = [pickle.loads(path.read_bytes()) for path in values]
        for path in values:
            path.unlink()
        return found

    def close(self) -> None:
        """Tell the ranks to end, then terminate and kill those that remain."""
        (self.folder / "end").touch()
        for end in (lambda: None, self.process.terminate, self._kill):
            end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE)
                break
        self._kill()  # processes that the launcher did not end

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _report(self, name: str, code: int | None, values: list[Path]) -> str:
        """The output of a failed call, the tracebacks of its ranks first."""
        ending = "did not end" if code is None else f"ended with status {code}"
        lines = [f"{name} on {len(values)} ranks {ending}"]
        for rank, value in enumerate(values):
            errors = self.folder / f"errors-{rank}"
            text = errors.read_text(errors="replace").strip() if errors.exists() else "did not start"
            lines.append(f"--- rank {rank}: {text or ('returned' if value.exists() else 'returned nothing')}")
        output = (self.folder / "output").read_text(errors="replace").strip()
        return "\n".join([*lines, "--- output of all:", output[-6000:]])


WAITING: dict[int, Ranks] = {}
"""Ranks kept for further calls, by their number; the most recently used come last."""


def run_on_ranks(
    function: Callable[..., Any] | str, ranks: int, *arguments: Any, limit: float = 60.0, fresh: bool = False
) -> list[Any]:
    """The values that ``function(comm, *arguments)`` returned on `ranks` ranks, in the order of ranks.

    `function` is a function of a module, or its name "module:function". After `limit` seconds all ranks are ended.
    """
    name = function if isinstance(function, str) else f"{function.__module__}:{function.__qualname__}"
    size = ranks if fresh else min((size for size in WAITING if size >= ranks), default=max(ranks, LEAST_RANKS))
    found = None if fresh else WAITING.pop(size, None)
    if found is None:
        while WAITING and sum(WAITING) + size > KEPT_RANKS:
            _remove(next(iter(WAITING)))
        found = Ranks(size)
    try:
        values = found.call(name, ranks, arguments, limit)
    except BaseException:
        _discard(found)
        raise
    if fresh or found.calls == MOST_CALLS:
        _discard(found)
    else:
        WAITING[size] = found
    return values


def _discard(ranks: Ranks) -> None:
    ranks.close()
    shutil.rmtree(ranks.folder, ignore_errors=True)


def _remove(size: int) -> None:
    _discard(WAITING.pop(size))


@atexit.register
def end_all() -> None:
    """End all kept ranks."""
    for size in list(WAITING):
        _remove(size)


def _write(path: Path, value: Any) -> None:
    """Write a file that other processes see complete or not at all."""
    part = path.with_name(f"part-of-{path.name}")
    part.write_bytes(pickle.dumps(value))
    part.rename(path)


# --- on each rank


def function_of(name: str) -> Callable[..., Any]:
    """The function "module:function"."""
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found  # type: ignore[return-value]


def calls_from(folder: Path, parent: int) -> Any:
    """The calls that arrive in a folder, until there is a file ``end`` or the parent has ended."""
    for number in itertools.count():
        path = folder / f"call-{number}"
        for turn in itertools.count():
            if path.exists():
                break
            if (folder / "end").exists() or not folder.exists() or (turn % 100 == 99 and not _lives(parent)):
                return
            time.sleep(0.003 if turn < SHORT_POLLS else 0.03)  # three ranks that poll every 3 ms take a tenth of a core
        yield number, *pickle.loads(path.read_bytes())


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def serve(folder: Path, parent: int) -> None:
    """Run the calls that arrive in a folder, as one rank."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    with open(folder / f"errors-{world.rank}", "w") as errors:
        faulthandler.enable(errors)
        for number, name, ranks, arguments, limit in calls_from(folder, parent):
            if world.rank >= ranks:
                continue
            faulthandler.dump_traceback_later(limit, file=errors)
            last = threading.Timer(limit + 2 * GRACE, os._exit, (1,))  # if no other process ends this rank
            last.daemon = True
            last.start()
            try:
                comm = world.Create_group(world.group.Incl(range(ranks)))
                # not freed: its successor would receive messages that a function left unread
                with warnings.catch_warnings():
                    warnings.simplefilter("error")  # as for the other tests
                    value = function_of(name)(comm, *arguments)
                _write(folder / f"value-{number}-{world.rank}", value)
            except BaseException:
                traceback.print_exc(file=errors)
                errors.flush()
                world.Abort(1)
            faulthandler.cancel_dump_traceback_later()
            last.cancel()
        faulthandler.disable()


def main(arguments: list[str]) -> None:
    """Serve calls, or run the one function that is named."""
    from tests import conftest  # noqa: F401  the settings of the other tests, so that cached kernels are used

    if len(arguments) == 2:
        serve(Path(arguments[0]), int(arguments[1]))
        return
    from mpi4py import MPI

    try:
        function_of(arguments[0])(MPI.COMM_WORLD)
    except BaseException:
        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)


if __name__ == "__main__":
    main(sys.argv[1:])
