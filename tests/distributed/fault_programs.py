"""Programs in which a rank fails, for ``mpiexec -n P python -m tests.distributed.fault_programs NAME ...``."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from ensemble.distributed import faults


def callback(comm):
    """Rank 1 raises in a callback, the others wait in a barrier."""
    faults.watch(comm)
    if comm.rank == 1:
        sorted([3, 2, 1], key=lambda value: 1 // (value - 2))
    comm.Barrier()


def all_alike(comm):
    """All ranks raise the same."""
    faults.watch(comm)
    raise ValueError("on every rank")


def thread(comm):
    """A thread of rank 2 raises, for whose answer all wait."""
    faults.watch(comm)
    came = threading.Event()
    if comm.rank == 2:
        threading.Thread(target=lambda: 1 // 0).start()
    else:
        came.set()
    came.wait()
    comm.Barrier()


def with_own_handler(comm):
    """Rank 1 raises where a handler of the user's is in force, which is called, too."""
    sys.excepthook = lambda kind, error, trace: print(f"own handler: {kind.__name__}", file=sys.stderr)
    threading.excepthook = own = lambda arguments: None
    faults.watch(comm)
    assert threading.excepthook is own
    if comm.rank == 1:
        raise KeyError("missing")
    comm.Barrier()


def interrupt(comm):
    """All ranks are interrupted."""
    faults.watch(comm)
    time.sleep(0.01 * comm.rank)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(30.0)


def study(comm, store="", on_failure="mask"):
    """A study whose model raises on rank 1 alone, before a communication in which rank 0 waits."""
    import ensemble as en
    from ensemble.distributed.groups import groups
    from tests.distributed.group_studies import INPUTS, SERIAL_STUDY

    def model(x, group):
        if 40 in x.ids and group.rank == 1:
            raise ZeroDivisionError("before the communication")
        return {"y": x.load * group.allreduce(1)}

    settings = {"store": store or None, "on_failure": on_failure, "executor": groups(comm, 2, seconds=1.0)}
    en.propagate(model, INPUTS, **SERIAL_STUDY, **settings)


def long_ensemble(comm):
    """A study that ends by an error of one group while another is in a long ensemble."""
    import ensemble as en
    from ensemble.distributed.groups import groups
    from tests.distributed.group_studies import INPUTS, SERIAL_STUDY

    def model(x, group):
        if comm.rank == 0:
            time.sleep(60.0)
        time.sleep(0.3)
        return undefined  # noqa: F821

    en.propagate(model, INPUTS, executor=groups(comm, 1, seconds=1.0), **SERIAL_STUDY)


# --- for kills and exceptions at random places


def tell(comm, folder):
    """Raise in the main thread when the parent sends a signal, and say that this rank may be hit."""

    def raise_here(number, frame):
        raise ArithmeticError("at a random place")

    signal.signal(signal.SIGUSR2, raise_here)
    part = Path(folder, f"part-{comm.rank}")
    part.write_text(str(os.getpid()))
    part.rename(Path(folder, f"rank-{comm.rank}"))


def loop(comm, folder):
    """Collectives, one after the other."""
    faults.watch(comm)
    tell(comm, folder)
    for step in range(3000):
        assert comm.allreduce(step) == step * comm.size
        time.sleep(0.001)


def long_study(comm, folder, store, per_group, resume):
    """A study with a store whose groups take a while."""
    import ensemble as en
    from ensemble.distributed.groups import groups
    from tests.distributed.group_studies import INPUTS, LONG_STUDY, slow_model

    workers = groups(comm, int(per_group), seconds=2.0)
    tell(comm, folder)
    en.propagate(
        slow_model, INPUTS, executor=workers, store=store, resume=resume == "True", on_failure="raise", **LONG_STUDY
    )


if __name__ == "__main__":
    from mpi4py import MPI

    globals()[sys.argv[1]](MPI.COMM_WORLD, *sys.argv[2:])
