"""A command on several ranks: who started it, its communicator, and that it speaks with one voice."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from ensemble._optional import advice_for
from ensemble._progress import say

__all__ = ["communicator", "launched", "on_ranks", "require_one_process"]

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""Variables in which launchers say how many processes they started: Open MPI, MPICH and Intel MPI, MVAPICH, srun."""

NUMBERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")

TOGETHER = 3.0
"""Seconds after an error within which the other ranks have it, too, if all have it."""

EXPECTED = (ValueError, TypeError, OSError, MemoryError)
"""Errors that are one line, without a traceback."""

PATIENCE = 10.0
"""Seconds after an interruption that rank 0 has for what it prints and writes, before other ranks end it."""


def launched() -> int:
    """How many processes a launcher of MPI started for this run, as the environment says; 0 for a plain run.

    A step of srun of one process is a plain run: there is srun without MPI, too.
    """
    sizes = {name: int(os.environ[name]) for name in SIZES if os.environ.get(name, "").isdigit()}
    if sizes.get("SLURM_STEP_NUM_TASKS") == 1:
        sizes.pop("SLURM_STEP_NUM_TASKS")
    return max(sizes.values(), default=1 if "PMIX_RANK" in os.environ else 0)


def require_one_process(advice: str) -> None:
    """Refuse a command of which a launcher started several copies; rank 0 alone prints the error.

    Raises
    ------
    ValueError
        On rank 0; the other ranks end with the same status, silently.
    """
    started = launched()
    if started < 2:
        return
    if any(os.environ.get(name, "0") != "0" for name in NUMBERS):
        raise SystemExit(2)
    raise ValueError(f"this command must run in one process; the launcher started {started} copies of it. {advice}")


def communicator(asked: bool) -> Any:
    """The communicator of all ranks; None for a plain run, which does not import mpi4py.

    Raises
    ------
    ValueError
        If a launcher started several processes, or ``--mpi`` asks for ranks, and mpi4py is missing or of another MPI:
        the processes would be copies of one run.
    """
    started = launched()
    if not started and not asked:
        return None
    told = f"the launcher started {started} processes" if started > 1 else "ranks were asked for"
    from ensemble.distributed.messages import world

    try:
        comm, library = world()
    except (ImportError, RuntimeError) as error:
        raise ValueError(f"{told}, but mpi4py cannot be used: {error}. {advice_for('mpi4py')}") from None
    if comm.size == 1 < started:
        raise ValueError(
            f"{told}, but each is alone in MPI: mpi4py uses {library!r}. "
            "Take the mpiexec of that MPI, or an mpi4py of the launcher's; with srun give --mpi=."
        )
    return comm


def on_ranks(options: argparse.Namespace, carry_out: Callable[[argparse.Namespace, Any], int]) -> int:
    """Carry out a command with the communicator of this run, None for a plain one; returns the exit status.

    Rank 0 alone prints. An error that all ranks raise is printed once; one of a single rank ends all of them, and so
    does an interruption.
    """
    numbers = [os.environ[name] for name in NUMBERS if name in os.environ] if launched() > 1 else []
    voice = sys.stderr
    if any(number != "0" for number in numbers):
        be_silent(options)
    comm = communicator(options.mpi)
    if comm is None or comm.size == 1:
        return carry_out(options, comm)
    if comm.rank:
        be_silent(options)
    own = comm.Dup()
    try:
        status = carry_out(options, comm)
    except KeyboardInterrupt:
        say(f"{options.prog}: {options.output.interrupted()}")
        status = 130
    except Exception as error:
        if all_come(own):
            raise  # main prints it
        sys.stderr = voice
        if not isinstance(error, EXPECTED):
            traceback.print_exc()
        text = " ".join(str(error).split()) or type(error).__name__
        say(f"{options.prog}: error on rank {comm.rank} of {comm.size}: {text}")
        comm.Abort(2)
    if status == 130:  # the others may wait in a message
        if comm.rank:
            time.sleep(PATIENCE)
        sys.stdout.flush()
        comm.Abort(130)
    return status


def all_come(comm: Any) -> bool:
    """Whether every rank calls this within a few seconds."""
    request, end = comm.Ibarrier(), time.monotonic() + TOGETHER
    while not request.Test():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def be_silent(options: argparse.Namespace) -> None:
    """Print nothing from now on."""
    options.quiet = True
    if not sys.stdout or sys.stdout.name != os.devnull:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  open to the end
