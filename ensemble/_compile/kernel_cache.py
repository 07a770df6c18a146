"""Kernels compiled by Numba on disk, keyed by the sources that they are made of.

Numba's own cache keys a function by its file, keeps an index beside the code, and trusts both. Here each kernel is one
sealed file (`sealed_files.py`), whose name is a digest of all that the code depends on: the function, the types of its
arguments, the folders whose functions it may contain, the processor, and the compilers.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from ensemble._compile.cache_folder import ROOT, cache_folder, digest_of, keep_file, stored_file
from ensemble._compile.numba_private import found, keeps_code
from ensemble._compile.processor import target
from ensemble._interrupts import shielded

__all__ = ["CONTAINED", "Shielded", "cached", "cached_c_function", "folders_of"]

COMMON = ("_compile", "_kernels/sparse", "_kernels/krylov")
"""Folders whose functions kernels of every folder may contain."""


CONTAINED = {"_kernels/ode": ("_kernels/direct",)}
"""Folders whose functions kernels of another folder may contain: a step factorises and solves in one pass."""


def folders_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The folders whose sources `function` may contain; all kernels for code that is generated elsewhere."""
    with contextlib.suppress(ValueError):
        parts = Path(inspect.getfile(function)).relative_to(ROOT / "_kernels").parts
        own = f"_kernels/{parts[0]}"
        return (*COMMON, *CONTAINED.get(own, ()), own)
    return (*COMMON, "_kernels")


def _source_digest(function: Any) -> str:
    """Digest of the file of a function from elsewhere; the names of generated modules have that of their source."""
    try:
        return hashlib.sha256(Path(inspect.getfile(function)).read_bytes()).hexdigest()
    except OSError:
        return ""


class KernelCache(found("cache") or object):  # type: ignore[misc]
    """The overloads of one function."""

    def __init__(self, function: Any) -> None:
        self._function = function
        folders = folders_of(function)
        code = function.__code__
        cells = function.__closure__
        constants = b"" if cells is None else found("dumps")([cell.cell_contents for cell in cells])
        self._about = (
            function.__module__, function.__qualname__, code.co_firstlineno, _source_digest(function),
            hashlib.sha256(code.co_code).hexdigest(), hashlib.sha256(constants).hexdigest(),
            *map(digest_of, folders), numba.__version__, sys.version_info[:2],
        )  # fmt: skip
        self._enabled = True

    @property
    def cache_path(self) -> Any:
        """The folder, for Numba's statistics."""
        return cache_folder()

    def _name(self, signature: Any) -> str:
        about = repr((self._about, str(signature), target()))
        return f"kernel_{hashlib.blake2b(about.encode(), digest_size=16).hexdigest()}.nbc"

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled function for a signature; None where it is not on disk as it was written."""
        target_context.refresh()
        content = stored_file(self._name(signature)) if self._enabled else None
        return None if content is None else found("rebuild")(target_context, *pickle.loads(content))

    def save_overload(self, signature: Any, made: Any) -> None:
        """Keep a compiled function on disk, where it does not depend on addresses of this process."""
        if self._enabled and not made.library.has_dynamic_globals and all(each.can_cache for each in made.lifted):
            keep_file(self._name(signature), found("dumps")(made._reduce()))

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        """Nothing: kernels of other sources have other names."""


class Shielded(type(numba.njit(lambda: None))):  # type: ignore[misc]  # numba.njit is not typed
    """A function that Numba compiles, or loads, where no handler of a signal raises; see `shielded`."""

    def compile(self, signature: Any) -> Any:
        return shielded(lambda: super(Shielded, self).compile(signature))


def cached(dispatcher: Any) -> Any:
    """`dispatcher`, its compiled code kept on disk where Numba has the names for that."""
    dispatcher.__class__ = Shielded
    if keeps_code() and hasattr(dispatcher, "_cache"):
        dispatcher._cache = KernelCache(dispatcher.py_func)
    return dispatcher


def cached_c_function(signature: str, **options: Any) -> Callable[[Any], Any]:
    """Compile a C function of the given signature; its code is kept on disk."""

    def made(function: Any) -> Any:
        make, normalize = found("c_function"), found("normalize_signature")
        if make is None or normalize is None or not keeps_code():
            return shielded(lambda: numba.cfunc(signature, **options)(function))
        compiled = make(function, normalize(signature), locals={}, options=options)
        compiled._cache = KernelCache(function)
        shielded(compiled.compile)
        return compiled

    return made
