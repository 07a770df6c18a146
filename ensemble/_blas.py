"""Threads of the BLAS that NumPy and SciPy call, and the processors that there are for threads."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any

__all__ = ["n_processors", "one_blas_thread"]


def n_processors() -> int:
    """The number of processors that this process may use; of all, on systems that do not tell."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@functools.cache
def _controller() -> Any:
    """The handle on the threads of the BLAS that is loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """A context in which BLAS runs on the calling thread: small matrices are slower on many threads."""
    limited: contextlib.AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limited
