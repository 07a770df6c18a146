"""What ends all ranks where one fails, and what tells ranks of other processors or versions apart.

An exception that nothing catches ends one process; the other ranks of its job would wait for it for ever.
"""

from __future__ import annotations

import contextlib
import os
import platform
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib.metadata import version
from types import TracebackType
from typing import Any

import numpy as np

from ensemble._check import warn_caller
from ensemble._version import __version__

__all__ = ["agree", "end_all", "facts", "has_threads", "kept_with", "rank_text", "watch"]

TAG = 32567
"""Tag of the message by which a rank that fails tells those of higher numbers; every MPI has tags up to 32767."""

SECONDS_FOR_OTHERS = 0.5
"""Time in which ranks that fail for the same reason do so: the lowest of them has the message."""

SECONDS_FOR_ABORT = 3.0
"""Time after which a rank ends all ranks although a lower one has said that it will."""

SECONDS_FOR_LAUNCHER = 0.25
"""Time in which the launcher passes the message on: it may drop what it has not read when the ranks are ended."""

MOST_TOLD = 4096
"""Ranks that a failing one tells at most."""

INTERRUPTED = 130
"""Exit code of an interrupted program, as a shell has it."""

_ENDING = threading.Lock()
_PREVIOUS: dict[str, Any] = {}
"""The handlers of exceptions that were in force before `watch`."""

_KEYVAL: list[int] = []
"""The key of MPI under which `kept_with` keeps its dictionaries."""


def kept_with(comm: Any) -> dict[str, Any]:
    """A dictionary that belongs to a communicator: equal on all its ranks where they call alike."""
    if not hasattr(comm, "Get_attr"):
        kept: dict[str, Any] = vars(comm).setdefault("kept", {})
        return kept
    if not _KEYVAL:
        _KEYVAL.append(mpi().Comm.Create_keyval())
    found: dict[str, Any] | None = comm.Get_attr(_KEYVAL[0])
    if found is None:
        found = {}
        comm.Set_attr(_KEYVAL[0], found)
    return found


def mpi() -> Any:
    """The module `mpi4py.MPI`, which whoever has a communicator has imported."""
    return sys.modules["mpi4py.MPI"]


def has_threads() -> bool:
    """Whether several threads of a process may call MPI at the same time."""
    MPI = mpi()
    return bool(MPI.Query_thread() >= MPI.THREAD_MULTIPLE)


def rank_text() -> str:
    """This process by its number in the whole job, as "rank 2 of 4"."""
    world = mpi().COMM_WORLD
    return f"rank {world.Get_rank()} of {world.Get_size()}"


# --- exceptions
def watch(comm: Any) -> None:
    """End all ranks where an exception that nothing catches ends one; later calls change nothing.

    The message is that of Python with one line that names the rank. Ranks that fail at about the same time write one
    message, that of the lowest. The exit code is 1, after an interrupt 130. Nothing is changed for a communicator of
    one rank and in an interactive session. A handler of the exceptions of threads that somebody else has set, as
    pytest does, is left in force.

    ``sys.exit`` on one rank calls no handler: raise an exception, or start the program by ``python -m mpi4py``.

    Parameters
    ----------
    comm : communicator of mpi4py, or what `distributed.serial` gives
    """
    if comm.Get_size() == 1 or _PREVIOUS or is_interactive():
        return
    _PREVIOUS["process"] = sys.excepthook
    sys.excepthook = _of_process
    if threading.excepthook is threading.__excepthook__:
        _PREVIOUS["thread"] = threading.excepthook
        threading.excepthook = _of_thread


def is_interactive() -> bool:
    """Whether a person at a prompt goes on after an exception."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive or sys.flags.inspect or os.environ.get("PYTHONINSPECT"))


def _of_process(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End all ranks by an exception of the main thread."""
    previous = _PREVIOUS["process"]
    is_pythons = previous is sys.__excepthook__
    text = "".join(traceback.format_exception(kind, error, trace)) if is_pythons else ""
    end_all(error, text if is_pythons else lambda: previous(kind, error, trace))


def _of_thread(arguments: Any) -> None:
    """End all ranks by an exception of another thread: what the rank waits for may never come."""
    if arguments.exc_type is SystemExit:
        return
    error = arguments.exc_value or arguments.exc_type()
    end_all(error, lambda: _PREVIOUS["thread"](arguments))


def end_all(error: BaseException, show: Callable[[], Any] | str, why: str = "", rank: str = "") -> None:
    """Write one message and end all ranks of the job.

    Parameters
    ----------
    error : exception
        The cause.
    show : callable, or str
        What writes the traceback, or its text.
    why : str
        What the message says behind the cause.
    rank : str
        The rank with the cause; default: the attribute `raised_on` of the error, or this one.
    """
    MPI = mpi()
    if MPI.Is_finalized() or not _ENDING.acquire(blocking=False):
        if callable(show):
            show()
        elif MPI.Is_finalized():
            sys.stderr.write(show)
        return
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    try:
        if not _is_told_by_lower_rank(MPI):
            _write(error, show, why, rank or getattr(error, "raised_on", "") or rank_text())
            time.sleep(SECONDS_FOR_LAUNCHER)
    finally:
        MPI.COMM_WORLD.Abort(INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)


