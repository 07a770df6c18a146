"""Threads of the BLAS that NumPy and SciPy call."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

__all__ = ["one_blas_thread"]


@functools.cache
def _controller() -> Any:
    """The handle on the threads of the BLAS that is loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """A context in which BLAS runs on the calling thread: small matrices are slower on many threads."""
    limited: contextlib.AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limited
