"""Names of Numba outside its public interface: looked up here alone, and what is done where one is missing.

A release of Numba may rename any of them. `found` then gives None, and the code takes the way that stands beside the
name in `PRIVATE`: slower to compile, with the same values. `tests/test_numba_private.py` hides each name in turn.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import binding

__all__ = [
    "PRIVATE",
    "SYMBOLS",
    "compiler_lock",
    "contexts",
    "definition_of",
    "found",
    "keeps_code",
    "symbols_known",
    "thread_counter",
]


class Private(NamedTuple):
    """Where a private name lies, and what is done without it."""

    module: str
    name: str
    """Attributes of the module, one after the other."""
    without: str


PRIVATE = {
    "target_context": Private(
        "numba.core.registry", "cpu_target.target_context", "loops are compiled by Numba, not translated"
    ),
    "typing_context": Private("numba.core.registry", "cpu_target.typing_context", "as for target_context"),
    "cache": Private("numba.core.caching", "_Cache", "kernels that Numba compiles are compiled in every process"),
    "rebuild": Private("numba.core.compiler", "CompileResult._rebuild", "as for cache"),
    "reduce": Private("numba.core.compiler", "CompileResult._reduce", "as for cache"),
    "dumps": Private("numba.core.serialize", "dumps", "as for cache"),
    "c_function": Private("numba.core.ccallback", "CFunc", "numba.cfunc, in every process"),
    "normalize_signature": Private("numba.core.sigutils", "normalize_signature", "as for c_function"),
    "listener": Private("numba.core.event", "Listener", "garbage is collected while Numba compiles, a tenth slower"),
    "register": Private("numba.core.event", "register", "as for listener"),
    "empty_array": Private("numba.np.arrayobj", "_empty_nd_impl", "np.empty, compiled for each type of array"),
    "compiler_lock": Private("numba.core.compiler_lock", "global_compiler_lock", "a lock of this library"),
    "launch_openmp": Private("numba.np.ufunc.omppool", "launch_threads", "a forked process keeps its parent's threads"),
    "launch_threads": Private("numba.np.ufunc.parallel", "_launch_threads", "threads start with the first loop"),
}

SYMBOLS = ("numba_parallel_for", "get_num_threads")
"""Functions of Numba's threads that translated loops call; without one of them Numba compiles the loops."""


@functools.cache
def found(name: str) -> Any:
    """The object of one of `PRIVATE`; None where the Numba that is installed does not have it."""
    about = PRIVATE[name]
    try:
        value: Any = importlib.import_module(about.module)
        for attribute in about.name.split("."):
            value = getattr(value, attribute)
    except (ImportError, AttributeError):
        return None
    return value


def contexts() -> tuple[Any, Any] | None:
    """Numba's contexts of code and of types, which translated loops use; None where one is missing."""
    both = found("target_context"), found("typing_context")
    return None if None in both else both


@functools.cache
def symbols_known() -> bool:
    """Whether LLVM knows the functions of Numba's threads; they must have been started."""
    return all(binding.address_of_symbol(name) for name in SYMBOLS)


def thread_counter() -> Callable[[], int] | None:
    """Make a function that returns how many threads a loop may use; None where LLVM does not know it.

    Threads must have been started. Numba's own function takes two locks at each call.
    """
    address = binding.address_of_symbol("get_num_threads")
    return ctypes.PYFUNCTYPE(ctypes.c_int)(address) if address else None


@functools.cache
def compiler_lock() -> Any:
    """The lock that is held while code is made: Numba compiles one function at a time."""
    return found("compiler_lock") or threading.RLock()


def keeps_code() -> bool:
    """Whether compiled functions can be kept on disk.

    Numba's own cache is no substitute: it takes code for current whose inner functions lie in files that have changed.
    """
    return None not in [found(name) for name in ("cache", "rebuild", "reduce", "dumps")]


def definition_of(function: Any) -> Any:
    """The Python function that types and writes an intrinsic function; None for other objects."""
    return getattr(function, "_defn", None)
