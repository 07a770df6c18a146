"""Threads of the BLAS that NumPy and SciPy call, and the processors that there are for threads."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import Any

__all__ = ["n_processors", "one_blas_thread", "share_processors"]

LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE")
"""Variables in which launchers of MPI say how many processes they started on a machine: Open MPI, MPICH, MVAPICH."""


def n_processors() -> int:
    """The number of processors that this process may use; of all, on systems that do not tell."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def share_processors() -> None:
    """Give the ranks of MPI on this machine equal shares of its processors, as threads of compiled loops.

    Threads of several ranks on one processor wait for each other: a loop takes many times as long. A number that the
    user chose by NUMBA_NUM_THREADS stays. Numba reads it when it is imported; where it was, the calling thread alone
    takes the share.
    """
    ranks = next((int(os.environ[name]) for name in LOCAL_SIZES if os.environ.get(name, "").isdigit()), 1)
    if ranks < 2 or "NUMBA_NUM_THREADS" in os.environ:
        return
    # where the launcher bound each rank to processors of its own, those are all that it sees
    total, own = os.cpu_count() or 1, n_processors()
    share = max(1, own if own < total else total // ranks)
    if "numba" in sys.modules:
        sys.modules["numba"].set_num_threads(min(share, sys.modules["numba"].config.NUMBA_NUM_THREADS))
    else:
        os.environ["NUMBA_NUM_THREADS"] = str(share)


@functools.cache
def _controller() -> Any:
    """The handle on the threads of the BLAS that is loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """A context in which BLAS runs on the calling thread: small matrices are slower on many threads."""
    limited: contextlib.AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limited