def _write(error: BaseException, show: Callable[[], Any] | str, why: str, rank: str) -> None:
    text = f"{rank}: {type(error).__name__}: {error}".rstrip(": ")
    with contextlib.suppress(Exception):
        if callable(show):
            show()
        else:
            text = f"{show.rstrip()}\n{text}"
        sys.stderr.write(f"{text}\n{why or 'All ranks are ended.'}\n")
        sys.stderr.flush()


def _is_told_by_lower_rank(MPI: Any) -> bool:
    """Tell the higher ranks that this one fails; whether a lower one fails, too, and has the message."""
    if not has_threads() and threading.current_thread() is not threading.main_thread():
        return False
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    with contextlib.suppress(Exception):
        told = [world.isend(None, other, tag=TAG) for other in range(rank + 1, min(size, rank + 1 + MOST_TOLD))]
        until = time.monotonic() + (SECONDS_FOR_OTHERS if rank else 0.0)
        while time.monotonic() < until:
            if world.iprobe(tag=TAG):
                time.sleep(SECONDS_FOR_ABORT)
                return True
            time.sleep(0.005)
        del told  # requests keep what they send
    return False


# --- ranks of other processors and versions
def facts() -> dict[str, str]:
    """What decides the bits of results on this rank, each by its name."""
    return {
        "ensemble": __version__,
        "sizes of types": ", ".join(str(np.dtype(kind).itemsize) for kind in (np.intp, np.longdouble)),
        "byte order": f"{sys.byteorder}, {struct.calcsize('P')} bytes a pointer",
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        **{name: version(name.lower()) for name in ("SciPy", "Numba", "llvmlite")},
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        **processor(),
    }


NEEDED = ("ensemble", "sizes of types", "byte order")
"""Facts without which ranks do not understand each other."""


IDENTITY = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
"""What names a processor in /proc/cpuinfo, by which LLVM, LAPACK and libm choose their code."""

INSTRUCTIONS = ("sse", "ssse", "avx", "amx", "fma", "f16c", "bmi", "popcnt", "abm", "asimd", "sve", "sme", "fp", "neon")
"""Beginnings of the flags of instructions for which these write other code."""


def processor() -> dict[str, str]:
    """The processor of this rank and its instructions, without an import of the compilers."""
    lines: dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, colon, value = line.partition(":")
            if not colon:
                break
            lines.setdefault(name.strip(), value.strip())
    if lines:
        found = ", ".join(f"{name} {lines[name]}" for name in IDENTITY if name in lines)
        flags = lines.get("flags", lines.get("Features", "")).split()
        instructions = ",".join(sorted({flag for flag in flags if flag.startswith(INSTRUCTIONS)}))
    else:
        from ensemble._compile.processor import target

        _, found, instructions = target()
    chosen = ", ".join(f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ)
    return {"processor": found, "features": instructions, "settings": chosen or "none"}


SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "OPENBLAS_CORETYPE", "MKL_CBWR", "NPY_DISABLE_CPU_FEATURES")
"""Variables of the environment by which users choose code for another processor."""


def agree(comm: Any) -> None:
    """Compare the processors and the versions of all ranks, once per communicator.

    Every rank of the communicator calls it.

    Parameters
    ----------
    comm : communicator of mpi4py, or what `distributed.serial` gives

    Raises
    ------
    RuntimeError
        If versions of this package or sizes of types differ; on every rank.

    Warns
    -----
    RuntimeWarning
        If anything else differs that decides bits: results are right, but need not be those of one rank to the bit.
        The first rank of the communicator warns.
    """
    if comm.Get_size() == 1 or kept_with(comm).setdefault("agreed", False):
        return
    kept_with(comm)["agreed"] = True
    found = comm.allgather(facts())
    different = {name: _values(found, name) for name in found[0] if len({one[name] for one in found}) > 1}
    needed = {name: text for name, text in different.items() if name in NEEDED}
    if needed:
        seen = "; ".join(f"{name}: {text}" for name, text in needed.items())
        raise RuntimeError(f"distributed: ranks must have one version and one kind of numbers; got {seen}.")
    if different and comm.Get_rank() == 0:
        seen = "; ".join(f"{name}: {text}" for name, text in different.items())
        advice = "Start the ranks on nodes of one kind, with one environment."
        text = f"distributed: results may differ in their last bits from those of one rank; ranks differ in {seen}."
        warn_caller(f"{text} {advice}", RuntimeWarning)


def _values(found: list[dict[str, str]], name: str) -> str:
    """Which ranks have which value of a fact; of long lists what is not common to all."""
    ranks: dict[str, list[int]] = {}
    for rank, one in enumerate(found):
        ranks.setdefault(one[name], []).append(rank)
    common = set.intersection(*(set(value.split(",")) for value in ranks)) if name == "features" else set()
    parts = []
    for value, which in ranks.items():
        rest = [part for part in value.split(",") if part not in common]
        text = ", ".join(map(str, which[:6])) + (f" and {len(which) - 6} more" if len(which) > 6 else "")
        parts.append(f"{','.join(rest) or 'none of these'} on rank{'s' if len(which) > 1 else ''} {text}")
    return " / ".join(parts)
